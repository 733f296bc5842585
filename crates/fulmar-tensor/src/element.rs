//! The Rust types that can be tensor elements, mapped to dtypes.

use std::fmt::Debug;

use fulmar_core::Dtype;
use half::{bf16, f16};

use crate::storage::Stored;

/// A Rust type that can be the element of a [`Tensor`](crate::Tensor). Sealed: the eleven types of [`Dtype`].
///
/// # Examples
/// ```
/// use fulmar_core::Dtype;
/// use fulmar_tensor::Element;
/// assert_eq!(<f32 as Element>::DTYPE, Dtype::F32);
/// assert_eq!(<fulmar_tensor::bf16 as Element>::DTYPE, Dtype::Bf16);
/// ```
pub trait Element:
    Stored + bytemuck::Zeroable + Copy + Default + PartialEq + Debug + Send + Sync + 'static
{
    /// The dtype of a tensor of this type.
    const DTYPE: Dtype;

    /// Returns the nearest single; `true` is 1.
    fn to_f32(self) -> f32;

    /// Returns the nearest double; `true` is 1.
    fn to_f64(self) -> f64;

    /// Returns the element that equals `value`: floats round; `None` if an integer or a bool cannot represent
    /// it.
    fn from_f64(value: f64) -> Option<Self>;
}

macro_rules! elements {
    ($($dtype:ident: $type:ty, $value:ident => $to_f32:expr, $to_f64:expr, $from_f64:expr;)*) => {
        $(impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;

            fn to_f32(self) -> f32 {
                let $value = self;
                $to_f32
            }

            fn to_f64(self) -> f64 {
                let $value = self;
                $to_f64
            }

            fn from_f64($value: f64) -> Option<Self> {
                $from_f64
            }
        })*
    };
}

macro_rules! integer {
    ($type:ty, $value:ident) => {
        // The upper bound as a double is exact or one past the type's last value: `<` needs the next power of two.
        ($value.trunc() == $value && $value >= <$type>::MIN as f64 && $value < 2.0 * (<$type>::MAX / 2 + 1) as f64)
            .then_some($value as $type)
    };
}

elements! {
    F64: f64, value => value as f32, value, Some(value);
    F32: f32, value => value, f64::from(value), Some(value as f32);
    F16: f16, value => value.to_f32(), value.to_f64(), Some(f16::from_f64(value));
    Bf16: bf16, value => value.to_f32(), value.to_f64(), Some(bf16::from_f64(value));
    I64: i64, value => value as f32, value as f64, integer!(i64, value);
    I32: i32, value => value as f32, f64::from(value), integer!(i32, value);
    I16: i16, value => f32::from(value), f64::from(value), integer!(i16, value);
    I8: i8, value => f32::from(value), f64::from(value), integer!(i8, value);
    U8: u8, value => f32::from(value), f64::from(value), integer!(u8, value);
    U32: u32, value => value as f32, f64::from(value), integer!(u32, value);
    Bool: bool, value => f32::from(u8::from(value)), f64::from(u8::from(value)), (value == 0.0 || value == 1.0).then_some(value == 1.0);
}

/// Runs `body` with the alias `T` bound to the element type of `dtype`.
macro_rules! with_element {
    ($dtype:expr, $T:ident => $body:expr) => {{
        use fulmar_core::Dtype;
        macro_rules! arm {
            ($type:ty) => {{
                type $T = $type;
                $body
            }};
        }
        match $dtype {
            Dtype::F64 => arm!(f64),
            Dtype::F32 => arm!(f32),
            Dtype::F16 => arm!(half::f16),
            Dtype::Bf16 => arm!(half::bf16),
            Dtype::I64 => arm!(i64),
            Dtype::I32 => arm!(i32),
            Dtype::I16 => arm!(i16),
            Dtype::I8 => arm!(i8),
            Dtype::U8 => arm!(u8),
            Dtype::U32 => arm!(u32),
            Dtype::Bool => arm!(bool),
        }
    }};
}
pub(crate) use with_element;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_come_from_doubles_that_equal_them_and_from_no_others() {
        assert_eq!(
            [-129.0, -128.0, 127.0, 128.0, 0.5].map(i8::from_f64),
            [None, Some(-128), Some(127), None, None]
        );
        assert_eq!(
            [-1.0, 0.0, 255.0, 256.0, f64::NAN].map(u8::from_f64),
            [None, Some(0), Some(255), None, None]
        );
        assert_eq!([4_294_967_295.0, 4_294_967_296.0].map(u32::from_f64), [Some(u32::MAX), None]);
        assert_eq!(
            [-9_223_372_036_854_775_808.0, 9_223_372_036_854_775_808.0, f64::INFINITY].map(i64::from_f64),
            [Some(i64::MIN), None, None]
        );
        assert_eq!([0.0, 1.0, 2.0].map(bool::from_f64), [Some(false), Some(true), None]);
        assert_eq!(<bf16 as Element>::from_f64(1.0), Some(bf16::ONE));
    }
}
