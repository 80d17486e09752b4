//! `--with`: a flight recorder of programs' events beside the watch. Its rings are there twice, and the switch in which a
//! wake-up is late has programs write the others from then on. What both hold goes into the incident's folder, and another
//! recorder begins.

use std::{
    env,
    fs::{self, File},
    os::{fd::OwnedFd, unix::fs::chown},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use anyhow::Context as _;
use tompion_os::Inheritance;

use crate::messages::{counted, say};

/// Of an incident's folder: what programs recorded.
const PROGRAMS: &str = "programs";
/// How long a recorder may take to save what it holds.
const PATIENCE: Duration = Duration::from_secs(20);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

/// A `tompion record` in overwrite mode, of all programs.
pub struct Recorder {
    wish: Wish,
    /// Where recordings stand until an incident takes them.
    folder: PathBuf,
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
    pub fn begin(parent: &Path, wish: Wish) -> anyhow::Result<Self> {
        let folder = parent.join(format!(".tompion-programs-{}", std::process::id()));
        fs::create_dir(&folder).with_context(|| format!("can't make {}", folder.display()))?;
        // Behind sudo, a recording is the user's.
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u32>().ok());
        if let Some(user) = number("SUDO_UID") {
            chown(&folder, Some(user), number("SUDO_GID"))
                .with_context(|| format!("can't give {} to the user", folder.display()))?;
        }
        let child = start(&folder, 0, &wish)?;
        Ok(Self { wish, folder, number: 0, child, asked: None })
    }

    /// Asks it to save what it holds and to end.
    pub fn ask(&mut self) {
        if self.asked.is_none() {
            self.asked = Some(Instant::now());
            let _ = tompion_os::kill(self.child.id(), SIGTERM);
        }
    }

    /// Moves what it held into an incident's folder, if there is one, and begins another one. Whatever goes wrong with what it held, it
    /// goes on.
    pub fn keep(&mut self, incident: Option<&PathBuf>) -> anyhow::Result<()> {
        self.ask();
        self.wait();
        let moved = incident.map_or(Ok(()), |incident| self.hand_over(incident));
        // What could not be moved must not fill the disk.
        let _ = fs::remove_dir_all(self.recording());
        self.number += 1;
        self.child = start(&self.folder, self.number, &self.wish)?;
        self.asked = None;
        moved
    }

    fn hand_over(&self, incident: &Path) -> anyhow::Result<()> {
        let recording = self.recording();
        // Without an event there may be none.
        if recording.exists() {
            fs::rename(&recording, incident.join(PROGRAMS)).context("can't keep what programs recorded")?;
        } else {
            let said = fs::read_to_string(log(&self.folder, self.number)).unwrap_or_default();
            say(format!(
                "programs recorded nothing: {}",
                said.lines().last().unwrap_or("the recorder ended")
            ));
        }
        Ok(())
    }

    fn recording(&self) -> PathBuf {
        self.folder.join(self.number.to_string())
    }

    fn wait(&mut self) {
        let until = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                say(format!(
                    "the recorder of programs' events did not end within {} and is killed",
                    counted(PATIENCE.as_secs(), "second")
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
        let _ = fs::remove_dir_all(&self.folder);
    }
}

fn log(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("{number}.log"))
}

fn start(folder: &Path, number: u64, wish: &Wish) -> anyhow::Result<Child> {
    let log = log(folder, number);
    let said = File::create(&log).with_context(|| format!("can't write {}", log.display()))?;
    let mut command = Command::new(env::current_exe().context("where is tompion?")?);
    let selector = wish.selector.try_clone().context("can't hand the selector on")?;
    let selector = tompion_os::hand_down(&mut command, selector).to_string();
    command.args(["record", "--mode", "overwrite", "--selector", &selector, "-o"]);
    command.arg(folder.join(number.to_string()));
    for event in &wish.events {
        command.arg("-e").arg(event);
    }
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said);
    wish.inheritance.hand_on_to_companion(&mut command);
    command.spawn().context("can't start the recorder of programs' events")
}
