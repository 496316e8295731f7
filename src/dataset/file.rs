//! A file that is read by place: no cursor, so any number of threads may share it, and nothing is mapped, so that a file that is cut off
//! while it is read gives an error and not a signal.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::error::{Error, Result};

/// An open file and its length when it was opened.
#[derive(Debug)]
pub struct DataFile {
    path: PathBuf,
    file: File,
    len: u64,
}

impl DataFile {
    /// Opens a file to be read.
    pub fn open(path: &Path) -> Result<Self> {
        let refused = |error: io::Error| Error::io(path.display().to_string(), &error);
        let file = File::open(path).map_err(refused)?;
        let about = file.metadata().map_err(refused)?;
        if about.is_dir() {
            return Err(Error::file(path, "a folder, expected a file"));
        }
        Ok(Self { path: path.to_path_buf(), file, len: about.len() })
    }

    /// Opens a file again that had `len` bytes before.
    pub fn reopen(path: &Path, len: u64) -> Result<Self> {
        let file = Self::open(path)?;
        if file.len == len { Ok(file) } else { Err(file.fault("changed while it was read; read it again")) }
    }

    /// Its length in bytes.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Fills `out` with the bytes from `offset` on.
    pub fn read(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.read_exact_at(offset, out).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => self.fault(format!("ends before byte {}", offset.saturating_add(out.len() as u64))),
            _ => Error::io(self.path.display().to_string(), &error),
        })
    }

    /// [`DataFile::read`] with the system's own error.
    pub fn read_exact_at(&self, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
        while !out.is_empty() {
            match self.read_at(offset, out) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => {
                    out = &mut out[read..];
                    offset += read as u64;
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads some bytes from `offset` on; 0 at the end.
    #[cfg(unix)]
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::unix::fs::FileExt::read_at(&self.file, out, offset)
    }

    /// Reads some bytes from `offset` on; 0 at the end.
    #[cfg(windows)]
    pub fn read_at(&self, offset: u64, out: &mut [u8]) -> io::Result<usize> {
        std::os::windows::fs::FileExt::seek_read(&self.file, out, offset)
    }

    /// The error that says what is wrong with this file.
    pub fn fault(&self, problem: impl Into<String>) -> Error {
        Error::file(&self.path, problem)
    }
}
