//! Files that a process has in its memory, and their builds.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use object::{
    Endianness, FileKind, ReadCache,
    elf::{ELF_NOTE_GNU, FileHeader32, FileHeader64, NT_GNU_BUILD_ID, PT_LOAD},
    read::elf::{FileHeader, ProgramHeader as _},
};
use tompion_os::BoundedFile;

/// A program or a library in a process's memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Object {
    /// Address of the file's first byte.
    pub base: u64,
    /// Bytes from there to the end of its last part.
    pub size: u64,
    /// Its path, as the process sees it; `[vdso]` is no file.
    pub path: Vec<u8>,
    /// Its build id; empty if it has none or could not be read.
    pub build_id: Vec<u8>,
}

impl Object {
    /// Whether an address is in it.
    pub fn has(&self, address: u64) -> bool {
        address.checked_sub(self.base).is_some_and(|distance| distance < self.size)
    }
}

/// Most files whose build ids are remembered.
const MAX_KNOWN: usize = 1 << 14;
/// Maximum number of bytes that are read of a file. Its first headers and notes stand near its
/// beginning.
const MAX_READ: u64 = 64 << 20;
/// Alignment of a file's first part in memory, in bytes.
const PAGE: u64 = 4096;
/// Said by the kernel of files that have no name any more.
const DELETED: &[u8] = b" (deleted)";

/// Facts about files, by device and inode.
#[derive(Debug, Default)]
pub struct Files {
    builds: HashMap<Vec<u8>, Option<Build>>,
}

/// Identity of a file's build: its build id, empty if it has none, and how many bytes it takes in
/// memory.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Build {
    id: Vec<u8>,
    size: u64,
}

impl Files {
    /// The files with code in the memory of a process; none if it is gone.
    pub fn of_process(&mut self, pid: u32) -> Vec<Object> {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let maps = fs::read(folder.join("maps")).unwrap_or_default();
        let found = parse(&maps);
        found.into_iter().map(|mapped| self.identify(&folder, mapped)).collect()
    }

    fn identify(&mut self, folder: &Path, mapped: Mapped) -> Object {
        let Mapped { mut object, file, part } = mapped;
        if !object.path.starts_with(b"/") {
            return object;
        }
        if self.builds.len() >= MAX_KNOWN {
            self.builds.clear();
        }
        let read = || {
            let by_part = folder.join("map_files").join(part);
            let path = String::from_utf8_lossy(&object.path);
            let by_path = folder.join("root").join(path.trim_start_matches('/'));
            build(&by_part).or_else(|| build(&by_path))
        };
        if let Some(build) = self.builds.entry(file).or_insert_with(read) {
            object.build_id.clone_from(&build.id);
            object.size = build.size;
        }
        object
    }
}

/// Returns what a file says of itself; `None` if it can't be read.
fn build(path: &Path) -> Option<Build> {
    // The process chooses the path and the sizes in the file, and may change both at any time.
    let cache = ReadCache::new(BoundedFile::open(path, MAX_READ).ok()?);
    match FileKind::parse(&cache).ok()? {
        FileKind::Elf64 => build_in::<FileHeader64<Endianness>>(&cache),
        FileKind::Elf32 => build_in::<FileHeader32<Endianness>>(&cache),
        _ => None,
    }
}

/// Reads the segments and their notes alone: sections stand at the end of the file.
fn build_in<Header: FileHeader<Endian = Endianness>>(cache: &ReadCache<BoundedFile>) -> Option<Build> {
    let header = Header::parse(cache).ok()?;
    let endian = header.endian().ok()?;
    let segments = header.program_headers(endian, cache).ok()?;
    let loaded = || segments.iter().filter(|segment| segment.p_type(endian) == PT_LOAD);
    let first = loaded().map(|segment| segment.p_vaddr(endian).into()).min()? / PAGE * PAGE;
    let end =
        loaded().map(|segment| segment.p_vaddr(endian).into().saturating_add(segment.p_memsz(endian).into()));
    let size = end.max()?.checked_sub(first)?;
    for segment in segments {
        let Some(mut notes) = segment.notes(endian, cache).ok()? else { continue };
        while let Some(note) = notes.next().ok()? {
            if note.name() == ELF_NOTE_GNU && note.n_type(endian) == NT_GNU_BUILD_ID {
                return Some(Build { id: note.desc().to_vec(), size });
            }
        }
    }
    Some(Build { id: Vec::new(), size })
}

/// An object, by which its file is told from others, and the range of its first part as `map_files`
/// has it.
struct Mapped {
    object: Object,
    file: Vec<u8>,
    part: String,
}

/// The objects with code in a process's list of mappings.
fn parse(maps: &[u8]) -> Vec<Mapped> {
    let mut found: Vec<(Mapped, bool)> = Vec::new();
    for line in maps.split(|byte| *byte == b'\n') {
        let Some(mapping) = Mapping::parse(line) else { continue };
        match found.last_mut() {
            // A part with the file's beginning is the first of another object.
            Some((last, has_code)) if last.file == mapping.file && mapping.offset > 0 => {
                last.object.size = mapping.end.saturating_sub(last.object.base);
                *has_code |= mapping.is_code;
            }
            _ => {
                let base = mapping.begin.saturating_sub(mapping.offset);
                let path = mapping.path.strip_suffix(DELETED).unwrap_or(mapping.path).to_vec();
                let object = Object { base, size: mapping.end - base, path, build_id: Vec::new() };
                let part = format!("{:x}-{:x}", mapping.begin, mapping.end);
                found.push((Mapped { object, file: mapping.file.to_vec(), part }, mapping.is_code));
            }
        }
    }
    found.into_iter().filter(|(_, has_code)| *has_code).map(|(mapped, _)| mapped).collect()
}

/// A line of `/proc/PID/maps`: `55d4a000-55d4b000 r-xp 00001000 fe:01 1234    /usr/bin/true`
struct Mapping<'a> {
    begin: u64,
    end: u64,
    is_code: bool,
    offset: u64,
    /// Device and inode; of what is no file, the name.
    file: &'a [u8],
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// Nothing for memory without a name.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let (range, rest) = word(line)?;
        let (rights, rest) = word(rest)?;
        let (offset, file) = word(rest)?;
        let (device, rest) = word(file)?;
        let (inode, rest) = word(rest)?;
        let path = rest.trim_ascii_start();
        let is_file = path.starts_with(b"/") && inode != b"0";
        if !is_file && path != b"[vdso]" {
            return None;
        }
        let (begin, end) = std::str::from_utf8(range).ok()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (begin, end) = (number(begin)?, number(end)?);
        let file = if is_file { file.get(..device.len() + 1 + inode.len())? } else { path };
        let offset = number(std::str::from_utf8(offset).ok()?)?;
        (begin < end).then_some(Self {
            begin,
            end,
            is_code: rights.get(2) == Some(&b'x'),
            offset,
            file,
            path,
        })
    }
}

fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line.iter().position(|byte| *byte == b' ')?;
    Some((line.get(..end)?, line.get(end + 1..)?))
}

#[cfg(test)]
mod tests {
    use tompion_testing::TestDir;

    use std::fs::File;

    use super::*;

    #[test]
    fn mappings_become_objects() {
        let maps = b"55d000000000-55d000001000 r--p 00000000 fe:01 12      /usr/bin/with space\n\
            55d000001000-55d000003000 r-xp 00001000 fe:01 12      /usr/bin/with space\n\
            55d000004000-55d000005000 rw-p 00003000 fe:01 12      /usr/bin/with space\n\
            55d000100000-55d000200000 rw-p 00000000 00:00 0       [heap]\n\
            7f0000000000-7f0000001000 r--p 00000000 fe:01 13      /usr/share/locale\n\
            7f0000002000-7f0000003000 r-xp 00000000 fe:01 14      /tmp/gone (deleted)\n\
            7f0000004000-7f0000005000 r-xp 00000000 00:00 0       [vdso]\n\
            7f0000006000-7f0000007000 r-xp 00000000 00:00 0 \n\
            nonsense\n";
        let found: Vec<_> = parse(maps).into_iter().map(|mapped| mapped.object).collect();
        let described = found.iter().map(|object| (object.base, object.size, &object.path[..]));
        assert_eq!(
            described.collect::<Vec<_>>(),
            [
                (0x55d0_0000_0000, 0x5000, &b"/usr/bin/with space"[..]),
                (0x7f00_0000_2000, 0x1000, b"/tmp/gone"),
                (0x7f00_0000_4000, 0x1000, b"[vdso]"),
            ]
        );
    }

    #[test]
    fn this_process_has_its_program() {
        let mut files = Files::default();
        let objects = files.of_process(std::process::id());
        let here = this_process_has_its_program as fn() as usize as u64;
        let own = objects.iter().find(|object| object.has(here)).expect("this program");
        let path = std::env::current_exe().unwrap();
        assert_eq!(own.path, path.as_os_str().as_encoded_bytes());
        let build = build(&path).expect("a program");
        assert_eq!((&own.build_id, own.size), (&build.id, build.size));
        assert!(files.of_process(u32::MAX).is_empty());
    }

    /// Returns the largest amount of memory that this process has had, in KiB.
    fn peak_memory() -> u64 {
        let status = fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Writes a file that claims tables of 4 GiB, and has that size without taking room on the
    /// disk.
    fn write_large(path: &Path, sections: u64, notes: u16) {
        let mut bytes = vec![0; 64 + 56 * (usize::from(notes) + 1) + 64];
        bytes[..20].copy_from_slice(b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\x3e\0");
        let mut put = |at: usize, value: u64, size: usize| {
            bytes[at..at + size].copy_from_slice(&value.to_le_bytes()[..size])
        };
        let section = 64 + 56 * (u64::from(notes) + 1);
        let words = [(20, 1, 4), (32, 64, 8), (40, section, 8), (52, 64, 2), (54, 56, 2), (58, 64, 2)];
        words.iter().for_each(|&(at, value, size)| put(at, value, size));
        put(56, u64::from(notes) + 1, 2);
        // The number of sections stands in the first one's size.
        put(section as usize + 32, sections, 8);
        let segment =
            |kind: u64, begin: u64, size: u64| [(0, kind, 4), (8, begin, 8), (32, size, 8), (40, size, 8)];
        for (at, value, size) in segment(1, 0, 4096) {
            put(64 + at, value, size);
        }
        for note in 1..=usize::from(notes) {
            for (at, value, size) in segment(4, note as u64, 32 << 20) {
                put(64 + 56 * note + at, value, size);
            }
        }
        fs::write(path, &bytes).unwrap();
        File::options().write(true).open(path).unwrap().set_len(4 << 30).unwrap();
    }

    #[test]
    fn a_program_decides_on_no_memory_of_the_recorder() {
        const MAX_GROWTH: u64 = 512 << 10;
        let folder = TestDir::new("large-object");
        let path = folder.join("object");
        let before = peak_memory();
        for (sections, notes) in [(1 << 25, 0), (0, 1000)] {
            write_large(&path, sections, notes);
            let _ = build(&path);
        }
        assert!(peak_memory() - before < MAX_GROWTH, "{before} KiB, then {} KiB", peak_memory());
    }
}
