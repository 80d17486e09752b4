//! Handshake's end: receives a session's memory files, checks and maps them, begins the recording.

use std::{
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicU32, Ordering},
};

use tompion_layout::{
    LAYOUT_VERSION, control,
    record::WriteProtocol,
    ring::{self, Geometry},
};
use tompion_os::{PacketSocket, SharedMap};
use tompion_protocol::{
    MAX_RECORDINGS,
    message::{ToAgent, ToSession},
};
use tompion_ring::producer::{Recording, ReserveSetup, RseqSetup};

use crate::{
    context,
    counts::Counting,
    debug_log::debug,
    event,
    recording::{JoinedRecording, SharedMemory},
    registry::Registry,
    trust,
};

/// Bytes of the current CPU's ring that are made present at once, with its header.
const WARM_BYTES: usize = 64 * 1024 + tompion_layout::PAGE as usize;
/// Room for any message that an agent acts on: only reasons of a refusal are longer.
pub const SMALL_MESSAGE: usize = 128;
/// Maximum number of bytes of address space that the rings of all recordings take together.
const MAX_RINGS_BYTES: u64 = 1 << 40;

/// Receives a session's answer to `Hello` and begins its recording. Returns the slot.
pub fn accept_session(registry: &mut Registry, socket: PacketSocket, name: String) -> Option<usize> {
    let mut buffer = [0; SMALL_MESSAGE];
    let received = socket.receive(&mut buffer).ok()?;
    let answer = ToAgent::decode(buffer.get(..received.len)?).ok()?;
    if answer != ToAgent::Welcome {
        debug(format_args!("session {name}: expected Welcome, got {answer:?}"));
        return None;
    }
    socket.set_timeout(0).ok()?;
    begin_with(registry, socket, name, &received.descriptors)
}

/// Begins a session's recording with the memory files that it gave. Returns the slot.
pub fn begin_with(
    registry: &mut Registry,
    socket: PacketSocket,
    name: String,
    files: &[OwnedFd],
) -> Option<usize> {
    match begin_recording(files, registry) {
        Ok((slot, memory, counting)) => {
            let joined = JoinedRecording::new(name, socket, memory, counting);
            debug(format_args!("session {}: joined, slot {slot}", joined.name));
            context::set_wanted(slot, joined.contexts);
            registry.recordings[slot] = Some(joined);
            registry.state_dumps.recording_began(slot);
            Some(slot)
        }
        Err(reason) => {
            debug(format_args!("session {name}: not joined: {reason}"));
            let _ = socket.send(&ToSession::Failed(reason).encode(), &[]);
            None
        }
    }
}

/// Maps the files that came with the answer and begins the recording. The session shows errors to
/// its user.
fn begin_recording(
    files: &[OwnedFd],
    registry: &mut Registry,
) -> Result<(usize, SharedMemory, Option<Counting>), String> {
    let (control_file, ring_file, others) = match files {
        [control, rings, others @ ..] if others.len() <= 2 => (control, rings, others),
        _ => return Err(format!("expected two memory files, got {}", files.len())),
    };
    // It is shorter if the session is older than this agent.
    let control = SharedMap::received_of(control_file.as_fd(), &control::FILE_SIZES, trust::believes)
        .map_err(|error| error.to_string())?;
    let setup = RecordingSetup::read(&control)?;
    let (selector, counts) = match others.split_last() {
        Some((counts, selector)) if setup.counts => (selector.first(), Some(counts)),
        _ => (others.first(), None),
    };
    let selector = selector.and_then(|selector| map_selector(selector.as_fd()));
    // Without it the recording goes on. The session sees that nothing was accepted.
    let counting = counts.and_then(|file| {
        let opened = Counting::open(file.as_fd(), &mut registry.counts);
        opened.inspect_err(|reason| debug(format_args!("counts nothing: {reason}"))).ok()
    });
    let geometry = setup.geometry;
    let first = usize::from(!event::may_be_first(setup.form, setup.given_time));
    let slot = (first..MAX_RECORDINGS).find(|&slot| registry.recordings[slot].is_none());
    let slot = slot.ok_or("this process is part of too many recordings")?;
    registry.unmap_retired();
    let mapped: u64 = registry.recordings.iter().flatten().map(JoinedRecording::mapped_bytes).sum();
    if mapped.saturating_add(geometry.file_size()) > MAX_RINGS_BYTES {
        return Err(format!("rings of more than {} GiB in one process", MAX_RINGS_BYTES >> 30));
    }
    let rings = SharedMap::received(ring_file.as_fd(), geometry.file_size(), trust::believes)
        .map_err(|error| format!("can't map the rings: {error}"))?;
    // The first events should not wait for pages. The kernel supplies the others when they are
    // touched. In prepared memory they are there already, and are only mapped.
    if setup.prefault {
        // What can't be made present now comes when it is touched; the session tells of a lack.
        let _ = control.prefault(control::PINNED as usize);
        tompion_os::populate(control.base(), tompion_layout::PAGE as usize);
        let _ = rings.prefault(0);
    }
    let warm = geometry.cpu_stride() * u64::from(tompion_os::current_cpu().min(geometry.cpus() - 1));
    let warm_bytes = if registry.is_fork_child { ring::FIRST_OF_CHILD } else { WARM_BYTES };
    tompion_os::populate(rings.base().wrapping_add(warm as usize), warm_bytes.min(rings.len()));
    let memory = SharedMemory::new(control, rings, selector, geometry, setup.form);
    begin(slot, &setup, &memory)?;
    if let Some(counting) = &counting {
        let rseq = if setup.form == WriteProtocol::Rseq { tompion_os::rseq_area() } else { None };
        counting.begin(slot, rseq);
    }
    Ok((slot, memory, counting))
}

/// Maps the word that selects the buffer, from an array of a BPF program. None if it is no such
/// array: the recording then uses one buffer.
fn map_selector(array: BorrowedFd<'_>) -> Option<SharedMap> {
    SharedMap::of_bpf_array_to_read(array, size_of::<AtomicU32>() as u64).ok()
}

/// Properties of a recording, from the session's control file.
struct RecordingSetup {
    geometry: Geometry,
    form: WriteProtocol,
    overwrite: bool,
    given_time: bool,
    counts: bool,
    prefault: bool,
}

impl RecordingSetup {
    /// Reads and checks the control file's header.
    fn read(control: &SharedMap) -> Result<Self, String> {
        let half = |offset| control.half(offset).load(Ordering::Relaxed);
        let word = |offset| control.word(offset).load(Ordering::Relaxed);
        let version = half(control::OFFSET_VERSION);
        if word(control::OFFSET_MAGIC) != control::MAGIC || version != LAYOUT_VERSION {
            return Err(format!("expected memory layout {LAYOUT_VERSION}, found {version}"));
        }
        let geometry = Geometry::new(
            word(control::OFFSET_SUBBUF_SIZE),
            word(control::OFFSET_SUBBUF_COUNT),
            half(control::OFFSET_CPUS),
            half(control::OFFSET_BUFFERS),
        );
        let flags = half(control::OFFSET_FLAGS);
        Ok(Self {
            geometry: geometry.map_err(|error| error.to_string())?,
            form: if flags & control::FLAG_RESERVE != 0 {
                WriteProtocol::ReserveCommit
            } else {
                WriteProtocol::Rseq
            },
            overwrite: flags & control::FLAG_OVERWRITE != 0,
            given_time: flags & control::FLAG_MONOTONIC != 0,
            counts: flags & control::FLAG_COUNTS != 0,
            prefault: flags & control::FLAG_PREFAULT != 0,
        })
    }
}

/// Begins the recording in a slot that has none.
fn begin(slot: usize, setup: &RecordingSetup, memory: &SharedMemory) -> Result<(), String> {
    let RecordingSetup { geometry, form, overwrite, given_time, .. } = *setup;
    let (place, rings, control) = (event::place(slot), memory.rings().base(), memory.control());
    let selector = memory.selector().map(|array| {
        // SAFETY: the word stays as long as the rings: `SharedMemory::release` releases both.
        unsafe { &*std::ptr::from_ref(array.half(0)) }
    });
    if form == WriteProtocol::ReserveCommit {
        let setup = ReserveSetup { geometry, overwrite, clock: event::clock(given_time), selector };
        // SAFETY: the slot has no recording; the rings are mapped as large as the geometry says.
        // The addresses of rings and `control` stay valid, though with nothing behind them once the
        // recording has ended: `SharedMemory::release` never unmaps them in this form.
        unsafe { Recording::begin_reserve(place, &setup, rings, control) }?;
        return Ok(());
    }
    let rseq = tompion_os::rseq_area().ok_or("this process has no restartable sequences (rseq)")?;
    tompion_os::prepare_section_barrier().map_err(|error| format!("no section barrier: {error}"))?;
    let setup = RseqSetup { geometry, overwrite, given_time, rseq, selector };
    // SAFETY: the slot has no recording; the rings are mapped as large as the geometry says. All of
    // `memory` stays until no thread uses it, see `SharedMemory::release`.
    unsafe { Recording::begin(place, &setup, rings, control) };
    Ok(())
}
