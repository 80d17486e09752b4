//! Name of the machine, and the user's folders for files of programs.

use std::{env, ffi::OsString, fs, path::PathBuf};

/// Returns the machine's name, if it has one. Source: `proc_sys_kernel(5)`.
pub fn host_name() -> Option<String> {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Returns the user's folder for files of a kind: that of a variable such as `XDG_STATE_HOME`, else
/// one below the home folder. Relative paths don't count. Source: the XDG Base Directory
/// Specification.
pub fn user_folder(variable: &str, below_home: &str) -> Option<PathBuf> {
    folder_of(|name| env::var_os(name), variable, below_home)
}

fn folder_of(
    environment: impl Fn(&str) -> Option<OsString>,
    variable: &str,
    below_home: &str,
) -> Option<PathBuf> {
    let absolute = |name| environment(name).map(PathBuf::from).filter(|path| path.is_absolute());
    absolute(variable).or_else(|| Some(absolute("HOME")?.join(below_home)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relative_folder_is_none() {
        let folder = |variable: Option<&str>, home: Option<&str>| {
            let environment = |name: &str| if name == "HOME" { home } else { variable }.map(OsString::from);
            folder_of(environment, "XDG_STATE_HOME", ".local/state")
        };
        assert_eq!(folder(Some("/state"), Some("/home/a")), Some("/state".into()));
        for variable in [None, Some(""), Some("state")] {
            assert_eq!(folder(variable, Some("/home/a")), Some("/home/a/.local/state".into()));
            assert_eq!(folder(variable, Some("a")), None);
            assert_eq!(folder(variable, None), None);
        }
    }
}
