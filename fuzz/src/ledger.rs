//! Stored ledgers: raw bytes, the same with valid checksums, and JSON.

use fulmar::chat::{BranchReason, Ledger, Turn, Versions};

const HEADER_BYTES: usize = 16;

/// Longer walks find no more than shorter ones.
const STEPS_MAX: usize = 64;

/// Checks that accepted input can be written again, has consistent paths and samples, and records further turns. The bytes are steps of
/// a walk, too.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let read = [Ledger::from_bytes(data), Ledger::from_bytes(&resealed(data)), Ledger::from_json(&text)];
    for ledger in read.into_iter().flatten() {
        check(ledger);
    }
    walk(data);
}

/// Records turns whose prompts keep some of the path and continue differently, and forks in between: four bytes per step. Each
/// token that was sampled is trained exactly once, whatever branches it is on, and a refusal changes nothing.
fn walk(data: &[u8]) {
    let mut ledger = Ledger::default();
    let mut num_sampled = 0_u16;
    for &[step, kept, added, sampled] in data.as_chunks().0.iter().take(STEPS_MAX) {
        let before = ledger.clone();
        let path = ledger.path_ids();
        let cut = usize::from(kept) % (path.len() + 1);
        if step % 8 == 0 {
            let position = usize::from(kept);
            let forked = ledger.fork(position, BranchReason::HistoryEdit);
            assert_eq!(forked.is_ok(), position <= path.len(), "a fork is on the path");
            assert!(forked.is_ok() || ledger == before, "a refusal changes nothing");
            continue;
        }
        let start = if step % 2 == 0 { path.len() } else { cut };
        // Few different tokens, so that prompts meet other branches.
        let prompt = [&path[..start], &vec![u32::from(added % 3); usize::from(added % 5)]].concat();
        let completion = vec![u32::from(sampled % 3); usize::from(sampled % 5)];
        let log_probs: Vec<f32> = (0..completion.len()).map(|k| -f32::from(num_sampled + k as u16)).collect();
        let recorded = ledger.record_turn(&Turn {
            prompt_ids: &prompt,
            completion_ids: &completion,
            log_probs: &log_probs,
            sampled_log_probs: &log_probs,
            versions: Versions::one(u32::from(step)),
            attribution: None,
            branch_reason: None,
        });
        if recorded.is_err() {
            assert_eq!(ledger, before, "a refusal changes nothing");
            continue;
        }
        num_sampled += completion.len() as u16;
        assert_eq!(ledger.path_ids(), [prompt, completion].concat(), "the path is the turn's");
    }
    let Ok(samples) = ledger.samples() else { return };
    let trained = samples.log_probs.iter().zip(&samples.mask).filter(|(_, is_trained)| **is_trained);
    let mut trained: Vec<u16> = trained.map(|(log_prob, _)| -log_prob as u16).collect();
    trained.sort_unstable();
    assert_eq!(trained, (0..num_sampled).collect::<Vec<_>>(), "each sampled token is trained once");
    check(ledger);
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
