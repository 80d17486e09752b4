//! Memory files and their mappings.

use std::{
    ffi::CStr,
    fs::File,
    io,
    ops::Range,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
    ptr::NonNull,
    sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering},
};

use crate::{
    bpf::MapFacts,
    check, last_error,
    sigbus_guard::{self, Guard},
};

/// Creates a sparse memory file of a size and seals it, so that it can't be resized any more.
///
/// Source: `memfd_create(2)`, `F_ADD_SEALS` in `fcntl(2)`.
pub fn create_memfd(name: &CStr, size: u64) -> io::Result<OwnedFd> {
    // SAFETY: `name` is a NUL-terminated string that lives across the call.
    let raw =
        check(unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING) })?;
    // SAFETY: the descriptor was just made and has no other owner.
    let file = unsafe { OwnedFd::from_raw_fd(raw) };
    let length = libc::off_t::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a plain system call on an open descriptor.
    check(unsafe { libc::ftruncate(file.as_raw_fd(), length) })?;
    // SAFETY: a plain system call on an open descriptor.
    check(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SIZE_SEALS) })?;
    Ok(file)
}

/// Gives an empty file a size with all its space reserved, so that no store to a mapping of it
/// finds the disk full.
///
/// Unlike a sealed memory file it can be shrunk by a process that has it open for writing. Source:
/// `fallocate(2)`.
pub fn reserve(file: &File, size: u64) -> io::Result<()> {
    let length = libc::off_t::try_from(size).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    // SAFETY: a plain system call on an open descriptor.
    check(unsafe { libc::fallocate(file.as_raw_fd(), 0, 0, length) }).map(drop)
}

/// Seals without which a memory file could change its size: see `F_ADD_SEALS` in `fcntl(2)`.
const SIZE_SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

/// Facts about a file's size and about the users who could change it.
struct SizeFacts {
    /// Size in bytes.
    size: u64,
    /// No process can resize the file.
    is_sealed: bool,
    /// A regular file whose space is all reserved: no store to its mapping finds the disk full.
    is_reserved: bool,
    owner: u32,
    /// Whether others than the owner may write the file.
    is_open_to_writers: bool,
}

impl SizeFacts {
    /// Asks the kernel about a file.
    ///
    /// # Errors
    /// The file has none of these sizes.
    fn of(file: BorrowedFd<'_>, sizes: &[u64]) -> io::Result<Self> {
        // SAFETY: all-zero bytes are a valid `stat`.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: `stat` is a writable structure of the right type.
        check(unsafe { libc::fstat(file.as_raw_fd(), &raw mut stat) })?;
        let size = stat.st_size as u64;
        if !sizes.contains(&size) {
            let expected = sizes.last().copied().unwrap_or_default();
            return refuse(format!("expected a memory file of {expected} bytes, found {size}"));
        }
        // SAFETY: a plain system call on an open descriptor; files that can't be sealed refuse it.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        let is_regular = stat.st_mode & libc::S_IFMT == libc::S_IFREG;
        Ok(Self {
            size,
            is_sealed: seals >= 0 && seals & SIZE_SEALS == SIZE_SEALS,
            is_reserved: is_regular && stat.st_blocks as u64 * 512 >= size,
            owner: stat.st_uid,
            is_open_to_writers: stat.st_mode & (libc::S_IWGRP | libc::S_IWOTH) != 0,
        })
    }
}

fn refuse<T>(text: String) -> io::Result<T> {
    Err(io::Error::new(io::ErrorKind::InvalidInput, text))
}

/// A shared, writable mapping of a whole file. Either the file's size cannot shrink, or only a user
/// could shrink it that may end the process anyway, or the mapping is guarded.
///
/// Another process may write the same bytes at any time. Therefore no `&[u8]` is ever made of them:
/// words are reached as atomics, bytes are copied out and in. Every offset is checked.
#[derive(Debug)]
pub struct SharedMap {
    base: NonNull<u8>,
    len: usize,
    unmap: bool,
    guard: Option<Guard>,
}

// SAFETY: the mapping is plain memory; all access through `&self` is atomic or volatile byte-wise.
unsafe impl Send for SharedMap {}
// SAFETY: as above.
unsafe impl Sync for SharedMap {}

impl SharedMap {
    /// Maps a sealed memory file. Refuses one of another size, and every other file.
    pub fn new(file: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        Self::received(file, size, |_| false)
    }

    /// Maps a file that another process passed on.
    ///
    /// A sealed memory file is taken from every process. A file on disk can't be sealed: it is
    /// taken if all its space is reserved, and only a user whom `may_resize` accepts may write it.
    pub fn received(
        file: BorrowedFd<'_>,
        size: u64,
        may_resize: impl FnOnce(u32) -> bool,
    ) -> io::Result<Self> {
        Self::received_of(file, &[size], may_resize)
    }

    /// The same of a file that has one of these sizes.
    pub fn received_of(
        file: BorrowedFd<'_>,
        sizes: &[u64],
        may_resize: impl FnOnce(u32) -> bool,
    ) -> io::Result<Self> {
        let facts = SizeFacts::of(file, sizes)?;
        if !facts.is_sealed {
            if !facts.is_reserved || facts.is_open_to_writers {
                return refuse("the memory file is not sealed".into());
            }
            if !may_resize(facts.owner) {
                return refuse(format!(
                    "its memory would be a file of user {}, who could end it by making the file smaller",
                    facts.owner
                ));
            }
        }
        Self::map(file, facts.size)
    }

    /// Maps a file that others may make smaller. What is cut off reads as zeros from then on, and
    /// [`SharedMap::was_cut`] tells.
    pub fn guarded(file: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        let facts = SizeFacts::of(file, &[size])?;
        if !facts.is_sealed && !facts.is_reserved {
            return refuse("the memory file has space that is not reserved".into());
        }
        let mut map = Self::map(file, size)?;
        map.guard = Some(sigbus_guard::watch(map.base.as_ptr() as usize, map.len)?);
        Ok(map)
    }

    /// Whether a part of a guarded file was cut off that was read since.
    pub fn was_cut(&self) -> bool {
        self.guard.as_ref().is_some_and(Guard::was_cut)
    }

    fn map(file: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_SHARED | libc::MAP_NORESERVE;
        let len = size as usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
        let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file.as_raw_fd(), 0) };
        if base == libc::MAP_FAILED {
            return Err(last_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(last_error)?;
        Ok(Self { base, len, unmap: true, guard: None })
    }

    /// Maps an array of BPF programs, made with `BPF_F_MMAPABLE`, from its beginning.
    ///
    /// Such an array never changes its size. Source: `bpf(2)`, and `map_type` in
    /// `/proc/PID/fdinfo`.
    pub fn of_bpf_array(map: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        Self::bpf_array(map, 0..size, libc::PROT_READ | libc::PROT_WRITE)
    }

    /// The same of a part, in bytes. The mapping begins where the page does in which the part lies:
    /// the second is where in the mapping that is. The kernel makes all pages of such a mapping
    /// present at once, so a caller that needs little maps little.
    pub fn of_bpf_array_part(map: BorrowedFd<'_>, part: Range<u64>) -> io::Result<(Self, usize)> {
        // SAFETY: a plain question.
        let page = u64::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096).max(1);
        let first = part.start / page * page;
        let mapped = Self::bpf_array(map, first..part.end, libc::PROT_READ | libc::PROT_WRITE)?;
        Ok((mapped, (part.start - first) as usize))
    }

    /// The same of an array that may only be read: a store to it ends the process.
    pub fn of_bpf_array_to_read(map: BorrowedFd<'_>, size: u64) -> io::Result<Self> {
        Self::bpf_array(map, 0..size, libc::PROT_READ)
    }

    /// The part begins at a page.
    fn bpf_array(map: BorrowedFd<'_>, part: Range<u64>, protection: libc::c_int) -> io::Result<Self> {
        let refuse = |what: &str| io::Error::new(io::ErrorKind::InvalidInput, what.to_owned());
        let facts = MapFacts::of(map)?;
        const BPF_MAP_TYPE_ARRAY: u64 = 2;
        if facts.number("map_type:") != Some(BPF_MAP_TYPE_ARRAY) {
            return Err(refuse("expected a BPF array"));
        }
        let entry = facts.number("value_size:").unwrap_or(0).next_multiple_of(8);
        let entries = facts.number("max_entries:").unwrap_or(0);
        if entry.checked_mul(entries).is_none_or(|all| all < part.end) || part.is_empty() {
            return Err(refuse("the BPF array is smaller than expected"));
        }
        let (len, first) = ((part.end - part.start) as usize, part.start as libc::off_t);
        // SAFETY: a new mapping at an address of the kernel's choice. The array has all of these
        // bytes for as long as it is mapped, which holds a reference to it.
        let base = unsafe {
            libc::mmap(std::ptr::null_mut(), len, protection, libc::MAP_SHARED, map.as_raw_fd(), first)
        };
        if base == libc::MAP_FAILED {
            return Err(last_error());
        }
        let base = NonNull::new(base.cast()).ok_or_else(last_error)?;
        Ok(Self { base, len, unmap: true, guard: None })
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Address of the first byte, for those who prove their own accesses.
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Makes all pages from an offset on present, so that no store there takes a page fault.
    ///
    /// # Errors
    /// There is no memory for them, or the kernel is older than Linux 5.14.
    ///
    /// # Panics
    /// As [`SharedMap::word`].
    pub fn prefault(&self, offset: usize) -> io::Result<()> {
        let len = self.len.checked_sub(offset).expect("an offset inside of the mapping");
        try_populate(self.base.as_ptr().wrapping_add(offset), len)
    }

    /// Gives pages of a memory file back to the system, for all that have it mapped: they read as
    /// zeros until they are written again. Best effort: where the kernel refuses, they stay.
    ///
    /// Source: `MADV_REMOVE` in `madvise(2)`.
    ///
    /// # Panics
    /// As [`SharedMap::word`].
    pub fn give_back(&self, offset: usize, len: usize) {
        assert!(offset.checked_add(len).is_some_and(|end| end <= self.len));
        // SAFETY: the range is inside the mapping, which is shared; other users of the bytes must
        // expect any, and find zeros.
        unsafe { libc::madvise(self.base.as_ptr().add(offset).cast(), len, libc::MADV_REMOVE) };
    }

    /// Number of bytes of the mapping for which the system has pages at present.
    ///
    /// Source: `mincore(2)`.
    pub fn resident_bytes(&self) -> u64 {
        const PAGE: usize = 4096;
        const AT_ONCE: usize = 1024;
        let mut pages = [0_u8; AT_ONCE];
        let mut resident = 0;
        for offset in (0..self.len).step_by(AT_ONCE * PAGE) {
            let len = (self.len - offset).min(AT_ONCE * PAGE);
            // SAFETY: the range is inside the mapping, and has at most as many pages as the array.
            let result =
                unsafe { libc::mincore(self.base.as_ptr().add(offset).cast(), len, pages.as_mut_ptr()) };
            if result == 0 {
                let of_range = pages.iter().take(len.div_ceil(PAGE));
                resident += of_range.filter(|page| **page & 1 != 0).count() as u64;
            }
        }
        resident * PAGE as u64
    }

    /// Leaves the memory mapped for ever and returns its address.
    pub fn leak(mut self) -> *mut u8 {
        self.unmap = false;
        self.base.as_ptr()
    }

    /// The 64-bit word at an offset that is a multiple of 8.
    ///
    /// # Panics
    /// If the word isn't inside the mapping: offsets come from checked geometry, never from the
    /// memory.
    pub fn word(&self, offset: usize) -> &AtomicU64 {
        assert!(offset % 8 == 0 && offset.checked_add(8).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, aligned (the mapping begins at a page), and only used
        // atomically.
        unsafe { AtomicU64::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// The 32-bit word at an offset that is a multiple of 4.
    ///
    /// # Panics
    /// As [`SharedMap::word`].
    pub fn half(&self, offset: usize) -> &AtomicU32 {
        assert!(offset % 4 == 0 && offset.checked_add(4).is_some_and(|end| end <= self.len));
        // SAFETY: inside the mapping, aligned, and only used atomically.
        unsafe { AtomicU32::from_ptr(self.base.as_ptr().add(offset).cast()) }
    }

    /// Copies bytes out. What another process writes meanwhile may come in parts.
    ///
    /// # Panics
    /// As [`SharedMap::word`].
    pub fn copy_out(&self, offset: usize, to: &mut [u8]) {
        assert!(offset.checked_add(to.len()).is_some_and(|end| end <= self.len));
        // SAFETY: the source is inside the mapping, the destination is a private slice. The other
        // process may write the source meanwhile: the bytes are then arbitrary, which callers must
        // expect, but they are plain bytes, and `memcpy` reads each of them without assuming that
        // it is stable.
        unsafe {
            std::ptr::copy_nonoverlapping(
                self.base.as_ptr().add(offset).cast_const(),
                to.as_mut_ptr(),
                to.len(),
            )
        }
    }

    /// Copies bytes in.
    ///
    /// # Panics
    /// As [`SharedMap::word`].
    pub fn copy_in(&self, offset: usize, from: &[u8]) {
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= self.len));
        for (index, byte) in from.iter().enumerate() {
            // SAFETY: inside the mapping; bytes need no alignment; the access is atomic.
            let place = unsafe { AtomicU8::from_ptr(self.base.as_ptr().add(offset + index)) };
            // Ordering: the caller publishes the bytes by a release store of its own.
            place.store(*byte, Ordering::Relaxed);
        }
    }
}

impl Drop for SharedMap {
    fn drop(&mut self) {
        if self.unmap {
            // Before other memory can be there.
            self.guard = None;
            // SAFETY: the mapping is ours and `&mut self` proves that no reference into it is left.
            unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
        }
    }
}

/// Makes pages of a mapping present before they are written. Best effort.
///
/// Source: `MADV_POPULATE_WRITE` in `madvise(2)`, Linux 5.14.
pub fn populate(base: *mut u8, len: usize) {
    // Without them, the kernel supplies the pages when they are written.
    let _ = try_populate(base, len);
}

fn try_populate(base: *mut u8, len: usize) -> io::Result<()> {
    const MADV_POPULATE_WRITE: libc::c_int = 23;
    // SAFETY: populating changes no content; a range that isn't mapped yields an error.
    check(unsafe { libc::madvise(base.cast(), len, MADV_POPULATE_WRITE) }).map(drop)
}

/// Address space that a mapping has left, filled with private, empty memory.
///
/// A thread that still writes there writes into memory that is never read; the address never
/// becomes invalid.
#[derive(Debug)]
pub struct Retired(*mut u8, usize);

// SAFETY: only an address and a length; the memory behind it is never read.
unsafe impl Send for Retired {}

impl Retired {
    /// Puts private, empty memory in a mapping's place. It has no pages until it is written, also
    /// in a program that has locked all its memory.
    pub fn new(map: SharedMap) -> Self {
        let len = map.len;
        let base = map.leak();
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
        // SAFETY: the mapping was ours alone, so replacing it touches no other memory; it is never
        // without one that can be written. What the last two calls change is only whether pages are
        // there, all of which are empty.
        unsafe {
            libc::mmap(base.cast(), len, protection, flags, -1, 0);
            libc::munlock(base.cast(), len);
            libc::madvise(base.cast(), len, libc::MADV_DONTNEED);
        }
        Self(base, len)
    }

    /// Gives the address space back.
    ///
    /// # Safety
    /// No thread writes there any more.
    pub unsafe fn unmap(self) {
        // SAFETY: `new` has taken the range over, and the caller promises that no thread uses it.
        unsafe { libc::munmap(self.0.cast(), self.1) };
    }
}

/// Maps private memory that is wiped to zeros in the child of any kind of fork.
///
/// The memory is never unmapped. Source: `MADV_WIPEONFORK` in `madvise(2)`.
pub fn open_private_page(len: usize) -> io::Result<NonNull<u8>> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping at an address of the kernel's choice touches no existing memory.
    let base = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(last_error());
    }
    // SAFETY: the range was just mapped.
    check(unsafe { libc::madvise(base, len, libc::MADV_WIPEONFORK) })?;
    NonNull::new(base.cast()).ok_or_else(last_error)
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn a_sealed_file_can_be_mapped_and_not_resized() {
        let file = create_memfd(c"test", 8192).unwrap();
        let map = SharedMap::new(file.as_fd(), 8192).unwrap();
        map.word(8).store(7, Ordering::Relaxed);
        let mut bytes = [0; 8];
        map.copy_out(8, &mut bytes);
        assert_eq!(u64::from_le_bytes(bytes), 7);
        // SAFETY: a plain system call on an open descriptor.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), 0) }, -1);
    }

    #[test]
    fn what_is_cut_off_a_guarded_file_reads_as_zeros() {
        let folder = TestDir::new("guard");
        let path = folder.join("file");
        let file = File::options().read(true).write(true).create(true).truncate(true).open(&path).unwrap();
        reserve(&file, 16384).unwrap();
        let map = SharedMap::guarded(file.as_fd(), 16384).unwrap();
        let word = |offset| map.word(offset).load(Ordering::Relaxed);
        for offset in [0, 8192] {
            map.word(offset).store(7, Ordering::Relaxed);
        }
        assert!(word(8192) == 7 && !map.was_cut());
        file.set_len(4096).unwrap();
        assert_eq!((word(8192), word(0), word(16376), map.was_cut()), (0, 7, 0, true));
        assert!(SharedMap::guarded(file.as_fd(), 16384).is_err());
        assert!(reserve(&File::open("/proc/self/stat").unwrap(), 1).is_err());
    }

    /// A memory file with these seals, and all its pages there.
    fn memory_file(seals: libc::c_int) -> OwnedFd {
        // SAFETY: plain system calls on a descriptor that is new.
        unsafe {
            let raw = libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            assert_eq!(libc::fallocate(raw, 0, 0, 8192), 0);
            assert_eq!(libc::fcntl(raw, libc::F_ADD_SEALS, seals), 0);
            OwnedFd::from_raw_fd(raw)
        }
    }

    #[test]
    fn memory_that_could_shrink_is_refused_from_any_owner() {
        for missing in [libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_SEAL, SIZE_SEALS] {
            let file = memory_file(SIZE_SEALS & !missing);
            let error = SharedMap::received(file.as_fd(), 8192, |_| true).unwrap_err();
            assert_eq!(error.to_string(), "the memory file is not sealed");
        }
        assert!(SharedMap::received(memory_file(SIZE_SEALS).as_fd(), 8192, |_| false).is_ok());
    }

    #[test]
    fn a_file_on_disk_is_taken_only_if_no_other_user_could_shrink_it() {
        let folder = TestDir::new("received");
        let path = folder.join("file");
        let file = File::options().read(true).write(true).create_new(true).open(&path).unwrap();
        reserve(&file, 8192).unwrap();
        let receive = |trusts: bool| SharedMap::received(file.as_fd(), 8192, |_| trusts).is_ok();
        let set_mode = |mode| {
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        set_mode(0o600);
        assert_eq!((receive(true), receive(false)), (true, false));
        assert!(SharedMap::new(file.as_fd(), 8192).is_err());
        for open in [0o620, 0o602] {
            set_mode(open);
            assert!(!receive(true), "{open:o}");
        }
        set_mode(0o600);
        // Space that is missing could not be had when it is needed.
        // SAFETY: a plain system call on an open descriptor.
        let punched = unsafe {
            libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE, 0, 8192)
        };
        assert!(punched != 0 || !receive(true));
    }

    #[test]
    fn a_file_of_another_size_is_refused() {
        let file = create_memfd(c"test", 4096).unwrap();
        assert!(SharedMap::new(file.as_fd(), 8192).is_err());
    }

    #[test]
    #[should_panic(expected = "assertion failed")]
    fn an_offset_beyond_the_end_is_caught() {
        let file = create_memfd(c"test", 4096).unwrap();
        SharedMap::new(file.as_fd(), 4096).unwrap().word(4096);
    }
}
