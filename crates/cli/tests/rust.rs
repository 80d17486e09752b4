//! Programs in Rust: every field, every place, every way to build them.
//!
//! The programs are the workspace `rust/`, which depends on the crate `tompion` as a user's would.

use std::{
    fs,
    io::Read,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Mutex,
};

use serde_json::{Value, json};

use crate::{
    attach::{gathered, wait_for_events, wait_for_process},
    join_sockets::{Recorder, folder},
    support::{
        Finished, TOMPION, TestDir, Trace, beside, finish, installed, libraries, rounds, run, start, tompion,
    },
};

/// A way to build the programs.
#[derive(Clone, Copy)]
struct Build {
    /// Name of the folder.
    name: &'static str,
    release: bool,
    /// Settings of the profile, as cargo's environment variables.
    profile: &'static [(&'static str, &'static str)],
    target: Option<&'static str>,
    /// Flags of the compiler; `LIBRARIES` is the folder where the library is.
    flags: &'static str,
}

const DEBUG: Build = Build { name: "debug", release: false, profile: &[], target: None, flags: "" };
const RELEASE: Build = Build { name: "release", release: true, ..DEBUG };
/// Build that links the library.
const LINKED: Build = Build {
    name: "linked",
    flags: "-C link-arg=-Wl,--no-as-needed,-rpath,LIBRARIES -C link-arg=-LLIBRARIES -C link-arg=-ltompion",
    ..DEBUG
};
const ONE_UNIT: Build = Build {
    name: "one-unit",
    profile: &[("LTO", "fat"), ("CODEGEN_UNITS", "1"), ("PANIC", "abort")],
    ..RELEASE
};
const THIN: Build =
    Build { name: "thin", profile: &[("LTO", "thin"), ("OPT_LEVEL", "s"), ("DEBUG", "2")], ..RELEASE };
const MANY_UNITS: Build = Build {
    name: "many-units",
    profile: &[("LTO", "off"), ("CODEGEN_UNITS", "256"), ("OPT_LEVEL", "3")],
    flags: "-C link-arg=-Wl,--gc-sections -C relocation-model=pic",
    ..RELEASE
};
const FIXED: Build = Build {
    name: "fixed",
    target: Some("x86_64-unknown-linux-gnu"),
    flags: "-C relocation-model=static",
    ..RELEASE
};
const STATIC: Build = Build {
    name: "static",
    target: Some("x86_64-unknown-linux-gnu"),
    flags: "-C target-feature=+crt-static",
    ..RELEASE
};
const MUSL: Build = Build { name: "musl", target: Some("x86_64-unknown-linux-musl"), ..RELEASE };

impl Build {
    /// Builds the programs and returns the folder where they are.
    fn programs(self) -> PathBuf {
        // Several tests use the same folder; cargo would wait for itself, but say so.
        static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
        let _one = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rust").join(self.name);
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["build", "--quiet", "--offline", "--target-dir"]).arg(&target);
        let flags = self.flags.replace("LIBRARIES", libraries().to_str().expect("a path in UTF-8"));
        cargo.current_dir(beside("rust")).env("RUSTFLAGS", flags).env_remove("CARGO_ENCODED_RUSTFLAGS");
        for (name, value) in self.profile {
            cargo.env(format!("CARGO_PROFILE_RELEASE_{name}"), value);
        }
        let mut folder = target;
        if let Some(triple) = self.target {
            // No plugins: some of these targets can't have them.
            cargo.args(["--package", "program", "--target", triple]);
            folder.push(triple);
        }
        if self.release {
            cargo.arg("--release");
        }
        run(&mut cargo).succeeded();
        folder.join(if self.release { "release" } else { "debug" })
    }
}

/// Builds an example of one of the workspace's packages, beside the command, and returns where it
/// is.
pub fn example(package: &str, name: &str) -> PathBuf {
    let folder = libraries();
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--package", package, "--example", name]);
    cargo.arg("--target-dir").arg(folder.parent().expect("cargo's folders")).current_dir(beside("../../.."));
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    run(&mut cargo).succeeded();
    folder.join("examples").join(name)
}

/// Records one of the programs.
fn record(dir: &TestDir, build: Build, program: &str, arguments: &[&str]) -> Trace {
    let program = build.programs().join(program);
    let mut command: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&program];
    command.extend(arguments.iter().map(|argument| argument as &dyn AsRef<std::ffi::OsStr>));
    dir.record(&[], &command)
}

/// Names and fields of the trace's events, and the messages of marks.
pub fn contents(trace: &Trace) -> Vec<Value> {
    let json = run(tompion().args(["print", "--format", "json"]).arg(&trace.folder)).succeeded().out;
    let event = |line: &str| {
        let mut event: Value = serde_json::from_str(line).expect("JSON from print");
        let mut found = json!({"event": event["event"].take(), "fields": event["fields"].take()});
        if let Some(message) = event.get_mut("message") {
            found["message"] = message.take();
        }
        found
    };
    json.lines().map(event).collect()
}

/// The expected events: a file with one JSON object a line.
pub fn golden(name: &str) -> Vec<Value> {
    let text = fs::read_to_string(beside("golden").join(name)).expect("a golden file");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON in the golden file")).collect()
}

#[track_caller]
pub fn assert_same(found: &[Value], expected: &[Value]) {
    for (found, expected) in found.iter().zip(expected) {
        assert_eq!(found, expected);
    }
    assert_eq!(found.len(), expected.len());
}

#[track_caller]
fn assert_all_fields(build: Build) {
    let dir = TestDir::new();
    let trace = record(&dir, build, "fields", &[]);
    assert_same(&contents(&trace), &golden("rust_fields.jsonl"));
}

/// `provider:name value…`, for programs whose fields are numbers and short texts.
pub fn lines(trace: &Trace) -> Vec<String> {
    let line = |event: &Value| {
        let mut line = event["event"].as_str().expect("a name").to_owned();
        for (name, value) in event["fields"].as_object().expect("fields") {
            line.push_str(&format!(" {name}={value}"));
        }
        line
    };
    contents(trace).iter().map(line).collect()
}

#[test]
fn every_field_is_recorded_as_given() {
    let dir = TestDir::new();
    let trace = record(&dir, DEBUG, "fields", &[]);
    assert_same(&contents(&trace), &golden("rust_fields.jsonl"));
    assert_eq!(trace.agreed_text() as usize, golden("rust_fields.jsonl").len());
    assert_eq!(trace.babeltrace().err, "");
}

/// A recorder that wants others keeps the library out of the process.
#[test]
fn a_program_loads_the_library_for_a_recorder_that_wants_it() {
    let dir = TestDir::new();
    let program = DEBUG.programs().join("fields");
    let start = || {
        let mut command = Command::new(&program);
        command.env("TOMPION_SOCKET", folder(&dir)).env("LD_LIBRARY_PATH", libraries());
        command
    };
    let others = Recorder::start(&dir, "others", &["name=others"], &[]);
    if installed("strace") {
        let mut strace = Command::new("strace");
        strace.args(["-f", "-e", "trace=openat,clone3,clone", "-E"]);
        strace.arg(format!("LD_LIBRARY_PATH={}", libraries().display()));
        let said = run(strace.arg(&program).env("TOMPION_SOCKET", folder(&dir))).succeeded().err;
        // It is looked for among the libraries that are loaded already, by its file.
        assert_eq!(said.matches("/libtompion.so.0\"").count(), 1, "{said}");
        assert!(!said.contains("clone"), "{said}");
    } else {
        run(&mut start()).succeeded();
    }
    assert!(others.processes() == 0 && others.refused("not among") >= 1);
    let recorder = Recorder::start(&dir, "rust", &["name=fields"], &[]);
    run(&mut start()).succeeded();
    assert_eq!((recorder.processes(), others.processes()), (1, 0));
    recorder.stop().succeeded();
    others.stop();
    assert_same(&contents(&dir.trace("rust")), &golden("rust_fields.jsonl"));
}

/// Builds, and in the long form those that take long or differ little.
fn builds(quick: &[Build], long: &[Build]) -> Vec<Build> {
    if rounds(0, 1) == 0 { quick.to_vec() } else { [quick, long].concat() }
}

#[test]
fn every_way_of_building_records_the_same() {
    for build in builds(&[RELEASE], &[ONE_UNIT, THIN, MANY_UNITS, FIXED, LINKED]) {
        assert_all_fields(build);
    }
}

#[test]
fn static_programs_run_unrecorded() {
    for build in builds(&[MUSL], &[STATIC]) {
        if build.target.is_some_and(|triple| !is_installed(triple)) {
            eprintln!("left out: {} is not installed", build.name);
            continue;
        }
        let program = build.programs().join("places");
        let mut disabled = Command::new(program);
        disabled.arg("disabled").env("TOMPION_SESSION", "none");
        let said = run(&mut disabled).succeeded().out;
        assert!(said.starts_with("computed 0, enabled false, "), "{said}");
    }
}

fn is_installed(triple: &str) -> bool {
    let rustc = std::env::var_os("RUSTC").unwrap_or("rustc".into());
    let root = run(Command::new(rustc).args(["--print", "sysroot"])).succeeded().out;
    Path::new(root.trim()).join("lib/rustlib").join(triple).join("lib").is_dir()
}

#[test]
fn instances_closures_and_other_crates_have_their_own_events() {
    for build in builds(&[DEBUG, RELEASE], &[ONE_UNIT, MANY_UNITS]) {
        let dir = TestDir::new();
        let trace = record(&dir, build, "places", &["generic"]);
        assert_eq!(
            lines(&trace),
            [
                "places:before_main",
                "places:shape area=4.0",
                "places:shape area=3.0",
                "helper:plain number=1",
                "helper:inlined number=2",
                "helper:generic value=3",
                r#"helper:generic value="four""#,
                "helper:generic _value_length=1 value=[5]",
                "places:closure number=6",
                "places:closure number=7",
                "places:wrapped eight=8",
                "places:awaited number=9",
            ]
        );
    }
}

#[test]
fn events_before_and_after_main_are_recorded() {
    let dir = TestDir::new();
    let trace = record(&dir, RELEASE, "places", &["early"]);
    assert_eq!(lines(&trace), ["places:before_main", "places:in_main", "places:after_main"]);
}

/// A filter on fields that only the begin of a span has.
#[test]
fn a_span_that_passes_the_filter_has_its_end() {
    let dir = TestDir::new();
    let program = RELEASE.programs().join("places");
    run(&mut dir.recording("trace", &["--filter", "number == 1"], &[&program, &"panics"])).succeeded();
    // The inner span has no such field.
    let names: Vec<String> = dir.trace("trace").events().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["places:outer_begin", "places:outer_end"]);
}

#[test]
fn threads_lose_nothing() {
    let dir = TestDir::new();
    let count = rounds(1000, 5000);
    let trace = record(&dir, RELEASE, "places", &["threads", "4", &count.to_string()]);
    assert_eq!(trace.stat()["lost"], json!({"total": 0}));
    let mut next = [0; 4];
    for event in trace.events().iter().filter(|event| event.name == "places:numbered") {
        let thread = &mut next[event.number("thread") as usize];
        assert_eq!(event.number("number"), *thread);
        *thread += 1;
    }
    assert_eq!(next, [u64::from(count); 4]);
}

#[test]
fn threads_outside_main_are_recorded() {
    let dir = TestDir::new();
    let trace = record(&dir, DEBUG, "places", &["endless"]);
    assert_eq!(trace.stat()["lost"], json!({"total": 0}));
    let (mut next, mut others) = ([0; 3], Vec::new());
    for event in trace.events() {
        if event.name == "places:numbered" {
            let thread = &mut next[event.number("thread") as usize];
            assert_eq!(event.number("number"), *thread);
            *thread += 1;
        } else {
            others.push(event.name);
        }
    }
    assert!(next.iter().all(|&count| count >= 100), "{next:?}");
    let expected = ["places:before_main", "places:thread_ends", "places:after_main"];
    assert_eq!(others, expected);
}

#[test]
fn a_panic_ends_the_spans_that_it_leaves() {
    let dir = TestDir::new();
    let trace = record(&dir, DEBUG, "places", &["panics"]);
    assert_eq!(
        lines(&trace)[1..],
        [
            "places:outer_begin number=1",
            "places:inner_begin",
            "places:inner_end",
            "places:outer_end",
            "places:unwound yes=1",
        ]
    );
}

#[test]
fn children_of_forks_go_on() {
    let dir = TestDir::new();
    let trace = record(&dir, DEBUG, "places", &["fork"]);
    assert_eq!(
        lines(&trace)[1..],
        ["places:parent number=1", "places:child number=2", "places:parent number=3"]
    );
}

#[test]
fn plugins_come_and_go() {
    for build in [DEBUG, RELEASE] {
        let dir = TestDir::new();
        let plugin = build.programs().join("libplugin.so");
        let count = rounds(20, 2000);
        let arguments = ["plugin", plugin.to_str().expect("a path in UTF-8"), &count.to_string()];
        let trace = record(&dir, build, "places", &arguments);
        let found = lines(&trace);
        let rounds = (0..count).flat_map(|round| {
            [
                format!("plugin:work_begin number={round}"),
                format!("helper:plain number={round}"),
                "plugin:work_end".to_owned(),
            ]
        });
        let expected: Vec<_> = rounds.chain(["places:plugin_gone gone=1".to_owned()]).collect();
        assert_eq!(found[1..], expected);
    }
}

#[test]
fn c_programs_have_rust_inside() {
    let dir = TestDir::new();
    for build in [DEBUG, RELEASE] {
        let library = build.programs().join("libplugin.a");
        let program =
            dir.link("c_and_rust", &["c_and_rust.c"], &[library.to_str().expect("a path in UTF-8")]);
        let trace = format!("trace-{}", build.name);
        run(&mut dir.recording(&trace, &[], &[&program])).succeeded();
        let expected = [
            "c:before number=1",
            "plugin:work_begin number=2",
            "helper:plain number=2",
            "plugin:work_end",
            "c:after number=3",
        ];
        assert_eq!(lines(&dir.trace(&trace)), expected);
    }
}

/// Returns a line of `print` from the event's name on, without parts that differ between runs.
fn without_circumstances(line: &str) -> String {
    let line = &line[line.find("db:").expect("an event of the example")..];
    let (name, rest) = line.split_once(": { cpu_id = ").expect("a CPU");
    let (_, fields) = rest.split_once("}, { vtid = ").expect("a thread");
    let (_, fields) = fields.split_once(" }").expect("the thread's end");
    format!("{name}{fields}")
}

#[test]
fn the_guide_shows_what_its_program_records() {
    let dir = TestDir::new();
    let trace = dir.record(&["-e", "db:*"], &[&example("tompion", "hello"), &"2"]);
    let found: Vec<_> = trace.printed().lines().map(without_circumstances).collect();
    let guide = fs::read_to_string(beside("../../../docs/guide/rust.md")).expect("the guide");
    let reported = guide.lines().filter(|line| line.starts_with('[') && line.contains(":hello:("));
    assert_eq!(found, reported.map(without_circumstances).collect::<Vec<_>>());
}

fn list(program: &Path) -> Vec<String> {
    let said = run(tompion().arg("list").arg(program)).succeeded().out;
    said.lines().map(str::to_owned).collect()
}

#[test]
fn list_finds_the_events_of_a_program_and_of_a_plugin() {
    let programs = RELEASE.programs();
    let found = list(&programs.join("places"));
    for line in [
        "helper:generic  [debug_line]  str value",
        "helper:generic  [debug_line]  u8 value",
        "helper:plain  [debug_line]  u32 number",
        "places:inner_end  [debug_line]  ",
    ] {
        assert!(found.iter().any(|found| found == line), "{line} is not in {found:#?}");
    }
    let plugin = list(&programs.join("libplugin.so"));
    assert!(plugin.iter().any(|line| line == "plugin:work_begin  [debug_line]  u32 number"), "{plugin:#?}");
    assert!(!plugin.iter().any(|line| line.starts_with("places:")), "{plugin:#?}");
}

#[test]
fn rules_take_a_span_by_its_name() {
    let dir = TestDir::new();
    let program = DEBUG.programs().join("fields");
    let trace = dir.record(&["-e", "t:query"], &[&program]);
    assert_eq!(lines(&trace), [r#"t:query_begin table="orders""#, "t:query_end"]);
}

/// Runs `places disabled` with these variables.
fn disabled(variables: &[(&str, &str)]) -> Finished {
    let mut command = Command::new(RELEASE.programs().join("places"));
    command.arg("disabled").env("TOMPION_LIBRARY", libraries().join("libtompion.so.0"));
    for name in ["TOMPION_SESSION", "TOMPION_RECORD", "TOMPION_DISABLE", "LD_PRELOAD"] {
        command.env_remove(name);
    }
    run(command.envs(variables.iter().copied())).succeeded()
}

#[test]
fn the_library_is_loaded_only_when_asked_for() {
    let nothing = "computed 0, enabled false, library false, snapshot false\n";
    assert_eq!(disabled(&[]).out, nothing);
    assert_eq!(disabled(&[("TOMPION_SESSION", "none"), ("TOMPION_DISABLE", "1")]).out, nothing);
    assert_eq!(
        disabled(&[("TOMPION_SESSION", "none")]).out,
        "computed 0, enabled false, library true, snapshot false\n"
    );
    let preloaded = libraries().join("libtompion.so.0");
    let preloaded = [("LD_PRELOAD", preloaded.to_str().expect("a path in UTF-8"))];
    assert_eq!(disabled(&preloaded).out, "computed 0, enabled false, library true, snapshot false\n");
    let missing = [("TOMPION_SESSION", "none"), ("TOMPION_LIBRARY", "/nowhere/libtompion.so.0")];
    assert!(disabled(&missing).out.starts_with("computed 0, enabled false, "));
}

#[test]
fn a_program_may_be_linked_with_the_library() {
    let dir = TestDir::new();
    let mut command = Command::new(LINKED.programs().join("places"));
    command.arg("disabled").env_remove("TOMPION_SESSION").env_remove("TOMPION_RECORD");
    let said = run(&mut command).succeeded().out;
    assert_eq!(said, "computed 0, enabled false, library true, snapshot false\n");
    let trace = record(&dir, LINKED, "places", &["early"]);
    assert_eq!(lines(&trace), ["places:before_main", "places:in_main", "places:after_main"]);
}

/// Starts `places ticks`.
fn ticking() -> Child {
    let mut command = Command::new(DEBUG.programs().join("places"));
    command.arg("ticks").env("TOMPION_LIBRARY", libraries().join("libtompion.so.0"));
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut program = command.spawn().expect("the program");
    let mut ready = [0; 6];
    program.stdout.as_mut().expect("a pipe").read_exact(&mut ready).expect("a word");
    program
}

/// Ends the program.
fn end_of(mut program: Child) {
    drop(program.stdin.take());
    assert!(program.wait().expect("a child of this test").success());
}

#[track_caller]
fn assert_ticks(trace: &Trace) {
    let events = trace.events().into_iter().filter(|event| event.name == "places:tick");
    let numbers: Vec<u64> = events.map(|event| event.number("number")).collect();
    let expected: Vec<u64> = (numbers[0]..).take(numbers.len()).collect();
    assert_eq!(numbers, expected);
}

#[test]
fn a_program_records_itself_without_a_launcher() {
    let dir = TestDir::new();
    let tompion = Path::new(TOMPION).parent().expect("a folder");
    let path = format!("{}:{}", tompion.display(), std::env::var("PATH").unwrap_or_default());
    let start = |program: &str| {
        let mut command = Command::new(DEBUG.programs().join("places"));
        command.arg(program).env("TOMPION_RECORD", dir.path("traces")).env("PATH", &path);
        command.env("TOMPION_LIBRARY", libraries().join("libtompion.so.0"));
        command
    };
    // A start waits half a second for the session at most, so one that lasts sees to it that there
    // is one.
    let mut first = start("ticks").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the program");
    wait_for_process(&dir.path("traces"), &first.id().to_string());
    let mut second = start("generic").spawn().expect("the program");
    assert!(second.wait().expect("a child of this test").success());
    drop(first.stdin.take());
    assert!(first.wait().expect("a child of this test").success());
    let mut events = gathered(&dir.path("traces")).events();
    events.retain(|event| event.source.ends_with(&format!("-{}", second.id())));
    assert_eq!(events.len(), 12, "{events:#?}");
}

#[test]
fn a_program_that_loaded_the_library_is_recorded_later() {
    let dir = TestDir::new();
    let program = ticking();
    let pid = program.id().to_string();
    let recording = start(&mut dir.tompion(&["record", "-o", "trace", "-p", &pid]));
    wait_for_events(&dir.path("trace"));
    end_of(program);
    finish(recording, "record -p").succeeded();
    assert_ticks(&dir.trace("trace"));
}

#[test]
fn contexts_of_the_program_go_with_its_events() {
    let dir = TestDir::new();
    let program = DEBUG.programs().join("places");
    let trace = dir.record(&["-c", "app", "-e", "places:*"], &[&program, &"contexts"]);
    let json = run(tompion().args(["print", "--format", "json"]).arg(&trace.folder)).succeeded().out;
    let mut found = Vec::new();
    for line in json.lines().skip(1) {
        let event: Value = serde_json::from_str(line).expect("JSON from print");
        let mut context = event["context"].clone();
        context.as_object_mut().expect("context").remove("vtid");
        found.push(json!([event["event"], event["fields"], context]));
    }
    assert_eq!(
        json!(found),
        json!([
            ["places:first", {"both": 1, "wrong": 0}, {"app_places_cycle": 1, "app_places_phase": "idle"}],
            ["places:second", {}, {"app_places_cycle": -2, "app_places_phase": "idle"}],
            ["places:withdrawn", {"yes": 1}, {"app_places_cycle": -2, "app_places_phase": ""}],
        ])
    );
}

#[test]
fn closures_dump_the_state_of_a_program() {
    let dir = TestDir::new();
    let program = DEBUG.programs().join("places");
    let trace = dir.record(&["-e", "places:*"], &[&program, &"dumps"]);
    let events = trace.events().into_iter().skip(1);
    let found: Vec<_> = events.map(|event| (event.name, event.fields)).collect();
    let event = |name: &str, fields| (format!("places:{name}"), fields);
    assert_eq!(
        found,
        [
            event("connection", json!({"peer": "a"})),
            event("connection", json!({"peer": "b"})),
            event("dropped", json!({})),
        ]
    );
}

#[test]
fn a_program_asks_for_its_flight_recorder() {
    let dir = TestDir::new();
    let program = DEBUG.programs().join("places");
    let said =
        run(&mut dir.recording("trace", &["--mode", "overwrite"], &[&program, &"snapshot"])).succeeded();
    assert!(said.err.contains("events, as places ("), "{}", said.err);
    let found = lines(&dir.trace("trace"));
    assert_eq!(found[1..], ["places:kept number=1", "places:asked asked=1"]);
}
