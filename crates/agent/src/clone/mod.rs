//! Children that run on their parent's memory: `vfork`, and `clone` with `CLONE_VM`.
//!
//! The kernel doesn't restart their sections, so none of their events may go into a ring;
//! [`crate::writer`] recognizes them by what is noted here before they begin. Their events are
//! counted as lost. The library puts itself before libc's functions; a child made by a bare system
//! call must not record.
//!
//! `posix_spawn`, `system` and `popen` make such children too, inside libc and with all signals
//! blocked: no code of the program runs in them.

use std::ffi::{c_int, c_void};

use tompion_os::InterruptionBlock;

use crate::{
    fork::{self, Copied},
    writer::{self, StorageLoan},
};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

/// libc's `vfork`, with the calling thread marked while a child uses it.
///
/// # Safety
/// As `vfork(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> i32 {
    // SAFETY: a jump that leaves the stack as the caller made it: this function has no frame of its
    // own, having neither locals nor calls. (Not so with forced frame pointers: such a build fails
    // its tests of vfork.)
    #[cfg(target_arch = "x86_64")]
    unsafe {
        core::arch::asm!("jmp tompion_vfork", options(noreturn, nostack))
    }
    // SAFETY: as above.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        core::arch::asm!("b tompion_vfork", options(noreturn, nostack))
    }
}

/// Function that a child runs.
type Function = extern "C" fn(*mut c_void) -> c_int;

/// Type of libc's `clone`.
type Clone = unsafe extern "C" fn(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_int,
    tls: *mut c_void,
    child_tid: *mut c_int,
) -> c_int;

const CLONE_VM: c_int = 0x100;
const CLONE_FILES: c_int = 0x400;
const CLONE_VFORK: c_int = 0x4000;
const CLONE_SETTLS: c_int = 0x80000;

/// libc's `clone`. In C the last three are optional: whatever stands there is passed on.
///
/// # Safety
/// As `clone(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn clone(
    function: Option<Function>,
    stack: *mut c_void,
    flags: c_int,
    argument: *mut c_void,
    parent_tid: *mut c_int,
    tls: *mut c_void,
    child_tid: *mut c_int,
) -> c_int {
    let clone = tompion_os::libc_clone();
    // SAFETY: null, or a function of this type.
    let Some(clone) = (unsafe { std::mem::transmute::<*const c_void, Option<Clone>>(clone) }) else {
        return tompion_os::fail_with_enosys();
    };
    // SAFETY: what the caller promised to `clone`.
    let go =
        |function, argument| unsafe { clone(function, stack, flags, argument, parent_tid, tls, child_tid) };
    let Some(body) = function.filter(|_| !stack.is_null()) else {
        return go(function, argument);
    };
    let has = |flag| flags & flag != 0;
    match (has(CLONE_VM), has(CLONE_SETTLS), has(CLONE_VFORK)) {
        // The lock can't be held for as long as such a child likes, and a child that shares its
        // parent's descriptors must not close any: these children are not tracked.
        (false, ..) if has(CLONE_VFORK) || has(CLONE_FILES) => go(function, argument),
        (false, ..) => {
            let start = Start { body, argument };
            let place = (&raw const start).cast_mut().cast();
            fork::around_copying(|| go(Some(run_copy), place))
        }
        // Its storage tells.
        (true, true, _) => go(function, argument),
        (true, false, true) => {
            // Signals wait, as in `vfork`. The child has the use of this frame until it is gone.
            let undisturbed = InterruptionBlock::begin();
            let lent = StorageLoan::begin();
            let start =
                SharedVmStart { start: Start { body, argument }, undisturbed: &raw const undisturbed };
            let place = (&raw const start).cast_mut().cast();
            let result = go(Some(run_shared_vm_child), place);
            drop(lent);
            tompion_os::keeping_errno(|| drop(undisturbed));
            result
        }
        (true, false, false) => {
            writer::share_storage();
            go(function, argument)
        }
    }
}

/// Argument of the child of a `clone` that copies memory, in its copy.
struct Start {
    body: Function,
    argument: *mut c_void,
}

/// Argument of the child of a `clone` that shares memory, in its parent's frame.
struct SharedVmStart {
    start: Start,
    undisturbed: *const InterruptionBlock,
}

extern "C" fn run_shared_vm_child(start: *mut c_void) -> c_int {
    // SAFETY: the parent's local, and the parent waits for this child.
    let SharedVmStart { start: Start { body, argument }, undisturbed } =
        unsafe { start.cast::<SharedVmStart>().read() };
    // SAFETY: as above.
    unsafe { (*undisturbed).let_signals_come() };
    body(argument)
}

extern "C" fn run_copy(start: *mut c_void) -> c_int {
    // SAFETY: the parent's local, in the child's copy of its stack.
    let Start { body, argument } = unsafe { start.cast::<Start>().read() };
    fork::in_copy(Copied::Clone);
    body(argument)
}
