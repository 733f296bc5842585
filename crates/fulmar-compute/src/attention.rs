//! Inputs and results of attention that its backward pass reads, and the widths of heads that it has in bfloat16.

use crate::{Compute, Floats, View, cuda};

impl Compute {
    /// Returns whether [`Compute::attention`] takes queries, keys and values in bfloat16 for heads of `head_dim`: on a GPU for some
    /// widths, on the CPU for none.
    #[must_use]
    pub fn attends_in_bf16(self, head_dim: usize) -> bool {
        matches!(self, Self::Cuda(_)) && cuda::HEAD_WIDTHS.contains(&head_dim)
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
