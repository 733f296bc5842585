//! Properties of every spec: draws and projections are in the domain, JSON round-trips, structure keeps
//! masks.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_core::{Dtype, Rng};
use fulmar_spec::{
    At, Choice, Composite, NonTensorSpec, Operation, Shape, TensorSpec, check_no_exclusive_keys,
    consolidate_spec,
};
use fulmar_tensor::{Entry, Index, Tensor};
use proptest::prelude::*;
use serde_json::{Value, json};

fn dtypes() -> impl Strategy<Value = Dtype> {
    proptest::sample::select(Dtype::ALL.to_vec())
}

fn shapes() -> impl Strategy<Value = Vec<usize>> {
    prop::collection::vec(1..4_usize, 0..3)
}

/// Returns a leaf of any class, some of them masked or with bounds that vary.
fn leaves() -> impl Strategy<Value = TensorSpec> {
    let unbounded =
        (shapes(), dtypes()).prop_map(|(shape, dtype)| TensorSpec::unbounded(&*shape, dtype).unwrap());
    let bounded = (shapes(), dtypes(), -50..50_i32, 0..60_i32, any::<bool>()).prop_map(
        |(shape, dtype, low, span, vary)| {
            let low = if matches!(dtype, Dtype::Bool | Dtype::U8 | Dtype::U32) { low.abs() } else { low };
            let (low, high) = if dtype == Dtype::Bool { (0, span % 2) } else { (low, low + span) };
            let last = if vary { shape.last().copied().unwrap_or(1) } else { 1 };
            let lows = Tensor::from_vec(
                &[last],
                (0..last)
                    .map(|at| f64::from(low) + if at % 2 == 0 { 0.0 } else { f64::from(high - low) })
                    .collect(),
            )
            .unwrap();
            let lows = if shape.is_empty() { lows.select(0, 0).unwrap() } else { lows };
            TensorSpec::bounded_by(
                &lows,
                &Tensor::from_vec(&[], vec![f64::from(high)]).unwrap(),
                &*shape,
                dtype,
            )
            .unwrap()
        },
    );
    let whole = || proptest::sample::select(vec![Dtype::I64, Dtype::I32, Dtype::U8, Dtype::F32, Dtype::I8]);
    let categorical = (shapes(), whole(), 1..6_usize, any::<u64>()).prop_map(|(shape, dtype, n, seed)| {
        let mut spec = TensorSpec::categorical(n, &*shape, dtype).unwrap();
        spec.update_mask(mask(&[&*shape, &[n]].concat(), &[n], seed)).unwrap();
        spec
    });
    let one_hot = (shapes(), dtypes(), 1..6_usize, any::<u64>()).prop_map(|(shape, dtype, n, seed)| {
        let full = [&*shape, &[n]].concat();
        let mut spec = TensorSpec::one_hot(n, &*full, dtype).unwrap();
        spec.update_mask(mask(&full, &[n], seed)).unwrap();
        spec
    });
    let multi = (shapes(), prop::collection::vec(1..4_usize, 1..4), any::<bool>(), any::<u64>()).prop_map(
        |(shape, nvec, one_hot, seed)| {
            let total = nvec.iter().sum();
            let mut spec = if one_hot {
                TensorSpec::multi_one_hot(&nvec, &*[&*shape, &[total]].concat(), Dtype::Bool).unwrap()
            } else {
                TensorSpec::multi_categorical(&nvec, &*[&*shape, &[nvec.len()]].concat(), Dtype::I64).unwrap()
            };
            spec.update_mask(mask(&[&*shape, &[total]].concat(), &nvec, seed)).unwrap();
            spec
        },
    );
    let binary = (shapes(), dtypes())
        .prop_map(|(shape, dtype)| TensorSpec::binary(&*[&*shape, &[2]].concat(), dtype).unwrap());
    prop_oneof![unbounded, bounded, categorical, one_hot, multi, binary]
}

/// Returns a mask that allows at least the first value of each block; every other seed gives none.
fn mask(shape: &[usize], blocks: &[usize], seed: u64) -> Option<Tensor> {
    if seed.is_multiple_of(2) {
        return None;
    }
    let mut rng = Rng::new(seed);
    let len: usize = shape.iter().product();
    let mut flags: Vec<bool> = (0..len).map(|_| rng.next_u32().is_multiple_of(2)).collect();
    let (mut at, mut block) = (0, 0);
    while at < len {
        flags[at] = true;
        at += blocks[block % blocks.len()];
        block += 1;
    }
    Some(Tensor::from_vec(shape, flags).unwrap())
}

/// Any spec whose values are tensors or dictionaries of them.
fn specs() -> impl Strategy<Value = TensorSpec> {
    leaves().prop_recursive(3, 12, 3, |inner| {
        prop::collection::vec(inner, 0..3).prop_map(|inner| {
            let mut composite = Composite::new([]).unwrap();
            for (at, spec) in inner.into_iter().enumerate() {
                composite.set(format!("k{at}").as_str(), spec).unwrap();
            }
            composite.into()
        })
    })
}

/// Returns arbitrary numbers in the shape of the spec.
fn wild(spec: &TensorSpec, rng: &mut Rng) -> Entry {
    let shape = spec.shape().sizes();
    let len = shape.iter().product();
    let number = |rng: &mut Rng| match rng.next_u32() % 6 {
        0 => f64::NAN,
        1 => f64::INFINITY,
        2 => f64::NEG_INFINITY,
        3 => -0.0,
        _ => rng.normal() * 100.0,
    };
    Tensor::from_vec(&shape, (0..len).map(|_| number(rng)).collect::<Vec<f64>>()).unwrap().into()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn draws_are_in_the_domain_and_projections_leave_them_alone(spec in specs(), seed: u64, batch in shapes()) {
        let value = spec.rand(&mut Rng::new(seed), &batch).unwrap();
        prop_assert_eq!(spec.check(&value), Ok(()));
        prop_assert_eq!(spec.project(&value).unwrap(), value.clone());
        prop_assert_eq!(spec.rand(&mut Rng::new(seed), &batch).unwrap(), value, "a seed fixes the draw");
    }

    #[test]
    fn projections_are_in_the_domain_and_final(spec in leaves(), seed: u64) {
        let projected = spec.project(&wild(&spec, &mut Rng::new(seed))).unwrap();
        prop_assert_eq!(spec.check(&projected), Ok(()));
        prop_assert_eq!(spec.project(&projected).unwrap(), projected);
    }

    #[test]
    fn what_is_decoded_is_encoded_again(spec in specs(), seed: u64) {
        let value = spec.rand(&mut Rng::new(seed), &[]).unwrap();
        let plain = spec.decode(&value).unwrap();
        prop_assert_eq!(spec.encode(&plain).unwrap(), value);
    }

    #[test]
    fn json_gives_the_same_spec(spec in specs()) {
        prop_assert_eq!(TensorSpec::from_json(&spec.to_json().to_string()).unwrap(), spec);
    }

    #[test]
    fn a_dimension_that_comes_and_goes_changes_nothing(spec in specs()) {
        prop_assert_eq!(&spec.unsqueeze(0).unwrap().squeeze(0).unwrap(), &spec);
        prop_assert_eq!(&spec.unsqueeze(0).unwrap().at(&[At::Index(0)]).unwrap(), &spec);
        prop_assert_eq!(&spec.at(&[At::Ellipsis]).unwrap(), &spec);
    }

    /// The oracle of all structure: a part of a spec accepts a part of a value if the spec accepts the value.
    #[test]
    fn a_part_of_a_value_is_of_the_part_of_its_spec(spec in leaves(), seed: u64) {
        let (rows, columns) = (3, 2);
        let mut wide = spec.clone();
        let shape = spec.shape().sizes();
        wide = wide.expand(&*[&[rows, columns], &*shape].concat()).unwrap();
        let value = wide.rand(&mut Rng::new(seed), &[]).unwrap();
        let Entry::Tensor(tensor) = &value else { unreachable!() };
        for row in 0..rows {
            let part = tensor.select(0, row).unwrap();
            prop_assert_eq!(wide.at(&[At::Index(row)]).unwrap().check(&part.into()), Ok(()));
        }
        let flat = tensor.reshape(&[&[rows * columns], &*shape].concat()).unwrap();
        prop_assert_eq!(wide.flatten(0, 1).unwrap().check(&flat.into()), Ok(()));
        let back = wide.flatten(0, 1).unwrap().unflatten(0, [rows, columns]).unwrap();
        prop_assert_eq!(&back, &wide);
        prop_assert_eq!(TensorSpec::stack(&wide.unbind(0).unwrap(), 0).unwrap(), wide);
    }

    /// Masks and bounds that differ along a dimension move with it.
    #[test]
    fn a_dimension_of_a_masked_spec_is_indexed_with_its_mask(n in 2..5_usize, rows in 1..4_usize, columns in 1..4_usize, seed: u64) {
        let mut spec = TensorSpec::categorical(n, [rows, columns], Dtype::I64).unwrap();
        let flags = mask(&[rows, columns, n], &[n], seed | 1).unwrap();
        spec.update_mask(Some(flags.clone())).unwrap();
        let mut rng = Rng::new(seed);
        for row in 0..rows {
            for column in 0..columns {
                let cell = spec.at(&[At::Index(row), At::Index(column)]).unwrap();
                let flat = spec.reshape([rows * columns]).unwrap().at(&[At::Index(row * columns + column)]).unwrap();
                prop_assert_eq!(&cell, &flat);
                let allowed = flags.select(0, row).unwrap().select(0, column).unwrap().to_vec::<bool>().unwrap();
                for (value, allowed) in allowed.iter().enumerate() {
                    let value = Tensor::from_vec(&[], vec![value as i64]).unwrap();
                    prop_assert_eq!(cell.contains(&value.into()), *allowed);
                }
                prop_assert!(cell.contains(&cell.rand(&mut rng, &[5]).unwrap()));
            }
        }
        let column = spec.at(&[At::All, At::Indices(vec![columns - 1])]).unwrap();
        prop_assert_eq!(column.at(&[At::Index(0), At::Index(0)]).unwrap(), spec.at(&[At::Index(0), At::Index(columns - 1)]).unwrap());
    }

    #[test]
    fn an_enumeration_holds_each_value_once(spec in specs()) {
        let count = spec.cardinality().unwrap();
        prop_assume!(count.is_some_and(|count| count < 2_000));
        let all = spec.enumerate(false).unwrap();
        let (len, rows): (usize, Vec<Entry>) = match &all {
            Entry::Tensor(tensor) => (tensor.shape()[0], (0..tensor.shape()[0]).map(|at| tensor.select(0, at).unwrap().into()).collect()),
            Entry::Dict(dict) => (dict.batch_size()[0], (0..dict.batch_size()[0]).map(|at| dict.index(at).unwrap().into()).collect()),
            _ => unreachable!(),
        };
        prop_assert_eq!(Some(len as u128), count);
        for (at, row) in rows.iter().enumerate() {
            prop_assert!(!rows[..at].contains(row));
        }
    }
}

/// Any structural operation, most of them refused.
#[derive(Debug, Clone)]
enum Move {
    Expand(Vec<i64>),
    Reshape(Vec<i64>),
    Flatten(usize, usize),
    Unflatten(usize, Vec<i64>),
    Unsqueeze(usize),
    Squeeze(usize),
    SqueezeAll,
    Unbind(usize),
    At(Vec<At>),
    Stack(usize),
}

fn moves() -> impl Strategy<Value = Move> {
    let dims = || prop::collection::vec(-2..7_i64, 0..4);
    let at = prop_oneof![
        (0..4_usize).prop_map(At::Index),
        (0..4_usize, 0..4_usize).prop_map(|(start, end)| At::Range(start..end)),
        prop::collection::vec(0..3_usize, 0..3).prop_map(At::Indices),
        Just(At::New),
        Just(At::All),
        Just(At::Ellipsis),
    ];
    prop_oneof![
        dims().prop_map(Move::Expand),
        dims().prop_map(Move::Reshape),
        (0..3_usize, 0..3_usize).prop_map(|(first, last)| Move::Flatten(first, last)),
        (0..3_usize, dims()).prop_map(|(dim, sizes)| Move::Unflatten(dim, sizes)),
        (0..4_usize).prop_map(Move::Unsqueeze),
        (0..4_usize).prop_map(Move::Squeeze),
        Just(Move::SqueezeAll),
        (0..3_usize).prop_map(Move::Unbind),
        prop::collection::vec(at, 0..4).prop_map(Move::At),
        (0..3_usize).prop_map(Move::Stack),
    ]
}

impl Move {
    fn of(&self, spec: &TensorSpec, other: &TensorSpec) -> fulmar_spec::Result<TensorSpec> {
        match self {
            Self::Expand(dims) => spec.expand(Shape::from_signed(dims)?),
            Self::Reshape(dims) => spec.reshape(Shape::from_signed(dims)?),
            Self::Flatten(first, last) => spec.flatten(*first, *last),
            Self::Unflatten(dim, sizes) => spec.unflatten(*dim, Shape::from_signed(sizes)?),
            Self::Unsqueeze(dim) => spec.unsqueeze(*dim),
            Self::Squeeze(dim) => spec.squeeze(*dim),
            Self::SqueezeAll => spec.squeeze_all(),
            Self::Unbind(dim) => {
                spec.unbind(*dim).map(|parts| parts.into_iter().next_back().unwrap_or_else(|| spec.clone()))
            }
            Self::At(index) => spec.at(index),
            Self::Stack(dim) => TensorSpec::stack(&[spec.clone(), other.clone()], *dim),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_structure_gives_is_a_spec_whose_draws_are_its_own(
        first in specs(), second in specs(), moves in prop::collection::vec(moves(), 1..6), seed: u64,
    ) {
        let mut spec = first;
        for step in moves {
            spec = step.of(&spec, &second).unwrap_or(spec);
        }
        prop_assert_eq!(TensorSpec::unbind(&spec.unsqueeze(0).unwrap(), 0).unwrap(), [spec.clone()]);
        // Stacks of shapes that differ past their first dimension have no value.
        if let Ok(value) = spec.rand(&mut Rng::new(seed), &[]) {
            prop_assert_eq!(spec.check(&value), Ok(()));
            prop_assert_eq!(spec.project(&value).unwrap(), value);
        } else {
            prop_assert!(fulmar_spec::contains_lazy_spec(&spec));
        }
        let _ = (spec.cardinality(), spec.to_one_hot_spec(), spec.to_categorical_spec(), spec.one(&[2]));
        let _ = (consolidate_spec(&spec), check_no_exclusive_keys(&spec), spec.to_dtype(Dtype::Bool));
    }
}

/// JSON of an index, of which one item at most is a list or a mask.
fn indices() -> impl Strategy<Value = Vec<Value>> {
    let bound = || prop::option::of(-5..6_i64);
    let item = prop_oneof![
        (-4..4_i64).prop_map(|at| json!(at)),
        Just(json!(null)),
        Just(json!("...")),
        (bound(), bound(), 0..3_usize)
            .prop_map(|(start, stop, step)| json!({ "start": start, "stop": stop, "step": step })),
    ];
    let list = prop_oneof![
        prop::collection::vec(-3..3_i64, 0..4).prop_map(|at| json!(at)),
        prop::collection::vec(any::<bool>(), 1..4).prop_map(|mask| json!(mask)),
    ];
    (prop::collection::vec(item, 0..4), prop::option::of((0..4_usize, list))).prop_map(|(mut items, list)| {
        if let Some((at, list)) = list {
            items.insert(at.min(items.len()), list);
        }
        items
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// A spec is indexed like its values: the same JSON gives the same shape, or both refuse.
    #[test]
    fn an_index_means_to_a_spec_what_it_means_to_a_value(shape in prop::collection::vec(1..4_usize, 0..4), index in indices()) {
        let spec = TensorSpec::unbounded(&*shape, Dtype::U8).unwrap();
        let operation = json!({ "op": "at", "index": index }).to_string();
        let items: Vec<Index> = fulmar_core::options_from_json("index", &json!(index).to_string()).unwrap();
        let moved = fulmar_core::options_from_json::<Operation>("operation", &operation)
            .and_then(|operation| spec.operate(&operation));
        match Tensor::zeros(Dtype::U8, &shape).unwrap().at(&items) {
            Ok(part) => prop_assert_eq!(moved.map(|spec| spec.shape().sizes()), Ok(part.shape().to_vec())),
            Err(error) => prop_assert!(moved.is_err(), "the value refuses: {error}"),
        }
    }
}

/// JSON that looks like a spec and mostly is not one.
fn forms() -> impl Strategy<Value = Value> {
    let dims = || {
        prop::collection::vec(proptest::sample::select(vec![-2_i64, -1, 0, 1, 2, 3, 1 << 31, i64::MAX]), 0..4)
    };
    let number = prop_oneof![
        proptest::sample::select(vec![
            json!(-1),
            json!(0),
            json!(1),
            json!(2),
            json!(3),
            json!(300),
            json!(1_u64 << 53),
            json!(u64::MAX)
        ]),
        proptest::sample::select(vec![
            json!(0.5),
            json!(1e300),
            json!("NaN"),
            json!("Infinity"),
            json!("-Infinity"),
            json!(true)
        ]),
    ];
    let nested =
        number.prop_recursive(2, 8, 3, |inner| prop::collection::vec(inner, 0..4).prop_map(Value::Array));
    let class = proptest::sample::select(vec![
        "Unbounded",
        "Bounded",
        "Categorical",
        "OneHot",
        "MultiCategorical",
        "MultiOneHot",
        "Binary",
    ]);
    let name = proptest::sample::select(vec!["f64", "f32", "f16", "i64", "u8", "bool", "i8", "f8"]);
    let tables = (nested.clone(), nested.clone(), nested);
    let leaf = (class, prop::option::of(dims()), prop::option::of(name), tables, any::<[bool; 2]>())
        .prop_map(|(class, shape, dtype, (one, two, three), [masked, extra])| {
            let mut form = json!({ "type": class });
            if let Some(shape) = shape {
                form["shape"] = json!(shape);
            }
            if let Some(dtype) = dtype {
                form["dtype"] = json!(dtype);
            }
            match class {
                "Bounded" => (form["low"], form["high"]) = (one, two),
                "Categorical" | "OneHot" => form["n"] = one,
                "MultiCategorical" | "MultiOneHot" => form["nvec"] = one,
                _ if extra => form["n"] = one,
                _ => {}
            }
            if masked {
                form["mask"] = three;
            }
            form
        });
    leaf.prop_recursive(2, 6, 3, |inner| {
        prop_oneof![
            (0..3_usize, prop::collection::vec(inner.clone(), 0..3))
                .prop_map(|(dim, specs)| json!({ "type": "Stacked", "dim": dim, "specs": specs })),
            prop::collection::vec(inner.clone(), 0..3)
                .prop_map(|specs| json!({ "type": "Choice", "choices": specs })),
            (prop::option::of(inner.clone()), prop::option::of(inner))
                .prop_map(|(a, b)| json!({ "type": "Composite", "entries": { "a": a, "b": b } })),
        ]
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn json_from_outside_is_a_spec_or_a_typed_error(form in forms(), step in moves()) {
        let Ok(spec) = TensorSpec::from_json(&form.to_string()) else { return Ok(()) };
        prop_assert_eq!(TensorSpec::from_json(&spec.to_json().to_string()), Ok(spec.clone()));
        for spec in [step.of(&spec, &spec).unwrap_or_else(|_| spec.clone()), spec] {
            // Makes values of small specs only, to limit memory.
            if spec.shape().sizes().iter().try_fold(1_usize, |len, dim| len.checked_mul(*dim)).is_some_and(|len| len < 1_000) {
                if let Ok(value) = spec.rand(&mut Rng::new(1), &[]) {
                    prop_assert_eq!(spec.check(&value), Ok(()));
                }
                let _ = (spec.cardinality(), spec.to_one_hot_spec().map(|one_hot| one_hot.shape()), spec.encode(&json!([1, 0])));
            }
        }
    }
}

/// Tests `counts` draws over equally likely values, with the critical value at p = 0.001.
fn assert_uniform(counts: &[f64], critical: f64) {
    let mean = counts.iter().sum::<f64>() / counts.len() as f64;
    let chi_square: f64 = counts.iter().map(|count| (count - mean).powi(2) / mean).sum();
    assert!(
        chi_square < critical,
        "{} degrees of freedom: got {chi_square} for {counts:?}",
        counts.len() - 1
    );
}

fn drawn(spec: &TensorSpec, len: usize) -> Vec<f32> {
    let Entry::Tensor(tensor) = spec.rand(&mut Rng::new(17), &[len]).unwrap() else { unreachable!() };
    tensor.to_f32_vec()
}

#[test]
fn integers_between_bounds_are_uniform_and_both_bounds_come_up() {
    let spec = TensorSpec::bounded(-2.0, 2.0, [], Dtype::I64).unwrap();
    let mut counts = [0.0; 5];
    drawn(&spec, 20_000).iter().for_each(|x| counts[(*x + 2.0) as usize] += 1.0);
    assert_uniform(&counts, 18.47);
}

#[test]
fn floats_between_bounds_are_uniform() {
    let spec = TensorSpec::bounded(-1.0, 3.0, [], Dtype::F32).unwrap();
    let mut counts = [0.0; 8];
    drawn(&spec, 20_000).iter().for_each(|x| counts[((*x + 1.0) * 2.0) as usize] += 1.0);
    assert_uniform(&counts, 24.32);
}

#[test]
fn categorical_draws_are_uniform_over_what_the_mask_allows() {
    let mut spec = TensorSpec::categorical(10, [], Dtype::I64).unwrap();
    let mut counts = [0.0; 10];
    drawn(&spec, 20_000).iter().for_each(|x| counts[*x as usize] += 1.0);
    assert_uniform(&counts, 27.88);
    spec.update_mask(Some(Tensor::from_vec(&[10], (0..10).map(|at| at % 2 == 1).collect()).unwrap()))
        .unwrap();
    let mut counts = [0.0; 10];
    drawn(&spec, 20_000).iter().for_each(|x| counts[*x as usize] += 1.0);
    assert!(counts.iter().step_by(2).all(|count| *count == 0.0));
    assert_uniform(&counts.iter().skip(1).step_by(2).copied().collect::<Vec<_>>(), 18.47);
}

#[test]
fn one_hot_draws_are_uniform() {
    let spec = TensorSpec::one_hot(4, [4], Dtype::Bool).unwrap();
    let mut counts = [0.0; 4];
    drawn(&spec, 20_000).iter().enumerate().for_each(|(at, x)| counts[at % 4] += f64::from(*x));
    assert_uniform(&counts, 16.27);
}

#[test]
fn the_whole_range_of_a_dtype_is_drawn() {
    let bytes = drawn(&TensorSpec::unbounded([], Dtype::U8).unwrap(), 20_000);
    assert!(bytes.contains(&0.0) && bytes.contains(&255.0));
    let wide = TensorSpec::unbounded([], Dtype::I64).unwrap();
    assert!(drawn(&wide, 100).iter().any(|x| *x < -1e18) && drawn(&wide, 100).iter().any(|x| *x > 1e18));
}

#[test]
fn infinite_bounds_give_finite_draws_inside_the_others() {
    let positive = TensorSpec::bounded(3.0, f64::INFINITY, [], Dtype::F32).unwrap();
    assert!(drawn(&positive, 1_000).iter().all(|x| x.is_finite() && *x >= 3.0));
    let negative = TensorSpec::bounded(f64::NEG_INFINITY, -3.0, [], Dtype::F16).unwrap();
    assert!(drawn(&negative, 1_000).iter().all(|x| x.is_finite() && *x <= -3.0));
    let any = TensorSpec::bounded(f64::NEG_INFINITY, f64::INFINITY, [], Dtype::F64).unwrap();
    let draws = drawn(&any, 10_000);
    let mean = draws.iter().sum::<f32>() / draws.len() as f32;
    assert!(mean.abs() < 0.05, "{mean}");
}

#[test]
fn choices_draw_each_of_their_specs_and_project_to_the_nearest() {
    let low = TensorSpec::bounded(0.0, 2.5, [1], Dtype::F32).unwrap();
    let high = TensorSpec::bounded(10.0, 12.0, [1], Dtype::F32).unwrap();
    let choice = TensorSpec::Choice(Choice::of_specs(vec![low, high]).unwrap());
    let value = |x: f32| Entry::from(Tensor::from_vec(&[1], vec![x]).unwrap());
    assert!(choice.contains(&value(11.0)) && !choice.contains(&value(9.0)));
    assert_eq!(choice.project(&value(9.0)).unwrap(), value(10.0));
    assert_eq!(choice.project(&value(3.0)).unwrap(), value(2.5));
    let mut rng = Rng::new(2);
    let mut counts = [0.0; 2];
    for _ in 0..1_000 {
        let Entry::Tensor(tensor) = choice.rand(&mut rng, &[]).unwrap() else { unreachable!() };
        counts[usize::from(tensor.to_f32_vec()[0] > 5.0)] += 1.0;
    }
    assert_uniform(&counts, 10.83);
}

#[test]
fn json_values_are_kept_as_they_are() {
    let spec = TensorSpec::NonTensor(NonTensorSpec::new([2], json!("x"), true).unwrap());
    let value = spec.encode(&json!(["a", { "b": 1 }])).unwrap();
    assert_eq!(spec.decode(&value).unwrap(), json!(["a", { "b": 1 }]));
    assert!(spec.contains(&spec.rand(&mut Rng::new(1), &[3]).unwrap()));
    assert!(!spec.contains(&Tensor::from_vec(&[2], vec![1_u8, 2]).unwrap().into()));
    assert_eq!(TensorSpec::from_json(&spec.to_json().to_string()).unwrap(), spec);
}
