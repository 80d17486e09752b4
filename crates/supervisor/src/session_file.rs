//! Description of a session, as its files have it.

use std::{collections::BTreeMap, fmt};

use serde::{Deserialize, Serialize};
use tompion_control::check_session_name;
use tompion_grants::describe_toml_error;

/// Maximum number of channels: a program takes part in eight recordings at most.
const MAX_CHANNELS: usize = 8;

/// A session: programs, and channels that record their events.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SessionFile {
    /// Folder below which each start writes a trace; `{name}` and `{host}` are replaced.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub output: Option<String>,
    /// Begin of the session.
    #[serde(default)]
    pub start: Start,
    /// Programs to record, as `tompion record --programs` takes them; all of the user without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<String>,
    /// Channels by their names.
    #[serde(default)]
    pub channel: BTreeMap<String, Channel>,
}

/// Begin of a session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Start {
    /// With the supervisor.
    Boot,
    /// On demand.
    #[default]
    Demand,
    /// By a trigger of this other session, once it notifies.
    Trigger(String),
}

/// Begin of a start by a trigger, before the session's name.
const TRIGGER: &str = "trigger:";

impl TryFrom<String> for Start {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        match (text.as_str(), text.strip_prefix(TRIGGER)) {
            ("boot", _) => Ok(Self::Boot),
            ("demand", _) => Ok(Self::Demand),
            (_, Some(name)) => match check_session_name(name) {
                Ok(()) => Ok(Self::Trigger(name.to_owned())),
                Err(error) => Err(format!("{TRIGGER}{name}: {error}")),
            },
            _ => Err(format!("expected `boot`, `demand` or `{TRIGGER}SESSION`, found `{text}`")),
        }
    }
}

impl From<Start> for String {
    fn from(start: Start) -> Self {
        start.to_string()
    }
}

impl fmt::Display for Start {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Boot => formatter.pad("boot"),
            Self::Demand => formatter.pad("demand"),
            Self::Trigger(session) => formatter.pad(&format!("{TRIGGER}{session}")),
        }
    }
}

/// A channel: events, their buffer, and what else one recording has. Keys are named as the options
/// of `tompion record`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Channel {
    /// Globs of events to record; all without any.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<String>,
    /// Globs of events to exclude.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Least severe level to record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub level: Option<String>,
    /// Filter that events must pass.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Context fields of each event.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub context: Vec<String>,
    /// Kernel events: the usual ones if the list is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kernel: Option<Vec<String>>,
    /// `discard`, or `overwrite` for a flight recorder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<String>,
    /// Memory of all rings: `256M`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<String>,
    /// Size of a sub-buffer: `256K`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subbuf_size: Option<String>,
    /// Number of sub-buffers per CPU.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subbufs: Option<u32>,
    /// Whether all pages of the rings are made present before the first event.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub prefault: bool,
    /// Begin of a new chunk: `10min`, `size=1G`, or `manual`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rotate: Option<String>,
    /// Chunks that are kept: `age=2d,size=50G`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub keep: Option<String>,
    /// Triggers: `external:slow -> snapshot after 5s limit 5/h`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub trigger: Vec<String>,
    /// Rules by which events are counted in place: `count app:request by status`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub count: Vec<String>,
    /// Time for which programs write on if the recorder is killed: `10s`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub linger: Option<String>,
}

impl Channel {
    /// Whether both choose the same events. These rules change while a recorder runs.
    pub fn has_rules_of(&self, other: &Self) -> bool {
        let rules = |it: &Self| (it.events.clone(), it.exclude.clone(), it.level.clone(), it.filter.clone());
        rules(self) == rules(other) && (self.kernel == other.kernel || !self.can_take_kernel_of(other))
    }

    /// Whether the choice of kernel events can become another one while a recorder runs: it records
    /// the kernel, its programs have no filter, and its probes stay.
    pub fn can_take_kernel_of(&self, other: &Self) -> bool {
        let (Some(before), Some(after)) = (&self.kernel, &other.kernel) else { return false };
        let is_probe = |word: &&String| {
            let kind = word.split(':').next().unwrap_or_default();
            word.contains(':') && (kind.ends_with("probe") || kind == "usdt")
        };
        let probes = |words: &[String]| words.iter().filter(is_probe).cloned().collect::<Vec<_>>();
        self.filter.is_none() && other.filter.is_none() && probes(before) == probes(after)
    }

    /// Whether the triggers can become those of another one while a recorder runs: the other needs
    /// no recording of another kind.
    pub fn can_take_triggers_of(&self, other: &Self) -> bool {
        (&self.mode, &self.rotate) == (&other.mode, &other.rotate)
    }

    /// Replaces what chooses events, and the triggers.
    pub fn take_rules_of(&mut self, other: &Self) {
        if self.can_take_triggers_of(other) {
            self.trigger.clone_from(&other.trigger);
        }
        let kernel = if self.can_take_kernel_of(other) { other.kernel.clone() } else { self.kernel.take() };
        let Self { events, exclude, level, filter, .. } = other.clone();
        *self = Self { events, exclude, level, filter, kernel, ..std::mem::take(self) };
    }
}

impl SessionFile {
    /// Parses one file. It may describe a part of a session: drop-ins do.
    ///
    /// # Errors
    /// The line, and what is wrong there.
    pub fn parse(text: &str) -> Result<Self, String> {
        toml::from_str(text).map_err(|error| describe_toml_error(&error, text))
    }

    /// Checks what the files together must have.
    ///
    /// # Errors
    /// What is missing or too much.
    pub fn check(&self) -> Result<(), String> {
        match self.channel.len() {
            0 => return Err("expected at least one [channel.NAME]".into()),
            1..=MAX_CHANNELS => {}
            found => return Err(format!("expected at most {MAX_CHANNELS} channels, found {found}")),
        }
        let is_sound = |name: &str| {
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        };
        if let Some(name) = self.channel.keys().find(|name| !is_sound(name)) {
            return Err(format!("expected letters, digits and `_` in a channel's name, found `{name}`"));
        }
        for (name, channel) in &self.channel {
            let rules = channel.count.iter().map(|rule| rule.parse::<tompion_counts::Rule>());
            let rules: Vec<_> =
                rules.collect::<Result<_, _>>().map_err(|error| format!("channel {name}: {error}"))?;
            tompion_counts::check(&rules).map_err(|error| format!("channel {name}: {error}"))?;
        }
        Ok(())
    }

    /// Name of a channel's recording: that of the session where it has no other.
    pub fn recording(&self, session: &str, channel: &str) -> String {
        if self.channel.len() == 1 { session.to_owned() } else { format!("{session}.{channel}") }
    }

    /// Returns options of `tompion record` for a channel, without name and folder.
    pub fn options(&self, channel: &Channel) -> Vec<String> {
        let mut options = Vec::new();
        let mut add = |option: &str, value: &str| options.push(format!("--{option}={value}"));
        self.programs.iter().for_each(|set| add("programs", set));
        channel.events.iter().for_each(|glob| add("event", glob));
        channel.exclude.iter().for_each(|glob| add("exclude", glob));
        channel.context.iter().for_each(|name| add("context", name));
        channel.trigger.iter().for_each(|rule| add("trigger", rule));
        channel.count.iter().for_each(|rule| add("count", rule));
        if let Some(patterns) = &channel.kernel {
            add("kernel", &patterns.join(","));
        }
        let subbufs = channel.subbufs.map(|number| number.to_string());
        for (option, value) in [
            ("level", &channel.level),
            ("filter", &channel.filter),
            ("mode", &channel.mode),
            ("memory", &channel.memory),
            ("subbuf-size", &channel.subbuf_size),
            ("subbufs", &subbufs),
            ("rotate", &channel.rotate),
            ("keep", &channel.keep),
            ("linger", &channel.linger),
        ] {
            if let Some(value) = value {
                add(option, value);
            }
        }
        if channel.prefault {
            options.push("--prefault".into());
        }
        options
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLIGHT: &str = r#"
        output = "/var/trace/{name}"
        start = "boot"
        programs = ["name=nginx"]

        [channel.main]
        events = ["net:*", "db:*"]
        filter = "len > 1500"
        level = "info"

        [channel.history]
        kernel = ["sched_*", "irq_*"]
        mode = "overwrite"
        subbuf-size = "1M"
        subbufs = 8
        rotate = "10min"
        keep = "age=2d"
        trigger = ["killed -> notify"]
        count = ["count app:request by status"]
    "#;

    #[test]
    fn channels_become_options_of_record() {
        let session = SessionFile::parse(FLIGHT).expect("a session");
        session.check().expect("a sound one");
        assert_eq!(
            session.options(&session.channel["main"]),
            ["--programs=name=nginx", "--event=net:*", "--event=db:*", "--level=info", "--filter=len > 1500"]
        );
        assert_eq!(
            session.options(&session.channel["history"]),
            [
                "--programs=name=nginx",
                "--trigger=killed -> notify",
                "--count=count app:request by status",
                "--kernel=sched_*,irq_*",
                "--mode=overwrite",
                "--subbuf-size=1M",
                "--subbufs=8",
                "--rotate=10min",
                "--keep=age=2d"
            ]
        );
        assert_eq!(session.recording("flight", "main"), "flight.main");
        let again: SessionFile =
            toml::from_str(&toml::to_string(&session).expect("text")).expect("the same session");
        assert_eq!(again, session);
    }

    #[test]
    fn a_single_channel_has_the_name_of_its_session() {
        let session = SessionFile::parse("[channel.any]").expect("a session");
        assert_eq!(session.recording("flight", "any"), "flight");
        assert_eq!(session.start, Start::Demand);
        let prefaults = SessionFile::parse("[channel.any]\nprefault = true").expect("a session");
        assert_eq!(prefaults.options(&prefaults.channel["any"]), ["--prefault"]);
        let lingers = "programs = ['name=a']\n[channel.any]\nlinger = '5s'";
        let lingers = SessionFile::parse(lingers).expect("a session");
        lingers.check().expect("a sound one");
        assert_eq!(lingers.options(&lingers.channel["any"]), ["--programs=name=a", "--linger=5s"]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        for (text, expected) in [
            ("start = \"boot\"\nevnts = []", "line 2: unknown field `evnts`"),
            ("\n\n[channel.a]\nmode = 1", "line 4: invalid type: integer `1`"),
            ("start = \"sometimes\"", "line 1: expected `boot`, `demand` or `trigger:SESSION`"),
            ("start = ", "line 1: "),
        ] {
            let problem = SessionFile::parse(text).expect_err(text);
            assert!(problem.starts_with(expected) && !problem.contains('\n'), "{text}: {problem}");
        }
        let check = |text: &str| SessionFile::parse(text).expect("a file").check().expect_err(text);
        assert!(check("").contains("at least one"));
        assert!(check("[channel.'a.b']").contains("a.b"));
        let together = SessionFile::parse("[channel.a]\nlinger = '10s'\nrotate = '10min'").expect("a file");
        together.check().expect("they go together");
        let many: String = (0..9).map(|number| format!("[channel.c{number}]\n")).collect();
        assert!(check(&many).contains("found 9"));
    }
}
