//! The libraries in traced processes, and the command itself, are hardened by the compiler and the
//! linker.

use std::{path::Path, process::Command};

use crate::support::{TOMPION, installed, libraries, run};

/// Returns the output of `readelf` for a file.
fn readelf(what: &str, file: &Path) -> String {
    run(Command::new("readelf").args([what, "--wide"]).arg(file)).succeeded().out
}

/// Nothing that is executed can be written, and nothing that decides what is executed, once the
/// file is loaded.
fn is_fixed_when_loaded(file: &Path) {
    let (dynamic, segments) = (readelf("--dynamic", file), readelf("--segments", file));
    let flags = dynamic.lines().filter(|line| line.contains("(FLAGS")).collect::<String>();
    assert!(flags.contains("NOW"), "{}: functions are bound late\n{dynamic}", file.display());
    assert!(!dynamic.contains("TEXTREL"), "{}: code is written\n{dynamic}", file.display());
    assert!(segments.contains("GNU_RELRO"), "{}: no RELRO\n{segments}", file.display());
    let stack = segments.lines().find(|line| line.contains("GNU_STACK"));
    let stack = stack.unwrap_or_else(|| panic!("{}: the stack is executable", file.display()));
    assert!(stack.contains(" RW ") && !stack.contains(" RWE "), "{}: {stack}", file.display());
    let writable_code = segments.lines().find(|line| line.contains("LOAD") && line.contains(" RWE "));
    assert_eq!(writable_code, None, "{}", file.display());
}

#[test]
fn libraries_in_programs_are_hardened() {
    if !installed("readelf") {
        return eprintln!("SKIPPED, hardening can't be looked at without readelf (apt install binutils)");
    }
    let library = libraries().join("libtompion.so.0");
    is_fixed_when_loaded(&library);
    // Each library that it needs is copied in every fork of a traced program.
    let dynamic = readelf("--dynamic", &library);
    assert!(!dynamic.contains("libgcc_s"), "{dynamic}");
    is_fixed_when_loaded(Path::new(TOMPION));
    for name in ["malloc", "pthread", "func", "npt"] {
        let wrapper = libraries().join(format!("libtompion-{name}.so"));
        is_fixed_when_loaded(&wrapper);
        // The short one has no function with an array.
        let symbols = readelf("--dyn-syms", &wrapper);
        let is_guarded = symbols.contains("__stack_chk_fail");
        assert!(is_guarded || name == "npt", "{name}: no stack protector\n{symbols}");
    }
}
