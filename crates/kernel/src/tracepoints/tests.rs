use tompion_schema::{Integer, Type};

use super::*;

const SAMPLE: &str = "name: sample\nID: 77\nformat:\n\
    \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
    \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
    \tfield:const char * address;\toffset:8;\tsize:8;\tsigned:0;\n\
    \tfield:__data_loc char[] name;\toffset:16;\tsize:4;\tsigned:0;\n\
    \tfield:char comm[16];\toffset:20;\tsize:16;\tsigned:0;\n\
    \tfield:__u8 saddr[4];\toffset:36;\tsize:4;\tsigned:0;\n\
    \tfield:unsigned long args[2];\toffset:40;\tsize:16;\tsigned:0;\n\
    \tfield:enum why why;\toffset:56;\tsize:4;\tsigned:0;\n\
    \tfield:bool good;\toffset:60;\tsize:1;\tsigned:0;\n\
    \tfield:int pid;\toffset:64;\tsize:4;\tsigned:1;\n\
    \tfield:__rel_loc u64[] list;\toffset:68;\tsize:4;\tsigned:0;\n\
    \tfield:u64 mask;\toffset:72;\tsize:8;\tsigned:0;\n\
    \tfield:struct pair pair;\toffset:80;\tsize:16;\tsigned:0;\n\n\
    print fmt: \"%s %s mask=%llx\", __get_str(name), \
    __print_symbolic(REC->why, { 0, \"no reason\" }, { 0xffffffff, \"worst\" }, { NAME, \"unknown\" }), REC->mask\n";

fn sample() -> Tracepoint {
    let listed = Listed { system: "sched".into(), tracepoint: "sample".into(), name: "sample".into() };
    let rename = |field: &str| names::field_name("sched", field);
    Tracepoint { format: Format::parse(SAMPLE, "sample", rename).unwrap(), listed }
}

/// A record of the sample, without the bytes that all records have.
fn record() -> Vec<u8> {
    let mut bytes = 0x1122_3344_5566u64.to_le_bytes().to_vec();
    bytes.extend((6u32 << 16 | 96).to_le_bytes());
    bytes.extend(b"worker\0\0\0\0\0\0\0\0\0\0");
    bytes.extend([10, 0, 0, 1]);
    bytes.extend([7u64, 8].map(u64::to_le_bytes).concat());
    bytes.extend(u32::MAX.to_le_bytes());
    bytes.extend([1, 0, 0, 0]);
    bytes.extend((-5i32).to_le_bytes());
    // From behind the word, at 72, to 104.
    bytes.extend((16u32 << 16 | 32).to_le_bytes());
    bytes.extend(0xffu64.to_le_bytes());
    bytes.extend([3; 16]);
    bytes.extend(b"hello\0\0\0");
    bytes.extend([1u64, 2].map(u64::to_le_bytes).concat());
    bytes
}

#[test]
fn a_format_says_what_fields_are() {
    let sample = sample();
    let shown: Vec<String> =
        sample.event().fields.iter().map(|field| format!("{} {}", field.ty, field.name)).collect();
    let expected = [
        "x64 address",
        "str name",
        "text array 16 comm",
        "array x8 4 saddr",
        "array u64 2 args",
        "enum u32 why",
        "bool good",
        "i32 tid",
        "sequence u64 list",
        "x64 mask",
        "array x8 16 pair",
    ];
    assert_eq!(shown, expected);
    let Type::Enum(integer, enumeration) = &sample.event().fields[5].ty else { panic!("{shown:?}") };
    assert_eq!(*integer, Integer::unsigned(32));
    let labels: Vec<_> = enumeration.labels.iter().map(|label| (label.low, label.name.as_str())).collect();
    assert_eq!(labels, [(0, "no reason"), (0xffff_ffff, "worst")]);
    assert_eq!((sample.format.id, sample.format.extent()), (77, (96, Some((68, true)))));
}

#[test]
fn a_record_becomes_a_payload() {
    let sample = sample();
    let mut payload = Vec::new();
    sample.payload(&record(), &mut payload).unwrap();
    let fixed = sample.event().fixed_size();
    assert_eq!(fixed, 8 + 4 + 4 + 1 + 4 + 4 + 8);
    assert_eq!(payload[..12], [&0x1122_3344_5566u64.to_le_bytes()[..], &6u32.to_le_bytes()].concat());
    let tails = [&b"hello\0worker"[..], &[0; 10], &[10, 0, 0, 1]].concat();
    assert_eq!(payload[fixed..fixed + tails.len()], tails);
    assert!(payload.ends_with(&[1u64, 2].map(u64::to_le_bytes).concat()) || payload.ends_with(&[3; 16]));
}

#[test]
fn records_that_end_too_early_are_refused() {
    let (sample, record) = (sample(), record());
    let mut payload = Vec::new();
    for length in 0..record.len() {
        assert_eq!(sample.payload(&record[..length], &mut payload), Err(Short), "{length}");
    }
    let mut lies = record.clone();
    lies[10] = 0xff;
    assert_eq!(sample.payload(&lies, &mut payload), Err(Short));
    // What the kernel never assigned is empty.
    lies[8..12].fill(0);
    assert_eq!(sample.payload(&lies, &mut payload), Ok(()));
}

#[test]
fn formats_that_are_none_are_refused() {
    let parse = |text: &str| Format::parse(text, "x", str::to_owned).unwrap_err();
    assert_eq!(parse(""), FormatError::Missing("ID:"));
    assert_eq!(parse("ID: x\nprint fmt: \"\""), FormatError::Missing("ID: NUMBER"));
    assert_eq!(parse("ID: 1\n"), FormatError::Missing("print fmt:"));
    let with = |field: &str| parse(&format!("ID: 1\n\tfield:{field}\n\nprint fmt: \"\"\n"));
    assert_eq!(
        with("int;\toffset:8;\tsize:4;\tsigned:1;"),
        FormatError::Field("int;\toffset:8;\tsize:4;\tsigned:1;".into())
    );
    assert_eq!(with("int a;\toffset:4;\tsize:4;\tsigned:1;"), FormatError::Place("a".into(), 4, 4));
    assert_eq!(with("int a;\toffset:65534;\tsize:4;\tsigned:1;"), FormatError::Place("a".into(), 65534, 4));
    assert_eq!(
        with("__data_loc char[] a;\toffset:8;\tsize:8;\tsigned:1;"),
        FormatError::Place("a".into(), 8, 8)
    );
    for end in 0..SAMPLE.len() {
        let _ = Format::parse(&SAMPLE[..end], "x", str::to_owned);
    }
}

/// All of the running kernel's, where they can be read.
#[test]
fn every_format_of_this_kernel_is_read() {
    let Some(folder) = events_folder() else {
        eprintln!("SKIPPED: tracefs can't be read here");
        return;
    };
    let (mut count, mut enumerations, mut unnamed) = (0, 0, Vec::new());
    for system in folders_in(folder) {
        for name in folders_in(&folder.join(&system)) {
            let text = fs::read_to_string(folder.join(&system).join(&name).join("format")).unwrap();
            let format = Format::parse(&text, &name, |field| names::field_name(&system, field))
                .unwrap_or_else(|error| panic!("{system}:{name}: {error}"));
            count += 1;
            let declared = text.lines().filter(|line| line.contains("field:") && !line.contains("size:0;"));
            let own = declared.filter(|line| !line.contains(" common_")).count();
            assert_eq!(format.event.fields.len(), own, "{system}:{name}");
            let enums = format.event.fields.iter().filter(|field| matches!(field.ty, Type::Enum(..)));
            enumerations += enums.count();
            let labelled = text.contains("__print_symbolic(REC->") || text.contains("__print_flags(REC->");
            if labelled && !format.event.fields.iter().any(|field| matches!(field.ty, Type::Enum(..))) {
                unnamed.push(format!("{system}:{name}"));
            }
        }
    }
    println!("{count} formats, {enumerations} enumerations, none in {unnamed:?}");
    assert!(count > 100, "{count}");
    let catalog = Catalog::of_this_kernel();
    assert!(catalog.listed().iter().all(|listed| catalog.read(listed).is_ok()));
    let names: std::collections::BTreeSet<&str> =
        catalog.listed().iter().map(|listed| listed.name.as_str()).collect();
    assert_eq!(names.len(), catalog.listed().len(), "names tell events apart");
}
