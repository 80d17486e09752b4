//! Events that have a program of their own: their tracepoints and fields.
//!
//! Names and fields are those of LTTng's kernel tracer, so that analyses written for it know them.

use tompion_schema::{Enumeration, Event, Field, Integer, Kind, Label, Level, Type};

/// Group of an event, for selections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Switches and wake-ups.
    Scheduling,
    /// The lives of processes.
    Processes,
    /// Interrupts and soft interrupts.
    Interrupts,
    /// Block devices.
    InputOutput,
    /// Only recorded on request.
    OnRequest,
}

/// The type of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Of {
    /// Signed, 32 bits.
    I32,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 64 bits.
    I64,
    /// Unsigned, 64 bits.
    U64,
    /// 64 bits in hexadecimal.
    X64,
    /// One of [`WAKER_CONTEXTS`], in 32 bits.
    WakerContext,
    /// The 16 bytes in which the kernel keeps the name of a thread or a device.
    Name,
    /// Text of any length.
    Text,
}

impl Of {
    /// The type as descriptions have it.
    pub fn ty(self) -> Type {
        match self {
            Self::I32 => Type::Integer(Integer::signed(32)),
            Self::U32 => Type::Integer(Integer::unsigned(32)),
            Self::I64 => Type::Integer(Integer::signed(64)),
            Self::U64 => Type::Integer(Integer::unsigned(64)),
            Self::X64 => Type::Integer(Integer::hex(64)),
            Self::WakerContext => Type::Enum(
                Integer::unsigned(32),
                Enumeration { name: "waker_context".into(), labels: waker_labels() },
            ),
            Self::Name => Type::TextArray(16),
            Self::Text => Type::String,
        }
    }
}

/// Contexts from which a thread is woken, by their numbers: unknown; the thread that runs; a
/// softirq; an interrupt; the interrupt of a timer; of the timer that ends the woken thread's own
/// sleep.
///
/// Analyses know them by these numbers, as `src/bpf/wakers.h` does.
pub const WAKER_CONTEXTS: [&str; 6] = ["unknown", "thread", "softirq", "interrupt", "timer", "own_timer"];

fn waker_labels() -> Vec<Label> {
    let label = |(name, value): (&&str, i128)| Label { low: value, high: value, name: (*name).into() };
    WAKER_CONTEXTS.iter().zip(0..).map(label).collect()
}

/// An event with a program of its own.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// Its name in traces.
    pub name: &'static str,
    /// The kernel's tracepoint.
    pub tracepoint: &'static str,
    /// Name of the BPF program that records it.
    pub program: &'static str,
    /// The program for kernels that refuse the first one.
    pub program_of_old: Option<&'static str>,
    /// Group that it belongs to.
    pub group: Group,
    /// Its fields, in order.
    pub fields: &'static [(&'static str, Of)],
}

/// Number of system calls' entries in rings.
pub const SYSCALL_ENTRY: u16 = 1;
/// Number of system calls' exits in rings.
pub const SYSCALL_EXIT: u16 = 2;
/// Number of the first of [`KNOWN`] in rings; the others follow.
pub const FIRST: u16 = 3;

/// Number of all tracepoints without programs of their own in rings (`src/bpf/generic.h`); which of
/// them it is stands beside it.
pub const TRACEPOINT: u16 = 64;

const fn known(
    name: &'static str,
    tracepoint: &'static str,
    program: &'static str,
    group: Group,
    fields: &'static [(&'static str, Of)],
) -> Known {
    Known { name, tracepoint, program, program_of_old: None, group, fields }
}

use Group::{InputOutput, Interrupts, OnRequest, Processes, Scheduling};
use Of::{I32, I64, Name, Text, U32, U64, WakerContext, X64};

const SWITCH: &[(&str, Of)] = &[
    ("prev_comm", Name),
    ("prev_tid", I32),
    ("prev_prio", I32),
    ("prev_state", I64),
    ("next_comm", Name),
    ("next_tid", I32),
    ("next_prio", I32),
];
const WAKEUP: &[(&str, Of)] = &[("comm", Name), ("tid", I32), ("prio", I32), ("target_cpu", I32)];
const WAKING: &[(&str, Of)] =
    &[("comm", Name), ("tid", I32), ("prio", I32), ("target_cpu", I32), ("waker_context", WakerContext)];
const MIGRATE: &[(&str, Of)] =
    &[("comm", Name), ("tid", I32), ("prio", I32), ("orig_cpu", I32), ("dest_cpu", I32)];
const FORK: &[(&str, Of)] = &[
    ("parent_comm", Name),
    ("parent_tid", I32),
    ("parent_pid", I32),
    ("child_comm", Name),
    ("child_tid", I32),
    ("child_pid", I32),
];
/// The status that the process's parent gets by waiting, if this was its last thread; else -1.
const EXIT: &[(&str, Of)] = &[("comm", Name), ("tid", I32), ("prio", I32), ("wait_status", I32)];
const FREE: &[(&str, Of)] = &[("comm", Name), ("tid", I32), ("prio", I32)];
const FAULT: &[(&str, Of)] = &[("address", X64), ("ip", X64), ("error_code", X64)];
const GENERATE: &[(&str, Of)] = &[
    ("sig", I32),
    ("errno", I32),
    ("code", I32),
    ("comm", Name),
    ("pid", I32),
    ("group", I32),
    ("result", I32),
];
const DELIVER: &[(&str, Of)] =
    &[("sig", I32), ("errno", I32), ("code", I32), ("sa_handler", X64), ("sa_flags", X64)];
const TIMER_START: &[(&str, Of)] =
    &[("hrtimer", X64), ("function", X64), ("expires", I64), ("softexpires", I64), ("mode", U32)];
const REQUEST: &[(&str, Of)] = &[
    ("dev", U32),
    ("sector", U64),
    ("nr_sector", U32),
    ("bytes", U32),
    ("tid", I32),
    ("rwbs", U32),
    ("comm", Name),
];
const COMPLETE: &[(&str, Of)] =
    &[("dev", U32), ("sector", U64), ("nr_sector", U32), ("error", I32), ("rwbs", U32)];
const PACKET: &[(&str, Of)] = &[("skbaddr", X64), ("len", U32), ("name", Name)];
const TRANSMIT: &[(&str, Of)] = &[("skbaddr", X64), ("rc", I32), ("len", U32), ("name", Name)];

/// The events, in the order of their numbers (`src/bpf/events.h`).
pub const KNOWN: &[Known] = &[
    Known {
        program_of_old: Some("sched_switch_old"),
        ..known("sched_switch", "sched_switch", "sched_switch", Scheduling, SWITCH)
    },
    known("sched_waking", "sched_waking", "sched_waking", Scheduling, WAKING),
    known("sched_wakeup", "sched_wakeup", "sched_wakeup", Scheduling, WAKEUP),
    known("sched_wakeup_new", "sched_wakeup_new", "sched_wakeup_new", Scheduling, WAKEUP),
    known("sched_migrate_task", "sched_migrate_task", "sched_migrate_task", Scheduling, MIGRATE),
    known("sched_process_fork", "sched_process_fork", "process_fork", Processes, FORK),
    known(
        "sched_process_exec",
        "sched_process_exec",
        "process_exec",
        Processes,
        &[("filename", Text), ("tid", I32), ("old_tid", I32)],
    ),
    known("sched_process_exit", "sched_process_exit", "process_exit", Processes, EXIT),
    known("sched_process_free", "sched_process_free", "process_free", Processes, FREE),
    known(
        "irq_handler_entry",
        "irq_handler_entry",
        "irq_handler_entry",
        Interrupts,
        &[("irq", I32), ("name", Text)],
    ),
    known(
        "irq_handler_exit",
        "irq_handler_exit",
        "irq_handler_exit",
        Interrupts,
        &[("irq", I32), ("ret", I32)],
    ),
    known("irq_softirq_entry", "softirq_entry", "softirq_entry", Interrupts, &[("vec", U32)]),
    known("irq_softirq_exit", "softirq_exit", "softirq_exit", Interrupts, &[("vec", U32)]),
    known("irq_softirq_raise", "softirq_raise", "softirq_raise", OnRequest, &[("vec", U32)]),
    known("x86_exceptions_page_fault_user", "page_fault_user", "page_fault_user", OnRequest, FAULT),
    known("x86_exceptions_page_fault_kernel", "page_fault_kernel", "page_fault_kernel", OnRequest, FAULT),
    known("signal_generate", "signal_generate", "signal_generate", OnRequest, GENERATE),
    known("signal_deliver", "signal_deliver", "signal_deliver", OnRequest, DELIVER),
    known("timer_hrtimer_start", "hrtimer_start", "hrtimer_start", OnRequest, TIMER_START),
    known(
        "timer_hrtimer_expire_entry",
        "hrtimer_expire_entry",
        "hrtimer_expire_entry",
        OnRequest,
        &[("hrtimer", X64), ("now", I64), ("function", X64)],
    ),
    known(
        "timer_hrtimer_expire_exit",
        "hrtimer_expire_exit",
        "hrtimer_expire_exit",
        OnRequest,
        &[("hrtimer", X64)],
    ),
    known("timer_hrtimer_cancel", "hrtimer_cancel", "hrtimer_cancel", OnRequest, &[("hrtimer", X64)]),
    known("block_rq_insert", "block_rq_insert", "block_rq_insert", InputOutput, REQUEST),
    known("block_rq_issue", "block_rq_issue", "block_rq_issue", InputOutput, REQUEST),
    known("block_rq_complete", "block_rq_complete", "block_rq_complete", InputOutput, COMPLETE),
    known("net_dev_queue", "net_dev_queue", "net_dev_queue", OnRequest, PACKET),
    known("net_dev_xmit", "net_dev_xmit", "net_dev_xmit", OnRequest, TRANSMIT),
    known("net_if_receive_skb", "netif_receive_skb", "netif_receive_skb", OnRequest, PACKET),
];

impl Known {
    /// The event's description.
    pub fn event(&self) -> Event {
        description(self.name, self.fields.iter().map(|(name, of)| Field::new(name, of.ty())).collect())
    }
}

/// An event of the kernel with these fields.
pub fn description(name: &str, fields: Vec<Field>) -> Event {
    Event {
        provider: String::new(),
        name: name.into(),
        level: Level::DEFAULT,
        kind: Kind::Instant,
        init: false,
        format: None,
        attributes: Default::default(),
        fields,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_their_reader_number_events_alike() {
        let header = include_str!("bpf/events.h");
        let words = header.split_once("enum event {").unwrap().1.split_once("};").unwrap().0;
        let numbered: Vec<String> = words
            .split(',')
            .map(|word| word.trim().trim_end_matches(" = 1").to_lowercase())
            .filter(|word| !word.is_empty())
            .collect();
        let ours = ["syscall_entry", "syscall_exit"].into_iter().chain(KNOWN.iter().map(|known| known.name));
        assert_eq!(numbered, ours.collect::<Vec<_>>());
        assert_eq!(usize::from(FIRST), 3);
        assert!(include_str!("bpf/generic.h").contains(&format!("#define TRACEPOINT {TRACEPOINT}\n")));
        assert!(KNOWN.len() + usize::from(FIRST) <= TRACEPOINT.into());
    }
}
