//! Opening a regular file at a path that another user may change at any time.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read, Seek, SeekFrom},
    os::{fd::AsRawFd, unix::fs::OpenOptionsExt},
    path::Path,
};

/// Opens a regular file for reading. Opens nothing else on the way: opening a pipe waits, and
/// opening a device may do something.
///
/// A check before `open` is not enough, as the path may lead to something else by then. So the
/// kernel is asked for a descriptor that only names the file (`O_PATH`), and that same file is
/// opened if it is regular. Source: `open(2)`.
///
/// # Errors
/// `InvalidInput` if the path leads to something else, and what `open(2)` returns. It needs
/// `/proc`.
pub fn open_regular(path: impl AsRef<Path>) -> io::Result<File> {
    let named = OpenOptions::new().read(true).custom_flags(libc::O_PATH).open(path)?;
    if !named.metadata()?.is_file() {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "expected a regular file, found something else",
        ));
    }
    File::open(format!("/proc/self/fd/{}", named.as_raw_fd()))
}

/// Beginning of a regular file that another user may have written, for parsers that allocate the
/// sizes it names. A sparse file of terabytes costs its owner nothing.
#[derive(Debug)]
pub struct BoundedFile {
    file: File,
    /// Number of bytes that the file seems to have at most.
    limit: u64,
    /// Number of bytes that may still be read.
    budget: u64,
}

impl BoundedFile {
    /// Opens a regular file of which the first `limit` bytes can be seen, and as many be read, in
    /// all reads together.
    ///
    /// # Errors
    /// As [`open_regular`].
    pub fn open(path: impl AsRef<Path>, limit: u64) -> io::Result<Self> {
        Ok(Self { file: open_regular(path)?, limit, budget: limit })
    }
}

impl Read for BoundedFile {
    /// Reads like `File::read`; fails with `FileTooLarge` once the budget is spent.
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let seen = self.limit.saturating_sub(self.file.stream_position()?);
        let wanted = usize::try_from(seen).unwrap_or(usize::MAX).min(buffer.len());
        if wanted as u64 > self.budget {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        let count = self.file.read(&mut buffer[..wanted])?;
        self.budget -= count as u64;
        Ok(count)
    }
}

impl Seek for BoundedFile {
    /// Seeks like `File::seek`, in a file that ends at the limit.
    fn seek(&mut self, position: SeekFrom) -> io::Result<u64> {
        match position {
            SeekFrom::End(distance) => {
                let end = self.file.metadata()?.len().min(self.limit);
                let place = end.checked_add_signed(distance).ok_or(io::ErrorKind::InvalidInput)?;
                self.file.seek(SeekFrom::Start(place))
            }
            position => self.file.seek(position),
        }
    }
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use std::{
        fs,
        os::unix::fs::symlink,
        process::Command,
        sync::{
            atomic::{AtomicBool, Ordering},
            mpsc,
        },
        thread,
        time::Duration,
    };

    use super::*;

    /// Makes a named pipe without a writer: opening it for reading waits for ever.
    fn make_pipe(path: &Path) {
        assert!(Command::new("mkfifo").arg(path).status().unwrap().success());
    }

    fn text(path: &Path) -> String {
        let mut text = String::new();
        open_regular(path).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    #[test]
    fn only_regular_files_are_opened() {
        let folder = TestDir::new("regular");
        let place = |name: &str| folder.join(name);
        fs::write(place("file"), "text").unwrap();
        symlink(place("file"), place("link")).unwrap();
        symlink("/dev/null", place("device")).unwrap();
        make_pipe(&place("pipe"));
        assert_eq!((text(&place("file")).as_str(), text(&place("link")).as_str()), ("text", "text"));
        for name in ["device", "pipe", "."] {
            let error = open_regular(place(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
        }
        assert_eq!(open_regular(place("none")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn a_file_gives_no_more_than_its_limit() {
        const LIMIT: u64 = 100_000;
        let folder = TestDir::new("bounded");
        let path = folder.join("file");
        // Sparse: it takes no room on the disk.
        File::create(&path).unwrap().set_len(1 << 40).unwrap();
        let mut bounded = BoundedFile::open(&path, LIMIT).unwrap();
        assert_eq!(bounded.seek(SeekFrom::End(0)).unwrap(), LIMIT);
        assert_eq!(bounded.seek(SeekFrom::End(-1)).unwrap(), LIMIT - 1);
        bounded.rewind().unwrap();
        let mut bytes = Vec::new();
        assert_eq!(bounded.read_to_end(&mut bytes).unwrap() as u64, LIMIT);
        bounded.rewind().unwrap();
        assert_eq!(bounded.read(&mut [0]).unwrap_err().kind(), io::ErrorKind::FileTooLarge);
        assert!(bounded.seek(SeekFrom::End(-1 - LIMIT as i64)).is_err());
    }

    #[test]
    fn a_path_that_turns_into_a_pipe_meanwhile_keeps_no_reader_waiting() {
        const OPENS: u32 = 20_000;
        let folder = TestDir::new("swapped");
        let [path, file, pipe] = ["path", "file", "pipe"].map(|name| folder.join(name));
        fs::write(&file, "text").unwrap();
        make_pipe(&pipe);
        fs::hard_link(&file, &path).unwrap();
        let ended = AtomicBool::new(false);
        let (opened, done) = mpsc::channel();
        let reader = path.clone();
        // Not scoped: it would never end where opening waits.
        thread::spawn(move || {
            for _ in 0..OPENS {
                let _ = open_regular(&reader);
            }
            let _ = opened.send(());
        });
        let result = thread::scope(|scope| {
            scope.spawn(|| {
                for target in [&pipe, &file].into_iter().cycle() {
                    // Ordering: a flag by itself.
                    if ended.load(Ordering::Relaxed) {
                        break;
                    }
                    let next = folder.join("next");
                    fs::hard_link(target, &next).unwrap();
                    fs::rename(&next, &path).unwrap();
                    // A rename of one link over another of the same file leaves both.
                    let _ = fs::remove_file(&next);
                }
            });
            let result = done.recv_timeout(Duration::from_secs(60));
            ended.store(true, Ordering::Relaxed);
            result
        });
        assert!(result.is_ok(), "an open waits for a writer of the pipe");
    }
}
