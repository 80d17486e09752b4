//! Recordings that this process is part of: their connection, mapped memory, rules and catalog.

use std::{
    ops::Range,
    os::fd::OwnedFd,
    sync::atomic::{Ordering, fence},
};

use tompion_layout::{
    catalog, control,
    loss::Cause,
    record::WriteProtocol,
    ring::{self, Geometry},
};
use tompion_os::{Identity, PacketSocket, Retired, SharedMap};
use tompion_protocol::message::{ToAgent, ToSession};
use tompion_ring::{captures, in_flight, rules_text};
use tompion_schema::{Field, Integer, Type};

use crate::{context, counts::Counting, event, session::SMALL_MESSAGE, triggers::Triggers};

/// Maximum number of messages that a child looks at: others than prepared memory are few, as they
/// would have been received by a thread that their process doesn't have.
const MAX_UNREAD: usize = 64;

/// Recording that this process is part of.
#[derive(Debug)]
pub struct JoinedRecording {
    /// The name under which the session listens.
    pub name: String,
    /// The connection; none once the program has closed its descriptor.
    socket: Option<PacketSocket>,
    /// Identity of the socket when it was created, see [`PacketSocket::identity`].
    identity: Option<Identity>,
    memory: SharedMemory,
    /// The rules as text.
    pub rules: String,
    /// Their generation.
    generation: u32,
    /// The triggers on events.
    pub triggers: Triggers,
    /// Whether events carry the application's contexts.
    pub contexts: bool,
    /// Whether the session keeps its rings in files, so that it admits processes more slowly.
    has_persistent_rings: bool,
    /// Counting of events in place, if the recording does that.
    pub counting: Option<Counting>,
    described: Described,
    /// Address ranges whose objects are unknown from now on.
    invalidated: Vec<Range<u64>>,
}

/// Maximum bytes of descriptions that are kept for forked children. Those of a preloaded library
/// are fewer. The children of a program with more describe its events again.
const MAX_KEPT: usize = 8 * 1024;

/// Events that a catalog describes.
#[derive(Clone, Debug, Default)]
struct Described {
    /// One bit for each event number, up to the highest.
    numbers: Vec<u64>,
    /// Entries of the catalog that describe these events, for forked children.
    entries: Vec<u8>,
    /// Whether `entries` lacks some, or has some of events that don't exist any more.
    is_stale: bool,
}

impl Described {
    /// Notes that the catalog has an event's description.
    fn add(&mut self, number: u32, description: &[u8]) {
        self.numbers[number as usize / 64] |= 1 << (number % 64);
        let end = self.entries.len() + catalog::entry_len(description.len());
        if self.is_stale || end > MAX_KEPT {
            (self.is_stale, self.entries) = (true, Vec::new());
            return;
        }
        self.entries.extend(catalog::entry_header(number, description.len()));
        self.entries.extend(description);
        self.entries.resize(end, 0);
    }
}

/// Events of a parent's recording, in the child of a fork, which has the same ones.
#[derive(Debug)]
pub struct ParentEvents {
    slot: usize,
    rules: String,
    triggers: Triggers,
    contexts: bool,
    described: Described,
}

impl ParentEvents {
    /// Slot that the recording had in the parent.
    pub fn slot(&self) -> usize {
        self.slot
    }
}

/// Connection of a parent's recording in the child of a fork. While it is open, the session expects
/// a `Hello` of the child, even if the parent has exited.
#[derive(Debug)]
pub struct InheritedConnection {
    name: String,
    socket: Option<PacketSocket>,
    identity: Option<Identity>,
    has_persistent_rings: bool,
    events: ParentEvents,
}

impl InheritedConnection {
    /// Events of the recording.
    pub fn events(&self) -> &ParentEvents {
        &self.events
    }

    /// Returns whether the session keeps its rings in files.
    pub fn has_persistent_rings(&self) -> bool {
        self.has_persistent_rings
    }

    /// The name of the parent's session.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns whether the session still has its end, unless the program has closed this one.
    pub fn is_open(&self) -> bool {
        self.socket().is_some_and(PacketSocket::is_open)
    }

    /// Receives memory that the session has prepared for a child of this connection's owner: the
    /// files, and their number. The kernel gives each message to one child.
    ///
    /// Only in the child of a process that receives nothing itself.
    pub fn take_prepared(&self) -> Option<(u64, Vec<OwnedFd>)> {
        let socket = self.socket()?;
        let mut buffer = [0; SMALL_MESSAGE];
        for _ in 0..MAX_UNREAD {
            let received = socket.receive_at_once(&mut buffer).ok().filter(|received| received.len > 0)?;
            let message = buffer.get(..received.len).map(ToAgent::decode);
            if let Some(Ok(ToAgent::Prepared { number })) = message {
                return Some((number, received.descriptors));
            }
        }
        None
    }

    /// Reports to the session that this child could not join it, unless the program has closed the
    /// connection.
    pub fn report_failure(&self, error: &std::io::Error) {
        if let Some(socket) = self.socket() {
            let _ = socket.send(&ToSession::ChildFailed(error.to_string()).encode(), &[]);
        }
    }

    /// Closes the recording, unless the program has done so.
    pub fn close(self) {
        if let Some(socket) = self.socket {
            socket.close_if_still(self.identity);
        }
    }

    /// The socket, as long as the descriptor is still the agent's.
    fn socket(&self) -> Option<&PacketSocket> {
        self.socket.as_ref().filter(|socket| socket.identity() == self.identity)
    }
}

/// Mapped memory of a recording.
#[derive(Debug)]
pub struct SharedMemory {
    control: SharedMap,
    rings: SharedMap,
    /// The array of a BPF program that selects the buffer.
    selector: Option<SharedMap>,
    geometry: Geometry,
    form: WriteProtocol,
    /// Bytes that were populated at the session's request.
    populated: u64,
}

impl SharedMemory {
    /// Groups the maps of one recording.
    pub fn new(
        control: SharedMap,
        rings: SharedMap,
        selector: Option<SharedMap>,
        geometry: Geometry,
        form: WriteProtocol,
    ) -> Self {
        Self { control, rings, selector, geometry, form, populated: 0 }
    }

    /// The control file.
    pub fn control(&self) -> &SharedMap {
        &self.control
    }

    /// Memory of the rings.
    pub fn rings(&self) -> &SharedMap {
        &self.rings
    }

    /// The word that selects the buffer.
    pub fn selector(&self) -> Option<&SharedMap> {
        self.selector.as_ref()
    }

    /// Releases the memory of a recording that has ended. In section form it is unmapped if no
    /// thread uses it any more. Else private memory replaces it, which is returned, to be unmapped
    /// later.
    ///
    /// In reserve form nothing tells whether a thread is still inside an append: the addresses stay
    /// for good, with nothing behind them.
    fn release(self, no_sections: bool) -> Vec<Retired> {
        if self.form == WriteProtocol::Rseq && no_sections && !in_flight::is_any() {
            return Vec::new();
        }
        let maps = [Some(self.control), Some(self.rings), self.selector];
        let retired = maps.into_iter().flatten().map(Retired::new).collect();
        if self.form == WriteProtocol::Rseq { retired } else { Vec::new() }
    }
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

/// The rules as they stand in the control file, and their generation. None if the session is being
/// stopped while it replaces them.
fn read_rules(control: &SharedMap) -> Option<(String, u32)> {
    let rules = rules_text::read(control)?;
    let text = String::from_utf8(rules.text);
    let text = text.unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Some((text, rules.generation))
}

impl JoinedRecording {
    /// Describes a recording that has just begun.
    pub fn new(name: String, socket: PacketSocket, memory: SharedMemory, counting: Option<Counting>) -> Self {
        // Without rules nothing is recorded until the session says that they have changed.
        let (rules, generation) = read_rules(&memory.control).unwrap_or_default();
        let triggers = Triggers::read(&memory.control).unwrap_or_default();
        let identity = socket.identity();
        let flags = memory.control.half(control::OFFSET_FLAGS).load(Ordering::Relaxed);
        let contexts = flags & control::FLAG_CONTEXTS != 0;
        let has_persistent_rings = flags & control::FLAG_PERSISTENT != 0;
        let (socket, described, invalidated) = (Some(socket), Described::default(), Vec::new());
        Self {
            name,
            socket,
            identity,
            memory,
            rules,
            generation,
            triggers,
            contexts,
            has_persistent_rings,
            counting,
            described,
            invalidated,
        }
    }

    /// The connection to the session, as long as its descriptor is the agent's. (The program may
    /// have closed it at any time, and use the number itself.)
    pub fn connection(&mut self) -> Option<&PacketSocket> {
        if let Some(lost) = self.socket.take_if(|socket| socket.identity() != self.identity) {
            std::mem::forget(lost);
        }
        self.socket.as_ref()
    }

    /// Takes the conversation over in the calling thread's table of descriptors, unless it is
    /// there.
    pub fn take_back(&mut self, socket: PacketSocket) {
        if socket.identity() == self.identity && self.connection().is_none() {
            self.socket = Some(socket.move_away());
        }
    }

    /// Reads the rules and the triggers again. Returns whether any have changed.
    pub fn refresh_rules(&mut self) -> bool {
        let before = (self.generation, self.triggers.generation);
        if let Some((rules, generation)) = read_rules(&self.memory.control) {
            (self.rules, self.generation) = (rules, generation);
        }
        self.triggers = Triggers::read(&self.memory.control).unwrap_or(std::mem::take(&mut self.triggers));
        (self.generation, self.triggers.generation) != before
    }

    /// Tells the session that a thread receives what it says from now on. Returns whether the rules
    /// have changed before.
    pub fn acknowledge_listening(&mut self) -> bool {
        let listens = self.memory.control.word(control::OFFSET_LISTENS);
        // Ordering: only this process changes the word.
        if listens.swap(1, Ordering::Relaxed) != 0 {
            return false;
        }
        // Ordering: pairs with the fence in the session's `Process::set_rules`: either it sees the
        // word and tells the process, or the rules are seen here.
        fence(Ordering::SeqCst);
        self.refresh_rules()
    }

    /// Tells the session that sites are enabled by these rules, and have these triggers.
    pub fn acknowledge_rules(&self) {
        rules_text::acknowledge(&self.memory.control, self.generation);
        let Triggers { text, generation, .. } = &self.triggers;
        captures::acknowledge(&self.memory.control, *generation, crate::triggers::understood(text));
    }

    /// Puts an event into the catalog, unless it is there, with the first `contexts` contexts if
    /// the recording wants them. False if there is no room.
    pub fn describe(&mut self, number: u32, description: &[u8], contexts: u32) -> bool {
        let (index, bit) = (number as usize / 64, 1u64 << (number % 64));
        let numbers = &mut self.described.numbers;
        if numbers.len() <= index {
            numbers.resize(index + 1, 0);
        }
        if numbers[index] & bit != 0 {
            return true;
        }
        let extended = self.contexts.then(|| with_contexts(description, contexts)).flatten();
        let description = extended.as_deref().unwrap_or(description);
        let is_added = self.add(number, &[description], u64::MAX);
        if is_added {
            self.described.add(number, description);
        }
        is_added
    }

    /// In the child of a fork: describes the events that the parent had in the session. False if
    /// this recording treats them otherwise, or they are not all known.
    pub fn resume(&mut self, parent: &ParentEvents) -> bool {
        let ParentEvents { rules, triggers, contexts, described, .. } = parent;
        // The application's contexts may be other ones since the parent joined.
        if self.contexts || *contexts || described.is_stale {
            return false;
        }
        if rules != &self.rules || !triggers.are_those_of(&self.triggers) {
            return false;
        }
        let is_added = self.append([&described.entries[..]].into_iter(), described.entries.len(), u64::MAX);
        if is_added {
            self.described = described.clone();
        }
        is_added
    }

    /// Notes that an event is gone, or could not be described. Children then describe their events
    /// again.
    pub fn forget_descriptions(&mut self) {
        (self.described.is_stale, self.described.entries) = (true, Vec::new());
    }

    /// Adds a record of the process's initial state to the catalog. False if the catalog would get
    /// larger than `room`.
    pub fn record_initial(&mut self, number: u32, writer: (u32, u32), payload: &[u8], room: u64) -> bool {
        let (time, (tid, cpu)) = (self.time(), writer);
        let parts = [&time.to_le_bytes()[..], &tid.to_le_bytes(), &cpu.to_le_bytes(), payload];
        self.add(number | catalog::INITIAL, &parts, room)
    }

    /// Marks addresses whose object is unknown from now on. False if they were marked before.
    pub fn invalidate(&mut self, addresses: Range<u64>) -> bool {
        let covers = |known: &Range<u64>| known.start <= addresses.start && addresses.end <= known.end;
        let is_new = !self.invalidated.iter().any(covers);
        self.invalidated.extend(is_new.then_some(addresses));
        is_new
    }

    /// Bytes of address space that the rings take.
    pub fn mapped_bytes(&self) -> u64 {
        self.memory.rings.len() as u64
    }

    /// Adds an entry to the catalog, unless that would make it larger than `limit`.
    fn add(&mut self, number: u32, parts: &[&[u8]], limit: u64) -> bool {
        let size: usize = parts.iter().map(|part| part.len()).sum();
        let header = catalog::entry_header(number, size);
        let parts = std::iter::once(&header[..]).chain(parts.iter().copied());
        self.append(parts, catalog::entry_len(size), limit)
    }

    /// Appends the parts of whole entries, which take `len` bytes with their padding, unless the
    /// catalog would get larger than `limit`.
    fn append<'a>(&mut self, parts: impl Iterator<Item = &'a [u8]>, len: usize, limit: u64) -> bool {
        let control = &self.memory.control;
        let used = control.word(control::CATALOG as usize + catalog::USED);
        // Ordering: only this process's registry, under its lock, writes the catalog.
        let end = used.load(Ordering::Relaxed);
        let new_end = end.saturating_add(len as u64);
        if new_end > (control::CATALOG_SIZE - catalog::ENTRIES as u64).min(limit) {
            return false;
        }
        let mut at = control::CATALOG as usize + catalog::ENTRIES + end as usize;
        for part in parts {
            control.copy_in(at, part);
            at += part.len();
        }
        // Ordering: pairs with the session's acquire load: a reader that sees the length sees the
        // entry.
        used.store(new_end, Ordering::Release);
        true
    }

    /// Present time on the clock of the rings.
    fn time(&self) -> u64 {
        let flags = self.memory.control.half(control::OFFSET_FLAGS).load(Ordering::Relaxed);
        if flags & control::FLAG_MONOTONIC != 0 { event::given_time() } else { tompion_os::tsc() }
    }

    /// Counts an event that could not be described.
    pub fn count_undescribed(&mut self, slot: usize) {
        self.forget_descriptions();
        // SAFETY: the place of a slot in use is valid.
        if let Some(recording) = unsafe { event::place(slot).as_ref() } {
            recording.count_without_ring(Cause::CatalogFull);
        }
    }

    /// Populates pages of the rings that the writer needs next. Other requests of the session, and
    /// repeated ones, are ignored: the kernel supplies those pages.
    pub fn populate(&mut self, offset: u64, len: u64) {
        let SharedMemory { rings, geometry, populated, .. } = &mut self.memory;
        let Some(ring) = geometry.ring_of(offset) else { return };
        // Ordering: only a hint; nothing else is read by it.
        let write = rings.word(ring as usize + ring::WRITE).load(Ordering::Relaxed);
        let len = geometry.ahead(offset, len, write);
        if len != 0 && *populated + len <= rings.len() as u64 {
            *populated += len;
            tompion_os::populate(rings.base().wrapping_add(offset as usize), len as usize);
        }
    }

    /// Leaves the recording in a running process. Afterwards no append reaches the session. Returns
    /// memory that a thread may still write.
    pub fn leave(self, slot: usize) -> Vec<Retired> {
        // SAFETY: the place of a slot in use is valid.
        if let Some(recording) = unsafe { event::place(slot).as_ref() } {
            recording.end();
        }
        // A thread inside a section restarts and finds the recording ended. In reserve form no
        // thread is restarted: an append that has begun completes.
        let no_sections =
            self.memory.form == WriteProtocol::Rseq && tompion_os::barrier_all_sections().is_ok();
        let (connection, retired) = self.abandon(slot, no_sections);
        connection.close();
        retired
    }

    /// Releases the memory of a recording that has ended, or whose page was wiped by a fork.
    /// `no_sections`: no thread is inside a section. Returns memory that a thread may still write.
    pub fn abandon(self, slot: usize, no_sections: bool) -> (InheritedConnection, Vec<Retired>) {
        let Self { name, socket, identity, has_persistent_rings, memory, described, .. } = self;
        if let Some(counting) = self.counting {
            counting.end(slot);
        }
        let (rules, triggers, contexts) = (self.rules, self.triggers, self.contexts);
        let events = ParentEvents { slot, rules, triggers, contexts, described };
        let connection = InheritedConnection { name, socket, identity, has_persistent_rings, events };
        (connection, memory.release(no_sections))
    }
}
