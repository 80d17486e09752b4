//! Sending of recordings until they are complete, or for ever.

use std::{
    collections::BTreeMap,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use tompion_segments::find_recordings;

use crate::{
    Pace, Target, Trouble,
    backoff::Backoff,
    session::{Means, Piece, Sent, Session},
};

/// Time between two looks at recordings that grow.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// Looks take at most one part of so many of the time: a recording may have very many files.
const LOOK_SHARE: u32 = 5;
/// Time between two searches for new recordings.
const SEARCH_INTERVAL: Duration = Duration::from_secs(1);

/// Options of sending.
#[derive(Debug)]
pub struct Options {
    /// Number of connections at one time.
    pub connections: usize,
    /// Whether to go on for ever, with recordings that come later.
    pub follow: bool,
    /// Rate and hours.
    pub pace: Pace,
}

/// Result of sending.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Recordings that the target has whole.
    pub recordings: usize,
    /// Segments that it acknowledged to this sender.
    pub segments: u64,
    /// Bytes of them, before compression.
    pub bytes: u64,
}

/// Sends the recordings in folders until the target has all of them, or for ever. `say` gets lines
/// for users: troubles that begin and end, and files that can't be sent.
///
/// # Errors
/// If a folder has no recording, in words. Troubles of the target are no error.
pub fn ship(
    folders: &[PathBuf],
    target: &dyn Target,
    options: &Options,
    say: &dyn Fn(&str),
) -> Result<Summary, String> {
    let sent = Sent::default();
    let means = Means {
        target,
        pace: &options.pace,
        connections: options.connections.max(1),
        sent: &sent,
        piece: Piece::default(),
    };
    let mut shipping = Shipping {
        means,
        say,
        sessions: BTreeMap::new(),
        trouble: None,
        backoff: Backoff::default(),
        lost: Vec::new(),
    };
    let mut searched: Option<Instant> = None;
    loop {
        let begun = Instant::now();
        if searched.is_none_or(|time| options.follow && time.elapsed() >= SEARCH_INTERVAL) {
            shipping.search(folders, options.follow)?;
            searched = Some(Instant::now());
        }
        match shipping.send_all(options.follow) {
            Outcome::Trouble => {
                thread::sleep(shipping.backoff.next());
                continue;
            }
            Outcome::HasMore => continue,
            Outcome::IsIdle => {}
        }
        if !options.follow && shipping.sessions.values().all(|one| one.session.is_none()) {
            break;
        }
        thread::sleep(LOOK_INTERVAL.max(begun.elapsed() * LOOK_SHARE));
    }
    if !shipping.lost.is_empty() {
        return Err(shipping.lost.join("; "));
    }
    let recordings = shipping.sessions.len();
    // Ordering: all threads that count have joined.
    let count = |number: &std::sync::atomic::AtomicUsize| number.load(Ordering::Relaxed) as u64;
    Ok(Summary { recordings, segments: count(&sent.segments), bytes: count(&sent.bytes) })
}

/// Outcome of an attempt to send all that is there.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Outcome {
    IsIdle,
    HasMore,
    Trouble,
}

/// Recording that is sent, or was.
struct Shipped {
    /// `None` once the target has it whole, or it is gone.
    session: Option<Session>,
    /// Its manifest as it was at the last look. Another recording may come to the same place.
    mark: Option<Mark>,
    backoff: Backoff,
    /// Time before which it is not tried again.
    not_before: Option<Instant>,
    /// Its present trouble, as it was said.
    trouble: Option<String>,
}

/// Identity of a manifest: device, inode, length, time.
type Mark = (u64, u64, u64, (i64, i64));

fn mark(folder: &Path) -> Option<Mark> {
    let metadata = std::fs::metadata(folder.join("tompion.json")).ok()?;
    let time = (metadata.mtime(), metadata.mtime_nsec());
    Some((metadata.dev(), metadata.ino(), metadata.len(), time))
}

impl Shipped {
    fn new(session: Session) -> Self {
        let backoff = Backoff::default();
        Self { session: Some(session), mark: None, backoff, not_before: None, trouble: None }
    }

    fn is_due(&self) -> bool {
        self.not_before.is_none_or(|time| time <= Instant::now())
    }
}

struct Shipping<'a> {
    means: Means<'a>,
    say: &'a dyn Fn(&str),
    /// Recordings by their folders.
    sessions: BTreeMap<PathBuf, Shipped>,
    /// The present trouble of the link, as it was said.
    trouble: Option<String>,
    backoff: Backoff,
    /// Recordings that were removed before all of them was sent, a line each.
    lost: Vec<String>,
}

impl Shipping<'_> {
    /// Looks for recordings that are new.
    fn search(&mut self, folders: &[PathBuf], follow: bool) -> Result<(), String> {
        for folder in folders {
            let found = find_recordings(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
            if found.is_empty() && !follow {
                return Err(format!(
                    "{}: expected a recording, or folders with recordings",
                    folder.display()
                ));
            }
            for path in found {
                let known = self.sessions.get(&path);
                if known.is_some_and(|known| known.session.is_some() || known.mark == mark(&path)) {
                    continue;
                }
                match Session::open(&path) {
                    Ok(session) => drop(self.sessions.insert(path, Shipped::new(session))),
                    // It is being made, or is none of ours.
                    Err(error) if follow => log::debug!("{error}"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sends what is there of all recordings, those of flight recorders first: they have few bytes,
    /// and a reason. One that fails keeps no others, unless the link is broken.
    fn send_all(&mut self, follow: bool) -> Outcome {
        let mut looks = Vec::new();
        let mut gone = Vec::new();
        for (path, shipped) in &mut self.sessions {
            let Some(session) = shipped.session.as_ref().filter(|_| shipped.is_due()) else { continue };
            let mark = mark(path);
            match session.look() {
                Ok(look) => looks.push((!look.is_flight_recorder, path.clone(), look)),
                Err(error) if session.is_gone() => gone.push((path.clone(), error)),
                Err(error) => log::debug!("{error}"),
            }
            shipped.mark = mark;
        }
        for (path, error) in gone {
            self.give_up(path, &error, follow);
        }
        let mut outcome = Outcome::IsIdle;
        looks.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (_, path, look) in looks {
            let Some(shipped) = self.sessions.get_mut(&path) else { continue };
            let Some(session) = &mut shipped.session else { continue };
            // Ordering: counted by threads that have joined.
            let before = self.means.sent.segments.load(Ordering::Relaxed);
            let result = session.send(&look, &self.means);
            let has_sent = self.means.sent.segments.load(Ordering::Relaxed) > before;
            match result {
                Ok(progress) => {
                    self.backoff.reset();
                    (shipped.backoff, shipped.not_before) = (Backoff::default(), None);
                    if progress.has_more {
                        outcome = Outcome::HasMore;
                    }
                    for trouble in self.trouble.take().into_iter().chain(shipped.trouble.take()) {
                        (self.say)(&format!("sending again, after: {trouble}"));
                    }
                    if progress.is_complete {
                        progress.problems.iter().for_each(|problem| (self.say)(problem));
                        log::debug!("{}: complete", session.path().display());
                        shipped.session = None;
                    }
                }
                Err(Trouble::Broken(text)) => {
                    // A link that breaks now and then is no reason to wait longer and longer.
                    if has_sent {
                        self.backoff.reset();
                    }
                    say_once(&mut self.trouble, text, self.say);
                    return Outcome::Trouble;
                }
                Err(trouble) => {
                    if has_sent {
                        shipped.backoff.reset();
                    }
                    shipped.not_before = Some(Instant::now() + shipped.backoff.next());
                    match trouble {
                        Trouble::Refused(text) => say_once(&mut shipped.trouble, text, self.say),
                        // It is solved by the next question.
                        trouble => log::debug!("{trouble}"),
                    }
                }
            }
        }
        outcome
    }

    /// Forgets a recording that was removed, or replaced: another one at its place is found by the
    /// next search.
    fn give_up(&mut self, path: PathBuf, error: &str, follow: bool) {
        let line = format!("{}: removed before all of it was sent: {error}", path.display());
        if follow {
            (self.say)(&line);
            self.sessions.remove(&path);
        } else if let Some(shipped) = self.sessions.get_mut(&path) {
            shipped.session = None;
            self.lost.push(line);
        }
    }
}

/// Says a trouble once.
fn say_once(known: &mut Option<String>, text: String, say: &dyn Fn(&str)) {
    if known.as_ref() != Some(&text) {
        say(&format!("not sent yet, trying again: {text}"));
        *known = Some(text);
    }
}
