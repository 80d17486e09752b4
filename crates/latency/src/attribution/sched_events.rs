//! Scheduling events as the BPF programs record them, decoded from untrusted bytes. Offsets and
//! numbers are those of `src/bpf/attribution.h`.

use serde::{Deserialize, Serialize};

use crate::raw_record::{half, text, word};

/// Number of events that a buffer half of a CPU holds.
pub const MAX_EVENTS: usize = 4096;
/// Size of an event in bytes.
pub const EVENT_SIZE: usize = 48;
/// Offset of recorded priorities; 0 stands for an unrecorded one.
const PRIORITY_BIAS: i32 = 1000;
/// Size of the header in bytes.
pub const SIDE_HEAD: usize = 16;

/// Thread as an event names it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Number of the thread; 0 for the idle thread.
    pub tid: u32,
    /// Priority in the kernel's numbers: lower runs first, below 100 is real-time.
    pub priority: i32,
    /// Name; empty if unknown.
    pub name: String,
}

/// Kind of event with its details.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// The CPU switches to another thread.
    Switch {
        /// Thread that runs from now on.
        next: Thread,
        /// Thread that ran until now.
        previous: Thread,
        /// State of that thread in the kernel's numbers (`TASK_INTERRUPTIBLE` …); 0 if it is
        /// runnable.
        state: u32,
    },
    /// The handler of an interrupt starts.
    HardEntry {
        /// Number or vector of the interrupt.
        number: u32,
        /// Name of the interrupt: handler and number, or purpose.
        name: String,
        /// Priority of the interrupted thread if recorded; it may have changed since the switch.
        runs: Option<i32>,
    },
    /// The handler of the interrupt with this number ends.
    HardExit(u32),
    /// The softirq with this number starts.
    SoftEntry(u32),
    /// The softirq with this number ends.
    SoftExit(u32),
    /// A timer handler starts.
    TimerEntry {
        /// Intended expiry.
        intended: u64,
        /// Address of the handler.
        function: u64,
        /// Whether it runs in a softirq.
        soft: bool,
    },
    /// The timer handler ends.
    TimerExit,
    /// A thread is woken.
    Woken {
        /// The woken thread.
        thread: Thread,
        /// CPU on which it ran last.
        cpu: u32,
        /// Priority of the running thread if recorded.
        runs: Option<i32>,
    },
    /// A thread migrates.
    Migration {
        /// The migrating thread.
        thread: Thread,
        /// Old CPU.
        from: u32,
        /// New CPU.
        to: u32,
    },
    /// The CPU enters this idle state; `None` when it leaves idle.
    Idle(Option<u32>),
    /// The stack with this number belongs to the event before.
    Stack(u32),
    /// System management interrupts occurred.
    Firmware {
        /// Number of interrupts.
        count: u32,
        /// Time of the counter's previous reading.
        since: u64,
    },
}

/// Event on a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SchedEvent {
    /// Time by CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// Kind of event.
    pub kind: EventKind,
}

/// Decoded buffer half.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// Events in time order.
    pub events: Vec<SchedEvent>,
    /// Number of events overwritten by later ones.
    pub overwritten: u64,
    /// Number of incomplete or invalid events.
    pub refused: u64,
}

/// Decodes a buffer half (`struct side`). Arbitrary bytes are accepted; invalid events are counted.
pub fn decode(bytes: &[u8]) -> Decoded {
    let head = word(bytes, 0);
    let first = head.saturating_sub(MAX_EVENTS as u64);
    let mut decoded = Decoded { overwritten: first, ..Decoded::default() };
    for position in first..head {
        let at = SIDE_HEAD + (position % MAX_EVENTS as u64) as usize * EVENT_SIZE;
        let event = bytes
            .get(at..at + EVENT_SIZE)
            .filter(|bytes| half(bytes, 8) == (position as u32).wrapping_add(1));
        match event.and_then(event_of) {
            Some(event) => decoded.events.push(event),
            None => decoded.refused += 1,
        }
    }
    // An interrupt during a program takes a later slot at an earlier time.
    decoded.events.sort_by_key(|event| event.time);
    decoded
}

fn event_of(bytes: &[u8]) -> Option<SchedEvent> {
    let (first, second, word_of) = (half(bytes, 16), half(bytes, 20), word(bytes, 24));
    // The upper half, sign-extended.
    let priority = half(bytes, 12) as i32 >> 16;
    let thread = |tid| Thread { tid, priority, name: text(bytes.get(32..48)) };
    let runs = (word_of != 0).then(|| (word_of as i32).wrapping_sub(PRIORITY_BIAS));
    let kind = match half(bytes, 12) & 0xffff {
        1 => EventKind::Switch {
            next: thread(first),
            previous: Thread { tid: second, priority: word_of as u32 as i32, name: String::new() },
            state: (word_of >> 32) as u32,
        },
        2 => EventKind::HardEntry { number: first, name: interrupt(first, second, bytes), runs },
        3 => EventKind::HardExit(first),
        4 => EventKind::SoftEntry(first),
        5 => EventKind::SoftExit(first),
        6 => EventKind::TimerEntry {
            intended: u64::from(second) << 32 | u64::from(first),
            function: word_of,
            soft: priority != 0,
        },
        7 => EventKind::TimerExit,
        8 => EventKind::Woken { thread: thread(first), cpu: second, runs },
        9 => EventKind::Migration { thread: thread(first), from: second, to: word_of as u32 },
        10 => EventKind::Idle((first != u32::MAX).then_some(first)),
        11 => EventKind::Stack(first),
        12 => EventKind::Firmware { count: first, since: word_of },
        _ => return None,
    };
    Some(SchedEvent { time: word(bytes, 0), kind })
}

/// Formats the name of an interrupt: handler and number, or purpose.
fn interrupt(number: u32, vector: u32, bytes: &[u8]) -> String {
    match vector {
        1 => "local timer".into(),
        2 => "reschedule".into(),
        3 => "function call".into(),
        4 => "function call (single)".into(),
        5 => "irq work".into(),
        _ => match text(bytes.get(32..48)) {
            name if name.is_empty() => format!("irq {number}"),
            name => format!("irq {number} {name}"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Event as the kernel's program writes it.
    #[derive(Default)]
    struct RawEvent {
        time: u64,
        kind: u16,
        priority: i16,
        numbers: [u32; 2],
        word: u64,
        name: &'static str,
    }

    /// Writes an event at a position of a buffer half.
    fn put(bytes: &mut [u8], position: u64, event: RawEvent) {
        let RawEvent { time, kind, priority, numbers: [first, second], word, name } = event;
        let at = SIDE_HEAD + (position % MAX_EVENTS as u64) as usize * EVENT_SIZE;
        let mut image = Vec::new();
        image.extend(time.to_ne_bytes());
        image.extend((position as u32 + 1).to_ne_bytes());
        image.extend(kind.to_ne_bytes());
        image.extend(priority.to_ne_bytes());
        image.extend(first.to_ne_bytes());
        image.extend(second.to_ne_bytes());
        image.extend(word.to_ne_bytes());
        image.extend(name.as_bytes());
        image.resize(EVENT_SIZE, 0);
        bytes[at..at + EVENT_SIZE].copy_from_slice(&image);
    }

    fn side(head: u64) -> Vec<u8> {
        let mut bytes = vec![0; SIDE_HEAD + MAX_EVENTS * EVENT_SIZE];
        bytes[..8].copy_from_slice(&head.to_ne_bytes());
        bytes
    }

    #[test]
    fn each_kind_of_moment_is_read() {
        let mut bytes = side(4);
        let event =
            RawEvent { time: 10, kind: 1, priority: -1, numbers: [7, 8], word: 2 << 32 | 120, name: "ctl" };
        put(&mut bytes, 0, event);
        let event = RawEvent { time: 30, kind: 6, priority: 1, numbers: [1, 2], word: 0xffff, name: "" };
        put(&mut bytes, 1, event);
        let event = RawEvent { time: 20, kind: 2, priority: 0, numbers: [24, 0], word: 999, name: "eth0" };
        put(&mut bytes, 2, event);
        let event = RawEvent { time: 40, kind: 10, priority: 0, numbers: [u32::MAX, 0], word: 0, name: "" };
        put(&mut bytes, 3, event);
        let decoded = decode(&bytes);
        let expected = [
            (
                10,
                EventKind::Switch {
                    next: Thread { tid: 7, priority: -1, name: "ctl".into() },
                    previous: Thread { tid: 8, priority: 120, name: String::new() },
                    state: 2,
                },
            ),
            (20, EventKind::HardEntry { number: 24, name: "irq 24 eth0".into(), runs: Some(-1) }),
            (30, EventKind::TimerEntry { intended: 2 << 32 | 1, function: 0xffff, soft: true }),
            (40, EventKind::Idle(None)),
        ];
        assert_eq!(decoded.events, expected.map(|(time, kind)| SchedEvent { time, kind }));
        assert_eq!((decoded.overwritten, decoded.refused), (0, 0));
    }

    #[test]
    fn what_was_overwritten_or_is_not_whole_is_counted() {
        let head = MAX_EVENTS as u64 + 3;
        let mut bytes = side(head);
        for position in 0..head {
            put(&mut bytes, position, RawEvent { time: position, kind: 3, ..RawEvent::default() });
        }
        // An event in the middle of a write, and one of an unknown kind.
        bytes[SIDE_HEAD + 10 * EVENT_SIZE + 8] = 0;
        put(&mut bytes, 20, RawEvent { time: 20, kind: 99, ..RawEvent::default() });
        let decoded = decode(&bytes);
        assert_eq!((decoded.overwritten, decoded.refused), (3, 2));
        assert_eq!(decoded.events.len(), MAX_EVENTS - 2);
        assert_eq!(decoded.events.first().map(|event| event.time), Some(3));
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        let mut state = 1u64;
        for size in [0, 7, 16, 63, 64, 1000, SIDE_HEAD + MAX_EVENTS * EVENT_SIZE] {
            for head in [0, 1, 5000, u64::MAX] {
                let mut bytes: Vec<u8> = (0..size)
                    .map(|_| {
                        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                        (state >> 56) as u8
                    })
                    .collect();
                if let Some(place) = bytes.get_mut(..8) {
                    place.copy_from_slice(&u64::to_ne_bytes(head));
                }
                let decoded = decode(&bytes);
                let most = if size < 8 { 0 } else { head.min(MAX_EVENTS as u64) };
                assert_eq!(decoded.events.len() as u64 + decoded.refused, most, "{size} {head}");
            }
        }
    }
}
