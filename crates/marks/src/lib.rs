//! Events that programs describe, in their files and in the memory of running processes; and marks
//! of other tracers: how the programs that carry them are recorded.
#![forbid(unsafe_code)]

mod file;
mod memory;

use std::path::PathBuf;

pub use file::{Described, described_in_file, files};
pub use memory::{InMemory, MAX_EVENTS, described_in_memory};

/// Tracer whose marks programs carry, and have a library record that a variable names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Tracer {
    /// Intel's Instrumentation and Tracing Technology API.
    Itt,
    /// NVIDIA's Tools Extension, version 3.
    Nvtx,
}

impl Tracer {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Itt, Self::Nvtx];

    /// Name of the tracer, as descriptions of its events state it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Itt => "ITT",
            Self::Nvtx => "NVTX",
        }
    }

    /// Word that selects it on the command line.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Itt => "itt",
            Self::Nvtx => "nvtx",
        }
    }

    /// Returns the tracer of this word.
    pub fn from_word(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tracer| tracer.word() == word)
    }

    /// Variable in which programs look for the path of a library. Programs that carry the tracer's
    /// marks contain this text.
    pub const fn variable(self) -> &'static str {
        match self {
            Self::Itt => "INTEL_LIBITTNOTIFY64",
            Self::Nvtx => "NVTX_INJECTION64_PATH",
        }
    }

    const fn library(self) -> &'static str {
        match self {
            Self::Itt => "libtompion-itt.so",
            Self::Nvtx => "libtompion-nvtx.so",
        }
    }
}

/// Returns the variables by which a program has these tracers' marks recorded: names and values.
///
/// # Errors
/// If a library is not installed.
pub fn variables(tracers: &[Tracer]) -> anyhow::Result<Vec<(String, PathBuf)>> {
    let variable =
        |tracer: &Tracer| Ok((tracer.variable().into(), tompion_installation::library(tracer.library())?));
    tracers.iter().map(variable).collect()
}

/// Returns the tracers whose marks a program carries, by its constant data.
pub fn carried(data: &[u8]) -> impl Iterator<Item = Tracer> + '_ {
    let has = |tracer: &Tracer| {
        let text = tracer.variable().as_bytes();
        data.windows(text.len()).any(|window| window == text)
    };
    Tracer::ALL.into_iter().filter(has)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_carries_the_marks_of_which_it_has_the_variable() {
        let found = |data: &[u8]| carried(data).collect::<Vec<_>>();
        assert_eq!(found(b"\0INTEL_LIBITTNOTIFY64\0"), [Tracer::Itt]);
        assert_eq!(found(b"NVTX_INJECTION64_PATH and INTEL_LIBITTNOTIFY64"), Tracer::ALL);
        assert_eq!(found(b"INTEL_LIBITTNOTIFY32"), []);
        assert_eq!(found(b""), []);
    }
}
