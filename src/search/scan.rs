//! One query: leaves nearest first, candidates by bounds, then the exact distances of those that may be among the k nearest.
//!
//! A row may be met twice, in its owner and in its spilled copy: the first meeting counts. Dead rows don't occur, a snapshot lists none.
//! While leaves are scanned the limit is the k-th smallest **upper** bound, so that no exact distance is needed; then candidates are
//! reranked in the order of their estimates, and whose lower bound is above the k-th exact distance is passed over. So few vectors are
//! read, and the reads of the next ones can be started early.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::front::Front;
use super::rank::Room;
use super::seen::Seen;
use super::spread::Team;
use super::target::Stop;
use super::topk::TopK;
use crate::error::Result;
use crate::filter::Filter;
use crate::ids::LeafId;
use crate::kernel::{BLOCK, ScanLimit, prefetch};
use crate::metric::Metric;
use crate::params::{Beam, Rerank};
use crate::quantize::Form;
use crate::tree::aim::Target;
use crate::tree::block::Block;
use crate::tree::leaf::{Leaf, lanes};
use crate::tree::navigate::{Choice, Order, navigate};
use crate::tree::rounds::Rounds;
use crate::tree::snapshot::Snapshot;
use crate::tree::store::Store;
use crate::value::QuerySums;
use crate::vectors::Row;

/// What a query asks for, beside its vector.
#[derive(Debug, Clone)]
pub struct Request<'a> {
    /// Neighbours wanted.
    pub k: usize,
    /// Which leaves are scanned, if nothing else says when it is enough.
    pub beam: Beam,
    /// When it is enough, in place of the beam.
    pub stop: Option<Stop>,
    /// How candidates are compared.
    pub rerank: Rerank,
    /// Deviations that [`Rerank::Bound`] keeps away from an estimate.
    pub epsilon: f32,
    /// Which ids count.
    pub filter: Option<&'a Filter>,
    /// A row that doesn't count.
    pub without: Option<Row>,
}

impl Request<'_> {
    /// Candidates that decide what may still be among the k nearest.
    pub(super) fn wanted(&self) -> usize {
        match self.rerank {
            Rerank::Bound | Rerank::Estimate => self.k,
            Rerank::Factor(factor) => self.k.saturating_mul(factor),
        }
    }

    /// Keeps that many.
    pub(super) fn selector(&self) -> TopK {
        TopK::new(self.wanted())
    }

    /// Whether `candidate` is compared exactly where the k-th exact distance so far is that of `best`.
    pub(super) fn compares(&self, candidate: &Candidate, best: &TopK) -> bool {
        self.rerank != Rerank::Bound || candidate.may_pass(best.worst())
    }
}

/// What a query cost.
#[derive(Debug, Clone, Copy, Default)]
pub struct Cost {
    /// Codes scanned.
    pub scanned: u64,
    /// Vectors compared exactly.
    pub reranked: u64,
    /// Leaves scanned.
    pub leaves: u64,
    /// Time to prepare the query and to choose leaves.
    pub route: Duration,
    /// Time to scan their posting lists.
    pub scan: Duration,
    /// Time to compare candidates exactly.
    pub rerank: Duration,
}

impl std::ops::AddAssign for Cost {
    fn add_assign(&mut self, other: Self) {
        self.scanned += other.scanned;
        self.reranked += other.reranked;
        self.leaves += other.leaves;
        self.route += other.route;
        self.scan += other.scan;
        self.rerank += other.rerank;
    }
}

/// A row that may be among the k nearest.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub estimate: f32,
    pub lower: f32,
    pub row: Row,
    /// The leaf in which it was met, counted from 0.
    pub leaf: u32,
}

impl Candidate {
    /// Whether it is not known to be beyond `limit`. NaN bounds (overflowing vectors) pass.
    #[inline]
    pub fn may_pass(&self, limit: f32) -> bool {
        self.lower <= limit || self.lower.is_nan()
    }
}

/// Answers queries one after the other, with its own scratch.
pub struct Searcher<'a> {
    pub(super) store: &'a Store,
    pub(super) prepared: Vec<f32>,
    pub(super) room: Room,
    pub(super) target: Target,
    /// What comparing the target's vector with codes needs, where rows are codes.
    pub(super) sums: QuerySums,
    pub(super) seen: Seen,
    pub(super) candidates: Vec<Candidate>,
    /// Says when it is enough, where the beam doesn't.
    pub(super) front: Option<Front>,
    pub(super) cost: Cost,
    /// Whom a large query is shared with.
    pub(super) team: Option<Team<'a>>,
    /// What is beyond is known not to count.
    pub(super) ceiling: f32,
    /// Whether all that is met is kept for another searcher, which takes it in: a row's second meeting too.
    pub(super) helps: bool,
    /// Of a searcher that helps: the places of leaves where the filter turned rows away, and how many.
    pub(super) refused: Vec<(u32, u32)>,
}

/// Leaves whose way from memory is begun together: each step of it is a read that depends on the one before.
const LEAVES_AT_ONCE: usize = 64;
/// Leaves that a search with a recall target asks for at first, at least, and in each later round; else half of those that it should take,
/// and then half as many again as it has scanned.
const LEAVES_AT_FIRST: usize = 16;
/// A scan of the centroids serves so many times the leaves that it should take; the few searches that go on beyond scan them anew.
const ROUND_REACH: usize = 3;
/// Blocks ahead that are fetched while one is scanned.
const BLOCKS_AHEAD: usize = 3;

impl<'a> Searcher<'a> {
    /// A searcher over `store`.
    pub fn new(store: &'a Store) -> Self {
        Self::aimed(store, Target::new(store.padded()))
    }

    /// One that needs no aim.
    pub(super) fn aimed(store: &'a Store, target: Target) -> Self {
        Self {
            store,
            prepared: vec![0.0; store.vectors.dim()],
            room: Room::default(),
            target,
            sums: QuerySums::default(),
            seen: Seen::default(),
            candidates: Vec::new(),
            front: None,
            cost: Cost::default(),
            team: None,
            ceiling: f32::INFINITY,
            helps: false,
            refused: Vec::new(),
        }
    }

    /// Writes the neighbours of `query` (checked, not prepared) in `snapshot`.
    pub fn search(
        &mut self,
        snapshot: &Snapshot,
        query: &[f32],
        request: &Request<'_>,
        ids: &mut [i64],
        distances: &mut [f32],
    ) -> Result<Cost> {
        let began = Instant::now();
        self.begin(query);
        let limit = match &request.stop {
            None => self.collect(snapshot, request)?,
            Some(stop) => {
                self.front = Some(Front::new(&[stop.k], self.store, &self.target).until(stop.clone()));
                self.collect_to_target(snapshot, request, stop.leaves.max(LEAVES_AT_FIRST))?
            }
        };
        let collected = Instant::now();
        self.rank(request, limit)?.write_row(ids, distances);
        self.cost.rerank = collected.elapsed();
        self.cost.route = (collected - began).saturating_sub(self.cost.scan);
        Ok(self.cost)
    }

    pub(super) fn begin(&mut self, query: &[f32]) {
        let store = self.store;
        self.cost = Cost::default();
        self.prepared.copy_from_slice(query);
        store.metric.prepare(&mut self.prepared);
        self.target.aim(store.kernels, &store.rotation, &self.prepared);
        self.sums = store.vectors.codec().sums(&self.target.rotated);
        self.seen.clear();
        self.candidates.clear();
        self.front = None;
    }

    pub(super) fn id(&self, row: Row) -> Result<i64> {
        self.store.id(row)
    }

    /// Scans the leaves of the beam. It is drawn anew, wider, while there are fewer than k candidates; and while many of its leaves are
    /// thin, which are about to be merged: after a whole region was removed its leaves are still there for a moment, nearest to the
    /// query and nearly empty. They are scanned, but take no place in the beam and don't say how far it reaches.
    fn collect(&mut self, snapshot: &Snapshot, request: &Request<'_>) -> Result<f32> {
        let mut nearest = request.selector();
        let mut beam = request.beam.clone();
        let (mut visited, mut thin): (Vec<LeafId>, Vec<LeafId>) = Default::default();
        loop {
            let choices = navigate(snapshot, self.store.kernels, &self.target, self.store.order(), &beam, &thin);
            let fresh: Vec<Choice<'_>> = choices.iter().copied().filter(|choice| visited.binary_search(&choice.id).is_err()).collect();
            let began = Instant::now();
            self.scan_leaves(snapshot, &fresh, request, &mut nearest)?;
            self.cost.scan += began.elapsed();
            visited.extend(fresh.iter().map(|choice| choice.id));
            if visited.len() >= snapshot.leaves.len() {
                return Ok(nearest.worst());
            }
            let least = self.store.params.merge_threshold;
            let is_thin = |choice: &&Choice<'_>| snapshot.leaf(choice.id).is_none_or(|leaf| leaf.len() < least);
            let crowded = choices.first().is_none_or(|first| is_thin(&first)) || choices.iter().filter(is_thin).count() * 4 > choices.len();
            let few = nearest.len() < request.k;
            if !few && !crowded {
                return Ok(nearest.worst());
            }
            thin.extend(choices.iter().filter(is_thin).map(|choice| choice.id));
            thin.sort_unstable();
            visited.sort_unstable();
            beam.least = beam.least.saturating_mul(2);
            beam.most = beam.most.saturating_mul(2).max(16);
            if few || choices.is_empty() {
                beam = Beam::exactly(beam.most);
            }
        }
    }

    /// Scans the `most` nearest leaves.
    pub(super) fn collect_leaves(&mut self, snapshot: &Snapshot, request: &Request<'_>, most: usize) -> Result<f32> {
        let mut nearest = request.selector();
        let choices = navigate(snapshot, self.store.kernels, &self.target, self.store.order(), &Beam::exactly(most), &[]);
        self.scan_leaves(snapshot, &choices, request, &mut nearest)?;
        Ok(nearest.worst())
    }

    /// Scans leaves nearest first, in rounds, until the front says that it is enough; about `expected` should be.
    fn collect_to_target(&mut self, snapshot: &Snapshot, request: &Request<'_>, expected: usize) -> Result<f32> {
        let (kernels, order, every) = (self.store.kernels, self.store.order(), snapshot.leaves.len());
        let mut nearest = request.selector();
        let mut visited: Vec<LeafId> = Vec::new();
        let mut most = expected.saturating_mul(ROUND_REACH).min(every);
        let mut rounds = Rounds::new(snapshot, kernels, &self.target, order, most, &visited);
        let mut wanted = (expected / 2).max(LEAVES_AT_FIRST);
        loop {
            let choices = rounds.next(kernels, &self.target, order, wanted);
            let began = Instant::now();
            let enough = self.scan_leaves(snapshot, &choices, request, &mut nearest)?;
            self.cost.scan += began.elapsed();
            visited.extend(choices.iter().map(|choice| choice.id));
            if enough || visited.len() >= every || (choices.is_empty() && most == every) {
                return Ok(nearest.worst());
            }
            // With all nodes in the beam, none that is left is out of its sight: the rest is handed out to the end.
            if most < every && rounds.is_exhausted() {
                visited.sort_unstable();
                most = most.saturating_mul(ROUND_REACH).min(every);
                rounds = Rounds::new(snapshot, kernels, &self.target, order, most, &visited);
            }
            wanted = (visited.len() / 2).max(LEAVES_AT_FIRST);
        }
    }

    /// Scans leaves in their order; true as soon as the front says that it is enough.
    pub(super) fn scan_leaves(
        &mut self,
        snapshot: &Snapshot,
        choices: &[Choice<'_>],
        request: &Request<'_>,
        nearest: &mut TopK,
    ) -> Result<bool> {
        if let Some(team) = self.team_for(snapshot, choices.len()) {
            return self.scan_shared(team, snapshot, choices, request, nearest);
        }
        let mut rest = choices;
        while !rest.is_empty() {
            // A read from disk that turns out to be needless costs more than reads that wait for each other.
            let at_once = match &self.front {
                None => LEAVES_AT_ONCE,
                Some(front) if self.store.source.is_some() => front.group(),
                Some(front) => front.leaves().clamp(LEAVES_AT_ONCE / 2, LEAVES_AT_ONCE),
            };
            let (choices, others) = rest.split_at(at_once.min(rest.len()));
            rest = others;
            let leaves: Vec<(&Choice<'_>, &Leaf)> =
                choices.iter().filter_map(|choice| snapshot.leaf(choice.id).map(|leaf| (choice, &**leaf))).collect();
            leaves.iter().for_each(|(_, leaf)| prefetch(std::slice::from_ref(*leaf)));
            let stored: Vec<Option<Arc<Leaf>>> = leaves.iter().map(|(_, leaf)| self.store.stored_part(leaf)).collect::<Result<_>>()?;
            let mut parts: Vec<Part<'_>> = Vec::with_capacity(leaves.len());
            for ((choice, leaf), stored) in leaves.iter().zip(&stored) {
                if let Some(stored) = stored {
                    stored.prefetch_list();
                    parts.push(Part { choice, leaf, entries: stored, removed: leaf.removed(), begins: true });
                }
                leaf.prefetch_list();
                parts.push(Part { choice, leaf, entries: leaf, removed: &[], begins: stored.is_none() });
            }
            if self.scan_parts(&parts, request, nearest)? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Scans the blocks of all parts, those ahead on their way from memory; true as soon as the front says that it is enough.
    fn scan_parts(&mut self, parts: &[Part<'_>], request: &Request<'_>, nearest: &mut TopK) -> Result<bool> {
        let blocks: Vec<(usize, &Block, u32)> =
            parts.iter().enumerate().flat_map(|(i, part)| part.entries.blocks().map(move |(block, live)| (i, block, live))).collect();
        blocks.iter().take(BLOCKS_AHEAD).for_each(|(_, block, _)| prefetch(block.raw()));
        let mut limit = ScanLimit { add: 0.0, error: 0.0, limit: 0.0 };
        let mut entered = 0;
        for (i, &(number, block, live)) in blocks.iter().enumerate() {
            blocks.get(i + BLOCKS_AHEAD).iter().for_each(|(_, later, _)| prefetch(later.raw()));
            if entered <= number {
                if parts[entered..=number].iter().any(|part| self.ends_before(part)) {
                    return Ok(true);
                }
                (entered, limit) = (number + 1, self.limit_of(&parts[number], request));
            }
            self.scan_block(block, live, &parts[number], limit, request, nearest)?;
        }
        Ok(parts[entered..].iter().any(|part| self.ends_before(part)))
    }

    /// Whether the query has seen enough before `part`; if not, it is entered.
    fn ends_before(&mut self, part: &Part<'_>) -> bool {
        part.begins && self.ends_at(part.choice.score)
    }

    /// Whether the query has seen enough before a leaf of this score; if not, it is entered.
    pub(super) fn ends_at(&mut self, score: f32) -> bool {
        let ends = self.front.as_mut().is_some_and(|front| front.enter(score));
        self.cost.leaves += u64::from(!ends);
        ends
    }

    /// The query's squared distance to a leaf's reference, and their inner product.
    fn place(&self, choice: &Choice<'_>, leaf: &Leaf) -> (f32, f32) {
        let (kernels, rotated) = (self.store.kernels, &self.target.rotated);
        if !Arc::ptr_eq(choice.centroid, &leaf.reference) || self.store.order() == Order::Product {
            return ((kernels.l2)(rotated, &leaf.reference), (kernels.dot)(rotated, &leaf.reference));
        }
        // The leaf is coded against its routing centroid, so its score says it already.
        match self.store.order() {
            Order::Angle if choice.inverse > 0.0 => {
                let product = -choice.score / choice.inverse;
                ((self.target.norm + choice.norm - 2.0 * product).max(0.0), product)
            }
            Order::Angle => (self.target.norm, 0.0),
            _ => (choice.score, 0.5 * (self.target.norm + choice.norm - choice.score)),
        }
    }

    /// What the bounds of a leaf's entries are computed with, but for the limit.
    fn limit_of(&self, part: &Part<'_>, request: &Request<'_>) -> ScanLimit {
        let (distance, product) = self.place(part.choice, part.leaf);
        let add = match self.store.encoder.form() {
            Form::Distance => distance,
            Form::Product => -product,
        };
        // All numbers are distances of the metric. With bounds, what counts is what may be near; otherwise it is the estimate.
        let add = add + if self.store.metric == Metric::Cosine { 1.0 } else { 0.0 };
        ScanLimit {
            add,
            error: if request.rerank == Rerank::Bound { request.epsilon * distance.sqrt() } else { 0.0 },
            limit: f32::INFINITY,
        }
    }

    fn scan_block(
        &mut self,
        block: &Block,
        live: u32,
        part: &Part<'_>,
        limit: ScanLimit,
        request: &Request<'_>,
        nearest: &mut TopK,
    ) -> Result<()> {
        let (mut estimates, mut lowers) = ([0.0f32; BLOCK], [0.0f32; BLOCK]);
        let limit = ScanLimit { limit: nearest.worst().min(self.ceiling), ..limit };
        let passed = (self.store.kernels.scan)(&self.target.table(), &block.codes(), &limit, &mut estimates, &mut lowers) & live;
        self.cost.scanned += u64::from(live.count_ones());
        for place in lanes(passed) {
            let (estimate, row) = (estimates[place], block.items()[place]);
            let lower = if request.rerank == Rerank::Bound { lowers[place] } else { estimate };
            if lower > nearest.worst().min(self.ceiling) || part.removed.binary_search(&row).is_ok() {
                continue;
            }
            if !self.accepts(request.filter, row)? {
                self.refuse();
                continue;
            }
            if request.without != Some(row) {
                self.admit(estimate, lower, row, nearest);
            }
        }
        Ok(())
    }

    /// Notes that the filter turned a row away that might have been near.
    fn refuse(&mut self) {
        self.front.iter_mut().for_each(|front| front.refuse(1));
        if self.helps {
            let leaf = self.leaf();
            match self.refused.last_mut() {
                Some((last, count)) if *last == leaf => *count += 1,
                _ => self.refused.push((leaf, 1)),
            }
        }
    }

    /// The place of the leaf that was entered last.
    fn leaf(&self) -> u32 {
        self.cost.leaves.saturating_sub(1) as u32
    }

    /// Takes a row in that may be among the nearest, if it is met for the first time.
    #[inline]
    pub(super) fn admit(&mut self, estimate: f32, lower: f32, row: Row, nearest: &mut TopK) {
        let is_new = self.seen.insert(row);
        if is_new {
            nearest.push(2.0 * estimate - lower, i64::from(row));
            self.front.iter_mut().for_each(|front| front.meet(estimate, row));
        }
        // Its first meeting may be beyond the limit of the searcher that is helped, and the second one not.
        if is_new || self.helps {
            self.candidates.push(Candidate { estimate, lower, row, leaf: self.leaf() });
        }
    }

    fn accepts(&self, filter: Option<&Filter>, row: Row) -> Result<bool> {
        filter.map_or(Ok(true), |filter| Ok(filter.accepts(self.id(row)?)))
    }
}

/// Entries of a leaf that lie together: those on disk, or those in memory.
struct Part<'s> {
    choice: &'s Choice<'s>,
    leaf: &'s Leaf,
    entries: &'s Leaf,
    /// Entries that don't count.
    removed: &'s [Row],
    /// Whether it is the first of its leaf.
    begins: bool,
}
