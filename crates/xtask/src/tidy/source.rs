//! One file of the tree with its code, its comments and its tests told apart.

use std::ops::Range;

use super::mask::{self, Class, is_word_byte};

/// The languages whose code the rules can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Language {
    Rust,
    /// TypeScript and JavaScript.
    TypeScript,
    Other,
}

/// A text file: its path from the root with `/`, its text, and what each byte of it is.
#[derive(Debug)]
pub struct Source {
    pub path: String,
    pub text: String,
    /// The text with everything but code blanked out: the same length in bytes, all ASCII, the same lines.
    pub code: String,
    pub class: Vec<Class>,
    pub language: Language,
    line_starts: Vec<usize>,
    test_regions: Vec<Range<usize>>,
}

impl Source {
    /// Reads `text` as the language that the end of `path` names.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> Self {
        let (path, text) = (path.into(), text.into());
        let language = language_of(&path);
        let class = match language {
            Language::Rust => mask::rust(&text),
            Language::TypeScript => mask::typescript(&text),
            Language::Other => vec![Class::Code; text.len()],
        };
        let code = blank(&text, &class);
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        let mut source = Self { path, text, code, class, language, line_starts, test_regions: Vec::new() };
        source.test_regions = source.find_tests();
        source
    }

    /// Number of lines, a last one without a line end included.
    pub fn num_lines(&self) -> usize {
        self.text.lines().count()
    }

    /// The line that holds the byte `at`, counted from 1.
    pub fn line_of(&self, at: usize) -> usize {
        self.line_starts.partition_point(|&start| start <= at)
    }

    /// Where the line that holds the byte `at` starts.
    pub fn line_start(&self, at: usize) -> usize {
        self.line_starts[self.line_of(at) - 1]
    }

    /// Whether the byte `at` stands in a test module or a test file.
    pub fn is_test(&self, at: usize) -> bool {
        self.test_regions.iter().any(|region| region.contains(&at))
    }

    /// The parts of the text that are tests.
    pub fn tests(&self) -> impl Iterator<Item = &str> {
        self.test_regions.iter().map(|region| &self.text[region.clone()])
    }

    /// Takes the whole file as tests; for a file that another one declares as `#[cfg(test)] mod name;`.
    pub fn mark_as_test(&mut self) {
        self.test_regions = std::iter::once(0..self.text.len()).collect();
    }

    /// Where the word `word` stands as code, in order.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = usize> + 'a {
        let bytes = self.code.as_bytes();
        self.code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
            let free_before = at == 0 || !is_word_byte(bytes[at - 1]);
            free_before && bytes.get(at + word.len()).is_none_or(|&byte| !is_word_byte(byte))
        })
    }

    /// The first byte of code at or after `at` that is not white space.
    pub fn next_code(&self, at: usize) -> Option<usize> {
        let skipped = self.code.as_bytes().get(at..)?.iter().position(|byte| !byte.is_ascii_whitespace())?;
        Some(at + skipped)
    }

    /// The last byte of code before `at` that is not white space.
    pub fn previous_code(&self, at: usize) -> Option<usize> {
        self.code.as_bytes()[..at].iter().rposition(|byte| !byte.is_ascii_whitespace())
    }

    /// The name that starts at `at`, empty if none does.
    pub fn name_at(&self, at: usize) -> &str {
        let rest = &self.code[at..];
        &rest[..rest.bytes().position(|byte| !is_word_byte(byte)).unwrap_or(rest.len())]
    }

    /// Where the bracket that `open` (the position of `(`, `[`, `{` or `<`) opens is closed.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let bytes = self.code.as_bytes();
        let close = match bytes[open] {
            b'(' => b')',
            b'[' => b']',
            b'{' => b'}',
            _ => b'>',
        };
        let mut depth = 0_usize;
        for (at, &byte) in bytes.iter().enumerate().skip(open) {
            // `->` and `=>` close no angle bracket.
            let arrow = byte == b'>' && at > 0 && matches!(bytes[at - 1], b'-' | b'=');
            if byte == bytes[open] {
                depth += 1;
            } else if byte == close && !arrow {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
        }
        None
    }

    /// The text between the quote at `open` and its partner.
    pub fn quoted_at(&self, open: usize) -> &str {
        let length = self.class[open + 1..].iter().take_while(|class| **class == Class::Text).count();
        &self.text[open + 1..open + 1 + length]
    }

    /// The names of the modules that are declared for tests only and live in their own file.
    pub fn test_modules(&self) -> Vec<String> {
        let declared = self.test_attributes().filter_map(|item| {
            let name = self.code[item..].strip_prefix("mod ")?;
            let name = &name[..name.bytes().position(|byte| !is_word_byte(byte))?];
            self.code[item + 4 + name.len()..].trim_start().starts_with(';').then(|| name.to_owned())
        });
        declared.collect()
    }

    fn find_tests(&self) -> Vec<Range<usize>> {
        if is_test_path(&self.path) {
            return std::iter::once(0..self.text.len()).collect();
        }
        let regions = self.test_attributes().filter_map(|item| {
            let stop = item + self.code[item..].find(['{', ';'])?;
            (self.code.as_bytes()[stop] == b'{').then(|| self.closing(stop).map(|end| item..end + 1))?
        });
        regions.collect()
    }

    /// Where the items stand that carry `#[cfg(test)]` or the like.
    fn test_attributes(&self) -> impl Iterator<Item = usize> + '_ {
        let is_rust = self.language == Language::Rust;
        self.code.match_indices("#[cfg(").filter(move |_| is_rust).filter_map(|(at, _)| {
            let mut end = self.closing(at + 1)?;
            let condition = &self.code[at..end];
            if !condition.contains("test") || condition.contains("not(test") {
                return None;
            }
            let mut item = self.next_code(end + 1)?;
            while self.code.as_bytes()[item] == b'#' {
                end = self.closing(item + 1)?;
                item = self.next_code(end + 1)?;
            }
            Some(item)
        })
    }
}

/// Whether `path` holds nothing but tests or benches.
pub fn is_test_path(path: &str) -> bool {
    let folder = |name: &str| path.starts_with(&format!("{name}/")) || path.contains(&format!("/{name}/"));
    folder("tests")
        || folder("test")
        || folder("benches")
        || path.contains(".test.")
        || path.contains(".test-d.")
}

fn language_of(path: &str) -> Language {
    match path.rsplit_once('.').map(|(_, end)| end) {
        Some("rs") => Language::Rust,
        Some("ts" | "mts" | "js" | "mjs") => Language::TypeScript,
        _ => Language::Other,
    }
}

fn blank(text: &str, class: &[Class]) -> String {
    let byte = |(byte, class): (u8, &Class)| match byte {
        b'\n' => '\n',
        _ if *class != Class::Code => ' ',
        _ if byte.is_ascii() => byte as char,
        _ => '?',
    };
    text.bytes().zip(class).map(byte).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_module_is_a_test_and_the_code_above_it_is_not() {
        let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {}\n}\nfn c() {}\n";
        let source = Source::new("crates/x/src/lib.rs", text);
        assert!(!source.is_test(0));
        assert!(source.is_test(text.find("fn b").unwrap()));
        assert!(!source.is_test(text.find("fn c").unwrap()));
    }

    #[test]
    fn a_test_module_in_its_own_file_is_named() {
        let source =
            Source::new("crates/x/src/lib.rs", "#[cfg(test)]\n#[path = \"y.rs\"]\nmod checks;\nmod real;\n");
        assert_eq!(source.test_modules(), ["checks"]);
        assert_eq!(source.tests().count(), 0);
    }

    #[test]
    fn code_that_is_only_there_without_tests_is_no_test() {
        let source = Source::new("crates/x/src/lib.rs", "#[cfg(not(test))]\nmod real { }\n");
        assert_eq!(source.tests().count(), 0);
    }

    #[test]
    fn words_in_comments_and_texts_are_not_found() {
        let source = Source::new("a.rs", "unsafe_code(); // unsafe\nlet x = \"unsafe\"; unsafe {}\n");
        assert_eq!(source.words("unsafe").collect::<Vec<_>>(), [source.text.rfind("unsafe").unwrap()]);
    }

    #[test]
    fn lines_are_counted_from_one() {
        let source = Source::new("a.rs", "a\nb\nc");
        assert_eq!([0, 1, 2, 4].map(|at| source.line_of(at)), [1, 1, 2, 3]);
        assert_eq!(source.num_lines(), 3);
    }

    #[test]
    fn arrows_close_no_angle_bracket() {
        let source = Source::new("a.ts", "<T extends () => void>(x)");
        assert_eq!(source.closing(0), Some(21));
    }
}
