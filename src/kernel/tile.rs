//! Distances and inner products, written once for every vector width.
//!
//! The problem: one pair of vectors leaves the multipliers idle, because each value loaded is used once. A tile of a few queries
//! and a few rows keeps one running sum per pair in registers, and each value loaded is used for several pairs.
//! The rule of use: an instruction set defines `Vector`, `WIDTH`, `zero`, `load`, `load_part`, `add`, `subtract`, `multiply_add`,
//! `total` and `totals` for its registers and then calls `products!` with its features and the queries of a tile.
//! The hazard: the sums of a tile must fit the registers, with one more for each query, one for a row and one for a difference.
//!
//! A pair's result has the same bits wherever the pair stands in a tile and whatever the tile's shape: there is one running sum
//! per pair, and `total` adds its lanes in the order that `totals` does. `l2` and `dot` keep four running sums, so their last bits
//! may differ from those of the tiles.

/// Rows of a tile.
pub(super) const TILE_ROWS: usize = 4;

/// Values of the rows that all queries pass over before the next rows are taken: 16 KiB, half of a first-level cache.
pub(super) const PANEL_VALUES: usize = 4096;

/// Defines `l2`, `dot`, `l2_rows`, `dot_rows`, `l2_tile` and `dot_tile`.
macro_rules! products {
    (features: $features:literal, l2_queries: $l2_queries:literal, dot_queries: $dot_queries:literal) => {
        use crate::kernel::tile::{PANEL_VALUES, TILE_ROWS};

        #[inline]
        #[target_feature(enable = $features)]
        fn add_term<const L2: bool>(sum: Vector, a: Vector, b: Vector) -> Vector {
            if L2 {
                let difference = subtract(a, b);
                multiply_add(difference, difference, sum)
            } else {
                multiply_add(a, b, sum)
            }
        }

        /// One pair, with four running sums so that a sum does not wait for the one before.
        #[inline]
        #[target_feature(enable = $features)]
        fn pair<const L2: bool>(a: &[f32], b: &[f32]) -> f32 {
            debug_assert_eq!(a.len(), b.len());
            let (a, a_part) = a.as_chunks::<WIDTH>();
            let (b, b_part) = b.as_chunks::<WIDTH>();
            let (a_fours, a_rest) = a.as_chunks::<4>();
            let (b_fours, b_rest) = b.as_chunks::<4>();
            let mut sums = [zero(); 4];
            for (x, y) in a_fours.iter().zip(b_fours) {
                for (sum, (x, y)) in sums.iter_mut().zip(x.iter().zip(y)) {
                    *sum = add_term::<L2>(*sum, load(x), load(y));
                }
            }
            for (sum, (x, y)) in sums.iter_mut().zip(a_rest.iter().zip(b_rest)) {
                *sum = add_term::<L2>(*sum, load(x), load(y));
            }
            if !a_part.is_empty() {
                sums[3] = add_term::<L2>(sums[3], load_part(a_part), load_part(b_part));
            }
            total(add(add(sums[0], sums[1]), add(sums[2], sums[3])))
        }

        /// The first `Q` queries with the first `R` rows; `columns` is the length of a line of `out`.
        #[allow(clippy::needless_range_loop, reason = "counted loops over constants unroll into registers")]
        #[target_feature(enable = $features)]
        fn block<const L2: bool, const Q: usize, const R: usize>(
            queries: &[f32],
            rows: &[f32],
            dim: usize,
            out: &mut [f32],
            columns: usize,
        ) {
            let whole = dim / WIDTH;
            let (mut query, mut query_part) = ([&[] as &[[f32; WIDTH]]; Q], [&[] as &[f32]; Q]);
            let (mut row, mut row_part) = ([&[] as &[[f32; WIDTH]]; R], [&[] as &[f32]; R]);
            for i in 0..Q {
                let (chunks, part) = queries[i * dim..(i + 1) * dim].as_chunks();
                (query[i], query_part[i]) = (&chunks[..whole], part);
            }
            for j in 0..R {
                let (chunks, part) = rows[j * dim..(j + 1) * dim].as_chunks();
                (row[j], row_part[j]) = (&chunks[..whole], part);
            }
            let mut sums = [[zero(); R]; Q];
            let mut x = [zero(); Q];
            for k in 0..whole {
                for i in 0..Q {
                    x[i] = load(&query[i][k]);
                }
                for j in 0..R {
                    let y = load(&row[j][k]);
                    for i in 0..Q {
                        sums[i][j] = add_term::<L2>(sums[i][j], x[i], y);
                    }
                }
            }
            if !dim.is_multiple_of(WIDTH) {
                for i in 0..Q {
                    x[i] = load_part(query_part[i]);
                }
                for j in 0..R {
                    let y = load_part(row_part[j]);
                    for i in 0..Q {
                        sums[i][j] = add_term::<L2>(sums[i][j], x[i], y);
                    }
                }
            }
            for i in 0..Q {
                let out = &mut out[i * columns..][..R];
                let (fours, rest) = sums[i].as_chunks::<4>();
                let (out_fours, out_rest) = out.as_chunks_mut::<4>();
                for (sums, out) in fours.iter().zip(out_fours) {
                    *out = totals(sums);
                }
                for (&sum, out) in rest.iter().zip(out_rest) {
                    *out = total(sum);
                }
            }
        }

        /// The first `Q` queries with all of `rows`.
        #[target_feature(enable = $features)]
        fn strip<const L2: bool, const Q: usize>(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32], columns: usize) {
            let count = rows.len() / dim;
            let whole = count - count % TILE_ROWS;
            for j in (0..whole).step_by(TILE_ROWS) {
                block::<L2, Q, TILE_ROWS>(queries, &rows[j * dim..], dim, &mut out[j..], columns);
            }
            for j in whole..count {
                block::<L2, Q, 1>(queries, &rows[j * dim..], dim, &mut out[j..], columns);
            }
        }

        /// All queries with all rows, `Q` queries at a time, in panels of rows that stay in the first-level cache.
        #[target_feature(enable = $features)]
        fn tile<const L2: bool, const Q: usize>(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]) {
            if dim == 0 {
                return out.fill(0.0);
            }
            let (count, columns) = (queries.len() / dim, rows.len() / dim);
            debug_assert_eq!(out.len(), count * columns);
            let panel = (PANEL_VALUES / dim).next_multiple_of(TILE_ROWS).max(TILE_ROWS);
            let whole = count - count % Q;
            for first in (0..columns).step_by(panel) {
                let rows = &rows[first * dim..(first + panel).min(columns) * dim];
                for i in (0..whole).step_by(Q) {
                    strip::<L2, Q>(&queries[i * dim..], rows, dim, &mut out[i * columns + first..], columns);
                }
                for i in whole..count {
                    strip::<L2, 1>(&queries[i * dim..], rows, dim, &mut out[i * columns + first..], columns);
                }
            }
        }

        /// One query with all rows, eight at a time: fewer running sums would wait for each other.
        #[target_feature(enable = $features)]
        fn each_row<const L2: bool>(query: &[f32], rows: &[f32], out: &mut [f32]) {
            let dim = query.len();
            debug_assert_eq!(rows.len(), dim * out.len());
            if dim == 0 {
                return out.fill(0.0);
            }
            let (eights, rest) = out.as_chunks_mut::<8>();
            let (front, back) = rows.split_at(8 * eights.len() * dim);
            for (out, rows) in eights.iter_mut().zip(front.chunks_exact(8 * dim)) {
                block::<L2, 1, 8>(query, rows, dim, out, 8);
            }
            strip::<L2, 1>(query, back, dim, rest, 0);
        }

        #[target_feature(enable = $features)]
        pub(super) fn l2(a: &[f32], b: &[f32]) -> f32 {
            pair::<true>(a, b)
        }

        #[target_feature(enable = $features)]
        pub(super) fn dot(a: &[f32], b: &[f32]) -> f32 {
            pair::<false>(a, b)
        }

        #[target_feature(enable = $features)]
        pub(super) fn l2_rows(query: &[f32], rows: &[f32], out: &mut [f32]) {
            each_row::<true>(query, rows, out)
        }

        #[target_feature(enable = $features)]
        pub(super) fn dot_rows(query: &[f32], rows: &[f32], out: &mut [f32]) {
            each_row::<false>(query, rows, out)
        }

        #[target_feature(enable = $features)]
        pub(super) fn l2_tile(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]) {
            tile::<true, $l2_queries>(queries, rows, dim, out)
        }

        #[target_feature(enable = $features)]
        pub(super) fn dot_tile(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]) {
            tile::<false, $dot_queries>(queries, rows, dim, out)
        }
    };
}

pub(super) use products;
