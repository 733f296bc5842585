//! A decoder whose weights are packed for passes over few rows.

use fulmar_compute::{Compute, Floats, MatRef, MatmulPrecision};
use fulmar_core::{Error, ErrorKind, Result};

use super::Decoder;
use crate::engine_options::EngineWeights;
use crate::head::Head;
use crate::layer::Layer;
use crate::lora::MergedLora;
use crate::panels::PanelsByStart;

/// A decoder with the packed weights that an engine computes with.
#[derive(Clone, Copy)]
pub(crate) struct PackedDecoder<'a> {
    pub decoder: &'a Decoder,
    panels: Option<&'a PanelsByStart>,
    lora: Option<MergedLora<'a>>,
}

impl Decoder {
    /// Packs the weights, if they are not: those of all products on the CPU, on a GPU only those with an adapter, as products there
    /// read weights as they are stored. [`EngineWeights::Same`] gives the bits of weights that are not packed. Copies those that are
    /// not packed in their place.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for an adapter merged into the weights, or for weights of 8 bits.
    pub(crate) fn packed(&self, weights: EngineWeights) -> Result<PackedDecoder<'_>> {
        match self.compute {
            Compute::Cpu => self.packed_on_cpu(weights),
            Compute::Cuda(_) => Ok(PackedDecoder { decoder: self, panels: None, lora: self.merged_lora()? }),
        }
    }

    fn packed_on_cpu(&self, weights: EngineWeights) -> Result<PackedDecoder<'_>> {
        let lora = self.merged_lora()?;
        if weights == EngineWeights::Q8 {
            let panels = self.quantized.packed_by(|packed| self.quantize(lora, packed))?;
            return Ok(PackedDecoder { decoder: self, panels: Some(panels), lora: None });
        }
        let adapts = |start| self.lora.as_ref().is_some_and(|lora| lora.adapts(&self.layout, start));
        self.weights.pack(&self.layout, self.matmul_precision, |start| !adapts(start))?;
        Ok(PackedDecoder { decoder: self, panels: self.weights.panels(), lora })
    }

    /// Rounds the weights of all products, merged with the adapter, to 8 bits.
    fn quantize(&self, lora: Option<MergedLora<'_>>, packed: &mut PanelsByStart) -> Result<()> {
        let mut quantize =
            |start, weight: MatRef<'_>| packed.entry(start).or_default().quantize(weight.cpu());
        for index in 0..self.layout.layers.len() {
            let layer = self.layer(index, lora);
            for linear in layer.ranges.linears() {
                quantize(linear.weight.start, layer.projection(linear))
                    .map_err(|_| too_large(&linear.module_name(index)))?;
            }
        }
        if let Some(head) = &self.layout.head {
            quantize(head.start, self.head().projection(head)).map_err(|_| too_large("the head"))?;
        }
        Ok(())
    }
}

impl<'a> PackedDecoder<'a> {
    pub(crate) fn layer(&self, index: usize) -> Layer<'a> {
        Layer { panels: self.panels, ..self.decoder.layer(index, self.lora) }
    }

    /// Returns the addresses of the weights that a pass reads, with numbers that differ if its operations do.
    pub(crate) fn places(&self) -> Vec<u64> {
        let (stored, precision) = (self.decoder.stored(), self.decoder.precision());
        let kind = [matches!(stored, Floats::Bf16(_)), precision == MatmulPrecision::Bf16].map(u64::from);
        let merged = self.lora.map(MergedLora::places).unwrap_or_default();
        std::iter::once(stored.place()).chain(kind).chain(merged).collect()
    }

    pub(crate) fn head(&self) -> Head<'a> {
        Head { panels: self.panels, ..self.decoder.head() }
    }
}

fn too_large(name: &str) -> Error {
    Error::new(
        ErrorKind::OutOfMemory,
        format!("out of memory: it cannot hold the weights of {name} in 8 bits"),
    )
}

#[cfg(test)]
mod tests {
    use fulmar_core::Dtype;

    use super::*;
    use crate::{
        AdamWOptions, DecoderConfig, LoraConfig, Optimizer, Request, SamplingParams, TokenBatch, generate,
    };

    /// Returns a decoder of which all matrices are whole panels, or only those of the layers.
    fn decoder(vocab: usize, is_tied: bool) -> Decoder {
        let text = format!(
            r#"{{"model_type": "qwen2", "vocab_size": {vocab}, "hidden_size": 64, "intermediate_size": 96,
            "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.2,
            "tie_word_embeddings": {is_tied}}}"#
        );
        Decoder::new(DecoderConfig::from_json(&text).unwrap(), 3).unwrap()
    }

    /// Runs steps of training, with draws between forward and backward passes; returns all that they give.
    fn train(decoder: &mut Decoder, keep_rows: bool) -> Vec<u32> {
        let mut found = Vec::new();
        let mut optimizer = Optimizer::new(&*decoder, AdamWOptions::default()).unwrap();
        let ids: Vec<u32> = (0..24).map(|at| at * 7 % 61).collect();
        let batch = TokenBatch { ids: &ids, offsets: &[0, 9, 24], mask: &[1; 24], ..Default::default() };
        let mask: Vec<u8> = (0..24).map(|at| u8::from(at != 0 && at != 9)).collect();
        let batch = TokenBatch { mask: &mask, ..batch };
        for _ in 0..3 {
            let rows = |decoder: &mut Decoder| {
                if keep_rows {
                    decoder.weights.unpack_in_place(&decoder.layout);
                }
            };
            let mut draw = |decoder: &mut Decoder| {
                rows(decoder);
                let request = Request { prompt_ids: &ids[..5], seed: 9 };
                let params = SamplingParams { max_tokens: 6, ..SamplingParams::default() };
                let drawn = generate(decoder, &[request], &params).unwrap().remove(0);
                found.extend(drawn.ids);
                found.extend(drawn.log_prob.iter().map(|value| value.to_bits()));
                found.extend(decoder.score(&batch).unwrap().entropy.iter().map(|value| value.to_bits()));
                found.extend(decoder.weights().iter().map(|value| value.to_bits()));
                found.extend(decoder.to_safetensors().unwrap().iter().map(|byte| u32::from(*byte)));
            };
            draw(decoder);
            decoder.forward(&batch).unwrap();
            decoder.backward(&[-0.1; 24], Some(&[0.01; 24])).unwrap();
            draw(decoder);
            decoder.forward(&batch).unwrap();
            decoder.backward(&[-0.1; 24], None).unwrap();
            optimizer.step(decoder, None, Some(1.0)).unwrap();
            draw(decoder);
        }
        found
    }

    #[test]
    fn weights_that_are_packed_in_their_place_change_no_bit() {
        for (vocab, is_tied) in [(96, true), (96, false), (61, true), (61, false)] {
            let (mut packed, mut in_rows) = (decoder(vocab, is_tied), decoder(vocab, is_tied));
            assert!(packed.weights.are_packed());
            in_rows.weights.unpack_in_place(&in_rows.layout);
            assert_eq!(train(&mut packed, false), train(&mut in_rows, true), "{vocab} tokens");
            assert!(packed.weights.are_packed(), "a step leaves them packed");
        }
    }

    #[test]
    fn weights_are_packed_in_their_place_where_nothing_reads_rows() {
        let mut decoder = decoder(96, true);
        let expected = decoder.weights().into_owned();
        let is_same = |decoder: &Decoder| *decoder.weights() == expected[..];
        let packed = decoder.packed(EngineWeights::Same).unwrap();
        assert!(packed.panels.is_some_and(std::collections::BTreeMap::is_empty), "nothing is copied");
        let snapshot = decoder.snapshot().unwrap();
        assert!(snapshot.weights.are_packed() && is_same(&snapshot));
        decoder.add_lora(LoraConfig { r: 2, ..LoraConfig::default() }, 0).unwrap();
        assert!(!decoder.weights.are_packed() && is_same(&decoder));
        decoder.merge_lora().unwrap();
        assert!(decoder.weights.are_packed() && is_same(&decoder), "a fresh adapter adds nothing");
        decoder.multiply_in(MatmulPrecision::Bf16);
        assert!(!decoder.weights.are_packed() && is_same(&decoder));
        decoder.multiply_in(MatmulPrecision::F32);
        assert!(decoder.weights.are_packed() && is_same(&decoder));
        let halves = decoder.with_dtype(Dtype::Bf16).unwrap();
        assert!(!halves.weights.are_packed());
        let wide = halves.clone().with_dtype(Dtype::F32).unwrap();
        assert!(wide.weights.are_packed() && wide.weights() == halves.weights());
        let other = wide.with_scalar_head(crate::ScalarHead::VHead, 0).unwrap();
        assert!(other.weights.are_packed());
    }
}
