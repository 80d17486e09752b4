//! Live table: fills the terminal and is refreshed each second, until Ctrl-C.

use std::{io::Write, time::Duration};

use tompion_latency::Monitor;

use crate::screen::Screen;

use super::{
    background_tasks::BackgroundTasks, history_session::HistorySession, stop_signals::StopSignals, text,
};

const REFRESH_INTERVAL: Duration = Duration::from_secs(1);
/// Shows the table until the user ends the command, then prints the last counts on the normal
/// screen.
pub fn run(
    monitor: &mut Monitor,
    history: Option<&mut HistorySession>,
    stop: &StopSignals,
) -> anyhow::Result<()> {
    let shown = refresh(monitor, history, stop);
    write!(anstream::AutoStream::auto(std::io::stdout()), "{}", text::report_text(&monitor.report(None)))?;
    shown
}

fn refresh(
    monitor: &mut Monitor,
    history: Option<&mut HistorySession>,
    stop: &StopSignals,
) -> anyhow::Result<()> {
    let mut tasks = BackgroundTasks { history, incidents: None };
    let mut screen = Screen::enter(std::io::stdout())?;
    loop {
        screen.draw(&text::frame(&monitor.report(None), screen.size()))?;
        if stop.wait(REFRESH_INTERVAL)? {
            return Ok(());
        }
        tasks.run_due(monitor)?;
    }
}
