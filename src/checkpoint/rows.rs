//! The table of rows: id, location and checksum of the vector, in pages that are read when they are needed.

use std::sync::{Arc, OnceLock};

use super::bytes::{put, put_all};
use super::manifest::Manifest;
use super::root::Root;
use super::segment::Segments;
use crate::error::{Error, Result};
use crate::ids::{DEAD, LeafId, Location, NONE, PAGE};
use crate::tree::leaf::Extent;
use crate::tree::store::RowSource;
use crate::vectors::Row;

/// Bytes of a row of the table.
const ROW_BYTES: usize = size_of::<u64>() + size_of::<Location>() + size_of::<u32>();

/// Rows of one page, dead ones included.
#[derive(Debug, PartialEq)]
pub struct RowPage {
    /// Ids; 0 for a dead row.
    pub ids: Vec<u64>,
    /// Locations.
    pub locations: Vec<Location>,
    /// CRC-32C of the vectors as they are on disk.
    pub checks: Vec<u32>,
}

impl RowPage {
    /// The record.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(4 + PAGE * 20);
        put(&mut out, self.ids.len() as u32);
        put_all(&mut out, &self.ids);
        put_all(&mut out, self.locations.as_flattened());
        put_all(&mut out, &self.checks);
        out
    }
}

/// The pages of a checkpoint.
#[derive(Debug)]
pub struct RowPages {
    segments: Arc<Segments>,
    extents: Vec<Extent>,
    pages: Vec<OnceLock<RowPage>>,
    next_id: u64,
    end: Row,
}

impl RowPages {
    /// Pages at `extents`.
    pub fn new(segments: Arc<Segments>, extents: Vec<Extent>, next_id: u64, end: Row) -> Self {
        let pages = extents.iter().map(|_| OnceLock::new()).collect();
        Self { segments, extents, pages, next_id, end }
    }

    /// The pages of checkpoint `number`.
    pub fn of_checkpoint(segments: &Arc<Segments>, number: u32) -> Result<Self> {
        let manifest = Manifest::read(&**segments.storage(), number)?;
        let root = segments.decode(manifest.root.into(), Root::decode)?;
        Ok(Self::new(segments.clone(), root.row_pages, root.next_id, root.end))
    }

    /// Whether `row` is live.
    pub fn lists(&self, row: Row) -> Result<bool> {
        Ok(row < self.end && self.page(row as usize / PAGE)?.locations[row as usize % PAGE] != DEAD)
    }

    /// Where the pages are.
    pub fn extents(&self) -> &[Extent] {
        &self.extents
    }

    /// A page.
    pub fn page(&self, number: usize) -> Result<&RowPage> {
        let (Some(slot), Some(&extent)) = (self.pages.get(number), self.extents.get(number)) else {
            return Err(Error::corrupt(self.describe(), format!("there is no page {number} of rows")));
        };
        if let Some(page) = slot.get() {
            return Ok(page);
        }
        let page = self.segments.decode(extent, |cursor| {
            if cursor.take::<u32>()? as usize != PAGE {
                return cursor.broken("a page of rows has another size");
            }
            let ids: Vec<u64> = cursor.take_all(PAGE)?;
            let locations: Vec<[LeafId; 2]> = cursor.take_all(PAGE)?;
            let checks = cursor.take_all(PAGE)?;
            let odd = ids.iter().zip(&locations).any(|(&id, &at)| id >> 63 != 0 || at != DEAD && (at[0] == NONE || at[0] == at[1]));
            if odd { cursor.broken("a row has no id or no leaf") } else { Ok(RowPage { ids, locations, checks }) }
        })?;
        Ok(slot.get_or_init(|| page))
    }

    /// The checksum of a row's vector.
    pub fn check(&self, row: Row) -> Result<u32> {
        Ok(self.page(row as usize / PAGE)?.checks[row as usize % PAGE])
    }

    /// Rows that aren't listed.
    pub fn dead_rows(&self) -> Result<Vec<Row>> {
        let mut dead = Vec::new();
        for page in 0..self.extents.len() {
            let locations = &self.page(page)?.locations;
            let places = (0..PAGE).filter(|&place| locations[place] == DEAD);
            dead.extend(places.map(|place| (page * PAGE + place) as Row).filter(|&row| row < self.end));
        }
        Ok(dead)
    }
}

impl RowSource for RowPages {
    fn id(&self, row: Row) -> Result<i64> {
        Ok(self.page(row as usize / PAGE)?.ids[row as usize % PAGE] as i64)
    }

    fn len(&self) -> usize {
        self.extents.len()
    }

    fn read(&self, page: usize, each: &mut dyn FnMut(Row, u64, Location)) -> Result<()> {
        let RowPage { ids, locations, .. } = self.page(page)?;
        for (place, (&id, &location)) in ids.iter().zip(locations).enumerate() {
            each((page * PAGE + place) as Row, id, location);
        }
        Ok(())
    }

    fn next_id(&self) -> u64 {
        self.next_id
    }

    fn bytes(&self) -> usize {
        self.pages.iter().filter(|page| page.get().is_some()).count() * PAGE * ROW_BYTES
    }

    fn describe(&self) -> String {
        let segment = self.extents.last().map_or(0, |extent| extent.segment);
        self.segments.storage().describe(&super::segment::segment_name(segment))
    }
}
