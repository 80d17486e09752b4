//! Statistics of jobs in an interval, by name, and their binary encoding.
//!
//! ```text
//! jobs    := watched lost number job…
//! job     := name activations misses overruns deadlines sum released… longest buckets
//!            released: a count for each kind of release
//! longest := 0 | 1 end response running begin execution deadline by pid tid thread
//! peaks   := number (job response deadline misses)…
//! ```
//!
//! Names and threads are indices into the body's list of names; `job` is its number in the history.
//! Deadlines are the shortest, and how much longer the longest is, or 0 for none. `running` is that
//! time plus one, or 0 if the thread didn't sleep.

use std::collections::BTreeMap;

use tompion_latency::{
    LENGTH_PLACES,
    jobs::{Activation, Longest, Recent, Release, Tally},
    length_place,
};

use super::{
    bucket_counts::BucketCounts,
    bytes::{Damaged, Reader, Writer},
};

/// Maximum number of jobs that a decoder accepts; a history has names for fewer.
const MAX_JOBS: u64 = 65_536;

/// Longest response of a job, in detail. Lengths are in nanoseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongestResponse {
    /// End of the job, in nanoseconds since 1970.
    pub end: u64,
    /// Time from release to end.
    pub response: u64,
    /// Time from release until the thread ran, if it slept before.
    pub until_running: Option<u64>,
    /// Time from then until the job began.
    pub until_begin: u64,
    /// Time from begin to end.
    pub execution: u64,
    /// Deadline; 0 for none.
    pub deadline: u64,
    /// Kind of release.
    pub by: Release,
    /// Process of the thread.
    pub pid: u32,
    /// Thread that ran the job.
    pub tid: u32,
    /// Name of the thread.
    pub thread: String,
}

impl LongestResponse {
    /// Converts an activation; the time of day is `ahead` nanoseconds ahead of its clock.
    fn new(activation: &Activation, thread: &str, ahead: u64) -> Self {
        Self {
            end: activation.end.saturating_add(ahead),
            response: activation.response(),
            until_running: activation.until_running(),
            until_begin: activation.until_begin(),
            execution: activation.execution(),
            deadline: activation.deadline,
            by: activation.by,
            pid: activation.pid,
            tid: activation.tid,
            thread: thread.to_owned(),
        }
    }

    /// Converts to the form used in reports.
    pub fn report(&self) -> Longest {
        Longest {
            time_ns: self.end,
            pid: self.pid,
            tid: self.tid,
            thread: self.thread.clone(),
            released_by: self.by,
            response_us: us(self.response),
            until_running_us: self.until_running.map(us),
            until_begin_us: us(self.until_begin),
            execution_us: us(self.execution),
            deadline_us: (self.deadline != 0).then(|| us(self.deadline)),
        }
    }
}

pub(super) fn us(ns: u64) -> f64 {
    ns as f64 / 1000.0
}

/// Statistics of one job.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobCell {
    /// Number of activations.
    pub activations: u64,
    /// Number of responses longer than their deadline.
    pub misses: u64,
    /// Number of these that would have missed it even if they had begun at their release.
    pub overruns: u64,
    /// Shortest and longest deadline, in nanoseconds.
    pub deadlines: Option<(u64, u64)>,
    /// Sum of all responses, in nanoseconds.
    pub sum: u64,
    /// Number of activations by kind of release, in the order of [`Release::ALL`].
    pub released: [u64; Release::ALL.len()],
    /// The longest response.
    pub longest: Option<LongestResponse>,
    /// Histogram of responses, in the buckets of [`length_place`].
    pub places: BucketCounts,
}

impl JobCell {
    fn new(tally: &Tally, ahead: u64) -> Self {
        let mut places = BucketCounts::default();
        tally.response.places.places().for_each(|(begin, count)| places.add(length_place(begin), count));
        Self {
            activations: tally.activations,
            misses: tally.misses,
            overruns: tally.overruns,
            deadlines: (tally.deadline != 0).then_some((tally.deadline, tally.deadline)),
            sum: tally.response.sum,
            released: Release::ALL.map(|by| tally.released_by.get(&by).copied().unwrap_or(0)),
            longest: tally
                .longest
                .as_ref()
                .map(|(activation, thread)| LongestResponse::new(activation, thread, ahead)),
            places,
        }
    }

    /// Adds the statistics of another interval, apart from the histogram.
    fn add_sums(&mut self, other: Self) {
        self.activations = self.activations.saturating_add(other.activations);
        self.misses = self.misses.saturating_add(other.misses);
        self.overruns = self.overruns.saturating_add(other.overruns);
        self.sum = self.sum.saturating_add(other.sum);
        self.deadlines = match (self.deadlines, other.deadlines) {
            (Some(one), Some(another)) => Some((one.0.min(another.0), one.1.max(another.1))),
            (one, another) => one.or(another),
        };
        for (sum, count) in self.released.iter_mut().zip(other.released) {
            *sum = sum.saturating_add(count);
        }
        let length = |longest: &Option<LongestResponse>| longest.as_ref().map(|it| it.response);
        if length(&other.longest) > length(&self.longest) {
            self.longest = other.longest;
        }
    }

    fn write(&self, writer: &mut Writer, names: &[&str]) {
        for number in [self.activations, self.misses, self.overruns] {
            writer.number(number);
        }
        let (shortest, longest) = self.deadlines.unwrap_or_default();
        writer.number(shortest);
        if shortest != 0 {
            writer.number(longest.saturating_sub(shortest));
        }
        writer.number(self.sum);
        self.released.iter().for_each(|count| writer.number(*count));
        writer.number(self.longest.is_some().into());
        if let Some(longest) = &self.longest {
            let running = longest.until_running.map_or(0, |ns| ns.saturating_add(1));
            let (begin, execution) = (longest.until_begin, longest.execution);
            for number in [longest.end, longest.response, running, begin, execution, longest.deadline] {
                writer.number(number);
            }
            let by = Release::ALL.iter().position(|by| *by == longest.by).unwrap_or(0) as u64;
            let thread = names.binary_search(&longest.thread.as_str()).unwrap_or(0) as u64;
            for number in [by, longest.pid.into(), longest.tid.into(), thread] {
                writer.number(number);
            }
        }
        self.places.write(writer);
    }

    /// Adds statistics that [`JobCell::write`] wrote.
    fn add_written(&mut self, reader: &mut Reader<'_>, names: &[String]) -> Result<(), Damaged> {
        let mut read = Self {
            activations: reader.number()?,
            misses: reader.number()?,
            overruns: reader.number()?,
            ..Self::default()
        };
        let shortest = reader.number()?;
        if shortest != 0 {
            read.deadlines = Some((shortest, shortest.saturating_add(reader.number()?)));
        }
        read.sum = reader.number()?;
        for count in &mut read.released {
            *count = reader.number()?;
        }
        read.longest = read_longest(reader, names)?;
        self.add_sums(read);
        self.places.add_written(reader)?;
        match self.places.last() {
            Some(last) if last >= LENGTH_PLACES => Err(Damaged("a response beyond all places")),
            _ => Ok(()),
        }
    }
}

fn read_longest(reader: &mut Reader<'_>, names: &[String]) -> Result<Option<LongestResponse>, Damaged> {
    if reader.up_to(1, "a longest response that is neither there nor not")? == 0 {
        return Ok(None);
    }
    let (end, response, running) = (reader.number()?, reader.number()?, reader.number()?);
    let (until_begin, execution, deadline) = (reader.number()?, reader.number()?, reader.number()?);
    let by = Release::ALL.get(reader.number()? as usize).ok_or(Damaged("a release that isn't known"))?;
    let mut id = || reader.up_to(u32::MAX.into(), "a thread's number is too large").map(|id| id as u32);
    let (pid, tid) = (id()?, id()?);
    Ok(Some(LongestResponse {
        end,
        response,
        until_running: running.checked_sub(1),
        until_begin,
        execution,
        deadline,
        by: *by,
        pid,
        tid,
        thread: name(reader, names)?,
    }))
}

fn name(reader: &mut Reader<'_>, names: &[String]) -> Result<String, Damaged> {
    names.get(reader.number()? as usize).cloned().ok_or(Damaged("a name that isn't there"))
}

/// Statistics of jobs by their names.
pub type JobCells = BTreeMap<String, JobCell>;

/// Statistics of all jobs in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JobsBody {
    /// Time for which jobs were watched, in milliseconds.
    pub watched: u64,
    /// Number of lost begins, ends and wakeups.
    pub lost: u64,
    /// Jobs with activations.
    pub cells: JobCells,
}

impl JobsBody {
    /// Converts the newest statistics; the time of day is `ahead` nanoseconds ahead of
    /// CLOCK_MONOTONIC.
    pub(super) fn new(recent: &Recent, ahead: u64) -> Self {
        let mut jobs =
            Self { watched: recent.watched / 1_000_000, lost: recent.lost, cells: JobCells::new() };
        // Two jobs may share a name: one reported by a program, one defined by probes.
        recent.jobs.iter().for_each(|(name, tally)| jobs.add(name, JobCell::new(tally, ahead)));
        jobs
    }

    /// Adds the statistics of another interval, or of another job with this name.
    pub fn add(&mut self, name: &str, cell: JobCell) {
        match self.cells.get_mut(name) {
            Some(sum) => {
                sum.places.merge(&cell.places);
                sum.add_sums(cell);
            }
            None => drop(self.cells.insert(name.to_owned(), cell)),
        }
    }

    /// Adds the statistics of another interval.
    pub fn merge(&mut self, other: Self) {
        self.watched = self.watched.saturating_add(other.watched);
        self.lost = self.lost.saturating_add(other.lost);
        for (name, cell) in other.cells {
            self.add(&name, cell);
        }
    }

    /// All names of jobs and threads.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        let threads = self.cells.values().filter_map(|cell| Some(cell.longest.as_ref()?.thread.as_str()));
        self.cells.keys().map(String::as_str).chain(threads)
    }

    /// Encodes everything; `names` is sorted and has all of [`JobsBody::names`].
    pub fn write(&self, writer: &mut Writer, names: &[&str]) {
        writer.number(self.watched);
        writer.number(self.lost);
        writer.number(self.cells.len() as u64);
        for (name, cell) in &self.cells {
            writer.number(names.binary_search(&name.as_str()).unwrap_or(0) as u64);
            cell.write(writer, names);
        }
    }

    /// Adds statistics that [`JobsBody::write`] wrote.
    ///
    /// # Errors
    /// If the bytes can't have been written by it. Some statistics may have been added.
    pub fn add_written(&mut self, reader: &mut Reader<'_>, names: &[String]) -> Result<(), Damaged> {
        self.watched = self.watched.saturating_add(reader.number()?);
        self.lost = self.lost.saturating_add(reader.number()?);
        for _ in 0..reader.up_to(MAX_JOBS, "more jobs than there can be")? {
            let name = name(reader, names)?;
            self.cells.entry(name).or_default().add_written(reader, names)?;
        }
        Ok(())
    }

    /// Encodes the longest response of each job that has a number.
    pub fn write_peaks(&self, writer: &mut Writer, numbers: &BTreeMap<String, u64>) {
        let cells = || self.cells.iter().filter_map(|(name, cell)| Some((*numbers.get(name)?, cell)));
        writer.number(cells().count() as u64);
        for (number, cell) in cells() {
            let response = cell.longest.as_ref().map_or(0, |longest| longest.response);
            let deadline = cell.deadlines.map_or(0, |(shortest, _)| shortest);
            [number, response, deadline, cell.misses].iter().for_each(|it| writer.number(*it));
        }
    }
}

/// Longest response of a job in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobPeak {
    /// Number of the job in the history.
    pub job: u64,
    /// Longest response, in nanoseconds.
    pub response: u64,
    /// Shortest deadline, in nanoseconds; 0 for none.
    pub deadline: u64,
    /// Number of responses longer than their deadline.
    pub misses: u64,
}

/// Passes each peak that [`JobsBody::write_peaks`] wrote to `visit`.
///
/// # Errors
/// If the bytes can't have been written by it.
pub fn read_peaks(reader: &mut Reader<'_>, mut visit: impl FnMut(JobPeak)) -> Result<(), Damaged> {
    for _ in 0..reader.up_to(MAX_JOBS, "more jobs than there can be")? {
        let (job, response) = (reader.number()?, reader.number()?);
        visit(JobPeak { job, response, deadline: reader.number()?, misses: reader.number()? });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(name: &str, responses: &[u64], deadline: u64) -> (String, Tally) {
        let mut tally = Tally { activations: responses.len() as u64, deadline, ..Tally::default() };
        for (number, ns) in (1..).zip(responses) {
            tally.response.places.count_length(*ns);
            tally.response.sum += ns;
            tally.misses += u64::from(*ns > deadline);
            let begin = number * 1_000_000_000;
            let activation = Activation {
                job: 1,
                pid: 7,
                tid: 8,
                by: Release::Begin,
                release: begin,
                wake: None,
                begin,
                end: begin + ns,
                deadline,
            };
            if tally.longest.as_ref().is_none_or(|(longest, _)| longest.response() < *ns) {
                tally.longest = Some((activation, "arm".into()));
            }
        }
        tally.released_by.insert(Release::Begin, tally.activations);
        (name.into(), tally)
    }

    #[test]
    fn jobs_of_one_name_are_one_job() {
        let jobs = vec![
            tally("control", &[1000, 900_000, 5_000_000], 1_000_000),
            tally("control", &[7_000_000], 2_000_000),
            tally("log", &[10], 0),
        ];
        let body = JobsBody::new(&Recent { watched: 4_999_999, lost: 3, jobs }, 50);
        assert_eq!((body.watched, body.lost, body.cells.len()), (4, 3, 2));
        let control = &body.cells["control"];
        assert_eq!((control.activations, control.misses, control.sum), (4, 2, 12_901_000));
        assert_eq!((control.deadlines, control.released), (Some((1_000_000, 2_000_000)), [0, 0, 0, 4]));
        assert_eq!((control.places.count(), control.places.lengths().bound()), (4, Some(7_077_888)));
        let longest = control.longest.as_ref().unwrap();
        assert_eq!((longest.end, longest.response, longest.deadline), (1_007_000_050, 7_000_000, 2_000_000));
        assert_eq!((longest.until_running, longest.report().response_us), (None, 7000.0));
        assert_eq!(body.cells["log"].deadlines, None);
    }

    #[test]
    fn peaks_are_those_of_jobs_with_numbers() {
        let jobs = vec![tally("control", &[5_000_000], 1_000_000), tally("new", &[1], 0)];
        let body = JobsBody::new(&Recent { watched: 0, lost: 0, jobs }, 0);
        let mut writer = Writer::default();
        body.write_peaks(&mut writer, &BTreeMap::from([("control".to_owned(), 300)]));
        let bytes = writer.into_bytes();
        let mut peaks = Vec::new();
        read_peaks(&mut Reader::new(&bytes), |peak| peaks.push(peak)).unwrap();
        assert_eq!(peaks, [JobPeak { job: 300, response: 5_000_000, deadline: 1_000_000, misses: 1 }]);
        assert!(read_peaks(&mut Reader::new(&bytes[..3]), |_| {}).is_err());
        assert!(read_peaks(&mut Reader::new(&[0xff, 0xff, 0x7f]), |_| {}).is_err());
    }
}
