//! A monitor of a benchmark's own, and a process that serves or keeps what it counts.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use super::super::tompion::Tompion;
use tompion_tasks::shell;

/// Time within which a page must come.
const WAIT_TIMEOUT: Duration = Duration::from_secs(30);

/// Monitor that counts in the kernel; it goes with this.
pub struct Counting<'a> {
    tompion: &'a Tompion,
    name: String,
}

impl<'a> Counting<'a> {
    /// Begins to count.
    pub fn begin(tompion: &'a Tompion) -> Result<Self> {
        let counting = Self::planned(tompion);
        shell::run_quietly(&mut counting.command(&["--once"]))?;
        Ok(counting)
    }

    /// The first command about it begins to count.
    pub fn planned(tompion: &'a Tompion) -> Self {
        Self { tompion, name: format!("tompion-bench-{}", std::process::id()) }
    }

    /// `tompion monitor` with these words, about this one.
    pub fn command(&self, words: &[&str]) -> Command {
        let mut command = self.tompion.command();
        command.args(["monitor", "--name", &self.name]).args(words);
        command
    }

    /// A process that answers to requests, with these words beside.
    pub fn serve(&self, words: &[&str]) -> Result<Serving> {
        let mut command = self.command(&["--listen", "127.0.0.1:0"]);
        let child =
            command.args(words).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
        let mut serving = Serving { child, address: String::new() };
        let output = serving.child.stdout.take().context("no output")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line)?;
        let address = line.trim().strip_prefix("http://").and_then(|rest| rest.strip_suffix("/metrics"));
        serving.address = address.with_context(|| format!("no address: {line}"))?.to_owned();
        Ok(serving)
    }

    /// A process that waits for wake-ups that never come.
    pub fn wait_for_late_ones(&self) -> Result<Serving> {
        let mut command = self.command(&["--threshold", "1s"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
        let mut waiting = Serving { child, address: String::new() };
        let mut line = String::new();
        BufReader::new(waiting.child.stderr.take().context("no messages")?).read_line(&mut line)?;
        ensure!(line.contains("waiting for wakeup latency"), "expected that it waits: {line}");
        Ok(waiting)
    }
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let mut stop = self.tompion.command();
        if let Err(error) = shell::run_quietly(stop.args(["monitor", "stop", "--name", &self.name])) {
            eprintln!("{error:#}");
        }
    }
}

/// A process that looks at what is counted; it is killed with this.
pub struct Serving {
    child: Child,
    address: String,
}

impl Serving {
    /// The body of a page.
    pub fn ask(&self, path: &str) -> Result<String> {
        let mut connection = TcpStream::connect(&self.address)?;
        connection.set_read_timeout(Some(WAIT_TIMEOUT))?;
        write!(connection, "GET {path} HTTP/1.1\r\n\r\n")?;
        let (mut text, begin) = (String::new(), Instant::now());
        connection.read_to_string(&mut text)?;
        let (head, body) =
            text.split_once("\r\n\r\n").with_context(|| format!("no page after {:?}", begin.elapsed()))?;
        ensure!(head.starts_with("HTTP/1.1 200"), "{path}: {}", head.lines().next().unwrap_or_default());
        Ok(body.to_owned())
    }

    /// Processor time so far in seconds, from `/proc/PID/schedstat`, which has nanoseconds.
    pub fn seconds(&self) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/schedstat", self.child.id()))?;
        let ns: f64 = text.split(' ').next().context("no schedstat")?.parse()?;
        Ok(ns / 1e9)
    }

    /// Its memory in MiB: `VmHWM`, the most that it ever had, or `VmRSS`.
    pub fn memory(&self, which: &str) -> Result<f64> {
        let text = fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let value = text.lines().find_map(|line| line.strip_prefix(which)?.strip_prefix(':'));
        let value = value.with_context(|| format!("no {which}"))?;
        Ok(value.trim().trim_end_matches(" kB").parse::<f64>()? / 1024.0)
    }

    /// Asks the process to end, and waits for it.
    pub fn finish(mut self) -> Result<()> {
        shell::run_quietly(Command::new("kill").args(["-INT", &self.child.id().to_string()]))?;
        let status = self.child.wait()?;
        ensure!(status.success(), "tompion monitor ended with {status}");
        Ok(())
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        // One that has ended already is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
