//! Operations on keys, on their entries and on locks.

use fulmar_core::{Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Key, NonTensor, Tensor, TensorDict};
use serde_json::{Value, json};

use crate::value::{entry, index, key, keys, option, shape, shown};
use crate::{Answer, Out};

pub fn applied(row: &Value, input: &mut TensorDict) -> Answer {
    let topic = row["topic"].as_str()?;
    read(topic, &row["args"], input)
        .or_else(|| changed(topic, &row["args"], input))
        .or_else(|| locked(topic.strip_prefix("locked_")?, input))
        .or_else(|| non_tensor(topic, input))
}

/// Operations that change nothing.
fn read(topic: &str, args: &Value, input: &TensorDict) -> Answer {
    let separator = args["sep"].as_str().unwrap_or(".");
    let got = |default: Value| {
        let found = input.get(key(&args["key"])?);
        Ok(found.map_or(Out::Plain(default), |entry| Out::Entry(entry.clone())))
    };
    Some(match topic {
        "construct" => entry(&args["source"], &shape(&args["batch_size"])).map(Out::Entry),
        "getitem_key" if args["key"].is_number() => input.at(&index(&args["key"])).map(Out::from),
        "getitem_key" => key(&args["key"]).and_then(|key| input.entry(key).cloned().map(Out::Entry)),
        "get" => got(Value::Null),
        "get_default" => got("dflt".into()),
        "get_at" => key(&args["key"]).and_then(|key| match input.get(key.clone()) {
            None => Ok(args["default"].clone().into()),
            Some(_) => input.tensor(key)?.at(&index(&args["index"])).map(|part| Out::Entry(part.into())),
        }),
        "contains" => key(&args["key"]).map(|key| Out::Plain(input.get(key).is_some().into())),
        "keys" => Ok(shown(&listed(args, input)).into()),
        "sort_keys" => {
            let mut names: Vec<_> = input.entries().map(|(name, _)| Key::from(name)).collect();
            names.sort();
            Ok(shown(&names).into())
        }
        "unravel_key" if args.get("key").is_some() => key(&args["key"]).map(|key| json!(key).into()),
        "unravel_key" => {
            let nested = [
                json!("a"),
                json!(["a"]),
                json!(["a", "b"]),
                json!(["a", ["b"]]),
                json!([["a", ["b", "c"]], "d"]),
            ];
            nested.iter().map(Key::unravel).collect::<Result<Vec<_>>>().map(|keys| shown(&keys).into())
        }
        "select" if args["strict"] == false => {
            keys(&args["keys"]).map(|keys| input.select_known(&keys).into())
        }
        "select" => keys(&args["keys"]).and_then(|keys| input.select(&keys)).map(Out::from),
        "exclude" => keys(&args["keys"]).map(|keys| input.exclude(&keys).into()),
        "split_keys" => {
            let sets = args["sets"].as_array()?.iter().map(keys).collect::<Result<Vec<_>>>();
            sets.and_then(|sets| input.split_keys(&sets)).map(Out::Many)
        }
        "flatten_keys" => input.flatten_keys(separator).map(Out::from),
        // Upstream's rows without their own input flatten their input first.
        "unflatten_keys" if input.get("b").is_some() => {
            input.flatten_keys(".").and_then(|flat| flat.unflatten_keys(separator)).map(Out::from)
        }
        "unflatten_keys" => input.unflatten_keys(separator).map(Out::from),
        "empty" | "locked_empty" => TensorDict::new(input.batch_size()).map(Out::from),
        "empty_recurse" => Ok(input.structure().into()),
        "is_empty" => {
            let none = TensorDict::new(&[]).unwrap();
            let mut nested = none.clone();
            nested.set("n", none.clone()).unwrap();
            Ok(json!([input.is_empty(), none.is_empty(), nested.is_empty()]).into())
        }
        "state_dict" => input.state_dict().map(|state| Out::Plain(state.keys().cloned().collect())),
        "clone_shallow" | "to_tensordict" => Ok(input.clone().into()),
        "eq" => Ok(Out::Plain((*input == input.clone()).into())),
        "from_dict" | "to_dict" => Ok(bare(input).into()),
        "from_dict_auto" => bare(input).auto_batch_size(None).map(Out::from),
        _ => return None,
    })
}

/// Returns the same entries as a Python dictionary would give them, without batch sizes.
fn bare(input: &TensorDict) -> TensorDict {
    let mut dict = TensorDict::new(&[]).unwrap();
    for key in input.leaf_keys() {
        dict.set(key.clone(), input.entry(key).unwrap().clone()).unwrap();
    }
    dict
}

fn listed(args: &Value, input: &TensorDict) -> Vec<Key> {
    let on = |name: &str| option(args, name).is_some_and(|value| *value == true);
    let mut keys: Vec<Key> = match (on("include_nested"), on("leaves_only")) {
        (true, true) => input.leaf_keys(),
        (true, false) => input.nested_keys(),
        (false, leaves) => {
            let entries = input.entries().filter(|(_, entry)| !leaves || !matches!(entry, Entry::Dict(_)));
            entries.map(|(name, _)| name.into()).collect()
        }
    };
    if on("sort") {
        keys.sort();
    }
    keys
}

/// Operations that change their input.
fn changed(topic: &str, args: &Value, input: &mut TensorDict) -> Answer {
    let batch_size = input.batch_size().to_vec();
    let done = match topic {
        "set" | "setitem_key" => {
            entry(&args["value"], &batch_size).and_then(|value| input.set(key(&args["key"])?, value))
        }
        "set_" => entry(&args["value"], &batch_size).and_then(|value| match value {
            Entry::Tensor(value) => input.write(key(&args["key"])?, &value),
            _ => input.entry(key(&args["key"])?).map(|_| ()),
        }),
        "set_at_" => key(&args["key"]).and_then(|key| {
            let dtype = input.tensor(key.clone())?.dtype();
            let value = Tensor::scalar(dtype, args["value"].as_f64().unwrap())?;
            input.write_at(key, &index(&args["index"]), &value)
        }),
        "pop" => {
            return Some(key(&args["key"]).and_then(|key| {
                match (input.remove(key.clone())?, args.get("default")) {
                    (Some(entry), _) => Ok(Out::Entry(entry)),
                    (None, Some(default)) => Ok(default.clone().into()),
                    (None, None) => Err(missing(&key)),
                }
            }));
        }
        "del" => key(&args["key"])
            .and_then(|key| input.remove(key.clone())?.map(drop).ok_or_else(|| missing(&key))),
        "select_inplace" => {
            keys(&args["keys"]).and_then(|keys| input.select(&keys)).map(|kept| *input = kept)
        }
        "exclude_inplace" => keys(&args["keys"]).map(|keys| *input = input.exclude(&keys)),
        "rename_key_" => key(&args["old"]).and_then(|old| {
            let safe = option(args, "safe").is_some_and(|safe| *safe == true);
            let new = key(&args["new"])?;
            if safe { input.rename_safe(old, new) } else { input.rename(old, new) }
        }),
        "update" => dict(&args["value"], &batch_size).and_then(|other| input.update(&other)),
        "update_" => dict(&args["value"], &batch_size).and_then(|other| input.write_all(&other)),
        // Of several entries only that at "a".
        "update_keys" => input.zeros_like().and_then(|zeros| input.update(&zeros.select(&["a".into()])?)),
        "state_dict_roundtrip" => input.state_dict().and_then(|state| {
            *input = input.zeros_like()?;
            input.load_state_dict(&state)
        }),
        _ => return None,
    };
    Some(done.map(|()| Out::InPlace))
}

fn missing(key: &Key) -> Error {
    Error::new(ErrorKind::UnknownName, format!("nothing to remove at {key}"))
}

fn dict(value: &Value, batch_size: &[usize]) -> Result<TensorDict> {
    match entry(value, batch_size)? {
        Entry::Dict(dict) => Ok(dict),
        other => panic!("must be a dictionary: got {other:?}"),
    }
}

/// Operations on a locked dictionary.
fn locked(topic: &str, input: &mut TensorDict) -> Answer {
    let nothing = || TensorDict::new(&[]).unwrap();
    input.lock();
    let zeros = Tensor::zeros(input.tensor("a").unwrap().dtype(), &[]).unwrap();
    let done = match topic {
        "set_new" => input.set("fresh", nothing()),
        "set_existing" => input.set("a", nothing()),
        "set_" | "set_inplace" => input.write("a", &zeros),
        "update_" => input.zeros_like().and_then(|zeros| input.write_all(&zeros.select(&["a".into()])?)),
        "setitem" => input.set_at(&[], &input.clone()),
        "nested_set" => input.set(["b", "fresh"], nothing()),
        "del" | "pop" => input.remove("a").map(drop),
        "rename" => input.rename("a", "z"),
        "update" => input.update(&nothing()),
        "batch_size" => input.with_batch_size(&[]).map(|sized| *input = sized),
        "sub_unlock" => {
            let mut below = input.dict("b").unwrap().clone();
            below.unlock();
            Ok(())
        }
        "select" => return Some(input.select(&["a".into()]).map(|dict| Out::Plain(dict.is_locked().into()))),
        "is_locked" => {
            let unlocked = input.select(&["a".into()]).unwrap().is_locked();
            return Some(Ok(
                json!([input.is_locked(), input.dict("b").unwrap().is_locked(), unlocked]).into()
            ));
        }
        "unlock" => {
            input.unlock();
            return Some(Ok(json!([input.is_locked(), input.dict("b").unwrap().is_locked()]).into()));
        }
        _ => return None,
    };
    Some(done.map(|()| Out::InPlace))
}

/// Operations on JSON values.
fn non_tensor(topic: &str, input: &mut TensorDict) -> Answer {
    let values = |dict: &TensorDict, name: &str| Ok(dict.non_tensor(name)?.to_json().into());
    let row = |value: &str| {
        let mut row = TensorDict::new(&[]).unwrap();
        row.set("s", NonTensor::shared(value.into())).unwrap();
        row
    };
    let done = match topic {
        "lock_context" => {
            input.lock();
            let inside = input.is_locked();
            input.unlock();
            return Some(Ok(json!([inside, input.is_locked()]).into()));
        }
        "nontensor_get" => return Some(input.entry("s").cloned().map(Out::Entry)),
        "nontensor_item" => return Some(values(input, "s")),
        "nontensor_index" => return Some(input.index(1).and_then(|row| values(&row, "s"))),
        "nontensorstack_item" | "nontensorstack_tolist" => return Some(values(input, "l")),
        "nontensorstack_index" => return Some(input.index(1).and_then(|row| values(&row, "l"))),
        "nontensor_tolist" => {
            let value = input.non_tensor("s").unwrap().to_json();
            return Some(Ok(Value::from(vec![value; input.batch_size()[0]]).into()));
        }
        "nontensor_set_row" => {
            let mut changed = row("y");
            changed.set("v", Tensor::from_vec(&[], vec![9_i64]).unwrap()).unwrap();
            input.set_at(&[0.into()], &changed)
        }
        "nontensor_set_view" => {
            input.index(0).and_then(|mut first| first.set("s", NonTensor::shared("y".into())))
        }
        "nontensor_set_list" => NonTensor::nested(input.batch_size(), json!(["p", "q", "r"]))
            .and_then(|values| input.set("l", values)),
        "nontensor_set_list_bad" => {
            NonTensor::nested(input.batch_size(), json!(["p", "q"])).and_then(|values| input.set("l", values))
        }
        "nontensor_update" => input.update(&row("new")),
        _ => return None,
    };
    Some(done.map(|()| Out::InPlace))
}
