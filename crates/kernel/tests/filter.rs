//! Filters in the running kernel, compared with the same filters on a second recording of the same
//! moments. Where that isn't permitted, a line says so and nothing is tested.

mod support;

use std::{
    process::{Command, Stdio},
    sync::Arc,
    time::Duration,
};

use tompion_filter::{
    Contexts, EventSchema, Expression, Found, Kind, Name, Place, RecordValues, Shape, Value, parse,
};
use tompion_kernel::{
    AvailableEvents, Options, Recorder, Selection,
    decode::{Class, Decoder, Vocabulary},
    filter::Filter,
    records::{Records, UntrustedRecord},
    ring::Geometry,
};
use tompion_layout::loss::Cause;

use support::permitted;

/// Head of a record.
struct Head {
    tid: u32,
    pid: u32,
    cpu: u32,
}

impl Contexts for Head {
    fn number(&self, context: u16) -> Value {
        u64::from([self.tid, self.pid, self.cpu][usize::from(context)]).into()
    }

    fn text(&self, _context: u16) -> Option<&[u8]> {
        // The name of the program whose records are looked at; before it begins, it is the test's.
        Some(b"dd")
    }
}

fn context(name: &Name) -> Found<'static> {
    let known = |number, kind| Found { place: Place::Context(number), kind };
    match name.head() {
        "tid" => known(0, Kind::Integer),
        "pid" => known(1, Kind::Integer),
        "cpu" => known(2, Kind::Integer),
        "comm" => known(3, Kind::Text),
        _ => Found::ABSENT,
    }
}

/// Whether the filter, evaluated as every reader does, takes a record.
fn is_wanted(expression: &Expression, vocabulary: &Vocabulary, event: &Recorded) -> bool {
    let description = vocabulary.event(event.class);
    let shape = Shape::new(&description);
    let (fixed, tails) = shape.split(&event.payload);
    let values = RecordValues::new(fixed, &tails).with_contexts(&event.head);
    // What doesn't fit an event leaves it out.
    let program = tompion_filter::compile(expression, &EventSchema::new(&description, &context));
    program.is_ok_and(|program| program.evaluate(&values).is_true())
}

struct Recorded {
    class: Class,
    head: Head,
    payload: Vec<u8>,
}

/// A recording of everything, or of what a filter takes, and what describes it.
struct Recording {
    recorder: Recorder,
    vocabulary: Arc<Vocabulary>,
    filter: Option<Filter>,
}

impl Recording {
    fn begin(available: &AvailableEvents, patterns: &[&str], filter: Option<&str>) -> Self {
        let patterns: Vec<String> = patterns.iter().map(|&pattern| pattern.into()).collect();
        let mut selection = Selection::matching(available, &patterns).unwrap();
        let filter = filter.map(|text| Filter::new(text, &mut selection, &available.calls).unwrap());
        let vocabulary = Vocabulary {
            calls: available.calls.clone(),
            tracepoints: selection.tracepoints.clone(),
            probes: Vec::new(),
        };
        let geometry = Geometry::of_size(tompion_os::possible_cpus(), 16 << 20);
        // Children of this process are followed, but not itself: it is the recorder.
        let follow = vec![std::process::id()];
        let options = Options {
            selection,
            overwrite: false,
            geometry,
            follow,
            filter: filter.clone(),
            contexts: tompion_kernel::context::Contexts::default(),
        };
        let mut recorder = Recorder::load(&options, &available.calls).unwrap();
        recorder.attach().unwrap();
        Self { recorder, vocabulary: Arc::new(vocabulary), filter }
    }

    /// Ends the recorder, and returns how many events it lost.
    fn end(&mut self) -> u64 {
        self.recorder.detach();
        std::thread::sleep(Duration::from_millis(50));
        let cpus = 0..self.recorder.geometry().cpus;
        let lost = |cpu| Cause::ALL.iter().map(|&cause| self.recorder.ring(cpu).lost(cause)).sum::<u64>();
        self.recorder.misses() + cpus.map(lost).sum::<u64>()
    }

    /// Records of a process in the rings, CPU after CPU, in order.
    fn records(&self, pid: u32) -> Vec<Recorded> {
        let mut decoder = Decoder::new(self.vocabulary.clone());
        let mut all = Vec::new();
        for cpu in 0..self.recorder.geometry().cpus {
            let mut bytes = Vec::new();
            let span = self.recorder.ring(cpu).take(0, &mut bytes).unwrap().span;
            for record in Records::new(&bytes, span.begin) {
                let record: UntrustedRecord<'_> = record.unwrap();
                let (class, payload) = decoder.decode(&record).unwrap();
                if record.pid == pid {
                    let head = Head { tid: record.tid, pid, cpu };
                    all.push(Recorded { class, head, payload: payload.to_vec() });
                }
            }
        }
        all
    }
}

/// Text of a record, whatever number its tracepoint has in its recording.
fn shown(vocabulary: &Vocabulary, event: &Recorded) -> String {
    // A path that could not be read at a call's entry is read at its exit, if the entry is
    // recorded.
    let payload = if let Class::Exit(..) = event.class { &event.payload[..8] } else { &event.payload };
    format!("{} {payload:?} {}", vocabulary.event(event.class).name, event.head.cpu)
}

/// Events that a recorder which reads a path that isn't in memory causes for the other one.
const OF_RECORDERS: &str = "x86_exceptions_page_fault_kernel";

/// Records with and without the filter at the same time, and holds one against the other. None
/// where one of them lost events, which can happen to the other one's.
fn compare(available: &AvailableEvents, text: &str, patterns: &[&str]) -> Option<usize> {
    let mut filtered = Recording::begin(available, patterns, Some(text));
    let mut everything = Recording::begin(available, patterns, None);
    let program = Command::new("dd")
        .args(["if=/etc/passwd", "of=/dev/null", "bs=7", "count=100"])
        .stderr(Stdio::null())
        .spawn();
    let mut program = program.unwrap();
    let pid = program.id();
    program.wait().unwrap();
    let lost = everything.end() + filtered.end();
    if lost > 0 {
        println!("{lost} lost with {text}; again");
        return None;
    }
    let (all, vocabulary) = (everything.records(pid), &everything.vocabulary);
    let (found, filtered_vocabulary) = (filtered.records(pid), &filtered.vocabulary);
    let (expression, filter) = (parse(text).unwrap(), filtered.filter.as_ref().unwrap());
    let wanted = all.iter().filter(|event| vocabulary.event(event.class).name != OF_RECORDERS);
    let wanted = wanted.filter(|event| is_wanted(&expression, vocabulary, event));
    let wanted: Vec<String> = wanted.map(|event| shown(vocabulary, event)).collect();
    let left = |event: &&Recorded| {
        !filter.leaves_to_reader(event.class) || is_wanted(&expression, filtered_vocabulary, event)
    };
    let found = found.iter().filter(|event| filtered_vocabulary.event(event.class).name != OF_RECORDERS);
    let found = found.filter(left);
    let found: Vec<String> = found.map(|event| shown(filtered_vocabulary, event)).collect();
    for (place, (found, wanted)) in found.iter().zip(&wanted).enumerate() {
        assert_eq!(found, wanted, "record {place} of {text}");
    }
    assert_eq!(found.len(), wanted.len(), "{text}");
    Some(wanted.len())
}

#[test]
fn the_kernel_says_what_a_filter_says_of_its_records() {
    if !permitted() {
        return;
    }
    let available = AvailableEvents::of_this_kernel();
    let usual = [
        "sched_*",
        "irq_*",
        "x86_exceptions_*",
        "syscall_*",
        "signal_*",
        "kmem:kmem_cache_alloc",
        "kmem:*rss_stat",
        "timer_hrtimer*",
    ];
    let mut taken = 0;
    for text in [
        "next_tid > 0 && prev_tid != 0 || vec == 1 || sig >= -3",
        r#"prev_comm == "dd" || next_comm == "d*" || comm == "dd""#,
        r#"!(comm == "sh") && tid > 3"#,
        r#"filename == "/etc/*" || filename == "/dev/null" || filename == "*dd""#,
        "(ret < 0 && ret >= -2) || ret == 7",
        r#"$cpu == 1 && $tid != 0 && $pid == $tid && $comm != "dx""#,
        "prev_prio < 100 + 20 - 79 && (prev_state & 1) != 2",
        "address % 4096 < 64 && error_code != 6",
        "fd == 0 || dfd == -100 || dfd < 0 && flags > 0x7f",
        "$tid % 2 == 0 && missing == 1 || count >> 1 == 3",
        "!($tid >= 0 && missing == 1) || !(count != 7) || count - 8 == -1 && -count < 0 && ~count == -8",
        "bytes_alloc > 1000 || order >= 0 && ~order < 0 || ret >= 9_000_000_000_000_000_000",
        "offset == len || count == fd",
    ] {
        let count =
            (0..20).find_map(|_| compare(&available, text, &usual)).expect("a recording that loses nothing");
        println!("{count} of {text}");
        taken += count;
    }
    assert!(taken > 1000, "{taken}");
}
