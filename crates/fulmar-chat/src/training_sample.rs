//! Converts conversations to training samples: ids and a mask of the trained tokens.

use fulmar_core::{Error, ErrorKind};
use serde_json::Value;

use crate::{Message, RenderOptions, Rendered, Renderer, Result, Tools};

/// Options of [`build_training_sample`].
#[derive(Debug, Clone, PartialEq, Default)]
pub struct TrainingSampleOptions {
    /// The available tools.
    pub tools: Tools,
    /// The roles whose sampled tokens train. `None`: all tokens that an assistant samples.
    pub roles: Option<Vec<String>>,
    /// Roles whose text trains too, although it is not sampled; their frame never trains.
    pub content_sft_roles: Vec<String>,
    /// If true, a closing token is added to a final assistant turn without one, such as GLM's.
    pub ensure_final_stop: bool,
}

/// Ids with the training mask, both of shape `[T]`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RenderedTrainingSample {
    /// Token ids.
    pub ids: Vec<u32>,
    /// `true` if a token is trained.
    pub loss_mask: Vec<bool>,
}

/// Renders a conversation as a training sample.
///
/// # Errors
/// The errors of [`Renderer::render`]; `Empty` if no token trains; `Incompatible` if an assistant's message
/// has no sampled token because the renderer cannot locate its turn.
///
/// # Examples
/// ```
/// use fulmar_chat::{Message, RendererConfig, TrainingSampleOptions, build_training_sample, create_renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let tokenizer = std::sync::Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer = create_renderer(tokenizer, &RendererConfig::Chatml {})?;
/// let chat = [Message::new("user", "1+1?")?, Message::new("assistant", "2")?];
/// let sample = build_training_sample(&*renderer, &chat, &TrainingSampleOptions::default())?;
/// assert_eq!(sample.loss_mask.iter().filter(|bit| **bit).count(), 2, "the answer and what closes it");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn build_training_sample(
    renderer: &dyn Renderer,
    messages: &[Message],
    options: &TrainingSampleOptions,
) -> Result<RenderedTrainingSample> {
    let render_options = RenderOptions { add_generation_prompt: false, tools: options.tools.clone() };
    let rendered = renderer.render(messages, &render_options)?;
    check_turns(&rendered, messages)?;
    let trains =
        |role: &str| options.roles.as_ref().is_none_or(|roles| roles.iter().any(|other| other == role));
    let is_taught = |role: &str| options.content_sft_roles.iter().any(|other| other == role);
    let counts = |t: usize| {
        let Some(message) = rendered.message_of(t, messages) else { return false };
        let role = message.role();
        if is_taught(role) { rendered.is_content[t] } else { rendered.sampled_mask[t] && trains(role) }
    };
    let mut loss_mask: Vec<bool> = (0..rendered.ids.len()).map(counts).collect();
    let mut ids = rendered.ids;
    let ends_with_turn =
        messages.last().is_some_and(|last| last.role() == "assistant" && trains("assistant"));
    if options.ensure_final_stop && ends_with_turn {
        let last = loss_mask.iter().rposition(|bit| *bit);
        if !last.is_some_and(|last| renderer.stop_ids().contains(&ids[last])) {
            ids.extend(renderer.stop_ids().first());
            loss_mask.resize(ids.len(), true);
        }
    }
    if !loss_mask.contains(&true) {
        let detail = "messages must hold a token to train on: the roles that train have no text";
        return Err(Error::new(ErrorKind::Empty, detail));
    }
    Ok(RenderedTrainingSample { ids, loss_mask })
}

/// A prompt and its completion, as one step of a trajectory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TrajectoryStep {
    /// The prompt, with its generation prompt.
    pub prompt_ids: Vec<u32>,
    /// The completion.
    pub completion_ids: Vec<u32>,
    /// The tokens of the completion that an assistant samples. Shape of `completion_ids`.
    pub completion_mask: Vec<bool>,
}

/// Returns a step whose completion was never sampled, such as a demonstration: the tokens of `prompt` and
/// those that `completion` adds.
///
/// # Errors
/// The errors of [`Renderer::render`]; `Empty` if `completion` is empty; `Incompatible` if the tokens of the
/// prompt are not a prefix of all tokens, because the family renders the prompt differently once something
/// follows.
///
/// # Examples
/// ```
/// use fulmar_chat::{Message, RendererConfig, build_trajectory_step, create_renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let tokenizer = std::sync::Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let renderer = create_renderer(tokenizer, &RendererConfig::Chatml {})?;
/// let [prompt, completion] = [[Message::new("user", "1+1?")?], [Message::new("assistant", "2")?]];
/// let step = build_trajectory_step(&*renderer, &prompt, &completion, &[])?;
/// assert_eq!(step.completion_mask, [true, true, false], "the answer, what closes it, a newline");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub fn build_trajectory_step(
    renderer: &dyn Renderer,
    prompt: &[Message],
    completion: &[Message],
    tools: &[Value],
) -> Result<TrajectoryStep> {
    if completion.is_empty() {
        return Err(Error::new(
            ErrorKind::Empty,
            "completion must hold at least one message, but the list is empty",
        ));
    }
    let tools = Tools::from(tools.to_vec());
    let options = |add_generation_prompt| RenderOptions { add_generation_prompt, tools: tools.clone() };
    let prompt_ids = renderer.render(prompt, &options(true))?.ids;
    let mut whole = renderer.render(&[prompt, completion].concat(), &options(false))?;
    if !whole.ids.starts_with(&prompt_ids) {
        let same = prompt_ids.iter().zip(&whole.ids).take_while(|(a, b)| a == b).count();
        let detail = format!(
            "prompt must stay as it is when the completion follows, but its token {same} of {} changes",
            prompt_ids.len()
        );
        return Err(Error::new(ErrorKind::Incompatible, detail));
    }
    whole.drop_first(prompt_ids.len());
    Ok(TrajectoryStep { prompt_ids, completion_ids: whole.ids, completion_mask: whole.sampled_mask })
}

/// Refuses an assistant's message with text whose turn was not located.
fn check_turns(rendered: &Rendered, messages: &[Message]) -> Result<()> {
    let counts = rendered.tokens_per_message(messages.len(), true);
    for (index, (message, count)) in messages.iter().zip(counts).enumerate() {
        let speaks = message.has_tool_calls() || !message.text()?.is_empty();
        if message.role() == "assistant" && speaks && count == 0 {
            let detail = format!(
                "messages[{index}] must be a turn whose begin and end the template shows, but it shows neither"
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
    }
    Ok(())
}
