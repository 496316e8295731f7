//! Files as one run of rows: which files, which rows of each, and the reader of each piece of them.
//!
//! The problem: a range of rows may begin in one file and end in another; its parts should be read by several threads; and what lies
//! outside should not be read at all.
//! The rule of use: [`Source::open`] reads what the files say of themselves and plans; [`Source::read`] reads everything,
//! [`Walk`] a batch at a time. Files are open only while they are read, so there may be any number of them.

use std::fs;
use std::path::{Path, PathBuf};

use super::cells::Cell;
use super::flaw::{Flaws, Nulls, name};
use super::npy::{self, Npy};
use super::parquet::{Group, Parquet};
use super::vecs::{self, Vecs};
use super::walk::{Filled, Walk};
use crate::cancel::Task;
use crate::error::{Error, Result};
use crate::metric::MAX_DIM;

/// The suffixes that are known.
const SUFFIXES: &str = ".parquet, .npy, .fvecs, .bvecs or .ivecs";

/// Values that are read at once: a quarter of a MiB, which stays in a core's cache while it is decoded, checked and put in place.
const STEP_VALUES: usize = 1 << 16;

/// Values that are read at once where those of a row are far apart.
const STEP_VALUES_BY_COLUMNS: usize = 1 << 20;

/// Values of a piece of a file of plain rows: so many that opening the file once more costs nothing beside it.
const PIECE_VALUES: usize = 1 << 22;

/// Rows that are passed over between two looks at the task.
const PASS_ROWS: usize = 1 << 14;

/// What to read.
#[derive(Debug, Clone)]
pub struct Request {
    /// Files, or folders of files of one kind, which are taken in the order of their names.
    pub paths: Vec<PathBuf>,
    /// The column of vectors; `None`: the only one that holds lists of numbers.
    pub column: Option<String>,
    /// The column of ids; `None`: rows are numbered.
    pub id_column: Option<String>,
    /// Rows to leave out at the beginning of all files taken together.
    pub start: u64,
    /// Rows to read; `None`: all that follow.
    pub count: Option<u64>,
    /// What to do with rows that hold no vector.
    pub nulls: Nulls,
    /// Threads that read at the same time.
    pub threads: usize,
}

/// Rows that were read.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Loaded {
    /// An id a row.
    pub ids: Vec<i64>,
    /// Row after row.
    pub vectors: Vec<f32>,
    /// Values a row; 0 where no row says it.
    pub dim: usize,
    /// Rows that were left out.
    pub skipped: u64,
}

/// Files that were looked at, and the pieces of them that are to be read.
#[derive(Debug)]
pub struct Source {
    parts: Vec<Part>,
    pieces: Vec<Piece>,
    dim: usize,
    first: u64,
    rows: u64,
    nulls: Nulls,
    threads: usize,
    id_column: Option<String>,
}

/// A file among others.
#[derive(Debug)]
struct Part {
    path: PathBuf,
    format: Format,
    /// Rows of the files before it.
    before: u64,
}

#[derive(Debug)]
enum Format {
    Parquet(Parquet),
    Npy(Npy),
    Vecs(Vecs),
}

/// Rows of one file that are read in order by one reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    part: usize,
    /// The row group; 0 in files of plain rows.
    group: usize,
    /// Rows of the group before these.
    skip: u64,
    /// Rows of the file before these.
    first: u64,
    /// How many.
    pub rows: u64,
}

/// The reader of a piece.
pub enum Reader {
    /// Of a row group.
    Group(Box<Group>),
    /// Of a `.npy` file.
    Npy(npy::Reader),
    /// Of a `.fvecs` file or one of its kin.
    Vecs(vecs::Reader),
}

impl Source {
    /// Looks at the files, chooses the columns, plans, and learns how many values a row has.
    pub fn open(request: &Request, task: &Task) -> Result<Self> {
        let mut parts: Vec<Part> = Vec::new();
        let mut column = request.column.clone();
        let mut before = 0u64;
        for path in files(&request.paths)? {
            task.check()?;
            let format = Format::open(&path, column.as_deref(), request.id_column.as_deref(), request.column.is_some())?;
            if let Format::Parquet(file) = &format {
                // What the first file decides holds for all.
                column = Some(file.column().to_string());
            }
            let rows = format.groups().iter().try_fold(0u64, |sum, rows| sum.checked_add(*rows));
            let after = rows.and_then(|rows| before.checked_add(rows)).filter(|&after| i64::try_from(after).is_ok());
            let after = after.ok_or_else(|| Error::file(&path, "damaged: it says that it has more than 2^63 rows"))?;
            parts.push(Part { path, format, before });
            before = after;
        }
        let first = request.start.min(before);
        let rows = request.count.unwrap_or(u64::MAX).min(before - first);
        let pieces = plan(&parts, first, rows);
        let (nulls, threads, id_column) = (request.nulls, request.threads.max(1), request.id_column.clone());
        let mut source = Self { parts, pieces, dim: 0, first, rows, nulls, threads, id_column };
        source.dim = source.find_dim(task)?;
        source.check_dims()?;
        Ok(source)
    }

    /// Rows to read, with those that will be left out.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Values a row; 0 where no row says it.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// The number of the first row to read.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Threads that may read at the same time.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The files, and how many rows each has.
    pub fn files(&self) -> impl Iterator<Item = (&Path, u64)> {
        self.parts.iter().map(|part| (part.path.as_path(), part.format.groups().iter().sum()))
    }

    /// What is to be read, in order.
    pub fn pieces(&self) -> &[Piece] {
        &self.pieces
    }

    /// The number of rows as a size, and of their values; fails where memory could never hold them.
    pub fn sizes(&self) -> Result<(usize, usize)> {
        let rows = usize::try_from(self.rows).ok();
        let sizes = rows.and_then(|rows| Some((rows, rows.checked_mul(self.dim)?))).filter(|(_, values)| *values < isize::MAX as usize / 4);
        sizes.ok_or(Error::OutOfMemory { bytes: usize::MAX, purpose: "the rows of the files; read them in parts with start and count" })
    }

    /// Reads everything.
    pub fn read(&self, task: &Task) -> Result<Loaded> {
        let (rows, values) = self.sizes()?;
        let no_memory = Error::OutOfMemory { bytes: values.saturating_mul(size_of::<f32>()), purpose: "the rows of the files" };
        let (mut vectors, mut ids) = (Vec::new(), Vec::new());
        vectors.try_reserve_exact(values).and_then(|()| ids.try_reserve_exact(rows)).map_err(|_| no_memory)?;
        vectors.resize(values, 0.0);
        ids.resize(rows, 0);
        let filled = self.read_into(&mut vectors, &mut ids, task)?;
        vectors.truncate(filled.kept * self.dim);
        ids.truncate(filled.kept);
        Ok(Loaded { ids, vectors, dim: self.dim, skipped: filled.dropped.len() as u64 })
    }

    /// Reads everything into memory for [`Source::sizes`]; what is kept is at its beginning.
    pub fn read_into(&self, vectors: &mut [f32], ids: &mut [i64], task: &Task) -> Result<Filled> {
        task.set_total(self.rows);
        Walk::new(self).fill(self, vectors, ids, task)
    }

    /// Whether ids come from a column, so that they may repeat.
    pub fn has_id_column(&self) -> bool {
        self.id_column.is_some()
    }

    /// The error for two rows with one id, by their numbers.
    pub fn repeated(&self, id: i64, one: u64, other: u64) -> Error {
        let (_, one) = self.place(one);
        let (path, other) = self.place(other);
        let column = self.id_column.as_deref().unwrap_or_default();
        Error::file(path, format!("{other} has the id {id} in column {column:?}, and so has {one}; ids must differ"))
    }

    /// A row's file, and its number there in words.
    fn place(&self, row: u64) -> (&Path, String) {
        let part = self.parts.partition_point(|part| part.before <= row).saturating_sub(1);
        self.parts.get(part).map_or((Path::new(""), String::new()), |part| (&part.path, name(row - part.before, part.before)))
    }

    /// The number of values of the first row that has any.
    fn find_dim(&self, task: &Task) -> Result<usize> {
        // Where no row is to be read, the files' first one tells.
        let beginning = if self.pieces.is_empty() { plan(&self.parts, 0, u64::MAX) } else { Vec::new() };
        for piece in self.pieces.iter().chain(&beginning) {
            let part = &self.parts[piece.part];
            match &part.format {
                Format::Npy(file) => return Ok(file.dim()),
                Format::Vecs(file) => return Ok(file.dim()),
                Format::Parquet(_) => {}
            }
            let Reader::Group(mut group) = self.reader(piece)? else { continue };
            catch_up(&mut group, || task.check())?;
            let mut left = piece.rows;
            while left > 0 {
                task.check()?;
                let now = left.min(PASS_ROWS as u64) as usize;
                if let Some(dim) = group.width(now)? {
                    let wide = || Error::file(&part.path, format!("a row of {dim} values; at most {MAX_DIM} are taken"));
                    return if dim <= MAX_DIM { Ok(dim) } else { Err(wide()) };
                }
                left -= now as u64;
            }
        }
        let of_plain_rows = |part: &Part| part.format.dim().filter(|&dim| dim > 0);
        Ok(self.parts.iter().find_map(of_plain_rows).unwrap_or(0))
    }

    /// Files of plain rows say how many values a row has; it has to be the same everywhere.
    fn check_dims(&self) -> Result<()> {
        for piece in &self.pieces {
            let part = &self.parts[piece.part];
            if let Some(dim) = part.format.dim().filter(|&dim| dim != self.dim) {
                let problem = format!("rows of {dim} values, the rows before it have {}; all must have as many", self.dim);
                return Err(Error::file(&part.path, problem));
            }
        }
        Ok(())
    }

    /// A reader of a piece, at its first row but for rows to `catch_up` with.
    pub fn reader(&self, piece: &Piece) -> Result<Reader> {
        Ok(match &self.parts[piece.part].format {
            Format::Parquet(file) => Reader::Group(Box::new(file.group(piece.group, piece.skip)?)),
            Format::Npy(file) => Reader::Npy(file.reader(piece.first)?),
            Format::Vecs(file) => Reader::Vecs(file.reader(piece.first)?),
        })
    }

    /// Rows of a piece to read at once.
    pub fn step_rows(&self, piece: &Piece) -> usize {
        let values = match &self.parts[piece.part].format {
            Format::Npy(file) if file.by_columns() => STEP_VALUES_BY_COLUMNS,
            _ => STEP_VALUES,
        };
        values / self.dim.max(STEP_VALUES / PASS_ROWS)
    }

    /// The number among all rows of row `row` of a piece.
    pub fn number(&self, piece: &Piece, row: u64) -> u64 {
        self.parts[piece.part].before + piece.first + row
    }

    /// The rows to leave out of those just read, which begin at row `row` of a piece.
    pub fn sieve(&self, piece: &Piece, row: u64, flaws: &mut Flaws) -> Result<Vec<usize>> {
        let part = &self.parts[piece.part];
        flaws.sieve(self.nulls, &part.path, piece.first + row, part.before, self.dim)
    }
}

impl Reader {
    /// Leaves out what is before the piece.
    pub fn catch_up(&mut self, check: impl FnMut() -> Result<()>) -> Result<()> {
        match self {
            Self::Group(group) => catch_up(group, check),
            Self::Npy(_) | Self::Vecs(_) => Ok(()),
        }
    }

    /// The next rows, as many as `ids` holds.
    pub fn step(&mut self, dim: usize, out: &mut [f32], ids: &mut [i64], flaws: &mut Flaws) -> Result<()> {
        match self {
            Self::Group(group) => group.step(dim, out, ids, flaws),
            Self::Npy(file) => file.step(ids.len(), out),
            Self::Vecs(file) => file.step(ids.len(), out, flaws),
        }
    }
}

fn catch_up(group: &mut Group, mut check: impl FnMut() -> Result<()>) -> Result<()> {
    while group.behind() {
        check()?;
        group.pass(PASS_ROWS)?;
    }
    Ok(())
}

impl Format {
    /// Opens a file by its suffix. `named`: the caller named the column.
    fn open(path: &Path, column: Option<&str>, id_column: Option<&str>, named: bool) -> Result<Self> {
        let suffix = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        if suffix == "parquet" {
            return Ok(Self::Parquet(Parquet::open(path, column, id_column)?));
        }
        let Some(format) = Self::plain(path, &suffix) else {
            // A file that isn't there is no matter of its name.
            fs::metadata(path).map_err(|error| Error::io(path.display().to_string(), &error))?;
            return Err(Error::invalid("paths", format!("files that end in {SUFFIXES}"), path.display().to_string()));
        };
        for (argument, name) in [("column", column.filter(|_| named)), ("id_column", id_column)] {
            if let Some(name) = name {
                let given = format!("{name:?} for {}", path.display());
                return Err(Error::invalid(argument, "None, except for Parquet files: others have no columns", given));
            }
        }
        format
    }

    /// A file of plain rows.
    fn plain(path: &Path, suffix: &str) -> Option<Result<Self>> {
        let vecs = |cell| Vecs::open(path, cell).map(Self::Vecs);
        match suffix {
            "npy" => Some(Npy::open(path).map(Self::Npy)),
            "fvecs" => Some(vecs(Cell::F32)),
            "bvecs" => Some(vecs(Cell::U8)),
            "ivecs" => Some(vecs(Cell::I32)),
            _ => None,
        }
    }

    /// Rows of each row group; files of plain rows have one.
    fn groups(&self) -> Vec<u64> {
        match self {
            Self::Parquet(file) => file.groups().to_vec(),
            Self::Npy(file) => vec![file.rows()],
            Self::Vecs(file) => vec![file.rows()],
        }
    }

    /// Values a row, where the file's beginning tells.
    fn dim(&self) -> Option<usize> {
        match self {
            Self::Parquet(_) => None,
            Self::Npy(file) => Some(file.dim()),
            Self::Vecs(file) => Some(file.dim()),
        }
    }
}

/// The pieces that hold `rows` rows from row `first` of all on: of row groups what is wanted, of plain rows parts of some size.
fn plan(parts: &[Part], first: u64, rows: u64) -> Vec<Piece> {
    let last = first.saturating_add(rows);
    let mut pieces = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let most = part.format.dim().map_or(u64::MAX, |dim| (PIECE_VALUES / dim.max(1)) as u64);
        let mut begin = 0;
        for (group, &size) in part.format.groups().iter().enumerate() {
            let from = first.saturating_sub(part.before).clamp(begin, begin + size);
            let to = last.saturating_sub(part.before).clamp(begin, begin + size);
            let mut at = from;
            while at < to {
                let rows = most.min(to - at);
                pieces.push(Piece { part: number, group, skip: at - begin, first: at, rows });
                at += rows;
            }
            begin += size;
        }
    }
    pieces
}

/// The files that paths stand for: a folder for those in it whose suffix is known, by name.
fn files(paths: &[PathBuf]) -> Result<Vec<PathBuf>> {
    if paths.is_empty() {
        return Err(Error::invalid("paths", "a file, or several", "none"));
    }
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() { found.extend(folder(path)?) } else { found.push(path.clone()) }
    }
    Ok(found)
}

/// The files of a folder, which have to be of one kind.
fn folder(path: &Path) -> Result<Vec<PathBuf>> {
    let refused = |error| Error::io(path.display().to_string(), &error);
    let mut files: Vec<(String, PathBuf)> = Vec::new();
    for entry in fs::read_dir(path).map_err(refused)? {
        let file = entry.map_err(refused)?.path();
        let suffix = file.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
        let hidden = file.file_name().is_some_and(|name| name.to_string_lossy().starts_with(['.', '_']));
        if !hidden && ["parquet", "npy", "fvecs", "bvecs", "ivecs"].contains(&suffix.as_str()) && file.is_file() {
            files.push((suffix, file));
        }
    }
    files.sort_by(|one, other| one.1.cmp(&other.1));
    let given =
        |what: &str| Error::invalid("paths", format!("a folder of files of one kind, {SUFFIXES}"), format!("{} {what}", path.display()));
    match files.first() {
        None => Err(given("without any")),
        Some((first, _)) if files.iter().any(|(suffix, _)| suffix != first) => Err(given("with several kinds; name the files")),
        Some(_) => Ok(files.into_iter().map(|(_, file)| file).collect()),
    }
}

#[cfg(test)]
mod tests;
