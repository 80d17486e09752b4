//! Options for the memory of rings.

use clap::Args;
use tompion_session::RingLimit;

use crate::units;

/// Options for the memory of rings.
#[derive(Args)]
pub struct MemoryOptions {
    /// Let the rings of all programs take at most this memory, such as 256M. Each program gets a
    /// quarter of what is left, or rings of the chosen sizes; once too little is left, the next
    /// ones are refused, and counted
    #[arg(long, value_name = "SIZE", value_parser = units::size, conflicts_with_all = ["gather_as", "selector"])]
    memory: Option<u64>,
    /// Set the size of a sub-buffer: 4K to 256M, a power of two [default: 256K]
    #[arg(long, value_name = "SIZE", value_parser = units::size)]
    subbuf_size: Option<u64>,
    /// Set the number of sub-buffers per CPU: 2 to 4096, a power of two [default: 4]
    #[arg(long, value_name = "N")]
    subbufs: Option<u64>,
    /// Make all pages of a program's rings present before its first event, so that no event takes a
    /// page fault. Each program then has all of its rings' memory
    #[arg(long, conflicts_with_all = ["backing", "gather_as", "selector"])]
    pub prefault: bool,
}

impl MemoryOptions {
    /// Returns the bytes of a sub-buffer.
    pub fn subbuf_size(&self) -> u64 {
        self.subbuf_size.unwrap_or(256 << 10)
    }

    /// Returns the number of sub-buffers of each CPU.
    pub fn subbufs(&self) -> u64 {
        self.subbufs.unwrap_or(4)
    }

    /// Returns the limit of all rings, if there is one.
    pub fn limit(&self) -> Option<RingLimit> {
        let keeps_sizes = self.subbuf_size.is_some() || self.subbufs.is_some();
        self.memory.map(|bytes| RingLimit { bytes, keeps_sizes })
    }
}
