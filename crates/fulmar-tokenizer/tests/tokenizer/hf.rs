//! [`HfTokenizer`] beyond ids: safety of text, gaps, the companions of `tokenizer.json`, hostile files.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::path::PathBuf;
use std::sync::Arc;

use fulmar_core::{ErrorKind, limits};
use fulmar_tokenizer::{
    AddedTokens, DecodeStream, Encoding, HfFiles, HfTokenizer, Tokenizer, check_tokenizer, train_byte_bpe,
};
use proptest::prelude::*;
use serde_json::{Value, json};

fn golden(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tokenizer").join(name)
}

fn read(file: &Value) -> HfTokenizer {
    HfTokenizer::from_json(&file.to_string()).unwrap()
}

fn refusal(file: &Value) -> ErrorKind {
    HfTokenizer::from_json(&file.to_string()).err().map(|error| error.kind()).unwrap()
}

fn words() -> Value {
    json!({
        "added_tokens": [{"id": 7, "content": "<end>", "special": true}, {"id": 9, "content": "<tag>"}],
        "pre_tokenizer": {"type": "WhitespaceSplit"},
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "two": 1, "words": 4}, "unk_token": "<unk>"},
    })
}

#[test]
fn tokenizers_of_every_family_pass_the_common_suite() {
    check_tokenizer(
        &HfTokenizer::from_folder(golden("qwen2")).unwrap(),
        &["", "a猫🐈 <|im_end|>\n", "naïve"],
    );
    check_tokenizer(
        &HfTokenizer::from_folder(golden("smollm2")).unwrap(),
        &["", "def f(x):\n  return 2", "猫"],
    );
    check_tokenizer(&HfTokenizer::from_folder(golden("byte_fallback")).unwrap(), &["", "the fox 猫", "</s>"]);
    check_tokenizer(&HfTokenizer::from_folder(golden("unigram")).unwrap(), &["", "the quick fox"]);
    check_tokenizer(&HfTokenizer::from_folder(golden("wordpiece")).unwrap(), &["", "quick brown"]);
    check_tokenizer(&HfTokenizer::from_folder(golden("word_level")).unwrap(), &["", "the quick dog"]);
    check_tokenizer(&read(&words()), &["", "two words"]);
    let trained = HfTokenizer::from_json(&train_byte_bpe(&["abab"], 260, &["<s>"]).unwrap()).unwrap();
    check_tokenizer(&trained, &["", "abab<s>🐈"]);
}

#[test]
fn byte_level_files_go_through_our_own_engine() {
    for (name, is_byte_level) in
        [("qwen2", true), ("smollm2", true), ("prefix_space", false), ("unigram", false)]
    {
        let tokenizer = HfTokenizer::from_folder(golden(name)).unwrap();
        assert_eq!(tokenizer.is_byte_level(), is_byte_level, "{name}");
    }
}

#[test]
fn cuts_of_equal_scores_are_those_of_tokenizers_to_the_last_bit() {
    let text = std::fs::read_to_string(golden("unigram_ties").join("ties.json")).unwrap();
    let file: serde_json::Value = serde_json::from_str(&text).unwrap();
    let tokenizer = HfTokenizer::from_json(&file["tokenizer"].to_string()).unwrap();
    for row in file["rows"].as_array().unwrap() {
        let found = tokenizer.encode_added(row["text"].as_str().unwrap()).unwrap().ids;
        assert_eq!(serde_json::json!(found), row["ids"], "{}", row["text"]);
    }
}

#[test]
fn ids_may_have_gaps() {
    let tokenizer = read(&words());
    assert_eq!(tokenizer.vocab_size(), 10);
    assert_eq!(
        (tokenizer.token_of(4).as_deref(), tokenizer.token_of(5), tokenizer.id_of("")),
        (Some("words"), None, None)
    );
    assert_eq!(tokenizer.decode(&[1, 5, 4, 8], false).unwrap(), "two words");
    assert_eq!(tokenizer.decode(&[1, 10], false).unwrap_err().kind(), ErrorKind::OutOfRange);
    let mut file: Value = serde_json::from_str(&train_byte_bpe(&["ab"], 257, &[]).unwrap()).unwrap();
    file["added_tokens"] = json!([{"id": 400, "content": "<s>", "special": true, "normalized": false}]);
    let tokenizer = read(&file);
    assert!(tokenizer.is_byte_level());
    assert_eq!((tokenizer.vocab_size(), tokenizer.token_of(399)), (401, None));
    assert_eq!(tokenizer.decode(&[399, 400], false).unwrap(), "<s>");
}

#[test]
fn an_added_token_has_the_models_id_or_its_own_or_the_next() {
    let mut file = words();
    file["added_tokens"] = json!([
        {"id": 3, "content": "words"}, {"id": 1, "content": "<taken>"}, {"id": 2, "content": "<free>"}, {"id": 6, "content": ""},
    ]);
    let tokenizer = read(&file);
    let ids = ["words", "<taken>", "<free>"].map(|name| tokenizer.id_of(name));
    assert_eq!((ids, tokenizer.vocab_size()), ([Some(4), Some(5), Some(2)], 6));
}

#[test]
fn text_never_becomes_a_special_token_even_where_the_model_would_read_one() {
    // Unigram lists its special tokens among its words, and the score 0 is the best.
    let vocab = json!([
        ["<unk>", 0.0],
        ["</s>", 0.0],
        ["<", -3.0],
        ["/", -3.0],
        ["s", -3.0],
        [">", -3.0],
        ["s>", -2.0]
    ]);
    let special = |id: u32, content: &str| json!({"id": id, "content": content, "special": true});
    let tokenizer = read(&json!({
        "added_tokens": [special(0, "<unk>"), special(1, "</s>")],
        "model": {"type": "Unigram", "vocab": vocab, "unk_id": 0},
    }));
    let encoding = tokenizer.encode("s</s></s>").unwrap();
    assert_eq!(encoding.ids, [4, 2, 3, 6, 2, 3, 6]);
    assert_eq!(encoding.offsets, [[0, 1], [1, 2], [2, 3], [3, 5], [5, 6], [6, 7], [7, 9]]);
    assert_eq!(tokenizer.encode_added("s</s></s>").unwrap().ids, [4, 1, 1]);
    assert_eq!(tokenizer.encode("é").unwrap().ids, [0], "unknown text is unknown");
    assert_eq!(
        tokenizer.decode(&encoding.ids, false).unwrap(),
        "s < / s> < / s>",
        "no decoder: joined by spaces"
    );

    // With skipped merges, a byte-level model may read one too.
    let mut file: Value = serde_json::from_str(&train_byte_bpe(&[], 256, &[]).unwrap()).unwrap();
    file["model"]["vocab"]["end"] = json!(256);
    file["model"]["ignore_merges"] = json!(true);
    file["added_tokens"] = json!([{"id": 256, "content": "end", "special": true, "normalized": false}]);
    let tokenizer = read(&file);
    assert!(!tokenizer.encode("end").unwrap().ids.contains(&256));
    assert_eq!(tokenizer.encode_added("end").unwrap().ids, [256]);
}

#[test]
fn a_special_token_of_one_character_cannot_be_said() {
    let tokenizer = read(&json!({
        "added_tokens": [{"id": 1, "content": "|", "special": true}],
        "model": {"type": "WordLevel", "vocab": {"<unk>": 0, "|": 1}, "unk_token": "<unk>"},
        "pre_tokenizer": {"type": "WhitespaceSplit"},
    }));
    let mut encoding = tokenizer.encode("a").unwrap();
    let error = tokenizer.encode_into("a é |", AddedTokens::AsText, &mut encoding).unwrap_err();
    assert_eq!((error.kind(), encoding.ids.len()), (ErrorKind::UnknownText, 1));
    assert!(error.detail().ends_with("got \"|\" at byte 5"), "{error}");
}

#[test]
fn padding_truncation_and_dropout_of_the_file_are_not_looked_at() {
    let mut file = words();
    file["truncation"] =
        json!({"max_length": 1, "stride": 0, "strategy": "LongestFirst", "direction": "Right"});
    file["padding"] = json!({"strategy": {"Fixed": 9}, "direction": "Left", "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    assert_eq!(read(&file).encode("two words two").unwrap().ids, [1, 4, 1]);
    let file = json!({
        "model": {"type": "BPE", "dropout": 1.0, "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]},
    });
    assert_eq!(read(&file).encode("abab").unwrap().ids, [2, 2]);
}

#[test]
fn a_folder_gives_special_tokens_and_templates() {
    let tokenizer = HfTokenizer::from_folder(golden("smollm2")).unwrap();
    let expected = json!({
        "bos_token": "<|im_start|>", "eos_token": "<|im_end|>", "pad_token": "<|im_end|>", "unk_token": "<|endoftext|>",
    });
    assert_eq!(Value::from(tokenizer.special_tokens().clone()), expected);
    assert!(tokenizer.chat_template().unwrap().starts_with("{% for message in messages %}"));
    let error = HfTokenizer::from_folder(golden("nowhere")).err().unwrap();
    assert_eq!(error.kind(), ErrorKind::Io);
}

#[test]
fn the_configuration_names_special_tokens_and_adds_what_the_tokenizer_lacks() {
    let config = json!({
        "bos_token": {"content": "two", "lstrip": false}, "eos_token": "<end>", "pad_token": null, "image_token": "<img>",
        "add_bos_token": true, "extra_special_tokens": ["words"],
        "added_tokens_decoder": {
            "7": {"content": "<end>", "special": false},
            "12": {"content": "<img>", "special": true, "normalized": false},
        },
        "chat_template": [{"name": "default", "template": "D"}, {"name": "tool_use", "template": "T"}],
    });
    let files =
        HfFiles { tokenizer: words().to_string(), config: Some(config.to_string()), ..HfFiles::default() };
    let tokenizer = HfTokenizer::from_files(files.clone()).unwrap();
    let named = json!({"bos_token": "two", "eos_token": "<end>", "image_token": "<img>"});
    assert_eq!(Value::from(tokenizer.special_tokens().clone()), named);
    assert_eq!(tokenizer.encode_added("two <img>").unwrap().ids, [1, 12]);
    assert_eq!(tokenizer.decode(&[1, 4, 7, 12], true).unwrap(), "", "every one of them is special");
    assert_eq!((tokenizer.chat_template(), tokenizer.named_template("tool_use")), (Some("D"), Some("T")));
    let templates = vec![("default".to_owned(), "J".to_owned())];
    let tokenizer = HfTokenizer::from_files(HfFiles { templates, ..files }).unwrap();
    assert_eq!((tokenizer.chat_template(), tokenizer.named_template("tool_use")), (Some("J"), Some("T")));
}

#[test]
fn an_older_map_of_special_tokens_counts_where_the_configuration_lists_no_added_tokens() {
    let with = |config: Value| {
        let special_tokens_map =
            Some(json!({"eos_token": "<end>", "unk_token": {"content": "<unk>"}}).to_string());
        let files = HfFiles {
            tokenizer: words().to_string(),
            config: Some(config.to_string()),
            special_tokens_map,
            ..HfFiles::default()
        };
        Value::from(HfTokenizer::from_files(files).unwrap().special_tokens().clone())
    };
    assert_eq!(with(json!({})), json!({"eos_token": "<end>", "unk_token": "<unk>"}));
    assert_eq!(with(json!({"added_tokens_decoder": {}, "eos_token": "two"})), json!({"eos_token": "two"}));
}

#[test]
fn broken_configurations_are_refused_by_name() {
    for (config, word) in [
        ("[]", "tokenizer_config.json"),
        (r#"{"eos_token": 7}"#, "eos_token"),
        (r#"{"extra_special_tokens": 7}"#, "extra_special_tokens"),
        (r#"{"extra_special_tokens": [7]}"#, "extra_special_tokens"),
        (r#"{"added_tokens_decoder": {"x": {"content": "a"}}}"#, "added_tokens_decoder"),
        (r#"{"added_tokens_decoder": {"1": 7}}"#, "added_tokens_decoder"),
        (r#"{"chat_template": 7}"#, "chat_template"),
        (r#"{"chat_template": [{"name": "a"}]}"#, "chat_template"),
        (r#"{"chat_template": {"a": 7}}"#, "chat_template"),
    ] {
        let files =
            HfFiles { tokenizer: words().to_string(), config: Some(config.to_owned()), ..HfFiles::default() };
        let error = HfTokenizer::from_files(files).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Malformed, "{config}");
        assert!(error.detail().contains(word), "{error}");
    }
    let template = |num_bytes| {
        let templates = vec![("default".to_owned(), "x".repeat(num_bytes))];
        HfTokenizer::from_files(HfFiles { tokenizer: words().to_string(), templates, ..HfFiles::default() })
    };
    assert!(template(limits::TEMPLATE_SOURCE_BYTES_MAX).is_ok());
    assert_eq!(
        template(limits::TEMPLATE_SOURCE_BYTES_MAX + 1).err().unwrap().kind(),
        ErrorKind::LimitExceeded
    );
}

#[test]
fn files_that_are_no_tokenizers_are_refused() {
    for text in
        ["", "{", "[]", "7", "null", "{}", r#"{"model": 7}"#, r#"{"model": {"vocab": {}, "type": "X"}}"#]
    {
        assert_eq!(HfTokenizer::from_json(text).err().unwrap().kind(), ErrorKind::Malformed, "{text}");
    }
    let deep = format!(r#"{{"normalizer": {}"#, r#"{"type":"Sequence","normalizers":["#.repeat(100_000));
    assert_eq!(HfTokenizer::from_json(&deep).err().unwrap().kind(), ErrorKind::Malformed);
    for (part, value) in [
        ("normalizer", json!({"type": "Nothing"})),
        (
            "pre_tokenizer",
            json!({"type": "Split", "pattern": {"Regex": "("}, "behavior": "Isolated", "invert": false}),
        ),
        ("decoder", json!({"type": "Nothing"})),
        ("post_processor", json!({"type": "Nothing"})),
        ("added_tokens", json!([{"id": 1}])),
        ("added_tokens", json!([{"id": -1, "content": "a"}])),
        ("model", json!({"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]})),
        ("model", json!({"type": "BPE", "vocab": {"a": -1}, "merges": []})),
        ("model", json!({"type": "Unigram", "vocab": [["a", 0.0]], "unk_id": 9})),
        (
            "model",
            json!({
                "type": "BPE", "vocab": {"a": 0, "é": 1, "aé": 2}, "merges": [["a", "é"]], "continuing_subword_prefix": "x",
            }),
        ),
    ] {
        let mut file = words();
        file[part] = value.clone();
        let kind = refusal(&file);
        assert_eq!(kind, ErrorKind::Malformed, "{part}: {value}");
    }
}

#[test]
fn a_table_of_replacements_that_leads_outside_of_itself_is_refused() {
    let charsmap = |base64: &str| json!({"type": "Precompiled", "precompiled_charsmap": base64});
    for base64 in ["", "*", "AAAA", "BAAAAA==", "BAAAAAAAAAA=", "////////", "AAAAAP8="] {
        let mut file = words();
        file["normalizer"] = json!({"type": "Sequence", "normalizers": [charsmap(base64)]});
        assert_eq!(refusal(&file), ErrorKind::Corrupt, "{base64:?}");
    }
}

#[test]
fn ids_must_be_below_the_limit() {
    let with = |id: usize| {
        let mut file = words();
        file["model"]["vocab"]["far"] = json!(id);
        HfTokenizer::from_json(&file.to_string())
    };
    assert_eq!(
        with(limits::VOCAB_SIZE_MAX - 1).ok().map(|tokenizer| tokenizer.vocab_size()),
        Some(limits::VOCAB_SIZE_MAX)
    );
    assert_eq!(with(limits::VOCAB_SIZE_MAX).err().unwrap().kind(), ErrorKind::LimitExceeded);
    let mut file = words();
    file["added_tokens"][0]["id"] = json!(u32::MAX);
    assert_eq!(refusal(&file), ErrorKind::LimitExceeded);
}

#[test]
fn a_file_may_be_as_long_as_the_limit_and_no_longer() {
    let padded = |num_bytes: usize| {
        let mut text = words().to_string();
        text.push_str(&" ".repeat(num_bytes - text.len()));
        HfTokenizer::from_json(&text)
    };
    assert!(padded(limits::TOKENIZER_FILE_BYTES_MAX).is_ok());
    assert_eq!(padded(limits::TOKENIZER_FILE_BYTES_MAX + 1).err().unwrap().kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_file_may_make_text_as_much_longer_as_the_limit_says() {
    let max = limits::TOKENIZER_GROWTH_MAX;
    for (part, list) in [("normalizer", "normalizers"), ("decoder", "decoders")] {
        let with = |factors: &[usize]| {
            let step = |&factor: &usize| json!({"type": "Replace", "pattern": {"String": "a"}, "content": "a".repeat(factor)});
            let mut file = words();
            file[part] = json!({"type": "Sequence", list: factors.iter().map(step).collect::<Vec<_>>()});
            HfTokenizer::from_json(&file.to_string()).err().map(|error| error.kind())
        };
        assert_eq!(with(&[64, max / 64]), None);
        assert_eq!(with(&[max + 1]), Some(ErrorKind::LimitExceeded));
        assert_eq!(with(&[2; 60]), Some(ErrorKind::LimitExceeded));
    }
}

#[test]
fn a_thousand_markers_in_a_row_are_cut_in_one_go() {
    let tokenizer = HfTokenizer::from_folder(golden("unigram")).unwrap();
    let encoding = tokenizer.encode(&"</s>".repeat(20_000)).unwrap();
    assert!(!encoding.ids.iter().any(|&id| tokenizer.token_of(id).as_deref() == Some("</s>")));
    assert_eq!(encoding.offsets.last().map(|range| range[1]), Some(80_000));
}

/// Returns small files of every family, to corrupt.
fn small_files() -> Vec<String> {
    ["byte_fallback", "prefix_space", "unigram", "word_level", "wordpiece"]
        .iter()
        .map(|name| std::fs::read_to_string(golden(name).join("tokenizer.json")).unwrap())
        .collect()
}

/// Uses a file if it is valid: nothing may panic, and the output must be consistent.
fn use_up(text: &str) {
    let Ok(tokenizer) = HfTokenizer::from_json(text) else { return };
    for text in ["the quick <end> fox", "</s> é猫\u{301} <mask>", "", "day <r>  x"] {
        for added in [AddedTokens::AsText, AddedTokens::AsIds] {
            let mut encoding = Encoding::default();
            if tokenizer.encode_into(text, added, &mut encoding).is_ok() {
                assert_eq!(encoding.ids.len(), encoding.offsets.len());
                let is_range = |&[start, end]: &[u32; 2]| text.get(start as usize..end as usize).is_some();
                assert!(encoding.offsets.iter().all(is_range), "{:?} of {text:?}", encoding.offsets);
                let _ = tokenizer.decode(&encoding.ids, true);
            }
        }
    }
    let last = tokenizer.vocab_size() as u32;
    let _ = tokenizer.decode(&(0..last.min(600)).collect::<Vec<_>>(), false);
}

/// Collects every position of a JSON value as a pointer.
fn places(value: &Value, place: &str, found: &mut Vec<String>) {
    found.push(place.to_owned());
    match value {
        Value::Object(members) => {
            for (key, member) in members.iter().take(40) {
                let key = key.replace('~', "~0").replace('/', "~1");
                places(member, &format!("{place}/{key}"), found);
            }
        }
        Value::Array(members) => {
            for (index, member) in members.iter().enumerate().take(40) {
                places(member, &format!("{place}/{index}"), found);
            }
        }
        _ => {}
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn bytes_that_were_changed_never_panic(
        file in 0_usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        length in any::<prop::sample::Index>(),
        is_cut in prop::bool::weighted(0.1),
    ) {
        let mut bytes = small_files().swap_remove(file).into_bytes();
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        if is_cut {
            bytes.truncate(length.index(bytes.len()));
        }
        use_up(&String::from_utf8_lossy(&bytes));
    }

    #[test]
    fn values_that_were_changed_never_panic(
        file in 0_usize..5,
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0_usize..12, any::<prop::sample::Index>()), 1..5),
    ) {
        let mut value: Value = serde_json::from_str(&small_files().swap_remove(file)).unwrap();
        for (place, kind, other) in changes {
            let mut found = Vec::new();
            places(&value, "", &mut found);
            let copied = value.pointer(&found[other.index(found.len())]).cloned().unwrap();
            let changed = [
                Value::Null, json!(true), json!(-1), json!(0), json!(4_000_000), json!(1e300), json!(""), json!("é"),
                json!([]), json!({}), json!("a b"), copied,
            ];
            *value.pointer_mut(&found[place.index(found.len())]).unwrap() = changed[kind].clone();
        }
        use_up(&value.to_string());
    }

    #[test]
    fn any_text_is_no_file_or_a_file(text in any::<String>()) {
        use_up(&text);
    }

    #[test]
    fn encode_added_of_text_without_markers_is_encode(text in "[a-zéß猫 .,\n0-9]{0,60}") {
        for name in ["byte_fallback", "wordpiece", "prefix_space"] {
            let tokenizer = HfTokenizer::from_folder(golden(name)).unwrap();
            if !text.contains("day") {
                prop_assert_eq!(tokenizer.encode(&text).unwrap(), tokenizer.encode_added(&text).unwrap());
            }
        }
    }
}

#[test]
fn a_stream_gives_every_space_that_a_decoder_of_several_strips_leaves() {
    for start in 0..4 {
        let strip = json!({"type": "Strip", "content": " ", "start": start, "stop": 0});
        let replace = json!({"type": "Replace", "pattern": {"String": "_"}, "content": " "});
        let file = json!({
            "decoder": {"type": "Sequence", "decoders": [replace, {"type": "Fuse"}, strip]},
            "model": {"type": "WordLevel", "vocab": {"_": 0, "h": 1, "___": 2, "_h": 3}, "unk_token": "h"},
        });
        let tokenizer: Arc<dyn Tokenizer> = Arc::new(read(&file));
        let short = (0..4_usize.pow(5)).map(|code| (0..5).map(|at| (code >> (2 * at)) as u32 % 4).collect());
        let long = [0, 2].map(|space| [vec![1], vec![space; 200], vec![1]].concat());
        for ids in short.chain(long) {
            let ids: Vec<u32> = ids;
            let mut stream = DecodeStream::new(Arc::clone(&tokenizer), false);
            let mut text: String = ids.iter().map(|&id| stream.push(id).unwrap()).collect();
            text += &stream.finish().unwrap();
            assert_eq!(text, tokenizer.decode(&ids, false).unwrap(), "{start} stripped of {ids:?}");
        }
    }
}

/// Returns the `tokenizers` engine for a file that our own would read: an equivalent decoder in two steps.
fn with_library(name: &str) -> HfTokenizer {
    let mut file: Value =
        serde_json::from_str(&std::fs::read_to_string(golden(name).join("tokenizer.json")).unwrap()).unwrap();
    file["decoder"] = json!({"type": "Sequence", "decoders": [file["decoder"], {"type": "Fuse"}]});
    let tokenizer = read(&file);
    assert!(!tokenizer.is_byte_level());
    tokenizer
}

#[test]
fn both_engines_agree_where_markers_stand_in_text_that_is_not_in_normal_form() {
    let (ours, theirs) = (HfTokenizer::from_folder(golden("qwen2")).unwrap(), with_library("qwen2"));
    let parts = [
        "<think>",
        "<|im_end|>",
        "e\u{301}",
        "\u{338}",
        "\u{212A}",
        "a b",
        " \u{1100}\u{1161}",
        "\n",
        "<th",
        "ink>",
        "猫",
    ];
    let mut seed = 1_u64;
    for _ in 0..400 {
        let mut text = String::new();
        for _ in 0..6 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            text.push_str(parts[(seed >> 33) as usize % parts.len()]);
        }
        assert_eq!(ours.encode_added(&text).unwrap(), theirs.encode_added(&text).unwrap(), "{text:?}");
        assert_eq!(ours.encode(&text).unwrap(), theirs.encode(&text).unwrap(), "{text:?}");
    }
}

#[cfg(unix)]
#[test]
fn pipes_and_devices_in_a_folder_are_refused_without_waiting() {
    let folder = std::env::temp_dir().join(format!("fulmar-tokenizer-pipe-{}", std::process::id()));
    for name in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja"]
    {
        std::fs::create_dir(&folder).unwrap();
        std::fs::copy(golden("qwen2").join("tokenizer.json"), folder.join("tokenizer.json")).unwrap();
        let path = folder.join(name);
        let _ = std::fs::remove_file(&path);
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(HfTokenizer::from_folder(&folder).err().unwrap().kind(), ErrorKind::Corrupt, "{name}");
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink("/dev/zero", &path).unwrap();
        assert_eq!(HfTokenizer::from_folder(&folder).err().unwrap().kind(), ErrorKind::Corrupt, "{name}");
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
