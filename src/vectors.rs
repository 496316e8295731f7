//! The store of full vectors, by row.
//!
//! The problem: searches read vectors without a lock while writers add rows, and the store must neither move what is read nor ask for a
//! capacity. So rows live in slabs of doubling size that are never moved or given back; a row that died is used again.
//!
//! The rule of use: a row is written through a [`Lease`] before anybody else knows it, then published in a snapshot, and
//! [`Vectors::release`]d when no snapshot that lists it is left.
//!
//! The hazard: a row number that didn't come from a snapshot may be leased and in the middle of a write.
#![allow(unsafe_code)]

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use memmap2::{MmapMut, MmapRaw};
use parking_lot::Mutex;
use rayon::prelude::*;

use crate::cancel::Task;
use crate::dataset::Rows;
use crate::dataset::rows::not_finite;
use crate::error::{Error, Result};
use crate::kernel::prefetch;
use crate::value::{Codec, ValueType};

/// Number of a stored row; dense, used again after the row died.
pub type Row = u32;

/// Rows of the first slab; each further one is twice as large.
const FIRST: usize = 1024;
const SLABS: usize = 22;

/// Slab and place within it.
pub fn locate(row: Row) -> (usize, usize) {
    let shifted = row as usize + FIRST;
    let slab = (shifted.ilog2() - FIRST.ilog2()) as usize;
    (slab, shifted - (FIRST << slab))
}

/// A growing array of plain 64-bit words by row, readable without a lock.
#[derive(Debug, Default)]
pub struct Words {
    slabs: [OnceLock<Box<[AtomicU64]>>; SLABS],
}

impl Words {
    /// The word of `row`; 0 before it was set.
    pub fn get(&self, row: Row) -> u64 {
        let (slab, place) = locate(row);
        self.slabs.get(slab).and_then(OnceLock::get).map_or(0, |words| words[place].load(Ordering::Relaxed))
    }

    /// Begins to fetch the word of `row`.
    pub fn prefetch(&self, row: Row) {
        let (slab, place) = locate(row);
        if let Some(words) = self.slabs.get(slab).and_then(OnceLock::get) {
            prefetch(&words[place..=place]);
        }
    }

    /// Sets the word of `row`.
    pub fn set(&self, row: Row, word: u64) {
        let (slab, place) = locate(row);
        let words = self.slabs[slab].get_or_init(|| (0..FIRST << slab).map(|_| AtomicU64::new(0)).collect());
        words[place].store(word, Ordering::Relaxed);
    }
}

/// The full vectors: rows of as many bytes, as one [`Codec`] writes them.
#[derive(Debug)]
pub struct Vectors {
    codec: Codec,
    /// Bytes of a row.
    stride: usize,
    slabs: [OnceLock<MmapRaw>; SLABS],
    numbers: Mutex<Numbers>,
    shelf: Option<Shelf>,
}

#[derive(Debug, Default)]
struct Numbers {
    next: Row,
    free: Vec<Row>,
    /// Rows that a checkpoint lists: they aren't used again before [`Vectors::forget`] says so.
    kept: Kept,
    /// Rows of `kept` that were released.
    retired: Vec<Row>,
}

/// Rows that a checkpoint lists, one bit each.
#[derive(Debug, Clone, Default)]
pub struct Kept(Vec<u64>);

impl Kept {
    fn first(rows: Row) -> Self {
        let words = (rows as usize).div_ceil(64);
        Self((0..words).map(|word| u64::MAX >> (64 - (rows as usize - word * 64).min(64))).collect())
    }

    /// Whether `row` is among them.
    pub fn has(&self, row: Row) -> bool {
        self.0.get(row as usize / 64).is_some_and(|word| word >> (row % 64) & 1 == 1)
    }

    /// The slabs in which there are some.
    pub fn slabs(&self) -> BTreeSet<usize> {
        // A word lies within one slab.
        let used = self.0.iter().enumerate().filter(|(_, word)| **word != 0);
        used.map(|(word, _)| locate((word * 64) as Row).0).collect()
    }

    fn add(&mut self, row: Row) {
        let word = row as usize / 64;
        self.0.resize(self.0.len().max(word + 1), 0);
        self.0[word] |= 1 << (row % 64);
    }

    fn remove(&mut self, row: Row) {
        if let Some(word) = self.0.get_mut(row as usize / 64) {
            *word &= !(1 << (row % 64));
        }
    }
}

/// Vectors that are on disk.
pub trait VectorSource: std::fmt::Debug + Send + Sync {
    /// Reads the stored bytes of `row`.
    fn read(&self, row: Row, out: &mut [u8]) -> Result<()>;
    /// Begins to read the vectors of `rows`, which are about to be asked for.
    fn expect(&self, rows: &[Row]) -> Result<()>;
}

/// Rows below `rows` are on disk, but for those that were written since.
#[derive(Debug)]
struct Shelf {
    source: Arc<dyn VectorSource>,
    rows: Row,
    /// Rows that are in memory all the same, one bit a row.
    resident: Vec<AtomicU64>,
}

impl Shelf {
    fn holds(&self, row: Row) -> bool {
        row < self.rows && self.resident[row as usize / 64].load(Ordering::Relaxed) >> (row % 64) & 1 == 0
    }

    fn set_resident(&self, row: Row) {
        if row < self.rows {
            self.resident[row as usize / 64].fetch_or(1 << (row % 64), Ordering::Relaxed);
        }
    }
}

impl Vectors {
    /// An empty store.
    pub fn new(codec: Codec) -> Self {
        Self { stride: codec.row_bytes(), codec, slabs: Default::default(), numbers: Mutex::default(), shelf: None }
    }

    /// A store whose first `rows` rows are on disk, all of them kept.
    pub fn on_shelf(codec: Codec, rows: Row, source: Arc<dyn VectorSource>) -> Self {
        let words = (rows as usize).div_ceil(64);
        let shelf = Shelf { source, rows, resident: (0..words).map(|_| AtomicU64::new(0)).collect() };
        let numbers = Numbers { next: rows, kept: Kept::first(rows), ..Numbers::default() };
        Self { numbers: Mutex::new(numbers), shelf: Some(shelf), ..Self::new(codec) }
    }

    /// Values a row.
    pub fn dim(&self) -> usize {
        self.codec.dim()
    }

    /// What writes rows and reads them.
    pub fn codec(&self) -> &Codec {
        &self.codec
    }

    /// Bytes of a stored row.
    pub fn row_bytes(&self) -> usize {
        self.stride
    }

    /// Bytes in memory of the rows that were ever in use.
    pub fn bytes(&self) -> usize {
        let on_disk = self.shelf.as_ref().map_or(0, |shelf| {
            let resident: u32 = shelf.resident.iter().map(|word| word.load(Ordering::Relaxed).count_ones()).sum();
            (shelf.rows - resident) as usize
        });
        (self.numbers.lock().next as usize - on_disk) * self.row_bytes()
    }

    /// Takes `count` rows for writing.
    pub fn lease(self: &Arc<Self>, count: usize) -> Result<Lease> {
        let mut numbers = self.numbers.lock();
        let reused = count.min(numbers.free.len());
        let fresh = count - reused;
        let end = numbers.next as usize + fresh;
        // The largest number is kept for "no row".
        if end >= Row::MAX as usize {
            return Err(Error::invalid("vectors", format!("at most {} rows in an index", Row::MAX - 1), end.to_string()));
        }
        if end > 0 {
            let last = locate((end - 1) as Row).0;
            self.map_slabs(last)?;
        }
        let from = numbers.free.len() - reused;
        let mut rows: Vec<Row> = numbers.free.drain(from..).collect();
        rows.extend(numbers.next..end as Row);
        numbers.next = end as Row;
        Ok(Lease { vectors: self.clone(), rows })
    }

    /// Maps all slabs up to `last`; called under the lock of the numbers. Untouched pages cost no memory.
    fn map_slabs(&self, last: usize) -> Result<()> {
        for slab in 0..=last {
            if self.slabs[slab].get().is_none() {
                let bytes = (FIRST << slab).saturating_mul(self.row_bytes());
                let map = MmapMut::map_anon(bytes).map_err(|_| Error::OutOfMemory { bytes, purpose: "the store of vectors" })?;
                // Reads are scattered: with large pages they miss the translation cache far less. A refusal costs only speed.
                #[cfg(target_os = "linux")]
                if self.shelf.is_none() {
                    let _ = map.advise(memmap2::Advice::HugePage);
                }
                let _ = self.slabs[slab].set(MmapRaw::from(map));
            }
        }
        Ok(())
    }

    fn pointer(&self, row: Row) -> Option<*mut u8> {
        let (slab, place) = locate(row);
        let map = self.slabs.get(slab)?.get()?;
        // SAFETY: `place` is below the slab's rows, so the slot lies within the mapping, which is never unmapped before `self` goes.
        Some(unsafe { map.as_mut_ptr().add(place * self.row_bytes()) })
    }

    /// The vector of a row that a snapshot lists; in `room` if it must be read from disk or decoded.
    #[inline]
    pub fn get<'a>(&'a self, row: Row, room: &'a mut Vec<f32>) -> Result<&'a [f32]> {
        if self.codec.kind() == ValueType::F32 && !self.is_on_disk(row) {
            return Ok(bytemuck::cast_slice(self.resident(row)));
        }
        let mut bytes = Vec::new();
        Ok(self.codec.decode(self.raw(row, &mut bytes)?, room))
    }

    /// The stored bytes of a row that a snapshot lists; read into `room` if they are on disk.
    pub fn raw<'a>(&'a self, row: Row, room: &'a mut Vec<u32>) -> Result<&'a [u8]> {
        match &self.shelf {
            Some(shelf) if shelf.holds(row) => {
                // Whole words, so that all types of values are aligned.
                room.resize(self.row_bytes() / 4, 0);
                shelf.source.read(row, bytemuck::cast_slice_mut(room))?;
                Ok(bytemuck::cast_slice(room))
            }
            _ => Ok(self.resident(row)),
        }
    }

    fn is_on_disk(&self, row: Row) -> bool {
        self.shelf.as_ref().is_some_and(|shelf| shelf.holds(row))
    }

    fn resident(&self, row: Row) -> &[u8] {
        match self.pointer(row) {
            // SAFETY: the slot has this many bytes, zeroed or written; nobody writes it while a snapshot lists the row (rule of use).
            Some(slot) => unsafe { std::slice::from_raw_parts(slot, self.row_bytes()) },
            None => &[],
        }
    }

    /// Reads rows that are on disk into memory, to stay there. Nobody may read or write the store meanwhile.
    pub fn load(self: &Arc<Self>, rows: &[Row], task: &Task) -> Result<()> {
        let Some(shelf) = &self.shelf else { return Ok(()) };
        if let Some(&last) = rows.last() {
            self.map_slabs(locate(last).0)?;
        }
        for &row in rows.iter().filter(|&&row| shelf.holds(row)) {
            task.check()?;
            if let Some(slot) = self.pointer(row) {
                // SAFETY: nobody else has a reference to the slot: the row is on disk, and nobody uses the store (rule of use).
                shelf.source.read(row, unsafe { std::slice::from_raw_parts_mut(slot, self.row_bytes()) })?;
                shelf.set_resident(row);
            }
        }
        Ok(())
    }

    /// Begins to fetch the vector of `row` into the processor's cache.
    pub fn prefetch(&self, row: Row) {
        if !self.is_on_disk(row) {
            prefetch(self.resident(row));
        }
    }

    /// Begins to read the vectors of `rows`, which are about to be asked for, where they are on disk.
    pub fn expect(&self, rows: impl Iterator<Item = Row>) -> Result<()> {
        let Some(shelf) = &self.shelf else { return Ok(()) };
        let mut rows: Vec<Row> = rows.filter(|&row| shelf.holds(row)).collect();
        rows.sort_unstable();
        shelf.source.expect(&rows)
    }

    /// Gives rows back whose last snapshot is gone.
    pub fn release(&self, rows: impl IntoIterator<Item = Row>) {
        let mut numbers = self.numbers.lock();
        for row in rows {
            if numbers.kept.has(row) { numbers.retired.push(row) } else { numbers.free.push(row) }
        }
    }

    /// One more than the largest row number that was ever leased.
    pub fn end(&self) -> Row {
        self.numbers.lock().next
    }

    /// Says that a checkpoint lists these rows.
    pub fn keep(&self, rows: &[Row]) {
        let mut numbers = self.numbers.lock();
        rows.iter().for_each(|&row| numbers.kept.add(row));
    }

    /// The rows that a checkpoint lists.
    pub fn kept(&self) -> Kept {
        self.numbers.lock().kept.clone()
    }

    /// Says that no checkpoint matters any more: rows are used again as soon as they are released, and `free` ones at once.
    pub fn forget_all(&self, free: &[Row]) {
        let mut numbers = self.numbers.lock();
        numbers.kept = Kept::default();
        numbers.free.extend(free);
    }

    /// Kept rows that were released since the last call.
    pub fn take_retired(&self) -> Vec<Row> {
        std::mem::take(&mut self.numbers.lock().retired)
    }

    /// Says that no checkpoint lists these released rows any more: they may be used again.
    pub fn forget(&self, rows: &[Row]) {
        let mut numbers = self.numbers.lock();
        rows.iter().for_each(|&row| numbers.kept.remove(row));
        numbers.free.extend(rows);
    }
}

/// Rows that only their holder knows. Dropped, it gives them back; [`Lease::keep`] hands them over to a snapshot.
#[derive(Debug)]
pub struct Lease {
    vectors: Arc<Vectors>,
    rows: Vec<Row>,
}

impl Lease {
    /// The leased rows, in the order of the batch.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Copies `values` into the rows from `start` on, checks that each copy is finite, lets `prepare` change it and stores it; on all threads
    /// of the pool that this thread belongs to. Returns the first row (counted from the batch's first) with a value that can't be stored.
    pub fn fill(&mut self, start: usize, values: Rows<'_>, prepare: impl Fn(&mut [f32]) + Sync) -> Option<(usize, f32)> {
        let vectors = &self.vectors;
        let rows = &self.rows[start..start + values.len()];
        let one = |(i, &row): (usize, &Row)| {
            let slot = vectors.pointer(row)?;
            if let Some(shelf) = &vectors.shelf {
                shelf.set_resident(row);
            }
            // SAFETY: the lease owns the row alone and names it once, so this is the only reference to its slot of so many bytes.
            let slot = unsafe { std::slice::from_raw_parts_mut(slot, vectors.row_bytes()) };
            let ready = |row: &mut [f32]| {
                row.copy_from_slice(values.row(i));
                let bad = not_finite(row);
                if bad.is_none() {
                    prepare(row);
                }
                bad
            };
            let bad = match vectors.codec.kind() {
                ValueType::F32 => ready(bytemuck::cast_slice_mut(slot)),
                _ => {
                    let mut row = vec![0.0; vectors.dim()];
                    ready(&mut row).or_else(|| vectors.codec.encode(&row, slot))
                }
            };
            bad.map(|bad| (start + i, bad))
        };
        if rows.len() < 512 || rayon::current_thread_index().is_none() {
            rows.iter().enumerate().find_map(one)
        } else {
            rows.par_iter().enumerate().with_min_len(256).filter_map(one).min_by_key(|(row, _)| *row)
        }
    }

    /// Ends the lease: the rows belong to the snapshots that list them.
    pub fn keep(mut self) -> Vec<Row> {
        std::mem::take(&mut self.rows)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if !self.rows.is_empty() {
            self.vectors.release(self.rows.drain(..));
        }
    }
}
