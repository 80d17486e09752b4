//! Run-time check of the kernel's guarantees for restartable sequences (rseq).
//!
//! The kernel must restart a section when another thread has run on its CPU, and when `membarrier`
//! asks for it. Some kernels don't (Linux 6.19 on aarch64). The version proves nothing: stable
//! updates fix such faults, and distributions backport them. So two threads test it. One spins in
//! numbered sections. The other reads the number, disturbs the section, then stores the number. A
//! section that reads its own number was not restarted.

use std::{
    io,
    sync::{
        OnceLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use crate::{
    InterruptionBlock, ask_for_short_slices, barrier_all_sections, check, current_cpu,
    prepare_section_barrier, rseq_area, set_affinity, thread_pointer,
};

/// Result of the check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RseqVerdict {
    /// The kernel restarted each disturbed section.
    Kept,
    /// A section went on after this disturbance.
    Broken(Disturbance),
    /// No section was disturbed before the timeout, or none could run; the reason.
    Unknown(String),
}

/// Event that must restart a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Disturbance {
    /// Another thread ran on the section's CPU.
    Preemption,
    /// `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED_RSEQ)`.
    Barrier,
}

/// Restarts after which the check passes.
const ENOUGH_RESTARTS: u32 = 3;
/// Longest time that one check waits for them; 1 ms is usual.
const CHECK_TIMEOUT: Duration = Duration::from_millis(100);
/// Time between two disturbances.
const DISTURBANCE_INTERVAL: Duration = Duration::from_micros(50);
/// Rounds of a section's loop; some 100 µs.
const ROUNDS: u64 = 4000;
/// Size of the area in the first version of the interface, in bytes.
const FIRST_SIZE: u32 = 32;
/// Largest area that is tried, in bytes.
const MAX_SIZE: usize = 256;
/// Signature by which the kernel recognizes an abort handler. Source: glibc's `sys/rseq.h`.
const SIGNATURE: u32 = if cfg!(target_arch = "aarch64") { 0xd428_bc00 } else { 0x5305_3053 };

/// Outcome of one section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ended {
    /// The section ended without a disturbance.
    Undisturbed,
    /// The section went on although it was disturbed.
    WentOn,
    /// The section was restarted.
    Restarted,
}

/// Rseq area that a thread has registered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Registration {
    /// The C library's.
    OfLibc,
    /// An area of this size, made for the check.
    Own(u32),
}

/// Settings of one check. Only tests leave a section unannounced, which simulates a kernel that
/// restarts none.
#[derive(Clone, Copy, Debug)]
struct CheckSetup {
    disturbance: Disturbance,
    registration: Registration,
    announced: bool,
}

/// State that the threads of one check share.
#[derive(Debug, Default)]
struct Shared {
    /// Count of sections that have begun: the number of the one that runs.
    begun: AtomicU64,
    /// The section that ran when something happened that has to restart it.
    disturbed: AtomicU64,
    ended: AtomicBool,
}

/// Returns whether the kernel restarts sections. Checks once per process, for some milliseconds,
/// in threads of its own.
pub fn rseq_verdict() -> &'static RseqVerdict {
    static VERDICT: OnceLock<RseqVerdict> = OnceLock::new();
    VERDICT.get_or_init(|| {
        // Recorded programs may have either form of area, independent of this process.
        let mut registrations = vec![Registration::Own(FIRST_SIZE)];
        registrations.extend(newer_size().map(Registration::Own));
        let verdicts = registrations.into_iter().map(|registration| {
            let first = run(registration);
            // Where the C library's registration can't be taken back, it is the only one.
            if matches!(first, RseqVerdict::Unknown(_)) { run(Registration::OfLibc) } else { first }
        });
        verdicts.reduce(worse).unwrap_or(RseqVerdict::Kept)
    })
}

/// Runs both checks with one form of area.
fn run(registration: Registration) -> RseqVerdict {
    // Before there are other threads, even ending ones: with them, the kernel waits for a grace
    // period, which takes up to 20 ms of the recorder's start.
    let has_barrier = prepare_section_barrier().is_ok();
    let with = |disturbance| check_one(CheckSetup { disturbance, registration, announced: true });
    let preempted = with(Disturbance::Preemption);
    // Without a barrier, agents ask for reserve/commit themselves.
    if preempted != RseqVerdict::Kept || !has_barrier {
        return preempted;
    }
    with(Disturbance::Barrier)
}

/// Returns the more restrictive verdict.
fn worse(one: RseqVerdict, other: RseqVerdict) -> RseqVerdict {
    let rank = |verdict: &RseqVerdict| match verdict {
        RseqVerdict::Kept => 0,
        RseqVerdict::Unknown(_) => 1,
        RseqVerdict::Broken(_) => 2,
    };
    if rank(&other) > rank(&one) { other } else { one }
}

/// Returns the size that newer C libraries register, if it differs. Source: `AT_RSEQ_FEATURE_SIZE`,
/// Linux 6.3.
fn newer_size() -> Option<u32> {
    const FEATURE_SIZE: libc::c_ulong = 27;
    // SAFETY: a plain call; 0 where the kernel doesn't tell.
    let size = unsafe { libc::getauxval(FEATURE_SIZE) } as usize;
    (size > FIRST_SIZE as usize && size <= MAX_SIZE).then(|| size.next_multiple_of(32) as u32)
}

/// Runs one check with its two threads.
fn check_one(setup: CheckSetup) -> RseqVerdict {
    let shared = Shared::default();
    let cpu = current_cpu();
    let result = std::thread::scope(|scope| {
        let disturber = std::thread::Builder::new().name("rseq check".into());
        let disturber = disturber.spawn_scoped(scope, || disturb(&shared, setup.disturbance, cpu));
        let spinner = std::thread::Builder::new().name("rseq check".into());
        let spinner = spinner.spawn_scoped(scope, || spin(&shared, setup, cpu));
        let verdict = match (disturber, spinner) {
            (Ok(_), Ok(spinner)) => spinner.join().unwrap_or_else(|_| Err(io::ErrorKind::Other.into())),
            (Err(error), _) | (_, Err(error)) => Err(error),
        };
        // Ordering: a flag by itself.
        shared.ended.store(true, Ordering::Relaxed);
        verdict
    });
    result.unwrap_or_else(|error| RseqVerdict::Unknown(error.to_string()))
}

/// Puts the calling thread under SCHED_OTHER. Two SCHED_FIFO threads would not preempt each other.
fn be_ordinary() {
    // SAFETY: all-zero bytes are valid for this plain structure.
    let parameters: libc::sched_param = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is live; without the right to it nothing changes.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_OTHER, &raw const parameters) };
}

/// Disturbs the section that runs, then stores its number.
fn disturb(shared: &Shared, disturbance: Disturbance, cpu: u32) {
    be_ordinary();
    if disturbance == Disturbance::Preemption && set_affinity(0, &[cpu]).is_err() {
        return;
    }
    ask_for_short_slices();
    // Ordering: each word stands by itself. The check is about what the kernel does in between.
    while !shared.ended.load(Ordering::Relaxed) {
        std::thread::sleep(DISTURBANCE_INTERVAL);
        let running = shared.begun.load(Ordering::Relaxed);
        if disturbance == Disturbance::Barrier && barrier_all_sections().is_err() {
            continue;
        }
        shared.disturbed.store(running, Ordering::Relaxed);
    }
}

/// Runs sections until enough were restarted or one was not.
fn spin(shared: &Shared, setup: CheckSetup, cpu: u32) -> io::Result<RseqVerdict> {
    be_ordinary();
    // A handler would restart the section as well.
    let _undisturbed = InterruptionBlock::begin();
    let area = Area::registered(setup.registration)?;
    if setup.disturbance == Disturbance::Preemption {
        set_affinity(0, &[cpu])?;
    }
    let deadline = Instant::now() + CHECK_TIMEOUT;
    let mut restarts = 0;
    while Instant::now() < deadline {
        match area.section(shared, setup.announced) {
            Ended::Undisturbed => {}
            Ended::WentOn => return Ok(RseqVerdict::Broken(setup.disturbance)),
            Ended::Restarted => restarts += 1,
        }
        if restarts >= ENOUGH_RESTARTS {
            return Ok(RseqVerdict::Kept);
        }
    }
    match restarts {
        0 => Err(io::Error::other("no section was disturbed in time")),
        _ => Ok(RseqVerdict::Kept),
    }
}

#[repr(C, align(256))]
struct OwnArea([u8; MAX_SIZE]);

/// Rseq area of the calling thread. Dropping it ends the registration that was made here.
struct Area {
    place: *mut u8,
    own: Option<(Box<OwnArea>, u32)>,
}

impl Area {
    fn registered(registration: Registration) -> io::Result<Self> {
        let missing = || io::Error::other("the C library has registered no area");
        let of_libc = rseq_area().map(|area| (thread_pointer() as *mut u8).wrapping_offset(area.offset));
        let Registration::Own(size) = registration else {
            return Ok(Self { place: of_libc.ok_or_else(missing)?, own: None });
        };
        if let Some(place) = of_libc {
            // This thread runs nothing else, and its end would unregister the area anyway.
            let sizes = [Some(FIRST_SIZE), newer_size()];
            let taken_back = sizes.into_iter().flatten().any(|size| rseq(place, size, UNREGISTER).is_ok());
            taken_back.then_some(()).ok_or_else(missing)?;
        }
        let mut area = Box::new(OwnArea([0; MAX_SIZE]));
        let place = area.0.as_mut_ptr();
        rseq(place, size, REGISTER)?;
        Ok(Self { place, own: Some((area, size)) })
    }

    /// Runs a section until it goes on although it was disturbed, it is restarted, or it has had
    /// its rounds.
    fn section(&self, shared: &Shared, announced: bool) -> Ended {
        let mut nowhere = 0u64;
        // SAFETY: the area has at least 32 bytes; the descriptor's address is the third word of
        // four bytes and the next.
        let descriptor = if announced { unsafe { self.place.add(8).cast() } } else { &raw mut nowhere };
        match spin_in_section(descriptor, &shared.disturbed, &shared.begun) {
            0 => Ended::Undisturbed,
            1 => Ended::WentOn,
            _ => Ended::Restarted,
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        if let Some((_, size)) = &self.own {
            // The kernel must not write into freed memory.
            if rseq(self.place, *size, UNREGISTER).is_err() {
                std::mem::forget(self.own.take());
            }
        }
    }
}

const REGISTER: libc::c_int = 0;
const UNREGISTER: libc::c_int = 1;

/// Source: `rseq(2)`. The area stays until the thread has ended, or it is unregistered.
fn rseq(place: *mut u8, size: u32, flags: libc::c_int) -> io::Result<()> {
    // SAFETY: callers pass areas of that size that live until they have unregistered them.
    check(unsafe { libc::syscall(libc::SYS_rseq, place, size, flags, SIGNATURE) } as libc::c_int).map(drop)
}

/// Spins in a section, which first counts itself, until it reads its own number in `disturbed` (1),
/// is restarted (2), or nothing has happened (0). `descriptor` is where the kernel looks for the
/// section that runs.
#[inline(never)]
fn spin_in_section(descriptor: *mut u64, disturbed: &AtomicU64, begun: &AtomicU64) -> u32 {
    let outcome: u32;
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the three addresses are live words, of which the section stores to `descriptor` and
    // `begun` alone; it uses no stack, and leaves only by its end or by the abort handler, behind
    // which the operands mean the same.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "70: .long 0, 0",
            ".quad 72f, 74f - 72f, 76f",
            ".popsection",
            "lea {scratch}, [rip + 70b]",
            "mov [{descriptor}], {scratch}",
            "72: mov {scratch}, [{begun}]",
            "inc {scratch}",
            "mov [{begun}], {scratch}",
            "73: pause",
            "cmp {scratch}, [{disturbed}]",
            "je 75f",
            "dec {rounds}",
            "jnz 73b",
            "74: xor {outcome:e}, {outcome:e}",
            "jmp 77f",
            "75: mov {outcome:e}, 1",
            "jmp 77f",
            ".byte 0x0f, 0xb9, 0x3d",
            ".long 0x53053053",
            "76: mov {outcome:e}, 2",
            "77: mov qword ptr [{descriptor}], 0",
            descriptor = in(reg) descriptor,
            disturbed = in(reg) disturbed.as_ptr(),
            begun = in(reg) begun.as_ptr(),
            rounds = inout(reg) ROUNDS => _,
            scratch = out(reg) _,
            outcome = out(reg) outcome,
            options(nostack),
        );
    }
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as above.
    unsafe {
        core::arch::asm!(
            ".pushsection __rseq_cs, \"aw\"",
            ".balign 32",
            "70: .long 0, 0",
            ".quad 72f, 74f - 72f, 76f",
            ".popsection",
            "adrp {scratch}, 70b",
            "add {scratch}, {scratch}, :lo12:70b",
            "str {scratch}, [{descriptor}]",
            "72: ldr {scratch}, [{begun}]",
            "add {scratch}, {scratch}, #1",
            "str {scratch}, [{begun}]",
            "73: yield",
            "ldr {outcome}, [{disturbed}]",
            "cmp {scratch}, {outcome}",
            "b.eq 75f",
            "subs {rounds}, {rounds}, #1",
            "b.ne 73b",
            "74: mov {outcome:w}, #0",
            "b 77f",
            "75: mov {outcome:w}, #1",
            "b 77f",
            ".inst 0xd428bc00",
            "76: mov {outcome:w}, #2",
            "77: str xzr, [{descriptor}]",
            descriptor = in(reg) descriptor,
            disturbed = in(reg) disturbed.as_ptr(),
            begun = in(reg) begun.as_ptr(),
            rounds = inout(reg) ROUNDS => _,
            scratch = out(reg) _,
            outcome = out(reg) outcome,
            options(nostack),
        );
    }
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Repeats a check while nothing happens before its timeout on a busy machine.
    fn check(setup: CheckSetup) -> RseqVerdict {
        let verdicts = (0..20).map(|_| check_one(setup));
        verdicts
            .reduce(|before, next| if matches!(before, RseqVerdict::Unknown(_)) { next } else { before })
            .unwrap()
    }

    /// The C library's area, the first version's, and a longer one.
    fn registrations() -> Vec<Registration> {
        let of_libc = rseq_area().map(|_| Registration::OfLibc);
        of_libc.into_iter().chain([Registration::Own(32), Registration::Own(64)]).collect()
    }

    #[test]
    fn this_kernel_restarts_sections_in_areas_of_every_size() {
        prepare_section_barrier().unwrap();
        for registration in registrations() {
            for disturbance in [Disturbance::Preemption, Disturbance::Barrier] {
                let verdict = check(CheckSetup { disturbance, registration, announced: true });
                assert_eq!(verdict, RseqVerdict::Kept, "{registration:?}, {disturbance:?}");
            }
        }
        assert_eq!(*rseq_verdict(), RseqVerdict::Kept);
    }

    #[test]
    fn a_kernel_that_restarts_nothing_is_found_out() {
        prepare_section_barrier().unwrap();
        for disturbance in [Disturbance::Preemption, Disturbance::Barrier] {
            let registration = Registration::Own(FIRST_SIZE);
            let verdict = check(CheckSetup { disturbance, registration, announced: false });
            assert_eq!(verdict, RseqVerdict::Broken(disturbance));
        }
    }

    #[test]
    fn an_area_that_the_kernel_refuses_leaves_it_unknown() {
        let setup = CheckSetup {
            disturbance: Disturbance::Preemption,
            registration: Registration::Own(8),
            announced: true,
        };
        assert!(matches!(check_one(setup), RseqVerdict::Unknown(_)));
    }

    #[test]
    fn the_worst_verdict_counts() {
        let (broken, unknown) =
            (RseqVerdict::Broken(Disturbance::Barrier), RseqVerdict::Unknown(String::new()));
        assert_eq!(worse(RseqVerdict::Kept, unknown.clone()), unknown);
        assert_eq!(worse(broken.clone(), unknown), broken);
    }
}
