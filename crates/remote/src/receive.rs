//! `tompion receive`: receives recordings of other machines, and makes certificates and tokens.

use std::{net::SocketAddr, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::Args;
use tompion_receiver::{
    Access, Config, ConnectionLimits, Receiver, StoreLimits, Tokens, make_certificates, make_token,
    server_config,
};

use tompion_terminal::messages::print_status;

/// Arguments of the command.
#[derive(Args, Debug)]
#[command(after_help = "Examples:\n  \
    tompion receive --new-certificates tls --name site --name 192.0.2.7   # once\n  \
    tompion receive --listen 0.0.0.0:7443 --store /srv/traces --certificates tls\n  \
    tompion receive --new-token tokens --hosts 'robot-*'                  # prints the token\n  \
    tompion receive --store /srv/traces                                   # this machine and user alone\n\n\
The store has a folder for each recording, host=H/boot=B/session=S, that every command reads, also while it grows. \
A segment is acknowledged when the medium has it. With certificates, TLS 1.3 is spoken with peers that have one of \
the same authority. Senders need sender.pem, sender-key.pem and ca.pem only.")]
pub struct Arguments {
    /// Listen on this address
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:7443")]
    listen: SocketAddr,
    /// Store recordings in this folder
    #[arg(long, value_name = "DIR", required_unless_present_any = ["new_certificates", "new_token"])]
    store: Option<PathBuf>,
    /// Use the certificates in this folder
    #[arg(long, value_name = "DIR")]
    certificates: Option<PathBuf>,
    /// Serve only peers with a token that this file has
    #[arg(long, value_name = "FILE")]
    tokens: Option<PathBuf>,
    /// Leave this many bytes of the file system free
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = tompion_units::size)]
    min_free: u64,
    /// Keep at most this many connections
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u16).range(1..))]
    connections: u16,
    /// Keep at most this many connections of one address; senders behind one router have one
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(1..))]
    connections_per_address: u16,
    /// Serve LTTng's live protocol on this address to programs of this user, as `tompion live` does
    #[arg(long, value_name = "ADDR")]
    live: Option<SocketAddr>,
    /// Serve other machines without certificates: everyone on the way can read and change segments
    #[arg(long)]
    insecure: bool,
    /// Make certificates of both sides in this folder, and exit
    #[arg(long, value_name = "DIR", conflicts_with_all = ["store", "new_token"])]
    new_certificates: Option<PathBuf>,
    /// Make the receiver's certificate for this name or address, by which senders call it; can be
    /// repeated
    #[arg(long, value_name = "NAME", requires = "new_certificates")]
    name: Vec<String>,
    /// Make a token, add its hash to this file, print it, and exit
    #[arg(long, value_name = "FILE", conflicts_with = "store")]
    new_token: Option<PathBuf>,
    /// Give the token these rights: write, read, live
    #[arg(long, value_name = "LIST", default_value = "write")]
    rights: String,
    /// Give the token rights on these hosts
    #[arg(long, value_name = "GLOB", default_value = "*")]
    hosts: String,
}

/// Runs the command.
///
/// # Errors
/// If it can't be done, with the chain of causes.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some(folder) = &arguments.new_certificates {
        if arguments.name.is_empty() {
            bail!("expected --name with the name or address by which senders call this machine");
        }
        make_certificates(folder, &arguments.name)?;
        let folder = folder.display();
        print_status(format!(
            "certificates in {folder}; next: tompion receive --certificates {folder} --store DIR"
        ));
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(file) = &arguments.new_token {
        let token = make_token(file, &arguments.rights, &arguments.hosts)?;
        use std::io::Write as _;
        writeln!(anstream::stdout(), "{token}")?;
        return Ok(ExitCode::SUCCESS);
    }
    let store = arguments.store.clone().context("expected --store")?;
    let is_open = arguments.certificates.is_some() || arguments.insecure;
    if !is_open && !arguments.listen.ip().to_canonical().is_loopback() {
        bail!("expected --certificates to listen on {}; --insecure serves in the clear", arguments.listen);
    }
    tompion_os::raise_file_limit();
    let access = match &arguments.tokens {
        Some(file) => Access::Tokens(Tokens::read(file)?),
        None if is_open => Access::Everyone,
        None => Access::OwnUser,
    };
    let limits = StoreLimits { min_free: arguments.min_free, ..StoreLimits::default() };
    let tls = arguments.certificates.as_ref().map(|folder| server_config(folder)).transpose()?;
    let connections = ConnectionLimits {
        all: arguments.connections.into(),
        per_peer: arguments.connections_per_address.into(),
    };
    let listen = arguments.listen;
    let receiver = Receiver::bind(Config { listen, store: store.clone(), limits, connections, tls, access })?;
    if let Some(live) = arguments.live {
        let server = crate::live::serve(live, vec![store.clone()], false)?;
        std::thread::Builder::new().name("live".into()).spawn(move || server.run())?;
    }
    print_status(format!("receiving on {} into {}", receiver.address(), store.display()));
    receiver.run()
}
