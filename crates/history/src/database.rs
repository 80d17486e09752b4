//! The file: made once, recognised later, never overwritten.

use std::{
    io::{self, Read as _},
    path::{Path, PathBuf},
    time::Duration,
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};
use tompion_os::DirHandle;

use super::Error;

/// `Tmpn`, by which a database says whose it is (`PRAGMA application_id`).
const APPLICATION: i64 = 0x546d_706e;
/// Of the tables and what is in them (`PRAGMA user_version`): what the first one had, and what came to it.
const VERSION: i64 = 1 + LATER_TABLES.len() as i64;

/// What every database of SQLite begins with (<https://www.sqlite.org/fileformat2.html>).
const MAGIC: &[u8; 16] = b"SQLite format 3\0";

/// How long one waits for another's transaction: each takes milliseconds, a disk may take seconds.
const PATIENCE: Duration = Duration::from_secs(20);

/// `rows`: what was counted in five minutes, each with the longest of each CPU and kind; `bodies` have the rest of the youngest
/// of them. `hours` and `days` are the sums of rows up to `state.rolled`. Times are milliseconds since 1970, durations too.
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

/// What each later version has beside that. Versions that say more in their blobs say there which one they are.
const LATER_TABLES: [&str; 2] = [
    // Numbers of jobs, by which `rows.maxima` names them.
    "CREATE TABLE jobs(id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE);",
    // Nothing but code in bodies, which those before would take for damage.
    "",
];

/// The first version with numbers of jobs.
pub const WITH_JOBS: i64 = 2;

/// Opens a database to write into it; makes it, and its folder, if there is none.
pub fn open_to_write(path: &Path) -> Result<Connection, Error> {
    let is_new = match look(path) {
        Ok(is_empty) => is_empty,
        Err(Error::File { source, .. }) if source.kind() == io::ErrorKind::NotFound => true,
        Err(error) => return Err(error),
    };
    make_file(path, is_new)?;
    let flags =
        OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_CREATE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    let mut connection = connect(path, flags)?;
    let settings = || {
        // A journal beside the file while it changes, and nothing else: whoever may read the file can, also when nobody
        // writes. Each transaction is on the disk when it ends; there is one in five minutes.
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

/// Makes the file, for its user alone where that is root, and what leads there. SQLite opens files by their paths, again and
/// again, so root keeps a history only where nobody else can put something into their place.
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

/// Opens a database to read it.
pub fn open_to_read(path: &Path) -> Result<Connection, Error> {
    if look(path)? {
        return Err(Error::Foreign { path: path.into(), found: "an empty file".into() });
    }
    let connection = connect(path, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    recognise(&connection, path)?;
    Ok(connection)
}

/// Whether a file is empty. One that is anything but a database is not touched.
fn look(path: &Path) -> Result<bool, Error> {
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
        connection.busy_timeout(PATIENCE)?;
        // A stranger's database may bring code of its own; ours has none.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_VIEW, false)?;
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_TRUSTED_SCHEMA, false)?;
        // In KiB. Whoever writes stays small for years.
        connection.pragma_update(None, "cache_size", -1024)?;
        Ok(connection)
    };
    connect().map_err(|error| Error::database(path, error))
}

/// One transaction: a file is a whole history, or an empty file.
fn make(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have been first.
    if number(&transaction, "application_id")? == 0 {
        transaction.execute_batch(TABLES)?;
        LATER_TABLES.iter().try_for_each(|tables| transaction.execute_batch(tables))?;
        transaction.execute("INSERT INTO state(rolled, monitor) VALUES(0, '')", [])?;
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.pragma_update(None, "user_version", VERSION)?;
    }
    transaction.commit()
}

/// Gives a history of an earlier version what it lacks; all of it, or nothing.
fn migrate(connection: &mut Connection) -> rusqlite::Result<()> {
    let transaction = connection.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    // Another process may have been first.
    let has = usize::try_from(version(&transaction)? - 1).unwrap_or(usize::MAX);
    for tables in LATER_TABLES.iter().skip(has) {
        transaction.execute_batch(tables)?;
    }
    transaction.pragma_update(None, "user_version", VERSION)?;
    transaction.commit()
}

/// Which version of a history it is.
pub fn version(connection: &Connection) -> rusqlite::Result<i64> {
    number(connection, "user_version")
}

fn number(connection: &Connection, name: &str) -> rusqlite::Result<i64> {
    connection.pragma_query_value(None, name, |row| row.get(0))
}

/// A history's version, which is ours or one before.
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

/// Where a history is unless somebody says otherwise: of root's monitor the machine's, else the user's own.
pub fn default_path() -> PathBuf {
    const MACHINE: &str = "/var/lib/tompion/history.sqlite";
    if tompion_os::effective_user() == 0 {
        return MACHINE.into();
    }
    let of = |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = of("XDG_STATE_HOME").or_else(|| Some(of("HOME")?.join(".local/state")));
    let own = state.map(|state| state.join("tompion/history.sqlite"));
    // Who has none of their own reads the machine's.
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

    /// What this build's SQLite is: a damaged or made-up file reaches as little code as can be.
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
        assert_eq!(fs::read(&path).unwrap(), before, "it was written by who reads");
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
        // To write, folders are made.
        drop(open_to_write(&nothing).unwrap());
        open_to_read(&nothing).unwrap();
    }
}
