//! The spec of a history: a description of its shape.

use serde_json::json;

use super::{History, check_num_messages};
use crate::{Message, Result};

/// Histories of one shape; `None` means any length.
///
/// # Examples
/// ```
/// use fulmar_chat::{History, HistorySpec};
/// let spec = HistorySpec { shape: vec![None] };
/// assert!(spec.contains(&History::from_json(r#"[{"role":"user","content":"Hi"}]"#)?));
/// assert!(spec.contains(&spec.zero()?));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HistorySpec {
    /// The length of each dimension.
    pub shape: Vec<Option<usize>>,
}

impl HistorySpec {
    /// Returns whether `history` has this shape. A dimension of any length may also be ragged.
    #[must_use]
    pub fn contains(&self, history: &History) -> bool {
        let shape = history.shape();
        let fits = |(want, got): (&Option<usize>, &Option<usize>)| want.is_none() || want == got;
        shape.len() == self.shape.len() && self.shape.iter().zip(&shape).all(fits)
    }

    /// Returns the history of this shape whose messages hold the text `foo`; dimensions of any length have length 1.
    ///
    /// # Errors
    /// `LimitExceeded` past a limit of [`History`]; `Empty` for a batch dimension of length 0.
    pub fn zero(&self) -> Result<History> {
        let num_messages =
            self.shape.iter().try_fold(1_usize, |n, length| n.checked_mul(length.unwrap_or(1)));
        check_num_messages(num_messages.unwrap_or(usize::MAX))?;
        let message = json!({ "role": "user", "content": "foo" });
        let mut zero = History::from(Message::from_value(message)?);
        for length in self.shape.iter().rev() {
            zero = match length.unwrap_or(1) {
                0 if zero.rank() == 0 => History::default(),
                length => History::stack(vec![zero; length])?,
            };
        }
        Ok(zero)
    }
}
