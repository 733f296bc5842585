//! Messages as JSON, and text that may be a rendered conversation.

use fulmar::chat::{History, TextFormat, from_text};
use fulmar::template::TemplateRegistry;

const FORMATS: [TextFormat; 6] = [
    TextFormat::Chatml,
    TextFormat::DialoGpt,
    TextFormat::Falcon,
    TextFormat::DeepSeek,
    TextFormat::Llama4,
    TextFormat::Llama3,
];

/// Reads, writes, reads again; renders with every family and every built-in template.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Ok(history) = History::from_json(&text) {
        check(&history);
    }
    for format in FORMATS {
        for eos_token in [None, Some("</s>")] {
            if let Ok(history) = from_text(&text, format, eos_token) {
                check(&history);
            }
        }
    }
}

fn check(history: &History) {
    let json = history.to_json();
    assert_eq!(History::from_json(&json).as_ref(), Ok(history), "what is written is read: {json}");
    assert_eq!(history.padded().unpadded(), *history, "padding comes off again");
    let Ok(chat) = history.chat() else { return };
    for renderer in super::renderer::families() {
        super::renderer::check_render(renderer.as_ref(), chat);
    }
    let input = format!("{{\"messages\":{json},\"now\":\"2026-01-02T03:04:05\"}}");
    for name in TemplateRegistry::builtin().names() {
        if let Ok(rendered) =
            TemplateRegistry::builtin().get(name).and_then(|template| template.render_json(&input))
        {
            assert!(rendered.assistant_spans.iter().flatten().all(|[start, end]| start <= end));
        }
    }
}
