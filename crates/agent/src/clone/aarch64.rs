//! `vfork` on aarch64, in the steps of `clone/x86_64.rs`. Here the return address is in a register
//! as it is, and the kernel changes none but the one with its result.

use std::arch::global_asm;

global_asm!(
    r#"
    .text
    .balign 16
    .hidden tompion_vfork
    .globl tompion_vfork
    .type tompion_vfork, %function
tompion_vfork:
    sub sp, sp, #16
    mov x0, #-1                         // every signal
    str x0, [sp]
    mov x0, #2                          // SIG_SETMASK
    mov x1, sp
    add x2, sp, #8
    mov x3, #8
    mov x8, #135                        // __NR_rt_sigprocmask
    svc #0
    mov x9, x0                          // 0: signals wait,
    ldr x10, [sp, #8]                   // other than these before
    add sp, sp, #16
    mrs x12, tpidr_el0
    adrp x11, :gottprel:tompion_lent
    ldr x11, [x11, :gottprel_lo12:tompion_lent]
    add x11, x11, x12
1:  ldxr w13, [x11]
    add w13, w13, #1
    stxr w14, w13, [x11]
    cbnz w14, 1b
    adrp x13, :gottprel:tompion_thread_id
    ldr x13, [x13, :gottprel_lo12:tompion_thread_id]
    str wzr, [x12, x13]                 // noted again by the parent's next event
    mov x0, #0x4111                     // CLONE_VM | CLONE_VFORK | SIGCHLD
    mov x1, xzr                         // on this stack
    mov x2, xzr
    mov x3, xzr
    mov x4, xzr
    mov x8, #220                        // __NR_clone
    svc #0
    cbz x0, 3f                          // the child
2:  ldxr w13, [x11]
    sub w13, w13, #1
    stxr w14, w13, [x11]
    cbnz w14, 2b
3:  mov x12, x0
    cbnz x9, 4f
    sub sp, sp, #16
    str x10, [sp]
    mov x0, #2
    mov x1, sp
    mov x2, xzr
    mov x3, #8
    mov x8, #135
    svc #0
    add sp, sp, #16
4:  mov x0, x12
    cmn x0, #4095
    b.hs 5f
    ret
5:  stp x29, x30, [sp, #-32]!
    mov x29, sp
    neg w0, w0
    str w0, [sp, #16]
    bl __errno_location
    ldr w1, [sp, #16]
    str w1, [x0]
    ldp x29, x30, [sp], #32
    mov x0, #-1
    ret
    .size tompion_vfork, . - tompion_vfork
    "#
);
