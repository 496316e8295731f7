//! A directory that fails at the n-th call: for tests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use super::{Hold, ReadAt, Storage, WriteAt};
use crate::error::{Error, Result};

/// What happens at the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// It fails; later ones work again, as on a disk that was full for a moment.
    FailOnce,
    /// It fails and so do all later ones, as for a process that ends there.
    Stop,
}

/// Passes calls on to another directory, until the n-th call that writes.
#[derive(Debug, Clone)]
pub struct Fault {
    inner: Arc<dyn Storage>,
    counter: Arc<Counter>,
}

#[derive(Debug)]
struct Counter {
    calls: AtomicU64,
    at: AtomicU64,
    mode: Mode,
}

impl Fault {
    /// Fails at call `at`, counted from 0.
    pub fn new(inner: Arc<dyn Storage>, at: u64, mode: Mode) -> Self {
        Self { inner, counter: Arc::new(Counter { calls: AtomicU64::new(0), at: AtomicU64::new(at), mode }) }
    }

    /// Calls so far.
    pub fn calls(&self) -> u64 {
        self.counter.calls.load(Ordering::SeqCst)
    }

    /// Fails at the call after `calls` more.
    pub fn arm(&self, calls: u64) {
        self.counter.at.store(self.calls() + calls, Ordering::SeqCst);
    }
}

impl Counter {
    fn check(&self, name: &str) -> Result<()> {
        let call = self.calls.fetch_add(1, Ordering::SeqCst);
        let at = self.at.load(Ordering::SeqCst);
        if call == at || call > at && self.mode == Mode::Stop {
            return Err(Error::io(name.to_string(), &std::io::Error::other("a fault was injected here")));
        }
        Ok(())
    }
}

impl Storage for Fault {
    fn describe(&self, name: &str) -> String {
        self.inner.describe(name)
    }

    fn list(&self, folder: &str) -> Result<Vec<String>> {
        self.inner.list(folder)
    }

    fn open(&self, name: &str) -> Result<Arc<dyn ReadAt>> {
        self.inner.open(name)
    }

    fn write(&self, name: &str) -> Result<Box<dyn WriteAt>> {
        self.counter.check(name)?;
        Ok(Box::new(FaultFile { inner: self.inner.write(name)?, name: name.to_string(), counter: self.counter.clone() }))
    }

    fn replace(&self, name: &str, bytes: &[u8]) -> Result<()> {
        self.counter.check(name)?;
        self.inner.replace(name, bytes)?;
        // It may also fail after it has taken effect.
        self.counter.check(name)
    }

    fn sync_folder(&self, folder: &str) -> Result<()> {
        self.counter.check(folder)?;
        self.inner.sync_folder(folder)
    }

    fn remove(&self, name: &str) -> Result<()> {
        self.counter.check(name)?;
        self.inner.remove(name)
    }

    fn hold(&self, name: &str, alone: bool) -> Result<Option<Box<dyn Hold>>> {
        self.inner.hold(name, alone)
    }
}

#[derive(Debug)]
struct FaultFile {
    inner: Box<dyn WriteAt>,
    name: String,
    counter: Arc<Counter>,
}

impl WriteAt for FaultFile {
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<()> {
        if let Err(error) = self.counter.check(&self.name) {
            // Half of it arrives.
            self.inner.write_at(offset, &bytes[..bytes.len() / 2])?;
            return Err(error);
        }
        self.inner.write_at(offset, bytes)
    }

    fn sync(&mut self) -> Result<()> {
        self.counter.check(&self.name)?;
        self.inner.sync()
    }
}
