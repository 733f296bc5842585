//! Token data sets, records and rollouts as torchrl 0.14.1 makes them.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

#[expect(dead_code, reason = "other tests use the rest")]
mod golden_rows;
#[allow(dead_code, clippy::allow_attributes, reason = "other tests use the rest")]
#[path = "../../fulmar-tensor/tests/golden_value/mod.rs"]
mod golden_value;

use std::fs;
use std::path::{Path, PathBuf};

use fulmar_core::ErrorKind;
use fulmar_dataset::{
    Dataloader, DataloaderOptions, DrawnAnswer, LlmData, LlmOutput, PairwiseDataset, PromptData,
    PromptTensorDictTokenizer, RewardData, RolloutDraw, RolloutFromModel, RolloutOptions,
    TEXT_LINE_BYTES_MAX, TensorDictTokenizer, TextMapper, TextRow, TokenizedDatasetLoader,
    TokenizedDatasetOptions, create_infinite_iterator, pre_tokenization_hook, read_text_lines,
};
use fulmar_tensor::{Tensor, TensorDict};
use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, HfTokenizer};
use proptest::prelude::*;
use serde_json::Value;

use self::golden_rows::assert_rows;
use self::golden_value::tensor;

fn golden(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden").join(path)
}

fn rows_of(file: &str, topic: &str) -> Vec<Value> {
    let text = fs::read_to_string(golden(file)).unwrap();
    let rows = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    rows.filter(|row| row["topic"] == topic).collect()
}

fn numbers(value: &Value) -> Vec<i64> {
    match value {
        Value::Array(items) => items.iter().flat_map(numbers).collect(),
        other => vec![other.as_i64().unwrap()],
    }
}

fn matrix(value: &Value) -> Tensor {
    let rows = value.as_array().unwrap();
    Tensor::from_vec(&[rows.len(), rows[0].as_array().unwrap().len()], numbers(value)).unwrap()
}

/// Prompts of a row, without padding.
fn prompts(row: &Value) -> PromptData {
    let input_ids = matrix(&row["input_ids"]);
    let ends = numbers(&row["prompt_rindex"]);
    PromptData {
        attention_mask: Tensor::from_vec(input_ids.shape(), vec![1_i64; input_ids.num_elements()]).unwrap(),
        prompt_rindex: Tensor::from_vec(&[ends.len()], ends).unwrap(),
        input_ids,
        labels: None,
        logits: None,
        loss: None,
    }
}

#[test]
fn labels_are_masked_as_torchrl_masks_them() {
    let rows = rows_of("objective/rlhf.jsonl", "PromptData.mask_label");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let data = prompts(&row["input"]);
        let pad = row["pad_token_id"].as_u64().unwrap() as u32;
        let masked = data.mask_label(pad).unwrap();
        for pair in row["ok"]["$dict"].as_array().unwrap() {
            match pair[0].as_str().unwrap() {
                "input_ids" => assert_eq!(masked.input_ids, tensor(&pair[1]), "{}", row["id"]),
                "attention_mask" => assert_eq!(masked.attention_mask, tensor(&pair[1]), "{}", row["id"]),
                "prompt_rindex" => assert_eq!(masked.prompt_rindex, tensor(&pair[1]), "{}", row["id"]),
                other => assert_eq!(other, "batch_size"),
            }
        }
        assert_eq!(data.mask_label(50_256).unwrap().input_ids, tensor(&row["default_pad"]));
    }
}

/// Writes the rows of a split as JSON lines.
fn lines_of(dataset: &str, split: &str, folder: &Path) -> PathBuf {
    let rows = rows_of("rlhf/tldr.jsonl", "rows");
    let rows = rows.iter().find(|row| row["dataset"] == dataset).unwrap();
    let lines = rows["splits"][split].as_array().unwrap().iter().map(|row| format!("{row}\n"));
    let path = folder.join(format!("{split}.jsonl"));
    fs::write(&path, lines.collect::<String>()).unwrap();
    path
}

fn folder_of(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("fulmar-rlhf-{name}-{}", std::process::id()));
    if folder.exists() {
        fs::remove_dir_all(&folder).unwrap();
    }
    fs::create_dir_all(&folder).unwrap();
    folder
}

fn loaded(dataset: &str, split: &str, options: TokenizedDatasetOptions, name: &str) -> TensorDict {
    let folder = folder_of(name);
    let tokenizer = HfTokenizer::from_folder(golden("rlhf/raw/hub/models/gpt2")).unwrap();
    let mapper = if dataset.ends_with("tldr") { TextMapper::Prompt } else { TextMapper::Pair };
    let loader = TokenizedDatasetLoader::new(&tokenizer, mapper, options).unwrap();
    let source = lines_of(dataset, split, &folder);
    let rows = loader.load(&source, folder.join("ids")).unwrap();
    // The second load reads the folder alone.
    fs::remove_file(source).unwrap();
    assert_eq!(loader.load("nowhere", folder.join("ids")).unwrap(), rows);
    fs::remove_dir_all(folder).unwrap();
    rows
}

#[test]
fn splits_become_the_ids_of_torchrl() {
    let rows = rows_of("rlhf/tldr.jsonl", "TokenizedDatasetLoader");
    let mut num_rows = 0;
    for row in rows.iter().filter(|row| row["ok"]["$dict"].is_array() && row["args"]["dataset"].is_string()) {
        let Some(data) = row["ok"]["$dict"].as_array().unwrap().iter().find(|pair| pair[0] == "data") else {
            continue;
        };
        let args = &row["args"];
        let options = TokenizedDatasetOptions {
            max_length: args["max_length"].as_u64().unwrap() as usize,
            num_rows_max: args["valid_size"].as_u64().map(|size| size as usize),
            ..Default::default()
        };
        let (dataset, split) = (args["dataset"].as_str().unwrap(), args["split"].as_str().unwrap());
        let id = row["id"].as_str().unwrap();
        assert_rows(&loaded(dataset, split, options, id), &data[1], id);
        num_rows += 1;
    }
    assert!(num_rows >= 6, "{num_rows}");
}

#[test]
fn pairs_become_the_records_of_torchrl() {
    let rows = rows_of("rlhf/tldr.jsonl", "PairwiseDataset.from_dataset");
    assert_eq!(rows.len(), 2);
    for row in rows {
        let max_length = row["args"]["max_length"].as_u64().unwrap() as usize;
        let options = TokenizedDatasetOptions { max_length, ..Default::default() };
        let id = row["id"].as_str().unwrap();
        let texts = loaded("openai_summarize_comparisons", "train", options, id);
        let mut pairs = PairwiseDataset::from_texts(&texts).unwrap().to_dict().unwrap();
        for side in ["chosen_data", "rejected_data"] {
            // torchrl has keys of fields that are not there.
            let mut wanted = row["ok"]["k"][side].clone();
            let fields = wanted["k"].as_object_mut().unwrap();
            fields.retain(|name, _| !["rewards", "end_scores"].contains(&name.as_str()));
            assert_rows(pairs.dict(side).unwrap(), &wanted, id);
            pairs.remove(side).unwrap();
        }
    }
}

#[test]
fn long_texts_are_left_out_if_asked_for() {
    let ids = |options, name| loaded("openai_summarize_tldr", "train", options, name);
    let wide = TokenizedDatasetOptions { max_length: 400, ..Default::default() };
    let mask = ids(wide, "wide").tensor("attention_mask").unwrap().to_vec::<i64>().unwrap();
    let lens: Vec<i64> = mask.chunks(400).map(|row| row.iter().sum()).collect();
    let mut sorted = lens.clone();
    sorted.sort_unstable();
    let max_length = sorted[lens.len() / 2] as usize;
    let all = TokenizedDatasetOptions { max_length, ..wide };
    let whole = TokenizedDatasetOptions { drop_truncated: true, ..all };
    let fitting: Vec<_> = (0..lens.len()).filter(|row| lens[*row] as usize <= max_length).collect();
    assert!(fitting.len() < lens.len());
    assert_eq!(ids(whole, "kept"), ids(all, "all").index_select(&fitting).unwrap());
}

#[test]
fn answers_become_the_steps_of_torchrl() {
    let rows = rows_of("objective/rlhf.jsonl", "rollout");
    assert_eq!(rows.len(), 4);
    for row in rows {
        let (steps, rollouts) = rolled_out(&row);
        let wanted = &row["ok"]["k"];
        for name in ["action", "input_ids", "attention_mask"] {
            assert_eq!(steps.tensor(name).unwrap(), &tensor(&wanted[name]), "{} {name}", row["id"]);
        }
        for name in ["input_ids", "attention_mask", "done", "terminated"] {
            let found = steps.tensor(["next", name]).unwrap();
            assert_eq!(found, &tensor(&wanted["next"]["k"][name]), "{} next {name}", row["id"]);
        }
        for name in ["reward", "reward_raw", "reward_kl"] {
            let found = steps.tensor(["next", name]).unwrap().to_f32_vec();
            near(&found, &tensor(&wanted["next"]["k"][name]).to_f32_vec());
        }
        let queue: Vec<_> =
            row["kl_queue"].as_array().unwrap().iter().map(|one| one.as_f64().unwrap() as f32).collect();
        let scale = -row["kl_coef"].as_f64().unwrap() as f32;
        near(&rollouts.iter().map(|one| scale * *one as f32).collect::<Vec<_>>(), &queue);
    }
}

fn near(found: &[f32], wanted: &[f32]) {
    assert_eq!(found.len(), wanted.len());
    for (one, two) in found.iter().zip(wanted) {
        assert!((one - two).abs() <= 1e-4, "{found:?} must be near {wanted:?}");
    }
}

/// The steps of a row's answers, and the mean divergences.
fn rolled_out(row: &Value) -> (TensorDict, Vec<f64>) {
    let generated: Vec<Vec<u32>> = row["generated"]
        .as_array()
        .unwrap()
        .iter()
        .map(|ids| numbers(ids).iter().map(|id| *id as u32).collect())
        .collect();
    let ratios = tensor(&row["log_ratio"]).to_f32_vec();
    let steps = row["max_new_tokens"].as_u64().unwrap() as usize;
    let ratios: Vec<_> = ratios.chunks(steps).map(<[f32]>::to_vec).collect();
    // The log-probabilities of the policy are the row's ratios, as those of the reference are 0.
    let model = |prompt: &[u32], draw: &RolloutDraw| {
        assert_eq!(draw.max_new_tokens, steps);
        let at = generated.iter().position(|ids| ids.starts_with(prompt)).unwrap();
        let ids = generated[at][prompt.len()..].to_vec();
        let (log_probs, sampled_log_probs) = (ratios[at][..ids.len()].to_vec(), vec![0.0; ids.len()]);
        Ok(DrawnAnswer { ids, log_probs, sampled_log_probs })
    };
    let ref_model = |ids: &[u32], start: usize| Ok(vec![0.0; ids.len() - start]);
    let reward_model = |texts: &[Vec<u32>]| {
        Ok(texts.iter().map(|ids| (ids.iter().sum::<u32>() % 1000) as f32 / 50.0).collect())
    };
    let options = RolloutOptions {
        max_new_tokens: steps,
        kl_coef: row["kl_coef"].as_f64().unwrap() as f32,
        score_clip: row["score_clip"].as_f64().unwrap() as f32,
        ..Default::default()
    };
    let mut rollouts = RolloutFromModel::new(model, ref_model, reward_model, options).unwrap();
    let batch = prompts(row);
    let mut drawn = rollouts.generate(&batch).unwrap();
    // The rows of the original are as long as the longest answer; ours leave room for the longest that there could be.
    let width = generated[0].len();
    drawn.tokens = drawn.tokens.slice(1, 0..width).unwrap();
    let steps = rollouts.create_rollout_td(&batch, &drawn).unwrap();
    let divergences = rollouts.take_divergences();
    assert!(rollouts.take_divergences().is_empty());
    (steps, divergences)
}

proptest! {
    #[test]
    fn a_pass_has_each_row_at_most_once(num_rows in 1_usize..40, batch_size in 1_usize..40, seed: u64) {
        prop_assume!(batch_size <= num_rows);
        let mut rows = TensorDict::new(&[num_rows]).unwrap();
        rows.set("id", Tensor::from_vec(&[num_rows], (0..num_rows as i64).collect()).unwrap()).unwrap();
        let options = DataloaderOptions { batch_size, infinite: false, seed };
        let mut seen = Vec::new();
        for batch in Dataloader::new(rows, options).unwrap() {
            seen.extend(batch.unwrap().tensor("id").unwrap().to_vec::<i64>().unwrap());
        }
        prop_assert_eq!(seen.len(), num_rows / batch_size * batch_size);
        seen.sort_unstable();
        seen.dedup();
        prop_assert_eq!(seen.len(), num_rows / batch_size * batch_size);
    }

    #[test]
    fn rows_of_ids_are_those_of_a_loop(texts in prop::collection::vec("[abc]{0,9}", 0..6), max_length in 1_usize..7) {
        let options = CharTokenizerOptions { alphabet: "_abc".to_owned(), special_tokens: Vec::new() };
        let tokenizer = CharTokenizer::new(options).unwrap();
        let dict = TensorDictTokenizer::new(&tokenizer, max_length, Some(0)).unwrap().apply(&texts).unwrap();
        let mut want = Vec::new();
        for text in &texts {
            let ids = text.chars().map(|one| one as i64 - 'a' as i64 + 1).chain(std::iter::repeat(0));
            want.extend(ids.take(max_length));
        }
        prop_assert_eq!(dict.tensor("input_ids").unwrap().to_vec::<i64>().unwrap(), want);
    }
}

#[test]
fn passes_follow_one_another_in_other_orders() {
    let mut rows = TensorDict::new(&[12]).unwrap();
    rows.set("id", Tensor::from_vec(&[12], (0..12_i64).collect()).unwrap()).unwrap();
    let ids = |seed: u64| -> Vec<Vec<i64>> {
        let options = DataloaderOptions { seed, ..DataloaderOptions::of(12) };
        let batches = Dataloader::new(rows.clone(), options).unwrap().take(2);
        batches.map(|batch| batch.unwrap().tensor("id").unwrap().to_vec().unwrap()).collect()
    };
    assert_ne!(ids(1)[0], ids(1)[1]);
    assert_ne!(ids(1)[0], ids(2)[0]);
    assert_eq!(ids(1), ids(1));
}

#[test]
fn wrong_arguments_are_refused_by_name() {
    let options = CharTokenizerOptions { alphabet: "_abc".to_owned(), special_tokens: Vec::new() };
    let tokenizer = CharTokenizer::new(options).unwrap();
    let kind = |result: fulmar_core::Result<()>, name: &str| {
        let error = result.unwrap_err();
        assert!(error.to_string().contains(name), "{error}");
        error.kind()
    };
    let text = |length, pad| TensorDictTokenizer::new(&tokenizer, length, pad).map(|_| ());
    assert_eq!(kind(text(0, Some(0)), "max_length"), ErrorKind::OutOfRange);
    assert_eq!(kind(text(1, None), "pad_token"), ErrorKind::Incompatible);
    let prompt = PromptTensorDictTokenizer::new(&tokenizer, 4, Some(0), Some(0)).unwrap();
    assert_eq!(kind(prompt.apply(&["a"], &["b", "c"]).map(|_| ()), "labels"), ErrorKind::ShapeMismatch);
    assert_eq!(kind(prompt.apply(&[""], &["b"]).map(|_| ()), "prompts[0]"), ErrorKind::Empty);
    assert_eq!(kind(create_infinite_iterator([0; 0]).map(|_| ()), "source"), ErrorKind::Empty);

    let end = TokenizedDatasetOptions { max_length: 4, end_id: Some(0), ..Default::default() };
    let loader = |mapper, options| TokenizedDatasetLoader::new(&tokenizer, mapper, options).map(|_| ());
    let dropped = TokenizedDatasetOptions { drop_truncated: true, ..end };
    assert_eq!(kind(loader(TextMapper::Pair, dropped), "drop_truncated"), ErrorKind::Incompatible);
    let none = TokenizedDatasetOptions { num_rows_max: Some(0), ..end };
    assert_eq!(kind(loader(TextMapper::Text, none), "num_rows_max"), ErrorKind::OutOfRange);

    let data = PromptData { prompt_rindex: Tensor::from_vec(&[1], vec![3_i64]).unwrap(), ..two_ids() };
    assert_eq!(kind(data.mask_label(0).map(|_| ()), "prompt_rindex"), ErrorKind::OutOfRange);
    let data = PromptData { attention_mask: Tensor::from_vec(&[2], vec![1_i64; 2]).unwrap(), ..two_ids() };
    assert_eq!(kind(data.mask_label(0).map(|_| ()), "attention_mask"), ErrorKind::ShapeMismatch);
    let mut dict = two_ids().to_dict().unwrap();
    dict.set("label", Tensor::from_vec(&[1], vec![0_i64]).unwrap()).unwrap();
    assert_eq!(kind(PromptData::from_dict(&dict).map(|_| ()), "label"), ErrorKind::UnknownName);
    assert_eq!(kind(RewardData::from_dict(&dict).map(|_| ()), "prompt_rindex"), ErrorKind::UnknownName);
    dict.remove("label").unwrap();
    dict.set("input_ids", Tensor::from_vec(&[1, 2], vec![0.5_f32; 2]).unwrap()).unwrap();
    assert_eq!(kind(PromptData::from_dict(&dict).map(|_| ()), "input_ids"), ErrorKind::Incompatible);

    let output = LlmOutput {
        tokens_response: Some(Tensor::from_vec(&[1, 2], vec![1_i64; 2]).unwrap().into()),
        log_probs: Some(Tensor::from_vec(&[1, 3], vec![0.0_f32; 3]).unwrap().into()),
        ..Default::default()
    };
    assert_eq!(kind(output.to_dict().map(|_| ()), "log_probs"), ErrorKind::ShapeMismatch);
    let flat = LlmData {
        tokens: Some(Tensor::from_vec(&[2], vec![1_i64; 2]).unwrap().into()),
        ..Default::default()
    };
    assert_eq!(kind(flat.to_dict().map(|_| ()), "tokens"), ErrorKind::Incompatible);
    let rows: Vec<TextRow> = vec![TextRow::new()];
    assert_eq!(kind(pre_tokenization_hook(&rows, "best", 5).map(|_| ()), "side"), ErrorKind::UnknownName);
    assert_eq!(kind(pre_tokenization_hook(&rows, "chosen", 5).map(|_| ()), "row 0"), ErrorKind::Malformed);
}

fn two_ids() -> PromptData {
    prompts(&serde_json::json!({ "input_ids": [[1, 2]], "prompt_rindex": [1] }))
}

#[test]
fn wrong_answers_of_models_are_refused() {
    let answer = |ids: usize, log_probs: usize| DrawnAnswer {
        ids: vec![1; ids],
        log_probs: vec![0.0; log_probs],
        sampled_log_probs: vec![0.0; ids],
    };
    let kind = |drawn: DrawnAnswer, other: Vec<f32>, scores: Vec<f32>| {
        let options = RolloutOptions { max_new_tokens: 2, end_id: 0, ..Default::default() };
        let mut rollouts = RolloutFromModel::new(
            |_: &[u32], _: &RolloutDraw| Ok(drawn.clone()),
            |_: &[u32], _: usize| Ok(other.clone()),
            |_: &[Vec<u32>]| Ok(scores.clone()),
            options,
        )
        .unwrap();
        rollouts.rollout_from_data(&two_ids()).map_err(|error| error.kind())
    };
    assert!(kind(answer(2, 2), vec![0.0; 2], vec![1.0]).is_ok());
    assert_eq!(kind(answer(3, 3), vec![0.0; 3], vec![1.0]).unwrap_err(), ErrorKind::UserCode);
    assert_eq!(kind(answer(2, 1), vec![0.0; 2], vec![1.0]).unwrap_err(), ErrorKind::UserCode);
    assert_eq!(kind(answer(2, 2), vec![0.0; 1], vec![1.0]).unwrap_err(), ErrorKind::UserCode);
    assert_eq!(kind(answer(2, 2), vec![0.0; 2], vec![]).unwrap_err(), ErrorKind::UserCode);
    assert_eq!(kind(answer(2, 2), vec![f32::NAN; 2], vec![1.0]).unwrap_err(), ErrorKind::NonFinite);
    assert_eq!(kind(answer(2, 2), vec![0.0; 2], vec![f32::INFINITY]).unwrap_err(), ErrorKind::NonFinite);
}

#[test]
fn lines_beyond_the_limit_are_refused() {
    let text = |length: u64| format!("{{\"text\": \"{}\"}}", "a".repeat(length as usize - 12));
    let most = text(TEXT_LINE_BYTES_MAX);
    assert_eq!(most.len() as u64, TEXT_LINE_BYTES_MAX);
    assert!(read_text_lines(most.as_bytes()).next().unwrap().is_ok());
    let more = text(TEXT_LINE_BYTES_MAX + 1);
    let error = read_text_lines(more.as_bytes()).next().unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::LimitExceeded);
}

#[test]
fn a_load_that_fails_leaves_nothing_and_names_the_row() {
    let folder = folder_of("failed");
    let options = CharTokenizerOptions { alphabet: "_abc".to_owned(), special_tokens: Vec::new() };
    let tokenizer = CharTokenizer::new(options).unwrap();
    let options = TokenizedDatasetOptions { max_length: 4, end_id: Some(0), ..Default::default() };
    let loader = TokenizedDatasetLoader::new(&tokenizer, TextMapper::Text, options).unwrap();
    let load = |text: &str| {
        let source = folder.join("train.jsonl");
        fs::write(&source, text).unwrap();
        loader.load(source, folder.join("ids"))
    };
    let error = load("{\"text\": \"a\"}\n{\"texts\": \"b\"}\n").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Malformed);
    assert!(error.to_string().contains("train.jsonl") && error.to_string().contains("row 1"), "{error}");
    assert_eq!(load("").unwrap_err().kind(), ErrorKind::Empty);
    assert_eq!(load("{\"text\": 1").unwrap_err().kind(), ErrorKind::Corrupt);
    assert_eq!(fs::read_dir(&folder).unwrap().count(), 1, "the source alone");
    // What a killed process left is replaced.
    fs::create_dir(folder.join("ids.incomplete")).unwrap();
    assert_eq!(
        load("{\"text\": \"abc\"}\n").unwrap().tensor("input_ids").unwrap().to_vec::<i64>().unwrap(),
        [1, 2, 3, 0]
    );
    let other = TokenizedDatasetOptions { max_length: 5, ..options };
    let other = TokenizedDatasetLoader::new(&tokenizer, TextMapper::Text, other).unwrap();
    assert_eq!(other.load("nowhere", folder.join("ids")).unwrap_err().kind(), ErrorKind::ShapeMismatch);
    fs::remove_dir_all(folder).unwrap();
}
