//! Ids that may, or may not, be returned by a search.

use std::collections::HashSet;

use foldhash::fast::FixedState;

/// A set of ids, made once and asked often.
#[derive(Debug, Clone, PartialEq, Eq)]
enum IdSet {
    /// Bits from the first id on: for ids that lie close together.
    Dense { first: i64, words: Vec<u64> },
    /// For the rest.
    Sparse(HashSet<i64, FixedState>),
}

/// A dense set may take so many bits an id; a hash set takes about as much.
const BITS_PER_ID: i64 = 128;

impl IdSet {
    fn new(ids: &[i64]) -> Self {
        let (Some(&first), Some(&last)) = (ids.first(), ids.last()) else { return Self::Sparse(HashSet::default()) };
        let span = last.saturating_sub(first);
        if span / BITS_PER_ID > ids.len() as i64 {
            return Self::Sparse(ids.iter().copied().collect());
        }
        let mut words = vec![0u64; (span / 64 + 1) as usize];
        for id in ids {
            let place = (id - first) as usize;
            words[place / 64] |= 1 << (place % 64);
        }
        Self::Dense { first, words }
    }

    fn contains(&self, id: i64) -> bool {
        match self {
            Self::Dense { first, words } => {
                let place = id.wrapping_sub(*first) as u64;
                words.get((place / 64) as usize).is_some_and(|word| word >> (place % 64) & 1 == 1)
            }
            Self::Sparse(ids) => ids.contains(&id),
        }
    }
}

/// An allow list or a deny list. Making one costs a sort; using it costs a look-up a candidate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Filter {
    allow: bool,
    ids: Vec<i64>,
    set: IdSet,
}

impl Filter {
    /// Only these ids; those that aren't in the index are ignored.
    pub fn allow(ids: Vec<i64>) -> Self {
        Self::new(true, ids)
    }

    /// All but these ids.
    pub fn deny(ids: Vec<i64>) -> Self {
        Self::new(false, ids)
    }

    fn new(allow: bool, mut ids: Vec<i64>) -> Self {
        ids.sort_unstable();
        ids.dedup();
        let set = IdSet::new(&ids);
        Self { allow, ids, set }
    }

    /// Whether `id` may be returned.
    pub fn accepts(&self, id: i64) -> bool {
        self.set.contains(id) == self.allow
    }

    /// True for an allow list.
    pub fn is_allow(&self) -> bool {
        self.allow
    }

    /// The listed ids, ascending, each once.
    pub fn ids(&self) -> &[i64] {
        &self.ids
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn accepts_what_the_list_says(ids in prop::collection::vec(prop_oneof![0i64..500, any::<i64>().prop_map(|id| id & i64::MAX)], 0..60), asked in 0i64..500) {
            let (allow, deny) = (Filter::allow(ids.clone()), Filter::deny(ids.clone()));
            for id in ids.iter().copied().chain([asked, i64::MAX, 0]) {
                prop_assert_eq!(allow.accepts(id), ids.contains(&id));
                prop_assert_eq!(deny.accepts(id), !ids.contains(&id));
            }
        }
    }
}
