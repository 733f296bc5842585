//! `face!` makes a napi class of an entry of a table in `bindings/faces/`.

macro_rules! face {
    (
        $(#[$class_doc:meta])* $class:ident($inner_type:ty)
        make { $($(#[$make_doc:meta])* fn $make:ident as $make_js:ident($($make_args:tt)*) { $made:expr })* }
        call {
            $($(#[$call_doc:meta])* fn $call:ident as $call_js:ident($($call_args:tt)*) -> ($($answer:tt)*) {
                $($taken:ident = $taking:expr =>)? |$inner:ident| $asked:expr
            })*
        }
    ) => {
        $(#[$class_doc])*
        #[napi]
        pub struct $class {
            inner: Slot<$inner_type>,
        }

        impl From<$inner_type> for $class {
            fn from(inner: $inner_type) -> Self {
                Self { inner: Slot::new(stringify!($class), inner) }
            }
        }

        impl crate::face::Share<$inner_type> for $class {
            fn share(&self) -> CoreResult<$inner_type> {
                self.inner.with(|inner| Ok(inner.clone()))
            }
        }

        impl crate::face::Lend<$inner_type> for $class {
            fn lend<R>(&self, body: impl FnOnce(&mut $inner_type) -> CoreResult<R>) -> CoreResult<R> {
                self.inner.with(body)
            }
        }

        #[napi]
        impl $class {
            $($(#[$make_doc])*
            #[napi(factory)]
            pub fn $make($($make_args)*) -> Result<Self> {
                guard(|| $made.map(Self::from))
            })*

            $($(#[$call_doc])*
            #[napi]
            pub fn $call(&self, $($call_args)*) -> Result<$($answer)*> {
                guard(|| {
                    $(let $taken = $taking;)?
                    self.inner.with(|$inner| $asked.map(Into::into))
                })
            })*

            /// Frees the object's value as soon as the object is collected.
            #[napi]
            pub fn watch(&self, this: napi::bindgen_prelude::This<'_>) -> Result<()> {
                guard(|| crate::memory::watch(&this, &self.inner))
            }

            /// Drops the object's value.
            #[napi]
            pub fn free(&self) -> Result<()> {
                guard(|| self.inner.free())
            }
        }
    };
}

/// A plain object of JavaScript.
macro_rules! record {
    (
        $(#[$doc:meta])* $name:ident as $js_name:literal {
            $($(#[$field_doc:meta])* $field:ident as $js:ident: $kind:ident $(<$inner:ident>)?,)*
        }
    ) => {
        $(#[$doc])*
        #[napi(object, object_from_js = false)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind $(<$inner>)?,)*
        }
    };
}

pub(crate) use {face, record};

include!("../../faces/lend.rs");
