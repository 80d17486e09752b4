//! Grants of other users, as text.

use std::{
    io::{self, Write},
    path::PathBuf,
};

use tompion_grants::Grants;
use tompion_terminal::messages::{escape_control, print_status};

/// Writes the grants in these folders, and prints what is wrong with their files. Returns whether
/// nothing is.
///
/// # Errors
/// If they can't be written.
pub fn write_grants(folders: &[PathBuf], output: &mut dyn Write) -> io::Result<bool> {
    let grants = Grants::read(folders);
    for grant in &grants.all {
        writeln!(output, "{}", escape_control(&grant.to_string()))?;
    }
    if grants.all.is_empty() {
        let folders: Vec<String> = folders.iter().map(|folder| folder.display().to_string()).collect();
        print_status(format!("no grants in {}", folders.join(", ")));
    }
    grants.problems.iter().for_each(|problem| print_status(escape_control(problem)));
    Ok(grants.problems.is_empty())
}
