//! What a history says of a time.
//!
//! Days that lie within it are taken whole, at its ends hours, at theirs rows, and then those that are not part of an hour yet.
//!
//! Rows are not divided. A time has those that begin in it, to their end, and the one that it begins in the midst of.

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

/// The year 9999, in milliseconds since 1970: nothing is later.
const LATEST: i64 = 253_402_300_800_000;
/// Rows begin and end so much after full five minutes at the most, in milliseconds: what reaches no further into a time is not of it.
const MOMENT: i64 = 1000;

/// From a time until before another, in milliseconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Span {
    /// The first.
    pub from_ms: i64,
    /// The first that doesn't belong to it.
    pub to_ms: i64,
}

impl Span {
    /// All times.
    pub const ALL: Self = Self { from_ms: 0, to_ms: LATEST };

    /// Whether what was found reaches beyond it, by more than rows are late.
    pub fn is_exceeded_by(self, found: Self) -> bool {
        found.from_ms.saturating_add(MOMENT) < self.from_ms || found.to_ms > self.to_ms.saturating_add(MOMENT)
    }

    fn contains(self) -> String {
        format!("start >= {} AND start < {}", self.from_ms, self.to_ms)
    }

    /// Whole units within it, and what is left at both ends.
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

/// A start of whoever writes the history.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Start {
    /// When, in milliseconds since 1970.
    pub time_ms: i64,
    /// Which life of the machine.
    pub boot: String,
    /// Which system.
    pub system: i64,
}

/// How much of a time was counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Coverage {
    /// Rows; most are of five minutes.
    pub rows: u64,
    /// How long they are together, in milliseconds.
    pub counted_ms: i64,
    /// When the first begins and the last ends, in milliseconds since 1970.
    pub first_ms: i64,
    /// See `first_ms`.
    pub last_ms: i64,
}

/// A system and what it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct System {
    /// Its number in this history.
    pub system: i64,
    /// Its properties.
    pub facts: Vec<Fact>,
}

impl System {
    /// One of its properties.
    pub fn fact(&self, name: &str) -> Option<&str> {
        self.facts.iter().find(|fact| fact.name == name).map(|fact| fact.value.as_str())
    }
}

/// What a history says of a time.
#[derive(Clone, Debug)]
pub struct Period {
    /// What it is of: what was asked for, from the beginning of the row on that this is in; or the hours and days around it where
    /// no more is left.
    pub span: Span,
    /// What was counted.
    pub(crate) body: Body,
    /// How much of the time was counted.
    pub coverage: Coverage,
    /// Systems that it was counted on.
    pub systems: Vec<System>,
    /// When whoever wrote it began.
    pub starts: Vec<Start>,
    /// What happened to the clock and to counting.
    pub events: Vec<Event>,
    /// Latencies that crossed their thresholds.
    pub incidents: Vec<Incident>,
}

/// The longest of a CPU and kind in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Point {
    /// When the row begins and how long it is, in milliseconds.
    pub start_ms: i64,
    /// See `start_ms`.
    pub duration_ms: i64,
    /// Where.
    pub cpu: u32,
    /// Of which kind.
    pub kind: Kind,
    /// The longest, in nanoseconds.
    pub ns: u64,
}

/// The longest response of a job in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// When the row begins and how long it is, in milliseconds.
    pub start_ms: i64,
    /// See `start_ms`.
    pub duration_ms: i64,
    /// The job's name.
    pub job: &'a str,
    /// The longest, in nanoseconds.
    pub ns: u64,
    /// The deadline, in nanoseconds, the shortest if there were several; 0 for none.
    pub deadline_ns: u64,
    /// How many responses were longer than their deadline.
    pub misses: u64,
}

/// The longest of something in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Longest<'a> {
    /// Of a CPU and kind.
    Latency(Point),
    /// Of a job.
    Response(Response<'a>),
}

/// Which rows are meant: of a time, and of some systems or of all.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The time.
    pub span: Span,
    /// The systems.
    pub systems: Option<Vec<i64>>,
}

impl Choice {
    /// Of all systems.
    pub const fn of(span: Span) -> Self {
        Self { span, systems: None }
    }

    /// For the WHERE of rows, hours and days.
    fn condition(&self, span: Span) -> String {
        let Some(systems) = &self.systems else { return span.contains() };
        let numbers: Vec<String> = systems.iter().map(i64::to_string).collect();
        format!("{} AND system IN ({})", span.contains(), numbers.join(","))
    }
}

impl Store {
    /// What the history says of a choice.
    ///
    /// # Errors
    /// If it is damaged or can't be read.
    pub fn period(&self, choice: &Choice) -> Result<Period, Error> {
        self.about(choice, sum)
    }

    /// The same without what was counted: when, on which systems, what happened. It takes less time.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn outline(&self, choice: &Choice) -> Result<Period, Error> {
        self.about(choice, |_, _| Ok(Body::default()))
    }

    fn about(
        &self,
        choice: &Choice,
        body: impl FnOnce(&Connection, &Choice) -> Result<Body, Failure>,
    ) -> Result<Period, Error> {
        self.read(|connection| {
            let span = rounded(connection, choice.span)?;
            let choice = Choice { span, ..choice.clone() };
            let (coverage, last) = counted(connection, &choice)?;
            // What happened in the last row belongs to it, too.
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

    /// Tells the longest of each row, CPU and kind, and of each job, older rows first; of whole days where the choice spans more
    /// than three years.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn maxima(&self, choice: &Choice, mut tell: impl FnMut(Longest<'_>)) -> Result<(), Error> {
        const MANY: i64 = 3 * 366 * DAY;
        self.read(|connection| {
            let span = rounded(connection, choice.span)?;
            let ends = ends(connection, &Choice { span, ..choice.clone() })?;
            if ends.is_some_and(|(first, last)| last.saturating_sub(first) > MANY) {
                points_of_days(connection, choice, &mut tell)
            } else {
                points(connection, &choice.condition(from_row(connection, choice.span)?), &mut tell)
            }
        })
    }

    /// All systems that anything was counted on, the one that was seen last at the end.
    ///
    /// # Errors
    /// If the history is damaged or can't be read.
    pub fn systems(&self) -> Result<Vec<System>, Error> {
        self.read(|connection| systems(connection, &counted(connection, &Choice::of(Span::ALL))?.1))
    }

    /// Reads what is there at one moment.
    fn read<T>(&self, read: impl FnOnce(&Connection) -> Result<T, Failure>) -> Result<T, Error> {
        let begun = self.connection.unchecked_transaction().map_err(|error| self.failed(error))?;
        let found = read(&begun).map_err(|failure| failure.of(&self.path));
        drop(begun);
        found
    }
}

/// A span from the beginning of the row on that it begins in the midst of.
fn from_row(connection: &Connection, span: Span) -> Result<Span, Failure> {
    let span = Span { from_ms: span.from_ms.clamp(0, LATEST), to_ms: span.to_ms.clamp(0, LATEST) };
    let select = "SELECT start, duration FROM rows WHERE start < ? ORDER BY start DESC LIMIT 1";
    let before = connection.query_row(select, [span.from_ms], |row| Ok((row.get(0)?, row.get(1)?)));
    let (start, duration): (i64, i64) = before.or_else(|error| none(error).map(|nothing| (nothing, 0)))?;
    let is_in_it = start.saturating_add(duration) > span.from_ms.saturating_add(MOMENT);
    Ok(if is_in_it { Span { from_ms: start.max(0), ..span } } else { span })
}

/// The same, and to the hours or days around it, where nothing shorter is left.
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
        to_ms: floor(span.to_ms + unit(span.to_ms) - 1, unit(span.to_ms)).min(LATEST),
    })
}

fn none(error: rusqlite::Error) -> rusqlite::Result<i64> {
    if matches!(error, rusqlite::Error::QueryReturnedNoRows) { Ok(0) } else { Err(error) }
}

/// All that was counted.
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

/// How much of a time was counted, and when it was counted last on each system. All at once: ten years are a million rows, which SQLite would
/// sort to group them.
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

/// When the first and the last row of a choice begin.
fn ends(connection: &Connection, choice: &Choice) -> Result<Option<(i64, i64)>, Failure> {
    let condition = choice.condition(choice.span);
    let end = |order: &str| {
        let select = format!("SELECT start FROM rows WHERE {condition} ORDER BY start {order} LIMIT 1");
        connection.query_row(&select, [], |row| row.get::<_, i64>(0)).optional()
    };
    Ok(end("ASC")?.zip(end("DESC")?))
}

/// What these systems are, the one that was seen last at the end.
fn systems(connection: &Connection, last: &HashMap<i64, i64>) -> Result<Vec<System>, Failure> {
    let mut statement = connection.prepare("SELECT id, facts FROM systems")?;
    let mut rows = statement.query([])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let (system, text): (i64, String) = (row.get(0)?, row.get(1)?);
        if let Some(last) = last.get(&system) {
            // Whoever wrote something else there has no facts.
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
        // Of a kind that isn't known, nothing can be said.
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

/// What rows say that a condition chooses.
fn points(
    connection: &Connection,
    condition: &str,
    tell: &mut impl FnMut(Longest<'_>),
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
                tell(Longest::Latency(Point { start_ms, duration_ms, cpu, kind, ns }));
            }
            Peak::Response(JobPeak { job, response, deadline, misses }) => match names.get(&job) {
                Some(job) => tell(Longest::Response(Response {
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

/// What days say, and rows that are part of none yet.
fn points_of_days(
    connection: &Connection,
    choice: &Choice,
    tell: &mut impl FnMut(Longest<'_>),
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
            tell(Longest::Latency(Point { start_ms, duration_ms: DAY, cpu, kind, ns }));
        }
        for (name, cell) in &body.jobs.cells {
            tell(Longest::Response(Response {
                start_ms,
                duration_ms: DAY,
                job: name,
                ns: cell.longest.as_ref().map_or(0, |longest| longest.response),
                deadline_ns: cell.deadlines.map_or(0, |(shortest, _)| shortest),
                misses: cell.misses,
            }));
        }
    }
    points(connection, &format!("{condition} AND id > (SELECT rolled FROM state)"), tell)
}
