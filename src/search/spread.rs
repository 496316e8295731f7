//! One query over several threads, where it is large: a wide beam, a filter that lets few rows pass, thousands of neighbours.
//!
//! The problem: who asks one question at a time has one core at work; but an answer should not depend on how many worked on it.
//! The rule of use: [`Searcher::with_team`] gives a searcher threads to share work with. The leaves are dealt out in turn, each thread scans its own
//! in their order, and what was met is taken in one after the other as if one thread had scanned them all.
//! The hazard: a thread knows no bound but that of its own leaves and the one from before, so it meets more; and what was scanned beyond where
//! a recall target ends was in vain. Therefore nothing small is shared. And a thread's bound may come from another meeting of a row, in the other of
//! its two leaves, than the one that counts: so where a bound is wrong, or where estimates decide, another row may be lost than with one thread.

use rayon::prelude::*;

use super::scan::{Candidate, Request, Searcher};
use super::topk::TopK;
use crate::error::Result;
use crate::tree::navigate::Choice;
use crate::tree::snapshot::Snapshot;

/// Threads to share a large query with.
#[derive(Clone, Copy)]
pub struct Team<'a> {
    /// How many may work on one query.
    pub threads: usize,
    /// Where they are, or nothing if the system gives none. They are started when they are asked for.
    pub pool: &'a (dyn Fn() -> Option<&'a rayon::ThreadPool> + Sync),
}

impl Team<'_> {
    /// What `work` makes of each number below `parts`, in their order.
    pub(super) fn share<T: Send>(&self, parts: usize, work: impl Fn(usize) -> Result<T> + Sync + Send) -> Result<Vec<T>> {
        match (self.pool)() {
            Some(pool) => pool.install(|| (0..parts).into_par_iter().map(work).collect()),
            None => (0..parts).map(work).collect(),
        }
    }
}

/// Codes from which on a scan is shared: to wake threads takes as long as to scan some thousand. Tests share almost every scan.
const SHARED_CODES: usize = if cfg!(test) { 1 << 8 } else { 1 << 16 };

/// What a thread met in its leaves.
struct Share {
    candidates: Vec<Candidate>,
    refused: Vec<(u32, u32)>,
    scanned: u64,
}

impl<'a> Searcher<'a> {
    /// The same with threads that help where a query is large.
    pub fn with_team(self, team: Team<'a>) -> Self {
        Self { team: Some(team).filter(|team| team.threads > 1), ..self }
    }

    /// The team, if so many leaves are worth it. Not where a recall target may end the search before the end of leaves that are read from disk: a
    /// read in vain costs more than reads that wait for each other.
    pub(super) fn team_for(&self, snapshot: &Snapshot, leaves: usize) -> Option<Team<'a>> {
        let postings = snapshot.rows * (1 + self.store.params.spill);
        let codes = leaves.saturating_mul(postings / snapshot.leaves.len().max(1));
        let reads_in_vain = self.front.is_some() && self.store.source.is_some();
        self.team.filter(|_| codes >= SHARED_CODES && !reads_in_vain)
    }

    /// As [`Searcher::scan_leaves`] does, with a team.
    pub(super) fn scan_shared(
        &mut self,
        team: Team<'a>,
        snapshot: &Snapshot,
        choices: &[Choice<'_>],
        request: &Request<'_>,
        nearest: &mut TopK,
    ) -> Result<bool> {
        let ceiling = nearest.worst().min(self.ceiling);
        let this = &*self;
        let share = |first: usize| {
            let dealt: Vec<Choice<'_>> = choices.iter().skip(first).step_by(team.threads).copied().collect();
            this.scan_share(ceiling, snapshot, &dealt, request)
        };
        let shares = team.share(team.threads, share)?;
        self.cost.scanned += shares.iter().map(|share| share.scanned).sum::<u64>();
        let mut rest: Vec<_> = shares.iter().map(|share| (&share.candidates[..], &share.refused[..])).collect();
        for (number, choice) in choices.iter().enumerate() {
            if self.ends_at(choice.score) {
                return Ok(true);
            }
            let ((candidates, refused), place) = (&mut rest[number % team.threads], (number / team.threads) as u32);
            for (_, count) in take_while(refused, |(leaf, _)| *leaf <= place) {
                self.front.iter_mut().for_each(|front| front.refuse(*count));
            }
            for candidate in take_while(candidates, |candidate| candidate.leaf <= place) {
                if candidate.may_pass(nearest.worst().min(self.ceiling)) {
                    self.admit(candidate.estimate, candidate.lower, candidate.row, nearest);
                }
            }
        }
        Ok(false)
    }

    /// Scans one thread's leaves, for what may be below `ceiling`.
    fn scan_share(&self, ceiling: f32, snapshot: &Snapshot, dealt: &[Choice<'_>], request: &Request<'_>) -> Result<Share> {
        let mut helper = Searcher { ceiling, helps: true, ..Searcher::aimed(self.store, self.target.clone()) };
        helper.seen.clear();
        helper.scan_leaves(snapshot, dealt, request, &mut request.selector())?;
        Ok(Share { candidates: helper.candidates, refused: helper.refused, scanned: helper.cost.scanned })
    }
}

/// Takes the first items for which `taken` holds off `rest`.
fn take_while<'s, T>(rest: &mut &'s [T], taken: impl Fn(&T) -> bool) -> &'s [T] {
    let end = rest.iter().position(|item| !taken(item)).unwrap_or(rest.len());
    let (first, others) = rest.split_at(end);
    *rest = others;
    first
}
