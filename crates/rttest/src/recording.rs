//! Recording of a program under test by `tompion record`, and what arrived in its trace.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io::Read as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use tompion_os::DirHandle;

use crate::Error;

/// The rings of a recording.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Buffers {
    /// Bytes of a sub-buffer.
    pub size: u64,
    /// Sub-buffers for each CPU.
    pub count: u64,
}

/// Events of a test that arrived in a trace.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Arrived {
    /// Events of the loop.
    pub loops: u64,
    /// Events of the warm-up.
    pub warm_up: u64,
    /// All other events: the kernel's.
    pub others: u64,
    /// Losses that the trace tells, of whatever events, by cause.
    pub lost: BTreeMap<String, u64>,
}

/// The events of the loop and of the warm-up.
pub const LOOP: &str = "npt:loop";
const WARM_UP: &str = "npt:warm_up";

impl Arrived {
    /// Counts the events of a trace of any tracer.
    pub fn count(trace: &Path) -> Result<Self, Error> {
        let mut traces = tompion_reader::open(&[trace.to_owned()])?;
        let summary = tompion_reader::stat::summarize(&mut traces);
        if let Some(damage) = summary.corruptions.first() {
            return Err(Error::Failed(format!("the trace is damaged: {damage}")));
        }
        let named = |name| summary.by_event.get(name).copied().unwrap_or(0);
        let (loops, warm_up) = (named(LOOP), named(WARM_UP));
        let lost = summary.lost.causes.clone();
        Ok(Self { loops, warm_up, others: summary.events - loops - warm_up, lost })
    }
}

/// A program that runs and leaves its measurements in a file: this one, with other arguments.
#[derive(Debug)]
pub struct Subject<'a> {
    /// The `tompion` command.
    pub tompion: &'a Path,
    /// Task of the program, `loop` for example: `tompion test WHAT SPEC RESULT`.
    pub what: &'a str,
    /// The library with the event, if there is one.
    pub event: Option<&'a Path>,
    /// Folder for files in between.
    pub folder: &'a Path,
}

/// The file in which a program under test leaves what it has found.
const RESULT: &str = "result.json";

/// Variables that would bring the program into another recording.
const OTHERS: [&str; 4] = ["TOMPION_SESSION", "TOMPION_RECORD", "TOMPION_DISABLE", "LD_PRELOAD"];

impl Subject<'_> {
    fn result(&self) -> PathBuf {
        self.folder.join(RESULT)
    }

    /// The words of its command line.
    fn words<S: Serialize>(&self, spec: &S) -> Result<Vec<OsString>, Error> {
        let spec = serde_json::to_string(spec).map_err(|error| Error::Failed(error.to_string()))?;
        let mut words: Vec<OsString> = Vec::new();
        if let Some(library) = self.event {
            let mut preload = OsString::from("LD_PRELOAD=");
            preload.push(library);
            words.extend(["/usr/bin/env".into(), preload]);
        }
        words.extend([
            self.tompion.into(),
            "test".into(),
            self.what.into(),
            spec.into(),
            self.result().into(),
        ]);
        Ok(words)
    }

    /// Runs the test program without a recording.
    pub fn run<S: Serialize, R: DeserializeOwned>(&self, spec: &S) -> Result<R, Error> {
        let words = self.words(spec)?;
        let (program, arguments) = words.split_first().ok_or_else(|| Error::Failed("no program".into()))?;
        let mut command = Command::new(program);
        // It leaves its result where we may write, so it has our rights, and not those of the user
        // behind sudo.
        command.env_remove("SUDO_UID").args(arguments);
        let output = run(&mut command)?;
        self.take(&output)
    }

    /// Runs it as `tompion record` runs any program; `options` are those of the recording.
    pub fn run_recorded<S: Serialize, R: DeserializeOwned>(
        &self,
        spec: &S,
        trace: &Path,
        options: &[OsString],
    ) -> Result<R, Error> {
        let mut record = Command::new(self.tompion);
        // The program under test needs root's rights, if we have them, and not those of the user
        // behind sudo.
        record.env_remove("SUDO_UID").args(["record", "--mode", "discard", "--no-tid"]);
        record.args(options).arg("-o").arg(trace).arg("--").args(self.words(spec)?);
        let output = run(&mut record)?;
        self.take(&output)
    }

    fn take<R: DeserializeOwned>(&self, output: &Output) -> Result<R, Error> {
        let path = self.result();
        let mut bytes = Vec::new();
        let read = |folder: DirHandle| {
            let found = folder.read(RESULT)?.read_to_end(&mut bytes);
            folder.remove(RESULT).and(found)
        };
        if DirHandle::open(self.folder).and_then(read).is_err() {
            return Err(Error::Failed(last_line(output)));
        }
        serde_json::from_slice(&bytes).map_err(|error| Error::Failed(format!("{}: {error}", path.display())))
    }
}

/// Reason why a program left nothing behind: its last line of output.
fn last_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr);
    let lines = || text.lines().rev().map(str::trim).filter(|line| !line.is_empty());
    // What the program says comes before what its recorder makes of it.
    let reported = lines().find(|line| line.starts_with(SAYS)).or_else(|| lines().next());
    let reported = reported.map(|line| line.trim_start_matches(SAYS).trim_start_matches("tompion: "));
    reported.map_or_else(|| format!("the loop ended with {}", output.status), str::to_owned)
}

/// Beginning of messages of a program under test.
pub const SAYS: &str = "tompion test: ";

fn run(command: &mut Command) -> Result<Output, Error> {
    let name = command.get_program().to_string_lossy().into_owned();
    for variable in OTHERS {
        command.env_remove(variable);
    }
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    output.map_err(|error| Error::Program(name, error))
}

/// Options that give a recording its rings.
pub fn ring_options(buffers: Buffers) -> Vec<OsString> {
    let words =
        ["--subbuf-size".into(), buffers.size.to_string(), "--subbufs".into(), buffers.count.to_string()];
    words.map(OsString::from).into()
}

/// Writes what a program under test has found.
///
/// # Errors
/// If the file can't be written.
pub fn leave<R: Serialize>(result: &R, path: &Path) -> Result<(), Error> {
    let bytes = serde_json::to_vec(result).map_err(|error| Error::Failed(error.to_string()))?;
    // The folder may be another user's, with links in it.
    tompion_os::write_file(path, &bytes).map_err(|error| Error::File(path.to_owned(), error))
}

/// A folder that goes away.
#[derive(Debug)]
pub struct Scratch(DirHandle);

impl Scratch {
    /// Makes a new one below a folder, by default the system's folder for temporary files.
    ///
    /// # Errors
    /// If it can't be made; or the caller is root and another user could swap it, because
    /// measured programs and compilers open files in it by their paths.
    pub fn new(below: Option<&Path>) -> Result<Self, Error> {
        let below = below.map_or_else(std::env::temp_dir, Path::to_owned);
        for number in 0.. {
            let folder = below.join(format!("tompion-test-{}-{number}", std::process::id()));
            match DirHandle::create_private(&folder) {
                Ok(made) => {
                    let scratch = Self(made);
                    let safe = scratch.0.check_root_only();
                    return safe.map(|()| scratch).map_err(|error| Error::File(folder, error));
                }
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(Error::File(folder, error)),
            }
        }
        unreachable!("there are more numbers than folders")
    }

    /// Path of the trace.
    pub fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = self.0.remove_all();
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    fn output(stderr: &str) -> Output {
        let status = std::process::ExitStatus::from_raw(256);
        Output { status, stdout: Vec::new(), stderr: stderr.into() }
    }

    #[test]
    fn what_a_program_said_is_why_it_failed() {
        let text = "tompion test: the event is not enabled\ntompion: nothing recorded: no event matches\n";
        assert_eq!(last_line(&output(text)), "the event is not enabled");
        assert_eq!(last_line(&output("tompion: disk full\n\n")), "disk full");
        assert_eq!(last_line(&output("")), "the loop ended with exit status: 1");
    }

    #[test]
    fn root_measures_in_no_folder_that_another_user_can_swap() {
        if tompion_os::effective_user() != 0 {
            eprintln!("SKIPPED, only root may give a folder away");
            return;
        }
        let desk = Scratch::new(None).unwrap();
        std::os::unix::fs::chown(desk.path(), Some(65534), None).unwrap();
        assert!(matches!(Scratch::new(Some(desk.path())), Err(Error::File(..))));
        assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 0);
    }

    #[test]
    fn folders_in_between_go_away() {
        let first = Scratch::new(None).unwrap();
        let second = Scratch::new(None).unwrap();
        let path = second.path().to_owned();
        assert!(first.path() != path && path.is_dir());
        drop(second);
        assert!(!path.exists());
        assert!(Scratch::new(Some(Path::new("/nonexistent"))).is_err());
    }
}
