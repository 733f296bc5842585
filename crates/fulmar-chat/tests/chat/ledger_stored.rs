//! The stored formats of a ledger: today's files, every truncation and flipped bit, inconsistencies under a
//! good checksum.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_chat::{Attribution, BranchReason, Ledger, Origin, Turn, VersionRange, Versions};
use fulmar_core::ErrorKind;
use proptest::prelude::*;
use serde_json::Value;

const BINARY: &[u8] = include_bytes!("../../../../tests/golden/chat/ledger-v1.bin");
const JSON: &str = include_str!("../../../../tests/golden/chat/ledger-v1.json");
const HEADER_BYTES: usize = 16;

/// Returns the ledger of the golden files: branches of several reasons, versions of each token, extreme
/// log-probabilities.
fn stored_ledger() -> Ledger {
    let mut ledger = Ledger::default();
    let range = Versions::Within(VersionRange { min: 6, max: 7 });
    let first = Turn {
        prompt_ids: &[1, 2],
        completion_ids: &[4, 5, 4_000_000_000],
        log_probs: &[-0.1, -0.0, f32::MIN],
        sampled_log_probs: &[-0.2, 0.0, f32::MIN_POSITIVE],
        versions: Versions::Each(&[5, 5, 6]),
        attribution: Some(Attribution {
            origin: &[Origin::Template, Origin::User],
            message_index: &[-1, 0],
            message_offset: 2,
        }),
        branch_reason: None,
    };
    ledger.record_turn(&first).unwrap();
    record(&mut ledger, &[1, 2, 4, 5, 4_000_000_000, 8], &[9], &[-1e-45], range);
    record(&mut ledger, &[1, 2, 4, 7], &[9, 9], &[-0.25, -1.5], Versions::one(7));
    ledger.fork(3, BranchReason::Compaction).unwrap();
    record(&mut ledger, &[1, 2, 4, 30], &[31], &[-3.0], Versions::one(u32::MAX));
    record(&mut ledger, &[1, 2], &[31], &[-3.0], Versions::one(8));
    ledger
}

fn record(
    ledger: &mut Ledger,
    prompt: &[u32],
    completion: &[u32],
    log_probs: &[f32],
    versions: Versions<'_>,
) {
    let sampled: Vec<f32> = log_probs.iter().map(|log_prob| log_prob / 2.0).collect();
    ledger
        .record_turn(&Turn {
            prompt_ids: prompt,
            completion_ids: completion,
            log_probs,
            sampled_log_probs: &sampled,
            versions,
            attribution: None,
            branch_reason: None,
        })
        .unwrap();
}

#[test]
fn the_files_of_version_1_are_read_and_written_to_the_byte() {
    let ledger = stored_ledger();
    assert_eq!(Ledger::from_bytes(BINARY).unwrap(), ledger);
    assert_eq!(Ledger::from_json(JSON).unwrap(), ledger);
    assert_eq!(ledger.to_bytes(), BINARY);
    assert_eq!(ledger.to_json(), JSON.trim_end());
}

#[test]
fn every_truncation_is_corrupt() {
    for end in 0..BINARY.len() {
        assert_eq!(kind(&BINARY[..end]), ErrorKind::Corrupt, "{end} bytes");
    }
    assert_eq!(kind(&[BINARY, &[0]].concat()), ErrorKind::Corrupt, "one byte more");
}

#[test]
fn every_flipped_bit_is_corrupt() {
    for bit in 0..BINARY.len() * 8 {
        let mut bytes = BINARY.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(kind(&bytes), ErrorKind::Corrupt, "bit {bit}");
    }
}

#[test]
fn a_later_version_is_incompatible_in_both_forms_whatever_it_holds() {
    let later = |version: u32, rest: &[u8]| {
        let mut bytes = [&BINARY[..8], &version.to_le_bytes(), &[0; 4], rest].concat();
        reseal(&mut bytes);
        kind(&bytes)
    };
    assert_eq!(later(2, &[]), ErrorKind::Incompatible);
    assert_eq!(later(2, &BINARY[HEADER_BYTES..]), ErrorKind::Incompatible);
    assert_eq!(later(0, &BINARY[HEADER_BYTES..]), ErrorKind::Incompatible);
    assert_eq!(later(1, &[]), ErrorKind::Corrupt);
    let json = |text: &str| Ledger::from_json(text).unwrap_err().kind();
    assert_eq!(json(r#"{"version":2,"kind":"ledger","pages":[]}"#), ErrorKind::Incompatible);
    assert_eq!(json(r#"{"version":0,"kind":"ledger"}"#), ErrorKind::Incompatible);
    assert_eq!(json(r#"{"version":1,"kind":"ledger"}"#), ErrorKind::Malformed);
    assert_eq!(json(r#"{"version":-1,"kind":"ledger"}"#), ErrorKind::Malformed);
}

#[test]
fn sections_that_a_later_version_adds_are_passed_over() {
    let mut bytes = BINARY[..BINARY.len() - 4].to_vec();
    bytes.extend(section(b"temp", &[1, 2, 3]));
    bytes.extend(section(b"none", &[]));
    bytes.extend([0; 4]);
    reseal(&mut bytes);
    assert_eq!(Ledger::from_bytes(&bytes).unwrap(), stored_ledger());
}

#[test]
fn columns_that_lie_behind_a_good_checksum_are_corrupt() {
    let cases: [(&[u8; 4], &[u8]); 12] = [
        (b"stat", &[0; 4]),
        (b"stat", &[255; 8]),
        (b"brtn", &[]),
        (b"brtn", &[0; 7]),
        (b"frkb", &[255; 12]),
        (b"frkp", &[255; 12]),
        (b"frkr", &[6; 3]),
        (b"sego", &[8; 11]),
        (b"segl", &[255; 44]),
        (b"vmin", &[255; 24]),
        (b"toks", &[0; 8]),
        (b"logp", &[255; 32]),
    ];
    for (name, column) in cases {
        assert_eq!(kind(&with_column(name, column)), ErrorKind::Corrupt, "{}", String::from_utf8_lossy(name));
    }
}

#[test]
fn a_section_that_is_missing_doubled_or_longer_than_the_file_is_corrupt() {
    let sections = sections();
    for (index, (name, column)) in sections.iter().enumerate() {
        let mut without = sections.clone();
        without.remove(index);
        assert_eq!(kind(&joined(&without)), ErrorKind::Corrupt);
        assert_eq!(kind(&joined(&[&sections[..], &[(*name, column.clone())]].concat())), ErrorKind::Corrupt);
        let mut bytes = joined(&sections[..=index]);
        let at = bytes.len() - 4 - column.len() - 8;
        for length in [column.len() as u64 + 1, u64::from(u32::MAX), u64::MAX] {
            bytes[at..at + 8].copy_from_slice(&length.to_le_bytes());
            reseal(&mut bytes);
            assert_eq!(kind(&bytes), ErrorKind::Corrupt, "a length of {length}");
        }
    }
}

#[test]
fn other_files_are_corrupt() {
    for bytes in [&b""[..], b"\x89PNG\r\n\x1a\n", JSON.as_bytes(), &[0; 64]] {
        assert_eq!(kind(bytes), ErrorKind::Corrupt);
    }
}

proptest! {
    #[test]
    fn changed_bytes_behind_a_good_checksum_are_refused_or_consistent(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), 0_u8..4), 1..6),
    ) {
        let mut bytes = BINARY.to_vec();
        for (at, byte, change) in changes {
            let at = at.index(bytes.len());
            match change {
                0 => bytes[at] = byte,
                1 => bytes.insert(at, byte),
                2 => drop(bytes.drain(at..(at + usize::from(byte % 16)).min(bytes.len()))),
                _ => bytes[at] = bytes[at].wrapping_add(1),
            }
            if bytes.len() < HEADER_BYTES + 4 {
                bytes.resize(HEADER_BYTES + 4, 0);
            }
        }
        bytes[..12].copy_from_slice(&BINARY[..12]);
        reseal(&mut bytes);
        match Ledger::from_bytes(&bytes) {
            Err(error) => prop_assert_eq!(error.kind(), ErrorKind::Corrupt),
            Ok(ledger) => {
                prop_assert_eq!(ledger.path_ids().len(), ledger.num_path_tokens());
                ledger.samples().unwrap();
                prop_assert_eq!(&Ledger::from_bytes(&ledger.to_bytes()).unwrap(), &ledger);
                prop_assert_eq!(Ledger::from_json(&ledger.to_json()).unwrap(), ledger);
            }
        }
    }

    #[test]
    fn both_forms_bring_the_same_ledger_back(
        turns in prop::collection::vec((0_usize..9, prop::collection::vec(0_u32..3, 1..4), any::<u32>()), 1..9),
    ) {
        let mut ledger = Ledger::default();
        for (shared, tail, bits) in turns {
            let path = ledger.path_ids();
            let prompt = [&path[..shared.min(path.len())], &tail].concat();
            let log_prob = Some(f32::from_bits(bits)).filter(|value| value.is_finite()).unwrap_or(-1.0);
            record(&mut ledger, &prompt, &tail, &vec![log_prob; tail.len()], Versions::one(bits));
        }
        let bytes = ledger.to_bytes();
        let json: Value = serde_json::from_str(&ledger.to_json()).unwrap();
        let mut read = Ledger::from_bytes(&bytes).unwrap();
        prop_assert_eq!(&Ledger::from_json(&json.to_string()).unwrap(), &read);
        prop_assert_eq!(read.to_bytes(), bytes);
        for ledger in [&mut ledger, &mut read] {
            record(ledger, &[2, 1, 0], &[1], &[-1.0], Versions::one(9));
        }
        prop_assert_eq!(read, ledger);
    }
}

fn kind(bytes: &[u8]) -> ErrorKind {
    Ledger::from_bytes(bytes).unwrap_err().kind()
}

/// Recomputes both checksums.
fn reseal(bytes: &mut Vec<u8>) {
    bytes.resize(bytes.len().max(HEADER_BYTES + 4), 0);
    let check = crc32fast::hash(&bytes[..12]);
    bytes[12..16].copy_from_slice(&check.to_le_bytes());
    let end = bytes.len() - 4;
    let check = crc32fast::hash(&bytes[..end]);
    bytes[end..].copy_from_slice(&check.to_le_bytes());
}

fn section(name: &[u8; 4], column: &[u8]) -> Vec<u8> {
    [name, &(column.len() as u64).to_le_bytes()[..], column].concat()
}

/// Returns the sections of the golden file.
fn sections() -> Vec<([u8; 4], Vec<u8>)> {
    let mut rest = &BINARY[HEADER_BYTES..BINARY.len() - 4];
    let mut sections = Vec::new();
    while let Some((name, after)) = rest.split_first_chunk() {
        let (length, after) = after.split_first_chunk().unwrap();
        let (column, after) = after.split_at(u64::from_le_bytes(*length) as usize);
        sections.push((*name, column.to_vec()));
        rest = after;
    }
    sections
}

fn joined(sections: &[([u8; 4], Vec<u8>)]) -> Vec<u8> {
    let body = sections.iter().flat_map(|(name, column)| section(name, column));
    let mut bytes: Vec<u8> = BINARY[..HEADER_BYTES].iter().copied().chain(body).chain([0; 4]).collect();
    reseal(&mut bytes);
    bytes
}

/// The golden file with one column replaced.
fn with_column(name: &[u8; 4], column: &[u8]) -> Vec<u8> {
    let replace = |(old, kept): ([u8; 4], Vec<u8>)| (old, if old == *name { column.to_vec() } else { kept });
    joined(&sections().into_iter().map(replace).collect::<Vec<_>>())
}
