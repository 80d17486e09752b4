//! Size of the terminal.

use std::os::fd::{AsRawFd, BorrowedFd};

/// Number of columns and rows of a terminal; none if it is no terminal, or doesn't say.
///
/// Source: `TIOCGWINSZ` in `ioctl_tty(2)`.
pub fn terminal_size(terminal: BorrowedFd<'_>) -> Option<(u16, u16)> {
    // SAFETY: all-zero bytes are a valid structure, which the call fills in.
    let (got, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(terminal.as_raw_fd(), libc::TIOCGWINSZ, &raw mut size), size)
    };
    (got == 0 && size.ws_col != 0 && size.ws_row != 0).then_some((size.ws_col, size.ws_row))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_file_is_no_terminal() {
        let file = std::fs::File::open("/dev/null").unwrap();
        assert_eq!(terminal_size(file.as_fd()), None);
    }
}
