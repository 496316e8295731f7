//! The one gate between Python and the core: every call that computes goes through it.
//!
//! The problem: while the core works the interpreter must be free for other threads, Ctrl-C must end the call within a second, and
//! only the calling thread may run signal handlers and the caller's progress callback.
//! The rule of use: one [`Call`] for a Python call, one [`Call::run`] for each of its phases.
//! The hazard: an interrupted phase must have ended before the arrays it reads are let go; so the gate always waits for the worker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use pyo3::prelude::*;

use super::progress::Progress;
use crate::cancel::Task;
use crate::error::{Error, Result};

/// How often the calling thread looks for signals: far below the second within which Ctrl-C must work, and free of cost.
const WAKE: Duration = Duration::from_millis(50);

/// A phase's share of a call: its progress from 0 to 1 is reported as `from` to `to` of `total`.
#[derive(Debug, Clone, Copy)]
pub struct Share {
    /// Units done when the phase begins.
    pub from: u64,
    /// Units done when it ends.
    pub to: u64,
    /// Units of the whole call.
    pub total: u64,
}

/// One call from Python: its time limit and its progress.
pub struct Call {
    started: Instant,
    timeout: Option<f64>,
    progress: Option<Progress>,
}

impl Call {
    /// A call that may take `timeout` seconds and reports to `progress`.
    pub fn new(timeout: Option<f64>, progress: Option<Progress>) -> PyResult<Self> {
        Task::with_timeout(timeout)?;
        Ok(Self { started: Instant::now(), timeout, progress })
    }

    /// Runs a phase without the interpreter. A long one runs on its own thread, so that this one can serve signals and progress.
    pub fn run<T, F>(&self, py: Python<'_>, share: Option<Share>, long: bool, work: F) -> PyResult<T>
    where
        T: Send,
        F: FnOnce(&Task) -> Result<T> + Send,
    {
        let task = self.task()?;
        py.detach(|| if long { self.watch(&task, share, work) } else { caught(|| work(&task)).map_err(|error| self.explain(error)) })
    }

    /// Reports that all `total` units are done.
    pub fn finish(&self, py: Python<'_>, total: u64) -> PyResult<()> {
        self.progress.as_ref().map_or(Ok(()), |progress| progress.finish(py, total))
    }

    /// A phase counts from zero, so each has its own task; the time limit is the call's.
    fn task(&self) -> Result<Task> {
        let Some(seconds) = self.timeout else { return Ok(Task::new()) };
        let left = seconds - self.started.elapsed().as_secs_f64();
        if left <= 0.0 { Err(Error::Timeout { seconds }) } else { Task::with_timeout(Some(left)) }
    }

    /// Names the limit that the caller gave instead of what was left of it.
    fn explain(&self, error: Error) -> PyErr {
        match (error, self.timeout) {
            (Error::Timeout { .. }, Some(seconds)) => Error::Timeout { seconds }.into(),
            (error, _) => error.into(),
        }
    }

    fn watch<T, F>(&self, task: &Task, share: Option<Share>, work: F) -> PyResult<T>
    where
        T: Send,
        F: FnOnce(&Task) -> Result<T> + Send,
    {
        std::thread::scope(|scope| {
            let (finished, waiting) = channel::<()>();
            let worker = move || {
                let _dropped_at_the_end = finished;
                caught(|| work(task))
            };
            let worker = Builder::new().name("sapwood-call".into()).spawn_scoped(scope, worker);
            let worker = worker.map_err(|error| Error::System(format!("no thread for the call: {error}")))?;
            let mut stopped = None;
            while waiting.recv_timeout(WAKE) == Err(RecvTimeoutError::Timeout) {
                if stopped.is_none() {
                    stopped = self.attend(task, share).err();
                    stopped.is_some().then(|| task.cancel());
                }
            }
            let outcome = worker.join().unwrap_or_else(|panic| Err(panicked(&*panic)));
            stopped.map_or(outcome.map_err(|error| self.explain(error)), Err)
        })
    }

    /// What only the calling thread may do: signal handlers and the progress callback. An exception from either ends the call.
    fn attend(&self, task: &Task, share: Option<Share>) -> PyResult<()> {
        let attended = Python::try_attach(|py| {
            py.check_signals()?;
            self.progress.as_ref().map_or(Ok(()), |progress| progress.report(py, task.progress(), share))
        });
        // An interpreter that shuts down wants no result.
        attended.unwrap_or_else(|| Err(Error::Cancelled.into()))
    }
}

/// Runs short work without the interpreter.
pub fn quick<T: Send>(py: Python<'_>, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    Ok(py.detach(|| caught(work))?)
}

/// A panic of the core is a fault of Sapwood; it must not take the interpreter down.
fn caught<T>(work: impl FnOnce() -> Result<T>) -> Result<T> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|panic| Err(panicked(&*panic)))
}

fn panicked(panic: &(dyn std::any::Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    Error::System(format!("a fault of Sapwood itself, please report it: {}", text.unwrap_or("no message")))
}
