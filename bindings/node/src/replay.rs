//! The face of `fulmar-replay`: storages, buffers and batches.
//!
//! The table of classes and methods is `bindings/faces/replay.rs`, the same for WebAssembly.

use napi::Env;
use napi::bindgen_prelude::{Float64Array, FnArgs, Function, FunctionRef};
use napi_derive::napi;
use send_wrapper::SendWrapper;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::tensor::{Lend, Share, Tensor, TensorDict, TensorDictList, face};

include!("../../faces/replay.rs");

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
