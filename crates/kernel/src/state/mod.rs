//! Initial state of the machine when recording begins, as events: what an analysis must know of the
//! time before.
//!
//! Names and fields are those of LTTng's state dump, whose readers then know which threads ran,
//! which files they had open, and what an interrupt's number means. All is read from `/proc` and
//! `/sys` by a thread of the recorder, after the programs were attached, so that later changes are
//! in the trace, too. On no event's path.
//!
//! It leaves to others where the events are written.

mod machine;
mod processes;
mod record;

use tompion_schema::{Event, Field, Integer, Type};

use crate::events::description;

use record::Recording;
pub use record::State;

/// Kind of an event; the number is its place in [`NAMES`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Start,
    End,
    Process,
    File,
    Interrupt,
    Cpu,
    BlockDevice,
}

/// The names of the events.
pub const NAMES: [&str; 7] = [
    "lttng_statedump_start",
    "lttng_statedump_end",
    "lttng_statedump_process_state",
    "lttng_statedump_file_descriptor",
    "lttng_statedump_interrupt",
    "lttng_statedump_cpu_topology",
    "lttng_statedump_block_device",
];

const fn signed() -> Type {
    Type::Integer(Integer::signed(32))
}

const fn unsigned(bits: u8) -> Type {
    Type::Integer(Integer::unsigned(bits))
}

/// The description of the event with this place in [`NAMES`]; of the last one for higher numbers.
pub fn event(place: usize) -> Event {
    let place = place.min(NAMES.len() - 1);
    let fields = match place {
        0 | 1 => Vec::new(),
        2 => [
            ("tid", signed()),
            ("vtid", signed()),
            ("pid", signed()),
            ("vpid", signed()),
            ("ppid", signed()),
            ("vppid", signed()),
            ("name", Type::TextArray(16)),
            ("type", signed()),
            ("mode", signed()),
            ("submode", signed()),
            ("status", signed()),
            ("ns_level", signed()),
            ("cpu", unsigned(32)),
        ]
        .into(),
        3 => [
            ("pid", signed()),
            ("fd", signed()),
            ("flags", unsigned(32)),
            ("fmode", unsigned(32)),
            ("filename", Type::String),
        ]
        .into(),
        4 => vec![("irq", unsigned(32)), ("name", Type::String), ("action", Type::String)],
        5 => [
            ("architecture", Type::String),
            ("cpu_id", unsigned(16)),
            ("vendor", Type::String),
            ("family", unsigned(8)),
            ("model", unsigned(8)),
            ("model_name", Type::String),
            ("physical_id", unsigned(16)),
            ("core_id", unsigned(16)),
            ("cores", unsigned(16)),
        ]
        .into(),
        _ => vec![("dev", unsigned(32)), ("diskname", Type::String)],
    };
    description(NAMES[place], fields.into_iter().map(|(name, ty)| Field::new(name, ty)).collect())
}

/// Reads the state, and gives it away in portions.
pub fn read(give: &mut dyn FnMut(Vec<State>)) {
    let mut recording = Recording::new(give);
    recording.add(Kind::Start, |_| {});
    machine::processors(&mut recording);
    machine::interrupts(&mut recording);
    machine::block_devices(&mut recording);
    processes::all(&mut recording);
    recording.add(Kind::End, |_| {});
}

#[cfg(test)]
mod tests {
    use super::*;

    fn state() -> Vec<State> {
        let mut all = Vec::new();
        read(&mut |states| all.extend(states));
        all
    }

    #[test]
    fn the_state_is_complete_and_fits_its_descriptions() {
        let all = state();
        assert_eq!((all[0].place, all[all.len() - 1].place), (Kind::Start as usize, Kind::End as usize));
        assert!(all.windows(2).all(|pair| pair[0].time <= pair[1].time));
        for state in &all {
            assert!(state.payload.len() >= event(state.place).fixed_size(), "{state:?}");
        }
        let own = std::process::id().to_le_bytes();
        let of = |kind: Kind| all.iter().filter(move |state| state.place == kind as usize);
        assert!(of(Kind::Process).any(|state| state.payload[8..12] == own));
        assert!(of(Kind::File).any(|state| state.payload[..4] == own));
    }

    #[test]
    fn every_kind_has_its_name() {
        let words = ["Start", "End", "Process", "File", "Interrupt", "Cpu", "BlockDevice"];
        let last = Kind::BlockDevice as usize;
        assert_eq!((words.len(), NAMES.len()), (last + 1, last + 1));
        assert_eq!(event(Kind::File as usize).name, "lttng_statedump_file_descriptor");
        assert_eq!(event(Kind::Process as usize).fixed_size(), 48);
    }
}
