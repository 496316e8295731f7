//! Rows that a query has met: a row lies in two leaves, and its second meeting must not count.

use crate::vectors::Row;

/// Rows met by a query: a small open-addressed set that is emptied in one step.
#[derive(Debug, Default)]
pub struct Seen {
    slots: Vec<(u32, Row)>,
    round: u32,
    len: usize,
}

impl Seen {
    /// Forgets all rows.
    pub fn clear(&mut self) {
        self.len = 0;
        self.round = self.round.wrapping_add(1);
        if self.round == 0 || self.slots.is_empty() {
            self.slots = vec![(0, 0); self.slots.len().max(1024)];
            self.round = 1;
        }
    }

    /// True if `row` is new.
    pub fn insert(&mut self, row: Row) -> bool {
        if self.len * 2 >= self.slots.len() {
            self.grow();
        }
        let mask = self.slots.len() - 1;
        let mut place = row.wrapping_mul(0x9e37_79b1) as usize >> 7 & mask;
        loop {
            match self.slots[place] {
                (round, other) if round == self.round && other == row => return false,
                (round, _) if round == self.round => place = (place + 1) & mask,
                _ => break,
            }
        }
        self.slots[place] = (self.round, row);
        self.len += 1;
        true
    }

    fn grow(&mut self) {
        let old = std::mem::take(&mut self.slots);
        let round = self.round;
        self.slots = vec![(0, 0); (old.len() * 4).max(1024)];
        (self.round, self.len) = (1, 0);
        for (_, row) in old.into_iter().filter(|(then, _)| *then == round) {
            self.insert(row);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seen_rows_are_seen_once_and_forgotten_at_once() {
        let mut seen = Seen::default();
        for round in 0..3 {
            seen.clear();
            for row in 0..5000u32 {
                assert!(seen.insert(row * 7 + round), "row {row} is new in round {round}");
                assert!(!seen.insert(row * 7 + round));
            }
        }
    }
}
