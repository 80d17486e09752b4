//! Guard of mappings of files that others can shrink: what was cut off reads as zeros, instead of
//! ending the process.
//!
//! The kernel answers an access beyond a file's end with SIGBUS. The handler puts an empty page
//! there if the address lies in a guarded range, and leaves every other fault to the handler
//! installed before. Reading by `pread` instead would cost a system call for each look at a ring,
//! and say nothing of the order in which words are read.

use std::{
    io,
    ptr::{null_mut, without_provenance_mut},
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering},
    },
};

use crate::check;

const PAGE: usize = 4096;

/// A range under guard. Nodes are never freed, because the handler may be looking at one; they are
/// used again.
#[derive(Debug)]
struct Node {
    /// 0 where the node is free.
    base: AtomicUsize,
    len: AtomicUsize,
    cut: AtomicBool,
    next: AtomicPtr<Node>,
}

static FIRST: AtomicPtr<Node> = AtomicPtr::new(null_mut());
/// Held by threads that register ranges, never by the handler. Tells whether that is installed.
static REGISTRY: Mutex<bool> = Mutex::new(false);
/// Handler and flags that were there before, for faults that aren't ours.
static BEFORE: AtomicPtr<libc::sigaction> = AtomicPtr::new(null_mut());

/// Guards a range until it is dropped.
#[derive(Debug)]
pub struct Guard(&'static Node);

impl Guard {
    /// Whether something in the range was missing.
    pub fn was_cut(&self) -> bool {
        // Ordering: a flag by itself.
        self.0.cut.load(Ordering::Relaxed)
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        // Ordering: only the thread that unmaps the range could fault in it now.
        self.0.base.store(0, Ordering::Release);
    }
}

fn nodes() -> impl Iterator<Item = &'static Node> {
    // Ordering: pairs with the release store in `watch`. SAFETY: nodes are leaked boxes.
    let first = unsafe { FIRST.load(Ordering::Acquire).as_ref() };
    // SAFETY: as above.
    std::iter::successors(first, |node| unsafe { node.next.load(Ordering::Acquire).as_ref() })
}

/// Guards a mapping's range.
pub fn watch(base: usize, len: usize) -> io::Result<Guard> {
    let mut is_installed = REGISTRY.lock().unwrap_or_else(PoisonError::into_inner);
    if !*is_installed {
        install()?;
        *is_installed = true;
    }
    // Ordering: the registry's lock orders those who take nodes.
    let free = nodes().find(|node| node.base.load(Ordering::Acquire) == 0);
    let node = free.unwrap_or_else(|| {
        let next = AtomicPtr::new(FIRST.load(Ordering::Relaxed));
        let (base, len) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let node = Box::leak(Box::new(Node { base, len, cut: AtomicBool::new(false), next }));
        // Ordering: pairs with the acquire load in `nodes`.
        FIRST.store(node, Ordering::Release);
        node
    });
    node.cut.store(false, Ordering::Relaxed);
    node.len.store(len, Ordering::Relaxed);
    // Ordering: pairs with the acquire load in the handler: a handler that sees the base sees the
    // length.
    node.base.store(base, Ordering::Release);
    Ok(Guard(node))
}

fn install() -> io::Result<()> {
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let (mut action, mut before): (libc::sigaction, libc::sigaction) = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void) = on_fault;
    action.sa_sigaction = handler as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: asks for the present action.
    check(unsafe { libc::sigaction(libc::SIGBUS, std::ptr::null(), &raw mut before) })?;
    // Ordering: pairs with the acquire load in the handler, which can't run before it is installed.
    BEFORE.store(Box::leak(Box::new(before)), Ordering::Release);
    // SAFETY: the handler is of the type that SA_SIGINFO asks for, and only does what handlers may.
    check(unsafe { libc::sigaction(libc::SIGBUS, &raw const action, null_mut()) }).map(drop)
}

extern "C" fn on_fault(_: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    crate::keeping_errno(|| {
        // SAFETY: the kernel passes a valid structure to handlers with SA_SIGINFO.
        let address = unsafe { (*info).si_addr() } as usize;
        let holds = |node: &&Node| {
            // Ordering: pairs with the release store in `watch`.
            let base = node.base.load(Ordering::Acquire);
            base != 0 && address.wrapping_sub(base) < node.len.load(Ordering::Relaxed)
        };
        let mended = nodes().find(holds).is_some_and(|node| {
            node.cut.store(true, Ordering::Relaxed);
            put_empty_page(address & !(PAGE - 1))
        });
        if !mended {
            // The access is repeated, and answered as if this handler had never been.
            let before = BEFORE.load(Ordering::Acquire);
            // SAFETY: a leaked structure that the kernel filled in.
            unsafe { libc::sigaction(libc::SIGBUS, before, null_mut()) };
        }
    });
}

fn put_empty_page(page: usize) -> bool {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    // SAFETY: the page lies in a mapping that is under guard, which its owner keeps while it is
    // looked at; what was there is gone. `mmap` is a bare system call.
    let place = unsafe { libc::mmap(without_provenance_mut(page), PAGE, protection, flags, -1, 0) };
    place != libc::MAP_FAILED
}
