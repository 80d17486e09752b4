//! Pool of a fixed number of blocks that hold lines until they are written.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Number of bytes after which a block is full.
pub(super) const BLOCK_BYTES: usize = 1 << 20;
/// Maximum number of blocks in use.
pub(super) const MAX_BLOCKS: usize = 64;
/// Number of blocks reserved for the window that is being written.
const RESERVED_BLOCKS: usize = 4;

/// Pool of all blocks.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// Notified when a block becomes free, and when the next window is written.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// Number of blocks in use.
    used: usize,
    free: Vec<Vec<u8>>,
    /// Number of the window that is being written.
    current_window: u64,
    is_over: bool,
}

/// Block of lines. Dropping it returns its memory to the pool.
pub(super) struct Block {
    pub text: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an empty block for lines of a window.
    pub fn take(self: &Arc<Self>, window: u64) -> Block {
        let mut state = self.state();
        // Later windows never hold all blocks, so the one that is being written can always
        // continue.
        while !state.is_over
            && state.used
                >= if state.current_window == window { MAX_BLOCKS } else { MAX_BLOCKS - RESERVED_BLOCKS }
        {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.used += 1;
        // The block written last is most likely still in a CPU cache.
        let text = state.free.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK_BYTES + 4096));
        Block { text, pool: self.clone() }
    }

    /// Begins to write this window.
    pub fn begin_window(&self, window: u64) {
        self.state().current_window = window;
        self.changed.notify_all();
    }

    /// Ends all waiting.
    pub fn stop(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.used -= 1;
        // A block that a long line has enlarged is not kept.
        if self.text.capacity() <= 2 * BLOCK_BYTES {
            self.text.clear();
            state.free.push(std::mem::take(&mut self.text));
        }
        self.pool.changed.notify_all();
    }
}
