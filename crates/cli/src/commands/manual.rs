//! Manual pages and completions, generated from the arguments' own descriptions.

use std::{path::PathBuf, process::ExitCode};

use clap::{Args, Command};
use clap_complete::{Generator as _, Shell};
use clap_mangen::Man;
use tompion_os::DirHandle;

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
    let folder = DirHandle::open_or_create(&arguments.folder)?;
    let mut command = command.disable_help_subcommand(true);
    command.build();
    write_page(command, &folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the page of a command and those of its subcommands.
fn write_page(command: Command, folder: &DirHandle) -> anyhow::Result<()> {
    for subcommand in command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set()) {
        write_page(subcommand.clone(), folder)?;
    }
    let page = Man::new(command);
    let mut text = Vec::new();
    page.render(&mut text)?;
    Ok(folder.replace(page.get_filename(), &text, false)?)
}

pub fn write_completions(arguments: &CompletionArguments, mut command: Command) -> anyhow::Result<ExitCode> {
    let folder = DirHandle::open_or_create(&arguments.folder)?;
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "tompion", &mut text);
    folder.replace(arguments.shell.file_name("tompion"), &text, false)?;
    Ok(ExitCode::SUCCESS)
}
