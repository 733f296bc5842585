//! Operations on the batch dimensions.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Index, Tensor, TensorDict};
use serde_json::Value;

use crate::value::{dict_of, index, shape, signed, tensor};
use crate::{Answer, Out};

pub fn applied(row: &Value, input: &mut TensorDict) -> Answer {
    let (topic, args) = (row["topic"].as_str()?, &row["args"]);
    if let Some(parts) = parted(topic, args, input) {
        return Some(parts.map(Out::Many));
    }
    match topic {
        "index" if args["index"].is_string() => {
            Some(input.entry(args["index"].as_str()?).cloned().map(Out::Entry))
        }
        "setitem_index" => {
            let at = index(&args["index"]);
            let done = match args["value"].as_f64() {
                Some(number) => input.fill_at(&at, number),
                None => input.set_at(&at, &dict_of(&args["value"])),
            };
            Some(done.map(|()| Out::InPlace))
        }
        _ => moved(topic, args, input).map(|moved| moved.map(Out::from)),
    }
}

fn moved(topic: &str, args: &Value, input: &TensorDict) -> Option<Result<TensorDict>> {
    let list = args["args"].as_array().map_or(&[][..], Vec::as_slice);
    let at = |position: usize| list.get(position).and_then(Value::as_i64).map(|number| number as isize);
    let all = || signed(&args["args"]);
    let mask = || tensor(&args["mask"]);
    Some(match topic {
        "index" => input.at(&index(&args["index"])),
        "reshape" => input.reshape(&all()),
        "view" => input.view(&all()),
        "flatten" => input.flatten(at(0).unwrap_or(0), at(1).unwrap_or(-1)),
        "unflatten" => input.unflatten(at(0)?, &signed(&list[1])),
        "permute" => input.permute(&all()),
        "transpose" => input.transpose(at(0)?, at(1)?),
        "unsqueeze" => input.unsqueeze(at(0)?),
        "squeeze" => at(0).map_or_else(|| input.squeeze_all(), |dim| input.squeeze(dim)),
        "expand" => all()
            .into_iter()
            .map(|dim| usize::try_from(dim).map_err(|_| unsaid("a length")))
            .collect::<Result<Vec<_>>>()
            .and_then(|sizes| input.expand(&sizes)),
        "repeat" => input.repeat(&shape(&args["args"])),
        "repeat_interleave" => {
            input.repeat_interleave(list[0].as_u64()? as usize, args["dim"].as_i64()? as isize)
        }
        "roll" => input.roll(at(0)?, at(1)?),
        "flip" => input.flip(at(0)?),
        "unsqueeze_squeeze" => input.unsqueeze(0).and_then(|dict| dict.squeeze(0)),
        "gather" => input.gather(args["dim"].as_i64()? as isize, &tensor(&args["index"])),
        "masked_select" => input.masked_select(&mask()),
        "pad" => {
            let sizes = shape(&args["pad_size"]);
            let pairs: Vec<_> = sizes.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            if sizes.len() % 2 == 1 {
                Err(unsaid("a pair"))
            } else {
                input.pad(&pairs, args["value"].as_f64()?)
            }
        }
        "nontensor_reshape" | "nontensorstack_unsqueeze" => input.reshape(&[3, 1]),
        "nontensor_expand" => input.expand(&[2, 3]),
        "nontensor_gather_idx" => input.at(&[Index::list(vec![2, 0])]),
        "nontensorstack_slice" => input.at(&[(1..3).into()]),
        "nontensorstack_mask" => {
            input.masked_select(&Tensor::from_vec(&[3], vec![true, false, true]).unwrap())
        }
        _ => return None,
    })
}

fn parted(topic: &str, args: &Value, input: &TensorDict) -> Option<Result<Vec<TensorDict>>> {
    let list = args["args"].as_array().map_or(&[][..], Vec::as_slice);
    let dim = list.get(1).and_then(Value::as_i64).unwrap_or(0) as isize;
    Some(match topic {
        "split" if list[0].is_array() => input.split_sizes(&shape(&list[0]), dim),
        "split" => input.split(list[0].as_u64()? as usize, dim),
        "chunk" => input.chunk(list[0].as_u64()? as usize, dim),
        "unbind" => input.unbind(list[0].as_i64()? as isize),
        _ => return None,
    })
}

/// Makes the error for arguments whose Rust types already exclude the call.
fn unsaid(what: &str) -> Error {
    Error::new(ErrorKind::Malformed, format!("{what} that cannot be written down"))
}
