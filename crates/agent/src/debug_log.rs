//! `TOMPION_LOG=debug`: lines about connections on the program's standard error, and nothing
//! otherwise.
//!
//! A line costs four system calls and no heap. The log is for handshakes and for the background
//! thread; the event path never writes one.

use std::{
    fmt::{self, Write as _},
    fs::OpenOptions,
    io::Write as _,
    os::unix::fs::OpenOptionsExt,
    sync::atomic::{AtomicBool, Ordering},
};

use tompion_protocol::names;

/// Standard error of the program. The background thread has a descriptor table of its own, where
/// descriptor 2 does not exist, so it is opened by the program's table. A socket can't be.
const STANDARD_ERROR: &str = "/proc/self/fd/2";
/// Maximum length of a line, in bytes. Longer ones are cut.
const MAX_LINE: usize = 512;
/// `O_NONBLOCK | O_NOCTTY`: a full pipe must not stop the program.
const OPEN_FLAGS: i32 = 0o4000 | 0o400;

static ENABLED: AtomicBool = AtomicBool::new(false);

/// Reads the environment, before the program has other threads.
pub fn init_from_env() {
    let enabled =
        std::env::var_os(names::LOG_VARIABLE).is_some_and(|level| is_debug(&level.to_string_lossy()));
    // Ordering: nothing else is published; a thread that misses it writes no line.
    ENABLED.store(enabled, Ordering::Relaxed);
}

/// Whether a level shows debug lines.
fn is_debug(level: &str) -> bool {
    ["debug", "trace"].iter().any(|name| level.eq_ignore_ascii_case(name))
}

/// Writes a line, if the log is enabled. Errors are ignored.
pub fn debug(line: fmt::Arguments<'_>) {
    // Ordering: see `init_from_env`.
    if !ENABLED.load(Ordering::Relaxed) {
        return;
    }
    let mut text = Line::new();
    let _ = write!(text, "tompion[{}.{}]: {line}", std::process::id(), tompion_os::gettid());
    let file = OpenOptions::new().append(true).custom_flags(OPEN_FLAGS).open(STANDARD_ERROR);
    if let Ok(mut file) = file {
        let _ = file.write(text.finish());
    }
}

/// Line in a buffer of fixed size. Control characters are replaced, since names come from others.
struct Line {
    bytes: [u8; MAX_LINE],
    len: usize,
}

impl Line {
    const fn new() -> Self {
        Self { bytes: [0; MAX_LINE], len: 0 }
    }

    /// The line with its end.
    fn finish(&mut self) -> &[u8] {
        self.bytes[self.len] = b'\n';
        &self.bytes[..=self.len]
    }
}

impl fmt::Write for Line {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // One byte is left for the end of the line.
        let room = self.bytes.len() - 1 - self.len;
        for (to, byte) in self.bytes[self.len..].iter_mut().zip(text.bytes().take(room)) {
            *to = if byte.is_ascii_control() { b'?' } else { byte };
        }
        self.len += text.len().min(room);
        Ok(())
    }
}
