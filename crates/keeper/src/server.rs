//! The keeper's process: one recorder at a time, and a clock that runs while there is none.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd},
    path::Path,
    thread,
    time::{Duration, Instant},
};

use tompion_os::{Listener, PacketSocket};

use crate::message::{Kind, MAX_MESSAGE, Message};

/// Time within which the first recorder must connect.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// Time within which a recorder that came back must take what it is given.
const HAND_OVER_TIMEOUT: Duration = Duration::from_secs(5);
/// Pause after a connection that could not be taken: descriptors may be short for a while.
const ACCEPT_RETRY_INTERVAL: Duration = Duration::from_millis(10);
/// Pause before a packet is sent again to a recorder whose queue is full.
const SEND_RETRY_INTERVAL: Duration = Duration::from_millis(1);
/// Maximum number of entries: a recorder that holds more has a defect.
const MAX_ENTRIES: usize = 1 << 20;

/// Entries of a keeper.
#[derive(Default)]
struct Entries {
    /// Id of the recording; empty before it has begun.
    recording: String,
    held: BTreeMap<(Kind, u64), Vec<OwnedFd>>,
}

/// Runs the keeper: listens under a name, holds what its recorder gives it, hands it to the next.
/// Returns when the recording has ended, or was without a recorder for the time `linger`.
///
/// # Errors
/// The name is taken, or the system refuses the socket.
pub fn serve(name: &str, linger: Duration) -> io::Result<()> {
    let listener = Listener::bind(name)?;
    // It should keep no file system busy.
    let _ = std::env::set_current_dir(Path::new("/"));
    tompion_os::raise_file_limit();
    tompion_os::report_ready()?;
    hold(&listener, linger)
}

/// Holds what the recorders that connect give it.
pub fn hold(listener: &Listener, linger: Duration) -> io::Result<()> {
    let leave_at = Some(Instant::now() + START_TIMEOUT.max(linger));
    let mut service = Service { entries: Entries::default(), recorder: None, linger, leave_at };
    while !service.is_over() {
        service.wait(listener);
        service.follow_recorder();
        service.answer(listener);
    }
    Ok(())
}

/// A keeper at work.
struct Service {
    entries: Entries,
    recorder: Option<PacketSocket>,
    /// Time without a recorder after which it ends.
    linger: Duration,
    /// Time of its end; none while a recorder is there.
    leave_at: Option<Instant>,
}

impl Service {
    fn is_over(&self) -> bool {
        self.leave_at.is_some_and(|when| when <= Instant::now())
    }

    /// Waits for the recorder, for the next one, or for the end of the time without one.
    fn wait(&self, listener: &Listener) {
        let left = self.leave_at.map(|when| when.saturating_duration_since(Instant::now()));
        let milliseconds = left.map(|left| left.as_millis().min(60_000) as u32 + 1);
        let connection = self.recorder.as_ref().map(|socket| socket.as_fd().as_raw_fd());
        let descriptors: Vec<_> = connection.into_iter().chain([listener.as_fd().as_raw_fd()]).collect();
        tompion_os::wait_readable(&descriptors, milliseconds);
    }

    /// Follows all that the recorder has said.
    fn follow_recorder(&mut self) {
        let Some(socket) = &self.recorder else { return };
        match self.entries.listen(socket) {
            RecorderState::Nothing => {}
            RecorderState::Gone => {
                self.recorder = None;
                self.leave_at = Some(Instant::now() + self.linger);
            }
            RecorderState::Ended => self.leave_at = Some(Instant::now()),
        }
    }

    /// Answers the recorders that wait. A connection that can't be taken ends nothing: the entries
    /// are more than one recorder's try.
    fn answer(&mut self, listener: &Listener) {
        loop {
            let socket = match listener.accept() {
                Ok(Some(socket)) => socket,
                Ok(None) => return,
                Err(_) => return thread::sleep(ACCEPT_RETRY_INTERVAL),
            };
            // It may have connected because the old recorder is gone: all that that one has said
            // counts before it is answered.
            self.follow_recorder();
            if !self.is_over() {
                self.serve(socket);
            }
        }
    }

    /// Gives a recorder everything, unless another one has it: both would read the same rings.
    fn serve(&mut self, socket: PacketSocket) {
        let is_own = socket.peer().is_ok_and(|peer| peer.uid == tompion_os::effective_user());
        if is_own && self.recorder.is_none() && self.entries.hand_over(&socket).is_ok() {
            self.recorder = Some(socket);
            self.leave_at = None;
        }
    }
}

/// State of a recorder.
enum RecorderState {
    /// It runs, and has said nothing more.
    Nothing,
    /// It is gone.
    Gone,
    /// The recording has ended.
    Ended,
}

impl Entries {
    /// Follows all messages that wait.
    fn listen(&mut self, socket: &PacketSocket) -> RecorderState {
        let mut buffer = [0; MAX_MESSAGE];
        let mut has_failed = false;
        loop {
            let received = match socket.receive_at_once(&mut buffer) {
                Ok(received) if received.len == 0 => return RecorderState::Gone,
                Ok(received) => received,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return RecorderState::Nothing,
                // A recorder that was killed before it had taken all: what it said is still there.
                Err(_) if !has_failed => {
                    has_failed = true;
                    continue;
                }
                Err(_) => return RecorderState::Gone,
            };
            match Message::decode(&buffer[..received.len]) {
                Some(Message::Begin(id)) => self.recording = id,
                Some(Message::Hold(kind, key)) if self.held.len() < MAX_ENTRIES => {
                    self.held.insert((kind, key), received.descriptors);
                }
                Some(Message::Release(key)) => {
                    self.held.remove(&(Kind::Process, key));
                }
                Some(Message::ReleaseObject(key)) => {
                    self.held.remove(&(Kind::Object, key));
                }
                // A recorder that is gone needs no answer.
                Some(Message::Ask) => drop(socket.send(&Message::Done.encode(), &[])),
                Some(Message::End) => return RecorderState::Ended,
                _ => {}
            }
        }
    }

    /// Gives a recorder all entries.
    fn hand_over(&self, socket: &PacketSocket) -> io::Result<()> {
        let deadline = Instant::now() + HAND_OVER_TIMEOUT;
        send_patiently(socket, &Message::Recording(self.recording.clone()), &[], deadline)?;
        for ((kind, key), descriptors) in &self.held {
            let descriptors: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
            send_patiently(socket, &Message::Held(*kind, *key), &descriptors, deadline)?;
        }
        send_patiently(socket, &Message::Complete, &[], deadline)
    }
}

/// Sends a message, again and again while the receiver has no room for it.
pub fn send_patiently(
    socket: &PacketSocket,
    message: &Message,
    descriptors: &[BorrowedFd<'_>],
    deadline: Instant,
) -> io::Result<()> {
    let packet = message.encode();
    loop {
        match socket.send(&packet, descriptors) {
            Err(error) if is_full(&error) && Instant::now() < deadline => thread::sleep(SEND_RETRY_INTERVAL),
            result => return result,
        }
    }
}

/// Whether a receiver may have room a little later: its queue is full, or too many descriptors are
/// on their way. Source: `ETOOMANYREFS` in `unix(7)`.
fn is_full(error: &io::Error) -> bool {
    const ETOOMANYREFS: i32 = 109;
    error.kind() == io::ErrorKind::WouldBlock || error.raw_os_error() == Some(ETOOMANYREFS)
}
