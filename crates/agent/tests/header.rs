//! The C header against the schema: what compilers make of the macros is what the library expects.
//!
//! `header/fields.c` and `header/second.c` are compiled by each compiler that is installed, in
//! every mode that changes what it or the linker does with sections and constants, and run with
//! `header/mock.c` in the library's place, which writes down all descriptions, images and tails.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;

use tompion_schema::{Enumeration, Event, Field, Integer, Kind, Label, Level, Type, decode};

const WARNINGS: [&str; 6] = ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Werror"];
/// Ways of compiling and linking, beside the language's version.
const MODES: [&[&str]; 6] = [
    &["-O0"],
    &["-O2"],
    &["-O3", "-flto"],
    &["-O2", "-fPIE"],
    &["-O1", "-fno-pie"],
    &["-O2", "-ffunction-sections", "-fdata-sections", "-Wl,--gc-sections"],
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn source(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/header").join(name)
}

/// An empty folder for this test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("header").join(name);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder for the test");
    folder
}

fn run(command: &mut Command) -> String {
    // cargo's own setting would put the real library in the mock's place.
    if !command.get_envs().any(|(name, _)| name == "LD_LIBRARY_PATH") {
        command.env_remove("LD_LIBRARY_PATH");
    }
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let (out, err) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{command:?}: {}\n{out}{err}", output.status);
    out.into_owned()
}

fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

fn compilers() -> Vec<&'static str> {
    let found: Vec<_> = ["gcc", "clang"].into_iter().filter(|compiler| installed(compiler)).collect();
    assert!(!found.is_empty(), "neither gcc nor clang is installed");
    found
}

/// One way to build the program.
#[derive(Clone, Copy, Debug)]
struct Build {
    compiler: &'static str,
    standard: &'static str,
    mode: &'static [&'static str],
    shared: bool,
}

impl Build {
    fn all() -> Vec<Self> {
        let mut builds = Vec::new();
        for compiler in compilers() {
            for standard in ["c11", "gnu11"] {
                for mode in MODES {
                    // clang's link-time code needs a linker that takes its plugin.
                    if compiler == "clang" && mode.contains(&"-flto") && !installed("ld.gold") {
                        continue;
                    }
                    for shared in [false, true] {
                        builds.push(Self { compiler, standard, mode, shared });
                    }
                }
            }
        }
        builds
    }

    fn compile(&self, out: &Path) -> Command {
        let mut command = Command::new(self.compiler);
        command.args(WARNINGS).arg(format!("-std={}", self.standard)).args(self.mode);
        if self.mode.contains(&"-flto") && self.compiler == "clang" {
            command.arg("-fuse-ld=gold");
        }
        if self.mode.contains(&"-fno-pie") && !out.ends_with("libtompion.so.0") {
            command.arg("-no-pie");
        }
        command.arg("-I").arg(root().join("include")).arg("-o").arg(out);
        command
    }

    /// Builds the program in the folder, runs it, and returns what the mock wrote.
    fn record(&self, folder: &Path) -> Record {
        let (program, library) = (folder.join("program"), folder.join("libtompion.so.0"));
        let mut compile = self.compile(&program);
        compile.args([source("fields.c"), source("second.c")]);
        if self.shared {
            run(self
                .compile(&library)
                .args(["-shared", "-fPIC", "-Wl,-soname,libtompion.so.0"])
                .arg(source("mock.c")));
            compile.arg(&library).arg(format!("-Wl,-rpath,{}", folder.display()));
        } else {
            compile.arg(source("mock.c"));
        }
        run(&mut compile);
        run_with_mock(&mut Command::new(program), folder)
    }
}

/// Lines that the mock wrote.
struct Record {
    /// Kind of the site, and the event.
    sites: Vec<(String, Event)>,
    /// Name of the event, image and tails, as they came.
    events: Vec<String>,
    loads: usize,
    unloads: usize,
    stdout: String,
}

fn run_with_mock(command: &mut Command, folder: &Path) -> Record {
    let path = folder.join("out");
    let _ = std::fs::remove_file(&path);
    let stdout = run(command.env("MOCK_OUT", &path));
    let text = std::fs::read_to_string(&path).unwrap_or_default();
    let count = |word: &str| text.lines().filter(|line| *line == word).count();
    let sites = text.lines().filter_map(|line| line.strip_prefix("site ")).map(|line| {
        let (kind, bytes) = line.split_once(' ').expect("kind and description");
        (kind.to_owned(), decode(&from_hex(bytes)).unwrap_or_else(|error| panic!("{line}: {error}")))
    });
    let events = text.lines().filter_map(|line| line.strip_prefix("event "));
    Record {
        sites: sites.collect(),
        events: events.map(str::to_owned).collect(),
        loads: count("load"),
        unloads: count("unload"),
        stdout,
    }
}

fn from_hex(text: &str) -> Vec<u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).expect("a hexadecimal digit") as u8;
    text.as_bytes().chunks(2).map(|pair| digit(pair[0]) << 4 | digit(pair[1])).collect()
}

fn hex(bytes: &[u8]) -> String {
    if bytes.is_empty() { "-".into() } else { bytes.iter().map(|byte| format!("{byte:02x}")).collect() }
}

/// An event's line: name, the image's pieces, tails.
fn line(name: &str, image: &[&[u8]], tails: &[&[u8]]) -> String {
    let mut line = format!("{name} {}", hex(&image.concat()));
    for tail in tails {
        line += " ";
        line += &hex(tail);
    }
    line
}

fn number(word: &str) -> Type {
    Type::Integer(integer(word))
}

/// `i8` to `x64`.
fn integer(word: &str) -> Integer {
    let (family, bits) = word.split_at(1);
    Integer { bits: bits.parse().expect("bits"), signed: family == "i", hex: family == "x", network: false }
}

fn event(name: &str, level: &str, fields: &[(&str, Type)]) -> Event {
    let (provider, name) = name.split_once(':').expect("provider:name");
    Event {
        provider: provider.into(),
        name: name.into(),
        level: Level::parse(level).expect("a level"),
        kind: Kind::Instant,
        init: false,
        format: None,
        attributes: Default::default(),
        fields: fields.iter().map(|(name, ty)| Field::new(name, ty.clone())).collect(),
    }
}

fn machine_state() -> Type {
    let label = |low, high, name: &str| Label { low, high, name: name.into() };
    let labels = vec![
        label(0, 0, "idle"),
        label(5, 5, "running"),
        label(-9, -1, "failed"),
        label(1 << 20, 1 << 20, "linux"),
    ];
    Type::Enum(Integer::signed(64), Enumeration { name: "machine_state".into(), labels })
}

/// The events of `fields.c` and `second.c`, once each.
fn expected_events() -> Vec<Event> {
    let words = ["i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "x8", "x16", "x32", "x64"];
    let letters = ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l"];
    let integers: Vec<_> = letters.into_iter().zip(words.into_iter().map(number)).collect();
    let names: Vec<_> = (1..=64).map(|n| format!("f{n}")).collect();
    let most: Vec<_> = names.iter().map(|name| (name.as_str(), number("u8"))).collect();
    let byte = [("a", number("u8"))];
    let mut events = vec![
        event("types:integers", "debug_line", &integers),
        event("types:others", "debug_line", &others()),
        event("db:linux", "warning", &clashes()),
        event("level:emerg", "emerg", &[]),
        event("level:info", "info", &byte),
        event("level:debug", "debug", &[]),
        event("level:usual", "debug_line", &[]),
        event("place:once", "debug_line", &[("a", number("i32")), ("b", number("i32"))]),
        event("place:asked", "debug_line", &[]),
        event("size:large", "debug_line", &[("text", Type::String), ("endless", Type::String)]),
        event("size:most", "debug_line", &most),
        event("life:constructor", "debug_line", &[]),
        event("life:destructor", "debug_line", &[]),
    ];
    for name in ["branch", "other", "loop", "line", "nested", "asked", "header"] {
        events.push(event(&format!("place:{name}"), "debug_line", &byte));
    }
    events
}

fn others() -> Vec<(&'static str, Type)> {
    vec![
        ("f", Type::Float(32)),
        ("g", Type::Float(64)),
        ("yes", Type::Bool),
        ("no", Type::Bool),
        ("text", Type::String),
        ("none", Type::String),
        ("cut", Type::String),
        ("whole", Type::String),
        ("gone", Type::String),
        ("raw", Type::Bytes),
        ("nothing", Type::Bytes),
        ("fixed", Type::Array(integer("i16"), 3)),
        ("some", Type::Sequence(integer("x64"))),
        ("few", Type::Sequence(integer("u32"))),
        ("void", Type::Array(integer("u8"), 4)),
        ("state", machine_state()),
        ("again", machine_state()),
    ]
}

fn clashes() -> Vec<(&'static str, Type)> {
    vec![
        ("errno", number("i32")),
        ("u64", number("u64")),
        ("str", Type::String),
        ("bool", Type::Bool),
        ("running", number("u8")),
        ("array", Type::Array(integer("u64"), 1)),
        ("sequence", Type::Sequence(integer("i16"))),
        ("enum", machine_state()),
        ("bytes", Type::Bytes),
        ("size", number("i8")),
        ("data", number("i8")),
        ("if", number("i8")),
        ("head", number("i8")),
    ]
}

fn le(number: u32) -> [u8; 4] {
    number.to_le_bytes()
}

/// The records in the order in which the program makes them.
fn expected_records() -> Vec<String> {
    let large = vec![b'x'; 60_000];
    let most: Vec<u8> = (1..=64).collect();
    let place = |name: &str, value: u8| line(&format!("place:{name}"), &[&[value]], &[]);
    vec![
        line("life:constructor", &[], &[]),
        integers_record(),
        others_record(),
        clashes_record(),
        line("level:emerg", &[], &[]),
        line("level:info", &[&[1]], &[]),
        line("level:debug", &[], &[]),
        line("level:usual", &[], &[]),
        place("branch", 1),
        place("loop", 0),
        place("loop", 1),
        place("line", 3),
        place("line", 4),
        place("header", 5),
        place("nested", 5),
        line("place:once", &[&le(1), &le(1)], &[]),
        place("asked", 6),
        line("size:large", &[&le(60_000), &le(60_000)], &[&large, &large]),
        line("size:most", &[&most], &[]),
        place("line", 7),
        place("header", 8),
        line("life:destructor", &[], &[]),
    ]
}

fn integers_record() -> String {
    let image: [&[u8]; 12] = [
        &(-1i8).to_le_bytes(),
        &(-2i16).to_le_bytes(),
        &(-3i32).to_le_bytes(),
        &(-4i64).to_le_bytes(),
        &[5],
        &6u16.to_le_bytes(),
        &7u32.to_le_bytes(),
        &8u64.to_le_bytes(),
        &[9],
        &10u16.to_le_bytes(),
        &11u32.to_le_bytes(),
        &0x1122_3344_5566_7788u64.to_le_bytes(),
    ];
    line("types:integers", &image, &[])
}

fn others_record() -> String {
    // f32, f64, two bools; counts of str to bytes, of the sequences; two enums.
    let counts: Vec<u8> = [5, 6, 3, 5, 3, 4, 0, 2, 0].into_iter().flat_map(le).collect();
    let image: [&[u8]; 6] = [
        &1.5f32.to_le_bytes(),
        &(-0.25f64).to_le_bytes(),
        &[1, 0],
        &counts,
        &5i64.to_le_bytes(),
        &(-5i64).to_le_bytes(),
    ];
    let (numbers, words) = ([1, 0, 0xfe, 0xff, 3, 0], [u64::MAX.to_le_bytes(), 1u64.to_le_bytes()].concat());
    let tails: [&[u8]; 11] =
        [b"hello", b"(null)", b"abc", b"hello", b"(nu", b"abcd", b"", &numbers, &words, b"", b"abcd"];
    line("types:others", &image, &tails)
}

fn clashes_record() -> String {
    let image: [&[u8]; 8] =
        [&le(1), &2u64.to_le_bytes(), &le(1), &[1, 5], &le(1), &0i64.to_le_bytes(), &le(1), &[1, 1, 1, 1]];
    line("db:linux", &image, &[b"s", &3u64.to_le_bytes(), &4u16.to_le_bytes(), b"b"])
}

fn check(build: &Build, record: &Record) {
    let expected = expected_events();
    for (kind, event) in &record.sites {
        let asks = event.full_name() == "place:asked" && event.fields.is_empty();
        assert_eq!(kind, if asks { "1" } else { "0" }, "{build:?}: {}", event.full_name());
        assert!(expected.contains(event), "{build:?}: {event:#?}");
    }
    for event in &expected {
        let found = record.sites.iter().any(|(_, found)| found == event);
        assert!(found, "{build:?}: no site of {}", event.full_name());
    }
    assert_eq!(record.events, expected_records(), "{build:?}");
    assert_eq!(record.stdout, "calls 1\n", "{build:?}");
    // The mock in a library of its own includes the header too.
    let objects = if build.shared { 2 } else { 1 };
    assert_eq!((record.loads, record.unloads), (objects, objects), "{build:?}");
}

#[test]
fn descriptions_and_images_follow_the_schema_with_every_compiler() {
    let folder = folder("matrix");
    for build in Build::all() {
        check(&build, &build.record(&folder));
    }
}

/// Descriptions can be found in the program's file, one after the other, with nothing but zeros
/// between.
#[test]
fn descriptions_are_read_in_the_file() {
    let folder = folder("section");
    let build = Build { compiler: compilers()[0], standard: "c11", mode: &["-O2"], shared: false };
    build.record(&folder);
    let section = folder.join("section");
    let dump = format!("tompion_events={}", section.display());
    run(Command::new("objcopy")
        .args(["-O", "binary", "--dump-section", &dump])
        .arg(folder.join("program"))
        .arg("/dev/null"));
    let bytes = std::fs::read(section).expect("the section");
    let mut found = BTreeSet::new();
    let mut at = 0;
    while at < bytes.len() {
        let size = u32::from_le_bytes(bytes[at + 4..at + 8].try_into().expect("four bytes")) as usize;
        assert!(size >= 8, "no description at {at}");
        if let Ok(names) = tompion_schema::decode_names(&bytes[at..]) {
            found.insert(format!("{}:{}", names.provider, names.name));
        }
        let end = (at + size).next_multiple_of(8).min(bytes.len());
        assert!(bytes[at + size..end].iter().all(|byte| *byte == 0), "not zero behind {at}");
        at = end;
    }
    let expected: BTreeSet<_> = expected_events().iter().map(Event::full_name).collect();
    assert_eq!(found, expected);
}

/// A program with the optional library runs without it, and loads it when a session asks.
#[test]
fn the_library_may_be_absent() {
    for compiler in compilers() {
        let folder = folder("optional");
        let build = Build { compiler, standard: "c11", mode: &["-O2"], shared: true };
        let (program, library) = (folder.join("program"), folder.join("libtompion.so.0"));
        run(build
            .compile(&program)
            .arg("-DTOMPION_OPTIONAL")
            .args([source("fields.c"), source("second.c")])
            .arg("-ldl"));
        run(build
            .compile(&library)
            .args(["-shared", "-fPIC", "-Wl,-soname,libtompion.so.0"])
            .arg(source("mock.c")));

        let absent = run_with_mock(Command::new(&program).env("TOMPION_SESSION", "x"), &folder);
        assert_eq!((absent.loads, absent.stdout.as_str()), (0, "calls 0\n"));

        let unasked = run_with_mock(
            Command::new(&program).env("LD_LIBRARY_PATH", &folder).env_remove("TOMPION_SESSION"),
            &folder,
        );
        assert_eq!((unasked.loads, unasked.stdout.as_str()), (0, "calls 0\n"));

        let asked = run_with_mock(
            Command::new(&program).env("LD_LIBRARY_PATH", &folder).env("TOMPION_SESSION", "x"),
            &folder,
        );
        assert_eq!(asked.events, expected_records());
        assert_eq!((asked.loads, asked.unloads), (2, 2));
    }
}

/// Libraries of before `append_begin` and `append_end`, as the mock is one, get spans by `append`.
#[test]
fn spans_need_no_more_than_the_first_library_has() {
    let folder = folder("spans");
    let source = folder.join("spans.c");
    let text = "#include <tompion/tompion.h>\n\
                int main(void)\n{\n\
                TOMPION_SPAN(span, outer, (u8, a, 1));\n\
                TOMPION_JOB(span, job, 2, (str, text, \"x\"));\n\
                TOMPION_SPAN(span, bare);\nreturn 0;\n}\n";
    std::fs::write(&source, text).expect("a source file");
    let (mock, program) = (folder.join("mock.o"), folder.join("program"));
    for (compiler, standard, language) in
        [("gcc", "c11", "c"), ("clang", "c11", "c"), ("g++", "c++17", "c++"), ("clang++", "c++17", "c++")]
    {
        if !installed(compiler) {
            continue;
        }
        run(Build { compiler: "cc", standard: "c11", mode: &["-c"], shared: false }
            .compile(&mock)
            .arg(self::source("mock.c")));
        let build = Build { compiler, standard, mode: &["-O2"], shared: false };
        run(build.compile(&program).arg("-x").arg(language).arg(&source).args(["-x", "none"]).arg(&mock));
        let deadline = 2u64.to_le_bytes();
        let expected = [
            line("span:outer_begin", &[&[1]], &[]),
            line("span:job_begin", &[&deadline, &le(1)], &[b"x"]),
            line("span:bare_begin", &[], &[]),
            line("span:bare_end", &[], &[]),
            line("span:job_end", &[], &[]),
            line("span:outer_end", &[], &[]),
        ];
        assert_eq!(run_with_mock(&mut Command::new(&program), &folder).events, expected, "{compiler}");
    }
}

/// While no recording takes an event, nothing is computed and no function is called.
#[test]
fn a_disabled_event_computes_nothing() {
    let folder = folder("idle");
    let build = Build { compiler: compilers()[0], standard: "c11", mode: &["-O2"], shared: false };
    build.record(&folder);
    let record = run_with_mock(Command::new(folder.join("program")).env("MOCK_IDLE", "1"), &folder);
    assert_eq!(record.stdout, "calls 0\n");
    assert!(record.events.is_empty());
}

/// Mistakes that the compiler must refuse, with a message that has one of these words.
const MISTAKES: [(&str, &[&str]); 17] = [
    ("TOMPION_EVENT(p, e, (sequence, a, i16, (int *)0, 1));", &["elements of another size"]),
    ("TOMPION_EVENT(p, e, (sequence, a, f64, (double *)0, 1));", &["elements are integers"]),
    ("TOMPION_EVENT(p, e, (u8, a, 1), (u8, a, 2));", &["duplicate member", "redeclaration"]),
    ("TOMPION_EVENT(p, e, (struct, s, (u8, a, 1), (u8, a, 2)));", &["duplicate member", "redeclaration"]),
    ("TOMPION_EVENT(p, e, (struct, s));", &["a structure has a field"]),
    ("TOMPION_EVENT(p, e, (struct, a, (struct, b, (struct, c, (u8, d, 1)))));", &["at_most_two_deep"]),
    ("TOMPION_EVENT(p, e, (enum, a, absent, 1));", &["labels_absent"]),
    ("TOMPION_EVENT(p, e, (array, a, u8, \"abc\", n));", &["constant"]),
    ("TOMPION_EVENT(p, e, (str, a, n));", &["integer", "no matching"]),
    ("TOMPION_EVENT(p, e, (u7, a, 1));", &["u7"]),
    ("TOMPION_EVENT_LEVEL(LOUD, p, e);", &["LOUD"]),
    ("TOMPION_COUNTER(p, e, \"text\");", &["int64_t", "makes integer", "static_cast"]),
    ("TOMPION_SPAN(p, e, (u8, a, 1), (u8, a, 2));", &["duplicate member", "redeclaration"]),
    ("TOMPION_JOB(p, e);", &["argument"]),
    ("TOMPION_MARK(m, \"%s\", n);", &["char"]),
    ("TOMPION_MARK(m, \"%d %d\", n);", &["int", "conversions"]),
    ("TOMPION_MARK(m, \"none\", n);", &["argument"]),
];

#[test]
fn mistakes_are_compile_errors() {
    let folder = folder("mistakes");
    for (compiler, standard, ending) in
        [("gcc", "c11", "c"), ("clang", "c11", "c"), ("g++", "c++17", "cc"), ("clang++", "c++17", "cc")]
    {
        if !installed(compiler) {
            continue;
        }
        for (statement, complaints) in MISTAKES {
            let file = folder.join("mistake").with_extension(ending);
            let text = format!(
                "#include <tompion/tompion.h>\nvoid f(int n);\nvoid f(int n) {{ (void)n; {statement} }}\n"
            );
            std::fs::write(&file, text).expect("a source file");
            let build = Build { compiler, standard, mode: &["-c"], shared: false };
            let output = build.compile(&folder.join("mistake.o")).arg(&file).output().expect("a compiler");
            let text = String::from_utf8_lossy(&output.stderr);
            assert!(!output.status.success(), "{compiler} accepts {statement}");
            let is_named = complaints.iter().any(|complaint| text.contains(complaint));
            assert!(is_named, "{compiler}: {statement}: {text}");
        }
    }
}
