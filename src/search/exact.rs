//! Brute force over all rows: the ground truth, and fast enough to be asked for often.
//!
//! The problem: a distance a pair is too slow, and the fast way (products of whole tiles) rounds differently and cancels.
//! The rule of use: products only sort out; whatever [`Margin`] can't prove to be too far is computed by [`Metric::distance`] and
//! selected by that. So results are those of the plain double loop, bit for bit, for any number of threads and any kernels' tiling.
//! The hazard: a threshold read by one thread may be older than another thread's. It only ever falls, so an old one lets more pass.
//!
//! Work is cut into units, a block of rows by a segment of queries, that threads take in order. A unit goes through its queries tile by
//! tile, while its rows stay in the second-level cache. Units are taken in the order of rows, and a unit that was taken is always
//! checked for NaN and infinity: so the error names the first such row, whichever thread came upon it.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};

use parking_lot::Mutex;

use crate::cancel::Task;
use crate::dataset::Rows;
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::metric::{MAX_DIM, Metric};
use crate::params::MAX_K;
use crate::search::margin::{Margin, passes, score_cosine, score_direct, score_ip, score_l2};
use crate::search::topk::{NO_ID, TopK};

/// Bytes of a block of rows: with a tile of queries and of products it fits a second-level cache of 512 KiB.
const BLOCK_BYTES: usize = 144 << 10;

/// Rows of a block at most, so that small rows leave room for the products.
const BLOCK_ROWS: usize = 240;

/// Rows of a block are a multiple of this, so that register tiles 2, 3, 4, 6 or 8 rows wide leave no rest.
const BLOCK_STEP: usize = 48;

/// Queries of a tile, chosen likewise.
const TILE_QUERIES: usize = 48;

/// Bytes of the queries that go through all blocks together: they come from the last-level cache once a block.
const GROUP_BYTES: usize = 8 << 20;

/// Bytes of the selectors of such a group.
const SELECTOR_BYTES: usize = 64 << 20;

/// Units a thread at least, so that threads end together.
const UNITS_A_THREAD: usize = 8;

/// A thread that has less to do than this many products costs more than it saves.
const PRODUCTS_A_THREAD: usize = 1 << 21;

/// One in so many of a tile's pairs may be computed in vain before products are given up; a pair alone costs several times one in a tile.
const MOST_IN_VAIN: usize = 4;

/// Scores that are tested at once.
const STRIDE: usize = 16;

/// The `k` nearest of `vectors` to each of `queries`: row numbers and distances, `queries.len() * k` each, ascending, ties by the smaller
/// row number. Distances equal [`Metric::distance`] of the prepared rows bit for bit; one that overflows to NaN counts as +inf.
/// Where there are fewer than `k` rows, the rest is [`NO_ID`] and +inf.
///
/// Runs on `threads` threads of its own (0 and 1: on the caller's). Inputs are only read. Progress counts pairs of a query and a row.
///
/// Refuses widths that differ, NaN and infinity (naming the row), and `k` outside `1..=MAX_K`; results that don't fit in memory give
/// [`Error::OutOfMemory`].
pub fn exact_search(
    vectors: Rows<'_>,
    queries: Rows<'_>,
    k: usize,
    metric: Metric,
    threads: usize,
    task: &Task,
) -> Result<(Vec<i64>, Vec<f32>)> {
    check_shape(vectors, queries, k)?;
    let kernels = Kernels::get()?;
    task.set_total((queries.len() as u64).saturating_mul(vectors.len() as u64));
    let squares = checked_squares(kernels, queries, task)?;
    let places = queries.len().checked_mul(k);
    let mut ids = filled(places, NO_ID)?;
    let mut distances = filled(places, f32::INFINITY)?;

    let call = Call { kernels, metric, vectors, k, task };
    let crew = Crew::new(useful_threads(threads, vectors, queries))?;
    let group = group_size(vectors, k);
    let mut results = ids.chunks_mut(group * k).zip(distances.chunks_mut(group * k));
    // Vectors are checked even when there is nothing to compare them with.
    for start in (0..queries.len().max(1)).step_by(group) {
        let range = start..(start + group).min(queries.len());
        let mut prepared = Vec::new();
        let group = prepare(metric, queries.slice(range.clone()), &mut prepared)?;
        let job = Job::new(call, group, &squares[range], crew.threads())?;
        crew.run(&|| job.work());
        let nearest = job.finish()?;
        let (ids, distances) = results.next().unwrap_or_default();
        write_results(nearest, k, ids, distances, &crew, task)?;
    }
    Ok((ids, distances))
}

fn check_shape(vectors: Rows<'_>, queries: Rows<'_>, k: usize) -> Result<()> {
    if vectors.dim() > MAX_DIM {
        return Err(Error::invalid("vectors", format!("at most {MAX_DIM} values a row"), vectors.dim().to_string()));
    }
    if queries.dim() != vectors.dim() {
        let expected = format!("rows of {} values, as vectors has", vectors.dim());
        return Err(Error::invalid("queries", expected, format!("rows of {}", queries.dim())));
    }
    if !(1..=MAX_K).contains(&k) {
        return Err(Error::invalid("k", format!("a whole number from 1 to {MAX_K}"), k.to_string()));
    }
    Ok(())
}

/// The squared length of each row, by the kernels; refuses NaN and infinity on the way.
fn checked_square(kernels: &Kernels, argument: &'static str, rows: Rows<'_>, first: usize, i: usize) -> Result<f32> {
    let square = (kernels.dot)(rows.row(i), rows.row(i));
    if !square.is_finite() {
        // Either a value is at fault, or finite values overflowed.
        rows.slice(i..i + 1).check_finite(argument, first + i)?;
    }
    Ok(square)
}

fn checked_squares(kernels: &Kernels, queries: Rows<'_>, task: &Task) -> Result<Vec<f32>> {
    let mut squares = filled(Some(queries.len()), 0.0)?;
    for (i, square) in squares.iter_mut().enumerate() {
        if i.is_multiple_of(64) {
            task.check()?;
        }
        *square = checked_square(kernels, "queries", queries, 0, i)?;
    }
    Ok(squares)
}

/// `count` times `value`, where a count of `None` is one too large to tell.
fn filled<T: Clone>(count: Option<usize>, value: T) -> Result<Vec<T>> {
    let count = count.unwrap_or(usize::MAX);
    let mut values = Vec::new();
    let failed = |_| Error::OutOfMemory { bytes: count.saturating_mul(size_of::<T>()), purpose: "the results of exact_search" };
    values.try_reserve_exact(count).map_err(failed)?;
    values.resize(count, value);
    Ok(values)
}

/// The queries as they are compared: in place, or under cosine a prepared copy.
fn prepare<'a>(metric: Metric, queries: Rows<'a>, copy: &'a mut Vec<f32>) -> Result<Rows<'a>> {
    if metric != Metric::Cosine {
        return Ok(queries);
    }
    copy.extend_from_slice(queries.values());
    copy.chunks_exact_mut(queries.dim()).for_each(|row| metric.prepare(row));
    Rows::new("queries", copy, queries.dim())
}

/// Queries that go through all rows together.
fn group_size(vectors: Rows<'_>, k: usize) -> usize {
    let by_queries = GROUP_BYTES / (4 * vectors.dim());
    let by_selectors = SELECTOR_BYTES / (16 * k.min(vectors.len()).max(1));
    by_queries.min(by_selectors).max(1)
}

fn useful_threads(threads: usize, vectors: Rows<'_>, queries: Rows<'_>) -> usize {
    let products = vectors.values().len().saturating_mul(queries.len());
    threads.min(products / PRODUCTS_A_THREAD).max(1)
}

/// The call's own threads; `None` is the caller's.
struct Crew(Option<rayon::ThreadPool>);

impl Crew {
    fn new(threads: usize) -> Result<Self> {
        if threads <= 1 {
            return Ok(Self(None));
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("sapwood-exact-{i}")).build();
        let pool = pool.map_err(|error| Error::System(format!("{threads} threads for exact_search: {error}; ask for fewer")))?;
        Ok(Self(Some(pool)))
    }

    fn threads(&self) -> usize {
        self.0.as_ref().map_or(1, rayon::ThreadPool::current_num_threads)
    }

    /// Does `work` once on each thread.
    fn run(&self, work: &(impl Fn() + Sync)) {
        match &self.0 {
            Some(pool) => drop(pool.broadcast(|_| work())),
            None => work(),
        }
    }
}

/// How pairs are cut into units: a block of rows by a segment of queries.
#[derive(Debug, Clone, Copy)]
struct Plan {
    rows: usize,
    queries: usize,
    block: usize,
    segment: usize,
}

impl Plan {
    fn new(vectors: Rows<'_>, queries: usize, threads: usize) -> Self {
        let block = (BLOCK_BYTES / (4 * vectors.dim())).clamp(BLOCK_STEP, BLOCK_ROWS) / BLOCK_STEP * BLOCK_STEP;
        let blocks = vectors.len().div_ceil(block).max(1);
        let tiles = queries.div_ceil(TILE_QUERIES).max(1);
        // Few blocks (few rows) and many queries: cut the queries too.
        let segments = (threads * UNITS_A_THREAD).div_ceil(blocks).min(tiles);
        Self { rows: vectors.len(), queries, block, segment: tiles.div_ceil(segments) * TILE_QUERIES }
    }

    fn segments(&self) -> usize {
        self.queries.div_ceil(self.segment).max(1)
    }

    fn units(&self) -> usize {
        self.rows.div_ceil(self.block) * self.segments()
    }

    /// The rows and the queries of a unit; units that share rows follow each other.
    fn unit(&self, unit: usize) -> (Range<usize>, Range<usize>) {
        let (row, query) = (unit / self.segments() * self.block, unit % self.segments() * self.segment);
        (row..(row + self.block).min(self.rows), query..(query + self.segment).min(self.queries))
    }
}

/// The neighbours of one query, shared by all threads.
struct Nearest {
    /// Bits of the selector's worst distance, to be read without the lock.
    worst: AtomicU32,
    selector: Mutex<TopK>,
}

impl Nearest {
    fn new(k: usize, rows: usize) -> Result<Self> {
        let mut selector = TopK::new(k);
        selector.reserve(rows)?;
        Ok(Self { worst: AtomicU32::new(f32::INFINITY.to_bits()), selector: Mutex::new(selector) })
    }

    fn worst(&self) -> f32 {
        f32::from_bits(self.worst.load(Ordering::Relaxed))
    }

    /// Takes a candidate, unless it is clearly too far; false then.
    fn offer(&self, distance: f32, row: usize) -> bool {
        if distance > self.worst() {
            return false;
        }
        let mut selector = self.selector.lock();
        selector.push(distance, row as i64);
        self.worst.store(selector.worst().to_bits(), Ordering::Relaxed);
        true
    }
}

/// What all groups of a call share.
#[derive(Clone, Copy)]
struct Call<'a> {
    kernels: &'static Kernels,
    metric: Metric,
    vectors: Rows<'a>,
    k: usize,
    task: &'a Task,
}

/// One group of (prepared) queries against all rows.
struct Job<'a> {
    call: Call<'a>,
    margin: Margin,
    queries: Rows<'a>,
    squares: &'a [f32],
    nearest: Vec<Nearest>,
    plan: Plan,
    next: AtomicUsize,
    /// Set once products are found to sort out too little: see [`Job::tile`].
    direct: AtomicBool,
    stopped: AtomicBool,
    /// Of the units that failed, the first.
    failure: Mutex<Option<(usize, Error)>>,
}

impl<'a> Job<'a> {
    fn new(call: Call<'a>, queries: Rows<'a>, squares: &'a [f32], threads: usize) -> Result<Self> {
        Ok(Self {
            call,
            margin: Margin::new(call.metric, call.vectors.dim()),
            queries,
            squares,
            nearest: (0..queries.len()).map(|_| Nearest::new(call.k, call.vectors.len())).collect::<Result<_>>()?,
            plan: Plan::new(call.vectors, queries.len(), threads),
            next: AtomicUsize::new(0),
            direct: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            failure: Mutex::new(None),
        })
    }

    /// One thread's part: units until there is none left.
    fn work(&self) {
        let mut block = Block::default();
        let mut products = vec![0.0; TILE_QUERIES * self.plan.block];
        while !self.stopped.load(Ordering::Relaxed) {
            let unit = self.next.fetch_add(1, Ordering::Relaxed);
            if unit >= self.plan.units() {
                return;
            }
            if let Err(error) = self.unit(unit, &mut block, &mut products) {
                let mut failure = self.failure.lock();
                if failure.as_ref().is_none_or(|(first, _)| unit < *first) {
                    *failure = Some((unit, error));
                }
                self.stopped.store(true, Ordering::Relaxed);
            }
        }
    }

    fn finish(self) -> Result<Vec<Nearest>> {
        match self.failure.into_inner() {
            Some((_, error)) => Err(error),
            None => Ok(self.nearest),
        }
    }

    fn unit(&self, unit: usize, block: &mut Block, products: &mut [f32]) -> Result<()> {
        let (rows, queries) = self.plan.unit(unit);
        block.load(&self.call, &self.margin, rows.clone())?;
        let rows = self.call.vectors.slice(rows);
        for first in queries.clone().step_by(TILE_QUERIES) {
            self.call.task.check()?;
            if self.stopped.load(Ordering::Relaxed) {
                return Ok(());
            }
            let tile = first..(first + TILE_QUERIES).min(queries.end);
            let pairs = tile.len() * rows.len();
            self.tile(tile, rows, block, &mut products[..pairs]);
            self.call.task.advance(pairs as u64);
        }
        Ok(())
    }

    /// Scores a tile and computes what passes.
    ///
    /// Under l2, where rows are much nearer to each other than to the origin, cancellation leaves products that prove nothing. If too
    /// many rows were computed in vain, the job goes on with tiles of differences: twice the work, and no cancellation.
    fn tile(&self, queries: Range<usize>, rows: Rows<'_>, block: &mut Block, values: &mut [f32]) {
        let direct = self.direct.load(Ordering::Relaxed);
        let kernel = if direct { self.call.kernels.l2_tile } else { self.call.kernels.dot_tile };
        kernel(self.queries.slice(queries.clone()).values(), rows.values(), rows.dim(), values);
        let mut vain = 0;
        for (query, values) in queries.zip(values.chunks_exact(rows.len())) {
            let (square, longest) = (self.squares[query], block.longest);
            let least = |worst: f32| self.margin.least(worst, square, longest);
            vain += match self.call.metric {
                Metric::L2 if direct => self.select(query, values, block, score_direct, |worst| self.margin.least_direct(worst)),
                Metric::L2 => self.select(query, values, block, score_l2, least),
                Metric::Cosine => self.select(query, values, block, score_cosine, least),
                Metric::Ip => self.select(query, values, block, score_ip, least),
            };
        }
        if self.call.metric == Metric::L2 && vain > values.len() / MOST_IN_VAIN {
            self.direct.store(true, Ordering::Relaxed);
        }
    }

    /// Computes and offers the rows of a block that the scores don't rule out. Returns how many of them were too far after all.
    fn select(
        &self,
        query: usize,
        values: &[f32],
        block: &mut Block,
        score: impl Fn(f32, f32) -> f32,
        least_of: impl Fn(f32) -> f32,
    ) -> usize {
        let nearest = &self.nearest[query];
        let (mut worst, mut vain) = (nearest.worst(), 0);
        let mut least = least_of(worst);
        for (i, values) in values.chunks(STRIDE).enumerate() {
            let first = i * STRIDE;
            if !any_passes(values, &block.weights[first..], least, &score) {
                continue;
            }
            for (place, &value) in (first..).zip(values) {
                if passes(score(value, block.weights[place]), least) {
                    let distance = self.distance(query, block, place);
                    vain += usize::from(!nearest.offer(distance, block.first + place));
                }
            }
            let now = nearest.worst();
            if now < worst {
                worst = now;
                least = least_of(worst);
            }
        }
        vain
    }

    /// The distance that is returned; one that overflowed to NaN is as far as any.
    fn distance(&self, query: usize, block: &mut Block, place: usize) -> f32 {
        let row = block.row(&self.call, place);
        let distance = self.call.metric.distance(self.call.kernels, self.queries.row(query), row);
        if distance.is_nan() { f32::INFINITY } else { distance }
    }
}

/// Whether any of a stride's scores passes, without a branch a score; a shorter rest is left to be looked at one by one.
#[inline(always)]
fn any_passes(values: &[f32], weights: &[f32], least: f32, score: &impl Fn(f32, f32) -> f32) -> bool {
    let (Some(values), Some(weights)) = (values.first_chunk::<STRIDE>(), weights.first_chunk::<STRIDE>()) else {
        return true;
    };
    values.iter().zip(weights).fold(false, |any, (&value, &weight)| any | passes(score(value, weight), least))
}

/// The rows of a unit, and what is known of them. One a thread, loaded again for each unit.
#[derive(Default)]
struct Block {
    first: usize,
    weights: Vec<f32>,
    longest: f32,
    /// Under cosine, prepared rows, made when first asked for.
    prepared: Vec<f32>,
    ready: Vec<bool>,
}

impl Block {
    fn load(&mut self, call: &Call<'_>, margin: &Margin, range: Range<usize>) -> Result<()> {
        let rows = call.vectors.slice(range.clone());
        (self.first, self.longest) = (range.start, 0.0);
        self.weights.clear();
        for i in 0..rows.len() {
            let square = checked_square(call.kernels, "vectors", rows, range.start, i)?;
            self.longest = self.longest.max(square);
            self.weights.push(margin.weight(rows.row(i), square));
        }
        if call.metric == Metric::Cosine {
            self.prepared.resize(rows.values().len(), 0.0);
            self.ready.clear();
            self.ready.resize(rows.len(), false);
        }
        Ok(())
    }

    /// The prepared row at `place` of the block.
    fn row<'b>(&'b mut self, call: &Call<'b>, place: usize) -> &'b [f32] {
        let row = call.vectors.row(self.first + place);
        if call.metric != Metric::Cosine {
            return row;
        }
        let prepared = &mut self.prepared[place * row.len()..(place + 1) * row.len()];
        if !std::mem::replace(&mut self.ready[place], true) {
            prepared.copy_from_slice(row);
            call.metric.prepare(prepared);
        }
        prepared
    }
}

/// Sorts and writes all selections, on all threads: at a large k that is a good part of the work.
fn write_results(nearest: Vec<Nearest>, k: usize, ids: &mut [i64], distances: &mut [f32], crew: &Crew, task: &Task) -> Result<()> {
    let rows = Mutex::new(nearest.into_iter().zip(ids.chunks_mut(k).zip(distances.chunks_mut(k))));
    crew.run(&|| {
        while task.check().is_ok() {
            // A statement of its own: the lock is let go before the row is sorted.
            let next = rows.lock().next();
            let Some((nearest, (ids, distances))) = next else {
                return;
            };
            nearest.selector.into_inner().write_row(ids, distances);
        }
    });
    task.check()
}

#[cfg(test)]
mod tests;
