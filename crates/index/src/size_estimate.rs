//! Estimate of an index's size: some parts of the trace are indexed in memory.
//!
//! An index takes from 7 to 42 % of its trace. That depends on the kinds of events, on their sizes
//! and rates, and on the number of threads, and all of these show in samples. Estimates were 0.97
//! to 1.6 times the true size before the margin. The largest was of 32,000 threads that each have a
//! few events in a sample.

use std::fs::File;
use std::io;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::fs::{MemfdFlags, memfd_create};
use tompion_reader::{Selection, TraceSet};

use crate::foreground_gate::ForegroundGate;
use crate::indexer::{Indexer, Outline};
use crate::store::Store;
use crate::{Shared, directory};

/// Maximum number of parts that are indexed. The first one is at the trace's begin.
const MAX_SAMPLES: usize = 3;
/// An estimate is increased by one of this many parts: parts of a trace differ.
const MARGIN_SHARE: u64 = 8;
/// Bytes that any index may take besides.
const BASE: u64 = 256 << 10;

/// Returns the bytes that an index of unread traces is expected to take at most. It reads the
/// headers of all packets, and up to three parts.
///
/// # Errors
///
/// If the parts can't be indexed.
pub fn estimate(set: &TraceSet) -> io::Result<u64> {
    let outline = Outline::new(set);
    let parts = outline.parts.clone();
    let mut samples: Vec<usize> =
        (0..MAX_SAMPLES).map(|sample| parts.count() * sample / MAX_SAMPLES).collect();
    samples.dedup();
    let (mut read, mut written) = (0u64, 0u64);
    for sample in samples {
        let Some(part) = parts.read(sample, Selection::default()) else { continue };
        read = read.saturating_add(parts.bytes(sample));
        written = written.saturating_add(index_size(part, outline.clone())?);
    }
    let all = (0..parts.count()).map(|part| parts.bytes(part)).fold(0, u64::saturating_add);
    let expected = u128::from(written) * u128::from(all) / u128::from(read.max(1));
    let expected = u64::try_from(expected).unwrap_or(u64::MAX);
    Ok(expected.saturating_add(expected / MARGIN_SHARE).saturating_add(BASE))
}

/// Returns the size of the index of a part of a trace with this outline.
fn index_size(part: TraceSet, outline: Outline) -> io::Result<u64> {
    let file = File::from(memfd_create("tompion-index-sample", MemfdFlags::CLOEXEC)?);
    let (index, indexer) = Indexer::new(part, outline, (Store::new(file, 0), None));
    let index = Shared::new(index);
    indexer.run(&index, &AtomicBool::new(false), &Arc::<ForegroundGate>::default());
    let index = index.read();
    match &index.error {
        Some(error) => Err(io::Error::other(error.clone())),
        None => Ok(index.store.end() + directory::size(&index)),
    }
}
