//! A debugger for restartable sections.
//!
//! A thread that is stopped inside a section has been preempted: the kernel sends it to the abort
//! handler when it goes on. So a section can't be single-stepped, and each run of it can be stopped
//! once. Up to that stop it runs as it always does, by a breakpoint register of the processor,
//! which changes neither code nor data.
//!
//! To stop where a loop comes by the second time, or in the middle of a `rep movsb`, the section is
//! disarmed (its descriptor is taken out of the thread's rseq area, as if there were no section),
//! stepped through, and armed again at the wanted place. Nothing else differs from an interrupt
//! there. Where there are no breakpoint registers, all stops are made in this way.

use std::{io, mem::offset_of, ptr};

use crate::sections::Section;

const GET_RSEQ_CONFIGURATION: libc::c_uint = 0x420f;
/// Offset of the pointer to the current descriptor in a thread's rseq area.
const ARMED: u64 = 8;
/// Steps after which a stop is given up.
const MAX_STEPS: usize = 100_000;

/// The child's state after it ran.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The program stopped at the breakpoint.
    Stopped,
    /// The program exited by itself.
    Exited(i32),
    /// The program was killed.
    Killed,
}

/// A child that is traced, stopped at first.
pub struct Debugger {
    pid: libc::pid_t,
    rseq_area: u64,
    has_breakpoints: bool,
}

/// A stop's place: before the instruction at this address, when a run comes by for this time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub address: u64,
    /// 1 for the first.
    pub time: usize,
}

impl Debugger {
    /// Forks a child that runs `body`, and stops it before. `body` is called in a copy of one
    /// thread of this process: it must not allocate or lock.
    pub fn start(body: impl FnOnce()) -> Self {
        // SAFETY: the child calls only `body`, which the caller restricts, and system calls.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "fork: {}", io::Error::last_os_error());
        if pid == 0 {
            // SAFETY: system calls without pointers.
            unsafe {
                libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0);
                libc::raise(libc::SIGSTOP);
            }
            body();
            // SAFETY: leaves without the handlers of a process that is not this one's.
            unsafe { libc::_exit(0) };
        }
        let mut debugger = Self { pid, rseq_area: 0, has_breakpoints: true };
        assert_eq!(debugger.wait(), Ok(libc::SIGSTOP), "the child does not start");
        debugger.request(libc::PTRACE_SETOPTIONS, 0, libc::PTRACE_O_EXITKILL as u64);
        let mut configuration = [0u64; 3];
        let size = size_of_val(&configuration) as u64;
        debugger.request(GET_RSEQ_CONFIGURATION, size, &raw mut configuration as u64);
        debugger.rseq_area = configuration[0];
        debugger
    }

    /// Whether there are breakpoint registers here.
    pub fn has_breakpoints(&self) -> bool {
        self.set_breakpoint(Some(self.rseq_area)) && self.set_breakpoint(None)
    }

    /// Uses no breakpoint registers from now on.
    pub fn forgo_breakpoints(&mut self) {
        self.has_breakpoints = false;
    }

    pub fn pid(&self) -> libc::pid_t {
        self.pid
    }

    /// Runs the child to a place in a section, and delivers a signal on the way (0: none). The
    /// section is armed there.
    pub fn run_to(&self, place: Place, section: &Section, signal: i32) -> State {
        let mut left = place.time;
        if self.has_breakpoints {
            assert!(self.set_breakpoint(Some(place.address)));
            let state = self.resume(libc::PTRACE_CONT, signal);
            if state != State::Stopped {
                return state;
            }
            assert!(self.set_breakpoint(None));
            assert_eq!(self.instruction(), place.address, "a stop somewhere else");
            left -= 1;
        } else {
            // Not disarmed: what happened at the last stop is to have its effect.
            let state = self.resume(libc::PTRACE_SINGLESTEP, signal);
            if state != State::Stopped {
                return state;
            }
            left -= usize::from(self.instruction() == place.address);
        }
        let stepped = left > 0 || !self.has_breakpoints;
        for _ in 0..MAX_STEPS {
            if left == 0 {
                if stepped && section.contains(place.address) {
                    self.poke(self.rseq_area + ARMED, section.descriptor);
                }
                return State::Stopped;
            }
            let state = self.step_disarmed();
            if state != State::Stopped {
                return state;
            }
            left -= usize::from(self.instruction() == place.address);
        }
        panic!("{place:x?} is not reached within {MAX_STEPS} steps");
    }

    /// Executes one instruction, outside of any section.
    pub fn step_disarmed(&self) -> State {
        self.disarm();
        self.resume(libc::PTRACE_SINGLESTEP, 0)
    }

    /// Takes the thread out of its section: it goes on where it is.
    pub fn disarm(&self) {
        self.poke(self.rseq_area + ARMED, 0);
    }

    /// Runs the child to its end, and delivers a signal on the way.
    pub fn run_to_end(&self, signal: i32) -> State {
        self.resume(libc::PTRACE_CONT, signal)
    }

    /// Kills the stopped child. It executes nothing more.
    pub fn kill(&self) -> State {
        // SAFETY: a system call without pointers; the child is this debugger's.
        unsafe { libc::kill(self.pid, libc::SIGKILL) };
        self.wait().map_or_else(|state| state, |_| State::Stopped)
    }

    /// Address of the instruction that comes next.
    pub fn instruction(&self) -> u64 {
        // SAFETY: all bytes zero are such registers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        self.request(libc::PTRACE_GETREGS, 0, &raw mut registers as u64);
        registers.rip
    }

    fn resume(&self, how: libc::c_uint, signal: i32) -> State {
        self.request(how, 0, signal as u64);
        match self.wait() {
            Ok(libc::SIGTRAP) => State::Stopped,
            Ok(signal) => panic!("the child stopped with signal {signal} at {:#x}", self.instruction()),
            Err(state) => state,
        }
    }

    /// The signal with which the child stopped, or how it ended.
    fn wait(&self) -> Result<i32, State> {
        let mut status = 0;
        // SAFETY: the status is this function's own.
        let pid = unsafe { libc::waitpid(self.pid, &raw mut status, libc::__WALL) };
        assert_eq!(pid, self.pid, "waitpid: {}", io::Error::last_os_error());
        if libc::WIFSTOPPED(status) {
            Ok(libc::WSTOPSIG(status))
        } else if libc::WIFEXITED(status) {
            Err(State::Exited(libc::WEXITSTATUS(status)))
        } else {
            assert_eq!(libc::WTERMSIG(status), libc::SIGKILL);
            Err(State::Killed)
        }
    }

    fn poke(&self, address: u64, word: u64) {
        self.request(libc::PTRACE_POKEDATA, address, word);
    }

    /// Sets or clears the first breakpoint register. False where there are none.
    fn set_breakpoint(&self, address: Option<u64>) -> bool {
        let register = |number: usize| (offset_of!(libc::user, u_debugreg) + 8 * number) as u64;
        // The lowest bit turns the first one on; type and length of zero are an instruction's.
        self.try_request(libc::PTRACE_POKEUSER, register(0), address.unwrap_or(0)).is_ok()
            && self.try_request(libc::PTRACE_POKEUSER, register(7), u64::from(address.is_some())).is_ok()
    }

    #[track_caller]
    fn request(&self, request: libc::c_uint, address: u64, data: u64) {
        self.try_request(request, address, data).unwrap_or_else(|error| panic!("ptrace({request}): {error}"));
    }

    fn try_request(&self, request: libc::c_uint, address: u64, data: u64) -> io::Result<()> {
        let pointer = ptr::without_provenance_mut::<libc::c_void>;
        // SAFETY: what is asked for goes to memory of the caller's, large enough by the request's
        // kind; all else is the stopped child's.
        let result =
            unsafe { libc::ptrace(request, self.pid, pointer(address as usize), data as *mut libc::c_void) };
        if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for Debugger {
    fn drop(&mut self) {
        // Only when a check has failed half way: else the child has ended and been waited for.
        // SAFETY: system calls; a child that is no longer there is no longer this process's to wait
        // for.
        unsafe {
            if libc::waitpid(self.pid, ptr::null_mut(), libc::WNOHANG | libc::__WALL) == 0 {
                libc::kill(self.pid, libc::SIGKILL);
                libc::waitpid(self.pid, ptr::null_mut(), libc::__WALL);
            }
        }
    }
}
