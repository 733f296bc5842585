//! Tells code from comments and texts in Rust and TypeScript, byte by byte, without a parser.
//!
//! Every rule that looks for a word looks only where that word is code (or only where it is a comment), so a
//! sentence about `unsafe` is never taken for a use of it.

/// What one byte of a source file belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Everything else, the quotes of a text included.
    Code,
    /// Inside a string, a character, a template or a regular expression.
    Text,
    /// A comment that is not documentation.
    Comment,
    /// `///`, `//!`, `/** */`, `/*! */`.
    Doc,
}

/// Classes of a Rust file, one per byte.
pub fn rust(text: &str) -> Vec<Class> {
    let mut scan = Scan::new(text);
    while let Some(byte) = scan.peek(0) {
        match byte {
            b'/' if scan.peek(1) == Some(b'/') => scan.line_comment(),
            b'/' if scan.peek(1) == Some(b'*') => scan.block_comment(true),
            b'"' => scan.quoted(b'"'),
            b'r' if scan.raw_hashes().is_some() => scan.raw_string(),
            b'\'' if scan.is_char_literal() => scan.quoted(b'\''),
            _ => scan.mark(1, Class::Code),
        }
    }
    scan.class
}

/// Classes of a TypeScript or JavaScript file, one per byte.
pub fn typescript(text: &str) -> Vec<Class> {
    let mut scan = Scan::new(text);
    // One entry per open `${`: how many braces of its own are open.
    let mut holes: Vec<usize> = Vec::new();
    while let Some(byte) = scan.peek(0) {
        match (byte, holes.last_mut()) {
            (b'/', _) if scan.peek(1) == Some(b'/') => scan.line_comment(),
            (b'/', _) if scan.peek(1) == Some(b'*') => scan.block_comment(false),
            (b'/', _) if scan.may_start_regex() => scan.regex(),
            (b'"' | b'\'', _) => scan.quoted(byte),
            (b'`', _) => {
                scan.mark(1, Class::Code);
                scan.template(&mut holes);
            }
            (b'}', Some(0)) => {
                holes.pop();
                scan.mark(1, Class::Code);
                scan.template(&mut holes);
            }
            (b'{', Some(open)) => {
                *open += 1;
                scan.mark(1, Class::Code);
            }
            (b'}', Some(open)) => {
                *open -= 1;
                scan.mark(1, Class::Code);
            }
            _ => scan.mark(1, Class::Code),
        }
    }
    scan.class
}

/// A cursor over the bytes of a file; the classes so far double as its position.
struct Scan<'a> {
    bytes: &'a [u8],
    class: Vec<Class>,
}

impl<'a> Scan<'a> {
    fn new(text: &'a str) -> Self {
        Self { bytes: text.as_bytes(), class: Vec::with_capacity(text.len()) }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.class.len() + ahead).copied()
    }

    fn mark(&mut self, count: usize, class: Class) {
        let end = (self.class.len() + count).min(self.bytes.len());
        self.class.resize(end, class);
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.class.len()..]
    }

    fn line_comment(&mut self) {
        let rest = self.rest();
        let doc = (rest.starts_with(b"///") && !rest.starts_with(b"////")) || rest.starts_with(b"//!");
        let length = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
        self.mark(length, if doc { Class::Doc } else { Class::Comment });
    }

    fn block_comment(&mut self, nested: bool) {
        let rest = self.rest();
        let doc = (rest.starts_with(b"/**") && !rest.starts_with(b"/**/")) || rest.starts_with(b"/*!");
        let mut depth = 0;
        let mut at = 0;
        while at < rest.len() {
            if rest[at..].starts_with(b"/*") && (nested || depth == 0) {
                depth += 1;
                at += 2;
            } else if rest[at..].starts_with(b"*/") {
                depth -= 1;
                at += 2;
                if depth == 0 {
                    break;
                }
            } else {
                at += 1;
            }
        }
        self.mark(at, if doc { Class::Doc } else { Class::Comment });
    }

    /// A text between two `quote`s with backslash escapes; the quotes themselves stay code.
    fn quoted(&mut self, quote: u8) {
        self.mark(1, Class::Code);
        while let Some(byte) = self.peek(0) {
            if byte == quote {
                self.mark(1, Class::Code);
                return;
            }
            self.mark(if byte == b'\\' { 2 } else { 1 }, Class::Text);
        }
    }

    /// The number of `#` if a raw string starts here (`r"`, `br#"`, the cursor on the `r`).
    fn raw_hashes(&self) -> Option<usize> {
        let at = self.class.len();
        let is_word = |index: usize| self.bytes.get(index).is_some_and(|&byte| is_word_byte(byte));
        let prefixed = at > 0 && matches!(self.bytes[at - 1], b'b' | b'c') && (at < 2 || !is_word(at - 2));
        if at > 0 && is_word(at - 1) && !prefixed {
            return None;
        }
        let hashes = self.rest()[1..].iter().take_while(|&&byte| byte == b'#').count();
        (self.peek(1 + hashes) == Some(b'"')).then_some(hashes)
    }

    fn raw_string(&mut self) {
        let hashes = self.raw_hashes().unwrap_or(0);
        self.mark(hashes + 2, Class::Code);
        let close: Vec<u8> = std::iter::once(b'"').chain(std::iter::repeat_n(b'#', hashes)).collect();
        while !self.rest().is_empty() && !self.rest().starts_with(&close) {
            self.mark(1, Class::Text);
        }
        self.mark(close.len(), Class::Code);
    }

    /// Whether the `'` under the cursor opens a character and not a lifetime.
    fn is_char_literal(&self) -> bool {
        let rest = &self.rest()[1..];
        match rest.first() {
            Some(b'\\') => true,
            Some(&first) => rest.get(utf8_length(first)) == Some(&b'\''),
            None => false,
        }
    }

    /// A `/` divides after a value and opens a regular expression anywhere else.
    fn may_start_regex(&self) -> bool {
        let before = (0..self.class.len())
            .rev()
            .find(|&at| self.class[at] == Class::Code && !self.bytes[at].is_ascii_whitespace());
        let Some(last) = before else { return true };
        if is_word_byte(self.bytes[last]) {
            let start =
                self.bytes[..=last].iter().rposition(|&byte| !is_word_byte(byte)).map_or(0, |at| at + 1);
            return matches!(&self.bytes[start..=last], b"return" | b"typeof" | b"case" | b"in" | b"of");
        }
        !matches!(self.bytes[last], b')' | b']' | b'}' | b'"' | b'\'' | b'`')
    }

    fn regex(&mut self) {
        self.mark(1, Class::Code);
        let mut in_class = false;
        while let Some(byte) = self.peek(0) {
            match byte {
                b'\n' => return,
                b'/' if !in_class => return self.mark(1, Class::Code),
                b'\\' => self.mark(2, Class::Text),
                _ => {
                    in_class = if in_class { byte != b']' } else { byte == b'[' };
                    self.mark(1, Class::Text);
                }
            }
        }
    }

    /// The text of a template up to its closing quote, or up to a `${` that opens a hole.
    fn template(&mut self, holes: &mut Vec<usize>) {
        while let Some(byte) = self.peek(0) {
            match byte {
                b'`' => return self.mark(1, Class::Code),
                b'$' if self.peek(1) == Some(b'{') => {
                    holes.push(0);
                    return self.mark(2, Class::Code);
                }
                b'\\' => self.mark(2, Class::Text),
                _ => self.mark(1, Class::Text),
            }
        }
    }
}

/// Whether `byte` can be part of a name.
pub fn is_word_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$' || !byte.is_ascii()
}

fn utf8_length(first: u8) -> usize {
    match first {
        0xf0.. => 4,
        0xe0.. => 3,
        0xc0.. => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn code(text: &str, classes: &[Class]) -> String {
        let byte = |(byte, class): (u8, &Class)| if *class == Class::Code { byte as char } else { '.' };
        text.bytes().zip(classes).map(byte).collect()
    }

    #[track_caller]
    fn check_rust(text: &str, masked: &str) {
        assert_eq!(code(text, &rust(text)), masked);
    }

    #[track_caller]
    fn check_typescript(text: &str, masked: &str) {
        assert_eq!(code(text, &typescript(text)), masked);
    }

    #[test]
    fn rust_strings_and_comments_are_not_code() {
        check_rust(r#"a("b\"c"); // d"#, r#"a("...."); ...."#);
        check_rust("a/* b /* c */ d */e", "a.................e");
        check_rust(r##"r#"a"b"#.len()"##, r##"r#"..."#.len()"##);
        check_rust(r#"br"\" + raw"#, r#"br"." + raw"#);
    }

    #[test]
    fn rust_lifetimes_are_code_and_characters_are_not() {
        check_rust("fn f<'a>(x: &'a str)", "fn f<'a>(x: &'a str)");
        check_rust(r"['x', '\'', 'é', '\u{41}']", "['.', '..', '..', '......']");
        check_rust("'\"' + x", "'.' + x");
    }

    #[test]
    fn doc_comments_have_their_own_class() {
        assert!(rust("/// a").iter().all(|class| *class == Class::Doc));
        assert!(rust("//// a").iter().all(|class| *class == Class::Comment));
        assert!(typescript("/** a */").iter().all(|class| *class == Class::Doc));
        assert!(typescript("/* a */").iter().all(|class| *class == Class::Comment));
    }

    #[test]
    fn a_template_is_text_except_its_holes() {
        check_typescript("`a${b + `c${d}`}e` + f", "`.${b + `.${d}`}.` + f");
        check_typescript("`${{ a: 1 }.a}b`", "`${{ a: 1 }.a}.`");
    }

    #[test]
    fn a_slash_opens_a_regex_only_where_a_value_may_start() {
        check_typescript("a / b / c", "a / b / c");
        check_typescript("x = /a'[/]b/g", "x = /....../g");
        check_typescript("return /\"/.test(y)", "return /./.test(y)");
        check_typescript("(a + b) / 2 // c", "(a + b) / 2 ....");
    }
}
