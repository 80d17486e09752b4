//! One module for each command.

pub mod apply;
pub mod clear;
pub mod counts;
pub mod doctor;
pub mod export;
pub mod keep;
pub mod list;
pub mod manual;
pub mod merge;
pub mod monitor;
pub mod print;
pub mod record;
pub mod recover;
pub mod rotate;
pub mod rules;
pub mod serve;
pub mod shield;
pub mod snapshot;
pub mod stat;
pub mod status;
pub mod stop;
pub mod test;
pub mod top;
pub mod trigger;
pub mod trim;
pub mod view;

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use tompion_control::{Recording, recordings};
use tompion_os::{FileRights, User};

/// Returns the given traces, or the newest one in the current folder.
fn traces(named: &[PathBuf]) -> anyhow::Result<Vec<PathBuf>> {
    if !named.is_empty() {
        return Ok(named.to_vec());
    }
    let manifest = |folder: &Path| folder.join(tompion_reader::manifest::NAME);
    let entries = std::fs::read_dir(".").context("can't read the current folder")?;
    let folders = entries.filter_map(Result::ok).map(|entry| entry.path());
    let newest = folders
        .filter_map(|folder| Some((manifest(&folder).metadata().ok()?.modified().ok()?, folder)))
        .max();
    match newest {
        Some((_, folder)) => {
            let folder = folder.strip_prefix(".").map(Path::to_owned).unwrap_or(folder);
            crate::messages::print_status(format!("newest trace in this folder: {}", folder.display()));
            Ok(vec![folder])
        }
        None => {
            bail!("no trace given, and none in this folder; record one: tompion record -- CMD")
        }
    }
}

/// Returns the named recording, or this user's only one. None, which is reported, if there are
/// several.
fn only_recording(name: Option<&str>) -> anyhow::Result<Option<Recording>> {
    if let Some(name) = name {
        return Ok(Some(Recording::find(name)?));
    }
    let mut all = recordings();
    match all.len() {
        0 => bail!("no recording of this user is running"),
        1 => Ok(all.pop()),
        _ => {
            let names: Vec<&str> = all.iter().map(Recording::name).collect();
            let text = format!("several recordings are running; name one: {}", names.join(", "));
            crate::messages::print_status(text);
            Ok(None)
        }
    }
}

/// Takes the file rights of the user who called sudo, for paths that the user gave. The command may
/// have root's rights at the moment.
fn invoking_users_rights() -> anyhow::Result<Option<FileRights>> {
    let user = User::behind_sudo();
    user.map(|user| user.own_files()).transpose().context("can't act as the user who called sudo")
}

/// Writes a file that the user named, with no more than the user's rights. An older file is
/// replaced.
fn write_file(path: &Path, bytes: &[u8]) -> anyhow::Result<()> {
    let _rights = invoking_users_rights()?;
    tompion_os::write_file(path, bytes).with_context(|| format!("can't write {}", path.display()))
}

/// Warns about each trace with a killed session and gives advice. Returns true if there is one.
fn warn_if_incomplete(traces: &[PathBuf]) -> bool {
    let mut found = false;
    for folder in traces.iter().filter_map(|trace| tompion_session::incomplete(trace)) {
        found = true;
        let folder = folder.display();
        crate::messages::print_status(format!(
            "warning: {folder} is incomplete: its session was killed; tompion recover {folder} completes it"
        ));
    }
    found
}

/// Reports timestamp regressions, unusable indexes and corruptions.
fn report_problems(traces: &tompion_reader::TraceSet) {
    for regression in traces.timestamp_regressions() {
        crate::messages::print_status(format!(
            "warning: {regression}; events are shown in the order of the file"
        ));
    }
    for problem in traces.index_problems() {
        crate::messages::print_status(format!("warning: {problem}; the index is not used"));
    }
    for corruption in traces.corruptions() {
        crate::messages::print_status(corruption);
    }
}
