//! What filters say about records: the language, case by case.

use tompion_filter::{EventSchema, RecordValues, Verdict, compile, parse};
use tompion_schema::{Event, decode};

#[test]
fn smoke() {
    let _ = decode as fn(&[u8]) -> _;
    let bytes = description();
    let event: Event = decode(&bytes).unwrap();
    let fixed = [&200u64.to_le_bytes()[..], &11u32.to_le_bytes()].concat();
    let tails = [&b"orders_2026"[..]];
    let record = RecordValues::new(&fixed, &tails[..]);
    for (text, verdict) in [
        ("rows > 100", Verdict::True),
        ("rows > 100 && table == \"orders*\"", Verdict::True),
        ("rows > 100 && $tid == 12", Verdict::Unknown),
        ("rows < 100 && $tid == 12", Verdict::False),
    ] {
        let expression = parse(text).unwrap();
        let schema = EventSchema::without_contexts(&event);
        let program = compile(&expression, &schema).unwrap();
        assert_eq!(program.evaluate(&record), verdict, "{text}");
    }
}

/// `db:query` with a `u64 rows` and a `str table`.
fn description() -> Vec<u8> {
    let field = |ty: u8, name: &str| {
        let size = (12 + name.len() + 1) as u16;
        let mut bytes = size.to_le_bytes().to_vec();
        bytes.extend([ty, 0, 0, 0, 0, 0, 0, 0]);
        bytes.extend((name.len() as u16 + 1).to_le_bytes());
        bytes.extend(name.as_bytes());
        bytes.push(0);
        bytes
    };
    let mut bytes = b"TEV1\0\0\0\0\x01\0\0\x0d\0\0\x02\0\x03\0\x06\0db\0query\0".to_vec();
    bytes.extend(field(8, "rows"));
    bytes.extend(field(16, "table"));
    let size = bytes.len() as u32;
    bytes[4..8].copy_from_slice(&size.to_le_bytes());
    bytes
}
