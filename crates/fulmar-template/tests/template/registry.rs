//! The registry: names, overrides, and the orders of selection.
#![expect(clippy::expect_used, reason = "a test that cannot go on should stop")]

use std::fs;
use std::path::Path;

use fulmar_core::{ErrorKind, Result};
use fulmar_template::{Selected, Selection, TemplateEntry, TemplateInput, TemplateQuery, TemplateRegistry};
use serde_json::{Value, json};

fn entry(source: &str) -> TemplateEntry {
    TemplateEntry { source: source.to_owned(), ..TemplateEntry::default() }
}

fn kind<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
    result.expect_err("it must fail").kind()
}

fn text(selected: &Selected) -> String {
    selected.template.render(&TemplateInput::default()).expect("it renders").text
}

#[test]
fn a_name_is_registered_once_unless_the_entry_overrides() {
    let mut registry = TemplateRegistry::new();
    registry.register("mine", entry("one")).expect("a new name");
    assert_eq!(kind(registry.register("mine", entry("two"))), ErrorKind::Incompatible);
    assert_eq!(registry.source("mine").expect("registered"), "one");
    registry.register("mine", TemplateEntry { overrides: true, ..entry("two") }).expect("an override");
    assert_eq!(registry.source("mine").expect("registered"), "two");
    assert_eq!(registry.names().filter(|name| *name == "mine").count(), 1);
}

#[test]
fn builtin_names_can_be_overridden_and_the_default_stays_as_it_is() {
    let mut registry = TemplateRegistry::new();
    assert_eq!(kind(registry.register("llama", entry("x"))), ErrorKind::Incompatible);
    registry.register("llama", TemplateEntry { overrides: true, ..entry("x") }).expect("an override");
    assert_eq!(registry.get("llama").expect("registered").source(), "x");
    assert_ne!(TemplateRegistry::builtin().get("llama").expect("built in").source(), "x");
    assert_ne!(TemplateRegistry::new().get("llama").expect("built in").source(), "x");
}

#[test]
fn a_template_needs_no_generation_block_but_must_compile() {
    let mut registry = TemplateRegistry::new();
    registry.register("plain", entry("{{ messages }}")).expect("it compiles");
    assert!(!registry.get("plain").expect("registered").has_generation());
    registry.register("dashed", entry("{%- generation -%}a{%- endgeneration -%}")).expect("it compiles");
    assert!(registry.get("dashed").expect("registered").has_generation());
    assert_eq!(kind(registry.register("broken", entry("{% if %}"))), ErrorKind::Malformed);
    assert!(!registry.names().any(|name| name == "broken"));
}

#[test]
fn an_unknown_name_is_an_error_that_lists_the_names() {
    let error = TemplateRegistry::builtin().get("nope").expect_err("no such template");
    assert_eq!(error.kind(), ErrorKind::UnknownName);
    assert!(error.detail().contains("qwen3, ") && error.detail().ends_with("got \"nope\""), "{error}");
}

#[test]
fn strict_selection_goes_from_template_to_name_to_tokenizer_to_error() {
    let registry = TemplateRegistry::builtin();
    let all = TemplateQuery {
        template: Some("given"),
        name: Some("qwen3"),
        tokenizer_template: Some("own"),
        name_or_path: Some("Qwen/Qwen3-8B"),
        selection: Selection::Strict,
    };
    let given = registry.select(&all).expect("a template");
    assert_eq!((text(&given).as_str(), given.name), ("given", None));
    let named = registry.select(&TemplateQuery { template: None, ..all }).expect("a name");
    assert_eq!(named.name.as_deref(), Some("qwen3"));
    let own = TemplateQuery { template: None, name: None, ..all };
    let selected = registry.select(&own).expect("a tokenizer's template");
    assert_eq!((text(&selected).as_str(), selected.name), ("own", None));
    assert_eq!(
        kind(registry.select(&TemplateQuery { tokenizer_template: None, ..own })),
        ErrorKind::Incompatible
    );
    let unknown = TemplateQuery { name: Some("nope"), template: None, ..all };
    assert_eq!(kind(registry.select(&unknown)), ErrorKind::UnknownName);
}

#[test]
fn torchrls_selection_gives_torchrls_texts() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/template/selection.jsonl");
    let rows = fs::read_to_string(golden).expect("the golden file is there");
    let special = json!({"bos_token": "<|im_start|>", "eos_token": "<|im_end|>"});
    let mut count = 0;
    for row in rows.lines().map(|line| serde_json::from_str::<Value>(line).expect("a row")) {
        let query = TemplateQuery {
            tokenizer_template: row["tokenizer_chat_template"].as_str(),
            name_or_path: row["name_or_path"].as_str(),
            selection: Selection::TorchRl,
            ..TemplateQuery::default()
        };
        let selected = TemplateRegistry::builtin().select(&query).expect("always one");
        let messages = row["chat"].as_array().expect("messages").iter();
        let input = TemplateInput {
            messages: messages.map(|message| message.as_object().expect("a message")).collect(),
            special_tokens: special.as_object().expect("an object"),
            ..TemplateInput::default()
        };
        let rendered = selected.template.render(&input).expect("it renders");
        assert_eq!(Some(rendered.text.as_str()), row["text"].as_str(), "{row}");
        count += 1;
    }
    assert!(count >= 8, "the golden file is whole");
}

#[test]
fn torchrls_selection_prefers_registered_keywords_in_their_order() {
    let mut registry = TemplateRegistry::new();
    let with = |source: &str, keyword: &str| TemplateEntry {
        model_family_keywords: vec![keyword.to_owned()],
        ..entry(source)
    };
    let query = TemplateQuery {
        name_or_path: Some("Org/MyQwen-Tiny"),
        selection: Selection::TorchRl,
        ..TemplateQuery::default()
    };
    assert_eq!(registry.select(&query).expect("built in").name.as_deref(), Some("qwen"));
    registry.register("second", with("2", "myqwen")).expect("new");
    registry.register("third", with("3", "TINY")).expect("new");
    assert_eq!(registry.select(&query).expect("registered").name.as_deref(), Some("second"));
    let tiny = TemplateQuery { name_or_path: Some("tiny"), ..query };
    assert_eq!(registry.select(&tiny).expect("registered").name.as_deref(), Some("third"));
    let nothing = TemplateQuery { name_or_path: None, ..query };
    assert_eq!(kind(registry.select(&nothing)), ErrorKind::Incompatible);
}

#[test]
fn a_query_as_json_gets_its_answer_as_json() {
    let registry = TemplateRegistry::builtin();
    let own =
        registry.select_json(r#"{"tokenizerTemplate": "\u00e9", "nameOrPath": "qwen"}"#).expect("a template");
    assert_eq!(own, r#"{"name":null,"source":"é"}"#);
    let guessed =
        registry.select_json(r#"{"tokenizerTemplate": "x", "nameOrPath": "qwen", "selection": "torchrl"}"#);
    assert!(guessed.expect("a template").starts_with(r#"{"name":"qwen","#));
    assert_eq!(kind(registry.select_json(r#"{"template_name": "x"}"#)), ErrorKind::UnknownName);
    assert_eq!(kind(registry.select_json("[")), ErrorKind::Malformed);
}

/// Reads stock templates next to the repository, if they are there.
#[test]
fn a_stock_template_without_tags_is_replaced_by_its_twin() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/golden/llm/templates/trl");
    for (file, name) in
        [("qwen3", "qwen3"), ("deepseekv3", "deepseek_v3"), ("gptoss", "gpt_oss"), ("phi3", "phi3")]
    {
        let Ok(stock) = fs::read_to_string(folder.join(file).with_extension("jinja")) else { continue };
        let query = TemplateQuery { tokenizer_template: Some(&stock), ..TemplateQuery::default() };
        let selected = TemplateRegistry::builtin().select(&query).expect("a template");
        assert_eq!(selected.name.as_deref(), Some(name));
        let mut changed = TemplateRegistry::new();
        changed.register(name, TemplateEntry { overrides: true, ..entry("x") }).expect("an override");
        assert_eq!(changed.select(&query).expect("a template").name, None, "an overridden name is no twin");
        let other = format!("{stock}{{# #}}");
        let query = TemplateQuery { tokenizer_template: Some(&other), ..query };
        assert_eq!(TemplateRegistry::builtin().select(&query).expect("a template").name, None);
    }
}
