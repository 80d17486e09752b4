//! Budgets of the memory for names and descriptions that programs send: limits by process, by user
//! where a session has several, and in all.
//!
//! Each process has a share that no other can use up. What goes beyond the limits is refused and
//! counted (`beyond_limits` of the manifest), so that no program makes the recorder grow without
//! end.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use tompion_schema::{Event, Field, Type};

/// Bytes of descriptions that each participation of a process has room for, whatever others do.
const OWN_DESCRIPTIONS: u64 = 256 << 10;
/// Bytes of descriptions of one process, all its participations together.
const MAX_DESCRIPTIONS_OF_PROCESS: u64 = 32 << 20;
/// Bytes of descriptions of one user's processes, where there are several users.
const MAX_DESCRIPTIONS_OF_USER: u64 = 384 << 20;
/// Bytes of descriptions of all processes.
const MAX_DESCRIPTIONS: u64 = 512 << 20;
/// Maximum number of names of events that are remembered of an ended process, for hints.
pub const MAX_NAMES_OF_PROCESS: usize = 16_384;
/// Maximum number of names of events that are remembered, of all processes.
pub const MAX_NAMES: usize = 1 << 16;
/// Maximum number of bytes of these names.
pub const MAX_NAME_BYTES: usize = 8 << 20;
/// Bytes of the processes in a manifest from which on it leaves out their executables.
pub const MANY_SOURCE_BYTES: usize = 16 << 20;
/// Bytes of the processes in a manifest from which on it lists no more of them. Manifests of up to
/// 64 MiB are read.
pub const MAX_SOURCE_BYTES: usize = 40 << 20;

/// A sum that several processes share.
#[derive(Clone, Debug, Default)]
pub struct Shared(Arc<AtomicU64>);

impl Shared {
    /// Takes room, if there is enough below a limit.
    fn take(&self, bytes: u64, most: u64) -> bool {
        let add = |taken: u64| taken.checked_add(bytes).filter(|taken| *taken <= most);
        // Ordering: a sum by itself; no other memory depends on it.
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }

    fn give_back(&self, bytes: u64) {
        // Ordering: as above.
        self.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// The budget of one participation; what it has taken is given back when it is dropped.
#[derive(Debug, Default)]
pub struct Budget {
    process: Shared,
    user: Shared,
    all: Shared,
    /// Bytes taken of its own share, and of the shared ones.
    own: u64,
    shared: u64,
}

impl Budget {
    /// Makes the budget of one participation, which takes from these sums.
    pub fn new(process: Shared, user: Shared, all: Shared) -> Self {
        Self { process, user, all, own: 0, shared: 0 }
    }

    /// Takes room for a description, if there is any.
    pub fn take(&mut self, event: &Event) -> bool {
        let bytes = size_of_event(event);
        if self.own + bytes <= OWN_DESCRIPTIONS {
            self.own += bytes;
            return true;
        }
        let limits = [
            (&self.process, MAX_DESCRIPTIONS_OF_PROCESS),
            (&self.user, MAX_DESCRIPTIONS_OF_USER),
            (&self.all, MAX_DESCRIPTIONS),
        ];
        for (index, (sum, most)) in limits.iter().enumerate() {
            if !sum.take(bytes, *most) {
                limits[..index].iter().for_each(|(sum, _)| sum.give_back(bytes));
                return false;
            }
        }
        self.shared += bytes;
        true
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        [&self.process, &self.user, &self.all].iter().for_each(|sum| sum.give_back(self.shared));
    }
}

/// About how many bytes a description takes as long as its process is recorded: it stands here as
/// it was told, and once more as the trace has it.
fn size_of_event(event: &Event) -> u64 {
    /// Bytes that maps and lists take for a description.
    const OVERHEAD: usize = 256;
    let format = event.format.as_ref().map_or(0, String::len);
    let text = event.provider.len() + event.name.len() + format;
    let fields: usize = event.fields.iter().map(size_of_field).sum();
    (OVERHEAD + 2 * (size_of::<Event>() + text + fields)) as u64
}

fn size_of_field(field: &Field) -> usize {
    let inner = match &field.ty {
        Type::Struct(members) => members.iter().map(size_of_field).sum(),
        Type::Enum(_, names) => {
            let labels = names.labels.iter().map(|label| size_of_val(label) + label.name.len());
            names.name.len() + labels.sum::<usize>()
        }
        _ => 0,
    };
    size_of::<Field>() + field.name.len() + inner
}

#[cfg(test)]
mod tests {
    use tompion_schema::{Integer, Kind, Level};

    use super::*;

    fn event(name: &str, fields: usize) -> Event {
        let field = |number| Field::new(&format!("f{number}"), Type::Integer(Integer::unsigned(64)));
        Event {
            provider: "made".into(),
            name: name.into(),
            kind: Kind::Instant,
            level: Level::LOWEST,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: (0..fields).map(field).collect(),
        }
    }

    #[test]
    fn one_process_takes_not_more_than_its_budget_however_often_it_takes_part() {
        let (process, user, all) = (Shared::default(), Shared::default(), Shared::default());
        let mut budgets = Vec::new();
        let mut taken = 0;
        for _ in 0..20 {
            let mut budget = Budget::new(process.clone(), user.clone(), all.clone());
            let events = (0..10_000).map(|number| event(&format!("e{number}"), 8));
            taken +=
                events.filter(|event| budget.take(event)).map(|event| size_of_event(&event)).sum::<u64>();
            budgets.push(budget);
        }
        let size = size_of_event(&event("e1000", 8));
        let most = MAX_DESCRIPTIONS_OF_PROCESS + 20 * OWN_DESCRIPTIONS;
        assert!(taken <= most && taken + 40 * size > most, "{taken} bytes, {size} for one");
        // Another one has room all the same, and all of it comes back.
        assert!(Budget::new(Shared::default(), user.clone(), all.clone()).take(&event("other", 50)));
        drop(budgets);
        assert_eq!([process, user, all].map(|sum| sum.0.load(Ordering::Relaxed)), [0; 3]);
    }

    #[test]
    fn what_is_refused_takes_nothing() {
        let (process, all) = (Shared::default(), Shared::default());
        assert!(all.take(MAX_DESCRIPTIONS, MAX_DESCRIPTIONS));
        let mut budget = Budget::new(process.clone(), Shared::default(), all.clone());
        let own = (0..).take_while(|number| budget.take(&event(&format!("e{number}"), 4))).count();
        assert!(own > 50, "{own}");
        assert_eq!(process.0.load(Ordering::Relaxed), 0);
    }
}
