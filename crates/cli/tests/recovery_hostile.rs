//! A killed session may leave anything: truncated files, files with false contents, or of another
//! user.

use std::{
    fs::{self, OpenOptions},
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{
    kills::{Plan, Progress, ROOMY, found_in},
    recovery::{Killed, Victim, kept, kill},
    support::{self, Finished, TestDir, finish, installed, rounds, run, start},
};

/// Returns all files below a folder.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() { found.extend(files(&path)) } else { found.push(path) }
    }
    found.sort();
    found
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    run(Command::new("cp").arg("-a").arg("--sparse=never").arg(from).arg(to)).succeeded();
}

struct Random(u64);

impl Random {
    fn below(&mut self, most: u64) -> u64 {
        for shift in [13, 7, 17] {
            self.0 ^= if shift == 7 { self.0 >> shift } else { self.0 << shift };
        }
        self.0 % most.max(1)
    }
}

/// Asserts that the command reports in a few lines what is wrong, or that nothing is.
fn is_civil(said: &Finished, what: &str) {
    let code = said.status.code();
    assert!(matches!(code, Some(0 | 1)), "{what}: {}\n{}", said.status, said.err);
    assert!(!said.err.contains("panicked"), "{what}: {}", said.err);
    let lines = said.err.lines().count();
    assert!((1..=4).contains(&lines), "{what}: {}", said.err);
    assert!(
        said.err.lines().all(|line| line.starts_with("tompion: ") && line.len() < 600),
        "{what}: {}",
        said.err
    );
}

fn killed() -> Killed {
    let plan = Plan { delay: Duration::from_millis(600), pause: 2000, storm_us: 0 };
    let options = kept(&["--subbuf-size", "64K", "--subbufs", "4"]);
    kill(&options, &plan, Victim::Both)
}

#[test]
fn mutated_files_are_recovered_or_refused_in_a_line() {
    let killed = killed();
    let (trace, rings) = (killed.trace().folder, killed.rings());
    let (trace_before, rings_before) = (killed.dir.path("trace.before"), killed.dir.path("rings.before"));
    copy(&trace, &trace_before);
    copy(&rings, &rings_before);
    let mut random = Random(0x5eed_1234_5678_9abc);
    for round in 0..rounds(40, 3000) {
        copy(&trace_before, &trace);
        copy(&rings_before, &rings);
        let all: Vec<PathBuf> = files(&trace).into_iter().chain(files(&rings)).collect();
        let victim = &all[random.below(all.len() as u64) as usize];
        let what = format!("round {round}, {}", victim.display());
        mutate(victim, &mut random);
        is_civil(&run(&mut killed.dir.tompion(&["recover", "trace"])), &what);
        is_civil(&run(&mut killed.dir.tompion(&["recover", "trace"])), &what);
        let said = run(&mut killed.dir.tompion(&["stat", "trace"]));
        assert!(matches!(said.status.code(), Some(0 | 1)), "{what}: {}", said.err);
        let _ = fs::remove_dir_all(&rings);
    }
}

/// Cuts, lengthens, or changes some bytes: anywhere, or where a ring's and a file's beginning are.
fn mutate(path: &Path, random: &mut Random) {
    let file = OpenOptions::new().read(true).write(true).open(path).expect("a file of this test");
    let len = file.metadata().expect("a file").len();
    match random.below(8) {
        0 => file.set_len(random.below(len)).expect("a shorter file"),
        1 => file.set_len(len + random.below(1 << 20)).expect("a longer file"),
        _ => {
            for _ in 0..=random.below(6) {
                // The headers of the rings.
                let page = random.below(8) * (4096 + (256 << 10));
                let near = [random.below(200), random.below(len), page + random.below(200)];
                let at = near[random.below(3) as usize] & !7;
                let word =
                    [0, u64::MAX, random.below(u64::MAX), 1 << random.below(63), 8 * random.below(1 << 20)];
                let bytes = word[random.below(5) as usize].to_le_bytes();
                if at + 8 <= len {
                    file.write_all_at(&bytes, at).expect("a changed file");
                }
            }
        }
    }
}

#[test]
fn missing_files_are_named() {
    for (remove, expected) in [
        ("rings", "is not there, or keeps no rings"),
        ("rings/clock", "clock: No such file"),
        ("rings/session.json", "is not there, or keeps no rings"),
        ("trace/tompion.json", "expected a recording's folder"),
    ] {
        let killed = killed();
        let path = killed.dir.path(remove);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap()
        } else {
            fs::remove_file(path).unwrap()
        }
        let said = killed.recover().exited(1);
        assert!(said.err.contains(expected), "without {remove}: {}", said.err);
    }
}

/// A program that truncates its own rings harms neither other programs nor the session.
#[test]
fn a_program_that_cuts_its_rings_off_harms_itself_alone() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = [0, 1].map(|index| Progress::new(dir.path(&format!("progress-{index}"))));
    let [first, second] = [0, 1].map(|index: usize| {
        let count = [0, 40_000][index];
        format!("{} {} 4000 0 {count}", program.display(), progress[index].path().display())
    });
    let script = format!("{first} & {second}; kill -9 $! 2>/dev/null; wait; exit 0");
    let recording = start(&mut dir.recording("trace", &kept(ROOMY), &[&"sh", &"-c", &script]));
    let victim = progress[0].pid();
    progress[1].pid();
    let rings = dir.path(&format!("rings/emitter-{victim}/rings"));
    OpenOptions::new().write(true).open(rings).unwrap().set_len(4096).unwrap();
    let said = finish(recording, "tompion record").succeeded();
    assert!(said.err.contains(&format!("emitter ({victim}) cut off its own rings")), "{}", said.err);
    let trace = dir.trace("trace");
    let manifest = trace.manifest();
    let of = |pid: u32| {
        let sources = manifest["sources"].as_array().expect("processes");
        sources.iter().find(|source| source["pid"] == pid).expect("the process").clone()
    };
    assert!(of(victim)["lost"]["refused"].as_u64().is_some_and(|refused| refused > 0));
    let other = of(progress[1].pid());
    assert_eq!(
        (&other["events"], other["lost"].as_object().map(serde_json::Map::len)),
        (&80_000.into(), Some(0))
    );
}

/// Runs a script where a folder of so many KiB can be mounted; false if that can't be.
fn with_small_disk(dir: &TestDir, size: u32, script: &str) -> Option<Finished> {
    fs::create_dir(dir.path("disk")).unwrap();
    let mount = format!("mount -t tmpfs -o size={size}k tmpfs disk");
    let probe = run(dir.tompion(&[]).env_clear().arg("--version"));
    assert!(probe.status.success());
    let mut command = Command::new("unshare");
    command.args(["-rm", "sh", "-ec", &format!("{mount} 2>/dev/null || exit 77\n{script}")]);
    command.current_dir(dir.path("")).env("TZ", "UTC").env("T", support::TOMPION);
    let said = run(&mut command);
    if !installed("unshare") || said.status.code() == Some(77) {
        println!("left out: no right to mount");
        return None;
    }
    Some(said)
}

#[test]
fn a_full_disk_for_the_rings_is_reported_at_once_and_kills_no_process() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let script = format!(
        "$T record --backing disk/rings -o trace -- {} {} 0 0 1000 alone || test $? = 125; ls disk",
        program.display(),
        progress.path().display()
    );
    let Some(said) = with_small_disk(&dir, 4096, &script) else { return };
    let said = said.succeeded();
    assert!(said.out.contains("all appended"), "{}{}", said.out, said.err);
    assert!(said.err.contains("is not recorded: can't reserve "), "{}", said.err);
    assert!(said.err.contains("No space left on device"), "{}", said.err);
    assert!(!said.out.contains("rings"), "nothing half-made is left: {}", said.out);
}

#[test]
fn events_that_a_full_disk_kept_out_of_the_trace_stay_in_the_rings() {
    let dir = TestDir::new();
    let program = dir.program("emitter");
    let progress = Progress::new(dir.path("progress"));
    let script = format!(
        "$T record --backing rings --subbuf-size 4M -o disk/trace -- {} {} 0 0 20000 || test $? = 125\n\
         mount -o remount,size=1g disk\n$T recover disk/trace\ncp -r disk/trace trace",
        program.display(),
        progress.path().display()
    );
    let Some(said) = with_small_disk(&dir, 900, &script) else { return };
    let said = said.succeeded();
    assert!(said.err.contains("what the rings hold stays in "), "{}", said.err);
    let trace = dir.trace("trace");
    assert_eq!(trace.stat()["lost"]["total"], 0, "{}", said.err);
    assert_eq!(found_in(&trace).len(), 40_000);
}
