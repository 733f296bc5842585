//! Failures inside the engine, and what they are called outside.

use std::error::Error as _;

use fulmar_core::{Error, ErrorKind};
use minijinja::ErrorKind as EngineKind;

/// A failure of this crate on its way through the engine.
pub fn fail(kind: ErrorKind, detail: impl Into<String>) -> minijinja::Error {
    let error = Error::new(kind, detail);
    minijinja::Error::new(EngineKind::InvalidOperation, error.detail().to_owned()).with_source(error)
}

/// What Python calls a `TypeError`.
pub fn type_error(detail: impl Into<String>) -> minijinja::Error {
    fail(ErrorKind::Incompatible, detail)
}

/// What jinja2 calls an `UndefinedError`.
pub fn undefined(detail: impl Into<String>) -> minijinja::Error {
    fail(ErrorKind::UnknownName, detail)
}

/// What jinja2 calls a `SecurityError`.
pub fn forbidden(detail: impl Into<String>) -> minijinja::Error {
    fail(ErrorKind::Forbidden, detail)
}

/// A failure of the engine as the workspace's error.
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
        // What the engine allows is more than any conversation has; jinja2's sandbox has an OverflowError here.
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

/// The error that the others only pass on.
fn innermost(error: &minijinja::Error) -> &minijinja::Error {
    let mut innermost = error;
    while let Some(cause) = innermost.source().and_then(|source| source.downcast_ref::<minijinja::Error>()) {
        innermost = cause;
    }
    innermost
}

/// Says where in the template it happened; what the template itself says stays as it is.
fn place(error: Error, engine: &minijinja::Error) -> Error {
    match engine.line() {
        Some(line) if error.kind() != ErrorKind::TemplateRaised => error.at(format!("template line {line}")),
        _ => error,
    }
}
