//! `tompion ship`: sends recordings to a receiver or a store of objects.

use std::{
    net::{IpAddr, ToSocketAddrs},
    path::{Path, PathBuf},
    process::ExitCode,
};

use anyhow::{Context, bail};
use clap::Args;
use tompion_control::Recording;
use tompion_shipper::{Certificates, Credentials, HttpTarget, Options, Pace, S3Target, Target, Window, ship};

use tompion_terminal::messages::{pluralize, print_status};

/// Arguments of the command.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    tompion ship night --to https://site:7443 --certificates tls   # until all of it is there\n  \
    tompion ship --follow /var/lib/traces --to https://site:7443 --certificates tls\n  \
    tompion ship night --to s3://bucket/robots --endpoint https://minio:9000\n\n\
Sends whole packets behind the recorder, within a second, and after any break goes on behind what the other side has. \
It keeps no state and waits out every failure. It ends when the recordings are complete and acknowledged: run it \
beside the recorder, or later. A folder of a receiver's store can be sent on.\n\n\
For S3, the key is in AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_REGION.\n\n\
Exit status: 0 all is there, 1 failed.")]
pub struct Arguments {
    /// Folders of recordings, folders with such folders, or names of running sessions
    #[arg(value_name = "TRACE|SESSION", required = true)]
    traces: Vec<PathBuf>,
    /// Send to a receiver (https://HOST:PORT) or a bucket (s3://BUCKET/PREFIX)
    #[arg(long, value_name = "URL")]
    to: String,
    /// Use the certificates in a folder that `receive --new-certificates` made: ca.pem, sender.pem,
    /// sender-key.pem
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
    /// Send the token in this file
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
    /// Send to this store of objects, for s3://
    #[arg(long, value_name = "URL")]
    endpoint: Option<String>,
    /// Go on for ever, with recordings that come later
    #[arg(long)]
    follow: bool,
    /// Send at most this many bytes per second
    #[arg(long, value_name = "SIZE", value_parser = tompion_units::size)]
    rate: Option<u64>,
    /// Send only between these times of day, as in 22:00-06:00
    #[arg(long, value_name = "FROM-TO")]
    window: Option<Window>,
    /// Use this many connections
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=32))]
    connections: u8,
    /// Allow http:// to other machines: everyone on the way can read and change what is sent
    #[arg(long)]
    insecure: bool,
}

/// Runs the command.
///
/// # Errors
/// If it can't be done, with the chain of causes.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let folders =
        arguments.traces.iter().map(|named| folder_of(named)).collect::<anyhow::Result<Vec<_>>>()?;
    let target = target(arguments)?;
    let pace = Pace::new(arguments.rate, arguments.window);
    let options = Options { connections: arguments.connections.into(), follow: arguments.follow, pace };
    let summary =
        ship(&folders, &*target, &options, &|line| print_status(line)).map_err(anyhow::Error::msg)?;
    print_status(format!(
        "{} complete at {}; {} sent now",
        pluralize(summary.recordings as u64, "recording"),
        arguments.to,
        pluralize(summary.segments, "segment"),
    ));
    Ok(ExitCode::SUCCESS)
}

/// Folder of a recording that is named by its path or its session.
fn folder_of(named: &Path) -> anyhow::Result<PathBuf> {
    if named.exists() {
        return Ok(named.to_owned());
    }
    let session = Recording::find_by_name(&named.to_string_lossy());
    let Some(session) = session else { bail!("{}: no such folder, and no running session", named.display()) };
    Ok(session.status()?.folder.into())
}

fn target(arguments: &Arguments) -> anyhow::Result<Box<dyn Target>> {
    let (to, connections) = (&arguments.to, usize::from(arguments.connections));
    let certificates = match &arguments.certificates {
        Some(folder) => Certificates::read(folder)?,
        None => Certificates::authorities(None)?,
    };
    if let Some(place) = to.strip_prefix("s3://") {
        let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
        let needed = |name: &str| variable(name).with_context(|| format!("expected a key in {name}"));
        let credentials = Credentials {
            access_key: needed("AWS_ACCESS_KEY_ID")?,
            secret_key: needed("AWS_SECRET_ACCESS_KEY")?,
            session_token: variable("AWS_SESSION_TOKEN"),
            region: variable("AWS_REGION").unwrap_or_else(|| "us-east-1".into()),
        };
        let of_aws = || format!("https://s3.{}.amazonaws.com", credentials.region);
        let endpoint = arguments.endpoint.clone().unwrap_or_else(of_aws);
        check_secrecy(&endpoint, arguments.insecure)?;
        return Ok(Box::new(S3Target::new(&endpoint, place, credentials, &certificates, connections)?));
    }
    check_secrecy(to, arguments.insecure)?;
    let token = arguments.token_file.as_ref().map(|file| {
        let text = std::fs::read_to_string(file).with_context(|| file.display().to_string())?;
        anyhow::Ok(text.trim().to_owned())
    });
    Ok(Box::new(HttpTarget::new(to, &certificates, token.transpose()?, connections)?))
}

/// Refuses to send in the clear to another machine.
fn check_secrecy(address: &str, is_insecure: bool) -> anyhow::Result<()> {
    let Some(host) = address.strip_prefix("http://").filter(|_| !is_insecure) else { return Ok(()) };
    let host = host.split('/').next().unwrap_or_default();
    let named = if host.rsplit(']').next().is_some_and(|port| port.contains(':')) {
        host.into()
    } else {
        format!("{host}:80")
    };
    let is_own = |ip: IpAddr| ip.to_canonical().is_loopback();
    let are_own = named.to_socket_addrs().is_ok_and(|mut found| found.all(|address| is_own(address.ip())));
    if are_own {
        return Ok(());
    }
    bail!("expected https:// to another machine, found {address}; --insecure sends in the clear")
}
