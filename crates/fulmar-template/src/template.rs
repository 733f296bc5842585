//! A compiled chat template with its input and output.

use std::sync::{Arc, LazyLock};

use fulmar_core::limits::{
    TEMPLATE_MADE_BYTES, TEMPLATE_MADE_BYTES_MAX, TEMPLATE_OUTPUT_BYTES, TEMPLATE_OUTPUT_BYTES_MAX,
    TEMPLATE_STEPS, TEMPLATE_STEPS_MAX,
};
use fulmar_core::{Error, ErrorKind, Result, options_from_json};
use minijinja::Environment;
use minijinja::value::Value;
use serde::Deserialize;
use serde_json::{Map, Value as Json};

use crate::clock::CivilTime;
use crate::conversation::{self, Continuation};
use crate::environment::{SETTINGS, Settings, environment};
use crate::failure::to_error;
use crate::meter;
use crate::output::Bounded;
use crate::prepare::prepare;
use crate::span::{Marks, Taken, extract};
use crate::value::{Dict, from_json};

/// The engine's name of the only template in its environment.
const NAME: &str = "template";

/// A compiled chat template. It can be shared between threads; a clone is cheap.
///
/// It renders the same text as transformers' `apply_chat_template` with the same source: the same language,
/// the same printing of values, the same preparation of messages. Templates that fail there fail here.
///
/// ```
/// use fulmar_template::{Template, TemplateInput};
/// use serde_json::{Map, json};
///
/// let template = Template::new(
///     "{% for m in messages %}{{ m.role }}: {% generation %}{{ m.content }}{% endgeneration %};{% endfor %}",
/// )?;
/// let message = json!({"role": "assistant", "content": 1.0});
/// let input = TemplateInput { messages: message.as_object().into_iter().collect(), ..TemplateInput::default() };
/// let rendered = template.render(&input)?;
/// assert_eq!(rendered.text, "assistant: 1.0;");
/// assert_eq!(rendered.assistant_spans, Some(vec![[11, 14]]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Template {
    inner: Arc<Inner>,
}

#[derive(Debug)]
struct Inner {
    source: String,
    environment: Environment<'static>,
    has_generation: bool,
    limits: Limits,
    /// The private-use characters of the source.
    taken: Taken,
}

/// Limits of one rendering.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Limits {
    /// Maximum number of the engine's instructions, and of elements that operators, filters, tests and
    /// methods visit; 16 bytes of a text count as one.
    pub steps: u64,
    /// Maximum length of the text in bytes.
    pub output_bytes: usize,
    /// Maximum total bytes of texts and lists made during the rendering, freed or not. So it bounds the
    /// memory of a rendering.
    pub made_bytes: u64,
}

impl Default for Limits {
    /// `TEMPLATE_STEPS`, `TEMPLATE_OUTPUT_BYTES` and `TEMPLATE_MADE_BYTES`, far above the needs of real
    /// templates.
    fn default() -> Self {
        Self { steps: TEMPLATE_STEPS, output_bytes: TEMPLATE_OUTPUT_BYTES, made_bytes: TEMPLATE_MADE_BYTES }
    }
}

impl Limits {
    fn check(self) -> Result<()> {
        for (name, value, most) in [
            ("steps", self.steps, TEMPLATE_STEPS_MAX),
            ("outputBytes", self.output_bytes as u64, TEMPLATE_OUTPUT_BYTES_MAX as u64),
            ("madeBytes", self.made_bytes, TEMPLATE_MADE_BYTES_MAX),
        ] {
            if value == 0 || value > most {
                let detail = format!("{name} must be an integer from 1 to {most}: got {value}");
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
        }
        Ok(())
    }
}

/// Ends the text inside the final message, so that a model continues it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ContinueFinalMessage {
    /// It ends where the template ends it.
    #[default]
    No,
    /// It ends with the final message's `content`.
    Yes,
    /// It ends with this field of the final message.
    Field(String),
}

/// The input of a template. `kwargs` override the other variables.
#[derive(Debug, Clone)]
pub struct TemplateInput<'a> {
    /// The conversation. Keys with the value null count as absent.
    pub messages: Vec<&'a Map<String, Json>>,
    /// JSON schemas of the tools; none if absent.
    pub tools: Option<&'a [Json]>,
    /// Documents for templates that cite them; none if absent.
    pub documents: Option<&'a [Json]>,
    /// If true, the text ends with the start of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Ends the text inside the final message.
    pub continue_final_message: ContinueFinalMessage,
    /// Variables such as `bos_token`. Absent or null ones are undefined.
    pub special_tokens: &'a Map<String, Json>,
    /// Any other variables.
    pub kwargs: &'a Map<String, Json>,
    /// The time for `strftime_now`. Without it a template that asks for the time fails.
    pub now: Option<CivilTime>,
}

impl Default for TemplateInput<'_> {
    /// No messages, no variables, no clock.
    fn default() -> Self {
        static EMPTY: LazyLock<Map<String, Json>> = LazyLock::new(Map::new);
        Self {
            messages: Vec::new(),
            tools: None,
            documents: None,
            add_generation_prompt: false,
            continue_final_message: ContinueFinalMessage::No,
            special_tokens: &EMPTY,
            kwargs: &EMPTY,
            now: None,
        }
    }
}

/// A rendered conversation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RenderedText {
    /// The text.
    pub text: String,
    /// The content of `generation` blocks, `[start, end)` in bytes of `text`, in order and disjoint; only the
    /// outermost of nested blocks. `None` if the template has no such block, or the text ends inside a
    /// message.
    pub assistant_spans: Option<Vec<[usize; 2]>>,
}

impl Template {
    /// Compiles `source`.
    ///
    /// # Errors
    /// `Malformed`, with the line, for a source that violates Jinja's grammar; `LimitExceeded` past a limit
    /// of templates.
    pub fn new(source: &str) -> Result<Self> {
        Self::with_limits(source, Limits::default())
    }

    /// Runs [`Template::with_limits`] with the limits as JSON text in camel case; absent ones have their
    /// defaults.
    ///
    /// # Errors
    /// The errors of [`Template::with_limits`]; `UnknownName` or `Malformed` for JSON of another form.
    pub fn with_limits_json(source: &str, limits: &str) -> Result<Self> {
        Self::with_limits(source, options_from_json("limits", limits)?)
    }

    /// Compiles `source` with `limits` for its renderings.
    ///
    /// # Errors
    /// The errors of [`Template::new`]; `OutOfRange` for a limit that is 0 or above its maximum.
    pub fn with_limits(source: &str, limits: Limits) -> Result<Self> {
        limits.check()?;
        let prepared = prepare(source)?;
        let mut taken = Taken::default();
        taken.add_text(&prepared.source);
        let mut environment = environment();
        environment.set_fuel(Some(limits.steps));
        environment.add_template_owned(NAME, prepared.source).map_err(|error| to_error(&error))?;
        let has_generation = prepared.has_generation;
        Ok(Self {
            inner: Arc::new(Inner { source: source.to_owned(), environment, has_generation, limits, taken }),
        })
    }

    /// Returns the original source.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Returns whether the source has a `generation` block, in any spelling.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        self.inner.has_generation
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// `TemplateRaised` with the text that the template passed to `raise_exception`; `UnknownName` if it uses
    /// an undefined value; `Incompatible` if it does not match the data (Python's `TypeError`), needs the
    /// time without one, or the final message cannot be continued; `Forbidden` if it leaves its sandbox;
    /// `OutOfRange` for Python's `ValueError`; `LimitExceeded` past a limit.
    pub fn render(&self, input: &TemplateInput) -> Result<RenderedText> {
        let continuation = Continuation::new(
            &input.continue_final_message,
            &input.messages,
            input.add_generation_prompt,
            self.source(),
        )?;
        let wants_spans = self.has_generation() && continuation.is_none();
        let marks = if wants_spans { Some(self.marks(input)?) } else { None };
        let messages = conversation::messages(&input.messages, continuation.as_ref())?;
        let variables = variables(input, messages, Settings { now: input.now, marks })?;
        let text = self.run(variables)?;
        if let Some(continuation) = continuation {
            return Ok(RenderedText { text: continuation.cut(text)?, assistant_spans: None });
        }
        let Some(marks) = marks else { return Ok(RenderedText { text, assistant_spans: None }) };
        let (text, spans) = extract(text, marks);
        Ok(RenderedText { text, assistant_spans: Some(spans) })
    }

    fn run(&self, variables: Dict) -> Result<String> {
        let template = self.inner.environment.get_template(NAME).map_err(|error| to_error(&error))?;
        let mut out = Bounded::new(self.inner.limits.output_bytes);
        let _metered = meter::start(self.inner.limits);
        let rendered = template.render_captured_to(Value::from_object(variables), &mut out);
        // A comparison inside the engine that reached the limit could not return an error.
        let rendered = rendered.map(|_| ()).and_then(|()| meter::check());
        match rendered {
            Ok(()) => Ok(out.into_text()),
            Err(_) if out.is_full() => {
                let most = self.inner.limits.output_bytes;
                Err(Error::new(
                    ErrorKind::LimitExceeded,
                    format!("rendered text must have at most {most} bytes"),
                ))
            }
            Err(error) => Err(to_error(&error)),
        }
    }

    /// Returns two characters that neither the template nor its data contains.
    fn marks(&self, input: &TemplateInput) -> Result<Marks> {
        let mut taken = self.inner.taken.clone();
        for map in input.messages.iter().copied().chain([input.special_tokens, input.kwargs]) {
            taken.add_map(map);
        }
        for item in input.tools.into_iter().chain(input.documents).flatten() {
            taken.add_json(item);
        }
        taken.free()
    }
}

/// Returns the variables of a rendering; later ones override earlier ones.
fn variables(input: &TemplateInput, messages: Value, settings: Settings) -> Result<Dict> {
    let mut variables = vec![
        (Value::from(SETTINGS), Value::from_object(settings)),
        (Value::from("messages"), messages),
        (Value::from("tools"), conversation::list(input.tools)?),
        (Value::from("documents"), conversation::list(input.documents)?),
        (Value::from("add_generation_prompt"), Value::from(input.add_generation_prompt)),
    ];
    let num_own = variables.len();
    for (name, value) in input.special_tokens.iter().filter(|(_, value)| !value.is_null()) {
        if !input.kwargs.contains_key(name) {
            variables.push((Value::from(name.as_str()), from_json(value)?));
        }
    }
    for (name, value) in input.kwargs.iter().filter(|(name, _)| *name != SETTINGS) {
        let value = from_json(value)?;
        match variables[1..num_own].iter_mut().find(|(known, _)| known.as_str() == Some(name)) {
            Some(own) => own.1 = value,
            None => variables.push((Value::from(name.as_str()), value)),
        }
    }
    Dict::new(variables)
}
