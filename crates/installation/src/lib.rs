//! Files of an installation: where the command finds the libraries that it has programs load.
#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};

/// Finds a library of this program: beside it, or in the `lib` folder beside its folder.
pub fn library(name: &str) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe().context("can't tell where this program is")?;
    let folder = program.parent().unwrap_or(Path::new("/"));
    let places =
        [folder.join(name), folder.join("../lib").join(name), folder.join("../lib/tompion").join(name)];
    let found = places.iter().find_map(|place| place.canonicalize().ok());
    found.with_context(|| {
        format!("can't find {name} beside {}; is Tompion fully installed?", program.display())
    })
}

/// Finds the folder of the libraries that stand in place of LTTng-UST's.
pub fn lttng_folder() -> anyhow::Result<PathBuf> {
    let folder = library("lttng-ust").context("--lttng")?;
    if !folder.join("liblttng-ust.so.1").exists() {
        bail!("--lttng: {} has no liblttng-ust.so.1; is Tompion fully installed?", folder.display());
    }
    Ok(folder)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_library_is_named_with_the_program() {
        let error = library("libabsent.so").unwrap_err().to_string();
        assert!(error.starts_with("can't find libabsent.so beside /"), "{error}");
        assert!(library(".").is_ok(), "the program's own folder is there");
    }
}
