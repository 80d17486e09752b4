//! Threads that are counted by themselves, too: which ones, and what is shown of them.

use std::fmt::Write;

use clap::Args;
use tompion_latency::{Cgroups, Group, GroupReport, Monitor, Report};

use super::text::{BOLD, DIM, END, Width, YELLOW, kind_row, longest, parts, time};
use crate::messages::{escape_control, pluralize, print_status};

/// What ends it all.
const NOTHING: &str = "none";

#[derive(Args)]
pub struct Wish {
    /// Count the threads of this cgroup and of those below it separately, too: robot.slice,
    /// '/system.slice/robot@*' (repeatable). Replaces earlier groups; `none` removes all [default:
    /// unchanged]
    #[arg(long = "cgroup", value_name = "PATH", value_parser = cgroup)]
    cgroups: Vec<Asked>,
    /// Count threads of this name separately, too: ctl, 'ctl*' (repeatable, as --cgroup)
    #[arg(long = "thread", value_name = "NAME", value_parser = threads)]
    threads: Vec<Asked>,
}

/// None for `none`.
#[derive(Clone, Debug)]
struct Asked(Option<Group>);

fn cgroup(text: &str) -> Result<Asked, String> {
    if text == NOTHING {
        return Ok(Asked(None));
    }
    // Where there are none, that is said when counting begins.
    let path = Cgroups::find().map_or_else(|_| text.to_owned(), |tree| tree.path_in(text));
    Group::cgroup(&path).map(|group| Asked(Some(group)))
}

fn threads(text: &str) -> Result<Asked, String> {
    if text == NOTHING {
        return Ok(Asked(None));
    }
    Group::threads(text).map(|group| Asked(Some(group)))
}

impl Wish {
    pub fn is_asked_for(&self) -> bool {
        !self.cgroups.is_empty() || !self.threads.is_empty()
    }

    /// Has them counted from now on, if any were asked for.
    pub fn begin(&self, monitor: &Monitor) -> anyhow::Result<()> {
        if !self.is_asked_for() {
            return Ok(());
        }
        let asked = self.cgroups.iter().chain(&self.threads);
        let groups: Vec<Group> = asked.filter_map(|asked| asked.0.clone()).collect();
        for group in monitor.set_groups(&groups)?.absent {
            let path = escape_control(group.pattern()).into_owned();
            print_status(format!("no cgroup {path} yet: its threads are counted once it exists"));
        }
        Ok(())
    }
}

/// Tables of all groups, below that of all threads, whose columns they have.
pub fn tables(text: &mut String, report: &Report, width: Width) {
    for group in &report.groups {
        let since = match group.from_ns > report.from_ns {
            true => format!("{DIM}, since {}{END}", time(group.from_ns, "%-d %b %H:%M:%S")),
            false => String::new(),
        };
        let (noun, name) = (group.group.noun(), escape_control(group.group.pattern()));
        let _ = writeln!(text, "\n{BOLD}{noun} {name}{END}{since}");
        for (kind, found) in &group.kinds {
            kind_row(text, (kind.words(), &found.places), (found.max_us, found.max_is), width);
        }
        if group.kinds.is_empty() {
            let _ = writeln!(text, "{DIM}none of its real-time threads has woken yet{END}");
        }
    }
    if report.cgroups_without_room > 0 {
        let without = pluralize(u64::from(report.cgroups_without_room), "cgroup");
        let _ = writeln!(text, "{YELLOW}{without} count in no group{END}: too many threads");
    }
}

/// As many of these lines as there is room for.
pub fn shortened(tables: &str, most: usize) -> String {
    let lines: Vec<&str> = tables.lines().collect();
    if lines.len() <= most {
        return tables.to_owned();
    }
    let kept = most.saturating_sub(1);
    let mut text: String = lines.iter().take(kept).flat_map(|line| [line, "\n"]).collect();
    let left_out = pluralize((lines.len() - kept) as u64, "line");
    let _ = writeln!(text, "{DIM}and {left_out} more group rows: tompion monitor --once{END}");
    text
}

/// The longest of each group, whose it was and in which parts.
pub fn worst(text: &mut String, groups: &[GroupReport]) {
    for found in groups {
        let told = found.kinds.iter().filter_map(|(kind, found)| Some((kind, found, found.worst.as_ref()?)));
        let Some((kind, of_kind, late)) = told.max_by(|one, other| one.1.max_us.total_cmp(&other.1.max_us))
        else {
            continue;
        };
        let (noun, name) = (found.group.noun(), escape_control(found.group.pattern()));
        let describe_sources = format!("{} {} ({})", escape_control(&late.name), late.tid, late.priority);
        let (us, when) = (longest(of_kind.max_us, of_kind.max_is), time(late.time_ns, "%H:%M:%S%.6f"));
        let _ = writeln!(text, "{BOLD}of {noun} {name}{END}");
        let _ = writeln!(text, "{:<24} {BOLD}{us:>11}{END}  {describe_sources} at {when}", kind.words());
        let _ = writeln!(text, "{:<38}{DIM}{}{END}", "", parts(late));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_room_is_said() {
        assert_eq!(shortened("1\n2\n3\n", 3), "1\n2\n3\n");
        assert_eq!(
            shortened("1\n2\n3\n", 2),
            format!("1\n{DIM}and 2 lines more group rows: tompion monitor --once{END}\n")
        );
    }

    #[test]
    fn none_is_nobody() {
        assert!(cgroup("none").unwrap().0.is_none() && threads("none").unwrap().0.is_none());
        assert_eq!(threads("ctl*").unwrap().0, Some(Group::Thread("ctl*".into())));
        assert!(cgroup("").is_err() && threads("a*b").is_err());
    }
}
