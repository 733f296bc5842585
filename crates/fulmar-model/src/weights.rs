//! The weights of a decoder: single precision, or bfloat16 for half the memory and half the bytes to read.

use fulmar_compute::{Compute, FloatMemory, Floats, FloatsMut, MatmulPrecision, Memory, ViewMut};
use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::bf16;

use std::borrow::Cow;
use std::ops::Range;

use crate::panels::{PanelCache, PanelsByStart};
use crate::parameters::Layout;

/// All weights, and the packed copies of some.
#[derive(Debug, Clone)]
pub(crate) struct Weights {
    values: FloatMemory,
    /// `true` if those of whole panels are packed in their place.
    are_packed: bool,
    panels: PanelCache,
}

impl Weights {
    /// Returns the weights as they are stored.
    pub(crate) fn view(&self) -> Floats<'_> {
        self.values.view()
    }

    /// Returns the weights, which are in rows, to be changed.
    pub(crate) fn view_mut(&mut self) -> FloatsMut<'_> {
        debug_assert!(!self.are_packed, "weights are unpacked before they change");
        self.panels.forget();
        self.values.view_mut()
    }

    /// Returns whether weights of whole panels are packed in their place.
    pub(crate) const fn are_packed(&self) -> bool {
        self.are_packed
    }

    /// Returns all weights in single precision and in rows: borrowed if they are stored so, else copied.
    ///
    /// # Errors
    /// The errors of [`Floats::read`].
    pub(crate) fn rows(&self, layout: &Layout) -> Result<Cow<'_, [f32]>> {
        let mut rows = self.view().read()?;
        if self.are_packed {
            unpack(rows.to_mut(), layout);
        }
        Ok(rows)
    }

    /// Packs weights of whole panels in their place. They must be in single precision on the CPU.
    pub(crate) fn pack_in_place(&mut self, layout: &Layout) {
        if !std::mem::replace(&mut self.are_packed, true) {
            let values = self.values.f32_mut().view_mut().cpu();
            for (range, inputs) in layout.whole_panels() {
                Compute::Cpu.pack_in_place(&mut values[range.clone()], inputs);
            }
            self.panels = PanelCache::default();
        }
    }

    /// Inverts [`Weights::pack_in_place`].
    pub(crate) fn unpack_in_place(&mut self, layout: &Layout) {
        if std::mem::take(&mut self.are_packed) {
            unpack(self.values.f32_mut().view_mut().cpu(), layout);
        }
    }

    /// Returns the panels, if the weights are packed.
    pub(crate) fn panels(&self) -> Option<&PanelsByStart> {
        self.panels.get()
    }

    /// Makes packed copies of the weights that begin where `is_read` returns `true` for products in `precision`, unless they are
    /// packed. Takes their memory once more; a weight that does not fit is packed in each pass.
    pub(crate) fn pack(
        &self,
        layout: &Layout,
        precision: MatmulPrecision,
        is_read: impl Fn(usize) -> bool,
    ) -> Result<()> {
        let is_copied = |range: &Range<usize>| {
            is_read(range.start) && !(self.are_packed && layout.inputs_of_panels(range).is_some())
        };
        let pack = |packed: &mut PanelsByStart| {
            packed.retain(|start, _| is_read(*start));
            for (range, inputs) in layout.matrices().filter(|(range, _)| is_copied(range)) {
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

    /// Drops the packed copies, for others than those that were packed.
    pub(crate) fn forget_panels(&mut self) {
        self.panels.forget();
    }

    pub(crate) const fn dtype(&self) -> Dtype {
        self.values.dtype()
    }

    /// Rounds the weights, which are in rows, to the nearest of `dtype`.
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

    /// Returns a copy on the device of `compute`, in rows if that is another one.
    pub(crate) fn copy_on(&self, layout: &Layout, compute: Compute) -> Result<Self> {
        let are_packed = self.are_packed && compute == Compute::Cpu;
        let values = match &self.values {
            FloatMemory::F32(values) => {
                let mut values = values.compute().read(values)?.into_owned();
                if self.are_packed && !are_packed {
                    unpack(&mut values, layout);
                }
                FloatMemory::F32(compute.hold(values)?)
            }
            FloatMemory::Bf16(values) => {
                FloatMemory::Bf16(compute.hold(values.compute().read(values)?.into_owned())?)
            }
        };
        Ok(Self { are_packed, ..values.into() })
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

/// Unpacks weights that were packed in their place.
fn unpack(values: &mut [f32], layout: &Layout) {
    for (range, inputs) in layout.whole_panels() {
        Compute::Cpu.unpack_in_place(&mut values[range.clone()], inputs);
    }
}

impl From<Vec<f32>> for Weights {
    fn from(values: Vec<f32>) -> Self {
        FloatMemory::F32(values.into()).into()
    }
}

impl From<FloatMemory> for Weights {
    fn from(values: FloatMemory) -> Self {
        Self { values, are_packed: false, panels: PanelCache::default() }
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
