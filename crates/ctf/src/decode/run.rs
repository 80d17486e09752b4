//! Runs plans over bytes.

use super::plan::{Count, Kind, Plan, Step};
use super::value::Bytes;
use super::{DecodeError, Problem, bits, text};
use crate::metadata::{ByteOrder, Encoding, Role, Roles};

/// Maximum number of elements without content in one event: nothing else limits them.
const MAX_EMPTY: u64 = 1 << 16;

/// Bytes that may be decoded, and their number of bits.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    bytes: &'a [u8],
    bits: u64,
}

impl<'a> Input<'a> {
    /// Uses the first `bits` bits of `bytes`, or all if there are fewer. The first byte must be at
    /// a multiple of [`super::WINDOW_ALIGNMENT`] from the beginning of the packet.
    pub fn new(bytes: &'a [u8], bits: u64) -> Self {
        let bits = bits.min(bytes.len() as u64 * 8);
        let size = bits.div_ceil(8) as usize;
        Self { bytes: bytes.get(..size).unwrap_or(bytes), bits }
    }

    /// Returns the number of bits.
    pub fn bits(&self) -> u64 {
        self.bits
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.bytes
    }
}

/// Decoding state that is kept between structures.
#[derive(Clone, Debug)]
pub struct State {
    /// Words of the structures so far; see the table of the `plan` module.
    pub(super) words: Vec<u64>,
    /// Values that references and roles use.
    pub(super) slots: Vec<u64>,
    /// Clock value, updated by fields that are mapped to the clock.
    pub(super) clock: u64,
    /// Clock value after the last header: the time of that event, whatever its other fields are
    /// mapped to.
    pub(super) moment: u64,
    /// Converted texts.
    pub(super) texts: Vec<u8>,
    /// Roles whose values were found.
    roles: Roles,
    /// Byte order of the last integer that was read bit by bit.
    order: ByteOrder,
    /// Size in bits of the last integer of variable size.
    variable_bits: u32,
    empty: u64,
}

impl State {
    pub(super) fn new(slots: usize) -> Self {
        Self {
            words: Vec::new(),
            slots: vec![0; slots],
            clock: 0,
            moment: 0,
            texts: Vec::new(),
            roles: Roles::NONE,
            order: ByteOrder::Little,
            variable_bits: 0,
            empty: 0,
        }
    }

    /// Returns the value with this role, if one was found since [`Self::begin_header`].
    pub(super) fn role(&self, role: Role) -> Option<u64> {
        self.slots.get(role as usize).copied().filter(|_| self.roles.has(role))
    }

    fn set_role(&mut self, role: Role, value: u64) {
        if let Some(slot) = self.slots.get_mut(role as usize) {
            *slot = value;
        }
        self.roles = self.roles.with(role);
    }

    /// Returns the value of the stream's clock after the last decoded item, in cycles.
    pub fn clock(&self) -> u64 {
        self.clock
    }

    /// Sets the clock before a packet: see [`super::Decoder::carries_clock`].
    pub fn set_clock(&mut self, clock: u64) {
        self.clock = clock;
    }

    /// Returns the bytes that words refer to.
    pub(super) fn bytes<'a>(&'a self, input: Input<'a>) -> Bytes<'a> {
        Bytes { packet: input.bytes, texts: &self.texts }
    }

    pub(super) fn begin_header(&mut self) {
        self.begin_event();
        self.roles = Roles::NONE;
    }

    pub(super) fn begin_event(&mut self) {
        self.words.clear();
        self.texts.clear();
        self.empty = 0;
    }
}

/// Runs a plan from a bit position on; returns the position after it. Without `KEEP`, only values
/// that are used while decoding are appended.
#[inline]
pub(super) fn run<const KEEP: bool>(
    plan: &Plan,
    input: Input<'_>,
    bit: u64,
    state: &mut State,
) -> Result<u64, DecodeError> {
    let steps = if KEEP || plan.skip.is_empty() { &plan.steps } else { &plan.skip };
    let mut run = Run { plan, steps, input, bit, state };
    if let Some(fixed) = if KEEP { plan.fixed } else { plan.skip_fixed.or(plan.fixed) } {
        let gap = bit.wrapping_neg() & u64::from(fixed.align_mask);
        let begin = run.take(gap + u64::from(fixed.bytes) * 8)? + gap;
        if KEEP {
            run.block((begin / 8) as usize, fixed.first, fixed.count);
        }
        return Ok(run.bit);
    }
    run.steps::<KEEP>(0, steps.len() as u32)?;
    Ok(run.bit)
}

struct Run<'r, 'b> {
    plan: &'r Plan,
    /// Steps of the plan, or those for skipping.
    steps: &'r [Step],
    input: Input<'b>,
    bit: u64,
    state: &'r mut State,
}

impl Run<'_, '_> {
    #[cold]
    fn wrong<T>(&self, problem: Problem) -> Result<T, DecodeError> {
        Err(DecodeError { problem, bit: self.bit })
    }

    /// Consumes bits; returns their position.
    #[inline]
    fn take(&mut self, bits: u64) -> Result<u64, DecodeError> {
        let begin = self.bit;
        let available = self.input.bits.saturating_sub(begin);
        if bits > available {
            return self.wrong(Problem::Cut { expected: bits, found: available });
        }
        self.bit = begin + bits;
        Ok(begin)
    }

    /// Consumes whole bytes at a byte boundary.
    #[inline]
    fn take_bytes(&mut self, size: u64) -> Result<usize, DecodeError> {
        self.take(size.saturating_mul(8)).map(|bit| (bit / 8) as usize)
    }

    fn steps<const KEEP: bool>(&mut self, first: u32, end: u32) -> Result<(), DecodeError> {
        let steps = self.steps;
        let mut next = first;
        while next < end {
            let Some(&step) = steps.get(next as usize) else { break };
            next += 1;
            match step {
                Step::Align { mask } => {
                    let gap = self.bit.wrapping_neg() & u64::from(mask);
                    self.take(gap)?;
                }
                Step::Skip { bytes } => {
                    self.take_bytes(bytes.into())?;
                }
                Step::Block { bytes, first, count, watched } => {
                    let begin = self.take_bytes(bytes.into())?;
                    if KEEP || watched {
                        self.block(begin, first, count);
                    }
                }
                Step::Bits { bits, signed, order, reversed } => {
                    self.bits((bits.into(), reversed), signed, order)?;
                }
                Step::Variable { signed } => self.variable(signed)?,
                Step::FloatBits { bits, order, reversed } => {
                    self.float_bits((bits.into(), reversed), order)?
                }
                Step::Text => self.text::<KEEP>()?,
                Step::WideText { encoding } => self.wide_text::<KEEP>(encoding)?,
                Step::SizedText { count, encoding } => {
                    self.sized_text::<KEEP>(self.count(count), encoding)?
                }
                Step::Plain { count, size } => {
                    let count = self.count(count);
                    let begin = self.take_bytes(count.saturating_mul(size.into()))?;
                    self.state.words.push((begin as u64) << 32 | count);
                }
                Step::Repeat { count, body, least } => {
                    self.repeat::<KEEP>(self.count(count), next, next + body, least)?;
                    next += body;
                }
                Step::Choose { slot, choice } => next = self.choose::<KEEP>(slot, choice)?,
                Step::Save { slot } => {
                    let last = self.state.words.last().copied().unwrap_or(0);
                    if let Some(slot) = self.state.slots.get_mut(usize::from(slot)) {
                        *slot = last;
                    }
                }
                Step::Role { role } => {
                    let last = self.state.words.last().copied().unwrap_or(0);
                    self.state.set_role(role, last);
                }
                Step::Clock { bits } => self.state.clock = self.time(bits),
                Step::Time { role, bits, moves } => {
                    let time = self.time(bits);
                    self.state.set_role(role, time);
                    self.state.clock = if moves { time } else { self.state.clock };
                }
            }
        }
        Ok(())
    }

    /// Returns the clock value whose lowest bits are the last word.
    fn time(&self, bits: u8) -> u64 {
        let last = self.state.words.last().copied().unwrap_or(0);
        let bits = if bits == 0 { self.state.variable_bits } else { bits.into() };
        advance_clock(self.state.clock, last, bits)
    }

    #[inline]
    fn block(&mut self, begin: usize, first: u32, count: u32) {
        let bytes = self.input.bytes.get(begin..).unwrap_or_default();
        let loads = self.plan.loads.get(first as usize..(first + count) as usize).unwrap_or_default();
        self.state.words.extend(loads.iter().map(|load| load.read(bytes)));
    }

    /// Checks that an integer may be read bit by bit here: neighbours in one byte must share a byte
    /// order.
    fn check_order(&mut self, order: ByteOrder) -> Result<(), DecodeError> {
        if self.bit % 8 != 0 && self.state.order != order {
            return self.wrong(Problem::MixedByteOrder { expected: self.state.order });
        }
        self.state.order = order;
        Ok(())
    }

    fn bits(
        &mut self,
        (bits, reversed): (u32, bool),
        signed: bool,
        order: ByteOrder,
    ) -> Result<(), DecodeError> {
        self.check_order(order)?;
        let begin = self.take(bits.into())?;
        let value = bits::read(self.input.bytes, begin, bits, order).unwrap_or(0);
        let value = if reversed { value.reverse_bits() >> (64 - bits.clamp(1, 64)) } else { value };
        self.state.words.push(if signed { bits::extend_sign(value, bits) } else { value });
        Ok(())
    }

    /// Reads an integer of variable size: seven bits per byte, the lowest first.
    fn variable(&mut self, signed: bool) -> Result<(), DecodeError> {
        let begin = (self.bit / 8) as usize;
        let bytes = self.input.bytes.get(begin..).unwrap_or_default();
        let (mut value, mut bits) = (0u64, 0u32);
        for &byte in bytes {
            let part = byte & 0x7f;
            let is_last = byte & 0x80 == 0;
            // The tenth byte has room for the last bit only, and it must be needed.
            if bits == 63 && !(is_last && if signed { matches!(part, 0 | 0x7f) } else { part == 1 }) {
                return self.wrong(Problem::TooLong);
            }
            value |= u64::from(part) << bits;
            bits += 7;
            if is_last {
                self.take_bytes(u64::from(bits / 7))?;
                self.state.variable_bits = bits.min(64);
                self.state.words.push(if signed { bits::extend_sign(value, bits) } else { value });
                return Ok(());
            }
        }
        let found = self.input.bits.saturating_sub(self.bit);
        self.wrong(Problem::Cut { expected: found + 8, found })
    }

    fn float_bits(&mut self, bits: (u32, bool), order: ByteOrder) -> Result<(), DecodeError> {
        self.bits(bits, false, order)?;
        let (bits, _) = bits;
        if let Some(word) = self.state.words.last_mut().filter(|_| bits == 32) {
            *word = f64::from(f32::from_bits(*word as u32)).to_bits();
        }
        Ok(())
    }

    fn text<const KEEP: bool>(&mut self) -> Result<(), DecodeError> {
        let begin = (self.bit / 8) as usize;
        let rest = self.input.bytes.get(begin..).unwrap_or_default();
        let Some(length) = memchr::memchr(0, rest) else {
            return self.wrong(Problem::NoEnd);
        };
        self.take_bytes(length as u64 + 1)?;
        if KEEP {
            self.state.words.push((begin as u64) << 32 | length as u64);
        }
        Ok(())
    }

    /// Reads text of larger code units, up to one that is 0.
    fn wide_text<const KEEP: bool>(&mut self, encoding: Encoding) -> Result<(), DecodeError> {
        let begin = (self.bit / 8) as usize;
        let rest = self.input.bytes.get(begin..).unwrap_or_default();
        let Some(length) = text::length(rest, encoding) else { return self.wrong(Problem::NoEnd) };
        self.take_bytes((length + encoding.unit()) as u64)?;
        if KEEP {
            self.convert(rest.get(..length).unwrap_or_default(), encoding);
        }
        Ok(())
    }

    /// Reads text of larger code units in a number of bytes.
    fn sized_text<const KEEP: bool>(&mut self, size: u64, encoding: Encoding) -> Result<(), DecodeError> {
        let (unit, start) = (encoding.unit() as u64, self.bit);
        let begin = self.take_bytes(size)?;
        if KEEP || size % unit != 0 {
            let bytes = self.input.bytes.get(begin..).unwrap_or_default();
            let bytes = bytes.get(..size as usize).unwrap_or(bytes);
            let end = text::length(bytes, encoding);
            if end.is_none() && size % unit != 0 {
                self.bit = start;
                return self.wrong(Problem::HalfUnit { unit, size });
            }
            if KEEP {
                self.convert(bytes.get(..end.unwrap_or(bytes.len())).unwrap_or(bytes), encoding);
            }
        }
        Ok(())
    }

    fn convert(&mut self, bytes: &[u8], encoding: Encoding) {
        let begin = self.state.texts.len() as u64;
        text::to_utf8(bytes, encoding, &mut self.state.texts);
        let length = self.state.texts.len() as u64 - begin;
        self.state.words.push(begin << 32 | length);
    }

    fn count(&self, count: Count) -> u64 {
        match count {
            Count::Fixed(count) => count.into(),
            Count::Slot(slot) => self.state.slots.get(usize::from(slot)).copied().unwrap_or(0),
        }
    }

    fn repeat<const KEEP: bool>(
        &mut self,
        count: u64,
        first: u32,
        end: u32,
        least: u32,
    ) -> Result<(), DecodeError> {
        let available = self.input.bits.saturating_sub(self.bit);
        let expected = count.saturating_mul(least.into());
        if expected > available {
            return self.wrong(Problem::Cut { expected, found: available });
        }
        if least == 0 {
            self.state.empty = self.state.empty.saturating_add(count);
            if self.state.empty > MAX_EMPTY {
                return self.wrong(Problem::TooManyEmpty(count));
            }
        }
        self.state.words.push(count);
        for _ in 0..count {
            self.steps::<KEEP>(first, end)?;
        }
        Ok(())
    }

    /// Runs the selected option; returns the step after all options.
    fn choose<const KEEP: bool>(&mut self, slot: u16, choice: u32) -> Result<u32, DecodeError> {
        let plan = self.plan;
        let value = self.state.slots.get(usize::from(slot)).copied().unwrap_or(0);
        let Some(choice) = plan.choices.get(choice as usize) else {
            return self.wrong(Problem::NoOption(value));
        };
        let key = value ^ choice.bias;
        let range = choice.ranges.iter().find(|(low, high, _)| (*low..=*high).contains(&key));
        let option = range.map(|&(_, _, option)| option).or(choice.otherwise);
        let Some(option) = option else { return self.wrong(Problem::NoOption(value)) };
        self.state.words.push(option.into());
        let Some(&(first, end)) = choice.options.get(option as usize) else {
            return self.wrong(Problem::NoOption(value));
        };
        self.steps::<KEEP>(first, end)?;
        Ok(choice.end)
    }
}

/// Returns the clock's new value, of which the lowest `bits` bits are known; it never decreases.
#[inline]
pub(super) fn advance_clock(clock: u64, value: u64, bits: u32) -> u64 {
    if bits >= 64 {
        return value;
    }
    let mask = bits::mask(bits);
    let value = value & mask;
    let next = (clock & !mask) | value;
    if value < clock & mask { next.wrapping_add(mask + 1) } else { next }
}

/// Reads an element of an array of plain integers.
pub(super) fn plain_element(kind: Kind, size: u8, bytes: &[u8], index: usize) -> u64 {
    let begin = index.saturating_mul(usize::from(size));
    bytes.get(begin..).map_or(0, |rest| kind.read(rest))
}

#[cfg(test)]
mod tests {
    use super::advance_clock;

    #[test]
    fn a_partial_timestamp_wraps_at_most_once() {
        assert_eq!(advance_clock(0x1_00ff, 0x20, 8), 0x1_0120);
        assert_eq!(advance_clock(0x1_0010, 0x20, 8), 0x1_0020);
        assert_eq!(advance_clock(0x1_0020, 0x20, 8), 0x1_0020);
        assert_eq!(advance_clock(5, 3, 64), 3);
        assert_eq!(advance_clock(u64::MAX, 0, 27), 0);
    }
}
