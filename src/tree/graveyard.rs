//! Dead rows that a search may still read.
//!
//! A row is listed by the versions of the tree from its birth to its death. It may be used again when none of those versions is held any
//! more; versions older than the row don't matter, so a long clustering that holds one old version doesn't keep the rows that
//! come and go meanwhile.
//!
//! A dead row waits at the latest version in use that lists it. When that version is gone it moves to the next older one, or is free.

use std::sync::{Arc, Weak};

use super::snapshot::Snapshot;
use crate::vectors::Row;

/// A former version and the dead rows that wait for it.
#[derive(Debug)]
struct Version {
    sequence: u64,
    held: Weak<Snapshot>,
    waiting: Vec<Row>,
}

/// The dead rows of an index.
#[derive(Debug, Default)]
pub struct Graveyard {
    /// Former versions that are held, oldest first.
    versions: Vec<Version>,
    /// The first version that lists a row, by row.
    births: Vec<u64>,
}

impl Graveyard {
    /// Notes that `row` is listed from version `sequence` on.
    pub fn born(&mut self, row: Row, sequence: u64) {
        let place = row as usize;
        if place >= self.births.len() {
            self.births.resize(place + 1, 0);
        }
        self.births[place] = sequence;
    }

    /// Takes rows that died when version `old` was replaced; returns those that may be used again.
    pub fn bury(&mut self, old: &Arc<Snapshot>, dead: Vec<Row>) -> Vec<Row> {
        self.versions.push(Version { sequence: old.sequence, held: Arc::downgrade(old), waiting: dead });
        let mut free = Vec::new();
        // Newest first: what a version lets go is only ever passed on to older ones.
        for place in (0..self.versions.len()).rev() {
            if self.versions[place].held.strong_count() > 0 {
                continue;
            }
            let version = self.versions.remove(place);
            for row in version.waiting {
                match self.latest_reader(place, self.births.get(row as usize).copied().unwrap_or(0)) {
                    Some(reader) => self.versions[reader].waiting.push(row),
                    None => free.push(row),
                }
            }
        }
        free
    }

    /// The latest held version before `place` that is not older than `birth`.
    fn latest_reader(&self, place: usize, birth: u64) -> Option<usize> {
        let older = self.versions[..place].iter().rposition(|version| version.held.strong_count() > 0)?;
        (self.versions[older].sequence >= birth).then_some(older)
    }

    /// Bytes in use.
    pub fn bytes(&self) -> usize {
        self.births.capacity() * size_of::<u64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::snapshot::Table;

    const NOBODY: &[Row] = &[];

    fn version(sequence: u64) -> Arc<Snapshot> {
        Arc::new(Snapshot { leaves: Table::default(), inners: Table::default(), root: 0, rows: 0, sequence, changes: 0 })
    }

    #[test]
    fn a_row_waits_for_every_version_that_lists_it_and_for_no_other() {
        let mut yard = Graveyard::default();
        let versions: Vec<_> = (0..6).map(|sequence| Some(version(sequence))).collect();
        let mut held = versions;
        yard.born(0, 0);
        yard.born(1, 2);
        yard.born(2, 4);
        let mut bury = |held: &mut Vec<Option<Arc<Snapshot>>>, sequence: usize, dead: Vec<Row>, keep: bool| {
            let old = held[sequence].clone().unwrap();
            if !keep {
                held[sequence] = None;
            }
            let free = yard.bury(&old, dead);
            drop(old);
            free
        };
        // Version 0 is held for long; row 0 dies after version 1, row 1 after version 3, row 2 after version 4.
        assert_eq!(bury(&mut held, 0, vec![], true), NOBODY);
        assert_eq!(bury(&mut held, 1, vec![0], false), NOBODY);
        assert_eq!(bury(&mut held, 2, vec![], true), NOBODY, "row 0 is read through version 0");
        assert_eq!(bury(&mut held, 3, vec![1], false), NOBODY);
        assert_eq!(bury(&mut held, 4, vec![2], false), NOBODY, "row 1 is read through version 2");
        assert_eq!(bury(&mut held, 5, vec![], false), [2], "row 2 is younger than all that are held");
        held[2] = None;
        let last = version(6);
        assert_eq!(yard.bury(&last, vec![]), [1]);
        held[0] = None;
        assert_eq!(yard.bury(&version(7), vec![]), [0]);
    }
}
