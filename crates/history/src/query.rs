//! Queries: the content of a history for an interval.
//!
//! Whole days within the interval come from `days`, the rest at its ends from `hours`, then from
//! rows, and last the rows that are part of no hour yet.
//!
//! Rows are not divided. An interval has the rows that begin in it, in full, and the one in which
//! it begins.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension as _};
use serde::Serialize;
use tompion_latency::Kind;

use super::{
    Error,
    bytes::Damaged,
    database,
    job::JobPeak,
    row_codec::{Body, Peak, read_maxima},
    store::{DAY, Event, Fact, Failure, HOUR, Incident, OF_A_JOB, Store, event_of, floor},
};

/// End of the year 9999, in milliseconds since 1970: no time is later.
const MAX_TIME_MS: i64 = 253_402_300_800_000;
/// Maximum delay of a row's begin and end after the full five minutes, in milliseconds. A row that
/// reaches into an interval by no more is not part of it.
const ROW_DELAY_SLACK_MS: i64 = 1000;

/// Interval: begin and exclusive end, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// Begin.
    pub from_ms: i64,
    /// Exclusive end.
    pub to_ms: i64,
}

impl Span {
    /// All times.
    pub const ALL: Self = Self { from_ms: 0, to_ms: MAX_TIME_MS };

    /// Returns whether `found` is larger than this interval by more than rows are late.
    pub fn is_exceeded_by(self, found: Self) -> bool {
        found.from_ms.saturating_add(ROW_DELAY_SLACK_MS) < self.from_ms
            || found.to_ms > self.to_ms.saturating_add(ROW_DELAY_SLACK_MS)
    }

    fn contains(self) -> String {
        format!("start >= {} AND start < {}", self.from_ms, self.to_ms)
    }

    /// Splits into whole units and the remainders at both ends.
    fn split(self, unit: i64) -> (Option<Self>, Vec<Self>) {
        let (first, last) = (floor(self.from_ms + unit - 1, unit), floor(self.to_ms, unit));
        if first >= last {
            return (None, vec![self]);
        }
        let ends = [Self { to_ms: first, ..self }, Self { from_ms: last, ..self }];
        let ends = ends.into_iter().filter(|end| end.from_ms < end.to_ms).collect();
        (Some(Self { from_ms: first, to_ms: last }), ends)
    }
}

/// Start of a process that writes the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// Time in milliseconds since 1970.
    pub time_ms: i64,
    /// Boot ID of the machine.
    pub boot: String,
    /// Number of the system.
    pub system: i64,
}

/// Part of an interval in which the monitor counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Number of rows; most have five minutes.
    pub rows: u64,
    /// Sum of their durations, in milliseconds.
    pub counted_ms: i64,
    /// Begin of the first row, in milliseconds since 1970.
    pub first_ms: i64,
    /// End of the last row, in milliseconds since 1970.
    pub last_ms: i64,
}

/// System on which the monitor ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct System {
    /// Number of the system in this history.
    pub system: i64,
    /// Properties of the system.
    pub facts: Vec<Fact>,
}

impl System {
    /// Returns the value of a property.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
    }
}

/// Content of a history for an interval.
#[derive(Clone, Debug)]
pub struct Period {
    /// Interval: the requested one, extended to the begin of the row in which it begins. For old
    /// data it is extended to the hours or days that are left.
    pub span: Span,
    /// Counts.
    pub(crate) body: Body,
    /// Part of the interval in which the monitor counted.
    pub coverage: Coverage,
    /// Systems on which it counted.
    pub systems: Vec<System>,
    /// Starts of the processes that wrote the history.
    pub starts: Vec<Start>,
    /// Clock steps, suspends and gaps.
    pub events: Vec<Event>,
    /// Latencies that exceeded their threshold.
    pub incidents: Vec<Incident>,
}

/// Longest latency of a CPU and kind in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// Begin of the row, in milliseconds since 1970.
    pub start_ms: i64,
    /// Duration of the row, in milliseconds.
    pub duration_ms: i64,
    /// Number of the CPU.
    pub cpu: u32,
    /// Kind of latency.
    pub kind: Kind,
    /// Longest latency, in nanoseconds.
    pub ns: u64,
}

/// Longest response of a job in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// Begin of the row, in milliseconds since 1970.
    pub start_ms: i64,
    /// Duration of the row, in milliseconds.
    pub duration_ms: i64,
    /// Name of the job.
    pub job: &'a str,
    /// Longest response, in nanoseconds.
    pub ns: u64,
    /// Shortest deadline, in nanoseconds; 0 for none.
    pub deadline_ns: u64,
    /// Number of responses longer than their deadline.
    pub misses: u64,
}

/// Maximum of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Longest<'a> {
    /// Maximum of a CPU and kind.
    Latency(Point),
    /// Maximum of a job.
    Response(Response<'a>),
}

/// Selection of rows by interval and, unless all are meant, by systems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Interval.
    pub span: Span,
    /// Numbers of the systems; none for all.
    pub systems: Option<Vec<i64>>,
}

impl Choice {
    /// Selects an interval on all systems.
    pub const fn of(span: Span) -> Self {
        Self { span, systems: None }
    }

    /// SQL condition for rows, hours and days.
    fn condition(&self, span: Span) -> String {
        let Some(systems) = &self.systems else { return span.contains() };
        let numbers: Vec<String> = systems.iter().map(i64::to_string).collect();
        format!("{} AND system IN ({})", span.contains(), numbers.join(","))
    }
}

impl Store {
    /// Reads the content of the selected rows.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn period(&self, choice: &Choice) -> Result<Period, Error> {
        self.query(choice, sum)
    }

    /// Reads coverage, systems and events of the selected rows, without their counts. This is
    /// faster.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn outline(&self, choice: &Choice) -> Result<Period, Error> {
        self.query(choice, |_, _| Ok(Body::default()))
    }

    fn query(
        &self,
        choice: &Choice,
        body: impl FnOnce(&Connection, &Choice) -> Result<Body, Failure>,
    ) -> Result<Period, Error> {
        self.read(|connection| {
            let span = rounded(connection, choice.span)?;
            let choice = Choice { span, ..choice.clone() };
            let (coverage, last) = counted(connection, &choice)?;
            // Events of the last row belong to the interval, too.
            let happened = Span { to_ms: span.to_ms.max(coverage.last_ms), ..span };
            Ok(Period {
                span,
                body: body(connection, &choice)?,
                coverage,
                systems: systems(connection, &last)?,
                starts: starts(connection, &choice)?,
                events: events(connection, happened)?,
                incidents: incidents(connection, happened)?,
            })
        })
    }

    /// Passes the maximum of each row, CPU and kind, and of each job to `visit`, oldest rows first.
    /// For more than three years, it passes the maxima of whole days.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn maxima(&self, choice: &Choice, mut visit: impl FnMut(Longest<'_>)) -> Result<(), Error> {
        const MAX_ROW_DETAIL_MS: i64 = 3 * 366 * DAY;
        self.read(|connection| {
            let span = rounded(connection, choice.span)?;
            let ends = ends(connection, &Choice { span, ..choice.clone() })?;
            if ends.is_some_and(|(first, last)| last.saturating_sub(first) > MAX_ROW_DETAIL_MS) {
                points_of_days(connection, choice, &mut visit)
            } else {
                points(connection, &choice.condition(from_row(connection, choice.span)?), &mut visit)
            }
        })
    }

    /// Returns all systems that have counts, the newest last.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn systems(&self) -> Result<Vec<System>, Error> {
        self.read(|connection| systems(connection, &counted(connection, &Choice::of(Span::ALL))?.1))
    }

    /// Runs queries on one consistent state of the database.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Error> {
        let begun = self.connection.unchecked_transaction().map_err(|error| self.failed(error))?;
        let found = read(&begun).map_err(|failure| failure.of(&self.path));
        drop(begun);
        found
    }
}

/// Extends an interval to the begin of the row in which it begins.
fn from_row(connection: &Connection, span: Span) -> Result<Span, Failure> {
    let span = Span { from_ms: span.from_ms.clamp(0, MAX_TIME_MS), to_ms: span.to_ms.clamp(0, MAX_TIME_MS) };
    let select = "SELECT start, duration FROM rows WHERE start < ? ORDER BY start DESC LIMIT 1";
    let before = connection.query_row(select, [span.from_ms], |row| Ok((row.get(0)?, row.get(1)?)));
    let (start, duration): (i64, i64) = before.or_else(|error| none(error).map(|nothing| (nothing, 0)))?;
    let is_in_it = start.saturating_add(duration) > span.from_ms.saturating_add(ROW_DELAY_SLACK_MS);
    Ok(if is_in_it { Span { from_ms: start.max(0), ..span } } else { span })
}

/// Extends an interval to the rows, and to the hours or days that are left of old data.
fn rounded(connection: &Connection, span: Span) -> Result<Span, Failure> {
    let span = from_row(connection, span)?;
    let oldest = |what: &str| -> rusqlite::Result<i64> {
        connection.query_row(what, [], |row| Ok(row.get::<_, Option<i64>>(0)?.unwrap_or(0)))
    };
    let rows = oldest("SELECT start FROM rows WHERE id = (SELECT min(id) FROM bodies)").or_else(none)?;
    let hours = oldest("SELECT start FROM hours WHERE id = (SELECT min(id) FROM hours)").or_else(none)?;
    let unit = |time: i64| match time {
        _ if time < hours => DAY,
        _ if time < rows => HOUR,
        _ => 1,
    };
    Ok(Span {
        from_ms: floor(span.from_ms, unit(span.from_ms)),
        to_ms: floor(span.to_ms + unit(span.to_ms) - 1, unit(span.to_ms)).min(MAX_TIME_MS),
    })
}

fn none(error: rusqlite::Error) -> rusqlite::Result<i64> {
    if matches!(error, rusqlite::Error::QueryReturnedNoRows) { Ok(0) } else { Err(error) }
}

/// Sums the counts of the selected rows.
fn sum(connection: &Connection, choice: &Choice) -> Result<Body, Failure> {
    let mut sum = Body::default();
    let mut add = |table: &str, condition: &str| add_all(connection, &mut sum, table, condition);
    let (days, ends) = choice.span.split(DAY);
    if let Some(days) = days {
        add("days", &choice.condition(days))?;
    }
    let rows = "rows JOIN bodies USING(id)";
    for end in ends {
        let (hours, ends) = end.split(HOUR);
        if let Some(hours) = hours {
            add("hours", &choice.condition(hours))?;
        }
        for end in ends {
            add(rows, &format!("{} AND id <= (SELECT rolled FROM state)", choice.condition(end)))?;
        }
    }
    add(rows, &format!("{} AND id > (SELECT rolled FROM state)", choice.condition(choice.span)))?;
    Ok(sum)
}

fn add_all(connection: &Connection, sum: &mut Body, table: &str, condition: &str) -> Result<(), Failure> {
    let mut statement = connection.prepare(&format!("SELECT id, body FROM {table} WHERE {condition}"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let bytes = row.get_ref(1)?.as_blob().map_err(rusqlite::Error::from)?;
        if let Err(damage) = sum.add_bytes(bytes) {
            let (name, id): (_, i64) = (table.split(' ').next().unwrap_or_default(), row.get(0)?);
            return Err(Failure::Damaged(format!("{name}, number {id}"), damage));
        }
    }
    Ok(())
}

/// Coverage of the selected rows, and the begin of the last row of each system. One pass in Rust:
/// ten years have a million rows, and SQLite would sort them to group them.
fn counted(connection: &Connection, choice: &Choice) -> Result<(Coverage, HashMap<i64, i64>), Failure> {
    let select = format!("SELECT start, duration, system FROM rows WHERE {}", choice.condition(choice.span));
    let mut statement = connection.prepare(&select)?;
    let mut rows = statement.query([])?;
    let (mut coverage, mut last) = (Coverage::default(), HashMap::new());
    while let Some(row) = rows.next()? {
        let (start, duration, system): (i64, i64, i64) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let end = start.saturating_add(duration);
        if coverage.rows == 0 {
            (coverage.first_ms, coverage.last_ms) = (start, end);
        }
        coverage.rows += 1;
        coverage.counted_ms = coverage.counted_ms.saturating_add(duration);
        coverage.first_ms = coverage.first_ms.min(start);
        coverage.last_ms = coverage.last_ms.max(end);
        let seen = last.entry(system).or_insert(start);
        *seen = start.max(*seen);
    }
    Ok((coverage, last))
}

/// Begins of the first and the last selected row.
fn ends(connection: &Connection, choice: &Choice) -> Result<Option<(i64, i64)>, Failure> {
    let condition = choice.condition(choice.span);
    let end = |order: &str| {
        let select = format!("SELECT start FROM rows WHERE {condition} ORDER BY start {order} LIMIT 1");
        connection.query_row(&select, [], |row| row.get::<_, i64>(0)).optional()
    };
    Ok(end("ASC")?.zip(end("DESC")?))
}

/// Reads the properties of these systems, the newest last.
fn systems(connection: &Connection, last: &HashMap<i64, i64>) -> Result<Vec<System>, Failure> {
    let mut statement = connection.prepare("SELECT id, facts FROM systems")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (system, text): (i64, String) = (row.get(0)?, row.get(1)?);
        if let Some(last) = last.get(&system) {
            // Unreadable facts count as none.
            found.push((*last, System { system, facts: serde_json::from_str(&text).unwrap_or_default() }));
        }
    }
    found.sort_by_key(|(last, system)| (*last, system.system));
    Ok(found.into_iter().map(|(_, system)| system).collect())
}

fn starts(connection: &Connection, choice: &Choice) -> Result<Vec<Start>, Failure> {
    let select = format!(
        "SELECT start, boot, system FROM (SELECT id, time AS start, boot, system FROM starts) WHERE {} ORDER BY id",
        choice.condition(choice.span)
    );
    let mut statement = connection.prepare(&select)?;
    let rows = statement
        .query_map([], |row| Ok(Start { time_ms: row.get(0)?, boot: row.get(1)?, system: row.get(2)? }))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

fn events(connection: &Connection, span: Span) -> Result<Vec<Event>, Failure> {
    let select = "SELECT time, kind, amount FROM events WHERE time >= ? AND time < ? ORDER BY id";
    let mut statement = connection.prepare(select)?;
    let rows = statement.query_map([span.from_ms, span.to_ms], event_of)?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn incidents(connection: &Connection, span: Span) -> Result<Vec<Incident>, Failure> {
    const IN_NS: i64 = 1_000_000;
    let select = "SELECT time, cpu, tid, thread, kind, latency, cause, folder FROM incidents
        WHERE time >= ? AND time < ? ORDER BY time, id";
    let mut statement = connection.prepare(select)?;
    let bounds = [span.from_ms, span.to_ms].map(|time| time.saturating_mul(IN_NS));
    let rows = statement.query_map(bounds, |row| {
        let kind: String = row.get(4)?;
        let number = |column| Ok::<u64, rusqlite::Error>(row.get::<_, i64>(column)?.max(0) as u64);
        // An incident of an unknown kind is skipped.
        let known = Kind::of_name(&kind);
        Ok((known.is_some() || kind == OF_A_JOB).then(|| Incident {
            time_ns: number(0).unwrap_or(0),
            cpu: row.get(1).unwrap_or(0),
            tid: row.get(2).unwrap_or(0),
            thread: row.get(3).unwrap_or_default(),
            kind: known,
            latency_ns: number(5).unwrap_or(0),
            cause: row.get(6).unwrap_or_default(),
            folder: row.get::<_, String>(7).unwrap_or_default().into(),
        }))
    })?;
    Ok(rows.collect::<rusqlite::Result<Vec<_>>>()?.into_iter().flatten().collect())
}

/// Names of jobs by their numbers.
fn job_names(connection: &Connection) -> Result<HashMap<u64, String>, Failure> {
    if database::version(connection)? < database::WITH_JOBS {
        return Ok(HashMap::new());
    }
    let mut statement = connection.prepare("SELECT id, name FROM jobs")?;
    let rows = statement.query_map([], |row| Ok((row.get::<_, i64>(0)?.max(0) as u64, row.get(1)?)))?;
    Ok(rows.collect::<rusqlite::Result<_>>()?)
}

/// Passes the maxima of the rows that fulfil a condition to `visit`.
fn points(
    connection: &Connection,
    condition: &str,
    visit: &mut impl FnMut(Longest<'_>),
) -> Result<(), Failure> {
    let names = job_names(connection)?;
    let select = format!("SELECT id, start, duration, maxima FROM rows WHERE {condition} ORDER BY start");
    let mut statement = connection.prepare(&select)?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let (start_ms, duration_ms) = (row.get(1)?, row.get(2)?);
        let bytes = row.get_ref(3)?.as_blob().map_err(rusqlite::Error::from)?;
        let mut unknown = Ok(());
        let read = read_maxima(bytes, |peak| match peak {
            Peak::Latency(cpu, kind, ns) => {
                visit(Longest::Latency(Point { start_ms, duration_ms, cpu, kind, ns }));
            }
            Peak::Response(JobPeak { job, response, deadline, misses }) => match names.get(&job) {
                Some(job) => visit(Longest::Response(Response {
                    start_ms,
                    duration_ms,
                    job,
                    ns: response,
                    deadline_ns: deadline,
                    misses,
                })),
                None => unknown = Err(Damaged("a job without a name")),
            },
        });
        if let Err(damage) = read.and(unknown) {
            return Err(Failure::Damaged(format!("rows, number {}", row.get::<_, i64>(0)?), damage));
        }
    }
    Ok(())
}

/// Passes the maxima of days, and of rows that are part of no day yet, to `visit`.
fn points_of_days(
    connection: &Connection,
    choice: &Choice,
    visit: &mut impl FnMut(Longest<'_>),
) -> Result<(), Failure> {
    let condition = choice.condition(choice.span);
    let mut statement =
        connection.prepare(&format!("SELECT id, start, body FROM days WHERE {condition} ORDER BY start"))?;
    let mut rows = statement.query([])?;
    while let Some(row) = rows.next()? {
        let start_ms = row.get(1)?;
        let mut body = Body::default();
        if let Err(damage) = body.add_bytes(row.get_ref(2)?.as_blob().map_err(rusqlite::Error::from)?) {
            return Err(Failure::Damaged(format!("days, number {}", row.get::<_, i64>(0)?), damage));
        }
        for ((cpu, kind), cell) in &body.cells {
            let (cpu, kind, ns) = (*cpu, *kind, cell.longest.ns);
            visit(Longest::Latency(Point { start_ms, duration_ms: DAY, cpu, kind, ns }));
        }
        for (name, cell) in &body.jobs.cells {
            visit(Longest::Response(Response {
                start_ms,
                duration_ms: DAY,
                job: name,
                ns: cell.longest.as_ref().map_or(0, |longest| longest.response),
                deadline_ns: cell.deadlines.map_or(0, |(shortest, _)| shortest),
                misses: cell.misses,
            }));
        }
    }
    points(connection, &format!("{condition} AND id > (SELECT rolled FROM state)"), visit)
}
