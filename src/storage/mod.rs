//! Files of a checkpoint directory: the few calls that everything durable is made of.
//!
//! Names are relative, with `/`: `segments/000042.seg`. Three implementations: [`Disk`], [`Memory`] (which forgets at a power loss what was
//! not synced) and [`Fault`] (which fails, or stops for good, at the n-th call).
//!
//! The rule of use: bytes are durable after [`WriteAt::sync`], a new name after [`Storage::sync_folder`], a [`Storage::replace`] when it
//! returns. The hazard: nothing else orders writes.

use std::fmt::Debug;
use std::sync::Arc;

use crate::error::Result;

mod cache;
mod disk;
mod fault;
mod memory;

pub use cache::{Cache, Key, Kind};
pub use disk::Disk;
pub use fault::{Fault, Mode};
pub use memory::Memory;

/// A directory of files.
pub trait Storage: Debug + Send + Sync {
    /// Where the file is, for messages.
    fn describe(&self, name: &str) -> String;
    /// Names of the files in a folder, without the folder, in no order; none where there is no folder.
    fn list(&self, folder: &str) -> Result<Vec<String>>;
    /// Opens a file for reading.
    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>>;
    /// Opens a file for writing, with its folder made where it is missing; what it holds stays.
    fn write(&self, name: &str) -> Result<Box<dyn WriteAt>>;
    /// Puts a file in place as a whole: whoever reads it, even after a power loss, sees all of the old bytes or all of the new.
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()>;
    /// Makes the names in a folder durable.
    fn sync_folder(&self, folder: &str) -> Result<()>;
    /// Removes a file; it may be gone already.
    fn remove(&self, name: &str) -> Result<()>;
    /// Holds a file, alone or with others; `None` if it is held by somebody else in a way that forbids it. Held until dropped, and let go
    /// by the system when the process ends.
    fn hold(&self, name: &str, alone: bool) -> Result<Option<Box<dyn Hold>>>;
}

/// A file that is open for reading.
pub trait ReadAt: Debug + Send + Sync {
    /// Its present length in bytes.
    fn len(&self) -> Result<u64>;
    /// Fills `out` from `offset` on; an error where the file ends before.
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()>;

    /// Asks the system to forget what it has cached of the file: for measurements of cold reads. It may not.
    fn evict(&self) -> Result<()> {
        Ok(())
    }

    /// True without bytes.
    fn is_empty(&self) -> Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// A file that is open for writing.
pub trait WriteAt: Debug + Send {
    /// Writes at `offset`; a gap before it reads as zeros.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()>;
    /// Makes what was written durable.
    fn sync(&mut self) -> Result<()>;
}

/// A file that is held.
pub trait Hold: Debug + Send + Sync {
    /// Replaces the file's text: who holds it.
    fn note(&self, text: &str) -> Result<()>;
}

/// The whole of a small file, of at most `most` bytes.
pub fn read_whole(storage: &dyn Storage, name: &str, most: u64) -> Result<Vec<u8>> {
    let file = storage.open(name)?;
    let len = file.len()?;
    if len > most {
        return Err(crate::Error::corrupt(storage.describe(name), format!("{len} bytes long, at most {most} are expected")));
    }
    let mut bytes = vec![0; len as usize];
    file.read_at(0, &mut bytes)?;
    Ok(bytes)
}
