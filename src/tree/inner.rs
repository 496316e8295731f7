//! An internal node: a partitioned index over the centroids below it.
//!
//! Children lie in blocks as rows do, coded by squared distance against the node's reference; beside each block the exact centroids (shared
//! with whoever else needs them) and their squared norms, from which an estimate of a distance becomes one of an inner product; and fine
//! codes, a quarter of the size of the centroids, by which the best are told apart.

use std::sync::Arc;

use super::Centroid;
use super::block::Block;
use super::leaf::lanes;
use super::pool::Pool;
use crate::kernel::{BLOCK, Kernels};
use crate::quantize::{Encoder, Form};

/// Number of a node: of a leaf or of an internal node, by the level of the node that lists it.
pub type NodeId = u32;

/// A child as its parent lists it.
#[derive(Debug, Clone)]
pub struct Child {
    /// Its number.
    pub id: NodeId,
    /// Its routing centroid, rotated.
    pub centroid: Centroid,
}

/// Up to 32 children.
#[derive(Debug, Clone)]
pub struct ChildBlock {
    /// Numbers, factors and codes.
    pub block: Block,
    /// What goes with the codes.
    pub facts: [Facts; BLOCK],
    /// The centroids, in the order of the block.
    pub centroids: Vec<Centroid>,
    /// What is coded of the centroids once more, a byte a value, child after child: `residual = scale * bytes`, within half a step of each.
    ///
    /// A step is a 127th of the largest value, so that the error of an inner product with a residual is about 1 % of a deviation of the
    /// product with a random direction: far less than the distances of the best children differ, and a twentieth of the error of a 1-bit
    /// code.
    fine: Vec<i8>,
}

/// What is known of a child beside its codes, together in one place: all that tells the best children apart is read at random.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(32))]
pub struct Facts {
    /// The child's number.
    pub id: NodeId,
    /// One step of its fine code.
    pub scale: f32,
    /// The squared length of its residual.
    pub square: f32,
    /// The squared norm of its centroid.
    pub norm: f32,
    /// One over the norm of its centroid; 0 for a zero centroid.
    pub inverse: f32,
}

impl ChildBlock {
    /// An empty block of a node with centroids of `padded` values.
    fn new(coder: &ChildCoder, padded: usize) -> Self {
        let (facts, fine) = ([Facts::default(); BLOCK], vec![0; BLOCK * padded]);
        Self { block: Block::new(&coder.pool), facts, centroids: Vec::with_capacity(BLOCK), fine }
    }

    /// A block of a node around `reference`, as it was written to disk.
    pub fn restored(coder: &ChildCoder, reference: &[f32], block: Block, centroids: Vec<Centroid>) -> Self {
        let mut restored = Self { block, ..Self::new(coder, reference.len()) };
        let mut residual = vec![0.0; reference.len()];
        for (place, centroid) in centroids.into_iter().enumerate() {
            let scale = coder.scale(&centroid);
            for ((r, x), c) in residual.iter_mut().zip(centroid.iter()).zip(reference) {
                *r = x * scale - c;
            }
            restored.place(coder, place, centroid, &residual);
        }
        restored
    }

    /// Sets everything but the block's entry of child `place`, which is in use or the first that isn't.
    fn place(&mut self, coder: &ChildCoder, place: usize, centroid: Centroid, residual: &[f32]) {
        let (dot, padded) = (coder.kernels.dot, residual.len());
        let norm = dot(&centroid, &centroid);
        let scale = largest(residual) / 127.0;
        let stretch = if scale > 0.0 { 1.0 / scale } else { 0.0 };
        for (byte, x) in self.fine[place * padded..(place + 1) * padded].iter_mut().zip(residual) {
            // Values too large or not numbers end at the ends of the range: such a child is as far as it gets, but it is found.
            *byte = nearest_whole(x * stretch) as i8;
        }
        let id = self.block.items()[place];
        self.facts[place] = Facts { id, scale, square: dot(residual, residual), norm, inverse: inverse_norm(norm) };
        match self.centroids.get_mut(place) {
            Some(there) => *there = centroid,
            None => self.centroids.push(centroid),
        }
    }

    /// The fine code of child `place`.
    #[inline]
    pub fn fine(&self, place: usize) -> &[i8] {
        let padded = self.fine.len() / BLOCK;
        &self.fine[place * padded..(place + 1) * padded]
    }

    /// Numbers of the children.
    pub fn items(&self) -> &[NodeId] {
        &self.block.items()[..self.centroids.len()]
    }

    /// The mask of entries in use.
    pub fn mask(&self) -> u32 {
        ((1u64 << self.centroids.len()) - 1) as u32
    }
}

/// An internal node. See the module's page.
#[derive(Debug, Clone)]
pub struct Inner {
    /// What the children are coded against (rotated).
    pub reference: Centroid,
    /// Children are leaves at level 1, nodes of level `level - 1` above.
    pub level: u32,
    blocks: Vec<Arc<ChildBlock>>,
}

/// How nodes encode their children.
#[derive(Debug, Clone)]
pub struct ChildCoder {
    /// The functions.
    pub kernels: &'static Kernels,
    /// Codes of [`Form::Distance`](crate::quantize::Form).
    pub encoder: Encoder,
    /// Whether children count by the direction of their centroids: then that is what is coded, and distances are in the order of angles.
    pub directions: bool,
    /// Memory for blocks.
    pub pool: Arc<Pool>,
}

impl ChildCoder {
    /// A coder of rotated centroids of `padded` values.
    pub fn new(kernels: &'static Kernels, padded: usize, directions: bool) -> Self {
        let encoder = Encoder::new(kernels, Form::Distance, padded);
        Self { kernels, encoder, directions, pool: Block::pool(encoder.code_bytes()) }
    }

    /// What a centroid is multiplied by before it is coded.
    fn scale(&self, centroid: &[f32]) -> f32 {
        let inverse = inverse_norm((self.kernels.dot)(centroid, centroid));
        if self.directions && inverse > 0.0 { inverse } else { 1.0 }
    }

    /// What is coded of a centroid.
    fn coded(&self, centroid: &[f32]) -> Vec<f32> {
        let scale = self.scale(centroid);
        centroid.iter().map(|x| x * scale).collect()
    }
}

impl Inner {
    /// A node of `children`, coded against their mean.
    pub fn new(coder: &ChildCoder, level: u32, children: &[Child], padded: usize) -> Self {
        let coded: Vec<Vec<f32>> = children.iter().map(|child| coder.coded(&child.centroid)).collect();
        let reference = mean(coded.iter().map(Vec::as_slice), padded).into();
        let mut node = Self { reference, level, blocks: Vec::with_capacity(children.len().div_ceil(BLOCK)) };
        node.extend(coder, children);
        node
    }

    /// A node of blocks, all but the last of which are full.
    pub fn of_blocks(reference: Centroid, level: u32, blocks: Vec<Arc<ChildBlock>>) -> Self {
        Self { reference, level, blocks }
    }

    /// The number of children.
    pub fn len(&self) -> usize {
        self.blocks.last().map_or(0, |last| (self.blocks.len() - 1) * BLOCK + last.centroids.len())
    }

    /// True without children.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The blocks of children.
    pub fn blocks(&self) -> &[Arc<ChildBlock>] {
        &self.blocks
    }

    /// All children.
    pub fn children(&self) -> impl Iterator<Item = Child> + '_ {
        self.blocks.iter().flat_map(|block| {
            block.centroids.iter().zip(block.block.items()).map(|(centroid, &id)| Child { id, centroid: centroid.clone() })
        })
    }

    /// Bytes in memory, the shared centroids included.
    pub fn bytes(&self) -> usize {
        let one = |block: &Arc<ChildBlock>| {
            let centroids: usize = block.centroids.iter().map(|centroid| size_of_val::<[f32]>(centroid)).sum();
            block.block.bytes()
                + centroids
                + block.fine.len()
                + size_of::<ChildBlock>()
                + block.centroids.capacity() * size_of::<Centroid>()
        };
        self.blocks.iter().map(one).sum::<usize>() + size_of::<Self>()
    }

    /// This node with `gone` replaced by `new` (either may be empty). Only the blocks that change are copied: the last children move to the
    /// places that become free.
    pub fn replaced(&self, coder: &ChildCoder, gone: &[NodeId], new: &[Child]) -> Inner {
        let mut node = self.clone();
        let mut new = new.iter();
        for &id in gone {
            let Some(place) = node.position(id) else { continue };
            match new.next() {
                Some(child) => node.put(coder, place, child),
                None => node.fill_gap(coder, place),
            }
        }
        node.extend(coder, new.as_slice());
        node
    }

    /// This node with another centroid for child `id`.
    pub fn moved(&self, coder: &ChildCoder, id: NodeId, centroid: Centroid) -> Inner {
        self.replaced(coder, &[id], &[Child { id, centroid }])
    }

    /// The centroid of child `id`.
    pub fn centroid_of(&self, id: NodeId) -> Option<&Centroid> {
        self.position(id).map(|place| &self.blocks[place / BLOCK].centroids[place % BLOCK])
    }

    fn position(&self, id: NodeId) -> Option<usize> {
        self.blocks.iter().enumerate().find_map(|(i, block)| {
            let items = &block.block.items()[..block.centroids.len()];
            items.iter().position(|&item| item == id).map(|place| i * BLOCK + place)
        })
    }

    fn put(&mut self, coder: &ChildCoder, place: usize, child: &Child) {
        let mut residual = vec![0.0; child.centroid.len()];
        let mut bits = vec![0; coder.encoder.code_bytes()];
        let factors = coder.encoder.encode(&coder.coded(&child.centroid), &self.reference, &mut residual, &mut bits);
        let block = Arc::make_mut(&mut self.blocks[place / BLOCK]);
        let place = place % BLOCK;
        block.block.put(place, child.id, factors, &bits);
        block.place(coder, place, child.centroid.clone(), &residual);
    }

    fn fill_gap(&mut self, coder: &ChildCoder, place: usize) {
        let Some(last) = self.children_of_last().pop() else { return };
        let end = self.len() - 1;
        if place != end {
            self.put(coder, place, &last);
        }
        if end.is_multiple_of(BLOCK) {
            self.blocks.pop();
        } else if let Some(block) = self.blocks.last_mut() {
            Arc::make_mut(block).centroids.pop();
        }
    }

    fn children_of_last(&self) -> Vec<Child> {
        let Some(block) = self.blocks.last() else { return Vec::new() };
        lanes(block.mask()).map(|i| Child { id: block.block.items()[i], centroid: block.centroids[i].clone() }).collect()
    }

    fn extend(&mut self, coder: &ChildCoder, children: &[Child]) {
        for child in children {
            let place = self.len();
            if place.is_multiple_of(BLOCK) {
                self.blocks.push(Arc::new(ChildBlock::new(coder, self.reference.len())));
            }
            self.put(coder, place, child);
        }
    }
}

/// The largest absolute value; what is not a number doesn't count.
pub fn largest(values: &[f32]) -> f32 {
    // In lanes, so that the compiler may keep them in registers of any width.
    let mut lanes = [0.0f32; 16];
    let (chunks, rest) = values.as_chunks::<16>();
    for chunk in chunks {
        for (lane, x) in lanes.iter_mut().zip(chunk) {
            *lane = if x.abs() > *lane { x.abs() } else { *lane };
        }
    }
    lanes.iter().chain(rest).fold(0.0, |largest, x| largest.max(x.abs()))
}

/// The nearest whole number, for values below 2^22: without a call, which a function of the library is on the baseline processor.
#[inline(always)]
pub fn nearest_whole(x: f32) -> f32 {
    /// Floats from here on have no fraction.
    const WHOLE: f32 = 12_582_912.0;
    (x + WHOLE) - WHOLE
}

/// One over the root of a squared norm; 0 for a zero vector.
pub fn inverse_norm(square: f32) -> f32 {
    if square > 0.0 { 1.0 / square.sqrt() } else { 0.0 }
}

/// The mean of rows of `len` values; zeros without rows.
pub fn mean<'a>(rows: impl Iterator<Item = &'a [f32]>, len: usize) -> Vec<f32> {
    let mut sums = vec![0.0f64; len];
    let mut count = 0.0f64;
    for row in rows {
        sums.iter_mut().zip(row).for_each(|(sum, &x)| *sum += f64::from(x));
        count += 1.0;
    }
    sums.iter().map(|sum| (sum / count.max(1.0)) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn lists_exactly_the_children_it_was_given(steps in prop::collection::vec((0usize..60, 0usize..4), 1..60)) {
            let kernels = Kernels::get().unwrap();
            let coder = ChildCoder::new(kernels, 64, false);
            let child = |id: NodeId| Child { id, centroid: vec![id as f32; 64].into() };
            let mut node = Inner::new(&coder, 1, &[child(0)], 64);
            let mut model = vec![0u32];
            let mut next = 1;
            for (place, count) in steps {
                let gone: Vec<NodeId> = if model.is_empty() { vec![] } else { vec![model.remove(place % model.len())] };
                let new: Vec<Child> = (next..next + count as u32).map(child).collect();
                next += count as u32;
                model.extend(new.iter().map(|child| child.id));
                node = node.replaced(&coder, &gone, &new);
                let mut ids: Vec<NodeId> = node.children().map(|child| child.id).collect();
                ids.sort_unstable();
                model.sort_unstable();
                prop_assert_eq!(&ids, &model);
                prop_assert_eq!(node.len(), model.len());
                for child in node.children() {
                    prop_assert_eq!(child.centroid[0], child.id as f32);
                    prop_assert_eq!(node.centroid_of(child.id).unwrap()[0], child.id as f32);
                }
            }
        }
    }
}
