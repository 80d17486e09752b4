//! Output folder: a new one, removed if writing fails.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

use tompion_os::DirHandle;

use crate::Error;

/// Creates a folder, which must not exist, and removes it if filling it fails.
pub(crate) fn in_new_folder<T>(
    folder: &Path,
    fill: impl FnOnce(&DirHandle) -> Result<T, Error>,
) -> Result<T, Error> {
    let made = match DirHandle::create_all(folder) {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(Error::Exists(folder.into()));
        }
        made => made.map_err(Error::io(folder))?,
    };
    fill(&made).inspect_err(|_| {
        // A partial trace is useless. If it can't be removed, the original error matters more.
        let _ = made.remove_all();
    })
}

/// Copies a file into a folder, where nothing may have its name. Returns its size.
pub(crate) fn copy(from: &Path, folder: &DirHandle, name: impl AsRef<OsStr>) -> Result<u64, Error> {
    let name = name.as_ref();
    let copied = || std::io::copy(&mut tompion_os::open_regular(from)?, &mut folder.create_new(name)?);
    copied().map_err(Error::io(folder.path().join(name)))
}

/// Output folders of traces below some paths. A single path maps to the output folder itself,
/// several paths to a subfolder each.
pub(crate) struct Places {
    roots: Vec<(PathBuf, DirHandle)>,
}

impl Places {
    pub fn new(roots: &[PathBuf], out: &DirHandle) -> Self {
        let mut taken = HashSet::new();
        let place = |root: &PathBuf| match roots {
            [_] => (root.clone(), out.clone()),
            _ => (root.clone(), out.join(unique(&name_of(root), &mut taken))),
        };
        Self { roots: roots.iter().map(place).collect() }
    }

    /// Returns the paths with their output folders.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &DirHandle)> {
        self.roots.iter().map(|(root, place)| (root.as_path(), place))
    }

    /// Returns the output folder of the trace in a folder.
    pub fn of(&self, folder: &Path) -> Option<DirHandle> {
        let below =
            self.roots.iter().filter_map(|(root, place)| Some((folder.strip_prefix(root).ok()?, place)));
        // The closest one, if one path is below another.
        let closest = below.min_by_key(|(below, _)| below.components().count());
        closest.map(|(below, place)| place.join(below))
    }
}

/// Returns the name for a folder.
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
        let desk = tempfile::tempdir().unwrap();
        let out = DirHandle::open(desk.path()).unwrap();
        let of = |places: &Places, folder: &str| {
            let place = places.of(Path::new(folder))?;
            Some(place.path().strip_prefix(out.path()).unwrap().to_owned())
        };
        let places = Places::new(&roots, &out);
        assert_eq!(of(&places, "a/x").unwrap(), Path::new("x"));
        assert_eq!(of(&places, "b/x/user/1").unwrap(), Path::new("x-2/user/1"));
        assert_eq!(of(&places, "c/kernel").unwrap(), Path::new("c/kernel"));
        assert_eq!(of(&places, "elsewhere"), None);
        let places = Places::new(&[".".into()], &out);
        assert_eq!(of(&places, "./user/1").unwrap(), Path::new("user/1"));
    }
}
