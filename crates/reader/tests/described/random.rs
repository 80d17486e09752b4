//! Random events of all types, with random values.

use tompion_schema::{Enumeration, Event, Field, Integer, Kind, Label, Level, Type};
use tompion_testing::Random;

use crate::ring::{Part, payload};

/// Generator of random events.
pub struct Generator(Random);

impl Generator {
    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count)
            .map(
                |_| {
                    if self.0.below(3) == 0 {
                        self.0.pick(&[0, 1, 0x80, 0xff])
                    } else {
                        self.0.number() as u8
                    }
                },
            )
            .collect()
    }

    /// Returns a text that is not empty: babeltrace2 2.0.4 prints the preceding text for an empty
    /// one.
    fn text(&mut self, count: usize) -> Vec<u8> {
        let mut text = self.bytes(count);
        if let Some(first) = text.first_mut() {
            *first = b'a' + (self.0.number() % 26) as u8;
        }
        text
    }

    fn integer(&mut self) -> Integer {
        let bits = self.0.pick(&[8, 16, 32, 64]);
        let integer = self.0.pick(&[Integer::signed(bits), Integer::unsigned(bits), Integer::hex(bits)]);
        if self.0.below(3) == 0 { integer.network() } else { integer }
    }

    fn enumeration(&mut self) -> Enumeration {
        let labels = (0..self.0.below(5)).map(|number| {
            let low = i128::from(self.0.number() as i64 >> self.0.below(64));
            let high = low + i128::from(self.0.below(1 << 20));
            let high = high.min(i64::MAX.into());
            Label { low, high, name: format!("label {number}") }
        });
        Enumeration { name: "e".into(), labels: labels.collect() }
    }

    fn fields(&mut self, depth: usize, limit: u64) -> Vec<Field> {
        let names =
            ["a", "b", "c", "event", "int", "_d", "_a_length", "__a_length", "vtid", "x", "_x", "__x"];
        let count = self.0.below(limit);
        let mut fields: Vec<Field> = Vec::new();
        for _ in 0..count {
            let name = self.0.pick(&names);
            if fields.iter().all(|field| field.name != name) {
                let context = depth == 0 && self.0.below(4) == 0;
                fields.push(Field { context, ..Field::new(name, self.ty(depth)) });
            }
        }
        fields
    }

    fn ty(&mut self, depth: usize) -> Type {
        match self.0.below(if depth < 8 { 13 } else { 10 }) {
            0 | 1 => Type::Integer(self.integer()),
            2 => Type::Float(self.0.pick(&[32, 64])),
            3 => Type::Bool,
            4 => Type::String,
            5 => Type::Bytes,
            6 => Type::Array(self.integer(), self.0.below(4) as u32),
            7 => Type::Sequence(self.integer()),
            8 => Type::TextArray(1 + self.0.below(5) as u32),
            9 => Type::TextSequence,
            10 => Type::Enum(self.integer(), self.enumeration()),
            _ => Type::Struct(self.fields(depth + 1, 6)),
        }
    }

    fn parts(&mut self, ty: &Type, parts: &mut Vec<Part>) {
        let count = self.0.below(4) as usize;
        parts.push(match ty {
            Type::String => {
                let mut text = self.text(count + 1);
                text.retain(|&byte| byte != 0);
                Part::Sequence(text.len() as u32, text)
            }
            Type::Bytes => Part::Sequence(count as u32, self.bytes(count)),
            Type::TextSequence => Part::Sequence(count as u32 + 1, self.text(count + 1)),
            Type::Sequence(element) => Part::Sequence(count as u32, self.bytes(count * element.size())),
            Type::Array(element, count) => Part::Array(self.bytes(element.size() * *count as usize)),
            Type::TextArray(count) => Part::Array(self.text(*count as usize)),
            Type::Struct(members) => return members.iter().for_each(|member| self.parts(&member.ty, parts)),
            fixed => Part::Fixed(self.bytes(fixed.fixed_size())),
        });
    }
}

/// Creates event classes, and some events of each.
pub fn recording(seed: u64) -> (Vec<Event>, Vec<(u32, Vec<u8>)>) {
    let mut generator = Generator(Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)));
    let events: Vec<Event> = (0..60)
        .map(|number| Event {
            provider: "random".into(),
            name: format!("e{number}_begin"),
            level: Level::from_number(generator.0.below(15) as u8),
            kind: Kind::from_number(generator.0.below(7) as u8),
            init: generator.0.below(2) == 0,
            format: (generator.0.below(3) == 0).then(|| "%s & é = \"%d\"".into()),
            attributes: Default::default(),
            fields: generator.fields(0, 10),
        })
        .collect();
    let mut records = Vec::new();
    for _ in 0..4 {
        for (class, event) in (0..).zip(&events) {
            let mut parts = Vec::new();
            event.fields.iter().for_each(|field| generator.parts(&field.ty, &mut parts));
            records.push((class, payload(&parts)));
        }
    }
    (events, records)
}
