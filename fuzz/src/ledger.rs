//! Stored ledgers: bytes as they come, the same behind good checksums, and JSON.

use fulmar::chat::{Ledger, Turn, Versions};

const HEADER_BYTES: usize = 16;

/// Reads; what is read writes itself again, has paths and samples that fit, and goes on recording.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = [Ledger::from_bytes(data), Ledger::from_bytes(&resealed(data)), Ledger::from_json(&text)];
    for ledger in read.into_iter().flatten() {
        check(ledger);
    }
}

/// `data` with the magic, the version and the checksums that a writer would have put there.
fn resealed(data: &[u8]) -> Vec<u8> {
    let mut bytes = Ledger::default().to_bytes()[..HEADER_BYTES].to_vec();
    bytes.extend(data.get(HEADER_BYTES..data.len().max(HEADER_BYTES + 4) - 4).unwrap_or_default());
    let check = crc32fast::hash(&bytes);
    bytes.extend(check.to_le_bytes());
    bytes
}

fn check(mut ledger: Ledger) {
    assert_eq!(Ledger::from_bytes(&ledger.to_bytes()).as_ref(), Ok(&ledger), "bytes bring it back");
    assert_eq!(Ledger::from_json(&ledger.to_json()).as_ref(), Ok(&ledger), "JSON brings it back");
    let path = ledger.path_ids();
    assert_eq!(path.len(), ledger.num_path_tokens());
    if let Ok(samples) = ledger.samples() {
        assert_eq!(samples.ids.len(), samples.mask.len());
        assert_eq!(samples.offsets.len(), samples.len() + 1);
    }
    let recorded = ledger.record_turn(&Turn {
        prompt_ids: &[&path[..], &[7]].concat(),
        completion_ids: &[8],
        log_probs: &[-1.0],
        sampled_log_probs: &[-1.0],
        versions: Versions::one(1),
        attribution: None,
        branch_reason: None,
    });
    if recorded.is_ok() {
        assert_eq!(ledger.path_ids().last(), Some(&8), "what was recorded ends the path");
    }
}
