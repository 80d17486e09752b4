//! System calls: their numbers, names and arguments.
//!
//! Numbers are a table of ours for each architecture. Arguments are what the running kernel says in
//! tracefs (`events/syscalls/sys_enter_*/format`); where it doesn't, they are six numbers.

#[cfg(target_arch = "aarch64")]
mod aarch64;
mod common;
#[cfg(not(target_arch = "aarch64"))]
mod x86_64;

use std::{collections::BTreeMap, fs};

#[cfg(target_arch = "aarch64")]
use aarch64::NAMES;
use tompion_os::FileRights;
use tompion_schema::{Integer, Type};
#[cfg(not(target_arch = "aarch64"))]
use x86_64::NAMES;

use crate::tracepoints::events_folder;

/// Most arguments of a call.
pub const MAX_ARGUMENTS: usize = 6;
/// Most arguments of a call that are recorded as text.
pub const MAX_PATHS: usize = 2;
/// Name of calls whose number is unknown.
pub const UNKNOWN: &str = "unknown";

/// Facts that the programs have about a call, in one word (`src/bpf/syscalls.h`).
const REPLACES_MEMORY: u32 = 1 << 8;
const WANT_ENTRY: u32 = 1 << 9;
const WANT_EXIT: u32 = 1 << 10;
const ADDRESS_SHIFT: u32 = 11;
const RETURNED_ADDRESS_SHIFT: u32 = 14;
/// Calls that get a socket's address, and that argument's name.
const WITH_ADDRESS: [(&str, &str); 3] = [("connect", "uservaddr"), ("bind", "umyaddr"), ("sendto", "addr")];
/// Calls that return a socket's address, and that argument's name. A pointer to its size follows.
const RETURN_ADDRESS: [(&str, &str); 5] = [
    ("accept", "upeer_sockaddr"),
    ("accept4", "upeer_sockaddr"),
    ("getpeername", "usockaddr"),
    ("getsockname", "usockaddr"),
    ("recvfrom", "addr"),
];
/// Entries of the programs' table; the last one is for all other numbers.
pub const TABLE: u32 = 1024;

/// Argument of a system call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Argument {
    /// Its name in the kernel.
    pub name: String,
    /// Type of the argument.
    pub ty: Type,
}

impl Argument {
    /// Whether it is recorded as text.
    pub fn is_path(&self) -> bool {
        self.ty == Type::String
    }
}

/// System call and its arguments.
#[derive(Clone, Debug)]
struct Call {
    name: &'static str,
    arguments: Vec<Argument>,
    /// Argument, from 0, that is a socket's address.
    address: Option<usize>,
    /// Argument, from 0, that points to the room for an address that the call returns.
    returned_address: Option<usize>,
}

impl Call {
    fn new(name: &'static str, arguments: Vec<Argument>) -> Self {
        let place = |table: &[(&str, &str)]| {
            let (_, wanted) = table.iter().find(|(call, _)| *call == name)?;
            arguments.iter().position(|argument| argument.name == *wanted)
        };
        let (address, returned_address) = (place(&WITH_ADDRESS), place(&RETURN_ADDRESS));
        Self { name, arguments, address, returned_address }
    }
}

/// The calls of this machine.
#[derive(Clone, Debug)]
pub struct Calls {
    known: BTreeMap<u32, Call>,
    /// Arguments of calls without a description.
    raw: Vec<Argument>,
}

impl Calls {
    /// All calls, with what the running kernel says of their arguments.
    pub fn of_this_kernel() -> Self {
        let folder = events_folder();
        let _rights = FileRights::of_the_process().ok();
        Self::new(|name| fs::read_to_string(folder?.join(format!("syscalls/sys_enter_{name}/format"))).ok())
    }

    /// All calls, with nothing known of their arguments.
    pub fn without_formats() -> Self {
        Self::new(|_| None)
    }

    fn new(format: impl Fn(&str) -> Option<String>) -> Self {
        let raw: Vec<Argument> = (0..MAX_ARGUMENTS)
            .map(|index| Argument { name: format!("arg{index}"), ty: Type::Integer(Integer::hex(64)) })
            .collect();
        let call = |name| {
            let arguments = format(name).map_or_else(|| raw.clone(), |format| arguments(name, &format));
            Call::new(name, arguments)
        };
        let names = NAMES.iter().chain(common::NAMES);
        Self { known: names.map(|&(number, name)| (number, call(name))).collect(), raw }
    }

    /// The numbers of all known calls, and the one that stands for all others.
    pub fn numbers(&self) -> impl Iterator<Item = u32> + '_ {
        self.known.keys().copied().chain([TABLE - 1])
    }

    /// The call's name in the kernel.
    pub fn name(&self, number: u32) -> &'static str {
        self.known.get(&number).map_or(UNKNOWN, |call| call.name)
    }

    /// Name of an event of the call; `kind` is `entry` or `exit`.
    pub fn event_name(&self, kind: &str, number: u32) -> String {
        format!("syscall_{kind}_{}", self.name(number))
    }

    /// Whether there is such a call.
    pub fn knows(&self, number: u32) -> bool {
        self.known.contains_key(&number)
    }

    /// The call's arguments.
    pub fn arguments(&self, number: u32) -> &[Argument] {
        self.known.get(&number).map_or(&self.raw, |call| &call.arguments)
    }

    /// Returns which argument, from 0, is a socket's address whose bytes are recorded.
    pub fn address(&self, number: u32) -> Option<usize> {
        self.known.get(&number)?.address
    }

    /// Returns which argument, from 0, points to the room for a socket's address that is recorded
    /// when the call returns.
    pub fn returned_address(&self, number: u32) -> Option<usize> {
        self.known.get(&number)?.returned_address
    }

    /// Facts about the call for the programs.
    pub fn word(&self, number: u32, entry: bool, exit: bool) -> u32 {
        let mut paths = self.arguments(number).iter().zip(1u32..).filter(|(argument, _)| argument.is_path());
        let mut place = || paths.next().map_or(0, |(_, place)| place);
        let (first, second) = (place(), place());
        let replaces = matches!(self.name(number), "execve" | "execveat");
        let flags = [(replaces, REPLACES_MEMORY), (entry, WANT_ENTRY), (exit, WANT_EXIT)];
        let flags = flags.into_iter().filter(|(is, _)| *is).fold(0, |bits, (_, bit)| bits | bit);
        let from_one = |place: Option<usize>| place.map_or(0, |place| place as u32 + 1);
        let address = from_one(self.address(number));
        let returned = from_one(self.returned_address(number).filter(|_| exit));
        first | second << 4 | address << ADDRESS_SHIFT | returned << RETURNED_ADDRESS_SHIFT | flags
    }
}

/// Reads the lines behind the call's number: `field:const char * filename; offset:24; size:8;
/// signed:0;`, with tabs.
fn arguments(call: &str, format: &str) -> Vec<Argument> {
    let declarations = format
        .lines()
        .filter_map(|line| line.trim().strip_prefix("field:")?.split(';').next())
        .skip_while(|declaration| !declaration.ends_with("__syscall_nr"))
        .skip(1)
        .take(MAX_ARGUMENTS);
    let mut paths = 0;
    let mut list = Vec::new();
    for declaration in declarations {
        let Some((ty, name)) = declaration.rsplit_once(' ') else { continue };
        let ty = type_of(call, ty, name, list.len(), &mut paths);
        list.push(Argument { name: name.into(), ty });
    }
    list
}

/// The type of an argument from its declaration in C.
fn type_of(call: &str, ty: &str, name: &str, place: usize, paths: &mut usize) -> Type {
    if is_path(call, ty, name) && *paths < MAX_PATHS && place < MAX_ARGUMENTS - 1 {
        *paths += 1;
        return Type::String;
    }
    let plain = ty.replace("const", "").trim().to_owned();
    let is_address = name.contains("addr") && !name.contains("len");
    let is_bits = name.contains("flags") || is_address || name == "mask";
    let integer = match &*plain {
        _ if plain.ends_with('*') => Integer::hex(64),
        "int" | "s32" | "pid_t" | "key_t" | "timer_t" | "mqd_t" | "clockid_t" | "key_serial_t" | "rwf_t" => {
            Integer::signed(32)
        }
        "unsigned int" | "unsigned" | "u32" | "__u32" | "uid_t" | "gid_t" | "qid_t" => Integer::unsigned(32),
        "umode_t" => Integer::unsigned(16),
        "size_t" | "unsigned long" | "u64" | "__u64" | "aio_context_t" => Integer::unsigned(64),
        "long" | "loff_t" | "off_t" | "s64" => Integer::signed(64),
        enumeration if enumeration.starts_with("enum ") => Integer::signed(32),
        _ => Integer::hex(64),
    };
    Type::Integer(if is_bits { Integer::hex(integer.bits) } else { integer })
}

/// Whether an argument is a text that ends with a NUL and is there when the call begins.
fn is_path(call: &str, ty: &str, name: &str) -> bool {
    match ty.trim_end() {
        "const char *" => name != "buf",
        "char *" => match name {
            "dev_name" | "dir_name" | "type" | "special" => true,
            "name" => call == "umount",
            _ => false,
        },
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPENAT: &str = "name: sys_enter_openat\nID: 700\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:int __syscall_nr;\toffset:8;\tsize:4;\tsigned:1;\n\
        \tfield:int dfd;\toffset:16;\tsize:8;\tsigned:0;\n\
        \tfield:const char * filename;\toffset:24;\tsize:8;\tsigned:0;\n\
        \tfield:int flags;\toffset:32;\tsize:8;\tsigned:0;\n\
        \tfield:umode_t mode;\toffset:40;\tsize:8;\tsigned:0;\n\nprint fmt: \"dfd: 0x%08lx\"\n";

    #[test]
    fn arguments_are_read_from_the_kernel_s_description() {
        let found = arguments("openat", OPENAT);
        let shown: Vec<String> = found.iter().map(|it| format!("{} {}", it.ty, it.name)).collect();
        assert_eq!(shown, ["i32 dfd", "str filename", "x32 flags", "u16 mode"]);
    }

    #[test]
    fn the_programs_learn_where_paths_are() {
        let calls = Calls::new(|name| (name == "openat").then(|| OPENAT.into()));
        let openat = calls.numbers().find(|number| calls.name(*number) == "openat").unwrap();
        assert_eq!(calls.word(openat, true, false), 2 | WANT_ENTRY);
        let execve = calls.numbers().find(|number| calls.name(*number) == "execve").unwrap();
        assert_eq!(calls.word(execve, false, true), REPLACES_MEMORY | WANT_EXIT);
        assert_eq!(calls.event_name("exit", 1_000_000), "syscall_exit_unknown");
    }

    #[test]
    fn the_programs_learn_where_addresses_are() {
        let format =
            OPENAT.replace("int dfd", "int fd").replace("const char * filename", "struct sockaddr * umyaddr");
        let calls = Calls::new(|name| (name == "bind").then(|| format.clone()));
        let number = |wanted| calls.numbers().find(|number| calls.name(*number) == wanted).unwrap();
        assert_eq!(calls.address(number("bind")), Some(1));
        assert_eq!(calls.word(number("bind"), true, false), 2 << ADDRESS_SHIFT | WANT_ENTRY);
        // Without a description, it is unknown.
        assert_eq!(calls.address(number("connect")), None);
    }

    #[test]
    fn the_programs_learn_where_addresses_are_returned() {
        let format = OPENAT.replace("const char * filename", "struct sockaddr * upeer_sockaddr");
        let calls = Calls::new(|name| (name == "accept4").then(|| format.clone()));
        let number = |wanted| calls.numbers().find(|number| calls.name(*number) == wanted).unwrap();
        let place = 2 << RETURNED_ADDRESS_SHIFT;
        assert_eq!(calls.word(number("accept4"), false, true), place | WANT_EXIT);
        // Only an exit has it.
        assert_eq!(calls.word(number("accept4"), true, false), WANT_ENTRY);
        assert_eq!(calls.returned_address(number("accept")), None);
    }

    #[test]
    fn what_writes_is_no_path() {
        let mut paths = 0;
        assert_ne!(type_of("write", "const char *", "buf", 1, &mut paths), Type::String);
        assert_ne!(type_of("getcwd", "char *", "buf", 0, &mut paths), Type::String);
        assert_eq!(type_of("umount", "char *", "name", 0, &mut paths), Type::String);
        // Nor is a length an address.
        let length = type_of("bind", "int", "addrlen", 2, &mut paths);
        assert_eq!(length, Type::Integer(Integer::signed(32)));
    }
}
