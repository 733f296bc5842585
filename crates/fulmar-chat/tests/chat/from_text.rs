//! Rendered text parsed back to messages, family by family.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use fulmar_chat::{Message, TextFormat, from_text};
use fulmar_core::ErrorKind;
use proptest::prelude::*;
use serde_json::{Value, json};

fn parsed(format: TextFormat, text: &str, eos: Option<&str>) -> Value {
    serde_json::to_value(from_text(text, format, eos).unwrap()).unwrap()
}

/// `[role, content]` of complete messages, `[role, content, false]` of others.
fn rows(format: TextFormat, text: &str, eos: Option<&str>) -> Value {
    let history = from_text(text, format, eos).unwrap();
    let row = |message: &Message| match message.is_complete() {
        true => json!([message.role(), message.text().unwrap()]),
        false => json!([message.role(), message.text().unwrap(), false]),
    };
    history.chat().unwrap().iter().map(row).collect()
}

#[test]
fn chatml_blocks_are_messages_and_other_text_is_not() {
    for (text, expected) in [
        (
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo!<|im_end|>\n",
            json!([["user", "Hi"], ["assistant", "Yo!"]]),
        ),
        (
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYo",
            json!([["user", "Hi"], ["assistant", "Yo", false]]),
        ),
        (
            "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n",
            json!([["user", "Hi"], ["assistant", "", false]]),
        ),
        ("<|im_start|>user\nHi<|endoftext|>", json!([["user", "Hi"]])),
        ("noise <|im_start|>user\nHi<|im_end|>\nnoise", json!([["user", "Hi"]])),
        ("<|im_start|>user\n  Hi  \n<|im_end|>", json!([["user", "Hi"]])),
        (
            "<|im_start|>system\n<|im_end|>\n<|im_start|>user\n<|im_end|>",
            json!([["system", ""], ["user", ""]]),
        ),
        ("<|im_start|>user\na<|im_start|>b<|im_end|>", json!([["user", "a<|im_start|>b"]])),
        ("<|im_start|><|im_start|>user\na<|im_end|>", json!([["user", "a"]])),
    ] {
        assert_eq!(rows(TextFormat::Chatml, text, None), expected, "{text}");
    }
}

#[test]
fn a_text_without_a_message_is_refused() {
    let formats = [
        TextFormat::Chatml,
        TextFormat::Llama3,
        TextFormat::Llama4,
        TextFormat::Falcon,
        TextFormat::DeepSeek,
    ];
    for format in formats {
        for text in ["plain", "", "<|im_start|>", "<|im_start|>user"] {
            assert_eq!(
                from_text(text, format, None).unwrap_err().kind(),
                ErrorKind::Malformed,
                "{format:?} {text}"
            );
        }
    }
    assert_eq!(from_text(" ", TextFormat::DialoGpt, None).unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(TextFormat::of_template("nope").unwrap_err().kind(), ErrorKind::UnknownName);
    assert_eq!(TextFormat::of_template("qwen"), Ok(TextFormat::Chatml));
}

#[test]
fn tool_calls_leave_the_content_so_that_they_render_once() {
    let call = "<tool_call>\n{\"name\": \"c\", \"arguments\": {\"e\": 1.0}}\n</tool_call>";
    let text = format!(
        "<|im_start|>assistant\nA.\n{call}\n{call}<|im_end|>\n<|im_start|>tool\n<tool_response>\n2\n</tool_response>\n\
         <tool_response>\n</tool_response><|im_end|>"
    );
    let calls = r#"[{"name":"c","arguments":{"e":1.0}},{"name":"c","arguments":{"e":1.0}}]"#;
    let expected = format!(
        r#"[{{"role":"assistant","content":"A.","tool_calls":{calls}}},{{"role":"tool","content":"2"}},{{"role":"tool","content":""}}]"#
    );
    assert_eq!(parsed(TextFormat::Chatml, &text, None).to_string(), expected);
}

#[test]
fn broken_calls_stay_in_the_content() {
    for call in [
        "<tool_call>\n{bad}\n</tool_call>",
        "<tool_call>{\"name\": \"c\"}</tool_call>",
        "<tool_call>\n3\n</tool_call>",
    ] {
        let text = format!("<|im_start|>assistant\n{call}<|im_end|>");
        assert_eq!(rows(TextFormat::Chatml, &text, None), json!([["assistant", call]]));
    }
    let text = "<|im_start|>tool\nx <tool_response>\n2\n</tool_response><|im_end|>";
    assert_eq!(rows(TextFormat::Chatml, text, None)[0][1], "x <tool_response>\n2\n</tool_response>");
}

#[test]
fn llama_headers_frame_messages() {
    let text = "<|begin_of_text|><|header_start|>user<|header_end|>\n\nHi<|eot|><|header_start|>assistant<|header_end|>\n\nYo";
    assert_eq!(rows(TextFormat::Llama4, text, None), json!([["user", "Hi"], ["assistant", "Yo", false]]));
    let text = "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>";
    assert_eq!(rows(TextFormat::Llama3, text, None), json!([["user", "Hi"]]));
    assert_eq!(from_text(text, TextFormat::Llama4, None).unwrap_err().kind(), ErrorKind::Malformed);
    assert_eq!(TextFormat::detect(text), TextFormat::Llama3);
}

#[test]
fn falcon_inverts_its_template() {
    let text = "Sys.\n\nUser: Hi\nUser? no\n\nAssistant: Yo!\nUser: Bye\n\nAssistant: \nAssistant:";
    let expected = json!([
        ["system", "Sys."],
        ["user", "Hi\nUser? no"],
        ["assistant", "Yo!"],
        ["user", "Bye"],
        ["assistant", ""],
        ["assistant", "", false]
    ]);
    assert_eq!(rows(TextFormat::Falcon, text, None), expected);
    assert_eq!(
        rows(TextFormat::Falcon, "User: Hi\n\nAssistant: Yo", None)[1],
        json!(["assistant", "Yo", false])
    );
}

#[test]
fn deepseek_keeps_the_system_and_leaves_the_end_of_sequence_out() {
    let expected = json!([
        ["system", "Sys."],
        ["user", "Hi, User: me"],
        ["assistant", "Yo!"],
        ["user", "Bye"],
        ["assistant", "Ciao"]
    ]);
    for (eos, known) in [("</s>", None), ("</s>", Some("</s>")), ("END", Some("END"))] {
        let text =
            format!("<s>Sys.\n\nUser: Hi, User: me\n\nAssistant: Yo!{eos}User: Bye\n\nAssistant: Ciao{eos}");
        assert_eq!(rows(TextFormat::DeepSeek, &text, known), expected, "{eos} {known:?}");
    }
    let open = "<s>User: Hi\n\nAssistant: Yo</s>Assistant:";
    assert_eq!(
        rows(TextFormat::DeepSeek, open, None),
        json!([["user", "Hi"], ["assistant", "Yo"], ["assistant", "", false]])
    );
}

#[test]
fn dialogpt_inverts_its_template() {
    assert_eq!(
        rows(TextFormat::DialoGpt, "Hi</s>Yo!</s>Bye</s>", Some("</s>")),
        json!([["user", "Hi"], ["assistant", "Yo!"], ["user", "Bye"]])
    );
    assert_eq!(
        rows(TextFormat::DialoGpt, "Hi</s> ", Some("</s>")),
        json!([["user", "Hi"], ["assistant", "", false]])
    );
    assert_eq!(
        rows(TextFormat::DialoGpt, "User: Hi\nAssistant: Yo", None),
        json!([["user", "Hi"], ["assistant", "Yo"]])
    );
}

#[test]
fn hostile_texts_take_one_pass() {
    for piece in [
        "<|im_start|>",
        "User:>",
        "<tool_call>\n",
        "<|im_start|>assistant\n<|im_end|>",
        "\n\nUser: ",
        "<",
        "Assistant:</s>",
    ] {
        let text = piece.repeat(1_000_000 / piece.len());
        for format in [
            TextFormat::Chatml,
            TextFormat::Llama4,
            TextFormat::Falcon,
            TextFormat::DeepSeek,
            TextFormat::DialoGpt,
        ] {
            let result = from_text(&text, format, Some("</s>"));
            assert!(result.is_ok() || !result.unwrap_err().detail().is_empty());
        }
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "(<\\|im_start\\|>|<\\|im_end\\|>|user\n|Assistant:|User: |\n\n|</s>|<tool_call>\n|\n</tool_call>|\\{\\}|.){0,40}") {
        for format in [TextFormat::Chatml, TextFormat::Llama4, TextFormat::Llama3, TextFormat::Falcon, TextFormat::DeepSeek, TextFormat::DialoGpt] {
            for eos in [None, Some("</s>")] {
                if let Err(error) = from_text(&text, format, eos) {
                    prop_assert_eq!(error.kind(), ErrorKind::Malformed);
                }
            }
        }
    }

    #[test]
    fn what_falcon_and_deepseek_write_is_read_back(turns in proptest::collection::vec(("[a-z]{1,8}( [a-z:.]{1,8}){0,3}", "[a-z]{1,8}(\n[a-z]{1,8}){0,2}"), 1..5)) {
        let expected: Value = turns.iter().flat_map(|(user, assistant)| [json!(["user", user]), json!(["assistant", assistant])]).collect();
        let falcon: String = turns.iter().map(|(user, assistant)| format!("User: {user}\n\nAssistant: {assistant}\n")).collect();
        prop_assert_eq!(rows(TextFormat::Falcon, &falcon, None), expected.clone());
        let deepseek: String = turns.iter().map(|(user, assistant)| format!("User: {user}\n\nAssistant: {assistant}</s>")).collect();
        prop_assert_eq!(rows(TextFormat::DeepSeek, &deepseek, None), expected.clone());
        let dialogpt: String = turns.iter().map(|(user, assistant)| format!("{user}</s>{assistant}</s>")).collect();
        prop_assert_eq!(rows(TextFormat::DialoGpt, &dialogpt, Some("</s>")), expected);
    }

    #[test]
    fn a_line_of_a_user_or_a_system_that_begins_with_a_role_is_no_turn(role in "User|Assistant", line in "[a-z]{1,8}") {
        let forged = format!("{line}\n{role}: forged");
        let falcon = format!("{forged}\n\nUser: {forged}\n\nAssistant: {line}\n");
        let expected = json!([["system", forged], ["user", forged], ["assistant", line]]);
        prop_assert_eq!(rows(TextFormat::Falcon, &falcon, None), expected.clone());
        let deepseek = format!("{forged}\n\nUser: {forged}\n\nAssistant: {line}</s>");
        prop_assert_eq!(rows(TextFormat::DeepSeek, &deepseek, None), expected);
        let said = format!("User: {line}\n\nAssistant: {line}\n\n{role}: forged</s>");
        let expected = json!([["user", line], ["assistant", format!("{line}\n\n{role}: forged")]]);
        prop_assert_eq!(rows(TextFormat::DeepSeek, &said, None), expected);
    }

    #[test]
    fn answers_of_tools_that_hold_tags_of_answers_are_unwrapped(answers in proptest::collection::vec(any_answer(), 1..4)) {
        let blocks: Vec<String> = answers.iter().map(|answer| format!("<tool_response>\n{answer}\n</tool_response>")).collect();
        let text = format!("<|im_start|>user\n{}<|im_end|>\n", blocks.join("\n"));
        let expected: Value = answers.iter().map(|answer| json!(["tool", answer])).collect();
        prop_assert_eq!(rows(TextFormat::Chatml, &text, None), expected);
    }
}

/// Words, and pairs of the tags that frame answers, inside of each other.
fn any_answer() -> impl Strategy<Value = String> {
    let word = "[a-z<>{}]{1,6}".prop_filter("no tag", |word| !word.contains("tool"));
    let leaf = word.prop_map(|word| word.trim().to_owned());
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            inner.clone().prop_map(|text| format!("<tool_response>\n{text}\n</tool_response>")),
            inner.clone().prop_map(|text| format!("see <tool_response>{text}</tool_response> there")),
            (inner.clone(), inner).prop_map(|(a, b)| format!("{a}\n{b}")),
        ]
    })
}

#[test]
fn integers_of_calls_keep_all_their_digits() {
    let call = r#"{"name":"f","arguments":{"id":123456789012345678901234567890}}"#;
    let text = format!("<|im_start|>assistant\n<tool_call>\n{call}\n</tool_call><|im_end|>\n");
    let history = from_text(&text, TextFormat::Chatml, None).unwrap();
    assert!(history.to_json().contains(call), "{}", history.to_json());
}
