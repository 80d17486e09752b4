//! Restartable sections for x86-64.
//!
//! The word below the stack pointer, which the ABI keeps from signal handlers (the red zone),
//! counts restarts down. Stores are seen in program order, and loads are done in it, so a reader
//! that sees `write` sees the record (pairs with the acquire loads in `reader`), and one that sees
//! a byte of a record sees the position where it begins.

use core::{arch::global_asm, mem::offset_of, sync::atomic::Ordering};

use tompion_layout::{record, ring};

use super::{CHANGED, FLAG_GIVEN_TIME, NEEDS_SUBBUFFER, NO_RING, RESTARTED_TOO_OFTEN, tompion_rseq_offset};
use crate::counts::{CountArea, Exchange, tompion_increment_otherwise};
use crate::producer::{Extras, MAX_RESTARTS, Put, Recording, tompion_append_otherwise};

/// Distance ahead of a record at which lines are fetched, in bytes: some thirty events of two
/// fields, which take longer than a line takes from the other end of the machine.
const AHEAD: usize = 1024;

/// The CPU number that the kernel keeps in the thread's rseq area; large where there is none.
pub(crate) fn current_cpu() -> u32 {
    let cpu: u32;
    // SAFETY: the area is inside the thread's own static storage; `cpu_id` is its second word.
    unsafe {
        core::arch::asm!("mov {cpu:e}, fs:[{area} + 4]", cpu = out(reg) cpu,
            area = in(reg) tompion_rseq_offset.load(Ordering::Relaxed),
            options(nostack, preserves_flags, readonly));
    }
    cpu
}

// The section's descriptor, `struct rseq_cs`: version, flags, start, length, abort address. The
// table is writable only because its addresses are relocated when the library is loaded.
global_asm!(
    r#"
    .pushsection .bss.tompion_rseq_offset, "aw", @nobits
    .balign 8
    .globl tompion_rseq_offset
    .hidden tompion_rseq_offset
    .type tompion_rseq_offset, @object
    .size tompion_rseq_offset, 8
tompion_rseq_offset:
    .zero 8
    .popsection

    .macro TOMPION_DESCRIPTOR name
    .pushsection __rseq_cs, "aw"
    .balign 32
    \name\()_descriptor:
    .long 0, 0
    .quad \name\()_start, \name\()_commit - \name\()_start, \name\()_abort
    .popsection
    .endm

    // Arms the section, and begins it. The area's offset stays in r9. Clobbers rax.
    .macro TOMPION_BEGIN name
    mov qword ptr [rsp - 8], {restarts}
    \name\()_restart:
    lea rax, [rip + \name\()_descriptor]
    mov r9, [rip + tompion_rseq_offset]
    mov fs:[r9 + 8], rax
    \name\()_start:
    .endm

    // The address of the current CPU's ring in the selected buffer -> r10, or leave. Clobbers rax.
    .macro TOMPION_FIND_RING name
    mov r10d, fs:[r9 + 4]
    cmp r10d, [rdi + {cpus}]
    jae \name\()_no_ring
    mov rax, [rdi + {selector}]
    mov eax, [rax]
    and eax, [rdi + {selector_mask}]
    imul r10, [rdi + {cpu_stride}]
    add r10, [rdi + rax * 8 + {buffers}]
    .endm

    // Where the kernel goes on after an abort: counts down and restarts. The signature right before
    // the address proves to the kernel that it may jump there.
    .macro TOMPION_ABORT name
    .pushsection .text.unlikely, "ax"
    .byte 0x0f, 0xb9, 0x3d
    .long 0x53053053
    \name\()_abort:
    dec qword ptr [rsp - 8]
    jnz \name\()_restart
    jmp \name\()_too_often
    .popsection
    .endm

    // Where the record stands -> r9, and what the last instruction stores -> xmm0, or leave. The
    // record has r8 bytes behind its header. Clobbers rax, rdx and xmm1. The processor fetches
    // lines ahead by itself, but not across pages, and the reader's processor has them all: so the
    // line in which a record will soon begin is asked for, to be written to. It may lie behind the
    // ring or not be there at all, which a prefetch forgives; without the instruction (CPUID
    // PRFCHW) it does nothing.
    .macro TOMPION_RESERVE name
    mov r9, [r10 + {write}]
    lea rdx, [r9 + r8 + {header} - 1]   // its last byte
    movq xmm0, rdx
    lea rax, [r9 - 1]
    xor rax, rdx
    test rax, [rdi + {subbuf_mask}]     // before the first byte and at the last one: same sub-buffer?
    jnz \name\()_needs_subbuffer
    movhps xmm0, [r10 + {events}]
    pcmpeqd xmm1, xmm1
    psubq xmm0, xmm1                    // one more of both: the new write position, the number of events
    and r9, [rdi + {ring_mask}]
    lea r9, [r10 + r9 + {data}]
    prefetchw [r9 + {ahead}]
    .endm

    // Copies an image to behind the header of the record at r9, and the head: two words at a time,
    // from its end, and then the one that may be left. Clobbers rax and rdx.
    .macro TOMPION_COPY_IMAGE
    mov [r9], rcx
    mov rdx, r8
    sub rdx, 16
    jb 8f
9:  mov rax, [rsi + rdx]
    mov [r9 + rdx + {header}], rax
    mov rax, [rsi + rdx + 8]
    mov [r9 + rdx + {header} + 8], rax
    sub rdx, 16
    jae 9b
8:  test dl, 8
    jz 9f
    mov rax, [rsi]
    mov [r9 + {header}], rax
9:
    .endm

    .macro TOMPION_READ_CLOCK
    rdtsc
    shl rdx, 32
    or rax, rdx
    .endm

    // Kept throughout the append: rdi the recording, rsi the image, r8 the length without header,
    // rcx the head. r10 is the ring, r9 the record; rax and rdx are free.
    .text
    .balign 64
    .globl tompion_append_image
    .hidden tompion_append_image
    .type tompion_append_image, @function
tompion_append_image:
    TOMPION_DESCRIPTOR tompion_image
    TOMPION_BEGIN tompion_image
    TOMPION_FIND_RING tompion_image
    TOMPION_RESERVE tompion_image
    TOMPION_COPY_IMAGE
    TOMPION_READ_CLOCK
    mov [r9 + 8], rax
    movaps [r10 + {write}], xmm0        // the record is there
tompion_image_commit:
    xor eax, eax
    ret
tompion_image_needs_subbuffer:
    mov r9d, {needs_subbuffer}
    jmp 2f
tompion_image_no_ring:
    mov r9d, {no_ring}
    jmp 2f
tompion_image_too_often:
    mov r9d, {restarted}
2:  xor edx, edx
    jmp {otherwise}                     // with all operands in their places
    TOMPION_ABORT tompion_image
    .size tompion_append_image, . - tompion_append_image

    // The same with extras in r11, whose lowest bit is one where the caller wants to know the
    // outcome himself.
    .balign 16
    .globl tompion_append_again
    .hidden tompion_append_again
    .type tompion_append_again, @function
tompion_append_again:
    lea r11, [rdx + 1]
    jmp 1f
    .globl tompion_append_parts
    .hidden tompion_append_parts
    .type tompion_append_parts, @function
tompion_append_parts:
    mov r11, rdx
1:  TOMPION_DESCRIPTOR tompion_parts
    TOMPION_BEGIN tompion_parts
    TOMPION_FIND_RING tompion_parts
    TOMPION_RESERVE tompion_parts
    mov rdx, r11
    and rdx, -2
    jz 5f                               // no extras, but a caller that wants to know
    // Parts straight from the program's memory, and perhaps a timestamp of the caller's.
    mov [r9], rcx
    mov rax, [rdx + {parts}]
    lea rdi, [r9 + {header}]
1:  cmp rax, [rdx + {parts_end}]
    je 4f
    mov rsi, [rax]
    mov rcx, [rax + 8]
    rep movsb
    add rax, 16
    jmp 1b
4:  mov rdi, [rdx + {saved_recording}]
    test dword ptr [rdi + {flags}], {given_time}
    jz 6f
    mov rax, [rdx + {time}]
    jmp 7f
5:  TOMPION_COPY_IMAGE
6:  TOMPION_READ_CLOCK
7:  mov [r9 + 8], rax
    movaps [r10 + {write}], xmm0        // the record is there
tompion_parts_commit:
    xor eax, eax
    ret
tompion_parts_needs_subbuffer:
    mov r9d, {needs_subbuffer}
    jmp 2f
tompion_parts_no_ring:
    mov r9d, {no_ring}
    jmp 2f
tompion_parts_too_often:
    mov r9d, {restarted}
2:  test r11b, 1
    jnz 1f
    mov rdx, r11
    jmp {otherwise}
1:  mov eax, r9d
    ret
    .pushsection .text.unlikely, "ax"
    .byte 0x0f, 0xb9, 0x3d
    .long 0x53053053
tompion_parts_abort:
    mov rdx, r11
    and rdx, -2
    jz 1f
    mov rdi, [rdx + {saved_recording}]  // copying parts uses these
    mov rsi, [rdx + {saved_image}]
    mov rcx, [rdx + {saved_head}]
1:  dec qword ptr [rsp - 8]
    jnz tompion_parts_restart
    jmp tompion_parts_too_often
    .popsection
    .size tompion_append_parts, . - tompion_append_parts

    .balign 16
    .globl tompion_section_put
    .hidden tompion_section_put
    .type tompion_section_put, @function
tompion_section_put:
    TOMPION_DESCRIPTOR tompion_put
    TOMPION_BEGIN tompion_put
    mov eax, fs:[r9 + 4]
    cmp eax, [rsi + {put_cpu}]
    jne tompion_put_changed
    mov r10, [rsi + {put_ring}]
    mov rax, [rsi + {put_expected}]
    cmp rax, [r10 + {write}]
    jne tompion_put_changed
    and rax, [rdi + {ring_mask}]
    lea r9, [r10 + rax + {data}]
    mov rax, [rsi + {put_head}]
    mov [r9], rax
    test rax, rax
    jz 2f                               // padding has nothing but its first word, which is zero
    mov rax, [rsi + {put_position}]
    mov [r9 + 16], rax
    mov rax, [rsi + {put_lost}]
    mov [r9 + 24], rax
    mov rax, [r10 + {events}]
    mov [r9 + 32], rax
    mov rax, [rsi + {put_time}]
    test dword ptr [rdi + {flags}], {given_time}
    jnz 1f
    TOMPION_READ_CLOCK
1:  mov [r9 + 8], rax
2:  mov rax, [rsi + {put_new}]
    mov [r10 + {write}], rax
tompion_put_commit:
    xor eax, eax
    ret
tompion_put_changed:
    mov eax, {changed}
    ret
tompion_put_too_often:
    mov eax, {restarted}
    ret
    TOMPION_ABORT tompion_put
    .size tompion_section_put, . - tompion_section_put

    .balign 16
    .globl tompion_section_count
    .hidden tompion_section_count
    .type tompion_section_count, @function
tompion_section_count:
    TOMPION_DESCRIPTOR tompion_count
    TOMPION_BEGIN tompion_count
    TOMPION_FIND_RING tompion_count
    inc qword ptr [r10 + rsi]
tompion_count_commit:
    xor eax, eax
    ret
tompion_count_no_ring:
tompion_count_too_often:
    mov eax, {no_ring}
    ret
    TOMPION_ABORT tompion_count
    .size tompion_section_count, . - tompion_section_count

    // One more event in the cell at rdx of the current CPU's area. rdi is the recording's slot,
    // rsi the area that the caller has found there, which must still be there, rcx the aggregation.
    .balign 16
    .globl tompion_section_increment
    .hidden tompion_section_increment
    .type tompion_section_increment, @function
tompion_section_increment:
    TOMPION_DESCRIPTOR tompion_increment
    TOMPION_BEGIN tompion_increment
    cmp rsi, [rdi]
    jne tompion_increment_ended
    mov r10d, fs:[r9 + 4]
    cmp r10d, [rsi + {area_cpus}]
    jae tompion_increment_no_area
    imul r10, [rsi + {area_stride}]
    add r10, [rsi + {area_first}]
    inc qword ptr [r10 + rdx]
tompion_increment_commit:
tompion_increment_ended:
    ret
tompion_increment_no_area:
tompion_increment_too_often:
    jmp {increment_otherwise}           // with all operands in their places
    TOMPION_ABORT tompion_increment
    .size tompion_section_increment, . - tompion_section_increment

    // Exchanges both words of a cell, if they and the CPU are still as the request at rdx has them.
    // rdi and rsi as above.
    .balign 16
    .globl tompion_section_exchange
    .hidden tompion_section_exchange
    .type tompion_section_exchange, @function
tompion_section_exchange:
    TOMPION_DESCRIPTOR tompion_exchange
    TOMPION_BEGIN tompion_exchange
    cmp rsi, [rdi]
    jne tompion_exchange_changed
    mov eax, fs:[r9 + 4]
    cmp eax, [rdx + {exchange_cpu}]
    jne tompion_exchange_changed
    mov r10, [rdx + {exchange_cell}]
    mov rax, [rdx + {exchange_old}]
    cmp rax, [r10]
    jne tompion_exchange_changed
    mov rax, [rdx + {exchange_old} + 8]
    cmp rax, [r10 + 8]
    jne tompion_exchange_changed
    movups xmm0, [rdx + {exchange_new}]
    movaps [r10], xmm0
tompion_exchange_commit:
    xor eax, eax
    ret
tompion_exchange_changed:
    mov eax, {changed}
    ret
tompion_exchange_too_often:
    mov eax, {restarted}
    ret
    TOMPION_ABORT tompion_exchange
    .size tompion_section_exchange, . - tompion_section_exchange
    "#,
    cpus = const offset_of!(Recording, cpus),
    ahead = const AHEAD,
    flags = const offset_of!(Recording, flags),
    selector = const offset_of!(Recording, selector),
    selector_mask = const offset_of!(Recording, selector_mask),
    buffers = const offset_of!(Recording, buffers),
    cpu_stride = const offset_of!(Recording, cpu_stride),
    subbuf_mask = const offset_of!(Recording, subbuf_mask),
    ring_mask = const offset_of!(Recording, ring_mask),
    write = const ring::WRITE,
    events = const ring::EVENTS,
    data = const ring::DATA,
    header = const record::HEADER,
    parts = const offset_of!(Extras, parts),
    parts_end = const offset_of!(Extras, parts_end),
    time = const offset_of!(Extras, time),
    saved_recording = const offset_of!(Extras, saved_recording),
    saved_image = const offset_of!(Extras, saved_image),
    saved_head = const offset_of!(Extras, saved_head),
    put_ring = const offset_of!(Put, ring),
    put_cpu = const offset_of!(Put, cpu),
    put_expected = const offset_of!(Put, expected),
    put_new = const offset_of!(Put, new),
    put_head = const offset_of!(Put, head),
    put_position = const offset_of!(Put, position),
    put_lost = const offset_of!(Put, lost),
    put_time = const offset_of!(Put, time),
    area_cpus = const offset_of!(CountArea, cpus),
    area_stride = const offset_of!(CountArea, stride),
    area_first = const offset_of!(CountArea, first),
    exchange_cpu = const offset_of!(Exchange, cpu),
    exchange_cell = const offset_of!(Exchange, cell),
    exchange_old = const offset_of!(Exchange, old),
    exchange_new = const offset_of!(Exchange, new),
    given_time = const FLAG_GIVEN_TIME,
    needs_subbuffer = const NEEDS_SUBBUFFER,
    restarted = const RESTARTED_TOO_OFTEN,
    no_ring = const NO_RING,
    changed = const CHANGED,
    restarts = const MAX_RESTARTS,
    otherwise = sym tompion_append_otherwise,
    increment_otherwise = sym tompion_increment_otherwise,
);
