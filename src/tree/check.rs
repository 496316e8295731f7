//! Proves that ids, locations and leaves agree: what `validate()` runs, and every test after every step.

use std::collections::HashMap;

use super::leaf::lanes;
use super::snapshot::Snapshot;
use super::store::{State, Store};
use crate::cancel::Task;
use crate::error::{Error, Result};
use crate::ids::{DEAD, LeafId, Location, NONE};
use crate::quantize::Factors;
use crate::vectors::Row;

/// Checks, of one moment of the index:
/// 1. each live id has one row, and each row of a leaf is live;
/// 2. each live row is exactly once in each leaf that its location names, which are distinct, and in no other;
/// 3. each leaf and each node is reached from the root exactly once, over levels that fall by one;
/// 4. each code is what encoding the stored vector again gives; nearly so if the index comes from disk, maybe from another machine.
pub fn check(store: &Store, task: &Task) -> Result<()> {
    let (snapshot, located, ids) = store.look(|state, snapshot| (snapshot.clone(), locations(state), state.directory.len()));
    if located.len() != ids || snapshot.rows != ids {
        return broken(format!("{ids} ids, but {} live rows and {} counted", located.len(), snapshot.rows));
    }
    check_ids(store, &located)?;
    check_postings(store, &snapshot, &located)?;
    check_topology(&snapshot)?;
    check_codes(store, &snapshot, task)
}

fn broken<T>(what: String) -> Result<T> {
    Err(Error::System(format!("the index is broken (please report it): {what}")))
}

fn locations(state: &State) -> HashMap<Row, Location> {
    state.directory.live_rows().map(|row| (row, state.directory.location(row))).collect()
}

fn check_ids(store: &Store, located: &HashMap<Row, Location>) -> Result<()> {
    let mut ids: Vec<u64> = located.keys().map(|&row| store.ids.get(row)).collect();
    ids.sort_unstable();
    match ids.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => broken(format!("id {} has two rows", pair[0])),
        None => Ok(()),
    }
}

fn check_postings(store: &Store, snapshot: &Snapshot, located: &HashMap<Row, Location>) -> Result<()> {
    let mut listed: Vec<(Row, LeafId)> = Vec::new();
    for (id, leaf) in snapshot.leaves.iter() {
        let before = listed.len();
        let leaf = store.whole(leaf)?;
        listed.extend(leaf.rows().map(|row| (row, id)));
        if listed.len() - before != leaf.len() {
            return broken(format!("leaf {id} counts {} rows and lists {}", leaf.len(), listed.len() - before));
        }
    }
    let mut expected: Vec<(Row, LeafId)> = Vec::new();
    for (&row, &location) in located {
        if location == DEAD || location[0] == location[1] || location[0] == NONE {
            return broken(format!("row {row} is in leaves {location:?}"));
        }
        expected.extend(location.iter().filter(|&&leaf| leaf != NONE).map(|&leaf| (row, leaf)));
    }
    listed.sort_unstable();
    expected.sort_unstable();
    if listed != expected {
        let odd = listed.iter().zip(&expected).find(|(a, b)| a != b);
        return broken(format!("{} postings, {} expected; first difference (row, leaf) {odd:?}", listed.len(), expected.len()));
    }
    Ok(())
}

fn check_topology(snapshot: &Snapshot) -> Result<()> {
    let (mut leaves, mut inners) = (Vec::new(), vec![snapshot.root]);
    let mut next = vec![snapshot.root];
    while let Some(id) = next.pop() {
        let Some(inner) = snapshot.inner(id) else { return broken(format!("node {id} is missing")) };
        for child in inner.children() {
            if inner.level == 1 {
                leaves.push(child.id);
                continue;
            }
            match snapshot.inner(child.id) {
                Some(below) if below.level + 1 == inner.level => next.push(child.id),
                _ => return broken(format!("node {} below node {id} is missing or at the wrong level", child.id)),
            }
            inners.push(child.id);
        }
    }
    leaves.sort_unstable();
    inners.sort_unstable();
    let all_leaves: Vec<u32> = snapshot.leaves.iter().map(|(id, _)| id).collect();
    let all_inners: Vec<u32> = snapshot.inners.iter().map(|(id, _)| id).collect();
    if leaves != all_leaves || inners != all_inners {
        return broken(format!(
            "the root reaches {} leaves of {}, {} nodes of {}",
            leaves.len(),
            all_leaves.len(),
            inners.len(),
            all_inners.len()
        ));
    }
    Ok(())
}

/// Factors as they are stored: those of overflowing rows aren't numbers, which equal nothing.
fn bits(factors: Factors) -> [u32; 3] {
    [factors.add, factors.rescale, factors.error].map(f32::to_bits)
}

/// Another processor adds up in another order: where a coordinate is next to zero its bit may differ, and factors do in their last digits.
fn alike(found: &[u8], expected: &[u8], a: Factors, b: Factors) -> bool {
    let bits: u32 = found.iter().zip(expected).map(|(a, b)| (a ^ b).count_ones()).sum();
    let near = |a: f32, b: f32| (a - b).abs() <= 1e-3 * (1e-3 + a.abs().max(b.abs())) || a.to_bits() == b.to_bits();
    bits as usize <= 1 + found.len() / 8 && near(a.add, b.add) && near(a.rescale, b.rescale) && near(a.error, b.error)
}

fn check_codes(store: &Store, snapshot: &Snapshot, task: &Task) -> Result<()> {
    let mut rotated = vec![0.0; store.padded()];
    let mut residual = vec![0.0; store.padded()];
    let (mut expected, mut found) = (vec![0; store.encoder.code_bytes()], vec![0; store.encoder.code_bytes()]);
    for (id, leaf) in snapshot.leaves.iter() {
        task.check()?;
        let leaf = store.whole(leaf)?;
        for (block, live) in leaf.blocks() {
            for place in lanes(live) {
                let row = block.items()[place];
                store.rotate_row(row, &mut rotated)?;
                let factors = store.encoder.encode(&rotated, &leaf.reference, &mut residual, &mut expected);
                block.take(place, &mut found);
                let same = found == expected && bits(factors) == bits(block.factors(place));
                let rounded = store.is_restored() && alike(&found, &expected, factors, block.factors(place));
                if !same && !rounded {
                    return broken(format!("the code of row {row} in leaf {id} isn't that of its vector"));
                }
            }
        }
    }
    Ok(())
}
