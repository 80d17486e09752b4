//! Verdicts of filters on a record: the language, case by case.

mod support;

use support::Sample;
use tompion_filter::Verdict::{False, True, Unknown};
use tompion_filter::{
    Encoding, EventSchema, Found, Kind, Name, Place, RecordValues, Scalar, Schema, Verdict, compile, parse,
};

fn check(cases: &[(&str, Verdict)]) {
    let sample = Sample::new();
    for (text, verdict) in cases {
        assert_eq!(sample.check(text), *verdict, "{text}");
    }
}

#[test]
fn fields_of_every_kind_are_found() {
    check(&[
        ("rows == 250", True),
        ("ret == -2", True),
        ("small == -128", True),
        ("flags == 0xa5", True),
        ("big == 18446744073709551615", True),
        ("least == -9223372036854775808", True),
        ("net16 == 8080 && net32 == -3 && net64 == 256", True),
        ("ms == 2.5 && half == 0.5", True),
        ("ok", True),
        ("ok == true", True),
        ("ok == false", False),
        ("bytes[0] == 0x7f && bytes[1] == 'E'", True),
        ("array[0] == -1 && array[2] == 3", True),
        ("ports[0] == 80 && ports[1] == 443", True),
        ("nest.x == -5 && nest.inner.depth == 9 && nest.list[1] == 7", True),
        ("nest.inner.name == \"abc\"", True),
        ("last == 77 && end == \"done\"", True),
        ("$tid == 12 && $comm == \"work*\"", True),
    ]);
}

#[test]
fn texts_with_globs() {
    check(&[
        ("table == \"orders_2026\"", True),
        ("table == \"orders*\"", True),
        ("table == \"*_20??\"", True),
        ("table == \"orders\"", False),
        ("table == \"orders_20260\"", False),
        ("table != \"orders*\"", False),
        ("\"orders*\" == table", True),
        ("table != \"x\"", True),
        ("table == again", True),
        ("table != again", False),
        ("table == host", False),
        ("again == \"orders_2026\"", True),
        ("again == \"*rest\"", False),
        ("host == \"caf?\"", True),
        ("host == \"café\"", True),
        (r#"host == "caf\xc3\xa9""#, True),
        (r#"path == "C:\\\*\?""#, True),
        (r#"path == "C:\\*""#, True),
        (r#"path == "C:?\*?""#, True),
        (r#"path == "C:\\\*x""#, False),
        ("empty == \"\"", True),
        ("empty == \"*\"", True),
        ("empty == \"?*\"", False),
    ]);
}

#[test]
fn enumerations_by_label_and_by_number() {
    check(&[
        ("state == 5", True),
        ("state == \"running\"", True),
        ("state == \"runaway\"", True),
        ("state == \"run*\"", True),
        ("state != \"run*\"", False),
        ("state == \"idle\"", False),
        ("\"idle\" != state", True),
        (r#"state == "\*""#, False),
        ("state + 1 > 5", True),
        ("mode == \"bad\" && mode < 0", True),
        ("mode == \"good\"", False),
        ("service == \"https\" && service == 443 && service > 80", True),
        ("service == \"http\"", False),
    ]);
}

#[test]
fn signs_and_sizes_compare_as_numbers_do() {
    check(&[
        ("-1 < 1", True),
        ("ret < rows", True),
        ("least < big", True),
        ("big > least", True),
        ("big > -1", True),
        ("big == -1", False),
        ("least == big", False),
        ("big == 1.8446744073709552e19", False),
        ("big < 1.8446744073709552e19", True),
        ("1.8446744073709552e19 > big", True),
        ("9007199254740993 > 9007199254740992.0", True),
        ("9007199254740993 == 9007199254740992.0", False),
        ("ms > 2 && ms < 3", True),
        ("-0.5 < 0 && 0 < 0.5 && 0 == -0.0", True),
        ("nan == nan || nan < 1 || nan >= 1", False),
        ("nan != nan && nan != 1 && 1 != nan", True),
        ("1e300 > big && -1e300 < least", True),
    ]);
}

#[test]
fn arithmetic_is_exact_or_unknown() {
    check(&[
        ("rows - 251 == -1", True),
        ("ret - rows == -252", True),
        ("big + 1 == 0", Unknown),
        ("big + 1 > big", Unknown),
        ("big * big != 0", Unknown),
        ("least - 1 < 0", Unknown),
        ("-least == 9223372036854775808", True),
        ("big + least == 9223372036854775807", True),
        ("-7 / 2 == -3 && -7 % 2 == -1 && 7 / -2 == -3 && 7 % -2 == 1", True),
        ("least / -1 == 9223372036854775808 && least % -1 == 0", True),
        ("rows / 0", Unknown),
        ("rows % 0 == 0", Unknown),
        ("rows / 0 == 1 || true", True),
        ("1.5 * 2 == 3", True),
        ("1 / 4.0 == 0.25", True),
        ("1 / 0.0 > 0", Unknown),
        ("1 / 4 == 0", True),
    ]);
}

#[test]
fn bits_as_in_twos_complement() {
    check(&[
        ("(flags & 0xf) == 5", True),
        ("flags & 4 == 4", True),
        ("flags & 2 == 2", True),
        ("(flags & 2) == 2", False),
        ("~0 == -1", True),
        ("(~flags & 0xff) == 0x5a", True),
        ("~big == 0", True),
        ("(ret & 0xff) == 0xfe", True),
        ("(least | 1) < 0", True),
        ("(-1 & big) == big", True),
        ("(-1 ^ big) == 0", True),
        ("(5 ^ 1) == 4 && (5 | 2) == 7", True),
        ("1 << 63 == 9223372036854775808", True),
        ("1 << 64 == 0 && 1 << 1000 == 0", True),
        ("big << 4 == 0xfffffffffffffff0", True),
        ("big >> 63 == 1 && big >> 64 == 0", True),
        ("-1 >> 1 == -1 && -5 >> 1 == -3 && -1 >> 1000 == -1", True),
        ("-1 << 63 == least", True),
        ("1 << -1", Unknown),
        ("1 >> -1", Unknown),
    ]);
}

#[test]
fn absent_values_are_unknown() {
    check(&[
        ("missing", Unknown),
        ("missing == 1", Unknown),
        ("missing != 1", Unknown),
        ("missing == \"x\"", Unknown),
        ("!missing", Unknown),
        ("missing && false", False),
        ("false && missing", False),
        ("missing && true", Unknown),
        ("missing || true", True),
        ("true || missing", True),
        ("missing || false", Unknown),
        ("!(missing && false)", True),
        ("missing + 1 > 0", Unknown),
        ("missing == missing", Unknown),
        ("missing == table", Unknown),
        ("nest.missing == 1", Unknown),
        ("none[0] == 0", Unknown),
        ("ports[2] == 0", Unknown),
        ("$prio > 50", Unknown),
        ("rows > 100 && $prio > 50", Unknown),
        ("rows < 100 && $prio > 50", False),
        ("rows > 100 || $prio > 50", True),
        ("$app.pool:user == \"x\"", Unknown),
    ]);
}

#[test]
fn numbers_in_every_form() {
    check(&[
        ("0x1F == 31 && 0b101 == 5 && 0o17 == 15 && 017 == 15 && 1_000 == 1000", True),
        ("4K == 4096 && 1M == 1048576 && 1.5K == 1536 && 2GiB == 2147483648", True),
        ("10ms == 10000000 && 1.5us == 1500 && 1m == 60s && 1h == 60min && 7ns == 7", True),
        (r"'a' == 97 && '\n' == 10 && '\x41' == 65 && '\'' == 39 && '\\' == 92 && '\0' == 0", True),
        ("1e3 == 1000 && 1.5e-1 == 0.15 && 2E2 == 200", True),
        ("true + true == 2", True),
        ("!0 == 1 && !5 == 0 && !!5 == 1 && - -5 == 5 && ~~5 == 5 && !0.0", True),
    ]);
}

#[test]
fn conditions_are_numbers() {
    check(&[
        ("rows", True),
        ("rows - 250", False),
        ("ms", True),
        ("ms - 2.5", False),
        ("1 < 2 == 1", True),
        ("(rows > 100) + (ret > 0) == 1", True),
        ("(rows > 100 && ok) == 1", True),
        ("(5 && 7) == 1", True),
        ("(0 || 7) == 1", True),
        ("1 || 0 && 0", True),
        ("(1 || 0) && 0", False),
    ]);
}

#[test]
fn operands_of_a_later_evaluator_are_deferred() {
    let sample = Sample::new();
    let defers = |text: &str| {
        let schema = EventSchema::without_contexts(&sample.event);
        compile(&parse(text).unwrap(), &schema).unwrap().defers()
    };
    assert!(defers("rows > 1 && $prio > 3"));
    assert!(!defers("missing > 1 && rows > 3"));
}

#[test]
fn context_of_the_application_is_found_among_the_events_fields() {
    let mut sample = Sample::new();
    let ty = || tompion_schema::Type::Integer(tompion_schema::Integer::unsigned(8));
    for (name, value) in [("app_pool_user", 42), ("queue", 7)] {
        let field = tompion_schema::Field { context: true, ..tompion_schema::Field::new(name, ty()) };
        sample.event.fields.push(field);
        sample.fixed.push(value);
    }
    let verdict = |text: &str| {
        let schema = EventSchema::without_contexts(&sample.event);
        let program = compile(&parse(text).unwrap(), &schema).unwrap();
        sample.verdict(&program, &tompion_filter::NoContexts)
    };
    assert_eq!(verdict("$app.pool:user == 42"), True);
    assert_eq!(verdict("$app.\"pool:user\" == 42"), True);
    assert_eq!(verdict("$queue == 7 && queue == 7"), True);
    assert_eq!(verdict("$rows == 250"), Unknown);
}

/// Schema with numbers of invalid sizes.
#[test]
fn numbers_of_impossible_sizes_are_unknown() {
    struct Impossible(u8);
    impl Schema for Impossible {
        fn find(&self, name: &Name) -> Found<'_> {
            let scalar = Scalar { size: self.0, encoding: Encoding::Float, network: name.head() == "big" };
            let place = match name.head() {
                "element" => Place::Element { tail: 0, index: u32::MAX, scalar },
                _ => Place::Fixed { offset: 0, scalar },
            };
            Found { place, kind: Kind::Any }
        }
    }
    for size in (0..=u8::MAX).filter(|size| ![4, 8].contains(size)) {
        let program =
            compile(&parse("x != 0 || big != 0 || element != 0").unwrap(), &Impossible(size)).unwrap();
        let tails = [&[1; 300][..]];
        assert_eq!(program.evaluate(&RecordValues::new(&[1; 300], &tails[..])), Unknown, "{size} bytes");
    }
}

#[test]
fn a_record_that_is_too_short_is_unknown_where_it_ends() {
    let sample = Sample::new();
    let schema = EventSchema::without_contexts(&sample.event);
    let program =
        compile(&parse("rows == 250 && end == \"done\" && array[2] == 3").unwrap(), &schema).unwrap();
    let shape = tompion_filter::Shape::new(&sample.event);
    let payload = sample.payload();
    for length in 0..payload.len() {
        let (fixed, tails) = shape.split(&payload[..length]);
        let record = tompion_filter::RecordValues::new(fixed, &tails);
        assert_eq!(program.evaluate(&record), Unknown, "{length} bytes of {}", payload.len());
    }
}
