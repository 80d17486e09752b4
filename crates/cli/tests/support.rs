//! Test support: a temporary folder per test, the command, and the traces that it writes.

use std::{
    ffi::OsStr,
    fs,
    os::unix::{fs::symlink, process::CommandExt},
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::Once,
};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

pub use tompion_testing::wait_until;

/// The command under test.
pub const TOMPION: &str = env!("CARGO_BIN_EXE_tompion");

/// `quick` times, or `full` times in the long form.
pub fn rounds(quick: u32, full: u32) -> u32 {
    tompion_testing::rounds(quick, full)
}

/// Path of a file in `crates/cli/tests`.
pub fn beside(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests").join(name)
}

pub fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The folder with the command and its libraries.
pub fn libraries() -> &'static Path {
    static BUILT: Once = Once::new();
    let folder = Path::new(TOMPION).parent().expect("the command stands in a folder");
    BUILT.call_once(|| build_libraries(folder));
    folder
}

/// Names of the preload libraries in `crates/agent/preload`.
const PRELOADS: [&str; 8] = ["malloc", "pthread", "func", "npt", "lttng-ust", "itt", "nvtx", "tracy"];

/// The library by cargo, the preload wrappers by the C compiler, all beside the command.
fn build_libraries(folder: &Path) {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
    cargo.args(["build", "--quiet", "--package", "tompion-agent", "--target-dir"]);
    cargo.arg(folder.parent().expect("cargo's folders")).current_dir(repository());
    if folder.ends_with("release") {
        cargo.arg("--release");
    }
    run(&mut cargo).succeeded();
    if !folder.join("libtompion.so.0").exists() {
        symlink("libtompion.so", folder.join("libtompion.so.0")).expect("a link to the library");
    }
    for name in PRELOADS {
        build_preload(name, folder);
    }
    let lttng = folder.join("lttng-ust");
    fs::create_dir_all(&lttng).expect("a folder");
    for name in ["liblttng-ust.so.1", "liblttng-ust-tracepoint.so.1", "liblttng-ust-common.so.1"] {
        if !lttng.join(name).exists() {
            symlink("../libtompion-lttng-ust.so", lttng.join(name)).expect("a link to the library");
        }
    }
}

/// Compiles a preload wrapper, unless it is newer than its source.
fn build_preload(name: &str, folder: &Path) {
    let library = format!("libtompion-{name}.so");
    let (output, fresh) = (folder.join(&library), folder.join(format!(".{library}.test")));
    let source = repository().join("crates/agent/preload").join(format!("{name}.c"));
    let options = repository().join("crates/agent/preload/options");
    let time = |path: &Path| fs::metadata(path).and_then(|metadata| metadata.modified()).ok();
    let folders = [source.with_file_name(""), source.with_extension(""), source.with_file_name("marks")];
    let files = folders.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten().flatten());
    let headers = files.map(|entry| entry.path()).filter(|path| path.extension() == Some(OsStr::new("h")));
    let newest = headers.map(|path| time(&path)).max().flatten().max(time(&source)).max(time(&options));
    if time(&output) > newest {
        return;
    }
    let mut cc = compiler();
    cc.arg(format!("@{}", options.display())).arg("-I").arg(repository().join("include/lttng-ust"));
    cc.arg(source);
    cc.arg("-L").arg(folder).args(["-ltompion", "-ldl", "-Wl,-rpath,$ORIGIN:$ORIGIN/..:$ORIGIN/../.."]);
    cc.arg("-Wl,--auxiliary=libtompion.so.0");
    cc.arg(format!("-Wl,-soname,{library}")).arg("-o").arg(&fresh);
    run(&mut cc).succeeded();
    fs::rename(fresh, output).expect("the preload wrapper in its place");
}

/// The folder with the command and its libraries, and `libtompion.a` among them.
pub fn static_library() -> &'static Path {
    static BUILT: Once = Once::new();
    let folder = libraries();
    BUILT.call_once(|| {
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or("cargo".into()));
        cargo.args(["rustc", "--quiet", "--package", "tompion-agent", "--no-default-features"]);
        cargo.args(["--crate-type", "staticlib", "--target-dir"]);
        cargo.arg(folder.parent().expect("cargo's folders")).current_dir(repository());
        if folder.ends_with("release") {
            cargo.arg("--release");
        }
        run(&mut cargo).succeeded();
    });
    folder
}

/// The C compiler, with the options of all tests; it finds the header.
pub fn compiler() -> Command {
    let mut cc = Command::new(std::env::var_os("CC").unwrap_or("cc".into()));
    cc.args(["-O2", "-Wall", "-Wextra", "-Werror", "-I"]).arg(repository().join("include"));
    cc
}

/// Returns whether a program can be found.
pub fn installed(program: &str) -> bool {
    Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success())
}

/// Temporary folder of one test, with the programs and traces that the test makes.
pub struct TestDir(tompion_testing::TestDir);

impl TestDir {
    /// Creates an empty folder.
    pub fn new() -> Self {
        Self(tompion_testing::TestDir::new("cli"))
    }

    /// Path of a file in the folder.
    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Compiles and links one program of `programs/`.
    pub fn program(&self, name: &str) -> PathBuf {
        self.link(name, &[&format!("{name}.c")], &[])
    }

    /// Compiles sources of `programs/` into one program or library; its libraries are found where
    /// they are.
    pub fn link(&self, name: &str, sources: &[&str], flags: &[&str]) -> PathBuf {
        let output = self.path(name);
        let mut cc = compiler();
        cc.args(["-std=gnu11", "-pthread"]);
        cc.args(sources.iter().map(|source| beside("programs").join(source)));
        cc.args(flags).arg("-L").arg(libraries()).arg("-ltompion");
        cc.arg(format!("-Wl,-rpath,{}", libraries().display())).arg("-o").arg(&output);
        run(&mut cc).succeeded();
        output
    }

    /// A named compiler that makes `output` and finds the library; sources and `-ltompion` are to
    /// follow.
    pub fn compile(&self, compiler: &str, output: &Path) -> Command {
        let mut cc = Command::new(compiler);
        cc.args(["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-pthread"]).current_dir(self.0.path());
        cc.arg("-I").arg(repository().join("include")).arg("-L").arg(libraries());
        cc.arg(format!("-Wl,-rpath,{}", libraries().display())).arg("-o").arg(output);
        cc
    }

    /// `tompion record -o NAME OPTIONS -- COMMAND`, to be run in the folder.
    pub fn recording(&self, trace: &str, options: &[&str], command: &[&dyn AsRef<OsStr>]) -> Command {
        let mut record = self.tompion(&["record", "-o", trace]);
        record.args(options).arg("--").args(command.iter().map(|word| word.as_ref()));
        record
    }

    /// Records a command into the trace `trace` with all that a test of sound programs expects.
    pub fn record(&self, options: &[&str], command: &[&dyn AsRef<OsStr>]) -> Trace {
        run(&mut self.recording("trace", options, command)).succeeded();
        self.trace("trace")
    }

    /// Returns a trace in this folder.
    pub fn trace(&self, name: &str) -> Trace {
        Trace { folder: self.path(name) }
    }

    /// The command, to be run in the folder.
    pub fn tompion(&self, arguments: &[&str]) -> Command {
        libraries();
        let mut command = tompion();
        command.args(arguments).current_dir(self.0.path());
        command
    }
}

/// The command, in UTC and with nothing of the environment that could matter.
pub fn tompion() -> Command {
    let mut command = Command::new(TOMPION);
    command.env("TZ", "UTC").env_remove("TOMPION_SESSION").env_remove("LD_PRELOAD").env("COLUMNS", "100");
    command
}

/// Output and exit status of a program.
#[derive(Debug)]
pub struct Finished {
    command: String,
    pub status: ExitStatus,
    pub out: String,
    pub err: String,
}

impl Finished {
    /// Checks that the exit code is 0.
    #[track_caller]
    pub fn succeeded(self) -> Self {
        self.exited(0)
    }

    /// Asserts that this signal ended it.
    #[track_caller]
    pub fn killed_by(self, signal: Signal) -> Self {
        use std::os::unix::process::ExitStatusExt as _;
        assert_eq!(self.status.signal(), Some(signal.as_raw()), "{self:?}");
        self
    }

    /// Checks the exit code.
    #[track_caller]
    pub fn exited(self, code: i32) -> Self {
        assert_eq!(
            self.status.code(),
            Some(code),
            "{}: {}\n{}{}",
            self.command,
            self.status,
            self.out,
            self.err
        );
        self
    }
}

/// Runs a program to its end.
pub fn run(command: &mut Command) -> Finished {
    finish(start(command), &format!("{command:?}"))
}

/// Starts a program with captured output. It ends with the test at the latest, so that a failed
/// test leaves no recorder that would record other tests' programs.
pub fn start(command: &mut Command) -> Child {
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    tompion_os::Inheritance::current().hand_on_to_companion(command);
    command.spawn().unwrap_or_else(|error| panic!("{command:?}: {error}"))
}

/// Starts a program as the leader of a process group, as a shell does.
pub fn start_group(command: &mut Command) -> Child {
    start(command.process_group(0))
}

/// Waits for a program's end.
pub fn finish(child: Child, name: &str) -> Finished {
    let Output { status, stdout, stderr } = child.wait_with_output().expect("a child of this test");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Finished { command: name.to_owned(), status, out: text(stdout), err: text(stderr) }
}

/// Sends a signal to a process.
pub fn signal(pid: u32, signal: Signal) {
    kill_process(Pid::from_raw(pid as i32).expect("a process"), signal).expect("a process that is there");
}

/// A recorded trace.
pub struct Trace {
    pub folder: PathBuf,
}

/// An event as `print` shows it.
#[derive(Clone, Debug, PartialEq)]
pub struct Event {
    /// Nanoseconds since 1970.
    pub time: i64,
    pub name: String,
    pub cpu: u32,
    /// Path of the process's trace.
    pub source: String,
    pub fields: Value,
    pub context: Value,
}

impl Event {
    /// Returns an integer field.
    #[track_caller]
    pub fn number(&self, field: &str) -> u64 {
        self.fields[field].as_u64().unwrap_or_else(|| panic!("no number `{field}` in {self:?}"))
    }
}

impl Trace {
    /// The text of `tompion print`.
    pub fn printed(&self) -> String {
        run(tompion().arg("print").arg(&self.folder)).succeeded().out
    }

    /// babeltrace2's text and its warnings.
    pub fn babeltrace(&self) -> Finished {
        run(Command::new("babeltrace2").env("TZ", "UTC").arg(&self.folder)).succeeded()
    }

    /// The object of `tompion stat --json`.
    pub fn stat(&self) -> Value {
        let text = run(tompion().args(["stat", "--json"]).arg(&self.folder)).succeeded().out;
        serde_json::from_str(&text).expect("JSON from stat")
    }

    /// `tompion.json`.
    pub fn manifest(&self) -> Value {
        let text = fs::read(self.folder.join("tompion.json")).expect("a manifest");
        serde_json::from_slice(&text).expect("JSON in the manifest")
    }

    /// Returns all events, in order of time.
    pub fn events(&self) -> Vec<Event> {
        let json = run(tompion().args(["print", "--format", "json"]).arg(&self.folder)).succeeded().out;
        json.lines().map(event).collect()
    }

    /// Number of processes that asked to take part and were rejected.
    pub fn left_out(&self) -> u64 {
        self.stat()["left_out"].as_u64().unwrap_or(0)
    }

    /// The number of events, on which both readers and the summary agree.
    pub fn agreed_count(&self) -> u64 {
        let (ours, theirs) = (self.printed(), self.babeltrace().out);
        let count = ours.lines().count();
        assert_eq!(count, theirs.lines().count());
        assert_eq!(self.stat()["events"], count);
        count as u64
    }

    /// The same, where babeltrace2's text is the same, too.
    ///
    /// It need not be where events of two processes have one time, or a text is empty: babeltrace2
    /// 2.0.4 then shows the text of an earlier event.
    pub fn agreed_text(&self) -> u64 {
        let (ours, theirs) = (self.printed(), self.babeltrace().out);
        for (ours, theirs) in ours.lines().zip(theirs.lines()) {
            assert_eq!(ours, theirs, "babeltrace2 prints other text");
        }
        self.agreed_count()
    }
}

/// Parses an event from its line of JSON.
pub fn event(line: &str) -> Event {
    let mut value: Value = serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    Event {
        time: value["timestamp_ns"].as_i64().expect("a time"),
        name: text(&value["event"]),
        cpu: value["cpu"].as_u64().expect("a CPU") as u32,
        source: text(&value["trace"]),
        fields: value["fields"].take(),
        context: value["context"].take(),
    }
}
