//! `--filter EXPR`, for all commands that have it.

use tompion_filter::{Expression, FilterError, Name, Scope, Span};
use tompion_reader::{
    TraceSet,
    filter::{self, Filter},
};

use crate::messages::{nearest, print_status};

/// Names that a filter of a recording may have besides fields.
const CONTEXTS: &str =
    "a context ($tid, $pid, $comm, $prio, $cpu, $cgroup, $net_ns and other namespaces, $app.PROVIDER:NAME)";

/// Formats an error below the filter, with a caret.
fn below(error: FilterError) -> String {
    format!("\n{}", error.render())
}

/// Parses a filter from the command line.
pub fn parse(text: &str) -> Result<Expression, String> {
    let expression = tompion_filter::parse(text).map_err(below)?;
    tompion_filter::compile_unbound(&expression).map_err(below)?;
    Ok(expression)
}

/// Parses a filter for a recording. Returns it in one line.
pub fn for_recording(text: &str) -> Result<String, String> {
    let expression = parse(text)?;
    if let Some((name, at)) = tompion_session::unknown_contexts(&expression).next() {
        let known: Vec<_> = tompion_session::filter_contexts().map(|name| format!("${name}")).collect();
        return Err(below(unknown(&expression, (name, at), CONTEXTS, &known)));
    }
    tompion_session::check_filter(&expression).map_err(below)?;
    let line = expression.to_text();
    // The result may be longer (`1K` becomes 1024), and agents must be able to parse it.
    tompion_filter::parse(&line).map_err(below)?;
    Ok(line)
}

/// Returns the error for an unknown name, with the most similar known one.
fn unknown(
    expression: &Expression,
    (name, at): (&Name, Span),
    expected: &str,
    known: &[String],
) -> FilterError {
    let name = name.to_string();
    // Every context begins with the same sign, which must not count as similarity.
    let (sign, word) = name.split_at(usize::from(name.starts_with('$')));
    let near = nearest(word, known.iter().filter_map(|known| known.strip_prefix(sign)));
    let hint = near.first().map(|near| format!("; did you mean `{sign}{near}`?")).unwrap_or_default();
    FilterError::new(expression.text(), at, expected, format!("`{name}`{hint}"))
}

/// Compiles a filter for a reader.
pub fn compile(expression: Option<&Expression>) -> Result<Option<Filter>, FilterError> {
    expression.map(Filter::new).transpose()
}

/// Returns whether a filter fits the selected events, and reports what doesn't. A context that no
/// event has is only a warning: another recording may have it.
pub fn fits(expression: Option<&Expression>, traces: &TraceSet) -> bool {
    let Some(expression) = expression else { return true };
    let (contexts, fields): (Vec<_>, Vec<_>) = filter::missing(expression, traces)
        .into_iter()
        .partition(|(name, _)| name.scope == Scope::Application || filter::is_common_context(name));
    let error = match fields.first() {
        Some(missing) => {
            let known: Vec<_> = filter::names(traces).into_iter().collect();
            Some(unknown(expression, *missing, "a name that one of the events has", &known))
        }
        None => filter::check(expression, traces).err(),
    };
    if let Some(error) = error {
        print_status(format!("the filter doesn't match the events' fields\n{}", error.render()));
        return false;
    }
    for (name, _) in contexts {
        print_status(format!("warning: no event has a field `{name}`"));
    }
    true
}
