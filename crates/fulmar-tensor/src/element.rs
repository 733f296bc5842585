//! The Rust types that can be tensor elements, and the one place that maps them to dtypes.

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
pub trait Element: Stored + Copy + Default + PartialEq + Debug + Send + Sync + 'static {
    /// The dtype of a tensor of this type.
    const DTYPE: Dtype;

    /// The nearest single; `true` is 1.
    fn to_f32(self) -> f32;
}

macro_rules! elements {
    ($($dtype:ident: $type:ty, $value:ident => $to_f32:expr;)*) => {
        $(impl Element for $type {
            const DTYPE: Dtype = Dtype::$dtype;

            fn to_f32(self) -> f32 {
                let $value = self;
                $to_f32
            }
        })*
    };
}

elements! {
    F64: f64, value => value as f32;
    F32: f32, value => value;
    F16: f16, value => value.to_f32();
    Bf16: bf16, value => value.to_f32();
    I64: i64, value => value as f32;
    I32: i32, value => value as f32;
    I16: i16, value => f32::from(value);
    I8: i8, value => f32::from(value);
    U8: u8, value => f32::from(value);
    U32: u32, value => value as f32;
    Bool: bool, value => f32::from(u8::from(value));
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
