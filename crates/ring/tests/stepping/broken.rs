//! Sections with a fault each, by which the test shows that it can fail.

use std::arch::global_asm;

use tompion_layout::ring;
use tompion_ring::producer::Outcome;

use crate::{
    ledger::Proven,
    sections::{self, APPEND, Descriptor, Section},
    support::Bench,
};

// Appends an image of two words inside a sub-buffer of the first lap. Operands: rdi the first ring,
// rsi the image, r8 the rings' distance, rcx the head, r9 the rseq area's offset from the thread
// pointer.
global_asm!(
    r#"
    .macro BROKEN name, fault
    .pushsection broken_sections, "aw"
    .balign 32
    broken_\name\()_descriptor:
    .long 0, 0
    .quad broken_\name\()_start, broken_\name\()_commit - broken_\name\()_start, broken_\name\()_abort
    .popsection
    .text
    .balign 16
    .globl broken_\name
    .type broken_\name, @function
broken_\name:
    .ifc \fault, early_clock
    rdtsc
    shl rdx, 32
    or rdx, rax
    .endif
    broken_\name\()_restart:
    lea rax, [rip + broken_\name\()_descriptor]
    mov fs:[r9 + 8], rax
    broken_\name\()_start:
    mov r10d, fs:[r9 + 4]
    imul r10, r8
    add r10, rdi
    mov r11, [r10 + {write}]
    lea rax, [r11 + 32]
    movq xmm0, rax
    mov rax, [r10 + {events}]
    inc rax
    movq xmm1, rax
    punpcklqdq xmm0, xmm1
    lea r11, [r10 + r11 + {data}]
    mov [r11], rcx
    mov rax, [rsi]
    mov [r11 + 16], rax
    .ifnc \fault, last_field
    mov rax, [rsi + 8]
    mov [r11 + 24], rax
    .endif
    .ifnc \fault, early_clock
    rdtsc
    shl rdx, 32
    or rdx, rax
    .endif
    mov [r11 + 8], rdx
    .ifc \fault, counted_apart
    inc qword ptr [r10 + {events}]
    .endif
    .ifc \fault, too_short
    broken_\name\()_commit:
    .endif
    .ifc \fault, counted_apart
    movq [r10 + {write}], xmm0
    .else
    movaps [r10 + {write}], xmm0
    .endif
    .ifc \fault, last_field
    mov rax, [rsi + 8]
    mov [r11 + 24], rax
    .endif
    .ifnc \fault, too_short
    broken_\name\()_commit:
    .endif
    ret
    .pushsection .text.unlikely, "ax"
    .byte 0x0f, 0xb9, 0x3d
    .long 0x53053053
    broken_\name\()_abort:
    jmp broken_\name\()_restart
    .popsection
    .size broken_\name, . - broken_\name
    .endm

    BROKEN nothing, none
    BROKEN last_field, last_field
    BROKEN counted_apart, counted_apart
    BROKEN too_short, too_short
    BROKEN early_clock, early_clock
    "#,
    write = const ring::WRITE,
    events = const ring::EVENTS,
    data = const ring::DATA,
);

unsafe extern "C" {
    static __start_broken_sections: Descriptor;
    static __stop_broken_sections: Descriptor;
    static broken_nothing: u8;
    static broken_last_field: u8;
    static broken_counted_apart: u8;
    static broken_too_short: u8;
    static broken_early_clock: u8;
}

/// An append, and its section.
pub type Variant = (&'static str, fn(&Bench, &Proven) -> Outcome);

/// Section without a fault.
pub const SOUND: Variant = ("nothing", |bench, event| append(bench, event, &raw const broken_nothing));

/// A fault each.
pub const BROKEN: [Variant; 4] = [
    ("the last field is stored behind the position", |bench, event| {
        append(bench, event, &raw const broken_last_field)
    }),
    ("the count is stored apart from the position", |bench, event| {
        append(bench, event, &raw const broken_counted_apart)
    }),
    ("the section ends before its last store", |bench, event| {
        append(bench, event, &raw const broken_too_short)
    }),
    ("the clock is read before the section", |bench, event| {
        append(bench, event, &raw const broken_early_clock)
    }),
];

/// The sections of [`SOUND`] and [`BROKEN`], in this order.
pub fn sections() -> Vec<Section> {
    // SAFETY: only descriptors stand between the marks, and of the function only the address is
    // taken.
    unsafe { sections::between(&__start_broken_sections, &raw const __stop_broken_sections, &[(0, APPEND)]) }
}

fn append(bench: &Bench, event: &Proven, function: *const u8) -> Outcome {
    let rseq = tompion_os::rseq_area().expect("rseq");
    let words = event.words();
    assert_eq!(words.len(), 2);
    // SAFETY: the function is one of those above, with its operands: a first ring that is mapped,
    // an image of two words, and registers that are its own or given up here.
    unsafe {
        std::arch::asm!("call {function}", function = in(reg) function,
            in("rdi") bench.rings.base(), in("rsi") words.as_ptr(), in("rcx") event.head(),
            in("r8") bench.geometry.cpu_stride(), in("r9") rseq.offset, clobber_abi("C"));
    }
    Outcome::Written
}
