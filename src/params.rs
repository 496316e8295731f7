//! Every tunable of the tree: default, unit, reason and source. [`Params::validate`] is the only gate.

use std::sync::{Arc, OnceLock};

use crate::error::{Error, Result};
use crate::filter::Filter;
use crate::value::ValueType;

/// Options of an index, fixed when it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Further postings of a row, 0 or 1. One spilled copy (SOAR) scans 2 to 2.6 times fewer rows at equal recall.
    pub spill: usize,
    /// A leaf with more postings than this is split.
    pub split_threshold: usize,
    /// A leaf with fewer postings than this is merged into its neighbours; 0 merges empty leaves only.
    pub merge_threshold: usize,
    /// An internal node with more children than this is split. Wide nodes scanned with codes beat narrow nodes with a beam: on real text
    /// embeddings nodes lose 0.01 to 0.06 of recall unless half of all centroids are scanned.
    pub branching: usize,
    /// Neighbouring leaves that are examined for rows to move after a split (LIRE).
    pub reassign_neighbours: usize,
    /// How stored vectors keep their values.
    pub storage: ValueType,
    /// Seed of the rotation and of every clustering.
    pub seed: u64,
    /// Threads for batches and for balancing; `None`: the cores this process may use.
    pub threads: Option<usize>,
    /// Balance in background threads. Off, only `balance()` balances (tests, experiments).
    pub background: bool,
}

impl Default for Params {
    fn default() -> Self {
        Self {
            spill: 1,
            split_threshold: 192,
            merge_threshold: 24,
            branching: 65_536,
            reassign_neighbours: 32,
            storage: ValueType::F32,
            seed: 0,
            threads: None,
            background: true,
        }
    }
}

impl Params {
    /// Refuses what can't work.
    pub fn validate(&self) -> Result<()> {
        let in_range = |argument, value: usize, least: usize, most: usize| {
            if (least..=most).contains(&value) {
                return Ok(());
            }
            Err(Error::invalid(argument, format!("a whole number from {least} to {most}"), value.to_string()))
        };
        in_range("spill", self.spill, 0, 1)?;
        in_range("split_threshold", self.split_threshold, 8, 1 << 20)?;
        // A split leaves at least a quarter on each side; a merge of such a side at once would undo it.
        in_range("merge_threshold", self.merge_threshold, 0, self.split_threshold / 4)?;
        in_range("branching", self.branching, 4, 1 << 20)?;
        in_range("reassign_neighbours", self.reassign_neighbours, 0, 1 << 16)?;
        in_range("threads", self.threads.unwrap_or(1), 1, MAX_THREADS)
    }

    /// The threads to use: what was asked for, or the cores this process may use (affinity and cgroup).
    pub fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(available_threads)
    }
}

/// The cores this process may use, counted once: to count them means to read files, which takes as long as a search.
pub fn available_threads() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    *COUNT.get_or_init(|| std::thread::available_parallelism().map_or(1, usize::from))
}

/// How a search chooses leaves: at each level the children within `tau` times the best distance, at least `least`, at most `most`.
#[derive(Debug, Clone, PartialEq)]
pub struct Beam {
    /// Factor (>= 1) on the true distance of the nearest child.
    pub tau: f32,
    /// Never fewer children than this (where there are as many).
    pub least: usize,
    /// Never more than this.
    pub most: usize,
    /// Overrides by level, the root's children first; a missing entry means the general rule.
    pub levels: Vec<LevelRule>,
}

/// One level's exceptions from a [`Beam`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct LevelRule {
    /// Instead of [`Beam::tau`].
    pub tau: Option<f32>,
    /// Instead of [`Beam::least`].
    pub least: Option<usize>,
    /// Instead of [`Beam::most`].
    pub most: Option<usize>,
    /// A floor in percent of the level's nodes, beside `least`; the larger counts.
    pub least_percent: Option<f32>,
}

/// Which candidates are compared by their stored vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Rerank {
    /// All whose lower bound is not above the k-th best (adaptive).
    #[default]
    Bound,
    /// The best `factor * k` estimates.
    Factor(usize),
    /// None: estimates are returned.
    Estimate,
}

impl Default for Beam {
    /// A beam that finds about 0.97 of the ten nearest among 200,000 real text embeddings, 0.94 where queries are of another kind than
    /// rows (see `benchmarks/`). A smaller share of a small index is missed, a larger one of a large index.
    fn default() -> Self {
        Self { tau: 1.6, least: 16, most: 64, levels: Vec::new() }
    }
}

impl Beam {
    /// The nearest `leaves`, however far they are.
    pub fn exactly(leaves: usize) -> Self {
        let leaves = leaves.max(1);
        Self { tau: f32::MAX, least: leaves, most: leaves, levels: Vec::new() }
    }
}

/// How many deviations a bound keeps away from its estimate, where nothing else is said. The error is nearly normal, so a one-sided bound
/// at 2.4 fails for about 0.8 % of the entries; what fails is lost only if it is among the nearest and the k-th distance lies between. On
/// 200,000 real text embeddings that costs at most 0.001 of recall@10 (at 1.9, 0.003 to 0.005), for a fifth more exact distances than at 1.9.
pub const EPSILON: f32 = 2.4;

/// Most deviations that can be asked for.
const MOST_EPSILON: f32 = 16.0;

/// The largest `k`.
pub const MAX_K: usize = 1 << 20;

/// Options of one search.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SearchOptions {
    /// `tau` of the beam; `None` keeps the default.
    pub tau: Option<f32>,
    /// Least and most leaves that are scanned; `None` keeps the default.
    pub beam: Option<(usize, usize)>,
    /// Exceptions by level.
    pub levels: Vec<LevelRule>,
    /// The share (above 0, at most 1) of the true neighbours that is to be found on average, in place of `tau`, `beam` and `levels`.
    pub recall: Option<f32>,
    /// How candidates are compared.
    pub rerank: Rerank,
    /// Deviations that [`Rerank::Bound`] keeps away from an estimate; `None` keeps the default, [`EPSILON`].
    pub epsilon: Option<f32>,
    /// Ids that may, or may not, be returned.
    pub filter: Option<Arc<Filter>>,
    /// Threads for a batch; `None` keeps the index's.
    pub threads: Option<usize>,
}

impl SearchOptions {
    /// Refuses what can't work, and names it.
    pub fn validate(&self, k: usize) -> Result<()> {
        if k == 0 || k > MAX_K {
            return Err(Error::invalid("k", format!("a whole number from 1 to {MAX_K}"), k.to_string()));
        }
        self.validate_recall()?;
        let mut taus = self.levels.iter().filter_map(|level| level.tau).chain(self.tau);
        if let Some(tau) = taus.find(|tau| !(*tau >= 1.0 && tau.is_finite())) {
            return Err(Error::invalid("tau", "a finite number of at least 1", tau.to_string()));
        }
        let mut beams = self.levels.iter().map(|level| (level.least.unwrap_or(1), level.most.unwrap_or(usize::MAX))).chain(self.beam);
        if let Some((least, most)) = beams.find(|(least, most)| *least < 1 || most < least) {
            let expected = "at least 1, as a number of leaves or as (least, most) with least <= most";
            return Err(Error::invalid("beam", expected, format!("({least}, {most})")));
        }
        let mut percents = self.levels.iter().filter_map(|level| level.least_percent);
        if let Some(percent) = percents.find(|percent| !(0.0..=100.0).contains(percent)) {
            return Err(Error::invalid("levels", "least_percent from 0 to 100", percent.to_string()));
        }
        if self.rerank == Rerank::Factor(0) {
            return Err(Error::invalid("rerank", "\"bound\", a whole number of at least 1, or None", "0"));
        }
        if let Some(epsilon) = self.epsilon {
            if !(0.0..=MOST_EPSILON).contains(&epsilon) {
                return Err(Error::invalid("epsilon", format!("a number from 0 to {MOST_EPSILON}"), epsilon.to_string()));
            }
            if self.rerank != Rerank::Bound {
                return Err(Error::invalid("epsilon", "None, unless rerank=\"bound\"", epsilon.to_string()));
            }
        }
        let threads = self.threads.unwrap_or(1);
        if !(1..=MAX_THREADS).contains(&threads) {
            return Err(Error::invalid("threads", format!("a whole number from 1 to {MAX_THREADS}"), threads.to_string()));
        }
        Ok(())
    }

    fn validate_recall(&self) -> Result<()> {
        let Some(recall) = self.recall else { return Ok(()) };
        if !(recall > 0.0 && recall <= 1.0) {
            return Err(Error::invalid("recall", "a share of the true neighbours, above 0 and at most 1", recall.to_string()));
        }
        let others = [("tau", self.tau.is_some()), ("beam", self.beam.is_some()), ("levels", !self.levels.is_empty())];
        match others.iter().find(|(_, given)| *given) {
            Some((other, _)) => {
                Err(Error::invalid("recall", format!("no {other} beside it: it decides what is scanned"), format!("recall and {other}")))
            }
            None => Ok(()),
        }
    }

    /// The beam that these options mean.
    pub fn beam(&self) -> Beam {
        let default = Beam::default();
        let (least, most) = self.beam.unwrap_or((default.least, default.most));
        // A beam alone is a number of leaves: tau doesn't cut it short unless it is given too.
        let tau = self.tau.unwrap_or(if self.beam.is_some() { f32::MAX } else { default.tau });
        Beam { tau, least, most, levels: self.levels.clone() }
    }
}

/// Most threads of a pool.
pub const MAX_THREADS: usize = 1 << 10;
