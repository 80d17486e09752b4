//! Benchmarks of Tompion beside its peers (`./x bench`), and the instruction counts of the event
//! path (`./x test instructions`).
#![forbid(unsafe_code)]

mod benchmarks;
mod instructions;

use std::os::unix::process::CommandExt;
use std::process::ExitCode;

use anyhow::Result;
use tompion_tasks::{shell, workspace::Workspace};

const USAGE: &str = "usage: tompion-bench bench [NAME|all] [--quick] | instructions [--store]";

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
        "bench" => benchmarks::command(&workspace, arguments),
        "instructions" => instructions::command(&workspace, arguments).map(|()| ExitCode::SUCCESS),
        _ => {
            eprintln!("{USAGE}");
            Ok(ExitCode::from(2))
        }
    }
}
