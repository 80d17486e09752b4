//! Part of the page's address after `#` for a picture: its time range and its pinned tracks.
//!
//! The page reads it in `web/src/data/link.ts`, which describes how links name tracks.

use std::collections::HashMap;
use std::fmt::Write as _;

use crate::workspace::Workspace;
use tompion_index::{Index, Track, TrackKind};

/// Maximum number of tracks that are pinned: a picture has no room for more.
const MAX_PINNED: usize = 24;

/// Part of a trace that a picture shows.
#[derive(Clone, Debug, Default)]
pub struct PictureRange {
    /// Begin in nanoseconds since 1970; `None` for the trace's begin.
    pub from: Option<i64>,
    /// End in nanoseconds since 1970; `None` for the trace's end.
    pub to: Option<i64>,
    /// Names, pids or tids of the tracks to pin at the top, or names as in links: `thread:55`.
    pub tracks: Vec<String>,
    /// Width and height of the picture in pixels.
    pub size: (u32, u32),
    /// Whether the picture has light colours on a dark ground.
    pub is_dark: bool,
}

/// Returns the part of the address after `#`.
///
/// # Errors
///
/// In one line, if the range is empty or outside the trace, or a track does not exist.
pub fn fragment(workspace: &Workspace, range: &PictureRange) -> Result<String, String> {
    let opened = workspace.opened();
    let index = opened.index();
    let (width, height) = range.size;
    let mut text = format!("png={width}x{height}{}", if range.is_dark { ",dark" } else { "" });
    if range.from.is_some() || range.to.is_some() {
        let offsets = workspace.offsets();
        let bounds = index.bounds.iter().zip(offsets);
        let bounds = bounds.filter_map(|(bounds, offset)| {
            bounds.map(|(begin, end)| (begin.saturating_add(offset), end.saturating_add(offset)))
        });
        let whole = bounds.fold((i64::MAX, i64::MIN), |sum, it| (sum.0.min(it.0), sum.1.max(it.1)));
        let relative = |time: i64| time.saturating_sub(index.base);
        let from = range.from.map_or(whole.0, relative);
        let to = range.to.map_or(whole.1, relative);
        if from >= to {
            return Err("expected --from before --to, found no time between them".into());
        }
        if to < whole.0 || from > whole.1 {
            return Err("the trace has no event between --from and --to".into());
        }
        // The page ignores numbers beyond 2^53, so the range ends with the trace.
        let from = from.max(whole.0);
        let to = to.min(whole.1).max(from.saturating_add(1));
        // Writing to a string does not fail, here and below.
        let _ = write!(text, "&v={from},{to}");
    }
    let hosts: Vec<&str> = opened.traces.iter().map(|trace| trace.host.as_str()).collect();
    let names = link_names(&index, &hosts);
    let mut pinned: Vec<&str> = Vec::new();
    for wanted in &range.tracks {
        let found = matching(&index, &names, wanted);
        if found.is_empty() {
            return Err(format!("no track of the trace is named `{wanted}`, by name, pid or tid"));
        }
        pinned.extend(found.into_iter().filter_map(|id| names.get(id)).map(String::as_str));
    }
    pinned.truncate(MAX_PINNED);
    if !pinned.is_empty() {
        let _ = write!(text, "&p={}", encode(&pinned.join(",")));
    }
    Ok(text)
}

/// Returns the tracks that a user's text names: threads, or else processes, or else others.
fn matching(index: &Index, names: &[String], wanted: &str) -> Vec<usize> {
    if let Some(id) = names.iter().position(|name| name == wanted) {
        return vec![id];
    }
    let number = wanted.parse::<i64>().ok();
    let is_meant = |track: &Track| match (track.kind, number) {
        (TrackKind::Thread | TrackKind::Process, Some(number)) => track.number == number,
        _ => index.label(track.name).is_some_and(|name| **name == *wanted),
    };
    let of = |kinds: &[TrackKind]| -> Vec<usize> {
        let tracks = index.tracks.iter().enumerate();
        let is_shown = |track: &Track| kinds.contains(&track.kind) && is_meant(track);
        tracks.filter(|(_, track)| is_shown(track) && !track.lanes.is_empty()).map(|(id, _)| id).collect()
    };
    let groups: [&[TrackKind]; 3] = [
        &[TrackKind::Thread],
        &[TrackKind::Process],
        &[TrackKind::Cpu, TrackKind::Counter, TrackKind::Channel],
    ];
    groups.into_iter().map(of).find(|found| !found.is_empty()).unwrap_or_default()
}

/// Returns the names of all tracks in links, by the tracks' numbers.
fn link_names(index: &Index, hosts: &[&str]) -> Vec<String> {
    let mut host_of: HashMap<u16, &str> = HashMap::new();
    for (machine, host) in index.machines.iter().zip(hosts) {
        host_of.insert(*machine, host);
    }
    let has_hosts = index.machines.iter().max().is_some_and(|machine| *machine > 0);
    let mut seen: HashMap<String, usize> = HashMap::new();
    let name = |track: &Track| {
        let own = match track.kind {
            TrackKind::Cpu | TrackKind::Process | TrackKind::Thread => track.number.to_string(),
            _ => encode(index.label(track.name).map_or("", |name| name)),
        };
        let host = host_of.get(&track.machine).filter(|host| has_hosts && !host.is_empty());
        let host = host.map(|host| format!("@{}", encode(host))).unwrap_or_default();
        let name = format!("{}:{own}{host}", track.kind.name());
        // Of tracks with one name, the second is the first with a suffix.
        let before = seen.entry(name.clone()).or_default();
        *before += 1;
        if *before == 1 { name } else { format!("{name};{}", *before - 1) }
    };
    index.tracks.iter().map(name).collect()
}

/// Encodes a text as `encodeURIComponent` does.
fn encode(text: &str) -> String {
    text.bytes().fold(String::new(), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-_.!~*'()".contains(&byte) {
            encoded.push(byte.into());
        } else {
            let _ = write!(encoded, "%{byte:02X}");
        }
        encoded
    })
}
