//! The thread-local words on aarch64: at a distance from the thread pointer that the loader has put
//! into a table.

/// Reads one of this library's thread-local words. The compiler's own way would call a function.
macro_rules! thread_word {
    ($name:literal) => {{
        let value: u64;
        // SAFETY: reads a thread-local word of this library, whose place the linker fills in.
        unsafe {
            core::arch::asm!(
                concat!("adrp {place}, :gottprel:", $name),
                concat!("ldr {place}, [{place}, :gottprel_lo12:", $name, "]"),
                "mrs {value}, tpidr_el0",
                "ldr {value:w}, [{value}, {place}]",
                place = out(reg) _, value = out(reg) value,
                options(nostack, preserves_flags, readonly)
            );
        }
        value as u32
    }};
}

/// Writes one of this library's thread-local words.
macro_rules! set_thread_word {
    ($name:literal, $value:expr) => {{
        let value: u32 = $value;
        // SAFETY: writes a thread-local word of this library, whose place the linker fills in.
        unsafe {
            core::arch::asm!(
                concat!("adrp {place}, :gottprel:", $name),
                concat!("ldr {place}, [{place}, :gottprel_lo12:", $name, "]"),
                "mrs {thread}, tpidr_el0",
                "str {value:w}, [{thread}, {place}]",
                place = out(reg) _, thread = out(reg) _, value = in(reg) value,
                options(nostack, preserves_flags)
            );
        }
    }};
}

/// Adds to one of this library's thread-local words, atomically for all that share the storage.
macro_rules! add_to_thread_word {
    ($name:literal, $change:literal) => {
        // SAFETY: changes a thread-local word of this library, whose place the linker fills in.
        unsafe {
            core::arch::asm!(
                concat!("adrp {place}, :gottprel:", $name),
                concat!("ldr {place}, [{place}, :gottprel_lo12:", $name, "]"),
                "mrs {value}, tpidr_el0",
                "add {place}, {place}, {value}",
                "2:",
                "ldxr {value:w}, [{place}]",
                concat!("add {value:w}, {value:w}, #", $change),
                "stxr {failed:w}, {value:w}, [{place}]",
                "cbnz {failed:w}, 2b",
                place = out(reg) _, value = out(reg) _, failed = out(reg) _,
                options(nostack, preserves_flags)
            );
        }
    };
}

pub(super) use {add_to_thread_word, set_thread_word, thread_word};
