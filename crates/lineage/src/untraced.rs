//! Programs of a recorded command that took no part although they should have: static ones, which
//! load no library, and those in sandboxes.
//!
//! What was executed is known from the kernel's events, or else from looks at the command's
//! descendants from time to time. Only programs that were seen are told.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    fs,
    io::Read as _,
    os::unix::{ffi::OsStrExt, fs::MetadataExt, process::ExitStatusExt},
    path::{Path, PathBuf},
    process::ExitStatus,
    time::{Duration, Instant},
};

use object::{
    Endianness, FileKind, Object as _, ObjectSection as _, ReadCache,
    elf::{FileHeader64, PT_INTERP},
    read::elf::{FileHeader as _, ProgramHeader as _},
};
use tompion_kernel::{events, records::UntrustedRecord};
use tompion_manifest::{Child, Program};
use tompion_os::BoundedFile;

use crate::untrusted_text::{MAX_NAME, tidy};

/// Most executed programs, and most introductions, that are remembered.
const MAX_EXECUTIONS: usize = 1 << 16;
/// Bytes of a program's file that are read: headers and the table of names.
const MAX_READ: u64 = 64 << 20;
/// Most scripts that are each other's interpreters. Source: `BINPRM_MAX_RECURSION` in Linux.
const MAX_INTERPRETERS: usize = 5;
/// Threads of a process whose children are looked at.
const MAX_THREADS: usize = 64;
/// Programs that the line names.
const MAX_NAMES: usize = 4;
/// Times between two looks at the descendants.
const LOOK_INTERVAL: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(2));
/// Times as long as a look lasted that the next one waits.
const LOOK_SHARE: u32 = 100;

/// Most programs, and most children, that a manifest names.
const MAX_NAMED: usize = 4096;
/// Most bytes of a program's path in a manifest.
const MAX_PATH: usize = 512;

/// Beginning of a list, as a manifest has it.
#[derive(Debug)]
pub struct Listed<T> {
    /// The first ones.
    pub items: Vec<T>,
    /// Number of the others.
    pub more: u64,
}

impl<T> Listed<T> {
    /// Lists so many, of which `beyond` more were not kept.
    fn new(all: impl ExactSizeIterator<Item = T>, beyond: u64) -> Self {
        let more = all.len().saturating_sub(MAX_NAMED) as u64 + beyond;
        Self { items: all.take(MAX_NAMED).collect(), more }
    }
}

/// Parent and end of a descendant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// Process id; another life may have had it before.
    pub pid: u32,
    /// Process that forked it.
    pub parent: u32,
    /// Status that its parent got, once it has ended.
    pub wait_status: Option<i32>,
}

/// Processes of a family and the programs that they executed.
#[derive(Debug, Default)]
pub struct Family {
    /// Programs that its processes executed.
    pub executions: BTreeSet<Execution>,
    /// Descendants, in the order in which they were forked.
    pub lives: Vec<Life>,
    /// Number of further executions, which were too many to be kept. Those that came too fast count
    /// whether or not their process belongs to the family.
    pub more_executions: u64,
    /// Number of further descendants, likewise.
    pub more_lives: u64,
}

impl Family {
    fn add_execution(&mut self, execution: Execution) {
        if self.executions.len() < MAX_EXECUTIONS {
            self.executions.insert(execution);
        } else if !self.executions.contains(&execution) {
            self.more_executions += 1;
        }
    }

    /// Returns the executed programs as a manifest has them.
    pub fn programs(&self) -> Listed<Program> {
        let program = |execution: &Execution| Program {
            pid: execution.pid.into(),
            file: tidy(&execution.file.to_string_lossy(), MAX_PATH),
        };
        Listed::new(self.executions.iter().map(program), self.more_executions)
    }

    /// Returns the descendants as a manifest has them.
    pub fn children(&self) -> Listed<Child> {
        let child = |life: &Life| {
            let end = life.wait_status.map(|status| crate::describe_end(ExitStatus::from_raw(status)));
            Child { pid: life.pid.into(), parent: life.parent.into(), end }
        };
        Listed::new(self.lives.iter().map(child), self.more_lives)
    }
}

/// A program that a process executed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Execution {
    /// The process.
    pub pid: u32,
    /// The file as the kernel names it.
    pub file: PathBuf,
}

/// Executions of a process's descendants, as the kernel's events tell them.
///
/// A child may be forked on one CPU and execute a program on another, whose ring is read first. So
/// records wait until all rings have been read, and then count in order of time.
#[derive(Debug)]
pub struct ExecutionLog {
    numbers: [Option<u16>; 3],
    family: Family,
    /// Living processes that belong to the family, by their numbers; of descendants that are kept,
    /// which life they have.
    members: HashMap<u32, Option<usize>>,
    waiting: Vec<(u64, Change)>,
}

/// Change of the family, or of the program that a process runs.
#[derive(Debug)]
enum Change {
    Forked { parent: u32, child: u32 },
    Executed(Execution),
    Ended { pid: u32, wait_status: i32 },
}

impl ExecutionLog {
    /// Makes a log for the descendants of these processes.
    pub fn new(roots: &[u32]) -> Self {
        let number = |name: &str| {
            let place = events::KNOWN.iter().position(|known| known.name == name)?;
            Some(events::FIRST + u16::try_from(place).ok()?)
        };
        Self {
            numbers: ["sched_process_fork", "sched_process_exec", "sched_process_exit"].map(number),
            family: Family::default(),
            members: roots.iter().map(|pid| (*pid, None)).collect(),
            waiting: Vec::new(),
        }
    }

    /// Looks at a record (`struct process_fork`, `process_exec` and `process_exit` in
    /// `src/bpf/process.h`).
    pub fn note(&mut self, record: &UntrustedRecord<'_>) {
        let Some(change) = self.change(record) else { return };
        if self.waiting.len() < MAX_EXECUTIONS {
            self.waiting.push((record.time, change));
        } else {
            self.count_dropped(&change);
        }
    }

    /// Counts a change that cannot wait. Whose it is will be known only when it is too late.
    fn count_dropped(&mut self, change: &Change) {
        let Family { executions, more_executions, more_lives, .. } = &mut self.family;
        match change {
            Change::Forked { parent, child } => *more_lives += u64::from(parent != child),
            Change::Executed(execution) => *more_executions += u64::from(!executions.contains(execution)),
            Change::Ended { .. } => {}
        }
    }

    fn change(&self, record: &UntrustedRecord<'_>) -> Option<Change> {
        let word = |at: usize| Some(u32::from_le_bytes(*record.payload.get(at..)?.first_chunk()?));
        let [fork, exec, exit] = self.numbers.map(|number| number == Some(record.number));
        if fork {
            return Some(Change::Forked { parent: word(4)?, child: word(12)? });
        }
        if exec {
            let name = record.payload.get(12..).unwrap_or_default();
            let name = name.split(|byte| *byte == 0).next().unwrap_or_default();
            let file = PathBuf::from(std::ffi::OsStr::from_bytes(name));
            return Some(Change::Executed(Execution { pid: record.pid, file }));
        }
        if exit {
            let wait_status = i32::from_le_bytes(word(8)?.to_le_bytes());
            return (wait_status >= 0).then_some(Change::Ended { pid: record.pid, wait_status });
        }
        None
    }

    /// Takes in what happened before a time, in nanoseconds of CLOCK_MONOTONIC. Since then, all
    /// rings have been read.
    pub fn settle(&mut self, before: u64) {
        if self.waiting.is_empty() {
            return;
        }
        // Stable: records of one CPU and time stay as its ring has them.
        self.waiting.sort_by_key(|(time, _)| *time);
        let due = self.waiting.partition_point(|(time, _)| *time < before);
        let due: Vec<(u64, Change)> = self.waiting.drain(..due).collect();
        due.into_iter().for_each(|(_, change)| self.apply(change));
    }

    fn apply(&mut self, change: Change) {
        let Self { family, members, .. } = self;
        match change {
            // A thread.
            Change::Forked { parent, child } if parent == child => {}
            Change::Forked { parent, child } => {
                // The process that had the number before has ended, even if that was not seen.
                members.remove(&child);
                if !members.contains_key(&parent) {
                    return;
                }
                if family.lives.len() < MAX_EXECUTIONS {
                    members.insert(child, Some(family.lives.len()));
                    family.lives.push(Life { pid: child, parent, wait_status: None });
                } else {
                    members.insert(child, None);
                    family.more_lives += 1;
                }
            }
            Change::Executed(execution) => {
                if members.contains_key(&execution.pid) {
                    family.add_execution(execution);
                }
            }
            Change::Ended { pid, wait_status } => {
                // This was its last thread: whatever has the number next is another process.
                let place = members.remove(&pid).flatten();
                let life = place.and_then(|place| family.lives.get_mut(place));
                if let Some(life) = life {
                    life.wait_status = Some(wait_status);
                }
            }
        }
    }

    /// Returns the family as the events tell it.
    pub fn finish(mut self) -> Family {
        self.settle(u64::MAX);
        self.family
    }
}

/// Looks at the descendants of a command from time to time, where no events of the kernel tell what
/// they execute.
#[derive(Debug)]
pub struct Looks {
    command: u32,
    next: Instant,
    interval: Duration,
    family: Family,
    /// Most programs that one look saw and could not keep: the next look sees them again.
    more_executions: u64,
}

impl Looks {
    /// The first look is at the command, which has been executed.
    pub fn new(command: u32) -> Self {
        let family = Family::default();
        Self { command, next: Instant::now(), interval: LOOK_INTERVAL.0, family, more_executions: 0 }
    }

    /// Looks if it is time to. Returns the time of the next look.
    pub fn look(&mut self) -> Instant {
        let begun = Instant::now();
        if begun >= self.next {
            let file = program_of(self.command);
            file.iter().for_each(|file| self.insert(self.command, file.clone()));
            self.look_below(self.command, file.as_deref());
            self.count_look();
            self.interval = (self.interval * 2).min(LOOK_INTERVAL.1);
            self.next = Instant::now() + self.interval.max(begun.elapsed() * LOOK_SHARE);
        }
        self.next
    }

    fn look_below(&mut self, command: u32, file: Option<&Path>) {
        let mut parents = vec![(command, file.map(Path::to_owned))];
        let mut known = HashSet::from([command]);
        while let Some((parent, program)) = parents.pop() {
            for child in
                children_of(parent).into_iter().filter(|child| known.insert(*child)).collect::<Vec<_>>()
            {
                let file = program_of(child);
                // A child that has executed nothing is its parent's copy, not a program of its own.
                if let Some(file) = file.clone().filter(|file| Some(file) != program.as_ref()) {
                    self.insert(child, file);
                }
                parents.push((child, file));
            }
        }
    }

    fn insert(&mut self, pid: u32, file: PathBuf) {
        self.family.add_execution(Execution { pid, file });
    }

    fn count_look(&mut self) {
        let more = std::mem::take(&mut self.family.more_executions);
        self.more_executions = self.more_executions.max(more);
    }

    /// Returns what was seen.
    pub fn finish(self) -> Family {
        Family { more_executions: self.more_executions, ..self.family }
    }
}

/// The file that a process runs, if it is still there.
fn program_of(pid: u32) -> Option<PathBuf> {
    let file = fs::read_link(format!("/proc/{pid}/exe")).ok()?;
    // Another mount namespace's path, or a file that was removed, names something else here.
    let same = |path: &Path| fs::metadata(path).map(|found| (found.dev(), found.ino())).ok();
    let is_same = same(&file)? == same(Path::new(&format!("/proc/{pid}/exe")))?;
    is_same.then_some(file)
}

fn children_of(pid: u32) -> Vec<u32> {
    let threads = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten().take(MAX_THREADS);
    let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
    lists
        .flat_map(|list| list.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>())
        .collect()
}

/// Processes that introduced themselves, with their programs.
#[derive(Debug, Default)]
pub struct Introductions(BTreeMap<u32, BTreeSet<PathBuf>>, usize);

impl Introductions {
    /// Notes that a process introduced itself.
    pub fn add(&mut self, pid: u32, executable: &str) {
        if self.1 < MAX_EXECUTIONS && self.0.entry(pid).or_default().insert(executable.into()) {
            self.1 += 1;
        }
    }

    fn has(&self, pid: u32, file: &Path) -> bool {
        self.0.get(&pid).is_some_and(|files| files.contains(file))
    }

    fn is_complete(&self) -> bool {
        self.1 < MAX_EXECUTIONS
    }
}

/// Reason why a program took no part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Static,
    NotSixtyFour,
    SetUserId,
    Unknown,
}

impl Reason {
    const fn text(self) -> &'static str {
        match self {
            Self::Static => "static",
            Self::NotSixtyFour => "32-bit",
            Self::SetUserId => "set-user-ID",
            Self::Unknown => "reason unknown",
        }
    }
}

/// Programs that were expected to take part.
#[derive(Clone, Copy, Debug)]
pub struct Expectation {
    /// Whether libraries are preloaded, so that each program should have taken part.
    pub preloads: bool,
    /// The user who ran the command.
    pub user: u32,
    /// Whether the kernel's events of these programs are recorded.
    pub has_kernel: bool,
}

/// Names the programs that were to take part and did not introduce themselves; none if all did.
pub fn describe(
    executions: &BTreeSet<Execution>,
    introductions: &Introductions,
    expectation: Expectation,
) -> Option<String> {
    // With that variable all of them are kept out, which is said elsewhere.
    let is_disabled = std::env::var_os("TOMPION_DISABLE").is_some_and(|value| value == "1");
    if is_disabled || !introductions.is_complete() {
        return None;
    }
    let mut files: BTreeMap<&Path, Option<(PathBuf, Reason)>> = BTreeMap::new();
    let mut absent: BTreeMap<(PathBuf, Reason), BTreeSet<u32>> = BTreeMap::new();
    for Execution { pid, file } in executions {
        let found = files.entry(file).or_insert_with(|| {
            let program = interpreter_of(file)?;
            reason(&program, expectation).map(|reason| (program, reason))
        });
        if let Some((program, reason)) =
            found.as_ref().filter(|(program, _)| !introductions.has(*pid, program))
        {
            absent.entry((program.clone(), *reason)).or_default().insert(*pid);
        }
    }
    let name = |((program, reason), pids): (&(PathBuf, Reason), &BTreeSet<u32>)| {
        let name = program.file_name().unwrap_or_default().to_string_lossy();
        let times = if pids.len() == 1 { String::new() } else { format!(", {} processes", pids.len()) };
        format!("{} ({}{times})", tidy(&name, MAX_NAME), reason.text())
    };
    let mut names: Vec<String> = absent.iter().take(MAX_NAMES).map(name).collect();
    if absent.len() > MAX_NAMES {
        names.push(format!("and {} more", absent.len() - MAX_NAMES));
    }
    let but = if expectation.has_kernel { " but for its kernel events" } else { "" };
    (!names.is_empty()).then(|| format!("not traced{but}: {}", names.join(", ")))
}

/// The program that the kernel ran for a file: itself, or what a script names. None if that can't
/// be found here.
fn interpreter_of(file: &Path) -> Option<PathBuf> {
    let mut file = file.to_owned();
    for _ in 0..MAX_INTERPRETERS {
        if !file.is_absolute() {
            return None;
        }
        file = fs::canonicalize(&file).ok()?;
        let mut begin = [0; 256];
        let mut opened = BoundedFile::open(&file, begin.len() as u64).ok()?;
        let size = opened.read(&mut begin).ok()?;
        let Some(line) = begin.get(..size)?.strip_prefix(b"#!") else { return Some(file) };
        let line = line.split(|byte| *byte == b'\n').next()?.trim_ascii_start();
        let program = line.split(|byte| byte.is_ascii_whitespace()).next()?;
        file = PathBuf::from(std::ffi::OsStr::from_bytes(program));
    }
    None
}

/// Reason why a program may have taken no part; none if it was not to, or is no program.
fn reason(program: &Path, expectation: Expectation) -> Option<Reason> {
    let cache = ReadCache::new(BoundedFile::open(program, MAX_READ).ok()?);
    let (is_dynamic, is_long) = match FileKind::parse(&cache).ok()? {
        FileKind::Elf64 => (has_interpreter(&cache)?, true),
        FileKind::Elf32 => (true, false),
        _ => return None,
    };
    if !expectation.preloads {
        // A program that links the library is to be recorded.
        let names = object::File::parse(&cache).ok()?;
        let names = names.section_by_name(".dynstr")?.data().ok()?;
        names.windows(LIBRARY.len()).find(|window| *window == LIBRARY)?;
    }
    let metadata = fs::metadata(program).ok()?;
    Some(if !is_long {
        Reason::NotSixtyFour
    } else if !is_dynamic {
        Reason::Static
    } else if metadata.mode() & 0o4000 != 0 && metadata.uid() != expectation.user {
        Reason::SetUserId
    } else {
        Reason::Unknown
    })
}

/// The library's name in a program that is linked with it.
const LIBRARY: &[u8] = b"libtompion.so";

fn has_interpreter(cache: &ReadCache<BoundedFile>) -> Option<bool> {
    let header = FileHeader64::<Endianness>::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, cache).ok()?;
    Some(segments.iter().any(|segment| segment.p_type(endian) == PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An ELF header of 64 bits with one segment of a type.
    fn program(segment: u32) -> Vec<u8> {
        let mut bytes = vec![0; 120];
        bytes[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        bytes[16..20].copy_from_slice(&[2, 0, 62, 0]);
        bytes[20] = 1;
        bytes[32] = 64;
        bytes[52] = 64;
        bytes[54] = 56;
        bytes[56] = 1;
        bytes[64..68].copy_from_slice(&segment.to_le_bytes());
        bytes
    }

    const EXPECTATION: Expectation = Expectation { preloads: true, user: 0, has_kernel: false };

    fn executions(dir: &Path, executed: &[(u32, &str)]) -> BTreeSet<Execution> {
        executed.iter().map(|(pid, name)| Execution { pid: *pid, file: dir.join(name) }).collect()
    }

    #[test]
    fn programs_that_did_not_introduce_themselves_are_named_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let dir = fs::canonicalize(dir.path()).unwrap();
        fs::write(dir.join("static"), program(1)).unwrap();
        fs::write(dir.join("dynamic"), program(PT_INTERP)).unwrap();
        fs::write(dir.join("script"), format!("#! {}/dynamic -x\n", dir.display())).unwrap();
        let mut old = b"\x7fELF\x01\x01\x01".to_vec();
        old.resize(52, 0);
        fs::write(dir.join("old"), old).unwrap();
        fs::write(dir.join("text"), "nothing\n").unwrap();
        let mut introduced = Introductions::default();
        introduced.add(1, &format!("{}/dynamic", dir.display()));
        let seen = executions(
            &dir,
            &[(1, "script"), (2, "static"), (3, "static"), (4, "old"), (5, "gone"), (6, "text")],
        );
        let text = describe(&seen, &introduced, EXPECTATION);
        assert_eq!(text.as_deref(), Some("not traced: old (32-bit), static (static, 2 processes)"));
        let text = describe(&executions(&dir, &[(7, "script")]), &introduced, EXPECTATION);
        assert_eq!(text.as_deref(), Some("not traced: dynamic (reason unknown)"));
        // Nothing was preloaded, and none is linked with the library.
        let nothing = Expectation { preloads: false, ..EXPECTATION };
        assert_eq!(describe(&seen, &introduced, nothing), None);
    }

    #[test]
    fn scripts_that_name_each_other_end() {
        let dir = tempfile::tempdir().unwrap();
        let script = dir.path().join("script");
        fs::write(&script, format!("#!{}", script.display())).unwrap();
        assert_eq!(interpreter_of(&script), None);
        for text in ["#!", "#! \n", "", "#!sh"] {
            fs::write(&script, text).unwrap();
            assert!(
                interpreter_of(&script).is_none_or(|program| program == fs::canonicalize(&script).unwrap())
            );
        }
        assert_eq!(interpreter_of(Path::new("relative")), None);
    }

    #[test]
    fn executions_of_descendants_are_kept() {
        let mut log = ExecutionLog::new(&[10]);
        let [fork, exec, _] = log.numbers.map(|number| number.expect("a known event"));
        let mut note = |number, pid, payload: &[u8]| {
            log.note(&UntrustedRecord { number, tid: pid, pid, time: 0, extra: 0, payload, context: &[] });
        };
        let forked = |parent: u32, child: u32| [0, parent, 0, child].map(u32::to_le_bytes).concat();
        note(fork, 10, &forked(10, 11));
        note(fork, 12, &forked(12, 13));
        note(exec, 11, b"____________/bin/one\0garbage");
        note(exec, 13, b"____________/bin/two\0");
        for length in 0..16 {
            note(fork, 11, &forked(11, 14)[..length]);
            note(exec, 14, &[b'x'; 16][..length]);
        }
        assert_eq!(
            log.finish().executions.into_iter().collect::<Vec<_>>(),
            executions(Path::new("/bin"), &[(11, "one")]).into_iter().collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_child_belongs_to_the_family_whichever_ring_is_read_first() {
        let mut log = ExecutionLog::new(&[10]);
        let [fork, exec, _] = log.numbers.map(|number| number.expect("a known event"));
        let forked = |parent: u32, child: u32| [0, parent, 0, child].map(u32::to_le_bytes).concat();
        let [first, second] = [forked(10, 11), forked(10, 12)];
        let record = |number, pid, time, payload| UntrustedRecord {
            number,
            tid: pid,
            pid,
            time,
            extra: 0,
            payload,
            context: &[],
        };
        // One CPU's ring has the child's program, and the next one's has the fork.
        log.note(&record(exec, 11, 200, b"____________/bin/one\0"));
        log.settle(150);
        log.note(&record(fork, 10, 100, &first));
        log.settle(300);
        // A process that is in no family at its time is in none, whatever its number becomes.
        log.note(&record(exec, 12, 400, b"____________/bin/two\0"));
        log.note(&record(fork, 10, 500, &second));
        assert_eq!(log.finish().executions, executions(Path::new("/bin"), &[(11, "one")]));
    }

    #[test]
    fn children_have_the_end_that_their_parents_get() {
        let mut log = ExecutionLog::new(&[10]);
        let [fork, _, exit] = log.numbers.map(|number| number.expect("a known event"));
        let mut note = |number, pid, payload: &[u32]| {
            let payload: Vec<u8> = payload.iter().flat_map(|word| word.to_le_bytes()).collect();
            let context = &[];
            log.note(&UntrustedRecord {
                number,
                tid: pid,
                pid,
                time: 0,
                extra: 0,
                payload: &payload,
                context,
            });
        };
        note(fork, 10, &[10, 10, 11, 11]);
        // A thread, and a process that lives on.
        note(fork, 11, &[11, 11, 12, 11]);
        note(fork, 11, &[11, 11, 13, 13]);
        // One thread of two, then the last one.
        note(exit, 11, &[12, 20, u32::MAX]);
        note(exit, 11, &[11, 20, 3 << 8]);
        note(exit, 99, &[99, 20, 0]);
        let child = |pid, parent, end: Option<&str>| Child { pid, parent, end: end.map(str::to_owned) };
        let expected = [child(11, 10, Some("exited with 3")), child(13, 11, None)];
        assert_eq!(log.finish().children().items, expected);
    }

    #[test]
    fn a_number_that_is_used_again_is_another_process() {
        let mut log = ExecutionLog::new(&[10]);
        let [fork, exec, exit] = log.numbers.map(|number| number.expect("a known event"));
        let mut time = 0;
        let mut note = |number, pid, payload: &[u8]| {
            time += 1;
            log.note(&UntrustedRecord { number, tid: pid, pid, time, extra: 0, payload, context: &[] });
        };
        let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let forked = |parent: u32, child: u32| words(&[parent, parent, child, child]);
        note(fork, 10, &forked(10, 11));
        note(exit, 11, &words(&[11, 20, 1 << 8]));
        note(fork, 10, &forked(10, 11));
        note(exit, 11, &words(&[11, 20, 2 << 8]));
        // The end of this one was lost; then a stranger has its number.
        note(fork, 10, &forked(10, 12));
        note(fork, 90, &forked(90, 12));
        note(exec, 12, b"____________/bin/strange\0");
        note(exit, 12, &words(&[12, 20, 3 << 8]));
        let family = log.finish();
        let children = family.children().items;
        let children: Vec<_> =
            children.iter().map(|child| (child.pid, child.parent, child.end.as_deref())).collect();
        let expected = [(11, 10, Some("exited with 1")), (11, 10, Some("exited with 2")), (12, 10, None)];
        assert_eq!((children, family.executions.len()), (expected.to_vec(), 0));
    }

    fn executed(pid: u32, name: u32) -> Change {
        Change::Executed(Execution { pid, file: name.to_string().into() })
    }

    #[test]
    fn descendants_beyond_the_limits_are_counted() {
        let mut log = ExecutionLog::new(&[10]);
        let last = 100 + MAX_EXECUTIONS as u32 + 2;
        for child in 100..=last {
            log.apply(Change::Forked { parent: 10, child });
            log.apply(executed(10, child));
        }
        // A program that is kept already, and a grandchild whose parent is not.
        log.apply(executed(10, 100));
        log.apply(Change::Forked { parent: last, child: last + 1 });
        log.apply(executed(last + 1, last + 1));
        log.apply(Change::Ended { pid: last + 1, wait_status: 0 });
        let family = log.finish();
        let more = (MAX_EXECUTIONS - MAX_NAMED + 4) as u64;
        assert_eq!((family.children().items.len(), family.children().more), (MAX_NAMED, more));
        assert_eq!((family.programs().items.len(), family.programs().more), (MAX_NAMED, more));
    }

    #[test]
    fn a_stranger_whose_fork_was_lost_is_not_the_child_that_ended() {
        let mut log = ExecutionLog::new(&[10]);
        log.apply(Change::Forked { parent: 10, child: 11 });
        log.apply(Change::Ended { pid: 11, wait_status: 3 << 8 });
        log.apply(executed(11, 1));
        log.apply(Change::Forked { parent: 11, child: 12 });
        log.apply(Change::Ended { pid: 11, wait_status: 9 });
        assert!(!log.members.contains_key(&11), "{:?}", log.members);
        let family = log.finish();
        assert_eq!(family.lives, [Life { pid: 11, parent: 10, wait_status: Some(3 << 8) }]);
        assert!(family.executions.is_empty());
    }

    #[test]
    fn changes_that_come_too_fast_are_counted_by_their_kind() {
        let mut log = ExecutionLog::new(&[10]);
        let [fork, exec, exit] = log.numbers.map(|number| number.expect("a known event"));
        let mut note = |number, payload: &[u8]| {
            log.note(&UntrustedRecord { number, tid: 10, pid: 10, time: 0, extra: 0, payload, context: &[] });
        };
        let forked = |parent: u32, child: u32| [0, parent, 0, child].map(u32::to_le_bytes).concat();
        for child in 0..MAX_EXECUTIONS as u32 {
            note(fork, &forked(10, 100 + child));
        }
        note(fork, &forked(10, 1));
        note(fork, &forked(10, 10));
        note(exec, b"____________/bin/one\0");
        note(exec, b"____________/bin/two\0");
        note(exit, &[0; 12]);
        let family = log.finish();
        assert_eq!((family.lives.len(), family.more_lives), (MAX_EXECUTIONS, 1));
        assert_eq!((family.executions.len(), family.more_executions), (0, 2));
    }

    #[test]
    fn looks_count_what_they_cannot_keep_once() {
        let mut looks = Looks::new(10);
        for _ in 0..2 {
            for pid in 0..MAX_EXECUTIONS as u32 + 3 {
                looks.insert(pid, "/bin/one".into());
            }
            looks.count_look();
        }
        let family = looks.finish();
        assert_eq!((family.executions.len(), family.more_executions), (MAX_EXECUTIONS, 3));
    }
}
