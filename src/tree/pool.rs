//! Memory for blocks: shared, counted slots of one size.
//!
//! The problem: blocks come and go by the thousand, from all threads, and are read at random. A general allocator scatters them over small
//! pages, rounds their size up and keeps what they leave behind: measured at 200,000 rows of 384 values, half as much memory again as they
//! need, and a tenth of a search's time in misses of the translation cache.
//! Slots are taken from the newest slab that has any, and slabs of which no slot is in use go back to the system: what a tree that was
//! replaced leaves behind, or rows that were removed, is not kept.
//! The rule of use: a slot is written through [`Slot::make_mut`] only, which copies it first while others share it.
//! The hazard: a slot's memory is used again as soon as its last owner is gone; whoever reads it holds a [`Slot`].
#![allow(unsafe_code)]

use std::alloc::{Layout, handle_alloc_error};
use std::collections::BTreeSet;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering, fence};

use memmap2::MmapMut;
use parking_lot::Mutex;

/// Bytes of a cache line: a slot's alignment, and the room for its count.
pub const LINE: usize = 64;
/// Slots of the first slab; each further one is twice as large, up to [`LARGEST`].
const FIRST: usize = 16;
/// Bytes of a slab at most, rounded to whole slots, where nothing else is said.
const LARGEST: usize = 4 << 20;

/// Where slots come from. All have the same size.
#[derive(Debug)]
pub struct Pool {
    /// Bytes of a slot's content, a multiple of [`LINE`].
    content: usize,
    /// Bytes of a slab at most.
    largest: usize,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    /// By number; numbers of slabs that went back are used again.
    slabs: Vec<Option<Slab>>,
    /// The numbers of all slabs with a free slot, and of some without.
    open: BTreeSet<u32>,
    /// A slab that was kept when it fell free, so that one slot's coming and going doesn't map and unmap.
    spare: Option<u32>,
}

#[derive(Debug)]
struct Slab {
    /// Keeps the memory mapped.
    _map: MmapMut,
    slots: usize,
    free: Vec<Address>,
}

impl Slab {
    fn is_unused(&self) -> bool {
        self.free.len() == self.slots
    }
}

/// The start of a slot: its [`Header`], one line long, then its content.
#[derive(Debug, Clone, Copy)]
struct Address(NonNull<u8>);

#[derive(Debug)]
struct Header {
    /// Owners.
    count: AtomicU32,
    /// Number of its slab.
    slab: u32,
}

// SAFETY: an address is only a number here; what may be done with the memory is up to the slot that owns it.
unsafe impl Send for Address {}

impl Pool {
    /// A pool of slots of `content` bytes, a multiple of [`LINE`].
    pub fn new(content: usize) -> Arc<Self> {
        Self::with_slabs(content, LARGEST)
    }

    /// The same, with slabs of at most `largest` bytes: where a few unused megabytes matter more than large pages do.
    pub fn with_slabs(content: usize, largest: usize) -> Arc<Self> {
        debug_assert!(content.is_multiple_of(LINE) && content > 0);
        Arc::new(Self { content, largest, memory: Mutex::default() })
    }

    /// Bytes that a slot takes.
    pub fn slot_bytes(&self) -> usize {
        LINE + self.content
    }

    /// A free slot and the number of its slab.
    fn take(&self) -> (Address, u32) {
        let mut memory = self.memory.lock();
        loop {
            let Some(&number) = memory.open.last() else {
                self.map_slab(&mut memory);
                continue;
            };
            match memory.slabs[number as usize].as_mut().and_then(|slab| slab.free.pop()) {
                Some(address) => return (address, number),
                None => memory.open.remove(&number),
            };
        }
    }

    fn give_back(&self, address: Address, number: u32) {
        let mut memory = self.memory.lock();
        let Some(slab) = memory.slabs.get_mut(number as usize).and_then(Option::as_mut) else { return };
        slab.free.push(address);
        let unused = slab.is_unused();
        memory.open.insert(number);
        if !unused {
            return;
        }
        let spare = memory.spare.filter(|&spare| spare != number).and_then(|spare| memory.slabs[spare as usize].as_ref());
        if spare.is_none_or(|spare| !spare.is_unused()) {
            memory.spare = Some(number);
            return;
        }
        memory.open.remove(&number);
        let slab = memory.slabs[number as usize].take();
        // Unmapping takes long.
        drop(memory);
        drop(slab);
    }

    /// Maps a further slab. Without memory this ends the process, as it does wherever a vector grows.
    fn map_slab(&self, memory: &mut Memory) {
        let number = memory.slabs.iter().position(Option::is_none).unwrap_or(memory.slabs.len());
        let most = (self.largest / self.slot_bytes()).max(1);
        let slots = (FIRST << number.min(24)).min(most);
        let bytes = slots * self.slot_bytes();
        let Ok(mut map) = MmapMut::map_anon(bytes) else {
            handle_alloc_error(Layout::new::<[u8; LINE]>());
        };
        // Large pages are worth it where they are filled.
        #[cfg(target_os = "linux")]
        if bytes >= 2 << 20 {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
        let starts = map.chunks_exact_mut(self.slot_bytes()).rev();
        let free = starts.map(|slot| Address(NonNull::from(slot).cast())).collect();
        let slab = Some(Slab { _map: map, slots, free });
        match memory.slabs.get_mut(number) {
            Some(vacant) => *vacant = slab,
            None => memory.slabs.push(slab),
        }
        memory.open.insert(number as u32);
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
        let (address, slab) = pool.take();
        // SAFETY: the pool gives each address to one owner at a time; it is the start of `LINE + content` bytes, aligned to a line since
        // mappings are aligned to pages and slots are whole lines. The header is written before anybody else knows the slot.
        unsafe {
            address.0.cast::<Header>().write(Header { count: AtomicU32::new(1), slab });
            address.0.add(LINE).write_bytes(0, pool.content);
        }
        Self { address, pool: pool.clone() }
    }

    fn header(&self) -> &Header {
        // SAFETY: the first line holds the header, which was written when the slot was taken and lives as long as the slot.
        unsafe { self.address.0.cast::<Header>().as_ref() }
    }

    /// The content.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the content was initialised when the slot was taken, and is only changed through `make_mut`, which no borrow outlives.
        unsafe { std::slice::from_raw_parts(self.address.0.add(LINE).as_ptr(), self.pool.content) }
    }

    /// The content, to be changed; a copy of it where others share the slot.
    pub fn make_mut(&mut self) -> &mut [u8] {
        if self.header().count.load(Ordering::Acquire) != 1 {
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
        self.header().count.fetch_add(1, Ordering::Relaxed);
        Self { address: self.address, pool: self.pool.clone() }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if self.header().count.fetch_sub(1, Ordering::Release) == 1 {
            // Reads of the last owners come before the next owner's writes.
            fence(Ordering::Acquire);
            let slab = self.header().slab;
            self.pool.give_back(self.address, slab);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mapped(pool: &Pool) -> usize {
        pool.memory.lock().slabs.iter().flatten().count()
    }

    #[test]
    fn memory_goes_back_when_nothing_of_it_is_in_use() {
        let pool = Pool::new(64);
        let old: Vec<Slot> = (0..1000).map(|_| Slot::new(&pool)).collect();
        let new: Vec<Slot> = (0..100).map(|_| Slot::new(&pool)).collect();
        let before = mapped(&pool);
        drop(old);
        let after = mapped(&pool);
        assert!(after <= 3 && before > 5, "{before} slabs, then {after}");
        let again: Vec<Slot> = (0..1000).map(|_| Slot::new(&pool)).collect();
        assert!(mapped(&pool) <= before + 1);
        drop((new, again));
        assert_eq!(mapped(&pool), 1, "one is kept for the next slot");
    }

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
        assert!(mapped(&pool) <= 5);
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
