//! Display of event classes beside the states that the engine derives.

use std::sync::Arc;

use tompion_ctf::metadata::{self, EnvironmentValue};
use tompion_reader::{Place, Trace, TraceSet};
use tompion_schema::{Kind, base_name};

/// Display of the events of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// States only.
    Nothing,
    /// Mark on the thread, or on the channel if there is no thread.
    Mark,
    /// Mark on the CPU.
    CpuMark,
    /// Point of a counter.
    Counter,
    /// Step of a flow.
    Flow,
    /// Job with a deadline.
    Job,
    /// Interrupt with a name.
    Interrupt,
    /// Function with a name.
    Function,
}

/// Event class.
#[derive(Clone, Debug)]
pub struct Class {
    /// Number among all classes.
    pub number: u32,
    /// Name of the class.
    pub name: Arc<str>,
    /// Name of the span that it begins or ends; its own name for other classes.
    pub span: Arc<str>,
    /// Display of its events.
    pub show: Show,
    /// Whether its events are from programs.
    pub is_of_program: bool,
}

/// Event classes of all traces.
pub struct Classes {
    /// Number of the first event class of each trace and stream class.
    first: Vec<Vec<u32>>,
    /// Classes by number.
    all: Vec<Class>,
}

impl Classes {
    /// Collects the classes of some traces.
    pub fn new(traces: &TraceSet) -> Self {
        let (mut first, mut all) = (Vec::new(), Vec::new());
        for streams in classes(traces) {
            let mut of_trace = Vec::new();
            for classes in streams {
                of_trace.push(all.len() as u32);
                all.extend(classes);
            }
            first.push(of_trace);
        }
        Self { first, all }
    }

    /// Returns the class at a place.
    pub fn of(&self, place: Place) -> Option<&Class> {
        let first = self.first.get(place.trace)?.get(place.stream)?;
        self.get(first.checked_add(place.class.try_into().ok()?)?)
    }

    /// Returns the class with a number.
    pub fn get(&self, number: u32) -> Option<&Class> {
        self.all.get(number as usize)
    }

    /// Returns the number of classes.
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

/// Describes the classes of each trace and stream class.
fn classes(traces: &TraceSet) -> Vec<Vec<Vec<Class>>> {
    let mut number = 0;
    let mut class = |class: &metadata::Event, is_of_kernel: bool| {
        number += 1;
        let show = if is_of_kernel { of_kernel(&class.name) } else { of_program(class) };
        let name: Arc<str> = class.name.as_str().into();
        let span = match base_name(&name, class.kind_info().kind) {
            base if base == &*name => name.clone(),
            base => base.into(),
        };
        Class { number: number - 1, name, span, show, is_of_program: !is_of_kernel }
    };
    let mut all = Vec::new();
    for trace in traces.traces() {
        let is_of_kernel = is_of_kernel(trace);
        let mut streams = Vec::new();
        for stream in &trace.metadata().streams {
            streams.push(stream.events.iter().map(|event| class(event, is_of_kernel)).collect());
        }
        all.push(streams);
    }
    all
}

/// Returns the names of all classes by number.
pub fn names(traces: &TraceSet) -> Vec<Arc<str>> {
    classes(traces).into_iter().flatten().flatten().map(|class| class.name).collect()
}

/// Returns the trace of each class by the class's number.
pub fn trace_of_class(traces: &TraceSet) -> Vec<u32> {
    let of = |(trace, classes): (usize, Vec<Vec<Class>>)| {
        std::iter::repeat_n(trace as u32, classes.iter().map(Vec::len).sum())
    };
    classes(traces).into_iter().enumerate().flat_map(of).collect()
}

/// Whether a trace is a kernel's: it says so, or has scheduler events.
pub fn is_of_kernel(trace: &Trace) -> bool {
    let domain = trace.metadata().environment_value("domain").and_then(EnvironmentValue::as_text);
    let mut streams = trace.metadata().streams.iter();
    let is_switch = |event: &metadata::Event| matches!(&*event.name, "sched_switch" | "sched:sched_switch");
    domain == Some("kernel")
        || domain != Some("ust") && streams.any(|stream| stream.events.iter().any(is_switch))
}

/// Returns the display of a kernel event: states, or a mark on its CPU.
fn of_kernel(name: &str) -> Show {
    const STATES: [&str; 13] = [
        "sched_switch",
        "sched_waking",
        "sched_wakeup",
        "sched_wakeup_new",
        "sched_process_fork",
        "irq_handler_exit",
        "irq_softirq_entry",
        "irq_softirq_exit",
        "irq_softirq_raise",
        "softirq_entry",
        "softirq_exit",
        "softirq_raise",
        "exit_syscall",
    ];
    const PREFIXES: [&str; 9] = [
        "syscall_entry_",
        "syscall_exit_",
        "compat_syscall_",
        "sys_",
        "compat_sys_",
        "lttng_statedump_",
        "lttng_logger",
        "tompion_object",
        "tompion_stack",
    ];
    let name = name.split_once(':').map_or(name, |(_, name)| name);
    if name == "irq_handler_entry" {
        Show::Interrupt
    } else if STATES.contains(&name) || PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
        Show::Nothing
    } else {
        Show::CpuMark
    }
}

fn of_program(class: &metadata::Event) -> Show {
    match class.kind_info().kind {
        Kind::Begin | Kind::End => Show::Nothing,
        Kind::Counter => Show::Counter,
        Kind::Flow => Show::Flow,
        Kind::Job => Show::Job,
        Kind::Instant | Kind::Mark => match &*class.name {
            "lttng_ust_cyg_profile:func_entry" | "lttng_ust_cyg_profile_fast:func_entry" => Show::Function,
            "lttng_ust_cyg_profile:func_exit" | "lttng_ust_cyg_profile_fast:func_exit" => Show::Nothing,
            "ros2:callback_start" | "ros2:callback_end" => Show::Nothing,
            name if name.starts_with("lttng_ust_statedump:") => Show::Nothing,
            _ => Show::Mark,
        },
    }
}
