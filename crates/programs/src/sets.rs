//! Sets of programs: by user, name, cgroup, process id.

use std::{cell::OnceCell, fs, os::unix::fs::MetadataExt as _};

use serde::{Deserialize, Serialize};
use tompion_protocol::glob;

/// Reason why a text is no set.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum SetError {
    /// A key is unknown, or has no value.
    #[error("expected `*`, name=GLOB, uid=USER, cgroup=GLOB or pid=N in the set `{set}`, found `{found}`")]
    Key {
        /// The set.
        set: String,
        /// The part of it that is no key.
        found: String,
    },
    /// No user has this name.
    #[error("no user is named `{0}`")]
    User(String),
    /// The number of a process can't be one.
    #[error("expected a process id after pid=, found `{0}`")]
    Pid(String),
}

/// Property that programs of a set have.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Key {
    /// It belongs to a user of the recording.
    Own,
    /// Its name, or that of its executable, matches.
    Name(String),
    /// It belongs to this user.
    User(u32),
    /// One of its cgroups matches.
    Cgroup(String),
    /// It has this process id.
    Pid(u32),
}

/// Programs that have all properties of a list.
#[derive(Clone, Debug, PartialEq, Eq)]
struct ProgramSet {
    text: String,
    keys: Vec<Key>,
}

/// Sets of programs that a recording wants, and sets that it excludes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "SavedSets", into = "SavedSets")]
pub struct ProgramSets {
    wanted: Vec<ProgramSet>,
    excluded: Vec<ProgramSet>,
    /// Users of the recording.
    users: Vec<u32>,
    /// The only users of programs that may be recorded, if there is a limit.
    limit: Option<Vec<u32>>,
}

/// Sets as they are saved: their texts, the users of the recording, and the limit.
#[derive(Serialize, Deserialize)]
struct SavedSets {
    sets: Vec<String>,
    users: Vec<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    limit: Option<Vec<u32>>,
}

impl TryFrom<SavedSets> for ProgramSets {
    type Error = SetError;

    fn try_from(saved: SavedSets) -> Result<Self, SetError> {
        let sets = Self::parse(&saved.sets, saved.users)?;
        Ok(Self { limit: saved.limit, ..sets })
    }
}

impl From<ProgramSets> for SavedSets {
    fn from(sets: ProgramSets) -> Self {
        Self { sets: sets.texts(), users: sets.users, limit: sets.limit }
    }
}

/// A process, as the kernel tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Program {
    /// Its process id, as this process sees it.
    pub pid: u32,
    /// Its user.
    pub user: u32,
}

impl ProgramSets {
    /// Parses sets such as `name=nginx,uid=www-data`. A leading `!` excludes. `users` are those of
    /// the recording, whose programs `*` stands for.
    ///
    /// # Errors
    /// Which part of a set can't be.
    pub fn parse(texts: &[String], users: Vec<u32>) -> Result<Self, SetError> {
        let mut sets = Self { wanted: Vec::new(), excluded: Vec::new(), users, limit: None };
        for text in texts {
            let text = text.trim();
            match text.strip_prefix('!') {
                Some(rest) => sets.excluded.push(ProgramSet::parse(rest)?),
                None => sets.wanted.push(ProgramSet::parse(text)?),
            }
        }
        Ok(sets)
    }

    /// Takes programs of these users only, whatever the sets say: those that the users could trace
    /// by `ptrace(2)` themselves.
    #[must_use]
    pub fn limited_to(self, users: Vec<u32>) -> Self {
        Self { limit: Some(users), ..self }
    }

    /// The only users of programs that may be recorded, if there is a limit.
    pub fn limit(&self) -> Option<&[u32]> {
        self.limit.as_deref()
    }

    /// Whether only programs of some users may be recorded.
    pub fn is_limited(&self) -> bool {
        self.limit.is_some()
    }

    /// Returns users that a set names and that are not among these.
    pub fn users_beyond(&self, users: &[u32]) -> Vec<u32> {
        let named = self.wanted.iter().flat_map(|set| &set.keys).filter_map(|key| match key {
            Key::User(user) => Some(*user),
            _ => None,
        });
        named.filter(|user| !users.contains(user)).collect()
    }

    /// Returns whether the recording wants a program: a set has it, or there are only sets that
    /// exclude and it belongs to a user of the recording; and no set excludes it.
    pub fn want(&self, program: Program) -> bool {
        if self.limit.as_ref().is_some_and(|users| !is_within(program, users)) {
            return false;
        }
        let facts = Facts::new(program);
        let is_wanted = match &self.wanted[..] {
            [] => self.users.contains(&program.user),
            wanted => wanted.iter().any(|set| self.has(set, &facts)),
        };
        is_wanted && !self.excluded.iter().any(|set| self.has(set, &facts))
    }

    fn has(&self, set: &ProgramSet, facts: &Facts) -> bool {
        set.keys.iter().all(|key| match key {
            Key::Own => self.users.contains(&facts.program.user),
            Key::User(user) => facts.program.user == *user,
            Key::Pid(pid) => facts.program.pid == *pid,
            Key::Name(pattern) => facts.names().iter().any(|name| glob::matches(pattern, name)),
            Key::Cgroup(pattern) => facts.cgroups().iter().any(|path| glob::matches(pattern, path)),
        })
    }

    /// The sets as they were given.
    pub fn texts(&self) -> Vec<String> {
        let excluded = self.excluded.iter().map(|set| format!("!{}", set.text));
        self.wanted.iter().map(|set| set.text.clone()).chain(excluded).collect()
    }
}

impl ProgramSet {
    fn parse(text: &str) -> Result<Self, SetError> {
        let text = text.trim();
        let keys = text.split(',').map(|part| Key::parse(text, part.trim())).collect::<Result<_, _>>()?;
        Ok(Self { text: text.to_owned(), keys })
    }
}

impl Key {
    fn parse(set: &str, part: &str) -> Result<Self, SetError> {
        let unknown = || SetError::Key { set: set.to_owned(), found: part.to_owned() };
        if part == "*" {
            return Ok(Self::Own);
        }
        let (key, value) = part.split_once('=').filter(|(_, value)| !value.is_empty()).ok_or_else(unknown)?;
        match key.trim_end() {
            "name" => Ok(Self::Name(value.to_owned())),
            "cgroup" => Ok(Self::Cgroup(value.to_owned())),
            "pid" => value.parse().map(Self::Pid).map_err(|_| SetError::Pid(value.to_owned())),
            "uid" => {
                let user = value.parse().ok().or_else(|| tompion_os::user_named(value));
                user.map(Self::User).ok_or_else(|| SetError::User(value.to_owned()))
            }
            _ => Err(unknown()),
        }
    }
}

/// Whether a process is nothing but these users', in all of its user ids and in its memory. One
/// that was another user before, or reads what they can't, belongs to root in `/proc`, as to
/// `ptrace(2)`: all but the folder itself. Source: `PR_SET_DUMPABLE` in `prctl(2)`, and
/// `task_dump_owner` in `fs/proc/base.c`.
fn is_within(program: Program, users: &[u32]) -> bool {
    let ids = tompion_os::users_of(program.pid);
    let owner = fs::metadata(format!("/proc/{}/status", program.pid)).map(|found| found.uid());
    !ids.is_empty()
        && ids.iter().chain([&program.user]).all(|user| users.contains(user))
        && owner.is_ok_and(|owner| users.contains(&owner))
}

/// Facts about a process that the kernel tells, read when they are needed.
struct Facts {
    program: Program,
    names: OnceCell<Vec<String>>,
    cgroups: OnceCell<Vec<String>>,
}

impl Facts {
    fn new(program: Program) -> Self {
        Self { program, names: OnceCell::new(), cgroups: OnceCell::new() }
    }

    /// The process's name, of which Linux keeps 15 bytes, and that of its executable.
    fn names(&self) -> &[String] {
        self.names.get_or_init(|| {
            let pid = self.program.pid.to_string();
            let executable = tompion_os::executable_of(&pid);
            let file = executable.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
            tompion_os::name_of(&pid).into_iter().chain(file).collect()
        })
    }

    /// Paths of its cgroups, one of each hierarchy. Source: `proc_pid_cgroup` in `cgroups(7)`.
    fn cgroups(&self) -> &[String] {
        self.cgroups.get_or_init(|| {
            let table = fs::read_to_string(format!("/proc/{}/cgroup", self.program.pid)).unwrap_or_default();
            table.lines().filter_map(|line| Some(line.splitn(3, ':').nth(2)?.to_owned())).collect()
        })
    }
}

/// Returns the effective user of a process.
pub fn process_user(pid: u32) -> Option<u32> {
    tompion_os::users_of(pid).get(1).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sets(texts: &[&str]) -> ProgramSets {
        let texts: Vec<String> = texts.iter().map(|text| (*text).to_owned()).collect();
        ProgramSets::parse(&texts, vec![own().user]).expect("sets")
    }

    fn own() -> Program {
        Program { pid: std::process::id(), user: tompion_os::effective_user() }
    }

    #[test]
    fn all_keys_of_a_set_must_hold_and_any_set_is_enough() {
        let name = tompion_os::name_of("self").expect("a name");
        let (pid, user) = (own().pid, own().user);
        for (texts, wanted) in [
            (vec!["*".to_owned()], true),
            (vec![format!("name={}*", &name[..5])], true),
            (vec!["name=no-such-program".to_owned()], false),
            (vec![format!("pid={pid},uid={user}")], true),
            (vec![format!("pid={pid},uid={}", user + 1)], false),
            (vec![format!("uid={}", user + 1), format!(" pid={pid} ")], true),
            (vec!["cgroup=/*".to_owned()], true),
            (vec!["cgroup=/no/such/group".to_owned()], false),
            (vec!["*".to_owned(), format!("!pid={pid}")], false),
            (vec!["*".to_owned(), format!("!pid={}", pid + 1)], true),
            // With nothing but exclusions, the other programs of the users are wanted.
            (vec![format!("!pid={}", pid + 1)], true),
        ] {
            let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
            assert_eq!(sets(&texts).want(own()), wanted, "{texts:?}");
        }
        let other = Program { user: own().user + 1, ..own() };
        assert!(
            !sets(&["*"]).want(other) && !sets(&["!name=x"]).want(other) && sets(&["name=*"]).want(other)
        );
    }

    #[test]
    fn a_limit_keeps_other_users_programs_out_of_all_sets() {
        let user = own().user;
        for texts in [&["*"][..], &["name=*"], &["!name=x"], &[]] {
            let limited = |users: &[u32]| sets(texts).limited_to(users.to_vec());
            assert!(limited(&[user]).want(own()) && limited(&[user + 1, user]).want(own()), "{texts:?}");
            assert!(!limited(&[user + 1]).want(own()) && !limited(&[]).want(own()), "{texts:?}");
        }
        // What the kernel says of the process counts, too.
        let pretended = Program { user: user + 1, ..own() };
        assert!(!sets(&["name=*"]).limited_to(vec![user + 1]).want(pretended));
        assert!(!sets(&["name=*"]).limited_to(vec![user]).want(Program { pid: u32::MAX, ..own() }));
        let named = sets(&["name=a,uid=7", "uid=8", "!uid=9", "*"]);
        assert_eq!((named.users_beyond(&[8]), named.users_beyond(&[7, 8])), (vec![7], vec![]));
        let saved = serde_json::to_string(&named.clone().limited_to(vec![8])).expect("a text");
        let read: ProgramSets = serde_json::from_str(&saved).expect("sets");
        assert!(read.is_limited() && !named.is_limited());
    }

    #[test]
    fn a_process_that_can_not_be_traced_is_in_no_limit() {
        // A copy of a program that its user can't read has its memory kept from that user.
        if own().user != 0 {
            return;
        }
        let dir = tompion_testing::TestDir::new("unreadable");
        let program = dir.join("sleep");
        fs::copy("/bin/sleep", &program).expect("a copy");
        let run = |mode: u32| {
            use std::os::unix::{fs::PermissionsExt as _, process::CommandExt as _};
            fs::set_permissions(&program, fs::Permissions::from_mode(mode)).expect("a mode");
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("a mode");
            let mut child = std::process::Command::new(&program);
            let mut child = child.arg("600").uid(65534).gid(65534).spawn().expect("sleep");
            let found = Program { pid: child.id(), user: 65534 };
            let wanted = sets(&["name=*"]).limited_to(vec![65534]).want(found);
            child.kill().and_then(|()| child.wait()).expect("an end");
            wanted
        };
        assert_eq!((run(0o755), run(0o711)), (true, false));
    }

    #[test]
    fn the_executables_name_counts_where_the_process_has_another() {
        let executable = std::env::current_exe().expect("a program");
        let file = executable.file_name().and_then(|name| name.to_str()).expect("a name");
        assert!(file.len() > 15 && sets(&[&format!("name={file}")]).want(own()));
    }

    #[test]
    fn sets_that_can_not_be_are_refused_with_the_part_at_fault() {
        let parse =
            |text: &str| ProgramSets::parse(&[text.to_owned()], Vec::new()).expect_err(text).to_string();
        for (text, expected) in [
            ("", "found ``"),
            ("nginx", "found `nginx`"),
            ("name=", "found `name=`"),
            ("name=a,colour=red", "found `colour=red`"),
            ("pid=x", "expected a process id after pid=, found `x`"),
            ("uid=no such user", "no user is named `no such user`"),
            ("!", "found ``"),
        ] {
            let refused = parse(text);
            assert!(refused.contains(expected), "{text}: {refused}");
        }
        assert_eq!(sets(&["name=a", "!uid=0", "pid=1"]).texts(), ["name=a", "pid=1", "!uid=0"]);
    }

    #[test]
    fn saved_sets_are_read_again_and_false_ones_are_refused() {
        let texts = ["name=a,uid=0", "!pid=1"].map(str::to_owned);
        let sets = ProgramSets::parse(&texts, vec![7, 8]).expect("sets");
        let saved = serde_json::to_string(&sets).expect("a text");
        assert_eq!(serde_json::from_str::<ProgramSets>(&saved).expect("sets"), sets);
        let false_one = saved.replace("uid=0", "colour=red");
        let refused = serde_json::from_str::<ProgramSets>(&false_one).expect_err("no set");
        assert!(refused.to_string().contains("found `colour=red`"), "{refused}");
    }

    #[test]
    fn a_process_has_a_user() {
        assert_eq!(process_user(own().pid), Some(own().user));
        assert_eq!(process_user(u32::MAX), None);
    }
}
