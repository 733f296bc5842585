//! The order in which the transforms of a buffer run.

use fulmar_tensor::{Tensor, TensorDict};
use fulmar_transform::{Compose, Result, Transform};
use serde_json::Value;

use crate::Outcome::{self, Decided, Same, Wrong};
use crate::value::tensor;

pub(crate) fn run(row: &Value) -> Outcome {
    let mut transforms = Compose::default();
    let mut rows = TensorDict::new(&[3]).unwrap();
    rows.set("x", Tensor::from_vec(&[3], vec![0.0_f32, 1.0, 2.0]).unwrap()).unwrap();
    if row["config"] == "insert_transform(0, callable)" {
        assert!(row.get("error").is_some());
        transforms.insert(0, |dict| with_each(dict, |x| x + 1.0)).unwrap();
        let read = transforms.forward(rows).unwrap();
        assert_eq!(read.tensor("x").unwrap().to_f32_vec(), [1.0, 2.0, 3.0]);
        return Decided("a plain function can be put anywhere");
    }
    assert_eq!(
        row["config"],
        "append x+1; append x*10; append(invert) x-100; append(invert) x*2; extend [0,1,2]"
    );
    transforms.push(|dict| with_each(dict, |x| x + 1.0));
    transforms.push(|dict| with_each(dict, |x| x * 10.0));
    transforms.push(AtWrite(|x| x - 100.0));
    transforms.push(AtWrite(|x| x * 2.0));
    let stored = transforms.inverse(rows.clone()).unwrap().unwrap();
    let read = transforms.forward(stored.clone()).unwrap();
    let one = transforms.forward(stored.index(1).unwrap()).unwrap();
    for (at, dict) in [rows, stored, read, one].iter().enumerate() {
        if *dict.tensor("x").unwrap() != tensor(&row["ok"]["$dict"][at][1]) {
            return Wrong(format!("{dict:?}"));
        }
    }
    Same
}

struct AtWrite(fn(f32) -> f32);

impl Transform for AtWrite {
    fn inverse(&mut self, dict: TensorDict) -> Result<Option<TensorDict>> {
        with_each(dict, self.0).map(Some)
    }
}

fn with_each(mut dict: TensorDict, to: fn(f32) -> f32) -> Result<TensorDict> {
    let x = dict.tensor("x")?;
    let values = x.to_f32_vec().into_iter().map(to).collect();
    let changed = Tensor::from_vec(x.shape(), values)?;
    dict.set("x", changed)?;
    Ok(dict)
}
