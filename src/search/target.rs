//! When a search that was given a recall target has seen enough.
//!
//! The problem: how many leaves it takes to find 95 of 100 true neighbours differs between queries by a factor of hundreds, and on average
//! between kinds of queries by two or three; a number of leaves is right for none of them.
//! The rule of use: leaves are scanned nearest first. Between two of them a [`Sight`] says how the query stands, and a [`Stop`], which a
//! [`Table`] gives for a target and a number of neighbours, says whether it ends. A table is measured on the index's own rows
//! (see [`fit`](super::fit)) and holds for an index of about that size.
//! The hazard: what was measured holds on average over queries, not for each. And it is a forecast: queries unlike all rows are met
//! only as far as the distances of their neighbours tell.
//!
//! The forecast is a logistic regression of the share of the true neighbours that are still missing. It grows with the distance of the
//! k-th neighbour so far and with the distances of the leaves in which neighbours were found (those of a hard query are spread over many),
//! and sinks with the distance of the next leaf. A search ends where the forecast is at or below a limit, the one that gives the target as the
//! mean over all measured queries. Before, the weight of the k-th distance is raised until the harder third of them finds no less than all do: so
//! queries of another kind than the rows, which are harder, hardly find less either.
//!
//! Where the nearest leaf is farther than those of most rows, a forecast made of rows may be far off. There another must agree, by degrees, that
//! was made of queries put together from the values of several rows.
//!
//! | symbol | meaning |
//! |---|---|
//! | `s`, `m` | a [`Sight`] as numbers; the weights: the forecast's logit is `m . s` |
//! | limit | the logit at or below which a search ends, one for each of [`TARGETS`] |
//! | depth | a number of neighbours for which weights and limits were measured, one of [`DEPTHS`] |

use std::sync::Arc;

use crate::metric::Metric;
use crate::params::EPSILON;

/// Targets for which limits are measured; between them limits are interpolated.
pub const TARGETS: [f64; 9] = [0.5, 0.7, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999];
/// Numbers of neighbours that are measured; between them everything is interpolated. The last is for filters mostly.
pub const DEPTHS: [usize; 4] = [1, 10, 100, 1000];
/// Numbers of a [`Sight`].
pub const NUMBERS: usize = 6;
/// The place among them of the k-th distance so far,
pub const KTH: usize = 2;
/// and of the distance of the nearest leaf.
pub const FIRST: usize = 4;
/// With fewer rows every leaf is scanned: that takes as long as to choose.
pub const LEAST_ROWS: usize = 2048;

/// The part of what a target lets a search miss that may fall to the error bound; the rest lies in leaves that aren't scanned.
const BOUND_PART: f64 = 0.1;
/// Neighbours below which the bound isn't made narrower.
const FEW: usize = 10;
/// Deviations of the bound beyond which a search for a higher target gains nothing.
const MOST_EPSILON: f64 = 6.0;

/// The deviations that the bound keeps away from an estimate in a search for `recall`. The k-th distance is rarely so near that a row whose
/// bound fails is lost: about one in eight is. So the bound may fail for 0.8 of what may be missed, and where that share of a normal
/// distribution begins is this, within 0.02 from 0.9 to 0.999. At 0.9 a third fewer vectors are compared than with the default, [`EPSILON`].
///
/// That doesn't hold for fewer than 10 neighbours, of which the bounds of all other rows have many chances to exclude one, nor for inner
/// products, whose errors are large beside the differences between the nearest rows: at 1 neighbour of 0.9 up to 0.09 were lost. There the
/// default is the least.
pub fn epsilon(recall: f32, k: usize, metric: Metric) -> f32 {
    let missed = (1.0 - f64::from(recall)).max(f64::MIN_POSITIVE);
    let narrow = (1.6 * (-missed.ln()).sqrt() - 1.03).clamp(0.0, MOST_EPSILON) as f32;
    if k < FEW || metric == Metric::Ip { narrow.max(EPSILON) } else { narrow }
}

/// What must be found in leaves, so that with what falls to the bound it is `recall`.
pub fn in_leaves(recall: f32) -> f32 {
    (1.0 - (1.0 - f64::from(recall)) * (1.0 - BOUND_PART)) as f32
}

/// How a query stands before a leaf. Distances are the metric's; under `ip` they are divided by the query's length.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Sight {
    /// The distance of the leaf that is next.
    pub next: f32,
    /// The k-th smallest estimate so far; +inf while there are fewer.
    pub kth: f32,
    /// The mean distance of the leaves in which the k nearest were met.
    pub spread: f32,
    /// The distance of the nearest leaf.
    pub first: f32,
    /// Leaves scanned so far.
    pub leaves: u32,
}

impl Sight {
    /// As numbers, the first of them 1.
    pub fn numbers(&self) -> [f64; NUMBERS] {
        let kth = f64::from(self.kth);
        let leaves = f64::from(self.leaves + 1).ln();
        [1.0, f64::from(self.next) - kth, kth, f64::from(self.spread) - kth, f64::from(self.first), leaves]
    }
}

/// Leaves that are scanned before it is asked again whether that was enough, after `scanned`. A twelfth more is as fine as is worth it.
pub fn group(scanned: usize) -> usize {
    (scanned / 12).max(2)
}

/// `weights . sight`
pub fn forecast(weights: &[f64; NUMBERS], numbers: &[f64; NUMBERS]) -> f64 {
    weights.iter().zip(numbers).map(|(weight, number)| weight * number).sum()
}

/// A forecast, and how low it must be.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Fit {
    /// Of the forecast.
    pub weights: [f64; NUMBERS],
    /// By target, descending.
    pub limits: [f64; TARGETS.len()],
}

/// What was measured for one depth.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Rule {
    /// Neighbours wanted.
    pub depth: usize,
    /// For queries whose nearest leaf is as near as those of rows.
    pub near: Fit,
    /// What must agree for queries that are far from all rows.
    pub far: Fit,
    /// Distances of the nearest leaf up to which the first alone counts, and from which on the second counts wholly.
    pub range: [f64; 2],
    /// Mean leaves that were scanned, by target.
    pub leaves: [f64; TARGETS.len()],
}

/// What was measured of an index.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize, serde::Deserialize)]
pub struct Table {
    /// Live rows at that time.
    pub rows: u64,
    /// Leaves at that time.
    pub leaves: u64,
    /// Queries that were measured.
    pub queries: u64,
    /// By depth, ascending.
    pub rules: Vec<Rule>,
}

/// When a search ends.
#[derive(Debug, Clone, PartialEq)]
pub struct Stop {
    /// Neighbours wanted.
    pub k: usize,
    /// Leaves that it takes, about.
    pub leaves: usize,
    /// Where a filter turns rows away: what it takes to say the same for another share of rows.
    pub filtered: Option<Filtered>,
    near: Line,
    far: Line,
    range: [f64; 2],
}

/// What a [`Stop`] was made of, under a filter.
#[derive(Debug, Clone, PartialEq)]
pub struct Filtered {
    /// What was measured.
    pub table: Arc<Table>,
    /// The share of all rows that pass.
    pub share: f64,
    /// The target.
    pub recall: f32,
}

/// Rows that count for the share of all rows, beside those that were met.
const PRIOR: f64 = 20.0;

/// A forecast less its limit.
type Line = [f64; NUMBERS];

impl Stop {
    /// A search that scans every leaf.
    pub fn never(k: usize) -> Self {
        let never = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0];
        Self { k, leaves: usize::MAX, filtered: None, near: never, far: never, range: [0.0, 1.0] }
    }

    /// The same by the share of rows that pass near the query, of which `passed` and `refused` were met. A filter may go with where rows
    /// lie: what passes then is farther, and spread wider, than so large a share of all rows would be.
    pub fn near_query(&self, passed: u64, refused: u64) -> Option<Stop> {
        let filtered = self.filtered.as_ref()?;
        let share = (passed as f64 + PRIOR * filtered.share) / ((passed + refused) as f64 + PRIOR);
        Some(filtered.table.stop(self.k, share, filtered.recall))
    }

    /// Whether a search that stands so has seen enough. What is not a number never has.
    pub fn ends(&self, sight: &Sight) -> bool {
        if sight.kth == f32::INFINITY {
            return false;
        }
        let numbers = sight.numbers();
        let part = (f64::from(sight.first) - self.range[0]) / (self.range[1] - self.range[0]).max(f64::MIN_POSITIVE);
        let part = part.clamp(0.0, 1.0);
        let near = forecast(&self.near, &numbers);
        // Both must say so: strange queries of real kinds are harder than made-up ones at times, and easier at others.
        near <= 0.0 && (part == 0.0 || near * (1.0 - part) + forecast(&self.far, &numbers) * part <= 0.0)
    }
}

impl Table {
    /// Whether it may be used as it is: numbers are finite, and in the order that searches rely on.
    pub fn is_sound(&self) -> bool {
        let ascending = self.rules.windows(2).all(|pair| pair[0].depth < pair[1].depth);
        let sound = |rule: &Rule| {
            let fits = [&rule.near, &rule.far];
            let numbers = fits.iter().flat_map(|fit| fit.weights.iter().chain(&fit.limits)).chain(&rule.leaves).chain(&rule.range);
            let descends = fits.iter().all(|fit| fit.limits.is_sorted_by(|a, b| a >= b));
            rule.depth > 0 && descends && { numbers }.all(|number| number.is_finite())
        };
        ascending && self.rules.iter().all(sound)
    }

    /// Whether it holds for an index of so many rows and leaves, `changes` rows of which were added, replaced or removed since it was measured.
    pub fn holds(&self, rows: usize, leaves: usize, changes: u64) -> bool {
        let within = |a: u64, b: u64| a.saturating_mul(4) <= b.saturating_mul(5);
        let near = |then: u64, now: usize| within(then, now as u64) && within(now as u64, then);
        near(self.rows, rows) && near(self.leaves, leaves) && changes.saturating_mul(4) <= rows as u64
    }

    /// When a search for `k` neighbours, among the `share` of all rows that may be returned, ends for target `recall`. A filter that lets every
    /// tenth row pass asks for the same leaves as ten times as many neighbours without it.
    pub fn stop(&self, k: usize, share: f64, recall: f32) -> Stop {
        if recall >= 1.0 || self.rules.is_empty() {
            return Stop::never(k);
        }
        let depth = (k as f64 / share.clamp(f64::MIN_POSITIVE, 1.0)).ln();
        let place = |rule: &Rule| (rule.depth as f64).ln();
        let above = self.rules.partition_point(|rule| place(rule) <= depth).clamp(1, self.rules.len().max(2) - 1);
        let low = &self.rules[above - 1];
        let high = self.rules.get(above).unwrap_or(low);
        let part = ((depth - place(low)) / (place(high) - place(low)).max(f64::MIN_POSITIVE)).clamp(0.0, 1.0);
        let mix = |a: f64, b: f64| a + (b - a) * part;
        let line = |low: &Fit, high: &Fit| -> Line {
            let limit = |fit: &Fit| between(&fit.limits, f64::from(recall));
            let mut line: Line = std::array::from_fn(|i| mix(low.weights[i], high.weights[i]));
            line[0] -= mix(limit(low), limit(high));
            line
        };
        let leaves = |rule: &Rule| between(&rule.leaves, f64::from(recall));
        Stop {
            k,
            leaves: mix(leaves(low), leaves(high)).max(1.0) as usize,
            filtered: None,
            near: line(&low.near, &high.near),
            far: line(&low.far, &high.far),
            range: std::array::from_fn(|i| mix(low.range[i], high.range[i])),
        }
    }
}

/// What belongs to `recall` when `numbers` belong to [`TARGETS`]: straight lines over the logarithm of the share that is missed, on which limits
/// depend nearly so. Below the least target it is that of the least; beyond the largest the last line goes on.
fn between(numbers: &[f64; TARGETS.len()], recall: f64) -> f64 {
    let missed = |target: f64| -(1.0 - target).max(1e-6).ln();
    let after = TARGETS.partition_point(|&target| target <= recall).clamp(1, TARGETS.len() - 1);
    let (low, high) = (missed(TARGETS[after - 1]), missed(TARGETS[after]));
    let part = ((missed(recall) - low) / (high - low)).max(0.0);
    numbers[after - 1] + (numbers[after] - numbers[after - 1]) * part
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        let fit =
            |offset: f64| Fit { weights: [0.0, -10.0, 1.0, 2.0, 0.5, 0.0], limits: TARGETS.map(|target| (1.0 - target).ln() - offset) };
        let rule = |depth: usize, offset: f64| Rule {
            depth,
            near: fit(offset),
            far: fit(offset + 1.0),
            range: [0.35, 0.55],
            leaves: TARGETS.map(|target| 1.0 / (1.0 - target)),
        };
        Table { rows: 10_000, leaves: 100, queries: 1000, rules: vec![rule(1, 0.0), rule(10, 1.0), rule(100, 2.0)] }
    }

    fn sight(next: f32) -> Sight {
        Sight { next, kth: 0.4, spread: 0.5, first: 0.3, leaves: 20 }
    }

    #[test]
    fn a_farther_leaf_ends_a_search_and_a_higher_target_prolongs_it() {
        let (low, high) = (table().stop(10, 1.0, 0.9), table().stop(10, 1.0, 0.99));
        let end = |stop: &Stop| (0..200).find(|&i| stop.ends(&sight(i as f32 * 0.01))).unwrap();
        assert!(end(&low) < end(&high), "{} {}", end(&low), end(&high));
        assert!((0..200).skip_while(|&i| !low.ends(&sight(i as f32 * 0.01))).all(|i| low.ends(&sight(i as f32 * 0.01))));
        assert!(low.leaves < high.leaves);
    }

    #[test]
    fn nothing_ends_before_there_are_k_or_where_numbers_fail() {
        let stop = table().stop(10, 1.0, 0.5);
        assert!(stop.ends(&sight(100.0)));
        assert!(!stop.ends(&Sight { kth: f32::INFINITY, ..sight(100.0) }));
        assert!(!stop.ends(&Sight { next: f32::NAN, ..sight(0.0) }));
        for never in [table().stop(10, 1.0, 1.0), Table::default().stop(10, 1.0, 0.5)] {
            assert!(!never.ends(&sight(1e30)));
        }
    }

    #[test]
    fn measured_points_are_met_and_those_between_lie_between() {
        let table = table();
        for (rule, k) in table.rules.iter().zip([1, 10, 100]) {
            for (i, target) in TARGETS.iter().enumerate() {
                let stop = table.stop(k, 1.0, *target as f32);
                assert!((stop.near[0] + rule.near.limits[i]).abs() < 1e-4, "{k} {target}");
                assert!((stop.far[0] + rule.far.limits[i]).abs() < 1e-4, "{k} {target}");
                assert_eq!((stop.near[1], stop.range), (rule.near.weights[1], rule.range));
            }
        }
        let limit = |k: usize, recall: f32| -table.stop(k, 1.0, recall).near[0];
        assert!(limit(10, 0.95) > limit(30, 0.95) && limit(30, 0.95) > limit(100, 0.95));
        assert!(limit(10, 0.95) < limit(10, 0.93) && limit(10, 0.93) < limit(10, 0.9));
        assert!(limit(10, 0.9999) < limit(10, 0.999));
        assert_eq!((limit(5000, 0.9), limit(10, 0.1)), (limit(100, 0.9), limit(10, 0.5)));
    }

    #[test]
    fn queries_far_from_all_rows_go_by_their_own_forecast() {
        let stop = table().stop(10, 1.0, 0.9);
        let end = |first: f32| (0..400).find(|&i| stop.ends(&Sight { first, ..sight(0.4 + i as f32 * 0.005) })).unwrap();
        // The distance of the first leaf itself counts a half in both, which is 0.02 of the next one's here.
        assert!(end(0.75) > end(0.35) + 15, "{} {}", end(0.75), end(0.35));
        assert!(end(0.35) < end(0.45) && end(0.45) < end(0.55));
    }

    #[test]
    fn a_filter_asks_for_as_many_more_neighbours() {
        assert_eq!(table().stop(10, 0.1, 0.9), Stop { k: 10, ..table().stop(100, 1.0, 0.9) });
        assert_eq!(table().stop(10, 0.0, 0.9).near, table().stop(100, 1.0, 0.9).near);
    }

    #[test]
    fn a_filter_that_goes_with_where_rows_lie_asks_for_more() {
        let table = Arc::new(table());
        let stop = Stop { filtered: Some(Filtered { table: table.clone(), share: 0.5, recall: 0.9 }), ..table.stop(10, 0.5, 0.9) };
        let line = |stop: Stop| stop.near;
        assert_eq!(table.stop(10, 0.5, 0.9).near_query(5, 5), None);
        assert_eq!(stop.near_query(0, 0).map(line), Some(stop.near));
        assert_eq!(stop.near_query(90, 90).map(line), Some(stop.near));
        assert!(stop.near_query(10, 200).is_some_and(|other| other.near[0] > stop.near[0]));
    }

    #[test]
    fn one_rule_serves_all_depths() {
        let table = Table { rules: table().rules[1..2].to_vec(), ..table() };
        assert!([1, 10, 500].iter().all(|&k| table.stop(k, 1.0, 0.9).near == table.stop(10, 1.0, 0.9).near));
    }

    #[test]
    fn what_is_unsound_is_known() {
        assert!(table().is_sound() && Table::default().is_sound());
        let broken = |change: fn(&mut Table)| {
            let mut table = table();
            change(&mut table);
            !table.is_sound()
        };
        assert!(broken(|table| table.rules[1].near.weights[2] = f64::NAN));
        assert!(broken(|table| table.rules[1].far.limits.reverse()));
        assert!(broken(|table| table.rules.reverse()));
        assert!(broken(|table| table.rules[0].depth = 0));
    }

    #[test]
    fn a_table_holds_for_an_index_of_its_size() {
        assert!(table().holds(10_000, 100, 0) && table().holds(12_000, 110, 2_000) && table().holds(8_500, 90, 1_500));
        assert!(!table().holds(20_000, 100, 0) && !table().holds(5_000, 100, 0));
        assert!(!table().holds(10_000, 200, 0) && !table().holds(10_000, 100, 5_000));
    }

    #[test]
    fn the_bound_is_as_narrow_as_the_target_is_low() {
        let expected = [(0.9, 1.405), (0.95, 1.751), (0.99, 2.409), (0.999, 3.156), (1.0, 6.0), (0.1, 0.0)];
        for (recall, deviations) in expected {
            let found = epsilon(recall, 10, Metric::L2);
            assert!((found - deviations).abs() < 0.03, "{recall}: {found}");
            for other in [epsilon(recall, 1, Metric::Cosine), epsilon(recall, 100, Metric::Ip)] {
                assert_eq!(other, found.max(EPSILON), "{recall}");
            }
        }
        assert!((in_leaves(0.9) - 0.91).abs() < 1e-6 && in_leaves(1.0) == 1.0);
    }

    #[test]
    fn groups_grow_with_what_was_scanned() {
        assert_eq!((group(0), group(24), group(1200)), (2, 2, 100));
    }
}
