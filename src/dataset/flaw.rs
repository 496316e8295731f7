//! Rows that can't be taken: null, empty, not finite, of another length, without a good id.

use std::path::Path;

use super::rows::not_finite;
use crate::error::Error;

/// What to do with rows that hold no vector.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Nulls {
    /// The first such row is an error.
    #[default]
    Raise,
    /// Such rows are left out and counted.
    Skip,
}

/// What is wrong with a row.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Flaw {
    /// No list.
    Null,
    /// A list with a null in it.
    NullValue,
    /// A list without values.
    Empty,
    /// NaN or infinite, as float32.
    NotFinite(f32),
    /// Another number of values than the other rows.
    Length(i64),
    /// The id column is null.
    NullId,
    /// An id outside of 0 .. 2^63 - 1.
    Id(i128),
}

impl Flaw {
    /// Whether a row with this flaw may be left out. Another length or a wrong id is no absence, but a fault of the file.
    fn can_be_skipped(self) -> bool {
        !matches!(self, Self::Length(_) | Self::Id(_))
    }

    /// What is wrong with row `row`, whose fellows have `dim` values.
    fn problem(self, row: &str, dim: usize) -> String {
        let (what, remedy) = match self {
            Self::Null => (format!("{row} is null"), true),
            Self::NullValue => (format!("{row} has a null among its values"), true),
            Self::Empty => (format!("{row} is an empty list"), true),
            Self::NotFinite(value) => (format!("{row} holds {value} (as float32)"), true),
            Self::NullId => (format!("{row} has a null id"), true),
            Self::Length(length) => (format!("{row} has {length} values, the rows before it have {dim}; all must have as many"), false),
            Self::Id(id) => (format!("{row} has the id {id}; ids are from 0 to 2^63 - 1"), false),
        };
        if remedy { format!("{what}; mend the file, or leave such rows out with nulls=\"skip\"") } else { what }
    }
}

/// The flaws of a few rows that were read at once, by their place among them.
#[derive(Debug, Default)]
pub struct Flaws {
    found: Vec<(usize, Flaw)>,
}

impl Flaws {
    /// Notes a flaw of row `row`.
    pub fn add(&mut self, row: usize, flaw: Flaw) {
        self.found.push((row, flaw));
    }

    /// Notes that row `row` has another number of values.
    pub fn length(&mut self, row: usize, length: i64) {
        self.add(row, Flaw::Length(length));
    }

    /// Notes what is not finite in rows of `dim` values. Rows with another flaw may hold anything; they count once all the same.
    pub fn add_not_finite(&mut self, rows: &[f32], dim: usize) {
        for (i, row) in rows.chunks_exact(dim.max(1)).enumerate() {
            if let Some(value) = not_finite(row) {
                self.add(i, Flaw::NotFinite(value));
            }
        }
    }

    /// The rows to leave out, in order; or the error for the first that may not be. `first` is the place of the first row in its file,
    /// `before` how many rows are in the files before it.
    pub fn sieve(&mut self, nulls: Nulls, file: &Path, first: u64, before: u64, dim: usize) -> Result<Vec<usize>, Error> {
        // Stable: of one row's flaws the one that was seen first comes first.
        self.found.sort_by_key(|&(row, _)| row);
        let fatal = |flaw: Flaw| nulls == Nulls::Raise || !flaw.can_be_skipped();
        if let Some(&(row, flaw)) = self.found.iter().find(|&&(_, flaw)| fatal(flaw)) {
            let row = first + row as u64;
            return Err(Error::file(file, flaw.problem(&name(row, before), dim)));
        }
        let mut rows: Vec<usize> = self.found.drain(..).map(|(row, _)| row).collect();
        rows.dedup();
        Ok(rows)
    }
}

/// A row's number in its file, and among all where there are files before it.
pub fn name(row: u64, before: u64) -> String {
    if before == 0 { format!("row {row}") } else { format!("row {row} (row {} of all files)", before + row) }
}
