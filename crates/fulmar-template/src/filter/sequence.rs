//! Filters over lists and dictionaries.

use std::collections::HashMap;
use std::sync::Arc;

use minijinja::value::{Enumerator, Kwargs, Object, ObjectRepr, Rest, Value, ValueKind};
use minijinja::{Environment, Error, State};

use super::{add, attribute_of, iterate, string};
use crate::arguments::{Arguments, as_integer};
use crate::compare::{self, type_name};
use crate::failure::{fail, type_error};
use crate::integer::small_integer;
use crate::meter;
use crate::method::{check_length, list, tuple};
use crate::operator;
use crate::print::{as_float, to_repr};
use crate::value::Dict;

/// Longest text that Python's `pprint` leaves on one line.
const PRINTED_LINE_MAX: usize = 80;

/// Puts every filter of this file in `environment`.
pub fn add_to(environment: &mut Environment) {
    add(environment, "abs", absolute);
    add(environment, "attr", attr);
    add(environment, "batch", batch);
    add(environment, "dictsort", dictsort);
    add(environment, "first", |value: &Value| first(value));
    add(environment, "groupby", groupby);
    add(environment, "items", items);
    add(environment, "last", |value: &Value| last(value));
    add(environment, "map", map);
    add(environment, "max", |value: &Value, options: Rest<Value>, named: Kwargs| {
        extreme("max", ">", value, &options, named)
    });
    add(environment, "min", |value: &Value, options: Rest<Value>, named: Kwargs| {
        extreme("min", "<", value, &options, named)
    });
    add(environment, "pprint", pprint);
    add(environment, "reverse", reverse);
    add(environment, "round", round);
    add(environment, "slice", slice);
    add(environment, "sort", sort);
    add(environment, "sum", sum);
    add(environment, "unique", unique);
    for (name, keeps, has_attribute) in [
        ("select", true, false),
        ("reject", false, false),
        ("selectattr", true, true),
        ("rejectattr", false, true),
    ] {
        add(environment, name, move |state: &mut State, value: &Value, rest: Rest<Value>, named: Kwargs| {
            select(state, value, &rest, named, keeps, has_attribute)
        });
    }
}

/// Returns the items that a filter iterates.
fn collect(value: &Value) -> Result<Vec<Value>, Error> {
    let iterated = iterate(value)?;
    meter::touch(iterated.len().unwrap_or(0))?;
    Ok(iterated.try_iter()?.collect())
}

/// The sort key of an item.
struct Key {
    attribute: Option<Value>,
    ignores_case: bool,
    default: Option<Value>,
}

impl Key {
    /// Returns the key for the arguments `attribute` and `case_sensitive`.
    fn new(options: &Arguments) -> Self {
        Self {
            attribute: options.get("attribute").filter(|attribute| !attribute.is_none()),
            ignores_case: !options.flag("case_sensitive", false),
            default: None,
        }
    }

    fn of(&self, item: &Value) -> Result<Value, Error> {
        let key = self.shown(item)?;
        Ok(match key.as_str() {
            Some(text) if self.ignores_case => {
                meter::make(text.len())?;
                Value::from(text.to_lowercase())
            }
            _ => key,
        })
    }

    /// Returns the key with its original case.
    fn shown(&self, item: &Value) -> Result<Value, Error> {
        let Some(attribute) = &self.attribute else { return Ok(item.clone()) };
        let key = attribute_of(item, attribute)?;
        Ok(match &self.default {
            Some(default) if key.is_undefined() => default.clone(),
            _ => key,
        })
    }

    /// Returns items with their keys.
    fn keyed(&self, items: Vec<Value>) -> Result<Vec<(Value, Value)>, Error> {
        meter::make(items.len() * 2 * size_of::<Value>())?;
        items.into_iter().map(|item| Ok((self.of(&item)?, item))).collect()
    }
}

fn absolute(value: &Value) -> Result<Value, Error> {
    if let Some(number) = as_float(value) {
        return Ok(Value::from(number.abs()));
    }
    match value.kind() {
        ValueKind::Bool => Ok(Value::from(i64::from(value.is_true()))),
        ValueKind::Number => {
            let number = i128::try_from(value.clone())?;
            let absolute = number.checked_abs();
            absolute
                .map(small_integer)
                .ok_or_else(|| fail(fulmar_core::ErrorKind::OutOfRange, "abs: the integer is too large"))
        }
        _ if value.to_string().starts_with('-') && type_name(value) == "int" => {
            crate::integer::from_digits(&value.to_string()[1..])
        }
        _ if type_name(value) == "int" => Ok(value.clone()),
        _ => Err(type_error(format!("bad operand type for abs(): '{}'", type_name(value)))),
    }
}

fn attr(value: &Value, name: &Value) -> Result<Value, Error> {
    let name = string(name)?;
    if name.starts_with('_') {
        return Ok(Value::UNDEFINED);
    }
    let found = value.get_attr(&name)?;
    // For a dictionary only methods are attributes.
    let is_item = value.downcast_object_ref::<Dict>().is_some_and(|dict| {
        !crate::method::DICT_METHODS.contains(&name.as_str()) && dict.get(&name).is_some()
    });
    Ok(if is_item { Value::UNDEFINED } else { found })
}

fn batch(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("batch", &options, named, &["linecount", "fill_with"])?;
    options.need("linecount")?;
    let length = usize::try_from(options.integer("linecount", 1)?).unwrap_or(0);
    let fill = options.get("fill_with").filter(|fill| !fill.is_none());
    let items = collect(value)?;
    let mut batches = Vec::new();
    if length == 0 {
        // Python compares the length of a batch that never has this length.
        return list(if items.is_empty() { Vec::new() } else { vec![list(items)?] });
    }
    for chunk in items.chunks(length) {
        let mut chunk = chunk.to_vec();
        if let Some(fill) = &fill {
            let missing = length - chunk.len();
            meter::make(missing.saturating_mul(size_of::<Value>()))?;
            chunk.extend(std::iter::repeat_n(fill.clone(), missing));
        }
        batches.push(list(chunk)?);
    }
    list(batches)
}

fn slice(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("slice", &options, named, &["slices", "fill_with"])?;
    options.need("slices")?;
    let num_slices = usize::try_from(options.integer("slices", 1)?).unwrap_or(0);
    let fill = options.get("fill_with").filter(|fill| !fill.is_none());
    let items = collect(value)?;
    if num_slices == 0 {
        return Err(fail(fulmar_core::ErrorKind::OutOfRange, "slice: slices must not be 0"));
    }
    meter::touch(num_slices)?;
    let (length, num_longer) = (items.len() / num_slices, items.len() % num_slices);
    let mut slices = Vec::new();
    let mut at = 0;
    for index in 0..num_slices {
        let end = at + length + usize::from(index < num_longer);
        let mut part = items[at..end].to_vec();
        part.extend(fill.clone().filter(|_| index >= num_longer && num_longer > 0));
        at = end;
        slices.push(list(part)?);
    }
    list(slices)
}

fn dictsort(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("dictsort", &options, named, &["case_sensitive", "by", "reverse"])?;
    let by_value = match options.text("by", "key")?.as_str() {
        "key" => false,
        "value" => true,
        other => {
            let detail = format!("You can only sort by either \"key\" or \"value\", got {other:?}");
            return Err(fail(fulmar_core::ErrorKind::OutOfRange, detail));
        }
    };
    let key = Key { attribute: None, ignores_case: !options.flag("case_sensitive", false), default: None };
    let mut keyed = Vec::new();
    for (name, item) in pairs(value)? {
        let sorted_by = key.of(if by_value { &item } else { &name })?;
        keyed.push((sorted_by, tuple(vec![name, item])?));
    }
    let sorted = compare::sort(keyed, |(key, _)| key, options.flag("reverse", false), false)?;
    list(sorted.into_iter().map(|(_, pair)| pair).collect())
}

/// Returns keys and values of a dictionary.
fn pairs(value: &Value) -> Result<Vec<(Value, Value)>, Error> {
    match value.downcast_object_ref::<Dict>() {
        Some(dict) => Ok(dict.entries().to_vec()),
        None => Err(type_error("Can only get item pairs from a mapping.")),
    }
}

fn items(value: &Value) -> Result<Value, Error> {
    if value.is_undefined() {
        return list(Vec::new());
    }
    let pairs = pairs(value)?;
    list(pairs.into_iter().map(|(key, value)| tuple(vec![key, value])).collect::<Result<_, _>>()?)
}

fn first(value: &Value) -> Result<Value, Error> {
    Ok(iterate(value)?.try_iter()?.next().unwrap_or_default())
}

fn last(value: &Value) -> Result<Value, Error> {
    Ok(iterate(value)?.try_iter()?.last().unwrap_or_default())
}

fn groupby(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let names = ["attribute", "default", "case_sensitive"];
    let options = Arguments::with_named("groupby", &options, named, &names)?;
    options.need("attribute")?;
    let key =
        Key { default: options.get("default").filter(|default| !default.is_none()), ..Key::new(&options) };
    let sorted = compare::sort(key.keyed(collect(value)?)?, |(key, _)| key, false, false)?;
    let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
    for (name, item) in sorted {
        match groups.last_mut() {
            Some((known, group)) if compare::equal(known, &name)? => group.push(item),
            _ => groups.push((name, vec![item])),
        }
    }
    let group = |(_, items): (Value, Vec<Value>)| {
        let name = key.shown(&items[0])?;
        Ok(Value::from_object(Group { pair: [name, list(items)?] }))
    };
    list(groups.into_iter().map(group).collect::<Result<_, Error>>()?)
}

/// A group of `groupby`: a pair with named parts.
#[derive(Debug)]
pub struct Group {
    pair: [Value; 2],
}

impl Group {
    /// Returns the number of containers around its innermost value, itself included.
    pub fn depth(&self) -> usize {
        1 + self.pair.iter().map(crate::value::depth_of).max().unwrap_or(0)
    }
}

impl Object for Group {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        match key.as_str() {
            Some("grouper") => Some(self.pair[0].clone()),
            Some("list") => Some(self.pair[1].clone()),
            Some(_) => None,
            None => self.pair.get(key.as_usize()?).cloned(),
        }
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Seq(2)
    }
}

fn map(state: &mut State, value: &Value, rest: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    if !value.is_true() {
        return list(Vec::new());
    }
    let items = collect(value)?;
    let Some(name) = rest.first() else {
        let options = Arguments::with_named("map", &[], named, &["attribute", "default"])?;
        let attribute =
            options.get("attribute").ok_or_else(|| type_error("map requires a filter argument"))?;
        let default = options.get("default").filter(|default| !default.is_none());
        let key = Key { attribute: Some(attribute), ignores_case: false, default };
        return list(items.iter().map(|item| key.of(item)).collect::<Result<_, _>>()?);
    };
    let Some(name) = name.as_str() else { return Err(type_error("map: the name of a filter must be text")) };
    let mut arguments = vec![Value::UNDEFINED];
    arguments.extend_from_slice(&rest[1..]);
    if named.args().next().is_some() {
        arguments.push(Value::from(named));
    }
    let mut mapped = Vec::with_capacity(items.len());
    for item in items {
        meter::touch(arguments.len())?;
        arguments[0] = item;
        mapped.push(state.apply_filter(name, &arguments)?);
    }
    list(mapped)
}

fn select(
    state: &mut State,
    value: &Value,
    rest: &[Value],
    named: Kwargs,
    keeps: bool,
    has_attribute: bool,
) -> Result<Value, Error> {
    if !value.is_true() {
        return list(Vec::new());
    }
    let (attribute, rest) = match rest.split_first() {
        Some((attribute, rest)) if has_attribute => (Some(attribute), rest),
        None if has_attribute => return Err(type_error("Missing parameter for attribute name")),
        _ => (None, rest),
    };
    let mut arguments = vec![Value::UNDEFINED];
    arguments.extend(rest.iter().skip(1).cloned());
    if named.args().next().is_some() {
        arguments.push(Value::from(named));
    }
    let mut selected = Vec::new();
    for item in collect(value)? {
        meter::touch(arguments.len())?;
        let tested = match attribute {
            Some(attribute) => attribute_of(&item, attribute)?,
            None => item.clone(),
        };
        let holds = match rest.first() {
            None => tested.is_true(),
            Some(name) => {
                let name = name.as_str().ok_or_else(|| type_error("the name of a test must be text"))?;
                arguments[0] = tested;
                state.perform_test(name, &arguments)?
            }
        };
        if holds == keeps {
            selected.push(item);
        }
    }
    list(selected)
}

fn extreme(
    function: &str,
    operator: &str,
    value: &Value,
    options: &[Value],
    named: Kwargs,
) -> Result<Value, Error> {
    let options = Arguments::with_named(function, options, named, &["case_sensitive", "attribute"])?;
    let key = Key::new(&options);
    let mut best: Option<(Value, Value)> = None;
    for item in collect(value)? {
        let item_key = key.of(&item)?;
        match &best {
            Some((best_key, _)) if !compare::holds(operator, &item_key, best_key)? => {}
            _ => best = Some((item_key, item)),
        }
    }
    Ok(best.map(|(_, item)| item).unwrap_or_default())
}

/// Python wraps wide values over several lines; such values are refused.
fn pprint(value: &Value) -> Result<String, Error> {
    let text =
        to_repr(value).map_err(|_| type_error("pprint: the value must be no longer than can be printed"))?;
    let is_sorted = match value.downcast_object_ref::<Dict>() {
        Some(dict) => dict.entries().windows(2).all(|pair| pair[0].0.as_str() <= pair[1].0.as_str()),
        None => true,
    };
    if is_sorted && text.chars().count() <= PRINTED_LINE_MAX {
        return Ok(text);
    }
    let detail = "pprint: the value must have its keys in order and fit into one line of 80 characters";
    Err(type_error(detail))
}

fn reverse(value: &Value) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        return Ok(Value::from(text.chars().rev().collect::<String>()));
    }
    let mut items = collect(value)?;
    items.reverse();
    list(items)
}

fn round(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("round", &options, named, &["precision", "method"])?;
    let precision = options.integer("precision", 0)?;
    let method = options.text("method", "common")?;
    if !matches!(method.as_str(), "common" | "ceil" | "floor") {
        return Err(type_error("method must be common, ceil or floor"));
    }
    let number = match as_float(value) {
        Some(number) => number,
        None => match as_integer(value) {
            Some(_) if method == "common" && precision >= 0 && value.kind() == ValueKind::Number => {
                return Ok(value.clone());
            }
            Some(number) => number as f64,
            None if value.kind() == ValueKind::Number || type_name(value) == "int" => {
                return if method == "common" && precision >= 0 {
                    Ok(value.clone())
                } else {
                    Err(type_error("round: the integer is too large"))
                };
            }
            None => {
                return Err(type_error(format!("type {} doesn't define __round__ method", type_name(value))));
            }
        },
    };
    let is_integer = as_float(value).is_none();
    if method == "common" {
        let rounded = rounded(number, precision);
        return Ok(if is_integer { Value::from(rounded as i64) } else { Value::from(rounded) });
    }
    let scale = 10_f64.powi(i32::try_from(precision).unwrap_or(i32::MAX));
    let scaled = number * scale;
    Ok(Value::from(if method == "ceil" { scaled.ceil() } else { scaled.floor() } / scale))
}

/// Returns Python's `round`: to the nearest decimal of the exact value, halves to even.
fn rounded(number: f64, precision: i64) -> f64 {
    match usize::try_from(precision) {
        Ok(precision) if precision > 330 || !number.is_finite() => number,
        Ok(precision) => format!("{number:.precision$}").parse().unwrap_or(number),
        Err(_) => {
            let scale = 10_f64.powi(i32::try_from(precision.unsigned_abs()).unwrap_or(i32::MAX));
            if scale.is_finite() { (number / scale).round_ties_even() * scale } else { 0.0 }
        }
    }
}

fn sort(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let names = ["reverse", "case_sensitive", "attribute"];
    let options = Arguments::with_named("sort", &options, named, &names)?;
    let key = Key::new(&options);
    let attributes = key.attribute.as_ref().and_then(Value::as_str).unwrap_or_default().to_owned();
    let keyed = if attributes.contains(',') {
        let keys: Vec<Key> = attributes
            .split(',')
            .map(|attribute| Key { attribute: Some(Value::from(attribute)), default: None, ..key })
            .collect();
        let all = |item: Value| -> Result<_, Error> {
            let parts = keys.iter().map(|key| key.of(&item)).collect::<Result<_, _>>()?;
            Ok((list(parts)?, item))
        };
        collect(value)?.into_iter().map(all).collect::<Result<_, _>>()?
    } else {
        key.keyed(collect(value)?)?
    };
    let sorted = compare::sort(keyed, |(key, _)| key, options.flag("reverse", false), true)?;
    list(sorted.into_iter().map(|(_, item)| item).collect())
}

fn sum(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("sum", &options, named, &["attribute", "start"])?;
    let attribute = options.get("attribute").filter(|attribute| !attribute.is_none());
    let mut total = options.get("start").unwrap_or_else(|| Value::from(0));
    if total.as_str().is_some() {
        return Err(type_error("sum() can't sum strings [use ''.join(seq) instead]"));
    }
    for item in collect(value)? {
        let item = match &attribute {
            Some(attribute) => attribute_of(&item, attribute)?,
            None => item,
        };
        total = operator::add(&total, &item)?;
    }
    Ok(total)
}

fn unique(value: &Value, options: Rest<Value>, named: Kwargs) -> Result<Value, Error> {
    let options = Arguments::with_named("unique", &options, named, &["case_sensitive", "attribute"])?;
    let key = Key::new(&options);
    let mut known: HashMap<u64, Vec<Value>> = HashMap::new();
    let mut kept = Vec::new();
    for item in collect(value)? {
        let item_key = key.of(&item)?;
        let same = known.entry(compare::hash(&item_key)?).or_default();
        let mut is_known = false;
        for other in same.iter() {
            is_known = is_known || compare::equal(other, &item_key)?;
        }
        if !is_known {
            meter::make(4 * size_of::<Value>())?;
            same.push(item_key);
            kept.push(item);
        }
    }
    check_length(Some(kept.len()))?;
    list(kept)
}
