//! The one error type of the workspace.

use std::fmt;

/// The kind of a failure, stable across releases. [`ErrorKind::code`] becomes `err.code` in JavaScript.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// Two inputs disagree on length or rank, or a length does not fit a shape.
    ShapeMismatch,
    /// An argument is outside its documented range.
    OutOfRange,
    /// A NaN or an infinity where only finite numbers make sense.
    NonFinite,
    /// A required collection is empty.
    Empty,
    /// An unknown name: an option key, a tensor name, an enumeration value.
    UnknownName,
    /// Text that does not have the documented form (JSON of the wrong shape, a missing field).
    Malformed,
    /// Bytes that claim a format and break its rules.
    Corrupt,
    /// Outside input exceeds a named limit of [`crate::limits`].
    LimitExceeded,
    /// A tokenizer met text that its vocabulary cannot express.
    UnknownText,
    /// Two valid inputs that cannot be used together, such as a model and a checkpoint of another
    /// architecture.
    Incompatible,
    /// A chat template called `raise_exception`; the message is the template's.
    TemplateRaised,
    /// A chat template accessed something that its sandbox forbids, or a callback used the object that was
    /// calling it.
    Forbidden,
    /// The operating system refused a read or a write.
    Io,
    /// The object is closed, or a required earlier operation has not happened.
    Closed,
    /// A Rust panic caught at the language boundary: a bug in Fulmar, never in the caller.
    Panic,
    /// A callback of the caller failed or returned an invalid value.
    UserCode,
    /// A feature that this machine or this build does not have.
    Unavailable,
}

impl ErrorKind {
    /// All kinds, in declaration order.
    pub const ALL: [Self; 17] = [
        Self::ShapeMismatch,
        Self::OutOfRange,
        Self::NonFinite,
        Self::Empty,
        Self::UnknownName,
        Self::Malformed,
        Self::Corrupt,
        Self::LimitExceeded,
        Self::UnknownText,
        Self::Incompatible,
        Self::TemplateRaised,
        Self::Forbidden,
        Self::Io,
        Self::Closed,
        Self::Panic,
        Self::UserCode,
        Self::Unavailable,
    ];

    /// Returns the stable name that JavaScript sees as `err.code`.
    ///
    /// ```
    /// assert_eq!(fulmar_core::ErrorKind::ShapeMismatch.code(), "SHAPE_MISMATCH");
    /// ```
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::ShapeMismatch => "SHAPE_MISMATCH",
            Self::OutOfRange => "OUT_OF_RANGE",
            Self::NonFinite => "NON_FINITE",
            Self::Empty => "EMPTY",
            Self::UnknownName => "UNKNOWN_NAME",
            Self::Malformed => "MALFORMED",
            Self::Corrupt => "CORRUPT",
            Self::LimitExceeded => "LIMIT_EXCEEDED",
            Self::UnknownText => "UNKNOWN_TEXT",
            Self::Incompatible => "INCOMPATIBLE",
            Self::TemplateRaised => "TEMPLATE_RAISED",
            Self::Forbidden => "FORBIDDEN",
            Self::Io => "IO",
            Self::Closed => "CLOSED",
            Self::Panic => "PANIC",
            Self::UserCode => "USER_CODE",
            Self::Unavailable => "UNAVAILABLE",
        }
    }
}

/// A failure: its [`ErrorKind`] and one sentence of the form `<argument> must be <rule>: got <value>`.
///
/// ```
/// use fulmar_core::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::OutOfRange, "group_size must be >= 1: got 0");
/// assert_eq!(error.to_string(), "group_size must be >= 1: got 0");
/// assert_eq!(error.kind(), ErrorKind::OutOfRange);
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Error {
    kind: ErrorKind,
    detail: String,
}

/// `std::result::Result` with the workspace's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of `kind`; `detail` names the argument, the rule and the value.
    #[must_use]
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into() }
    }

    /// Returns the kind of failure.
    #[must_use]
    pub const fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the sentence that describes the failure.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Returns the same error with `place` and a colon before its sentence.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { kind: self.kind, detail: format!("{place}: {}", self.detail) }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::new(ErrorKind::Io, error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_has_its_own_code() {
        let mut codes: Vec<_> = ErrorKind::ALL.iter().map(|kind| kind.code()).collect();
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), ErrorKind::ALL.len());
    }

    #[test]
    fn a_place_goes_before_the_sentence_and_keeps_the_kind() {
        let error = Error::from(std::io::Error::other("disk full")).at("checkpoint");
        assert_eq!((error.kind(), error.to_string()), (ErrorKind::Io, "checkpoint: disk full".to_owned()));
    }
}
