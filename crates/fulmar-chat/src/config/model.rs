//! The family of a model by its exact name: fine-tunes and later versions often have another template.

use super::RendererConfig;
use crate::{
    DeepseekR1Options, DeepseekV3Options, Glm45Options, GptOssOptions, Llama3Options, MinimaxM2Options,
    Qwen3Options, Qwen35Options, Qwen36Options,
};

/// Models of one configuration.
type Models = (&'static [&'static str], fn() -> RendererConfig);

/// Names of models and the configuration of those whose stock template the family reproduces.
const MODELS: &[Models] = &[
    (
        &[
            "Qwen/Qwen2.5-0.5B-Instruct",
            "Qwen/Qwen2.5-1.5B-Instruct",
            "Qwen/Qwen2.5-3B-Instruct",
            "Qwen/Qwen2.5-7B-Instruct",
            "Qwen/Qwen2.5-14B-Instruct",
            "Qwen/Qwen2.5-32B-Instruct",
            "Qwen/Qwen2.5-72B-Instruct",
        ],
        || RendererConfig::Qwen25 {},
    ),
    (
        &[
            "Qwen/Qwen3-0.6B",
            "Qwen/Qwen3-1.7B",
            "Qwen/Qwen3-4B",
            "Qwen/Qwen3-8B",
            "Qwen/Qwen3-14B",
            "Qwen/Qwen3-32B",
            "Qwen/Qwen3-30B-A3B",
            "Qwen/Qwen3-235B-A22B",
        ],
        || RendererConfig::Qwen3(Qwen3Options::default()),
    ),
    (&["Qwen/Qwen3.5-0.8B", "Qwen/Qwen3.5-2B"], || {
        RendererConfig::Qwen35(Qwen35Options { enable_thinking: false, ..Qwen35Options::default() })
    }),
    (
        &[
            "Qwen/Qwen3.5-4B",
            "Qwen/Qwen3.5-9B",
            "Qwen/Qwen3.5-35B-A3B",
            "Qwen/Qwen3.5-122B-A10B",
            "Qwen/Qwen3.5-397B-A17B",
        ],
        || RendererConfig::Qwen35(Qwen35Options::default()),
    ),
    (&["Qwen/Qwen3.6-35B-A3B"], || RendererConfig::Qwen36(Qwen36Options::default())),
    (&["meta-llama/Meta-Llama-3-8B-Instruct", "meta-llama/Meta-Llama-3-70B-Instruct"], || {
        RendererConfig::Llama3(Llama3Options { system_block: false, ..Llama3Options::default() })
    }),
    (
        &[
            "meta-llama/Llama-3.1-8B-Instruct",
            "meta-llama/Llama-3.1-70B-Instruct",
            "meta-llama/Llama-3.1-405B-Instruct",
            "meta-llama/Llama-3.2-1B-Instruct",
            "meta-llama/Llama-3.2-3B-Instruct",
        ],
        || RendererConfig::Llama3(Llama3Options::default()),
    ),
    (&["deepseek-ai/DeepSeek-V3"], || RendererConfig::DeepseekV3(DeepseekV3Options::default())),
    (
        &[
            "deepseek-ai/DeepSeek-R1",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-1.5B",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-7B",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-14B",
            "deepseek-ai/DeepSeek-R1-Distill-Qwen-32B",
            "deepseek-ai/DeepSeek-R1-Distill-Llama-8B",
            "deepseek-ai/DeepSeek-R1-Distill-Llama-70B",
        ],
        || RendererConfig::DeepseekR1(DeepseekR1Options::default()),
    ),
    (&["zai-org/GLM-4.5", "zai-org/GLM-4.5-Air", "THUDM/GLM-4.5-Air"], || {
        RendererConfig::Glm45(Glm45Options::default())
    }),
    (&["openai/gpt-oss-20b", "openai/gpt-oss-120b"], || RendererConfig::GptOss(GptOssOptions::default())),
    (&["moonshotai/Kimi-K2-Instruct"], || RendererConfig::KimiK2 {}),
    (&["MiniMaxAI/MiniMax-M2"], || RendererConfig::MinimaxM2(MinimaxM2Options::default())),
];

/// Returns the configurations that known models have, each once.
pub(super) fn configs() -> impl Iterator<Item = RendererConfig> {
    MODELS.iter().map(|(_, config)| config())
}

impl RendererConfig {
    /// Returns the configuration of the model called `name` on its hub; `None` for a name that is not exactly
    /// a known one.
    ///
    /// # Examples
    /// ```
    /// use fulmar_chat::{Qwen3Options, RendererConfig};
    /// let known = RendererConfig::of_model("Qwen/Qwen3-8B");
    /// assert_eq!(known, Some(RendererConfig::Qwen3(Qwen3Options::default())));
    /// assert_eq!(RendererConfig::of_model("ada/Qwen3-8B-tuned"), None);
    /// ```
    #[must_use]
    pub fn of_model(name: &str) -> Option<Self> {
        MODELS.iter().find(|(names, _)| names.contains(&name)).map(|(_, config)| config())
    }

    /// Returns the names of all known models.
    pub(crate) fn model_names() -> impl Iterator<Item = &'static str> {
        MODELS.iter().flat_map(|(names, _)| names.iter().copied())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_named_once_and_none_is_opaque() {
        let mut names: Vec<&str> = RendererConfig::model_names().collect();
        for name in &names {
            let config = RendererConfig::of_model(name).unwrap();
            assert!(!["opaque", "auto"].contains(&config.name()), "{name}");
        }
        let num_names = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), num_names);
    }
}
