//! Tracers of the kernel, with the same events and rings: started, let alone, stopped.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;

use super::super::programs;
use super::super::results::Who;
use super::super::tompion::Tompion;
use tompion_tasks::shell;

/// State of a tracer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Attached, and recording nothing.
    Stopped,
    /// A flight recorder.
    Recorder,
    /// Writes to disk all the time.
    Disk,
}

/// Tracer with its events, as a column of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// No tracer.
    Off,
    /// A tracer and what it is at.
    On(Who, State),
}

impl Variant {
    /// All variants: first those that are compared.
    pub const ALL: [Self; 10] = [
        Self::Off,
        Self::On(Who::Tompion, State::Recorder),
        Self::On(Who::Ftrace, State::Recorder),
        Self::On(Who::Perf, State::Recorder),
        Self::On(Who::Tompion, State::Disk),
        Self::On(Who::Ftrace, State::Disk),
        Self::On(Who::Perf, State::Disk),
        Self::On(Who::Tompion, State::Stopped),
        Self::On(Who::Ftrace, State::Stopped),
        Self::On(Who::Perf, State::Stopped),
    ];

    /// Project of the tracer.
    pub const fn who(self) -> Who {
        match self {
            Self::Off => Who::Plain,
            Self::On(who, _) => who,
        }
    }

    /// Name in tables.
    pub fn label(self) -> String {
        let Self::On(who, state) = self else { return "off".into() };
        let name = match who {
            Who::Tompion => "Tompion",
            Who::Ftrace => "ftrace",
            _ => "perf",
        };
        let state = match state {
            State::Stopped => "stopped",
            State::Recorder => "flight recorder",
            State::Disk => "to disk",
        };
        format!("{name}, {state}")
    }
}

/// Events, by each tracer's names.
pub struct Events {
    tompion: &'static str,
    others: &'static [&'static str],
}

/// Both events of all system calls.
pub const CALLS: Events =
    Events { tompion: "syscall_*", others: &["raw_syscalls:sys_enter", "raw_syscalls:sys_exit"] };

/// Events from which wakeup latencies are computed.
pub const WAKE_UPS: Events = Events {
    tompion: "sched_waking,sched_switch,timer_hrtimer_start,timer_hrtimer_expire_entry",
    others: &[
        "sched:sched_waking",
        "sched:sched_switch",
        "timer:hrtimer_start",
        "timer:hrtimer_expire_entry",
    ],
};

/// Events of a recording that is to show what a machine does.
pub const USUAL: Events = Events {
    tompion: "syscall_*,sched_switch,sched_waking,sched_process_fork,sched_process_exec,sched_process_exit,\
              x86_exceptions_page_fault_user",
    others: &[
        "raw_syscalls:sys_enter",
        "raw_syscalls:sys_exit",
        "sched:sched_switch",
        "sched:sched_waking",
        "sched:sched_process_fork",
        "sched:sched_process_exec",
        "sched:sched_process_exit",
        "exceptions:page_fault_user",
    ],
};

/// Size of each CPU's ring for all tracers, in KiB.
const RING_KIB: &str = "4096";
/// Time within which a tracer must begin and end.
const WAIT_TIMEOUT: Duration = Duration::from_secs(90);
/// Time until all of perf's events are there.
const PERF_STARTS: Duration = Duration::from_millis(800);
/// Time between two looks.
const LOOK: Duration = Duration::from_millis(100);

/// Tools that start tracers.
pub struct Tracers {
    tompion: Option<Tompion>,
    folder: PathBuf,
    cpus: usize,
}

/// Tracer that runs. Its files are removed when it is stopped.
pub struct Running {
    children: Vec<Child>,
    instance: Option<Instance>,
    folder: PathBuf,
    state: State,
    who: Who,
}

impl Tracers {
    /// Tracers whose traces go into a folder.
    pub fn new(tompion: Option<Tompion>, folder: PathBuf) -> Self {
        let cpus = std::thread::available_parallelism().map_or(1, usize::from);
        Self { tompion, folder, cpus }
    }

    /// Whether one can be measured here.
    pub fn can(&self, who: Who) -> bool {
        match who {
            Who::Tompion => self.tompion.is_some(),
            Who::Ftrace => Path::new(TRACEFS).join("instances").is_dir(),
            Who::Perf => shell::exists("perf"),
            _ => true,
        }
    }

    /// Starts one, and waits until it is attached.
    pub fn start(&self, variant: Variant, events: &Events) -> Result<Option<Running>> {
        let Variant::On(who, state) = variant else { return Ok(None) };
        programs::remove(&self.folder)?;
        let folder = self.folder.clone();
        let mut running = Running { children: Vec::new(), instance: None, folder, state, who };
        match who {
            Who::Tompion => self.start_tompion(&mut running, events)?,
            Who::Ftrace => self.start_ftrace(&mut running, events)?,
            _ => self.start_perf(&mut running, events)?,
        }
        Ok(Some(running))
    }

    /// Stopped it is attached for a process that sleeps: its programs run at each event, and let it
    /// go.
    fn start_tompion(&self, running: &mut Running, events: &Events) -> Result<()> {
        let tompion = self.tompion.as_ref().context("Tompion is not built")?;
        let mut command = tompion.command();
        command.args(["record", "--subbuf-size", "1M", "--subbufs", "4", "-o"]).arg(&self.folder);
        let events = if running.state == State::Stopped { CALLS.tompion } else { events.tompion };
        command.arg(format!("-k{events}"));
        command.args(["--mode", if running.state == State::Recorder { "overwrite" } else { "discard" }]);
        if running.state == State::Stopped {
            let sleeper = spawn(Command::new("sleep").arg("1000"))?;
            command.args(["-p", &sleeper.id().to_string()]);
            running.children.push(sleeper);
        }
        let recorder = spawn(&mut command)?;
        let pid = recorder.id();
        running.children.insert(0, recorder);
        wait_until("Tompion's programs to be attached", || {
            let before = links_of(pid);
            sleep(LOOK);
            before > 0 && before == links_of(pid)
        })
    }

    /// As `trace-cmd record -B` does it: an instance, and a process for each CPU that writes the
    /// ring's pages to a file.
    fn start_ftrace(&self, running: &mut Running, events: &Events) -> Result<()> {
        let instance = Instance::new()?;
        instance.write("buffer_size_kb", RING_KIB)?;
        instance.write("options/overwrite", if running.state == State::Recorder { "1" } else { "0" })?;
        instance.write("tracing_on", if running.state == State::Stopped { "0" } else { "1" })?;
        for event in events.others {
            instance.write(&format!("events/{}/enable", event.replace(':', "/")), "1")?;
        }
        if running.state == State::Disk {
            fs::create_dir_all(&self.folder)?;
            for cpu in 0..self.cpus {
                let pages = instance.0.join(format!("per_cpu/cpu{cpu}/trace_pipe_raw"));
                let file = File::create(self.folder.join(format!("cpu{cpu}")))?;
                let mut command = Command::new("cat");
                command.arg(pages).stdin(Stdio::null()).stdout(file).stderr(Stdio::null());
                running.children.push(command.spawn().context("cannot run cat")?);
            }
        }
        running.instance = Some(instance);
        Ok(())
    }

    fn start_perf(&self, running: &mut Running, events: &Events) -> Result<()> {
        fs::create_dir_all(&self.folder)?;
        let mut command = Command::new("perf");
        command.args(["record", "--quiet", "--all-cpus", "--no-buildid", "--no-buildid-cache"]);
        command.args(["--mmap-pages", "4M"]).arg("--output").arg(self.folder.join("perf.data"));
        for event in events.others {
            command.args(["--event", event]);
        }
        match running.state {
            State::Stopped => command.arg("--delay=-1"),
            State::Recorder => command.arg("--overwrite"),
            State::Disk => &mut command,
        };
        running.children.push(spawn(&mut command)?);
        sleep(PERF_STARTS);
        ensure!(running.children[0].try_wait()?.is_none(), "perf ended at once");
        Ok(())
    }
}

impl Running {
    /// Ends it. Returns how many events it says it lost, if it was to keep all and tells.
    pub fn stop(mut self) -> Result<Option<f64>> {
        let mut lost = self.instance.as_ref().map(Instance::stop).transpose()?;
        for (place, child) in self.children.iter_mut().enumerate() {
            if place == 0 && self.who != Who::Ftrace {
                interrupt(child)?;
            } else {
                child.kill()?;
                child.wait()?;
            }
        }
        // One that recorded nothing leaves no trace.
        if self.who == Who::Tompion && self.state == State::Disk {
            lost = Some(losses(&self.folder)?);
        }
        programs::remove(&self.folder)?;
        Ok(lost.filter(|_| self.state == State::Disk))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for child in &mut self.children {
            // Those that were stopped are gone already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(command: &mut Command) -> Result<Child> {
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().with_context(|| format!("cannot run `{}`", shell::describe(command)))
}

/// Asks a recorder to end, and waits for it.
fn interrupt(child: &mut Child) -> Result<()> {
    shell::run_quietly(Command::new("kill").args(["-INT", &child.id().to_string()]))?;
    wait_until("a recorder to end", || !matches!(child.try_wait(), Ok(None)))
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) -> Result<()> {
    let begin = Instant::now();
    while !is_so() {
        if begin.elapsed() > WAIT_TIMEOUT {
            bail!("timed out waiting for {what}");
        }
        sleep(LOOK / 10);
    }
    Ok(())
}

/// Number of programs that a process has attached.
fn links_of(pid: u32) -> usize {
    let Ok(entries) = fs::read_dir(format!("/proc/{pid}/fdinfo")) else { return 0 };
    let texts = entries.flatten().filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.filter(|text| text.contains("link_type:")).count()
}

/// Number of the kernel's events that a recording says it lost.
fn losses(folder: &Path) -> Result<f64> {
    let text = fs::read_to_string(folder.join("tompion.json")).context("Tompion wrote no manifest")?;
    let manifest: Value = serde_json::from_str(&text)?;
    let sources = manifest["sources"].as_array().context("no sources in the manifest")?;
    let kernel =
        sources.iter().find(|source| source["kind"] == "kernel").context("no kernel in the trace")?;
    let lost = kernel["lost"].as_object().context("no losses in the manifest")?;
    Ok(lost.values().filter_map(Value::as_f64).sum())
}

const TRACEFS: &str = "/sys/kernel/tracing";

/// An instance of tracefs, which goes with this.
struct Instance(PathBuf);

impl Instance {
    fn new() -> Result<Self> {
        let folder = Path::new(TRACEFS).join(format!("instances/tompion-bench-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
        Ok(Self(folder))
    }

    fn write(&self, file: &str, text: &str) -> Result<()> {
        let file = self.0.join(file);
        fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }

    /// Ends recording. Returns how many events did not find room.
    fn stop(&self) -> Result<f64> {
        self.write("tracing_on", "0")?;
        self.write("events/enable", "0")?;
        let mut lost = 0.0;
        for entry in fs::read_dir(self.0.join("per_cpu"))? {
            let stats = fs::read_to_string(entry?.path().join("stats"))?;
            let lines = stats.lines().filter_map(|line| line.split_once(": "));
            let counts =
                lines.filter(|(name, _)| matches!(*name, "overrun" | "commit overrun" | "dropped events"));
            lost += counts.filter_map(|(_, count)| count.parse::<f64>().ok()).sum::<f64>();
        }
        Ok(lost)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // If it stays, it is found on the machine: while its pages are being read it can't go.
        let _ = self.write("events/enable", "0");
        let _ = wait_until("readers to leave", || fs::remove_dir(&self.0).is_ok());
    }
}
