//! Numbers of tracks and lanes that survive the growth of a trace, so that the page, links and
//! notes stay valid.

use std::collections::{HashMap, VecDeque};

use super::labels::Labels;
use super::{Index, LaneKind, Track, TrackKind};

/// Identity of a track, independent of its number.
type Identity = (TrackKind, u16, i64, String);

/// Numbers that are not assigned yet.
#[derive(Clone, Debug, Default)]
pub struct StableIds {
    /// Tracks by identity; threads that reused a number are in their order.
    tracks: HashMap<Identity, VecDeque<u32>>,
    lanes: HashMap<(u32, LaneKind, u16), u32>,
}

impl StableIds {
    /// Collects the numbers of an index.
    pub fn of(before: &Index) -> Self {
        let mut ids = Self::default();
        for (number, track) in before.tracks.iter().enumerate() {
            let of_identity = ids.tracks.entry(identity(track, &before.labels)).or_default();
            of_identity.push_back(number as u32);
            for &lane in &track.lanes {
                if let Some(known) = before.lanes.get(lane as usize) {
                    ids.lanes.insert((number as u32, known.kind, known.depth), lane);
                }
            }
        }
        ids
    }

    /// Returns the previous number of a track, if there was one.
    pub fn track(&mut self, track: &Track, labels: &Labels) -> Option<u32> {
        if self.tracks.is_empty() {
            return None;
        }
        self.tracks.get_mut(&identity(track, labels))?.pop_front()
    }

    /// Returns the previous number of a track's lane, if there was one.
    pub fn lane(&mut self, track: u32, (kind, depth): (LaneKind, u16)) -> Option<u32> {
        self.lanes.remove(&(track, kind, depth))
    }
}

fn identity(track: &Track, labels: &Labels) -> Identity {
    // Other kinds have stable numbers; threads and processes get their names later.
    let is_named = matches!(track.kind, TrackKind::Group | TrackKind::Counter | TrackKind::Channel);
    let name = if is_named { labels.text(track.name).to_string() } else { String::new() };
    let number = if track.kind == TrackKind::Counter { 0 } else { track.number };
    (track.kind, track.machine, number, name)
}
