//! The project's tasks, behind the script `x`: build, test, installation, demo.
#![forbid(unsafe_code)]

mod aarch64;
mod advisories;
mod bindings;
mod demo;
mod fuzz;
mod go;
mod install;
mod layers;
mod links;
mod models;
mod musl;
mod page;
mod suite;
mod test;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::Result;

use tompion_tasks::{artifacts, shell, workspace::Workspace};

const USAGE: &str = "usage: xtask build | bindings | test | install | demo | demo-report | layers | links | models | fuzz | \
     page";

fn main() -> ExitCode {
    if let Some(mut again) = shell::without_cargos_libraries() {
        let error = again.exec();
        eprintln!("x: cannot restart: {error}");
        return ExitCode::FAILURE;
    }
    let mut arguments = std::env::args().skip(1);
    let command = arguments.next().unwrap_or_default();
    let rest: Vec<String> = arguments.collect();
    match run(&command, &rest) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("x {command}: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: &str, arguments: &[String]) -> Result<ExitCode> {
    let workspace = Workspace::load()?;
    match command {
        "bindings" => bindings::command(&workspace, arguments)?,
        "build" => artifacts::command(&workspace, arguments)?,
        "test" => return test::command(&workspace, arguments),
        "install" => install::command(&workspace, arguments)?,
        "demo" => demo::command(&workspace, arguments)?,
        "demo-report" => demo::report_command()?,
        "layers" => layers::command(&workspace)?,
        "models" => models::command(&workspace)?,
        "links" => links::command(&workspace)?,
        "fuzz" => fuzz::command(&workspace, arguments)?,
        "page" => page::dev_command(&workspace, arguments)?,
        _ => {
            eprintln!("{USAGE}");
            return Ok(ExitCode::from(2));
        }
    }
    Ok(ExitCode::SUCCESS)
}
