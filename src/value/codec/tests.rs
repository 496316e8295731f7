//! What comes back, how far it is from what was given, and what damaged bytes give.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

const METRICS: [Metric; 3] = [Metric::L2, Metric::Cosine, Metric::Ip];

fn codec(kind: ValueType, metric: Metric, dim: usize) -> Codec {
    let kernels = Kernels::get().unwrap();
    Codec::new(kernels, metric, kind, Arc::new(Rotation::new(kernels, dim, 5)))
}

fn coded() -> impl Iterator<Item = (ValueType, usize)> {
    ValueType::ALL.into_iter().filter_map(|kind| kind.code_bits().map(|bits| (kind, bits)))
}

/// The words of a stored row.
fn stored(codec: &Codec, row: &[f32]) -> Vec<u32> {
    let mut words = vec![0x5a5a_5a5a; codec.row_bytes() / 4];
    assert_eq!(codec.encode(row, bytemuck::cast_slice_mut(&mut words)), None);
    words
}

fn decoded(codec: &Codec, words: &[u32]) -> Vec<f32> {
    codec.decode(bytemuck::cast_slice(words), &mut vec![f32::NAN; 3]).to_vec()
}

fn dot(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)).sum()
}

fn square(a: &[f32]) -> f64 {
    dot(a, a)
}

fn prepared(metric: Metric, row: &[f32]) -> Vec<f32> {
    let mut row = row.to_vec();
    metric.prepare(&mut row);
    row
}

/// Of rotated rows a code of so many bits loses this share of the squared length, the squared sine of an angle, and seldom much more.
fn loss(bits: usize) -> f64 {
    [0.0374, 0.0115, 0.00350, 0.00104, 0.000304, 0.0000877][bits - 3]
}

proptest! {
    #[test]
    fn values_come_back_within_the_precision_of_their_type(row in prop::collection::vec(-1000.0f32..1000.0, 1..70)) {
        let largest = row.iter().fold(0.0f32, |most, x| most.max(x.abs()));
        for kind in ValueType::ALL.into_iter().filter(|kind| kind.code_bits().is_none()) {
            let codec = codec(kind, Metric::L2, row.len());
            let words = stored(&codec, &row);
            let back = decoded(&codec, &words);
            for (&x, &y) in row.iter().zip(&back) {
                let most = match kind {
                    ValueType::F32 => 0.0,
                    ValueType::F16 => x.abs() / 2048.0 + 1e-7,
                    ValueType::Bf16 => x.abs() / 256.0,
                    _ => largest / 127.0 * 0.501,
                };
                prop_assert!((x - y).abs() <= most, "{x} as {kind:?} is {y}");
            }
            if kind != ValueType::Int8 {
                prop_assert_eq!(decoded(&codec, &stored(&codec, &back)), back);
            }
        }
    }

    #[test]
    fn codes_come_back_within_the_error_of_their_bits(row in prop::collection::vec(-1000.0f32..1000.0, 1..300), zeros in 0usize..4) {
        // Now and then most values are zero.
        let row: Vec<f32> = row.iter().enumerate().map(|(i, &x)| if zeros == 3 && i % 7 != 0 { 0.0 } else { x }).collect();
        prop_assume!(square(&row) > 1e-6);
        for (kind, bits) in coded() {
            for metric in METRICS {
                let row = prepared(metric, &row);
                let codec = codec(kind, metric, row.len());
                let back = decoded(&codec, &stored(&codec, &row));
                prop_assert_eq!(back.len(), row.len());
                let lost = 1.0 - dot(&row, &back).powi(2) / (square(&row) * square(&back));
                prop_assert!(lost <= 2.0 * loss(bits), "{kind:?}: {lost} lost, expected {}", loss(bits));
                // The scale, by metric.
                let (got, wanted) = match metric {
                    Metric::L2 => (dot(&row, &back), square(&back)),
                    Metric::Cosine => (square(&back), 1.0),
                    Metric::Ip => (dot(&row, &back), square(&row)),
                };
                prop_assert!((got / wanted - 1.0).abs() < 1e-5, "{kind:?} {metric:?}: {got}, not {wanted}");
            }
        }
    }

    #[test]
    fn distances_to_codes_are_those_of_what_comes_back(
        row in prop::collection::vec(-10.0f32..10.0, 1..300), seed: u64, near: bool
    ) {
        let kernels = Kernels::get().unwrap();
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let query: Vec<f32> = row.iter().map(|x| if near { *x } else { 0.0 } + random.random_range(-3.0..3.0)).collect();
        for (kind, _) in coded() {
            for metric in METRICS {
                let (row, query) = (prepared(metric, &row), prepared(metric, &query));
                let codec = codec(kind, metric, row.len());
                let words = stored(&codec, &row);
                let back = decoded(&codec, &words);
                let mut rotated = vec![0.0; codec.rotation.padded()];
                codec.rotation.rotate(&query, &mut rotated);
                let got = codec.distance(&rotated, &codec.sums(&rotated), bytemuck::cast_slice(&words));
                let tolerance = 2e-6 * (square(&query) + square(&back)) as f32 + 1e-12;
                let wanted = metric.distance(kernels, &query, &back);
                prop_assert!((got - wanted).abs() <= tolerance, "{kind:?} {metric:?}: {got}, not {wanted}");
            }
        }
    }

    #[test]
    fn any_bytes_are_read_back(words in prop::collection::vec(any::<u32>(), 200), dim in 1usize..200) {
        for kind in ValueType::ALL {
            for metric in METRICS {
                let codec = codec(kind, metric, dim);
                let words: Vec<u32> = words.iter().copied().cycle().take(codec.row_bytes() / 4).collect();
                prop_assert_eq!(decoded(&codec, &words).len(), dim);
                if codec.is_coded() {
                    let rotated = vec![0.1; codec.rotation.padded()];
                    let distance = codec.distance(&rotated, &codec.sums(&rotated), bytemuck::cast_slice(&words));
                    prop_assert!(metric != Metric::L2 || distance >= 0.0 || distance.is_nan());
                }
            }
        }
    }
}

#[test]
fn rows_take_the_bytes_that_they_should() {
    for (kind, bits) in coded() {
        assert_eq!(kind.row_bytes(384), 8 + 48 * bits);
        // As many bits as the rotated vector has values.
        assert_eq!((kind.row_bytes(1), kind.row_bytes(129)), (8 + 16 * bits, 8 + 24 * bits));
    }
    for kind in ValueType::ALL {
        assert!((1..300).all(|dim| kind.row_bytes(dim).is_multiple_of(4)), "{kind:?}");
        assert_eq!(ValueType::from_name(kind.name()), Some(kind));
    }
}

#[test]
fn zeros_and_the_smallest_and_largest_rows_are_coded() {
    for (kind, bits) in coded() {
        for metric in METRICS {
            let codec = codec(kind, metric, 40);
            assert_eq!(decoded(&codec, &stored(&codec, &[0.0; 40])), [0.0; 40]);
            assert_eq!(decoded(&codec, &stored(&codec, &[-0.0; 40])), [0.0; 40]);
            for size in [1e-30f32, 1e-18, 1.0, 1e18, 1e36] {
                let row: Vec<f32> = (0..40).map(|i| size * (i as f32 - 18.3)).collect();
                let row = prepared(metric, &row);
                let back = decoded(&codec, &stored(&codec, &row));
                let lost = 1.0 - dot(&row, &back).powi(2) / (square(&row) * square(&back));
                assert!(lost < 2.0 * loss(bits), "{kind:?} {metric:?} {size}: {lost}");
            }
        }
    }
}

#[test]
fn what_a_type_cannot_hold_is_named() {
    let given = |kind, row: &[f32]| {
        let codec = codec(kind, Metric::L2, row.len());
        codec.encode(row, bytemuck::cast_slice_mut(&mut vec![0u32; codec.row_bytes() / 4]))
    };
    assert_eq!(given(ValueType::F16, &[1.0, 70_000.0]), Some(70_000.0));
    assert_eq!(given(ValueType::Bf16, &[1.0, f32::MAX]), Some(f32::MAX));
    assert_eq!(given(ValueType::Int8, &[0.0, 0.0]), None);
    // Whether a row of the largest floats comes back larger still is chance; it is refused or it is finite.
    for (kind, _) in coded() {
        for dim in 1..100 {
            let row: Vec<f32> = (0..dim).map(|i| if i % 3 == 0 { f32::MAX } else { -f32::MAX }).collect();
            let codec = codec(kind, Metric::L2, dim);
            let mut words = vec![0u32; codec.row_bytes() / 4];
            let refused = codec.encode(&row, bytemuck::cast_slice_mut(&mut words));
            assert!(refused.is_some_and(|x| x.abs() == f32::MAX) || decoded(&codec, &words).iter().all(|x| x.is_finite()));
        }
    }
}
