//! Texts of hundreds of megabytes. They are in a program of their own, as another test compares the memory of its process.

use std::fs;
use std::io::Write;
use std::path::PathBuf;

use fulmar_core::ErrorKind;
use fulmar_tensor::{NonTensor, TensorDict, memmap};
use serde_json::Value;

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-long-texts-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

#[test]
fn a_description_may_be_as_long_as_its_limit_and_no_byte_longer() {
    let limit = fulmar_core::limits::MEMMAP_VALUES_BYTES_MAX;
    let padded = |len: usize| {
        let mut text =
            br#"{"shape":[2],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>"}"#.to_vec();
        text.resize(len, b' ');
        text
    };
    let target = scratch("limit");
    fs::create_dir_all(&target).unwrap();
    fs::write(target.join("meta.json"), padded(limit)).unwrap();
    assert_eq!(memmap::load(&target).unwrap(), TensorDict::new(&[2]).unwrap());
    fs::OpenOptions::new().append(true).open(target.join("meta.json")).unwrap().write_all(b" ").unwrap();
    assert_eq!(memmap::load(&target).unwrap_err().kind(), ErrorKind::LimitExceeded);
    fs::remove_dir_all(target).unwrap();
}

#[test]
fn texts_of_many_rows_come_back() {
    let num_rows = 300_000;
    let texts = (0..num_rows).map(|row| Value::from(format!("{row}: {}", "pick the apple up ".repeat(4))));
    let mut dict = TensorDict::new(&[num_rows]).unwrap();
    dict.set("text", NonTensor::each(&[num_rows], texts.collect()).unwrap()).unwrap();
    let target = scratch("texts");
    memmap::save(&target, &dict).unwrap();
    assert!(fs::metadata(target.join("text/meta.json")).unwrap().len() > 1 << 24);
    assert_eq!(memmap::load(&target).unwrap(), dict);
    fs::remove_dir_all(target).unwrap();
}
