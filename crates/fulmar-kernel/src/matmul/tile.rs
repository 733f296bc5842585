//! One tile of a product: a few rows by some outputs of a panel, with all sums in registers.
//!
//! Every output is `sum = x[k] * w[k] + sum` for k = 0, 1, ... in this order, fused where the processor has fused
//! multiply-adds, so tiles of all shapes give the same bits, on all such processors.

use std::ptr::NonNull;

/// Outputs in a panel.
pub(crate) const PANEL: usize = 32;
/// Outputs whose weights in bfloat16 are the lower halves of words; the upper halves are of the others.
const HALF: usize = PANEL / 2;

/// The stored type of packed weights.
pub(crate) trait Stored: Copy + Sync {
    /// Items of one input in a panel.
    const ITEMS: usize;

    /// Loads the weights of outputs from `at` on, or of those [`HALF`] a panel further.
    ///
    /// # Safety
    /// They must be readable, and the processor must have the instructions of `V`.
    unsafe fn load<V: Vector>(at: *const Self, is_upper: bool) -> V;
}

impl Stored for f32 {
    const ITEMS: usize = PANEL;

    #[inline(always)]
    unsafe fn load<V: Vector>(at: *const Self, is_upper: bool) -> V {
        // SAFETY: what the caller promised.
        unsafe { V::load(if is_upper { at.add(HALF) } else { at }) }
    }
}

/// The weights of outputs j (lower half) and j + 16 (upper half) in bfloat16.
#[derive(Clone, Copy)]
#[repr(transparent)]
pub(super) struct Pair(u32);

impl Stored for Pair {
    const ITEMS: usize = HALF;

    #[inline(always)]
    unsafe fn load<V: Vector>(at: *const Self, is_upper: bool) -> V {
        // SAFETY: what the caller promised.
        unsafe { if is_upper { V::upper(at.cast()) } else { V::lower(at.cast()) } }
    }
}

/// Rows of a matrix in memory.
#[derive(Clone, Copy)]
pub(crate) struct Place {
    pub first: NonNull<f32>,
    pub stride: usize,
}

// SAFETY: a task writes only to places of its own.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

impl Place {
    /// Returns the place from this row and column on.
    ///
    /// # Safety
    /// The row and the column must be inside the memory.
    #[inline(always)]
    pub(super) unsafe fn at(self, row: usize, col: usize) -> Self {
        // SAFETY: what the caller promised.
        Self { first: unsafe { self.first.add(row * self.stride + col) }, stride: self.stride }
    }
}

/// The places of sums.
#[derive(Clone, Copy)]
pub(crate) struct Places {
    /// Sums over the inputs before; `None` for zeros.
    pub sums: Option<Place>,
    /// Numbers to be added to the sums at the end.
    pub added: Option<Place>,
    pub to: Place,
}

impl Places {
    /// Returns the places from this row and column on.
    ///
    /// # Safety
    /// They must be inside the memory.
    pub(super) unsafe fn at(self, row: usize, col: usize) -> Self {
        // SAFETY: what the caller promised.
        let at = |place: Place| unsafe { place.at(row, col) };
        Self { sums: self.sums.map(at), added: self.added.map(at), to: at(self.to) }
    }
}

/// The operands of a tile.
#[derive(Clone, Copy)]
pub(crate) struct Operands<W> {
    /// The first input of the first row.
    pub rows: *const f32,
    /// Floats from a row to the next one; `None` if rows are packed as `[input][row]`.
    pub row_step: Option<usize>,
    /// The first input of the first panel, and the items of a panel.
    pub panel: *const W,
    pub panel_items: usize,
    pub inputs: usize,
    pub places: Places,
    /// Distance in bytes at which weights are prefetched.
    pub ahead: usize,
    /// Later weights, of which so many bytes are prefetched with each input.
    pub next: (*const W, usize),
}

/// A register of floats and the tiles made of it.
pub(crate) trait Vector: Copy {
    const LANES: usize;
    /// Most rows in a tile.
    const ROWS: usize;
    /// Most inputs in a block: what tiles of one panel share then stays near the processor.
    const INPUTS: usize;

    /// Returns how many panels a tile of so many rows takes at once.
    fn panels(rows: usize) -> usize;

    /// Computes the tile of `rows` rows with `panels` panels.
    ///
    /// # Safety
    /// All operands must be in memory, and the processor must have the instructions.
    unsafe fn tile<W: Stored>(rows: usize, panels: usize, operands: &Operands<W>);

    /// # Safety
    /// The processor must have the instructions, here and below; addresses must have [`Vector::LANES`] places.
    unsafe fn splat(value: f32) -> Self;
    /// # Safety
    /// As above.
    unsafe fn load(from: *const f32) -> Self;
    /// Widens numbers in bfloat16.
    ///
    /// # Safety
    /// As above.
    unsafe fn load_halves(from: *const half::bf16) -> Self;
    /// Widens the lower halves of words.
    ///
    /// # Safety
    /// As above.
    unsafe fn lower(from: *const u32) -> Self;
    /// Widens the upper halves of words.
    ///
    /// # Safety
    /// As above.
    unsafe fn upper(from: *const u32) -> Self;
    /// # Safety
    /// As above.
    unsafe fn store(self, to: *mut f32);
    /// # Safety
    /// As above.
    unsafe fn add(self, other: Self) -> Self;
    /// Returns `self * weight + sum`.
    ///
    /// # Safety
    /// As above.
    unsafe fn multiply_add(self, weight: Self, sum: Self) -> Self;
}

/// Computes `R` rows with `C` vectors of outputs of each of `P` panels. Half of the vectors are in the first
/// half of a panel. If they are not the whole panel, there are several passes.
///
/// # Safety
/// As [`Vector::tile`].
#[inline(always)]
pub(super) unsafe fn tile<V: Vector, W: Stored, const R: usize, const C: usize, const P: usize>(
    of: &Operands<W>,
) {
    let span = C / 2 * V::LANES;
    for base in (0..HALF).step_by(span) {
        // SAFETY: what the caller promised: `base + span` is at most half a panel.
        unsafe {
            match of.row_step {
                None => pass::<V, W, R, C, P>(of, base, (1, R)),
                Some(row_step) => pass::<V, W, R, C, P>(of, base, (row_step, 1)),
            }
        }
    }
}

/// Computes the outputs of one pass: from `base` on, and from half a panel after it on.
///
/// # Safety
/// As [`tile`].
#[inline(always)]
unsafe fn pass<V: Vector, W: Stored, const R: usize, const C: usize, const P: usize>(
    of: &Operands<W>,
    base: usize,
    (row_step, input_step): (usize, usize),
) {
    let col = |p: usize, c: usize| p * PANEL + base + c % (C / 2) * V::LANES + c / (C / 2) * HALF;
    // SAFETY: what the caller promised; `col` is below `P` panels.
    unsafe {
        let mut sums = [[[V::splat(0.0); C]; P]; R];
        if let Some(before) = of.places.sums {
            each(
                |r: usize, p, c, sum: &mut V| *sum = V::load(before.at(r, col(p, c)).first.as_ptr()),
                &mut sums,
            );
        }
        // Without inputs the panel is no memory.
        let (mut rows, mut panel, mut next) = (of.rows, of.panel.wrapping_add(base), of.next.0);
        for input in 0..of.inputs {
            if R > 2 && input < 2 * R {
                ask_later(of.places.to.at(input / 2, input % 2 * HALF).first.as_ptr());
            }
            for p in 0..P {
                let weights = panel.add(p * of.panel_items);
                ask(weights.wrapping_byte_add(of.ahead));
                let mut values = [V::splat(0.0); C];
                for (c, value) in values.iter_mut().enumerate() {
                    *value = W::load(weights.add(c % (C / 2) * V::LANES), c >= C / 2);
                }
                for (r, sums) in sums.iter_mut().enumerate() {
                    let x = V::splat(*rows.add(r * row_step));
                    for (sum, value) in sums[p].iter_mut().zip(values) {
                        *sum = x.multiply_add(value, *sum);
                    }
                }
            }
            ask_later(next);
            next = next.wrapping_byte_add(of.next.1);
            rows = rows.wrapping_add(input_step);
            panel = panel.wrapping_add(W::ITEMS);
        }
        if let Some(added) = of.places.added {
            let old = |r, p, c| V::load(added.at(r, col(p, c)).first.as_ptr());
            each(|r, p, c, sum: &mut V| *sum = old(r, p, c).add(*sum), &mut sums);
        }
        each(|r, p, c, sum: &mut V| sum.store(of.places.to.at(r, col(p, c)).first.as_ptr()), &mut sums);
    }
}

/// Calls `run` with each sum of a tile and its place.
#[inline(always)]
fn each<V, const R: usize, const C: usize, const P: usize>(
    run: impl Fn(usize, usize, usize, &mut V),
    sums: &mut [[[V; C]; P]; R],
) {
    for (r, sums) in sums.iter_mut().enumerate() {
        for (p, sums) in sums.iter_mut().enumerate() {
            for (c, sum) in sums.iter_mut().enumerate() {
                run(r, p, c, sum);
            }
        }
    }
}

/// Asks for the weights of one input of a panel. Addresses behind the panel are no error.
#[inline(always)]
fn ask<W: Stored>(at: *const W) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        for item in (0..W::ITEMS).step_by(LINE / size_of::<W>()) {
            // SAFETY: a prefetch reads nothing that the program sees, and faults at no address.
            unsafe { _mm_prefetch::<_MM_HINT_T0>(at.wrapping_add(item).cast()) };
        }
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Asks for a line of weights that other tiles read later.
#[inline(always)]
fn ask_later<W>(at: *const W) {
    #[cfg(target_arch = "x86_64")]
    {
        use std::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        // SAFETY: as above.
        unsafe { _mm_prefetch::<_MM_HINT_T1>(at.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = at;
}

/// Bytes in a cache line.
#[cfg(target_arch = "x86_64")]
const LINE: usize = 64;

/// Implements [`Vector::tile`] by a list of `rows, panels => vectors`.
macro_rules! tiles {
    ($feature:meta; $($rows:literal, $panels:literal => $vectors:literal;)*) => {
        unsafe fn tile<W: Stored>(rows: usize, panels: usize, operands: &Operands<W>) {
            #[$feature]
            unsafe fn run<W: Stored, const R: usize, const C: usize, const P: usize>(operands: &Operands<W>) {
                // SAFETY: what the caller promised.
                unsafe { tile::<Of, W, R, C, P>(operands) }
            }
            // SAFETY: what the caller promised.
            unsafe {
                match (rows, panels) {
                    $(($rows, $panels) => run::<W, $rows, $vectors, $panels>(operands),)*
                    _ => unreachable!("no tile has {rows} rows and {panels} panels"),
                }
            }
        }
    };
}

/// Implements the arithmetic of [`Vector`] by intrinsics of x86-64.
#[cfg(target_arch = "x86_64")]
macro_rules! arithmetic {
    ($splat:ident $load:ident $load_words:ident $words:ident $mask:ident $and:ident $shift:ident $cast:ident
        $store:ident $add:ident $multiply_add:ident $load_halves:ident $halves:ident $widen:ident) => {
        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            // SAFETY: the caller promised the instructions and the places, here and below.
            Self(unsafe { $splat(value) })
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: as above.
            Self(unsafe { $load(from) })
        }
        #[inline(always)]
        unsafe fn load_halves(from: *const half::bf16) -> Self {
            // SAFETY: as above.
            Self(unsafe { $cast($shift::<16>($widen($load_halves(from.cast::<$halves>())))) })
        }
        #[inline(always)]
        unsafe fn lower(from: *const u32) -> Self {
            // SAFETY: as above.
            Self(unsafe { $cast($shift::<16>($load_words(from.cast::<$words>()))) })
        }
        #[inline(always)]
        unsafe fn upper(from: *const u32) -> Self {
            // SAFETY: as above.
            unsafe {
                let mask = $mask(0xffff_0000_u32 as i32);
                Self($cast($and($load_words(from.cast::<$words>()), mask)))
            }
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as above.
            unsafe { $store(to, self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $add(self.0, other.0) })
        }
        #[inline(always)]
        unsafe fn multiply_add(self, weight: Self, sum: Self) -> Self {
            // SAFETY: as above.
            Self(unsafe { $multiply_add(self.0, weight.0, sum.0) })
        }
    };
}

/// Implements [`Vector`] for four floats, by a function for the multiply-add of one.
macro_rules! four_floats {
    ($multiply_add:ident) => {
        const LANES: usize = 4;
        const ROWS: usize = 6;
        const INPUTS: usize = 256;

        fn panels(_: usize) -> usize {
            1
        }

        $crate::matmul::tile::tiles! {
            inline;
            1, 1 => 8; 2, 1 => 4; 3, 1 => 2; 4, 1 => 2; 5, 1 => 2; 6, 1 => 2;
        }

        #[inline(always)]
        unsafe fn splat(value: f32) -> Self {
            Self([value; 4])
        }
        #[inline(always)]
        unsafe fn load(from: *const f32) -> Self {
            // SAFETY: the caller promised the places, here and below.
            Self(unsafe { from.cast::<[f32; 4]>().read_unaligned() })
        }
        #[inline(always)]
        unsafe fn load_halves(from: *const half::bf16) -> Self {
            // SAFETY: as above.
            let halves = unsafe { from.cast::<[u16; 4]>().read_unaligned() };
            Self(halves.map(|half| f32::from_bits(u32::from(half) << 16)))
        }
        #[inline(always)]
        unsafe fn lower(from: *const u32) -> Self {
            // SAFETY: as above.
            let words = unsafe { from.cast::<[u32; 4]>().read_unaligned() };
            Self(words.map(|word| f32::from_bits(word << 16)))
        }
        #[inline(always)]
        unsafe fn upper(from: *const u32) -> Self {
            // SAFETY: as above.
            let words = unsafe { from.cast::<[u32; 4]>().read_unaligned() };
            Self(words.map(|word| f32::from_bits(word & 0xffff_0000)))
        }
        #[inline(always)]
        unsafe fn store(self, to: *mut f32) {
            // SAFETY: as above.
            unsafe { to.cast::<[f32; 4]>().write_unaligned(self.0) }
        }
        #[inline(always)]
        unsafe fn add(self, other: Self) -> Self {
            let of = |lane: usize| self.0[lane] + other.0[lane];
            Self([of(0), of(1), of(2), of(3)])
        }
        #[inline(always)]
        unsafe fn multiply_add(self, weight: Self, sum: Self) -> Self {
            let of = |lane: usize| $multiply_add(self.0[lane], weight.0[lane], sum.0[lane]);
            Self([of(0), of(1), of(2), of(3)])
        }
    };
}

#[cfg(target_arch = "x86_64")]
pub(super) use arithmetic;
pub(super) use four_floats;
pub(super) use tiles;

#[cfg(target_arch = "x86_64")]
pub(super) mod avx512 {
    use super::{Operands, Stored, Vector, tile};
    use std::arch::x86_64::*;

    /// A register of AVX-512.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Of(__m512);

    impl Vector for Of {
        const LANES: usize = 16;
        const ROWS: usize = 12;
        const INPUTS: usize = 640;

        fn panels(rows: usize) -> usize {
            match rows {
                1 => 4,
                2 => 2,
                _ => 1,
            }
        }

        tiles! {
            target_feature(enable = "avx512f");
            1, 4 => 2; 1, 1 => 2; 2, 2 => 2; 2, 1 => 2; 3, 1 => 2; 4, 1 => 2; 5, 1 => 2; 6, 1 => 2; 7, 1 => 2;
            8, 1 => 2; 9, 1 => 2; 10, 1 => 2; 11, 1 => 2; 12, 1 => 2;
        }

        arithmetic! {
            _mm512_set1_ps _mm512_loadu_ps _mm512_loadu_si512 __m512i _mm512_set1_epi32 _mm512_and_si512
            _mm512_slli_epi32 _mm512_castsi512_ps _mm512_storeu_ps _mm512_add_ps _mm512_fmadd_ps
            _mm256_loadu_si256 __m256i _mm512_cvtepu16_epi32
        }
    }
}

#[cfg(target_arch = "x86_64")]
pub(super) mod avx2 {
    use super::{Operands, Stored, Vector, tile};
    use std::arch::x86_64::*;

    /// A register of AVX2.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Of(__m256);

    impl Vector for Of {
        const LANES: usize = 8;
        const ROWS: usize = 6;
        const INPUTS: usize = 256;

        fn panels(rows: usize) -> usize {
            if rows == 1 { 2 } else { 1 }
        }

        tiles! {
            target_feature(enable = "avx2,fma");
            1, 2 => 4; 1, 1 => 4; 2, 1 => 4; 3, 1 => 2; 4, 1 => 2; 5, 1 => 2; 6, 1 => 2;
        }

        arithmetic! {
            _mm256_set1_ps _mm256_loadu_ps _mm256_loadu_si256 __m256i _mm256_set1_epi32 _mm256_and_si256
            _mm256_slli_epi32 _mm256_castsi256_ps _mm256_storeu_ps _mm256_add_ps _mm256_fmadd_ps
            _mm_loadu_si128 __m128i _mm256_cvtepu16_epi32
        }
    }
}

pub(super) mod portable {
    use super::{Operands, Stored, Vector, tile};

    /// Four floats, which compilers put in a register of NEON, SIMD128 or SSE2. Only NEON has fused multiply-adds.
    #[derive(Clone, Copy)]
    pub(in super::super) struct Of([f32; 4]);

    impl Vector for Of {
        four_floats! { multiply_add }
    }

    #[inline(always)]
    fn multiply_add(x: f32, w: f32, sum: f32) -> f32 {
        if cfg!(target_arch = "aarch64") { x.mul_add(w, sum) } else { x * w + sum }
    }
}
