//! Every row that tensordict 0.14.3 printed: equal where the operation exists and agrees, counted by kind where not.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, Index, Key, LazyStack, NonTensor, PadSide, Ragged, Tensor, TensorDict};
use serde_json::Value;

/// Rows that are built and whose upstream answer Fulmar does not give, each with the reason.
const DIFFERENT: &[(&str, &[u32])] = &[
    ("upstream refuses to look below a tensor, where Fulmar finds nothing", &[52, 53, 334, 335, 616, 617]),
    ("upstream counts JSON values as no leaves", &[69, 70, 351, 352, 633, 634]),
    ("upstream writes in place to a nested key that is missing, and so makes it", &[129, 411, 688]),
    (
        "upstream fills features of another shape, some of them and with an index past the batch",
        &[105, 664, 673],
    ),
    ("upstream cannot write a whole batch without dimensions", &[672]),
    ("upstream gives the whole for a range of a batch without dimensions", &[639]),
    ("upstream takes an order that leaves dimensions out", &[483]),
    ("upstream's method wants an argument where no dimension needs one", &[775]),
    ("upstream takes a batch without dimensions for one with one", &[777]),
    ("upstream loses a JSON value between expand and cat", &[936]),
    ("upstream does not shorten a batch size that it is told to count anew", &[544]),
    ("upstream keeps a lazy stack along a dimension that it cannot have", &[841]),
];

#[test]
fn every_golden_row_of_an_operation_that_exists_agrees() {
    let rows = include_str!("../../../tests/golden/tensor/tensordict.jsonl");
    let mut agreeing = BTreeMap::<String, usize>::new();
    let mut missing = BTreeMap::<String, usize>::new();
    let (mut failures, mut different) = (Vec::new(), Vec::new());
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let (id, topic) = (row["id"].as_str().unwrap(), row["topic"].as_str().unwrap().to_owned());
        let number: u32 = id.rsplit('-').next().unwrap().parse().unwrap();
        let expected = DIFFERENT.iter().any(|(_, ids)| ids.contains(&number));
        match checked(&row) {
            None => *missing.entry(topic).or_default() += 1,
            Some(Ok(())) => *agreeing.entry(topic).or_default() += 1,
            Some(Err(_)) if expected => different.push(number),
            Some(Err(said)) => failures.push(format!("{id} {topic}: {said}")),
        }
    }
    let total = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
    println!("agree: {} {agreeing:?}", total(&agreeing));
    println!("not built: {} {missing:?}", total(&missing));
    println!("different on purpose: {}", different.len());
    assert!(failures.is_empty(), "{} rows differ:\n{}", failures.len(), failures.join("\n"));
    let mut listed: Vec<u32> = DIFFERENT.iter().flat_map(|(_, ids)| ids.iter().copied()).collect();
    listed.sort_unstable();
    assert_eq!(different, listed, "a row listed as different agrees");
    assert_eq!((total(&agreeing), total(&missing)), (723, 223));
}

/// What an operation gave.
enum Out {
    Entry(Entry),
    Many(Vec<TensorDict>),
    Plain(Value),
    /// It changed its input.
    InPlace,
}

type Checked = Option<std::result::Result<(), String>>;

/// Whether the row agrees; `None` if Fulmar has no such operation.
fn checked(row: &Value) -> Checked {
    if row["topic"] == "program" {
        return program(row);
    }
    let mut input = match entry(&row["input"], &[])? {
        Ok(Entry::Dict(dict)) => dict,
        _ => TensorDict::new(&[]).unwrap(),
    };
    let before = input.clone();
    let result = applied(row, &mut input)?;
    let said = match result {
        Err(error) if row.get("error").is_some() => {
            if input == before {
                Ok(())
            } else {
                Err(format!("a refused call changed its input: {error}"))
            }
        }
        Err(error) => Err(format!("must succeed: {error}")),
        Ok(_) if row.get("error").is_some() => Err(format!("must fail: {}", row["error"]["msg"])),
        Ok(out) => agrees(row, &out, &before, &input)?,
    };
    Some(said)
}

fn agrees(row: &Value, out: &Out, before: &TensorDict, after: &TensorDict) -> Checked {
    let grows =
        ["expand", "nontensor_expand", "unsqueeze", "flatten", "unflatten", "repeat", "repeat_interleave"];
    let loose = grows.contains(&row["topic"].as_str()?);
    let want_after = match row.get("input_after") {
        Some(value) => dict_of(value)?.ok()?,
        None => before.clone(),
    };
    if after != &want_after || after.nested_keys() != want_after.nested_keys() {
        return Some(Err(format!("input became {after:?}")));
    }
    let want = &row["ok"];
    let same = match out {
        Out::InPlace => want["$same"] == true || want.is_null(),
        Out::Plain(got) => got == want,
        Out::Entry(Entry::Dict(got)) if want["$same"] == true => got == before,
        Out::Entry(Entry::Dict(got)) if loose => spread(got) == spread(&dict_of(want)?.ok()?),
        Out::Entry(got) => Ok(got) == entry(want, &[])?.as_ref(),
        Out::Many(got) => {
            let want = want["$tuple"]
                .as_array()?
                .iter()
                .map(|part| dict_of(part)?.ok())
                .collect::<Option<Vec<_>>>()?;
            got == &want
        }
    };
    let shown = || match out {
        Out::Entry(entry) => format!("got {entry:?}"),
        Out::Many(dicts) => format!("got {dicts:?}"),
        Out::Plain(value) => format!("got {value}"),
        Out::InPlace => "gives nothing".to_owned(),
    };
    Some(if same { Ok(()) } else { Err(shown()) })
}

/// With a value for each batch element where the batch shares one: upstream makes copies, Fulmar keeps one.
fn spread(dict: &TensorDict) -> TensorDict {
    let mut all = dict.clone();
    for (name, entry) in dict.entries() {
        if let Entry::NonTensor(values) = entry
            && values.shape().is_none()
        {
            let count = dict.batch_size().iter().product();
            all.set(name, NonTensor::each(dict.batch_size(), vec![values.to_json(); count]).unwrap())
                .unwrap();
        }
    }
    all
}

fn applied(row: &Value, input: &mut TensorDict) -> Option<Result<Out>> {
    keyed(row, input)
        .or_else(|| batched(row, input))
        .or_else(|| joined(row, input))
        .or_else(|| locked(row, input))
        .or_else(|| sized(row, input))
        .or_else(|| lazy(row))
}

/// Batch sizes, orders along the batch, and counts.
fn sized(row: &Value, input: &mut TensorDict) -> Option<Result<Out>> {
    let args = &row["args"];
    let number = |at: usize| args["args"][at].as_i64().map(|number| number as isize);
    let dict = |result: Result<TensorDict>| Some(result.map(|dict| Out::Entry(Entry::Dict(dict))));
    let plain = |value: Value| Some(Ok(Out::Plain(value)));
    match row["topic"].as_str()? {
        "roll" => dict(input.roll(number(0)?, number(1)?)),
        "flip" => dict(input.flip(number(0)?)),
        "auto_batch_size_" => {
            let sized = input.auto_batch_size(args["n"].as_u64().map(|dims| dims as usize));
            Some(sized.map(|sized| {
                *input = sized;
                Out::InPlace
            }))
        }
        "from_dict_auto" => {
            let bare = TensorDict::new(&[]).unwrap().with_entries_of(input);
            dict(bare.auto_batch_size(None))
        }
        "from_dict" => dict(Ok(TensorDict::new(&[]).unwrap().with_entries_of(input))),
        "exclude_inplace" | "select_inplace" => {
            let keys = args["keys"].as_array()?.iter().map(key).collect::<Option<Vec<_>>>()?;
            let kept =
                if row["topic"] == "select_inplace" { input.select(&keys) } else { Ok(input.exclude(&keys)) };
            Some(kept.map(|kept| {
                *input = kept;
                Out::InPlace
            }))
        }
        "clone_shallow" | "to_tensordict" => dict(Ok(input.clone())),
        "eq" => plain((*input == input.clone()).into()),
        "numel" => {
            let sizes = input.batch_size();
            let count: usize = sizes.iter().product();
            plain(serde_json::json!([count, sizes.len(), sizes]))
        }
        "bytes" => plain(input.size_bytes().into()),
        "to_dict" => dict(Ok(TensorDict::new(&[]).unwrap().with_entries_of(input))),
        "len" => plain(input.batch_size().first().copied().unwrap_or(0).into()),
        "state_dict" => Some(input.state_dict().map(|state| Out::Plain(state.keys().cloned().collect()))),
        "locked_unlock" => {
            input.lock();
            input.unlock();
            plain(serde_json::json!([input.is_locked(), input.dict("b").unwrap().is_locked()]))
        }
        "nontensor_tolist" | "nontensorstack_tolist" => {
            let name = if row["topic"] == "nontensor_tolist" { "s" } else { "l" };
            let values = input.non_tensor(name).unwrap();
            let each = |_| values.to_json();
            let shared = values.shape().is_none();
            plain(if shared { (0..input.batch_size()[0]).map(each).collect() } else { values.to_json() })
        }
        "nontensor_get" => Some(input.entry("s").cloned().map(Out::Entry)),
        _ => None,
    }
}

trait WithEntries {
    fn with_entries_of(self, other: &TensorDict) -> TensorDict;
}

impl WithEntries for TensorDict {
    /// The same tensors as a Python dictionary would give them, without batch sizes.
    fn with_entries_of(mut self, other: &TensorDict) -> TensorDict {
        for key in other.leaf_keys() {
            self.set(key.clone(), other.entry(key).unwrap().clone()).unwrap();
        }
        self
    }
}

/// Stacks that were not made.
fn lazy(row: &Value) -> Option<Result<Out>> {
    let topic = row["topic"].as_str()?;
    let args = &row["args"];
    let (items, dim) = match row["input"].get("$lazy") {
        Some(dim) => (&row["input"]["items"], dim.as_u64()?),
        None => (args.get("items")?, args["dim"].as_u64().unwrap_or(0)),
    };
    let parts = items.as_array()?.iter().map(|item| dict_of(item)?.ok()).collect::<Option<Vec<_>>>()?;
    // Rows without an input stack two of their items.
    let parts = match topic {
        "maybe_dense_ok" => parts[..2].to_vec(),
        "lazy_keys" => vec![parts[0].clone(), parts[2].clone()],
        _ => parts,
    };
    let stack = LazyStack::new(parts, dim as usize);
    let Ok(stack) = stack else { return Some(stack.map(|_| Out::InPlace)) };
    let found = |entry: Result<Entry>| Some(entry.map(Out::Entry));
    match topic {
        "maybe_dense_ok" => found(stack.maybe_dense().map(|dense| Entry::Dict(dense.unwrap()))),
        "lazy_keys" | "ragged_keys" => {
            let mut names: Vec<_> = stack.keys().iter().map(|key| key.path()[0].clone()).collect();
            names.dedup();
            Some(Ok(Out::Plain(names.into())))
        }
        "ragged_batch_size" => Some(Ok(Out::Plain(serde_json::json!(stack.batch_size())))),
        "ragged_get_same" => found(stack.get("m")),
        "ragged_get_ragged" => found(stack.get("a")),
        "ragged_get_nested" => Some(Ok(Out::Entry(stack.ragged("a").unwrap().into()))),
        "ragged_get_padded" => found(stack.padded("a", PadSide::Right, 0.0).map(Entry::Tensor)),
        "ragged_get_padded_val" => found(stack.padded("a", PadSide::Right, -1.0).map(Entry::Tensor)),
        "ragged_get_padded_left" => found(stack.padded("a", PadSide::Left, 0.0).map(Entry::Tensor)),
        "ragged_densify" => found(stack.to_dict().map(Entry::Dict)),
        _ => None,
    }
}

/// Operations on keys.
fn keyed(row: &Value, input: &mut TensorDict) -> Option<Result<Out>> {
    let args = &row["args"];
    let batch_size = input.batch_size().to_vec();
    let keys = || args["keys"].as_array().unwrap().iter().map(key).collect::<Option<Vec<_>>>();
    let separator = args["sep"].as_str().unwrap_or(".");
    let in_place = |result: Result<()>| Some(result.map(|()| Out::InPlace));
    let dict = |result: Result<TensorDict>| Some(result.map(|dict| Out::Entry(Entry::Dict(dict))));
    let found = |entry: Result<&Entry>| Some(entry.cloned().map(Out::Entry));
    match row["topic"].as_str()? {
        "construct" => Some(entry(&args["source"], &shape(&args["batch_size"])?)?.map(Out::Entry)),
        "getitem_key" => found(input.entry(key(&args["key"])?)),
        "get" | "get_default" => {
            let default = if row["topic"] == "get" { Value::Null } else { "dflt".into() };
            let found = input.get(key(&args["key"])?);
            Some(Ok(found.map_or(Out::Plain(default), |entry| Out::Entry(entry.clone()))))
        }
        "contains" => Some(Ok(Out::Plain(input.get(key(&args["key"])?).is_some().into()))),
        "set" | "setitem_key" => in_place(
            entry(&args["value"], &batch_size)?
                .and_then(|entry| input.set(key(&args["key"]).unwrap(), entry)),
        ),
        "set_" => in_place(match entry(&args["value"], &batch_size)? {
            Ok(Entry::Tensor(value)) => input.write(key(&args["key"])?, &value),
            Ok(_) => input.entry(key(&args["key"])?).map(|_| ()),
            Err(error) => Err(error),
        }),
        "set_at_" => {
            let at = index(&args["index"])?;
            let key = key(&args["key"])?;
            let value = input
                .tensor(key.clone())
                .and_then(|have| Tensor::scalar(have.dtype(), args["value"].as_f64().unwrap()));
            in_place(value.and_then(|value| input.write_at(key, &at, &value)))
        }
        "get_at" if args.get("default").is_none() => {
            let at = index(&args["index"])?;
            Some(
                input
                    .tensor(key(&args["key"])?)
                    .and_then(|have| have.at(&at))
                    .map(|tensor| Out::Entry(tensor.into())),
            )
        }
        "pop" if args.get("default").is_none() => Some(taken(input, &args["key"])?.map(Out::Entry)),
        "del" => in_place(taken(input, &args["key"])?.map(|_| ())),
        "keys" => Some(Ok(Out::Plain(listed_keys(args, input)?))),
        "select" if args["strict"] != false => dict(input.select(&keys()?)),
        "select" => dict(Ok(input.select_known(&keys()?))),
        "exclude" => dict(Ok(input.exclude(&keys()?))),
        "flatten_keys" => dict(input.flatten_keys(separator)),
        // Upstream's rows without an own input flatten theirs first.
        "unflatten_keys" if input.get("b").is_some() => {
            dict(input.flatten_keys(".").and_then(|flat| flat.unflatten_keys(separator)))
        }
        "unflatten_keys" => dict(input.unflatten_keys(separator)),
        "rename_key_" => {
            let (old, new) = (key(&args["old"])?, key(&args["new"])?);
            let safe = args["kwargs"]["$dict"][0][1] == true;
            in_place(if safe { input.rename_safe(old, new) } else { input.rename(old, new) })
        }
        "update" => in_place(entry(&args["value"], &batch_size)?.and_then(|value| match value {
            Entry::Dict(other) => input.update(&other),
            other => panic!("update takes a dictionary: {other:?}"),
        })),
        "to_f64" => dict(input.to(Dtype::F64)),
        "to_i32" => dict(input.to(Dtype::I32)),
        "empty" | "locked_empty" => dict(TensorDict::new(&batch_size)),
        _ => None,
    }
}

fn taken(input: &mut TensorDict, name: &Value) -> Option<Result<Entry>> {
    let key = key(name)?;
    let missing = || Error::new(ErrorKind::UnknownName, "nothing to remove");
    Some(input.remove(key).and_then(|entry| entry.ok_or_else(missing)))
}

fn listed_keys(args: &Value, input: &TensorDict) -> Option<Value> {
    let options: BTreeMap<_, _> = args["kwargs"]["$dict"]
        .as_array()?
        .iter()
        .map(|pair| (pair[0].as_str().unwrap(), pair[1] == true))
        .collect();
    let on = |name: &str| options.get(name).copied().unwrap_or(false);
    let keys: Vec<Key> = match (on("include_nested"), on("leaves_only")) {
        (true, true) => input.leaf_keys(),
        (true, false) => input.nested_keys(),
        (false, leaves) => {
            let entries = input.entries().filter(|(_, entry)| !leaves || !matches!(entry, Entry::Dict(_)));
            entries.map(|(name, _)| name.into()).collect()
        }
    };
    if options.keys().any(|name| !matches!(*name, "include_nested" | "leaves_only")) {
        return None;
    }
    let shown = |key: &Key| match key.path() {
        [name] => Value::from(name.as_str()),
        path => path.into(),
    };
    Some(keys.iter().map(shown).collect())
}

/// Operations on the batch dimensions.
fn batched(row: &Value, input: &mut TensorDict) -> Option<Result<Out>> {
    let args = &row["args"];
    let list = args["args"].as_array().cloned().unwrap_or_default();
    let at = |position: usize| list.get(position).and_then(Value::as_i64).map(|number| number as isize);
    let all = || {
        list.iter().map(|number| number.as_i64().map(|number| number as isize)).collect::<Option<Vec<_>>>()
    };
    let counts = || {
        list.iter().map(|number| number.as_u64().map(|number| number as usize)).collect::<Option<Vec<_>>>()
    };
    let dict = |result: Result<TensorDict>| Some(result.map(|dict| Out::Entry(Entry::Dict(dict))));
    let many = |result: Result<Vec<TensorDict>>| Some(result.map(Out::Many));
    match row["topic"].as_str()? {
        "index" => match args["index"].as_str() {
            Some(name) => Some(input.entry(name).cloned().map(Out::Entry)),
            None => dict(input.at(&index(&args["index"])?)),
        },
        "setitem_index" => {
            let at = index(&args["index"])?;
            let part = dict_of(&args["value"])?;
            Some(part.and_then(|part| input.set_at(&at, &part)).map(|()| Out::InPlace))
        }
        "reshape" => dict(input.reshape(&all()?)),
        "view" => dict(input.view(&all()?)),
        "flatten" => dict(input.flatten(at(0).unwrap_or(0), at(1).unwrap_or(-1))),
        "unflatten" => {
            let sizes = list[1]["$tuple"].as_array()?.iter().map(|size| size.as_i64().unwrap() as isize);
            dict(input.unflatten(at(0)?, &sizes.collect::<Vec<_>>()))
        }
        "permute" => dict(input.permute(&all()?)),
        "transpose" => dict(input.transpose(at(0)?, at(1)?)),
        "unsqueeze" => dict(input.unsqueeze(at(0)?)),
        "squeeze" => dict(at(0).map_or_else(|| input.squeeze_all(), |dim| input.squeeze(dim))),
        // A length of -1, which upstream refuses, cannot be written down.
        "expand" => dict(input.expand(&counts()?)),
        "repeat" => dict(input.repeat(&counts()?)),
        "repeat_interleave" => dict(input.repeat_interleave(counts()?[0], args["dim"].as_i64()? as isize)),
        "split" => match list[0].as_array() {
            Some(_) => many(input.split_sizes(&shape(&list[0])?, at(1).unwrap_or(0))),
            None => many(input.split(list[0].as_u64()? as usize, at(1).unwrap_or(0))),
        },
        "chunk" => many(input.chunk(list[0].as_u64()? as usize, at(1).unwrap_or(0))),
        "unbind" => many(input.unbind(at(0)?)),
        "gather" => dict(input.gather(args["dim"].as_i64()? as isize, &tensor(&args["index"])?)),
        "masked_select" => dict(input.masked_select(&tensor(&args["mask"])?)),
        "masked_fill" => dict(input.masked_fill(&tensor(&args["mask"])?, args["value"].as_f64()?)),
        "pad" => {
            let sizes = shape(&args["pad_size"])?;
            // An odd number of sizes, which upstream refuses, cannot be written down as pairs.
            let pairs: Vec<_> = sizes.chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
            if sizes.len() % 2 == 1 { None } else { dict(input.pad(&pairs, args["value"].as_f64()?)) }
        }
        "unsqueeze_squeeze" => dict(input.unsqueeze(0).and_then(|dict| dict.squeeze(0))),
        "nontensor_set_row" => {
            let mut row = TensorDict::new(&[]).unwrap();
            row.set("s", NonTensor::shared("y".into())).unwrap();
            row.set("v", Tensor::from_vec(&[], vec![9_i64]).unwrap()).unwrap();
            Some(input.set_at(&[0.into()], &row).map(|()| Out::InPlace))
        }
        "apply" if args["func"] == "x+1" => dict(input.apply(&|tensor| with_each(tensor, |x| x + 1.0))),
        "nontensor_reshape" | "nontensorstack_unsqueeze" => dict(input.reshape(&[3, 1])),
        "nontensor_expand" => dict(input.expand(&[2, 3])),
        "nontensor_gather_idx" => dict(input.at(&[Index::list(vec![2, 0])])),
        "nontensorstack_slice" => dict(input.at(&[(1..3).into()])),
        "nontensorstack_mask" => {
            dict(input.masked_select(&Tensor::from_vec(&[3], vec![true, false, true]).unwrap()))
        }
        _ => None,
    }
}

/// Operations on several dictionaries.
fn joined(row: &Value, input: &TensorDict) -> Option<Result<Out>> {
    let args = &row["args"];
    let dim = args["dim"].as_i64().unwrap_or(0);
    let items =
        || args["items"].as_array()?.iter().map(|item| dict_of(item)?.ok()).collect::<Option<Vec<_>>>();
    let twice = [input.clone(), input.clone()];
    let dict = |result: Result<TensorDict>| Some(result.map(|dict| Out::Entry(Entry::Dict(dict))));
    match row["topic"].as_str()? {
        // Dimensions of stack and cat count from the front only.
        "stack" if dim >= 0 => dict(TensorDict::stack(&items()?, dim as usize)),
        "cat" if dim >= 0 => dict(TensorDict::cat(&items()?, dim as usize)),
        "stack_keys_differ" => dict(TensorDict::stack(&[items()?[0].clone(), items()?[2].clone()], 0)),
        "stack_bs_differ" => dict(TensorDict::stack(&[items()?[0].clone(), items()?[3].clone()], 0)),
        "cat_keys_differ" => dict(TensorDict::cat(&[items()?[0].clone(), items()?[2].clone()], 0)),
        "cat_bs_differ" => dict(TensorDict::cat(&[items()?[0].clone(), items()?[3].clone()], 0)),
        "stack_empty" => dict(TensorDict::stack(&[], 0)),
        "cat_empty" => dict(TensorDict::cat(&[], 0)),
        "nontensor_stack" => dict(TensorDict::stack(&twice, 0)),
        "nontensor_cat" | "nontensorstack_cat" => dict(TensorDict::cat(&twice, 0)),
        "pad_sequence" => {
            let options = args["kwargs"]["$dict"].as_array()?;
            let option = |name: &str| options.iter().find(|pair| pair[0] == name).map(|pair| &pair[1]);
            let mask = match option("return_mask") {
                Some(Value::String(name)) => Some(name.as_str()),
                Some(Value::Bool(true)) => Some("masks"),
                _ => None,
            };
            let value = option("padding_value").and_then(Value::as_f64).unwrap_or(0.0);
            let first = option("pad_dim").is_none_or(|dim| *dim == 0);
            if first { dict(TensorDict::pad_sequence(&items()?, value, mask)) } else { None }
        }
        _ => None,
    }
}

/// Refusals of a locked dictionary.
fn locked(row: &Value, input: &mut TensorDict) -> Option<Result<Out>> {
    let topic = row["topic"].as_str()?.strip_prefix("locked_")?;
    let nothing = || TensorDict::new(&[]).unwrap();
    input.lock();
    let entry = Entry::Dict(nothing());
    match topic {
        "set_new" => Some(input.set("fresh", entry).map(|()| Out::InPlace)),
        "set_existing" => Some(input.set("a", entry).map(|()| Out::InPlace)),
        "set_" | "set_inplace" => {
            let zeros = input.tensor("a").and_then(|have| Tensor::zeros(have.dtype(), &[]));
            Some(zeros.and_then(|zeros| input.write("a", &zeros)).map(|()| Out::InPlace))
        }
        "nested_set" => Some(input.set(["b", "fresh"], entry).map(|()| Out::InPlace)),
        "del" | "pop" => Some(input.remove("a").map(|_| Out::InPlace)),
        "rename" => Some(input.rename("a", "z").map(|()| Out::InPlace)),
        "update" => Some(input.update(&nothing()).map(|()| Out::InPlace)),
        "select" => Some(input.select(&["a".into()]).map(|dict| Out::Plain(dict.is_locked().into()))),
        _ => None,
    }
}

/// A chain of operations, each of which leaves the value as it is if it fails.
fn program(row: &Value) -> Checked {
    let mut dict = dict_of(&row["input"])?.ok()?;
    for (position, step) in row["steps"].as_array()?.iter().enumerate() {
        let result = stepped(step, &dict)?;
        match (result, step.get("error").is_some()) {
            (Ok(next), false) if Some(next.batch_size()) == shape(&step["batch_size"]).as_deref() => {
                dict = next;
            }
            (Err(_), true) => {}
            (Ok(next), _) => {
                return Some(Err(format!("step {position}: got batch size {:?}", next.batch_size())));
            }
            (Err(error), _) => return Some(Err(format!("step {position}: {error}"))),
        }
    }
    let want = dict_of(&row["final"])?.ok()?;
    Some(if spread(&dict) == spread(&want) { Ok(()) } else { Err(format!("ends as {dict:?}")) })
}

fn stepped(step: &Value, dict: &TensorDict) -> Option<Result<TensorDict>> {
    let dim = step["dim"].as_i64().unwrap_or(0);
    let twice = [dict.clone(), dict.clone()];
    let numbers = |name: &str| {
        step[name]
            .as_array()
            .map(|list| list.iter().map(|n| n.as_i64().unwrap() as isize).collect::<Vec<_>>())
    };
    Some(match step["op"].as_str()? {
        "clone" => Ok(dict.clone()),
        "mask" => dict.at(&index(&step["mask"])?),
        "index" => dict.at(&index(&step["arg"])?),
        "slice" => match step["dim"].as_u64() {
            Some(dim) => {
                let whole = std::iter::repeat_n(Index::ALL, dim as usize);
                dict.at(&whole.chain(index(&step["arg"])?).collect::<Vec<_>>())
            }
            None => dict.at(&index(&step["arg"])?),
        },
        "cat" => TensorDict::cat(&twice, dim as usize),
        "stack" => TensorDict::stack(&twice, dim as usize),
        "select" => dict.select(&step["keys"].as_array()?.iter().map(key).collect::<Option<Vec<_>>>()?),
        "set" => {
            let count = dict.batch_size().iter().product::<usize>() as i64;
            let numbers = Tensor::from_vec(dict.batch_size(), (0..count).collect()).unwrap();
            let mut more = dict.clone();
            more.set(key(&step["key"])?, numbers).map(|()| more)
        }
        "apply" if step["fn"] == "x*2" => dict.apply(&|tensor| with_each(tensor, |x| x * 2.0)),
        "flatk" => dict.flatten_keys("."),
        "expand" => dict.expand(&shape(&step["shape"])?),
        "reshape" => dict.reshape(&numbers("shape")?),
        "perm" => dict.permute(&numbers("dims")?),
        "unsq" => dict.unsqueeze(dim as isize),
        "split" => dict
            .split(step["size"].as_u64()? as usize, dim as isize)
            .map(|mut parts| parts.swap_remove(step["take"].as_u64().unwrap() as usize)),
        "rename" => {
            let mut renamed = dict.clone();
            renamed.rename(key(&step["old"])?, key(&step["new"])?).map(|()| renamed)
        }
        _ => return None,
    })
}

/// Python's arithmetic with a number: integers stay integers, bools become them.
fn with_each(tensor: &Tensor, to: fn(f64) -> f64) -> Result<Tensor> {
    let values: Vec<f64> = tensor.to_f32_vec().into_iter().map(|x| to(x.into())).collect();
    match tensor.dtype() {
        Dtype::F32 => Tensor::from_vec(tensor.shape(), values.into_iter().map(|x| x as f32).collect()),
        Dtype::I32 => Tensor::from_vec(tensor.shape(), values.into_iter().map(|x| x as i32).collect()),
        _ => Tensor::from_vec(tensor.shape(), values.into_iter().map(|x| x as i64).collect()),
    }
}

fn key(value: &Value) -> Option<Key> {
    if let Some(name) = value.as_str() {
        return Some(name.into());
    }
    let path = value.get("$tuple").unwrap_or(value).as_array()?;
    path.iter().map(|name| name.as_str().map(str::to_owned)).collect::<Option<Vec<_>>>().map(Key::from)
}

fn shape(value: &Value) -> Option<Vec<usize>> {
    if value.is_null() {
        return Some(Vec::new());
    }
    value.as_array()?.iter().map(|dim| dim.as_u64().map(|dim| dim as usize)).collect()
}

fn index(value: &Value) -> Option<Vec<Index>> {
    match value.get("$tuple") {
        Some(items) => items.as_array()?.iter().map(index_item).collect(),
        None => Some(vec![index_item(value)?]),
    }
}

fn index_item(value: &Value) -> Option<Index> {
    if let Some(at) = value.as_i64() {
        return Some(at.into());
    }
    if value.is_null() {
        return Some(Index::NewAxis);
    }
    if value.get("$ellipsis").is_some() {
        return Some(Index::Ellipsis);
    }
    if let Some(bounds) = value.get("$slice") {
        let step = bounds[2].as_u64().unwrap_or(1) as usize;
        return Some(Index::Slice { start: bounds[0].as_i64(), stop: bounds[1].as_i64(), step });
    }
    if let Some(bounds) = value.get("$range") {
        return Some(Index::list((bounds[0].as_i64()?..bounds[1].as_i64()?).collect()));
    }
    if let Some(items) = value.as_array() {
        let bools: Option<Vec<_>> = items.iter().map(Value::as_bool).collect();
        return match bools {
            Some(mask) if !mask.is_empty() => Some(Tensor::from_vec(&[mask.len()], mask).unwrap().into()),
            _ => items.iter().map(Value::as_i64).collect::<Option<_>>().map(Index::list),
        };
    }
    if value.get("$np").is_some() {
        return tensor(&serde_json::json!({ "$t": value["$np"], "s": value["s"], "d": value["d"] }))
            .map(Index::Pick);
    }
    tensor(value).map(Index::Pick)
}

fn tensor(value: &Value) -> Option<Tensor> {
    let numbers = value["d"].as_array()?;
    let shape = shape(&value["s"])?;
    let floats = || {
        numbers.iter().map(|x| x.as_f64().or_else(|| x.as_str()?.parse().ok())).collect::<Option<Vec<f64>>>()
    };
    let integers = || numbers.iter().map(Value::as_i64).collect::<Option<Vec<_>>>();
    let made = match value["$t"].as_str()? {
        "float64" => Tensor::from_vec(&shape, floats()?),
        "float32" => Tensor::from_vec(&shape, floats()?.into_iter().map(|x| x as f32).collect()),
        "int64" => Tensor::from_vec(&shape, integers()?),
        "int32" => Tensor::from_vec(&shape, integers()?.into_iter().map(|x| x as i32).collect()),
        "bool" => Tensor::from_vec(&shape, numbers.iter().map(Value::as_bool).collect::<Option<Vec<_>>>()?),
        _ => return None,
    };
    Some(made.unwrap())
}

fn dict_of(value: &Value) -> Option<Result<TensorDict>> {
    match entry(value, &[])? {
        Ok(Entry::Dict(dict)) if value.get("$td").is_some() => Some(Ok(dict)),
        Ok(_) => None,
        Err(error) => Some(Err(error)),
    }
}

/// The entry that a value stands for, in a dictionary of `batch_size`; `None` if Fulmar has nothing of its kind.
fn entry(value: &Value, batch_size: &[usize]) -> Option<Result<Entry>> {
    if value.get("$t").is_some() {
        return Some(Ok(tensor(value)?.into()));
    }
    if let Some(rows) = value.get("$njt") {
        let rows = rows.as_array()?.iter().map(tensor).collect::<Option<Vec<_>>>()?;
        return Some(Ragged::from_rows(&rows).map(Entry::from));
    }
    if let Some(values) = value.get("$nts") {
        return Some(NonTensor::nested(&shape(&value["b"])?, values.clone()).map(Entry::from));
    }
    if let Some(size) = value.get("$td") {
        let pairs: Vec<_> =
            value["k"].as_object()?.iter().map(|(name, value)| (name.as_str().into(), value)).collect();
        return filled(pairs, &shape(size)?);
    }
    if let Some(pairs) = value.get("$dict") {
        let pairs: Option<Vec<_>> =
            pairs.as_array()?.iter().map(|pair| Some((key(&pair[0])?, &pair[1]))).collect();
        return filled(pairs?, batch_size);
    }
    let plain = value.get("$nt").unwrap_or(value);
    let foreign = plain.as_object().is_some_and(|object| object.keys().any(|name| name.starts_with('$')));
    // Python turns numbers and lists of them into tensors, JSON values stay what they are.
    let converted =
        value.get("$nt").is_none() && (plain.is_number() || plain.is_boolean() || plain.is_array());
    if foreign || converted { None } else { Some(Ok(NonTensor::shared(plain.clone()).into())) }
}

fn filled(pairs: Vec<(Key, &Value)>, batch_size: &[usize]) -> Option<Result<Entry>> {
    let mut dict = TensorDict::new(batch_size).unwrap();
    for (key, value) in pairs {
        let set = entry(value, batch_size)?.and_then(|entry| dict.set(key, entry));
        if let Err(error) = set {
            return Some(Err(error));
        }
    }
    Some(Ok(Entry::Dict(dict)))
}
