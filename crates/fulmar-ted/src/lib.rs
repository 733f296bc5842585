//! Steps of a ring in TorchRL's format on disk: each trajectory's observations once.
//!
//! In memory a dictionary of steps holds step t at its root and step t + 1 below `"next"`, so inside a
//! trajectory every observation is stored twice. The flat form keeps `N` steps as `N` rewards, ends and
//! actions, and as `N` observations plus one after each trajectory, its last. The nested form is the same
//! with one ragged row a trajectory. Both begin with the oldest step.
//!
//! Only written steps are exported: missing steps are zeros in both forms.

mod flat;
mod hdf5;
mod layout;
mod nested;
mod ring;
mod split;

pub use flat::{flat_to_ted, ted_to_flat};
pub use fulmar_core::Result;
pub use hdf5::{Hdf5Attributes, Hdf5File, Hdf5Group, read_hdf5, write_hdf5, write_hdf5_with_texts};
pub use nested::{nested_to_ted, ted_to_nested};
pub use ring::{Ring, TedKeys};
pub use split::{hdf5_combine, hdf5_split};
