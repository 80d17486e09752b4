//! Synthetic traces: some with a scenario, and many with random contradictory events.

use std::fs;
use std::path::Path;

use tompion_analysis::state::{self, Engine, Happening, Seen, Sleep, State, Track, Waker, Why};
use tompion_reader::coverage::Overwritten;
use tompion_testing::{Random, TestDir};

use crate::checked::Checked;

/// Events of a kernel and of a program, whose fields are all signed integers of 32 bits.
pub const EVENTS: [(&str, &str); 18] = [
    ("sched_switch", "prev_tid prev_state next_tid"),
    ("sched_waking", "tid target_cpu"),
    ("sched_process_fork", "parent_tid child_tid child_pid"),
    ("sched_process_exit", "tid"),
    ("sched_process_free", "tid"),
    ("irq_handler_entry", "irq"),
    ("irq_handler_exit", "irq"),
    ("irq_softirq_entry", "vec"),
    ("irq_softirq_exit", "vec"),
    ("syscall_entry_read", "fd"),
    ("syscall_exit_read", "ret"),
    ("syscall_exit_write", "ret"),
    ("lttng_statedump_process_state", "tid pid status"),
    ("syscall_entry_rt_sigreturn", "none"),
    ("syscall_exit_unknown", "id"),
    ("sched_process_exec", "tid old_tid"),
    ("syscall_entry_execve", "none"),
    ("syscall_exit_execve", "ret"),
];

/// Event context with the thread in which an event happened.
const IN_CONTEXT: &str = "event.context := struct { i32 _tid; };";

pub fn metadata(domain: &str, events: &[(&str, &str)], of_events: &str) -> String {
    let mut text = format!(
        "/* CTF 1.8 */
typealias integer {{ size = 8; }} := u8;
typealias integer {{ size = 32; signed = true; align = 8; }} := i32;
trace {{ major = 1; minor = 8; byte_order = le; packet.header := struct {{ u8 stream_id; }}; }};
env {{ domain = \"{domain}\"; hostname = \"box\"; }};
clock {{ name = c; freq = 1000000000; offset = 0; }};
typealias integer {{ size = 64; align = 8; map = clock.c.value; }} := time;
typealias integer {{ size = 64; align = 8; }} := u64;
stream {{ id = 0; packet.context := struct {{ time timestamp_begin; time timestamp_end; u64 content_size;
    u64 packet_size; u64 events_discarded; u64 packet_seq_num; u8 cpu_id; }};
    event.header := struct {{ u8 id; time timestamp; }}; {of_events} }};\n"
    );
    for (id, (name, fields)) in events.iter().enumerate() {
        let fields: String = fields.split_whitespace().map(|field| format!("i32 _{field}; ")).collect();
        let base = name.split(' ').next().unwrap_or_default();
        let kind = name.strip_prefix(base).unwrap_or_default().trim();
        let meaning =
            if kind.is_empty() { String::new() } else { format!("model.emf.uri = \"tompion:{kind}\"; ") };
        let name = match kind {
            "" => base.to_owned(),
            "job" => format!("{base}_begin"),
            _ => format!("{base}_{kind}"),
        };
        text += &format!(
            "event {{ name = \"{name}\"; id = {id}; stream_id = 0; {meaning}fields := struct {{ {fields}}}; }};\n"
        );
    }
    text
}

/// Event: its time, class and field values.
pub type Made = (u64, usize, Vec<i32>);

/// Creates the first packet of the CPU `cpu`.
pub fn packet(cpu: u8, events: &[Made], discarded: u64) -> Vec<u8> {
    numbered_packet((cpu, 0), events, discarded)
}

/// Creates a packet of the CPU `cpu` with a sequence number.
pub fn numbered_packet((cpu, sequence): (u8, u64), events: &[Made], discarded: u64) -> Vec<u8> {
    let mut content = Vec::new();
    for (time, class, numbers) in events {
        content.push(*class as u8);
        content.extend(time.to_le_bytes());
        numbers.iter().for_each(|number| content.extend(number.to_le_bytes()));
    }
    let size = (1 + 6 * 8 + 1 + content.len() as u64) * 8;
    let (begin, end) = (events.first().map_or(0, |it| it.0), events.last().map_or(0, |it| it.0));
    let mut bytes = vec![0];
    [begin, end, size, size, discarded, sequence]
        .iter()
        .for_each(|number| bytes.extend(number.to_le_bytes()));
    bytes.push(cpu);
    bytes.extend(content);
    bytes
}

/// Folder of a test, removed on drop.
pub struct Folder(TestDir);

impl Folder {
    pub fn new(name: &str) -> Self {
        Self(TestDir::new(&format!("states-{name}")))
    }

    pub fn trace(&self, name: &str, metadata: &str, streams: &[Vec<u8>]) -> &Path {
        let folder = self.0.join(name);
        fs::create_dir_all(&folder).unwrap();
        fs::write(folder.join("metadata"), metadata).unwrap();
        for (number, stream) in streams.iter().enumerate() {
            fs::write(folder.join(format!("stream_{number}")), stream).unwrap();
        }
        &self.0
    }

    /// Runs the engine with announcements that were made before the traces are read.
    fn states_after(&self, announce: impl Fn(&mut Engine)) -> Checked {
        let mut traces = tompion_reader::open(std::slice::from_ref(self.0.path())).unwrap();
        let mut untouched = Engine::new(traces.traces());
        announce(&mut untouched);
        let (mut engine, mut checked) = (untouched.fresh(), Checked::default());
        while traces.step() {
            engine.event(&traces.current().unwrap(), &mut checked);
        }
        engine.finish(&mut checked);
        checked
    }

    fn states(&self) -> Checked {
        let mut traces = tompion_reader::open(std::slice::from_ref(self.0.path())).unwrap();
        let mut checked = Checked::default();
        state::run(&mut traces, &mut checked);
        assert!(traces.corruptions().is_empty(), "{:?}", traces.corruptions());
        checked
    }
}

pub fn class(name: &str) -> usize {
    EVENTS.iter().position(|(known, _)| *known == name).unwrap()
}

/// Returns the states of a thread as (begin, end, state).
fn of_thread(checked: &Checked, wanted: i32) -> Vec<(i64, i64, State)> {
    let is_wanted = |track: Track| matches!(track, Track::Thread(thread) if thread.tid == wanted);
    checked.of(|it| is_wanted(it.track)).into_iter().map(|it| (it.begin, it.end, it.state.clone())).collect()
}

#[test]
fn a_thread_reads_and_is_woken_by_an_interrupt() {
    let folder = Folder::new("story");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    let events = [
        event(100, "lttng_statedump_process_state", &[8, 8, 5]),
        event(200, "sched_switch", &[0, 0, 7]),
        event(210, "syscall_entry_read", &[3]),
        event(220, "sched_switch", &[7, 1, 0]),
        event(300, "irq_handler_entry", &[33]),
        event(310, "sched_waking", &[7, 0]),
        event(320, "irq_handler_exit", &[33]),
        event(330, "sched_switch", &[0, 0, 7]),
        event(340, "syscall_exit_read", &[1]),
        event(350, "sched_waking", &[8, 0]),
        event(360, "sched_switch", &[7, 0, 8]),
        event(400, "sched_switch", &[8, 2, 7]),
        event(410, "sched_process_exit", &[7]),
        event(420, "sched_switch", &[7, 128, 0]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &[packet(0, &events, 0)]);
    let checked = folder.states();
    let sleep = Sleep::Interruptible;
    let reading = State::Blocked { sleep, syscall: Some("read".into()) };
    let running = State::Running { cpu: 0 };
    let by_interrupt = Waker::Interrupt { cpu: 0 };
    assert_eq!(
        of_thread(&checked, 7),
        [
            (200, 220, running.clone()),
            (220, 310, reading),
            (310, 330, State::Ready(Why::Woken(by_interrupt))),
            (330, 360, running.clone()),
            (360, 400, State::Ready(Why::Preempted { by: 8 })),
            (400, 420, running.clone()),
        ]
    );
    assert_eq!(
        of_thread(&checked, 8),
        [
            (100, 350, State::Blocked { sleep: Sleep::Unspecified, syscall: None }),
            (350, 360, State::Ready(Why::Woken(Waker::During(7)))),
            (360, 400, running),
            (400, 420, State::Blocked { sleep: Sleep::Uninterruptible, syscall: None }),
        ]
    );
    let syscalls = checked.of(|it| matches!(it.track, Track::Syscall(_)));
    assert_eq!((syscalls.len(), syscalls[0].begin, syscalls[0].end), (1, 210, 340));
    let wakeup = Happening::Wakeup { tid: 7, waker: by_interrupt };
    assert_eq!(checked.count(|what| *what == wakeup), 1);
    let cpu = checked.of(|it| matches!(it.track, Track::Cpu(..)));
    let cpu: Vec<_> = cpu.iter().map(|it| (it.begin, it.state.clone())).collect();
    let runs = |tid| State::Runs { tid };
    assert_eq!(cpu[0], (100, State::Unknown));
    assert_eq!(
        cpu[1..],
        [(200, runs(7)), (220, State::Idle), (330, runs(7)), (360, runs(8)), (400, runs(7))]
    );
}

#[test]
fn a_thread_of_the_kernel_that_idles_sleeps_and_lives_on() {
    let folder = Folder::new("idles");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    let events = [
        event(100, "sched_switch", &[0, 0, 16]),
        event(110, "sched_switch", &[16, 0x80, 0]),
        event(200, "sched_waking", &[16, 0]),
        event(210, "sched_switch", &[0, 0, 16]),
        event(220, "sched_process_exit", &[16]),
        event(230, "sched_switch", &[16, 0x80, 0]),
        event(300, "sched_switch", &[0, 0, 7]),
        event(310, "sched_switch", &[7, 0x10, 0]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &[packet(0, &events, 0)]);
    let checked = folder.states();
    let running = State::Running { cpu: 0 };
    assert_eq!(
        of_thread(&checked, 16),
        [
            (100, 110, running.clone()),
            (110, 200, State::Blocked { sleep: Sleep::Interruptible, syscall: None }),
            (200, 210, State::Ready(Why::Woken(Waker::Interrupt { cpu: 0 }))),
            (210, 230, running),
        ]
    );
    assert_eq!(checked.count(|what| *what == Happening::Gone { tid: 16 }), 1, "with its exit alone");
    assert_eq!(checked.count(|what| *what == Happening::Gone { tid: 7 }), 1);
}

#[test]
fn states_that_lost_events_may_have_changed_are_unknown() {
    let folder = Folder::new("loss");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    let first = [event(100, "sched_switch", &[0, 0, 7]), event(110, "syscall_entry_read", &[3])];
    let second = [event(300, "sched_waking", &[9, 0]), event(310, "sched_switch", &[5, 1, 9])];
    let other = [event(100, "sched_switch", &[0, 0, 8]), event(400, "sched_switch", &[8, 1, 0])];
    let lossy = [packet(0, &first, 0), packet(0, &second, 4)].concat();
    folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &[lossy, packet(1, &other, 0)]);
    let checked = folder.states();
    assert_eq!(
        of_thread(&checked, 7),
        [(100, 110, State::Running { cpu: 0 }), (110, 400, State::Unknown)],
        "its state is unknown since the loss"
    );
    assert_eq!(of_thread(&checked, 8), [(100, 400, State::Running { cpu: 1 })], "it ran elsewhere");
    let syscalls = checked.of(|it| matches!(it.track, Track::Syscall(_)));
    assert_eq!(syscalls.len(), 1);
    assert_eq!(syscalls[0].seen, Seen { begin: true, end: false });
    assert_eq!(checked.count(|what| matches!(what, Happening::Loss { count: 4, .. })), 2, "at both its ends");
}

/// Thread 9 is woken on one CPU while events of the other one are missing, on which it may run.
#[test]
fn a_thread_that_is_woken_twice_has_run_unseen_in_between() {
    let folder = Folder::new("woken-twice");
    let kernel =
        [("sched_switch", "prev_tid prev_state next_tid"), ("sched_waking", "tid"), ("sched_wakeup", "tid")];
    let events =
        [(100, 0, vec![9, 1, 7]), (200, 1, vec![9]), (205, 2, vec![9]), (300, 1, vec![9]), (305, 2, vec![9])];
    let lossy = [packet(1, &[(90, 0, vec![0, 0, 8])], 0), packet(1, &[(400, 0, vec![8, 1, 9])], 4)].concat();
    folder.trace("kernel", &metadata("kernel", &kernel, ""), &[packet(0, &events, 0), lossy]);
    let checked = folder.states();
    let ready = State::Ready(Why::Woken(Waker::During(7)));
    let states = of_thread(&checked, 9);
    assert!(states.contains(&(200, 300, State::Unknown)), "it has run and slept unseen: {states:?}");
    assert!(states.contains(&(300, 400, ready)), "{states:?}");
    assert_eq!(checked.count(|what| matches!(what, Happening::Wakeup { tid: 9, .. })), 2);
}

#[test]
fn a_wakeup_is_a_threads_only_where_the_trace_says_so() {
    let kernel = [("sched_switch", "prev_tid prev_state next_tid"), ("sched_waking", "tid waker_context")];
    let timers = [
        ("sched_switch", "prev_tid prev_state next_tid"),
        ("sched_waking", "tid"),
        ("timer_hrtimer_expire_entry", "now"),
        ("timer_hrtimer_expire_exit", "now"),
    ];
    let wakers = |name: &str, events: &[(&str, &str)], made: &[Made]| {
        let folder = Folder::new(name);
        folder.trace("kernel", &metadata("kernel", events, ""), &[packet(0, made, 0)]);
        let instants = folder.states().instants.into_iter().filter_map(|instant| match instant.what {
            Happening::Wakeup { tid, waker } => Some((tid, waker)),
            _ => None,
        });
        instants.collect::<Vec<_>>()
    };
    let switch = (100, 0, vec![0, 0, 7]);
    let woken = |context: i32| (110 + context as u64, 1, vec![20 + context, context]);
    let stated: Vec<Made> = [switch.clone()].into_iter().chain((0..6).map(woken)).collect();
    let (thread, interrupt) = (Waker::Thread(7), Waker::Interrupt { cpu: 0 });
    let (timer, own) = (Waker::Timer { cpu: 0 }, Waker::OwnTimer { cpu: 0 });
    assert_eq!(
        wakers("stated", &kernel, &stated),
        [(20, Waker::During(7)), (21, thread), (22, interrupt), (23, interrupt), (24, timer), (25, own)]
    );
    let seen = [
        switch,
        (110, 1, vec![20]),
        (120, 2, vec![0]),
        (121, 1, vec![21]),
        (122, 3, vec![0]),
        (130, 1, vec![22]),
    ];
    assert_eq!(wakers("timers", &timers, &seen), [(20, thread), (21, timer), (22, thread)]);
}

/// A kernel may hide switches: then the thread that was switched to is not the one in the wakeup's
/// own context.
#[test]
fn a_waker_is_the_thread_that_the_wakeup_names() {
    let folder = Folder::new("named-waker");
    let kernel = [("sched_switch", "prev_tid prev_state next_tid"), ("sched_waking", "tid waker_context")];
    // By thread 9 and by the idle thread, both unseen on a CPU that has switched to thread 7.
    let events = [
        (100, 0, vec![0, 0, 0, 7]),
        (110, 1, vec![9, 20, 1]),
        (120, 1, vec![9, 21, 0]),
        (130, 1, vec![0, 22, 1]),
        (140, 1, vec![0, 23, 0]),
    ];
    folder.trace("kernel", &metadata("kernel", &kernel, IN_CONTEXT), &[packet(0, &events, 0)]);
    let wakers = folder.states().instants.into_iter().filter_map(|instant| match instant.what {
        Happening::Wakeup { tid, waker } => Some((tid, waker)),
        _ => None,
    });
    let interrupt = Waker::Interrupt { cpu: 0 };
    let expected = [(20, Waker::Thread(9)), (21, Waker::During(9)), (22, Waker::Unknown), (23, interrupt)];
    assert_eq!(wakers.collect::<Vec<_>>(), expected);
}

/// The first switches of a recording may be missing, since its programs start one by one.
#[test]
fn a_thread_that_only_a_context_names_is_not_taken_to_run_until_another_one_leaves() {
    let folder = Folder::new("learned");
    let kernel = [("sched_switch", "prev_tid prev_state next_tid"), ("sched_waking", "tid waker_context")];
    // Thread 9 wakes another one and leaves the CPU unseen.
    let events = [(100, 1, vec![9, 20, 1]), (150, 0, vec![7, 7, 1, 8]), (160, 0, vec![8, 8, 1, 9])];
    folder.trace("kernel", &metadata("kernel", &kernel, IN_CONTEXT), &[packet(0, &events, 0)]);
    let states = folder.states();
    assert_eq!(of_thread(&states, 9), [(100, 160, State::Unknown)]);
    assert_eq!(of_cpu(&states, 0), [(100, 150, State::Unknown), (150, 160, State::Runs { tid: 8 })]);
}

#[test]
fn a_context_that_contradicts_the_last_switch_makes_its_state_unknown() {
    let folder = Folder::new("contradiction");
    let event = |time, name: &str, tid: i32, numbers: &[i32]| (time, class(name), [&[tid], numbers].concat());
    // The switch from thread 8 to 9 is missing.
    let events = [
        event(90, "sched_switch", 9, &[9, 1, 7]),
        event(100, "sched_switch", 7, &[7, 1, 8]),
        event(110, "irq_handler_entry", 8, &[1]),
        event(111, "irq_handler_exit", 8, &[1]),
        event(150, "irq_handler_entry", 9, &[1]),
        event(151, "irq_handler_exit", 9, &[1]),
        event(160, "sched_switch", 9, &[9, 1, 0]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, IN_CONTEXT), &[packet(0, &events, 0)]);
    let states = folder.states();
    assert_eq!(of_thread(&states, 8), [(100, 160, State::Unknown)]);
    let sleep = State::Blocked { sleep: Sleep::Interruptible, syscall: None };
    assert_eq!(of_thread(&states, 9)[..2], [(90, 150, sleep), (150, 160, State::Running { cpu: 0 })]);
    let expected =
        [(90, 100, State::Runs { tid: 7 }), (100, 150, State::Unknown), (150, 160, State::Runs { tid: 9 })];
    assert_eq!(of_cpu(&states, 0), expected);
}

#[test]
fn a_thread_that_a_context_put_on_a_cpu_may_be_seen_on_another_one() {
    let folder = Folder::new("moved");
    let event = |time, name: &str, tid: i32, numbers: &[i32]| (time, class(name), [&[tid], numbers].concat());
    // Thread 9 leaves CPU 0 unseen, and runs on CPU 1.
    let first = [
        event(100, "irq_handler_entry", 9, &[1]),
        event(150, "sched_switch", 7, &[7, 1, 8]),
        event(200, "sched_switch", 8, &[8, 1, 0]),
    ];
    let second = [event(120, "sched_switch", 0, &[0, 0, 9]), event(200, "irq_handler_entry", 9, &[1])];
    let streams = [packet(0, &first, 0), packet(1, &second, 0)];
    folder.trace("kernel", &metadata("kernel", &EVENTS, IN_CONTEXT), &streams);
    let states = folder.states();
    let expected = [(100, 120, State::Unknown), (120, 200, State::Running { cpu: 1 })];
    assert_eq!(of_thread(&states, 9), expected);
    let expected = [(100, 150, State::Unknown), (150, 200, State::Runs { tid: 8 })];
    assert_eq!(of_cpu(&states, 0), expected);
}

#[test]
fn the_initial_state_does_not_say_where_its_writer_runs() {
    let folder = Folder::new("dump");
    let kernel = [("sched_switch", "prev_tid prev_state next_tid"), ("lttng_statedump_start", "")];
    // Thread 9 runs on CPU 1 and writes to the stream of CPU 0.
    let first = [(120, 1, vec![9]), (200, 0, vec![7, 7, 1, 8])];
    let second = [(100, 0, vec![0, 0, 0, 9]), (150, 0, vec![9, 9, 1, 0])];
    let streams = [packet(0, &first, 0), packet(1, &second, 0)];
    folder.trace("kernel", &metadata("kernel", &kernel, IN_CONTEXT), &streams);
    let states = folder.states();
    assert_eq!(of_thread(&states, 9).first(), Some(&(100, 150, State::Running { cpu: 1 })));
    assert!(of_cpu(&states, 0).iter().all(|(_, _, state)| *state != State::Runs { tid: 9 }));
}

#[test]
fn a_thread_that_ends_elsewhere_is_gone() {
    for end in ["sched_switch", "sched_process_free"] {
        let folder = Folder::new("ended");
        let event =
            |time, name: &str, tid: i32, numbers: &[i32]| (time, class(name), [&[tid], numbers].concat());
        // The CPU of thread 9's last events is not the one that a context put it on.
        let first = [event(100, "irq_handler_entry", 9, &[1]), event(150, "sched_switch", 7, &[7, 1, 8])];
        let numbers: &[i32] = if end == "sched_switch" { &[9, 0x20, 0] } else { &[9] };
        let second = [event(120, end, 9, numbers), event(200, "irq_handler_entry", 0, &[1])];
        let streams = [packet(0, &first, 0), packet(1, &second, 0)];
        folder.trace("kernel", &metadata("kernel", &EVENTS, IN_CONTEXT), &streams);
        assert_eq!(of_thread(&folder.states(), 9), [(100, 120, State::Unknown)], "{end}");
    }
}

#[test]
fn an_idle_thread_of_the_kernel_is_not_in_uninterruptible_sleep() {
    let folder = Folder::new("idle");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    // TASK_UNINTERRUPTIBLE | TASK_NOLOAD, as the kernel itself has it.
    let events = [
        event(100, "sched_switch", &[0, 0, 7]),
        event(110, "sched_switch", &[7, 0x402, 8]),
        event(120, "sched_switch", &[8, 2, 0]),
        event(130, "irq_handler_entry", &[1]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &[packet(0, &events, 0)]);
    let checked = folder.states();
    let sleep = |sleep| State::Blocked { sleep, syscall: None };
    assert_eq!(of_thread(&checked, 7)[1], (110, 130, sleep(Sleep::Interruptible)));
    assert_eq!(of_thread(&checked, 8)[1], (120, 130, sleep(Sleep::Uninterruptible)));
}

#[test]
fn a_thread_that_sleeps_in_its_exit_is_one_thread() {
    let folder = Folder::new("exit");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    let events = [
        event(100, "sched_switch", &[0, 0, 7]),
        event(110, "sched_process_exit", &[7]),
        event(120, "sched_switch", &[7, 2, 0]),
        event(130, "sched_waking", &[7, 0]),
        event(140, "sched_switch", &[0, 0, 7]),
        event(150, "sched_switch", &[7, 0x10, 0]),
        event(160, "irq_handler_entry", &[1]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &[packet(0, &events, 0)]);
    let checked = folder.states();
    let gone: Vec<_> = checked
        .instants
        .iter()
        .filter(|it| it.what == Happening::Gone { tid: 7 })
        .map(|it| it.time)
        .collect();
    assert_eq!(gone, [150], "with its last switch");
    let states = of_thread(&checked, 7);
    assert_eq!(states[1], (120, 130, State::Blocked { sleep: Sleep::Uninterruptible, syscall: None }));
    assert_eq!(states.last().unwrap(), &(140, 150, State::Running { cpu: 0 }));
}

#[test]
fn the_process_of_a_thread_is_learned_from_contexts() {
    let folder = Folder::new("process");
    let context = "event.context := struct { i32 _tid; i32 _pid; };";
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    // The fork of thread 8 of process 7 was overwritten.
    let events = [
        event(100, "sched_switch", &[0, 0, 0, 0, 8]),
        event(110, "irq_handler_entry", &[8, 7, 1]),
        event(120, "irq_handler_exit", &[8, 7, 1]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, context), &[packet(0, &events, 0)]);
    let checked = folder.states();
    let named: Vec<_> = checked
        .instants
        .iter()
        .filter_map(|it| match it.what {
            Happening::Named { tid, pid, .. } => Some((it.time, tid, pid)),
            _ => None,
        })
        .collect();
    assert_eq!(named, [(110, 8, Some(7))], "once");
}

/// As the kernel does: thread 8 of process 7 executes a program, and is thread 7 from then on.
#[test]
fn a_thread_that_takes_its_leaders_id_is_followed() {
    let folder = Folder::new("exec");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    let first = [
        event(100, "sched_switch", &[0, 0, 8]),
        event(110, "syscall_entry_execve", &[0]),
        event(180, "sched_process_exec", &[7, 8]),
        event(190, "syscall_exit_execve", &[0]),
        event(200, "sched_switch", &[7, 1, 0]),
    ];
    let second = [
        event(105, "sched_switch", &[0, 0, 7]),
        event(108, "syscall_entry_read", &[3]),
        event(120, "sched_process_exit", &[7]),
        event(130, "sched_switch", &[7, 0x10, 0]),
        event(210, "irq_handler_entry", &[1]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &[packet(0, &first, 0), packet(1, &second, 0)]);
    let checked = folder.states();
    let running = |cpu| State::Running { cpu };
    assert_eq!(of_thread(&checked, 8), [(100, 180, running(0))]);
    assert_eq!(of_thread(&checked, 7)[..2], [(105, 130, running(1)), (180, 200, running(0))]);
    let calls = checked.of(|it| matches!(it.track, Track::Syscall(_)));
    let calls: Vec<_> = calls.iter().map(|it| (it.begin, it.end, it.seen.end)).collect();
    assert_eq!(calls, [(108, 130, false), (110, 190, true)], "the leader's call has no end");
    let gone = |tid| checked.count(|it| *it == Happening::Gone { tid });
    assert_eq!((gone(7), gone(8)), (1, 1));
    let named = checked.of(|it| matches!(it.track, Track::Cpu(..)) && it.state == State::Unknown);
    assert!(named.iter().all(|it| it.end <= 105), "{named:?}");
}

/// Returns the states of a CPU as (begin, end, state).
fn of_cpu(checked: &Checked, wanted: u32) -> Vec<(i64, i64, State)> {
    let is_wanted = |track: Track| matches!(track, Track::Cpu(_, cpu) if cpu == wanted);
    checked.of(|it| is_wanted(it.track)).into_iter().map(|it| (it.begin, it.end, it.state.clone())).collect()
}

#[test]
fn a_dump_in_an_overwritten_time_is_valid_only_at_its_own_time() {
    let folder = Folder::new("overwritten");
    let event = |time, name: &str, tid: i32, numbers: &[i32]| (time, class(name), [&[tid], numbers].concat());
    let first = [event(100, "lttng_statedump_process_state", 9, &[7, 7, 5])];
    let second = [event(500, "sched_switch", 7, &[7, 1, 0]), event(600, "irq_handler_entry", 0, &[1])];
    let other = [event(300, "sched_switch", 0, &[0, 0, 8]), event(400, "sched_switch", 8, &[8, 1, 0])];
    let streams = [packet(0, &first, 0), packet(0, &second, 0), packet(1, &other, 0)];
    folder.trace("kernel", &metadata("kernel", &EVENTS, IN_CONTEXT), &streams);
    let gap = |cpu, until| Overwritten { trace: 0, cpu: Some(cpu), until };
    let gaps = vec![gap(0, 100), gap(0, 500), gap(1, 300)];
    let checked = folder.states_after(|engine| engine.overwritten(gaps.clone()));
    assert_eq!(of_cpu(&checked, 0), [(100, 500, State::Unknown), (500, 600, State::Idle)]);
    let asleep = State::Blocked { sleep: Sleep::Interruptible, syscall: None };
    assert_eq!(of_thread(&checked, 7), [(100, 500, State::Unknown), (500, 600, asleep)]);
    assert_eq!(of_thread(&checked, 9), []);
    assert_eq!(
        of_thread(&checked, 8),
        [(300, 400, State::Running { cpu: 1 }), (400, 600, State::Unknown)],
        "its wakeup may have been overwritten"
    );
}

#[test]
fn a_span_ends_where_its_end_may_have_been_overwritten() {
    let folder = Folder::new("overwritten-spans");
    let events = [("db:query begin", "rows"), ("db:query end", "rows")];
    let context = "event.context := struct { i32 _vtid; };";
    let event = |time, class| (time, class, vec![5, 0]);
    let streams = [packet(0, &[event(500, 0), event(600, 1)], 0), packet(1, &[event(300, 0)], 0)];
    folder.trace("user", &metadata("ust", &events, context), &streams);
    let gap = |cpu, until| Overwritten { trace: 0, cpu: Some(cpu), until };
    let checked = folder.states_after(|engine| engine.overwritten(vec![gap(0, 500), gap(1, 300)]));
    let found: Vec<_> =
        checked.intervals.iter().map(|it| (it.track, it.begin, it.end, it.seen.end)).collect();
    let Track::Span(thread, _) = found[0].0 else { panic!("{found:?}") };
    assert_eq!(found, [(Track::Span(thread, 0), 300, 300, false), (Track::Span(thread, 0), 500, 600, true)]);
}

/// Streams of two CPUs. The first has a packet before a gap in the sequence numbers, and one behind
/// it.
fn with_gap(events: [&[Made]; 3]) -> [Vec<u8>; 2] {
    let [before, behind, other] = events;
    [[packet(0, before, 0), numbered_packet((0, 2), behind, 0)].concat(), packet(1, other, 0)]
}

#[test]
fn spans_with_numbers_end_on_any_thread() {
    let folder = Folder::new("numbered-spans");
    let events = [("db:query begin", ""), ("db:query end", "")];
    let context = "event.context := struct { i32 _vtid; i32 _span; };";
    let event = |time, class, thread, span| (time, class, vec![thread, span]);
    let made = [
        event(10, 0, 5, 1),
        event(20, 0, 5, 2),
        event(30, 1, 6, 1), // on another thread, before the one that began later
        event(40, 0, 5, 3), // on the track that is free again
        event(50, 1, 5, 2),
        event(60, 1, 5, 9), // an end without an observed begin
        event(70, 0, 5, 3), // a number that is given again
        event(80, 1, 7, 3),
        event(90, 0, 6, 4),
        event(95, 0, 6, 5),
    ];
    folder.trace("user", &metadata("ust", &events, context), &[packet(0, &made, 0)]);
    let checked = folder.states();
    let found: Vec<_> = checked
        .intervals
        .iter()
        .map(|it| match it.track {
            Track::Span(thread, depth) => (thread.tid, depth, it.begin, it.end, it.seen.end),
            _ => panic!("{it:?}"),
        })
        .collect();
    assert_eq!(
        found,
        [
            (5, 1024, 10, 30, true),
            (5, 1025, 20, 50, true),
            (5, 1024, 40, 70, false),
            (5, 1024, 70, 80, true),
            (6, 1024, 90, 95, false),
            (6, 1025, 95, 95, false),
        ]
    );
}

#[test]
fn states_within_a_gap_are_unknown() {
    let folder = Folder::new("gap");
    let event = |time, name: &str, tid: i32, numbers: &[i32]| (time, class(name), [&[tid], numbers].concat());
    let before = [event(100, "sched_switch", 0, &[0, 0, 7]), event(200, "syscall_entry_read", 7, &[3])];
    let behind = [event(900, "sched_switch", 0, &[0, 0, 9]), event(950, "sched_switch", 9, &[9, 1, 0])];
    let other = [
        event(150, "sched_switch", 0, &[0, 0, 8]),
        event(300, "syscall_entry_read", 8, &[3]),
        event(400, "sched_switch", 8, &[8, 1, 0]),
        event(500, "sched_waking", 0, &[8, 1]),
        event(600, "sched_switch", 0, &[0, 0, 8]),
        event(990, "sched_switch", 8, &[8, 1, 0]),
        event(1000, "irq_handler_entry", 0, &[1]),
    ];
    folder.trace("kernel", &metadata("kernel", &EVENTS, IN_CONTEXT), &with_gap([&before, &behind, &other]));
    let checked = folder.states();
    let runs = |tid| State::Runs { tid };
    let of_first = [(100, 200, runs(7)), (200, 900, State::Unknown), (900, 950, runs(9))];
    assert_eq!(of_cpu(&checked, 0)[..3], of_first);
    assert_eq!(
        of_thread(&checked, 7),
        [(100, 200, State::Running { cpu: 0 }), (200, 1000, State::Unknown)],
        "how long it ran was not seen"
    );
    let asleep = State::Blocked { sleep: Sleep::Interruptible, syscall: None };
    assert_eq!(
        of_thread(&checked, 8),
        [
            (150, 400, State::Running { cpu: 1 }),
            (400, 600, State::Unknown),
            (600, 990, State::Running { cpu: 1 }),
            (990, 1000, asleep),
        ],
        "it may have run on the other CPU from 400 to 600"
    );
    let calls = checked.of(|it| matches!(it.track, Track::Syscall(_)));
    let calls: Vec<_> = calls.iter().map(|it| (it.begin, it.end, it.seen.end)).collect();
    assert_eq!(calls, [(200, 200, false), (300, 400, false)], "they may have returned in the gap");
}

#[test]
fn a_span_lasts_no_longer_than_it_was_seen_before_a_gap_or_in_it() {
    let folder = Folder::new("gap-spans");
    let events = [("motor:cycle begin", "number"), ("motor:cycle end", "number")];
    let context = "event.context := struct { i32 _vtid; };";
    let event = |time, class, tid| (time, class, vec![tid, 0]);
    let before = [event(100, 0, 5), event(200, 0, 6), event(250, 1, 6)];
    let behind = [event(900, 0, 5), event(950, 1, 5)];
    let other = [event(500, 0, 7), event(600, 0, 8), event(700, 1, 8), event(990, 0, 9)];
    folder.trace("user", &metadata("ust", &events, context), &with_gap([&before, &behind, &other]));
    let checked = folder.states();
    let found: Vec<_> = checked.intervals.iter().map(|it| (it.begin, it.end, it.seen.end)).collect();
    let expected = [
        (200, 250, true),
        (100, 250, false), // open when the gap began
        (600, 700, true),
        (500, 500, false), // began in the gap, and may have ended in it
        (900, 950, true),
        (990, 990, false),
    ];
    assert_eq!(found, expected);
}

#[test]
fn states_between_two_recordings_of_a_kernel_are_unknown() {
    let folder = Folder::new("between");
    let event = |time, name: &str, numbers: &[i32]| (time, class(name), numbers.to_vec());
    let first = [event(100, "sched_switch", &[0, 0, 7]), event(200, "syscall_entry_read", &[3])];
    let second = [event(900, "sched_switch", &[0, 0, 8]), event(950, "sched_switch", &[8, 1, 0])];
    folder.trace("a", &metadata("kernel", &EVENTS, ""), &[packet(0, &first, 0)]);
    folder.trace("b", &metadata("kernel", &EVENTS, ""), &[packet(0, &second, 0)]);
    let (a, b) = ((Some(100), Some(200)), (Some(900), Some(950)));
    let checked = folder.states_after(|engine| engine.recorded(vec![a, b]));
    let runs = |tid| State::Runs { tid };
    assert_eq!(of_cpu(&checked, 0), [(100, 200, runs(7)), (200, 900, State::Unknown), (900, 950, runs(8))]);
    assert_eq!(of_thread(&checked, 7), [(100, 200, State::Running { cpu: 0 }), (200, 950, State::Unknown)]);
    // A third recording covers the gap, or one doesn't state its end: it may cover the gap.
    for end in [Some(900), None] {
        let checked = folder.states_after(|engine| engine.recorded(vec![(Some(100), end), b]));
        assert_eq!(of_cpu(&checked, 0)[0], (100, 900, runs(7)));
    }
}

#[test]
fn spans_end_with_their_names() {
    let folder = Folder::new("spans");
    let events =
        [("db:query begin", "rows"), ("db:query end", "rows"), ("db:lock begin", "x"), ("db:lock end", "x")];
    let context = "event.context := struct { i32 _vtid; };";
    let event = |time, class, tid| (time, class, vec![tid, 0]);
    let made = [
        event(10, 1, 5), // an end without an observed begin
        event(20, 0, 5),
        event(30, 2, 5),
        event(35, 2, 6),
        event(40, 1, 5), // the end of the lock is missing
        event(50, 3, 6),
        event(60, 0, 5),
        event(70, 3, 9),
    ];
    folder.trace("user", &metadata("ust", &events, context), &[packet(0, &made, 0)]);
    let checked = folder.states();
    let found: Vec<_> = checked
        .intervals
        .iter()
        .map(|it| match (&it.track, &it.state) {
            (Track::Span(thread, depth), State::Span(name)) => {
                (thread.tid, *depth, &**name, it.begin, it.end, it.seen.end)
            }
            _ => panic!("{it:?}"),
        })
        .collect();
    assert_eq!(
        found,
        [
            (5, 1, "db:lock", 30, 40, false),
            (5, 0, "db:query", 20, 40, true),
            (6, 0, "db:lock", 35, 50, true),
            (5, 0, "db:query", 60, 70, false),
        ]
    );
}

/// Creates a stream of contradictory events in several packets, some after losses.
fn nonsense(random: &mut Random, cpu: u8, classes: &[(&str, &str)], has_context: bool) -> Vec<u8> {
    let (mut time, mut discarded) = (random.below(50), 0);
    let mut bytes = Vec::new();
    for _ in 0..1 + random.below(4) {
        let events: Vec<Made> = (0..1 + random.below(60))
            .map(|_| {
                time += random.below(4);
                let class = random.below(classes.len() as u64) as usize;
                let fields = classes[class].1.split_whitespace().count() + usize::from(has_context);
                let mut number = || random.below(6) as i32 - i32::from(random.below(30) == 0) * 3;
                (time, class, (0..fields).map(|_| number()).collect())
            })
            .collect();
        bytes.extend(packet(cpu, &events, discarded));
        discarded += if random.below(3) == 0 { random.below(9) } else { 0 };
        time += random.below(30);
    }
    bytes
}

#[test]
fn random_events_give_intervals_without_gaps_and_overlaps() {
    let spans = [("a:x begin", "n"), ("a:x end", "n"), ("a:y begin", ""), ("a:y end", ""), ("a:z", "n")];
    let context = "event.context := struct { i32 _vtid; };";
    let folder = Folder::new("nonsense");
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    for round in 0..300 {
        let kernel: Vec<_> = (0..3).map(|cpu| nonsense(&mut random, cpu, &EVENTS, false)).collect();
        let user: Vec<_> = (0..2).map(|cpu| nonsense(&mut random, cpu, &spans, true)).collect();
        folder.trace("kernel", &metadata("kernel", &EVENTS, ""), &kernel);
        folder.trace("user", &metadata("ust", &spans, context), &user);
        let checked = folder.states();
        assert!(!checked.intervals.is_empty(), "{round}");
        for cpu in 0..3 {
            let of_cpu = checked.of(|it| matches!(it.track, Track::Cpu(_, number) if number == cpu));
            let (first, last) = (of_cpu.first().unwrap(), of_cpu.last().unwrap());
            assert!(first.end - first.begin <= last.end - first.begin);
        }
    }
}
