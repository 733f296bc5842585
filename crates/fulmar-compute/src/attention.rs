//! Inputs and results of attention that its backward pass reads, keys as it reads them, and the widths of heads that it has in
//! bfloat16.

use crate::{Compute, FloatMemory, Floats, Memory, RowNumbers, View, cuda};

impl Compute {
    /// Returns whether [`Compute::attention`] takes queries in bfloat16, with keys and values, for heads of `head_dim`: on a GPU for some
    /// widths, on the CPU for none.
    #[must_use]
    pub fn attends_in_bf16(self, head_dim: usize) -> bool {
        matches!(self, Self::Cuda(_)) && cuda::HEAD_WIDTHS.contains(&head_dim)
    }

    /// Returns the elements of a cache of `rows` keys of `width` elements, as [`Compute::attention`] reads them: blocks of 16 rows on
    /// the CPU, rows on a GPU.
    #[must_use]
    pub const fn key_floats(self, rows: usize, width: usize) -> usize {
        match self {
            Self::Cpu => fulmar_kernel::key_block_floats(rows, width),
            Self::Cuda(_) => rows * width,
        }
    }

    /// Writes keys of `width` elements over the rows of a cache with these numbers, or on the CPU rounds them to one in bfloat16.
    /// Rows of one number must be equal.
    ///
    /// # Panics
    /// If elements in bfloat16 are to become wider ones, which is a bug of the caller.
    pub fn put_keys(self, from: &FloatMemory, width: usize, rows_n: &RowNumbers, cache: &mut FloatMemory) {
        match (from, cache) {
            (FloatMemory::F32(from), FloatMemory::F32(cache)) => {
                self.put_key_rows(from, width, rows_n, cache);
            }
            (FloatMemory::F32(from), FloatMemory::Bf16(cache)) => {
                self.put_rounded_key_rows(from, width, rows_n, cache);
            }
            (from, cache) => self.put_float_rows(from, width, rows_n, cache),
        }
    }

    /// Returns the rows of `keys`, of `width` elements, as [`Compute::attention`] reads them: on the CPU a copy in `room`.
    pub fn keys_in<'a>(self, room: &'a mut Memory<f32>, keys: Floats<'a>, width: usize) -> Floats<'a> {
        match (self, keys) {
            (Self::Cpu, Floats::F32(rows)) => {
                self.resize(room, self.key_floats(rows.len() / width, width));
                self.fill_key_blocks(rows, width, width, &mut *room);
                Floats::F32(room.view())
            }
            _ => keys,
        }
    }
}

/// Inputs and results of a forward pass of attention, all in single precision or, on a GPU, in bfloat16.
#[derive(Debug, Clone, Copy)]
pub struct AttentionSaved<'a> {
    /// Queries `[N, H * E]`.
    pub q: Floats<'a>,
    /// Keys `[N, K * E]`.
    pub keys: Floats<'a>,
    /// Values `[N, K * E]`.
    pub values: Floats<'a>,
    /// Outputs `[N, H * E]`.
    pub out: Floats<'a>,
    /// `m` and `L` `[N, H, 2]`.
    pub log_sum: View<'a, f32>,
}

impl<'a> AttentionSaved<'a> {
    /// Returns the same in main memory.
    ///
    /// # Panics
    /// If a part is on a GPU, which is a bug of the caller.
    #[must_use]
    pub fn cpu(self) -> fulmar_kernel::AttentionSaved<'a> {
        fulmar_kernel::AttentionSaved {
            q: self.q.f32().cpu(),
            keys: self.keys.f32().cpu(),
            values: self.values.f32().cpu(),
            out: self.out.f32().cpu(),
            log_sum: self.log_sum.cpu(),
        }
    }
}
