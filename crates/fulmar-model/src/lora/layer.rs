//! The adapters of one layer: forward and backward.

use std::collections::BTreeMap;

use fulmar_compute::{Compute, Floats, MatRef, View, ViewMut};

use super::{MergedWeights, Pair};
use crate::parameters::Linear;

/// The adapter of one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerLora<'a> {
    pub(super) pairs: &'a BTreeMap<&'static str, Pair>,
    pub(super) weights: View<'a, f32>,
    pub(super) merged: MergedWeights<'a>,
    pub(super) scaling: f32,
    pub(super) rank: usize,
    pub(super) compute: Compute,
}

impl<'a> LayerLora<'a> {
    /// Returns the transposed sum of the weight of `linear` and its adapter, if it has one.
    pub(crate) fn merged(&self, linear: &Linear) -> Option<MatRef<'a>> {
        self.merged.get(linear)
    }

    /// Adds the gradient through the adapter of `linear` to `d_in`, and the gradients of its matrices to
    /// `gradients`.
    pub(crate) fn backward(
        &self,
        linear: &Linear,
        d_out: View<'_, f32>,
        input: Floats<'_>,
        d_in: ViewMut<'_, f32>,
        mut gradients: ViewMut<'_, f32>,
    ) {
        let Some(Pair { a, b }) = self.pairs.get(linear.name) else { return };
        let (compute, rank, rows) = (self.compute, self.rank, d_out.len() / linear.outputs);
        let memory =
            (compute.workspace(rows * rank), compute.workspace(rows * rank), compute.workspace(b.len()));
        let (Some(mut inner), Some(mut d_inner), Some(mut scaled)) = memory else { return };
        let (d_out, input) =
            (MatRef::new(d_out, rows, linear.outputs), MatRef::of(input, rows, linear.inputs));
        let of_a = MatRef::new(self.weights.slice(a.clone()), rank, linear.inputs);
        // s input A^T
        compute.matmul(&mut inner, input, of_a.transposed(), false);
        compute.scale(&mut inner, self.scaling);
        let of_inner = MatRef::new(&inner, rows, rank);
        compute.matmul(gradients.reborrow().slice(b.clone()), d_out.transposed(), of_inner, true);
        compute.copy(self.weights.slice(b.clone()), &mut scaled);
        compute.scale(&mut scaled, self.scaling);
        compute.matmul(&mut d_inner, d_out, MatRef::new(&scaled, linear.outputs, rank), false);
        let of_d_inner = MatRef::new(&d_inner, rows, rank);
        compute.matmul(gradients.slice(a.clone()), of_d_inner.transposed(), input, true);
        compute.matmul(d_in, of_d_inner, of_a, true);
    }
}
