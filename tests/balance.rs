//! Balancing in the odd cases: rows that are alike, one giant leaf, nothing left, deep trees.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sapwood::cancel::Task;
use sapwood::dataset::Rows;
use sapwood::index::{Index, Stats};
use sapwood::metric::Metric;
use sapwood::params::{Params, SearchOptions};

const DIM: usize = 12;

fn index(metric: Metric, params: Params) -> Index {
    Index::new(DIM, metric, Params { threads: Some(2), ..params }).unwrap()
}

fn small() -> Params {
    Params { split_threshold: 32, merge_threshold: 6, branching: 8, ..Params::default() }
}

fn random_rows(count: usize, seed: u64) -> Vec<f32> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    (0..count * DIM).map(|_| random.random::<f32>() - 0.5).collect()
}

fn add(index: &Index, values: &[f32]) {
    index.add(Rows::new("vectors", values, DIM).unwrap(), None, &Task::new()).unwrap();
}

/// Waits until nothing is left to do, but not for ever: a balance that never ends is a defect that must fail.
fn balanced(index: &Index) -> Stats {
    index.balance(&Task::with_timeout(Some(60.0)).unwrap()).unwrap();
    index.validate(&Task::new()).unwrap();
    index.stats().unwrap()
}

fn found(index: &Index, query: &[f32], k: usize) -> Vec<i64> {
    let options = SearchOptions { beam: Some((1 << 20, 1 << 20)), ..SearchOptions::default() };
    index.search(Rows::new("queries", query, DIM).unwrap(), k, &options, &Task::new()).unwrap().ids
}

#[test]
fn rows_that_are_all_alike_stay_in_one_marked_leaf() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Ip] {
        let index = index(metric, Params { spill: 0, ..small() });
        add(&index, &[0.25; DIM].repeat(1_000));
        let stats = balanced(&index);
        assert_eq!((stats.largest_leaf, stats.unsplittable, stats.given_up), (1_000, 1, 0), "{metric:?}");
        let mut ids = found(&index, &[0.25; DIM], 1_000);
        ids.sort_unstable();
        assert_eq!(ids, (0..1_000).collect::<Vec<_>>());
    }
}

#[test]
fn copies_among_other_rows_are_found_and_leave_the_others_balanced() {
    let index = index(Metric::L2, small());
    let mut values = random_rows(3_000, 1);
    values.extend([0.1; DIM].repeat(500));
    // Near copies: 20 groups of 40.
    let mut random = Pcg64Mcg::seed_from_u64(2);
    for group in random_rows(20, 3).chunks(DIM) {
        for _ in 0..40 {
            values.extend(group.iter().map(|x| x + 1e-6 * (random.random::<f32>() - 0.5)));
        }
    }
    add(&index, &values);
    let stats = balanced(&index);
    assert_eq!(stats.given_up, 0, "{stats:?}");
    assert!(stats.largest_leaf <= 32 || stats.unsplittable > 0, "{stats:?}");
    let mut copies = found(&index, &[0.1; DIM], 500);
    copies.sort_unstable();
    assert_eq!(copies, (3_000..3_500).collect::<Vec<_>>());
}

#[test]
fn a_few_rows_beside_many_copies_end_balanced() {
    // Splits that leave a handful of rows, merges that take them back: neither may go on for ever.
    for metric in [Metric::L2, Metric::Cosine, Metric::Ip] {
        for others in [1, 3, 7, 20] {
            for spill in [0, 1] {
                let index = index(metric, Params { split_threshold: 40, merge_threshold: 10, branching: 4, spill, ..Params::default() });
                for round in 0..6 {
                    add(&index, &[0.5; DIM].repeat(9));
                    add(&index, &random_rows(others, round));
                    balanced(&index);
                }
                assert_eq!(index.len(), 6 * (9 + others));
            }
        }
    }
}

#[test]
fn an_index_that_was_emptied_works_again() {
    let index = index(Metric::Cosine, small());
    for round in 0..3 {
        add(&index, &random_rows(800, round));
        balanced(&index);
        let ids = index.ids().unwrap();
        assert_eq!(index.remove(&ids).unwrap(), 800);
        assert_eq!(found(&index, &[1.0; DIM], 5), [-1; 5]);
        let stats = balanced(&index);
        assert_eq!((stats.rows, stats.leaves, stats.postings), (0, 1, 0), "{stats:?}");
    }
    add(&index, &random_rows(1, 9));
    assert_eq!(found(&index, &[1.0; DIM], 2), [2_400, -1]);
}

#[test]
fn one_row_is_an_index() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Ip] {
        let index = index(metric, Params::default());
        add(&index, &random_rows(1, 1));
        balanced(&index);
        assert_eq!(found(&index, &[0.0; DIM], 3), [0, -1, -1]);
    }
}

#[test]
fn rows_whose_distances_overflow_are_still_returned() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Ip] {
        let index = index(metric, small());
        let mut values = [3e38; DIM].to_vec();
        values.extend([-3e38; DIM]);
        values.extend([1e-38; DIM]);
        values.extend(random_rows(1, 1));
        add(&index, &values);
        balanced(&index);
        for query in [[3e38; DIM], [1e-38; DIM], [0.5; DIM]] {
            let mut ids = found(&index, &query, 5);
            ids.sort_unstable();
            assert_eq!(ids, [-1, 0, 1, 2, 3], "{metric:?}");
        }
    }
}

#[test]
fn narrow_nodes_make_deep_trees_that_shrink_again() {
    let params = Params { branching: 4, split_threshold: 8, merge_threshold: 2, ..Params::default() };
    let index = index(Metric::L2, params);
    for round in 0..10 {
        add(&index, &random_rows(150, round));
        balanced(&index);
    }
    let deep = balanced(&index);
    assert!(deep.levels >= 3, "{deep:?}");
    let query = random_rows(1, 77);
    let before = found(&index, &query, 10);
    assert!(before.iter().all(|&id| id >= 0));
    index.remove(&(10..1_500).collect::<Vec<_>>()).unwrap();
    let flat = balanced(&index);
    assert!(flat.levels < deep.levels && flat.leaves <= 12, "{flat:?}");
    let mut left = found(&index, &query, 10);
    left.sort_unstable();
    assert_eq!(left, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_wide_search_misses_nothing_that_a_filter_allows() {
    use sapwood::filter::Filter;
    use std::sync::Arc;
    let index = index(Metric::L2, small());
    add(&index, &random_rows(12_000, 4));
    balanced(&index);
    let query = random_rows(1, 5);
    // From none to all; more than 8,192 ids are searched through the tree, fewer one by one.
    for step in [1, 2, 100, 11_999, 12_000] {
        let allowed: Vec<i64> = (1..12_000).step_by(step).collect();
        let denied: Vec<i64> = (0..12_000).filter(|id| allowed.binary_search(id).is_err()).collect();
        let search = |filter: Filter| {
            let options = SearchOptions { filter: Some(Arc::new(filter)), ..SearchOptions::default() };
            index.search(Rows::new("queries", &query, DIM).unwrap(), 20, &options, &Task::new()).unwrap().ids
        };
        for ids in [search(Filter::allow(allowed.clone())), search(Filter::deny(denied.clone()))] {
            let hits: Vec<i64> = ids.into_iter().filter(|&id| id >= 0).collect();
            assert_eq!(hits.len(), allowed.len().min(20), "step {step}");
            assert!(hits.iter().all(|id| allowed.binary_search(id).is_ok()), "step {step}");
        }
    }
    let options = SearchOptions { filter: Some(Arc::new(Filter::allow(vec![]))), ..SearchOptions::default() };
    let none = index.search(Rows::new("queries", &query, DIM).unwrap(), 3, &options, &Task::new()).unwrap();
    assert_eq!(none.ids, [-1; 3]);
}
