//! The live table: the whole terminal, anew each second, until Ctrl-C.

use std::{io::Write, os::fd::AsFd, time::Duration};

use tompion_latency::Monitor;

use super::{
    End,
    keep::{Beside, Keeping},
    text,
};

const REFRESH: Duration = Duration::from_secs(1);
/// Where a terminal doesn't say.
const USUAL_SIZE: (u16, u16) = (80, 24);

/// Another screen, so that what stood there before stays; no cursor; no line goes on in the next
/// one, whatever letters it has. And back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l\x1b[?7l";
const LEAVE: &str = "\x1b[?7h\x1b[?25h\x1b[?1049l";

/// Shows the table until the user ends it; then what it showed last stays on the usual screen.
pub fn run(monitor: &mut Monitor, keeping: Option<&mut Keeping>, end: &End) -> anyhow::Result<()> {
    let mut output = std::io::stdout().lock();
    write!(output, "{ENTER}")?;
    let shown = refresh(monitor, keeping, (end, &mut output));
    write!(output, "{LEAVE}")?;
    write!(anstream::AutoStream::auto(output), "{}", text::whole(&monitor.report(None)))?;
    shown
}

fn refresh(
    monitor: &mut Monitor,
    keeping: Option<&mut Keeping>,
    (end, output): (&End, &mut (impl Write + AsFd)),
) -> anyhow::Result<()> {
    let mut beside = Beside { keeping, catcher: None };
    loop {
        let size = tompion_os::terminal_size(output.as_fd()).unwrap_or(USUAL_SIZE);
        let frame = text::frame(&monitor.report(None), size);
        // From the upper left corner; what is left of earlier lines is cleared before each, because
        // behind a full one that would take its last letter, too.
        let frame = frame.replace('\n', "\r\n\x1b[K");
        write!(output, "\x1b[H\x1b[K{}\x1b[J", styled(&frame))?;
        output.flush()?;
        if end.comes_within(REFRESH)? {
            return Ok(());
        }
        beside.look(monitor)?;
    }
}

/// Without colours for those who don't want any (`NO_COLOR`); what moves the cursor stays.
fn styled(frame: &str) -> String {
    let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if !is_plain {
        return frame.to_owned();
    }
    text::STYLES.iter().fold(frame.to_owned(), |text, style| text.replace(style, ""))
}
