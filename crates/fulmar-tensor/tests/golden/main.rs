//! Every row that tensordict 0.14.3 printed: equal, or different by a named rule.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod batched;
mod joined;
mod keyed;
mod lazy;
mod leaves;
mod program;
mod rule;
mod value;

use std::collections::BTreeMap;

use fulmar_core::Result;
use fulmar_tensor::{Entry, LazyStack, NonTensor, TensorDict};
use serde_json::Value;

use self::value::{dict_of, entry, names_of};

#[test]
fn every_golden_row_is_equal_or_different_by_a_named_rule() {
    let rows = include_str!("../../../../tests/golden/tensor/tensordict.jsonl");
    let mut agreeing = BTreeMap::<String, usize>::new();
    let mut different: BTreeMap<&str, usize> = rule::RULES.iter().map(|rule| (rule.reason, 0)).collect();
    let mut failures = Vec::new();
    for line in rows.lines() {
        let row: Value = serde_json::from_str(line).unwrap();
        let topic = row["topic"].as_str().unwrap();
        match (checked(&row), rule::RULES.iter().find(|rule| (rule.applies)(&row))) {
            (Ok(()), _) => *agreeing.entry(topic.to_owned()).or_default() += 1,
            (Err(_), Some(rule)) => *different.get_mut(rule.reason).unwrap() += 1,
            (Err(said), None) => failures.push(format!("{} {topic}: {said}", row["id"])),
        }
    }
    let equal: usize = agreeing.values().sum();
    println!("equal: {equal} {agreeing:?}");
    for (reason, count) in &different {
        println!("different: {count}, as {reason}");
    }
    assert!(failures.is_empty(), "{} rows differ:\n{}", failures.len(), failures.join("\n"));
    assert!(different.values().all(|count| *count > 0), "a rule that no row needs");
    assert_eq!(equal + different.values().sum::<usize>(), 972);
}

/// The result of an operation.
enum Out {
    Entry(Entry),
    Entries(Vec<Entry>),
    Many(Vec<TensorDict>),
    Stack(LazyStack),
    Plain(Value),
    /// The operation changed its input.
    InPlace,
}

impl From<TensorDict> for Out {
    fn from(dict: TensorDict) -> Self {
        Self::Entry(dict.into())
    }
}

impl From<Value> for Out {
    fn from(value: Value) -> Self {
        Self::Plain(value)
    }
}

/// The result of a family of operations for a row; `None` if the row is of another family.
type Answer = Option<Result<Out>>;

/// Checks that the row agrees.
fn checked(row: &Value) -> std::result::Result<(), String> {
    if row["topic"] == "program" {
        return program::checked(row);
    }
    if row["input"].get("$lazy").is_some() {
        return lazy::checked(row);
    }
    let mut input =
        if row["input"].is_null() { TensorDict::new(&[]).unwrap() } else { dict_of(&row["input"]) };
    let before = input.clone();
    let answer = keyed::applied(row, &mut input)
        .or_else(|| leaves::applied(row, &mut input))
        .or_else(|| batched::applied(row, &mut input))
        .or_else(|| joined::applied(row, &input))
        .unwrap_or_else(|| panic!("no family answers {}", row["topic"]));
    match answer {
        Err(_) if row.get("error").is_some() && same(&input, &before) => Ok(()),
        Err(error) if row.get("error").is_some() => Err(format!("a refused call changed its input: {error}")),
        Err(error) => Err(format!("must succeed: {error}")),
        Ok(_) if row.get("error").is_some() => Err(format!("must fail: {}", row["error"]["msg"])),
        Ok(out) => agrees(row, &out, &before, &input),
    }
}

fn agrees(
    row: &Value,
    out: &Out,
    before: &TensorDict,
    after: &TensorDict,
) -> std::result::Result<(), String> {
    let want_after = row.get("input_after").map_or_else(|| before.clone(), dict_of);
    if !same(after, &want_after) {
        return Err(format!("input became {after:?}"));
    }
    let want = &row["ok"];
    let (equal, shown) = match out {
        Out::InPlace => (want["$same"] == true || want.is_null(), "nothing".to_owned()),
        Out::Plain(got) => (got == want.get("$tuple").unwrap_or(want), got.to_string()),
        Out::Entry(Entry::Dict(got)) if want["$same"] == true => (got == before, format!("{got:?}")),
        Out::Entry(Entry::Dict(got)) if want.get("$dict").is_some() => {
            (Ok(Entry::Dict(got.clone())) == entry(want, &[]), format!("{got:?}"))
        }
        Out::Entry(Entry::Dict(got)) => {
            let equal = matches!(entry(want, &[]), Ok(Entry::Dict(want)) if same_spread(got, &want));
            (equal, format!("{got:?}"))
        }
        Out::Entry(got) => (Ok(got) == entry(want, &[]).as_ref(), format!("{got:?}")),
        Out::Entries(got) => {
            let want: Vec<_> = listed(want).iter().map(|part| entry(part, &[]).unwrap()).collect();
            (got == &want, format!("{got:?}"))
        }
        Out::Many(got) => (got == &listed(want).iter().map(dict_of).collect::<Vec<_>>(), format!("{got:?}")),
        Out::Stack(got) => (*got == lazy::stack_of(want), format!("{got:?}")),
    };
    if equal { Ok(()) } else { Err(format!("got {shown}")) }
}

fn listed(value: &Value) -> &[Value] {
    value.get("$tuple").unwrap_or(value).as_array().map_or(&[], Vec::as_slice)
}

/// Returns whether two dictionaries are equal, with keys in one order and dimensions of the same names.
fn same(left: &TensorDict, right: &TensorDict) -> bool {
    left == right && left.nested_keys() == right.nested_keys() && names_of(left) == names_of(right)
}

/// Returns whether two dictionaries are equal, where a shared value equals a copy at each element: upstream
/// copies, Fulmar keeps one.
fn same_spread(left: &TensorDict, right: &TensorDict) -> bool {
    spread(left) == spread(right) && names_of(left) == names_of(right)
}

fn spread(dict: &TensorDict) -> TensorDict {
    let mut all = dict.clone();
    for (name, entry) in dict.entries() {
        if let Entry::NonTensor(values) = entry
            && values.shape().is_none()
        {
            let count = dict.batch_size().iter().product();
            let each = NonTensor::each(dict.batch_size(), vec![values.to_json(); count]).unwrap();
            all.set(name, each).unwrap();
        }
    }
    all
}
