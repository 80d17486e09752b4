//! Selection of events to read: `-e`, `--filter`, and times, for all commands that have them.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use anyhow::{Context, bail};
use clap::Args;
use jiff::{Timestamp, Zoned, civil, tz::TimeZone};
use tompion_filter::Expression;
use tompion_reader::{Selection, TraceSet};

use crate::{
    filter,
    messages::{nearest_hint, print_status},
    units,
};

#[derive(Args)]
// The commands' own arguments are a group of this name.
#[group(skip)]
pub struct Arguments {
    /// Select events whose provider:name matches one of these (repeatable) [default: all]
    #[arg(short, long = "event", value_name = "GLOBS", value_delimiter = ',')]
    events: Vec<String>,
    /// Select events for which this is true: `rows > 100 && table == "orders*"`
    #[arg(long, value_name = "EXPR", value_parser = filter::parse, allow_hyphen_values = true)]
    filter: Option<Expression>,
    /// Start at this time: 14:03:05.25 (on the day on which the trace begins), `2026-01-02
    /// 14:03:05`, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Stop at this time, inclusive
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// Select the end of the trace, this long: 5s, 200ms, 1m
    #[arg(long, value_name = "DURATION", conflicts_with_all = ["from", "to"], value_parser = units::duration)]
    last: Option<Duration>,
    /// Names of the options above in babeltrace2
    #[arg(long, aliases = ["end", "timerange"], hide = true, value_name = "TIME", value_parser = renamed)]
    begin: Option<String>,
}

/// Names the options to write instead of babeltrace2's.
fn renamed(_: &str) -> Result<String, &'static str> {
    Err("expected --from TIME and --to TIME instead of --begin, --end and --timerange")
}

impl Arguments {
    /// Returns the selection for traces at these paths.
    pub fn selection(&self, paths: &[PathBuf], zone: &TimeZone) -> anyhow::Result<Selection> {
        self.selection_of_shifted(paths, zone, 0)
    }

    /// Returns the selection for traces to whose times these nanoseconds are added.
    pub fn selection_of_shifted(
        &self,
        paths: &[PathBuf],
        zone: &TimeZone,
        nanoseconds: i64,
    ) -> anyhow::Result<Selection> {
        let moment = |text: &Option<String>| {
            let day = || first_day(paths, zone, nanoseconds);
            text.as_deref().map(|text| parse_moment(text, zone, day)).transpose()
        };
        let (mut from, to) = (moment(&self.from)?, moment(&self.to)?);
        if let Some(last) = self.last {
            let end = tompion_reader::open(paths)?.end();
            let end = end.context("the trace has no event with a time, so it has no end")?;
            let end = end.saturating_add(nanoseconds);
            from = Some(end.saturating_sub(i64::try_from(last.as_nanos()).unwrap_or(i64::MAX)));
        }
        let filter = filter::compile(self.filter.as_ref())?;
        Ok(Selection { events: self.events.clone(), from, to, filter, predicate: None })
    }

    /// Returns whether a filter was given.
    pub fn has_filter(&self) -> bool {
        self.filter.is_some()
    }

    /// Returns whether the traces have an event for each given name, and reports names without one.
    pub fn finds_names(&self, traces: &TraceSet) -> bool {
        find_names(&self.events, traces)
    }

    /// Returns whether the filter fits the traces, and reports what doesn't.
    pub fn fits(&self, traces: &TraceSet) -> bool {
        filter::fits(self.filter.as_ref(), traces)
    }
}

/// Returns whether the traces have an event for each of these patterns, and reports those without
/// one.
pub fn find_names(globs: &[String], traces: &TraceSet) -> bool {
    let streams = traces.traces().iter().flat_map(|trace| &trace.metadata().streams);
    let names: BTreeSet<&str> =
        streams.flat_map(|stream| &stream.events).map(|event| event.name.as_str()).collect();
    let is_known = |glob: &&String| {
        let streams = traces.traces().iter().flat_map(|trace| &trace.metadata().streams);
        let mut events = streams.flat_map(|stream| &stream.events);
        let selection = Selection { events: vec![(*glob).clone()], ..Selection::default() };
        events.any(|event| selection.takes_name(event))
    };
    let mut all = true;
    for glob in globs.iter().filter(|glob| !is_known(glob)) {
        let near = nearest_hint(glob, names.iter().copied());
        let hint = if near.is_empty() { "; list them: tompion stat TRACE" } else { &near };
        print_status(format!("no event of the trace matches `{glob}`{hint}"));
        all = false;
    }
    all
}

/// Returns the time zone in which times are given and shown.
pub fn zone(utc: bool) -> TimeZone {
    if utc { TimeZone::UTC } else { TimeZone::system() }
}

/// Returns the day of the traces' first event, to whose time these nanoseconds are added. It
/// completes times without a date.
pub fn first_day(paths: &[PathBuf], zone: &TimeZone, nanoseconds: i64) -> anyhow::Result<civil::Date> {
    let mut traces = tompion_reader::open(paths)?;
    let first = traces.next_event().and_then(|event| event.timestamp());
    let first = first.context("the trace has no event with a time, so a time of day has no date")?;
    let first = first.saturating_add(nanoseconds);
    Ok(Timestamp::from_nanosecond(first.into())?.to_zoned(zone.clone()).date())
}

/// Parses a time. Returns nanoseconds since 1970.
pub fn parse_moment(
    text: &str,
    zone: &TimeZone,
    day: impl FnOnce() -> anyhow::Result<civil::Date>,
) -> anyhow::Result<i64> {
    let in_zone = |time: civil::DateTime| -> anyhow::Result<Zoned> { Ok(time.to_zoned(zone.clone())?) };
    let zoned = if let Some((seconds, fraction)) = seconds(text) {
        return seconds
            .checked_mul(1_000_000_000)
            .and_then(|ns| ns.checked_add(fraction))
            .context("too far away");
    } else if let Ok(time) = text.parse::<civil::DateTime>() {
        in_zone(time)?
    } else if let Ok(time) = text.parse::<civil::Time>() {
        // After the forms with a date, of which this would take only the time.
        in_zone(day()?.to_datetime(time))?
    } else if let Ok(time) = text.parse::<Timestamp>() {
        time.to_zoned(zone.clone())
    } else {
        bail!("expected a time such as 14:03:05.25, 2026-01-02T14:03:05 or 1767362585.25, found `{text}`");
    };
    Ok(i64::try_from(zoned.timestamp().as_nanosecond())?)
}

/// Parses `123.45` as seconds and nanoseconds.
fn seconds(text: &str) -> Option<(i64, i64)> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 9 {
        return None;
    }
    Some((whole.parse().ok()?, format!("{fraction:0<9}").parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_in_all_their_forms() {
        let day = || Ok(civil::date(2026, 1, 2));
        let other_day = || Ok(civil::date(2020, 5, 5));
        let with_day = parse_moment("2026-01-02 14:03:05", &TimeZone::UTC, other_day).unwrap();
        assert_eq!(with_day, 1_767_362_585_000_000_000);
        let parse = |text| parse_moment(text, &TimeZone::UTC, day).unwrap();
        assert_eq!(parse("14:03:05.25"), 1_767_362_585_250_000_000);
        assert_eq!(parse("2026-01-02 14:03:05"), 1_767_362_585_000_000_000);
        assert_eq!(parse("2026-01-02T14:03:05.000000001Z"), 1_767_362_585_000_000_001);
        assert_eq!(parse("1767362585.000000007"), 1_767_362_585_000_000_007);
        assert!(parse_moment("yesterday", &TimeZone::UTC, day).is_err());
    }
}
