//! libtompion.so: the agent inside every instrumented program.
//!
//! Programs hand over their event sites when they are loaded ([`abi`]). If the environment names a
//! session, the agent introduces its process there ([`joining`], [`launch`]) and gets memory files
//! with rings ([`session`]); it describes events in the shared catalog and enables their sites
//! ([`registry`]). From then on an event goes from its site straight into a ring ([`event`]), and a
//! background thread waits for what the session has to say ([`listener`]).
//!
//! The host comes first: nothing here aborts, prints, or keeps a program from ending, and nothing
//! on the event path makes a system call, allocates or takes a lock. Whatever goes wrong, the
//! program runs on without being recorded.

mod abi;
mod clone;
mod context;
mod event;
mod filters;
mod fork;
mod heap;
#[cfg(feature = "shared")]
mod identity;
mod joining;
mod launch;
mod listener;
mod lock;
#[cfg(feature = "shared")]
mod main_exit;
mod namespaces;
mod objects;
mod registry;
mod session;
mod trust;
mod writer;

#[global_allocator]
static HEAP: heap::Heap = heap::Heap::new();

/// Whether there is hardly any memory left: nothing that can be left undone should be begun.
fn is_short_of_memory() -> bool {
    HEAP.is_short()
}

/// Runs a function of the agent so that no panic reaches the host, and no change of its `errno`.
fn shielded<T>(otherwise: T, body: impl FnOnce() -> T + std::panic::UnwindSafe) -> T {
    tompion_os::keeping_errno(|| std::panic::catch_unwind(body).unwrap_or(otherwise))
}

/// Begins the agent's life, once. A shared library's begins before the constructors of the objects
/// that need it; linked statically, it may be one of their constructors that comes first.
fn begin() {
    static BEGUN: std::sync::Once = std::sync::Once::new();
    BEGUN.call_once(|| {
        std::panic::set_hook(Box::new(|_| {}));
        #[cfg(feature = "shared")]
        if abi::another_agent_is_meant() {
            return;
        }
        #[cfg(feature = "shared")]
        {
            fork::find_libcs_own();
            identity::find_libcs_own();
            main_exit::find_libcs_own();
        }
        joining::at_start();
    });
}

/// Runs when the library is loaded.
extern "C" fn on_load() {
    shielded((), begin);
}

#[used]
// SAFETY: the loader calls the functions of this section once, with arguments that `on_load`
// ignores.
#[unsafe(link_section = ".init_array")]
static ON_LOAD: extern "C" fn() = on_load;
