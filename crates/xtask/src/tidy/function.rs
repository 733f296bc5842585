//! Finds the functions of a file: where each begins, where its body ends, who may call it.

use std::ops::Range;

use super::mask::is_word_byte;
use super::source::{Language, Source};

/// A function with a body, or a signature without one.
#[derive(Debug)]
pub struct Function {
    pub name: String,
    /// Where its name stands.
    pub at: usize,
    /// The text from after the name to the body or the semicolon.
    pub signature: Range<usize>,
    /// Where the body closes, if there is a body.
    pub end: Option<usize>,
    /// Rust: `pub` without a restriction, or a method of a public trait.
    pub public: bool,
}

impl Function {
    /// Lines from the one with the name to the one that closes the body; 1 without a body.
    pub fn num_lines(&self, source: &Source) -> usize {
        self.end.map_or(1, |end| source.line_of(end) + 1 - source.line_of(self.at))
    }
}

/// The named functions of `source`, in order; none for languages that are not read.
pub fn functions(source: &Source) -> Vec<Function> {
    match source.language {
        Language::Rust => rust_functions(source),
        Language::TypeScript => typescript_functions(source),
        Language::Other => Vec::new(),
    }
}

fn rust_functions(source: &Source) -> Vec<Function> {
    let traits = public_traits(source);
    let found = source.words("fn").filter_map(|keyword| {
        let at = source.next_code(keyword + 2)?;
        let name = source.name_at(at);
        if name.is_empty() {
            return None;
        }
        let stop = body_or_semicolon(source, at)?;
        let end = if source.code.as_bytes()[stop] == b'{' { source.closing(stop) } else { None };
        let public = is_public(source, keyword) || traits.iter().any(|body| body.contains(&at));
        Some(Function { name: name.to_owned(), at, signature: at + name.len()..stop, end, public })
    });
    found.collect()
}

/// The `{` or `;` that ends the signature which starts at `at`.
fn body_or_semicolon(source: &Source, at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    for (offset, byte) in source.code.bytes().enumerate().skip(at) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' | b';' if depth == 0 => return Some(offset),
            _ => {}
        }
    }
    None
}

fn public_traits(source: &Source) -> Vec<Range<usize>> {
    let found = source.words("trait").filter(|&at| is_public(source, at)).filter_map(|at| {
        let open = at + source.code[at..].find(['{', ';'])?;
        if source.code.as_bytes()[open] == b';' {
            return None;
        }
        Some(open..source.closing(open)?)
    });
    found.collect()
}

/// Whether plain `pub` stands before the keyword at `at`, with `const`, `async`, `unsafe` or `extern ""` between.
fn is_public(source: &Source, at: usize) -> bool {
    let mut before = source.code[..at].trim_end();
    loop {
        let shorter =
            ["const", "async", "unsafe", "extern", "\""].iter().find_map(|word| before.strip_suffix(word));
        match shorter {
            Some(rest) => before = rest.trim_end(),
            None => break,
        }
    }
    let Some(rest) = before.strip_suffix("pub") else { return false };
    !rest.bytes().last().is_some_and(is_word_byte)
}

fn typescript_functions(source: &Source) -> Vec<Function> {
    let bytes = source.code.as_bytes();
    let found = (0..bytes.len()).filter(|&at| bytes[at] == b'(').filter_map(|open| {
        let (name, at) = name_before(source, open)?;
        let close = source.closing(open)?;
        let stop = typescript_body(source, close)?;
        let end = source.closing(stop)?;
        Some(Function { name, at, signature: open..stop, end: Some(end), public: false })
    });
    found.collect()
}

/// Words that stand before `(`...`) {` and name no function.
const CONTROL: [&str; 7] = ["if", "for", "while", "switch", "catch", "with", "function"];

/// The name of the function whose parameters open at `open`: `name(`, `name<T>(`, `const name = (`.
fn name_before(source: &Source, open: usize) -> Option<(String, usize)> {
    let mut last = source.previous_code(open)?;
    let bytes = source.code.as_bytes();
    if bytes[last] == b'>' && bytes[last - 1] != b'=' {
        last = source.previous_code(opening_angle(source, last)?)?;
    }
    let (mut word, mut start) = word_ending(source, last);
    if word == "async" {
        last = source.previous_code(start)?;
        (word, start) = word_ending(source, last);
    }
    if bytes[last] == b'=' {
        last = source.previous_code(last)?;
        (word, start) = word_ending(source, last);
    }
    if word.is_empty() || CONTROL.contains(&word.as_str()) || word.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some((word, start))
}

fn opening_angle(source: &Source, close: usize) -> Option<usize> {
    let bytes = source.code.as_bytes();
    let mut depth = 0_usize;
    for at in (0..=close).rev() {
        match bytes[at] {
            b'>' if !matches!(bytes[at.saturating_sub(1)], b'=' | b'-') => depth += 1,
            b'<' => {
                depth -= 1;
                if depth == 0 {
                    return Some(at);
                }
            }
            b';' | b'{' => return None,
            _ => {}
        }
    }
    None
}

fn word_ending(source: &Source, last: usize) -> (String, usize) {
    let bytes = source.code.as_bytes();
    let start = bytes[..=last].iter().rposition(|&byte| !is_word_byte(byte)).map_or(0, |at| at + 1);
    (source.code[start..=last].to_owned(), start)
}

/// The `{` of the body that follows parameters closed at `close`, past a return type and an arrow.
fn typescript_body(source: &Source, close: usize) -> Option<usize> {
    let bytes = source.code.as_bytes();
    let mut at = source.next_code(close + 1)?;
    if bytes[at] == b':' {
        at = after_return_type(source, at)?;
    }
    if source.code[at..].starts_with("=>") {
        at = source.next_code(at + 2)?;
    }
    (bytes[at] == b'{').then_some(at)
}

/// The `{` or `=>` behind the type annotation whose `:` is at `colon`.
fn after_return_type(source: &Source, colon: usize) -> Option<usize> {
    let bytes = source.code.as_bytes();
    let mut wants_type = true;
    let mut at = source.next_code(colon + 1)?;
    loop {
        match bytes[at] {
            b'{' if !wants_type => return Some(at),
            b'=' if bytes.get(at + 1) == Some(&b'>') => {
                // A function type `() => T` keeps going only where its parameters were part of the type.
                return Some(at);
            }
            b'{' | b'(' | b'[' | b'<' => {
                at = source.closing(at)?;
                wants_type = false;
            }
            b'|' | b'&' => wants_type = true,
            b';' | b',' | b')' | b'}' | b'=' => return None,
            byte if is_word_byte(byte) => {
                let word = source.name_at(at);
                if !wants_type && word != "is" && word != "extends" {
                    return None;
                }
                wants_type = matches!(word, "is" | "keyof" | "readonly" | "typeof" | "asserts" | "extends");
                at += word.len() - 1;
            }
            _ => {}
        }
        at = source.next_code(at + 1)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names_and_lines(path: &str, text: &str) -> Vec<(String, usize)> {
        let source = Source::new(path, text);
        functions(&source)
            .iter()
            .map(|function| (function.name.clone(), function.num_lines(&source)))
            .collect()
    }

    #[track_caller]
    fn check(path: &str, text: &str, expected: &[(&str, usize)]) {
        let expected: Vec<_> = expected.iter().map(|(name, lines)| ((*name).to_owned(), *lines)).collect();
        assert_eq!(names_and_lines(path, text), expected);
    }

    #[test]
    fn rust_bodies_end_at_their_brace() {
        let text = "fn a<F: Fn() -> [u8; 2]>(f: F) -> X\nwhere\n    F: Copy,\n{\n    if x { y }\n}\ntrait T { fn b(&self); }\n";
        check("a.rs", text, &[("a", 6), ("b", 1)]);
    }

    #[test]
    fn a_rust_function_pointer_type_is_no_function() {
        check("a.rs", "type F = fn(u32) -> u32;\n", &[]);
    }

    #[test]
    fn only_plain_pub_and_methods_of_public_traits_are_public() {
        let text = "pub const unsafe fn a() {}\npub(crate) fn b() {}\nfn c() {}\npub trait T { fn d(&self) {} }\ntrait U { fn e(&self) {} }\n";
        let source = Source::new("a.rs", text);
        let public: Vec<_> =
            functions(&source).into_iter().filter(|function| function.public).map(|f| f.name).collect();
        assert_eq!(public, ["a", "d"]);
    }

    #[test]
    fn typescript_functions_methods_and_named_arrows_are_found() {
        check("a.ts", "export async function* a<T>(x: T) {\n  return x\n}\n", &[("a", 3)]);
        check(
            "a.ts",
            "class A {\n  #b = 1\n  async c(x: number): Promise<{ y: 1 }> {\n    if (x) { y() }\n  }\n}\n",
            &[("c", 3)],
        );
        check(
            "a.ts",
            "const d = async (x: { y: number }): { z: 1 } | null => {\n  return x\n}\n",
            &[("d", 3)],
        );
        check("a.ts", "function e(x: unknown): x is number {\n}\n", &[("e", 2)]);
    }

    #[test]
    fn typescript_calls_and_anonymous_callbacks_are_no_functions() {
        check("a.ts", "describe('x', () => {\n  it('y', () => {\n  })\n})\nif (a) { b(c) }\n", &[]);
        check("a.ts", "const x = a ? f(1) : { b: 2 }\nswitch (x) {\n}\n", &[]);
    }
}
