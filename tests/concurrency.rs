//! Adds, removals, replacements, balancing and searches at once, then the exact set.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use sapwood::cancel::Task;
use sapwood::dataset::Rows;
use sapwood::error::Error;
use sapwood::index::Index;
use sapwood::metric::Metric;
use sapwood::params::{Params, SearchOptions};

const DIM: usize = 16;

fn params() -> Params {
    Params { split_threshold: 48, merge_threshold: 8, branching: 24, threads: Some(2), ..Params::default() }
}

/// The vector of an id: searching it finds the id at distance 0.
fn vector(id: i64, version: u32) -> Vec<f32> {
    let mut state = (id as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ u64::from(version);
    (0..DIM)
        .map(|_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 24) as f32 - 0.5
        })
        .collect()
}

fn add(index: &Index, ids: &[i64], version: u32) {
    let values: Vec<f32> = ids.iter().flat_map(|&id| vector(id, version)).collect();
    index.add(Rows::new("vectors", &values, DIM).unwrap(), Some(ids), &Task::new()).unwrap();
}

fn search(index: &Index, query: &[f32], k: usize, most: usize) -> (Vec<i64>, Vec<f32>) {
    let options = SearchOptions { beam: Some((most, most)), threads: Some(1), ..SearchOptions::default() };
    let found = index.search(Rows::new("queries", query, DIM).unwrap(), k, &options, &Task::new()).unwrap();
    (found.ids, found.distances)
}

/// Adds more rows around one place than a leaf may hold, and removes them, until the storm is over and leaves were split. All other rows of
/// the storm are spread evenly, so that clustering the whole tree anew may come before any leaf is full.
fn crowd(index: &Index, stop: &AtomicBool) {
    for place in 0..10_000 {
        let center = vector(place, 7);
        let values: Vec<f32> =
            (0..120).flat_map(|id| std::iter::zip(&center, vector(id, 8)).map(|(c, v)| c + 0.01 * v).collect::<Vec<_>>()).collect();
        let ids: Vec<i64> = (CROWD..CROWD + 120).collect();
        index.add(Rows::new("vectors", &values, DIM).unwrap(), Some(&ids), &Task::new()).unwrap();
        if stop.load(Ordering::Relaxed) {
            index.balance(&Task::new()).unwrap();
        }
        assert_eq!(index.remove(&ids).unwrap(), 120);
        if stop.load(Ordering::Relaxed) && index.stats().unwrap().splits > 0 {
            return;
        }
    }
}

/// The first id of [`crowd`], above all others.
const CROWD: i64 = 1 << 40;

/// Batches after which an adder begins again.
const ROUNDS: i64 = 200;

fn seconds() -> Duration {
    let stress = std::env::var("SAPWOOD_STRESS").is_ok_and(|stress| stress == "1");
    Duration::from_secs(if stress { 60 } else { 4 })
}

#[test]
fn what_is_left_after_a_storm_is_exactly_what_should_be() {
    let index = Index::new(DIM, Metric::L2, params()).unwrap();
    let stop = AtomicBool::new(false);
    // Each adder owns the ids that are its number modulo 4; ids below 1,000 stay for good once added.
    let written: Vec<AtomicU64> = (0..4).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for adder in 0..4i64 {
            let (index, stop, written) = (&index, &stop, &written[adder as usize]);
            scope.spawn(move || {
                for round in 0.. {
                    // What nobody removes is replaced by itself after a while, so that the index stays small.
                    let place = if adder < 2 { round % ROUNDS } else { round };
                    if stop.load(Ordering::Relaxed) || place >= 10 * ROUNDS {
                        break;
                    }
                    let ids: Vec<i64> = (0..40).map(|i| (place * 40 + i) * 4 + adder).collect();
                    add(index, &ids, 0);
                    written.fetch_max((place as u64 + 1) * 40, Ordering::Release);
                }
            });
        }
        for remover in 0..2usize {
            let (index, stop, written) = (&index, &stop, &written);
            scope.spawn(move || {
                // Removes ids of the adders 2 and 3 that are long written, each once.
                let (adder, mut next) = (2 + remover, 250u64);
                while !stop.load(Ordering::Relaxed) {
                    if next + 40 < written[adder].load(Ordering::Acquire) {
                        let ids: Vec<i64> = (next..next + 20).map(|i| (i * 4) as i64 + adder as i64).collect();
                        assert_eq!(index.remove(&ids).unwrap(), 20);
                        for &id in &ids[..2] {
                            let (found, _) = search(index, &vector(id, 0), 3, 8);
                            assert!(!found.contains(&id), "removed id {id} came back");
                        }
                        next += 40;
                    } else {
                        thread::yield_now();
                    }
                }
            });
        }
        for searcher in 0..4u64 {
            let (index, stop, written) = (&index, &stop, &written);
            scope.spawn(move || {
                let mut turn = searcher;
                while !stop.load(Ordering::Relaxed) {
                    let adder = turn % 2;
                    let there = written[adder as usize].load(Ordering::Acquire);
                    turn += 1;
                    if there > 0 {
                        let id = ((turn * 7919 % there) * 4 + adder) as i64;
                        // Whatever is moved meanwhile: a row that was there before the search began is found when all leaves are visited.
                        let (found, distances) = search(index, &vector(id, 0), 5, 1 << 20);
                        assert_eq!((found[0], distances[0]), (id, 0.0), "id {id} of {there} was missed");
                    }
                }
            });
        }
        let (index, stop) = (&index, &stop);
        scope.spawn(move || crowd(index, stop));
        thread::sleep(seconds());
        stop.store(true, Ordering::Relaxed);
    });
    index.balance(&Task::new()).unwrap();
    index.validate(&Task::new()).unwrap();
    let ids = index.ids().unwrap();
    for adder in 0..2 {
        let mine = ids.iter().filter(|id| **id % 4 == adder).count() as u64;
        assert_eq!(mine, written[adder as usize].load(Ordering::Relaxed));
    }
    let stats = index.stats().unwrap();
    assert!(stats.splits > 0 && stats.clusterings > 0, "{stats:?}");
    assert!(stats.largest_leaf <= 48 && stats.queue == 0 && stats.given_up == 0, "{stats:?}");
}

#[test]
fn an_id_that_is_being_replaced_is_never_missing() {
    let index = Index::new(DIM, Metric::L2, params()).unwrap();
    let ids: Vec<i64> = (0..2_000).collect();
    add(&index, &ids, 0);
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut version = 1;
            while !stop.load(Ordering::Relaxed) {
                for part in ids.chunks(50) {
                    add(&index, part, version % 2);
                }
                version += 1;
            }
        });
        scope.spawn(|| {
            let end = Instant::now() + seconds();
            let mut turn = 0;
            while Instant::now() < end {
                turn = (turn + 7919) % 2_000;
                let (old, _) = search(&index, &vector(turn, 0), 2_000, 1 << 20);
                let mut found = old.clone();
                found.sort_unstable();
                assert_eq!(found, ids, "a search over all leaves sees each id once");
            }
            stop.store(true, Ordering::Relaxed);
        });
    });
    index.balance(&Task::new()).unwrap();
    index.validate(&Task::new()).unwrap();
    assert_eq!(index.len(), 2_000);
}

#[test]
fn threads_that_write_the_same_ids_leave_one_of_each() {
    let index = Index::new(DIM, Metric::Cosine, params()).unwrap();
    let ids: Vec<i64> = (0..50).collect();
    thread::scope(|scope| {
        for version in 0..8 {
            let (index, ids) = (&index, &ids);
            scope.spawn(move || (0..40).for_each(|_| add(index, ids, version)));
        }
    });
    index.balance(&Task::new()).unwrap();
    index.validate(&Task::new()).unwrap();
    assert_eq!(index.ids().unwrap(), ids);
}

#[test]
fn many_threads_fill_an_empty_index_and_every_row_finds_itself() {
    let index = Index::new(DIM, Metric::L2, params()).unwrap();
    thread::scope(|scope| {
        for thread in 0..8i64 {
            let index = &index;
            scope.spawn(move || {
                for round in 0..20 {
                    let ids: Vec<i64> = (0..25).map(|i| thread * 500 + round * 25 + i).collect();
                    add(index, &ids, 0);
                }
            });
        }
    });
    index.balance(&Task::new()).unwrap();
    index.validate(&Task::new()).unwrap();
    assert_eq!(index.len(), 4_000);
    for id in 0..4_000 {
        let query = vector(id, 0);
        let queries = Rows::new("queries", &query, DIM).unwrap();
        let found = index.search(queries, 10, &SearchOptions::default(), &Task::new()).unwrap();
        assert_eq!((found.ids[0], found.distances[0]), (id, 0.0), "id {id} doesn't find itself");
    }
}

#[test]
fn memory_stays_flat_when_rows_come_and_go() {
    let index = Index::new(DIM, Metric::L2, params()).unwrap();
    let window = 2_000;
    add(&index, &(0..window).collect::<Vec<_>>(), 0);
    let mut bytes = Vec::new();
    for round in 0..60 {
        let (from, to) = (round * 200, window + round * 200);
        assert_eq!(index.remove(&(from..from + 200).collect::<Vec<_>>()).unwrap(), 200);
        add(&index, &(to..to + 200).collect::<Vec<_>>(), 0);
        index.balance(&Task::new()).unwrap();
        let stats = index.stats().unwrap();
        bytes.push(stats.bytes_vectors + stats.bytes_postings + stats.bytes_tree);
    }
    index.validate(&Task::new()).unwrap();
    let early = bytes[5..15].iter().max().unwrap();
    let late = bytes[50..].iter().max().unwrap();
    assert!(*late as f64 <= *early as f64 * 1.05, "{early} bytes, then {late}");
}

#[test]
fn a_closed_index_says_so_and_a_cancelled_call_changes_nothing() {
    let index = Index::new(DIM, Metric::L2, params()).unwrap();
    let task = Task::new();
    task.cancel();
    let values = vector(1, 0);
    let rows = Rows::new("vectors", &values, DIM).unwrap();
    assert_eq!(index.add(rows, None, &task), Err(Error::Cancelled));
    assert_eq!(index.len(), 0);
    index.add(rows, None, &Task::new()).unwrap();
    assert_eq!(index.ids().unwrap(), [0]);
    index.close();
    index.close();
    assert_eq!(index.add(rows, None, &Task::new()), Err(Error::Closed));
    assert_eq!(index.search(rows, 1, &SearchOptions::default(), &Task::new()), Err(Error::Closed));
    assert_eq!(index.remove(&[0]), Err(Error::Closed));
}
