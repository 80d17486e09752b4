//! Probes that users ask for: in programs, at functions and at marks (USDT); and in the kernel,
//! where it has such.

use std::{collections::BTreeMap, fs, io::Read, process::Command};

use rustix::process::Signal;

use crate::{
    kernel::{both_readers_agree, lost, permitted, source, text},
    support::{
        Event, TestDir, Trace, beside, compiler, finish, rounds, run, signal, start, tompion, wait_until,
    },
};

/// The program with marks and functions, and no library of ours.
fn marks(dir: &TestDir) -> String {
    let mut cc = compiler();
    cc.args(["-std=gnu11", "-pthread"]).arg(beside("programs/marks.c")).arg("-o").arg(dir.path("marks"));
    run(&mut cc).succeeded();
    "./marks".into()
}

fn named<'a>(events: &'a [Event], name: &str) -> Vec<&'a Event> {
    events.iter().filter(|event| event.name == name).collect()
}

fn signed(event: &Event, field: &str) -> i64 {
    event.fields[field].as_i64().unwrap_or_else(|| panic!("no number `{field}` in {event:?}"))
}

#[test]
fn marks_are_recorded_with_their_arguments() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = marks(&dir);
    let list = run(&mut dir.tompion(&["list", "./marks"])).succeeded().out;
    assert!(list.contains("usdt:shop:sale  [usdt]  i32 arg0, u64 arg1, i16 arg2, i32 arg3\n"), "{list}");
    assert!(list.contains("usdt:shop:visit  [usdt]  u32 arg0\n"), "{list}");
    let sale = "usdt:./marks:shop:sale(round: i32, what: str, count: i16, seven: i64)";
    let options = ["-k", sale, "-k", "usdt:./marks:*:visit"];
    run(&mut dir.recording("trace", &options, &[&program, &"300"])).succeeded();
    let trace = dir.trace("trace");
    let events = trace.events();
    let (sales, visits) = (named(&events, "shop:sale"), named(&events, "shop:visit"));
    assert_eq!((sales.len(), visits.len(), events.len()), (300, 600, 900));
    for (round, sale) in (0i64..).zip(&sales) {
        assert_eq!(text(sale, "what"), format!("thing {round}"));
        let numbers = ["round", "count", "seven"].map(|field| signed(sale, field));
        assert_eq!(numbers, [round, -round, -7]);
    }
    for (round, pair) in (0..).zip(visits.chunks_exact(2)) {
        assert_eq!((pair[0].number("arg0"), pair[1].number("arg0")), (round, round & 0xff));
    }
    both_readers_agree(&trace);
}

#[test]
fn functions_are_recorded_with_what_they_get_and_return() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let program = marks(&dir);
    let count = u64::from(rounds(3000, 100_000));
    let call =
        "uprobe:./marks:nine(a: i32, b: i64, c: u8, text: str, e: i32, f: i32, g: i32, h: i64, i: x32)";
    let options = ["-k", call, "-k", "uretprobe:./marks:nine", "--subbuf-size", "4M", "--subbufs", "4"];
    run(&mut dir.recording("trace", &options, &[&program, &count.to_string()])).succeeded();
    let trace = dir.trace("trace");
    assert_eq!(lost(&source(&trace.manifest())), 0);
    let mut open = BTreeMap::<u64, &Event>::new();
    let mut calls = BTreeMap::<u64, i64>::new();
    let events = trace.events();
    for event in &events {
        let tid = event.context["tid"].as_u64().expect("a thread");
        if event.name == "marks:nine" {
            assert!(open.insert(tid, event).is_none(), "{event:?}");
            continue;
        }
        assert_eq!(event.name, "marks:nine_return");
        let call = open.remove(&tid).expect("a call");
        let round = calls.entry(tid).or_default();
        let numbers = ["a", "b", "e", "f", "g", "h", "i"].map(|field| signed(call, field));
        if text(call, "text") == "<null>" {
            assert_eq!((numbers, signed(event, "ret")), ([1, 2, 5, 6, 7, 8, 9], -1));
            continue;
        }
        assert_eq!(numbers, [*round, -*round, 5, 6, 7, 8, 9]);
        assert_eq!((text(call, "text"), signed(call, "c")), ("a text", *round & 0xff));
        assert_eq!(signed(event, "ret"), 35 + (*round & 0xff));
        *round += 1;
    }
    // Of two threads on one CPU, which preempt each other wherever they are, and the last call of
    // the main one.
    assert_eq!(events.len() as u64, 2 * (2 * count + 1));
    assert!(calls.values().filter(|rounds| **rounds == count as i64).count() == 2 && open.is_empty());
}

/// The program that builds programs of Go, if there is one.
fn go() -> Option<&'static str> {
    let runs =
        |go: &&str| Command::new(go).arg("version").output().is_ok_and(|output| output.status.success());
    ["go", "/usr/local/go/bin/go"].into_iter().find(runs)
}

/// Grows its stack again and again, so that the runtime moves it.
const GROWING: &str = r#"package main

import "fmt"

//go:noinline
func grow(depth int, negative int32, byte uint8) int {
	var room [256]int
	room[depth%256] = depth
	if depth == 0 {
		return int(negative) + int(byte)
	}
	return grow(depth-1, negative-1, byte+1) + room[(depth+1)%256]
}

func main() {
	sum := 0
	for range 20 {
		done := make(chan int)
		go func() { done <- grow(1000, -5, 250) }()
		sum += <-done
	}
	fmt.Println(sum)
}
"#;

#[test]
fn functions_of_go_are_recorded_with_what_they_get_and_their_returns_refused() {
    if !permitted() {
        return;
    }
    let Some(go) = go() else { return eprintln!("SKIPPED, Go is not installed") };
    let shop = TestDir::new();
    fs::write(shop.path("growing.go"), GROWING).expect("a source");
    let mut build = Command::new(go);
    build.args(["build", "-o", "growing", "growing.go"]).current_dir(shop.path("")).env("CGO_ENABLED", "0");
    build.env("GOPROXY", "off").env("GOCACHE", shop.path("cache"));
    run(&mut build).succeeded();
    let alone = run(Command::new(shop.path("growing")).current_dir(shop.path(""))).succeeded().out;
    let probe = "uprobe:./growing:main.grow(depth: i64, negative: i32, byte: u8)";
    let options = ["-k", probe, "--subbuf-size", "4M", "--subbufs", "4"];
    let recorded = run(&mut shop.recording("trace", &options, &[&"./growing"])).succeeded();
    assert_eq!(recorded.out, alone);
    let mut depths = Vec::new();
    for event in &shop.trace("trace").events() {
        let calls = 1000 - signed(event, "depth");
        depths.push(1000 - calls);
        assert_eq!(signed(event, "negative"), -5 - calls, "{event:?}");
        assert_eq!(signed(event, "byte"), (250 + calls) & 0xff, "{event:?}");
    }
    let begins = depths.len();
    // Where the stack has to grow or the runtime takes the CPU away, a function begins once more,
    // before anything else happens in its goroutine. How often is the scheduler's affair.
    depths.dedup();
    let calls: Vec<i64> = (0..20).flat_map(|_| (0..=1000).rev()).collect();
    assert!(depths == calls, "{} calls of {}, {begins} begins", depths.len(), calls.len());
    assert!(begins > calls.len(), "no stack had to grow");
    let refused = |probe: &str| run(&mut shop.recording("wrong", &["-k", probe], &[&"true"])).exited(125).err;
    let said = refused("uretprobe:./growing:main.grow");
    assert!(said.contains("would kill the program: Go moves its stacks"), "{said}");
    let said = refused("uprobe:./growing:main.grow(text: str)");
    assert!(said.contains("a Go string is two words"), "{said}");
}

#[test]
fn events_are_named_after_the_link_that_was_named() {
    if !permitted() {
        return;
    }
    let shop = TestDir::new();
    marks(&shop);
    std::os::unix::fs::symlink("marks", shop.path("shop-1")).expect("a link");
    let options = ["-k", "uprobe:./shop-1:nine"];
    run(&mut shop.recording("trace", &options, &[&"./marks", &"3"])).succeeded();
    let events = shop.trace("trace").events();
    assert!(!events.is_empty() && events.iter().all(|event| event.name == "shop-1:nine"), "{events:?}");
}

/// A program of the distribution that has marks.
const PYTHON: &str = "/usr/bin/python3";

#[test]
fn a_packages_binary_is_recorded_as_it_is() {
    let script = "import gc\nfor generation in (2, 0, 1): gc.collect(generation)";
    let dir = TestDir::new();
    let listed = run(&mut dir.tompion(&["list", PYTHON]));
    if !permitted() || !listed.out.contains("usdt:python:gc__start") {
        return eprintln!("SKIPPED, {PYTHON} has no marks");
    }
    let mark = format!("usdt:{PYTHON}:python:gc__start(generation: i32)");
    let libc = "uprobe:/lib/x86_64-linux-gnu/libc.so.6:open64(path: str)";
    let options = ["-k", &mark, "-k", libc];
    run(&mut dir.recording("trace", &options, &[&PYTHON, &"-c", &script])).succeeded();
    let events = dir.trace("trace").events();
    let generations: Vec<u64> =
        named(&events, "python:gc__start").iter().map(|event| event.number("generation")).collect();
    assert!(generations.windows(3).any(|three| three == [2, 0, 1]), "{generations:?}");
}

#[test]
fn nothing_is_left_in_a_program_when_the_recorder_is_killed() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    marks(&dir);
    let mut watch = start(Command::new(dir.path("marks")).arg("watch"));
    let mut heard = String::new();
    let mut stdout = watch.stdout.take().expect("a pipe");
    let mut hear = |heard: &mut String, what: &str| {
        while !heard.ends_with(what) {
            let mut bytes = [0; 64];
            let count = stdout.read(&mut bytes).expect("words");
            assert!(count != 0, "{heard}");
            *heard += &String::from_utf8_lossy(&bytes[..count]);
        }
    };
    hear(&mut heard, "no listener\n");
    // A program that knows nothing of us, by its number.
    let pid = watch.id().to_string();
    let mut record = dir.tompion(&["record", "-o", "killed", "-p", &pid, "-k", "usdt:./marks:shop:visit"]);
    let recording = start(&mut record);
    hear(&mut heard, "listener attached\n");
    signal(recording.id(), Signal::KILL);
    finish(recording, "record");
    hear(&mut heard, "listener detached\n");
    assert!(watch.wait().expect("a child").success());
}

/// Returns the number of probes that a process holds.
fn links_of(pid: u32) -> usize {
    let entries = fs::read_dir(format!("/proc/{pid}/fdinfo")).into_iter().flatten().flatten();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.path()).ok());
    texts.filter(|text| text.contains("link_type:\tperf")).count()
}

#[test]
fn a_running_program_is_recorded_to_its_end() {
    if !permitted() {
        return;
    }
    let dir = TestDir::new();
    let ready = dir.path("ready");
    let script = format!("while ! test -e '{}'; do sleep 0.01; done; ./marks 5", ready.display());
    marks(&dir);
    let mut shell = start(Command::new("sh").args(["-c", &script]).current_dir(dir.path("")));
    let pid = shell.id().to_string();
    let mut record = dir.tompion(&["record", "-o", "trace", "-p", &pid, "-k", "usdt:./marks:shop:sale"]);
    let recording = start(&mut record);
    wait_until("the probe is in its place", || links_of(recording.id()) != 0);
    fs::write(ready, "").expect("a file");
    assert!(shell.wait().expect("a child").success());
    let said = finish(recording, "record").succeeded();
    let trace: Trace = dir.trace("trace");
    assert_eq!(named(&trace.events(), "shop:sale").len(), 5, "{}", said.err);
}

#[test]
fn errors_of_probes_are_reported() {
    let dir = TestDir::new();
    marks(&dir);
    let cases = [
        ("uprobe:./marks:nime", "no function `nime`; nearest: nine"),
        ("usdt:./marks:shop:sales", "no USDT probe shop:sales; nearest: shop:sale"),
        ("usdt:./marks:shop:visit(a: i32, b: i32)", "has no argument 1 that can be read"),
        ("uprobe:./nothing:f", "there is no program or library `./nothing`"),
        ("uprobe:./marks:0x7fffffff", "has no code at 0x7fffffff"),
        ("uprobe:./marks:nine(a: int)", "`int` is no type of `a`; there are i8 to i64"),
    ];
    for (probe, expected) in cases {
        let said = run(&mut dir.recording("wrong", &["-k", probe], &[&"true"])).exited(125).err;
        assert!(said.contains(expected), "{probe}: {said}");
    }
    let kernel =
        run(&mut dir.recording("kernel", &["-k", "kprobe:vfs_reed(file: x64)"], &[&"true"])).exited(125).err;
    let expected = "this kernel has no kprobes (CONFIG_KPROBES";
    assert!(kernel.contains(expected) || kernel.contains("nearest: vfs_read"), "{kernel}");
}

/// Returns whether `tompion doctor` says that this kernel's probes leave alone what functions keep
/// below their stack pointer.
fn red_zone_is_kept() -> bool {
    let rows: serde_json::Value =
        serde_json::from_str(&run(tompion().args(["doctor", "--json"])).out).expect("JSON");
    let row = rows.as_array().expect("rows").iter().find(|row| row["name"] == "user probes");
    let state = &row.expect("a row on probes")["state"];
    assert!(*state == "good" || *state == "drawback", "{rows}");
    *state == "good"
}

#[test]
fn a_probe_changes_nothing_that_a_function_keeps_below_its_stack_pointer() {
    if !permitted() || !cfg!(target_arch = "x86_64") {
        return;
    }
    let dir = TestDir::new();
    let mut cc = compiler();
    cc.args(["-std=gnu11", "-O2"]).arg(beside("programs/red_zone.c")).arg("-o").arg(dir.path("red_zone"));
    run(&mut cc).succeeded();
    let kept = red_zone_is_kept();
    // At the beginning nothing is kept yet, and one-byte nops stay what they are.
    let places = [
        ("uprobe:./red_zone:changed_in_function", true),
        ("uprobe:./red_zone:changed_in_function+0x14", true),
        ("uprobe:./red_zone:changed_in_function+0x15", kept),
        ("uretprobe:./red_zone:changed_in_function", true),
        ("usdt:./red_zone:zone:inside", kept),
    ];
    for (number, (probe, is_sound)) in places.into_iter().enumerate() {
        let name = format!("trace-{number}");
        let said = run(&mut dir.recording(&name, &["-k", probe], &[&"./red_zone", &"300"]));
        if is_sound {
            let said = said.succeeded();
            assert!(said.out.contains("0 changed"), "{probe}: {}", said.out);
            assert_eq!(dir.trace(&name).events().len(), 300, "{probe}");
        } else {
            let said = said.exited(125).err;
            assert!(said.contains("has a 5-byte nop at 0x"), "{probe}: {said}");
            assert!(said.contains("overwrites what the function keeps"), "{probe}: {said}");
        }
    }
}
