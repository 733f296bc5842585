//! Folders, archives and consolidated files of tensordict 0.14.3: read with equal contents, written with equal bytes.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use fulmar_core::limits::ARCHIVE_MEMBERS_MAX;
use fulmar_core::{Error, ErrorKind};
use fulmar_tensor::{TensorDict, consolidated, memmap};
use serde_json::Value;

use super::golden_value::dict;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/ted").join(path)
}

fn rows(topic: &str) -> Vec<Value> {
    let text = fs::read_to_string(golden("ted.jsonl")).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["topic"] == topic).collect()
}

fn scratch(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("fulmar-torch-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    path
}

/// Returns all files below `folder` by their path in it.
fn tree(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(at) = folders.pop() {
        for entry in fs::read_dir(at).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                files.insert(path.strip_prefix(folder).unwrap().to_owned(), fs::read(&path).unwrap());
            }
        }
    }
    files
}

/// The reason why a row is not read or written as upstream does.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rule {
    /// Upstream's values and bytes.
    Same,
    /// Upstream loses a leaf whose key is a word of the format; reading such a folder is an error that names the leaf, and so is
    /// writing one.
    LostLeaf,
    /// Upstream runs pickles; they are never read.
    Pickle,
    /// A tensor class is read as the dictionary that it wraps, and written as one.
    TensorClass,
    /// A lazy stack is read as one dictionary, and an error where that would lose an entry.
    LazyStack,
    /// Upstream cannot write a jagged tensor to a folder; rows are written as the strided nested tensor that it can read.
    Jagged,
}

fn memmap_rule(row: &Value) -> Rule {
    let (value, meta) = (&row["value"], row["meta"].to_string());
    if row.get("dump_error").is_some() {
        return Rule::Jagged;
    }
    if value["k"].as_object().is_some_and(|keys| keys.keys().any(|key| memmap_words().contains(&&**key))) {
        return Rule::LostLeaf;
    }
    if row["pickles_removed"].as_array().is_some_and(|pickles| !pickles.is_empty()) {
        return Rule::Pickle;
    }
    if value.get("$lazy").is_some() {
        return Rule::LazyStack;
    }
    if meta.contains("__main__.") { Rule::TensorClass } else { Rule::Same }
}

const fn memmap_words() -> [&'static str; 3] {
    ["shape", "device", "_type"]
}

#[test]
fn folders_of_tensordict_are_read_and_written_again_byte_for_byte() {
    let mut rules = BTreeMap::<Rule, usize>::new();
    for row in rows("memmap") {
        let id = row["id"].as_str().unwrap();
        let rule = memmap_rule(&row);
        let target = scratch(id);
        let loaded = row["fixture"].as_str().map(|fixture| memmap::load(golden(fixture)));
        match (&rule, loaded) {
            (Rule::Same, Some(loaded)) => {
                let loaded = loaded.unwrap();
                let want = if row["loaded"] == "equal" { &row["value"] } else { &row["loaded"] };
                assert_eq!(loaded, dict(want), "{id}");
                memmap::save(&target, &loaded).unwrap();
                assert_eq!(tree(&target), tree(&golden(row["fixture"].as_str().unwrap())), "{id}");
            }
            (Rule::TensorClass, Some(loaded)) => {
                let loaded = loaded.unwrap();
                assert_eq!(loaded, dict(&row["value"]), "{id}");
                memmap::save(&target, &loaded).unwrap();
                assert_eq!(memmap::load(&target).unwrap(), loaded, "{id}");
            }
            (Rule::LostLeaf, Some(loaded)) => {
                let error = loaded.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Corrupt, "{id}: {error}");
                let error = memmap::save(&target, &dict(&row["value"])).unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Malformed, "{id}: {error}");
            }
            (Rule::Pickle, Some(loaded)) => {
                let error = loaded.unwrap_err();
                assert_eq!(error.kind(), ErrorKind::Forbidden, "{id}: {error}");
                assert!(error.detail().contains("\"o\": "), "{id}: {error}");
            }
            (Rule::LazyStack, Some(loaded)) => match loaded {
                Ok(loaded) => assert_eq!(loaded, dict(&row["value"]), "{id}"),
                Err(error) => assert!(error.detail().contains("\"only\""), "{id}: {error}"),
            },
            (Rule::Jagged, None) => {
                let value = dict(&row["value"]);
                memmap::save(&target, &value).unwrap();
                assert_eq!(memmap::load(&target).unwrap(), value, "{id}");
                assert_eq!(tree(&target), tree(&golden("fixtures/memmap/strided_nested")), "{id}");
            }
            (rule, loaded) => panic!("{id}: {rule:?} {loaded:?}"),
        }
        *rules.entry(rule).or_default() += 1;
        let _ = fs::remove_dir_all(target);
    }
    println!("memmap: {rules:?}");
    let counts: Vec<usize> = rules.into_values().collect();
    assert_eq!(counts, [13, 2, 1, 2, 2, 1], "same, lost leaf, pickle, tensor class, lazy stack, jagged");
}

#[test]
fn archives_of_tensordict_are_read_and_ours_lie_as_aligned() {
    let rows = rows("archive");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let path = golden(row["fixture"].as_str().unwrap());
        let loaded = memmap::load_archive(&path).unwrap();
        assert_eq!(loaded, dict(&row["value"]));
        let bytes = memmap::write_archive(&loaded).unwrap();
        assert_eq!(memmap::read_archive(&bytes).unwrap(), loaded);
        let mut members = Vec::new();
        let mut archive = zip::ZipArchive::new(std::io::Cursor::new(&bytes)).unwrap();
        for at in 0..archive.len() {
            let member = archive.by_index(at).unwrap();
            let start = member.data_start().unwrap();
            let name = member.name().unwrap().into_owned();
            assert!(!name.ends_with(".memmap") || start.is_multiple_of(64), "{name} at {start}");
            members.push((name, member.size()));
        }
        let named = |member: &Value| (member[0].as_str().unwrap().to_owned(), member[1].as_u64().unwrap());
        assert_eq!(members, row["members"].as_array().unwrap().iter().map(named).collect::<Vec<_>>());
    }
}

#[test]
fn consolidated_files_keep_the_names_of_dimensions() {
    let mut inner = TensorDict::new(&[2, 3, 4]).unwrap();
    inner.set_names(&[None, None, Some("feature")]).unwrap();
    let mut dict = TensorDict::new(&[2, 3]).unwrap();
    dict.set("inner", inner).unwrap();
    dict.set_names(&[None, Some("time")]).unwrap();
    let bytes = consolidated::write(&dict).unwrap();
    let read = consolidated::read(&bytes).unwrap();
    assert_eq!(read.names(), [None, Some("time")]);
    assert_eq!(read.dict("inner").unwrap().names(), [None, Some("time"), Some("feature")]);
    let renamed = |old: &str, new: &str| {
        let text = String::from_utf8_lossy(&bytes[..bytes.len() - 8]).replacen(old, new, 1);
        [text.as_bytes(), &(text.len() as i64).to_le_bytes()].concat()
    };
    for names in ["[null]", "[\"time\",\"time\"]", "[0,\"time\"]"] {
        let error = consolidated::read(&renamed("[null,\"time\"]", names)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Corrupt, "{names}: {error}");
    }
}

#[test]
fn consolidated_files_of_tensordict_are_read_and_written_again_byte_for_byte() {
    let (mut same, mut by_rule) = (0, BTreeMap::<&str, usize>::new());
    for row in rows("consolidate") {
        let id = row["id"].as_str().unwrap();
        let path = golden(row["fixture"].as_str().unwrap());
        let loaded = consolidated::load(&path).unwrap();
        assert_eq!(loaded, dict(&row["value"]), "{id}");
        let bytes = fs::read(&path).unwrap();
        assert_eq!(consolidated::read(&bytes).unwrap(), loaded, "{id}");
        let written = consolidated::write(&loaded).unwrap();
        assert_eq!(consolidated::read(&written).unwrap(), loaded, "{id}");
        if row["value"].get("$lazy").is_some() {
            *by_rule.entry("a lazy stack is read, and written, as one dictionary").or_default() += 1;
            continue;
        }
        if let Some(names) = row["value"].get("names").and_then(Value::as_array) {
            assert!(loaded.names().into_iter().eq(names.iter().map(Value::as_str)), "{id}");
        }
        assert!(written == bytes, "{id}: {:?}", String::from_utf8_lossy(&written));
        same += 1;
    }
    println!("consolidate: {same} byte for byte, {by_rule:?}");
    assert_eq!((same, by_rule.len()), (13, 1));
}

/// Returns the error of reading a folder that `spoil` changed.
fn spoiled(name: &str, spoil: impl FnOnce(&Path)) -> Error {
    let target = scratch(name);
    let fixture = dict(&rows("memmap")[2]["value"]);
    memmap::save(&target, &fixture).unwrap();
    assert_eq!(memmap::load(&target).unwrap(), fixture, "{name}: good before it is spoiled");
    spoil(&target);
    let error = memmap::load(&target).unwrap_err();
    fs::remove_dir_all(target).unwrap();
    error
}

#[test]
fn a_missing_short_or_long_file_is_an_error_that_names_the_leaf_and_changes_nothing() {
    let leaf = "n/deep/z.memmap";
    let named = |error: &Error| error.detail().contains("\"n\": \"deep\": \"z\": ");
    let missing = spoiled("missing", |root| fs::remove_file(root.join(leaf)).unwrap());
    assert!(missing.kind() == ErrorKind::Corrupt && named(&missing), "{missing}");
    let short = spoiled("short", |root| fs::write(root.join(leaf), [0; 7]).unwrap());
    assert!(short.kind() == ErrorKind::Corrupt && named(&short), "{short}");
    assert!(short.detail().ends_with("must hold 8 bytes: got 7"), "{short}");
    let long = spoiled("long", |root| fs::write(root.join(leaf), [0; 9]).unwrap());
    assert!(long.kind() == ErrorKind::Corrupt && named(&long), "{long}");
    let folder = spoiled("folder", |root| {
        fs::remove_file(root.join(leaf)).unwrap();
        fs::create_dir(root.join(leaf)).unwrap();
    });
    assert!(folder.kind() == ErrorKind::Corrupt && named(&folder), "{folder}");
}

#[test]
fn a_file_of_elements_that_nothing_describes_is_refused_by_name() {
    let stray = |name: &str, path: &str| {
        let error = spoiled(name, |root| {
            fs::create_dir_all(root.join(path).parent().unwrap()).unwrap();
            fs::write(root.join(path), [0; 8]).unwrap();
        });
        assert_eq!(error.kind(), ErrorKind::Corrupt);
        assert!(error.detail().contains(&format!("{path} must be described")), "{error}");
    };
    stray("stray", "lost.memmap");
    stray("stray-below", "n/deep/lost.memmap");
    stray("stray-folder", "lost/meta.json");
    stray("stray-rows", "lost/deeper/rows.shape.memmap");
    // Files that belong to no tensor lose nothing.
    let root = scratch("other-files");
    memmap::save(&root, &TensorDict::new(&[2]).unwrap()).unwrap();
    fs::write(root.join("README.md"), "mine").unwrap();
    fs::write(root.join("empty.memmap"), "").unwrap();
    fs::create_dir(root.join("%fulmar")).unwrap();
    fs::write(root.join("%fulmar/lost.memmap"), "ours").unwrap();
    assert_eq!(memmap::load(&root).unwrap(), TensorDict::new(&[2]).unwrap());
    fs::remove_dir_all(root).unwrap();
}

#[test]
fn elements_of_an_archive_or_a_consolidated_file_that_nothing_describes_are_refused() {
    let mut dict = TensorDict::new(&[2]).unwrap();
    for name in ["a", "b"] {
        dict.set(name, fulmar_tensor::Tensor::from_vec(&[2], vec![1_i64, 2]).unwrap()).unwrap();
    }
    // Names of members are not compressed, nor covered by their checksums: the description forgets an entry.
    let forget = |bytes: Vec<u8>, from: &str, to: &str| {
        let text: String = bytes.iter().map(|byte| char::from(*byte)).collect();
        text.replace(from, to).chars().map(|byte| byte as u8).collect::<Vec<u8>>()
    };
    let archive = forget(memmap::write_archive(&dict).unwrap(), "b.memmap", "c.memmap");
    assert_eq!(memmap::read_archive(&archive).unwrap_err().kind(), ErrorKind::Corrupt);
    let mut other = TensorDict::new(&[2]).unwrap();
    other.set("a", dict.tensor("a").unwrap().clone()).unwrap();
    let (whole, part) = (consolidated::write(&dict).unwrap(), consolidated::write(&other).unwrap());
    // The elements of both, and the description of one.
    let described =
        |bytes: &[u8]| i64::from_le_bytes(bytes[bytes.len() - 8..].try_into().unwrap()) as usize + 8;
    let elements = &whole[..whole.len() - described(&whole)];
    let lost = [elements, &part[part.len() - described(&part)..]].concat();
    let error = consolidated::read(&lost).unwrap_err();
    assert!(error.kind() == ErrorKind::Corrupt && error.detail().contains("must fill"), "{error}");
}

#[cfg(unix)]
#[test]
fn pipes_devices_and_folders_are_refused_before_they_are_opened() {
    let parent = scratch("pipes");
    fs::create_dir_all(&parent).unwrap();
    let pipe = parent.join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    for path in [pipe.as_path(), Path::new("/dev/zero"), parent.as_path()] {
        for error in [
            consolidated::load(path).unwrap_err(),
            memmap::load_archive(path).unwrap_err(),
            fulmar_tensor::safetensors::load_file(path).unwrap_err(),
        ] {
            assert_eq!(error.kind(), ErrorKind::Corrupt, "{error}");
            assert!(error.detail().contains("must be a regular file: got a"), "{error}");
        }
    }
    // The same as a file of a folder.
    fs::create_dir(parent.join("dict")).unwrap();
    fs::rename(&pipe, parent.join("dict/meta.json")).unwrap();
    assert_eq!(memmap::load(parent.join("dict")).unwrap_err().kind(), ErrorKind::Corrupt);
    fs::remove_dir_all(parent).unwrap();
}

#[test]
fn absurd_and_foreign_descriptions_are_typed_errors() {
    let kind = |name: &str, meta: &str| {
        spoiled(name, |root| fs::write(root.join("meta.json"), meta).unwrap()).kind()
    };
    let own = r#""shape":[2],"device":"cpu","_type":"<class 'tensordict._td.TensorDict'>""#;
    let of = |leaf: &str| format!("{{{leaf},{own}}}");
    assert_eq!(kind("text", "no JSON"), ErrorKind::Corrupt);
    assert_eq!(kind("list", "[]"), ErrorKind::Corrupt);
    assert_eq!(kind("no-class", "{}"), ErrorKind::Corrupt);
    assert_eq!(kind("no-shape", r#"{"_type":"<class 'tensordict._td.TensorDict'>"}"#), ErrorKind::Corrupt);
    assert_eq!(kind("class", r#"{"_type":"<class 'evil.Thing'>"}"#), ErrorKind::Corrupt);
    assert_eq!(kind("no-leaf", &of(r#""a":3"#)), ErrorKind::Corrupt);
    let leaf = |shape: &str, dtype: &str| {
        of(&format!(r#""a":{{"device":"cpu","shape":{shape},"dtype":"{dtype}"}}"#))
    };
    assert_eq!(kind("complex", &leaf("[2]", "torch.complex64")), ErrorKind::UnknownName);
    assert_eq!(kind("negative", &leaf("[-2]", "torch.int32")), ErrorKind::Corrupt);
    assert_eq!(kind("huge", &leaf("[2, 4611686018427387904]", "torch.int32")), ErrorKind::LimitExceeded);
    assert_eq!(kind("large", &leaf("[2, 1099511627776]", "torch.int32")), ErrorKind::Corrupt);
    assert_eq!(kind("batch", &leaf("[6]", "torch.int32")), ErrorKind::ShapeMismatch);
    let nested = |shape: &str| {
        of(&format!(r#""a":{{"device":"cpu","shape":{shape},"dtype":"torch.int32","is_nested":true}}"#))
    };
    assert_eq!(kind("rank", &nested("[2,0]")), ErrorKind::Corrupt);
    assert_eq!(kind("rows", &nested("[2]")), ErrorKind::Corrupt);
    assert_eq!(kind("no-rows", &nested("[2,1]")), ErrorKind::Corrupt);
}

#[test]
fn a_consolidated_description_may_have_16_mib_and_no_byte_more() {
    let limit = fulmar_core::limits::MEMMAP_META_BYTES_MAX;
    let consolidated = |len: usize| {
        let own = r#"{"device":null,"names":[],"batch_size":[],"is_locked":false}"#;
        let mut bytes =
            format!(r#"{{"cls":"TensorDict","non_tensors":{{}},"leaves":{{}},"cls_metadata":{own}}}"#)
                .into_bytes();
        bytes.resize(len, b' ');
        bytes.extend((len as i64).to_le_bytes());
        consolidated::read(&bytes)
    };
    assert_eq!(consolidated(limit).unwrap(), TensorDict::new(&[]).unwrap());
    assert_eq!(consolidated(limit + 1).unwrap_err().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn writing_leaves_nothing_behind_when_it_is_refused_and_replaces_no_folder() {
    let parent = scratch("refused");
    fs::create_dir_all(&parent).unwrap();
    let target = parent.join("dict");
    let mut clash = TensorDict::new(&[]).unwrap();
    clash.set("a", fulmar_tensor::Tensor::from_vec(&[], vec![1_i64]).unwrap()).unwrap();
    clash.set(["n", "device"], fulmar_tensor::Tensor::from_vec(&[], vec![1_i64]).unwrap()).unwrap();
    let error = memmap::save(&target, &clash).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.detail().starts_with("\"n\": \"device\": "), "{error}");
    assert_eq!(fs::read_dir(&parent).unwrap().count(), 0);

    fs::create_dir(&target).unwrap();
    clash.remove(["n", "device"]).unwrap();
    memmap::save(&target, &clash).unwrap();
    let before = tree(&parent);
    assert_eq!(memmap::save(&target, &clash).unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(tree(&parent), before);
    fs::remove_dir_all(parent).unwrap();
}

#[test]
fn keys_that_would_share_a_file_are_refused() {
    let one = || fulmar_tensor::Tensor::from_vec(&[1], vec![1_i64]).unwrap();
    let rows = || fulmar_tensor::Ragged::new(one(), &[0_u64, 1]).unwrap();
    let mut twice = TensorDict::new(&[1]).unwrap();
    twice.set("n", rows()).unwrap();
    twice.set("n.shape", one()).unwrap();
    assert_eq!(memmap::write_archive(&twice).unwrap_err().kind(), ErrorKind::Malformed);
    let mut meta = TensorDict::new(&[1]).unwrap();
    meta.set(["meta.json", "a"], one()).unwrap();
    assert_eq!(memmap::write_archive(&meta).unwrap_err().kind(), ErrorKind::Malformed);
    let mut control = TensorDict::new(&[1]).unwrap();
    control.set(["leaves", "a"], one()).unwrap();
    assert_eq!(consolidated::write(&control).unwrap_err().kind(), ErrorKind::Malformed);
}

/// Returns an archive without members whose end record claims `num_members`, in a list of that length.
fn archive_that_tells_of(num_members: usize) -> Vec<u8> {
    let mut bytes = vec![0; 46 * num_members];
    bytes[..4].copy_from_slice(b"PK\x01\x02");
    let size = bytes.len() as u64;
    bytes.extend(b"PK\x06\x06");
    bytes.extend(44_u64.to_le_bytes());
    bytes.extend([45, 0, 45, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    for word in [num_members as u64, num_members as u64, size, 0] {
        bytes.extend(word.to_le_bytes());
    }
    bytes.extend(b"PK\x06\x07\0\0\0\0");
    bytes.extend(size.to_le_bytes());
    bytes.extend(1_u32.to_le_bytes());
    bytes.extend(b"PK\x05\x06\0\0\0\0");
    bytes.extend([255; 12]);
    bytes.extend([0, 0]);
    bytes
}

#[test]
fn archives_have_members_up_to_their_number() {
    let kind = |num_members| memmap::read_archive(&archive_that_tells_of(num_members)).unwrap_err().kind();
    assert_eq!(kind(ARCHIVE_MEMBERS_MAX), ErrorKind::Corrupt, "the members are not there");
    assert_eq!(kind(ARCHIVE_MEMBERS_MAX + 1), ErrorKind::LimitExceeded);
}
