//! Checkpoints that released formats left behind are read as they were written. `tests/golden/N` is of format N; none is ever changed.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::path::Path;
use std::sync::Arc;

use sapwood::cancel::Task;
use sapwood::dataset::Rows;
use sapwood::index::{Index, Wanted};
use sapwood::metric::Metric;
use sapwood::params::{Params, SearchOptions};
use sapwood::storage::{Cache, Disk, Storage};

const DIM: usize = 6;

/// Row `id` of every golden index: whole numbers, so that f16 and bf16 hold them too.
fn row(id: i64) -> Vec<f32> {
    (0..DIM as i64).map(|i| ((id * 7 + i * i * 3) % 23 - 11) as f32).collect()
}

/// Ids of every golden index: 0 to 89, without multiples of 7.
fn ids() -> Vec<i64> {
    (0..90).filter(|id| id % 7 != 0).collect()
}

fn params() -> Params {
    Params { background: false, split_threshold: 16, merge_threshold: 3, branching: 4, ..Params::default() }
}

fn root() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden")
}

/// Writes the golden directory of the present format, in two commits; run by hand when a format is released.
#[test]
#[ignore = "writes tests/golden"]
fn write() {
    let storage: Arc<dyn Storage> = Arc::new(Disk::create(&root().join(sapwood::checkpoint::FORMAT.to_string())).unwrap());
    let wanted = Wanted { dim: Some(DIM), metric: Some(Metric::L2), params: params(), keep: 1, ..Wanted::default() };
    let index = Index::bind(&storage, &wanted, &Task::new()).unwrap();
    let add = |ids: Vec<i64>| {
        let values: Vec<f32> = ids.iter().flat_map(|&id| row(id)).collect();
        index.add(Rows::new("vectors", &values, DIM).unwrap(), Some(&ids), &Task::new()).unwrap();
    };
    add((0..80).collect());
    index.balance(&Task::new()).unwrap();
    index.commit(&Task::new()).unwrap();
    add((80..90).collect());
    index.remove(&(0..90).filter(|id| id % 7 == 0).collect::<Vec<_>>()).unwrap();
    index.commit(&Task::new()).unwrap();
}

#[test]
fn old_checkpoints_are_read() {
    let mut seen = 0;
    for entry in std::fs::read_dir(root()).unwrap() {
        let storage: Arc<dyn Storage> = Arc::new(Disk::open(&entry.unwrap().path()).unwrap());
        let loaded = Index::load(&storage, None, &Params::default(), &Task::new()).unwrap();
        let reader = Index::read(&storage, None, &Arc::new(Cache::new(1 << 20)), &Params::default()).unwrap();
        for index in [&loaded, &reader] {
            assert_eq!((index.dim(), index.metric(), index.params().split_threshold), (DIM, Metric::L2, 16));
            assert_eq!(index.ids().unwrap(), ids());
            assert_eq!(index.get(&ids(), &Task::new()).unwrap(), ids().into_iter().flat_map(row).collect::<Vec<_>>());
            index.validate(&Task::new()).unwrap();
            let options = SearchOptions { beam: Some((100, 100)), threads: Some(1), ..SearchOptions::default() };
            for id in ids() {
                let found = index.search(Rows::new("queries", &row(id), DIM).unwrap(), 1, &options, &Task::new()).unwrap();
                assert_eq!(found.distances, [0.0]);
            }
        }
        seen += 1;
    }
    assert!(seen > 0);
}
