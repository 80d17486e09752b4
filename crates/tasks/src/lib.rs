//! Shared parts of the project's tasks (`xtask`) and benchmarks (`bench`): the workspace, the
//! artifacts that they build, commands, and tables.
#![forbid(unsafe_code)]

pub mod artifacts;
pub mod shell;
pub mod table;
pub mod workspace;
