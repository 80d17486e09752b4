//! Threads: ids, restartable sequences, CPU numbers, background threads.

use std::{io, marker::PhantomData, mem::MaybeUninit};

use crate::check;

/// The calling thread's id, by system call.
pub fn gettid() -> u32 {
    // SAFETY: a plain system call without arguments.
    unsafe { libc::syscall(libc::SYS_gettid) as u32 }
}

/// Whether the caller is the thread that its process began with.
pub fn is_main_thread() -> bool {
    gettid() == std::process::id()
}

/// The calling thread's name, without opening a file. Source: `PR_GET_NAME` in `prctl(2)`.
pub fn thread_name() -> Option<String> {
    let mut name = [0u8; 16];
    // SAFETY: the kernel writes at most 16 bytes, a NUL among them.
    check(unsafe { libc::prctl(libc::PR_GET_NAME, name.as_mut_ptr()) }).ok()?;
    let name = name.split(|byte| *byte == 0).next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

/// The CPU on which the caller runs at this moment.
pub fn current_cpu() -> u32 {
    // SAFETY: a plain call without arguments.
    unsafe { libc::sched_getcpu() }.max(0) as u32
}

/// Number of CPU numbers that this machine can ever use: the highest possible number plus one.
///
/// Source: `/sys/devices/system/cpu/possible` in the kernel's
/// `Documentation/admin-guide/cputopology.rst`.
pub fn possible_cpus() -> u32 {
    cpu_numbers("possible")
}

/// Number of CPU numbers that this machine uses now: the highest one that is online plus one.
pub fn online_cpus() -> u32 {
    cpu_numbers("online")
}

fn cpu_numbers(list: &str) -> u32 {
    let text = std::fs::read_to_string(format!("/sys/devices/system/cpu/{list}")).unwrap_or_default();
    let highest = text.trim().split([',', '-']).filter_map(|number| number.parse::<u32>().ok()).max();
    match highest {
        Some(highest) => highest + 1,
        // SAFETY: a plain call.
        None => unsafe { libc::sysconf(libc::_SC_NPROCESSORS_CONF) }.max(1) as u32,
    }
}

/// The calling thread's thread pointer: a number that no two living threads of a process share, at
/// the cost of one load. (A `vfork` child has its parent's.)
#[inline]
pub fn thread_pointer() -> usize {
    let pointer: usize;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the x86-64 ABI keeps the thread pointer in the first word that it points to.
    unsafe {
        core::arch::asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, preserves_flags, readonly));
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: reading the register has no effect.
    unsafe {
        core::arch::asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, preserves_flags, nomem));
    }
    pointer
}

/// Until it is dropped, nothing interrupts the calling thread that could call the interrupted code
/// again: signals wait, and so does cancellation (`pthread_cancel(3)`).
#[derive(Debug)]
pub struct InterruptionBlock {
    signals: libc::sigset_t,
    cancellation: libc::c_int,
    /// Both belong to the thread.
    stays: PhantomData<*mut ()>,
}

unsafe extern "C" {
    fn pthread_setcancelstate(state: libc::c_int, old: *mut libc::c_int) -> libc::c_int;
}

impl InterruptionBlock {
    /// Blocks signals and cancellation of the thread from now on.
    pub fn begin() -> Self {
        const PTHREAD_CANCEL_DISABLE: libc::c_int = 1;
        let (mut all, mut signals) = (MaybeUninit::uninit(), MaybeUninit::uninit());
        let mut cancellation = 0;
        // SAFETY: all pointers are to live locals; the first call fills in `all`, the second one
        // `signals`. glibc keeps its own signals, which change users in all threads, out of the
        // set.
        unsafe {
            libc::sigfillset(all.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_SETMASK, all.as_ptr(), signals.as_mut_ptr());
            pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &raw mut cancellation);
            Self { signals: signals.assume_init(), cancellation, stays: PhantomData }
        }
    }

    /// Lets the signals come in the calling thread that came before: for a child that shares the
    /// memory.
    pub fn let_signals_come(&self) {
        // SAFETY: the mask is the one that `begin` found.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.signals, std::ptr::null_mut()) };
    }
}

impl Drop for InterruptionBlock {
    fn drop(&mut self) {
        // SAFETY: the value is the one that `begin` found.
        unsafe { pthread_setcancelstate(self.cancellation, std::ptr::null_mut()) };
        self.let_signals_come();
    }
}

/// Number of threads of this process, if `/proc` tells.
pub fn thread_count() -> Option<u64> {
    // A folder has two links more than subfolders, and `task` has a subfolder for each thread.
    let task = std::fs::metadata("/proc/self/task").ok()?;
    std::os::unix::fs::MetadataExt::nlink(&task).checked_sub(2)
}

/// Asks the scheduler to run the calling thread sooner than others, where that is allowed.
pub fn prefer_this_thread() {
    // SAFETY: a plain system call; without the right to it nothing changes.
    unsafe { libc::setpriority(libc::PRIO_PROCESS, gettid(), -10) };
}

/// Asks the scheduler to run the calling thread as soon as it wakes, even if another one runs, for
/// a short time each. It gets no more of the processor by that.
///
/// Source: custom slices in `sched_setattr(2)`, Linux 6.12; before, nothing changes.
pub fn ask_for_short_slices() {
    /// `struct sched_attr` in its first version.
    #[repr(C)]
    #[derive(Default)]
    struct Attributes {
        size: u32,
        policy: u32,
        flags: u64,
        nice: i32,
        priority: u32,
        runtime: u64,
        deadline: u64,
        period: u64,
    }
    /// The shortest that there is, in nanoseconds.
    const SLICE: u64 = 100_000;
    const SIZE: u32 = size_of::<Attributes>() as u32;
    let mut attributes = Attributes::default();
    // SAFETY: the kernel fills in as many bytes as the structure has.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attributes, SIZE, 0) };
    if got == 0 && attributes.policy == libc::SCHED_OTHER as u32 {
        (attributes.size, attributes.runtime) = (SIZE, SLICE);
        // SAFETY: only read; what the kernel doesn't take changes nothing.
        unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attributes, 0) };
    }
}

/// Place of threads' restartable-sequence areas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RseqArea {
    /// Distance from the thread pointer, in bytes.
    pub offset: isize,
}

/// The address of a symbol that may be missing; null then.
///
/// Older libraries, and others than glibc, lack some. A weak reference finds what there is in
/// statically linked programs too, where nothing can be looked up by name. It is said to be weak
/// wherever it is made: each object file that mentions the symbol has to.
macro_rules! weak_symbol {
    ($name:ident) => {{
        let address: *const libc::c_void;
        #[cfg(target_arch = "x86_64")]
        // SAFETY: reads the address that the linker or the loader filled in.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", stringify!($name)),
                concat!("mov {}, qword ptr [rip + ", stringify!($name), "@GOTPCREL]"),
                out(reg) address, options(nostack, preserves_flags, readonly)
            );
        }
        #[cfg(target_arch = "aarch64")]
        // SAFETY: as above.
        unsafe {
            core::arch::asm!(
                concat!(".weak ", stringify!($name)),
                concat!("adrp {0}, :got:", stringify!($name)),
                concat!("ldr {0}, [{0}, :got_lo12:", stringify!($name), "]"),
                out(reg) address, options(nostack, preserves_flags, readonly)
            );
        }
        address
    }};
}
pub(crate) use weak_symbol;

/// The area that glibc (2.35 or later) registered for every thread; none where it did not.
///
/// Source: "Restartable Sequences" in the glibc manual; `rseq(2)`.
pub fn rseq_area() -> Option<RseqArea> {
    let (offset, size) = (weak_symbol!(__rseq_offset), weak_symbol!(__rseq_size));
    if offset.is_null() || size.is_null() {
        return None;
    }
    // SAFETY: glibc documents the symbols as `const ptrdiff_t` and `const unsigned int`.
    let (offset, size) = unsafe { (*offset.cast::<isize>(), *size.cast::<libc::c_uint>()) };
    (size > 0).then_some(RseqArea { offset })
}

/// Prepares [`barrier_all_sections`]. Source: `membarrier(2)`, Linux 5.10.
pub fn prepare_section_barrier() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED_RSEQ)
}

/// Restarts every restartable section that runs in this process at this moment.
///
/// After it, whatever the caller stored before it is seen by every section.
pub fn barrier_all_sections() -> io::Result<()> {
    membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)
}

fn membarrier(command: libc::c_int) -> io::Result<()> {
    // SAFETY: a plain system call; it touches no memory of ours.
    check(unsafe { libc::syscall(libc::SYS_membarrier, command, 0, 0) } as libc::c_int).map(drop)
}

/// Offset at which glibc keeps a thread's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TidOffset {
    /// Distance from the thread pointer, modulo 2⁶⁴.
    pub offset: usize,
    /// Whether the C library that runs says so. Otherwise another thread should be asked as well.
    pub is_documented: bool,
}

/// Returns where glibc keeps a thread's id, checked against the calling thread's real id. Where it
/// does not hold, callers use [`gettid`]. glibc keeps it right in the children of fork as well.
///
/// glibc describes the place to debuggers (`documented_tid_offset`). In programs without a symbol
/// table for that, the place of every glibc since 2.10 is tried.
pub fn tid_offset() -> Option<TidOffset> {
    /// Distance from the thread's handle.
    const USUAL: usize = if cfg!(target_arch = "x86_64") { 0x2d0 } else { 0xd0 };
    if weak_symbol!(gnu_get_libc_version).is_null() {
        return None;
    }
    let documented = documented_tid_offset();
    // SAFETY: a plain call.
    let handle = unsafe { libc::pthread_self() } as usize;
    let offset = handle.wrapping_add(documented.unwrap_or(USUAL)).wrapping_sub(thread_pointer());
    // SAFETY: glibc's thread block is larger than 0x700 bytes, so the place is readable.
    let found = unsafe { tid_from_thread_block(offset) };
    (found == gettid()).then_some(TidOffset { offset, is_documented: documented.is_some() })
}

/// Returns the distance of a thread's id from its handle, as glibc tells it to debuggers: bits of
/// the field, number of elements, and offset. Source: `nptl_db/structs.def` and `DB_DEFINE_FIELD`
/// in `nptl_db/db_info.c` of glibc.
fn documented_tid_offset() -> Option<usize> {
    const MAX_OFFSET: u32 = 0x6fc;
    // SAFETY: the name is NUL-terminated. Source: `RTLD_DEFAULT` in `dlsym(3)`.
    let field = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"_thread_db_pthread_tid".as_ptr()) };
    // SAFETY: null, or three words in glibc's constant data.
    let [bits, count, offset] = *unsafe { field.cast::<[u32; 3]>().as_ref() }?;
    (bits == u32::BITS && count == 1 && offset <= MAX_OFFSET && offset % 4 == 0).then_some(offset as usize)
}

/// Reads the thread's id from its thread block.
///
/// # Safety
/// `offset` came from [`tid_offset`] (or is inside the thread block).
#[inline(always)]
pub unsafe fn tid_from_thread_block(offset: usize) -> u32 {
    #[cfg(target_arch = "x86_64")]
    {
        let tid: u32;
        // SAFETY: reads four bytes inside the thread block, as the caller promises.
        unsafe {
            core::arch::asm!("mov {tid:e}, fs:[{offset}]", tid = out(reg) tid, offset = in(reg) offset,
                options(nostack, preserves_flags, readonly));
        }
        tid
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        let place = std::ptr::with_exposed_provenance::<u32>(thread_pointer().wrapping_add(offset));
        // SAFETY: as above. Volatile: glibc writes it without our knowledge.
        unsafe { place.read_volatile() }
    }
}

extern "C" fn run_background(body: *mut libc::c_void) -> *mut libc::c_void {
    // SAFETY: the name is NUL-terminated and has less than 16 bytes.
    unsafe { libc::prctl(libc::PR_SET_NAME, c"tompion".as_ptr()) };
    // The program's own may raise signals.
    crate::fp_env::set_default_floats();
    // SAFETY: `spawn_background` passed a `fn()` of this type.
    let body: fn() = unsafe { std::mem::transmute(body) };
    // A panic must not reach the host; there is nothing better to do with it than to end the
    // thread.
    let _ = std::panic::catch_unwind(body);
    std::ptr::null_mut()
}

/// Lets signals come to the calling thread that its own instructions raise. While they are blocked,
/// the kernel ends the process without its handlers.
pub fn let_faults_come() {
    let mut faults = MaybeUninit::uninit();
    // SAFETY: `sigemptyset` fills the set in, and the other calls use it.
    unsafe {
        libc::sigemptyset(faults.as_mut_ptr());
        for signal in [libc::SIGSEGV, libc::SIGBUS, libc::SIGFPE, libc::SIGILL, libc::SIGTRAP, libc::SIGSYS] {
            libc::sigaddset(faults.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_UNBLOCK, faults.as_ptr(), std::ptr::null_mut());
    }
}

/// Starts a detached thread that takes no signals, for a library inside another program.
///
/// Uses a small stack where the program's thread-local storage allows it. Starts none in a process
/// that a sanitizer watches: its forks would not be safe any more.
pub fn spawn_background(body: fn()) -> io::Result<()> {
    const STACK: usize = 256 * 1024;
    if crate::sanitizer::is_watched() {
        return Err(io::Error::from(io::ErrorKind::Unsupported));
    }
    // SAFETY: all-zero bytes are valid for these plain structures, which the calls below
    // initialise.
    let (mut all, mut old, mut attributes): (libc::sigset_t, libc::sigset_t, libc::pthread_attr_t) =
        unsafe { std::mem::zeroed() };
    // A number or a pointer, as the C library has it.
    let mut thread = std::mem::MaybeUninit::<libc::pthread_t>::uninit();
    // SAFETY: every pointer is to a live local of the right type; the attributes are initialised
    // before use and destroyed after it; the signal mask is put back before returning.
    let result = unsafe {
        libc::sigfillset(&raw mut all);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut old);
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
        libc::pthread_attr_setstacksize(&raw mut attributes, STACK);
        let argument = body as *mut libc::c_void;
        let mut result =
            libc::pthread_create(thread.as_mut_ptr(), &raw const attributes, run_background, argument);
        if result == libc::EINVAL {
            // The program's thread-local storage leaves no room in a small stack.
            libc::pthread_attr_init(&raw mut attributes);
            libc::pthread_attr_setdetachstate(&raw mut attributes, libc::PTHREAD_CREATE_DETACHED);
            result =
                libc::pthread_create(thread.as_mut_ptr(), &raw const attributes, run_background, argument);
        }
        libc::pthread_attr_destroy(&raw mut attributes);
        libc::pthread_sigmask(libc::SIG_SETMASK, &raw const old, std::ptr::null_mut());
        result
    };
    if result != 0 {
        return Err(io::Error::from_raw_os_error(result));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_slices_change_nothing_else() {
        let nice = || {
            // SAFETY: a plain system call.
            unsafe { libc::syscall(libc::SYS_getpriority, libc::PRIO_PROCESS, gettid()) }
        };
        let observed = std::thread::spawn(move || {
            prefer_this_thread();
            let before = nice();
            ask_for_short_slices();
            // SAFETY: a plain system call.
            (before, nice(), unsafe { libc::sched_getscheduler(0) })
        });
        let (before, after, policy) = observed.join().unwrap();
        assert_eq!((before, policy), (after, libc::SCHED_OTHER));
    }

    #[test]
    fn the_thread_block_tells_the_id_in_every_thread() {
        let Some(TidOffset { offset, is_documented }) = tid_offset() else { return };
        assert!(is_documented, "the test has a glibc with a symbol table");
        std::thread::spawn(move || {
            // SAFETY: the offset came from `tid_offset`.
            assert_eq!(unsafe { tid_from_thread_block(offset) }, gettid());
        })
        .join()
        .unwrap();
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(online_cpus() > current_cpu() && possible_cpus() >= online_cpus());
    }
}
