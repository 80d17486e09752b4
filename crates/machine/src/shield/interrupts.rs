//! Interrupts of devices, and work that the kernel gives to CPUs.

use super::{Error, Moved, Places, notes::Notes};
use crate::{CpuSet, root::words_of};

/// Moves away what can be moved, and lists the rest.
pub(super) fn move_away(places: Places<'_>, notes: &mut Notes, moved: &mut Moved) {
    for (number, name) in places.root.numbered("/proc/irq", "") {
        // Each device that uses the interrupt has a folder here.
        let devices = devices(places, &name);
        if devices.is_empty() {
            continue;
        }
        let path = format!("/proc/irq/{number}/smp_affinity_list");
        match restrict(places, notes, &path, Form::List) {
            Ok(true) => moved.interrupts += 1,
            Ok(false) => {}
            Err(reason) => moved.problems.push(format!("interrupt {number} ({devices}) stays: {reason}")),
        }
    }
    // Those that come later; the kernel's work that is bound to no CPU; its watchdogs.
    let others = [
        ("/proc/irq/default_smp_affinity", Form::Mask, "new interrupts may come to all CPUs"),
        ("/sys/devices/virtual/workqueue/cpumask", Form::Mask, "the kernel's work may run on all CPUs"),
        ("/proc/sys/kernel/watchdog_cpumask", Form::List, "watchdogs stay on all CPUs"),
    ];
    for (path, form, consequence) in others {
        if let Err(reason) = restrict(places, notes, path, form) {
            moved.problems.push(format!("{consequence} ({path}): {reason}"));
        }
    }
}

fn devices(places: Places<'_>, number: &str) -> String {
    let folder = format!("/proc/irq/{number}");
    let names = places.root.names(&folder).into_iter();
    let devices: Vec<String> =
        names.filter(|name| places.root.place(&format!("{folder}/{name}")).is_dir()).collect();
    devices.join(", ")
}

/// Format in which a file names CPUs.
#[derive(Clone, Copy)]
enum Form {
    List,
    Mask,
}

/// Takes the CPUs out of a file. Whether they were in it; a file that isn't there has none.
fn restrict(places: Places<'_>, notes: &mut Notes, path: &str, form: Form) -> Result<bool, String> {
    let before = match places.root.read(path) {
        Ok(text) => text,
        Err(unread) if unread.is_missing() => return Ok(false),
        Err(unread) => return Err(unread.reason()),
    };
    let read = match form {
        Form::List => CpuSet::from_list(&before),
        Form::Mask => CpuSet::from_mask(&before),
    };
    let Some(after) = places.moved(&read.map_err(|wrong| wrong.to_string())?) else { return Ok(false) };
    let after = match form {
        Form::List => after.to_string(),
        Form::Mask => after.mask(),
    };
    match notes.set(path, &before, &after) {
        Ok(()) => Ok(true),
        Err(Error::Unwritten(_, error)) => Err(words_of(&error)),
        Err(error) => Err(error.to_string()),
    }
}
