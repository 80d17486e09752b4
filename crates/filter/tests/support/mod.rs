//! Fixtures of the tests: a record with a field of every kind, random numbers, and four ways to a
//! verdict.
#![allow(dead_code)]

use tompion_filter::{
    Contexts, EventSchema, Expression, Found, Kind, Name, NoContexts, Operand, Place, Program, RecordValues,
    Segment, Shape, Value, Values, Verdict, compile, compile_unbound, parse,
};
use tompion_schema::{self as schema, Enumeration, Event, Field, Integer, Label, Type};

/// Value of a field in the test's own representation.
#[derive(Clone, Debug)]
pub enum Held {
    Number(Value),
    Text(&'static [u8]),
    Numbers(Vec<Value>),
    Labels(Value, Vec<Label>),
}

/// Event, and a record of it in all forms.
pub struct Sample {
    pub event: Event,
    pub fixed: Vec<u8>,
    pub tails: Vec<Vec<u8>>,
    held: Vec<(String, Held)>,
}

pub fn label(low: i128, high: i128, name: &str) -> Label {
    Label { low, high, name: name.into() }
}

impl Sample {
    fn empty() -> Self {
        let event = Event {
            provider: "db".into(),
            name: "query".into(),
            level: schema::Level::DEFAULT,
            kind: schema::Kind::Instant,
            init: false,
            format: None,
            attributes: Default::default(),
            fields: Vec::new(),
        };
        Self { event, fixed: Vec::new(), tails: Vec::new(), held: Vec::new() }
    }

    fn add(&mut self, name: &str, ty: Type, bytes: &[u8], held: Held) {
        self.fixed.extend(bytes);
        self.event.fields.push(Field::new(name, ty));
        self.held.push((name.into(), held));
    }

    fn add_tail(&mut self, name: &str, ty: Type, bytes: &[u8], held: Held) {
        let count = match &ty {
            Type::Sequence(element) => Some(bytes.len() / element.size()),
            Type::String | Type::Bytes | Type::TextSequence => Some(bytes.len()),
            _ => None,
        };
        let count = count.map(|count| (count as u32).to_le_bytes());
        self.tails.push(bytes.to_vec());
        self.add(name, ty, count.as_ref().map_or(&[], |count| &count[..]), held);
    }

    /// Creates a record with a field of every kind.
    pub fn new() -> Self {
        let mut sample = Self::empty();
        sample.add_numbers();
        sample.add_texts();
        let numbers = |values: &[i64]| Held::Numbers(values.iter().map(|&value| value.into()).collect());
        let u16_network = Integer::unsigned(16).network();
        sample.add_tail("bytes", Type::Bytes, b"\x7fELF", numbers(&[0x7f, 0x45, 0x4c, 0x46]));
        sample.add_tail(
            "array",
            Type::Array(Integer::signed(16), 3),
            b"\xff\xff\x02\0\x03\0",
            numbers(&[-1, 2, 3]),
        );
        sample.add_tail("ports", Type::Sequence(u16_network), b"\0\x50\x01\xbb", numbers(&[80, 443]));
        sample.add_tail("none", Type::Sequence(Integer::unsigned(32)), b"", numbers(&[]));
        sample.add_structure();
        // The last field, which shows whether all preceding ones were skipped correctly.
        sample.add(
            "last",
            Type::Integer(Integer::unsigned(32)),
            &77u32.to_le_bytes(),
            Held::Number(77u64.into()),
        );
        sample.add_tail("end", Type::String, b"done", Held::Text(b"done"));
        sample
    }

    fn add_numbers(&mut self) {
        let number = |value: i64| Held::Number(value.into());
        self.add("rows", Type::Integer(Integer::unsigned(64)), &250u64.to_le_bytes(), number(250));
        self.add("ret", Type::Integer(Integer::signed(32)), &(-2i32).to_le_bytes(), number(-2));
        self.add("small", Type::Integer(Integer::signed(8)), &[0x80], number(-128));
        self.add("flags", Type::Integer(Integer::hex(16)), &0xa5u16.to_le_bytes(), number(0xa5));
        self.add("big", Type::Integer(Integer::unsigned(64)), &[0xff; 8], Held::Number(u64::MAX.into()));
        self.add("least", Type::Integer(Integer::signed(64)), &i64::MIN.to_le_bytes(), number(i64::MIN));
        self.add("net16", Type::Integer(Integer::unsigned(16).network()), &[0x1f, 0x90], number(8080));
        self.add(
            "net32",
            Type::Integer(Integer::signed(32).network()),
            &[0xff, 0xff, 0xff, 0xfd],
            number(-3),
        );
        self.add(
            "net64",
            Type::Integer(Integer::unsigned(64).network()),
            &[0, 0, 0, 0, 0, 0, 1, 0],
            number(256),
        );
        self.add("ms", Type::Float(64), &2.5f64.to_le_bytes(), Held::Number(2.5.into()));
        self.add("half", Type::Float(32), &0.5f32.to_le_bytes(), Held::Number(0.5.into()));
        self.add("nan", Type::Float(64), &f64::NAN.to_le_bytes(), Held::Number(f64::NAN.into()));
        self.add("ok", Type::Bool, &[1], number(1));
        let labels =
            vec![label(0, 0, "idle"), label(1, 5, "running"), label(5, 9, "runaway"), label(20, 20, "*")];
        self.add_enum("state", Integer::unsigned(8), 5, labels);
        self.add_enum("mode", Integer::signed(64), -7, vec![label(-10, -1, "bad"), label(0, 99, "good")]);
        let services = vec![label(80, 80, "http"), label(443, 443, "https")];
        self.add_enum("service", Integer::unsigned(16).network(), 443, services);
    }

    fn add_enum(&mut self, name: &str, integer: Integer, value: i64, labels: Vec<Label>) {
        let enumeration = Enumeration { name: String::new(), labels: labels.clone() };
        let (little, big) = (value.to_le_bytes(), value.to_be_bytes());
        let bytes = if integer.network { &big[8 - integer.size()..] } else { &little[..integer.size()] };
        self.add(name, Type::Enum(integer, enumeration), bytes, Held::Labels(value.into(), labels));
    }

    fn add_texts(&mut self) {
        let held = Held::Text(b"orders_2026");
        self.add_tail("table", Type::String, b"orders_2026", held.clone());
        self.add_tail("again", Type::TextSequence, b"orders_2026\0rest", held);
        self.add_tail("host", Type::TextArray(8), b"caf\xc3\xa9\0\0\0", Held::Text("café".as_bytes()));
        self.add_tail("path", Type::String, br"C:\*?", Held::Text(br"C:\*?"));
        self.add_tail("empty", Type::String, b"", Held::Text(b""));
    }

    fn add_structure(&mut self) {
        let inner = Type::Struct(vec![
            Field::new("name", Type::String),
            Field::new("depth", Type::Integer(Integer::unsigned(8))),
        ]);
        let outer = Type::Struct(vec![
            Field::new("x", Type::Integer(Integer::signed(16))),
            Field::new("inner", inner),
            Field::new("list", Type::Array(Integer::unsigned(8), 2)),
        ]);
        self.fixed.extend((-5i16).to_le_bytes());
        self.fixed.extend(3u32.to_le_bytes());
        self.fixed.push(9);
        self.event.fields.push(Field::new("nest", outer));
        self.tails.push(b"abc".to_vec());
        self.tails.push(vec![6, 7]);
        for (name, held) in [
            ("nest.x", Held::Number((-5i64).into())),
            ("nest.inner.name", Held::Text(b"abc")),
            ("nest.inner.depth", Held::Number(9u64.into())),
            ("nest.list", Held::Numbers(vec![6u64.into(), 7u64.into()])),
        ] {
            self.held.push((name.into(), held));
        }
    }

    /// Returns the contiguous payload, as in a ring.
    pub fn payload(&self) -> Vec<u8> {
        let mut payload = self.fixed.clone();
        payload.extend(self.tails.concat());
        payload
    }

    /// Returns the verdict of a bound program on the record.
    pub fn verdict(&self, program: &Program, contexts: &dyn Contexts) -> Verdict {
        let tails: Vec<&[u8]> = self.tails.iter().map(Vec::as_slice).collect();
        let verdict = program.evaluate(&RecordValues::new(&self.fixed, &tails[..]).with_contexts(contexts));
        let (payload, shape) = (self.payload(), Shape::new(&self.event));
        let (fixed, packed) = shape.split(&payload);
        let of_payload = program.evaluate(&RecordValues::new(fixed, &packed).with_contexts(contexts));
        assert_eq!(verdict, of_payload, "a record in one piece is the same record");
        verdict
    }

    /// Returns the verdict of a filter on the record. All ways must agree: bound to the schema;
    /// serialized and bound later; by names at run time.
    pub fn check(&self, text: &str) -> Verdict {
        let expression = parse(text).unwrap_or_else(|error| panic!("{}", error.render()));
        let schema = EventSchema::new(&self.event, &find_context);
        let program = compile(&expression, &schema).unwrap_or_else(|error| panic!("{}", error.render()));
        let verdict = self.verdict(&program, &TestContexts);
        let travelled = Program::from_bytes(&program.to_bytes()).unwrap();
        assert_eq!(travelled.to_bytes(), program.to_bytes(), "{text}");
        assert_eq!(self.verdict(&travelled, &TestContexts), verdict, "{text}: as bytes");
        let unbound = compile_unbound(&expression).unwrap();
        let travelled = Program::from_bytes(&unbound.to_bytes()).unwrap().bind(&schema).unwrap();
        assert_eq!(self.verdict(&travelled, &TestContexts), verdict, "{text}: bound later");
        assert_eq!(unbound.evaluate(&ByName(self)), verdict, "{text}: by names");
        verdict
    }
}

/// Evaluates an expression of literals only.
pub fn constant(expression: &Expression) -> Verdict {
    let program = compile_unbound(expression).unwrap_or_else(|error| panic!("{}", error.render()));
    program.evaluate(&RecordValues::new(&[], &[][..]).with_contexts(&NoContexts))
}

/// Contexts: `$tid` is 12, `$comm` is "worker"; the priority is left to a later evaluator.
pub struct TestContexts;

impl Contexts for TestContexts {
    fn number(&self, context: u16) -> Value {
        if context == 3 { 12u64.into() } else { Value::UNKNOWN }
    }

    fn text(&self, context: u16) -> Option<&[u8]> {
        (context == 4).then_some(b"worker")
    }
}

pub fn find_context(name: &Name) -> Found<'static> {
    match name.to_string().as_str() {
        "$tid" => Found { place: Place::Context(3), kind: Kind::Integer },
        "$comm" => Found { place: Place::Context(4), kind: Kind::Text },
        _ => Found::ELSEWHERE,
    }
}

/// Evaluator that looks up every name, as a reader may.
pub struct ByName<'a>(pub &'a Sample);

impl ByName<'_> {
    fn held(&self, name: &Name) -> Option<&Held> {
        let text = name.to_string();
        let (plain, index) = text.split_once('[').unwrap_or((&text, ""));
        if index.contains(['[', '.']) {
            return None;
        }
        self.0.held.iter().find(|(known, _)| known == plain).map(|(_, held)| held)
    }
}

impl Values for ByName<'_> {
    fn number(&self, operand: &Operand) -> Value {
        if operand.name.to_string() == "$tid" {
            return 12u64.into();
        }
        match (self.held(&operand.name), operand.name.path.last()) {
            (Some(Held::Number(value) | Held::Labels(value, _)), Some(Segment::Name(_))) => *value,
            (Some(Held::Numbers(values)), Some(Segment::Index(index))) => {
                values.get(*index as usize).copied().unwrap_or(Value::UNKNOWN)
            }
            _ => Value::UNKNOWN,
        }
    }

    fn text(&self, operand: &Operand) -> Option<&[u8]> {
        if operand.name.to_string() == "$comm" {
            return Some(b"worker");
        }
        match (self.held(&operand.name), operand.name.path.last()) {
            (Some(Held::Text(text)), Some(Segment::Name(_))) => Some(text),
            _ => None,
        }
    }

    fn has_label(&self, operand: &Operand, wanted: &dyn Fn(&[u8]) -> bool) -> Option<bool> {
        let (Some(Held::Labels(value, labels)), Some(Segment::Name(_))) =
            (self.held(&operand.name), operand.name.path.last())
        else {
            return None;
        };
        let value = value.as_integer()?;
        let mut own = labels.iter().filter(|label| (label.low..=label.high).contains(&value));
        Some(own.any(|label| wanted(label.name.as_bytes())))
    }
}
