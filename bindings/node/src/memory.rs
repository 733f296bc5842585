//! Reports native memory to V8 and frees the tensors of collected objects.
//!
//! V8 schedules garbage collection by the bytes that are reported to it, so the bytes of tensors are reported as external memory.
//! Node runs finalizers on its event loop only. A loop without an `await` never reaches it, so this module keeps weak references and frees
//! the memory of collected objects itself.
//! For the same reason arrays over Rust's memory would be kept by such a loop. The arrays here are copies in V8's memory, which its garbage
//! collector frees at once; below some thousand numbers they are cheaper to make as well.

use std::cell::RefCell;

use fulmar::core::Result as CoreResult;
use napi::bindgen_prelude::{
    Float32ArraySlice, Float64ArraySlice, FromNapiValue, Object, This, ToNapiValue, TypeName,
    Uint32ArraySlice, ValidateNapiValue, ValueType,
};
use napi::{Env, JsValue, sys};
use napi_derive::napi;

use crate::error::catch;
use crate::slot::Slot;

/// Smallest change in bytes that is reported to V8.
const STEP_BYTES: i64 = 4 << 20;
/// Largest change in bytes of one report.
const CHANGE_BYTES_MAX: i64 = 1 << 50;
/// Growth in bytes since the last sweep that starts the next one.
const SWEEP_BYTES: i64 = 64 << 20;
/// Growth in watched objects that starts a sweep, as freed objects stay in the list until then.
const SWEEP_OBJECTS: usize = 16_384;

thread_local! {
    static ISOLATE: RefCell<Option<Isolate>> = const { RefCell::new(None) };
}

/// State of the V8 isolate of this thread.
struct Isolate {
    env: Env,
    /// Bytes reported to V8 so far.
    reported: i64,
    /// Live bytes and watched objects after the last sweep.
    swept: (i64, usize),
    watched: Vec<Watched>,
}

/// A weak reference to a JavaScript object, and the native value it owns.
struct Watched {
    reference: sys::napi_ref,
    slot: Box<dyn Owned>,
}

trait Owned {
    fn is_freed(&self) -> bool;
    fn give_back(&self);
}

impl<T> Owned for Slot<T> {
    fn is_freed(&self) -> bool {
        self.was_freed()
    }

    fn give_back(&self) {
        // This cannot fail.
        let _ = self.free();
    }
}

/// Stores the Node-API environment of this thread when the addon is loaded.
#[napi(module_exports)]
pub fn remember_env(_exports: Object<'_>, env: Env) -> napi::Result<()> {
    let kept = catch(|| {
        let reported = live_bytes();
        ISOLATE.set(Some(Isolate { env, reported, swept: (reported, 0), watched: Vec::new() }));
        Ok(())
    });
    kept.map_err(|error| napi::Error::from_reason(error.detail()))
}

/// Returns the environment of this thread; `None` on threads that JavaScript does not run on, and while memory is reported.
pub fn env() -> Option<Env> {
    ISOLATE.with(|isolate| isolate.try_borrow().ok()?.as_ref().map(|isolate| isolate.env))
}

/// Reports the change in live bytes to V8 after a call. O(1) unless a sweep starts.
pub fn report() {
    ISOLATE.with(|isolate| {
        // The borrow fails where this call runs inside a report or a sweep.
        if let Ok(mut isolate) = isolate.try_borrow_mut()
            && let Some(isolate) = isolate.as_mut()
        {
            isolate.report();
        }
    });
}

/// Frees the value of `slot` once `this` is collected.
pub fn watch<T: 'static>(this: &This<'_>, slot: &Slot<T>) -> CoreResult<()> {
    ISOLATE.with(|isolate| {
        if let Ok(mut isolate) = isolate.try_borrow_mut()
            && let Some(isolate) = isolate.as_mut()
        {
            isolate.watch(this.object.raw(), Box::new(slot.clone()));
        }
    });
    Ok(())
}

fn live_bytes() -> i64 {
    i64::try_from(fulmar::tensor::live_bytes()).unwrap_or(i64::MAX)
}

impl Isolate {
    fn report(&mut self) {
        let live = live_bytes();
        // V8 ends the process for a change beyond 2^60.
        let grown = live.saturating_sub(self.reported).clamp(-CHANGE_BYTES_MAX, CHANGE_BYTES_MAX);
        if grown.abs() < STEP_BYTES {
            return;
        }
        // A report that fails is repeated with the next one.
        if self.env.adjust_external_memory(grown).is_ok() {
            self.reported += grown;
        }
        self.swept.0 = self.swept.0.min(live);
        if live - self.swept.0 >= SWEEP_BYTES {
            self.sweep();
        }
    }

    fn watch(&mut self, object: sys::napi_value, slot: Box<dyn Owned>) {
        let mut reference = std::ptr::null_mut();
        // SAFETY: `object` is the receiver of the call that is running in this environment; a count of 0 keeps nothing alive.
        let made = unsafe { sys::napi_create_reference(self.env.raw(), object, 0, &raw mut reference) };
        if made != sys::Status::napi_ok {
            return;
        }
        self.watched.push(Watched { reference, slot });
        if self.watched.len() >= 2 * self.swept.1 + SWEEP_OBJECTS {
            self.sweep();
        }
    }

    /// Frees the values of collected objects. O(watched objects).
    fn sweep(&mut self) {
        let env = self.env.raw();
        self.watched.retain(|one| {
            let mut object = std::ptr::null_mut();
            // SAFETY: the reference was made in this environment by `watch` and is deleted below alone; a collected one gives null.
            let asked = unsafe { sys::napi_get_reference_value(env, one.reference, &raw mut object) };
            let is_collected = asked == sys::Status::napi_ok && object.is_null();
            if !is_collected && !one.slot.is_freed() {
                return true;
            }
            one.slot.give_back();
            // SAFETY: as above, and the list drops it now.
            unsafe { sys::napi_delete_reference(env, one.reference) };
            false
        });
        self.swept = (live_bytes(), self.watched.len());
    }
}

/// Words in V8's memory that a call may change. No other argument of the call may show the same memory.
pub struct Words<'a>(pub &'a mut [u32]);

impl TypeName for Words<'_> {
    fn type_name() -> &'static str {
        "Uint32Array"
    }

    fn value_type() -> ValueType {
        ValueType::Object
    }
}

impl ValidateNapiValue for Words<'_> {
    unsafe fn validate(env: sys::napi_env, value: sys::napi_value) -> napi::Result<sys::napi_value> {
        // SAFETY: `env` and `value` are those of the call that is running.
        unsafe { <&mut [u32]>::validate(env, value) }
    }
}

impl FromNapiValue for Words<'_> {
    unsafe fn from_napi_value(env: sys::napi_env, value: sys::napi_value) -> napi::Result<Self> {
        // SAFETY: as above; V8 neither moves nor frees the memory of an array while the call runs.
        Ok(Self(unsafe { <&mut [u32]>::from_napi_value(env, value) }?))
    }
}

macro_rules! array {
    ($(#[$doc:meta])* $name:ident($number:ty, $slice:ident)) => {
        $(#[$doc])*
        pub struct $name(Vec<$number>);

        impl From<Vec<$number>> for $name {
            fn from(numbers: Vec<$number>) -> Self {
                Self(numbers)
            }
        }

        impl TypeName for $name {
            fn type_name() -> &'static str {
                stringify!($name)
            }

            fn value_type() -> ValueType {
                ValueType::Object
            }
        }

        impl ToNapiValue for $name {
            unsafe fn to_napi_value(env: sys::napi_env, array: Self) -> napi::Result<sys::napi_value> {
                let copy = $slice::copy_from(&Env::from_raw(env), array.0)?;
                // SAFETY: `env` is the environment of the call that is returning.
                unsafe { ToNapiValue::to_napi_value(env, copy) }
            }
        }
    };
}

array! {
    /// Single-precision numbers.
    Float32Array(f32, Float32ArraySlice)
}

array! {
    /// Words.
    Uint32Array(u32, Uint32ArraySlice)
}

array! {
    /// Double-precision numbers.
    Float64Array(f64, Float64ArraySlice)
}
