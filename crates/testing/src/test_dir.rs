//! Temporary folders.

use std::{
    env,
    ffi::OsStr,
    fs,
    ops::Deref,
    path::{Path, PathBuf},
    process,
    sync::atomic::{AtomicU32, Ordering},
};

/// Empty folder of one test, removed with its content on drop.
#[derive(Debug)]
pub struct TestDir(PathBuf);

impl TestDir {
    /// Creates the folder; it has the name and numbers that make it unique.
    ///
    /// # Panics
    /// If it can't be created.
    pub fn new(name: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        // Ordering: only the number counts.
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = env::temp_dir().join(format!("tompion-test-{name}-{}-{number}", process::id()));
        // A process of this number may have left it when it was killed.
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).expect("a folder for the test");
        Self(path)
    }

    /// Path of the folder.
    pub fn path(&self) -> &PathBuf {
        &self.0
    }
}

impl Drop for TestDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

impl Deref for TestDir {
    type Target = PathBuf;

    fn deref(&self) -> &PathBuf {
        &self.0
    }
}

impl AsRef<Path> for TestDir {
    fn as_ref(&self) -> &Path {
        &self.0
    }
}

impl AsRef<OsStr> for TestDir {
    fn as_ref(&self) -> &OsStr {
        self.0.as_os_str()
    }
}

#[cfg(test)]
mod tests {
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
