//! Disk thread, which writes packets.
//!
//! A disk may be slow for seconds, and even the page cache takes a third of all the time that an
//! event costs on this side. So packets are written by a thread of its own, while the consumer goes
//! on emptying rings: a packet is handed over with its buffer. A caller that must know that
//! something is on the disk waits for its file. A file that fails ends behind its last whole
//! packet, and the events of those that came too late are counted.

use std::{
    fs::File,
    io::{self, Write},
    mem,
    os::unix::fs::FileExt as _,
    sync::{
        Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc::{Receiver, Sender, channel},
    },
    thread,
};

use tompion_ctf::encode::{index_header, seal};

/// Bytes that may wait to be written before the converting thread should wait, too.
const MAX_WAITING_BYTES: u64 = 32 << 20;
/// Buffers that are kept for the next packets: as many as can wait, for fresh memory costs more
/// than to fill it.
const MAX_SPARE: usize = 128;
/// Smaller packets are copied out of their buffers, so that streams with few events keep small
/// ones.
const LARGE: usize = 128 << 10;

/// A stream's file and its index.
#[derive(Debug)]
pub struct PacketFile {
    data: File,
    index: File,
    progress: Mutex<Progress>,
    settled: Condvar,
}

#[derive(Debug, Default)]
struct Progress {
    /// Packets that wait.
    waiting: usize,
    /// Reason why the file has no more packets.
    failure: Option<Failure>,
    /// Events of packets that came after that.
    dropped: u64,
}

/// An error that can be told more than once.
#[derive(Clone, Debug)]
struct Failure {
    code: Option<i32>,
    text: String,
}

/// A whole packet and where it belongs.
#[derive(Debug)]
pub struct WholePacket<'a> {
    /// The packet's buffer; another one may be left in its place.
    pub bytes: &'a mut Vec<u8>,
    /// Size of the packet in it.
    pub size: usize,
    /// Offset in the file.
    pub at: u64,
    /// Entry of the index.
    pub entry: [u8; 72],
    /// Number of events in it.
    pub events: u64,
}

/// A packet that waits.
struct Job {
    file: Arc<PacketFile>,
    packet: Vec<u8>,
    size: usize,
    at: u64,
    entry: [u8; 72],
    events: u64,
}

/// The thread that writes, as others see it.
struct Disk {
    /// None where no thread could be started: the thread that has a packet writes it.
    jobs: Option<Sender<Job>>,
    waiting_bytes: AtomicU64,
    spare: Mutex<Vec<Vec<u8>>>,
}

impl Progress {
    /// The failure as an error, if there is one.
    fn result(&self) -> io::Result<()> {
        self.failure.clone().map_or(Ok(()), |failure| Err(failure.into()))
    }
}

impl From<&io::Error> for Failure {
    fn from(error: &io::Error) -> Self {
        Self { code: error.raw_os_error(), text: error.to_string() }
    }
}

impl From<Failure> for io::Error {
    fn from(failure: Failure) -> Self {
        failure.code.map_or_else(|| Self::other(failure.text), Self::from_raw_os_error)
    }
}

/// No thread panics while holding these locks, and what they guard is sound at any time.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl PacketFile {
    /// A file and its index, both at their ends.
    pub fn new(data: File, index: File) -> Arc<Self> {
        Arc::new(Self { data, index, progress: Mutex::default(), settled: Condvar::new() })
    }

    /// Writes a packet now.
    pub fn write(&self, packet: &mut WholePacket<'_>) -> io::Result<()> {
        self.append(whole(packet.bytes, packet.size), packet.at, &packet.entry)
    }

    /// Hands a packet over to be written soon; an error is that of an earlier one.
    pub fn write_soon(self: &Arc<Self>, mut packet: WholePacket<'_>) -> io::Result<()> {
        let disk = disk();
        let Some(jobs) = &disk.jobs else { return self.write(&mut packet) };
        let WholePacket { bytes, size, at, entry, events } = packet;
        let mut progress = lock(&self.progress);
        progress.result()?;
        progress.waiting += 1;
        drop(progress);
        let packet = match size {
            ..LARGE => bytes.get(..size).unwrap_or(bytes).to_vec(),
            _ => mem::replace(bytes, disk.spare(bytes.len())),
        };
        // Ordering: a hint for `is_full`.
        disk.waiting_bytes.fetch_add(size as u64, Ordering::Relaxed);
        let job = Job { file: self.clone(), packet, size, at, entry, events };
        if let Err(gone) = jobs.send(job) {
            disk.work(gone.0);
        }
        Ok(())
    }

    /// Whether all packets of the file are written.
    pub fn is_settled(&self) -> bool {
        lock(&self.progress).waiting == 0
    }

    /// Waits until everything is written, or it is known why not.
    pub fn settle(&self) -> io::Result<()> {
        let mut progress = lock(&self.progress);
        while progress.waiting > 0 {
            progress = self.settled.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        progress.result()
    }

    /// Says whether writing has failed.
    pub fn check(&self) -> io::Result<()> {
        lock(&self.progress).result()
    }

    /// Events that were handed over and not written.
    pub fn dropped(&self) -> u64 {
        lock(&self.progress).dropped
    }

    /// Waits until everything is written, then until the medium has it.
    pub fn sync(&self) -> io::Result<()> {
        self.settle()?;
        self.data.sync_data()
    }

    /// Appends all packets to a file. Everything must be written.
    pub fn copy_data_to(&self, other: &File) -> io::Result<()> {
        copy_behind(0, &self.data, other)
    }

    /// Appends all packets to another file without one. Everything must be written.
    pub fn copy_to(&self, other: &Self) -> io::Result<()> {
        copy_behind(0, &self.data, &other.data)?;
        // The other index has a header already.
        copy_behind(index_header().len() as u64, &self.index, &other.index)
    }

    /// Appends a packet with its checksum. What a full disk leaves of one is taken away, so that
    /// the file ends with a whole one.
    fn append(&self, bytes: &mut [u8], at: u64, entry: &[u8]) -> io::Result<()> {
        // The write reads all of it: behind this, it is in the processor's cache.
        seal(bytes);
        let bytes = &*bytes;
        let written = (&self.data).write_all(bytes).and_then(|()| (&self.index).write_all(entry));
        written.inspect_err(|_| {
            let _ = self.data.set_len(at);
        })
    }
}

impl Disk {
    /// Starts the thread. It lives as long as the program: a caller that must know that a packet
    /// was written asks its file.
    fn start() -> Self {
        let (jobs, work) = channel();
        let thread = thread::Builder::new().name("disk".into());
        let started = thread.spawn(move || Self::run(&work)).is_ok();
        Self {
            jobs: started.then_some(jobs),
            waiting_bytes: AtomicU64::new(0),
            spare: Mutex::new(Vec::new()),
        }
    }

    fn run(work: &Receiver<Job>) {
        tompion_os::prefer_this_thread();
        for job in work {
            disk().work(job);
        }
    }

    /// A buffer for the next packet, of about this size: one that grows is copied each time.
    fn spare(&self, size: usize) -> Vec<u8> {
        let spare = lock(&self.spare).pop();
        spare.unwrap_or_else(|| vec![0; size])
    }

    fn work(&self, job: Job) {
        let Job { file, mut packet, size, at, entry, events } = job;
        let has_failed = lock(&file.progress).failure.is_some();
        let written = match has_failed {
            true => Ok(()),
            false => file.append(whole(&mut packet, size), at, &entry),
        };
        let mut progress = lock(&file.progress);
        if let Err(error) = &written {
            progress.failure = Some(error.into());
        }
        if progress.failure.is_some() {
            progress.dropped += events;
        }
        progress.waiting -= 1;
        drop(progress);
        file.settled.notify_all();
        // Ordering: a hint for `is_full`.
        self.waiting_bytes.fetch_sub(size as u64, Ordering::Relaxed);
        let mut spare = lock(&self.spare);
        if packet.len() >= LARGE && spare.len() < MAX_SPARE {
            spare.push(packet);
        }
    }
}

/// Appends a file's bytes behind an offset to another one, wherever its own position is.
fn copy_behind(mut at: u64, from: &File, mut to: &File) -> io::Result<()> {
    let mut buffer = vec![0; LARGE];
    loop {
        let len = from.read_at(&mut buffer, at)?;
        if len == 0 {
            return Ok(());
        }
        to.write_all(&buffer[..len])?;
        at += len as u64;
    }
}

/// The first bytes of a buffer, which are a packet.
fn whole(buffer: &mut [u8], size: usize) -> &mut [u8] {
    let size = size.min(buffer.len());
    &mut buffer[..size]
}

static DISK: OnceLock<Disk> = OnceLock::new();

fn disk() -> &'static Disk {
    DISK.get_or_init(Disk::start)
}

/// Starts the thread that writes, if it does not run yet.
pub fn start() {
    disk();
}

/// Whether so much waits to be written that no more should be made.
pub fn is_full() -> bool {
    // Ordering: a hint; what waits is counted by those who hand it over and by the thread that
    // writes.
    DISK.get().is_some_and(|disk| disk.waiting_bytes.load(Ordering::Relaxed) > MAX_WAITING_BYTES)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn send_memory(file: &Arc<PacketFile>, packet: &[u8], at: u64) -> io::Result<()> {
        let mut bytes = [packet, b"behind it"].concat();
        file.write_soon(WholePacket { bytes: &mut bytes, size: packet.len(), at, entry: [1; 72], events: 10 })
    }

    #[test]
    fn packets_are_written_in_order() {
        let folder = tempfile::tempdir().unwrap();
        let [data, index] = ["data", "index"].map(|name| folder.path().join(name));
        let file = PacketFile::new(File::create(&data).unwrap(), File::create(&index).unwrap());
        let mut packets: Vec<Vec<u8>> =
            (0..40).map(|number| vec![number; 20_000 * number as usize]).collect();
        let mut at = 0;
        for packet in &packets {
            send_memory(&file, packet, at).unwrap();
            at += packet.len() as u64;
        }
        file.settle().unwrap();
        assert!(file.is_settled() && file.dropped() == 0);
        packets.iter_mut().for_each(|packet| seal(packet));
        assert!(fs::read(&data).unwrap() == packets.concat());
        assert_eq!(fs::metadata(&index).unwrap().len(), 72 * 40);
    }

    #[test]
    fn a_file_that_fails_says_so_and_counts_what_came_too_late() {
        let folder = tempfile::tempdir().unwrap();
        let full = File::options().write(true).open("/dev/full").unwrap();
        let file = PacketFile::new(full, File::create(folder.path().join("index")).unwrap());
        let taken = (0..5).take_while(|number| send_memory(&file, b"packet", number * 6).is_ok()).count();
        // ENOSPC. Source: `errno(3)`.
        let no_room = Some(28);
        assert_eq!(file.settle().unwrap_err().raw_os_error(), no_room);
        assert_eq!(send_memory(&file, b"late", 30).unwrap_err().raw_os_error(), no_room);
        assert_eq!(file.dropped(), 10 * taken as u64);
        assert_eq!(fs::metadata(folder.path().join("index")).unwrap().len(), 0);
    }
}
