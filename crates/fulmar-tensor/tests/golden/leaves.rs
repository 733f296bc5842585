//! Operations on every leaf, names of dimensions, batch sizes and counts.

use fulmar_core::{Dtype, Result};
use fulmar_tensor::{ApplyOptions, Key, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::value::{tensor, with_each};
use crate::{Answer, Out};

pub fn applied(row: &Value, input: &mut TensorDict) -> Answer {
    let topic = row["topic"].as_str()?;
    let note = row["note"].as_str().unwrap_or("");
    mapped(topic, &row["args"], input)
        .or_else(|| named(topic, note, input))
        .or_else(|| sized(row, topic, input))
}

fn mapped(topic: &str, args: &Value, input: &mut TensorDict) -> Answer {
    type To<'a> = dyn Fn(&Key, &Tensor) -> Result<Option<Tensor>> + 'a;
    let by = |to: &To<'_>, options: &ApplyOptions<'_>| {
        let made = input.apply_named(to, options);
        Some(made.map(|made| made.map_or(Out::Plain(Value::Null), Out::from)))
    };
    let keep_empty = args["filter_empty"] == false;
    let options = ApplyOptions { keep_empty, ..Default::default() };
    let zeroed = |input: &TensorDict| input.zeros_like();
    match topic {
        "apply" => by(&|_, tensor| with_each(tensor, |x| x + 1.0).map(Some), &options),
        "apply_none" | "apply_none_keep" => by(&|_, _| Ok(None), &options),
        "apply_some" | "apply_some_keep" => {
            by(&|_, tensor| Ok((tensor.dtype() == Dtype::F32).then(|| tensor.clone())), &options)
        }
        "apply_two" => by(
            &|key, left| {
                let right = input.tensor(key.clone())?.to(Dtype::F32)?.to_vec::<f32>()?;
                let left = left.to(Dtype::F32)?;
                let sums =
                    left.to_vec::<f32>()?.iter().zip(right).map(|(left, right)| left + right).collect();
                Tensor::from_vec(left.shape(), sums).map(Some)
            },
            &options,
        ),
        "apply_bs" => {
            by(&|_, tensor| tensor.sum().map(Some), &ApplyOptions { batch_size: Some(&[]), ..options })
        }
        "named_apply" => by(&|_, tensor| with_each(tensor, |_| 1.0).map(Some), &options),
        "named_apply_nested" => by(
            &|key, tensor| {
                let depth = if key.path().len() == 1 { -1.0 } else { key.path().len() as f64 };
                with_each(tensor, |_| depth).map(Some)
            },
            &options,
        ),
        "apply_" | "zero_" => Some(zeroed(input).map(|zeros| {
            *input = zeros;
            Out::InPlace
        })),
        "masked_fill_" => {
            let filled = input.masked_fill(&tensor(&args["mask"]), args["value"].as_f64()?);
            Some(filled.map(|filled| {
                *input = filled;
                Out::InPlace
            }))
        }
        "masked_fill" => {
            Some(input.masked_fill(&tensor(&args["mask"]), args["value"].as_f64()?).map(Out::from))
        }
        "where" => Some(
            input
                .zeros_like()
                .and_then(|zeros| input.where_else(&tensor(&args["mask"]), &zeros))
                .map(Out::from),
        ),
        "sum" => Some(input.sum(None).map(Out::from)),
        "sum0" => Some(input.sum(Some(0)).map(Out::from)),
        "to_f64" => Some(input.to(Dtype::F64).map(Out::from)),
        "to_i32" => Some(input.to(Dtype::I32).map(Out::from)),
        _ => None,
    }
}

fn named(topic: &str, note: &str, input: &mut TensorDict) -> Answer {
    let letters: &[_] = match note {
        "too many" => &[Some("x"), Some("t"), Some("z")],
        "duplicates if ndim 2" => &[Some("x"), Some("x")],
        _ => &[Some("x"), Some("t")],
    };
    let rank = input.batch_size().len();
    let own = if note == "too many" { letters } else { &letters[..rank.min(2)] };
    let shown = |dict: &TensorDict| json!(dict.names());
    let done = match topic {
        "names" => input.set_names(own).map(|()| Out::Plain(shown(input))),
        "refine_names" => input.refine_names(&[Some("..."), Some("time")]).map(|()| Out::InPlace),
        "names_index" => input.set_names(own).and_then(|()| {
            let parts = [input.index(0)?, input.unsqueeze(0)?, input.unsqueeze(-1)?];
            Ok(Out::Plain(parts.iter().map(shown).collect()))
        }),
        _ => return None,
    };
    Some(done)
}

fn sized(row: &Value, topic: &str, input: &mut TensorDict) -> Answer {
    let batch_size = input.batch_size().to_vec();
    let sized = match topic {
        "bs_set" => {
            // Upstream reports the value that was set only in its refusals.
            let refused = row["error"]["msg"]
                .as_str()
                .and_then(|msg| msg.rsplit_once("torch.Size([")?.1.split(']').next());
            let sizes: Vec<_> =
                refused.unwrap_or("").split(", ").filter_map(|size| size.parse().ok()).collect();
            input.with_batch_size(&sizes)
        }
        "auto_batch_size_" => input.auto_batch_size(row["args"]["n"].as_u64().map(|dims| dims as usize)),
        "numel" => {
            let count: usize = batch_size.iter().product();
            return Some(Ok(json!([count, batch_size.len(), batch_size]).into()));
        }
        "bytes" => return Some(Ok(Out::Plain(input.size_bytes().into()))),
        "len" => return Some(Ok(Out::Plain(batch_size.first().copied().unwrap_or(0).into()))),
        _ => return None,
    };
    Some(sized.map(|sized| {
        *input = sized;
        Out::InPlace
    }))
}
