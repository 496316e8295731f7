//! From measured queries to a [`Rule`].
//!
//! The problem: weights and limits of the forecast must hold for queries that nobody has seen.
//! The rule of use: [`Trace`]s of queries whose true neighbours are known, scanned far beyond where a search would end; [`rule`] for each
//! depth. The queries are rows of the index that don't count as their own neighbours: the harder ones of them tell best how queries of another
//! kind behave. Only for what is stranger than all rows queries are made up.
//! The hazard: few queries measure a high target badly. A mean of 1,000 shares is off by 0.005 in the usual case.

use super::target::{FIRST, Fit, KTH, NUMBERS, Rule, Sight, TARGETS, forecast};

/// One query, scanned far, with its true neighbours.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Trace {
    /// How it stood between groups of leaves: at each such place a sight for each depth.
    pub sights: Vec<Vec<Sight>>,
    /// The leaf, counted from 0, in which each of the true neighbours was met first, the nearest neighbour first.
    pub met: Vec<u32>,
}

impl Trace {
    /// The share of the `depth` nearest that were met in the first `leaves`.
    pub fn found(&self, depth: usize, leaves: u32) -> f64 {
        let met = &self.met[..depth.min(self.met.len())];
        met.iter().filter(|&&leaf| leaf < leaves).count() as f64 / met.len().max(1) as f64
    }
}

/// A place of a trace where a search for `depth` neighbours might end.
struct State {
    numbers: [f64; NUMBERS],
    leaves: u32,
    found: f64,
}

/// The rule for `depth`, the `place`-th of the depths that were watched, from rows and from strange queries; `None` where rows tell nothing.
pub fn rule(rows: &[Trace], strange: &[Trace], place: usize, depth: usize) -> Option<Rule> {
    let (near, paths) = fit(rows, place, depth)?;
    let mean = |limit: f64| paths.iter().map(|path| f64::from(path.end(limit).0)).sum::<f64>() / paths.len() as f64;
    let leaves = near.limits.map(mean);
    let begin = first(&paths, 0.8);
    // Where strange queries are no stranger than rows, rows tell more.
    let other = fit(strange, place, depth).map(|(far, paths)| (far, first(&paths, 0.5))).filter(|(_, end)| *end > begin);
    let (far, end) = other.unwrap_or_else(|| (near.clone(), begin));
    Some(Rule { depth, near, far, range: [begin, end], leaves })
}

/// The distance of the nearest leaf that so large a share of queries stay below.
fn first(paths: &[Path], share: f64) -> f64 {
    let mut firsts: Vec<f64> = paths.iter().map(|path| path.first).collect();
    firsts.sort_by(f64::total_cmp);
    firsts[((firsts.len() - 1) as f64 * share) as usize]
}

/// The forecast and its limits, and where the queries end by it, those with the farthest neighbours first.
fn fit(traces: &[Trace], place: usize, depth: usize) -> Option<(Fit, Vec<Path>)> {
    let whole = traces.iter().filter(|trace| trace.met.len() >= depth);
    let queries: Vec<Vec<State>> = whole.map(|trace| states(trace, place, depth)).filter(|states| !states.is_empty()).collect();
    let weights = level(&queries, regress(&queries)?);
    let paths = paths(&queries, &weights);
    let mut limits = TARGETS.map(|target| limit(&paths, target));
    for i in 1..limits.len() {
        limits[i] = limits[i].min(limits[i - 1]);
    }
    Some((Fit { weights, limits }, paths))
}

/// Where queries end, those with the farthest neighbours first.
fn paths(queries: &[Vec<State>], weights: &[f64; NUMBERS]) -> Vec<Path> {
    let mut paths: Vec<Path> = queries.iter().map(|states| Path::new(states, weights)).collect();
    paths.sort_by(|a, b| b.kth.total_cmp(&a.kth));
    paths
}

/// Targets at which hard queries should find as much as others, on average.
const LEVELS: [f64; 4] = [0.8, 0.9, 0.95, 0.99];
/// Of what may be missed there, what the harder third of the queries may miss. A little less than all: queries of another kind are harder still.
const HARDER_MISSES: f64 = 0.86;
/// The most that the weight of the k-th distance grows by, over a deviation of that distance.
const MOST_TILT: f64 = 4.0;

/// The same weights, but for that of the k-th distance, which grows until the harder third of the queries finds as much as all do. A regression
/// over all places where a query might end is not right at the places where queries do end: there the near ones found more than the far ones.
fn level(queries: &[Vec<State>], weights: [f64; NUMBERS]) -> [f64; NUMBERS] {
    let kth: Vec<f64> = queries.iter().filter_map(|states| states.last()).map(|state| state.numbers[KTH]).collect();
    let mean = kth.iter().sum::<f64>() / kth.len() as f64;
    let deviation = (kth.iter().map(|kth| (kth - mean).powi(2)).sum::<f64>() / kth.len() as f64).sqrt();
    // Neighbours that are all equally far say nothing.
    if deviation <= 1e-9 * mean.abs() {
        return weights;
    }
    // About the mean, so that forecasts stay where limits are looked for, wherever distances have their zero.
    let tilted = |tilt: f64| {
        let mut weights = weights;
        weights[KTH] += tilt / deviation;
        weights[0] -= tilt * mean / deviation;
        weights
    };
    let (mut low, mut high) = (0.0, MOST_TILT);
    for _ in 0..10 {
        let middle = 0.5 * (low + high);
        let paths = paths(queries, &tilted(middle));
        let harder = &paths[..paths.len().div_ceil(3)];
        let missed = |target: f64| {
            let limit = limit(&paths, target);
            harder.iter().map(|path| 1.0 - path.end(limit).1).sum::<f64>() / (1.0 - target)
        };
        let most = HARDER_MISSES * (LEVELS.len() * harder.len()) as f64;
        if LEVELS.map(missed).iter().sum::<f64>() > most { low = middle } else { high = middle }
    }
    tilted(low)
}

fn states(trace: &Trace, place: usize, depth: usize) -> Vec<State> {
    let at_place = trace.sights.iter().filter_map(|sights| sights.get(place));
    let state = |sight: &Sight| State { numbers: sight.numbers(), leaves: sight.leaves, found: trace.found(depth, sight.leaves) };
    at_place.map(state).filter(|state| state.numbers.iter().all(|number| number.is_finite())).collect()
}

/// Where a query ends for each limit.
struct Path {
    /// Its k-th distance.
    kth: f64,
    /// The distance of its nearest leaf.
    first: f64,
    /// The least forecast so far, leaves, and the share found; by place.
    steps: Vec<(f64, u32, f64)>,
}

impl Path {
    fn new(states: &[State], weights: &[f64; NUMBERS]) -> Self {
        let mut least = f64::INFINITY;
        let step = |state: &State| {
            least = least.min(forecast(weights, &state.numbers));
            (least, state.leaves, state.found)
        };
        let last = |i: usize| states.last().map_or(0.0, |last| last.numbers[i]);
        Self { kth: last(KTH), first: last(FIRST), steps: states.iter().map(step).collect() }
    }

    /// Leaves and share found where the forecast is first at or below `limit`. A query that gets so far nowhere finds all.
    fn end(&self, limit: f64) -> (u32, f64) {
        let step = self.steps.partition_point(|(least, ..)| *least > limit);
        let last = self.steps.last().map_or(0, |(_, leaves, _)| *leaves);
        self.steps.get(step).map_or((last, 1.0), |&(_, leaves, found)| (leaves, found))
    }
}

/// The highest limit at which the mean share found is the target.
fn limit(paths: &[Path], target: f64) -> f64 {
    // Logits: beyond these no forecast goes.
    let (mut low, mut high) = (-30.0, 10.0);
    for _ in 0..40 {
        let middle = 0.5 * (low + high);
        let found: f64 = paths.iter().map(|path| path.end(middle).1).sum();
        if found >= target * paths.len() as f64 { low = middle } else { high = middle }
    }
    low
}

/// The weights that forecast the share that is missing: logistic regression by Newton's steps, on numbers brought to mean 0 and deviation 1.
fn regress(queries: &[Vec<State>]) -> Option<[f64; NUMBERS]> {
    let states = || queries.iter().flatten();
    let count = states().count() as f64;
    if count < 100.0 {
        return None;
    }
    let mean: [f64; NUMBERS] = std::array::from_fn(|i| states().map(|state| state.numbers[i]).sum::<f64>() / count);
    let deviation: [f64; NUMBERS] = std::array::from_fn(|i| {
        let square = states().map(|state| (state.numbers[i] - mean[i]).powi(2)).sum::<f64>() / count;
        if square.sqrt() > 1e-9 * mean[i].abs() { square.sqrt() } else { f64::INFINITY }
    });
    let mut weights = [0.0; NUMBERS];
    for _ in 0..STEPS {
        let (mut slope, mut bend) = ([0.0; NUMBERS], [[0.0; NUMBERS]; NUMBERS]);
        for state in states() {
            let mut numbers: [f64; NUMBERS] = std::array::from_fn(|i| (state.numbers[i] - mean[i]) / deviation[i]);
            numbers[0] = 1.0;
            let missing = 1.0 / (1.0 + (-forecast(&weights, &numbers)).exp());
            let (error, weight) = (1.0 - state.found - missing, missing * (1.0 - missing));
            for i in 0..NUMBERS {
                slope[i] += error * numbers[i];
                (0..=i).for_each(|j| bend[i][j] += weight * numbers[i] * numbers[j]);
            }
        }
        // A little is held against large weights, so that states which tell nothing don't send them anywhere.
        for i in 0..NUMBERS {
            slope[i] -= HELD * weights[i];
            bend[i][i] += HELD;
        }
        let step = solve(bend, slope)?;
        // Far steps overshoot where nearly nothing is missing.
        let far = step.iter().fold(1.0f64, |far, step| far.max(step.abs()));
        weights.iter_mut().zip(step).for_each(|(weight, step)| *weight += step / far);
    }
    let mut plain: [f64; NUMBERS] = std::array::from_fn(|i| weights[i] / deviation[i]);
    plain[0] = weights[0] - (1..NUMBERS).map(|i| plain[i] * mean[i]).sum::<f64>();
    plain.iter().all(|weight| weight.is_finite()).then_some(plain)
}

/// Newton's steps; the first go at most 1 far.
const STEPS: usize = 14;
/// Against large weights, in states.
const HELD: f64 = 0.1;

/// Solves `matrix x = right` for a symmetric positive matrix whose lower half is given (Cholesky).
fn solve(mut matrix: [[f64; NUMBERS]; NUMBERS], right: [f64; NUMBERS]) -> Option<[f64; NUMBERS]> {
    for i in 0..NUMBERS {
        for j in 0..=i {
            let sum: f64 = (0..j).map(|k| matrix[i][k] * matrix[j][k]).sum();
            let rest = matrix[i][j] - sum;
            matrix[i][j] = if i == j { rest.sqrt() } else { rest / matrix[j][j] };
        }
        if !(matrix[i][i] > 0.0 && matrix[i][i].is_finite()) {
            return None;
        }
    }
    let mut result = right;
    for i in 0..NUMBERS {
        let sum: f64 = (0..i).map(|k| matrix[i][k] * result[k]).sum();
        result[i] = (result[i] - sum) / matrix[i][i];
    }
    for i in (0..NUMBERS).rev() {
        let sum: f64 = (i + 1..NUMBERS).map(|k| matrix[k][i] * result[k]).sum();
        result[i] = (result[i] - sum) / matrix[i][i];
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64;

    use super::*;
    use crate::search::target::{Table, group};

    /// Queries whose neighbours lie in leaves up to a number that follows from their k-th distance.
    fn traces(count: usize, seed: u64) -> Vec<Trace> {
        let mut random = Pcg64::seed_from_u64(seed);
        let trace = |_| {
            let hard: f32 = random.random_range(0.0..1.0);
            let met: Vec<u32> = (0..10).map(|_| (random.random_range(0.0f32..1.0).powi(4) * (4.0 + 60.0 * hard)) as u32).collect();
            let mut sights = Vec::new();
            let mut leaves = 0;
            while leaves < 80 {
                leaves += group(leaves as usize) as u32;
                let next = 0.5 + 0.01 * leaves as f32;
                sights.push(vec![Sight { next, kth: 0.3 + 0.2 * hard, spread: 0.6, first: 0.5, leaves }]);
            }
            Trace { sights, met }
        };
        (0..count).map(trace).collect()
    }

    #[test]
    fn other_queries_of_both_kinds_find_the_target() {
        let table = Table { rules: vec![rule(&traces(1500, 1), &[], 0, 10).unwrap()], ..Table::default() };
        assert!(table.is_sound());
        let others = traces(2000, 2);
        let kth = |trace: &Trace| trace.sights[0][0].kth;
        for target in [0.8, 0.9, 0.95, 0.99] {
            let stop = table.stop(10, 1.0, target as f32);
            let end = |trace: &Trace| {
                let at = trace.sights.iter().find(|sights| stop.ends(&sights[0])).map_or(u32::MAX, |sights| sights[0].leaves);
                trace.found(10, at)
            };
            let mean = |wanted: &dyn Fn(f32) -> bool| {
                let some: Vec<f64> = others.iter().filter(|trace| wanted(kth(trace))).map(end).collect();
                some.iter().sum::<f64>() / some.len() as f64
            };
            let (all, easy, hard) = (mean(&|_| true), mean(&|kth| kth <= 0.4), mean(&|kth| kth > 0.4));
            assert!((target - 0.01..target + 0.04).contains(&all), "{all} for {target}");
            assert!(hard > target - 0.015, "hard ones: {hard} for {target}");
            // Two leaves at a time are many for easy ones: of some they find much more, or less.
            assert!((easy - target).abs() < 0.08, "easy ones: {easy} for {target}");
        }
    }

    #[test]
    fn where_distances_have_their_zero_changes_nothing() {
        let moved = |by: f32| {
            let mut traces = traces(600, 5);
            let sights = traces.iter_mut().flat_map(|trace| &mut trace.sights).flatten();
            for sight in sights {
                for distance in [&mut sight.next, &mut sight.kth, &mut sight.spread, &mut sight.first] {
                    *distance += by;
                }
            }
            rule(&traces, &[], 0, 10).unwrap()
        };
        let rule = moved(0.0);
        // As under "ip", where near means far below zero, and as far from all rows under "l2".
        for other in [moved(-20.0), moved(20.0)] {
            for (a, b) in rule.leaves.iter().zip(other.leaves) {
                assert!((a - b).abs() < 0.05 * a + 0.2, "{:?} and {:?}", rule.leaves, other.leaves);
            }
        }
    }

    #[test]
    fn queries_that_tell_nothing_give_no_rule() {
        assert_eq!(rule(&[], &traces(500, 3), 0, 10), None);
        assert_eq!(rule(&traces(500, 3), &[], 0, 100), None, "fewer neighbours than that");
        assert_eq!(rule(&traces(500, 3), &[], 1, 10), None, "a depth that wasn't watched");
        let mut endless = traces(500, 3);
        endless.iter_mut().flat_map(|trace| &mut trace.sights).for_each(|sights| sights[0].kth = f32::INFINITY);
        assert_eq!(rule(&endless, &[], 0, 10), None);
    }

    #[test]
    fn where_all_is_found_at_once_the_rule_is_still_sound() {
        let mut easy = traces(300, 4);
        easy.iter_mut().for_each(|trace| trace.met = vec![0; 10]);
        let table = Table { rules: vec![rule(&easy, &[], 0, 10).unwrap()], ..Table::default() };
        assert!(table.is_sound());
        assert!(table.stop(10, 1.0, 0.95).ends(&easy[0].sights[0][0]));
    }

    #[test]
    fn solves_what_it_should() {
        let matrix: [[f64; NUMBERS]; NUMBERS] =
            std::array::from_fn(|i| std::array::from_fn(|j| if i == j { 4.0 } else { 1.0 / (1 + i + j) as f64 }));
        let wanted: [f64; NUMBERS] = std::array::from_fn(|i| i as f64 - 2.0);
        let right = std::array::from_fn(|i| (0..NUMBERS).map(|j| matrix[i][j] * wanted[j]).sum());
        let found = solve(matrix, right).unwrap();
        assert!(found.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9));
        assert_eq!(solve([[0.0; NUMBERS]; NUMBERS], wanted), None);
    }
}
