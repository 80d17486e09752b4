//! Room for lines until they are written: so many blocks, and no more.

use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes after which a block is full.
pub(super) const BLOCK: usize = 1 << 20;
/// Most blocks that are in use.
pub(super) const BLOCKS: usize = 64;
/// How many of these are kept for the window whose turn it is.
const KEPT: usize = 4;

/// All blocks.
#[derive(Default)]
pub(super) struct Pool {
    state: Mutex<State>,
    /// Told when a block is free again, and at each turn.
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// How many are in use.
    used: usize,
    free: Vec<Vec<u8>>,
    /// The number of the window that is being written.
    turn: u64,
    is_over: bool,
}

/// Some lines. Whoever drops them gives their room back.
pub(super) struct Block {
    pub text: Vec<u8>,
    pool: Arc<Pool>,
}

impl Pool {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// An empty block for lines of a window, when there is one for it.
    pub fn take(self: &Arc<Self>, window: u64) -> Block {
        let mut state = self.state();
        // Windows behind the one that is being written never hold all of them: that one goes on.
        while !state.is_over && state.used >= if state.turn == window { BLOCKS } else { BLOCKS - KEPT } {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.used += 1;
        // The last one that was written is the likeliest to be still in a cache.
        let text = state.free.pop().unwrap_or_else(|| Vec::with_capacity(BLOCK + 4096));
        Block { text, pool: self.clone() }
    }

    /// It is this window's turn to be written.
    pub fn turn(&self, window: u64) {
        self.state().turn = window;
        self.changed.notify_all();
    }

    /// Nobody waits any more.
    pub fn stop(&self) {
        self.state().is_over = true;
        self.changed.notify_all();
    }
}

impl Drop for Block {
    fn drop(&mut self) {
        let mut state = self.pool.state();
        state.used -= 1;
        // One that a long line has made large is not kept.
        if self.text.capacity() <= 2 * BLOCK {
            self.text.clear();
            state.free.push(std::mem::take(&mut self.text));
        }
        self.pool.changed.notify_all();
    }
}
