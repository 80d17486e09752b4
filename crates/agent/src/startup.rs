//! Start of the agent: once in a process, when the library is loaded or its first module registers.

use crate::{connect, fork, fork_child, host::protect_host};
#[cfg(feature = "shared")]
use crate::{event, identity, main_exit};

/// Starts the agent, once. A shared library is loaded before the constructors of the objects that
/// need it. In a static program one of those constructors may run first.
pub fn start_once() {
    static STARTED: std::sync::Once = std::sync::Once::new();
    STARTED.call_once(|| {
        std::panic::set_hook(Box::new(|_| {}));
        fork::set_child_handler(fork_child::rejoin_sessions);
        #[cfg(feature = "shared")]
        if program_has_own_agent() {
            return;
        }
        #[cfg(feature = "shared")]
        {
            fork::resolve_libc_functions();
            identity::resolve_libc_functions();
            main_exit::resolve_libc_functions();
        }
        connect::connect_from_env();
    });
}

/// Returns whether an agent is linked into the program itself. Every module finds that one, so this
/// library must not take its place in the sessions.
#[cfg(feature = "shared")]
fn program_has_own_agent() -> bool {
    // The library's own name may resolve to the other one, too. The event path's address never
    // does.
    tompion_os::has_other_definition(c"tompion_agent_v1", event::append as *const std::ffi::c_void)
}

/// Runs when the library is loaded.
extern "C" fn on_load() {
    protect_host((), start_once);
}

#[used]
// SAFETY: the loader calls the functions of this section once, with arguments that `on_load`
// ignores.
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
