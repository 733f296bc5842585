//! Renderers, ledgers and parsed chats, in one program.

mod apply_chat_template;
mod chatml;
mod family;
mod family_promises;
mod family_wire;
mod from_text;
mod ledger;
mod ledger_stored;
mod lossy;
mod markers;
mod opaque;
mod renderer;
mod renderer_growth;
mod renderer_hostile;
mod renderer_markers;
mod training_sample;
