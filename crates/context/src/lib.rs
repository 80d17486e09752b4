//! Context that the session adds to events about the thread that recorded them.
//!
//! An event carries its thread's id and nothing more of this kind, because asking the kernel takes
//! a system call. The session asks instead: it looks at each process's threads every now and then
//! and remembers what it saw, so a value is what it was at that time, not at the event's. A thread
//! that came and went between two looks has the values of its process's main thread.
//!
//! [`filter`] judges events by it, where programs left that to the session.
#![forbid(unsafe_code)]

pub mod filter;

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    os::unix::fs::MetadataExt,
    path::PathBuf,
};

use serde::{Deserialize, Serialize};

use tompion_ctf::encode::ContextField;
use tompion_filter::Kind;

/// Maximum number of threads of a process that are read in one go; of more, some have their turn
/// the next time. Each takes some ten microseconds.
const MAX_AT_ONCE: usize = 256;
/// Maximum number of unseen threads that are looked up, because an event names them, between two
/// readings of all. Programs can name any number that there aren't.
const MAX_SOUGHT: usize = 512;
/// Number of threads as which a search counts that has to look at all of them.
const WIDE_SEARCH: usize = 128;
/// Maximum number of threads that are remembered; then all are forgotten, to be read again.
const MAX_KNOWN: usize = 1 << 16;

/// A kind of context. `cpu` is no such thing: every packet has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Context {
    /// Id of the process in its own pid namespace.
    Pid,
    /// Name of the thread.
    Comm,
    /// Priority as the scheduler has it: 120 is that of an ordinary task, below 100 are real-time
    /// tasks.
    Priority,
    /// Identifiers of the namespaces.
    Namespaces,
    /// Path of the control group.
    Cgroup,
}

/// The namespaces, as `/proc/PID/ns` and LTTng's contexts call them.
const NAMESPACES: [&str; 8] = ["cgroup", "ipc", "mnt", "net", "pid", "time", "user", "uts"];

impl Context {
    /// All kinds, by the words that users know them by.
    pub const ALL: [(&'static str, Self); 5] = [
        ("pid", Self::Pid),
        ("comm", Self::Comm),
        ("prio", Self::Priority),
        ("ns", Self::Namespaces),
        ("cgroup", Self::Cgroup),
    ];

    /// The fields of a trace that hold it, in the order of `Values::encode`.
    pub fn fields(self) -> Vec<ContextField> {
        match self {
            Self::Pid => vec![ContextField::signed("vpid", 32)],
            Self::Comm => vec![ContextField::text("procname")],
            Self::Priority => vec![ContextField::signed("prio", 32)],
            Self::Namespaces => {
                NAMESPACES.iter().map(|name| ContextField::unsigned(&format!("{name}_ns"), 64)).collect()
            }
            Self::Cgroup => vec![ContextField::text("cgroup")],
        }
    }
}

/// Context of a thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// Id of its process in the process's own pid namespace.
    pub pid: u32,
    /// Its name.
    pub comm: String,
    /// Its priority, see [`Context::Priority`].
    pub priority: i32,
    /// Its namespaces, in the order of `NAMESPACES`.
    pub namespaces: [u64; NAMESPACES.len()],
    /// Path of its control group.
    pub cgroup: String,
}

impl Values {
    /// The number of a context that filters may ask for; texts have none.
    pub fn number(&self, name: &str) -> Option<i64> {
        match name {
            "pid" => Some(self.pid.into()),
            "prio" => Some(self.priority.into()),
            _ => {
                let name = name.strip_suffix("_ns")?;
                let at = NAMESPACES.iter().position(|known| *known == name)?;
                i64::try_from(self.namespaces[at]).ok()
            }
        }
    }

    /// The text of a context that filters may ask for.
    pub fn text(&self, name: &str) -> Option<&[u8]> {
        match name {
            "comm" | "procname" => Some(self.comm.as_bytes()),
            "cgroup" => Some(self.cgroup.as_bytes()),
            _ => None,
        }
    }

    /// The values as they stand in a trace.
    pub fn encode(&self, contexts: &[Context]) -> Vec<u8> {
        let mut bytes = Vec::new();
        let text = |bytes: &mut Vec<u8>, text: &str| {
            bytes.extend(text.bytes().filter(|byte| *byte != 0));
            bytes.push(0);
        };
        for context in contexts {
            match context {
                Context::Pid => bytes.extend(self.pid.to_le_bytes()),
                Context::Comm => text(&mut bytes, &self.comm),
                Context::Priority => bytes.extend(self.priority.to_le_bytes()),
                Context::Namespaces => self.namespaces.iter().for_each(|id| bytes.extend(id.to_le_bytes())),
                Context::Cgroup => text(&mut bytes, &self.cgroup),
            }
        }
        bytes
    }
}

/// Names that filters can ask the session for.
pub fn names() -> impl Iterator<Item = String> {
    let namespaces = NAMESPACES.iter().map(|name| format!("{name}_ns"));
    ["tid", "pid", "comm", "procname", "prio", "cpu", "cgroup"]
        .map(String::from)
        .into_iter()
        .chain(namespaces)
}

/// Whether filters can ask the session for this name.
fn is_known(name: &str) -> bool {
    names().any(|known| known == name)
}

/// Kind of that name's values, if filters can ask for it.
pub fn kind(name: &str) -> Option<Kind<'static>> {
    let is_text = Values::default().text(name).is_some();
    is_known(name).then_some(if is_text { Kind::Text } else { Kind::Integer })
}

/// The threads of one process.
#[derive(Debug)]
pub struct Threads {
    folder: PathBuf,
    /// The process's id where it lives.
    inner_pid: u32,
    /// Whether its threads have other ids there than here.
    is_elsewhere: bool,
    wanted: Vec<Context>,
    /// Threads by their ids; none for one that was never seen, and can't be any more. Programs can
    /// name any.
    known: HashMap<u32, Option<Box<Thread>>>,
    /// Number of its threads that had their turn, if not all could be read in one go.
    turn: usize,
    /// Number of lookups since all were read.
    sought: usize,
    /// Context of threads that were never seen.
    default: Thread,
    /// Whether something is known that [`Threads::news`] has not returned yet.
    changed: bool,
}

/// A thread's values, and how they stand in the trace.
#[derive(Clone, Debug, Default)]
pub struct Thread {
    /// The values.
    pub values: Values,
    /// The values as bytes.
    pub bytes: Vec<u8>,
    /// Whether the thread was never seen, and can't be any more: the values are those of its
    /// process's main thread.
    is_guess: bool,
}

impl Thread {
    /// The values, unless they are a guess.
    pub fn seen(&self) -> Option<&Values> {
        (!self.is_guess).then_some(&self.values)
    }
}

impl Threads {
    /// The threads of a process. `wanted` is what the trace gets of them.
    pub fn new(pid: u32, inner_pid: u32, wanted: Vec<Context>) -> Self {
        let mut threads = Self {
            folder: PathBuf::from(format!("/proc/{pid}/task")),
            inner_pid,
            is_elsewhere: inner_pid != pid,
            wanted,
            known: HashMap::new(),
            turn: 0,
            sought: 0,
            default: Thread::default(),
            changed: true,
        };
        threads.default = threads.thread(Values { pid: inner_pid, ..Values::default() });
        threads.look();
        threads
    }

    fn thread(&self, values: Values) -> Thread {
        Thread { bytes: values.encode(&self.wanted), values, is_guess: false }
    }

    /// Returns the contexts of all threads by their own ids, if they have changed since the last
    /// time.
    pub fn news(&mut self) -> Option<BTreeMap<u32, &Values>> {
        std::mem::take(&mut self.changed).then(|| {
            let seen = self.known.iter().filter_map(|(tid, thread)| Some((*tid, &thread.as_ref()?.values)));
            seen.collect()
        })
    }

    /// The threads of a process that is gone, by what was known of them.
    pub fn recall(inner_pid: u32, wanted: Vec<Context>, values: BTreeMap<u32, Values>) -> Self {
        let mut threads = Self {
            folder: PathBuf::from("/proc/0/task"),
            inner_pid,
            is_elsewhere: false,
            wanted,
            known: HashMap::new(),
            turn: 0,
            sought: 0,
            default: Thread::default(),
            changed: false,
        };
        threads.default = threads.thread(Values { pid: inner_pid, ..Values::default() });
        values.into_iter().for_each(|(tid, values)| threads.remember(tid, values));
        threads.default.is_guess = true;
        threads
    }

    /// Looks at all threads, or at as many as there is time for.
    pub fn look(&mut self) {
        self.sought = 0;
        let Ok(entries) = fs::read_dir(&self.folder) else { return };
        let turn: Vec<_> = entries.flatten().skip(self.turn).take(MAX_AT_ONCE).collect();
        self.turn = if turn.len() == MAX_AT_ONCE { self.turn + MAX_AT_ONCE } else { 0 };
        for entry in turn {
            let outer = entry.file_name().to_string_lossy().parse().ok();
            if let Some((tid, values)) = outer.and_then(|outer| self.look_at(outer)) {
                self.remember(tid, values);
            }
        }
    }

    fn remember(&mut self, tid: u32, values: Values) {
        if self.known.get(&tid).and_then(Option::as_ref).is_some_and(|thread| thread.values == values) {
            return;
        }
        self.changed = true;
        let thread = self.thread(values);
        if tid == self.inner_pid {
            self.default = thread.clone();
        }
        self.make_room();
        self.known.insert(tid, Some(Box::new(thread)));
    }

    fn make_room(&mut self) {
        if self.known.len() >= MAX_KNOWN {
            self.known.clear();
        }
    }

    /// A thread's id in its own pid namespace, and its values.
    fn look_at(&self, outer: u32) -> Option<(u32, Values)> {
        let folder = self.folder.join(outer.to_string());
        let tid = if self.is_elsewhere { tompion_os::innermost_pid(outer)? } else { outer };
        let comm = fs::read(folder.join("comm")).ok()?;
        let stat = fs::read_to_string(folder.join("stat")).ok()?;
        let groups = fs::read_to_string(folder.join("cgroup")).unwrap_or_default();
        let mut namespaces = [0; NAMESPACES.len()];
        if self.wanted.contains(&Context::Namespaces) {
            for (place, name) in namespaces.iter_mut().zip(NAMESPACES) {
                *place = fs::metadata(folder.join("ns").join(name)).map_or(0, |metadata| metadata.ino());
            }
        }
        let values = Values {
            pid: self.inner_pid,
            comm: String::from_utf8_lossy(&comm).trim_end_matches('\n').to_owned(),
            priority: priority(&stat).unwrap_or_default(),
            namespaces,
            // The unified hierarchy has the number 0 (`cgroups(7)`).
            cgroup: groups.lines().find_map(|line| line.strip_prefix("0::")).unwrap_or_default().to_owned(),
        };
        Some((tid, values))
    }

    /// Returns the context of a thread by its own id, reading it now if it was never seen.
    pub fn get(&mut self, tid: u32) -> &Thread {
        if !self.known.contains_key(&tid) && self.sought < MAX_SOUGHT {
            if self.is_elsewhere {
                let sought = self.sought + WIDE_SEARCH;
                self.look();
                self.sought = sought;
            } else if let Some((tid, values)) = self.look_at(tid) {
                self.remember(tid, values);
            }
            self.sought += 1;
            // What can't be seen now never will be.
            self.make_room();
            self.known.entry(tid).or_insert(None);
        }
        self.known.get(&tid).and_then(Option::as_deref).unwrap_or(&self.default)
    }
}

/// The scheduler's priority. Source: field 18 of `proc_pid_stat(5)` is that minus 100.
fn priority(stat: &str) -> Option<i32> {
    let (_, rest) = stat.rsplit_once(") ")?;
    rest.split(' ').nth(15)?.parse::<i32>().ok().map(|priority| priority + 100)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_seen_by_its_id_and_a_stranger_has_the_process_s_values() {
        let (sender, receiver) = std::sync::mpsc::channel();
        let (done, wait) = std::sync::mpsc::channel::<()>();
        let thread = std::thread::Builder::new().name("named".into()).spawn(move || {
            sender.send(tompion_os::gettid()).unwrap();
            let _ = wait.recv();
        });
        let tid = receiver.recv().unwrap();
        let own = std::process::id();
        let mut threads = Threads::new(own, own, vec![Context::Comm, Context::Pid, Context::Priority]);
        let found = threads.get(tid).clone();
        assert_eq!(found.values.comm, "named");
        assert!((0..140).contains(&found.values.priority), "{found:?}");
        assert_eq!(found.bytes[..6], *b"named\0");
        assert_eq!(found.bytes[6..10], own.to_le_bytes());
        let main = threads.get(own).values.clone();
        assert_eq!(threads.get(u32::MAX / 2).values, main);
        drop(done);
        thread.unwrap().join().unwrap();
    }

    #[test]
    fn of_a_process_that_is_gone_what_was_seen_is_known_and_the_rest_a_guess() {
        let values = |comm: &str| Values { pid: 7, comm: comm.into(), ..Values::default() };
        let seen = BTreeMap::from([(7, values("main")), (8, values("worker"))]);
        let mut threads = Threads::recall(7, vec![Context::Comm], seen);
        let mut comm = |tid| threads.get(tid).seen().map(|values| values.comm.clone());
        assert_eq!((comm(7), comm(8), comm(9)), (Some("main".into()), Some("worker".into()), None));
        assert_eq!(threads.get(9).bytes, b"main\0");
        let mut threads = Threads::recall(7, vec![Context::Comm], BTreeMap::new());
        assert_eq!(threads.get(7).seen(), None);
    }

    #[test]
    fn any_number_of_made_up_threads_is_forgotten_again() {
        let own = std::process::id();
        let mut threads = Threads::new(own, own, vec![Context::Comm]);
        let first = u32::MAX / 2;
        for tid in first..first + MAX_KNOWN as u32 + 100 {
            assert_eq!(threads.get(tid).values.pid, own);
            threads.sought = 0;
        }
        assert!(threads.known.len() < 1000);
        let known = threads.known.len();
        threads.sought = MAX_SOUGHT;
        threads.get(first - 1);
        assert_eq!(threads.known.len(), known);
    }

    #[test]
    fn filters_know_the_names() {
        assert!(["tid", "cpu", "pid", "comm", "prio", "mnt_ns", "cgroup"].into_iter().all(is_known));
        assert!(!is_known("rows") && !is_known("x_ns"));
        let values = Values::default();
        for name in names().filter(|name| !matches!(&**name, "tid" | "cpu")) {
            let is_text = matches!(kind(&name), Some(Kind::Text));
            assert_eq!(
                (values.text(&name).is_some(), values.number(&name).is_some()),
                (is_text, !is_text),
                "{name}"
            );
        }
    }
}
