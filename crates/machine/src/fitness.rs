//! Checks of a machine's settings for real-time programs: the present state, why it matters, and
//! how to change it.
//!
//! Each check reads a few files below a [`Root`] and judges nothing that it can't read. Nothing is
//! changed.

mod kernel;
mod limits;
mod memory;
mod processors;

use serde::Serialize;

use crate::{CpuSet, Root, Unread};

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The setting is as real-time programs need it.
    Good,
    /// Costs latency, rarely or a little.
    Drawback,
    /// Bounds on latency can't be expected.
    Bad,
    /// The setting could not be read.
    Unknown,
}

/// Finding of a check.
#[derive(Debug, Serialize)]
pub struct Finding {
    /// The check.
    pub name: &'static str,
    /// The result.
    pub state: State,
    /// The present setting.
    pub found: String,
    /// The reason why it matters.
    pub why: &'static str,
    /// Steps that change it, a line each, most of them commands for root's shell; none where it is
    /// good.
    pub mend: Option<String>,
}

/// Finding of a check, without what doesn't depend on the machine.
struct Look {
    state: State,
    found: String,
    mend: Option<String>,
}

impl Look {
    fn good(found: impl Into<String>) -> Self {
        Self { state: State::Good, found: found.into(), mend: None }
    }

    fn drawback(found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { state: State::Drawback, found: found.into(), mend: Some(mend.into()) }
    }

    fn bad(found: impl Into<String>, mend: impl Into<String>) -> Self {
        Self { state: State::Bad, found: found.into(), mend: Some(mend.into()) }
    }

    fn unknown(unread: &Unread, mend: &str) -> Self {
        let found = format!("can't read {}: {}", unread.path, unread.reason());
        Self { state: State::Unknown, found, mend: Some(mend.into()) }
    }
}

/// A check: its name, why it matters, and how to find out.
struct Check {
    name: &'static str,
    why: &'static str,
    look: fn(&Root) -> Look,
}

/// Looks at everything, in the order of a reader's interest: the kernel, its processors, memory,
/// the user.
pub fn examine(root: &Root) -> Vec<Finding> {
    let checks = [kernel::CHECKS, processors::CHECKS, memory::CHECKS, limits::CHECKS].into_iter().flatten();
    let findings = checks.map(|check| {
        let Look { state, found, mend } = (check.look)(root);
        Finding { name: check.name, state, found, why: check.why, mend }
    });
    findings.collect()
}

/// The choice in brackets of a file such as `always [madvise] never`, or in parentheses.
fn chosen(text: &str) -> Option<&str> {
    let marked = |word: &&str| word.starts_with(['[', '(']);
    text.split_whitespace().find(marked).map(|word| word.trim_matches(['[', ']', '(', ')']))
}

/// The value of a parameter that the kernel was started with: `NAME=VALUE`, the last one if there
/// are several.
fn boot_parameter(root: &Root, name: &str) -> Option<String> {
    let line = root.read_if_any("/proc/cmdline")?;
    let mut values = line.split_whitespace().filter_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    values.next_back().map(str::to_owned)
}

/// Whether the kernel was started with a word.
fn has_boot_word(root: &Root, word: &str) -> bool {
    root.read_if_any("/proc/cmdline").is_some_and(|line| line.split_whitespace().any(|found| found == word))
}

/// The CPUs that are online.
fn online(root: &Root) -> Option<CpuSet> {
    CpuSet::from_list(&root.read_if_any("/sys/devices/system/cpu/online")?).ok()
}

/// The CPUs that the scheduler spreads nothing to, as the kernel was started, or by cpusets (Linux
/// 6.7 and later).
fn isolated(root: &Root) -> Option<CpuSet> {
    let files = ["/sys/devices/system/cpu/isolated", "/sys/fs/cgroup/cpuset.cpus.isolated"];
    let texts = files.iter().filter_map(|file| root.read_if_any(file));
    let sets: Vec<CpuSet> = texts.filter_map(|text| CpuSet::from_list(&text).ok()).collect();
    (!sets.is_empty()).then(|| sets.iter().flat_map(CpuSet::iter).collect())
}

/// A machine of files, for the tests of the checks.
#[cfg(test)]
struct MadeUp(tempfile::TempDir);

#[cfg(test)]
impl MadeUp {
    fn new(files: &[(&str, &str)]) -> Self {
        let machine = Self(tempfile::tempdir().unwrap());
        for (path, text) in files {
            let place = machine.root().place(path);
            std::fs::create_dir_all(place.parent().unwrap()).unwrap();
            std::fs::write(place, text).unwrap();
        }
        machine
    }

    fn root(&self) -> Root {
        Root::new(self.0.path())
    }

    /// Finding of the check of this name.
    #[track_caller]
    fn look(&self, name: &str) -> Finding {
        examine(&self.root()).into_iter().find(|finding| finding.name == name).expect("a check of this name")
    }
}

/// Checks that `name` has this state on a machine of these files, and that its text has the words.
#[cfg(test)]
#[track_caller]
fn check(name: &str, files: &[(&str, &str)], (state, words): (State, &[&str])) {
    let finding = MadeUp::new(files).look(name);
    assert_eq!(finding.state, state, "{finding:?}");
    let said = format!("{} {}", finding.found, finding.mend.clone().unwrap_or_default());
    for word in words {
        assert!(said.contains(word), "no `{word}` in {said}");
    }
    assert_eq!(finding.mend.is_none(), state == State::Good, "{finding:?}");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_can_not_be_read_is_said_and_not_judged() {
        let findings = examine(&MadeUp::new(&[]).root());
        assert!(findings.len() >= 15);
        for finding in findings {
            assert_eq!(finding.state, State::Unknown, "{finding:?}");
            assert!(finding.found.contains("/proc/") || finding.found.contains("/sys/"), "{finding:?}");
            assert!(finding.mend.is_some() && !finding.why.is_empty());
        }
    }

    #[test]
    fn garbage_is_no_reason_to_end() {
        for text in ["", "\u{0}", "-1", "99999999999999999999", "[", "4-1", "a b c\n\n:"] {
            let paths = [
                "/sys/kernel/realtime",
                "/proc/version",
                "/proc/cmdline",
                "/sys/kernel/debug/sched/preempt",
                "/proc/sys/kernel/sched_rt_runtime_us",
                "/proc/sys/kernel/sched_rt_period_us",
                "/sys/devices/system/cpu/online",
                "/sys/devices/system/cpu/isolated",
                "/proc/irq/1/smp_affinity_list",
                "/sys/devices/system/cpu/cpu0/cpuidle/state1/latency",
                "/proc/self/limits",
                "/proc/self/status",
                "/proc/swaps",
                "/sys/kernel/mm/transparent_hugepage/enabled",
            ];
            let files: Vec<(&str, &str)> = paths.iter().map(|path| (*path, text)).collect();
            assert!(examine(&MadeUp::new(&files).root()).iter().all(|finding| !finding.found.is_empty()));
        }
    }

    #[test]
    fn choices_and_parameters_are_found() {
        assert_eq!(chosen("always [madvise] never"), Some("madvise"));
        assert_eq!(chosen("none voluntary (full)"), Some("full"));
        assert_eq!(chosen("none"), None);
        let machine = MadeUp::new(&[("/proc/cmdline", "quiet preempt=full nohz_full=1 nohz_full=2-3\n")]);
        assert_eq!(boot_parameter(&machine.root(), "nohz_full").as_deref(), Some("2-3"));
        assert_eq!(boot_parameter(&machine.root(), "nohz"), None);
        assert!(has_boot_word(&machine.root(), "quiet") && !has_boot_word(&machine.root(), "nosmt"));
    }
}
