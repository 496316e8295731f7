//! Memory for blocks: shared, counted slots of one size.
//!
//! The problem: blocks come and go by the thousand, from all threads, and are read at random. A general allocator scatters them over small
//! pages, rounds their size up and keeps what they leave behind: measured at 200,000 rows of 384 values, half as much memory again as they
//! need, and a tenth of a search's time in misses of the translation cache.
//! The rule of use: a slot is written through [`Slot::make_mut`] only, which copies it first while others share it.
//! The hazard: a slot's memory is used again as soon as its last owner is gone; whoever reads it holds a [`Slot`].
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use memmap2::MmapMut;
use parking_lot::Mutex;

/// Bytes of a cache line: a slot's alignment, and the room for its count.
pub const LINE: usize = 64;
/// Slots of the first slab; each further one is twice as large, up to [`LARGEST`].
const FIRST: usize = 16;
/// Bytes of a slab at most, rounded to whole slots.
const LARGEST: usize = 8 << 20;

/// Where slots come from. All have the same size.
#[derive(Debug)]
pub struct Pool {
    /// Bytes of a slot's content, a multiple of [`LINE`].
    content: usize,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    slabs: Vec<MmapMut>,
    free: Vec<Address>,
}

/// The start of a slot: its count, one line long, then its content.
#[derive(Debug, Clone, Copy)]
struct Address(NonNull<u8>);

// SAFETY: an address is only a number here; what may be done with the memory is up to the slot that owns it.
unsafe impl Send for Address {}

impl Pool {
    /// A pool of slots of `content` bytes, a multiple of [`LINE`].
    pub fn new(content: usize) -> Arc<Self> {
        debug_assert!(content.is_multiple_of(LINE) && content > 0);
        Arc::new(Self { content, memory: Mutex::default() })
    }

    /// Bytes that a slot takes.
    pub fn slot_bytes(&self) -> usize {
        LINE + self.content
    }

    fn take(&self) -> Address {
        let mut memory = self.memory.lock();
        loop {
            match memory.free.pop() {
                Some(address) => return address,
                None => self.map_slab(&mut memory),
            }
        }
    }

    /// Maps a further slab. Without memory this ends the process, as it does wherever a vector grows.
    fn map_slab(&self, memory: &mut Memory) {
        let most = (LARGEST / self.slot_bytes()).max(1);
        let count = (FIRST << memory.slabs.len().min(24)).min(most);
        let bytes = count * self.slot_bytes();
        let Ok(mut map) = MmapMut::map_anon(bytes) else {
            handle_alloc_error(Layout::new::<[u8; LINE]>());
        };
        // Large pages are worth it where they are filled.
        #[cfg(target_os = "linux")]
        if bytes >= 2 << 20 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let starts = map.chunks_exact_mut(self.slot_bytes()).rev();
        memory.free.extend(starts.map(|slot| Address(NonNull::from(slot).cast())));
        memory.slabs.push(map);
    }
}

/// One slot. A clone shares it until either is changed.
#[derive(Debug)]
pub struct Slot {
    address: Address,
    pool: Arc<Pool>,
}

// SAFETY: the content is only changed through `make_mut`, by the one owner there is then; the count is atomic.
unsafe impl Send for Slot {}
// SAFETY: as above: shared slots are only read.
unsafe impl Sync for Slot {}

impl Slot {
    /// A slot of zeros.
    pub fn new(pool: &Arc<Pool>) -> Self {
        let address = pool.take();
        // SAFETY: the pool gives each address to one owner at a time; it is the start of `LINE + content` bytes, aligned to a line since
        // mappings are aligned to pages and slots are whole lines. A fresh count is written before anybody else knows the slot.
        unsafe {
            address.0.cast::<AtomicU32>().write(AtomicU32::new(1));
            address.0.add(LINE).write_bytes(0, pool.content);
        }
        Self { address, pool: pool.clone() }
    }

    fn count(&self) -> &AtomicU32 {
        // SAFETY: the first line holds the count, which was written when the slot was taken and lives as long as the slot.
        unsafe { self.address.0.cast::<AtomicU32>().as_ref() }
    }

    /// The content.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the content was initialised when the slot was taken, and is only changed through `make_mut`, which no borrow outlives.
        unsafe { std::slice::from_raw_parts(self.address.0.add(LINE).as_ptr(), self.pool.content) }
    }

    /// The content, to be changed; a copy of it where others share the slot.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if self.count().load(Ordering::Acquire) != 1 {
            let copy = Slot::new(&self.pool);
            // SAFETY: both are contents of the same length; the copy has no other owner yet.
            unsafe { copy.address.0.add(LINE).copy_from_nonoverlapping(self.address.0.add(LINE), self.pool.content) };
            *self = copy;
        }
        // SAFETY: this is the only owner, and `self` is borrowed exclusively, so nobody else can read the slot or share it.
        unsafe { std::slice::from_raw_parts_mut(self.address.0.add(LINE).as_ptr(), self.pool.content) }
    }

    /// Where it comes from.
    pub fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }
}

impl Clone for Slot {
    fn clone(&self) -> Self {
        self.count().fetch_add(1, Ordering::Relaxed);
        Self { address: self.address, pool: self.pool.clone() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.count().fetch_sub(1, Ordering::Release) == 1 {
            // Reads of the last owners come before the next owner's writes.
            fence(Ordering::Acquire);
            self.pool.memory.lock().free.push(self.address);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shared_slot_is_copied_before_it_is_changed_and_memory_is_used_again() {
        let pool = Pool::new(128);
        for round in 0..50u8 {
            let mut slots: Vec<Slot> = (0..100).map(|_| Slot::new(&pool)).collect();
            for (i, slot) in slots.iter_mut().enumerate() {
                assert!(slot.bytes().iter().all(|&byte| byte == 0));
                assert_eq!(slot.bytes().as_ptr() as usize % LINE, 0);
                slot.make_mut().fill(i as u8 ^ round);
            }
            let shared = slots.clone();
            slots.iter_mut().for_each(|slot| slot.make_mut()[0] = 255);
            for (i, (changed, kept)) in slots.iter().zip(&shared).enumerate() {
                assert!(kept.bytes().iter().all(|&byte| byte == i as u8 ^ round));
                assert_eq!((changed.bytes()[0], changed.bytes()[1]), (255, i as u8 ^ round));
            }
        }
        assert!(pool.memory.lock().slabs.len() <= 5);
    }

    #[test]
    fn slots_come_and_go_from_many_threads() {
        let pool = Pool::new(64);
        std::thread::scope(|scope| {
            for thread in 0..4u8 {
                let pool = &pool;
                scope.spawn(move || {
                    let mut kept = Vec::new();
                    for i in 0..2_000usize {
                        let mut slot = Slot::new(pool);
                        slot.make_mut().fill(thread);
                        kept.push(slot.clone());
                        if i % 3 == 0 {
                            kept.swap_remove(i % kept.len());
                        }
                    }
                    assert!(kept.iter().all(|slot| slot.bytes().iter().all(|&byte| byte == thread)));
                });
            }
        });
    }
}
