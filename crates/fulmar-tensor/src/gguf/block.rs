//! Layouts of elements in a file: plain, or in blocks that share scales.

use fulmar_core::{Error, ErrorKind, Result};
use half::{bf16, f16};

/// A kind of block, named as in llama.cpp.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    F32,
    F16,
    Bf16,
    Q4_0,
    Q4_1,
    Q5_0,
    Q5_1,
    Q8_0,
    Q6K,
}

impl Block {
    pub(super) fn of(id: u32) -> Result<Self> {
        Ok(match id {
            0 => Self::F32,
            1 => Self::F16,
            2 => Self::Q4_0,
            3 => Self::Q4_1,
            6 => Self::Q5_0,
            7 => Self::Q5_1,
            8 => Self::Q8_0,
            14 => Self::Q6K,
            30 => Self::Bf16,
            _ => {
                let detail = format!(
                    "the type of a tensor must be F32 (0), F16 (1), Q4_0 (2), Q4_1 (3), Q5_0 (6), Q5_1 (7), Q8_0 (8), Q6_K (14) or BF16 (30): got {id}"
                );
                return Err(Error::new(ErrorKind::UnknownName, detail));
            }
        })
    }

    /// Returns the number of elements in a block.
    pub(super) const fn elements(self) -> usize {
        match self {
            Self::F32 | Self::F16 | Self::Bf16 => 1,
            Self::Q6K => 256,
            _ => 32,
        }
    }

    /// Returns the size of a block in bytes.
    pub(super) const fn bytes(self) -> usize {
        match self {
            Self::F32 => 4,
            Self::F16 | Self::Bf16 => 2,
            Self::Q4_0 => 18,
            Self::Q4_1 => 20,
            Self::Q5_0 => 22,
            Self::Q5_1 => 24,
            Self::Q8_0 => 34,
            Self::Q6K => 210,
        }
    }

    /// Appends the elements of `bytes`, a whole number of blocks.
    pub(super) fn decode(self, bytes: &[u8], out: &mut Vec<f32>) {
        for block in bytes.chunks_exact(self.bytes()) {
            match self {
                Self::F32 => out.push(f32::from_le_bytes([block[0], block[1], block[2], block[3]])),
                Self::F16 => out.push(half_at(block, 0)),
                Self::Bf16 => out.push(bf16::from_le_bytes([block[0], block[1]]).to_f32()),
                Self::Q4_0 => push_scaled(out, half_at(block, 0), -8, nibbles(&block[2..])),
                Self::Q4_1 => push_shifted(out, block, nibbles(&block[4..])),
                Self::Q5_0 => push_scaled(out, half_at(block, 0), -16, with_fifth(&block[2..])),
                Self::Q5_1 => push_shifted(out, block, with_fifth(&block[4..])),
                Self::Q8_0 => {
                    let scale = half_at(block, 0);
                    out.extend(block[2..].iter().map(|byte| scale * f32::from(*byte as i8)));
                }
                Self::Q6K => push_q6k(out, block),
            }
        }
    }
}

fn half_at(block: &[u8], at: usize) -> f32 {
    f16::from_le_bytes([block[at], block[at + 1]]).to_f32()
}

/// Returns the low halves of 16 bytes, then their high halves.
fn nibbles(bytes: &[u8]) -> impl Iterator<Item = u8> {
    bytes[..16].iter().map(|byte| byte & 15).chain(bytes[..16].iter().map(|byte| byte >> 4))
}

/// Adds a fifth bit to each of the [`nibbles`]; the four bytes of fifth bits come first.
fn with_fifth(bytes: &[u8]) -> impl Iterator<Item = u8> {
    let fifth = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    nibbles(&bytes[4..]).enumerate().map(move |(at, low)| low | ((fifth >> at & 1) << 4) as u8)
}

/// Appends `scale * (q + shift)`.
fn push_scaled(out: &mut Vec<f32>, scale: f32, shift: i8, values: impl Iterator<Item = u8>) {
    out.extend(values.map(|q| scale * f32::from(q as i8 + shift)));
}

/// Appends `scale * q + least`; both numbers are at the beginning of the block.
fn push_shifted(out: &mut Vec<f32>, block: &[u8], values: impl Iterator<Item = u8>) {
    let (scale, least) = (half_at(block, 0), half_at(block, 2));
    out.extend(values.map(|q| scale * f32::from(q) + least));
}

/// Decodes 256 6-bit elements: 128 bytes of low halves, 64 bytes of high pairs, 16 scales of 16 elements
/// each, then the scale of the scales.
fn push_q6k(out: &mut Vec<f32>, block: &[u8]) {
    let (low, rest) = block.split_at(128);
    let (high, rest) = rest.split_at(64);
    let scale = half_at(rest, 16);
    for half in 0..2 {
        for quarter in 0..4 {
            for at in 0..32 {
                let nibble = low[64 * half + 32 * (quarter % 2) + at] >> (4 * (quarter / 2)) & 15;
                let pair = high[32 * half + at] >> (2 * quarter) & 3;
                let scale = scale * f32::from(rest[8 * half + 2 * quarter + at / 16] as i8);
                out.push(scale * f32::from((nibble | pair << 4) as i8 - 32));
            }
        }
    }
}
