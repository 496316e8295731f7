//! Segments: the records of one commit, one file a commit, written once.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;

use super::bytes::{Cursor, put};
use crate::error::{Error, Result};
use crate::storage::{ReadAt, Storage, WriteAt};
use crate::tree::leaf::{Extent, Token};

/// First bytes of a segment.
const MAGIC: &[u8; 8] = b"sapwdSEG";
/// Bytes before the first record, and what offsets of records are multiples of.
const ALIGN: u64 = 64;
/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 20;
/// Files kept open: far below the 256 that some systems allow. Where even these are too many for the process, fewer.
const OPEN: usize = 32;

/// The name of segment `number`.
pub fn segment_name(number: u32) -> String {
    format!("segments/{number:06}.seg")
}

/// The number of a segment's file name.
pub fn segment_number(name: &str) -> Option<u32> {
    name.strip_suffix(".seg")?.parse().ok()
}

/// A segment being written.
#[derive(Debug)]
pub struct SegmentWriter {
    file: Box<dyn WriteAt>,
    number: u32,
    buffer: Vec<u8>,
    written: u64,
}

impl SegmentWriter {
    /// Begins segment `number`. What a commit that failed may have left there is overwritten.
    pub fn new(storage: &dyn Storage, number: u32, format: u32) -> Result<Self> {
        let name = segment_name(number);
        storage.remove(&name)?;
        let mut buffer = MAGIC.to_vec();
        put(&mut buffer, format);
        put(&mut buffer, number);
        let mut writer = Self { file: storage.write(&name)?, number, buffer, written: 0 };
        writer.align();
        Ok(writer)
    }

    /// A writer whose bytes are forgotten.
    pub fn nowhere() -> Self {
        Self { file: Box::new(Nowhere), number: 0, buffer: Vec::new(), written: 0 }
    }

    fn align(&mut self) {
        let end = (self.written + self.buffer.len() as u64).next_multiple_of(ALIGN);
        self.buffer.resize((end - self.written) as usize, 0);
    }

    /// Appends a record.
    pub fn add(&mut self, record: &[u8]) -> Result<Extent> {
        let Ok(bytes) = u32::try_from(record.len()) else {
            return Err(Error::System(format!("a record of {} bytes is too large for a checkpoint", record.len())));
        };
        let offset = self.written + self.buffer.len() as u64;
        self.buffer.extend_from_slice(record);
        self.align();
        if self.buffer.len() >= BUFFER {
            self.flush()?;
        }
        Ok(Extent { segment: self.number, bytes, offset, check: crc32c::crc32c(record) })
    }

    fn flush(&mut self) -> Result<()> {
        self.file.write_at(self.written, &self.buffer)?;
        self.written += self.buffer.len() as u64;
        self.buffer.clear();
        Ok(())
    }

    /// Makes it durable, but for its name; returns its length.
    pub fn finish(mut self) -> Result<u64> {
        self.flush()?;
        self.file.sync()?;
        Ok(self.written)
    }
}

#[derive(Debug)]
struct Nowhere;

impl WriteAt for Nowhere {
    fn write_at(&mut self, _: u64, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn sync(&mut self) -> Result<()> {
        Ok(())
    }
}

/// Reads records. Keeps a few files open.
#[derive(Debug)]
pub struct Segments {
    storage: Arc<dyn Storage>,
    files: Mutex<HashMap<String, Arc<dyn ReadAt>>>,
    /// Those that were given out.
    tokens: Mutex<HashMap<u32, Weak<u32>>>,
}

impl Segments {
    /// Over the files of `storage`.
    pub fn new(storage: Arc<dyn Storage>) -> Self {
        Self { storage, files: Mutex::default(), tokens: Mutex::default() }
    }

    /// Where the files are.
    pub fn storage(&self) -> &Arc<dyn Storage> {
        &self.storage
    }

    /// Tokens for the segments of `extents`.
    pub fn tokens(&self, extents: &[Extent]) -> Vec<Token> {
        let mut numbers: Vec<u32> = extents.iter().map(|extent| extent.segment).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut tokens = self.tokens.lock();
        let mut token = |number| {
            let place = tokens.entry(number).or_default();
            place.upgrade().unwrap_or_else(|| {
                let token = Arc::new(number);
                *place = Arc::downgrade(&token);
                token
            })
        };
        numbers.into_iter().map(&mut token).collect()
    }

    /// Segments whose tokens are held: versions of the tree that are in use may read them, whatever the newest checkpoint needs.
    pub fn held(&self) -> Vec<u32> {
        let mut tokens = self.tokens.lock();
        tokens.retain(|_, token| token.strong_count() > 0);
        tokens.keys().copied().collect()
    }

    /// An open file.
    pub fn file(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        let mut files = self.files.lock();
        if let Some(file) = files.get(name) {
            return Ok(file.clone());
        }
        let file = match self.storage.open(name) {
            Err(error) if error.is_too_many_files() => {
                files.clear();
                self.storage.open(name)
            }
            done => done,
        }?;
        if files.len() >= OPEN {
            let any = files.keys().next().cloned();
            any.map(|name| files.remove(&name));
        }
        files.insert(name.to_string(), file.clone());
        Ok(file)
    }

    /// Closes all files; the next use opens them again.
    pub fn close(&self) {
        self.files.lock().clear();
    }

    /// The bytes of a record, checked.
    pub fn read(&self, extent: Extent) -> Result<Vec<u8>> {
        let name = segment_name(extent.segment);
        let file = self.file(&name)?;
        let len = file.len()?;
        // Lengths are checked before memory is asked for.
        if extent.offset.checked_add(u64::from(extent.bytes)).is_none_or(|end| end > len) {
            let what = format!("{len} bytes long, a record ends at byte {}", extent.offset.saturating_add(u64::from(extent.bytes)));
            return Err(Error::corrupt(self.storage.describe(&name), what));
        }
        let mut bytes = vec![0; extent.bytes as usize];
        file.read_at(extent.offset, &mut bytes)?;
        if crc32c::crc32c(&bytes) != extent.check {
            let what = format!("the {} bytes from byte {} on aren't what was written (checksum)", extent.bytes, extent.offset);
            return Err(Error::corrupt(self.storage.describe(&name), what));
        }
        Ok(bytes)
    }

    /// Reads a record with `decode`, which must read all of it.
    pub fn decode<T>(&self, extent: Extent, decode: impl FnOnce(&mut Cursor<'_>) -> Result<T>) -> Result<T> {
        let bytes = self.read(extent)?;
        let name = self.storage.describe(&segment_name(extent.segment));
        let mut cursor = Cursor::new(&bytes, &name);
        let value = decode(&mut cursor)?;
        cursor.end()?;
        Ok(value)
    }

    /// Checks the header and the length of a segment.
    pub fn check(&self, number: u32, bytes: u64) -> Result<()> {
        let name = segment_name(number);
        let file = self.file(&name)?;
        let broken = |what: String| Err(Error::corrupt(self.storage.describe(&name), what));
        let len = file.len()?;
        if len < bytes {
            return broken(format!("{len} bytes long, {bytes} were written"));
        }
        let mut head = [0; 16];
        file.read_at(0, &mut head)?;
        if &head[..8] != MAGIC || head[12..] != number.to_le_bytes() {
            return broken("this is not the segment that its name says".to_string());
        }
        Ok(())
    }
}
