//! Lazy stacks.

use fulmar_core::{Dtype, Result};
use fulmar_tensor::{Index, LazyStack, PadSide, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::value::{dict_of, shown, with_each};
use crate::{Out, agrees, listed};

pub fn stack_of(value: &Value) -> LazyStack {
    let parts = listed(&value["items"]).iter().map(dict_of).collect();
    LazyStack::new(parts, value["$lazy"].as_i64().unwrap() as isize).unwrap()
}

/// Checks the row of a stack.
pub fn checked(row: &Value) -> std::result::Result<(), String> {
    let before = stack_of(&row["input"]);
    let mut stack = before.clone();
    let topic = row["topic"].as_str().unwrap().strip_prefix("ragged_").unwrap();
    let answer = applied(topic, &mut stack);
    let want_after = row.get("input_after").map_or(before, stack_of);
    if stack != want_after {
        return Err(format!("input became {stack:?}"));
    }
    match (answer, row.get("error").is_some()) {
        (Err(_), true) => Ok(()),
        (Err(error), false) => Err(format!("must succeed: {error}")),
        (Ok(_), true) => Err(format!("must fail: {}", row["error"]["msg"])),
        (Ok(out), false) => {
            let nothing = TensorDict::new(&[]).unwrap();
            agrees(&json!({ "ok": row["ok"] }), &out, &nothing, &nothing)
        }
    }
}

fn applied(topic: &str, stack: &mut LazyStack) -> Result<Out> {
    let first = stack.parts()[0].clone();
    let twice = [stack.clone(), stack.clone()];
    let at = |index: &[Index]| stack.at(index).map(Out::from);
    match topic {
        "keys" => Ok(shown(&stack.names()).into()),
        "batch_size" | "batch_batch_size" => {
            let sizes = stack.batch_size();
            Ok(Out::Plain(sizes.iter().map(|size| size.map_or(json!(-1), |size| json!(size))).collect()))
        }
        "numel" => {
            Ok(Out::Plain(stack.batch_size().iter().map(|size| size.unwrap()).product::<usize>().into()))
        }
        "get_same" => stack.get("m").map(Out::Entry),
        "get_ragged" => stack.get("a").map(Out::Entry),
        "get_nested" => stack.ragged("a").map(|ragged| Out::Entry(ragged.into())),
        "get_list" | "batch_get" => stack.list("a").map(Out::Entries),
        "get_padded" => stack.padded("a", PadSide::Right, 0.0).map(|padded| Out::Entry(padded.into())),
        "get_padded_val" => stack.padded("a", PadSide::Right, -1.0).map(|padded| Out::Entry(padded.into())),
        "get_padded_left" => stack.padded("a", PadSide::Left, 0.0).map(|padded| Out::Entry(padded.into())),
        "index0" => at(&[0.into()]),
        "index_slice" => at(&[(1..3).into()]),
        "index_list" => at(&[Index::list(vec![2, 0])]),
        "index_mask" => at(&[Tensor::from_vec(&[3], vec![true, false, true]).unwrap().into()]),
        "index_oob" => at(&[3.into()]),
        "batch_index" => at(&[1.into()]),
        "batch_index2" => at(&[1.into(), 2.into()]),
        "unsqueeze" => at(&[Index::NewAxis]),
        "set_new" => stack.set("q", Tensor::zeros(Dtype::F32, &[3, 1])?).map(|()| Out::InPlace),
        "set_bad" => stack.set("q", Tensor::zeros(Dtype::F32, &[2, 1])?).map(|()| Out::InPlace),
        "set_item" => stack.set_part(0, &first.zeros_like()?).map(|()| Out::InPlace),
        "append" => stack.push(first).map(|()| Out::InPlace),
        "insert" => stack.insert(1, first).map(|()| Out::InPlace),
        "unbind" => Ok(Out::Many(stack.parts().to_vec())),
        "densify" => stack.to_dict().map(Out::from),
        "contiguous" | "to_tensordict" => stack.dense().map(Out::from),
        "batch_reshape" => stack.dense().and_then(|dict| dict.reshape(&[-1])).map(Out::from),
        "select" => stack.select(&["m".into()]).map(Out::Stack),
        "apply" => stack.apply(&|tensor| with_each(tensor, |x| x + 1.0)).map(Out::Stack),
        "cat_lazy" => LazyStack::cat(&twice).map(Out::Stack),
        "stack_lazy" => LazyStack::stack(&twice).map(Out::Stack),
        other => panic!("a stack of no row: {other}"),
    }
}
