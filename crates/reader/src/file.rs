//! Reads one stream file packet by packet and event by event, through a window.
//!
//! ```text
//! file    │ packet         │ packet  │ packet      …
//! buffer           └──────────────────┘        a run of the file's bytes, refilled as needed
//! input              └─────────────┘           from a multiple of 4096 bytes into the packet on
//! ```

mod checksum;
mod handle;

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use tompion_ctf::decode::{
    DecodeError, Decoder, EventBody, Input, News, Packet, State, Tally, WINDOW_ALIGNMENT,
};

use crate::Corruption;
use handle::Handle;

/// Maximum size of an event or a packet header, in bytes.
const MAX_WINDOW: usize = 256 << 20;
/// Number of corrupt packets after which the rest of a file is skipped.
pub(crate) const MAX_CORRUPTIONS: u32 = 1000;

/// Stream file that is being read.
pub(crate) struct StreamFile {
    pub path: PathBuf,
    pub decoder: Arc<Decoder>,
    pub state: State,
    file: Handle,
    size: u64,
    /// Size that the file had before it became shorter, until that is reported.
    larger_size: Option<u64>,
    /// Size that the file had when it was found shorter than before.
    cut_size: Option<u64>,
    /// Whether packets end with a checksum.
    has_checksums: bool,
    buffer: Vec<u8>,
    /// Number of bytes read at once.
    window: usize,
    /// Position of the buffer in the file.
    buffer_start: u64,
    /// Position of the packet in the file.
    packet_start: u64,
    /// Position of the input in the packet.
    base: u64,
    /// Next bit to decode in the packet.
    bit: u64,
    /// Bit position behind the packet's content.
    content: u64,
    /// Clock value at the beginning of the packet.
    clock: u64,
    /// Whether the rest of the packet was skipped.
    is_left: bool,
    pub packet: Option<Packet>,
    /// CPU of the packet, if the packet states it.
    pub cpu: Option<u64>,
    /// Whether the file is still being written: an incomplete packet is treated as absent.
    pub is_growing: bool,
    /// Number of the packet in its source, counted by the source.
    pub packets: u64,
    /// Number of times that corruption was skipped.
    pub corruptions: u32,
    /// Header and context of the packet, which its values refer to.
    packet_bytes: Vec<u8>,
    /// Index of the current event's class.
    pub class: usize,
    pub body: EventBody,
}

impl StreamFile {
    /// Opens a file.
    pub fn open(path: PathBuf, decoder: Arc<Decoder>, window: usize) -> io::Result<Self> {
        let file = Arc::new(tompion_os::open_regular(&path)?);
        Self::new(path, file, decoder, window)
    }

    /// Keeps no descriptor between reads: the file is opened again for each.
    pub fn close_between_reads(&mut self) {
        self.file.close_between_reads();
    }

    /// Reads an open file from its beginning.
    pub fn new(path: PathBuf, file: Arc<File>, decoder: Arc<Decoder>, window: usize) -> io::Result<Self> {
        let file = Handle::new(file)?;
        let size = file.size();
        Ok(Self {
            path,
            state: decoder.state(),
            has_checksums: checksum::are_in(decoder.trace()),
            decoder,
            file,
            size,
            larger_size: None,
            cut_size: None,
            buffer: Vec::new(),
            window,
            buffer_start: 0,
            packet_start: 0,
            base: 0,
            bit: 0,
            content: 0,
            clock: 0,
            is_left: false,
            packet: None,
            cpu: None,
            is_growing: false,
            packets: 0,
            corruptions: 0,
            packet_bytes: Vec::new(),
            class: 0,
            body: EventBody::default(),
        })
    }

    /// Returns the bytes in memory, from `base` on.
    pub fn input(&self) -> Input<'_> {
        let begin = self.packet_start + self.base;
        let begin = begin.checked_sub(self.buffer_start).and_then(|begin| usize::try_from(begin).ok());
        let bytes = begin.and_then(|begin| self.buffer.get(begin..)).unwrap_or_default();
        Input::new(bytes, self.content.saturating_sub(self.base * 8))
    }

    /// Returns the header and context of the packet.
    pub fn packet_input(&self) -> Input<'_> {
        Input::new(&self.packet_bytes, u64::MAX)
    }

    /// Returns the index of the packet's stream class.
    pub fn stream(&self) -> usize {
        self.packet.as_ref().map_or(0, |packet| packet.stream)
    }

    /// Drops the bytes in memory and returns their allocation. They are read again when needed.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    /// Reuses an allocation for a file that was just opened.
    pub fn use_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Moves to the beginning of a packet; [`Self::next_packet`] reads it.
    pub fn go_to(&mut self, packet: u64) {
        self.packet = None;
        self.packet_start = packet;
    }

    /// Returns the position of the packet, in bytes from the beginning of the file.
    pub fn packet_start(&self) -> u64 {
        self.packet_start
    }

    /// Returns the size of the packet in bytes; up to the end of the file if it states none.
    pub fn packet_size(&self) -> u64 {
        let left = self.size.saturating_sub(self.packet_start);
        self.packet.as_ref().and_then(|packet| packet.packet_bits).map_or(left, |bits| left.min(bits / 8))
    }

    /// Returns the position of the next packet, in bytes from the beginning of the file, or `None`
    /// if the file ends before it.
    pub fn next_place(&self) -> Option<u64> {
        let left = self.size.checked_sub(self.packet_start)?;
        let Some(packet) = &self.packet else { return Some(self.packet_start) };
        let size = packet.packet_bits.map_or(left, |bits| bits / 8);
        (size <= left).then(|| self.packet_start + size)
    }

    /// Returns the next bit to decode in the packet.
    pub fn bit(&self) -> u64 {
        self.bit
    }

    /// Returns the position of the event whose header was decoded last, in bytes from the beginning
    /// of the file.
    pub fn offset(&self) -> u64 {
        self.packet_start + self.bit / 8
    }

    /// Restricts a file that was just opened to the packets between two positions.
    pub fn narrow(&mut self, from: u64, to: Option<u64>) {
        self.packet_start = from;
        self.expect_size(to.unwrap_or(0));
        self.size = to.map_or(self.size, |to| to.min(self.size));
    }

    /// Returns what the file system knows of the file, if it is open.
    pub fn metadata(&self) -> Option<std::fs::Metadata> {
        self.file.metadata()
    }

    /// Returns the size of the file in bytes.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// States the least size that the file had before.
    pub fn expect_size(&mut self, size: u64) {
        if size > self.size {
            self.larger_size = self.larger_size.max(Some(size));
        }
    }

    fn corruption(&self, error: &DecodeError) -> Corruption {
        let offset = Some(self.packet_start + self.base + error.bit / 8);
        let mut message = match error.bit % 8 {
            0 => error.to_string(),
            bit => format!("{error}, at bit {bit}"),
        };
        if let Some(larger) = self.larger_size {
            message = format!("{message}: {}", self.shrinkage(larger));
        }
        Corruption { path: self.path.clone(), offset, message }
    }

    fn shrinkage(&self, larger: u64) -> String {
        format!("the file was cut from {larger} to {} bytes while it was read", self.end())
    }

    /// Returns the position at which the file ends, even if that is before what was read.
    fn end(&self) -> u64 {
        self.cut_size.map_or(self.size, |cut| cut.min(self.size))
    }

    /// Reports that the file ends within a packet of this size, with the consequence.
    fn truncation(&mut self, size: u64, consequence: &str) -> Corruption {
        let left = self.size.saturating_sub(self.packet_start);
        let mut message = format!("expected a packet of {size} bytes, found {left}{consequence}");
        if let Some(larger) = self.larger_size.take() {
            message = format!("{message}: {}", self.shrinkage(larger));
        }
        Corruption { path: self.path.clone(), offset: Some(self.end()), message }
    }

    fn io_corruption(&self, offset: u64, error: &io::Error) -> Corruption {
        Corruption { path: self.path.clone(), offset: Some(offset), message: error.to_string() }
    }

    /// Fills the buffer from a position in the file on.
    fn fill(&mut self, start: u64, size: usize) -> Result<(), Corruption> {
        let left = usize::try_from(self.size.saturating_sub(start)).unwrap_or(usize::MAX);
        self.buffer.resize(size.min(left), 0);
        self.buffer_start = start;
        let file = self.file.open(&self.path).map_err(|error| self.io_corruption(start, &error))?;
        let mut filled = 0;
        while let Some(rest) = self.buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match file.read_at(rest, start + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_corruption(start + filled as u64, &error)),
            }
        }
        if filled < self.buffer.len() {
            self.buffer.truncate(filled);
            self.shrink(start + filled as u64);
        }
        Ok(())
    }

    /// Notes that the file is not longer than this, though it was before.
    #[cold]
    fn shrink(&mut self, end: u64) {
        self.larger_size = self.larger_size.max(Some(self.size));
        self.size = self.size.min(end);
        self.cut_size = self.file.open(&self.path).ok().and_then(|file| Some(file.metadata().ok()?.len()));
    }

    /// Reports once that the file has become shorter, at its new end.
    fn end_of_file(&mut self) -> Result<bool, Corruption> {
        let Some(larger) = self.larger_size.take() else { return Ok(false) };
        let message = self.shrinkage(larger);
        Err(Corruption { path: self.path.clone(), offset: Some(self.end()), message })
    }

    /// Whether the buffer reaches the end of the packet's content, or of the file.
    fn is_complete(&self) -> bool {
        let end = self.buffer_start + self.buffer.len() as u64;
        end >= self.size || end >= self.packet_start.saturating_add(self.content.div_ceil(8))
    }

    /// Reads more bytes, from the current bit on. Returns false if there are no more.
    fn widen(&mut self) -> Result<bool, Corruption> {
        if self.is_complete() {
            return Ok(false);
        }
        let base = self.bit / 8 / WINDOW_ALIGNMENT * WINDOW_ALIGNMENT;
        let start = self.packet_start + base;
        let mut size = self.window;
        if start == self.buffer_start {
            size = self.buffer.len().max(self.window).saturating_mul(2);
        }
        if size > MAX_WINDOW {
            let offset = self.packet_start + self.bit / 8;
            let message =
                format!("expected an event of at most {} bytes, found a larger one", MAX_WINDOW / 2);
            return Err(Corruption { path: self.path.clone(), offset: Some(offset), message });
        }
        self.base = base;
        self.fill(start, size)?;
        Ok(true)
    }

    /// Moves to the next packet. Returns false at the end of the file.
    pub fn next_packet(&mut self) -> Result<bool, Corruption> {
        if let Some(packet) = self.packet.take() {
            let left = self.size.saturating_sub(self.packet_start);
            let size = packet.packet_bits.map_or(left, |bits| bits / 8);
            if size > left {
                return Err(self.truncation(size, ""));
            }
            self.packet_start += size;
        }
        if self.packet_start >= self.size {
            return self.end_of_file();
        }
        (self.base, self.bit, self.is_left) = (0, 0, false);
        let before = self.state.clock();
        self.content = self.size.saturating_sub(self.packet_start).saturating_mul(8);
        let in_buffer = self.buffer_start + self.buffer.len() as u64;
        if !(self.buffer_start..in_buffer).contains(&self.packet_start) {
            self.fill(self.packet_start, self.window)?;
        }
        let packet = loop {
            let begin = usize::try_from(self.packet_start - self.buffer_start).unwrap_or(usize::MAX);
            let bytes = self.buffer.get(begin..).unwrap_or_default();
            self.state.set_clock(before);
            match self.decoder.packet(Input::new(bytes, self.content), &mut self.state) {
                Ok(packet) => {
                    let size = packet.header_bits.div_ceil(8) as usize;
                    self.packet_bytes.clear();
                    self.packet_bytes.extend_from_slice(bytes.get(..size).unwrap_or_default());
                    break packet;
                }
                Err(error) if error.is_cut() && self.widen()? => {}
                Err(error) if error.is_cut() && self.is_growing => return Ok(false),
                Err(error) => return Err(self.corruption(&error)),
            }
        };
        let left = self.size.saturating_sub(self.packet_start);
        if self.is_growing && packet.packet_bits.is_none_or(|bits| bits / 8 > left) {
            return Ok(false);
        }
        self.bit = packet.header_bits;
        self.content = packet.content_bits.unwrap_or(self.content);
        self.clock = self.state.clock();
        let cpu = self.decoder.packet_context(&packet, self.packet_input()).get("cpu_id");
        self.cpu = cpu.and_then(|cpu| cpu.as_integer()?.try_into().ok());
        self.packet = Some(packet);
        Ok(true)
    }

    /// Moves to the next event of the packet and decodes its header. Returns false at the end of
    /// the packet.
    #[inline]
    pub fn next_header(&mut self) -> Result<bool, Corruption> {
        loop {
            if self.bit >= self.content {
                return Ok(false);
            }
            let (stream, bit) = (self.stream(), self.bit - self.base * 8);
            let begin = (self.packet_start + self.base).saturating_sub(self.buffer_start);
            let bytes = self.buffer.get(begin as usize..).unwrap_or_default();
            let input = Input::new(bytes, self.content - self.base * 8);
            match self.decoder.event_header(stream, input, bit, &mut self.state) {
                Ok(head) => {
                    self.class = head.class;
                    self.body.end = head.end;
                    return Ok(true);
                }
                Err(error) if error.is_cut() && self.widen()? => {}
                Err(error) => return Err(self.corruption(&error)),
            }
        }
    }

    /// Decodes or skips the rest of the event whose header was decoded last.
    #[inline]
    pub fn finish_event(&mut self, keep: bool) -> Result<(), Corruption> {
        let stream = self.stream();
        // Positions are relative to `base`, which changes when the window moves.
        let header = self.body.end + self.base * 8;
        loop {
            let begin = (self.packet_start + self.base).saturating_sub(self.buffer_start);
            let bytes = self.buffer.get(begin as usize..).unwrap_or_default();
            let input = Input::new(bytes, self.content - self.base * 8);
            let place = (header - self.base * 8, &mut self.state);
            let result = match keep {
                true => self.decoder.event_body(stream, self.class, input, place),
                false => self.decoder.skip_event_body(stream, self.class, input, place),
            };
            match result {
                Ok(body) => {
                    self.body = body;
                    let end = body.end + self.base * 8;
                    if end == self.bit {
                        let problem = tompion_ctf::decode::Problem::EmptyEvent;
                        let bit = end - self.base * 8;
                        return Err(self.corruption(&DecodeError { problem, bit }));
                    }
                    self.bit = end;
                    return Ok(());
                }
                Err(error) if error.is_cut() && self.widen()? => {}
                Err(error) => return Err(self.corruption(&error)),
            }
        }
    }

    /// Counts the remaining events of the packet. Timestamp regressions are located by their byte
    /// in the file. `news` is called as [`Decoder::tally`] describes.
    pub fn tally(&mut self, tally: &mut Tally, news: &mut News<'_>) -> Result<(), Corruption> {
        let stream = self.stream();
        while self.bit < self.content {
            let begin = (self.packet_start + self.base).saturating_sub(self.buffer_start);
            let bytes = self.buffer.get(begin as usize..).unwrap_or_default();
            let input = Input::new(bytes, self.content - self.base * 8);
            let place = (self.bit - self.base * 8, &mut self.state);
            let is_first = tally.back.is_none();
            let (end, error) = self.decoder.tally(stream, input, place, (&mut *tally, &mut *news));
            self.bit = end + self.base * 8;
            if let Some(back) = tally.back.as_mut().filter(|_| is_first) {
                back.place = self.packet_start + self.base + back.place / 8;
            }
            match error {
                // A window ends exactly at the end of its last event only by chance.
                None if self.bit >= self.content || !self.widen()? => return Ok(()),
                None => {}
                Some(error) if error.is_cut() && self.widen()? => {}
                Some(error) => return Err(self.corruption(&error)),
            }
        }
        Ok(())
    }

    /// Moves past corruption to the next intact packet. Returns false if there is none.
    ///
    /// The size of the corrupt packet is trusted if a packet, or the end of the file, is where it
    /// says. Otherwise the file is searched for the magic number of packets, if they have one.
    pub fn recover(&mut self) -> Result<bool, Corruption> {
        self.corruptions += 1;
        self.larger_size = None;
        if self.corruptions > MAX_CORRUPTIONS {
            return Ok(false);
        }
        let corrupt = self.packet_start;
        (self.bit, self.content) = (0, 0);
        let size = self.packet.take().and_then(|packet| packet.packet_bits).map(|bits| bits / 8);
        let next = size.and_then(|size| corrupt.checked_add(size));
        if let Some(next) = next.filter(|&next| next <= self.size) {
            if next == self.size || self.begins_packet(next)? {
                self.packet_start = next;
                return Ok(next < self.size);
            }
        }
        let Some(magic) = self.decoder.magic() else { return Ok(false) };
        let mut from = corrupt + 1;
        while let Some(found) = self.find(&magic, from)? {
            if self.begins_packet(found)? {
                self.packet_start = found;
                return Ok(true);
            }
            from = found + 1;
        }
        Ok(false)
    }

    /// Whether an intact packet of this trace begins at this position.
    fn begins_packet(&mut self, start: u64) -> Result<bool, Corruption> {
        self.fill(start, self.window)?;
        let bits = self.size.saturating_sub(start).saturating_mul(8);
        let packet = self.decoder.packet(Input::new(&self.buffer, bits), &mut self.state);
        Ok(packet
            .is_ok_and(|packet| !packet.is_foreign && packet.packet_bits.is_none_or(|size| size <= bits)))
    }

    /// Finds the next position of these bytes.
    fn find(&mut self, bytes: &[u8; 4], from: u64) -> Result<Option<u64>, Corruption> {
        let mut start = from;
        while start < self.size {
            self.fill(start, self.window)?;
            if let Some(place) = memchr::memmem::find(&self.buffer, bytes) {
                return Ok(Some(start + place as u64));
            }
            // The bytes may straddle two reads.
            let read = self.buffer.len() as u64;
            if read < bytes.len() as u64 {
                break;
            }
            start += read - (bytes.len() as u64 - 1);
        }
        Ok(None)
    }

    /// Skips the rest of the packet, except where later timestamps depend on it.
    pub fn leave_packet(&mut self) {
        if !self.is_left && self.carries_clock() {
            let clock = match self.pass_events() {
                Ok(()) => {
                    self.state.clock().max(self.packet.as_ref().and_then(|packet| packet.end).unwrap_or(0))
                }
                // Timestamps in corrupt bytes are meaningless.
                Err(_) => self.clock,
            };
            self.state.set_clock(clock);
        }
        (self.bit, self.is_left) = (self.content, true);
    }

    /// Whether timestamps behind the packet depend on its events.
    pub fn carries_clock(&self) -> bool {
        self.packet.as_ref().is_some_and(|packet| self.decoder.carries_clock(packet.stream))
    }

    fn pass_events(&mut self) -> Result<(), Corruption> {
        while self.next_header()? {
            self.finish_event(false)?;
        }
        Ok(())
    }
}
