//! Text of rules.

use std::str::FromStr;

use tompion_filter::{Name, Scope};

use crate::{Function, Key, MAX_EVENT_KEYS, MAX_KEYS, MAX_LIMIT, MAX_NAME, MAX_RULE, Rule, RuleError};

/// Contexts that an agent knows, and so may be in the filter of a rule.
const FILTER_CONTEXTS: [&str; 2] = ["tid", "pid"];

fn error<T>(text: String) -> Result<T, RuleError> {
    Err(RuleError(text))
}

/// Parses the path of a field, as filters write it.
pub(crate) fn field(text: &str) -> Result<Name, RuleError> {
    let wrong = || RuleError(format!("expected a field's name, found `{text}`"));
    let expression = tompion_filter::parse(text).map_err(|_| wrong())?;
    let mut names = expression.names();
    let Some((name, span)) = names.next() else { return Err(wrong()) };
    // An expression has more than its name.
    if names.next().is_some() || span.length != text.len() || name.scope != Scope::Field {
        return Err(wrong());
    }
    Ok(name.clone())
}

/// Splits a text at a word that stands between spaces. The second part is none without the word.
fn split_at_word<'a>(text: &'a str, word: &str) -> (&'a str, Option<&'a str>) {
    let mut from = 0;
    while let Some(at) = text[from..].find(word).map(|at| from + at) {
        let end = at + word.len();
        let is_apart = text[..at].chars().next_back().is_none_or(char::is_whitespace)
            && text[end..].chars().next().is_none_or(char::is_whitespace);
        if is_apart {
            return (text[..at].trim(), Some(text[end..].trim()));
        }
        from = end;
    }
    (text.trim(), None)
}

impl FromStr for Rule {
    type Err = RuleError;

    fn from_str(text: &str) -> Result<Self, RuleError> {
        if text.len() > MAX_RULE || text.chars().any(char::is_control) {
            return error(format!("expected a line of at most {MAX_RULE} bytes"));
        }
        // The filter comes last: it may contain any of the other words.
        let (head, filter) = split_at_word(text, "if");
        let filter = filter.map(parse_filter).transpose()?;
        let (name, head) = match head.split_once('=') {
            Some((name, head)) => (Some(parse_name(name.trim())?), head),
            None => (None, head),
        };
        let (head, limit) = split_at_word(head, "limit");
        let (head, keys) = split_at_word(head, "by");
        let keys = keys.map(parse_keys).transpose()?.unwrap_or_default();
        let (function, globs) = parse_function(head)?;
        let limit = match limit {
            Some(limit) => parse_limit(limit)?,
            None => function.default_limit(),
        };
        let name = name.unwrap_or_else(|| default_name(&function, &globs, &keys));
        let rule = Self { name, function, globs, keys, limit, filter };
        let of_events = rule.event_keys().count();
        if of_events > MAX_EVENT_KEYS {
            return error(format!(
                "expected at most {MAX_EVENT_KEYS} keys besides comm, pid and cgroup, found {of_events}"
            ));
        }
        let size = rule.size();
        if tompion_layout::counts::CountGeometry::new(&[size], 1).is_none() {
            return error(format!("limit {limit} needs too much memory for a histogram; make it smaller"));
        }
        Ok(rule)
    }
}

fn parse_name(name: &str) -> Result<String, RuleError> {
    let is_sound = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let begins = name.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
    if !begins || name.len() > MAX_NAME || !name.bytes().all(is_sound) {
        return error(format!("expected letters, digits and _ before `=`, found `{name}`"));
    }
    Ok(name.to_owned())
}

fn parse_filter(text: &str) -> Result<String, RuleError> {
    let expression = tompion_filter::parse(text).map_err(|error| RuleError(error.to_string()))?;
    for name in expression.contexts() {
        if name.scope == Scope::Context && !FILTER_CONTEXTS.contains(&name.head()) {
            return error(format!(
                "a count's filter can ask for fields, $tid and $pid; the program does not know ${}",
                name.head()
            ));
        }
    }
    tompion_filter::compile_unbound(&expression).map_err(|error| RuleError(error.to_string()))?;
    Ok(expression.to_text())
}

fn parse_keys(text: &str) -> Result<Vec<Key>, RuleError> {
    let keys: Vec<Key> = text.split(',').map(|key| Key::parse(key.trim())).collect::<Result<_, _>>()?;
    if keys.len() > MAX_KEYS {
        return error(format!("expected at most {MAX_KEYS} keys, found {}", keys.len()));
    }
    match keys.iter().enumerate().find(|(index, key)| keys[..*index].contains(key)) {
        Some((_, twice)) => error(format!("the key `{twice}` is there twice")),
        None => Ok(keys),
    }
}

fn parse_limit(text: &str) -> Result<u32, RuleError> {
    match text.parse() {
        Ok(limit @ 1..=MAX_LIMIT) => Ok(limit),
        _ => error(format!("expected a number of keys from 1 to {MAX_LIMIT} behind `limit`, found `{text}`")),
    }
}

/// Parses `count GLOBS` or `FUNCTION of FIELD GLOBS`.
fn parse_function(text: &str) -> Result<(Function, Vec<String>), RuleError> {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let make: fn(Name) -> Function = match word {
        "count" => return Ok((Function::Count, parse_globs(rest)?)),
        "sum" => Function::Sum,
        "min" => Function::Min,
        "max" => Function::Max,
        "histogram" => Function::Histogram,
        _ => return error(format!("expected count, sum, min, max or histogram, found `{word}`")),
    };
    let Some(rest) =
        rest.trim_start().strip_prefix("of").filter(|rest| rest.starts_with(char::is_whitespace))
    else {
        return error(format!("expected `{word} of FIELD`, found `{text}`"));
    };
    let rest = rest.trim();
    let (name, globs) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    Ok((make(field(name)?), parse_globs(globs)?))
}

fn parse_globs(text: &str) -> Result<Vec<String>, RuleError> {
    let globs: Vec<String> = text.split(',').map(|glob| glob.trim().to_owned()).collect();
    match &globs[..] {
        [all] if all.is_empty() => Ok(Vec::new()),
        globs if globs.iter().any(String::is_empty) => error(format!("expected globs, found `{text}`")),
        _ => match globs.iter().find(|glob| glob.contains(char::is_whitespace)) {
            Some(glob) => error(format!("expected globs with commas between, found `{glob}`")),
            None => Ok(globs),
        },
    }
}

/// Name of a rule that has none: its words, as far as a metric's name can have them.
fn default_name(function: &Function, globs: &[String], keys: &[Key]) -> String {
    let of = function.field().map(|field| field.to_string());
    let keys = keys.iter().map(Key::label);
    let words = [function.word().to_owned()].into_iter().chain(of).chain(globs.iter().cloned());
    let words = words.chain(keys.enumerate().map(|(index, key)| match index {
        0 => format!("by {key}"),
        _ => key,
    }));
    let words = words.collect::<Vec<_>>().join(" ");
    let parts = words.split(|character: char| !character.is_ascii_alphanumeric());
    let mut name = parts.filter(|part| !part.is_empty()).collect::<Vec<_>>().join("_");
    name.truncate(MAX_NAME);
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> Rule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn rules_survive_the_round_trip() {
        for (text, expected) in [
            ("count", "count = count"),
            ("count app:request by status", "count_app_request_by_status = count app:request by status"),
            ("count by event, tid,cgroup", "count_by_event_tid_cgroup = count by event, tid, cgroup"),
            (
                "histogram of size  net:*,db:query by comm , tid limit 300",
                "histogram_size_net_db_query_by_comm_tid = histogram of size net:*,db:query by comm, tid limit 300",
            ),
            ("sum of a.b[3] x:y", "sum_a_b_3_x_y = sum of a.b[3] x:y"),
            ("slow = max of ns by $pid, .pid", "slow = max of ns by pid, .pid"),
            ("count if ns > 5ms && $tid == 7", "count = count if ns > 5000000 && $tid == 7"),
        ] {
            let parsed = rule(text);
            assert_eq!(parsed.to_text(), expected);
            assert_eq!(rule(expected), parsed, "{text}");
        }
        let filtered = rule("n = count a:* by k limit 7 if by == \"a if b by c\"");
        assert_eq!(filtered.filter.as_deref(), Some("by == \"a if b by c\""));
        assert_eq!((filtered.limit, filtered.keys.len(), filtered.name.as_str()), (7, 1, "n"));
    }

    #[test]
    fn sizes_follow_keys_and_functions() {
        let size = |text| {
            let size = rule(text).size();
            (size.slots, size.cells)
        };
        assert_eq!(size("count"), (1, 1));
        assert_eq!(size("count by comm, pid, cgroup"), (1, 1));
        assert_eq!(size("count by status"), (2048, 1));
        assert_eq!(size("count by tid limit 5"), (16, 1));
        assert_eq!(size("histogram of x by comm"), (1, 256));
        assert_eq!(size("histogram of x by tid"), (256, 256));
    }

    #[test]
    fn mistakes_are_named() {
        for (text, expected) in [
            ("", "expected count, sum,"),
            ("sum", "expected `sum of FIELD`"),
            ("sum of", "expected `sum of FIELD`"),
            ("sum of 3", "expected a field's name, found `3`"),
            ("sum of $tid", "expected a field's name, found `$tid`"),
            ("sum of a+b", "expected a field's name, found `a+b`"),
            ("count by", "expected a field's name, found ``"),
            ("count by $prio", "expected one of event, tid, comm, pid, cgroup"),
            ("count by a, b, c", "expected at most 2 keys besides"),
            ("count by a, a", "the key `a` is there twice"),
            ("count by a, b, comm, pid, cgroup", "expected at most 4 keys"),
            ("count a b", "expected globs with commas between"),
            ("count a,,b", "expected globs"),
            ("count by a limit 0", "expected a number of keys from 1"),
            ("count by a limit x", "expected a number of keys"),
            ("histogram of x by a limit 60000", "needs too much memory"),
            ("count if $comm == \"a\"", "the program does not know $comm"),
            ("count if (", "expected"),
            ("count if \"a\" == \"b\"", "expected"),
            ("1x = count", "expected letters, digits and _"),
            ("count\nby a", "expected a line"),
        ] {
            let error = text.parse::<Rule>().expect_err(text).to_string();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }

    #[test]
    fn names_of_one_recording_differ() {
        let rules = |texts: &[&str]| texts.iter().map(|text| rule(text)).collect::<Vec<_>>();
        assert!(crate::check(&rules(&["count a:x", "count a:y"])).is_ok());
        assert!(crate::check(&rules(&["n = count a:x", "n = count a:y"])).is_err());
        assert!(crate::check(&rules(&["a = count a:x", "a_sum = count a:y"])).is_err());
        let many: Vec<_> = (0..17).map(|number| rule(&format!("c{number} = count"))).collect();
        assert!(crate::check(&many).is_err() && crate::check(&many[..16]).is_ok());
    }
}
