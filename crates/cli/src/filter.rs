//! `--filter EXPR`, for all commands that take it.

use tompion_filter::{Expression, FilterError};
use tompion_reader::{
    TraceSet,
    filter::{self, Filter},
};

use crate::messages::{nearest, say};

/// Reads a filter from the command line. What is wrong is shown below it, with a caret.
pub fn parse(text: &str) -> Result<Expression, String> {
    let below = |error: FilterError| format!("\n{}", error.render());
    let expression = tompion_filter::parse(text).map_err(below)?;
    tompion_filter::compile_unbound(&expression).map_err(below)?;
    Ok(expression)
}

/// The filter for a reader.
pub fn compile(expression: Option<&Expression>) -> Result<Option<Filter>, FilterError> {
    expression.map(Filter::new).transpose()
}

/// Whether a filter fits the selected events; says what doesn't. A name that none of them has is only
/// warned of: they may be recorded another time.
pub fn fits(expression: Option<&Expression>, traces: &TraceSet) -> bool {
    let Some(expression) = expression else { return true };
    let missing = match filter::check(expression, traces) {
        Ok(missing) => missing,
        Err(error) => {
            say(format!("the filter doesn't fit the events\n{}", error.render()));
            return false;
        }
    };
    for name in missing {
        let name = name.to_string();
        let known = filter::names(traces);
        let near = nearest(&name, known.iter().map(String::as_str));
        let hint = near.first().map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
        say(format!("warning: no event has `{name}`{hint}"));
    }
    true
}
