//! Programs in the running kernel. Where that isn't permitted, a line says so and nothing is
//! tested.

mod support;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tompion_kernel::{
    AvailableEvents, Options, Recorder, Selection,
    context::Contexts,
    decode::{Decoder, Vocabulary},
    events::{FIRST, KNOWN, SYSCALL_ENTRY, SYSCALL_EXIT},
    records::Records,
    ring::Geometry,
};
use tompion_layout::loss::Cause;

use support::permitted;

fn options(selection: Selection) -> Options {
    let geometry = Geometry::of_size(tompion_os::possible_cpus(), 8 << 20);
    Options {
        selection,
        overwrite: false,
        geometry,
        follow: Vec::new(),
        filter: None,
        contexts: Contexts::default(),
    }
}

/// Records found in rings.
#[derive(Default)]
struct Found {
    /// Records by number and thread.
    counts: BTreeMap<(u16, u32), u64>,
    lost: u64,
    read: Vec<u64>,
    last: Vec<u64>,
}

impl Found {
    fn collect(&mut self, recorder: &Recorder) {
        let cpus = recorder.geometry().cpus;
        self.read.resize(cpus as usize, 0);
        self.last.resize(cpus as usize, 0);
        for cpu in 0..cpus {
            let mut bytes = Vec::new();
            let span = recorder.ring(cpu).take(self.read[cpu as usize], &mut bytes).unwrap().span;
            self.read[cpu as usize] = span.end;
            for record in Records::new(&bytes, span.begin) {
                let record = record.expect("no garbage in a ring");
                assert!(record.time >= self.last[cpu as usize], "time goes backwards");
                self.last[cpu as usize] = record.time;
                *self.counts.entry((record.number, record.tid)).or_default() += 1;
            }
        }
        self.lost = (0..cpus)
            .map(|cpu| Cause::ALL.into_iter().map(|cause| recorder.ring(cpu).lost(cause)).sum::<u64>())
            .sum();
    }

    /// Takes everything that is left, once no writer is active any more.
    fn finish(&mut self, recorder: &mut Recorder) {
        recorder.detach();
        std::thread::sleep(Duration::from_millis(50));
        self.collect(recorder);
        for cpu in 0..recorder.geometry().cpus {
            assert_eq!(self.read[cpu as usize], recorder.ring(cpu).written(), "all of it can be read");
        }
    }

    fn of(&self, number: u16) -> u64 {
        self.counts.iter().filter(|((found, _), _)| *found == number).map(|(_, count)| count).sum()
    }
}

#[test]
fn all_programs_pass_the_verifier_and_run() {
    if !permitted() {
        return;
    }
    let available = AvailableEvents::of_this_kernel();
    let calls = &available.calls;
    let selection = Selection::matching(&available, &["*".into()]).unwrap();
    for overwrite in [false, true] {
        let follow = if overwrite { vec![std::process::id()] } else { Vec::new() };
        let options = Options { overwrite, follow, ..options(selection.clone()) };
        let mut recorder = Recorder::load(&options, calls).unwrap();
        assert_eq!(recorder.missing(), &[] as &[&str]);
        recorder.attach().unwrap();
        assert!(std::process::Command::new("true").status().unwrap().success());
        std::thread::sleep(Duration::from_millis(50));
        if overwrite {
            recorder.detach();
            std::thread::sleep(Duration::from_millis(50));
            let mut history = Vec::new();
            (0..options.geometry.cpus).for_each(|cpu| recorder.ring(cpu).copy_history(0, &mut history));
            assert!(!history.is_empty());
            continue;
        }
        let mut found = Found::default();
        found.finish(&mut recorder);
        for name in ["sched_switch", "sched_waking", "sched_process_fork", "sched_process_exec"] {
            let place = KNOWN.iter().position(|known| known.name == name).unwrap() as u16;
            assert!(found.of(FIRST + place) > 0, "{name}");
        }
        assert!(found.of(SYSCALL_ENTRY) > 0 && found.of(SYSCALL_EXIT) > 0);
    }
}

#[test]
fn each_system_call_is_recorded_or_counted_as_lost() {
    if !permitted() {
        return;
    }
    let available = AvailableEvents::of_this_kernel();
    let calls = &available.calls;
    let everything = Selection::matching(&available, &["*".into()]).unwrap();
    for size in [8 << 20, 128 << 10] {
        let geometry = Geometry::of_size(tompion_os::possible_cpus(), size);
        let mut recorder =
            Recorder::load(&Options { geometry, ..options(everything.clone()) }, calls).unwrap();
        recorder.attach().unwrap();
        let rounds = 200_000u64;
        // A process of its own: the recorder's calls are not recorded.
        let mut program = std::process::Command::new("dd")
            .args(["if=/dev/zero", "of=/dev/null", "bs=1", &format!("count={rounds}"), "status=none"])
            .spawn()
            .unwrap();
        let pid = program.id();
        let mut found = Found::default();
        while program.try_wait().unwrap().is_none() {
            found.collect(&recorder);
            std::thread::sleep(Duration::from_millis(2));
        }
        program.wait().unwrap();
        found.finish(&mut recorder);
        let (entries, exits) = (found.counts[&(SYSCALL_ENTRY, pid)], found.counts[&(SYSCALL_EXIT, pid)]);
        let lost = found.lost + recorder.misses();
        println!("{size}: {entries} entries, {exits} exits, {lost} lost, {:?}", found.counts.len());
        assert!(entries + lost >= 2 * rounds && exits + lost >= 2 * rounds);
        assert!(entries < 2 * rounds + 1000 && exits < 2 * rounds + 1000);
        if lost == 0 {
            // The last call doesn't return.
            assert_eq!(entries, exits);
        }
    }
}

#[test]
fn paths_are_decoded() {
    if !permitted() {
        return;
    }
    let available = AvailableEvents::of_this_kernel();
    let calls = &available.calls;
    let selection = Selection::matching(&available, &["syscall_*".into()]).unwrap();
    let options = Options { follow: vec![std::process::id()], ..options(selection) };
    let mut recorder = Recorder::load(&options, calls).unwrap();
    recorder.attach().unwrap();
    let status = std::process::Command::new("cat").arg("/proc/self/status").output().unwrap();
    assert!(status.status.success());
    recorder.detach();
    std::thread::sleep(Duration::from_millis(50));
    let vocabulary = Arc::new(Vocabulary::of_calls(calls.clone()));
    let mut decoder = Decoder::new(vocabulary.clone());
    let mut names = Vec::new();
    for cpu in 0..options.geometry.cpus {
        let mut bytes = Vec::new();
        let span = recorder.ring(cpu).take(0, &mut bytes).unwrap().span;
        for record in Records::new(&bytes, span.begin) {
            let (class, payload) = decoder.decode(&record.unwrap()).unwrap();
            let payload = payload.to_vec();
            let event = vocabulary.event(class);
            assert!(payload.len() >= event.fixed_size());
            names.push((event.name, String::from_utf8_lossy(&payload).into_owned()));
        }
    }
    let has = |name: &str, text: &str| names.iter().any(|it| it.0.ends_with(name) && it.1.contains(text));
    assert!(has("_openat", "/proc/self/status\0"), "{names:?}");
    assert!(has("_execve", "/cat\0"), "{names:?}");
    assert!(!names.iter().any(|(name, _)| name == "syscall_entry_unknown"), "{names:?}");
}
