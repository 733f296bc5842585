//! Maps from tensors to tensors, forests of rollouts, scores of tree search, and a batched tree search.

mod binary_to_decimal;
mod forest;
mod hash_to_int;
mod key_table;
mod query_module;
mod random_projection;
mod row_bytes;
mod score;
mod search;
mod sip_hash;
mod tensor_dict_map;
mod tensor_map;
mod tree;
mod tree_builder;
mod tree_svg;

pub use binary_to_decimal::{BinaryToDecimal, BinaryToDecimalOptions};
pub use forest::{ForestNode, MctsForest, MctsForestOptions};
pub use fulmar_core::Result;
pub use hash_to_int::HashToInt;
pub use query_module::{QueryModule, QueryOptions};
pub use random_projection::{ProjectionOptions, RandomProjectionHash};
pub use score::{Score, ScoreKeys, exp3_update, weights};
pub use search::{
    Leaf, Outcome, QTransform, Search, SearchAnswer, SearchModel, SearchOptions, SearchPolicy, SearchRoot,
    TableModel, considered_visits,
};
pub use sip_hash::{RowHash, SipHash, SipHashOptions};
pub use tensor_dict_map::{TensorDictMap, TensorDictMapOptions};
pub use tensor_map::TensorMap;
pub use tree::{Paths, Tree};
