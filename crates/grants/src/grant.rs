//! One grant, as a file describes it.

use std::{
    fmt,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use toml::Value;
use tompion_os::{group_named, user_named};

use crate::describe_toml_error;

/// Most sessions of one user.
pub const MAX_SESSIONS: u32 = 64;
/// Number of sessions where a file names none.
const USUAL_SESSIONS: u32 = 4;

/// A grant's file. Unknown keys are refused: a misspelt limit would be none.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct GrantFile {
    /// Users that it is for, and groups with a leading `@`, by names or numbers.
    users: Vec<Value>,
    #[serde(default)]
    programs: Programs,
    /// Whether the kernel's events may be recorded: those of the whole machine.
    #[serde(default)]
    kernel: bool,
    /// Whether functions of the kernel and of programs may be probed.
    #[serde(default)]
    probes: bool,
    /// Whether triggers may run commands, as the user.
    #[serde(default)]
    commands: bool,
    /// Memory of the rings of all channels of a user.
    memory: String,
    #[serde(default = "usual_sessions")]
    sessions: u32,
}

/// Programs that may be recorded besides the user's own.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Programs {
    #[serde(default)]
    user: Vec<Value>,
}

fn usual_sessions() -> u32 {
    USUAL_SESSIONS
}

/// User or group that a grant is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grantee {
    User(u32),
    Group(u32),
}

/// Rights that one file grants to its users.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The file.
    pub file: PathBuf,
    users: Vec<Grantee>,
    /// Users with programs that may be recorded, besides the user's own.
    pub programs: Vec<u32>,
    /// Whether the kernel's events may be recorded.
    pub kernel: bool,
    /// Whether functions may be probed.
    pub probes: bool,
    /// Whether triggers may run commands, as the user.
    pub commands: bool,
    /// Bytes of the rings of all channels of one user.
    pub memory: u64,
    /// Number of sessions of one user.
    pub sessions: u32,
}

/// A user with its groups, as the kernel or the data base of users tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The user's number.
    pub user: u32,
    /// Numbers of the groups.
    pub groups: Vec<u32>,
}

impl Grant {
    /// Parses a file. Names that the machine does not know grant nothing: `report` gets a line for
    /// each.
    ///
    /// # Errors
    /// What was expected and found, and where.
    pub fn parse(file: &Path, text: &str, report: &mut dyn FnMut(String)) -> Result<Self, String> {
        let parsed: GrantFile = toml::from_str(text).map_err(|error| describe_toml_error(&error, text))?;
        let GrantFile { users, programs, kernel, probes, commands, memory, sessions } = parsed;
        if users.is_empty() {
            return Err("expected users or @groups in `users`, found none".into());
        }
        if probes && !kernel {
            return Err("expected `kernel = true` with `probes = true`: probes are in the kernel".into());
        }
        if !(1..=MAX_SESSIONS).contains(&sessions) {
            return Err(format!("expected 1 to {MAX_SESSIONS} `sessions`, found {sessions}"));
        }
        let memory = match tompion_units::size(&memory) {
            Ok(0) => return Err("expected a size above 0 as `memory`, found 0".into()),
            size => size.map_err(|problem| format!("memory: {problem}"))?,
        };
        let mut grantees = Vec::new();
        for word in words("users", &users)? {
            let found = match word.strip_prefix('@') {
                Some(group) => number(group).or_else(|| group_named(group)).map(Grantee::Group),
                None => number(&word).or_else(|| user_named(&word)).map(Grantee::User),
            };
            match found {
                Some(Grantee::User(0)) => return Err("root needs no grant; remove it from `users`".into()),
                Some(Grantee::Group(0)) => {
                    return Err("expected no group of root's in `users`, found 0".into());
                }
                Some(grantee) => grantees.push(grantee),
                None => report(format!("this machine knows no `{word}` of `users`, which gets nothing")),
            }
        }
        let mut others = Vec::new();
        for word in words("programs.user", &programs.user)? {
            match number(&word).or_else(|| user_named(&word)) {
                Some(0) => return Err("expected no root in `programs.user`: that would be as root".into()),
                Some(user) => others.push(user),
                None => report(format!("this machine knows no user `{word}` of `programs.user`")),
            }
        }
        Ok(Self {
            file: file.to_owned(),
            users: grantees,
            programs: others,
            kernel,
            probes,
            commands,
            memory,
            sessions,
        })
    }

    /// Whether it is for a user, by its number or a group.
    pub fn is_for(&self, member: &Member) -> bool {
        self.users.iter().any(|grantee| match grantee {
            Grantee::User(user) => *user == member.user,
            Grantee::Group(group) => member.groups.contains(group),
        })
    }

    /// Users with programs that a user may record by it: the user itself, and those of the file.
    pub fn users_for(&self, user: u32) -> Vec<u32> {
        let others = self.programs.iter().copied().filter(|other| *other != user);
        [user].into_iter().chain(others).collect()
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = |grantee: &Grantee| match grantee {
            Grantee::User(user) => format!("user {user}"),
            Grantee::Group(group) => format!("group {group}"),
        };
        let users: Vec<String> = self.users.iter().map(word).collect();
        let others: Vec<String> = self.programs.iter().map(|user| format!(", of user {user}")).collect();
        let kernel = match (self.kernel, self.probes) {
            (false, _) => "",
            (true, false) => ", kernel events",
            (true, true) => ", kernel events, probes",
        };
        let commands = if self.commands { ", commands of triggers" } else { "" };
        write!(
            formatter,
            "{}: {}: own programs{}{kernel}{commands}; {} bytes of memory, {} sessions",
            self.file.display(),
            if users.is_empty() { "no user".into() } else { users.join(", ") },
            others.concat(),
            self.memory,
            self.sessions
        )
    }
}

/// Number of a user or group. The highest stands for none.
fn number(word: &str) -> Option<u32> {
    word.parse().ok().filter(|number| *number != u32::MAX)
}

/// Names and numbers of a list, as texts.
fn words(key: &str, list: &[Value]) -> Result<Vec<String>, String> {
    let word = |value: &Value| match value {
        Value::String(text) if !text.is_empty() => Ok(text.clone()),
        Value::Integer(number) => match u32::try_from(*number) {
            Ok(u32::MAX) | Err(_) => Err(format!("expected a user's number in `{key}`, found {number}")),
            Ok(number) => Ok(number.to_string()),
        },
        other => Err(format!("expected names and numbers in `{key}`, found {other}")),
    };
    list.iter().map(word).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Grant, String> {
        Grant::parse(Path::new("/etc/a.toml"), text, &mut |_| {})
    }

    fn member(user: u32, groups: &[u32]) -> Member {
        Member { user, groups: groups.to_vec() }
    }

    #[test]
    fn a_grant_is_for_its_users_and_groups_and_no_others() {
        let grant = parse("users = [1000, '1001', '@2000']\nmemory = '64M'").expect("a grant");
        assert_eq!((grant.kernel, grant.probes, grant.memory, grant.sessions), (false, false, 64 << 20, 4));
        assert!(!grant.commands);
        for (user, groups, is_for) in [
            (1000, &[7][..], true),
            (1001, &[], true),
            (5, &[7, 2000], true),
            (2000, &[7], false),
            (5, &[1000, 1001], false),
            (0, &[0], false),
        ] {
            assert_eq!(grant.is_for(&member(user, groups)), is_for, "{user} {groups:?}");
        }
        assert_eq!(grant.users_for(1000), [1000]);
        let others = "users = [1000]\nmemory = '1G'\nkernel = true\nprobes = true\nsessions = 9\ncommands = true\n\
                      programs.user = [7, 1000]";
        let others = parse(others).expect("a grant");
        assert_eq!((others.users_for(1000), others.users_for(5)), (vec![1000, 7], vec![5, 7, 1000]));
        assert_eq!((others.kernel, others.probes, others.sessions), (true, true, 9));
        assert_eq!(
            others.to_string(),
            "/etc/a.toml: user 1000: own programs, of user 7, of user 1000, kernel events, probes, \
             commands of triggers; \
             1073741824 bytes of memory, 9 sessions"
        );
    }

    #[test]
    fn mistakes_are_named_with_what_was_expected_and_found() {
        for (text, expected) in [
            ("", "missing field `users`"),
            ("users = [7]", "missing field `memory`"),
            ("users = [7]\nmemory = '1G'\nkernal = true", "line 3: unknown field `kernal`"),
            ("users = [7]\nmemory = '1G'\nprograms.users = [7]", "line 3: unknown field `users`"),
            ("users = 7\nmemory = '1G'", "line 1: invalid type: integer `7`"),
            ("users = [[7]]\nmemory = '1G'", "expected names and numbers in `users`, found [7]"),
            ("users = ['']\nmemory = '1G'", "expected names and numbers in `users`"),
            ("users = [-1]\nmemory = '1G'", "found -1"),
            ("users = [4294967295]\nmemory = '1G'", "found 4294967295"),
            ("users = []\nmemory = '1G'", "found none"),
            ("users = ['root']\nmemory = '1G'", "root needs no grant"),
            ("users = [0]\nmemory = '1G'", "root needs no grant"),
            ("users = ['@root']\nmemory = '1G'", "no group of root's"),
            ("users = [7]\nmemory = '1G'\nprograms.user = ['root']", "no root in `programs.user`"),
            ("users = [7]\nmemory = 'much'", "memory: expected a size such as 256K or 1M, found `much`"),
            ("users = [7]\nmemory = '0'", "above 0"),
            ("users = [7]\nmemory = '1G'\nsessions = 0", "expected 1 to 64 `sessions`, found 0"),
            ("users = [7]\nmemory = '1G'\nprobes = true", "expected `kernel = true`"),
        ] {
            let problem = parse(text).expect_err(text);
            assert!(problem.contains(expected) && !problem.contains('\n'), "{text}: {problem}");
        }
    }

    #[test]
    fn unknown_names_grant_nothing_and_are_reported() {
        let mut lines = Vec::new();
        let text =
            "users = ['no such user', '@no such group', 7]\nmemory = '1G'\nprograms.user = ['no such']";
        let grant = Grant::parse(Path::new("a"), text, &mut |line| lines.push(line)).expect("a grant");
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[1].contains("`@no such group`"), "{lines:?}");
        assert!(grant.is_for(&member(7, &[])) && !grant.is_for(&member(8, &[8])));
        assert_eq!(grant.users_for(7), [7]);
    }
}
