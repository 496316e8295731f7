//! Random operations against a plain model: a dictionary of vectors and exact search over it. After each step the index must hold exactly
//! what the dictionary holds, and its invariants must be proven.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;

use proptest::prelude::*;
use sapwood::cancel::Task;
use sapwood::dataset::Rows;
use sapwood::index::Index;
use sapwood::kernel::Kernels;
use sapwood::metric::Metric;
use sapwood::params::{Params, SearchOptions};
use sapwood::value::ValueType;

#[derive(Debug, Clone)]
enum Step {
    /// Adds rows of a cluster under ids from a small range, so that many are replaced and some repeat.
    Add {
        ids: Vec<i64>,
        cluster: u8,
    },
    /// Adds rows under the counter.
    AddFresh {
        count: usize,
        cluster: u8,
    },
    /// Adds copies of one vector.
    AddCopies {
        count: usize,
    },
    Remove {
        ids: Vec<i64>,
    },
    /// Removes a share of all live ids.
    RemoveShare {
        of: usize,
    },
    Balance,
    Search {
        cluster: u8,
        k: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let id = 0i64..300;
    let step = prop_oneof![
        4 => (prop::collection::vec(id.clone(), 0..80), 0u8..4).prop_map(|(ids, cluster)| Step::Add { ids, cluster }),
        2 => (1usize..120, 0u8..4).prop_map(|(count, cluster)| Step::AddFresh { count, cluster }),
        1 => (1usize..90).prop_map(|count| Step::AddCopies { count }),
        3 => prop::collection::vec(id, 0..60).prop_map(|ids| Step::Remove { ids }),
        1 => (1usize..4).prop_map(|of| Step::RemoveShare { of }),
        2 => Just(Step::Balance),
        3 => (0u8..4, 1usize..40).prop_map(|(cluster, k)| Step::Search { cluster, k }),
    ];
    prop::collection::vec(step, 1..30)
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> f32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f32 / (1u64 << 24) as f32 - 0.5
    }

    fn vector(&mut self, dim: usize, cluster: u8) -> Vec<f32> {
        (0..dim).map(|i| self.next() + if i % 4 == usize::from(cluster) { 2.0 } else { 0.0 }).collect()
    }
}

struct Model {
    index: Index,
    /// Vectors as they were given; as they came back at once, where rows are codes.
    rows: BTreeMap<i64, Vec<f32>>,
    next: i64,
    random: Random,
}

impl Model {
    fn new(metric: Metric, dim: usize, params: Params) -> Self {
        Self { index: Index::new(dim, metric, params).unwrap(), rows: BTreeMap::new(), next: 0, random: Random(dim as u64) }
    }

    fn add(&mut self, ids: Option<&[i64]>, vectors: &[Vec<f32>]) {
        let values = vectors.concat();
        let rows = Rows::new("vectors", &values, self.index.dim()).unwrap();
        let result = self.index.add(rows, ids, &Task::new()).unwrap();
        let fresh: Vec<i64> = (self.next..self.next + vectors.len() as i64).collect();
        let ids = ids.unwrap_or(&fresh);
        let (before, mut replaced) = (self.rows.len(), std::collections::BTreeSet::new());
        let stored = if self.is_coded() { Some(self.index.get(ids, &Task::new()).unwrap()) } else { None };
        for (id, vector) in ids.iter().zip(vectors) {
            if self.rows.insert(*id, vector.clone()).is_some() {
                replaced.insert(*id);
            }
            self.next = self.next.max(id + 1);
        }
        let added = (self.rows.len() - before) as u64;
        // Of an id that comes twice the last row counts, for each of its places.
        for (id, row) in ids.iter().zip(stored.iter().flat_map(|stored| stored.chunks_exact(self.index.dim()))) {
            self.rows.insert(*id, row.to_vec());
        }
        let distinct = ids.iter().collect::<std::collections::BTreeSet<_>>().len() as u64;
        assert_eq!((result.added, result.replaced), (added, distinct - added));
    }

    fn is_coded(&self) -> bool {
        self.index.params().storage.code_bits().is_some()
    }

    fn remove(&mut self, ids: &[i64]) {
        let removed = ids.iter().filter(|id| self.rows.remove(id).is_some()).count();
        assert_eq!(self.index.remove(ids).unwrap(), removed as u64);
    }

    fn step(&mut self, step: &Step) {
        let dim = self.index.dim();
        match step {
            Step::Add { ids, cluster } => {
                let vectors: Vec<_> = ids.iter().map(|_| self.random.vector(dim, *cluster)).collect();
                self.add(Some(ids), &vectors);
            }
            Step::AddFresh { count, cluster } => {
                let vectors: Vec<_> = (0..*count).map(|_| self.random.vector(dim, *cluster)).collect();
                self.add(None, &vectors);
            }
            Step::AddCopies { count } => self.add(None, &vec![vec![0.75; dim]; *count]),
            Step::Remove { ids } => self.remove(ids),
            Step::RemoveShare { of } => {
                let ids: Vec<i64> = self.rows.keys().copied().step_by(*of).collect();
                self.remove(&ids);
            }
            Step::Balance => self.index.balance(&Task::new()).unwrap(),
            Step::Search { cluster, k } => {
                let query = self.random.vector(dim, *cluster);
                self.search(&query, *k);
            }
        }
        self.check();
    }

    /// All leaves are visited, so the result must be exact.
    fn search(&self, query: &[f32], k: usize) {
        let kernels = Kernels::get().unwrap();
        let metric = self.index.metric();
        let prepare = |vector: &[f32]| {
            let mut vector = vector.to_vec();
            metric.prepare(&mut vector);
            vector
        };
        let prepared = prepare(query);
        let mut expected: Vec<(f32, i64)> =
            self.rows.iter().map(|(&id, row)| (metric.distance(kernels, &prepared, &prepare(row)), id)).collect();
        expected.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
        expected.resize(k.max(expected.len()), (f32::INFINITY, -1));
        expected.truncate(k);
        let options =
            SearchOptions { beam: Some((1 << 20, 1 << 20)), rerank: sapwood::params::Rerank::Factor(1 << 12), ..SearchOptions::default() };
        let queries = Rows::new("queries", query, query.len()).unwrap();
        let found = self.index.search(queries, k, &options, &Task::new()).unwrap();
        let found: Vec<(f32, i64)> = found.distances.into_iter().zip(found.ids).collect();
        // Distances to codes are computed another way, and rounded by a share of the squared lengths.
        let longest = self.rows.values().map(|row| (kernels.dot)(row, row)).fold(1.0, f32::max) + (kernels.dot)(&prepared, &prepared);
        let tolerance = if self.is_coded() { 4e-6 * longest } else { 0.0 };
        let near = |a: f32, b: f32| a == b || (a - b).abs() <= tolerance;
        if self.is_coded() {
            assert!(found.iter().zip(&expected).all(|(a, b)| near(a.0, b.0)), "{found:?}, expected {expected:?}");
        } else {
            assert_eq!(found, expected);
        }
        // With bounds what is returned is live, exact and in order.
        let found = self.index.search(queries, k, &SearchOptions::default(), &Task::new()).unwrap();
        for (place, (&id, &distance)) in found.ids.iter().zip(&found.distances).enumerate() {
            match self.rows.get(&id) {
                Some(row) => assert!(near(distance, metric.distance(kernels, &prepared, &prepare(row))), "id {id} at {distance}"),
                None => assert!(id == -1 && distance.is_infinite() && place >= self.rows.len(), "id {id} at {place} isn't live"),
            }
        }
        assert!(found.distances.windows(2).all(|pair| pair[0] <= pair[1]));
    }

    fn check(&self) {
        self.index.validate(&Task::new()).unwrap();
        assert_eq!(self.index.len(), self.rows.len());
        let ids: Vec<i64> = self.rows.keys().copied().collect();
        assert_eq!(self.index.ids().unwrap(), ids);
        if self.is_coded() {
            // However often leaves were split and merged: rows are encoded once.
            let rows: Vec<f32> = self.rows.values().flatten().copied().collect();
            assert_eq!(self.index.get(&ids, &Task::new()).unwrap(), rows);
        }
    }
}

fn small(background: bool, spill: usize, storage: ValueType) -> Params {
    Params { split_threshold: 24, merge_threshold: 5, branching: 6, spill, background, storage, threads: Some(2), ..Params::default() }
}

fn storages() -> impl Strategy<Value = ValueType> {
    prop_oneof![
        3 => Just(ValueType::F32),
        1 => Just(ValueType::Rabitq3),
        1 => Just(ValueType::Rabitq4),
        1 => Just(ValueType::Rabitq8),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: cases(), failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn holds_exactly_what_a_dictionary_holds(
        steps in steps(), metric in 0usize..3, spill in 0usize..2, background: bool, dim in 1usize..20, storage in storages()
    ) {
        let metric = [Metric::L2, Metric::Cosine, Metric::Ip][metric];
        let mut model = Model::new(metric, dim, small(background, spill, storage));
        for step in &steps {
            model.step(step);
        }
        model.index.balance(&Task::new()).unwrap();
        model.check();
        let query = model.random.vector(dim, 1);
        model.search(&query, 10);
    }
}

/// Random runs; a long soak is asked for by `SAPWOOD_STRESS=1`.
fn cases() -> u32 {
    if std::env::var("SAPWOOD_STRESS").is_ok_and(|stress| stress == "1") { 5_000 } else { 200 }
}
