//! The angles of rotary positions, with their copy on a GPU.

use std::ops::Deref;
use std::sync::Arc;

use fulmar_core::Result;
use fulmar_cuda::{Buffer, Card};
use half::bf16;

use crate::plan::OnCard;

/// [`fulmar_kernel::RopeTable`]. A GPU copies it once for each length.
///
/// # Examples
/// ```
/// use fulmar_compute::{Compute, RopeTable, rope_frequencies};
/// let mut table = RopeTable::new(rope_frequencies(2, 10_000.0));
/// table.extend_to(1);
/// let mut head = [3.0, 4.0];
/// Compute::Cpu.rotate(&table, &mut head, 1, &[0]);
/// assert_eq!(head, [3.0, 4.0]); // position 0 rotates by nothing
/// ```
#[derive(Debug, Clone)]
pub struct RopeTable {
    table: fulmar_kernel::RopeTable,
    on_card: OnCard<Buffer<f32>>,
}

impl RopeTable {
    /// Returns an empty table of [`rope_frequencies`](crate::rope_frequencies).
    #[must_use]
    pub fn new(frequencies: Vec<f64>) -> Self {
        Self { table: fulmar_kernel::RopeTable::new(frequencies), on_card: OnCard::default() }
    }

    /// Computes the angles of positions below `num_positions` that are not there yet.
    pub fn extend_to(&mut self, num_positions: usize) {
        self.table.extend_to(num_positions);
    }

    /// Returns the copy on `card`.
    pub(crate) fn on(&self, card: Card) -> Result<Arc<Buffer<f32>>> {
        let angles = self.table.angles();
        self.on_card.get(card, |copy| copy.len() == angles.len(), || card.upload(angles))
    }
}

impl Deref for RopeTable {
    type Target = fulmar_kernel::RopeTable;

    fn deref(&self) -> &fulmar_kernel::RopeTable {
        &self.table
    }
}

/// Rotates each head and rounds it to bfloat16.
pub(crate) fn rotate_rounded(
    table: &RopeTable,
    x_nhe: &[f32],
    num_heads: usize,
    positions_n: &[u32],
    out_nhe: &mut [bf16],
) {
    let mut rotated = x_nhe.to_vec();
    table.rotate(&mut rotated, num_heads, positions_n);
    fulmar_kernel::f32_to_bf16(&rotated, out_nhe);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Compute, rope_frequencies};

    #[test]
    fn rotated_heads_are_rounded_once() {
        let mut table = RopeTable::new(rope_frequencies(4, 10_000.0));
        table.extend_to(9);
        let x: Vec<f32> = (0..16).map(|at| (at as f32 * 0.7).sin()).collect();
        let (mut rotated, mut rounded) = (x.clone(), [bf16::NAN; 16]);
        Compute::Cpu.rotate(&table, &mut rotated, 2, &[3, 8]);
        Compute::Cpu.rotate_rounded(&table, &x, 2, &[3, 8], &mut rounded);
        assert!(rounded.iter().copied().eq(rotated.into_iter().map(bf16::from_f32)));
    }
}
