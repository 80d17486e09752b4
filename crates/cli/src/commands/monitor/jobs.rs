//! `--job`: response times of jobs, and missed deadlines.

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
use tompion_jobs::{JobMessage, JobSink};
use tompion_latency::{
    Monitor,
    jobs::{JobSource, JobSpec, Jobs},
};
use tompion_os::{
    Inheritance, Signals,
    signal::{SIGKILL, SIGTERM},
};
use tompion_protocol::rules::Rules;
use tompion_schema::Level;
use tompion_session::{Config, Mode, Target};

use crate::{
    messages::{pluralize, print_status},
    units,
};

/// Size of the sub-buffers: rings must hold the events of jobs while the session sleeps, also on a
/// busy machine. Jobs are few.
const SUBBUF_SIZE: u64 = 64 << 10;
/// Number of sub-buffers per CPU.
const SUBBUFS: u64 = 4;
/// Filter that passes begins of jobs, the only events with this field.
const FILTER: &str = "deadline_ns >= 0";
/// Time that the session has to exit.
const END_TIMEOUT: Duration = Duration::from_secs(5);

#[derive(Args)]
// Another part of the command has a group of this name.
#[group(skip)]
pub struct JobArgs {
    /// Monitor jobs: those of TOMPION_JOB by name ('motor:*', 'motor:control,deadline=5ms'); or,
    /// without changing the program, a function ('control=/usr/bin/app:on_cycle,deadline=500us') or
    /// the time between two probes ('control=usdt:app:loop:begin,usdt:app:loop:end') (repeatable)
    #[arg(long = "job", value_name = "JOB[,deadline=DURATION][,period=DURATION]", value_parser = job, conflicts_with = "once")]
    jobs: Vec<JobSpec>,
}

fn job(text: &str) -> Result<JobSpec, String> {
    JobSpec::parse(text, units::latency)
}

impl JobArgs {
    /// Returns whether jobs are to be monitored.
    pub fn is_requested(&self) -> bool {
        !self.jobs.is_empty()
    }

    /// Monitors the jobs as long as the returned session lives. The session inherits from this
    /// process as it was before it took signals.
    pub fn begin(
        &self,
        name: &str,
        monitor: &mut Monitor,
        inheritance: Inheritance,
    ) -> anyhow::Result<Option<JobSession>> {
        if self.jobs.is_empty() {
            return Ok(None);
        }
        let glob = |job: &JobSpec| match &job.source {
            JobSource::Instrumented(glob) => Some(glob.clone()),
            JobSource::Probed { .. } => None,
        };
        let globs: Vec<String> = self.jobs.iter().filter_map(glob).collect();
        let mut session = (!globs.is_empty()).then(|| JobSession::begin(&globs, inheritance)).transpose()?;
        let messages = session.as_mut().and_then(|session| session.messages.take());
        monitor.report_jobs(Jobs::begin(name, self.jobs.clone(), messages)?);
        Ok(session)
    }
}

/// Session that receives programs' jobs. It is a process of its own, because any user's program
/// writes to its rings.
pub struct JobSession {
    child: Child,
    /// Pipe that ends the session when it is closed, also by the end of this process.
    lifetime: Option<ChildStdin>,
    messages: Option<File>,
}

impl JobSession {
    fn begin(globs: &[String], inheritance: Inheritance) -> anyhow::Result<Self> {
        let mut command = Command::new(env::current_exe().context("can't find the running program")?);
        command.args(["monitor", "job-agent"]).args(globs);
        // Ctrl-C must reach only this process, which ends the session after its own work.
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).process_group(0);
        inheritance.hand_on(&mut command);
        let mut child = command.spawn().context("can't start the session for jobs")?;
        let mut messages = child.stdout.take().map(|pipe| File::from(OwnedFd::from(pipe)));
        if let Some(error) = messages.as_mut().and_then(|pipe| JobMessage::wait_until_listening(pipe).err()) {
            let status = child.wait().context("can't wait for the session for jobs")?;
            match error.kind() {
                io::ErrorKind::UnexpectedEof => {
                    bail!("can't monitor jobs: the session for jobs ended with {status}")
                }
                _ => bail!("can't monitor jobs: {error}"),
            }
        }
        Ok(Self { lifetime: child.stdin.take(), child, messages })
    }

    /// Ends the session.
    ///
    /// # Errors
    /// The session ended early, so jobs were not monitored to the end.
    pub fn finish(mut self) -> anyhow::Result<()> {
        match self.child.try_wait() {
            Ok(Some(status)) => {
                bail!("jobs were not monitored to the end: the session for jobs ended with {status}")
            }
            _ => Ok(()),
        }
    }
}

impl Drop for JobSession {
    fn drop(&mut self) {
        self.lifetime = None;
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
pub struct JobAgentArgs {
    /// Names of jobs
    #[arg(value_name = "GLOB", required = true)]
    globs: Vec<String>,
}

/// Runs such a session (`tompion monitor job-agent`). It writes messages to standard output, and
/// ends when standard input is closed.
pub fn run_agent(args: &JobAgentArgs) -> anyhow::Result<()> {
    let output = io::stdout().as_fd().try_clone_to_owned().context("can't report jobs")?;
    let config = Config {
        folder: folder(),
        rules: Rules {
            include: args.globs.clone(),
            exclude: Vec::new(),
            level: Level::LOWEST,
            filter: Some(FILTER.into()),
        },
        mode: Mode::Discard,
        subbuf_size: SUBBUF_SIZE,
        subbufs: SUBBUFS,
        ring_limit: None,
        prefault: false,
        tid: true,
        contexts: Vec::new(),
        application_contexts: false,
        preload: Vec::new(),
        python_start: None,
        library_folder: None,
        variables: Vec::new(),
        library: None,
        time: None,
        kernel: None,
        target: Target::Everything,
        programs: None,
        backing: None,
        jobs: Some(JobSink::new(File::from(output))),
        chunks: None,
        triggers: Vec::new(),
        refuses_commands: false,
        counts: Vec::new(),
        selector: None,
        user: None,
        session: None,
        linger: None,
        resume: false,
        invocation: Vec::new(),
    };
    // Taken before any thread exists, so that the signal ends none.
    let _signals = Signals::take(&[SIGTERM]).context("can't take signals")?;
    thread::Builder::new().name("lifetime".into()).spawn(|| {
        // Returns when the pipe is closed: nothing is written to it.
        let _ = io::stdin().lock().read(&mut [0]);
        let _ = tompion_os::kill(std::process::id(), SIGTERM);
    })?;
    let outcome = tompion_session::record(&config, |text| print_status(text))?;
    // Programs start and exit all the time. One that exited during its handshake hardly had a job.
    if let Some(first) = outcome.problems.first() {
        let count = pluralize(outcome.problems.len() as u64, "program");
        print_status(format!("{count} not joined; the first: {first}"));
    }
    Ok(())
}

/// Returns the folder of the trace, which stays empty. Any user may make folders beside it, so its
/// name is random.
fn folder() -> PathBuf {
    let random = RandomState::new().build_hasher().finish();
    env::temp_dir().join(format!("tompion-jobs-{}-{random:016x}", std::process::id()))
}
