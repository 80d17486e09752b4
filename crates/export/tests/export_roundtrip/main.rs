//! Rewrites traces of other tracers. The traces are outside the repository, in
//! `../shared/ctf-corpus`; without them these tests are skipped and say so.

mod depth;
mod formats;
mod merging;
mod options;
mod trimming;

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;
use tompion_reader::text::{self, ClockFormat, PrintOptions, TimeFormat};
use tompion_reader::{LossKind, TraceSet, open};

/// Returns the folder of the traces, if it exists.
fn corpus() -> Option<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/ctf-corpus"));
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: no folder {}", folder.display());
    None
}

fn opened(folder: &Path) -> TraceSet {
    open(&[folder.to_owned()]).unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
}

fn test_dir() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// Losses: kind, number, interval and stream.
type Losses = Vec<(bool, u64, (Option<i64>, Option<i64>), Option<u64>)>;

/// Returns the whole text, and the losses.
fn read(folder: &Path) -> (String, Losses) {
    let mut traces = opened(folder);
    let time = TimeFormat { clock: ClockFormat::Seconds, utc: true, ..TimeFormat::default() };
    let mut output = Vec::new();
    text::print(&mut traces, &PrintOptions { time, no_delta: true, ..PrintOptions::default() }, &mut output)
        .unwrap();
    assert_eq!(traces.corruptions(), [], "{}", folder.display());
    let of_packets = |kind| kind == LossKind::Packets;
    let losses = traces.losses().iter();
    let mut losses: Losses =
        losses.map(|loss| (of_packets(loss.kind), loss.count, loss.between, loss.stream)).collect();
    losses.sort_unstable();
    (String::from_utf8(output).unwrap(), losses)
}

/// Returns the text of babeltrace2, if it is installed.
fn babeltrace(folder: &Path) -> Option<String> {
    let mut command = Command::new("babeltrace2");
    let output = command.args(["--clock-seconds", "--clock-gmt", "--no-delta"]).arg(folder).output().ok()?;
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {error}", folder.display());
    Some(String::from_utf8(output.stdout).unwrap())
}
