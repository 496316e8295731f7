//! Commit: the present state becomes a checkpoint. See the page of [`checkpoint`](super) for the order of steps and why.
//!
//! The cut is one version of the tree with the locations that belong to it, taken under the lock in a moment; all the rest happens while
//! adds, removals and searches go on. The version is held until the end, so that no row of it is used again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use rayon::ThreadPool;
use rayon::prelude::*;

use super::home::{Home, Info, Last, State};
use super::leaves::{change_record, whole_record};
use super::manifest::{CURRENT, Config, FORMAT, Manifest, SegmentFile, VectorFile, current_line, manifest_name};
use super::nodes::{LeafEntry, block_record, node_record, page_record};
use super::root::{Known, LEAVES, Root, centroid_address};
use super::rows::RowPage;
use super::segment::{SegmentWriter, Segments, segment_name};
use super::vectors::{Layout, VectorWriter, vectors_name};
use crate::cancel::Task;
use crate::error::Result;
use crate::ids::{DEAD, LeafId, LocationPage, PAGE};
use crate::search::target::Table;
use crate::tree::Centroid;
use crate::tree::inner::Inner;
use crate::tree::leaf::{Extent, Leaf, Stored};
use crate::tree::snapshot::Snapshot;
use crate::tree::store::Store;
use crate::vectors::{Kept, Row, locate};

/// A leaf gets at most so many records before all its entries are written anew.
const RECORDS: usize = 4;

/// One moment of an index.
struct Cut {
    snapshot: Arc<Snapshot>,
    locations: Vec<Arc<LocationPage>>,
    next_id: u64,
    clustered: [u64; 2],
    end: Row,
}

impl Cut {
    fn take(store: &Store) -> Self {
        store.look(|state, snapshot| Self {
            snapshot: snapshot.clone(),
            locations: state.directory.locations(),
            next_id: state.directory.next_id(),
            clustered: [state.clustered_rows as u64, state.added_since as u64],
            end: store.vectors.end(),
        })
    }

    fn live_rows(&self) -> impl Iterator<Item = Row> + '_ {
        let pages = self.locations.iter().enumerate();
        pages.flat_map(|(page, locations)| {
            let live = locations.iter().enumerate().filter(|(_, location)| **location != DEAD);
            live.map(move |(place, _)| (page * PAGE + place) as Row)
        })
    }
}

impl Home {
    /// Makes the present state of `store`, which is bound to this directory, its newest checkpoint. Without a `note` the one before stays.
    /// `targets` is what was measured for recall targets.
    /// Posting lists are encoded on the threads of `pool`, or on this one.
    pub fn commit(
        &self,
        store: &Store,
        note: Option<&str>,
        targets: Option<Table>,
        pool: Option<&ThreadPool>,
        task: &Task,
    ) -> Result<Info> {
        let mut state = self.state.lock();
        let present = store.view().sequence;
        let same = |last: &&Last| last.sequence == present && note.is_none_or(|note| note == last.manifest.note);
        if let Some(last) = state.last.as_ref().filter(same) {
            return Ok(Info { version: last.manifest.number, rows: last.manifest.rows, bytes_written: 0 });
        }
        store.load_directory()?;
        state.take_over(store, &self.segments)?;
        let kept = || state.last.as_ref().map(|last| last.manifest.note.clone()).unwrap_or_default();
        let note = note.map_or_else(kept, str::to_string);
        let (cut, info) = self.write(store, &mut state, Some(note), targets, pool, task)?;
        drop(cut);
        self.collect(&mut state, store)?;
        Ok(info)
    }

    /// Writes the state of a `store` that isn't bound to this directory as its newest checkpoint.
    pub fn copy(&self, store: &Store, targets: Option<Table>, pool: Option<&ThreadPool>, task: &Task) -> Result<Info> {
        store.load_directory()?;
        let mut state = self.state.lock();
        let (_, info) = self.write(store, &mut state, None, targets, pool, task)?;
        self.collect_files(HashSet::new())?;
        Ok(info)
    }

    /// A `note` is for a store that is bound to this directory.
    fn write(
        &self,
        store: &Store,
        state: &mut State,
        note: Option<String>,
        targets: Option<Table>,
        pool: Option<&ThreadPool>,
        task: &Task,
    ) -> Result<(Cut, Info)> {
        let own = note.is_some();
        let cut = Cut::take(store);
        let number = state.next_number;
        state.next_number += 1;
        if own {
            self.note_retired(store, state, number);
        }
        let storage = &**self.segments.storage();
        let segment = SegmentWriter::new(storage, number, FORMAT)?;
        let checks = std::mem::take(&mut state.checks);
        let mut writer = Writer {
            store,
            cut: &cut,
            own,
            generation: state.generation,
            last: state.last.as_ref().filter(|_| own),
            segments: &self.segments,
            segment,
            reusable: HashSet::new(),
            known: Known::default(),
            stored: Vec::new(),
            used: BTreeMap::new(),
            checks,
            pool,
            task,
        };
        writer.reusable = writer.reusable_segments();
        let written = writer.write_all(number);
        // What was kept stays kept, and its checksums known, even if the rest failed.
        let Writer { checks, known, stored, .. } = writer;
        state.checks = checks;
        let (mut manifest, row_pages, bytes_written) = written?;
        (manifest.note, manifest.targets) = (note.unwrap_or_default(), targets);
        self.publish(&manifest)?;
        let info = Info { version: number, rows: manifest.rows, bytes_written };
        if own {
            let (sequence, changes) = (mark_stored(store, &cut, stored), cut.snapshot.changes);
            state.last = Some(Last { manifest, sequence, changes, locations: cut.locations.clone(), row_pages, known });
        }
        Ok((cut, info))
    }

    /// Puts the manifest in place, then the name of it. All other files are durable by now.
    fn publish(&self, manifest: &Manifest) -> Result<()> {
        let storage = self.segments.storage();
        storage.replace(&manifest_name(manifest.number), manifest.encode()?.as_bytes())?;
        storage.replace(CURRENT, current_line(manifest.number).as_bytes())
    }
}

/// Points leaves that are as they were at the cut to their entries on disk; returns the version of the tree that the checkpoint holds.
fn mark_stored(store: &Store, cut: &Cut, stored: Vec<(LeafId, Arc<Stored>)>) -> u64 {
    let mut edit = store.edit();
    let unchanged = edit.next.sequence == cut.snapshot.sequence;
    for (id, stored) in stored {
        let (Some(before), Some(now)) = (cut.snapshot.leaf(id), edit.next.leaf(id)) else { continue };
        if Arc::ptr_eq(before, now) {
            let leaf = Leaf::on_disk(now.reference.clone(), stored, now.care);
            edit.set_leaf(id, leaf);
        }
    }
    let sequence = if unchanged { edit.next.sequence + 1 } else { cut.snapshot.sequence };
    edit.publish();
    sequence
}

struct Writer<'a> {
    store: &'a Store,
    cut: &'a Cut,
    /// Whether the store is bound to this directory: then what is there already is used again.
    own: bool,
    /// Of the files of vectors.
    generation: u32,
    last: Option<&'a Last>,
    segments: &'a Segments,
    segment: SegmentWriter,
    /// Segments of the last checkpoint at least half of which is in use. What is left of others is written anew.
    reusable: HashSet<u32>,
    known: Known,
    stored: Vec<(LeafId, Arc<Stored>)>,
    /// Segments that the checkpoint needs.
    used: BTreeMap<u32, u64>,
    checks: Vec<u32>,
    pool: Option<&'a ThreadPool>,
    task: &'a Task,
}

impl Writer<'_> {
    fn write_all(&mut self, number: u32) -> Result<(Manifest, Vec<Extent>, u64)> {
        let (vectors, vector_bytes) = self.write_vectors()?;
        let mut root = Root {
            rows: self.cut.snapshot.rows as u64,
            end: self.cut.end,
            next_id: self.cut.next_id,
            clustered: self.cut.clustered,
            node: self.cut.snapshot.root,
            ..Root::default()
        };
        root.row_pages = self.write_rows()?;
        let centroids = self.write_nodes(&mut root)?;
        self.write_leaves(&mut root, &centroids)?;
        let place = self.add(&root.encode())?;
        self.task.check()?;
        let storage = self.segments.storage();
        // The writer is used up by its end; the one that takes its place is never written to.
        let segment = std::mem::replace(&mut self.segment, SegmentWriter::nowhere());
        let bytes = segment.finish()?;
        self.used.insert(number, bytes);
        storage.sync_folder("segments")?;
        let store = self.store;
        let manifest = Manifest {
            format: FORMAT,
            library: env!("CARGO_PKG_VERSION").to_string(),
            number,
            created: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs()),
            dim: store.vectors.dim(),
            metric: store.metric.name().to_string(),
            config: Config::from(&store.params),
            rows: root.rows,
            leaves: self.cut.snapshot.leaves.len() as u64,
            next_id: root.next_id,
            root: place.into(),
            segments: self.used.iter().map(|(&number, &bytes)| SegmentFile { number, bytes }).collect(),
            generation: self.generation,
            vectors,
            note: String::new(),
            targets: None,
        };
        Ok((manifest, root.row_pages, bytes + vector_bytes))
    }

    fn add(&mut self, record: &[u8]) -> Result<Extent> {
        self.segment.add(record)
    }

    /// Notes that a record of an earlier commit is still used.
    fn inherit(&mut self, extent: Extent) {
        let bytes = self.last.and_then(|last| last.manifest.segments.iter().find(|file| file.number == extent.segment));
        self.used.entry(extent.segment).or_insert(bytes.map_or(0, |file| file.bytes));
    }

    fn may_inherit(&self, extent: Extent) -> bool {
        self.reusable.contains(&extent.segment)
    }

    /// Segments of the last checkpoint of which at least half is in use. Leaves may also have entries in older segments: those that changed
    /// while the last commit wrote what they were before.
    fn reusable_segments(&self) -> HashSet<u32> {
        let Some(last) = self.last else { return HashSet::new() };
        let mut live: HashMap<u32, u64> = HashMap::new();
        let mut count = |extent: &Extent| *live.entry(extent.segment).or_default() += u64::from(extent.bytes);
        last.known.blocks.values().for_each(|(_, extent)| count(extent));
        last.known.references.values().for_each(|(_, extent)| count(extent));
        last.known.nodes.values().chain(last.known.leaf_pages.values()).for_each(|(_, extent)| count(extent));
        last.row_pages.iter().for_each(&mut count);
        let stored = self.cut.snapshot.leaves.iter().filter_map(|(_, leaf)| leaf.stored());
        stored.flat_map(|stored| &stored.extents).for_each(&mut count);
        let dense = |file: &&SegmentFile| live.get(&file.number).copied().unwrap_or(0) * 2 >= file.bytes;
        last.manifest.segments.iter().filter(dense).map(|file| file.number).collect()
    }

    /// Writes the vectors that no checkpoint has yet; returns the files that this one needs, and the bytes written.
    fn write_vectors(&mut self) -> Result<(Vec<VectorFile>, u64)> {
        let (store, storage) = (self.store, self.segments.storage());
        let layout = Layout::new(store.vectors.dim(), store.vectors.codec().kind());
        let mut writer = VectorWriter::new(&**storage, layout, FORMAT, self.generation);
        // The last place in use of each slab; rows come in ascending order.
        let mut files: Vec<(usize, usize)> = Vec::new();
        let (mut fresh, mut room) = (Vec::new(), Vec::new());
        self.checks.resize(self.checks.len().max(self.cut.end as usize), 0);
        self.task.set_total(self.cut.snapshot.rows as u64);
        let kept = if self.own { store.vectors.kept() } else { Kept::default() };
        for row in self.cut.live_rows() {
            let (slab, place) = locate(row);
            match files.last_mut() {
                Some((same, last)) if *same == slab => *last = place,
                _ => files.push((slab, place)),
            }
            if row.is_multiple_of(1024) {
                self.task.check()?;
            }
            if kept.has(row) {
                continue;
            }
            self.task.advance(1);
            self.checks[row as usize] = writer.add(row, store.vectors.raw(row, &mut room)?)?;
            fresh.push(row);
        }
        writer.close()?;
        let written = writer.written;
        if !fresh.is_empty() {
            storage.sync_folder("vectors")?;
        }
        if self.own {
            // A manifest may get its name although its commit fails, so these places must not be written again from now on.
            store.vectors.keep(&fresh);
        }
        let files = files.into_iter().map(|(slab, place)| VectorFile { slab, bytes: layout.file_bytes(place) });
        Ok((files.collect(), written))
    }

    fn write_rows(&mut self) -> Result<Vec<Extent>> {
        let pages = (self.cut.end as usize).div_ceil(PAGE);
        let mut extents = Vec::with_capacity(pages);
        for page in 0..pages {
            let locations = self.cut.locations.get(page);
            let same = |last: &&Last| matches!((last.locations.get(page), locations), (Some(a), Some(b)) if Arc::ptr_eq(a, b));
            let before = self.last.filter(same).and_then(|last| last.row_pages.get(page).copied());
            extents.push(match before {
                Some(extent) if self.may_inherit(extent) => {
                    self.inherit(extent);
                    extent
                }
                _ => self.write_page(page, locations.map_or(&[DEAD; PAGE], |locations| locations))?,
            });
        }
        Ok(extents)
    }

    fn write_page(&mut self, page: usize, locations: &LocationPage) -> Result<Extent> {
        let first = page * PAGE;
        let alive = |place: usize| locations[place] != DEAD;
        let id = |place: usize| if alive(place) { self.store.ids.get((first + place) as Row) } else { 0 };
        let check = |place: usize| if alive(place) { self.checks[first + place] } else { 0 };
        let page = RowPage { ids: (0..PAGE).map(id).collect(), locations: locations.to_vec(), checks: (0..PAGE).map(check).collect() };
        self.add(&page.encode())
    }

    /// Writes the nodes that changed; returns the centroid of each leaf.
    fn write_nodes(&mut self, root: &mut Root) -> Result<HashMap<LeafId, Centroid>> {
        let mut centroids = HashMap::new();
        let snapshot = self.cut.snapshot.clone();
        for (number, node) in snapshot.inners.iter() {
            self.task.check()?;
            let blocks = self.write_blocks(node)?;
            let record = node_record(node, &blocks);
            let before = self.last.and_then(|last| last.known.nodes.get(&number));
            let extent = match before {
                Some((bytes, extent)) if *bytes == record && self.may_inherit(*extent) => {
                    let extent = *extent;
                    self.inherit(extent);
                    extent
                }
                _ => self.add(&record)?,
            };
            self.known.nodes.insert(number, (record, extent));
            root.nodes.push((number, extent));
            if node.level == 1 {
                centroids.extend(node.children().map(|child| (child.id, child.centroid)));
            }
        }
        Ok(centroids)
    }

    fn write_blocks(&mut self, node: &Inner) -> Result<Vec<Extent>> {
        let mut extents = Vec::with_capacity(node.blocks().len());
        for block in node.blocks() {
            let address = Arc::as_ptr(block) as usize;
            let before = self.last.and_then(|last| last.known.blocks.get(&address)).map(|(_, extent)| *extent);
            let extent = match before {
                Some(extent) if self.may_inherit(extent) => {
                    self.inherit(extent);
                    extent
                }
                _ => self.add(&block_record(block))?,
            };
            self.known.blocks.insert(address, (block.clone(), extent));
            extents.push(extent);
        }
        Ok(extents)
    }

    fn write_leaves(&mut self, root: &mut Root, centroids: &HashMap<LeafId, Centroid>) -> Result<()> {
        let snapshot = self.cut.snapshot.clone();
        let leaves: Vec<(LeafId, &Arc<Leaf>)> = snapshot.leaves.iter().collect();
        let mut page: Vec<LeafEntry> = Vec::new();
        for some in leaves.chunks(ENCODED_AT_ONCE) {
            self.task.check()?;
            let (store, may_inherit) = (self.store, |extent: &Extent| self.reusable.contains(&extent.segment));
            let encode = |&(_, leaf): &(LeafId, &Arc<Leaf>)| Entries::of(store, leaf, may_inherit);
            let encoded: Vec<Entries> = match self.pool {
                Some(pool) => pool.install(|| some.par_iter().map(encode).collect::<Result<_>>())?,
                None => some.iter().map(encode).collect::<Result<_>>()?,
            };
            for (&(id, leaf), entries) in some.iter().zip(encoded) {
                if page.first().is_some_and(|first| first.id / LEAVES != id / LEAVES) {
                    self.write_leaf_page(root, &mut page)?;
                }
                let entry = LeafEntry {
                    id,
                    rows: leaf.len() as u32,
                    care: leaf.care,
                    reference: self.write_reference(&leaf.reference, centroids.get(&id))?,
                    extents: self.write_entries(id, leaf, entries)?,
                };
                page.push(entry);
            }
        }
        self.write_leaf_page(root, &mut page)
    }

    fn write_leaf_page(&mut self, root: &mut Root, leaves: &mut Vec<LeafEntry>) -> Result<()> {
        let Some(number) = leaves.first().map(|first| first.id / LEAVES) else { return Ok(()) };
        let record = page_record(leaves);
        leaves.clear();
        let before = self.last.and_then(|last| last.known.leaf_pages.get(&number));
        let extent = match before {
            Some((bytes, extent)) if *bytes == record && self.may_inherit(*extent) => {
                let extent = *extent;
                self.inherit(extent);
                extent
            }
            _ => self.add(&record)?,
        };
        self.known.leaf_pages.insert(number, (record, extent));
        root.leaf_pages.push((number, extent));
        Ok(())
    }

    fn write_reference(&mut self, reference: &Centroid, centroid: Option<&Centroid>) -> Result<Option<Extent>> {
        if centroid.is_some_and(|centroid| Arc::ptr_eq(centroid, reference)) {
            return Ok(None);
        }
        let address = centroid_address(reference);
        let before = self.last.and_then(|last| last.known.references.get(&address)).map(|(_, extent)| *extent);
        let extent = match before {
            Some(extent) if self.may_inherit(extent) => {
                self.inherit(extent);
                extent
            }
            _ => self.add(bytemuck::cast_slice(reference))?,
        };
        self.known.references.insert(address, (reference.clone(), extent));
        Ok(Some(extent))
    }

    /// Writes what of a leaf's entries isn't on disk; returns where all of them are.
    fn write_entries(&mut self, id: LeafId, leaf: &Leaf, entries: Entries) -> Result<Vec<Extent>> {
        entries.before.iter().for_each(|&extent| self.inherit(extent));
        let Some(record) = entries.record else { return Ok(entries.before) };
        let extents = [entries.before.as_slice(), &[self.add(&record)?]].concat();
        if self.own {
            let tokens = if entries.pinned.is_some() { Vec::new() } else { self.segments.tokens(&extents) };
            self.stored.push((id, Arc::new(Stored { extents: extents.clone(), rows: leaf.len(), pinned: entries.pinned, tokens })));
        }
        Ok(extents)
    }
}

/// Leaves whose entries are encoded together.
const ENCODED_AT_ONCE: usize = 512;

/// A leaf's entries on their way to disk.
struct Entries {
    /// Where a part of them is already.
    before: Vec<Extent>,
    /// The rest; `None` if nothing is missing.
    record: Option<Vec<u8>>,
    /// All of them, where they are kept in memory.
    pinned: Option<Arc<Leaf>>,
}

impl Entries {
    fn of(store: &Store, leaf: &Arc<Leaf>, may_inherit: impl Fn(&Extent) -> bool) -> Result<Self> {
        if leaf.is_empty() {
            return Ok(Self { before: Vec::new(), record: None, pinned: None });
        }
        let before = leaf.stored().filter(|stored| stored.extents.iter().all(may_inherit));
        let pinned = leaf.stored().is_none_or(|stored| stored.pinned.is_some());
        let changed = leaf.removed().len() + leaf.rows().count();
        match before {
            Some(before) if changed == 0 => Ok(Self { before: before.extents.clone(), record: None, pinned: None }),
            Some(before) if changed * 2 <= before.rows && before.extents.len() < RECORDS => {
                let record = Some(change_record(leaf, store.encoder.code_bytes()));
                let pinned = if pinned { Some(store.whole(leaf)?) } else { None };
                Ok(Self { before: before.extents.clone(), record, pinned })
            }
            _ => {
                // Without gaps. What was added lately mostly is so, and isn't copied.
                let whole = store.whole(leaf)?;
                let dense = if whole.is_dense() { whole } else { Arc::new(whole.packed(store.pool())) };
                Ok(Self { before: Vec::new(), record: Some(whole_record(&dense)), pinned: pinned.then_some(dense) })
            }
        }
    }
}

/// All files that a checkpoint needs.
pub fn files_of(manifest: &Manifest) -> impl Iterator<Item = String> + '_ {
    let segments = manifest.segments.iter().map(|file| segment_name(file.number));
    segments.chain(manifest.vectors.iter().map(|file| vectors_name(manifest.generation, file.slab)))
}
