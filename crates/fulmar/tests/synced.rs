//! Tests the order of syncs behind every atomic write: a file is synced before its rename, and its folder after.
//!
//! Each case runs in a child process under a preloaded library that logs the system calls.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::{env, fs};

use fulmar::model::{Decoder, DecoderConfig};
use fulmar::replay::{DurableStorage, ReplayBuffer, Storage, TensorStorage, TensorStorageCheckpointer};
use fulmar::store::FsDisk;
use fulmar::tensor::{FileBatch, Tensor, TensorDict, consolidated, memmap, replace_file};

type Case = (&'static str, fn(&Path));

const CASES: [Case; 9] = [
    ("a file", |folder| replace_file(folder.join("file"), |writer| Ok(writer.write_all(b"new")?)).unwrap()),
    ("files together", |folder| {
        let mut files = FileBatch::default();
        for name in ["a", "b"] {
            files.stage(folder.join(name), |writer| Ok(writer.write_all(name.as_bytes())?)).unwrap();
        }
        files.commit().unwrap();
    }),
    ("a folder of tensors", |folder| memmap::save(folder.join("steps"), &steps()).unwrap()),
    ("an archive", |folder| memmap::save_archive(folder.join("steps.tdz"), &steps()).unwrap()),
    ("a consolidated file", |folder| consolidated::save(folder.join("steps.memmap"), &steps()).unwrap()),
    ("a buffer", |folder| {
        let storage = TensorStorage::new(&[8]).unwrap();
        let mut buffer = ReplayBuffer::new(Box::new(storage), Default::default()).unwrap();
        buffer.extend(&steps()).unwrap();
        buffer.dumps(folder.join("buffer"), &TensorStorageCheckpointer).unwrap();
    }),
    ("a model", |folder| decoder().save_folder(folder.join("model")).unwrap()),
    ("folders around a model", |folder| decoder().save_folder(folder.join("runs/one/model")).unwrap()),
    ("a durable store", |folder| {
        let mut storage =
            DurableStorage::open(FsDisk::new(folder.join("stores/one")).unwrap(), &[8], Default::default())
                .unwrap();
        storage.set(&[0, 1, 2], &steps()).unwrap();
        storage.sync().unwrap();
    }),
];

#[test]
fn what_is_written_is_synced_before_it_takes_its_name_and_its_folder_after() {
    if let Ok(name) = env::var("FULMAR_CALLS_CASE") {
        let (_, write) = CASES.iter().find(|(case, _)| *case == name).unwrap();
        return write(Path::new(&env::var("FULMAR_CALLS_ROOT").unwrap()));
    }
    let scratch =
        fs::canonicalize(env::temp_dir()).unwrap().join(format!("fulmar-synced-{}", std::process::id()));
    fs::create_dir_all(&scratch).unwrap();
    let library = scratch.join("calls.so");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/synced/calls.c");
    let compiled =
        Command::new("cc").args(["-shared", "-fPIC", "-o"]).arg(&library).arg(source).arg("-ldl").status();
    assert!(compiled.unwrap().success());
    for (at, (name, _)) in CASES.iter().enumerate() {
        let (root, log) = (scratch.join(format!("case-{at}")), scratch.join(format!("calls-{at}")));
        fs::create_dir(&root).unwrap();
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", "what_is_written_is_synced_before_it_takes_its_name_and_its_folder_after"]);
        child.env("LD_PRELOAD", &library).env("FULMAR_CALLS_CASE", name);
        child.env("FULMAR_CALLS_ROOT", &root).env("FULMAR_CALLS_LOG", &log);
        let output = child.output().unwrap();
        assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stdout));
        let calls = fs::read_to_string(&log).unwrap();
        assert_eq!(lost_by_a_power_failure(&calls, &root), BTreeSet::new(), "{name}:\n{calls}");
        // No path is synced in vain: without its syncs something is lost, so this test would notice if they were left out.
        let syncs: BTreeSet<&str> = calls.lines().filter(|line| line.starts_with("sync\t")).collect();
        for sync in syncs {
            let others: Vec<&str> = calls.lines().filter(|line| *line != sync).collect();
            let lost = lost_by_a_power_failure(&others.join("\n"), &root);
            assert!(!lost.is_empty(), "{name}: {sync} changes nothing:\n{calls}");
        }
    }
    fs::remove_dir_all(scratch).unwrap();
}

/// Paths that a power failure could lose: files renamed before they were synced, renames whose folder was not synced before the next
/// one, and writes without a later sync.
fn lost_by_a_power_failure(calls: &str, root: &Path) -> BTreeSet<PathBuf> {
    let (mut unsynced, mut named, mut lost) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let folder = |path: &Path| path.parent().unwrap().to_path_buf();
    for line in calls.lines() {
        let fields: Vec<&str> = line.split('\t').collect();
        let path = PathBuf::from(fields[1]);
        match fields[0] {
            // The content of a lock file need not survive.
            "write" if path.ends_with("lock") => (),
            "write" => drop(unsynced.insert(path)),
            "create" => drop(unsynced.insert(folder(&path))),
            "sync" => {
                unsynced.remove(&path);
                named.remove(&path);
            }
            _ => {
                lost.extend(unsynced.iter().filter(|at| at.starts_with(&path)).cloned());
                lost.append(&mut named);
                named.insert(folder(Path::new(fields[2])));
            }
        }
    }
    assert!(calls.contains("write\t"), "nothing was written below {}", root.display());
    lost.extend(unsynced.into_iter().chain(named));
    lost
}

fn steps() -> TensorDict {
    let mut dict = TensorDict::new(&[3]).unwrap();
    dict.set(["next", "reward"], Tensor::from_vec(&[3], vec![0.5_f32, 1.0, 2.0]).unwrap()).unwrap();
    dict.set("action", Tensor::from_vec(&[3], vec![1_i64, 2, 3]).unwrap()).unwrap();
    dict
}

fn decoder() -> Decoder {
    let config = r#"{ "model_type": "qwen2", "vocab_size": 11, "hidden_size": 8, "intermediate_size": 16,
        "num_hidden_layers": 1, "num_attention_heads": 2 }"#;
    Decoder::new(DecoderConfig::from_json(config).unwrap(), 7).unwrap()
}
