//! A compiled chat template and what goes in and out of it.

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

/// Under this name the engine knows the one template of its environment.
const NAME: &str = "template";

/// A chat template, compiled. Shared between threads freely; a clone is one more owner.
///
/// It renders what transformers' `apply_chat_template` renders with the same source: the same language, the same way of
/// printing values, the same preparation of messages. What fails there fails here.
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

/// How much one rendering may do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase", default)]
pub struct Limits {
    /// Most instructions of the engine; and as many elements that operators, filters, tests and methods may go over, where
    /// 16 bytes of a text count as one.
    pub steps: u64,
    /// Longest text, in bytes.
    pub output_bytes: usize,
    /// Most bytes of all texts and lists together that are made on the way, freed or not. So no rendering takes more memory.
    pub made_bytes: u64,
}

impl Default for Limits {
    /// `TEMPLATE_STEPS`, `TEMPLATE_OUTPUT_BYTES` and `TEMPLATE_MADE_BYTES`: many times what a real template needs.
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

/// Whether the text ends inside the final message, so that a model goes on with it.
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

/// What a template renders. Every variable may be overridden by one of `kwargs`.
#[derive(Debug, Clone)]
pub struct TemplateInput<'a> {
    /// The conversation. Keys whose value is null count as absent.
    pub messages: Vec<&'a Map<String, Json>>,
    /// JSON schemas of the tools; none where absent.
    pub tools: Option<&'a [Json]>,
    /// Documents for templates that cite; none where absent.
    pub documents: Option<&'a [Json]>,
    /// Whether the text ends with the start of an assistant's turn.
    pub add_generation_prompt: bool,
    /// Whether the text ends inside the final message.
    pub continue_final_message: ContinueFinalMessage,
    /// Variables such as `bos_token`. Those that are absent or null are undefined.
    pub special_tokens: &'a Map<String, Json>,
    /// Any other variables.
    pub kwargs: &'a Map<String, Json>,
    /// What `strftime_now` sees. Without it a template that asks for the time fails.
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
    /// What stands in `generation` blocks, `[start, end)` in bytes of `text`, in order and apart from each other; of
    /// nested blocks the outermost. `None` if the template has no such block, or the text ends inside a message.
    pub assistant_spans: Option<Vec<[usize; 2]>>,
}

impl Template {
    /// Compiles `source`.
    ///
    /// # Errors
    /// `Malformed` for a source that breaks Jinja's grammar, with its line; `LimitExceeded` past a limit of templates.
    pub fn new(source: &str) -> Result<Self> {
        Self::with_limits(source, Limits::default())
    }

    /// [`Template::with_limits`], with the limits as JSON text in camel case; those that are absent are the defaults.
    ///
    /// # Errors
    /// As [`Template::with_limits`]; `UnknownName` or `Malformed` for JSON of another form.
    pub fn with_limits_json(source: &str, limits: &str) -> Result<Self> {
        Self::with_limits(source, options_from_json("limits", limits)?)
    }

    /// Compiles `source` for renderings that may do no more than `limits`.
    ///
    /// # Errors
    /// As [`Template::new`]; `OutOfRange` for a limit that is 0 or above its most.
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

    /// The source as it was given.
    #[must_use]
    pub fn source(&self) -> &str {
        &self.inner.source
    }

    /// Whether the source has a `generation` block, however it is written.
    #[must_use]
    pub fn has_generation(&self) -> bool {
        self.inner.has_generation
    }

    /// Renders a conversation.
    ///
    /// # Errors
    /// `TemplateRaised` with the text that the template gave to `raise_exception`; `UnknownName` where it uses what is
    /// undefined; `Incompatible` where it does not fit the data (Python's `TypeError`), needs the time and gets none, or
    /// the final message cannot be continued; `Forbidden` where it leaves its sandbox; `OutOfRange` for what Python
    /// calls a `ValueError`; `LimitExceeded` past a limit.
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
        // A comparison of the engine that came to the limit had no way to say so.
        let rendered = rendered.map(|_| ()).and_then(|()| meter::check());
        match rendered {
            Ok(()) => Ok(out.into_text()),
            Err(_) if out.is_full() => {
                let most = self.inner.limits.output_bytes;
                Err(Error::new(
                    ErrorKind::LimitExceeded,
                    format!("rendered text must have at most {most} bytes: got more"),
                ))
            }
            Err(error) => Err(to_error(&error)),
        }
    }

    /// Two characters that neither the template nor its data holds.
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

/// The variables of a rendering: later ones hide earlier ones of the same name.
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
