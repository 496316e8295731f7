//! Commits, reopening, crashes and damage, on files in memory.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::collections::BTreeMap;
use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sapwood::cancel::Task;
use sapwood::dataset::Rows;
use sapwood::index::{Index, Wanted};
use sapwood::metric::Metric;
use sapwood::params::{Params, SearchOptions};
use sapwood::storage::{Cache, Fault, Memory, Mode, Storage};
use sapwood::value::ValueType;

const DIM: usize = 12;

type Model = BTreeMap<i64, Vec<f32>>;

fn wanted(cache_bytes: Option<u64>) -> Wanted {
    let params = Params { background: false, split_threshold: 16, merge_threshold: 3, branching: 8, threads: Some(1), ..Params::default() };
    Wanted { dim: Some(DIM), metric: Some(Metric::L2), params, given: Vec::new(), keep: 1, cache_bytes }
}

fn storage(memory: &Memory) -> Arc<dyn Storage> {
    Arc::new(memory.clone())
}

fn vector(random: &mut Pcg64Mcg) -> Vec<f32> {
    (0..DIM).map(|_| random.random_range(-1.0..1.0)).collect()
}

/// One step of a random life.
fn step(index: &Index, model: &mut Model, random: &mut Pcg64Mcg) {
    match random.random_range(0..10) {
        0..6 => {
            let count = random.random_range(1..40);
            let ids: Vec<i64> = (0..count).map(|_| random.random_range(0..300)).collect();
            let rows: Vec<Vec<f32>> = (0..count).map(|_| vector(random)).collect();
            index.add(Rows::new("vectors", &rows.concat(), DIM).unwrap(), Some(&ids), &Task::new()).unwrap();
            model.extend(ids.into_iter().zip(rows));
        }
        6..8 => {
            let ids: Vec<i64> = (0..random.random_range(1..30)).map(|_| random.random_range(0..300)).collect();
            index.remove(&ids).unwrap();
            ids.iter().for_each(|id| drop(model.remove(id)));
        }
        _ => index.balance(&Task::new()).unwrap(),
    }
}

fn exact(index: &Index, query: &[f32], k: usize) -> (Vec<i64>, Vec<f32>) {
    let options = SearchOptions { beam: Some((1 << 20, 1 << 20)), threads: Some(1), ..SearchOptions::default() };
    let found = index.search(Rows::new("queries", query, DIM).unwrap(), k, &options, &Task::new()).unwrap();
    (found.ids, found.distances)
}

/// Every row, through every way of asking.
fn assert_same(index: &Index, model: &Model) {
    assert_eq!(index.len(), model.len());
    let query = vec![0.1; DIM];
    let (mut ids, _) = exact(index, &query, model.len().max(1));
    ids.retain(|&id| id >= 0);
    ids.sort_unstable();
    let expected: Vec<i64> = model.keys().copied().collect();
    assert_eq!(ids, expected, "a search over all leaves finds each row once");
    assert_eq!(index.ids().unwrap(), expected);
    assert_eq!(index.get(&expected, &Task::new()).unwrap(), model.values().flatten().copied().collect::<Vec<f32>>());
    index.validate(&Task::new()).unwrap();
}

fn read(memory: &Memory) -> Index {
    Index::read(&storage(memory), None, &Arc::new(Cache::new(1 << 16)), &Params::default()).unwrap()
}

#[test]
fn a_checkpoint_is_read_written_on_and_loaded_as_it_was_committed() {
    for seed in 0..6 {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let memory = Memory::new();
        let mut model = Model::new();
        for life in 0..6 {
            // In turn in memory and on disk, with a cache that holds almost nothing.
            let cache = if life % 2 == 0 { None } else { Some(1 << 13) };
            let index = Index::bind(&storage(&memory), &wanted(cache), &Task::new()).unwrap();
            assert_same(&index, &model);
            for _ in 0..random.random_range(1..5) {
                for _ in 0..random.random_range(0..6) {
                    step(&index, &mut model, &mut random);
                }
                let info = index.commit(&Task::new()).unwrap();
                assert_eq!(info.rows, model.len() as u64);
                assert_same(&index, &model);
                let reader = read(&memory);
                assert_same(&reader, &model);
                let query = vector(&mut random);
                let options = SearchOptions { threads: Some(1), ..SearchOptions::default() };
                let search = |index: &Index| {
                    let found = index.search(Rows::new("queries", &query, DIM).unwrap(), 5, &options, &Task::new()).unwrap();
                    (found.ids, found.distances)
                };
                assert_eq!(search(&reader), search(&index), "the reader answers as the index did");
                assert_eq!(search(&Index::load(&storage(&memory), None, &Params::default(), &Task::new()).unwrap()), search(&index));
            }
            // What isn't committed is gone.
            let kept = model.clone();
            step(&index, &mut model, &mut random);
            model = kept;
        }
    }
}

#[test]
fn older_checkpoints_show_what_they_held_and_disk_use_is_bounded() {
    let mut random = Pcg64Mcg::seed_from_u64(7);
    let memory = Memory::new();
    let index = Index::bind(&storage(&memory), &Wanted { keep: 3, ..wanted(None) }, &Task::new()).unwrap();
    let mut model = Model::new();
    let mut past = BTreeMap::new();
    let mut most = 0;
    for round in 0..60 {
        for _ in 0..6 {
            step(&index, &mut model, &mut random);
        }
        let version = index.commit(&Task::new()).unwrap().version;
        past.insert(version, model.clone());
        for (&version, then) in past.iter().rev().take(3) {
            assert_same(&Index::load(&storage(&memory), Some(version), &Params::default(), &Task::new()).unwrap(), then);
        }
        let bytes: usize = memory.lengths().iter().map(|(_, bytes)| bytes).sum();
        if round < 20 {
            most = most.max(bytes);
        }
        assert!(bytes < 2 * most, "{bytes} bytes after {round} commits, {most} before");
    }
}

#[test]
fn a_reader_keeps_its_checkpoint_while_the_writer_goes_on() {
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let memory = Memory::new();
    let index = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
    let mut model = Model::new();
    (0..10).for_each(|_| step(&index, &mut model, &mut random));
    index.commit(&Task::new()).unwrap();
    let (reader, then) = (read(&memory), model.clone());
    for _ in 0..20 {
        (0..5).for_each(|_| step(&index, &mut model, &mut random));
        index.commit(&Task::new()).unwrap();
        // Nothing of it was read yet when the rest was collected.
        assert_same(&read(&memory), &model);
    }
    assert_same(&reader, &then);
}

/// Commits with a failure, or the end, at each call of the storage in turn.
#[test]
fn whatever_call_fails_the_last_checkpoint_is_whole() {
    for mode in [Mode::FailOnce, Mode::Stop] {
        for cache in [None, Some(1 << 13)] {
            let mut at = 0;
            while fail_at(mode, cache, at) {
                at += 1;
            }
            assert!(at > 20, "{at} calls");
        }
    }
}

/// False if the commit made fewer calls.
fn fail_at(mode: Mode, cache: Option<u64>, at: u64) -> bool {
    let mut random = Pcg64Mcg::seed_from_u64(11);
    let memory = Memory::new();
    let mut before = Model::new();
    let first = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
    (0..8).for_each(|_| step(&first, &mut before, &mut random));
    first.commit(&Task::new()).unwrap();
    (0..3).for_each(|_| step(&first, &mut before, &mut random));
    first.commit(&Task::new()).unwrap();
    drop(first);

    let fault = Fault::new(storage(&memory), u64::MAX, mode);
    let faulty: Arc<dyn Storage> = Arc::new(fault.clone());
    let index = Index::bind(&faulty, &wanted(cache), &Task::new()).unwrap();
    let mut model = before.clone();
    (0..4).for_each(|_| step(&index, &mut model, &mut random));
    fault.arm(at);
    let first_call = fault.calls();
    let failed = index.commit(&Task::new()).is_err();
    let reached = fault.calls() - first_call > at;
    // A collection that fails is no failure of the commit before it, but is reported all the same.
    for left in [memory.after_kill(), memory.after_power_loss()] {
        let reopened = Index::bind(&storage(&left), &wanted(None), &Task::new()).unwrap();
        let present = if reopened.ids().unwrap() == model.keys().copied().collect::<Vec<_>>() { &model } else { &before };
        assert!(failed || std::ptr::eq(present, &model), "a commit that returned is there");
        assert_same(&reopened, present);
        // And life goes on.
        let mut later = present.clone();
        (0..3).for_each(|_| step(&reopened, &mut later, &mut random));
        reopened.commit(&Task::new()).unwrap();
        assert_same(&read(&left), &later);
    }
    if mode == Mode::FailOnce {
        fault.arm(1 << 60);
        assert_same(&index, &model);
        (0..2).for_each(|_| step(&index, &mut model, &mut random));
        index.commit(&Task::new()).unwrap();
        assert_same(&read(&memory), &model);
        assert_same(&read(&memory.after_power_loss()), &model);
    }
    reached
}

#[test]
fn every_flipped_byte_and_every_truncation_is_an_error_or_does_no_harm() {
    let mut random = Pcg64Mcg::seed_from_u64(5);
    let memory = Memory::new();
    let index = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
    let mut model = Model::new();
    (0..6).for_each(|_| step(&index, &mut model, &mut random));
    index.commit(&Task::new()).unwrap();
    step(&index, &mut model, &mut random);
    index.commit(&Task::new()).unwrap();
    drop(index);
    let everything = |memory: &Memory| -> sapwood::Result<Vec<i64>> {
        let index = Index::read(&storage(memory), None, &Arc::new(Cache::new(1 << 20)), &Params::default())?;
        index.validate(&Task::new())?;
        let ids = index.ids()?;
        index.get(&ids, &Task::new())?;
        Ok(ids)
    };
    let expected = everything(&memory).unwrap();
    for (name, bytes) in memory.lengths() {
        for _ in 0..200 {
            let damaged = memory.after_kill();
            let (place, bit) = (random.random_range(0..bytes.max(1)), random.random_range(0..8));
            let cut = random.random_range(0..4) == 0;
            damaged.damage(&name, |content| {
                if cut {
                    content.truncate(place);
                } else if let Some(byte) = content.get_mut(place) {
                    *byte ^= 1 << bit;
                }
            });
            match everything(&damaged) {
                Ok(ids) => assert_eq!(ids, expected, "{name} byte {place}"),
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    }
}

#[test]
fn saving_over_a_directory_leaves_no_moment_without_a_checkpoint() {
    let mut random = Pcg64Mcg::seed_from_u64(9);
    let index = Index::new(DIM, Metric::L2, wanted(None).params).unwrap();
    let mut model = Model::new();
    let memory = Memory::new();
    for round in 0..5 {
        (0..4).for_each(|_| step(&index, &mut model, &mut random));
        index.save(&storage(&memory), &Task::new()).unwrap();
        let loaded = Index::load(&storage(&memory), None, &Params { background: false, ..Params::default() }, &Task::new()).unwrap();
        assert_same(&loaded, &model);
        let before = model.clone();
        let mut other = model.clone();
        (0..3).for_each(|_| step(&loaded, &mut other, &mut random));
        let fault = Fault::new(storage(&memory), 3 + round, Mode::Stop);
        assert!(loaded.save(&(Arc::new(fault) as Arc<dyn Storage>), &Task::new()).is_err());
        assert_same(&read(&memory.after_kill()), &before);
    }
}

#[test]
fn vectors_of_fewer_bytes_come_back_as_they_are_stored() {
    for storage_type in ValueType::ALL {
        let mut random = Pcg64Mcg::seed_from_u64(2);
        let memory = Memory::new();
        let mut wanted = wanted(None);
        wanted.params.storage = storage_type;
        let index = Index::bind(&storage(&memory), &wanted, &Task::new()).unwrap();
        let mut model = Model::new();
        (0..8).for_each(|_| step(&index, &mut model, &mut random));
        index.commit(&Task::new()).unwrap();
        let ids = index.ids().unwrap();
        let stored = index.get(&ids, &Task::new()).unwrap();
        // Six deviations of what a code of few bits loses.
        let most = storage_type.code_bits().map_or(0.01, |bits| 3.0 / f32::from(1u16 << bits));
        for (x, y) in stored.iter().zip(model.values().flatten()) {
            assert!((x - y).abs() < most, "{x} and {y}");
        }
        index.validate(&Task::new()).unwrap();
        let answers: Vec<_> = (0..5).map(|i| exact(&index, &stored[i * DIM..(i + 1) * DIM], 4)).collect();
        // Of a code but for rounding, a share of the squared length.
        let rounding = if storage_type.code_bits().is_some() { 1e-4 } else { 0.0 };
        assert!(answers[0].1[0] <= rounding, "a stored row is at distance 0 from itself");
        drop(index);
        let lazy = Index::bind(&storage(&memory), &Wanted { cache_bytes: Some(1 << 13), ..wanted.clone() }, &Task::new()).unwrap();
        let load = Index::load(&storage(&memory), None, &Params::default(), &Task::new()).unwrap();
        for other in [&lazy, &load, &read(&memory)] {
            assert_eq!(other.get(&ids, &Task::new()).unwrap(), stored);
            assert_eq!((0..5).map(|i| exact(other, &stored[i * DIM..(i + 1) * DIM], 4)).collect::<Vec<_>>(), answers);
            other.validate(&Task::new()).unwrap();
        }
    }
}

#[test]
fn an_empty_index_is_committed_and_filled_and_emptied() {
    let memory = Memory::new();
    let mut model = Model::new();
    for count in [0, 1, 0, 3] {
        let index = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
        assert_same(&index, &model);
        index.remove(&[0, 1, 2]).unwrap();
        model = (0..count).map(|id| (id, vec![id as f32; DIM])).collect();
        for (id, row) in &model {
            index.add(Rows::new("vectors", row, DIM).unwrap(), Some(&[*id]), &Task::new()).unwrap();
        }
        index.commit(&Task::new()).unwrap();
        assert_same(&index, &model);
        assert_same(&read(&memory), &model);
    }
    let index = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
    let again = index.commit(&Task::new()).unwrap();
    assert_eq!(again.bytes_written, 0, "nothing changed");
}

#[test]
fn only_one_writer() {
    let memory = Memory::new();
    let index = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
    let error = Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap_err();
    assert!(error.to_string().contains(&format!("process {}", std::process::id())), "{error}");
    index.close();
    Index::bind(&storage(&memory), &wanted(None), &Task::new()).unwrap();
}

#[test]
fn the_table_of_rows_grows_no_further_when_rows_are_replaced_in_session_after_session() {
    let memory = Memory::new();
    let mut random = Pcg64Mcg::seed_from_u64(3);
    let mut model = Model::new();
    let mut bytes = Vec::new();
    for session in 0..24 {
        // A reader holds a checkpoint through some sessions, two checkpoints are kept through some.
        let reader = (session % 3 == 2).then(|| (read(&memory), model.clone()));
        let wanted = Wanted { keep: 1 + session % 2, ..wanted(Some(1 << 13)) };
        let index = Index::bind(&storage(&memory), &wanted, &Task::new()).unwrap();
        for _ in 0..2 {
            let ids: Vec<i64> = (0..2_000).collect();
            let rows: Vec<Vec<f32>> = ids.iter().map(|_| vector(&mut random)).collect();
            index.add(Rows::new("vectors", &rows.concat(), DIM).unwrap(), Some(&ids), &Task::new()).unwrap();
            model.extend(ids.into_iter().zip(rows));
            index.commit(&Task::new()).unwrap();
        }
        assert_same(&index, &model);
        if let Some((reader, model)) = reader {
            assert_same(&reader, &model);
        }
        bytes.push(memory.lengths().iter().map(|(_, bytes)| bytes).sum::<usize>());
    }
    // At the same point of the same round of sessions.
    assert!(bytes[23] * 10 <= bytes[11] * 11, "{bytes:?}");
}
