//! Reshaped, indexed and converted specs.

use fulmar_core::Dtype;
use fulmar_spec::{
    At, Composite, Operation, Shape, TensorSpec, check_no_exclusive_keys, consolidate_spec,
    contains_lazy_spec,
};
use serde_json::{Value, json};

use crate::Outcome::{self, Decided, Same, Skipped, Wrong};
use crate::form::described;
use crate::value::same;

/// Checks an operation that reshapes, indexes or converts the spec itself.
pub(crate) fn structural(spec: &TensorSpec, name: &str, op: &Value, build: &Value) -> Outcome {
    let want = op.get("ok");
    match name {
        "expand" => moved(spec.expand(shape(&op["shape"])), want, build),
        "unsqueeze" => {
            let rank = spec.shape().rank() as i64;
            let dim = op.get("dim").and_then(Value::as_i64).unwrap_or(0);
            let dim = if dim < 0 { dim + rank + 1 } else { dim };
            moved(spec.unsqueeze(dim as usize), want, build)
        }
        "squeeze" if op.get("after_unsqueeze").is_some() => {
            moved(spec.unsqueeze(0).and_then(|spec| spec.squeeze(0)), want, build)
        }
        "squeeze" => moved(spec.squeeze_all(), want, build),
        "unsqueeze_squeeze" => moved(spec.unsqueeze(0).and_then(|spec| spec.squeeze(0)), want, build),
        "index_expanded" => match index(&op["index"], &expanded(spec, &op["expanded_by"]).shape()) {
            Some(index) => indexed(moved(expanded(spec, &op["expanded_by"]).at(&index), want, build), build),
            None if want.is_none() => Same,
            None => Skipped("index by keys"),
        },
        "reshape_expanded" => {
            let target = shape(&op["shape"]);
            moved(expanded(spec, &op["expanded_by"]).reshape(target), want, build)
        }
        "flatten_expanded" => moved(expanded(spec, &op["expanded_by"]).flatten(0, 1), want, build),
        "unflatten_expanded" => {
            moved(expanded(spec, &json!([6])).unflatten(0, shape(&op["sizes"])), want, build)
        }
        "unbind_expanded" | "unbind" => {
            let dim = op.get("dim").and_then(Value::as_u64).unwrap_or(0) as usize;
            let from = if name == "unbind" { spec.clone() } else { expanded(spec, &op["expanded_by"]) };
            let dim = if name == "unbind" && op.get("dim").is_none() { stack_dim(build) } else { dim };
            match (from.unbind(dim), want) {
                (Ok(parts), Some(want)) => {
                    let want = want.as_array().unwrap();
                    let all =
                        parts.iter().zip(want).map(|(part, want)| moved(Ok(part.clone()), Some(want), build));
                    let first_bad = all.into_iter().find(|outcome| !matches!(outcome, Same));
                    if parts.len() == want.len() {
                        first_bad.unwrap_or(Same)
                    } else {
                        Wrong(parts.len().to_string())
                    }
                }
                (Ok(_), None) => Decided("what can be indexed can be unbound"),
                (Err(_), None) => Same,
                (Err(error), Some(_)) => Wrong(error.to_string()),
            }
        }
        "eq_expand" => {
            let got = spec.expand([&[Some(2)], spec.shape().dims()].concat()).unwrap() == *spec;
            match want {
                Some(want) if json!(got) == *want => Same,
                _ if !got => Decided("specs of two shapes differ"),
                _ => Wrong(got.to_string()),
            }
        }
        "to_f64" | "to" => moved(spec.to_dtype(Dtype::F64), want, build),
        "to_i64" => moved(spec.to_dtype(Dtype::I64), want, build),
        "to_one_hot_spec" => moved(spec.to_one_hot_spec(), want, build),
        "to_categorical_spec" => moved(spec.to_categorical_spec(), want, build),
        "empty" if want.is_none() => Decided("stacked dictionaries have empty ones"),
        "empty" => moved(spec.empty(), want, build),
        "contains_lazy" => same(json!(contains_lazy_spec(spec)) == *want.unwrap(), String::new),
        "no_exclusive" => match (check_no_exclusive_keys(spec), want.unwrap()) {
            (got, want) if json!(got) == *want => Same,
            (false, _) => Decided("nested exclusive keys are found"),
            (got, _) => Wrong(got.to_string()),
        },
        "consolidate" if matches!(spec.kind(), "Composite" | "StackedComposite") => {
            moved(consolidate_spec(spec), want, build)
        }
        "consolidate" => {
            let mut outer = Composite::new([]).unwrap();
            outer.set("a", spec.clone()).unwrap();
            moved(consolidate_spec(&outer.into()), want, build)
        }
        "refine_names" => {
            let names = op["names"].as_array().unwrap().iter();
            let names = names.map(|name| Some(name.as_str().unwrap_or("...").to_owned())).collect();
            moved(spec.operate(&Operation::RefineNames { names }), want, build)
        }
        "lock" | "unlock" | "sub_unlock" => Skipped("locks: a shared reference is the lock"),
        other => panic!("unknown op {other}"),
    }
}

/// Compares a spec after a structural operation with its description.
pub(crate) fn moved(got: fulmar_spec::Result<TensorSpec>, want: Option<&Value>, build: &Value) -> Outcome {
    let Some(want) = want else {
        return match got {
            Err(_) => Same,
            Ok(_) if build.to_string().contains("[-1,") => {
                Decided("the known dimensions of a dynamic spec are reshaped")
            }
            Ok(_) if build["cls"] == "OneHot" => Decided("squeezing leaves the last dimension of a one-hot"),
            Ok(_) if build["cls"] == "MultiCategorical" => Decided("nvec is reshaped with its spec"),
            Ok(_)
                if build["cls"] == "Bounded"
                    || build["cls"] == "BoundedContinuous"
                    || build["cls"] == "BoundedDiscrete" =>
            {
                Decided("bounds are reshaped with their spec")
            }
            Ok(_) if build["cls"] == "Choice" => Decided("a choice is indexed as its specs are"),
            Ok(_) if build.to_string().contains("null") => {
                Decided("an entry that may be anything is passed over")
            }
            Ok(_) if masked(build) => Decided("masks are kept"),
            Ok(_) if build.get("names").is_some() => Decided("names go with their dimensions"),
            Ok(got) => Wrong(got.to_json().to_string()),
        };
    };
    let want = match described(&want["spec"]) {
        Ok(want) => want,
        Err(_) if build.to_string().contains("Infinity") => return Decided("infinite bounds saturate"),
        Err(_) if build["cls"] == "OneHot" => return Decided("the last dimension of a one-hot is n"),
        Err(error) => return Wrong(format!("the description cannot be read: {error}")),
    };
    let mut got = match got {
        Ok(got) => got,
        Err(_) if build["cls"] == "OneHot" => return Decided("the last dimension of a one-hot is n"),
        Err(_) if build["cls"] == "MultiCategorical" && want.kind() == "Stacked" => {
            return Skipped("one-hots of nested nvec");
        }
        Err(_) if build["cls"] == "MultiCategorical" => {
            return Decided("the choices of a cell are not indexed");
        }
        Err(_) if want.shape() == [5].into() => {
            return Decided("an expansion drops no dimension");
        }
        Err(_) if want.shape().dims().iter().filter(|dim| dim.is_none()).count() > 1 => {
            return Decided("one dimension is counted, not two");
        }
        Err(error) => return Wrong(error.to_string()),
    };
    if got == want {
        return Same;
    }
    if build.get("names").is_some() && unnamed(&got) == unnamed(&want) {
        return Decided("names go with their dimensions");
    }
    if build.to_string().contains("Infinity") && got.dtype() == Some(Dtype::I64) {
        return Decided("infinite bounds saturate");
    }
    if build["cls"] == "MultiCategorical" && got.shape().rank() == want.shape().rank() {
        return Decided("the choices of a cell are not indexed");
    }
    if build["cls"] == "NonTensor" && got.shape() == want.shape() {
        return Decided("what is batched stays batched");
    }
    if want.shape() == [1].into() && got.shape() == [].into() {
        return Decided("every dimension of length 1 is squeezed");
    }
    if masked(build) && want.mask().is_some() && got.shape() == want.shape() {
        return Decided("a mask is indexed as its spec is");
    }
    if masked(build) && want.mask().is_none() && got.mask().is_some() {
        got.update_mask(None).unwrap();
        if got == want {
            return Decided("masks are kept");
        }
    }
    if want.shape().dims().contains(&None) && !got.shape().dims().contains(&None) {
        return Decided("a dynamic dimension of a reshape is counted");
    }
    Wrong(format!("got {}\nwant {}", got.to_json(), want.to_json()))
}

fn unnamed(spec: &TensorSpec) -> TensorSpec {
    let mut spec = spec.clone();
    if let TensorSpec::Composite(composite) = &mut spec {
        composite.set_names(vec![None; composite.shape().rank()]).unwrap();
    }
    spec
}

/// The original indexes a stack only along the stacked dimension, or its specs by the rest of the index.
pub(crate) fn indexed(outcome: Outcome, build: &Value) -> Outcome {
    match outcome {
        Wrong(_) if build["cls"] == "stack" => Decided("a stack is indexed dimension by dimension"),
        other => other,
    }
}

/// Returns the parts of an index; `None` if it has unsupported items.
pub(crate) fn index(index: &Value, shape: &Shape) -> Option<Vec<At>> {
    let parts =
        index.get("$tuple").map_or_else(|| vec![index.clone()], |parts| parts.as_array().unwrap().clone());
    let mut out = Vec::new();
    let named = parts.iter().filter(|part| part.get("$ellipsis").is_none() && !part.is_null()).count();
    let mut dim = 0;
    for part in parts {
        let len = shape.dims().get(dim).copied().flatten();
        let wrap = |at: i64| {
            if at < 0 { usize::try_from(at + len.unwrap_or(0) as i64).ok() } else { Some(at as usize) }
        };
        out.push(if part.get("$ellipsis").is_some() {
            dim += shape.rank().saturating_sub(named);
            At::Ellipsis
        } else if part.is_null() {
            At::New
        } else {
            dim += 1;
            if let Some(at) = part.as_i64() {
                At::Index(wrap(at).unwrap_or(usize::MAX))
            } else if let Some(slice) = part.get("$slice") {
                if slice[2].as_i64().is_some_and(|step| step != 1) {
                    return None;
                }
                if slice[0].is_null() && slice[1].is_null() {
                    At::All
                } else {
                    let end = slice[1].as_i64().map_or(len, wrap)?;
                    At::Range(slice[0].as_i64().map_or(Some(0), wrap)?..end.min(len.unwrap_or(end)))
                }
            } else if let Some(list) = part.as_array() {
                At::Indices(list.iter().map(|at| at.as_i64().and_then(wrap)).collect::<Option<_>>()?)
            } else if part["$t"] == "bool" {
                let flags = part["d"].as_array()?.iter().enumerate();
                At::Indices(flags.filter(|(_, flag)| **flag == true).map(|(at, _)| at).collect())
            } else if part["$t"] == "int64" {
                At::Indices(
                    part["d"]
                        .as_array()?
                        .iter()
                        .map(|at| at.as_i64().and_then(wrap))
                        .collect::<Option<_>>()?,
                )
            } else if let Some(range) = part.get("$range") {
                At::Indices((range[0].as_u64()? as usize..range[1].as_u64()? as usize).collect())
            } else {
                return None;
            }
        });
    }
    Some(out)
}

pub(crate) fn expanded(spec: &TensorSpec, by: &Value) -> TensorSpec {
    let shape = spec.shape();
    let by = shape_of_json(by);
    spec.expand([by.dims(), shape.dims()].concat()).unwrap()
}

pub(crate) fn masked(build: &Value) -> bool {
    build["kwargs"].get("mask").is_some()
}

pub(crate) fn has_binary(build: &Value) -> bool {
    build.to_string().contains("\"Binary\"")
}

pub(crate) fn stack_dim(build: &Value) -> usize {
    build["dim"].as_u64().unwrap_or(0) as usize
}

pub(crate) fn shape(value: &Value) -> Shape {
    shape_of_json(value.get("$tuple").unwrap_or(value))
}

pub(crate) fn shape_of_json(value: &Value) -> Shape {
    Shape::from_signed(&value.as_array().unwrap().iter().map(|dim| dim.as_i64().unwrap()).collect::<Vec<_>>())
        .unwrap()
}
