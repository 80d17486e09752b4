//! Restartable sections for aarch64.
//!
//! Other processors see a processor's stores and loads in any order that nothing forbids. What
//! forbids it here:
//!
//! | here | orders | so that |
//! |---|---|---|
//! | `ldar` of `cpus` | it before the loads of the recording's other words | a thread that sees that there is a recording sees it whole (pairs with the release store in `Recording::begin`) |
//! | `dmb ishst` before a record's first store | the position that the section found, which this processor has stored, before the record's bytes | a reader that has copied one of the bytes sees at least that position (pairs with the acquire fence in `copy_history`) |
//! | `isb` before the counter | its reading behind all before it | time never goes backwards within a ring |
//! | `stlxp`, `stlr` of `write` | the record's bytes, and with them the time, before the position | a reader that sees the position sees the records below it (pairs with the acquire load in `written`) |
//!
//! One store has to move `write` and `events` together, also as the processor's own interrupts see
//! it. `stp` of an aligned pair is one store only where the processor has LSE2. Elsewhere an
//! interrupt may come between its halves, and the section would be restarted with the record half
//! there. `stlxp` is one store on every processor, if it stores at all. When it says that it did
//! not, the section begins again, which counts as a restart. `ldxp` right before it is for its sake
//! only; no other thread writes these words.
//!
//! The ABI keeps nothing below the stack pointer from signal handlers, so restarts are counted down
//! in a register. (A thread that was restarted has the registers that it had when it was
//! interrupted.)

use core::{
    arch::{asm, global_asm},
    mem::offset_of,
    sync::atomic::Ordering,
};

use tompion_layout::{record, ring};

use super::{CHANGED, FLAG_GIVEN_TIME, NEEDS_SUBBUFFER, NO_RING, RESTARTED_TOO_OFTEN, tompion_rseq_offset};
use crate::counts::{CountArea, Exchange, tompion_increment_otherwise};
use crate::producer::{Extras, MAX_RESTARTS, Put, Recording, tompion_append_otherwise};

// The exclusive pair and the acquiring load take no offsets.
const _: () = assert!(ring::WRITE == 0 && ring::EVENTS == 8 && offset_of!(Recording, cpus) == 0);
const _: () = assert!(FLAG_GIVEN_TIME.is_power_of_two());

/// The CPU number that the kernel keeps in the thread's rseq area; large where there is none.
pub(crate) fn current_cpu() -> u32 {
    let cpu: u32;
    // SAFETY: the area is inside the thread's own static storage; `cpu_id` is its second word.
    unsafe {
        asm!("mrs {place}, tpidr_el0", "add {place}, {place}, {area}", "ldr {cpu:w}, [{place}, #4]",
            place = out(reg) _, cpu = lateout(reg) cpu,
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

    // Arms the section, and begins it. Throughout: x6 restarts that are left, x7 the thread's area,
    // x8 the descriptor.
    .macro TOMPION_BEGIN name
    mov w6, #{restarts}
    adrp x7, tompion_rseq_offset
    ldr x7, [x7, :lo12:tompion_rseq_offset]
    mrs x8, tpidr_el0
    add x7, x7, x8
    adrp x8, \name\()_descriptor
    add x8, x8, :lo12:\name\()_descriptor
    \name\()_restart:
    str x8, [x7, #8]
    \name\()_start:
    .endm

    // The address of the current CPU's ring in the selected buffer -> x9, or leave. Clobbers x10 to
    // x12.
    .macro TOMPION_FIND_RING name
    ldr w9, [x7, #4]
    ldar w10, [x0]                      // before the recording's other words
    cmp w9, w10
    b.hs \name\()_no_ring
    ldr x10, [x0, #{selector}]
    ldr w10, [x10]
    ldr w11, [x0, #{selector_mask}]
    and w10, w10, w11
    add x11, x0, x10, lsl #3
    ldr x11, [x11, #{buffers}]
    ldr x12, [x0, #{cpu_stride}]
    madd x9, x9, x12, x11
    .endm

    // The counter -> the register, behind all before.
    .macro TOMPION_READ_CLOCK register
    isb
    mrs \register, cntvct_el0
    .endm

    // Where the kernel goes on after an abort: counts down and restarts. The signature right before
    // the address proves to the kernel that it may jump there; as an instruction it is a
    // breakpoint.
    .macro TOMPION_ABORT name
    .inst 0xd428bc00
    \name\()_abort:
    subs w6, w6, #1
    b.ne \name\()_restart
    b \name\()_too_often
    .endm

    // Kept throughout the append: x0 the recording, x1 the image, x3 the head, x4 the length
    // without header, x5 the extras, with a one in the lowest bit where the caller wants to know
    // the outcome itself. x9 is the ring, x10 the record, x11 and x12 what the last instruction
    // stores; x2 and x13 to x17 are free.
    .text
    .balign 16
    .globl tompion_append_again
    .hidden tompion_append_again
    .type tompion_append_again, %function
tompion_append_again:
    add x5, x2, #1
    b tompion_section_append
    .globl tompion_append_parts
    .hidden tompion_append_parts
    .type tompion_append_parts, %function
tompion_append_parts:
    mov x5, x2
    b tompion_section_append
    .balign 64
    .globl tompion_append_image
    .hidden tompion_append_image
    .type tompion_append_image, %function
tompion_append_image:
    mov x5, xzr
tompion_section_append:
    TOMPION_DESCRIPTOR tompion_append
    TOMPION_BEGIN tompion_append
    TOMPION_FIND_RING tompion_append
    ldp x10, x12, [x9]                  // write, events: no other thread changes them
    add x11, x10, x4
    add x11, x11, #{header}             // the new write position
    sub x13, x10, #1
    sub x14, x11, #1
    eor x13, x13, x14
    ldp x14, x15, [x0, #{subbuf_mask}]  // and the ring's mask
    tst x13, x14                        // before the first byte and at the last one: same sub-buffer?
    b.ne tompion_append_needs_subbuffer
    add x12, x12, #1
    and x10, x10, x15
    add x10, x10, x9
    add x10, x10, #{data}
    dmb ishst                           // the position that was found, before what is stored behind it
    str x3, [x10]
    add x14, x10, #{header}             // where the fields go
    cbnz x5, 7f
3:  mov x13, x4
    cbnz x13, 2f
    b 8f
    // Extras: parts straight from the program's memory, or a timestamp of the caller's.
7:  ands x13, x5, #-2
    b.eq 3b                             // no extras, but a caller that wants to know
    ldp x13, x2, [x13, #{parts}]        // and the parts' end
1:  cmp x13, x2
    b.eq 4f
    ldp x15, x16, [x13], #16            // a part's bytes, and how many
    cmp x16, #8
    b.lo 6f
5:  ldr x17, [x15], #8
    str x17, [x14], #8
    sub x16, x16, #8
    cmp x16, #8
    b.hs 5b
6:  cbz x16, 1b
    ldrb w17, [x15], #1
    strb w17, [x14], #1
    sub x16, x16, #1
    b 6b
4:  ldr w13, [x0, #{flags}]
    tst w13, #{given_time}
    b.eq 8f
    and x13, x5, #-2
    ldr x13, [x13, #{time}]
    b 9f
2:  sub x13, x13, #8
    ldr x15, [x1, x13]
    str x15, [x14, x13]
    cbnz x13, 2b
8:  TOMPION_READ_CLOCK x13
9:  str x13, [x10, #8]
    ldxp x13, x14, [x9]
    stlxp w13, x11, x12, [x9]           // the record is there
tompion_append_commit:
    cbnz w13, tompion_append_abort      // or it is not
    mov w0, #{written}
    ret
tompion_append_needs_subbuffer:
    mov w13, #{needs_subbuffer}
    b 2f
tompion_append_no_ring:
    mov w13, #{no_ring}
    b 2f
tompion_append_too_often:
    mov w13, #{restarted}
2:  tbnz x5, #0, 1f
    mov x2, x5
    mov w5, w13
    b {otherwise}                       // with all operands in their places
1:  mov w0, w13
    ret
    TOMPION_ABORT tompion_append
    .size tompion_append_image, . - tompion_append_image

    .balign 16
    .globl tompion_section_put
    .hidden tompion_section_put
    .type tompion_section_put, %function
tompion_section_put:
    TOMPION_DESCRIPTOR tompion_put
    TOMPION_BEGIN tompion_put
    ldr w9, [x7, #4]
    ldr w10, [x1, #{put_cpu}]
    cmp w9, w10
    b.ne tompion_put_changed
    ldr x9, [x1, #{put_ring}]
    ldr x10, [x1, #{put_expected}]
    ldp x11, x12, [x9]
    cmp x10, x11
    b.ne tompion_put_changed
    ldr x11, [x0, #{ring_mask}]
    and x10, x10, x11
    add x10, x10, x9
    add x10, x10, #{data}
    dmb ishst                           // as in the append
    ldr x11, [x1, #{put_head}]
    str x11, [x10]
    cbz x11, 2f                         // padding has nothing but its first word, which is zero
    ldr x11, [x1, #{put_position}]
    str x11, [x10, #{header_position}]
    ldr x11, [x1, #{put_lost}]
    str x11, [x10, #{header_lost}]
    str x12, [x10, #{header_events}]
    ldr x11, [x1, #{put_time}]
    ldr w12, [x0, #{flags}]
    tst w12, #{given_time}
    b.ne 1f
    TOMPION_READ_CLOCK x11
1:  str x11, [x10, #8]
2:  ldr x11, [x1, #{put_new}]
    stlr x11, [x9]
tompion_put_commit:
    mov w0, #{written}
    ret
tompion_put_changed:
    mov w0, #{changed}
    ret
tompion_put_too_often:
    mov w0, #{restarted}
    ret
    TOMPION_ABORT tompion_put
    .size tompion_section_put, . - tompion_section_put

    .balign 16
    .globl tompion_section_count
    .hidden tompion_section_count
    .type tompion_section_count, %function
tompion_section_count:
    TOMPION_DESCRIPTOR tompion_count
    TOMPION_BEGIN tompion_count
    TOMPION_FIND_RING tompion_count
    ldr x10, [x9, x1]
    add x10, x10, #1
    str x10, [x9, x1]
tompion_count_commit:
    mov w0, #{written}
    ret
tompion_count_no_ring:
tompion_count_too_often:
    mov w0, #{no_ring}
    ret
    TOMPION_ABORT tompion_count
    .size tompion_section_count, . - tompion_section_count

    // One more event in the cell at x2 of the current CPU's area. x0 is the slot of the recording,
    // x1 the area that the caller has found there (with an acquiring load), which must still be
    // there, x3 the aggregation.
    .balign 16
    .globl tompion_section_increment
    .hidden tompion_section_increment
    .type tompion_section_increment, %function
tompion_section_increment:
    TOMPION_DESCRIPTOR tompion_increment
    TOMPION_BEGIN tompion_increment
    ldr x9, [x0]
    cmp x9, x1
    b.ne tompion_increment_ended
    ldr w9, [x7, #4]
    ldr w10, [x1, #{area_cpus}]
    cmp w9, w10
    b.hs tompion_increment_no_area
    ldr x10, [x1, #{area_stride}]
    ldr x11, [x1, #{area_first}]
    madd x9, x9, x10, x11
    add x9, x9, x2
    ldr x10, [x9]
    add x10, x10, #1
    str x10, [x9]
tompion_increment_commit:
tompion_increment_ended:
    ret
tompion_increment_no_area:
tompion_increment_too_often:
    b {increment_otherwise}             // with all operands in their places
    TOMPION_ABORT tompion_increment
    .size tompion_section_increment, . - tompion_section_increment

    // Exchanges both words of a cell, if they and the CPU are still as the request at x2 has them.
    // x0 and x1 as above. The exclusive pair is there for the same reason as in the append.
    .balign 16
    .globl tompion_section_exchange
    .hidden tompion_section_exchange
    .type tompion_section_exchange, %function
tompion_section_exchange:
    TOMPION_DESCRIPTOR tompion_exchange
    TOMPION_BEGIN tompion_exchange
    ldr x9, [x0]
    cmp x9, x1
    b.ne tompion_exchange_changed
    ldr w9, [x7, #4]
    ldr w10, [x2, #{exchange_cpu}]
    cmp w9, w10
    b.ne tompion_exchange_changed
    ldr x9, [x2, #{exchange_cell}]
    ldp x10, x11, [x2, #{exchange_old}]
    ldp x12, x13, [x2, #{exchange_new}]
    ldxp x14, x15, [x9]
    cmp x14, x10
    b.ne tompion_exchange_changed
    cmp x15, x11
    b.ne tompion_exchange_changed
    stxp w14, x12, x13, [x9]
tompion_exchange_commit:
    cbnz w14, tompion_exchange_abort    // it was not stored
    mov w0, #{written}
    ret
tompion_exchange_changed:
    clrex
    mov w0, #{changed}
    ret
tompion_exchange_too_often:
    mov w0, #{restarted}
    ret
    TOMPION_ABORT tompion_exchange
    .size tompion_section_exchange, . - tompion_section_exchange
    "#,
    flags = const offset_of!(Recording, flags),
    selector = const offset_of!(Recording, selector),
    selector_mask = const offset_of!(Recording, selector_mask),
    buffers = const offset_of!(Recording, buffers),
    cpu_stride = const offset_of!(Recording, cpu_stride),
    subbuf_mask = const offset_of!(Recording, subbuf_mask),
    ring_mask = const offset_of!(Recording, ring_mask),
    data = const ring::DATA,
    header = const record::HEADER,
    header_position = const record::SubbufferHeader::POSITION,
    header_lost = const record::SubbufferHeader::LOST,
    header_events = const record::SubbufferHeader::EVENTS,
    parts = const offset_of!(Extras, parts),
    time = const offset_of!(Extras, time),
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
    written = const super::WRITTEN,
    needs_subbuffer = const NEEDS_SUBBUFFER,
    restarted = const RESTARTED_TOO_OFTEN,
    no_ring = const NO_RING,
    changed = const CHANGED,
    restarts = const MAX_RESTARTS,
    otherwise = sym tompion_append_otherwise,
    increment_otherwise = sym tompion_increment_otherwise,
);

// Words that are loaded in pairs.
const _: () = assert!(offset_of!(Recording, ring_mask) == offset_of!(Recording, subbuf_mask) + 8);
const _: () = assert!(offset_of!(Extras, parts_end) == offset_of!(Extras, parts) + 8);
