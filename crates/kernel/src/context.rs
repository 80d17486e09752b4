//! Context of kernel events, on request: the thread and its state, and the stacks that led there.
//!
//! It stands behind a record's payload, in the order of the bits of [`Contexts`]
//! (`src/bpf/context.h`); of a stack there is a number only, which a record of its own explains.

use tompion_kernel_objects::objects::KNOWN_STACKS;

/// A kind of context. Thread and process are always there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Context {
    /// The functions of the kernel that led to the event.
    KernelStack,
    /// The functions of the program that led to the event.
    UserStack,
    /// The number of the control group.
    Cgroup,
    /// The priority, as events of the scheduler have it.
    Priority,
    /// The name of the thread.
    Comm,
}

impl Context {
    /// All kinds, in the order of records.
    pub const ALL: [Self; 5] = [Self::KernelStack, Self::UserStack, Self::Cgroup, Self::Priority, Self::Comm];

    /// Bytes of it in a record.
    fn size(self) -> usize {
        if self == Self::Comm { COMM } else { 8 }
    }
}

/// Bytes in which the kernel keeps a thread's name.
const COMM: usize = 16;

/// A set of kinds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Contexts(u32);

impl Contexts {
    /// The bits, as programs know them.
    pub fn bits(self) -> u32 {
        self.0
    }

    /// The set of these bits.
    pub fn of_bits(bits: u32) -> Self {
        Context::ALL.into_iter().filter(|context| bits >> *context as u32 & 1 == 1).collect()
    }

    /// Whether the set has this kind.
    pub fn has(self, context: Context) -> bool {
        self.0 >> context as u32 & 1 == 1
    }

    /// Whether it has stacks.
    pub fn has_stacks(self) -> bool {
        self.has(Context::KernelStack) || self.has(Context::UserStack)
    }

    /// Bytes behind the payload of each record.
    pub fn size(self) -> usize {
        Context::ALL.into_iter().filter(|context| self.has(*context)).map(Context::size).sum()
    }

    /// Reads the values in as many bytes as [`Self::size`] says; what is not there is 0.
    pub fn read(self, bytes: &[u8]) -> Values {
        let mut values = Values::default();
        let mut rest = bytes;
        for context in Context::ALL.into_iter().filter(|context| self.has(*context)) {
            let Some((value, behind)) = rest.split_at_checked(context.size()) else { break };
            rest = behind;
            let number = value.first_chunk().map_or(0, |word| u64::from_le_bytes(*word));
            match context {
                Context::KernelStack => values.kernel_stack = number,
                Context::UserStack => values.user_stack = number,
                Context::Cgroup => values.cgroup = number,
                Context::Priority => values.priority = number as i32,
                Context::Comm => values.comm.copy_from_slice(value),
            }
        }
        values
    }
}

impl FromIterator<Context> for Contexts {
    fn from_iter<T: IntoIterator<Item = Context>>(contexts: T) -> Self {
        Self(contexts.into_iter().fold(0, |bits, context| bits | 1 << context as u32))
    }
}

/// The values of an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Number of the kernel's stack in rings: [`NO_STACK`], [`STACK_MISSED`], or that of a record
    /// [`STACK`].
    pub kernel_stack: u64,
    /// Number of the program's stack, likewise.
    pub user_stack: u64,
    /// Number of the control group: that of its folder's inode.
    pub cgroup: u64,
    /// Priority: 20 is an ordinary task's, below 0 are real-time tasks.
    pub priority: i32,
    /// Name of the thread, with NULs behind it.
    pub comm: [u8; COMM],
}

/// Number of stacks in rings; beside it stands [`OF_PROGRAM`] or nothing.
pub const STACK: u16 = 66;
/// Said of a stack: it is the program's.
pub const OF_PROGRAM: u32 = 1 << 8;
/// There is no stack: threads of the kernel have none in a program.
pub const NO_STACK: u64 = 0;
/// There was one, and it could not be recorded.
pub const STACK_MISSED: u64 = 1;

/// A record that tells of a stack: its number in this ring, and the addresses, the innermost first.
/// Nothing if the bytes are none.
pub fn stack(payload: &[u8]) -> Option<(u64, impl Iterator<Item = u64>)> {
    let (number, frames) = payload.split_first_chunk()?;
    let frames = frames.chunks_exact(8).filter_map(|frame| Some(u64::from_le_bytes(frame.try_into().ok()?)));
    Some((u64::from_le_bytes(*number), frames))
}

/// Distance for which a described stack stays known: the programs describe it again when it lies
/// this many bytes back in the ring, or less. In overwrite mode that is an eighth of the ring, so
/// that all but its oldest eighth has its stacks.
pub(crate) fn stacks_last(subbufs: u32, overwrite: bool) -> u32 {
    if overwrite { subbufs / 8 } else { STACKS_LAST_ON_DISK }
}

/// The programs' maps, with how many entries they need for so many CPUs.
pub(crate) fn maps(contexts: Contexts, cpus: u32) -> [(&'static str, u32); 2] {
    let of_cpus = |entries| if contexts.has_stacks() { cpus * entries } else { 1 };
    [("stack_scratches", of_cpus(8)), ("known_stacks", of_cpus(KNOWN_STACKS))]
}

/// In discard mode nothing is overwritten; that stacks are told again lets the reader forget old
/// ones.
const STACKS_LAST_ON_DISK: u32 = 256;
/// Bytes of a ring's stream behind which no event means a stack that was told before.
pub const STACKS_FORGOTTEN: u64 = 2 * STACKS_LAST_ON_DISK as u64 * crate::ring::SUBBUF_SIZE;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_and_their_reader_mean_the_same() {
        let header = include_str!("bpf/context.h");
        let bits = "enum context { WITH_KERNEL_STACK = 1, WITH_USER_STACK = 2, WITH_CGROUP = 4, WITH_PRIORITY = 8, \
                    WITH_COMM = 16 };";
        assert!(header.contains(bits));
        assert!(header.contains(&format!("#define STACK {STACK}\n")));
        assert!(header.contains(&format!("NO_STACK = {NO_STACK}, STACK_MISSED = {STACK_MISSED} ")));
        assert!(header.contains("#define OF_PROGRAM (1u << 8)\n") && OF_PROGRAM == 1 << 8);
        let all: Contexts = Context::ALL.into_iter().collect();
        assert_eq!((all.bits(), all.size()), (31, 48));
        assert_eq!((Contexts::of_bits(31), Contexts::of_bits(1 << 5)), (all, Contexts::default()));
        let [scratches, known] = maps(all, 1).map(|(_, entries)| entries);
        assert!(header.contains(&format!("#define STACK_SCRATCHES {scratches}\n")));
        assert!(header.contains(&format!("#define KNOWN_STACKS {known} ")));
        assert!(include_str!("bpf/ring.h").contains("#define MAX_CONTEXT 48\n"));
    }

    #[test]
    fn values_stand_one_behind_the_other() {
        let some: Contexts = [Context::Comm, Context::UserStack, Context::Priority].into_iter().collect();
        let bytes =
            [&7u64.to_le_bytes()[..], &(-100i64).to_le_bytes(), b"name\0\0\0\0\0\0\0\0\0\0\0\0"].concat();
        assert_eq!(some.size(), bytes.len());
        let values = some.read(&bytes);
        assert_eq!((values.user_stack, values.priority, &values.comm[..5]), (7, -100, &b"name\0"[..]));
        assert_eq!((values.kernel_stack, values.cgroup), (0, 0));
        assert_eq!(some.read(&bytes[..3]), Values::default());
    }

    #[test]
    fn a_stack_has_a_number_and_addresses() {
        let bytes = [9u64, 1, 2].map(u64::to_le_bytes).concat();
        let (number, frames) = stack(&bytes).unwrap();
        assert_eq!((number, frames.collect::<Vec<_>>()), (9, vec![1, 2]));
        assert!(stack(&bytes[..7]).is_none());
    }
}
