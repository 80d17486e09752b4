//! Files whose size other programs decide.

use std::{
    io::{self, Read},
    path::PathBuf,
};

use tompion_os::DirHandle;

/// Reads a file of at most so many bytes.
pub fn read_bounded(folder: &DirHandle, name: &str, most: u64) -> io::Result<Vec<u8>> {
    let file = folder.read(name)?;
    let size = file.metadata()?.len();
    if size > most {
        let text = format!("expected at most {most} bytes, found {size}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Path of a file in a folder, for people.
pub fn path_in(folder: &DirHandle, name: &str) -> PathBuf {
    folder.path().join(name)
}
