//! `--capture`: a flight recorder of programs' events beside the threshold watcher. It has two sets
//! of rings. The context switch that ends a late wakeup makes programs write to the other set. The
//! contents of both are saved in the incident's folder, and another recorder starts.

use std::{
    env, fs,
    io::Read as _,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tompion_os::{
    DirHandle, Inheritance, Lock,
    signal::{SIGKILL, SIGTERM},
};

use crate::messages::{pluralize, print_status};

/// Name of the program events' trace in an incident's folder.
const PROGRAMS: &str = "programs";
/// Prefix of the folders that hold recordings until an incident; the process id follows.
const FOLDER_PREFIX: &str = ".tompion-programs-";
/// Command name of Tompion's processes (`/proc/PID/comm`).
const COMMAND: &str = "tompion";
/// Time that a recorder has to save its rings.
const SAVE_TIMEOUT: Duration = Duration::from_secs(20);

/// `tompion record` of all programs in overwrite mode, as a child process.
pub struct ProgramRecorder {
    options: RecorderOptions,
    /// Folder of the recordings, until an incident takes them.
    folder: DirHandle,
    /// Lock that marks the folder as used. Some file systems have no locks.
    _lock: Option<Lock>,
    /// Number of the present recording.
    number: u64,
    child: Child,
    is_save_requested: bool,
}

/// Options of a recorder.
pub struct RecorderOptions {
    /// Patterns of the events to record.
    pub events: Vec<String>,
    /// State of this process before it took signals.
    pub inheritance: Inheritance,
    /// Map that selects which of the two ring sets programs write to.
    pub selector: OwnedFd,
}

impl ProgramRecorder {
    /// Starts a recorder that writes its recordings below a folder.
    pub fn begin(parent: &DirHandle, options: RecorderOptions) -> anyhow::Result<Self> {
        let name = format!("{FOLDER_PREFIX}{}", std::process::id());
        let folder = parent.create_below(&name);
        let folder = folder.with_context(|| format!("can't make {name} in {}", parent.path().display()))?;
        let lock = tompion_os::try_lock(&folder).ok().flatten();
        let child = start(&folder, 0, &options)?;
        Ok(Self { options, folder, _lock: lock, number: 0, child, is_save_requested: false })
    }

    /// Requests that the recorder saves its rings and exits.
    pub fn request_save(&mut self) {
        if !self.is_save_requested {
            self.is_save_requested = true;
            let _ = tompion_os::kill(self.child.id(), SIGTERM);
        }
    }

    /// Moves the recording into an incident's folder, if there is one, and starts another recorder,
    /// also if moving failed.
    pub fn move_to(&mut self, incident: Option<&DirHandle>) -> anyhow::Result<()> {
        self.request_save();
        self.wait();
        let moved = incident.map_or(Ok(()), |incident| self.move_recording(incident));
        // A recording that was not moved must not fill the disk.
        let _ = self.recording().remove_all();
        self.number += 1;
        self.child = start(&self.folder, self.number, &self.options)?;
        self.is_save_requested = false;
        moved
    }

    fn move_recording(&self, incident: &DirHandle) -> anyhow::Result<()> {
        let recording = self.recording();
        // Without events, there is none.
        if recording.exists() {
            recording.rename_to(&incident.join(PROGRAMS)).context("can't save program events")?;
        } else {
            let mut output = String::new();
            // The log may be missing, or no text.
            let _ = self.folder.read(log(self.number)).and_then(|mut log| log.read_to_string(&mut output));
            print_status(format!(
                "no program events: {}",
                output.lines().last().unwrap_or("the recorder ended")
            ));
        }
        Ok(())
    }

    fn recording(&self) -> DirHandle {
        self.folder.join(self.number.to_string())
    }

    fn wait(&mut self) {
        let until = Instant::now() + SAVE_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                print_status(format!(
                    "the recorder of program events did not exit within {}; killing it",
                    pluralize(SAVE_TIMEOUT.as_secs(), "second")
                ));
                let _ = tompion_os::kill(self.child.id(), SIGKILL);
                let _ = self.child.wait();
                return;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
    }
}

impl Drop for ProgramRecorder {
    fn drop(&mut self) {
        self.request_save();
        self.wait();
        // No incident needs the present recording.
        let _ = self.folder.remove_all();
    }
}

/// Removes recordings of killed commands: without an incident they are of no use.
pub fn remove_stale(parent: &DirHandle) {
    for name in parent.names().unwrap_or_default() {
        let number = name.to_str().and_then(|name| name.strip_prefix(FOLDER_PREFIX)?.parse::<u32>().ok());
        let folder = parent.join(&name);
        // A link's target may belong to another user: links are not followed.
        if number.is_some_and(|number| !is_running(number))
            && matches!(tompion_os::try_lock(&folder), Ok(Some(_)))
        {
            let _ = folder.remove_all();
        }
    }
}

/// Returns whether the process id belongs to another running Tompion command. Process ids are
/// reused, so its command name is compared.
fn is_running(number: u32) -> bool {
    let command = fs::read_to_string(format!("/proc/{number}/comm"));
    number != std::process::id() && command.is_ok_and(|command| command.trim_end() == COMMAND)
}

fn log(number: u64) -> String {
    format!("{number}.log")
}

fn start(folder: &DirHandle, number: u64, options: &RecorderOptions) -> anyhow::Result<Child> {
    let log = folder.recreate(log(number));
    let log = log.with_context(|| format!("can't write to {}", folder.path().display()))?;
    let mut command = Command::new(env::current_exe().context("can't find the running program")?);
    let selector = options.selector.try_clone().context("can't pass on the selector")?;
    let selector = tompion_os::hand_down(&mut command, selector).to_string();
    command.args(["record", "--mode", "overwrite", "--selector", &selector, "-o"]);
    command.arg(folder.path().join(number.to_string()));
    for event in &options.events {
        command.arg("-e").arg(event);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
    options.inheritance.hand_on_to_companion(&mut command);
    command.spawn().context("can't start the recorder of programs' events")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_of(parent: &DirHandle, number: u32) -> DirHandle {
        let folder = parent.join(format!("{FOLDER_PREFIX}{number}"));
        folder.join("0").make().expect("a folder");
        folder.create_new("0.log").expect("a file");
        folder
    }

    fn shell(command: &str) -> Child {
        Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn().expect("a shell")
    }

    #[test]
    fn recordings_of_killed_commands_are_removed_and_those_of_running_ones_stay() {
        let parent = tempfile::tempdir().expect("a folder");
        let parent = DirHandle::open(parent.path()).expect("it opens");
        let mut gone = shell("true");
        gone.wait().expect("it ends");
        let mut ended = shell("true");
        ended.wait().expect("it ends");
        // A process id that another program has now.
        let mut other = shell("read line");
        let mut living = shell(&format!("printf {COMMAND} > /proc/self/comm; read line"));
        let comm = format!("/proc/{}/comm", living.id());
        while fs::read_to_string(&comm).expect("a process").trim_end() != COMMAND {
            std::thread::sleep(Duration::from_millis(1));
        }
        let stale = [gone.id(), other.id(), std::process::id()].map(|number| folder_of(&parent, number));
        let needed = [living.id(), ended.id()].map(|number| folder_of(&parent, number));
        // A process in another PID namespace.
        let _lock = tompion_os::try_lock(&needed[1]).expect("a lock").expect("the lock is free");
        let foreign = parent.join(format!("{FOLDER_PREFIX}of-another-program"));
        foreign.make().expect("a folder");
        remove_stale(&parent);
        for child in [&mut other, &mut living] {
            drop(child.stdin.take());
            child.wait().expect("it ends");
        }
        assert!(stale.iter().all(|folder| !folder.exists()), "{stale:?}");
        assert!(needed.iter().chain([&foreign]).all(|folder| folder.exists()), "{needed:?}");
    }
}
