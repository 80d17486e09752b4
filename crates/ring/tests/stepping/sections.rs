//! Instructions at which a thread can be stopped: those of every section that the linker collected,
//! as a disassembler sees them. So a new instruction, or a new section, asks to be covered by
//! itself.

use std::slice;

use iced_x86::{Decoder, DecoderOptions};

/// `struct rseq_cs`, by which the kernel knows a section.
#[repr(C, align(32))]
pub struct Descriptor {
    version: u32,
    flags: u32,
    start: u64,
    length: u64,
    abort: u64,
}

/// A restartable section of this program.
#[derive(Debug)]
pub struct Section {
    pub name: &'static str,
    /// Address of its descriptor, which arms it.
    pub descriptor: u64,
    /// Address of its first instruction.
    pub start: u64,
    /// Address of the first instruction behind it: when a thread is there, the last one has been
    /// executed.
    pub commit: u64,
    /// Places where it can be stopped: before each of its instructions, and at `commit`.
    pub places: Vec<u64>,
}

impl Section {
    fn new(descriptor: &'static Descriptor, names: &[(u64, &'static str)]) -> Self {
        let Descriptor { version: _, flags: _, start, length, abort: _ } = *descriptor;
        // SAFETY: the descriptor says where code of this program stands, which is readable and
        // never changes.
        let code = unsafe { slice::from_raw_parts(start as *const u8, length as usize) };
        let instructions = Decoder::with_ip(64, code, start, DecoderOptions::NONE);
        let mut places: Vec<u64> = instructions
            .into_iter()
            .map(|instruction| {
                assert!(!instruction.is_invalid(), "no instruction at {:#x}", instruction.ip());
                instruction.ip()
            })
            .collect();
        places.push(start + length);
        let name = names.iter().filter(|(begin, _)| *begin <= start).max().expect("a section has a name").1;
        let descriptor = &raw const *descriptor as u64;
        Self { name, descriptor, start, commit: start + length, places }
    }

    /// Whether an aborted thread would be restarted from here.
    pub fn contains(&self, address: u64) -> bool {
        (self.start..self.commit).contains(&address)
    }
}

/// The sections between two marks of the linker. `names` are those of the functions around them.
///
/// # Safety
/// All that stands between the marks are descriptors.
pub unsafe fn between(
    first: &'static Descriptor,
    end: *const Descriptor,
    names: &[(u64, &'static str)],
) -> Vec<Section> {
    // SAFETY: as the caller promises.
    let descriptors = unsafe {
        let count = end.offset_from(first);
        slice::from_raw_parts(&raw const *first, usize::try_from(count).expect("marks in order"))
    };
    descriptors.iter().map(|descriptor| Section::new(descriptor, names)).collect()
}

/// The ring's own sections.
pub fn of_the_ring() -> Vec<Section> {
    let is_of_counts = |section: &Section| [INCREMENT, EXCHANGE].contains(&section.name);
    all().into_iter().filter(|section| !is_of_counts(section)).collect()
}

/// The sections of this library.
fn all() -> Vec<Section> {
    unsafe extern "C" {
        static __start___rseq_cs: Descriptor;
        static __stop___rseq_cs: Descriptor;
        static tompion_append_image: u8;
        static tompion_append_again: u8;
        static tompion_section_put: u8;
        static tompion_section_count: u8;
        static tompion_section_increment: u8;
        static tompion_section_exchange: u8;
    }
    // SAFETY: only addresses are taken, of functions; the linker makes the marks for the kernel's
    // name of the section, in which only descriptors stand.
    unsafe {
        let names = [
            (&raw const tompion_append_image as u64, APPEND),
            (&raw const tompion_append_again as u64, PARTS),
            (&raw const tompion_section_put as u64, "put"),
            (&raw const tompion_section_count as u64, COUNT),
            (&raw const tompion_section_increment as u64, INCREMENT),
            (&raw const tompion_section_exchange as u64, EXCHANGE),
        ];
        between(&__start___rseq_cs, &raw const __stop___rseq_cs, &names)
    }
}

/// The section that appends a record which is an image alone.
pub const APPEND: &str = "append";
/// The section that appends all others.
pub const PARTS: &str = "append parts";
/// The section that counts a loss.
pub const COUNT: &str = "count";
/// The section that counts an event in place.
pub const INCREMENT: &str = "increment";
/// The section that counts an event with its value.
pub const EXCHANGE: &str = "exchange";
