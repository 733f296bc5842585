//! Registers of sums over words of two bfloat16 inputs.

#[cfg(target_arch = "x86_64")]
pub(in super::super) mod avx512 {
    use super::super::super::tile::{Operands, Stored, Vector, arithmetic, tile, tiles};
    use super::super::{TOGETHER, adjacent_one_by_one, interleaved_one_by_one};
    use std::arch::x86_64::*;

    /// A register of AVX-512.
    #[derive(Clone, Copy)]
    pub(in super::super::super) struct Of(__m512);

    impl Vector for Of {
        const LANES: usize = 16;
        const ROWS: usize = 12;
        const INPUTS: usize = 320;

        fn panels(rows: usize) -> usize {
            match rows {
                1 => 4,
                2 => 2,
                _ => 1,
            }
        }

        tiles! {
            target_feature(enable = "avx512f,avx512bf16");
            1, 4 => 2; 1, 1 => 2; 2, 2 => 2; 2, 1 => 2; 3, 1 => 2; 4, 1 => 2; 5, 1 => 2; 6, 1 => 2; 7, 1 => 2;
            8, 1 => 2; 9, 1 => 2; 10, 1 => 2; 11, 1 => 2; 12, 1 => 2;
        }

        arithmetic! {
            _mm512_set1_ps _mm512_loadu_ps _mm512_loadu_si512 __m512i _mm512_set1_epi32 _mm512_and_si512
            _mm512_slli_epi32 _mm512_castsi512_ps _mm512_storeu_ps _mm512_add_ps add_pairs
            _mm256_loadu_si256 __m256i _mm512_cvtepu16_epi32
        }
    }

    /// Adds the products of the inputs of words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bf16")]
    fn add_pairs(x: __m512, w: __m512, sum: __m512) -> __m512 {
        // SAFETY: both types are 512 bits, and all bits are values of both.
        let halves = |words: __m512| unsafe { std::mem::transmute::<__m512, __m512bh>(words) };
        _mm512_dpbf16_ps(sum, halves(x), halves(w))
    }

    /// Returns whether this processor has the instructions of [`adjacent`] and [`interleaved`].
    pub(in super::super) fn suits() -> bool {
        use std::arch::is_x86_feature_detected as has;
        has!("avx512f") && has!("avx512bw") && has!("avx512bf16")
    }

    /// Words in a register.
    const WORDS: usize = 16;

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(in super::super) fn adjacent(from: &[f32], to: &mut [f32]) {
        let (whole, rest) = from.as_chunks::<{ TOGETHER * WORDS }>();
        let (words, rest_of_words) = to.split_at_mut(whole.len() * WORDS);
        for (from, to) in whole.iter().zip(words.as_chunks_mut::<WORDS>().0) {
            // SAFETY: each has as many places as its registers, and both types of the result are 512 bits.
            unsafe {
                let halves = _mm512_cvtne2ps_pbh(
                    _mm512_loadu_ps(from[WORDS..].as_ptr()),
                    _mm512_loadu_ps(from.as_ptr()),
                );
                _mm512_storeu_ps(to.as_mut_ptr(), std::mem::transmute::<__m512bh, __m512>(halves));
            }
        }
        adjacent_one_by_one(rest, rest_of_words);
    }

    #[target_feature(enable = "avx512f,avx512bw,avx512bf16")]
    pub(in super::super) fn interleaved(lower: &[f32], upper: Option<&[f32]>, to: &mut [f32]) {
        let Some(upper) = upper else { return interleaved_one_by_one(lower, None, to) };
        // The upper half of a word follows its lower half, 16 places further in the register of both.
        let order = _mm512_set_epi32(
            0x001f_000f,
            0x001e_000e,
            0x001d_000d,
            0x001c_000c,
            0x001b_000b,
            0x001a_000a,
            0x0019_0009,
            0x0018_0008,
            0x0017_0007,
            0x0016_0006,
            0x0015_0005,
            0x0014_0004,
            0x0013_0003,
            0x0012_0002,
            0x0011_0001,
            0x0010_0000,
        );
        let ((lowers, lower), (uppers, upper)) = (lower.as_chunks::<WORDS>(), upper.as_chunks::<WORDS>());
        let (words, rest) = to.split_at_mut(lowers.len() * WORDS);
        for ((lower, upper), to) in lowers.iter().zip(uppers).zip(words.as_chunks_mut::<WORDS>().0) {
            // SAFETY: each has as many places as a register, and both types of the result are 512 bits.
            unsafe {
                let halves =
                    _mm512_cvtne2ps_pbh(_mm512_loadu_ps(upper.as_ptr()), _mm512_loadu_ps(lower.as_ptr()));
                let words = _mm512_permutexvar_epi16(order, std::mem::transmute::<__m512bh, __m512i>(halves));
                _mm512_storeu_si512(to.as_mut_ptr().cast(), words);
            }
        }
        interleaved_one_by_one(lower, Some(upper), rest);
    }
}

#[cfg(target_arch = "x86_64")]
pub(in super::super) mod avx2 {
    use super::super::super::tile::{Operands, Stored, Vector, arithmetic, tile, tiles};
    use super::super::add_pair;
    use std::arch::x86_64::*;

    /// A register of AVX2.
    #[derive(Clone, Copy)]
    pub(in super::super::super) struct Of(__m256);

    impl Vector for Of {
        const LANES: usize = 8;
        const ROWS: usize = 6;
        const INPUTS: usize = 256;

        fn panels(_: usize) -> usize {
            1
        }

        tiles! {
            target_feature(enable = "avx2,fma");
            1, 1 => 4; 2, 1 => 4; 3, 1 => 2; 4, 1 => 2; 5, 1 => 2; 6, 1 => 2;
        }

        arithmetic! {
            _mm256_set1_ps _mm256_loadu_ps _mm256_loadu_si256 __m256i _mm256_set1_epi32 _mm256_and_si256
            _mm256_slli_epi32 _mm256_castsi256_ps _mm256_storeu_ps _mm256_add_ps add_pairs
            _mm_loadu_si128 __m128i _mm256_cvtepu16_epi32
        }
    }

    /// Adds the products of the inputs of words.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn add_pairs(x: __m256, w: __m256, sum: __m256) -> __m256 {
        let mask = _mm256_castsi256_ps(_mm256_set1_epi32(0xffff_0000_u32 as i32));
        let upper = |words: __m256| _mm256_and_ps(words, mask);
        let lower = |words| _mm256_castsi256_ps(_mm256_slli_epi32::<16>(_mm256_castps_si256(words)));
        let first = _mm256_fmadd_ps(upper(x), upper(w), sum);
        let both = _mm256_fmadd_ps(lower(x), lower(w), first);
        if are_small(first, both) { one_by_one(x, w, sum) } else { both }
    }

    /// Returns whether one of the sums is the smallest normal number or below, but not 0.
    #[inline]
    #[target_feature(enable = "avx2,fma")]
    fn are_small(first: __m256, both: __m256) -> bool {
        let (one, most) = (_mm256_set1_epi32(1), _mm256_set1_epi32(f32::MIN_POSITIVE.to_bits() as i32 - 1));
        let is_small = |sums: __m256| {
            let size = _mm256_srli_epi32::<1>(_mm256_slli_epi32::<1>(_mm256_castps_si256(sums)));
            let less = _mm256_sub_epi32(size, one);
            _mm256_cmpeq_epi32(_mm256_min_epu32(less, most), less)
        };
        let any = _mm256_or_si256(is_small(first), is_small(both));
        _mm256_testz_si256(any, any) == 0
    }

    #[cold]
    #[target_feature(enable = "avx2,fma")]
    fn one_by_one(x: __m256, w: __m256, sum: __m256) -> __m256 {
        // SAFETY: a register is eight floats.
        let floats = |of: __m256| unsafe { std::mem::transmute::<__m256, [f32; 8]>(of) };
        let (x, w, mut sum) = (floats(x), floats(w), floats(sum));
        sum.iter_mut().zip(x.iter().zip(w)).for_each(|(sum, (x, w))| *sum = add_pair(*x, w, *sum));
        // SAFETY: as above.
        unsafe { std::mem::transmute(sum) }
    }
}

pub(in super::super) mod portable {
    use super::super::super::tile::{Operands, Stored, Vector, four_floats, tile};
    use super::super::add_pair;

    /// Four sums, by the definition.
    #[derive(Clone, Copy)]
    pub(in super::super::super) struct Of([f32; 4]);

    impl Vector for Of {
        four_floats! { add_pair }
    }
}
