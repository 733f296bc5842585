//! Prompts and answers of language models, as records: the names of TorchRL's old documentation. B rows.

use fulmar_core::{Dtype, Error, ErrorKind, Result};
use fulmar_tensor::{Entry, NonTensor, Tensor, TensorDict};
use serde_json::Value;

use super::fields::{check_dtype, check_names, dict_of, optional};

/// Prompts as ids, their mask, and texts.
///
/// # Examples
/// ```
/// use fulmar_dataset::LlmInput;
/// use fulmar_tensor::{Ragged, Tensor};
/// let tokens = Ragged::from_rows(&[Tensor::from_vec(&[2], vec![5_i64, 6])?, Tensor::from_vec(&[1], vec![7_i64])?])?;
/// let input = LlmInput {
///     tokens: Some(tokens.into()),
///     text: Some(vec!["ab".to_owned(), "c".to_owned()]),
///     ..Default::default()
/// };
/// let dict = input.to_dict()?;
/// assert_eq!(dict.batch_size(), [2]);
/// assert_eq!(LlmInput::from_dict(&dict)?, input);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmInput {
    /// Ids of the prompts, `i64`: ragged rows, or `[B, L]`.
    pub tokens: Option<Entry>,
    /// True where `tokens` are no padding, `bool`.
    pub attention_mask: Option<Entry>,
    /// Texts of the prompts, `[B]`.
    pub text: Option<Vec<String>>,
}

/// Answers as ids, log-probabilities, logits and texts, with the ids of their prompts.
///
/// # Examples
/// ```
/// use fulmar_dataset::LlmOutput;
/// use fulmar_tensor::Tensor;
/// let output = LlmOutput {
///     tokens_response: Some(Tensor::from_vec(&[1, 2], vec![5_i64, 6])?.into()),
///     log_probs: Some(Tensor::from_vec(&[1, 2], vec![-1.0_f32, -2.0])?.into()),
///     ..Default::default()
/// };
/// assert_eq!(LlmOutput::from_dict(&output.to_dict()?)?, output);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmOutput {
    /// Ids of the prompts, `i64`.
    pub tokens: Option<Entry>,
    /// Ids of the answers, `i64`: ragged rows, or `[B, R]`.
    pub tokens_response: Option<Entry>,
    /// Log-probabilities of the answers, `f32`, one for each of `tokens_response`.
    pub log_probs: Option<Entry>,
    /// Logits of the answers, `f32` `[B, R, V]`.
    pub logits: Option<Tensor>,
    /// Texts of the answers, `[B]`.
    pub text_response: Option<Vec<String>>,
}

/// Prompts with their answers: the fields of [`LlmInput`] and [`LlmOutput`].
///
/// # Examples
/// ```
/// use fulmar_dataset::{LlmData, LlmInput, LlmOutput};
/// let input = LlmInput { text: Some(vec!["1+1=".to_owned()]), ..Default::default() };
/// let output = LlmOutput { text_response: Some(vec!["2".to_owned()]), ..Default::default() };
/// let data = LlmData::from_parts(input.clone(), output);
/// assert_eq!(data.to_input(), input);
/// assert_eq!(data.to_output().text_response.as_deref(), Some(&["2".to_owned()][..]));
/// assert_eq!(LlmData::from_dict(&data.to_dict()?)?, data);
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LlmData {
    /// Ids of the prompts, `i64`: ragged rows, or `[B, L]`.
    pub tokens: Option<Entry>,
    /// True where `tokens` are no padding, `bool`.
    pub attention_mask: Option<Entry>,
    /// Texts of the prompts, `[B]`.
    pub text: Option<Vec<String>>,
    /// Ids of the answers, `i64`: ragged rows, or `[B, R]`.
    pub tokens_response: Option<Entry>,
    /// Log-probabilities of the answers, `f32`, one for each of `tokens_response`.
    pub log_probs: Option<Entry>,
    /// Logits of the answers, `f32` `[B, R, V]`.
    pub logits: Option<Tensor>,
    /// Texts of the answers, `[B]`.
    pub text_response: Option<Vec<String>>,
}

const INPUT: [&str; 3] = ["tokens", "attention_mask", "text"];
const OUTPUT: [&str; 5] = ["tokens", "tokens_response", "log_probs", "logits", "text_response"];
const DATA: [&str; 7] =
    ["tokens", "attention_mask", "text", "tokens_response", "log_probs", "logits", "text_response"];

impl LlmInput {
    /// Reads a dictionary with these fields as keys.
    ///
    /// # Errors
    /// `UnknownName` for another key; `Incompatible` for another dtype or other than texts; `ShapeMismatch` if the lengths of tokens and mask
    /// differ.
    pub fn from_dict(dict: &TensorDict) -> Result<Self> {
        check_names(dict, &INPUT)?;
        Ok(LlmData::of(dict)?.to_input())
    }

    /// Returns the fields that there are, in a dictionary of the batch size `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if a field has another number of rows; those of [`LlmInput::from_dict`].
    pub fn to_dict(&self) -> Result<TensorDict> {
        LlmData::from_parts(self.clone(), LlmOutput::default()).to_dict()
    }
}

impl LlmOutput {
    /// Reads a dictionary with these fields as keys.
    ///
    /// # Errors
    /// `UnknownName` for another key; `Incompatible` for another dtype or other than texts; `ShapeMismatch` if the lengths of tokens and
    /// log-probabilities differ.
    pub fn from_dict(dict: &TensorDict) -> Result<Self> {
        check_names(dict, &OUTPUT)?;
        Ok(LlmData::of(dict)?.to_output())
    }

    /// Returns the fields that there are, in a dictionary of the batch size `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if a field has another number of rows; those of [`LlmOutput::from_dict`].
    pub fn to_dict(&self) -> Result<TensorDict> {
        LlmData::from_parts(LlmInput::default(), self.clone()).to_dict()
    }
}

impl LlmData {
    /// Joins prompts and answers; the ids of the prompts are those of `input` if it has some.
    #[must_use]
    pub fn from_parts(input: LlmInput, output: LlmOutput) -> Self {
        Self {
            tokens: input.tokens.or(output.tokens),
            attention_mask: input.attention_mask,
            text: input.text,
            tokens_response: output.tokens_response,
            log_probs: output.log_probs,
            logits: output.logits,
            text_response: output.text_response,
        }
    }

    /// Returns the prompts alone.
    #[must_use]
    pub fn to_input(&self) -> LlmInput {
        LlmInput {
            tokens: self.tokens.clone(),
            attention_mask: self.attention_mask.clone(),
            text: self.text.clone(),
        }
    }

    /// Returns the answers alone, with the ids of their prompts.
    #[must_use]
    pub fn to_output(&self) -> LlmOutput {
        LlmOutput {
            tokens: self.tokens.clone(),
            tokens_response: self.tokens_response.clone(),
            log_probs: self.log_probs.clone(),
            logits: self.logits.clone(),
            text_response: self.text_response.clone(),
        }
    }

    /// Reads a dictionary with these fields as keys.
    ///
    /// # Errors
    /// The errors of [`LlmInput::from_dict`] and [`LlmOutput::from_dict`].
    pub fn from_dict(dict: &TensorDict) -> Result<Self> {
        check_names(dict, &DATA)?;
        Self::of(dict)
    }

    /// Returns the fields that there are, in a dictionary of the batch size `[B]`.
    ///
    /// # Errors
    /// `ShapeMismatch` if a field has another number of rows; those of [`LlmData::from_dict`].
    pub fn to_dict(&self) -> Result<TensorDict> {
        self.check()?;
        let rows = [&self.tokens, &self.attention_mask, &self.tokens_response, &self.log_probs];
        let lens = rows.iter().filter_map(|rows| rows.as_ref()).map(num_rows);
        let texts = [&self.text, &self.text_response].into_iter().flatten().map(Vec::len);
        let logits = self.logits.iter().map(|logits| logits.shape()[0]);
        let num_rows = lens.chain(texts).chain(logits).next().unwrap_or(0);
        let text = |texts: &Option<Vec<String>>| texts.as_ref().map(|texts| stack_of(texts)).transpose();
        dict_of(
            &[num_rows],
            [
                ("tokens", self.tokens.clone()),
                ("attention_mask", self.attention_mask.clone()),
                ("text", text(&self.text)?),
                ("tokens_response", self.tokens_response.clone()),
                ("log_probs", self.log_probs.clone()),
                ("logits", self.logits.clone().map(Into::into)),
                ("text_response", text(&self.text_response)?),
            ],
        )
    }

    fn of(dict: &TensorDict) -> Result<Self> {
        let text = |name: &str| dict.get(name).map(|entry| texts_of(name, entry)).transpose();
        let data = Self {
            tokens: dict.get("tokens").cloned(),
            attention_mask: dict.get("attention_mask").cloned(),
            text: text("text")?,
            tokens_response: dict.get("tokens_response").cloned(),
            log_probs: dict.get("log_probs").cloned(),
            logits: optional(dict, "logits", Dtype::F32)?,
            text_response: text("text_response")?,
        };
        data.check()?;
        Ok(data)
    }

    fn check(&self) -> Result<()> {
        let tokens = lengths("tokens", self.tokens.as_ref(), Dtype::I64)?;
        let mask = lengths("attention_mask", self.attention_mask.as_ref(), Dtype::Bool)?;
        let response = lengths("tokens_response", self.tokens_response.as_ref(), Dtype::I64)?;
        let log_probs = lengths("log_probs", self.log_probs.as_ref(), Dtype::F32)?;
        check_alike("attention_mask", mask.as_deref(), tokens.as_deref())?;
        check_alike("log_probs", log_probs.as_deref(), response.as_deref())?;
        match &self.logits {
            Some(logits) if logits.rank() != 3 => {
                let detail = format!("logits must be of [B, R, V]: got {:?}", logits.shape());
                Err(Error::new(ErrorKind::ShapeMismatch, detail))
            }
            Some(logits) => check_dtype("logits", logits, Dtype::F32),
            None => Ok(()),
        }
    }
}

/// Returns the number of values of each row.
fn lengths(name: &str, rows: Option<&Entry>, dtype: Dtype) -> Result<Option<Vec<usize>>> {
    match rows {
        None => Ok(None),
        Some(Entry::Tensor(rows)) if rows.rank() == 2 => {
            check_dtype(name, rows, dtype)?;
            Ok(Some(vec![rows.shape()[1]; rows.shape()[0]]))
        }
        Some(Entry::Ragged(rows)) if rows.values().rank() == 1 => {
            check_dtype(name, rows.values(), dtype)?;
            Ok(Some(rows.offsets().windows(2).map(|ends| (ends[1] - ends[0]) as usize).collect()))
        }
        Some(other) => {
            let detail =
                format!("{name} must be ragged rows, or of [B, L]: got an entry of kind {}", other.kind());
            Err(Error::new(ErrorKind::Incompatible, detail))
        }
    }
}

/// Refuses rows of other lengths than the tokens that they belong to.
fn check_alike(name: &str, rows: Option<&[usize]>, tokens: Option<&[usize]>) -> Result<()> {
    let (Some(rows), Some(tokens)) = (rows, tokens) else { return Ok(()) };
    match rows.iter().zip(tokens).position(|(got, wanted)| got != wanted) {
        None => Ok(()),
        Some(at) => {
            let detail = format!(
                "{name} must have {} values for its tokens in row {at}: got {}",
                tokens[at], rows[at]
            );
            Err(Error::new(ErrorKind::ShapeMismatch, detail))
        }
    }
}

fn num_rows(rows: &Entry) -> usize {
    match rows {
        Entry::Tensor(rows) => rows.shape().first().copied().unwrap_or(0),
        Entry::Ragged(rows) => rows.num_rows(),
        Entry::NonTensor(_) | Entry::Dict(_) => 0,
    }
}

fn stack_of(texts: &[String]) -> Result<Entry> {
    let values = texts.iter().map(|text| Value::from(text.as_str())).collect();
    Ok(Entry::NonTensor(NonTensor::each(&[texts.len()], values)?))
}

fn texts_of(name: &str, entry: &Entry) -> Result<Vec<String>> {
    let values = match entry {
        Entry::NonTensor(values) => values.to_json(),
        _ => Value::Null,
    };
    let texts = values.as_array().map(|values| values.iter().map(|value| value.as_str().map(str::to_owned)));
    texts.and_then(Iterator::collect).ok_or_else(|| {
        let detail = format!("{name} must be a text for each row: got an entry of kind {}", entry.kind());
        Error::new(ErrorKind::Incompatible, detail)
    })
}
