//! The key/value rows that each query row attends to, with the plans of them that a GPU reads.

use std::ops::Deref;

use crate::cuda::{AttentionPlan, GradientPlan, KeyTiles, RowTiles};
use crate::plan::OnCard;

/// [`fulmar_kernel::Spans`]. A GPU copies them once, whatever the number of layers.
///
/// # Examples
/// ```
/// use fulmar_compute::Spans;
/// let mut spans = Spans::default();
/// spans.push_row(&[(0, 2), (5, 6)]);
/// assert_eq!((spans.num_rows(), spans.rows().flatten().count()), (1, 2));
/// ```
#[derive(Debug, Clone, Default)]
pub struct Spans {
    spans: fulmar_kernel::Spans,
    pub(crate) plan: OnCard<AttentionPlan>,
    pub(crate) gradient_plan: OnCard<GradientPlan>,
    pub(crate) row_tiles: OnCard<RowTiles>,
    pub(crate) key_tiles: OnCard<KeyTiles>,
}

impl Spans {
    /// Removes all rows and keeps the memory.
    pub fn clear(&mut self) {
        self.spans.clear();
        self.forget_plans();
    }

    /// Adds a row that attends to `ranges`. At least one of them must hold a row.
    pub fn push_row(&mut self, ranges: &[(u32, u32)]) {
        self.spans.push_row(ranges);
        self.forget_plans();
    }

    /// Returns the number of keys of the row with most of them.
    pub(crate) fn most_keys(&self) -> usize {
        let keys = |row: &[(u32, u32)]| row.iter().map(|(first, end)| (end - first) as usize).sum();
        self.rows().map(keys).max().unwrap_or(0)
    }

    fn forget_plans(&mut self) {
        self.plan.forget();
        self.gradient_plan.forget();
        self.row_tiles.forget();
        self.key_tiles.forget();
    }
}

impl Deref for Spans {
    type Target = fulmar_kernel::Spans;

    fn deref(&self) -> &fulmar_kernel::Spans {
        &self.spans
    }
}
