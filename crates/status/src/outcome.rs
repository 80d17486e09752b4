//! Outcome of a recording as text: its sources, and what was lost.

use tompion_manifest::{KERNEL, Manifest, RECORDER};
use tompion_terminal::messages::{nearest_hint, pluralize, with_thousands};

/// Loss cause of events that could not be written, for instance on a full disk.
pub const NOT_WRITTEN: &str = "not_written";

/// Describes the sources that have events.
pub fn describe_sources(manifest: &Manifest) -> String {
    let with_events = || manifest.sources.iter().filter(|source| source.events != 0);
    let of_processes = || with_events().filter(|source| ![KERNEL, RECORDER].contains(&source.kind.as_str()));
    let processes = of_processes().filter(|source| source.pid.is_some()).count() as u64;
    // A killed recorder did not write how many processes share a trace.
    let is_shared = of_processes().any(|source| source.pid.is_none());
    let kernel = with_events().any(|source| source.kind == KERNEL);
    let mut parts = Vec::new();
    if kernel {
        parts.push("the kernel".to_owned());
    }
    if processes != 0 || !kernel && !is_shared {
        parts.push(pluralize(processes, "process"));
    }
    if is_shared {
        parts.push("an unknown number of short-lived processes".to_owned());
    }
    parts.join(" and ")
}

/// Adds counts, which faulty programs may have set to any value.
pub fn total(counts: impl Iterator<Item = u64>) -> u64 {
    counts.fold(0, u64::saturating_add)
}

/// Describes the losses, with their causes and advice.
pub fn losses(manifest: &Manifest, lost: u64) -> String {
    let overwritten = total(manifest.sources.iter().map(|source| source.overwritten));
    let mut causes = manifest.lost_by_cause();
    // A recorder can't record these: the child runs in its parent's memory.
    let untraced = causes.remove(tompion_manifest::VFORK_CHILD).unwrap_or(0);
    let lost = lost.saturating_sub(untraced);
    let causes: Vec<String> =
        causes.iter().map(|(cause, count)| format!("{cause}: {}", with_thousands(*count))).collect();
    // In this state, a killed recording was not recovered yet.
    let is_known = !manifest.losses_unknown && !manifest.is_recording();
    let mut text = match (is_known, lost) {
        (true, 0) => nothing_lost(manifest),
        (false, 0) => "losses not known".to_owned(),
        (true, lost) => format!("{} LOST ({})", with_thousands(lost), causes.join(", ")),
        (false, lost) => format!("{} or more LOST ({})", with_thousands(lost), causes.join(", ")),
    };
    let unknown = manifest.sources.iter().filter(|source| source.losses_unknown).count() as u64;
    if unknown != 0 {
        let processes = pluralize(unknown, "process");
        text = format!("losses of {processes} UNKNOWN (their counts are impossible), {text}");
    }
    // The most important part comes first: "none lost" must not hide processes that were not
    // recorded.
    if manifest.rejected_processes != 0 {
        text = format!("{} NOT RECORDED, {text}", pluralize(manifest.rejected_processes, "process"));
    }
    if overwritten != 0 {
        text += &format!(", {} overwritten by design", with_thousands(overwritten));
    }
    if untraced != 0 {
        text += &format!(", {} of vfork children not traced", pluralize(untraced, "event"));
    }
    // Rings also fill up if nothing can be written.
    if causes.iter().any(|cause| cause.starts_with(NOT_WRITTEN)) {
        text += " (make room there, or record elsewhere: -o DIR)";
    } else if causes.iter().any(|cause| cause.starts_with("full")) {
        text += " (try a larger --subbuf-size)";
    }
    text
}

/// Says that nothing was lost, of the processes of which that is known.
fn nothing_lost(manifest: &Manifest) -> String {
    let unknown = manifest.sources.iter().any(|source| source.losses_unknown);
    if unknown || manifest.rejected_processes != 0 { "none lost of the others" } else { "none lost" }
        .to_owned()
}

/// Says that no known event fired, with some of their names.
pub fn none_fired(known: &[(String, String)]) -> String {
    let names: Vec<String> =
        known.iter().take(3).map(|(provider, name)| format!("{provider}:{name}")).collect();
    let more = if known.len() > names.len() { ", …" } else { "" };
    if known.len() == 1 {
        return format!("the only known event did not fire ({})", names.join(", "));
    }
    let count = pluralize(known.len() as u64, "known event");
    format!("none of the {count} fired ({}{more})", names.join(", "))
}

/// Suggests names for a glob that matches no event.
pub fn suggestion(glob: &str, known: &[(String, String)]) -> String {
    let names: Vec<String> = known.iter().map(|(provider, name)| format!("{provider}:{name}")).collect();
    let hint = nearest_hint(glob, names.iter().map(String::as_str));
    if !hint.is_empty() {
        return hint;
    }
    let some: Vec<&str> = names.iter().take(3).map(String::as_str).collect();
    let more = if names.len() > some.len() { ", …" } else { "" };
    if some.is_empty() { String::new() } else { format!("; there are {}{more}", some.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::none_fired;

    #[test]
    fn events_that_did_not_fire_are_counted_and_named() {
        let known = |names: &[&str]| -> Vec<(String, String)> {
            names.iter().map(|name| ("db".to_owned(), (*name).to_owned())).collect()
        };
        assert_eq!(none_fired(&known(&["a"])), "the only known event did not fire (db:a)");
        assert_eq!(
            none_fired(&known(&["a", "b", "c", "d"])),
            "none of the 4 known events fired (db:a, db:b, db:c, …)"
        );
    }
}
