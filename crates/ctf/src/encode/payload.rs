//! Converts a record's payload from the layout of rings to that of traces.
//!
//! ```text
//! ring:   fixed part of all fields, counts included │ tails of all fields
//! trace:  context fields │ other fields             each whole: count, bytes
//! ```

use tompion_schema::{self as schema, Event};

use super::is_context;

/// Plan for encoding the payload of an event class: compiled once, executed for each record.
#[derive(Clone, Debug)]
pub struct Plan {
    steps: Vec<(Step, bool)>,
    fixed_size: usize,
    /// Whether some fields are context, which precedes the other fields in a trace.
    context: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Copies bytes of the fixed part.
    Fixed(usize),
    /// Text from the tails, with its length from the fixed part.
    Text,
    /// Number of elements from the fixed part, then elements of this size from the tails.
    Sequence(usize),
    /// Bytes from the tails.
    Array(usize),
}

/// Error for a payload that doesn't fit its description.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Misfit;

impl Plan {
    /// Compiles the plan of an event.
    pub fn new(event: &Event) -> Self {
        let mut plan = Self {
            steps: Vec::new(),
            fixed_size: event.fixed_size(),
            context: event.fields.iter().any(is_context),
        };
        for field in &event.fields {
            plan.push(&field.ty, is_context(field));
        }
        plan
    }

    fn push(&mut self, ty: &schema::Type, context: bool) {
        let step = match ty {
            schema::Type::String | schema::Type::TextSequence => Step::Text,
            schema::Type::Bytes => Step::Sequence(1),
            schema::Type::Sequence(element) => Step::Sequence(element.size()),
            schema::Type::Array(element, count) => {
                Step::Array(element.size().saturating_mul(*count as usize))
            }
            schema::Type::TextArray(count) => Step::Array(*count as usize),
            schema::Type::Struct(members) => {
                return members.iter().for_each(|member| self.push(&member.ty, context));
            }
            fixed => Step::Fixed(fixed.fixed_size()),
        };
        match (self.steps.last_mut(), step) {
            (Some((Step::Fixed(before), of)), Step::Fixed(size)) if *of == context => *before += size,
            (_, step) => self.steps.push((step, context)),
        }
    }

    /// Returns the payload size of all records, if payloads are copied unchanged.
    #[inline]
    pub(super) fn plain_size(&self) -> Option<usize> {
        match self.steps[..] {
            [] => Some(0),
            [(Step::Fixed(size), _)] => Some(size),
            _ => None,
        }
    }

    /// Writes a record's payload to `out`, which must have room for the payload's size; the result
    /// is not larger. Returns the number of bytes written.
    #[inline]
    pub(super) fn encode(&self, payload: &[u8], out: &mut [u8]) -> Result<usize, Misfit> {
        let mut out = Out { bytes: out, at: 0 };
        if let Some(size) = self.plain_size() {
            out.put(payload.get(..size).ok_or(Misfit)?)?;
        } else if self.context {
            self.encode_part::<true>(true, payload, &mut out)?;
            self.encode_part::<true>(false, payload, &mut out)?;
        } else {
            self.encode_part::<false>(false, payload, &mut out)?;
        }
        Ok(out.at)
    }

    /// Writes all fields or, with `CHOOSE`, either the context or the others.
    #[inline]
    fn encode_part<const CHOOSE: bool>(
        &self,
        part: bool,
        payload: &[u8],
        out: &mut Out<'_>,
    ) -> Result<(), Misfit> {
        let (mut fixed, mut tails) = payload.split_at_checked(self.fixed_size).ok_or(Misfit)?;
        for &(step, context) in &self.steps {
            let mut put = |bytes: &[u8]| if !CHOOSE || context == part { out.put(bytes) } else { Ok(()) };
            match step {
                Step::Fixed(size) => put(take(&mut fixed, size)?)?,
                Step::Array(size) => put(take(&mut tails, size)?)?,
                Step::Text => {
                    let text = take(&mut tails, take_count(&mut fixed)?)?;
                    // The program may have written a NUL into the text after its length was taken.
                    let end = memchr::memchr(0, text).unwrap_or(text.len());
                    put(&text[..end])?;
                    put(&[0])?;
                }
                Step::Sequence(element) => {
                    let count = take_count(&mut fixed)?;
                    put(&(count as u32).to_le_bytes())?;
                    put(take(&mut tails, count.checked_mul(element).ok_or(Misfit)?)?)?;
                }
            }
        }
        Ok(())
    }
}

/// Sequential writer of bytes.
pub(super) struct Out<'a> {
    /// Available space.
    pub bytes: &'a mut [u8],
    /// Number of bytes used.
    pub at: usize,
}

impl Out<'_> {
    /// Writes bytes, if there is room.
    #[inline(always)]
    pub fn put(&mut self, bytes: &[u8]) -> Result<(), Misfit> {
        let room = self.bytes.get_mut(self.at..).and_then(|rest| rest.get_mut(..bytes.len()));
        copy(room.ok_or(Misfit)?, bytes);
        self.at += bytes.len();
        Ok(())
    }
}

/// Copies between slices of equal length. Short ones, which most fields are, are copied by two
/// moves that may overlap: calling `memcpy` would take longer.
#[inline(always)]
fn copy(to: &mut [u8], from: &[u8]) {
    match from.len() {
        0 => {}
        4..=8 => copy_ends::<4>(to, from),
        9..=16 => copy_ends::<8>(to, from),
        17..=32 => copy_ends::<16>(to, from),
        _ => to.copy_from_slice(from),
    }
}

/// Copies the first and the last N bytes.
#[inline(always)]
fn copy_ends<const N: usize>(to: &mut [u8], from: &[u8]) {
    if let (Some(to), Some(from)) = (to.first_chunk_mut::<N>(), from.first_chunk::<N>()) {
        *to = *from;
    }
    if let (Some(to), Some(from)) = (to.last_chunk_mut::<N>(), from.last_chunk::<N>()) {
        *to = *from;
    }
}

#[inline]
fn take<'a>(bytes: &mut &'a [u8], size: usize) -> Result<&'a [u8], Misfit> {
    let (head, rest) = bytes.split_at_checked(size).ok_or(Misfit)?;
    *bytes = rest;
    Ok(head)
}

#[inline]
fn take_count(fixed: &mut &[u8]) -> Result<usize, Misfit> {
    let bytes = take(fixed, 4)?.try_into().map_err(|_| Misfit)?;
    Ok(u32::from_le_bytes(bytes) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(types: Vec<schema::Type>) -> Event {
        let field = |(index, ty)| schema::Field::new(&format!("f{index}"), ty);
        Event {
            provider: "p".into(),
            name: "e".into(),
            level: schema::Level::DEFAULT,
            kind: schema::Kind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: types.into_iter().enumerate().map(field).collect(),
        }
    }

    const U16: schema::Integer = schema::Integer::unsigned(16);

    fn encoded(plan: &Plan, payload: &[u8]) -> Result<Vec<u8>, Misfit> {
        let mut out = vec![0xee; payload.len()];
        let size = plan.encode(payload, &mut out)?;
        assert!(out[size..].iter().all(|byte| *byte == 0xee));
        out.truncate(size);
        Ok(out)
    }

    #[test]
    fn variable_fields_move_from_the_tails_to_their_places() {
        let types = vec![
            schema::Type::Integer(U16),
            schema::Type::String,
            schema::Type::Array(U16, 2),
            schema::Type::Bool,
            schema::Type::Sequence(U16),
        ];
        let plan = Plan::new(&event(types));
        let payload = b"\x01\x02\x03\0\0\0\x01\x02\0\0\0abcWXYZmnop\0\0";
        assert_eq!(encoded(&plan, payload).unwrap(), b"\x01\x02abc\0WXYZ\x01\x02\0\0\0mnop");
    }

    #[test]
    fn a_text_that_was_changed_meanwhile_ends_at_its_nul() {
        let plan = Plan::new(&event(vec![schema::Type::String, schema::Type::String]));
        assert_eq!(encoded(&plan, b"\x03\0\0\0\x02\0\0\0a\0cde").unwrap(), b"a\0de\0");
    }

    #[test]
    fn a_length_that_lies_is_refused() {
        let plan = Plan::new(&event(vec![schema::Type::Integer(U16), schema::Type::Sequence(U16)]));
        for count in [3u32, u32::MAX] {
            let payload = [&[1, 2][..], &count.to_le_bytes(), b"abcd"].concat();
            assert_eq!(encoded(&plan, &payload), Err(Misfit));
        }
    }

    #[test]
    fn fields_of_every_size_are_copied_whole() {
        for size in 0..70 {
            let plan = Plan::new(&event(vec![schema::Type::Array(schema::Integer::unsigned(8), size)]));
            let payload: Vec<u8> = (1..=size as u8 + 3).collect();
            assert_eq!(encoded(&plan, &payload).unwrap(), payload[..size as usize]);
        }
    }
}
