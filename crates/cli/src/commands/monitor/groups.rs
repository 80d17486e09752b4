//! `--cgroup` and `--thread`: groups of threads that are counted separately, and their tables.

use crate::screen::{BOLD, DIM, END, YELLOW};
use std::fmt::Write;

use clap::Args;
use tompion_latency::{Cgroups, Group, GroupReport, Monitor, Report};

use super::table::{KindRow, Width, format_maximum, format_phases, format_time, write_kind_row};
use crate::messages::{escape_control, pluralize, print_status};

/// Argument that removes all groups.
const NO_GROUPS: &str = "none";

#[derive(Args)]
pub struct GroupArgs {
    /// Count the threads of this cgroup and of those below it separately, too: robot.slice,
    /// '/system.slice/robot@*' (repeatable). Replaces earlier groups; `none` removes all [default:
    /// unchanged]
    #[arg(long = "cgroup", value_name = "PATH", value_parser = cgroup)]
    cgroups: Vec<GroupChoice>,
    /// Count threads of this name separately, too: ctl, 'ctl*' (repeatable, as --cgroup)
    #[arg(long = "thread", value_name = "NAME", value_parser = threads)]
    threads: Vec<GroupChoice>,
}

/// Group to count; none for the argument `none`.
#[derive(Clone, Debug)]
struct GroupChoice(Option<Group>);

fn cgroup(text: &str) -> Result<GroupChoice, String> {
    if text == NO_GROUPS {
        return Ok(GroupChoice(None));
    }
    // A system without cgroups is reported when counting begins.
    let path = Cgroups::find().map_or_else(|_| text.to_owned(), |tree| tree.path_in(text));
    Group::cgroup(&path).map(|group| GroupChoice(Some(group)))
}

fn threads(text: &str) -> Result<GroupChoice, String> {
    if text == NO_GROUPS {
        return Ok(GroupChoice(None));
    }
    Group::threads(text).map(|group| GroupChoice(Some(group)))
}

impl GroupArgs {
    /// Returns whether groups are to be changed.
    pub fn is_requested(&self) -> bool {
        !self.cgroups.is_empty() || !self.threads.is_empty()
    }

    /// Counts the groups from now on, if any were given.
    pub fn apply(&self, monitor: &Monitor) -> anyhow::Result<()> {
        if !self.is_requested() {
            return Ok(());
        }
        let choices = self.cgroups.iter().chain(&self.threads);
        let groups: Vec<Group> = choices.filter_map(|choice| choice.0.clone()).collect();
        for group in monitor.set_groups(&groups)?.absent {
            let path = escape_control(group.pattern()).into_owned();
            print_status(format!("no cgroup {path} yet: its threads are counted once it exists"));
        }
        Ok(())
    }
}

/// Writes the tables of all groups, with the columns of the table of all threads.
pub fn write_tables(text: &mut String, report: &Report, width: Width) {
    for group in &report.groups {
        let since = match group.from_ns > report.from_ns {
            true => format!("{DIM}, since {}{END}", format_time(group.from_ns, "%-d %b %H:%M:%S")),
            false => String::new(),
        };
        let (noun, name) = (group.group.noun(), escape_control(group.group.pattern()));
        let _ = writeln!(text, "\n{BOLD}{noun} {name}{END}{since}");
        for (kind, found) in &group.kinds {
            let (max_us, max_is) = (found.max_us, found.max_is);
            let row = KindRow { name: kind.words(), histogram: &found.places, max_us, max_is };
            write_kind_row(text, &row, width);
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

/// Shortens tables to a number of lines.
pub fn shorten(tables: &str, max_lines: usize) -> String {
    let lines: Vec<&str> = tables.lines().collect();
    if lines.len() <= max_lines {
        return tables.to_owned();
    }
    let kept = max_lines.saturating_sub(1);
    let mut text: String = lines.iter().take(kept).flat_map(|line| [line, "\n"]).collect();
    let left_out = pluralize((lines.len() - kept) as u64, "line");
    let _ = writeln!(text, "{DIM}and {left_out} more group rows: tompion monitor --once{END}");
    text
}

/// Writes the maximum of each group, with its thread, time and phases.
pub fn write_maxima(text: &mut String, groups: &[GroupReport]) {
    for found in groups {
        let maxima =
            found.kinds.iter().filter_map(|(kind, found)| Some((kind, found, found.worst.as_ref()?)));
        let Some((kind, of_kind, late)) = maxima.max_by(|one, other| one.1.max_us.total_cmp(&other.1.max_us))
        else {
            continue;
        };
        let (noun, name) = (found.group.noun(), escape_control(found.group.pattern()));
        let thread = format!("{} {} ({})", escape_control(&late.name), late.tid, late.priority);
        let (us, when) =
            (format_maximum(of_kind.max_us, of_kind.max_is), format_time(late.time_ns, "%H:%M:%S%.6f"));
        let _ = writeln!(text, "{BOLD}of {noun} {name}{END}");
        let _ = writeln!(text, "{:<24} {BOLD}{us:>11}{END}  {thread} at {when}", kind.words());
        let _ = writeln!(text, "{:<38}{DIM}{}{END}", "", format_phases(late));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_without_room_are_counted() {
        assert_eq!(shorten("1\n2\n3\n", 3), "1\n2\n3\n");
        assert_eq!(
            shorten("1\n2\n3\n", 2),
            format!("1\n{DIM}and 2 lines more group rows: tompion monitor --once{END}\n")
        );
    }

    #[test]
    fn none_is_no_group() {
        assert!(cgroup("none").unwrap().0.is_none() && threads("none").unwrap().0.is_none());
        assert_eq!(threads("ctl*").unwrap().0, Some(Group::Thread("ctl*".into())));
        assert!(cgroup("").is_err() && threads("a*b").is_err());
    }
}
