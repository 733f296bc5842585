//! Byte-pair merging: of all mergeable neighbours, the pair with the lowest rank merges first, ties from the
//! left.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Up to this many parts a linear scan finds the next pair; longer pieces use a heap.
const SCAN_PARTS_MAX: usize = 64;

/// The rank of neighbours that never merge.
const NEVER: u32 = u32::MAX;

/// The mark of a byte without a token.
pub const NO_TOKEN: u32 = u32::MAX;

/// The result of merging two neighbours.
#[derive(Debug, Clone, Copy)]
struct Merge {
    rank: u32,
    merged: u32,
}

const NONE: Merge = Merge { rank: NEVER, merged: 0 };

/// A part of a piece: a token, and the result of merging it with the next part.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// The token.
    pub id: u32,
    /// Its length, in any unit of the caller.
    pub length: u32,
    with_next: Merge,
}

impl Part {
    /// Returns a token that has not merged yet.
    pub const fn new(id: u32, length: u32) -> Self {
        Self { id, length, with_next: NONE }
    }
}

/// The mergeable pairs of tokens: an open-addressing table from (left, right) to (rank, merged token), and
/// for pairs of single bytes, with which every piece begins, a direct table.
#[derive(Debug)]
pub struct Merges {
    slots: Vec<Slot>,
    shift: u32,
    byte_ids: Vec<u32>,
    byte_pairs: Vec<Merge>,
}

#[derive(Debug, Clone, Copy)]
struct Slot {
    left: u32,
    right: u32,
    merge: Merge,
}

impl Merges {
    /// Returns the table of `merges`, each `(left, right, rank, merged)`; the last of equal pairs counts.
    /// `byte_ids` are the tokens of the 256 bytes, [`NO_TOKEN`] for missing ones.
    pub fn new(merges: &[(u32, u32, u32, u32)], byte_ids: &[u32; 256]) -> Self {
        let num_slots = (2 * merges.len()).next_power_of_two().max(2);
        let mut table = Self {
            slots: vec![Slot { left: 0, right: 0, merge: NONE }; num_slots],
            shift: 64 - num_slots.trailing_zeros(),
            byte_ids: byte_ids.to_vec(),
            byte_pairs: Vec::new(),
        };
        for &(left, right, rank, merged) in merges {
            let slot = table.slot_of(left, right);
            table.slots[slot] = Slot { left, right, merge: Merge { rank, merged } };
        }
        let pairs = byte_ids.iter().flat_map(|&left| byte_ids.iter().map(move |&right| (left, right)));
        table.byte_pairs = pairs.map(|(left, right)| table.slots[table.slot_of(left, right)].merge).collect();
        table
    }

    /// Writes the tokens to which `bytes` merge into `parts`, with their lengths in bytes. Returns `false`,
    /// without a result, if a byte has no token. Costs O(n log n).
    pub fn apply_to_bytes(&self, bytes: &[u8], parts: &mut Vec<Part>) -> bool {
        parts.clear();
        parts.reserve(bytes.len());
        let mut has_all = true;
        let nexts = bytes.iter().skip(1).map(Some).chain(std::iter::once(None));
        parts.extend(bytes.iter().zip(nexts).map(|(&byte, next)| {
            let id = self.byte_ids[usize::from(byte)];
            has_all &= id != NO_TOKEN;
            let with_next =
                next.map_or(NONE, |&next| self.byte_pairs[usize::from(byte) << 8 | usize::from(next)]);
            Part { id, length: 1, with_next }
        }));
        if has_all {
            self.apply_to_joined(parts);
        }
        has_all
    }

    /// Returns the token of a single byte, or [`NO_TOKEN`].
    pub fn byte_id(&self, byte: u8) -> u32 {
        self.byte_ids[usize::from(byte)]
    }

    /// Merges `parts` until no neighbours can merge. Costs O(n log n).
    pub fn apply(&self, parts: &mut Vec<Part>) {
        for index in 1..parts.len() {
            self.join(parts, index - 1, index);
        }
        self.apply_to_joined(parts);
    }

    fn apply_to_joined(&self, parts: &mut Vec<Part>) {
        if parts.len() <= SCAN_PARTS_MAX { self.apply_by_scan(parts) } else { self.apply_by_heap(parts) }
    }

    fn apply_by_scan(&self, parts: &mut Vec<Part>) {
        while let Some((index, best)) = parts.iter().enumerate().min_by_key(|(_, part)| part.with_next.rank) {
            if best.with_next.rank == NEVER {
                break;
            }
            parts[index].id = best.with_next.merged;
            let absorbed = parts.remove(index + 1);
            parts[index].length += absorbed.length;
            self.join(parts, index, index + 1);
            if index > 0 {
                self.join(parts, index - 1, index);
            }
        }
    }

    /// Merges with a heap of (rank, position) over a doubly linked list. An entry is stale once its part has
    /// another rank.
    fn apply_by_heap(&self, parts: &mut Vec<Part>) {
        let end = parts.len();
        let mut next: Vec<u32> = (1..=end as u32).collect();
        let mut previous: Vec<u32> = (0..end as u32).map(|index| index.wrapping_sub(1)).collect();
        let entry = |parts: &[Part], index: usize| {
            let rank = parts[index].with_next.rank;
            (rank != NEVER).then_some(Reverse((rank, index as u32)))
        };
        let mut heap: BinaryHeap<_> = (0..end).filter_map(|index| entry(parts, index)).collect();
        while let Some(Reverse((rank, index))) = heap.pop() {
            let index = index as usize;
            if parts[index].length == 0 || parts[index].with_next.rank != rank {
                continue;
            }
            let absorbed = next[index] as usize;
            parts[index].id = parts[index].with_next.merged;
            parts[index].length += parts[absorbed].length;
            parts[absorbed].length = 0;
            let after = next[absorbed] as usize;
            next[index] = after as u32;
            if let Some(back) = previous.get_mut(after) {
                *back = index as u32;
            }
            self.join(parts, index, after);
            heap.extend(entry(parts, index));
            let before = previous[index] as usize;
            if before < end {
                self.join(parts, before, index);
                heap.extend(entry(parts, before));
            }
        }
        parts.retain(|part| part.length != 0);
    }

    /// Records in the left part the result of merging it with the right part, which may be past the end.
    #[inline]
    fn join(&self, parts: &mut [Part], left: usize, right: usize) {
        let found = parts.get(right).map(|other| self.slots[self.slot_of(parts[left].id, other.id)].merge);
        parts[left].with_next = found.unwrap_or(NONE);
    }

    /// Returns the slot of the pair, or the empty slot for it.
    #[inline]
    fn slot_of(&self, left: u32, right: u32) -> usize {
        let pair = u64::from(left) << 32 | u64::from(right);
        let mask = self.slots.len() - 1;
        let mut index = (pair.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> self.shift) as usize;
        loop {
            let slot = &self.slots[index];
            if slot.merge.rank == NEVER || (slot.left == left && slot.right == right) {
                return index;
            }
            index = (index + 1) & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns byte ids in which every byte except 0 is its own token.
    fn byte_ids() -> [u32; 256] {
        std::array::from_fn(|byte| if byte == 0 { NO_TOKEN } else { byte as u32 })
    }

    /// Merges of letters: `a a -> A`, `A A -> B`, `b a -> C`, `a A -> D`.
    fn merges() -> Merges {
        let id = u32::from;
        let merges = [
            (id(b'a'), id(b'a'), 0, id(b'A')),
            (id(b'A'), id(b'A'), 1, id(b'B')),
            (id(b'b'), id(b'a'), 2, id(b'C')),
            (id(b'a'), id(b'A'), 3, id(b'D')),
        ];
        Merges::new(&merges, &byte_ids())
    }

    /// Merges by definition: scans all neighbours each time.
    fn naive(merges: &Merges, text: &[u8]) -> Vec<u32> {
        let mut ids: Vec<u32> = text.iter().map(|&byte| u32::from(byte)).collect();
        let rank = |pair: &[u32]| merges.slots[merges.slot_of(pair[0], pair[1])].merge.rank;
        while let Some(index) = (1..ids.len()).min_by_key(|&index| rank(&ids[index - 1..=index])) {
            let Slot { merge, .. } = merges.slots[merges.slot_of(ids[index - 1], ids[index])];
            if merge.rank == NEVER {
                break;
            }
            ids.splice(index - 1..=index, [merge.merged]);
        }
        ids
    }

    fn check(text: &[u8], apply: impl Fn(&Merges, &mut Vec<Part>)) {
        let merges = merges();
        let mut parts: Vec<Part> = text.iter().map(|&byte| Part::new(u32::from(byte), 1)).collect();
        for index in 1..parts.len() {
            merges.join(&mut parts, index - 1, index);
        }
        apply(&merges, &mut parts);
        assert_eq!(parts.iter().map(|part| part.id).collect::<Vec<_>>(), naive(&merges, text));
        assert_eq!(parts.iter().map(|part| part.length as usize).sum::<usize>(), text.len());
    }

    #[test]
    fn both_ways_of_merging_agree_with_the_definition() {
        let mut word = 1u32;
        for length in 0..60 {
            let text: Vec<u8> = (0..length)
                .map(|_| {
                    word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    b"aaaab"[(word >> 16) as usize % 5]
                })
                .collect();
            check(&text, Merges::apply_by_scan);
            check(&text, Merges::apply_by_heap);
            check(&text, |merges, parts| assert!(merges.apply_to_bytes(&text, parts)));
        }
    }

    #[test]
    fn bytes_without_a_token_are_told() {
        assert!(!merges().apply_to_bytes(b"a\0a", &mut Vec::new()));
    }

    #[test]
    fn the_last_of_equal_pairs_counts() {
        let merges = Merges::new(&[(1, 2, 0, 3), (1, 2, 1, 4)], &byte_ids());
        let mut parts = vec![Part::new(1, 1), Part::new(2, 1)];
        merges.apply(&mut parts);
        assert_eq!(parts.iter().map(|part| part.id).collect::<Vec<_>>(), [4]);
    }

    #[test]
    fn an_empty_table_merges_nothing() {
        let mut parts = vec![Part::new(1, 1), Part::new(1, 1)];
        Merges::new(&[], &byte_ids()).apply(&mut parts);
        assert_eq!(parts.len(), 2);
    }
}
