//! Converts elements of any dtype to doubles or 64-bit integers, and back.

use fulmar_core::{Dtype, Result};
use fulmar_tensor::{Element, Tensor, bf16, f16};

/// Conversions of every element type. They round and saturate, as Rust's `as` does; a bool is `true` if the
/// number is not 0.
pub trait Number: Element {
    fn to_f64(self) -> f64;
    fn to_i64(self) -> i64;
    fn of_f64(value: f64) -> Self;
    fn of_i64(value: i64) -> Self;
}

macro_rules! numbers {
    ($($type:ty, $x:ident => $to_f64:expr, $to_i64:expr, $of_f64:expr, $of_i64:expr;)*) => {
        $(impl Number for $type {
            fn to_f64(self) -> f64 {
                let $x = self;
                $to_f64
            }

            fn to_i64(self) -> i64 {
                let $x = self;
                $to_i64
            }

            fn of_f64($x: f64) -> Self {
                $of_f64
            }

            fn of_i64($x: i64) -> Self {
                $of_i64
            }
        })*
    };
}

macro_rules! integers {
    ($($type:ty)*) => {
        numbers! { $($type, x => x as f64, i64::from(x), x as $type, x.clamp(<$type>::MIN.into(), <$type>::MAX.into()) as $type;)* }
    };
}

integers! { i64 i32 i16 i8 u8 u32 }

numbers! {
    f64, x => x, x as i64, x, x as f64;
    f32, x => f64::from(x), x as i64, x as f32, x as f32;
    f16, x => x.to_f64(), x.to_f64() as i64, f16::from_f64(x), f16::from_f64(x as f64);
    bf16, x => x.to_f64(), x.to_f64() as i64, bf16::from_f64(x), bf16::from_f64(x as f64);
    bool, x => f64::from(u8::from(x)), i64::from(x), x != 0.0, x != 0;
}

/// Runs `$body` with the alias `$T` bound to the element type of `$dtype`.
macro_rules! with_number {
    ($dtype:expr, $T:ident => $body:expr) => {
        with_number!(@ $dtype, $T, $body; F64 f64, F32 f32, F16 f16, Bf16 bf16, I64 i64, I32 i32, I16 i16, I8 i8, U8 u8, U32 u32, Bool bool)
    };
    (@ $dtype:expr, $T:ident, $body:expr; $($variant:ident $type:ty),*) => {
        match $dtype {
            $(Dtype::$variant => { type $T = $type; $body })*
        }
    };
}

/// Returns whether numbers of `dtype` are whole.
pub const fn is_whole(dtype: Dtype) -> bool {
    !matches!(dtype, Dtype::F64 | Dtype::F32 | Dtype::F16 | Dtype::Bf16)
}

/// Returns the least and the largest number of an integer `dtype`.
pub const fn whole_range(dtype: Dtype) -> (i64, i64) {
    match dtype {
        Dtype::I32 => (i32::MIN as i64, i32::MAX as i64),
        Dtype::I16 => (i16::MIN as i64, i16::MAX as i64),
        Dtype::I8 => (i8::MIN as i64, i8::MAX as i64),
        Dtype::U8 => (0, u8::MAX as i64),
        Dtype::U32 => (0, u32::MAX as i64),
        Dtype::Bool => (0, 1),
        _ => (i64::MIN, i64::MAX),
    }
}

/// Returns the largest integer up to which `dtype` represents all integers from 0 exactly, also via doubles.
pub const fn exact_max(dtype: Dtype) -> i64 {
    match dtype {
        Dtype::Bf16 => 1 << 8,
        Dtype::F16 => 1 << 11,
        Dtype::F32 => 1 << 24,
        Dtype::F64 | Dtype::I64 => 1 << 53,
        _ => whole_range(dtype).1,
    }
}

/// Returns the elements, row-major; integers past 2^53 are rounded.
pub fn floats(tensor: &Tensor) -> Result<Vec<f64>> {
    with_number!(tensor.dtype(), T => Ok(tensor.to_vec::<T>()?.into_iter().map(Number::to_f64).collect()))
}

/// Returns the elements, row-major; floats lose their fractions.
pub fn integers(tensor: &Tensor) -> Result<Vec<i64>> {
    with_number!(tensor.dtype(), T => Ok(tensor.to_vec::<T>()?.into_iter().map(Number::to_i64).collect()))
}

/// Returns a tensor of `dtype` out of doubles.
pub fn of_floats(dtype: Dtype, shape: &[usize], values: Vec<f64>) -> Result<Tensor> {
    with_number!(dtype, T => Tensor::from_vec(shape, values.into_iter().map(T::of_f64).collect::<Vec<_>>()))
}

/// Returns a tensor of `dtype` out of integers.
pub fn of_integers(dtype: Dtype, shape: &[usize], values: Vec<i64>) -> Result<Tensor> {
    with_number!(dtype, T => Tensor::from_vec(shape, values.into_iter().map(T::of_i64).collect::<Vec<_>>()))
}

/// Casts to another dtype.
pub fn cast(tensor: &Tensor, dtype: Dtype) -> Result<Tensor> {
    if tensor.dtype() == dtype {
        return Ok(tensor.clone());
    }
    if is_whole(tensor.dtype()) && is_whole(dtype) {
        return of_integers(dtype, tensor.shape(), integers(tensor)?);
    }
    of_floats(dtype, tensor.shape(), floats(tensor)?)
}
