//! Decodes the numbers in the fields of system call events.

pub(crate) use tompion_syscalls::{SyscallDecoder, error_name};

use crate::Event;

/// Decodes the number in one field of an event; `None` if it has no name.
pub(crate) fn decode(decoder: &SyscallDecoder, event: &Event<'_>, name: &str, number: i64) -> Option<String> {
    decoder.decode(name, number, &|other| {
        event.payload().get(other).and_then(|value| i64::try_from(value.as_integer()?).ok())
    })
}

/// Decodes an event's numbers, in the order of its fields. Numbers without a name are skipped.
pub(crate) fn explain<'a>(decoder: &SyscallDecoder, event: &Event<'a>) -> Vec<(&'a str, String)> {
    let explained = event.payload().filter_map(|(name, value)| {
        let number = i64::try_from(value.as_integer()?).ok()?;
        Some((name, decode(decoder, event, name, number)?))
    });
    explained.collect()
}

/// Appends the decoded numbers to the event's line: ` # flags = O_RDONLY|O_CLOEXEC`.
pub(crate) fn write_text(decoder: &SyscallDecoder, event: &Event<'_>, line: &mut Vec<u8>) {
    let mut start: &[u8] = b" # ";
    for (name, decoded) in explain(decoder, event) {
        for part in [start, name.as_bytes(), b" = ", decoded.as_bytes()] {
            line.extend_from_slice(part);
        }
        start = b", ";
    }
}
