// The face of how `fulmar-model` cuts and packs batches, once for Node and for WebAssembly: each includes this table into its own
// `model/batches.rs`, see `bindings/faces/tensor.rs`.

use fulmar::core::{Result as CoreResult, index_from_f64 as index, options_from_json};
use fulmar::model::{self, Groups, PaddedTokenBatch};

face! {
    /// Groups of items: one group for each row, or for each worker.
    PackPlan(Groups)
    make {
        /// Packs sequences into rows of `capacity` tokens.
        fn pack as pack(lengths: &[u32], capacity: f64, strategy_json: Option<String>) {{
            let strategy = strategy_json.map(|json| options_from_json("strategy", &json)).transpose()?;
            model::pack(lengths, index("capacity", capacity)?, strategy.unwrap_or_default())
        }}
        /// Distributes items over workers.
        fn balance as balance(costs: &[f64], num_workers: f64) {
            model::balance(costs, index("numWorkers", num_workers)?)
        }
    }
    call {
        /// Returns the indices of the items.
        fn items as items() -> (Uint32Array) { |plan| CoreResult::Ok(plan.items.clone()) }
        /// Returns the bounds of the groups.
        fn offsets as offsets() -> (Uint32Array) { |plan| CoreResult::Ok(plan.offsets.clone()) }
    }
}

face! {
    /// Packs sequences as they come.
    StreamPacker(model::StreamPacker)
    make {
        /// A packer without sequences.
        fn create as create(capacity: f64, max_open: f64) {
            model::StreamPacker::new(index("capacity", capacity)?, index("maxOpen", max_open)?)
        }
    }
    call {
        /// Adds an item. Returns the items of the row that this completes, or an empty array.
        fn push as push(item: u32, length: f64) -> (Uint32Array) {
            |packer| Ok(packer.push(item, index("length", length)?)?.unwrap_or_default())
        }
        /// Returns the rows that are still open.
        fn flush as flush() -> (PackPlan) {
            |packer| {
                let mut plan = Groups { items: Vec::new(), offsets: vec![0] };
                for row in packer.flush() {
                    plan.items.extend(row);
                    plan.offsets.push(plan.items.len() as u32);
                }
                CoreResult::Ok(plan)
            }
        }
    }
}

face! {
    /// A batch of padded rows with the padding removed.
    UnpaddedTokenBatch(model::UnpaddedTokenBatch)
    make {
        /// Removes the padding; empty `positions` count from each row's first token.
        fn create as create(ids: &[u32], attention_mask: &[u8], mask: &[u8], positions: &[u32], width: f64) {{
            let positions = (!positions.is_empty()).then_some(positions);
            let width = index("width", width)?;
            model::UnpaddedTokenBatch::new(&PaddedTokenBatch { ids, attention_mask, mask, positions, width })
        }}
    }
    call {
        /// Returns the token ids.
        fn ids as ids() -> (Uint32Array) { |batch| CoreResult::Ok(batch.batch().ids.to_vec()) }
        /// Returns the bounds of the sequences.
        fn offsets as offsets() -> (Uint32Array) { |batch| CoreResult::Ok(batch.batch().offsets.to_vec()) }
        /// Returns the mask of the tokens to score.
        fn mask as mask() -> (Uint8Array) { |batch| CoreResult::Ok(batch.batch().mask.to_vec()) }
        /// Returns the position of each token; empty if positions are counted.
        fn positions as positions() -> (Uint32Array) {
            |batch| CoreResult::Ok(batch.batch().positions.unwrap_or_default().to_vec())
        }
        /// Returns one value per token in padded rows.
        fn pad as pad(values: &[f32]) -> (Float32Array) { |batch| batch.pad(values) }
        /// Returns padded rows as one value per token.
        fn unpad as unpad(padded: &[f32]) -> (Float32Array) { |batch| batch.unpad(padded) }
    }
}
