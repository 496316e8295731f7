//! An index and a directory: bound to it, read from it, saved into another.

use std::sync::Arc;

use super::Index;
use crate::cancel::Task;
use crate::checkpoint::{Home, Info, Residence, hold_checkpoint, open};
use crate::error::{Error, Result};
use crate::kernel::Kernels;
use crate::metric::{MAX_DIM, Metric};
use crate::params::Params;
use crate::storage::{Cache, Storage};
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
        if self.given.contains(&"seed") { number("seed", there.seed, given.seed) } else { Ok(()) }
    }
}

impl Index {
    /// The index of a directory, for writing: opened at its newest checkpoint, or new. Nobody else may have it open for writing.
    pub fn bind(storage: &Arc<dyn Storage>, wanted: &Wanted) -> Result<Self> {
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
            return Ok(Self::of(Arc::new(store), Some(home), None));
        };
        let opened = open(home.segments(), number, &wanted.residence(), &wanted.params, Some(&home))?;
        wanted.check(&opened.store)?;
        Ok(Self::of(Arc::new(opened.store), Some(home), None))
    }

    /// Checkpoint `version` of a directory (the newest if `None`) in memory, bound to nothing.
    pub fn load(storage: &Arc<dyn Storage>, version: Option<u32>, others: &Params) -> Result<Self> {
        let held = hold_checkpoint(&**storage, version)?;
        let segments = Arc::new(crate::checkpoint::Segments::new(storage.clone()));
        let opened = open(&segments, held.number, &Residence::Memory, others, None)?;
        Ok(Self::of(Arc::new(opened.store), None, None))
    }

    /// Checkpoint `version` of a directory (the newest if `None`) for reading, through a cache.
    pub fn read(storage: &Arc<dyn Storage>, version: Option<u32>, cache: &Arc<Cache>, others: &Params) -> Result<Self> {
        let held = hold_checkpoint(&**storage, version)?;
        let segments = Arc::new(crate::checkpoint::Segments::new(storage.clone()));
        let opened = open(&segments, held.number, &Residence::Disk(cache.clone()), others, None)?;
        Ok(Self::of(Arc::new(opened.store), None, Some(held)))
    }

    /// The number of the checkpoint that is read.
    pub fn version(&self) -> Result<Option<u32>> {
        Ok(self.core()?.held.as_ref().map(|held| held.number))
    }

    /// Makes the present state the newest checkpoint of the directory. After it has returned the state survives the end of the process and
    /// of the machine; before, the former checkpoint does. Adds, removals and searches go on meanwhile.
    pub fn commit(&self, task: &Task) -> Result<Info> {
        let core = self.writable()?;
        match &core.home {
            Some(home) => home.commit(&core.store, task),
            None => Err(Error::invalid("path", "an index that is bound to a directory; use save(path)", "an index in memory")),
        }
    }

    /// Writes the present state into another directory, as its newest checkpoint.
    pub fn save(&self, storage: &Arc<dyn Storage>, task: &Task) -> Result<Info> {
        let core = self.loaded()?;
        Home::lock(storage, 1)?.copy(&core.store, task)
    }
}
