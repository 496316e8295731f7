//! Manifests: what a checkpoint consists of, as JSON for people and programs.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::error::{Error, Result};
use crate::metric::{MAX_DIM, Metric};
use crate::params::Params;
use crate::search::target::Table;
use crate::storage::{Storage, read_whole};
use crate::tree::leaf::Extent;
use crate::value::ValueType;

/// The format that this version writes, and the newest that it reads.
pub const FORMAT: u32 = 1;
/// The file that names the newest manifest.
pub const CURRENT: &str = "CURRENT";
/// A manifest is never larger.
const MOST: u64 = 64 << 20;
/// Bytes of a note.
pub const MOST_NOTE: usize = 1 << 20;

/// The name of manifest `number`.
pub fn manifest_name(number: u32) -> String {
    format!("manifests/{number:06}.json")
}

/// The number of a manifest's file name.
pub fn manifest_number(name: &str) -> Option<u32> {
    name.strip_suffix(".json")?.parse().ok()
}

/// One checkpoint.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// Format of all files.
    pub format: u32,
    /// Version of the library that wrote it.
    pub library: String,
    /// Counts the commits.
    pub number: u32,
    /// Seconds since 1970.
    pub created: u64,
    /// Values of a vector.
    pub dim: usize,
    /// "l2", "cosine" or "ip".
    pub metric: String,
    /// Options of the index.
    pub config: Config,
    /// Live rows.
    pub rows: u64,
    /// Leaves of the tree.
    pub leaves: u64,
    /// The next id that is given out.
    pub next_id: u64,
    /// Where the record of the tree is.
    pub root: Place,
    /// Segment files that the checkpoint needs.
    pub segments: Vec<SegmentFile>,
    /// Generation of the files of vectors.
    pub generation: u32,
    /// Files of vectors that it needs.
    pub vectors: Vec<VectorFile>,
    /// What the caller wants to know of it later, such as how far its source was read.
    #[serde(default)]
    pub note: String,
    /// When searches with a recall target end, if that was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub targets: Option<Table>,
}

/// Options that a checkpoint keeps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Config {
    /// See [`Params`].
    pub spill: usize,
    /// See [`Params`].
    pub split_threshold: usize,
    /// See [`Params`].
    pub merge_threshold: usize,
    /// See [`Params`].
    pub branching: usize,
    /// See [`Params`].
    pub reassign_neighbours: usize,
    /// See [`Params`]; the name of the type.
    pub storage: String,
    /// See [`Params`].
    pub seed: u64,
}

/// An [`Extent`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    segment: u32,
    offset: u64,
    bytes: u32,
    crc32c: u32,
}

/// A segment and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SegmentFile {
    /// Its number.
    pub number: u32,
    /// Its length.
    pub bytes: u64,
}

/// A file of vectors and the length that the checkpoint needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct VectorFile {
    /// Its number.
    pub slab: usize,
    /// Bytes from its start.
    pub bytes: u64,
}

impl From<Extent> for Place {
    fn from(extent: Extent) -> Self {
        Self { segment: extent.segment, offset: extent.offset, bytes: extent.bytes, crc32c: extent.check }
    }
}

impl From<Place> for Extent {
    fn from(place: Place) -> Self {
        Self { segment: place.segment, offset: place.offset, bytes: place.bytes, check: place.crc32c }
    }
}

impl From<&Params> for Config {
    fn from(params: &Params) -> Self {
        Self {
            spill: params.spill,
            split_threshold: params.split_threshold,
            merge_threshold: params.merge_threshold,
            branching: params.branching,
            reassign_neighbours: params.reassign_neighbours,
            storage: params.storage.name().to_string(),
            seed: params.seed,
        }
    }
}

impl Config {
    /// These options, with `others` for what isn't kept.
    pub fn params(&self, others: &Params) -> Params {
        Params {
            spill: self.spill,
            split_threshold: self.split_threshold,
            merge_threshold: self.merge_threshold,
            branching: self.branching,
            reassign_neighbours: self.reassign_neighbours,
            storage: ValueType::from_name(&self.storage).unwrap_or_default(),
            seed: self.seed,
            ..others.clone()
        }
    }
}

/// What a manifest's file holds: the manifest, and the checksum of its text.
#[derive(Deserialize)]
struct Sealed<'a> {
    crc32c: String,
    #[serde(borrow)]
    manifest: &'a RawValue,
}

/// What every format says of itself.
#[derive(Deserialize)]
struct Head {
    format: u64,
    #[serde(default)]
    library: String,
}

impl Manifest {
    /// As JSON.
    pub fn text(&self) -> Result<String> {
        serde_json::to_string_pretty(self).map_err(|error| Error::System(format!("a manifest can't be written: {error}")))
    }

    /// The file's text.
    pub fn encode(&self) -> Result<String> {
        let text = self.text()?;
        Ok(format!("{{\"crc32c\": \"{:08x}\",\n\"manifest\": {text}}}\n", crc32c::crc32c(text.as_bytes())))
    }

    /// Reads manifest `number`.
    pub fn read(storage: &dyn Storage, number: u32) -> Result<Self> {
        let name = manifest_name(number);
        let bytes = read_whole(storage, &name, MOST)?;
        let file = storage.describe(&name);
        let sealed: Sealed<'_> =
            serde_json::from_slice(&bytes).map_err(|error| Error::corrupt(&file, format!("this is no manifest ({error})")))?;
        let text = sealed.manifest.get();
        if u32::from_str_radix(&sealed.crc32c, 16).ok() != Some(crc32c::crc32c(text.as_bytes())) {
            return Err(Error::corrupt(file, "the manifest isn't what was written (checksum)"));
        }
        let broken = |error: serde_json::Error| Error::corrupt(&file, format!("the manifest can't be understood ({error})"));
        let head: Head = serde_json::from_str(text).map_err(broken)?;
        if head.format > u64::from(FORMAT) {
            return Err(Error::Format { file, found: head.format, writer: head.library, known: u64::from(FORMAT) });
        }
        let manifest: Self = serde_json::from_str(text).map_err(broken)?;
        if manifest.number != number
            || manifest.dim == 0
            || manifest.dim > MAX_DIM
            || manifest.metric().is_none()
            || ValueType::from_name(&manifest.config.storage).is_none()
        {
            return Err(Error::corrupt(file, "the manifest's number, dim, metric or storage is out of range"));
        }
        if manifest.targets.as_ref().is_some_and(|table| !table.is_sound()) {
            return Err(Error::corrupt(file, "the measurement for recall targets is out of range"));
        }
        manifest.config.params(&Params::default()).validate().map_err(|error| Error::corrupt(file, error.to_string()))?;
        Ok(manifest)
    }

    /// What is near.
    pub fn metric(&self) -> Option<Metric> {
        Metric::from_name(&self.metric).ok()
    }
}

/// The numbers of all manifests that are there, ascending.
pub fn manifest_numbers(storage: &dyn Storage) -> Result<Vec<u32>> {
    let mut numbers: Vec<u32> = storage.list("manifests")?.iter().filter_map(|name| manifest_number(name)).collect();
    numbers.sort_unstable();
    Ok(numbers)
}

/// The numbers of all checkpoints, ascending. A manifest beyond the newest checkpoint is what a commit left that didn't end; where it can't
/// be said which is the newest, all count.
pub fn checkpoint_numbers(storage: &dyn Storage) -> Result<Vec<u32>> {
    let mut numbers = manifest_numbers(storage)?;
    let newest = match current(storage) {
        Err(Error::Corrupt { .. }) => u32::MAX,
        done => done?.unwrap_or(0),
    };
    numbers.retain(|&number| number <= newest);
    Ok(numbers)
}

/// What [`CURRENT`] holds when manifest `number` is the newest. The checksum is there so that a damaged digit can't turn it into the name
/// of an older checkpoint.
pub fn current_line(number: u32) -> String {
    let name = manifest_name(number);
    format!("{name} {:08x}\n", crc32c::crc32c(name.as_bytes()))
}

fn current_number(bytes: &[u8]) -> Option<u32> {
    let name = std::str::from_utf8(bytes).ok()?.split(' ').next()?;
    let number = manifest_number(name.strip_prefix("manifests/")?)?;
    (current_line(number).as_bytes() == bytes).then_some(number)
}

/// The number of the newest checkpoint, if there is one.
pub fn current(storage: &dyn Storage) -> Result<Option<u32>> {
    match read_whole(storage, CURRENT, 4096) {
        Ok(bytes) => {
            let what = "expected the name of a manifest and its checksum, such as manifests/000042.json 5f0c3a1e";
            current_number(&bytes).map(Some).ok_or_else(|| Error::corrupt(storage.describe(CURRENT), what))
        }
        // Without the file the newest manifest counts: each is whole when it gets its name.
        Err(Error::Io { kind: std::io::ErrorKind::NotFound, .. }) => Ok(manifest_numbers(storage)?.pop()),
        Err(error) => Err(error),
    }
}
