//! Segments of a latency, folded to few rows: the pieces of an interrupt are one row, and short
//! segments belong to their neighbours' rows.

use tompion_latency::attribution::{Cause, Segment};

use crate::{messages::pluralize, units};

/// Number of rows that needs no folding.
const UNFOLDED_ROWS: usize = 12;
/// Maximum number of rows after folding.
const MAX_ROWS: usize = 30;
/// A row is short if it takes less than the latency divided by this.
const SHORT_DIVISOR: u64 = 100;

/// Consecutive segments.
#[derive(Clone, Debug)]
pub struct Row<'a> {
    /// Begin and end.
    pub time: (u64, u64),
    /// Parties that caused it, in no order.
    parties: Vec<Party<'a>>,
}

/// Segments of one party.
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

    /// Returns the length, in nanoseconds.
    pub fn length(&self) -> u64 {
        self.time.1 - self.time.0
    }

    /// Returns the longest segment of the party with the largest share.
    pub fn main(&self) -> Option<&'a Segment> {
        self.parties.iter().max_by_key(|party| party.ns).map(|party| party.longest)
    }

    /// Describes the other parties: "+38 interrupts, 700 µs"; empty if there are none.
    pub fn describe_others(&self) -> String {
        let Some(main) = self.main() else { return String::new() };
        let mut words = String::new();
        for (one, several, is_so) in [
            ("interrupt", "interrupts", (|cause| cause == Cause::IrqInterference) as fn(Cause) -> bool),
            ("soft interrupt", "soft interrupts", |cause| cause == Cause::SoftirqInterference),
            ("run of another thread", "runs of other threads", |cause| cause == Cause::ThreadInterference),
            ("other piece", "other pieces", |cause| {
                !matches!(
                    cause,
                    Cause::IrqInterference | Cause::SoftirqInterference | Cause::ThreadInterference
                )
            }),
        ] {
            let others = self.parties.iter().filter(|party| !party.longest.has_same_party(main));
            let others = others.filter(|party| is_so(party.longest.cause));
            let (pieces, ns) = others.fold((0, 0), |sum, party| (sum.0 + party.pieces, sum.1 + party.ns));
            if pieces > 0 {
                let noun = if pieces == 1 { one } else { several };
                words += &format!("; +{pieces} {noun}, {}", units::format_duration(ns as f64));
            }
        }
        words
    }

    fn is_like(&self, other: &Self) -> bool {
        let alike = |one: &Segment, other: &Segment| one.cpu == other.cpu && one.has_same_party(other);
        self.main().zip(other.main()).is_some_and(|(one, other)| alike(one, other))
    }

    /// Adds the next row to this one.
    fn merge(&mut self, next: Self) {
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

/// Returns a row for each segment.
pub fn all(segments: &[Segment]) -> Vec<Row<'_>> {
    segments.iter().map(Row::of).collect()
}

/// Returns few rows.
pub fn folded(segments: &[Segment]) -> Vec<Row<'_>> {
    let mut rows: Vec<Row<'_>> = Vec::new();
    for row in segments.iter().map(Row::of) {
        match rows.last_mut() {
            Some(last) if last.is_like(&row) => {
                last.merge(row);
                // They are pieces of one interrupt.
                last.parties.iter_mut().for_each(|party| party.pieces = 1);
            }
            _ => rows.push(row),
        }
    }
    if rows.len() <= UNFOLDED_ROWS {
        return rows;
    }
    let latency: u64 = rows.iter().map(Row::length).sum();
    while let Some((place, shortest)) = rows.iter().enumerate().min_by_key(|(_, row)| row.length()) {
        let is_short = u128::from(shortest.length()) * u128::from(SHORT_DIVISOR) < u128::from(latency);
        if rows.len() == 1 || !is_short && rows.len() <= MAX_ROWS {
            break;
        }
        fold(&mut rows, place);
    }
    rows
}

/// Merges a row with a neighbour: with one on the same CPU, or else the longer one. Neighbours that
/// are alike then are merged, too.
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

/// Merges a row with the next one.
fn join(rows: &mut Vec<Row<'_>>, first: usize) {
    if first + 1 < rows.len() {
        let next = rows.remove(first + 1);
        if let Some(row) = rows.get_mut(first) {
            row.merge(next);
        }
    }
}

/// Returns a note if rows were folded.
pub fn note(segments: usize, rows: usize) -> Option<String> {
    (rows < segments).then(|| {
        let pieces = pluralize(segments as u64, "piece");
        format!("{pieces} in {}; --all shows each", pluralize(rows as u64, "line"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes consecutive segments of causes, names, thread ids and lengths in nanoseconds.
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
        (Cause::IrqInterference, "local timer", 0, 1_000),
        (Cause::IrqInterference, "local timer: tick_nohz_handler", 0, 7_000),
        (Cause::IrqInterference, "local timer", 0, 2_000),
    ];

    #[test]
    fn given_a_short_latency_then_the_pieces_of_an_interrupt_are_one_row() {
        let own = (Cause::KernelOverhead, "", 0, 10);
        let segments = segments(&[&[own], &TICK[..], &[own]].concat());
        assert_eq!(shown(&folded(&segments)), ["10 ", "10000 local timer: tick_nohz_handler", "10 "]);
        assert_eq!(note(5, 3).as_deref(), Some("5 pieces in 3 lines; --all shows each"));
        assert!(all(&segments).len() == 5 && note(5, 5).is_none());
    }

    #[test]
    fn given_hundreds_of_pieces_then_short_ones_are_in_the_row_of_the_running_thread() {
        let (hog, soft) =
            ((Cause::ThreadInterference, "hog", 5, 970_000), (Cause::SoftirqInterference, "rcu", 5, 20_000));
        let exec = (Cause::ThreadInterference, "taskset", 6, 120);
        let round = [&[hog], &TICK[..], &[soft]].concat();
        let parts =
            [round.repeat(100), vec![exec], vec![hog; 1], vec![(Cause::KernelOverhead, "", 0, 3_000)]]
                .concat();
        let segments = segments(&parts);
        let rows = folded(&segments);
        let expected = "100973120 hog; +100 interrupts, 1.00 ms; +100 soft interrupts, 2.00 ms; +1 run of another \
                        thread, 120 ns; +1 other piece, 3.00 µs";
        assert_eq!(shown(&rows), [expected]);
    }

    #[test]
    fn given_many_long_pieces_then_the_number_of_rows_is_bounded() {
        let runs = [(Cause::ThreadInterference, "a", 5, 1_100), (Cause::ThreadInterference, "b", 6, 1_000)]
            .repeat(45);
        let segments = segments(&runs);
        let rows = folded(&segments);
        assert!(rows.len() <= MAX_ROWS, "{:?}", shown(&rows));
        assert_eq!(rows.iter().map(Row::length).sum::<u64>(), 45 * 2_100);
        let is_whole = rows.windows(2).all(|pair| pair[0].time.1 == pair[1].time.0);
        assert!(is_whole && rows[0].time.0 == 1000, "{:?}", shown(&rows));
    }

    #[test]
    fn given_a_few_long_ones_among_many_then_they_keep_their_rows() {
        let noise = [(Cause::IrqInterference, "eth0", 0, 100), (Cause::KernelOverhead, "", 0, 100)].repeat(8);
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
