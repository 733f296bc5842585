//! Folders in which other files have the names of a store's files: nothing is written through them.

#![cfg(target_os = "linux")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use fulmar_core::{ErrorKind, Result};
use fulmar_store::{FsDisk, Store, StoreOptions};
use rustix::fs::{CWD, FileType, Mode, mknodat};

const NAMES: [&str; 9] = [
    "lock",
    "super.0",
    "super.1",
    "super.0.tmp",
    "seg-000000",
    "seg-000001",
    "table-000000",
    "table-000001",
    "table-000000.tmp",
];
const DECOY: &[u8] = b"a foreign file, which no store may change";

fn options() -> StoreOptions {
    StoreOptions { segment_bytes: 4096, ..StoreOptions::new(4) }
}

/// Returns a new folder with a store in it, or an empty one.
fn folder(name: &str, with_store: bool) -> Result<PathBuf> {
    let path = std::env::temp_dir().join(format!("fulmar-links-{}-{name}", std::process::id()));
    let _ = fs::remove_dir_all(&path);
    fs::create_dir_all(path.join("store"))?;
    fs::write(path.join("decoy"), DECOY)?;
    if with_store {
        used(&path.join("store"))?;
    }
    Ok(path)
}

/// Writes until a second segment begins.
fn used(path: &Path) -> Result<()> {
    let mut store = Store::open(FsDisk::new(path)?, &options())?;
    for number in 0..20_u8 {
        store.append(&[&[number; 300]])?;
        store.commit()?;
    }
    store.close()
}

#[test]
fn links_and_odd_files_are_refused_and_what_they_lead_to_stays() {
    for with_store in [false, true] {
        for name in NAMES {
            for kind in ["link", "dangling link", "folder", "pipe"] {
                let path = folder(&format!("{name}-{kind}-{with_store}"), with_store).unwrap();
                let file = path.join("store").join(name);
                let _ = fs::remove_file(&file);
                match kind {
                    "link" => symlink(path.join("decoy"), &file).unwrap(),
                    "dangling link" => symlink(path.join("nowhere"), &file).unwrap(),
                    "folder" => fs::create_dir(&file).unwrap(),
                    // The other end of a pipe is never opened, so waiting for it would hang.
                    _ => mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap(),
                }
                let place = format!("{kind} at {name}, store: {with_store}");
                let error = used(&path.join("store")).unwrap_err();
                assert!(
                    matches!(error.kind(), ErrorKind::Io | ErrorKind::Incompatible),
                    "{place}: got {error:?}"
                );
                assert_eq!(fs::read(path.join("decoy")).unwrap(), DECOY, "{place}");
                assert!(!path.join("nowhere").exists(), "{place}");
                fs::remove_dir_all(path).unwrap();
            }
        }
    }
}

#[test]
fn files_of_others_keep_their_bytes_under_any_name() {
    for with_store in [false, true] {
        for name in NAMES {
            let path = folder(&format!("{name}-file-{with_store}"), with_store).unwrap();
            let file = path.join("store").join(name);
            let _ = fs::remove_file(&file);
            // A hard link to a file elsewhere: a write here would be a write there.
            fs::hard_link(path.join("decoy"), &file).unwrap();
            let used = used(&path.join("store"));
            let place = format!("{name}, store: {with_store}: got {used:?}");
            assert_eq!(fs::read(path.join("decoy")).unwrap(), DECOY, "{place}");
            let kept = fs::read_dir(path.join("store")).unwrap();
            let kept =
                kept.filter(|file| fs::read(file.as_ref().unwrap().path()).is_ok_and(|bytes| bytes == DECOY));
            assert_eq!(kept.count(), 1, "nothing is removed: {place}");
            fs::remove_dir_all(path).unwrap();
        }
    }
}

#[test]
fn a_checkpoint_does_not_leave_through_a_link_and_the_folder_itself_may_be_one() {
    let path = folder("checkpoint", false).unwrap();
    symlink(path.join("store"), path.join("link")).unwrap();
    let mut store = Store::open(FsDisk::new(path.join("link")).unwrap(), &options()).unwrap();
    store.append(&[b"row"]).unwrap();
    fs::create_dir(path.join("elsewhere")).unwrap();
    symlink(path.join("elsewhere"), path.join("store/copy")).unwrap();
    assert_eq!(store.checkpoint("copy").unwrap_err().kind(), ErrorKind::Io);
    assert_eq!(fs::read_dir(path.join("elsewhere")).unwrap().count(), 0);
    store.checkpoint("another").unwrap();
    drop(store);
    fs::remove_dir_all(path).unwrap();
}
