//! Stacks in traces, each described once: the addresses, the names that the kernel's have, and
//! which files programs have at which addresses, so that readers can name theirs.
//!
//! Names of the kernel's functions are looked up while it runs: elsewhere, or later, an address
//! means nothing. Those of programs can be looked up wherever the same build of the file is. Where
//! this is written is left to others.

mod objects;
mod symbols;

use tompion_schema::{Event, Field, Integer, Type};

use crate::{
    decode::Class,
    events::{KNOWN, description},
    select::Selection,
};

pub use objects::{Files, Object};
pub use symbols::KernelSymbols;

/// Event that describes a stack or an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum StackEvent {
    /// Describes a kernel stack.
    KernelStack,
    /// Describes a stack of a program.
    UserStack,
    /// Describes a file in a process's memory.
    Object,
}

/// The description of such an event.
pub fn event(kind: StackEvent) -> Event {
    let id = || ("id", Type::Integer(Integer::unsigned(32)));
    let word = || Type::Integer(Integer::hex(64));
    let addresses = |name| (name, Type::Sequence(Integer::hex(64)));
    let (name, fields) = match kind {
        StackEvent::KernelStack => {
            ("tompion_stack_kernel", vec![id(), addresses("callstack_kernel"), ("functions", Type::String)])
        }
        StackEvent::UserStack => ("tompion_stack_user", vec![id(), addresses("callstack_user")]),
        StackEvent::Object => (
            "tompion_object",
            vec![
                ("pid", Type::Integer(Integer::signed(32))),
                ("baddr", word()),
                ("memsz", Type::Integer(Integer::unsigned(64))),
                ("path", Type::String),
                ("build_id", Type::Sequence(Integer::hex(8))),
            ],
        ),
    };
    description(name, fields.into_iter().map(|(name, ty)| Field::new(name, ty)).collect())
}

/// Adds the events that tell whose addresses are whose: a process that another one began as, and
/// programs that take others' places.
pub fn add_lives(selection: &mut Selection) {
    selection.add(|known| matches!(known.name, "sched_process_fork" | "sched_process_exec"));
}

/// Change in a process's life that an event of [`add_lives`] reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Life {
    /// It has a child, with memory of its own that is like its.
    Child(u32),
    /// The process executes another program.
    Program,
}

/// Returns the change that an event reports. The payload is the event's as it stands in rings.
pub fn life(class: Class, payload: &[u8]) -> Option<Life> {
    let Class::Known(place) = class else { return None };
    let word = |place: usize| {
        let bytes = payload.get(place * 4..)?.first_chunk()?;
        Some(u32::from_le_bytes(*bytes))
    };
    match KNOWN.get(place)?.name {
        "sched_process_exec" => Some(Life::Program),
        // `struct process_fork` (`src/bpf/process.h`); a thread's process is its parent's.
        "sched_process_fork" if word(1)? != word(3)? => Some(Life::Child(word(3)?)),
        _ => None,
    }
}

/// The payload of a program's stack; the innermost address is the first.
pub fn user_stack(id: u32, frames: &[u64]) -> Vec<u8> {
    let mut payload = [id, frames.len() as u32].map(u32::to_le_bytes).concat();
    frames.iter().for_each(|frame| payload.extend(frame.to_le_bytes()));
    payload
}

/// Functions above a tracepoint: how the kernel got from there to the recorder's own programs.
const RECORDER: [&str; 5] = ["bpf_prog_", "bpf_trace_run", "__bpf_trace_", "__traceiter_", "__bpf_prog_"];

/// A stack of the kernel without the recorder's own frames.
pub fn without_recorder<'a>(frames: &'a [u64], symbols: &KernelSymbols) -> &'a [u64] {
    let is_own = |frame: &&u64| {
        let name = symbols.name(**frame, true);
        name.is_some_and(|name| RECORDER.iter().any(|prefix| name.starts_with(prefix)))
    };
    &frames[frames.iter().take_while(is_own).count()..]
}

/// The payload of a stack of the kernel, with the names of its functions, separated by semicolons.
/// What has no name is told by its address.
pub fn kernel_stack(id: u32, frames: &[u64], symbols: &KernelSymbols) -> Vec<u8> {
    let name = |(place, frame): (usize, &u64)| {
        symbols.name(*frame, place > 0).unwrap_or_else(|| format!("{frame:#x}"))
    };
    let names = frames.iter().enumerate().map(name).collect::<Vec<_>>().join(";");
    let mut payload = [id, frames.len() as u32, names.len() as u32 + 1].map(u32::to_le_bytes).concat();
    frames.iter().for_each(|frame| payload.extend(frame.to_le_bytes()));
    payload.extend(names.as_bytes());
    payload.push(0);
    payload
}

/// The payload of a file in a process's memory.
pub fn object(pid: u32, object: &Object) -> Vec<u8> {
    let Object { base, size, path, build_id } = object;
    let mut payload = pid.to_le_bytes().to_vec();
    payload.extend(base.to_le_bytes());
    payload.extend(size.to_le_bytes());
    payload.extend((path.len() as u32 + 1).to_le_bytes());
    payload.extend((build_id.len() as u32).to_le_bytes());
    payload.extend(path);
    payload.push(0);
    payload.extend(build_id);
    payload
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lives_are_those_of_processes() {
        let class = |name| Class::Known(KNOWN.iter().position(|known| known.name == name).unwrap());
        let fork = |numbers: [u32; 4]| numbers.map(u32::to_le_bytes).concat();
        let read = |numbers| life(class("sched_process_fork"), &fork(numbers));
        assert_eq!((read([5, 4, 9, 9]), read([5, 4, 9, 4])), (Some(Life::Child(9)), None));
        assert_eq!(life(class("sched_process_exec"), &[]), Some(Life::Program));
        assert_eq!(
            (life(class("sched_switch"), &fork([0; 4])), life(class("sched_process_fork"), &[])),
            (None, None)
        );
        let mut selection = Selection::default();
        add_lives(&mut selection);
        assert_eq!(selection.events.count_ones(), 2);
    }

    #[test]
    fn payloads_are_what_descriptions_say() {
        let symbols = KernelSymbols::parse("ffffffff81000000 T one\n");
        let frames = [0xffff_ffff_8200_0010, 0xffff_ffff_8100_0010];
        let own = KernelSymbols::parse("ffffffff81000000 T one\nffffffff82000000 t bpf_prog_1_a [bpf]\n");
        assert_eq!(without_recorder(&frames, &own), &frames[1..]);
        assert_eq!(without_recorder(&frames, &symbols), frames);
        let kernel = kernel_stack(7, &[0xffff_ffff_8100_0010, 5], &symbols);
        assert_eq!(event(StackEvent::KernelStack).fixed_size(), 12);
        assert_eq!(&kernel[28..], b"one+0x10;0x5\0");
        assert_eq!((event(StackEvent::UserStack).fixed_size(), user_stack(7, &[1]).len()), (8, 16));
        let some = Object { base: 4096, size: 8, path: b"/x".to_vec(), build_id: vec![1, 2] };
        assert_eq!(event(StackEvent::Object).fixed_size(), 28);
        assert_eq!(&object(3, &some)[28..], b"/x\0\x01\x02");
    }
}
