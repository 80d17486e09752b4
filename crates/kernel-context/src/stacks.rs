//! Stacks of the kernel's events: numbers in the trace, their descriptions, and which files
//! processes have in memory.
//!
//! ```text
//! ring:   stack 0x8a31…: addresses │ event … 0x8a31…     repeated now and then, in each CPU's ring
//! trace:  stack 7: addresses, names   (once, stream_initial)       event … stack 7
//! ```
//!
//! Stacks are compared whole, so a number never means another one. The files that a process has in
//! memory are read when a stack of it has an unknown address. A flight recorder's events are read
//! too late for that: it reads all processes now and then.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    sync::Arc,
    time::{Duration, Instant},
};

use tompion_kernel::{
    context::{self, Contexts, NO_STACK, OF_PROGRAM, STACKS_FORGOTTEN, Values},
    decode::Class,
    records::UntrustedRecord,
    stacks::{self, Files, KernelSymbols, Life, Object, StackEvent},
};

use tompion_lineage::proc_files::all_processes;

/// Most stacks that are compared with others; then all are forgotten, and described once more.
const MAX_STACKS: usize = 1 << 16;
/// Number of a ring's stacks at which old ones are dropped, and of a process's at which all are
/// forgotten.
const MANY: usize = 1 << 12;
/// Most processes whose memory is known.
const MAX_PROCESSES: usize = 1 << 14;
/// Pause before the memory of a process is read again, at first and at the most: programs without
/// frame pointers have addresses in their stacks that belong to no file.
const PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(5));

/// Most files that are known of a process's memory; then all are forgotten, and described once
/// more.
const MAX_OBJECTS: usize = 1 << 12;

/// Definition to be written into the trace.
pub struct Definition {
    /// The moment from which on it holds.
    pub time: u64,
    /// Class of the definition.
    pub class: Class,
    /// Its payload.
    pub payload: Vec<u8>,
}

/// A stack's addresses.
type Frames = Arc<[u64]>;

/// The stacks of a recording.
pub struct Stacks {
    contexts: Contexts,
    symbols: KernelSymbols,
    /// Numbers by process and addresses.
    numbers: HashMap<(u32, Frames), u32>,
    last: u32,
    /// Stacks that each ring has described, by its numbers.
    described: Vec<HashMap<u64, DescribedStack>>,
    /// Number of a ring's stacks at which old ones are dropped.
    many: usize,
    memory: Memory,
    definitions: Vec<Definition>,
    /// Events whose stack could not be recorded.
    missed: u64,
}

/// A stack as a ring has described it last.
struct DescribedStack {
    number: u32,
    /// Whether it is a program's.
    is_of_program: bool,
    frames: Frames,
    position: u64,
}

impl Stacks {
    /// Makes an empty table for this many rings.
    pub fn new(contexts: Contexts, rings: usize) -> Self {
        let wants_names = contexts.has(context::Context::KernelStack);
        Self {
            contexts,
            symbols: if wants_names { KernelSymbols::of_this_kernel() } else { KernelSymbols::default() },
            numbers: HashMap::new(),
            last: 0,
            described: (0..rings).map(|_| HashMap::new()).collect(),
            many: MANY,
            memory: Memory::default(),
            definitions: Vec::new(),
            missed: 0,
        }
    }

    /// The largest number of a stack so far.
    pub fn last(&self) -> u32 {
        self.last
    }

    /// Goes on behind the numbers of a trace that another recorder has begun. What they mean is not
    /// known: each stack is described again.
    pub fn resume(&mut self, last: u32) {
        self.last = last;
    }

    /// Events that should have a stack, and have none.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// Returns the definitions to be written since the last time.
    pub fn definitions(&mut self) -> Vec<Definition> {
        self.memory.look_again(&mut self.definitions);
        std::mem::take(&mut self.definitions)
    }

    /// Reads which files all processes have in memory, as of this time.
    pub fn look_at_all(&mut self, time: u64) {
        if self.contexts.has(context::Context::UserStack) {
            self.memory.look_at_all(time, &mut self.definitions);
        }
    }

    /// Takes a record that tells of a stack. False if it is none.
    pub fn learn(&mut self, ring: usize, position: u64, record: &UntrustedRecord<'_>) -> bool {
        let Some((key, frames)) = context::stack(record.payload) else { return false };
        let mut frames: Frames = frames.collect();
        if record.extra != OF_PROGRAM {
            // Before they are compared: other programs of the recorder have other frames.
            frames = stacks::without_recorder(&frames, &self.symbols).into();
        }
        let known = self.numbers.get(&(record.extra, frames.clone())).copied();
        let number = known.unwrap_or_else(|| self.add(record, &frames));
        let described = &mut self.described[ring];
        let is_of_program = record.extra == OF_PROGRAM;
        described.insert(key, DescribedStack { number, is_of_program, frames, position });
        if described.len() >= self.many {
            described.retain(|_, stack| stack.position + STACKS_FORGOTTEN > position);
            self.many = MANY.max(2 * described.len());
        }
        true
    }

    fn add(&mut self, record: &UntrustedRecord<'_>, frames: &Frames) -> u32 {
        if self.numbers.len() >= MAX_STACKS {
            self.numbers.clear();
        }
        self.last += 1;
        self.numbers.insert((record.extra, frames.clone()), self.last);
        self.describe(record.time, self.last, record.extra == OF_PROGRAM, frames);
        self.last
    }

    fn describe(&mut self, time: u64, number: u32, is_of_program: bool, frames: &Frames) {
        let (described, payload) = if is_of_program {
            (StackEvent::UserStack, stacks::user_stack(number, frames))
        } else {
            (StackEvent::KernelStack, stacks::kernel_stack(number, frames, &self.symbols))
        };
        self.definitions.push(Definition { time, class: Class::Stacks(described), payload });
    }

    /// Describes all again that events may still refer to, as of this time: stacks keep their
    /// numbers. Others are described when they come again.
    pub fn describe_again(&mut self, time: u64) {
        self.definitions.clear();
        let rings = self.described.iter().flat_map(HashMap::values);
        let stacks: BTreeMap<u32, (bool, Frames)> =
            rings.map(|stack| (stack.number, (stack.is_of_program, stack.frames.clone()))).collect();
        self.numbers.clear();
        for (number, (is_of_program, frames)) in stacks {
            self.describe(time, number, is_of_program, &frames);
            let extra = if is_of_program { OF_PROGRAM } else { 0 };
            self.numbers.insert((extra, frames), number);
        }
        self.memory.tell_again(time, &mut self.definitions);
    }

    /// The numbers that an event's stacks have in the trace; 0 for none.
    pub fn numbers(&mut self, ring: usize, record: &UntrustedRecord<'_>, values: &Values) -> [u32; 2] {
        if !self.contexts.has_stacks() {
            return [0; 2];
        }
        let mut missed = false;
        let mut find = |key| {
            let described = self.described[ring].get(&key);
            missed |= described.is_none() && key != NO_STACK;
            described
        };
        let (kernel, user) = (find(values.kernel_stack), find(values.user_stack));
        self.missed += u64::from(missed);
        if let Some(stack) = user {
            self.memory.look(record, stack, &mut self.definitions);
        }
        [kernel, user].map(|stack| stack.map_or(0, |stack| stack.number))
    }

    /// Takes the change of a process's memory that an event reports.
    pub fn follow(&mut self, class: Class, record: &UntrustedRecord<'_>) {
        if !self.contexts.has(context::Context::UserStack) {
            return;
        }
        match stacks::life(class, record.payload) {
            Some(Life::Child(child)) => self.memory.inherit(record.pid, child),
            Some(Life::Program) => self.memory.forget(record.pid),
            None => {}
        }
    }
}

/// Files that processes have in their memory.
#[derive(Default)]
struct Memory {
    processes: HashMap<u32, Process>,
    files: Files,
    /// Processes to be looked at again, and since when something of them is not known.
    pending: HashMap<u32, u64>,
}

/// Files of one process.
struct Process {
    objects: Vec<Object>,
    /// Number of objects that the trace has.
    described: usize,
    /// Numbers of stacks whose addresses were looked for.
    seen: HashSet<u32>,
    /// Time of the last reading, and the pause before the next.
    looked: Option<(Instant, Duration)>,
}

impl Memory {
    fn forget(&mut self, pid: u32) {
        self.processes.remove(&pid);
        self.pending.remove(&pid);
    }

    /// A child begins with the memory of its parent.
    fn inherit(&mut self, parent: u32, child: u32) {
        let objects = self.processes.get(&parent).map_or(Vec::new(), |parent| parent.objects.clone());
        self.make_room();
        self.processes.insert(child, Process::with(objects));
    }

    fn make_room(&mut self) {
        if self.processes.len() >= MAX_PROCESSES {
            self.processes.clear();
        }
    }

    /// Sees to it that the trace has the files around a stack's addresses.
    fn look(
        &mut self,
        record: &UntrustedRecord<'_>,
        stack: &DescribedStack,
        definitions: &mut Vec<Definition>,
    ) {
        let (pid, time) = (record.pid, record.time);
        if !self.processes.contains_key(&pid) {
            self.make_room();
        }
        let process = self.processes.entry(pid).or_insert_with(|| Process::with(Vec::new()));
        if process.seen.len() >= MANY {
            process.seen.clear();
        }
        if !process.seen.insert(stack.number) {
            return;
        }
        if !process.knows(&stack.frames) {
            if process.may_look() {
                process.look(pid, &mut self.files);
            } else {
                self.pending.entry(pid).or_insert(time);
            }
        }
        process.tell((pid, time), definitions);
    }

    /// Looks at those again that were looked at too shortly before.
    fn look_again(&mut self, definitions: &mut Vec<Definition>) {
        let Self { processes, files, pending } = self;
        pending.retain(|pid, time| {
            let Some(process) = processes.get_mut(pid) else { return false };
            if !process.may_look() {
                return true;
            }
            process.look(*pid, files);
            process.tell((*pid, *time), definitions);
            false
        });
    }

    /// Describes the files of all processes that are there again, as of a time. Others are
    /// forgotten.
    fn tell_again(&mut self, time: u64, definitions: &mut Vec<Definition>) {
        let pids: HashSet<u32> = all_processes().collect();
        self.processes.retain(|pid, _| pids.contains(pid));
        for (pid, process) in &mut self.processes {
            process.described = 0;
            process.tell((*pid, time), definitions);
        }
    }

    fn look_at_all(&mut self, time: u64, definitions: &mut Vec<Definition>) {
        let pids: HashSet<u32> = all_processes().collect();
        self.processes.retain(|pid, _| pids.contains(pid));
        for pid in pids.into_iter().take(MAX_PROCESSES) {
            let process = self.processes.entry(pid).or_insert_with(|| Process::with(Vec::new()));
            if process.may_look() {
                process.look(pid, &mut self.files);
                process.tell((pid, time), definitions);
            }
        }
    }
}

impl Process {
    fn with(objects: Vec<Object>) -> Self {
        Self { objects, described: 0, seen: HashSet::new(), looked: None }
    }

    fn knows(&self, frames: &[u64]) -> bool {
        frames.iter().all(|frame| self.objects.iter().any(|object| object.has(*frame)))
    }

    /// Adds the definitions that the trace doesn't have yet.
    fn tell(&mut self, (pid, time): (u32, u64), definitions: &mut Vec<Definition>) {
        for object in self.objects.iter().skip(self.described) {
            let payload = stacks::object(pid, object);
            definitions.push(Definition { time, class: Class::Stacks(StackEvent::Object), payload });
        }
        self.described = self.objects.len();
    }

    fn may_look(&self) -> bool {
        self.looked.is_none_or(|(when, pause)| when.elapsed() >= pause)
    }

    fn look(&mut self, pid: u32, files: &mut Files) {
        if self.objects.len() >= MAX_OBJECTS {
            // A program can map files at any number of places, one after the other.
            self.objects.clear();
            self.described = 0;
        }
        let before = self.objects.len();
        for object in files.of_process(pid) {
            if !self.objects.contains(&object) {
                self.objects.push(object);
            }
        }
        let pause = match self.looked {
            Some((_, pause)) if self.objects.len() == before => (pause * 2).min(PAUSE.1),
            _ => PAUSE.0,
        };
        self.looked = Some((Instant::now(), pause));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(payload: &[u8]) -> UntrustedRecord<'_> {
        let number = context::STACK;
        UntrustedRecord { number, tid: 1, pid: 1, time: 7, extra: OF_PROGRAM, payload, context: &[] }
    }

    /// Stack of a program as it stands in a ring: its number there, and its addresses.
    fn stack(key: u64, frames: &[u64]) -> Vec<u8> {
        std::iter::once(&key).chain(frames).flat_map(|word| word.to_le_bytes()).collect()
    }

    fn described(stacks: &mut Stacks) -> Vec<(u64, Vec<u8>)> {
        let definitions = stacks.definitions().into_iter();
        definitions.map(|definition| (definition.time, definition.payload)).collect()
    }

    #[test]
    fn stacks_that_are_described_again_keep_their_numbers() {
        let mut stacks = Stacks::new([context::Context::UserStack].into_iter().collect(), 2);
        let (first, second) = (stack(11, &[1, 2]), stack(12, &[3]));
        assert!(stacks.learn(0, 0, &record(&first)) && stacks.learn(1, 0, &record(&first)));
        assert!(stacks.learn(0, 64, &record(&second)));
        let before = described(&mut stacks);
        assert_eq!(before.len(), 2, "each once, in however many rings");
        stacks.describe_again(9);
        let again = described(&mut stacks);
        let payloads = |list: &[(u64, Vec<u8>)]| list.iter().map(|it| it.1.clone()).collect::<Vec<_>>();
        assert_eq!(payloads(&again), payloads(&before));
        assert!(again.iter().all(|(time, _)| *time == 9));
        assert!(stacks.learn(1, 64, &record(&second)));
        assert!(described(&mut stacks).is_empty(), "its number is still known");
    }
}
