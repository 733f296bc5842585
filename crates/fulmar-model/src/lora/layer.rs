//! The adapters of one layer: forward and backward.

use std::collections::BTreeMap;

use fulmar_compute::{Compute, MatRef, Panels};

use super::Pair;
use crate::panels::PanelsByStart;
use crate::parameters::Linear;

/// The adapter of one layer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LayerLora<'a> {
    pub(super) pairs: &'a BTreeMap<&'static str, Pair>,
    pub(super) weights: &'a [f32],
    pub(super) panels: &'a PanelsByStart,
    pub(super) scaling: f32,
    pub(super) rank: usize,
    pub(super) compute: Compute,
}

impl<'a> LayerLora<'a> {
    /// Returns the sum of the weight of `linear` and its adapter, if it has one.
    pub(crate) fn merged(&self, linear: &Linear) -> Option<&'a Panels> {
        self.panels.get(&linear.weight.start)
    }

    /// Adds the gradient through the adapter of `linear` to `d_in`, and the gradients of its matrices to
    /// `gradients`.
    pub(crate) fn backward(
        &self,
        linear: &Linear,
        d_out: &[f32],
        input: &[f32],
        d_in: &mut [f32],
        gradients: &mut [f32],
    ) {
        let Some(Pair { a, b }) = self.pairs.get(linear.name) else { return };
        let rows = d_out.len() / linear.outputs;
        let inner = self.inner(linear, input);
        let d_out = MatRef::new(d_out, rows, linear.outputs);
        self.compute.matmul(
            &mut gradients[b.clone()],
            d_out.transposed(),
            MatRef::new(&inner, rows, self.rank),
            true,
        );
        let mut d_inner = vec![0.0; inner.len()];
        let scaled = self.scaled(&self.weights[b.clone()]);
        self.compute.matmul(&mut d_inner, d_out, MatRef::new(&scaled, linear.outputs, self.rank), false);
        let d_inner = MatRef::new(&d_inner, rows, self.rank);
        let input = MatRef::new(input, rows, linear.inputs);
        self.compute.matmul(&mut gradients[a.clone()], d_inner.transposed(), input, true);
        self.compute.matmul(
            d_in,
            d_inner,
            MatRef::new(&self.weights[a.clone()], self.rank, linear.inputs),
            true,
        );
    }

    /// Returns `s input A^T`, `[rows, r]`.
    fn inner(&self, linear: &Linear, input: &[f32]) -> Vec<f32> {
        let Some(Pair { a, .. }) = self.pairs.get(linear.name) else { return Vec::new() };
        let rows = input.len() / linear.inputs;
        let mut inner = vec![0.0; rows * self.rank];
        let a = MatRef::new(&self.weights[a.clone()], self.rank, linear.inputs).transposed();
        self.compute.matmul(&mut inner, MatRef::new(input, rows, linear.inputs), a, false);
        self.scaled(&inner)
    }

    fn scaled(&self, values: &[f32]) -> Vec<f32> {
        let mut scaled = values.to_vec();
        self.compute.scale(&mut scaled, self.scaling);
        scaled
    }
}
