//! `Filter`: ids that a search may, or may not, return.

use std::sync::Arc;

use pyo3::prelude::*;

use super::arrays::Ids;
use super::gate::quick;
use crate::filter as core;

/// Ids that a search may return, or may not.
///
/// Made by `Filter.allow` or `Filter.deny`. One that is used in many searches is best made once: its ids are checked, copied and
/// sorted when it is made.
///
/// Examples
/// --------
/// >>> import numpy as np, sapwood as sw
/// >>> index = sw.Index(2, "l2")
/// >>> index.add(np.eye(2, dtype=np.float32))
/// AddResult(added=2, replaced=0)
/// >>> index.search([1.0, 0.0], k=1, filter=sw.Filter.deny([0])).ids
/// array([1])
#[pyclass(frozen, module = "sapwood")]
pub struct Filter {
    inner: Arc<core::Filter>,
}

#[pymethods]
impl Filter {
    /// Only these ids may be returned.
    ///
    /// Parameters
    /// ----------
    /// ids : array_like of int, shape (n,)
    ///     Ids from 0 to 2**63 - 1; unknown and repeated ones do no harm.
    ///
    /// Returns
    /// -------
    /// Filter
    #[staticmethod]
    fn allow(ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(ids, core::Filter::allow)
    }

    /// All ids but these may be returned.
    ///
    /// Parameters
    /// ----------
    /// ids : array_like of int, shape (n,)
    ///     Ids from 0 to 2**63 - 1; unknown and repeated ones do no harm.
    ///
    /// Returns
    /// -------
    /// Filter
    #[staticmethod]
    fn deny(ids: &Bound<'_, PyAny>) -> PyResult<Self> {
        Self::new(ids, core::Filter::deny)
    }

    fn __repr__(&self) -> String {
        let kind = if self.inner.is_allow() { "allow" } else { "deny" };
        format!("Filter.{kind}({} ids)", super::grouped(self.inner.ids().len() as u64))
    }
}

impl Filter {
    fn new(ids: &Bound<'_, PyAny>, make: fn(Vec<i64>) -> core::Filter) -> PyResult<Self> {
        let values = Ids::read("ids", ids)?.values;
        Ok(Self { inner: Arc::new(quick(ids.py(), || Ok(make(values)))?) })
    }
}

/// `filter=`: a [`Filter`], or the ids that may be returned.
pub fn read(value: &Bound<'_, PyAny>) -> PyResult<Arc<core::Filter>> {
    if let Ok(filter) = value.cast::<Filter>() {
        return Ok(filter.get().inner.clone());
    }
    let values = Ids::read("filter", value)?.values;
    Ok(Arc::new(quick(value.py(), || Ok(core::Filter::allow(values)))?))
}
