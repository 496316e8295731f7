//! What RaBitQ promises: estimates without bias, bounds that fail as rarely as their level says, and stored codes that find the neighbours.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic)]

use std::sync::Arc;

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use sapwood::kernel::{BLOCK, Kernels, ScanLimit};
use sapwood::metric::Metric;
use sapwood::params::EPSILON;
use sapwood::quantize::{Encoder, Form, Rotation};
use sapwood::tree::aim::Target;
use sapwood::tree::block::Block;
use sapwood::value::{Codec, ValueType};

fn normal(random: &mut Pcg64Mcg) -> f32 {
    let (u, v) = (random.random::<f64>().max(1e-12), random.random::<f64>());
    ((-2.0 * u.ln()).sqrt() * (std::f64::consts::TAU * v).cos()) as f32
}

fn vector(random: &mut Pcg64Mcg, dim: usize, skewed: bool) -> Vec<f32> {
    // Skewed: few coordinates carry most of the length, as in real descriptors; the rotation must make up for it.
    (0..dim).map(|i| normal(random) * if skewed { 4.0 / (1.0 + i as f32) } else { 1.0 }).collect()
}

struct Outcome {
    /// Errors of estimates in units of their stated deviation.
    errors: Vec<f64>,
}

fn outcomes(form: Form, dim: usize, skewed: bool, trials: usize) -> Outcome {
    let kernels = Kernels::get().unwrap();
    let mut random = Pcg64Mcg::seed_from_u64(dim as u64);
    let mut errors = Vec::new();
    for trial in 0..trials {
        // A new rotation each time: that is what the promise is about.
        let rotation = Rotation::new(kernels, dim, trial as u64);
        let padded = rotation.padded();
        let encoder = Encoder::new(kernels, form, padded);
        let rotate = |vector: &[f32]| {
            let mut out = vec![0.0; padded];
            rotation.rotate(vector, &mut out);
            out
        };
        let reference = vector(&mut random, dim, skewed);
        let rotated_reference = rotate(&reference);
        let mut block = Block::new(&Block::pool(encoder.code_bytes()));
        let rows: Vec<Vec<f32>> =
            (0..BLOCK).map(|_| vector(&mut random, dim, skewed).iter().zip(&reference).map(|(x, c)| c + 0.5 * x).collect()).collect();
        let (mut residual, mut bits) = (vec![0.0; padded], vec![0; encoder.code_bytes()]);
        for (place, row) in rows.iter().enumerate() {
            let factors = encoder.encode(&rotate(row), &rotated_reference, &mut residual, &mut bits);
            block.put(place, place as u32, factors, &bits);
        }
        let query: Vec<f32> = vector(&mut random, dim, skewed).iter().zip(&reference).map(|(x, c)| c + 0.7 * x).collect();
        let mut target = Target::new(padded);
        target.aim(kernels, &rotation, &query);
        let distance = (kernels.l2)(&query, &reference);
        let add = if form == Form::Distance { distance } else { -(kernels.dot)(&query, &reference) };
        let limit = ScanLimit { add, error: EPSILON * distance.sqrt(), limit: f32::INFINITY };
        let (mut estimates, mut lowers) = ([0.0; BLOCK], [0.0; BLOCK]);
        (kernels.scan)(&target.table(), &block.codes(), &limit, &mut estimates, &mut lowers);
        for place in 0..BLOCK {
            let exact = match form {
                Form::Distance => (kernels.l2)(&query, &rows[place]),
                Form::Product => -(kernels.dot)(&query, &rows[place]),
            };
            let deviation = (estimates[place] - lowers[place]) / EPSILON;
            errors.push(f64::from((estimates[place] - exact) / deviation));
        }
    }
    Outcome { errors }
}

impl Outcome {
    fn mean(&self) -> f64 {
        self.errors.iter().sum::<f64>() / self.errors.len() as f64
    }

    /// The share of estimates that are too high by more than the bound allows.
    fn misses(&self) -> f64 {
        self.errors.iter().filter(|&&error| error > f64::from(EPSILON)).count() as f64 / self.errors.len() as f64
    }
}

#[test]
fn estimates_have_no_bias() {
    for form in [Form::Distance, Form::Product] {
        for dim in [50, 128, 384] {
            for skewed in [false, true] {
                let outcome = outcomes(form, dim, skewed, 300);
                // The errors' deviation is at most 1 in these units. The entries of one trial share a query and a rotation,
                // so a trial counts as one: five deviations of the mean over 300 trials are 0.29.
                assert!(outcome.mean().abs() < 0.29, "{form:?} {dim} {skewed}: mean error {}", outcome.mean());
            }
        }
    }
}

#[test]
fn bounds_fail_no_more_often_than_their_level_says() {
    // One-sided normal tail at 2.4 deviations.
    let stated = 0.0082;
    for form in [Form::Distance, Form::Product] {
        for dim in [50, 128, 384, 1024] {
            for skewed in [false, true] {
                let misses = outcomes(form, dim, skewed, 150).misses();
                assert!(misses < stated + 0.01, "{form:?} {dim} {skewed}: {misses}");
            }
        }
    }
}

#[test]
fn a_row_equal_to_its_reference_is_estimated_exactly() {
    let kernels = Kernels::get().unwrap();
    for (dim, form) in [(1, Form::Distance), (7, Form::Product), (384, Form::Distance)] {
        let rotation = Rotation::new(kernels, dim, 1);
        let encoder = Encoder::new(kernels, form, rotation.padded());
        let reference = vec![0.3; rotation.padded()];
        let (mut residual, mut bits) = (vec![0.0; rotation.padded()], vec![0; encoder.code_bytes()]);
        let factors = encoder.encode(&reference, &reference, &mut residual, &mut bits);
        assert_eq!((factors.add, factors.rescale, factors.error), (0.0, 0.0, 0.0));
    }
}

/// The share of the 10 nearest of 4,000 rows that are among the 10 nearest by stored rows of a type.
fn recall_of_stored(kind: ValueType, metric: Metric, dim: usize) -> f64 {
    let kernels = Kernels::get().unwrap();
    let mut random = Pcg64Mcg::seed_from_u64(1);
    // Rows around a few centres and of different lengths.
    let centres: Vec<Vec<f32>> = (0..20).map(|_| vector(&mut random, dim, false)).collect();
    let mut row = || {
        let (centre, length) = (&centres[random.random_range(0..20)], random.random_range(0.5..1.5));
        let mut row: Vec<f32> = centre.iter().map(|c| length * (c + 0.7 * normal(&mut random))).collect();
        metric.prepare(&mut row);
        row
    };
    let (rows, queries): (Vec<Vec<f32>>, Vec<Vec<f32>>) = ((0..4000).map(|_| row()).collect(), (0..60).map(|_| row()).collect());
    let codec = Codec::new(kernels, metric, kind, Arc::new(Rotation::new(kernels, dim, 3)));
    let mut room = Vec::new();
    let stored: Vec<Vec<f32>> = rows
        .iter()
        .map(|row| {
            let mut words = vec![0u32; codec.row_bytes() / 4];
            codec.encode(row, bytemuck::cast_slice_mut(&mut words));
            codec.decode(bytemuck::cast_slice(&words), &mut room).to_vec()
        })
        .collect();
    let nearest = |query: &[f32], rows: &[Vec<f32>]| {
        let mut order: Vec<usize> = (0..rows.len()).collect();
        let distances: Vec<f32> = rows.iter().map(|row| metric.distance(kernels, query, row)).collect();
        order.sort_by(|&a, &b| distances[a].total_cmp(&distances[b]));
        order.truncate(10);
        order
    };
    let found = queries.iter().map(|query| {
        let (wanted, found) = (nearest(query, &rows), nearest(query, &stored));
        found.iter().filter(|row| wanted.contains(row)).count()
    });
    found.sum::<usize>() as f64 / (10 * queries.len()) as f64
}

#[test]
fn stored_codes_find_nearly_all_neighbours() {
    for metric in [Metric::L2, Metric::Cosine, Metric::Ip] {
        for (kind, least) in
            [(ValueType::Rabitq3, 0.68), (ValueType::Rabitq4, 0.80), (ValueType::Rabitq6, 0.93), (ValueType::Rabitq8, 0.975)]
        {
            let recall = recall_of_stored(kind, metric, 128);
            assert!(recall >= least, "{kind:?} {metric:?}: {recall}");
        }
    }
}
