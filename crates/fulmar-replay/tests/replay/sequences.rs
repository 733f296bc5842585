//! Windows of steps against golden rows.

use fulmar_core::ErrorKind;
use fulmar_core::limits::REPLAY_SAMPLE_ROWS_MAX;
use fulmar_replay::{EpisodeBoundary, SequenceOptions, TrajectoryIndex};
use serde_json::Value;

use crate::golden_rows::{index, indices, list, topic};

fn options(unit: &Value) -> SequenceOptions {
    let count = |name: &str, default| unit[name].as_u64().map_or(default, |number| number as usize);
    SequenceOptions {
        length: count("length", 1),
        episode_boundary: match unit["episode_boundary"].as_str() {
            Some("stop") => EpisodeBoundary::Stop,
            Some("include_reset") => EpisodeBoundary::IncludeReset,
            _ => EpisodeBoundary::Pad,
        },
        burn_in: count("burn_in", 0),
        bootstrap: count("bootstrap", 0),
        dilation: count("dilation", 1),
    }
}

#[test]
fn windows_are_those_of_the_golden_rows() {
    let (mut expanded, mut lanes, mut refused) = (0, 0, 0);
    for row in topic("slices", "sequence_unit", 52) {
        let what = format!("{} {}", row["id"], row["unit"]);
        if !row["error"].is_null() {
            let unit = row["unit"].to_string().replace("episode_b", "episodeB").replace("burn_i", "burnI");
            let read = serde_json::from_str::<SequenceOptions>(&unit);
            let wrong = |options: SequenceOptions| {
                let mut one = TrajectoryIndex::new(1).unwrap();
                one.extend(&[true]);
                options.expand(&one, &[0]).is_err_and(|error| error.kind() == ErrorKind::OutOfRange)
            };
            assert!(read.map_or(true, wrong), "{what}");
            refused += 1;
            continue;
        }
        if !row["lanes"].is_null() {
            lanes += 1;
            continue;
        }
        let mut trajectories = TrajectoryIndex::new(index(&row["capacity"])).unwrap();
        // Without a key of ends, only the ring bounds a window.
        let keyless = row["unit"].get("done_key").is_some_and(Value::is_null);
        let dones = if keyless { Vec::new() } else { indices(&row["dones"]) };
        trajectories
            .extend(&(0..index(&row["written"])).map(|step| dones.contains(&step)).collect::<Vec<_>>());
        let windows = options(&row["unit"]).expand(&trajectories, &indices(&row["anchors"])).unwrap();
        let bits = |mask: Vec<bool>| mask.into_iter().map(usize::from).collect();
        let got = |name: &str| -> Option<Vec<usize>> {
            match name {
                "index" => Some(windows.rows.clone()),
                "sequence_id" => Some(windows.sequence_id.clone()),
                "step_in_sequence" => Some(windows.step_in_sequence.clone()),
                "validity_mask" => Some(bits(windows.validity_mask.clone())),
                "learning_mask" => Some(bits(windows.learning_mask.clone())),
                "anchor_index" => Some(windows.anchor_rows.clone()),
                _ => None,
            }
        };
        for pair in list(&row["ok"]["$dict"]) {
            let expected: Vec<usize> = list(&pair[1]["d"])
                .iter()
                .map(|one| one.as_bool().map_or_else(|| one.as_f64().unwrap() as usize, usize::from))
                .collect();
            if let Some(got) = got(pair[0].as_str().unwrap()) {
                assert_eq!(got, expected, "{what} {}", pair[0]);
            }
        }
        expanded += 1;
    }
    println!("windows expanded in {expanded} rows; {lanes} of several lanes not read; {refused} refused");
    assert_eq!((expanded, lanes, refused), (35, 12, 5));
}

#[test]
fn windows_that_cannot_be_are_refused() {
    let mut trajectories = TrajectoryIndex::new(4).unwrap();
    trajectories.extend(&[false, false]);
    let kind =
        |options: SequenceOptions, anchor| options.expand(&trajectories, &[anchor]).unwrap_err().kind();
    let plain = SequenceOptions::default();
    assert_eq!(kind(SequenceOptions { length: 0, ..plain }, 0), ErrorKind::OutOfRange);
    assert_eq!(kind(SequenceOptions { dilation: 0, ..plain }, 0), ErrorKind::OutOfRange);
    assert_eq!(kind(plain, 2), ErrorKind::OutOfRange);
    assert_eq!(kind(plain, 4), ErrorKind::OutOfRange);
    assert_eq!(
        kind(SequenceOptions { dilation: REPLAY_SAMPLE_ROWS_MAX + 1, ..plain }, 0),
        ErrorKind::LimitExceeded
    );
    assert_eq!(kind(SequenceOptions { burn_in: usize::MAX, ..plain }, 0), ErrorKind::LimitExceeded);
    let far = SequenceOptions { dilation: REPLAY_SAMPLE_ROWS_MAX, ..plain };
    assert_eq!(far.expand(&trajectories, &[1]).unwrap().rows, [1]);
}
