//! Token data sets: texts as ids of one length, records of them, batches, and rollouts over prompts.

mod dataloader;
mod fields;
mod infinite_iterator;
mod llm_data;
mod pairwise_dataset;
mod prompt_data;
mod prompt_tensor_dict_tokenizer;
mod reward_data;
mod rollout_from_model;
mod rollout_steps;
mod tensor_dict_tokenizer;
mod text_lines;
mod tokenized_dataset_loader;

pub use dataloader::{Dataloader, DataloaderOptions};
pub use infinite_iterator::create_infinite_iterator;
pub use llm_data::{LlmData, LlmInput, LlmOutput};
pub use pairwise_dataset::{PairwiseDataset, pre_tokenization_hook};
pub use prompt_data::PromptData;
pub use prompt_tensor_dict_tokenizer::PromptTensorDictTokenizer;
pub use reward_data::RewardData;
pub use rollout_from_model::{DrawnAnswer, GeneratedRows, RolloutDraw, RolloutFromModel, RolloutOptions};
pub use tensor_dict_tokenizer::TensorDictTokenizer;
pub use text_lines::{TEXT_LINE_BYTES_MAX, TextRow, read_text_lines};
pub use tokenized_dataset_loader::{TextMapper, TokenizedDatasetLoader, TokenizedDatasetOptions};
