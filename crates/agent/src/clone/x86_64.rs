//! `vfork` on x86-64.
//!
//! `vfork` returns twice on one stack, so its return address must be kept in a register while the
//! child runs (the child's own calls overwrite the place where it stood). The words are the
//! thread's: the parent's thread sleeps until the child has let go of its memory, other threads
//! trace on.
//!
//! Signals that come meanwhile would be handled as soon as the parent wakes, before it has taken
//! its storage back. So they wait a moment longer; the child gets its signals at once.

use std::arch::global_asm;

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
    mov dword ptr fs:[rdx], 0           // noted again by the parent's next event
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
