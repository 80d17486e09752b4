//! Configuration of recordings: contexts, filters, snapshots.

use std::process::Command;

use crate::{
    attach::{Ticker, wait_for_events},
    support::{Event, TestDir, Trace, event, finish, run, start, tompion},
};

fn record(options: &[&str]) -> (TestDir, Trace) {
    let dir = TestDir::new();
    let program = dir.program("chooser");
    let trace = dir.record(options, &[&program]);
    (dir, trace)
}

fn steps(trace: &Trace) -> Vec<Event> {
    trace.events().into_iter().filter(|event| event.name == "chooser:step").collect()
}

/// The workers and numbers of recorded steps, sorted. The worker is told by the application's
/// context.
fn chosen(options: &[&str]) -> Vec<(u64, u64)> {
    let (_shop, trace) = record(&[&["-c", "app"], options].concat());
    trace.agreed_text();
    workers_and_numbers(&trace.events())
}

fn workers_and_numbers(events: &[Event]) -> Vec<(u64, u64)> {
    let worker = |event: &Event| event.context["app_net_request"].as_u64().expect("a context") / 100;
    let steps = events.iter().filter(|event| event.name == "chooser:step");
    let mut steps: Vec<_> = steps.map(|event| (worker(event), event.number("i"))).collect();
    steps.sort_unstable();
    steps
}

fn all(workers: &[u64], numbers: impl Iterator<Item = u64> + Clone) -> Vec<(u64, u64)> {
    workers.iter().flat_map(|worker| numbers.clone().map(move |number| (*worker, number))).collect()
}

#[test]
fn filters_choose_by_fields() {
    for (filter, numbers) in [
        ("i >= 7", vec![7, 8, 9]),
        ("i < 0x2 || i == 9", vec![0, 1, 9]),
        (r#"parity == "o*" && !(i > 4)"#, vec![1, 3]),
        ("half == 1.5 || half > 4", vec![3, 9]),
        ("three[2] % 4 == 1 && three[0] == 1", vec![1, 5, 9]),
        (r#"i << 1 == 4 | parity == "none""#, vec![2]),
    ] {
        assert_eq!(chosen(&["--filter", filter]), all(&[0, 1, 2], numbers.into_iter()), "{filter}");
    }
}

#[test]
fn filters_choose_by_what_the_application_says() {
    assert_eq!(
        chosen(&["--filter", "$app.net:request >= 105 && $app.net:request < 202"]),
        [all(&[1], 5..10), all(&[2], 0..2)].concat()
    );
    assert_eq!(chosen(&["--filter", r#"$app.net:user == "user-2" && i == 3"#]), [(2, 3)]);
}

/// A recording with a filter has the events that `print` passes with the same filter of a recording
/// of everything.
#[test]
fn filters_choose_afterwards_as_they_would_have_at_the_time() {
    let (_shop, trace) = record(&["-c", "comm,app,pid"]);
    let workers = [0, 1, 2];
    for (filter, expected) in [
        ("i >= 7", all(&workers, 7..10)),
        ("i < 0x2 || i == 9", all(&workers, [0, 1, 9].into_iter())),
        (r#"parity == "o*" && !(i > 4)"#, all(&workers, [1, 3].into_iter())),
        ("half == 1.5 || half > 4", all(&workers, [3, 9].into_iter())),
        ("three[2] % 4 == 1 && three[0] == 1", all(&workers, [1, 5, 9].into_iter())),
        (r#"i << 1 == 4 | parity == "none""#, all(&workers, 2..3)),
        ("$app.net:request >= 105 && $app.net:request < 202", [all(&[1], 5..10), all(&[2], 0..2)].concat()),
        (r#"$app.net:user == "user-2" && i == 3"#, all(&[2], 3..4)),
        (r#"$comm == "worker-1""#, all(&[1], 0..10)),
        (r#"$comm != "worker-0" && $cpu < 4096 && i == 0"#, all(&[1, 2], 0..1)),
        ("$tid == $pid && i == 0", Vec::new()),
        ("$tid != $pid && i == 0", all(&workers, 0..1)),
    ] {
        let filtered =
            run(tompion().args(["print", "--format", "json", "--filter", filter]).arg(&trace.folder));
        let events = filtered.succeeded().out.lines().map(event).collect::<Vec<_>>();
        assert_eq!(workers_and_numbers(&events), expected, "{filter}");
    }
}

#[test]
fn filters_choose_by_what_only_the_session_knows() {
    assert_eq!(chosen(&["--filter", r#"$comm == "worker-1""#]), all(&[1], 0..10));
    assert_eq!(
        chosen(&["--filter", r#"$comm == "worker-?" && $prio >= 0 && i > 7"#]),
        all(&[0, 1, 2], 8..10)
    );
    assert_eq!(chosen(&["--filter", r#"$comm != "worker-0" && $cpu < 4096 && i == 0"#]), all(&[1, 2], 0..1));
}

/// The session gets both contexts if only it knows one of them, and only the agent the other.
#[test]
fn filters_choose_by_what_the_application_and_the_session_know() {
    let (_shop, trace) = record(&["--filter", r#"$app.net:request % 100 < 2 && $comm == "worker-1""#]);
    assert_eq!(workers_and_numbers(&trace.events()), all(&[1], 0..2));
}

#[test]
fn filters_know_the_process_also_in_a_child() {
    let dir = TestDir::new();
    let trace = dir.record(&["--filter", "own == $pid && own != of"], &[&dir.program("careful")]);
    let events = trace.events();
    let processes = |name: &str| {
        let own = events.iter().filter(|event| event.name == name).map(|event| event.number("own"));
        own.collect::<std::collections::BTreeSet<_>>()
    };
    let (parent, child) = (processes("filtered:parent"), processes("filtered:child"));
    assert_eq!((parent.len(), child.len()), (1, 1));
    assert_ne!(parent, child);
}

/// A length of -1 harms as little as without a filter: nothing is read, the event is counted as
/// lost.
#[test]
fn filters_read_no_more_than_a_record_can_hold() {
    let dir = TestDir::new();
    let program = dir.program("careful");
    for (number, (filter, expected)) in [
        ("list[4000000000] == 1 || i == 3", &[3][..]),
        ("list[1] == 'b'", &[0, 1, 3]),
        ("i > 2 && none[0] == 0 || i == 0", &[0]),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("trace-{number}");
        let options = ["-e", "filtered:list", "--filter", filter];
        run(&mut dir.recording(&name, &options, &[&program])).succeeded();
        let trace = dir.trace(&name);
        let numbers: Vec<_> = trace.events().iter().map(|event| event.number("i")).collect();
        assert_eq!(numbers, expected, "{filter}");
        let lost = if filter.contains("i > 2") {
            serde_json::json!({"total": 0})
        } else {
            serde_json::json!({"total": 1, "too_large": 1})
        };
        assert_eq!(trace.stat()["lost"], lost, "{filter}");
    }
}

/// Results of a filter are rounded as everywhere, and floating-point exceptions of the program stay
/// unchanged.
#[test]
fn filters_leave_floating_point_to_the_program() {
    let dir = TestDir::new();
    let program = dir.link("exact", &["exact.c"], &["-lm"]);
    for (number, (filter, expected)) in [
        ("odd * 2 == odd || third + large > huge * 1e10 || i < 60", 60),
        ("third * 0.1 == 0.03333333333333333 && quiet != quiet && i >= 50", 10),
        ("large + 0.5 > 1.5 && huge * 10 > huge && i % 2 == 0", 30),
    ]
    .into_iter()
    .enumerate()
    {
        let name = format!("trace-{number}");
        let said = run(&mut dir.recording(&name, &["--filter", filter], &[&program])).succeeded();
        assert_eq!(said.out, "exceptions 0, rounding upwards\n", "{filter}");
        assert_eq!(dir.trace(&name).events().len(), expected, "{filter}");
    }
}

#[test]
fn a_filter_that_nothing_passes_or_that_is_none_is_said() {
    let dir = TestDir::new();
    let program = dir.program("chooser");
    let said = run(&mut dir.recording("trace", &["--filter", "i > 1000"], &[&program])).exited(125);
    assert!(said.err.contains("nothing recorded: no event passed the filter"), "{}", said.err);
    let said = run(&mut dir.recording("trace", &["--filter", "i > (1000"], &[&program])).exited(125);
    assert!(said.err.contains("i > (1000\n") && said.err.contains("^ expected `)`"), "{}", said.err);
    let said = run(&mut dir.recording("trace", &["--filter", "$thread == 1"], &[&program])).exited(125);
    assert!(said.err.contains("$thread == 1\n^^^^^^^ expected a context ("), "{}", said.err);
    let said = run(&mut dir.recording("trace", &["-c", "comn"], &[&program])).exited(125);
    assert!(said.err.contains("did you mean `comm`?"), "{}", said.err);
}

#[test]
fn contexts_stand_with_every_event() {
    let (_shop, trace) = record(&["-c", "pid,comm,prio,ns,cgroup,app"]);
    trace.agreed_text();
    let events = trace.events();
    let steps = steps(&trace);
    assert_eq!(steps.len(), 30);
    for step in &steps {
        let request = step.context["app_net_request"].as_u64().expect("a request");
        assert_eq!(step.context["app_net_user"], format!("user-{}", request / 100));
        assert_eq!(step.context["procname"], format!("worker-{}", request / 100));
        assert!((0..140).contains(&step.context["prio"].as_i64().expect("a priority")));
        assert_eq!(step.context["vpid"], events[0].context["vtid"], "the main thread has the process's id");
        let own = std::fs::metadata("/proc/self/ns/net").expect("a namespace");
        assert_eq!(step.context["net_ns"], std::os::unix::fs::MetadataExt::ino(&own));
        assert!(step.context["cgroup"].is_string());
    }
    // The first event was recorded before there was any context of the application's.
    assert_eq!(events[0].name, "chooser:begin");
    assert!(events[0].context.get("app_net_request").is_none());
    let end = &events[events.len() - 1];
    assert_eq!(
        (&end.fields["first"], &end.fields["second"], &end.fields["third"]),
        (&0.into(), &0.into(), &(-1).into())
    );
}

#[test]
fn a_program_asks_for_a_snapshot_from_a_signal_handler() {
    let dir = TestDir::new();
    let program = dir.program("chooser");
    let options = ["--mode", "overwrite"];
    let said = run(&mut dir.recording("trace", &options, &[&program, &"snapshot"])).succeeded();
    // The event of the request itself is in it or not, as the session comes sooner or later.
    let saved = ["saved 32 events, as chooser (", "saved 33 events, as chooser ("];
    assert!(saved.iter().any(|words| said.err.contains(words)), "{}", said.err);
    let trace = dir.trace("trace");
    assert_eq!(trace.agreed_text(), 34);
    let events = trace.events();
    let asked = events.iter().find(|event| event.name == "chooser:asked").expect("the handler's event");
    assert_eq!(asked.fields["answer"], 0);
}

/// The spans of `spans.c` whose rows a filter lets through, as begins and ends in their order.
fn expected_spans(passes: impl Fn(u32) -> bool, bare: bool) -> Vec<String> {
    let mut names = Vec::new();
    for i in 0..10 {
        let spans = [("outer", passes(i)), ("inner", passes(9 - i)), ("bare", bare), ("job", passes(i))];
        let recorded = || spans.iter().filter(|(_, recorded)| *recorded);
        names.extend(recorded().map(|(name, _)| format!("spans:{name}_begin")));
        names.extend(recorded().rev().map(|(name, _)| format!("spans:{name}_end")));
    }
    names
}

/// Names of the spans' events in their order.
fn spans(trace: &Trace) -> Vec<String> {
    trace.agreed_text();
    trace.events().into_iter().map(|event| event.name).filter(|name| name != "spans:waiting").collect()
}

#[test]
fn a_span_that_passes_a_filter_is_recorded_with_its_end_and_no_other_end() {
    let dir = TestDir::new();
    let program = dir.program("spans");
    for (filter, expected) in [
        ("rows > 6", expected_spans(|rows| rows > 6, false)),
        ("$tid > 0 && rows == 5", expected_spans(|rows| rows == 5, false)),
        ("$tid > 0", expected_spans(|_| true, true)),
        // The program knows the one, the session the other.
        (r#"rows > 6 && $comm == "spans*""#, expected_spans(|rows| rows > 6, false)),
    ] {
        let trace = dir.record(&["--filter", filter], &[&program]);
        assert_eq!(spans(&trace), expected, "{filter}");
        std::fs::remove_dir_all(&trace.folder).unwrap();
    }
}

#[test]
fn a_filter_of_the_session_that_nothing_passes_stops_nothing() {
    let dir = TestDir::new();
    let options = ["--filter", r#"$comm == "absent""#];
    let recording = run(&mut dir.recording("trace", &options, &[&dir.program("spans")])).exited(125);
    assert_eq!(recording.err, "tompion: nothing recorded: no event passed the filter\n");
}

#[test]
fn two_recordings_of_a_process_get_each_the_ends_of_their_own_spans() {
    let dir = TestDir::new();
    let process = Ticker::start(&mut Command::new(dir.program("spans")));
    let pid = process.pid();
    let options: [(&str, &[&str]); 2] = [("all", &[]), ("few", &["--filter", "rows < 2"])];
    let recordings = options.map(|(name, options)| {
        let recording = start(dir.tompion(&["record", "-o", name, "-p", &pid]).args(options));
        wait_for_events(&dir.path(name));
        recording
    });
    process.end();
    recordings.into_iter().for_each(|recording| drop(finish(recording, "record -p").succeeded()));
    assert_eq!(spans(&dir.trace("all")), expected_spans(|_| true, true));
    assert_eq!(spans(&dir.trace("few")), expected_spans(|rows| rows < 2, false));
}
