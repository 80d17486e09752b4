//! The SQLite file: created once, recognized by its application ID, never overwritten.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use tompion_os::DirHandle;

use super::Error;

/// `Tmpn`: identifies a database as a history (`PRAGMA application_id`).
const APPLICATION: i64 = 0x546d_706e;
/// Version of the schema (`PRAGMA user_version`): the first one and each later addition.
const VERSION: i64 = 1 + LATER_TABLES.len() as i64;

/// First bytes of every SQLite database (<https://www.sqlite.org/fileformat2.html>).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// Timeout for the transaction of another process: it takes milliseconds, on a slow disk seconds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(20);

/// Tables of version 1. `rows` has one row for five minutes, with the maximum of each CPU and kind.
/// `bodies` has everything else of the newest rows. `hours` and `days` are the sums of rows up to
/// `state.rolled`. Times and durations are in milliseconds; times count from 1970.
const TABLES: &str = "
CREATE TABLE rows(id INTEGER PRIMARY KEY, start INTEGER NOT NULL, duration INTEGER NOT NULL, system INTEGER NOT NULL,
    maxima BLOB NOT NULL);
CREATE INDEX rows_by_start ON rows(start, duration, system);
CREATE TABLE bodies(id INTEGER PRIMARY KEY, body BLOB NOT NULL);
CREATE TABLE hours(id INTEGER PRIMARY KEY, start INTEGER NOT NULL, system INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE(start, system));
CREATE TABLE days(id INTEGER PRIMARY KEY, start INTEGER NOT NULL, system INTEGER NOT NULL, body BLOB NOT NULL,
    UNIQUE(start, system));
CREATE TABLE state(rolled INTEGER NOT NULL, monitor TEXT NOT NULL);
CREATE TABLE counters(boot TEXT NOT NULL, begun INTEGER NOT NULL, interval INTEGER NOT NULL, monotonic INTEGER NOT NULL,
    boottime INTEGER NOT NULL, realtime INTEGER NOT NULL, woken INTEGER NOT NULL, counters BLOB NOT NULL);
CREATE TABLE systems(id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
CREATE TABLE starts(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, boot TEXT NOT NULL, system INTEGER NOT NULL);
CREATE TABLE events(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, kind TEXT NOT NULL, amount INTEGER NOT NULL);
CREATE TABLE incidents(id INTEGER PRIMARY KEY, time INTEGER NOT NULL, cpu INTEGER NOT NULL, tid INTEGER NOT NULL,
    thread TEXT NOT NULL, kind TEXT NOT NULL, latency INTEGER NOT NULL, cause TEXT NOT NULL, folder TEXT NOT NULL);
CREATE INDEX incidents_by_time ON incidents(time);
";

/// Additions of each later version. Blobs carry their own version number.
const LATER_TABLES: [&str; 2] = [
    // Numbers of jobs, which `rows.maxima` refers to.
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);",
    // No table: only the stacks in bodies, which older versions would take for damage.
    "",
];

/// First version with numbers of jobs.
pub const WITH_JOBS: i64 = 2;

/// Opens a database to write; creates it and its folder if they don't exist.
pub fn open_to_write(path: &Path) -> Result<Connection, Error> {
    let is_new = match is_empty_database(path) {
        Ok(is_empty) => is_empty,
        Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    make_file(path, is_new)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    let settings = || {
        // A journal exists beside the file only during a transaction, so every user with access to
        // the file can read it at any time. Each transaction is on the disk when it ends; there is
        // one per five minutes.
        connection.pragma_update_and_check(None, "journal_mode", "delete", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "extra")
    };
    settings().map_err(|error| Error::database(path, error))?;
    if is_new {
        make(&mut connection).map_err(|error| Error::database(path, error))?;
    }
    if recognise(&connection, path)? < VERSION {
        migrate(&mut connection).map_err(|error| Error::database(path, error))?;
    }
    Ok(connection)
}

/// Creates the file and its folders; for root, with access for root alone. SQLite reopens files by
/// path, so root keeps a history only where no other user can replace them.
fn make_file(path: &Path, is_new: bool) -> Result<(), Error> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let failed = |error| Error::file("can't make", folder, error);
    let folder =
        if is_new { DirHandle::open_or_create(folder) } else { DirHandle::open(folder) }.map_err(failed)?;
    folder.check_root_only().map_err(|error| Error::file("can't keep a history in", folder.path(), error))?;
    match path.file_name().filter(|_| is_new).map(|name| folder.create_new(name)) {
        Some(Err(error)) if error.kind() != io::ErrorKind::AlreadyExists => {
            Err(Error::file("can't make", path, error))
        }
        _ => Ok(()),
    }
}

/// Opens a database to read.
pub fn open_to_read(path: &Path) -> Result<Connection, Error> {
    if is_empty_database(path)? {
        return Err(Error::Foreign { path: path.into(), found: "an empty file".into() });
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    recognise(&connection, path)?;
    Ok(connection)
}

/// Returns whether a file is empty. Fails, without a change, on a file that is no database.
fn is_empty_database(path: &Path) -> Result<bool, Error> {
    let failed = |error| Error::file("can't open", path, error);
    let mut file = tompion_os::open_regular(path).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidInput => {
            Error::Foreign { path: path.into(), found: "something that is no file".into() }
        }
        _ => failed(error),
    })?;
    let mut begin = Vec::new();
    file.by_ref().take(MAGIC.len() as u64).read_to_end(&mut begin).map_err(failed)?;
    match begin.as_slice() {
        [] => Ok(true),
        bytes if bytes == MAGIC => Ok(false),
        _ => Err(Error::Foreign { path: path.into(), found: "a file of another kind".into() }),
    }
}

fn connect(path: &Path, flags: OpenFlags) -> Result<Connection, Error> {
    let connect = || {
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(LOCK_TIMEOUT)?;
        // A hostile database may contain code (triggers, views); a history has none.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // In KiB; keeps the writer's memory small for years.
        connection.pragma_update(None, "cache_size", -1024)?;
        Ok(connection)
    };
    connect().map_err(|error| Error::database(path, error))
}

/// Creates all tables in one transaction: a file is a whole history or empty.
fn make(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have created them meanwhile.
    if number(&transaction, "application_id")? == 0 {
        transaction.execute_batch(TABLES)?;
        LATER_TABLES.iter().try_for_each(|tables| transaction.execute_batch(tables))?;
        transaction.execute("INSERT INTO state(rolled, monitor) VALUES(0, '')", [])?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

/// Upgrades a history of an earlier version, all or nothing.
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have upgraded it meanwhile.
    let has = usize::try_from(version(&transaction)? - 1).unwrap_or(usize::MAX);
    for tables in LATER_TABLES.iter().skip(has) {
        transaction.execute_batch(tables)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// Returns the version of a history's schema.
pub fn version(connection: &Connection) -> rusqlite::Result<i64> {
    number(connection, "user_version")
}

fn number(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// Checks that the database is a history and returns its version, which is at most ours.
fn recognise(connection: &Connection, path: &Path) -> Result<i64, Error> {
    let failed = |error| Error::database(path, error);
    let (application, version) =
        (number(connection, "application_id").map_err(failed)?, version(connection).map_err(failed)?);
    if application != APPLICATION {
        return Err(Error::Foreign { path: path.into(), found: "a database of another program".into() });
    }
    if !(1..=VERSION).contains(&version) {
        return Err(Error::OtherVersion { path: path.into(), found: version, expected: VERSION });
    }
    Ok(version)
}

/// Default path of the history: the system's for root, else the user's own.
pub fn default_path() -> PathBuf {
    const MACHINE: &str = "/var/lib/tompion/history.sqlite";
    if tompion_os::effective_user() == 0 {
        return MACHINE.into();
    }
    let state = tompion_os::user_folder("XDG_STATE_HOME", ".local/state");
    let own = state.map(|state| state.join("tompion/history.sqlite"));
    // A user without a history reads the system's.
    own.filter(|own| own.exists() || !Path::new(MACHINE).exists()).unwrap_or_else(|| MACHINE.into())
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn refused(path: &Path) -> String {
        let before = fs::read(path).unwrap();
        let errors =
            [open_to_write(path), open_to_read(path)].map(|it| it.map(drop).unwrap_err().to_string());
        assert_eq!(errors[0], errors[1]);
        assert_eq!(fs::read(path).unwrap(), before, "it was overwritten");
        let [error, _] = errors;
        assert!(!error.contains('\n') && error.contains(&path.display().to_string()), "{error}");
        error
    }

    /// Checks SQLite's version and options: a damaged or hostile file should reach little code.
    #[test]
    fn sqlite_is_new_enough_and_has_nothing_that_histories_do_not_use() {
        assert!(rusqlite::version_number() >= 3_050_003, "SQLite {}", rusqlite::version());
        let connection = Connection::open_in_memory().unwrap();
        let mut statement = connection.prepare("PRAGMA compile_options").unwrap();
        let options: Vec<String> =
            statement.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect();
        assert!(options.iter().any(|option| option == "OMIT_LOAD_EXTENSION"), "{options:?}");
        for unused in ["FTS3", "FTS4", "FTS5", "RTREE", "GEOPOLY", "DBSTAT_VTAB", "LOAD_EXTENSION"] {
            let unused = format!("ENABLE_{unused}");
            assert!(!options.iter().any(|option| option.starts_with(&unused)), "{options:?}");
        }
        let made = connection.execute_batch("CREATE VIRTUAL TABLE texts USING fts5(body)");
        assert!(made.unwrap_err().to_string().contains("no such module: fts5"));
    }

    #[test]
    fn what_is_no_history_is_never_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        fs::write(&path, "my thesis").unwrap();
        assert!(refused(&path).contains("a file of another kind"));
        fs::write(&path, [MAGIC.as_slice(), &[7; 5000]].concat()).unwrap();
        assert!(refused(&path).contains("damaged"), "{}", refused(&path));
        fs::remove_file(&path).unwrap();
        Connection::open(&path).unwrap().execute_batch("CREATE TABLE photos(name)").unwrap();
        assert!(refused(&path).contains("a database of another program"));
        fs::remove_file(&path).unwrap();
        let connection = open_to_write(&path).unwrap();
        connection.pragma_update(None, "user_version", 9).unwrap();
        drop(connection);
        assert!(refused(&path).contains("version 9"));
    }

    #[test]
    fn tables_that_came_later_are_made_when_it_is_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        let connection = Connection::open(&path).unwrap();
        connection.execute_batch(TABLES).unwrap();
        connection.pragma_update(None, "application_id", APPLICATION).unwrap();
        connection.pragma_update(None, "user_version", 1).unwrap();
        drop(connection);
        let found = |connection: &Connection| {
            let select = "SELECT group_concat(name, ' ') FROM (SELECT name FROM sqlite_schema ORDER BY name)";
            let names: String = connection.query_row(select, [], |row| row.get(0)).unwrap();
            (version(connection).unwrap(), names)
        };
        let before = fs::read(&path).unwrap();
        assert_eq!(found(&open_to_read(&path).unwrap()).0, 1);
        assert_eq!(fs::read(&path).unwrap(), before, "the reader changed it");
        let migrated = found(&open_to_write(&path).unwrap());
        assert_eq!(migrated, found(&open_to_write(&folder.path().join("new")).unwrap()));
        assert_eq!((migrated.0, found(&open_to_write(&path).unwrap())), (VERSION, migrated));
    }

    #[test]
    fn folders_are_no_histories_and_what_is_not_there_is_said() {
        let folder = tempfile::tempdir().unwrap();
        assert!(open_to_write(folder.path()).map(drop).unwrap_err().to_string().contains("no file"));
        let nothing = folder.path().join("a/b/history");
        let error = open_to_read(&nothing).map(drop).unwrap_err();
        assert!(error.to_string().contains("can't open"), "{error}");
        assert!(!nothing.exists());
        // Writing creates the folders.
        drop(open_to_write(&nothing).unwrap());
        open_to_read(&nothing).unwrap();
    }
}
