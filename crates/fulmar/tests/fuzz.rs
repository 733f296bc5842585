//! The fuzz targets of `fuzz/`, on a stable compiler: every file of the corpora, and seeded mutations of them.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use fulmar::core::Rng;

#[path = "../../../fuzz/src/lib.rs"]
mod targets;

/// Pieces of all kinds of input, spliced in anywhere.
const WORDS: [&[u8]; 24] = [
    b"{%",
    b"%}",
    b"{{",
    b"}}",
    b"{% generation %}",
    b"{% for m in messages %}",
    b"{% endfor %}",
    b"|tojson",
    b"messages",
    b"\"role\":",
    b"\"tool_calls\":",
    b"\"content\":null",
    b"[[",
    b"{}",
    b"-1",
    b"1e999",
    b"18446744073709551615",
    b"\\ud800",
    b"\xff\xff\xff\xff",
    b"\x00\x00\x00\x00",
    b"<|im_start|>",
    b"\"merges\":[",
    b"\"added_tokens\":[",
    b"\xf0\x9f\x98\x80",
];

#[test]
fn templates_and_their_input_are_refused_or_rendered() {
    feed("template", targets::template::run, 3_000);
}

#[test]
fn completions_of_any_ids_are_data() {
    feed("renderer", targets::renderer::run, 3_000);
}

#[test]
fn completions_say_the_same_however_their_text_falls_into_tokens() {
    feed("parser", targets::parser::run, 2_000);
}

#[test]
fn tokenizer_files_are_refused_or_encode() {
    feed("tokenizer", targets::tokenizer::run, 3_000);
}

#[test]
fn messages_are_refused_or_survive() {
    feed("messages", targets::messages::run, 2_000);
}

#[test]
fn stored_ledgers_are_refused_or_consistent() {
    feed("ledger", targets::ledger::run, 5_000);
}

#[test]
fn archives_of_leaves_are_refused_or_survive() {
    feed("archive", targets::archive::run, 5_000);
}

#[test]
fn consolidated_files_are_refused_or_survive() {
    feed("consolidated", targets::consolidated::run, 5_000);
}

#[test]
fn hdf5_files_are_refused_or_survive() {
    feed("hdf5", targets::hdf5::run, 5_000);
}

#[test]
fn files_of_data_sets_are_refused_or_read() {
    feed("dataset", targets::dataset::run, 5_000);
}

#[test]
fn pickles_and_their_archives_are_refused_or_read() {
    feed("pickled", targets::pickled::run, 5_000);
}

#[test]
fn arrays_and_tables_are_refused_or_read() {
    feed("arrays", targets::arrays::run, 5_000);
}

#[test]
fn gguf_files_are_refused_or_decode() {
    feed("gguf", targets::gguf::run, 5_000);
}

#[test]
fn files_of_a_store_are_refused_or_open() {
    feed("store", targets::store::run, 5_000);
}

/// Gives `target` the corpus of `name`, then `num_mutations` mutations of it: the same ones each time.
fn feed(name: &str, target: fn(&[u8]), num_mutations: u64) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut paths: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let corpus: Vec<Vec<u8>> = paths.iter().map(|path| fs::read(path).unwrap()).collect();
    assert!(!corpus.is_empty(), "{name} has a corpus");
    corpus.iter().for_each(|data| target(data));
    let root = Rng::new(1).stream(name);
    for index in 0..num_mutations {
        let data = mutated(&corpus, &mut root.fork(index));
        let result = std::panic::catch_unwind(|| target(&data));
        assert!(result.is_ok(), "mutation {index} of {name}: {}", data.escape_ascii());
    }
}

/// One of `corpus` with up to four changes: bits, bytes, cuts, words, repetitions, pieces of another one.
fn mutated(corpus: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut data = corpus[below(rng, corpus.len())].clone();
    for _ in 0..=below(rng, 4) {
        let at = below(rng, data.len() + 1);
        let end = (at + below(rng, 16)).min(data.len());
        match below(rng, 7) {
            0 if at < data.len() => data[at] ^= 1 << below(rng, 8),
            1 if at < data.len() => data[at] = below(rng, 256) as u8,
            2 => drop(data.drain(at..end)),
            3 => data.truncate(at),
            4 => splice(&mut data, [at, at], WORDS[below(rng, WORDS.len())]),
            5 => {
                let repeated = data[at..end].repeat(1 + below(rng, 8));
                splice(&mut data, [at, end], &repeated);
            }
            _ => {
                let other = &corpus[below(rng, corpus.len())];
                let from = below(rng, other.len() + 1);
                splice(&mut data, [at, end], &other[from..(from + below(rng, 64)).min(other.len())]);
            }
        }
    }
    data
}

fn splice(data: &mut Vec<u8>, [start, end]: [usize; 2], piece: &[u8]) {
    drop(data.splice(start..end, piece.iter().copied()));
}

fn below(rng: &mut Rng, bound: usize) -> usize {
    rng.below(bound as u64).unwrap() as usize
}
