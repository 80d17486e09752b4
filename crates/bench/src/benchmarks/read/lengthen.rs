//! Lengthens traces: repeats the packets of each stream, each time later.
//!
//! Only what changes from one copy to the next is rewritten: the times and counters of packets, and
//! whole timestamps in event headers. A copy is later by a multiple of 2³² cycles, so that
//! timestamps of which only the lowest bits are recorded stay as they are.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tompion_ctf::decode::{Decoder, Input, Packet, State};
use tompion_ctf::encode::{is_trailer, seal};
use tompion_ctf::metadata::{ByteOrder, Form, Struct, Type};

/// Unit of the delay of a copy.
const STEP: u64 = 1 << 32;
/// Size of a timestamp, or counter, that is rewritten.
const WORD: usize = 8;

/// A stream file and what changes in it.
struct Stream {
    from: PathBuf,
    to: PathBuf,
    bytes: Vec<u8>,
    /// Places of times.
    times: Vec<usize>,
    /// Places of counters, and by how much each grows from copy to copy.
    counters: Vec<(usize, u64)>,
    /// Packets that end with a checksum, which is rewritten as well.
    sealed: Vec<std::ops::Range<usize>>,
    first: u64,
    last: u64,
}

/// Copies the trace at or below a folder, with each of its packets `copies` times.
///
/// Timestamps and counters of packets must be little-endian and have 64 bits.
pub fn lengthen(from: &Path, to: &Path, copies: u64) -> Result<()> {
    ensure!(!to.exists(), "{} exists already", to.display());
    let mut streams = Vec::new();
    prepare(from, to, &mut streams)?;
    let first = streams.iter().map(|stream| stream.first).min().context("there is no stream")?;
    let last = streams.iter().map(|stream| stream.last).max().unwrap_or(first);
    let period = (last.saturating_sub(first) + 1).next_multiple_of(STEP);
    streams.iter().try_for_each(|stream| stream.write(copies, period))
}

/// Copies descriptions; finds streams.
fn prepare(from: &Path, to: &Path, streams: &mut Vec<Stream>) -> Result<()> {
    fs::create_dir_all(to).with_context(|| format!("cannot make {}", to.display()))?;
    let description = from.join("metadata");
    let mut decoder = None;
    if description.is_file() {
        let bytes = fs::read(&description)?;
        fs::write(to.join("metadata"), &bytes)?;
        decoder = Some(Decoder::new(tompion_ctf::parse(&bytes)?)?);
    }
    for entry in fs::read_dir(from).with_context(|| format!("cannot list {}", from.display()))? {
        let entry = entry?;
        let name = entry.file_name();
        if entry.path().is_dir() {
            // Indexes tell where the packets were.
            if name != "index" {
                prepare(&entry.path(), &to.join(name), streams)?;
            }
            continue;
        }
        let is_stream = name != "metadata" && name != "tompion.json";
        if let Some(decoder) =
            decoder.as_ref().filter(|_| is_stream && entry.metadata().is_ok_and(|it| it.len() > 0))
        {
            let stream = Stream::read(decoder, entry.path(), to.join(name));
            streams.push(stream.with_context(|| format!("cannot lengthen {}", entry.path().display()))?);
        }
    }
    Ok(())
}

impl Stream {
    fn read(decoder: &Decoder, from: PathBuf, to: PathBuf) -> Result<Self> {
        let bytes = fs::read(&from)?;
        let mut stream = Self {
            from,
            to,
            bytes: Vec::new(),
            times: Vec::new(),
            counters: Vec::new(),
            sealed: Vec::new(),
            first: u64::MAX,
            last: 0,
        };
        let mut state = decoder.state();
        let mut begin = 0;
        let mut sequences: Option<(u64, u64)> = None;
        let mut discarded = 0;
        let (mut sequence_places, mut discarded_places) = (Vec::new(), Vec::new());
        while let Some(rest) = bytes.get(begin..).filter(|rest| !rest.is_empty()) {
            let packet = decoder.packet(Input::new(rest, u64::MAX), &mut state)?;
            let size = packet.packet_bits.context("a packet without a size")? as usize / 8;
            stream.first = stream.first.min(packet.begin.unwrap_or(u64::MAX));
            stream.last = stream.last.max(packet.end.unwrap_or(0));
            for (name, place) in members(decoder, &packet)? {
                match name {
                    "timestamp_begin" | "timestamp_end" => stream.times.push(begin + place),
                    "packet_seq_num" => sequence_places.push(begin + place),
                    "events_discarded" => discarded_places.push(begin + place),
                    _ => {}
                }
            }
            if let Some(number) = packet.sequence {
                let (first, _) = sequences.unwrap_or((number, number));
                sequences = Some((first, number));
            }
            discarded = packet.discarded.unwrap_or(0);
            let content = packet.content_bits.map_or(size, |bits| bits as usize / 8);
            if rest.get(content..size).is_some_and(is_trailer) {
                stream.sealed.push(begin..begin + size);
            }
            stream.events(decoder, (&packet, &mut state), rest, begin)?;
            begin += size;
        }
        if let Some((first, last)) = sequences {
            stream.counters.extend(sequence_places.into_iter().map(|place| (place, last - first + 1)));
        }
        stream.counters.extend(discarded_places.into_iter().map(|place| (place, discarded)));
        stream.bytes = bytes;
        Ok(stream)
    }

    /// Finds the whole timestamps of a packet's events.
    fn events(
        &mut self,
        decoder: &Decoder,
        (packet, state): (&Packet, &mut State),
        bytes: &[u8],
        begin: usize,
    ) -> Result<()> {
        let input = Input::new(bytes, packet.content_bits.unwrap_or(u64::MAX));
        let mut bit = packet.header_bits;
        while bit < input.bits() {
            let head = decoder.event_header(packet.stream, input, bit, state)?;
            // Headers of the short form have no room for one.
            let end = (head.end / 8) as usize;
            let whole = bytes.get(end.saturating_sub(WORD)..end).and_then(|bytes| bytes.first_chunk());
            let is_long = head.end - bit > 8 * WORD as u64;
            if is_long && whole.is_some_and(|word| u64::from_le_bytes(*word) == decoder.cycles(state)) {
                self.times.push(begin + end - WORD);
            }
            self.last = self.last.max(decoder.cycles(state));
            bit = decoder.skip_event_body(packet.stream, head.class, input, (head.end, &mut *state))?.end;
        }
        Ok(())
    }

    fn write(&self, copies: u64, period: u64) -> Result<()> {
        let file = File::create(&self.to).with_context(|| format!("cannot make {}", self.to.display()))?;
        let mut file = BufWriter::new(file);
        let mut bytes = self.bytes.clone();
        for copy in 0..copies {
            if copy > 0 {
                self.times.iter().for_each(|&place| add(&mut bytes, place, period));
                self.counters.iter().for_each(|&(place, step)| add(&mut bytes, place, step));
                self.sealed.iter().for_each(|place| seal(&mut bytes[place.clone()]));
            }
            file.write_all(&bytes).with_context(|| format!("cannot copy {}", self.from.display()))?;
        }
        Ok(file.flush()?)
    }
}

fn add(bytes: &mut [u8], place: usize, step: u64) {
    if let Some(word) = bytes.get_mut(place..).and_then(|rest| rest.first_chunk_mut::<WORD>()) {
        *word = u64::from_le_bytes(*word).wrapping_add(step).to_le_bytes();
    }
}

/// Members of a packet's context that have 64 bits, and their places in the packet.
fn members<'d>(decoder: &'d Decoder, packet: &Packet) -> Result<Vec<(&'d str, usize)>> {
    let mut bit = 0;
    if let Some(header) = &decoder.trace().packet_header {
        places(header, &mut bit)?;
    }
    let context = decoder.stream(packet.stream).and_then(|stream| stream.packet_context.as_ref());
    context.map_or_else(|| Ok(Vec::new()), |context| places(context, &mut bit))
}

fn places<'s>(structure: &'s Struct, bit: &mut u64) -> Result<Vec<(&'s str, usize)>> {
    let mut found = Vec::new();
    *bit = bit.next_multiple_of(structure.effective_alignment().max(1).into());
    for field in &structure.fields {
        let (integer, count) = match &field.ty {
            Type::Integer(integer) => (integer, 1),
            Type::Enum(enumeration) => (&enumeration.integer, 1),
            Type::Array(array) => match &*array.element {
                Type::Integer(integer) => (integer, array.length),
                _ => bail!("{} has no size that is known", field.name),
            },
            _ => bail!("{} has no size that is known", field.name),
        };
        ensure!(integer.form != Form::Variable, "{} has no size that is known", field.name);
        *bit = bit.next_multiple_of(integer.alignment.max(1).into());
        if integer.bits == 64 && count == 1 && *bit % 8 == 0 && integer.byte_order == ByteOrder::Little {
            found.push((field.name.as_str(), (*bit / 8) as usize));
        }
        *bit += u64::from(integer.bits) * count;
    }
    Ok(found)
}
