//! Rows of keys for the checks of attention, and the plans of them that its kernels read.

use fulmar_core::{Result, Rng};
use fulmar_cuda::{Buffer, Card};
use fulmar_kernel::Spans;

/// The ranges of key/value rows that each query row attends to.
pub struct Layout {
    pub name: String,
    /// Key/value rows R.
    pub num_keys: usize,
    pub rows: Vec<Vec<(u32, u32)>>,
    /// Ranges of rows that attend only to one another, where a query row is the key/value row of the same number.
    pub blocks: Vec<(u32, u32)>,
}

/// A layout on the card.
pub struct Plan {
    /// The end of each row's ranges, and its number of keys.
    pub rows: Buffer<[u32; 2]>,
    /// The first row of each range, and the number of keys of its row before it.
    pub ranges: Buffer<[u32; 2]>,
}

impl Layout {
    /// Returns sequences one after the other, of which each row attends to those up to itself.
    pub fn sequences(lens: &[u32]) -> Self {
        let (mut rows, mut blocks) = (Vec::new(), Vec::new());
        for len in lens {
            let first = rows.len() as u32;
            rows.extend((0..*len).map(|row| vec![(first, first + row + 1)]));
            blocks.push((first, first + len));
        }
        Self { name: format!("sequences {lens:?}"), num_keys: rows.len(), rows, blocks }
    }

    /// Returns a prompt and its completions, which attend to the prompt and to themselves.
    pub fn tree(prompt: u32, completions: &[u32]) -> Self {
        let mut layout = Self::sequences(&[prompt]);
        for len in completions {
            let first = layout.rows.len() as u32;
            layout.rows.extend((0..*len).map(|row| vec![(0, prompt), (first, first + row + 1)]));
        }
        layout.name = format!("a prompt of {prompt} with completions {completions:?}");
        layout.num_keys = layout.rows.len();
        layout.blocks = vec![(0, layout.num_keys as u32)];
        layout
    }

    /// Returns one row for each number of keys, which are in pages of a cache in any order.
    pub fn paged(lens: &[u32], page_len: u32) -> Self {
        let pages: u32 = lens.iter().map(|len| len.div_ceil(page_len)).sum();
        let mut free: Vec<u32> = (0..pages).collect();
        let mut rng = Rng::new(22).stream("pages").fork(u64::from(page_len));
        let mut row = |len: u32| -> Vec<(u32, u32)> {
            let page = |first: u32| {
                let page = free.swap_remove(rng.next_u32() as usize % free.len()) * page_len;
                (page, page + page_len.min(len - first))
            };
            (0..len).step_by(page_len as usize).map(page).collect()
        };
        let rows = lens.iter().map(|len| row(*len)).collect();
        let name = format!("rows of {lens:?} keys in pages of {page_len}");
        Self { name, num_keys: (pages * page_len) as usize, rows, blocks: Vec::new() }
    }

    /// Returns the last `count` rows of a sequence whose `len` keys are in pages of a cache.
    pub fn prefilled(len: u32, count: u32, page_len: u32) -> Self {
        let mut layout = Self::paged(&[len], page_len);
        let pages = layout.rows.remove(0);
        let of_row = |keys: u32| -> Vec<(u32, u32)> {
            let seen = pages.iter().take(keys.div_ceil(page_len) as usize);
            seen.enumerate()
                .map(|(page, (first, _))| (*first, first + page_len.min(keys - page as u32 * page_len)))
                .collect()
        };
        layout.rows = (len - count + 1..=len).map(of_row).collect();
        layout.name = format!("the last {count} rows of {len} keys in pages of {page_len}");
        layout
    }

    /// Returns the same keys with empty ranges before, between and after those of each row.
    pub fn with_empty_ranges(mut self) -> Self {
        for row in &mut self.rows {
            *row = row.iter().flat_map(|&(first, end)| [(first, first), (first, end), (end, end)]).collect();
        }
        self.name += ", empty ranges";
        self
    }

    /// Returns the rows of the keys of query row `row`, in order.
    pub fn keys(&self, row: usize) -> impl Iterator<Item = usize> {
        self.rows[row].iter().flat_map(|&(first, end)| first as usize..end as usize)
    }

    /// Returns tiles of up to `keys_max` keys with the query rows of their block, of which some attend to none of them.
    pub fn tiles(&self, keys_max: u32) -> Vec<[u32; 4]> {
        let tiles = |&(first, end): &(u32, u32)| {
            (first..end).step_by(keys_max as usize).map(move |key| [key, end.min(key + keys_max), first, end])
        };
        self.blocks.iter().flat_map(tiles).collect()
    }

    /// Returns the same tiles without the rows before their keys, none of which attends to them.
    pub fn causal_tiles(&self, keys_max: u32) -> Vec<[u32; 4]> {
        let tiles = self.tiles(keys_max).into_iter();
        tiles.map(|[first, end, first_row, end_row]| [first, end, first_row.max(first), end_row]).collect()
    }

    /// Returns tiles of up to `rows_max` rows, of which each one's keys are the first ones of the last row's keys.
    pub fn tiles_of_rows(&self, rows_max: usize) -> Vec<[u32; 2]> {
        let mut tiles: Vec<[u32; 2]> = Vec::new();
        for row in 0..self.rows.len() {
            let follows = |first: u32| {
                row - (first as usize) < rows_max && {
                    let mut keys = self.keys(row);
                    self.keys(row - 1).all(|before| keys.next() == Some(before))
                }
            };
            match tiles.last_mut() {
                Some([first, end]) if follows(*first) => *end += 1,
                _ => tiles.push([row as u32, row as u32 + 1]),
            }
        }
        tiles
    }

    /// Returns the number of pairs of a query row and a key.
    pub fn num_pairs(&self) -> usize {
        self.rows.iter().flatten().map(|&(first, end)| (end - first) as usize).sum()
    }

    /// Returns the spans that the processor reads.
    pub fn spans(&self) -> Spans {
        let mut spans = Spans::default();
        self.rows.iter().for_each(|row| spans.push_row(row));
        spans
    }

    /// Copies the plan to the card.
    ///
    /// # Errors
    /// Errors of the GPU's driver.
    pub fn plan(&self, card: &Card) -> Result<Plan> {
        let (mut rows, mut ranges) = (Vec::new(), Vec::new());
        for row in &self.rows {
            let mut before = 0;
            for (first, end) in row {
                ranges.push([*first, before]);
                before += end - first;
            }
            rows.push([ranges.len() as u32, before]);
        }
        Ok(Plan { rows: card.upload(&rows)?, ranges: card.upload(&ranges)? })
    }
}
