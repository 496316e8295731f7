//! `Filter`: ids that a search may, or may not, return.

use pyo3::prelude::*;

use super::arrays::Ids;
use crate::params;

/// Ids that a search may return, or may not.
///
/// Made by `Filter.allow` or `Filter.deny`; made once and used in many searches, its ids are checked and copied once.
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
    inner: params::Filter,
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
        Ok(Self { inner: params::Filter::Allow(Ids::read("ids", ids)?.values) })
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
        Ok(Self { inner: params::Filter::Deny(Ids::read("ids", ids)?.values) })
    }

    fn __repr__(&self) -> String {
        let (kind, ids) = match &self.inner {
            params::Filter::Allow(ids) => ("allow", ids),
            params::Filter::Deny(ids) => ("deny", ids),
        };
        format!("Filter.{kind}({} ids)", super::grouped(ids.len() as u64))
    }
}

/// `filter=`: a [`Filter`], or the ids that may be returned.
pub fn read(value: &Bound<'_, PyAny>) -> PyResult<params::Filter> {
    match value.cast::<Filter>() {
        Ok(filter) => Ok(filter.get().inner.clone()),
        Err(_) => Ok(params::Filter::Allow(Ids::read("filter", value)?.values)),
    }
}
