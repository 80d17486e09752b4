//! Artifacts: the command and the library, built by cargo, and the preload wrappers, built by the C
//! compiler.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::shell;
use crate::workspace::Workspace;

/// Options of cargo that leave out the project's own programs.
const TASKS: [&str; 4] = ["--exclude", "xtask", "--exclude", "tompion-bench"];
/// The name by which programs find the library.
pub const SONAME: &str = "libtompion.so.0";

/// Compiler options of all preload wrappers, in a file that the tests use, too: optimized, and
/// hardened, because they stand in other people's processes.
const PRELOAD_OPTIONS: &str = "crates/agent/preload/options";

/// Profile of cargo.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Profile {
    /// Debug build, for tests.
    Debug,
    /// Release build, for use.
    Release,
}

impl Profile {
    /// Folder where cargo puts what it builds with this profile.
    pub fn folder(self, workspace: &Workspace) -> PathBuf {
        workspace.target.join(match self {
            Self::Debug => "debug",
            Self::Release => "release",
        })
    }
}

/// `x build [--debug]`
pub fn command(workspace: &Workspace, arguments: &[String]) -> Result<()> {
    let profile = match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => Profile::Release,
        ["--debug"] => Profile::Debug,
        _ => bail!("usage: ./x build [--debug]"),
    };
    build(workspace, profile)?;
    println!("built in {}", profile.folder(workspace).display());
    Ok(())
}

/// Builds everything that a user installs.
pub fn build(workspace: &Workspace, profile: Profile) -> Result<()> {
    build_targets(workspace, profile, &[])
}

/// The same with the programs of tests. Cargo chooses the features of libraries for all that it
/// builds at once: were the tests built afterwards, many libraries would be built twice.
pub fn build_with_tests(workspace: &Workspace) -> Result<()> {
    build_targets(workspace, Profile::Debug, &["--all-targets"])
}

fn build_targets(workspace: &Workspace, profile: Profile, targets: &[&str]) -> Result<()> {
    cargo(workspace, profile, &[&["build", "--workspace"][..], &TASKS, targets].concat())?;
    static_library(workspace, profile)?;
    preload_wrappers(workspace, profile).map(drop)
}

/// Builds `libtompion.so` alone, as programs have it.
pub fn library(workspace: &Workspace) -> Result<()> {
    cargo(workspace, Profile::Release, &["build", "--package", "tompion-agent"])?;
    link_soname(&Profile::Release.folder(workspace))
}

/// Builds `libtompion.a`, which leaves out what only a shared library can do.
fn static_library(workspace: &Workspace, profile: Profile) -> Result<()> {
    let words = ["rustc", "--package", "tompion-agent", "--no-default-features", "--crate-type", "staticlib"];
    cargo(workspace, profile, &words)
}

fn cargo(workspace: &Workspace, profile: Profile, words: &[&str]) -> Result<()> {
    let mut cargo = shell::cargo();
    cargo.args(words).current_dir(&workspace.root);
    if profile == Profile::Release {
        cargo.arg("--release");
    }
    if !shell::watched() {
        cargo.arg("--quiet");
    }
    shell::run(&mut cargo)
}

/// Compiles `crates/agent/preload/NAME.c` to `libtompion-NAME.so` beside the library.
///
/// Returns the wrappers' paths.
pub fn preload_wrappers(workspace: &Workspace, profile: Profile) -> Result<Vec<PathBuf>> {
    let folder = profile.folder(workspace);
    let sources = preload_sources(workspace)?;
    if sources.is_empty() {
        return Ok(Vec::new());
    }
    link_soname(&folder)?;
    lttng_links(&folder.join("lttng-ust"), "../libtompion-lttng-ust.so")?;
    sources.iter().map(|source| compile_wrapper(workspace, source, &folder)).collect()
}

/// Libraries of LTTng-UST in place of which programs load Tompion's.
const LTTNG_LIBRARIES: [&str; 3] =
    ["liblttng-ust.so.1", "liblttng-ust-tracepoint.so.1", "liblttng-ust-common.so.1"];

/// Makes links with the names of LTTng-UST's libraries in a folder, to Tompion's in place of them.
pub fn lttng_links(folder: &Path, target: &str) -> Result<()> {
    fs::create_dir_all(folder).with_context(|| format!("cannot make {}", folder.display()))?;
    LTTNG_LIBRARIES.iter().try_for_each(|name| replace_link(target, &folder.join(name)))
}

fn preload_sources(workspace: &Workspace) -> Result<Vec<PathBuf>> {
    let folder = workspace.root.join("crates/agent/preload");
    let entries = match fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
        entries => entries.with_context(|| format!("cannot list {}", folder.display()))?,
    };
    let mut sources = Vec::new();
    for entry in entries {
        let path = entry?.path();
        if path.extension().is_some_and(|ext| ext == "c") {
            sources.push(path);
        }
    }
    sources.sort();
    Ok(sources)
}

fn compile_wrapper(workspace: &Workspace, source: &Path, folder: &Path) -> Result<PathBuf> {
    let stem = source.file_stem().context("a source has a name")?.to_string_lossy();
    let library = format!("libtompion-{stem}.so");
    let output = folder.join(&library);
    let fresh = folder.join(format!(".{library}.new"));
    shell::run(
        shell::c_compiler()
            .arg(format!("@{}", workspace.root.join(PRELOAD_OPTIONS).display()))
            .arg(format!("-I{}", workspace.root.join("include").display()))
            .arg(format!("-I{}", workspace.root.join("include/lttng-ust").display()))
            .arg(source)
            .arg(format!("-L{}", folder.display()))
            .args([
                "-ltompion",
                "-ldl",
                "-Wl,-rpath,$ORIGIN:$ORIGIN/..:$ORIGIN/../..",
                "-Wl,--auxiliary=libtompion.so.0",
            ])
            .arg(format!("-Wl,-soname,{library}"))
            .arg("-o")
            .arg(&fresh),
    )?;
    // Replaced at once, so that a program that runs with the old one keeps it.
    fs::rename(&fresh, &output).with_context(|| format!("cannot write {}", output.display()))?;
    Ok(output)
}

/// Makes `libtompion.so.0` beside cargo's `libtompion.so`.
fn link_soname(folder: &Path) -> Result<()> {
    let library = folder.join("libtompion.so");
    if !library.is_file() {
        bail!("{} is missing: expected from crates/agent", library.display());
    }
    replace_link("libtompion.so", &folder.join(SONAME))
}

/// Makes or replaces a symbolic link.
pub fn replace_link(target: &str, link: &Path) -> Result<()> {
    match fs::remove_file(link) {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            return Err(error).with_context(|| format!("cannot replace {}", link.display()));
        }
        _ => {}
    }
    symlink(target, link).with_context(|| format!("cannot link {}", link.display()))
}
