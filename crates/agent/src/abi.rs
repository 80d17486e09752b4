//! Functions that instrumented programs and preloaded libraries call, as
//! `include/tompion/tompion.h` declares them.
//!
//! Sites go through one symbol, [`tompion_agent_v1`]; everything else goes through pointers that it
//! hands out.

use std::ffi::{CStr, c_char, c_void};

use crate::{
    background_thread, connect,
    context::{self, Registration},
    event, fork, heap,
    host::protect_host,
    objects::{LoadedObject, Object},
    registry,
    site::{ABI, Module},
    startup,
    state_dump::{self, Dump},
    writer::{self, Writer},
};

/// Verb: the module's objects are about to be unloaded.
const UNLOAD: u32 = 0;
/// Verb: the module was loaded.
const LOAD: u32 = 1;
/// Verb of state dumps: the function is not to be called any more.
const REMOVE: u32 = 0;
/// Verb of state dumps: the function is to be called when a recording begins.
const ADD: u32 = 1;
/// Verb: the program requests a snapshot of its flight recorders. The module doesn't matter.
const SNAPSHOT: u32 = 2;

/// Registers or unregisters a module's sites, or requests a snapshot. The latter is safe in signal
/// handlers.
///
/// Returns 0, or -1 for an unknown verb or version, and for a snapshot without a flight recorder.
///
/// # Safety
/// `module` and the sites it points to stay valid between the two calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tompion_agent_v1(module: *mut Module, verb: u32) -> i32 {
    if verb == SNAPSHOT {
        return event::request_snapshot();
    }
    protect_host(-1, || {
        if module.is_null() {
            return -1;
        }
        // SAFETY: not null, and valid as the caller promises.
        if unsafe { (*module).abi } < ABI {
            return -1;
        }
        if fork::is_untracked_child() {
            return 0;
        }
        match verb {
            LOAD => {
                startup::start_once();
                // SAFETY: as above; the pointers are set before any site of the module is enabled.
                unsafe { load(module) };
            }
            UNLOAD => {
                // First: a call that is going on records until it returns.
                state_dump::remove_module(module);
                registry::lock().unload(module);
            }
            _ => return -1,
        }
        0
    })
}

/// Hands out the functions of the event path, and registers the module's sites.
///
/// # Safety
/// The module was just loaded.
unsafe fn load(module: *mut Module) {
    // SAFETY: as the caller promises.
    for called in unsafe { register(module) } {
        // Not under the registry's lock: another thread may hold the loader's while it waits for
        // that one. Only a shared library has modules besides its own.
        #[cfg(feature = "shared")]
        tompion_os::never_unload(called.cast());
        #[cfg(not(feature = "shared"))]
        let _ = called;
    }
}

/// Does so, and returns the modules that must not be unloaded any more.
///
/// # Safety
/// The module was just loaded.
unsafe fn register(module: *mut Module) -> Vec<*mut Module> {
    // SAFETY: as the caller promises.
    let (has_sites, is_passive) = unsafe {
        (*module).append = Some(event::append);
        (*module).append_tails = Some(event::append_tails);
        (*module).append_begin = Some(event::append_begin);
        (*module).append_end = Some(event::append_end);
        ((*module).sites().next().is_some(), (*module).is_passive())
    };
    let mut registry = registry::lock();
    let Some(called) = registry.add_module(module) else { return Vec::new() };
    let accepts_attach = connect::accepts_attach(is_passive);
    if has_sites && (accepts_attach || !is_passive) {
        connect::join_open_recordings(&mut registry);
    }
    if has_sites && accepts_attach {
        if connect::listen_for_attach(&mut registry) {
            background_thread::ensure(&mut registry);
            background_thread::wake(&registry);
        }
    } else if is_passive {
        connect::wait_for_late_answers(&mut registry);
    }
    registry.enable_module(module);
    called
}

/// Registers a context, or replaces its function (null: none from now on). Returns 0, or -1 for an
/// invalid name or type, a known name with another type, or when there are too many.
///
/// # Safety
/// `name` is NUL-terminated text; `get` is null or a function of the type, and stays one until it
/// is replaced.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tompion_context_v1(name: *const c_char, kind: u32, get: *mut c_void) -> i32 {
    protect_host(-1, || {
        if name.is_null() {
            return -1;
        }
        let mut registry = registry::lock();
        // SAFETY: the caller promises NUL-terminated text.
        let Ok(name) = unsafe { CStr::from_ptr(name) }.to_str() else { return -1 };
        match context::register(name, kind, get) {
            Registration::Replaced => 0,
            Registration::Rejected => -1,
            Registration::Added => {
                registry.contexts_changed();
                0
            }
        }
    })
}

/// Adds a function that records the program's state ([`ADD`]), or removes it ([`REMOVE`]): see
/// [`state_dump`]. `module` is the one that the function is part of. Takes the agent's lock, and a
/// removal waits for a call that is going on.
///
/// Returns 0, or -1 for an unknown verb, no function, too many functions, or one to be removed that
/// is not known.
///
/// # Safety
/// `dump` may be called with `data`, from any thread, until it is removed or its module unloaded.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tompion_state_dump_v1(
    module: *const Module,
    verb: u32,
    dump: Option<state_dump::Function>,
    data: *mut c_void,
) -> i32 {
    protect_host(-1, || {
        let Some(function) = dump else { return -1 };
        if fork::is_untracked_child() || writer::current() == Writer::SharedVmChild || heap::is_short() {
            return -1;
        }
        let dump = Dump { function: function as usize, data };
        let is_done = match verb {
            REMOVE => state_dump::remove(dump),
            ADD => state_dump::add(dump, module),
            _ => false,
        };
        if is_done { 0 } else { -1 }
    })
}

/// Notes where an object is loaded whose addresses events will carry. Returns 0, or -1 if it can't
/// be noted. A known object is not noted again. Takes the agent's lock.
///
/// # Safety
/// `object` is null or valid, and so are its pointers.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tompion_object_v1(object: *const LoadedObject) -> i32 {
    protect_host(-1, || {
        // SAFETY: as the caller promises.
        let Some(object) = (unsafe { object.as_ref() }) else { return -1 };
        if fork::is_untracked_child() || writer::current() == Writer::SharedVmChild {
            return -1;
        }
        let mut registry = registry::lock();
        if heap::is_short() {
            return -1;
        }
        // SAFETY: as the caller promises.
        let object = unsafe { Object::new(object) };
        registry.note_object(object);
        0
    })
}
