//! Storage and retention of a history.
//!
//! | content | retention |
//! |---|---|
//! | longest latency of each CPU and kind in each five minutes | for ever |
//! | all counts of five minutes | the last [`KEPT_BODIES`], a month |
//! | all counts of an hour | the last [`KEPT_HOURS`], 400 days |
//! | all counts of a day | for ever |
//!
//! Age is measured by what was appended since, never by the clock: a clock that is wrong for a
//! while must not delete a history.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OptionalExtension as _, Transaction, TransactionBehavior, params, types::Value};
use serde::{Deserialize, Serialize};
use tompion_jobs::OTHER_JOBS;
use tompion_latency::Kind;

use super::{
    Error,
    bytes::Damaged,
    database,
    row_codec::{Body, Cells, counters_of_bytes, counters_to_bytes},
};

/// Duration of a row, in milliseconds.
pub const FIVE_MINUTES: i64 = 300_000;
/// Duration of an hour, in milliseconds.
pub const HOUR: i64 = 3_600_000;
/// Duration of a day, in milliseconds.
pub const DAY: i64 = 24 * HOUR;

/// Number of rows stored with all counts: 31 days.
pub const KEPT_BODIES: i64 = 31 * 24 * 12;
/// Number of hours stored: 400 days.
pub const KEPT_HOURS: i64 = 400 * 24;
/// Number of starts, of events and of incidents stored.
const KEPT_OTHERS: i64 = 100_000;

/// Maximum number of job names: programs with numbered job names must not fill the disk.
const MAX_JOBS: i64 = 2048;
/// Value of an incident's `kind` for a job that missed its deadline.
pub const OF_A_JOB: &str = "job";

/// Property of the system, such as its kernel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fact {
    /// Name of the property.
    pub name: String,
    /// Value of the property.
    pub value: String,
}

/// Latency that exceeded its threshold and whose trace was saved.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Incident {
    /// Time in nanoseconds since 1970.
    pub time_ns: u64,
    /// Number of the CPU.
    pub cpu: u32,
    /// Thread that was late.
    pub tid: u32,
    /// Name of the thread.
    pub thread: String,
    /// Kind of latency; none for a job that missed its deadline.
    pub kind: Option<Kind>,
    /// Latency in nanoseconds.
    pub latency_ns: u64,
    /// Cause in a few words.
    pub cause: String,
    /// Folder of the trace.
    pub folder: PathBuf,
}

/// Kind of a gap or discontinuity in the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum EventKind {
    /// The time of day was set, forward or (negative) backward.
    ClockStep,
    /// The machine was suspended.
    Suspended,
    /// The monitor did not count: the machine was off, or the monitor was stopped.
    NotCounted,
    /// A damaged part of the history was removed, so that writing can continue.
    Damaged,
}

impl EventKind {
    const ALL: [Self; 4] = [Self::ClockStep, Self::Suspended, Self::NotCounted, Self::Damaged];

    /// Name in the database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ClockStep => "clock-step",
            Self::Suspended => "suspended",
            Self::NotCounted => "not-counted",
            Self::Damaged => "damaged",
        }
    }

    fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// Gap or discontinuity in the history: clock step, suspend, outage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Time of its detection, in milliseconds since 1970.
    pub time_ms: i64,
    /// Kind of event.
    pub kind: EventKind,
    /// Amount or duration, in milliseconds.
    pub amount_ms: i64,
}

/// Counts of one interval.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Begin in milliseconds since 1970.
    pub start: i64,
    /// Duration without suspended time, in milliseconds.
    pub duration: i64,
    /// Number of the system, from [`Store::begin`].
    pub system: i64,
    /// Counts.
    pub body: Body,
}

/// State of the BPF programs' counters when the last row was written. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Boot ID of the machine (`/proc/sys/kernel/random/boot_id`).
    pub boot: String,
    /// Start of counting, by CLOCK_MONOTONIC.
    pub begun: u64,
    /// Interval of the programs whose maxima are not written yet.
    pub interval: u32,
    /// CLOCK_MONOTONIC.
    pub monotonic: u64,
    /// CLOCK_BOOTTIME.
    pub boottime: u64,
    /// CLOCK_REALTIME.
    pub realtime: u64,
    /// Number of wakeups.
    pub woken: u64,
    /// Histograms and their sums.
    pub cells: Cells,
}

/// File of a history.
#[derive(Debug)]
pub struct Store {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
}

impl Store {
    /// Opens a history to write; creates it if it doesn't exist.
    ///
    /// # Errors
    /// If the file is something else, damaged, of another version, or can't be written. It is
    /// unchanged then.
    pub fn open(path: &Path) -> Result<Self, Error> {
        Ok(Self { connection: database::open_to_write(path)?, path: path.into() })
    }

    /// Opens a history to read.
    ///
    /// # Errors
    /// As [`Store::open`], and if the file doesn't exist.
    pub fn open_to_read(path: &Path) -> Result<Self, Error> {
        Ok(Self { connection: database::open_to_read(path)?, path: path.into() })
    }

    /// Path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Appends an incident.
    ///
    /// # Errors
    /// If it can't be written.
    pub fn record_incident(&self, incident: &Incident) -> Result<(), Error> {
        let record = || {
            let id = "INSERT INTO incidents(time, cpu, tid, thread, kind, latency, cause, folder)
                VALUES(?, ?, ?, ?, ?, ?, ?, ?)";
            let mut statement = self.connection.prepare_cached(id)?;
            statement.execute(params![
                saturated(incident.time_ns),
                incident.cpu,
                incident.tid,
                incident.thread,
                incident.kind.map_or(OF_A_JOB, Kind::name),
                saturated(incident.latency_ns),
                incident.cause,
                incident.folder.to_string_lossy()
            ])?;
            delete_old(&self.connection, "incidents")
        };
        record().map_err(|error| self.failed(error))
    }

    /// Records the start of a monitor with this name on a system with these properties. Returns the
    /// number of the system.
    ///
    /// # Errors
    /// If the history belongs to another monitor, or can't be written.
    pub fn begin(
        &mut self,
        monitor: &str,
        facts: &[Fact],
        (boot, time_ms): (&str, i64),
    ) -> Result<i64, Error> {
        let facts = serde_json::to_string(facts).unwrap_or_default();
        let path = self.path.clone();
        self.change(|transaction| {
            let found: String = transaction.query_row("SELECT monitor FROM state", [], |row| row.get(0))?;
            if !found.is_empty() && found != monitor {
                return Err(Error::OtherMonitor { path, found, expected: monitor.into() }.into());
            }
            transaction.execute("UPDATE state SET monitor = ?", [monitor])?;
            transaction.execute("INSERT OR IGNORE INTO systems(facts) VALUES(?)", [&facts])?;
            let system: i64 =
                transaction
                    .query_row("SELECT id FROM systems WHERE facts = ?", [&facts], |row| row.get(0))?;
            let start = "INSERT INTO starts(time, boot, system) VALUES(?, ?, ?)";
            transaction.execute(start, params![time_ms, boot, system])?;
            delete_old(transaction, "starts")?;
            Ok(system)
        })
    }

    /// Appends rows, oldest first.
    ///
    /// # Errors
    /// If they can't be written; then none is.
    pub fn append(&mut self, rows: &[Row]) -> Result<(), Error> {
        self.change(|transaction| rows.iter().try_for_each(|row| append(transaction, row)))
    }

    /// Runs a write transaction, all or nothing, with an exclusive lock.
    pub(super) fn change<T>(
        &mut self,
        change: impl FnOnce(&Transaction<'_>) -> Result<T, Failure>,
    ) -> Result<T, Error> {
        let path = self.path.clone();
        let made = (|| {
            let transaction = self.connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = change(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })();
        made.map_err(|failure: Failure| failure.of(&path))
    }

    pub(super) fn failed(&self, error: rusqlite::Error) -> Error {
        Error::database(&self.path, error)
    }
}

/// Failure within a transaction.
pub enum Failure {
    /// SQLite failed.
    Database(rusqlite::Error),
    /// Content is damaged: where, and how.
    Damaged(String, Damaged),
    /// Another error of this crate.
    Other(Error),
}

impl Failure {
    /// Adds the path of the file.
    pub fn of(self, path: &Path) -> Error {
        match self {
            Self::Database(error) => Error::database(path, error),
            Self::Damaged(place, damage) => {
                Error::Damaged { path: path.into(), what: format!("{place}: {damage}") }
            }
            Self::Other(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Database(error)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Other(error)
    }
}

/// Converts to SQLite's signed integers; larger values are saturated.
pub fn saturated(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// Appends a row. The first row of an hour also rolls the earlier rows up into hours and days.
pub fn append(transaction: &Transaction<'_>, row: &Row) -> Result<(), Failure> {
    let pending = "SELECT start FROM rows WHERE id > (SELECT rolled FROM state) ORDER BY id DESC LIMIT 1";
    let before: Option<i64> =
        transaction.prepare_cached(pending)?.query_row([], |row| row.get(0)).optional()?;
    let mut body = Cow::Borrowed(&row.body);
    let numbers = assign_job_numbers(transaction, &mut body)?;
    let insert = "INSERT INTO rows(start, duration, system, maxima) VALUES(?, ?, ?, ?)";
    transaction.prepare_cached(insert)?.execute(params![
        row.start,
        row.duration,
        row.system,
        body.maxima(&numbers)
    ])?;
    let id = transaction.last_insert_rowid();
    let insert = "INSERT INTO bodies(id, body) VALUES(?, ?)";
    transaction.prepare_cached(insert)?.execute(params![id, body.to_bytes()])?;
    if before.is_some_and(|before| floor(before, HOUR) != floor(row.start, HOUR)) {
        let end = row.start.saturating_add(row.duration);
        for amount_ms in roll_up(transaction, id - 1)? {
            note(transaction, Event { time_ms: end, kind: EventKind::Damaged, amount_ms })?;
        }
    }
    Ok(())
}

/// Assigns numbers to jobs. Jobs without a number are merged into [`OTHER_JOBS`].
fn assign_job_numbers(
    transaction: &Transaction<'_>,
    body: &mut Cow<'_, Body>,
) -> Result<BTreeMap<String, u64>, Failure> {
    let mut numbers = BTreeMap::new();
    let mut left = Vec::new();
    for name in body.jobs.cells.keys() {
        match number_of_job(transaction, name, MAX_JOBS)? {
            Some(number) => drop(numbers.insert(name.clone(), number)),
            None => left.push(name.clone()),
        }
    }
    if !left.is_empty() {
        let jobs = &mut body.to_mut().jobs;
        for name in left {
            if let Some(cell) = jobs.cells.remove(&name) {
                jobs.add(OTHER_JOBS, cell);
            }
        }
        if let Some(number) = number_of_job(transaction, OTHER_JOBS, i64::MAX)? {
            numbers.insert(OTHER_JOBS.into(), number);
        }
    }
    Ok(numbers)
}

/// Returns the number of a job: its old one, or a new one while there are fewer than `limit`.
fn number_of_job(transaction: &Transaction<'_>, name: &str, limit: i64) -> rusqlite::Result<Option<u64>> {
    let insert = "INSERT OR IGNORE INTO jobs(name) SELECT ? WHERE (SELECT count(*) FROM jobs) < ?";
    transaction.prepare_cached(insert)?.execute(params![name, limit])?;
    let select = "SELECT id FROM jobs WHERE name = ?";
    let number: Option<i64> =
        transaction.prepare_cached(select)?.query_row([name], |row| row.get(0)).optional()?;
    Ok(number.and_then(|number| u64::try_from(number).ok()))
}

/// Begin of the hour or day that contains a time.
pub const fn floor(time: i64, unit: i64) -> i64 {
    time.div_euclid(unit) * unit
}

/// Rolls rows up to `last` up into hours and days, and deletes what is too old. Damaged parts are
/// removed, so that they don't block later writes. Returns their durations in milliseconds.
fn roll_up(transaction: &Transaction<'_>, last: i64) -> Result<Vec<i64>, Failure> {
    let mut damaged = Vec::new();
    for ((hour, system), body) in hours_until(transaction, last, &mut damaged)? {
        for (table, start, length) in [("hours", hour, HOUR), ("days", floor(hour, DAY), DAY)] {
            if !add_to(transaction, table, (start, system), &body)? {
                damaged.push(length);
            }
        }
    }
    transaction.prepare_cached("UPDATE state SET rolled = ?")?.execute([last])?;
    transaction.prepare_cached("DELETE FROM bodies WHERE id <= ?")?.execute([last - KEPT_BODIES])?;
    let old = "DELETE FROM hours WHERE id <= (SELECT max(id) FROM hours) - ?";
    transaction.prepare_cached(old)?.execute([KEPT_HOURS])?;
    Ok(damaged)
}

/// Sums rows up to `last`, by hour and system.
fn hours_until(
    transaction: &Transaction<'_>,
    last: i64,
    damaged: &mut Vec<i64>,
) -> Result<BTreeMap<(i64, i64), Body>, Failure> {
    let pending = "SELECT id, start, system, duration, body FROM rows JOIN bodies USING(id)
        WHERE id > (SELECT rolled FROM state) AND id <= ? ORDER BY id";
    let mut statement = transaction.prepare_cached(pending)?;
    let mut rows = statement.query([last])?;
    let mut hours: BTreeMap<(i64, i64), Body> = BTreeMap::new();
    let mut unreadable: Vec<i64> = Vec::new();
    while let Some(row) = rows.next()? {
        let (id, start, system): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        // A damaged body may have been decoded in part.
        let mut body = Body::default();
        let read = row.get_ref(4)?.as_blob().map_or(Err(Damaged("no bytes")), |bytes| body.add_bytes(bytes));
        if read.is_ok() {
            hours.entry((floor(start, HOUR), system)).or_default().merge(body);
        } else {
            damaged.push(row.get(3)?);
            unreadable.push(id);
        }
    }
    for id in unreadable {
        transaction.prepare_cached("DELETE FROM bodies WHERE id = ?")?.execute([id])?;
    }
    Ok(hours)
}

/// Adds counts to an hour or a day of a system. Returns false if the old counts were damaged and
/// therefore replaced.
fn add_to(
    transaction: &Transaction<'_>,
    table: &str,
    (start, system): (i64, i64),
    body: &Body,
) -> Result<bool, Failure> {
    let find = format!("SELECT id, body FROM {table} WHERE start = ? AND system = ?");
    let found: Option<(i64, Value)> = transaction
        .prepare_cached(&find)?
        .query_row([start, system], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((id, bytes)) = found else {
        let insert = format!("INSERT INTO {table}(start, system, body) VALUES(?, ?, ?)");
        transaction.prepare_cached(&insert)?.execute(params![start, system, body.to_bytes()])?;
        return Ok(true);
    };
    let mut sum = Body::default();
    let is_read = matches!(&bytes, Value::Blob(bytes) if sum.add_bytes(bytes).is_ok());
    if !is_read {
        sum = Body::default();
    }
    sum.merge(body.clone());
    let update = format!("UPDATE {table} SET body = ? WHERE id = ?");
    transaction.prepare_cached(&update)?.execute(params![sum.to_bytes(), id])?;
    Ok(is_read)
}

/// Deletes all but the newest rows of a table.
fn delete_old(connection: &Connection, table: &str) -> rusqlite::Result<()> {
    let old = format!("DELETE FROM {table} WHERE id <= (SELECT max(id) FROM {table}) - {KEPT_OTHERS}");
    connection.prepare_cached(&old)?.execute([]).map(drop)
}

/// Appends an event.
pub fn note(transaction: &Transaction<'_>, event: Event) -> Result<(), Failure> {
    let insert = "INSERT INTO events(time, kind, amount) VALUES(?, ?, ?)";
    let values = params![event.time_ms, event.kind.name(), event.amount_ms];
    transaction.prepare_cached(insert)?.execute(values)?;
    Ok(delete_old(transaction, "events")?)
}

/// Reads the counters saved with the last row.
pub fn counters(transaction: &Transaction<'_>) -> Result<Option<Counters>, Failure> {
    let select = "SELECT boot, begun, interval, monotonic, boottime, realtime, woken, counters FROM counters";
    let mut statement = transaction.prepare_cached(select)?;
    let mut rows = statement.query([])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let number = |column| -> Result<u64, Failure> { Ok(row.get::<_, i64>(column)?.max(0) as u64) };
    let bytes = row.get_ref(7)?.as_blob().map_err(rusqlite::Error::from)?;
    let cells = counters_of_bytes(bytes).map_err(|damage| Failure::Damaged("the counters".into(), damage))?;
    Ok(Some(Counters {
        boot: row.get(0)?,
        begun: number(1)?,
        interval: row.get(2)?,
        monotonic: number(3)?,
        boottime: number(4)?,
        realtime: number(5)?,
        woken: number(6)?,
        cells,
    }))
}

/// Saves the counters.
pub fn set_counters(transaction: &Transaction<'_>, counters: &Counters) -> Result<(), Failure> {
    transaction.execute("DELETE FROM counters", [])?;
    let insert = "INSERT INTO counters(boot, begun, interval, monotonic, boottime, realtime, woken, counters)
        VALUES(?, ?, ?, ?, ?, ?, ?, ?)";
    transaction.prepare_cached(insert)?.execute(params![
        counters.boot,
        saturated(counters.begun),
        counters.interval,
        saturated(counters.monotonic),
        saturated(counters.boottime),
        saturated(counters.realtime),
        saturated(counters.woken),
        counters_to_bytes(&counters.cells)
    ])?;
    Ok(())
}

/// Converts a database row to an event; none if its kind is unknown.
pub(super) fn event_of(row: &rusqlite::Row<'_>) -> rusqlite::Result<Option<Event>> {
    let kind: String = row.get(1)?;
    let (time_ms, amount_ms) = (row.get(0)?, row.get(2)?);
    Ok(EventKind::of_name(&kind).map(|kind| Event { time_ms, kind, amount_ms }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Choice, Longest, Span, job::JobCell};

    #[test]
    fn too_many_numbered_jobs_are_merged() {
        let folder = tempfile::tempdir().unwrap();
        let mut store = Store::open(&folder.path().join("history.sqlite")).unwrap();
        let mut row = Row { start: HOUR, duration: FIVE_MINUTES, ..Row::default() };
        row.body.jobs.watched = 1;
        for number in 0..MAX_JOBS + 50 {
            let cell = JobCell { activations: 2, misses: 1, ..JobCell::default() };
            row.body.jobs.add(&format!("worker:{number:05}"), cell);
        }
        let next = Row { start: HOUR + FIVE_MINUTES, ..row.clone() };
        store.append(&[row, next]).unwrap();
        let report = store.period(&Choice::of(Span::ALL)).unwrap().report();
        let jobs = report.jobs.unwrap().jobs;
        assert_eq!(jobs.len() as i64, MAX_JOBS + 1);
        let activations = |name: &str| jobs.iter().find(|job| job.name == name).map(|job| job.activations);
        assert_eq!((activations(OTHER_JOBS), activations("worker:00007")), (Some(200), Some(4)));
        let mut missed = BTreeMap::new();
        let read = store.maxima(&Choice::of(Span::ALL), |longest| {
            if let Longest::Response(response) = longest {
                *missed.entry(response.job.to_owned()).or_insert(0) += response.misses;
            }
        });
        read.unwrap();
        assert_eq!(
            (missed.len() as i64, missed.get(OTHER_JOBS), missed.get("worker:02097")),
            (MAX_JOBS + 1, Some(&100), None)
        );
    }
}
