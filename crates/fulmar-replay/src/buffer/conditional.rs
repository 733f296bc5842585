//! Conditional updates of rows that may have been rewritten since they were drawn.

use std::collections::HashMap;

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Key, Tensor, TensorDict};

use super::ReplayBuffer;
use crate::read::{count_of, integers};

/// The input of [`ReplayBuffer::update_if_present`].
#[derive(Debug, Clone)]
pub struct ConditionalUpdate<'a> {
    /// The rows. Shape `[records]`.
    pub rows: &'a [i64],
    /// The generation of each row when it was drawn.
    pub generations: &'a [i64],
    /// Leaves that are stored, `[records]`.
    pub patch: &'a TensorDict,
    /// The key of an item's version, and the new version of each record; both or neither.
    pub versions: Option<(&'a Key, &'a [i64])>,
    /// If true, a version must be greater than the stored one, else at least equal.
    pub require_newer: bool,
}

/// The outcome of each record. Every record is in one class.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionalUpdateResult {
    /// `true` if it was written.
    pub updated: Vec<bool>,
    /// `true` if it was refused for its version; `None` without versions.
    pub version_rejected: Option<Vec<bool>>,
}

impl ConditionalUpdateResult {
    /// Returns the number of written records.
    #[must_use]
    pub fn updated_count(&self) -> usize {
        self.updated.iter().filter(|flag| **flag).count()
    }

    /// Returns the number of records refused for their version.
    #[must_use]
    pub fn version_rejected_count(&self) -> usize {
        self.version_rejected.iter().flatten().filter(|flag| **flag).count()
    }

    /// Returns the number of records whose row had been rewritten.
    #[must_use]
    pub fn stale_count(&self) -> usize {
        self.updated.len() - self.updated_count() - self.version_rejected_count()
    }
}

impl ReplayBuffer {
    /// Writes leaves of rows that still have the generation they had when they were drawn. If a row comes
    /// twice, the highest version wins, then the last record; the others are refused for their version.
    ///
    /// # Errors
    /// `Incompatible` if the writer does not track generations or `versions` is in the patch too;
    /// `ShapeMismatch` if lengths differ; `UnknownName` if a leaf is not stored; the errors of the storage.
    /// After an error nothing has changed.
    ///
    /// # Examples
    /// ```
    /// use fulmar_replay::*;
    /// use fulmar_tensor::{Tensor, TensorDict};
    /// let writer = WriterOptions::RoundRobin { track_generations: true };
    /// let options = ReplayBufferOptions { writer, ..Default::default() };
    /// let mut buffer = ReplayBuffer::new(Box::new(TensorStorage::new(&[2])?), options)?;
    /// let mut items = TensorDict::new(&[2])?;
    /// items.set("value", Tensor::from_vec_f32(&[2], vec![1.0, 2.0])?)?;
    /// buffer.extend(&items)?;
    /// let versions = None;
    /// let (rows, generations) = (&[0, 1], &[0, 5]);
    /// let update = ConditionalUpdate { rows, generations, patch: &items, versions, require_newer: false };
    /// assert_eq!(buffer.update_if_present(&update)?.updated, [true, false]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn update_if_present(&mut self, update: &ConditionalUpdate<'_>) -> Result<ConditionalUpdateResult> {
        let mut result = None;
        self.retry(|buffer| {
            let (found, winners) = buffer.judge(update)?;
            result = Some(found);
            buffer.write_winners(update, winners)
        })?;
        self.tell_all(false)?;
        let none = || ConditionalUpdateResult { updated: Vec::new(), version_rejected: None };
        Ok(result.unwrap_or_else(none))
    }

    /// Decides the outcome of each row, and the winning record of each written row.
    fn judge(
        &self,
        update: &ConditionalUpdate<'_>,
    ) -> Result<(ConditionalUpdateResult, HashMap<usize, usize>)> {
        self.check_update(update)?;
        let now = self.generations_of(update.rows);
        let len = self.storage.len();
        let holds = |at: usize| usize::try_from(update.rows[at]).is_ok_and(|row| row < len);
        let fresh: Vec<usize> = (0..update.rows.len())
            .filter(|at| now[*at] >= 0 && now[*at] == update.generations[*at] && holds(*at))
            .collect();
        let rows: Vec<usize> = fresh.iter().map(|at| update.rows[*at] as usize).collect();
        let mut updated = vec![false; update.rows.len()];
        let mut rejected = vec![false; update.rows.len()];
        let mut winners: HashMap<usize, usize> = HashMap::new();
        let stored = match update.versions {
            Some((key, _)) if !rows.is_empty() => integers(&self.storage.get(&rows)?, key)?,
            _ => Vec::new(),
        };
        for (place, (&at, &row)) in fresh.iter().zip(&rows).enumerate() {
            let Some((_, versions)) = update.versions else {
                updated[at] = true;
                winners.insert(row, at);
                continue;
            };
            let too_low =
                versions[at] < stored[place] || (update.require_newer && versions[at] == stored[place]);
            if too_low {
                rejected[at] = true;
                continue;
            }
            updated[at] = true;
            let winner = winners.entry(row).or_insert(at);
            let loser = if versions[at] >= versions[*winner] { std::mem::replace(winner, at) } else { at };
            if loser != *winner {
                (updated[loser], rejected[loser]) = (false, true);
            }
        }
        let version_rejected = update.versions.map(|_| rejected);
        Ok((ConditionalUpdateResult { updated, version_rejected }, winners))
    }

    fn write_winners(
        &mut self,
        update: &ConditionalUpdate<'_>,
        winners: HashMap<usize, usize>,
    ) -> Result<bool> {
        if winners.is_empty() {
            return Ok(true);
        }
        let mut winners: Vec<(usize, usize)> = winners.into_iter().collect();
        winners.sort_unstable();
        let (rows, places): (Vec<usize>, Vec<usize>) = winners.into_iter().unzip();
        let mut part = update.patch.index_select(&places)?;
        if let Some((key, versions)) = update.versions {
            let have = self.storage.get(&rows)?.tensor(key.clone())?.clone();
            let new: Vec<i64> = places.iter().map(|at| versions[*at]).collect();
            part.set(key.clone(), Tensor::from_vec(have.shape(), new)?.to(have.dtype())?)?;
        }
        self.edit_once(&rows, &part)
    }

    fn check_update(&self, update: &ConditionalUpdate<'_>) -> Result<()> {
        if !self.writer.tracks_generations() {
            let detail =
                "a conditional update must have a writer that tracks generations: got one that does not";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        let count = update.rows.len();
        let versions = update.versions.map_or(count, |(_, versions)| versions.len());
        if update.generations.len() != count || count_of(update.patch) != count || versions != count {
            let detail = format!("generations, patch and versions must be one a row, {count}: they are not");
            return Err(Error::new(ErrorKind::ShapeMismatch, detail));
        }
        if let Some((key, _)) = update.versions
            && update.patch.get(key.clone()).is_some()
        {
            let detail = format!("{key} must be given as version alone: got it in the patch too");
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if self.storage.is_empty() {
            return Ok(());
        }
        let one = self.storage.get(&[0])?;
        if let Some((key, _)) = update.versions {
            one.tensor(key.clone())?;
        }
        let keys = update.patch.leaf_keys();
        for key in &keys {
            one.entry(key.clone())?;
        }
        // Checked even if no record is fresh.
        one.select(&keys)?.check_rows(update.patch, count)
    }
}
