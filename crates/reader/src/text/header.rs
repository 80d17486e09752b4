//! Writes the part of a line before an event's fields: properties of the trace, and the event's
//! name.

use tompion_ctf::metadata::{EnvironmentValue, Event};

use super::{NAME_COLOUR, NO_COLOUR, PrintOptions};
use crate::Trace;

/// Choice of the properties before an event's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeaderFields {
    /// Name of the trace: its host, and the folder below the opened path.
    pub trace: bool,
    /// Name of the host.
    pub hostname: bool,
    /// Traced domain: `ust` or `kernel`.
    pub domain: bool,
    /// Name of the process, for traces of a single one.
    pub procname: bool,
    /// Process id.
    pub vpid: bool,
    /// Log level of the event.
    pub log_level: bool,
    /// The event's `model.emf.uri`.
    pub emf: bool,
}

impl HeaderFields {
    /// No property.
    pub const NONE: Self = Self {
        trace: false,
        hostname: false,
        domain: false,
        procname: false,
        vpid: false,
        log_level: false,
        emf: false,
    };
    /// All properties.
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

/// Names of log levels in LTTng's tools.
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

/// Properties of a trace in the lines of its events.
pub(super) struct Origin {
    name: String,
    /// Host, domain, process name and process id, each with its label.
    parts: Vec<(&'static str, String)>,
}

impl Origin {
    /// Collects the properties of a trace with this name.
    pub fn new(trace: &Trace, shown: HeaderFields) -> Self {
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
        Self {
            name: trace.name().to_owned(),
            parts: parts.filter_map(|(_, what, part)| Some((what, part?))).collect(),
        }
    }

    /// Returns the text between the time and the event's first field.
    pub fn begin(&self, event: &Event, has_time: bool, options: &PrintOptions) -> Vec<u8> {
        let level = event.log_level.filter(|_| options.fields.log_level);
        // A level without a name is ignored.
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

    /// Formats as `box:find:(77) db:query: `.
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

    /// Formats as `, trace:hostname = box, name = db:query, `.
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
            // babeltrace2 prints one comma too many here.
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
