//! `tompion apply`: has a supervisor do what a session's files say.

use std::process::ExitCode;

use clap::Args;
use tompion_supervisor::client;

use crate::messages::{self, escape_control, print_status};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion apply flight             # start it, or change what runs\n  \
    tompion apply --restart flight   # also what needs its recorders to start again\n  \
    tompion apply --system flight    # by root's supervisor, within this user's grant\n\n\
Reads NAME.toml and its drop-ins again. Events, levels and filters change while programs run. Other keys need the \
channel's recorder to start again, with a new trace: they are named, and changed with --restart. A recorder that \
failed and waits is started at once.\n\n\
With --system, the recorders can do what a file in /etc/tompion/grants.d grants this user: record programs of other \
users, or the kernel's events. Traces are this user's. Each channel needs `memory`, and `start` is `demand`.\n\n\
Exit status: 0 it is as the files say, 1 refused or failed, or something needs --restart.")]
pub struct Arguments {
    /// Name of the session: that of its file, without `.toml`
    #[arg(value_name = "SESSION", required = true)]
    sessions: Vec<String>,
    /// Start recorders again where a change needs it
    #[arg(long)]
    restart: bool,
    /// Have root's supervisor do it, within what it grants this user
    #[arg(long)]
    system: bool,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let mut is_done = true;
    for name in &arguments.sessions {
        let applied = match arguments.system {
            true => client::apply_by_grant(name, arguments.restart)?,
            false => client::apply(name, arguments.restart)?,
        };
        for line in &applied.changes {
            print_status(escape_control(&format!("{name}: {line}")));
        }
        for line in &applied.pending {
            let system = if arguments.system { "--system " } else { "" };
            let line =
                format!("{name}: {line} not changed yet: this needs tompion apply {system}--restart {name}");
            print_status(escape_control(&line));
        }
        if applied.changes.is_empty() && applied.pending.is_empty() {
            print_status(format!("{name}: nothing to change"));
        }
        is_done &= applied.pending.is_empty();
    }
    Ok(if is_done { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}
