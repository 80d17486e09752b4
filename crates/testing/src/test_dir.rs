//! Temporary folders.

use std::{
    ffi::OsStr,
    ops::Deref,
    path::{Path, PathBuf},
};

use tempfile::TempDir;

/// Empty folder of one test, removed with its content on drop.
#[derive(Debug)]
pub struct TestDir {
    path: PathBuf,
    _removed_on_drop: TempDir,
}

impl TestDir {
    /// Creates the folder; its name begins with this one.
    ///
    /// # Panics
    /// If it can't be created.
    pub fn new(name: &str) -> Self {
        let dir = tempfile::Builder::new().prefix(&format!("tompion-test-{name}-")).tempdir();
        let dir = dir.expect("a folder for the test");
        Self { path: dir.path().to_owned(), _removed_on_drop: dir }
    }

    /// Path of the folder.
    pub fn path(&self) -> &PathBuf {
        &self.path
    }
}

impl Deref for TestDir {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        &self.path
    }
}

impl AsRef<Path> for TestDir {
    fn as_ref(&self) -> &Path {
        &self.path
    }
}

impl AsRef<OsStr> for TestDir {
    fn as_ref(&self) -> &OsStr {
        self.path.as_os_str()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn folders_are_distinct_empty_and_removed() {
        let (one, other) = (TestDir::new("twice"), TestDir::new("twice"));
        assert_ne!(one.path(), other.path());
        fs::write(one.join("file"), "").unwrap();
        assert_eq!(fs::read_dir(&other).unwrap().count(), 0);
        let path = one.path().clone();
        drop(one);
        assert!(!path.exists() && other.exists());
    }
}
