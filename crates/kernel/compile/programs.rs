//! Compilation of BPF programs when a crate is built. Without a clang the crate is built all the
//! same, with an empty object, and says at run time what is missing.

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Folder with the kernel's structures and helpers, for all programs, from any crate's folder.
const DESCRIPTIONS: &str = "../kernel/src/bpf";

/// Compiles a source into an object in the build's own folder. `what` is missing where that fails.
pub fn build(source: &str, object: &str, what: &str) {
    println!("cargo:rerun-if-changed=src/bpf");
    println!("cargo:rerun-if-changed={DESCRIPTIONS}");
    println!("cargo:rerun-if-env-changed=CLANG");
    let output = PathBuf::from(env::var_os("OUT_DIR").unwrap_or_default()).join(object);
    if let Err(reason) = compile(source, &output) {
        println!("cargo:warning={what} left out of this build: {reason} (apt install clang)");
        // An empty object is how the crate knows.
        fs::write(&output, []).expect("the build folder can be written");
    }
}

/// The architecture, as the programs' sources call it.
fn architecture() -> Result<&'static str, String> {
    match env::var("CARGO_CFG_TARGET_ARCH").as_deref() {
        Ok("x86_64") => Ok("x86"),
        Ok("aarch64") => Ok("arm64"),
        other => Err(format!("system calls of {} are not described yet", other.unwrap_or("this processor"))),
    }
}

fn compile(source: &str, output: &Path) -> Result<(), String> {
    let clang = env::var("CLANG").unwrap_or_else(|_| "clang".into());
    let run = Command::new(&clang)
        // The third instruction set has compare-and-swap, and is what Linux 5.12 and later run.
        .args(["-target", "bpf", "-mcpu=v3", "-O2", "-g", "-Wall", "-I", DESCRIPTIONS, "-c", source, "-o"])
        .arg(output)
        .arg(format!("-D__TARGET_ARCH_{}", architecture()?))
        .output()
        .map_err(|error| format!("{clang}: {error}"))?;
    if run.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&run.stderr).into_owned();
    Err(format!("{clang}: {}", text.lines().next().unwrap_or("failed")))
}
