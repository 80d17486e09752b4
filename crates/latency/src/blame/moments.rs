//! Moments as programs note them, from untrusted bytes. Offsets and numbers are those of `src/bpf/blame.h`.

use serde::{Deserialize, Serialize};

/// How many moments a side of a CPU has room for.
pub const MOMENTS: usize = 4096;
/// Bytes of one.
pub const MOMENT_SIZE: usize = 48;
/// What is added to priorities that may not have been noted.
const TOLD_PRIORITY: i32 = 1000;
/// Bytes before the first one.
pub const SIDE_HEAD: usize = 16;

/// A thread at a moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Thread {
    /// Its number; 0 is the idle one.
    pub tid: u32,
    /// Its priority, as the kernel counts: the lower the sooner, below 100 real-time.
    pub priority: i32,
    /// Its name; empty where it is not known.
    pub name: String,
}

/// What happened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    /// Another thread runs from now on.
    Switch {
        /// It.
        next: Thread,
        /// The one that ran until now.
        previous: Thread,
        /// What has become of that one, as the kernel says (`TASK_INTERRUPTIBLE` …); 0 if it could go on.
        state: u32,
    },
    /// A handler of an interrupt begins.
    HardEntry {
        /// The interrupt's number, or vector.
        number: u32,
        /// What people call it: its handler's name and number, or what it is for.
        name: String,
        /// The priority of the thread that is interrupted, where that was noted: it may have changed since the switch.
        runs: Option<i32>,
    },
    /// One of this number ends.
    HardExit(u32),
    /// A soft interrupt of this number begins.
    SoftEntry(u32),
    /// It ends.
    SoftExit(u32),
    /// The handler of a timer begins.
    TimerEntry {
        /// When it was to begin.
        intended: u64,
        /// The address of the handler.
        function: u64,
        /// Whether it runs in a soft interrupt.
        soft: bool,
    },
    /// It ends.
    TimerExit,
    /// A thread is woken.
    Woken {
        /// It.
        thread: Thread,
        /// The CPU on which it ran last.
        cpu: u32,
        /// The priority of the thread that runs, where that was noted.
        runs: Option<i32>,
    },
    /// A thread goes to another CPU.
    Migration {
        /// It.
        thread: Thread,
        /// From this one.
        from: u32,
        /// To this one.
        to: u32,
    },
    /// The CPU begins to idle, in this state; or none: it ends to.
    Idle(Option<u32>),
    /// The stack of this number belongs to the moment before.
    Stack(u32),
    /// Firmware had the processor.
    Firmware {
        /// So often.
        count: u32,
        /// Since this time.
        since: u64,
    },
}

/// Something that happened on a CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moment {
    /// When: CLOCK_MONOTONIC, in nanoseconds.
    pub time: u64,
    /// What.
    pub what: What,
}

/// What the bytes of a side say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decoded {
    /// In the order of time.
    pub moments: Vec<Moment>,
    /// How many were overwritten by later ones.
    pub overwritten: u64,
    /// How many were not whole, or mean nothing.
    pub refused: u64,
}

/// Reads a side (`struct side`). Whatever the bytes are, it returns what can be understood.
pub fn decode(bytes: &[u8]) -> Decoded {
    let head = word(bytes, 0);
    let first = head.saturating_sub(MOMENTS as u64);
    let mut decoded = Decoded { overwritten: first, ..Decoded::default() };
    for position in first..head {
        let at = SIDE_HEAD + (position % MOMENTS as u64) as usize * MOMENT_SIZE;
        let moment = bytes
            .get(at..at + MOMENT_SIZE)
            .filter(|bytes| half(bytes, 8) == (position as u32).wrapping_add(1));
        match moment.and_then(moment_of) {
            Some(moment) => decoded.moments.push(moment),
            None => decoded.refused += 1,
        }
    }
    // An interrupt amidst a program takes a later place at an earlier time.
    decoded.moments.sort_by_key(|moment| moment.time);
    decoded
}

fn moment_of(bytes: &[u8]) -> Option<Moment> {
    let (first, second, word_of) = (half(bytes, 16), half(bytes, 20), word(bytes, 24));
    // The upper half, with its sign.
    let priority = half(bytes, 12) as i32 >> 16;
    let thread = |tid| Thread { tid, priority, name: text(bytes) };
    let runs = (word_of != 0).then(|| (word_of as i32).wrapping_sub(TOLD_PRIORITY));
    let what = match half(bytes, 12) & 0xffff {
        1 => What::Switch {
            next: thread(first),
            previous: Thread { tid: second, priority: word_of as u32 as i32, name: String::new() },
            state: (word_of >> 32) as u32,
        },
        2 => What::HardEntry { number: first, name: interrupt(first, second, bytes), runs },
        3 => What::HardExit(first),
        4 => What::SoftEntry(first),
        5 => What::SoftExit(first),
        6 => What::TimerEntry {
            intended: u64::from(second) << 32 | u64::from(first),
            function: word_of,
            soft: priority != 0,
        },
        7 => What::TimerExit,
        8 => What::Woken { thread: thread(first), cpu: second, runs },
        9 => What::Migration { thread: thread(first), from: second, to: word_of as u32 },
        10 => What::Idle((first != u32::MAX).then_some(first)),
        11 => What::Stack(first),
        12 => What::Firmware { count: first, since: word_of },
        _ => return None,
    };
    Some(Moment { time: word(bytes, 0), what })
}

/// What people call an interrupt: its handler's name and number, or what it is for.
fn interrupt(number: u32, vector: u32, bytes: &[u8]) -> String {
    match vector {
        1 => "local timer".into(),
        2 => "reschedule".into(),
        3 => "function call".into(),
        4 => "function call (single)".into(),
        5 => "irq work".into(),
        _ => match text(bytes) {
            name if name.is_empty() => format!("irq {number}"),
            name => format!("irq {number} {name}"),
        },
    }
}

fn text(bytes: &[u8]) -> String {
    let name = bytes.get(32..48).unwrap_or_default().split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(name).into_owned()
}

fn word(bytes: &[u8], offset: usize) -> u64 {
    let read = bytes.get(offset..offset + 8).and_then(|bytes| bytes.try_into().ok());
    read.map_or(0, u64::from_ne_bytes)
}

fn half(bytes: &[u8], offset: usize) -> u32 {
    let read = bytes.get(offset..offset + 4).and_then(|bytes| bytes.try_into().ok());
    read.map_or(0, u32::from_ne_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A moment's bytes at a position of a side.
    fn put(bytes: &mut [u8], position: u64, moment: (u64, u16, i16, [u32; 2], u64, &str)) {
        let (time, what, priority, [first, second], word, name) = moment;
        let at = SIDE_HEAD + (position % MOMENTS as u64) as usize * MOMENT_SIZE;
        let mut image = Vec::new();
        image.extend(time.to_ne_bytes());
        image.extend((position as u32 + 1).to_ne_bytes());
        image.extend(what.to_ne_bytes());
        image.extend(priority.to_ne_bytes());
        image.extend(first.to_ne_bytes());
        image.extend(second.to_ne_bytes());
        image.extend(word.to_ne_bytes());
        image.extend(name.as_bytes());
        image.resize(MOMENT_SIZE, 0);
        bytes[at..at + MOMENT_SIZE].copy_from_slice(&image);
    }

    fn side(head: u64) -> Vec<u8> {
        let mut bytes = vec![0; SIDE_HEAD + MOMENTS * MOMENT_SIZE];
        bytes[..8].copy_from_slice(&head.to_ne_bytes());
        bytes
    }

    #[test]
    fn each_kind_of_moment_is_read() {
        let mut bytes = side(4);
        put(&mut bytes, 0, (10, 1, -1, [7, 8], 2 << 32 | 120, "ctl"));
        put(&mut bytes, 1, (30, 6, 1, [1, 2], 0xffff, ""));
        put(&mut bytes, 2, (20, 2, 0, [24, 0], 999, "eth0"));
        put(&mut bytes, 3, (40, 10, 0, [u32::MAX, 0], 0, ""));
        let decoded = decode(&bytes);
        let expected = [
            (
                10,
                What::Switch {
                    next: Thread { tid: 7, priority: -1, name: "ctl".into() },
                    previous: Thread { tid: 8, priority: 120, name: String::new() },
                    state: 2,
                },
            ),
            (20, What::HardEntry { number: 24, name: "irq 24 eth0".into(), runs: Some(-1) }),
            (30, What::TimerEntry { intended: 2 << 32 | 1, function: 0xffff, soft: true }),
            (40, What::Idle(None)),
        ];
        assert_eq!(decoded.moments, expected.map(|(time, what)| Moment { time, what }));
        assert_eq!((decoded.overwritten, decoded.refused), (0, 0));
    }

    #[test]
    fn what_was_overwritten_or_is_not_whole_is_counted() {
        let head = MOMENTS as u64 + 3;
        let mut bytes = side(head);
        for position in 0..head {
            put(&mut bytes, position, (position, 3, 0, [0, 0], 0, ""));
        }
        // One that somebody was writing, one of no known kind.
        bytes[SIDE_HEAD + 10 * MOMENT_SIZE + 8] = 0;
        put(&mut bytes, 20, (20, 99, 0, [0, 0], 0, ""));
        let decoded = decode(&bytes);
        assert_eq!((decoded.overwritten, decoded.refused), (3, 2));
        assert_eq!(decoded.moments.len(), MOMENTS - 2);
        assert_eq!(decoded.moments.first().map(|moment| moment.time), Some(3));
    }

    #[test]
    fn any_bytes_are_read_to_their_end() {
        let mut state = 1u64;
        for size in [0, 7, 16, 63, 64, 1000, SIDE_HEAD + MOMENTS * MOMENT_SIZE] {
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
                let most = if size < 8 { 0 } else { head.min(MOMENTS as u64) };
                assert_eq!(decoded.moments.len() as u64 + decoded.refused, most, "{size} {head}");
            }
        }
    }
}
