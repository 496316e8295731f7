//! What an inner product in f32 proves of the distance that [`Metric::distance`](crate::metric::Metric::distance) would give.
//!
//! The problem: `|q|^2 + |x|^2 - 2 <q, x>` is several times cheaper than `|q - x|^2`, but near copies far from the origin cancel, and the
//! nearest rows are exactly those that are lost.
//! The rule of use: compute the product `p` of a (prepared) query with the row as given, and from it the score. A row whose score does
//! not pass [`Margin::least`] of the k-th distance is farther than that; any other must be computed.
//! The hazard: the test must fail open. A score of NaN passes, which is why [`passes`] is the only place that compares.
//!
//! | symbol | meaning |
//! |---|---|
//! | `n`, `u`, `g(m)` | dimension; `2^-24`; `m u / (1 - m u)` |
//! | `p`, `Q`, `X` | computed `<q, x>`, `|q|^2`, `|x|^2`; by n products in any order, with or without FMA |
//! | `d`, `T` | the computed distance of a row; the k-th distance so far |
//! | `c` | `g(n + 8)`, what [`Margin`] computes with |
//!
//! A sum of n products in any order is off by at most `g(n) sum |q_i x_i| <= g(n) |q| |x|` (Higham, Accuracy and Stability of Numerical
//! Algorithms, 2nd ed., section 3.1), plus less than the smallest normal number for each product that underflows. Suppose `d <= T`:
//!
//! - **l2.** Each term of `d` has two roundings before the sum's, all relative: `|q - x|^2 <= T / (1 - g(n + 2)) <= T (1 + 2 c)`. So
//!   `2 <q, x> >= |q|^2 + |x|^2 - T (1 + 2 c)`. With `|q| |x| <= (|q|^2 + |x|^2) / 2` and `|x|^2 >= X (1 - g(n))`,
//!   `p >= (1 - g(n))^2 (Q + X) / 2 - T (1 + 2 c) / 2`. Moving X to the left costs one rounded subtraction, at most `1.01 u (Q + X)`, and
//!   one rounding of the weight: `p - (1 - 2 c) X / 2 >= (1 - 2 c) Q / 2 - T (1 + 2 c) / 2` still holds, since `2 c - 2 g(n) >= 16 u`.
//! - **l2, direct.** Two sums of the same squares differ by at most `(1 + g(n + 2)) / (1 - g(n + 2)) <= 1 + 4 c`, and there is no cancellation.
//! - **ip.** `d = -p'`, where `p'` and `p` are each within `g(n) |q| |x|` of `<q, x>`: `p >= -T - 2 c |q| |x|`, for the longest row of the block.
//! - **cosine.** `1 - p'` is rounded once (3 u); `p'` is within `g(n)` of the prepared rows' product; preparing moves that by less than 2 u;
//!   `p / |x|` is within `g(n)` of the unprepared product, and the computed `1 / sqrt(X)` within `g(n) / 2 + 4 u`. In all less than `3 c`.
//!
//! Where squares near the ends of f32's range break these premises, the weight or `least` lets everything pass.

use crate::metric::Metric;

/// Squares from here on may overflow on the way.
const SQUARE_MOST: f32 = 1.329_228e36; // 2^120

/// Under cosine: below this, what underflowed is no longer small beside the square.
const SQUARE_LEAST: f32 = 8.271_806e-25; // 2^-80

/// The proven rounding margin of one metric and dimension.
#[derive(Debug, Clone, Copy)]
pub struct Margin {
    metric: Metric,
    relative: f64,
    absolute: f64,
}

impl Margin {
    /// The margin for rows of `dim` values, at most [`MAX_DIM`](crate::metric::MAX_DIM).
    pub fn new(metric: Metric, dim: usize) -> Self {
        let roundings = (dim + 8) as f64 * (f64::from(f32::EPSILON) / 2.0);
        let absolute = 64.0 * dim as f64 * f64::from(f32::MIN_POSITIVE);
        Self { metric, relative: roundings / (1.0 - roundings), absolute }
    }

    /// A row's side of its scores, from its computed square.
    pub fn weight(&self, row: &[f32], square: f32) -> f32 {
        match self.metric {
            Metric::Ip => 1.0,
            Metric::L2 if square < SQUARE_MOST => ((1.0 - 2.0 * self.relative) * 0.5 * f64::from(square)) as f32,
            Metric::L2 => f32::NEG_INFINITY,
            Metric::Cosine if (SQUARE_LEAST..SQUARE_MOST).contains(&square) => (1.0 / f64::from(square).sqrt()) as f32,
            Metric::Cosine if row.iter().all(|&x| x == 0.0) => 0.0,
            Metric::Cosine => f32::NAN,
        }
    }

    /// Rows whose score is below this are farther than `worst`. `square` is the query's; `longest` is the largest square of the rows.
    pub fn least(&self, worst: f32, square: f32, longest: f32) -> f32 {
        let (worst, query, row) = (f64::from(worst), f64::from(square), f64::from(longest));
        let usual = square < SQUARE_MOST;
        let least = match self.metric {
            Metric::L2 if usual => 0.5 * ((1.0 - 2.0 * self.relative) * query - (1.0 + 2.0 * self.relative) * worst) - self.absolute,
            Metric::Ip if usual && longest < SQUARE_MOST => {
                let lengths = ((query + self.absolute) * (row + self.absolute)).sqrt();
                -worst - 2.0 * self.relative * lengths - self.absolute
            }
            // Distances are clamped to 2, so a worst of 2 says nothing of the product.
            Metric::Cosine if worst < 2.0 => 1.0 - worst - 3.0 * self.relative,
            _ => f64::NEG_INFINITY,
        };
        (least as f32).next_down()
    }

    /// The same where squared distances, summed in another order than `worst` was, stand in for the products (l2).
    pub fn least_direct(&self, worst: f32) -> f32 {
        ((-(1.0 + 4.0 * self.relative) * f64::from(worst) - self.absolute) as f32).next_down()
    }
}

/// Whether a row may be as near as the `worst` that `least` was made of. NaN passes.
#[inline(always)]
#[expect(clippy::neg_cmp_op_on_partial_ord, reason = "the negation is what lets NaN pass")]
pub fn passes(score: f32, least: f32) -> bool {
    !(score < least)
}

/// A squared distance in place of a product: nearer is higher.
#[inline(always)]
pub fn score_direct(square: f32, _weight: f32) -> f32 {
    -square
}

/// Under l2 a row's score is the product less its weight,
#[inline(always)]
pub fn score_l2(product: f32, weight: f32) -> f32 {
    product - weight
}

/// under cosine it is the product times its weight,
#[inline(always)]
pub fn score_cosine(product: f32, weight: f32) -> f32 {
    product * weight
}

/// and under ip the product itself.
#[inline(always)]
pub fn score_ip(product: f32, _weight: f32) -> f32 {
    product
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::kernel::Kernels;

    const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Ip];

    /// Whether the row passes when the k-th distance is its own: the tightest case there is.
    fn passes_at_its_own_distance(metric: Metric, query: &[f32], row: &[f32]) -> bool {
        Kernels::available().into_iter().filter_map(Kernels::of).all(|kernels| {
            let (mut query, mut prepared) = (query.to_vec(), row.to_vec());
            metric.prepare(&mut query);
            metric.prepare(&mut prepared);
            let distance = metric.distance(kernels, &query, &prepared);
            let margin = Margin::new(metric, row.len());
            let square = (kernels.dot)(row, row);
            let weight = margin.weight(row, square);
            let product = (kernels.dot)(&query, row);
            let score = match metric {
                Metric::L2 => score_l2(product, weight),
                Metric::Cosine => score_cosine(product, weight),
                Metric::Ip => score_ip(product, weight),
            };
            let least = margin.least(distance, (kernels.dot)(&query, &query), square);
            distance.is_nan() || passes(score, least)
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2000))]

        #[test]
        fn no_row_is_lost_at_its_own_distance(
            values in prop::collection::vec((-1.0f32..1.0, -1.0f32..1.0), 1..400),
            offset in prop_oneof![Just(0.0f32), Just(1.0), Just(1e4)],
            (query_power, noise_power, row_power) in (-40i32..38, -9i32..2, prop_oneof![Just(0i32), -20i32..20]),
        ) {
            // A near copy (or a distant one) far from the origin, at any scale, the row at a scale of its own at times.
            let scale = 10f32.powi(query_power);
            let query: Vec<f32> = values.iter().map(|(x, _)| (offset + x) * scale).collect();
            let noise = 10f32.powi(noise_power);
            let row: Vec<f32> = query.iter().zip(&values).map(|(q, (_, y))| (q + q * y * noise) * 10f32.powi(row_power)).collect();
            prop_assume!(query.iter().chain(&row).all(|x| x.is_finite()));
            for metric in METRICS {
                prop_assert!(passes_at_its_own_distance(metric, &query, &row), "{metric:?}");
                prop_assert!(passes_at_its_own_distance(metric, &row, &query), "{metric:?}, swapped");
            }
        }
    }

    #[test]
    fn squares_in_another_order_pass() {
        let kernels = Kernels::get().unwrap();
        for scale in [1e-25, 1e-19, 1.0, 9e17] {
            for dim in [1, 3, 50, 385, 4096] {
                let query: Vec<f32> = (0..dim).map(|i| (i * 37 % 101) as f32 * scale).collect();
                let row: Vec<f32> = (0..dim).map(|i| (i * 53 % 103) as f32 * scale).collect();
                let (distance, margin) = ((kernels.l2)(&query, &row), Margin::new(Metric::L2, dim));
                let forward = query.iter().zip(&row).fold(0.0f32, |sum, (q, x)| sum + (q - x) * (q - x));
                let backward = query.iter().zip(&row).rev().fold(0.0f32, |sum, (q, x)| sum + (q - x) * (q - x));
                for square in [forward, backward] {
                    assert!(passes(score_direct(square, 0.0), margin.least_direct(distance)));
                    assert!(
                        !passes(score_direct(square, 0.0), margin.least_direct(0.99 * distance)) || square < 1e-30 || square.is_infinite()
                    );
                }
            }
        }
    }

    #[test]
    fn extreme_rows_pass() {
        for value in [0.0, f32::from_bits(1), f32::MIN_POSITIVE, 1e-30, 1e-12, 1e12, 1e18, 1.8e19, 1e30, f32::MAX] {
            for other in [0.0, f32::from_bits(1), 1e-30, 1.0, 1e18, 1.9e19, -1e30, f32::MAX, -f32::MAX] {
                for dim in [1, 3, 50, 385, 4096] {
                    for metric in METRICS {
                        assert!(
                            passes_at_its_own_distance(metric, &vec![value; dim], &vec![other; dim]),
                            "{metric:?} {value} {other} {dim}"
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn rows_clearly_farther_are_dropped() {
        // A margin that lets everything pass would be as safe and useless: these are 1 % farther at dimension 384.
        let kernels = Kernels::get().unwrap();
        let query: Vec<f32> = (0..384).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
        let row: Vec<f32> = (0..384).map(|i| ((i * 53 % 103) as f32 - 51.0) / 51.0).collect();
        let square = |x: &[f32]| (kernels.dot)(x, x);
        let product = (kernels.dot)(&query, &row);
        let l2 = Margin::new(Metric::L2, 384);
        assert!(score_l2(product, l2.weight(&row, square(&row))) < l2.least(0.99 * (kernels.l2)(&query, &row), square(&query), 0.0));
        let ip = Margin::new(Metric::Ip, 384);
        assert!(product < ip.least(-product - 0.01 * product.abs().max(1.0), square(&query), square(&row)));
    }
}
