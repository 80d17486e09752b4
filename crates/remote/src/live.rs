//! `tompion live`: serves recordings to readers that speak LTTng's live protocol.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use tompion_live::LiveServer;

use tompion_terminal::messages::print_status;

/// Arguments of the command.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    tompion live night                                   # in another terminal than record\n  \
    babeltrace2 -i lttng-live net://localhost:5344       # which sessions there are\n  \
    babeltrace2 -i lttng-live net://localhost:5344/host/robot/night-5a0c91d2\n  \
    tompion live /var/lib/traces --listen 127.0.0.1:0    # all recordings below, on a free port\n\n\
Speaks LTTng's live protocol 2.4, and only reads. A reader gets a session from its begin, then along with it, and ends \
with it. Recordings in chunks (`--rotate`) are not served. The protocol has no permissions: programs of the same user are served. `receive --live` serves what other \
machines send.")]
pub struct Arguments {
    /// Folders of recordings, or folders with such folders
    #[arg(value_name = "TRACE", required = true)]
    traces: Vec<PathBuf>,
    /// Listen on this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:5344")]
    listen: SocketAddr,
    /// Serve other users and machines: everyone who comes can read the recordings
    #[arg(long)]
    insecure: bool,
}

/// Runs the command.
///
/// # Errors
/// If it can't be done, with the chain of causes.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    for folder in &arguments.traces {
        if !folder.is_dir() {
            bail!("{}: no such folder", folder.display());
        }
    }
    serve(arguments.listen, arguments.traces.clone(), arguments.insecure)?.run()
}

/// Listens, and says where.
///
/// # Errors
/// If it can't be done, with the chain of causes.
pub fn serve(listen: SocketAddr, folders: Vec<PathBuf>, is_insecure: bool) -> anyhow::Result<LiveServer> {
    if !is_insecure && !listen.ip().to_canonical().is_loopback() {
        bail!("expected an address of this machine alone, found {listen}; --insecure serves everyone");
    }
    let server = LiveServer::bind(listen, folders, is_insecure);
    let server = server.with_context(|| format!("cannot listen on {listen}"))?;
    print_status(format!("live on net://{}", server.address()?));
    Ok(server)
}
