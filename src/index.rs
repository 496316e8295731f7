//! The index in memory: the handle that people hold, a thin composition of the tree, its balancer and a pool of threads.

use std::sync::{Arc, Once, OnceLock};

use arc_swap::ArcSwapOption;
use rayon::prelude::*;

use crate::balance::workers::{Balancer, STACK, lower_priority};
use crate::cancel::Task;
use crate::checkpoint::{Held, Home};
use crate::dataset::Rows;
use crate::dataset::rows::refused;
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::metric::{MAX_DIM, Metric};
use crate::params::{Params, SearchOptions};
use crate::search::scan::{Cost, Request, Searcher};
use crate::tree::check::check;
use crate::tree::insert::settle;
use crate::tree::snapshot::Snapshot;
use crate::tree::store::Store;
use crate::vectors::{Lease, Row};

mod durable;
mod statistics;
#[cfg(test)]
mod tests;

use durable::Disk;
pub use durable::{CacheStats, Wanted};
pub use statistics::Stats;

/// A vector index that stays good while it changes. All methods take `&self` and may be called from many threads at once.
#[derive(Debug)]
pub struct Index {
    dim: usize,
    metric: Metric,
    params: Params,
    core: ArcSwapOption<Core>,
}

#[derive(Debug)]
struct Core {
    store: Arc<Store>,
    balancer: Balancer,
    readers: Pool,
    writers: Pool,
    /// The directory that it is bound to.
    home: Option<Home>,
    /// The checkpoint that a reader reads.
    held: Option<Held>,
    /// What is read from disk when it is needed.
    disk: Option<Disk>,
    /// Whether what a checkpoint left to be balanced was noted.
    noted: Once,
}

/// Threads, made at the first need.
type Pool = OnceLock<Option<rayon::ThreadPool>>;

/// How far batches of rows give way to searches. A batch that waits for a search is a little later; a search that waits for a batch is
/// many times slower than at rest.
const WRITING: i32 = 10;

/// What an `add` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddResult {
    /// Ids that are new.
    pub added: u64,
    /// Ids whose vector was replaced.
    pub replaced: u64,
}

/// Neighbours of a batch of queries, and what finding them cost.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchResult {
    /// `k` ids a query, nearest first, ties by id; -1 where there were no more.
    pub ids: Vec<i64>,
    /// Their distances; +inf where there were no more.
    pub distances: Vec<f32>,
    /// Codes scanned, over the batch.
    pub scanned: u64,
    /// Vectors compared exactly, over the batch.
    pub reranked: u64,
    /// Leaves scanned, over the batch.
    pub leaves: u64,
}

/// An allow list of at most so many ids is compared exactly, id by id.
const DIRECT: usize = 8192;
/// Vectors that are copied before the task is polled again.
const COPIED: usize = 4096;

impl Index {
    /// An empty index of vectors of `dim` values (1 to 65,535).
    pub fn new(dim: usize, metric: Metric, params: Params) -> Result<Self> {
        if dim == 0 || dim > MAX_DIM {
            return Err(Error::invalid("dim", format!("a whole number from 1 to {MAX_DIM}"), dim.to_string()));
        }
        params.validate()?;
        let store = Arc::new(Store::new(Kernels::get()?, dim, metric, params.clone()));
        Ok(Self::of(store, None, None, None))
    }

    fn of(store: Arc<Store>, home: Option<Home>, held: Option<Held>, disk: Option<Disk>) -> Self {
        let (dim, metric, params) = (store.vectors.dim(), store.metric, store.params.clone());
        let balancer = Balancer::new(store.clone(), params.thread_count(), params.background);
        let (readers, writers, noted) = (OnceLock::new(), OnceLock::new(), Once::new());
        let core = Core { store, balancer, readers, writers, home, held, disk, noted };
        Self { dim, metric, params, core: ArcSwapOption::from_pointee(core) }
    }

    fn core(&self) -> Result<Arc<Core>> {
        let core = self.core.load_full().ok_or(Error::Closed)?;
        let (owner, child) = (core.store.owner, std::process::id());
        if owner == child { Ok(core) } else { Err(Error::Forked { owner, child }) }
    }

    /// The core with ids and locations at hand.
    fn loaded(&self) -> Result<Arc<Core>> {
        let core = self.core()?;
        core.store.load_directory()?;
        Ok(core)
    }

    /// The core for a change.
    fn writable(&self) -> Result<Arc<Core>> {
        let core = self.loaded()?;
        if core.held.is_some() {
            return Err(Error::System("this handle reads a checkpoint; open a Writer to change it".into()));
        }
        let mut noted = Ok(());
        if core.home.is_some() {
            core.noted.call_once(|| noted = core.note_all());
        }
        noted.map(|()| core)
    }

    /// Takes room for a batch; nothing is visible until [`Batch::commit`]. Dropping the batch gives the room back.
    pub fn stage(&self, rows: usize) -> Result<Batch> {
        let core = self.writable()?;
        let lease = core.store.vectors.lease(rows)?;
        Ok(Batch { core, lease })
    }

    /// Adds or replaces rows: [`Index::stage`], [`Batch::fill`] and [`Batch::commit`] in one.
    pub fn add(&self, rows: Rows<'_>, ids: Option<&[i64]>, task: &Task) -> Result<AddResult> {
        let mut batch = self.stage(rows.len())?;
        batch.fill(0, rows, task)?;
        batch.commit(ids, task)
    }

    /// Removes ids; returns how many were live. A search that begins afterwards doesn't see them.
    pub fn remove(&self, ids: &[i64]) -> Result<u64> {
        let core = self.writable()?;
        let mut edit = core.store.edit();
        let removed = ids.iter().filter(|&&id| edit.forget(id)).count();
        if removed > 0 {
            let touched = edit.publish();
            core.balancer.note(&touched)?;
            core.balancer.help(removed)?;
        }
        Ok(removed as u64)
    }

    /// The `k` nearest of each query among the rows that were live when the call began.
    pub fn search(&self, queries: Rows<'_>, k: usize, options: &SearchOptions, task: &Task) -> Result<SearchResult> {
        let core = self.core()?;
        options.validate(k)?;
        check_width("queries", queries, self.dim)?;
        queries.check_finite("queries", 0)?;
        let mut result =
            SearchResult { ids: filled(queries.len(), k, -1)?, distances: filled(queries.len(), k, f32::INFINITY)?, ..Default::default() };
        task.set_total(queries.len() as u64);
        let plan = core.plan(k, options)?;
        let cost = core.run(queries, k, &plan, options.threads, &mut result, task)?;
        (result.scanned, result.reranked, result.leaves) = (cost.scanned, cost.reranked, cost.leaves);
        Ok(result)
    }

    /// The stored vectors of `ids`, one after the other; under cosine they have unit length.
    pub fn get(&self, ids: &[i64], task: &Task) -> Result<Vec<f32>> {
        let core = self.loaded()?;
        let store = &core.store;
        // The snapshot keeps the rows from being used again while they are copied.
        let (rows, _pin) = store.look(|state, snapshot| {
            let row = |&id: &i64| state.directory.row(&store.ids, id).ok_or(Error::MissingId { id });
            (ids.iter().map(row).collect::<Result<Vec<Row>>>(), snapshot.clone())
        });
        let mut values = filled(ids.len(), self.dim, 0.0f32)?;
        let mut room = Vec::new();
        for (i, (row, out)) in rows?.into_iter().zip(values.chunks_exact_mut(self.dim)).enumerate() {
            if i % COPIED == 0 {
                task.check()?;
            }
            out.copy_from_slice(store.vectors.get(row, &mut room)?);
        }
        Ok(values)
    }

    /// Whether `id` is live.
    pub fn contains(&self, id: i64) -> Result<bool> {
        let core = self.loaded()?;
        Ok(core.store.look(|state, _| state.directory.row(&core.store.ids, id).is_some()))
    }

    /// Live ids; 0 when closed.
    pub fn len(&self) -> usize {
        self.core.load().as_ref().map_or(0, |core| core.store.view().rows)
    }

    /// True without live ids.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// All live ids, ascending.
    pub fn ids(&self) -> Result<Vec<i64>> {
        let core = self.loaded()?;
        let store = &core.store;
        let mut ids: Vec<i64> = store.look(|state, _| state.directory.live_rows().map(|row| store.ids.get(row) as i64).collect());
        ids.sort_unstable();
        Ok(ids)
    }

    /// Waits until nothing is left to split, merge or cluster.
    pub fn balance(&self, task: &Task) -> Result<()> {
        self.writable()?.balancer.balance(task)
    }

    /// Sizes, counters, bytes.
    pub fn stats(&self) -> Result<Stats> {
        let core = self.core()?;
        Ok(Stats { cache: core.disk.as_ref().map(Disk::stats), ..Stats::of(&core.store, &core.balancer) })
    }

    /// Proves the invariants of the index; see [`check`].
    pub fn validate(&self, task: &Task) -> Result<()> {
        check(&self.loaded()?.store, task)
    }

    /// Frees everything; later calls fail with [`Error::Closed`]. Closing twice is fine.
    pub fn close(&self) {
        self.core.store(None);
    }

    /// Whether it was closed.
    pub fn is_closed(&self) -> bool {
        self.core.load().is_none()
    }

    /// Values of a vector.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// What is near.
    pub fn metric(&self) -> Metric {
        self.metric
    }

    /// The options it was made with.
    pub fn params(&self) -> &Params {
        &self.params
    }
}

fn check_width(argument: &'static str, rows: Rows<'_>, dim: usize) -> Result<()> {
    if rows.dim() == dim {
        return Ok(());
    }
    Err(Error::invalid(argument, format!("rows of {dim} values"), format!("rows of {}", rows.dim())))
}

/// `rows * columns` copies of `value`, or an error where there is no memory for them.
fn filled<T: Clone>(rows: usize, columns: usize, value: T) -> Result<Vec<T>> {
    let len = rows.saturating_mul(columns);
    let bytes = len.saturating_mul(size_of::<T>());
    let mut values = Vec::new();
    values.try_reserve_exact(len).map_err(|_| Error::OutOfMemory { bytes, purpose: "the result" })?;
    values.resize(len, value);
    Ok(values)
}

/// How a batch of queries is answered.
enum Plan<'a> {
    /// By the tree.
    Tree(Arc<Snapshot>, Request<'a>),
    /// By comparing with each of these rows.
    Direct {
        /// The rows.
        rows: Vec<Row>,
        /// Keeps the rows from being used again.
        _pin: Arc<Snapshot>,
    },
}

impl Core {
    /// Leaves that were out of their bounds when a checkpoint was made.
    fn note_all(&self) -> Result<()> {
        let every: Vec<u32> = self.store.view().leaves.iter().map(|(id, _)| id).collect();
        self.balancer.note(&every)
    }

    fn plan<'a>(&self, k: usize, options: &'a SearchOptions) -> Result<Plan<'a>> {
        let filter = options.filter.as_deref();
        let mut beam = options.beam();
        let Some(filter) = filter else {
            return Ok(Plan::Tree(self.store.snapshot(), Request { k, beam, rerank: options.rerank, filter: None }));
        };
        let store = &self.store;
        if filter.is_allow() && filter.ids().len() <= DIRECT {
            store.load_directory()?;
            let (rows, pin) = store.look(|state, snapshot| {
                (filter.ids().iter().filter_map(|&id| state.directory.row(&store.ids, id)).collect(), snapshot.clone())
            });
            return Ok(Plan::Direct { rows, _pin: pin });
        }
        // Of each leaf only a share may be returned, so as many more leaves are scanned.
        let snapshot = store.snapshot();
        let rows = snapshot.rows.max(1) as f64;
        let listed = filter.ids().len() as f64 / rows;
        let share = if filter.is_allow() { listed } else { 1.0 - listed }.clamp(1.0 / rows, 1.0);
        let widen = |leaves: usize| ((leaves as f64 / share) as usize).clamp(leaves, leaves.max(snapshot.leaves.len()));
        (beam.least, beam.most) = (widen(beam.least), widen(beam.most));
        Ok(Plan::Tree(snapshot.clone(), Request { k, beam, rerank: options.rerank, filter: Some(filter) }))
    }

    fn run(
        &self,
        queries: Rows<'_>,
        k: usize,
        plan: &Plan<'_>,
        threads: Option<usize>,
        result: &mut SearchResult,
        task: &Task,
    ) -> Result<Cost> {
        let threads = threads.unwrap_or(self.store.params.thread_count()).min(queries.len().max(1));
        let part = queries.len().div_ceil(threads).max(1);
        let parts = result.ids.chunks_mut(part * k).zip(result.distances.chunks_mut(part * k)).enumerate();
        let one = |(number, (ids, distances)): (usize, (&mut [i64], &mut [f32]))| {
            let range = number * part..(number * part + ids.len() / k);
            self.run_part(queries.slice(range), k, plan, ids, distances, task)
        };
        let pool = if threads > 1 { self.pool(&self.readers, "search", None) } else { None };
        let costs: Result<Vec<Cost>> = match pool {
            Some(pool) => {
                let parts: Vec<_> = parts.collect();
                pool.install(|| parts.into_par_iter().map(one).collect())
            }
            None => parts.map(one).collect(),
        };
        let mut total = Cost::default();
        costs?.into_iter().for_each(|cost| total += cost);
        Ok(total)
    }

    fn run_part(&self, queries: Rows<'_>, k: usize, plan: &Plan<'_>, ids: &mut [i64], distances: &mut [f32], task: &Task) -> Result<Cost> {
        let mut searcher = Searcher::new(&self.store);
        let mut total = Cost::default();
        for (i, (ids, distances)) in ids.chunks_exact_mut(k).zip(distances.chunks_exact_mut(k)).enumerate() {
            task.check()?;
            total += match plan {
                Plan::Tree(snapshot, request) => searcher.search(snapshot, queries.row(i), request, ids, distances)?,
                Plan::Direct { rows, .. } => searcher.search_rows(rows, queries.row(i), k, ids, distances)?,
            };
            task.advance(1);
        }
        Ok(total)
    }

    /// A pool of the index; without one the caller's thread does the work.
    fn pool<'p>(&self, pool: &'p Pool, name: &'static str, niceness: Option<i32>) -> Option<&'p rayon::ThreadPool> {
        let build = || {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(self.store.params.thread_count()).stack_size(STACK);
            let builder = builder.start_handler(move |_| niceness.into_iter().for_each(lower_priority));
            builder.thread_name(move |i| format!("sapwood-{name}-{i}")).build().ok()
        };
        pool.get_or_init(build).as_ref()
    }

    /// Runs `work` of writing so many rows, on the writers' pool where that is worth it.
    fn spread<T: Send>(&self, rows: usize, work: impl FnOnce() -> T + Send) -> T {
        let pool = if rows >= SPREAD { self.pool(&self.writers, "write", Some(WRITING)) } else { None };
        match pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

/// Fewer rows are written by the caller's thread alone.
const SPREAD: usize = 256;

/// Rows on their way into an index. See [`Index::stage`].
#[derive(Debug)]
pub struct Batch {
    core: Arc<Core>,
    lease: Lease,
}

impl Batch {
    /// Checks and stores the rows from `start` on. The rows are copied first, then checked, so that what is stored is what was checked even if
    /// another thread writes to the caller's memory. The error names row `start + i`.
    pub fn fill(&mut self, start: usize, rows: Rows<'_>, task: &Task) -> Result<()> {
        task.check()?;
        let metric = self.core.store.metric;
        check_width("vectors", rows, self.core.store.vectors.dim())?;
        let room = self.lease.rows().len();
        if start + rows.len() > room {
            return Err(Error::invalid("vectors", format!("at most {room} rows, as staged"), (start + rows.len()).to_string()));
        }
        let core = self.core.clone();
        let lease = &mut self.lease;
        let filled = core.spread(rows.len(), || lease.fill(start, rows, |row| metric.prepare(row)));
        match filled {
            None => Ok(()),
            Some((row, value)) if value.is_finite() => {
                let expected = format!("values that {} can hold, or storage=\"f32\"", self.core.store.params.storage.name());
                Err(Error::invalid("vectors", expected, format!("{value} in row {row}")))
            }
            Some((row, value)) => Err(refused("vectors", row, value)),
        }
    }

    /// Applies the whole batch: under `ids` (0 to 2^63 - 1, one a row), or under ids that were never given out. Of rows with one id
    /// the last wins.
    pub fn commit(self, ids: Option<&[i64]>, task: &Task) -> Result<AddResult> {
        let rows = self.lease.rows().to_vec();
        let kept = match ids {
            Some(ids) => last_of_each(ids, rows.len())?,
            None => (0..rows.len() as u32).collect(),
        };
        if rows.is_empty() {
            return Ok(AddResult::default());
        }
        task.set_total(kept.len() as u64);
        let core = self.core.clone();
        let (result, touched) = core.spread(rows.len(), || self.publish(&kept, &rows, ids, task))?;
        core.balancer.note(&touched)?;
        core.balancer.help(rows.len())?;
        Ok(result)
    }

    fn publish(self, kept: &[u32], rows: &[Row], ids: Option<&[i64]>, task: &Task) -> Result<(AddResult, Vec<u32>)> {
        let store = &self.core.store;
        let taken = kept.iter().map(|&index| rows[index as usize]).collect();
        let (mut edit, routed, prepared) = settle(store, taken, task)?;
        task.check()?;
        let first = match ids {
            Some(_) => 0,
            None => edit.state().directory.fresh_ids(rows.len())?,
        };
        // From here on nothing fails.
        let mut replaced = 0;
        for (i, &index) in kept.iter().enumerate() {
            let id = ids.map_or(first + i as i64, |ids| ids[index as usize]);
            replaced += u64::from(edit.assign(id, routed.rows[i], routed.locations[i]));
        }
        routed.apply(&mut edit, prepared, |_, _| true);
        edit.state().added_since += kept.len();
        let touched = edit.publish();
        let leased = self.lease.keep();
        if kept.len() < leased.len() {
            let mut used = vec![false; leased.len()];
            kept.iter().for_each(|&index| used[index as usize] = true);
            store.vectors.release(leased.into_iter().zip(used).filter(|(_, used)| !used).map(|(row, _)| row));
        }
        Ok((AddResult { added: kept.len() as u64 - replaced, replaced }, touched))
    }
}

/// Indices of the last row of each id, ascending.
fn last_of_each(ids: &[i64], rows: usize) -> Result<Vec<u32>> {
    if ids.len() != rows {
        return Err(Error::invalid("ids", format!("one id a row: {rows}"), format!("{} ids", ids.len())));
    }
    if let Some(id) = ids.iter().find(|id| **id < 0) {
        return Err(Error::invalid("ids", "whole numbers from 0 to 2**63 - 1", id.to_string()));
    }
    let mut order: Vec<u32> = (0..rows as u32).collect();
    if ids.windows(2).any(|pair| pair[0] >= pair[1]) {
        order.sort_by_key(|&index| ids[index as usize]);
        let mut last: Vec<u32> =
            order.chunk_by(|&a, &b| ids[a as usize] == ids[b as usize]).filter_map(|same| same.last().copied()).collect();
        last.sort_unstable();
        return Ok(last);
    }
    Ok(order)
}
