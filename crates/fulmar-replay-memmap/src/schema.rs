//! The leaves of the rows in a folder.

use fulmar_core::{Dtype, Error, ErrorKind, Result, num_elements};
use fulmar_tensor::{Entry, Key, Tensor, TensorDict, from_torch_name, torch_name};
use serde::{Deserialize, Serialize};

/// The entries of a row, in their order, and its batch dimensions beyond the row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Schema {
    batch: Vec<usize>,
    entries: Vec<(String, Node)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", deny_unknown_fields)]
enum Node {
    Leaf { dtype: String, shape: Vec<usize> },
    Dict(Schema),
}

/// A leaf, and the place of its elements in a row.
#[derive(Debug, Clone)]
pub(super) struct Leaf {
    pub key: Key,
    pub row_bytes: usize,
    /// Number of bytes copied at once: the largest power of two up to 8 that divides a row.
    pub unit: usize,
    /// The offset of the leaf in a journal.
    pub offset: usize,
}

impl Schema {
    /// Returns the schema of `items`, whose first batch dimension counts rows.
    pub(super) fn of(items: &TensorDict) -> Result<Self> {
        let mut entries = Vec::new();
        for (name, entry) in items.entries() {
            let node = match entry {
                Entry::Tensor(tensor) => {
                    let dtype = torch_name(tensor.dtype()).to_owned();
                    Node::Leaf { dtype, shape: tensor.shape()[1..].to_vec() }
                }
                Entry::Dict(dict) => {
                    Node::Dict(Self::of(dict).map_err(|error| error.at(format!("{name:?}")))?)
                }
                other => {
                    let detail = format!(
                        "a leaf of a memory-mapped storage must be a tensor: got one of kind {}",
                        other.kind()
                    );
                    return Err(Error::new(ErrorKind::Incompatible, detail).at(format!("{name:?}")));
                }
            };
            entries.push((name.to_owned(), node));
        }
        Ok(Self { batch: items.batch_size().get(1..).unwrap_or_default().to_vec(), entries })
    }

    /// Returns the leaves, in the order of the entries.
    pub(super) fn leaves(&self) -> Result<Vec<Leaf>> {
        let mut leaves = Vec::new();
        self.collect(&[], &mut leaves)?;
        Ok(leaves)
    }

    fn collect(&self, parents: &[String], leaves: &mut Vec<Leaf>) -> Result<()> {
        for (name, node) in &self.entries {
            let path = [parents, std::slice::from_ref(name)].concat();
            match node {
                Node::Dict(dict) => dict.collect(&path, leaves)?,
                Node::Leaf { dtype, shape } => {
                    let dtype = from_torch_name(dtype)?;
                    let row_bytes = num_elements(shape)?.checked_mul(dtype.size_bytes());
                    let offset = leaves.last().map_or(Some(0), Leaf::end);
                    let (Some(row_bytes), Some(offset)) = (row_bytes, offset) else {
                        let detail = format!("a row must fit in memory: got the shape {shape:?}");
                        return Err(Error::new(ErrorKind::OutOfMemory, detail));
                    };
                    let unit = 1 << row_bytes.trailing_zeros().min(3);
                    leaves.push(Leaf { key: Key::from(path), row_bytes, unit, offset });
                }
            }
        }
        Ok(())
    }

    /// Returns `count` rows with leaves from `leaf`, called for each shape in the order of
    /// [`Schema::leaves`].
    pub(super) fn rows(
        &self,
        count: &[usize],
        leaf: &mut dyn FnMut(Dtype, &[usize]) -> Result<Tensor>,
    ) -> Result<TensorDict> {
        let mut dict = TensorDict::new(&[count, &self.batch].concat())?;
        for (name, node) in &self.entries {
            match node {
                Node::Dict(nested) => dict.set(name.as_str(), nested.rows(count, leaf)?)?,
                Node::Leaf { dtype, shape } => {
                    dict.set(name.as_str(), leaf(from_torch_name(dtype)?, &[count, shape].concat())?)?;
                }
            }
        }
        Ok(dict)
    }
}

impl Leaf {
    /// Returns the offset of the next leaf in a journal, aligned to a word.
    pub(super) fn end(&self) -> Option<usize> {
        self.offset.checked_add(self.row_bytes)?.checked_next_multiple_of(8)
    }
}
