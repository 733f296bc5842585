//! Samplers: which rows a batch takes.

pub(crate) mod consuming;
pub(crate) mod prioritized;
pub(crate) mod prioritized_slice;
pub(crate) mod prompt_group;
pub(crate) mod random;
pub(crate) mod slice;
pub(crate) mod slice_without_replacement;
pub(crate) mod staleness;
pub(crate) mod without_replacement;
