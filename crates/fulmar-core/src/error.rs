//! The one error type of the workspace.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

use sentence::Sentence;

mod sentence;

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
    /// The system has no memory left for what was asked.
    OutOfMemory,
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
    pub const ALL: [Self; 18] = [
        Self::ShapeMismatch,
        Self::OutOfRange,
        Self::NonFinite,
        Self::Empty,
        Self::UnknownName,
        Self::Malformed,
        Self::Corrupt,
        Self::LimitExceeded,
        Self::OutOfMemory,
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
            Self::OutOfMemory => "OUT_OF_MEMORY",
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

/// A failure: its [`ErrorKind`], one sentence, and the error it came from, if any. Most sentences have the form
/// `<argument> must <rule>: got <value>`, and their parts are fields.
///
/// ```
/// use fulmar_core::{Error, ErrorKind};
/// let error = Error::new(ErrorKind::OutOfRange, "group_size must be >= 1: got 0");
/// assert_eq!(error.to_string(), "group_size must be >= 1: got 0");
/// assert_eq!(error.kind(), ErrorKind::OutOfRange);
/// assert_eq!((error.argument(), error.rule(), error.value()), (Some("group_size"), Some("must be >= 1"), Some("0")));
/// ```
#[derive(Debug, Clone)]
pub struct Error {
    kind: ErrorKind,
    detail: String,
    source: Option<Arc<dyn StdError + Send + Sync>>,
}

/// `std::result::Result` with the workspace's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// Makes an error of `kind`; `detail` names the argument, the rule and the value.
    #[must_use]
    pub fn new(kind: ErrorKind, detail: impl Into<String>) -> Self {
        Self { kind, detail: detail.into(), source: None }
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

    /// Returns the argument, option or place that is wrong, such as `top_p` or `config.grpo.group_size`; `None`
    /// if the sentence names none.
    #[must_use]
    pub fn argument(&self) -> Option<&str> {
        Some(self.sentence()?.argument)
    }

    /// Returns the rule that was broken, such as `must be in (0, 1]`; `None` if the sentence has none.
    #[must_use]
    pub fn rule(&self) -> Option<&str> {
        Some(self.sentence()?.rule)
    }

    /// Returns the value that was given, as the sentence shows it; `None` if it is not shown.
    #[must_use]
    pub fn value(&self) -> Option<&str> {
        self.sentence()?.value
    }

    /// Returns the same error with `place` and a colon before its sentence.
    #[must_use]
    pub fn at(self, place: impl fmt::Display) -> Self {
        Self { detail: format!("{place}: {}", self.detail), ..self }
    }

    /// Returns the same error with `source` as the error it came from.
    ///
    /// ```
    /// use std::error::Error as _;
    /// use fulmar_core::{Error, ErrorKind};
    /// let cause = "x".parse::<u32>().unwrap_err();
    /// let error = Error::new(ErrorKind::Malformed, "rank must be an integer: got \"x\"").because(cause);
    /// assert_eq!(error.source().unwrap().to_string(), "invalid digit found in string");
    /// ```
    #[must_use]
    pub fn because(self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { source: Some(source.into().into()), ..self }
    }

    /// Splits the sentence. A panic, a callback or a template wrote its own words, which have no parts.
    fn sentence(&self) -> Option<Sentence<'_>> {
        match self.kind {
            ErrorKind::Panic | ErrorKind::UserCode | ErrorKind::TemplateRaised => None,
            _ => Sentence::of(&self.detail),
        }
    }
}

/// Two errors are equal if their kinds and sentences are.
impl PartialEq for Error {
    fn eq(&self, other: &Self) -> bool {
        (self.kind, &self.detail) == (other.kind, &other.detail)
    }
}

impl Eq for Error {}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.detail)
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as _)
    }
}

/// Keeps the system's error as source; one that says that memory is short is `OutOfMemory`.
impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        let kind = match error.kind() {
            std::io::ErrorKind::OutOfMemory => ErrorKind::OutOfMemory,
            _ => ErrorKind::Io,
        };
        Self::new(kind, error.to_string()).because(error)
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

    #[test]
    fn an_error_of_the_system_stays_the_source_when_a_place_is_added() {
        let error = Error::from(std::io::Error::other("disk full")).at("checkpoint");
        let source = error.source().and_then(|source| source.downcast_ref::<std::io::Error>());
        assert_eq!(source.map(ToString::to_string), Some("disk full".to_owned()));
        assert_eq!(error, Error::new(ErrorKind::Io, "checkpoint: disk full"), "sources are not compared");
        assert!(Error::new(ErrorKind::Io, "disk full").source().is_none());
    }

    #[test]
    fn memory_that_the_system_refuses_is_out_of_memory_and_not_a_failed_read() {
        let refused = std::io::Error::from(std::io::ErrorKind::OutOfMemory);
        assert_eq!(Error::from(refused).kind(), ErrorKind::OutOfMemory);
    }

    #[test]
    fn words_of_a_callback_a_template_or_a_panic_have_no_parts() {
        for kind in ErrorKind::ALL {
            let error = Error::new(kind, "seed must be >= 0: got -1");
            let is_foreign =
                matches!(kind, ErrorKind::Panic | ErrorKind::UserCode | ErrorKind::TemplateRaised);
            assert_eq!(error.argument().is_none(), is_foreign, "{kind:?}");
            assert_eq!(error.rule().is_none() && error.value().is_none(), is_foreign, "{kind:?}");
        }
    }
}
