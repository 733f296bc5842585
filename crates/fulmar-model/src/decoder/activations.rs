//! Activations that a forward pass keeps for its backward pass.

use std::sync::{Mutex, PoisonError};

use fulmar_compute::{Memory, RopeTable};

use crate::head::HeadActivations;
use crate::layer::{LayerActivations, Scratch, Workspace};
use crate::packing::{Packed, Read};

/// The activations of a forward pass. Their memory is reused.
#[derive(Debug, Clone, Default)]
pub(crate) struct Activations {
    pub(super) packed: Packed,
    pub(super) num_tokens: usize,
    /// The activations of each layer, or of one layer that all share.
    pub(super) layers: Vec<LayerActivations>,
    /// The input of each layer, if only inputs are stored.
    pub(super) inputs: Vec<Memory<f32>>,
    pub(super) x: Memory<f32>,
    pub(super) head: HeadActivations,
    pub(super) rope: Option<RopeTable>,
    pub(super) workspace: Workspace,
    pub(super) scratch: Scratch,
    /// The kind of forward pass whose backward pass may follow.
    pub(super) ready: Option<Read>,
    /// `true` if layers run without their adapters; no backward pass follows then.
    pub(super) without_adapter: bool,
}

/// Most bytes of activations that are kept between passes that store none for a backward pass.
const SPARE_BYTES_MAX: usize = 1 << 28;

/// The memory of passes that store no activations for a backward pass, used again by the next one.
#[derive(Debug, Default)]
pub(crate) struct Spare(Mutex<Activations>);

impl Spare {
    /// Runs a pass. One that runs at the same time as another gets memory of its own.
    pub(super) fn with<T>(&self, pass: impl FnOnce(&mut Activations) -> T) -> T {
        let lock = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut activations = std::mem::take(&mut *lock());
        let result = pass(&mut activations);
        if activations.num_bytes() <= SPARE_BYTES_MAX {
            *lock() = activations;
        }
        result
    }
}

/// A copy has memory of its own.
impl Clone for Spare {
    fn clone(&self) -> Self {
        Self::default()
    }
}

/// The activations that a forward pass stores for its backward pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CheckpointPolicy {
    All,
    /// The inputs of layers: the backward pass recomputes the rest.
    Inputs,
    Nothing,
}

impl Activations {
    /// Allocates `layers` layers and frees the memory of another policy.
    pub(super) fn resize(&mut self, policy: CheckpointPolicy, layers: usize) {
        let (num_layers, inputs) = match policy {
            CheckpointPolicy::All => (layers, 0),
            CheckpointPolicy::Inputs => (1, layers),
            CheckpointPolicy::Nothing => (1, 0),
        };
        if self.layers.len() != num_layers {
            self.layers = vec![LayerActivations::default(); num_layers];
        }
        if self.inputs.len() != inputs {
            self.inputs = vec![Memory::default(); inputs];
        }
    }

    pub(super) fn num_bytes(&self) -> usize {
        let layers = self.layers.iter().map(LayerActivations::num_bytes).sum::<usize>();
        let inputs = self.inputs.iter().map(Memory::num_bytes).sum::<usize>();
        let shared = self.workspace.num_bytes() + self.scratch.num_bytes();
        layers + inputs + self.x.num_bytes() + self.head.num_bytes() + shared
    }
}
