use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;

use super::*;

const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Ip];

fn random(seed: u64, count: usize) -> Vec<f32> {
    let mut rng = Pcg64::seed_from_u64(seed);
    (0..count).map(|_| rng.random_range(-1.0f32..1.0)).collect()
}

fn search(vectors: &[f32], queries: &[f32], dim: usize, k: usize, metric: Metric, threads: usize) -> Result<(Vec<i64>, Vec<f32>)> {
    exact_search(Rows::new("vectors", vectors, dim)?, Rows::new("queries", queries, dim)?, k, metric, threads, &Task::new())
}

/// The specification: every distance, sorted.
fn naive(vectors: &[f32], queries: &[f32], dim: usize, k: usize, metric: Metric) -> (Vec<i64>, Vec<f32>) {
    let kernels = Kernels::get().unwrap();
    let prepared = |values: &[f32]| {
        let mut values = values.to_vec();
        values.chunks_exact_mut(dim).for_each(|row| metric.prepare(row));
        values
    };
    let (vectors, queries) = (prepared(vectors), prepared(queries));
    let (mut ids, mut distances) = (Vec::new(), Vec::new());
    for query in queries.chunks_exact(dim) {
        let mut all: Vec<(f32, i64)> = vectors.chunks_exact(dim).map(|row| metric.distance(kernels, query, row)).zip(0..).collect();
        all.iter_mut().filter(|x| x.0.is_nan()).for_each(|x| x.0 = f32::INFINITY);
        all.sort_by(|a, b| a.partial_cmp(b).unwrap());
        all.resize(all.len().max(k), (f32::INFINITY, NO_ID));
        ids.extend(all[..k].iter().map(|x| x.1));
        distances.extend(all[..k].iter().map(|x| x.0));
    }
    (ids, distances)
}

/// The distance in f64, from the rows as given.
fn distance_f64(metric: Metric, query: &[f32], row: &[f32]) -> f64 {
    let sum = |term: &dyn Fn(f64, f64) -> f64| query.iter().zip(row).map(|(&q, &x)| term(f64::from(q), f64::from(x))).sum::<f64>();
    match metric {
        Metric::L2 => sum(&|q, x| (q - x) * (q - x)),
        Metric::Ip => -sum(&|q, x| q * x),
        Metric::Cosine => {
            let lengths = (sum(&|q, _| q * q) * sum(&|_, x| x * x)).sqrt();
            if lengths == 0.0 { 1.0 } else { 1.0 - sum(&|q, x| q * x) / lengths }
        }
    }
}

fn assert_equals_naive(vectors: &[f32], queries: &[f32], dim: usize, k: usize) {
    for metric in METRICS {
        let expected = naive(vectors, queries, dim, k, metric);
        for threads in [1, 2, 5] {
            let found = search(vectors, queries, dim, k, metric, threads).unwrap();
            assert_eq!(found, expected, "{metric:?}, {threads} threads");
        }
    }
}

#[test]
fn all_sizes_equal_the_double_loop() {
    for dim in [1, 3, 50, 385] {
        for rows in [0, 1, 2, 15, 16, 17, 300, 1031] {
            for queries in [0, 1, 31, 33, 70] {
                let vectors = random(dim as u64, rows * dim);
                assert_equals_naive(&vectors, &random(7, queries * dim), dim, [1, 10, 40][rows % 3]);
            }
        }
    }
}

#[test]
fn enough_work_for_several_threads_gives_the_same() {
    // Many rows and few queries; few rows and many queries.
    assert_equals_naive(&random(1, 20_000 * 50), &random(2, 11 * 50), 50, 20);
    assert_equals_naive(&random(3, 100 * 50), &random(4, 3_000 * 50), 50, 7);
}

#[test]
fn groups_of_queries_follow_each_other() {
    // 65,000 values a query: a group is 32 queries.
    let dim = 65_000;
    assert!(group_size(Rows::new("vectors", &[], dim).unwrap(), 1) < 40);
    assert_equals_naive(&random(5, 5 * dim), &random(6, 40 * dim), dim, 3);
}

#[test]
fn ties_go_to_the_smaller_row() {
    let distinct = random(8, 4 * 3);
    let vectors: Vec<f32> = (0..3_000).flat_map(|i| distinct[i % 4 * 3..i % 4 * 3 + 3].to_vec()).collect();
    let (ids, _) = search(&vectors, &distinct[..3], 3, 6, Metric::L2, 2).unwrap();
    assert_eq!(ids, [0, 4, 8, 12, 16, 20]);
    assert_equals_naive(&vectors, &random(9, 5 * 3), 3, 1_000);
}

#[test]
fn results_agree_with_f64() {
    let (dim, rows) = (385, 700);
    let (vectors, queries) = (random(10, rows * dim), random(11, 9 * dim));
    for metric in METRICS {
        let (ids, distances) = search(&vectors, &queries, dim, 10, metric, 2).unwrap();
        for (q, query) in queries.chunks_exact(dim).enumerate() {
            let mut all: Vec<f64> = vectors.chunks_exact(dim).map(|row| distance_f64(metric, query, row)).collect();
            for place in 0..10 {
                let (id, distance) = (ids[q * 10 + place] as usize, f64::from(distances[q * 10 + place]));
                assert!((distance - all[id]).abs() < 1e-4 * (1.0 + distance.abs()), "{metric:?}");
            }
            all.sort_by(f64::total_cmp);
            assert!((f64::from(distances[q * 10 + 9]) - all[9]).abs() < 1e-4 * (1.0 + all[9].abs()), "{metric:?}");
        }
    }
}

#[test]
fn near_copies_far_from_the_origin_are_found() {
    // Norms of 1e4. Copies that differ by 1e-6 of a value leave no correct digit of |q|^2 + |x|^2 - 2 <q, x>; at 1e-4 to 1e-3 its error
    // is about the difference between two neighbours, so that sorting by it would mix them up.
    let dim = 96;
    let base: Vec<f32> = random(12, 100 * dim).iter().map(|x| x * 1_700.0).collect();
    let noise = random(13, 4_000 * dim);
    for level in [1e-6, 1e-4, 1e-3] {
        let vectors: Vec<f32> = (0..4_000 * dim).map(|i| base[i / dim % 100 * dim + i % dim] * (1.0 + level * noise[i])).collect();
        let queries = &base[..40 * dim];
        assert_equals_naive(&vectors, queries, dim, 10);
        for metric in [Metric::L2, Metric::Cosine] {
            let (ids, _) = search(&vectors, queries, dim, 40, metric, 2).unwrap();
            for (q, ids) in ids.chunks_exact(40).enumerate() {
                assert!(ids.iter().all(|id| *id as usize % 100 == q), "{metric:?}: the forty copies of a row are its neighbours");
            }
        }
        let (ids, _) = search(&vectors, queries, dim, 10, Metric::L2, 2).unwrap();
        for (query, ids) in queries.chunks_exact(dim).zip(ids.chunks_exact(10)) {
            let row = |id: i64| &vectors[id as usize * dim..(id as usize + 1) * dim];
            let exact: Vec<f64> = ids.iter().map(|&id| distance_f64(Metric::L2, query, row(id))).collect();
            assert!(exact.windows(2).all(|pair| pair[0] <= pair[1] * (1.0 + 1e-5)), "{exact:?}");
        }
    }
}

#[test]
fn rows_far_from_the_origin_are_compared_by_differences() {
    let (dim, rows) = (64, 5_000);
    let far = |values: Vec<f32>| -> Vec<f32> { values.iter().map(|x| 1e4 + x).collect() };
    let (vectors, queries) = (far(random(23, rows * dim)), far(random(24, 60 * dim)));
    assert_equals_naive(&vectors, &queries, dim, 10);
    for (vectors, queries, expected) in [(&vectors, &queries, true), (&random(25, rows * dim), &random(26, 60 * dim), false)] {
        let (kernels, task) = (Kernels::get().unwrap(), Task::new());
        let (vectors, queries) = (Rows::new("vectors", vectors, dim).unwrap(), Rows::new("queries", queries, dim).unwrap());
        let squares = checked_squares(kernels, queries, &task).unwrap();
        let job = Job::new(Call { kernels, metric: Metric::L2, vectors, k: 10, task: &task }, queries, &squares, 1).unwrap();
        job.work();
        assert_eq!(job.direct.load(Ordering::Relaxed), expected);
    }
}

#[test]
fn zero_rows_and_extreme_lengths_are_ordinary() {
    let dim = 20;
    let lengths = [0.0, 1e-42, 1e-30, 1e-12, 1.0, 1e10, 1e18, 1e25, 3e38];
    let vectors: Vec<f32> = random(14, 180 * dim).iter().enumerate().map(|(i, x)| x * lengths[i / dim % lengths.len()]).collect();
    let queries: Vec<f32> = random(15, 27 * dim).iter().enumerate().map(|(i, x)| x * lengths[i / dim % lengths.len()]).collect();
    assert_equals_naive(&vectors, &queries, dim, 30);
    let (_, distances) = search(&vectors, &queries[..dim], dim, 180, Metric::Cosine, 1).unwrap();
    assert!(distances.iter().all(|&distance| distance == 1.0), "a zero query is at distance 1 of everything");
}

#[test]
fn nan_and_infinity_are_refused_with_the_first_such_row() {
    let (dim, rows) = (50, 60_000);
    let mut vectors = random(16, rows * dim);
    let queries = random(17, 100 * dim);
    for row in [59_999, 41_000, 7_003, 7_002] {
        vectors[row * dim + 49] = f32::NAN;
        for threads in [1, 4] {
            let error = search(&vectors, &queries, dim, 3, Metric::L2, threads).unwrap_err().to_string();
            assert!(error.contains("vectors") && error.contains(&format!("row {row}")), "{error}");
        }
    }
    let error = search(&vectors, &[], dim, 3, Metric::L2, 1).unwrap_err().to_string();
    assert!(error.contains("row 7002"), "{error}");
    let mut bad = queries.clone();
    bad[33 * dim] = f32::NEG_INFINITY;
    let error = search(&vectors, &bad, dim, 3, Metric::Cosine, 2).unwrap_err().to_string();
    assert!(error.contains("queries") && error.contains("row 33") && error.contains("-inf"), "{error}");
}

#[test]
fn arguments_outside_the_contract_are_refused() {
    let values = random(18, 12);
    for k in [0, MAX_K + 1, usize::MAX] {
        assert!(matches!(search(&values, &values, 3, k, Metric::L2, 1), Err(Error::Invalid { argument: "k", .. })));
    }
    let (three, four) = (Rows::new("vectors", &values, 3).unwrap(), Rows::new("queries", &values, 4).unwrap());
    let error = exact_search(three, four, 1, Metric::L2, 1, &Task::new()).unwrap_err();
    assert!(matches!(error, Error::Invalid { argument: "queries", .. }), "{error}");
    let wide = vec![0.0; MAX_DIM + 1];
    assert!(matches!(search(&wide, &wide, MAX_DIM + 1, 1, Metric::L2, 1), Err(Error::Invalid { argument: "vectors", .. })));
}

#[test]
fn results_that_cannot_fit_are_an_error() {
    assert!(matches!(filled(None, NO_ID), Err(Error::OutOfMemory { bytes: usize::MAX, .. })));
    assert!(matches!(filled(Some(1 << 58), NO_ID), Err(Error::OutOfMemory { .. })));
}

#[test]
fn it_stops_when_asked_and_when_time_is_up() {
    let (vectors, queries) = (random(19, 20_000 * 64), random(20, 200 * 64));
    let (vectors, queries) = (Rows::new("vectors", &vectors, 64).unwrap(), Rows::new("queries", &queries, 64).unwrap());
    for threads in [1, 3] {
        let task = Task::new();
        task.cancel();
        assert_eq!(exact_search(vectors, queries, 5, Metric::L2, threads, &task), Err(Error::Cancelled));
        let task = Task::with_timeout(Some(1e-9)).unwrap();
        assert_eq!(exact_search(vectors, queries, 5, Metric::L2, threads, &task), Err(Error::Timeout { seconds: 1e-9 }));
    }
}

#[test]
fn a_cancelled_job_does_not_begin_another_tile() {
    let (vectors, queries) = (random(19, 2_000 * 64), random(20, 200 * 64));
    let (vectors, queries) = (Rows::new("vectors", &vectors, 64).unwrap(), Rows::new("queries", &queries, 64).unwrap());
    let (kernels, task) = (Kernels::get().unwrap(), Task::new());
    task.set_total(400_000);
    let squares = checked_squares(kernels, queries, &task).unwrap();
    let job = Job::new(Call { kernels, metric: Metric::L2, vectors, k: 5, task: &task }, queries, &squares, 1).unwrap();
    let mut values = vec![0.0; TILE_QUERIES * job.plan.block];
    job.unit(0, &mut Block::default(), &mut values).unwrap();
    let before = task.progress();
    assert!(before.0 > 0 && before.0 < before.1);
    task.cancel();
    job.work();
    assert_eq!(task.progress(), before);
    assert_eq!(job.finish().err(), Some(Error::Cancelled));
}

#[test]
fn progress_ends_at_its_total() {
    let (vectors, queries) = (random(21, 1_000 * 5), random(22, 77 * 5));
    let task = Task::new();
    let (vectors, queries) = (Rows::new("vectors", &vectors, 5).unwrap(), Rows::new("queries", &queries, 5).unwrap());
    exact_search(vectors, queries, 5, Metric::Ip, 2, &task).unwrap();
    assert_eq!(task.progress(), (77_000, 77_000));
}

proptest! {
    #[test]
    fn any_rows_equal_the_double_loop(
        dim in 1usize..9,
        values in prop::collection::vec(prop_oneof![(-2i8..3).prop_map(f32::from), -1e3f32..1e3, prop::num::f32::NORMAL], 0..600),
        queries in prop::collection::vec(prop_oneof![(-2i8..3).prop_map(f32::from), prop::num::f32::ANY], 0..60),
        k in 1usize..50,
    ) {
        let queries: Vec<f32> = queries.into_iter().filter(|x| x.is_finite()).collect();
        assert_equals_naive(&values[..values.len() / dim * dim], &queries[..queries.len() / dim * dim], dim, k);
    }
}
