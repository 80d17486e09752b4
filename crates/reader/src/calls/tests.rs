use std::fs;

use tompion_testing::TestDir;

use super::*;

#[test]
fn ends_are_described_as_parents_get_them() {
    for (status, expected) in [
        (None, "exited"),
        (Some(-1), "exited"),
        (Some(0), "exited with 0"),
        (Some(7 << 8), "exited with 7"),
        (Some(9), "killed by SIGKILL"),
        (Some(0x80 | 11), "killed by SIGSEGV (core dumped)"),
        (Some(0x7f), "killed by signal 127"),
    ] {
        assert_eq!(describe_end(status), expected, "{status:?}");
    }
}

const METADATA: &str = r#"/* CTF 1.8 */
typealias integer { size = 8; } := u8;
typealias integer { size = 64; signed = true; } := i64;
typealias integer { size = 64; base = x; } := x64;
trace { major = 1; minor = 8; byte_order = le; packet.header := struct { u8 stream_id; }; };
env { domain = "DOMAIN"; };
clock { name = c; freq = 1000000000; offset = 0; };
typealias integer { size = 64; map = clock.c.value; } := time;
typealias integer { size = 64; } := u64;
stream { id = 0; packet.context := struct { time timestamp_begin; time timestamp_end; u64 content_size;
    u64 packet_size; u64 events_discarded; u64 packet_seq_num; };
    event.header := struct { u8 id; time timestamp; }; event.context := struct { i64 tid; i64 pid; }; };
event { id = 0; stream_id = 0; name = "syscall_entry_openat"; fields := struct {
    i64 dfd; string filename; x64 flags; i64 mode; }; };
event { id = 1; stream_id = 0; name = "syscall_exit_openat"; fields := struct { i64 ret; }; };
event { id = 2; stream_id = 0; name = "syscall_entry_read"; fields := struct { i64 fd; x64 buf; i64 count; }; };
event { id = 3; stream_id = 0; name = "syscall_exit_read"; fields := struct { i64 ret; }; };
event { id = 4; stream_id = 0; name = "mark:progress"; model.emf.uri = "tompion:mark?format=%25d%20of%20%25d";
    fields := struct { i64 arg1; i64 of; }; };
event { id = 5; stream_id = 0; name = "syscall_entry_connect"; fields := struct {
    i64 fd; x64 uservaddr; i64 addrlen; i64 family; i64 dport; u8 v4addr[4]; u8 v6addr[16]; }; };
event { id = 6; stream_id = 0; name = "syscall_exit_connect"; fields := struct { i64 ret; }; };
event { id = 7; stream_id = 0; name = "sched_process_fork"; fields := struct {
    string child_comm; i64 child_tid; }; };
event { id = 9; stream_id = 0; name = "syscall_entry_execve"; fields := struct { string filename; }; };
event { id = 10; stream_id = 0; name = "syscall_exit_execve"; fields := struct { i64 ret; string filename; }; };
event { id = 11; stream_id = 0; name = "syscall_entry_prctl"; fields := struct { i64 option; x64 arg2; }; };
event { id = 12; stream_id = 0; name = "syscall_exit_prctl"; fields := struct { i64 ret; }; };
event { id = 13; stream_id = 0; name = "task_rename"; fields := struct { i64 pid; string newcomm; }; };
event { id = 14; stream_id = 0; name = "sched_process_exec"; fields := struct { i64 tid; i64 old_tid; }; };
event { id = 15; stream_id = 0; name = "syscall_entry_umask"; fields := struct { i64 mask; }; };
event { id = 16; stream_id = 0; name = "syscall_exit_umask"; fields := struct { i64 ret; }; };
event { id = 8; stream_id = 0; name = "syscall_entry_exit_group"; fields := struct { i64 error_code; }; };
"#;

/// Part of an event's payload.
enum Part {
    Number(i64),
    Bytes(&'static [u8]),
}
use Part::{Bytes, Number};

struct Made {
    time: u64,
    class: u8,
    tid: i64,
    payload: Vec<Part>,
}

fn made(time: u64, class: u8, tid: i64, payload: Vec<Part>) -> Made {
    Made { time, class, tid, payload }
}

fn packet(sequence: u64, events: &[Made]) -> Vec<u8> {
    let mut content = Vec::new();
    for Made { time, class, tid, payload } in events {
        content.push(*class);
        content.extend(time.to_le_bytes());
        content.extend(tid.to_le_bytes());
        content.extend(7i64.to_le_bytes());
        for part in payload {
            match part {
                Number(number) => content.extend(number.to_le_bytes()),
                Bytes(bytes) => content.extend_from_slice(bytes),
            }
        }
    }
    let size = (1 + 6 * 8 + content.len() as u64) * 8;
    let (begin, end) = (events[0].time, events[events.len() - 1].time);
    let mut bytes = vec![0];
    for number in [begin, end, size, size, 0, sequence] {
        bytes.extend(number.to_le_bytes());
    }
    bytes.extend(content);
    bytes
}

fn printed(name: &str, packets: &[Vec<u8>]) -> String {
    printed_of(name, "kernel", packets)
}

fn printed_of(name: &str, domain: &str, packets: &[Vec<u8>]) -> String {
    let path = TestDir::new(&format!("calls-{name}"));
    fs::write(path.join("metadata"), METADATA.replace("DOMAIN", domain)).unwrap();
    fs::write(path.join("stream"), packets.concat()).unwrap();
    let mut traces = crate::open(&[path.path().clone()]).unwrap();
    let time = TimeFormat { clock: crate::text::ClockFormat::Seconds, ..TimeFormat::default() };
    let mut output = Vec::new();
    let lines = print(&mut traces, &time, &mut output).unwrap();
    let output = String::from_utf8(output).unwrap();
    assert_eq!(lines, output.lines().count() as u64);
    output
}

fn read(time: u64, tid: i64) -> Made {
    made(time, 2, tid, vec![Number(3), Number(0x7f00), Number(4096)])
}

fn result(time: u64, class: u8, tid: i64, result: i64) -> Made {
    made(time, class, tid, vec![Number(result)])
}

/// The process is 7, as the context of all these events says.
#[test]
fn a_thread_that_takes_its_leaders_id_returns_from_its_own_call() {
    let events = [
        read(100, 7),
        made(110, 9, 8, vec![Bytes(b"/bin/x\0")]),
        made(150, 14, 7, vec![Number(7), Number(8)]),
        made(160, 10, 7, vec![Number(0), Bytes(b"/bin/x\0")]),
        made(200, 15, 7, vec![Number(0o22)]),
        result(210, 16, 7, 0o7),
    ];
    let expected = "\
[0.000000100] 7: read(3, 0x7f00, 4096) = ? <unfinished>
[0.000000110] 7/8: execve(\"/bin/x\", filename=\"/bin/x\") = 0 <0.000000050>
[0.000000200] 7 x: umask(0022) = 0007 <0.000000010>
";
    assert_eq!(printed("leader", &[packet(0, &events)]), expected);
}

#[test]
fn a_call_is_a_line() {
    let open =
        |time, name, flags| made(time, 0, 7, vec![Number(-100), Bytes(name), Number(flags), Number(0o644)]);
    let events = [
        made(100, 7, 7, vec![Bytes(b"worker\0"), Number(8)]),
        open(200, b"/etc/a\0", 0o2_000_000),
        result(210, 1, 7, -2),
        open(300, b"b\x1b[2J\"\0", 0o101),
        read(350, 8),
        result(1_000_000_300, 1, 7, 3),
        result(1_000_000_400, 3, 8, -512),
        made(1_000_000_500, 8, 7, vec![Number(3)]),
    ];
    let expected = "\
[0.000000200] 7: openat(AT_FDCWD, \"/etc/a\", O_RDONLY|O_CLOEXEC) = -1 ENOENT <0.000000010>
[0.000000300] 7: openat(AT_FDCWD, \"b\\e[2J\\\"\", O_WRONLY|O_CREAT, 0644) = 3 <1.000000000>
[0.000000350] 7/8 worker: read(3, 0x7f00, 4096) = ? ERESTARTSYS <1.000000050>
[1.000000500] 7: exit_group(3) = ?
";
    assert_eq!(printed("lines", &[packet(0, &events)]), expected);
}

#[test]
fn a_program_has_the_name_of_its_file() {
    let execute = |time, name| made(time, 9, 7, vec![Bytes(name)]);
    let executed = |time, result, name| made(time, 10, 7, vec![Number(result), Bytes(name)]);
    let events = [
        execute(100, b"/bin/absent\0"),
        executed(110, -2, b"\0"),
        read(120, 7),
        result(130, 3, 7, 0),
        execute(200, b"/bin/a_name_of_many_letters\0"),
        executed(210, 0, b"\0"),
        read(220, 7),
        result(230, 3, 7, 0),
        // A path that was not in memory at the entry.
        execute(300, b"<unreadable>\0"),
        executed(310, -2, b"/bin/late\0"),
    ];
    let text = printed("names", &[packet(0, &events)]);
    let lines: Vec<&str> = text.lines().filter_map(|line| line.split("] ").nth(1)).collect();
    assert_eq!(lines[1], "7: read(3, 0x7f00, 4096) = 0 <0.000000010>");
    assert_eq!(lines[3], "7 a_name_of_many_: read(3, 0x7f00, 4096) = 0 <0.000000010>");
    assert!(lines[4].contains("execve(\"/bin/late\") = -1 ENOENT"), "{text}");
}

#[test]
fn a_thread_that_renames_itself_has_the_name_that_was_recorded() {
    let fork = || made(100, 7, 1, vec![Bytes(b"first\0"), Number(7)]);
    let rename = |time| made(time, 11, 7, vec![Number(PR_SET_NAME), Number(0x7f00)]);
    let renamed = |time| made(time, 13, 7, vec![Number(7), Bytes(b"second\0")]);
    let then = || [result(230, 12, 7, 0), read(240, 7), result(250, 3, 7, 0)];
    let last = |name: &str, events: Vec<Made>| {
        printed(name, &[packet(0, &events)]).lines().last().unwrap().to_owned()
    };
    // The call has an address, so only the event tells the name.
    let unknown: Vec<_> = [fork(), rename(200)].into_iter().chain(then()).collect();
    let expected = "[0.000000240] 7: read(3, 0x7f00, 4096) = 0 <0.000000010>";
    assert_eq!(last("unnamed", unknown), expected);
    let known: Vec<_> = [fork(), rename(200), renamed(210)].into_iter().chain(then()).collect();
    let expected = "[0.000000240] 7 second: read(3, 0x7f00, 4096) = 0 <0.000000010>";
    assert_eq!(last("renamed", known), expected);
}

#[test]
fn missing_events_are_marked() {
    let before = [result(100, 3, 7, 5), read(200, 7), read(250, 8), read(300, 9), result(310, 3, 9, 1)];
    let behind = [result(900, 3, 7, 6), result(950, 1, 9, 4), read(960, 9)];
    let expected = "\
[0.000000100] 7: read(<entry not seen>) = 5
[0.000000300] 7/9: read(3, 0x7f00, 4096) = 1 <0.000000010>
[0.000000200] 7: read(3, 0x7f00, 4096) = ? <unfinished, events were lost>
[0.000000250] 7/8: read(3, 0x7f00, 4096) = ? <unfinished, events were lost>
[0.000000900] 7: read(<entry not seen>) = 6
[0.000000950] 7/9: openat(<entry not seen>) = 4
[0.000000960] 7/9: read(3, 0x7f00, 4096) = ? <unfinished>
";
    assert_eq!(printed("lost", &[packet(0, &before), packet(2, &behind)]), expected);
}

#[test]
fn only_streams_with_overwritten_history_cut_calls() {
    let path = TestDir::new("calls-overwritten");
    fs::write(path.join("metadata"), METADATA.replace("DOMAIN", "kernel")).unwrap();
    let manifest = r#"{"schema": 1, "sources": [{"path": ".", "pid": 1, "overwritten": 9}]}"#;
    fs::write(path.join("tompion.json"), manifest).unwrap();
    let call = [read(200, 7), result(400, 3, 7, 5)];
    let print_with_first = |sequence| {
        fs::write(path.join("stream_0"), packet(3, &call)).unwrap();
        fs::write(path.join("stream_1"), packet(sequence, &[read(300, 8)])).unwrap();
        let mut traces = crate::open(&[path.path().clone()]).unwrap();
        let mut output = Vec::new();
        let time = TimeFormat { clock: crate::text::ClockFormat::Seconds, ..TimeFormat::default() };
        print(&mut traces, &time, &mut output).unwrap();
        String::from_utf8(output).unwrap()
    };
    // The other CPU's ring has all events since the start: nothing before its first is missing.
    assert!(print_with_first(0).starts_with("[0.000000200] 7: read(3, 0x7f00, 4096) = 5 <0.000000200>\n"));
    let cut = "[0.000000200] 7: read(3, 0x7f00, 4096) = ? <unfinished, events were lost>\n";
    assert!(print_with_first(2).starts_with(cut));
}

#[test]
fn addresses_that_were_recorded_are_shown() {
    let address = |time, family, v4: &'static [u8]| {
        let numbers = [3, 0x7f00, 16, family, 8080].map(Number);
        let payload = numbers.into_iter().chain([Bytes(v4), Bytes(&[0; 16])]).collect();
        made(time, 5, 7, payload)
    };
    let events = [
        address(100, 2, &[127, 0, 0, 1]),
        result(110, 6, 7, -111),
        address(200, 10, &[0; 4]),
        result(210, 6, 7, 0),
        address(300, 1, &[0; 4]),
        result(310, 6, 7, 0),
    ];
    let text = printed("addresses", &[packet(0, &events)]);
    let calls: Vec<&str> = text.lines().filter_map(|line| line.split("7: ").nth(1)).collect();
    assert_eq!(calls[0], "connect(3, {AF_INET, 127.0.0.1:8080}, 16) = -1 ECONNREFUSED <0.000000010>");
    assert_eq!(calls[1], "connect(3, {AF_INET6, [::]:8080}, 16) = 0 <0.000000010>");
    assert!(calls[2].starts_with("connect(3, 0x7f00, 16, AF_UNIX, 8080, "), "{}", calls[2]);
}

#[test]
fn a_mark_is_its_text() {
    let events = [made(100, 4, 7, vec![Number(3), Number(12)])];
    assert_eq!(printed_of("mark", "ust", &[packet(0, &events)]), "[0.000000100] 7: mark:progress: 3 of 12\n");
}

#[test]
fn a_call_is_selected_by_either_of_its_events() {
    let path = TestDir::new("calls-select");
    fs::write(path.join("metadata"), METADATA.replace("DOMAIN", "kernel")).unwrap();
    fs::write(path.join("stream"), packet(0, &[read(1, 7)])).unwrap();
    let traces = crate::open(&[path.path().clone()]).unwrap();
    let names = |glob: &str| whole_calls(&traces, &[glob.into()]);
    assert_eq!(names("*exit_re*"), ["syscall_entry_read", "syscall_exit_read"]);
    assert_eq!(names("sched_*"), ["sched_process_exec", "sched_process_fork"]);
}
