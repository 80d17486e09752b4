//! Mutated descriptions and formats: whatever the bytes are, decoding ends with an error, or with
//! an event that can be encoded again.
//!
//! A few rounds run in normal tests, ten million of each with `TOMPION_FULL=1`; they are the same
//! in every run.

use std::collections::BTreeSet;

use tompion_schema::format::{Piece, pieces};
use tompion_schema::{
    Enumeration, Event, Field, Integer, Kind, Label, Level, MAX_FIELDS, MAX_NAME, Type, decode, decode_names,
    decode_outline, description_size, encode, enum_field_count,
};
use tompion_testing::{Random, rounds};

/// Rounds of the long form.
const MANY: u64 = 10_000_000;
/// Bytes that mean something in descriptions.
const SPECIAL: [u8; 12] = [0, 1, 2, 4, 6, 0x7f, 0x80, 0xff, 19, 20, 21, 22];

fn event(kind: Kind, format: Option<&str>, fields: Vec<Field>) -> Event {
    let name = if kind == Kind::Job { "e_begin" } else { "e" };
    let format = format.map(Into::into);
    Event {
        provider: "p".into(),
        name: name.into(),
        level: Level::DEFAULT,
        kind,
        init: true,
        format,
        attributes: Default::default(),
        fields,
    }
}

/// Samples: a mark, an event of all types, and an empty one.
fn samples() -> [Event; 3] {
    let argument = |number: u32| Field::new(&format!("arg{number}"), Type::Integer(Integer::signed(32)));
    let label = |low, high| Label { low, high, name: format!("from {low}") };
    let enumeration = |labels| Enumeration { name: "kinds".into(), labels };
    let types = [
        Type::Float(32),
        Type::Bool,
        Type::String,
        Type::Bytes,
        Type::Array(Integer::hex(16), 9),
        Type::Sequence(Integer::unsigned(8).network()),
        Type::TextArray(12),
        Type::TextSequence,
        Type::Enum(Integer::signed(8), enumeration(vec![label(-3, 4)])),
        Type::Enum(Integer::unsigned(64), enumeration(vec![label(1, u64::MAX.into()), label(0, 0)])),
    ];
    let members: Vec<Field> =
        types.into_iter().zip(0..).map(|(ty, number)| Field::new(&format!("f{number}"), ty)).collect();
    let nested = Type::Struct(vec![Field::new("in", Type::Struct(members.clone()))]);
    let fields = members.into_iter().chain([Field { context: true, ..Field::new("out", nested) }]).collect();
    let format = "rows %d, table=%s at 0x%lx (%*.3f) %m";
    [
        event(Kind::Mark, Some(format), (1..=5).map(argument).collect()),
        event(Kind::Job, None, fields),
        event(Kind::Instant, None, Vec::new()),
    ]
}

/// Asserts the guarantees about every decoded event.
fn assert_sound(event: &Event) {
    let names: BTreeSet<&str> = event.fields.iter().map(|field| &*field.name).collect();
    assert_eq!(names.len(), event.fields.len(), "{:?}", event.fields);
    assert!(names.iter().all(|name| (1..=MAX_NAME).contains(&name.len())));
    assert!(event.fields.len() <= MAX_FIELDS && event.fixed_size() <= 8 * MAX_FIELDS);
    assert!(event.name.starts_with(event.base_name()) && !event.base_name().is_empty());
    event.fields.iter().for_each(|field| assert!(!field.ty.to_string().is_empty()));
}

#[test]
fn changed_descriptions_are_refused_or_describe_something_else() {
    let samples = samples().map(|event| encode(&event));
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let rounds = rounds(100_000, MANY);
    let mut accepted = 0;
    for _ in 0..rounds {
        let mut bytes = samples[random.index(samples.len())].clone();
        random.mutate(&mut bytes, &SPECIAL);
        let outline = decode_outline(&bytes);
        let Ok(event) = decode(&bytes) else { continue };
        accepted += 1;
        assert_sound(&event);
        assert_eq!(decode_names(&bytes), Ok(event.names()));
        assert_eq!(outline.map(|outline| outline.fields.len()), Ok(event.fields.len()));
        assert!(enum_field_count(&bytes).unwrap() <= MAX_FIELDS);
        assert!(description_size(&bytes).unwrap() <= bytes.len());
        assert_eq!(decode(&encode(&event)), Ok(event));
    }
    println!("{accepted} of {rounds} accepted");
    assert!(accepted > rounds / 100, "some mutations are harmless: {accepted}");
}

#[test]
fn any_format_gives_names_or_leaves_them() {
    const PARTS: [&str; 24] = [
        "%",
        "%%",
        "d",
        "s",
        "x",
        "lx",
        "%d",
        "%s",
        "%p",
        "%1$",
        "%*",
        ".*",
        "rows",
        "n_2",
        "arg3",
        "0x",
        "=",
        ": ",
        " ",
        "\"",
        "é",
        "-#0",
        "99999999999",
        "\u{7f}",
    ];
    let argument = |number: u32| Field::new(&format!("arg{number}"), Type::Integer(Integer::signed(16)));
    let fields: Vec<Field> = (1..=6).map(argument).collect();
    let mut random = Random(0xd1b5_4a32_d192_ed03);
    let (mut named, rounds) = (0, rounds(100_000, MANY));
    for _ in 0..rounds {
        let format: String = (0..random.index(16)).map(|_| PARTS[random.index(PARTS.len())]).collect();
        let texts = pieces(&format).map(|piece| match piece {
            Piece::Text(text) => text.len(),
            Piece::Conversion(_) => 0,
        });
        assert!(texts.sum::<usize>() <= format.len());
        let mark = event(Kind::Mark, Some(&format), fields.clone());
        let read = decode(&encode(&mark)).unwrap();
        assert_sound(&read);
        named += u64::from(read.fields.iter().any(|field| !field.name.starts_with("arg")));
        assert_eq!(decode(&encode(&read)), Ok(read));
    }
    println!("{named} of {rounds} named");
    assert!(named > rounds / 20, "some formats give names: {named}");
}
