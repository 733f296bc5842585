//! Appending, concatenation and padding.

use fulmar_core::{Error, ErrorKind};

use super::{History, Node, PADDING_ROLE, check_num_messages, check_rank, position};
use crate::{Message, Result};

impl History {
    /// Appends one message to each conversation: `item` has one dimension less.
    ///
    /// # Errors
    /// The errors of [`History::append_at`].
    pub fn append(&mut self, item: &Self) -> Result<()> {
        self.append_at(-1, item)
    }

    /// Appends one part along `dim` (negative: from the end); `item` has the dimensions of `self` without
    /// `dim`.
    ///
    /// # Errors
    /// `ShapeMismatch` if this is one message, if `item` does not have one dimension less, or if other
    /// dimensions differ; `OutOfRange` if there is no `dim`; `LimitExceeded` if a conversation is full. After
    /// an error the history is unchanged.
    pub fn append_at(&mut self, dim: isize, item: &Self) -> Result<()> {
        let rank = self.rank();
        if rank == 0 {
            let rule = "history is one message and has no dimension to append along: unsqueeze it first";
            return Err(Error::new(ErrorKind::ShapeMismatch, rule));
        }
        let dim = position(dim, rank).map_err(|error| error.at("dim"))?;
        if item.rank() + 1 != rank {
            let detail =
                format!("the new message must have one dimension fewer than {rank}: got {}", item.rank());
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        self.extend_at(dim.cast_signed(), item.unsqueeze(dim.cast_signed())?)
    }

    /// Appends messages to each conversation: `items` has the same number of dimensions.
    ///
    /// # Errors
    /// The errors of [`History::extend_at`].
    pub fn extend(&mut self, items: Self) -> Result<()> {
        self.extend_at(-1, items)
    }

    /// Concatenates `items` along `dim` (negative: from the end), all or none.
    ///
    /// # Errors
    /// `ShapeMismatch` if this is one message, ranks differ, or batch dimensions differ; `OutOfRange` if
    /// there is no `dim`; `LimitExceeded` if a conversation would exceed [`MESSAGES_MAX`](fulmar_core::limits::MESSAGES_MAX). After an
    /// error the history is unchanged.
    pub fn extend_at(&mut self, dim: isize, items: Self) -> Result<()> {
        let rank = self.rank();
        if items.rank() != rank || rank == 0 {
            let got = items.rank();
            let detail = format!(
                "the new history to extend with must have the rank of this one, {rank}, from 1: got {got}"
            );
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        let dim = position(dim, rank).map_err(|error| error.at("dim"))?;
        self.check_extension_along(dim, &items)?;
        self.join(dim, items);
        Ok(())
    }

    fn check_extension_along(&self, dim: usize, items: &Self) -> Result<()> {
        match (&self.node, &items.node) {
            (Node::Chat(held), Node::Chat(new)) => check_num_messages(held.len().saturating_add(new.len())),
            (Node::Rows(held), Node::Rows(new)) if dim > 0 => {
                if held.len() != new.len() {
                    let detail =
                        format!("batches must have one length: got {} and {}", held.len(), new.len());
                    return Err(Error::new(ErrorKind::ShapeMismatch, detail));
                }
                held.iter().zip(new).try_for_each(|(held, new)| held.check_extension_along(dim - 1, new))
            }
            _ => Ok(()),
        }
    }

    fn join(&mut self, dim: usize, items: Self) {
        match (&mut self.node, items.node) {
            (Node::Chat(held), Node::Chat(new)) => held.extend(new),
            (Node::Rows(held), Node::Rows(new)) if dim == 0 => held.extend(new),
            (Node::Rows(held), Node::Rows(new)) => {
                held.iter_mut().zip(new).for_each(|(held, new)| held.join(dim - 1, new));
            }
            _ => {}
        }
    }

    /// Returns the same messages with a new dimension of length 1 at `dim`, 0 to the rank (negative: from the end).
    ///
    /// # Errors
    /// `OutOfRange` for another `dim`; `LimitExceeded` past [`HISTORY_RANK_MAX`](fulmar_core::limits::HISTORY_RANK_MAX) dimensions; `Empty`
    /// if there is no message for the new dimension.
    pub fn unsqueeze(&self, dim: isize) -> Result<Self> {
        let dim = position(dim, self.rank() + 1).map_err(|error| error.at("dim"))?;
        check_rank(self.rank() + 1)?;
        self.unsqueezed(dim)
    }

    fn unsqueezed(&self, dim: usize) -> Result<Self> {
        match &self.node {
            Node::One(message) => Ok(Self { node: Node::Chat(vec![message.as_ref().clone()]) }),
            _ if dim == 0 => Self::stack(vec![self.clone()]),
            Node::Chat(messages) => {
                let rows = messages.iter().map(|message| Self { node: Node::Chat(vec![message.clone()]) });
                Self::stack(rows.collect())
            }
            Node::Rows(rows) => {
                Self::stack(rows.iter().map(|row| row.unsqueezed(dim - 1)).collect::<Result<_>>()?)
            }
        }
    }

    /// Returns the batch with conversations padded to equal length by messages of role `<none>` at the end.
    #[must_use]
    pub fn padded(&self) -> Self {
        self.padded_to(self.longest())
    }

    /// Returns the history without messages of role `<none>`.
    #[must_use]
    pub fn unpadded(&self) -> Self {
        let node = match &self.node {
            Node::One(_) => self.node.clone(),
            Node::Chat(messages) => {
                let kept = messages.iter().filter(|message| message.role() != PADDING_ROLE);
                Node::Chat(kept.cloned().collect())
            }
            Node::Rows(rows) => Node::Rows(rows.iter().map(Self::unpadded).collect()),
        };
        Self { node }
    }

    fn longest(&self) -> usize {
        match &self.node {
            Node::One(_) => 0,
            Node::Chat(messages) => messages.len(),
            Node::Rows(rows) => rows.iter().map(Self::longest).max().unwrap_or(0),
        }
    }

    fn padded_to(&self, length: usize) -> Self {
        let node = match &self.node {
            Node::One(_) => self.node.clone(),
            Node::Chat(messages) => {
                let padding = std::iter::repeat_with(Message::padding);
                Node::Chat(messages.iter().cloned().chain(padding).take(length).collect())
            }
            Node::Rows(rows) => Node::Rows(rows.iter().map(|row| row.padded_to(length)).collect()),
        };
        Self { node }
    }
}
