//! Names of events.

use crate::{Kind, Level};

/// Names and other properties of an event, against which rules are matched. See
/// [`crate::decode_names`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Names<'a> {
    /// Provider that defines the event, `db` in `db:query_begin`.
    pub provider: &'a str,
    /// Name without the provider, `query_begin` in `db:query_begin`.
    pub name: &'a str,
    /// Log level.
    pub level: Level,
    /// Kind of the event.
    pub kind: Kind,
    /// Whether the event belongs to the initial state.
    pub init: bool,
}

impl<'a> Names<'a> {
    /// Returns the name of the span that the event begins or ends, `query`; for others, the event's
    /// own.
    pub fn base(&self) -> &'a str {
        base_name(self.name, self.kind)
    }
}

/// Returns the name of the field for an application's context with the name `provider:name`.
///
/// ```
/// assert_eq!(tompion_schema::context_field("net:request"), "app_net_request");
/// ```
pub fn context_field(name: &str) -> String {
    format!("app_{}", name.replace(':', "_"))
}

/// Returns the name of the span that an event with this name begins or ends; for others, the name
/// itself.
///
/// ```
/// use tompion_schema::{Kind, base_name};
/// assert_eq!(base_name("query_begin", Kind::Begin), "query");
/// assert_eq!(base_name("query_end", Kind::End), "query");
/// assert_eq!(base_name("query_end", Kind::Instant), "query_end");
/// ```
pub fn base_name(name: &str, kind: Kind) -> &str {
    let suffix = match kind {
        Kind::Begin | Kind::Job => "_begin",
        Kind::End => "_end",
        Kind::Instant | Kind::Counter | Kind::Flow | Kind::Mark => return name,
    };
    name.strip_suffix(suffix).filter(|base| !base.is_empty()).unwrap_or(name)
}
