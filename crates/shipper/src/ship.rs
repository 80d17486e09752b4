//! Sending of recordings until they are complete, or for ever.

use std::{
    collections::BTreeMap,
    path::PathBuf,
    sync::atomic::Ordering,
    thread,
    time::{Duration, Instant},
};

use tompion_segments::find_recordings;

use crate::{
    Pace, Target, Trouble,
    backoff::Backoff,
    session::{Means, Sent, Session},
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
    let means = Means { target, pace: &options.pace, connections: options.connections.max(1), sent: &sent };
    let mut shipping =
        Shipping { means, say, sessions: BTreeMap::new(), trouble: None, backoff: Backoff::default() };
    let mut searched: Option<Instant> = None;
    loop {
        let begun = Instant::now();
        if searched.is_none_or(|time| options.follow && time.elapsed() >= SEARCH_INTERVAL) {
            shipping.search(folders, options.follow)?;
            searched = Some(Instant::now());
        }
        match shipping.send_all() {
            Outcome::Trouble => {
                thread::sleep(shipping.backoff.next());
                continue;
            }
            Outcome::HasMore => continue,
            Outcome::IsIdle => {}
        }
        if !options.follow && shipping.sessions.values().all(Option::is_none) {
            break;
        }
        thread::sleep(LOOK_INTERVAL.max(begun.elapsed() * LOOK_SHARE));
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

struct Shipping<'a> {
    means: Means<'a>,
    say: &'a dyn Fn(&str),
    /// Recordings by their folders; `None` once the target has one whole.
    sessions: BTreeMap<PathBuf, Option<Session>>,
    /// The present trouble, as it was said.
    trouble: Option<String>,
    backoff: Backoff,
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
                if self.sessions.contains_key(&path) {
                    continue;
                }
                match Session::open(&path) {
                    Ok(session) => drop(self.sessions.insert(path, Some(session))),
                    // It is being made, or is none of ours.
                    Err(error) if follow => log::debug!("{error}"),
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(())
    }

    /// Sends what is there of all recordings, those of flight recorders first: they have few bytes,
    /// and a reason.
    fn send_all(&mut self) -> Outcome {
        let mut looks = Vec::new();
        for (path, session) in &self.sessions {
            let Some(session) = session else { continue };
            match session.look() {
                Ok(look) => looks.push((!look.is_flight_recorder, path.clone(), look)),
                Err(error) => log::debug!("{error}"),
            }
        }
        let mut outcome = Outcome::IsIdle;
        looks.sort_by(|a, b| (a.0, &a.1).cmp(&(b.0, &b.1)));
        for (_, path, look) in looks {
            let Some(Some(session)) = self.sessions.get_mut(&path) else { continue };
            // Ordering: counted by threads that have joined.
            let before = self.means.sent.segments.load(Ordering::Relaxed);
            match session.send(&look, &self.means) {
                Ok(progress) => {
                    self.backoff.reset();
                    if progress.has_more {
                        outcome = Outcome::HasMore;
                    }
                    if let Some(trouble) = self.trouble.take() {
                        (self.say)(&format!("sending again, after: {trouble}"));
                    }
                    if progress.is_complete {
                        progress.problems.iter().for_each(|problem| (self.say)(problem));
                        log::debug!("{}: complete", session.path().display());
                        self.sessions.insert(path, None);
                    }
                }
                Err(trouble) => {
                    // A link that breaks now and then is no reason to wait longer and longer.
                    if self.means.sent.segments.load(Ordering::Relaxed) > before {
                        self.backoff.reset();
                    }
                    self.note(&trouble);
                    return Outcome::Trouble;
                }
            }
        }
        outcome
    }

    /// Says a trouble once.
    fn note(&mut self, trouble: &Trouble) {
        let text = trouble.to_string();
        match trouble {
            // It is solved by the next question.
            Trouble::Conflict(_) => log::debug!("{text}"),
            Trouble::Broken(_) if self.trouble.as_ref() != Some(&text) => {
                (self.say)(&format!("not sent yet, trying again: {text}"));
                self.trouble = Some(text);
            }
            Trouble::Broken(_) => {}
        }
    }
}
