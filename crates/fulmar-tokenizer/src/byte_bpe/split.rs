//! Splits text into the pieces that byte-pair merging never crosses, with handwritten code for the known
//! regular expressions.

use super::class::{CASELESS, LETTER, LOWER, MARK, NEWLINE, NUMBER, OTHER, Table, UPPER, WHITE};

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const R50K: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const R50K_POSSESSIVE: &str =
    r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_MARKS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const CL100K_POSSESSIVE: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// The classes of the upper-case part of a word in [`O200K`], and of the lower-case part.
const O200K_UPPER: u8 = UPPER | CASELESS | MARK;
const O200K_LOWER: u8 = LOWER | CASELESS | MARK;

/// A way of splitting text. Pieces are never empty, and concatenated they are the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Splitter {
    /// The whole text is one piece.
    Whole,
    /// Splits numeric characters from all others: individually, or in runs.
    Digits { individual: bool },
    /// The pattern of GPT-2.
    Gpt2,
    /// The patterns of cl100k and what follows it: Llama 3, Qwen.
    Cl100k(Cl100k),
    /// The pattern of o200k: words end between a small letter and a capital.
    O200k,
}

/// The parameters of cl100k-like patterns.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cl100k {
    /// The classes of a word's characters.
    letters: u8,
    /// Maximum number of numeric characters in a piece.
    num_digits_max: usize,
    /// If true, white space at the end of the text is one piece, even with line ends.
    end_is_one: bool,
}

impl Splitter {
    /// Returns the splitter of a regular expression that equals a known one.
    pub fn of_pattern(pattern: &str) -> Option<Self> {
        let cl100k = |letters, num_digits_max, end_is_one| {
            Some(Self::Cl100k(Cl100k { letters, num_digits_max, end_is_one }))
        };
        match pattern {
            GPT2 | R50K | R50K_POSSESSIVE => Some(Self::Gpt2),
            QWEN2 => cl100k(LETTER, 1, false),
            QWEN_MARKS => cl100k(LETTER | MARK, 1, false),
            LLAMA3 | CL100K => cl100k(LETTER, 3, false),
            CL100K_POSSESSIVE => cl100k(LETTER, 3, true),
            O200K => Some(Self::O200k),
            _ => None,
        }
    }

    /// Returns the end of the piece of `scan` that begins at `start`.
    #[inline]
    pub fn piece_end(self, scan: Scan<'_>, start: usize) -> usize {
        match self {
            Self::Whole => scan.text.len(),
            Self::Digits { individual } => scan.digits(start, individual),
            Self::Gpt2 => scan.gpt2(start),
            Self::Cl100k(rules) => scan.cl100k(start, rules),
            Self::O200k => scan.o200k(start),
        }
    }
}

/// A text for splitters, which read nothing past its end.
#[derive(Clone, Copy)]
pub struct Scan<'a> {
    table: &'static Table,
    text: &'a str,
    bytes: &'a [u8],
}

impl<'a> Scan<'a> {
    /// Returns a view of `text`.
    pub fn new(text: &'a str) -> Self {
        Self { table: Table::shared(), text, bytes: text.as_bytes() }
    }

    /// Returns the same text, ending at `end`.
    pub fn until(self, end: usize) -> Self {
        let text = &self.text[..end];
        Self { table: self.table, text, bytes: text.as_bytes() }
    }

    /// Uses Rust's own numeric characters, as Hugging Face's crate does; their Unicode version may differ
    /// from that of `\p{N}`.
    fn digits(self, start: usize, individual: bool) -> usize {
        let mut characters = self.text[start..].char_indices();
        let is_numeric = characters.next().is_some_and(|(_, first)| first.is_numeric());
        let end = if is_numeric && individual {
            characters.next()
        } else {
            characters.find(|(_, other)| other.is_numeric() != is_numeric)
        };
        end.map_or(self.text.len(), |(offset, _)| start + offset)
    }

    fn gpt2(self, start: usize) -> usize {
        if let Some(end) = self.contraction(start, false) {
            return end;
        }
        let body = start + usize::from(self.bytes[start] == b' ');
        let (class, num_bytes) = self.table.at(self.bytes, body);
        let classes = match class {
            NUMBER => NUMBER,
            _ if class & LETTER != 0 => LETTER,
            _ if class & (OTHER | MARK) != 0 => OTHER | MARK,
            _ => return self.white(start),
        };
        self.table.run(self.bytes, body + num_bytes, classes)
    }

    fn cl100k(self, start: usize, rules: Cl100k) -> usize {
        let letters = rules.letters;
        let (first, num_bytes) = self.table.at(self.bytes, start);
        if first & letters != 0 {
            return self.table.run(self.bytes, start + num_bytes, letters);
        }
        if first == NUMBER {
            return self.number(start, rules.num_digits_max);
        }
        if let Some(end) = self.contraction(start, true) {
            return end;
        }
        let next = start + num_bytes;
        let (second, num_second) = self.table.at(self.bytes, next);
        if first != NEWLINE && second & letters != 0 {
            return self.table.run(self.bytes, next + num_second, letters);
        }
        let symbols = (OTHER | MARK) & !letters;
        if first & symbols != 0 || (self.bytes[start] == b' ' && second & symbols != 0) {
            return self.table.run(self.bytes, self.table.run(self.bytes, next, symbols), NEWLINE);
        }
        if rules.end_is_one && self.table.run(self.bytes, next, WHITE) == self.bytes.len() {
            return self.bytes.len();
        }
        self.white_lines(start)
    }

    fn o200k(self, start: usize) -> usize {
        let (first, num_bytes) = self.table.at(self.bytes, start);
        if first == NUMBER {
            return self.number(start, 3);
        }
        let next = start + num_bytes;
        let is_prefix = first & (LETTER | NEWLINE) == 0;
        let body = if is_prefix { next } else { start };
        let mixed = self.mixed_word(body).or_else(|| if is_prefix { self.mixed_word(start) } else { None });
        if let Some(end) = mixed.or_else(|| self.capitals(body)) {
            return self.contraction(end, true).unwrap_or(end);
        }
        let is_symbol = |class: u8| class & (OTHER | MARK) != 0;
        if is_symbol(first) || (self.bytes[start] == b' ' && is_symbol(self.table.at(self.bytes, next).0)) {
            let mut end = self.table.run(self.bytes, next, OTHER | MARK);
            while matches!(self.bytes.get(end), Some(b'\r' | b'\n' | b'/')) {
                end += 1;
            }
            return end;
        }
        self.white_lines(start)
    }

    /// Matches `[U]*[L]+` of [`O200K`]: capitals, then small letters; without small letters, the capitals up
    /// to the last character that may also be among small letters.
    fn mixed_word(self, start: usize) -> Option<usize> {
        let mut last_caseless = None;
        let mut end = start;
        loop {
            let (class, num_bytes) = self.table.at(self.bytes, end);
            if class == LOWER {
                return Some(self.table.run(self.bytes, end, O200K_LOWER));
            }
            if class & O200K_UPPER == 0 {
                return last_caseless;
            }
            end += num_bytes;
            if class != UPPER {
                last_caseless = Some(end);
            }
        }
    }

    /// Matches `[U]+[L]*` of [`O200K`] if [`Scan::mixed_word`] does not match, so if no small letter follows.
    fn capitals(self, start: usize) -> Option<usize> {
        let end = self.table.run(self.bytes, start, O200K_UPPER);
        (end > start).then_some(end)
    }

    fn number(self, start: usize, num_digits_max: usize) -> usize {
        let mut end = start;
        for _ in 0..num_digits_max {
            let (class, num_bytes) = self.table.at(self.bytes, end);
            if class != NUMBER {
                break;
            }
            end += num_bytes;
        }
        end
    }

    /// Returns the end of `'s`, `'t`, `'re`, `'ve`, `'m`, `'ll` or `'d` at `start`. With `any_case`, the long
    /// s is an s.
    fn contraction(self, start: usize, any_case: bool) -> Option<usize> {
        if self.bytes.get(start) != Some(&b'\'') {
            return None;
        }
        let letter = |index: usize| {
            let byte = self.bytes.get(start + index).copied().unwrap_or(0);
            if any_case { byte.to_ascii_lowercase() } else { byte }
        };
        match (letter(1), letter(2)) {
            (b's' | b't' | b'm' | b'd', _) => Some(start + 2),
            (b'r' | b'v', b'e') | (b'l', b'l') => Some(start + 3),
            (0xC5, 0xBF) if any_case => Some(start + 3),
            _ => None,
        }
    }

    /// Matches `\s*[\r
    /// ]+|\s+(?!\S)|\s+`: up to the last line end of the run, else as [`Scan::white`].
    fn white_lines(self, start: usize) -> usize {
        let end = self.table.run(self.bytes, start, WHITE);
        let last = self.bytes[start..end].iter().rposition(|byte| matches!(byte, b'\r' | b'\n'));
        last.map_or_else(|| self.white(start), |last| start + last + 1)
    }

    /// Matches `\s+(?!\S)|\s+`: the run of white space, without its last character if that leaves any and a
    /// word follows.
    fn white(self, start: usize) -> usize {
        let end = self.table.run(self.bytes, start, WHITE);
        if end == self.bytes.len() {
            return end;
        }
        let is_continuation = |byte: &u8| byte & 0xC0 == 0x80;
        let num_last =
            1 + self.bytes[start..end].iter().rev().take_while(|byte| is_continuation(byte)).count();
        if end - num_last > start { end - num_last } else { end }
    }
}
