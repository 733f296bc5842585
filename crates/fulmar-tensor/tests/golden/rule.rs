//! Intended differences from upstream.

use serde_json::Value;

/// An intended difference, with all rows to which it applies.
pub struct Rule {
    pub reason: &'static str,
    pub applies: fn(&Value) -> bool,
}

pub const RULES: &[Rule] = &[
    Rule {
        reason: "below a tensor there is nothing, and no error",
        applies: |row| {
            row["error"]["msg"]
                .as_str()
                .is_some_and(|msg| msg.starts_with("Expected a TensorDictBase instance"))
        },
    },
    Rule {
        reason: "JSON values are leaves",
        applies: |row| row["topic"] == "keys" && row["args"].to_string().contains("leaves_only"),
    },
    Rule {
        reason: "an entry that is missing cannot be written in place, however deep its key",
        applies: |row| {
            row["topic"] == "set_" && row["args"]["key"].get("$tuple").is_some() && row.get("ok").is_some()
        },
    },
    Rule {
        reason: "features of another shape are refused and not spread",
        applies: |row| {
            row["topic"] == "setitem_index" && row["args"]["value"]["k"]["a"]["s"] == Value::Array(vec![])
        },
    },
    Rule {
        reason: "a batch without dimensions has no positions, and can be written whole",
        applies: |row| {
            rank(row) == Some(0)
                && ["setitem_index", "index", "repeat", "repeat_interleave"]
                    .iter()
                    .any(|topic| row["topic"] == *topic)
        },
    },
    Rule {
        reason: "an order names every dimension",
        applies: |row| row["topic"] == "permute" && row["args"]["args"].as_array().map(Vec::len) < rank(row),
    },
    Rule {
        reason: "a JSON value stays when a batch is reshaped",
        applies: |row| {
            row["topic"] == "program"
                && row["final"]["k"]["s"]["k"].as_object().is_some_and(serde_json::Map::is_empty)
        },
    },
    Rule {
        reason: "a batch size that is counted anew is never longer than the requested one",
        applies: |row| {
            row["topic"] == "auto_batch_size_"
                && row["args"]["n"].as_u64().map(|dims| dims as usize) < rank(row)
        },
    },
    Rule {
        reason: "a stack along a dimension that it cannot have is refused",
        applies: |row| {
            ["stack", "lazy_stack"].iter().any(|topic| row["topic"] == *topic)
                && row["args"]["dim"].as_i64().is_some_and(|dim| !(-2..2).contains(&dim))
        },
    },
    Rule {
        reason: "a batch size holds its inferred length, where upstream leaves -1 in it",
        applies: |row| row["topic"] == "unflatten" && row["ok"]["$td"].to_string().contains("-1"),
    },
    Rule {
        reason: "a state can be loaded into the dictionary that gave it",
        applies: |row| row["topic"] == "state_dict_roundtrip",
    },
    Rule {
        reason: "a number is written to tensors, in the dtype of each, and JSON values stay",
        applies: |row| row["topic"] == "setitem_index" && row["args"]["value"].is_number(),
    },
    Rule {
        reason: "dtypes are never promoted: what is chosen between must have one",
        applies: |row| row["topic"] == "where",
    },
    Rule {
        reason: "what is taken out of a dictionary is one of its own, which unlocks nothing else",
        applies: |row| row["topic"] == "locked_sub_unlock",
    },
];

/// Returns the number of batch dimensions of the input.
fn rank(row: &Value) -> Option<usize> {
    row["input"]["$td"].as_array().map(Vec::len)
}
