//! Core errors as the exceptions that Python people expect.

use std::io::ErrorKind;

use pyo3::PyErr;
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyKeyboardInterrupt, PyMemoryError, PyOSError, PyTimeoutError, PyTypeError, PyValueError};

create_exception!(
    sapwood,
    Error,
    PyException,
    "What no built-in exception names: a handle that came through ``fork``, a missing instruction set, a failed check of Sapwood itself.\n\nWrong arguments raise ``ValueError`` or ``TypeError``, a missing id ``KeyError``, a time limit ``TimeoutError``."
);

create_exception!(
    sapwood,
    CorruptCheckpoint,
    Error,
    "Bytes of a checkpoint are not what was written; the message names the file. Older checkpoints may be whole: open one with ``version=``."
);
create_exception!(sapwood, FormatError, Error, "A checkpoint was written by a newer version of Sapwood; upgrade to read it.");
create_exception!(sapwood, LockedError, Error, "Somebody else has the directory open for writing; the message names the holder.");

/// The errno of errors that the standard library makes itself.
fn errno(kind: ErrorKind) -> i32 {
    match kind {
        ErrorKind::NotFound => 2,
        ErrorKind::PermissionDenied => 13,
        ErrorKind::AlreadyExists => 17,
        ErrorKind::NotADirectory => 20,
        ErrorKind::IsADirectory => 21,
        _ => 5,
    }
}

impl From<crate::Error> for PyErr {
    fn from(error: crate::Error) -> Self {
        let message = error.to_string();
        match error {
            crate::Error::Invalid { .. } | crate::Error::File { .. } | crate::Error::Closed => PyValueError::new_err(message),
            crate::Error::WrongType { .. } => PyTypeError::new_err(message),
            crate::Error::MissingId { .. } => PyKeyError::new_err(message),
            crate::Error::Cancelled => PyKeyboardInterrupt::new_err(message),
            crate::Error::Timeout { .. } => PyTimeoutError::new_err(message),
            crate::Error::OutOfMemory { .. } => PyMemoryError::new_err(message),
            crate::Error::Io { path, errno: number, kind, message } => {
                // Python writes the number itself.
                let message = message.split(" (os error").next().unwrap_or_default().to_string();
                PyOSError::new_err((number.unwrap_or_else(|| errno(kind)), message, path))
            }
            crate::Error::Corrupt { .. } => CorruptCheckpoint::new_err(message),
            crate::Error::Format { .. } => FormatError::new_err(message),
            crate::Error::Locked { .. } => LockedError::new_err(message),
            crate::Error::Forked { .. } | crate::Error::Isa { .. } | crate::Error::System(_) => Error::new_err(message),
        }
    }
}
