//! Prints traces: `print [--seconds|--json|--csv|--stat] DIR…`
use std::io::stdout;

use tompion_reader::text::{ClockFormat, PrintOptions, TimeFormat, loss_warning};
use tompion_reader::{json, stat, text};

fn main() {
    let mut paths: Vec<std::path::PathBuf> = std::env::args_os().skip(1).map(Into::into).collect();
    let mut format = String::new();
    if paths.first().is_some_and(|path| path.to_string_lossy().starts_with("--")) {
        format = paths.remove(0).to_string_lossy().into_owned();
    }
    let seconds = format == "--seconds";
    let clock = if seconds { ClockFormat::Seconds } else { ClockFormat::TimeOfDay };
    let options = PrintOptions {
        time: TimeFormat { clock, ..TimeFormat::default() },
        no_delta: seconds,
        ..PrintOptions::default()
    };
    let mut traces = match tompion_reader::open(&paths) {
        Ok(traces) => traces,
        Err(error) => {
            eprintln!("{error}");
            std::process::exit(1);
        }
    };
    let events = match format.as_str() {
        "--json" => json::print(&mut traces, json::JsonOptions::default(), &mut stdout().lock()),
        "--csv" => json::print_csv(&mut traces, &mut stdout().lock()),
        "--stat" => {
            let summary = stat::summarize(&mut traces);
            println!("{}", serde_json::to_string_pretty(&summary).unwrap_or_default());
            Ok(summary.events)
        }
        _ => text::print(&mut traces, &options, &mut stdout().lock()),
    };
    for loss in traces.losses() {
        eprintln!("WARNING: {}", loss_warning(&traces, loss, &options));
    }
    traces.corruptions().iter().for_each(|corruption| eprintln!("corruption: {corruption}"));
    eprintln!("{events:?}");
}
