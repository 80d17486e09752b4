//! Tracepoints without programs of their own, held against what tracefs shows of the same events in
//! an instance of its own. Where that can't be, a line says so and the test is skipped.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    ops::RangeInclusive,
    path::PathBuf,
};

use serde_json::Value;
use tompion_kernel::events::KNOWN;

use crate::{
    kernel::{both_readers_agree, lost, permitted, source},
    support::{Event, TestDir, rounds, run},
};

/// Folders of tracefs whose events are compared.
const SYSTEMS: [&str; 8] = ["workqueue", "timer", "tlb", "task", "skb", "sock", "filemap", "napi"];
/// Additional subsystems of full runs: the kernel takes seconds to detach them.
const MORE: [&str; 5] = ["net", "tcp", "ipi", "csd", "neigh"];
/// Maximum distance of an event in tracefs from ours. Both have the same clock, and times there are
/// rounded, but an interrupt may come between the two recorders.
const SLACK_NS: i64 = 20_000_000;
/// Time that is left out at both ends of the shorter recording.
const MARGIN_NS: i64 = 1_000_000;
/// The share of a kind's events that may be missing in tracefs, in percent: it refuses events in
/// interrupts that come while it records, and a machine that stands still between the two that
/// record puts them far apart.
const STRANGERS: usize = 1;
/// Idle threads. Some kernels' tracefs shows nothing of them outside of interrupts.
const IDLE: u64 = 0;

/// An instance of tracefs, which goes when the test ends.
struct Instance(PathBuf);

impl Instance {
    fn new(systems: &[&str]) -> Option<Self> {
        let folder =
            PathBuf::from(format!("/sys/kernel/tracing/instances/tompion-test-{}", std::process::id()));
        if let Err(error) = fs::create_dir(&folder) {
            eprintln!("SKIPPED, no instance of tracefs can be made here: {error}");
            return None;
        }
        let instance = Self(folder);
        let reported = instance.write("trace_clock", "mono") && instance.write("options/fields", "1");
        if !reported {
            eprintln!("SKIPPED, this kernel's tracefs shows no fields by themselves (Linux 6.5)");
            return None;
        }
        instance.write("buffer_size_kb", "65536");
        for system in systems {
            instance.write(&format!("events/{system}/enable"), "1");
        }
        Some(instance)
    }

    fn write(&self, file: &str, text: &str) -> bool {
        fs::write(self.0.join(file), text).is_ok()
    }

    /// Recorded events, by CPU and name.
    fn events(&self) -> BTreeMap<(u32, String), Vec<Theirs>> {
        self.write("tracing_on", "0");
        let text = fs::read(self.0.join("trace")).expect("the instance's trace");
        let text = String::from_utf8_lossy(&text);
        let mut events: BTreeMap<_, Vec<Theirs>> = BTreeMap::new();
        for (key, event) in text.lines().filter(|line| !line.starts_with('#')).filter_map(Theirs::parse) {
            events.entry(key).or_default().push(event);
        }
        for list in events.values_mut() {
            list.sort_by_key(|event| event.time);
        }
        events
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.write("events/enable", "0");
        // If it stays, it is found on the machine.
        let _ = fs::remove_dir(&self.0);
    }
}

/// An event as tracefs shows it.
struct Theirs {
    /// Nanoseconds of CLOCK_MONOTONIC.
    time: i64,
    tid: u64,
    fields: String,
}

impl Theirs {
    /// `sh-3446    [000] ..... 51803.280863: name: field=0x1 (1) other=text`
    fn parse(line: &str) -> Option<((u32, String), Self)> {
        let mut parts = line.splitn(3, ": ");
        let (head, name, fields) = (parts.next()?, parts.next()?, parts.next()?);
        let (task, behind) = head.rsplit_once('[')?;
        let tid = task.trim_end().rsplit_once('-')?.1.parse().ok()?;
        let (cpu, rest) = behind.split_once(']')?;
        let (seconds, micros) = rest.rsplit_once(' ')?.1.split_once('.')?;
        let time = seconds.parse::<i64>().ok()? * 1_000_000_000 + micros.parse::<i64>().ok()? * 1000;
        Some(((cpu.parse().ok()?, name.into()), Self { time, tid, fields: format!(" {fields}") }))
    }

    /// Returns the number of compared fields, if the event has these values.
    fn is(&self, fields: &[(String, &Value)]) -> Option<usize> {
        let mut count = 0;
        for (name, ours) in fields {
            let (_, value) = self.fields.split_once(&format!(" {name}="))?;
            let others = fields.iter().filter_map(|(other, _)| value.find(&format!(" {other}=")));
            match is_same(ours, &value[..others.min().unwrap_or(value.len())]) {
                Some(true) => count += 1,
                // Both recorders read the present time, so it may differ.
                Some(false) if name != "now" => return None,
                _ => {}
            }
        }
        Some(count)
    }
}

/// Returns whether two values are the same; nothing where tracefs doesn't show it.
fn is_same(ours: &Value, theirs: &str) -> Option<bool> {
    let ours = ours.get("value").unwrap_or(ours);
    match ours {
        Value::Number(number) => {
            let ours = number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))?;
            let theirs: i128 = theirs.trim_end().strip_suffix(')')?.rsplit_once('(')?.1.parse().ok()?;
            // Theirs are signed whatever they are.
            Some(
                [0, 8, 16, 32, 64]
                    .iter()
                    .any(|&bits| (ours - theirs).abs() == if bits == 0 { 0 } else { 1 << bits }),
            )
        }
        Value::String(ours) => Some(ours == theirs || theirs.contains("INVALID")),
        _ => None,
    }
}

/// The event's name and fields as tracefs calls them.
fn in_tracefs<'a>(event: &'a Event, systems: &[&str]) -> (String, Vec<(String, &'a Value)>) {
    let folder = |name: &str| {
        systems.iter().any(|it| PathBuf::from(format!("/sys/kernel/tracing/events/{it}/{name}")).is_dir())
    };
    let stripped = ["x86_irq_vectors_", "timer_", "kmem_", "power_"].iter();
    let others = stripped.filter_map(|prefix| event.name.strip_prefix(prefix).map(str::to_owned));
    let skb = event.name.strip_prefix("skb_").map(|rest| format!("{rest}_skb"));
    let net = event.name.strip_prefix("net_if_").map(|rest| format!("netif_{rest}"));
    let napi = event.name.strip_prefix("net_").map(str::to_owned);
    let names = std::iter::once(event.name.clone()).chain(others).chain(skb).chain(net).chain(napi);
    let name = names.into_iter().find(|name| folder(name)).unwrap_or_else(|| panic!("{}", event.name));
    let fields = event.fields.as_object().expect("fields");
    (name, fields.iter().map(|(name, value)| (name.trim_start_matches('_').to_owned(), value)).collect())
}

#[test]
fn records_are_what_tracefs_has_of_the_same_events() {
    if !permitted() {
        return;
    }
    let full = rounds(0, 1) == 1;
    let systems: Vec<&str> = SYSTEMS.iter().chain(if full { &MORE[..] } else { &[] }).copied().collect();
    let Some(instance) = Instance::new(&systems) else { return };
    let first = threads_of_the_first();
    let dir = TestDir::new();
    let patterns: Vec<String> = systems.iter().map(|system| format!("{system}:*")).collect();
    // Programs of other tests set timers by the thousand: the instance must not go round while ours
    // are let go.
    let name = format!("mark-{}", std::process::id());
    let script = format!(
        "printf {name} > /proc/$$/comm; for i in 1 2 3 4 5; do echo a > f$i; cat f$i > /dev/null; sync f$i; (sleep 0.01) & done; wait; rm f?; \
        exec 3<>/dev/udp/127.0.0.1/9; echo x >&3; (exec 4<>/dev/tcp/127.0.0.1/9) 2>/dev/null; echo 0 > {}/tracing_on",
        instance.0.display()
    );
    let options = [&format!("-k{}", patterns.join(",")), "--subbuf-size", "16M", "--subbufs", "4"];
    let trace = dir.record(&options, &[&"bash", &"-c", &script]);
    let theirs = instance.events();
    let events = trace.events();
    let manifest = trace.manifest();
    let ours = by_kind(&events, &manifest, &systems);
    let (known, own) = (known_times(&theirs), recorded_times(&ours, &name));
    let present: BTreeSet<u64> = ours.values().flatten().map(|event| event.tid).collect();
    let hidden = first.union(&threads_of_the_first()).copied().collect::<BTreeSet<u64>>();
    // Of those of its threads that came and went meanwhile nothing else is known.
    let is_hidden = |tid: u64| {
        hidden.contains(&tid) || !present.contains(&tid) && !PathBuf::from(format!("/proc/{tid}")).exists()
    };
    let (mut compared, mut same, mut missing, mut differing) = (0, 0, 0, Vec::new());
    for (key, ours) in &ours {
        let theirs = theirs.get(key).map_or(&[][..], |list| list);
        let pairs = pair(ours, theirs);
        same += pairs.fields;
        let inside = |times: &BTreeMap<u32, RangeInclusive<i64>>, time: i64| {
            times.get(&key.0).is_some_and(|times| times.contains(&time))
        };
        let (all, strangers) = pairs.ours(ours, |it| inside(&known, it.time) && it.tid != IDLE);
        let (_, unseen) = pairs.theirs(theirs, |it| inside(&own, it.time) && !is_hidden(it.tid));
        if strangers + unseen > 0 {
            println!("{key:?}: of {all} tracefs hasn't {strangers}, and we haven't {unseen}");
        }
        compared += all;
        missing += unseen;
        if strangers * 100 > STRANGERS * all {
            differing.push((key, all, strangers));
        }
    }
    let lost = lost(&source(&manifest));
    println!(
        "{compared} events of {} kinds and CPUs, {same} fields are the same, {missing} missing, {lost} lost",
        ours.len()
    );
    assert!(differing.is_empty(), "tracefs has other events (all, strangers): {differing:?}");
    assert!(
        missing as u64 <= lost,
        "tracefs has {missing} events that we don't have, and {lost} are counted as lost"
    );
    assert!(ours.len() >= 10 && compared > 100 && same > compared, "{}", ours.len());
    both_readers_agree(&trace);
}

/// Our events by CPU and name, without those that have programs of their own, whose fields are
/// LTTng's.
fn by_kind<'a>(
    events: &'a [Event],
    manifest: &Value,
    systems: &[&str],
) -> BTreeMap<(u32, String), Vec<Ours<'a>>> {
    let offset = manifest["clock"]["realtime_offset_ns"].as_i64().expect("an offset");
    let mut lists: BTreeMap<_, Vec<Ours<'_>>> = BTreeMap::new();
    for event in events.iter().filter(|event| KNOWN.iter().all(|known| known.name != event.name)) {
        let (name, fields) = in_tracefs(event, systems);
        let tid = event.context["tid"].as_u64().expect("a thread");
        lists.entry((event.cpu, name)).or_default().push(Ours { time: event.time - offset, tid, fields });
    }
    lists
}

/// Threads of the machine's first process. There are kernels (in sandboxes, whose agent it is) that
/// start no programs while it runs; then a recording with switches says so.
fn threads_of_the_first() -> BTreeSet<u64> {
    let threads = fs::read_dir("/proc/1/task").expect("the first process's threads");
    threads.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect()
}

/// Returns the range in which tracefs has a CPU's events: it may have overwritten older ones.
/// Events at its ends are left out, because the two clocks may disagree about them.
fn known_times(theirs: &BTreeMap<(u32, String), Vec<Theirs>>) -> BTreeMap<u32, RangeInclusive<i64>> {
    let ends =
        theirs.iter().filter_map(|((cpu, _), list)| Some((*cpu, list.first()?.time, list.last()?.time)));
    let mut known: BTreeMap<u32, RangeInclusive<i64>> = BTreeMap::new();
    for (cpu, first, last) in ends {
        let (first, last) = (first + MARGIN_NS, last - MARGIN_NS);
        let own = known.entry(cpu).or_insert(first..=last);
        *own = first.min(*own.start())..=last.max(*own.end());
    }
    known
}

/// Returns the range in which our trace has all of a CPU's events. Tracepoints are attached one
/// after another; all are attached when the command starts, which takes this name first.
fn recorded_times(
    ours: &BTreeMap<(u32, String), Vec<Ours<'_>>>,
    name: &str,
) -> BTreeMap<u32, RangeInclusive<i64>> {
    let all = || ours.iter().flat_map(|((cpu, _), list)| list.iter().map(move |event| (*cpu, event)));
    let is_start = |event: &Ours<'_>| event.fields.iter().any(|(_, value)| value.as_str() == Some(name));
    let start = all().filter(|(_, event)| is_start(event)).map(|(_, event)| event.time).min();
    let start = start.expect("the command's start") + MARGIN_NS;
    let mut times: BTreeMap<u32, RangeInclusive<i64>> = BTreeMap::new();
    for (cpu, event) in all() {
        let own = times.entry(cpu).or_insert(start..=start);
        *own = start..=(event.time - MARGIN_NS).max(*own.end());
    }
    times
}

/// An event of ours, under tracefs's names.
struct Ours<'a> {
    /// Nanoseconds of CLOCK_MONOTONIC.
    time: i64,
    tid: u64,
    fields: Vec<(String, &'a Value)>,
}

/// Returns the pairs of equal events of two lists.
struct Pairs {
    ours: Vec<bool>,
    theirs: Vec<bool>,
    /// Fields that are the same.
    fields: usize,
}

impl Pairs {
    /// Returns the number of our events in the compared range, and the number of those that tracefs
    /// lacks.
    fn ours(&self, ours: &[Ours<'_>], wanted: impl Fn(&Ours<'_>) -> bool) -> (usize, usize) {
        let chosen = || ours.iter().zip(&self.ours).filter(|(event, _)| wanted(event));
        (chosen().count(), chosen().filter(|(_, found)| !**found).count())
    }

    /// The other way round.
    fn theirs(&self, theirs: &[Theirs], wanted: impl Fn(&Theirs) -> bool) -> (usize, usize) {
        let chosen = || theirs.iter().zip(&self.theirs).filter(|(event, _)| wanted(event));
        (chosen().count(), chosen().filter(|(_, found)| !**found).count())
    }
}

/// Finds for each event of ours the nearest one in tracefs that has its thread and fields. (Both
/// have them in the same order, but where an interrupt came between the two that record.)
fn pair(ours: &[Ours<'_>], theirs: &[Theirs]) -> Pairs {
    let mut pairs = Pairs { ours: vec![false; ours.len()], theirs: vec![false; theirs.len()], fields: 0 };
    for (event, found) in ours.iter().zip(&mut pairs.ours) {
        let begin = theirs.partition_point(|it| it.time < event.time - SLACK_NS);
        let end = theirs.partition_point(|it| it.time <= event.time + SLACK_NS);
        let mut near: Vec<usize> =
            (begin..end).filter(|at| !pairs.theirs[*at] && theirs[*at].tid == event.tid).collect();
        near.sort_by_key(|at| (theirs[*at].time - event.time).abs());
        let same = near.into_iter().find_map(|at| Some((at, theirs[at].is(&event.fields)?)));
        if let Some((at, fields)) = same {
            (*found, pairs.theirs[at]) = (true, true);
            pairs.fields += fields;
        }
    }
    pairs
}

#[test]
fn tracepoints_are_chosen_by_name_and_folder() {
    let dir = TestDir::new();
    let list = run(&mut dir.tompion(&["list", "--kernel"])).succeeded().out;
    if !permitted() || !list.contains("task_newtask ") {
        return;
    }
    let trace = dir.record(&["-ktask:*,sched:sched_process_exec"], &[&"sh", &"-c", &"true; /bin/true"]);
    let mut names: Vec<String> = trace.events().into_iter().map(|event| event.name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names, ["sched_process_exec", "task_newtask", "task_rename"]);
    let newtask = trace.events().into_iter().find(|event| event.name == "task_newtask").expect("a process");
    assert!(newtask.number("pid") > 0 && newtask.fields["comm"].as_str().is_some(), "{newtask:?}");
}
