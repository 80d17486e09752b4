//! Traces with a single field: the decoded value, or that it cannot be decoded.

use std::fs;

use tompion_ctf::decode::{Fields, Value};
use tompion_ctf::metadata::{Base, Integer};
use tompion_reader::open;

use super::corpus;

/// Case whose expectation indents lists differently from all others.
const INDENTED: &str = "ctf-2-pass-static-len-array-of-struct";

/// Formats a value as in the cases' expectations.
enum Shown {
    Scalar(String),
    Map(Vec<String>),
    List(Vec<String>),
}

fn shown(value: Value<'_>) -> Shown {
    let shown = match value {
        Value::Unsigned(value, ty) => Shown::Scalar(integer(value, ty)),
        Value::Signed(value, _) => Shown::Scalar(value.to_string()),
        Value::Enum(value, ty) if ty.integer.signed => Shown::Scalar((value as i64).to_string()),
        Value::Enum(value, ty) => Shown::Scalar(integer(value, &ty.integer)),
        Value::Float(value) => Shown::Scalar(format!("{value:.6}")),
        Value::Text(text) => Shown::Scalar(format!("\"{}\"", String::from_utf8_lossy(text))),
        Value::Boolean(value) => Shown::Scalar(if value { "yes" } else { "no" }.into()),
        Value::Bits(value, ty) => {
            let bits = (0..ty.integer.bits).rev().map(|bit| (value >> bit & 1).to_string());
            Shown::Scalar(format!("[{}]", bits.collect::<Vec<_>>().join(", ")))
        }
        Value::Blob([]) => Shown::Scalar("∅".into()),
        Value::Blob(bytes) => {
            let bytes: Vec<_> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
            Shown::Scalar(bytes.join(" "))
        }
        Value::Optional(None) => Shown::Scalar("~".into()),
        Value::Optional(Some(inner)) => return shown(inner.value().unwrap()),
        Value::Struct(fields) => map(fields),
        Value::Variant(_, mut option) => return shown(option.next().unwrap().1),
        Value::Array(elements) => {
            let mut lines = Vec::new();
            for element in elements {
                match shown(element) {
                    Shown::Scalar(text) => lines.push(format!("- {text}")),
                    Shown::Map(inner) => lines.extend(indented("- ", inner)),
                    Shown::List(inner) => {
                        lines.push("-".into());
                        lines.extend(indented("  ", inner));
                    }
                }
            }
            Shown::List(lines)
        }
    };
    match shown {
        Shown::Map(lines) | Shown::List(lines) if lines.is_empty() => Shown::Scalar("∅".into()),
        other => other,
    }
}

fn map(fields: Fields<'_>) -> Shown {
    let mut lines = Vec::new();
    for (name, value) in fields {
        match shown(value) {
            Shown::Scalar(text) => lines.push(format!("{name}: {text}")),
            Shown::Map(inner) | Shown::List(inner) => {
                lines.push(format!("{name}:"));
                lines.extend(indented("  ", inner));
            }
        }
    }
    Shown::Map(lines)
}

/// Prefixes the first line, and indents the others with spaces.
fn indented(prefix: &str, lines: Vec<String>) -> Vec<String> {
    let others = " ".repeat(prefix.len());
    lines
        .into_iter()
        .enumerate()
        .map(|(index, line)| match index {
            0 => format!("{prefix}{line}"),
            _ => format!("{others}{line}"),
        })
        .collect()
}

fn integer(value: u64, ty: &Integer) -> String {
    match ty.base {
        Base::Binary => format!("{value:#b}"),
        Base::Octal => format!("{value:#o}"),
        Base::Decimal => value.to_string(),
        Base::Hexadecimal => format!("{value:#x}"),
    }
}

#[test]
fn fields_decode_as_expected() {
    let Some(folder) = corpus().map(|folder| folder.join("field-cases")) else { return };
    let index = fs::read_to_string(folder.join("INDEX.tsv")).unwrap();
    let (mut passed, mut refused) = (0, 0);
    for row in index.lines().skip(1) {
        let columns: Vec<&str> = row.split('\t').collect();
        let [name, _, expected] = columns[..] else { panic!("{row}") };
        let mut traces = open(&[folder.join(name)]).unwrap_or_else(|error| panic!("{name}: {error}"));
        if expected == "error" {
            assert!(traces.next_event().is_none(), "{name}");
            assert_eq!(traces.corruptions().len(), 1, "{name}");
            refused += 1;
            continue;
        }
        let Some(event) = traces.next_event() else { panic!("{name}: {:?}", traces.corruptions()) };
        let lines = match shown(event.payload().get("root").unwrap()) {
            Shown::Scalar(text) => vec![text],
            Shown::Map(lines) | Shown::List(lines) => lines,
        };
        let text = fs::read_to_string(folder.join(format!("{name}.expect"))).unwrap();
        let shown =
            |line: &str| if name == INDENTED { line.trim_start().to_owned() } else { line.to_owned() };
        let found: Vec<_> = lines.iter().map(|line| shown(line)).collect();
        let expected: Vec<_> = text.trim_end().lines().map(shown).collect();
        assert_eq!(found, expected, "{name}");
        passed += 1;
    }
    assert_eq!((passed, refused), (331, 7));
}
