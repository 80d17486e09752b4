//! A message for the system's log: the journal's own socket, or the one that every `syslog` has.

use std::{io, os::unix::net::UnixDatagram, path::Path};

/// Source: systemd's "Native Journal Protocol".
const JOURNAL: &str = "/run/systemd/journal/socket";
/// Source: `syslog(3)`.
const SYSLOG: &str = "/dev/log";
/// Of `syslog(3)`: a warning.
const WARNING: u32 = 4;
/// Facility `daemon`, shifted.
const DAEMON: u32 = 3 << 3;

/// Says it to whichever of the two is there. `fields` are for the journal alone: names of capital letters and `_`.
///
/// # Errors
/// If neither takes it.
pub fn say(message: &str, fields: &[(&str, &str)]) -> io::Result<()> {
    say_to(Path::new(JOURNAL), Path::new(SYSLOG), message, fields)
}

fn say_to(journal: &Path, syslog: &Path, message: &str, fields: &[(&str, &str)]) -> io::Result<()> {
    let socket = UnixDatagram::unbound()?;
    // Whoever logs may be slow; what was late must not wait for it.
    socket.set_nonblocking(true)?;
    let mut text = format!("PRIORITY={WARNING}\nSYSLOG_IDENTIFIER=tompion\n");
    for (name, value) in [("MESSAGE", message)].iter().chain(fields) {
        // Values of several lines have another form; ours have one.
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
    use super::*;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1000];
        let size = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..size].to_vec()).unwrap()
    }

    #[test]
    fn the_journal_gets_fields_and_syslog_a_line() {
        let folder = std::env::temp_dir().join(format!("tompion-journal-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let (journal, syslog) = (folder.join("journal"), folder.join("log"));
        assert!(say_to(&journal, &syslog, "nobody", &[]).is_err());
        let second = UnixDatagram::bind(&syslog).unwrap();
        say_to(&journal, &syslog, "two\nlines", &[("A", "b")]).unwrap();
        assert_eq!(heard(&second), "<28>tompion: two lines");
        let first = UnixDatagram::bind(&journal).unwrap();
        say_to(&journal, &syslog, "late", &[("TOMPION_INCIDENT", "/x")]).unwrap();
        assert_eq!(
            heard(&first),
            "PRIORITY=4\nSYSLOG_IDENTIFIER=tompion\nMESSAGE=late\nTOMPION_INCIDENT=/x\n"
        );
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
