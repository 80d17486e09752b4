//! Times that the packets of some traces cover, as far as their headers tell.

use crate::{PacketSummary, TraceSet};

/// Interval in which a trace was recorded, in nanoseconds since the epoch; `None` where unknown.
pub type Recorded = (Option<i64>, Option<i64>);

/// Events of a trace that were recorded, and then overwritten by later ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overwritten {
    /// Index of the trace.
    pub trace: usize,
    /// CPU on which they happened, if known.
    pub cpu: Option<u32>,
    /// Time before which they happened, in nanoseconds since the epoch.
    pub until: i64,
}

/// Times that packets cover.
#[derive(Clone, Debug)]
pub struct Coverage {
    recorded: Vec<Recorded>,
    /// First packet of each stream.
    firsts: Vec<PacketSummary>,
    /// History of each trace.
    histories: Vec<History>,
}

impl Coverage {
    /// Derives the coverage from all packets, stream after stream, and the number of traces.
    pub fn new(packets: &[PacketSummary], traces: usize) -> Self {
        Self {
            recorded: recorded(packets, traces),
            firsts: firsts(packets),
            histories: histories(packets, traces),
        }
    }

    /// Reads the headers of all packets.
    pub fn read(traces: &TraceSet) -> Self {
        let mut packets = Vec::new();
        traces.packets(&mut |packet| packets.push(*packet));
        Self::new(&packets, traces.traces().len())
    }

    /// Returns the interval in which each trace was recorded. There is no end where a packet
    /// doesn't state its end.
    pub fn recorded(&self) -> &[Recorded] {
        &self.recorded
    }

    /// Returns the history of a trace that its sequence numbers show.
    pub fn history(&self, trace: usize) -> History {
        self.histories.get(trace).copied().unwrap_or_default()
    }

    /// Returns until when events were overwritten on each CPU.
    /// `is_overwriting` states whether a flight recorder has overwritten events of a trace.
    pub fn overwritten(&self, is_overwriting: &dyn Fn(usize) -> bool) -> Vec<Overwritten> {
        let firsts = self
            .firsts
            .iter()
            .filter(|first| is_overwriting(first.trace) && !self.history(first.trace).is_whole(first));
        let found = firsts.filter_map(|first| {
            let cpu = first.cpu.and_then(|cpu| cpu.try_into().ok());
            Some(Overwritten { trace: first.trace, cpu, until: first.begin? })
        });
        found.collect()
    }
}

fn recorded(packets: &[PacketSummary], traces: usize) -> Vec<Recorded> {
    let mut recorded = vec![(None, Some(i64::MIN)); traces];
    for packet in packets {
        let Some((begin, end)) = recorded.get_mut(packet.trace) else { continue };
        *begin = [*begin, packet.begin].into_iter().flatten().min();
        *end = end.zip(packet.end).map(|(known, end): (i64, i64)| known.max(end));
    }
    recorded
}

fn firsts(packets: &[PacketSummary]) -> Vec<PacketSummary> {
    let mut firsts: Vec<PacketSummary> = Vec::new();
    for packet in packets {
        if firsts.last().is_none_or(|first| first.source != packet.source) {
            firsts.push(*packet);
        }
    }
    firsts
}

/// Missing sequence numbers of a trace's packets, by which a flight recorder tells that it has
/// overwritten history.
#[derive(Clone, Copy, Debug, Default)]
pub struct History {
    /// Whether one is left out before a stream's first packet.
    pub before_first: bool,
    /// Whether one is left out between two packets.
    pub between: bool,
}

impl History {
    /// Whether it is known that a stream has all events up to the end of its first packet. Older
    /// recordings leave no number out.
    fn is_whole(self, first: &PacketSummary) -> bool {
        first.sequence == Some(0) && (self.before_first || self.between)
    }
}

fn histories(packets: &[PacketSummary], traces: usize) -> Vec<History> {
    let mut histories = vec![History::default(); traces];
    let mut last: Option<&PacketSummary> = None;
    for packet in packets {
        let before = last.filter(|last| last.source == packet.source);
        last = Some(packet);
        let Some(history) = histories.get_mut(packet.trace) else { continue };
        match (before, packet.sequence) {
            (None, Some(sequence)) => history.before_first |= sequence > 0,
            (Some(PacketSummary { sequence: Some(before), .. }), Some(sequence)) => {
                history.between |= sequence > before.saturating_add(1);
            }
            _ => {}
        }
    }
    histories
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(source: usize, sequence: u64) -> PacketSummary {
        let (begin, end) = (Some(sequence as i64), Some(sequence as i64));
        PacketSummary { source, trace: 0, cpu: None, begin, end, bytes: 1, sequence: Some(sequence) }
    }

    #[test]
    fn sequence_numbers_tell_where_history_was_overwritten() {
        let found = |packets: &[PacketSummary]| {
            let History { before_first, between } = histories(packets, 1)[0];
            (before_first, between)
        };
        assert_eq!(found(&[packet(0, 0), packet(0, 1), packet(1, 0)]), (false, false));
        assert_eq!(found(&[packet(0, 1), packet(0, 2), packet(1, 0)]), (true, false));
        assert_eq!(found(&[packet(0, 0), packet(0, 2), packet(1, 0)]), (false, true));
        // A stream is whole only where another one shows that numbers are left out.
        let known = History { before_first: true, between: false };
        assert!(known.is_whole(&packet(1, 0)) && !known.is_whole(&packet(0, 1)));
        assert!(!History::default().is_whole(&packet(0, 0)));
    }

    #[test]
    fn overwritten_time_ends_where_a_stream_begins() {
        let coverage = Coverage::new(&[packet(0, 3), packet(0, 4), packet(1, 0)], 1);
        let untils = |is_overwriting: bool| {
            let found = coverage.overwritten(&|_| is_overwriting);
            found.iter().map(|it| it.until).collect::<Vec<_>>()
        };
        assert_eq!((untils(true), untils(false)), (vec![3], vec![]));
        assert_eq!(coverage.recorded(), [(Some(0), Some(4))]);
    }
}
