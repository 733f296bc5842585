//! Chains of operations.

use fulmar_core::Result;
use fulmar_tensor::{Index, Tensor, TensorDict};
use serde_json::Value;

use crate::same_spread;
use crate::value::{dict_of, index, key, keys, shape, signed, with_each};

/// Runs a chain of operations; an operation that fails leaves the value unchanged.
pub fn checked(row: &Value) -> std::result::Result<(), String> {
    let mut dict = dict_of(&row["input"]);
    for (position, step) in row["steps"].as_array().unwrap().iter().enumerate() {
        match (stepped(step, &dict), step.get("error").is_some()) {
            (Ok(next), false) if next.batch_size() == shape(&step["batch_size"]) => dict = next,
            (Err(_), true) => {}
            (Ok(next), _) => return Err(format!("step {position}: got batch size {:?}", next.batch_size())),
            (Err(error), _) => return Err(format!("step {position}: {error}")),
        }
    }
    if same_spread(&dict, &dict_of(&row["final"])) { Ok(()) } else { Err(format!("ends as {dict:?}")) }
}

fn stepped(step: &Value, dict: &TensorDict) -> Result<TensorDict> {
    let dim = step["dim"].as_i64().unwrap_or(0) as isize;
    let twice = [dict.clone(), dict.clone()];
    match step["op"].as_str().unwrap() {
        "clone" => Ok(dict.clone()),
        "mask" => dict.at(&index(&step["mask"])),
        "index" => dict.at(&index(&step["arg"])),
        "slice" => {
            let whole = std::iter::repeat_n(Index::ALL, step["dim"].as_u64().unwrap_or(0) as usize);
            dict.at(&whole.chain(index(&step["arg"])).collect::<Vec<_>>())
        }
        "cat" => TensorDict::cat(&twice, dim),
        "stack" => TensorDict::stack(&twice, dim),
        "select" => dict.select(&keys(&step["keys"])?),
        "set" => {
            let count = dict.batch_size().iter().product::<usize>() as i64;
            let numbers = Tensor::from_vec(dict.batch_size(), (0..count).collect())?;
            let mut more = dict.clone();
            more.set(key(&step["key"])?, numbers).map(|()| more)
        }
        "apply" => dict.apply(&|tensor| with_each(tensor, |x| x * 2.0)),
        "flatk" => dict.flatten_keys("."),
        "expand" => dict.expand(&shape(&step["shape"])),
        "reshape" => dict.reshape(&signed(&step["shape"])),
        "perm" => dict.permute(&signed(&step["dims"])),
        "unsq" => dict.unsqueeze(dim),
        "split" => {
            let mut parts = dict.split(step["size"].as_u64().unwrap() as usize, dim)?;
            Ok(parts.swap_remove(step["take"].as_u64().unwrap() as usize))
        }
        "rename" => {
            let mut renamed = dict.clone();
            renamed.rename(key(&step["old"])?, key(&step["new"])?).map(|()| renamed)
        }
        other => panic!("a step of no row: {other}"),
    }
}
