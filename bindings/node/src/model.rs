//! The face of `fulmar-model`: the decoder, generation and the optimiser.

mod batches;
mod heads;

use fulmar::compute::MatmulPrecision;
use fulmar::core::{Dtype, index_from_f64, integer_from_f64, options_from_json};
use fulmar::model;
use fulmar::tensor::gguf;
use napi::bindgen_prelude::{AsyncTask, Float32Array, Float64Array, Uint8Array, Uint32Array};
use napi_derive::napi;

use crate::error::{Result, guard};
use crate::slot::Slot;
use crate::task::{Work, task};

/// Log-probs and entropies of a batch.
#[napi(object)]
pub struct Scores {
    /// `[T]`
    pub log_prob: Float32Array,
    /// `[T]`
    pub entropy: Float32Array,
    /// `[T, k]`
    pub top_ids: Uint32Array,
    /// `[T, k]`
    pub top_log_prob: Float32Array,
}

impl From<(model::Scores, model::TopLogProbs)> for Scores {
    fn from((scores, top): (model::Scores, model::TopLogProbs)) -> Self {
        Self {
            log_prob: scores.log_prob.into(),
            entropy: scores.entropy.into(),
            top_ids: top.ids.into(),
            top_log_prob: top.log_prob.into(),
        }
    }
}

impl From<model::Scores> for Scores {
    fn from(scores: model::Scores) -> Self {
        (scores, model::TopLogProbs::default()).into()
    }
}

/// The decoder of `fulmar_model::Decoder`.
#[napi]
pub struct Decoder {
    config_json: String,
    dtype: Dtype,
    num_parameters: f64,
    inner: Slot<model::Decoder>,
}

impl From<model::Decoder> for Decoder {
    fn from(decoder: model::Decoder) -> Self {
        Self {
            config_json: decoder.config().to_json(),
            dtype: decoder.dtype(),
            num_parameters: decoder.num_parameters() as f64,
            inner: Slot::new("Decoder", decoder),
        }
    }
}

#[napi]
impl Decoder {
    /// Makes a decoder with random weights.
    #[napi(constructor)]
    pub fn new(config_json: String, seed: f64, dtype: String) -> Result<Self> {
        guard(|| {
            let config = model::DecoderConfig::from_json(&config_json)?;
            let decoder = model::Decoder::new(config, integer_from_f64("seed", seed)?)?;
            Ok(decoder.with_dtype(Dtype::parse(&dtype)?)?.into())
        })
    }

    /// Reads the weights from a safetensors file.
    #[napi(factory)]
    pub fn from_safetensors(config_json: String, bytes: &[u8], dtype: String) -> Result<Self> {
        guard(|| {
            let config = model::DecoderConfig::from_json(&config_json)?;
            let decoder = model::Decoder::from_safetensors(config, bytes)?;
            Ok(decoder.with_dtype(Dtype::parse(&dtype)?)?.into())
        })
    }

    /// Reads a Hugging Face folder.
    #[napi(ts_return_type = "Promise<Decoder>")]
    pub fn from_folder(path: String, dtype: String) -> AsyncTask<Work<Decoder>> {
        task(move || Ok(model::Decoder::from_folder(path)?.with_dtype(Dtype::parse(&dtype)?)?.into()))
    }

    /// Reads a GGUF file.
    #[napi(ts_return_type = "Promise<Decoder>")]
    pub fn from_gguf(bytes: &[u8], dtype: String) -> AsyncTask<Work<Decoder>> {
        let bytes = bytes.to_vec();
        task(move || Ok(model::Decoder::from_gguf(&bytes)?.with_dtype(Dtype::parse(&dtype)?)?.into()))
    }

    /// Moves the decoder to a device.
    #[napi]
    pub fn move_to(&self, device: String) -> Result<()> {
        guard(|| self.inner.with(|decoder| decoder.move_to(device.parse()?)))
    }

    /// Computes products in a precision.
    #[napi]
    pub fn multiply_in(&self, precision: String) -> Result<()> {
        guard(|| {
            let precision = MatmulPrecision::parse(&precision)?;
            self.inner.with(|decoder| {
                decoder.multiply_in(precision);
                Ok(())
            })
        })
    }

    /// Returns the precision of products.
    #[napi]
    pub fn matmul_precision(&self) -> Result<String> {
        guard(|| self.inner.with(|decoder| Ok(decoder.matmul_precision().name().to_owned())))
    }

    /// Returns a copy of the weights and the adapter.
    #[napi(ts_return_type = "Promise<Decoder>")]
    pub fn snapshot(&self) -> AsyncTask<Work<Decoder>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| Ok(decoder.snapshot()?.into())))
    }

    /// Writes a Hugging Face folder.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn save_folder(&self, path: String) -> AsyncTask<Work<()>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| decoder.save_folder(path)))
    }

    /// Writes the adapter as PEFT's folder.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn save_adapter(&self, path: String) -> AsyncTask<Work<()>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| decoder.save_adapter(path)))
    }

    /// Loads an adapter from PEFT's folder; returns the number of trained weights.
    #[napi(ts_return_type = "Promise<number>")]
    pub fn load_adapter(&self, path: String) -> AsyncTask<Work<f64>> {
        let decoder = self.inner.clone();
        task(move || {
            decoder.with(|decoder| decoder.load_adapter(path).map(|()| decoder.num_trainable() as f64))
        })
    }

    /// Returns the names of the files of its folder without those of weights.
    #[napi(ts_return_type = "Promise<string[]>")]
    pub fn folder_file_names(&self) -> AsyncTask<Work<Vec<String>>> {
        let decoder = self.inner.clone();
        task(move || {
            decoder.with(|decoder| Ok(decoder.folder_files()?.into_keys().map(str::to_owned).collect()))
        })
    }

    /// Returns one of these files.
    #[napi(ts_return_type = "Promise<Uint8Array>")]
    pub fn folder_file(&self, name: String) -> AsyncTask<Work<Uint8Array>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| Ok(decoder.folder_file(&name)?.into())))
    }

    /// Adds a file to its folder.
    #[napi]
    pub fn set_extra_file(&self, name: String, bytes: &[u8]) -> Result<()> {
        guard(|| self.inner.with(|decoder| decoder.set_extra_file(&name, bytes.to_vec())))
    }

    /// Returns the number of weights that the adapter trains; `None` without an adapter.
    #[napi]
    pub fn num_lora_parameters(&self) -> Result<Option<f64>> {
        guard(|| self.inner.with(|decoder| Ok(decoder.has_lora().then(|| decoder.num_trainable() as f64))))
    }

    /// Computes log-probs of masked tokens without the adapter.
    #[napi(ts_return_type = "Promise<Scores>")]
    pub fn score_base(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<&[u32]>,
    ) -> AsyncTask<Work<Scores>> {
        let (decoder, batch) = (self.inner.clone(), OwnedBatch::new(ids, offsets, mask, positions));
        task(move || decoder.with(|decoder| Ok(decoder.score_base(&batch.borrow())?.into())))
    }

    /// Adds a new adapter to frozen weights; returns the number of trained weights.
    #[napi(ts_return_type = "Promise<number>")]
    pub fn add_lora(&self, config_json: String, seed: f64) -> AsyncTask<Work<f64>> {
        let decoder = self.inner.clone();
        task(move || {
            let config = model::LoraConfig::from_json(&config_json)?;
            let seed = integer_from_f64("seed", seed)?;
            decoder.with(|decoder| decoder.add_lora(config, seed).map(|()| decoder.num_trainable() as f64))
        })
    }

    /// Loads an adapter from PEFT's files; returns the number of trained weights.
    #[napi(ts_return_type = "Promise<number>")]
    pub fn load_lora(&self, config_json: String, bytes: &[u8]) -> AsyncTask<Work<f64>> {
        let (decoder, bytes) = (self.inner.clone(), bytes.to_vec());
        task(move || {
            let config = model::LoraConfig::from_json(&config_json)?;
            decoder.with(|decoder| decoder.load_lora(config, &bytes).map(|()| decoder.num_trainable() as f64))
        })
    }

    /// Merges the adapter into the weights.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn merge_lora(&self) -> AsyncTask<Work<()>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(model::Decoder::merge_lora))
    }

    /// Returns the adapter as a safetensors file.
    #[napi(ts_return_type = "Promise<Uint8Array>")]
    pub fn lora_to_safetensors(&self) -> AsyncTask<Work<Uint8Array>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| Ok(decoder.lora_to_safetensors()?.into())))
    }

    /// Returns the adapter's shape as PEFT's file.
    #[napi(ts_return_type = "Promise<string>")]
    pub fn lora_config_json(&self) -> AsyncTask<Work<String>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| decoder.lora_config_json()))
    }

    /// Returns the shape.
    #[napi]
    pub fn config_json(&self) -> Result<String> {
        guard(|| Ok(self.config_json.clone()))
    }

    /// Returns the dtype of the weights.
    #[napi]
    pub fn dtype(&self) -> Result<String> {
        guard(|| Ok(self.dtype.name().to_owned()))
    }

    /// Returns the number of weights.
    #[napi]
    pub fn num_parameters(&self) -> Result<f64> {
        guard(|| Ok(self.num_parameters))
    }

    /// Returns the weights as a safetensors file.
    #[napi(ts_return_type = "Promise<Uint8Array>")]
    pub fn to_safetensors(&self) -> AsyncTask<Work<Uint8Array>> {
        let decoder = self.inner.clone();
        task(move || decoder.with(|decoder| Ok(decoder.to_safetensors()?.into())))
    }

    /// Computes log-probs of masked tokens, with the likeliest ids at each.
    #[napi(ts_return_type = "Promise<Scores>")]
    pub fn score(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<&[u32]>,
        top_k: Option<f64>,
    ) -> AsyncTask<Work<Scores>> {
        let (decoder, batch) = (self.inner.clone(), OwnedBatch::new(ids, offsets, mask, positions));
        task(move || {
            let top_k = index_from_f64("topK", top_k.unwrap_or(0.0))?;
            decoder.with(|decoder| Ok(decoder.score_top_k(&batch.borrow(), top_k)?.into()))
        })
    }

    /// Computes log-probs of masked tokens, and keeps the activations for `backward`.
    #[napi(ts_return_type = "Promise<Scores>")]
    pub fn forward(
        &self,
        ids: &[u32],
        offsets: &[u32],
        mask: &[u8],
        positions: Option<&[u32]>,
    ) -> AsyncTask<Work<Scores>> {
        let (decoder, batch) = (self.inner.clone(), OwnedBatch::new(ids, offsets, mask, positions));
        task(move || decoder.with(|decoder| Ok(decoder.forward(&batch.borrow())?.into())))
    }

    /// Adds to the gradients.
    #[napi(ts_return_type = "Promise<void>")]
    pub fn backward(&self, grad_log_prob: &[f32], grad_entropy: Option<&[f32]>) -> AsyncTask<Work<()>> {
        let (decoder, grad_log_prob) = (self.inner.clone(), grad_log_prob.to_vec());
        let grad_entropy = grad_entropy.map(<[f32]>::to_vec);
        task(move || decoder.with(|decoder| decoder.backward(&grad_log_prob, grad_entropy.as_deref())))
    }

    /// Drops the weights.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// A batch copied out of JavaScript's memory, which may change while a task runs.
struct OwnedBatch {
    ids: Vec<u32>,
    offsets: Vec<u32>,
    mask: Vec<u8>,
    positions: Option<Vec<u32>>,
}

impl OwnedBatch {
    fn new(ids: &[u32], offsets: &[u32], mask: &[u8], positions: Option<&[u32]>) -> Self {
        Self {
            ids: ids.to_vec(),
            offsets: offsets.to_vec(),
            mask: mask.to_vec(),
            positions: positions.map(<[u32]>::to_vec),
        }
    }

    fn borrow(&self) -> model::TokenBatch<'_> {
        let positions = self.positions.as_deref();
        model::TokenBatch { ids: &self.ids, offsets: &self.offsets, mask: &self.mask, positions }
    }
}

/// The sampled tokens and the finished requests of an engine, flat.
#[napi(object)]
pub struct EngineOutputs {
    /// `[T]`
    pub requests: Float64Array,
    /// `[T]`
    pub ids: Uint32Array,
    /// `[T]`
    pub log_prob: Float32Array,
    /// `[T]`
    pub sampled_log_prob: Float32Array,
    /// `[T]`
    pub versions: Float64Array,
    /// `[T + 1]`
    pub top_offsets: Uint32Array,
    /// The likeliest ids of all tokens.
    pub top_ids: Uint32Array,
    /// Their log-probs.
    pub top_log_prob: Float32Array,
    /// `[F]`
    pub finished: Float64Array,
    /// `[F]`: 0 aborted, 1 stopped, 2 at its length, 3 for logits that are not finite.
    pub finish: Uint8Array,
    /// Number of speculative tokens since the engine was made.
    pub num_draft_tokens: f64,
    /// Number of them that were drawn.
    pub num_accepted_tokens: f64,
}

impl From<model::FlatOutputs> for EngineOutputs {
    fn from(flat: model::FlatOutputs) -> Self {
        Self {
            requests: flat.requests.into(),
            ids: flat.ids.into(),
            log_prob: flat.log_prob.into(),
            sampled_log_prob: flat.sampled_log_prob.into(),
            versions: flat.versions.into(),
            top_offsets: flat.top_offsets.into(),
            top_ids: flat.top_ids.into(),
            top_log_prob: flat.top_log_prob.into(),
            finished: flat.finished.into(),
            finish: flat.finish.into(),
            num_draft_tokens: flat.num_draft_tokens,
            num_accepted_tokens: flat.num_accepted_tokens,
        }
    }
}

/// The engine of `fulmar_model::Engine`.
#[napi]
pub struct Engine {
    decoder: Slot<model::Decoder>,
    inner: Slot<model::Engine>,
}

#[napi]
impl Engine {
    /// Checks the options.
    #[napi(constructor)]
    pub fn new(decoder: &Decoder, options_json: String) -> Result<Self> {
        guard(|| {
            let options = options_from_json("options", &options_json)?;
            let config = model::DecoderConfig::from_json(&decoder.config_json)?;
            let engine = model::Engine::new(&config, options)?;
            Ok(Self { decoder: decoder.inner.clone(), inner: Slot::new("Engine", engine) })
        })
    }

    /// Adds a request to the queue; returns its id.
    #[napi]
    pub fn add(&self, prompt_ids: &[u32], seed: f64, params_json: String) -> Result<f64> {
        guard(|| {
            let params = options_from_json("options", &params_json)?;
            let request = model::Request { prompt_ids, seed: integer_from_f64("seed", seed)? };
            self.inner.with(|engine| Ok(engine.add(&request, &params)? as f64))
        })
    }

    /// Aborts a request; returns whether it was still running.
    #[napi]
    pub fn abort(&self, request: f64) -> Result<bool> {
        guard(|| {
            let request = integer_from_f64("request", request)?;
            self.inner.with(|engine| Ok(engine.abort(request)))
        })
    }

    /// Runs some steps; returns the number of unfinished requests.
    #[napi(ts_return_type = "Promise<number>")]
    pub fn turn(&self) -> AsyncTask<Work<f64>> {
        let (decoder, engine) = (self.decoder.clone(), self.inner.clone());
        task(move || engine.with(|engine| decoder.with(|decoder| Ok(engine.turn(decoder)? as f64))))
    }

    /// Returns the tokens and the finished requests since the last call.
    #[napi]
    pub fn outputs(&self) -> Result<EngineOutputs> {
        guard(|| self.inner.with(|engine| Ok(model::FlatOutputs::from(engine.take_outputs()).into())))
    }

    /// Returns the number of free pages.
    #[napi]
    pub fn num_free_pages(&self) -> Result<f64> {
        guard(|| self.inner.with(|engine| Ok(engine.num_free_pages() as f64)))
    }

    /// Drops the cache.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// The result of an optimiser step.
#[napi(object)]
pub struct StepReport {
    /// Counted from 1.
    pub step: f64,
    /// The norm before clipping.
    pub gradient_norm: f64,
    /// The clip coefficient, at most 1.
    pub clip_coefficient: f64,
}

/// The optimiser of `fulmar_model::Optimizer`.
#[napi]
pub struct Optimizer {
    decoder: Slot<model::Decoder>,
    inner: Slot<model::Optimizer>,
}

#[napi]
impl Optimizer {
    /// Makes an optimiser with zero moments; `name` is its rule.
    #[napi(constructor)]
    pub fn new(decoder: &Decoder, name: String, options_json: String) -> Result<Self> {
        guard(|| {
            let options = model::OptimizerOptions::from_json(&name, &options_json)?;
            let optimizer = decoder.inner.with(|decoder| model::Optimizer::new(decoder, options))?;
            Ok(Self { decoder: decoder.inner.clone(), inner: Slot::new("Optimizer", optimizer) })
        })
    }

    /// Reads the moments from a safetensors file.
    #[napi(factory)]
    pub fn from_safetensors(
        decoder: &Decoder,
        name: String,
        options_json: String,
        bytes: &[u8],
    ) -> Result<Self> {
        guard(|| {
            let options = model::OptimizerOptions::from_json(&name, &options_json)?;
            let read =
                |decoder: &mut model::Decoder| model::Optimizer::from_safetensors(decoder, options, bytes);
            let optimizer = decoder.inner.with(read)?;
            Ok(Self { decoder: decoder.inner.clone(), inner: Slot::new("Optimizer", optimizer) })
        })
    }

    /// Updates the decoder's weights.
    #[napi(ts_return_type = "Promise<StepReport>")]
    pub fn step(&self, learning_rate: Option<f64>, max_norm: Option<f64>) -> AsyncTask<Work<StepReport>> {
        let (decoder, optimizer) = (self.decoder.clone(), self.inner.clone());
        task(move || {
            let report = optimizer
                .with(|optimizer| decoder.with(|decoder| optimizer.step(decoder, learning_rate, max_norm)))?;
            let model::StepReport { step, gradient_norm, clip_coefficient } = report;
            Ok(StepReport { step: step as f64, gradient_norm, clip_coefficient })
        })
    }

    /// Returns moments and step count as a safetensors file.
    #[napi(ts_return_type = "Promise<Uint8Array>")]
    pub fn to_safetensors(&self) -> AsyncTask<Work<Uint8Array>> {
        let (decoder, optimizer) = (self.decoder.clone(), self.inner.clone());
        task(move || {
            optimizer.with(|optimizer| decoder.with(|decoder| Ok(optimizer.to_safetensors(decoder)?.into())))
        })
    }

    /// Drops the moments.
    #[napi]
    pub fn free(&self) -> Result<()> {
        guard(|| self.inner.free())
    }
}

/// Returns the learning rate of step `step` of `num_steps`.
#[napi]
pub fn scheduled_rate(schedule_json: String, step: f64, num_steps: f64) -> Result<f64> {
    guard(|| {
        let schedule: model::Schedule = options_from_json("schedule", &schedule_json)?;
        schedule.at(integer_from_f64("step", step)?, integer_from_f64("numSteps", num_steps)?)
    })
}

/// Returns the tokenizer of a GGUF file: `tokenizer.json`, `tokenizer_config.json` and, if there is one,
/// `chat_template.jinja`.
#[napi]
pub fn gguf_tokenizer(bytes: &[u8]) -> Result<Vec<String>> {
    guard(|| {
        let read = model::GgufTokenizer::read(&gguf::File::read(bytes)?)?;
        Ok([Some(read.tokenizer_json), Some(read.config_json), read.chat_template]
            .into_iter()
            .flatten()
            .collect())
    })
}
