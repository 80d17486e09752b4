//! Events of `--preload func`, and the names that `print` gives to addresses.

use std::{collections::BTreeSet, fs, path::PathBuf, process::Command};

use serde_json::Value;

use crate::support::{TestDir, Trace, beside, finish, rounds, run, signal, start, tompion, wait_until};

const INSTRUMENT: &str = "-finstrument-functions";
/// Option without inlining: an inlined function would have its caller's caller.
const AS_WRITTEN: &str = "-O0";
/// Room for everything.
const ROOMY: [&str; 6] = ["--preload", "func", "--subbuf-size", "1M", "--subbufs", "8"];

/// The program that calls all kinds of functions, built with these flags, and its plugins.
struct Calls {
    dir: TestDir,
    program: PathBuf,
    plugins: Vec<PathBuf>,
}

impl Calls {
    fn new(flags: &[&str]) -> Self {
        let dir = TestDir::new();
        let object = ["-shared", "-fPIC", INSTRUMENT, AS_WRITTEN];
        dir.link("libwork.so", &["func_library.c"], &object);
        let folder = dir.path("");
        let (search, find) = (format!("-L{}", folder.display()), format!("-Wl,-rpath,{}", folder.display()));
        let own = [&[INSTRUMENT, AS_WRITTEN, "-lwork", "-ldl", &search, &find][..], flags].concat();
        let program = dir.link("calls", &["func_calls.c"], &own);
        let plugin = |name: &str| {
            let define = format!("-DNAME={name}");
            let flags = [&object[..], &[define.as_str()]].concat();
            dir.link(&format!("{name}.so"), &["func_plugin.c"], &flags)
        };
        let plugins = vec![plugin("plugin_a"), plugin("plugin_b")];
        Self { dir, program, plugins }
    }

    fn record(&self, options: &[&str], rounds: &str) -> Trace {
        let mut words: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&self.program, &rounds];
        words.extend(self.plugins.iter().map(|plugin| plugin as &dyn AsRef<std::ffi::OsStr>));
        self.dir.record(options, &words)
    }
}

/// Entries and exits as `print` shows them: event, process, and the names of function and caller.
fn named(trace: &Trace) -> Vec<(String, String, String, String)> {
    let json = run(tompion()
        .args(["print", "--format", "json", "-e", "lttng_ust_cyg_profile:*"])
        .arg(&trace.folder));
    let json = json.succeeded().out;
    let events = json.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    events
        .map(|event| {
            let (function, caller) = (&event["symbols"]["addr"], &event["symbols"]["call_site"]);
            (text(&event["event"]), text(&event["trace"]), text(function), text(caller))
        })
        .collect()
}

/// Returns each entered function with its caller.
fn calls(trace: &Trace) -> BTreeSet<String> {
    let entries = named(trace).into_iter().filter(|(event, ..)| event.ends_with(":func_entry"));
    let base = |name: &str| name.split('+').next().unwrap_or_default().to_owned();
    entries.map(|(.., function, caller)| format!("{function} from {}", base(&caller))).collect()
}

/// Calls of every build of the program that has all names.
const CALLS: [&str; 12] = [
    "in_child from main",
    "library_inner from library_work",
    "library_work from in_child",
    "library_work from main",
    "own_inner from own_work",
    "own_work from main",
    "plugin_a_inner from plugin_work",
    "plugin_b_inner from plugin_work",
    "plugin_work from use_plugin",
    "use_plugin from main",
    "main from ",
    "compare from ",
];

#[track_caller]
fn expect_calls(found: &BTreeSet<String>, expected: &[&str]) {
    for call in expected {
        let prefix = call.ends_with(' ');
        assert!(
            found.iter().any(|name| name == call || prefix && name.starts_with(call)),
            "{call}: {found:#?}"
        );
    }
}

#[test]
fn functions_have_names_in_programs_libraries_plugins_and_children() {
    for flags in [["-fPIE", "-pie"], ["-fno-pie", "-no-pie"]] {
        let calls_of = Calls::new(&flags);
        let trace = calls_of.record(&ROOMY, "2");
        expect_calls(&calls(&trace), &CALLS);

        // Each process ended what it began.
        let named = named(&trace);
        let count = |end: &str| named.iter().filter(|(event, ..)| event.ends_with(end)).count();
        assert_eq!(count(":func_entry"), count(":func_exit"));
        assert!(trace.printed().contains(" } # own_inner from own_work+0x"));
    }
}

#[test]
fn names_can_be_left_out_and_the_text_is_babeltraces() {
    let calls_of = Calls::new(&[]);
    let trace = calls_of.record(&ROOMY, "1");
    let ours = run(tompion().args(["print", "--no-symbols"]).arg(&trace.folder)).succeeded().out;
    let theirs = trace.babeltrace();
    // Two processes can have events of one time, whose order readers may choose.
    let sorted = |text: &str| {
        let without_delta = |line: &str| line.split_once(") ").map(|(_, rest)| rest.to_owned());
        let mut lines: Vec<_> = text.lines().filter_map(without_delta).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(&ours), sorted(&theirs.out));
    assert_eq!(theirs.err, "");
    assert!(!ours.contains(" # "));
}

#[test]
fn a_flight_recorder_knows_objects_whose_loading_was_overwritten() {
    let options = ["--preload", "func", "--mode", "overwrite", "--subbuf-size", "4K", "--subbufs", "2"];
    let calls_of = Calls::new(&[]);
    let trace = calls_of.record(&options, "500");
    assert_ne!(trace.stat()["overwritten"], 0);
    let found = calls(&trace);
    expect_calls(&found, &["plugin_a_inner from plugin_work", "plugin_b_inner from plugin_work"]);
    assert!(found.iter().all(|call| !call.contains('[')), "{found:#?}");
}

#[test]
fn plugins_that_are_loaded_again_are_distinguished_and_described_once() {
    let calls_of = Calls::new(&[]);
    let trace = calls_of.record(&ROOMY, "300");
    let events = trace.events();
    let loads = events.iter().filter(|event| event.name == "lttng_ust_lib:load").count();
    // Each takes the other's place each time.
    assert!((600..900).contains(&loads), "{loads}");
    let names: Vec<String> = named(&trace)
        .into_iter()
        .filter(|(event, _, function, _)| event.ends_with("entry") && function.ends_with("_inner"))
        .map(|(.., function, _)| function)
        .filter(|function| function.starts_with("plugin_"))
        .collect();
    assert_eq!(names.len(), 600);
    for pair in names.chunks(2) {
        assert_eq!(pair, ["plugin_a_inner", "plugin_b_inner"]);
    }

    // One that always comes back to its place is known.
    let alone = Calls { plugins: calls_of.plugins[..1].to_vec(), ..calls_of };
    fs::rename(&trace.folder, trace.folder.with_extension("first")).unwrap();
    let events = alone.record(&ROOMY, "300").events();
    let path = alone.plugins[0].to_str().unwrap();
    let loads = events.iter().filter(|event| event.fields["path"] == path).count();
    assert!((1..10).contains(&loads), "{loads}");
}

#[test]
fn threads_signals_and_plugins_at_once_do_no_harm() {
    let calls_of = Calls::new(&[]);
    let storm = calls_of.dir.link("storm", &["func_storm.c"], &[INSTRUMENT, AS_WRITTEN, "-ldl"]);
    let rounds = rounds(200, 2000);
    let [a, b] = &calls_of.plugins[..] else { panic!("two plugins") };
    let trace = calls_of.dir.record(&ROOMY, &[&storm, &rounds.to_string(), a, b]);

    let found = calls(&trace);
    expect_calls(&found, &["own_work from worker", "in_handler from handler", "plugin_work from use_plugin"]);
    let nameless = |call: &&String| {
        call.starts_with('[') || call.contains("from [storm") || call.contains("from [plugin")
    };
    assert_eq!(found.iter().filter(nameless).count(), 0, "{found:#?}");
    let entered = named(&trace).into_iter().filter(|(event, ..)| event.ends_with("entry"));
    let plugins = entered.map(|(.., function, _)| function).filter(|name| name.ends_with("_inner"));
    let plugins: Vec<String> = plugins.collect();
    assert_eq!(plugins.len(), 2 * rounds as usize);
    assert!(plugins.chunks(2).all(|pair| pair == ["plugin_a_inner", "plugin_b_inner"]));
}

#[test]
fn a_name_is_right_or_left_out_when_there_is_no_more_room_to_tell_of_plugins() {
    let calls_of = Calls::new(&[]);
    let options = [&ROOMY[..4], &["--subbufs", "16", "-e", "*:func_entry"]].concat();
    let trace = calls_of.record(&options, "6000");
    let of_plugins = named(&trace).into_iter().map(|(.., function, _)| function);
    let of_plugins = of_plugins.filter(|name| name.starts_with("plugin_") || name.starts_with("[?+0x"));
    let names: Vec<String> = of_plugins.collect();
    assert_eq!(names.len(), 6000 * 4);
    for (name, right) in
        names.iter().zip(["plugin_work", "plugin_a_inner", "plugin_work", "plugin_b_inner"].iter().cycle())
    {
        assert!(name == right || name.starts_with('['), "{name} is {right}");
    }
    let left_out = names.iter().position(|name| name.starts_with('[')).expect("an end of the room");
    assert!(left_out > 6000, "{left_out}");
    assert!(names[left_out..].iter().all(|name| name.starts_with('[')));
}

#[test]
fn without_the_file_that_ran_there_are_no_names_of_it() {
    let calls_of = Calls::new(&["-rdynamic"]);
    let trace = calls_of.record(&ROOMY, "1");
    let inner =
        |trace: &Trace| calls(trace).into_iter().filter(|call| call.contains("own_")).collect::<Vec<_>>();
    assert_eq!(inner(&trace).len(), 2);

    // Stripped, it still has the names that others may look up.
    let whole = fs::read(&calls_of.program).unwrap();
    run(Command::new("strip").arg(&calls_of.program)).succeeded();
    let found = calls(&trace);
    expect_calls(&found, &["own_work from main", "library_inner from library_work"]);
    assert!(
        found.iter().any(|call| call.starts_with("[calls+0x") && call.ends_with(" from own_work")),
        "{found:#?}"
    );

    // Another build of it says nothing.
    calls_of.dir.link("calls", &["func_library.c", "func_calls.c"], &[INSTRUMENT, "-ldl", "-DNAME=x"]);
    assert_eq!(inner(&trace), [] as [&str; 0]);
    fs::remove_file(&calls_of.program).unwrap();
    assert_eq!(inner(&trace), [] as [&str; 0]);
    expect_calls(&calls(&trace), &["library_inner from library_work"]);
    let printed = trace.printed();
    assert!(printed.contains(" # library_inner from library_work+0x") && printed.contains(" # [calls+0x"));

    fs::write(&calls_of.program, whole).unwrap();
    assert_eq!(inner(&trace).len(), 2);
}

#[test]
fn names_of_cpp_are_as_they_were_written() {
    let dir = TestDir::new();
    let program = dir.path("names");
    let mut cc = dir.compile("c++", &program);
    run(cc.args([INSTRUMENT, AS_WRITTEN]).arg(beside("programs/func_names.cc"))).succeeded();
    let trace = dir.record(&ROOMY, &[&program]);
    let doubled = "geometry::Point<int>::doubled(std::__cxx11::basic_string<char, std::char_traits<char>, \
                   std::allocator<char> > const&) const from main";
    expect_calls(&calls(&trace), &[doubled, "geometry::Point<int>::Point(int) from main"]);
}

#[test]
fn a_process_that_was_attached_tells_where_its_objects_are() {
    let dir = TestDir::new();
    let program = dir.link("ticks", &["func_ticks.c"], &[INSTRUMENT, AS_WRITTEN]);
    let library = crate::support::libraries().join("libtompion-func.so");
    let running = start(Command::new(&program).env("LD_PRELOAD", &library).env("TOMPION_ATTACH", "1"));
    let pid = running.id();
    wait_until("the program runs", || dir.path("").exists());
    let options = ["record", "-o", "trace", "--duration", "300ms", "-p", &pid.to_string()];
    run(&mut dir.tompion(&options)).succeeded();
    signal(pid, rustix::process::Signal::KILL);
    finish(running, "ticks");

    let trace = dir.trace("trace");
    expect_calls(&calls(&trace), &["tick from main"]);
    assert!(trace.events().iter().any(|event| event.name == "lttng_ust_statedump:bin_info"));
}

#[test]
fn a_process_with_preloaded_events_alone_says_how_it_could_have_been_attached() {
    let dir = TestDir::new();
    let program = dir.link("ticks", &["func_ticks.c"], &[INSTRUMENT, AS_WRITTEN]);
    let library = crate::support::libraries().join("libtompion-func.so");
    let running = start(Command::new(&program).env("LD_PRELOAD", library));
    let pid = running.id();
    let maps = || fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
    wait_until("the program has its library", || maps().contains("libtompion-func.so"));
    let refused = run(&mut dir.tompion(&["record", "-o", "trace", "-p", &pid.to_string()])).exited(125);
    assert!(refused.err.contains("TOMPION_ATTACH=1"), "{}", refused.err);
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("a process that runs");
    assert_eq!(tasks.count(), 1);
    signal(pid, rustix::process::Signal::KILL);
    finish(running, "ticks");
}
