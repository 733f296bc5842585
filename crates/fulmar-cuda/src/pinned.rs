//! Pinned memory of the host: the driver copies it from and to a GPU while the host works on.
//!
//! Memory that is not pinned is copied through memory of the driver, for which the host may wait.

use std::mem::MaybeUninit;
use std::sync::{Mutex, PoisonError};

use cudarc::driver::{result, sys};

use crate::card::Lane;
use crate::context::{Outcome, failed};
use crate::ring::{RING_BYTES, Ring};

/// Bytes of the longest piece that is copied at once: a longer copy has several.
pub const PIECE_BYTES: usize = 1 << 20;

/// The pinned memory of one GPU: a ring for each stream, as copies of one do not end in the order of the other, and two pieces for copies to
/// the host. A thread may wait for the GPU while it has one of the locks, as the GPU waits for no thread.
pub struct Pinned {
    of_work: Mutex<Ring>,
    of_copies: Mutex<Ring>,
    landing: Mutex<Landing>,
}

/// Two pieces: one is copied from the GPU while the host reads the other.
struct Landing {
    stream: sys::CUstream,
    pieces: [Piece; 2],
}

struct Piece {
    memory: *mut u8,
    /// Recorded after the copy.
    copied: sys::CUevent,
}

// SAFETY: the memory and the handles may be used by any thread, and are never freed.
unsafe impl Send for Landing {}

impl Pinned {
    /// Allocates the memory, which is never freed.
    pub fn allocate(work: sys::CUstream, copies: sys::CUstream) -> Outcome<Self> {
        let event = || {
            result::event::create(sys::CUevent_flags::CU_EVENT_DISABLE_TIMING)
                .map_err(failed("cuEventCreate"))
        };
        let events = [event()?, event()?];
        // SAFETY: the ranges are within the memory and have nothing in common; the streams live as long as the process.
        unsafe {
            let memory = result::malloc_host(2 * (RING_BYTES + PIECE_BYTES), 0)
                .map_err(failed("cuMemHostAlloc"))?
                .cast::<u8>();
            let pieces = memory.add(2 * RING_BYTES);
            let piece =
                |index: usize| Piece { memory: pieces.add(index * PIECE_BYTES), copied: events[index] };
            Ok(Self {
                of_work: Mutex::new(Ring::new(work, memory)),
                of_copies: Mutex::new(Ring::new(copies, memory.add(RING_BYTES))),
                landing: Mutex::new(Landing { stream: work, pieces: [piece(0), piece(1)] }),
            })
        }
    }

    /// Queues a copy to the GPU. The bytes may change when this returns. Waits for copies that were queued before where there is no room.
    pub fn send(&self, to: u64, from: &[u8], lane: Lane) -> Outcome<()> {
        let ring = match lane {
            Lane::Work => &self.of_work,
            Lane::Copies => &self.of_copies,
        };
        for (to, piece) in (to..).step_by(PIECE_BYTES).zip(from.chunks(PIECE_BYTES)) {
            ring.lock().unwrap_or_else(PoisonError::into_inner).send(to, piece)?;
        }
        Ok(())
    }

    /// Copies bytes of the GPU in the order of the stream of work, and waits for them.
    pub fn receive(&self, to: &mut [MaybeUninit<u8>], from: u64) -> Outcome<()> {
        let landing = self.landing.lock().unwrap_or_else(PoisonError::into_inner);
        let received = landing.receive(to, from);
        if received.is_err() {
            // A copy that is queued still writes to its piece. A stream that cannot be waited for is lost.
            // SAFETY: the stream lives.
            let _ = unsafe { result::stream::synchronize(landing.stream) };
        }
        received
    }
}

impl Landing {
    fn receive(&self, to: &mut [MaybeUninit<u8>], from: u64) -> Outcome<()> {
        let mut begun = None;
        let parts = (from..).step_by(PIECE_BYTES).zip(to.chunks_mut(PIECE_BYTES));
        for (piece, (from, part)) in self.pieces.iter().cycle().zip(parts) {
            piece.begin(from, part.len(), self.stream)?;
            if let Some((piece, part)) = begun.replace((piece, part)) {
                piece.end(part)?;
            }
        }
        begun.map_or(Ok(()), |(piece, part)| piece.end(part))
    }
}

impl Piece {
    /// Queues a copy to the piece.
    fn begin(&self, from: u64, bytes: usize, stream: sys::CUstream) -> Outcome<()> {
        // SAFETY: the piece has that many bytes, and its last copy was waited for; the caller owns them on the GPU.
        unsafe {
            sys::cuMemcpyDtoHAsync_v2(self.memory.cast(), from, bytes, stream)
                .result()
                .map_err(failed("cuMemcpyDtoHAsync"))?;
            result::event::record(self.copied, stream).map_err(failed("cuEventRecord"))
        }
    }

    /// Waits for the copy and takes its bytes.
    fn end(&self, to: &mut [MaybeUninit<u8>]) -> Outcome<()> {
        // SAFETY: the event lives; the piece has as many bytes as were copied.
        unsafe {
            result::event::synchronize(self.copied).map_err(failed("cuEventSynchronize"))?;
            to.as_mut_ptr().copy_from_nonoverlapping(self.memory.cast(), to.len());
        }
        Ok(())
    }
}
