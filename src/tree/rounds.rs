//! The leaves of a query in rounds, nearest first, for a search that doesn't know beforehand how many it takes.
//!
//! The problem: a beam that is drawn anew, wider, scans all children again and scores again what it has scored.
//! The rule of use: [`Rounds::new`] for at most so many leaves, then [`Rounds::next`] until it is enough. What a scan of the children found is
//! kept; each round scores as many more of the best estimates by their fine codes as it hands out leaves.
//! The hazard: a leaf of a later round may be nearer than some of an earlier one, as its estimate was poor; as with a beam that is drawn anew.

use super::aim::Target;
use super::navigate::{Choice, Descent, Order, Scored, descend, node_of, room, score_all};
use super::snapshot::Snapshot;
use crate::ids::LeafId;
use crate::kernel::Kernels;
use crate::params::Beam;

/// See the module's page.
pub struct Rounds<'s> {
    descent: Descent<'s>,
    /// Of the descent's candidates, those that were scored; they are the first.
    taken: usize,
    /// Leaves handed out.
    given: usize,
    /// Scored and not handed out.
    scored: Vec<Scored>,
}

impl<'s> Rounds<'s> {
    /// Rounds of `most` leaves in all, or a few more; those of `exclude`, ascending, are passed over.
    pub fn new(snapshot: &'s Snapshot, kernels: &Kernels, target: &Target, order: Order, most: usize, exclude: &[LeafId]) -> Self {
        let mut descent = descend(snapshot, kernels, target, order, &Beam::exactly(most), exclude);
        descent.reservoir.trim();
        Self { descent, taken: 0, given: 0, scored: Vec::new() }
    }

    /// The next `wanted` leaves, fewer where there are no more; `target` and `order` are those of before.
    pub fn next(&mut self, kernels: &Kernels, target: &Target, order: Order, wanted: usize) -> Vec<Choice<'s>> {
        let Descent { scanned, fine, reservoir, .. } = &mut self.descent;
        self.given += wanted;
        let rest = &mut reservoir.kept[self.taken..];
        let more = room(target, self.given).saturating_sub(self.taken).min(rest.len());
        if more > 0 && more < rest.len() {
            rest.select_nth_unstable_by(more - 1, |a, b| a.estimate.total_cmp(&b.estimate));
        }
        score_all(kernels, &rest[..more], scanned, fine, target, order, &mut self.scored);
        self.taken += more;
        // The nearest are at the end.
        self.scored.sort_unstable_by(|a, b| Scored::nearer(b, a));
        let kept = self.scored.len() - wanted.min(self.scored.len());
        let choice = |scored: Scored| scanned[node_of(scanned, scored.place)].choice(&scored);
        self.scored.drain(kept..).rev().map(choice).collect()
    }

    /// Whether all that the scan found was scored, so that a wider one tells more.
    pub fn is_exhausted(&self) -> bool {
        self.taken == self.descent.reservoir.kept.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::inner::ChildCoder;
    use crate::tree::navigate::navigate;
    use crate::tree::navigate::tests::random_vectors;
    use crate::tree::topology::Topology;

    #[test]
    fn rounds_hand_out_every_leaf_once_and_the_nearest_first() {
        let kernels = Kernels::get().unwrap();
        let coder = ChildCoder::new(kernels, 128, false);
        let centroids = random_vectors(700, 128, 1);
        let groups: Vec<Vec<LeafId>> = (0..7).map(|group| (group * 100..(group + 1) * 100).collect()).collect();
        let flat = Topology::of_centroids(&coder, &centroids, 128).snapshot;
        let deep = Topology::of_groups(&coder, &centroids, &groups, 128).snapshot;
        let mut target = Target::new(128);
        target.aim_rotated(kernels, &random_vectors(1, 128, 2)[0]);
        for snapshot in [&flat, &deep] {
            for order in [Order::Distance, Order::Product, Order::Angle] {
                let exclude = [3, 99, 500];
                let mut rounds = Rounds::new(snapshot, kernels, &target, order, 700, &exclude);
                let mut given: Vec<LeafId> = Vec::new();
                for wanted in [10, 5, 40, 200, 700, 700] {
                    let choices = rounds.next(kernels, &target, order, wanted);
                    assert_eq!(choices.len(), wanted.min(697 - given.len()));
                    assert!(choices.is_sorted_by(|a, b| a.score <= b.score));
                    given.extend(choices.iter().map(|choice| choice.id));
                }
                assert!(rounds.is_exhausted());
                let beam = navigate(snapshot, kernels, &target, order, &Beam::exactly(55), &exclude);
                let near = beam.iter().filter(|choice| given[..55].contains(&choice.id)).count();
                assert!(near >= 53, "{near} of 55");
                given.sort_unstable();
                let every: Vec<LeafId> = (0..700).filter(|id| !exclude.contains(id)).collect();
                assert_eq!(given, every);
            }
        }
    }

    #[test]
    fn a_scan_for_few_leaves_is_exhausted_early() {
        let kernels = Kernels::get().unwrap();
        let snapshot = Topology::of_centroids(&ChildCoder::new(kernels, 128, false), &random_vectors(700, 128, 3), 128).snapshot;
        let mut target = Target::new(128);
        target.aim_rotated(kernels, &random_vectors(1, 128, 4)[0]);
        let mut rounds = Rounds::new(&snapshot, kernels, &target, Order::Distance, 20, &[]);
        assert_eq!(rounds.next(kernels, &target, Order::Distance, 10).len(), 10);
        assert!(!rounds.is_exhausted());
        rounds.next(kernels, &target, Order::Distance, 10);
        assert!(rounds.is_exhausted());
    }
}
