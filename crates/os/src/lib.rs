//! The operating system, as far as Tompion needs it. The sole caller of libc.
//!
//! Everything here is a thin, safe face of a system call or of a register: it decides nothing.
//! Memory that another process can change is only reached through [`SharedMap`], whose accesses are
//! checked and atomic or volatile, so that callers need no `unsafe`.

mod affinity;
mod beneath;
mod bpf;
mod capabilities;
mod clock;
mod counter;
mod cpu_time;
mod deferred_close;
mod descriptors;
mod dir_handle;
mod environment;
mod fp_env;
mod futex;
mod host;
mod interposition;
mod interruption;
mod lock;
mod memory;
mod mounts;
mod namespace;
mod periodic;
mod plugin;
mod probe;
mod process;
mod process_end;
mod process_stat;
mod processor;
mod realtime;
mod red_zone;
mod regular_file;
mod rseq_check;
mod sanitizer;
mod sigbus_guard;
pub mod signal;
mod socket;
mod socket_folder;
mod sparse;
mod spawn_detached;
mod terminal;
mod thread;
mod unused_memory;
mod user;

pub use affinity::{affinity, allowed_cpus, begin_in_groups, set_affinity};
pub use bpf::{bpf_map_id, freeze_bpf_map};
pub use capabilities::{Capability, confine};
pub use clock::{
    COUNTER_NAME, ClockPair, boottime_ns, monotonic_ns, monotonic_ns_without_tsc, realtime_ns, sample_clocks,
    tsc, tsc_is_usable, tsc_state,
};
pub use counter::Counter;
pub use cpu_time::cpu_time;
pub use deferred_close::{close_in_background, close_in_parallel};
pub use descriptors::{hand_down, take_inherited, take_own_table};
pub use dir_handle::{DirHandle, is_private, write_file};
pub use environment::{environment_variable, put_into_environment};
pub use fp_env::with_default_fp_env;
pub use futex::{futex_wait, futex_wake_all, futex_wake_one};
pub use host::{host_name, user_folder};
pub use interposition::{fail_with_enosys, has_other_definition, libc_clone, next_libc_function};
pub use interruption::{is_marked, mark, marks_work};
pub use lock::{Lock, is_unlocked, try_lock, try_lock_directory};
pub use memory::{Retired, SharedMap, create_memfd, open_private_page, populate, reserve};
pub use mounts::{mount, mount_detached};
pub use namespace::{
    effective_user, failed_for_threads, innermost_pid, is_one_user, never_unload, object_of, pid_namespace,
    pid_namespace_of, set_namespace, steady_user, thread_exists, unshare,
};
pub use periodic::{SignalTimer, TimerDescriptor, futex_wait_until, sleep_until};
pub use plugin::LoopEvent;
pub use probe::{ProbePlace, attach_probe, attach_program, attach_to_tracepoint, open_tracepoint};
pub use process::{
    FileLimit, Inheritance, Interest, Poller, ProcessWatch, Signals, at_exit, end_by_signal, executable_of,
    file_limit, find_on_path, has_locked_memory, ignore_until_exec, is_privileged_start, kill, kill_group,
    limit_command, name_of, on_fork, raise_file_limit, replace_standard_error,
};
pub use process_stat::{start_ticks, stat_field};
pub use processor::{
    Processor, cpu_by_rdpid, cpu_or_thread, exchange_pair, processor, tsc_and_cpu, tsc_in_order,
};
pub use realtime::{
    ThreadUsage, lock_memory, run_deadline, run_fifo, run_round_robin, thread_cpu_ns, thread_usage,
    tsc_in_place,
};
pub use red_zone::probes_keep_red_zone;
pub use regular_file::{BoundedFile, open_regular};
pub use rseq_check::{Disturbance, RseqVerdict, rseq_verdict};
pub use sanitizer::{note_acquire, note_release};
pub use socket::{
    Heard, Identity, Listener, MAX_SOCKET_PATH, PacketSocket, Peer, PeerGroups, Received, peer_groups_of,
    peer_of, wait_readable,
};
pub use socket_folder::{FolderList, list_folder};
pub use sparse::{data_ranges, file_size};
pub use spawn_detached::{READY_DESCRIPTOR, Ready, report_ready, spawn_detached};
pub use terminal::terminal_size;
pub use thread::{
    InterruptionBlock, RseqArea, TidOffset, ask_for_short_slices, barrier_all_sections, current_cpu, gettid,
    is_main_thread, let_faults_come, online_cpus, possible_cpus, prefer_this_thread, prepare_section_barrier,
    rseq_area, spawn_background, thread_count, thread_name, thread_pointer, tid_from_thread_block,
    tid_offset,
};
pub use unused_memory::release_unused_memory;
pub use user::{
    FileRights, GROUPS_VARIABLE, User, act_as_invoking_user, file_user, group_named,
    run_with_rights_of_process, user_named, users_of,
};

/// The last system call's error.
pub(crate) fn last_error() -> std::io::Error {
    std::io::Error::last_os_error()
}

/// Runs something that may change `errno`, and puts it back.
pub fn keeping_errno<T>(body: impl FnOnce() -> T) -> T {
    // SAFETY: the address of the calling thread's own `errno`, valid as long as the thread.
    let place = unsafe { libc::__errno_location() };
    // SAFETY: as above.
    let before = unsafe { *place };
    let result = body();
    // SAFETY: as above.
    unsafe { *place = before };
    result
}

/// Turns a system call's -1 into the error.
pub(crate) fn check(result: libc::c_int) -> std::io::Result<libc::c_int> {
    if result < 0 { Err(last_error()) } else { Ok(result) }
}
