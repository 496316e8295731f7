//! One suite for every instruction set: each check runs for each set that this processor has, portable kernels included.
//!
//! Float tolerances, with `e` = `f32::EPSILON` and `S` the sum of the absolute terms:
//! - `l2`, `dot`, their rows and tiles, `dot_planes`, and the sums of `encode`: `(n / 8 + 4) e S`, what four lanes can lose in the worst case;
//! - `hadamard`, `build_table`, the bits of `encode`: none, the same bits as the portable kernels;
//! - `scan_sums`, `dot_bytes`, `popcount`: none, they are integers;
//! - `scan`: `8 e` of the sum of the absolute terms of a bound; entries that close to the limit may or may not be reported.
//!
//! Inputs are cut out of longer arrays of NaN, so a kernel that uses a value beyond its slices is seen. `SAPWOOD_TEST_ISA` names a
//! set that must be present: without it a machine that lacks the set would pass by testing nothing.

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::*;

const LONG: [usize; 9] = [300, 384, 512, 768, 1024, 1025, 1536, 4096, 65_536];

fn lengths() -> impl Iterator<Item = usize> {
    (0..=257).chain(LONG)
}

fn sets() -> Vec<&'static Kernels> {
    let sets: Vec<_> = Kernels::available().into_iter().filter_map(Kernels::of).collect();
    if let Ok(name) = std::env::var("SAPWOOD_TEST_ISA") {
        assert!(sets.iter().any(|set| set.isa.name() == name), "SAPWOOD_TEST_ISA={name} is absent on this processor");
    }
    sets
}

fn rng(seed: usize) -> Pcg64Mcg {
    Pcg64Mcg::seed_from_u64(seed as u64)
}

/// Values in a sea of NaN, at any place relative to a vector register.
struct Cut<T> {
    all: Vec<T>,
    offset: usize,
    length: usize,
}

impl<T: Copy> Cut<T> {
    fn new(values: &[T], offset: usize, outside: T) -> Self {
        let mut all = vec![outside; offset + values.len() + 80];
        all[offset..offset + values.len()].copy_from_slice(values);
        Cut { all, offset, length: values.len() }
    }

    fn get(&self) -> &[T] {
        &self.all[self.offset..][..self.length]
    }

    fn get_mut(&mut self) -> &mut [T] {
        &mut self.all[self.offset..][..self.length]
    }
}

fn cut(values: &[f32], offset: usize) -> Cut<f32> {
    Cut::new(values, offset, f32::NAN)
}

/// Mostly values in -1..1, with a few of those that break careless arithmetic; few enough for their squares to stay finite.
fn values(length: usize, seed: usize) -> Vec<f32> {
    let mut rng = rng(seed);
    let mut values: Vec<f32> = (0..length).map(|_| rng.random_range(-1.0..1.0)).collect();
    if length > 0 && seed.is_multiple_of(3) {
        for extreme in [1e18, -1e18, 1e-30, -1e-30, 0.0, -0.0, 1e-45, 1e9] {
            values[rng.random_range(0..length)] = extreme;
        }
    }
    values
}

/// The sum of `terms`, and what may be lost of it.
fn exact(terms: impl Iterator<Item = f64>) -> (f64, f64) {
    let (mut sum, mut absolute, mut count) = (0.0, 0.0, 0.0);
    for term in terms {
        sum += term;
        absolute += term.abs();
        count += 1.0;
    }
    (sum, (count / 8.0 + 4.0) * f64::from(f32::EPSILON) * absolute + (count + 1.0) * f64::from(f32::MIN_POSITIVE))
}

fn exact_l2(a: &[f32], b: &[f32]) -> (f64, f64) {
    exact(a.iter().zip(b).map(|(&x, &y)| (f64::from(x) - f64::from(y)).powi(2)))
}

fn exact_dot(a: &[f32], b: &[f32]) -> (f64, f64) {
    exact(a.iter().zip(b).map(|(&x, &y)| f64::from(x) * f64::from(y)))
}

#[track_caller]
fn close(set: &Kernels, what: &str, got: f32, (want, tolerance): (f64, f64)) {
    assert!((f64::from(got) - want).abs() <= tolerance, "{} {what}: got {got}, want {want} +- {tolerance}", set.isa.name());
}

#[test]
fn pairs_at_all_lengths_and_alignments() {
    for set in sets() {
        for n in lengths() {
            for offset in 0..16 {
                let (a, b) = (cut(&values(n, n + offset), offset), cut(&values(n, n + 2 * offset + 1), (offset * 7) % 16));
                close(set, "l2", (set.l2)(a.get(), b.get()), exact_l2(a.get(), b.get()));
                close(set, "dot", (set.dot)(a.get(), b.get()), exact_dot(a.get(), b.get()));
            }
        }
    }
}

/// Every result is near the exact one, has the bits of every other kernel that gives it, and nothing else is written.
fn check_tile(set: &Kernels, queries: usize, rows: usize, dim: usize) {
    let (q, r) = (cut(&values(queries * dim, 3 * dim + 1), dim % 16), cut(&values(rows * dim, 3 * dim + 2), rows % 16));
    for (tile, each_row, exact) in
        [(set.l2_tile, set.l2_rows, exact_l2 as fn(&[f32], &[f32]) -> _), (set.dot_tile, set.dot_rows, exact_dot)]
    {
        let mut out = cut(&vec![f32::NAN; queries * rows], queries);
        tile(q.get(), r.get(), dim, out.get_mut());
        for i in 0..queries {
            let query = &q.get()[i * dim..(i + 1) * dim];
            let mut line = cut(&vec![f32::NAN; rows], i);
            each_row(query, r.get(), line.get_mut());
            for j in 0..rows {
                let (got, row) = (out.get()[i * rows + j], &r.get()[j * dim..(j + 1) * dim]);
                close(set, &format!("tile {queries}x{rows}x{dim} at {i},{j}"), got, exact(query, row));
                let mut alone = [0.0];
                tile(query, row, dim, &mut alone);
                assert_eq!(got.to_bits(), alone[0].to_bits(), "{} {queries}x{rows}x{dim} at {i},{j}", set.isa.name());
                assert_eq!(got.to_bits(), line.get()[j].to_bits(), "{} rows {rows}x{dim} at {j}", set.isa.name());
            }
            assert!(line.all[line.offset + rows..].iter().all(|x| x.is_nan()));
        }
        assert!(out.all[..out.offset].iter().chain(&out.all[out.offset + queries * rows..]).all(|x| x.is_nan()));
    }
}

#[test]
fn tiles_of_all_shapes() {
    for set in sets() {
        for dim in [0, 1, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 24, 31, 32, 33, 63, 64, 100, 384] {
            for queries in 0..=9 {
                for rows in 0..=9 {
                    check_tile(set, queries, rows, dim);
                }
            }
        }
    }
}

#[test]
fn tiles_of_all_small_dimensions_and_of_many_panels() {
    for set in sets() {
        (0..=257).for_each(|dim| check_tile(set, 7, 13, dim));
        LONG[..8].iter().for_each(|&dim| check_tile(set, 7, 37, dim));
        check_tile(set, 4, 5, 65_536);
        check_tile(set, 13, 530, 16);
    }
}

#[test]
fn hadamard_has_the_bits_of_the_portable_one() {
    for set in sets() {
        for n in (0..=16).map(|log| 1usize << log) {
            for offset in 0..16 {
                let mut got = cut(&values(n, n + offset), offset);
                let mut want = got.get().to_vec();
                scalar::hadamard_body(&mut want);
                (set.hadamard)(got.get_mut());
                let same = got.get().iter().zip(&want).all(|(x, y)| x.to_bits() == y.to_bits());
                assert!(same, "{} hadamard of {n} at offset {offset}", set.isa.name());
                assert!(got.all[..offset].iter().chain(&got.all[offset + n..]).all(|x| x.is_nan()));
            }
        }
        (set.hadamard)(&mut []);
    }
}

#[test]
fn hadamard_is_the_matrix_of_signs() {
    for set in sets() {
        for n in [1usize, 2, 4, 8, 16, 32, 64, 128, 256, 512] {
            let input = values(n, 3 * n + 1);
            let mut got = input.clone();
            (set.hadamard)(&mut got);
            for (i, &got) in got.iter().enumerate() {
                let sign = |j: usize| if (i & j).count_ones().is_multiple_of(2) { 1.0 } else { -1.0 };
                close(set, "hadamard", got, exact(input.iter().enumerate().map(|(j, &x)| sign(j) * f64::from(x))));
            }
        }
    }
}

#[test]
fn codes_have_the_signs_and_the_sums() {
    for set in sets() {
        for n in lengths().filter(|n| n % 8 == 0) {
            for offset in 0..16 {
                let (r, c) = (cut(&values(n, n + offset), offset), cut(&values(n, n + offset + 1), 15 - offset));
                let mut bits = Cut::new(&vec![0x5au8; n / 8], offset, 0xa5);
                let sums = (set.encode)(r.get(), c.get(), bits.get_mut());
                for (i, &x) in r.get().iter().enumerate() {
                    assert_eq!(bits.get()[i / 8] >> (i % 8) & 1 == 1, x >= 0.0, "{} bit {i} of {n}", set.isa.name());
                }
                assert!(bits.all[offset + n / 8..].iter().all(|&byte| byte == 0xa5));
                let pairs = || r.get().iter().zip(c.get()).map(|(&r, &c)| (f64::from(r), f64::from(c)));
                close(set, "absolute", sums.absolute, exact(pairs().map(|(r, _)| r.abs())));
                close(set, "square", sums.square, exact(pairs().map(|(r, _)| r * r)));
                close(set, "reference_sign", sums.reference_sign, exact(pairs().map(|(r, c)| if r >= 0.0 { c } else { -c })));
                close(set, "reference_residual", sums.reference_residual, exact(pairs().map(|(r, c)| r * c)));
            }
        }
    }
}

#[test]
fn query_tables_have_the_bits_of_the_portable_ones() {
    let portable = &scalar::KERNELS;
    for set in sets() {
        for n in lengths().filter(|n| n % GROUP == 0) {
            for (offset, factor) in (0..16).zip([1.0, 1e18, 1e-18, 1e-30, 1e-36, 1e-40, 0.0, -0.0].into_iter().cycle()) {
                let query: Vec<f32> = values(n, 3 * n + 1).iter().map(|x| x * factor).collect();
                let query = cut(&query, offset);
                let mut got = Cut::new(&vec![0u8; 4 * n], offset, 0xa5);
                let mut want = vec![0u8; 4 * n];
                let scale = (set.build_table)(query.get(), got.get_mut());
                assert_eq!(scale, (portable.build_table)(query.get(), &mut want), "{} scale of {n} x {factor}", set.isa.name());
                assert_eq!(got.get(), want, "{} table of {n} x {factor}", set.isa.name());
                assert!(got.all[offset + 4 * n..].iter().all(|&byte| byte == 0xa5));
            }
            let (query, mut got, mut want) = (values(n, 3 * n), vec![0; 4 * n], vec![0; 4 * n]);
            let scale = (set.build_table)(&query, &mut got);
            assert_eq!((scale, got), ((portable.build_table)(&query, &mut want), want), "{} extremes of {n}", set.isa.name());
        }
    }
}

#[test]
fn query_tables_give_back_inner_products() {
    for n in [4, 64, 384, 1024, 4096] {
        let (query, codes) = (values(n, 3 * n + 1), bytes(4 * n, n));
        let (mut table, mut sums) = (vec![0; 4 * n], [0; BLOCK]);
        let scale = (scalar::KERNELS.build_table)(&query, &mut table);
        (scalar::KERNELS.scan_sums)(&codes, &table, &mut sums);
        for (v, &sum) in sums.iter().enumerate() {
            let bit = |i: usize| codes[i / 4 * 16 + v % 16] >> (v / 16 * 4 + i % 4) & 1;
            let (want, _) = exact(query.iter().enumerate().map(|(i, &q)| f64::from(q) * (f64::from(bit(i)) - 0.5)));
            let got = f64::from(scale.step) * f64::from(sum) + f64::from(scale.offset);
            // Half a step for each group at worst; two of the reported errors (five deviations) in practice.
            assert!((got - want).abs() <= f64::from((2.0 * scale.error).min(n as f32 / 8.0 * scale.step)) + 1e-4, "{n} {v} {got} {want}");
        }
    }
}

fn bytes(length: usize, seed: usize) -> Vec<u8> {
    let mut rng = rng(seed);
    (0..length).map(|_| rng.random()).collect()
}

#[test]
fn scan_sums_are_exact() {
    for set in sets() {
        for groups in (0..=530).chain([768, 769, 1024, 1025, 4096, 16_384]) {
            let codes = bytes(16 * groups, groups);
            for (k, table) in [bytes(16 * groups, groups + 1), vec![255; 16 * groups], vec![1; 16 * groups]].into_iter().enumerate() {
                let (codes, table) = (Cut::new(&codes, (groups * 5) % 64, 0x77), Cut::new(&table, (groups + k) % 64, 0x99));
                let mut want = [0u32; BLOCK];
                (scalar::KERNELS.scan_sums)(codes.get(), table.get(), &mut want);
                let mut got = [7u32; BLOCK];
                (set.scan_sums)(codes.get(), table.get(), &mut got);
                assert_eq!(got, want, "{} {groups} groups", set.isa.name());
            }
        }
    }
}

#[test]
fn scan_sums_at_all_alignments() {
    for set in sets() {
        for offset in 0..64 {
            let (codes, table) =
                (Cut::new(&bytes(16 * 97, offset), offset, 0x77), Cut::new(&bytes(16 * 97, offset + 1), 63 - offset, 0x99));
            let (mut got, mut want) = ([7u32; BLOCK], [0u32; BLOCK]);
            (scalar::KERNELS.scan_sums)(codes.get(), table.get(), &mut want);
            (set.scan_sums)(codes.get(), table.get(), &mut got);
            assert_eq!(got, want, "{} offset {offset}", set.isa.name());
        }
    }
}

struct Scene {
    codes: Vec<u8>,
    table: Vec<u8>,
    scale: TableScale,
    factors: [Lanes; 3],
    limit: ScanLimit,
}

impl Scene {
    fn new(groups: usize, seed: usize) -> Self {
        let mut rng = rng(seed);
        let size = [1.0, 1e6, 1e-6][seed % 3];
        let mut lanes = |low: f32, high: f32| std::array::from_fn(|_| size * rng.random_range(low..high));
        let factors = [lanes(0.0, 4.0), lanes(-3.0, 1.0), lanes(0.0, 0.3)];
        let scale = TableScale { step: 0.001, offset: -0.06 * groups as f32, error: 0.01 };
        let limit = ScanLimit { add: 2.0 * size, error: 1.3, limit: 0.0 };
        Scene { codes: bytes(16 * groups, seed), table: bytes(16 * groups, seed + 1), scale, factors, limit }
    }

    /// Estimate, lower bound and tolerance of entry `v`.
    fn exact(&self, sums: &[u32; BLOCK], v: usize) -> (f64, f64, f64) {
        let [add, rescale, error] = self.factors.map(|lanes| f64::from(lanes[v]));
        let (step, offset, table_error) = (f64::from(self.scale.step), f64::from(self.scale.offset), f64::from(self.scale.error));
        let estimate = add + f64::from(self.limit.add) + rescale * (step * f64::from(sums[v]) + offset);
        let (own, table) = (error * f64::from(self.limit.error), rescale.abs() * table_error);
        let terms = add.abs() + f64::from(self.limit.add).abs() + rescale.abs() * (step * f64::from(sums[v]) + offset.abs()) + own + table;
        (estimate, estimate - own - table, 8.0 * f64::from(f32::EPSILON) * terms)
    }
}

/// Scans with one limit and checks the mask, and the numbers where there is a mask.
fn check_scan(set: &Kernels, scene: &Scene, limit: f32) {
    let mut sums = [0; BLOCK];
    (scalar::KERNELS.scan_sums)(&scene.codes, &scene.table, &mut sums);
    let [add, rescale, error] = &scene.factors;
    let block = CodeBlock { codes: &scene.codes, add, rescale, error };
    let (mut estimates, mut lowers) = ([f32::NAN; BLOCK], [f32::NAN; BLOCK]);
    let table = ScanTable { table: &scene.table, scale: scene.scale };
    let mask = (set.scan)(&table, &block, &ScanLimit { limit, ..scene.limit }, &mut estimates, &mut lowers);
    for v in 0..BLOCK {
        let (estimate, lower, tolerance) = scene.exact(&sums, v);
        if mask != 0 {
            close(set, "estimate", estimates[v], (estimate, tolerance));
            close(set, "lower", lowers[v], (lower, tolerance));
        }
        if (lower - f64::from(limit)).abs() > tolerance {
            assert_eq!(mask >> v & 1 == 1, lower <= f64::from(limit), "{} entry {v}, limit {limit}", set.isa.name());
        }
    }
}

#[test]
fn scans_report_what_is_not_a_number() {
    for set in sets() {
        let mut scene = Scene::new(96, 1);
        scene.factors[0][5] = f32::NAN;
        scene.factors[0][31] = f32::INFINITY;
        scene.factors[2][31] = f32::INFINITY;
        let [add, rescale, error] = &scene.factors;
        let block = CodeBlock { codes: &scene.codes, add, rescale, error };
        let table = ScanTable { table: &scene.table, scale: scene.scale };
        let limit = ScanLimit { limit: f32::NEG_INFINITY, ..scene.limit };
        let mask = (set.scan)(&table, &block, &limit, &mut [0.0; BLOCK], &mut [0.0; BLOCK]);
        assert_eq!(mask, 1 << 5 | 1 << 31, "{}", set.isa.name());
    }
}

#[test]
fn scans_report_what_is_within_the_limit() {
    for set in sets() {
        for groups in (0..=70).chain([96, 128, 192, 255, 256, 257, 384, 1024, 16_384]) {
            for seed in 0..6 {
                let scene = Scene::new(groups, 6 * groups + seed);
                let mut sums = [0; BLOCK];
                (scalar::KERNELS.scan_sums)(&scene.codes, &scene.table, &mut sums);
                for v in 0..BLOCK {
                    check_scan(set, &scene, scene.exact(&sums, v).1 as f32);
                }
                check_scan(set, &scene, f32::INFINITY);
                check_scan(set, &scene, f32::NEG_INFINITY);
            }
        }
    }
}

#[test]
fn products_of_bytes_are_exact() {
    for length in [0, 64, 128, 192, 256, 384, 448, 1024, 1536, 4096, 65_536] {
        // The largest values whose sum stays within an i32, the same everywhere: the worst case of every running sum.
        let most = (i32::MAX as usize / (128 * length.max(1))).min(i16::MAX as usize) as i16;
        for seed in 0..40 {
            let mut rng = rng(seed + length);
            let query: Vec<i16> = (0..length).map(|_| if seed == 0 { most } else { rng.random_range(-most..=most) }).collect();
            let row: Vec<i8> = (0..length).map(|_| if seed == 0 { i8::MIN } else { rng.random_range(i8::MIN..=i8::MAX) }).collect();
            let want = i32::try_from(query.iter().zip(&row).map(|(&q, &x)| i64::from(q) * i64::from(x)).sum::<i64>());
            let (query, row) = (Cut::new(&query, seed % 32, i16::MAX), Cut::new(&row, seed % 64, i8::MAX));
            for set in sets() {
                assert_eq!(Ok((set.dot_bytes)(query.get(), row.get())), want, "{} {length}", set.isa.name());
            }
        }
    }
}

#[test]
fn products_with_bit_planes_at_all_lengths_and_alignments() {
    for length in (0..=1536).step_by(64).chain([4096, 65_536]) {
        for bits in 1..=8 {
            for offset in 0..16 {
                let query = cut(&values(length, length + bits + offset), offset);
                // All ones at last: the largest numbers.
                let planes = if offset == 15 { vec![255; bits * length / 8] } else { bytes(bits * length / 8, offset) };
                let planes = Cut::new(&planes, (offset * 7) % 16, 0x5a);
                let bit = |j: usize, i: usize| planes.get()[j * length / 8 + i / 8] >> (i % 8) & 1;
                let number = |i: usize| (0..bits).map(|j| u32::from(bit(j, i)) << j).sum::<u32>();
                let want = exact(query.get().iter().enumerate().map(|(i, &q)| f64::from(q) * f64::from(number(i))));
                for set in sets() {
                    close(set, &format!("{bits} planes of {length}"), (set.dot_planes)(query.get(), planes.get(), bits), want);
                }
            }
        }
    }
}

#[test]
fn popcounts_are_exact() {
    for set in sets() {
        for words in (0..=70).chain([96, 128, 1024]) {
            for planes in 0..=5 {
                let mut rng = rng(words + planes);
                let mut random = |n: usize| -> Vec<u64> { (0..n).map(|_| if planes == 5 { u64::MAX } else { rng.random() }).collect() };
                let (code, query) = (Cut::new(&random(words), words % 8, u64::MAX), Cut::new(&random(words * planes), planes, u64::MAX));
                let mut want = 0;
                for (i, &q) in query.get().iter().enumerate() {
                    want += (code.get()[i % words] & q).count_ones() << (i / words);
                }
                assert_eq!((set.popcount)(code.get(), query.get()), want, "{} {words} words, {planes} planes", set.isa.name());
            }
        }
    }
}

#[test]
fn a_forced_set_is_used_or_refused() -> Result<()> {
    let available = Kernels::available();
    assert_eq!(choose(None)?.isa, choose(Some(""))?.isa);
    assert_eq!(Some(&choose(None)?.isa), available.last());
    for isa in [Isa::Scalar, Isa::Avx2, Isa::Avx512, Isa::Neon] {
        match choose(Some(isa.name())) {
            Ok(kernels) => assert!(kernels.isa == isa && available.contains(&isa)),
            Err(error) => assert!(matches!(error, Error::Isa { .. }) && !available.contains(&isa)),
        }
    }
    assert!(matches!(choose(Some("AVX2 ")), Err(Error::Isa { .. })));
    Ok(())
}
