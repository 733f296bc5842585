//! Renames entries.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, TensorDict};
use serde::Deserialize;

use crate::transform::Transform;

/// Renames entries of batches that are read, and other entries of rows that are written.
///
/// # Examples
/// ```
/// use fulmar_tensor::{Tensor, TensorDict};
/// use fulmar_transform::{RenameTransform, Transform};
/// let mut rename = RenameTransform { in_keys: vec!["a".into()], out_keys: vec!["z".into()], ..Default::default() }.checked()?;
/// let mut batch = TensorDict::new(&[])?;
/// batch.set("a", Tensor::from_vec(&[], vec![7_i64])?)?;
/// assert_eq!(rename.forward(batch)?.tensor("z")?.to_vec::<i64>()?, [7]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct RenameTransform {
    /// The keys to rename when a batch is read; a missing entry is an error.
    pub in_keys: Vec<Key>,
    /// Their new keys.
    pub out_keys: Vec<Key>,
    /// The keys under which rows are stored.
    pub in_keys_inv: Vec<Key>,
    /// The keys that are renamed to them when rows are written; missing entries are ignored.
    pub out_keys_inv: Vec<Key>,
    /// If true, keeps the old keys too.
    pub create_copy: bool,
}

impl RenameTransform {
    /// Checks and returns these options.
    ///
    /// # Errors
    /// `ShapeMismatch` if the numbers of keys on both sides differ; `Incompatible` if a key is on both sides,
    /// as the order would then matter.
    pub fn checked(self) -> Result<Self> {
        let sides = [(&self.in_keys, &self.out_keys), (&self.in_keys_inv, &self.out_keys_inv)];
        for (in_keys, out_keys) in sides {
            if in_keys.len() != out_keys.len() {
                let detail =
                    format!("outKeys must be {}, as many as inKeys: got {}", in_keys.len(), out_keys.len());
                return Err(Error::new(ErrorKind::ShapeMismatch, detail));
            }
            if let Some(key) = in_keys.iter().find(|key| out_keys.contains(key)) {
                let detail = format!("inKeys and outKeys must have no key in common: got {key} in both");
                return Err(Error::new(ErrorKind::Incompatible, detail));
            }
        }
        Ok(self)
    }

    fn moved(&self, dict: &mut TensorDict, from: &Key, to: &Key) -> Result<()> {
        let entry = dict.entry(from.clone())?.clone();
        if !self.create_copy {
            dict.remove(from.clone())?;
        }
        dict.set(to.clone(), entry)
    }
}

impl Transform for RenameTransform {
    fn forward(&mut self, mut dict: TensorDict) -> Result<TensorDict> {
        for (from, to) in self.in_keys.iter().zip(&self.out_keys) {
            self.moved(&mut dict, from, to)?;
        }
        Ok(dict)
    }

    fn inverse(&mut self, mut dict: TensorDict) -> Result<Option<TensorDict>> {
        for (to, from) in self.in_keys_inv.iter().zip(&self.out_keys_inv) {
            if dict.get(from.clone()).is_some() {
                self.moved(&mut dict, from, to)?;
            }
        }
        Ok(Some(dict))
    }
}
