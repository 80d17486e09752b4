//! The segments of a latency as rows that people read: the pieces of an interrupt are one, and
//! short ones stand with their neighbours.

use tompion_latency::attribution::{Cause, Segment};

use crate::{messages::pluralize, units};

/// So many rows need no shortening.
const FEW: usize = 12;
/// Rows at most.
const MOST: usize = 30;
/// What is shorter than this part of the latency is short.
const SHORT: u64 = 100;

/// One or more segments, one behind the other.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// When it begins and ends.
    pub time: (u64, u64),
    /// By whose doing, in no order.
    parties: Vec<Party<'a>>,
}

/// All that is one party's doing.
#[derive(Clone, Debug)]
struct Party<'a> {
    longest: &'a Segment,
    pieces: u64,
    ns: u64,
}

impl<'a> Row<'a> {
    fn of(segment: &'a Segment) -> Self {
        let party = Party { longest: segment, pieces: 1, ns: segment.length() };
        Self { time: (segment.begin, segment.end), parties: vec![party] }
    }

    /// How long it takes, in nanoseconds.
    pub fn length(&self) -> u64 {
        self.time.1 - self.time.0
    }

    /// The longest segment of the party that had most of it.
    pub fn main(&self) -> Option<&'a Segment> {
        self.parties.iter().max_by_key(|party| party.ns).map(|party| party.longest)
    }

    /// What else is in it: "+38 interrupts, 700 µs"; empty if there is nothing.
    pub fn describe_others(&self) -> String {
        let Some(main) = self.main() else { return String::new() };
        let mut words = String::new();
        for (one, several, is_so) in [
            ("interrupt", "interrupts", (|cause| cause == Cause::HardInterrupt) as fn(Cause) -> bool),
            ("soft interrupt", "soft interrupts", |cause| cause == Cause::SoftInterrupt),
            ("run of another thread", "runs of other threads", |cause| cause == Cause::HigherPriority),
            ("other piece", "other pieces", |cause| {
                !matches!(cause, Cause::HardInterrupt | Cause::SoftInterrupt | Cause::HigherPriority)
            }),
        ] {
            let others = self.parties.iter().filter(|party| !party.longest.has_same_party(main));
            let others = others.filter(|party| is_so(party.longest.cause));
            let (pieces, ns) = others.fold((0, 0), |sum, party| (sum.0 + party.pieces, sum.1 + party.ns));
            if pieces > 0 {
                let what = if pieces == 1 { one } else { several };
                words += &format!("; +{pieces} {what}, {}", units::format_duration(ns as f64));
            }
        }
        words
    }

    fn is_like(&self, other: &Self) -> bool {
        let alike = |one: &Segment, other: &Segment| one.cpu == other.cpu && one.has_same_party(other);
        self.main().zip(other.main()).is_some_and(|(one, other)| alike(one, other))
    }

    /// Takes the next one in.
    fn take(&mut self, next: Self) {
        self.time.1 = next.time.1;
        for party in next.parties {
            match self.parties.iter_mut().find(|it| it.longest.has_same_party(party.longest)) {
                Some(known) => {
                    known.ns += party.ns;
                    known.pieces += party.pieces;
                    if party.longest.length() > known.longest.length() {
                        known.longest = party.longest;
                    }
                }
                None => self.parties.push(party),
            }
        }
    }
}

/// Each segment by itself.
pub fn all(segments: &[Segment]) -> Vec<Row<'_>> {
    segments.iter().map(Row::of).collect()
}

/// Few enough to be read.
pub fn folded(segments: &[Segment]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for row in segments.iter().map(Row::of) {
        match rows.last_mut() {
            Some(last) if last.is_like(&row) => {
                last.take(row);
                // They are of one interrupt.
                last.parties.iter_mut().for_each(|party| party.pieces = 1);
            }
            _ => rows.push(row),
        }
    }
    if rows.len() <= FEW {
        return rows;
    }
    let latency: u64 = rows.iter().map(Row::length).sum();
    while let Some((place, shortest)) = rows.iter().enumerate().min_by_key(|(_, row)| row.length()) {
        let is_short = u128::from(shortest.length()) * u128::from(SHORT) < u128::from(latency);
        if rows.len() == 1 || !is_short && rows.len() <= MOST {
            break;
        }
        fold(&mut rows, place);
    }
    rows
}

/// Has a neighbour take a row in: one on the same CPU, if there is, and the longer one. Neighbours
/// that are alike then become one.
fn fold(rows: &mut Vec<Row<'_>>, place: usize) {
    let cpu = |row: &Row<'_>| row.main().map(|main| main.cpu);
    let (Some(row), before, after) =
        (rows.get(place), place.checked_sub(1).and_then(|it| rows.get(it)), rows.get(place + 1))
    else {
        return;
    };
    let weight = |other: Option<&Row<'_>>| other.map(|other| (cpu(other) == cpu(row), other.length()));
    let mut first = if weight(before) >= weight(after) { place.saturating_sub(1) } else { place };
    join(rows, first);
    while rows.get(first).zip(rows.get(first + 1)).is_some_and(|(row, next)| row.is_like(next)) {
        join(rows, first);
    }
    while first > 0 && rows.get(first - 1).zip(rows.get(first)).is_some_and(|(row, next)| row.is_like(next)) {
        first -= 1;
        join(rows, first);
    }
}

/// Has a row take the next one in.
fn join(rows: &mut Vec<Row<'_>>, first: usize) {
    if first + 1 < rows.len() {
        let next = rows.remove(first + 1);
        if let Some(row) = rows.get_mut(first) {
            row.take(next);
        }
    }
}

/// That not each segment has a row; nothing if it has.
pub fn note(segments: usize, rows: usize) -> Option<String> {
    (rows < segments).then(|| {
        let pieces = pluralize(segments as u64, "piece");
        format!("{pieces} in {}; --all has each by itself", pluralize(rows as u64, "line"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Segments one behind the other: what, of whom, for how many nanoseconds.
    fn segments(parts: &[(Cause, &str, u32, u64)]) -> Vec<Segment> {
        let mut at = 1000;
        let mut segment = |&(cause, who, tid, ns): &(Cause, &str, u32, u64)| {
            let begin = at;
            at += ns;
            Segment { begin, end: at, cpu: 0, cause, who: who.into(), tid, code: Vec::new() }
        };
        parts.iter().map(&mut segment).collect()
    }

    fn shown(rows: &[Row<'_>]) -> Vec<String> {
        let row = |row: &Row<'_>| {
            format!("{} {}{}", row.length(), row.main().expect("a segment").who, row.describe_others())
        };
        rows.iter().map(row).collect()
    }

    const TICK: [(Cause, &str, u32, u64); 3] = [
        (Cause::HardInterrupt, "local timer", 0, 1_000),
        (Cause::HardInterrupt, "local timer: tick_nohz_handler", 0, 7_000),
        (Cause::HardInterrupt, "local timer", 0, 2_000),
    ];

    #[test]
    fn given_a_short_latency_then_the_pieces_of_an_interrupt_are_one_row() {
        let own = (Cause::OwnPath, "", 0, 10);
        let segments = segments(&[&[own], &TICK[..], &[own]].concat());
        assert_eq!(shown(&folded(&segments)), ["10 ", "10000 local timer: tick_nohz_handler", "10 "]);
        assert_eq!(note(5, 3).as_deref(), Some("5 pieces in 3 lines; --all has each by itself"));
        assert!(all(&segments).len() == 5 && note(5, 5).is_none());
    }

    #[test]
    fn given_hundreds_of_pieces_then_short_ones_stand_with_who_had_the_processor() {
        let (hog, soft) =
            ((Cause::HigherPriority, "hog", 5, 970_000), (Cause::SoftInterrupt, "rcu", 5, 20_000));
        let exec = (Cause::HigherPriority, "taskset", 6, 120);
        let round = [&[hog], &TICK[..], &[soft]].concat();
        let parts =
            [round.repeat(100), vec![exec], vec![hog; 1], vec![(Cause::OwnPath, "", 0, 3_000)]].concat();
        let segments = segments(&parts);
        let rows = folded(&segments);
        let expected = "100973120 hog; +100 interrupts, 1.00 ms; +100 soft interrupts, 2.00 ms; +1 run of another \
                        thread, 120 ns; +1 other piece, 3.00 µs";
        assert_eq!(shown(&rows), [expected]);
    }

    #[test]
    fn given_long_pieces_without_end_then_there_are_no_more_rows_than_can_be_read() {
        let runs =
            [(Cause::HigherPriority, "a", 5, 1_100), (Cause::HigherPriority, "b", 6, 1_000)].repeat(45);
        let segments = segments(&runs);
        let rows = folded(&segments);
        assert!(rows.len() <= MOST, "{:?}", shown(&rows));
        assert_eq!(rows.iter().map(Row::length).sum::<u64>(), 45 * 2_100);
        let is_whole = rows.windows(2).all(|pair| pair[0].time.1 == pair[1].time.0);
        assert!(is_whole && rows[0].time.0 == 1000, "{:?}", shown(&rows));
    }

    #[test]
    fn given_a_few_long_ones_among_many_then_they_keep_their_rows() {
        let noise = [(Cause::HardInterrupt, "eth0", 0, 100), (Cause::OwnPath, "", 0, 100)].repeat(8);
        let long = [(Cause::PreemptionOff, "one", 5, 50_000), (Cause::PreemptionOff, "two", 6, 40_000)];
        let segments = segments(&[&noise[..], &long].concat());
        let expected =
            ["1500 eth0; +7 other pieces, 700 ns", "50100 one; +1 other piece, 100 ns", "40000 two"];
        assert_eq!(shown(&folded(&segments)), expected);
    }

    #[test]
    fn nothing_has_no_rows() {
        assert!(folded(&[]).is_empty() && all(&[]).is_empty());
    }
}
