//! When to do what: pure functions of sizes.

use crate::params::Params;
use crate::tree::leaf::Care;

/// What a leaf needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Nothing.
    Rest,
    /// To become so many leaves.
    Split(usize),
    /// To give its rows to its neighbours.
    Merge,
    /// To have its centroid compared with its rows.
    Refresh,
}

/// Fruitless attempts after which a leaf is left alone, to be reported.
pub const ATTEMPTS: u8 = 8;

/// A leaf is split into pieces of about this share of the split threshold, and the whole tree is clustered into such leaves: room to grow,
/// and well above a merge.
const FILL: f64 = 0.52;

/// Rows a leaf should have after a split or a clustering.
pub fn target_size(params: &Params) -> usize {
    ((params.split_threshold as f64 * FILL) as usize).max(1)
}

/// What a leaf of so many rows, one of `leaves`, needs.
pub fn action(rows: usize, care: Care, leaves: usize, params: &Params) -> Action {
    if care.attempts >= ATTEMPTS {
        return Action::Rest;
    }
    if rows > params.split_threshold {
        // Rows that are all alike can't be told apart; such a leaf is tried again when it has doubled.
        let alike = care.unsplittable_at > 0 && rows < 2 * care.unsplittable_at;
        return if alike { Action::Rest } else { Action::Split(rows.div_ceil(target_size(params)).max(2)) };
    }
    if leaves > 1 && (rows == 0 || rows < params.merge_threshold) {
        return Action::Merge;
    }
    // A centroid is the mean of its rows when it is made; half as many new ones may have moved it.
    if care.appended > params.merge_threshold.max(rows / 2) { Action::Refresh } else { Action::Rest }
}

/// What the whole tree needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clustering {
    /// Nothing.
    Rest,
    /// To be clustered anew when nobody writes, or when somebody waits for a balanced tree.
    WhenQuiet,
    /// To be clustered anew.
    Now,
}

/// Rows added, as a multiple of those that were last clustered, after which it is time for another clustering: half of all rows have never
/// had a say in where the centroids are, and a search scans a half more codes than it would in a fresh tree. Spread over the rows that
/// were added, the cost is that of clustering each twice.
const GROWTH: f64 = 1.0;
/// The same where it keeps nobody waiting, up to [`QUIET_ROWS`]. A tree that has grown by so much finds 0.01 less at a fixed beam than a
/// fresh one.
const QUIET_GROWTH: f64 = 0.2;
/// What a clustering takes grows with the square of the rows: from so many on it waits for more growth, by the square root.
const QUIET_ROWS: f64 = 200_000.0;

/// Whether the whole tree of so many rows should be clustered anew, of which `added` are newer than the last clustering of `clustered`.
pub fn clustering(rows: usize, clustered: usize, added: usize, params: &Params) -> Clustering {
    if rows <= params.split_threshold {
        return Clustering::Rest;
    }
    let growth = added as f64 / clustered.max(target_size(params) / 2) as f64;
    match growth {
        growth if growth > GROWTH => Clustering::Now,
        growth if growth > quiet_growth(rows) => Clustering::WhenQuiet,
        _ => Clustering::Rest,
    }
}

fn quiet_growth(rows: usize) -> f64 {
    (QUIET_GROWTH * (rows as f64 / QUIET_ROWS).sqrt()).clamp(QUIET_GROWTH, GROWTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn sizes_decide() {
        let params = Params { split_threshold: 100, merge_threshold: 10, ..Params::default() };
        let on = |rows, leaves| action(rows, Care::default(), leaves, &params);
        assert_eq!(on(100, 5), Action::Rest);
        assert_eq!(on(101, 5), Action::Split(2));
        assert_eq!(on(1000, 5), Action::Split(20));
        assert_eq!(on(9, 5), Action::Merge);
        assert_eq!(on(9, 1), Action::Rest);
        assert_eq!(on(0, 2), Action::Merge);
        let grown = Care { appended: 40, ..Care::default() };
        assert_eq!(action(60, grown, 5, &params), Action::Refresh);
    }

    #[test]
    fn what_is_alike_or_hopeless_rests() {
        let params = Params { split_threshold: 100, merge_threshold: 10, ..Params::default() };
        let alike = Care { unsplittable_at: 150, ..Care::default() };
        assert_eq!(action(200, alike, 5, &params), Action::Rest);
        assert_eq!(action(300, alike, 5, &params), Action::Split(6));
        let hopeless = Care { attempts: ATTEMPTS, ..Care::default() };
        assert_eq!(action(300, hopeless, 5, &params), Action::Rest);
    }

    #[test]
    fn clusters_at_the_start_and_as_the_tree_grows() {
        let on = |rows, clustered, added| clustering(rows, clustered, added, &Params::default());
        assert_eq!(on(100, 0, 100), Clustering::Rest);
        assert_eq!(on(1_000, 0, 1_000), Clustering::Now);
        assert_eq!(on(1_100, 1_000, 100), Clustering::Rest);
        assert_eq!(on(1_300, 1_000, 300), Clustering::WhenQuiet);
        assert_eq!(on(2_100, 1_000, 1_100), Clustering::Now);
        assert_eq!(on(1_000, 1_000, 1_100), Clustering::Now, "rows that replace others count too");
        assert_eq!(on(250_000, 200_000, 50_000), Clustering::WhenQuiet);
        assert_eq!(on(2_500_000, 2_000_000, 500_000), Clustering::Rest, "a large tree waits for more");
        assert_eq!(on(3_500_000, 2_000_000, 1_700_000), Clustering::WhenQuiet);
        assert_eq!(on(350_000_000, 200_000_000, 170_000_000), Clustering::Rest);
    }
}
