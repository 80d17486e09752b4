//! Events that are described while the program runs: for bridges from other ways to instrument
//! programs.
//!
//! Events written by hand use the macros, which describe an event while the program is compiled. A
//! bridge knows an event's fields only when it first happens:
//!
//! ```
//! use tompion::{Level, dynamic::{Event, Kind, Outline, Values}};
//!
//! let mut values = Values::new();
//! values.unsigned(0, 3);
//! values.text(1, "orders");
//! let (kind, level) = (Kind::Instant, Level::Info);
//! let outline = Outline { kind, level, provider: "db", name: "query_done" };
//! // Once: takes a lock and memory, for as long as the process lives.
//! let event = Event::describe(&outline, &values, |key| ["rows", "table"][usize::from(key)]);
//! // As often as it happens: no lock, no allocation, no system call.
//! event.record(&values);
//! ```

use std::{
    collections::BTreeSet,
    fmt::{self, Write},
    mem::MaybeUninit,
    ptr,
    sync::atomic::{Ordering, fence},
};

use crate::{
    Level,
    description::{self, Head, code, describe},
    field::Tail,
    platform,
    site::Site,
};

/// Most fields of an event.
pub const MAX_FIELDS: usize = 64;
/// Most bytes of text in an event; what is beyond is cut off.
pub const MAX_TEXT: usize = 4096;

/// Most bytes of fields of fixed size.
const MAX_IMAGE: usize = MAX_FIELDS * 8;
/// Most units of a description.
const MAX_UNITS: usize = 512;
/// Longest name, without the ending of a span's events.
const MAX_NAME: usize = 240;

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Something happened.
    Instant,
    /// A span of the thread begins: the event's name gets `_begin` at its end.
    Begin,
    /// The span ends: `_end`.
    End,
}

/// An event without its fields.
#[derive(Clone, Copy, Debug)]
pub struct Outline<'a> {
    /// The kind of event.
    pub kind: Kind,
    /// Level of the event.
    pub level: Level,
    /// Provider that defines it. A module's path is written with dots, because elsewhere a colon
    /// ends the provider.
    pub provider: &'a str,
    /// Its name.
    pub name: &'a str,
}

/// An event, described by its outline and its first values.
///
/// Dropping it frees nothing that the library keeps.
#[derive(Debug)]
pub struct Event {
    /// None where there is no library.
    site: Option<&'static Site>,
    signature: Box<[u16]>,
    tails: usize,
}

impl Event {
    /// Describes an event that has fields like these values. `name_of` returns the name for each
    /// key.
    ///
    /// Names become valid ones: letters, digits and `_` for fields; a second field of the same name
    /// becomes `name_2`. Where there is no library, and if the description would be larger than 8
    /// KiB, the event is never recorded.
    pub fn describe<'n>(outline: &Outline<'_>, values: &Values, name_of: impl Fn(u8) -> &'n str) -> Self {
        let signature = values.signature();
        let tails = signature.iter().filter(|field| has_tail(type_of(**field))).count();
        let site = description(outline, signature, name_of).and_then(platform::register);
        Self { site, signature: signature.into(), tails }
    }

    /// Whether values have this event's keys and types, in this order.
    #[inline]
    pub fn takes(&self, values: &Values) -> bool {
        *self.signature == *values.signature()
    }

    /// The number of its fields.
    pub fn fields(&self) -> usize {
        self.signature.len()
    }

    /// Whether a recording takes it.
    #[inline]
    pub fn is_enabled(&self) -> bool {
        self.site.is_some_and(Site::is_enabled)
    }

    /// Records it, and returns true, if a recording takes it and the values are for it. No lock, no
    /// allocation, no system call.
    pub fn record(&self, values: &Values) -> bool {
        self.begin(values) != 0
    }

    /// Records it as [`record`](Self::record) does. Returns the recordings whose filters let it
    /// through, a bit each: those are to have the end of the span that this begins.
    pub fn begin(&self, values: &Values) -> u32 {
        self.append_values(values, None)
    }

    /// Records the end of a span in those of these recordings that still take it, whatever their
    /// filters say of its values: [`begin`](Self::begin) has returned them.
    pub fn end(&self, values: &Values, recordings: u32) {
        self.append_values(values, Some(recordings));
    }

    fn append_values(&self, values: &Values, chosen: Option<u32>) -> u32 {
        if values.only_types || !self.takes(values) {
            return 0;
        }
        let (image, texts) = (values.image.as_ptr().cast(), values.texts.as_ptr().cast());
        // SAFETY: the values have this event's types; the image has been written, and a word behind
        // it.
        unsafe { self.append(chosen, image, values.image_len, texts) }
    }

    /// A copy of the values, from which the event can be recorded at any time; none if they are not
    /// for this event.
    pub fn keep(&'static self, values: &Values) -> Option<Kept> {
        if values.only_types || !self.takes(values) {
            return None;
        }
        let words = values.image_len.div_ceil(8) + values.texts_len.div_ceil(8);
        let mut copy = vec![0_u64; words].into_boxed_slice();
        let start = copy.as_mut_ptr().cast::<u8>();
        // SAFETY: the values' parts were written to these lengths; the copy has room for both.
        unsafe {
            ptr::copy_nonoverlapping(values.image.as_ptr().cast(), start, values.image_len);
            let texts = start.add(values.image_len.next_multiple_of(8));
            ptr::copy_nonoverlapping(values.texts.as_ptr().cast(), texts, values.texts_len);
        }
        Some(Kept { event: self, image_len: values.image_len, copy })
    }

    /// Records the event in all recordings that take it, or in the chosen ones that have the begin
    /// of its span. Returns those.
    ///
    /// # Safety
    /// `image` is `len` bytes of fields of this event, readable up to a multiple of 8 bytes;
    /// `texts` points to the bytes of its texts, one behind the other.
    unsafe fn append(&self, chosen: Option<u32>, image: *const u8, len: usize, texts: *const u8) -> u32 {
        let Some(site) = self.site.filter(|site| site.is_enabled()) else { return 0 };
        // Ordering: as in `Probe::taken`.
        fence(Ordering::Acquire);
        let copy;
        let site = match chosen.map(|recordings| platform::chosen(site, recordings)) {
            None => site,
            Some(None) => return 0,
            Some(Some(of_the_begin)) => {
                copy = of_the_begin;
                &copy
            }
        };
        let mut tails = [const { MaybeUninit::<Tail>::uninit() }; MAX_FIELDS];
        // SAFETY: the image and the texts are the caller's.
        let count = unsafe { self.find_tails(image, texts, &mut tails) };
        // SAFETY: the site is enabled, the image is complete, and so many tails were written.
        unsafe { platform::append_begin(site, image, len, tails.as_ptr().cast(), count) }
    }

    /// Writes the tails of the fields that have one. Returns their number.
    ///
    /// # Safety
    /// As [`append`](Self::append).
    #[inline]
    unsafe fn find_tails(
        &self,
        image: *const u8,
        texts: *const u8,
        tails: &mut [MaybeUninit<Tail>; MAX_FIELDS],
    ) -> usize {
        if self.tails == 0 {
            return 0;
        }
        let (mut at, mut text, mut count) = (0, 0, 0);
        for ty in self.signature.iter().map(|field| type_of(*field)) {
            if has_tail(ty) {
                // SAFETY: a field with a tail is the tail's length, and `texts` has so many bytes.
                let size = unsafe { image.add(at).cast::<u32>().read_unaligned() } as usize;
                tails[count].write(Tail { data: texts.wrapping_add(text), size });
                (text, count) = (text + size, count + 1);
            }
            at += size_of_type(ty);
        }
        count
    }
}

/// Values that wait for their event, which may happen many times.
#[derive(Debug)]
pub struct Kept {
    event: &'static Event,
    image_len: usize,
    /// Image and texts, each from the beginning of a word.
    copy: Box<[u64]>,
}

impl Kept {
    /// Records the event in all recordings that take it. Returns them, a bit each.
    pub fn begin(&self) -> u32 {
        self.append(None)
    }

    /// Records the end of a span in those of these recordings that still take it, whatever their
    /// filters.
    pub fn end(&self, recordings: u32) {
        self.append(Some(recordings));
    }

    fn append(&self, chosen: Option<u32>) -> u32 {
        let image = self.copy.as_ptr().cast::<u8>();
        let texts = image.wrapping_add(self.image_len.next_multiple_of(8));
        // SAFETY: made by `keep`, of values of the event's types.
        unsafe { self.event.append(chosen, image, self.image_len, texts) }
    }
}

/// The values of an event, each with a key of the caller's.
///
/// They lie on the stack, some five kilobytes. At most [`MAX_FIELDS`] are taken, and [`MAX_TEXT`]
/// bytes of text altogether; what is beyond is left out.
pub struct Values {
    image: MaybeUninit<[u64; MAX_IMAGE / 8 + 1]>,
    image_len: usize,
    texts: MaybeUninit<[u8; MAX_TEXT]>,
    texts_len: usize,
    /// Of each field the key in the upper byte, the type's code in the lower.
    signature: [MaybeUninit<u16>; MAX_FIELDS],
    count: usize,
    only_types: bool,
}

impl Values {
    /// None yet.
    #[inline]
    #[expect(clippy::new_without_default, reason = "large, and for one purpose")]
    pub fn new() -> Self {
        Self::empty(false)
    }

    /// Values of which only the types are taken, to find the event that they are for: texts are not
    /// copied and nothing is formatted. They can't be recorded.
    #[inline]
    pub fn only_types() -> Self {
        Self::empty(true)
    }

    /// Field by field: as an expression it would be one constant, with five kilobytes of zeros to
    /// copy.
    #[inline(always)]
    fn empty(only_types: bool) -> Self {
        let mut values = MaybeUninit::<Self>::uninit();
        let place = values.as_mut_ptr();
        // SAFETY: all fields are written but those that may be uninitialized.
        unsafe {
            (&raw mut (*place).image_len).write(0);
            (&raw mut (*place).texts_len).write(0);
            (&raw mut (*place).count).write(0);
            (&raw mut (*place).only_types).write(only_types);
            values.assume_init()
        }
    }

    /// Whether there are none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.count == 0
    }

    fn signature(&self) -> &[u16] {
        // SAFETY: so many were written by `field`.
        unsafe { std::slice::from_raw_parts(self.signature.as_ptr().cast(), self.count) }
    }

    /// Adds a field; false if there are too many.
    #[inline]
    fn field<const N: usize>(&mut self, key: u8, ty: u8, bytes: [u8; N]) -> bool {
        const { assert!(N <= 8) };
        if self.count == MAX_FIELDS {
            return false;
        }
        self.signature[self.count].write(u16::from(key) << 8 | u16::from(ty));
        self.count += 1;
        // SAFETY: each of at most `MAX_FIELDS` fields takes at most 8 bytes, and there is one word
        // more.
        unsafe {
            let end = self.image.as_mut_ptr().cast::<u8>().add(self.image_len);
            end.cast::<[u8; N]>().write(bytes);
            // So that the last word can be read in whole.
            end.add(N).cast::<u64>().write_unaligned(0);
        }
        self.image_len += N;
        true
    }

    /// A signed integer.
    #[inline]
    pub fn signed(&mut self, key: u8, value: i64) {
        self.field(key, code::I64, value.to_ne_bytes());
    }

    /// An unsigned integer.
    #[inline]
    pub fn unsigned(&mut self, key: u8, value: u64) {
        self.field(key, code::U64, value.to_ne_bytes());
    }

    /// Adds a field with a float.
    #[inline]
    pub fn float(&mut self, key: u8, value: f64) {
        self.field(key, code::F64, value.to_ne_bytes());
    }

    /// False or true.
    #[inline]
    pub fn boolean(&mut self, key: u8, value: bool) {
        self.field(key, code::BOOL, [u8::from(value)]);
    }

    /// Adds a field with bytes.
    pub fn bytes(&mut self, key: u8, value: &[u8]) {
        let room = MAX_TEXT - self.texts_len;
        self.tail(key, code::BYTES, &value[..value.len().min(room)]);
    }

    /// Adds a field with text.
    pub fn text(&mut self, key: u8, value: &str) {
        let value = cut(value, MAX_TEXT - self.texts_len);
        self.tail(key, code::STR, value.as_bytes());
    }

    fn tail(&mut self, key: u8, ty: u8, bytes: &[u8]) {
        if self.field(key, ty, (bytes.len() as u32).to_ne_bytes()) && !self.only_types {
            self.push(bytes);
        }
    }

    /// Text that is formatted here, without an allocation, unless a value makes one.
    pub fn formatted(&mut self, key: u8, text: fmt::Arguments<'_>) {
        let (place, begin) = (self.image_len, self.texts_len);
        if !self.field(key, code::STR, [0; 4]) || self.only_types {
            return;
        }
        // An error can only be a value's own; what it wrote before stays.
        let _ = Formatter { values: self, is_cut: false }.write_fmt(text);
        let size = (self.texts_len - begin) as u32;
        // SAFETY: the field's place was written above.
        unsafe { self.image.as_mut_ptr().cast::<u8>().add(place).cast::<u32>().write_unaligned(size) };
    }

    /// Appends bytes for which there is room.
    fn push(&mut self, bytes: &[u8]) {
        assert!(bytes.len() <= MAX_TEXT - self.texts_len);
        // SAFETY: there is room, as was just checked.
        unsafe {
            let end = self.texts.as_mut_ptr().cast::<u8>().add(self.texts_len);
            ptr::copy_nonoverlapping(bytes.as_ptr(), end, bytes.len());
        }
        self.texts_len += bytes.len();
    }
}

impl fmt::Debug for Values {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Values").field("fields", &self.count).finish_non_exhaustive()
    }
}

/// Writes text to the end of the values' texts.
struct Formatter<'a> {
    values: &'a mut Values,
    is_cut: bool,
}

impl Write for Formatter<'_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = MAX_TEXT - self.values.texts_len;
        let head = if self.is_cut { "" } else { cut(text, room) };
        self.is_cut |= head.len() < text.len();
        self.values.push(head.as_bytes());
        Ok(())
    }
}

/// The beginning of a text, of at most so many bytes.
fn cut(text: &str, most: usize) -> &str {
    if text.len() <= most {
        return text;
    }
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    &text[..end]
}

const fn type_of(field: u16) -> u8 {
    field as u8
}

const fn has_tail(ty: u8) -> bool {
    matches!(ty, code::STR | code::BYTES)
}

const fn size_of_type(ty: u8) -> usize {
    match ty {
        code::BOOL => 1,
        code::STR | code::BYTES => 4,
        _ => 8,
    }
}

/// The bytes of a description, which stay; none if they are too many.
fn description<'n>(
    outline: &Outline<'_>,
    signature: &[u16],
    name_of: impl Fn(u8) -> &'n str,
) -> Option<&'static [u128]> {
    let kind = match outline.kind {
        Kind::Instant => description::Kind::Instant,
        Kind::Begin => description::Kind::Begin,
        Kind::End => description::Kind::End,
    };
    let words = unlike_each_other(signature.iter().map(|field| name_of((field >> 8) as u8)));
    let fields: Vec<_> = signature.iter().map(|field| type_of(*field)).zip(words).collect();
    let head = Head {
        kind,
        level: outline.level,
        init: false,
        fields: fields.len(),
        provider: &name(&outline.provider.replace("::", ".").replace(':', ".")),
        name: &name(outline.name),
        suffix: kind.suffix(),
    };
    describe::<MAX_UNITS>(&head, &fields).map(|units| &*Box::leak(units))
}

/// A name of a provider or an event.
fn name(text: &str) -> String {
    let text: String = text.chars().map(|letter| if letter.is_control() { '_' } else { letter }).collect();
    cut(if text.is_empty() { "_" } else { &text }, MAX_NAME).to_owned()
}

/// Fields' names as identifiers, each once.
fn unlike_each_other<'n>(names: impl Iterator<Item = &'n str>) -> Vec<String> {
    let mut used = BTreeSet::new();
    let unused = |name: &str| {
        let word = identifier(name);
        let mut unused = word.clone();
        let mut number = 2;
        while !used.insert(unused.clone()) {
            unused = format!("{word}_{number}");
            number += 1;
        }
        unused
    };
    names.map(unused).collect()
}

fn identifier(name: &str) -> String {
    let name = name.strip_prefix("r#").unwrap_or(name);
    let letter = |letter: char| if letter.is_ascii_alphanumeric() { letter } else { '_' };
    let mut word: String = name.chars().map(letter).take(MAX_NAME).collect();
    if word.chars().next().is_none_or(|first| first.is_ascii_digit()) {
        word.insert(0, '_');
    }
    word
}
