//! Reads streams that are still being written, as far as they go, and resumes there later.
//!
//! Files of a stream come and go: a rotation moves the old one away before or after the new one is
//! there, and a ring of files replaces the oldest. So each file has a position of its own, and a
//! packet is missing only when no file has brought it for some rounds.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::Arc;

use tompion_ctf::decode::Packet;

use super::pieces::FileId;
use super::source::{Before, Source};
use super::windows::Scan;
use super::{Identity, Loss, Selection, TraceSet};
use crate::Error;
use crate::discover::Opened;

/// Number of rounds for which a missing packet may still come with another file.
const GAP_ROUNDS: u32 = 10;

/// Position up to which a file was read.
#[derive(Clone, Copy, Debug)]
struct Progress {
    /// Position of the packet in the file.
    packet: u64,
    /// Next bit to read in the packet; 0 for all of it.
    bit: u64,
    /// Properties of the last packet that was begun.
    before: Option<Before>,
}

/// Positions up to which files and streams were read.
#[derive(Debug, Default)]
pub(crate) struct Positions {
    /// By the files themselves: a rotation moves files, and puts new ones in their places.
    files: HashMap<FileId, Progress>,
    /// Packets of each stream, whatever files they are in.
    streams: HashMap<Identity, Packets>,
}

/// Packets of a stream that were begun, or that are missing.
#[derive(Clone, Debug, Default)]
struct Packets {
    /// Packet with the highest sequence number; the last one that was begun, without numbers.
    newest: Option<Before>,
    /// Sequence numbers of packets that were begun, but not read to their ends.
    unfinished: BTreeSet<u64>,
    gaps: Vec<Gap>,
}

/// Packets that no file has brought so far.
#[derive(Clone, Debug)]
struct Gap {
    /// First and last sequence number.
    numbers: (u64, u64),
    /// Number of rounds since it was found.
    rounds: u32,
    loss: Loss,
}

/// Positions in the files of one stream, and its packets.
#[derive(Debug, Default)]
pub(super) struct Followed {
    stream: Option<Identity>,
    /// By the indexes of files.
    files: BTreeMap<usize, Progress>,
    packets: Packets,
}

impl Packets {
    /// Notes that a packet was begun, after `loss` if packets before it are missing.
    fn begin(&mut self, packet: Before, loss: Loss) {
        let Some(number) = packet.sequence else {
            self.newest = Some(packet);
            return;
        };
        let newest = self.newest.and_then(|newest| newest.sequence);
        // The rest of a packet goes with its file, which was replaced or moved away.
        let left = std::mem::replace(&mut self.unfinished, BTreeSet::from([number]));
        let mut missing: Vec<_> =
            left.into_iter().filter(|&left| left != number).map(|left| (left, left)).collect();
        if let Some(first) = newest.map(|newest| newest.saturating_add(1)) {
            missing.extend((first < number).then(|| (first, number - 1)));
        }
        self.gaps.extend(missing.into_iter().map(|numbers| Gap { numbers, rounds: 0, loss: loss.clone() }));
        if newest < Some(number) {
            self.newest = Some(packet);
        }
    }

    /// Notes that a packet was read to its end, or cannot be read.
    fn finish(&mut self, number: u64) {
        self.unfinished.remove(&number);
        if let Some(newest) = &mut self.newest {
            let next = newest.sequence.map(|newest| newest.wrapping_add(1));
            newest.sequence = if next == Some(number) { next } else { newest.sequence };
        }
        let rest = |gap: Gap| {
            let (first, last) = gap.numbers;
            if !(first..=last).contains(&number) {
                return [Some(gap), None];
            }
            let part = |is_there: bool, numbers| is_there.then(|| Gap { numbers, ..gap.clone() });
            [
                part(first < number, (first, number.saturating_sub(1))),
                part(number < last, (number.saturating_add(1), last)),
            ]
        };
        self.gaps = std::mem::take(&mut self.gaps).into_iter().flat_map(rest).flatten().collect();
    }

    /// Removes and returns the losses that are certain by now.
    fn losses(&mut self, is_over: bool) -> Vec<Loss> {
        self.gaps.iter_mut().for_each(|gap| gap.rounds += 1);
        let is_certain = |gap: &Gap| is_over || gap.rounds > GAP_ROUNDS;
        let (gaps, rest): (Vec<Gap>, _) = std::mem::take(&mut self.gaps).into_iter().partition(is_certain);
        self.gaps = rest;
        let mut losses: Vec<Loss> = Vec::new();
        for Gap { numbers: (first, last), loss, .. } in gaps {
            let count = (last - first).saturating_add(1);
            // Parts of what one packet found missing are one loss.
            match losses.last_mut().filter(|before| before.between == loss.between) {
                Some(before) => before.count = before.count.saturating_add(count),
                None => losses.push(Loss { count, ..loss }),
            }
        }
        losses
    }
}

impl Followed {
    /// Returns the packet with which a new one is compared to find losses, given the one that was
    /// read before it. `None` if the packet is late, so that its losses were counted before.
    pub fn compared(&self, before: Option<Before>, packet: &Packet) -> Option<Option<Before>> {
        let newest = self.packets.newest.or(before);
        let number = newest.and_then(|newest| newest.sequence);
        match number.zip(packet.sequence) {
            Some((newest, number)) if number <= newest => None,
            _ => Some(newest),
        }
    }

    /// Whether packets that are missing may be in other files.
    pub fn has_other_files(&self) -> bool {
        self.stream.is_some()
    }

    /// Notes that a packet was begun, after `loss` if packets before it are missing.
    pub fn begin(&mut self, packet: Before, loss: Loss) {
        self.packets.begin(packet, loss);
    }
}

impl TraceSet {
    /// Opens the streams of these traces behind the part that was already read. Incomplete packets
    /// are read only with `is_over`.
    ///
    /// # Errors
    ///
    /// Fails with the first problem if no trace could be opened.
    pub(crate) fn growing(
        paths: &[PathBuf],
        opened: Opened,
        read: &Positions,
        is_over: bool,
    ) -> Result<Self, Error> {
        let mut set = Self::new(paths.to_vec(), opened, Source::in_files)?;
        if !is_over {
            // These are reported at the end.
            set.corruptions.clear();
        }
        for source in &mut set.sources {
            source.is_growing = !is_over;
            let count = source.files.count();
            let ids = (0..count).map(|file| source.files.piece(file).and_then(|piece| piece.id));
            let ids: Vec<Option<FileId>> = ids.collect();
            let stream = ids.iter().flatten().find_map(|id| id.stream);
            let progress = |(file, id): (usize, &Option<FileId>)| Some((file, *read.files.get(&(*id)?)?));
            let files: BTreeMap<usize, Progress> = ids.iter().enumerate().filter_map(progress).collect();
            if let Some(list) = Arc::get_mut(&mut source.files) {
                files.iter().for_each(|(&file, progress)| list.begin_at(file, progress.packet));
            }
            let packets = stream.and_then(|stream| read.streams.get(&stream).cloned()).unwrap_or_default();
            source.before = packets.newest;
            source.followed = Some(Box::new(Followed { stream, files, packets }));
        }
        Ok(set)
    }

    /// Limits reading to events before this time, or removes the limit.
    pub(crate) fn read_until(&mut self, until: Option<i64>) {
        self.until = until;
    }

    /// Returns the end time of the newest packet that was not read to its end.
    pub(crate) fn newest(&self) -> Option<i64> {
        let newest = |source: &Source| {
            let mut unread = Source::new(source.files.clone());
            unread.is_growing = source.is_growing;
            let mut scan = Scan::of(unread);
            let mut newest = None;
            while let Some(time) = scan.next_time(&self.traces) {
                newest = newest.max(Some(time));
            }
            newest
        };
        self.sources.iter().filter_map(newest).max()
    }

    /// Stores the position up to which each file was read, and adds losses that are certain by now.
    pub(crate) fn remember(&mut self, read: &mut Positions, is_over: bool) {
        for source in &mut self.sources {
            if let Some(file) = &source.file {
                source.note_progress(file.packet_start(), file.bit());
            }
            let Some(followed) = source.followed.take() else { continue };
            let Followed { stream, files, packets } = *followed;
            for (file, progress) in files {
                let id = source.files.piece(file).and_then(|piece| piece.id);
                read.files.extend(id.map(|id| (id, progress)));
            }
            read.streams.extend(stream.map(|stream| (stream, packets)));
        }
        let traces = &self.traces;
        let index = |(uuid, ..): &Identity| {
            traces.iter().position(|trace| trace.metadata().uuid == Some(*uuid)).unwrap_or(usize::MAX)
        };
        for (stream, packets) in &mut read.streams {
            let losses = packets.losses(is_over).into_iter();
            self.losses.extend(losses.map(|loss| Loss { trace: index(stream), ..loss }));
        }
    }
}

impl Source {
    /// Continues the file that was just opened where it was left, if it is followed.
    pub(super) fn resume(&mut self, index: usize) {
        let Some(progress) = self.followed.as_ref().and_then(|followed| followed.files.get(&index).copied())
        else {
            return;
        };
        self.before = progress.before;
        if progress.bit == 0 {
            return;
        }
        let is_there = matches!(self.next_packet(&Selection::default(), &mut Vec::new()), Ok(true));
        let Some(file) = self.file.as_mut() else { return };
        if !is_there {
            // What is wrong with it is found, and told, when it is read as any other packet.
            file.leave_packet();
            file.go_to(progress.packet);
            return;
        }
        while file.bit() < progress.bit && matches!(file.next_header(), Ok(true)) {
            if file.finish_event(false).is_err() {
                break;
            }
        }
    }

    /// Notes that the current packet was read to its end, or cannot be read.
    pub(super) fn finish_packet(&mut self) {
        let Some(followed) = &mut self.followed else { return };
        let packet = self.file.as_ref().and_then(|file| file.packet.as_ref());
        if let Some(number) = packet.and_then(|packet| packet.sequence) {
            followed.packets.finish(number);
        }
    }

    /// Notes up to which packet and bit of it the current file was read, if it is followed.
    pub(super) fn note_progress(&mut self, packet: u64, bit: u64) {
        let (file, before) = (self.next.saturating_sub(1), self.before);
        if let Some(followed) = &mut self.followed {
            followed.files.insert(file, Progress { packet, bit, before });
        }
    }
}
