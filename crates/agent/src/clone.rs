//! Children that run on their parent's memory: `vfork`, and `clone` with `CLONE_VM`.
//!
//! The kernel doesn't restart their sections, so none of their events may go into a ring; [`crate::writer`]
//! knows them by what is noted here before they begin. Their events are counted as lost. The library puts
//! itself before libc's functions; who makes such a child by a bare system call must not record in it.
//!
//! `posix_spawn`, `system` and `popen` make such children too, inside libc and with all signals blocked: no
//! code of the program runs in them.

use std::{
    arch::global_asm,
    ffi::{c_int, c_void},
};

use tompion_os::Undisturbed;

use crate::{
    fork::{self, Copied},
    writer::{self, Lent},
};

// `vfork` returns twice on one stack, so its return address must be kept in a register while the child
// runs (the child's own calls overwrite the place where it stood). The words are the thread's: the parent's
// thread sleeps until the child has let go of its memory, other threads trace on.
//
// Signals that come meanwhile would be handled as soon as the parent wakes, before it has taken its storage
// back. So they wait a moment longer; the child gets its signals at once.
global_asm!(
    r#"
    .text
    .balign 16
    .hidden tompion_vfork
    .globl tompion_vfork
    .type tompion_vfork, @function
tompion_vfork:
    mov qword ptr [rsp - 8], -1         // every signal
    mov eax, 14                         // __NR_rt_sigprocmask
    mov edi, 2                          // SIG_SETMASK
    lea rsi, [rsp - 8]
    lea rdx, [rsp - 16]
    mov r10d, 8
    syscall
    mov rsi, rax                        // 0: signals wait,
    mov r8, [rsp - 16]                  // other than these before
    mov r9, [rip + tompion_lent@GOTTPOFF]
    lock inc dword ptr fs:[r9]
    mov rdx, [rip + tompion_thread_id@GOTTPOFF]
    mov dword ptr fs:[rdx], 0           // noted anew by the parent's next event
    pop rdi
    mov eax, 58                         // __NR_vfork
    syscall
    push rdi
    test rax, rax
    jz 1f                               // the child
    lock dec dword ptr fs:[r9]
1:  mov r9, rax
    test rsi, rsi
    jnz 2f
    mov [rsp - 8], r8
    mov eax, 14
    mov edi, 2
    lea rsi, [rsp - 8]
    xor edx, edx
    mov r10d, 8
    syscall
2:  mov rax, r9
    cmp rax, -4095
    jae 3f
    ret
3:  neg eax
    push rax
    call __errno_location@PLT
    pop rcx
    mov dword ptr [rax], ecx
    mov rax, -1
    ret
    .size tompion_vfork, . - tompion_vfork
    "#
);

/// libc's `vfork`, with the calling thread marked while a child uses it.
///
/// # Safety
/// As `vfork(2)`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn vfork() -> i32 {
    // SAFETY: a jump that leaves the stack as the caller made it: this function has no frame of its own,
    // having neither locals nor calls. (Not so with forced frame pointers: such a build
    // fails its tests of vfork.)
    unsafe { core::arch::asm!("jmp tompion_vfork", options(noreturn, nostack)) }
}

/// What a child runs.
type Function = extern "C" fn(*mut c_void) -> c_int;

unsafe extern "C" {
    /// libc's own name of its `clone`.
    fn __clone(
        function: Option<Function>,
        stack: *mut c_void,
        flags: c_int,
        argument: *mut c_void,
        parent_tid: *mut c_int,
        tls: *mut c_void,
        child_tid: *mut c_int,
    ) -> c_int;
}

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
    // SAFETY: what the caller promised to `clone`.
    let go =
        |function, argument| unsafe { __clone(function, stack, flags, argument, parent_tid, tls, child_tid) };
    let Some(body) = function.filter(|_| !stack.is_null()) else {
        return go(function, argument);
    };
    let has = |flag| flags & flag != 0;
    match (has(CLONE_VM), has(CLONE_SETTLS), has(CLONE_VFORK)) {
        // The lock can't be kept for as long as such a child likes, and a child that has its parent's
        // descriptors must not close any: they are strays.
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
            let undisturbed = Undisturbed::begin();
            let lent = Lent::begin();
            let start = GuestStart { start: Start { body, argument }, undisturbed: &raw const undisturbed };
            let place = (&raw const start).cast_mut().cast();
            let result = go(Some(run_guest), place);
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

/// What the child of a `clone` that copies memory finds in its copy.
struct Start {
    body: Function,
    argument: *mut c_void,
}

/// What the child of a `clone` that shares memory finds in its parent's frame.
struct GuestStart {
    start: Start,
    undisturbed: *const Undisturbed,
}

extern "C" fn run_guest(start: *mut c_void) -> c_int {
    // SAFETY: the parent's local, and the parent waits for this child.
    let GuestStart { start: Start { body, argument }, undisturbed } =
        unsafe { start.cast::<GuestStart>().read() };
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
