//! C programs that are measured, built once for each run.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use tompion_tasks::artifacts::Profile;
use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Folder for programs and traces of a run.
pub fn folder(workspace: &Workspace) -> Result<PathBuf> {
    let folder = workspace.target.join("bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// A folder in memory, for traces that shall not wait for a disk.
pub fn memory_folder(workspace: &Workspace) -> Result<PathBuf> {
    let shared = Path::new("/dev/shm");
    if !shared.is_dir() {
        return folder(workspace);
    }
    let folder = shared.join("tompion-bench");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// A program to build.
pub struct Program<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its sources below `benches/`.
    pub sources: &'a [&'a str],
    /// Further arguments of the compiler, after the sources.
    pub flags: &'a [String],
}

/// Builds a program and returns its path.
pub fn build(workspace: &Workspace, program: &Program) -> Result<PathBuf> {
    let output = folder(workspace)?.join(program.name);
    let benches = workspace.root.join("benches");
    let mut compiler = shell::c_compiler();
    compiler.args(["-O2", "-g", "-Wall", "-Wextra", "-pthread"]);
    compiler.arg(format!("-I{}", benches.join("event").display()));
    compiler.args(program.sources.iter().map(|source| benches.join(source)));
    compiler.args(program.flags).arg("-o").arg(&output);
    shell::run_quietly(&mut compiler)?;
    Ok(output)
}

/// Flags that link a program with this build of libtompion.so.
pub fn tompion_flags(workspace: &Workspace) -> Vec<String> {
    let library = Profile::Release.folder(workspace);
    vec![
        format!("-I{}", workspace.root.join("include").display()),
        format!("-L{}", library.display()),
        format!("-Wl,-rpath,{}", library.display()),
        "-ltompion".into(),
    ]
}

/// Flags that link a program with LTTng-UST.
pub fn lttng_flags() -> Vec<String> {
    vec!["-llttng-ust".into(), "-ldl".into()]
}

/// Whether the compiler finds LTTng-UST's headers.
pub fn has_lttng_headers() -> bool {
    let mut compiler = shell::c_compiler();
    compiler.args(["-E", "-include", "lttng/tracepoint.h", "-x", "c", "/dev/null"]);
    shell::exists("lttng-sessiond") && shell::capture(&mut compiler).is_ok()
}

/// Removes a trace of an earlier repetition.
pub fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("cannot remove {}", folder.display()))
        }
        _ => Ok(()),
    }
}

/// The bytes of all files below a folder.
pub fn size(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder).with_context(|| format!("cannot list {}", folder.display()))? {
        let path = entry?.path();
        bytes += if path.is_dir() { size(&path)? } else { path.metadata()?.len() };
    }
    Ok(bytes)
}
