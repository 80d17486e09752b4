//! Sessions of a supervisor, as text.

use std::{io::Write, time::Duration};

use tompion_supervisor::{ChannelStatus, Instance, RecorderState, SessionStatus, Sessions, client};

use tompion_terminal::messages::escape_control;

/// Asks a supervisor, if it runs. Root's own is the system's, too.
pub fn sessions_of(instance: Instance) -> Option<Sessions> {
    let is_same = instance == Instance::System && tompion_os::effective_user() == 0;
    if is_same { None } else { client::list(instance).ok() }
}

/// Writes a row for each channel of each session.
///
/// # Errors
/// If they can't be written.
pub fn write_sessions(title: &str, supervisor: &Sessions, output: &mut dyn Write) -> std::io::Result<()> {
    writeln!(output, "{title}, process {}", supervisor.pid)?;
    writeln!(output, "  {:<16} {:<7} {:<12} {:<8} detail", "session", "start", "channel", "state")?;
    for session in &supervisor.sessions {
        write_session(session, output)?;
    }
    Ok(())
}

fn write_session(session: &SessionStatus, output: &mut dyn Write) -> std::io::Result<()> {
    let start = session.start.to_string();
    let start = escape_control(&start);
    let user = session.user.map(|user| format!(" ({user})")).unwrap_or_default();
    let name = format!("{}{user}", session.name);
    let name = escape_control(&name);
    if let Some(problem) = &session.problem {
        writeln!(
            output,
            "  {name:<16} {:<7} {:<12} {:<8} {}",
            "–",
            "–",
            "UNUSABLE",
            escape_control(problem)
        )?;
    }
    for channel in &session.channels {
        let (state, detail) = describe(session, channel);
        let channel = escape_control(&channel.name);
        writeln!(output, "  {name:<16} {start:<7} {channel:<12} {state:<8} {}", escape_control(&detail))?;
    }
    Ok(())
}

fn describe(session: &SessionStatus, channel: &ChannelStatus) -> (&'static str, String) {
    let failure = channel.failure.as_deref().unwrap_or_default();
    let again = match channel.restarts {
        0 => String::new(),
        1 => ", started again once".into(),
        times => format!(", started again {times} times"),
    };
    match channel.state {
        RecorderState::Stopped if !failure.is_empty() => ("ended", failure.to_owned()),
        RecorderState::Stopped => ("stopped", format!("start it: {}", apply_command(session))),
        RecorderState::Running => {
            let folder = channel.folder.as_deref().unwrap_or_default();
            let because = if failure.is_empty() { String::new() } else { format!(" ({failure})") };
            let pid = channel.pid.map(|pid| format!("process {pid}, ")).unwrap_or_default();
            ("running", format!("{pid}trace {folder}{again}{because}"))
        }
        RecorderState::Waiting => {
            let left = Duration::from_nanos(channel.retry_ns.unwrap_or(0)).as_secs_f64();
            ("FAILED", format!("{failure}; starts again in {left:.1} s{again}"))
        }
        RecorderState::Failed => ("FAILED", format!("{failure}; try again: {}", apply_command(session))),
    }
}

/// Command by which the session's user starts it.
fn apply_command(session: &SessionStatus) -> String {
    let system = if session.user.is_some() { "--system " } else { "" };
    format!("tompion apply {system}{}", session.name)
}

#[cfg(test)]
mod tests {
    use tompion_supervisor::Start;

    use super::*;

    #[test]
    fn each_state_says_what_comes_next() {
        let channel = |state, failure: Option<&str>| ChannelStatus {
            name: "main".into(),
            recording: "flight".into(),
            state,
            pid: (state == RecorderState::Running).then_some(4711),
            folder: Some("/var/trace/flight-1".into()),
            restarts: 1,
            failure: failure.map(str::to_owned),
            retry_ns: (state == RecorderState::Waiting).then_some(1_600_000_000),
        };
        let channels = vec![
            channel(RecorderState::Stopped, None),
            channel(RecorderState::Running, Some("it was killed by signal 9")),
            channel(RecorderState::Waiting, Some("the disk is full")),
            channel(RecorderState::Failed, Some("no event matches")),
        ];
        let session = SessionStatus {
            name: "flight".into(),
            user: None,
            start: Start::Boot,
            files: Vec::new(),
            problem: None,
            channels,
        };
        let broken = SessionStatus {
            name: "broken".into(),
            problem: Some("/etc/tompion/sessions/broken.toml: line 2: unknown field `evnts`".into()),
            channels: Vec::new(),
            ..session.clone()
        };
        let ended = ChannelStatus { failure: Some("no grant".into()), ..session.channels[0].clone() };
        let granted = SessionStatus {
            user: Some(1000),
            start: Start::Demand,
            channels: vec![session.channels[0].clone(), ended],
            ..session.clone()
        };
        let mut text = Vec::new();
        let sessions = Sessions { pid: 12, version: "1".into(), sessions: vec![broken, session, granted] };
        write_sessions("sessions of the supervisor", &sessions, &mut text).expect("text");
        let text = String::from_utf8(text).expect("UTF-8");
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "sessions of the supervisor, process 12");
        assert!(lines[2].contains("UNUSABLE /etc/tompion/sessions/broken.toml: line 2"), "{text}");
        assert!(lines[3].ends_with("stopped  start it: tompion apply flight"), "{text}");
        assert!(
            lines[4].ends_with(
                "running  process 4711, trace /var/trace/flight-1, started again once (it was killed by signal 9)"
            ),
            "{text}"
        );
        assert!(
            lines[5].ends_with("FAILED   the disk is full; starts again in 1.6 s, started again once"),
            "{text}"
        );
        assert!(lines[6].ends_with("FAILED   no event matches; try again: tompion apply flight"), "{text}");
        assert!(lines[7].starts_with("  flight (1000)    demand "), "{text}");
        assert!(lines[7].ends_with("stopped  start it: tompion apply --system flight"), "{text}");
        assert!(lines[8].ends_with("ended    no grant"), "{text}");
    }
}
