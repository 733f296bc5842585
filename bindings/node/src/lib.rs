//! The Node face.
