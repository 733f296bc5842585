//! One file a family of models: how it frames messages, tools and reasoning, and how it reads what it wrote.

mod chatml;

pub use chatml::ChatMlRenderer;
