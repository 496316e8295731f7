//! Open: a checkpoint becomes a store again. The tree is read at once, everything else when it is needed.

use std::sync::Arc;

use super::home::{Home, Last};
use super::leaves::Leaves;
use super::manifest::{Manifest, checkpoint_numbers, current, manifest_name};
use super::root::{Root, read_tree};
use super::rows::RowPages;
use super::segment::Segments;
use super::vectors::{DiskVectors, Layout};
use crate::cancel::Task;
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::params::Params;
use crate::storage::{Cache, Hold, Storage};
use crate::tree::leaf::{Leaf, LeafSource, Stored};
use crate::tree::store::{OnDisk, Store};
use crate::tree::topology::Topology;
use crate::vectors::Vectors;

/// Where vectors and entries of leaves are.
#[derive(Debug, Clone)]
pub enum Residence {
    /// On disk; what was read lately is in the cache.
    Disk(Arc<Cache>),
    /// All in memory.
    Memory,
}

/// What came out of a checkpoint.
#[derive(Debug)]
pub struct Opened {
    /// The index's data.
    pub store: Store,
    /// The checkpoint's manifest.
    pub manifest: Manifest,
}

/// A checkpoint that is held: it isn't collected as long as this is there.
#[derive(Debug)]
pub struct Held {
    /// Its number.
    pub number: u32,
    _hold: Box<dyn Hold>,
}

/// Holds checkpoint `version`, or the newest one.
pub fn hold_checkpoint(storage: &dyn Storage, version: Option<u32>) -> Result<Held> {
    loop {
        let newest = match current(storage) {
            // Each manifest is whole, so who names one doesn't need the file that names the newest.
            Err(Error::Corrupt { .. }) if version.is_some() => checkpoint_numbers(storage)?.pop(),
            done => done?,
        };
        let number = match (version, newest) {
            (Some(version), Some(newest)) if version > newest => return Err(unknown(storage, version)),
            (Some(version), Some(_)) => version,
            (None, Some(newest)) => newest,
            (_, None) => {
                let missing = std::io::Error::new(std::io::ErrorKind::NotFound, "there is no checkpoint in this directory");
                return Err(Error::io(storage.describe(""), &missing));
            }
        };
        let name = manifest_name(number);
        let held = match storage.hold(&name, false) {
            Ok(held) => held,
            Err(Error::Io { kind: std::io::ErrorKind::NotFound, .. }) if version.is_none() && current(storage)? != Some(number) => continue,
            Err(error @ Error::Io { kind: std::io::ErrorKind::NotFound, .. }) => {
                return Err(version.map_or(error, |version| unknown(storage, version)));
            }
            Err(error) => return Err(error),
        };
        // It may have been removed between being opened and being held.
        match held {
            Some(hold) if storage.open(&name).is_ok() => return Ok(Held { number, _hold: hold }),
            _ => std::thread::sleep(std::time::Duration::from_millis(1)),
        }
    }
}

/// There is no checkpoint of this number.
fn unknown(storage: &dyn Storage, version: u32) -> Error {
    match checkpoint_numbers(storage) {
        Ok(there) => {
            let there: Vec<String> = there.iter().map(u32::to_string).collect();
            Error::invalid("version", format!("one of {}", there.join(", ")), version.to_string())
        }
        Err(error) => error,
    }
}

/// Opens checkpoint `number`. `others` has the options that a checkpoint doesn't keep. With `home` the store goes on being written there.
pub fn open(
    segments: &Arc<Segments>,
    number: u32,
    residence: &Residence,
    others: &Params,
    home: Option<&Home>,
    task: &Task,
) -> Result<Opened> {
    let storage = &**segments.storage();
    let manifest = Manifest::read(storage, number)?;
    let Some(metric) = manifest.metric() else { return Err(Error::corrupt(storage.describe(""), "the metric is unknown")) };
    let params = manifest.config.params(others);
    let empty = Store::new(Kernels::get()?, manifest.dim, metric, params);
    for file in &manifest.segments {
        segments.check(file.number, file.bytes)?;
    }
    let root = segments.decode(manifest.root.into(), Root::decode)?;
    if (root.rows, root.next_id) != (manifest.rows, manifest.next_id) {
        return Err(Error::corrupt(storage.describe(&manifest_name(number)), "the manifest and the tree have different numbers of rows"));
    }
    let (snapshot, known) = read_tree(segments, &root, &empty.coder, empty.padded())?;
    let rows = Arc::new(RowPages::new(segments.clone(), root.row_pages.clone(), root.next_id, root.end));
    let cache = match residence {
        Residence::Disk(cache) => cache.clone(),
        Residence::Memory => Arc::new(Cache::new(1 << 20)),
    };
    let codec = empty.vectors.codec().clone();
    let layout = Layout::new(manifest.dim, codec.kind());
    let source = Arc::new(DiskVectors::new(segments.clone(), cache.clone(), rows.clone(), layout, manifest.generation));
    for file in &manifest.vectors {
        source.check(file.slab, file.bytes)?;
    }
    let vectors = Arc::new(Vectors::on_shelf(codec, root.end, source));
    let leaves = Arc::new(Leaves::new(segments.clone(), cache, empty.pool().clone(), empty.encoder.code_bytes(), vectors.clone()));
    let mut topology = Topology::of_snapshot(snapshot);
    if matches!(residence, Residence::Memory) {
        load_leaves(&mut topology, &leaves, home.is_some(), task)?;
    }
    let [clustered_rows, added_since] = root.clustered.map(|count| count as usize);
    let leaves = matches!(residence, Residence::Disk(_)).then_some(leaves as Arc<dyn LeafSource>);
    let disk = OnDisk { vectors, leaves, rows: rows.clone(), clustered_rows, added_since };
    let store = Store::restored(empty, topology, disk);
    if matches!(residence, Residence::Memory) {
        store.load_directory()?;
        store.load_vectors(task)?;
    }
    if home.is_none() && matches!(residence, Residence::Memory) {
        // Rows that this checkpoint doesn't list are nobody's.
        store.vectors.forget_all(&rows.dead_rows()?);
    }
    if let Some(home) = home {
        let last = Last { manifest: manifest.clone(), sequence: 0, changes: 0, locations: Vec::new(), row_pages: root.row_pages, known };
        let mut state = home.state.lock();
        (state.last, state.opened, state.generation) = (Some(last), Some(rows), manifest.generation);
    }
    Ok(Opened { store, manifest })
}

/// Reads the entries of all leaves, to stay in memory. Where the next commit goes on from this checkpoint they stay known as stored.
fn load_leaves(topology: &mut Topology, leaves: &Leaves, bound: bool, task: &Task) -> Result<()> {
    let on_disk: Vec<(u32, Arc<Leaf>)> =
        topology.snapshot.leaves.iter().filter(|(_, leaf)| leaf.stored().is_some()).map(|(id, leaf)| (id, leaf.clone())).collect();
    for (id, leaf) in on_disk {
        task.check()?;
        let Some(stored) = leaf.stored() else { continue };
        let entries = leaves.read(stored)?;
        let loaded = if bound {
            let pinned = Some(Arc::new(entries));
            let stored = Arc::new(Stored { extents: stored.extents.clone(), rows: stored.rows, pinned, tokens: Vec::new() });
            Leaf::on_disk(leaf.reference.clone(), stored, leaf.care)
        } else {
            entries.around(leaf.reference.clone(), leaf.care)
        };
        topology.snapshot.leaves.set(id, Some(Arc::new(loaded)));
    }
    Ok(())
}
