//! Difference between the session that runs and the one that its files describe.

use std::collections::BTreeMap;

use crate::session_file::{Channel, SessionFile};

/// Change of a channel to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// Start its recorder: it is new.
    Start,
    /// End its recorder: it is gone.
    Stop,
    /// Replace its rules and its triggers, while it runs.
    Rules,
    /// Start its recorder again.
    Restart {
        /// The keys that differ.
        keys: Vec<String>,
        /// Whether its rules or triggers differ, too, which can be replaced before.
        rules: bool,
    },
}

/// Compares what runs with a description. `running` has, for each channel with a recorder, the
/// session as its recorder follows it. Returns what differs, by channels.
pub fn difference(running: &BTreeMap<String, SessionFile>, wanted: &SessionFile) -> BTreeMap<String, Change> {
    let names = running.keys().chain(wanted.channel.keys());
    let compare = |name: &String| match (running.get(name), wanted.channel.get(name)) {
        (Some(_), None) => Some(Change::Stop),
        (None, _) => Some(Change::Start),
        (Some(before), Some(after)) => compare(before.channel.get(name)?, after, common_keys(before, wanted)),
    };
    names.filter_map(|name| Some((name.clone(), compare(name)?))).collect()
}

/// Keys of the session that every channel's recorder must start again for.
fn common_keys(running: &SessionFile, wanted: &SessionFile) -> Vec<String> {
    let mut keys = Vec::new();
    for (key, differs) in [
        ("output", running.output != wanted.output),
        ("programs", running.programs != wanted.programs),
        // Names of recordings have the channel's name only beside another one.
        ("channel", (running.channel.len() == 1) != (wanted.channel.len() == 1)),
    ] {
        if differs {
            keys.push(key.to_owned());
        }
    }
    keys
}

fn compare(before: &Channel, after: &Channel, common: Vec<String>) -> Option<Change> {
    let mut keys = common;
    for (key, differs) in [
        ("context", before.context != after.context),
        ("kernel", before.kernel != after.kernel && !before.can_take_kernel_of(after)),
        ("mode", before.mode != after.mode),
        ("memory", before.memory != after.memory),
        ("subbuf-size", before.subbuf_size != after.subbuf_size),
        ("subbufs", before.subbufs != after.subbufs),
        ("prefault", before.prefault != after.prefault),
        ("rotate", before.rotate != after.rotate),
        ("keep", before.keep != after.keep),
        ("trigger", before.trigger != after.trigger && !before.can_take_triggers_of(after)),
        ("count", before.count != after.count),
        ("linger", before.linger != after.linger),
    ] {
        if differs {
            keys.push(key.to_owned());
        }
    }
    let triggers = before.trigger != after.trigger && before.can_take_triggers_of(after);
    let rules = triggers || !before.has_rules_of(after);
    match (keys.is_empty(), rules) {
        (false, rules) => Some(Change::Restart { keys, rules }),
        (true, true) => Some(Change::Rules),
        (true, false) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(text: &str) -> SessionFile {
        SessionFile::parse(text).expect("a session")
    }

    #[test]
    fn each_key_has_its_way_to_change() {
        let all = session("[channel.a]\nevents = ['x:*']\n[channel.b]");
        let running: BTreeMap<String, SessionFile> =
            all.channel.keys().map(|name| (name.clone(), all.clone())).collect();
        let restart = |keys: &[&str], rules: bool| Change::Restart {
            keys: keys.iter().map(|key| (*key).to_owned()).collect(),
            rules,
        };
        let changes = |text: &str| difference(&running, &session(text)).into_iter().collect::<Vec<_>>();
        assert_eq!(changes("start = 'boot'\n[channel.a]\nevents = ['x:*']\n[channel.b]"), []);
        assert_eq!(
            changes("[channel.a]\nevents = ['y:*']\nfilter = 'n > 1'\n[channel.b]\nlevel = 'info'"),
            [("a".to_owned(), Change::Rules), ("b".to_owned(), Change::Rules)]
        );
        assert_eq!(
            changes("[channel.a]\nevents = ['x:*']\n[channel.b]\nmode = 'overwrite'\nlevel = 'info'"),
            [("b".to_owned(), restart(&["mode"], true))]
        );
        assert_eq!(
            changes("[channel.a]\nevents = ['x:*']\ntrigger = ['loss -> notify']\n[channel.b]"),
            [("a".to_owned(), Change::Rules)]
        );
        let snapshots = "[channel.a]\nevents = ['x:*']\nmode = 'overwrite'\ntrigger = ['loss -> snapshot']";
        assert_eq!(
            changes(&format!("{snapshots}\n[channel.b]")),
            [("a".to_owned(), restart(&["mode", "trigger"], false))]
        );
        assert_eq!(
            changes("[channel.b]\n[channel.c]"),
            [("a".to_owned(), Change::Stop), ("c".to_owned(), Change::Start)]
        );
        assert_eq!(
            changes("[channel.a]\nevents = ['x:*']"),
            [("a".to_owned(), restart(&["channel"], false)), ("b".to_owned(), Change::Stop)]
        );
        assert_eq!(difference(&BTreeMap::new(), &session("[channel.a]"))["a"], Change::Start);
        let of_kernel = |before: &str, after: &str| {
            let channel = |keys: &str| session(&format!("[channel.a]\n{keys}"));
            difference(&[("a".to_owned(), channel(before))].into(), &channel(after)).remove("a")
        };
        let (some, others) = ("kernel = ['sched_*', 'kprobe:f']", "kernel = ['kprobe:f', 'irq_*']");
        assert_eq!(of_kernel(some, some), None);
        assert_eq!(of_kernel(some, others), Some(Change::Rules));
        assert_eq!(of_kernel(some, "kernel = ['sched_*']"), Some(restart(&["kernel"], false)), "a probe");
        assert_eq!(of_kernel("", some), Some(restart(&["kernel"], false)), "programs are to be loaded");
        let filter = "\nfilter = 'n > 1'";
        let both = (format!("{some}{filter}"), format!("{others}{filter}"));
        assert_eq!(of_kernel(&both.0, &both.1), Some(restart(&["kernel"], false)));
        let all = changes("output = '/x'\nprograms = ['*']\n[channel.a]\nevents = ['x:*']\n[channel.b]");
        assert_eq!(all.len(), 2);
        assert_eq!(all[1].1, restart(&["output", "programs"], false));
    }
}
