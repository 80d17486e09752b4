//! The chunk in which a recorder goes on, or a recovery ends, when the one before was killed.

use std::io;

use tompion_chunks::{committed_chunks, dropped_chunk, open_chunk};
use tompion_manifest as manifest;
use tompion_os::DirHandle;

use crate::{ChunkBegin, Ended, files};

/// The chunk in which a recorder goes on.
#[derive(Clone, Debug, Default)]
pub struct TakeOver {
    /// State with which it began.
    pub begin: ChunkBegin,
    /// Processes that have ended.
    pub ended: Ended,
}

/// Does the rest of a rotation, or of a drop, that the recorder of the recording in `folder` was
/// killed in, and returns the chunk in which it goes on; its folder may have to be made.
///
/// # Errors
/// A line for people: what can't be read or done.
pub fn take_over(folder: &DirHandle, backing: &DirHandle, is_durable: bool) -> Result<TakeOver, String> {
    let in_words = |error: io::Error| format!("{}: {error}", folder.path().display());
    finish_drop(folder, backing, is_durable)?;
    let number = match open_chunk(folder).map_err(in_words)? {
        Some((number, open, committed)) if open.has(manifest::FILE) => {
            open.rename_to(&committed).and_then(|()| folder.sync()).map_err(in_words)?;
            number + 1
        }
        Some((number, ..)) => number,
        None => {
            let committed = committed_chunks(folder).map_err(in_words)?;
            let newest = committed.last().map_or(0, |(number, _)| *number);
            // A user may have removed it.
            newest.max(newest_state(backing)?.saturating_sub(1)) + 1
        }
    };
    let found = files::read(backing, &files::begin_of(number))?;
    let begin = found.unwrap_or(ChunkBegin { number, ..ChunkBegin::default() });
    let ended = Ended::read(backing, number)?;
    forget_others(backing, number)?;
    Ok(TakeOver { begin, ended })
}

/// Does the rest of a drop that was begun.
fn finish_drop(folder: &DirHandle, backing: &DirHandle, is_durable: bool) -> Result<(), String> {
    let in_words = |error: io::Error| format!("{}: {error}", folder.path().display());
    let Some((number, dropped)) = dropped_chunk(folder).map_err(in_words)? else { return Ok(()) };
    if backing.has(files::cleared(number)) {
        let mut ended = Ended::read(backing, number)?;
        ended.drop_chunk();
        ended.write(backing, is_durable).map_err(in_words)?;
        let renamed = backing.rename(files::cleared(number), backing, files::begin_of(number));
        renamed.map_err(in_words)?;
    }
    dropped.remove_all().map_err(in_words)
}

fn numbers(backing: &DirHandle) -> Result<Vec<(u64, String)>, String> {
    let names = backing.names().map_err(|error| format!("{}: {error}", backing.path().display()))?;
    let names = names.into_iter().filter_map(|name| name.into_string().ok());
    Ok(names.filter_map(|name| Some((files::number_in(&name)?, name))).collect())
}

fn newest_state(backing: &DirHandle) -> Result<u64, String> {
    Ok(numbers(backing)?.into_iter().map(|(number, _)| number).max().unwrap_or(0))
}

/// Removes the states of steps that were not done.
fn forget_others(backing: &DirHandle, number: u64) -> Result<(), String> {
    let kept = files::begin_of(number);
    numbers(backing)?.into_iter().filter(|(_, name)| *name != kept).for_each(|(_, name)| {
        // It is written again before it is needed.
        let _ = backing.remove(name);
    });
    Ok(())
}

#[cfg(test)]
mod tests {
    use tompion_chunks::{Policy, Series};
    use tompion_manifest::Source;
    use tompion_testing::TestDir;

    use super::*;

    /// Steps of a rotation or a drop, as in the crate's description.
    type Steps<'a> = [&'a dyn Fn(&mut Series, &DirHandle); 6];

    fn begin(number: u64) -> ChunkBegin {
        ChunkBegin { number, begin_ns: Some(1000 * number), ..ChunkBegin::default() }
    }

    fn ended(number: u64) -> Ended {
        let source = |events| Source { path: "user/a-1".into(), events, ..Source::default() };
        Ended { number, in_chunk: vec![source(3)], in_all: vec![source(7)], bytes: 9, ..Ended::default() }
    }

    /// Takes over after so many steps: the chunk, its begin, and the events of all.
    fn after(steps: &Steps<'_>, count: usize) -> (u64, Option<u64>, u64, usize) {
        let dir = TestDir::new("takeover");
        let folder = DirHandle::open(&dir).expect("a folder");
        let backing = folder.create_below(".restart").expect("a folder");
        let mut series = Series::begin(folder.clone(), Policy::default()).expect("a chunk");
        begin(1).write(&backing, false).expect("a state");
        ended(1).write(&backing, false).expect("a list");
        steps.iter().take(count).for_each(|step| step(&mut series, &backing));
        let first = take_over(&folder, &backing, false).expect("a chunk");
        // It may be killed before it has done anything.
        let TakeOver { begin, ended } = take_over(&folder, &backing, false).expect("a chunk");
        assert_eq!((&begin, &ended), (&first.begin, &first.ended));
        assert!(dropped_chunk(&folder).expect("names").is_none());
        assert_eq!(numbers(&backing).expect("names").len(), 1, "after {count} steps");
        Series::resume(folder, Policy::default(), begin.number, Default::default()).expect("a series");
        (begin.number, begin.begin_ns, ended.in_all[0].events, ended.in_chunk.len())
    }

    #[test]
    fn a_rotation_is_done_or_not_after_each_of_its_steps() {
        let steps: Steps<'_> = [
            &|_, backing| begin(2).write(backing, false).expect("a state"),
            &|series, _| {
                series.open().replace(manifest::FILE, b"{}", false).expect("a manifest");
            },
            &|series, _| {
                series.commit(9).expect("another name");
            },
            &|series, _| series.begin_next().expect("a folder"),
            &|_, backing| crate::forget(backing, 1),
            &|_, _| {},
        ];
        for count in 0..2 {
            assert_eq!(after(&steps, count), (1, Some(1000), 7, 1), "after {count} steps");
        }
        for count in 2..=6 {
            assert_eq!(after(&steps, count), (2, Some(2000), 7, 0), "after {count} steps");
        }
    }

    #[test]
    fn a_drop_is_done_or_not_after_each_of_its_steps() {
        let cleared = || ChunkBegin { begin_ns: Some(5), ..begin(1) };
        let steps: Steps<'_> = [
            &|_, backing| cleared().write_cleared(backing, false).expect("a state"),
            &|series, _| series.set_aside().expect("another name"),
            &|_, backing| {
                let mut ended = ended(1);
                ended.drop_chunk();
                ended.write(backing, false).expect("a list");
            },
            &|_, backing| cleared().confirm_cleared(backing).expect("another name"),
            &|series, _| series.drop_open().expect("a folder"),
            &|_, _| {},
        ];
        for count in 0..2 {
            assert_eq!(after(&steps, count), (1, Some(1000), 7, 1), "after {count} steps");
        }
        for count in 2..=6 {
            assert_eq!(after(&steps, count), (1, Some(5), 4, 0), "after {count} steps");
        }
    }
}
