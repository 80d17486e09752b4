//! `tompion recover`: completes the trace of a killed recording.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;
use tompion_session::Recovered;

use crate::messages::{self, pluralize, print_status, with_thousands};
use tompion_status::{describe_sources, losses, total};

#[derive(Args)]
#[command(after_help = "Examples:\n  \
    tompion recover crash             # the trace's folder\n  \
    tompion recover /var/tmp/rings    # or the folder given to record --backing\n\n\
Moves the events that are still in the rings to the trace, each once, and reports what is missing. It is safe to kill \
it and run it again. Without --backing, only what was already written to the trace is left.")]
pub struct Arguments {
    /// Folder of the trace or of its rings
    #[arg(value_name = "DIR")]
    folder: PathBuf,
}

pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    let recovered = tompion_session::recover(&arguments.folder).map_err(anyhow::Error::msg)?;
    let Recovered { folder, manifest, problems, was_complete, is_complete } = recovered;
    for problem in problems {
        print_status(problem);
    }
    // Files may have been changed since. Recovery has named what it met, and `stat` names all.
    let summary = tompion_reader::stat::read(&folder)?;
    let is_damaged = !summary.corruptions.is_empty();
    summary.corruptions.iter().filter(|_| was_complete).take(1).for_each(print_status);
    // Shown as the user named it, if that is the trace.
    let is_named = std::fs::canonicalize(&arguments.folder).is_ok_and(|named| named == folder);
    let folder = if is_named { arguments.folder.display() } else { folder.display() };
    if was_complete && manifest.is_in_chunks && !is_damaged {
        print_status(format!("nothing to recover in {folder}, {} already", manifest.state));
        return Ok(ExitCode::SUCCESS);
    }
    let events = total(manifest.sources.iter().map(|source| source.events));
    let lost = total(manifest.sources.iter().flat_map(|source| source.lost.values().copied()));
    let begin = match (was_complete, is_complete) {
        (true, _) if is_damaged => format!("nothing to recover, {} already, but damaged: ", manifest.state),
        (true, _) => format!("nothing to recover, {} already: ", manifest.state),
        (false, true) => String::new(),
        (false, false) => "recovered in part, try again: ".into(),
    };
    let readable = is_damaged.then(|| format!("{} readable of ", with_thousands(summary.events)));
    let readable = readable.unwrap_or_default();
    let chunk = manifest.chunk.as_ref().map(|chunk| format!("chunk {} of ", chunk.number));
    let chunk = chunk.unwrap_or_default();
    print_status(format!(
        "{begin}{readable}{} of {} in {chunk}{folder}, {}; next: tompion print {folder}",
        pluralize(events, "event"),
        describe_sources(&manifest),
        losses(&manifest, lost)
    ));
    let is_sound = is_complete && !(was_complete && is_damaged);
    Ok(if is_sound { ExitCode::SUCCESS } else { ExitCode::from(messages::FAILED) })
}
