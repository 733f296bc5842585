//! LoRA adapters and scalar heads of a decoder.

use fulmar_compute::Floats;
use fulmar_core::{Error, ErrorKind, Result};

use super::Decoder;
use crate::config::ScalarHead;
use crate::lora::{Lora, LoraConfig};
use crate::parameters::{Layout, Parameter};

impl Decoder {
    /// Freezes all weights and adds a trained adapter, which changes nothing before its first step. A scalar
    /// head is trained too, on a copy that PEFT's files call `modules_to_save`.
    ///
    /// # Errors
    /// `Incompatible` if there is an adapter already; `OutOfRange`, `UnknownName` or `Empty`, naming the
    /// invalid part of `config`.
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig, LoraConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0)?;
    /// assert_eq!(decoder.num_trainable(), 2 * 2 * (8 + 8)); // two matrices for each of q and v
    /// let bytes = decoder.lora_to_safetensors()?; // PEFT's adapter_model.safetensors
    /// decoder.merge_lora()?;
    /// decoder.load_lora(LoraConfig { r: 2, ..LoraConfig::default() }, &bytes)?;
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn add_lora(&mut self, config: LoraConfig, seed: u64) -> Result<()> {
        self.set_lora(|layout, weights| Lora::new(config, layout, weights, seed))
    }

    /// Runs [`Decoder::add_lora`] with the weights of PEFT's `adapter_model.safetensors`.
    ///
    /// # Errors
    /// The errors of [`Decoder::add_lora`] and of [`safetensors::read`](fulmar_tensor::safetensors::read);
    /// `Incompatible` for other tensors.
    pub fn load_lora(&mut self, config: LoraConfig, bytes: &[u8]) -> Result<()> {
        self.set_lora(|layout, _| Lora::read(config, layout, bytes))?;
        self.count_change();
        Ok(())
    }

    /// Returns whether there is an adapter.
    #[must_use]
    pub const fn has_lora(&self) -> bool {
        self.lora.is_some()
    }

    /// Returns the adapter's shape as PEFT's `adapter_config.json`.
    ///
    /// # Errors
    /// `Empty` without an adapter.
    pub fn lora_config_json(&self) -> Result<String> {
        let lora = self.lora.as_ref().ok_or_else(no_adapter)?;
        Ok(lora.config.to_json_beside(self.config.scalar_head))
    }

    /// Returns the adapter as PEFT's `adapter_model.safetensors`.
    ///
    /// # Errors
    /// `Empty` without an adapter.
    pub fn lora_to_safetensors(&self) -> Result<Vec<u8>> {
        self.lora.as_ref().ok_or_else(no_adapter)?.write()
    }

    /// Adds the adapter to the weights, which are trained again, and removes it.
    ///
    /// # Errors
    /// `Empty` without an adapter; `OutOfMemory` if there is no memory for intermediate results: nothing has then changed.
    pub fn merge_lora(&mut self) -> Result<()> {
        self.lora.as_ref().ok_or_else(no_adapter)?.merge(&self.layout, &mut self.weights)?;
        self.lora = None;
        self.store_for_passes();
        self.version += 1;
        self.forget_training();
        Ok(())
    }

    /// Returns a decoder with these weights and a new scalar head: its weights normal with
    /// `initializer_range`, its bias 0. All of them are trained. [`ScalarHead::Score`] removes an output head
    /// that is not the embedding table.
    ///
    /// # Errors
    /// `Incompatible` if there is a scalar head or an adapter already.
    pub fn with_scalar_head(&self, head: ScalarHead, seed: u64) -> Result<Self> {
        if self.layout.scalar.is_some() || self.lora.is_some() {
            let detail = "a decoder must have no scalar head and no adapter to be given one: got one";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let known_weights = self.weights();
        let mut decoder = Self::with_weights(self.config.with_scalar_head(head), |config, layout| {
            let mut weights = layout.init(config, seed);
            for parameter in &layout.parameters {
                let same = |known: &&Parameter| known.name == parameter.name;
                if let Some(known) = self.layout.parameters.iter().find(same) {
                    weights[parameter.range.clone()].copy_from_slice(&known_weights[known.range.clone()]);
                }
            }
            Ok(weights)
        })?
        .with_dtype(self.dtype())?;
        decoder.multiply_in(self.matmul_precision);
        decoder.move_onto(self.compute)?;
        decoder.extra_files = self.extra_files.clone();
        Ok(decoder)
    }

    pub(crate) fn set_lora(&mut self, make: impl FnOnce(&Layout, Floats<'_>) -> Result<Lora>) -> Result<()> {
        if self.lora.is_some() {
            let detail = "a decoder must have at most one adapter: it already has one";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let mut lora = make(&self.layout, self.stored())?;
        lora.copy_to(self.compute)?;
        self.lora = Some(lora);
        self.weights.forget_panels();
        self.store_for_passes();
        self.forget_training();
        Ok(())
    }
}

fn no_adapter() -> Error {
    Error::new(ErrorKind::Empty, "a decoder must have an adapter")
}
