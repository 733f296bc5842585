//! Writes a folder for each checkpoint format and each part of a buffer that TorchRL has too, with a full
//! ring and one that is not: `cargo run -p fulmar-replay-files --example checkpoints -- FOLDER`.
//! `scripts/checkpoints-in-torchrl.py` loads them there.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_replay::{
    CompressedListStorage, ReplayBuffer, ReplayBufferOptions, Storage, StorageCheckpointer, TensorStorage,
};
use fulmar_replay_files::{
    CompressedListStorageCheckpointer, FlatStorageCheckpointer, H5StorageCheckpointer,
    NestedStorageCheckpointer, TensorStorageCheckpointer,
};
use fulmar_tensor::{Tensor, TensorDict};
use serde_json::{Value, json};

const CAPACITY: usize = 8;

fn main() -> Result<()> {
    let Some(folder) = std::env::args().nth(1).map(std::path::PathBuf::from) else {
        return Err(Error::new(ErrorKind::Empty, "an argument must name the folder to make"));
    };
    std::fs::create_dir(&folder)?;
    let forms: [(&str, Box<dyn StorageCheckpointer>); 4] = [
        ("tensor", Box::new(TensorStorageCheckpointer)),
        ("flat", Box::<FlatStorageCheckpointer>::default()),
        ("nested", Box::<NestedStorageCheckpointer>::default()),
        ("h5", Box::<H5StorageCheckpointer>::default()),
    ];
    for (name, form) in &forms {
        for count in [5, 8, 11] {
            let buffer = filled(Box::new(TensorStorage::new(&[CAPACITY])?), count, &json!({}))?;
            buffer.dumps(folder.join(format!("{name}_{count}")), &**form)?;
        }
    }
    let parts = [
        ("prioritized", json!({ "sampler": { "kind": "prioritized" } })),
        ("without_replacement", json!({ "sampler": { "kind": "withoutReplacement" } })),
        ("generations", json!({ "writer": { "kind": "roundRobin", "trackGenerations": true } })),
        ("max_value", json!({ "writer": { "kind": "maxValue" } })),
    ];
    for (name, options) in parts {
        for count in [5, 11] {
            let mut buffer = filled(Box::new(TensorStorage::new(&[CAPACITY])?), count, &options)?;
            buffer.update_priority(&[0, 1, 2, 3, 4], &[0.5, 1.5, 2.5, 3.5, 4.5])?;
            buffer.sample(Some(2))?;
            buffer.dumps(folder.join(format!("{name}_{count}")), &TensorStorageCheckpointer)?;
        }
    }
    let mut buffer = filled(Box::new(CompressedListStorage::new(CAPACITY, 3)?), 0, &json!({}))?;
    for step in 0..5 {
        // Upstream neither writes nor loads nested dictionaries in compressed rows.
        buffer.add(&item(step)?.exclude(&["next".into()]))?;
    }
    buffer.dumps(folder.join("compressed_5"), &CompressedListStorageCheckpointer::default())
}

fn filled(storage: Box<dyn Storage>, count: usize, options: &Value) -> Result<ReplayBuffer> {
    let mut options: ReplayBufferOptions = fulmar_core::options_from_json("options", &options.to_string())?;
    // Upstream's buffer takes the batch size from the folder, even if it has none.
    options.batch_size = Some(2);
    let mut buffer = ReplayBuffer::new(storage, options)?;
    for step in 0..count {
        buffer.add(&item(step)?)?;
    }
    Ok(buffer)
}

/// Returns step `step` of trajectories of length 3, with observations 100 apart.
fn item(step: usize) -> Result<TensorDict> {
    let (observation, ends) = ((step % 3 + step / 3 * 100) as f32, step % 3 == 2);
    let mut item = TensorDict::new(&[])?;
    item.set("observation", Tensor::from_vec_f32(&[2], vec![observation; 2])?)?;
    item.set("action", Tensor::from_vec(&[], vec![step as i64])?)?;
    for flag in ["done", "terminated", "truncated"] {
        item.set(flag, Tensor::zeros(Dtype::Bool, &[1])?)?;
        item.set(["next", flag], Tensor::from_vec(&[1], vec![ends && flag != "truncated"])?)?;
    }
    item.set(["next", "observation"], Tensor::from_vec_f32(&[2], vec![observation + 1.0; 2])?)?;
    item.set(["next", "reward"], Tensor::from_vec_f32(&[1], vec![step as f32 / 2.0])?)?;
    Ok(item)
}
