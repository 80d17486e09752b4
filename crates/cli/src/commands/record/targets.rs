//! Processes and programs that `tompion record` is to record.

use tompion_os::User;
use tompion_session::{ProcessTree, ProgramSets, SetError, Target, process_names, processes_named};

use super::Arguments;
use crate::messages::nearest_hint;

/// Returns what is recorded, or why that can't be.
pub fn target(arguments: &Arguments) -> Result<Target, String> {
    // The parser does not check it beside a command, which -p excludes.
    if arguments.no_children && arguments.pids.is_empty() {
        return Err("expected --no-children with -p PID, found it alone".into());
    }
    Ok(match (&arguments.gather_as, &arguments.pids[..], &arguments.command[..]) {
        (Some(name), _, _) => Target::SharedFolder(name.clone()),
        (None, [], []) => Target::Everything,
        (None, [], command) => Target::Command(command.to_vec()),
        (None, words, _) => Target::Processes(process_tree(words, !arguments.no_children)?),
    })
}

/// Returns the sets of programs that were given, limited to those of some users if there is a
/// limit.
pub fn programs(texts: &[String], limit: Option<&Vec<u32>>) -> Result<Option<ProgramSets>, SetError> {
    let own = tompion_os::effective_user();
    let sudo = User::behind_sudo().map(|user| user.uid()).filter(|_| own == 0);
    match (texts, limit) {
        ([], None) => Ok(None),
        (texts, None) => ProgramSets::parse(texts, [own].into_iter().chain(sudo).collect()).map(Some),
        (texts, Some(users)) => {
            let sets = ProgramSets::parse(texts, sudo.into_iter().collect())?;
            Ok(Some(sets.limited_to(users.clone())))
        }
    }
}

/// Finds the processes that were given by id or name.
fn process_tree(words: &[String], has_descendants: bool) -> Result<ProcessTree, String> {
    let mut named = Vec::new();
    for word in words.iter().map(|word| word.trim()) {
        match word.parse() {
            Ok(pid) => named.push(pid),
            Err(_) => named.extend(processes_of_name(word)?),
        }
    }
    Ok(ProcessTree::new(named, has_descendants))
}

fn processes_of_name(name: &str) -> Result<Vec<u32>, String> {
    let found = processes_named(name);
    if !found.is_empty() {
        return Ok(found);
    }
    let names = process_names();
    let hint = nearest_hint(name, names.iter().map(String::as_str));
    Err(format!("no process is named `{name}`{hint}"))
}
