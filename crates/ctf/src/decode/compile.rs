//! Types to plans.

use std::collections::HashMap;

use super::plan::{Choice, Count, Kind, Load, Plan, Role, Step, plain_kind};
use crate::metadata::{
    Enum, Field, Integer, Mapping, Reference, Scope, Stream, Struct, Trace, Type, Variant,
};

/// Largest alignment in bits: windows over packets begin at multiples of it.
pub(super) const MAX_ALIGNMENT: u32 = 4096 * 8;
/// Longest block in bytes.
const MAX_BLOCK: u32 = 1 << 20;

/// A model that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {message}", scope_name(*scope), path.iter().map(|name| format!(".{name}")).collect::<String>())]
pub struct CompileError {
    /// The outermost structure of the field that is wrong.
    pub scope: Scope,
    /// Names from there to the field.
    pub path: Vec<String>,
    /// What is wrong with it.
    pub message: String,
}

fn scope_name(scope: Scope) -> &'static str {
    match scope {
        Scope::PacketHeader => "packet header",
        Scope::PacketContext => "packet context",
        Scope::EventHeader => "event header",
        Scope::StreamEventContext => "context of the stream's events",
        Scope::EventContext => "event context",
        Scope::Payload => "event fields",
    }
}

type Result<T> = std::result::Result<T, CompileError>;

/// Numbers of the slots by which references are followed, the same for the whole trace.
pub(super) struct Slots<'t> {
    numbers: HashMap<&'t Reference, u16>,
    /// Whether a field outside of event headers refers into one.
    header_is_referred_to: bool,
}

impl<'t> Slots<'t> {
    /// Gives each field that is referred to a slot.
    pub fn new(trace: &'t Trace) -> Self {
        let mut slots = Self { numbers: HashMap::new(), header_is_referred_to: false };
        slots.walk_root(&trace.packet_header);
        for stream in &trace.streams {
            slots.walk_stream(stream);
        }
        slots
    }

    /// Number of slots, those of roles included.
    pub fn count(&self) -> usize {
        self.numbers.len() + usize::from(Role::COUNT)
    }

    fn walk_stream(&mut self, stream: &'t Stream) {
        let before = self.header_is_referred_to;
        self.walk_root(&stream.event_header);
        self.header_is_referred_to = false;
        self.walk_root(&stream.packet_context);
        self.walk_root(&stream.event_context);
        for event in &stream.events {
            self.walk_root(&event.context);
            self.walk_root(&event.payload);
        }
        self.header_is_referred_to |= before;
    }

    /// Whether a field outside of event headers refers into one.
    pub fn header_is_referred_to(&self) -> bool {
        self.header_is_referred_to
    }

    fn walk_root(&mut self, root: &'t Option<Struct>) {
        root.iter().flat_map(|structure| &structure.fields).for_each(|field| self.walk(&field.ty));
    }

    fn walk(&mut self, ty: &'t Type) {
        match ty {
            Type::Struct(structure) => structure.fields.iter().for_each(|field| self.walk(&field.ty)),
            Type::Variant(variant) => {
                self.add(&variant.selector);
                variant.options.iter().for_each(|option| self.walk(&option.ty));
            }
            Type::Array(array) => self.walk(&array.element),
            Type::Sequence(sequence) => {
                self.add(&sequence.length);
                self.walk(&sequence.element);
            }
            Type::Integer(_) | Type::Float(_) | Type::String(_) | Type::Enum(_) => {}
        }
    }

    fn add(&mut self, reference: &'t Reference) {
        let next = u16::try_from(self.count()).unwrap_or(u16::MAX);
        self.numbers.entry(reference).or_insert(next);
        self.header_is_referred_to |= reference.scope == Scope::EventHeader;
    }
}

/// What is known of a slot when it is asked for.
#[derive(Clone)]
pub(super) struct Source<'t> {
    integer: &'t Integer,
    mappings: &'t [Mapping],
}

/// Slots that have been filled by the steps so far.
pub(super) type Filled<'t> = HashMap<u16, Source<'t>>;

/// What is known about the position in bits: it is `offset` more than a multiple of `modulus`.
#[derive(Clone, Copy)]
struct Known {
    modulus: u64,
    offset: u64,
}

impl Known {
    const NOTHING: Self = Self { modulus: 1, offset: 0 };
    const BYTE: Self = Self { modulus: 8, offset: 0 };

    fn at_byte(self) -> bool {
        self.modulus >= 8 && self.offset % 8 == 0
    }

    fn after(self, bits: u64) -> Self {
        Self { offset: self.offset.wrapping_add(bits) % self.modulus, ..self }
    }
}

/// A block that is still growing.
struct Block {
    step: usize,
    bytes: u32,
}

/// Compiles one structure.
pub(super) struct Compiler<'c, 't> {
    pub slots: &'c Slots<'t>,
    pub filled: &'c mut Filled<'t>,
    scope: Scope,
    path: Vec<String>,
    plan: Plan,
    known: Known,
    block: Option<Block>,
}

impl<'c, 't> Compiler<'c, 't> {
    /// The plan of one of the outermost structures.
    pub fn compile(
        slots: &'c Slots<'t>,
        filled: &'c mut Filled<'t>,
        scope: Scope,
        structure: &'t Struct,
    ) -> Result<Plan> {
        let (path, plan) = (Vec::new(), Plan::default());
        let mut compiler = Compiler { slots, filled, scope, path, plan, known: Known::NOTHING, block: None };
        compiler.structure(structure)?;
        compiler.plan.find_fixed();
        Ok(compiler.plan)
    }

    fn wrong<T>(&self, message: impl Into<String>) -> Result<T> {
        Err(CompileError { scope: self.scope, path: self.path.clone(), message: message.into() })
    }

    fn push(&mut self, step: Step) {
        self.block = None;
        self.plan.steps.push(step);
    }

    fn structure(&mut self, structure: &'t Struct) -> Result<()> {
        self.align(structure.effective_alignment())?;
        structure.fields.iter().try_for_each(|field| self.field(field))
    }

    fn field(&mut self, field: &'t Field) -> Result<()> {
        self.path.push(field.name.clone());
        self.ty(&field.ty)?;
        if let Some(integer) = field.ty.as_integer() {
            let mappings = match &field.ty {
                Type::Enum(enumeration) => enumeration.mappings.as_slice(),
                _ => &[],
            };
            self.meaning(&field.name, integer, mappings);
        } else if self.scope == Scope::PacketHeader && field.name == "uuid" && is_uuid(&field.ty) {
            self.save_role(Role::Uuid);
        }
        self.path.pop();
        Ok(())
    }

    fn ty(&mut self, ty: &'t Type) -> Result<()> {
        match ty {
            Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => self.integer(integer),
            Type::Float(float) => {
                if !matches!(float.bits, 32 | 64) {
                    return self.wrong(format!("expected a float of 32 or 64 bits, found {}", float.bits));
                }
                self.align(float.alignment)?;
                let kind = match float.bits {
                    32 => Kind::F32(float.byte_order),
                    _ => Kind::W64(float.byte_order),
                };
                if !self.load(kind, float.bits) {
                    self.push(Step::FloatBits { bits: float.bits as u8, order: float.byte_order });
                    self.known = self.known.after(float.bits.into());
                }
                Ok(())
            }
            Type::String(_) => {
                self.align(8)?;
                self.push(Step::Text);
                self.known = Known::BYTE;
                Ok(())
            }
            Type::Struct(structure) => self.structure(structure),
            Type::Variant(variant) => self.variant(variant),
            Type::Array(array) => {
                let Ok(length) = u32::try_from(array.length) else {
                    return self.wrong(format!("an array of {} elements", array.length));
                };
                self.elements(&array.element, Count::Fixed(length))
            }
            Type::Sequence(sequence) => {
                let (slot, source) = self.source(&sequence.length)?;
                if source.integer.signed {
                    return self.wrong("expected an unsigned integer as length, found a signed one");
                }
                self.elements(&sequence.element, Count::Slot(slot))
            }
        }
    }

    fn integer(&mut self, integer: &Integer) -> Result<()> {
        if !(1..=64).contains(&integer.bits) {
            return self.wrong(format!("expected an integer of 1 to 64 bits, found {}", integer.bits));
        }
        self.align(integer.alignment)?;
        let loaded = Kind::of(integer).is_some_and(|kind| self.load(kind, integer.bits));
        if !loaded {
            let order = integer.byte_order;
            self.push(Step::Bits { bits: integer.bits as u8, signed: integer.signed, order });
            self.known = self.known.after(integer.bits.into());
        }
        Ok(())
    }

    /// Adds a value to the current block, or to a new one. False if the position is not at a byte.
    fn load(&mut self, kind: Kind, bits: u32) -> bool {
        if !self.known.at_byte() {
            return false;
        }
        let size = bits / 8;
        if self.block.as_ref().is_none_or(|block| block.bytes > MAX_BLOCK) {
            let first = self.plan.loads.len() as u32;
            self.push(Step::Block { bytes: 0, first, count: 0, watched: false });
            self.block = Some(Block { step: self.plan.steps.len() - 1, bytes: 0 });
        }
        let Some(block) = &mut self.block else { return false };
        self.plan.loads.push(Load { offset: block.bytes, kind });
        block.bytes += size;
        if let Some(Step::Block { bytes, count, .. }) = self.plan.steps.get_mut(block.step) {
            *bytes = block.bytes;
            *count += 1;
        }
        self.known = self.known.after(bits.into());
        true
    }

    /// Goes to a multiple of `alignment` bits, inside the current block if the distance is known.
    fn align(&mut self, alignment: u32) -> Result<()> {
        let alignment = alignment.max(1);
        if !alignment.is_power_of_two() || alignment > MAX_ALIGNMENT {
            let expected = format!("a power of two up to {MAX_ALIGNMENT}");
            return self.wrong(format!("expected an alignment that is {expected}, found {alignment}"));
        }
        let wide = u64::from(alignment);
        if wide > self.known.modulus {
            self.push(Step::Align { mask: alignment - 1 });
            self.known = Known { modulus: wide, offset: 0 };
            return Ok(());
        }
        let gap = self.known.offset.wrapping_neg() % wide;
        if gap == 0 {
            return Ok(());
        }
        match &mut self.block {
            Some(block) if gap % 8 == 0 => {
                block.bytes += (gap / 8) as u32;
                if let Some(Step::Block { bytes, .. }) = self.plan.steps.get_mut(block.step) {
                    *bytes = block.bytes;
                }
            }
            _ => self.push(Step::Align { mask: alignment - 1 }),
        }
        self.known = self.known.after(gap);
        Ok(())
    }

    fn elements(&mut self, element: &'t Type, count: Count) -> Result<()> {
        self.align(element.alignment())?;
        if let Some((_, size)) = plain_kind(element) {
            self.push(Step::Plain { count, size });
            self.known = Known::BYTE;
            return Ok(());
        }
        let least = u32::try_from(least_bits(element)).unwrap_or(u32::MAX);
        let repeat = self.plan.steps.len();
        self.push(Step::Repeat { count, body: 0, least });
        // The first round begins elsewhere than the others: only what each round ensures is known.
        self.known = Known::NOTHING;
        self.ty(element)?;
        let length = (self.plan.steps.len() - repeat - 1) as u32;
        if let Some(Step::Repeat { body, .. }) = self.plan.steps.get_mut(repeat) {
            *body = length;
        }
        self.block = None;
        self.known = Known::NOTHING;
        Ok(())
    }

    fn variant(&mut self, variant: &'t Variant) -> Result<()> {
        let (slot, source) = self.source(&variant.selector)?;
        let choice = self.plan.choices.len();
        let bias = if source.integer.signed { 1 << 63 } else { 0 };
        let ranges = ranges(variant, &source, bias);
        self.plan.choices.push(Choice { bias, ranges, options: Vec::new(), end: 0 });
        self.push(Step::Choose { slot, choice: choice as u32 });
        let before = self.known;
        let mut at_byte = true;
        let mut options = Vec::with_capacity(variant.options.len());
        for option in &variant.options {
            self.known = before;
            self.block = None;
            let first = self.plan.steps.len() as u32;
            self.field(option)?;
            options.push((first, self.plan.steps.len() as u32));
            at_byte &= self.known.at_byte();
        }
        if let Some(choice) = self.plan.choices.get_mut(choice) {
            choice.options = options;
            choice.end = self.plan.steps.len() as u32;
        }
        self.block = None;
        self.known = if at_byte { Known::BYTE } else { Known::NOTHING };
        Ok(())
    }

    /// The slot of a field that is referred to, which must have been filled by now.
    fn source(&self, reference: &'t Reference) -> Result<(u16, Source<'t>)> {
        let slot = self.slots.numbers.get(reference).copied().filter(|&slot| slot != u16::MAX);
        match slot.and_then(|slot| Some((slot, self.filled.get(&slot)?.clone()))) {
            Some(found) => Ok(found),
            None => {
                let path = reference.path.join(".");
                let scope = scope_name(reference.scope);
                self.wrong(format!("no integer {path:?} stands before it in the {scope}"))
            }
        }
    }

    /// What the integer that was just decoded is good for.
    fn meaning(&mut self, name: &str, integer: &'t Integer, mappings: &'t [Mapping]) {
        let reference = Reference { scope: self.scope, path: self.path.clone() };
        if let Some(&slot) = self.slots.numbers.get(&reference) {
            self.filled.insert(slot, Source { integer, mappings });
            self.save(slot);
        }
        if let Some(role) = role(self.scope, name) {
            self.save_role(role);
        }
        if integer.clock.is_some() && name != "timestamp_end" {
            self.watch();
            self.plan.steps.push(Step::Clock { bits: integer.bits as u8 });
            self.block = None;
        }
    }

    fn save_role(&mut self, role: Role) {
        self.plan.roles |= role.bit();
        self.save(role as u16);
    }

    fn save(&mut self, slot: u16) {
        self.watch();
        self.push(Step::Save { slot });
    }

    /// Marks the block that was just filled as one whose values are asked for.
    fn watch(&mut self) {
        let last = self.plan.steps.iter_mut().rev().find(|step| !matches!(step, Step::Save { .. }));
        if let Some(Step::Block { watched, .. }) = last {
            *watched = true;
        }
    }
}

/// Values of the selector for each option. An option has the name of a label, but for the `_` that
/// the language may demand.
fn ranges(variant: &Variant, source: &Source<'_>, bias: u64) -> Vec<(u64, u64, u32)> {
    let (least, most) = source.integer.range();
    let mut ranges = Vec::new();
    for mapping in source.mappings {
        let shown = mapping.label.strip_prefix('_').unwrap_or(&mapping.label);
        let matches = |field: &Field| field.name == mapping.label || field.name == shown;
        let Some(option) = variant.options.iter().position(matches) else { continue };
        let (low, high) = (mapping.low.max(least), mapping.high.min(most));
        if low <= high {
            ranges.push((low as u64 ^ bias, high as u64 ^ bias, option as u32));
        }
    }
    ranges
}

/// The least number of bits that a value takes.
fn least_bits(ty: &Type) -> u64 {
    match ty {
        Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => integer.bits.into(),
        Type::Float(float) => float.bits.into(),
        Type::String(_) => 8,
        Type::Struct(structure) => {
            structure.fields.iter().fold(0, |sum, field| least_bits(&field.ty).saturating_add(sum))
        }
        Type::Variant(variant) => {
            variant.options.iter().map(|option| least_bits(&option.ty)).min().unwrap_or(0)
        }
        Type::Array(array) => least_bits(&array.element).saturating_mul(array.length),
        Type::Sequence(_) => 0,
    }
}

fn is_uuid(ty: &Type) -> bool {
    matches!(ty, Type::Array(array) if array.length == 16 && matches!(plain_kind(&array.element), Some((_, 1))))
}

fn role(scope: Scope, name: &str) -> Option<Role> {
    Some(match (scope, name) {
        (Scope::PacketHeader, "magic") => Role::Magic,
        (Scope::PacketHeader, "stream_id") => Role::StreamId,
        (Scope::PacketHeader, "stream_instance_id") => Role::StreamInstance,
        (Scope::PacketContext, "timestamp_begin") => Role::TimestampBegin,
        (Scope::PacketContext, "timestamp_end") => Role::TimestampEnd,
        (Scope::PacketContext, "content_size") => Role::ContentSize,
        (Scope::PacketContext, "packet_size") => Role::PacketSize,
        (Scope::PacketContext, "events_discarded") => Role::EventsDiscarded,
        (Scope::PacketContext, "packet_seq_num") => Role::SequenceNumber,
        (Scope::EventHeader, "id") => Role::EventId,
        _ => return None,
    })
}

/// The clock of a stream's timestamps: the first one that its event header, or else its packet context,
/// is mapped to.
pub(super) fn clock_name(stream: &Stream) -> Option<&str> {
    fn find(ty: &Type) -> Option<&str> {
        match ty {
            Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => integer.clock.as_deref(),
            Type::Struct(structure) => structure.fields.iter().find_map(|field| find(&field.ty)),
            Type::Variant(variant) => variant.options.iter().find_map(|option| find(&option.ty)),
            _ => None,
        }
    }
    let roots = [&stream.event_header, &stream.packet_context];
    roots.into_iter().flatten().flat_map(|root| &root.fields).find_map(|field| find(&field.ty))
}
