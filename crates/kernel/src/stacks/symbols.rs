//! Functions of the kernel by their addresses.

use std::{
    fs::File,
    io::{BufRead as _, BufReader},
};

/// Source: `proc(5)`. To those who may not see addresses, all are 0.
const SYMBOLS: &str = "/proc/kallsyms";
/// The list tells no sizes. An address farther behind a function's beginning belongs to no listed
/// function.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// The functions of the kernel, of its modules and of BPF programs, as they were when they were
/// read.
#[derive(Clone, Debug, Default)]
pub struct KernelSymbols {
    /// Addresses, in their order, and where the names stand.
    functions: Vec<(u64, u32, u32)>,
    /// `name` or `name [module]`, one behind the other.
    names: String,
}

impl KernelSymbols {
    /// Those of the running kernel; none for those who may not see addresses.
    pub fn of_this_kernel() -> Self {
        Self::of_lines(lines())
    }

    /// Those of the running kernel that have one of these addresses, for [`KernelSymbols::name`].
    /// All together take some 10 MB, these next to nothing.
    pub fn around(addresses: &[u64]) -> Self {
        Self::of_lines_around(lines(), addresses)
    }

    /// Those of the running kernel that have one of these names, for [`KernelSymbols::address`].
    pub fn named(names: &[&str]) -> Self {
        Self::of_lines_named(lines(), names)
    }

    fn of_lines_named(lines: impl Iterator<Item = impl AsRef<str>>, names: &[&str]) -> Self {
        let is_one = |line: &str| function(line).is_some_and(|(_, name, _)| names.contains(&name));
        Self::of_lines(lines.filter(|line| is_one(line.as_ref())))
    }

    fn of_lines_around(lines: impl Iterator<Item = impl AsRef<str>>, addresses: &[u64]) -> Self {
        let mut bounds: Vec<u64> =
            addresses.iter().flat_map(|address| [*address, address.saturating_sub(1)]).collect();
        bounds.sort_unstable();
        bounds.dedup();
        // Up to each bound, and behind the one before it, the function that begins last.
        let mut last: Vec<(u64, String)> = vec![(0, String::new()); bounds.len()];
        for line in lines {
            let Some((address, ..)) = function(line.as_ref()) else { continue };
            let place = bounds.partition_point(|bound| *bound < address);
            if let Some(found) = last.get_mut(place).filter(|found| found.0 < address) {
                *found = (address, line.as_ref().to_owned());
            }
        }
        Self::of_lines(last.into_iter().map(|(_, line)| line))
    }

    #[cfg(test)]
    pub(super) fn parse(text: &str) -> Self {
        Self::of_lines(text.lines())
    }

    fn of_lines(lines: impl Iterator<Item = impl AsRef<str>>) -> Self {
        let mut symbols = Self::default();
        for line in lines {
            let Some((address, name, module)) = function(line.as_ref()) else { continue };
            let begin = symbols.names.len() as u32;
            symbols.names.push_str(name);
            let length = symbols.names.len() as u32 - begin;
            if let Some(module) = module {
                symbols.names.push(' ');
                symbols.names.push_str(module);
            }
            symbols.functions.push((address, begin, length));
        }
        // Of several names of one function the first in the list is the one that is found.
        symbols.functions.sort_unstable();
        symbols.functions.dedup_by_key(|function| function.0);
        symbols
    }

    /// Address of the first function of a name.
    pub fn address(&self, name: &str) -> Option<u64> {
        let has_name = |(_, at, length): &&(u64, u32, u32)| {
            self.names.get(*at as usize..(at + length) as usize) == Some(name)
        };
        self.functions.iter().find(has_name).map(|function| function.0)
    }

    /// The function that has an address: `schedule+0x2c`, `ext4_map_blocks+0x1f0 [ext4]`. An
    /// address to which a function returns belongs to the call before it, which may be the last
    /// instruction of the function.
    pub fn name(&self, address: u64, is_return: bool) -> Option<String> {
        let inside = address.checked_sub(u64::from(is_return))?;
        let behind = self.functions.partition_point(|function| function.0 <= inside);
        let (begin, at, length) = *self.functions.get(behind.checked_sub(1)?)?;
        if inside - begin >= MAX_FUNCTION_BYTES {
            return None;
        }
        let name = self.names.get(at as usize..(at + length) as usize)?;
        let rest = self.names.get((at + length) as usize..)?;
        let module = rest.strip_prefix(" [").and_then(|rest| rest.split_once(']')).map(|(module, _)| module);
        let module = module.map(|module| format!(" [{module}]")).unwrap_or_default();
        Some(format!("{name}+{:#x}{module}", address - begin))
    }
}

fn lines() -> impl Iterator<Item = String> {
    let lines = File::open(SYMBOLS).map(|file| BufReader::new(file).lines());
    lines.into_iter().flatten().map_while(Result::ok)
}

/// A line of the list: where a function begins, its name, and the module's in brackets.
fn function(line: &str) -> Option<(u64, &str, Option<&str>)> {
    let mut words = line.split_ascii_whitespace();
    let (address, kind, name) = (words.next()?, words.next()?, words.next()?);
    let address = u64::from_str_radix(address, 16).ok()?;
    (address != 0 && matches!(kind, "t" | "T" | "w" | "W")).then(|| (address, name, words.next()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "ffffffff81000100 T second\nffffffff81000000 t first\nffffffff81000000 T alias\n\
        ffffffff81000200 D data\nffffffffc0000000 t in_module\t[ext4]\nffffffffc0000100 t next\t[ext4]\n\
        nonsense\n0000000000000000 T hidden\n";

    #[test]
    fn those_around_addresses_are_named_as_all_are() {
        let all = KernelSymbols::parse(LIST);
        let addresses = [0xffff_ffff_c000_0010, 0xffff_ffff_8100_0100, 0xffff_ffff_a000_0000, 0, 5, u64::MAX];
        let some = KernelSymbols::of_lines_around(LIST.lines(), &addresses);
        for address in addresses {
            for is_return in [false, true] {
                assert_eq!(some.name(address, is_return), all.name(address, is_return), "{address:#x}");
            }
        }
        assert_eq!(some.address("next"), Some(0xffff_ffff_c000_0100), "the last one before the end");
        assert_eq!(KernelSymbols::of_lines_around(LIST.lines(), &[]).functions.len(), 0);
    }

    #[test]
    fn those_of_some_names_have_their_addresses() {
        let some = KernelSymbols::of_lines_named(LIST.lines(), &["second", "next", "data", "hidden", "fir"]);
        let addresses = ["second", "next", "data", "hidden", "fir", "first"].map(|name| some.address(name));
        let (second, next) = (Some(0xffff_ffff_8100_0100), Some(0xffff_ffff_c000_0100));
        assert_eq!(addresses, [second, next, None, None, None, None]);
    }

    #[test]
    fn functions_are_found_by_what_lies_in_them() {
        let symbols = KernelSymbols::parse(LIST);
        let name = |address, is_return| symbols.name(address, is_return);
        assert_eq!(name(0xffff_ffff_8100_0000, false).as_deref(), Some("first+0x0"));
        assert_eq!(name(0xffff_ffff_8100_0100, false).as_deref(), Some("second+0x0"));
        assert_eq!(name(0xffff_ffff_8100_0100, true).as_deref(), Some("first+0x100"));
        assert_eq!(name(0xffff_ffff_8100_0210, false).as_deref(), Some("second+0x110"));
        assert_eq!(name(0xffff_ffff_c000_0010, true).as_deref(), Some("in_module+0x10 [ext4]"));
        assert_eq!(name(0xffff_ffff_c000_0110, true).as_deref(), Some("next+0x10 [ext4]"));
        assert_eq!((name(0xffff_ffff_a000_0000, false), name(0, true), name(5, false)), (None, None, None));
        assert_eq!(KernelSymbols::default().name(5, false), None);
    }
}
