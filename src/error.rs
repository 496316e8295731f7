//! The one public error. A message says what was given, what was expected and what to do.

use std::path::{Path, PathBuf};

use crate::kernel::Isa;

/// What can go wrong. The Python layer maps each variant to the exception that Python people expect.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// An argument is outside its contract; nothing was changed. `ValueError` in Python.
    #[error("{argument}: expected {expected}, got {given}")]
    Invalid {
        /// The argument's name as the caller knows it.
        argument: &'static str,
        /// What is accepted, and the remedy where it isn't plain.
        expected: String,
        /// What came instead.
        given: String,
    },
    /// An argument, or what it names, is of the wrong type; nothing was changed. `TypeError` in Python.
    #[error("{argument}: expected {expected}, got {given}")]
    WrongType {
        /// The argument's name as the caller knows it.
        argument: &'static str,
        /// What is accepted, and the remedy where it isn't plain.
        expected: String,
        /// What came instead.
        given: String,
    },
    /// A file is not what it should be: another format, cut off, damaged, or with a row that can't be taken. `ValueError` in Python.
    #[error("{}: {problem}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, where, and what to do.
        problem: String,
    },
    /// An id that had to be there is not live. `KeyError` in Python.
    #[error("id {id} is not in the index; test with `id in index` first")]
    MissingId {
        /// The first such id.
        id: i64,
    },
    /// The caller asked for the work to stop; the state is as before the call. `KeyboardInterrupt` in Python.
    #[error("the call was cancelled; the index is as it was before the call")]
    Cancelled,
    /// The call's time limit ran out. `TimeoutError` in Python.
    #[error("timeout: the call did not finish within {seconds} s; raise timeout or lower beam, k or the number of queries")]
    Timeout {
        /// The limit that was given.
        seconds: f64,
    },
    /// The handle was closed. `ValueError` in Python, as for a closed file.
    #[error("the index is closed; make a new one")]
    Closed,
    /// The handle came through `fork`, its threads did not. `sapwood.Error` in Python.
    #[error("the index was made in process {owner} and can't be used in its forked child {child}; make or open it in the child")]
    Forked {
        /// The process that made the handle.
        owner: u32,
        /// The process that used it.
        child: u32,
    },
    /// No memory for the request. `MemoryError` in Python.
    #[error("out of memory: {bytes} bytes for {purpose}")]
    OutOfMemory {
        /// How much was asked for.
        bytes: usize,
        /// What for.
        purpose: &'static str,
    },
    /// The system refused something to do with a file. `OSError` in Python, with errno and path.
    #[error("{path}: {message}")]
    Io {
        /// The file or directory.
        path: String,
        /// The system's number of the error, if it has one.
        errno: Option<i32>,
        /// What kind it is.
        kind: std::io::ErrorKind,
        /// What the system says.
        message: String,
    },
    /// Bytes of a checkpoint are not what was written. `sapwood.CorruptCheckpoint` in Python.
    #[error("{file}: {what}; this checkpoint can't be used: open an older one (version=) or restore the file")]
    Corrupt {
        /// The file.
        file: String,
        /// What is wrong with it.
        what: String,
    },
    /// A checkpoint was written by a newer version of the library. `sapwood.FormatError` in Python.
    #[error("{file}: written in format {found} by Sapwood {writer}, this version reads formats up to {known}; upgrade sapwood")]
    Format {
        /// The file.
        file: String,
        /// Its format.
        found: u64,
        /// The version of the library that wrote it.
        writer: String,
        /// The newest format that this version reads.
        known: u64,
    },
    /// Somebody else writes to the directory. `sapwood.LockedError` in Python.
    #[error("{path}: already open for writing by {holder}; close that writer first, or read with sapwood.Reader")]
    Locked {
        /// The directory.
        path: String,
        /// Who holds it.
        holder: String,
    },
    /// `SAPWOOD_ISA` names a set that is unknown or that this processor lacks. `sapwood.Error` in Python.
    #[error("SAPWOOD_ISA={given}: expected one of {available} on this processor; unset it to choose the fastest")]
    Isa {
        /// The variable's value.
        given: String,
        /// The sets that would work here.
        available: String,
    },
    /// A thread or another resource of the system could not be had, or a check of our own failed. `sapwood.Error` in Python.
    #[error("{0}")]
    System(String),
}

impl Error {
    /// An argument outside its contract.
    pub fn invalid(argument: &'static str, expected: impl Into<String>, given: impl Into<String>) -> Self {
        Self::Invalid { argument, expected: expected.into(), given: given.into() }
    }

    /// A refusal of the system.
    pub fn io(path: impl Into<String>, error: &std::io::Error) -> Self {
        Self::Io { path: path.into(), errno: error.raw_os_error(), kind: error.kind(), message: error.to_string() }
    }

    /// Whether the process, or the system, has as many files open as it may.
    pub fn is_too_many_files(&self) -> bool {
        let numbers: &[i32] = if cfg!(windows) { &[4] } else { &[23, 24] };
        matches!(self, Self::Io { errno: Some(number), .. } if numbers.contains(number))
    }

    /// Bytes that are not what was written.
    pub fn corrupt(file: impl Into<String>, what: impl Into<String>) -> Self {
        Self::Corrupt { file: file.into(), what: what.into() }
    }

    /// A file of rows is not what it should be.
    pub fn file(path: &Path, problem: impl Into<String>) -> Self {
        Self::File { path: path.to_path_buf(), problem: problem.into() }
    }

    /// `SAPWOOD_ISA` can't be honoured.
    pub fn isa(given: &str, available: &[Isa]) -> Self {
        let names: Vec<&str> = available.iter().map(|isa| isa.name()).collect();
        Self::Isa { given: given.to_string(), available: names.join(", ") }
    }
}

/// `Result` with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;
