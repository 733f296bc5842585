//! [`ByteBpe`] and [`TiktokenTokenizer`] against rows that the Python packages wrote.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::HashMap;
use std::path::PathBuf;

use fulmar_tokenizer::{ByteBpe, TiktokenTokenizer, Tokenizer};
use serde_json::Value;

fn read(name: &str) -> String {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizer/byte_bpe");
    std::fs::read_to_string(folder.join(name)).unwrap()
}

fn rows(name: &str) -> Vec<Value> {
    let text = read(name);
    text.split('\n').filter(|line| !line.is_empty()).map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(list: &Value) -> Vec<u32> {
    list.as_array().unwrap().iter().map(|number| number.as_u64().unwrap() as u32).collect()
}

#[test]
fn rows_of_tokenizers_are_equal() {
    for (name, num_rows) in [("qwen2", 51), ("smollm2", 73)] {
        let file = serde_json::from_str(&read(&format!("{name}.json"))).unwrap();
        let bpe = ByteBpe::from_tokenizer_json(&file).unwrap().unwrap();
        let rows = rows(&format!("{name}.jsonl"));
        assert_eq!(rows.len(), num_rows, "the golden file is whole");
        for row in rows {
            let text = row["text"].as_str().unwrap();
            let starts: Vec<u32> =
                text.char_indices().map(|(start, _)| start as u32).chain([text.len() as u32]).collect();
            let in_bytes = |range: &Value| [0, 1].map(|end| starts[range[end].as_u64().unwrap() as usize]);
            let expected: Vec<[u32; 2]> = row["offsets"].as_array().unwrap().iter().map(in_bytes).collect();
            let (mut ids, mut offsets) = (Vec::new(), Vec::new());
            bpe.encode_into(text, 0, &mut ids, &mut offsets);
            assert_eq!(ids, numbers(&row["ids"]), "{name}: {text:?}");
            assert_eq!(offsets, expected, "{name}: {text:?}");
        }
    }
}

#[test]
fn rows_of_tiktoken_are_equal() {
    let ranks = read("ranks.tiktoken");
    let special = [("<|im_start|>".to_owned(), 95_000), ("<|im_end|>".to_owned(), 95_001)];
    let mut tokenizers = HashMap::new();
    let rows = rows("tiktoken.jsonl");
    assert_eq!(rows.len(), 3 * 79, "the golden file is whole");
    for row in rows {
        let (pattern, text) = (row["pattern"].as_str().unwrap(), row["text"].as_str().unwrap());
        let tokenizer = tokenizers
            .entry(pattern.to_owned())
            .or_insert_with(|| TiktokenTokenizer::new(ranks.as_bytes(), pattern, special.clone()).unwrap());
        assert_eq!(tokenizer.encode(text).unwrap().ids, numbers(&row["ids"]), "{text:?}");
        let encoding = tokenizer.encode_added(text).unwrap();
        assert_eq!(encoding.ids, numbers(&row["ids_with_special"]), "{text:?}");
        assert_eq!(tokenizer.decode(&encoding.ids, false).unwrap(), text);
    }
    assert_eq!(tokenizers.len(), 3);
}
