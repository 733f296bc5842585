//! Log-probs of rows of logits that come a chunk at a time.

use fulmar_core::Result;
use fulmar_cuda::Card;
use fulmar_kernel::LogProb;

use crate::cuda::Columns;
use crate::{Compute, View, kept};

/// Results of [`Compute::log_prob_rows`] on the device of the logits: one wait reads those of all chunks.
///
/// # Examples
/// ```
/// use fulmar_compute::Compute;
/// let mut found = Compute::Cpu.log_probs(2)?;
/// found.find(1, &[0.0, 0.0], &[1]);
/// found.find(0, &[0.0], &[0]);
/// let found = found.read()?;
/// assert_eq!([found[0].log_prob, found[1].log_prob], [0.0, -std::f32::consts::LN_2]);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct LogProbs(Found);

#[derive(Debug)]
enum Found {
    Cpu(Vec<LogProb>),
    Cuda(Card, Columns),
}

impl Compute {
    /// Returns memory for the results of `count` rows.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them; `Unavailable` for a GPU that fails; errors of the operations so far.
    pub fn log_probs(self, count: usize) -> Result<LogProbs> {
        self.check()?;
        Ok(LogProbs(match self {
            Self::Cpu => Found::Cpu(vec![LogProb::default(); count]),
            Self::Cuda(card) => Found::Cuda(card, Columns::zeros(card, count)?),
        }))
    }
}

impl LogProbs {
    /// Writes the results of `logits_nv` `[N, V]` and `ids_n` to rows from `first` on.
    ///
    /// # Panics
    /// If there are fewer rows, or an id is not below V.
    pub fn find<'v>(&mut self, first: usize, logits_nv: impl Into<View<'v, f32>>, ids_n: &[u32]) {
        let logits_nv = logits_nv.into();
        match &mut self.0 {
            Found::Cpu(rows) => {
                let found = fulmar_kernel::log_prob_rows(logits_nv.cpu(), ids_n);
                rows[first..first + ids_n.len()].copy_from_slice(&found);
            }
            Found::Cuda(card, columns) if !ids_n.is_empty() => {
                kept::run("log_prob_rows", || {
                    columns.find(*card, logits_nv.cuda(*card)?, &card.upload(ids_n)?, first)
                });
            }
            Found::Cuda(..) => {}
        }
    }

    /// Waits for the results and returns them.
    ///
    /// # Errors
    /// Errors of the operations so far; `Unavailable` for a GPU that fails.
    pub fn read(self) -> Result<Vec<LogProb>> {
        match self.0 {
            Found::Cpu(rows) => Ok(rows),
            Found::Cuda(_, columns) => {
                kept::take()?;
                columns.read()
            }
        }
    }
}
