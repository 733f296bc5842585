//! Products over packed weights: one order of sums for any number of rows, threads and instructions.
//!
//! ```text
//! for each block of rows and group of panels, on all cores:
//!     for each block of inputs:
//!         rows are packed as [tile][input][row]                  from 7 rows on
//!         for each panel, packed now, once for all blocks of rows, or before, as [input][32]:
//!             for each tile of up to 12 rows:                    sums in registers: sum = x[k] w[k] + sum
//! ```
//! Sums go through memory between blocks of inputs, which changes no bit.

use std::cell::Cell;
use std::ops::Range;
use std::ptr::NonNull;

use super::panels::{Format, LINE, Line, grow};
use super::rounded::{round_inputs, round_outputs};
use super::tile::{self, Operands, PANEL, Pair, Place, Places, Stored, Vector};
use super::transpose::transpose;
use super::{MatRef, MatmulPrecision};
use crate::floats::Floats;
use crate::lanes::prefetch;
use crate::parallel::for_tasks;

/// Most rows in a task whose weights are packed: with a block of inputs, they fit the second-level cache.
const ROWS: usize = 96;
/// Most rows in a task that packs its weights, which must pay off.
const PACKING_ROWS: usize = 192;
/// Most panels in a task.
const PANELS: usize = 64;
/// Tasks into which a product is cut, if they have enough work.
const TASKS: usize = 8;
/// Fewest panels in a task that packs its rows.
const PANELS_MIN: usize = 2;
/// Most floats of rows that are packed once for all tasks. Else each task packs its own.
const SHARED: usize = 1 << 20;
/// Most floats of weights that are packed once for all blocks of rows: 16 MB, which the cache that cores share can hold.
const SHARED_WEIGHTS: usize = 1 << 22;
/// Fewest blocks of rows for which weights are packed once, which is one more pass through memory.
const SHARED_BLOCKS: usize = 3;
/// Most rows that are not packed.
const UNPACKED_ROWS: usize = 6;
/// Fewest multiply-adds for a thread of their own.
const TASK_WORK: usize = 1 << 18;
/// Rows below which the memory of the weights takes the time, not the arithmetic.
const STREAMED_ROWS: usize = 8;
/// Panels that a task packs at once.
const WINDOW: usize = 4;
/// Inputs of a tile that are packed in turn.
const TURN: usize = 8;
/// Distance in bytes at which weights are prefetched that an earlier tile read.
const NEAR: usize = 1024;
/// Distance in bytes at which the weights of few rows are prefetched.
const AHEAD: usize = 2048;

/// Computes the product of `left` with each factor, or adds it to what is there, with the widest instructions of
/// this processor.
pub(super) fn product(left: MatRef<'_>, factors: &[Factor<'_>], accumulate: bool) {
    let wide = left.data.to_f32();
    let product = Product { left: MatRef { data: Floats::F32(&wide), ..left }, factors, accumulate };
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::is_x86_feature_detected as has;
        if has!("avx512f") {
            // SAFETY: the check above saw the instructions, here and below.
            return unsafe { product.run::<tile::avx512::Of>() };
        }
        if has!("avx2") && has!("fma") {
            // SAFETY: as above.
            return unsafe { product.run::<tile::avx2::Of>() };
        }
    }
    // SAFETY: it needs no instructions beyond those of the target.
    unsafe { product.run::<tile::portable::Of>() };
}

/// A right operand, and the place of its product.
pub(super) struct Factor<'a> {
    pub out: Place,
    pub right: MatRef<'a>,
}

impl<'a> Factor<'a> {
    /// # Panics
    /// If `out` has another shape, or `left` is packed.
    pub(super) fn new(out: &'a mut [f32], left: MatRef<'_>, right: MatRef<'a>) -> Self {
        assert_eq!(left.cols, right.rows, "inner lengths must agree");
        assert!(left.panels.is_none(), "only the right operand can be packed");
        assert_eq!(out.len(), left.rows * right.cols, "out must hold left.rows x right.cols floats");
        // SAFETY: a slice is not at address 0.
        let first = unsafe { NonNull::new_unchecked(out.as_mut_ptr()) };
        Self { out: Place { first, stride: right.cols }, right }
    }

    /// Returns whether the weights are of 8 bits, whose products are not those of this file.
    pub(super) fn is_quantized(&self) -> bool {
        self.right.panels.is_some_and(|panels| panels.format == Format::Q8)
    }

    /// Returns whether both operands are rounded to bfloat16.
    pub(super) fn is_rounded(&self) -> bool {
        self.right.precision == MatmulPrecision::Bf16
    }

    pub(super) const fn num_panels(&self) -> usize {
        self.right.cols.div_ceil(PANEL)
    }
}

/// The operands of products with the same rows.
pub(super) struct Product<'a> {
    pub left: MatRef<'a>,
    pub factors: &'a [Factor<'a>],
    pub accumulate: bool,
}

impl Product<'_> {
    /// Computes the products.
    ///
    /// # Safety
    /// The processor must have the instructions of `V`.
    pub(super) unsafe fn run<V: Vector>(&self) {
        let (rows, inputs) = (self.left.rows, self.left.cols);
        let panels: usize = self.factors.iter().map(Factor::num_panels).sum();
        if rows == 0 || panels == 0 {
            return;
        }
        let are_packed = self.factors.iter().all(|factor| factor.right.panels.is_some());
        let packs_once = self.factors.iter().all(|factor| factor.right.panels.is_none())
            && rows.div_ceil(PACKING_ROWS) >= SHARED_BLOCKS
            && panels * PANEL * inputs <= SHARED_WEIGHTS;
        let most = if are_packed || packs_once { ROWS } else { PACKING_ROWS };
        let block_rows = rows.div_ceil(rows.div_ceil(most)).next_multiple_of(V::ROWS);
        let row_blocks = rows.div_ceil(block_rows);
        let fewest = if self.reads_rows() { V::panels(rows) } else { PANELS_MIN };
        let at_once = panels.div_ceil(TASKS.div_ceil(row_blocks)).clamp(fewest, PANELS);
        let groups = self.groups(at_once);
        let work = (rows / row_blocks).max(STREAMED_ROWS) * at_once * PANEL * inputs.max(1);
        let mut shared = SHARED_ROWS.take();
        let is_shared = groups.len() > 1 && rows * inputs <= SHARED && !self.reads_rows();
        if is_shared {
            grow(&mut shared, rows * inputs);
            for block in 0..row_blocks {
                let rows = block_of(rows, block_rows, block);
                let to = &mut floats_of(&mut shared)[rows.start * inputs..rows.end * inputs];
                for inputs in blocks_of::<V>(inputs) {
                    let to = &mut to[inputs.start * rows.len()..inputs.end * rows.len()];
                    self.pack_rows::<V>(rows.clone(), inputs, to);
                }
            }
        }
        let mut weights = PACKED_WEIGHTS.take();
        if packs_once {
            self.pack_weights(&mut weights);
        }
        for_tasks(row_blocks * groups.len(), TASK_WORK / work, |task| {
            let Group { factor, before, panels } = &groups[task % groups.len()];
            let rows = block_of(rows, block_rows, task / groups.len());
            let shared = is_shared.then(|| shared.as_ptr().cast::<f32>().wrapping_add(rows.start * inputs));
            let weights = weights.as_ptr().cast::<f32>().wrapping_add(before * inputs * PANEL);
            let weights = packs_once.then_some(weights);
            let task = Task { of: self, factor, rows, shared, weights, panels: panels.clone() };
            let mut scratch = SCRATCH.take();
            // SAFETY: what the caller promised, and the outputs of a task are its own.
            unsafe {
                match factor.right.panels {
                    Some(packed) if packed.format == Format::Bf16 => task.run::<V, Pair>(&mut scratch),
                    _ => task.run::<V, f32>(&mut scratch),
                }
            }
            SCRATCH.set(scratch);
        });
        PACKED_WEIGHTS.set(weights);
        SHARED_ROWS.set(shared);
    }

    /// Cuts the panels of each factor into groups of at most `at_once`.
    fn groups(&self, at_once: usize) -> Vec<Group<'_>> {
        let (mut groups, mut before) = (Vec::new(), 0);
        for factor in self.factors {
            let panels = factor.num_panels();
            let parts = (0..panels).step_by(at_once).map(|first| first..panels.min(first + at_once));
            groups.extend(parts.map(|panels| Group { factor, before, panels }));
            before += panels;
        }
        groups
    }

    /// Packs the panels of all factors, one after another, over all inputs.
    fn pack_weights(&self, to: &mut Vec<Line>) {
        let (inputs, windows) = (self.left.cols, self.groups(WINDOW));
        let floats = inputs * PANEL;
        let panels: usize = self.factors.iter().map(Factor::num_panels).sum();
        grow(to, panels * floats);
        let first = Place { first: NonNull::from(&mut floats_of(to)[..]).cast(), stride: floats };
        for_tasks(windows.len(), TASK_WORK / (WINDOW * floats).max(1), |window| {
            let Group { factor, before, panels } = &windows[window];
            // SAFETY: each task writes to panels of its own, which are inside the lines.
            let to = unsafe {
                let first = first.at(before + panels.start, 0).first;
                std::slice::from_raw_parts_mut(first.as_ptr(), panels.len() * floats)
            };
            let mut scratch = SCRATCH.take();
            pack(factor.right, panels.clone(), 0..inputs, to, &mut scratch.wide);
            SCRATCH.set(scratch);
        });
    }

    /// Returns whether rows are few enough to be read without packing.
    const fn reads_rows(&self) -> bool {
        self.left.rows <= UNPACKED_ROWS && self.left.col_stride == 1
    }

    /// Returns the address of an input of a row.
    fn row(&self, row: usize, input: usize) -> *const f32 {
        let Floats::F32(data) = self.left.data else { unreachable!("rows are in single precision") };
        data.as_ptr().wrapping_add(row * self.left.row_stride + input)
    }

    /// Packs some inputs of some rows as `[tile][input][row]`.
    fn pack_rows<V: Vector>(&self, rows: Range<usize>, inputs: Range<usize>, to: &mut [f32]) {
        let left = self.left;
        let Floats::F32(data) = left.data else { unreachable!("rows are in single precision") };
        let from = &data[rows.start * left.row_stride + inputs.start * left.col_stride..];
        let tiles = rows.len().div_ceil(V::ROWS);
        if left.col_stride == 1 {
            for index in 0..tiles {
                let tile = part(rows.len(), tiles, index);
                let to = &mut to[tile.start * inputs.len()..tile.end * inputs.len()];
                let floats = (tile.len() - 1) * left.row_stride + inputs.len();
                let from = &from[tile.start * left.row_stride..][..floats];
                transpose(from, left.row_stride, inputs.len(), to, tile.len());
            }
            return;
        }
        // Tiles take turns every few inputs, so that reads and writes both stay in a few cache lines.
        for first in (0..inputs.len()).step_by(TURN) {
            let later = (first + TURN..first + 2 * TURN).map(|input| input * left.col_stride);
            later.for_each(|at| fetch(from, at, rows.len()));
            for index in 0..tiles {
                let tile = part(rows.len(), tiles, index);
                for input in first..inputs.len().min(first + TURN) {
                    let at = tile.start * inputs.len() + input * tile.len();
                    to[at..][..tile.len()].copy_from_slice(&from[input * left.col_stride..][tile.clone()]);
                }
            }
        }
    }
}

/// Some panels of a factor.
struct Group<'a> {
    factor: &'a Factor<'a>,
    /// The number of panels of all factors before it.
    before: usize,
    panels: Range<usize>,
}

/// Prefetches some floats. Those behind the slice are no error.
#[inline(always)]
fn fetch(from: &[f32], first: usize, len: usize) {
    for at in (first..first + len).step_by(LINE) {
        prefetch(from, at);
    }
}

/// Returns the blocks of so many inputs, at least one.
fn blocks_of<V: Vector>(inputs: usize) -> impl DoubleEndedIterator<Item = Range<usize>> + ExactSizeIterator {
    let blocks = inputs.div_ceil(V::INPUTS).max(1);
    (0..blocks).map(move |block| part(inputs, blocks, block))
}

/// Returns block `index` of `0..len`, of `size` each but the last one.
fn block_of(len: usize, size: usize, index: usize) -> Range<usize> {
    index * size..len.min((index + 1) * size)
}

/// Returns the part `index` of `count` parts of `0..len`, as equal as can be.
fn part(len: usize, count: usize, index: usize) -> Range<usize> {
    let (size, longer) = (len / count, len % count);
    let first = index * size + index.min(longer);
    first..first + size + usize::from(index < longer)
}

thread_local! {
    /// The packed rows of a product that this thread shares with others.
    static SHARED_ROWS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// The packed weights of a product that this thread shares with others.
    static PACKED_WEIGHTS: Cell<Vec<Line>> = const { Cell::new(Vec::new()) };
    /// The buffers of this thread's tasks.
    static SCRATCH: Cell<Scratch> = const { Cell::new(Scratch::new()) };
}

/// Packed operands of a task, and its sums.
struct Scratch {
    rows: Vec<Line>,
    panels: Vec<Line>,
    sums: Vec<f32>,
    wide: Vec<f32>,
}

impl Scratch {
    const fn new() -> Self {
        Self { rows: Vec::new(), panels: Vec::new(), sums: Vec::new(), wide: Vec::new() }
    }
}

impl Default for Scratch {
    fn default() -> Self {
        Self::new()
    }
}

/// Some rows of a product and some panels of a factor.
struct Task<'a> {
    of: &'a Product<'a>,
    factor: &'a Factor<'a>,
    rows: Range<usize>,
    /// The rows, packed by [`Product::pack_rows`] for all tasks.
    shared: Option<*const f32>,
    /// The factor's panels, packed by [`Product::pack_weights`] for all tasks.
    weights: Option<*const f32>,
    panels: Range<usize>,
}

impl Task<'_> {
    /// Computes the task's outputs with weights that are stored, or packed, as `W`.
    ///
    /// # Safety
    /// As [`Product::run`], and no other thread may write to the task's outputs.
    unsafe fn run<V: Vector, W: Stored>(&self, scratch: &mut Scratch) {
        let blocks = blocks_of::<V>(self.of.left.cols);
        let (num_blocks, num_rows) = (blocks.len(), self.rows.len());
        let cols = self.panels.start * PANEL..self.factor.right.cols.min(self.panels.end * PANEL);
        // SAFETY: the task's outputs are inside those of the product.
        let out = unsafe { self.factor.out.at(self.rows.start, cols.start) };
        let mut sums = out;
        if self.of.accumulate && num_blocks > 1 {
            scratch.sums.resize(num_rows * cols.len(), 0.0);
            // SAFETY: a slice is not at address 0.
            let first = unsafe { NonNull::new_unchecked(scratch.sums.as_mut_ptr()) };
            sums = Place { first, stride: cols.len() };
        }
        for (block, inputs) in blocks.enumerate() {
            let is_last = block + 1 == num_blocks;
            let places = Places {
                sums: (block > 0).then_some(sums),
                added: (is_last && self.of.accumulate).then_some(out),
                to: if is_last { out } else { sums },
            };
            let rows = match self.shared {
                Some(packed) => (packed.wrapping_add(inputs.start * num_rows), None),
                None if self.of.reads_rows() => {
                    (self.of.row(self.rows.start, inputs.start), Some(self.of.left.row_stride))
                }
                None => {
                    grow(&mut scratch.rows, num_rows * inputs.len());
                    let to = &mut floats_of(&mut scratch.rows)[..num_rows * inputs.len()];
                    self.of.pack_rows::<V>(self.rows.clone(), inputs.clone(), to);
                    (scratch.rows.as_ptr().cast(), None)
                }
            };
            // SAFETY: what the caller promised.
            unsafe { self.add_block::<V, W>(rows, inputs, places, scratch) };
        }
    }

    /// Multiplies all rows, from an address on and as far apart, with all panels over some inputs.
    ///
    /// # Safety
    /// As [`Task::run`], and the rows must hold the inputs.
    unsafe fn add_block<V: Vector, W: Stored>(
        &self,
        (first_row, row_step): (*const f32, Option<usize>),
        inputs: Range<usize>,
        places: Places,
        scratch: &mut Scratch,
    ) {
        let MatRef { cols: num_cols, panels: packed, .. } = self.factor.right;
        let num_rows = self.rows.len();
        let tiles = num_rows.div_ceil(V::ROWS);
        let (mut panel, mut window) = (self.panels.start, self.panels.start..self.panels.start);
        let items = self.of.left.cols * W::ITEMS;
        let whole = |panel: usize| match (packed, self.weights) {
            (Some(packed), _) => Some(packed.panel::<W>(panel)),
            (None, Some(weights)) => Some(weights.cast::<W>().wrapping_add(panel * items)),
            (None, None) => None,
        };
        while panel < self.panels.end {
            let whole = whole(panel);
            if whole.is_none() && panel == window.end {
                window = panel..self.panels.end.min(panel + WINDOW);
                let floats = window.len() * inputs.len() * PANEL;
                grow(&mut scratch.panels, floats);
                let to = &mut floats_of(&mut scratch.panels)[..floats];
                pack(self.factor.right, window.clone(), inputs.clone(), to, &mut scratch.wide);
            }
            let most = if tiles == 1 { V::panels(num_rows) } else { 1 };
            let is_whole = panel + most <= if whole.is_some() { self.panels.end } else { window.end }
                && (panel + most) * PANEL <= num_cols;
            let count = if is_whole { most } else { 1 };
            let (first, panel_items) = match whole {
                Some(first) => (first.wrapping_add(inputs.start * W::ITEMS), items),
                None => {
                    let items = inputs.len() * PANEL;
                    (scratch.panels.as_ptr().cast::<W>().wrapping_add((panel - window.start) * items), items)
                }
            };
            let (col, width) = ((panel - self.panels.start) * PANEL, PANEL.min(num_cols - panel * PANEL));
            for index in 0..tiles {
                let tile = part(num_rows, tiles, index);
                let ahead = if tiles == 1 { AHEAD } else { NEAR };
                // The tiles of a panel prefetch the next one, a share each.
                let share = (W::ITEMS * size_of::<W>()).div_ceil(tiles) * usize::from(whole.is_some());
                let next = first.wrapping_add(panel_items).wrapping_byte_add(index * share * inputs.len());
                let operands = Operands {
                    rows: first_row.wrapping_add(tile.start * inputs.len()),
                    row_step,
                    panel: first,
                    panel_items,
                    inputs: inputs.len(),
                    // SAFETY: the tile's outputs are inside those of the task.
                    places: unsafe { places.at(tile.start, col) },
                    ahead,
                    next: (next, share),
                };
                // SAFETY: the rows and panels hold `inputs`, and the places are the tile's.
                unsafe {
                    if width == PANEL {
                        V::tile(tile.len(), count, &operands);
                    } else {
                        corner::<V, W>(tile.len(), width, &operands);
                    }
                }
            }
            panel += count;
        }
    }
}

/// Returns the floats of lines.
fn floats_of(lines: &mut [Line]) -> &mut [f32] {
    // SAFETY: a line is `LINE` floats without padding.
    unsafe { std::slice::from_raw_parts_mut(lines.as_mut_ptr().cast(), lines.len() * LINE) }
}

/// Packs some inputs of panels of an unpacked weight, each as `[input][PANEL]`; words of two inputs if the product
/// rounds its operands. Outputs that the weight does not have are left as they are. `wide` is memory for its own use.
pub(super) fn pack(
    right: MatRef<'_>,
    panels: Range<usize>,
    inputs: Range<usize>,
    to: &mut [f32],
    wide: &mut Vec<f32>,
) {
    let (cols, floats) = (panels.start * PANEL..right.cols.min(panels.end * PANEL), inputs.len() * PANEL);
    if inputs.is_empty() {
        return;
    }
    let is_rounded = right.precision == MatmulPrecision::Bf16;
    if right.col_stride == 1 && is_rounded {
        for (input, word) in (0..).step_by(PANEL).zip(inputs) {
            let panels = to.chunks_exact_mut(floats).map(|panel| &mut panel[input..]);
            round_inputs(right, cols.clone(), word, PANEL, panels);
        }
        return;
    }
    if right.col_stride == 1 {
        // All panels take their part of a row in turn, so that it is read as a whole.
        for (input, at) in (0..).step_by(PANEL).zip(inputs.map(|input| input * right.row_stride)) {
            if let Floats::F32(data) = right.data {
                fetch(data, at + TURN * right.row_stride + cols.start, cols.len());
            }
            for (panel, col) in (0..).step_by(floats).zip(cols.clone().step_by(PANEL)) {
                let end = cols.end.min(col + PANEL);
                right.data.slice(at + col..at + end).copy_to(&mut to[panel + input..][..end - col]);
            }
        }
        return;
    }
    for (to, col) in to.chunks_exact_mut(floats).zip(cols.clone().step_by(PANEL)) {
        let end = cols.end.min(col + PANEL);
        let of_col = |col: usize| col * right.col_stride + inputs.start..col * right.col_stride + inputs.end;
        match right.data {
            _ if is_rounded => {
                round_outputs(right, col..end, inputs.clone(), wide);
                transpose(wide, inputs.len(), inputs.len(), to, PANEL);
            }
            Floats::F32(data) => {
                let from = &data[of_col(col).start..of_col(end - 1).end];
                transpose(from, right.col_stride, inputs.len(), to, PANEL);
            }
            data @ Floats::Bf16(_) => {
                wide.resize((end - col) * inputs.len(), 0.0);
                for (col, wide) in (col..end).zip(wide.chunks_exact_mut(inputs.len())) {
                    data.slice(of_col(col)).copy_to(wide);
                }
                transpose(wide, inputs.len(), inputs.len(), to, PANEL);
            }
        }
    }
}

/// Computes a tile of which only `width` outputs exist, by whole rows of a panel of its own.
///
/// # Safety
/// As [`Vector::tile`], for `width` outputs.
unsafe fn corner<V: Vector, W: Stored>(rows: usize, width: usize, operands: &Operands<W>) {
    let places = operands.places;
    const ROWS_MAX: usize = 12;
    const { assert!(V::ROWS <= ROWS_MAX, "a corner must have room for every tile") };
    let copy = |from: Option<Place>, to: &mut [f32]| {
        let Some(from) = from else { return };
        for row in 0..rows {
            for col in 0..width {
                // SAFETY: what the caller promised.
                to[row * PANEL + col] = unsafe { *from.at(row, col).first.as_ptr() };
            }
        }
    };
    let (mut sums, mut added) = ([0.0_f32; ROWS_MAX * PANEL], [0.0_f32; ROWS_MAX * PANEL]);
    copy(places.sums, &mut sums);
    copy(places.added, &mut added);
    let place = |of: &mut [f32]| {
        // SAFETY: a slice is not at address 0.
        Place { first: unsafe { NonNull::new_unchecked(of.as_mut_ptr()) }, stride: PANEL }
    };
    let own = place(&mut sums);
    let whole =
        Places { sums: places.sums.map(|_| own), added: places.added.map(|_| place(&mut added)), to: own };
    // SAFETY: what the caller promised; the places have whole rows.
    unsafe { V::tile(rows, 1, &Operands { places: whole, ..*operands }) };
    for row in 0..rows {
        for col in 0..width {
            // SAFETY: what the caller promised.
            unsafe { *places.to.at(row, col).first.as_ptr() = sums[row * PANEL + col] };
        }
    }
}
