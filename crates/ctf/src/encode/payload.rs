//! A record's payload, from the order of rings to that of traces.
//!
//! ```text
//! ring:   fixed part of all fields, counts included │ tails of all fields
//! trace:  context fields │ other fields             each whole: count, bytes
//! ```

use tompion_schema::{self as schema, Event};

use super::is_context;

/// How to encode one event's payload: compiled once, followed for each record.
#[derive(Clone, Debug)]
pub struct Plan {
    steps: Vec<(Step, bool)>,
    fixed_size: usize,
    /// Whether some fields are context, which a trace has before the others.
    context: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// These bytes of the fixed part stand as they are.
    Fixed(usize),
    /// Text, from the tails; its length from the fixed part.
    Text,
    /// Elements of this size from the tails, behind their number, from the fixed part.
    Sequence(usize),
    /// These bytes from the tails.
    Array(usize),
}

/// A payload that doesn't fit its description.
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

    /// Appends a record's payload to `out`. Nothing is appended on error.
    #[inline]
    pub fn encode(&self, payload: &[u8], out: &mut Vec<u8>) -> Result<(), Misfit> {
        if let [(Step::Fixed(size), _)] = self.steps[..] {
            out.extend_from_slice(payload.get(..size).ok_or(Misfit)?);
            return Ok(());
        }
        let start = out.len();
        let result = if self.context {
            self.encode_part::<true>(true, payload, out)
                .and_then(|()| self.encode_part::<true>(false, payload, out))
        } else {
            self.encode_part::<false>(false, payload, out)
        };
        result.inspect_err(|_| out.truncate(start))
    }

    /// Appends all fields or, if `CHOOSE`, either the context or the others.
    #[inline]
    fn encode_part<const CHOOSE: bool>(
        &self,
        part: bool,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Misfit> {
        let (mut fixed, mut tails) = payload.split_at_checked(self.fixed_size).ok_or(Misfit)?;
        for &(step, context) in &self.steps {
            let mut push = |bytes: &[u8]| {
                if !CHOOSE || context == part {
                    out.extend_from_slice(bytes);
                }
            };
            match step {
                Step::Fixed(size) => push(take(&mut fixed, size)?),
                Step::Array(size) => push(take(&mut tails, size)?),
                Step::Text => {
                    let text = take(&mut tails, take_count(&mut fixed)?)?;
                    // The program may have put a NUL into the text after its length was taken.
                    let end = memchr::memchr(0, text).unwrap_or(text.len());
                    push(&text[..end]);
                    push(&[0]);
                }
                Step::Sequence(element) => {
                    let count = take_count(&mut fixed)?;
                    push(&(count as u32).to_le_bytes());
                    push(take(&mut tails, count.checked_mul(element).ok_or(Misfit)?)?);
                }
            }
        }
        Ok(())
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
            fields: types.into_iter().enumerate().map(field).collect(),
        }
    }

    const U16: schema::Integer = schema::Integer::unsigned(16);

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
        let mut out = Vec::new();
        plan.encode(payload, &mut out).unwrap();
        assert_eq!(out, b"\x01\x02abc\0WXYZ\x01\x02\0\0\0mnop");
    }

    #[test]
    fn a_text_that_was_changed_meanwhile_ends_at_its_nul() {
        let plan = Plan::new(&event(vec![schema::Type::String, schema::Type::String]));
        let mut out = Vec::new();
        plan.encode(b"\x03\0\0\0\x02\0\0\0a\0cde", &mut out).unwrap();
        assert_eq!(out, b"a\0de\0");
    }

    #[test]
    fn a_length_that_lies_is_refused_and_leaves_nothing() {
        let plan = Plan::new(&event(vec![schema::Type::Integer(U16), schema::Type::Sequence(U16)]));
        for count in [3u32, u32::MAX] {
            let payload = [&[1, 2][..], &count.to_le_bytes(), b"abcd"].concat();
            let mut out = vec![9];
            assert_eq!(plan.encode(&payload, &mut out), Err(Misfit));
            assert_eq!(out, [9]);
        }
    }
}
