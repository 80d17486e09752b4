//! The restartable sections: the one place where an event reaches a ring.
//!
//! A section is a run of instructions that the kernel promises to abandon when the thread is preempted,
//! migrated or gets a signal inside it (`rseq(2)`, `Documentation/userspace-api/rseq.rst`). So, between
//! `start` and `commit`, the thread owns its CPU's ring alone, without a lock and without an atomic
//! instruction. The last instruction before `commit` is the only store that others act upon.
//!
//! | function | its committing instruction |
//! |---|---|
//! | `tompion_section_append` | stores `write` and `events` together: the record is there |
//! | `tompion_section_put` | stores `write`: a sub-buffer is padded, or a new one opened |
//! | `tompion_section_count` | adds one to a loss counter |
//!
//! After an abort the registers are as they were, so whatever a restart needs is never changed inside:
//! r8 the recording, r9 the request, r10 the rseq area. The stack pointer isn't touched at all.
//! On x86-64 stores are seen in program order, so a reader that sees `write` sees the record (pairs with
//! the acquire loads in `reader`).

use core::{arch::global_asm, mem::offset_of};

use tompion_layout::ring;

use crate::producer::{Append, Put, Recording};

/// Flag in [`Recording`]: timestamps come with the request, not from the TSC.
pub(crate) const FLAG_GIVEN_TIME: u32 = 2;

/// The record was appended.
pub(crate) const WRITTEN: u32 = 0;
/// The record doesn't fit into what is left of the sub-buffer (or its ring has none open yet).
pub(crate) const NEEDS_SUBBUFFER: u32 = 1;
/// The section was restarted more often than allowed.
pub(crate) const RESTARTED_TOO_OFTEN: u32 = 2;
/// The thread has no CPU number that has a ring.
pub(crate) const NO_RING: u32 = 3;
/// The ring is no longer as the caller saw it.
pub(crate) const CHANGED: u32 = 4;

unsafe extern "C" {
    pub(crate) fn tompion_section_append(recording: *const Recording, request: *mut Append) -> u32;
    pub(crate) fn tompion_section_put(recording: *const Recording, request: *mut Put) -> u32;
    pub(crate) fn tompion_section_count(recording: *const Recording, offset: u64, retries: u64) -> u32;
}

// The section's descriptor, `struct rseq_cs`: version, flags, start, length, abort address. The table
// is writable only because its addresses are relocated when the library is loaded.
global_asm!(
    r#"
    .macro TOMPION_DESCRIPTOR name
    .pushsection __rseq_cs, "aw"
    .balign 32
    \name\()_descriptor:
    .long 0, 0
    .quad \name\()_start, \name\()_commit - \name\()_start, \name\()_abort
    .popsection
    .endm

    // Arms the section, and begins it. Clobbers rax.
    .macro TOMPION_BEGIN name
    \name\()_restart:
    lea rax, [rip + \name\()_descriptor]
    mov fs:[r10 + 8], rax
    \name\()_start:
    .endm

    // The address of the current CPU's ring in the selected buffer -> rcx, or leave. Clobbers rax.
    .macro TOMPION_FIND_RING name
    mov ecx, fs:[r10 + 4]
    cmp ecx, [r8 + {cpus}]
    jae \name\()_no_ring
    mov rax, [r8 + {selector}]
    mov eax, [rax]
    and eax, [r8 + {selector_mask}]
    imul rcx, [r8 + {cpu_stride}]
    add rcx, [r8 + rax * 8 + {buffers}]
    .endm

    // Where the kernel goes on after an abort: counts down the retries (a memory operand) and restarts.
    // The signature right before the address proves to the kernel that it may jump there.
    .macro TOMPION_ABORT name, retries
    .pushsection .text.unlikely, "ax"
    .byte 0x0f, 0xb9, 0x3d
    .long 0x53053053
    \name\()_abort:
    dec qword ptr \retries
    jnz \name\()_restart
    mov eax, {restarted}
    ret
    .popsection
    .endm

    .text
    .balign 64
    .globl tompion_section_append
    .hidden tompion_section_append
    .type tompion_section_append, @function
tompion_section_append:
    TOMPION_DESCRIPTOR tompion_append
    mov r8, rdi
    mov r9, rsi
    mov r10, [r8 + {rseq}]
    TOMPION_BEGIN tompion_append
    TOMPION_FIND_RING tompion_append
    mov rax, [rcx + {write}]
    mov r11, [r9 + {len}]
    add r11, rax                        // r11: the new write position
    lea rdx, [rax - 1]
    lea rdi, [r11 - 1]
    xor rdx, rdi
    test rdx, [r8 + {subbuf_mask}]      // before the first byte and at the last one: same sub-buffer?
    jnz tompion_append_needs_subbuffer
    and rax, [r8 + {ring_mask}]
    lea rdi, [rcx + rax + {data}]       // rdi: the record
    mov rsi, [r9 + {image}]
    mov rdx, [r9 + {image_len}]
    add rdx, 7
    and rdx, -8                         // the image is copied in whole words
    cmp rdx, 64
    ja 4f
2:  sub rdx, 8
    js 5f
    mov rax, [rsi + rdx]
    mov [rdi + rdx + 16], rax
    jmp 2b
4:  test edx, 8
    jz 3f
    sub rdx, 8
    mov rax, [rsi + rdx]
    mov [rdi + rdx + 16], rax
3:  sub rdx, 16
    js 5f
    movups xmm0, [rsi + rdx]
    movups [rdi + rdx + 16], xmm0
    jmp 3b
5:  mov rdx, [r9 + {tails}]
    cmp rdx, [r9 + {tails_end}]
    je 6f
    // Tails: large or many fields, straight from the program's memory.
    mov [r9 + {saved_ring}], rcx
    mov [r9 + {saved_record}], rdi
    add rdi, [r9 + {image_len}]
    add rdi, 16
9:  mov rsi, [rdx]
    mov rcx, [rdx + 8]
    rep movsb
    add rdx, 16
    cmp rdx, [r9 + {tails_end}]
    jne 9b
    mov rcx, [r9 + {saved_ring}]
    mov rdi, [r9 + {saved_record}]
6:  mov rax, [r9 + {head}]
    mov [rdi], rax
    mov rsi, [rcx + {events}]
    inc rsi
    movq xmm0, r11
    movq xmm1, rsi
    punpcklqdq xmm0, xmm1
    mov rax, [r9 + {time}]
    test dword ptr [r8 + {flags}], {given_time}
    jnz 8f
    rdtsc
    shl rdx, 32
    or rax, rdx
8:  mov [rdi + 8], rax
    movaps [rcx + {write}], xmm0        // the record is there
tompion_append_commit:
    xor eax, eax
    ret
tompion_append_needs_subbuffer:
    mov eax, {needs_subbuffer}
    ret
tompion_append_no_ring:
    mov eax, {no_ring}
    ret
    TOMPION_ABORT tompion_append, [r9+{retries}]
    .size tompion_section_append, . - tompion_section_append

    .balign 16
    .globl tompion_section_put
    .hidden tompion_section_put
    .type tompion_section_put, @function
tompion_section_put:
    TOMPION_DESCRIPTOR tompion_put
    mov r8, rdi
    mov r9, rsi
    mov r10, [r8 + {rseq}]
    TOMPION_BEGIN tompion_put
    mov ecx, fs:[r10 + 4]
    cmp ecx, [r9 + {put_cpu}]
    jne tompion_put_changed
    mov rcx, [r9 + {put_ring}]
    mov rax, [r9 + {put_expected}]
    cmp rax, [rcx + {write}]
    jne tompion_put_changed
    and rax, [r8 + {ring_mask}]
    lea rdi, [rcx + rax + {data}]
    mov rax, [r9 + {put_head}]
    mov [rdi], rax
    test rax, rax
    jz 2f                               // padding has nothing but its first word, which is zero
    mov rax, [r9 + {put_position}]
    mov [rdi + 16], rax
    mov rax, [r9 + {put_lost}]
    mov [rdi + 24], rax
    mov rax, [rcx + {events}]
    mov [rdi + 32], rax
    mov rax, [r9 + {put_time}]
    test dword ptr [r8 + {flags}], {given_time}
    jnz 1f
    rdtsc
    shl rdx, 32
    or rax, rdx
1:  mov [rdi + 8], rax
2:  mov rax, [r9 + {put_new}]
    mov [rcx + {write}], rax
tompion_put_commit:
    xor eax, eax
    ret
tompion_put_changed:
    mov eax, {changed}
    ret
    TOMPION_ABORT tompion_put, [r9+{put_retries}]
    .size tompion_section_put, . - tompion_section_put

    .balign 16
    .globl tompion_section_count
    .hidden tompion_section_count
    .type tompion_section_count, @function
tompion_section_count:
    TOMPION_DESCRIPTOR tompion_count
    mov r8, rdi
    mov [rsp - 8], rdx                  // the red zone holds the retries
    mov r10, [r8 + {rseq}]
    TOMPION_BEGIN tompion_count
    TOMPION_FIND_RING tompion_count
    inc qword ptr [rcx + rsi]
tompion_count_commit:
    xor eax, eax
    ret
tompion_count_no_ring:
    mov eax, {no_ring}
    ret
    TOMPION_ABORT tompion_count, [rsp-8]
    .size tompion_section_count, . - tompion_section_count
    "#,
    cpus = const offset_of!(Recording, cpus),
    flags = const offset_of!(Recording, flags),
    selector = const offset_of!(Recording, selector),
    selector_mask = const offset_of!(Recording, selector_mask),
    buffers = const offset_of!(Recording, buffers),
    cpu_stride = const offset_of!(Recording, cpu_stride),
    subbuf_mask = const offset_of!(Recording, subbuf_mask),
    ring_mask = const offset_of!(Recording, ring_mask),
    rseq = const offset_of!(Recording, rseq_offset),
    write = const ring::WRITE,
    events = const ring::EVENTS,
    data = const ring::DATA,
    head = const offset_of!(Append, head),
    len = const offset_of!(Append, len),
    image = const offset_of!(Append, image),
    image_len = const offset_of!(Append, image_len),
    tails = const offset_of!(Append, tails),
    tails_end = const offset_of!(Append, tails_end),
    time = const offset_of!(Append, time),
    retries = const offset_of!(Append, retries),
    saved_ring = const offset_of!(Append, saved_ring),
    saved_record = const offset_of!(Append, saved_record),
    put_ring = const offset_of!(Put, ring),
    put_cpu = const offset_of!(Put, cpu),
    put_expected = const offset_of!(Put, expected),
    put_new = const offset_of!(Put, new),
    put_head = const offset_of!(Put, head),
    put_position = const offset_of!(Put, position),
    put_lost = const offset_of!(Put, lost),
    put_time = const offset_of!(Put, time),
    put_retries = const offset_of!(Put, retries),
    given_time = const FLAG_GIVEN_TIME,
    needs_subbuffer = const NEEDS_SUBBUFFER,
    restarted = const RESTARTED_TOO_OFTEN,
    no_ring = const NO_RING,
    changed = const CHANGED,
);
