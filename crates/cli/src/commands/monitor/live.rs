//! Live table: fills the terminal and is refreshed each second, until Ctrl-C.

use std::{io::Write, os::fd::AsFd, time::Duration};

use tompion_latency::Monitor;

use super::{
    background_tasks::BackgroundTasks, history_session::HistorySession, stop_signals::StopSignals, table,
    text,
};

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Columns and rows of a terminal that doesn't report them.
const DEFAULT_SIZE: (u16, u16) = (80, 24);

/// Enters the alternate screen, hides the cursor and disables line wrapping.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
/// Undoes [`ENTER`].
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Shows the table until the user ends the command, then prints the last counts on the normal
/// screen.
pub fn run(
    monitor: &mut Monitor,
    history: Option<&mut HistorySession>,
    stop: &StopSignals,
) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    write!(output, "{ENTER}")?;
    let shown = refresh(monitor, history, stop, &mut output);
    write!(output, "{LEAVE}")?;
    write!(anstream::AutoStream::auto(output), "{}", text::report_text(&monitor.report(None)))?;
    shown
}

fn refresh(
    monitor: &mut Monitor,
    history: Option<&mut HistorySession>,
    stop: &StopSignals,
    output: &mut (impl Write + AsFd),
) -> anyhow::Result<()> {
    let mut tasks = BackgroundTasks { history, incidents: None };
    loop {
        let size = tompion_os::terminal_size(output.as_fd()).unwrap_or(DEFAULT_SIZE);
        let frame = text::frame(&monitor.report(None), size);
        // Each line is cleared before it is written: clearing behind a full line would remove its
        // last character.
        let frame = frame.replace('\n', "\r\n\x1b[K");
        write!(output, "\x1b[H\x1b[K{}\x1b[J", styled(&frame))?;
        output.flush()?;
        if stop.wait(REFRESH_INTERVAL)? {
            return Ok(());
        }
        tasks.run_due(monitor)?;
    }
}

/// Removes colours if `NO_COLOR` is set; sequences that move the cursor stay.
fn styled(frame: &str) -> String {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if !is_plain {
        return frame.to_owned();
    }
    table::STYLES.iter().fold(frame.to_owned(), |text, style| text.replace(style, ""))
}
