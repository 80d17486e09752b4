//! The thread-local words on x86-64: at a distance from `fs` that the loader has put into a table.

/// Reads one of this library's thread-local words. The compiler's own way would call a function.
macro_rules! thread_word {
    ($name:literal) => {{
        let value: u32;
        // SAFETY: reads a thread-local word of this library, whose place the linker fills in.
        unsafe {
            core::arch::asm!(
                concat!("mov {place}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                "mov {value:e}, dword ptr fs:[{place}]",
                place = out(reg) _, value = out(reg) value,
                options(nostack, preserves_flags, readonly)
            );
        }
        value
    }};
}

/// Writes one of this library's thread-local words.
macro_rules! set_thread_word {
    ($name:literal, $value:expr) => {
        // SAFETY: writes a thread-local word of this library, whose place the linker fills in.
        unsafe {
            core::arch::asm!(
                concat!("mov {place}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                "mov dword ptr fs:[{place}], {value:e}",
                place = out(reg) _, value = in(reg) $value,
                options(nostack, preserves_flags)
            );
        }
    };
}

/// Adds to one of this library's thread-local words, atomically for all that share the storage.
macro_rules! add_to_thread_word {
    ($name:literal, $change:literal) => {
        // SAFETY: changes a thread-local word of this library, whose place the linker fills in.
        unsafe {
            core::arch::asm!(
                concat!("mov {place}, qword ptr [rip + ", $name, "@GOTTPOFF]"),
                concat!("lock add dword ptr fs:[{place}], ", $change),
                place = out(reg) _, options(nostack)
            );
        }
    };
}

pub(super) use {add_to_thread_word, set_thread_word, thread_word};
