//! `tompion print`.

use std::{io::Write, path::PathBuf, process::ExitCode};

use anyhow::{Context, bail};
use clap::{Args, ValueEnum};
use jiff::{Timestamp, Zoned, civil, tz::TimeZone};
use tompion_filter::Expression;
use tompion_reader::{
    Selection, TraceSet, json,
    text::{self, ClockFormat, PrintOptions, TimeFormat},
};

use crate::{
    filter,
    messages::{self, say},
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion print\n  \
    tompion print -e 'db:*' --from 14:03:05.25 --to 14:03:06 trace/\n  \
    tompion print --filter 'rows > 100 && table == \"orders*\" && $tid == 12'\n  \
    tompion print --format json trace/ | jq -c .\n  \
    tompion print --clock-seconds lttng-traces/auto-*/")]
pub struct Arguments {
    /// Folders with CTF traces, of any producer [default: the newest here]
    #[arg(value_name = "TRACE")]
    traces: Vec<PathBuf>,
    /// Print events whose provider:name matches (repeatable) [default: all]
    #[arg(short, long = "event", value_name = "GLOB")]
    events: Vec<String>,
    /// Print events of which this is true: `rows > 100 && table == "orders*"`
    #[arg(long, value_name = "EXPR", value_parser = filter::parse)]
    filter: Option<Expression>,
    /// From this moment on: 14:03:05.25, `2026-01-02 14:03:05`, or seconds since 1970
    #[arg(long, value_name = "TIME")]
    from: Option<String>,
    /// Up to this moment, inclusive
    #[arg(long, value_name = "TIME")]
    to: Option<String>,
    /// How to print
    #[arg(long, value_enum, default_value = "text")]
    format: Format,
    /// Times in seconds since 1970
    #[arg(long)]
    clock_seconds: bool,
    /// Times with their date
    #[arg(long)]
    clock_date: bool,
    /// Times in UTC, not in local time
    #[arg(long)]
    clock_gmt: bool,
    /// Leave out the time since the event before
    #[arg(long)]
    no_delta: bool,
    /// Leave out the names of functions, which events with addresses of code have
    #[arg(long)]
    no_symbols: bool,
}

#[derive(Clone, Copy, ValueEnum)]
enum Format {
    /// As babeltrace2 prints
    Text,
    /// An object a line
    Json,
    /// Comma-separated values
    Csv,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let paths = super::traces(&arguments.traces)?;
    super::tell_incomplete(&paths);
    let mut traces = tompion_reader::open(&paths)?;
    let zone = if arguments.clock_gmt { TimeZone::UTC } else { TimeZone::system() };
    let moment = |text: &Option<String>| {
        text.as_deref().map(|text| parse_moment(text, &zone, || first_day(&paths, &zone))).transpose()
    };
    let (from, to) = (moment(&arguments.from)?, moment(&arguments.to)?);
    let filter = filter::compile(arguments.filter.as_ref())?;
    traces.select(Selection { events: arguments.events.clone(), from, to, filter });
    if !filter::fits(arguments.filter.as_ref(), &traces) {
        return Ok(ExitCode::from(messages::WRONG_USAGE));
    }
    let clock = if arguments.clock_seconds { ClockFormat::Seconds } else { ClockFormat::TimeOfDay };
    let time = TimeFormat { clock, date: arguments.clock_date, utc: arguments.clock_gmt };
    let options = PrintOptions { time, no_delta: arguments.no_delta };
    let mut output = messages::output();
    if !arguments.no_symbols {
        traces.name_addresses();
    }
    match arguments.format {
        Format::Text => text::print(&mut traces, &options, &mut output)?,
        Format::Json => json::print(&mut traces, &mut output)?,
        Format::Csv => json::print_csv(&mut traces, &mut output)?,
    };
    output.flush()?;
    Ok(report(&traces, &options))
}

/// Losses and damages, on standard error.
fn report(traces: &TraceSet, options: &PrintOptions) -> ExitCode {
    for loss in traces.losses() {
        say(format!("warning: {}", text::loss_warning(traces, loss, options)));
    }
    for damage in traces.damages() {
        say(damage);
    }
    if traces.damages().is_empty() { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) }
}

/// The day of the traces' first event, for times that don't say theirs.
fn first_day(paths: &[PathBuf], zone: &TimeZone) -> anyhow::Result<civil::Date> {
    let mut traces = tompion_reader::open(paths)?;
    let first = traces.next_event().and_then(|event| event.timestamp());
    let first = first.context("the trace has no event with a time, so a time of day means nothing")?;
    Ok(Timestamp::from_nanosecond(first.into())?.to_zoned(zone.clone()).date())
}

/// Nanoseconds since 1970.
fn parse_moment(
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
    } else if let Ok(time) = text.parse::<civil::Time>() {
        in_zone(day()?.to_datetime(time))?
    } else if let Ok(time) = text.parse::<civil::DateTime>() {
        in_zone(time)?
    } else if let Ok(time) = text.parse::<Timestamp>() {
        time.to_zoned(zone.clone())
    } else {
        bail!("expected a time such as 14:03:05.25, 2026-01-02T14:03:05 or 1767362585.25, found `{text}`");
    };
    Ok(i64::try_from(zoned.timestamp().as_nanosecond())?)
}

/// `123.45` as seconds and nanoseconds.
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
        let parse = |text| parse_moment(text, &TimeZone::UTC, day).unwrap();
        assert_eq!(parse("14:03:05.25"), 1_767_362_585_250_000_000);
        assert_eq!(parse("2026-01-02 14:03:05"), 1_767_362_585_000_000_000);
        assert_eq!(parse("2026-01-02T14:03:05.000000001Z"), 1_767_362_585_000_000_001);
        assert_eq!(parse("1767362585.000000007"), 1_767_362_585_000_000_007);
        assert!(parse_moment("yesterday", &TimeZone::UTC, day).is_err());
    }
}
