//! Earlier names of metrics, exported beside the present ones for one version.
//!
//! Remove an entry of [`RENAMED`] in the version after the one that renamed it.

/// Metric that has a new name.
struct Renamed {
    old: &'static str,
    new: &'static str,
    /// Old and new name of a label, if that changed too.
    label: Option<(&'static str, &'static str)>,
}

const RENAMED: [Renamed; 6] = [
    renamed("tompion_sums_difference", "tompion_wakeup_accounting_error"),
    renamed("tompion_programs_not_started_total", "tompion_bpf_recursion_misses_total"),
    renamed("tompion_wakeups_without_row_total", "tompion_wakeups_unattributed_total"),
    renamed("tompion_wakeups_slept", "tompion_sched_sleeps"),
    renamed("tompion_thread_misses_total", "tompion_thread_period_overruns_total"),
    Renamed {
        old: "tompion_job_longest_seconds",
        new: "tompion_job_worst_response_seconds",
        label: Some(("part", "phase")),
    },
];

const fn renamed(old: &'static str, new: &'static str) -> Renamed {
    Renamed { old, new, label: None }
}

/// True if a metric has this name only for older dashboards and alerts.
#[cfg(test)]
pub fn is_old_name(name: &str) -> bool {
    RENAMED.iter().any(|metric| metric.old == name)
}

/// Returns the families of a page again that have a new name, under their earlier one.
pub fn families(page: &str) -> String {
    let mut text = String::new();
    for metric in &RENAMED {
        for line in page.lines() {
            text.extend(metric.line(line));
        }
    }
    text
}

impl Renamed {
    /// Returns a line of the page under the earlier name; none for a line of another metric.
    fn line(&self, line: &str) -> Option<String> {
        let Self { old, new, label } = self;
        if let Some(rest) = line.strip_prefix("# ") {
            let (keyword, rest) = rest.split_once(' ')?;
            let (_, rest) = rest.split_once(' ').filter(|(name, _)| name == new)?;
            return Some(match keyword {
                "HELP" => format!("# HELP {old} Deprecated, use {new}. {rest}\n"),
                _ => format!("# {keyword} {old} {rest}\n"),
            });
        }
        let rest = line.strip_prefix(new).filter(|rest| rest.starts_with(['{', ' ']))?;
        let rest = match label {
            // The last label, whose value has no special characters.
            Some((old, new)) => match rest.rsplit_once(&format!(",{new}=\"")) {
                Some((before, after)) => format!("{before},{old}=\"{after}"),
                None => rest.to_owned(),
            },
            None => rest.to_owned(),
        };
        Some(format!("{old}{rest}\n"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn renamed_families_have_both_names() {
        let page = "# HELP tompion_sched_sleeps Sleeps.\n\
                    # TYPE tompion_sched_sleeps gauge\n\
                    tompion_sched_sleeps 7\n\
                    # HELP tompion_wakeups_unseen Sleeps in tompion_sched_sleeps.\n\
                    tompion_wakeups_unseen 1\n";
        let expected = "# HELP tompion_wakeups_slept Deprecated, use tompion_sched_sleeps. Sleeps.\n\
                        # TYPE tompion_wakeups_slept gauge\n\
                        tompion_wakeups_slept 7\n";
        assert_eq!(families(page), expected);
        assert_eq!(families("tompion_wakeups_unseen 1\ntompion_sched_sleeps_more 2\n"), "");
    }

    #[test]
    fn a_renamed_label_has_its_earlier_name() {
        let line = "tompion_job_worst_response_seconds{name=\"a,phase=\\\"b\",phase=\"execution\"} 0.5\n";
        assert_eq!(
            families(line),
            "tompion_job_longest_seconds{name=\"a,phase=\\\"b\",part=\"execution\"} 0.5\n"
        );
    }
}
