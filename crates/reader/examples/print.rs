//! Prints traces: `print [--seconds] DIR…`
use tompion_reader::text::{ClockFormat, PrintOptions, TimeFormat};

fn main() {
    let mut paths: Vec<std::path::PathBuf> = std::env::args_os().skip(1).map(Into::into).collect();
    let seconds = paths.first().is_some_and(|path| path.as_os_str() == "--seconds");
    if seconds {
        paths.remove(0);
    }
    let clock = if seconds { ClockFormat::Seconds } else { ClockFormat::TimeOfDay };
    let options = PrintOptions { time: TimeFormat { clock, ..TimeFormat::default() }, no_delta: seconds };
    let mut traces = tompion_reader::open(&paths).unwrap_or_else(|error| panic!("{error}"));
    let events = tompion_reader::text::print(&mut traces, &options, &mut std::io::stdout().lock());
    traces.damages().iter().for_each(|damage| eprintln!("damage: {damage}"));
    traces.losses().iter().for_each(|loss| eprintln!("loss: {loss:?}"));
    eprintln!("{events:?}");
}
