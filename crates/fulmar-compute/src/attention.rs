//! Inputs and results of attention that its backward pass reads.

use crate::View;

/// Inputs and results of a forward pass of attention.
#[derive(Debug, Clone, Copy)]
pub struct AttentionSaved<'a> {
    /// Queries `[N, H * E]`.
    pub q: View<'a, f32>,
    /// Keys `[N, K * E]`.
    pub keys: View<'a, f32>,
    /// Values `[N, K * E]`.
    pub values: View<'a, f32>,
    /// Outputs `[N, H * E]`.
    pub out: View<'a, f32>,
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
            q: self.q.cpu(),
            keys: self.keys.cpu(),
            values: self.values.cpu(),
            out: self.out.cpu(),
            log_sum: self.log_sum.cpu(),
        }
    }
}
