//! The SIMD fence. Everything that must be fast on every processor goes through one table of functions, chosen once a process.
//!
//! The problem: wheels are built for the baseline processor, speed needs AVX2, AVX-512 or NEON.
//! The rule of use: take [`Kernels::get`] once and keep the reference; never ask for processor features anywhere else.
//! The hazard: a function of a set must only be reachable through a table that was handed out after detection.
//!
//! [`scalar`] is the specification; the other files only speed it up, and one generated suite (`kernel/suite.rs`) holds all of
//! them to it. `SAPWOOD_ISA` (`scalar`, `avx2`, `avx512`, `neon`) forces a set, and fails where the processor lacks it.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(target_arch = "aarch64")]
mod neon;
pub mod scalar;
#[cfg(test)]
mod suite;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
mod tile;

use std::sync::OnceLock;

use crate::error::{Error, Result};

/// Entries of a block: one fast-scan call scores this many codes.
pub const BLOCK: usize = 32;

/// Dimensions whose partial sums share one 16-entry table of a fast-scan.
pub const GROUP: usize = 4;

/// An instruction set that has kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isa {
    /// Portable code.
    Scalar,
    /// AVX2 with FMA.
    Avx2,
    /// AVX-512 F, BW, VL, DQ and VPOPCNTDQ.
    Avx512,
    /// Armv8 Advanced SIMD.
    Neon,
}

impl Isa {
    /// The name that `SAPWOOD_ISA` takes.
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512 => "avx512",
            Isa::Neon => "neon",
        }
    }
}

/// What is known of a residual after it was coded: see [`Kernels::encode`].
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct CodeSums {
    /// `sum |r_i|`
    pub absolute: f32,
    /// `sum r_i^2`
    pub square: f32,
    /// `sum s_i c_i`, `s_i` = +1 where `r_i >= 0`, else -1
    pub reference_sign: f32,
    /// `sum r_i c_i`
    pub reference_residual: f32,
}

/// A query's side of a fast-scan: its table and what turns integer sums into inner products.
#[derive(Debug, Clone, Copy)]
pub struct ScanTable<'a> {
    /// `16 * groups` entries: for each group of [`GROUP`] dimensions the quantized sums over all subsets (bit j = dimension j).
    pub table: &'a [u8],
    /// What turns its sums into inner products.
    pub scale: TableScale,
}

/// What turns the integer sums of a table into inner products.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TableScale {
    /// One step of the table in units of the inner product.
    pub step: f32,
    /// Added after scaling, so that `step * sum + offset` is about `<x, q>`, `x_i = +-1/2` by the code's bit.
    pub offset: f32,
    /// One standard deviation, times a safety factor, of what quantizing the table does to that inner product.
    pub error: f32,
}

/// A block's side of a fast-scan.
#[derive(Debug, Clone, Copy)]
pub struct CodeBlock<'a> {
    /// `16 * groups` bytes: for each group, byte j holds the 4 bits of entry j (low half) and of entry 16 + j (high half).
    pub codes: &'a [u8],
    /// `f_add` of each entry.
    pub add: &'a [f32; BLOCK],
    /// `f_rescale` of each entry.
    pub rescale: &'a [f32; BLOCK],
    /// `f_error` of each entry.
    pub error: &'a [f32; BLOCK],
}

/// The query's place relative to a block's reference, and the distance that matters.
#[derive(Debug, Clone, Copy)]
pub struct ScanLimit {
    /// Added to each estimate (`|q - c|^2`, or `-<q, c>`).
    pub add: f32,
    /// `|q - c|`: scales each entry's error.
    pub error: f32,
    /// Entries whose lower bound is above this are not reported.
    pub limit: f32,
}

/// One entry's numbers for each of a block's entries.
pub type Lanes = [f32; BLOCK];

/// The table of functions of one instruction set. Slices that belong together must have equal lengths (debug-asserted).
#[derive(Debug)]
pub struct Kernels {
    /// The set.
    pub isa: Isa,
    /// `sum (a_i - b_i)^2`
    pub l2: fn(a: &[f32], b: &[f32]) -> f32,
    /// `sum a_i b_i`
    pub dot: fn(a: &[f32], b: &[f32]) -> f32,
    /// [`Kernels::l2`] of `query` with each row of `rows` (row after row, `query.len()` values each) into `out`.
    pub l2_rows: fn(query: &[f32], rows: &[f32], out: &mut [f32]),
    /// [`Kernels::dot`] of `query` with each row of `rows` into `out`.
    pub dot_rows: fn(query: &[f32], rows: &[f32], out: &mut [f32]),
    /// `out[i * rows + j] = sum (queries_i - rows_j)^2`, register-tiled.
    pub l2_tile: fn(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]),
    /// `out[i * rows + j] = <queries_i, rows_j>`, register-tiled.
    pub dot_tile: fn(queries: &[f32], rows: &[f32], dim: usize, out: &mut [f32]),
    /// The unnormalised Walsh-Hadamard transform in place; the length is a power of two.
    pub hadamard: fn(values: &mut [f32]),
    /// Signs of a residual as bits (bit `i % 8` of byte `i / 8`, set where `r_i >= 0`) and the sums that its factors need.
    /// The length is a multiple of 8.
    pub encode: fn(residual: &[f32], reference: &[f32], bits: &mut [u8]) -> CodeSums,
    /// Fills the quantized table of a query whose length is a multiple of [`GROUP`].
    pub build_table: fn(query: &[f32], table: &mut [u8]) -> TableScale,
    /// Exact integer sums of a fast-scan of one block: `out[v] = sum over groups of table[16 g + code(v, g)]`, at any dimension.
    pub scan_sums: fn(codes: &[u8], table: &[u8], out: &mut [u32; BLOCK]),
    /// A fast-scan fused with its bounds. For each entry: `x = step * sum + offset`, `estimate = f_add + add + f_rescale * x`,
    /// `lower = estimate - f_error * error - |f_rescale| * table error`. Bit v of the result is set unless `lower > limit`: what is
    /// not a number (vectors so long that their squares overflow) is not known to be far.
    /// Estimates and lower bounds are written for the whole block; where the result is 0 they are unspecified.
    pub scan: fn(table: &ScanTable, block: &CodeBlock, limit: &ScanLimit, estimates: &mut Lanes, lowers: &mut Lanes) -> u32,
    /// Exactly `sum query_i row_i`, where no sum of some of the terms leaves the range of an i32; the length is a multiple of 64.
    pub dot_bytes: fn(query: &[i16], row: &[i8]) -> i32,
    /// `sum over j of 2^j popcount(code & plane_j)`: a 1-bit code with a 4-bit query, whose planes follow each other.
    pub popcount: fn(code: &[u64], planes: &[u64]) -> u32,
    /// `sum query_i u_i` of whole numbers `u_i` of `bits` bits, 1 to 8: bit j of `u_i` is bit `i % 8` of byte `i / 8` of plane j, and the planes
    /// follow each other, the lowest bits first. The length is a multiple of 64.
    pub dot_planes: fn(query: &[f32], planes: &[u8], bits: usize) -> f32,
}

/// The table of a set whose functions, of the same names, are in scope and compiled for features beyond the baseline.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! fenced_table {
    ($isa:expr) => {
        fenced_table!($isa,
            l2(a, b), dot(a, b), l2_rows(query, rows, out), dot_rows(query, rows, out), l2_tile(queries, rows, dim, out),
            dot_tile(queries, rows, dim, out), hadamard(values), encode(residual, reference, bits), build_table(query, table),
            scan_sums(codes, table, out), scan(table, block, limit, estimates, lowers), dot_bytes(query, row), popcount(code, planes),
            dot_planes(query, planes, bits))
    };
    ($isa:expr, $($function:ident($($argument:ident),*)),*) => {
        $crate::kernel::Kernels {
            isa: $isa,
            // SAFETY: the table is private to its module, which hands it out only where the processor has the features.
            $($function: |$($argument),*| unsafe { $function($($argument),*) }),*
        }
    };
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use fenced_table;

/// `dot_planes` by way of a function `run` whose number of planes is known when it is compiled, so that all running sums stay in registers.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
macro_rules! run_of_bits {
    ($run:ident, $query:expr, $planes:expr, $bits:expr) => {{
        debug_assert!($query.len().is_multiple_of(64) && 8 * $planes.len() == $bits * $query.len() && (1..=8).contains(&$bits));
        match $bits {
            1 => $run::<1>($query, $planes),
            2 => $run::<2>($query, $planes),
            3 => $run::<3>($query, $planes),
            4 => $run::<4>($query, $planes),
            5 => $run::<5>($query, $planes),
            6 => $run::<6>($query, $planes),
            7 => $run::<7>($query, $planes),
            _ => $run::<8>($query, $planes),
        }
    }};
}
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use run_of_bits;

/// Planes of `stride` bytes each, in chunks of `N` bytes.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
#[inline(always)]
fn planes_of<const BITS: usize, const N: usize>(planes: &[u8], stride: usize) -> [&[[u8; N]]; BITS] {
    let mut rest = planes;
    std::array::from_fn(|_| {
        let (plane, others) = rest.split_at(stride);
        rest = others;
        plane.as_chunks::<N>().0
    })
}

impl Kernels {
    /// The kernels of this process: the fastest set the processor has, or the one that `SAPWOOD_ISA` names.
    pub fn get() -> Result<&'static Kernels> {
        static CHOSEN: OnceLock<Result<&'static Kernels>> = OnceLock::new();
        CHOSEN.get_or_init(|| choose(std::env::var("SAPWOOD_ISA").ok().as_deref())).clone()
    }

    /// The kernels of `isa`, where the processor has it.
    pub fn of(isa: Isa) -> Option<&'static Kernels> {
        match isa {
            Isa::Scalar => Some(&scalar::KERNELS),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => avx2::kernels(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512 => avx512::kernels(),
            #[cfg(target_arch = "aarch64")]
            Isa::Neon => neon::kernels(),
            _ => None,
        }
    }

    /// All sets that this processor has, slowest first.
    pub fn available() -> Vec<Isa> {
        [Isa::Scalar, Isa::Neon, Isa::Avx2, Isa::Avx512].into_iter().filter(|&isa| Self::of(isa).is_some()).collect()
    }
}

/// Asks for `values` to be brought near, where the processor takes such hints.
#[inline]
#[allow(unsafe_code)]
pub fn prefetch<T>(values: &[T]) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let start = values.as_ptr().cast::<i8>();
        for line in (0..size_of_val(values)).step_by(64) {
            // SAFETY: a prefetch reads nothing and can't fault; the address lies within the slice.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(start.add(line)) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = values;
}

fn choose(forced: Option<&str>) -> Result<&'static Kernels> {
    let available = Kernels::available();
    let wanted = match forced {
        None | Some("") => available.last().copied(),
        Some(name) => available.iter().copied().find(|isa| isa.name() == name),
    };
    wanted.and_then(Kernels::of).ok_or_else(|| Error::isa(forced.unwrap_or_default(), &available))
}
