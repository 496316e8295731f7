//! A directory that an index is bound to: the lock, what its newest checkpoint consists of, and rows that older ones still list.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

use super::manifest::{Manifest, current, manifest_numbers};
use super::root::Known;
use super::rows::RowPages;
use super::segment::{Segments, segment_number};
use crate::error::{Error, Result};
use crate::ids::{LocationPage, PAGE};
use crate::storage::{Hold, Storage};
use crate::tree::leaf::Extent;
use crate::tree::store::Store;
use crate::vectors::Row;

/// The file whose lock the only writer holds.
const LOCK: &str = "LOCK";

/// The only writer's view of a directory.
#[derive(Debug)]
pub struct Home {
    /// The files.
    pub(super) segments: Arc<Segments>,
    /// How many checkpoints are kept.
    pub(super) keep: usize,
    pub(super) state: Mutex<State>,
    /// Held for as long as this is there.
    _hold: Box<dyn Hold>,
}

/// What a commit goes on from.
#[derive(Debug, Default)]
pub(super) struct State {
    /// The number of the next attempt; numbers of attempts that failed aren't used again.
    pub next_number: u32,
    /// Of the files of vectors.
    pub generation: u32,
    pub last: Option<Last>,
    /// Rows that the checkpoint of this number doesn't list any more, but older ones may.
    pub retired: Vec<(u32, Vec<Row>)>,
    /// CRC-32C of the stored vectors, by row.
    pub checks: Vec<u32>,
    /// The table of rows of the checkpoint that was opened, until the first commit has taken it over.
    pub opened: Option<Arc<RowPages>>,
}

impl State {
    /// Takes over what was opened. The directory of `store` must be loaded.
    pub fn take_over(&mut self, store: &Store, segments: &Arc<Segments>) -> Result<()> {
        let (Some(pages), Some(last)) = (&self.opened, &mut self.last) else { return Ok(()) };
        let mut checks = Vec::with_capacity(pages.extents().len() * PAGE);
        for page in 0..pages.extents().len() {
            checks.extend_from_slice(&pages.page(page)?.checks);
        }
        let mut free = pages.dead_rows()?;
        for number in manifest_numbers(&**segments.storage())?.into_iter().rev().filter(|&number| number < last.manifest.number) {
            let (listed, rest) = split_listed(free, segments, number, pages);
            self.retired.push((number + 1, listed));
            free = rest;
        }
        store.vectors.forget(&free);
        last.locations = store.take_loaded_locations();
        (self.checks, self.opened) = (checks, None);
        Ok(())
    }
}

/// Of `dead` rows, which the newest checkpoint doesn't list, those that checkpoint `number` may list, and the others.
fn split_listed(dead: Vec<Row>, segments: &Arc<Segments>, number: u32, newest: &RowPages) -> (Vec<Row>, Vec<Row>) {
    // All, where that can't be read.
    let Ok(older) = RowPages::of_checkpoint(segments, number) else { return (dead, Vec::new()) };
    let same = |page: usize| older.extents().get(page).is_none_or(|extent| newest.extents().get(page) == Some(extent));
    dead.into_iter().partition(|&row| !same(row as usize / PAGE) && older.lists(row).unwrap_or(true))
}

/// The newest checkpoint.
#[derive(Debug)]
pub(super) struct Last {
    pub manifest: Manifest,
    /// The version of the tree that it holds.
    pub sequence: u64,
    /// The changes of rows that it holds.
    pub changes: u64,
    pub locations: Vec<Arc<LocationPage>>,
    pub row_pages: Vec<Extent>,
    pub known: Known,
}

/// What a commit made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Info {
    /// The checkpoint's number.
    pub version: u32,
    /// Live rows.
    pub rows: u64,
    /// Bytes that were written.
    pub bytes_written: u64,
}

impl Home {
    /// Takes the lock of a directory. `describe` is its path, for messages.
    pub fn lock(storage: &Arc<dyn Storage>, keep: usize) -> Result<Self> {
        let Some(hold) = storage.hold(LOCK, true)? else {
            let holder = crate::storage::read_whole(&**storage, LOCK, 4096).unwrap_or_default();
            let holder = String::from_utf8_lossy(&holder).trim_end().to_string();
            let holder = if holder.is_empty() { "another process".to_string() } else { holder };
            return Err(Error::Locked { path: storage.describe(""), holder });
        };
        hold.note(&holder())?;
        let segments = Arc::new(Segments::new(storage.clone()));
        let manifests = manifest_numbers(&**storage)?;
        let used = storage.list("segments")?.iter().filter_map(|name| segment_number(name)).max();
        let Some(next_number) = manifests.last().copied().max(used).unwrap_or(0).checked_add(1) else {
            return Err(Error::corrupt(storage.describe("manifests"), "a file has the largest number that there is"));
        };
        let state = State { next_number, generation: next_number, ..State::default() };
        Ok(Self { segments, keep: keep.max(1), state: Mutex::new(state), _hold: hold })
    }

    /// Readies a store that was opened here for its first change: what is dead in it is used again, unless an older checkpoint lists it.
    pub fn take_over(&self, store: &Store) -> Result<()> {
        self.state.lock().take_over(store, &self.segments)
    }

    /// The newest checkpoint, if there is one.
    pub fn newest(&self) -> Option<Info> {
        self.state.lock().last.as_ref().map(|last| Info { version: last.manifest.number, rows: last.manifest.rows, bytes_written: 0 })
    }

    /// Whether the newest checkpoint holds the present rows of `store`. The tree may have been balanced since.
    pub fn is_clean(&self, store: &Store) -> bool {
        self.state.lock().last.as_ref().map_or(0, |last| last.changes) == store.view().changes
    }

    /// The files.
    pub fn segments(&self) -> &Arc<Segments> {
        &self.segments
    }

    /// The number of the newest checkpoint, if there is one.
    pub fn current(&self) -> Result<Option<u32>> {
        current(&**self.segments.storage())
    }
}

/// Who this process is, for those who meet its lock.
fn holder() -> String {
    let started = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    format!("process {} on {} (since {started} s after 1970)", std::process::id(), host())
}

#[cfg(unix)]
fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_else(|_| "this computer".into())
}
