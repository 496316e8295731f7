//! Measures when searches with a recall target may end, on the index's own rows.
//!
//! The problem: what ends a search depends on the data, on the size of the index and of its leaves, and all of these change.
//! The rule of use: [`Core::table`] gives a table that holds, and measures one where there is none, or where the index has changed by a quarter
//! since. A commit keeps the table with the checkpoint. An index that is never asked for a recall target measures nothing.
//! The hazard: measuring reads a good part of the index. It holds no lock that a change or another search waits for: one thread measures; others go
//! on with the former table, or wait where there is none.
//!
//! Rows stand for queries, their own neighbours without themselves. They are drawn by the index's seed. A few of them are scanned to the end first,
//! to see how far the rest must be scanned to know their true neighbours. For queries far from all rows some are made up.

use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use super::Core;
use crate::cancel::Task;
use crate::error::Result;
use crate::search::fit::{Trace, rule};
use crate::search::scan::Searcher;
use crate::search::target::{DEPTHS, LEAST_ROWS, Rule, Table};
use crate::tree::snapshot::Snapshot;
use crate::tree::store::Store;
use crate::vectors::Row;

/// Rows that are measured, at most: their mean recall is then known to half a percent.
const QUERIES: usize = 1280;
/// Rows that are measured with a posting list on disk, where each may cost reads.
const QUERIES_ON_DISK: usize = 384;
/// Rows that are scanned to the end and for every depth, to see how far the others must be.
const PILOTS: usize = 48;
/// The largest depth for which all rows are scanned.
const SHALLOW: usize = 100;
/// The share of neighbours that may lie beyond where the others are scanned to.
const BEYOND: f64 = 0.001;
/// A depth is measured in an index of at least so many times as many rows.
const ROWS_A_DEPTH: usize = 8;
/// How often a thread that waits for another's table looks at its task.
const WAIT: Duration = Duration::from_millis(20);

/// The table in force, and who measures the next.
#[derive(Debug, Default)]
pub struct Targets {
    current: ArcSwapOption<Measured>,
    /// Held by the thread that measures, and by nothing else.
    busy: Mutex<()>,
}

/// A table, and the index's count of changes when it was measured.
#[derive(Debug)]
pub struct Measured {
    /// The table.
    pub table: Arc<Table>,
    /// Seconds that it took; 0 for one that was read.
    pub seconds: f64,
    changes: u64,
}

impl Measured {
    fn holds(&self, snapshot: &Snapshot) -> bool {
        self.table.holds(snapshot.rows, snapshot.leaves.len(), snapshot.changes.saturating_sub(self.changes))
    }
}

impl Targets {
    /// Those of a checkpoint that was opened as `store`.
    pub fn read(table: Option<Table>, store: &Store) -> Self {
        let measured = table.map(|table| Measured { table: table.into(), seconds: 0.0, changes: store.view().changes });
        Self { current: ArcSwapOption::from_pointee(measured), busy: Mutex::new(()) }
    }

    /// What is in force.
    pub fn current(&self) -> Option<Arc<Measured>> {
        self.current.load_full()
    }
}

impl Core {
    /// A table that holds for `snapshot`, or nothing where the index is so small that every leaf is scanned.
    pub(super) fn table(&self, snapshot: &Arc<Snapshot>, task: &Task) -> Result<Option<Arc<Measured>>> {
        if snapshot.rows < LEAST_ROWS {
            return Ok(None);
        }
        let targets = &self.targets;
        loop {
            let current = targets.current();
            if current.as_ref().is_some_and(|measured| measured.holds(snapshot)) {
                return Ok(current);
            }
            task.check()?;
            let guard = match &current {
                Some(_) => targets.busy.try_lock(),
                None => targets.busy.try_lock_for(WAIT),
            };
            match (guard, current) {
                (Some(_guard), _) => {
                    // Another may have measured while this one came to the lock.
                    let newest = targets.current().filter(|measured| measured.holds(snapshot));
                    let measured = newest.map_or_else(|| self.measure(snapshot, task).map(Arc::new), Ok)?;
                    targets.current.store(Some(measured.clone()));
                    return Ok(Some(measured));
                }
                (None, Some(former)) => return Ok(Some(former)),
                (None, None) => {}
            }
        }
    }

    /// The table that a checkpoint of the present state keeps, so that who reads it has none to measure. It is measured anew where the one in
    /// force no longer holds.
    pub(super) fn table_to_keep(&self, task: &Task) -> Result<Option<Table>> {
        // Nobody asked for a recall target so far.
        if self.targets.current().is_none() {
            return Ok(None);
        }
        Ok(self.table(&self.store.snapshot(), task)?.map(|measured| (*measured.table).clone()))
    }

    fn measure(&self, snapshot: &Snapshot, task: &Task) -> Result<Measured> {
        let began = Instant::now();
        let (store, leaves) = (&*self.store, snapshot.leaves.len());
        let most = if store.source.is_some() { QUERIES_ON_DISK } else { QUERIES };
        let rows = draw(store, snapshot, most.min(snapshot.rows / 4))?;
        let depths: Vec<usize> = DEPTHS.into_iter().filter(|depth| depth * ROWS_A_DEPTH <= snapshot.rows).collect();
        let (pilots, others) = rows.split_at(PILOTS.min(rows.len()));
        let query = |&row: &Row| Ok((row, store.vectors.get(row, &mut Vec::new())?.to_vec()));
        let pilots: Vec<Query> = pilots.iter().map(query).collect::<Result<_>>()?;
        let others: Vec<Query> = others.iter().map(query).collect::<Result<_>>()?;
        let strange = strange(&others, store.params.seed);
        let mut traces = self.traces(snapshot, &pilots, &depths, leaves, task)?;
        // The largest depth makes a scan slow, and of many neighbours few queries tell as much.
        let shallow = depths.iter().filter(|&&depth| depth <= SHALLOW).count().max(1).min(depths.len());
        let far = reach(&traces, SHALLOW).clamp(leaves.min(64), leaves);
        traces.extend(self.traces(snapshot, &others, &depths[..shallow], far, task)?);
        let strange = self.traces(snapshot, &strange, &depths[..shallow], leaves, task)?;
        let rules = |(place, &depth): (usize, &usize)| rule(&traces, &strange, place, depth);
        let numbered: Vec<(usize, &usize)> = depths.iter().enumerate().collect();
        let rules: Vec<Rule> = match self.search_pool() {
            Some(pool) => pool.install(|| numbered.into_par_iter().filter_map(rules).collect()),
            None => numbered.into_iter().filter_map(rules).collect(),
        };
        let table = Table { rows: snapshot.rows as u64, leaves: leaves as u64, queries: rows.len() as u64, rules };
        Ok(Measured { table: table.into(), seconds: began.elapsed().as_secs_f64(), changes: snapshot.changes })
    }

    fn traces(&self, snapshot: &Snapshot, queries: &[Query], depths: &[usize], most: usize, task: &Task) -> Result<Vec<Trace>> {
        let some = |queries: &[Query]| -> Result<Vec<Trace>> {
            let mut searcher = Searcher::new(&self.store);
            let mut one = |(row, query): &Query| {
                task.check()?;
                searcher.trace(snapshot, query, *row, depths, most)
            };
            queries.iter().map(&mut one).collect()
        };
        let Some(pool) = self.search_pool() else { return some(queries) };
        let parts: Vec<Vec<Trace>> = pool.install(|| queries.par_chunks(AT_ONCE).map(some).collect::<Result<_>>())?;
        Ok(parts.into_iter().flatten().collect())
    }
}

/// A query, and the row that doesn't count among its neighbours.
type Query = (Row, Vec<f32>);

/// Queries that are stranger than rows: each is a row, but for a share of its distance to a vector whose values are of as many rows.
fn strange(rows: &[Query], seed: u64) -> Vec<Query> {
    let mut random = Pcg64Mcg::seed_from_u64(seed ^ 0x5bd1_e995);
    let one = |(row, vector): &Query| {
        let share: f32 = random.random_range(0.4..1.0);
        let value = |i: usize, own: f32, other: usize| own + share * (rows[other].1[i] - own);
        (*row, vector.iter().enumerate().map(|(i, &own)| value(i, own, random.random_range(0..rows.len()))).collect())
    };
    rows.iter().step_by((rows.len() / STRANGE).max(1)).map(one).collect()
}

/// Leaves in which all but [`BEYOND`] of the `depth` nearest of all queries were met.
fn reach(traces: &[Trace], depth: usize) -> usize {
    let mut met: Vec<u32> = traces.iter().flat_map(|trace| trace.met.iter().take(depth).copied()).collect();
    met.sort_unstable();
    let within = (met.len() as f64 * (1.0 - BEYOND)) as usize;
    met.get(within.min(met.len().saturating_sub(1))).map_or(usize::MAX, |&last| last as usize + 1)
}

/// Queries that are made up, at least, where there are as many rows: only searches far from all rows go by them.
const STRANGE: usize = 160;
/// Queries that a thread measures with the same scratch.
const AT_ONCE: usize = 16;

/// Up to `count` live rows, ascending by leaf: entries drawn from all postings.
fn draw(store: &Store, snapshot: &Snapshot, count: usize) -> Result<Vec<Row>> {
    let postings: usize = snapshot.leaves.iter().map(|(_, leaf)| leaf.len()).sum();
    let mut random = Pcg64Mcg::seed_from_u64(store.params.seed);
    let mut places: Vec<usize> = (0..if postings > 0 { count } else { 0 }).map(|_| random.random_range(0..postings)).collect();
    places.sort_unstable();
    let (mut rows, mut begin, mut next) = (Vec::with_capacity(count), 0, places.into_iter().peekable());
    for (_, leaf) in snapshot.leaves.iter() {
        let end = begin + leaf.len();
        if next.peek().is_some_and(|&place| place < end) {
            let whole: Vec<Row> = store.whole(leaf)?.rows().collect();
            while let Some(place) = next.next_if(|&place| place < end) {
                rows.extend(whole.get(place - begin).copied());
            }
        }
        begin = end;
    }
    // In an order of their own: the first ones stand for all.
    rows.sort_unstable();
    rows.dedup();
    for i in (1..rows.len()).rev() {
        rows.swap(i, random.random_range(0..=i));
    }
    Ok(rows)
}
