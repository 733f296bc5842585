//! Completions as text and markers: the result does not depend on how the text is split into tokens.

use std::sync::{Arc, LazyLock};

use fulmar::chat::{ParseOptions, Parsed, Renderer};
use fulmar::core::options_from_json;
use fulmar::tokenizer::{HfTokenizer, Tokenizer, train_byte_bpe};

use super::renderer::{MARKERS, TOOLS, families_over};

/// Longer completions find no more than shorter ones.
const BYTES_MAX: usize = 1_024;

/// Markers that families can do without. In the second tokenizer they are text.
const OPTIONAL: [&str; 8] = [
    "<arg_key>",
    "</arg_key>",
    "<arg_value>",
    "</arg_value>",
    "<tool_response>",
    "</tool_response>",
    "<|constrain|>",
    "<\u{ff5c}tool\u{2581}sep\u{ff5c}>",
];

/// A tokenizer with merges, and the families over it.
struct Reader {
    tokenizer: Arc<dyn Tokenizer>,
    families: Vec<Box<dyn Renderer>>,
}

fn readers() -> &'static [Reader] {
    static READERS: LazyLock<Vec<Reader>> = LazyLock::new(|| {
        let text = "<tool_call>\n{\"name\": \"add\", \"arguments\": {\"x\": 1}}\n</tool_call> <function=add> <parameter=x> \
            <invoke name=\"add\"></invoke> </parameter> functions.add:0 <arg_key>x</arg_key> assistant to=functions.add";
        let read = |left_out: &[&str]| {
            let markers: Vec<&str> = MARKERS.split(' ').filter(|marker| !left_out.contains(marker)).collect();
            let file = train_byte_bpe(&[&text.repeat(4)], 480, &markers).ok()?;
            let tokenizer: Arc<dyn Tokenizer> = Arc::new(HfTokenizer::from_json(&file).ok()?);
            Some(Reader { families: families_over(&tokenizer), tokenizer })
        };
        let readers: Vec<Reader> = [&[][..], &OPTIONAL].into_iter().filter_map(read).collect();
        assert_eq!(readers.len(), 2, "both tokenizers are there");
        readers
    });
    &READERS
}

/// The first byte chooses the family, the second the places where text is cut; the rest is ASCII in which a byte above 127
/// means a marker.
pub fn run(data: &[u8]) {
    let [family, seed, rest @ ..] = data else { return };
    let rest = &rest[..rest.len().min(BYTES_MAX)];
    let markers: Vec<&str> = MARKERS.split(' ').collect();
    let mut text = String::new();
    for &byte in rest {
        match byte.checked_sub(128) {
            Some(index) => text += markers[usize::from(index) % markers.len()],
            None => text.push(char::from(byte)),
        }
    }
    for Reader { tokenizer, families } in readers() {
        let renderer = families[usize::from(*family) % families.len()].as_ref();
        let Ok(whole) = tokenizer.encode_added(&text) else { continue };
        let cut = cut_ids(&**tokenizer, &whole.ids, *seed);
        let tools = options_from_json("tools", TOOLS).unwrap_or_default();
        for options in [ParseOptions::default(), ParseOptions { tools, ..ParseOptions::default() }] {
            let [a, b] = [&whole.ids, &cut].map(|ids| {
                let parsed = renderer.parse(ids, &options);
                parsed.unwrap_or_else(|error| unreachable!("broken completions are data: {error}"))
            });
            check_size(&a, &text, whole.ids.len());
            assert_eq!(without_places(a), without_places(b), "tokens parse like their text: {text:?}");
        }
    }
}

/// The ids of the same text, with some text ids split into smaller ones.
fn cut_ids(tokenizer: &dyn Tokenizer, ids: &[u32], seed: u8) -> Vec<u32> {
    let mut cut = Vec::new();
    for (index, &id) in ids.iter().enumerate() {
        let name = tokenizer.decode(&[id], false).unwrap_or_default();
        let at = 1 + (index + usize::from(seed)) % 3;
        let is_text = tokenizer.encode(&name).is_ok_and(|encoding| encoding.ids == [id]);
        match name.split_at_checked(at) {
            Some(halves) if is_text && !halves.1.is_empty() => {
                for half in <[&str; 2]>::from(halves) {
                    cut.extend(tokenizer.encode(half).map(|encoding| encoding.ids).unwrap_or_default());
                }
            }
            _ => cut.push(id),
        }
    }
    cut
}

fn check_size(parsed: &Parsed, text: &str, num_ids: usize) {
    let raw: usize = parsed.tool_calls.iter().map(|call| call.raw.len()).sum();
    let reasoning = parsed.reasoning_content.as_deref().map_or(0, str::len);
    assert!(parsed.tool_calls.len() <= num_ids, "no more calls than tokens");
    assert!(parsed.content.len() + reasoning + raw <= 2 * text.len(), "no more text than there is");
}

/// Returns the parsed message without its positions.
fn without_places(mut parsed: Parsed) -> Parsed {
    parsed.tool_calls.iter_mut().for_each(|call| call.token_span = [0, 0]);
    parsed
}
