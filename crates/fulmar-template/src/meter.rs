//! Metering of a rendering, in addition to the engine's instructions.
//!
//! The engine counts instructions, and one instruction may iterate a list or a text of any length. So each
//! operation of this crate is charged for the elements and bytes that it reads, before it reads them, and for
//! the bytes that it makes. A rendering stays on its thread, and its meter is thread-local, as the engine's
//! comparisons cannot reach it otherwise.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use fulmar_core::ErrorKind;
use minijinja::Error;

use crate::failure::fail;
use crate::namespace::Namespace;
use crate::template::Limits;

/// Bytes of a text that an operation reads in the time of one step.
const READ_BYTES_PER_STEP: usize = 16;
/// Bytes that are copied in the time of one step.
const COPIED_BYTES_PER_STEP: usize = 64;

/// The remaining limits, and the namespaces of the rendering.
struct Meter {
    limits: Cell<Limits>,
    steps: Cell<u64>,
    bytes: Cell<u64>,
    is_over: Cell<bool>,
    namespaces: RefCell<Vec<Arc<Namespace>>>,
}

const UNLIMITED: Limits = Limits { steps: u64::MAX, output_bytes: usize::MAX, made_bytes: u64::MAX };

thread_local! {
    static METER: Meter = const {
        Meter {
            limits: Cell::new(UNLIMITED),
            steps: Cell::new(u64::MAX),
            bytes: Cell::new(u64::MAX),
            is_over: Cell::new(false),
            namespaces: RefCell::new(Vec::new()),
        }
    };
}

/// A rendering that is metered until this is dropped.
#[derive(Debug)]
pub struct Metered(());

/// Starts the meter of this thread.
pub fn start(limits: Limits) -> Metered {
    METER.with(|meter| {
        meter.limits.set(limits);
        meter.steps.set(limits.steps);
        meter.bytes.set(limits.made_bytes);
        meter.is_over.set(false);
    });
    Metered(())
}

impl Drop for Metered {
    /// Empties the namespaces of the rendering: they may contain each other, and a chain of them may be long.
    fn drop(&mut self) {
        let namespaces = METER.with(|meter| {
            meter.limits.set(UNLIMITED);
            meter.steps.set(u64::MAX);
            meter.bytes.set(u64::MAX);
            meter.is_over.set(false);
            meter.namespaces.take()
        });
        for namespace in &namespaces {
            namespace.clear();
        }
    }
}

/// Keeps a namespace until the end of the rendering.
pub fn keep(namespace: &Arc<Namespace>) {
    METER.with(|meter| meter.namespaces.borrow_mut().push(Arc::clone(namespace)));
}

/// Charges for elements that an operation visits.
///
/// # Errors
/// `LimitExceeded` if no steps are left.
pub fn touch(num_elements: usize) -> Result<(), Error> {
    if try_touch(num_elements) { Ok(()) } else { check() }
}

/// Runs [`touch`] where no error can be returned: the next charge, or the end of the rendering, returns it.
#[must_use]
pub fn try_touch(num_elements: usize) -> bool {
    METER.with(|meter| {
        match meter.steps.get().checked_sub(num_elements as u64) {
            Some(left) => meter.steps.set(left),
            None => meter.is_over.set(true),
        }
        !meter.is_over.get()
    })
}

/// Charges for the bytes of a text that an operation reads.
///
/// # Errors
/// `LimitExceeded` if no steps are left.
pub fn read(num_bytes: usize) -> Result<(), Error> {
    touch(num_bytes / READ_BYTES_PER_STEP)
}

/// Charges for the bytes of a text or a list that an operation makes, freed later or not.
///
/// # Errors
/// `LimitExceeded` if no bytes or no steps are left.
pub fn make(num_bytes: usize) -> Result<(), Error> {
    touch(num_bytes / COPIED_BYTES_PER_STEP)?;
    METER.with(|meter| match meter.bytes.get().checked_sub(num_bytes as u64) {
        Some(left) => {
            meter.bytes.set(left);
            Ok(())
        }
        None => Err(fail(
            ErrorKind::LimitExceeded,
            format!(
                "a rendering must make texts and lists of at most {} bytes, this one makes more",
                meter.limits.get().made_bytes
            ),
        )),
    })
}

/// Returns an error past the limit of steps.
///
/// # Errors
/// `LimitExceeded` if an operation needed more steps than were left.
pub fn check() -> Result<(), Error> {
    METER.with(|meter| {
        if !meter.is_over.get() {
            return Ok(());
        }
        let most = meter.limits.get().steps;
        Err(fail(
            ErrorKind::LimitExceeded,
            format!("a rendering must take at most {most} steps, this one takes more"),
        ))
    })
}

/// Ends the rendering at the next charge: for a failure where no error can be returned.
pub fn end() {
    METER.with(|meter| meter.is_over.set(true));
}
