//! Link options of libtompion.so.

use std::{env, fs, path::Path, process::Command};

fn main() {
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libtompion.so.0");
    // Nothing of it can be written that is not data: addresses of functions are filled in when it
    // is loaded, then read-only.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,relro,-z,now,-z,noexecstack,-z,text");
    // A section's descriptor must never be unmapped while a thread may point to it.
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,nodelete");
    link_unwinder();
}

/// Links gcc's static unwinder into the library, in place of `libgcc_s.so`, which Rust's standard
/// library names. Each fork of a recorded program would copy that library's mappings.
///
/// Where the linker has no static unwinder, or the C library is another one, nothing changes.
fn link_unwinder() {
    println!("cargo:rerun-if-env-changed=RUSTC_LINKER");
    let (Ok(folder), Ok("gnu")) = (env::var("OUT_DIR"), env::var("CARGO_CFG_TARGET_ENV").as_deref()) else {
        return;
    };
    let linker = match env::var("RUSTC_LINKER") {
        Ok(linker) => linker,
        // For another machine, the linker may be named by other flags.
        Err(_) if env::var("HOST") == env::var("TARGET") => "cc".into(),
        Err(_) => return,
    };
    let Ok(found) = Command::new(linker).arg("-print-file-name=libgcc_eh.a").output() else { return };
    // A compiler that doesn't find the file prints its bare name.
    let archive = String::from_utf8_lossy(&found.stdout).trim().to_owned();
    if !found.status.success() || !Path::new(&archive).is_absolute() || !Path::new(&archive).exists() {
        return;
    }
    let script = Path::new(&folder).join("libgcc_s.so");
    if fs::write(script, format!("INPUT ( {archive} -lgcc )\n")).is_ok() {
        println!("cargo:rustc-cdylib-link-arg=-L{folder}");
    }
}
