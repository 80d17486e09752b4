//! Looks up functions of a program or library by their addresses.

use std::path::{Path, PathBuf};

use object::{
    Object, ObjectSegment, ObjectSymbol, ReadCache, SymbolFlags, SymbolKind,
    elf::{STB_GLOBAL, STB_WEAK},
};
use tompion_os::BoundedFile;

/// Maximum number of symbols read from a file.
const MAX_SYMBOLS: usize = 16 << 20;
/// Maximum number of bytes that are read of a file: another user may have made it, as large as
/// its file system allows.
const MAX_READ: u64 = 2 << 30;
/// Maximum length of a name in bytes, after and before demangling.
const MAX_NAME: usize = 4096;
/// Folder of separate debug files, named by build id.
const DEBUG_FILES: &str = "/usr/lib/debug/.build-id";
/// Page size in bytes, to which the first segment is aligned.
const PAGE: u64 = 4096;

/// Functions of a file.
#[derive(Debug)]
pub(super) struct Binary {
    /// Functions ordered by address; of those with the same address, the best name is last.
    functions: Vec<Function>,
    /// Concatenated names of the functions.
    names: String,
    /// Address in the file of the object's first byte in memory.
    first: u64,
}

/// Function; of two that begin at one address, the better is the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Function {
    address: u64,
    /// 2: global, 1: weak, 0: local or undefined.
    rank: u8,
    /// Size in bytes; 0 if unknown.
    size: u64,
    name: (u32, u32),
}

impl Binary {
    /// Reads a file and, if it is stripped, its separate debug file. Returns `None` if it is
    /// missing or has another build id; without build ids, if it has another size in memory.
    pub fn load(path: &Path, build_id: &[u8], size: u64) -> Option<Self> {
        let mut binary = Self { functions: Vec::new(), names: String::new(), first: 0 };
        let has_symbols = binary.read(path, build_id, Some(size));
        // The file may be gone while its debug file still exists.
        let stripped = debug_file(build_id).filter(|_| has_symbols != Some(true));
        let debug = stripped.and_then(|path| binary.read(&path, build_id, None));
        has_symbols.or(debug)?;
        binary.functions.sort_unstable();
        Some(binary)
    }

    /// Adds the functions of a file. Returns whether the file has all symbols, or `None` if it is
    /// the wrong file.
    fn read(&mut self, path: &Path, build_id: &[u8], size: Option<u64>) -> Option<bool> {
        // The path comes from a trace: it may name a device or a pipe.
        let file = path.is_absolute().then(|| BoundedFile::open(path, MAX_READ).ok()).flatten()?;
        let cache = ReadCache::new(file);
        let file = object::File::parse(&cache).ok()?;
        let segments = || file.segments().map(|segment| (segment.address(), segment.size()));
        let first = segments().map(|(address, _)| address).min()? / PAGE * PAGE;
        let end = segments().map(|(address, size)| address.saturating_add(size)).max()?;
        let same = match file.build_id().ok()? {
            Some(found) => found == build_id,
            None => build_id.is_empty() && size.is_none_or(|size| size == end - first),
        };
        if !same {
            return None;
        }
        self.first = first;
        let has_symbols = file.symbols().next().is_some();
        let tables = file.symbols().chain(file.dynamic_symbols().filter(|_| !has_symbols));
        for symbol in tables.take(MAX_SYMBOLS) {
            self.add(&symbol);
        }
        // The address of a library's function, when a program takes it, is that of the program's
        // own PLT entry.
        for symbol in file.dynamic_symbols().filter(|symbol| symbol.is_undefined()).take(MAX_SYMBOLS) {
            self.add(&symbol);
        }
        Some(has_symbols)
    }

    fn add<'data>(&mut self, symbol: &impl ObjectSymbol<'data>) {
        let SymbolFlags::Elf { st_info, .. } = symbol.flags() else { return };
        let name = symbol.name().unwrap_or("");
        if symbol.kind() != SymbolKind::Text
            || symbol.address() == 0
            || name.is_empty()
            || name.len() > MAX_NAME
        {
            return;
        }
        let rank = match st_info >> 4 {
            _ if symbol.is_undefined() => 0,
            STB_GLOBAL => 2,
            STB_WEAK => 1,
            _ => 0,
        };
        let (Ok(start), Ok(len)) = (u32::try_from(self.names.len()), u32::try_from(name.len())) else {
            return;
        };
        self.names.push_str(name);
        let size = if symbol.is_undefined() { 0 } else { symbol.size() };
        self.functions.push(Function { address: symbol.address(), rank, size, name: (start, len) });
    }

    /// Returns the function at this distance from the object's first byte: `compute(int)`, or
    /// `compute(int)+0x1b` inside it. A return address belongs to the preceding call, which may be
    /// the last instruction of its function.
    pub fn name(&self, distance: u64, is_return: bool) -> Option<String> {
        let located = self.first.checked_add(distance)?;
        let address = located.checked_sub(u64::from(is_return))?;
        let behind = self.functions.partition_point(|function| function.address <= address);
        // Functions are rarely nested, and bytes between two functions belong to neither.
        let candidates = self.functions.get(..behind)?.iter().rev().take(16);
        let function = candidates.into_iter().find(|function| {
            let inside = address - function.address;
            inside == 0 || inside < function.size
        })?;
        let (start, len) = (function.name.0 as usize, function.name.1 as usize);
        let name = readable(self.names.get(start..start + len)?);
        Some(match located - function.address {
            0 => name,
            inside => format!("{name}+{inside:#x}"),
        })
    }
}

/// Returns the path of a build's debug file.
fn debug_file(build_id: &[u8]) -> Option<PathBuf> {
    let digits: String = build_id.iter().map(|byte| format!("{byte:02x}")).collect();
    let (folder, file) = digits.split_at_checked(2).filter(|(_, file)| !file.is_empty())?;
    Some(Path::new(DEBUG_FILES).join(folder).join(format!("{file}.debug")))
}

/// Demangles a symbol.
fn readable(symbol: &str) -> String {
    // The demanglers also accept names without a prefix: they read `f` as `float`.
    if !symbol.starts_with("_Z") && !symbol.starts_with("_R") {
        return limited(symbol);
    }
    if let Ok(name) = rustc_demangle::try_demangle(symbol) {
        return limited(&format!("{name:#}"));
    }
    let name = cpp_demangle::Symbol::new(symbol).ok().and_then(|name| name.demangle().ok());
    limited(name.as_deref().unwrap_or(symbol))
}

/// Limits a name: a hostile symbol can expand without end, and a name must not span several lines.
fn limited(name: &str) -> String {
    name.chars().filter(|character| !character.is_control()).take(MAX_NAME).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn symbols_become_what_was_written() {
        for (symbol, name) in [
            ("main", "main"),
            ("f", "f"),
            ("i", "i"),
            ("RNvCs1_3foo3bar", "RNvCs1_3foo3bar"),
            ("ZN3foo3barE", "ZN3foo3barE"),
            ("_Z7computei", "compute(int)"),
            ("_ZN3geo5PointC2Eii", "geo::Point::Point(int, int)"),
            ("_ZN4core3fmt5write17h0123456789abcdefE", "core::fmt::write"),
            ("_RNvCskwGfYPst2Cb_3foo3bar", "foo::bar"),
            ("_Znonsense", "_Znonsense"),
            ("a\nb\x1b[31m", "ab[31m"),
        ] {
            assert_eq!(readable(symbol), name);
        }
    }

    #[test]
    fn hostile_symbols_end() {
        let deep = format!("_Z{}i", "P".repeat(MAX_NAME));
        assert!(readable(&deep).chars().count() <= MAX_NAME);
        // Each step refers to its predecessor twice.
        let doubling: String = (0..30).map(|step| format!("S{step:X}_")).collect();
        assert!(readable(&format!("_Z1f{doubling}")).chars().count() <= MAX_NAME);
    }

    fn binary(functions: &[(u64, u8, u64, &str)]) -> Binary {
        let mut binary = Binary { functions: Vec::new(), names: String::new(), first: 0x40_0000 };
        for &(address, rank, size, name) in functions {
            let start = binary.names.len() as u32;
            binary.names.push_str(name);
            binary.functions.push(Function { address, rank, size, name: (start, name.len() as u32) });
        }
        binary.functions.sort_unstable();
        binary
    }

    #[test]
    fn an_address_belongs_to_the_function_around_it() {
        let binary = binary(&[
            (0x40_1000, 0, 0x20, "local"),
            (0x40_1000, 2, 0x20, "global"),
            (0x40_1040, 2, 0x100, "outer"),
            (0x40_1060, 0, 0x10, "inner"),
            (0x40_2000, 0, 0, "unsized"),
        ]);
        let name = |address: u64| binary.name(address - 0x40_0000, false);
        assert_eq!(name(0x40_1000).as_deref(), Some("global"));
        assert_eq!(name(0x40_101f).as_deref(), Some("global+0x1f"));
        assert_eq!(name(0x40_1020), None);
        assert_eq!(name(0x40_1064).as_deref(), Some("inner+0x4"));
        assert_eq!(name(0x40_1070).as_deref(), Some("outer+0x30"));
        assert_eq!(name(0x40_2000).as_deref(), Some("unsized"));
        assert_eq!(name(0x40_2001), None);
        assert_eq!(binary.name(0x1020, true).as_deref(), Some("global+0x20"));
        assert_eq!(binary.name(u64::MAX, false), None);
        assert_eq!(binary.name(0, false), None);
    }

    #[test]
    fn this_program_knows_itself() {
        let path = std::env::current_exe().unwrap();
        let bytes = std::fs::read(&path).unwrap();
        let file = object::File::parse(&*bytes).unwrap();
        let build_id = file.build_id().unwrap().unwrap_or(&[]).to_vec();
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok("main")).unwrap();
        let found = Binary::load(&path, &build_id, 0);
        let Some(binary) = found.filter(|_| !build_id.is_empty()) else { return };
        assert_eq!(binary.name(symbol.address() - binary.first, false).as_deref(), Some("main"));
        assert!(Binary::load(&path, &build_id[1..], 0).is_none());
        assert!(Binary::load(Path::new("/dev/zero"), &build_id, 0).is_none());
        assert!(Binary::load(Path::new("/nowhere"), &build_id, 0).is_none());
    }
}
