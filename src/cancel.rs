//! What long work polls and reports: a flag to stop, a deadline, and how far it is.
//!
//! Work polls [`Task::check`] between pieces of at most a few tens of milliseconds, before anything is published, so that a
//! cancelled call leaves the state as it was.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// One call's flag, deadline and progress. Shared between the thread that works and the one that waits for it.
#[derive(Debug, Default)]
pub struct Task {
    parent: Option<Arc<Task>>,
    cancelled: AtomicBool,
    deadline: Option<(Instant, f64)>,
    done: AtomicU64,
    total: AtomicU64,
}

impl Task {
    /// Work without a limit.
    pub fn new() -> Self {
        Self::default()
    }

    /// Work that ends with [`Error::Timeout`] after `seconds`; `None` sets no limit.
    pub fn with_timeout(seconds: Option<f64>) -> Result<Self> {
        let mut task = Self::default();
        if let Some(seconds) = seconds {
            let limit = Duration::try_from_secs_f64(seconds).ok().filter(|limit| !limit.is_zero());
            let deadline = limit.and_then(|limit| Instant::now().checked_add(limit));
            let expected = "a number of seconds above 0, or None";
            let deadline = deadline.ok_or_else(|| Error::invalid("timeout", expected, seconds.to_string()))?;
            task.deadline = Some((deadline, seconds));
        }
        Ok(task)
    }

    /// Work that ends with `parent`'s, and counts its own progress.
    pub fn child(parent: &Arc<Self>) -> Self {
        Self { parent: Some(parent.clone()), ..Self::default() }
    }

    /// Asks the work to stop; it ends with [`Error::Cancelled`].
    pub fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    /// Fails when the work should stop.
    pub fn check(&self) -> Result<()> {
        if self.cancelled.load(Ordering::Relaxed) {
            return Err(Error::Cancelled);
        }
        if let Some(parent) = &self.parent {
            parent.check()?;
        }
        match self.deadline {
            Some((deadline, seconds)) if Instant::now() >= deadline => Err(Error::Timeout { seconds }),
            _ => Ok(()),
        }
    }

    /// Says how much there is to do, in units of the caller's choice (rows, queries).
    pub fn set_total(&self, total: u64) {
        self.total.store(total, Ordering::Relaxed);
    }

    /// Adds to what is done.
    pub fn advance(&self, units: u64) {
        self.done.fetch_add(units, Ordering::Relaxed);
    }

    /// Says how much is done and how much there is, for work that is counted elsewhere.
    pub fn report(&self, done: u64, total: u64) {
        self.total.store(total, Ordering::Relaxed);
        self.done.store(done, Ordering::Relaxed);
    }

    /// (done, total), monotone; (0, 0) before the work has said how much there is.
    pub fn progress(&self) -> (u64, u64) {
        let total = self.total.load(Ordering::Relaxed);
        (self.done.load(Ordering::Relaxed).min(total), total)
    }
}
