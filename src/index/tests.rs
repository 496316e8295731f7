//! What can only be staged from inside.

use rand::{RngExt, SeedableRng};

use super::*;
use crate::filter::Filter;
use crate::params::{Rerank, SearchOptions};
use crate::value::ValueType;

fn rows(count: usize, seed: u32) -> Vec<f32> {
    (0..count * 8).map(|i| ((i as u32).wrapping_mul(2_654_435_761) ^ seed.wrapping_mul(40_503)) as f32 / 4e9).collect()
}

/// A long search, or a clustering, holds one old version while rows are replaced over and over.
#[test]
fn a_held_version_keeps_its_own_rows_and_no_later_ones() {
    let index = Index::new(8, Metric::L2, Params { background: false, ..Params::default() }).unwrap();
    let ids: Vec<i64> = (0..100).collect();
    let add = |seed| {
        let values = rows(100, seed);
        index.add(Rows::new("vectors", &values, 8).unwrap(), Some(&ids), &Task::new()).unwrap();
    };
    add(0);
    let core = index.core().unwrap();
    let held = core.store.snapshot();
    let listed: Vec<(Row, Vec<f32>)> = held
        .leaves
        .iter()
        .flat_map(|(_, leaf)| leaf.rows().collect::<Vec<_>>())
        .map(|row| (row, core.store.vectors.get(row, &mut Vec::new()).unwrap().to_vec()))
        .collect();
    assert_eq!(listed.len(), 100);
    (1..200).for_each(add);
    assert!(core.store.vectors.bytes() <= 500 * 8 * 4, "{} bytes for 100 live rows", core.store.vectors.bytes());
    for (row, vector) in listed {
        assert_eq!(core.store.vectors.get(row, &mut Vec::new()).unwrap(), vector, "row {row} was used again while a version lists it");
    }
    drop(held);
    let before = core.store.vectors.bytes();
    (200..220).for_each(add);
    assert_eq!(core.store.vectors.bytes(), before);
}

/// A clustering that works on an old version takes in what was added, replaced and removed meanwhile.
#[test]
fn a_tree_is_replaced_with_what_changed_meanwhile() {
    let params = Params { background: false, split_threshold: 16, merge_threshold: 3, ..Params::default() };
    let index = Index::new(8, Metric::L2, params).unwrap();
    let values = rows(400, 1);
    index.add(Rows::new("vectors", &values, 8).unwrap(), None, &Task::new()).unwrap();
    let core = index.core().unwrap();
    crate::balance::cluster::staged(&core.store, || {
        let values = rows(50, 2);
        let ids: Vec<i64> = (380..430).collect();
        index.add(Rows::new("vectors", &values, 8).unwrap(), Some(&ids), &Task::new()).unwrap();
        index.remove(&(0..100).collect::<Vec<_>>()).unwrap();
    });
    index.validate(&Task::new()).unwrap();
    assert_eq!(index.ids().unwrap(), (100..430).collect::<Vec<_>>());
    index.balance(&Task::new()).unwrap();
    index.validate(&Task::new()).unwrap();
    assert_eq!(index.ids().unwrap(), (100..430).collect::<Vec<_>>());
}

/// A split that works on an old version of its leaf takes in what changed meanwhile.
#[test]
fn a_leaf_is_split_with_what_changed_meanwhile() {
    let params = Params { background: false, split_threshold: 64, merge_threshold: 8, spill: 0, ..Params::default() };
    let index = Index::new(8, Metric::L2, params).unwrap();
    let values = rows(60, 1);
    index.add(Rows::new("vectors", &values, 8).unwrap(), None, &Task::new()).unwrap();
    let core = index.core().unwrap();
    let leaf = core.store.snapshot().leaves.iter().map(|(id, _)| id).next().unwrap();
    let split = crate::balance::split::staged(&core.store, leaf, || {
        let values = rows(10, 2);
        let ids: Vec<i64> = (55..65).collect();
        index.add(Rows::new("vectors", &values, 8).unwrap(), Some(&ids), &Task::new()).unwrap();
        index.remove(&(0..20).collect::<Vec<_>>()).unwrap();
    });
    assert!(split.leaves.len() >= 2);
    index.validate(&Task::new()).unwrap();
    assert_eq!(index.ids().unwrap(), (20..65).collect::<Vec<_>>());
}

/// A row that is noted twice, since it moved while leaves were looked at, is moved once.
#[test]
fn a_row_that_is_to_be_moved_twice_is_moved_once() {
    let params = Params { background: false, split_threshold: 16, merge_threshold: 3, ..Params::default() };
    let index = Index::new(8, Metric::L2, params).unwrap();
    let values = rows(300, 1);
    index.add(Rows::new("vectors", &values, 8).unwrap(), None, &Task::new()).unwrap();
    index.balance(&Task::new()).unwrap();
    let core = index.core().unwrap();
    let snapshot = core.store.snapshot();
    let (id, leaf) = snapshot.leaves.iter().next().unwrap();
    let twice: Vec<Row> = leaf.rows().chain(leaf.rows()).collect();
    let moved = crate::balance::moves::move_rows(&core.store, twice, id, &Task::new()).unwrap();
    assert_eq!(moved.rows, leaf.len());
    index.validate(&Task::new()).unwrap();
    assert!(core.store.snapshot().leaf(id).is_none_or(|now| now.reference != leaf.reference), "the leaf was merged");
}

/// Right after a whole region was removed its leaves are still there, nearest to queries in it, and nearly empty.
#[test]
fn leaves_that_lost_their_rows_take_no_place_in_the_beam() {
    let params = Params { background: false, split_threshold: 64, merge_threshold: 12, ..Params::default() };
    let index = Index::new(8, Metric::L2, params).unwrap();
    let values = rows(6000, 1);
    let all = Rows::new("vectors", &values, 8).unwrap();
    index.add(all, None, &Task::new()).unwrap();
    index.balance(&Task::new()).unwrap();
    let middle = all.row(0);
    let distance = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(x, y)| (x - y) * (x - y)).sum::<f32>();
    let mut order: Vec<i64> = (0..6000).collect();
    order.sort_by(|&a, &b| distance(middle, all.row(a as usize)).total_cmp(&distance(middle, all.row(b as usize))));
    let (gone, left) = order.split_at(2000);
    index.remove(gone).unwrap();
    assert!(index.stats().unwrap().queue > 0, "nothing was merged yet");
    // The queries are nearly alike, so a neighbour that falls to the error bound would be missing from all results.
    let options = SearchOptions { threads: Some(1), epsilon: Some(8.0), ..SearchOptions::default() };
    let mut found = 0;
    for &query in &gone[..50] {
        let query = all.row(query as usize);
        let mut truth = left.to_vec();
        truth.sort_by(|&a, &b| distance(query, all.row(a as usize)).total_cmp(&distance(query, all.row(b as usize))));
        let result = index.search(Rows::new("queries", query, 8).unwrap(), 10, &options, &Task::new()).unwrap();
        found += result.ids.iter().filter(|id| truth[..10].contains(id)).count();
    }
    assert!(found >= 475, "{found} of 500");
}

/// A query that several threads share is answered as if one had worked on it, where bounds hold: by beams and by recall targets, with and without
/// filters, whichever way it is reranked.
#[test]
fn threads_that_share_a_query_change_nothing() {
    let mut wasted = 0;
    for (metric, storage) in [(Metric::L2, ValueType::F32), (Metric::Ip, ValueType::Rabitq6)] {
        let params = Params { background: false, split_threshold: 32, merge_threshold: 4, threads: Some(4), storage, ..Params::default() };
        let index = Index::new(16, metric, params).unwrap();
        let mut random = rand_pcg::Pcg64Mcg::seed_from_u64(1);
        let values: Vec<f32> = (0..6000 * 16).map(|_| random.random::<f32>()).collect();
        let all = Rows::new("vectors", &values, 16).unwrap();
        index.add(all, None, &Task::new()).unwrap();
        index.balance(&Task::new()).unwrap();
        let filters = [
            None,
            Some(Arc::new(Filter::deny((0..6000).filter(|id| id % 3 == 0).collect()))),
            Some(Arc::new(Filter::deny((0..5500).collect()))),
            Some(Arc::new(Filter::allow((0..6000).filter(|id| id % 3 == 0).collect()))),
        ];
        let beams = [300, 40].map(|beam| SearchOptions { beam: Some((beam, beam)), ..SearchOptions::default() });
        let targets = [0.9, 0.99, 1.0].map(|recall| SearchOptions { recall: Some(recall), ..SearchOptions::default() });
        for options in beams.iter().chain(&targets).flat_map(|options| filters.iter().map(move |filter| with(options, filter))) {
            wasted += compare(&index, &values, &options);
        }
    }
    assert!(wasted > 0, "nothing was scanned beyond where a recall target ends, so nothing was shared");
}

fn with(options: &SearchOptions, filter: &Option<Arc<Filter>>) -> SearchOptions {
    SearchOptions { filter: filter.clone(), ..options.clone() }
}

/// Searches with one thread and with four, one query and two at a time; the codes that were scanned in vain.
fn compare(index: &Index, values: &[f32], options: &SearchOptions) -> u64 {
    let mut wasted = 0;
    for (rerank, k) in [(Rerank::Bound, 10), (Rerank::Bound, 300), (Rerank::Factor(3), 20)] {
        let epsilon = Some(8.0).filter(|_| rerank == Rerank::Bound);
        for query in (0..6000).step_by(1500) {
            for count in [1, 2] {
                let answer = |threads| {
                    let options = SearchOptions { rerank, epsilon, threads: Some(threads), ..options.clone() };
                    let queries = Rows::new("queries", &values[query * 16..(query + count) * 16], 16).unwrap();
                    index.search(queries, k, &options, &Task::new()).unwrap()
                };
                let (alone, shared) = (answer(1), answer(4));
                if options.recall.is_none() || options.filter.is_none() {
                    assert_eq!((&alone.ids, &alone.distances), (&shared.ids, &shared.distances), "{options:?} {rerank:?} {k}");
                    assert_eq!(alone.leaves, shared.leaves, "{options:?} {rerank:?} {k}");
                } else {
                    // Rows that a filter turns away count by the bounds of each thread, so the search may end a little earlier or later.
                    let about = alone.leaves * 2 / 3..=alone.leaves * 3 / 2;
                    assert!(about.contains(&shared.leaves), "{} of {}", shared.leaves, alone.leaves);
                }
                assert!(alone.ids.iter().any(|&id| id >= 0));
                wasted += shared.scanned - alone.scanned;
            }
        }
    }
    wasted
}
