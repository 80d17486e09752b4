//! Compares the kernel's trace with independent counts of the same time: the program's own, the
//! kernel's counters for perf, and getrusage. All events are there, or counted as lost.

use std::{collections::BTreeSet, process::Command};

use crate::{
    kernel::{lost, permitted, source},
    support::{Event, TestDir, Trace, rounds, run},
};

/// Bytes of a page.
const PAGE: u64 = 4096;

/// Counts that the program printed for one of its parts.
struct Part {
    tid: u64,
    /// Number of times that the program did it.
    done: u64,
    /// Counted by perf.
    perf: u64,
    /// Counted by getrusage.
    usage: Option<u64>,
    /// Address of what was touched.
    place: u64,
}

impl Part {
    /// `switches 4711 20000 40003 40003 0`
    fn parse(out: &str, name: &str) -> Self {
        let line = out.lines().find_map(|line| line.strip_prefix(name)).expect("a line of the program");
        let numbers: Vec<i64> = line.split_whitespace().map(|word| word.parse().expect("numbers")).collect();
        let [tid, done, perf, usage, place] = numbers[..] else { panic!("{line}") };
        let usage = u64::try_from(usage).ok();
        Self { tid: tid as u64, done: done as u64, perf: perf as u64, usage, place: place as u64 }
    }
}

/// The thread's events, cut at its calls of getsid(): `[1]` and `[3]` have the counters' readings,
/// `[2]` what was done between them, and so on. Nothing is lost in the trace.
fn cut(events: &[Event], tid: u64) -> Vec<Vec<&Event>> {
    let mut pieces = vec![Vec::new()];
    for event in events.iter().filter(|event| event.context["tid"].as_u64() == Some(tid)) {
        match event.name.as_str() {
            "syscall_entry_getsid" => pieces.push(Vec::new()),
            "syscall_exit_getsid" => {}
            _ => pieces.last_mut().expect("a piece").push(event),
        }
    }
    pieces
}

/// Returns the index of a part's piece: the warm-up comes first, and each part is between two
/// readings.
fn part_of(place: usize) -> usize {
    // Each reading is between two calls, so it makes two pieces; the first ones are the warm-up's.
    4 + 4 * place
}

/// Returns the numbers of events between two readings, and with the readings: a reading takes its
/// time.
fn bounds(pieces: &[Vec<&Event>], place: usize, counts: impl Fn(&Event) -> bool) -> (u64, u64) {
    let of = |piece: usize| pieces[piece].iter().filter(|event| counts(event)).count() as u64;
    let inner = of(part_of(place));
    (inner, of(part_of(place) - 1) + inner + of(part_of(place) + 1))
}

fn is_entry(event: &Event) -> bool {
    event.name.starts_with("syscall_entry_")
}

fn is_fault(event: &Event) -> bool {
    event.name.starts_with("x86_exceptions_page_fault_")
}

/// Records the program's three parts, with room for all of it.
fn recorded(dir: &TestDir) -> (Trace, String) {
    let program = dir.program("known_counts");
    let numbers =
        [rounds(30_000, 500_000), rounds(10_000, 200_000), rounds(5_000, 50_000)].map(|it| it.to_string());
    let options =
        ["-ksyscall_*,sched_switch,x86_exceptions_page_fault_*", "--subbuf-size", "16M", "--subbufs", "4"];
    let mut record = dir.recording("trace", &options, &[&program, &numbers[0], &numbers[1], &numbers[2]]);
    let out = run(&mut record).succeeded().out;
    (dir.trace("trace"), out)
}

#[test]
fn calls_switches_and_faults_are_as_many_as_others_count() {
    if !permitted() || !cfg!(target_arch = "x86_64") {
        return;
    }
    if !std::path::Path::new("/sys/kernel/tracing/events").exists() {
        eprintln!("SKIPPED, perf counts system calls by a number of tracefs, which is not mounted");
        return;
    }
    let dir = TestDir::new();
    let (trace, out) = recorded(&dir);
    let missing = lost(&source(&trace.manifest()));
    let events = trace.events();
    let [calls, switches, faults] = ["calls", "switches", "faults"].map(|name| Part::parse(&out, name));
    let pieces = cut(&events, calls.tid);
    if missing > 0 && pieces.len() != part_of(2) + 3 {
        // A mark was lost. The sum still says whether all is accounted for.
        let getpgid = events.iter().filter(|event| event.name == "syscall_entry_getpgid").count() as u64;
        assert!(getpgid <= calls.done && getpgid + missing >= calls.done, "{getpgid} + {missing}");
        return;
    }
    let agree = |what: &str, counted: u64, (least, most): (u64, u64)| {
        assert!(
            least <= counted && counted <= most + missing,
            "{what}: {counted}, {least} to {most}, {missing} lost"
        );
    };

    let own = pieces[part_of(0)].iter().filter(|event| event.name == "syscall_entry_getpgid").count() as u64;
    agree("calls of the program", calls.done, (own, own));
    // perf counts at a call's entry: the second reading's own, not the first one's; and between
    // them the two marks, at which the pieces are cut, and the first reading's getrusage.
    let (inner, _) = bounds(&pieces, 0, is_entry);
    agree("calls by perf", calls.perf, (inner + 4, inner + 4));

    let is_switch = |event: &Event| event.name == "sched_switch" && event.number("prev_tid") == switches.tid;
    let switched = bounds(&pieces, 1, is_switch);
    agree("switches by perf", switches.perf, switched);
    agree("switches by getrusage", switches.usage.expect("a count"), switched);
    assert!(switched.1 + missing >= switches.done, "each byte waits for its answer");

    agree("faults by perf", faults.perf, bounds(&pieces, 2, is_fault));
    let in_memory = |event: &&&Event| {
        (faults.place..faults.place + faults.done * PAGE).contains(&event.number("address"))
    };
    let touched = pieces[part_of(2)].iter().filter(|event| is_fault(event)).filter(in_memory);
    let pages: BTreeSet<u64> = touched.map(|event| event.number("address") / PAGE).collect();
    agree("pages that were touched", faults.done, (pages.len() as u64, pages.len() as u64));
    println!(
        "calls {own} ({} by perf), switches {switched:?}, faults {} by perf and {:?} by getrusage, {missing} lost",
        calls.perf, faults.perf, faults.usage
    );
}

#[test]
fn full_rings_and_losses_make_up_what_happened() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = dir.program("known_counts");
    let calls = u64::from(rounds(400_000, 4_000_000));
    let options = ["-ksyscall_entry_getpgid", "--subbuf-size", "64K", "--subbufs", "2"];
    run(&mut dir.recording("trace", &options, &[&program, &"only", &calls.to_string()])).succeeded();
    let trace = dir.trace("trace");
    let source = source(&trace.manifest());
    let found = trace.agreed_count();
    println!("{found} of {calls} calls, {} lost", lost(&source));
    assert_eq!(found + lost(&source), calls, "{source}");
    assert_eq!(trace.stat()["lost"]["total"].as_u64(), Some(lost(&source)));
}

#[test]
fn others_who_count_the_same_events_go_on_counting() {
    if !permitted() || !crate::support::installed("perf") {
        return;
    }
    let dir = TestDir::new();
    // A tracepoint that has no program of its own: perf's events and ours hang at one list.
    let command = ["perf", "stat", "-x,", "-e", "task:task_newtask", "sh", "-c", "/bin/true; /bin/true; :"];
    let perf = run(Command::new(command[0]).args(&command[1..]));
    if !perf.status.success() {
        eprintln!("SKIPPED, perf can't count here: {}", perf.err);
        return;
    }
    let count = |text: &str| -> u64 {
        let line = text.lines().find(|line| line.contains("task:task_newtask")).expect("perf's line");
        line.split(',').next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
    };
    let alone = count(&perf.err);
    let command: Vec<&dyn AsRef<std::ffi::OsStr>> = command.iter().map(|word| word as _).collect();
    let recorded = run(&mut dir.recording("trace", &["-ktask:task_newtask"], &command)).succeeded();
    assert_eq!(count(&recorded.err), alone, "{}", recorded.err);
    assert!(alone > 0);
}

#[test]
fn events_that_a_filter_rejects_are_not_reported_as_missing() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let script = "for i in 1 2 3 4 5 6 7 8 9 10; do sleep 0.01; done";
    let options = ["-ksched_switch", "--filter", "next_comm == \"sleep\""];
    let finished = run(&mut dir.recording("trace", &options, &[&"sh", &"-c", &script])).succeeded();
    assert!(!finished.err.contains("did not show"), "{}", finished.err);
    let events = dir.trace("trace").events();
    assert!(events.len() >= 10 && events.iter().all(|event| event.fields["next_comm"] == "sleep"));
}

/// Some kernels hide the threads of process 1 (docs/design/kernel.md), which the test doesn't need.
#[test]
fn threads_that_a_kernel_hides_raise_no_alarm() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let finished = run(&mut dir.recording("trace", &["-k", "sched_switch"], &[&"sleep", &"2"])).succeeded();
    assert!(!finished.err.contains("did not show"), "{}", finished.err);
    let problems = dir.trace("trace").manifest()["problems"].to_string();
    assert!(!problems.contains("did not show"), "{problems}");
}
