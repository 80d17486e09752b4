//! A page for Prometheus, until Ctrl-C.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::fd::AsFd as _,
};

use anyhow::Context as _;
use tompion_latency::{Monitor, exporter};
use tompion_os::Interest;

use super::{End, catch::Catcher};

/// By which requests are told from the user's wish to end.
const REQUEST: Interest = 1;

/// Answers one request after another, and keeps late wake-ups meanwhile.
pub fn run(
    monitor: &mut Monitor,
    address: SocketAddr,
    end: &End,
    mut catcher: Option<&mut Catcher<'_>>,
) -> anyhow::Result<()> {
    let listener = TcpListener::bind(address).with_context(|| format!("can't listen at {address}"))?;
    listener.set_nonblocking(true).context("can't wait for requests")?;
    end.poller.add(listener.as_fd(), REQUEST).context("can't wait for requests")?;
    let mut output = io::stdout().lock();
    writeln!(output, "http://{}/metrics", listener.local_addr()?)?;
    output.flush()?;
    // The scheduler's count is compared from the first look on.
    monitor.look();
    loop {
        end.poller.wait(None).context("can't wait")?;
        if end.has_come() {
            return Ok(());
        }
        if let Some(catcher) = &mut catcher {
            catcher.look(monitor)?;
        }
        // One who asked and went away is none of our business.
        if let Ok((connection, _)) = listener.accept() {
            let _ = exporter::answer(connection, || monitor.exposition());
        }
    }
}
