//! A ring of pinned memory, through which one stream copies to a GPU.

use std::collections::VecDeque;
use std::ops::Range;

use cudarc::driver::{result, sys};

use crate::context::{Outcome, failed};
use crate::pinned::PIECE_BYTES;

/// Bytes of a ring: four of the longest pieces, so that the GPU copies some while the host fills others.
pub const RING_BYTES: usize = 4 * PIECE_BYTES;

/// Pieces that are queued at once, at most.
const PIECES_MAX: usize = 1024;

/// Pieces begin at multiples of this number of bytes: a line of the processor's cache.
const ALIGNMENT: usize = 64;

/// Pinned memory of which a stream copies pieces. A piece is free again once the event after its copy has passed: as the stream is in
/// order, pieces become free in the order in which they were queued.
pub struct Ring {
    stream: sys::CUstream,
    memory: *mut u8,
    queued: VecDeque<Piece>,
    /// Events of pieces that are free.
    events: Vec<sys::CUevent>,
}

struct Piece {
    range: Range<usize>,
    /// Recorded after the copy.
    copied: sys::CUevent,
}

// SAFETY: the memory and the handles may be used by any thread, and are never freed.
unsafe impl Send for Ring {}

impl Ring {
    /// Returns a ring of [`RING_BYTES`] bytes.
    ///
    /// # Safety
    /// The memory is pinned, and nothing else uses it. The stream lives as long as the ring.
    pub const unsafe fn new(stream: sys::CUstream, memory: *mut u8) -> Self {
        Self { stream, memory, queued: VecDeque::new(), events: Vec::new() }
    }

    /// Queues a copy of up to [`PIECE_BYTES`] bytes, which may change when this returns. Waits for the oldest copies if the ring is full.
    pub fn send(&mut self, to: u64, from: &[u8]) -> Outcome<()> {
        let range = self.room(from.len())?;
        let copied = self.event()?;
        // SAFETY: the range is within the memory, and no copy that is queued reads it. The caller owns that many bytes on the GPU.
        unsafe {
            let piece = self.memory.add(range.start);
            piece.copy_from_nonoverlapping(from.as_ptr(), from.len());
            let piece = std::slice::from_raw_parts(piece, from.len());
            result::memcpy_htod_async(to, piece, self.stream).map_err(failed("cuMemcpyHtoDAsync"))?;
        }
        // SAFETY: the event and the stream live.
        let recorded = unsafe { result::event::record(copied, self.stream) };
        if recorded.is_err() {
            // Nothing tells when the piece is free, so it must be now.
            // SAFETY: as above.
            unsafe { result::stream::synchronize(self.stream) }.map_err(failed("cuStreamSynchronize"))?;
        }
        self.queued.push_back(Piece { range, copied });
        recorded.map_err(failed("cuEventRecord"))
    }

    /// Returns a range for a piece of `len` bytes.
    fn room(&mut self, len: usize) -> Outcome<Range<usize>> {
        loop {
            match gap(&self.queued, len) {
                Some(range) => return Ok(range),
                None => self.take_back()?,
            }
        }
    }

    /// Waits for the oldest copy, whose piece is free then.
    fn take_back(&mut self) -> Outcome<()> {
        let Some(Piece { copied, .. }) = self.queued.front() else { return Ok(()) };
        // SAFETY: the event lives.
        unsafe { result::event::synchronize(*copied) }.map_err(failed("cuEventSynchronize"))?;
        self.events.extend(self.queued.pop_front().map(|piece| piece.copied));
        Ok(())
    }

    fn event(&mut self) -> Outcome<sys::CUevent> {
        match self.events.pop() {
            Some(event) => Ok(event),
            None => result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map_err(failed("cuEventCreate")),
        }
    }
}

/// Returns free bytes behind the last piece that is queued, or else at the start of the ring; `None` if both are too few, or pieces too many.
fn gap(queued: &VecDeque<Piece>, len: usize) -> Option<Range<usize>> {
    let (Some(first), Some(last)) = (queued.front(), queued.back()) else { return Some(0..len) };
    let (first, last) = (&first.range, &last.range);
    let start = last.end.next_multiple_of(ALIGNMENT);
    let is_around = last.start < first.start;
    let end = if is_around { first.start } else { RING_BYTES };
    if queued.len() >= PIECES_MAX {
        None
    } else if start + len <= end {
        Some(start..start + len)
    } else {
        (!is_around && len <= first.start).then_some(0..len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queued(ranges: impl IntoIterator<Item = Range<usize>>) -> VecDeque<Piece> {
        ranges.into_iter().map(|range| Piece { range, copied: std::ptr::null_mut() }).collect()
    }

    #[test]
    fn a_piece_is_behind_the_last_one_or_at_the_start_and_never_over_another() {
        assert_eq!(gap(&queued([]), RING_BYTES), Some(0..RING_BYTES));
        assert_eq!(gap(&queued(Some(0..100)), 7), Some(128..135));
        let (first, last) = (128..300, RING_BYTES - 64..RING_BYTES - 1);
        assert_eq!(gap(&queued([0..300, last.clone()]), 1), None);
        assert_eq!(gap(&queued([first.clone(), last.clone()]), 128), Some(0..128));
        assert_eq!(gap(&queued([first.clone(), last]), 129), None);
        // Around the end.
        assert_eq!(gap(&queued([first.clone(), 0..64]), 64), Some(64..128));
        assert_eq!(gap(&queued([first.clone(), 0..64]), 65), None);
        assert_eq!(gap(&queued([first, 0..65]), 1), None);
    }

    #[test]
    fn a_ring_has_a_most_number_of_pieces() {
        let pieces = |count: usize| queued((0..count).map(|at| at * ALIGNMENT..at * ALIGNMENT + 4));
        assert_eq!(
            gap(&pieces(PIECES_MAX - 1), 4),
            Some((PIECES_MAX - 1) * ALIGNMENT..(PIECES_MAX - 1) * ALIGNMENT + 4)
        );
        assert_eq!(gap(&pieces(PIECES_MAX), 4), None);
    }
}
