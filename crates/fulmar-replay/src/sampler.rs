//! Samplers: which rows a batch takes.

pub(crate) mod consuming;
pub(crate) mod prioritized;
pub(crate) mod random;
pub(crate) mod without_replacement;
