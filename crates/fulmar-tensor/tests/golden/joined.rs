//! Operations on several dictionaries.

use fulmar_core::Result;
use fulmar_tensor::{LazyStack, NonTensor, PadSequence, Stacked, TensorDict};
use serde_json::{Value, json};

use crate::value::{dict_of, option, shown};
use crate::{Answer, Out};

pub fn applied(row: &Value, input: &TensorDict) -> Answer {
    let (topic, args) = (row["topic"].as_str()?, &row["args"]);
    let dim = args["dim"].as_i64().unwrap_or(0) as isize;
    let items: Vec<_> = args["items"].as_array().map_or(&[][..], Vec::as_slice).iter().map(dict_of).collect();
    // Rows without a dimension join the first of their items with another one.
    let with = |other: usize| [items[0].clone(), items[other].clone()];
    let lazy = |parts: &[TensorDict], dim: isize| LazyStack::new(parts.to_vec(), dim);
    let twice = [input.clone(), input.clone()];
    let joined = match topic {
        "stack" => TensorDict::stack(&items, dim),
        "cat" => TensorDict::cat(&items, dim),
        "stack_keys_differ" => TensorDict::stack(&with(2), 0),
        "stack_bs_differ" => TensorDict::stack(&with(3), 0),
        "cat_keys_differ" => TensorDict::cat(&with(2), 0),
        "cat_bs_differ" => TensorDict::cat(&with(3), 0),
        "stack_empty" => TensorDict::stack(&[], 0),
        "cat_empty" => TensorDict::cat(&[], 0),
        "nontensor_stack" => TensorDict::stack(&twice, 0),
        "nontensor_cat" | "nontensorstack_cat" => TensorDict::cat(&twice, 0),
        "pad_sequence" => TensorDict::pad_sequence(
            &items,
            &PadSequence {
                dim: option(args, "pad_dim").and_then(Value::as_i64).unwrap_or(0) as isize,
                value: option(args, "padding_value").and_then(Value::as_f64).unwrap_or(0.0),
                mask: match option(args, "return_mask") {
                    Some(Value::Bool(true)) => Some("masks"),
                    name => name.and_then(Value::as_str),
                },
            },
        ),
        "lazy_stack" => return Some(lazy(&items, dim).map(Out::Stack)),
        "lazy_keys_differ" => return Some(lazy(&with(2), 0).map(Out::Stack)),
        "lazy_keys" => return Some(lazy(&with(2), 0).map(|stack| shown(&stack.names()).into())),
        "maybe_dense_keys" => return Some(lazy(&with(2), 0).and_then(LazyStack::maybe_dense).map(Out::from)),
        "maybe_dense_ok" => return Some(lazy(&with(1), 0).and_then(LazyStack::maybe_dense).map(Out::from)),
        "stack_nontensor" => return Some(values(&[json!("a"), json!("a")])),
        "stack_nontensor2" => return Some(values(&[json!("a"), json!(2)])),
        _ => return None,
    };
    Some(joined.map(Out::from))
}

/// Stacks JSON values as entries are stacked.
fn values(each: &[Value]) -> Result<Out> {
    let one = |value: &Value| {
        let mut dict = TensorDict::new(&[])?;
        dict.set("", NonTensor::shared(value.clone())).map(|()| dict)
    };
    let stacked = TensorDict::stack(&each.iter().map(one).collect::<Result<Vec<_>>>()?, 0)?;
    stacked.entry("").cloned().map(Out::Entry)
}

impl From<Stacked> for Out {
    fn from(stacked: Stacked) -> Self {
        match stacked {
            Stacked::Dict(dict) => dict.into(),
            Stacked::Lazy(stack) => Self::Stack(stack),
        }
    }
}
