//! Rows on their way into an index: stored and checked first, then applied at once or not at all.

use std::sync::Arc;

use super::{Core, Index, check_width};
use crate::cancel::Task;
use crate::dataset::Rows;
use crate::dataset::rows::refused;
use crate::error::{Error, Result};
use crate::tree::insert::settle;
use crate::vectors::{Lease, Row};

/// What an `add` did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct AddResult {
    /// Ids that are new.
    pub added: u64,
    /// Ids whose vector was replaced.
    pub replaced: u64,
}

/// How far batches of rows give way to searches. A batch that waits for a search is a little later; a search that waits for a batch is
/// many times slower than at rest.
const WRITING: i32 = 10;

/// Fewer rows are written by the caller's thread alone.
const SPREAD: usize = 256;

impl Index {
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
}

impl Core {
    /// The pool for what writes.
    pub(super) fn writing_pool(&self) -> Option<&rayon::ThreadPool> {
        self.pool(&self.writers, "write", Some(WRITING))
    }

    /// Runs `work` of writing so many rows, on the writers' pool where that is worth it.
    fn spread<T: Send>(&self, rows: usize, work: impl FnOnce() -> T + Send) -> T {
        let pool = if rows >= SPREAD { self.writing_pool() } else { None };
        match pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }
}

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
