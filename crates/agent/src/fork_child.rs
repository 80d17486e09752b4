//! The child of a fork: joins its parent's sessions as a process of its own.

use crate::{background_thread, connect, registry, state_dump};

/// Forgets what belongs to the parent, and joins the sessions that the parent took part in.
pub fn rejoin_sessions() {
    let mut registry = registry::lock();
    background_thread::forget_in_child(&mut registry);
    registry.state_dumps.forget_in_child();
    connect::rejoin_in_child(&mut registry);
    background_thread::ensure(&mut registry);
    state_dump::ensure_thread(&mut registry);
}
