//! Files that are there whole or not at all, also after a power cut where that is wanted.

use std::{
    fs::{self, File},
    io::{self, Write},
    path::Path,
};

/// Writes a file beside the old one, then puts it in its place; `durable`: the medium has it on return.
pub fn replace_file(path: &Path, bytes: &[u8], durable: bool) -> io::Result<()> {
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(".new");
    let write = || -> io::Result<()> {
        let mut file = File::create(&temporary)?;
        file.write_all(bytes)?;
        if durable {
            file.sync_all()?;
        }
        fs::rename(&temporary, path)?;
        path.parent().filter(|_| durable).map_or(Ok(()), sync_folder)
    };
    write().inspect_err(|_| {
        let _ = fs::remove_file(&temporary);
    })
}

/// Sees to it that the medium has a folder's entries.
pub fn sync_folder(folder: &Path) -> io::Result<()> {
    let folder = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
    File::open(folder)?.sync_all()
}

/// Reads a file of at most so many bytes.
pub fn read_bounded(path: &Path, most: u64) -> io::Result<Vec<u8>> {
    use io::Read;
    let file = File::open(path)?;
    let size = file.metadata()?.len();
    if size > most {
        let text = format!("expected at most {most} bytes, found {size}");
        return Err(io::Error::new(io::ErrorKind::InvalidData, text));
    }
    let mut bytes = Vec::with_capacity(size as usize);
    file.take(most).read_to_end(&mut bytes)?;
    Ok(bytes)
}
