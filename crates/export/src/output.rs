//! The folder that is written: a new one, gone again if something fails.

use std::collections::HashSet;
use std::fs;
use std::path::{Component, Path, PathBuf};

use crate::Error;

/// Makes a folder, which must not be there, and removes it if what fills it fails.
pub(crate) fn in_new_folder<T>(folder: &Path, fill: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
    if let Some(parent) = folder.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(Error::io(parent))?;
    }
    match fs::create_dir(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists(folder.into()));
        }
        made => made.map_err(Error::io(folder))?,
    }
    fill().inspect_err(|_| {
        // Half a trace is none; what can't be removed is said by the error that led here.
        let _ = fs::remove_dir_all(folder);
    })
}

/// Where traces below some paths go: one path's as they stand below it, those of several below a folder for each.
pub(crate) struct Places {
    roots: Vec<(PathBuf, PathBuf)>,
}

impl Places {
    pub fn new(roots: &[PathBuf], out: &Path) -> Self {
        let mut taken = HashSet::new();
        let place = |root: &PathBuf| match roots {
            [_] => (root.clone(), out.to_owned()),
            _ => (root.clone(), out.join(unique(&name_of(root), &mut taken))),
        };
        Self { roots: roots.iter().map(place).collect() }
    }

    /// The paths and where they go.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &Path)> {
        self.roots.iter().map(|(root, place)| (root.as_path(), place.as_path()))
    }

    /// Where the trace in a folder goes.
    pub fn of(&self, folder: &Path) -> PathBuf {
        let below =
            self.roots.iter().filter_map(|(root, place)| Some((folder.strip_prefix(root).ok()?, place)));
        // The closest one, if one path lies below another.
        let closest = below.min_by_key(|(below, _)| below.components().count());
        closest.map_or_else(|| folder.to_owned(), |(below, place)| place.join(below))
    }
}

/// What to call a folder.
fn name_of(path: &Path) -> String {
    let name = |path: &Path| match path.components().next_back() {
        Some(Component::Normal(name)) => Some(name.to_string_lossy().into_owned()),
        _ => None,
    };
    name(path).or_else(|| name(&path.canonicalize().ok()?)).unwrap_or_else(|| "trace".into())
}

/// The name, with a number if it is taken.
fn unique(name: &str, taken: &mut HashSet<String>) -> String {
    let numbered = (2..).map(|number| format!("{name}-{number}"));
    let free = std::iter::once(name.to_owned()).chain(numbered).find(|name| !taken.contains(name));
    let free = free.unwrap_or_default();
    taken.insert(free.clone());
    free
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_of_several_paths_have_folders_of_their_own() {
        let roots = ["a/x".into(), "b/x/".into(), "c".into()];
        let places = Places::new(&roots, Path::new("out"));
        assert_eq!(places.of(Path::new("a/x")), Path::new("out/x"));
        assert_eq!(places.of(Path::new("b/x/user/1")), Path::new("out/x-2/user/1"));
        assert_eq!(places.of(Path::new("c/kernel")), Path::new("out/c/kernel"));
        let places = Places::new(&[".".into()], Path::new("out"));
        assert_eq!(places.of(Path::new("./user/1")), Path::new("out/user/1"));
    }
}
