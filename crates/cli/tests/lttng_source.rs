//! Providers and tracepoints of LTTng-UST's interface, compiled unchanged.

use std::{path::PathBuf, process::Command};

use serde_json::{Value, json};

use crate::support::{TestDir, Trace, beside, installed, repository, run, tompion};

/// The program and its providers.
pub const SOURCES: [&str; 4] = ["program.c", "definitions.c", "provider.c", "provider2.c"];

/// Compilers of C and C++, with the oldest and a recent standard of each.
const COMPILERS: [(&str, &[&str]); 7] = [
    ("gcc", &["-std=gnu99", "-O0"]),
    ("gcc", &["-std=c11", "-D_GNU_SOURCE", "-O2"]),
    ("clang", &["-std=gnu99", "-O2"]),
    ("g++", &["-x", "c++", "-std=c++11", "-O2"]),
    ("g++", &["-x", "c++", "-std=c++20", "-O0"]),
    ("clang++", &["-x", "c++", "-std=c++11", "-O0"]),
    ("clang++", &["-x", "c++", "-std=c++20", "-O2"]),
];

pub fn source(name: &str) -> PathBuf {
    beside("programs/lttng").join(name)
}

/// Compiles sources, and makes a program or whatever the flags say.
fn compile(dir: &TestDir, compiler: (&str, &[&str]), output: &str, sources: &[PathBuf]) -> PathBuf {
    let output = dir.path(output);
    let mut cc = dir.compile(compiler.0, &output);
    cc.args(compiler.1).arg("-I").arg(repository().join("include/lttng-ust"));
    cc.arg("-I").arg(beside("programs/lttng")).args(["-I", "."]).args(sources);
    run(cc.args(["-x", "none", "-ltompion", "-ldl"])).succeeded();
    output
}

/// Events as babeltrace2 prints them, from the name on and without CPU and thread.
pub fn contents(trace: &Trace) -> Vec<String> {
    let without_context = |line: &str| {
        let (_, event) = line.split_once(") ")?;
        let (_, event) = event.split_once(") ")?;
        let (name, rest) = event.split_once(": { cpu_id")?;
        Some(format!("{name}: {}", rest.split_once(" }, { vtid")?.1.split_once(" }, ")?.1))
    };
    trace.babeltrace().out.lines().filter_map(without_context).collect()
}

/// The values of a field of all events, in order.
fn values(trace: &Trace, field: &str) -> Vec<Value> {
    trace.events().iter().map(|event| event.fields[field].clone()).collect()
}

#[test]
fn every_kind_of_field_is_recorded_as_lttng_does() {
    // What babeltrace2 prints of the trace that LTTng-UST 2.13 makes of the same program.
    let expected = std::fs::read_to_string(beside("golden/lttng_program.txt")).unwrap();
    let expected: Vec<&str> = expected.lines().collect();
    for compiler in COMPILERS.into_iter().filter(|(name, _)| installed(name)) {
        let dir = TestDir::new();
        // The place of a message is the file's name as the compiler was given it.
        for name in SOURCES {
            std::fs::copy(source(name), dir.path(name)).unwrap();
        }
        let program = compile(&dir, compiler, "lttng_shapes", &SOURCES.map(PathBuf::from));
        let trace = dir.record(&[], &[&program]);
        assert_eq!(contents(&trace), expected, "{compiler:?}");
        assert_eq!(trace.stat()["events"], expected.len(), "{compiler:?}");
    }
}

fn usual_program(dir: &TestDir) -> PathBuf {
    compile(dir, ("gcc", &["-O2"]), "lttng_shapes", &SOURCES.map(source))
}

#[test]
fn levels_names_and_filters_choose_tracepoints_as_events() {
    let dir = TestDir::new();
    let program = usual_program(&dir);
    let names = |options: &[&str]| -> Vec<String> {
        let _ = std::fs::remove_dir_all(dir.path("trace"));
        dir.record(options, &[&program]).events().into_iter().map(|event| event.name).collect()
    };
    // `next()` has not been called for `hidden`, so that the program goes another way.
    assert_eq!(names(&["-e", "classes:m*"]).len(), 3);
    assert_eq!(
        names(&["--level", "warning"]),
        ["shapes:nothing", "lttng_ust_tracelog:LTTNG_UST_TRACEPOINT_LOGLEVEL_ERR"]
    );
    assert_eq!(
        names(&["-e", "classes:*", "--filter", "left > 2 && edge < 11"]),
        ["classes:hidden", "classes:moved"]
    );
}

#[test]
fn what_is_not_recorded_evaluates_nothing() {
    let dir = TestDir::new();
    let trace = dir.record(&["-e", "classes:hidden"], &[&usual_program(&dir)]);
    // `next()` was called by this event alone, and once in an `if` of the program's own.
    assert_eq!(values(&trace, "left"), [json!(1)]);
}

#[test]
fn events_of_providers_are_listed_without_running_them() {
    let dir = TestDir::new();
    let listed = run(tompion().arg("list").arg(usual_program(&dir))).succeeded().out;
    assert!(listed.contains("classes:moved  [info]  i32 left, i32 top, i32 edge  (LTTng-UST)\n"), "{listed}");
    assert!(
        listed.contains("classes:hidden  [debug_line]  i32 left, i32 top, i32 edge  (LTTng-UST)\n"),
        "{listed}"
    );
    assert!(listed.contains("shapes:nothing  [warning]    (LTTng-UST)\n"), "{listed}");
    assert!(
        listed.contains("lttng_ust_tracef:event  [debug]  u32 _msg_length, str msg  (LTTng-UST)\n"),
        "{listed}"
    );
}

#[test]
fn headers_without_tracepoints_say_that_overrides_are_not_there() {
    let compilers = [("gcc", "-std=gnu99"), ("clang", "-std=c17"), ("g++", "-std=c++11")];
    for (compiler, standard) in compilers.into_iter().filter(|(name, _)| installed(name)) {
        let dir = TestDir::new();
        let language = if compiler == "g++" { "c++" } else { "c" };
        let flags = [standard, "-O2", "-x", language];
        let program = compile(&dir, (compiler, &flags), "lttng_headers", &[source("headers.c")]);
        run(&mut std::process::Command::new(program)).succeeded();
    }
}

#[test]
fn temporaries_live_until_they_are_recorded() {
    for compiler in ["g++", "clang++"].into_iter().filter(|name| installed(name)) {
        let dir = TestDir::new();
        let program =
            compile(&dir, (compiler, &["-std=c++11", "-O2"]), "lttng_made", &[source("temporary.cpp")]);
        let trace = dir.record(&[], &[&program]);
        let texts: Vec<String> =
            ["a".repeat(30), "b".repeat(30), "inline".into(), "lambda".into(), "thread".into()]
                .map(|text| format!("{text}!"))
                .into();
        assert_eq!(values(&trace, "text"), texts);
        assert_eq!(values(&trace, "n_2"), [1, 2, 3, 4, 5].map(Value::from), "a second field `n`");
        assert_eq!(values(&trace, "a_macro"), [7; 5].map(Value::from), "a field named as a macro");
        assert_eq!(values(&trace, "state"), [3; 5].map(Value::from));
    }
}

/// A provider's library that a program loads by itself.
fn loader(dir: &TestDir) -> (PathBuf, PathBuf) {
    let library = ("gcc", &["-shared", "-fPIC"][..]);
    let provider = compile(dir, library, "libloaded.so", &[source("loaded_provider.c")]);
    (compile(dir, ("gcc", &[]), "lttng_loader", &[source("loader.c")]), provider)
}

#[test]
fn a_provider_may_come_later_and_is_never_unloaded_under_a_tracepoint() {
    let dir = TestDir::new();
    let (program, provider) = loader(&dir);
    let trace = dir.record(&[], &[&program, &provider, &"500"]);
    // The call before the library was there has no event.
    assert_eq!(values(&trace, "n"), (0..500).map(Value::from).collect::<Vec<_>>());
}

#[test]
fn a_program_whose_provider_never_comes_runs_on() {
    let dir = TestDir::new();
    let (program, provider) = loader(&dir);
    let nothing = run(&mut dir.recording("trace", &[], &[&program, &provider, &"0"])).exited(125);
    assert!(nothing.err.contains("has no events"), "{}", nothing.err);
}

#[test]
fn tracepoints_of_a_program_are_those_of_a_library_it_links() {
    // The library has both the provider and what the calls need; the program has only the calls.
    let dir = TestDir::new();
    let library = ("gcc", &["-shared", "-fPIC", "-fvisibility=hidden"][..]);
    compile(&dir, library, "libshapes.so", &SOURCES[1..].iter().copied().map(source).collect::<Vec<_>>());
    let here = format!("-Wl,-rpath,{}", dir.path("").display());
    let flags = ["-O2", "-L", ".", "-lshapes", &here];
    let program =
        compile(&dir, ("gcc", &flags), "lttng_calls", &[source("program.c"), "libshapes.so".into()]);
    assert_eq!(dir.record(&[], &[&program]).stat()["events"], 14);
}

#[test]
fn an_archive_gives_the_linker_what_calls_need() {
    let dir = TestDir::new();
    let mut archive = Command::new("ar");
    archive.arg("rcs").arg(dir.path("libshapes.a"));
    for name in &SOURCES[1..] {
        let object = format!("{name}.o");
        let output = dir.path(&object);
        let mut cc = Command::new("gcc");
        cc.args(["-O2", "-c", "-I"]).arg(repository().join("include")).arg("-I");
        cc.arg(repository().join("include/lttng-ust")).arg("-I").arg(beside("programs/lttng"));
        run(cc.arg(source(name)).arg("-o").arg(&output)).succeeded();
        archive.arg(output);
    }
    run(&mut archive).succeeded();
    let sources = [source("program.c"), dir.path("libshapes.a")];
    let program = compile(&dir, ("gcc", &["-O2"]), "lttng_calls", &sources);
    assert_eq!(dir.record(&[], &[&program]).stat()["events"], 14);
}

#[test]
fn a_caller_in_cxx_finds_a_provider_in_c() {
    let dir = TestDir::new();
    let include = |folder: &str| format!("-I{}", repository().join(folder).display());
    let mut objects = Vec::new();
    for (compiler, name) in [("gcc", "mixed_provider.c"), ("g++", "mixed.cpp")] {
        let object = dir.path(&format!("{name}.o"));
        let mut cc = Command::new(compiler);
        cc.args(["-O2", "-c"]).args([include("include"), include("include/lttng-ust")]);
        run(cc.arg("-I").arg(beside("programs/lttng")).arg(source(name)).arg("-o").arg(&object)).succeeded();
        objects.push(object);
    }
    let program = compile(&dir, ("g++", &[]), "lttng_mixed", &objects);
    let names: Vec<String> =
        dir.record(&[], &[&program]).events().into_iter().map(|event| event.name).collect();
    assert_eq!(names, ["mixed:none", "mixed:one"]);
}

#[test]
fn a_template_makes_a_provider() {
    if !installed("python3") {
        return;
    }
    let dir = TestDir::new();
    let include = |folder: &str| format!("-I{}", repository().join(folder).display());
    let flags = format!("{} {}", include("include"), include("include/lttng-ust"));
    let mut generator = Command::new("python3");
    generator.arg(repository().join("integrations/lttng-ust/lttng-gen-tp")).arg(source("sample.tp"));
    run(generator.env("CPPFLAGS", flags).current_dir(dir.path(""))).succeeded();
    let main = "#include \"sample.h\"\nint main(void)\n{\n    \
                lttng_ust_tracepoint(sample_template, message, \"made\");\n    return 0;\n}\n";
    std::fs::write(dir.path("main.c"), main).unwrap();
    let program = compile(&dir, ("gcc", &["-O2"]), "lttng_sample", &["main.c".into(), "sample.o".into()]);
    let trace = dir.record(&["--level", "notice"], &[&program]);
    assert_eq!(values(&trace, "message"), ["made"]);
}

#[test]
fn a_template_that_can_not_be_used_is_refused_in_one_line() {
    if !installed("python3") {
        return;
    }
    let dir = TestDir::new();
    std::fs::write(dir.path("empty.tp"), "/* TRACEPOINT_EVENT(commented, out) */\n").unwrap();
    for (arguments, expected) in [
        (&["empty.tp"][..], "expected TRACEPOINT_EVENT(PROVIDER, …) in empty.tp, found none"),
        (&["absent.tp"], "can't read absent.tp: No such file or directory"),
        (&["empty.tp", "-o", "x.txt"], "expected an output that ends with .h, .c or .o, found x.txt"),
    ] {
        let mut generator = Command::new("python3");
        generator.arg(repository().join("integrations/lttng-ust/lttng-gen-tp")).args(arguments);
        let refused = run(generator.current_dir(dir.path(""))).exited(1);
        assert_eq!(refused.err.trim(), format!("lttng-gen-tp: {expected}"));
    }
}

#[test]
fn ten_thousand_events_of_a_provider_are_all_known() {
    let dir = TestDir::new();
    run(Command::new("sh").arg(source("many.sh")).arg("10000").current_dir(dir.path(""))).succeeded();
    let program = compile(&dir, ("gcc", &["-O0"]), "lttng_many", &["many.c".into()]);
    let trace = dir.record(&[], &[&program]);
    assert_eq!(trace.events()[0].name, "many:event_10000");
    let listed = run(tompion().arg("list").arg(&program)).succeeded().out;
    assert_eq!(listed.lines().count(), 10_000);
}

#[test]
fn without_the_library_a_static_program_carries_its_agent() {
    let archive = crate::support::static_library();
    let dir = TestDir::new();
    let program = dir.path("lttng_static");
    let mut cc = Command::new("gcc");
    cc.args(["-O2", "-static", "-I"]).arg(repository().join("include")).arg("-I");
    cc.arg(repository().join("include/lttng-ust")).arg("-I").arg(beside("programs/lttng"));
    cc.args(SOURCES.map(source)).arg("-L").arg(archive).args(["-l:libtompion.a", "-lgcc_eh", "-lpthread"]);
    run(cc.args(["-lm", "-ldl", "-lc", "-o"]).arg(&program)).succeeded();
    assert_eq!(dir.record(&[], &[&program]).stat()["events"], 14);
}
