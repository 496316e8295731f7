//! Going through a source: pieces are read by several threads at once, each straight to its place in the caller's memory.
//!
//! What comes out does not depend on the threads: rows are in the order of the files, and of several errors the one of the first row is
//! told.

use std::sync::atomic::{AtomicUsize, Ordering};

use hashbrown::HashMap;
use parking_lot::Mutex;

use super::flaw::Flaws;
use super::source::{Piece, Reader, Source};
use crate::cancel::Task;
use crate::error::{Error, Result};

/// A place in a source, from which rows are read on.
pub struct Walk {
    /// The piece that is read next, and how many of its rows were read.
    piece: usize,
    done: u64,
    /// Its reader, if it was begun.
    reader: Option<Reader>,
    /// The number of the next row among all.
    row: u64,
    /// Whether an id of a column may come again.
    repeats: bool,
}

/// What a part of a walk brought.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Filled {
    /// Rows at the beginning of the memory.
    pub kept: usize,
    /// The numbers of the rows that were left out, in order.
    pub dropped: Vec<u64>,
}

/// Rows of one piece, and the memory for them.
struct Job<'a> {
    piece: &'a Piece,
    reader: Option<Reader>,
    /// Rows of the piece that were read before.
    done: u64,
    vectors: &'a mut [f32],
    ids: &'a mut [i64],
}

impl Walk {
    /// From the first row on.
    pub fn new(source: &Source) -> Self {
        Self { piece: 0, done: 0, reader: None, row: source.first(), repeats: false }
    }

    /// Lets an id of a column come again.
    pub fn with_repeats(self) -> Self {
        Self { repeats: true, ..self }
    }

    /// Reads as many rows as `ids` holds; there have to be as many. Ids from a column must differ from each other, unless they may repeat.
    pub fn fill(&mut self, source: &Source, vectors: &mut [f32], ids: &mut [i64], task: &Task) -> Result<Filled> {
        let first = self.row;
        let jobs = self.jobs(source, vectors, ids);
        let sizes: Vec<usize> = jobs.iter().map(|job| job.ids.len()).collect();
        let mut outcomes = run(jobs, source, task)?;
        self.row += ids.len() as u64;
        self.reader = outcomes.last_mut().and_then(|(_, reader)| reader.take());
        let mut filled = Filled::default();
        let (dim, mut start) = (source.dim(), 0);
        for ((part, _), size) in outcomes.into_iter().zip(sizes) {
            if filled.kept < start {
                vectors.copy_within(start * dim..(start + part.kept) * dim, filled.kept * dim);
                ids.copy_within(start..start + part.kept, filled.kept);
            }
            start += size;
            filled.kept += part.kept;
            filled.dropped.extend(part.dropped);
        }
        if source.has_id_column() && !self.repeats {
            check_unique(source, &ids[..filled.kept], first, &filled.dropped)?;
        }
        Ok(filled)
    }

    /// Shares the memory out among the next pieces.
    fn jobs<'a>(&mut self, source: &'a Source, vectors: &'a mut [f32], ids: &'a mut [i64]) -> Vec<Job<'a>> {
        let mut jobs = Vec::new();
        let (mut vectors, mut ids) = (vectors, ids);
        while let Some(piece) = source.pieces().get(self.piece).filter(|_| !ids.is_empty()) {
            let rows = usize::try_from(piece.rows - self.done).map_or(ids.len(), |left| left.min(ids.len()));
            let (own_vectors, own_ids);
            (own_vectors, vectors) = vectors.split_at_mut(rows * source.dim());
            (own_ids, ids) = ids.split_at_mut(rows);
            jobs.push(Job { piece, reader: self.reader.take(), done: self.done, vectors: own_vectors, ids: own_ids });
            self.done += rows as u64;
            if self.done < piece.rows {
                return jobs;
            }
            (self.piece, self.done) = (self.piece + 1, 0);
        }
        jobs
    }
}

/// What was read, and the reader where its piece goes on.
type Outcome = (Filled, Option<Reader>);

/// Does the jobs, in order, on as many threads as the source may use.
fn run(jobs: Vec<Job<'_>>, source: &Source, task: &Task) -> Result<Vec<Outcome>> {
    let threads = source.threads().min(jobs.len());
    let failed = AtomicUsize::new(usize::MAX);
    let outcomes: Mutex<Vec<Option<Result<Outcome>>>> = Mutex::new(jobs.iter().map(|_| None).collect());
    let queue = Mutex::new(jobs.into_iter().enumerate());
    let work = || {
        loop {
            let Some((number, job)) = queue.lock().next() else { return };
            // What comes after a failure isn't wanted; what comes before it may fail too, and is then the first.
            let wanted = || if failed.load(Ordering::Relaxed) < number { Err(Error::Cancelled) } else { task.check() };
            let outcome = read(job, source, task, &wanted);
            if outcome.is_err() {
                failed.fetch_min(number, Ordering::Relaxed);
            }
            outcomes.lock()[number] = Some(outcome);
        }
    };
    if threads <= 1 {
        work();
    } else {
        std::thread::scope(|scope| {
            for number in 1..threads {
                // Without a thread the others do its work.
                drop(std::thread::Builder::new().name(format!("sapwood-read-{number}")).spawn_scoped(scope, work));
            }
            work();
        });
    }
    let ended = |outcome: Option<_>| outcome.unwrap_or_else(|| Err(Error::System("a piece of a file was not read".into())));
    outcomes.into_inner().into_iter().map(ended).collect()
}

/// Reads a job's rows and leaves out what the sieve says.
fn read(job: Job<'_>, source: &Source, task: &Task, wanted: &impl Fn() -> Result<()>) -> Result<Outcome> {
    let Job { piece, reader, done, vectors, ids } = job;
    wanted()?;
    let mut reader = reader.map_or_else(|| source.reader(piece), Ok)?;
    reader.catch_up(wanted)?;
    let (dim, step) = (source.dim(), source.step_rows(piece));
    let (mut filled, mut flaws) = (Filled::default(), Flaws::default());
    let mut at = 0;
    while at < ids.len() {
        wanted()?;
        let rows = step.min(ids.len() - at);
        let out = &mut vectors[filled.kept * dim..(filled.kept + rows) * dim];
        let numbers = &mut ids[filled.kept..filled.kept + rows];
        let first = source.number(piece, done + at as u64);
        numbers.iter_mut().zip(first..).for_each(|(id, row)| *id = row as i64);
        reader.step(dim, out, numbers, &mut flaws)?;
        flaws.add_not_finite(out, dim);
        let gone = source.sieve(piece, done + at as u64, &mut flaws)?;
        filled.kept += close_up(out, numbers, dim, &gone);
        filled.dropped.extend(gone.iter().map(|&row| first + row as u64));
        at += rows;
        task.advance(rows as u64);
    }
    // A reader that is at its end is let go with its pages and its file, of which there would else be one for each piece.
    let goes_on = done + (at as u64) < piece.rows;
    Ok((filled, goes_on.then_some(reader)))
}

/// Moves the rows that stay to the beginning; returns how many there are.
fn close_up(vectors: &mut [f32], ids: &mut [i64], dim: usize, gone: &[usize]) -> usize {
    let Some(&first) = gone.first() else { return ids.len() };
    let (mut gone, mut kept) = (gone.iter().peekable(), first);
    for row in first..ids.len() {
        if gone.next_if(|&&each| each == row).is_none() {
            vectors.copy_within(row * dim..(row + 1) * dim, kept * dim);
            ids[kept] = ids[row];
            kept += 1;
        }
    }
    kept
}

/// Refuses an id that comes twice. `first` is the number of the first row that was read.
fn check_unique(source: &Source, ids: &[i64], first: u64, dropped: &[u64]) -> Result<()> {
    if ids.is_sorted_by(|one, next| one < next) {
        return Ok(());
    }
    let mut seen: HashMap<i64, usize, foldhash::fast::FixedState> = HashMap::default();
    let reserved = seen.try_reserve(ids.len());
    reserved.map_err(|_| Error::OutOfMemory { bytes: ids.len() * 16, purpose: "looking for repeated ids" })?;
    for (place, &id) in ids.iter().enumerate() {
        if let Some(before) = seen.insert(id, place) {
            return Err(source.repeated(id, number(before, first, dropped), number(place, first, dropped)));
        }
    }
    Ok(())
}

/// The number among all rows of the row that is kept at `place`.
fn number(place: usize, first: u64, dropped: &[u64]) -> u64 {
    let mut row = first + place as u64;
    for &gone in dropped {
        if gone > row {
            break;
        }
        row += 1;
    }
    row
}
