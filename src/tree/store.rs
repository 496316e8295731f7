//! Everything an index holds, and the one way to change it.
//!
//! The problem: rows, locations and topology must agree at every moment, for searches that take no lock.
//! The rule of use: compute against a [`Snapshot`]; then take an [`Edit`], check what the computation assumed, apply, and
//! [`Edit::publish`]. An edit holds the one lock of the index, so it must be short: no clustering, no routing of more than a few rows.
//! The hazard: the directory is changed in place. An edit whose directory was changed must be published; whatever may fail is done before.
//!
//! Rows that die in an edit may still be read through older snapshots. They are given back when the last of those is gone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Instant;

use arc_swap::{ArcSwap, Guard};
use parking_lot::{Mutex, MutexGuard};

use super::graveyard::Graveyard;
use super::inner::{Child, ChildCoder, Inner, NodeId};
use super::leaf::{Leaf, LeafSource};
use super::pool::Pool;
use super::snapshot::Snapshot;
use super::topology::{Topology, set_parent};
use crate::cancel::Task;
use crate::error::{Error, Result};
use crate::ids::{DEAD, Directory, LeafId, Location, LocationPage, NONE};
use crate::kernel::Kernels;
use crate::metric::Metric;
use crate::params::Params;
use crate::quantize::{Encoder, Factors, Form, Rotation};
use crate::tree::navigate::Order;
use crate::value::Codec;
use crate::vectors::{Row, Vectors, Words};

/// An index's data. See the module's page.
#[derive(Debug)]
pub struct Store {
    /// The functions.
    pub kernels: &'static Kernels,
    /// What is near.
    pub metric: Metric,
    /// The options it was made with.
    pub params: Params,
    /// Prepared vectors to the space of centroids and codes.
    pub rotation: Arc<Rotation>,
    /// Full vectors by row, prepared.
    pub vectors: Arc<Vectors>,
    /// External ids by row.
    pub ids: Words,
    /// Encodes rows.
    pub encoder: Encoder,
    /// The process that made it.
    pub owner: u32,
    /// Encodes children of internal nodes.
    pub coder: ChildCoder,
    /// Reads what leaves have on disk.
    pub source: Option<Arc<dyn LeafSource>>,
    /// Reads ids and locations of rows, as long as [`Store::load_directory`] has not.
    pages: Option<Arc<dyn RowSource>>,
    loaded: AtomicBool,
    snapshot: ArcSwap<Snapshot>,
    state: Mutex<State>,
    lock_wait: AtomicU64,
}

/// Reads the table of rows from disk.
pub trait RowSource: std::fmt::Debug + Send + Sync {
    /// The id of a row.
    fn id(&self, row: Row) -> Result<i64>;
    /// Pages of the table.
    fn len(&self) -> usize;
    /// Calls `each` with row, id and location of the rows of a page.
    fn read(&self, page: usize, each: &mut dyn FnMut(Row, u64, Location)) -> Result<()>;
    /// The next id to be given out.
    fn next_id(&self) -> u64;
    /// Where the table is, for messages.
    fn describe(&self) -> String;
    /// Bytes in memory of what was read so far.
    fn bytes(&self) -> usize;

    /// True without pages.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What a checkpoint holds, to be read when it is needed.
#[derive(Debug)]
pub struct OnDisk {
    /// The vectors.
    pub vectors: Arc<Vectors>,
    /// Entries of leaves, unless they are in memory.
    pub leaves: Option<Arc<dyn LeafSource>>,
    /// Ids and locations.
    pub rows: Arc<dyn RowSource>,
    /// As in [`State`].
    pub clustered_rows: usize,
    /// As in [`State`].
    pub added_since: usize,
}

/// What changes in place, under the lock.
#[derive(Debug)]
pub struct State {
    /// Ids, rows, locations.
    pub directory: Directory,
    /// Rows that were live when the whole tree was last clustered.
    pub clustered_rows: usize,
    /// Rows added since.
    pub added_since: usize,
    /// The locations as they were read from disk.
    pub loaded_locations: Vec<Arc<LocationPage>>,
    leaf_parents: Vec<NodeId>,
    inner_parents: Vec<NodeId>,
    graveyard: Graveyard,
}

impl Store {
    /// An empty index: a root with one empty leaf.
    pub fn new(kernels: &'static Kernels, dim: usize, metric: Metric, params: Params) -> Self {
        let rotation = Arc::new(Rotation::new(kernels, dim, params.seed));
        let padded = rotation.padded();
        let form = if metric == Metric::L2 { Form::Distance } else { Form::Product };
        let coder = ChildCoder::new(kernels, padded, metric == Metric::Cosine);
        let topology = Topology::of_centroids(&coder, &[vec![0.0; padded].into()], padded);
        let state = State {
            directory: Directory::new(),
            clustered_rows: 0,
            added_since: 0,
            loaded_locations: Vec::new(),
            leaf_parents: topology.leaf_parents,
            inner_parents: topology.inner_parents,
            graveyard: Graveyard::default(),
        };
        Self {
            kernels,
            metric,
            vectors: Arc::new(Vectors::new(Codec::new(kernels, metric, params.storage, rotation.clone()))),
            params,
            ids: Words::default(),
            encoder: Encoder::new(kernels, form, padded),
            rotation,
            owner: std::process::id(),
            coder,
            source: None,
            pages: None,
            loaded: AtomicBool::new(true),
            snapshot: ArcSwap::from_pointee(topology.snapshot),
            state: Mutex::new(state),
            lock_wait: AtomicU64::new(0),
        }
    }

    /// A store of what a checkpoint holds. Nothing of it is read yet but `topology`.
    pub fn restored(empty: Store, topology: Topology, disk: OnDisk) -> Self {
        let state = State {
            directory: Directory::new(),
            clustered_rows: disk.clustered_rows,
            added_since: disk.added_since,
            loaded_locations: Vec::new(),
            leaf_parents: topology.leaf_parents,
            inner_parents: topology.inner_parents,
            graveyard: Graveyard::default(),
        };
        Self {
            vectors: disk.vectors,
            source: disk.leaves,
            pages: Some(disk.rows),
            loaded: AtomicBool::new(false),
            snapshot: ArcSwap::from_pointee(topology.snapshot),
            state: Mutex::new(state),
            ..empty
        }
    }

    /// Whether it was read from a checkpoint.
    pub fn is_restored(&self) -> bool {
        self.pages.is_some()
    }

    /// Reads ids and locations, where that was put off. Needed before ids are looked up and before anything is changed.
    pub fn load_directory(&self) -> Result<()> {
        let Some(pages) = self.pages.as_ref().filter(|_| !self.loaded.load(Ordering::Acquire)) else { return Ok(()) };
        let mut directory = Directory::new();
        for page in 0..pages.len() {
            pages.read(page, &mut |row, id, location| match location {
                DEAD => directory.set_location(row, DEAD),
                _ => drop(directory.insert(&self.ids, id as i64, row, location)),
            })?;
        }
        directory.set_next_id(pages.next_id());
        let rows = self.view().rows;
        if directory.len() != rows {
            let what = format!("{} different ids, {rows} rows are expected", directory.len());
            return Err(Error::corrupt(pages.describe(), what));
        }
        let mut state = self.lock();
        // Another thread may have been faster, and have changed it since.
        if !self.loaded.load(Ordering::Acquire) {
            state.loaded_locations = directory.locations();
            state.directory = directory;
            self.loaded.store(true, Ordering::Release);
        }
        Ok(())
    }

    /// Bytes in memory of the table of rows as it was read from disk.
    pub fn table_bytes(&self) -> usize {
        self.pages.as_ref().map_or(0, |pages| pages.bytes())
    }

    /// The locations as they were read from disk, once.
    pub fn take_loaded_locations(&self) -> Vec<Arc<LocationPage>> {
        std::mem::take(&mut self.lock().loaded_locations)
    }

    /// Reads the vectors of all rows into memory, where that was put off. Nobody else may use the store yet.
    pub fn load_vectors(&self, task: &Task) -> Result<()> {
        let rows: Vec<Row> = self.look(|state, _| state.directory.live_rows().collect());
        self.vectors.load(&rows, task)
    }

    /// Values of a rotated vector.
    pub fn padded(&self) -> usize {
        self.rotation.padded()
    }

    /// Memory for blocks; rows' and children's have the same size.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.coder.pool
    }

    /// What queries order centroids by.
    pub fn order(&self) -> Order {
        match self.metric {
            Metric::L2 => Order::Distance,
            Metric::Cosine => Order::Angle,
            Metric::Ip => Order::Product,
        }
    }

    /// What rows order centroids by. Under `ip` rows are kept with those that are near, not with those that are long.
    pub fn write_order(&self) -> Order {
        if self.metric == Metric::Ip { Order::Distance } else { self.order() }
    }

    /// The present moment, for a short while.
    pub fn view(&self) -> Guard<Arc<Snapshot>> {
        self.snapshot.load()
    }

    /// The present moment, for as long as it is held.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Writes the rotated vector of a row that a snapshot lists.
    pub fn rotate_row(&self, row: Row, out: &mut [f32]) -> Result<()> {
        self.rotation.rotate(self.vectors.get(row, &mut Vec::new())?, out);
        Ok(())
    }

    /// The rotated vectors of `rows`, one after the other.
    pub fn rotate_rows(&self, rows: &[Row]) -> Result<Vec<f32>> {
        self.vectors.expect(rows.iter().copied())?;
        let mut rotated = vec![0.0; rows.len() * self.padded()];
        for (&row, out) in rows.iter().zip(rotated.chunks_exact_mut(self.padded())) {
            self.rotate_row(row, out)?;
        }
        Ok(rotated)
    }

    /// The id of a row that a snapshot lists.
    #[inline]
    pub fn id(&self, row: Row) -> Result<i64> {
        match &self.pages {
            Some(pages) if !self.loaded.load(Ordering::Acquire) => match pages.id(row) {
                // Loaded meanwhile; a commit may have removed the pages since.
                Err(_) if self.loaded.load(Ordering::Acquire) => Ok(self.ids.get(row) as i64),
                done => done,
            },
            _ => Ok(self.ids.get(row) as i64),
        }
    }

    /// The entries of `leaf` that are on disk, if there are any.
    pub fn stored_part(&self, leaf: &Leaf) -> Result<Option<Arc<Leaf>>> {
        match (leaf.stored(), &self.source) {
            (None, _) => Ok(None),
            (Some(stored), _) if stored.pinned.is_some() => Ok(stored.pinned.clone()),
            (Some(stored), Some(source)) => source.load(stored).map(Some),
            (Some(_), None) => Err(Error::System("a leaf is on disk, but its checkpoint isn't open".into())),
        }
    }

    /// `leaf` with all its entries in memory.
    pub fn whole(&self, leaf: &Arc<Leaf>) -> Result<Arc<Leaf>> {
        Ok(match self.stored_part(leaf)? {
            None => leaf.clone(),
            Some(base) => Arc::new(leaf.whole(self.pool(), &base)),
        })
    }

    /// Looks at the state with the snapshot that belongs to it.
    pub fn look<T>(&self, look: impl FnOnce(&State, &Arc<Snapshot>) -> T) -> T {
        let state = self.lock();
        look(&state, &self.snapshot.load())
    }

    /// Begins a change.
    pub fn edit(&self) -> Edit<'_> {
        let state = self.lock();
        let next = Snapshot::clone(&self.snapshot.load());
        Edit { store: self, state, next, dead: Vec::new(), touched: Vec::new() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Some(state) => state,
            None => {
                let start = Instant::now();
                let state = self.state.lock();
                self.lock_wait.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
                state
            }
        }
    }

    /// Seconds that threads have waited for the lock.
    pub fn lock_wait(&self) -> f64 {
        self.lock_wait.load(Ordering::Relaxed) as f64 * 1e-9
    }
}

/// A change in the making; see the module's page. Dropped unpublished, its snapshot is forgotten.
pub struct Edit<'a> {
    store: &'a Store,
    state: MutexGuard<'a, State>,
    /// The snapshot to be.
    pub next: Snapshot,
    dead: Vec<Row>,
    touched: Vec<LeafId>,
}

impl Edit<'_> {
    /// The state to check and change.
    pub fn state(&mut self) -> &mut State {
        &mut self.state
    }

    /// Where a row is.
    pub fn location(&self, row: Row) -> Location {
        self.state.directory.location(row)
    }

    /// Points `id` to `row` at `location`; the row it had before is killed. True if there was one.
    pub fn assign(&mut self, id: i64, row: Row, location: Location) -> bool {
        self.state.graveyard.born(row, self.next.sequence + 1);
        self.next.changes += 1;
        match self.state.directory.insert(&self.store.ids, id, row, location) {
            Some(old) => {
                self.dead.push(old);
                true
            }
            None => false,
        }
    }

    /// Forgets `id` and kills its row. True if it was live.
    pub fn forget(&mut self, id: i64) -> bool {
        match self.state.directory.remove(&self.store.ids, id) {
            Some(old) => {
                self.next.changes += 1;
                self.dead.push(old);
                true
            }
            None => false,
        }
    }

    /// Lists encoded rows in a leaf. Their locations are the caller's to set.
    pub fn append<'p>(&mut self, id: LeafId, postings: impl IntoIterator<Item = (Row, Factors, &'p [u8])>) {
        if let Some(leaf) = self.next.leaf(id) {
            let leaf = leaf.append(self.store.pool(), postings);
            self.set_leaf(id, leaf);
        }
    }

    /// Drops rows from a leaf's list. Their locations are the caller's to set.
    pub fn unlist(&mut self, id: LeafId, rows: &[Row]) {
        if let Some(leaf) = self.next.leaf(id) {
            let leaf = leaf.without(self.store.pool(), rows);
            self.set_leaf(id, leaf);
        }
    }

    /// Replaces a leaf's content.
    pub fn set_leaf(&mut self, id: LeafId, leaf: Leaf) {
        self.next.leaves.set(id, Some(Arc::new(leaf)));
        self.touched.push(id);
    }

    /// Changes the children of a leaf's parent: `gone` leaves go, `new` ones with their centroids come. Returns the new leaves' numbers.
    pub fn replace_leaves(&mut self, parent: NodeId, gone: &[LeafId], new: Vec<(Leaf, super::Centroid)>) -> Vec<LeafId> {
        gone.iter().for_each(|&id| self.next.leaves.set(id, None));
        let mut from = 0;
        let mut children = Vec::with_capacity(new.len());
        for (leaf, centroid) in new {
            let id = self.next.leaves.vacant(from);
            from = id + 1;
            self.set_leaf(id, leaf);
            set_parent(&mut self.state.leaf_parents, id, parent);
            children.push(Child { id, centroid });
        }
        self.change_children(parent, |inner, coder| inner.replaced(coder, gone, &children));
        children.iter().map(|child| child.id).collect()
    }

    /// Replaces an internal node.
    pub fn change_children(&mut self, id: NodeId, change: impl FnOnce(&Inner, &ChildCoder) -> Inner) {
        if let Some(inner) = self.next.inner(id) {
            let inner = change(inner, &self.store.coder);
            self.next.inners.set(id, Some(Arc::new(inner)));
        }
    }

    /// Adds an internal node that lists `children`, which become its own. It must then be listed itself, or be made the root.
    pub fn add_inner(&mut self, inner: Inner) -> NodeId {
        let id = self.next.inners.vacant(0);
        self.adopt(id, &inner);
        self.next.inners.set(id, Some(Arc::new(inner)));
        id
    }

    /// Replaces an internal node by one with other children.
    pub fn set_inner(&mut self, id: NodeId, inner: Inner) {
        self.adopt(id, &inner);
        self.next.inners.set(id, Some(Arc::new(inner)));
    }

    fn adopt(&mut self, id: NodeId, inner: &Inner) {
        let parents = if inner.level == 1 { &mut self.state.leaf_parents } else { &mut self.state.inner_parents };
        inner.children().for_each(|child| set_parent(parents, child.id, id));
    }

    /// The node that lists leaf `id`.
    pub fn leaf_parent(&self, id: LeafId) -> NodeId {
        self.state.leaf_parents.get(id as usize).copied().unwrap_or(NONE)
    }

    /// The node that lists internal node `id`; [`NONE`] for the root.
    pub fn inner_parent(&self, id: NodeId) -> NodeId {
        self.state.inner_parents.get(id as usize).copied().unwrap_or(NONE)
    }

    /// Says which node lists internal node `id`; [`NONE`] for the root.
    pub fn set_inner_parent(&mut self, id: NodeId, parent: NodeId) {
        set_parent(&mut self.state.inner_parents, id, parent);
    }

    /// Replaces the whole topology.
    pub fn replace_topology(&mut self, topology: Topology) {
        self.state.leaf_parents = topology.leaf_parents;
        self.state.inner_parents = topology.inner_parents;
        self.touched = topology.snapshot.leaves.iter().map(|(id, _)| id).collect();
        self.next = Snapshot { sequence: self.next.sequence, changes: self.next.changes, ..topology.snapshot };
    }

    /// Kills what was replaced or forgotten, and swaps the snapshot. Returns the leaves that changed.
    pub fn publish(mut self) -> Vec<LeafId> {
        self.bury();
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        self.next.rows = self.state.directory.len();
        self.next.sequence += 1;
        let dead = std::mem::take(&mut self.dead);
        let old = self.store.snapshot.swap(Arc::new(self.next));
        let free = self.state.graveyard.bury(&old, dead);
        self.store.vectors.release(free);
        drop(self.state);
        // Freeing a large version's nodes takes a while; by now nobody waits for it.
        drop(old);
        touched
    }

    /// Takes the dead rows out of their leaves, one change a leaf.
    fn bury(&mut self) {
        let mut listed: Vec<(LeafId, Row)> = Vec::with_capacity(2 * self.dead.len());
        for &row in &self.dead {
            let leaves = self.state.directory.location(row);
            listed.extend(leaves.into_iter().filter(|&leaf| leaf != NONE).map(|leaf| (leaf, row)));
            self.state.directory.set_location(row, DEAD);
        }
        listed.sort_unstable();
        for group in listed.chunk_by(|a, b| a.0 == b.0) {
            let rows: Vec<Row> = group.iter().map(|&(_, row)| row).collect();
            self.unlist(group[0].0, &rows);
        }
    }
}

impl State {
    /// Bytes that keeping track of dead rows takes.
    pub fn graveyard_bytes(&self) -> usize {
        self.graveyard.bytes()
    }
}
