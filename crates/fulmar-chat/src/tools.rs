//! The tools on offer in conversations.

use std::cell::RefCell;
use std::collections::HashMap;
use std::ops::Deref;
use std::sync::Arc;

use fulmar_core::{exact_options_from_json, limits};
use serde::Deserialize;
use serde_json::Value;

use crate::Result;

/// The tools on offer, as OpenAI envelopes or flat `{name, description, parameters}`. Copies share one list.
///
/// # Examples
/// ```
/// use fulmar_chat::Tools;
/// let tools = Tools::from_json(r#"[{"name":"add"},{"name":"search"}]"#)?;
/// assert_eq!((tools.len(), &tools[0]["name"]), (2, &serde_json::json!("add")));
/// assert_eq!(tools, Tools::from(vec![serde_json::json!({ "name": "add" }), serde_json::json!({ "name": "search" })]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(from = "Vec<Value>")]
pub struct Tools {
    /// `None` for an empty list.
    list: Option<Arc<[Value]>>,
}

impl Tools {
    /// No tools.
    pub const NONE: Self = Self { list: None };

    /// Reads a JSON list; integers keep all their digits. Lists that were read last on this thread are kept by their text, up
    /// to [`limits::TOOL_TEXTS_BYTES_MAX`], and are not parsed again.
    ///
    /// # Errors
    /// `Malformed` if `json` is not a list; `LimitExceeded` for an integer with too many digits.
    pub fn from_json(json: &str) -> Result<Self> {
        match json {
            "[]" => Ok(Self::NONE),
            json => READ.with_borrow_mut(|read| read.get(json)),
        }
    }
}

impl From<Vec<Value>> for Tools {
    fn from(list: Vec<Value>) -> Self {
        Self { list: (!list.is_empty()).then(|| list.into()) }
    }
}

impl Deref for Tools {
    type Target = [Value];

    fn deref(&self) -> &[Value] {
        self.list.as_deref().unwrap_or_default()
    }
}

thread_local! {
    static READ: RefCell<ReadLists> = RefCell::default();
}

/// Lists by the text that they were read from.
#[derive(Default)]
struct ReadLists {
    lists: HashMap<Box<str>, Tools>,
    num_bytes: usize,
}

impl ReadLists {
    fn get(&mut self, json: &str) -> Result<Tools> {
        if let Some(tools) = self.lists.get(json) {
            return Ok(tools.clone());
        }
        let tools: Tools = exact_options_from_json("tools", json)?;
        if json.len() <= limits::TOOL_TEXTS_BYTES_MAX {
            if json.len() > limits::TOOL_TEXTS_BYTES_MAX - self.num_bytes {
                // All are dropped: this is rare for lists that are used again, and keeps no order of use.
                *self = Self::default();
            }
            self.num_bytes += json.len();
            self.lists.insert(json.into(), tools.clone());
        }
        Ok(tools)
    }
}

#[cfg(test)]
mod tests {
    use fulmar_core::ErrorKind;

    use super::*;

    /// A list whose text has `num_bytes` bytes.
    fn text(num_bytes: usize) -> String {
        let frame = r#"[{"name":""}]"#;
        frame.replace(r#""""#, &format!("\"{}\"", "x".repeat(num_bytes - frame.len())))
    }

    fn is_shared(a: &Tools, b: &Tools) -> bool {
        std::ptr::eq(a.as_ptr(), b.as_ptr())
    }

    #[test]
    fn a_text_is_parsed_once_as_long_as_it_is_kept() {
        let mut read = ReadLists::default();
        let max = limits::TOOL_TEXTS_BYTES_MAX;
        let (short, long) = (text(100), text(max - 100));
        let first = read.get(&short).unwrap();
        let second = read.get(&long).unwrap();
        assert!(is_shared(&first, &read.get(&short).unwrap()));
        assert!(is_shared(&second, &read.get(&long).unwrap()));
        assert_eq!(read.num_bytes, max);
        read.get(&text(14)).unwrap();
        assert_eq!((read.lists.len(), read.num_bytes), (1, 14));
        assert!(!is_shared(&first, &read.get(&short).unwrap()));
        assert_eq!(first, read.get(&short).unwrap());
    }

    #[test]
    fn texts_up_to_the_limit_are_kept_and_none_past_it() {
        let mut read = ReadLists::default();
        read.get("[1]").unwrap();
        for (num_bytes, is_kept) in
            [(limits::TOOL_TEXTS_BYTES_MAX + 1, false), (limits::TOOL_TEXTS_BYTES_MAX, true)]
        {
            let text = text(num_bytes);
            assert_eq!(text.len(), num_bytes);
            let first = read.get(&text).unwrap();
            assert_eq!(is_shared(&first, &read.get(&text).unwrap()), is_kept);
            assert_eq!(read.lists.contains_key("[1]"), !is_kept);
        }
    }

    #[test]
    fn what_is_not_a_list_is_refused_each_time() {
        for json in ["", "[", "{}", "7", "[] x", "null"] {
            for _ in 0..2 {
                assert_eq!(Tools::from_json(json).unwrap_err().kind(), ErrorKind::Malformed, "{json}");
            }
        }
        assert_eq!(Tools::from_json("[]").unwrap(), Tools::NONE);
        assert_eq!(Tools::from_json(" [ ] ").unwrap(), Tools::NONE);
    }
}
