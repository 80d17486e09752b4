//! `tompion monitor compare`: compares two periods or two kernels.

use crate::screen::{BOLD, DIM, END, GREEN, RED};
use std::{fmt::Write as _, io::Write as _, path::PathBuf};

use anyhow::bail;
use clap::Args;
use tompion_history::{
    Choice, Comparison, KindComparison, Side, Span, Store, Verdict,
    plot::{self, Curve},
};

use super::{
    selection::{describe_excess, file_rights, open_history},
    times::{format_time, moment},
};
use crate::{
    commands::monitor::{picture::PictureArgs, table::format_us},
    messages::{self, escape_control, pluralize, print_status, with_thousands},
};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion monitor compare 6.1.0-rt 6.12.0-rt                      # two kernels\n  \
    tompion monitor compare 2026-09-01..2026-10-01 2026-10-01..     # two months\n  \
    tompion monitor compare 6.1.0-rt 6.12.0-rt -o kernels.png       # histograms of both in one picture\n\n\
A side is a period (FROM..TO, either of which may be missing), or a kernel version or part of one. The maxima of each five \
minutes are compared; a difference counts as better or worse if chance alone makes it less than once in a hundred \
comparisons. Five minutes belong to the side in which they begin.")]
pub struct Arguments {
    /// Baseline: FROM..TO, or a kernel
    #[arg(value_name = "BEFORE")]
    before: String,
    /// Period or kernel to compare with the baseline
    #[arg(value_name = "AFTER")]
    after: String,
    /// Read this history [default: as for `report`]
    #[arg(long, value_name = "FILE")]
    history: Option<PathBuf>,
    /// Print JSON
    #[arg(long, conflicts_with = "output")]
    json: bool,
    /// Draw histograms of both sides to NAME.svg or NAME.png
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<()> {
    let output = arguments.output.clone().map(PictureArgs::of);
    output.as_ref().map(PictureArgs::check).transpose()?;
    let _rights = file_rights(arguments.history.as_deref());
    let store = open_history(arguments.history.as_ref())?;
    let side = |text: &str| anyhow::Ok((text.to_owned(), choice(&store, text)?));
    let sides = [side(&arguments.before)?, side(&arguments.after)?];
    let spans = sides.each_ref().map(|side| side.1.span);
    let found = Comparison::of(&store, sides)?;
    for (name, report) in found.names.iter().zip(&found.reports) {
        if report.coverage.rows == 0 {
            bail!("`{name}` has no counts; see tompion monitor report");
        }
    }
    if let Some(output) = output {
        let curves = [0, 1].map(|side| Curve::of_all(&found.names[side], &found.reports[side].cpus));
        let title = format!("{} and {}", found.names[0], found.names[1]);
        output.write(&plot::histograms(&curves, &title, output.theme()))?;
        print_status(format!("{}: histograms of both", output.output.display()));
    }
    let mut standard = anstream::stdout().lock();
    if arguments.json {
        serde_json::to_writer_pretty(&mut standard, &found)?;
        writeln!(standard)?;
    } else {
        write!(standard, "{}", comparison_text(&found, spans))?;
    }
    Ok(())
}

/// Parses a side: a period or a kernel.
fn choice(store: &Store, text: &str) -> anyhow::Result<Choice> {
    if let Some((from, to)) = text.split_once("..") {
        let end = |text: &str, open: i64| if text.is_empty() { Ok(open) } else { moment(text) };
        let span = Span { from_ms: end(from, Span::ALL.from_ms)?, to_ms: end(to, Span::ALL.to_ms)? };
        if span.from_ms >= span.to_ms {
            bail!("expected a time that begins before it ends, found `{text}`");
        }
        return Ok(Choice::of(span));
    }
    let systems = store.systems()?;
    let kernels = || systems.iter().filter_map(|system| Some((system.system, system.fact("kernel")?)));
    let exactly: Vec<i64> =
        kernels().filter(|(_, kernel)| *kernel == text).map(|(number, _)| number).collect();
    let partly = || kernels().filter(|(_, kernel)| kernel.contains(text)).map(|(number, _)| number).collect();
    let found: Vec<i64> = if exactly.is_empty() { partly() } else { exactly };
    if found.is_empty() {
        let mut known: Vec<&str> = kernels().map(|(_, kernel)| kernel).collect();
        known.sort_unstable();
        known.dedup();
        let near = messages::nearest(text, known.iter().copied());
        let known = if near.is_empty() { known } else { near };
        bail!("expected a time FROM..TO or a kernel of the history ({}), found `{text}`", known.join(", "));
    }
    Ok(Choice { span: Span::ALL, systems: Some(found) })
}

fn comparison_text(found: &Comparison, spans: [Span; 2]) -> String {
    let mut text = String::new();
    for ((name, report), span) in found.names.iter().zip(&found.reports).zip(spans) {
        let _ = writeln!(
            text,
            "{BOLD}{}{END}  {}, {DIM}{} to {}{END}",
            escape_control(name),
            pluralize(report.wakeups.woken, "wakeup"),
            format_time(report.from_ms),
            format_time(report.to_ms)
        );
        if let Some(excess) = describe_excess(span, report) {
            let _ = writeln!(text, "{DIM}{excess}{END}");
        }
    }
    write_table(&mut text, "", found.kinds.iter().map(|it| (it.kind.words(), &it.sides, it.verdict)));
    if !found.jobs.is_empty() {
        write_table(&mut text, "job", found.jobs.iter().map(|it| (it.name.as_str(), &it.sides, it.verdict)));
    }
    for job in found.jobs.iter().filter(|job| job.misses != [0, 0]) {
        let of = |side: usize| {
            format!("{} of {}", with_thousands(job.misses[side]), with_thousands(job.sides[side].count))
        };
        let _ = writeln!(
            text,
            "{DIM}{} missed its deadline: {} → {}{END}",
            escape_control(&job.name),
            of(0),
            of(1)
        );
    }
    let _ = writeln!(text, "\n{}", verdict_text(found));
    text
}

/// Writes a table of both sides, with a heading for its names.
fn write_table<'a>(
    text: &mut String,
    head: &str,
    rows: impl Iterator<Item = (&'a str, &'a [Side; 2], Verdict)>,
) {
    let _ = writeln!(
        text,
        "\n{BOLD}{head:<21}{:>21}{:>21}{:>21}{:>21}{END}",
        "50 %", "99.9 %", "99.999 %", "max"
    );
    for (name, sides, verdict) in rows {
        let below =
            |share: &str| sides.each_ref().map(|side| side.below_us.get(share).copied().unwrap_or(0.0));
        let columns = [below("50"), below("99.9"), below("99.999"), sides.each_ref().map(|side| side.max_us)];
        let pair = |[one, other]: [f64; 2]| format!("{} → {}", format_us(one), format_us(other));
        let columns: String = columns.into_iter().map(|column| format!("{:>21}", pair(column))).collect();
        let (style, word) = verdict_label(verdict);
        let _ = writeln!(text, "{:<21}{columns}  {style}{word}{END}", escape_control(name));
    }
}

const fn verdict_label(verdict: Verdict) -> (&'static str, &'static str) {
    match verdict {
        Verdict::Better => (GREEN, "better"),
        Verdict::Same => (DIM, "no significant difference"),
        Verdict::Worse => (RED, "worse"),
    }
}

/// Returns the result of the comparison in words.
fn verdict_text(found: &Comparison) -> String {
    let Some(kind) = found.judged_by() else { return "They have no kind of latency in common.".into() };
    let [before, after] = found.names.each_ref().map(|name| escape_control(name));
    let max = kind.sides.each_ref().map(|side| side.max_us);
    let both = format!("{}: {} against {}", kind.kind.long_words(), format_us(max[1]), format_us(max[0]));
    match kind.verdict {
        Verdict::Same => format!(
            "{BOLD}{after} is neither better nor worse than {before}.{END} Maximum latencies differ no more than they would \
             by chance ({both})."
        ),
        Verdict::Worse => format!(
            "{RED}{BOLD}{after} is worse than {before}.{END} Its max latency is {} ({both}); {}",
            format_ratio(max[1], max[0]),
            significance(kind, 1, (&after, &before))
        ),
        Verdict::Better => format!(
            "{GREEN}{BOLD}{after} is better than {before}.{END} Its max latency is {} ({both}); {}",
            format_ratio(max[1], max[0]),
            significance(kind, 0, (&before, &after))
        ),
    }
}

/// Formats the ratio of two lengths.
fn format_ratio(one: f64, other: f64) -> String {
    if one >= other {
        format!("{:.1} × as long", one / other.max(0.001))
    } else {
        format!("{:.1} × shorter", other / one.max(0.001))
    }
}

fn significance(kind: &KindComparison, late: usize, (of_late, of_other): (&str, &str)) -> String {
    let [beyond, rows] = [kind.sides[late].rows_beyond, kind.sides[late].rows].map(with_thousands);
    let chance = match kind.chance {
        chance if chance < 1e-6 => "less than once in a million comparisons".to_owned(),
        chance => format!("once in {} comparisons", with_thousands((1.0 / chance).round() as u64)),
    };
    format!(
        "in {beyond} of {rows} intervals {of_late} had one that is longer than any of {of_other}, which chance alone would \
         make {chance}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_in_words() {
        assert_eq!(
            (format_ratio(30.0, 10.0), format_ratio(10.0, 25.0)),
            ("3.0 × as long".into(), "2.5 × shorter".into())
        );
    }
}
