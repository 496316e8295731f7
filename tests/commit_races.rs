//! What happens between two steps of a commit, or of a search while others commit: each moment made certain by a directory that calls back.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, OnceLock};

use sapwood::cancel::Task;
use sapwood::dataset::Rows;
use sapwood::error::Result;
use sapwood::index::{Index, Wanted};
use sapwood::metric::Metric;
use sapwood::params::{Params, SearchOptions};
use sapwood::storage::{Hold, Memory, ReadAt, Storage, WriteAt};

const DIM: usize = 4;

type Action = Box<dyn FnOnce() + Send>;

/// A directory that runs an action once, before the first call that is named so.
#[derive(Clone)]
struct Moments {
    inner: Memory,
    action: Arc<Mutex<Option<(&'static str, Action)>>>,
}

impl Moments {
    fn new() -> Self {
        Self { inner: Memory::new(), action: Arc::default() }
    }

    fn before(&self, call: &'static str, action: impl FnOnce() + Send + 'static) {
        *self.action.lock().unwrap() = Some((call, Box::new(action)));
    }

    fn reach(&self, call: &str) {
        let due = self.action.lock().unwrap().take_if(|(at, _)| call.starts_with(*at));
        if let Some((_, action)) = due {
            action();
        }
    }

    fn is_past(&self) -> bool {
        self.action.lock().unwrap().is_none()
    }
}

impl fmt::Debug for Moments {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Moments")
    }
}

impl Storage for Moments {
    fn describe(&self, name: &str) -> String {
        self.inner.describe(name)
    }
    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.inner.list(folder)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        Ok(Arc::new(File { inner: self.inner.open(name)?, moments: self.clone(), call: format!("read {name}") }))
    }
    fn write(&self, name: &str) -> Result<Box<dyn WriteAt>> {
        self.inner.write(name)
    }
    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.reach(&format!("replace {name}"));
        self.inner.replace(name, bytes)
    }
    fn sync_folder(&self, folder: &str) -> Result<()> {
        self.inner.sync_folder(folder)
    }
    fn remove(&self, name: &str) -> Result<()> {
        self.inner.remove(name)
    }
    fn hold(&self, name: &str, alone: bool) -> Result<Option<Box<dyn Hold>>> {
        self.inner.hold(name, alone)
    }
}

#[derive(Debug)]
struct File {
    inner: Arc<dyn ReadAt>,
    moments: Moments,
    call: String,
}

impl ReadAt for File {
    fn len(&self) -> Result<u64> {
        self.inner.len()
    }
    fn read_at(&self, offset: u64, out: &mut [u8]) -> Result<()> {
        self.inner.read_at(offset, out)?;
        // After the bytes are there: what is changed now, this read doesn't see.
        self.moments.reach(&self.call);
        Ok(())
    }
}

/// Many small leaves, all of them on disk after an opening, none kept in memory.
fn wanted() -> Wanted {
    let params = Params { background: false, split_threshold: 8, merge_threshold: 2, branching: 8, threads: Some(1), ..Params::default() };
    Wanted { dim: Some(DIM), metric: Some(Metric::L2), params, given: Vec::new(), keep: 1, cache_bytes: Some(0) }
}

fn bind(moments: &Moments) -> Arc<Index> {
    let storage: Arc<dyn Storage> = Arc::new(moments.clone());
    Arc::new(Index::bind(&storage, &wanted(), &Task::new()).unwrap())
}

fn vector(id: i64) -> Vec<f32> {
    (0..DIM as i64).map(|place| ((id + 1) * (7919 + place * 104_729) % 1000) as f32).collect()
}

fn add(index: &Index, ids: Range<i64>) {
    let ids: Vec<i64> = ids.collect();
    let values: Vec<f32> = ids.iter().flat_map(|&id| vector(id)).collect();
    index.add(Rows::new("vectors", &values, DIM).unwrap(), Some(&ids), &Task::new()).unwrap();
}

fn found(index: &Index, k: usize) -> Vec<i64> {
    let all = SearchOptions { beam: Some((1 << 20, 1 << 20)), threads: Some(1), ..SearchOptions::default() };
    let mut ids = index.search(Rows::new("queries", &[1.0; DIM], DIM).unwrap(), k, &all, &Task::new()).unwrap().ids;
    ids.sort_unstable();
    ids
}

/// A checkpoint of so many rows, opened again.
fn reopened(moments: &Moments, rows: i64) -> Arc<Index> {
    let index = bind(moments);
    add(&index, 0..rows);
    index.balance(&Task::new()).unwrap();
    index.commit(&Task::new()).unwrap();
    drop(index);
    bind(moments)
}

fn assert_holds(index: &Index, ids: Range<i64>) {
    index.validate(&Task::new()).unwrap();
    assert_eq!(found(index, ids.clone().count()), ids.collect::<Vec<_>>());
}

#[test]
fn leaves_that_change_while_a_commit_writes_them_anew_keep_what_they_have_on_disk() {
    let moments = Moments::new();
    let rows = 1_000;
    let (index, mut from) = (reopened(&moments, rows), 0);
    let remove = |index: &Index, ids: Range<i64>| assert_eq!(index.remove(&ids.collect::<Vec<_>>()).unwrap(), 20);
    // Until a commit has given up the first segment, and written anew what was left in it. Adding would cluster the whole tree.
    while moments.list("segments").unwrap().contains(&"000001.seg".to_string()) {
        assert!(from < 900, "the first segment is never given up");
        remove(&index, from..from + 20);
        index.balance(&Task::new()).unwrap();
        let (writer, gone) = (index.clone(), from + 20..from + 40);
        moments.before("replace CURRENT", move || remove(&writer, gone));
        index.commit(&Task::new()).unwrap();
        assert!(moments.is_past());
        from += 40;
    }
    assert_holds(&index, from..rows);
    // Nor does a checkpoint name a segment that is gone.
    index.commit(&Task::new()).unwrap();
    assert_holds(&index, from..rows);
    drop(index);
    let index = bind(&moments);
    assert_holds(&index, from..rows);
    // In the end nothing stays that isn't needed.
    for _ in 0..3 {
        add(&index, from..rows);
        index.balance(&Task::new()).unwrap();
        index.commit(&Task::new()).unwrap();
    }
    let segments = moments.list("segments").unwrap();
    assert!(segments.len() <= 3, "{segments:?}");
}

#[test]
fn a_search_ends_on_the_version_it_began_with_whatever_is_committed_meanwhile() {
    for call in ["read segments/", "read vectors/"] {
        let moments = Moments::new();
        let index = reopened(&moments, 200);
        let writer = index.clone();
        let done = Arc::new(OnceLock::new());
        let (told, seen) = (done.clone(), done);
        moments.before(call, move || {
            // All rows die, and no checkpoint needs the files of before.
            add(&writer, 0..3_000);
            writer.remove(&(0..200).collect::<Vec<_>>()).unwrap();
            for more in 0..3 {
                add(&writer, 3_000..3_001 + more);
                writer.balance(&Task::new()).unwrap();
                writer.commit(&Task::new()).unwrap();
            }
            told.set(()).unwrap();
        });
        assert_eq!(found(&index, 200), (0..200).collect::<Vec<_>>(), "{call}");
        assert!(seen.get().is_some(), "{call}");
        assert_holds(&index, 200..3_003);
        drop(index);
        assert_holds(&bind(&moments), 200..3_003);
    }
}
