//! Fills a prioritised buffer on disk, samples from it, and opens it again with the rows that it had.
//!
//! Run it with `cargo run -p fulmar --example durable_buffer`.

#![expect(clippy::print_stdout, reason = "an example prints")]

use fulmar::core::Result;
use fulmar::replay::{
    DurableStorage, DurableStorageOptions, PrioritizedOptions, ReplayBuffer, ReplayBufferOptions,
    SamplerOptions,
};
use fulmar::store::FsDisk;
use fulmar::tensor::{Tensor, TensorDict};

fn main() -> Result<()> {
    let folder = std::env::temp_dir().join(format!("fulmar-durable-{}", std::process::id()));
    {
        let mut buffer = open(&folder)?;
        let mut items = TensorDict::new(&[100])?;
        items.set("reward", Tensor::from_vec_f32(&[100], (0..100).map(|row| row as f32).collect())?)?;
        // When this returns, the rows survive a crash of the machine.
        buffer.extend(&items)?;
        // The sampler prefers rows 90 to 99 from here on.
        let rows: Vec<i64> = (0..100).collect();
        let priorities: Vec<f32> = rows.iter().map(|row| if *row >= 90 { 10.0 } else { 0.1 }).collect();
        buffer.update_priority(&rows, &priorities)?;
        let batch = buffer.sample(Some(64))?;
        let preferred = batch.rows.iter().filter(|row| **row >= 90).count();
        println!(
            "{preferred} of 64 rows are from 90 on; weights {:?}",
            batch.items.tensor("priority_weight")?.shape()
        );
        assert!(preferred > 32, "priorities must count");
    }
    let mut again = open(&folder)?;
    let found = again.sample(Some(8))?;
    println!("opened again: {} rows, {:?}", again.len(), found.items.tensor("reward")?.shape());
    assert_eq!(again.len(), 100);
    drop(again);
    let _ = std::fs::remove_dir_all(folder);
    Ok(())
}

fn open(folder: &std::path::Path) -> Result<ReplayBuffer> {
    let storage = DurableStorage::open(FsDisk::new(folder)?, &[1_000], DurableStorageOptions::default())?;
    let sampler = SamplerOptions::Prioritized { priorities: PrioritizedOptions::default() };
    ReplayBuffer::new(Box::new(storage), ReplayBufferOptions { sampler, ..ReplayBufferOptions::default() })
}
