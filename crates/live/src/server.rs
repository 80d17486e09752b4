//! The server: one thread for each reader, of which there are few.

use std::{
    collections::BTreeMap,
    hash::{DefaultHasher, Hash, Hasher},
    io::{self, Read, Write},
    net::{IpAddr, SocketAddr, TcpListener, TcpStream},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    thread,
    time::{Duration, Instant},
};

use tompion_http::Peer;
use tompion_os::DirHandle;
use tompion_segments::{Recording, find_recordings};

use crate::{
    attached::Attached,
    protocol::{self, Answer, HEADER, MAJOR, MINOR, Request, Session},
};

/// Maximum number of readers at one time.
const MAX_READERS: usize = 64;
/// Maximum number of those from one address of another machine.
const MAX_READERS_OF_ADDRESS: usize = 16;
/// Time for a request to come whole, and for the next one to begin.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// Time for an answer to be taken.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);
/// Pause after a connection could not be accepted.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);

/// Reason why a reader is refused, in words.
#[derive(Debug, thiserror::Error)]
pub enum Refusal {
    /// The connection ended, or was too slow.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It speaks another protocol.
    #[error("{0}")]
    Protocol(#[from] protocol::Refused),
    /// It speaks another version.
    #[error("expected version 2 of the protocol, found {0}")]
    Version(u32),
}

/// Server that listens.
#[derive(Debug)]
pub struct LiveServer {
    listener: TcpListener,
    folders: Arc<Vec<PathBuf>>,
    serves_everyone: bool,
    readers: Readers,
}

/// Readers by their addresses.
type Readers = Arc<Mutex<BTreeMap<IpAddr, usize>>>;

impl LiveServer {
    /// Listens at an address, for readers of the recordings in some folders. The protocol has no
    /// permissions: it serves programs of its own user alone, or everyone.
    ///
    /// # Errors
    /// If the address can't be listened on.
    pub fn bind(address: SocketAddr, folders: Vec<PathBuf>, serves_everyone: bool) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        Ok(Self { listener, folders: Arc::new(folders), serves_everyone, readers: Arc::default() })
    }

    /// Address that is listened on.
    ///
    /// # Errors
    /// If the system doesn't tell.
    pub fn address(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves for ever.
    pub fn run(&self) -> ! {
        loop {
            match self.listener.accept() {
                Ok((stream, address)) => self.admit(stream, address.ip()),
                Err(_) => thread::sleep(RETRY_INTERVAL),
            }
        }
    }

    fn admit(&self, stream: TcpStream, address: IpAddr) {
        if !self.serves_everyone && Peer::of(&stream) != Peer::OwnUser {
            return log::warn!("a reader of another user was refused");
        }
        let Some(slot) = Slot::take(&self.readers, address) else {
            return log::warn!("a reader of {address} was refused: there are too many");
        };
        let folders = self.folders.clone();
        let serve = move || {
            let _slot = slot;
            if let Err(refusal) = serve(&stream, &folders) {
                log::debug!("a reader: {refusal}");
            }
        };
        // Where no thread can be begun, the connection ends with the closure.
        let _ = thread::Builder::new().name("live".into()).spawn(serve);
    }
}

/// Slot of a reader, given up when this is dropped.
struct Slot(Readers, IpAddr);

impl Slot {
    fn take(readers: &Readers, address: IpAddr) -> Option<Self> {
        let mut all = readers.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.get(&address).copied().unwrap_or(0);
        let limit = if address.is_loopback() { MAX_READERS } else { MAX_READERS_OF_ADDRESS };
        if own >= limit || all.values().sum::<usize>() >= MAX_READERS {
            return None;
        }
        all.insert(address, own + 1);
        Some(Self(readers.clone(), address))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match all.get_mut(&self.1) {
            Some(own) if *own > 1 => *own -= 1,
            _ => drop(all.remove(&self.1)),
        }
    }
}

/// Answers the requests of a reader until it ends.
fn serve(stream: &TcpStream, folders: &[PathBuf]) -> Result<(), Refusal> {
    stream.set_nodelay(true)?;
    let mut reader = Reader { folders, attached: None };
    loop {
        let mut timed = Timed { stream, until: Instant::now() + REQUEST_TIMEOUT };
        let mut header = [0; HEADER];
        timed.read_exact(&mut header)?;
        let (length, command) = protocol::parse_header(&header)?;
        let mut body = vec![0; length];
        timed.read_exact(&mut body)?;
        let answer = reader.answer(protocol::parse(command, &body)?)?;
        timed.until = Instant::now() + ANSWER_TIMEOUT;
        timed.write_all(&answer.encode())?;
    }
}

/// Stream whose reads and writes all end by one time, however little each of them moves.
struct Timed<'a> {
    stream: &'a TcpStream,
    until: Instant,
}

impl Timed<'_> {
    fn rest(&self) -> io::Result<Option<Duration>> {
        let rest = self.until.saturating_duration_since(Instant::now());
        if rest.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(Some(rest)) }
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.stream.set_read_timeout(self.rest()?)?;
        let mut stream = self.stream;
        stream.read(bytes)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.set_write_timeout(self.rest()?)?;
        let mut stream = self.stream;
        stream.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// State of one reader.
struct Reader<'a> {
    folders: &'a [PathBuf],
    attached: Option<(u64, Attached)>,
}

impl Reader<'_> {
    fn answer(&mut self, request: Request) -> Result<Answer, Refusal> {
        Ok(match request {
            Request::Connect { major, .. } if major != MAJOR => return Err(Refusal::Version(major)),
            Request::Connect { minor, kind, .. } => Answer::Connected(minor.min(MINOR), kind),
            Request::ListSessions => {
                Answer::Sessions(self.sessions().into_iter().map(|(session, _)| session).collect())
            }
            Request::CreateSession => Answer::Created,
            Request::Attach { session } => {
                let found = self.sessions().into_iter().find(|(found, _)| found.id == session);
                let folder = found.and_then(|(_, path)| DirHandle::open(&path).ok());
                Answer::Attached(folder.map(|folder| {
                    let mut attached = Attached::new(folder);
                    let streams = attached.new_streams().unwrap_or_default();
                    self.attached = Some((session, attached));
                    streams
                }))
            }
            Request::NewStreams { session } => {
                let attached = self.attached.as_mut().filter(|(id, _)| *id == session);
                Answer::NewStreams(attached.and_then(|(_, attached)| attached.new_streams()))
            }
            Request::NextIndex { stream } => match &mut self.attached {
                Some((_, attached)) => {
                    let (next, news) = attached.next(stream);
                    Answer::Next(next, news)
                }
                None => Answer::Next(None, protocol::News::default()),
            },
            Request::Packet { stream, offset, length } => Answer::Packet(
                self.attached.as_ref().and_then(|(_, attached)| attached.packet(stream, offset, length)),
            ),
            Request::Metadata { stream } => {
                Answer::Metadata(self.attached.as_mut().and_then(|(_, attached)| attached.metadata(stream)))
            }
            Request::Detach { session } => {
                Answer::Detached(self.attached.take_if(|(id, _)| *id == session).is_some())
            }
        })
    }

    /// Sessions that there are now, with their folders. Those in chunks are left out: babeltrace2
    /// would take each chunk for a trace beside the others.
    fn sessions(&self) -> Vec<(Session, PathBuf)> {
        let mut sessions = Vec::new();
        for path in self.folders.iter().flat_map(|folder| find_recordings(folder).unwrap_or_default()) {
            let Ok(recording) = Recording::open(&path) else { continue };
            let handle = DirHandle::open(&path);
            let chunks = handle.and_then(|folder| tompion_chunks::list_chunks(&folder)).unwrap_or_default();
            if chunks.open.is_some() || !chunks.committed.is_empty() {
                continue;
            }
            let place = recording.place;
            let mut hasher = DefaultHasher::new();
            place.to_string().hash(&mut hasher);
            let (host, name) = (place.host.to_string(), place.session.to_string());
            sessions.push((Session { id: hasher.finish(), streams: 1, host, name }, path));
        }
        sessions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_leaves_places_to_others() {
        let readers = Readers::default();
        let address = |last| IpAddr::from([192, 0, 2, last]);
        let mut slots: Vec<_> = (0..100).filter_map(|_| Slot::take(&readers, address(1))).collect();
        assert_eq!(slots.len(), MAX_READERS_OF_ADDRESS);
        assert!(Slot::take(&readers, address(2)).is_some());
        slots.pop();
        assert!(Slot::take(&readers, address(1)).is_some());
        let local = (0..100).filter_map(|_| Slot::take(&readers, IpAddr::from([127, 0, 0, 1])));
        slots.extend(local.collect::<Vec<_>>());
        assert_eq!(slots.len(), MAX_READERS);
        drop(slots);
        assert!(readers.lock().expect("readers").is_empty());
    }
}
