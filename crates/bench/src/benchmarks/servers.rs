//! `x bench servers`: requests a second of redis and nginx on the loopback device, while they are
//! recorded.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use super::results::{Figure, Results, Who};
use super::tompion::Tompion;
use super::{Options, Report, programs, progress};
use tompion_tasks::shell;
use tompion_tasks::table::Table;
use tompion_tasks::workspace::Workspace;

/// Duration of a load, in seconds and in requests.
const LOAD: (&str, &str) = ("4", "200000");
const QUICK_LOAD: (&str, &str) = ("1", "20000");
/// A load that takes longer hangs.
const MAX_LOAD_SECONDS: u64 = 60;
/// Time within which a server must listen, and end.
const SERVER_TIMEOUT: Duration = Duration::from_secs(30);

const METHOD: &str = "\
Server and client share the machine's CPUs, over the loopback device; variants interleaved; requests a second, \
medians beside the smallest and the largest. Each measurement starts a server of its own, recorded from its start.\n";

/// A server and its load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Server {
    Redis,
    Nginx,
}

/// Tracer that records it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Tracer {
    Plain,
    Kernel,
    KernelOverwrite,
    Malloc,
    PerfRecord,
    PerfTrace,
    Strace,
}

const TRACERS: [Tracer; 7] = [
    Tracer::Plain,
    Tracer::Kernel,
    Tracer::KernelOverwrite,
    Tracer::Malloc,
    Tracer::PerfRecord,
    Tracer::PerfTrace,
    Tracer::Strace,
];

impl Tracer {
    const fn label(self) -> &'static str {
        match self {
            Self::Plain => "no tracer",
            Self::Kernel => "tompion record -k",
            Self::KernelOverwrite => "tompion record -k --mode overwrite",
            Self::Malloc => "tompion record --preload malloc",
            Self::PerfRecord => "perf record, the same tracepoints",
            Self::PerfTrace => "perf trace, system calls alone",
            Self::Strace => "strace -f, system calls alone",
        }
    }

    const fn who(self) -> Who {
        match self {
            Self::Plain => Who::Plain,
            Self::Kernel | Self::KernelOverwrite | Self::Malloc => Who::Tompion,
            Self::PerfRecord | Self::PerfTrace => Who::Perf,
            Self::Strace => Who::Strace,
        }
    }

    fn is_installed(self) -> bool {
        match self {
            Self::PerfRecord | Self::PerfTrace => shell::exists("perf"),
            Self::Strace => shell::exists("strace"),
            _ => true,
        }
    }
}

struct Bench {
    tompion: Tompion,
    folder: PathBuf,
    load: (&'static str, &'static str),
}

/// Runs the benchmark.
pub fn run(workspace: &Workspace, options: &Options) -> Result<Report> {
    let bench = Bench {
        tompion: Tompion::build(workspace)?.context("Tompion is not built")?,
        folder: programs::folder(workspace)?.join("servers"),
        load: if options.quick { QUICK_LOAD } else { LOAD },
    };
    let servers = [Server::Redis, Server::Nginx].into_iter().filter(|server| server.is_installed());
    let tracers = || TRACERS.into_iter().filter(|tracer| tracer.is_installed());
    let pairs: Vec<_> = servers.flat_map(|server| tracers().map(move |tracer| (server, tracer))).collect();
    ensure!(!pairs.is_empty(), "no server: install redis-server and redis-tools, or nginx and wrk");
    let new = |(server, tracer): &(Server, Tracer)| {
        Figure::new("servers", tracer.who(), tracer.label(), server.name(), "requests a second")
    };
    let mut figures: Vec<Figure> = pairs.iter().map(new).collect();
    for repetition in 0..options.repetitions {
        for ((server, tracer), figure) in pairs.iter().zip(&mut figures) {
            let (name, label) = (server.name(), tracer.label());
            progress(&format!("repetition {}/{}: {name}, {label}", repetition + 1, options.repetitions));
            figure.note(bench.measure(*server, *tracer));
        }
    }
    progress("");
    programs::remove(&bench.folder)?;
    report(figures, options.repetitions)
}

impl Server {
    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis, GET",
            Self::Nginx => "nginx, a small file",
        }
    }

    fn is_installed(self) -> bool {
        let programs = match self {
            Self::Redis => ["redis-server", "redis-benchmark"],
            Self::Nginx => ["nginx", "wrk"],
        };
        programs.into_iter().all(shell::exists)
    }

    /// The words that start it.
    fn words(self, folder: &Path, port: u16) -> Result<Vec<String>> {
        let pid_file = folder.join("server.pid").display().to_string();
        let place = folder.display().to_string();
        let words = match self {
            Self::Redis => {
                let port = port.to_string();
                let options = ["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"];
                let files = ["--dir", &place, "--pidfile", &pid_file];
                [&["redis-server"][..], &options, &files].concat().into_iter().map(String::from).collect()
            }
            Self::Nginx => {
                let text = format!(
                    "daemon off; master_process off; pid {pid_file}; error_log {place}/error.log;\n\
                     events {{}}\n\
                     http {{ access_log off; server {{ listen 127.0.0.1:{port}; root {place}; }} }}\n"
                );
                fs::write(folder.join("nginx.conf"), text)?;
                fs::write(folder.join("index.html"), "hello\n".repeat(100))?;
                ["nginx", "-p", &place, "-c", &format!("{place}/nginx.conf")].map(String::from).to_vec()
            }
        };
        Ok(words)
    }

    /// Requests a second under load.
    fn load(self, port: u16, (seconds, requests): (&str, &str)) -> Result<f64> {
        let mut command = match self {
            Self::Redis => {
                let mut command = Command::new("redis-benchmark");
                command.args(["-p", &port.to_string(), "-t", "get", "-n", requests, "-c", "20", "--csv"]);
                command
            }
            Self::Nginx => {
                let mut command = Command::new("wrk");
                command.args(["-t", "1", "-c", "20", "-d", seconds]);
                command.arg(format!("http://127.0.0.1:{port}/index.html"));
                command
            }
        };
        let text = shell::capture(&mut shell::limited(MAX_LOAD_SECONDS, command.stdin(Stdio::null())))?;
        let rate = match self {
            Self::Redis => text.lines().find_map(|line| line.strip_prefix("\"GET\",\"")?.split('"').next()),
            Self::Nginx => text.lines().find_map(|line| line.strip_prefix("Requests/sec:")).map(str::trim),
        };
        rate.context("the load told no rate")?.parse().context("the load told no rate")
    }
}

impl Bench {
    fn measure(&self, server: Server, tracer: Tracer) -> Result<f64> {
        programs::remove(&self.folder)?;
        fs::create_dir_all(&self.folder)?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = self.traced(tracer);
        command.args(server.words(&self.folder, port)?);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut child =
            command.spawn().with_context(|| format!("cannot run `{}`", shell::describe(&command)))?;
        let rate = wait_for(&mut child, || TcpStream::connect(("127.0.0.1", port)).is_ok())
            .and_then(|()| server.load(port, self.load));
        end(&mut child, &self.folder.join("server.pid"))?;
        rate
    }

    /// The words before those of the server.
    fn traced(&self, tracer: Tracer) -> Command {
        let output = self.folder.join("trace");
        let with = |mut command: Command, words: &[&str]| {
            command.args(words).arg("-o").arg(&output).arg("--");
            command
        };
        match tracer {
            Tracer::Plain => Command::new("env"),
            Tracer::Kernel => with(self.tompion.command(), &["record", "-k"]),
            Tracer::KernelOverwrite => with(self.tompion.command(), &["record", "-k", "--mode", "overwrite"]),
            Tracer::Malloc => with(self.tompion.command(), &["record", "--preload", "malloc"]),
            Tracer::PerfRecord => {
                let events = "raw_syscalls:*,sched:sched_switch,sched:sched_waking,sched:sched_wakeup,\
                              irq:softirq_entry,irq:softirq_exit";
                with(Command::new("perf"), &["record", "-q", "-a", "-m", "4M", "-e", events])
            }
            Tracer::PerfTrace => with(Command::new("perf"), &["trace"]),
            Tracer::Strace => with(Command::new("strace"), &["-f"]),
        }
    }
}

/// Waits until it is so, as long as the process lives.
fn wait_for(child: &mut Child, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so() {
        if let Some(status) = child.try_wait()? {
            bail!("the server ended before it listened: {status}");
        }
        ensure!(begin.elapsed() < SERVER_TIMEOUT, "the server does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

/// Ends the server by its process id, and waits for its recorder.
fn end(child: &mut Child, pid_file: &Path) -> Result<()> {
    let pid = fs::read_to_string(pid_file).ok().and_then(|text| text.trim().parse::<u32>().ok());
    let pid = pid.unwrap_or(child.id()).to_string();
    let _ = shell::run(Command::new("kill").args(["-TERM", &pid]));
    let begin = Instant::now();
    while child.try_wait()?.is_none() {
        if begin.elapsed() > SERVER_TIMEOUT {
            child.kill()?;
            child.wait()?;
            bail!("the recorder did not end with its server");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn report(figures: Vec<Figure>, repetitions: usize) -> Result<Report> {
    let mut table = Table::new(&["server", "", "requests a second", "of untraced"]);
    for figure in &figures {
        let is_plain = |other: &&Figure| other.at == figure.at && other.who == Who::Plain;
        let plain = figures.iter().find(is_plain).and_then(Figure::median).unwrap_or(f64::NAN);
        let share = figure.median().unwrap_or(f64::NAN) / plain * 100.0;
        table.row(vec![figure.at.clone(), figure.label.clone(), figure.cell(), format!("{share:.0} %")]);
    }
    let title = "redis and nginx while they are recorded";
    let results = Results::new("servers", repetitions, figures)?;
    Ok(Report::of_table(title, METHOD, &table, results))
}
