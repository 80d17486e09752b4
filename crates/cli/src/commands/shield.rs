//! `tompion shield`: reserves CPUs for a command.

use std::{
    io,
    path::PathBuf,
    process::{Child, Command, ExitCode, ExitStatus},
};

use anyhow::Context as _;
use clap::Args;
use tompion_machine::{
    CpuSet, Root,
    shield::{self, Config, Restored, Shield},
};
use tompion_os::{
    FileRights, Inheritance, Poller, Signals, User,
    signal::{SIGCHLD, SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2},
};

use crate::{
    exit_status,
    messages::{self, pluralize, print_status},
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    sudo tompion shield 3 -- chrt -f 80 ./robot\n  \
    sudo tompion shield 2-3,6 --as-root -- ./controller --period 1ms\n  \
    sudo tompion shield --restore           # after a kill, if something was not restored\n\n\
Exit status: that of the command, or 128 plus the number of the signal that killed it. 127: the command was not found. \
126: it can't be run. 1: the CPUs can't be reserved. Signals sent to tompion are forwarded to the command.\n\n\
The reserved CPUs have no load balancing: each thread stays on the CPU where it starts unless it sets its affinity.")]
pub struct Arguments {
    /// CPUs to reserve: 3, or 2-3,6
    #[arg(value_name = "CPUS", value_parser = CpuSet::from_list, required_unless_present_any = ["restore", "guard"])]
    cpus: Option<CpuSet>,
    /// Restore what a killed shield left, and exit
    #[arg(long, conflicts_with_all = ["cpus", "command", "as_root"])]
    restore: bool,
    /// Under sudo, run the command as root instead of the user who called sudo
    #[arg(long)]
    as_root: bool,
    /// Restore everything when this process ends (used by tompion itself)
    #[arg(long, hide = true, value_name = "PID", conflicts_with_all = ["cpus", "command", "restore"])]
    guard: Option<u32>,
    /// Folder of proc, sys and run (used by tests)
    #[arg(long, hide = true, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Command to run on these CPUs, with its arguments
    #[arg(last = true, value_name = "CMD", required_unless_present_any = ["restore", "guard"])]
    command: Vec<String>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let root = Root::new(&arguments.root);
    // All paths belong to the machine; only root can change them.
    let _rights = if root.is_real() { FileRights::of_the_process().ok() } else { None };
    if let Some(pid) = arguments.guard {
        // This process has no output. What it can't restore stays in the state file.
        shield::guard(&root, pid, || drop(tompion_os::report_ready()))?;
        return Ok(ExitCode::SUCCESS);
    }
    match (&arguments.cpus, arguments.restore) {
        (Some(cpus), false) => keep_free(arguments, root, cpus),
        _ => restore(&root),
    }
}

fn restore(root: &Root) -> anyhow::Result<ExitCode> {
    match shield::restore(root)? {
        Restored::Nothing => print_status("nothing to restore"),
        Restored::AllBut(problems) if problems.is_empty() => print_status("everything was restored"),
        Restored::AllBut(problems) => {
            problems.iter().for_each(print_status);
            return Ok(ExitCode::from(messages::FAILED));
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn keep_free(arguments: &Arguments, root: Root, cpus: &CpuSet) -> anyhow::Result<ExitCode> {
    let inheritance = Inheritance::current();
    let signals = Signals::take(&[SIGHUP, SIGINT, SIGQUIT, SIGUSR1, SIGUSR2, SIGTERM, SIGCHLD])
        .context("can't take signals")?;
    let shield = Shield::raise(&config(&root, cpus)?)?;
    shield.moved.problems.iter().for_each(print_status);
    print_status(format!(
        "CPUs {cpus} are free: {} and {} moved away",
        pluralize(shield.moved.interrupts, "interrupt"),
        pluralize(shield.moved.kernel_threads, "kernel thread")
    ));
    // One that came while things were moved was meant for all of this.
    let early =
        std::iter::from_fn(|| signals.next()).map(|(signal, _)| signal).find(|signal| *signal != SIGCHLD);
    if let Some(signal) = early {
        shield.lower().iter().for_each(print_status);
        return Ok(exit_status::of_signal(signal));
    }
    let ended = spawn(arguments, &shield, inheritance).map(|child| wait(child, &signals));
    let problems = shield.lower();
    problems.iter().for_each(print_status);
    if !problems.is_empty() {
        print_status("tompion shield --restore tries again");
    }
    match ended {
        Ok(status) => Ok(exit_status::of_command(status?)),
        Err(error) => {
            let name = arguments.command.first().map_or("", String::as_str);
            print_status(format!("can't run {name}: {error}"));
            Ok(exit_status::of_spawn_error(&error))
        }
    }
}

fn config(root: &Root, cpus: &CpuSet) -> anyhow::Result<Config> {
    let program = std::env::current_exe().context("can't tell where this program is")?;
    let words = ["shield", "--root", &root.place("").to_string_lossy(), "--guard"].map(str::to_owned);
    Ok(Config { root: root.clone(), cpus: cpus.clone(), guardian: Some((program, words.to_vec())) })
}

fn spawn(arguments: &Arguments, shield: &Shield, inheritance: Inheritance) -> io::Result<Child> {
    let [program, words @ ..] = &arguments.command[..] else {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    };
    let mut command = Command::new(program);
    command.args(words);
    shield.admit(&mut command)?;
    inheritance.hand_on(&mut command);
    match User::behind_sudo().filter(|_| !arguments.as_root) {
        Some(user) => user.run(&mut command),
        None => tompion_os::run_with_rights_of_process(&mut command),
    }
    command.spawn()
}

/// Waits for the command's end, and forwards signals to it.
fn wait(mut child: Child, signals: &Signals) -> io::Result<ExitStatus> {
    let poller = Poller::new()?;
    poller.add(std::os::fd::AsFd::as_fd(signals), 0)?;
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(status);
        }
        poller.wait(None)?;
        while let Some((signal, by_kernel)) = signals.next() {
            // Ctrl-C on a terminal has reached the command already.
            if signal != SIGCHLD && !by_kernel {
                let _ = tompion_os::kill(child.id(), signal);
            }
        }
    }
}
