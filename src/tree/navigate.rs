//! From a query to its leaves: at each level the children are scanned by their codes, the best are scored by their fine codes, and a beam
//! goes on.
//!
//! The beam keeps, of the children sorted by score, those within `tau` times the best distance, at least `least`, at most `most`
//! (and at least a percentage of the level's width where a rule says so). `tau` acts on true distances. For inner products, which have no
//! natural zero, the distance is that of the augmented vectors: `sqrt(|q|^2 + M^2 - 2 <q, c>)` with `M` the largest norm among the
//! candidates.

use super::Centroid;
use super::aim::Target;
use super::inner::{ChildBlock, Facts, Inner, NodeId, largest, nearest_whole};
use super::snapshot::Snapshot;
use crate::ids::LeafId;
use crate::kernel::{BLOCK, CodeBlock, Kernels, Lanes, ScanLimit, prefetch};
use crate::params::Beam;
use crate::tree::leaf::lanes;

/// What is nearest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The least distance.
    Distance,
    /// The largest inner product.
    Product,
    /// The smallest angle. Rows of unit length have shorter centroids the more they are spread, and a short centroid seems nearer to
    /// everything; only its direction says where its rows are.
    Angle,
}

impl Order {
    /// The score of a centroid: smaller is nearer. `inverse` is one over its norm.
    #[inline]
    pub fn score(self, kernels: &Kernels, point: &[f32], centroid: &[f32], inverse: f32) -> f32 {
        match self {
            Order::Distance => (kernels.l2)(point, centroid),
            Order::Product => -(kernels.dot)(point, centroid),
            Order::Angle => -(kernels.dot)(point, centroid) * inverse,
        }
    }
}

/// A node that was reached.
#[derive(Debug, Clone, Copy)]
pub struct Choice<'s> {
    /// The score by [`Order`]; smaller is nearer.
    pub score: f32,
    /// The node.
    pub id: NodeId,
    /// Its routing centroid.
    pub centroid: &'s Centroid,
    /// The centroid's squared norm.
    pub norm: f32,
    /// One over its norm.
    pub inverse: f32,
}

/// A child that may be among the best of its level: its estimate, and its place among all children that were scanned.
#[derive(Clone, Copy)]
pub(super) struct Candidate {
    pub(super) estimate: f32,
    place: u32,
}

/// The best `room` candidates by estimate, kept with a buffer of as many so that selection is rare.
pub(super) struct Reservoir {
    room: usize,
    limit: f32,
    pub(super) kept: Vec<Candidate>,
}

impl Reservoir {
    fn new(room: usize) -> Self {
        Self { room, limit: f32::INFINITY, kept: Vec::with_capacity(2 * room.min(256)) }
    }

    #[inline]
    fn push(&mut self, candidate: Candidate) {
        self.kept.push(candidate);
        if self.kept.len() >= 2 * self.room {
            self.trim();
        }
    }

    pub(super) fn trim(&mut self) {
        if self.kept.len() > self.room {
            let (_, last, _) = self.kept.select_nth_unstable_by(self.room - 1, |a, b| a.estimate.total_cmp(&b.estimate));
            self.limit = last.estimate;
            self.kept.truncate(self.room);
        }
    }
}

/// A node whose children are scanned, with the query's side of their fine codes.
pub(super) struct Scanned<'s> {
    inner: &'s Inner,
    /// The place of its first child.
    start: usize,
    /// The query's squared distance to the node's reference.
    distance: f32,
    /// Multiplies an integer product.
    scale: f32,
}

impl<'s> Scanned<'s> {
    /// Writes the query's residual to `fine`, in the range that keeps products exact.
    fn new(inner: &'s Inner, start: usize, target: &Target, kernels: &Kernels, fine: &mut Vec<i16>) -> Self {
        let padded = target.rotated.len();
        let residual: Vec<f32> = target.rotated.iter().zip(inner.reference.iter()).map(|(q, c)| q - c).collect();
        let largest = largest(&residual);
        let most = (i32::MAX as usize / (128 * padded.max(1))).min(i16::MAX as usize) as f32;
        let inverse = if largest > 0.0 { most / largest } else { 0.0 };
        fine.extend(residual.iter().map(|x| nearest_whole(x * inverse) as i16));
        Self { inner, start, distance: (kernels.l2)(&target.rotated, &inner.reference), scale: largest / most }
    }

    /// The child at `place` (as a [`Candidate`] has it): its block, and its place there.
    #[inline]
    fn child(&self, place: u32) -> (&'s ChildBlock, usize) {
        let place = place as usize - self.start;
        (&self.inner.blocks()[place / BLOCK], place % BLOCK)
    }

    /// The score of a child by its fine code; `fine` is what [`Scanned::new`] wrote.
    fn score(&self, place: u32, fine: &[i16], target: &Target, kernels: &Kernels, order: Order) -> Scored {
        let (block, at) = self.child(place);
        let facts = &block.facts[at];
        let product = (kernels.dot_bytes)(fine, block.fine(at)) as f32 * self.scale * facts.scale;
        let distance = (self.distance + facts.square - 2.0 * product).max(0.0);
        let score = match order {
            Order::Distance => distance,
            Order::Product => 0.5 * (distance - facts.norm - target.norm),
            Order::Angle if facts.inverse > 0.0 => 0.5 * (distance - 1.0 - target.norm),
            Order::Angle => 0.0,
        };
        Scored { score, id: facts.id, place }
    }

    /// A child that was scored.
    pub(super) fn choice(&self, scored: &Scored) -> Choice<'s> {
        let (block, at) = self.child(scored.place);
        let Facts { norm, inverse, .. } = block.facts[at];
        Choice { score: scored.score, id: scored.id, centroid: &block.centroids[at], norm, inverse }
    }
}

/// A child with the score of its fine code.
#[derive(Clone, Copy)]
pub(super) struct Scored {
    score: f32,
    id: NodeId,
    pub(super) place: u32,
}

impl Scored {
    /// By score, and of equal ones by number.
    pub(super) fn nearer(a: &Self, b: &Self) -> std::cmp::Ordering {
        a.score.total_cmp(&b.score).then(a.id.cmp(&b.id))
    }
}

/// The leaves of a query, nearest first. The leaves of `exclude`, ascending, are passed over.
pub fn navigate<'s>(
    snapshot: &'s Snapshot,
    kernels: &Kernels,
    target: &Target,
    order: Order,
    beam: &Beam,
    exclude: &[LeafId],
) -> Vec<Choice<'s>> {
    let Descent { scanned, fine, reservoir, rule } = descend(snapshot, kernels, target, order, beam, exclude);
    rescore(kernels, reservoir, &scanned, &fine, target, order, &rule)
}

/// Where a descent has come to: nodes whose children were scanned and not yet scored, which are leaves at the end.
pub(super) struct Descent<'s> {
    pub(super) scanned: Vec<Scanned<'s>>,
    /// The query's side of the fine codes of each of them, one after the other.
    pub(super) fine: Vec<i16>,
    pub(super) reservoir: Reservoir,
    rule: LevelBeam,
}

/// Down to where the leaves have been scanned.
pub(super) fn descend<'s>(
    snapshot: &'s Snapshot,
    kernels: &Kernels,
    target: &Target,
    order: Order,
    beam: &Beam,
    exclude: &[LeafId],
) -> Descent<'s> {
    let mut nodes = vec![snapshot.root];
    let levels = snapshot.levels() as usize;
    let mut depth = 0;
    loop {
        let at_leaves = depth + 1 >= levels;
        let width = if at_leaves { snapshot.leaves.len() } else { nodes_at(snapshot, depth) };
        let rule = LevelBeam::new(beam, depth, width);
        let mut reservoir = rule.reservoir(target, width);
        let mut scanned: Vec<Scanned<'_>> = Vec::with_capacity(nodes.len());
        let mut fine = Vec::with_capacity(nodes.len() * target.rotated.len());
        for inner in nodes.iter().filter_map(|&id| snapshot.inner(id)) {
            let start = scanned.last().map_or(0, |last| last.start + last.inner.blocks().len() * BLOCK);
            let node = Scanned::new(inner, start, target, kernels, &mut fine);
            scan_children(kernels, &node, target, order, if at_leaves { exclude } else { &[] }, &mut reservoir);
            scanned.push(node);
        }
        if at_leaves {
            return Descent { scanned, fine, reservoir, rule };
        }
        nodes = rescore(kernels, reservoir, &scanned, &fine, target, order, &rule).iter().map(|choice| choice.id).collect();
        depth += 1;
    }
}

/// [`navigate`] for several targets. Each block of children is read once for all of them where the leaves lie under one node: a level that
/// doesn't fit the processor's caches is read from memory anew for each target otherwise.
pub fn navigate_together<'s>(
    snapshot: &'s Snapshot,
    kernels: &Kernels,
    targets: &[Target],
    order: Order,
    beam: &Beam,
    exclude: &[LeafId],
) -> Vec<Vec<Choice<'s>>> {
    let root = match snapshot.inner(snapshot.root) {
        Some(root) if snapshot.levels() == 1 && targets.len() > 1 => root,
        _ => return targets.iter().map(|target| navigate(snapshot, kernels, target, order, beam, exclude)).collect(),
    };
    let width = snapshot.leaves.len();
    let rule = LevelBeam::new(beam, 0, width);
    let begin = |target: &Target| {
        let mut fine = Vec::with_capacity(target.rotated.len());
        let node = Scanned::new(root, 0, target, kernels, &mut fine);
        (node, fine, rule.reservoir(target, width))
    };
    let mut searches: Vec<_> = targets.iter().map(begin).collect();
    for number in 0..root.blocks().len() {
        for (target, (node, _, reservoir)) in targets.iter().zip(&mut searches) {
            scan_block(kernels, node, number, target, order, exclude, reservoir);
        }
    }
    let finish = |(target, (node, fine, reservoir)): (&Target, (Scanned<'s>, Vec<i16>, Reservoir))| {
        rescore(kernels, reservoir, &[node], &fine, target, order, &rule)
    };
    targets.iter().zip(searches).map(finish).collect()
}

/// The width of level `depth` below the root, above the leaves: trees are shallow, and only percentage floors at such levels ask.
fn nodes_at(snapshot: &Snapshot, depth: usize) -> usize {
    let level = snapshot.levels() as usize - 1 - depth;
    snapshot.inners.iter().filter(|(_, inner)| inner.level as usize == level).count()
}

fn scan_children(kernels: &Kernels, node: &Scanned<'_>, target: &Target, order: Order, exclude: &[LeafId], reservoir: &mut Reservoir) {
    let blocks = node.inner.blocks();
    for number in 0..blocks.len() {
        if let Some(next) = blocks.get(number + 1) {
            prefetch(next.block.raw());
        }
        scan_block(kernels, node, number, target, order, exclude, reservoir);
    }
}

fn scan_block(
    kernels: &Kernels,
    node: &Scanned<'_>,
    number: usize,
    target: &Target,
    order: Order,
    exclude: &[LeafId],
    reservoir: &mut Reservoir,
) {
    let (table, block) = (target.table(), &node.inner.blocks()[number]);
    let (mut estimates, mut lowers) = ([0.0; BLOCK], [0.0; BLOCK]);
    // Estimates decide here, not bounds: what they confuse is mended by scoring twice as many better as are kept. Under angles the
    // children's directions are coded, so distances have the right order.
    let limit = if order == Order::Product { f32::INFINITY } else { reservoir.limit };
    let limit = ScanLimit { add: node.distance, error: 0.0, limit };
    let codes = block.block.codes();
    let codes = CodeBlock { codes: &codes.codes[..table.table.len()], ..codes };
    let passed = (kernels.scan)(&table, &codes, &limit, &mut estimates, &mut lowers) & block.mask();
    if order == Order::Product {
        to_products(block, &mut estimates);
    }
    for place in lanes(passed) {
        // What is not a number (rows so long that their squares overflow) is kept: every row must find a leaf.
        let beyond = estimates[place] > reservoir.limit;
        if !beyond && (exclude.is_empty() || exclude.binary_search(&block.block.items()[place]).is_err()) {
            reservoir.push(Candidate { estimate: estimates[place], place: (node.start + number * BLOCK + place) as u32 });
        }
    }
}

/// `-<q, c> = (|q - c|^2 - |c|^2 - |q|^2) / 2`, without the last term, which all children share.
fn to_products(block: &ChildBlock, estimates: &mut Lanes) {
    for (estimate, facts) in estimates.iter_mut().zip(&block.facts) {
        *estimate = 0.5 * (*estimate - facts.norm);
    }
}

/// Candidates ahead whose fine code is fetched while one is scored.
const AHEAD: usize = 8;

/// Scores `candidates` by their fine codes, and adds them to `scored`.
pub(super) fn score_all(
    kernels: &Kernels,
    candidates: &[Candidate],
    scanned: &[Scanned<'_>],
    fine: &[i16],
    target: &Target,
    order: Order,
    scored: &mut Vec<Scored>,
) {
    let padded = target.rotated.len();
    let begin = |candidate: &Candidate| {
        let (block, at) = scanned[node_of(scanned, candidate.place)].child(candidate.place);
        prefetch(&block.facts[at..=at]);
        prefetch(block.fine(at));
    };
    candidates.iter().take(AHEAD).for_each(begin);
    for (i, &Candidate { place, .. }) in candidates.iter().enumerate() {
        candidates.get(i + AHEAD).iter().for_each(|later| begin(later));
        let node = node_of(scanned, place);
        scored.push(scanned[node].score(place, &fine[node * padded..(node + 1) * padded], target, kernels, order));
    }
}

/// The number of the node among whose children `place` is.
pub(super) fn node_of(scanned: &[Scanned<'_>], place: u32) -> usize {
    scanned.partition_point(|node| node.start <= place as usize) - 1
}

fn rescore<'s>(
    kernels: &Kernels,
    mut reservoir: Reservoir,
    scanned: &[Scanned<'s>],
    fine: &[i16],
    target: &Target,
    order: Order,
    rule: &LevelBeam,
) -> Vec<Choice<'s>> {
    reservoir.trim();
    let mut scored = Vec::with_capacity(reservoir.kept.len());
    score_all(kernels, &reservoir.kept, scanned, fine, target, order, &mut scored);
    scored.sort_unstable_by(Scored::nearer);
    let choice = |scored: &Scored| scanned[node_of(scanned, scored.place)].choice(scored);
    let largest = match order {
        Order::Product => scored.iter().fold(0.0f32, |largest, scored| largest.max(choice(scored).norm)),
        _ => 0.0,
    };
    let squared = |score: f32| match order {
        Order::Distance => score,
        Order::Product => (target.norm + largest + 2.0 * score).max(0.0),
        Order::Angle => (2.0 + 2.0 * score).max(0.0),
    };
    let within = scored.first().map_or(0.0, |best| squared(best.score).max(1e-30)) * rule.tau * rule.tau;
    let near = scored.partition_point(|scored| squared(scored.score) <= within);
    scored.truncate(near.clamp(rule.least, rule.most));
    scored.iter().map(choice).collect()
}

/// Children that are told apart by their fine codes, so that of the `wanted` nearest few are missing.
pub(super) fn room(target: &Target, wanted: usize) -> usize {
    let (factor, more) = if target.is_coarse() { (4, 24) } else { (2, 8) };
    wanted.saturating_mul(factor).saturating_add(more)
}

/// A [`Beam`] at one level.
struct LevelBeam {
    tau: f32,
    least: usize,
    most: usize,
}

impl LevelBeam {
    fn new(beam: &Beam, depth: usize, width: usize) -> Self {
        let rule = beam.levels.get(depth).copied().unwrap_or_default();
        let most = rule.most.unwrap_or(beam.most).max(1);
        let percent = rule.least_percent.map_or(0, |percent| (width as f32 * percent / 100.0).ceil() as usize);
        let least = rule.least.unwrap_or(beam.least).max(percent).clamp(1, most);
        Self { tau: rule.tau.unwrap_or(beam.tau), least, most }
    }

    /// With [`room`] for those that are kept.
    fn reservoir(&self, target: &Target, width: usize) -> Reservoir {
        Reservoir::new(room(target, self.most).min(width))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::tree::inner::ChildCoder;
    use crate::tree::topology::Topology;
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    pub(in crate::tree) fn random_vectors(count: usize, dim: usize, seed: u64) -> Vec<Centroid> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..count).map(|_| (0..dim).map(|_| random.random::<f32>() - 0.5).collect()).collect()
    }

    /// In how many of 200 cases `target` finds the centroid that a point was made of.
    fn found(dim: usize, mut target: Target) -> usize {
        let kernels = Kernels::get().unwrap();
        let centroids = random_vectors(2000, dim, 1);
        let snapshot = Topology::of_centroids(&ChildCoder::new(kernels, dim, false), &centroids, dim).snapshot;
        let beam = Beam { tau: 1.0, least: 1, most: 1, levels: Vec::new() };
        let noise = random_vectors(200, dim, 2);
        let near = |(i, noise): (usize, &Centroid)| {
            let point: Vec<f32> = centroids[i * 10].iter().zip(noise.iter()).map(|(c, n)| c + 2.0 * n).collect();
            target.aim_rotated(kernels, &point);
            navigate(&snapshot, kernels, &target, Order::Distance, &beam, &[])[0].id as usize == i * 10
        };
        noise.iter().enumerate().map(near).filter(|found| *found).count()
    }

    #[test]
    fn a_coarse_target_nearly_finds_what_a_whole_one_does() {
        let (whole, coarse) = (found(1024, Target::new(1024)), found(1024, Target::coarse(1024)));
        assert!(whole >= 199 && (190..=200).contains(&coarse), "{whole} and {coarse} of 200");
        assert!(Target::coarse(1024).is_coarse() && !Target::coarse(512).is_coarse() && !Target::coarse(64).is_coarse());
    }

    #[test]
    fn together_is_as_one_by_one() {
        let kernels = Kernels::get().unwrap();
        let centroids = random_vectors(700, 64, 3);
        let coder = ChildCoder::new(kernels, 64, false);
        let flat = Topology::of_centroids(&coder, &centroids, 64).snapshot;
        let groups: Vec<Vec<LeafId>> = (0..7).map(|group| (group * 100..(group + 1) * 100).collect()).collect();
        let deep = Topology::of_groups(&coder, &centroids, &groups, 64).snapshot;
        let aimed = |point: &Centroid| {
            let mut target = Target::new(64);
            target.aim_rotated(kernels, point);
            target
        };
        let targets: Vec<Target> = random_vectors(9, 64, 4).iter().map(aimed).collect();
        let beam = Beam { tau: 1.2, least: 3, most: 20, levels: Vec::new() };
        let scores = |choices: &[Choice<'_>]| choices.iter().map(|choice| (choice.id, choice.score)).collect::<Vec<_>>();
        for snapshot in [&flat, &deep] {
            for order in [Order::Distance, Order::Product, Order::Angle] {
                let together = navigate_together(snapshot, kernels, &targets, order, &beam, &[5, 17]);
                for (target, choices) in targets.iter().zip(together) {
                    let alone = navigate(snapshot, kernels, target, order, &beam, &[5, 17]);
                    assert_eq!(scores(&alone), scores(&choices));
                    assert!((3..=20).contains(&choices.len()));
                }
            }
        }
    }
}
