//! Which files a process has in its memory, and which builds of them they are.

use std::{
    collections::HashMap,
    fs,
    path::{Path, PathBuf},
};

use object::{Object as _, ObjectSegment, ReadCache};

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
const MOST_KNOWN: usize = 1 << 14;
/// To which a file's first part is put.
const PAGE: u64 = 4096;
/// Said by the kernel of files that have no name any more.
const DELETED: &[u8] = b" (deleted)";

/// What is known of files, by device and inode.
#[derive(Debug, Default)]
pub struct Files {
    builds: HashMap<Vec<u8>, Option<Build>>,
}

/// What a file says of itself: its build id, empty if it has none, and how many bytes it takes in memory.
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
        if self.builds.len() >= MOST_KNOWN {
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

/// What a file says of itself. Nothing if it can't be read.
fn build(path: &Path) -> Option<Build> {
    // The process chooses the path, and may change what it leads to at any time.
    let cache = ReadCache::new(tompion_os::open_regular(path).ok()?);
    let file = object::File::parse(&cache).ok()?;
    let segments = || file.segments().map(|segment| (segment.address(), segment.size()));
    let first = segments().map(|(address, _)| address).min()? / PAGE * PAGE;
    let end = segments().map(|(address, size)| address.saturating_add(size)).max()?;
    Some(Build { id: file.build_id().ok()?.unwrap_or_default().to_vec(), size: end - first })
}

/// An object, by which its file is told from others, and the range of its first part as `map_files` has it.
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
        let told = found.iter().map(|object| (object.base, object.size, &object.path[..]));
        assert_eq!(
            told.collect::<Vec<_>>(),
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
}
