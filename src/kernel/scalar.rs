//! Portable kernels: the specification of every other set, and the fallback.
//!
//! Sums run in eight lanes, added pairwise at the end: the compiler may keep the lanes in registers of any width, and the error grows
//! with `n / 8` instead of `n`.

use super::{BLOCK, CodeBlock, CodeSums, GROUP, Isa, Kernels, Lanes, ScanLimit, ScanTable, TableScale};

/// The portable set.
pub static KERNELS: Kernels = Kernels {
    isa: Isa::Scalar,
    l2,
    dot,
    l2_rows,
    dot_rows,
    l2_tile,
    dot_tile,
    hadamard,
    encode,
    build_table,
    scan_sums,
    scan,
    dot_bytes,
    popcount,
    dot_planes,
};

const LANES: usize = 8;

/// The sum over i of `term(a_i, b_i)`.
#[inline(always)]
fn reduce(a: &[f32], b: &[f32], term: impl Fn(f32, f32) -> f32) -> f32 {
    debug_assert_eq!(a.len(), b.len());
    let mut sums = [0.0f32; LANES];
    let (a_chunks, a_rest) = a.as_chunks::<LANES>();
    let (b_chunks, b_rest) = b.as_chunks::<LANES>();
    for (x, y) in a_chunks.iter().zip(b_chunks) {
        for lane in 0..LANES {
            sums[lane] += term(x[lane], y[lane]);
        }
    }
    for (lane, (&x, &y)) in a_rest.iter().zip(b_rest).enumerate() {
        sums[lane] += term(x, y);
    }
    ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]))
}

fn l2(a: &[f32], b: &[f32]) -> f32 {
    reduce(a, b, |x, y| (x - y) * (x - y))
}

fn dot(a: &[f32], b: &[f32]) -> f32 {
    reduce(a, b, |x, y| x * y)
}

fn each_row(query: &[f32], rows: &[f32], out: &mut [f32], pair: impl Fn(&[f32], &[f32]) -> f32) {
    debug_assert_eq!(rows.len(), query.len() * out.len());
    if query.is_empty() {
        return out.fill(0.0);
    }
    for (row, out) in rows.chunks_exact(query.len()).zip(out) {
        *out = pair(query, row);
    }
}

fn l2_rows(query: &[f32], rows: &[f32], out: &mut [f32]) {
    each_row(query, rows, out, l2);
}

fn dot_rows(query: &[f32], rows: &[f32], out: &mut [f32]) {
    each_row(query, rows, out, dot);
}

fn each_pair(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32], one: impl Fn(&[f32], &[f32], &mut [f32])) {
    if dim == 0 {
        return out.fill(0.0);
    }
    let columns = rows.len() / dim;
    for (query, out) in queries.chunks_exact(dim).zip(out.chunks_exact_mut(columns.max(1))) {
        one(query, rows, out);
    }
}

fn l2_tile(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]) {
    each_pair(queries, rows, dim, out, l2_rows);
}

fn dot_tile(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]) {
    each_pair(queries, rows, dim, out, dot_rows);
}

/// Butterflies of half-widths 1, 2, 4, ...; written so that any vector width fits.
#[inline(always)]
pub(super) fn hadamard_body(values: &mut [f32]) {
    debug_assert!(values.len().is_power_of_two() || values.is_empty());
    let mut half = 1;
    while half < values.len() {
        for pair in values.chunks_exact_mut(2 * half) {
            let (low, high) = pair.split_at_mut(half);
            for (a, b) in low.iter_mut().zip(high) {
                (*a, *b) = (*a + *b, *a - *b);
            }
        }
        half *= 2;
    }
}

fn hadamard(values: &mut [f32]) {
    hadamard_body(values);
}

fn encode(residual: &[f32], reference: &[f32], bits: &mut [u8]) -> CodeSums {
    debug_assert!(residual.len() == reference.len() && residual.len() == 8 * bits.len());
    let mut sums = [[0.0f32; LANES]; 4];
    let (residual, _) = residual.as_chunks::<LANES>();
    let (reference, _) = reference.as_chunks::<LANES>();
    for ((r, c), byte) in residual.iter().zip(reference).zip(bits) {
        let mut packed = 0u8;
        for lane in 0..LANES {
            let positive = r[lane] >= 0.0;
            packed |= u8::from(positive) << lane;
            sums[0][lane] += r[lane].abs();
            sums[1][lane] += r[lane] * r[lane];
            sums[2][lane] += if positive { c[lane] } else { -c[lane] };
            sums[3][lane] += r[lane] * c[lane];
        }
        *byte = packed;
    }
    let total = |lanes: &[f32; LANES]| lanes.iter().sum();
    CodeSums { absolute: total(&sums[0]), square: total(&sums[1]), reference_sign: total(&sums[2]), reference_residual: total(&sums[3]) }
}

/// The sum of a group's negative values: the least sum over its subsets.
#[inline(always)]
pub(super) fn least_sum(group: &[f32; GROUP]) -> f32 {
    // One instruction, which f32::min is not: it has to look for NaN.
    let [a, b, c, d] = group.map(|x| if x < 0.0 { x } else { 0.0 });
    (a + b) + (c + d)
}

/// The scale of a query's table, and `1 / step`. Each group's entries are counted from the group's least sum, so one step serves all
/// groups: the largest spread over 255.
#[inline(always)]
pub(super) fn table_scale(groups: &[[f32; GROUP]]) -> (TableScale, f32) {
    let (mut spread, mut least, mut total) = (0.0f32, 0.0f32, 0.0f32);
    for group in groups {
        let [a, b, c, d] = group.map(f32::abs);
        let size = (a + b) + (c + d);
        spread = if size > spread { size } else { spread };
        least += least_sum(group);
        total += (group[0] + group[1]) + (group[2] + group[3]);
    }
    // A spread so small that 1 / step would be infinite counts as none.
    let step = if spread > 255.0 * f32::MIN_POSITIVE { spread / 255.0 } else { 1.0 };
    // Rounding errors are uniform in +-1/2 step and independent over the groups; 2.5 deviations leave less than one in a hundred.
    let error = 2.5 * step * (groups.len() as f32 / 12.0).sqrt();
    (TableScale { step, offset: least - 0.5 * total, error }, 1.0 / step)
}

pub(super) fn build_table(query: &[f32], table: &mut [u8]) -> TableScale {
    debug_assert!(query.len().is_multiple_of(GROUP) && table.len() == query.len() / GROUP * 16);
    let (groups, _) = query.as_chunks::<GROUP>();
    let (tables, _) = table.as_chunks_mut::<16>();
    let (scale, inverse) = table_scale(groups);
    for (group, entries) in groups.iter().zip(tables) {
        let mut sums = [-least_sum(group); 16];
        for (j, &x) in group.iter().enumerate() {
            for (pattern, sum) in sums.iter_mut().enumerate() {
                *sum += if pattern >> j & 1 == 1 { x } else { 0.0 };
            }
        }
        for (entry, sum) in entries.iter_mut().zip(sums) {
            *entry = (sum * inverse + 0.5) as u8;
        }
    }
    scale
}

fn scan_sums(codes: &[u8], table: &[u8], out: &mut [u32; BLOCK]) {
    debug_assert_eq!(codes.len(), table.len());
    out.fill(0);
    let (codes, _) = codes.as_chunks::<16>();
    let (tables, _) = table.as_chunks::<16>();
    for (code, table) in codes.iter().zip(tables) {
        for (j, &byte) in code.iter().enumerate() {
            out[j] += u32::from(table[usize::from(byte & 15)]);
            out[j + 16] += u32::from(table[usize::from(byte >> 4)]);
        }
    }
}

fn scan(table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32 {
    let mut sums = [0u32; BLOCK];
    scan_sums(block.codes, table.table, &mut sums);
    let scale = &table.scale;
    let mut passed = 0u32;
    for v in 0..BLOCK {
        let product = scale.step * sums[v] as f32 + scale.offset;
        let estimate = block.add[v] + limit.add + block.rescale[v] * product;
        let lower = estimate - block.error[v] * limit.error - block.rescale[v].abs() * scale.error;
        estimates[v] = estimate;
        lowers[v] = lower;
        passed |= u32::from(lower <= limit.limit || lower.is_nan()) << v;
    }
    passed
}

pub(super) fn dot_bytes(query: &[i16], row: &[i8]) -> i32 {
    debug_assert!(query.len() == row.len() && row.len().is_multiple_of(64));
    query.iter().zip(row).map(|(&q, &x)| i32::from(q) * i32::from(x)).sum()
}

/// Counts as wide as the compiler can.
#[inline(always)]
pub(super) fn popcount_body(code: &[u64], planes: &[u64]) -> u32 {
    let mut total = 0;
    for (j, plane) in planes.chunks_exact(code.len().max(1)).enumerate() {
        let ones: u32 = code.iter().zip(plane).map(|(x, q)| (x & q).count_ones()).sum();
        total += ones << j;
    }
    total
}

pub(super) fn popcount(code: &[u64], planes: &[u64]) -> u32 {
    popcount_body(code, planes)
}

fn dot_planes(query: &[f32], planes: &[u8], bits: usize) -> f32 {
    debug_assert!(query.len().is_multiple_of(64) && 8 * planes.len() == bits * query.len());
    let (chunks, _) = query.as_chunks::<LANES>();
    let mut total = 0.0;
    // From the highest bits on: doubling is exact.
    for plane in planes.chunks_exact((query.len() / 8).max(1)).rev() {
        let mut sums = [0.0f32; LANES];
        for (values, &byte) in chunks.iter().zip(plane) {
            for lane in 0..LANES {
                let chosen = 0u32.wrapping_sub(u32::from(byte >> lane & 1));
                sums[lane] += f32::from_bits(values[lane].to_bits() & chosen);
            }
        }
        total = 2.0 * total + sums.iter().sum::<f32>();
    }
    total
}
