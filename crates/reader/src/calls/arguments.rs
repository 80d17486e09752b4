//! Arguments of system calls, as C writes them.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;

use tompion_ctf::decode::Value;
use tompion_ctf::metadata::Base;

use super::{escape, number};
use crate::Event;
use crate::syscall_decode::{self, SyscallDecoder};
use crate::text::value_text;

/// Text of a path that could not be read.
const UNREADABLE: &[u8] = b"\"<unreadable>\"";
/// Value from which on an argument that may be an address is shown in hexadecimal.
const MIN_ADDRESS: u64 = 1 << 16;
/// Arguments that are modes of files or masks of such.
const MODES: [&str; 3] = ["mode", "mask", "umode"];
/// Flags of `open` that make it look at its mode: `O_CREAT` and `O_TMPFILE`.
const CREATES: i64 = 0o100 | 0o20_000_000;
/// Fields in which LTTng's tracer records the address that a call was given.
const ADDRESS: [&str; 6] = ["family", "dport", "_v4addr_length", "v4addr", "_v6addr_length", "v6addr"];

/// Fields in which Tompion records its bytes.
const BYTES: &str = "sockaddr";
const BYTES_LENGTH: &str = "_sockaddr_length";
/// Arguments that are pointers to such an address.
const POINTERS: [&str; 3] = ["uservaddr", "umyaddr", "addr"];

/// Calls that return a socket's address, and the argument that points to the room for it. The next
/// argument points to its size.
const RETURNED: [(&str, &str); 5] = [
    ("accept", "upeer_sockaddr"),
    ("accept4", "upeer_sockaddr"),
    ("getpeername", "usockaddr"),
    ("getsockname", "usockaddr"),
    ("recvfrom", "addr"),
];

/// A system call.
#[derive(Clone, Copy)]
pub struct Call<'a> {
    /// Its name.
    pub name: &'a str,
    /// Decoder of its arguments, if they have one.
    pub decoder: Option<&'a SyscallDecoder>,
}

/// Entry of a call in text.
pub struct WrittenEntry {
    /// Process and name of the thread, then the call with its arguments.
    pub text: Vec<u8>,
    /// Part of the text that the address which the call returns replaces, with its size.
    returned: Option<Range<usize>>,
}

impl WrittenEntry {
    /// Writes the arguments of a call behind its bracket.
    pub fn new(event: &Event<'_>, call: Call<'_>, mut text: Vec<u8>) -> Self {
        let returned = write_arguments(event, call, &mut text);
        Self { text, returned }
    }
}

/// Writes the arguments of a call, between its brackets. Returns where the pointers to the address
/// that it returns and to its size stand.
fn write_arguments(event: &Event<'_>, call: Call<'_>, line: &mut Vec<u8>) -> Option<Range<usize>> {
    let wanted = RETURNED.iter().find(|(name, _)| *name == call.name).map(|(_, argument)| *argument);
    let (mut returned, mut is_size) = (None, false);
    let address = address(event);
    let is_created = number(event, "flags").is_none_or(|flags| flags & CREATES != 0);
    let mut separator = "";
    for (name, value) in event.payload() {
        if address.is_some() && ADDRESS.contains(&name)
            || matches!(name, BYTES | BYTES_LENGTH)
            || call.name.starts_with("open") && name == "mode" && !is_created
        {
            continue;
        }
        line.extend_from_slice(separator.as_bytes());
        separator = ", ";
        let begin = line.len();
        match &address {
            Some(address) if POINTERS.contains(&name) => escape(address.as_bytes(), line),
            _ => write_value(event, call, Argument { name, value }, line),
        }
        match &mut returned {
            _ if wanted == Some(name) => (returned, is_size) = (Some(begin..line.len()), true),
            Some(range) if std::mem::take(&mut is_size) => range.end = line.len(),
            _ => {}
        }
    }
    returned
}

/// Writes a call and its arguments, and completes them by what its return tells. A path that could
/// not be read at the entry stands in the return, as does an address that the call returns.
pub fn complete(event: &Event<'_>, entry: &WrittenEntry, line: &mut Vec<u8>) {
    let call = &*entry.text;
    if let Some((address, range)) = returned_address(event).zip(entry.returned.clone()) {
        line.extend_from_slice(call.get(..range.start).unwrap_or_default());
        escape(address.as_bytes(), line);
        line.extend_from_slice(call.get(range.end..).unwrap_or_default());
        return;
    }
    let path = event.payload().find_map(|(_, value)| match value {
        Value::Text(_) => Some(value_text(value)),
        _ => None,
    });
    let place = call.windows(UNREADABLE.len()).position(|window| window == UNREADABLE);
    match path.zip(place) {
        Some((path, place)) => {
            line.extend_from_slice(call.get(..place).unwrap_or_default());
            escape(path.as_bytes(), line);
            line.extend_from_slice(call.get(place + UNREADABLE.len()..).unwrap_or_default());
        }
        None => {
            line.extend_from_slice(call);
            write_results(event, line);
        }
    }
}

/// Writes the fields of a call's return that are not its value: LTTng's tracer records there what
/// the call wrote.
pub fn write_results(event: &Event<'_>, line: &mut Vec<u8>) {
    if let Some(address) = returned_address(event) {
        line.extend_from_slice(b", ");
        return escape(address.as_bytes(), line);
    }
    for (name, value) in event.payload().filter(|(name, _)| *name != "ret") {
        line.extend_from_slice(b", ");
        escape(name.as_bytes(), line);
        line.push(b'=');
        write_plain(value, name, line);
    }
}

/// Argument of a call.
struct Argument<'a> {
    name: &'a str,
    value: Value<'a>,
}

fn write_value(event: &Event<'_>, call: Call<'_>, argument: Argument<'_>, line: &mut Vec<u8>) {
    let Argument { name, value } = argument;
    let number = value.as_integer().and_then(|value| i64::try_from(value).ok());
    let decoded = number
        .zip(call.decoder)
        .and_then(|(number, decoder)| syscall_decode::decode(decoder, event, name, number));
    match (decoded, number) {
        (Some(decoded), _) => line.extend_from_slice(decoded.as_bytes()),
        (None, Some(number)) if MODES.contains(&name) => {
            line.extend_from_slice(mode(number).as_bytes());
        }
        (None, Some(request)) if call.name == "ioctl" && name == "cmd" => {
            line.extend_from_slice(ioctl(request as u32).as_bytes());
        }
        // Descriptors are signed in C, and some traces have them unsigned.
        (None, Some(0xffff_ffff)) if name.ends_with("fd") => line.extend_from_slice(b"-1"),
        _ if name.ends_with("fd") && value.as_integer() == Some(i128::from(u64::MAX)) => {
            line.extend_from_slice(b"-1");
        }
        _ => write_plain(value, name, line),
    }
}

/// Formats the mode of a file, or a mask of such: `0644`.
pub fn mode(mode: i64) -> String {
    format!("{:#05o}", mode as u16).replacen("0o", "0", 1)
}

/// Writes a value: a pointer in hexadecimal or as `NULL`, and others as in the text of events.
fn write_plain(value: Value<'_>, name: &str, line: &mut Vec<u8>) {
    let hexadecimal = match value {
        Value::Unsigned(number, ty) if ty.base == Base::Hexadecimal => Some(number),
        Value::Signed(number, ty) if ty.base == Base::Hexadecimal => Some(number as u64),
        Value::Unsigned(number, _) if number >= MIN_ADDRESS && may_be_address(name) => Some(number),
        _ => None,
    };
    match hexadecimal {
        Some(0) if is_pointer(name) => line.extend_from_slice(b"NULL"),
        Some(0) => line.push(b'0'),
        Some(number) => line.extend_from_slice(format!("{number:#x}").as_bytes()),
        None => escape(value_text(value).as_bytes(), line),
    }
}

/// Whether an argument that traces show in hexadecimal is a pointer, by its name. Arguments of
/// calls that the kernel did not describe (`arg0`) may be anything.
fn is_pointer(name: &str) -> bool {
    let others = ["flag", "mask", "mode", "prot", "opt", "events", "cmd", "len", "size", "off"];
    !name.starts_with("arg") && !others.iter().any(|other| name.contains(other))
}

/// Whether an argument that the kernel declares as a number may be an address.
fn may_be_address(name: &str) -> bool {
    name.starts_with("arg") || matches!(name, "start" | "addr")
}

/// Formats a request without a name by its parts: direction, type, number, size.
///
/// Source: `include/uapi/asm-generic/ioctl.h`.
fn ioctl(request: u32) -> String {
    let direction = match request >> 30 {
        0 => "_IOC_NONE",
        1 => "_IOC_WRITE",
        2 => "_IOC_READ",
        _ => "_IOC_READ|_IOC_WRITE",
    };
    let (ty, number, size) = (request >> 8 & 0xff, request & 0xff, request >> 16 & 0x3fff);
    format!("_IOC({direction}, {ty:#x}, {number:#x}, {size:#x})")
}

/// Returns a field that is an array of bytes.
fn bytes(event: &Event<'_>, name: &str) -> Option<Vec<u8>> {
    let Value::Array(elements) = event.payload().get(name)? else { return None };
    elements.map(|element| u8::try_from(element.as_integer()?).ok()).collect()
}

/// Returns the address of a socket that a call was given, if its bytes were recorded.
fn address(event: &Event<'_>) -> Option<String> {
    let bytes = |name| bytes(event, name);
    if let Some(bytes) = bytes(BYTES) {
        return socket_address(&bytes, "");
    }
    let family = number(event, "family")?;
    let port = number(event, "dport");
    let port = || port.map_or_else(|| "?".into(), |port| port.to_string());
    match family {
        2 => {
            let bytes: [u8; 4] = bytes("v4addr")?.try_into().ok()?;
            Some(format!("{{AF_INET, {}:{}}}", Ipv4Addr::from(bytes), port()))
        }
        10 => {
            let bytes: [u8; 16] = bytes("v6addr")?.try_into().ok()?;
            Some(format!("{{AF_INET6, [{}]:{}}}", Ipv6Addr::from(bytes), port()))
        }
        _ => None,
    }
}

/// Formats the address that a call returned, if its bytes were recorded, and its size:
/// `{AF_INET, 127.0.0.1:8080}, [16]`. Where the program's buffer was too small, `...` stands for
/// the rest.
fn returned_address(event: &Event<'_>) -> Option<String> {
    let bytes = bytes(event, BYTES)?;
    let (_, size) = event.payload().find(|(name, _)| !matches!(*name, "ret" | BYTES | BYTES_LENGTH))?;
    let size = size.as_integer()?;
    let rest = if size > bytes.len() as i128 { "..." } else { "" };
    let address = socket_address(&bytes, rest).or_else(|| {
        let family = bytes.first_chunk().map(|family| u16::from_le_bytes(*family));
        Some(match family {
            Some(2) => "{AF_INET, ...}".into(),
            Some(10) => "{AF_INET6, ...}".into(),
            _ => "{...}".into(),
        })
    })?;
    Some(format!("{address}, [{size}]"))
}

/// Formats the bytes of a socket's address; none for too few of them. `rest_of_name` stands
/// behind a name of which some may be missing.
///
/// Sources: `unix(7)`, `ip(7)`, `ipv6(7)`.
fn socket_address(bytes: &[u8], rest_of_name: &str) -> Option<String> {
    let (family, rest) = bytes.split_first_chunk()?;
    let port = || Some(u16::from_be_bytes(*rest.first_chunk()?));
    match u16::from_le_bytes(*family) {
        1 => Some(match rest.split_first() {
            None => "{AF_UNIX}".into(),
            // A name that is no file may have any bytes.
            Some((0, name)) => format!("{{AF_UNIX, @\"{}\"{rest_of_name}}}", name.escape_ascii()),
            Some(_) => {
                let path = rest.split(|byte| *byte == 0).next().unwrap_or_default();
                let rest_of_name = if path.len() == rest.len() { rest_of_name } else { "" };
                // A program chooses it: it must not look like the end of the argument.
                let path = String::from_utf8_lossy(path).replace('\\', "\\\\").replace('"', "\\\"");
                format!("{{AF_UNIX, \"{path}\"{rest_of_name}}}")
            }
        }),
        2 => {
            let address: [u8; 4] = *rest.get(2..)?.first_chunk()?;
            Some(format!("{{AF_INET, {}:{}}}", Ipv4Addr::from(address), port()?))
        }
        10 => {
            let address: [u8; 16] = *rest.get(6..)?.first_chunk()?;
            Some(format!("{{AF_INET6, [{}]:{}}}", Ipv6Addr::from(address), port()?))
        }
        0 => Some("{AF_UNSPEC}".into()),
        other => Some(format!("{{family {other}}}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_addresses_are_shown_as_what_they_mean() {
        let v6 = [&[10, 0, 0x1f, 0x90, 0, 0, 0, 0][..], &[0; 15], &[1, 0, 0, 0, 0]].concat();
        for (bytes, expected) in [
            (&[2, 0, 0x1f, 0x90, 127, 0, 0, 1, 0, 0][..], Some("{AF_INET, 127.0.0.1:8080}")),
            (&v6, Some("{AF_INET6, [::1]:8080}")),
            (b"\x01\0/run/x.sock\0garbage", Some("{AF_UNIX, \"/run/x.sock\"}")),
            (b"\x01\0a\"}, [16]) = 0\\\0", Some("{AF_UNIX, \"a\\\"}, [16]) = 0\\\\\"}")),
            (b"\x01\0\0abc\0\x1b", Some("{AF_UNIX, @\"abc\\x00\\x1b\"}")),
            (b"\x01\0", Some("{AF_UNIX}")),
            (b"\0\0", Some("{AF_UNSPEC}")),
            (b"\x10\0\0\0", Some("{family 16}")),
            (&v6[..20], None),
            (&[2, 0, 0, 80, 127], None),
            (&[2], None),
            (&[], None),
        ] {
            assert_eq!(socket_address(bytes, "").as_deref(), expected, "{bytes:?}");
        }
    }

    #[test]
    fn only_names_that_were_cut_are_marked() {
        for (bytes, expected) in [
            (&b"\x01\0/run/x"[..], "{AF_UNIX, \"/run/x\"...}"),
            (b"\x01\0/run/x\0", "{AF_UNIX, \"/run/x\"}"),
            (b"\x01\0\0ab", "{AF_UNIX, @\"ab\"...}"),
            (&[2, 0, 0, 80, 10, 0, 0, 1], "{AF_INET, 10.0.0.1:80}"),
        ] {
            assert_eq!(socket_address(bytes, "...").as_deref(), Some(expected));
        }
    }

    #[test]
    fn requests_without_a_name_have_their_parts() {
        assert_eq!(ioctl(0x8004_5432), "_IOC(_IOC_READ, 0x54, 0x32, 0x4)");
        assert_eq!(ioctl(0x5499), "_IOC(_IOC_NONE, 0x54, 0x99, 0x0)");
        assert_eq!(ioctl(u32::MAX), "_IOC(_IOC_READ|_IOC_WRITE, 0xff, 0xff, 0x3fff)");
    }
}
