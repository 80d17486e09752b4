//! Processes that were recorded because the user named them, as the manifest tells of them.

use tompion_lineage::{
    self as lineage, Lineage,
    untrusted_text::{MAX_NAME, tidy},
};
use tompion_manifest as manifest;

use crate::target::Target;

/// Maximum number of processes of which the manifest tells.
const MAX_TARGETS: usize = 4096;

/// Describes the processes that the user named, and their descendants that run already.
pub fn describe(target: &Target) -> Vec<manifest::Target> {
    let Target::Processes(family) = target else { return Vec::new() };
    let described = family.members().take(MAX_TARGETS).map(|pid| {
        let Lineage { parent, command_line, .. } = lineage::of(pid);
        let name = tompion_os::name_of(&pid.to_string()).unwrap_or_default();
        manifest::Target {
            pid: pid.into(),
            parent: parent.into(),
            name: tidy(&name, MAX_NAME),
            command_line,
            start_ticks: tompion_os::start_ticks(pid),
            end: None,
        }
    });
    described.collect()
}

/// Notes which of the processes have ended. A process of the same id that started at another time
/// is another one.
pub fn note_ends(targets: &mut [manifest::Target]) {
    for target in targets {
        let now = u32::try_from(target.pid).ok().and_then(tompion_os::start_ticks);
        let end = match (target.start_ticks, now) {
            // It was gone before it was looked at, or can't be looked at.
            (None, _) => continue,
            (before, now) if before == now => "running when the recording ended",
            _ => manifest::ENDED,
        };
        target.end = Some(end.into());
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;
    use crate::target::ProcessTree;

    #[test]
    fn named_processes_are_described_with_their_ends() {
        let mut child = Command::new("sleep").arg("60").stdin(Stdio::null()).spawn().expect("sleep");
        let own = std::process::id();
        let mut found = describe(&Target::Processes(ProcessTree::new(vec![child.id(), own], false)));
        assert_eq!(
            found.iter().map(|target| target.pid).collect::<Vec<_>>(),
            [i64::from(child.id()), i64::from(own)]
        );
        assert_eq!(found[0].parent, i64::from(own));
        child.kill().expect("a child");
        child.wait().expect("its end");
        note_ends(&mut found);
        let ends: Vec<_> = found.iter().map(|target| target.end.as_deref()).collect();
        assert_eq!(ends, [Some(manifest::ENDED), Some("running when the recording ended")]);
        // Its id may be in use again.
        found[1].start_ticks = found[1].start_ticks.map(|ticks| ticks + 1);
        note_ends(&mut found);
        assert_eq!(found[1].end.as_deref(), Some(manifest::ENDED));
        assert!(describe(&Target::Everything).is_empty());
    }
}
