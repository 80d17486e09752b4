//! Children of every kind.
//!
//! After `fork` the child has wiped recordings, so that its events go nowhere until it has introduced
//! itself to the session as a process of its own. A `vfork` child runs on its parent's memory, but
//! without its restartable sequences: it must never enter a section, so the library puts itself before
//! libc's `vfork` and marks the thread while a child uses it.

use std::arch::global_asm;

use crate::{joining, registry, shielded};

/// Follows the forks of this process.
pub fn follow() {
    tompion_os::on_fork(before, in_parent, in_child);
}

/// Nobody changes the agent's state, or uses its heap, while the process is copied.
extern "C" fn before() {
    std::mem::forget(registry::lock());
}

extern "C" fn in_parent() {
    // SAFETY: `before` took the lock in this thread and forgot the guard.
    unsafe { registry::force_unlock() };
}

extern "C" fn in_child() {
    // SAFETY: as in `in_parent`; the child's only thread is the one that forked.
    unsafe { registry::force_unlock() };
    // The child's thread has another id.
    note_thread_id(0);
    shielded((), joining::in_child);
}

/// The thread's id as it was noted by [`note_thread_id`]; 0 where it isn't, as in a vfork child.
///
/// One word answers two questions of the event path: who is writing, and may it write.
#[inline(always)]
pub fn noted_thread_id() -> u32 {
    let tid: u32;
    // SAFETY: reads a thread-local word of this library, whose place the linker fills in.
    unsafe {
        core::arch::asm!(
            "mov {place}, qword ptr [rip + tompion_thread_id@GOTTPOFF]",
            "mov {tid:e}, dword ptr fs:[{place}]",
            place = out(reg) _, tid = out(reg) tid,
            options(nostack, preserves_flags, readonly)
        );
    }
    tid
}

/// Notes the calling thread's id, unless it is a vfork child, which has borrowed its parent's words.
pub fn note_thread_id(tid: u32) {
    if !in_vfork_child() {
        // SAFETY: writes a thread-local word of this library.
        unsafe {
            core::arch::asm!(
                "mov {place}, qword ptr [rip + tompion_thread_id@GOTTPOFF]",
                "mov dword ptr fs:[{place}], {tid:e}",
                place = out(reg) _, tid = in(reg) tid,
                options(nostack, preserves_flags)
            );
        }
    }
}

/// Whether the caller is a vfork child.
pub fn in_vfork_child() -> bool {
    let depth: u32;
    // SAFETY: reads a thread-local word of this library, whose place the linker fills in.
    unsafe {
        core::arch::asm!(
            "mov {place}, qword ptr [rip + tompion_vfork_depth@GOTTPOFF]",
            "mov {depth:e}, dword ptr fs:[{place}]",
            place = out(reg) _, depth = out(reg) depth,
            options(nostack, preserves_flags, readonly)
        );
    }
    depth != 0
}

// `vfork` returns twice on one stack, so its return address must be kept in a register while the child
// runs (the child's own calls overwrite the place where it stood). The word is per thread: the parent's
// thread sleeps until the child has let go of its memory, other threads trace on.
global_asm!(
    r#"
    .section .tbss, "awT", @nobits
    .balign 4
    .hidden tompion_vfork_depth
    .globl tompion_vfork_depth
    .type tompion_vfork_depth, @object
    .size tompion_vfork_depth, 4
tompion_vfork_depth:
    .zero 4
    .hidden tompion_thread_id
    .globl tompion_thread_id
    .type tompion_thread_id, @object
    .size tompion_thread_id, 4
tompion_thread_id:
    .zero 4
    .text
    .balign 16
    .hidden tompion_vfork
    .globl tompion_vfork
    .type tompion_vfork, @function
tompion_vfork:
    mov rdx, qword ptr [rip + tompion_vfork_depth@GOTTPOFF]
    inc dword ptr fs:[rdx]
    mov rcx, qword ptr [rip + tompion_thread_id@GOTTPOFF]
    mov dword ptr fs:[rcx], 0           // noted anew by the parent's next event
    pop rdi
    mov eax, 58                         // __NR_vfork
    syscall
    push rdi
    test rax, rax
    jz 1f                               // the child
    dec dword ptr fs:[rdx]
    cmp rax, -4095
    jae 2f
1:  ret
2:  neg eax
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
