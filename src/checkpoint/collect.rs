//! What no checkpoint needs any more: files go, and places of vectors are written again.

use std::collections::HashSet;

use super::commit::files_of;
use super::home::{Home, State};
use super::manifest::{Manifest, current, manifest_name, manifest_numbers};
use super::segment::segment_name;
use super::vectors::vectors_name;
use crate::error::Result;
use crate::storage::Storage;
use crate::tree::store::Store;
use crate::vectors::Row;

impl Home {
    /// Notes rows that were released, as of the commit of this number: older checkpoints may list them.
    pub(super) fn note_retired(&self, store: &Store, state: &mut State, number: u32) {
        let retired = store.vectors.take_retired();
        if !retired.is_empty() {
            state.retired.push((number, retired));
        }
    }

    /// Removes checkpoints beyond those that are kept and held, and files that none needs; gives rows back that none lists.
    pub(super) fn collect(&self, state: &mut State, store: &Store) -> Result<()> {
        let Some(oldest) = self.collect_files(self.in_use(store, state))? else { return Ok(()) };
        let mut free: Vec<Row> = Vec::new();
        state.retired.retain_mut(|(number, rows)| {
            let done = *number <= oldest;
            if done {
                free.append(rows);
            }
            !done
        });
        store.vectors.forget(&free);
        Ok(())
    }

    /// Files that versions of the tree may read which no checkpoint holds: what searches began with, and leaves that changed while a commit
    /// wrote what they were before.
    fn in_use(&self, store: &Store, state: &State) -> HashSet<String> {
        let segments = self.segments.held().into_iter().map(segment_name);
        segments.chain(store.vectors.kept().slabs().into_iter().map(|slab| vectors_name(state.generation, slab))).collect()
    }

    /// Removes files, but for those in `needed`; returns the number of the oldest checkpoint that is left.
    pub(super) fn collect_files(&self, mut needed: HashSet<String>) -> Result<Option<u32>> {
        let storage = &**self.segments.storage();
        let Some(newest) = current(storage)? else { return Ok(None) };
        let mut left = Vec::new();
        let numbers = manifest_numbers(storage)?;
        let older = numbers.iter().rev().filter(|&&number| number <= newest);
        let kept: HashSet<u32> = older.take(self.keep).copied().collect();
        for number in numbers {
            if kept.contains(&number) || !self.drop_manifest(storage, number)? {
                left.push(number);
            }
        }
        storage.sync_folder("manifests")?;
        for &number in &left {
            needed.extend(files_of(&Manifest::read(storage, number)?));
        }
        for folder in ["segments", "vectors"] {
            for name in storage.list(folder)? {
                let name = format!("{folder}/{name}");
                if !needed.contains(&name) {
                    storage.remove(&name)?;
                }
            }
        }
        for folder in ["", "manifests"] {
            for name in storage.list(folder)?.into_iter().filter(|name| name.ends_with(".tmp")) {
                storage.remove(&if folder.is_empty() { name } else { format!("{folder}/{name}") })?;
            }
        }
        self.segments.close();
        Ok(left.first().copied())
    }

    /// Removes a manifest, unless a reader holds it.
    fn drop_manifest(&self, storage: &dyn Storage, number: u32) -> Result<bool> {
        let name = manifest_name(number);
        let Some(_hold) = storage.hold(&name, true)? else { return Ok(false) };
        storage.remove(&name)?;
        Ok(true)
    }
}
