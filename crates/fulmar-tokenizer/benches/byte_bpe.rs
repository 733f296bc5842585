//! [`ByteBpe`] compared with Hugging Face's crate on one thread: `cargo bench -p fulmar-tokenizer --
//! [TOKENIZER.JSON...]`.
//!
//! Both encode the same 7 MB of synthetic chats, alternately, after a check that their ids and offsets are
//! equal. Without a file the vocabulary is learned from a part of the chats. Prints, for each file, the
//! median over the rounds of the speed and of the ratio, and the ratio of the worst tenth, to which the goal
//! applies.
#![expect(clippy::print_stdout, reason = "a bench shows its figures")]
#![expect(clippy::unwrap_used, reason = "a bench that cannot go on should stop")]

use std::str::FromStr;
use std::time::Instant;

use fulmar_core::Rng;
use fulmar_tokenizer::{ByteBpe, train_byte_bpe};
use tokenizers::Tokenizer as Rival;

const NUM_ROUNDS: usize = 15;
const CHAT_BYTES: usize = 7_000_000;
const GOAL: f64 = 10.0;

const SYLLABLES: &str = "ab ac al an ar as at be ca ci com con cu da de di do e en er ex fi for ga ge graph i im in ing is it \
    la le li lo ly ma me ment mi mo na ne ni no o or pa per pi pre pro ra re ri ro sa se si so ster ta te ter ti tion tor tra \
    u un ur va ve vi wa wi xi y";
const PHRASES: &str = "the|of the|and|it's|we'll|you don't|is a|3.14|1,024|2026-11-21|x_i + 1|for (let i = 0; i < n; i++) {\n|    return \
    values[i]\n|\"key\": [1, 2.5e-3],|https://example.org/a?b=c#d|généralement|Übung|日本語のテスト|模型训练|привет мир|🙂 ✅|…|—|\n\n|\n- |**bold**";

fn main() {
    // Without this argument the program was started as a test of all targets, not as a bench.
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if !arguments.iter().any(|argument| argument == "--bench") {
        return;
    }
    let chats = chats();
    let num_bytes: usize = chats.iter().map(String::len).sum();
    println!(
        "{} chats, {:.2} MB, one thread, {NUM_ROUNDS} rounds in turns",
        chats.len(),
        num_bytes as f64 / 1e6
    );
    let paths: Vec<&String> = arguments.iter().filter(|argument| !argument.starts_with('-')).collect();
    if paths.is_empty() {
        let texts: Vec<&str> = chats.iter().take(40).map(String::as_str).collect();
        measure("learned from these chats", &train_byte_bpe(&texts, 4000, &[]).unwrap(), &chats);
    }
    for path in paths {
        measure(path, &std::fs::read_to_string(path).unwrap(), &chats);
    }
}

/// Compares the two on one file, then times them.
fn measure(name: &str, file: &str, chats: &[String]) {
    let mut file: serde_json::Value = serde_json::from_str(file).unwrap();
    file["added_tokens"] = serde_json::json!([]);
    let started = Instant::now();
    let ours = ByteBpe::from_tokenizer_json(&file).unwrap().unwrap();
    let load_ms = started.elapsed().as_secs_f64() * 1e3;
    let rival = Rival::from_str(&file.to_string()).unwrap();
    let num_tokens: usize = chats.iter().map(|chat| compare(&ours, &rival, chat)).sum();
    let (mut speeds, mut ratios) = (Vec::new(), Vec::new());
    for _ in 0..NUM_ROUNDS {
        let ours_s = seconds(chats, |chat| encode(&ours, chat).0.len());
        let rival_s = seconds(chats, |chat| rival.encode(chat, false).unwrap().len());
        let num_bytes: usize = chats.iter().map(String::len).sum();
        speeds.push([ours_s, rival_s].map(|seconds| num_bytes as f64 / 1e6 / seconds));
        ratios.push(rival_s / ours_s);
    }
    ratios.sort_unstable_by(f64::total_cmp);
    let [ours_speed, rival_speed] = [0, 1].map(|side| {
        let mut side: Vec<f64> = speeds.iter().map(|round| round[side]).collect();
        side.sort_unstable_by(f64::total_cmp);
        side[NUM_ROUNDS / 2]
    });
    let (median, worst) = (ratios[NUM_ROUNDS / 2], ratios[NUM_ROUNDS / 10]);
    let verdict = if worst >= GOAL { "met".to_owned() } else { format!("short by {:.1}", GOAL - worst) };
    println!("{name}: {num_tokens} tokens, ids and offsets equal, made in {load_ms:.0} ms from parsed JSON");
    println!("  ours {ours_speed:.1} MB/s, tokenizers {rival_speed:.2} MB/s");
    println!("  ratio {median:.1}, worst tenth {worst:.1}; goal {GOAL:.0}: {verdict}");
}

fn compare(ours: &ByteBpe, rival: &Rival, chat: &str) -> usize {
    let (ids, offsets) = encode(ours, chat);
    let expected = rival.encode(chat, false).unwrap();
    let in_bytes = expected.get_offsets().iter().map(|&(start, end)| [start as u32, end as u32]);
    assert!(ids == expected.get_ids() && offsets.into_iter().eq(in_bytes), "both must give equal tokens");
    ids.len()
}

fn encode(bpe: &ByteBpe, text: &str) -> (Vec<u32>, Vec<[u32; 2]>) {
    let (mut ids, mut offsets) = (Vec::new(), Vec::new());
    bpe.encode_into(text, 0, &mut ids, &mut offsets);
    (ids, offsets)
}

fn seconds(chats: &[String], encode: impl Fn(&str) -> usize) -> f64 {
    let started = Instant::now();
    let num_tokens: usize = chats.iter().map(|chat| encode(chat)).sum();
    std::hint::black_box(num_tokens);
    started.elapsed().as_secs_f64()
}

/// One to four syllables.
fn word(syllables: &[&str], below: &mut impl FnMut(usize) -> usize) -> String {
    (0..=below(4)).map(|_| syllables[below(syllables.len())]).collect()
}

/// Returns chats of 2 to 20 messages of repeated and unique words, with numbers, code and other scripts.
fn chats() -> Vec<String> {
    let mut rng = Rng::new(1);
    let mut below = |bound: usize| rng.below(bound as u64).unwrap() as usize;
    let syllables: Vec<&str> = SYLLABLES.split_whitespace().collect();
    let phrases: Vec<&str> = PHRASES.split('|').collect();
    let common: Vec<String> = (0..2000).map(|_| word(&syllables, &mut below)).collect();
    let mut chats = Vec::new();
    let mut num_bytes = 0;
    while num_bytes < CHAT_BYTES {
        let mut chat = String::new();
        for turn in 0..2 + below(19) {
            chat.push_str(if turn % 2 == 0 { "<|im_start|>user\n" } else { "<|im_start|>assistant\n" });
            for _ in 0..5 + below(100) {
                match below(20) {
                    0..3 => chat.push_str(phrases[below(phrases.len())]),
                    3 => chat.push_str(&word(&syllables, &mut below)),
                    // Some words are much more frequent than others.
                    _ => {
                        let most = 1 + below(common.len());
                        chat.push_str(&common[below(most)]);
                    }
                }
                chat.push_str(if below(12) == 0 { ", " } else { " " });
            }
            chat.push_str("<|im_end|>\n");
        }
        num_bytes += chat.len();
        chats.push(chat);
    }
    chats
}
