//! Running other programs, with errors that say which and how.

use std::io::IsTerminal;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// The cargo that built this program.
pub fn cargo() -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    if std::env::var_os("CI").is_some() {
        // What the next build could make use of is thrown away with everything else.
        cargo.env("CARGO_INCREMENTAL", "0");
    }
    cargo
}

/// Command that runs this program again, without the folders of debug builds that `cargo run` puts
/// on the library path.
///
/// Programs that are measured or shown would find their `libtompion.so` there, not beside them.
/// None when cargo added nothing.
pub fn without_cargos_libraries() -> Option<Command> {
    const PATH: &str = "LD_LIBRARY_PATH";
    let program = std::env::current_exe().ok()?;
    let (built, path) = (program.parent()?, std::env::var_os(PATH)?);
    let (cargos, kept): (Vec<_>, Vec<_>) =
        std::env::split_paths(&path).partition(|folder| folder.starts_with(built));
    if cargos.is_empty() {
        return None;
    }
    let mut again = Command::new(&program);
    again.args(std::env::args_os().skip(1));
    match std::env::join_paths(&kept) {
        Ok(kept) if !kept.is_empty() => again.env(PATH, kept),
        _ => again.env_remove(PATH),
    };
    Some(again)
}

/// The C compiler: `$CC`, or `cc`.
pub fn c_compiler() -> Command {
    Command::new(std::env::var_os("CC").unwrap_or_else(|| "cc".into()))
}

/// Whether someone watches.
pub fn watched() -> bool {
    std::io::stderr().is_terminal()
}

/// Whether a program of this name is on the path.
pub fn exists(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    std::env::split_paths(&path).any(|folder| folder.join(program).is_file())
}

/// A command as one would type it.
pub fn describe(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

/// Runs a command whose output is the user's; a failure is an error.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot run `{}`", describe(command)))?;
    if !status.success() {
        bail!("`{}` failed: {status}", describe(command));
    }
    Ok(())
}

/// Runs a command silently; its output becomes part of the error if it fails.
pub fn run_quietly(command: &mut Command) -> Result<()> {
    capture(command).map(drop)
}

/// The same command, ended after so many seconds: another program may hang, and must not keep us.
pub fn limited(seconds: u64, command: &Command) -> Command {
    let mut limited = Command::new("timeout");
    limited.args(["--kill-after=5", &seconds.to_string()]);
    wrapped(limited, command)
}

/// A command behind the words of another one that runs it.
pub fn wrapped(mut before: Command, command: &Command) -> Command {
    before.arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => before.env(name, value),
            None => before.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        before.current_dir(folder);
    }
    before
}

/// Runs a command and returns its standard output; its standard error becomes part of the error.
pub fn capture(command: &mut Command) -> Result<String> {
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot run `{}`", describe(command)))?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        bail!("`{}` failed: {}\n{}", describe(command), output.status, said.trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
