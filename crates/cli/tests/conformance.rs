//! The conformance suite of C and C++: one program with all that the header has, in the executable,
//! in a static and in a shared library, built in every way; and many libraries with very many
//! sites.
//!
//! The program of `programs/conformance` states each event that it records on its standard output,
//! as `print --format json` is to show it. So there is nothing to keep in step here.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Command,
};

use serde_json::{Value, json};

use crate::{
    fallback::WITHOUT_RSEQ,
    support::{Finished, TestDir, Trace, beside, installed, libraries, rounds, run},
};

const WARNINGS: [&str; 7] =
    ["-Wall", "-Wextra", "-Wpedantic", "-Wshadow", "-Wconversion", "-Wsign-conversion", "-Werror"];

/// Commands of a compiler for C and C++, and its tools.
#[derive(Clone, Copy, Debug)]
struct Compiler {
    c: &'static str,
    cxx: &'static str,
    /// Archiver that accepts objects with link-time code.
    archiver: &'static str,
    /// Options for linking with link-time code generation.
    linker: &'static [&'static str],
    /// Warnings that it is wrong about.
    errs: &'static [&'static str],
}

const GCC: Compiler = Compiler {
    c: "gcc",
    cxx: "g++",
    archiver: "gcc-ar",
    linker: &[],
    // Version 12 warns of std::string.
    errs: &["-Wno-restrict"],
};
const CLANG: Compiler =
    Compiler { c: "clang", cxx: "clang++", archiver: "llvm-ar", linker: &["-fuse-ld=gold"], errs: &[] };

const OLDEST: (&str, &str) = ("c11", "c++17");
const NEWER: (&str, &str) = ("gnu17", "gnu++20");

/// Options for compiling and linking, and for linking alone.
type Mode = (&'static [&'static str], &'static [&'static str]);

const PLAIN: Mode = (&["-O0"], &[]);
const HIDDEN: Mode = (&["-O2", "-fPIC", "-fvisibility=hidden"], &[]);
const SLIM: Mode = (
    &["-O3", "-flto", "-ffunction-sections", "-fdata-sections", "-fvisibility=hidden"],
    &["-Wl,--gc-sections"],
);
const FIXED: Mode = (&["-Os", "-fno-pie"], &["-no-pie"]);
const MODES: [Mode; 11] = [
    PLAIN,
    HIDDEN,
    SLIM,
    (&["-O1"], &[]),
    (&["-O2"], &[]),
    (&["-O3", "-fPIC"], &[]),
    FIXED,
    (&["-O2", "-flto"], &[]),
    (&["-O2", "-ffunction-sections", "-fdata-sections"], &["-Wl,--gc-sections"]),
    (&["-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all"], &[]),
    (&["-O2", "-fsanitize=address"], &[]),
];

/// One way to build the program.
#[derive(Clone, Copy, Debug)]
struct Build {
    compiler: Compiler,
    standards: (&'static str, &'static str),
    mode: Mode,
}

impl Build {
    /// The few ways of the quick form differ in all that can differ.
    fn all() -> Vec<Self> {
        let build = |compiler, standards, mode| Self { compiler, standards, mode };
        let quick = vec![
            build(GCC, OLDEST, PLAIN),
            build(CLANG, NEWER, HIDDEN),
            build(GCC, NEWER, SLIM),
            build(CLANG, OLDEST, FIXED),
        ];
        let every = [GCC, CLANG].into_iter().flat_map(|compiler| {
            let modes = move |standards| MODES.into_iter().map(move |mode| build(compiler, standards, mode));
            [OLDEST, NEWER].into_iter().flat_map(modes)
        });
        let builds = if rounds(0, 1) == 0 { quick } else { every.collect() };
        let possible: Vec<_> = builds.into_iter().filter(Self::is_possible).collect();
        assert!(!possible.is_empty(), "no C++ compiler is installed");
        possible
    }

    fn has_link_time_code(&self) -> bool {
        self.mode.0.contains(&"-flto")
    }

    fn is_possible(&self) -> bool {
        let there = |program: &str| installed(program);
        let clang_links = || there("ld.gold") && there(&self.archiver());
        there(self.compiler.c)
            && there(self.compiler.cxx)
            && (!self.has_link_time_code() || self.compiler.linker.is_empty() || clang_links())
            && self.has_sanitizer()
    }

    /// Returns whether the sanitizer's own library is installed, if it needs one: clang's is a
    /// package of its own.
    fn has_sanitizer(&self) -> bool {
        if !self.mode.0.iter().any(|option| option.starts_with("-fsanitize")) {
            return true;
        }
        let dir = TestDir::new();
        std::fs::write(dir.path("main.cc"), "int main() {}\n").expect("a source");
        let mut command = Command::new(self.compiler.cxx);
        command.args(self.mode.0).arg(dir.path("main.cc")).arg("-o").arg(dir.path("main"));
        let is_there = run(&mut command).status.success();
        if !is_there {
            eprintln!("left out: {self:?} (apt install libclang-rt-dev)");
        }
        is_there
    }

    fn archiver(&self) -> String {
        if !self.has_link_time_code() {
            return "ar".into();
        }
        let name = format!("-print-prog-name={}", self.compiler.archiver);
        run(Command::new(self.compiler.c).arg(name)).succeeded().out.trim().to_owned()
    }

    /// Compiles a source as the language that its compiler has.
    fn object(&self, folder: &Path, (source, name): (&str, &str), flags: &[&str]) -> PathBuf {
        let object = folder.join(name);
        let is_cxx = source.ends_with(".cc") || flags.contains(&"c++");
        let (program, standard) = match is_cxx {
            true => (self.compiler.cxx, self.standards.1),
            false => (self.compiler.c, self.standards.0),
        };
        let mut command = Command::new(program);
        command
            .args(flags)
            .args(WARNINGS)
            .args(self.compiler.errs)
            .args(["-pthread", "-D_GNU_SOURCE", "-c"])
            .args(self.mode.0);
        command.arg(format!("-std={standard}")).arg("-I").arg(beside("../../../include"));
        if flags.contains(&"-fPIC") {
            // After what the mode says of executables.
            command.arg("-fPIC");
        }
        command.arg(beside("programs/conformance").join(source)).arg("-o").arg(&object);
        run(&mut command).succeeded();
        object
    }

    fn link(&self, output: &Path, objects: &[PathBuf], flags: &[&str]) {
        let mut command = Command::new(self.compiler.cxx);
        command.args(self.mode.0).arg("-pthread").args(objects);
        if self.has_link_time_code() {
            command.args(self.compiler.linker);
        }
        if !flags.contains(&"-shared") {
            command.args(self.mode.1);
        }
        command.arg("-L").arg(libraries()).arg("-ltompion").args(flags);
        for folder in [libraries(), output.parent().expect("a folder")] {
            command.arg(format!("-Wl,-rpath,{}", folder.display()));
        }
        run(command.arg("-o").arg(output)).succeeded();
    }

    /// The program, with its libraries beside it.
    fn program(&self, folder: &Path) -> PathBuf {
        let object = |source, name, flags: &[&str]| self.object(folder, (source, name), flags);
        let shared = [
            object("part.c", "part_shared.o", &["-fPIC", "-DPART=shared_library", "-DCLASH=3"]),
            object("shared.cc", "shared.o", &["-fPIC"]),
        ];
        let library = folder.join("libshared.so");
        self.link(&library, &shared, &["-shared", "-Wl,-soname,libshared.so"]);
        let archive = folder.join("libstatic.a");
        let part = object("part.c", "part_static.o", &["-DPART=static_library", "-DCLASH=2"]);
        run(Command::new(self.archiver()).arg("rcs").arg(&archive).arg(part)).succeeded();
        let objects = [
            object("main.cc", "main.o", &[]),
            object("every.c", "every_c.o", &[]),
            object("every.c", "every_cxx.o", &["-x", "c++"]),
            object("part.c", "part.o", &["-DPART=executable", "-DCLASH=1"]),
            archive,
            library,
        ];
        let program = folder.join("program");
        self.link(&program, &objects, &[]);
        program
    }
}

/// Statements of a program: name and fields of each event.
fn stated(output: &str) -> Vec<(String, Value)> {
    let parse = |line: &str| {
        let mut event: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
        (event["event"].as_str().expect("a name").to_owned(), event["fields"].take())
    };
    output.lines().map(parse).collect()
}

/// Holds the trace against what its program stated, value by value, and our text against
/// babeltrace2's.
fn compare(recorded: &Finished, trace: &Trace, what: &str) {
    let expected = stated(&recorded.out);
    let found: Vec<_> = trace.events().into_iter().map(|event| (event.name, event.fields)).collect();
    for (number, (found, expected)) in found.iter().zip(&expected).enumerate() {
        assert_eq!(found, expected, "{what}: event {number}");
    }
    assert_eq!(found.len(), expected.len(), "{what}");
    assert_eq!(trace.agreed_text(), expected.len() as u64, "{what}");
    assert_eq!(trace.stat()["lost"]["total"], 0, "{what}");
    assert_eq!(trace.babeltrace().err, "", "{what}");
}

/// Names that `tompion list` finds in a file.
fn listed(dir: &TestDir, file: &Path) -> BTreeSet<String> {
    let text = run(dir.tompion(&["list", "--json"]).arg(file)).succeeded().out;
    let rows: Value = serde_json::from_str(&text).expect("JSON from list");
    let names = rows.as_array().expect("rows").iter().map(|row| &row["name"]);
    names.map(|name| name.as_str().expect("a name").to_owned()).collect()
}

#[test]
fn every_macro_records_what_it_was_given_however_it_is_built() {
    for build in Build::all() {
        let what = format!("{build:?}");
        let dir = TestDir::new();
        let program = build.program(dir.path("program").parent().expect("the dir"));
        assert_eq!(run(&mut Command::new(&program)).succeeded().err, "", "{what}");

        let recorded = run(&mut dir.recording("trace", &[], &[&program])).succeeded();
        let trace = dir.trace("trace");
        compare(&recorded, &trace, &what);

        let clash = "program describes part:clash in 3 ways, which are kept apart";
        assert!(recorded.err.contains(clash), "{what}: {}", recorded.err);
        assert!(trace.manifest()["problems"].as_array().expect("problems").contains(&json!(clash)));

        let mut without = dir.recording("without-rseq", &[], &[&program]);
        let (name, value) = WITHOUT_RSEQ;
        let recorded = run(without.env(name, value)).succeeded();
        compare(&recorded, &dir.trace("without-rseq"), &format!("{what}, without rseq"));

        let mut names = listed(&dir, &program);
        names.extend(listed(&dir, &program.with_file_name("libshared.so")));
        for (name, _) in stated(&recorded.out) {
            assert!(names.contains(&name), "{what}: {name} is not listed");
        }
    }
}

/// Sites of each of the libraries.
const SITES: usize = 313;
const LIBRARIES: usize = 32;

/// Returns the source of a library with many sites, each with its own name, and a function that
/// executes them all.
fn source_of_library(number: usize) -> String {
    let sites: String = (0..SITES)
        .map(|site| {
            format!("    TOMPION_EVENT(crowd{number}, site{site}, (u32, library, library), (u16, site, {site}));\n")
        })
        .collect();
    format!(
        "#include <tompion/tompion.h>\nvoid pass(int library);\nvoid pass(int library)\n{{\n{sites}    \
         TOMPION_EVENT(crowd, passed, (u32, library, library));\n}}\n"
    )
}

/// In full runs all libraries differ; in quick ones they are copies of one.
#[test]
fn the_examples_and_the_header_compile_as_the_guides_and_as_gnu_say() {
    let dir = TestDir::new();
    let header = dir.path("header.c");
    let uses =
        "int main(void)\n{\n    TOMPION_EVENT(db, query, (str, table, \"orders\"));\n    return 0;\n}\n";
    for (name, option) in [("plain", ""), ("optional", "#define TOMPION_OPTIONAL\n")] {
        std::fs::write(&header, format!("{option}#include <tompion/tompion.h>\n\n{uses}")).expect("a file");
        let examples = ["hello.c", "late.c"].map(|file| beside("../../../examples").join(file));
        let sources = examples.into_iter().chain([header.clone()]);
        for (source, compiler) in sources.flat_map(|source| [GCC, CLANG].map(|it| (source.clone(), it.c))) {
            if !installed(compiler) {
                eprintln!("left out: {compiler}, which is not installed");
                continue;
            }
            for standard in ["-std=gnu11", "-std=c11"] {
                let mut cc = dir.compile(compiler, &dir.path(name));
                run(cc.arg(standard).arg(&source).arg("-ltompion")).succeeded();
            }
        }
    }
}

#[test]
fn ten_thousand_sites_in_thirty_two_libraries_are_recorded() {
    let dir = TestDir::new();
    let distinct = rounds(1, LIBRARIES as u32) as usize;
    let path = |number: usize| dir.path(&format!("crowd{number}.so"));
    for number in 0..LIBRARIES {
        if number >= distinct {
            std::fs::copy(path(number % distinct), path(number)).expect("a copy of a library");
            continue;
        }
        let source = dir.path("crowd.c");
        std::fs::write(&source, source_of_library(number)).expect("a source file");
        let mut cc = dir.compile("cc", &path(number));
        run(cc.args(["-O0", "-shared", "-fPIC"]).arg(source).arg("-ltompion")).succeeded();
    }
    let host = dir.link("crowd", &["crowd.c"], &["-ldl"]);
    let files: Vec<PathBuf> = (0..LIBRARIES).map(path).collect();
    let mut command: Vec<&dyn AsRef<std::ffi::OsStr>> = vec![&host];
    command.extend(files.iter().map(|file| file as &dyn AsRef<std::ffi::OsStr>));
    let trace = dir.record(&[], &command);

    let events = trace.events();
    let mut expected = Vec::new();
    for library in 0..LIBRARIES {
        let provider = library % distinct;
        expected.extend(
            (0..SITES).map(|site| {
                (format!("crowd{provider}:site{site}"), json!({"library": library, "site": site}))
            }),
        );
        expected.push(("crowd:passed".to_owned(), json!({"library": library})));
    }
    assert_eq!(expected.len(), LIBRARIES * (SITES + 1));
    assert_eq!(events.len(), expected.len());
    for (event, expected) in events.iter().zip(&expected) {
        assert_eq!((&event.name, &event.fields), (&expected.0, &expected.1));
    }
    assert_eq!(trace.agreed_text(), expected.len() as u64);
    assert_eq!(trace.stat()["lost"], json!({"total": 0}));
}
