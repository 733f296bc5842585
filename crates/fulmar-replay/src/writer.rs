//! Writers: which rows new items go to.

pub(crate) mod immutable;
pub(crate) mod max_value;
pub(crate) mod round_robin;
