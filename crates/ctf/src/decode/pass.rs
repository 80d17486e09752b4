//! Passing over events: all that follows an event's header as a few steps.
//!
//! Both contexts and the payload are one here, so that what stands at known distances is one addition. What needs
//! more than additions, lengths and ends of texts is left to the plans, and so is every error: they say what is
//! wrong.

use super::plan::{Count, Kind, Plan, Step};
use super::run::Input;

/// How to pass over what follows an event's header.
#[derive(Debug)]
pub(super) enum Pass {
    /// A number of bits from a multiple of `align_mask + 1` bits on.
    Fixed { align_mask: u64, bits: u64 },
    /// Several steps.
    Steps(Box<[Move]>),
    /// As the plans say.
    Plans,
}

/// A step. All but the first begin at whole bytes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// To the next multiple of `mask + 1` bits.
    Align { mask: u64 },
    /// By a number of bits.
    Bits(u64),
    /// Behind the next NUL.
    Text,
    /// Remember the number that stands `offset` bytes from here.
    Load { slot: u16, offset: usize, kind: Kind },
    /// By `bits` bits as often as the slot says.
    Times { slot: u16, bits: u64 },
}

impl Pass {
    /// Puts the plans of an event's structures together.
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

    /// The bit behind an event whose header ends at `bit`. Nothing if the plans have to say it, or what is wrong.
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

/// Moves that are being put together. The position is `offset` bits more than a multiple of `modulus`.
struct Moves {
    moves: Vec<Move>,
    modulus: u64,
    offset: u64,
}

impl Moves {
    /// Adds a plan; nothing if it has a step that is none of ours.
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
