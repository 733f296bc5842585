//! A decoder language model: forward and backward side by side, batched generation, optimiser.
