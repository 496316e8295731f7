//! What was read from disk, for as long as there is room: one budget in bytes for posting lists and pages of vectors.

use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use quick_cache::sync::{Cache as Inner, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};

use crate::error::Result;

/// A place in a file: the file's kind and number, and the offset.
pub type Key = (Kind, u32, u64);

/// What kind of file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A segment.
    Segment,
    /// A file of vectors.
    Vectors,
}

#[derive(Debug, Clone)]
struct Entry {
    value: Arc<dyn Any + Send + Sync>,
    bytes: u64,
}

/// Bytes that are set aside at most.
const ASIDE: u64 = 8 << 20;

#[derive(Debug, Clone)]
struct Bytes;

impl Weighter<Key, Entry> for Bytes {
    fn weight(&self, _: &Key, entry: &Entry) -> u64 {
        // Keys, counts and the bookkeeping of the cache count too, and what allocators lose: with all of that a process stays within the
        // room that was asked for.
        (entry.bytes + 160) * 9 / 8
    }
}

/// The cache. Values are shared: one that is dropped from the cache lives on while somebody uses it.
#[derive(Debug)]
pub struct Cache {
    inner: Inner<Key, Entry, Bytes>,
    capacity: u64,
    read: [AtomicU64; 2],
    nanoseconds: [AtomicU64; 2],
    loads: AtomicU64,
    hits: AtomicU64,
}

impl Cache {
    /// A cache of `capacity` bytes. A part is set aside for what searches need beside their values, so that a reader keeps to what it was given.
    pub fn new(capacity: u64) -> Self {
        let bytes = capacity - (capacity / 8).min(ASIDE);
        let items = (bytes / 4096).clamp(64, 1 << 20) as usize;
        let (read, nanoseconds, loads, hits) = Default::default();
        // Keys of what was dropped are remembered for a while, a tenth as many as there are entries: each takes as much room as an entry's.
        let options = OptionsBuilder::new().estimated_items_capacity(items).weight_capacity(bytes).ghost_allocation(0.1).build();
        let inner = match options {
            Ok(options) => Inner::with_options(options, Bytes, DefaultHashBuilder::default(), DefaultLifecycle::default()),
            Err(_) => Inner::with_weighter(items, bytes, Bytes),
        };
        Self { inner, capacity, read, nanoseconds, loads, hits }
    }

    /// The value of `key`. `load` makes it where it isn't there; it says how many bytes it read and how many the value takes.
    pub fn get<T: Send + Sync + 'static>(&self, key: Key, load: impl FnOnce() -> Result<(T, u64, u64)>) -> Result<Arc<T>> {
        if let Some(entry) = self.inner.get(&key)
            && let Ok(value) = entry.value.downcast::<T>()
        {
            self.hits.fetch_add(1, Ordering::Relaxed);
            return Ok(value);
        }
        let began = Instant::now();
        let (value, read, bytes) = load()?;
        self.nanoseconds[key.0 as usize].fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        self.loads.fetch_add(1, Ordering::Relaxed);
        self.read[key.0 as usize].fetch_add(read, Ordering::Relaxed);
        let value = Arc::new(value);
        self.inner.insert(key, Entry { value: value.clone(), bytes });
        Ok(value)
    }

    /// Forgets the value of `key`.
    pub fn remove(&self, key: &Key) {
        self.inner.remove(key);
    }

    /// Empties it.
    pub fn clear(&self) {
        self.inner.clear();
    }

    /// Bytes that the values take.
    pub fn bytes(&self) -> u64 {
        self.inner.weight()
    }

    /// Room, in bytes.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes read so far from files of a kind.
    pub fn read(&self, kind: Kind) -> u64 {
        self.read[kind as usize].load(Ordering::Relaxed)
    }

    /// Seconds spent so far on reading and decoding from files of a kind, over all threads.
    pub fn seconds(&self, kind: Kind) -> f64 {
        Duration::from_nanos(self.nanoseconds[kind as usize].load(Ordering::Relaxed)).as_secs_f64()
    }

    /// Loads, and lookups that needed none.
    pub fn counts(&self) -> (u64, u64) {
        (self.loads.load(Ordering::Relaxed), self.hits.load(Ordering::Relaxed))
    }
}
