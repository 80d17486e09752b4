//! Skips events: reduces everything after an event's header to a few steps.
//!
//! Both contexts and the payload are combined, so that fields at fixed distances become one
//! addition. Only additions, lengths and ends of texts are handled here. Everything else is left to
//! the plans, and so are all errors: the plans report them.

use super::plan::{Count, Kind, Plan, Step};
use super::run::Input;

/// Way to skip everything after an event's header.
#[derive(Debug)]
pub(super) enum Pass {
    /// Fixed number of bits, after aligning to `align_mask + 1` bits.
    Fixed { align_mask: u64, bits: u64 },
    /// Several steps.
    Steps(Box<[Move]>),
    /// Decoding by the plans.
    Plans,
}

/// Step of skipping an event. All but the first begin at whole bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// Aligns to the next multiple of `mask + 1` bits.
    Align { mask: u64 },
    /// Skips a number of bits.
    Bits(u64),
    /// Skips past the next NUL.
    Text,
    /// Stores the number `offset` bytes from here in a slot.
    Load { slot: u16, offset: usize, kind: Kind },
    /// Skips `bits` bits as many times as the slot's value.
    Times { slot: u16, bits: u64 },
}

impl Pass {
    /// Combines the plans of an event's structures.
    pub fn over(plans: &[Option<&Plan>]) -> Self {
        let mut moves = Moves { moves: Vec::new(), modulus: 1, offset: 0 };
        let mut plans = plans.iter().flatten();
        if plans.any(|plan| moves.plan(plan).is_none()) {
            return Self::Plans;
        }
        match *moves.moves {
            [] => Self::Fixed { align_mask: 0, bits: 0 },
            [Move::Bits(bits)] => Self::Fixed { align_mask: 0, bits },
            [Move::Align { mask }] => Self::Fixed { align_mask: mask, bits: 0 },
            [Move::Align { mask }, Move::Bits(bits)] => Self::Fixed { align_mask: mask, bits },
            _ => Self::Steps(moves.moves.into()),
        }
    }

    /// Returns the bit position after an event whose header ends at `bit`; `None` if the plans must
    /// decide or report an error.
    #[inline]
    pub fn end(&self, input: Input<'_>, bit: u64, slots: &mut [u64]) -> Option<u64> {
        let end = match self {
            Self::Fixed { align_mask, bits } => bit.checked_add((bit.wrapping_neg() & align_mask) + bits)?,
            Self::Steps(steps) => Self::follow(steps, input.bytes(), bit, slots)?,
            Self::Plans => return None,
        };
        (end <= input.bits()).then_some(end)
    }

    fn follow(steps: &[Move], bytes: &[u8], bit: u64, slots: &mut [u64]) -> Option<u64> {
        let mut bit = bit;
        for step in steps {
            let distance = match *step {
                Move::Align { mask } => bit.wrapping_neg() & mask,
                Move::Bits(bits) => bits,
                Move::Text => {
                    let rest = bytes.get(usize::try_from(bit / 8).ok()?..)?;
                    (memchr::memchr(0, rest)? as u64 + 1) * 8
                }
                Move::Load { slot, offset, kind } => {
                    let place = usize::try_from(bit / 8).ok()?.checked_add(offset)?;
                    *slots.get_mut(usize::from(slot))? = kind.read(bytes.get(place..)?);
                    0
                }
                Move::Times { slot, bits } => slots.get(usize::from(slot))?.checked_mul(bits)?,
            };
            bit = bit.checked_add(distance)?;
        }
        Some(bit)
    }
}

/// Builder of steps. The position is `offset` bits more than a multiple of `modulus`.
struct Moves {
    moves: Vec<Move>,
    modulus: u64,
    offset: u64,
}

impl Moves {
    /// Adds a plan; `None` if one of its steps is not supported.
    fn plan(&mut self, plan: &Plan) -> Option<()> {
        let mut steps = plan.steps.iter().peekable();
        while let Some(step) = steps.next() {
            match *step {
                Step::Align { mask } => self.align(mask.into()),
                Step::Skip { bytes } => self.bits(u64::from(bytes) * 8),
                Step::Block { bytes, first, count, .. } => {
                    let last = plan.loads.get((first + count).checked_sub(1)? as usize);
                    while let Some(Step::Save { slot }) = steps.peek() {
                        let load = last.filter(|_| count > 0)?;
                        let (slot, offset, kind) = (*slot, load.offset as usize, load.kind);
                        self.moves.push(Move::Load { slot, offset, kind });
                        steps.next();
                    }
                    self.bits(u64::from(bytes) * 8);
                }
                Step::Plain { count: Count::Fixed(count), size } => {
                    self.bits(u64::from(count) * u64::from(size) * 8);
                }
                Step::Plain { count: Count::Slot(slot), size } => {
                    self.moves.push(Move::Times { slot, bits: u64::from(size) * 8 });
                    (self.modulus, self.offset) = (8, 0);
                }
                Step::Text => {
                    self.moves.push(Move::Text);
                    (self.modulus, self.offset) = (8, 0);
                }
                _ => return None,
            }
        }
        Some(())
    }

    fn align(&mut self, mask: u64) {
        if mask < self.modulus {
            self.bits(self.offset.wrapping_neg() & mask);
        } else {
            self.moves.push(Move::Align { mask });
            (self.modulus, self.offset) = (mask + 1, 0);
        }
    }

    fn bits(&mut self, bits: u64) {
        self.offset = (self.offset + bits) % self.modulus;
        match self.moves.last_mut() {
            _ if bits == 0 => {}
            Some(Move::Bits(before)) => *before += bits,
            _ => self.moves.push(Move::Bits(bits)),
        }
    }
}
