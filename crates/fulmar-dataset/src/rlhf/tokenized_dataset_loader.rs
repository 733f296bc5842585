//! Data sets of texts as ids of one length, tokenised once.

use std::fs;
use std::io::BufReader;
use std::path::{Path, PathBuf};

use fulmar_core::{Error, ErrorKind, Result, open_regular};
use fulmar_tensor::{TensorDict, memmap};
use fulmar_tokenizer::Tokenizer;

use super::pairwise_dataset::pre_tokenization_hook;
use super::prompt_tensor_dict_tokenizer::PromptTensorDictTokenizer;
use super::tensor_dict_tokenizer::{TensorDictTokenizer, named_id};
use super::text_lines::{TextRow, read_text_lines, text_at};
use crate::rows_folder::RowsFolder;

/// Rows that are tokenised at once.
const CHUNK_ROWS: usize = 1024;

/// Fewest words of a summary of a pair.
const SUMMARY_WORDS_MIN: usize = 5;

/// The columns that become ids.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextMapper {
    /// The column `text`, see [`TensorDictTokenizer`].
    Text,
    /// The columns `prompt` and `label`, see [`PromptTensorDictTokenizer`].
    Prompt,
    /// The columns `prompt`, `chosen` and `rejected`: the preferred texts of all rows, then the others, see [`pre_tokenization_hook`] and
    /// [`crate::PairwiseDataset::from_texts`].
    Pair,
}

/// Options of [`TokenizedDatasetLoader`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TokenizedDatasetOptions {
    /// Ids of a row, from 1: longer texts are cut, shorter ones padded with the end. 550 by default.
    pub max_length: usize,
    /// The id that ends a text; that of the tokenizer's `eos_token` by default.
    pub end_id: Option<u32>,
    /// Most rows that are read; all by default.
    pub num_rows_max: Option<usize>,
    /// True: texts that are longer than a row are left out; not for [`TextMapper::Pair`]. False by default.
    pub drop_truncated: bool,
}

impl Default for TokenizedDatasetOptions {
    fn default() -> Self {
        Self { max_length: 550, end_id: None, num_rows_max: None, drop_truncated: false }
    }
}

/// Tokenises JSON lines once, to a folder of `input_ids` and `attention_mask`, `i64` `[N, max_length]`, and of `prompt_rindex`, `i64` `[N]`, for
/// prompts. TorchRL opens the folder. The file is read a part at a time.
///
/// # Examples
/// ```
/// use fulmar_dataset::{PromptData, TextMapper, TokenizedDatasetLoader, TokenizedDatasetOptions};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};
/// let root = std::env::temp_dir().join(format!("fulmar-doc-tokens-{}", std::process::id()));
/// std::fs::create_dir_all(&root)?;
/// let source = root.join("train.jsonl");
/// std::fs::write(&source, "{\"prompt\": \"1+1=\", \"label\": \"2\"}\n")?;
///
/// let tokenizer = CharTokenizer::new(CharTokenizerOptions::default())?;
/// let options = TokenizedDatasetOptions { max_length: 8, end_id: Some(0), ..Default::default() };
/// let loader = TokenizedDatasetLoader::new(&tokenizer, TextMapper::Prompt, options)?;
/// let rows = loader.load(&source, root.join("ids"))?; // a later load opens the folder
/// assert_eq!(PromptData::from_dict(&rows)?.prompt_rindex.to_vec::<i64>()?, [3]);
/// # std::fs::remove_dir_all(root)?;
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Clone, Copy)]
pub struct TokenizedDatasetLoader<'a> {
    texts: TensorDictTokenizer<'a>,
    prompts: PromptTensorDictTokenizer<'a>,
    mapper: TextMapper,
    options: TokenizedDatasetOptions,
}

impl<'a> TokenizedDatasetLoader<'a> {
    /// Makes a loader.
    ///
    /// # Errors
    /// `OutOfRange` as in [`TensorDictTokenizer::new`], or for no rows; `Incompatible` without an id for the end, or for `drop_truncated` with
    /// pairs, whose halves belong together.
    pub fn new(
        tokenizer: &'a dyn Tokenizer,
        mapper: TextMapper,
        options: TokenizedDatasetOptions,
    ) -> Result<Self> {
        let end_id = options.end_id.map_or_else(|| named_id(tokenizer, "end_id", "eos_token"), Ok)?;
        if options.drop_truncated && mapper == TextMapper::Pair {
            let detail = "drop_truncated must be false for pairs, whose halves belong together: got true";
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        if options.num_rows_max == Some(0) {
            return Err(Error::new(ErrorKind::OutOfRange, "num_rows_max must be at least 1: got 0"));
        }
        let texts = TensorDictTokenizer::new(tokenizer, options.max_length, Some(end_id))?;
        let prompts =
            PromptTensorDictTokenizer::new(tokenizer, options.max_length, Some(end_id), Some(end_id))?;
        Ok(Self { texts, prompts, mapper, options })
    }

    /// Opens the ids in `folder`; tokenises the JSON lines at `source` to it unless it is there. The folder must be one of this loader's mapper and
    /// options, and no other process may make it meanwhile. A process that is killed leaves `FOLDER.incomplete`, which the next load
    /// replaces.
    ///
    /// # Errors
    /// With the file, the errors of [`read_text_lines`], `Malformed` for a column without a text, and `Empty` if no row is left; `ShapeMismatch`
    /// for ids of another length in `folder`; those of the tokenizer; `Io`.
    pub fn load(&self, source: impl AsRef<Path>, folder: impl AsRef<Path>) -> Result<TensorDict> {
        let folder = folder.as_ref();
        if !folder.join("meta.json").is_file() {
            self.convert(source.as_ref(), folder)?;
        }
        let rows = memmap::load(folder)?;
        let width = rows.tensor("input_ids")?.shape().get(1).copied();
        if width == Some(self.options.max_length) {
            return Ok(rows);
        }
        let (wanted, got) = (self.options.max_length, width.unwrap_or(0));
        let detail = format!("{} must have rows of {wanted} ids: got {got}", folder.display());
        Err(Error::new(ErrorKind::ShapeMismatch, detail))
    }

    fn convert(&self, source: &Path, folder: &Path) -> Result<()> {
        let staged = beside(folder);
        if staged.exists() {
            fs::remove_dir_all(&staged)?;
        }
        if let Some(parent) = folder.parent() {
            fs::create_dir_all(parent)?;
        }
        RowsFolder::fill(&staged, |rows| {
            self.append_all(source, rows).map_err(|error| error.at(source.display()))
        })?;
        fs::rename(&staged, folder)?;
        Ok(())
    }

    fn append_all(&self, source: &Path, rows: &mut RowsFolder) -> Result<()> {
        let sides: &[&str] = if self.mapper == TextMapper::Pair { &["chosen", "rejected"] } else { &[""] };
        for side in sides {
            let (file, _) = open_regular(source)?;
            let num_rows_max = self.options.num_rows_max.unwrap_or(usize::MAX);
            let mut lines = read_text_lines(BufReader::new(file)).take(num_rows_max);
            for start in (0_usize..).step_by(CHUNK_ROWS) {
                let part = lines.by_ref().take(CHUNK_ROWS).collect::<Result<Vec<_>>>()?;
                if part.is_empty() {
                    break;
                }
                let ids = self.ids_of(&part, side).map_err(|error| error.at(format!("rows from {start}")))?;
                rows.append(&ids)?;
            }
        }
        Ok(())
    }

    fn ids_of(&self, rows: &[TextRow], side: &str) -> Result<TensorDict> {
        match self.mapper {
            TextMapper::Pair => self.texts.apply(&pre_tokenization_hook(rows, side, SUMMARY_WORDS_MIN)?),
            TextMapper::Text => {
                let texts = column(rows, "text")?;
                let are_long = self.are_left_out(&texts, || self.texts.are_long(&texts))?;
                self.texts.apply(&without(&texts, &are_long))
            }
            TextMapper::Prompt => {
                let (prompts, labels) = (column(rows, "prompt")?, column(rows, "label")?);
                let are_long = self.are_left_out(&prompts, || self.prompts.are_long(&prompts, &labels))?;
                let mut dict =
                    self.prompts.apply(&without(&prompts, &are_long), &without(&labels, &are_long))?;
                dict.remove("valid_sample")?;
                Ok(dict)
            }
        }
    }

    fn are_left_out(&self, texts: &[&str], are_long: impl Fn() -> Result<Vec<bool>>) -> Result<Vec<bool>> {
        if self.options.drop_truncated { are_long() } else { Ok(vec![false; texts.len()]) }
    }
}

/// Returns the folder that the ids are in until they are whole.
fn beside(folder: &Path) -> PathBuf {
    let mut name = folder.as_os_str().to_owned();
    name.push(".incomplete");
    PathBuf::from(name)
}

fn column<'a>(rows: &'a [TextRow], name: &str) -> Result<Vec<&'a str>> {
    let text = |(at, row)| text_at(row, name).map_err(|error| error.at(format!("row {at}")));
    rows.iter().enumerate().map(text).collect()
}

fn without<'a>(texts: &[&'a str], are_left_out: &[bool]) -> Vec<&'a str> {
    texts.iter().zip(are_left_out).filter(|(_, left_out)| !**left_out).map(|(text, _)| *text).collect()
}
