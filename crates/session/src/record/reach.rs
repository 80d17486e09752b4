//! Start of a recording: its command is started, or running programs are asked to take part.

use std::{
    io,
    os::fd::AsFd as _,
    path::{Path, PathBuf},
    process::{Child, Command},
};

use tompion_os::{Inheritance, Poller, ProcessWatch};
use tompion_protocol::names::{LIBRARY_VARIABLE, SESSION_VARIABLE};

use super::{Config, Error};
use crate::target::{ProcessTree, Target};
use crate::{
    acceptor::{ClientAcceptor, Interest},
    attach::{self, ProgramSearch},
};

/// Programs that a session has reached as it begins.
#[derive(Default)]
pub(super) struct Reached {
    /// The command that it has started.
    pub child: Option<Child>,
    /// The search for programs that start later, where they can't find the session.
    pub search: Option<ProgramSearch>,
    /// The reason why they can't find it.
    pub obstacle: Option<String>,
}

/// Starts the command, or lets the running processes know that they are wanted.
pub(super) fn reach(
    config: &Config,
    session: &str,
    acceptor: &mut ClientAcceptor,
    poller: &Poller,
    inheritance: Inheritance,
) -> Result<Reached, Error> {
    let mut search = ProgramSearch::begin();
    let mut child = None;
    let obstacle = match &config.target {
        Target::Command(_) => {
            let mut obstacle = None;
            if config.programs.is_some() {
                obstacle = acceptor.listen_for_programs(&label(config), poller)?;
                search.ask_new(session, |pid| acceptor.would_admit(pid));
            }
            let started = spawn(config, session, inheritance)?;
            acceptor.keep_command(started.id());
            child = Some(started);
            obstacle
        }
        Target::Processes(family) => {
            let obstacle = acceptor.listen_for_programs(&label(config), poller)?;
            ask_family(family, session, config.kernel.is_some(), &mut acceptor.problems)?;
            obstacle
        }
        Target::Everything => {
            let obstacle = acceptor.listen_for_programs(&label(config), poller)?;
            search.ask_new(session, |pid| acceptor.would_admit(pid));
            obstacle
        }
        Target::SharedFolder(_) => {
            // The program that started this session may have stopped waiting, and joins all the
            // same.
            let _ = tompion_os::report_ready();
            None
        }
    };
    Ok(Reached { child, search: obstacle.is_some().then_some(search), obstacle })
}

/// Asks running programs of a recording that goes on: the recorder before may have been killed
/// while it asked. Those that take part refuse. Returns the search for later ones, where they find
/// no join socket.
pub(super) fn ask_again(config: &Config, session: &str, acceptor: &ClientAcceptor) -> Option<ProgramSearch> {
    if config.programs.is_none() && !matches!(config.target, Target::Everything) {
        return None;
    }
    let mut search = ProgramSearch::begin();
    search.ask_new(session, |pid| acceptor.would_admit(pid));
    (!acceptor.has_join_socket()).then_some(search)
}

/// Begin of the name that the join socket has.
fn label(config: &Config) -> String {
    config.session.clone().unwrap_or_else(|| std::process::id().to_string())
}

/// Asks running processes to take part. The kernel can record those without the library, and
/// descendants need not have it.
fn ask_family(
    family: &ProcessTree,
    session: &str,
    has_kernel: bool,
    problems: &mut Vec<String>,
) -> Result<(), Error> {
    let ask = |pid: u32| attach::ask_patiently(pid, session);
    let failure = |pid: &u32| ask(*pid).err().map(|failure| (*pid, failure));
    let named: Vec<_> = family.named.iter().filter_map(failure).collect();
    let others: Vec<_> = family.descendants.iter().filter_map(failure).collect();
    let is_gone = |pid: &u32| !Path::new("/proc").join(pid.to_string()).exists();
    let is_reached = named.len() < family.named.len() || others.len() < family.descendants.len();
    // The kernel may have recorded all of one that has ended since.
    if !(is_reached || has_kernel && family.was_there) {
        let reasons: Vec<String> = named.into_iter().map(|(_, failure)| failure.text).collect();
        return Err(Error::Unreachable(reasons.join("; ")));
    }
    let named =
        named.into_iter().filter(|(pid, failure)| !has_kernel || failure.has_library && !is_gone(pid));
    // Descendants that have ended since they were found are none to record.
    let others = others.into_iter().filter(|(pid, failure)| failure.has_library && !is_gone(pid));
    problems.extend(named.chain(others).map(|(_, failure)| failure.text));
    Ok(())
}

/// Watches the processes that were named: their end is the recording's, whether they take part or
/// not.
pub(super) fn watch(target: &Target, poller: &Poller) -> io::Result<Vec<ProcessWatch>> {
    // Those that have ended by now are none to wait for.
    watch_all(target.processes().iter().filter_map(|pid| ProcessWatch::new(*pid).ok()).collect(), poller)
}

/// Has the ends of processes wake the control thread.
pub(super) fn watch_all(watched: Vec<ProcessWatch>, poller: &Poller) -> io::Result<Vec<ProcessWatch>> {
    for process in &watched {
        poller.add(process.as_fd(), Interest::Signals.to_number())?;
    }
    Ok(watched)
}

/// Puts paths before those of a variable of the loader's.
fn prepend(command: &mut Command, variable: &str, paths: &[PathBuf]) {
    if paths.is_empty() {
        return;
    }
    let own = paths.iter().map(|path| path.to_string_lossy().into_owned());
    let others = std::env::var(variable).ok().filter(|list| !list.is_empty());
    command.env(variable, own.chain(others).collect::<Vec<_>>().join(":"));
}

/// Starts the command with what it needs to find the session, and else as if `tompion` were not
/// there.
fn spawn(config: &Config, session: &str, inheritance: Inheritance) -> Result<Child, Error> {
    let [program, arguments @ ..] = config.target.command() else {
        return Err(Error::Command(String::new(), io::Error::from(io::ErrorKind::InvalidInput)));
    };
    let outer = std::env::var(SESSION_VARIABLE).ok().filter(|names| !names.is_empty());
    let sessions = outer.into_iter().chain([session.to_owned()]).collect::<Vec<_>>().join(":");
    let mut command = Command::new(program);
    command.args(arguments).env(SESSION_VARIABLE, sessions);
    inheritance.hand_on(&mut command);
    match &config.user {
        Some(user) => user.run(&mut command),
        None => tompion_os::run_with_rights_of_process(&mut command),
    }
    if let Some(library) = config.library.as_ref().filter(|_| std::env::var_os(LIBRARY_VARIABLE).is_none()) {
        command.env(LIBRARY_VARIABLE, library);
    }
    prepend(&mut command, "LD_PRELOAD", &config.preload);
    prepend(&mut command, "PYTHONPATH", config.python_start.as_slice());
    prepend(&mut command, "LD_LIBRARY_PATH", config.library_folder.as_slice());
    command.envs(config.variables.iter().map(|(name, path)| (name, path)));
    command.spawn().map_err(|error| Error::Command(program.clone(), error))
}
