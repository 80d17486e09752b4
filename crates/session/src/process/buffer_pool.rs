//! Pool of buffers for copies of rings.
//!
//! How much is copied at once is never the same, and memory that comes fresh from the kernel costs
//! as much as converting what is in it. So buffers are kept, and each copy gets the smallest that
//! holds it: were large ones given to small copies, all would be large in the end.

/// Bytes of buffers that are kept: as many as may wait to be converted.
const MAX_BYTES: usize = super::MAX_PENDING_BYTES as usize;
/// Buffers that are kept.
const MAX_BUFFERS: usize = 256;
/// Sizes are multiples of this.
const STEP: usize = 64 << 10;

/// Buffers that wait for the next copy.
#[derive(Debug, Default)]
pub struct BufferPool {
    buffers: Vec<Vec<u8>>,
    bytes: usize,
    /// Minimum number of idle buffers since [`BufferPool::trim`].
    idle_low_water: usize,
}

impl BufferPool {
    /// A buffer with room for so many bytes, and a little more. What is in it is of no use.
    pub fn take(&mut self, len: usize) -> Vec<u8> {
        let fits = |(_, buffer): &(usize, &Vec<u8>)| buffer.capacity() >= len;
        let buffers = self.buffers.iter().enumerate().filter(fits);
        match buffers.min_by_key(|(_, buffer)| buffer.capacity()).map(|(index, _)| index) {
            Some(index) => {
                let buffer = self.buffers.swap_remove(index);
                self.bytes -= buffer.capacity();
                self.idle_low_water = self.idle_low_water.min(self.buffers.len());
                buffer
            }
            // The ring goes on being filled.
            None => Vec::with_capacity((len + STEP / 4).next_multiple_of(STEP)),
        }
    }

    /// Gives half of those back that were not needed since this was called the last time.
    pub fn trim(&mut self) {
        for buffer in self.buffers.drain(..self.idle_low_water.div_ceil(2)) {
            self.bytes -= buffer.capacity();
        }
        self.idle_low_water = self.buffers.len();
    }

    /// Keeps a buffer, if there are not too many.
    pub fn put(&mut self, buffer: Vec<u8>) {
        if self.buffers.len() < MAX_BUFFERS && self.bytes + buffer.capacity() <= MAX_BYTES {
            self.bytes += buffer.capacity();
            self.buffers.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_gets_the_smallest_buffer_that_holds_it() {
        let mut pool = BufferPool::default();
        let large = pool.take(1 << 20);
        let small = pool.take(1000);
        let (large_size, small_size) = (large.capacity(), small.capacity());
        assert!(small_size < large_size && small_size >= 1000);
        pool.put(large);
        pool.put(small);
        assert_eq!(pool.take(10).capacity(), small_size);
        assert_eq!(pool.take(10).capacity(), large_size);
        assert_eq!(pool.take(10).capacity(), small_size, "a new one");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let mut pool = BufferPool::default();
        for _ in 0..100 {
            pool.put(Vec::with_capacity(1 << 20));
        }
        assert_eq!((pool.buffers.len(), pool.bytes), (MAX_BYTES >> 20, MAX_BYTES));
        for _ in 0..8 {
            pool.trim();
        }
        assert_eq!((pool.buffers.len(), pool.bytes), (0, 0));
        let kept = pool.take(1);
        pool.put(kept);
        pool.trim();
        assert_eq!(pool.buffers.len(), 1, "it was needed");
    }
}
