//! Compiles types to plans.

use std::collections::HashMap;

use super::plan::{Choice, Count, Kind, Load, Plan, Step, plain_kind};
use crate::metadata::{
    BitArray, Encoding, Enum, Field, Float, Form, Integer, Length, Mapping, Optional, Reference, Role, Roles,
    Scope, Selection, Stream, Struct, Trace, Type, Variant, Version,
};

/// Maximum alignment in bits: windows over packets begin at multiples of this.
pub(super) const MAX_ALIGNMENT: u32 = 4096 * 8;
/// Maximum size of a block in bytes.
const MAX_BLOCK: u32 = 1 << 20;

/// Error for a model that cannot be decoded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}{}: {message}", scope_name(*scope), path.iter().map(|name| format!(".{name}")).collect::<String>())]
pub struct CompileError {
    /// Outermost structure of the invalid field.
    pub scope: Scope,
    /// Names from there to the field.
    pub path: Vec<String>,
    /// Problem.
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

/// Numbers of the slots that hold referenced values, the same for the whole trace.
pub(super) struct Slots<'t> {
    numbers: HashMap<&'t Reference, u16>,
    version: Version,
    /// Whether a field outside of event headers refers into one.
    header_is_referred_to: bool,
}

impl<'t> Slots<'t> {
    /// Assigns a slot to each field that is referred to.
    pub fn new(trace: &'t Trace) -> Self {
        let numbers = HashMap::new();
        let mut slots = Self { numbers, version: trace.version, header_is_referred_to: false };
        slots.walk_root(&trace.packet_header);
        for stream in &trace.streams {
            slots.walk_stream(stream);
        }
        slots
    }

    /// Returns the number of slots, including those of roles.
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
            Type::Optional(optional) => {
                self.add(&optional.selector);
                self.walk(&optional.element);
            }
            Type::Text(text) => self.add_length(&text.length),
            Type::Blob(blob) => self.add_length(&blob.length),
            Type::Integer(_)
            | Type::Boolean(_)
            | Type::Bits(_)
            | Type::Float(_)
            | Type::String(_)
            | Type::Enum(_) => {}
        }
    }

    fn add_length(&mut self, length: &'t Length) {
        if let Length::Field(reference) = length {
            self.add(reference);
        }
    }

    fn add(&mut self, reference: &'t Reference) {
        let next = u16::try_from(self.count()).unwrap_or(u16::MAX);
        self.numbers.entry(reference).or_insert(next);
        self.header_is_referred_to |= reference.scope == Scope::EventHeader;
    }
}

/// Properties of a slot's value.
#[derive(Clone)]
pub(super) struct Source<'t> {
    integer: &'t Integer,
    mappings: &'t [Mapping],
    kind: SourceKind,
}

/// Use of a referenced value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SourceKind {
    Number,
    Boolean,
    /// Different in different options of a variant.
    Unclear,
}

/// Slots that the steps so far have filled.
pub(super) type Filled<'t> = HashMap<u16, Source<'t>>;

/// Knowledge about the position in bits: it is `offset` more than a multiple of `modulus`.
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

/// Block that is still growing.
struct Block {
    step: usize,
    bytes: u32,
}

/// Compiler of one structure.
pub(super) struct Compiler<'c, 't> {
    pub slots: &'c Slots<'t>,
    pub filled: &'c mut Filled<'t>,
    scope: Scope,
    /// Clock of the stream: fields mapped to another clock don't affect its time.
    clock: Option<&'t str>,
    /// Names up to the current field, including those of options.
    path: Vec<String>,
    /// Names of fields only, as in references of CTF 2.
    members: Vec<String>,
    /// Whether a value belongs to the field with that name, and not to one of many elements.
    is_single: bool,
    plan: Plan,
    known: Known,
    block: Option<Block>,
}

impl<'c, 't> Compiler<'c, 't> {
    /// Compiles one of the outermost structures.
    pub fn compile(
        slots: &'c Slots<'t>,
        filled: &'c mut Filled<'t>,
        (scope, clock): (Scope, Option<&'t str>),
        structure: &'t Struct,
    ) -> Result<Plan> {
        let mut compiler = Compiler {
            slots,
            filled,
            scope,
            clock,
            path: Vec::new(),
            members: Vec::new(),
            is_single: true,
            plan: Plan::default(),
            known: Known::NOTHING,
            block: None,
        };
        compiler.structure(structure)?;
        compiler.plan.finish();
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
        structure.fields.iter().try_for_each(|field| self.member(field))
    }

    fn member(&mut self, field: &'t Field) -> Result<()> {
        let was_single = std::mem::replace(&mut self.is_single, true);
        self.members.push(field.name.clone());
        self.field(field)?;
        self.members.pop();
        self.is_single = was_single;
        Ok(())
    }

    /// Compiles a member, or an option of a variant.
    fn field(&mut self, field: &'t Field) -> Result<()> {
        self.path.push(field.name.clone());
        self.ty(&field.ty)?;
        if self.slots.version == Version::One && is_uuid(&field.ty) {
            let role = Role::of_name(self.scope, &field.name).filter(|role| *role == Role::Uuid);
            role.into_iter().for_each(|role| self.save_role(role));
        }
        self.path.pop();
        Ok(())
    }

    fn ty(&mut self, ty: &'t Type) -> Result<()> {
        match ty {
            Type::Integer(integer) => self.number(integer, &[], SourceKind::Number),
            Type::Enum(Enum { integer, mappings }) => self.number(integer, mappings, SourceKind::Number),
            Type::Boolean(integer) => self.number(integer, &[], SourceKind::Boolean),
            Type::Bits(BitArray { integer, .. }) => self.integer(integer),
            Type::Float(float) => self.float(float),
            Type::String(encoding) => {
                self.align(8)?;
                self.push(match encoding.unit() {
                    1 => Step::Text,
                    _ => Step::WideText { encoding: *encoding },
                });
                self.known = Known::BYTE;
                Ok(())
            }
            Type::Text(text) => self.bytes(&text.length, text.encoding),
            Type::Blob(blob) => {
                self.bytes(&blob.length, Encoding::None)?;
                blob.roles.iter().for_each(|role| self.save_role(role));
                Ok(())
            }
            Type::Struct(structure) => self.structure(structure),
            Type::Variant(variant) => self.variant(variant),
            Type::Optional(optional) => self.optional(optional),
            Type::Array(array) => {
                let Ok(length) = u32::try_from(array.length) else {
                    return self.wrong(format!("an array of {} elements", array.length));
                };
                self.align(array.alignment)?;
                self.elements(&array.element, Count::Fixed(length))
            }
            Type::Sequence(sequence) => {
                let count = self.length(&sequence.length)?;
                self.align(sequence.alignment)?;
                self.elements(&sequence.element, count)
            }
        }
    }

    fn float(&mut self, float: &Float) -> Result<()> {
        if !matches!(float.bits, 32 | 64) {
            return self.wrong(format!("expected a float of 32 or 64 bits, found {}", float.bits));
        }
        self.align(float.alignment)?;
        let kind = match float.bits {
            32 => Kind::F32(float.byte_order),
            _ => Kind::W64(float.byte_order),
        };
        if float.reversed || !self.load(kind, float.bits) {
            let Float { bits, byte_order: order, reversed, .. } = *float;
            self.push(Step::FloatBits { bits: bits as u8, order, reversed });
            self.known = self.known.after(bits.into());
        }
        Ok(())
    }

    /// Compiles bytes whose number is given by a length.
    fn bytes(&mut self, length: &'t Length, encoding: Encoding) -> Result<()> {
        let count = match length {
            Length::Fixed(length) => match u32::try_from(*length) {
                Ok(length) => Count::Fixed(length),
                Err(_) => return self.wrong(format!("{length} bytes")),
            },
            Length::Field(reference) => self.length(reference)?,
        };
        self.align(8)?;
        self.push(match encoding.unit() {
            1 => Step::Plain { count, size: 1 },
            _ => Step::SizedText { count, encoding },
        });
        self.known = Known::BYTE;
        Ok(())
    }

    /// Compiles a length given by an earlier field.
    fn length(&self, reference: &'t Reference) -> Result<Count> {
        let (slot, source) = self.source(reference)?;
        if source.kind != SourceKind::Number {
            return self.wrong("expected an unsigned integer as length, found something else");
        }
        if source.integer.signed {
            return self.wrong("expected an unsigned integer as length, found a signed one");
        }
        Ok(Count::Slot(slot))
    }

    /// Compiles an integer, and the uses of its value.
    fn number(&mut self, integer: &'t Integer, mappings: &'t [Mapping], kind: SourceKind) -> Result<()> {
        self.integer(integer)?;
        self.use_value(Source { integer, mappings, kind });
        Ok(())
    }

    fn integer(&mut self, integer: &Integer) -> Result<()> {
        if !(1..=64).contains(&integer.bits) {
            return self.wrong(format!("expected an integer of 1 to 64 bits, found {}", integer.bits));
        }
        if integer.form == Form::Variable {
            self.align(integer.alignment.max(8))?;
            self.push(Step::Variable { signed: integer.signed });
            self.known = Known::BYTE;
            return Ok(());
        }
        self.align(integer.alignment)?;
        let loaded = Kind::of(integer).is_some_and(|kind| self.load(kind, integer.bits));
        if !loaded {
            let Integer { signed, byte_order: order, .. } = *integer;
            let reversed = integer.form == Form::Reversed;
            self.push(Step::Bits { bits: integer.bits as u8, signed, order, reversed });
            self.known = self.known.after(integer.bits.into());
        }
        Ok(())
    }

    /// Adds a value to the current block, or to a new one. Returns false if the position is not at
    /// a byte.
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
        self.plan.loads.push(Load::new(block.bytes, kind));
        block.bytes += size;
        if let Some(Step::Block { bytes, count, .. }) = self.plan.steps.get_mut(block.step) {
            *bytes = block.bytes;
            *count += 1;
        }
        self.known = self.known.after(bits.into());
        true
    }

    /// Aligns to a multiple of `alignment` bits, within the current block if the distance is known.
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
        // The first iteration begins elsewhere than the others: only what each iteration ensures is
        // known.
        self.known = Known::NOTHING;
        let was_single = std::mem::replace(&mut self.is_single, false);
        self.ty(element)?;
        self.is_single = was_single;
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
        if source.kind != SourceKind::Number {
            return self.wrong("expected an integer that selects an option, found something else");
        }
        let bias = bias(&source);
        let ranges = match &variant.selection {
            labels @ Selection::Labels(_) => ranges_of_labels(labels, &source, bias),
            Selection::Ranges(ranges) => {
                let ranges = ranges.iter().map(|range| (range.low, range.high, range.option as u32));
                ranges.filter_map(|range| biased(range, &source, bias)).collect()
            }
        };
        let choice =
            self.begin_choice(slot, Choice { bias, ranges, otherwise: None, options: Vec::new(), end: 0 });
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
        self.end_choice(choice, options);
        self.known = if at_byte { Known::BYTE } else { Known::NOTHING };
        Ok(())
    }

    /// Compiles an optional field.
    fn optional(&mut self, optional: &'t Optional) -> Result<()> {
        let (slot, source) = self.source(&optional.selector)?;
        let bias = bias(&source);
        let ranges = match (&optional.ranges, source.kind) {
            // Ranges don't apply to booleans.
            (_, SourceKind::Boolean) => vec![(1, u64::MAX, 1)],
            (Some(ranges), SourceKind::Number) => {
                let ranges = ranges.iter().map(|&(low, high)| (low, high, 1));
                ranges.filter_map(|range| biased(range, &source, bias)).collect()
            }
            _ => return self.wrong("expected a boolean that selects, or an integer and ranges"),
        };
        let choice =
            self.begin_choice(slot, Choice { bias, ranges, otherwise: Some(0), options: Vec::new(), end: 0 });
        let before = self.known;
        let first = self.plan.steps.len() as u32;
        self.ty(&optional.element)?;
        self.end_choice(choice, vec![(first, first), (first, self.plan.steps.len() as u32)]);
        self.known = if before.at_byte() && self.known.at_byte() { Known::BYTE } else { Known::NOTHING };
        Ok(())
    }

    fn begin_choice(&mut self, slot: u16, choice: Choice) -> usize {
        let index = self.plan.choices.len();
        self.plan.choices.push(choice);
        self.push(Step::Choose { slot, choice: index as u32 });
        index
    }

    fn end_choice(&mut self, choice: usize, options: Vec<(u32, u32)>) {
        if let Some(choice) = self.plan.choices.get_mut(choice) {
            choice.options = options;
            choice.end = self.plan.steps.len() as u32;
        }
        self.block = None;
    }

    /// Returns the slot of a referenced field, which must have been filled by now.
    fn source(&self, reference: &'t Reference) -> Result<(u16, Source<'t>)> {
        let slot = self.slots.numbers.get(reference).copied().filter(|&slot| slot != u16::MAX);
        match slot.and_then(|slot| Some((slot, self.filled.get(&slot)?.clone()))) {
            Some(found) => Ok(found),
            None => {
                let path = reference.path.join(".");
                let scope = scope_name(reference.scope);
                self.wrong(format!("no integer {path:?} precedes it in the {scope}"))
            }
        }
    }

    /// Adds the steps for the uses of the number that was just decoded.
    fn use_value(&mut self, source: Source<'t>) {
        let version = self.slots.version;
        let is_named = self.is_single || version == Version::Two;
        let path = if version == Version::Two { self.members.clone() } else { self.path.clone() };
        let slot = self.slots.numbers.get(&Reference { scope: self.scope, path }).copied();
        let integer = source.integer;
        if let Some(slot) = slot.filter(|_| self.is_single) {
            self.fill(slot, source);
            self.save(slot);
        }
        let name = self.path.last().map_or("", String::as_str);
        let of_name = Role::of_name(self.scope, name).filter(|role| *role != Role::Uuid);
        let roles = match version {
            Version::One => of_name.filter(|_| is_named).map_or(Roles::NONE, |role| Roles::NONE.with(role)),
            Version::Two => integer.roles,
        };
        let is_end = is_end_of_packet(version, name);
        let is_mapped = integer.clock.is_some() && integer.clock.as_deref() == self.clock;
        let bits = if integer.form == Form::Variable { 0 } else { integer.bits as u8 };
        let is_time = |role: &Role| is_mapped && matches!(role, Role::TimestampBegin | Role::TimestampEnd);
        roles.iter().filter(|role| !is_time(role)).for_each(|role| self.save_role(role));
        for role in roles.iter().filter(is_time) {
            self.watch();
            // The end time of the packet must not affect later times.
            self.push(Step::Time { role, bits, moves: role == Role::TimestampBegin });
        }
        if is_mapped && !roles.iter().any(|role| is_time(&role)) && !is_end {
            self.watch();
            self.push(Step::Clock { bits });
        }
    }

    /// Stores the properties of a slot's value; options of a variant may fill the same slot
    /// differently.
    fn fill(&mut self, slot: u16, source: Source<'t>) {
        let is_same = |before: &Source<'_>| {
            before.kind == source.kind && before.integer.signed == source.integer.signed
        };
        let is_clear = self.slots.version == Version::One || self.filled.get(&slot).is_none_or(is_same);
        let kind = if is_clear { source.kind } else { SourceKind::Unclear };
        self.filled.insert(slot, Source { kind, ..source });
    }

    fn save_role(&mut self, role: Role) {
        self.watch();
        self.push(Step::Role { role });
    }

    fn save(&mut self, slot: u16) {
        self.watch();
        self.push(Step::Save { slot });
    }

    /// Marks the block that was just filled as one whose values are used later.
    fn watch(&mut self) {
        let last = self
            .plan
            .steps
            .iter_mut()
            .rev()
            .find(|step| !matches!(step, Step::Save { .. } | Step::Role { .. } | Step::Time { .. }));
        if let Some(Step::Block { watched, .. }) = last {
            *watched = true;
        }
    }
}

/// Whether a field has the name of a packet's end time, wherever it is: it is not the time of an
/// event.
fn is_end_of_packet(version: Version, name: &str) -> bool {
    version == Version::One && name == "timestamp_end"
}

/// Whether times of a stream's events depend on the preceding packet: they have only the lowest
/// bits of the clock's value, and the packet context doesn't have all of it.
pub(super) fn carries_clock(stream: &Stream, version: Version) -> bool {
    let Some(clock) = clock_name(stream) else { return false };
    let is_of_clock = |integer: &Integer| integer.clock.as_deref() == Some(clock);
    let is_whole = |integer: &Integer| integer.bits == 64 && integer.form != Form::Variable;
    let says_all = |field: &Field| {
        let found = field.ty.as_integer();
        found.is_some_and(|integer| {
            is_of_clock(integer) && is_whole(integer) && !is_end(field, integer, version)
        })
    };
    let mut context = stream.packet_context.iter().flat_map(|context| &context.fields);
    let mut is_partial = false;
    for field in stream.event_header.iter().flat_map(|header| &header.fields) {
        each_integer(&field.ty, &mut |integer| is_partial |= is_of_clock(integer) && !is_whole(integer));
    }
    is_partial && !context.any(says_all)
}

fn is_end(field: &Field, integer: &Integer, version: Version) -> bool {
    is_end_of_packet(version, &field.name) || integer.roles.has(Role::TimestampEnd)
}

/// Visits an integer, or all integers in a type.
fn each_integer(ty: &Type, visit: &mut dyn FnMut(&Integer)) {
    match ty {
        Type::Struct(structure) => structure.fields.iter().for_each(|field| each_integer(&field.ty, visit)),
        Type::Variant(variant) => variant.options.iter().for_each(|option| each_integer(&option.ty, visit)),
        Type::Optional(optional) => each_integer(&optional.element, visit),
        Type::Array(array) => each_integer(&array.element, visit),
        Type::Sequence(sequence) => each_integer(&sequence.element, visit),
        other => other.as_integer().into_iter().for_each(visit),
    }
}

/// Returns the mask that flips the sign bit of signed selectors, so that all ranges compare
/// unsigned.
fn bias(source: &Source<'_>) -> u64 {
    if source.integer.signed { 1 << 63 } else { 0 }
}

/// Limits a range to the selector's values.
fn biased((low, high, option): (i128, i128, u32), source: &Source<'_>, bias: u64) -> Option<(u64, u64, u32)> {
    let (least, most) = source.integer.range();
    let (low, high) = (low.max(least), high.min(most));
    (low <= high).then_some((low as u64 ^ bias, high as u64 ^ bias, option))
}

/// Returns the selector's values for each option.
fn ranges_of_labels(labels: &Selection, source: &Source<'_>, bias: u64) -> Vec<(u64, u64, u32)> {
    let mut ranges = Vec::new();
    for mapping in source.mappings {
        let Some(option) = labels.option_of(&mapping.label, source.mappings) else { continue };
        ranges.extend(biased((mapping.low, mapping.high, option as u32), source, bias));
    }
    ranges
}

/// Returns the minimum number of bits that a value takes.
fn least_bits(ty: &Type) -> u64 {
    match ty {
        Type::Integer(integer)
        | Type::Boolean(integer)
        | Type::Enum(Enum { integer, .. })
        | Type::Bits(BitArray { integer, .. }) => match integer.form {
            Form::Variable => 8,
            Form::Fixed | Form::Reversed => integer.bits.into(),
        },
        Type::Float(float) => float.bits.into(),
        Type::String(encoding) => 8 * encoding.unit() as u64,
        Type::Text(crate::metadata::Text { length, .. })
        | Type::Blob(crate::metadata::Blob { length, .. }) => match length {
            Length::Fixed(bytes) => bytes.saturating_mul(8),
            Length::Field(_) => 0,
        },
        Type::Struct(structure) => {
            structure.fields.iter().fold(0, |sum, field| least_bits(&field.ty).saturating_add(sum))
        }
        Type::Variant(variant) => {
            variant.options.iter().map(|option| least_bits(&option.ty)).min().unwrap_or(0)
        }
        Type::Array(array) => least_bits(&array.element).saturating_mul(array.length),
        Type::Sequence(_) | Type::Optional(_) => 0,
    }
}

fn is_uuid(ty: &Type) -> bool {
    matches!(ty, Type::Array(array) if array.length == 16 && matches!(plain_kind(&array.element), Some((_, 1))))
}

/// Returns the clock of a stream's timestamps: the first one that its event header, or otherwise
/// its packet context, is mapped to.
pub fn clock_name(stream: &Stream) -> Option<&str> {
    timestamp_clocks(stream).next().map(|(_, clock)| clock)
}

/// Checks that a stream's timestamps are of one clock.
pub(super) fn check_clocks(stream: &Stream) -> Result<()> {
    let first = clock_name(stream);
    let other = timestamp_clocks(stream).find(|(_, clock)| Some(*clock) != first);
    first.zip(other).map_or(Ok(()), |(first, (scope, clock))| {
        let message = format!("expected timestamps of one clock, found {first:?} and {clock:?}");
        Err(CompileError { scope, path: Vec::new(), message })
    })
}

/// Returns the clocks that fields of a stream's event header and packet context are mapped to.
fn timestamp_clocks(stream: &Stream) -> impl Iterator<Item = (Scope, &str)> {
    let roots = [(Scope::EventHeader, &stream.event_header), (Scope::PacketContext, &stream.packet_context)];
    roots.into_iter().flat_map(|(scope, root)| {
        let mut found = Vec::new();
        root.iter().flat_map(|root| &root.fields).for_each(|field| add_clocks(&field.ty, &mut found));
        found.into_iter().map(move |clock| (scope, clock))
    })
}

fn add_clocks<'t>(ty: &'t Type, found: &mut Vec<&'t str>) {
    match ty {
        Type::Integer(integer) | Type::Enum(Enum { integer, .. }) => found.extend(integer.clock.as_deref()),
        Type::Struct(structure) => structure.fields.iter().for_each(|field| add_clocks(&field.ty, found)),
        Type::Variant(variant) => variant.options.iter().for_each(|option| add_clocks(&option.ty, found)),
        Type::Optional(optional) => add_clocks(&optional.element, found),
        Type::Array(array) => add_clocks(&array.element, found),
        Type::Sequence(sequence) => add_clocks(&sequence.element, found),
        _ => {}
    }
}
