//! The suite that every implementation of [`Renderer`] runs in its tests.

use fulmar_core::ErrorKind;

use crate::{
    Bridge, BridgeRefusal, Message, Origin, ParseOptions, RenderOptions, Rendered, Renderer, Result,
    ToolCallStatus, Tools,
};

const PROMPT: RenderOptions = RenderOptions { add_generation_prompt: true, tools: Tools::NONE };
const WHOLE: RenderOptions = RenderOptions { add_generation_prompt: false, tools: Tools::NONE };

/// Checks the contract of [`Renderer`]. The tests of each implementation call this with conversations that it
/// can render.
///
/// # Errors
/// The renderer's error for a conversation that it should render.
///
/// # Panics
/// If the renderer breaks a rule of the trait; the message names it.
pub fn check_renderer(renderer: &dyn Renderer, conversations: &[Vec<Message>]) -> Result<()> {
    assert!(!renderer.stop_ids().is_empty(), "a turn can end");
    let nothing = renderer.render(&[], &PROMPT).map_err(|error| error.kind());
    assert_eq!(nothing, Err(ErrorKind::Empty), "no message is refused");
    assert_eq!(
        renderer.parse(&[], &ParseOptions::default())?.content,
        "",
        "an empty completion parses as empty"
    );
    for messages in conversations {
        check_masks(renderer, messages)?;
        check_refusals(renderer, messages)?;
        check_turns(renderer, messages)?;
    }
    Ok(())
}

fn check_masks(renderer: &dyn Renderer, messages: &[Message]) -> Result<()> {
    let whole = renderer.render(messages, &WHOLE)?;
    let prompt = renderer.render(messages, &PROMPT)?;
    assert!(prompt.ids.starts_with(&whole.ids), "a generation prompt is appended");
    assert!(renderer.render_text(messages, &PROMPT)?.starts_with(&renderer.render_text(messages, &WHOLE)?));
    for rendered in [&whole, &prompt] {
        let num_ids = rendered.ids.len();
        let lengths = [
            rendered.message_index.len(),
            rendered.sampled_mask.len(),
            rendered.is_content.len(),
            rendered.origin.len(),
        ];
        assert_eq!(lengths, [num_ids; 4], "one attribution for each id");
        for t in 0..num_ids {
            check_token(rendered, t, messages);
        }
    }
    assert!(!prompt.sampled_mask[whole.ids.len()..].contains(&true), "a generation prompt is never sampled");
    Ok(())
}

fn check_token(rendered: &Rendered, t: usize, messages: &[Message]) {
    let index = rendered.message_index[t];
    let speaker = usize::try_from(index).ok().and_then(|index| messages.get(index));
    assert!(index == -1 || speaker.is_some(), "token {t} belongs to message {index}, which does not exist");
    assert!(index != -1 || !rendered.is_content[t], "token {t} is content of no message");
    if speaker.is_some_and(|message| message.role() == "assistant") {
        assert_eq!(
            rendered.is_content[t], rendered.sampled_mask[t],
            "assistant token {t}: content is what is sampled"
        );
    } else {
        assert!(!rendered.sampled_mask[t], "token {t} outside of messages is not sampled");
    }
}

fn check_refusals(renderer: &dyn Renderer, messages: &[Message]) -> Result<()> {
    let prompt = renderer.render(messages, &PROMPT)?.ids;
    let user = [Message::new("user", "1")?];
    let assistant = [Message::new("assistant", "1")?];
    let stranger = [Message::new("stranger", "1")?];
    let refused = |refusal| Ok(Bridge::Declined(refusal));
    assert_eq!(renderer.bridge(&[], &prompt, &user, &[]), refused(BridgeRefusal::EmptyPrompt));
    assert_eq!(renderer.bridge(&prompt, &prompt, &[], &[]), refused(BridgeRefusal::EmptyExtension));
    assert_eq!(
        renderer.bridge(&prompt, &prompt, &assistant, &[]),
        refused(BridgeRefusal::AssistantInExtension)
    );
    assert_eq!(renderer.bridge(&prompt, &prompt, &stranger, &[]), refused(BridgeRefusal::UnknownRole));
    Ok(())
}

/// Treats every assistant message as a sampled completion: parse returns it, a bridge continues it.
fn check_turns(renderer: &dyn Renderer, messages: &[Message]) -> Result<()> {
    for (turn, message) in messages.iter().enumerate().filter(|(_, message)| message.role() == "assistant") {
        let spoken = renderer.render(&messages[..=turn], &WHOLE)?;
        let is_turn = |&t: &usize| spoken.message_index[t] == turn as i32 && spoken.sampled_mask[t];
        let sampled: Vec<usize> = (0..spoken.ids.len()).filter(is_turn).collect();
        assert_eq!(
            sampled.len(),
            sampled[sampled.len() - 1] + 1 - sampled[0],
            "a turn is sampled in one piece"
        );
        let (prompt, completion) = spoken.ids[..=sampled[sampled.len() - 1]].split_at(sampled[0]);
        let options = ParseOptions { prompt_ids: Some(prompt.to_vec()), tools: Tools::NONE };
        let parsed = renderer.parse(completion, &options)?;
        let text = message.text()?;
        assert!(
            [&*text, text.trim()].contains(&&*parsed.content),
            "what was rendered parses back: {parsed:?}"
        );
        let is_closed = completion.last().is_some_and(|id| renderer.stop_ids().contains(id));
        assert_eq!(parsed.finished, is_closed, "a turn is finished if it ends with a stop");
        assert!(!parsed.overran, "a rendered turn ends where it should");
        for call in &parsed.tool_calls {
            assert_eq!(call.status, ToolCallStatus::Ok, "a rendered call can be used");
        }
        let replies = messages[turn + 1..].iter().take_while(|reply| reply.role() != "assistant").cloned();
        check_bridge(renderer, prompt, completion, &replies.collect::<Vec<_>>())?;
    }
    Ok(())
}

/// Bridges from every truncation of the completion: existing tokens stay, added tokens are not sampled.
fn check_bridge(
    renderer: &dyn Renderer,
    prompt: &[u32],
    completion: &[u32],
    replies: &[Message],
) -> Result<()> {
    for end in 0..=completion.len() {
        renderer.parse(&completion[..end], &ParseOptions::default())?;
        let Bridge::Extended(next) = renderer.bridge(prompt, &completion[..end], replies, &[])? else {
            continue;
        };
        assert_eq!(next.num_kept, end, "what was sampled stays");
        assert!(!next.rendered.sampled_mask.contains(&true), "a bridge marks nothing as sampled");
        let closed = end > 0 && renderer.stop_ids().contains(&completion[end - 1]);
        let is_synthetic = next.rendered.origin.contains(&Origin::Synthetic);
        assert!(!(closed && is_synthetic), "what was closed is not closed again");
    }
    Ok(())
}
