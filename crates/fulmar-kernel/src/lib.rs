//! CPU mathematics over slices: forward and backward passes of a decoder, each beside its reference.
