//! Core errors as the exceptions that Python people expect.

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyKeyboardInterrupt, PyMemoryError, PyTimeoutError, PyValueError};

create_exception!(
    sapwood,
    Error,
    PyException,
    "What no built-in exception names: a handle that came through ``fork``, a missing instruction set, a failed check of Sapwood itself.\n\nWrong arguments raise ``ValueError`` or ``TypeError``, a missing id ``KeyError``, a time limit ``TimeoutError``."
);

impl From<crate::Error> for PyErr {
    fn from(error: crate::Error) -> Self {
        let message = error.to_string();
        match error {
            crate::Error::Invalid { .. } | crate::Error::Closed => PyValueError::new_err(message),
            crate::Error::MissingId { .. } => PyKeyError::new_err(message),
            crate::Error::Cancelled => PyKeyboardInterrupt::new_err(message),
            crate::Error::Timeout { .. } => PyTimeoutError::new_err(message),
            crate::Error::OutOfMemory { .. } => PyMemoryError::new_err(message),
            crate::Error::Forked { .. } | crate::Error::Isa { .. } | crate::Error::System(_) => Error::new_err(message),
        }
    }
}
