//! A session's recording in this process: checking and mapping what the session hands over.

use std::{
    ops::Range,
    os::fd::{AsFd, BorrowedFd},
    sync::atomic::{AtomicU32, Ordering},
};

use tompion_layout::{
    LAYOUT_VERSION, catalog, control,
    loss::Cause,
    record::Form,
    ring::{self, Geometry},
};
use tompion_os::{Identity, PacketSocket, Received, Retired, SharedMap};
use tompion_protocol::{
    MAX_RECORDINGS,
    message::{MAX_MESSAGE, ToAgent, ToSession},
};
use tompion_ring::{
    in_flight,
    producer::{InReserve, Recording, Setup},
};
use tompion_schema::{Field, Integer, Type};

use crate::{context, event, registry::Registry, trust};

/// How much of the first CPU's ring is made present at once, with its header, in bytes.
const WARM_BYTES: usize = 64 * 1024 + tompion_layout::PAGE as usize;
/// Most bytes of address space that the rings of all recordings take together.
const MAX_RINGS_BYTES: u64 = 1 << 40;

/// A recording that this process is part of.
#[derive(Debug)]
pub struct Joined {
    /// The name under which the session listens.
    pub name: String,
    /// The conversation; none once the program has closed its descriptor.
    socket: Option<PacketSocket>,
    /// What the socket was when it was ours, see [`PacketSocket::identity`].
    identity: Option<Identity>,
    shared: Shared,
    /// The rules as text.
    pub rules: String,
    /// Whether events carry the application's contexts.
    pub contexts: bool,
    /// Whether the session keeps its rings in files, which takes it longer.
    is_kept: bool,
    /// One bit for each event number that stands in the catalog.
    described: Vec<u64>,
    /// Addresses of which nothing true can be told any more.
    doubted: Vec<Range<u64>>,
}

/// A parent's conversation in the child of a fork. While it is open the session knows that the
/// child may still introduce itself, even if the parent has gone.
#[derive(Debug)]
pub struct Inherited {
    name: String,
    socket: Option<PacketSocket>,
    identity: Option<Identity>,
    is_kept: bool,
}

impl Inherited {
    /// Whether the session keeps its rings in files.
    pub fn is_kept(&self) -> bool {
        self.is_kept
    }

    /// The name of the parent's session.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the session still has its end, as far as the program has not closed ours.
    pub fn is_open(&self) -> bool {
        let ours = self.socket.as_ref().filter(|socket| socket.identity() == self.identity);
        ours.is_some_and(PacketSocket::is_open)
    }

    /// Says by it, unless the program has closed it, that this child could not reach the session.
    pub fn tell_failed(&self, error: &std::io::Error) {
        let ours = self.socket.as_ref().filter(|socket| socket.identity() == self.identity);
        if let Some(socket) = ours {
            let _ = socket.send(&ToSession::ChildFailed(error.to_string()).encode(), &[]);
        }
    }

    /// Closes it, unless the program has done so.
    pub fn close(self) {
        if let Some(socket) = self.socket {
            socket.close_if_still(self.identity);
        }
    }
}

/// The memory of a recording, mapped.
#[derive(Debug)]
struct Shared {
    control: SharedMap,
    rings: SharedMap,
    /// The array of a program in the kernel that selects the buffer.
    selector: Option<SharedMap>,
    geometry: Geometry,
    form: Form,
    /// How many bytes the session has had made present.
    populated: u64,
}

impl Shared {
    /// Lets the memory of a recording go that has ended. In section form it is unmapped if nobody
    /// uses it any more; else private memory takes its place, which is returned, to be unmapped
    /// later.
    ///
    /// In reserve form nothing tells whether somebody is still in the midst of an append: the
    /// addresses stay, with nothing behind them, for ever.
    fn let_go(self, no_sections: bool) -> Vec<Retired> {
        if self.form == Form::Section && no_sections && !in_flight::is_any() {
            return Vec::new();
        }
        let maps = [Some(self.control), Some(self.rings), self.selector];
        let retired = maps.into_iter().flatten().map(Retired::new).collect();
        if self.form == Form::Section { retired } else { Vec::new() }
    }
}

/// Unmaps what recordings have left, once no thread uses it any more.
pub fn unmap_retired(registry: &mut Registry) {
    if !registry.retired.is_empty() && !in_flight::is_any() {
        for retired in std::mem::take(&mut registry.retired) {
            // SAFETY: only the memory of recordings in section form is in the list, which ended
            // before, and whose sections were restarted. In the slow parts of appends there is
            // nobody.
            unsafe { retired.unmap() };
        }
    }
}

/// Receives the welcome of a session that was told hello, and begins its recording. Returns the
/// slot.
pub fn be_let_in(registry: &mut Registry, socket: PacketSocket, name: String) -> Option<usize> {
    let mut buffer = vec![0; MAX_MESSAGE];
    let received = socket.receive(&mut buffer).ok()?;
    if ToAgent::decode(buffer.get(..received.len)?).ok()? != ToAgent::Welcome {
        return None;
    }
    socket.set_timeout(0).ok()?;
    match take_over(&received, registry) {
        Ok((slot, shared)) => {
            let joined = Joined::new(name, socket, shared);
            context::want(slot, joined.contexts);
            registry.recordings[slot] = Some(joined);
            Some(slot)
        }
        Err(reason) => {
            let _ = socket.send(&ToSession::Failed(reason).encode(), &[]);
            None
        }
    }
}

/// Maps what came with the welcome and begins the recording. Errors are for the session's user.
fn take_over(received: &Received, registry: &mut Registry) -> Result<(usize, Shared), String> {
    let (control_file, ring_file, selector) = match &received.descriptors[..] {
        [control, rings] => (control, rings, None),
        [control, rings, selector] => (control, rings, map_selector(selector.as_fd())),
        others => return Err(format!("expected two memory files, got {}", others.len())),
    };
    let control = SharedMap::received(control_file.as_fd(), control::FILE_SIZE, trust::believes)
        .map_err(|error| error.to_string())?;
    let half = |offset| control.half(offset).load(Ordering::Relaxed);
    let word = |offset| control.word(offset).load(Ordering::Relaxed);
    if word(control::OFFSET_MAGIC) != control::MAGIC || half(control::OFFSET_VERSION) != LAYOUT_VERSION {
        return Err(format!(
            "expected memory layout {LAYOUT_VERSION}, found {}",
            half(control::OFFSET_VERSION)
        ));
    }
    let geometry = Geometry::new(
        word(control::OFFSET_SUBBUF_SIZE),
        word(control::OFFSET_SUBBUF_COUNT),
        half(control::OFFSET_CPUS),
        half(control::OFFSET_BUFFERS),
    );
    let geometry = geometry.map_err(|error| error.to_string())?;
    let flags = half(control::OFFSET_FLAGS);
    let form = if flags & control::FLAG_RESERVE != 0 { Form::Reserve } else { Form::Section };
    let setup = Terms {
        geometry,
        form,
        overwrite: flags & control::FLAG_OVERWRITE != 0,
        given_time: flags & control::FLAG_MONOTONIC != 0,
    };
    let first = usize::from(!event::may_be_first(form, setup.given_time));
    let slot = (first..MAX_RECORDINGS).find(|&slot| registry.recordings[slot].is_none());
    let slot = slot.ok_or("this process is part of too many recordings")?;
    unmap_retired(registry);
    let mapped: u64 =
        registry.recordings.iter().flatten().map(|joined| joined.shared.rings.len() as u64).sum();
    if mapped.saturating_add(geometry.file_size()) > MAX_RINGS_BYTES {
        return Err(format!("rings of more than {} GiB in one process", MAX_RINGS_BYTES >> 30));
    }
    let rings = SharedMap::received(ring_file.as_fd(), geometry.file_size(), trust::believes)
        .map_err(|error| format!("can't map the rings: {error}"))?;
    // The first events should not wait for pages. (Where others are missing, the kernel supplies
    // them.)
    let warm = geometry.cpu_stride() * u64::from(tompion_os::current_cpu().min(geometry.cpus() - 1));
    tompion_os::populate(rings.base().wrapping_add(warm as usize), WARM_BYTES.min(rings.len()));
    let shared = Shared { control, rings, selector, geometry, form, populated: 0 };
    begin(slot, &setup, &shared)?;
    Ok((slot, shared))
}

/// Maps the beginning of an array that programs in the kernel change: the word that selects the
/// buffer. None if it is no such array: the recording then goes into one of the buffers.
fn map_selector(array: BorrowedFd<'_>) -> Option<SharedMap> {
    SharedMap::of_bpf_array_to_read(array, size_of::<AtomicU32>() as u64).ok()
}

/// What a session asks for.
struct Terms {
    geometry: Geometry,
    form: Form,
    overwrite: bool,
    given_time: bool,
}

/// Begins the recording in a slot that has none.
fn begin(slot: usize, terms: &Terms, shared: &Shared) -> Result<(), String> {
    let Terms { geometry, form, overwrite, given_time } = *terms;
    let (place, rings, control) = (event::place(slot), shared.rings.base(), &shared.control);
    let selector = shared.selector.as_ref().map(|array| {
        // SAFETY: the word stays as long as the rings do: `Shared::let_go` lets both go.
        unsafe { &*std::ptr::from_ref(array.half(0)) }
    });
    if form == Form::Reserve {
        let setup = InReserve { geometry, overwrite, clock: event::clock(given_time), selector };
        // SAFETY: the slot has no recording; the rings are mapped as large as the geometry says.
        // They stay, and `control` too, though with nothing behind them once the recording has been
        // left: `Shared::let_go` never unmaps them in this form.
        unsafe { Recording::begin_reserve(place, &setup, rings, control) }?;
        return Ok(());
    }
    let rseq = tompion_os::rseq_area().ok_or("this process has no restartable sequences (rseq)")?;
    tompion_os::prepare_section_barrier().map_err(|error| format!("no section barrier: {error}"))?;
    let setup = Setup { geometry, overwrite, given_time, rseq, selector };
    // SAFETY: the slot has no recording; the rings are mapped as large as the geometry says. All of
    // `shared` stays until nobody uses it, see `Shared::let_go`.
    unsafe { Recording::begin(place, &setup, rings, control) };
    Ok(())
}

/// An event's description with the application's contexts behind its own fields.
fn with_contexts(description: &[u8], contexts: u32) -> Option<Vec<u8>> {
    let mut event = tompion_schema::decode(description).ok()?;
    for (name, ty) in context::all(contexts) {
        let ty = match ty {
            context::Type::Integer => Type::Integer(Integer::signed(64)),
            context::Type::Text => Type::String,
        };
        event.fields.push(Field { name: tompion_schema::context_field(name), ty, context: true });
    }
    Some(tompion_schema::encode(&event))
}

/// The rules as they stand in the control file.
fn read_rules(control: &SharedMap) -> String {
    // Ordering: pairs with the session's release store of the length, behind the text.
    let len = control.half(control::OFFSET_RULES_LEN).load(Ordering::Acquire);
    let mut text = vec![0; (len as usize).min(control::RULES_SIZE as usize)];
    control.copy_out(control::RULES as usize, &mut text);
    String::from_utf8_lossy(&text).into_owned()
}

impl Joined {
    fn new(name: String, socket: PacketSocket, shared: Shared) -> Self {
        let rules = read_rules(&shared.control);
        let identity = socket.identity();
        let described = vec![0; usize::from(u16::MAX) / 64 + 1];
        let flags = shared.control.half(control::OFFSET_FLAGS).load(Ordering::Relaxed);
        let contexts = flags & control::FLAG_CONTEXTS != 0;
        let is_kept = flags & control::FLAG_KEPT != 0;
        let (socket, doubted) = (Some(socket), Vec::new());
        Self { name, socket, identity, shared, rules, contexts, is_kept, described, doubted }
    }

    /// The conversation with the session, as long as its descriptor is ours. (The program may have
    /// closed it at any time, and use the number itself.)
    pub fn conversation(&mut self) -> Option<&PacketSocket> {
        if let Some(lost) = self.socket.take_if(|socket| socket.identity() != self.identity) {
            std::mem::forget(lost);
        }
        self.socket.as_ref()
    }

    /// Takes the conversation over in the calling thread's table of descriptors, unless it is
    /// there.
    pub fn take_back(&mut self, socket: PacketSocket) {
        if socket.identity() == self.identity && self.conversation().is_none() {
            self.socket = Some(socket.move_away());
        }
    }

    /// Reads the rules again.
    pub fn refresh_rules(&mut self) {
        self.rules = read_rules(&self.shared.control);
    }

    /// Puts an event into the catalog, unless it is there, with the first `contexts` contexts if
    /// the recording wants them. False if there is no room.
    pub fn describe(&mut self, number: u32, description: &[u8], contexts: u32) -> bool {
        let (index, bit) = (number as usize / 64, 1u64 << (number % 64));
        if self.described[index] & bit != 0 {
            return true;
        }
        let extended = self.contexts.then(|| with_contexts(description, contexts)).flatten();
        let described = self.add(number, &[extended.as_deref().unwrap_or(description)], u64::MAX);
        self.described[index] |= if described { bit } else { 0 };
        described
    }

    /// Puts a record of the process's state into the catalog. False if that would make it larger
    /// than `room`.
    pub fn record_initial(&mut self, number: u32, who: (u32, u32), payload: &[u8], room: u64) -> bool {
        let (time, (tid, cpu)) = (self.time(), who);
        let parts = [&time.to_le_bytes()[..], &tid.to_le_bytes(), &cpu.to_le_bytes(), payload];
        self.add(number | catalog::INITIAL, &parts, room)
    }

    /// Notes that nothing true can be told any more of some addresses. False if that was known.
    pub fn doubt(&mut self, addresses: Range<u64>) -> bool {
        let covers = |known: &Range<u64>| known.start <= addresses.start && addresses.end <= known.end;
        let is_new = !self.doubted.iter().any(covers);
        self.doubted.extend(is_new.then_some(addresses));
        is_new
    }

    /// Adds an entry to the catalog, if it doesn't make it larger than `most`.
    fn add(&mut self, number: u32, parts: &[&[u8]], most: u64) -> bool {
        let control = &self.shared.control;
        let used = control.word(control::CATALOG as usize + catalog::USED);
        // Ordering: only this process's registry, under its lock, writes the catalog.
        let end = used.load(Ordering::Relaxed);
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let new_end = end.saturating_add(catalog::entry_len(size) as u64);
        if new_end > (control::CATALOG_SIZE - catalog::ENTRIES as u64).min(most) {
            return false;
        }
        let mut at = control::CATALOG as usize + catalog::ENTRIES + end as usize;
        for part in [&number.to_le_bytes()[..], &(size as u32).to_le_bytes()].iter().chain(parts) {
            control.copy_in(at, part);
            at += part.len();
        }
        // Ordering: pairs with the session's acquire load: who sees the length sees the entry.
        used.store(new_end, Ordering::Release);
        true
    }

    /// What a clock of the rings shows now.
    fn time(&self) -> u64 {
        let flags = self.shared.control.half(control::OFFSET_FLAGS).load(Ordering::Relaxed);
        if flags & control::FLAG_MONOTONIC != 0 { event::given_time() } else { tompion_os::tsc() }
    }

    /// Counts an event that could not be described.
    pub fn count_undescribed(&self, slot: usize) {
        // SAFETY: the place of a slot in use is valid.
        if let Some(recording) = unsafe { event::place(slot).as_ref() } {
            recording.count_without_ring(Cause::CatalogFull);
        }
    }

    /// Makes pages of the rings present that the writer needs next. What a session asks for beyond
    /// them, or more than once, is left to the kernel.
    pub fn populate(&mut self, offset: u64, len: u64) {
        let Shared { rings, geometry, populated, .. } = &mut self.shared;
        let Some(ring) = geometry.ring_of(offset) else { return };
        // Ordering: only a hint; nothing else is read by it.
        let write = rings.word(ring as usize + ring::WRITE).load(Ordering::Relaxed);
        let len = geometry.ahead(offset, len, write);
        if len != 0 && *populated + len <= rings.len() as u64 {
            *populated += len;
            tompion_os::populate(rings.base().wrapping_add(offset as usize), len as usize);
        }
    }

    /// Leaves the recording in a running process: afterwards nothing that is appended reaches the
    /// session. Returns memory that somebody may still write.
    pub fn leave(self, slot: usize) -> Vec<Retired> {
        // SAFETY: the place of a slot in use is valid.
        if let Some(recording) = unsafe { event::place(slot).as_ref() } {
            recording.end();
        }
        // Whoever is inside a section starts again and finds the recording ended.
        // In reserve form nobody is restarted: who is in the midst of an append completes it.
        let no_sections = self.shared.form == Form::Section && tompion_os::barrier_all_sections().is_ok();
        let (conversation, retired) = self.abandon(no_sections);
        conversation.close();
        retired
    }

    /// Gives up the memory of a recording that has ended, or whose page was wiped by a fork.
    /// `no_sections`: no section can be in it. Returns memory that somebody may still write.
    pub fn abandon(self, no_sections: bool) -> (Inherited, Vec<Retired>) {
        let Self { name, socket, identity, is_kept, shared, .. } = self;
        (Inherited { name, socket, identity, is_kept }, shared.let_go(no_sections))
    }
}
