//! The face of `fulmar-replay`: storages, buffers and batches.
//!
//! The table of classes and methods is `bindings/faces/replay.rs`, the same for WebAssembly.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fulmar::replay::{CheckpointerOptions, WeakReplayBuffer};
use fulmar::store::{Durability, FsDisk};
use napi::Env;
use napi::bindgen_prelude::{AsyncTask, Float64Array, FnArgs, Function, FunctionRef};
use napi_derive::napi;
use send_wrapper::SendWrapper;

use crate::error::{Result, guard};
use crate::face::{Lend, Share, face};
use crate::slot::Slot;
use crate::task::{Work, task};
use crate::tensor::{Tensor, TensorDict, TensorDictList};

include!("../../faces/replay.rs");

face! {
    /// A storage in a folder, durable across crashes.
    DurableStorage(replay::DurableStorage)
    make {
        /// Opens or creates the folder. The interval of syncs is in milliseconds: 0 syncs every write, null never.
        fn open as open(path: String, shape: &[f64], interval_ms: Option<f64>, segment_bytes: Option<f64>) {{
            let durability = match interval_ms {
                None => Durability::None,
                Some(0.0) => Durability::Sync,
                Some(interval) => Durability::Async { interval_ms: integer_from_f64("intervalMs", interval)? },
            };
            let mut options = replay::DurableStorageOptions { durability, ..Default::default() };
            if let Some(bytes) = segment_bytes {
                options.segment_bytes = u32::try_from(integer_from_f64("segmentBytes", bytes)?).unwrap_or(u32::MAX);
            }
            replay::DurableStorage::open(FsDisk::new(path)?, &indices("shape", shape)?, options)
        }}
    }
    call {
        /// Returns the storage that buffers share.
        fn storage as storage() -> (Storage) {
            |durable| CoreResult::Ok(SharedStorage::new(Box::new(durable.clone())))
        }
        /// Acknowledges all writes so far, as the durability specifies.
        fn commit as commit() -> (()) { |durable| durable.commit() }
        /// Sets the current time.
        fn tick as tick(now_ms: f64) -> (()) { |durable| durable.tick(integer_from_f64("nowMs", now_ms)?) }
        /// Makes everything durable and records the end of the rows.
        fn sync as sync() -> (()) { |durable| durable.sync() }
        /// Returns the rows that damaged files lost.
        fn damaged_rows as damagedRows() -> (Float64Array) {
            |durable| durable.damaged_rows().map(|rows| rows.into_iter().map(|row| row as f64).collect::<Vec<_>>())
        }
        /// Returns the statistics, as JSON.
        fn stats as stats() -> (String) {
            |durable| {
                let stats = durable.stats();
                CoreResult::Ok(json!({
                    "numRows": stats.num_rows, "numDamagedRows": stats.num_damaged_rows, "numGaps": stats.num_gaps,
                    "rowBytes": stats.row_bytes, "logBytes": stats.log_bytes, "numPending": stats.num_pending,
                    "numSyncs": stats.num_syncs,
                }).to_string())
            }
        }
    }
}

/// Returns a storage with rows on a server.
#[napi]
pub fn store_storage(shape: &[f64], options: String) -> Result<Storage> {
    guard(|| {
        let options = options_from_json::<replay::StoreStorageOptions>("options", &options)?;
        let storage = replay::StoreStorage::new(&indices("shape", shape)?, options)?;
        Ok(SharedStorage::new(Box::new(storage)).into())
    })
}

face! {
    /// A storage in memory-mapped files that processes share.
    LazyMemmapStorage(replay::LazyMemmapStorage)
    make {
        /// Opens the folder that options name, which is made at the first write.
        fn open as open(shape: &[f64], options: String) {
            replay::LazyMemmapStorage::new(&indices("shape", shape)?, options_from_json("options", &options)?)
        }
    }
    call {
        /// Returns the storage that buffers share.
        fn storage as storage() -> (Storage) {
            |mapped| CoreResult::Ok(SharedStorage::new(Box::new(mapped.clone())))
        }
        /// Returns the folder.
        fn path as path() -> (String) { |mapped| CoreResult::Ok(mapped.path().display().to_string()) }
        /// Removes the folder; returns whether it existed.
        fn cleanup as cleanup() -> (bool) { |mapped| mapped.cleanup() }
    }
}

/// Writes a buffer as a folder.
#[napi]
pub fn dump_replay_buffer(buffer: &ReplayBuffer, path: String, checkpointer: String) -> Result<()> {
    guard(|| {
        let checkpointer = options_from_json::<CheckpointerOptions>("checkpointer", &checkpointer)?.build();
        buffer.share()?.dumps(path, checkpointer.as_ref())
    })
}

/// Reads a buffer's folder into one of the same parts.
#[napi]
pub fn load_replay_buffer(buffer: &ReplayBuffer, path: String, checkpointer: String) -> Result<()> {
    guard(|| {
        let checkpointer = options_from_json::<CheckpointerOptions>("checkpointer", &checkpointer)?.build();
        buffer.share()?.loads(path, checkpointer.as_ref())
    })
}

/// Writes an ensemble as a folder, each of its storages in the form of `member`.
#[napi]
pub fn dump_replay_buffer_ensemble(
    ensemble: &ReplayBufferEnsemble,
    path: String,
    member: String,
) -> Result<()> {
    guard(|| ensemble.share()?.dumps(path, &ensemble_checkpointer(&member)?))
}

/// Reads an ensemble's folder into one of the same parts.
#[napi]
pub fn load_replay_buffer_ensemble(
    ensemble: &ReplayBufferEnsemble,
    path: String,
    member: String,
) -> Result<()> {
    guard(|| ensemble.lend(|ensemble| ensemble.loads(path, &ensemble_checkpointer(&member)?)))
}

fn ensemble_checkpointer(member: &str) -> CoreResult<replay::StorageEnsembleCheckpointer> {
    let member = options_from_json::<CheckpointerOptions>("checkpointer", member)?.build();
    Ok(replay::StorageEnsembleCheckpointer { member })
}

/// The buffers of this process that its threads may attach to, by id. The map keeps no buffer open.
static SHARED: Mutex<Option<HashMap<String, WeakReplayBuffer>>> = Mutex::new(None);

/// Calls `body` with the buffers that are open.
fn with_shared<R>(body: impl FnOnce(&mut HashMap<String, WeakReplayBuffer>) -> R) -> R {
    let mut shared: MutexGuard<'_, _> = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    let open = shared.get_or_insert_default();
    open.retain(|_, buffer| buffer.upgrade().is_some());
    body(open)
}

/// Copies the prefetched batches, off the event loop.
#[napi(ts_return_type = "Promise<void>")]
pub fn copy_ahead(buffer: &ReplayBuffer) -> AsyncTask<Work<()>> {
    let buffer = buffer.share();
    task(move || {
        buffer?.copy_ahead();
        Ok(())
    })
}

/// Copies a drawn batch, off the event loop.
#[napi(ts_return_type = "Promise<void>")]
pub fn copy_batch(pending: &PendingBatch) -> AsyncTask<Work<()>> {
    let pending = pending.share();
    task(move || pending?.batch().map(|_| ()))
}

/// Lets other threads attach to a buffer by `id`; returns the id, which is the earlier one if the buffer was shared before.
#[napi]
pub fn share_replay_buffer(buffer: &ReplayBuffer, id: String) -> Result<String> {
    guard(|| {
        let buffer = buffer.share()?;
        Ok(with_shared(|shared| {
            let is_it =
                |other: &WeakReplayBuffer| other.upgrade().is_some_and(|other| other.is_same(&buffer));
            let before = shared.iter().find(|(_, other)| is_it(other)).map(|(id, _)| id.clone());
            before.unwrap_or_else(|| {
                shared.insert(id.clone(), buffer.downgrade());
                id
            })
        }))
    })
}

/// Returns another handle to the buffer that was shared as `id`.
#[napi]
pub fn attach_replay_buffer(id: String) -> Result<ReplayBuffer> {
    guard(|| {
        let buffer = with_shared(|shared| shared.get(&id).and_then(WeakReplayBuffer::upgrade));
        let closed =
            || Error::new(ErrorKind::Closed, "token must be of a buffer that is open in this process");
        buffer.map(ReplayBuffer::from).ok_or_else(closed)
    })
}

/// A function of a part that is written in JavaScript: it takes an operation and its numbers.
type Answer<'a> = Function<'a, FnArgs<(String, Float64Array)>, ()>;

/// A reference to [`Answer`] that outlives the call.
type KeptAnswer = FunctionRef<FnArgs<(String, Float64Array)>, ()>;

/// A function that only the thread that made it may call.
struct Callee(Option<SendWrapper<(Env, KeptAnswer)>>);

impl Callee {
    fn boxed(env: Env, answer: &Answer<'_>) -> CoreResult<Box<dyn replay::Callee>> {
        let function = answer.create_ref().map_err(failed)?;
        Ok(Box::new(Self(Some(SendWrapper::new((env, function))))))
    }
}

impl replay::Callee for Callee {
    fn call(&self, operation: &str, numbers: &[f64]) -> CoreResult<()> {
        let Some(kept) = self.0.as_ref().filter(|kept| kept.valid()) else {
            let detail = "a part written in JavaScript must be used on the thread that made it";
            return Err(Error::new(ErrorKind::UserCode, detail));
        };
        let (env, function) = &**kept;
        let arguments = (operation.to_owned(), Float64Array::new(numbers.to_vec()));
        let called = function.borrow_back(env).and_then(|function| function.call(arguments.into()));
        called.map_err(failed)
    }
}

impl Drop for Callee {
    fn drop(&mut self) {
        // The last handle may be dropped by a task on another thread, which cannot release the function: its environment does.
        if self.0.as_ref().is_some_and(|kept| !kept.valid()) {
            std::mem::forget(self.0.take());
        }
    }
}

fn failed(error: napi::Error) -> Error {
    Error::new(ErrorKind::UserCode, error.reason.clone()).because(error)
}

/// Returns a storage that is written in JavaScript.
#[napi]
pub fn foreign_storage(
    env: Env,
    capacity: f64,
    mailbox: &Mailbox,
    #[napi(ts_arg_type = "(operation: string, numbers: Float64Array) => void")] answer: Answer<'_>,
) -> Result<Storage> {
    guard(|| {
        let callee = Callee::boxed(env, &answer)?;
        let storage = replay::ForeignStorage::new(index("maxSize", capacity)?, mailbox.share()?, callee)?;
        Ok(SharedStorage::new(Box::new(storage)).into())
    })
}

/// Returns a buffer whose sampler, writer or both are written in JavaScript.
#[napi]
pub fn buffer_of_parts(
    env: Env,
    storage: &Storage,
    options: String,
    mailbox: &Mailbox,
    own_sampler: bool,
    own_writer: bool,
    #[napi(ts_arg_type = "(operation: string, numbers: Float64Array) => void")] answer: Answer<'_>,
) -> Result<ReplayBuffer> {
    guard(|| {
        let storage = storage.share()?;
        let mut sampler: Option<Box<dyn replay::Sampler>> = None;
        let mut writer: Option<Box<dyn replay::Writer>> = None;
        if own_sampler {
            sampler =
                Some(Box::new(replay::ForeignSampler::new(mailbox.share()?, Callee::boxed(env, &answer)?)));
        }
        if own_writer {
            let time = storage.shape().first().copied().unwrap_or_default();
            writer = Some(Box::new(replay::ForeignWriter::new(
                time,
                mailbox.share()?,
                Callee::boxed(env, &answer)?,
            )?));
        }
        let options = options_from_json("options", &options)?;
        Ok(SharedReplayBuffer::with_parts(storage, sampler, writer, options)?.into())
    })
}
