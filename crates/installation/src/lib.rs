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

/// Libraries and folder for a program that records nothing of these by itself.
#[derive(Debug, Default)]
pub struct Preloads {
    /// Libraries for `LD_PRELOAD`.
    pub libraries: Vec<PathBuf>,
    /// Folder for `PYTHONPATH`, with a module that Python imports at its start.
    pub python_start: Option<PathBuf>,
}

/// Finds what these names stand for: `python`, or NAME of `libtompion-NAME.so`.
pub fn preloads(names: impl Iterator<Item = String>) -> anyhow::Result<Preloads> {
    let mut found = Preloads::default();
    for name in names {
        let file = match &*name {
            "python" => "python/preload".to_owned(),
            _ => format!("libtompion-{name}.so"),
        };
        let path = library(&file).with_context(|| format!("--preload {name}"))?;
        match &*name {
            "python" => found.python_start = Some(path),
            _ => found.libraries.push(path),
        }
    }
    Ok(found)
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

    #[test]
    fn a_preload_that_is_absent_is_named_as_it_was_asked_for() {
        for name in ["absent", "python"] {
            let error = format!("{:#}", preloads([name.to_owned()].into_iter()).unwrap_err());
            assert!(error.starts_with(&format!("--preload {name}: can't find ")), "{error}");
        }
        let none = preloads(std::iter::empty()).unwrap();
        assert_eq!((none.libraries, none.python_start), (Vec::new(), None));
    }
}
