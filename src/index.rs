//! The index in memory: the handle that people hold, a thin composition of the tree, its balancer and a pool of threads.

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Once, OnceLock};

use arc_swap::ArcSwapOption;

use crate::balance::workers::{Balancer, STACK, lower_priority};
use crate::cancel::Task;
use crate::checkpoint::{Held, Home};
use crate::dataset::Rows;
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::metric::{MAX_DIM, Metric};
use crate::params::Params;
use crate::search::target::Table;
use crate::tree::check::check;
use crate::tree::store::Store;
use crate::vectors::Row;

mod batch;
mod calibrate;
mod durable;
mod query;
mod statistics;
#[cfg(test)]
mod tests;

pub use batch::{AddResult, Batch};
use calibrate::Targets;
use durable::Disk;
pub use durable::{CacheStats, Wanted};
use query::Spent;
pub use query::{SearchResult, SearchTimes};
pub use statistics::{Stats, TargetStats};

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
    /// Batches of queries that the readers' pool is at work on.
    batches: AtomicUsize,
    writers: Pool,
    /// The directory that it is bound to.
    home: Option<Home>,
    /// The checkpoint that a reader reads.
    held: Option<Held>,
    /// What is read from disk when it is needed.
    disk: Option<Disk>,
    /// Whether what a checkpoint left to be balanced and to be used again was noted.
    noted: Once,
    /// What searches cost.
    spent: Spent,
    /// When searches with a recall target end.
    targets: Targets,
}

/// Threads, made at the first need.
type Pool = OnceLock<Option<rayon::ThreadPool>>;

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
        Ok(Self::of(store, None, None, None, None))
    }

    fn of(store: Arc<Store>, home: Option<Home>, held: Option<Held>, disk: Option<Disk>, table: Option<Table>) -> Self {
        let (dim, metric, params) = (store.vectors.dim(), store.metric, store.params.clone());
        let balancer = Balancer::new(store.clone(), params.thread_count(), params.background);
        let (readers, writers, noted, spent) = (OnceLock::new(), OnceLock::new(), Once::new(), Spent::default());
        let targets = Targets::read(table, &store);
        let batches = AtomicUsize::new(0);
        let core = Core { store, balancer, readers, batches, writers, home, held, disk, noted, spent, targets };
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
        if let Some(home) = &core.home {
            core.noted.call_once(|| noted = home.take_over(&core.store).and_then(|()| core.note_all()));
        }
        noted.map(|()| core)
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
        let cache = core.disk.as_ref().map(Disk::stats);
        let targets = core.targets.current().map(|measured| TargetStats::of(&measured)).unwrap_or_default();
        Ok(Stats { cache, search: core.spent.times(), targets, ..Stats::of(&core.store, &core.balancer) })
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

impl Core {
    /// Leaves that were out of their bounds when a checkpoint was made.
    fn note_all(&self) -> Result<()> {
        let every: Vec<u32> = self.store.view().leaves.iter().map(|(id, _)| id).collect();
        self.balancer.note(&every)
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
}
