//! Files on disk.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, ErrorKind, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Hold, ReadAt, Storage, WriteAt};
use crate::error::{Error, Result};

/// A directory on disk.
#[derive(Debug, Clone)]
pub struct Disk {
    root: PathBuf,
}

impl Disk {
    /// The directory at `path`, which must be there.
    pub fn open(path: &Path) -> Result<Self> {
        let root = path.canonicalize().map_err(|error| failed(path, error))?;
        if root.is_dir() { Ok(Self { root }) } else { Err(failed(path, ErrorKind::NotADirectory.into())) }
    }

    /// The directory at `path`, made where it is missing.
    pub fn create(path: &Path) -> Result<Self> {
        match fs::create_dir_all(path) {
            // Something else has the name; opening it says what is wrong.
            Err(error) if error.kind() != ErrorKind::AlreadyExists => Err(failed(path, error)),
            _ => Self::open(path),
        }
    }

    /// The directory, with all links followed.
    pub fn root(&self) -> &Path {
        &self.root
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    fn make_folder(&self, path: &Path) -> Result<()> {
        match path.parent() {
            Some(folder) if !folder.is_dir() => fs::create_dir_all(folder).map_err(|error| failed(folder, error)),
            _ => Ok(()),
        }
    }
}

fn failed(path: &Path, error: io::Error) -> Error {
    Error::io(path.display().to_string(), &error)
}

impl Storage for Disk {
    fn describe(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        let path = self.path(folder);
        let entries = match fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(failed(&path, error)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(|error| failed(&path, error))?;
            if entry.file_type().is_ok_and(|kind| kind.is_file()) {
                names.extend(entry.file_name().into_string());
            }
        }
        Ok(names)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        let path = self.path(name);
        let file = File::open(&path).map_err(|error| failed(&path, error))?;
        Ok(Arc::new(DiskFile { file, path }))
    }

    fn write(&self, name: &str) -> Result<Box<dyn WriteAt>> {
        let path = self.path(name);
        self.make_folder(&path)?;
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(&path).map_err(|error| failed(&path, error))?;
        Ok(Box::new(DiskFile { file, path }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        static TURN: AtomicU64 = AtomicU64::new(0);
        let path = self.path(name);
        self.make_folder(&path)?;
        let turn = TURN.fetch_add(1, Ordering::Relaxed);
        let temporary = path.with_extension(format!("{}-{turn}.tmp", std::process::id()));
        let put = || -> io::Result<()> {
            let mut file = File::create(&temporary)?;
            file.write_all(bytes)?;
            file.sync_all()?;
            fs::rename(&temporary, &path)
        };
        if let Err(error) = put() {
            // The error counts; a leftover is collected later.
            let _ = fs::remove_file(&temporary);
            return Err(failed(&path, error));
        }
        match path.parent() {
            Some(folder) => sync_directory(folder),
            None => Ok(()),
        }
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        sync_directory(&self.path(folder))
    }

    fn remove(&self, name: &str) -> Result<()> {
        let path = self.path(name);
        match fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(&path, error)),
            _ => Ok(()),
        }
    }

    fn hold(&self, name: &str, alone: bool) -> Result<Option<Box<dyn Hold>>> {
        let path = self.path(name);
        // A lock shared with others needs no right to write.
        let file = if alone {
            self.make_folder(&path)?;
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&path)
        } else {
            File::open(&path)
        };
        let file = file.map_err(|error| failed(&path, error))?;
        let locked = if alone { file.try_lock() } else { file.try_lock_shared() };
        match locked {
            Ok(()) => Ok(Some(Box::new(DiskHold { file, path, owner: std::process::id() }))),
            Err(TryLockError::WouldBlock) => Ok(None),
            Err(TryLockError::Error(error)) => Err(failed(&path, error)),
        }
    }
}

/// On Windows directories can't be synced, and need not be: a rename is durable with the file system's journal.
fn sync_directory(folder: &Path) -> Result<()> {
    if cfg!(windows) {
        return Ok(());
    }
    match File::open(folder).and_then(|file| file.sync_all()) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(failed(folder, error)),
        _ => Ok(()),
    }
}

#[derive(Debug)]
struct DiskFile {
    file: File,
    path: PathBuf,
}

impl ReadAt for DiskFile {
    fn len(&self) -> Result<u64> {
        self.file.metadata().map(|metadata| metadata.len()).map_err(|error| failed(&self.path, error))
    }

    #[cfg(target_os = "linux")]
    fn evict(&self) -> Result<()> {
        let done = rustix::fs::fadvise(&self.file, 0, None, rustix::fs::Advice::DontNeed);
        done.map_err(|error| failed(&self.path, error.into()))
    }

    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        read_exact_at(&self.file, offset, out).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => {
                let what = format!("the file ends before byte {}", offset.saturating_add(out.len() as u64));
                Error::corrupt(self.path.display().to_string(), what)
            }
            _ => failed(&self.path, error),
        })
    }
}

impl WriteAt for DiskFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        write_all_at(&self.file, offset, bytes).map_err(|error| failed(&self.path, error))
    }

    fn sync(&mut self) -> Result<()> {
        self.file.sync_all().map_err(|error| failed(&self.path, error))
    }
}

/// A file that is held by the process that opened it. A child that was forked has the file open too, and would hold it on.
#[derive(Debug)]
struct DiskHold {
    file: File,
    path: PathBuf,
    owner: u32,
}

impl Drop for DiskHold {
    fn drop(&mut self) {
        if self.owner == std::process::id() {
            // Closing the file, which comes next, lets go of it as well, unless a child has it.
            let _ = self.file.unlock();
        }
    }
}

impl Hold for DiskHold {
    fn note(&self, text: &str) -> Result<()> {
        let put = || {
            let mut file = &self.file;
            file.set_len(0)?;
            file.seek(SeekFrom::Start(0))?;
            file.write_all(text.as_bytes())
        };
        put().map_err(|error| failed(&self.path, error))
    }
}

#[cfg(unix)]
fn read_exact_at(file: &File, offset: u64, out: &mut [u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::read_exact_at(file, out, offset)
}

#[cfg(unix)]
fn write_all_at(file: &File, offset: u64, bytes: &[u8]) -> io::Result<()> {
    std::os::unix::fs::FileExt::write_all_at(file, bytes, offset)
}

#[cfg(windows)]
fn read_exact_at(file: &File, mut offset: u64, mut out: &mut [u8]) -> io::Result<()> {
    while !out.is_empty() {
        match std::os::windows::fs::FileExt::seek_read(file, out, offset)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            read => (offset, out) = (offset + read as u64, &mut out[read..]),
        }
    }
    Ok(())
}

#[cfg(windows)]
fn write_all_at(file: &File, mut offset: u64, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        let written = std::os::windows::fs::FileExt::seek_write(file, bytes, offset)?;
        (offset, bytes) = (offset + written as u64, &bytes[written..]);
    }
    Ok(())
}
