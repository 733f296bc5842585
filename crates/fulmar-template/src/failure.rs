//! Failures inside the engine, and their conversion to errors.

use std::error::Error as _;

use fulmar_core::{Error, ErrorKind};
use minijinja::ErrorKind as EngineKind;

/// Returns a failure of this crate, to pass through the engine.
pub fn fail(kind: ErrorKind, detail: impl Into<String>) -> minijinja::Error {
    let error = Error::new(kind, detail);
    minijinja::Error::new(EngineKind::InvalidOperation, error.detail().to_owned()).with_source(error)
}

/// Returns Python's `TypeError`.
pub fn type_error(detail: impl Into<String>) -> minijinja::Error {
    fail(ErrorKind::Incompatible, detail)
}

/// Returns jinja2's `UndefinedError`.
pub fn undefined(detail: impl Into<String>) -> minijinja::Error {
    fail(ErrorKind::UnknownName, detail)
}

/// Returns jinja2's `SecurityError`.
pub fn forbidden(detail: impl Into<String>) -> minijinja::Error {
    fail(ErrorKind::Forbidden, detail)
}

/// Converts a failure of the engine to the workspace's error.
pub fn to_error(error: &minijinja::Error) -> Error {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = error.source();
    while let Some(source) = cause {
        if let Some(ours) = source.downcast_ref::<Error>() {
            return place(ours.clone(), error);
        }
        cause = source.source();
    }
    let innermost = innermost(error);
    let detail = innermost.detail().unwrap_or_default();
    let kind = match innermost.kind() {
        EngineKind::SyntaxError | EngineKind::BadEscape => ErrorKind::Malformed,
        EngineKind::OutOfFuel => ErrorKind::LimitExceeded,
        EngineKind::WriteFailure => ErrorKind::LimitExceeded,
        EngineKind::UndefinedError
        | EngineKind::UnknownFunction
        | EngineKind::UnknownMethod
        | EngineKind::UnknownFilter
        | EngineKind::UnknownTest
        | EngineKind::UnknownBlock => ErrorKind::UnknownName,
        // Python's division by zero, and integers beyond 128 bits.
        _ if detail.starts_with("unable to calculate") => ErrorKind::OutOfRange,
        // The engine's limits exceed any conversation; jinja2's sandbox raises an OverflowError here.
        _ if ["too large", "too many elements"].iter().any(|end| detail.ends_with(end)) => {
            ErrorKind::LimitExceeded
        }
        _ if detail.contains("recursion limit") => ErrorKind::LimitExceeded,
        _ if detail.contains("undefined") => ErrorKind::UnknownName,
        _ => ErrorKind::Incompatible,
    };
    let detail = if detail.is_empty() { innermost.kind().to_string() } else { detail.to_owned() };
    place(Error::new(kind, detail), error)
}

/// Returns the error that the others only wrap.
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    let mut innermost = error;
    while let Some(cause) = innermost.source().and_then(|source| source.downcast_ref::<minijinja::Error>()) {
        innermost = cause;
    }
    innermost
}

/// Adds the place in the template; an error raised by the template itself stays unchanged.
fn place(error: Error, engine: &minijinja::Error) -> Error {
    match engine.line() {
        Some(line) if error.kind() != ErrorKind::TemplateRaised => error.at(format!("template line {line}")),
        _ => error,
    }
}
