//! `.fvecs`, `.bvecs` and `.ivecs`: each row is its length as a little-endian int32, and then that many float32, bytes or int32.
//!
//! All rows are of one length, so a row's place follows from its number; the lengths are checked as the rows are read.

use std::path::{Path, PathBuf};

use super::cells::Cell;
use super::file::DataFile;
use super::flaw::Flaws;
use crate::error::Result;
use crate::metric::MAX_DIM;

/// Bytes of the length before each row.
const LENGTH: usize = size_of::<i32>();

/// What is known of a file before its rows are read.
#[derive(Debug, Clone)]
pub struct Vecs {
    path: PathBuf,
    len: u64,
    cell: Cell,
    dim: usize,
}

impl Vecs {
    /// Looks at the first row's length and at the file's.
    pub fn open(path: &Path, cell: Cell) -> Result<Self> {
        let file = DataFile::open(path)?;
        let mut found = Self { path: path.to_path_buf(), len: file.len(), cell, dim: 0 };
        if file.len() == 0 {
            return Ok(found);
        }
        let mut first = [0; LENGTH];
        file.read(0, &mut first)?;
        let given = i32::from_le_bytes(first);
        let dim = usize::try_from(given).ok().filter(|dim| (1..=MAX_DIM).contains(dim));
        found.dim = dim.ok_or_else(|| {
            file.fault(format!("its first row says that it has {given} values; expected 1 to {MAX_DIM}, so it may be of another format"))
        })?;
        if !file.len().is_multiple_of(found.stride() as u64) {
            let (len, stride) = (file.len(), found.stride());
            return Err(file.fault(format!("{len} bytes are no whole number of rows of {stride} bytes; it may be cut off")));
        }
        Ok(found)
    }

    /// Bytes a row.
    fn stride(&self) -> usize {
        LENGTH + self.dim * self.cell.bytes()
    }

    /// Rows in the file.
    pub fn rows(&self) -> u64 {
        if self.dim == 0 { 0 } else { self.len / self.stride() as u64 }
    }

    /// Values a row; 0 for an empty file.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// A reader of the rows from `first` on.
    pub fn reader(&self, first: u64) -> Result<Reader> {
        let file = DataFile::reopen(&self.path, self.len)?;
        Ok(Reader { file, about: self.clone(), next: first, bytes: Vec::new() })
    }
}

/// Reads rows in order.
#[derive(Debug)]
pub struct Reader {
    file: DataFile,
    about: Vecs,
    next: u64,
    bytes: Vec<u8>,
}

impl Reader {
    /// The next rows, as many as `out` holds.
    pub fn step(&mut self, rows: usize, out: &mut [f32], flaws: &mut Flaws) -> Result<()> {
        let (stride, dim) = (self.about.stride(), self.about.dim);
        self.bytes.resize(rows * stride, 0);
        self.file.read(self.next * stride as u64, &mut self.bytes)?;
        for (i, (row, out)) in self.bytes.chunks_exact(stride).zip(out.chunks_exact_mut(dim)).enumerate() {
            let (length, cells) = row.split_at(LENGTH);
            let given = length.try_into().map_or(-1, i32::from_le_bytes);
            if usize::try_from(given) != Ok(dim) {
                flaws.length(i, i64::from(given));
            }
            self.about.cell.widen(false, cells, out);
        }
        self.next += rows as u64;
        Ok(())
    }
}
