//! Given a thread that is stopped at an instruction of a restartable section, when it is killed,
//! aborted, moved or overtaken there, then the rings hold every append exactly once and whole.
//!
//! Each play has rings of its own and a child that appends once. The child is stopped by a
//! debugger, one of the actions happens to it, others append behind it on both CPUs, and the
//! production reader must find just what was appended. What an action tests:
//!
//! - A stopped thread has been preempted: it goes on in the abort handler. So `GoOn` is a
//!   preemption there.
//! - `Kill` ends the thread where it stands: the instructions before are all that it ever did.
//! - `Signal` is an abort by a signal's delivery, and an append that is nested into the aborted
//!   one.
//! - `Migrate` and `Depart` abort it and let it begin again with another CPU's ring, while what it
//!   stored lies behind the first ring's position, where (`Depart`) others append then.
//! - `Other` and `OthersFill` are threads that run on its CPU in between. The test itself is that
//!   thread: a ring is memory that all its mappings share, and a section belongs to its thread
//!   alone.
//! - `NotStopped` takes the section away before it goes on: the run that was stopped completes.
//!
//! In the long form threads are aborted first and come to the same place again, or are killed after
//! something else has happened, and loops are stopped in their later rounds as well.
#![cfg(target_arch = "x86_64")]

#[path = "../support/mod.rs"]
mod support;

mod broken;
mod debugger;
mod ledger;
mod scenario;
mod sections;

use std::collections::{BTreeMap, BTreeSet};

use tompion_ring::producer::Outcome;

use debugger::{Debugger, Place};
use scenario::{Action, Before, Kind, Scenario};
use sections::Section;

const fn kind(image_len: usize, tails: &'static [usize]) -> Kind {
    Kind { image_len, tails, given_time: false }
}

/// Images that go the shortest way: of nothing, of one word and two, and as long as they may be.
const IMAGES: [Kind; 4] = [kind(8, &[]), kind(0, &[]), kind(16, &[]), kind(512, &[])];
/// Events in parts: short and long tails, an image too long for the shortest way, and given times.
const PARTS: [Kind; 5] = [
    kind(20, &[0, 5, 30]),
    kind(8, &[1500, 1]),
    kind(640, &[]),
    kind(2000, &[200]),
    Kind { image_len: 24, tails: &[9], given_time: true },
];
/// One of the kinds is larger than any record: it is counted as lost in either mode.
const TOO_LARGE: usize = 2032;

/// The scenarios of a mode. In the quick form only two of the kinds meet other states of the ring
/// than the first.
fn scenarios(overwrite: bool, cpus: [usize; 2]) -> Vec<Scenario> {
    use Before::{Boundary, Crossing, Full, Inside, SecondLap, Unused};
    let breakpoints = Debugger::start(|| ()).has_breakpoints();
    let mut all = Vec::new();
    for kind in IMAGES.into_iter().chain(PARTS) {
        let is_too_large = kind.image_len + kind.tails.iter().sum::<usize>() > TOO_LARGE;
        for before in [Inside, SecondLap, Boundary, Full, Crossing, Unused] {
            let is_quick = match before {
                Inside => true,
                Boundary => kind.given_time || kind.image_len == 8,
                SecondLap => kind.image_len == 16 || kind.image_len == 20,
                Full => kind.image_len == 16,
                Crossing | Unused => false,
            };
            let is_wanted = is_quick || tompion_testing::is_full() && !is_too_large;
            if is_wanted && !(overwrite && before == Full) {
                all.push(Scenario { kind, before, overwrite, cpus, breakpoints, append });
            }
        }
    }
    all
}

fn append(bench: &support::Bench, event: &ledger::Proven) -> Outcome {
    event.append(bench)
}

/// Actions that happen at each place.
fn plans(cpus: [usize; 2]) -> Vec<Vec<Action>> {
    use Action::{Depart, GoOn, Kill, Migrate, NotStopped, Other, OthersFill, Signal, Switch};
    let mut plans: Vec<Vec<Action>> = Action::ALL.iter().map(|&action| vec![action]).collect();
    if tompion_testing::is_full() {
        let again = [NotStopped, Kill, Signal, Migrate, Other, OthersFill, Depart, Switch];
        plans.extend(again.map(|action| vec![GoOn, action]));
        plans.extend([Signal, Migrate, Other, OthersFill, Depart, Switch].map(|action| vec![action, Kill]));
        plans.push(vec![Other, Migrate, Other, Signal]);
    }
    if cpus[0] == cpus[1] {
        plans.retain(|plan| !plan.contains(&Migrate) && !plan.contains(&Depart));
    }
    plans
}

/// Two CPUs on which this process may run; twice the same where there is only one.
fn two_cpus() -> [usize; 2] {
    // SAFETY: all bytes zero are an empty set, which is this function's own.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        assert_eq!(libc::sched_getaffinity(0, size_of_val(&set), &raw mut set), 0);
        set
    };
    // SAFETY: the number is below the set's size.
    let mut allowed = (0..libc::CPU_SETSIZE as usize).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) });
    let first = allowed.next().expect("a CPU");
    [first, allowed.next().unwrap_or(first)]
}

/// The rounds of a loop in which a thread is stopped: the first, and the later ones at its ends and
/// in the middle.
fn rounds(times: usize) -> BTreeSet<usize> {
    if tompion_testing::is_full() { [1, 2, times / 2, times].into() } else { [1, times].into() }
}

/// Plays everything in one mode, and demands that every instruction was met by every action.
fn play_everywhere(overwrite: bool, cpus: [usize; 2]) {
    let (sections, plans) = (sections::of_the_ring(), plans(cpus));
    let mut covered: BTreeMap<u64, BTreeSet<Action>> = BTreeMap::new();
    let (mut plays, mut actions) = (0, 0);
    for scenario in scenarios(overwrite, cpus) {
        for (address, times) in scenario.places(&sections) {
            let section = section_of(&sections, address);
            for time in rounds(times).into_iter().filter(|&time| (1..=times).contains(&time)) {
                for plan in plans.iter().filter(|plan| time == 1 || plan.len() == 1) {
                    let place = Place { address, time };
                    let played = scenario.play(place, section, plan).unwrap_or_else(|wrong| {
                        let offset = address - section.start;
                        panic!("{}+{offset:#x}, time {time}, {plan:?}, {scenario:x?}: {wrong}", section.name)
                    });
                    covered.entry(address).or_default().insert(plan[0]);
                    plays += 1;
                    actions += played;
                }
            }
        }
    }
    let places: usize = sections.iter().map(|section| section.places.len()).sum();
    let kinds = plans.iter().map(|plan| plan[0]).collect::<BTreeSet<_>>();
    println!(
        "{places} places in {} sections, each with {} kinds of action: {plays} plays with {actions} actions",
        sections.len(),
        kinds.len(),
    );
    for section in &sections {
        for place in &section.places {
            let missing: Vec<_> = kinds.difference(covered.entry(*place).or_default()).collect();
            let offset = place - section.start;
            assert!(missing.is_empty(), "{}+{offset:#x} was not met by {missing:?}", section.name);
        }
    }
}

fn section_of(sections: &[Section], address: u64) -> &Section {
    let with = |section: &&Section| section.places.contains(&address);
    sections.iter().find(with).expect("a section with this place")
}

#[test]
fn whatever_happens_at_any_instruction_in_discard_mode_nothing_is_torn_or_forgotten() {
    play_everywhere(false, two_cpus());
}

#[test]
fn whatever_happens_at_any_instruction_in_overwrite_mode_nothing_is_torn_or_forgotten() {
    let [first, second] = two_cpus();
    play_everywhere(true, [second, first]);
}

#[test]
fn without_breakpoint_registers_it_is_the_same() {
    let (sections, cpus) = (sections::of_the_ring(), two_cpus());
    let scenario = Scenario {
        kind: kind(20, &[7]),
        before: Before::SecondLap,
        overwrite: true,
        cpus,
        breakpoints: false,
        append,
    };
    for address in scenario.places(&sections).into_keys() {
        for plan in [&[Action::Kill][..], &[Action::Signal], &[Action::Other, Action::Kill]] {
            let place = Place { address, time: 1 };
            scenario.play(place, section_of(&sections, address), plan).expect("a sound ring");
        }
    }
}

#[test]
fn a_section_that_is_always_interrupted_is_given_up_and_counted() {
    let (sections, cpus) = (sections::of_the_ring(), two_cpus());
    let breakpoints = Debugger::start(|| ()).has_breakpoints();
    let mut given_up = BTreeSet::new();
    // The last instruction of each section stands for all.
    let last = |section: &Section| section.places[section.places.len() - 2];
    let (inside, boundary) = (Before::Inside, Before::Boundary);
    for (kind, before) in [(kind(16, &[]), inside), (kind(16, &[]), boundary), (kind(2000, &[200]), boundary)]
    {
        let scenario = Scenario { kind, before, overwrite: true, cpus, breakpoints, append };
        let places = scenario.places(&sections);
        for section in sections.iter().filter(|section| places.contains_key(&last(section))) {
            let (stops, outcome) = scenario.play_for_ever(Place { address: last(section), time: 1 }, section);
            println!("{}: given up after {stops} stops", section.name);
            // Of 10,000 restarts some may have had other reasons, on a busy machine.
            assert!((9_000..=10_000).contains(&stops));
            assert!(matches!(outcome, Some(Outcome::Lost(_))), "{outcome:?}");
            given_up.insert(section.name);
        }
    }
    assert_eq!(given_up.len(), sections.len(), "only {given_up:?}");
}

#[test]
fn sections_with_a_fault_are_found_out() {
    let (sections, cpus) = (broken::sections(), two_cpus());
    let breakpoints = Debugger::start(|| ()).has_breakpoints();
    let variants = [broken::SOUND].into_iter().chain(broken::BROKEN);
    for ((fault, append), section) in variants.zip(&sections) {
        let scenario = Scenario {
            kind: kind(16, &[]),
            before: Before::Inside,
            overwrite: false,
            cpus,
            breakpoints,
            append,
        };
        let mut found = Vec::new();
        for address in scenario.places(&sections).into_keys() {
            for plan in plans(cpus).into_iter().filter(|plan| plan[0] != Action::Switch) {
                let offset = address - section.start;
                if let Err(wrong) = scenario.play(Place { address, time: 1 }, section, &plan) {
                    found.push(format!("{offset:#x} {plan:?}: {wrong}"));
                }
            }
        }
        println!("{fault}: {} plays fail, as {}", found.len(), found.first().map_or("", String::as_str));
        assert_eq!(found.is_empty(), fault == broken::SOUND.0, "{fault}: {found:#?}");
    }
}
