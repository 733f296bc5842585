//! The weights of a decoder: single precision, or bfloat16 for half the memory and half the bytes to read.

use fulmar_compute::{Compute, FloatMemory, Floats, FloatsMut, MatmulPrecision, Memory, ViewMut};
use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::bf16;

use std::ops::Range;

use crate::panels::{PanelCache, PanelsByStart};
use crate::parameters::Layout;

/// All weights, and their panels once they are packed.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    values: FloatMemory,
    panels: PanelCache,
}

impl Weights {
    pub(crate) fn view(&self) -> Floats<'_> {
        self.values.view()
    }

    pub(crate) fn view_mut(&mut self) -> FloatsMut<'_> {
        self.panels.forget();
        self.values.view_mut()
    }

    /// Returns the panels, if the weights are packed.
    pub(crate) fn panels(&self) -> Option<&PanelsByStart> {
        self.panels.get()
    }

    /// Packs the weights that begin where `is_read` returns `true` for products in `precision`, unless they are packed.
    /// Takes their memory once more; a weight that does not fit is packed in each pass.
    pub(crate) fn pack(
        &self,
        layout: &Layout,
        precision: MatmulPrecision,
        is_read: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let pack = |packed: &mut PanelsByStart| {
            packed.retain(|start, _| is_read(*start));
            for (range, inputs) in layout.matrices().filter(|(range, _)| is_read(range.start)) {
                let panels = packed.entry(range.start).or_default();
                let (weight, outputs) = (self.view().slice(range.clone()), range.len() / inputs);
                if panels.pack_for(precision, weight.cpu(), outputs, inputs).is_err() {
                    packed.remove(&range.start);
                }
            }
            Ok(())
        };
        self.panels.packed_by(pack).map(|_| ())
    }

    /// Drops the panels, for others than those that were packed.
    pub(crate) fn unpack(&mut self) {
        self.panels.forget();
    }

    pub(crate) const fn dtype(&self) -> Dtype {
        self.values.dtype()
    }

    /// Rounds the weights to the nearest of `dtype`.
    ///
    /// # Errors
    /// `OutOfRange` for an unsupported dtype; `NonFinite` for a weight above its largest number.
    pub(crate) fn cast(self, dtype: Dtype, compute: Compute) -> Result<Self> {
        match (self.values, dtype) {
            (FloatMemory::F32(values), Dtype::Bf16) => {
                let mut rounded = compute.zeros(values.len())?;
                compute.f32_to_bf16(&values, &mut rounded);
                let is_wrong = |value: &bf16| !value.is_finite();
                if let Some(index) = compute.read(&rounded)?.iter().position(is_wrong) {
                    let value = compute.read(values.view().slice(index..=index))?[0];
                    let detail = format!("weights in bf16 must be finite: got {value:e} at {index}");
                    return Err(Error::new(ErrorKind::NonFinite, detail));
                }
                Ok(FloatMemory::Bf16(rounded).into())
            }
            (FloatMemory::Bf16(values), Dtype::F32) => {
                let mut wide = compute.zeros(values.len())?;
                compute.bf16_to_f32(&values, &mut wide);
                Ok(FloatMemory::F32(wide).into())
            }
            (same @ FloatMemory::F32(_), Dtype::F32) | (same @ FloatMemory::Bf16(_), Dtype::Bf16) => {
                Ok(same.into())
            }
            (_, dtype) => {
                let detail = format!("dtype of weights must be f32 or bf16: got {}", dtype.name());
                Err(Error::new(ErrorKind::OutOfRange, detail))
            }
        }
    }

    /// Returns a copy on the device of `compute`.
    pub(crate) fn copy_on(&self, compute: Compute) -> Result<Self> {
        let values = match &self.values {
            FloatMemory::F32(values) => {
                FloatMemory::F32(compute.hold(values.compute().read(values)?.into_owned())?)
            }
            FloatMemory::Bf16(values) => {
                FloatMemory::Bf16(compute.hold(values.compute().read(values)?.into_owned())?)
            }
        };
        Ok(values.into())
    }

    /// Returns memory for a [`Weights::change`] of up to `len` weights.
    pub(crate) fn room_for_change(&self, len: usize, compute: Compute) -> Result<Memory<f32>> {
        compute.zeros(if self.dtype() == Dtype::F32 { 0 } else { len })
    }

    /// Runs `change` on some weights in single precision, and rounds the results to their dtype. `wide` holds
    /// [`Weights::room_for_change`].
    pub(crate) fn change(
        &mut self,
        range: Range<usize>,
        compute: Compute,
        wide: &mut Memory<f32>,
        change: impl FnOnce(ViewMut<'_, f32>),
    ) {
        match self.view_mut() {
            FloatsMut::F32(values) => change(values.slice(range)),
            FloatsMut::Bf16(values) => {
                let values = values.slice(range);
                let mut wide = wide.view_mut().slice(..values.len());
                compute.bf16_to_f32(&values, &mut wide);
                change(wide.reborrow());
                compute.f32_to_bf16(&wide, values);
            }
        }
    }
}

impl From<Vec<f32>> for Weights {
    fn from(values: Vec<f32>) -> Self {
        FloatMemory::F32(values.into()).into()
    }
}

impl From<FloatMemory> for Weights {
    fn from(values: FloatMemory) -> Self {
        Self { values, panels: PanelCache::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cast_rounds_widens_and_refuses_what_has_no_place() {
        let cast = |weights: Weights, dtype| weights.cast(dtype, Compute::Cpu);
        let halves = cast(vec![1.0, 1.001].into(), Dtype::Bf16).unwrap();
        assert_eq!(halves.dtype(), Dtype::Bf16);
        let wide = cast(halves.clone(), Dtype::F32).unwrap();
        assert_eq!((wide.dtype(), &*wide.view().read().unwrap()), (Dtype::F32, &[1.0, 1.0][..]));
        assert_eq!(cast(halves, Dtype::Bf16).unwrap().view().len(), 2);
        let refused = cast(vec![0.0, f32::MAX].into(), Dtype::Bf16).unwrap_err();
        assert_eq!(refused.detail(), "weights in bf16 must be finite: got 3.4028235e38 at 1");
        let refused = cast(vec![0.0].into(), Dtype::I64).unwrap_err();
        assert_eq!(refused.detail(), "dtype of weights must be f32 or bf16: got i64");
    }

    #[test]
    fn a_change_is_made_in_single_precision_and_rounded_once() {
        for dtype in [Dtype::F32, Dtype::Bf16] {
            let mut weights = Weights::from(vec![1.0, 2.0, 3.0]).cast(dtype, Compute::Cpu).unwrap();
            let mut wide = weights.room_for_change(1, Compute::Cpu).unwrap();
            weights.change(1..2, Compute::Cpu, &mut wide, |values| {
                let values = values.cpu();
                values[0] += 1e-3;
                values[0] += 0.01;
            });
            let expected = if dtype == Dtype::F32 { 2.0 + 1e-3 + 0.01 } else { 2.015_625 };
            assert_eq!(&*weights.view().read().unwrap(), [1.0, expected, 3.0]);
        }
    }
}
