//! Parsers on bytes that nobody wrote: an error or a value, never a panic, and no memory asked for that isn't there.

use std::sync::Arc;
use std::time::{Duration, Instant};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::bytes::Cursor;
use super::leaves::Leaves;
use super::manifest::{CURRENT, Manifest, current, current_line, manifest_name};
use super::nodes::{read_node, read_page};
use super::root::{Root, read_tree};
use super::rows::RowPages;
use super::segment::{SegmentWriter, Segments};
use super::{FORMAT, Residence, open};
use crate::cancel::Task;
use crate::dataset::Rows;
use crate::index::{Index, Wanted};
use crate::kernel::Kernels;
use crate::metric::Metric;
use crate::params::Params;
use crate::quantize::Rotation;
use crate::storage::{Cache, Memory, Storage};
use crate::tree::block::Block;
use crate::tree::inner::ChildCoder;
use crate::tree::leaf::{Extent, Stored};
use crate::tree::store::RowSource;
use crate::value::{Codec, ValueType};
use crate::vectors::Vectors;

const DIM: usize = 5;

/// How long each parser is fed.
fn time() -> Duration {
    let stress = std::env::var("SAPWOOD_STRESS").is_ok_and(|stress| stress == "1");
    Duration::from_millis(if stress { 20_000 } else { 400 })
}

fn committed() -> (Memory, Manifest) {
    let memory = Memory::new();
    let storage: Arc<dyn Storage> = Arc::new(memory.clone());
    let params = Params { background: false, split_threshold: 16, merge_threshold: 3, branching: 4, ..Params::default() };
    let wanted = Wanted { dim: Some(DIM), metric: Some(Metric::L2), params, keep: 1, ..Wanted::default() };
    let index = Index::bind(&storage, &wanted, &Task::new()).unwrap();
    let values: Vec<f32> = (0..300 * DIM).map(|i| (i * i % 101) as f32).collect();
    index.add(Rows::new("vectors", &values, DIM).unwrap(), None, &Task::new()).unwrap();
    index.balance(&Task::new()).unwrap();
    index.commit(&Task::new()).unwrap();
    index.remove(&[1, 2, 3, 50]).unwrap();
    index.commit(&Task::new()).unwrap();
    let number = current(&memory).unwrap().unwrap();
    (memory.clone(), Manifest::read(&memory, number).unwrap())
}

/// Some bits flipped, bytes replaced, a piece cut out or doubled.
fn mutate(random: &mut Pcg64Mcg, bytes: &mut Vec<u8>) {
    for _ in 0..random.random_range(1..4) {
        if bytes.is_empty() {
            return;
        }
        let place = random.random_range(0..bytes.len());
        match random.random_range(0..5) {
            0 => bytes[place] ^= 1 << random.random_range(0..8),
            1 => bytes[place] = random.random_range(0..=255),
            2 => bytes.truncate(place),
            3 => {
                let word = [0u32, 1, 31, 33, u32::MAX, u32::MAX - 1, 1 << 31][random.random_range(0..7)];
                bytes.iter_mut().skip(place / 4 * 4).zip(word.to_le_bytes()).for_each(|(byte, new)| *byte = new);
            }
            _ => bytes.extend_from_within(place..),
        }
    }
}

/// Feeds `parse` with mutants of the record at `extent`, under their right checksum.
fn feed(memory: &Memory, extent: Extent, mut parse: impl FnMut(&Arc<Segments>, Extent)) {
    let segments = Arc::new(Segments::new(Arc::new(memory.clone())));
    let whole = segments.read(extent).unwrap();
    let mut random = Pcg64Mcg::seed_from_u64(u64::from(extent.check));
    let end = Instant::now() + time();
    while Instant::now() < end {
        let mut bytes = whole.clone();
        mutate(&mut random, &mut bytes);
        let other = memory.after_kill();
        let mut writer = SegmentWriter::new(&other, 900, FORMAT).unwrap();
        let place = writer.add(&bytes).unwrap();
        writer.finish().unwrap();
        parse(&Arc::new(Segments::new(Arc::new(other))), place);
    }
}

#[test]
fn records_of_the_tree() {
    let (memory, manifest) = committed();
    let segments = Segments::new(Arc::new(memory.clone()));
    let root = segments.decode(manifest.root.into(), Root::decode).unwrap();
    let padded = 128;
    let coder = ChildCoder::new(Kernels::get().unwrap(), padded, false);
    feed(&memory, manifest.root.into(), |segments, extent| {
        if let Ok(root) = segments.decode(extent, Root::decode) {
            let _ = read_tree(segments, &root, &coder, padded);
        }
    });
    let (_, blocks) = read_node(&segments, root.nodes[0].1, &coder, padded).unwrap();
    for extent in [root.nodes[0].1, blocks[0]] {
        feed(&memory, extent, |segments, extent| drop(read_node(segments, extent, &coder, padded)));
    }
    feed(&memory, blocks[0], |segments, extent| {
        // As the only block of a node.
        let mut record = Vec::new();
        super::bytes::put_all(&mut record, &[1u32, 1]);
        super::bytes::put_extent(&mut record, extent);
        super::bytes::put_all(&mut record, &[0.0f32; 128]);
        let mut writer = SegmentWriter::new(&**segments.storage(), 901, FORMAT).unwrap();
        let node = writer.add(&record).unwrap();
        writer.finish().unwrap();
        let _ = read_node(segments, node, &coder, padded);
    });
    feed(&memory, root.leaf_pages[0].1, |segments, extent| drop(segments.decode(extent, read_page)));
}

#[test]
fn records_of_rows_and_entries() {
    let (memory, manifest) = committed();
    let segments = Segments::new(Arc::new(memory.clone()));
    let root = segments.decode(manifest.root.into(), Root::decode).unwrap();
    let entries = segments.decode(root.leaf_pages[0].1, read_page).unwrap();
    let pool = Block::pool(16);
    let kernels = Kernels::get().unwrap();
    let rotation = Arc::new(Rotation::new(kernels, DIM, 0));
    let vectors = Arc::new(Vectors::new(Codec::new(kernels, Metric::L2, ValueType::F32, rotation)));
    let _lease = vectors.lease(300).unwrap();
    let changed = entries.iter().find(|entry| entry.extents.len() > 1).unwrap();
    for &extent in &changed.extents {
        feed(&memory, extent, |segments, extent| {
            let leaves = Leaves::new(segments.clone(), Arc::new(Cache::new(1 << 20)), pool.clone(), 16, vectors.clone());
            let _ = leaves.read(&Stored {
                extents: vec![changed.extents[0], extent],
                rows: changed.rows as usize,
                pinned: None,
                tokens: Vec::new(),
            });
            let _ = leaves.read(&Stored { extents: vec![extent], rows: changed.rows as usize, pinned: None, tokens: Vec::new() });
        });
    }
    feed(&memory, root.row_pages[0], |segments, extent| {
        let pages = RowPages::new(segments.clone(), vec![extent], 5, 1024);
        let _ = (pages.id(7), pages.dead_rows());
    });
}

#[test]
fn manifests_and_the_name_of_the_newest() {
    let (memory, manifest) = committed();
    let name = manifest_name(manifest.number);
    let text = manifest.encode().unwrap().into_bytes();
    let mut random = Pcg64Mcg::seed_from_u64(1);
    let end = Instant::now() + time();
    while Instant::now() < end {
        let other = memory.after_kill();
        let mut bytes = text.clone();
        mutate(&mut random, &mut bytes);
        if random.random_range(0..2) == 0 {
            // The inner text changed, its checksum right.
            let inner = manifest.text().unwrap();
            let mut inner = inner.into_bytes();
            mutate(&mut random, &mut inner);
            let inner = String::from_utf8_lossy(&inner).into_owned();
            bytes = format!("{{\"crc32c\": \"{:08x}\", \"manifest\": {inner}}}", crc32c::crc32c(inner.as_bytes())).into_bytes();
        }
        other.replace(&name, &bytes).unwrap();
        let segments = Arc::new(Segments::new(Arc::new(other)));
        let cache = Residence::Disk(Arc::new(Cache::new(1 << 20)));
        let _ = open(&segments, manifest.number, &cache, &Params::default(), None, &Task::new());
        let other = memory.after_kill();
        let line = current_line(manifest.number).into_bytes();
        let mut bytes = line.clone();
        mutate(&mut random, &mut bytes);
        other.replace(CURRENT, &bytes).unwrap();
        assert_eq!(current(&other).is_ok(), bytes == line, "{}", String::from_utf8_lossy(&bytes));
    }
}

#[test]
fn a_cursor_never_gives_more_than_there_is() {
    let bytes = [7u8; 20];
    let mut cursor = Cursor::new(&bytes, "a file");
    assert!(cursor.take_all::<u64>(usize::MAX / 4).is_err());
    assert!(cursor.take_all::<u32>(6).is_err());
    assert_eq!(cursor.take_all::<u32>(4).unwrap().len(), 4);
    assert!(cursor.end().is_err());
    assert!(cursor.take::<u64>().unwrap_err().to_string().contains("a file"));
}
