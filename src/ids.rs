//! External ids and rows: the one authority on what is live.
//!
//! A live id has one row, and a live row is exactly where its [`Location`] says: in the leaf that owns it and, with spilling, in a second
//! one. The directory is changed only under the lock that publishes snapshots, so that the two never disagree.

use foldhash::fast::FixedState;
use hashbrown::HashTable;
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::error::{Error, Result};
use crate::vectors::{Row, Words};

/// Number of a leaf; used again after the leaf is gone.
pub type LeafId = u32;

/// "No leaf" and "no row".
pub const NONE: u32 = u32::MAX;

/// The leaves that list a row: the owner first, then the spilled copy or [`NONE`]. `[NONE, NONE]` is a dead row.
pub type Location = [LeafId; 2];

/// The location of a dead row.
pub const DEAD: Location = [NONE; 2];

/// Rows of a page of locations.
pub const PAGE: usize = 1024;

/// Locations of consecutive rows. Pages are shared with whoever keeps a former state: a change copies the page then.
pub type LocationPage = [Location; PAGE];

/// Ids to rows and rows to locations. Row to id is in [`Words`], which searches read without a lock.
#[derive(Debug)]
pub struct Directory {
    rows: HashTable<Row>,
    locations: Vec<Arc<LocationPage>>,
    hasher: FixedState,
    next_id: u64,
}

impl Directory {
    /// An empty directory.
    pub fn new() -> Self {
        Self { rows: HashTable::new(), locations: Vec::new(), hasher: FixedState::default(), next_id: 0 }
    }

    /// Live ids.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// True without live ids.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The row of `id`, if it is live.
    pub fn row(&self, ids: &Words, id: i64) -> Option<Row> {
        self.rows.find(self.hasher.hash_one(id), |&row| ids.get(row) as i64 == id).copied()
    }

    /// Points `id` to `row` at `location`; returns the row it had before. The caller kills that one.
    pub fn insert(&mut self, ids: &Words, id: i64, row: Row, location: Location) -> Option<Row> {
        ids.set(row, id as u64);
        self.set_location(row, location);
        self.next_id = self.next_id.max(id as u64 + 1);
        let hash = self.hasher.hash_one(id);
        if let Some(slot) = self.rows.find_mut(hash, |&other| ids.get(other) as i64 == id) {
            return Some(std::mem::replace(slot, row));
        }
        let hasher = &self.hasher;
        self.rows.insert_unique(hash, row, |&other| hasher.hash_one(ids.get(other) as i64));
        None
    }

    /// Forgets `id`; returns the row it had. The caller kills it.
    pub fn remove(&mut self, ids: &Words, id: i64) -> Option<Row> {
        let hash = self.hasher.hash_one(id);
        let entry = self.rows.find_entry(hash, |&row| ids.get(row) as i64 == id).ok()?;
        Some(entry.remove().0)
    }

    /// Where a row is.
    pub fn location(&self, row: Row) -> Location {
        self.locations.get(row as usize / PAGE).map_or(DEAD, |page| page[row as usize % PAGE])
    }

    /// Says where a row is; [`DEAD`] for one that died.
    pub fn set_location(&mut self, row: Row, location: Location) {
        let place = row as usize;
        while place / PAGE >= self.locations.len() {
            self.locations.push(Arc::new([DEAD; PAGE]));
        }
        Arc::make_mut(&mut self.locations[place / PAGE])[place % PAGE] = location;
    }

    /// All locations as they are now, to be kept: pages that don't change later are shared.
    pub fn locations(&self) -> Vec<Arc<LocationPage>> {
        self.locations.clone()
    }

    /// The next id that [`Directory::fresh_ids`] gives out.
    pub fn next_id(&self) -> u64 {
        self.next_id
    }

    /// Sets the next id that is given out.
    pub fn set_next_id(&mut self, next: u64) {
        self.next_id = next;
    }

    /// All live rows, ascending.
    pub fn live_rows(&self) -> impl Iterator<Item = Row> + '_ {
        let every = self.locations.iter().flat_map(|page| page.iter()).enumerate();
        every.filter(|(_, location)| **location != DEAD).map(|(row, _)| row as Row)
    }

    /// The first of `count` ids that were never given out and are not in use.
    pub fn fresh_ids(&mut self, count: usize) -> Result<i64> {
        let end = self.next_id.checked_add(count as u64).filter(|&end| end <= 1 << 63);
        let expected = "ids of your own: the counter, which goes on after the largest id seen, has reached 2**63 - 1";
        let end = end.ok_or_else(|| Error::invalid("ids", expected, "None"))?;
        Ok(std::mem::replace(&mut self.next_id, end) as i64)
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.rows.allocation_size() + self.locations.len() * size_of::<LocationPage>()
    }
}

impl Default for Directory {
    fn default() -> Self {
        Self::new()
    }
}
