//! Stores after kills, losses of power, disk faults and damaged files. Some hundred cycles each; `cargo run
//! --release -p fulmar-store --example torture` runs any number.

mod damage;
mod faults;
#[cfg(unix)]
mod kill;
mod lying_disk;
mod model;
mod power_loss;

use fulmar_store::MemoryDisk;
use lying_disk::{Lie, LyingDisk};
use model::PATHS;

#[cfg(unix)]
#[test]
fn what_was_acknowledged_is_there_after_a_kill() {
    let program = std::env::current_exe().unwrap();
    let child = || {
        let mut command = std::process::Command::new(&program);
        command.args(["a_child_writes_until_it_is_killed", "--exact", "--nocapture"]);
        command
    };
    for path in PATHS {
        let counts = kill::kill_cycles(&child, path, 1, 60).unwrap();
        assert_eq!(counts.num_kills, 60);
        assert!(counts.num_acknowledged > 60, "{path:?} must acknowledge: got {counts:?}");
    }
}

/// The other side of the test above, which runs this test alone in its own process.
#[cfg(unix)]
#[test]
fn a_child_writes_until_it_is_killed() {
    if let Ok(arguments) = std::env::var(kill::CHILD) {
        kill::child(&arguments).unwrap();
    }
}

#[test]
fn what_was_acknowledged_is_there_whenever_the_power_fails() {
    for path in PATHS {
        for seed in 0..3 {
            let num_losses = power_loss::lose_power(path, seed, 150, 2).unwrap();
            assert!(num_losses > 200, "{path:?} must do something: got {num_losses} losses");
        }
    }
}

#[test]
fn a_disk_that_lies_about_what_is_durable_is_found_out() {
    for lie in [Lie::Sync, Lie::SyncOfSegments, Lie::SyncOfSuperblocks] {
        let disk = MemoryDisk::recording();
        let lying = LyingDisk { inner: disk.clone(), lie };
        let found = power_loss::lose_power_of(&disk, lying, model::Path::Update, 1, 150, 4);
        assert!(found.is_err(), "{lie:?}: got {found:?}");
    }
}

#[test]
fn what_was_acknowledged_is_there_whichever_operation_of_the_disk_fails() {
    for path in PATHS {
        let num_faults = faults::fail_each(path, 5, 60).unwrap();
        assert!(num_faults > 100, "{path:?} must do something: got {num_faults} faults");
    }
}

#[test]
fn damage_is_noticed_before_a_row_is_given() {
    for path in PATHS {
        let counts = damage::damage_files(path, 9, 400).unwrap();
        assert!(counts.num_read > 400, "{path:?}: the rest must stay readable: got {counts:?}");
        assert!(counts.num_refused > 0, "{path:?}: some damage must hit a row: got {counts:?}");
        assert!(counts.num_unopened < 20, "{path:?}: few stores may be refused whole: got {counts:?}");
    }
}
