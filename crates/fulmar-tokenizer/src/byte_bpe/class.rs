//! The class of every character in the patterns of pre-tokenizers: Unicode 16, the version of `regex-syntax`.
//!
//! `classes.txt` holds the classes of all code points in order as runs, `[count]letter`, where a missing count is 1
//! and the letters are those of [`bit_of_letter`]. A test below compares it with `regex-syntax`, character by character.

use std::sync::LazyLock;

/// Everything that is in no other class: punctuation, symbols, controls, unassigned.
pub const OTHER: u8 = 1;
/// `\s` except carriage return and line feed.
pub const SPACE: u8 = 1 << 1;
/// Carriage return and line feed.
pub const NEWLINE: u8 = 1 << 2;
/// `\p{N}`.
pub const NUMBER: u8 = 1 << 3;
/// `\p{M}`.
pub const MARK: u8 = 1 << 4;
/// `\p{Lu}` and `\p{Lt}`.
pub const UPPER: u8 = 1 << 5;
/// `\p{Ll}`.
pub const LOWER: u8 = 1 << 6;
/// `\p{Lm}` and `\p{Lo}`.
pub const CASELESS: u8 = 1 << 7;
/// `\p{L}`.
pub const LETTER: u8 = UPPER | LOWER | CASELESS;
/// `\s`.
pub const WHITE: u8 = SPACE | NEWLINE;

const RUNS: &str = include_str!("classes.txt");
const BLOCK: usize = 256;

static TABLE: LazyLock<Table> = LazyLock::new(Table::from_runs);

/// Two-stage table: the classes of code point `c` are `blocks[index[c / 256]][c % 256]`.
pub struct Table {
    ascii: [u8; 128],
    index: Vec<u16>,
    blocks: Vec<[u8; BLOCK]>,
}

impl Table {
    /// Returns the shared table, made at its first use.
    pub fn shared() -> &'static Self {
        &TABLE
    }

    /// Returns the class bit of the character that begins at `bytes[position]`, and its length in bytes; `(0,
    /// 0)` at the end. `bytes` must be valid UTF-8 and `position` the beginning of a character.
    #[inline]
    pub fn at(&self, bytes: &[u8], position: usize) -> (u8, usize) {
        match bytes.get(position) {
            None => (0, 0),
            Some(&byte) if byte < 0x80 => (self.ascii[usize::from(byte)], 1),
            Some(_) => self.beyond_ascii(bytes, position),
        }
    }

    /// Returns the end of the longest run of characters of `classes` from `position`.
    #[inline]
    pub fn run(&self, bytes: &[u8], mut position: usize, classes: u8) -> usize {
        while let Some(&byte) = bytes.get(position) {
            let (class, num_bytes) = if byte < 0x80 {
                (self.ascii[usize::from(byte)], 1)
            } else {
                self.beyond_ascii(bytes, position)
            };
            if class & classes == 0 {
                break;
            }
            position += num_bytes;
        }
        position
    }

    #[inline]
    fn beyond_ascii(&self, bytes: &[u8], position: usize) -> (u8, usize) {
        let (code_point, num_bytes) = decode(bytes, position);
        let block = self.index.get(code_point / BLOCK).map_or(0, |&block| usize::from(block));
        (self.blocks[block][code_point % BLOCK], num_bytes)
    }

    fn from_runs() -> Self {
        let mut classes = Vec::with_capacity(0x11_0000);
        let mut count = 0;
        for letter in RUNS.bytes().filter(|byte| !byte.is_ascii_whitespace()) {
            if letter.is_ascii_digit() {
                count = 10 * count + usize::from(letter - b'0');
            } else {
                classes.resize(classes.len() + count.max(1), bit_of_letter(letter));
                count = 0;
            }
        }
        let mut table = Self { ascii: [OTHER; 128], index: Vec::new(), blocks: vec![[OTHER; BLOCK]] };
        table.ascii.copy_from_slice(&classes[..128]);
        for block in classes.chunks_exact(BLOCK) {
            let known = table.blocks.iter().position(|other| other == block);
            table.index.push(known.unwrap_or(table.blocks.len()) as u16);
            if known.is_none() {
                table.blocks.extend(<[u8; BLOCK]>::try_from(block));
            }
        }
        table
    }
}

const fn bit_of_letter(letter: u8) -> u8 {
    match letter {
        b's' => SPACE,
        b'r' => NEWLINE,
        b'n' => NUMBER,
        b'm' => MARK,
        b'u' => UPPER,
        b'l' => LOWER,
        b'a' => CASELESS,
        _ => OTHER,
    }
}

/// Returns the code point at `position` and its length in bytes. Missing bytes count as zero.
#[inline]
fn decode(bytes: &[u8], position: usize) -> (usize, usize) {
    let tail = |index: usize| usize::from(bytes.get(position + index).copied().unwrap_or(0) & 0x3F);
    let first = usize::from(bytes[position]);
    match first {
        0..0xE0 => ((first & 0x1F) << 6 | tail(1), 2),
        0xE0..0xF0 => ((first & 0x0F) << 12 | tail(1) << 6 | tail(2), 3),
        _ => ((first & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4),
    }
}

#[cfg(test)]
mod tests {
    use regex_syntax::hir::{Class, HirKind};

    use super::*;

    /// Returns every code point that matches `pattern` in `regex-syntax`.
    fn code_points(pattern: &str) -> Vec<u32> {
        let hir = regex_syntax::parse(pattern).unwrap();
        let HirKind::Class(Class::Unicode(class)) = hir.kind() else { panic!("{pattern} is a class") };
        class.iter().flat_map(|range| u32::from(range.start())..=u32::from(range.end())).collect()
    }

    #[test]
    fn every_character_has_the_class_that_the_regex_engine_gives_it() {
        let mut expected = vec![OTHER; 0x11_0000];
        let classes = [
            (r"\s", SPACE),
            (r"[\r\n]", NEWLINE),
            (r"\p{N}", NUMBER),
            (r"\p{M}", MARK),
            (r"[\p{Lu}\p{Lt}]", UPPER),
            (r"\p{Ll}", LOWER),
            (r"[\p{Lm}\p{Lo}]", CASELESS),
        ];
        for (pattern, class) in classes {
            for code_point in code_points(pattern) {
                expected[code_point as usize] = class;
            }
        }
        let mut buffer = [0; 4];
        for character in '\0'..=char::MAX {
            let bytes = character.encode_utf8(&mut buffer).as_bytes();
            let found = Table::shared().at(bytes, 0);
            assert_eq!(found, (expected[character as usize], bytes.len()), "{character:?}");
        }
    }

    #[test]
    fn a_run_stops_before_the_first_character_of_another_class() {
        let table = Table::shared();
        assert_eq!(table.run("aé猫1".as_bytes(), 0, LETTER), 6);
        assert_eq!(table.run("aé猫1".as_bytes(), 0, LETTER | NUMBER), 7);
        assert_eq!(table.run("a".as_bytes(), 1, LETTER), 1);
        assert_eq!(table.at("a".as_bytes(), 1), (0, 0));
    }
}
