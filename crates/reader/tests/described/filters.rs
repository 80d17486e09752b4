//! A filter has the same verdict on a record in a ring and on its event in the trace. For each
//! value of random events, this is checked with a filter that matches it and one that doesn't.

use std::slice;

use tompion_ctf::decode::{Fields, Value};
use tompion_filter::{EventSchema, RecordValues, Shape, Verdict, compile, parse};
use tompion_reader::filter::Filter;
use tompion_reader::open;
use tompion_schema::Event;

use tompion_testing::is_full;

use crate::{Recording, random};

/// Name in the trace, and the value that a filter must compare it with.
type Asked = (String, String);

/// Adds one comparison for each name that refers to a value.
fn ask(path: String, value: Value<'_>, asked: &mut Vec<Asked>) {
    match value {
        // Multi-byte text that is not a valid character must match as well.
        Value::Text(text) => {
            let escaped: String = text.iter().map(|byte| format!("\\x{byte:02x}")).collect();
            asked.push((path, format!("\"{escaped}\"")));
        }
        Value::Float(number) if number.is_finite() => asked.push((path, format!("{number:?}"))),
        // No literal is a NaN, and a NaN isn't equal to itself either.
        Value::Float(_) => {}
        Value::Enum(_, ty) => {
            let number = value.as_integer().unwrap();
            let own = ty.mappings.iter().filter(|mapping| (mapping.low..=mapping.high).contains(&number));
            asked.extend(own.map(|mapping| (path.clone(), format!("\"{}\"", mapping.label))));
            asked.push((path, number.to_string()));
        }
        Value::Unsigned(..) | Value::Signed(..) => {
            asked.push((path, value.as_integer().unwrap().to_string()));
        }
        Value::Struct(fields) => ask_fields(&format!("{path}."), fields, asked),
        Value::Array(elements) => {
            for (index, element) in elements.enumerate() {
                ask(format!("{path}[{index}]"), element, asked);
            }
        }
        Value::Boolean(_) | Value::Bits(..) | Value::Blob(_) | Value::Optional(_) | Value::Variant(..) => {
            unreachable!("programs describe no such fields")
        }
    }
}

fn ask_fields(prefix: &str, fields: Fields<'_>, asked: &mut Vec<Asked>) {
    // Names with underscores are those that a trace has to change, and the lengths that it adds.
    for (name, value) in fields.filter(|(name, _)| !name.contains('_')) {
        ask(format!("{prefix}{name}"), value, asked);
    }
}

/// Whether a class has the name in both its context and its fields: the trace has them in another
/// order.
fn is_ambiguous(event: &Event, asked: &str) -> bool {
    let head = asked.split(['.', '[']).next().unwrap_or_default();
    event.fields.iter().filter(|field| field.name.trim_matches('_') == head).count() > 1
}

fn verdict_on_record(text: &str, event: &Event, payload: &[u8]) -> Verdict {
    let program = compile(&parse(text).unwrap(), &EventSchema::without_contexts(event)).unwrap();
    let shape = Shape::new(event);
    let (fixed, tails) = shape.split(payload);
    program.evaluate(&RecordValues::new(fixed, &tails))
}

#[test]
fn a_filter_has_the_same_verdict_on_record_and_trace() {
    let (mut held, mut enumerations, mut texts, mut nested) = (0, 0, 0, 0);
    for seed in 1..=if is_full() { 200 } else { 6 } {
        let (events, records) = random::recording(seed);
        let recording = Recording::new(&format!("filters-{seed}"), &events, &records);
        let mut traces = open(slice::from_ref(&recording.0)).unwrap();
        for (class, payload) in &records {
            let event = traces.next_event().unwrap();
            let description = &events[*class as usize];
            let mut asked = Vec::new();
            ask_fields("", event.context(), &mut asked);
            ask_fields("", event.payload(), &mut asked);
            asked.retain(|(name, _)| !is_ambiguous(description, name));
            for (name, value) in asked {
                for (operator, expected) in [("==", Verdict::True), ("!=", Verdict::False)] {
                    let text = format!("{name} {operator} {value}");
                    assert_eq!(
                        verdict_on_record(&text, description, payload),
                        expected,
                        "{text}: {description:?}"
                    );
                    let filter = Filter::new(&parse(&text).unwrap()).unwrap();
                    assert_eq!(filter.takes(&event), expected.is_true(), "{text}: {description:?}");
                }
                held += 1;
                enumerations += usize::from(value.contains("label"));
                texts += usize::from(value.starts_with("\"\\x"));
                nested += usize::from(name.contains('.'));
            }
        }
    }
    println!("{held} values, {enumerations} labels, {texts} texts, {nested} in structures");
    assert!(held > 1000 && enumerations > 5 && texts > 100 && nested > 100);
}
