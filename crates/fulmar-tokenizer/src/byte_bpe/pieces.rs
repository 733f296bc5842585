//! Look-up of whole pieces: most pieces of real text are one token, found by one look-up.

/// Length of the longest piece whose bytes are its key.
const KEY_BYTES_MAX: usize = 15;

const NO_TOKEN: u32 = u32::MAX;

/// A table from the bytes of tokens to their ids. Pieces of up to 15 bytes are keys themselves; longer ones
/// are compared with the caller's bytes.
#[derive(Debug)]
pub struct Pieces {
    short: Vec<(u64, u64, u32)>,
    long: Vec<(u64, u32)>,
    short_shift: u32,
    long_shift: u32,
}

impl Pieces {
    /// Returns the table of `tokens` with their ids; their bytes must be distinct.
    pub fn new<'a>(tokens: impl Iterator<Item = (&'a [u8], u32)> + Clone) -> Self {
        let num_long = tokens.clone().filter(|(bytes, _)| bytes.len() > KEY_BYTES_MAX).count();
        let num_short = tokens.clone().count() - num_long;
        let num_slots = |num_tokens: usize| (2 * num_tokens).next_power_of_two().max(2);
        let mut table = Self {
            short: vec![(0, 0, NO_TOKEN); num_slots(num_short)],
            long: vec![(0, NO_TOKEN); num_slots(num_long)],
            short_shift: 64 - num_slots(num_short).trailing_zeros(),
            long_shift: 64 - num_slots(num_long).trailing_zeros(),
        };
        for (bytes, id) in tokens {
            if bytes.len() <= KEY_BYTES_MAX {
                let (low, high) = key_of(bytes, 0, bytes.len());
                let slot = table.short_slot(low, high);
                table.short[slot] = (low, high, id);
            } else {
                let hash = hash_of(bytes);
                let mut slot = (hash >> table.long_shift) as usize;
                while table.long[slot].1 != NO_TOKEN {
                    slot = (slot + 1) & (table.long.len() - 1);
                }
                table.long[slot] = (hash, id);
            }
        }
        table
    }

    /// Returns the id of the token whose bytes are `text[start..end]`; `token_bytes` gives the bytes of an id.
    #[inline]
    pub fn find<'a>(
        &self,
        text: &[u8],
        start: usize,
        end: usize,
        token_bytes: impl Fn(u32) -> &'a [u8],
    ) -> Option<u32> {
        if end - start <= KEY_BYTES_MAX {
            let (low, high) = key_of(text, start, end);
            let id = self.short[self.short_slot(low, high)].2;
            return (id != NO_TOKEN).then_some(id);
        }
        let piece = &text[start..end];
        let hash = hash_of(piece);
        let mut slot = (hash >> self.long_shift) as usize;
        loop {
            let (other, id) = self.long[slot];
            if id == NO_TOKEN {
                return None;
            }
            if other == hash && token_bytes(id) == piece {
                return Some(id);
            }
            slot = (slot + 1) & (self.long.len() - 1);
        }
    }

    #[inline]
    fn short_slot(&self, low: u64, high: u64) -> usize {
        let mixed = low ^ high.wrapping_mul(0xD6E8_FEB8_6659_FD93).rotate_left(29);
        let mut index = (mixed.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.short_shift) as usize;
        loop {
            let slot = &self.short[index];
            if slot.2 == NO_TOKEN || (slot.0 == low && slot.1 == high) {
                return index;
            }
            index = (index + 1) & (self.short.len() - 1);
        }
    }
}

/// Returns up to 15 bytes as two words, with their number in the topmost byte.
#[inline]
fn key_of(text: &[u8], start: usize, end: usize) -> (u64, u64) {
    let num_bytes = end - start;
    let mut bytes = [0; 16];
    match text.get(start..start + 16) {
        Some(whole) => bytes.copy_from_slice(whole),
        None => bytes[..num_bytes].copy_from_slice(&text[start..end]),
    }
    let kept = u128::from_le_bytes(bytes) & ((1 << (8 * num_bytes)) - 1);
    (kept as u64, (kept >> 64) as u64 | (num_bytes as u64) << 56)
}

/// Returns a hash of more than 15 bytes.
fn hash_of(bytes: &[u8]) -> u64 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut last = [0; 8];
    last[..rest.len()].copy_from_slice(rest);
    let words = words.iter().chain(std::iter::once(&last)).map(|word| u64::from_le_bytes(*word));
    words.fold(bytes.len() as u64, |hash, word| {
        (hash.rotate_left(23) ^ word).wrapping_mul(0x9E37_79B9_7F4A_7C15)
    })
}
