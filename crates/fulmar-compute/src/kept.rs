//! The first error of a thread's operations on GPUs, until [`crate::Compute::check`] returns it. A pass runs on one thread, and
//! does nothing more after its first error.

use std::cell::RefCell;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_cuda::Card;

thread_local! {
    static FIRST: RefCell<Option<Error>> = const { RefCell::new(None) };
}

/// Runs an operation, unless one before failed; an error is kept with its name.
pub(crate) fn run<R: Default>(name: &str, operation: impl FnOnce() -> Result<R>) -> R {
    if FIRST.with_borrow(Option::is_some) {
        return R::default();
    }
    operation().unwrap_or_else(|error| {
        FIRST.set(Some(if error.detail().starts_with(name) { error } else { error.at(name) }));
        R::default()
    })
}

/// Returns the kept error, once.
pub(crate) fn take() -> Result<()> {
    FIRST.take().map_or(Ok(()), Err)
}

/// Returns the error for an operation that a GPU has no kernel for.
pub(crate) fn lacking(card: Card, name: &str) -> Error {
    let detail = format!("{name} must run on the CPU: cuda:{} has no kernel for it yet", card.ordinal());
    Error::new(ErrorKind::Unavailable, detail)
}

/// The result of work that a GPU has no kernels for.
pub trait Lacking {
    /// Returns the error, or keeps it for [`crate::Compute::check`] if the type has no place for one.
    fn lacking(card: Card, name: &str) -> Self;
}

impl<T> Lacking for Result<T> {
    fn lacking(card: Card, name: &str) -> Self {
        Err(lacking(card, name))
    }
}

macro_rules! kept {
    ($([$($generic:ident)?] $type:ty;)*) => {
        $(impl$(<$generic>)? Lacking for $type {
            fn lacking(card: Card, name: &str) -> Self {
                run(name, || Err(lacking(card, name)))
            }
        })*
    };
}

kept! {
    [] ();
    [] f32;
    [T] Vec<T>;
}

/// Returns the name of the function that holds `place`, a function in its body.
#[must_use]
pub fn name_around<F>(_place: &F) -> &'static str {
    let path = std::any::type_name::<F>();
    path.rsplit("::").filter(|part| *part != "{{closure}}").nth(1).unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_error_is_kept_with_its_name_and_returned_once() {
        let failed = |detail: &str| Err::<(), _>(Error::new(ErrorKind::Unavailable, detail));
        assert_eq!(run("scale", || Ok(3)), 3);
        run("scale", || failed("scale must run"));
        assert_eq!(run("matmul", || Ok(3)), 0, "an operation after an error does nothing");
        run("matmul", || failed("never seen"));
        assert_eq!(take().unwrap_err().detail(), "scale must run");
        run("matmul", || failed("x must run"));
        assert_eq!(take().unwrap_err().detail(), "matmul: x must run");
        take().unwrap();
    }

    #[test]
    fn the_function_around_a_place_gives_its_name() {
        let name_in = || {
            fn place() {}
            name_around(&place)
        };
        let name = name_in();
        assert_eq!(name, "the_function_around_a_place_gives_its_name");
    }
}
