//! [`ByteBpe`] against the published rows and against Hugging Face's own crate, id by id and range by range.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::str::FromStr;
use std::sync::LazyLock;

use fulmar_core::ErrorKind;
use fulmar_tokenizer::{ByteBpe, train_byte_bpe};
use proptest::prelude::*;
use serde_json::{Value, json};
use tokenizers::Tokenizer as Oracle;

const GPT2: &str = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+";
const R50K: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";
const QWEN2: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const QWEN_MARKS: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const LLAMA3: &str = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+";
const CL100K: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+";
const CL100K_POSSESSIVE: &str = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s";
const O200K: &str = r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+";

/// Training texts of the test vocabularies: words, numbers, code, several scripts, marks, white space.
const TEXTS: [&str; 9] = [
    "The quick brown fox jumps over the lazy dog. It's what they'll do, and we've seen the others: they're there.",
    "SHE'S GONE WHERE THE OTHERS WEREN'T; the HTTPServer said iPhone, camelCase and snake_case in the README.md.",
    "def add(a, b):\n    return a + b\n\n\nfor i in range(100):\n\tprint(i, end='')\r\n\r\n// ----- //\n/* ***** */",
    "1234567890 3.14159 2024-01-01 10:20:30 1,000,000 ١٢٣ ½ Ⅻ 100 100 2024 2024 0.5 0.25",
    "猫は窓の外を見ている。犬も見ている。猫は眠い。 我们都在这里。我们都在那里。",
    "Привет, мир! Привет, друзья! Это тест. Это ещё один тест. Ёлки и ёлки.",
    "cafe\u{301} café naïve nai\u{308}ve Å A\u{30A} e\u{323}\u{301} हिन्दी में हिन्दी עִבְרִית",
    "🐈🐈 👩‍👩‍👧 👍🏽 👍🏽 … “quoted” ‘single’ — dash – dash €100 ™ ©",
    "<|im_start|>user\nWhat is 17*23?<|im_end|>\n<|im_start|>assistant\nIt is 391.<|im_end|>\n     \n  \t\t x",
];

static TRAINED: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(&train_byte_bpe(&TEXTS.repeat(2), 900, &[]).unwrap()).unwrap());

/// An encoder and its oracle, made from the same file.
struct Pair {
    name: String,
    ours: ByteBpe,
    oracle: Oracle,
}

impl Pair {
    fn of(name: &str, file: &Value) -> Self {
        let ours =
            ByteBpe::from_tokenizer_json(file).unwrap().unwrap_or_else(|| panic!("{name} is of the family"));
        Self { name: name.to_owned(), ours, oracle: Oracle::from_str(&file.to_string()).unwrap() }
    }

    fn check(&self, text: &str) {
        let (ids, offsets) = encode(&self.ours, text);
        let expected = self.oracle.encode(text, false).unwrap();
        let expected_offsets: Vec<_> =
            expected.get_offsets().iter().map(|&(start, end)| [start as u32, end as u32]).collect();
        assert_eq!(ids, expected.get_ids(), "{}: ids of {:?}", self.name, shortened(text));
        assert_eq!(offsets, expected_offsets, "{}: offsets of {:?}", self.name, shortened(text));
    }
}

fn encode(bpe: &ByteBpe, text: &str) -> (Vec<u32>, Vec<[u32; 2]>) {
    let (mut ids, mut offsets) = (Vec::new(), Vec::new());
    bpe.encode_into(text, 0, &mut ids, &mut offsets);
    (ids, offsets)
}

fn shortened(text: &str) -> String {
    text.chars().take(200).collect()
}

fn split(pattern: &str) -> Value {
    json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false})
}

fn byte_level(use_regex: bool) -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": use_regex})
}

fn sequence(steps: &[Value]) -> Value {
    json!({"type": "Sequence", "pretokenizers": steps})
}

fn digits(individual: bool) -> Value {
    json!({"type": "Digits", "individual_digits": individual})
}

fn with(changes: &[(&str, Value)]) -> Value {
    let mut file = TRAINED.clone();
    for (pointer, value) in changes {
        *file.pointer_mut(pointer).unwrap() = value.clone();
    }
    file
}

/// Returns the trained file without the tokens of `bytes` and all tokens made of them.
fn without_bytes(bytes: &[char]) -> Value {
    let mut file = TRAINED.clone();
    let lacks = |token: &str| !bytes.iter().any(|&character| token.contains(character));
    let model = &mut file["model"];
    model["vocab"].as_object_mut().unwrap().retain(|token, _| lacks(token));
    model["merges"].as_array_mut().unwrap().retain(|merge| lacks(merge.as_str().unwrap()));
    file
}

static PAIRS: LazyLock<Vec<Pair>> = LazyLock::new(|| {
    let mut files = vec![
        ("byte level alone".to_owned(), with(&[])),
        ("no pattern".to_owned(), with(&[("/pre_tokenizer", byte_level(false))])),
        ("NFC".to_owned(), with(&[("/normalizer", json!({"type": "NFC"}))])),
        ("no post-processor".to_owned(), with(&[("/post_processor", Value::Null)])),
        ("ignore_merges".to_owned(), with(&[("/model/ignore_merges", json!(true))])),
        ("lacks a space, a letter, a lead byte".to_owned(), without_bytes(&['Ġ', 'e', 'ã', 'Ģ'])),
    ];
    let steps = [("digits one by one", digits(true)), ("runs of digits", digits(false))];
    for (name, step) in steps {
        files.push((name.to_owned(), with(&[("/pre_tokenizer", sequence(&[step, byte_level(true)]))])));
    }
    for keeps_first in [true, false] {
        let trim = json!({"type": "ByteLevel", "add_prefix_space": keeps_first, "trim_offsets": true, "use_regex": true});
        files.push((format!("trimmed, {keeps_first}"), with(&[("/post_processor", trim)])));
    }
    for pattern in [GPT2, R50K, QWEN2, QWEN_MARKS, LLAMA3, CL100K, CL100K_POSSESSIVE, O200K] {
        let steps = sequence(&[split(pattern), byte_level(false)]);
        files.push((pattern.to_owned(), with(&[("/pre_tokenizer", steps)])));
        let steps = sequence(&[digits(true), split(pattern), byte_level(false)]);
        let changes = [("/pre_tokenizer", steps), ("/normalizer", json!({"type": "NFC"}))];
        files.push((format!("digits, NFC, {pattern}"), with(&changes)));
    }
    files.push(("all at once".to_owned(), {
        let mut file = without_bytes(&['Ġ', 'Ì', 'a', 'Ċ']);
        file["normalizer"] = json!({"type": "NFC"});
        file["pre_tokenizer"] = sequence(&[split(QWEN2), byte_level(false)]);
        file["post_processor"] = byte_level(true);
        file["model"]["ignore_merges"] = json!(true);
        file
    }));
    files.iter().map(|(name, file)| Pair::of(name, file)).collect()
});

/// Difficult inputs for splitters: contractions in every case, letters that fold to ASCII, white space of
/// every kind.
const TRAPS: [&str; 60] = [
    "'s",
    "'S",
    "'ſ",
    "'t",
    "'T",
    "'re",
    "'RE",
    "'rE",
    "'ve",
    "'m",
    "'M",
    "'ll",
    "'LL",
    "'lL",
    "'d",
    "'D",
    "'K",
    "'\u{212A}",
    "'",
    "’s",
    "ſ",
    "\u{212A}",
    "İ",
    "ı",
    "ß",
    "ẞ",
    "ŉ",
    "ǅ",
    "ʰ",
    "ª",
    "\u{301}",
    "\u{308}",
    "\u{200D}",
    "\u{FE0F}",
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r",
    "\r\n",
    "\n\n",
    "\u{A0}",
    "\u{3000}",
    "\u{2028}",
    "\u{85}",
    "\u{1680}",
    "\0",
    "/",
    "//\n",
    "1",
    "12",
    "1234",
    "٣",
    "½",
    "Ⅷ",
    "猫",
    "🐈",
    "한",
    "\u{1100}\u{1161}",
];

fn text() -> impl Strategy<Value = String> {
    let word = prop_oneof![
        3 => proptest::sample::select(TRAPS.as_slice()).prop_map(str::to_owned),
        3 => "[a-zA-Z ]{1,6}",
        1 => "[ -~\n\r\t]{1,4}",
        1 => proptest::char::range('\u{80}', '\u{24F}').prop_map(String::from),
        1 => proptest::char::range('\u{300}', '\u{36F}').prop_map(String::from),
        1 => proptest::char::range('\u{900}', '\u{DFF}').prop_map(String::from),
        1 => proptest::char::range('\u{1100}', '\u{11FF}').prop_map(String::from),
        1 => proptest::char::range('\u{1E00}', '\u{22FF}').prop_map(String::from),
        2 => any::<char>().prop_map(String::from),
    ];
    proptest::collection::vec(word, 0..24).prop_map(|words| words.concat())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn ids_and_offsets_are_those_of_hugging_face(text in text()) {
        for pair in PAIRS.iter() {
            pair.check(&text);
        }
    }
}

#[test]
fn training_texts_and_every_pair_of_traps_are_equal() {
    for pair in PAIRS.iter() {
        TEXTS.iter().for_each(|text| pair.check(text));
        for first in TRAPS {
            let joined: Vec<String> =
                TRAPS.iter().map(|second| format!("{first}{second}a{second}{first} ")).collect();
            pair.check(&joined.concat());
        }
    }
}

#[test]
fn every_character_is_split_as_by_hugging_face() {
    let characters: Vec<char> = ('\0'..=char::MAX).collect();
    let is_other_splitter =
        |pair: &&Pair| pair.name.contains("digits") || pair.name.starts_with(['\'', '(', '[']);
    for pair in PAIRS.iter().filter(is_other_splitter).filter(|pair| !pair.name.contains("NFC")) {
        for chunk in characters.chunks(4096).filter(|chunk| u32::from(chunk[0]) < 0x3_3000) {
            let text: String = chunk.iter().flat_map(|&character| ['a', character, ' ', character]).collect();
            pair.check(&text);
        }
    }
}

#[test]
fn long_pieces_take_no_quadratic_time() {
    let pair = Pair::of("no pattern", &with(&[("/pre_tokenizer", byte_level(false))]));
    for unit in ["a", "ab", "the ", "猫", " ", "\n", "\0"] {
        pair.check(&unit.repeat(20_000));
    }
    let megabytes = "a".repeat(4 << 20);
    let (_, offsets) = encode(&pair.ours, &megabytes);
    assert_eq!(offsets.last().unwrap()[1] as usize, megabytes.len());
}

#[test]
fn offsets_move_by_the_base_and_lists_are_appended_to() {
    let bpe = ByteBpe::from_tokenizer_json(&TRAINED).unwrap().unwrap();
    let (mut ids, mut offsets) = (vec![7], vec![[0, 3]]);
    bpe.encode_into("", 3, &mut ids, &mut offsets);
    assert_eq!((ids.len(), offsets.len()), (1, 1));
    bpe.encode_into("é!", 3, &mut ids, &mut offsets);
    assert_eq!(offsets, [[0, 3], [3, 5], [3, 5], [5, 6]], "the two bytes of one character share its range");
    assert_eq!(
        ids[1..].iter().flat_map(|&id| bpe.decode_bytes(id)).copied().collect::<Vec<_>>(),
        "é!".as_bytes()
    );
    assert_eq!(bpe.decode_bytes(u32::MAX), b"");
}

#[test]
fn a_second_trained_file_with_pairs_and_comments_reads_the_same() {
    let texts: Vec<Value> = TRAINED["model"]["merges"].as_array().unwrap().clone();
    let pairs: Vec<Value> =
        texts.iter().map(|merge| json!(merge.as_str().unwrap().split(' ').collect::<Vec<_>>())).collect();
    let mut commented = texts.clone();
    commented.insert(0, json!("#version: 0.2"));
    let mut repeated = texts.clone();
    repeated.extend(texts.iter().rev().take(200).cloned());
    for merges in [json!(pairs), json!(commented), json!(repeated)] {
        let pair = Pair::of("other merges", &with(&[("/model/merges", merges)]));
        TEXTS.iter().for_each(|text| pair.check(text));
    }
}

#[test]
fn files_of_other_families_are_left_to_the_general_engine() {
    let lacking = without_bytes(&['Ġ']);
    let unknown = |mut file: Value, name: &str, value: Value| {
        file["model"][name] = value;
        file
    };
    let others = [
        with(&[("/model/type", json!("Unigram"))]),
        with(&[("/model/dropout", json!(0.1))]),
        with(&[("/model/end_of_word_suffix", json!("</w>"))]),
        with(&[("/model/continuing_subword_prefix", json!("##"))]),
        with(&[("/model/vocab/!", json!(1))]),
        with(&[("/normalizer", json!({"type": "NFKC"}))]),
        with(&[("/decoder", Value::Null)]),
        with(&[("/pre_tokenizer", Value::Null)]),
        with(&[("/pre_tokenizer", split(QWEN2))]),
        with(&[("/pre_tokenizer", sequence(&[]))]),
        with(&[("/pre_tokenizer", sequence(&[split("[a-z]+"), byte_level(false)]))]),
        with(&[("/pre_tokenizer", sequence(&[digits(true), digits(true), byte_level(true)]))]),
        with(&[("/pre_tokenizer/add_prefix_space", json!(true))]),
        with(&[("/post_processor", json!({"type": "Unheard"}))]),
        unknown(lacking.clone(), "unk_token", json!("a")),
        unknown(lacking, "byte_fallback", json!(true)),
        json!({}),
        json!([1]),
    ];
    for other in others {
        assert!(ByteBpe::from_tokenizer_json(&other).unwrap().is_none(), "{:.300}", other.to_string());
    }
    let harmless = [("dropout", json!(0.0)), ("unk_token", json!("a")), ("byte_fallback", json!(true))];
    for (name, value) in harmless {
        let pair = Pair::of(name, &unknown(TRAINED.clone(), name, value));
        TEXTS.iter().for_each(|text| pair.check(text));
    }
}

#[test]
fn broken_files_are_errors_that_name_the_place() {
    let size_max = fulmar_core::limits::VOCAB_SIZE_MAX;
    let cases = [
        ("/model/vocab", json!([]), ErrorKind::Malformed, "model.vocab must be an object: got []"),
        ("/model/vocab/a", json!("b"), ErrorKind::Malformed, "model.vocab[\"a\"]: must be an id: got \"b\""),
        ("/model/vocab/a", json!(-1), ErrorKind::Malformed, "model.vocab[\"a\"]: must be an id: got -1"),
        ("/model/vocab/a", json!(size_max), ErrorKind::LimitExceeded, "must be below 4194304: got 4194304"),
        ("/model/merges", json!(null), ErrorKind::Malformed, "model.merges must be an array: got null"),
        (
            "/model/merges/3",
            json!("a b c"),
            ErrorKind::Malformed,
            "model.merges[3]: must be a pair of tokens",
        ),
        ("/model/merges/3", json!(["a"]), ErrorKind::Malformed, "model.merges[3]: must be a pair of tokens"),
        (
            "/model/merges/3",
            json!("a 猫"),
            ErrorKind::Malformed,
            "must be made of tokens of the vocabulary: got 猫",
        ),
        (
            "/model/merges/3",
            json!("! \""),
            ErrorKind::Malformed,
            "must be made of tokens of the vocabulary: got !\"",
        ),
    ];
    for (pointer, value, kind, detail) in cases {
        let error = ByteBpe::from_tokenizer_json(&with(&[(pointer, value)])).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.detail().contains(detail), "{error}");
    }
    let largest = with(&[("/model/vocab/z", json!(size_max - 1))]);
    let bpe = ByteBpe::from_tokenizer_json(&largest).unwrap().unwrap();
    assert_eq!(bpe.decode_bytes(size_max as u32 - 1), b"z");
}
