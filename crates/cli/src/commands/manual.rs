//! Manual pages and completions, generated from the arguments' own descriptions.

use std::{fs, path::PathBuf, process::ExitCode};

use clap::{Args, Command};
use clap_complete::Shell;

#[derive(Args)]
pub struct ManArguments {
    /// The folder
    folder: PathBuf,
}

#[derive(Args)]
pub struct CompletionArguments {
    /// The shell
    shell: Shell,
    /// The folder
    folder: PathBuf,
}

pub fn write_pages(arguments: &ManArguments, command: Command) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&arguments.folder)?;
    clap_mangen::generate_to(command, &arguments.folder)?;
    Ok(ExitCode::SUCCESS)
}

pub fn write_completions(arguments: &CompletionArguments, mut command: Command) -> anyhow::Result<ExitCode> {
    fs::create_dir_all(&arguments.folder)?;
    clap_complete::generate_to(arguments.shell, &mut command, "tompion", &arguments.folder)?;
    Ok(ExitCode::SUCCESS)
}
