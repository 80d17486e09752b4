//! Attachment of loaded programs to places in code: of files (uprobes) and of the kernel (kprobes,
//! tracepoints).

use std::{
    ffi::CStr,
    io,
    os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd},
};

use crate::check;

/// A place in code.
#[derive(Clone, Copy, Debug)]
pub struct ProbePlace<'a> {
    /// Number of the kernel's kind of event (`/sys/bus/event_source/devices/{uprobe,kprobe}/type`).
    pub kind: u32,
    /// Argument of the kind: 1 for a function's return; a semaphore's place in the file in the
    /// upper half.
    pub config: u64,
    /// The file, or the kernel's function.
    pub target: &'a CStr,
    /// Bytes from the beginning of the file, or of the function.
    pub offset: u64,
}

/// The second version of the structure of `perf_event_open(2)`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct EventAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    target: u64,
    offset: u64,
}

impl EventAttributes {
    /// Returns the attributes of a counter.
    pub(crate) fn of_counter(kind: u32, config: u64) -> Self {
        Self { kind, config, ..Self::default() }
    }
}

/// Attributes of a link to an event, for `bpf(2)`.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    event: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

const LINK_CREATE: libc::c_long = 28;
const PERF_EVENT: u32 = 41;
const CLOSE_ON_EXEC: libc::c_ulong = 8;
/// CPU number of events that belong to no CPU.
const ANY_CPU: u32 = 0;

/// Has a program run at a place, on all CPUs and in all processes, until the result is closed, or
/// its owner has ended. The program is told the cookie.
///
/// # Errors
/// `EACCES` without CAP_PERFMON, `ENOENT` where there is no such function or file, and what else
/// the system says.
pub fn attach_probe(program: BorrowedFd<'_>, place: ProbePlace<'_>, cookie: u64) -> io::Result<OwnedFd> {
    let attributes = EventAttributes {
        kind: place.kind,
        config: place.config,
        target: place.target.as_ptr() as u64,
        offset: place.offset,
        ..EventAttributes::default()
    };
    let event = open_event(&attributes, ANY_CPU)?;
    // The link holds the event.
    attach_program(program, &event, cookie)
}

/// An event of perf at a static tracepoint, which never samples: something to attach a program to.
///
/// `id` is what tracefs says in the tracepoint's `id`.
pub fn open_tracepoint(id: u32) -> io::Result<OwnedFd> {
    const TRACEPOINT: u32 = 2;
    const DISABLED: u64 = 1;
    let attributes = EventAttributes {
        kind: TRACEPOINT,
        config: id.into(),
        sample_period: 1,
        flags: DISABLED,
        ..EventAttributes::default()
    };
    open_event(&attributes, ANY_CPU)
}

/// A probe that counts, at an offset of a file, where the calling thread alone hits it.
pub(crate) fn open_for_this_thread(kind: u32, file: &CStr, offset: u64) -> io::Result<OwnedFd> {
    let target = file.as_ptr() as u64;
    open_event_of(&EventAttributes { kind, target, offset, ..EventAttributes::default() }, (0, -1))
}

/// Of all processes, by way of a CPU. What the attributes point to must live.
pub(crate) fn open_event(attributes: &EventAttributes, cpu: u32) -> io::Result<OwnedFd> {
    open_event_of(attributes, (-1, cpu as libc::c_int))
}

/// Of a thread (0 for the calling one) on a CPU; -1 for any. Source: `perf_event_open(2)`.
fn open_event_of(
    attributes: &EventAttributes,
    (pid, cpu): (libc::pid_t, libc::c_int),
) -> io::Result<OwnedFd> {
    let attributes = EventAttributes { size: size_of::<EventAttributes>() as u32, ..*attributes };
    let group: libc::c_int = -1;
    let call = libc::SYS_perf_event_open;
    // SAFETY: the structure and the text that it points to live throughout the call; the descriptor
    // is new.
    let event = unsafe { libc::syscall(call, &raw const attributes, pid, cpu, group, CLOSE_ON_EXEC) };
    let event = check(event as libc::c_int)?;
    // SAFETY: new, and without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(event) })
}

/// Attaches a program to the tracepoint that it was loaded for, for as long as the result is open.
///
/// Source: `bpf(2)`, `BPF_RAW_TRACEPOINT_OPEN` of a program with types; Linux 5.5.
pub fn attach_to_tracepoint(program: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    const RAW_TRACEPOINT_OPEN: libc::c_long = 17;
    // No name: the program knows its tracepoint.
    let attributes = [0_u64, program.as_raw_fd() as u64];
    let size = size_of_val(&attributes);
    // SAFETY: the structure is live and has as many bytes as the call is told; the descriptor is
    // new.
    let link = unsafe { libc::syscall(libc::SYS_bpf, RAW_TRACEPOINT_OPEN, &raw const attributes, size) };
    let link = check(link as libc::c_int)?;
    // SAFETY: new, and without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

/// Attaches a program to an event of perf, for as long as the result is open. The program is told
/// the cookie.
///
/// Source: `bpf(2)`, `BPF_LINK_CREATE`; Linux 5.15.
pub fn attach_program(program: BorrowedFd<'_>, event: &OwnedFd, cookie: u64) -> io::Result<OwnedFd> {
    let attributes = LinkAttributes {
        program: program.as_raw_fd() as u32,
        event: event.as_raw_fd() as u32,
        attach_type: PERF_EVENT,
        flags: 0,
        cookie,
    };
    let size = size_of::<LinkAttributes>();
    // SAFETY: the structure is live and has as many bytes as the call is told; the descriptor is
    // new.
    let link = unsafe { libc::syscall(libc::SYS_bpf, LINK_CREATE, &raw const attributes, size) };
    let link = check(link as libc::c_int)?;
    // SAFETY: new, and without another owner.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}
