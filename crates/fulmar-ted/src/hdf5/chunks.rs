//! Deflated chunks of a data set, inflated by all threads.
//!
//! The crate inflates chunk after chunk. A band is all chunks of the same rows: its elements are one part of the result, so
//! threads fill bands without sharing any.

use std::fs::File;

use flate2::{Decompress, FlushDecompress, Status};
use fulmar_core::read_exact_at;
use hdf5_pure::Dataset;
use rayon::prelude::*;

/// Filters by their numbers in HDF5.
const DEFLATE: u16 = 1;
const SHUFFLE: u16 = 2;

/// Most bytes of a chunk: each thread has memory for a few.
const CHUNK_BYTES_MAX: usize = 1 << 26;

/// The bytes that data sets are read from.
#[derive(Clone, Copy)]
pub(super) enum Source<'a> {
    Memory(&'a [u8]),
    File(&'a File),
}

impl Source<'_> {
    fn read<'b>(&'b self, offset: u64, len: usize, buffer: &'b mut Vec<u8>) -> Option<&'b [u8]> {
        match self {
            Source::Memory(bytes) => {
                let start = usize::try_from(offset).ok()?;
                bytes.get(start..start.checked_add(len)?)
            }
            Source::File(file) => {
                buffer.resize(len, 0);
                read_exact_at(file, offset, buffer).ok()?;
                Some(buffer)
            }
        }
    }
}

/// Fills `out` with the elements of a data set whose chunks are deflated, and shuffled before or not. Returns `None` where it is stored
/// in another way or damaged: the crate reads it then, or reports what is wrong.
pub(super) fn fill(
    data: &Dataset,
    shape: &[usize],
    element_bytes: usize,
    source: Source<'_>,
    out: &mut [u8],
) -> Option<()> {
    let grid = Grid::of(data, shape, element_bytes)?;
    let slots = grid.slots(data)?;
    out.par_chunks_mut(grid.band_bytes)
        .zip(slots.par_chunks(grid.chunks_per_band))
        .try_for_each_init(Scratch::default, |scratch, (band, slots)| grid.fill(band, slots, source, scratch))
}

/// The division of a data set into chunks.
struct Grid {
    shape: Vec<usize>,
    chunk: Vec<usize>,
    /// Number of chunks along each dimension.
    counts: Vec<usize>,
    element_bytes: usize,
    chunk_bytes: usize,
    band_bytes: usize,
    chunks_per_band: usize,
    is_shuffled: bool,
}

/// Place and length of a chunk in the file.
#[derive(Clone, Copy)]
struct Slot {
    address: u64,
    len: usize,
}

/// Memory of a thread.
struct Scratch {
    inflater: Decompress,
    stored: Vec<u8>,
    inflated: Vec<u8>,
    chunk: Vec<u8>,
}

impl Default for Scratch {
    fn default() -> Self {
        Self { inflater: Decompress::new(true), stored: Vec::new(), inflated: Vec::new(), chunk: Vec::new() }
    }
}

impl Grid {
    fn of(data: &Dataset, shape: &[usize], element_bytes: usize) -> Option<Self> {
        let is_shuffled = match *data.filters() {
            [DEFLATE] => false,
            [SHUFFLE, DEFLATE] => element_bytes > 1,
            _ => return None,
        };
        let chunk = data.chunk_shape().ok()??;
        let chunk = chunk.into_iter().map(usize::try_from).collect::<Result<Vec<_>, _>>().ok()?;
        if chunk.len() != shape.len() || chunk.is_empty() || chunk.contains(&0) || shape.contains(&0) {
            return None;
        }
        let chunk_bytes = product(&chunk)?.checked_mul(element_bytes)?;
        if chunk_bytes > CHUNK_BYTES_MAX {
            return None;
        }
        let counts: Vec<_> = shape.iter().zip(&chunk).map(|(len, part)| len.div_ceil(*part)).collect();
        let band_bytes = product(&shape[1..])?.checked_mul(chunk[0])?.checked_mul(element_bytes)?;
        let chunks_per_band = product(&counts[1..])?;
        let shape = shape.to_vec();
        Some(Self {
            shape,
            chunk,
            counts,
            element_bytes,
            chunk_bytes,
            band_bytes,
            chunks_per_band,
            is_shuffled,
        })
    }

    /// Returns the chunks in the order of their places in the data set, if all are there and filtered.
    fn slots(&self, data: &Dataset) -> Option<Vec<Slot>> {
        let chunks = data.chunks().ok()?;
        if Some(chunks.len()) != product(&self.counts) {
            return None;
        }
        let mut slots: Vec<Option<Slot>> = vec![None; chunks.len()];
        for chunk in chunks {
            let slot = slots.get_mut(self.position(&chunk.offset)?)?;
            let len = usize::try_from(chunk.storage_size).ok()?;
            if slot.is_some() || chunk.filter_mask != 0 || len > 2 * CHUNK_BYTES_MAX {
                return None;
            }
            *slot = Some(Slot { address: chunk.address, len });
        }
        slots.into_iter().collect()
    }

    /// Returns the number of the chunk that begins at `offset`.
    fn position(&self, offset: &[u64]) -> Option<usize> {
        if offset.len() != self.chunk.len() {
            return None;
        }
        let mut position = 0;
        for ((start, part), count) in offset.iter().zip(&self.chunk).zip(&self.counts) {
            let start = usize::try_from(*start).ok()?;
            if start % part != 0 || start / part >= *count {
                return None;
            }
            position = position * count + start / part;
        }
        Some(position)
    }

    fn fill(&self, band: &mut [u8], slots: &[Slot], source: Source<'_>, scratch: &mut Scratch) -> Option<()> {
        let Scratch { inflater, stored, inflated, chunk } = scratch;
        for (number, slot) in slots.iter().enumerate() {
            let stored = source.read(slot.address, slot.len, stored)?;
            if self.chunks_per_band == 1 && !self.is_shuffled && band.len() == self.chunk_bytes {
                inflate(inflater, stored, band)?;
                continue;
            }
            inflated.resize(self.chunk_bytes, 0);
            inflate(inflater, stored, inflated)?;
            if self.is_shuffled {
                chunk.resize(self.chunk_bytes, 0);
                unshuffle(inflated, chunk, self.element_bytes);
            }
            self.place(if self.is_shuffled { chunk } else { inflated }, number, band);
        }
        Some(())
    }

    /// Copies the elements of chunk `number` of a band to their places; those beyond the data set are left out.
    fn place(&self, chunk: &[u8], mut number: usize, band: &mut [u8]) {
        let (mut start, mut from_bytes, mut to_bytes) = (0, self.element_bytes, self.element_bytes);
        let mut steps = Vec::with_capacity(self.chunk.len());
        for dim in (1..self.chunk.len()).rev() {
            let first = number % self.counts[dim] * self.chunk[dim];
            number /= self.counts[dim];
            steps.push(Step { len: self.chunk[dim].min(self.shape[dim] - first), from_bytes, to_bytes });
            start += first * to_bytes;
            from_bytes *= self.chunk[dim];
            to_bytes *= self.shape[dim];
        }
        steps.push(Step { len: band.len() / to_bytes, from_bytes, to_bytes });
        steps.reverse();
        copy(chunk, &mut band[start..], &steps);
    }
}

/// A dimension of a chunk: how many of its elements are copied, and the bytes between two of them.
struct Step {
    len: usize,
    from_bytes: usize,
    to_bytes: usize,
}

fn copy(from: &[u8], to: &mut [u8], steps: &[Step]) {
    match steps {
        [rows, run] if run.len * run.from_bytes == 4 => copy_runs::<4>(from, to, rows),
        [rows, run] if run.len * run.from_bytes == 8 => copy_runs::<8>(from, to, rows),
        [rows, inner @ ..] if !inner.is_empty() => {
            let parts = from.chunks_exact(rows.from_bytes).zip(to.chunks_mut(rows.to_bytes));
            parts.take(rows.len).for_each(|(from, to)| copy(from, to, inner));
        }
        [run, ..] => {
            let num_bytes = run.len * run.from_bytes;
            to[..num_bytes].copy_from_slice(&from[..num_bytes]);
        }
        [] => {}
    }
}

/// Copies runs of so few bytes that their number is worth to be in the program.
fn copy_runs<const N: usize>(from: &[u8], to: &mut [u8], rows: &Step) {
    for (from, to) in from.chunks_exact(rows.from_bytes).zip(to.chunks_mut(rows.to_bytes)).take(rows.len) {
        to[..N].copy_from_slice(&from[..N]);
    }
}

/// Inflates a chunk of exactly the bytes of `out`, and compares its checksum.
fn inflate(inflater: &mut Decompress, stored: &[u8], out: &mut [u8]) -> Option<()> {
    inflater.reset(true);
    let status = inflater.decompress(stored, out, FlushDecompress::Finish).ok()?;
    (status == Status::StreamEnd && inflater.total_out() == out.len() as u64).then_some(())
}

/// Brings the first bytes of all elements, then the second ones and so on, back to their elements.
fn unshuffle(from: &[u8], to: &mut [u8], element_bytes: usize) {
    let num_elements = from.len() / element_bytes;
    for (byte, from) in from.chunks_exact(num_elements).enumerate() {
        for (element, from) in to.chunks_exact_mut(element_bytes).zip(from) {
            element[byte] = *from;
        }
    }
}

fn product(lens: &[usize]) -> Option<usize> {
    lens.iter().try_fold(1_usize, |product, len| product.checked_mul(*len))
}
