//! The paged key/value cache: a page holds a few tokens of one sequence, or of several with the same
//! beginning.
//!
//! ```text
//! pool:   page 0 | page 1 | page 2 | ...          each P rows of keys and of values a layer
//! table:  [(page 4, 16), (page 1, 5), (page 7, 3)]  pages of a sequence and how many of their rows it sees
//! ```
//! A sequence writes only to rows of pages that no other sequence shares, so shared rows never change.

use fulmar_compute::{Compute, FloatMemory, Floats, RowNumbers};
use fulmar_core::{Dtype, Result};

use crate::config::DecoderConfig;

/// Pages of keys and values, with the count of sequences that hold each.
#[derive(Debug)]
pub(crate) struct PagePool {
    page_size: usize,
    num_pages: usize,
    kv_width: usize,
    /// Keys and values of each layer, `[pages * page_size, K * E]`, keys as attention reads them. On the CPU they grow as pages are first used; on a GPU they have
    /// memory for all pages and a spare one, which no sequence gets.
    layers: Vec<(FloatMemory, FloatMemory)>,
    compute: Compute,
    /// The dtype of keys and values.
    dtype: Dtype,
    /// Number of sequences that hold each page.
    holders: Vec<u32>,
    free: Vec<u32>,
}

impl PagePool {
    /// Makes an empty pool on the CPU, for keys and values in `dtype`; memory is allocated page by page.
    pub(crate) fn new(dtype: Dtype, config: &DecoderConfig, page_size: usize, num_pages: usize) -> Self {
        Self {
            page_size,
            num_pages,
            kv_width: config.kv_width(),
            layers: vec![(FloatMemory::default(), FloatMemory::default()); config.num_hidden_layers],
            compute: Compute::Cpu,
            dtype,
            holders: Vec::new(),
            free: Vec::new(),
        }
    }

    /// Makes an empty pool with memory for all pages, and a spare one, on the device of `compute`, for keys and values in `dtype`.
    ///
    /// # Errors
    /// `OutOfMemory` if there is no memory for them; `Unavailable` for a GPU that fails.
    pub(crate) fn allocate(
        (compute, dtype): (Compute, Dtype),
        config: &DecoderConfig,
        page_size: usize,
        num_pages: usize,
    ) -> Result<Self> {
        let mut pool = Self { compute, ..Self::new(dtype, config, page_size, num_pages) };
        let [of_keys, of_values] = pool.floats(num_pages + 1);
        for (keys, values) in &mut pool.layers {
            (*keys, *values) = (compute.zero_floats(dtype, of_keys)?, compute.zero_floats(dtype, of_values)?);
        }
        Ok(pool)
    }

    /// Returns the floats of the keys and of the values of some pages in a layer.
    const fn floats(&self, num_pages: usize) -> [usize; 2] {
        let rows = num_pages * self.page_size;
        [self.compute.key_floats(rows, self.kv_width), rows * self.kv_width]
    }

    /// Returns the handle of the device of the pages, and the dtype of keys and values.
    pub(crate) const fn place(&self) -> (Compute, Dtype) {
        (self.compute, self.dtype)
    }

    /// Returns the number of pages, in use or not.
    pub(crate) const fn num_pages(&self) -> usize {
        self.num_pages
    }

    /// Returns the first row of the spare page of a pool that was allocated whole.
    pub(crate) const fn spare_row(&self) -> u32 {
        (self.num_pages * self.page_size) as u32
    }

    /// Forgets which pages were in use, some of which may have no memory. No sequence holds one.
    pub(crate) fn forget_pages(&mut self) {
        self.holders.clear();
        self.free.clear();
    }

    /// Returns the number of free pages.
    pub(crate) fn num_free(&self) -> usize {
        self.num_pages - self.holders.len() + self.free.len()
    }

    /// Returns the keys and values of one layer.
    pub(crate) fn layer(&self, index: usize) -> (Floats<'_>, Floats<'_>) {
        (self.layers[index].0.view(), self.layers[index].1.view())
    }

    /// Writes one layer's keys and values of new tokens to their rows.
    pub(crate) fn write(
        &mut self,
        layer: usize,
        rows: &RowNumbers,
        [new_keys, new_values]: [&FloatMemory; 2],
    ) {
        let (width, (keys, values)) = (self.kv_width, &mut self.layers[layer]);
        self.compute.put_keys(new_keys, width, rows, keys);
        self.compute.put_float_rows(new_values, width, rows, values);
    }

    fn take(&mut self) -> Option<u32> {
        let page = match self.free.pop() {
            Some(page) => page,
            None if self.holders.len() < self.num_pages => self.grow(),
            None => return None,
        };
        self.holders[page as usize] = 1;
        Some(page)
    }

    /// Adds a page; the memory doubles, so that a row is moved only a few times.
    fn grow(&mut self) -> u32 {
        let page = self.holders.len();
        self.holders.push(0);
        let needed = self.floats(page + 1);
        if self.layers.iter().any(|(keys, values)| keys.len() < needed[0] || values.len() < needed[1]) {
            let [of_keys, of_values] = self.floats(((page + 1) * 2).min(self.num_pages));
            for (keys, values) in &mut self.layers {
                self.compute.resize_as(keys, self.dtype, of_keys);
                self.compute.resize_as(values, self.dtype, of_values);
            }
        }
        page as u32
    }

    fn give_back(&mut self, page: u32) {
        let holders = &mut self.holders[page as usize];
        *holders -= 1;
        if *holders == 0 {
            self.free.push(page);
        }
    }
}

/// The pages of one sequence, in the order of its tokens.
#[derive(Debug, Default)]
pub(crate) struct PageTable {
    /// A page, and how many of its rows belong to this sequence.
    pages: Vec<(u32, u32)>,
    /// The same rows as ranges; adjacent ranges are merged.
    ranges: Vec<(u32, u32)>,
}

impl PageTable {
    /// Adds a row for one more token and returns it, or `None` if no page is free.
    pub(crate) fn push(&mut self, pool: &mut PagePool) -> Option<u32> {
        let size = pool.page_size as u32;
        let row = match self.pages.last_mut() {
            Some((page, filled)) if *filled < size && pool.holders[*page as usize] == 1 => {
                *filled += 1;
                *page * size + *filled - 1
            }
            _ => {
                let page = pool.take()?;
                self.pages.push((page, 1));
                page * size
            }
        };
        self.see(row, row + 1);
        Some(row)
    }

    fn see(&mut self, first: u32, end: u32) {
        match self.ranges.last_mut() {
            Some(last) if last.1 == first => last.1 = end,
            _ => self.ranges.push((first, end)),
        }
    }

    /// Returns the rows of all tokens of this sequence.
    pub(crate) fn ranges(&self) -> &[(u32, u32)] {
        &self.ranges
    }

    /// Returns a table of the first `num_tokens` tokens of this one; both hold their pages.
    pub(crate) fn share(&self, num_tokens: usize, pool: &mut PagePool) -> Self {
        let (mut shared, mut missing) = (Self::default(), num_tokens as u32);
        for &(page, filled) in &self.pages {
            if missing == 0 {
                break;
            }
            let filled = filled.min(missing);
            missing -= filled;
            pool.holders[page as usize] += 1;
            shared.pages.push((page, filled));
            let first = page * pool.page_size as u32;
            shared.see(first, first + filled);
        }
        shared
    }

    /// Gives the rows of all but the first `num_tokens` tokens back, which no other sequence may see.
    pub(crate) fn truncate(&mut self, num_tokens: usize, pool: &mut PagePool) {
        let held: usize = self.pages.iter().map(|(_, filled)| *filled as usize).sum();
        for _ in num_tokens..held {
            self.pop(pool);
        }
    }

    fn pop(&mut self, pool: &mut PagePool) {
        if let Some((page, filled)) = self.pages.last_mut() {
            *filled -= 1;
            if *filled == 0 {
                pool.give_back(*page);
                self.pages.pop();
            }
        }
        if let Some((first, end)) = self.ranges.last_mut() {
            *end -= 1;
            if first == end {
                self.ranges.pop();
            }
        }
    }

    /// Frees every page that no other sequence holds.
    pub(crate) fn release(&mut self, pool: &mut PagePool) {
        for (page, _) in self.pages.drain(..) {
            pool.give_back(page);
        }
        self.ranges.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(num_pages: usize) -> PagePool {
        let text = r#"{"model_type": "llama", "vocab_size": 10, "hidden_size": 4, "intermediate_size": 4,
            "num_hidden_layers": 1, "num_attention_heads": 1}"#;
        PagePool::new(Dtype::F32, &DecoderConfig::from_json(text).unwrap(), 4, num_pages)
    }

    fn push(table: &mut PageTable, count: usize, pool: &mut PagePool) -> Vec<u32> {
        (0..count).map_while(|_| table.push(pool)).collect()
    }

    #[test]
    fn pages_are_filled_in_turn_and_come_back_when_released() {
        let (mut pool, mut table) = (pool(2), PageTable::default());
        assert_eq!(push(&mut table, 9, &mut pool), [0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((pool.num_free(), table.ranges.as_slice()), (0, [(0, 8)].as_slice()));
        table.release(&mut pool);
        assert_eq!(pool.num_free(), 2);
        assert_eq!(push(&mut table, 5, &mut pool), [4, 5, 6, 7, 0]);
        assert_eq!(table.ranges, [(4, 8), (0, 1)]);
    }

    #[test]
    fn siblings_share_a_prompt_that_neither_writes_over() {
        let (mut pool, mut first) = (pool(8), PageTable::default());
        push(&mut first, 6, &mut pool);
        let mut second = first.share(5, &mut pool);
        assert_eq!((second.ranges.as_slice(), pool.num_free()), ([(0, 5)].as_slice(), 6));
        assert_eq!(push(&mut second, 1, &mut pool), [8], "the shared page's free rows stay free");
        assert_eq!(push(&mut first, 1, &mut pool), [12]);
        first.release(&mut pool);
        assert_eq!((second.ranges.as_slice(), pool.num_free()), ([(0, 5), (8, 9)].as_slice(), 5));
        second.release(&mut pool);
        assert_eq!(pool.num_free(), 8);
        assert!(pool.holders.iter().all(|holders| *holders == 0));
    }

    #[test]
    fn rows_that_are_given_back_free_their_pages_and_are_taken_again() {
        let (mut pool, mut first) = (pool(4), PageTable::default());
        assert_eq!(push(&mut first, 7, &mut pool), [0, 1, 2, 3, 4, 5, 6]);
        let mut second = first.share(3, &mut pool);
        first.truncate(3, &mut pool);
        assert_eq!((first.ranges.as_slice(), pool.num_free()), ([(0, 3)].as_slice(), 3));
        assert_eq!(push(&mut first, 2, &mut pool), [4, 5], "the shared page is not written to");
        assert_eq!(push(&mut second, 5, &mut pool), [8, 9, 10, 11, 12]);
        first.truncate(9, &mut pool);
        assert_eq!(first.ranges, [(0, 3), (4, 6)]);
        second.truncate(4, &mut pool);
        assert_eq!((second.ranges.as_slice(), pool.num_free()), ([(0, 3), (8, 9)].as_slice(), 1));
        second.truncate(0, &mut pool);
        first.release(&mut pool);
        assert_eq!(pool.num_free(), 4);
        assert!(pool.holders.iter().all(|holders| *holders == 0));
    }

    #[test]
    fn memory_grows_with_the_pages_in_use() {
        let (mut pool, mut table) = (pool(1 << 20), PageTable::default());
        push(&mut table, 13, &mut pool);
        let (keys, values) = pool.layer(0);
        assert_eq!((keys.len(), values.len()), (32 * 4, 6 * 4 * 4), "keys are whole blocks of 16 rows");
    }
}
