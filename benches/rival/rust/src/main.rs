//! The rivals of benches/ts/chat.ts in Rust: minijinja renders a corpus, tokenizers encodes what it rendered.
//!
//! `rival FOLDER`, where FOLDER holds corpus.json, template.jinja and tokenizer.json. Each line of standard input is a
//! request for one pass, `render` or `encode`; each answer is one line of JSON with its time, its size and a digest.

use std::io::{BufRead, Write};
use std::time::Instant;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde, Value};
use minijinja::{Environment, context};
use serde_json::json;
use sha2::{Digest, Sha256};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn main() -> Result<()> {
    let folder = std::env::args().nth(1).ok_or("the first argument must be a folder")?;
    let read = |name: &str| std::fs::read_to_string(format!("{folder}/{name}"));
    let corpus: Vec<serde_json::Value> = serde_json::from_str(&read("corpus.json")?)?;
    let template = read("template.jinja")?;
    let environment = environment(&template)?;
    let tokenizer = tokenizers::Tokenizer::from_file(format!("{folder}/tokenizer.json"))?;
    say(&json!({ "versions": { "minijinja": "3.0.5", "tokenizers": "0.23.2" } }))?;
    let texts = render(&environment, &corpus)?;
    for request in std::io::stdin().lock().lines() {
        let start = Instant::now();
        if request? == "render" {
            let texts = render(&environment, &corpus)?;
            answer(start, || texts.join("\0").into_bytes())?;
        } else {
            let encode = |text: &String| tokenizer.encode(text.as_str(), false);
            let encodings = texts.iter().map(encode).collect::<Result<Vec<_>>>()?;
            let ids = encodings.iter().flat_map(|encoding| encoding.get_ids());
            answer(start, || ids.flat_map(|id| id.to_le_bytes()).collect())?;
        }
    }
    Ok(())
}

/// minijinja as it comes, with what chat templates need: Python's methods, and its `tojson` without HTML escapes.
fn environment(template: &str) -> Result<Environment<'_>> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.add_filter("tojson", |value: Value, options: Kwargs| {
        let _ = options.get::<Option<bool>>("ensure_ascii")?;
        Ok(Value::from_safe_string(python_json(&value)))
    });
    environment.add_function("raise_exception", |message: String| -> std::result::Result<String, _> {
        Err(minijinja::Error::new(minijinja::ErrorKind::InvalidOperation, message))
    });
    environment.add_template("chat", template)?;
    Ok(environment)
}

fn render(environment: &Environment<'_>, corpus: &[serde_json::Value]) -> Result<Vec<String>> {
    let template = environment.get_template("chat")?;
    let render = |row: &serde_json::Value| {
        let tools = row.get("tools").map(|tools| Value::from(Serde(tools)));
        Ok(template.render(context! { messages => Value::from(Serde(&row["messages"])), tools => tools })?)
    };
    corpus.iter().map(render).collect()
}

/// JSON with Python's separators.
fn python_json(value: &Value) -> String {
    let mut bytes = Vec::new();
    let mut serializer = serde_json::Serializer::with_formatter(&mut bytes, Spaced);
    match serde::Serialize::serialize(value, &mut serializer) {
        Ok(()) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => error.to_string(),
    }
}

struct Spaced;

impl serde_json::ser::Formatter for Spaced {
    fn begin_array_value<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
    fn begin_object_key<W: ?Sized + Write>(&mut self, out: &mut W, first: bool) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }
    fn begin_object_value<W: ?Sized + Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// Says how long it took since `start`, and afterwards of what.
fn answer(start: Instant, output: impl FnOnce() -> Vec<u8>) -> Result<()> {
    let ms = start.elapsed().as_secs_f64() * 1000.0;
    let output = output();
    let digest: String = Sha256::digest(&output).iter().map(|byte| format!("{byte:02x}")).collect();
    say(&json!({ "ms": ms, "count": output.len(), "digest": digest }))
}

fn say(line: &serde_json::Value) -> Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
