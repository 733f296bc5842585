//! What a store is made with, and what it tells of itself.

/// When rows are made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// When a segment is full, a checkpoint is made or the store is closed. Acknowledged rows survive a crash of the process.
    None,
    /// When [`Store::tick`](crate::Store::tick) finds them waiting for `interval_ms` milliseconds. Acknowledged rows survive a loss of power.
    Async {
        /// Longest wait, in milliseconds of the caller's clock.
        interval_ms: u64,
    },
    /// At every [`Store::commit`](crate::Store::commit). Acknowledged rows survive a loss of power.
    Sync,
}

/// What a store is made with.
///
/// # Examples
/// ```
/// let options = fulmar_store::StoreOptions::new(1000);
/// assert_eq!((options.segment_bytes, options.durability), (64 << 20, fulmar_store::Durability::Sync));
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreOptions {
    /// Most rows; the next one takes the place of the oldest. A store that is there keeps its own: another one is an error.
    pub capacity: u64,
    /// What the records mean, for those who read them; the store keeps the text as it is. Another one than that of a store
    /// that is there is an error.
    pub schema: String,
    /// The length of each file of records, in bytes. A store that is there keeps its own.
    pub segment_bytes: u32,
    /// When rows are made durable.
    pub durability: Durability,
}

impl StoreOptions {
    /// `capacity` rows without a schema, in segments of 64 MiB, durable at every commit.
    #[must_use]
    pub const fn new(capacity: u64) -> Self {
        Self { capacity, schema: String::new(), segment_bytes: 64 << 20, durability: Durability::Sync }
    }
}

/// What a store holds and has done since it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StoreStats {
    /// Rows that the ring holds, damaged ones among them.
    pub num_rows: u64,
    /// Rows whose bytes were lost to damaged files when the store was opened; reading them is an error.
    pub num_damaged_rows: u64,
    /// Damaged stretches of the files, found when the store was opened.
    pub num_gaps: u64,
    /// Bytes of the rows.
    pub row_bytes: u64,
    /// Bytes of all segments.
    pub log_bytes: u64,
    /// Rows and other changes that wait in memory.
    pub num_pending: u64,
    /// Groups written.
    pub num_groups: u64,
    /// Times that the disk was asked to make something durable.
    pub num_syncs: u64,
    /// Rows and marks that were moved so that an old segment could go.
    pub num_moved: u64,
}
