//! `--capture`: a flight recorder of programs' events beside the watch. Its rings are there twice,
//! and the switch in which a wake-up is late has programs write the others from then on. What both
//! hold goes into the incident's folder, and another recorder begins.

use std::{
    env, fs,
    io::Read as _,
    os::fd::OwnedFd,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tompion_os::{DirHandle, Inheritance, Lock};

use crate::messages::{pluralize, print_status};

/// Of an incident's folder: what programs recorded.
const PROGRAMS: &str = "programs";
/// With what the names of folders begin in which recordings stand, before the number of the
/// process.
const FOLDER: &str = ".tompion-programs-";
/// The kernel's name of a process of ours.
const COMMAND: &str = "tompion";
/// Time that a recorder has to save what it holds.
const SAVE_TIMEOUT: Duration = Duration::from_secs(20);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A `tompion record` in overwrite mode, of all programs.
pub struct Recorder {
    wish: Wish,
    /// Where recordings stand until an incident takes them.
    folder: DirHandle,
    /// Says that somebody needs it. Some file systems have no locks.
    _lock: Option<Lock>,
    number: u64,
    child: Child,
    /// When it was asked to end.
    asked: Option<Instant>,
}

/// What every recorder is started with.
pub struct Wish {
    /// Which events.
    pub events: Vec<String>,
    /// What this process had when it began.
    pub inheritance: Inheritance,
    /// Says which of two buffers programs write.
    pub selector: OwnedFd,
}

impl Recorder {
    /// Records below a folder.
    pub fn begin(parent: &DirHandle, wish: Wish) -> anyhow::Result<Self> {
        let name = format!("{FOLDER}{}", std::process::id());
        let folder = parent.create_below(&name);
        let folder = folder.with_context(|| format!("can't make {name} in {}", parent.path().display()))?;
        let lock = tompion_os::try_lock(&folder).ok().flatten();
        let child = start(&folder, 0, &wish)?;
        Ok(Self { wish, folder, _lock: lock, number: 0, child, asked: None })
    }

    /// Asks it to save what it holds and to end.
    pub fn ask(&mut self) {
        if self.asked.is_none() {
            self.asked = Some(Instant::now());
            let _ = tompion_os::kill(self.child.id(), SIGTERM);
        }
    }

    /// Moves what it held into an incident's folder, if there is one, and begins another one.
    /// Whatever goes wrong with what it held, it goes on.
    pub fn keep(&mut self, incident: Option<&DirHandle>) -> anyhow::Result<()> {
        self.ask();
        self.wait();
        let moved = incident.map_or(Ok(()), |incident| self.hand_over(incident));
        // What could not be moved must not fill the disk.
        let _ = self.recording().remove_all();
        self.number += 1;
        self.child = start(&self.folder, self.number, &self.wish)?;
        self.asked = None;
        moved
    }

    fn hand_over(&self, incident: &DirHandle) -> anyhow::Result<()> {
        let recording = self.recording();
        // Without an event there may be none.
        if recording.exists() {
            recording.rename_to(&incident.join(PROGRAMS)).context("can't save program events")?;
        } else {
            let mut said = String::new();
            // What it said may be no text, or nothing.
            let _ = self.folder.read(log(self.number)).and_then(|mut log| log.read_to_string(&mut said));
            print_status(format!(
                "no program events: {}",
                said.lines().last().unwrap_or("the recorder ended")
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

impl Drop for Recorder {
    fn drop(&mut self) {
        self.ask();
        self.wait();
        // Nobody was late since it began.
        let _ = self.folder.remove_all();
    }
}

/// Removes what commands have left that were killed: what programs wrote is of no use without the
/// incident that it belongs to.
pub fn remove_left(parent: &DirHandle) {
    for name in parent.names().unwrap_or_default() {
        let number = name.to_str().and_then(|name| name.strip_prefix(FOLDER)?.parse::<u32>().ok());
        let folder = parent.join(&name);
        // Those that a link leads to are somebody else's: it isn't followed.
        if number.is_some_and(|number| !lives(number)) && matches!(tompion_os::try_lock(&folder), Ok(Some(_)))
        {
            let _ = folder.remove_all();
        }
    }
}

/// Whether another process of this number is one of ours, as far as can be told. Numbers are given
/// again.
fn lives(number: u32) -> bool {
    let command = fs::read_to_string(format!("/proc/{number}/comm"));
    number != std::process::id() && command.is_ok_and(|command| command.trim_end() == COMMAND)
}

fn log(number: u64) -> String {
    format!("{number}.log")
}

fn start(folder: &DirHandle, number: u64, wish: &Wish) -> anyhow::Result<Child> {
    let said = folder.recreate(log(number));
    let said = said.with_context(|| format!("can't write to {}", folder.path().display()))?;
    let mut command = Command::new(env::current_exe().context("where is tompion?")?);
    let selector = wish.selector.try_clone().context("can't hand the selector on")?;
    let selector = tompion_os::hand_down(&mut command, selector).to_string();
    command.args(["record", "--mode", "overwrite", "--selector", &selector, "-o"]);
    command.arg(folder.path().join(number.to_string()));
    for event in &wish.events {
        command.arg("-e").arg(event);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    wish.inheritance.hand_on_to_companion(&mut command);
    command.spawn().context("can't start the recorder of programs' events")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_of(parent: &DirHandle, number: u32) -> DirHandle {
        let folder = parent.join(format!("{FOLDER}{number}"));
        folder.join("0").make().expect("a folder");
        folder.create_new("0.log").expect("a file");
        folder
    }

    fn begin(command: &str) -> Child {
        Command::new("sh").args(["-c", command]).stdin(Stdio::piped()).spawn().expect("a shell")
    }

    #[test]
    fn what_killed_commands_have_left_goes_and_what_living_ones_need_stays() {
        let parent = tempfile::tempdir().expect("a folder");
        let parent = DirHandle::open(parent.path()).expect("it opens");
        let mut gone = begin("true");
        gone.wait().expect("it ends");
        let mut ended = begin("true");
        ended.wait().expect("it ends");
        // A number that somebody else has now.
        let mut other = begin("read line");
        let mut living = begin(&format!("printf {COMMAND} > /proc/self/comm; read line"));
        let comm = format!("/proc/{}/comm", living.id());
        while fs::read_to_string(&comm).expect("a process").trim_end() != COMMAND {
            std::thread::sleep(Duration::from_millis(1));
        }
        let left = [gone.id(), other.id(), std::process::id()].map(|number| folder_of(&parent, number));
        let needed = [living.id(), ended.id()].map(|number| folder_of(&parent, number));
        // Of a process that has no number here.
        let _lock = tompion_os::try_lock(&needed[1]).expect("a lock").expect("nobody else's");
        let strange = parent.join(format!("{FOLDER}of-somebody"));
        strange.make().expect("a folder");
        remove_left(&parent);
        for child in [&mut other, &mut living] {
            drop(child.stdin.take());
            child.wait().expect("it ends");
        }
        assert!(left.iter().all(|folder| !folder.exists()), "{left:?}");
        assert!(needed.iter().chain([&strange]).all(|folder| folder.exists()), "{needed:?}");
    }
}
