//! Every tunable of the tree: default, unit, reason and source. [`Params::validate`] is the only gate.

use crate::error::{Error, Result};

/// Options of an index, fixed when it is made.
#[derive(Debug, Clone, PartialEq)]
pub struct Params {
    /// Further postings of a row, 0 or 1. One spilled copy (SOAR) scans 2 to 2.6 times fewer rows at equal recall.
    pub spill: usize,
    /// A leaf with more postings than this is split.
    pub split_threshold: usize,
    /// A leaf with fewer postings than this is merged into its neighbours; 0 merges empty leaves only.
    pub merge_threshold: usize,
    /// An internal node with more children than this is split. Wide nodes scanned with codes beat narrow nodes with a beam.
    pub branching: usize,
    /// Neighbouring leaves that are examined for rows to move after a split (LIRE).
    pub reassign_neighbours: usize,
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
            branching: 8192,
            reassign_neighbours: 32,
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
        in_range("threads", self.threads.unwrap_or(1), 1, 1 << 10)
    }

    /// The threads to use: what was asked for, or the cores this process may use (affinity and cgroup).
    pub fn thread_count(&self) -> usize {
        self.threads.unwrap_or_else(available_threads)
    }
}

/// The cores this process may use.
pub fn available_threads() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
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
    /// How candidates are compared.
    pub rerank: Rerank,
    /// Ids that may, or may not, be returned.
    pub filter: Option<Filter>,
    /// Threads for a batch; `None` keeps the index's.
    pub threads: Option<usize>,
}

/// Ids that may, or may not, be returned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Filter {
    /// Only these (unknown ids are ignored).
    Allow(Vec<i64>),
    /// All but these.
    Deny(Vec<i64>),
}
