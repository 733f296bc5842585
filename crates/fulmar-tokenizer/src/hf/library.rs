//! Files of every family, through the crate `tokenizers`.

use std::any::Any;

use fulmar_core::{Error, ErrorKind, limits};
use serde_json::{Map, Value};
use tokenizers::normalizer::Range;
use tokenizers::{
    Decoder as _, DecoderWrapper, Model as _, ModelWrapper, NormalizedString, Normalizer as _,
    NormalizerWrapper, OffsetType, PostProcessor as _, PostProcessorWrapper, PreTokenizedString,
    PreTokenizer as _, PreTokenizerWrapper, Token,
};

use super::added::Finder;
use super::charsmap::check_charsmap;
use super::{json_of, part};
use crate::{Encoding, Result};

type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The parts of a file, in the crate's types.
pub struct Library {
    steps: Vec<Step>,
    pre_tokenizer: Option<PreTokenizerWrapper>,
    model: ModelWrapper,
    post_processor: Option<PostProcessorWrapper>,
    /// None joins tokens by spaces.
    decoder: Option<DecoderWrapper>,
}

/// A normaliser, and the largest factor by which it lengthens a text.
struct Step {
    normalizer: NormalizerWrapper,
    growth: f64,
}

/// The search for added tokens, and the ids that the model itself must not return.
#[derive(Clone, Copy)]
pub struct Rules<'a> {
    /// Finders for the original and the normalised text; `None` treats added tokens as text.
    pub finders: Option<[&'a Finder; 2]>,
    /// Returns whether text must not become an id.
    pub is_forbidden: &'a dyn Fn(u32) -> bool,
}

impl Library {
    /// Takes the parts from `file`.
    pub fn new(file: &mut Value) -> Result<Self> {
        let decoder = decoder_of(file)?;
        let mut model = file.get_mut("model").map(Value::take).unwrap_or_default();
        check_model(&model)?;
        if let Some(model) = model.as_object_mut() {
            // Dropout of merges is for training.
            model.remove("dropout");
            read_scores_as_the_crate_does(model);
        }
        let mut steps = Vec::new();
        for step in flat("normalizer", part(file, "normalizer"), "normalizers")? {
            let growth = growth(&step)?;
            steps.push(Step { normalizer: json_of("normalizer", step)?, growth });
        }
        Ok(Self {
            steps,
            pre_tokenizer: json_of("pre_tokenizer", part(file, "pre_tokenizer"))?,
            model: json_of("model", model)?,
            post_processor: json_of("post_processor", part(file, "post_processor"))?,
            decoder,
        })
    }

    /// Returns `text` after normalisation.
    pub fn normalized(&self, text: &str) -> Result<String> {
        let mut normalized = NormalizedString::from(text);
        self.normalize(&mut normalized)?;
        Ok(normalized.get().to_owned())
    }

    /// Appends the ids of `text`, with ranges in bytes.
    pub fn encode_into(&self, text: &str, rules: Rules<'_>, encoding: &mut Encoding) -> Result<()> {
        let mut pieces = PreTokenizedString::from(text);
        if let Some([raw, _]) = rules.finders.filter(|[raw, _]| !raw.is_empty()) {
            pieces.split(|_, piece| Ok(cut(&piece, raw))).map_err(failure)?;
        }
        let cut_normal = |mut piece: NormalizedString| -> Outcome<_> {
            self.normalize(&mut piece)?;
            Ok(match rules.finders {
                Some([_, normal]) if !normal.is_empty() => cut(&piece, normal),
                _ => vec![(piece, None)],
            })
        };
        pieces.split(|_, piece| cut_normal(piece)).map_err(failure)?;
        if let Some(pre_tokenizer) = &self.pre_tokenizer {
            pre_tokenizer.pre_tokenize(&mut pieces).map_err(failure)?;
        }
        pieces.tokenize(|piece| Ok(self.tokens(piece, rules.is_forbidden)?)).map_err(failure)?;
        // Ranges in characters, as spaces are trimmed from a range by characters, not bytes.
        let mut encoded = pieces.into_encoding(None, 0, OffsetType::Char).map_err(failure)?;
        if let Some(post_processor) = &self.post_processor {
            encoded = post_processor.process(encoded, None, false).map_err(failure)?;
        }
        encoding.ids.extend_from_slice(encoded.get_ids());
        append_byte_ranges(text, encoded.get_offsets(), &mut encoding.offsets);
        Ok(())
    }

    /// The text of tokens.
    pub fn decode(&self, names: Vec<String>) -> Result<String> {
        let Some(decoder) = &self.decoder else { return Ok(names.join(" ")) };
        decoder.decode(names).map_err(|error| {
            Error::new(ErrorKind::Corrupt, format!("decoder must be able to write every token: got {error}"))
                .because(error)
        })
    }

    fn normalize(&self, text: &mut NormalizedString) -> Result<()> {
        for Step { normalizer, growth } in &self.steps {
            check_growth(text.len(), *growth)?;
            normalizer.normalize(text).map_err(failure)?;
        }
        Ok(())
    }

    /// Returns the model's tokens of `piece`. A forbidden token is split, so that its text is spelled.
    fn tokens(&self, piece: &NormalizedString, is_forbidden: &dyn Fn(u32) -> bool) -> Result<Vec<Token>> {
        let mut tokens = Vec::new();
        let mut parts = vec![(0, piece.get())];
        while let Some((base, part)) = parts.pop() {
            let found = self.model.tokenize(part).map_err(|error| {
                let place = piece.offsets_original().0;
                let detail = format!("text must be in the vocabulary: got {error} at byte {place}");
                Error::new(ErrorKind::UnknownText, detail).because(error)
            })?;
            let mut cuts = Vec::new();
            for token in found.iter().filter(|token| is_forbidden(token.id)) {
                let spelled = part.get(token.offsets.0..token.offsets.1).unwrap_or_default();
                let Some((index, _)) = spelled.char_indices().nth(1) else {
                    return Err(unspeakable(&token.value, piece.offsets_original().0));
                };
                cuts.push(token.offsets.0 + index);
            }
            if cuts.is_empty() {
                tokens.extend(found.into_iter().map(|token| {
                    let (start, end) = token.offsets;
                    Token { offsets: (base + start, base + end), ..token }
                }));
            }
            let mut end = part.len();
            for &cut in cuts.iter().rev() {
                parts.push((base + cut, &part[cut..end]));
                end = cut;
            }
            if !cuts.is_empty() {
                parts.push((base, &part[..end]));
            }
        }
        Ok(tokens)
    }
}

/// Returns the decoder of a file; `None` joins tokens by spaces.
///
/// # Errors
/// `Malformed` if the crate cannot read it; `LimitExceeded` if it could make text arbitrarily long.
fn decoder_of(file: &mut Value) -> Result<Option<DecoderWrapper>> {
    let decoder = part(file, "decoder");
    flat("decoder", decoder.clone(), "decoders")?;
    json_of("decoder", decoder)
}

/// Runs `body`, in which the crate may panic for an inconsistent file.
pub fn caught<T>(body: impl FnOnce() -> Result<T>) -> Result<T> {
    let panicked = |payload: Box<dyn Any + Send>| {
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("a panic");
        let text: String = text.chars().take(200).collect();
        Err(Error::new(ErrorKind::Corrupt, format!("tokenizer.json must not contradict itself: got {text}")))
    };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).unwrap_or_else(panicked)
}

/// Returns the members of a sequence at `key`, flattened; errors call it `name`.
fn flat(name: &str, value: Value, key: &str) -> Result<Vec<Value>> {
    let mut members = Vec::new();
    let mut waiting = vec![value];
    while let Some(value) = waiting.pop() {
        match value {
            Value::Null => {}
            Value::Object(mut sequence) if sequence.get(key).is_some_and(Value::is_array) => {
                if let Some(Value::Array(inner)) = sequence.remove(key) {
                    waiting.extend(inner.into_iter().rev());
                }
            }
            single => members.push(single),
        }
    }
    let (mut growth_of_all, max) = (1.0, limits::TOKENIZER_GROWTH_MAX);
    for member in &members {
        growth_of_all *= growth(member)?;
    }
    if growth_of_all > max as f64 {
        let detail = format!("{name} must make text at most {max} times longer: got {growth_of_all}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(members)
}

/// Returns the largest factor by which a normaliser or decoder lengthens a text, at least 1. Only those that
/// write text from the file count; the others have small bounds that do not multiply.
fn growth(step: &Value) -> Result<f64> {
    if let Some(charsmap) = step.get("precompiled_charsmap") {
        return check_charsmap(charsmap.as_str().unwrap_or_default());
    }
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::len);
    let added = text(step.get("prepend")).unwrap_or(0);
    let content = text(step.get("content")).unwrap_or(0);
    let pattern = step.get("pattern");
    let ratio = match text(pattern.and_then(|pattern| pattern.get("String"))) {
        Some(length @ 1..) => content as f64 / length as f64,
        // A regular expression may match the empty text before every byte.
        _ if pattern.is_some() => (content + 1) as f64,
        _ => 1.0,
    };
    Ok(ratio.max(1.0) + added as f64)
}

/// Refuses a step that may lengthen `num_bytes` bytes by `growth` past the limit.
fn check_growth(num_bytes: usize, growth: f64) -> Result<()> {
    let (longest, max) = (num_bytes as f64 * growth, limits::NORMALIZED_BYTES_MAX);
    if longest > max as f64 {
        let detail = format!("text must be at most {max} bytes when normalized: got up to {longest}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

/// Changes the scores of a Unigram model to the doubles that the crate parses from a file: the digits as an
/// integer, divided by a power of ten. Such a double may be adjacent to the nearest one, which decides
/// between splits of equal scores.
fn read_scores_as_the_crate_does(model: &mut Map<String, Value>) {
    if model.get("type").is_some_and(|kind| kind != "Unigram") {
        return;
    }
    for piece in model.get_mut("vocab").and_then(Value::as_array_mut).into_iter().flatten() {
        let Some(score) = piece.get_mut(1) else { continue };
        if let Some(read) = score.as_f64().and_then(digits_over_power_of_ten) {
            *score = read.into();
        }
    }
}

/// Returns the double that the shortest digits of `value` give with two roundings.
fn digits_over_power_of_ten(value: f64) -> Option<f64> {
    let text = format!("{:e}", value.abs());
    let (digits, exponent) = text.split_once('e')?;
    let num_decimals = digits.split_once('.').map_or(0, |(_, decimals)| decimals.len());
    let digits: u64 = digits.replace('.', "").parse().ok()?;
    let exponent = exponent.parse::<i32>().ok()? - num_decimals as i32;
    // Powers of ten are the nearest doubles.
    let power: f64 = format!("1e{}", exponent.abs()).parse().ok()?;
    let read = if exponent >= 0 { digits as f64 * power } else { digits as f64 / power };
    read.is_finite().then_some(read.copysign(value))
}

/// Refuses a model that the crate would split inside a character.
fn check_model(model: &Value) -> Result<()> {
    let Some(prefix) = model.get("continuing_subword_prefix").and_then(Value::as_str) else { return Ok(()) };
    for merge in model.get("merges").and_then(Value::as_array).into_iter().flatten() {
        let right = match merge {
            Value::String(pair) => pair.split(' ').nth(1),
            pair => pair.get(1).and_then(Value::as_str),
        };
        if let Some(right) = right.filter(|right| !right.is_char_boundary(prefix.len())) {
            let detail = format!("merges must join tokens that begin with {prefix:?}: got {right:?}");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
    }
    Ok(())
}

fn cut(piece: &NormalizedString, finder: &Finder) -> Vec<(NormalizedString, Option<Vec<Token>>)> {
    let stretches = finder.split(piece.get()).into_iter();
    let slices = stretches.filter_map(|stretch| {
        let slice = piece.slice(Range::Normalized(stretch.start..stretch.end))?;
        let token = stretch.id.map(|id| vec![Token::new(id, slice.get().to_owned(), (0, slice.get().len()))]);
        Some((slice, token))
    });
    slices.collect()
}

fn append_byte_ranges(text: &str, ranges: &[(usize, usize)], offsets: &mut Vec<[u32; 2]>) {
    if text.is_ascii() {
        offsets.extend(
            ranges.iter().map(|&(start, end)| [start, end].map(|index| index.min(text.len()) as u32)),
        );
    } else {
        let starts: Vec<u32> = text.char_indices().map(|(start, _)| start as u32).collect();
        let byte_of = |index: usize| starts.get(index).copied().unwrap_or(text.len() as u32);
        offsets.extend(ranges.iter().map(|&(start, end)| [byte_of(start), byte_of(end)]));
    }
}

fn unspeakable(token: &str, place: usize) -> Error {
    let detail = format!("text must not be a special token of one character: got {token:?} at byte {place}");
    Error::new(ErrorKind::UnknownText, detail)
}

/// Converts the crate's errors, which may wrap our own.
fn failure(error: Box<dyn std::error::Error + Send + Sync>) -> Error {
    match error.downcast::<Error>() {
        Ok(own) => *own,
        Err(error) => Error::new(ErrorKind::UnknownText, format!("text must be tokenizable: got {error}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn normalization_may_give_as_many_bytes_as_the_limit_and_no_more() {
        assert_eq!(check_growth(limits::NORMALIZED_BYTES_MAX / 4, 4.0), Ok(()));
        let error = check_growth(limits::NORMALIZED_BYTES_MAX / 4 + 1, 4.0).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::LimitExceeded);
    }
}
