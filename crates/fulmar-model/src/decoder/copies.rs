//! The weights of a decoder elsewhere: on another device, in another dtype or precision, in a copy for a sampler.

use fulmar_compute::{Compute, MatmulPrecision, Memory};
use fulmar_core::{Device, Dtype, Result};

use super::{Activations, Decoder, KeptActivations, Spare};
use crate::panels::PanelCache;

impl Decoder {
    /// Moves the decoder, its weights and its adapter to `device`. Drops gradients. On a GPU a decoder is scored and trained, and an
    /// [`Engine`](crate::Engine) draws from it; with f32 weights, with the bits of the CPU. Weights in bfloat16 are multiplied there
    /// by what is rounded to bfloat16, as by [`MatmulPrecision::Bf16`] of [`Decoder::multiply_in`], and attention computes with
    /// queries, keys and values in bfloat16, if heads have a width of 64, 80, 96, 128 or 256.
    ///
    /// # Errors
    /// `Unavailable`, with the reason, if there is no such device; `OutOfMemory` if the weights do not fit in its memory. After an error the decoder is unchanged.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::{Device, ErrorKind};
    /// use fulmar_model::{Decoder, DecoderConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// assert_eq!(decoder.move_to(Device::Cuda { ordinal: 9999 }).unwrap_err().kind(), ErrorKind::Unavailable);
    /// assert_eq!(decoder.device(), Device::Cpu);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn move_to(&mut self, device: Device) -> Result<()> {
        self.move_onto(Compute::open(device)?)
    }

    pub(crate) fn move_onto(&mut self, compute: Compute) -> Result<()> {
        if compute == self.compute {
            return Ok(());
        }
        let weights = self.weights.copy_on(&self.layout, compute)?;
        if let Some(lora) = &mut self.lora {
            lora.copy_to(compute)?;
        }
        (self.weights, self.compute, self.spare) = (weights, compute, Spare::default());
        self.store_for_passes();
        self.forget_training();
        Ok(())
    }

    /// Returns a copy of the weights and the adapter, without gradients and activations: the weights of a
    /// sampler, while this decoder is trained. Changes of the copy are counted from 0.
    ///
    /// # Errors
    /// `LimitExceeded` if the copy does not fit in the memory of the device.
    ///
    /// # Examples
    /// ```
    /// use fulmar_model::{Decoder, DecoderConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// let snapshot = decoder.snapshot()?;
    /// decoder.add_lora(Default::default(), 0)?;
    /// assert!(!snapshot.has_lora());
    /// assert_eq!(snapshot.weights(), decoder.weights());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn snapshot(&self) -> Result<Self> {
        let mut lora = self.lora.clone();
        if let Some(lora) = &mut lora {
            lora.copy_to(self.compute)?;
        }
        Ok(Self {
            config: self.config.clone(),
            layout: self.layout.clone(),
            compute: self.compute,
            weights: self.weights.copy_on(&self.layout, self.compute)?,
            quantized: PanelCache::default(),
            lora,
            extra_files: self.extra_files.clone(),
            gradients: Memory::default(),
            activations: Activations::default(),
            spare: Spare::default(),
            kept: KeptActivations::default(),
            recomputes: self.recomputes,
            matmul_precision: self.matmul_precision,
            version: 0,
        })
    }

    /// Returns the decoder with its weights in `dtype`, each rounded to the nearest. [`Dtype::Bf16`] takes
    /// half the memory, and half the time to read when few rows are computed, as in decoding. Sums and
    /// activations use single precision, so every result has the bits of the rounded weights in single
    /// precision; on a GPU what these weights are multiplied by, and what attention reads, is rounded, too, see
    /// [`Decoder::move_to`]. An [`Optimizer`](crate::Optimizer) keeps master copies that are not rounded. An adapter
    /// stays in single precision; gradients are dropped.
    ///
    /// # Errors
    /// `OutOfRange` for a dtype other than `f32` and `bf16`; `NonFinite` for a weight above the largest
    /// bfloat16.
    ///
    /// # Examples
    /// ```
    /// use fulmar_core::Dtype;
    /// use fulmar_model::{Decoder, DecoderConfig};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let whole = Decoder::new(config.clone(), 1)?;
    /// let halves = whole.clone().with_dtype(Dtype::Bf16)?;
    /// let bytes = halves.to_safetensors()?; // tensors of BF16
    /// assert!(bytes.len() < whole.to_safetensors()?.len());
    /// assert_eq!(Decoder::from_safetensors(config, &bytes)?.weights(), halves.weights());
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn with_dtype(mut self, dtype: Dtype) -> Result<Self> {
        self.weights.unpack_in_place(&self.layout);
        self.weights = self.weights.cast(dtype, self.compute)?;
        self.store_for_passes();
        self.forget_training();
        Ok(self)
    }

    /// Computes products in `precision` from now on: those of the layers and of the vocabulary head, forward and
    /// backward. With [`MatmulPrecision::Bf16`] they round both operands to bfloat16, and take down to half the time on
    /// AMD's processors with AVX512-BF16, twice the time on Intel's. Weights, sums, norms, attention, log-probs, gradients and the optimizer stay in
    /// single precision. An engine computes likewise, so that the log-probs of its tokens are still those of
    /// [`Decoder::forward`], bit for bit; other processors give the same products. Drops gradients.
    ///
    /// # Examples
    /// ```
    /// use fulmar_compute::MatmulPrecision;
    /// use fulmar_model::{Decoder, DecoderConfig, TokenBatch};
    /// let config = DecoderConfig::from_json(r#"{
    ///     "model_type": "llama", "vocab_size": 5, "hidden_size": 8, "intermediate_size": 16,
    ///     "num_hidden_layers": 1, "num_attention_heads": 2
    /// }"#)?;
    /// let mut decoder = Decoder::new(config, 1)?;
    /// let batch = TokenBatch { ids: &[1, 2], offsets: &[0, 2], mask: &[0, 1], ..Default::default() };
    /// let exact = decoder.score(&batch)?.log_prob[1];
    /// decoder.multiply_in(MatmulPrecision::Bf16);
    /// let near = decoder.score(&batch)?.log_prob[1];
    /// assert!(exact != near && (exact - near).abs() < 1e-3);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn multiply_in(&mut self, precision: MatmulPrecision) {
        if precision == self.matmul_precision {
            return;
        }
        self.matmul_precision = precision;
        self.weights.forget_panels();
        self.store_for_passes();
        self.forget_training();
    }

    /// Returns the precision of products.
    #[must_use]
    pub const fn matmul_precision(&self) -> MatmulPrecision {
        self.matmul_precision
    }
}
