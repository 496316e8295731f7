//! The queue of leaves that need something, and the threads that work on it.
//!
//! A leaf enters the queue when it changed **and** is out of its bounds; nothing else is ever visited, so the cost follows the change. Threads
//! start at the first need and run at low priority: searches and writes come first. When they can't keep up, writers lend a hand
//! ([`Balancer::help`]).

use std::collections::{HashSet, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};

use super::moves::move_rows;
use super::plan::{ATTEMPTS, Action, Clustering, action, clustering, target_size};
use super::{cluster, inner, refresh, split};
use crate::cancel::Task;
use crate::error::{Error, Result};
use crate::ids::LeafId;
use crate::tree::store::Store;

/// How often a waiting caller looks at its task.
const PATIENCE: Duration = Duration::from_millis(20);
/// Nobody writes: so long after the last write.
const QUIET: Duration = Duration::from_secs(1);

/// What balancing has done so far.
#[derive(Debug, Default)]
pub struct Counters {
    /// Leaves split.
    pub splits: AtomicU64,
    /// Leaves merged.
    pub merges: AtomicU64,
    /// Rows moved after splits.
    pub reassigned: AtomicU64,
    /// Centroids replaced.
    pub refreshed: AtomicU64,
    /// Times the whole tree was clustered.
    pub clusterings: AtomicU64,
    /// Nanoseconds of work, over all threads.
    pub work: AtomicU64,
}

/// The queue and its threads.
#[derive(Debug)]
pub struct Balancer {
    shared: Arc<Shared>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    count: usize,
}

#[derive(Debug)]
struct Shared {
    store: Arc<Store>,
    queue: Mutex<Queue>,
    changed: Condvar,
    counters: Counters,
    /// Cancelled when the index is closed.
    task: Arc<Task>,
    /// Rows looked at by jobs that are done.
    finished: AtomicU64,
    pool: OnceLock<Option<rayon::ThreadPool>>,
    threads: usize,
}

#[derive(Debug)]
struct Queue {
    waiting: VecDeque<LeafId>,
    known: HashSet<LeafId>,
    running: usize,
    /// What the whole tree needs.
    wanted: Clustering,
    /// The clustering at work.
    clustering: Option<Arc<Task>>,
    /// When something was last written.
    written: Instant,
    /// Callers who wait for a balanced tree.
    waiters: usize,
    stopped: bool,
    failure: Option<Error>,
}

#[derive(Debug)]
enum Job {
    Leaf(LeafId),
    Cluster(Arc<Task>),
}

impl Queue {
    fn new() -> Self {
        Self {
            waiting: VecDeque::new(),
            known: HashSet::new(),
            running: 0,
            wanted: Clustering::Rest,
            clustering: None,
            written: Instant::now(),
            waiters: 0,
            stopped: false,
            failure: None,
        }
    }

    /// What to do next; `task` ends it.
    fn next(&mut self, task: &Arc<Task>) -> Option<Job> {
        if self.clustering.is_some() {
            // It replaces every leaf.
            return None;
        }
        let may_cluster = match self.wanted {
            Clustering::Rest => false,
            Clustering::WhenQuiet => self.waiting.is_empty() && self.running == 0 && self.is_quiet(),
            Clustering::Now => true,
        };
        if may_cluster {
            let task = Arc::new(Task::child(task));
            (self.wanted, self.clustering) = (Clustering::Rest, Some(task.clone()));
            self.running += 1;
            return Some(Job::Cluster(task));
        }
        let id = self.waiting.pop_front()?;
        self.known.remove(&id);
        self.running += 1;
        Some(Job::Leaf(id))
    }

    fn is_quiet(&self) -> bool {
        self.waiters > 0 || self.written.elapsed() >= QUIET
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0 && self.wanted == Clustering::Rest
    }
}

impl Balancer {
    /// A balancer of `store`, without threads yet.
    pub fn new(store: Arc<Store>, threads: usize, background: bool) -> Self {
        let shared = Shared {
            store,
            queue: Mutex::new(Queue::new()),
            changed: Condvar::new(),
            counters: Counters::default(),
            task: Arc::default(),
            finished: AtomicU64::new(0),
            pool: OnceLock::new(),
            threads,
        };
        Self { shared: Arc::new(shared), threads: Mutex::default(), count: if background { threads } else { 0 } }
    }

    /// Takes note of leaves that changed.
    pub fn note(&self, touched: &[LeafId]) -> Result<()> {
        self.shared.queue.lock().written = Instant::now();
        if self.shared.note(touched) { self.start_threads() } else { Ok(()) }
    }

    /// Works on a few leaves when the queue has grown long: `rows` were just written by this thread.
    pub fn help(&self, rows: usize) -> Result<()> {
        let long = 64 + self.shared.store.view().leaves.len() / 8;
        for _ in 0..rows.div_ceil(64) {
            let job = {
                let mut queue = self.shared.queue.lock();
                if queue.waiting.len() < long || queue.wanted == Clustering::Now { None } else { queue.next(&self.shared.task) }
            };
            let Some(job) = job else { break };
            self.shared.run(job);
        }
        Ok(())
    }

    /// Waits until nothing is left to do; without background threads, does it. The task counts rows that are looked at.
    pub fn balance(&self, task: &Task) -> Result<()> {
        self.shared.queue.lock().waiters += 1;
        self.shared.changed.notify_all();
        let done = self.wait(task);
        self.shared.queue.lock().waiters -= 1;
        done?;
        self.shared.queue.lock().failure.take().map_or(Ok(()), Err)
    }

    fn wait(&self, task: &Task) -> Result<()> {
        let before = self.shared.finished.load(Ordering::Relaxed);
        loop {
            task.check()?;
            let (done, left) = self.shared.progress();
            task.report(done - before, done - before + left);
            if self.count == 0 {
                let job = self.shared.queue.lock().next(&self.shared.task);
                match job {
                    Some(job) => self.shared.run(job),
                    None => return Ok(()),
                }
            } else {
                let mut queue = self.shared.queue.lock();
                if queue.is_idle() || queue.stopped {
                    return Ok(());
                }
                self.shared.changed.wait_for(&mut queue, PATIENCE);
            }
        }
    }

    /// Leaves in the queue or at work.
    pub fn backlog(&self) -> usize {
        let queue = self.shared.queue.lock();
        queue.waiting.len() + queue.running + usize::from(queue.wanted == Clustering::Now)
    }

    /// What was done.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Ends the threads, after the action that each is at. In a forked child, where there are none, `join` is false.
    pub fn stop(&self, join: bool) {
        self.shared.task.cancel();
        if !join {
            return;
        }
        self.shared.queue.lock().stopped = true;
        self.shared.changed.notify_all();
        for thread in self.threads.lock().drain(..) {
            // A thread's panic was caught and noted already.
            let _ = thread.join();
        }
    }

    fn start_threads(&self) -> Result<()> {
        let mut threads = self.threads.lock();
        while threads.len() < self.count {
            let shared = self.shared.clone();
            let builder = std::thread::Builder::new().name("sapwood-balance".into()).stack_size(STACK);
            let thread = builder.spawn(move || shared.work());
            threads.push(thread.map_err(|error| Error::System(format!("can't start a balancing thread: {error}")))?);
        }
        Ok(())
    }
}

impl Drop for Balancer {
    fn drop(&mut self) {
        self.stop(std::process::id() == self.shared.owner());
    }
}

/// Stack of a thread, stated since some systems give little.
pub const STACK: usize = 4 << 20;

impl Shared {
    fn owner(&self) -> u32 {
        self.store.owner
    }

    /// True if there is work now.
    fn note(&self, touched: &[LeafId]) -> bool {
        let store = &self.store;
        let snapshot = store.view();
        let wanting: Vec<LeafId> = touched
            .iter()
            .copied()
            .filter(|&id| {
                let leaf = snapshot.leaf(id);
                leaf.is_some_and(|leaf| action(leaf.len(), leaf.care, snapshot.leaves.len(), &store.params) != Action::Rest)
            })
            .collect();
        let (clustered, added) = store.look(|state, _| (state.clustered_rows, state.added_since));
        let wanted = clustering(snapshot.rows, clustered, added, &store.params);
        let mut queue = self.queue.lock();
        if queue.clustering.is_none() {
            queue.wanted = wanted;
        }
        for id in wanting {
            if queue.known.insert(id) {
                queue.waiting.push_back(id);
            }
        }
        let work = queue.wanted != Clustering::Rest || !queue.waiting.is_empty();
        if work {
            self.changed.notify_all();
        }
        work
    }

    fn work(self: Arc<Self>) {
        lower_priority(BALANCING);
        loop {
            let job = {
                let mut queue = self.queue.lock();
                loop {
                    if queue.stopped {
                        return;
                    }
                    match queue.next(&self.task) {
                        Some(job) => break job,
                        None if queue.wanted == Clustering::WhenQuiet => drop(self.changed.wait_for(&mut queue, QUIET)),
                        None => self.changed.wait(&mut queue),
                    }
                }
            };
            self.run(job);
        }
    }

    /// Rows looked at so far, and those still to be looked at: an estimate, since a split may call for another.
    fn progress(&self) -> (u64, u64) {
        let params = &self.store.params;
        let queue = self.queue.lock();
        let (done, total) = queue.clustering.as_ref().map_or((0, 0), |task| task.progress());
        let wanted = if queue.wanted == Clustering::Rest { 0 } else { cluster::visits(self.store.view().rows, params) };
        let waiting = queue.waiting.len() * target_size(params);
        (self.finished.load(Ordering::Relaxed) + done, total - done + (wanted + waiting) as u64)
    }

    /// Does a job, and takes note of what it changed.
    fn run(&self, job: Job) {
        let start = Instant::now();
        // A panic in here is a defect; it must not leave callers of `balance` waiting for ever.
        let done = catch_unwind(AssertUnwindSafe(|| self.act(&job)));
        self.counters.work.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let done = done.unwrap_or_else(|_| Err(Error::System("balancing stopped at a defect; please report it".into())));
        let visits = match &job {
            Job::Cluster(task) => {
                self.queue.lock().clustering = None;
                task.progress().1
            }
            Job::Leaf(_) => target_size(&self.store.params) as u64,
        };
        self.finished.fetch_add(visits, Ordering::Relaxed);
        // What it changed is noted before it counts as done, so that the queue is never idle in between. After a failure nothing is:
        // the next write tries again.
        match done {
            Ok(touched) => drop(self.note(&touched)),
            Err(Error::Cancelled) => {}
            Err(error) => self.queue.lock().failure = Some(error),
        }
        self.queue.lock().running -= 1;
        self.changed.notify_all();
    }

    fn act(&self, job: &Job) -> Result<Vec<LeafId>> {
        let (store, counters) = (&*self.store, &self.counters);
        let id = match job {
            Job::Cluster(task) => {
                let touched = self.cluster(task)?;
                counters.clusterings.fetch_add(1, Ordering::Relaxed);
                return Ok(touched);
            }
            Job::Leaf(id) => *id,
        };
        let snapshot = store.snapshot();
        let Some(leaf) = snapshot.leaf(id) else { return Ok(Vec::new()) };
        match action(leaf.len(), leaf.care, snapshot.leaves.len(), &store.params) {
            Action::Rest => Ok(Vec::new()),
            Action::Split(ways) => {
                let split = split::split(store, id, ways, &self.task)?;
                if split.leaves.is_empty() {
                    return Ok(vec![id]);
                }
                counters.splits.fetch_add(1, Ordering::Relaxed);
                counters.reassigned.fetch_add(split.reassigned as u64, Ordering::Relaxed);
                inner::tend(store, split.parent, &self.task)?;
                Ok(split.touched)
            }
            Action::Merge => {
                let parent = store.edit().leaf_parent(id);
                let moved = move_rows(store, store.whole(leaf)?.rows().collect(), id, &self.task)?;
                counters.merges.fetch_add(1, Ordering::Relaxed);
                inner::tend(store, parent, &self.task)?;
                Ok(moved.touched)
            }
            Action::Refresh => {
                let replaced = refresh::refresh(store, id)?;
                counters.refreshed.fetch_add(u64::from(replaced), Ordering::Relaxed);
                Ok(vec![id])
            }
        }
    }

    fn cluster(&self, task: &Task) -> Result<Vec<LeafId>> {
        let pool = self.pool.get_or_init(|| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(self.threads).stack_size(STACK);
            builder.thread_name(|i| format!("sapwood-cluster-{i}")).start_handler(|_| lower_priority(BALANCING)).build().ok()
        });
        match pool {
            Some(pool) => pool.install(|| cluster::cluster(&self.store, task)),
            None => cluster::cluster(&self.store, task),
        }
    }

    /// Leaves of the present snapshot that were given up.
    fn given_up(&self) -> usize {
        self.store.view().leaves.iter().filter(|(_, leaf)| leaf.care.attempts >= ATTEMPTS).count()
    }
}

impl Balancer {
    /// Leaves that were left alone after too many fruitless attempts.
    pub fn given_up(&self) -> usize {
        self.shared.given_up()
    }
}

/// Lets this thread give way to others: `niceness` from 1 (a little) to 19 (it runs where others leave time). A refusal costs only
/// smoothness.
pub fn lower_priority(niceness: i32) {
    #[cfg(target_os = "linux")]
    let _ = rustix::process::setpriority_process(Some(rustix::thread::gettid()), niceness);
    #[cfg(not(target_os = "linux"))]
    let _ = niceness;
}

/// Balancing can wait.
const BALANCING: i32 = 19;
