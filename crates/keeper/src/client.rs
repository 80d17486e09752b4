//! The recorder's side: starts a keeper, gives it descriptors, and takes them back.

use std::{
    collections::BTreeMap,
    io,
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use tompion_os::{Listener, PacketSocket, ProcessWatch};

use crate::{
    COMMAND,
    message::{Kind, MAX_MESSAGE, Message},
    server::send_patiently,
};

/// Time within which a keeper must be ready.
const START_TIMEOUT: Duration = Duration::from_secs(5);
/// Time within which a keeper must take a packet. Programs wait meanwhile.
const SEND_TIMEOUT: Duration = Duration::from_millis(50);
/// Time within which each packet of a keeper must come.
const RECEIVE_TIMEOUT_MS: u32 = 5000;

/// Reason why a keeper gives nothing back.
#[derive(Debug, thiserror::Error)]
pub enum TakeError {
    /// There is none: its time is over, or it was ended.
    #[error("no keeper answers")]
    Gone,
    /// Another recorder has it, or it ended in the middle.
    #[error("its keeper ended the connection; another recorder may have it")]
    Refused,
    /// Another user has its name.
    #[error("the keeper's name is taken by user {0}")]
    Stranger(u32),
    /// It holds another recording.
    #[error("expected the recording {expected}, found {found}")]
    OtherRecording {
        /// Id of the wanted one.
        expected: String,
        /// Id of the one that it holds.
        found: String,
    },
}

/// Connection to a keeper.
#[derive(Debug)]
pub struct Keeper {
    socket: PacketSocket,
    /// Whether the keeper takes no more.
    is_lost: AtomicBool,
}

/// Descriptors that a keeper has handed over.
#[derive(Debug, Default)]
pub struct HandOver {
    /// Listening sockets, in the order in which they were held.
    pub listeners: Vec<Listener>,
    /// Processes by their numbers in the session.
    pub processes: BTreeMap<u64, HeldProcess>,
    /// Objects of the kernel by their numbers. What they are is not checked yet.
    pub objects: BTreeMap<u64, OwnedFd>,
    /// Number of entries that were refused, for what came was not what it should be.
    pub refused: u64,
}

/// Descriptors of one process that a keeper holds. The memory files are not checked yet.
#[derive(Debug)]
pub struct HeldProcess {
    /// Connection of its agent.
    pub socket: PacketSocket,
    /// Its control file.
    pub control: OwnedFd,
    /// Its ring file.
    pub rings: OwnedFd,
    /// Its count file, if it counts.
    pub counts: Option<OwnedFd>,
    /// Watch of its end.
    pub watch: ProcessWatch,
}

impl Keeper {
    /// Starts a keeper that listens under a name and waits for the next recorder for the time
    /// `linger`. It is no child of this process, and outlasts it. `id` is the recording's.
    ///
    /// # Errors
    /// It can't be started, or isn't ready in time.
    pub fn start(name: &str, linger: Duration, id: &str) -> io::Result<Self> {
        let program = std::env::current_exe()?;
        let milliseconds = linger.as_millis().to_string();
        let arguments = [COMMAND.as_bytes(), name.as_bytes(), milliseconds.as_bytes()];
        let is_for_programs = |name: &[u8]| name.starts_with(b"TOMPION_") || name == b"LD_PRELOAD";
        let ready = tompion_os::spawn_detached(&[&program], &arguments, is_for_programs)?;
        if !ready.wait(Instant::now() + START_TIMEOUT) {
            return Err(io::Error::other("its keeper did not start"));
        }
        let (keeper, _) = Self::take(name, "").map_err(io::Error::other)?;
        keeper.send(&Message::Begin(id.into()), &[])?;
        Ok(keeper)
    }

    /// Takes what the keeper of this name holds for the recording of this id.
    ///
    /// # Errors
    /// There is no such keeper, or it gives nothing back.
    pub fn take(name: &str, id: &str) -> Result<(Self, HandOver), TakeError> {
        let socket = PacketSocket::connect(name, RECEIVE_TIMEOUT_MS).map_err(|_| TakeError::Gone)?;
        let peer = socket.peer().map_err(|_| TakeError::Gone)?;
        if peer.uid != tompion_os::effective_user() {
            return Err(TakeError::Stranger(peer.uid));
        }
        let mut kept = HandOver::default();
        let mut buffer = [0; MAX_MESSAGE];
        loop {
            let received = socket.receive(&mut buffer).map_err(|_| TakeError::Refused)?;
            match Message::decode(&buffer[..received.len]).ok_or(TakeError::Refused)? {
                Message::Recording(found) if found != id => {
                    return Err(TakeError::OtherRecording { expected: id.into(), found });
                }
                Message::Held(kind, key) => kept.add(kind, key, received.descriptors),
                Message::Complete => break,
                _ => {}
            }
        }
        Ok((Self { socket, is_lost: AtomicBool::new(false) }, kept))
    }

    /// Has the keeper hold a listening socket; its number orders them.
    ///
    /// # Errors
    /// The keeper has ended or takes nothing.
    pub fn hold_listener(&self, number: u64, listener: &Listener) -> io::Result<()> {
        self.send(&Message::Hold(Kind::Listener, number), &[listener.as_fd()])
    }

    /// Has the keeper hold a process: its connection, control file, ring file and watch, and its
    /// count file, if it counts.
    ///
    /// # Errors
    /// The keeper has ended or takes nothing.
    pub fn hold_process(
        &self,
        key: u64,
        descriptors: [BorrowedFd<'_>; 4],
        counts: Option<BorrowedFd<'_>>,
    ) -> io::Result<()> {
        let all: Vec<_> = descriptors.into_iter().chain(counts).collect();
        self.send(&Message::Hold(Kind::Process, key), &all)
    }

    /// Has the keeper close what it holds of a process.
    pub fn release(&self, key: u64) {
        // What a keeper that is lost still holds ends with it.
        let _ = self.send(&Message::Release(key), &[]);
    }

    /// Has the keeper hold an object of the kernel.
    ///
    /// # Errors
    /// The keeper has ended or takes nothing.
    pub fn hold_object(&self, key: u64, object: BorrowedFd<'_>) -> io::Result<()> {
        self.send(&Message::Hold(Kind::Object, key), &[object])
    }

    /// Has the keeper close objects of the kernel, and waits until it has: one that another process
    /// has too lasts until that closes it. One thread at a time may do so.
    ///
    /// # Errors
    /// The keeper has ended, and they with it, or does not answer.
    pub fn release_objects(&self, keys: impl Iterator<Item = u64>) -> io::Result<()> {
        for key in keys {
            self.send(&Message::ReleaseObject(key), &[])?;
        }
        self.send(&Message::Ask, &[])?;
        let mut buffer = [0; MAX_MESSAGE];
        let received = self.socket.receive(&mut buffer)?;
        match Message::decode(&buffer[..received.len]) {
            Some(Message::Done) => Ok(()),
            _ => Err(io::ErrorKind::NotConnected.into()),
        }
    }

    /// Ends the keeper: the recording is complete.
    pub fn end(&self) {
        let _ = self.send(&Message::End, &[]);
    }

    /// Whether the keeper has ended, or has taken nothing for too long.
    pub fn is_lost(&self) -> bool {
        // Ordering: a fact by itself.
        self.is_lost.load(Ordering::Relaxed)
    }

    fn send(&self, message: &Message, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
        if self.is_lost() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let result = send_patiently(&self.socket, message, descriptors, Instant::now() + SEND_TIMEOUT);
        if result.is_err() {
            // Ordering: a fact by itself. It is never taken back.
            self.is_lost.store(true, Ordering::Relaxed);
        }
        result
    }
}

impl HandOver {
    /// Adds an entry if it has what it should have.
    fn add(&mut self, kind: Kind, key: u64, descriptors: Vec<OwnedFd>) {
        match kind {
            Kind::Listener => match <[OwnedFd; 1]>::try_from(descriptors) {
                Ok([socket]) => match Listener::received(socket) {
                    Ok(listener) => self.listeners.push(listener),
                    Err(_) => self.refused += 1,
                },
                Err(_) => self.refused += 1,
            },
            Kind::Process => match process(descriptors) {
                Some(process) => drop(self.processes.insert(key, process)),
                None => self.refused += 1,
            },
            Kind::Object => match <[OwnedFd; 1]>::try_from(descriptors) {
                Ok([object]) => drop(self.objects.insert(key, object)),
                Err(_) => self.refused += 1,
            },
        }
    }
}

/// A process's descriptors, if their kinds are right.
fn process(mut descriptors: Vec<OwnedFd>) -> Option<HeldProcess> {
    let counts = if descriptors.len() == 5 { descriptors.pop() } else { None };
    let [socket, control, rings, watch] = <[OwnedFd; 4]>::try_from(descriptors).ok()?;
    let socket = PacketSocket::received(socket).ok()?;
    Some(HeldProcess { socket, control, rings, counts, watch: ProcessWatch::received(watch).ok()? })
}

#[cfg(test)]
mod tests {
    use std::thread::{self, JoinHandle};

    use tompion_os::create_memfd;

    use super::*;
    use crate::server;

    fn name(of: &str) -> String {
        format!("tompion-keeper-test-{}-{of}", std::process::id())
    }

    /// A keeper as a thread, and its first recorder.
    fn keeper(name: &str, linger: Duration) -> (JoinHandle<io::Result<()>>, Keeper) {
        let own = name.to_owned();
        let serving = thread::spawn(move || server::hold(&Listener::bind(&own)?, linger));
        let begun = Instant::now();
        loop {
            match Keeper::take(name, "") {
                Ok((keeper, _)) => return (serving, keeper),
                Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
            }
        }
    }

    /// Descriptors of a process that is this one, with memory of so many bytes.
    fn hold(keeper: &Keeper, key: u64, size: u64) -> PacketSocket {
        let name = name(&format!("program-{key}"));
        let listener = Listener::bind(&name).unwrap();
        let program = PacketSocket::connect(&name, 1000).unwrap();
        let socket = listener.accept().unwrap().unwrap();
        let memory = [0, 1].map(|_| create_memfd(c"held", size).unwrap());
        let watch = ProcessWatch::new(std::process::id()).unwrap();
        let [control, rings] = memory.each_ref().map(AsFd::as_fd);
        let counts = (key % 2 == 0).then(|| create_memfd(c"counts", size).unwrap());
        let descriptors = [socket.as_fd(), control, rings, watch.as_fd()];
        keeper.hold_process(key, descriptors, counts.as_ref().map(AsFd::as_fd)).unwrap();
        program
    }

    #[test]
    fn what_one_recorder_gave_the_next_one_gets_and_connections_stay_open() {
        tompion_os::raise_file_limit();
        let name = name("next");
        let (serving, first) = keeper(&name, Duration::from_secs(20));
        first.send(&Message::Begin("id".into()), &[]).unwrap();
        let listener = Listener::bind(&self::name("listener")).unwrap();
        first.hold_listener(0, &listener).unwrap();
        let programs: Vec<_> = (1..=100).map(|key| hold(&first, key, 4096 * key)).collect();
        first.release(2);
        drop((first, listener));
        assert!(programs[0].is_open() && programs[99].is_open());

        let (second, kept) = Keeper::take(&name, "id").unwrap();
        assert_eq!((kept.listeners.len(), kept.processes.len(), kept.refused), (1, 99, 0));
        let file = std::fs::File::from(kept.processes[&100].rings.try_clone().unwrap());
        assert_eq!(file.metadata().unwrap().len(), 4096 * 100);
        assert!(kept.processes[&100].counts.is_some() && kept.processes[&99].counts.is_none());
        assert!(!kept.processes.contains_key(&2) && !programs[1].is_open());
        second.end();
        drop(kept);
        serving.join().unwrap().unwrap();
        assert!(!programs[0].is_open());
    }

    #[test]
    fn objects_of_the_kernel_are_held_and_released_before_the_answer() {
        let name = name("objects");
        let (serving, first) = keeper(&name, Duration::from_secs(20));
        first.send(&Message::Begin("id".into()), &[]).unwrap();
        let (ours, theirs) = std::io::pipe().unwrap();
        for key in [1, 1 << 32, u64::MAX] {
            first.hold_object(key, theirs.as_fd()).unwrap();
        }
        drop(theirs);
        first.release_objects([1, 5, u64::MAX].into_iter()).unwrap();
        drop(first);
        let (second, kept) = Keeper::take(&name, "id").unwrap();
        assert_eq!(kept.objects.keys().copied().collect::<Vec<_>>(), [1 << 32]);
        drop(kept);
        second.release_objects([1 << 32].into_iter()).unwrap();
        assert_eq!(std::io::Read::read(&mut &ours, &mut [0]).unwrap(), 0, "it was the last");
        second.end();
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn it_serves_one_recorder_at_a_time_and_one_recording() {
        let name = name("one");
        let (serving, first) = keeper(&name, Duration::from_secs(20));
        first.send(&Message::Begin("id".into()), &[]).unwrap();
        let mut recorder = first;
        // Often: each recorder comes just after the one before it has gone.
        for _ in 0..300 {
            assert!(matches!(Keeper::take(&name, "id"), Err(TakeError::Refused)));
            drop(recorder);
            recorder = Keeper::take(&name, "id").unwrap().0;
        }
        drop(recorder);
        let found = Keeper::take(&name, "another").unwrap_err();
        assert!(matches!(found, TakeError::OtherRecording { .. }), "{found}");
        Keeper::take(&name, "id").unwrap().0.end();
        serving.join().unwrap().unwrap();
    }

    #[test]
    fn without_a_recorder_it_ends_after_a_while_and_connections_with_it() {
        let name = name("alone");
        let (serving, first) = keeper(&name, Duration::from_millis(50));
        let program = hold(&first, 1, 4096);
        let begun = Instant::now();
        drop(first);
        serving.join().unwrap().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(50) && !program.is_open());
        assert!(matches!(Keeper::take(&name, ""), Err(TakeError::Gone)));
    }

    #[test]
    fn entries_of_other_kinds_are_refused() {
        let mut kept = HandOver::default();
        let memory = || create_memfd(c"other", 4096).unwrap();
        kept.add(Kind::Listener, 0, vec![memory()]);
        kept.add(Kind::Listener, 1, Vec::new());
        kept.add(Kind::Process, 1, vec![memory(), memory(), memory(), memory()]);
        kept.add(Kind::Process, 2, vec![memory()]);
        kept.add(Kind::Object, 1, vec![memory(), memory()]);
        let taken = (kept.processes.len(), kept.listeners.len(), kept.objects.len());
        assert_eq!((kept.refused, taken), (5, (0, 0, 0)));
    }
}
