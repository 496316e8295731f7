//! Parquet: the column of vectors, and of ids, of one row group at a time.
//!
//! The problem: the same vectors come as list, large list, fixed-size list or list view, of many types of numbers; a file may be cut off or
//! damaged anywhere, and then its lengths and counts are wrong too.
//! The rule of use: [`Parquet::open`] reads what the file says of itself and chooses the columns; [`Parquet::group`] opens a row group,
//! whose [`Group::step`] decodes a few rows. In the file all kinds of lists look alike, so they are read by their levels, straight from
//! the columns. Nothing else is read.
//! The hazard: the `parquet` crate panics on some damage. It is called within [`guarded`] only, and what is passed on to it is checked
//! before in `pages`, as panics also print.
//!
//! | file | what it does |
//! |---|---|
//! | [`schema`] | which columns there are, and which of them to read |
//! | [`pages`] | pages of a column, checked |
//! | [`lists`] | rows of numbers from levels and values |
//! | [`keys`] | ids |

mod keys;
mod lists;
mod pages;
mod schema;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use parquet::errors::ParquetError;
use parquet::file::metadata::{ParquetMetaData, ParquetMetaDataReader};

use self::keys::Keys;
use self::lists::Lists;
use self::pages::{Chunk, Pages};
use self::schema::Choice;
use super::file::DataFile;
use super::flaw::Flaws;
use crate::error::{Error, Result};

/// What a file begins and ends with.
const MAGIC: &[u8; 4] = b"PAR1";

/// What is known of a file before its rows are read.
#[derive(Debug, Clone)]
pub struct Parquet {
    path: PathBuf,
    len: u64,
    about: Arc<ParquetMetaData>,
    choice: Choice,
    groups: Vec<u64>,
}

impl Parquet {
    /// Reads the file's footer and chooses the columns: that of the vectors by its name or as the only one that can be, that of the ids by
    /// its name.
    pub fn open(path: &Path, column: Option<&str>, id_column: Option<&str>) -> Result<Self> {
        let file = Arc::new(DataFile::open(path)?);
        check_ends(&file)?;
        let chunk = Chunk::whole(file.clone());
        let about = guarded(path, || ParquetMetaDataReader::new().parse_and_finish(&chunk))?;
        let groups = group_rows(&file, &about)?;
        let choice = guarded(path, || Ok(Choice::new(path, about.file_metadata().schema_descr(), column, id_column)))??;
        Ok(Self { path: path.to_path_buf(), len: file.len(), about: Arc::new(about), choice, groups })
    }

    /// The name of the column of vectors.
    pub fn column(&self) -> &str {
        &self.choice.column
    }

    /// Rows of each row group.
    pub fn groups(&self) -> &[u64] {
        &self.groups
    }

    /// A reader of the rows of a row group, from its row `first` on.
    pub fn group(&self, number: usize, first: u64) -> Result<Group> {
        let file = Arc::new(DataFile::reopen(&self.path, self.len)?);
        let pages = |leaf: usize| Pages::new(&file, self.about.row_group(number), leaf);
        let opened = guarded(&self.path, || {
            let lists = Lists::new(pages(self.choice.vectors.leaf)?, &self.choice.vectors);
            let keys = self.choice.ids.as_ref().map(|ids| Ok::<_, ParquetError>(Keys::new(pages(ids.leaf)?, ids))).transpose()?;
            Ok((lists, keys))
        });
        let (lists, keys) = opened?;
        Ok(Group { path: self.path.clone(), lists, keys, skip: first })
    }
}

/// Reads the rows of one row group in order.
pub struct Group {
    path: PathBuf,
    lists: Lists,
    keys: Option<Keys>,
    /// Rows to leave out before the next.
    skip: u64,
}

impl Group {
    /// The next rows, as many as `ids` holds. Rows with a flaw leave their places in `out` as they were. Ids are written if there is a
    /// column for them.
    pub fn step(&mut self, dim: usize, out: &mut [f32], ids: &mut [i64], flaws: &mut Flaws) -> Result<()> {
        guarded(&self.path, || {
            self.lists.step(ids.len(), dim, out, flaws)?;
            self.keys.as_mut().map_or(Ok(()), |keys| keys.step(ids, flaws))
        })
    }

    /// The number of values of the first of the next `rows` rows that has any.
    pub fn width(&mut self, rows: usize) -> Result<Option<usize>> {
        guarded(&self.path, || self.lists.width(rows))
    }

    /// Whether rows are still to be left out by [`Group::pass`] before the next step.
    pub fn behind(&self) -> bool {
        self.skip > 0
    }

    /// Leaves out rows, at most `most`.
    pub fn pass(&mut self, most: usize) -> Result<()> {
        let rows = usize::try_from(self.skip).unwrap_or(usize::MAX).min(most);
        guarded(&self.path, || {
            self.lists.skip(rows)?;
            self.keys.as_mut().map_or(Ok(()), |keys| keys.skip(rows))
        })?;
        self.skip -= rows as u64;
        Ok(())
    }
}

/// Says so where a file is no Parquet file, or was not written to its end: the commonest faults deserve plain words.
fn check_ends(file: &DataFile) -> Result<()> {
    let (mut start, mut end) = ([0; 4], [0; 4]);
    if file.len() < 12 {
        return Err(file.fault(format!("not a Parquet file: it has {} bytes", file.len())));
    }
    file.read(0, &mut start)?;
    file.read(file.len() - 4, &mut end)?;
    match (&start == MAGIC, &end) {
        (true, MAGIC) => Ok(()),
        (_, b"PARE") => Err(file.fault("encrypted; decrypt it first")),
        (true, _) => Err(file.fault("a Parquet file without its end: it is cut off or not yet written")),
        (false, _) => Err(file.fault("not a Parquet file: it does not begin as one")),
    }
}

/// Rows of each row group; their sum has to be the file's.
fn group_rows(file: &DataFile, about: &ParquetMetaData) -> Result<Vec<u64>> {
    let rows = about.row_groups().iter().map(|group| u64::try_from(group.num_rows()).ok());
    let rows: Option<Vec<u64>> = rows.collect();
    let sum = rows.as_ref().and_then(|rows| rows.iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows)));
    match (rows, sum) {
        (Some(rows), Some(sum)) if u64::try_from(about.file_metadata().num_rows()) == Ok(sum) => Ok(rows),
        _ => Err(file.fault("damaged: the rows of its row groups don't add up to those of the file")),
    }
}

/// Calls the `parquet` crate; its errors and its panics become the file's error.
fn guarded<T>(path: &Path, work: impl FnOnce() -> std::result::Result<T, ParquetError>) -> Result<T> {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(ParquetError::External(error))) => match error.downcast_ref::<std::io::Error>() {
            Some(error) if error.raw_os_error().is_some() => Err(Error::io(path.display().to_string(), error)),
            _ => Err(damaged(path, &error.to_string())),
        },
        Ok(Err(ParquetError::NYI(what))) => Err(Error::file(path, format!("can't be read: {what}"))),
        Ok(Err(ParquetError::General(what) | ParquetError::EOF(what))) => Err(damaged(path, &what)),
        Ok(Err(error)) => Err(damaged(path, &error.to_string())),
        Err(_) => Err(damaged(path, "what it holds contradicts itself")),
    }
}

fn damaged(path: &Path, what: &str) -> Error {
    Error::file(path, format!("damaged or cut off: {what}"))
}
