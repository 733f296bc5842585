//! One id for each Unicode scalar of an explicit alphabet, plus named special tokens.
//!
//! Ids follow the order of the options: the alphabet from 0, then the special tokens. So its
//! [`CharTokenizerOptions`] fully describe a tokenizer, and its JSON form is these options with a version
//! number.

use std::collections::HashMap;

use fulmar_core::{Error, ErrorKind, limits};
use serde::{Deserialize, Serialize};

use crate::tokenizer::check_text_length;
use crate::{AddedTokens, Encoding, Result, Tokenizer};

const JSON_VERSION: u32 = 1;

/// Options of a [`CharTokenizer`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct CharTokenizerOptions {
    /// Every character that text may contain, each once, in order of id. Defaults to newline, then printable
    /// ASCII.
    pub alphabet: String,
    /// Names of the special tokens, whose ids follow the alphabet. Defaults to `<|endoftext|>`,
    /// `<|im_start|>`, `<|im_end|>`.
    pub special_tokens: Vec<String>,
}

impl Default for CharTokenizerOptions {
    fn default() -> Self {
        let alphabet = std::iter::once('\n').chain(' '..='~').collect();
        let special_tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"].map(str::to_owned).to_vec();
        Self { alphabet, special_tokens }
    }
}

/// A tokenizer whose tokens are single characters.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let options = CharTokenizerOptions { alphabet: "ab\n".to_owned(), special_tokens: vec!["<|end|>".to_owned()] };
/// let tokenizer = CharTokenizer::new(options)?;
/// assert_eq!(tokenizer.encode("ba")?.ids, [1, 0]);
/// assert_eq!(tokenizer.id_of("<|end|>"), Some(3));
/// assert_eq!(tokenizer.decode(&[1, 0, 3], false)?, "ba<|end|>");
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct CharTokenizer {
    options: CharTokenizerOptions,
    characters: Vec<char>,
    id_of_character: HashMap<char, u32>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonForm {
    version: u32,
    kind: String,
    alphabet: String,
    special_tokens: Vec<String>,
}

impl CharTokenizer {
    /// Returns the tokenizer over `options.alphabet` and `options.special_tokens`.
    ///
    /// # Errors
    /// `Empty` if the alphabet or a special token's name is empty; `Malformed` if a character or a name occurs
    /// twice, or a name is one character of the alphabet; `LimitExceeded` past [`limits::VOCAB_SIZE_MAX`] tokens.
    pub fn new(options: CharTokenizerOptions) -> Result<Self> {
        if options.alphabet.is_empty() {
            return Err(Error::new(
                ErrorKind::Empty,
                "alphabet must hold at least one character, but it is empty",
            ));
        }
        let characters: Vec<char> = options.alphabet.chars().collect();
        check_vocab_size(characters.len() + options.special_tokens.len())?;
        let id_of_character = number_characters(&characters)?;
        check_special_names(&options.special_tokens, &id_of_character)?;
        Ok(Self { options, characters, id_of_character })
    }

    /// Reads the output of [`CharTokenizer::to_json`].
    ///
    /// # Errors
    /// `Malformed` if `text` does not have that form; `Incompatible` for another version or kind; the errors
    /// of [`CharTokenizer::new`].
    pub fn from_json(text: &str) -> Result<Self> {
        let form: JsonForm = serde_json::from_str(text).map_err(|error| {
            Error::new(ErrorKind::Malformed, format!("tokenizer JSON must be valid: got {error}"))
                .because(error)
        })?;
        if form.version != JSON_VERSION || form.kind != "char" {
            let detail = format!(
                "tokenizer JSON must be of kind \"char\", version {JSON_VERSION}: got kind {:?}, version {}",
                form.kind, form.version
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Self::new(CharTokenizerOptions { alphabet: form.alphabet, special_tokens: form.special_tokens })
    }

    /// Returns the options of this tokenizer.
    #[must_use]
    pub const fn options(&self) -> &CharTokenizerOptions {
        &self.options
    }

    /// Returns the longest special token at the beginning of `text`, and its length in bytes.
    fn marker_at(&self, text: &str) -> Option<(u32, usize)> {
        let names = self.options.special_tokens.iter().enumerate();
        let (index, name) =
            names.filter(|(_, name)| text.starts_with(*name)).max_by_key(|(_, name)| name.len())?;
        Some(((self.characters.len() + index) as u32, name.len()))
    }

    fn special_token(&self, id: u32) -> Option<&str> {
        let index = (id as usize).checked_sub(self.characters.len())?;
        self.options.special_tokens.get(index).map(String::as_str)
    }
}

impl Tokenizer for CharTokenizer {
    fn vocab_size(&self) -> usize {
        self.characters.len() + self.options.special_tokens.len()
    }

    fn encode_into(&self, text: &str, added: AddedTokens, encoding: &mut Encoding) -> Result<()> {
        check_text_length(text.len())?;
        let num_held = encoding.ids.len();
        let mut start = 0;
        while let Some(character) = text[start..].chars().next() {
            let marker = if added == AddedTokens::AsIds { self.marker_at(&text[start..]) } else { None };
            let known = self.id_of_character.get(&character).map(|&id| (id, character.len_utf8()));
            let Some((id, num_bytes)) = marker.or(known) else {
                encoding.ids.truncate(num_held);
                encoding.offsets.truncate(num_held);
                return Err(unknown_character(character, start));
            };
            encoding.ids.push(id);
            encoding.offsets.push([start as u32, (start + num_bytes) as u32]);
            start += num_bytes;
        }
        Ok(())
    }

    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let mut text = String::with_capacity(ids.len());
        for (position, &id) in ids.iter().enumerate() {
            if let Some(character) = self.characters.get(id as usize) {
                text.push(*character);
            } else if let Some(name) = self.special_token(id) {
                text.push_str(if skip_special { "" } else { name });
            } else {
                let size = self.vocab_size();
                let detail = format!("ids[{position}] must be below the vocabulary size {size}: got {id}");
                return Err(Error::new(ErrorKind::OutOfRange, detail));
            }
        }
        Ok(text)
    }

    fn id_of(&self, token: &str) -> Option<u32> {
        let mut characters = token.chars();
        if let (Some(character), None) = (characters.next(), characters.next())
            && let Some(id) = self.id_of_character.get(&character)
        {
            return Some(*id);
        }
        let index = self.options.special_tokens.iter().position(|name| name == token)?;
        Some((self.characters.len() + index) as u32)
    }

    fn token_of(&self, id: u32) -> Option<String> {
        let character = self.characters.get(id as usize).map(char::to_string);
        character.or_else(|| self.special_token(id).map(str::to_owned))
    }

    fn is_special(&self, id: u32) -> bool {
        self.special_token(id).is_some()
    }

    /// Returns the JSON form: `{"version":1,"kind":"char","alphabet":"...","specialTokens":[...]}`.
    fn to_json(&self) -> String {
        let CharTokenizerOptions { alphabet, special_tokens } = &self.options;
        serde_json::json!({
            "version": JSON_VERSION, "kind": "char", "alphabet": alphabet, "specialTokens": special_tokens,
        })
        .to_string()
    }
}

fn check_vocab_size(num_tokens: usize) -> Result<()> {
    if num_tokens > limits::VOCAB_SIZE_MAX {
        let max = limits::VOCAB_SIZE_MAX;
        let detail = format!("alphabet and special_tokens must hold at most {max} tokens: got {num_tokens}");
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(())
}

fn number_characters(characters: &[char]) -> Result<HashMap<char, u32>> {
    let mut id_of_character = HashMap::with_capacity(characters.len());
    for (id, &character) in characters.iter().enumerate() {
        if id_of_character.insert(character, id as u32).is_some() {
            let detail = format!("alphabet must hold each character once: got {character:?} twice");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
    }
    Ok(id_of_character)
}

fn check_special_names(names: &[String], id_of_character: &HashMap<char, u32>) -> Result<()> {
    let mut seen = std::collections::HashSet::with_capacity(names.len());
    for (index, name) in names.iter().enumerate() {
        let mut characters = name.chars();
        let Some(first) = characters.next() else {
            let detail = format!("special_tokens[{index}] must be a name: got an empty one");
            return Err(Error::new(ErrorKind::Empty, detail));
        };
        if characters.next().is_none() && id_of_character.contains_key(&first) {
            let detail =
                format!("special_tokens[{index}] must not be a character of the alphabet: got {name:?}");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
        if !seen.insert(name) {
            let detail = format!("special_tokens must hold each name once: got {name:?} twice");
            return Err(Error::new(ErrorKind::Malformed, detail));
        }
    }
    Ok(())
}

fn unknown_character(character: char, position: usize) -> Error {
    let code = u32::from(character);
    let detail = format!(
        "text must use only characters of the alphabet: got {character:?} (U+{code:04X}) at byte {position}"
    );
    Error::new(ErrorKind::UnknownText, detail)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::check_tokenizer;

    fn make(alphabet: &str, special_tokens: &[&str]) -> Result<CharTokenizer> {
        let special_tokens = special_tokens.iter().map(|&name| name.to_owned()).collect();
        CharTokenizer::new(CharTokenizerOptions { alphabet: alphabet.to_owned(), special_tokens })
    }

    fn kind_of<T: std::fmt::Debug>(result: Result<T>) -> ErrorKind {
        result.unwrap_err().kind()
    }

    #[test]
    fn char_tokenizers_pass_the_common_suite() {
        let ascii = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        check_tokenizer(&ascii, &["", "Sum of digits: [24, 13]\n", "<|im_end|>", "~"]);
        check_tokenizer(&make("aé猫🐈\0", &["<s>", "é́"]).unwrap(), &["猫a🐈é", "\0", "éé"]);
        check_tokenizer(&make("x", &[]).unwrap(), &["xxx"]);
    }

    #[test]
    fn the_default_is_newline_and_printable_ascii_and_the_qwen2_special_tokens() {
        let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        assert_eq!(tokenizer.vocab_size(), 1 + 95 + 3);
        assert_eq!(tokenizer.encode("\n ~").unwrap().ids, [0, 1, 95]);
        assert_eq!(tokenizer.id_of("<|im_end|>"), Some(98));
        assert_eq!(tokenizer.token_of(98).as_deref(), Some("<|im_end|>"));
        assert_eq!(tokenizer.token_of(99), None);
    }

    #[test]
    fn markers_become_ids_only_where_that_is_asked_for() {
        let tokenizer = make("<s>ab", &["<s>", "<s>a"]).unwrap();
        assert_eq!(tokenizer.encode("b<s>").unwrap().ids, [4, 0, 1, 2]);
        let encoding = tokenizer.encode_added("b<s>b<s>a").unwrap();
        assert_eq!(encoding.ids, [4, 5, 4, 6], "the longest marker wins");
        assert_eq!(encoding.offsets, [[0, 1], [1, 4], [4, 5], [5, 9]]);
    }

    #[test]
    fn a_refused_text_leaves_the_encoding_as_it_was() {
        let tokenizer = make("ab", &[]).unwrap();
        let mut encoding = tokenizer.encode("ab").unwrap();
        let before = encoding.clone();
        assert!(tokenizer.encode_into("aX", AddedTokens::AsText, &mut encoding).is_err());
        assert_eq!(encoding, before);
        tokenizer.encode_into("b", AddedTokens::AsText, &mut encoding).unwrap();
        assert_eq!((encoding.ids, encoding.offsets[2]), (vec![0, 1, 1], [0, 1]));
    }

    #[test]
    fn offsets_are_bytes_of_the_utf8_text() {
        let encoding = make("aé猫🐈", &[]).unwrap().encode("🐈a猫é").unwrap();
        assert_eq!(encoding.offsets, [[0, 4], [4, 5], [5, 8], [8, 10]]);
    }

    #[test]
    fn unknown_text_names_the_character_and_its_byte() {
        let error = make("aé", &[]).unwrap().encode("éaB").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::UnknownText);
        assert_eq!(
            error.detail(),
            "text must use only characters of the alphabet: got 'B' (U+0042) at byte 3"
        );
        let ascii = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
        assert_eq!(kind_of(ascii.encode("nul \0")), ErrorKind::UnknownText);
    }

    #[test]
    fn a_text_past_the_limit_is_refused_before_it_is_encoded() {
        let tokenizer = make("x", &[]).unwrap();
        let text = "x".repeat(limits::MESSAGE_BYTES_MAX + 1);
        assert_eq!(kind_of(tokenizer.encode(&text)), ErrorKind::LimitExceeded);
    }

    #[test]
    fn vocabularies_are_bounded_and_free_of_duplicates() {
        assert_eq!(check_vocab_size(limits::VOCAB_SIZE_MAX), Ok(()));
        assert_eq!(kind_of(check_vocab_size(limits::VOCAB_SIZE_MAX + 1)), ErrorKind::LimitExceeded);
        assert_eq!(kind_of(make("", &[])), ErrorKind::Empty);
        assert_eq!(kind_of(make("aa", &[])), ErrorKind::Malformed);
        assert_eq!(kind_of(make("a", &["<s>", "<s>"])), ErrorKind::Malformed);
        assert_eq!(kind_of(make("a", &[""])), ErrorKind::Empty);
        assert_eq!(kind_of(make("a", &["a"])), ErrorKind::Malformed);
        assert!(make("a", &["b"]).is_ok(), "a one-character name outside the alphabet is unambiguous");
    }

    #[test]
    fn json_goes_out_and_in_and_other_json_is_refused() {
        let tokenizer = make("aé\"\\\n", &["<s>"]).unwrap();
        let json = tokenizer.to_json();
        assert_eq!(CharTokenizer::from_json(&json).unwrap().options(), tokenizer.options());
        assert_eq!(kind_of(CharTokenizer::from_json("{")), ErrorKind::Malformed);
        assert_eq!(kind_of(CharTokenizer::from_json("{}")), ErrorKind::Malformed);
        let newer = json.replace("\"version\":1", "\"version\":2");
        assert_eq!(kind_of(CharTokenizer::from_json(&newer)), ErrorKind::Incompatible);
        let other = json.replace("\"char\"", "\"bpe\"");
        assert_eq!(kind_of(CharTokenizer::from_json(&other)), ErrorKind::Incompatible);
    }

    proptest! {
        #[test]
        fn any_text_of_the_alphabet_comes_back(text in "[ -~\n]{0,200}") {
            let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
            let encoding = tokenizer.encode(&text).unwrap();
            prop_assert_eq!(encoding.ids.len(), text.chars().count());
            prop_assert_eq!(tokenizer.decode(&encoding.ids, true).unwrap(), text);
        }

        #[test]
        fn any_ids_of_the_vocabulary_decode(ids in prop::collection::vec(0_u32..99, 0..100)) {
            let tokenizer = CharTokenizer::new(CharTokenizerOptions::default()).unwrap();
            let with_names = tokenizer.decode(&ids, false).unwrap();
            let plain = tokenizer.decode(&ids, true).unwrap();
            let num_special = ids.iter().filter(|&&id| tokenizer.is_special(id)).count();
            prop_assert_eq!(plain.chars().count(), ids.len() - num_special);
            prop_assert_eq!(with_names == plain, num_special == 0);
        }
    }
}
