//! A page for Prometheus, until Ctrl-C.

use std::{
    io::{self, Write},
    net::{SocketAddr, TcpListener},
    os::fd::AsFd as _,
};

use anyhow::Context as _;
use tompion_latency::{Monitor, exporter};
use tompion_os::Interest;

use super::{End, keep::Beside};

/// By which requests are told from the user's wish to end.
const REQUEST: Interest = 1;

/// Answers one request after another, and does what is done beside it.
pub fn run(
    monitor: &mut Monitor,
    mut beside: Beside<'_, '_>,
    (address, end): (SocketAddr, &End),
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
        end.poller.wait(beside.rest()).context("can't wait")?;
        if end.has_come() {
            return Ok(());
        }
        beside.look(monitor)?;
        // One who asked and went away is none of our business.
        if let Ok((connection, _)) = listener.accept() {
            let _ = exporter::answer(connection, || monitor.exposition());
        }
    }
}
