//! Context of the kernel's events, as it stands in the trace.

use std::{fs, os::unix::fs::MetadataExt};

use tompion_ctf::encode::ContextField;
use tompion_kernel::context::{Context, Contexts, Values};

/// Folder of control groups, whose inodes have their numbers.
const CONTROL_GROUPS: &str = "/sys/fs/cgroup";

/// The fields of all events. Names and values are those of LTTng's kernel tracer where it has such.
pub fn fields(contexts: Contexts) -> Vec<ContextField> {
    let mut fields = vec![ContextField::signed("tid", 32), ContextField::signed("pid", 32)];
    let mut add = |context, field| {
        if contexts.has(context) {
            fields.push(field);
        }
    };
    add(Context::Comm, ContextField::text("procname"));
    add(Context::Priority, ContextField::signed("prio", 32));
    add(Context::Cgroup, ContextField::unsigned("cgroup_id", 64));
    add(Context::KernelStack, ContextField::unsigned("stack_kernel", 32));
    add(Context::UserStack, ContextField::unsigned("stack_user", 32));
    fields
}

/// Context of one event.
pub struct EventContext<'a> {
    /// The thread.
    pub tid: u32,
    /// Its process.
    pub pid: u32,
    /// Values that were recorded with the event.
    pub values: &'a Values,
    /// Numbers of its kernel and user stacks; 0 for none.
    pub stacks: [u32; 2],
}

/// Appends the context of an event, of which it has these parts.
pub fn encode(contexts: Contexts, event: &EventContext<'_>, bytes: &mut Vec<u8>) {
    let EventContext { tid, pid, values, stacks } = *event;
    bytes.extend(tid.to_le_bytes());
    bytes.extend(pid.to_le_bytes());
    if contexts.has(Context::Comm) {
        bytes.extend(values.comm.iter().take_while(|byte| **byte != 0));
        bytes.push(0);
    }
    if contexts.has(Context::Priority) {
        bytes.extend(values.priority.to_le_bytes());
    }
    if contexts.has(Context::Cgroup) {
        bytes.extend(values.cgroup.to_le_bytes());
    }
    for (context, stack) in [Context::KernelStack, Context::UserStack].into_iter().zip(stacks) {
        if contexts.has(context) {
            bytes.extend(stack.to_le_bytes());
        }
    }
}

/// Returns the context of the events that the recorder itself writes.
pub fn of_recorder() -> Values {
    let name = fs::read("/proc/self/comm").unwrap_or_default();
    let mut comm = [0; 16];
    comm.iter_mut().zip(name.trim_ascii_end()).for_each(|(to, byte)| *to = *byte);
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    // Source: field 18 of `proc_pid_stat(5)`.
    let priority = rest.split(' ').nth(15).and_then(|word| word.parse().ok()).unwrap_or_default();
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let group = groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default();
    let cgroup = fs::metadata(format!("{CONTROL_GROUPS}{group}")).map_or(0, |folder| folder.ino());
    Values { comm, priority, cgroup, ..Values::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_stand_in_the_order_of_their_fields() {
        let all: Contexts = Context::ALL.into_iter().collect();
        let mut comm = [0; 16];
        comm[..2].copy_from_slice(b"ab");
        let values = Values { comm, priority: -1, cgroup: 5, ..Values::default() };
        let mut bytes = Vec::new();
        let event = EventContext { tid: 1, pid: 2, values: &values, stacks: [3, 4] };
        encode(all, &event, &mut bytes);
        let expected = [
            &[1, 0, 0, 0, 2, 0, 0, 0][..],
            b"ab\0",
            &[0xff; 4],
            &5u64.to_le_bytes(),
            &[3, 0, 0, 0, 4, 0, 0, 0],
        ];
        assert_eq!((bytes, fields(all).len()), (expected.concat(), 7));
        bytes = Vec::new();
        encode(Contexts::default(), &event, &mut bytes);
        assert_eq!((bytes.len(), fields(Contexts::default()).len()), (8, 2));
    }

    #[test]
    fn the_recorder_has_a_name() {
        assert_ne!(of_recorder().comm[0], 0);
    }
}
