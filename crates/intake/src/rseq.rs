//! Decision whether recorded programs may append in rseq sections on this kernel.
//!
//! The session decides for its programs. In each program, the check would cost two threads and
//! milliseconds at its start.

use tompion_os::{Disturbance, RseqVerdict};
use tompion_protocol::names::RSEQ_VARIABLE;

/// Returns whether programs may use rseq sections. An unknown kernel counts as broken:
/// reserve/commit costs time per event, while a section that is not restarted tears events.
pub fn is_usable() -> bool {
    !is_declined() && *tompion_os::rseq_verdict() == RseqVerdict::Kept
}

/// Returns a line for the user if sections can't be used.
pub fn problem() -> Option<String> {
    if is_declined() {
        return None;
    }
    let found = match tompion_os::rseq_verdict() {
        RseqVerdict::Kept => return None,
        RseqVerdict::Broken(Disturbance::Preemption) => {
            "this kernel does not restart sections (rseq) when their thread is preempted".to_owned()
        }
        RseqVerdict::Broken(Disturbance::Barrier) => {
            "this kernel does not restart sections (rseq) when membarrier asks for it".to_owned()
        }
        RseqVerdict::Unknown(reason) => {
            format!("whether this kernel restarts sections (rseq) is unknown: {reason}")
        }
    };
    Some(format!("programs use reserve/commit instead, at about four times the cost per event: {found}"))
}

/// Returns whether the user has switched sections off.
fn is_declined() -> bool {
    std::env::var_os(RSEQ_VARIABLE).is_some_and(|value| value == "0")
}
