//! Sources whose numbers were counted in the files of a trace, since its recorder was killed.

use crate::Source;

/// Cause of losses that packets tell apart from others.
pub const REFUSED: &str = "refused";

/// Adds a source whose numbers were counted in its files. They include processes of the same trace
/// that the session wrote down before it was killed, with a snapshot: those keep their numbers, and
/// the new source has the rest. Where the files have less than was written down, only the files
/// count.
pub fn add_counted(sources: &mut Vec<Source>, mut counted: Source) {
    let known: Vec<&Source> = sources.iter().filter(|source| source.path == counted.path).collect();
    let sum =
        |of: &dyn Fn(&Source) -> u64| known.iter().map(|source| of(source)).fold(0, u64::saturating_add);
    let (count, events) = (known.len(), sum(&|source| source.events));
    let overwritten = sum(&|source| source.overwritten);
    let refused = sum(&|source| source.lost.get(REFUSED).copied().unwrap_or(0));
    let lost = sum(&|source| source.lost.values().copied().fold(0, u64::saturating_add));
    if events > counted.events {
        sources.retain(|source| source.path != counted.path);
    } else if count > 0 {
        counted.events -= events;
        counted.overwritten = counted.overwritten.saturating_sub(overwritten);
        for (cause, count) in &mut counted.lost {
            let counted_before = if cause == REFUSED { refused } else { lost.saturating_sub(refused) };
            *count = count.saturating_sub(counted_before);
        }
        counted.lost.retain(|_, count| *count != 0);
        let is_empty = counted.events == 0 && counted.overwritten == 0 && counted.lost.is_empty();
        if is_empty && !counted.losses_unknown {
            return;
        }
    }
    sources.push(counted);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(path: &str, pid: i64, events: u64, lost: &[(&str, u64)]) -> Source {
        let lost = lost.iter().map(|(cause, count)| ((*cause).into(), *count)).collect();
        Source { path: path.into(), pid: Some(pid), events, lost, ..Source::default() }
    }

    #[test]
    fn what_was_written_down_before_is_not_counted_again() {
        let known = vec![
            source("user/shared", 5, 7, &[("full", 2)]),
            source("user/shared", 6, 8, &[(REFUSED, 1)]),
            source("user/a-7", 7, 9, &[]),
        ];
        let mut sources = known.clone();
        add_counted(&mut sources, source("user/shared", 0, 20, &[("discarded", 5), (REFUSED, 1)]));
        assert_eq!(sources[..3], known);
        assert_eq!(sources[3], source("user/shared", 0, 5, &[("discarded", 3)]));
        add_counted(&mut sources, source("user/a-7", 7, 9, &[]));
        assert_eq!(sources.len(), 4, "nothing is left to tell");
        add_counted(&mut sources, source("user/b-8", 8, 1, &[]));
        assert_eq!(sources[4], source("user/b-8", 8, 1, &[]));
    }

    #[test]
    fn where_the_files_have_less_only_they_count() {
        let mut sources = vec![source("user/a-7", 7, 9, &[]), source("user/b-8", 8, 1, &[])];
        add_counted(&mut sources, source("user/a-7", 7, 4, &[]));
        assert_eq!(sources, [source("user/b-8", 8, 1, &[]), source("user/a-7", 7, 4, &[])]);
    }
}
