//! The face of `fulmar-replay`: storages, buffers and batches.
//!
//! The table of classes and methods is `bindings/faces/replay.rs`, the same for Node.

use std::cell::RefCell;

use send_wrapper::SendWrapper;
use wasm_bindgen::prelude::*;

use crate::error::{Result, Thrown, guard};
use crate::face::{Lend, Share, face};
use crate::tensor::{Tensor, TensorDict, TensorDictList};

type Float64Array = Vec<f64>;

include!("../../faces/replay.rs");

/// A function of this module's one thread.
struct Callee(SendWrapper<js_sys::Function>);

impl Callee {
    fn boxed(answer: js_sys::Function) -> Box<dyn replay::Callee> {
        Box::new(Self(SendWrapper::new(answer)))
    }
}

impl replay::Callee for Callee {
    fn call(&self, operation: &str, numbers: &[f64]) -> CoreResult<()> {
        let numbers = js_sys::Float64Array::from(numbers);
        self.0.call2(&JsValue::NULL, &operation.into(), &numbers).map(|_| ()).map_err(|thrown| {
            let text = thrown.dyn_ref::<js_sys::Error>().map(|error| String::from(error.message()));
            let text = text.unwrap_or_else(|| "something that is no error was thrown".to_owned());
            Error::new(ErrorKind::UserCode, text).because(Thrown::new(thrown))
        })
    }
}

/// Returns a storage that is written in JavaScript.
#[wasm_bindgen(js_name = foreignStorage)]
pub fn foreign_storage(
    capacity: f64,
    mailbox: &Mailbox,
    #[wasm_bindgen(unchecked_param_type = "(operation: string, numbers: Float64Array) => void")]
    answer: js_sys::Function,
) -> Result<Storage> {
    guard(|| {
        let callee = Callee::boxed(answer);
        let storage = replay::ForeignStorage::new(index("maxSize", capacity)?, mailbox.share()?, callee)?;
        Ok(SharedStorage::new(Box::new(storage)).into())
    })
}

/// Returns a buffer whose sampler, writer or both are written in JavaScript.
#[wasm_bindgen(js_name = bufferOfParts)]
pub fn buffer_of_parts(
    storage: &Storage,
    options: &str,
    mailbox: &Mailbox,
    own_sampler: bool,
    own_writer: bool,
    #[wasm_bindgen(unchecked_param_type = "(operation: string, numbers: Float64Array) => void")]
    answer: &js_sys::Function,
) -> Result<ReplayBuffer> {
    guard(|| {
        let storage = storage.share()?;
        let mut sampler: Option<Box<dyn replay::Sampler>> = None;
        let mut writer: Option<Box<dyn replay::Writer>> = None;
        if own_sampler {
            sampler =
                Some(Box::new(replay::ForeignSampler::new(mailbox.share()?, Callee::boxed(answer.clone()))));
        }
        if own_writer {
            let time = storage.shape().first().copied().unwrap_or_default();
            writer = Some(Box::new(replay::ForeignWriter::new(
                time,
                mailbox.share()?,
                Callee::boxed(answer.clone()),
            )?));
        }
        let options = options_from_json("options", options)?;
        Ok(SharedReplayBuffer::with_parts(storage, sampler, writer, options)?.into())
    })
}
