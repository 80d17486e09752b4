//! Attachment of the one program to many tracepoints, each with a cookie that says which it is.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
};

use super::Tracepoint;

/// Tracepoints with the program at them.
///
/// A tracepoint is opened as an event of perf, and the program attached to that. Closing the link
/// ends the program's runs at once, and then waits some 30 ms until no CPU is in it; all that wait
/// at the same time wait for the same. Closing the event, which without a link only counts, waits
/// as long until no CPU is in the tracepoint, and holds a lock meanwhile by which all others wait:
/// a minute for all tracepoints that there are. So that is left to a process of its own, for which
/// no process waits.
#[derive(Default)]
pub(crate) struct Attachments {
    /// By the tracepoints' places.
    links: BTreeMap<usize, OwnedFd>,
    events: Vec<OwnedFd>,
}

impl Attachments {
    /// Attaches the program to the tracepoints at these places. Those that the kernel refuses are
    /// told with the reason.
    pub(crate) fn attach(
        &mut self,
        program: BorrowedFd<'_>,
        tracepoints: &[Tracepoint],
        places: &[usize],
    ) -> Vec<(String, io::Error)> {
        tompion_os::raise_file_limit();
        let mut refused = Vec::new();
        for (place, tracepoint) in places.iter().filter_map(|place| Some((*place, tracepoints.get(*place)?)))
        {
            if let Err(error) = self.attach_one(program, tracepoint, place) {
                refused.push((tracepoint.listed.name.clone(), error));
            }
        }
        refused
    }

    fn attach_one(
        &mut self,
        program: BorrowedFd<'_>,
        tracepoint: &Tracepoint,
        place: usize,
    ) -> io::Result<()> {
        let event = tompion_os::open_tracepoint(tracepoint.format.id)?;
        self.links.insert(place, tompion_os::attach_program(program, &event, cookie(tracepoint, place))?);
        self.events.push(event);
        Ok(())
    }

    /// Places of the tracepoints that have the program.
    pub(crate) fn places(&self) -> impl Iterator<Item = usize> {
        self.links.keys().copied()
    }

    /// Links by their tracepoints' places, and events.
    pub(crate) fn descriptors(
        &self,
    ) -> (impl Iterator<Item = (usize, BorrowedFd<'_>)>, impl Iterator<Item = BorrowedFd<'_>>) {
        let links = self.links.iter().map(|(place, link)| (*place, link.as_fd()));
        (links, self.events.iter().map(AsFd::as_fd))
    }

    /// Takes the links at all tracepoints but these; the program's runs end when they are closed.
    pub(crate) fn take_others(&mut self, places: &BTreeSet<usize>) -> Vec<OwnedFd> {
        let (kept, others): (BTreeMap<_, _>, BTreeMap<_, _>) =
            std::mem::take(&mut self.links).into_iter().partition(|(place, _)| places.contains(place));
        self.links = kept;
        others.into_values().collect()
    }

    /// Ends the program's runs.
    pub(crate) fn detach(&mut self) {
        tompion_os::close_in_parallel(self.take_others(&BTreeSet::new()));
    }
}

impl Drop for Attachments {
    fn drop(&mut self) {
        self.detach();
        // Where there can be no other process, they are closed here, which only takes longer.
        let _ = tompion_os::close_in_background(std::mem::take(&mut self.events));
    }
}

/// Facts about a tracepoint for the program (`src/bpf/generic.h`).
fn cookie(tracepoint: &Tracepoint, place: usize) -> u64 {
    let (end, last) = tracepoint.format.extent();
    let (word, relative) = last.unwrap_or_default();
    place as u64 & 0xffff | (end as u64) << 16 | (word as u64) << 32 | u64::from(relative) << 48
}
