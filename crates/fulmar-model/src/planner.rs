//! Plans: packs sequences into rows of bounded length, and balances work between workers.
//!
//! ```text
//! decreasing: by length, longest first (counting sort)
//!   first fit: the bin opened first that has the space         (tree of the largest space)
//!   best fit:  the bin with the least space that still suffices (a bit for each space that a bin has)
//! ```
//! Both fill at most 11/9 of the fewest bins possible, and one (Johnson 1973). Best fit takes 25 to 40 ns a sequence.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use fulmar_core::limits::{BATCH_TOKENS_MAX, PACK_SEQUENCES_MAX, PACK_WORKERS_MAX};
use fulmar_core::{Error, ErrorKind, Result};
use serde::Deserialize;

use crate::config::DecoderConfig;

/// The bin for a sequence; the longest sequences are placed first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum PackStrategy {
    /// The bin with the least sufficient space; ties go to the one used last.
    #[default]
    BestFit,
    /// The first bin with space.
    FirstFit,
}

/// Groups of items: group `g` is `items[offsets[g]..offsets[g + 1]]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Groups {
    /// Indices of items, each once.
    pub items: Vec<u32>,
    /// `[G + 1]`, from 0.
    pub offsets: Vec<u32>,
}

impl Groups {
    /// Returns the number of groups.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.offsets.len().saturating_sub(1)
    }

    /// Returns whether there are no groups.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the items of group `index`; empty past the last group.
    #[must_use]
    pub fn group(&self, index: usize) -> &[u32] {
        match self.offsets.get(index..index + 2) {
            Some([first, end]) => self.items.get(*first as usize..*end as usize).unwrap_or_default(),
            _ => &[],
        }
    }

    /// Returns the bounds of the sequences of group `index` concatenated in a row, in the form that attention
    /// over packed rows takes (`cu_seqlens`): `[n + 1]`, from 0.
    #[must_use]
    pub fn cu_seqlens(&self, index: usize, lengths: &[u32]) -> Vec<u32> {
        let length_of = |item: &u32| lengths.get(*item as usize).copied().unwrap_or(0);
        let ends = self.group(index).iter().scan(0, |end, item| {
            *end += length_of(item);
            Some(*end)
        });
        std::iter::once(0).chain(ends).collect()
    }

    /// Makes groups from the group of each item, with items in `order`.
    fn from_assignment(group_of: &[u32], num_groups: usize, order: impl Iterator<Item = u32>) -> Self {
        let mut offsets = vec![0_u32; num_groups + 1];
        for group in group_of {
            offsets[*group as usize + 1] += 1;
        }
        for group in 0..num_groups {
            offsets[group + 1] += offsets[group];
        }
        let mut next = offsets.clone();
        let mut items = vec![0; group_of.len()];
        for item in order {
            let place = &mut next[group_of[item as usize] as usize];
            items[*place as usize] = item;
            *place += 1;
        }
        Self { items, offsets }
    }
}

/// Packs sequences of the given lengths into bins of `capacity` tokens. Bins are in the order they were
/// opened, sequences in the order they were placed. The time is proportional to the sequences and the
/// capacity, and for first fit to the logarithm of the bins.
///
/// # Errors
/// `OutOfRange` for a capacity of 0 or a sequence that is longer than it; `LimitExceeded` for a capacity over
/// [`BATCH_TOKENS_MAX`] or more sequences than [`PACK_SEQUENCES_MAX`].
///
/// # Examples
/// ```
/// use fulmar_model::{PackStrategy, pack};
/// let lengths = [3, 5, 2, 4, 6];
/// let bins = pack(&lengths, 8, PackStrategy::BestFit)?;
/// assert_eq!((bins.group(0), bins.group(1), bins.group(2)), (&[4, 2][..], &[1, 0][..], &[3][..]));
/// assert_eq!(bins.cu_seqlens(0, &lengths), [0, 6, 8]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn pack(lengths: &[u32], capacity: usize, strategy: PackStrategy) -> Result<Groups> {
    check_capacity(capacity)?;
    check_count("lengths", lengths.len(), PACK_SEQUENCES_MAX)?;
    if let Some(index) = lengths.iter().position(|length| *length as usize > capacity) {
        let detail = format!("lengths must be at most {capacity}: got {} at {index}", lengths[index]);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let order = longest_first(lengths, capacity);
    let mut bin_of = vec![0; lengths.len()];
    let num_bins = match strategy {
        PackStrategy::BestFit => best_fit(&order, lengths, capacity, &mut bin_of),
        PackStrategy::FirstFit => first_fit(&order, lengths, capacity, &mut bin_of),
    };
    Ok(Groups::from_assignment(&bin_of, num_bins, order.into_iter()))
}

/// Returns indices by decreasing length, ties in their order.
fn longest_first(lengths: &[u32], capacity: usize) -> Vec<u32> {
    let mut next = vec![0_u32; capacity + 2];
    for length in lengths {
        next[capacity - *length as usize + 1] += 1;
    }
    for rank in 0..=capacity {
        next[rank + 1] += next[rank];
    }
    let mut order = vec![0; lengths.len()];
    for (index, length) in lengths.iter().enumerate() {
        let place = &mut next[capacity - *length as usize];
        order[*place as usize] = index as u32;
        *place += 1;
    }
    order
}

const NONE: u32 = u32::MAX;

fn best_fit(order: &[u32], lengths: &[u32], capacity: usize, bin_of: &mut [u32]) -> usize {
    let mut spaces = SpaceSet::new(capacity);
    // Bins with the same space form a stack: its top, and below each bin the next.
    let (mut top, mut below) = (vec![NONE; capacity + 1], Vec::new());
    for &item in order {
        let length = lengths[item as usize] as usize;
        let (bin, space) = match spaces.at_least(length) {
            Some(space) => {
                let bin = top[space];
                top[space] = below[bin as usize];
                if top[space] == NONE {
                    spaces.remove(space);
                }
                (bin, space)
            }
            None => {
                below.push(NONE);
                (below.len() as u32 - 1, capacity)
            }
        };
        let left = space - length;
        below[bin as usize] = top[left];
        top[left] = bin;
        spaces.insert(left);
        bin_of[item as usize] = bin;
    }
    below.len()
}

/// A set of numbers up to a bound, as bits with a summary of 64 words on each level above, that finds the
/// next larger member.
struct SpaceSet {
    /// From the bits of the numbers up to one word.
    levels: Vec<Vec<u64>>,
}

impl SpaceSet {
    fn new(max: usize) -> Self {
        let mut levels = Vec::new();
        let mut bits = max + 1;
        loop {
            let words = bits.div_ceil(64);
            levels.push(vec![0; words]);
            if words == 1 {
                return Self { levels };
            }
            bits = words;
        }
    }

    fn insert(&mut self, mut number: usize) {
        for level in &mut self.levels {
            level[number / 64] |= 1 << (number % 64);
            number /= 64;
        }
    }

    fn remove(&mut self, mut number: usize) {
        for level in &mut self.levels {
            let word = &mut level[number / 64];
            *word &= !(1 << (number % 64));
            if *word != 0 {
                return;
            }
            number /= 64;
        }
    }

    /// Returns the smallest member that is at least `number`.
    fn at_least(&self, number: usize) -> Option<usize> {
        let mut from = number;
        for (height, level) in self.levels.iter().enumerate() {
            let word = level.get(from / 64)? & (u64::MAX << (from % 64));
            if word != 0 {
                let mut member = from / 64 * 64 + word.trailing_zeros() as usize;
                for level in self.levels[..height].iter().rev() {
                    member = member * 64 + level[member].trailing_zeros() as usize;
                }
                return Some(member);
            }
            from = from / 64 + 1;
        }
        None
    }
}

fn first_fit(order: &[u32], lengths: &[u32], capacity: usize, bin_of: &mut [u32]) -> usize {
    // Leaves are bins, unopened ones with their full space; each node holds the larger space of its two
    // children.
    let leaves = order.len().next_power_of_two();
    let mut space = vec![capacity as u32; 2 * leaves];
    let mut num_bins = 0;
    for &item in order {
        let length = lengths[item as usize];
        let mut node = 1;
        while node < leaves {
            node = 2 * node + usize::from(space[2 * node] < length);
        }
        space[node] -= length;
        bin_of[item as usize] = (node - leaves) as u32;
        num_bins = num_bins.max(node - leaves + 1);
        while node > 1 {
            node /= 2;
            space[node] = space[2 * node].max(space[2 * node + 1]);
        }
    }
    num_bins
}

/// Packs sequences as they arrive: best fit into at most `max_open` bins. A bin is returned once it is full,
/// or if it is the fullest when a sequence fits into none of them.
///
/// # Examples
/// ```
/// use fulmar_model::StreamPacker;
/// let mut packer = StreamPacker::new(8, 2)?;
/// assert_eq!(packer.push(0, 5)?, None);
/// assert_eq!(packer.push(1, 6)?, None);
/// assert_eq!(packer.push(2, 3)?, Some(vec![0, 2])); // full
/// assert_eq!(packer.push(3, 7)?, None);
/// assert_eq!(packer.push(4, 4)?, Some(vec![3])); // the fullest, as 4 fits nowhere
/// assert_eq!(packer.flush(), [vec![1], vec![4]]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct StreamPacker {
    capacity: usize,
    max_open: usize,
    num_opened: u64,
    /// Bins by space, then by age.
    open: BTreeMap<(usize, u64), Vec<u32>>,
}

impl StreamPacker {
    /// Returns a packer without sequences.
    ///
    /// # Errors
    /// `OutOfRange` for a capacity or `max_open` of 0; `LimitExceeded` over [`BATCH_TOKENS_MAX`] and [`PACK_WORKERS_MAX`].
    pub fn new(capacity: usize, max_open: usize) -> Result<Self> {
        check_capacity(capacity)?;
        check_positive("maxOpen", max_open)?;
        check_count("open bins", max_open, PACK_WORKERS_MAX)?;
        Ok(Self { capacity, max_open, num_opened: 0, open: BTreeMap::new() })
    }

    /// Adds the sequence `item` and returns the bin that this completes, if any.
    ///
    /// # Errors
    /// `OutOfRange` for a sequence longer than the capacity, which is then not added; `LimitExceeded` for a
    /// bin of more sequences than [`PACK_SEQUENCES_MAX`].
    pub fn push(&mut self, item: u32, length: usize) -> Result<Option<Vec<u32>>> {
        if length > self.capacity {
            let detail = format!("length must be at most {}: got {length}", self.capacity);
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        if length == self.capacity {
            return Ok(Some(vec![item]));
        }
        let fitting = self.open.range((length, 0)..).next().map(|(key, _)| *key);
        let mut leaving = None;
        let ((space, age), mut items) = match fitting.and_then(|key| self.open.remove_entry(&key)) {
            Some(bin) => bin,
            None => {
                if self.open.len() == self.max_open {
                    leaving = self.open.pop_first().map(|(_, items)| items);
                }
                self.num_opened += 1;
                ((self.capacity, self.num_opened), Vec::new())
            }
        };
        check_count("a bin", items.len() + 1, PACK_SEQUENCES_MAX)?;
        items.push(item);
        if space == length {
            return Ok(Some(items));
        }
        self.open.insert((space - length, age), items);
        Ok(leaving)
    }

    /// Returns the open bins in the order they were opened, and empties the packer.
    pub fn flush(&mut self) -> Vec<Vec<u32>> {
        let mut bins: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        bins.sort_by_key(|((_, age), _)| *age);
        bins.into_iter().map(|(_, items)| items).collect()
    }
}

/// Assigns each item to one of `num_workers` so that their sums of `costs` are close: the most expensive
/// first, each to the worker with the least so far, ties to the first (LPT, at most 4/3 of the least possible
/// largest sum, Graham 1969).
///
/// # Errors
/// `OutOfRange` without workers, or for a cost that is negative or not finite; `LimitExceeded` over
/// [`PACK_WORKERS_MAX`] workers or [`PACK_SEQUENCES_MAX`] items.
///
/// # Examples
/// ```
/// let groups = fulmar_model::balance(&[4.0, 9.0, 5.0, 1.0], 2)?;
/// assert_eq!((groups.group(0), groups.group(1)), (&[1, 3][..], &[2, 0][..]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn balance(costs: &[f64], num_workers: usize) -> Result<Groups> {
    check_positive("numWorkers", num_workers)?;
    check_count("workers", num_workers, PACK_WORKERS_MAX)?;
    check_count("costs", costs.len(), PACK_SEQUENCES_MAX)?;
    if let Some(index) = costs.iter().position(|cost| !(cost.is_finite() && *cost >= 0.0)) {
        let detail = format!("costs must be >= 0: got {} at {index}", costs[index]);
        return Err(Error::new(ErrorKind::OutOfRange, detail));
    }
    let mut order: Vec<u32> = (0..costs.len() as u32).collect();
    order.sort_by(|a, b| costs[*b as usize].total_cmp(&costs[*a as usize]));
    let mut workers: BinaryHeap<Reverse<Load>> =
        (0..num_workers as u32).map(|worker| Reverse(Load { sum: 0.0, worker })).collect();
    let mut worker_of = vec![0; costs.len()];
    for &item in &order {
        if let Some(mut least) = workers.peek_mut() {
            worker_of[item as usize] = least.0.worker;
            least.0.sum += costs[item as usize];
        }
    }
    Ok(Groups::from_assignment(&worker_of, num_workers, order.into_iter()))
}

/// The work of one worker.
#[derive(PartialEq)]
struct Load {
    sum: f64,
    worker: u32,
}

impl Eq for Load {}

impl Ord for Load {
    fn cmp(&self, other: &Self) -> Ordering {
        self.sum.total_cmp(&other.sum).then(self.worker.cmp(&other.worker))
    }
}

impl PartialOrd for Load {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl DecoderConfig {
    /// Returns the floating-point operations of a forward pass over one sequence with log-probs of all its
    /// tokens; a training step takes three times as many. `2 L (layers (q + k + v + o + gate + up + down) +
    /// vocabulary)` for the projections, `2 L (L + 1)` times the width of the query heads a layer for
    /// attention.
    ///
    /// # Examples
    /// ```
    /// let config = fulmar_model::DecoderConfig::from_json(r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 4,
    ///     "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1}"#)?;
    /// assert_eq!(config.flops(1), (2 * (4 * 4 * 4 + 3 * 4 * 8 + 40) + 2 * 2 * 4) as f64);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    #[must_use]
    pub fn flops(&self, length: usize) -> f64 {
        let (hidden, inner, layers) = (self.hidden_size, self.intermediate_size, self.num_hidden_layers);
        let heads = 2 * self.q_width() + 2 * self.kv_width();
        let projections = layers as f64 * (hidden * (heads + 3 * inner)) as f64;
        let rows = length as f64;
        let attention = 2.0 * rows * (rows + 1.0) * self.q_width() as f64 * layers as f64;
        2.0 * rows * (projections + (self.vocab_size * hidden) as f64) + attention
    }
}

fn check_capacity(capacity: usize) -> Result<()> {
    check_positive("capacity", capacity)?;
    check_count("capacity", capacity, BATCH_TOKENS_MAX)
}

fn check_positive(name: &str, value: usize) -> Result<()> {
    if value > 0 {
        return Ok(());
    }
    Err(Error::new(ErrorKind::OutOfRange, format!("{name} must be >= 1: got 0")))
}

fn check_count(what: &str, count: usize, max: usize) -> Result<()> {
    if count <= max {
        return Ok(());
    }
    Err(Error::new(ErrorKind::LimitExceeded, format!("{what} must be at most {max}: got {count}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_hold_at_the_bound_and_not_past_it() {
        assert!(pack(&[1], BATCH_TOKENS_MAX, PackStrategy::BestFit).is_ok());
        let kind = |capacity| pack(&[1], capacity, PackStrategy::BestFit).unwrap_err().kind();
        assert_eq!(kind(BATCH_TOKENS_MAX + 1), ErrorKind::LimitExceeded);
        assert_eq!(kind(0), ErrorKind::OutOfRange);
        assert!(check_count("lengths", PACK_SEQUENCES_MAX, PACK_SEQUENCES_MAX).is_ok());
        let error = check_count("lengths", PACK_SEQUENCES_MAX + 1, PACK_SEQUENCES_MAX).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        assert!(balance(&[1.0], PACK_WORKERS_MAX).is_ok() && StreamPacker::new(1, PACK_WORKERS_MAX).is_ok());
        for error in [
            balance(&[1.0], PACK_WORKERS_MAX + 1).unwrap_err(),
            StreamPacker::new(1, PACK_WORKERS_MAX + 1).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::LimitExceeded);
        }
    }

    #[test]
    fn bad_arguments_are_refused_by_name() {
        let detail = |error: Error| error.detail().to_owned();
        let long = pack(&[3, 9], 8, PackStrategy::FirstFit).unwrap_err();
        assert_eq!(detail(long), "lengths must be at most 8: got 9 at 1");
        assert_eq!(detail(balance(&[1.0, f64::NAN], 2).unwrap_err()), "costs must be >= 0: got NaN at 1");
        assert_eq!(detail(balance(&[], 0).unwrap_err()), "numWorkers must be >= 1: got 0");
        assert_eq!(detail(StreamPacker::new(1, 0).unwrap_err()), "maxOpen must be >= 1: got 0");
        let mut packer = StreamPacker::new(4, 1).unwrap();
        assert_eq!(detail(packer.push(0, 5).unwrap_err()), "length must be at most 4: got 5");
        assert!(packer.flush().is_empty());
    }

    #[test]
    fn the_set_finds_the_next_larger_number_over_every_level() {
        let mut set = SpaceSet::new(300_000);
        for number in [0, 63, 64, 4095, 4096, 299_999, 300_000] {
            set.insert(number);
        }
        let found: Vec<_> =
            [0, 1, 64, 65, 4096, 4097, 300_000, 300_001].map(|from| set.at_least(from)).to_vec();
        let some = |number| Some(number);
        let expected =
            [some(0), some(63), some(64), some(4095), some(4096), some(299_999), some(300_000), None];
        assert_eq!(found, expected);
        set.remove(4095);
        assert_eq!(set.at_least(65), Some(4096));
        set.remove(4096);
        assert_eq!(set.at_least(65), Some(299_999));
    }
}
