//! Numbers of `/proc/PID/stat`.

use std::{fs, path::Path};

/// Field with a process's start time. Source: `proc_pid_stat(5)`.
const START_TIME: usize = 22;

/// Reads a number of the `stat` file in a process's folder below `/proc`, by its position from 3
/// on. Source: `proc_pid_stat(5)`.
pub fn stat_field(process: &Path, field: usize) -> Option<u64> {
    let stat = fs::read(process.join("stat")).ok()?;
    field_of(&String::from_utf8_lossy(&stat), field)
}

/// Returns the start time of a process, in clock ticks since the machine was started. With its id,
/// it names a process for good: ids are used again.
pub fn start_ticks(pid: u32) -> Option<u64> {
    stat_field(Path::new(&format!("/proc/{pid}")), START_TIME)
}

fn field_of(stat: &str, field: usize) -> Option<u64> {
    // The name before it may have blanks and parentheses.
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.trim_end().split(' ').nth(field.checked_sub(3)?)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_counted_behind_the_name() {
        let stat = "12 (a) b (\u{fffd}) 7) S 4 5 6\n";
        assert_eq!((field_of(stat, 4), field_of(stat, 6)), (Some(4), Some(6)));
        assert_eq!((field_of(stat, 3), field_of(stat, 2), field_of(stat, 7)), (None, None, None));
    }

    #[test]
    fn a_process_keeps_its_start_time() {
        let own = start_ticks(std::process::id());
        assert!(own.is_some_and(|ticks| ticks > 0) && own == start_ticks(std::process::id()));
        assert_eq!(start_ticks(u32::MAX), None);
    }
}
