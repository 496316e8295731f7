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
use super::plan::{ATTEMPTS, Action, action, wants_clustering};
use super::{cluster, inner, refresh, split};
use crate::cancel::Task;
use crate::error::{Error, Result};
use crate::ids::LeafId;
use crate::tree::store::Store;

/// How often a waiting caller looks at its task.
const PATIENCE: Duration = Duration::from_millis(20);

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
    task: Task,
    pool: OnceLock<Option<rayon::ThreadPool>>,
    threads: usize,
}

#[derive(Debug, Default)]
struct Queue {
    waiting: VecDeque<LeafId>,
    known: HashSet<LeafId>,
    running: usize,
    cluster_wanted: bool,
    clustering: bool,
    stopped: bool,
    failure: Option<Error>,
}

#[derive(Debug, Clone, Copy)]
enum Job {
    Leaf(LeafId),
    Cluster,
}

impl Queue {
    fn next(&mut self) -> Option<Job> {
        if self.clustering {
            // It replaces every leaf.
            return None;
        }
        if self.cluster_wanted {
            (self.cluster_wanted, self.clustering) = (false, true);
            self.running += 1;
            return Some(Job::Cluster);
        }
        let id = self.waiting.pop_front()?;
        self.known.remove(&id);
        self.running += 1;
        Some(Job::Leaf(id))
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.running == 0 && !self.cluster_wanted
    }
}

impl Balancer {
    /// A balancer of `store`, without threads yet.
    pub fn new(store: Arc<Store>, threads: usize, background: bool) -> Self {
        let shared = Shared {
            store,
            queue: Mutex::default(),
            changed: Condvar::new(),
            counters: Counters::default(),
            task: Task::new(),
            pool: OnceLock::new(),
            threads,
        };
        Self { shared: Arc::new(shared), threads: Mutex::default(), count: if background { threads } else { 0 } }
    }

    /// Takes note of leaves that changed.
    pub fn note(&self, touched: &[LeafId]) -> Result<()> {
        if self.shared.note(touched) { self.start_threads() } else { Ok(()) }
    }

    /// Works on a few leaves when the queue has grown long: `rows` were just written by this thread.
    pub fn help(&self, rows: usize) -> Result<()> {
        let long = 64 + self.shared.store.view().leaves.len() / 8;
        for _ in 0..rows.div_ceil(64) {
            let job = {
                let mut queue = self.shared.queue.lock();
                if queue.waiting.len() < long || queue.cluster_wanted { None } else { queue.next() }
            };
            let Some(job) = job else { break };
            self.shared.run(job);
        }
        Ok(())
    }

    /// Waits until nothing is left to do; without background threads, does it.
    pub fn balance(&self, task: &Task) -> Result<()> {
        loop {
            task.check()?;
            if self.count == 0 {
                let job = self.shared.queue.lock().next();
                match job {
                    Some(job) => self.shared.run(job),
                    None => break,
                }
            } else {
                let mut queue = self.shared.queue.lock();
                if queue.is_idle() || queue.stopped {
                    break;
                }
                self.shared.changed.wait_for(&mut queue, PATIENCE);
            }
        }
        self.shared.queue.lock().failure.take().map_or(Ok(()), Err)
    }

    /// Leaves in the queue or at work.
    pub fn backlog(&self) -> usize {
        let queue = self.shared.queue.lock();
        queue.waiting.len() + queue.running + usize::from(queue.cluster_wanted)
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
        let cluster = wants_clustering(snapshot.rows, clustered, added, &store.params);
        let mut queue = self.queue.lock();
        if cluster && !queue.clustering {
            queue.cluster_wanted = true;
        }
        for id in wanting {
            if queue.known.insert(id) {
                queue.waiting.push_back(id);
            }
        }
        let work = queue.cluster_wanted || !queue.waiting.is_empty();
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
                    match queue.next() {
                        Some(job) => break job,
                        None => self.changed.wait(&mut queue),
                    }
                }
            };
            self.run(job);
        }
    }

    /// Does a job, and takes note of what it changed.
    fn run(&self, job: Job) {
        let start = Instant::now();
        // A panic in here is a defect; it must not leave callers of `balance` waiting for ever.
        let done = catch_unwind(AssertUnwindSafe(|| self.act(job)));
        self.counters.work.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
        let done = done.unwrap_or_else(|_| Err(Error::System("balancing stopped at a defect; please report it".into())));
        if let Job::Cluster = job {
            self.queue.lock().clustering = false;
        }
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

    fn act(&self, job: Job) -> Result<Vec<LeafId>> {
        let (store, counters) = (&*self.store, &self.counters);
        let id = match job {
            Job::Cluster => {
                let touched = self.cluster()?;
                counters.clusterings.fetch_add(1, Ordering::Relaxed);
                return Ok(touched);
            }
            Job::Leaf(id) => id,
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
                let moved = move_rows(store, leaf.rows().collect(), id, &self.task)?;
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

    fn cluster(&self) -> Result<Vec<LeafId>> {
        let pool = self.pool.get_or_init(|| {
            let builder = rayon::ThreadPoolBuilder::new().num_threads(self.threads).stack_size(STACK);
            builder.thread_name(|i| format!("sapwood-cluster-{i}")).start_handler(|_| lower_priority(BALANCING)).build().ok()
        });
        match pool {
            Some(pool) => pool.install(|| cluster::cluster(&self.store, &self.task)),
            None => cluster::cluster(&self.store, &self.task),
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
