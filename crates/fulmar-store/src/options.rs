//! Options and statistics of a store.

/// The time at which rows become durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When a segment is full, a checkpoint is made or the store is closed. Acknowledged rows survive a crash of the process.
    None,
    /// When [`Store::tick`](crate::Store::tick) finds rows that have waited for `interval_ms` milliseconds.
    /// Acknowledged rows survive a loss of power.
    Async {
        /// Longest wait, in milliseconds of the caller's clock.
        interval_ms: u64,
    },
    /// At every [`Store::commit`](crate::Store::commit). Acknowledged rows survive a loss of power.
    Sync,
}

/// Options of a store.
///
/// # Examples
/// ```
/// let options = fulmar_store::StoreOptions::new(1000);
/// assert_eq!((options.segment_bytes, options.durability), (64 << 20, fulmar_store::Durability::Sync));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Maximum number of rows; the next row replaces the oldest. An existing store keeps its own: a different
    /// value is an error.
    pub capacity: u64,
    /// A description of the records for their readers, stored unchanged. A different text than that of an
    /// existing store is an error.
    pub schema: String,
    /// The length of each file of records, in bytes. An existing store keeps its own.
    pub segment_bytes: u32,
    /// The time at which rows become durable.
    pub durability: Durability,
}

impl StoreOptions {
    /// Returns options for `capacity` rows without a schema, in segments of 64 MiB, durable at every commit.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, schema: String::new(), segment_bytes: 64 << 20, durability: Durability::Sync }
    }
}

/// Contents and statistics of a store since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Number of rows in the ring, damaged ones included.
    pub num_rows: u64,
    /// Number of rows whose bytes were lost to damaged files before the store was opened; reading them is an
    /// error.
    pub num_damaged_rows: u64,
    /// Number of damaged ranges in the files, found when the store was opened.
    pub num_gaps: u64,
    /// Size of the rows in bytes.
    pub row_bytes: u64,
    /// Size of all segments in bytes.
    pub log_bytes: u64,
    /// Number of rows and other changes that wait in memory.
    pub num_pending: u64,
    /// Number of groups written.
    pub num_groups: u64,
    /// Number of sync calls.
    pub num_syncs: u64,
    /// Number of rows and marks moved to free old segments.
    pub num_moved: u64,
}
