//! A user with a grant: what its sessions may be, and how its recorders are kept within.

use std::{
    fmt,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
};

use serde::{Deserialize, Serialize};
use serde_json::Value;
use tompion_grants::{Grant, Member};
use tompion_os::{Capability, GROUPS_VARIABLE, User, confine};
use tompion_programs::ProgramSets;
use tompion_triggers::Trigger;

use crate::session_file::{Channel, SessionFile, Start};

/// Bytes of a CPU's smallest ring of kernel events: two sub-buffers of 64 KiB.
const MIN_KERNEL_RING: u64 = 128 << 10;
/// Largest description of a session, in bytes: the supervisor keeps it for each channel.
const MAX_SIZE: usize = 32 << 10;
/// Search path of recorders, and of programs that their triggers run.
const SEARCH_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// Variables that recorders of users get from the supervisor's environment.
const KEPT_VARIABLES: [&str; 4] = ["LANG", "LC_ALL", "TZ", "TOMPION_SOCKET"];
/// Capabilities of a recorder of programs: to become the user, and to look at its programs.
const FOR_PROGRAMS: &[Capability] = &[
    Capability::DacReadSearch,
    Capability::SetGid,
    Capability::SetUid,
    Capability::IpcLock,
    Capability::SysPtrace,
    Capability::SysNice,
];
/// Capabilities of a recorder of the kernel's events, too.
const FOR_KERNEL: &[Capability] = &[
    Capability::DacReadSearch,
    Capability::SetGid,
    Capability::SetUid,
    Capability::IpcLock,
    Capability::SysPtrace,
    Capability::SysNice,
    Capability::Syslog,
    Capability::Perfmon,
    Capability::Bpf,
];

/// A user that records by a grant.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Grantee {
    /// The user's number.
    pub user: u32,
    /// Number of its first group.
    group: u32,
    /// All groups as the kernel told when the user called.
    groups: Vec<u32>,
    /// Home folder, if the data base of users has the user.
    home: Option<PathBuf>,
    /// Users with programs that may be recorded.
    programs: Vec<u32>,
    /// Whether kernel events may be recorded.
    kernel: bool,
    /// Whether triggers may run commands.
    #[serde(default)]
    commands: bool,
}

/// Reason why a session is not within a grant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// It needs more rights.
    NotPermitted(String),
    /// It needs more than is left.
    WouldExceed {
        /// `memory`, in bytes, or `sessions`.
        what: &'static str,
        /// Amount that it needs.
        wanted: u64,
        /// Amount that is left.
        left: u64,
    },
    /// It can't be one of a grant.
    Invalid(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotPermitted(needs) => write!(formatter, "it needs {needs}"),
            Self::WouldExceed { what, wanted, left } => {
                write!(formatter, "it needs {wanted} of {what}, and {left} are left")
            }
            Self::Invalid(problem) => formatter.write_str(problem),
        }
    }
}

/// Part of a grant that the user's other sessions take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Bytes of rings.
    pub memory: u64,
    /// Number of sessions.
    pub sessions: u32,
}

impl Grantee {
    /// A user with a grant. `group` is the first group of a user that the data base does not have.
    pub fn new(member: &Member, group: u32, grant: &Grant) -> Self {
        let user = User::known_or(member.user, group);
        // One that the caller had shed is not given back.
        let usual = Some(user.gid()).filter(|usual| member.groups.contains(usual));
        Self {
            user: member.user,
            group: usual.unwrap_or(group),
            groups: member.groups.clone(),
            home: user.home().map(Path::to_owned),
            programs: grant.users_for(member.user),
            kernel: grant.kernel,
            commands: grant.commands,
        }
    }

    /// The user with its groups by now. Without the data base, they are as they were.
    pub fn member(&self) -> Member {
        let now = User::known_or(self.user, self.group);
        let groups = if now.home().is_some() { now.groups().to_vec() } else { self.groups.clone() };
        Member { user: self.user, groups }
    }

    /// Whether its recorders can do no more than a grant says by now.
    pub fn is_within(&self, grant: &Grant) -> bool {
        let users = grant.users_for(self.user);
        let is_more = self.kernel && !grant.kernel || self.commands && !grant.commands;
        !is_more && self.programs.iter().all(|user| users.contains(user))
    }

    /// Folder for traces of sessions that name none.
    pub fn output(&self) -> Option<PathBuf> {
        self.home.as_ref().map(|home| home.join(".local/state/tompion"))
    }

    /// Lets a recorder start for the user: as under sudo, so that its files are the user's. It gets
    /// nothing of the supervisor's environment, and no right that the grant does not need.
    pub fn confine(&self, command: &mut Command) {
        let users: Vec<String> = self.programs.iter().map(u32::to_string).collect();
        command.arg(format!("--only-users={}", users.join(",")));
        if !self.commands {
            command.arg("--no-commands");
        }
        command.env_clear().env("PATH", SEARCH_PATH).current_dir("/");
        for name in KEPT_VARIABLES {
            command.envs(std::env::var_os(name).map(|value| (name, value)));
        }
        command.env("SUDO_UID", self.user.to_string()).env("SUDO_GID", self.group.to_string());
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        command.env(GROUPS_VARIABLE, groups.join(","));
        confine(command, if self.kernel { FOR_KERNEL } else { FOR_PROGRAMS });
        command.process_group(0);
    }
}

/// Checks that a session is within a grant, beside the user's other sessions.
///
/// # Errors
/// What it needs and has not.
pub fn check(session: &SessionFile, grant: &Grant, user: u32, used: Used) -> Result<(), Refusal> {
    check_form(session)?;
    let needs = |needs: &str| Err(Refusal::NotPermitted(format!("{needs} in {}", grant.file.display())));
    if !grant.kernel && session.channel.values().any(|channel| channel.kernel.is_some()) {
        return needs("kernel = true");
    }
    if !grant.probes && session.channel.values().any(has_probe) {
        return needs("probes = true");
    }
    // What is no trigger, the recorder refuses.
    let triggers = session.channel.values().flat_map(|channel| &channel.trigger);
    let mut triggers = triggers.filter_map(|text| text.parse::<Trigger>().ok());
    if !grant.commands && triggers.any(|trigger| trigger.runs_command()) {
        return needs("commands = true");
    }
    let sets = ProgramSets::parse(&session.programs, vec![user]);
    let sets = sets.map_err(|error| Refusal::Invalid(format!("programs: {error}")))?;
    if let Some(beyond) = sets.users_beyond(&grant.users_for(user)).first() {
        return needs(&format!("user {beyond} in programs.user"));
    }
    let sessions = grant.sessions.saturating_sub(used.sessions);
    if sessions == 0 {
        return Err(Refusal::WouldExceed { what: "sessions", wanted: 1, left: 0 });
    }
    let (wanted, left) = (memory_of(session)?, grant.memory.saturating_sub(used.memory));
    if wanted > left {
        return Err(Refusal::WouldExceed { what: "memory", wanted, left });
    }
    Ok(())
}

/// Checks what no session of a grant can have.
fn check_form(session: &SessionFile) -> Result<(), Refusal> {
    let invalid = |problem: String| Err(Refusal::Invalid(problem));
    if session.start != Start::Demand {
        return invalid("expected start = \"demand\": sessions of grants begin when they are applied".into());
    }
    if let Some((name, _)) = session.channel.iter().find(|(_, channel)| channel.linger.is_some()) {
        let why = "what a recorder continues by, it would read in the user's folder";
        return invalid(format!("channel {name}: `linger` does not go with a grant: {why}"));
    }
    let text = serde_json::to_value(session).map_err(|error| Refusal::Invalid(error.to_string()))?;
    let size = text.to_string().len();
    if size > MAX_SIZE {
        return invalid(format!("expected at most {MAX_SIZE} bytes in all values, found {size}"));
    }
    match has_control_character(&text) {
        true => invalid("expected no control characters in any value".into()),
        false => Ok(()),
    }
}

fn has_control_character(value: &Value) -> bool {
    match value {
        Value::String(text) => text.chars().any(char::is_control),
        Value::Array(values) => values.iter().any(has_control_character),
        Value::Object(values) => values
            .iter()
            .any(|(name, value)| name.chars().any(char::is_control) || has_control_character(value)),
        _ => false,
    }
}

/// Whether a channel has a probe. A value can hold several words, so the beginning is not enough.
fn has_probe(channel: &Channel) -> bool {
    let is_probe = |word: &String| word.contains("probe:") || word.contains("usdt:");
    channel.kernel.iter().flatten().any(is_probe)
}

/// Returns the bytes that the rings of a session can take. Kernel events have rings of their own,
/// which take at most as much again, and so do counts of programs.
///
/// # Errors
/// If a channel has no limit.
pub fn memory_of(session: &SessionFile) -> Result<u64, Refusal> {
    let mut all = 0u64;
    for (name, channel) in &session.channel {
        let invalid = |problem: String| Refusal::Invalid(format!("channel {name}: {problem}"));
        let memory = channel.memory.as_deref().ok_or_else(|| {
            invalid("expected `memory`, which a grant limits, such as memory = \"16M\"".into())
        })?;
        let memory = tompion_units::size(memory).map_err(|problem| invalid(format!("memory: {problem}")))?;
        let least = MIN_KERNEL_RING * u64::from(tompion_os::possible_cpus());
        let kernel = if channel.kernel.is_some() { memory.max(least) } else { 0 };
        let counts = if channel.count.is_empty() { 0 } else { memory };
        all = all.saturating_add(memory).saturating_add(kernel).saturating_add(counts);
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grant(more: &str) -> Grant {
        let text = format!("users = [1000]\nmemory = '64M'\n{more}");
        Grant::parse(Path::new("/etc/g.toml"), &text, &mut |_| {}).expect("a grant")
    }

    fn check_text(session: &str, grant: &Grant, used: Used) -> Result<(), Refusal> {
        check(&SessionFile::parse(session).expect("a session"), grant, 1000, used)
    }

    #[test]
    fn what_a_grant_does_not_have_is_refused_with_what_is_needed() {
        let none = Used::default();
        let sound = "[channel.a]\nmemory = '1M'\n";
        let permits = |session: &str, more: &str| check_text(session, &grant(more), none);
        assert_eq!(permits(sound, ""), Ok(()));
        for (session, more) in [
            (format!("{sound}kernel = []"), "kernel = true"),
            (format!("{sound}kernel = ['sched_*,kprobe:do_exit']"), "kernel = true\nprobes = true"),
            (format!("{sound}kernel = ['usdt:/bin/a:b:c']"), "kernel = true\nprobes = true"),
            (format!("{sound}trigger = ['loss -> notify, run /bin/true']"), "commands = true"),
            (format!("programs = ['uid=1001', 'uid=1000']\n{sound}"), "programs.user = [1001]"),
        ] {
            assert_eq!(permits(&session, more), Ok(()), "{session}");
            let less = more.lines().rev().skip(1).collect::<Vec<_>>().join("\n");
            let Err(Refusal::NotPermitted(needs)) = permits(&session, &less) else {
                panic!("{session}: permitted by {less}");
            };
            assert!(needs.ends_with(" in /etc/g.toml"), "{needs}");
        }
        for session in [
            "[channel.a]".to_owned(),
            format!("start = 'boot'\n{sound}"),
            format!("{sound}linger = '5s'"),
            format!("{sound}filter = \"a\\u001b > 1\""),
            format!("programs = ['colour=red']\n{sound}"),
            "[channel.a]\nmemory = 'much'".into(),
            format!("{sound}filter = 'a > {}'", "1".repeat(40_000)),
        ] {
            assert!(matches!(permits(&session, ""), Err(Refusal::Invalid(_))), "{session}");
        }
    }

    #[test]
    fn the_memory_of_all_channels_and_sessions_is_within_the_grant() {
        let two = "[channel.a]\nmemory = '32M'\n[channel.b]\nmemory = '30M'";
        let used = |memory: u64, sessions| Used { memory: memory << 20, sessions };
        assert_eq!(check_text(two, &grant(""), used(2, 3)), Ok(()));
        let exceeds = |what, wanted, left| Err(Refusal::WouldExceed { what, wanted, left });
        assert_eq!(check_text(two, &grant(""), used(3, 3)), exceeds("memory", 62 << 20, 61 << 20));
        assert_eq!(check_text(two, &grant(""), used(0, 4)), exceeds("sessions", 1, 0));
        assert_eq!(check_text(two, &grant(""), used(99, 1)), exceeds("memory", 62 << 20, 0));
        let kernel = SessionFile::parse("[channel.a]\nmemory = '1G'\nkernel = []").expect("a session");
        assert_eq!(memory_of(&kernel), Ok(2 << 30));
        let counts = "[channel.a]\nmemory = '1G'\nkernel = []\ncount = ['count a:b by pid']";
        assert_eq!(memory_of(&SessionFile::parse(counts).expect("a session")), Ok(3 << 30));
        let many = "[channel.a]\nmemory = '17179869183G'\n[channel.b]\nmemory = '17179869183G'";
        assert_eq!(memory_of(&SessionFile::parse(many).expect("a session")), Ok(u64::MAX));
    }

    #[test]
    fn a_recorder_gets_nothing_of_the_supervisors_environment() {
        let grant = grant("programs.user = [1001]");
        let grantee = Grantee::new(&Member { user: 1000, groups: vec![7] }, 1000, &grant);
        let mut command = Command::new("tompion");
        grantee.confine(&mut command);
        assert_eq!(command.get_args().collect::<Vec<_>>(), ["--only-users=1000,1001", "--no-commands"]);
        let names: Vec<_> = command.get_envs().map(|(name, _)| name.to_string_lossy()).collect();
        let is_known = |name: &str| {
            ["PATH", "SUDO_UID", "SUDO_GID", GROUPS_VARIABLE].contains(&name)
                || KEPT_VARIABLES.contains(&name)
        };
        assert!(names.iter().all(|name| is_known(name)) && names.contains(&"SUDO_UID".into()), "{names:?}");
        // Without an entry in the data base, the groups are those that the kernel told.
        if grantee.output().is_none() {
            assert_eq!(grantee.member(), Member { user: 1000, groups: vec![7] });
        }
    }
}
