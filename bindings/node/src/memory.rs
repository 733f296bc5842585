//! V8 and the memory of tensors, which it cannot see.
//!
//! It is told of the bytes that tensors hold, so that it collects in time. What it has collected is given back here, at once: Node runs the
//! finalizers of objects when its event loop comes around, which a loop without an `await` keeps from it.

use std::cell::RefCell;

use fulmar::core::Result as CoreResult;
use napi::bindgen_prelude::{Object, This};
use napi::{Env, JsValue, sys};
use napi_derive::napi;

use crate::error::catch;
use crate::slot::Slot;

/// V8 is told once so many bytes came or went.
const STEP_BYTES: i64 = 4 << 20;
/// The most that V8 is told of at once.
const CHANGE_BYTES_MAX: i64 = 1 << 50;
/// Collected objects are looked for once so many bytes came.
const SWEEP_BYTES: i64 = 64 << 20;
/// And once so many objects came, as those that were freed are listed still.
const SWEEP_OBJECTS: usize = 16_384;

thread_local! {
    static ISOLATE: RefCell<Option<Isolate>> = const { RefCell::new(None) };
}

/// What belongs to the JavaScript of this thread.
struct Isolate {
    env: Env,
    /// The bytes that V8 was told of.
    told: i64,
    /// The bytes and objects that the last look for collected objects left.
    swept: (i64, usize),
    watched: Vec<Watched>,
}

/// An object, and how to give back what it holds.
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
        // It cannot fail.
        let _ = self.free();
    }
}

/// Keeps the environment of this thread.
#[napi(module_exports)]
pub fn remember_env(_exports: Object<'_>, env: Env) -> napi::Result<()> {
    let kept = catch(|| {
        let told = live_bytes();
        ISOLATE.set(Some(Isolate { env, told, swept: (told, 0), watched: Vec::new() }));
        Ok(())
    });
    kept.map_err(|error| napi::Error::from_reason(error.detail()))
}

/// Tells V8 what has come and gone, after a call. Costs a comparison unless that is much.
pub fn tell() {
    ISOLATE.with(|isolate| {
        // Borrowed already: this call is one of a function that is called while V8 is told.
        if let Ok(mut isolate) = isolate.try_borrow_mut()
            && let Some(isolate) = isolate.as_mut()
        {
            isolate.tell();
        }
    });
}

/// Has what `slot` holds given back once `this` is collected.
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
    fn tell(&mut self) {
        let live = live_bytes();
        // V8 ends the process for a change beyond 2^60.
        let grown = live.saturating_sub(self.told).clamp(-CHANGE_BYTES_MAX, CHANGE_BYTES_MAX);
        if grown.abs() < STEP_BYTES {
            return;
        }
        // What V8 does not take is told again next time.
        if self.env.adjust_external_memory(grown).is_ok() {
            self.told += grown;
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

    /// Gives back what collected objects hold. O(objects).
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
            // SAFETY: as above, and the list forgets it now.
            unsafe { sys::napi_delete_reference(env, one.reference) };
            false
        });
        self.swept = (live_bytes(), self.watched.len());
    }
}
