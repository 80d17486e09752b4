//! State of a recording as calls of other programs see it first.

use tompion_calls::{Facts, describe_rules};
use tompion_control::{Mode, Status};
use tompion_kernel_trace::{ChangeableChoice, KernelChoice};
use tompion_programs::ProgramSets;

use crate::session_config::SessionConfig;

/// Returns facts by which calls are checked.
pub fn facts(config: &SessionConfig, kernel: Option<&KernelChoice>) -> Facts {
    Facts {
        application_contexts: config.application_contexts,
        is_late: config.overwrite || config.backing.is_some(),
        filter: config.rules.filter.clone(),
        is_flight_recorder: config.overwrite,
        is_in_chunks: config.is_in_chunks,
        counting: config.counting.clone(),
        kernel: kernel.map(ChangeableChoice::of),
        is_granted: config.programs.as_ref().is_some_and(ProgramSets::is_limited),
    }
}

/// Returns the part of a recording's state that never changes.
pub fn frame(config: &SessionConfig, command: &[String], kernel: Option<&KernelChoice>) -> Status {
    let begin_ns = tompion_os::realtime_ns();
    Status {
        name: String::new(),
        pid: std::process::id(),
        version: env!("CARGO_PKG_VERSION").into(),
        folder: config.folder.path().to_string_lossy().into_owned(),
        command: command.to_vec(),
        mode: if config.overwrite { Mode::Overwrite } else { Mode::Discard },
        begin_ns,
        rules: describe_rules(&config.rules),
        rule_changes: 0,
        triggers: Vec::new(),
        kernel: kernel.is_some(),
        kernel_events: kernel.map_or(Vec::new(), |choice| choice.words.clone()),
        processes: Vec::new(),
        ended_processes: 0,
        ended_events: 0,
        ended_lost: Vec::new(),
        rejected_processes: 0,
        programs: config.programs.as_ref().map(ProgramSets::texts).unwrap_or_default(),
        refused: Vec::new(),
        ring_bytes_per_process: config.geometry.file_size(),
        ring_bytes: config.geometry.ring_size(),
        memory: config.memory.map(|memory| memory.bytes),
        problems: Vec::new(),
    }
}
