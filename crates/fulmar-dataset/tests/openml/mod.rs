//! Tables of OpenML as torchrl 0.14.1 and scikit-learn 1.9.1 encode them, and files that are no ARFF.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::BufReader;

use fulmar_core::ErrorKind;
use fulmar_dataset::{ArffColumn, OPENML_IDS, OpenmlOptions, open_openml, read_arff, read_openml};
use fulmar_tensor::TensorDict;
use proptest::prelude::*;
use serde_json::Value;

use super::golden_rows::{golden, rows_of};
use super::golden_value;

fn class() -> OpenmlOptions {
    OpenmlOptions { target: "class".to_owned(), ignored: Vec::new() }
}

/// The options of OpenML's own answer, and the file that it names.
fn described(name: &str) -> (std::path::PathBuf, OpenmlOptions) {
    let folder = golden("raw/web/www.openml.org");
    let entries = fs::read_dir(folder.join("api/v1/json/data")).unwrap();
    let texts = entries.filter_map(|entry| fs::read_to_string(entry.unwrap().path()).ok());
    let mut answers =
        texts.map(|text| serde_json::from_str::<Value>(&text).unwrap()["data_set_description"].clone());
    let about = answers.find(|about| about["name"].as_str().unwrap().eq_ignore_ascii_case(name)).unwrap();
    let url = about["url"].as_str().unwrap().strip_prefix("https://www.openml.org/").unwrap();
    let target = about["default_target_attribute"].as_str().unwrap().to_owned();
    (folder.join(url), OpenmlOptions { target, ignored: Vec::new() })
}

#[test]
fn tables_become_the_numbers_of_torchrl() {
    let rows = rows_of("datasets.jsonl", "OpenML");
    let loaded: Vec<_> = rows.iter().filter(|row| row["ok"].is_object()).collect();
    assert_eq!(loaded.len(), OPENML_IDS.len());
    for row in loaded {
        let id = row["dataset_id"].as_str().unwrap();
        let name = id.split('_').next().unwrap();
        let (path, options) = described(if name == "magic" { "MagicTelescope" } else { name });
        assert_close(&open_openml(id, path, &options).unwrap(), &row["ok"]["all"], id);
    }
}

fn assert_close(table: &TensorDict, want: &Value, at: &str) {
    let (x, y) = (table.tensor("X").unwrap(), table.tensor("y").unwrap());
    let want_x = golden_value::tensor(&want["k"]["X"]);
    assert_eq!(y, &golden_value::tensor(&want["k"]["y"]), "{at}");
    assert_eq!(x.shape(), want_x.shape(), "{at}");
    for (found, want) in x.to_vec::<f64>().unwrap().iter().zip(want_x.to_vec::<f64>().unwrap()) {
        assert!((found - want).abs() <= 1e-12 + 1e-12 * want.abs(), "{at}: {found} is not {want}");
    }
}

#[test]
fn broken_arff_files_are_typed_errors() {
    let mut seen = 0;
    for row in rows_of("broken.jsonl", "OpenML") {
        let Some(path) = row["files"][0].as_str() else { continue };
        seen += 1;
        let must = row["must"].as_str().unwrap();
        let file = BufReader::new(File::open(golden(path)).unwrap());
        match (must.starts_with("loads"), read_arff(file)) {
            (true, Ok(columns)) => assert!(!columns[0].values.is_empty(), "{path}"),
            (true, Err(error)) => panic!("{path}: {error}"),
            (false, Ok(_)) => panic!("{path}: must be {must}"),
            (false, Err(error)) => {
                let error = open_openml("magic", golden(path), &class()).unwrap_err().at(error);
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{path}");
                assert!(error.detail().contains(path), "{path}: {error}");
                assert!(!must.contains("line") || error.detail().contains("line 5"), "{path}: {error}");
                assert!(
                    !must.contains("attribute") || error.detail().contains("attribute \""),
                    "{path}: {error}"
                );
            }
        }
    }
    assert_eq!(seen, 9);
}

#[test]
fn files_have_the_values_that_their_rows_state() {
    let read = |name: &str| {
        let path = golden(&format!("broken/openml/{name}.arff"));
        read_arff(BufReader::new(File::open(path).unwrap())).unwrap()
    };
    let good = read("good");
    assert_eq!((good[0].values[0], good[0].values[1]), (1.0, 2.5));
    assert!(good[0].values[2].is_nan());
    assert_eq!(good[1].values, [0.0, 1.0, 0.0]);
    let sparse = read("sparse");
    assert_eq!((&sparse[0].values[..], &sparse[1].values[..]), (&[1.5, 0.0][..], &[1.0, 0.0][..]));
    let escaped = read("escaped");
    assert_eq!((escaped[0].name.as_str(), escaped[1].values[0]), ("it's", 0.0));
}

#[test]
fn other_lines_are_refused_with_the_reason() {
    let refuse = |text: &str, kind: ErrorKind, part: &str| {
        let error = read_arff(text.as_bytes()).unwrap_err();
        assert!(error.kind() == kind && error.detail().contains(part), "{text:?}: {error}");
    };
    refuse("@attribute a string\n@data\n", ErrorKind::Incompatible, "line 1: attribute \"a\"");
    refuse("@attribute a\n@data\n", ErrorKind::Corrupt, "numeric or a list");
    refuse("@attribute\n", ErrorKind::Corrupt, "must have a name");
    refuse("@attribute a {x\n", ErrorKind::Corrupt, "brace must be closed");
    refuse("@attribute a real\n@attribute a real\n", ErrorKind::Corrupt, "\"a\" twice");
    refuse("@data\n1\n", ErrorKind::Corrupt, "line 2");
    refuse("hello\n", ErrorKind::Corrupt, "got \"hello\"");
    refuse("@attribute a real\n@data\n1,\n", ErrorKind::Corrupt, "comma");
    refuse("@attribute a real\n@attribute b real\n@data\n1\n", ErrorKind::Corrupt, "2 values: got 1");
    refuse("@attribute a {x}\n@data\n'x' y\n", ErrorKind::Corrupt, "end at a comma");
    refuse("@attribute a real\n@data\n{1 2}\n", ErrorKind::Corrupt, "below 1: got 1");
    refuse("@attribute a real\n@data\n{0 1, 0 2}\n", ErrorKind::Corrupt, "in order");
    refuse("@attribute a real\n@data\n{0 1}, {5}\n", ErrorKind::Incompatible, "weights");
    let latin = read_arff(&b"@attribute a\xff real\n"[..]).unwrap_err();
    assert!(latin.detail().contains("UTF-8"));
}

#[test]
fn tables_that_lack_what_they_need_are_refused() {
    let refuse = |id: &str, text: &str, target: &str, kind: ErrorKind| {
        let options = OpenmlOptions { target: target.to_owned(), ignored: Vec::new() };
        let error = read_openml(id, read_arff(text.as_bytes()).unwrap(), &options).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
    };
    refuse("iris", "@attribute a real\n@data\n1\n", "a", ErrorKind::UnknownName);
    refuse("magic", "@attribute a real\n@data\n1\n", "b", ErrorKind::UnknownName);
    refuse("magic", "@attribute a real\n@data\n1\n", "a", ErrorKind::Incompatible);
    refuse("magic", "@attribute a {x}\n@data\n", "a", ErrorKind::Empty);
    refuse("magic", "@attribute a {x}\n@data\n?\n", "a", ErrorKind::Corrupt);
    refuse("adult_num", "@attribute a {x}\n@data\nx\n", "a", ErrorKind::UnknownName);
}

#[test]
fn columns_that_are_no_features_are_left_out() {
    let text = "@attribute id real\n@attribute w real\n@attribute class {x}\n@data\n1,4,x\n2,4,x\n";
    let options = OpenmlOptions { ignored: vec!["id".to_owned()], ..class() };
    let table = read_openml("magic", read_arff(text.as_bytes()).unwrap(), &options).unwrap();
    assert_eq!(table.tensor("X").unwrap().to_vec::<f64>().unwrap(), [0.0, 0.0]);
}

/// A writer of the format, for tables of any names and values.
fn written(columns: &[ArffColumn], sparse: bool) -> String {
    let quoted = |text: &str| format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"));
    let mut text = "% by a test\n@RELATION r\n".to_owned();
    for column in columns {
        let kind = column.nominal.as_ref().map_or("REAL".to_owned(), |names| {
            format!("{{{}}}", names.iter().map(|name| quoted(name)).collect::<Vec<_>>().join(","))
        });
        writeln!(text, "@ATTRIBUTE {} {kind}", quoted(&column.name)).unwrap();
    }
    text.push_str("@DATA\n");
    for row in 0..columns[0].values.len() {
        let value = |column: &ArffColumn| match (&column.nominal, column.values[row]) {
            (_, value) if value.is_nan() => "?".to_owned(),
            (Some(names), value) => quoted(&names[value as usize]),
            (None, value) => value.to_string(),
        };
        let line = match sparse {
            true => {
                let there = columns.iter().enumerate().filter(|(_, column)| column.values[row] != 0.0);
                let parts = there.map(|(place, column)| format!("{place} {}", value(column)));
                format!("{{{}}}", parts.collect::<Vec<_>>().join(", "))
            }
            false => columns.iter().map(value).collect::<Vec<_>>().join(","),
        };
        writeln!(text, "{line}").unwrap();
    }
    text
}

/// Columns of names with quotes, commas and braces.
fn tables() -> impl Strategy<Value = Vec<ArffColumn>> {
    let names = proptest::collection::btree_set("[a-z'\"\\\\,{} é%?]{1,6}", 1..5);
    (names, 0_usize..4, proptest::collection::vec((any::<u8>(), -1e6..1e6_f64), 16)).prop_map(
        |(names, num_rows, draws)| {
            let names: Vec<_> = names.into_iter().collect();
            let column = |(place, name): (usize, &String)| {
                let nominal = (place % 2 == 1).then(|| names.clone());
                let values = (0..num_rows).map(|row| {
                    let (kind, number) = draws[(place + row * 4) % 16];
                    match (kind % 4, &nominal) {
                        (0, _) => f64::NAN,
                        (_, Some(names)) => f64::from(kind) % names.len() as f64,
                        (1, None) => 0.0,
                        _ => number,
                    }
                });
                let values = values.collect();
                ArffColumn { name: name.clone(), nominal, values }
            };
            names.iter().enumerate().map(column).collect()
        },
    )
}

proptest! {
    #[test]
    fn what_a_writer_writes_is_read(columns in tables(), sparse in any::<bool>()) {
        let read = read_arff(written(&columns, sparse).as_bytes()).unwrap();
        prop_assert_eq!(format!("{read:?}"), format!("{columns:?}"));
    }

    #[test]
    fn any_text_is_read_or_refused(text in "(@attribute [a-c'{},]{1,9} ?(real)?\n){0,3}(@data\n)?([\\PC\n]{0,80})") {
        let _ = read_arff(text.as_bytes());
    }
}
