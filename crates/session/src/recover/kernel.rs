//! Completion of the kernel's trace with what its rings hold, while a keeper has them.

use tompion_kernel_trace::{HeldKernel, Outcome};
use tompion_manifest::{KERNEL, Manifest};
use tompion_restart_state::ProcessBegin;

use super::Recovery;
use crate::{backing::SavedSession, record::kernel_plan, session_config::SessionConfig};

impl Recovery {
    /// Completes the kernel's trace with what its rings hold, if a keeper has them. `begin` is the
    /// state with which the open chunk began.
    pub(super) fn complete_held_kernel(&mut self, manifest: &mut Manifest, begin: Option<ProcessBegin>) {
        let Some(held) = self.kernel.take() else { return };
        if manifest.sources.iter().any(|source| source.kind == KERNEL) {
            return;
        }
        match self.complete_from_rings(held, begin) {
            Ok(Outcome { source, chunk, problems, remarks, .. }) => {
                manifest.losses_unknown |= source.losses_unknown;
                manifest.sources.push(chunk.map_or(source, |part| part.source));
                self.problems.extend(problems.into_iter().chain(remarks));
            }
            Err(line) => self.problems.push(format!("the kernel's rings can't be read: {line}")),
        }
    }

    fn complete_from_rings(&self, held: HeldKernel, begin: Option<ProcessBegin>) -> Result<Outcome, String> {
        let HeldKernel { left, keeper, backing } = held;
        let config = SavedSession::read(&backing)?.session_config(&self.folder)?;
        let config = SessionConfig { keeper: Some(keeper), backing: Some(backing), ..config };
        let left = left?;
        let choice = left.choice.clone();
        left.complete(&kernel_plan(&config, &choice, |_| {}), begin)
    }
}
