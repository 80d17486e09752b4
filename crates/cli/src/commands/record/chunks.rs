//! Options of a recording in chunks.

use clap::Args;
use tompion_chunks::{Policy, Retention, Rotation};

/// Options of a recording in chunks.
#[derive(Args)]
pub struct ChunkOptions {
    /// Record into chunks, folders in DIR that are traces in themselves. Begin a new one after a
    /// time or a size, such as 10min, size=1G or 10min,size=1G; with manual, only on `tompion
    /// rotate`
    #[arg(long, value_name = "WHEN", conflicts_with_all = ["backing", "kernel", "gather_as"])]
    rotate: Option<Rotation>,
    /// Keep at most so many chunks, such as age=2d,size=50G,count=100, and remove the oldest
    #[arg(long, value_name = "LIMITS", requires = "rotate")]
    keep: Option<Retention>,
}

impl ChunkOptions {
    /// Returns the rules of a recording in chunks; none if it is to be one trace.
    pub fn policy(&self) -> Option<Policy> {
        let retention = self.keep.unwrap_or_default();
        self.rotate.map(|rotation| Policy { rotation, retention })
    }
}
