//! Tests of the attribution with synthetic events. Times are in microseconds.

use super::*;
use crate::attribution::Cause::{
    Firmware, IdleExit, InterruptsOff, IrqInterference, KernelOverhead, LateTimer, PreemptionOff,
    SoftirqInterference, ThreadInterference, Unknown,
};

const LATE: u32 = 7;
const HOG: u32 = 99;
const US: u64 = 1000;

fn thread(tid: u32) -> Thread {
    let (priority, name) = match tid {
        0 => (120, "swapper"),
        LATE => (19, "ctl"),
        5 => (9, "urgent"),
        _ => (120, "hog"),
    };
    Thread { tid, priority, name: name.into() }
}

fn switch(next: u32, previous: u32) -> EventKind {
    EventKind::Switch { next: thread(next), previous: thread(previous), state: 0 }
}

fn woken(cpu: u32) -> EventKind {
    EventKind::Woken { thread: thread(LATE), cpu, runs: None }
}

fn hard(name: &str) -> EventKind {
    EventKind::HardEntry { number: 1, name: name.into(), runs: None }
}

fn timer(intended: u64) -> EventKind {
    EventKind::TimerEntry { intended: intended * US, function: 0xf, soft: false }
}

const EXIT: EventKind = EventKind::HardExit(1);

/// Stack 1 is interrupted kernel code, stack 2 an interrupted program.
fn cpu(events: &[(u64, EventKind)]) -> CpuLog {
    let events =
        events.iter().map(|(time, kind)| SchedEvent { time: time * US, kind: kind.clone() }).collect();
    let stack = |functions: &[&str]| functions.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let interrupt = ["hrtimer_interrupt+0x1", "asm_sysvec_apic_timer_interrupt+0x1a"];
    let stacks = BTreeMap::from([
        (1, stack(&[&interrupt[..], &["spin+0x5", "do_syscall_64+0x1"]].concat())),
        (2, stack(&interrupt)),
        // Not of an interrupt.
        (3, stack(&["one+0x1"])),
    ]);
    CpuLog { events, known_from: 0, stacks }
}

/// Timer intended to expire at 100; times of its handler, of the wakeup and of the switch, on CPU
/// 0.
fn question(fired: u64, woken: u64, end: u64) -> LatencyInterval {
    LatencyInterval {
        intended: 100 * US,
        fired: fired * US,
        woken: woken * US,
        end: end * US,
        tid: LATE,
        priority: 19,
        cpu: 0,
        stack: vec!["__schedule+0x1".into(), "schedule+0x2".into(), "unlock+0x3".into()],
    }
}

/// Segments as (cause, length in microseconds, name).
fn charged(question: &LatencyInterval, cpus: Vec<CpuLog>) -> Vec<(Cause, u64, String)> {
    let history = EventLog { cpus, functions: BTreeMap::from([(0xf, "hrtimer_wakeup".to_owned())]) };
    let segments = attribute(question, &history);
    assert_whole(question, &segments);
    segments.iter().map(|segment| (segment.cause, segment.length() / US, segment.who.clone())).collect()
}

fn assert_whole(question: &LatencyInterval, segments: &[Segment]) {
    let mut at = question.begin();
    for segment in segments {
        assert_eq!(segment.begin, at, "{segments:?}");
        assert!(segment.end > segment.begin, "{segments:?}");
        at = segment.end;
    }
    assert_eq!(at, question.end, "{segments:?}");
}

fn expected(segments: &[(Cause, u64, &str)]) -> Vec<(Cause, u64, String)> {
    segments.iter().map(|(cause, length, who)| (*cause, *length, (*who).to_owned())).collect()
}

/// Events of a timer interrupt that wakes the thread on CPU 0, while another one runs.
fn interrupt(at: u64, stack: u32, end: u64) -> Vec<(u64, EventKind)> {
    vec![
        (10, switch(HOG, 0)),
        (at, hard("local timer")),
        (at + 1, timer(100)),
        (at + 1, EventKind::Stack(stack)),
        (at + 2, woken(0)),
        (at + 3, EventKind::TimerExit),
        (at + 4, EXIT),
        (end, switch(LATE, HOG)),
    ]
}

#[test]
fn given_kernel_code_that_takes_no_interrupt_then_interrupts_are_off_in_it() {
    let case = question(401, 402, 407);
    let history = vec![cpu(&interrupt(400, 1, 407))];
    assert_eq!(
        charged(&case, history.clone()),
        expected(&[(InterruptsOff, 300, "hog"), (KernelOverhead, 7, "")])
    );
    let segments = attribute(&case, &EventLog { cpus: history, ..EventLog::default() });
    assert_eq!(
        (segments[0].code.as_slice(), segments[0].tid),
        (&["spin+0x5".to_owned(), "do_syscall_64+0x1".to_owned()][..], HOG)
    );
}

#[test]
fn given_a_program_that_takes_no_interrupt_then_the_timer_came_late() {
    let found = charged(&question(401, 402, 407), vec![cpu(&interrupt(400, 2, 407))]);
    assert_eq!(found, expected(&[(LateTimer, 300, ""), (KernelOverhead, 7, "")]));
}

/// Count of SMIs since a time, in microseconds.
const fn firmware(count: u32, since: u64) -> EventKind {
    EventKind::Firmware { count, since: since * US }
}

#[test]
fn given_processors_that_stand_still_and_count_smis_then_it_was_firmware() {
    let late = [(Firmware, 300), (KernelOverhead, 7)];
    let case = question(401, 402, 407);
    let found = |history| {
        let found = charged(&case, history);
        found.iter().map(|(cause, length, _)| (*cause, *length)).collect::<Vec<_>>()
    };
    // In a program, in the kernel, and idle: the late timer interrupt reads the counter.
    let idle: Vec<_> = interrupt(400, 2, 407).into_iter().skip(1).chain([(5, switch(0, HOG))]).collect();
    for mut events in [interrupt(400, 1, 407), interrupt(400, 2, 407), idle] {
        events.push((400, firmware(2, 50)));
        events.sort_by_key(|event| event.0);
        let late_as_well =
            cpu(&[(10, switch(0, HOG)), (402, hard("local timer")), (403, timer(130)), (404, EXIT)]);
        assert_eq!(found(vec![cpu(&events), late_as_well]), late);
    }
    let mut events = interrupt(400, 2, 407);
    events.insert(1, (400, firmware(2, 50)));
    assert_eq!(charged(&case, vec![cpu(&events)])[0].2, "2 SMIs");
}

#[test]
fn given_smis_and_evidence_of_something_else_then_the_evidence_counts() {
    let with_smis = |mut events: Vec<(u64, EventKind)>| {
        events.push((events[1].0, firmware(1, 50)));
        events.sort_by_key(|event| event.0);
        cpu(&events)
    };
    // Nothing happened elsewhere, and no timer was late there: it may have been idle.
    let quiet = cpu(&[(10, switch(0, HOG)), (420, hard("local timer")), (421, timer(420)), (422, EXIT)]);
    let case = question(401, 402, 407);
    let segments = |cpus| attribute(&case, &EventLog { cpus, ..EventLog::default() });
    let found = segments(vec![with_smis(interrupt(400, 1, 407)), quiet.clone()]);
    assert_eq!((found[0].cause, found[0].who.as_str(), found[0].code.len()), (InterruptsOff, "hog", 2));
    let idle = [(5, switch(0, HOG))].into_iter().chain(interrupt(400, 2, 407).into_iter().skip(1)).collect();
    assert_eq!(segments(vec![with_smis(idle), quiet])[0].cause, IdleExit);
    // All CPUs stood still, too shortly to be significant; but the code is known.
    let late_as_well = |time, due| {
        cpu(&[(10, switch(0, HOG)), (time, hard("local timer")), (time + 1, timer(due)), (time + 2, EXIT)])
    };
    let short = question(131, 132, 137);
    let found = |stack| {
        let history = EventLog {
            cpus: vec![with_smis(interrupt(130, stack, 137)), late_as_well(132, 101)],
            ..EventLog::default()
        };
        attribute(&short, &history).remove(0)
    };
    let kept = found(1);
    assert_eq!((kept.cause, kept.code.len()), (InterruptsOff, 2));
    // Without code it was firmware; the running thread is still named.
    let unknown = found(3);
    assert_eq!((unknown.cause, unknown.who.as_str(), unknown.tid), (Firmware, "1 SMI while hog ran", HOG));
}

#[test]
fn given_a_thread_that_stops_the_cpu_then_it_comes_before_those_with_deadlines() {
    let stopper = Thread { tid: 20, priority: -2, name: "migration/0".into() };
    let mut events = interrupt(100, 2, 400);
    events[0].1 = EventKind::Switch { next: stopper, previous: thread(HOG), state: 0 };
    let case = LatencyInterval { priority: -1, ..question(101, 102, 400) };
    let found = charged(&case, vec![cpu(&events)]);
    assert_eq!(found, expected(&[(KernelOverhead, 4, ""), (ThreadInterference, 296, "migration/0")]));
}

#[test]
fn given_the_stack_of_the_longest_then_the_code_is_named() {
    let code =
        |functions: &[&str]| code_of(&functions.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>());
    let timer = ["bpf_prog_1_expire+0x1", "hrtimer_interrupt+0x1", "asm_sysvec_apic_timer_interrupt+0x1a"];
    assert_eq!(code(&[&timer[..], &["spin+0x5"]].concat()), ["spin+0x5"]);
    // A program.
    assert!(code(&timer).is_empty() && code(&[]).is_empty());
    assert_eq!(
        code(&["__traceiter_sched_switch+0x1", "__schedule+0x2", "schedule+0x2", "unlock+0x3"]),
        ["unlock+0x3"]
    );
}

#[test]
fn given_smis_where_others_went_on_or_at_another_time_then_the_cause_is_another() {
    let with = |event: (u64, EventKind), stack: u32| {
        let mut events = interrupt(400, stack, 407);
        events.push(event);
        events.sort_by_key(|event| event.0);
        cpu(&events)
    };
    let first = |history| charged(&question(401, 402, 407), history)[0].0;
    let busy = cpu(&[(10, switch(0, HOG)), (250, hard("irq 24 eth0")), (251, EXIT)]);
    // Firmware stops all CPUs, but another one took an interrupt meanwhile.
    assert_eq!(first(vec![with((400, firmware(1, 50)), 1), busy.clone()]), InterruptsOff);
    // A program can't disable interrupts, so nothing else explains it.
    assert_eq!(first(vec![with((400, firmware(1, 50)), 2), busy]), Firmware);
    // They occurred before, or on another CPU.
    assert_eq!(first(vec![with((90, firmware(1, 50)), 2)]), LateTimer);
    let elsewhere = cpu(&[(10, switch(0, HOG)), (405, firmware(1, 50))]);
    assert_eq!(first(vec![cpu(&interrupt(400, 2, 407)), elsewhere]), LateTimer);
    // The running thread is the cause, whatever firmware did.
    let mut events = interrupt(100, 1, 400);
    events[0].1 = switch(5, 0);
    events.push((399, firmware(1, 50)));
    events.sort_by_key(|event| event.0);
    let found = charged(&question(101, 102, 400), vec![cpu(&events)]);
    assert_eq!(found.last().map(|segment| segment.0), Some(ThreadInterference));
}

#[test]
fn given_a_lower_thread_that_goes_on_after_the_wake_up_then_preemption_is_off() {
    let found = charged(&question(101, 102, 500), vec![cpu(&interrupt(100, 1, 500))]);
    assert_eq!(found, expected(&[(KernelOverhead, 4, ""), (PreemptionOff, 396, "hog")]));
}

#[test]
fn given_no_stack_of_the_interrupt_then_the_code_is_what_switched_in_the_end() {
    let events: Vec<_> =
        interrupt(100, 1, 500).into_iter().filter(|event| !matches!(event.1, EventKind::Stack(_))).collect();
    let segments =
        attribute(&question(101, 102, 500), &EventLog { cpus: vec![cpu(&events)], ..EventLog::default() });
    let last = segments.last().expect("a segment");
    assert_eq!((last.cause, last.code.clone()), (PreemptionOff, vec!["unlock+0x3".to_owned()]));
}

#[test]
fn given_others_between_wake_up_and_switch_then_each_is_charged() {
    let events = [
        (10, switch(5, 0)),
        (100, hard("local timer")),
        (101, timer(100)),
        (102, woken(0)),
        (103, EventKind::TimerExit),
        (104, EXIT),
        (200, hard("irq 24 eth0")),
        (250, EXIT),
        (250, EventKind::SoftEntry(3)),
        (290, EventKind::SoftExit(3)),
        (400, switch(LATE, 5)),
    ];
    let found = charged(&question(101, 102, 400), vec![cpu(&events)]);
    let expected_segments = [
        (KernelOverhead, 4, ""),
        (ThreadInterference, 96, "urgent"),
        (IrqInterference, 50, "irq 24 eth0"),
        (SoftirqInterference, 40, "net_rx"),
        (ThreadInterference, 110, "urgent"),
    ];
    assert_eq!(found, expected(&expected_segments));
}

#[test]
fn given_a_long_handler_of_another_timer_in_the_same_interrupt_then_it_is_the_interrupts() {
    let events = [
        (10, switch(HOG, 0)),
        (100, hard("local timer")),
        (101, timer(100)),
        (301, EventKind::TimerExit),
        (302, timer(100)),
        (303, woken(0)),
        (304, EventKind::TimerExit),
        (305, EXIT),
        (308, switch(LATE, HOG)),
    ];
    let found = charged(&question(302, 303, 308), vec![cpu(&events)]);
    assert_eq!(
        found,
        expected(&[
            (KernelOverhead, 1, ""),
            (IrqInterference, 200, "local timer: hrtimer_wakeup"),
            (KernelOverhead, 7, "")
        ])
    );
}

#[test]
fn given_an_idle_cpu_then_it_wakes_up() {
    let events = [
        (10, switch(0, HOG)),
        (180, hard("local timer")),
        (181, timer(100)),
        (182, woken(0)),
        (183, EventKind::TimerExit),
        (184, EXIT),
        (220, switch(LATE, 0)),
    ];
    let found = charged(&question(181, 182, 220), vec![cpu(&events)]);
    assert_eq!(found, expected(&[(IdleExit, 80, ""), (KernelOverhead, 4, ""), (IdleExit, 36, "")]));
}

#[test]
fn given_all_cpus_silent_and_late_then_it_is_hardware() {
    let other = cpu(&[(10, switch(HOG, 0)), (402, hard("local timer")), (403, timer(130)), (404, EXIT)]);
    // Kernel code was interrupted: on one CPU alone, this would mean interrupts off.
    let found = charged(&question(401, 402, 407), vec![cpu(&interrupt(400, 1, 407)), other]);
    assert_eq!(found, expected(&[(LateTimer, 300, ""), (KernelOverhead, 7, "")]));
    // The other CPU worked.
    let other =
        cpu(&[(10, switch(HOG, 0)), (250, switch(5, HOG)), (402, hard("local timer")), (403, timer(130))]);
    let found = charged(&question(401, 402, 407), vec![cpu(&interrupt(400, 1, 407)), other]);
    assert_eq!(found, expected(&[(InterruptsOff, 300, "hog"), (KernelOverhead, 7, "")]));
}

#[test]
fn given_a_wake_up_by_another_cpu_then_its_interrupt_parts_interrupts_off_from_preemption_off() {
    let waker = cpu(&[
        (10, switch(0, HOG)),
        (100, hard("local timer")),
        (101, timer(100)),
        (102, woken(0)),
        (103, EventKind::TimerExit),
        (104, EXIT),
    ]);
    let own = cpu(&[
        (10, switch(HOG, 0)),
        (202, hard("reschedule")),
        (202, EventKind::Stack(1)),
        (203, EXIT),
        (303, switch(LATE, HOG)),
    ]);
    let found = charged(&question(101, 102, 303), vec![own, waker]);
    let expected_segments = [
        (KernelOverhead, 2, ""),
        (InterruptsOff, 100, "hog"),
        (IrqInterference, 1, "reschedule"),
        (PreemptionOff, 100, "hog"),
    ];
    assert_eq!(found, expected(&expected_segments));
}

#[test]
fn given_a_thread_that_moves_then_each_cpu_is_asked_for_its_time() {
    let first = cpu(&[
        (10, switch(5, 0)),
        (100, hard("local timer")),
        (101, timer(100)),
        (102, woken(1)),
        (103, EventKind::TimerExit),
        (104, EXIT),
    ]);
    let second = cpu(&[
        (10, switch(0, HOG)),
        (200, EventKind::Migration { thread: thread(LATE), from: 0, to: 1 }),
        (230, switch(LATE, 0)),
    ]);
    let case = LatencyInterval { cpu: 1, ..question(101, 102, 230) };
    // It waited on CPU 0 behind the urgent thread, then migrated to CPU 1.
    let moved = EventLog { cpus: vec![first, second], ..EventLog::default() };
    let segments = attribute(&case, &moved);
    assert_whole(&case, &segments);
    let found: Vec<_> = segments.iter().map(|segment| (segment.cause, segment.cpu)).collect();
    assert_eq!(found, [(KernelOverhead, 0), (ThreadInterference, 0), (IdleExit, 1)]);
}

#[test]
fn given_a_thread_that_has_raised_itself_then_its_priority_counts() {
    let mut events = interrupt(100, 2, 400);
    events[1].1 = EventKind::HardEntry { number: 1, name: "local timer".into(), runs: Some(9) };
    let found = charged(&question(101, 102, 400), vec![cpu(&events)]);
    assert_eq!(found, expected(&[(KernelOverhead, 4, ""), (ThreadInterference, 296, "hog")]));
}

#[test]
fn given_nothing_or_too_little_then_it_is_unknown() {
    assert_eq!(charged(&question(101, 102, 400), Vec::new()), expected(&[(Unknown, 300, "")]));
    let noted = CpuLog { known_from: 350 * US, ..cpu(&interrupt(100, 1, 400)) };
    let found = charged(&question(101, 102, 400), vec![noted]);
    assert_eq!(found, expected(&[(Unknown, 250, ""), (PreemptionOff, 50, "hog")]));
}

#[test]
fn given_a_wake_up_without_a_timer_then_it_begins_there() {
    let case = LatencyInterval { intended: 0, fired: 0, ..question(0, 150, 400) };
    let events = [(10, switch(5, 0)), (150, woken(0)), (400, switch(LATE, 5))];
    assert_eq!(charged(&case, vec![cpu(&events)]), expected(&[(ThreadInterference, 250, "urgent")]));
}

#[test]
fn whatever_the_moments_are_the_segments_are_the_latency() {
    let mut state = 7u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    for round in 0..3000 {
        let mut cpus = Vec::new();
        for _ in 0..random(4) {
            let mut events: Vec<SchedEvent> = (0..random(60))
                .map(|_| {
                    let tid = [0, 5, LATE, HOG][random(4) as usize];
                    let kind = match random(12) {
                        0 => switch(tid, [0, 5, LATE, HOG][random(4) as usize]),
                        1 => hard("x"),
                        2 => EXIT,
                        3 => EventKind::SoftEntry(random(20) as u32),
                        4 => EventKind::SoftExit(0),
                        5 => timer(random(400)),
                        6 => EventKind::TimerExit,
                        7 => woken(random(5) as u32),
                        8 => EventKind::Migration {
                            thread: thread(tid),
                            from: random(5) as u32,
                            to: random(5) as u32,
                        },
                        9 => EventKind::Idle(None),
                        10 => EventKind::Firmware { count: random(3) as u32, since: random(600) * US },
                        _ => EventKind::Stack(random(4) as u32),
                    };
                    // Some at the extremes of time.
                    let time = if random(50) == 0 { u64::MAX - random(3) } else { random(600) * US };
                    SchedEvent { time, kind }
                })
                .collect();
            events.sort_by_key(|event| event.time);
            cpus.push(CpuLog { events, known_from: random(300) * US, ..cpu(&[]) });
        }
        let history = EventLog { cpus, ..EventLog::default() };
        let end = [random(600) * US, u64::MAX][usize::from(round % 100 == 0)];
        let case = LatencyInterval {
            intended: [0, random(700) * US][random(2) as usize],
            fired: random(700) * US,
            woken: random(700) * US,
            end,
            cpu: random(5) as u32,
            ..question(0, 0, 0)
        };
        assert_whole(&case, &attribute(&case, &history));
    }
}

#[test]
fn given_a_deadline_thread_without_a_wakeup_then_its_timer_has_the_cpu() {
    // The thread finally runs on CPU 0. CPU 1 was idle at the intended expiry and woke it long
    // before.
    let replenishes = EventKind::TimerEntry { intended: 100 * US, function: 0xd, soft: false };
    let own = cpu(&[(50, switch(HOG, 0)), (130, switch(LATE, HOG))]);
    let other = cpu(&[
        (10, woken(0)),
        (20, switch(0, HOG)),
        (118, hard("local timer")),
        (119, replenishes),
        (125, EXIT),
        (400, switch(HOG, 0)),
    ]);
    let question = question(120, 121, 130);
    let history =
        EventLog { cpus: vec![own, other], functions: BTreeMap::from([(0xd, "dl_task_timer".to_owned())]) };
    let segments = attribute(&question, &history);
    assert_whole(&question, &segments);
    assert_eq!(
        (segments[0].cpu, segments[0].begin, segments[0].who.as_str()),
        (1, 100 * US, ""),
        "{segments:?}"
    );
    assert_ne!(segments[0].cause, InterruptsOff, "{segments:?}");
}
