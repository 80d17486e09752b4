//! One stream file: packet by packet, event by event, through a window.
//!
//! ```text
//! file    │ packet         │ packet  │ packet      …
//! buffer           └──────────────────┘        a run of the file's bytes, refilled as needed
//! input              └─────────────┘           from a multiple of 4096 bytes into the packet on
//! ```

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;

use tompion_ctf::decode::{
    DecodeError, Decoder, EventBody, Input, News, Packet, State, Tally, WINDOW_ALIGNMENT,
};

use crate::Damage;

/// Largest event, or packet header, in bytes.
const MAX_WINDOW: usize = 256 << 20;
/// Damaged packets after which the rest of a file is left.
pub(crate) const MAX_DAMAGES: u32 = 1000;

/// A stream file that is being read.
pub(crate) struct StreamFile {
    pub path: PathBuf,
    pub decoder: Arc<Decoder>,
    pub state: State,
    file: Arc<File>,
    size: u64,
    buffer: Vec<u8>,
    /// How many bytes are read at once.
    window: usize,
    /// The buffer's place in the file.
    buffer_start: u64,
    /// The packet's place in the file.
    packet_start: u64,
    /// The input's place in the packet.
    base: u64,
    /// The next bit to decode in the packet.
    bit: u64,
    /// The bit behind the packet's content.
    content: u64,
    /// The clock's value at the packet's beginning.
    clock: u64,
    /// Whether the packet was left.
    is_left: bool,
    pub packet: Option<Packet>,
    /// The packet's processor, if it says one.
    pub cpu: Option<u64>,
    /// Whether it is being written: a packet that is not whole is none yet.
    pub is_growing: bool,
    /// The packet's number in its source, counted by the source.
    pub packets: u64,
    /// How often damage was passed over.
    pub damages: u32,
    /// The packet's header and context, which its values refer to.
    packet_bytes: Vec<u8>,
    /// Index of the current event's class.
    pub class: usize,
    pub body: EventBody,
}

impl StreamFile {
    /// Opens a file.
    pub fn open(path: PathBuf, decoder: Arc<Decoder>, window: usize) -> io::Result<Self> {
        let file = Arc::new(File::open(&path)?);
        Self::new(path, file, decoder, window)
    }

    /// Reads a file that is open, from its beginning on.
    pub fn new(path: PathBuf, file: Arc<File>, decoder: Arc<Decoder>, window: usize) -> io::Result<Self> {
        let size = file.metadata()?.len();
        Ok(Self {
            path,
            state: decoder.state(),
            decoder,
            file,
            size,
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
            damages: 0,
            packet_bytes: Vec::new(),
            class: 0,
            body: EventBody::default(),
        })
    }

    /// The bytes that are in memory, from `base` on.
    pub fn input(&self) -> Input<'_> {
        let begin = self.packet_start + self.base;
        let begin = begin.checked_sub(self.buffer_start).and_then(|begin| usize::try_from(begin).ok());
        let bytes = begin.and_then(|begin| self.buffer.get(begin..)).unwrap_or_default();
        Input::new(bytes, self.content.saturating_sub(self.base * 8))
    }

    /// The header and context of the packet.
    pub fn packet_input(&self) -> Input<'_> {
        Input::new(&self.packet_bytes, u64::MAX)
    }

    /// Index of the packet's stream class.
    pub fn stream(&self) -> usize {
        self.packet.as_ref().map_or(0, |packet| packet.stream)
    }

    /// Forgets what is in memory, and gives its room away. It is read again where it is needed.
    pub fn take_buffer(&mut self) -> Vec<u8> {
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer
    }

    /// Uses this room, of a file that was just opened.
    pub fn use_buffer(&mut self, buffer: Vec<u8>) {
        self.buffer = buffer;
    }

    /// Goes to a place where a packet begins; [`Self::next_packet`] reads it.
    pub fn go_to(&mut self, packet: u64) {
        self.packet = None;
        self.packet_start = packet;
    }

    /// Where the packet begins, in bytes from the file's beginning.
    pub fn packet_start(&self) -> u64 {
        self.packet_start
    }

    /// Size of the packet in bytes; up to the file's end if it says none.
    pub fn packet_size(&self) -> u64 {
        let left = self.size.saturating_sub(self.packet_start);
        self.packet.as_ref().and_then(|packet| packet.packet_bits).map_or(left, |bits| left.min(bits / 8))
    }

    /// Where the next packet begins, in bytes from the file's beginning; nothing if the file ends before that.
    pub fn next_place(&self) -> Option<u64> {
        let left = self.size.checked_sub(self.packet_start)?;
        let Some(packet) = &self.packet else { return Some(self.packet_start) };
        let size = packet.packet_bits.map_or(left, |bits| bits / 8);
        (size <= left).then(|| self.packet_start + size)
    }

    /// The next bit to decode in the packet.
    pub fn bit(&self) -> u64 {
        self.bit
    }

    /// Where the event begins whose header was decoded last, in bytes from the file's beginning.
    pub fn offset(&self) -> u64 {
        self.packet_start + self.bit / 8
    }

    /// Reads but the packets from one place on, up to another one. Of a file that was just opened.
    pub fn narrow(&mut self, from: u64, to: Option<u64>) {
        self.packet_start = from;
        self.size = to.map_or(self.size, |to| to.min(self.size));
    }

    fn damage(&self, error: &DecodeError) -> Damage {
        let offset = Some(self.packet_start + self.base + error.bit / 8);
        let message = match error.bit % 8 {
            0 => error.to_string(),
            bit => format!("{error}, at bit {bit}"),
        };
        Damage { path: self.path.clone(), offset, message }
    }

    fn io_damage(&self, offset: u64, error: &io::Error) -> Damage {
        Damage { path: self.path.clone(), offset: Some(offset), message: error.to_string() }
    }

    /// Fills the buffer from a place in the file on.
    fn fill(&mut self, start: u64, size: usize) -> Result<(), Damage> {
        let left = usize::try_from(self.size.saturating_sub(start)).unwrap_or(usize::MAX);
        self.buffer.resize(size.min(left), 0);
        self.buffer_start = start;
        let mut filled = 0;
        while let Some(rest) = self.buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            match self.file.read_at(rest, start + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.io_damage(start + filled as u64, &error)),
            }
        }
        self.buffer.truncate(filled);
        Ok(())
    }

    /// Whether the buffer reaches the end of the packet's content, or of the file.
    fn is_complete(&self) -> bool {
        let end = self.buffer_start + self.buffer.len() as u64;
        end >= self.size || end >= self.packet_start.saturating_add(self.content.div_ceil(8))
    }

    /// Brings more bytes from the current bit on into memory. False if there are no more.
    fn widen(&mut self) -> Result<bool, Damage> {
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
            return Err(Damage { path: self.path.clone(), offset: Some(offset), message });
        }
        self.base = base;
        self.fill(start, size)?;
        Ok(true)
    }

    /// Goes to the next packet. False at the end of the file.
    pub fn next_packet(&mut self) -> Result<bool, Damage> {
        if let Some(packet) = self.packet.take() {
            let left = self.size.saturating_sub(self.packet_start);
            let size = packet.packet_bits.map_or(left, |bits| bits / 8);
            if size > left {
                let message = format!("expected a packet of {size} bytes, found {left}");
                return Err(Damage { path: self.path.clone(), offset: Some(self.size), message });
            }
            self.packet_start += size;
        }
        if self.packet_start >= self.size {
            return Ok(false);
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
                Err(error) => return Err(self.damage(&error)),
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

    /// Goes to the next event of the packet and decodes its header. False at the end of the packet.
    #[inline]
    pub fn next_header(&mut self) -> Result<bool, Damage> {
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
                Err(error) => return Err(self.damage(&error)),
            }
        }
    }

    /// Decodes the rest of the event whose header was decoded last, or passes over it.
    #[inline]
    pub fn finish_event(&mut self, keep: bool) -> Result<(), Damage> {
        let stream = self.stream();
        // Positions are relative to `base`, which moves when the window does.
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
                        return Err(self.damage(&DecodeError { problem, bit }));
                    }
                    self.bit = end;
                    return Ok(());
                }
                Err(error) if error.is_cut() && self.widen()? => {}
                Err(error) => return Err(self.damage(&error)),
            }
        }
    }

    /// Counts the events that are left in the packet. Where time goes back is told by the byte of the file. `news` is called as [`Decoder::tally`] says.
    pub fn tally(&mut self, tally: &mut Tally, news: &mut News<'_>) -> Result<(), Damage> {
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
                // A window ends where its last event does only by chance.
                None if self.bit >= self.content || !self.widen()? => return Ok(()),
                None => {}
                Some(error) if error.is_cut() && self.widen()? => {}
                Some(error) => return Err(self.damage(&error)),
            }
        }
        Ok(())
    }

    /// Goes on behind damage: to the next sound packet. False if none is left.
    ///
    /// The size of the damaged packet is believed if a packet, or the end of the file, is where it says. Else
    /// the file is searched for what packets begin with, if they do begin with something.
    pub fn recover(&mut self) -> Result<bool, Damage> {
        self.damages += 1;
        if self.damages > MAX_DAMAGES {
            return Ok(false);
        }
        let damaged = self.packet_start;
        (self.bit, self.content) = (0, 0);
        let size = self.packet.take().and_then(|packet| packet.packet_bits).map(|bits| bits / 8);
        let next = size.and_then(|size| damaged.checked_add(size));
        if let Some(next) = next.filter(|&next| next <= self.size) {
            if next == self.size || self.begins_packet(next)? {
                self.packet_start = next;
                return Ok(next < self.size);
            }
        }
        let Some(magic) = self.decoder.magic() else { return Ok(false) };
        let mut from = damaged + 1;
        while let Some(found) = self.find(&magic, from)? {
            if self.begins_packet(found)? {
                self.packet_start = found;
                return Ok(true);
            }
            from = found + 1;
        }
        Ok(false)
    }

    /// Whether a sound packet of this trace begins here.
    fn begins_packet(&mut self, start: u64) -> Result<bool, Damage> {
        self.fill(start, self.window)?;
        let bits = self.size.saturating_sub(start).saturating_mul(8);
        let packet = self.decoder.packet(Input::new(&self.buffer, bits), &mut self.state);
        Ok(packet
            .is_ok_and(|packet| !packet.is_foreign && packet.packet_bits.is_none_or(|size| size <= bits)))
    }

    /// The next place with these bytes.
    fn find(&mut self, bytes: &[u8; 4], from: u64) -> Result<Option<u64>, Damage> {
        let mut start = from;
        while start < self.size {
            self.fill(start, self.window)?;
            if let Some(place) = memchr::memmem::find(&self.buffer, bytes) {
                return Ok(Some(start + place as u64));
            }
            // The bytes may lie across the border.
            let read = self.buffer.len() as u64;
            if read < bytes.len() as u64 {
                break;
            }
            start += read - (bytes.len() as u64 - 1);
        }
        Ok(None)
    }

    /// Leaves the rest of the packet unread, as far as times behind it don't depend on it.
    pub fn leave_packet(&mut self) {
        if !self.is_left && self.carries_clock() {
            let clock = match self.pass_events() {
                Ok(()) => {
                    self.state.clock().max(self.packet.as_ref().and_then(|packet| packet.end).unwrap_or(0))
                }
                // Times among damage mean nothing.
                Err(_) => self.clock,
            };
            self.state.set_clock(clock);
        }
        (self.bit, self.is_left) = (self.content, true);
    }

    /// Whether times behind the packet depend on it.
    pub fn carries_clock(&self) -> bool {
        self.packet.as_ref().is_some_and(|packet| self.decoder.carries_clock(packet.stream))
    }

    fn pass_events(&mut self) -> Result<(), Damage> {
        while self.next_header()? {
            self.finish_event(false)?;
        }
        Ok(())
    }
}
