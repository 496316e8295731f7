//! Full vectors on disk: rows at fixed places, each within one page of 4 KiB where it fits one.
//!
//! A row's number is its place. A place is written when its row is first committed, and again only after no checkpoint lists the row:
//! so files are never copied, and checkpoints share them.

use std::collections::HashMap;
use std::sync::Arc;

use super::bytes::put;
use super::rows::RowPages;
use super::segment::Segments;
use crate::error::{Error, Result};
use crate::storage::{Cache, Key, Kind, Storage, WriteAt};
use crate::tree::pool::{Pool, Slot};
use crate::value::ValueType;
use crate::vectors::{Row, VectorSource, locate};

/// Bytes of a page, and of the header.
pub const PAGE_BYTES: usize = 4096;
const MAGIC: &[u8; 8] = b"sapwdVEC";
/// Bytes of pages whose memory is mapped together.
const SLAB: usize = 512 << 10;
/// Bytes that are gathered before they are written.
const BUFFER: usize = 1 << 20;

/// The name of the file of slab `slab`. Files of one `generation` share places; a directory that is saved into anew gets another.
pub fn vectors_name(generation: u32, slab: usize) -> String {
    format!("vectors/{generation:06}-{slab:02}.vec")
}

/// Where rows lie in a file.
#[derive(Debug, Clone, Copy)]
pub struct Layout {
    stride: usize,
    dim: usize,
    kind: ValueType,
}

impl Layout {
    /// Of rows of `dim` values.
    pub fn new(dim: usize, kind: ValueType) -> Self {
        Self { stride: kind.row_bytes(dim), dim, kind }
    }

    /// Bytes of the pages that hold a row: what is read at once.
    fn unit(self) -> usize {
        self.stride.div_ceil(PAGE_BYTES) * PAGE_BYTES
    }

    /// Offset of the place of a row in its file, and where the pages that hold it begin and end.
    fn place(self, place: usize) -> (u64, u64, u64) {
        let rows_a_page = (PAGE_BYTES / self.stride).max(1);
        let start = PAGE_BYTES + place / rows_a_page * self.unit();
        ((start + place % rows_a_page * self.stride) as u64, start as u64, (start + self.unit()) as u64)
    }

    /// Length of a file whose last place is `place`.
    pub fn file_bytes(self, place: usize) -> u64 {
        self.place(place).0 + self.stride as u64
    }

    fn header(self, slab: usize, format: u32) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        put(&mut out, format);
        put(&mut out, slab as u32);
        put(&mut out, self.dim as u32);
        // The type of the values.
        put(&mut out, self.kind as u32);
        let check = crc32c::crc32c(&out);
        put(&mut out, check);
        out.resize(PAGE_BYTES, 0);
        out
    }
}

/// Writes rows to their places.
#[derive(Debug)]
pub struct VectorWriter<'a> {
    storage: &'a dyn Storage,
    layout: Layout,
    format: u32,
    generation: u32,
    open: Option<(usize, Box<dyn WriteAt>)>,
    start: u64,
    buffer: Vec<u8>,
    /// The largest place written, by slab.
    pub ends: HashMap<usize, usize>,
    /// Bytes written, with headers and padding.
    pub written: u64,
}

impl<'a> VectorWriter<'a> {
    /// A writer of rows that lie as `layout` says.
    pub fn new(storage: &'a dyn Storage, layout: Layout, format: u32, generation: u32) -> Self {
        let (open, start, buffer, ends) = (None, 0, Vec::new(), HashMap::new());
        Self { storage, layout, format, generation, open, start, buffer, ends, written: 0 }
    }

    /// Writes a row, in ascending order; returns the checksum of its bytes.
    pub fn add(&mut self, row: Row, bytes: &[u8]) -> Result<u32> {
        let (slab, place) = locate(row);
        if self.open.as_ref().is_none_or(|(open, _)| *open != slab) {
            self.close()?;
            let mut file = self.storage.write(&vectors_name(self.generation, slab))?;
            let header = self.layout.header(slab, self.format);
            file.write_at(0, &header)?;
            self.written += header.len() as u64;
            self.open = Some((slab, file));
        }
        let (offset, ..) = self.layout.place(place);
        let end = self.start + self.buffer.len() as u64;
        // Between neighbours there is at most the padding of a page, which belongs to nobody.
        let neighbour = place > 0 && self.ends.get(&slab) == Some(&(place - 1));
        if !neighbour || self.buffer.len() >= BUFFER {
            self.flush()?;
            self.start = offset;
        } else {
            self.buffer.resize(self.buffer.len() + (offset - end) as usize, 0);
        }
        self.buffer.extend_from_slice(bytes);
        self.ends.insert(slab, place);
        Ok(crc32c::crc32c(bytes))
    }

    fn flush(&mut self) -> Result<()> {
        if let Some((_, file)) = &mut self.open
            && !self.buffer.is_empty()
        {
            file.write_at(self.start, &self.buffer)?;
            self.written += self.buffer.len() as u64;
        }
        self.buffer.clear();
        Ok(())
    }

    /// Makes the open file durable.
    pub fn close(&mut self) -> Result<()> {
        self.flush()?;
        match self.open.take() {
            Some((_, mut file)) => file.sync(),
            None => Ok(()),
        }
    }
}

/// Reads vectors, through the cache.
#[derive(Debug)]
pub struct DiskVectors {
    segments: Arc<Segments>,
    cache: Arc<Cache>,
    rows: Arc<RowPages>,
    layout: Layout,
    generation: u32,
    /// Memory for pages. A general allocator scatters them between what else threads ask for, and keeps a third more than is in use.
    pool: Arc<Pool>,
}

impl DiskVectors {
    /// Vectors that lie as `layout` says.
    pub fn new(segments: Arc<Segments>, cache: Arc<Cache>, rows: Arc<RowPages>, layout: Layout, generation: u32) -> Self {
        Self { segments, cache, rows, layout, generation, pool: Pool::with_slabs(layout.unit(), SLAB) }
    }

    /// Checks the header and the length of a file.
    pub fn check(&self, slab: usize, bytes: u64) -> Result<()> {
        let name = vectors_name(self.generation, slab);
        let broken = |what: String| Err(Error::corrupt(self.segments.storage().describe(&name), what));
        let file = self.segments.file(&name)?;
        let len = file.len()?;
        if len < bytes {
            return broken(format!("{len} bytes long, {bytes} were written"));
        }
        let mut head = [0; 28];
        file.read_at(0, &mut head)?;
        let format = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
        if head != self.layout.header(slab, format)[..28] {
            return broken("this is not the file of vectors that its name says".to_string());
        }
        Ok(())
    }

    /// Copies a row out of its page; false if that isn't what was written.
    fn copy_row(&self, row: Row, out: &mut [u8]) -> Result<bool> {
        let (page, start) = self.page(row)?;
        let Some(bytes) = page.bytes().get(start..start + self.layout.stride) else { return Ok(false) };
        out.copy_from_slice(bytes);
        Ok(crc32c::crc32c(bytes) == self.rows.check(row)?)
    }

    fn page(&self, row: Row) -> Result<(Arc<Slot>, usize)> {
        let (slab, place) = locate(row);
        let (offset, start, end) = self.layout.place(place);
        let page = self.cache.get(key(slab, start), || {
            let file = self.segments.file(&vectors_name(self.generation, slab))?;
            // The last page may not be full yet.
            let len = end.min(file.len()?).saturating_sub(start) as usize;
            let mut page = Slot::new(&self.pool);
            file.read_at(start, &mut page.make_mut()[..len])?;
            Ok((page, len as u64, self.pool.slot_bytes() as u64))
        })?;
        Ok((page, (offset - start) as usize))
    }
}

/// Where the cache has a page of file `slab`.
fn key(slab: usize, start: u64) -> Key {
    (Kind::Vectors, slab as u32, start)
}

impl VectorSource for DiskVectors {
    fn read(&self, row: Row, out: &mut [u8]) -> Result<()> {
        if self.copy_row(row, out)? {
            return Ok(());
        }
        // The page may have been read before a later commit wrote this row to it.
        let (slab, place) = locate(row);
        let (offset, start, _) = self.layout.place(place);
        self.cache.remove(&key(slab, start));
        if self.copy_row(row, out)? {
            return Ok(());
        }
        let what = format!("the vector at byte {offset} isn't what was written (checksum)");
        Err(Error::corrupt(self.segments.storage().describe(&vectors_name(self.generation, slab)), what))
    }

    fn expect(&self, rows: &[Row]) -> Result<()> {
        rows.iter().try_for_each(|&row| self.page(row).map(drop))
    }
}
