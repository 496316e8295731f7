//! The keyword arguments of `Index` and of `search` as the core's options.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyMapping, PyString, PyTuple};

use super::arguments::{expected, number, size, text, threads};
use super::filter;
use crate::error::Error;
use crate::params::{LevelRule, MAX_K, Params, Rerank, SearchOptions};
use crate::value::ValueType;

/// The options of `Index` as they came; None means the profile's default.
pub struct IndexArguments<'a, 'py> {
    /// Further postings of a row.
    pub spill: Option<&'a Bound<'py, PyAny>>,
    /// Postings above which a leaf is split.
    pub split_threshold: Option<&'a Bound<'py, PyAny>>,
    /// Postings below which a leaf is merged.
    pub merge_threshold: Option<&'a Bound<'py, PyAny>>,
    /// Children above which a node is split.
    pub branching: Option<&'a Bound<'py, PyAny>>,
    /// "memory" or "disk".
    pub profile: Option<&'a Bound<'py, PyAny>>,
    /// One of [`ValueType::NAMES`].
    pub storage: Option<&'a Bound<'py, PyAny>>,
    /// Seed of rotation and clustering.
    pub seed: Option<&'a Bound<'py, PyAny>>,
    /// Threads for batches and balancing.
    pub threads: Option<&'a Bound<'py, PyAny>>,
}

impl IndexArguments<'_, '_> {
    /// The core's options. Ranges are the core's to check.
    pub fn params(&self) -> PyResult<Params> {
        let most = u32::MAX as usize;
        let given = |name, value: Option<&Bound<'_, PyAny>>, default| value.map_or(Ok(default), |value| size(name, value, 0, most));
        let (split, merge_divisor) = self.profile()?;
        let default = Params::default();
        let split_threshold = given("split_threshold", self.split_threshold, split)?;
        Ok(Params {
            spill: given("spill", self.spill, default.spill)?,
            split_threshold,
            // A share of the threshold in force, so that one of the two may be given alone.
            merge_threshold: given("merge_threshold", self.merge_threshold, split_threshold / merge_divisor)?,
            branching: given("branching", self.branching, default.branching)?,
            storage: self.storage()?,
            seed: self.seed.map_or(Ok(default.seed), |seed| super::arguments::whole("seed", seed, 0, u64::MAX))?,
            threads: threads(self.threads)?,
            ..default
        })
    }

    fn storage(&self) -> PyResult<ValueType> {
        let wanted = ValueType::NAMES;
        let Some(value) = self.storage else { return Ok(ValueType::default()) };
        let name = text("storage", value, wanted)?;
        Ok(ValueType::from_name(&name).ok_or_else(|| Error::invalid("storage", wanted, format!("{name:?}")))?)
    }

    /// Options that were given and that a checkpoint keeps.
    pub fn given(&self) -> Vec<&'static str> {
        let profile = self.profile.is_some();
        let kept = [
            ("spill", self.spill.is_some()),
            ("split_threshold", self.split_threshold.is_some() || profile),
            ("merge_threshold", self.merge_threshold.is_some() || profile),
            ("branching", self.branching.is_some()),
            ("storage", self.storage.is_some()),
            ("seed", self.seed.is_some()),
        ];
        kept.into_iter().filter(|(_, given)| *given).map(|(name, _)| name).collect()
    }

    /// The profile's split threshold, and the divisor that makes a merge threshold of one.
    fn profile(&self) -> PyResult<(usize, usize)> {
        let memory = Params::default();
        let wanted = "\"memory\" or \"disk\"";
        let name = self.profile.map_or(Ok("memory".to_string()), |profile| text("profile", profile, wanted))?;
        match name.as_str() {
            "memory" => Ok((memory.split_threshold, memory.split_threshold / memory.merge_threshold.max(1))),
            // Large leaves amortise a read from disk.
            "disk" => Ok((2048, 4)),
            _ => Err(Error::invalid("profile", wanted, format!("{name:?}")).into()),
        }
    }
}

/// The options of one search as they came; None means the default.
pub struct SearchArguments<'a, 'py> {
    /// Factor on the distance of the nearest child.
    pub tau: Option<&'a Bound<'py, PyAny>>,
    /// Leaves to scan.
    pub beam: Option<&'a Bound<'py, PyAny>>,
    /// The share of the true neighbours to find.
    pub recall: Option<&'a Bound<'py, PyAny>>,
    /// How candidates are compared.
    pub rerank: &'a Given<'py>,
    /// Deviations of the bound.
    pub epsilon: Option<&'a Bound<'py, PyAny>>,
    /// Ids that may be returned.
    pub filter: Option<&'a Bound<'py, PyAny>>,
    /// Exceptions by level.
    pub levels: Option<&'a Bound<'py, PyAny>>,
    /// Threads for a batch.
    pub threads: Option<&'a Bound<'py, PyAny>>,
}

impl SearchArguments<'_, '_> {
    /// The core's options. It checks ranges.
    pub fn options(&self) -> PyResult<SearchOptions> {
        Ok(SearchOptions {
            tau: self.tau.map(|tau| factor("tau", tau)).transpose()?,
            beam: self.beam.map(|beam| range(beam, self.tau.is_some())).transpose()?,
            levels: self.levels.map_or(Ok(vec![]), level_rules)?,
            recall: self.recall.map(share).transpose()?,
            rerank: rerank(self.rerank)?,
            epsilon: self
                .epsilon
                .map(|epsilon| number("epsilon", epsilon, "a number from 0 to 16"))
                .transpose()?
                .map(|epsilon| epsilon as f32),
            filter: self.filter.map(filter::read).transpose()?,
            threads: threads(self.threads)?,
        })
    }
}

/// An argument whose None means something: what came, or nothing.
pub struct Given<'py>(Option<Bound<'py, PyAny>>);

impl Given<'_> {
    /// The argument was left out.
    pub const NOTHING: Self = Self(None);
}

impl<'py> FromPyObject<'_, 'py> for Given<'py> {
    type Error = std::convert::Infallible;

    fn extract(value: Borrowed<'_, 'py, PyAny>) -> Result<Self, Self::Error> {
        Ok(Self(Some(value.to_owned())))
    }
}

/// `rerank=`: "bound", a factor of k, or None.
fn rerank(value: &Given<'_>) -> PyResult<Rerank> {
    let Some(value) = &value.0 else { return Ok(Rerank::default()) };
    if value.is_none() {
        return Ok(Rerank::Estimate);
    }
    match value.cast::<PyString>() {
        Ok(name) if *name == "bound" => Ok(Rerank::Bound),
        Ok(_) => Err(PyValueError::new_err(expected("rerank", "\"bound\", a whole number (times k) or None", value))),
        Err(_) => Ok(Rerank::Factor(size("rerank", value, 1, MAX_K)?)),
    }
}

/// How many neighbours: 1 to [`MAX_K`].
pub fn neighbours(value: Option<&Bound<'_, PyAny>>) -> PyResult<usize> {
    value.map_or(Ok(10), |k| size("k", k, 1, MAX_K))
}

fn factor(argument: &str, value: &Bound<'_, PyAny>) -> PyResult<f32> {
    Ok(number(argument, value, "a finite number of at least 1")? as f32)
}

/// `recall=`: the core checks the range.
fn share(value: &Bound<'_, PyAny>) -> PyResult<f32> {
    Ok(number("recall", value, "a share of the true neighbours, above 0 and at most 1")? as f32)
}

/// (least, most) leaves. One number alone is the most; without a `tau` to choose between, exactly so many.
fn range(value: &Bound<'_, PyAny>, has_tau: bool) -> PyResult<(usize, usize)> {
    let most = i64::MAX as usize;
    let Ok(pair) = value.cast::<PyTuple>() else {
        let beam = size("beam", value, 1, most)?;
        return Ok((if has_tau { 1 } else { beam }, beam));
    };
    if pair.len() != 2 {
        return Err(PyValueError::new_err(expected("beam", "a whole number, or (least, most)", value)));
    }
    Ok((size("beam", &pair.get_item(0)?, 1, most)?, size("beam", &pair.get_item(1)?, 1, most)?))
}

fn level_rules(value: &Bound<'_, PyAny>) -> PyResult<Vec<LevelRule>> {
    let refused = || PyTypeError::new_err(expected("levels", "a list of dicts, the root's children first, or None", value));
    if value.is_instance_of::<PyString>() || value.is_instance_of::<PyDict>() {
        return Err(refused());
    }
    value.try_iter().map_err(|_| refused())?.map(|rule| level_rule(&rule?)).collect()
}

fn level_rule(value: &Bound<'_, PyAny>) -> PyResult<LevelRule> {
    let mut rule = LevelRule::default();
    if value.is_none() {
        return Ok(rule);
    }
    let wanted = "a dict with any of tau, least, most, least_percent, or None";
    let mapping = value.cast::<PyMapping>().map_err(|_| PyTypeError::new_err(expected("levels", wanted, value)))?;
    for pair in mapping.items()?.iter() {
        let (key, entry) = pair.extract::<(Bound<'_, PyAny>, Bound<'_, PyAny>)>()?;
        match key.extract::<String>().as_deref() {
            Ok("tau") => rule.tau = Some(factor("levels: tau", &entry)?),
            Ok("least") => rule.least = Some(size("levels: least", &entry, 1, i64::MAX as usize)?),
            Ok("most") => rule.most = Some(size("levels: most", &entry, 1, i64::MAX as usize)?),
            Ok("least_percent") => rule.least_percent = Some(number("levels: least_percent", &entry, "a number from 0 to 100")? as f32),
            _ => return Err(PyValueError::new_err(expected("levels", wanted, value))),
        }
    }
    Ok(rule)
}
