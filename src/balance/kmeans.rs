//! The one k-means: Lloyd's iterations over points that are loaded one at a time.
//!
//! Few centroids are seeded by k-means++ and compared exactly; many are seeded by random points and searched as a tree searches: by their
//! codes, then the best few exactly. So clustering rows and searching them rest on the same code, and no copy of the rows is made.

use rand::seq::index;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rayon::prelude::*;

use crate::cancel::Task;
use crate::error::Result;
use crate::params::Beam;
use crate::scratch::Scratch;
use crate::tree::Centroid;
use crate::tree::aim::Target;
use crate::tree::inner::ChildCoder;
use crate::tree::insert::may_spread;
use crate::tree::navigate::{Order, navigate, navigate_together};
use crate::tree::route::{TOGETHER, write_beam};
use crate::tree::snapshot::Snapshot;
use crate::tree::topology::Topology;

/// Rotated vectors by number.
#[derive(Clone, Copy)]
pub struct Points<'a> {
    /// How many.
    pub len: usize,
    /// Values of each.
    pub padded: usize,
    /// Writes one.
    pub load: &'a (dyn Fn(usize, &mut [f32]) -> Result<()> + Sync),
}

/// How to cluster.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Centroids wanted; fewer come back where there are fewer points.
    pub clusters: usize,
    /// Iterations.
    pub rounds: usize,
    /// Most children of a node, where the centroids are many.
    pub branching: usize,
    /// What is nearest, where the centroids are many; few are compared by distance.
    pub order: Order,
    /// Whether many centroids are searched by a part of their codes.
    pub coarse: bool,
    /// Seed.
    pub seed: u64,
}

/// As many centroids are compared one by one.
const EXACT: usize = 64;
/// Points that seed few centroids.
const SEED_POINTS: usize = 512;

/// Centroids of `points`.
pub fn kmeans(coder: &ChildCoder, points: Points<'_>, settings: Settings, task: &Task) -> Result<Vec<Centroid>> {
    let mut random = Pcg64Mcg::seed_from_u64(settings.seed);
    let clusters = settings.clusters.min(points.len);
    let mut centroids =
        if clusters <= EXACT { seed_far(coder, points, clusters, &mut random)? } else { seed_any(points, clusters, &mut random)? };
    lloyd(coder, points, &mut centroids, settings, task)?;
    Ok(centroids)
}

/// Moves `centroids` to the means of the points nearest to them, as often as the settings say.
pub fn lloyd(coder: &ChildCoder, points: Points<'_>, centroids: &mut Vec<Centroid>, settings: Settings, task: &Task) -> Result<()> {
    let mut random = Pcg64Mcg::seed_from_u64(settings.seed ^ 1);
    for _ in 0..settings.rounds {
        let nearest = Nearest::new(coder, centroids, points.padded, settings, task)?;
        let sums = sum_by_label(coder, points, &nearest, settings.coarse, task)?;
        *centroids = sums.means(points, &mut random)?;
    }
    Ok(())
}

fn load(points: Points<'_>, number: usize) -> Result<Vec<f32>> {
    let mut point = vec![0.0; points.padded];
    (points.load)(number, &mut point)?;
    Ok(point)
}

fn seed_any(points: Points<'_>, clusters: usize, random: &mut Pcg64Mcg) -> Result<Vec<Centroid>> {
    index::sample(random, points.len, clusters).iter().map(|number| Ok(load(points, number)?.into())).collect()
}

/// k-means++ (Arthur and Vassilvitskii 2007) over a sample: each further seed is drawn in proportion to its squared distance from the
/// nearest one.
fn seed_far(coder: &ChildCoder, points: Points<'_>, clusters: usize, random: &mut Pcg64Mcg) -> Result<Vec<Centroid>> {
    if clusters == 0 {
        return Ok(Vec::new());
    }
    let sample = index::sample(random, points.len, points.len.min(SEED_POINTS));
    let sample: Vec<Vec<f32>> = sample.iter().map(|number| load(points, number)).collect::<Result<_>>()?;
    let mut seeds: Vec<Centroid> = vec![sample[0].clone().into()];
    let mut distances = vec![f32::INFINITY; sample.len()];
    while seeds.len() < clusters {
        let Some(last) = seeds.last() else { break };
        for (distance, point) in distances.iter_mut().zip(&sample) {
            *distance = distance.min((coder.kernels.l2)(point, last));
        }
        let total: f64 = distances.iter().map(|&d| f64::from(d)).sum();
        let mut left = random.random::<f64>() * total;
        let drawn = distances.iter().position(|&d| {
            left -= f64::from(d);
            left < 0.0
        });
        seeds.push(sample[drawn.unwrap_or(0)].clone().into());
    }
    Ok(seeds)
}

/// Finds the nearest of some centroids.
pub enum Nearest {
    /// Compares with each.
    Exact {
        /// Centroid after centroid.
        centroids: Vec<f32>,
    },
    /// Searches them as a tree.
    Coded {
        /// One empty leaf a centroid, numbered alike.
        snapshot: Box<Snapshot>,
        /// One leaf is wanted.
        beam: Beam,
        /// What is nearest.
        order: Order,
    },
}

impl Nearest {
    /// Over `centroids`.
    pub fn new(coder: &ChildCoder, centroids: &[Centroid], padded: usize, settings: Settings, task: &Task) -> Result<Self> {
        if centroids.len() <= EXACT {
            return Ok(Nearest::Exact { centroids: centroids.concat() });
        }
        let topology = grow(coder, centroids, padded, settings.branching, settings.seed, task)?;
        // At upper levels the beam is that of writes; of the leaves one is wanted.
        let mut beam = write_beam();
        let last = crate::params::LevelRule { least: Some(1), most: Some(1), ..Default::default() };
        beam.levels = vec![Default::default(); topology.snapshot.levels() as usize - 1];
        beam.levels.push(last);
        Ok(Nearest::Coded { snapshot: Box::new(topology.snapshot), beam, order: settings.order })
    }

    /// The number of the centroid nearest to `point`. `target` and `distances` are scratch.
    pub fn find(&self, coder: &ChildCoder, point: &[f32], target: &mut Target, distances: &mut Vec<f32>) -> usize {
        match self {
            Nearest::Exact { centroids } => {
                distances.resize(centroids.len() / point.len(), 0.0);
                (coder.kernels.l2_rows)(point, centroids, distances);
                let best = distances.iter().enumerate().min_by(|a, b| a.1.total_cmp(b.1));
                best.map_or(0, |(number, _)| number)
            }
            Nearest::Coded { snapshot, beam, order } => {
                target.aim_rotated(coder.kernels, point);
                let found = navigate(snapshot, coder.kernels, target, *order, beam, &[]);
                found.first().map_or(0, |choice| choice.id as usize)
            }
        }
    }

    /// The numbers of the centroids nearest to `points`, one after the other; a target for each is scratch.
    fn find_all(&self, coder: &ChildCoder, points: &[f32], padded: usize, targets: &mut [Target], distances: &mut Vec<f32>) -> Vec<usize> {
        let points = points.chunks_exact(padded);
        match self {
            Nearest::Exact { .. } => points.zip(targets).map(|(point, target)| self.find(coder, point, target, distances)).collect(),
            Nearest::Coded { snapshot, beam, order } => {
                let count = points.len();
                points.zip(targets.iter_mut()).for_each(|(point, target)| target.aim_rotated(coder.kernels, point));
                let found = navigate_together(snapshot, coder.kernels, &targets[..count], *order, beam, &[]);
                found.iter().map(|choices| choices.first().map_or(0, |choice| choice.id as usize)).collect()
            }
        }
    }

    fn len(&self, padded: usize) -> usize {
        match self {
            Nearest::Exact { centroids } => centroids.len() / padded,
            Nearest::Coded { snapshot, .. } => snapshot.leaves.len(),
        }
    }
}

/// A tree over `centroids`: one empty leaf each, under a root while they fit one node, else under nodes made by clustering the centroids.
pub fn grow(coder: &ChildCoder, centroids: &[Centroid], padded: usize, branching: usize, seed: u64, task: &Task) -> Result<Topology> {
    if centroids.len() <= branching {
        return Ok(Topology::of_centroids(coder, centroids, padded));
    }
    let load = |number: usize, out: &mut [f32]| {
        out.copy_from_slice(&centroids[number]);
        Ok(())
    };
    let points = Points { len: centroids.len(), padded, load: &load };
    // Half full, so that splits have room. A root takes as many as there are: it is split later where that is too wide.
    let groups = centroids.len().div_ceil(branching.div_ceil(2));
    let settings = Settings { clusters: groups, rounds: 8, branching: usize::MAX, order: Order::Distance, coarse: false, seed };
    let centres = kmeans(coder, points, settings, task)?;
    let nearest = Nearest::new(coder, &centres, padded, settings, task)?;
    let (mut target, mut distances) = (Target::new(padded), Vec::new());
    let mut members = vec![Vec::new(); centres.len()];
    for (number, centroid) in centroids.iter().enumerate() {
        members[nearest.find(coder, centroid, &mut target, &mut distances)].push(number as u32);
    }
    members.retain(|group| !group.is_empty());
    Ok(Topology::of_groups(coder, centroids, &members, padded))
}

struct Sums {
    values: Scratch,
    counts: Vec<u32>,
}

fn sum_by_label(coder: &ChildCoder, points: Points<'_>, nearest: &Nearest, coarse: bool, task: &Task) -> Result<Sums> {
    // As many parts as threads: each has sums of its own, and the result doesn't depend on which thread takes which.
    let parts = if may_spread(points.len) { rayon::current_num_threads() } else { 1 };
    let size = points.len.div_ceil(parts).max(1);
    let target = if coarse { Target::coarse(points.padded) } else { Target::new(points.padded) };
    let part = |part: usize| sum_part(coder, points, part * size..((part + 1) * size).min(points.len), nearest, target.clone(), task);
    let mut sums: Vec<Sums> = if parts == 1 { vec![part(0)?] } else { (0..parts).into_par_iter().map(part).collect::<Result<_>>()? };
    let mut total = sums.swap_remove(0);
    for other in sums {
        total.values.values_mut().iter_mut().zip(other.values.values()).for_each(|(sum, value)| *sum += value);
        total.counts.iter_mut().zip(other.counts).for_each(|(sum, count)| *sum += count);
    }
    Ok(total)
}

fn sum_part(
    coder: &ChildCoder,
    points: Points<'_>,
    range: std::ops::Range<usize>,
    nearest: &Nearest,
    target: Target,
    task: &Task,
) -> Result<Sums> {
    let padded = points.padded;
    let clusters = nearest.len(padded);
    let mut sums = Sums { values: Scratch::new(clusters * padded)?, counts: vec![0; clusters] };
    let (mut targets, mut distances, mut loaded) = (vec![target; TOGETHER], Vec::new(), vec![0.0; TOGETHER * padded]);
    for first in range.clone().step_by(TOGETHER) {
        let some = &mut loaded[..TOGETHER.min(range.end - first) * padded];
        task.check()?;
        task.advance((some.len() / padded) as u64);
        for (number, point) in (first..).zip(some.chunks_exact_mut(padded)) {
            (points.load)(number, point)?;
        }
        let labels = nearest.find_all(coder, some, padded, &mut targets, &mut distances);
        for (label, point) in labels.into_iter().zip(some.chunks_exact(padded)) {
            sums.counts[label] += 1;
            let sum = &mut sums.values.values_mut()[label * padded..(label + 1) * padded];
            sum.iter_mut().zip(point).for_each(|(sum, x)| *sum += x);
        }
    }
    Ok(sums)
}

impl Sums {
    /// The means; a cluster without points starts again at a random one.
    fn means(&self, points: Points<'_>, random: &mut Pcg64Mcg) -> Result<Vec<Centroid>> {
        let mean = |(sum, &count): (&[f32], &u32)| -> Result<Centroid> {
            if count == 0 {
                return Ok(load(points, random.random_range(0..points.len))?.into());
            }
            let scale = 1.0 / count as f32;
            Ok(sum.iter().map(|x| x * scale).collect())
        };
        self.values.values().chunks_exact(points.padded).zip(&self.counts).map(mean).collect()
    }
}
