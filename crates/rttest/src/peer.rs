//! LTTng-UST as a peer: the same loop, the same fields, equal buffers, its own daemon and consumer.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    time::{Duration, Instant},
};

use crate::{
    Error,
    recording::{Buffers, Scratch},
};

const SOURCE: &str = include_str!("peer/npt-lttng.c");
const HEADER: &str = include_str!("peer/npt-lttng.h");
/// Time within which the daemon must answer, or end.
const WAIT_TIMEOUT: Duration = Duration::from_secs(20);
const PAUSE: Duration = Duration::from_millis(50);
const INSTALL: &str = "apt install lttng-tools liblttng-ust-dev";

/// Cause for which LTTng's consumer reads the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Timer {
    /// A timer of this period in microseconds: what real-time programs are told to use.
    Period(u32),
    /// The program, which wakes it up when a sub-buffer is full: LTTng's default.
    WakeUps,
}

/// LTTng, ready to record the loop.
#[derive(Debug)]
pub struct Lttng {
    library: PathBuf,
    /// The session daemon, if it is ours.
    daemon: Option<Child>,
    _scratch: Scratch,
}

impl Lttng {
    /// Compiles the library with the event, and starts a session daemon unless one answers.
    ///
    /// # Errors
    /// [`Error::NoPeer`] with what is missing.
    pub fn prepare() -> Result<Self, Error> {
        let answers = || succeeds(&["--no-sessiond", "list"]);
        let is_there = answers().map_err(|_| missing("the command `lttng`"))?;
        let scratch = Scratch::new(None)?;
        let library = compile(scratch.path())?;
        if is_there {
            return Ok(Self { library, daemon: None, _scratch: scratch });
        }
        let child = Command::new("lttng-sessiond")
            .arg("--no-kernel")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|_| missing("lttng-sessiond"))?;
        let lttng = Self { library, daemon: Some(child), _scratch: scratch };
        let until = Instant::now() + WAIT_TIMEOUT;
        while !answers().unwrap_or(false) {
            if Instant::now() > until {
                return Err(Error::NoPeer("lttng-sessiond does not answer".into()));
            }
            std::thread::sleep(PAUSE);
        }
        Ok(lttng)
    }

    /// The library with the event.
    pub fn library(&self) -> &Path {
        &self.library
    }

    /// Starts a session that records the loop into a folder.
    ///
    /// # Errors
    /// What LTTng has to say.
    pub fn start(&self, trace: &Path, buffers: Buffers, timer: Timer) -> Result<Session, Error> {
        let session = Session { name: format!("tompion-test-{}", std::process::id()), is_open: true };
        let (name, output) = (session.name.as_str(), format!("--output={}", trace.display()));
        lttng(&["create", name, &output])?;
        let (size, count) =
            (format!("--subbuf-size={}", buffers.size), format!("--num-subbuf={}", buffers.count));
        let mut channel = vec!["enable-channel", "-u", "-s", name, "--discard", &size, &count];
        let period = match timer {
            Timer::Period(microseconds) => Some(format!("--read-timer={microseconds}")),
            Timer::WakeUps => None,
        };
        channel.extend(period.as_deref());
        channel.push("loop");
        lttng(&channel)?;
        lttng(&["enable-event", "-u", "-s", name, "-c", "loop", "npt:*"])?;
        lttng(&["start", name])?;
        Ok(session)
    }
}

impl Drop for Lttng {
    fn drop(&mut self) {
        let Some(child) = &mut self.daemon else { return };
        // With SIGTERM the daemon takes its consumer and its sockets with it.
        let _ = tompion_os::kill(child.id(), tompion_os::signal::SIGTERM);
        let until = Instant::now() + WAIT_TIMEOUT;
        while matches!(child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = child.kill();
            }
            std::thread::sleep(PAUSE);
        }
    }
}

/// A session that records.
#[derive(Debug)]
pub struct Session {
    name: String,
    is_open: bool,
}

impl Session {
    /// Ends it; all that is left in the rings is written.
    ///
    /// # Errors
    /// What LTTng has to say.
    pub fn finish(mut self) -> Result<(), Error> {
        lttng(&["stop", &self.name])?;
        self.is_open = false;
        lttng(&["destroy", &self.name])
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if self.is_open {
            let _ = lttng(&["destroy", &self.name]);
        }
    }
}

fn missing(what: &str) -> Error {
    Error::NoPeer(format!("{what} is missing ({INSTALL})"))
}

/// Compiles the library with the C compiler that the user has.
fn compile(folder: &Path) -> Result<PathBuf, Error> {
    let write = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|error| Error::File(path.clone(), error)).map(|()| path)
    };
    let source = write("npt-lttng.c", SOURCE)?;
    write("npt-lttng.h", HEADER)?;
    let library = folder.join("libnpt-lttng.so");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut cc = Command::new(&compiler);
    cc.args(["-O2", "-shared", "-fPIC", "-I"]).arg(folder).arg(source).args(["-llttng-ust", "-ldl", "-o"]);
    let output = cc.arg(&library).stdin(Stdio::null()).output().map_err(|_| {
        Error::NoPeer(format!(
            "its event needs a C compiler, and {} can't be run",
            compiler.to_string_lossy()
        ))
    })?;
    if output.status.success() {
        return Ok(library);
    }
    let text = String::from_utf8_lossy(&output.stderr);
    if text.contains("lttng/tracepoint.h") || text.contains("-llttng-ust") {
        return Err(missing("LTTng-UST's headers"));
    }
    Err(Error::NoPeer(format!("its event can't be compiled: {}", text.lines().next().unwrap_or_default())))
}

fn run(arguments: &[&str]) -> std::io::Result<Output> {
    Command::new("lttng").args(arguments).stdin(Stdio::null()).output()
}

fn succeeds(arguments: &[&str]) -> std::io::Result<bool> {
    run(arguments).map(|output| output.status.success())
}

fn lttng(arguments: &[&str]) -> Result<(), Error> {
    let output = run(arguments).map_err(|error| Error::Program("lttng".into(), error))?;
    if output.status.success() {
        return Ok(());
    }
    let text = [output.stderr, output.stdout].concat();
    let text = String::from_utf8_lossy(&text);
    let why =
        text.lines().find(|line| !line.trim().is_empty()).unwrap_or("no reason given").trim().to_owned();
    Err(Error::Failed(format!("lttng {}: {why}", arguments.first().copied().unwrap_or_default())))
}
