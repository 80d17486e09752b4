//! Random filters and programs: nothing panics or runs forever, and no program is accepted that
//! cannot be evaluated.
//!
//! A few rounds run in normal tests, ten million of each with `TOMPION_FULL=1`; they are the same
//! in every run.

mod support;

use support::{ByName, Sample, TestContexts, find_context};
use tompion_filter::{
    EventSchema, MAX_PROGRAM, Program, RecordValues, Shape, Verdict, compile, compile_unbound, parse,
};
use tompion_testing::{Random, rounds};

const MANY: u64 = 10_000_000;

/// Filters that are mutated.
const SEEDS: &[&str] = &[
    "rows > 100 && table == \"orders*\" && $tid == 12",
    "(flags & 0xf) << 2 | ~ret ^ small % 7",
    "state == \"run*\" || mode != \"bad\" && !ok",
    "nest.inner.name == \"a?c\" && nest.list[1] >= 7 || array[0] == -1",
    "ms * 2.5 - half / 3 <= 1e-3 && big > least",
    "$comm == \"\\x77ork\\*\" || $app.pool:user == 'x' || $prio < 10ms",
    "table == again && host != path && ports[1] == net16",
    "-(-(-(ret))) + 4K * 017 / 0b11",
    "none[0] == bytes[3] || (((rows))) == true",
];

/// Words and signs of filters, and some invalid ones.
const PARTS: &[&str] = &[
    "rows",
    "ret",
    "table",
    "host",
    "state",
    "mode",
    "ms",
    "ok",
    "nest",
    ".x",
    ".inner",
    ".name",
    "array",
    "[0]",
    "[",
    "]",
    "$",
    "$tid",
    "$comm",
    "$app.",
    ":",
    "missing",
    "true",
    "false",
    "0",
    "1",
    "2",
    "250",
    "0x",
    "0xa5",
    "1.5",
    "1e3",
    "10ms",
    "4K",
    "18446744073709551615",
    "9223372036854775808",
    "'a'",
    "'",
    "\"",
    "\"orders*\"",
    "\"run*\"",
    "\"\\",
    "||",
    "&&",
    "|",
    "^",
    "&",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "<<",
    ">>",
    "+",
    "-",
    "*",
    "/",
    "%",
    "!",
    "~",
    "(",
    ")",
    " ",
    "=",
    "é",
    "\u{0}",
    "\n",
    "?",
    ".",
    "_",
    "e5",
    "((((((((",
    "))))))))",
];

fn random_filter(random: &mut Random) -> String {
    let mut text = String::new();
    if random.index(3) == 0 {
        for _ in 0..random.index(24) {
            text.push_str(random.pick(PARTS));
            if random.index(2) == 0 {
                text.push(' ');
            }
        }
        return text;
    }
    text.push_str(random.pick(SEEDS));
    for _ in 0..random.index(5) {
        let boundary =
            |at: usize| (0..=at.min(text.len())).rev().find(|&at| text.is_char_boundary(at)).unwrap_or(0);
        let from = boundary(random.index(text.len() + 1));
        let to = boundary(from + random.index(8)).max(from);
        match random.index(3) {
            0 => text.insert_str(from, random.pick(PARTS)),
            1 => text.replace_range(from..to, ""),
            _ if text.len() < 600 => text.insert_str(from, random.pick(SEEDS)),
            _ => {}
        }
    }
    text
}

/// Parses a filter, compiles it in both ways, and compares all results.
fn try_filter(text: &str, sample: &Sample, schema: &EventSchema<'_>) -> Option<Verdict> {
    let expression = match parse(text) {
        Ok(expression) => expression,
        Err(error) => {
            assert!(error.at.offset + error.at.length <= text.len(), "{text:?}: {error:?}");
            assert_eq!(error.render().lines().count(), 2, "{text:?}");
            return None;
        }
    };
    let again = parse(&expression.to_text()).unwrap_or_else(|error| panic!("{text:?}: {}", error.render()));
    assert!(expression.is_same_as(&again), "{text:?} became {:?}", expression.to_text());
    let unbound = compile_unbound(&expression).ok()?;
    let by_name = unbound.evaluate(&ByName(sample));
    let bytes = unbound.to_bytes();
    let travelled = Program::from_bytes(&bytes).unwrap_or_else(|error| panic!("{text:?}: {error}"));
    assert_eq!(travelled.to_bytes(), bytes, "{text:?}");
    let bound = travelled.bind(schema).ok()?;
    let verdict = sample.verdict(&bound, &TestContexts);
    assert_eq!(verdict, by_name, "{text:?}: bound and by names");
    if let Ok(compiled) = compile(&expression, schema) {
        assert_eq!(sample.verdict(&compiled, &TestContexts), verdict, "{text:?}: compiled and bound");
        let again = compile(&again, schema).unwrap_or_else(|error| panic!("{text:?}: {}", error.render()));
        assert_eq!(compiled.to_bytes(), again.to_bytes(), "{text:?}");
    }
    if let Ok(wrapped) = parse(&format!("!!({text}\n)")) {
        let wrapped = compile_unbound(&wrapped).ok()?;
        assert_eq!(wrapped.evaluate(&ByName(sample)), by_name, "{text:?}: with a stack");
    }
    Some(verdict)
}

#[test]
fn random_filters() {
    let sample = Sample::new();
    let schema = EventSchema::new(&sample.event, &find_context);
    let mut random = Random(1);
    let (mut parsed, mut decided) = (0u64, 0u64);
    let total = rounds(20_000, MANY);
    for _ in 0..total {
        let text = random_filter(&mut random);
        if let Some(verdict) = try_filter(&text, &sample, &schema) {
            parsed += 1;
            decided += u64::from(verdict != Verdict::Unknown);
        }
    }
    println!("{total} filters: {parsed} compiled, {decided} decided");
    assert!(parsed > total / 20 && decided > total / 50, "most of what is tried must reach the evaluation");
}

#[test]
fn random_bytes_as_filters() {
    let mut random = Random(2);
    for _ in 0..rounds(20_000, MANY / 10) {
        let bytes: Vec<u8> = (0..random.index(64)).map(|_| random.number() as u8).collect();
        let _ = parse(&String::from_utf8_lossy(&bytes));
    }
}

/// Programs that are mutated, bound and unbound.
fn seed_programs(sample: &Sample) -> Vec<Vec<u8>> {
    let schema = EventSchema::new(&sample.event, &find_context);
    let mut programs = Vec::new();
    for text in SEEDS {
        let expression = parse(text).unwrap();
        programs.push(compile_unbound(&expression).unwrap().to_bytes());
        programs.push(compile_unbound(&expression).unwrap().bind(&schema).unwrap().to_bytes());
    }
    programs
}

/// Returns the offset of the code and the number of operands in the header.
fn code_of(bytes: &[u8]) -> (usize, u8) {
    (bytes.len() - usize::from(u16::from_le_bytes([bytes[6], bytes[7]])), bytes[8])
}

/// Returns a copy of a program with changed code and correct sizes, or with any byte changed.
fn mutate(seed: &[u8], other: &[u8], random: &mut Random) -> (Vec<u8>, bool) {
    let mut bytes = seed.to_vec();
    if random.index(4) == 0 {
        for _ in 0..1 + random.index(4) {
            let at = random.index(bytes.len());
            bytes[at] = random.number() as u8;
        }
        bytes.truncate(if random.index(4) == 0 { random.index(bytes.len()) } else { bytes.len() });
        return (bytes, false);
    }
    let (begin, _) = code_of(&bytes);
    let mut code = bytes.split_off(begin);
    for _ in 0..1 + random.index(3) {
        let at = random.index(code.len() + 1);
        match random.index(4) {
            0 if at < code.len() => code[at] = random.number() as u8 % 24,
            1 if at < code.len() => drop(code.remove(at)),
            2 => code.insert(at, random.number() as u8 % 24),
            _ => {
                let (from, _) = code_of(other);
                let begin = from + random.index(other.len() - from);
                let end = (begin + 1 + random.index(24)).min(other.len());
                drop(code.splice(at..at, other[begin..end].iter().copied()));
            }
        }
    }
    bytes.extend(&code);
    let size = (bytes.len() as u16).to_le_bytes();
    bytes[4..6].copy_from_slice(&size);
    bytes[6..8].copy_from_slice(&(code.len() as u16).to_le_bytes());
    (bytes, true)
}

/// Returns the same program with two `!` appended, so that it is not recognized as a chain of
/// conditions.
fn negated_twice(bytes: &[u8]) -> Vec<u8> {
    const NOT: u8 = 5;
    let mut bytes = bytes.to_vec();
    bytes.extend([NOT, NOT]);
    for size in [4, 6] {
        let [low, high] = (u16::from_le_bytes([bytes[size], bytes[size + 1]]) + 2).to_le_bytes();
        (bytes[size], bytes[size + 1]) = (low, high);
    }
    bytes
}

#[test]
fn hostile_programs() {
    let sample = Sample::new();
    let schema = EventSchema::new(&sample.event, &find_context);
    let seeds = seed_programs(&sample);
    let mut random = Random(3);
    let (mut taken, total) = (0u64, rounds(50_000, MANY));
    for _ in 0..total {
        let (bytes, is_code_alone) = {
            let (seed, other) = (&seeds[random.index(seeds.len())], &seeds[random.index(seeds.len())]);
            mutate(seed, other, &mut random)
        };
        let program = Program::from_bytes(&bytes);
        if bytes.len() > MAX_PROGRAM {
            assert!(program.is_err());
            continue;
        }
        if let Ok(program) = &program {
            let (begin, operands) = code_of(&bytes);
            assert_eq!(checker::check(&bytes[begin..], operands), Ok(()), "{bytes:?}");
            assert_eq!(Program::from_bytes(&program.to_bytes()).as_ref(), Ok(program), "{bytes:?}");
            let verdict = sample.verdict(program, &TestContexts);
            program.evaluate(&ByName(&sample));
            if let Ok(wrapped) = Program::from_bytes(&negated_twice(&bytes)) {
                assert_eq!(sample.verdict(&wrapped, &TestContexts), verdict, "with a stack: {bytes:?}");
            }
            if let Ok(bound) = program.bind(&schema) {
                sample.verdict(&bound, &TestContexts);
            }
            taken += 1;
        } else if is_code_alone {
            let (begin, operands) = code_of(&bytes);
            assert!(checker::check(&bytes[begin..], operands).is_err(), "refused without need: {bytes:?}");
        }
    }
    println!("{total} programs: {taken} taken");
    assert!(taken > total / 50, "some must be taken, or evaluation is not tested");
}

#[test]
fn random_bytes_as_programs() {
    let mut random = Random(4);
    for _ in 0..rounds(20_000, MANY / 10) {
        let mut bytes: Vec<u8> = (0..random.index(96)).map(|_| random.number() as u8).collect();
        if random.index(2) == 0 {
            bytes.splice(0..0, *b"TFP1");
        }
        assert!(Program::from_bytes(&bytes).is_err());
    }
}

/// Records by a program that ignores the layout: wrong counts, missing ends.
#[test]
fn hostile_records() {
    let sample = Sample::new();
    let schema = EventSchema::new(&sample.event, &find_context);
    let program = |text: &&str| compile_unbound(&parse(text).unwrap()).unwrap().bind(&schema).unwrap();
    let programs: Vec<_> = SEEDS.iter().map(program).collect();
    let (shape, payload) = (Shape::new(&sample.event), sample.payload());
    let mut random = Random(5);
    let (mut decided, total) = (0u64, rounds(50_000, MANY));
    for _ in 0..total {
        let mut bytes = payload.clone();
        for _ in 0..random.index(4) {
            let at = random.index(bytes.len());
            let byte = random.number() as u8;
            bytes[at] = random.pick(&[0, 1, 0x7f, 0x80, 0xff, byte]);
        }
        bytes.truncate(if random.index(4) == 0 { random.index(bytes.len()) } else { bytes.len() });
        let (fixed, tails) = shape.split(&bytes);
        let program = &programs[random.index(programs.len())];
        let record = RecordValues::new(fixed, &tails).with_contexts(&TestContexts);
        decided += u64::from(program.evaluate(&record) != Verdict::Unknown);
    }
    println!("{total} records: {decided} decided");
    assert!(decided > total / 50, "some must be decided, or values are not read");
}

/// Second implementation of the verifier. The verifier makes one pass and compares heights at
/// targets; this one follows all paths from the beginning to the end.
mod checker {
    use std::collections::{BTreeMap, BTreeSet};

    /// Operation: its length, the number of values it takes, and its possible successors other than
    /// the next one.
    struct Step {
        length: usize,
        takes: usize,
        puts: usize,
        jump: Option<usize>,
    }

    fn step(code: &[u8], operands: u8) -> Result<Step, &'static str> {
        let byte = |at: usize| code.get(at).copied().ok_or("cut");
        let operand = |at: usize| byte(at)?.lt(&operands).then_some(()).ok_or("operand");
        let number = |at: usize| {
            let kind = byte(at)?;
            let word = code.get(at + 1..at + 9).ok_or("cut")?;
            let negative = word[7] >= 0x80;
            match kind {
                1 | 3 => Ok(()),
                2 if negative => Ok(()),
                _ => Err("literal"),
            }
        };
        let comparison =
            |at: usize| [2, 13, 1, 3, 4, 6].contains(&byte(at)?).then_some(()).ok_or("comparison");
        let sized = |length, takes, puts| Ok(Step { length, takes, puts, jump: None });
        match byte(0)? {
            1..=3 => number(0).and_then(|()| sized(9, 0, 1)),
            4 => operand(1).and_then(|()| sized(2, 0, 1)),
            5..=7 => sized(1, 1, 1),
            8 => comparison(1).and_then(|()| sized(2, 2, 1)),
            9 => {
                operand(1)?;
                comparison(2)?;
                number(3)?;
                sized(12, 0, 1)
            }
            10 if byte(1)? < 10 => sized(2, 2, 1),
            11 | 12 => sized(1, 2, 1),
            13 | 14 => {
                let distance = usize::from(byte(1)?) | usize::from(byte(2)?) << 8;
                Ok(Step { length: 3, takes: 1, puts: 1, jump: Some(3 + distance) })
            }
            15..=17 => {
                operand(1)?;
                let length = 3 + usize::from(byte(2)?);
                if code.get(3..length).ok_or("cut")?.contains(&0) {
                    return Err("NUL");
                }
                sized(length, 0, 1)
            }
            18 => operand(1).and_then(|()| operand(2)).and_then(|()| sized(3, 0, 1)),
            19 => {
                operand(1)?;
                let count = usize::from(byte(2)?);
                let ranges = code.get(3..3 + 17 * count).ok_or("cut")?;
                for range in ranges.chunks(17) {
                    let sound = |bit: u8, high: u8| range[0] & bit == 0 || high >= 0x80;
                    if range[0] > 3 || !sound(1, range[8]) || !sound(2, range[16]) {
                        return Err("range");
                    }
                }
                sized(3 + 17 * count, 0, 1)
            }
            _ => Err("operation"),
        }
    }

    pub fn check(code: &[u8], operands: u8) -> Result<(), &'static str> {
        let mut beginnings = BTreeSet::new();
        let mut at = 0;
        while at < code.len() {
            beginnings.insert(at);
            at += step(&code[at..], operands)?.length;
        }
        beginnings.insert(code.len());
        let mut heights = BTreeMap::new();
        let mut ways = vec![(0, 0usize)];
        while let Some((at, height)) = ways.pop() {
            if !beginnings.contains(&at) {
                return Err("jump");
            }
            match heights.insert(at, height) {
                Some(before) if before != height => return Err("height"),
                Some(_) => continue,
                None => {}
            }
            if at == code.len() {
                if height != 1 {
                    return Err("end");
                }
                continue;
            }
            let step = step(&code[at..], operands)?;
            let height = height.checked_sub(step.takes).ok_or("empty")? + step.puts;
            if height > 64 {
                return Err("full");
            }
            ways.push((at + step.length, height));
            ways.extend(step.jump.map(|jump| (at + jump, height)));
        }
        Ok(())
    }
}
