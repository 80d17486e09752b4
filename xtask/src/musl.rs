//! `x test musl`: the library works with the other C library, whose threads have no restartable
//! sequences.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use tompion_tasks::artifacts::Profile;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Target triple.
const TARGET: &str = "x86_64-unknown-linux-musl";
const COMPILER: &str = "musl-gcc";

/// Number of times that the program is to report.
const QUERIES: u64 = 50;

/// gcc's unwinder, as compiled for glibc, asks it for this. Only panics unwind, and there are none.
const STAND_IN: &str = "int _dl_find_object(void *address, void *found) { return -1; }\n";

/// Reason why nothing can be built for musl here, if it can't.
pub fn unavailable() -> Option<String> {
    let sysroot = shell::capture(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
    let library = PathBuf::from(sysroot.trim()).join("lib/rustlib").join(TARGET);
    if !library.is_dir() {
        return Some(format!("Rust's library for musl is missing (rustup target add {TARGET})"));
    }
    (!shell::exists(COMPILER)).then(|| format!("{COMPILER} is missing (apt install musl-tools)"))
}

/// Builds the library and a program for musl, and records it.
pub fn command(workspace: &Workspace) -> Result<()> {
    let work = workspace.target.join("musl");
    fs::create_dir_all(&work)?;
    link_unwinder(&work)?;
    let library = library(workspace, &work)?;
    fs::copy(&library, work.join("libtompion.so.0")).context("the library can't be copied")?;
    let program = work.join("hello");
    let mut compiler = Command::new(COMPILER);
    compiler.args(["-O2", "-I"]).arg(workspace.root.join("include"));
    compiler.arg(workspace.root.join("examples/hello.c")).arg(&library).arg("-o").arg(&program);
    compiler.arg(format!("-Wl,-rpath,{}", work.display()));
    shell::run_quietly(&mut compiler)?;
    record(workspace, &work, &program)
}

/// Rust links `gcc_s`, which musl's distributions have and others have for glibc only. There, gcc's
/// static unwinder takes its place.
fn link_unwinder(work: &Path) -> Result<()> {
    let archive = |name: &str| -> Result<String> {
        Ok(shell::capture(Command::new("gcc").arg(format!("-print-file-name={name}")))?.trim().to_owned())
    };
    let (source, object) = (work.join("stand_in.c"), work.join("stand_in.o"));
    fs::write(&source, STAND_IN)?;
    shell::run_quietly(Command::new("gcc").args(["-c", "-fPIC", "-o"]).arg(&object).arg(&source))?;
    let script =
        format!("INPUT ( {} {} {} )\n", archive("libgcc_eh.a")?, archive("libgcc.a")?, object.display());
    fs::write(work.join("libgcc_s.so"), script).context("a linker script")
}

fn library(workspace: &Workspace, work: &Path) -> Result<PathBuf> {
    let mut cargo = shell::cargo();
    cargo.args(["build", "--quiet", "--package", "tompion-agent", "--target", TARGET]);
    cargo.current_dir(&workspace.root).env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_LINKER", COMPILER);
    let flags = format!("-C target-feature=-crt-static -L {}", work.display());
    shell::run(cargo.env("CARGO_TARGET_X86_64_UNKNOWN_LINUX_MUSL_RUSTFLAGS", flags))?;
    Ok(workspace.target.join(TARGET).join("debug/libtompion.so"))
}

fn record(workspace: &Workspace, work: &Path, program: &Path) -> Result<()> {
    let trace = work.join("trace");
    if trace.exists() {
        fs::remove_dir_all(&trace)?;
    }
    let tompion = Profile::Debug.folder(workspace).join("tompion");
    let mut recording = Command::new(&tompion);
    recording.args(["record", "-o"]).arg(&trace).arg("--").arg(program).arg(QUERIES.to_string());
    shell::run_quietly(&mut recording)?;
    let stat = shell::capture(Command::new(&tompion).args(["stat", "--json"]).arg(&trace))?;
    let stat: Value = serde_json::from_str(&stat).context("`tompion stat --json` wrote no JSON")?;
    let events = stat["events"].as_u64().unwrap_or_default();
    ensure!(
        events > 2 * QUERIES && stat["lost"]["total"] == 0,
        "a program of musl was not recorded whole: {stat:#}"
    );
    ensure!(stat["processes"][0]["producer"] == "reserve", "a program of musl has no rseq: {stat:#}");
    println!("musl: {events} events of a program without rseq, none lost");
    Ok(())
}
