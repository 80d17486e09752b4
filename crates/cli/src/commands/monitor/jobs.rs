//! `--job`: activations of jobs, and whether they met their deadlines.

use std::{
    env,
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{self, Read as _},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use clap::Args;
use tompion_latency::{
    Monitor,
    jobs::{Jobs, Which, Wish as JobWish},
};
use tompion_os::{Inheritance, Signals};
use tompion_protocol::rules::Rules;
use tompion_schema::Level;
use tompion_session::{Config, JobMessage, JobSink, Mode, Target};

use crate::{
    messages::{pluralize, print_status},
    units,
};

/// Rings hold what comes while the session sleeps and a busy machine lets it wait; jobs are few.
const SUBBUF_SIZE: u64 = 64 << 10;
const SUBBUFS: u64 = 4;
/// Begins of jobs have this field, and no other event has to be recorded.
const FILTER: &str = "deadline_ns >= 0";
/// Time that the session has to end.
const END_TIMEOUT: Duration = Duration::from_secs(5);
const SIGTERM: i32 = 15;
const SIGKILL: i32 = 9;

#[derive(Args)]
// Another part of the command has a group of this name.
#[group(skip)]
pub struct Wish {
    /// Monitor jobs: those of TOMPION_JOB by name ('motor:*', 'motor:control,deadline=5ms'); or,
    /// without changing the program, a function ('control=/usr/bin/app:on_cycle,deadline=500us') or
    /// the time between two probes ('control=usdt:app:loop:begin,usdt:app:loop:end') (repeatable)
    #[arg(long = "job", value_name = "JOB[,deadline=TIME][,period=TIME]", value_parser = wish, conflicts_with = "once")]
    jobs: Vec<JobWish>,
}

fn wish(text: &str) -> Result<JobWish, String> {
    JobWish::parse(text, units::time)
}

impl Wish {
    /// Whether jobs are to be watched.
    pub fn is_asked_for(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Has a monitor watch the jobs; what is returned is to be kept meanwhile. `inheritance` is
    /// what the session gets of this process as it was before it took signals.
    pub fn begin(
        &self,
        name: &str,
        monitor: &mut Monitor,
        inheritance: Inheritance,
    ) -> anyhow::Result<Option<Session>> {
        if self.jobs.is_empty() {
            return Ok(None);
        }
        let glob = |wish: &JobWish| match &wish.which {
            Which::Told(glob) => Some(glob.clone()),
            Which::Probed { .. } => None,
        };
        let globs: Vec<String> = self.jobs.iter().filter_map(glob).collect();
        let mut session = (!globs.is_empty()).then(|| Session::begin(&globs, inheritance)).transpose()?;
        let told = session.as_mut().and_then(|session| session.told.take());
        monitor.report_jobs(Jobs::begin(name, self.jobs.clone(), told)?);
        Ok(session)
    }
}

/// A session that hears the programs: a process of its own, which reads what anybody wrote into
/// rings.
pub struct Session {
    child: Child,
    /// It ends when this is closed, also by the end of this process.
    life: Option<ChildStdin>,
    told: Option<File>,
}

impl Session {
    fn begin(globs: &[String], inheritance: Inheritance) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe().context("where is tompion?")?);
        command.args(["monitor", "tell-jobs"]).args(globs);
        // Ctrl-C is for this process, which has something to say before the session ends.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        inheritance.hand_on(&mut command);
        let mut child = command.spawn().context("can't start the session for jobs")?;
        let mut told = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        if let Some(error) = told.as_mut().and_then(|told| JobMessage::wait_until_listening(told).err()) {
            let status = child.wait().context("can't wait for the session for jobs")?;
            match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    bail!("can't monitor jobs: the session for jobs ended with {status}")
                }
                _ => bail!("can't monitor jobs: {error}"),
            }
        }
        Ok(Self { life: child.stdin.take(), child, told })
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The session has ended before, so that jobs were not watched to the end.
    pub fn finish(mut self) -> anyhow::Result<()> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                bail!("jobs were not monitored to the end: the session for jobs ended with {status}")
            }
            _ => Ok(()),
        }
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        self.life = None;
        let until = Instant::now() + END_TIMEOUT;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > until {
                let _ = tompion_os::kill(self.child.id(), SIGKILL);
                let _ = self.child.wait();
                return;
            }
            thread::sleep(Duration::from_millis(2));
        }
    }
}

#[derive(Args)]
pub struct Telling {
    /// Names of jobs
    #[arg(value_name = "GLOB", required = true)]
    globs: Vec<String>,
}

/// `tompion monitor tell-jobs`: such a session. It tells on standard output, and ends when standard
/// input does.
pub fn tell(telling: &Telling) -> anyhow::Result<()> {
    let output = io::stdout().as_fd().try_clone_to_owned().context("can't tell jobs")?;
    let config = Config {
        folder: folder(),
        rules: Rules {
            include: telling.globs.clone(),
            exclude: Vec::new(),
            level: Level::LOWEST,
            filter: Some(FILTER.into()),
        },
        mode: Mode::Discard,
        subbuf_size: SUBBUF_SIZE,
        subbufs: SUBBUFS,
        tid: true,
        contexts: Vec::new(),
        application_contexts: false,
        preload: Vec::new(),
        library: None,
        time: None,
        kernel: None,
        target: Target::Everything,
        backing: None,
        jobs: Some(JobSink::new(File::from(output))),
        selector: None,
        user: None,
        invocation: Vec::new(),
    };
    // Before there is a thread that could be ended by it.
    let _signals = Signals::take(&[SIGTERM]).context("can't take signals")?;
    thread::Builder::new().name("life".into()).spawn(|| {
        // Nobody writes there.
        let _ = io::stdin().lock().read(&mut [0]);
        let _ = tompion_os::kill(std::process::id(), SIGTERM);
    })?;
    let outcome = tompion_session::record(&config, |text| print_status(text))?;
    // Programs come and go all the time; those that ended while they were let in had hardly a job.
    if let Some(first) = outcome.problems.first() {
        let count = pluralize(outcome.problems.len() as u64, "program");
        print_status(format!("{count} not joined; the first: {first}"));
    }
    Ok(())
}

/// Where a trace would be; nothing comes into it. Everybody may make folders there, so its name
/// can't be foreseen.
fn folder() -> PathBuf {
    let unforeseen = RandomState::new().build_hasher().finish();
    env::temp_dir().join(format!("tompion-jobs-{}-{unforeseen:016x}", std::process::id()))
}
