//! Codes of several bits a dimension: extended RaBitQ (Gao, Gou, Xu, Yang, Long and Wang, "Practical and Asymptotically Optimal Quantization
//! of High-Dimensional Vectors in Euclidean Space for Approximate Nearest Neighbor Search", SIGMOD 2025).
//!
//! The problem: of a rotated vector `v` a code keeps the direction, in `B` bits a dimension: of all vectors `û` of half-integers from
//! `-(2^B - 1) / 2` to `(2^B - 1) / 2` one that is at a small angle to `v`. How long the vector is, is the caller's to keep.
//! The rule of use: rotate first, scaled so that squares neither overflow nor vanish. After a rotation all coordinates are alike and nearly
//! normal, so that one scale from the vector to the grid serves all of them: the best of a few around what suits normal values.
//! The hazard: encoding what was decoded may give other codes; vectors are encoded once.
//!
//! Codes are bit planes of `u = û + (2^B - 1) / 2`, as [`Kernels::dot_planes`](crate::kernel::Kernels::dot_planes) takes them.

/// The most bits a dimension.
pub const MOST_BITS: usize = 8;

const LANES: usize = 8;

/// The distance of levels of a uniform quantizer of 1, 2, 3, ... bits for which standard normal values have the least squared error.
const STEPS: [f32; MOST_BITS] = [1.596, 0.9957, 0.5860, 0.3352, 0.1881, 0.1041, 0.0569, 0.0308];

/// Scales that are tried, times the one for normal values. The longest of few values is short of what is expected of many, so with many bits
/// the levels of a short vector may lie closer.
const TRIES: [f32; 9] = [0.84, 0.92, 1.0, 1.08, 1.16, 1.25, 1.35, 1.45, 1.57];

/// Added to a value from 0 to 255, this leaves the nearest whole number in the last bits: without a conversion, and the same everywhere.
const SHIFT: f32 = (1u32 << 23) as f32;

/// Every byte 1.
const ONES: u64 = 0x0101_0101_0101_0101;

/// The largest half-integer of `bits` bits: `û = u - centre`.
pub fn centre(bits: usize) -> f32 {
    ((1u32 << bits) - 1) as f32 / 2.0
}

/// Bytes of a code of `padded` values, a multiple of 64.
pub fn code_bytes(bits: usize, padded: usize) -> usize {
    bits * padded / 8
}

/// The level of a value that was scaled and shifted, in the last bits of a float.
#[inline(always)]
fn level(value: f32, scale: f32, centre: f32) -> f32 {
    let place = value * scale + centre;
    // Two instructions; f32::clamp has to look for NaN.
    let place = if place > 0.0 { place } else { 0.0 };
    let place = if place < 2.0 * centre { place } else { 2.0 * centre };
    place + SHIFT
}

/// Writes the code of `values`, not all of them zero.
pub fn encode(values: &[f32], bits: usize, planes: &mut [u8]) {
    debug_assert!((1..=MOST_BITS).contains(&bits) && values.len().is_multiple_of(64) && planes.len() == code_bytes(bits, values.len()));
    let (scale, centre) = (best_scale(values, bits), centre(bits));
    let (chunks, _) = values.as_chunks::<LANES>();
    for (i, chunk) in chunks.iter().enumerate() {
        let levels = u64::from_le_bytes(chunk.map(|value| level(value, scale, centre).to_bits() as u8));
        for (j, plane) in planes.chunks_exact_mut(values.len() / 8).enumerate() {
            // The product brings bit 8 i to bit 56 + i; no two products meet.
            plane[i] = ((levels >> j & ONES).wrapping_mul(0x0102_0408_1020_4080) >> 56) as u8;
        }
    }
}

/// Writes the half-integers of a code, whatever its bytes are.
pub fn decode(planes: &[u8], bits: usize, out: &mut [f32]) {
    let (centre, stride) = (centre(bits), out.len() / 8);
    let (chunks, _) = out.as_chunks_mut::<LANES>();
    for (i, out) in chunks.iter_mut().enumerate() {
        let planes = planes.chunks_exact(stride).enumerate();
        let levels = planes.fold(0, |levels, (j, plane)| levels | spread(plane[i]) << j);
        *out = levels.to_le_bytes().map(|level| f32::from(level) - centre);
    }
}

/// Bit i of `byte` as byte i, 0 or 1.
#[inline(always)]
fn spread(byte: u8) -> u64 {
    let own = u64::from(byte).wrapping_mul(ONES) & 0x8040_2010_0804_0201;
    // A byte that isn't 0 carries into its highest bit.
    (own + 0x7f * ONES) >> 7 & ONES
}

fn best_scale(values: &[f32], bits: usize) -> f32 {
    let square = products(values, |value| (value * value, 0.0)).0;
    let usual = 1.0 / (STEPS[bits - 1] * (square / values.len() as f32).sqrt());
    let mut best = (0.0, usual);
    for scale in TRIES.map(|factor| factor * usual) {
        let fit = fit(values, bits, scale);
        if fit > best.0 {
            best = (fit, scale);
        }
    }
    best.1
}

/// `<û, v>^2 / |û|^2` for the grid of a scale: the larger, the smaller the angle.
fn fit(values: &[f32], bits: usize, scale: f32) -> f32 {
    let centre = centre(bits);
    let (product, square) = products(values, |value| {
        let half = level(value, scale, centre) - SHIFT - centre;
        (half * value, half * half)
    });
    product * product / square
}

/// Two sums over all values, in lanes, so that every processor adds in the same order.
#[inline(always)]
fn products(values: &[f32], terms: impl Fn(f32) -> (f32, f32)) -> (f32, f32) {
    let mut sums = [[0.0f32; LANES]; 2];
    for chunk in values.as_chunks::<LANES>().0 {
        for lane in 0..LANES {
            let (a, b) = terms(chunk[lane]);
            sums[0][lane] += a;
            sums[1][lane] += b;
        }
    }
    (sums[0].iter().sum(), sums[1].iter().sum())
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_pcg::Pcg64Mcg;

    use super::*;

    fn normal(count: usize, seed: u64) -> Vec<f32> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let mut one = || {
            let (u, v) = (random.random::<f64>().max(1e-12), random.random::<f64>());
            ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
        };
        (0..count).map(|_| one()).collect()
    }

    /// The squared sine of the angle between two vectors.
    fn loss(a: &[f32], b: &[f32]) -> f64 {
        let dot = |a: &[f32], b: &[f32]| a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum::<f64>();
        1.0 - dot(a, b).powi(2) / (dot(a, a) * dot(b, b))
    }

    fn coded(values: &[f32], bits: usize) -> Vec<f32> {
        let (mut planes, mut out) = (vec![0x5a; code_bytes(bits, values.len())], vec![f32::NAN; values.len()]);
        encode(values, bits, &mut planes);
        decode(&planes, bits, &mut out);
        out
    }

    #[test]
    fn the_steps_are_best_for_normal_values() {
        // Expected squared error of standard normal values, by the sum over a fine grid of half of them.
        let error = |bits: usize, step: f64| -> f64 {
            let top = f64::from(centre(bits));
            let places = (0..40_000).map(|i| (f64::from(i) + 0.5) * 2e-4);
            places.map(|x| (x - step * ((x / step + 0.5).round() - 0.5).min(top)).powi(2) * (-x * x / 2.0).exp()).sum()
        };
        for bits in 1..=MOST_BITS {
            let step = f64::from(STEPS[bits - 1]);
            let (here, below, above) = (error(bits, step), error(bits, step * 0.99), error(bits, step * 1.01));
            assert!(here < below && here < above, "{bits} bits: {here} at {step}, {below} below, {above} above");
        }
    }

    #[test]
    fn the_scales_that_are_tried_are_near_the_best_of_many() {
        for padded in [128, 384, 1024, 4096] {
            for bits in 1..=MOST_BITS {
                let (mut sum, mut least) = (0.0, 0.0);
                for seed in 0..40 {
                    let values = normal(padded, seed);
                    let usual = 1.0 / STEPS[bits - 1];
                    let scales = (0..400).map(|i| usual * (0.5 + 0.005 * i as f32));
                    let angle = |scale: f32| loss(&values, &on_grid(&values, bits, scale));
                    let found = loss(&values, &coded(&values, bits));
                    sum += found;
                    least += scales.map(angle).fold(f64::INFINITY, f64::min);
                }
                // Of few values some scale among many is lucky: a tenth of a bit at most.
                let most = if padded == 128 { 1.2 } else { 1.12 };
                assert!(sum <= most * least, "{bits} bits, {padded} values: {sum}, the best {least}, {}", sum / least);
            }
        }
    }

    fn on_grid(values: &[f32], bits: usize, scale: f32) -> Vec<f32> {
        values.iter().map(|&value| level(value, scale, centre(bits)) - SHIFT - centre(bits)).collect()
    }

    #[test]
    fn a_code_loses_a_quarter_with_each_bit() {
        // What the best uniform quantizer loses of normal values.
        let expected = [0.363, 0.119, 0.0374, 0.0115, 0.00350, 0.00104, 0.000304, 0.0000877];
        for padded in [128, 384, 1024] {
            for (bits, most) in (1..).zip(expected) {
                let lost = (0..20).map(|seed| loss(&normal(padded, seed), &coded(&normal(padded, seed), bits))).sum::<f64>() / 20.0;
                assert!(lost < 1.05 * most, "{bits} bits, {padded} values: {lost}");
            }
        }
    }

    #[test]
    fn planes_hold_the_levels() {
        for bits in 1..=MOST_BITS {
            let values: Vec<f32> = (0..1 << bits).cycle().take(512).map(|u| (u as f32 - centre(bits)) * 0.01).collect();
            let mut planes = vec![0; code_bytes(bits, 512)];
            encode(&values, bits, &mut planes);
            let mut out = vec![0.0; 512];
            decode(&planes, bits, &mut out);
            for (i, half) in out.iter().enumerate() {
                let bit = |j: usize| u32::from(planes[j * 64 + i / 8] >> (i % 8) & 1);
                let level = (0..bits).map(|j| bit(j) << j).sum::<u32>();
                assert_eq!(*half, level as f32 - centre(bits), "{bits} bits, value {i}");
                assert!(*half * values[i] > 0.0, "{bits} bits, value {i}: the sign");
            }
        }
        // Values that are exact on the grid of a scale: few, and of one size.
        assert_eq!(loss(&[0.25; 128], &coded(&[0.25; 128], 4)), 0.0);
    }
}
