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
    /// read weights as they are stored. [`EngineWeights::Same`] gives the bits of weights that are not packed, for their memory
    /// once more on the CPU.
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
