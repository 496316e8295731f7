//! An index and a directory: bound to it, read from it, saved into another.

use std::sync::Arc;

use super::Index;
use crate::cancel::Task;
use crate::checkpoint::{Home, Info, MOST_NOTE, Manifest, Residence, Segments, files_of, hold_checkpoint, open};
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::metric::{MAX_DIM, Metric};
use crate::params::Params;
use crate::storage::{Cache, Kind, Storage};
use crate::tree::store::Store;

/// What the caller says of an index that may be there already.
#[derive(Debug, Clone, Default)]
pub struct Wanted {
    /// Values of a vector; needed for a new index.
    pub dim: Option<usize>,
    /// What is near; cosine for a new index if nothing is said.
    pub metric: Option<Metric>,
    /// Options of a new index; of one that is there, those that a checkpoint doesn't keep.
    pub params: Params,
    /// Options that were given, by name: an index that is there must have the same.
    pub given: Vec<&'static str>,
    /// Checkpoints that are kept, at least 1.
    pub keep: usize,
    /// Bytes of the cache of what is read from disk; `None` keeps everything in memory.
    pub cache_bytes: Option<u64>,
}

/// What an index reads when it is needed.
#[derive(Debug)]
pub struct Disk {
    cache: Arc<Cache>,
    segments: Arc<Segments>,
    files: Vec<String>,
}

/// Reads from disk so far.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CacheStats {
    /// Bytes in the cache.
    pub bytes: u64,
    /// Room in the cache, in bytes.
    pub capacity: u64,
    /// Bytes of posting lists that were read.
    pub postings_read: u64,
    /// Bytes of vectors that were read, whole pages.
    pub vectors_read: u64,
    /// Seconds of reading posting lists, over all threads.
    pub postings_seconds: f64,
    /// Seconds of reading vectors, over all threads.
    pub vectors_seconds: f64,
    /// Reads.
    pub reads: u64,
    /// Lookups that needed no read.
    pub hits: u64,
}

impl Disk {
    fn new(cache: &Arc<Cache>, segments: &Arc<Segments>, manifest: &Manifest) -> Self {
        Self { cache: cache.clone(), segments: segments.clone(), files: files_of(manifest).collect() }
    }

    /// The numbers.
    pub fn stats(&self) -> CacheStats {
        let cache = &self.cache;
        let (reads, hits) = cache.counts();
        CacheStats {
            bytes: cache.bytes(),
            capacity: cache.capacity(),
            postings_read: cache.read(Kind::Segment),
            vectors_read: cache.read(Kind::Vectors),
            postings_seconds: cache.seconds(Kind::Segment),
            vectors_seconds: cache.seconds(Kind::Vectors),
            reads,
            hits,
        }
    }

    fn clear(&self) -> Result<()> {
        self.cache.clear();
        self.files.iter().try_for_each(|name| self.segments.file(name)?.evict())
    }
}

impl Wanted {
    fn residence(&self) -> Residence {
        self.cache_bytes.map_or(Residence::Memory, |bytes| Residence::Disk(Arc::new(Cache::new(bytes))))
    }

    /// Fails where the index that is there, opened as `store`, isn't what is wanted.
    fn check(&self, store: &Store) -> Result<()> {
        let there = &store.params;
        let number = |name: &'static str, there: u64, given: u64| -> Result<()> {
            if there == given { Ok(()) } else { Err(Error::invalid(name, format!("{there}, as in the checkpoint"), given.to_string())) }
        };
        if let Some(dim) = self.dim {
            number("dim", store.vectors.dim() as u64, dim as u64)?;
        }
        if let Some(metric) = self.metric.filter(|&metric| metric != store.metric) {
            let expected = format!("{:?}, as in the checkpoint", store.metric.name());
            return Err(Error::invalid("metric", expected, format!("{:?}", metric.name())));
        }
        let given = &self.params;
        let options = [
            ("spill", there.spill, given.spill),
            ("split_threshold", there.split_threshold, given.split_threshold),
            ("merge_threshold", there.merge_threshold, given.merge_threshold),
            ("branching", there.branching, given.branching),
        ];
        for (name, there, given) in options.into_iter().filter(|(name, ..)| self.given.contains(name)) {
            number(name, there as u64, given as u64)?;
        }
        if self.given.contains(&"storage") && there.storage != given.storage {
            let expected = format!("{:?}, as in the checkpoint", there.storage.name());
            return Err(Error::invalid("storage", expected, format!("{:?}", given.storage.name())));
        }
        if self.given.contains(&"seed") { number("seed", there.seed, given.seed) } else { Ok(()) }
    }
}

impl Index {
    /// The index of a directory, for writing: opened at its newest checkpoint, or new. Nobody else may have it open for writing.
    pub fn bind(storage: &Arc<dyn Storage>, wanted: &Wanted, task: &Task) -> Result<Self> {
        wanted.params.validate()?;
        let home = Home::lock(storage, wanted.keep)?;
        let Some(number) = home.current()? else {
            let dim = wanted.dim.unwrap_or(0);
            if dim == 0 || dim > MAX_DIM {
                let given = wanted.dim.map_or("nothing, and there is no checkpoint in the directory".to_string(), |dim| dim.to_string());
                return Err(Error::invalid("dim", format!("a whole number from 1 to {MAX_DIM}"), given));
            }
            let metric = wanted.metric.unwrap_or(Metric::Cosine);
            let store = Store::new(Kernels::get()?, dim, metric, wanted.params.clone());
            return Ok(Self::of(Arc::new(store), Some(home), None, None, None));
        };
        let residence = wanted.residence();
        let opened = open(home.segments(), number, &residence, &wanted.params, Some(&home), task)?;
        wanted.check(&opened.store)?;
        let disk = match &residence {
            Residence::Disk(cache) => Some(Disk::new(cache, home.segments(), &opened.manifest)),
            Residence::Memory => None,
        };
        Ok(Self::of(Arc::new(opened.store), Some(home), None, disk, opened.manifest.targets))
    }

    /// Checkpoint `version` of a directory (the newest if `None`) in memory, bound to nothing.
    pub fn load(storage: &Arc<dyn Storage>, version: Option<u32>, others: &Params, task: &Task) -> Result<Self> {
        let held = hold_checkpoint(&**storage, version)?;
        let segments = Arc::new(Segments::new(storage.clone()));
        let opened = open(&segments, held.number, &Residence::Memory, others, None, task)?;
        Ok(Self::of(Arc::new(opened.store), None, None, None, opened.manifest.targets))
    }

    /// Checkpoint `version` of a directory (the newest if `None`) for reading, through a cache.
    pub fn read(storage: &Arc<dyn Storage>, version: Option<u32>, cache: &Arc<Cache>, others: &Params) -> Result<Self> {
        let held = hold_checkpoint(&**storage, version)?;
        let segments = Arc::new(Segments::new(storage.clone()));
        let opened = open(&segments, held.number, &Residence::Disk(cache.clone()), others, None, &Task::new())?;
        let disk = Disk::new(cache, &segments, &opened.manifest);
        Ok(Self::of(Arc::new(opened.store), None, Some(held), Some(disk), opened.manifest.targets))
    }

    /// The number of the checkpoint that is read.
    pub fn version(&self) -> Result<Option<u32>> {
        Ok(self.core()?.held.as_ref().map(|held| held.number))
    }

    /// Forgets what was read from disk, as far as the system lets us its own cache too: the next searches are cold.
    pub fn clear_cache(&self) -> Result<()> {
        self.core()?.disk.as_ref().map_or(Ok(()), Disk::clear)
    }

    /// Whether the directory that the index is bound to holds its present state.
    pub fn is_clean(&self) -> bool {
        self.core().is_ok_and(|core| core.home.as_ref().is_none_or(|home| home.is_clean(&core.store)))
    }

    /// Makes the present state the newest checkpoint of the directory. After it has returned the state survives the end of the process and
    /// of the machine; before, the former checkpoint does. Adds, removals and searches go on meanwhile.
    pub fn commit(&self, task: &Task) -> Result<Info> {
        self.commit_with_note(None, task)
    }

    /// [`Index::commit`], with a text of at most 1 MiB that the checkpoint keeps; `None` keeps the one before.
    pub fn commit_with_note(&self, note: Option<&str>, task: &Task) -> Result<Info> {
        let opened = self.core()?;
        // A handle that was only read from has nothing to commit. Getting ready for changes would begin balancing, and that would be one.
        if let Some(home) = opened.home.as_ref().filter(|_| note.is_none() && !opened.noted.is_completed())
            && let Some(newest) = home.newest()
        {
            return Ok(newest);
        }
        let core = self.writable()?;
        if let Some(note) = note.filter(|note| note.len() > MOST_NOTE) {
            return Err(Error::invalid("note", format!("at most {MOST_NOTE} bytes"), note.len().to_string()));
        }
        match &core.home {
            Some(home) => home.commit(&core.store, note, core.table_to_keep(task)?, core.writing_pool(), task),
            None => Err(Error::invalid("path", "an index that is bound to a directory; use save(path)", "an index in memory")),
        }
    }

    /// Writes the present state into another directory, as its newest checkpoint.
    pub fn save(&self, storage: &Arc<dyn Storage>, task: &Task) -> Result<Info> {
        let core = self.loaded()?;
        Home::lock(storage, 1)?.copy(&core.store, core.table_to_keep(task)?, core.writing_pool(), task)
    }
}
