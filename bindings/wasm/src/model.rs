//! The face of `fulmar-model`: the decoder, generation and the optimiser.

mod batches;
mod heads;

use std::cell::RefCell;
use std::rc::Rc;

use fulmar::compute::MatmulPrecision;
use fulmar::core::{Dtype, index_from_f64, integer_from_f64, options_from_json};
use fulmar::model;
use fulmar::tensor::gguf;
use wasm_bindgen::prelude::*;

use crate::error::{Result, guard};

/// Log-probs and entropies of a batch.
#[wasm_bindgen(getter_with_clone)]
pub struct Scores {
    /// `[T]`
    #[wasm_bindgen(js_name = logProb)]
    pub log_prob: Vec<f32>,
    /// `[T]`
    pub entropy: Vec<f32>,
    /// `[T, k]`
    #[wasm_bindgen(js_name = topIds)]
    pub top_ids: Vec<u32>,
    /// `[T, k]`
    #[wasm_bindgen(js_name = topLogProb)]
    pub top_log_prob: Vec<f32>,
}

impl From<(model::Scores, model::TopLogProbs)> for Scores {
    fn from((scores, top): (model::Scores, model::TopLogProbs)) -> Self {
        let model::Scores { log_prob, entropy } = scores;
        Self { log_prob, entropy, top_ids: top.ids, top_log_prob: top.log_prob }
    }
}

impl From<model::Scores> for Scores {
    fn from(scores: model::Scores) -> Self {
        (scores, model::TopLogProbs::default()).into()
    }
}

/// The decoder of `fulmar_model::Decoder`.
#[wasm_bindgen]
pub struct Decoder {
    inner: Rc<RefCell<model::Decoder>>,
}

impl From<model::Decoder> for Decoder {
    fn from(decoder: model::Decoder) -> Self {
        Self { inner: Rc::new(RefCell::new(decoder)) }
    }
}

#[wasm_bindgen]
impl Decoder {
    /// Makes a decoder with random weights.
    #[wasm_bindgen(constructor)]
    pub fn new(config_json: &str, seed: f64, dtype: &str) -> Result<Self> {
        guard(|| {
            let config = model::DecoderConfig::from_json(config_json)?;
            let decoder = model::Decoder::new(config, integer_from_f64("seed", seed)?)?;
            Ok(decoder.with_dtype(Dtype::parse(dtype)?)?.into())
        })
    }

    /// Reads the weights from a safetensors file.
    #[wasm_bindgen(js_name = fromSafetensors)]
    pub fn from_safetensors(config_json: &str, bytes: &[u8], dtype: &str) -> Result<Self> {
        guard(|| {
            let config = model::DecoderConfig::from_json(config_json)?;
            let decoder = model::Decoder::from_safetensors(config, bytes)?;
            Ok(decoder.with_dtype(Dtype::parse(dtype)?)?.into())
        })
    }

    /// Reads a GGUF file.
    #[wasm_bindgen(js_name = fromGguf)]
    pub fn from_gguf(bytes: &[u8], dtype: &str) -> Result<Self> {
        guard(|| Ok(model::Decoder::from_gguf(bytes)?.with_dtype(Dtype::parse(dtype)?)?.into()))
    }

    /// Moves the decoder to a device.
    #[wasm_bindgen(js_name = moveTo)]
    pub fn move_to(&self, device: &str) -> Result<()> {
        guard(|| self.inner.borrow_mut().move_to(device.parse()?))
    }

    /// Computes products in a precision.
    #[wasm_bindgen(js_name = multiplyIn)]
    pub fn multiply_in(&self, precision: &str) -> Result<()> {
        guard(|| {
            self.inner.borrow_mut().multiply_in(MatmulPrecision::parse(precision)?);
            Ok(())
        })
    }

    /// Returns the precision of products.
    #[wasm_bindgen(js_name = matmulPrecision)]
    pub fn matmul_precision(&self) -> Result<String> {
        guard(|| Ok(self.inner.borrow().matmul_precision().name().to_owned()))
    }

    /// Returns a copy of the weights and the adapter.
    pub fn snapshot(&self) -> Result<Decoder> {
        guard(|| Ok(self.inner.borrow().snapshot()?.into()))
    }

    /// Returns the names of the files of its folder without those of weights.
    #[wasm_bindgen(js_name = folderFileNames)]
    pub fn folder_file_names(&self) -> Result<Vec<String>> {
        guard(|| Ok(self.inner.borrow().folder_files()?.into_keys().map(str::to_owned).collect()))
    }

    /// Returns one of these files.
    #[wasm_bindgen(js_name = folderFile)]
    pub fn folder_file(&self, name: &str) -> Result<Vec<u8>> {
        guard(|| self.inner.borrow().folder_file(name))
    }

    /// Adds a file to its folder.
    #[wasm_bindgen(js_name = setExtraFile)]
    pub fn set_extra_file(&self, name: &str, bytes: &[u8]) -> Result<()> {
        guard(|| self.inner.borrow_mut().set_extra_file(name, bytes.to_vec()))
    }

    /// Returns the number of weights that the adapter trains; `None` without an adapter.
    #[wasm_bindgen(js_name = numLoraParameters)]
    pub fn num_lora_parameters(&self) -> Result<Option<f64>> {
        guard(|| {
            let decoder = self.inner.borrow();
            Ok(decoder.has_lora().then(|| decoder.num_trainable() as f64))
        })
    }

    /// Computes log-probs of masked tokens without the adapter.
    #[wasm_bindgen(js_name = scoreBase)]
    pub fn score_base(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<Vec<u32>>,
    ) -> Result<Scores> {
        guard(move || {
            let batch = model::TokenBatch { ids, offsets, mask, positions: positions.as_deref() };
            Ok(self.inner.borrow().score_base(&batch)?.into())
        })
    }

    /// Adds a new adapter to frozen weights; returns the number of trained weights.
    #[wasm_bindgen(js_name = addLora)]
    pub fn add_lora(&self, config_json: &str, seed: f64) -> Result<f64> {
        guard(|| {
            let config = model::LoraConfig::from_json(config_json)?;
            let mut decoder = self.inner.borrow_mut();
            decoder.add_lora(config, integer_from_f64("seed", seed)?)?;
            Ok(decoder.num_trainable() as f64)
        })
    }

    /// Loads an adapter from PEFT's files; returns the number of trained weights.
    #[wasm_bindgen(js_name = loadLora)]
    pub fn load_lora(&self, config_json: &str, bytes: &[u8]) -> Result<f64> {
        guard(|| {
            let mut decoder = self.inner.borrow_mut();
            decoder.load_lora(model::LoraConfig::from_json(config_json)?, bytes)?;
            Ok(decoder.num_trainable() as f64)
        })
    }

    /// Merges the adapter into the weights.
    #[wasm_bindgen(js_name = mergeLora)]
    pub fn merge_lora(&self) -> Result<()> {
        guard(|| self.inner.borrow_mut().merge_lora())
    }

    /// Returns the adapter as a safetensors file.
    #[wasm_bindgen(js_name = loraToSafetensors)]
    pub fn lora_to_safetensors(&self) -> Result<Vec<u8>> {
        guard(|| self.inner.borrow().lora_to_safetensors())
    }

    /// Returns the adapter's shape as PEFT's file.
    #[wasm_bindgen(js_name = loraConfigJson)]
    pub fn lora_config_json(&self) -> Result<String> {
        guard(|| self.inner.borrow().lora_config_json())
    }

    /// Returns the shape.
    #[wasm_bindgen(js_name = configJson)]
    pub fn config_json(&self) -> Result<String> {
        guard(|| Ok(self.inner.borrow().config().to_json()))
    }

    /// Returns the dtype of the weights.
    pub fn dtype(&self) -> Result<String> {
        guard(|| Ok(self.inner.borrow().dtype().name().to_owned()))
    }

    /// Returns the number of weights.
    #[wasm_bindgen(js_name = numParameters)]
    pub fn num_parameters(&self) -> Result<f64> {
        guard(|| Ok(self.inner.borrow().num_parameters() as f64))
    }

    /// Returns the weights as a safetensors file.
    #[wasm_bindgen(js_name = toSafetensors)]
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        guard(|| self.inner.borrow().to_safetensors())
    }

    /// Computes log-probs of masked tokens, with the likeliest ids at each.
    pub fn score(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<Vec<u32>>,
        top_k: Option<f64>,
    ) -> Result<Scores> {
        guard(move || {
            let batch = model::TokenBatch { ids, offsets, mask, positions: positions.as_deref() };
            let top_k = index_from_f64("topK", top_k.unwrap_or(0.0))?;
            Ok(self.inner.borrow().score_top_k(&batch, top_k)?.into())
        })
    }

    /// Computes log-probs of masked tokens, and keeps the activations for `backward`.
    pub fn forward(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<Vec<u32>>,
    ) -> Result<Scores> {
        guard(move || {
            let batch = model::TokenBatch { ids, offsets, mask, positions: positions.as_deref() };
            Ok(self.inner.borrow_mut().forward(&batch)?.into())
        })
    }

    /// Adds to the gradients.
    pub fn backward(&self, grad_log_prob: &[f32], grad_entropy: Option<Vec<f32>>) -> Result<()> {
        guard(move || self.inner.borrow_mut().backward(grad_log_prob, grad_entropy.as_deref()))
    }
}

/// The sampled tokens and the finished requests of an engine, flat.
#[wasm_bindgen(getter_with_clone)]
pub struct EngineOutputs {
    /// `[T]`
    pub requests: Vec<f64>,
    /// `[T]`
    pub ids: Vec<u32>,
    /// `[T]`
    #[wasm_bindgen(js_name = logProb)]
    pub log_prob: Vec<f32>,
    /// `[T]`
    #[wasm_bindgen(js_name = sampledLogProb)]
    pub sampled_log_prob: Vec<f32>,
    /// `[T]`
    pub versions: Vec<f64>,
    /// `[T + 1]`
    #[wasm_bindgen(js_name = topOffsets)]
    pub top_offsets: Vec<u32>,
    /// The likeliest ids of all tokens.
    #[wasm_bindgen(js_name = topIds)]
    pub top_ids: Vec<u32>,
    /// Their log-probs.
    #[wasm_bindgen(js_name = topLogProb)]
    pub top_log_prob: Vec<f32>,
    /// `[F]`
    pub finished: Vec<f64>,
    /// `[F]`: 0 aborted, 1 stopped, 2 at its length, 3 for logits that are not finite.
    pub finish: Vec<u8>,
    /// Number of speculative tokens since the engine was made.
    #[wasm_bindgen(js_name = numDraftTokens)]
    pub num_draft_tokens: f64,
    /// Number of them that were drawn.
    #[wasm_bindgen(js_name = numAcceptedTokens)]
    pub num_accepted_tokens: f64,
}

impl From<model::FlatOutputs> for EngineOutputs {
    fn from(flat: model::FlatOutputs) -> Self {
        let model::FlatOutputs { requests, ids, log_prob, sampled_log_prob, versions, .. } = flat;
        let model::FlatOutputs { top_offsets, top_ids, top_log_prob, finished, finish, .. } = flat;
        let model::FlatOutputs { num_draft_tokens, num_accepted_tokens, .. } = flat;
        Self {
            requests,
            ids,
            log_prob,
            sampled_log_prob,
            versions,
            top_offsets,
            top_ids,
            top_log_prob,
            finished,
            finish,
            num_draft_tokens,
            num_accepted_tokens,
        }
    }
}

/// The engine of `fulmar_model::Engine`.
#[wasm_bindgen]
pub struct Engine {
    decoder: Rc<RefCell<model::Decoder>>,
    inner: model::Engine,
}

#[wasm_bindgen]
impl Engine {
    /// Checks the options.
    #[wasm_bindgen(constructor)]
    pub fn new(decoder: &Decoder, options_json: &str) -> Result<Self> {
        guard(|| {
            let options = options_from_json("options", options_json)?;
            let inner = model::Engine::new(decoder.inner.borrow().config(), options)?;
            Ok(Self { decoder: Rc::clone(&decoder.inner), inner })
        })
    }

    /// Adds a request to the queue; returns its id.
    pub fn add(&mut self, prompt_ids: &[u32], seed: f64, params_json: &str) -> Result<f64> {
        guard(|| {
            let params = options_from_json("options", params_json)?;
            let request = model::Request { prompt_ids, seed: integer_from_f64("seed", seed)? };
            Ok(self.inner.add(&request, &params)? as f64)
        })
    }

    /// Aborts a request; returns whether it was still running.
    pub fn abort(&mut self, request: f64) -> Result<bool> {
        guard(|| Ok(self.inner.abort(integer_from_f64("request", request)?)))
    }

    /// Runs some steps; returns the number of unfinished requests.
    pub fn turn(&mut self) -> Result<f64> {
        guard(|| Ok(self.inner.turn(&self.decoder.borrow())? as f64))
    }

    /// Returns the tokens and the finished requests since the last call.
    pub fn outputs(&mut self) -> Result<EngineOutputs> {
        guard(|| Ok(model::FlatOutputs::from(self.inner.take_outputs()).into()))
    }

    /// Returns the number of free pages.
    #[wasm_bindgen(js_name = numFreePages)]
    pub fn num_free_pages(&self) -> Result<f64> {
        guard(|| Ok(self.inner.num_free_pages() as f64))
    }
}

/// The result of an optimiser step.
#[wasm_bindgen(getter_with_clone)]
pub struct StepReport {
    /// Counted from 1.
    pub step: f64,
    /// The norm before clipping.
    #[wasm_bindgen(js_name = gradientNorm)]
    pub gradient_norm: f64,
    /// The clip coefficient, at most 1.
    #[wasm_bindgen(js_name = clipCoefficient)]
    pub clip_coefficient: f64,
}

/// The optimiser of `fulmar_model::Optimizer`.
#[wasm_bindgen]
pub struct Optimizer {
    decoder: Rc<RefCell<model::Decoder>>,
    inner: model::Optimizer,
}

#[wasm_bindgen]
impl Optimizer {
    /// Makes an optimiser with zero moments; `name` is its rule.
    #[wasm_bindgen(constructor)]
    pub fn new(decoder: &Decoder, name: &str, options_json: &str) -> Result<Self> {
        guard(|| {
            let options = model::OptimizerOptions::from_json(name, options_json)?;
            let inner = model::Optimizer::new(&decoder.inner.borrow(), options)?;
            Ok(Self { decoder: Rc::clone(&decoder.inner), inner })
        })
    }

    /// Reads the moments from a safetensors file.
    #[wasm_bindgen(js_name = fromSafetensors)]
    pub fn from_safetensors(decoder: &Decoder, name: &str, options_json: &str, bytes: &[u8]) -> Result<Self> {
        guard(|| {
            let options = model::OptimizerOptions::from_json(name, options_json)?;
            let inner = model::Optimizer::from_safetensors(&decoder.inner.borrow(), options, bytes)?;
            Ok(Self { decoder: Rc::clone(&decoder.inner), inner })
        })
    }

    /// Updates the decoder's weights.
    pub fn step(&mut self, learning_rate: Option<f64>, max_norm: Option<f64>) -> Result<StepReport> {
        guard(|| {
            let report = self.inner.step(&mut self.decoder.borrow_mut(), learning_rate, max_norm)?;
            let model::StepReport { step, gradient_norm, clip_coefficient } = report;
            Ok(StepReport { step: step as f64, gradient_norm, clip_coefficient })
        })
    }

    /// Returns moments and step count as a safetensors file.
    #[wasm_bindgen(js_name = toSafetensors)]
    pub fn to_safetensors(&self) -> Result<Vec<u8>> {
        guard(|| self.inner.to_safetensors(&self.decoder.borrow()))
    }
}

/// Returns the learning rate of step `step` of `num_steps`.
#[wasm_bindgen(js_name = scheduledRate)]
pub fn scheduled_rate(schedule_json: &str, step: f64, num_steps: f64) -> Result<f64> {
    guard(|| {
        let schedule: model::Schedule = options_from_json("schedule", schedule_json)?;
        schedule.at(integer_from_f64("step", step)?, integer_from_f64("numSteps", num_steps)?)
    })
}

/// Returns the tokenizer of a GGUF file: `tokenizer.json`, `tokenizer_config.json` and, if there is one,
/// `chat_template.jinja`.
#[wasm_bindgen(js_name = ggufTokenizer)]
pub fn gguf_tokenizer(bytes: &[u8]) -> Result<Vec<String>> {
    guard(|| {
        let read = model::GgufTokenizer::read(&gguf::File::read(bytes)?)?;
        Ok([Some(read.tokenizer_json), Some(read.config_json), read.chat_template]
            .into_iter()
            .flatten()
            .collect())
    })
}
