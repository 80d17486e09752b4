//! Classifies event classes by their effect on states, once for each class.

use std::sync::Arc;

use tompion_ctf::metadata::{self, EnvironmentValue};
use tompion_reader::Trace;
use tompion_schema::{Kind, base_name};

/// Name of the span of a ROS 2 callback.
const ROS_CALLBACK: &str = "ros2:callback";

/// Effect of an event on states.
#[derive(Clone, Debug)]
pub(super) enum Action {
    Switch,
    /// A thread that slept is about to be woken.
    Waking,
    /// A thread was woken.
    Wake,
    Fork,
    Exit,
    Free,
    Exec,
    InterruptEntry,
    InterruptExit,
    SoftInterruptEntry,
    SoftInterruptExit,
    TimerEntry,
    TimerExit,
    SyscallEntry(Arc<str>),
    SyscallExit(Arc<str>),
    ProcessState,
    /// An event of the kernel that changes no state.
    OtherOfKernel,
    SpanBegin(Arc<str>),
    SpanEnd(Arc<str>),
    FunctionEntry,
    FunctionExit,
}

impl Action {
    /// Whether the event is a program's.
    pub fn is_of_program(&self) -> bool {
        matches!(self, Self::SpanBegin(_) | Self::SpanEnd(_) | Self::FunctionEntry | Self::FunctionExit)
    }
}

/// Whether a trace is a program's.
fn is_of_program(trace: &Trace) -> bool {
    trace.metadata().environment_value("domain").and_then(EnvironmentValue::as_text) == Some("ust")
}

/// Whether a trace is the kernel's: its environment says so, or it has the scheduler's events.
fn is_of_kernel(trace: &Trace) -> bool {
    let domain = trace.metadata().environment_value("domain").and_then(EnvironmentValue::as_text);
    let mut streams = trace.metadata().streams.iter();
    let is_switch = |event: &metadata::Event| matches!(&*event.name, "sched_switch" | "sched:sched_switch");
    domain == Some("kernel") || domain.is_none() && streams.any(|stream| stream.events.iter().any(is_switch))
}

/// Returns the effect of a class's events; `None` if they have none.
pub(super) fn action(trace: &Trace, class: &metadata::Event) -> Option<Action> {
    let of_program = of_program(class);
    if of_program.is_some() || is_of_program(trace) {
        return of_program;
    }
    // perf prefixes the subsystem to the name.
    let name = class.name.split_once(':').map_or(&*class.name, |(_, name)| name);
    let of_kernel = is_of_kernel(trace).then_some(Action::OtherOfKernel);
    Some(match name {
        "sched_switch" => Action::Switch,
        "sched_waking" => Action::Waking,
        "sched_wakeup" | "sched_wakeup_new" => Action::Wake,
        "sched_process_fork" => Action::Fork,
        "sched_process_exit" => Action::Exit,
        "sched_process_free" => Action::Free,
        "sched_process_exec" => Action::Exec,
        "irq_handler_entry" => Action::InterruptEntry,
        "irq_handler_exit" => Action::InterruptExit,
        "irq_softirq_entry" | "softirq_entry" => Action::SoftInterruptEntry,
        "irq_softirq_exit" | "softirq_exit" => Action::SoftInterruptExit,
        "timer_hrtimer_expire_entry"
        | "hrtimer_expire_entry"
        | "local_timer_entry"
        | "x86_irq_vectors_local_timer_entry" => Action::TimerEntry,
        "timer_hrtimer_expire_exit"
        | "hrtimer_expire_exit"
        | "local_timer_exit"
        | "x86_irq_vectors_local_timer_exit" => Action::TimerExit,
        "lttng_statedump_process_state" => Action::ProcessState,
        // Our recorder writes the initial state to the stream of one CPU, whichever it runs on.
        _ if name.starts_with("lttng_statedump_") => return None,
        _ => return syscall(name).or(of_kernel),
    })
}

/// Classifies spans and functions.
fn of_program(class: &metadata::Event) -> Option<Action> {
    let kind = class.kind_info().kind;
    let name = || Arc::from(base_name(&class.name, kind));
    match (kind, &*class.name) {
        (Kind::Begin | Kind::Job, _) => Some(Action::SpanBegin(name())),
        (Kind::End, _) => Some(Action::SpanEnd(name())),
        (_, "lttng_ust_cyg_profile:func_entry" | "lttng_ust_cyg_profile_fast:func_entry") => {
            Some(Action::FunctionEntry)
        }
        (_, "lttng_ust_cyg_profile:func_exit" | "lttng_ust_cyg_profile_fast:func_exit") => {
            Some(Action::FunctionExit)
        }
        // Events of ros2_tracing.
        (_, "ros2:callback_start") => Some(Action::SpanBegin(ROS_CALLBACK.into())),
        (_, "ros2:callback_end") => Some(Action::SpanEnd(ROS_CALLBACK.into())),
        _ => None,
    }
}

/// Classifies system call entries and returns, including the names of old LTTng tracers.
fn syscall(name: &str) -> Option<Action> {
    let native = name.strip_prefix("compat_").unwrap_or(name);
    if let Some(call) = native.strip_prefix("syscall_entry_").or_else(|| native.strip_prefix("sys_enter_")) {
        return Some(Action::SyscallEntry(call.into()));
    }
    if let Some(call) = native.strip_prefix("syscall_exit_").or_else(|| native.strip_prefix("sys_exit_")) {
        return Some(Action::SyscallExit(call.into()));
    }
    match native {
        "exit_syscall" => Some(Action::SyscallExit("".into())),
        _ => native.strip_prefix("sys_").map(|call| Action::SyscallEntry(call.into())),
    }
}
