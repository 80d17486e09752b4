//! Probes that users ask for: at functions, addresses and marks (USDT) of programs, and at
//! functions of the kernel.
//!
//! ```text
//! uprobe:/usr/bin/bash:readline(prompt: str)     [`spec`]   what was asked for
//!      │  the file's functions, notes, segments   [`elf`], [`note`]
//!      ▼
//! Probe { event, sites: [place in the file, where each argument is] }
//!      │  a table for the programs, a link for each place   [`attach`]
//!      ▼
//! records of one number, told apart by the event beside it
//! ```
//!
//! `src/bpf/probes.h` reads the arguments; this module says where they are and what they mean.

mod attach;
mod elf;
mod go;
mod nop;
mod note;
mod spec;
mod value;

use std::path::PathBuf;

use tompion_schema::{Event, Field, Integer, Type};

use crate::{decode::Misfit, events::description};

pub(crate) use attach::{Attached, attach, maps};
pub use elf::{Mark, marks};
pub use spec::{ProbeSpec, ProbeSpecError};
pub use value::ArgumentType;
use value::Value;

/// Number of all these events in rings (`src/bpf/probes.h`).
pub const PROBE: u16 = 65;
/// Most arguments of a probe.
pub const MAX_ARGUMENTS: usize = 12;
/// Most places in which probes may be put at once.
pub const MAX_SITES: usize = 1024;
/// Value in the place of a text's length if the text was left out (`src/bpf/probes.h`).
const LEFT_OUT: u32 = u32::MAX - 2;
const UNREADABLE: u32 = u32::MAX - 1;
const NULL: u32 = u32::MAX;

/// A probe that can be attached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Event that is recorded.
    event: Event,
    /// Types of its arguments.
    arguments: Vec<ArgumentType>,
    /// Program or kernel function that is probed.
    target: Target,
    /// Whether a function's return is meant.
    at_return: bool,
    /// The places in the target.
    sites: Vec<Site>,
}

/// Code that a probe is put into.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Target {
    /// A file.
    File(PathBuf),
    /// A function of the kernel.
    Kernel(String),
}

/// One place.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Site {
    /// Bytes from the beginning of the file, or of the kernel's function.
    offset: u64,
    /// Offset in the file of the counter that says whether a tracer listens; 0 if there is none.
    semaphore: u64,
    /// Places of the arguments.
    values: Vec<Value>,
}

impl Probe {
    /// The event's description.
    pub fn event(&self) -> &Event {
        &self.event
    }

    /// Turns the payload of a record into that of the description.
    pub(crate) fn payload(&self, record: &[u8], payload: &mut Vec<u8>) -> Result<(), Misfit> {
        payload.clear();
        let (fixed, mut texts) = record.split_at_checked(8 + 8 * self.arguments.len()).ok_or(Misfit)?;
        let (ip, values) = fixed.split_at(8);
        payload.extend_from_slice(ip);
        let mut tails = Vec::new();
        for (ty, value) in self.arguments.iter().zip(values.chunks_exact(8)) {
            if !ty.is_text() {
                payload.extend_from_slice(&value[..ty.size()]);
                continue;
            }
            let length = u32::from_le_bytes(value[..4].try_into().map_err(|_| Misfit)?);
            let text: &[u8] = match length {
                NULL => b"<null>\0",
                UNREADABLE => b"<unreadable>\0",
                LEFT_OUT => b"<left out>\0",
                length => {
                    let (text, rest) = texts.split_at_checked(length as usize).ok_or(Misfit)?;
                    texts = rest;
                    text
                }
            };
            payload.extend((text.len() as u32).to_le_bytes());
            tails.extend_from_slice(text);
        }
        payload.extend(tails);
        Ok(())
    }
}

/// The description of a probe's event.
fn event(provider: &str, name: &str, arguments: &[(String, ArgumentType)]) -> Event {
    let fields = arguments.iter().map(|(name, ty)| Field::new(name, ty.ty()));
    let ip = Field::new("ip", Type::Integer(Integer::hex(64)));
    let mut event = description(name, [ip].into_iter().chain(fields).collect());
    event.provider = provider.into();
    event
}

#[cfg(test)]
mod tests {
    use super::*;

    fn probe(types: &[&str]) -> Probe {
        let arguments: Vec<_> =
            types.iter().map(|name| ((*name).to_owned(), ArgumentType::parse(name).unwrap())).collect();
        Probe {
            event: event("bash", "readline", &arguments),
            arguments: arguments.into_iter().map(|(_, ty)| ty).collect(),
            target: Target::Kernel("vfs_read".into()),
            at_return: false,
            sites: Vec::new(),
        }
    }

    #[test]
    fn a_payload_is_as_the_description_says() {
        let probe = probe(&["u16", "str", "i64", "str"]);
        let words = [0x1234u64, 0xffff_ffff_0000_0102, 4, u64::MAX, u64::from(UNREADABLE)];
        let mut record: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        record.extend(b"abc\0\0\0\0\0");
        let mut payload = Vec::new();
        probe.payload(&record, &mut payload).unwrap();
        assert_eq!(probe.event().fixed_size(), 8 + 2 + 4 + 8 + 4);
        assert_eq!(payload[8..10], [2, 1]);
        assert_eq!(payload[10..14], 4u32.to_le_bytes());
        assert_eq!(payload[26..], *b"abc\0<unreadable>\0");
        for length in 0..44 {
            assert_eq!(probe.payload(&record[..length], &mut payload), Err(Misfit), "{length}");
        }
        record[16..20].copy_from_slice(&9u32.to_le_bytes());
        assert_eq!(probe.payload(&record, &mut payload), Err(Misfit));
    }

    #[test]
    fn programs_and_their_reader_agree() {
        let header = include_str!("../bpf/probes.h");
        assert!(header.contains(&format!("#define PROBE {PROBE}\n")));
        assert!(header.contains(&format!("#define MAX_PROBE_ARGUMENTS {MAX_ARGUMENTS}\n")));
        assert!(header.contains(&format!("#define LEFT_OUT {LEFT_OUT:#x}u\n")));
    }
}
