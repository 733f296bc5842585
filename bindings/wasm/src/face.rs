//! `face!` makes a wasm-bindgen class of an entry of a table in `bindings/faces/`.

use std::cell::{Ref, RefCell, RefMut};

use fulmar::core::{Error, ErrorKind, Result};
pub(crate) use lend::{Lend, Share};

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
        #[wasm_bindgen]
        pub struct $class {
            inner: RefCell<$inner_type>,
        }

        impl From<$inner_type> for $class {
            fn from(inner: $inner_type) -> Self {
                Self { inner: RefCell::new(inner) }
            }
        }

        impl crate::face::Share<$inner_type> for $class {
            fn share(&self) -> CoreResult<$inner_type> {
                Ok(crate::face::shared(stringify!($class), &self.inner)?.clone())
            }
        }

        impl crate::face::Lend<$inner_type> for $class {
            fn lend<R>(&self, body: impl FnOnce(&mut $inner_type) -> CoreResult<R>) -> CoreResult<R> {
                body(&mut *crate::face::lent(stringify!($class), &self.inner)?)
            }
        }

        #[wasm_bindgen]
        impl $class {
            $($(#[$make_doc])*
            #[wasm_bindgen(js_name = $make_js)]
            pub fn $make($($make_args)*) -> Result<Self> {
                guard(|| $made.map(Self::from))
            })*

            $($(#[$call_doc])*
            #[wasm_bindgen(js_name = $call_js)]
            pub fn $call(&self, $($call_args)*) -> Result<$($answer)*> {
                guard(|| {
                    $(let $taken = $taking;)?
                    let mut lent = crate::face::lent(stringify!($class), &self.inner)?;
                    let $inner = &mut *lent;
                    $asked.map(Into::into)
                })
            })*
        }
    };
}

/// Makes a plain object of JavaScript: one of WebAssembly's memory would have to be freed by whoever gets it.
macro_rules! record {
    (
        $(#[$doc:meta])* $name:ident as $js_name:literal {
            $($(#[$field_doc:meta])* $field:ident as $js:ident: $kind:ident $(<$inner:ident>)?,)*
        }
    ) => {
        $(#[$doc])*
        pub struct $name {
            $($(#[$field_doc])* pub $field: $kind $(<$inner>)?,)*
        }

        const _: () = {
            #[wasm_bindgen(typescript_custom_section)]
            const DECLARATION: &str = concat!(
                "export interface ", $js_name, " {\n",
                $("  ", stringify!($js), ": ", crate::face::field_type!($kind $(<$inner>)?), ";\n",)*
                "}\n",
            );

            #[wasm_bindgen]
            extern "C" {
                #[wasm_bindgen(js_name = Object, typescript_type = $js_name)]
                pub type Made;
                #[wasm_bindgen(constructor, js_class = Object)]
                fn new() -> Made;
                $(#[wasm_bindgen(method, setter = $js)]
                fn $field(made: &Made, value: $kind $(<$inner>)?);)*
            }

            impl wasm_bindgen::describe::WasmDescribe for $name {
                fn describe() {
                    Made::describe();
                }
            }

            impl wasm_bindgen::convert::IntoWasmAbi for $name {
                type Abi = <Made as wasm_bindgen::convert::IntoWasmAbi>::Abi;

                fn into_abi(self) -> Self::Abi {
                    let made = Made::new();
                    $(made.$field(self.$field);)*
                    made.into_abi()
                }
            }
        };
    };
}

/// The type of a field of a record in TypeScript; wasm-bindgen makes declarations on this target alone.
#[cfg(target_family = "wasm")]
macro_rules! field_type {
    (f64) => {
        "number"
    };
    (String) => {
        "string"
    };
    (Option<$inner:ident>) => {
        concat!(crate::face::field_type!($inner), " | undefined")
    };
    ($array:ident) => {
        stringify!($array)
    };
}

#[cfg(target_family = "wasm")]
pub(crate) use field_type;
pub(crate) use {face, record};

/// Returns the value, to be changed; `Forbidden` in a function of JavaScript that it is calling.
pub(crate) fn lent<'a, T>(name: &str, value: &'a RefCell<T>) -> Result<RefMut<'a, T>> {
    value.try_borrow_mut().map_err(|_| in_use(name))
}

/// Returns the value, to be looked at; `Forbidden` in a function of JavaScript that it is calling.
pub(crate) fn shared<'a, T>(name: &str, value: &'a RefCell<T>) -> Result<Ref<'a, T>> {
    value.try_borrow().map_err(|_| in_use(name))
}

fn in_use(name: &str) -> Error {
    let detail = format!(
        "{name} must not be used by a function that it is calling: call it after that function has returned"
    );
    Error::new(ErrorKind::Forbidden, detail)
}

#[cfg_attr(
    not(feature = "whole"),
    expect(dead_code, reason = "classes of the edge module take no other class")
)]
mod lend {
    include!("../../faces/lend.rs");
}
