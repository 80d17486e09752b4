//! Several traces in one folder, each as it is.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use tompion_ctf::metadata::EnvironmentValue;
use tompion_os::DirHandle;
use tompion_reader::TraceSet;

use crate::Error;
use crate::output::{self, Places, in_new_folder};

/// Maximum depth of folders that are copied.
const MAX_DEPTH: usize = 32;

/// Summary of a merge.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Merged {
    /// Number of traces.
    pub traces: usize,
    /// Hostnames of the traces, if stated.
    pub hosts: BTreeSet<String>,
    /// Number of clocks known to be different: of other machines, or of other boots.
    pub clocks: usize,
    /// Number of bytes copied.
    pub bytes: u64,
}

/// Copies traces into one new folder, in which readers find all of them. Nothing in them changes:
/// each keeps its clock with its offset.
///
/// # Errors
///
/// If a trace was named twice, the folder exists, or a file can't be copied. Nothing is left then.
pub fn merge(traces: &TraceSet, out: &Path) -> Result<Merged, Error> {
    let mut roots: BTreeSet<PathBuf> = BTreeSet::new();
    for root in traces.roots() {
        let real = root.canonicalize().map_err(Error::io(root))?;
        let overlaps = |other: &PathBuf| other.starts_with(&real) || real.starts_with(other);
        if roots.iter().any(overlaps) {
            return Err(Error::Twice(root.clone()));
        }
        roots.insert(real);
    }
    let mut merged = Merged { traces: traces.traces().len(), ..Merged::default() };
    let mut clocks = BTreeSet::new();
    for trace in traces.traces() {
        let host = trace.metadata().environment_value("hostname").and_then(EnvironmentValue::as_text);
        merged.hosts.extend(host.map(str::to_owned));
        clocks.extend(trace.metadata().clocks.iter().filter_map(|clock| clock.uuid));
    }
    merged.clocks = clocks.len();
    in_new_folder(out, |out| {
        for (root, place) in Places::new(traces.roots(), out).iter() {
            // A single trace gets its own folder too, so that others can be added beside it.
            merged.bytes += copy(root, place, out.path(), 0)?;
        }
        Ok(merged)
    })
}

/// Copies a folder's files and folders, except the output folder.
fn copy(from: &Path, to: &DirHandle, out: &Path, depth: usize) -> Result<u64, Error> {
    to.make().map_err(Error::io(to.path()))?;
    let mut bytes = 0;
    for entry in fs::read_dir(from).map_err(Error::io(from))? {
        let entry = entry.map_err(Error::io(from))?;
        let path = entry.path();
        let kind = fs::metadata(&path).map_err(Error::io(&path))?;
        if kind.is_dir() {
            let is_out = path.canonicalize().is_ok_and(|path| path == out);
            if depth < MAX_DEPTH && !is_out {
                bytes += copy(&path, &to.join(entry.file_name()), out, depth + 1)?;
            }
        } else if kind.is_file() {
            bytes += output::copy(&path, to, entry.file_name())?;
        }
    }
    Ok(bytes)
}
