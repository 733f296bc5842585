//! The special tokens that a file's post-processor adds around a text.

use fulmar_core::{Error, ErrorKind};
use serde_json::Value;

use crate::Result;

/// Returns the ids before and after a text, below `vocab_size`. Empty if the file's template for one text
/// does not contain the text exactly once.
/// text does not hold that text once.
pub fn surroundings_of(processor: &Value, vocab_size: usize) -> Result<[Vec<u32>; 2]> {
    let [before, after] = match processor["type"].as_str() {
        Some("TemplateProcessing") => of_template(processor),
        Some("BertProcessing" | "RobertaProcessing") => {
            [&processor["cls"][1], &processor["sep"][1]].map(ids_of)
        }
        Some("Sequence") => return of_sequence(processor, vocab_size),
        _ => Default::default(),
    };
    if let Some(id) = before.iter().chain(&after).find(|&&id| id as usize >= vocab_size) {
        let detail = format!("post_processor must name ids below the vocabulary size {vocab_size}: got {id}");
        return Err(Error::new(ErrorKind::Corrupt, detail));
    }
    Ok([before, after])
}

fn of_template(processor: &Value) -> [Vec<u32>; 2] {
    let pieces = processor["single"].as_array().map_or(&[][..], Vec::as_slice);
    let is_text = |piece: &&Value| piece.get("Sequence").is_some();
    if pieces.iter().filter(is_text).count() != 1 {
        return Default::default();
    }
    let ids = |piece: &Value| {
        let name = piece["SpecialToken"]["id"].as_str().unwrap_or_default();
        processor["special_tokens"][name]["ids"]
            .as_array()
            .into_iter()
            .flatten()
            .flat_map(ids_of)
            .collect::<Vec<_>>()
    };
    let mut halves = pieces.split(|piece| is_text(&piece)).map(|half| half.iter().flat_map(ids).collect());
    [halves.next().unwrap_or_default(), halves.next().unwrap_or_default()]
}

/// Returns the surroundings of a sequence, in which each processor continues with the result of the one
/// before.
fn of_sequence(processor: &Value, vocab_size: usize) -> Result<[Vec<u32>; 2]> {
    let [mut before, mut after] = <[Vec<u32>; 2]>::default();
    for inner in processor["processors"].as_array().into_iter().flatten() {
        // No file has nested sequences, so one level is read.
        if inner["type"] != "Sequence" {
            let [outer, behind] = surroundings_of(inner, vocab_size)?;
            before.splice(0..0, outer);
            after.extend(behind);
        }
    }
    Ok([before, after])
}

fn ids_of(id: &Value) -> Vec<u32> {
    id.as_u64().and_then(|id| u32::try_from(id).ok()).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NONE: [Vec<u32>; 2] = [Vec::new(), Vec::new()];

    fn read(processor: &Value) -> [Vec<u32>; 2] {
        surroundings_of(processor, 10).unwrap()
    }

    #[test]
    fn templates_name_tokens_before_and_behind_the_text() {
        let template = |single: &Value| {
            json!({
                "type": "TemplateProcessing",
                "single": single,
                "pair": [],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1, 2], "tokens": ["<s>", "x"]}},
            })
        };
        let [token, text] =
            [json!({"SpecialToken": {"id": "<s>", "type_id": 0}}), json!({"Sequence": {"id": "A"}})];
        assert_eq!(read(&template(&json!([token, text]))), [vec![1, 2], vec![]]);
        assert_eq!(read(&template(&json!([text, token, token]))), [vec![], vec![1, 2, 1, 2]]);
        assert_eq!(read(&template(&json!([text]))), NONE);
        assert_eq!(read(&template(&json!([token, text, text]))), NONE, "not one text");
        assert_eq!(read(&template(&json!(7))), NONE);
    }

    #[test]
    fn processors_in_a_sequence_go_around_each_other() {
        let bert = json!({"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]});
        let roberta = json!({"type": "RobertaProcessing", "sep": ["</s>", 5], "cls": ["<s>", 4]});
        let bytes = json!({"type": "ByteLevel", "trim_offsets": true});
        assert_eq!(read(&bert), [vec![2], vec![3]]);
        let sequence = json!({"type": "Sequence", "processors": [bytes, bert, roberta]});
        assert_eq!(read(&sequence), [vec![4, 2], vec![3, 5]]);
        assert_eq!(read(&Value::Null), NONE);
        assert_eq!(read(&bytes), NONE);
    }

    #[test]
    fn ids_that_do_not_exist_are_refused() {
        let processor = |id: u64| json!({"type": "BertProcessing", "sep": ["a", id], "cls": ["b", 0]});
        assert_eq!(read(&processor(9)), [vec![0], vec![9]]);
        assert_eq!(surroundings_of(&processor(10), 10).unwrap_err().kind(), ErrorKind::Corrupt);
    }
}
