//! Rows and ids as the core takes them.
//!
//! float32 in C order is read where it lies. Everything else is first understood by `sapwood/_arrays.py` and then converted block by
//! block, so that the extra memory is that of a block and not of the whole input. The caller's arrays are only read.

use numpy::{PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArray, PyUntypedArrayMethods};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyInt;

use super::arguments::expected;
use super::gate::Share;
use crate::dataset::Rows;
use crate::error::Error;

/// The most rows that are converted at once.
const BLOCK_ROWS: usize = 1 << 16;

/// The most values that are converted at once: 32 MiB of float32.
const BLOCK_VALUES: usize = 1 << 23;

/// What a caller passed as rows.
pub struct Matrix<'py> {
    argument: &'static str,
    source: Source<'py>,
    rows: usize,
    dim: usize,
    flat: bool,
}

enum Source<'py> {
    /// Read where it lies.
    InPlace(PyReadonlyArrayDyn<'py, f32>),
    /// Converted by its `block(start, stop)`.
    Blocks(Bound<'py, PyAny>),
}

impl<'py> Matrix<'py> {
    /// Understands `value` as rows of `dim` values, or of any width. A single row may be 1-D; see [`Matrix::is_flat`].
    pub fn read(argument: &'static str, value: &Bound<'py, PyAny>, dim: Option<usize>) -> PyResult<Self> {
        if let Some(matrix) = Self::in_place(argument, value, dim) {
            return Ok(matrix);
        }
        static ROWS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let rows = ROWS.import(value.py(), "sapwood._arrays", "rows")?;
        let (source, rows, dim, flat) = rows.call1((argument, value, dim))?.extract::<(Bound<'py, PyAny>, usize, usize, bool)>()?;
        let source = match c_order(&source) {
            Some(array) => Source::InPlace(array),
            None if source.is_instance_of::<PyUntypedArray>() => {
                let given = "an array that another extension module is writing to".to_string();
                return Err(Error::invalid(argument, "an input that does not change during the call", given).into());
            }
            None => Source::Blocks(source),
        };
        Ok(Self { argument, source, rows, dim, flat })
    }

    /// The quick way for the commonest input; None leaves the rest, also everything wrong, to the slow one.
    fn in_place(argument: &'static str, value: &Bound<'py, PyAny>, wanted: Option<usize>) -> Option<Self> {
        let array = c_order(value)?;
        let (rows, dim, flat) = match *array.shape() {
            [dim] => (1, dim, true),
            [rows, dim] => (rows, dim, false),
            _ => return None,
        };
        let fits = dim > 0 && wanted.is_none_or(|wanted| wanted == dim);
        fits.then_some(Self { argument, source: Source::InPlace(array), rows, dim, flat })
    }

    /// How many rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Values a row.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// True for a single row given as a 1-D array.
    pub fn is_flat(&self) -> bool {
        self.flat
    }

    /// The share of a call that works through these rows block by block and counts `total` units.
    pub fn share(&self, start: usize, rows: usize, total: u64) -> Share {
        let units = |row: usize| if row == self.rows { total } else { (row as f64 / self.rows as f64 * total as f64) as u64 };
        Share { from: units(start), to: units(start + rows), total }
    }

    /// The error for a 1-D array where only rows will do; `remedy` is what else would.
    pub fn needs_two_dimensions(&self, remedy: &str) -> PyErr {
        let dim = self.dim;
        let expected = format!("(n, {dim}) float32-compatible (reshape one row: array.reshape(1, -1){remedy})");
        Error::invalid(self.argument, expected, format!("({dim},)")).into()
    }

    /// Calls `work` with the rows in order, as one block where they lie or as converted ones, each with its first row's number; once also
    /// where there are none.
    pub fn each(&self, mut work: impl FnMut(usize, Rows<'_>) -> PyResult<()>) -> PyResult<()> {
        let blocks = match &self.source {
            Source::InPlace(array) => return work(0, self.view(array)?),
            Source::Blocks(blocks) => blocks,
        };
        let step = (BLOCK_VALUES / self.dim).clamp(1, BLOCK_ROWS);
        let mut start = 0;
        loop {
            let stop = self.rows.min(start + step);
            let block = blocks.call_method1("block", (start, stop))?;
            let block = c_order(&block).ok_or_else(|| PyTypeError::new_err("a converted block is not float32 in C order"))?;
            let rows = self.view(&block)?;
            if rows.len() != stop - start {
                let given = format!("{} rows where {} were announced", rows.len(), stop - start);
                return Err(Error::invalid(self.argument, "an input that does not change during the call", given).into());
            }
            rows.check_finite(self.argument, start)?;
            work(start, rows)?;
            start = stop;
            if start == self.rows {
                return Ok(());
            }
        }
    }

    /// All rows as one block; converted ones are copied.
    pub fn with_all<T>(&self, work: impl FnOnce(Rows<'_>) -> PyResult<T>) -> PyResult<T> {
        if let Source::InPlace(array) = &self.source {
            return work(self.view(array)?);
        }
        let mut values = Vec::new();
        values.try_reserve_exact(self.rows * self.dim).map_err(|_| self.no_memory())?;
        self.each(|_, rows| {
            values.extend_from_slice(rows.values());
            Ok(())
        })?;
        work(Rows::new(self.argument, &values, self.dim)?)
    }

    fn view<'a>(&self, array: &'a PyReadonlyArrayDyn<'py, f32>) -> PyResult<Rows<'a>> {
        let values = array.as_slice().map_err(|error| PyTypeError::new_err(format!("{}: {error}", self.argument)))?;
        Ok(Rows::new(self.argument, values, self.dim)?)
    }

    fn no_memory(&self) -> Error {
        Error::OutOfMemory { bytes: self.rows * self.dim * size_of::<f32>(), purpose: "converted rows" }
    }
}

/// The array where its values lie as the core reads them: a plain numpy array of aligned native float32 in C order. Subclasses (masked
/// arrays) may mean something else by their values.
fn c_order<'py>(value: &Bound<'py, PyAny>) -> Option<PyReadonlyArrayDyn<'py, f32>> {
    let array = value.cast_exact::<PyArrayDyn<f32>>().ok()?;
    let array = if array.is_c_contiguous() { array.try_readonly().ok()? } else { return None };
    array.as_slice().is_ok().then_some(array)
}

/// Ids as the core takes them: copied, so that nobody changes them after they were checked.
pub struct Ids {
    /// The values, all at least 0.
    pub values: Vec<i64>,
    /// True for a single id given as a scalar.
    pub scalar: bool,
}

impl Ids {
    /// Understands `value` as ids from 0 to 2^63 - 1.
    pub fn read(argument: &'static str, value: &Bound<'_, PyAny>) -> PyResult<Self> {
        if let Ok(number) = value.cast_exact::<PyInt>() {
            let id = number.extract::<i64>().ok().filter(|&id| id >= 0);
            let id = id.ok_or_else(|| PyValueError::new_err(expected(argument, "ids from 0 to 2^63 - 1", value)))?;
            return Ok(Self { values: vec![id], scalar: true });
        }
        static IDS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let converted;
        let (array, scalar) = match value.cast_exact::<PyArray1<i64>>() {
            Ok(array) => (array, false),
            Err(_) => {
                let ids = IDS.import(value.py(), "sapwood._arrays", "ids")?.call1((argument, value))?;
                let scalar;
                (converted, scalar) = ids.extract::<(Bound<'_, PyArray1<i64>>, bool)>()?;
                (&converted, scalar)
            }
        };
        let values = array.try_readonly().map_err(|error| PyTypeError::new_err(format!("{argument}: {error}")))?.as_array().to_vec();
        match values.iter().position(|&id| id < 0) {
            Some(row) => Err(Error::invalid(argument, "ids from 0 to 2^63 - 1", format!("{} at position {row}", values[row])).into()),
            None => Ok(Self { values, scalar }),
        }
    }
}
