//! Every kernel, on every instruction set of this processor: `cargo bench --bench kernels`, or with a filter: `... -- scan`.
//!
//! `cargo bench --bench kernels -- ns-a-code` prints one table instead: what the scan of a code costs, by dimensions and instruction set,
//! from cache and from memory.
//!
//! Throughput is in items, chosen so that it can be compared with what the processor can do: codes for the scans (1 Gitem/s is 1 ns a
//! code), multiply-adds for distances (times two for FLOP/s; a core that starts two AVX2 multiply-adds a cycle does 16 a cycle).

use std::fmt;
use std::time::{Duration, Instant};

use divan::counter::ItemsCount;
use divan::{Bencher, black_box};
use sapwood::kernel::{BLOCK, CodeBlock, Isa, Kernels, ScanLimit, ScanTable};

const DIMS: [usize; 6] = [64, 128, 384, 768, 1024, 1536];

/// Rows of a tile benchmark: with 384 dimensions 96 KiB, in the second-level cache of any server.
const ROWS: usize = 64;

/// Blocks that stay in the first-level cache at 384 dimensions with their factors, and bytes that no cache holds.
const NEAR: usize = 8;
const FAR_BYTES: usize = 256 << 20;

/// A cell of the table is the median of so many measurements, each at least so long.
const REPEATS: usize = 7;
const LEAST: Duration = Duration::from_millis(20);

fn main() {
    if std::env::args().any(|argument| argument == "ns-a-code") {
        print_table();
    } else {
        divan::main();
    }
}

#[derive(Clone, Copy)]
struct Case {
    kernels: &'static Kernels,
    dim: usize,
}

impl fmt::Display for Case {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.dim, self.kernels.isa.name())
    }
}

fn cases() -> Vec<Case> {
    let sets: Vec<_> = Kernels::available().into_iter().filter_map(Kernels::of).collect();
    DIMS.iter().flat_map(|&dim| sets.iter().map(move |&kernels| Case { kernels, dim })).collect()
}

/// The portable kernels are too slow to be worth waiting for out of cache, but for the table.
fn fast_cases() -> Vec<Case> {
    cases().into_iter().filter(|case| case.kernels.isa != Isa::Scalar).collect()
}

/// Values without a pattern, in -1..1.
fn values(count: usize) -> Vec<f32> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 8) as f32 / (1u32 << 23) as f32 - 1.0).collect()
}

fn bytes(count: usize) -> Vec<u8> {
    (0..count as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

#[divan::bench(args = cases())]
fn l2(bencher: Bencher, case: Case) {
    let (a, b) = (values(case.dim), values(case.dim + 1));
    bencher.counter(ItemsCount::new(case.dim)).bench_local(|| (case.kernels.l2)(black_box(&a), black_box(&b[1..])));
}

#[divan::bench(args = cases())]
fn dot(bencher: Bencher, case: Case) {
    let (a, b) = (values(case.dim), values(case.dim + 1));
    bencher.counter(ItemsCount::new(case.dim)).bench_local(|| (case.kernels.dot)(black_box(&a), black_box(&b[1..])));
}

#[divan::bench(args = cases())]
fn l2_rows(bencher: Bencher, case: Case) {
    let (query, rows, mut out) = (values(case.dim), values(ROWS * case.dim), vec![0.0; ROWS]);
    bencher.counter(ItemsCount::new(ROWS * case.dim)).bench_local(|| (case.kernels.l2_rows)(black_box(&query), black_box(&rows), &mut out));
}

fn tile(bencher: Bencher, dim: usize, kernel: fn(&[f32], &[f32], usize, &mut [f32])) {
    let (queries, rows, mut out) = (values(ROWS * dim), values(ROWS * dim), vec![0.0; ROWS * ROWS]);
    bencher.counter(ItemsCount::new(ROWS * ROWS * dim)).bench_local(|| kernel(black_box(&queries), black_box(&rows), dim, &mut out));
}

#[divan::bench(args = cases())]
fn l2_tile(bencher: Bencher, case: Case) {
    tile(bencher, case.dim, case.kernels.l2_tile);
}

#[divan::bench(args = cases())]
fn dot_tile(bencher: Bencher, case: Case) {
    tile(bencher, case.dim, case.kernels.dot_tile);
}

#[divan::bench(args = cases())]
fn hadamard(bencher: Bencher, case: Case) {
    let mut data = values(case.dim.next_power_of_two());
    bencher.counter(ItemsCount::new(data.len())).bench_local(|| {
        (case.kernels.hadamard)(black_box(&mut data));
        // Values grow with each transform; this keeps them finite.
        data[0] = 1.0;
        data[1..].fill(0.0);
    });
}

#[divan::bench(args = cases())]
fn encode(bencher: Bencher, case: Case) {
    let (residual, reference, mut bits) = (values(case.dim), values(case.dim), vec![0; case.dim / 8]);
    let encode = case.kernels.encode;
    bencher.counter(ItemsCount::new(case.dim)).bench_local(|| encode(black_box(&residual), black_box(&reference), &mut bits));
}

#[divan::bench(args = cases())]
fn build_table(bencher: Bencher, case: Case) {
    let (query, mut table) = (values(case.dim), vec![0; 4 * case.dim]);
    bencher.counter(ItemsCount::new(case.dim)).bench_local(|| (case.kernels.build_table)(black_box(&query), &mut table));
}

/// Blocks that lie in memory as a leaf's do: codes, then factors. About one entry in a hundred is within the limit.
struct Leaf {
    case: Case,
    codes: Vec<u8>,
    factors: Vec<f32>,
    table: Vec<u8>,
}

impl Leaf {
    fn new(case: Case, blocks: usize) -> Self {
        Self { case, codes: bytes(4 * case.dim * blocks), factors: vec![1.0; 3 * BLOCK * blocks], table: vec![0; 4 * case.dim] }
    }

    /// As many blocks as no cache holds.
    fn far(case: Case) -> Self {
        Self::new(case, FAR_BYTES / (4 * case.dim + 3 * BLOCK * size_of::<f32>()))
    }

    fn len(&self) -> usize {
        self.factors.len() / 3
    }

    /// A scan of all blocks for one query, once or as often as the result is called.
    fn scan(&mut self) -> impl FnMut() -> u32 {
        let Case { kernels, dim } = self.case;
        let scale = (kernels.build_table)(&values(dim), &mut self.table);
        let limit = ScanLimit { add: 0.0, error: 0.0, limit: 1.0 - scale.error - 2.33 * (dim as f32 / 12.0).sqrt() };
        let (table, codes, factors) = (ScanTable { table: &self.table, scale }, &self.codes, &self.factors);
        let (mut estimates, mut lowers) = ([0.0; BLOCK], [0.0; BLOCK]);
        move || {
            let mut found = 0;
            for (codes, factors) in codes.chunks_exact(4 * dim).zip(factors.as_chunks::<BLOCK>().0.as_chunks::<3>().0) {
                let [add, rescale, error] = factors;
                let block = CodeBlock { codes, add, rescale, error };
                found += (kernels.scan)(&table, &block, &limit, &mut estimates, &mut lowers).count_ones();
            }
            found
        }
    }
}

fn scan(bencher: Bencher, mut leaf: Leaf) {
    bencher.counter(ItemsCount::new(leaf.len())).bench_local(leaf.scan());
}

/// Nanoseconds a code: the median of `REPEATS` measurements.
fn ns_a_code(mut leaf: Leaf) -> f64 {
    let codes = leaf.len();
    let mut scan = leaf.scan();
    // Once unmeasured: pages are mapped, and what fits into a cache is there.
    black_box(scan());
    let mut measured: Vec<f64> = (0..REPEATS)
        .map(|_| {
            let (begun, mut passes) = (Instant::now(), 0);
            while begun.elapsed() < LEAST {
                black_box(scan());
                passes += 1;
            }
            begun.elapsed().as_secs_f64() * 1e9 / (passes * codes) as f64
        })
        .collect();
    measured.sort_by(f64::total_cmp);
    measured[REPEATS / 2]
}

/// A line for each number of dimensions; for each instruction set what a code costs from cache and from memory.
#[expect(clippy::print_stdout, reason = "printing it is its purpose")]
fn print_table() {
    let sets: Vec<_> = Kernels::available().into_iter().filter_map(Kernels::of).collect();
    println!("ns a code: {NEAR} blocks of {BLOCK} codes from cache, {} MiB from memory", FAR_BYTES >> 20);
    print!("{:>6}", "dims");
    for kernels in &sets {
        print!("  {:>14} {:>14}", format!("{} cache", kernels.isa.name()), format!("{} memory", kernels.isa.name()));
    }
    println!();
    for dim in DIMS {
        print!("{dim:>6}");
        for &kernels in &sets {
            let case = Case { kernels, dim };
            print!("  {:>14.2} {:>14.2}", ns_a_code(Leaf::new(case, NEAR)), ns_a_code(Leaf::far(case)));
        }
        println!();
    }
}

#[divan::bench(args = cases())]
fn scan_in_cache(bencher: Bencher, case: Case) {
    scan(bencher, Leaf::new(case, NEAR));
}

#[divan::bench(args = fast_cases(), sample_count = 10)]
fn scan_out_of_cache(bencher: Bencher, case: Case) {
    scan(bencher, Leaf::far(case));
}

#[divan::bench(args = cases())]
fn popcount(bencher: Bencher, case: Case) {
    let words = case.dim / 64;
    let random = |count: u64| -> Vec<u64> { (0..count).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15)).collect() };
    let (code, planes) = (random(words as u64), random(4 * words as u64));
    bencher.counter(ItemsCount::new(1usize)).bench_local(|| (case.kernels.popcount)(black_box(&code), black_box(&planes)));
}

#[divan::bench(args = cases(), consts = [3, 4, 8])]
fn dot_planes<const BITS: usize>(bencher: Bencher, case: Case) {
    let (query, planes) = (values(case.dim), bytes(BITS * case.dim / 8));
    let count = ItemsCount::new(case.dim);
    bencher.counter(count).bench_local(|| (case.kernels.dot_planes)(black_box(&query), black_box(&planes), BITS));
}
