//! Compared with the rivals of benches/rival/rust: renders a corpus, encodes it, masks it, without Node in between.
//!
//! `fulmar-bench FOLDER`, where FOLDER holds corpus.json, template.jinja and tokenizer.json. Each line of standard input
//! is a request for one pass; each answer is one line of JSON with its time, its size and a digest of its output:
//! `render` (table-driven Qwen3 to text), `template` (the Jinja template to text), `encode` (that text to ids), `rollout`
//! (a conversation of many turns by bridges, ids in and out, each answer parsed), `whole` (one rendering of all of it).

use std::io::BufRead;
use std::sync::Arc;
use std::time::Instant;

use fulmar::chat::{Bridge, Message, ParseOptions, RenderOptions, Renderer, RendererConfig, create_renderer};
use fulmar::core::Result;
use fulmar::template::{Template, TemplateInput};
use fulmar::tokenizer::{HfTokenizer, Tokenizer};
use fulmar_bench::{broken, say};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

const NUM_TURNS: usize = 40;
/// Rollouts of one pass: a single one is too short to time.
const REPEATS: usize = 100;

struct Conversation {
    messages: Vec<Message>,
    options: RenderOptions,
}

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_default();
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}")).map_err(broken);
    let corpus = corpus(&read("corpus.json")?)?;
    let template = Template::new(&read("template.jinja")?)?;
    let tokenizer: Arc<dyn Tokenizer> = Arc::new(HfTokenizer::from_json(&read("tokenizer.json")?)?);
    let config: RendererConfig = serde_json::from_value(json!({ "name": "qwen3" })).map_err(broken)?;
    let renderer = create_renderer(Arc::clone(&tokenizer), &config)?;
    let texts = render(&*renderer, &corpus)?;
    let rollout = Rollout::new(&corpus, &*renderer, &*tokenizer)?;
    say(&json!({ "ready": true }))?;
    for request in std::io::stdin().lock().lines() {
        let start = Instant::now();
        match request.map_err(broken)?.as_str() {
            "render" => {
                let texts = render(&*renderer, &corpus)?;
                answer(start, || texts.join("\0").into_bytes())?;
            }
            "template" => {
                let texts = from_template(&template, &corpus)?;
                answer(start, || texts.join("\0").into_bytes())?;
            }
            "rollout" => {
                let prompt =
                    (0..REPEATS).map(|_| rollout.play(&*renderer)).collect::<Result<Vec<_>>>()?.pop();
                answer(start, || prompt.iter().flatten().flat_map(|id| id.to_le_bytes()).collect())?;
            }
            "whole" => {
                let whole =
                    (0..REPEATS).map(|_| rollout.render(&*renderer)).collect::<Result<Vec<_>>>()?.pop();
                answer(start, || whole.iter().flatten().flat_map(|id| id.to_le_bytes()).collect())?;
            }
            _ => {
                let encode = |text: &String| tokenizer.encode_added(text);
                let encodings = texts.iter().map(encode).collect::<Result<Vec<_>>>()?;
                let ids = encodings.iter().flat_map(|encoding| &encoding.ids);
                answer(start, || ids.flat_map(|id| id.to_le_bytes()).collect())?;
            }
        }
    }
    Ok(())
}

/// A conversation that a policy has with a tool: each turn is answered with ids.
struct Rollout {
    replies: Vec<Message>,
    answers: Vec<Vec<u32>>,
    whole: Vec<Message>,
}

impl Rollout {
    fn new(corpus: &[Conversation], renderer: &dyn Renderer, tokenizer: &dyn Tokenizer) -> Result<Self> {
        let users = corpus.iter().flat_map(|row| &row.messages).filter(|message| message.role() == "user");
        let texts = users.take(2 * NUM_TURNS).map(Message::text).collect::<Result<Vec<_>>>()?;
        let mut rollout = Self { replies: Vec::new(), answers: Vec::new(), whole: Vec::new() };
        for (turn, pair) in texts.chunks_exact(2).enumerate() {
            let reply = Message::new(if turn == 0 { "user" } else { "tool" }, &pair[0])?;
            let stop = renderer.stop_ids().iter().take(1).copied();
            rollout.answers.push(tokenizer.encode(&pair[1])?.ids.into_iter().chain(stop).collect());
            rollout.whole.extend([reply.clone(), Message::new("assistant", &pair[1])?]);
            rollout.replies.push(reply);
        }
        Ok(rollout)
    }

    /// Prompt by prompt; the ids of the last one.
    fn play(&self, renderer: &dyn Renderer) -> Result<Vec<u32>> {
        let options = RenderOptions { add_generation_prompt: true, ..RenderOptions::default() };
        let mut prompt = renderer.render(&self.replies[..1], &options)?.ids;
        for (turn, answer) in self.answers.iter().enumerate() {
            renderer.parse(answer, &ParseOptions::default())?;
            let Some(reply) = self.replies.get(turn + 1) else { break };
            prompt = match renderer.bridge(&prompt, answer, std::slice::from_ref(reply), &[])? {
                Bridge::Extended(extension) => extension.next_prompt(&prompt, answer),
                Bridge::Declined(refusal) => return Err(broken(refusal.name())),
            };
        }
        Ok(prompt)
    }

    fn render(&self, renderer: &dyn Renderer) -> Result<Vec<u32>> {
        Ok(renderer.render(&self.whole, &RenderOptions::default())?.ids)
    }
}

fn corpus(text: &str) -> Result<Vec<Conversation>> {
    let rows: Vec<Value> = serde_json::from_str(text).map_err(broken)?;
    let read = |row: Value| {
        let list = |key: &str| row[key].as_array().cloned().unwrap_or_default();
        let messages = list("messages").into_iter().map(Message::from_value).collect::<Result<_>>()?;
        Ok(Conversation {
            messages,
            options: RenderOptions { tools: list("tools").into(), ..Default::default() },
        })
    };
    rows.into_iter().map(read).collect()
}

fn render(renderer: &dyn Renderer, corpus: &[Conversation]) -> Result<Vec<String>> {
    corpus.iter().map(|row| renderer.render_text(&row.messages, &row.options)).collect()
}

fn from_template(template: &Template, corpus: &[Conversation]) -> Result<Vec<String>> {
    let render = |row: &Conversation| {
        let input = TemplateInput {
            messages: row.messages.iter().map(Message::fields).collect(),
            tools: (!row.options.tools.is_empty()).then_some(&row.options.tools[..]),
            ..TemplateInput::default()
        };
        Ok(template.render(&input)?.text)
    };
    corpus.iter().map(render).collect()
}

/// Says how long it took since `start`, and afterwards of what.
fn answer(start: Instant, output: impl FnOnce() -> Vec<u8>) -> Result<()> {
    let ms = start.elapsed().as_secs_f64() * 1000.0;
    let output = output();
    let digest: String = Sha256::digest(&output).iter().map(|byte| format!("{byte:02x}")).collect();
    say(&json!({ "ms": ms, "count": output.len(), "digest": digest }))
}
