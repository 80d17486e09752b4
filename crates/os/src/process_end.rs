//! End of a process that is watched, where it is no child of this one.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd},
        unix::process::ExitStatusExt as _,
    },
    path::Path,
    process::ExitStatus,
};

use crate::{ProcessWatch, check, process_stat::stat_field};

/// Field of `/proc/PID/stat` with the status that a zombie's parent will get. Source:
/// `proc_pid_stat(5)`.
const EXIT_CODE: usize = 52;

/// `PIDFD_GET_INFO` for the first version of its structure, and the flag by which it tells how the
/// process has ended, which kernels from 6.15 on do once its parent has waited for it. Source:
/// `include/uapi/linux/pidfd.h`.
const PIDFD_GET_INFO: libc::Ioctl = 0xC040_FF0B_u32 as libc::Ioctl;
const PIDFD_INFO_EXIT: u64 = 1 << 3;

/// The first version of the kernel's `struct pidfd_info`.
#[derive(Default)]
#[repr(C)]
struct PidfdInfo {
    mask: u64,
    cgroup: u64,
    ids: [u32; 11],
    exit_code: i32,
}

const _: () = assert!(size_of::<PidfdInfo>() == 64);

impl ProcessWatch {
    /// Returns how the process has ended; none if it runs, or that can't be known. `pid` is its id:
    /// a zombie's status is in `/proc`, which may be hidden from this user; of one whose parent has
    /// waited for it, only kernels from 6.15 on tell.
    pub fn end(&self, pid: u32) -> Option<ExitStatus> {
        if !self.has_ended() {
            return None;
        }
        known_end(self.as_fd()).or_else(|| {
            let status = stat_field(Path::new(&format!("/proc/{pid}")), EXIT_CODE);
            // If it is still a zombie, the id was its own.
            match self.send_signal(0).is_err_and(|error| error.raw_os_error() == Some(libc::ESRCH)) {
                true => known_end(self.as_fd()),
                false => status.and_then(|status| i32::try_from(status).ok()).map(ExitStatus::from_raw),
            }
        })
    }
}

/// Returns the end as the kernel tells it.
fn known_end(pidfd: BorrowedFd<'_>) -> Option<ExitStatus> {
    let mut info = PidfdInfo { mask: PIDFD_INFO_EXIT, ..PidfdInfo::default() };
    // SAFETY: the structure has the size that the request's number says, and outlives the call.
    let result = unsafe { libc::ioctl(pidfd.as_raw_fd(), PIDFD_GET_INFO, &raw mut info) };
    let asked: io::Result<_> = check(result);
    (asked.is_ok() && info.mask & PIDFD_INFO_EXIT != 0).then(|| ExitStatus::from_raw(info.exit_code))
}
