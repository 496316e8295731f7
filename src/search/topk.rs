//! The k nearest of a stream of candidates.
//!
//! The problem: results must not depend on the order in which candidates come, or on who found them.
//! The rule of use: push each id at most once, ask [`TopK::worst`] before computing what can't enter, write the row at the end.
//! The hazard: NaN has no order, so it is turned away; a row that must be returned needs a number.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::error::{Error, Result};

/// The id of places in a result row for which there was no neighbour; their distance is +inf.
pub const NO_ID: i64 = -1;

/// A candidate: ordered by distance, then by id. Both zeros are the same distance.
#[derive(Debug, Clone, Copy)]
pub struct Neighbour {
    /// The distance, never NaN once selected.
    pub distance: f32,
    /// The row's id.
    pub id: i64,
}

impl Ord for Neighbour {
    fn cmp(&self, other: &Self) -> Ordering {
        self.distance.partial_cmp(&other.distance).unwrap_or(Ordering::Equal).then(self.id.cmp(&other.id))
    }
}

impl PartialOrd for Neighbour {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Neighbour {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Neighbour {}

/// The k nearest of what was pushed: the same set in any order of pushes.
#[derive(Debug, Clone)]
pub struct TopK {
    k: usize,
    /// The farthest of the kept is on top.
    heap: BinaryHeap<Neighbour>,
}

impl TopK {
    /// An empty selector of `k` neighbours. It takes memory as it fills; see [`TopK::reserve`].
    pub fn new(k: usize) -> Self {
        Self { k, heap: BinaryHeap::new() }
    }

    /// Takes the memory for `rows` candidates now, so that running out of it is an error and not an abort.
    pub fn reserve(&mut self, rows: usize) -> Result<()> {
        let places = self.k.min(rows);
        let bytes = places.saturating_mul(size_of::<Neighbour>());
        self.heap.try_reserve_exact(places).map_err(|_| Error::OutOfMemory { bytes, purpose: "the k nearest of a query" })
    }

    /// Keeps the candidate if it is among the k nearest so far. NaN never enters.
    pub fn push(&mut self, distance: f32, id: i64) {
        if distance.is_nan() {
            return;
        }
        let candidate = Neighbour { distance, id };
        if self.heap.len() < self.k {
            self.heap.push(candidate);
        } else if let Some(mut farthest) = self.heap.peek_mut()
            && candidate < *farthest
        {
            *farthest = candidate;
        }
    }

    /// The k-th distance, +inf while fewer are kept. A candidate above it can't enter; one at it may, by its id.
    pub fn worst(&self) -> f32 {
        if self.heap.len() < self.k {
            return f32::INFINITY;
        }
        self.heap.peek().map_or(f32::INFINITY, |farthest| farthest.distance)
    }

    /// The kept, in no order.
    pub fn kept(&self) -> impl Iterator<Item = &Neighbour> {
        self.heap.iter()
    }

    /// How many are kept.
    pub fn len(&self) -> usize {
        self.heap.len()
    }

    /// True while nothing is kept.
    pub fn is_empty(&self) -> bool {
        self.heap.is_empty()
    }

    /// The kept, nearest first, ties by the smaller id.
    pub fn into_sorted(self) -> Vec<Neighbour> {
        let mut kept = self.heap.into_vec();
        kept.sort_unstable();
        kept
    }

    /// Writes one row of results; places without a neighbour get [`NO_ID`] and +inf. The slices are `k` long.
    pub fn write_row(self, ids: &mut [i64], distances: &mut [f32]) {
        let kept = self.into_sorted();
        for (place, (id, distance)) in ids.iter_mut().zip(distances).enumerate() {
            (*id, *distance) = kept.get(place).map_or((NO_ID, f32::INFINITY), |neighbour| (neighbour.id, neighbour.distance));
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn distance() -> impl Strategy<Value = f32> {
        prop_oneof![
            (-3i8..4).prop_map(f32::from),
            any::<f32>(),
            Just(f32::INFINITY),
            Just(f32::NEG_INFINITY),
            Just(-0.0f32),
            Just(f32::NAN),
        ]
    }

    proptest! {
        #[test]
        fn it_equals_sorting_all(distances in prop::collection::vec(distance(), 0..120), k in 0usize..40, stride in 1usize..7) {
            let mut all: Vec<Neighbour> =
                distances.iter().zip(0..).map(|(&distance, id)| Neighbour { distance, id }).filter(|x| !x.distance.is_nan()).collect();
            let mut selector = TopK::new(k);
            // Any order of pushes: each residue class of `stride` in turn.
            for start in 0..stride {
                for i in (start..distances.len()).step_by(stride) {
                    selector.push(distances[i], i as i64);
                }
            }
            all.sort();
            let full = k > 0 && all.len() >= k;
            prop_assert_eq!(selector.worst(), if full { all[k - 1].distance } else { f32::INFINITY });
            all.truncate(k);
            prop_assert_eq!(selector.len(), all.len());

            let (mut ids, mut padded) = (vec![7; k], vec![7.0; k]);
            selector.clone().write_row(&mut ids, &mut padded);
            for place in 0..k {
                let expected = all.get(place).map_or((NO_ID, f32::INFINITY), |x| (x.id, x.distance));
                prop_assert_eq!((ids[place], padded[place]), expected);
            }
            prop_assert_eq!(selector.into_sorted(), all);
        }
    }

    #[test]
    fn an_infinite_distance_is_a_neighbour_and_comes_before_the_padding() {
        let mut selector = TopK::new(3);
        selector.push(f32::INFINITY, 5);
        selector.push(f32::NAN, 1);
        selector.push(1.0, 9);
        let (mut ids, mut distances) = ([0; 3], [0.0; 3]);
        selector.write_row(&mut ids, &mut distances);
        assert_eq!(ids, [9, 5, NO_ID]);
        assert_eq!(distances, [1.0, f32::INFINITY, f32::INFINITY]);
    }

    #[test]
    fn both_zeros_tie_by_id() {
        let mut selector = TopK::new(2);
        [(0.0, 3), (-0.0, 2), (0.0, 1)].into_iter().for_each(|(distance, id)| selector.push(distance, id));
        let ids: Vec<i64> = selector.into_sorted().iter().map(|x| x.id).collect();
        assert_eq!(ids, [1, 2]);
    }

    #[test]
    fn more_memory_than_there_is_gives_an_error() {
        let error = TopK::new(usize::MAX).reserve(usize::MAX).unwrap_err();
        assert!(matches!(error, Error::OutOfMemory { .. }));
    }
}
