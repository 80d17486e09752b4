//! Run-time check that the kernel's uprobes leave the red zone of probed functions alone.
//!
//! The x86-64 ABI gives a function the 128 bytes below its stack pointer. Kernels since Linux 6.18
//! replace a 5-byte nop by a `call` once a uprobe there was hit. The call pushes its return address
//! into those bytes and corrupts the probed program. Fixes step over the red zone and are
//! backported, so the version proves nothing. A probed function of our own that keeps data there
//! does.

use std::{
    ffi::CStr,
    fs, io,
    os::{
        fd::{AsRawFd, OwnedFd},
        unix::fs::MetadataExt,
    },
    sync::OnceLock,
};

use crate::{check, probe};

/// Number of hits. The kernels in question replace the nop at the first one.
const HITS: u64 = 16;
/// File with this code in it.
const OWN_FILE: &CStr = c"/proc/self/exe";

/// Returns whether a probed function keeps what it has put into its red zone. Checks once per
/// process; true on processors without a red zone that a probe could damage.
///
/// # Errors
/// A line with the reason why it could not be checked, such as missing rights to probe.
pub fn probes_keep_red_zone() -> Result<bool, String> {
    static VERDICT: OnceLock<Result<bool, String>> = OnceLock::new();
    VERDICT.get_or_init(|| check_with(&open_probe).map_err(|error| error.to_string())).clone()
}

/// Hits a probe that `open` puts at an offset of the file.
fn check_with(open: &dyn Fn(u64) -> io::Result<OwnedFd>) -> io::Result<bool> {
    if !cfg!(target_arch = "x86_64") {
        return Ok(true);
    }
    let (intact, nop) = use_red_zone(1);
    if !intact {
        return Err(io::Error::other("another tool probes this program"));
    }
    let probe = open(file_offset(nop)?)?;
    let intact = (0..HITS).fold(true, |intact, number| use_red_zone(number).0 & intact);
    if hits(&probe)? != HITS {
        return Err(io::Error::other("the probe that tries it was not hit"));
    }
    Ok(intact)
}

/// Opens a probe in our own file that counts the calling thread's hits.
fn open_probe(offset: u64) -> io::Result<OwnedFd> {
    let kind = fs::read_to_string("/sys/bus/event_source/devices/uprobe/type")?;
    let kind = kind.trim().parse().map_err(io::Error::other)?;
    probe::open_for_this_thread(kind, OWN_FILE, offset)
}

/// Returns how often a probe was hit.
fn hits(probe: &OwnedFd) -> io::Result<u64> {
    let mut bytes = [0u8; 8];
    // SAFETY: the bytes are live and writable, and as many as the call is told; the descriptor is
    // open.
    let read = unsafe { libc::read(probe.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len()) };
    check(read as libc::c_int)?;
    Ok(u64::from_ne_bytes(bytes))
}

/// Returns the offset of a code address in our own file.
fn file_offset(address: usize) -> io::Result<u64> {
    let own = fs::metadata("/proc/self/exe")?.ino();
    let maps = fs::read_to_string("/proc/self/maps")?;
    let offset_in = |line: &str| {
        // `55d0c0000000-55d0c0001000 r-xp 00002000 08:01 1234   /usr/bin/tompion`, see proc(5).
        let mut words = line.split_ascii_whitespace();
        let (begin, end) = words.next()?.split_once('-')?;
        let number = |digits| usize::from_str_radix(digits, 16).ok();
        let (begin, end, offset) = (number(begin)?, number(end)?, number(words.nth(1)?)?);
        let inode: u64 = words.nth(1)?.parse().ok()?;
        ((begin..end).contains(&address) && inode == own).then(|| (offset + (address - begin)) as u64)
    };
    maps.lines()
        .find_map(offset_in)
        .ok_or_else(|| io::Error::other("this code is not in the file of its program"))
}

/// Stores numbers in the red zone, passes a 5-byte nop, and returns whether they are unchanged,
/// with the nop's address.
#[inline(never)]
fn use_red_zone(value: u64) -> (bool, usize) {
    #[cfg(target_arch = "x86_64")]
    {
        let (changed, nop): (u64, usize);
        // SAFETY: stores to the 128 bytes below the stack pointer, where the compiler keeps nothing
        // across a block without the option `nostack`; nothing else is touched.
        unsafe {
            core::arch::asm!(
                "mov [rsp - 8], {value}",
                "mov [rsp - 16], {value}",
                "mov [rsp - 64], {value}",
                "mov [rsp - 128], {value}",
                "lea {nop}, [rip + 72f]",
                // In one page, so that the kernel may replace it.
                ".balign 8",
                "72: .byte 0x0f, 0x1f, 0x44, 0x00, 0x00",
                "mov {changed}, [rsp - 8]",
                "xor {changed}, {value}",
                "mov {scratch}, [rsp - 16]",
                "xor {scratch}, {value}",
                "or {changed}, {scratch}",
                "mov {scratch}, [rsp - 64]",
                "xor {scratch}, {value}",
                "or {changed}, {scratch}",
                "mov {scratch}, [rsp - 128]",
                "xor {scratch}, {value}",
                "or {changed}, {scratch}",
                value = in(reg) value,
                changed = out(reg) changed,
                scratch = out(reg) _,
                nop = out(reg) nop,
            );
        }
        (changed == 0, nop)
    }
    #[cfg(not(target_arch = "x86_64"))]
    (value != u64::MAX, 0)
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use super::*;

    #[test]
    fn without_a_probe_the_zone_is_whole_and_the_nop_is_found_in_the_file() {
        let (intact, nop) = use_red_zone(0x0123_4567_89ab_cdef);
        assert!(intact);
        let file = fs::read("/proc/self/exe").unwrap();
        assert_eq!(file[file_offset(nop).unwrap() as usize..][..5], [0x0f, 0x1f, 0x44, 0, 0]);
        assert!(file_offset(0).is_err());
    }

    #[test]
    fn a_probe_that_is_nowhere_is_no_verdict() {
        let elsewhere = |_| open_probe(file_offset(file_offset as *const () as usize)?);
        match check_with(&elsewhere) {
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                eprintln!("SKIPPED, no right to probe: {error}");
            }
            verdict => assert!(verdict.is_err(), "{verdict:?}"),
        }
    }
}
