//! A conversation, or a batch of them: messages in nested lists with rows of different lengths.

mod column;
mod join;
mod json;
pub(crate) mod packed;
mod spec;

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::Value;

use crate::{Message, Result};
pub use spec::HistorySpec;

/// The role of padding messages, which are never rendered.
pub const PADDING_ROLE: &str = "<none>";

/// Messages of shape `[]` (one message), `[T]` (a conversation, oldest first), `[B, T]` (a batch), or more batch
/// dimensions before `T`. Rows may differ in length.
///
/// # Examples
/// ```
/// use fulmar_chat::{History, Message};
/// let mut history = History::from_chats(vec![serde_json::json!({ "role": "user", "content": "1+1?" })])?;
/// history.append(&Message::new("assistant", "2")?.into())?;
/// assert_eq!(history.shape(), [Some(2)]);
/// assert_eq!(history.column("content"), serde_json::json!(["1+1?", "2"]));
/// assert_eq!(History::from_json(&history.to_json())?, history);
///
/// let batch = History::from_json(r#"[[{"role":"user"}],[{"role":"user"},{"role":"assistant"}]]"#)?;
/// assert_eq!(batch.shape(), [Some(2), None]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq)]
pub struct History {
    node: Node,
}

#[derive(Debug, Clone, PartialEq)]
enum Node {
    One(Box<Message>),
    Chat(Vec<Message>),
    /// At least one row, all of one rank.
    Rows(Vec<History>),
}

impl Default for History {
    /// Returns a conversation without messages.
    fn default() -> Self {
        Self { node: Node::Chat(Vec::new()) }
    }
}

impl From<Message> for History {
    fn from(message: Message) -> Self {
        Self { node: Node::One(Box::new(message)) }
    }
}

impl History {
    /// Stacks `rows` of one rank to a batch.
    ///
    /// # Errors
    /// `Empty` without rows; `ShapeMismatch` if ranks differ; `LimitExceeded` past a limit.
    pub fn stack(rows: Vec<Self>) -> Result<Self> {
        let Some(rank) = rows.first().map(Self::rank) else {
            return Err(Error::new(ErrorKind::Empty, "rows must be at least 1: got 0"));
        };
        check_rank(rank + 1)?;
        if let Some(other) = rows.iter().find(|row| row.rank() != rank) {
            let got = other.rank();
            let detail = format!("rows must share one rank, {rank} here: got {got}");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        if rank > 0 {
            return Ok(Self { node: Node::Rows(rows) });
        }
        check_num_messages(rows.len())?;
        Ok(Self { node: Node::Chat(rows.into_iter().flat_map(Self::into_messages).collect()) })
    }

    /// Returns the number of dimensions: 0 for one message.
    #[must_use]
    pub fn rank(&self) -> usize {
        match &self.node {
            Node::One(_) => 0,
            Node::Chat(_) => 1,
            Node::Rows(rows) => 1 + rows.first().map_or(1, Self::rank),
        }
    }

    /// Returns the length of each dimension; `None` if rows differ.
    #[must_use]
    pub fn shape(&self) -> Vec<Option<usize>> {
        match &self.node {
            Node::One(_) => Vec::new(),
            Node::Chat(messages) => vec![Some(messages.len())],
            Node::Rows(rows) => {
                let mut inner = rows.first().map(Self::shape).unwrap_or_default();
                for row in &rows[1..] {
                    for (length, other) in inner.iter_mut().zip(row.shape()) {
                        *length = length.filter(|length| other == Some(*length));
                    }
                }
                [vec![Some(rows.len())], inner].concat()
            }
        }
    }

    /// Returns [`History::shape`] with -1 for `None`.
    #[must_use]
    pub fn lengths(&self) -> Vec<i32> {
        let length =
            |length: Option<usize>| length.and_then(|length| i32::try_from(length).ok()).unwrap_or(-1);
        self.shape().into_iter().map(length).collect()
    }

    /// Returns the length of the first dimension; 1 for one message.
    #[must_use]
    pub fn len(&self) -> usize {
        match &self.node {
            Node::One(_) => 1,
            Node::Chat(messages) => messages.len(),
            Node::Rows(rows) => rows.len(),
        }
    }

    /// Returns whether it is a conversation without messages.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the messages of one conversation, oldest first.
    ///
    /// # Errors
    /// `ShapeMismatch` if this is one message or a batch.
    pub fn chat(&self) -> Result<&[Message]> {
        match &self.node {
            Node::Chat(messages) => Ok(messages),
            _ => {
                let detail =
                    format!("messages must be one conversation, of rank 1: got rank {}", self.rank());
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
        }
    }

    /// Returns all conversations in order: one for rank 1, all rows for a batch of any rank.
    ///
    /// # Errors
    /// `ShapeMismatch` if this is one message.
    pub fn chats(&self) -> Result<Vec<&[Message]>> {
        match &self.node {
            Node::Rows(rows) => Ok(rows.iter().map(Self::chats).collect::<Result<Vec<_>>>()?.concat()),
            _ => Ok(vec![self.chat()?]),
        }
    }

    /// Returns the message of a history of shape `[]`.
    #[must_use]
    pub fn message(&self) -> Option<&Message> {
        match &self.node {
            Node::One(message) => Some(message),
            _ => None,
        }
    }

    /// Returns the part at `index` of the first dimension, counted from the end if negative: a message of a
    /// conversation, or a row of a batch.
    ///
    /// # Errors
    /// `ShapeMismatch` if this is one message; `OutOfRange` if there is no such part.
    pub fn at(&self, index: isize) -> Result<Self> {
        let at = position(index, self.parts()?)?;
        match &self.node {
            Node::Chat(messages) => Ok(messages[at].clone().into()),
            Node::Rows(rows) => Ok(rows[at].clone()),
            Node::One(_) => Ok(self.clone()),
        }
    }

    /// Returns the parts `start..end` of the first dimension.
    ///
    /// # Errors
    /// `ShapeMismatch` if this is one message; `OutOfRange` if the range is backwards or ends past the parts;
    /// `Empty` if no row of a batch would be left.
    pub fn slice(&self, start: usize, end: usize) -> Result<Self> {
        let length = self.parts()?;
        if start > end || end > length {
            let detail = format!("slice must be within 0 to {length}: got {start} to {end}");
            return Err(Error::new(ErrorKind::OutOfRange, detail));
        }
        match &self.node {
            Node::Rows(rows) => Self::stack(rows[start..end].to_vec()),
            Node::Chat(messages) => Ok(Self { node: Node::Chat(messages[start..end].to_vec()) }),
            Node::One(_) => Ok(self.clone()),
        }
    }

    fn into_messages(self) -> Vec<Message> {
        match self.node {
            Node::One(message) => vec![*message],
            Node::Chat(messages) => messages,
            Node::Rows(rows) => rows.into_iter().flat_map(Self::into_messages).collect(),
        }
    }

    /// Returns the number of parts along the first dimension.
    fn parts(&self) -> Result<usize> {
        if matches!(self.node, Node::One(_)) {
            return Err(Error::new(
                ErrorKind::ShapeMismatch,
                "history is one message and has no dimension: unsqueeze it first",
            ));
        }
        Ok(self.len())
    }

    /// Applies `of` to each message and returns the results in lists nested like the messages.
    fn map(&self, of: &dyn Fn(&Message) -> Value) -> Value {
        match &self.node {
            Node::One(message) => of(message),
            Node::Chat(messages) => Value::Array(messages.iter().map(of).collect()),
            Node::Rows(rows) => Value::Array(rows.iter().map(|row| row.map(of)).collect()),
        }
    }
}

/// Returns the position of `index` in `length` places, counted from the end if negative.
fn position(index: isize, length: usize) -> Result<usize> {
    let at = if index < 0 { length.checked_sub(index.unsigned_abs()) } else { Some(index.unsigned_abs()) };
    at.filter(|at| *at < length).ok_or_else(|| {
        let detail = format!("index must be within the length {length}: got {index}");
        Error::new(ErrorKind::OutOfRange, detail)
    })
}

fn check_rank(rank: usize) -> Result<()> {
    if rank > limits::HISTORY_RANK_MAX {
        let max = limits::HISTORY_RANK_MAX;
        let detail = format!("history must have at most {max} dimensions: got {rank}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

/// Refuses a conversation of more than [`limits::MESSAGES_MAX`] messages.
fn check_num_messages(num_messages: usize) -> Result<()> {
    if num_messages > limits::MESSAGES_MAX {
        let max = limits::MESSAGES_MAX;
        let detail = format!("messages must be at most {max}: got {num_messages}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn history(value: &Value) -> History {
        History::from_json(&value.to_string()).unwrap()
    }

    fn user(content: &str) -> Value {
        json!({ "role": "user", "content": content })
    }

    #[test]
    fn half_a_surrogate_pair_is_refused_with_the_number_of_its_message() {
        let text = r#"[{"role":"user","content":"a"},{"role":"user","content":"b\ud83d"}]"#;
        let error = History::from_json(text).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert!(error.detail().starts_with("messages[1]: text must be whole characters"), "{error}");
        let error = History::from_json("[{]").unwrap_err();
        assert!(error.detail().starts_with("messages must be a JSON list: it is no JSON"), "{error}");
        assert!(!error.detail().contains("line 1"), "{error}");
    }

    #[test]
    fn dictionaries_go_in_and_out_unchanged() {
        let text = r#"[{"role":"user","content":"Hi","name":"Ada","x":1.0},{"content":[{"type":"text","text":"a"}],"role":"tool"}]"#;
        assert_eq!(History::from_json(text).unwrap().to_json(), text);
        assert!(History::from_json("[]").unwrap().is_empty());
        let batch = format!("[{text},[]]");
        assert_eq!(History::from_json(&batch).unwrap().to_json(), batch);
    }

    #[test]
    fn a_bad_dictionary_is_named_by_its_index() {
        let error = History::from_json(r#"[{"role":"user","content":"Hi"},{"content":"x"}]"#).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Malformed);
        assert_eq!(error.detail(), "messages[1]: role must be text: got nothing");
        let error = History::from_json(r#"[[{"role":"user"}],[{"role":""}]]"#).unwrap_err();
        assert_eq!(error.detail(), "messages[1][0]: role must be a name: got an empty one");
        assert_eq!(History::from_json("7").unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn mixed_ranks_are_refused() {
        for text in [r#"[[{"role":"user"}],{"role":"user"}]"#, r#"[[[{"role":"user"}]],[{"role":"user"}]]"#] {
            assert_eq!(History::from_json(text).unwrap_err().kind(), ErrorKind::ShapeMismatch, "{text}");
        }
        assert_eq!(History::from_json(r#"[{"role":"user"},[]]"#).unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn ranks_up_to_the_limit_are_read_and_none_past_it() {
        let nested = |rank: usize| format!("{}{}", "[".repeat(rank), "]".repeat(rank));
        let full = History::from_json(&nested(limits::HISTORY_RANK_MAX)).unwrap();
        assert_eq!(full.rank(), limits::HISTORY_RANK_MAX);
        assert_eq!(full.unsqueeze(0).unwrap_err().kind(), ErrorKind::LimitExceeded);
        for rank in [limits::HISTORY_RANK_MAX + 1, 100] {
            assert_eq!(History::from_json(&nested(rank)).unwrap_err().kind(), ErrorKind::LimitExceeded);
        }
        assert_eq!(History::from_json(&nested(100_000)).unwrap_err().kind(), ErrorKind::Malformed);
    }

    #[test]
    fn one_message_has_no_dimension_to_append_along() {
        let mut one = history(&user("a"));
        assert_eq!((one.rank(), one.shape()), (0, vec![]));
        let error = one.append(&history(&user("b"))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ShapeMismatch);
        assert!(error.detail().contains("unsqueeze"), "{error:?}");
        let mut chat = one.unsqueeze(0).unwrap();
        chat.append(&history(&user("b"))).unwrap();
        assert_eq!(chat.column("content"), json!(["a", "b"]));
        assert_eq!(chat.slice(0, 1).unwrap(), one.unsqueeze(0).unwrap());
        let error = chat.extend(history(&user("c"))).unwrap_err();
        assert!(error.detail().starts_with("the new history to extend"), "{error:?}");
    }

    #[test]
    fn batches_grow_along_the_messages_unless_told_otherwise() {
        let mut batch = history(&json!([[user("a")], [user("b"), user("c")]]));
        assert_eq!(batch.shape(), [Some(2), None]);
        batch.append(&history(&json!([user("d"), user("e")]))).unwrap();
        assert_eq!(batch.column("content"), json!([["a", "d"], ["b", "c", "e"]]));
        batch.extend(history(&json!([[user("f"), user("g")], []]))).unwrap();
        assert_eq!(batch.column("content"), json!([["a", "d", "f", "g"], ["b", "c", "e"]]));
        batch.append_at(0, &history(&json!([user("h")]))).unwrap();
        assert_eq!(batch.column("content"), json!([["a", "d", "f", "g"], ["b", "c", "e"], ["h"]]));
        let before = batch.clone();
        for items in [json!([user("x")]), json!([])] {
            assert!(batch.append(&history(&items)).is_err());
        }
        assert_eq!(batch.extend_at(2, before.clone()).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(batch, before);
    }

    #[test]
    fn parts_are_counted_from_both_ends() {
        let batch = history(&json!([[user("a")], [user("b"), user("c")]]));
        assert_eq!(batch.at(-1).unwrap().at(0).unwrap().message().unwrap().text().unwrap(), "b");
        assert_eq!(batch.at(2).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(batch.at(-3).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(batch.slice(1, 1).unwrap_err().kind(), ErrorKind::Empty);
        assert_eq!(batch.slice(1, 3).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(batch.chat().unwrap_err().kind(), ErrorKind::ShapeMismatch);
        assert_eq!(batch.at(1).unwrap().chat().unwrap().len(), 2);
    }

    #[test]
    fn new_dimensions_go_where_they_are_asked_for() {
        let chat = history(&json!([user("a"), user("b")]));
        assert_eq!(chat.unsqueeze(0).unwrap().shape(), [Some(1), Some(2)]);
        assert_eq!(chat.unsqueeze(1).unwrap().shape(), [Some(2), Some(1)]);
        assert_eq!(chat.unsqueeze(-1), chat.unsqueeze(1));
        assert_eq!(chat.unsqueeze(2).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(History::default().unsqueeze(1).unwrap_err().kind(), ErrorKind::Empty);
    }

    #[test]
    fn padding_exists_in_the_padded_view_only() {
        let batch = history(&json!([[user("a")], [user("b"), user("c")]]));
        let padded = batch.padded();
        assert_eq!(padded.shape(), [Some(2), Some(2)]);
        assert_eq!(padded.column("role"), json!([["user", PADDING_ROLE], ["user", "user"]]));
        assert_eq!(padded.unpadded(), batch);
    }

    #[test]
    fn a_history_holds_as_many_messages_as_the_limit_and_no_more() {
        let message = history(&user("x"));
        let mut chat = History::stack(vec![message.clone(); limits::MESSAGES_MAX - 1]).unwrap();
        let two = History::stack(vec![message.clone(); 2]).unwrap();
        assert_eq!(chat.extend(two).unwrap_err().kind(), ErrorKind::LimitExceeded);
        chat.append(&message).unwrap();
        assert_eq!(chat.len(), limits::MESSAGES_MAX);
        assert_eq!(chat.append(&message).unwrap_err().kind(), ErrorKind::LimitExceeded);
        assert_eq!(chat.len(), limits::MESSAGES_MAX);
    }

    #[test]
    fn a_spec_describes_shapes_and_makes_an_example() {
        let spec = HistorySpec { shape: vec![Some(2), None] };
        assert_eq!(spec.zero().unwrap().shape(), [Some(2), Some(1)]);
        assert!(spec.contains(&spec.zero().unwrap()));
        assert!(spec.contains(&history(&json!([[user("a")], []]))));
        assert!(!spec.contains(&history(&json!([user("a"), user("b")]))));
        assert_eq!(HistorySpec { shape: vec![Some(0)] }.zero().unwrap(), History::default());
        let full = HistorySpec { shape: vec![Some(limits::MESSAGES_MAX)] };
        assert_eq!(full.zero().unwrap().len(), limits::MESSAGES_MAX);
        let wide = HistorySpec { shape: vec![Some(limits::MESSAGES_MAX), Some(2)] };
        assert_eq!(wide.zero().unwrap_err().kind(), ErrorKind::LimitExceeded);
    }
}
