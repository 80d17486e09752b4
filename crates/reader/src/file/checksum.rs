//! Checks packets of Tompion's own traces against their checksums.
//!
//! A packet is checked before any of its events, and before its counters are believed. One that
//! ends before its checksum can't be checked, and its events are left out. Where only headers are
//! read, to find windows and ranges, nothing is checked: the bytes are not there.

use tompion_ctf::encode::{PacketChecksum, TRAILER_SIZE, is_trailer};
use tompion_ctf::metadata::{EnvironmentValue, Trace};

use super::StreamFile;
use crate::Corruption;

/// Size of the trailer in bytes.
const TRAILER: u64 = TRAILER_SIZE as u64;

/// Whether the packets of a trace can have checksums.
pub(super) fn are_in(trace: &Trace) -> bool {
    let producer = trace.environment_value("producer").and_then(EnvironmentValue::as_text);
    producer.is_some_and(|producer| producer.starts_with("tompion "))
}

impl StreamFile {
    /// Checks the packet that was just begun, if it has a checksum.
    ///
    /// # Errors
    ///
    /// Fails if the packet is not what was written, or ends before its checksum.
    pub fn check_packet(&mut self) -> Result<(), Corruption> {
        let Some(packet) = self.packet.as_ref().filter(|_| self.has_checksums) else { return Ok(()) };
        let (Some(bits), Some(content)) = (packet.packet_bits, packet.content_bits) else { return Ok(()) };
        let (size, content) = (bits / 8, content.div_ceil(8));
        let left = self.size.saturating_sub(self.packet_start);
        let is_whole = size <= left;
        // A copy by another program has no trailer, and no room for one.
        if !is_whole && size > content {
            return Err(self.truncation(size, ": its checksum is missing, so its events are left out"));
        }
        let is_sound = match size.checked_sub(content) {
            Some(TRAILER) => self.has_checksum(size)?,
            // A copy by another program has no trailer. If only a size is wrong, there is one.
            _ => !self.has_trailer(content)? && !self.has_trailer(size.saturating_sub(TRAILER))?,
        };
        if is_sound {
            return Ok(());
        }
        let sequence = self.packet.as_ref().and_then(|packet| packet.sequence);
        let number = sequence.map(|number| format!(" {number}")).unwrap_or_default();
        let message = format!(
            "packet{number} of {size} bytes was changed after it was written: its checksum is wrong, so \
             its events are left out"
        );
        Err(Corruption { path: self.path.clone(), offset: Some(self.packet_start), message })
    }

    /// Whether the checksum of the packet, of this many bytes, is correct. Leaves the packet's
    /// beginning in the buffer.
    fn has_checksum(&mut self, size: u64) -> Result<bool, Corruption> {
        if let Some(bytes) = self.in_buffer(self.packet_start, size) {
            return Ok(PacketChecksum::new().is_correct(bytes));
        }
        let (mut sum, mut done) = (PacketChecksum::new(), 0);
        // The last piece has all of the trailer.
        let piece = (self.window.saturating_sub(4096) / 4096).max(1) * 4096;
        while size - done > (piece + 4096) as u64 {
            self.fill(self.packet_start + done, piece)?;
            sum.add(&self.buffer);
            done += piece as u64;
        }
        self.fill(self.packet_start + done, (size - done) as usize)?;
        let is_correct = sum.is_correct(&self.buffer);
        if done > 0 {
            self.fill(self.packet_start, self.window)?;
        }
        Ok(is_correct)
    }

    /// Whether a trailer stands at a position in the packet.
    fn has_trailer(&mut self, position: u64) -> Result<bool, Corruption> {
        let Some(place) = self.packet_start.checked_add(position) else { return Ok(false) };
        if place.saturating_add(TRAILER) > self.size {
            return Ok(false);
        }
        if let Some(bytes) = self.in_buffer(place, TRAILER) {
            return Ok(is_trailer(bytes));
        }
        self.fill(place, TRAILER_SIZE)?;
        let is_trailer = is_trailer(&self.buffer);
        self.fill(self.packet_start, self.window)?;
        Ok(is_trailer)
    }

    /// Returns bytes of the file that are in memory.
    fn in_buffer(&self, start: u64, size: u64) -> Option<&[u8]> {
        let begin = usize::try_from(start.checked_sub(self.buffer_start)?).ok()?;
        self.buffer.get(begin..)?.get(..usize::try_from(size).ok()?)
    }
}
