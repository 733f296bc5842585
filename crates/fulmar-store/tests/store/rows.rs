//! Rows of dictionaries as records.

use fulmar_core::{ErrorKind, Result};
use fulmar_store::{MemoryDisk, RowSchema, Store, StoreOptions};
use fulmar_tensor::{NonTensor, Ragged, Tensor, TensorDict};
use serde_json::json;

/// Returns every kind of entry, nested, with a dictionary of a longer batch.
fn items() -> Result<TensorDict> {
    let mut steps = TensorDict::new(&[2, 3])?;
    steps.set("value", Tensor::from_vec(&[2, 3], (0..6_i64).collect())?)?;
    steps.set("note", NonTensor::nested(&[2, 3], json!([["a", 1, null], [[], {}, "b"]]))?)?;
    let mut items = TensorDict::new(&[2])?;
    items.set("reward", Tensor::from_vec_f32(&[2, 1], vec![0.5, -1.0])?)?;
    items.set("steps", steps)?;
    let ids = Tensor::from_vec(&[3], vec![7_u32, 8, 9])?;
    items.set(["next", "ids"], Ragged::new(ids, &[0_u32, 3, 3])?)?;
    items.set("done", Tensor::from_vec(&[2], vec![true, false])?)?;
    Ok(items)
}

#[test]
fn rows_come_back_from_a_store_with_their_schema() {
    let disk = MemoryDisk::default();
    let schema = RowSchema::of(&items().unwrap()).unwrap();
    let options = StoreOptions { schema: schema.to_text(), segment_bytes: 1 << 16, ..StoreOptions::new(4) };
    let mut store = Store::open(disk.clone(), &options).unwrap();
    let records = schema.encode(&items().unwrap()).unwrap();
    store.append(&records.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap();
    store.close().unwrap();

    let options = Store::describe(&disk).unwrap().unwrap();
    let store = Store::open(disk, &options).unwrap();
    let found: Vec<_> = (0..store.len()).map(|slot| store.read(slot).unwrap()).collect();
    assert_eq!(RowSchema::parse(store.schema()).unwrap().decode(&found).unwrap(), items().unwrap());
    assert_eq!(schema.decode(&found[1..]).unwrap(), items().unwrap().slice(1..2).unwrap());
}

#[test]
fn the_bytes_of_a_record_are_its_columns_in_order() {
    let mut items = TensorDict::new(&[1]).unwrap();
    items.set("b", Tensor::from_vec(&[1, 2], vec![1_i32, -1]).unwrap()).unwrap();
    items.set("a", NonTensor::shared(json!("x"))).unwrap();
    let ids = Tensor::from_vec(&[2], vec![5_u8, 6]).unwrap();
    items.set("ids", Ragged::new(ids, &[0_u32, 2]).unwrap()).unwrap();
    let schema = RowSchema::of(&items).unwrap();
    let expected =
        [&1_i32.to_le_bytes()[..], &(-1_i32).to_le_bytes(), &[3, 0, 0, 0], b"\"x\"", &[2, 0, 0, 0, 5, 6]];
    assert_eq!(schema.encode(&items).unwrap(), [expected.concat()]);
    let text = concat!(
        r#"{"format":1,"columns":[{"key":["b"],"kind":"tensor","dtype":"i32","shape":[2]},"#,
        r#"{"key":["a"],"kind":"json","batch":[]},{"key":["ids"],"kind":"ragged","dtype":"u8","shape":[]}]}"#
    );
    assert_eq!(schema.to_text(), text);
}

#[test]
fn items_of_another_schema_are_refused_by_the_name_of_the_leaf() {
    let schema = RowSchema::of(&items().unwrap()).unwrap();
    let refused = |change: &dyn Fn(&mut TensorDict)| {
        let mut items = items().unwrap();
        change(&mut items);
        let error = schema.encode(&items).unwrap_err();
        (error.kind(), error.detail().split(" must").next().unwrap().to_owned())
    };
    let is = |key: &str| (ErrorKind::Incompatible, key.to_owned());
    assert_eq!(refused(&|items| drop(items.remove("done").unwrap())), is("\"done\""));
    let wider = Tensor::from_vec_f32(&[2, 2], vec![0.0; 4]).unwrap();
    assert_eq!(refused(&|items| items.set("reward", wider.clone()).unwrap()), is("\"reward\""));
    let longs = Tensor::from_vec(&[2], vec![1_i64, 2]).unwrap();
    assert_eq!(refused(&|items| items.set("done", longs.clone()).unwrap()), is("\"done\""));
    assert_eq!(
        refused(&|items| items.set(["next", "new"], longs.clone()).unwrap()),
        is(r#"["next", "new"]"#)
    );
    assert_eq!(
        schema.encode(&items().unwrap().index(0).unwrap()).unwrap_err().kind(),
        ErrorKind::ShapeMismatch
    );
}

#[test]
fn records_that_are_cut_or_too_long_or_changed_are_corrupt_or_right_in_form() {
    let schema = RowSchema::of(&items().unwrap()).unwrap();
    let record = schema.encode(&items().unwrap()).unwrap().remove(0);
    for len in 0..record.len() {
        assert_eq!(schema.decode(&[&record[..len]]).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    let longer = [&record[..], &[0]].concat();
    assert_eq!(schema.decode(&[longer]).unwrap_err().kind(), ErrorKind::Corrupt);
    for bit in 0..8 * record.len() {
        let mut changed = record.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        if let Err(error) = schema.decode(&[changed]) {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "bit {bit}: {error}");
        }
    }
}

#[test]
fn schemas_of_another_form_are_refused() {
    let kind = |text: &str| RowSchema::parse(text).unwrap_err().kind();
    assert_eq!(kind("{"), ErrorKind::Malformed);
    assert_eq!(kind(r#"{"format":2,"columns":[]}"#), ErrorKind::Incompatible);
    assert_eq!(kind(r#"{"format":1,"columns":[],"more":1}"#), ErrorKind::UnknownName);
    let tensor = |dtype: &str, shape: &str| {
        kind(&format!(
            r#"{{"format":1,"columns":[{{"key":["a"],"kind":"tensor","dtype":"{dtype}","shape":{shape}}}]}}"#
        ))
    };
    assert_eq!(tensor("f31", "[]"), ErrorKind::UnknownName);
    assert_eq!(tensor("f64", "[4611686018427387904]"), ErrorKind::LimitExceeded);
    assert_eq!(tensor("f64", "[4611686018427387904, 8]"), ErrorKind::LimitExceeded);
}
