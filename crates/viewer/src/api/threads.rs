//! Threads of events: the thread in the event's context, or the one that ran on its CPU.

use std::collections::{HashMap, HashSet};

use super::ApiRequest;
use super::answers::EventRow;
use super::events::Row;
use tompion_index::entry::Entry;
use tompion_index::slice_kind;
use tompion_index::{Index, LaneKind, TrackKind};

/// Threads of some events, and what their CPUs ran.
pub struct Threads {
    /// Tracks by machine and number; several where a number was reused.
    threads: HashMap<(u16, i64), Vec<u32>>,
    /// Entries of each CPU by machine and number, in order.
    ran: HashMap<(u16, i64), Vec<Entry>>,
    /// Clock offset of each trace: the index has unshifted times.
    offsets: Vec<i64>,
}

impl Threads {
    /// Collects the threads of some rows.
    pub fn new(request: &ApiRequest<'_>, rows: &[Row]) -> Self {
        let offsets = request.offsets.clone();
        let times = rows.iter().map(|row| unshifted(row, &offsets));
        let window = (times.clone().min().unwrap_or(0), times.max().unwrap_or(0));
        let (store, slices, threads) = {
            let index = request.opened.index();
            let machine = |row: &Row| index.machine_of(row.trace);
            let wanted: HashSet<(u16, i64)> =
                rows.iter().filter_map(|row| Some((machine(row), row.tid?.into()))).collect();
            let cpus: HashSet<(u16, i64)> = rows
                .iter()
                .filter(|row| row.tid.is_none())
                .filter_map(|row| Some((machine(row), row.cpu?.try_into().ok()?)))
                .collect();
            let mut threads: HashMap<(u16, i64), Vec<u32>> = HashMap::new();
            let mut slices = Vec::new();
            for (id, track) in index.tracks.iter().enumerate() {
                let key = (track.machine, track.number);
                match track.kind {
                    TrackKind::Thread if wanted.contains(&key) => {
                        threads.entry(key).or_default().push(id as u32)
                    }
                    TrackKind::Cpu if cpus.contains(&key) => {
                        if let Some(lane) = index.lane_of(id as u32, LaneKind::Cpu) {
                            slices.push((key, index.slice(lane, window, 0)));
                        }
                    }
                    _ => {}
                }
            }
            (index.store.clone(), slices, threads)
        };
        let mut ran = HashMap::new();
        for (key, slice) in slices {
            let mut entries = Vec::new();
            // If the file can't be read, the threads are unknown.
            let _ = slice.read(&store, window, &mut |entry| {
                entries.push(*entry);
                entries.len() < super::selection_stats::MAX_ENTRIES_READ as usize
            });
            ran.insert(key, entries);
        }
        Self { threads, ran, offsets }
    }

    /// Returns the track of a row's thread.
    fn track(&self, index: &Index, row: &Row) -> Option<u32> {
        let machine = index.machine_of(row.trace);
        let time = unshifted(row, &self.offsets);
        if let Some(tid) = row.tid {
            let known = self.threads.get(&(machine, tid.into()))?;
            // Of threads that reused a number, the one that lived at the time.
            let is_there = |track: &&u32| {
                let lanes = index.tracks.get(**track as usize).map_or(&[][..], |track| &track.lanes);
                let mut lanes = lanes.iter().filter_map(|lane| index.lanes.get(*lane as usize));
                lanes.any(|lane| {
                    lane.levels.bounds().is_some_and(|(first, last)| first <= time && time <= last)
                })
            };
            return known.iter().find(is_there).or(known.last()).copied();
        }
        let entries = self.ran.get(&(machine, row.cpu?.try_into().ok()?))?;
        let after = entries.partition_point(|entry| entry.begin <= time);
        let entry = entries.get(after.checked_sub(1)?)?;
        let runs = entry.style == slice_kind::RUNNING && entry.end >= time;
        runs.then(|| entry.extra.thread()).flatten()
    }

    /// Adds the thread and its lane to a row.
    pub fn event_row(&self, request: &ApiRequest<'_>, row: Row) -> EventRow {
        let index = request.opened.index();
        let track = self.track(&index, &row);
        let tid = row.tid.map(i64::from).or_else(|| Some(index.tracks.get(track? as usize)?.number));
        let kinds = [LaneKind::Marks, LaneKind::Thread, LaneKind::Span];
        let of_program = || kinds.iter().find_map(|kind| index.lane_of(track?, *kind));
        let lane = match row.tid {
            Some(_) => of_program(),
            None => track.and_then(|track| index.lane_of(track, LaneKind::Thread)),
        };
        let Row { number, time, trace, cpu, name, text, .. } = row;
        EventRow { row: number, time, cpu, tid, name, text, lane, trace }
    }
}

/// Returns the time of a row's event by its trace's own clock.
fn unshifted(row: &Row, offsets: &[i64]) -> i64 {
    row.time.saturating_sub(offsets.get(row.trace).copied().unwrap_or(0))
}
