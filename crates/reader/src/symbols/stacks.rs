//! Resolves call stacks of events. An event's context has the number of a stack, which is described
//! once in the trace (`tompion_stack_kernel`, `tompion_stack_user`).
//!
//! Kernel functions were named at recording. Functions of programs are looked up as other addresses
//! are.

use std::collections::HashMap;
use std::sync::Arc;

use tompion_ctf::decode::Value;

use super::{Process, Symbols, process_of};
use crate::Event;

/// Events that describe stacks.
pub(super) const STACKS: [&str; 2] = ["tompion_stack_kernel", "tompion_stack_user"];
/// Context fields with the number of a stack, and the label of the stack.
const FIELDS: [(&str, &str); 2] = [("stack_kernel", "kernel"), ("stack_user", "user")];

/// Stack of an event: `kernel` or `user`, and the functions, innermost first.
pub(crate) type Stack = (&'static str, Vec<Arc<str>>);

/// Whether the events of a stream may have stacks.
pub(super) fn has_stacks(context: &tompion_ctf::metadata::Struct) -> bool {
    context.fields.iter().any(|field| FIELDS.iter().any(|(name, _)| field.name == *name))
}

/// Stack as recorded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Frames {
    Named(Vec<Arc<str>>),
    Addresses(Vec<u64>),
}

impl Frames {
    /// Reads the stack's number and frames; returns `None` if the event doesn't describe a stack.
    pub(super) fn from_event(event: &Event<'_>) -> Option<(u64, Self)> {
        let payload = event.payload();
        let number = payload.get("id")?.as_integer()?.try_into().ok()?;
        if let Some(Value::Text(functions)) = payload.get("functions") {
            let functions = String::from_utf8_lossy(functions);
            let names =
                functions.split(';').filter(|name| !name.is_empty()).map(|name| printable(name).into());
            return Some((number, Self::Named(names.collect())));
        }
        let Value::Array(addresses) = payload.get("callstack_user")? else { return None };
        let addresses = addresses.map(|address| address.as_integer()?.try_into().ok());
        Some((number, Self::Addresses(addresses.collect::<Option<_>>()?)))
    }
}

/// Removes control characters: a name must not span several lines.
fn printable(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).collect()
}

/// Stacks of all traces, by trace and number.
pub(super) type Stacks = HashMap<(usize, u64), Frames>;

impl Symbols {
    /// Returns the stacks of an event.
    pub fn stacks_of(&mut self, event: &Event<'_>) -> Vec<Stack> {
        let context = event.stream_context();
        let number = |field: &str| context.get(field)?.as_integer()?.try_into().ok();
        let mut found = Vec::new();
        for (field, whose) in FIELDS {
            let Some(number) = number(field).filter(|number| *number != 0) else { continue };
            let names = match self.stacks.get(&(event.trace_index(), number)) {
                Some(Frames::Named(names)) => names.clone(),
                Some(Frames::Addresses(addresses)) => {
                    let addresses = addresses.clone();
                    self.frames(process_of(event), event.timestamp(), &addresses)
                }
                None => continue,
            };
            found.push((whose, names));
        }
        found
    }

    fn frames(&mut self, process: Option<Process>, time: Option<i64>, addresses: &[u64]) -> Vec<Arc<str>> {
        let name = |(place, address): (usize, &u64)| {
            // All but the innermost are return addresses.
            let found = process.and_then(|process| self.name_in_file(process, time, *address, place > 0));
            found.unwrap_or_else(|| format!("{address:#x}").into())
        };
        addresses.iter().enumerate().map(name).collect()
    }

    /// Writes an event's stacks after its line, one function per line.
    pub fn write_stacks(&mut self, event: &Event<'_>, text: &mut Vec<u8>) {
        for (whose, names) in self.stacks_of(event) {
            for (place, name) in names.iter().enumerate() {
                let begin = if place == 0 { whose } else { "" };
                text.extend_from_slice(format!("\t{begin:<7} {name}\n").as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_one_line_each() {
        assert_eq!(printable("a\nb\x1b[31m+0x1 [ext4]"), "ab[31m+0x1 [ext4]");
    }
}
