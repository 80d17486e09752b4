//! Events against the schema: what the compiler makes of them is what the library expects.
//!
//! The agent of these tests enables every site and keeps, for each thread, what its events were.

use std::{
    cell::RefCell,
    collections::VecDeque,
    ffi::c_int,
    fmt::Write,
    ptr,
    sync::{Arc, Once, atomic::Ordering},
    time::Duration,
};

use tompion_schema::{Event, Field, Integer, Kind, Type, decode, enum_field_count};

use crate::{
    event,
    field::Tail,
    hex, network,
    platform::{Module, hand_over},
    site::Site,
    text,
};

thread_local! {
    static RECORDED: RefCell<Vec<Recorded>> = const { RefCell::new(Vec::new()) };
}

/// An event that was recorded.
struct Recorded {
    event: Event,
    image: VecDeque<u8>,
    tails: VecDeque<Vec<u8>>,
}

unsafe extern "C" fn agent(module: *const Module, verb: u32) -> c_int {
    if verb == 1 {
        // SAFETY: the module of this program, whose sites are all disabled.
        unsafe { (*module).set_functions(append, append_tails) };
        // SAFETY: as above.
        for site in unsafe { (*module).sites() } {
            site.enabled.store(1, Ordering::Release);
        }
    }
    0
}

/// A structure whose size is its second word.
unsafe fn sized<'a>(start: *const u8) -> &'a [u8] {
    // SAFETY: as the caller promises.
    unsafe { std::slice::from_raw_parts(start, start.add(4).cast::<u32>().read_unaligned() as usize) }
}

fn event_of(site: &Site) -> Event {
    // SAFETY: the site is this program's.
    let mut bytes = unsafe { sized(site.description) }.to_vec();
    let enumerations = enum_field_count(&bytes).expect("a description");
    assert_eq!(site.enumerations.is_null(), enumerations == 0);
    for index in 0..enumerations {
        // SAFETY: the site has as many enumerations as its description.
        bytes.extend(unsafe { sized(*site.enumerations.add(index)) });
    }
    decode(&bytes).unwrap_or_else(|error| panic!("{error}"))
}

unsafe extern "C" fn append(site: *const Site, image: *const u8, size: usize) {
    // SAFETY: as promised to the agent.
    unsafe { append_tails(site, image, size, ptr::null(), 0) }
}

unsafe extern "C" fn append_tails(
    site: *const Site,
    image: *const u8,
    size: usize,
    tails: *const Tail,
    count: usize,
) {
    // SAFETY: as promised to the agent, with zeros up to a multiple of 8 bytes.
    let image = unsafe { std::slice::from_raw_parts(image, size.next_multiple_of(8)) };
    assert!(image[size..].iter().all(|&byte| byte == 0), "{image:?}");
    // SAFETY: the site is this program's.
    let event = event_of(unsafe { &*site });
    let tails = (0..count).map(|index| {
        // SAFETY: as promised to the agent.
        unsafe {
            let Tail { data, size } = *tails.add(index);
            std::slice::from_raw_parts(data, size).to_vec()
        }
    });
    let recorded = Recorded { event, image: image[..size].to_vec().into(), tails: tails.collect() };
    RECORDED.with_borrow_mut(|all| all.push(recorded));
}

/// Records that the thread makes while the function runs.
fn recorded(run: impl FnOnce()) -> Vec<Recorded> {
    static ENABLED: Once = Once::new();
    ENABLED.call_once(|| assert!(hand_over(agent)));
    RECORDED.take();
    run();
    RECORDED.take()
}

/// The same as text, one line each: names, then type, name and value of each field.
#[track_caller]
fn check(run: impl FnOnce(), expected: &[&str]) {
    let shown: Vec<String> = recorded(run).into_iter().map(Recorded::shown).collect();
    assert_eq!(shown, expected);
}

impl Recorded {
    fn shown(mut self) -> String {
        let mut text = self.event.full_name();
        for field in std::mem::take(&mut self.event.fields) {
            write!(text, ", {}", self.field(&field)).unwrap();
        }
        assert!(self.image.is_empty() && self.tails.is_empty(), "{text}: more bytes than fields");
        text
    }

    fn field(&mut self, field: &Field) -> String {
        let value = match &field.ty {
            Type::Struct(members) => {
                let members: Vec<_> = members.iter().map(|member| self.field(member)).collect();
                return format!("{} {{{}}}", field.name, members.join(", "));
            }
            Type::Integer(integer) => number(*integer, &self.fixed(integer.size())),
            Type::Float(32) => f32::from_le_bytes(self.fixed(4).try_into().unwrap()).to_string(),
            Type::Float(_) => f64::from_le_bytes(self.fixed(8).try_into().unwrap()).to_string(),
            Type::Bool => self.fixed(1)[0].to_string(),
            Type::String | Type::TextSequence => format!("{:?}", String::from_utf8_lossy(&self.counted(1))),
            Type::Bytes => format!("{:02x?}", self.counted(1)),
            Type::TextArray(_) => format!("{:?}", String::from_utf8_lossy(&self.tails.pop_front().unwrap())),
            Type::Sequence(element) => numbers(*element, &self.counted(element.size())),
            Type::Array(element, count) => {
                let bytes = self.tails.pop_front().expect("a tail");
                assert_eq!(bytes.len(), element.size() * *count as usize);
                numbers(*element, &bytes)
            }
            Type::Enum(integer, labels) => {
                let labels: Vec<_> =
                    labels.labels.iter().map(|l| format!("{} {}..{}", l.name, l.low, l.high)).collect();
                format!("{} of {}", number(*integer, &self.fixed(integer.size())), labels.join(" "))
            }
        };
        format!("{} {} = {value}", field.ty, field.name)
    }

    fn fixed(&mut self, size: usize) -> Vec<u8> {
        self.image.drain(..size).collect()
    }

    fn counted(&mut self, size: usize) -> Vec<u8> {
        let count = u32::from_le_bytes(self.fixed(4).try_into().unwrap());
        let bytes = self.tails.pop_front().expect("a tail");
        assert_eq!(bytes.len(), size * count as usize);
        bytes
    }
}

fn number(integer: Integer, bytes: &[u8]) -> String {
    let mut bytes = bytes.to_vec();
    if integer.network {
        bytes.reverse();
    }
    let negative = integer.signed && bytes.last().is_some_and(|byte| byte & 0x80 != 0);
    let fill = if negative { 0xff } else { 0 };
    bytes.resize(16, fill);
    let value = i128::from_le_bytes(bytes.try_into().unwrap());
    if integer.hex { format!("{value:#x}") } else { value.to_string() }
}

fn numbers(element: Integer, bytes: &[u8]) -> String {
    let values: Vec<_> = bytes.chunks(element.size()).map(|bytes| number(element, bytes)).collect();
    format!("[{}]", values.join(" "))
}

static PLACE: u8 = 0;

#[test]
fn integers_are_what_their_types_are() {
    check(
        || {
            event!("t", "signed", a = i8::MIN, b = i16::MIN, c = i32::MIN, d = i64::MIN, e = -1isize);
            event!("t", "unsigned", a = u8::MAX, b = u16::MAX, c = u32::MAX, d = u64::MAX, e = 1usize);
            event!("t", "inferred", a = 1, b = 2.5);
        },
        &[
            "t:signed, i8 a = -128, i16 b = -32768, i32 c = -2147483648, i64 d = -9223372036854775808, i64 e = -1",
            "t:unsigned, u8 a = 255, u16 b = 65535, u32 c = 4294967295, u64 d = 18446744073709551615, u64 e = 1",
            "t:inferred, i32 a = 1, f64 b = 2.5",
        ],
    );
}

#[test]
fn other_numbers_keep_their_bits() {
    let place = 0xbeef as *const u8;
    let count = std::num::NonZero::new(7u16).unwrap();
    check(
        || {
            event!("t", "floats", a = 1.5f32, b = -0.0, c = f64::INFINITY, d = true, e = false);
            event!("t", "shown", place, count, mask = hex(0xff_u8), low = hex(-1i16));
            event!(
                "t",
                "network",
                port = network(80u16.to_be()),
                mask = hex(network(0x7f00_0001_u32.to_be()))
            );
        },
        &[
            "t:floats, f32 a = 1.5, f64 b = -0, f64 c = inf, bool d = 1, bool e = 0",
            "t:shown, x64 place = 0xbeef, u16 count = 7, x8 mask = 0xff, x16 low = 0xffff",
            "t:network, network u16 port = 80, network x32 mask = 0x7f000001",
        ],
    );
}

#[test]
fn text_is_text_whatever_owns_it() {
    let (owned, shared) = ("käse".to_owned(), Arc::<str>::from("shared"));
    let path = std::path::PathBuf::from("/tmp");
    check(
        || {
            event!("t", "text", a = "", owned, c = &&owned, d = owned.as_str(), e = 'ü');
            event!("t", "others", shared, path, c = c"c", boxed = Box::new(5), comm = text(*b"ab\0"));
            event!(
                "t",
                "temporary",
                a = format!("{}", 1 + 1),
                b = &format!("{}", 3)[..],
                c = text(&b"xyz"[..])
            );
        },
        &[
            r#"t:text, str a = "", str owned = "käse", str c = "käse", str d = "käse", str e = "ü""#,
            r#"t:others, str shared = "shared", str path = "/tmp", str c = "c", i32 boxed = 5, text array 3 comm = "ab\0""#,
            r#"t:temporary, str a = "2", str b = "3", text sequence c = "xyz""#,
        ],
    );
}

#[test]
fn elements_are_arrays_sequences_and_bytes() {
    let (vector, none) = (vec![1u8, 2], Vec::<i64>::new());
    check(
        || {
            event!("t", "slices", vector, none, b = &[1i16, -1][..], c = hex(&[255u32][..]));
            event!("t", "arrays", a = [1u8, 2, 3], b = &[-1isize], c = hex([16u16, 17]), d = [0u64; 0]);
            event!("t", "network", a = network([256u16]), b = network(hex(&vector)));
        },
        &[
            "t:slices, bytes vector = [01, 02], sequence i64 none = [], sequence i16 b = [1 -1], sequence x32 c = [0xff]",
            "t:arrays, array u8 3 a = [1 2 3], array i64 1 b = [-1], array x16 2 c = [0x10 0x11], array u64 0 d = []",
            "t:network, array network u16 1 a = [1], sequence network x8 b = [0x1 0x2]",
        ],
    );
}

#[test]
fn structures_stand_in_each_other() {
    let (x, name) = (1u8, "n");
    check(
        || {
            event!(
                "t",
                "nested",
                before = 1u8,
                point = { x, y = 2u16, inside = { name, list = &[7u32][..] }, },
                after = 'z'
            );
        },
        &[
            r#"t:nested, u8 before = 1, point {u8 x = 1, u16 y = 2, inside {str name = "n", sequence u32 list = [7]}}, str after = "z""#,
        ],
    );
}

const LOW: i64 = -7;

crate::enumeration! {
    /// With all kinds of labels.
    pub enum State: i16 { idle = 0, r#type = (1 + 1), failed = -9..=-1, other = (LOW)..=(LOW + 1) }
}
crate::enumeration! { enum Large: u64 { all = 1..=0xffff_ffff_ffff_ffff } }

#[derive(Clone, Copy)]
enum Outcome {
    Done,
    Refused = 7,
}
crate::enumeration!(for Outcome: u8 { Done, Refused });

#[test]
fn enumerations_have_their_labels() {
    check(
        || {
            event!("t", "enums", a = State(-3), p = { b = Outcome::Refused, c = 1u8 }, d = &Outcome::Done);
            event!("t", "large", a = Large(u64::MAX));
        },
        &[
            "t:enums, enum i16 State a = -3 of idle 0..0 type 2..2 failed -9..-1 other -7..-6, \
             p {enum u8 Outcome b = 7 of Done 0..0 Refused 7..7, u8 c = 1}, \
             enum u8 Outcome d = 0 of Done 0..0 Refused 7..7",
            "t:large, enum u64 Large a = 18446744073709551615 of all 1..18446744073709551615",
        ],
    );
}

#[test]
fn descriptions_of_any_size_are_whole() {
    let long = "a_name_that_is_as_long_as_names_seldom_are_but_might_be_if_they_were_generated_by_a_tool";
    let found = recorded(|| {
        event!(
            "a_provider_with_a_name_that_takes_some_room_too_so_that_it_all_takes_more_than_the_small_size",
            "a_name_that_is_as_long_as_names_seldom_are_but_might_be_if_they_were_generated_by_a_tool",
            long,
            a_field_of_a_name_that_is_long_enough_to_make_the_description_one_of_medium_size = 1
        );
        many_fields();
    });
    assert_eq!(found[0].event.name, long);
    assert_eq!(found[0].event.fields.len(), 2);
    assert_eq!(found[1].event.fields.len(), 64);
    assert_eq!(found[1].event.fields[63].name, "f64");
    assert_eq!(found[1].image[63], Outcome::Refused as u8);
}

#[rustfmt::skip]
fn many_fields() {
    event!(
        "t", "many",
        f1 = 1u8, f2 = 2u8, f3 = 3u8, f4 = 4u8, f5 = 5u8, f6 = 6u8, f7 = 7u8, f8 = 8u8, f9 = 9u8, f10 = 10u8,
        f11 = 11u8, f12 = 12u8, f13 = 13u8, f14 = 14u8, f15 = 15u8, f16 = 16u8, f17 = 17u8, f18 = 18u8,
        f19 = 19u8, f20 = 20u8, f21 = 21u8, f22 = 22u8, f23 = 23u8, f24 = 24u8, f25 = 25u8, f26 = 26u8,
        f27 = 27u8, f28 = 28u8, f29 = 29u8, f30 = 30u8, f31 = 31u8, f32 = 32u8, f33 = 33u8, f34 = 34u8,
        f35 = 35u8, f36 = 36u8, f37 = 37u8, f38 = 38u8, f39 = 39u8, f40 = 40u8, f41 = 41u8, f42 = 42u8,
        f43 = 43u8, f44 = 44u8, f45 = 45u8, f46 = 46u8, f47 = 47u8, f48 = 48u8, f49 = 49u8, f50 = 50u8,
        f51 = 51u8, f52 = 52u8, f53 = 53u8, f54 = 54u8, f55 = 55u8, f56 = 56u8, f57 = 57u8, f58 = 58u8,
        f59 = 59u8, f60 = 60u8, f61 = 61u8, f62 = 62u8, f63 = 63u8, f64 = Outcome::Refused
    );
}

#[test]
fn each_instance_of_a_generic_function_describes_its_own_types() {
    fn generic<T: crate::Field + ?Sized>(value: &T) {
        event!("t", "generic", value);
    }
    check(
        || {
            generic(&1u8);
            generic("text");
            generic(&[1u32][..]);
            let closure = || event!("t", "closure");
            closure();
        },
        &[
            "t:generic, u8 value = 1",
            r#"t:generic, str value = "text""#,
            "t:generic, sequence u32 value = [1]",
            "t:closure",
        ],
    );
}

#[test]
fn attributes_say_what_an_event_is() {
    const PROVIDER: &str = concat!("t", ".x");
    let found = recorded(|| {
        event!(level: Warning, PROVIDER, "level");
        event!(init, level: Emergency, "t", "both",);
        crate::counter!(level: Info, "t", "depth", 3u8);
        crate::counter!("t", "temperature", &21.5f32);
        crate::flow!("t", "order", 17);
        crate::begin!(init, "t", "work", number = 1u8);
        crate::end!("t", "work", result = 2u8);
    });
    let facts: Vec<_> = found
        .iter()
        .map(|found| {
            let event = &found.event;
            format!("{} {} {} {}", event.full_name(), event.kind.name(), event.level.name(), event.init)
        })
        .collect();
    assert_eq!(
        facts,
        [
            "t.x:level instant warning false",
            "t:both instant emerg true",
            "t:depth counter info false",
            "t:temperature counter debug_line false",
            "t:order flow debug_line false",
            "t:work_begin begin debug_line true",
            "t:work_end end debug_line false",
        ]
    );
    let values: Vec<_> = found.into_iter().map(Recorded::shown).collect();
    assert_eq!(
        values[2..],
        [
            "t:depth, u64 value = 3",
            "t:temperature, f64 value = 21.5",
            "t:order, x64 id = 0x11",
            "t:work_begin, u8 number = 1",
            "t:work_end, u8 result = 2",
        ]
    );
}

#[test]
fn spans_end_whichever_way_a_scope_is_left() {
    fn work(fail: bool) -> Option<()> {
        let _span = crate::span!("t", "work", fail);
        let _job = crate::job!("t", "cycle", deadline: Duration::from_micros(7), number = 1u8);
        if fail {
            None?
        }
        panic!("as expected");
    }
    check(
        || {
            assert_eq!(work(true), None);
            std::panic::catch_unwind(|| work(false)).unwrap_err();
            crate::job!("t", "cycle", deadline: 5).end();
            assert!(!crate::Span::none().is_recorded());
        },
        &[
            "t:work_begin, bool fail = 1",
            "t:cycle_begin, u64 deadline_ns = 7000, u8 number = 1",
            "t:cycle_end",
            "t:work_end",
            "t:work_begin, bool fail = 0",
            "t:cycle_begin, u64 deadline_ns = 7000, u8 number = 1",
            "t:cycle_end",
            "t:work_end",
            "t:cycle_begin, u64 deadline_ns = 5",
            "t:cycle_end",
        ],
    );
}

#[test]
fn marks_have_formats_as_printf_writes_them() {
    let found = recorded(|| {
        crate::mark!("none", "100 % {{}}");
        crate::mark!("some", "rows {} table {:?}, {:.1} %", 3u8, "orders", 99.5);
        crate::mark!("flags", "{:#06x}|{:<8}|{:8}|{:>8}|{:+}|{:08.3}", 1, 2u64, "a", "b", -3i64, 0.5);
        crate::mark!(level: Info, "order", "{1} {0:e} {} {1:p}", 1.0, &raw const PLACE);
        crate::mark!("usual", "{} {} {} {}", 0.1f32, 0.1, hex(5u16), Outcome::Done);
    });
    let formats: Vec<_> = found.iter().map(|found| found.event.format.as_deref().unwrap()).collect();
    assert_eq!(
        formats,
        [
            "100 %% {}",
            "rows %u table %s, %.1f %%",
            "%#06x|%-8lu|%-8s|%8s|%+ld|%08.3f",
            "%2$#lx %1$e %.15g %2$p",
            "%.7g %.15g %#x %d",
        ]
    );
    assert!(found.iter().all(|found| found.event.kind == Kind::Mark && found.event.provider == "mark"));
    assert_eq!(found[1].event.fields[0].name, "rows");
    assert_eq!(found[1].event.fields[1].name, "table");
}

#[test]
fn values_are_computed_once_and_only_when_recorded() {
    let mut count = 0;
    let mut next = || {
        count += 1;
        count
    };
    check(|| event!("t", "once", a = next(), b = next()), &["t:once, i32 a = 1, i32 b = 2"]);
    assert_eq!(count, 2);
}

#[test]
fn values_may_leave_the_function() {
    fn leave(value: Option<u8>) -> Option<()> {
        event!("t", "left", value = value?);
        Some(())
    }
    check(|| assert_eq!((leave(None), leave(Some(1))), (None, Some(()))), &["t:left, u8 value = 1"]);
}

#[test]
fn a_site_that_asks_has_no_fields() {
    check(|| assert!(crate::enabled!("t", "asked")), &[]);
}

#[test]
fn events_described_at_run_time_are_as_the_others() {
    use crate::dynamic::{Event, Kind, MAX_TEXT, Outline, Values};

    let fill = |values: &mut Values| {
        values.signed(5, -1);
        values.unsigned(1, u64::MAX);
        values.boolean(2, true);
        values.text(3, "käse");
        values.formatted(4, format_args!("{}-{:?}", 1, "two"));
        values.float(0, 2.5);
        values.bytes(6, &[1, 2]);
    };
    let names = ["f", "a.b", "a b", "r#type", "7", "", "ü"];
    let outline = Outline {
        kind: Kind::Begin,
        level: crate::Level::Info,
        provider: "server::db\n",
        name: "query\u{7}",
    };
    let mut values = Values::new();
    let expected = "server.db_:query__begin, i64 _ = -1, u64 a_b = 18446744073709551615, bool a_b_2 = 1, \
                    str type = \"käse\", str _7 = \"1-\\\"two\\\"\", f64 f = 2.5, bytes __2 = [01, 02]";
    check(
        || {
            fill(&mut values);
            let event = Event::describe(&outline, &values, |key| names[usize::from(key)]);
            let event: &'static Event = Box::leak(Box::new(event));
            assert!(event.is_enabled() && event.record(&values));
            assert!(event.keep(&values).expect("values of the event").begin() != 0);
            let mut types = Values::only_types();
            fill(&mut types);
            assert!(event.takes(&types) && !event.record(&types) && event.keep(&types).is_none());
            types.boolean(9, false);
            assert!(!event.takes(&types) && !event.record(&Values::new()));
        },
        &[expected, expected],
    );
    check(
        || {
            let mut values = Values::new();
            values.text(0, &"x".repeat(MAX_TEXT - 1));
            values.text(1, "ü");
            values.formatted(2, format_args!("{}{}", "y", "more"));
            values.bytes(3, &[1]);
            (0..100).for_each(|_| values.unsigned(4, 7));
            let event = Event::describe(&outline, &values, |_| "n");
            assert_eq!(event.fields(), crate::dynamic::MAX_FIELDS);
            let found = recorded(|| assert!(event.record(&values)));
            assert_eq!(found[0].tails.iter().map(Vec::len).collect::<Vec<_>>(), [MAX_TEXT - 1, 0, 1, 0]);
            assert_eq!(found[0].image.len(), 4 * 4 + 60 * 8);
        },
        &[],
    );
}
