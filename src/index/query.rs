//! Queries of an index: a batch is cut into parts, one a thread, and each is answered on one version of the tree.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use rayon::prelude::*;

use super::{Core, Index, check_width, filled};
use crate::cancel::Task;
use crate::dataset::Rows;
use crate::error::Result;
use crate::params::{Beam, EPSILON, SearchOptions};
use crate::search::scan::{Cost, Request, Searcher};
use crate::search::spread::Team;
use crate::search::target::{self, Filtered, Stop};
use crate::tree::snapshot::Snapshot;
use crate::vectors::Row;

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

/// The counters behind [`SearchTimes`].
#[derive(Debug, Default)]
pub struct Spent {
    queries: AtomicU64,
    nanoseconds: [AtomicU64; 3],
}

/// Queries so far and where their time went, summed over queries: of one that several threads share, from its begin to its end.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct SearchTimes {
    /// Queries answered.
    pub queries: u64,
    /// Seconds to prepare queries and to choose their leaves.
    pub route: f64,
    /// Seconds to scan posting lists, with reading them from disk where they are there.
    pub scan: f64,
    /// Seconds to compare candidates exactly, with reading their vectors.
    pub rerank: f64,
}

impl Spent {
    fn add(&self, queries: u64, cost: &Cost) {
        self.queries.fetch_add(queries, Ordering::Relaxed);
        for (sum, spent) in self.nanoseconds.iter().zip([cost.route, cost.scan, cost.rerank]) {
            sum.fetch_add(spent.as_nanos() as u64, Ordering::Relaxed);
        }
    }

    /// The present numbers.
    pub fn times(&self) -> SearchTimes {
        let seconds = |sum: &AtomicU64| Duration::from_nanos(sum.load(Ordering::Relaxed)).as_secs_f64();
        let [route, scan, rerank] = &self.nanoseconds;
        SearchTimes { queries: self.queries.load(Ordering::Relaxed), route: seconds(route), scan: seconds(scan), rerank: seconds(rerank) }
    }
}

/// How a batch of queries is answered.
enum Plan<'a> {
    /// By the tree.
    Tree(Arc<Snapshot>, Box<Request<'a>>),
    /// By comparing with each of these rows.
    Direct {
        /// The rows.
        rows: Vec<Row>,
        /// Keeps the rows from being used again.
        _pin: Arc<Snapshot>,
    },
}

/// What threads have in common that answer parts of a batch.
struct Work<'a> {
    plan: &'a Plan<'a>,
    team: Team<'a>,
    task: &'a Task,
}

/// Counts one more until it is dropped.
struct Counted<'a>(&'a AtomicUsize);

impl<'a> Counted<'a> {
    fn new(count: &'a AtomicUsize) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Index {
    /// The `k` nearest of each query among the rows that were live when the call began.
    pub fn search(&self, queries: Rows<'_>, k: usize, options: &SearchOptions, task: &Task) -> Result<SearchResult> {
        let core = self.core()?;
        options.validate(k)?;
        check_width("queries", queries, self.dim)?;
        queries.check_finite("queries", 0)?;
        let mut result =
            SearchResult { ids: filled(queries.len(), k, -1)?, distances: filled(queries.len(), k, f32::INFINITY)?, ..Default::default() };
        task.set_total(queries.len() as u64);
        let plan = core.plan(k, options, task)?;
        let cost = core.run(queries, k, &plan, options.threads, &mut result, task)?;
        (result.scanned, result.reranked, result.leaves) = (cost.scanned, cost.reranked, cost.leaves);
        Ok(result)
    }
}

impl Core {
    fn plan<'a>(&self, k: usize, options: &'a SearchOptions, task: &Task) -> Result<Plan<'a>> {
        let filter = options.filter.as_deref();
        // Without a table a recall target means every leaf.
        let beam = if options.recall.is_some() { Beam::exactly(usize::MAX) } else { options.beam() };
        let rerank = options.rerank;
        let epsilon =
            options.epsilon.unwrap_or_else(|| options.recall.map_or(EPSILON, |recall| target::epsilon(recall, k, self.store.metric)));
        let Some(filter) = filter else {
            let snapshot = self.store.snapshot();
            let stop = self.stop(&snapshot, k, 1.0, options, task)?;
            let request = Request { k, beam, stop, rerank, epsilon, filter: None, without: None };
            return Ok(Plan::Tree(snapshot, request.into()));
        };
        let store = &self.store;
        if filter.is_allow() && filter.ids().len() <= DIRECT {
            store.load_directory()?;
            let (rows, pin) = store.look(|state, snapshot| {
                (filter.ids().iter().filter_map(|&id| state.directory.row(&store.ids, id)).collect(), snapshot.clone())
            });
            return Ok(Plan::Direct { rows, _pin: pin });
        }
        let snapshot = store.snapshot();
        let rows = snapshot.rows.max(1) as f64;
        let listed = filter.ids().len() as f64 / rows;
        let share = if filter.is_allow() { listed } else { 1.0 - listed }.clamp(1.0 / rows, 1.0);
        let stop = self.stop(&snapshot, k, share, options, task)?;
        // Of each leaf only a share may be returned, so as many more leaves are scanned.
        let widen = |leaves: usize| ((leaves as f64 / share) as usize).clamp(leaves, leaves.max(snapshot.leaves.len()));
        let beam = Beam { least: widen(beam.least), most: widen(beam.most), ..beam };
        let request = Request { k, beam, stop, rerank, epsilon, filter: Some(filter), without: None };
        Ok(Plan::Tree(snapshot, request.into()))
    }

    /// What ends a search with a recall target, for which a `share` of all rows counts; nothing where every leaf is scanned.
    fn stop(&self, snapshot: &Arc<Snapshot>, k: usize, share: f64, options: &SearchOptions, task: &Task) -> Result<Option<Stop>> {
        // To find all needs no measurement.
        let Some(recall) = options.recall.filter(|&recall| recall < 1.0) else { return Ok(None) };
        let Some(measured) = self.table(snapshot, task)? else { return Ok(None) };
        let recall = if options.epsilon.is_none() { target::in_leaves(recall) } else { recall };
        let mut stop = measured.table.stop(k, share, recall);
        stop.filtered = options.filter.as_ref().map(|_| Filtered { table: measured.table.clone(), share, recall });
        Ok(Some(stop))
    }

    /// The pool for searches.
    pub(super) fn search_pool(&self) -> Option<&rayon::ThreadPool> {
        if self.store.params.thread_count() > 1 { self.pool(&self.readers, "search", None) } else { None }
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
        let most = self.store.params.thread_count();
        let threads = threads.unwrap_or(most);
        let part = queries.len().div_ceil(threads).max(1);
        let parts = result.ids.chunks_mut(part * k).zip(result.distances.chunks_mut(part * k)).enumerate();
        // Threads that no query needs help with large ones; but not those that are at work on a batch, for whose end one would wait.
        let spare = if self.batches.load(Ordering::Relaxed) == 0 { threads.min(most) / queries.len().max(1) } else { 1 };
        let pool = || self.pool(&self.readers, "search", None);
        let work = Work { plan, team: Team { threads: spare, pool: &pool }, task };
        let one = |(number, (ids, distances)): (usize, (&mut [i64], &mut [f32]))| {
            let range = number * part..(number * part + ids.len() / k);
            self.run_part(queries.slice(range), k, &work, ids, distances)
        };
        let pool = if threads > 1 && queries.len() > 1 { pool() } else { None };
        let costs: Result<Vec<Cost>> = match pool {
            Some(pool) => {
                let _counted = Counted::new(&self.batches);
                let parts: Vec<_> = parts.collect();
                pool.install(|| parts.into_par_iter().map(one).collect())
            }
            None => parts.map(one).collect(),
        };
        let mut total = Cost::default();
        costs?.into_iter().for_each(|cost| total += cost);
        Ok(total)
    }

    /// Answers some of the queries, one after the other.
    fn run_part<'a>(&'a self, queries: Rows<'_>, k: usize, work: &Work<'a>, ids: &mut [i64], distances: &mut [f32]) -> Result<Cost> {
        let mut searcher = Searcher::new(&self.store).with_team(work.team);
        let mut total = Cost::default();
        for (i, (ids, distances)) in ids.chunks_exact_mut(k).zip(distances.chunks_exact_mut(k)).enumerate() {
            work.task.check()?;
            total += match work.plan {
                Plan::Tree(snapshot, request) => searcher.search(snapshot, queries.row(i), request, ids, distances)?,
                Plan::Direct { rows, .. } => searcher.search_rows(rows, queries.row(i), k, ids, distances)?,
            };
            work.task.advance(1);
        }
        self.spent.add(queries.len() as u64, &total);
        Ok(total)
    }
}
