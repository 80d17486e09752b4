//! Warnings to the system log: over journald's socket, or the socket of `syslog`.

use std::{io, os::unix::net::UnixDatagram, path::Path};

/// Socket of journald. Source: systemd's "Native Journal Protocol".
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Socket of syslog. Source: `syslog(3)`.
const SYSLOG: &str = "/dev/log";
/// Severity of a warning in `syslog(3)`.
const WARNING: u32 = 4;
/// Facility `daemon`, shifted.
const DAEMON: u32 = 3 << 3;

/// Sends a warning to journald, else to syslog. `fields` are for journald alone: names of capital
/// letters and `_`.
///
/// # Errors
/// If neither socket accepts it.
pub fn warn(message: &str, fields: &[(&str, &str)]) -> io::Result<()> {
    warn_at(Path::new(JOURNAL), Path::new(SYSLOG), message, fields)
}

fn warn_at(journal: &Path, syslog: &Path, message: &str, fields: &[(&str, &str)]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // A slow logger must not delay the monitor.
    socket.set_nonblocking(true)?;
    let mut text = format!("PRIORITY={WARNING}\nSYSLOG_IDENTIFIER=tompion\n");
    for (name, value) in [("MESSAGE", message)].iter().chain(fields) {
        // Values of several lines need another encoding, so line breaks become spaces.
        text.push_str(&format!("{name}={}\n", value.replace('\n', " ")));
    }
    socket.send_to(text.as_bytes(), journal).or_else(|_| {
        let line = format!("<{}>tompion: {}", DAEMON | WARNING, message.replace('\n', " "));
        socket.send_to(line.as_bytes(), syslog)
    })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use super::*;

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1000];
        let size = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..size].to_vec()).unwrap()
    }

    #[test]
    fn the_journal_gets_fields_and_syslog_a_line() {
        let folder = TestDir::new("journal");
        let (journal, syslog) = (folder.join("journal"), folder.join("log"));
        assert!(warn_at(&journal, &syslog, "no socket", &[]).is_err());
        let second = UnixDatagram::bind(&syslog).unwrap();
        warn_at(&journal, &syslog, "two\nlines", &[("A", "b")]).unwrap();
        assert_eq!(received(&second), "<28>tompion: two lines");
        let first = UnixDatagram::bind(&journal).unwrap();
        warn_at(&journal, &syslog, "late", &[("TOMPION_INCIDENT", "/x")]).unwrap();
        assert_eq!(
            received(&first),
            "PRIORITY=4\nSYSLOG_IDENTIFIER=tompion\nMESSAGE=late\nTOMPION_INCIDENT=/x\n"
        );
    }
}
