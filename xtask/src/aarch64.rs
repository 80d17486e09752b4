//! `x test aarch64`: the code for the other architecture compiles, and its assembly assembles.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use tompion_tasks::shell;
use tompion_tasks::workspace::Workspace;

/// Target triple.
const TARGET: &str = "aarch64-unknown-linux-gnu";

/// The crates that have code of their own for an architecture, or numbers of its system calls. The
/// other crates differ by nothing, and what they need takes minutes to compile.
const CONCERNED: [&str; 8] = [
    "tompion",
    "tompion-agent",
    "tompion-kernel",
    "tompion-os",
    "tompion-reader",
    "tompion-ring",
    "tompion-rttest",
    "tompion-session",
];

/// Reason why nothing can be built for aarch64 here, if it can't.
pub fn unavailable() -> Option<String> {
    let sysroot = shell::capture(Command::new("rustc").args(["--print", "sysroot"])).unwrap_or_default();
    let library = PathBuf::from(sysroot.trim()).join("lib/rustlib").join(TARGET);
    (!library.is_dir()).then(|| format!("Rust's library for aarch64 is missing (rustup target add {TARGET})"))
}

/// Compiles the crates that it concerns, or all of them, and assembles what has assembly in it,
/// which `check` doesn't. No linker is needed.
pub fn command(workspace: &Workspace, full: bool) -> Result<()> {
    let cargo = |words: &[&str]| {
        let mut cargo = shell::cargo();
        cargo.args(words).args(["--quiet", "--target", TARGET]).current_dir(&workspace.root);
        // SQLite is C, which would want a compiler and headers for the other architecture; nothing
        // is linked here.
        cargo.env("LIBSQLITE3_SYS_USE_PKG_CONFIG", "1").env("SQLITE3_LIB_DIR", "/nonexistent");
        shell::run(&mut cargo)
    };
    let all = ["--workspace", "--exclude", "xtask", "--exclude", "tompion-bench"];
    let concerned = CONCERNED.map(|name| ["--package", name]);
    cargo(&[&["check"][..], if full { &all[..] } else { concerned.as_flattened() }].concat())?;
    cargo(&[
        "rustc",
        "--package",
        "tompion-agent",
        "--lib",
        "--no-default-features",
        "--crate-type",
        "staticlib",
    ])
}
