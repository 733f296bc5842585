//! Files of Open X-Embodiment: those of torchrl's rows, those of a writer of the test's own, damaged ones.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod golden_rows;
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;
mod pickle_writer;
mod tar_writer;

use std::fs;
use std::path::PathBuf;

use fulmar_core::ErrorKind;
use fulmar_core::limits::{EPISODE_BYTES_MAX, IMAGE_EXPANSION_MAX, IMAGE_SIDE_MAX};
use fulmar_dataset::{OpenXEpisode, convert_openx, read_openx};
use fulmar_tensor::{Tensor, TensorDict, memmap};
use proptest::prelude::*;
use serde_json::Value;

use self::golden_rows::{assert_rows, golden, rows_of};
use self::pickle_writer::{Plain, write};
use self::tar_writer::tar;

/// A path where nothing is.
fn new_path(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-openx-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

fn sources(row: &Value) -> Vec<PathBuf> {
    let folder = golden(row["source"].as_str().unwrap());
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    files
}

#[test]
fn files_become_the_rows_of_torchrl() {
    let mut seen = 0;
    for row in rows_of("datasets.jsonl", "OpenX").iter().filter(|row| row["ok"]["all"].is_object()) {
        let id = row["id"].as_str().unwrap();
        let folder = new_path(id);
        let num_steps = convert_openx(&sources(row), &folder).unwrap();
        assert_eq!(row["ok"]["len"], num_steps);
        let steps = memmap::load(&folder).unwrap();
        let mut want = row["ok"]["all"].clone();
        let steps = if row["dataset_id"] == "viola" { near_images(steps, &mut want) } else { steps };
        assert_rows(&steps, &want, id);
        for file in row["ok"]["files"].as_array().unwrap() {
            let (name, len) = (file[0].as_str().unwrap(), file[1].as_u64().unwrap());
            let found = fs::metadata(folder.join(name)).unwrap().len();
            assert!(name.ends_with(".json") || found == len, "{name} has {found} bytes, not {len}");
        }
        fs::remove_dir_all(folder).unwrap();
        seen += 1;
    }
    assert_eq!(seen, 3);
}

/// Compares images of JPEG, of which decoders may differ by 3, and takes them out of both.
fn near_images(mut steps: TensorDict, want: &mut Value) -> TensorDict {
    for path in [&["observation"][..], &["next", "observation"]] {
        let inner = path.iter().fold(&mut *want, |value, name| &mut value["k"][*name]);
        let image = inner["k"].as_object_mut().unwrap().remove("image").unwrap();
        let key = fulmar_tensor::Key::unravel(&serde_json::json!([path, &["image"]].concat())).unwrap();
        let found = steps.tensor(key.clone()).unwrap().to_vec::<u8>().unwrap();
        let numbers = |name: &str| serde_json::from_value::<Vec<u8>>(image[name].clone()).unwrap();
        let (head, tail) = (numbers("head"), numbers("tail"));
        let (first, last) = (&found[..head.len()], &found[found.len() - tail.len()..]);
        for (found, want) in first.iter().chain(last).zip(head.iter().chain(&tail)) {
            assert!(found.abs_diff(*want) <= 3, "{found} is not near {want}");
        }
        steps.remove(key).unwrap();
    }
    steps
}

#[test]
fn episodes_are_read_one_at_a_time_by_their_positions() {
    let row = &rows_of("datasets.jsonl", "OpenX")[0];
    let folder = new_path("positions");
    convert_openx(&sources(row), &folder).unwrap();
    let all = memmap::load(&folder).unwrap().tensor("action").unwrap().to_f32_vec();
    let mut found = Vec::new();
    for source in sources(row) {
        let mut start = 0;
        while let Some(episode) = OpenXEpisode::open(&source, start, 7).unwrap() {
            assert!(episode.end > start);
            assert!(
                episode.steps.tensor("episode").unwrap().to_vec::<i32>().unwrap().iter().all(|one| *one == 7)
            );
            found.extend(episode.steps.tensor("action").unwrap().to_f32_vec());
            start = episode.end;
        }
        assert_eq!(OpenXEpisode::open(&source, 1 << 40, 0).unwrap_err().kind(), ErrorKind::OutOfRange);
        assert_eq!(OpenXEpisode::open(&source, 7, 0).unwrap_err().kind(), ErrorKind::Corrupt);
    }
    assert_eq!(found, all);
    fs::remove_dir_all(folder).unwrap();
}

#[test]
fn broken_files_are_typed_errors() {
    let rows = rows_of("broken.jsonl", "OpenX");
    assert_eq!(rows.len(), 9);
    for row in &rows {
        let (path, must) = (row["files"][0].as_str().unwrap(), row["must"].as_str().unwrap());
        let folder = new_path("broken");
        let error = convert_openx(&[golden(path)], &folder).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(path) && !folder.exists(), "{text}");
        assert!(!must.contains("member") || text.contains("member \""), "{text}");
        let (kind, part) = match row["case"].as_str().unwrap() {
            "cut" => (ErrorKind::Corrupt, "bytes"),
            "no steps" => (ErrorKind::Empty, "\"steps\""),
            "no key steps" => (ErrorKind::UnknownName, "\"steps\""),
            "a step without is_last" => (ErrorKind::UnknownName, "\"is_last\""),
            "bytes that are no image" => (ErrorKind::Incompatible, "\"observation\": \"image\": step 0"),
            "action lengths differ" => (ErrorKind::ShapeMismatch, "\"action\""),
            "a pickle that calls os.getenv" => (ErrorKind::Forbidden, "\"os.getenv\""),
            "a pickle that never ends: 10^5 nested lists" => (ErrorKind::LimitExceeded, "64"),
            "a string of 4 GB declared in 20 bytes" => (ErrorKind::Corrupt, "4294967296"),
            other => panic!("{other}"),
        };
        assert!(error.kind() == kind && text.contains(part), "{:?}: {text}", error.kind());
        let streamed = OpenXEpisode::open(golden(path), 0, 0).unwrap_err();
        assert_eq!((streamed.kind(), streamed.to_string()), (error.kind(), text));
    }
}

/// A step with one observation; `change` changes its entries.
fn step(value: f64, is_last: bool, change: impl Fn(&mut Vec<(String, Plain)>)) -> Plain {
    let Plain::Dict(mut entries) = Plain::dict([
        ("observation", Plain::dict([("state", Plain::floats(&[value, value]))])),
        ("action", Plain::floats(&[value])),
        ("reward", Plain::Float(value)),
        ("is_first", Plain::Bool(value == 0.0)),
        ("is_last", Plain::Bool(is_last)),
        ("is_terminal", Plain::Bool(false)),
    ]) else {
        panic!("a dictionary")
    };
    change(&mut entries);
    Plain::Dict(entries)
}

fn set(entries: &mut Vec<(String, Plain)>, key: &str, value: Plain) {
    entries.retain(|(name, _)| name != key);
    entries.push((key.to_owned(), value));
}

fn file_of(episodes: &[Vec<Plain>], protocol: u8) -> Vec<u8> {
    let members = episodes.iter().enumerate().map(|(at, steps)| {
        (format!("{at}.data.pickle"), write(&Plain::dict([("steps", Plain::List(steps.clone()))]), protocol))
    });
    tar(&members.collect::<Vec<_>>())
}

fn read(file: &[u8]) -> fulmar_dataset::Result<Vec<TensorDict>> {
    let mut all = Vec::new();
    read_openx(file, 0, |steps| {
        all.push(steps.clone());
        Ok(())
    })?;
    Ok(all)
}

/// The file of one episode of `count` steps, in which `change` changes the steps by their positions.
fn changed(count: usize, change: impl Fn(usize, &mut Vec<(String, Plain)>)) -> Vec<u8> {
    let steps = (0..count).map(|at| step(at as f64, at + 1 == count, |entries| change(at, entries)));
    file_of(&[steps.collect()], 4)
}

proptest! {
    #[test]
    fn a_file_becomes_the_same_rows_one_by_one(lens in proptest::collection::vec(1_usize..6, 1..6), protocol in 0_u8..6, terminal in any::<bool>()) {
        let episodes: Vec<Vec<Plain>> = lens.iter().enumerate().map(|(number, len)| {
            (0..*len).map(|at| step(at as f64, at + 1 == *len, |entries| {
                set(entries, "is_terminal", Plain::Bool(terminal && at + 1 == *len));
                set(entries, "discount", Plain::Int(number as i64));
                set(entries, "depth", Plain::Array(">i2", vec![2], vec![0, at as u8, 1, number as u8]));
                set(entries, "language_instruction", Plain::Text(format!("do {number}")));
            })).collect()
        }).collect();
        let found = read(&file_of(&episodes, protocol)).unwrap();
        prop_assert_eq!(found.len(), lens.len());
        for (number, (steps, len)) in found.iter().zip(&lens).enumerate() {
            let floats = |key: &[&str]| steps.tensor(fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap()).unwrap().to_f32_vec();
            let flags = |key: &[&str]| steps.tensor(fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap()).unwrap().to_vec::<bool>().unwrap();
            prop_assert_eq!(steps.tensor("episode").unwrap().to_vec::<i32>().unwrap(), vec![number as i32; *len]);
            prop_assert_eq!(steps.tensor("discount").unwrap().to_vec::<i64>().unwrap(), vec![number as i64; *len]);
            prop_assert_eq!(steps.non_tensor("language_instruction").unwrap().to_json(), serde_json::json!(vec![format!("do {number}"); *len]));
            let depth = steps.tensor("depth").unwrap().to_vec::<i16>().unwrap();
            for at in 0..*len {
                let is_last = at + 1 == *len;
                let next = if is_last { 0.0 } else { at as f32 + 1.0 };
                prop_assert_eq!(&floats(&["observation", "state"])[2 * at..2 * at + 2], [at as f32; 2]);
                prop_assert_eq!(&floats(&["next", "observation", "state"])[2 * at..2 * at + 2], [next; 2]);
                prop_assert_eq!(floats(&["next", "reward"])[at], at as f32);
                prop_assert_eq!(flags(&["is_init"])[at], at == 0);
                prop_assert_eq!(flags(&["next", "done"])[at], is_last);
                prop_assert_eq!(flags(&["next", "terminated"])[at], is_last && terminal);
                prop_assert_eq!(flags(&["next", "truncated"])[at], is_last && !terminal);
                prop_assert_eq!(&depth[2 * at..2 * at + 2], [at as i16, 256 + number as i16]);
            }
        }
    }

    #[test]
    fn a_damaged_file_is_refused_or_read(which in 0_usize..3, changes in proptest::collection::vec((0.0..1.0_f64, any::<u8>()), 0..8), end in 0.3..1.3_f64) {
        let row = &rows_of("datasets.jsonl", "OpenX")[[0, 2, 3][which]];
        let mut bytes = fs::read(&sources(row)[0]).unwrap();
        let len = bytes.len() as f64;
        changes.iter().for_each(|(at, byte)| bytes[(at * len) as usize] = *byte);
        bytes.truncate((end * len) as usize);
        if let Ok(episodes) = read(&bytes) {
            prop_assert!(episodes.iter().all(|steps| steps.batch_size()[0] > 0));
        }
    }
}

fn refused(file: &[u8]) -> (ErrorKind, String) {
    let error = read(file).unwrap_err();
    (error.kind(), error.to_string())
}

fn assert_refused(file: &[u8], kind: ErrorKind, parts: &[&str]) {
    let (found, text) = refused(file);
    assert!(found == kind && parts.iter().all(|part| text.contains(part)), "{found:?}: {text}");
}

#[test]
fn numbers_are_of_the_narrowest_kind_that_holds_all() {
    let values = [Plain::Bool(true), Plain::Int(2), Plain::Float(0.5)];
    let dtype = |count: usize| {
        let file = changed(count, |at, entries| set(entries, "extra", values[at].clone()));
        read(&file).unwrap()[0].tensor("extra").unwrap().clone()
    };
    assert_eq!(dtype(1), Tensor::from_vec(&[1], vec![true]).unwrap());
    assert_eq!(dtype(2), Tensor::from_vec(&[2], vec![1_i64, 2]).unwrap());
    assert_eq!(dtype(3), Tensor::from_vec(&[3], vec![1.0_f32, 2.0, 0.5]).unwrap());
}

#[test]
fn values_that_steps_do_not_share_are_refused_with_key_and_step() {
    let at_1 = |key: &'static str, value: Plain| {
        changed(3, move |at, entries| {
            if at == 1 {
                set(entries, key, value.clone());
            }
        })
    };
    assert_refused(&at_1("extra", Plain::Int(1)), ErrorKind::UnknownName, &["\"extra\"", "step 0"]);
    assert_refused(
        &at_1("action", Plain::floats(&[1.0, 2.0])),
        ErrorKind::ShapeMismatch,
        &["\"action\"", "step 1", "[1]", "[2]"],
    );
    assert_refused(
        &at_1("action", Plain::text("left")),
        ErrorKind::Incompatible,
        &["\"action\"", "step 1", "str"],
    );
    assert_refused(&at_1("action", Plain::None), ErrorKind::Incompatible, &["\"action\"", "step 1", "None"]);
    assert_refused(&at_1("is_last", Plain::Int(2)), ErrorKind::OutOfRange, &["\"is_last\"", "got 2"]);
    assert_refused(
        &at_1("observation", Plain::Int(2)),
        ErrorKind::Incompatible,
        &["\"observation\"", "step 1"],
    );
    let missing = changed(3, |at, entries| entries.retain(|(name, _)| at != 2 || name != "reward"));
    assert_refused(&missing, ErrorKind::UnknownName, &["\"reward\"", "step 2"]);
    let ragged = changed(1, |_, entries| {
        set(entries, "action", Plain::List(vec![Plain::floats(&[1.0]), Plain::floats(&[])]));
    });
    assert_refused(&ragged, ErrorKind::ShapeMismatch, &["\"action\"", "step 0"]);
}

#[test]
fn an_observation_without_images_has_an_empty_text_behind_the_last_step() {
    let file = changed(2, |at, entries| {
        set(entries, "observation", Plain::dict([("task", Plain::text(["a", "b"][at]))]));
    });
    let steps = &read(&file).unwrap()[0];
    let text = |key: &[&str]| {
        steps.non_tensor(fulmar_tensor::Key::unravel(&serde_json::json!(key)).unwrap()).unwrap().to_json()
    };
    assert_eq!(text(&["observation", "task"]), serde_json::json!(["a", "b"]));
    assert_eq!(text(&["next", "observation", "task"]), serde_json::json!(["b", ""]));
}

fn png(width: u32, height: u32, color: png::ColorType, pixels: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, width, height);
    encoder.set_color(color);
    let mut writer = encoder.write_header().unwrap();
    writer.write_image_data(pixels).unwrap();
    writer.finish().unwrap();
    bytes
}

fn image(bytes: Vec<u8>) -> Plain {
    Plain::dict([("image", Plain::dict([("bytes", Plain::Bytes(bytes)), ("path", Plain::None)]))])
}

fn file_of_images(images: &[Vec<u8>]) -> Vec<u8> {
    changed(images.len(), |at, entries| set(entries, "observation", image(images[at].clone())))
}

#[test]
fn images_of_all_kinds_have_three_channels() {
    let pixels = |kind: png::ColorType, pixels: &[u8]| {
        let steps = read(&file_of_images(&[png(2, 1, kind, pixels)])).unwrap();
        let image = steps[0].tensor(["observation", "image"]).unwrap().clone();
        assert_eq!(image.shape(), [1, 3, 1, 2]);
        image.to_vec::<u8>().unwrap()
    };
    assert_eq!(pixels(png::ColorType::Rgb, &[1, 2, 3, 4, 5, 6]), [1, 4, 2, 5, 3, 6]);
    assert_eq!(pixels(png::ColorType::Rgba, &[1, 2, 3, 9, 4, 5, 6, 9]), [1, 4, 2, 5, 3, 6]);
    assert_eq!(pixels(png::ColorType::Grayscale, &[1, 2]), [1, 2, 1, 2, 1, 2]);
    assert_eq!(pixels(png::ColorType::GrayscaleAlpha, &[1, 9, 2, 9]), [1, 2, 1, 2, 1, 2]);
}

#[test]
fn images_are_refused_before_memory_is_taken() {
    let good = png(1, 1, png::ColorType::Grayscale, &[7]);
    let (mut wide, mut high) = (good.clone(), good.clone());
    for (bytes, at, side) in
        [(&mut wide, 16, IMAGE_SIDE_MAX as u32 + 1), (&mut high, 20, IMAGE_SIDE_MAX as u32)]
    {
        bytes[at..at + 4].copy_from_slice(&side.to_be_bytes());
        let sum = tar_writer::crc32(&bytes[12..29]);
        bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    }
    assert_refused(&file_of_images(&[wide]), ErrorKind::LimitExceeded, &["image", "step 0", "16385"]);
    assert!(3 * IMAGE_SIDE_MAX < IMAGE_EXPANSION_MAX * high.len());
    assert_refused(&file_of_images(&[high.clone()]), ErrorKind::Corrupt, &["image", "step 0"]);
    high[16..20].copy_from_slice(&(IMAGE_SIDE_MAX as u32).to_be_bytes());
    let sum = tar_writer::crc32(&high[12..29]);
    high[29..33].copy_from_slice(&sum.to_be_bytes());
    assert_refused(&file_of_images(&[high]), ErrorKind::LimitExceeded, &["16384 x 16384"]);
    let other = png(2, 1, png::ColorType::Grayscale, &[7, 8]);
    assert_refused(
        &file_of_images(&[good.clone(), other]),
        ErrorKind::ShapeMismatch,
        &["step 1", "[1, 1]", "[1, 2]"],
    );
    assert_refused(&file_of_images(&[good[..40].to_vec()]), ErrorKind::Corrupt, &["image", "step 0"]);
    let no_bytes = changed(2, |at, entries| {
        let rest = Plain::dict([("image", Plain::dict([("path", Plain::None)]))]);
        set(entries, "observation", if at == 0 { image(good.clone()) } else { rest });
    });
    assert_refused(&no_bytes, ErrorKind::UnknownName, &["step 1", "bytes"]);
}

#[test]
fn one_array_in_many_steps_counts_each_time() {
    // 1 MiB in the pickle, 8 GiB in the rows.
    let num_steps = usize::try_from(2 * EPISODE_BYTES_MAX / (1 << 20)).unwrap();
    let array = write(&Plain::Array("|u1", vec![1 << 20], vec![0; 1 << 20]), 4);
    let mut bytes = b"\x80\x04}(".to_vec();
    bytes.extend(&write(&Plain::text("steps"), 4)[2..]);
    bytes.pop();
    bytes.extend(b"]q\x01(}(");
    bytes.extend(&write(&Plain::text("x"), 4)[2..]);
    bytes.pop();
    bytes.extend(&array[2..array.len() - 1]);
    bytes.extend(b"uq\x02");
    (1..num_steps).for_each(|_| bytes.extend(b"h\x02"));
    bytes.extend(b"eu.");
    let file = tar(&[("0.data.pickle".to_owned(), bytes)]);
    assert_refused(&file, ErrorKind::LimitExceeded, &["\"x\"", "8589934592"]);
}
