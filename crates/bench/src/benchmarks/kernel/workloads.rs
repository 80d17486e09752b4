//! Workloads that run while the kernel is recorded: each says how long it took, or how much it did.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::super::programs::{self, Program};
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// A run that takes longer hangs.
const MAX_SECONDS: u64 = 60;
/// Time for `tbench`'s server to start.
const SERVER_STARTS: Duration = Duration::from_millis(300);

/// Something of the kernel's that is done over and over.
pub struct Micro {
    /// Name in the program.
    pub word: &'static str,
    /// Name in tables.
    pub place: &'static str,
    /// Number of repetitions.
    pub count: u64,
}

/// The call whose cost is measured apart, too.
pub const NULL_CALL: Micro = Micro { word: "null", place: "null call", count: 1_000_000 };

/// Measurements of lmbench.
pub const MICRO: [Micro; 5] = [
    NULL_CALL,
    Micro { word: "read", place: "read", count: 500_000 },
    Micro { word: "fault", place: "page fault", count: 100_000 },
    Micro { word: "fork", place: "fork and exit", count: 2_000 },
    Micro { word: "switch", place: "context switch", count: 100_000 },
];

/// Programs that others measure kernels with.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Large {
    /// A file server's traffic through the loopback device.
    Tbench,
    /// A file server's files, in memory.
    Dbench,
    /// Processes that send each other messages.
    Hackbench,
    /// A compiler, once for each of some files.
    Compilation,
}

impl Large {
    /// All workloads, in the order of the tables.
    pub const ALL: [Self; 4] = [Self::Tbench, Self::Dbench, Self::Hackbench, Self::Compilation];

    /// Name in tables.
    pub const fn place(self) -> &'static str {
        match self {
            Self::Tbench => "tbench",
            Self::Dbench => "dbench",
            Self::Hackbench => "hackbench",
            Self::Compilation => "compilation",
        }
    }

    /// The table's name and unit.
    pub const fn table(self) -> (&'static str, &'static str) {
        match self {
            Self::Tbench | Self::Dbench => ("throughput", "MB a second, more is better"),
            Self::Hackbench | Self::Compilation => ("run time", "seconds"),
        }
    }
}

/// Tools of the workloads.
pub struct Workloads {
    micro: PathBuf,
    source: PathBuf,
    files: PathBuf,
    quick: bool,
}

impl Workloads {
    /// Builds what is ours.
    pub fn prepare(workspace: &Workspace, quick: bool) -> Result<Self> {
        let program = Program { name: "micro", sources: &["kernel/micro.c"], flags: &[] };
        Ok(Self {
            micro: programs::build(workspace, &program)?,
            source: workspace.root.join("benches/kernel/micro.c"),
            files: programs::memory_folder(workspace)?.join("dbench"),
            quick,
        })
    }

    /// Nanoseconds that one takes.
    pub fn micro(&self, what: &Micro, cpus: usize) -> Result<f64> {
        let count = if self.quick { what.count / 20 } else { what.count };
        let mut command = Command::new(&self.micro);
        command.args([what.word, &count.to_string(), &cpus.to_string()]);
        number(&shell::capture(&mut shell::limited(MAX_SECONDS, &command))?)
    }

    /// Seconds, or megabytes a second.
    pub fn large(&self, what: Large, cpus: usize) -> Result<f64> {
        match what {
            Large::Tbench => {
                let server = Server::start(cpus)?;
                let command = served(self.seconds(), cpus, "tbench", &["127.0.0.1"]);
                let found = throughput(&capture(command, cpus)?);
                drop(server);
                found
            }
            Large::Dbench => {
                programs::remove(&self.files)?;
                std::fs::create_dir_all(&self.files)?;
                let folder = self.files.display().to_string();
                let mut command = served(self.seconds(), cpus, "dbench", &[]);
                command.args(["-D", &folder]);
                let found = throughput(&capture(command, cpus)?);
                programs::remove(&self.files)?;
                found
            }
            Large::Hackbench => {
                let mut command = Command::new("hackbench");
                command.args(["--groups", "1", "--loops", if self.quick { "50" } else { "1500" }]);
                let text = capture(command, cpus)?;
                let time = text.lines().find_map(|line| line.strip_prefix("Time:"));
                number(time.context("hackbench told no time")?)
            }
            Large::Compilation => self.compile(cpus),
        }
    }

    const fn seconds(&self) -> &'static str {
        // A second is spent before they measure.
        if self.quick { "2" } else { "3" }
    }

    fn compile(&self, cpus: usize) -> Result<f64> {
        let files = if self.quick { 2 } else { 12 };
        let list: String = (0..files).map(|_| format!("{}\n", self.source.display())).collect();
        let file = self.micro.with_file_name("compiled-files");
        std::fs::write(&file, list)?;
        let mut command = Command::new("xargs");
        command.arg("--arg-file").arg(file);
        command.args(["--max-args=1", &format!("--max-procs={cpus}"), "cc", "-O2", "-o", "/dev/null", "-c"]);
        let begin = Instant::now();
        capture(command, cpus)?;
        Ok(begin.elapsed().as_secs_f64())
    }
}

/// `tbench` and `dbench` have the same words: so many clients as CPUs.
fn served(seconds: &str, cpus: usize, program: &str, behind: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(["-t", seconds, &cpus.to_string()]).args(behind);
    command
}

/// Runs a program on the first CPUs alone.
fn capture(command: Command, cpus: usize) -> Result<String> {
    shell::capture(&mut shell::limited(MAX_SECONDS, &on_cpus(&command, cpus)))
}

fn on_cpus(command: &Command, cpus: usize) -> Command {
    let mut pinned = Command::new("taskset");
    pinned.args(["--cpu-list", &format!("0-{}", cpus - 1)]);
    shell::wrapped(pinned, command)
}

/// `Throughput 260.397 MB/sec  1 clients …`
fn throughput(text: &str) -> Result<f64> {
    let rest = text.lines().find_map(|line| line.strip_prefix("Throughput "));
    number(rest.and_then(|rest| rest.split(' ').next()).context("no throughput was told")?)
}

fn number(text: &str) -> Result<f64> {
    text.trim().parse().with_context(|| format!("no number: {text}"))
}

/// The other side of `tbench`, on the same CPUs; it ends with this.
struct Server(Child);

impl Server {
    fn start(cpus: usize) -> Result<Self> {
        let mut command = on_cpus(&Command::new("tbench_srv"), cpus);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("cannot run tbench_srv")?;
        std::thread::sleep(SERVER_STARTS);
        Ok(Self(child))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Whether all programs are there, else what to install.
pub fn missing() -> Option<&'static str> {
    let needs = [("tbench", "dbench"), ("hackbench", "rt-tests"), ("taskset", "util-linux"), ("cc", "gcc")];
    needs.into_iter().find(|(program, _)| !shell::exists(program)).map(|(_, package)| package)
}

/// Folder for traces of this benchmark, on a disk.
pub fn trace_folder(workspace: &Workspace) -> Result<PathBuf> {
    Ok(Path::new(&programs::folder(workspace)?).join("kernel-trace"))
}
