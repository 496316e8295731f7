//! Plain arguments: whole numbers, numbers, names. A bool is neither, and what is out of range is named.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyInt, PyString};

use crate::params::MAX_THREADS;

/// Says what was expected of an argument and what came.
pub fn expected(argument: &str, expected: &str, given: &Bound<'_, PyAny>) -> String {
    let text = given.repr().map_or_else(|_| "something without a repr".to_string(), |text| text.to_string());
    let shown: String = text.chars().take(80).collect();
    format!("{argument}: expected {expected}, got {shown}{}", if shown.len() < text.len() { "..." } else { "" })
}

/// A whole number from `least` to `most`; Python's int or numpy's, but no bool and no float.
pub fn whole(argument: &str, value: &Bound<'_, PyAny>, least: u64, most: u64) -> PyResult<u64> {
    let wanted = format!("a whole number from {least} to {most}");
    let number = index(value).ok_or_else(|| PyTypeError::new_err(expected(argument, &wanted, value)))?;
    let number = number.extract::<u64>().ok().filter(|number| (least..=most).contains(number));
    number.ok_or_else(|| PyValueError::new_err(expected(argument, &wanted, value)))
}

/// [`whole`] for sizes.
pub fn size(argument: &str, value: &Bound<'_, PyAny>, least: usize, most: usize) -> PyResult<usize> {
    // Sizes come from u64 values in between two sizes, so nothing is cut off.
    Ok(whole(argument, value, least as u64, most as u64)? as usize)
}

/// The int that `value` stands for; None where it is no integer.
pub fn index<'py>(value: &Bound<'py, PyAny>) -> Option<Bound<'py, PyInt>> {
    if value.is_instance_of::<PyBool>() {
        return None;
    }
    match value.cast::<PyInt>() {
        Ok(number) => Some(number.clone()),
        // numpy's integers; its bools and floats have no __index__.
        Err(_) => value.call_method0("__index__").ok()?.cast_into().ok(),
    }
}

/// A number; no bool, no text.
pub fn number(argument: &str, value: &Bound<'_, PyAny>, wanted: &str) -> PyResult<f64> {
    let refused = value.is_instance_of::<PyBool>() || value.is_instance_of::<PyString>();
    let number = if refused { None } else { value.extract::<f64>().ok() };
    number.ok_or_else(|| PyTypeError::new_err(expected(argument, wanted, value)))
}

/// True or False, and nothing that merely counts as one of them.
pub fn truth(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<bool> {
    value.extract::<bool>().map_err(|_| PyTypeError::new_err(expected(argument, "True or False", value)))
}

/// A time limit in seconds; the core refuses what is not above zero.
pub fn timeout(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<f64>> {
    value.map(|value| number("timeout", value, "a number of seconds above 0, or None")).transpose()
}

/// A count of threads.
pub fn threads(value: Option<&Bound<'_, PyAny>>) -> PyResult<Option<usize>> {
    value.map(|value| size("threads", value, 1, MAX_THREADS)).transpose()
}

/// Text.
pub fn text(argument: &str, value: &Bound<'_, PyAny>, wanted: &str) -> PyResult<String> {
    let text = value.cast::<PyString>().map_err(|_| PyTypeError::new_err(expected(argument, wanted, value)))?;
    Ok(text.to_string())
}
