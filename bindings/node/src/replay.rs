//! The face of `fulmar-replay`: storages, buffers and batches.
//!
//! The table of classes and methods is `bindings/faces/replay.rs`, the same for WebAssembly.

use fulmar::replay::CheckpointerOptions;
use fulmar::store::{Durability, FsDisk};
use napi::Env;
use napi::bindgen_prelude::{Float64Array, FnArgs, Function, FunctionRef};
use napi_derive::napi;
use send_wrapper::SendWrapper;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::tensor::{Lend, Share, Tensor, TensorDict, TensorDictList, face};

include!("../../faces/replay.rs");

face! {
    /// A storage over a folder that a crash does not empty.
    DurableStorage(replay::DurableStorage)
    make {
        /// Opens the folder, or makes it. The interval is that of syncs in milliseconds: 0 for every write, nothing for none.
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
        /// The storage that buffers share.
        fn storage as storage() -> (Storage) {
            |durable| CoreResult::Ok(SharedStorage::new(Box::new(durable.clone())))
        }
        /// Makes everything durable, as the store was opened to.
        fn commit as commit() -> (()) { |durable| durable.commit() }
        /// Says what time it is.
        fn tick as tick(now_ms: f64) -> (()) { |durable| durable.tick(integer_from_f64("nowMs", now_ms)?) }
        /// Figures, as JSON.
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

/// A storage whose rows lie on a server.
#[napi]
pub fn store_storage(shape: &[f64], options: String) -> Result<Storage> {
    guard(|| {
        let options = options_from_json::<replay::StoreStorageOptions>("options", &options)?;
        let storage = replay::StoreStorage::new(&indices("shape", shape)?, options)?;
        Ok(SharedStorage::new(Box::new(storage)).into())
    })
}

/// Writes a buffer as a folder.
#[napi]
pub fn dump_replay_buffer(buffer: &ReplayBuffer, path: String, checkpointer: String) -> Result<()> {
    guard(|| {
        let checkpointer = options_from_json::<CheckpointerOptions>("checkpointer", &checkpointer)?.build();
        buffer.share()?.with(|buffer| buffer.dumps(path, checkpointer.as_ref()))
    })
}

/// Reads a buffer's folder into one of the same parts.
#[napi]
pub fn load_replay_buffer(buffer: &ReplayBuffer, path: String, checkpointer: String) -> Result<()> {
    guard(|| {
        let checkpointer = options_from_json::<CheckpointerOptions>("checkpointer", &checkpointer)?.build();
        buffer.share()?.with(|buffer| buffer.loads(path, checkpointer.as_ref()))
    })
}

/// What a part that JavaScript keeps is called by: an operation and its numbers.
type Answer<'a> = Function<'a, FnArgs<(String, Float64Array)>, ()>;

/// [`Answer`], kept.
type KeptAnswer = FunctionRef<FnArgs<(String, Float64Array)>, ()>;

/// A function of the thread that made it, and of no other.
struct Callee(SendWrapper<(Env, KeptAnswer)>);

impl Callee {
    fn boxed(env: Env, answer: &Answer<'_>) -> CoreResult<Box<dyn replay::Callee>> {
        let function = answer.create_ref().map_err(|error| failed(&error))?;
        Ok(Box::new(Self(SendWrapper::new((env, function)))))
    }
}

impl replay::Callee for Callee {
    fn call(&self, operation: &str, numbers: &[f64]) -> CoreResult<()> {
        if !self.0.valid() {
            let detail = "a part that JavaScript keeps must be used on its thread: got another";
            return Err(Error::new(ErrorKind::UserCode, detail));
        }
        let (env, function) = &*self.0;
        let arguments = (operation.to_owned(), Float64Array::new(numbers.to_vec()));
        let called = function.borrow_back(env).and_then(|function| function.call(arguments.into()));
        called.map_err(|error| failed(&error))
    }
}

fn failed(error: &napi::Error) -> Error {
    Error::new(ErrorKind::UserCode, error.reason.clone())
}

/// A storage that JavaScript keeps.
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

/// A buffer whose sampler JavaScript keeps.
#[napi]
pub fn buffer_with_sampler(
    env: Env,
    storage: &Storage,
    options: String,
    mailbox: &Mailbox,
    #[napi(ts_arg_type = "(operation: string, numbers: Float64Array) => void")] answer: Answer<'_>,
) -> Result<ReplayBuffer> {
    guard(|| {
        let sampler = replay::ForeignSampler::new(mailbox.share()?, Callee::boxed(env, &answer)?);
        let options = options_from_json("options", &options)?;
        Ok(SharedReplayBuffer::with_sampler(storage.share()?, Box::new(sampler), options)?.into())
    })
}
