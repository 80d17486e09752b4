//! The writing thread: its id, and whether it may write, for the event path.
//!
//! Four words in thread-local storage answer that without a system call.
//!
//! ```text
//! tompion_thread_id   the thread's id, once it was verified; 0: not yet, or not to be trusted
//! tompion_lent        number of children that run on this storage while the thread waits (vfork)
//! tompion_shared      id of the thread that owns this storage, once a child has shared it that
//!                     runs at the same time; 0: never
//! tompion_dumping     [`DUMPING`] while the thread runs a state dump, [`SHARED_MEANWHILE`] if a
//!                     child has shared the storage since; else 0
//! ```
//!
//! A child that runs on its parent's memory (`vfork`, `clone` with `CLONE_VM`) sees its parent's
//! rings, but the kernel doesn't restart its sections. So it must never enter one. If it also has
//! its parent's thread-local storage, it finds there what its parent noted; [`crate::clone`]
//! changes that in time. If it has storage of its own, the words are 0, and the C library's own
//! note of the thread's id is missing, too.

use std::{
    arch::global_asm,
    sync::atomic::{AtomicUsize, Ordering},
};

use tompion_os::{gettid, tid_from_thread_block};

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
use aarch64::{add_to_thread_word, set_thread_word, thread_word};
#[cfg(target_arch = "x86_64")]
use x86_64::{add_to_thread_word, set_thread_word, thread_word};

/// Offset at which threads keep their ids, see [`tompion_os::tid_offset`]; 0 if it is unknown.
static TID_OFFSET: AtomicUsize = AtomicUsize::new(0);

/// Says where threads keep their ids; without a place, they are asked for.
pub fn set_tid_offset(offset: Option<usize>) {
    // Ordering: the number is all there is to see.
    TID_OFFSET.store(offset.unwrap_or(0), Ordering::Relaxed);
}

global_asm!(
    r#"
    .macro TOMPION_THREAD_WORD name
    .hidden \name
    .globl \name
    .type \name, @object
    .size \name, 4
    \name: .zero 4
    .endm
    .pushsection .tbss.tompion, "awT", @nobits
    .balign 4
    TOMPION_THREAD_WORD tompion_thread_id
    TOMPION_THREAD_WORD tompion_lent
    TOMPION_THREAD_WORD tompion_shared
    TOMPION_THREAD_WORD tompion_dumping
    .popsection
    "#
);

/// The calling thread's id, if it was noted; 0 means that [`current`] must find it.
///
/// One word answers two questions of the event path: which thread writes, and whether it may.
#[inline(always)]
pub fn noted_thread_id() -> u32 {
    thread_word!("tompion_thread_id")
}

/// Writer of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Writer {
    /// A thread of this process, with its id.
    Thread(u32),
    /// A thread of this process, with its id, which runs a state dump.
    StateDump(u32),
    /// A child that runs on this process's memory, and must not touch its rings.
    SharedVmChild,
}

impl Writer {
    /// Id of the thread; none for a child on this process's memory.
    pub fn thread(self) -> Option<u32> {
        match self {
            Self::Thread(tid) | Self::StateDump(tid) => Some(tid),
            Self::SharedVmChild => None,
        }
    }
}

/// Finds the calling thread's id, and notes it if it can't change.
///
/// No system call, unless the offset of the thread's id is unknown or its storage was once shared.
pub fn current() -> Writer {
    if thread_word!("tompion_lent") != 0 {
        return Writer::SharedVmChild;
    }
    let owner = thread_word!("tompion_shared");
    if owner != 0 {
        if thread_word!("tompion_dumping") != 0 {
            return Writer::StateDump(owner);
        }
        return if gettid() == owner { Writer::Thread(owner) } else { Writer::SharedVmChild };
    }
    let tid = match TID_OFFSET.load(Ordering::Relaxed) {
        0 => gettid(),
        // SAFETY: the offset came from `tid_offset`.
        offset => unsafe { tid_from_thread_block(offset) },
    };
    if tid == 0 {
        // Made by hand: the C library knows nothing of this thread, and has not registered its
        // sections.
        return Writer::SharedVmChild;
    }
    set_thread_word!("tompion_thread_id", tid);
    Writer::Thread(tid)
}

/// Forgets the calling thread's id: the child of a fork has another one.
pub fn forget_thread_id() {
    set_thread_word!("tompion_thread_id", 0);
}

/// Until it is dropped, a child runs on the calling thread's storage, and the thread waits for it.
#[derive(Debug)]
pub struct StorageLoan(());

impl StorageLoan {
    /// Begins the loan.
    pub fn begin() -> Self {
        add_to_thread_word!("tompion_lent", 1);
        forget_thread_id();
        Self(())
    }
}

impl Drop for StorageLoan {
    fn drop(&mut self) {
        add_to_thread_word!("tompion_lent", -1);
    }
}

/// Marks the calling thread's storage as shared, for good, with a child that runs at the same time:
/// each event asks the kernel for the thread's id.
pub fn share_storage() {
    if thread_word!("tompion_shared") == 0 {
        set_thread_word!("tompion_shared", gettid());
    }
    if thread_word!("tompion_dumping") != 0 {
        set_thread_word!("tompion_dumping", SHARED_MEANWHILE);
    }
    forget_thread_id();
}

/// The thread runs a state dump.
const DUMPING: u32 = 1;
/// The thread runs a state dump, and its storage is shared for good.
const SHARED_MEANWHILE: u32 = 2;

/// Marks the calling thread as one that runs a state dump: none of its events goes the shortest
/// way. [`current`] looks for the mark only where the storage has an owner, so that it costs other
/// threads nothing.
pub fn begin_state_dump() {
    let is_shared = thread_word!("tompion_shared") != 0;
    if !is_shared {
        set_thread_word!("tompion_shared", gettid());
    }
    set_thread_word!("tompion_dumping", if is_shared { SHARED_MEANWHILE } else { DUMPING });
    forget_thread_id();
}

/// Takes the mark away.
pub fn end_state_dump() {
    if thread_word!("tompion_dumping") == DUMPING {
        set_thread_word!("tompion_shared", 0u32);
    }
    set_thread_word!("tompion_dumping", 0u32);
}

/// In the child of a fork: its thread runs no state dump of the child's recordings.
pub fn forget_state_dump() {
    if thread_word!("tompion_dumping") != 0 {
        end_state_dump();
    }
}
