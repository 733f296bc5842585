//! Indexing of lazy stacks.

use fulmar_core::Result;

use super::{LazyStack, Stacked};
use crate::index::Index;
use crate::tensor::Tensor;

impl LazyStack {
    /// Returns the elements at `index`: of one part if the index has a position along the stacked dimension,
    /// else a stack of parts. Shares the elements where [`TensorDict::at`](crate::TensorDict::at) does.
    ///
    /// # Errors
    /// The errors of [`TensorDict::at`](crate::TensorDict::at); the errors of [`LazyStack::dense`] if several
    /// lists, or a mask over several dimensions, pick across parts.
    ///
    /// # Examples
    /// ```
    /// use fulmar_tensor::{Index, LazyStack, Stacked, TensorDict};
    /// let stack = LazyStack::new(vec![TensorDict::new(&[2])?, TensorDict::new(&[3])?], 0)?;
    /// let Stacked::Dict(second) = stack.at(&[1.into()])? else { unreachable!() };
    /// assert_eq!(second.batch_size(), [3]);
    /// let Stacked::Lazy(swapped) = stack.at(&[Index::list(vec![1, 0])])? else { unreachable!() };
    /// assert_eq!(swapped.batch_size(), [Some(2), None]);
    /// # Ok::<(), fulmar_core::Error>(())
    /// ```
    pub fn at(&self, index: &[Index]) -> Result<Stacked> {
        let index = Index::within(index, self.parts[0].batch_size().len() + 1)?;
        let (mut taken, mut given) = (0, 0);
        let stacked = index.iter().position(|item| {
            let here = taken <= self.dim && self.dim < taken + item.dims();
            if !here {
                taken += item.dims();
                given += item.dims_given();
            }
            here
        });
        let picks =
            index.iter().filter(|item| item.dims() > 0 && matches!(item, Index::Pick(at) if at.rank() > 0));
        let several = picks.count() > 1;
        let Some(stacked) = stacked else {
            if several {
                return self.dense()?.at(&index).map(Stacked::Dict);
            }
            // Dimensions after the last item of the index stay whole.
            return self.mapped(given + self.dim - taken, |part| part.at(&index)).map(Stacked::Lazy);
        };
        let rest = [&index[..stacked], &index[stacked + 1..]].concat();
        let across = |at: &Index| matches!(at, Index::Pick(at) if at.rank() != 1);
        if several || across(&index[stacked]) {
            return self.dense()?.at(&index).map(Stacked::Dict);
        }
        // The positions of parts, indexed like parts.
        let parts = (0..self.parts.len() as i64).collect::<Vec<_>>();
        let chosen = Tensor::from_vec(&[parts.len()], parts)?.at(&index[stacked..=stacked])?;
        let part_at = |at: i64| self.parts[at as usize].at(&rest);
        let places = chosen.to_vec::<i64>()?;
        match (chosen.rank(), &places[..]) {
            (0, [at]) => part_at(*at).map(Stacked::Dict),
            (_, []) => self.dense()?.at(&index).map(Stacked::Dict),
            _ => {
                let parts = places.iter().map(|at| part_at(*at)).collect::<Result<Vec<_>>>()?;
                Self::along(parts, given).map(Stacked::Lazy)
            }
        }
    }
}
