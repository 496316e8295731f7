//! `progress=`: a callable, or True for a bar.

use std::time::{Duration, Instant};

use parking_lot::Mutex;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;

use super::gate::Share;

/// The least time between two reports.
const INTERVAL: Duration = Duration::from_millis(100);

/// The caller's callback and what it was told last.
pub struct Progress {
    callback: Py<PyAny>,
    close: Option<Py<PyAny>>,
    told: Mutex<Told>,
}

struct Told {
    at: Option<Instant>,
    last: Option<(u64, u64)>,
}

impl Progress {
    /// From the argument: None and False report nothing, True shows a bar, anything callable is called.
    pub fn read(argument: Option<&Bound<'_, PyAny>>, unit: &str) -> PyResult<Option<Self>> {
        static BAR: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
        let Some(value) = argument else { return Ok(None) };
        let (callback, close) = match value.extract::<bool>() {
            Ok(false) => return Ok(None),
            Ok(true) => {
                let bar = BAR.import(value.py(), "sapwood._progress", "Bar")?.call1((unit,))?;
                let close = bar.getattr("close")?.unbind();
                (bar.unbind(), Some(close))
            }
            Err(_) if value.is_callable() => (value.clone().unbind(), None),
            Err(_) => {
                let given = value.get_type().name()?;
                return Err(PyTypeError::new_err(format!("progress: expected a callable (done, total), True or None, got {given}")));
            }
        };
        Ok(Some(Self { callback, close, told: Mutex::new(Told { at: None, last: None }) }))
    }

    /// Tells the callback how far the phase is, unless it was told a moment ago.
    pub fn report(&self, py: Python<'_>, (done, total): (u64, u64), share: Option<Share>) -> PyResult<()> {
        if total == 0 || self.told.lock().at.is_some_and(|at| at.elapsed() < INTERVAL) {
            return Ok(());
        }
        let (done, total) = share.map_or((done, total), |share| {
            let fraction = done as f64 / total as f64;
            (share.from + (fraction * (share.to - share.from) as f64) as u64, share.total)
        });
        self.tell(py, done, total)
    }

    /// Tells the callback that all is done, unless there was nothing to do.
    pub fn finish(&self, py: Python<'_>, total: u64) -> PyResult<()> {
        let last = self.told.lock().last;
        if total == 0 || last == Some((total, total)) { Ok(()) } else { self.tell(py, total, total) }
    }

    fn tell(&self, py: Python<'_>, done: u64, total: u64) -> PyResult<()> {
        let told = {
            let mut told = self.told.lock();
            // What is done never becomes less, whatever the phases say.
            let done = told.last.map_or(done, |(before, _)| done.max(before));
            *told = Told { at: Some(Instant::now()), last: Some((done, total.max(done))) };
            (done, total.max(done))
        };
        self.callback.call1(py, told)?;
        Ok(())
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some(close) = self.close.take() {
            // The call's own outcome counts; a bar that can't be closed does not change it.
            Python::try_attach(|py| drop(close.call0(py)));
        }
    }
}
