//! Binary encoding of the counts of an interval, by CPU and kind.
//!
//! ```text
//! body    := 3 woken difference slept unseen  names  CPUs  jobs
//! names   := number text…
//! CPUs    := number (gap kinds cell…)…      gap: from the previous CPU; kinds: a bitmask
//! cell    := sum longest worst buckets      longest: nanoseconds × 4 + how it is known
//! worst   := 0 | 1 end since… tid priority name, the same of the thread on the CPU, code
//! code    := number name…                   functions on the CPU, the innermost first
//! maxima  := 3 CPUs peaks                   of each cell only `longest`
//! ```
//!
//! [`super::job`] encodes jobs and peaks, which version 1 lacks. Versions 1 and 2 lack `code`.
//! [`super::bytes`] encodes numbers and [`super::bucket_counts`] histograms. `end` is in
//! nanoseconds since 1970. `since` are the times intended, fired and woken: how long before `end`,
//! plus one, or 0 for unknown.

use std::collections::BTreeMap;

use tompion_latency::{Kind, Kinds, MaxSample, Maximum};

use super::{
    bucket_counts::BucketCounts,
    bytes::{Damaged, Reader, Writer},
    job::{JobPeak, JobsBody, read_peaks},
};

const VERSION: u64 = 3;
/// First version with jobs.
const WITH_JOBS: u64 = 2;
/// First version with stacks.
const WITH_CODE: u64 = 3;
/// Maximum number of functions stored of a stack: as many as are shown.
pub const FUNCTIONS: usize = 3;
/// Maximum number of CPUs that a decoder accepts; Linux has fewer.
const MAX_CPUS: u64 = 65_536;

/// Longest latency of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Longest {
    /// Latency in nanoseconds.
    pub ns: u64,
    /// Precision of the latency: exact or a bound.
    pub is: Maximum,
    /// Sample of the longest latency, if it is known; times are in nanoseconds since 1970.
    pub worst: Option<MaxSample>,
    /// Kernel functions on the CPU, the innermost first; at most [`FUNCTIONS`].
    pub code: Vec<String>,
}

impl Default for Longest {
    fn default() -> Self {
        Self { ns: 0, is: Maximum::Exact, worst: None, code: Vec::new() }
    }
}

impl Longest {
    /// Keeps the longer of the two.
    fn merge(&mut self, other: Self) {
        if other.ns > self.ns || self.worst.is_none() && other.ns == self.ns {
            *self = other;
        }
    }
}

/// Counts of a CPU and kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// Sum of all latencies, in nanoseconds.
    pub sum: u64,
    /// Longest latency.
    pub longest: Longest,
    /// Histogram of the latencies.
    pub places: BucketCounts,
}

/// Cells by CPU and kind.
pub type Cells = BTreeMap<(u32, Kind), Cell>;

/// Counts of an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body {
    /// Number of wakeups.
    pub woken: u64,
    /// Largest accounting error.
    pub difference: i64,
    /// Number of sleeps by the scheduler's own count.
    pub slept: u64,
    /// Number of these whose wakeup was missed.
    pub unseen: u64,
    /// Latencies by CPU and kind.
    pub cells: Cells,
    /// Statistics of jobs.
    pub jobs: JobsBody,
}

impl Body {
    /// Adds the counts of another interval.
    pub fn merge(&mut self, other: Self) {
        self.add_sums(other.woken, other.difference, (other.slept, other.unseen));
        for (place, cell) in other.cells {
            let sum = self.cells.entry(place).or_default();
            sum.sum = sum.sum.saturating_add(cell.sum);
            sum.longest.merge(cell.longest);
            sum.places.merge(&cell.places);
        }
        self.jobs.merge(other.jobs);
    }

    fn add_sums(&mut self, woken: u64, difference: i64, (slept, unseen): (u64, u64)) {
        self.woken = self.woken.saturating_add(woken);
        self.slept = self.slept.saturating_add(slept);
        self.unseen = self.unseen.saturating_add(unseen);
        if difference.unsigned_abs() > self.difference.unsigned_abs() {
            self.difference = difference;
        }
    }

    /// Encodes all counts in the newest version.
    pub fn to_bytes(&self) -> Vec<u8> {
        self.to_bytes_of(VERSION)
    }

    fn to_bytes_of(&self, version: u64) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(version);
        writer.number(self.woken);
        writer.signed(self.difference);
        writer.number(self.slept);
        writer.number(self.unseen);
        let worsts = self.cells.values().filter_map(|cell| cell.longest.worst.as_ref());
        let threads = worsts.flat_map(|it| [it.name.as_str(), it.other_name.as_str()]);
        let functions = self.cells.values().flat_map(|cell| cell.longest.code.iter().map(String::as_str));
        let mut names: Vec<&str> = threads.chain(functions).chain(self.jobs.names()).collect();
        names.sort_unstable();
        names.dedup();
        writer.number(names.len() as u64);
        names.iter().for_each(|name| writer.text(name));
        write_cpus(&mut writer, &self.cells, |writer, cell| {
            writer.number(cell.sum);
            write_longest(writer, &cell.longest);
            write_worst(writer, cell.longest.worst.as_ref(), &names);
            if version >= WITH_CODE && cell.longest.worst.is_some() {
                write_code(writer, &cell.longest.code, &names);
            }
            cell.places.write(writer);
        });
        if version >= WITH_JOBS {
            self.jobs.write(&mut writer, &names);
        }
        writer.into_bytes()
    }

    /// Adds counts that [`Body::to_bytes`] encoded.
    ///
    /// # Errors
    /// If the bytes can't have been written by it. Some counts may have been added.
    pub fn add_bytes(&mut self, bytes: &[u8]) -> Result<(), Damaged> {
        let mut reader = Reader::new(bytes);
        let version = read_version(&mut reader)?;
        let (woken, difference) = (reader.number()?, reader.signed()?);
        self.add_sums(woken, difference, (reader.number()?, reader.number()?));
        let mut names = Vec::new();
        for _ in 0..reader.up_to(2 * MAX_CPUS, "more names than threads")? {
            names.push(reader.text()?);
        }
        let cells = &mut self.cells;
        read_cpus(&mut reader, |reader, cpu, kind| {
            let cell = cells.entry((cpu, kind)).or_default();
            cell.sum = cell.sum.saturating_add(reader.number()?);
            let (ns, is) = read_longest(reader)?;
            let worst = read_worst(reader, ns, &names)?;
            let has_code = version >= WITH_CODE && worst.is_some();
            let code = if has_code { read_code(reader, &names)? } else { Vec::new() };
            cell.longest.merge(Longest { ns, is, worst, code });
            cell.places.add_written(reader)
        })?;
        if version >= WITH_JOBS {
            self.jobs.add_written(&mut reader, &names)?;
        }
        reader.end()
    }

    /// Encodes the maxima of all cells and jobs; `numbers` has the jobs' numbers.
    pub fn maxima(&self, numbers: &BTreeMap<String, u64>) -> Vec<u8> {
        let mut writer = Writer::default();
        writer.number(VERSION);
        write_cpus(&mut writer, &self.cells, |writer, cell| write_longest(writer, &cell.longest));
        self.jobs.write_peaks(&mut writer, numbers);
        writer.into_bytes()
    }
}

/// Maximum in a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peak {
    /// Maximum of a CPU and kind, in nanoseconds.
    Latency(u32, Kind, u64),
    /// Maximum of a job.
    Response(JobPeak),
}

/// Passes each maximum that [`Body::maxima`] encoded to `visit`.
///
/// # Errors
/// If the bytes can't have been written by it.
pub fn read_maxima(bytes: &[u8], mut visit: impl FnMut(Peak)) -> Result<(), Damaged> {
    let mut reader = Reader::new(bytes);
    let version = read_version(&mut reader)?;
    read_cpus(&mut reader, |reader, cpu, kind| {
        visit(Peak::Latency(cpu, kind, read_longest(reader)?.0));
        Ok(())
    })?;
    if version >= WITH_JOBS {
        read_peaks(&mut reader, |peak| visit(Peak::Response(peak)))?;
    }
    reader.end()
}

/// Encodes the state of all counters at their last reading.
pub fn counters_to_bytes(cells: &Cells) -> Vec<u8> {
    let mut writer = Writer::default();
    writer.number(VERSION);
    write_cpus(&mut writer, cells, |writer, cell| {
        writer.number(cell.sum);
        cell.places.write(writer);
    });
    writer.into_bytes()
}

/// Decodes counters that [`counters_to_bytes`] encoded.
///
/// # Errors
/// If the bytes can't have been written by it.
pub fn counters_of_bytes(bytes: &[u8]) -> Result<Cells, Damaged> {
    let mut reader = Reader::new(bytes);
    read_version(&mut reader)?;
    let mut cells = Cells::new();
    read_cpus(&mut reader, |reader, cpu, kind| {
        let cell = cells.entry((cpu, kind)).or_default();
        cell.sum = reader.number()?;
        cell.places.add_written(reader)
    })?;
    reader.end()?;
    Ok(cells)
}

fn read_version(reader: &mut Reader<'_>) -> Result<u64, Damaged> {
    match reader.number()? {
        version @ 1..=VERSION => Ok(version),
        _ => Err(Damaged("written by another version")),
    }
}

fn write_cpus(writer: &mut Writer, cells: &Cells, mut write: impl FnMut(&mut Writer, &Cell)) {
    let mut cpus: Vec<u32> = cells.keys().map(|place| place.0).collect();
    cpus.dedup();
    writer.number(cpus.len() as u64);
    let mut next = 0;
    for cpu in cpus {
        writer.number(u64::from(cpu.saturating_sub(next)));
        next = cpu.saturating_add(1);
        let of_cpu = || cells.range((cpu, Kind::Wakeup)..=(cpu, Kind::TimerWakeupAll));
        let kinds: Kinds = of_cpu().map(|(place, _)| place.1).collect();
        writer.number(kinds.bits().into());
        of_cpu().for_each(|(_, cell)| write(writer, cell));
    }
}

fn read_cpus(
    reader: &mut Reader<'_>,
    mut read: impl FnMut(&mut Reader<'_>, u32, Kind) -> Result<(), Damaged>,
) -> Result<(), Damaged> {
    let mut next = 0;
    for _ in 0..reader.up_to(MAX_CPUS, "more CPUs than there are")? {
        let cpu = next + reader.up_to(MAX_CPUS, "a CPU that isn't")?;
        if cpu >= MAX_CPUS {
            return Err(Damaged("a CPU that isn't"));
        }
        next = cpu + 1;
        let bits = reader.up_to(Kinds::ALL.bits().into(), "a kind that isn't known")? as u32;
        for kind in Kind::ALL.into_iter().filter(|kind| Kinds::of_bits(bits).has(*kind)) {
            read(reader, cpu as u32, kind)?;
        }
    }
    Ok(())
}

fn write_longest(writer: &mut Writer, longest: &Longest) {
    let known = match longest.is {
        Maximum::Exact => 0,
        Maximum::Below => 1,
        Maximum::AtLeast => 2,
    };
    writer.number(longest.ns.min(u64::MAX >> 2) << 2 | known);
}

fn read_longest(reader: &mut Reader<'_>) -> Result<(u64, Maximum), Damaged> {
    let number = reader.number()?;
    let is = match number & 3 {
        0 => Maximum::Exact,
        1 => Maximum::Below,
        2 => Maximum::AtLeast,
        _ => return Err(Damaged("a longest latency that is known in no way")),
    };
    Ok((number >> 2, is))
}

fn number_of(name: &str, names: &[&str]) -> u64 {
    names.binary_search(&name).unwrap_or(0) as u64
}

fn write_worst(writer: &mut Writer, worst: Option<&MaxSample>, names: &[&str]) {
    writer.number(worst.is_some().into());
    let Some(worst) = worst else { return };
    writer.number(worst.end);
    for time in [worst.intended, worst.fired, worst.woken] {
        writer.number(if time == 0 { 0 } else { worst.end.saturating_sub(time).saturating_add(1) });
    }
    let threads = [
        (worst.tid, worst.priority, number_of(&worst.name, names)),
        (worst.other_tid, worst.other_priority, number_of(&worst.other_name, names)),
    ];
    for (tid, priority, name) in threads {
        writer.number(tid.into());
        writer.signed(priority.into());
        writer.number(name);
    }
}

fn write_code(writer: &mut Writer, code: &[String], names: &[&str]) {
    let code = code.get(..FUNCTIONS).unwrap_or(code);
    writer.number(code.len() as u64);
    code.iter().for_each(|function| writer.number(number_of(function, names)));
}

fn read_code(reader: &mut Reader<'_>, names: &[String]) -> Result<Vec<String>, Damaged> {
    let mut code = Vec::new();
    for _ in 0..reader.up_to(FUNCTIONS as u64, "more code than is kept")? {
        let name = names.get(reader.number()? as usize).ok_or(Damaged("a function that isn't there"))?;
        code.push(name.clone());
    }
    Ok(code)
}

fn read_worst(reader: &mut Reader<'_>, latency: u64, names: &[String]) -> Result<Option<MaxSample>, Damaged> {
    if reader.up_to(1, "a worst that is neither there nor not")? == 0 {
        return Ok(None);
    }
    let end = reader.number()?;
    let mut time = || -> Result<u64, Damaged> {
        let before = reader.number()?;
        Ok(if before == 0 { 0 } else { end.saturating_sub(before - 1) })
    };
    let (intended, fired, woken) = (time()?, time()?, time()?);
    let mut thread = || -> Result<(u32, i32, String), Damaged> {
        let tid = reader.up_to(u32::MAX.into(), "a thread's number is too large")? as u32;
        let priority = i32::try_from(reader.signed()?).map_err(|_| Damaged("a priority that isn't"))?;
        let name = names.get(reader.number()? as usize).ok_or(Damaged("a name that isn't there"))?;
        Ok((tid, priority, name.clone()))
    };
    let ((tid, priority, name), (other_tid, other_priority, other_name)) = (thread()?, thread()?);
    Ok(Some(MaxSample {
        latency,
        end,
        intended,
        fired,
        woken,
        tid,
        priority,
        other_tid,
        other_priority,
        name,
        other_name,
        // Addresses are valid until the next boot only; functions are stored by name.
        stack: Vec::new(),
    }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{JobCell, LongestResponse},
        simulate::Dice,
    };
    use tompion_latency::jobs::Release;

    fn worst(dice: &mut Dice, latency: u64) -> MaxSample {
        let end = 1_700_000_000_000_000_000 + dice.below(1 << 50);
        MaxSample {
            latency,
            end,
            intended: if dice.below(2) == 0 { 0 } else { end - latency },
            fired: end - latency / 2,
            woken: end - latency / 3,
            tid: dice.below(1 << 22) as u32,
            priority: dice.below(141) as i32 - 1,
            other_tid: 0,
            other_priority: 120,
            name: format!("robot-{}", dice.below(4)),
            other_name: "swapper/0".into(),
            stack: Vec::new(),
        }
    }

    fn random(dice: &mut Dice) -> Body {
        let mut body =
            Body { woken: dice.below(1 << 40), difference: -3, slept: 7, unseen: 2, ..Body::default() };
        for cpu in 0..dice.below(6) {
            for kind in Kind::ALL {
                if dice.below(4) == 0 {
                    continue;
                }
                let mut cell = Cell { sum: dice.below(1 << 45), ..Cell::default() };
                (0..dice.below(50))
                    .for_each(|_| cell.places.add(dice.below(20_000) as usize, dice.below(99)));
                let ns = dice.below(20_000_000);
                let is = [Maximum::Exact, Maximum::Below, Maximum::AtLeast][dice.below(3) as usize];
                let worst = (is == Maximum::Exact).then(|| worst(dice, ns));
                let functions = if worst.is_some() { dice.below(1 + FUNCTIONS as u64) } else { 0 };
                let code = (0..functions).map(|_| format!("function_{}", dice.below(9))).collect();
                cell.longest = Longest { ns, is, worst, code };
                body.cells.insert((cpu as u32 * 3, kind), cell);
            }
        }
        body.jobs = JobsBody { watched: dice.below(300_001), lost: dice.below(3), ..JobsBody::default() };
        for number in 0..dice.below(4) {
            body.jobs.cells.insert(format!("motor:{number}"), job(dice));
        }
        body
    }

    fn job(dice: &mut Dice) -> JobCell {
        let mut places = BucketCounts::default();
        (0..dice.below(50)).for_each(|_| places.add(dice.below(864) as usize, dice.below(99)));
        let longest = LongestResponse {
            end: 1_700_000_000_000_000_000 + dice.below(1 << 50),
            response: dice.below(1 << 40),
            until_running: (dice.below(2) == 0).then(|| dice.below(1 << 30)),
            until_begin: dice.below(1 << 30),
            execution: dice.below(1 << 40),
            deadline: dice.below(2) * 5_000_000,
            by: Release::ALL[dice.below(4) as usize],
            pid: dice.below(1 << 22) as u32,
            tid: dice.below(1 << 22) as u32,
            thread: format!("robot-{}", dice.below(9)),
        };
        let shortest = 1 + dice.below(1 << 30);
        JobCell {
            activations: dice.below(1 << 40),
            misses: dice.below(9),
            overruns: dice.below(3),
            deadlines: (dice.below(2) == 0).then(|| (shortest, shortest + dice.below(1 << 30))),
            sum: dice.below(1 << 50),
            released: [0; 4].map(|_: u64| dice.below(1 << 30)),
            longest: (dice.below(5) > 0).then_some(longest),
            places,
        }
    }

    /// Numbers for all jobs.
    fn numbers(body: &Body) -> BTreeMap<String, u64> {
        body.jobs.cells.keys().cloned().zip(500..).collect()
    }

    fn read(bytes: &[u8]) -> Result<Body, Damaged> {
        let mut body = Body::default();
        body.add_bytes(bytes)?;
        Ok(body)
    }

    #[test]
    fn whatever_is_written_comes_back() {
        let mut dice = Dice::new(1);
        for round in 0..200 {
            let body = random(&mut dice);
            assert_eq!(read(&body.to_bytes()).as_ref(), Ok(&body), "round {round}");
            let numbers = numbers(&body);
            let mut peaks = Vec::new();
            read_maxima(&body.maxima(&numbers), |peak| peaks.push(peak)).unwrap();
            let latencies =
                body.cells.iter().map(|((cpu, kind), it)| Peak::Latency(*cpu, *kind, it.longest.ns));
            let responses = body.jobs.cells.iter().map(|(name, cell)| {
                Peak::Response(JobPeak {
                    job: numbers[name],
                    response: cell.longest.as_ref().map_or(0, |longest| longest.response),
                    deadline: cell.deadlines.map_or(0, |both| both.0),
                    misses: cell.misses,
                })
            });
            assert_eq!(peaks, latencies.chain(responses).collect::<Vec<_>>());
            let counters = counters_of_bytes(&counters_to_bytes(&body.cells)).unwrap();
            assert!(counters.len() == body.cells.len());
            for (at, cell) in counters {
                assert_eq!((cell.sum, &cell.places), (body.cells[&at].sum, &body.cells[&at].places));
            }
        }
    }

    #[test]
    fn two_times_together_are_added_bytes_or_not() {
        let mut dice = Dice::new(2);
        for _ in 0..50 {
            let (one, other) = (random(&mut dice), random(&mut dice));
            let mut merged = one.clone();
            merged.merge(other.clone());
            let mut added = Body::default();
            added.add_bytes(&one.to_bytes()).unwrap();
            added.add_bytes(&other.to_bytes()).unwrap();
            assert_eq!(merged, added);
            assert_eq!(merged.woken, one.woken + other.woken);
            for (at, cell) in &merged.cells {
                let both = [&one, &other].map(|body| body.cells.get(at));
                let longest = both.iter().flatten().map(|cell| cell.longest.ns).max();
                assert_eq!(Some(cell.longest.ns), longest);
            }
            for (name, cell) in &merged.jobs.cells {
                let both = || [&one, &other].into_iter().filter_map(|body| body.jobs.cells.get(name));
                assert_eq!(cell.activations, both().map(|cell| cell.activations).sum::<u64>());
                assert_eq!(cell.places.count(), both().map(|cell| cell.places.count()).sum::<u64>());
                let longest = both().filter_map(|cell| Some(cell.longest.as_ref()?.response)).max();
                assert_eq!(cell.longest.as_ref().map(|it| it.response), longest);
            }
        }
    }

    #[test]
    fn what_earlier_versions_wrote_is_read() {
        let mut dice = Dice::new(4);
        let mut body = random(&mut dice);
        assert_eq!(read(&body.to_bytes()).as_ref(), Ok(&body));
        let has_code = body.cells.values().filter(|cell| !cell.longest.code.is_empty()).count();
        assert!(has_code > 0);
        // An older encoding, then a newer one.
        let mut both = read(&body.to_bytes_of(2)).unwrap();
        both.add_bytes(&body.to_bytes()).unwrap();
        assert_eq!(
            both.cells.values().filter(|cell| !cell.longest.code.is_empty()).count(),
            0,
            "the first one stays"
        );
        body.cells.values_mut().for_each(|cell| cell.longest.code.clear());
        assert_eq!(read(&body.to_bytes_of(2)).as_ref(), Ok(&body));
        body.jobs = JobsBody::default();
        assert_eq!(read(&body.to_bytes_of(1)).as_ref(), Ok(&body));
        // Version 1 had no jobs at the end, which are a zero here.
        let mut maxima = body.maxima(&BTreeMap::new());
        maxima[0] = 1;
        assert_eq!(maxima.pop(), Some(0));
        let mut count = 0;
        read_maxima(&maxima, |_| count += 1).unwrap();
        assert_eq!(count, body.cells.len());
    }

    #[test]
    fn damaged_bytes_are_refused_or_harmless() {
        let mut dice = Dice::new(3);
        let good = random(&mut dice).to_bytes();
        let mut refused = 0;
        for round in 0..3000 {
            let mut bytes = good.clone();
            for _ in 0..=dice.below(3) {
                let place = dice.below(bytes.len() as u64) as usize;
                bytes[place] = dice.below(256) as u8;
            }
            if round % 2 == 0 {
                bytes.truncate(dice.below(good.len() as u64) as usize);
            }
            refused += u32::from(read(&bytes).is_err());
            let _ = read_maxima(&bytes, |_| {});
            let _ = counters_of_bytes(&bytes);
        }
        assert!(refused >= 1500, "{refused}");
        assert_eq!(read(&[]), Err(Damaged("bytes end within a number")));
        assert_eq!(read(&[9]), Err(Damaged("written by another version")));
    }
}
