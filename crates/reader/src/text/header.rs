//! What stands before an event's fields: parts of the trace, and the event's name.

use tompion_ctf::metadata::{EnvironmentValue, Event};

use super::{NAME_COLOUR, NO_COLOUR, PrintOptions};
use crate::Trace;

/// Which parts stand before an event's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFields {
    /// The trace's name: its host, and the folder below the path that was opened.
    pub trace: bool,
    /// The host's name.
    pub hostname: bool,
    /// What was traced: `ust`, `kernel`.
    pub domain: bool,
    /// The process's name, of traces that have but one.
    pub procname: bool,
    /// Its number.
    pub vpid: bool,
    /// The event's level.
    pub log_level: bool,
    /// The event's `model.emf.uri`.
    pub emf: bool,
}

impl HeaderFields {
    /// Nothing.
    pub const NONE: Self = Self {
        trace: false,
        hostname: false,
        domain: false,
        procname: false,
        vpid: false,
        log_level: false,
        emf: false,
    };
    /// Everything that there is.
    pub const ALL: Self = Self {
        trace: true,
        hostname: true,
        domain: true,
        procname: true,
        vpid: true,
        log_level: true,
        emf: true,
    };
}

impl Default for HeaderFields {
    fn default() -> Self {
        Self { hostname: true, procname: true, vpid: true, ..Self::NONE }
    }
}

/// Levels as LTTng's tools call them.
const LEVELS: [&str; 15] = [
    "TRACE_EMERG",
    "TRACE_ALERT",
    "TRACE_CRIT",
    "TRACE_ERR",
    "TRACE_WARNING",
    "TRACE_NOTICE",
    "TRACE_INFO",
    "TRACE_DEBUG_SYSTEM",
    "TRACE_DEBUG_PROGRAM",
    "TRACE_DEBUG_PROCESS",
    "TRACE_DEBUG_MODULE",
    "TRACE_DEBUG_UNIT",
    "TRACE_DEBUG_FUNCTION",
    "TRACE_DEBUG_LINE",
    "TRACE_DEBUG",
];

/// What a trace contributes to the lines of its events.
pub(super) struct Origin {
    name: String,
    /// Host, domain, process and its number, each with what it is called.
    parts: Vec<(&'static str, String)>,
}

impl Origin {
    /// Of a trace of this name.
    pub fn new(trace: &Trace, name: String, shown: HeaderFields) -> Self {
        let value = |name| trace.metadata().environment_value(name);
        let text = |name| value(name).and_then(EnvironmentValue::as_text).map(String::from);
        let process = value("vpid").and_then(EnvironmentValue::as_integer).map(|pid| format!("({pid})"));
        let parts = [
            (shown.hostname, "trace:hostname", text("hostname")),
            (shown.domain, "trace:domain", text("domain")),
            (shown.procname, "trace:procname", text("procname")),
            (shown.vpid, "trace:vpid", process),
        ];
        let parts = parts.into_iter().filter(|(shown, ..)| *shown);
        Self { name, parts: parts.filter_map(|(_, what, part)| Some((what, part?))).collect() }
    }

    /// From behind the time to the event's first field.
    pub fn begin(&self, event: &Event, has_time: bool, options: &PrintOptions) -> Vec<u8> {
        let level = event.log_level.filter(|_| options.fields.log_level);
        // A level without a name is no level.
        let name = |level: i64| usize::try_from(level).ok().and_then(|level| LEVELS.get(level));
        let level = level.and_then(|level| Some(("loglevel", format!("{} ({level})", name(level)?))));
        let uri = event.attributes.iter().find(|(name, _)| name == "model.emf.uri");
        let uri = uri.filter(|_| options.fields.emf).map(|(_, uri)| ("model.emf.uri", uri.to_string()));
        let parts = self.parts.iter().map(|(what, part)| (*what, part.as_str()));
        let own = level.iter().chain(&uri).map(|(what, part)| (*what, part.as_str()));
        let parts: Vec<(&str, &str)> = parts.chain(own).collect();
        match options.names.header {
            true => self.named(&parts, event, has_time, options),
            false => self.plain(&parts, event, options),
        }
    }

    /// `box:find:(77) db:query: `
    fn plain(&self, parts: &[(&str, &str)], event: &Event, options: &PrintOptions) -> Vec<u8> {
        let mut text = if options.fields.trace { self.name.clone() } else { String::new() };
        text.push_str(&parts.iter().map(|(_, part)| *part).collect::<Vec<_>>().join(":"));
        if !parts.is_empty() {
            text.push(' ');
        }
        push_name(&event.name, options.colour, &mut text);
        text.push_str(": ");
        text.into_bytes()
    }

    /// `, trace:hostname = box, name = db:query, `
    fn named(
        &self,
        parts: &[(&str, &str)],
        event: &Event,
        has_time: bool,
        options: &PrintOptions,
    ) -> Vec<u8> {
        let mut text = String::new();
        let mut separator = if has_time { ", " } else { "" };
        if options.fields.trace {
            // babeltrace2 has one comma too many here.
            text = format!("{separator}trace = {}, ", self.name);
        }
        for (what, part) in parts {
            text.push_str(&format!("{separator}{what} = {part}"));
            separator = ", ";
        }
        text.push_str(separator);
        text.push_str("name = ");
        push_name(&event.name, options.colour, &mut text);
        text.push_str(", ");
        text.into_bytes()
    }
}

fn push_name(name: &str, colour: bool, text: &mut String) {
    let (begin, end) = if colour { (NAME_COLOUR, NO_COLOUR) } else { ("", "") };
    text.extend([begin, name, end]);
}
