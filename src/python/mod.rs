//! The Python bindings: a gate and a converter, nothing else.
//!
//! | file | what it does |
//! |---|---|
//! | [`errors`] | core errors as Python exceptions |
//! | [`gate`] | the interpreter released, Ctrl-C, progress, panics |
//! | [`progress`] | `progress=` |
//! | [`arguments`] | whole numbers, numbers, names |
//! | [`arrays`] | rows and ids in |
//! | [`filter`] | `Filter` |
//! | [`results`] | `AddResult`, `SearchResult` and `Rows` out |
//! | [`options`] | the keyword arguments of `Index` and of `search` |
//! | [`index`] | `Index` |
//! | [`functions`] | `exact_search` |
//! | [`rows`] | `read_vectors` and `iter_vectors` |

mod arguments;
mod arrays;
mod durable;
mod errors;
mod filter;
mod functions;
mod gate;
mod index;
mod options;
mod progress;
mod results;
mod rows;

use pyo3::prelude::*;

/// The compiled part of `sapwood`; import that instead.
#[pymodule(name = "_core", gil_used = false)]
fn core_module(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("__version__", env!("CARGO_PKG_VERSION"))?;
    module.add("Error", module.py().get_type::<errors::Error>())?;
    module.add("CorruptCheckpoint", module.py().get_type::<errors::CorruptCheckpoint>())?;
    module.add("FormatError", module.py().get_type::<errors::FormatError>())?;
    module.add("LockedError", module.py().get_type::<errors::LockedError>())?;
    module.add_class::<index::PyIndex>()?;
    module.add_class::<filter::Filter>()?;
    module.add_function(wrap_pyfunction!(durable::open_writer, module)?)?;
    module.add_function(wrap_pyfunction!(durable::open_reader, module)?)?;
    module.add_function(wrap_pyfunction!(durable::read_manifest, module)?)?;
    module.add_function(wrap_pyfunction!(durable::load, module)?)?;
    module.add_class::<rows::RowBatches>()?;
    module.add_function(wrap_pyfunction!(rows::read_vectors, module)?)?;
    module.add_function(wrap_pyfunction!(rows::iter_vectors, module)?)?;
    module.add_function(wrap_pyfunction!(functions::exact_search, module)?)
}

/// A number with its thousands apart: 1,200.
fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Bytes for people: 2.1 MB.
fn bytes_text(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["kB", "MB", "GB", "TB", "PB"];
    let mut scaled = bytes as f64 / 1000.0;
    let mut unit = 0;
    while scaled >= 999.95 && unit + 1 < UNITS.len() {
        scaled /= 1000.0;
        unit += 1;
    }
    if bytes < 1000 { format!("{bytes} B") } else { format!("{scaled:.1} {}", UNITS[unit]) }
}
