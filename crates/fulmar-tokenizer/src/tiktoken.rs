//! Vocabularies in the `.tiktoken` format: a rank file, a pattern and named special tokens.

use std::collections::{BTreeMap, HashMap, HashSet};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use fulmar_core::{Error, ErrorKind, limits};
use serde::{Deserialize, Serialize};

use crate::byte_bpe::{ByteBpe, alphabet};
use crate::tokenizer::check_text_length;
use crate::{AddedTokens, Encoding, Result, Tokenizer};

const JSON_VERSION: u32 = 1;

/// A tokenizer whose ids are ranks: of neighbours that together spell a token, those with the lowest rank
/// merge first. Ids and decoded bytes equal those of the `tiktoken` package.
///
/// A token's name, in [`Tokenizer::id_of`] and [`Tokenizer::token_of`], is its text for special tokens. For
/// others it spells the token's bytes as byte-level vocabularies do: printable Latin-1 for itself, `Ġ` for a
/// space. Ids in gaps of the vocabulary have no name and do not decode. If one special token begins with
/// another's text, the longer one matches.
///
/// # Examples
/// ```
/// use fulmar_tokenizer::{TiktokenTokenizer, Tokenizer};
/// let mut ranks: String = (0..=255u8).map(|byte| format!("{} {byte}\n", base64(&[byte]))).collect();
/// ranks += "aGk= 256\nIGhp 257\n"; // "hi" and " hi"
/// let pattern = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";
/// let special = [("<|end|>".to_owned(), 258)];
/// let tokenizer = TiktokenTokenizer::new(ranks.as_bytes(), pattern, special)?;
/// assert_eq!(tokenizer.encode_added("hi hi<|end|>")?.ids, [256, 257, 258]);
/// assert_eq!(tokenizer.decode(&[256, 257, 258], false)?, "hi hi<|end|>");
/// assert_eq!(tokenizer.token_of(257).as_deref(), Some("Ġhi"));
/// # use base64::Engine;
/// # fn base64(bytes: &[u8]) -> String { base64::engine::general_purpose::STANDARD.encode(bytes) }
/// # Ok::<(), fulmar_core::Error>(())
/// ```
#[derive(Debug)]
pub struct TiktokenTokenizer {
    bpe: ByteBpe,
    pattern: String,
    special: SpecialTokens,
    vocab_size: usize,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct JsonForm {
    version: u32,
    kind: String,
    pattern: String,
    special_tokens: BTreeMap<String, u32>,
    ranks: String,
}

impl TiktokenTokenizer {
    /// Reads `ranks`, the content of a `.tiktoken` file: lines of a token's bytes in base64, a space and its
    /// id. `pattern` is the regular expression that splits text into pieces: exactly one of those of r50k,
    /// cl100k, o200k, Llama 3 and Qwen.
    ///
    /// # Errors
    /// `UnknownName` for another `pattern`; `Malformed` if a line does not have that form, a token, an id or
    /// a special token's name occurs twice or is empty, or one of the 256 bytes is missing; `LimitExceeded`
    /// if an id is not below [`limits::VOCAB_SIZE_MAX`] or a token is longer than
    /// [`limits::TOKEN_BYTES_MAX`].
    pub fn new(
        ranks: &[u8],
        pattern: &str,
        special_tokens: impl IntoIterator<Item = (String, u32)>,
    ) -> Result<Self> {
        let tokens = read_ranks(ranks)?;
        let bpe = ByteBpe::from_ranks(&tokens, pattern).ok_or_else(|| {
            let detail = format!("pattern must be that of a known encoding: got {pattern:?}");
            Error::new(ErrorKind::UnknownName, detail)
        })?;
        let special = SpecialTokens::new(special_tokens, &bpe)?;
        let last = tokens.iter().map(|(_, id)| id).chain(special.id_of.values()).max();
        let vocab_size = last.map_or(0, |&id| id as usize + 1);
        Ok(Self { bpe, pattern: pattern.to_owned(), special, vocab_size })
    }

    /// Reads the output of [`Tokenizer::to_json`].
    ///
    /// # Errors
    /// `Malformed` if `text` does not have that form; `Incompatible` for another version or kind; the errors
    /// of [`TiktokenTokenizer::new`].
    pub fn from_json(text: &str) -> Result<Self> {
        let form: JsonForm = serde_json::from_str(text).map_err(|error| {
            malformed(format!("tokenizer JSON must be valid: got {error}")).because(error)
        })?;
        if form.version != JSON_VERSION || form.kind != "tiktoken" {
            let detail = format!(
                "tokenizer JSON must be of kind \"tiktoken\", version {JSON_VERSION}: got kind {:?}, version {}",
                form.kind, form.version
            );
            return Err(Error::new(ErrorKind::Incompatible, detail));
        }
        Self::new(form.ranks.as_bytes(), &form.pattern, form.special_tokens)
    }

    /// Returns the bytes of a token, special or not.
    fn bytes_of(&self, id: u32) -> Option<&[u8]> {
        let special = self.special.name_of.get(&id).map(String::as_bytes);
        special.or_else(|| Some(self.bpe.decode_bytes(id)).filter(|bytes| !bytes.is_empty()))
    }
}

impl Tokenizer for TiktokenTokenizer {
    fn vocab_size(&self) -> usize {
        self.vocab_size
    }

    fn encode_into(&self, text: &str, added: AddedTokens, encoding: &mut Encoding) -> Result<()> {
        check_text_length(text.len())?;
        let mut start = 0;
        while start < text.len() {
            let found = if added == AddedTokens::AsIds { self.special.find(text, start) } else { None };
            let end = found.map_or(text.len(), |(first, _, _)| first);
            self.bpe.encode_into(&text[start..end], start, &mut encoding.ids, &mut encoding.offsets);
            start = end;
            if let Some((first, last, id)) = found {
                encoding.ids.push(id);
                encoding.offsets.push([first as u32, last as u32]);
                start = last;
            }
        }
        Ok(())
    }

    fn decode(&self, ids: &[u32], skip_special: bool) -> Result<String> {
        let mut bytes = Vec::new();
        for (position, &id) in ids.iter().enumerate() {
            let token = self.bytes_of(id).ok_or_else(|| {
                let detail = format!("ids[{position}] must be a token of the vocabulary: got {id}");
                Error::new(ErrorKind::OutOfRange, detail)
            })?;
            if !(skip_special && self.is_special(id)) {
                bytes.extend_from_slice(token);
            }
        }
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn id_of(&self, token: &str) -> Option<u32> {
        let special = self.special.id_of.get(token).copied();
        special.or_else(|| self.bpe.id_of_bytes(&alphabet::bytes_of(token)?))
    }

    fn token_of(&self, id: u32) -> Option<String> {
        let special = self.special.name_of.get(&id).cloned();
        special.or_else(|| self.bytes_of(id).map(alphabet::text_of))
    }

    fn is_special(&self, id: u32) -> bool {
        self.special.name_of.contains_key(&id)
    }

    /// Returns the JSON form: `{"version":1,"kind":"tiktoken","pattern":"...","specialTokens":{...},"ranks":"..."}`.
    fn to_json(&self) -> String {
        let ids = (0..self.vocab_size as u32).map(|id| (id, self.bpe.decode_bytes(id)));
        let lines = ids.filter(|(_, bytes)| !bytes.is_empty());
        let form = JsonForm {
            version: JSON_VERSION,
            kind: "tiktoken".to_owned(),
            pattern: self.pattern.clone(),
            special_tokens: self.special.id_of.clone(),
            ranks: lines.map(|(id, bytes)| format!("{} {id}\n", STANDARD.encode(bytes))).collect(),
        };
        serde_json::json!(form).to_string()
    }
}

/// Tokens with names, which no merge makes.
#[derive(Debug, Default)]
struct SpecialTokens {
    id_of: BTreeMap<String, u32>,
    name_of: HashMap<u32, String>,
    /// The distinct lengths of the names in bytes, the longest first.
    lengths: Vec<usize>,
}

impl SpecialTokens {
    fn new(tokens: impl IntoIterator<Item = (String, u32)>, bpe: &ByteBpe) -> Result<Self> {
        let mut special = Self::default();
        for (name, id) in tokens {
            check_id(id.into()).map_err(|error| error.at(format!("special_tokens[{name:?}]")))?;
            let spelled = alphabet::bytes_of(&name).and_then(|bytes| bpe.id_of_bytes(&bytes));
            let is_held = special.id_of.contains_key(&name) || special.name_of.contains_key(&id);
            if name.is_empty() || is_held || spelled.is_some() || !bpe.decode_bytes(id).is_empty() {
                let rule = "special_tokens must have names and ids of their own";
                return Err(malformed(format!("{rule}: got {name:?} with id {id}")));
            }
            special.lengths.push(name.len());
            special.name_of.insert(id, name.clone());
            special.id_of.insert(name, id);
        }
        special.lengths.sort_unstable_by(|left, right| right.cmp(left));
        special.lengths.dedup();
        Ok(special)
    }

    /// Returns start, end and id of the first special token in `text[start..]`, the longest at that position.
    fn find(&self, text: &str, start: usize) -> Option<(usize, usize, u32)> {
        let mut first_bytes = [false; 256];
        self.id_of.keys().for_each(|name| first_bytes[usize::from(name.as_bytes()[0])] = true);
        let candidates =
            text.bytes().enumerate().skip(start).filter(|(_, byte)| first_bytes[usize::from(*byte)]);
        candidates.map(|(position, _)| position).find_map(|position| {
            self.lengths.iter().find_map(|length| {
                let id = self.id_of.get(text.get(position..position + length)?)?;
                Some((position, position + length, *id))
            })
        })
    }
}

/// Returns the tokens of a rank file with their ids.
fn read_ranks(ranks: &[u8]) -> Result<Vec<(Vec<u8>, u32)>> {
    let text = std::str::from_utf8(ranks)
        .map_err(|error| malformed(format!("ranks must be UTF-8: got {error}")).because(error))?;
    let mut tokens = Vec::new();
    let mut seen = (HashSet::new(), HashSet::new());
    for (index, line) in text.lines().enumerate().filter(|(_, line)| !line.is_empty()) {
        let place = || format!("ranks, line {}", index + 1);
        let (token, id) = read_line(line).map_err(|error| error.at(place()))?;
        if !seen.0.insert(token.clone()) || !seen.1.insert(id) {
            let detail = format!("must hold a token and an id that are new: got {line:.80}");
            return Err(malformed(detail).at(place()));
        }
        tokens.push((token, id));
    }
    match (0..=255u8).find(|&byte| !seen.0.contains([byte].as_slice())) {
        Some(byte) => {
            Err(malformed(format!("ranks must hold each of the 256 bytes, but {byte:#04x} is missing")))
        }
        None => Ok(tokens),
    }
}

fn read_line(line: &str) -> Result<(Vec<u8>, u32)> {
    let read = line.split_once(' ').and_then(|(token, id)| {
        Some((
            STANDARD.decode(token).ok().filter(|token| !token.is_empty())?,
            id.trim_end().parse::<u64>().ok()?,
        ))
    });
    let (token, id) = read
        .ok_or_else(|| malformed(format!("must be a token in base64, a space and its id: got {line:.80}")))?;
    if token.len() > limits::TOKEN_BYTES_MAX {
        let max = limits::TOKEN_BYTES_MAX;
        let detail = format!("must hold a token of at most {max} bytes: got {}", token.len());
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok((token, check_id(id)?))
}

fn check_id(id: u64) -> Result<u32> {
    if id >= limits::VOCAB_SIZE_MAX as u64 {
        let detail = format!("must have an id below {}: got {id}", limits::VOCAB_SIZE_MAX);
        return Err(Error::new(ErrorKind::LimitExceeded, detail));
    }
    Ok(id as u32)
}

fn malformed(detail: String) -> Error {
    Error::new(ErrorKind::Malformed, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    const R50K: &str = r"'(?:[sdmt]|ll|ve|re)| ?\p{L}++| ?\p{N}++| ?[^\s\p{L}\p{N}]++|\s++$|\s+(?!\S)|\s";

    fn ranks(more: &[(&[u8], u32)]) -> String {
        let bytes = (0..=255u8).map(|byte| format!("{} {byte}\n", STANDARD.encode([byte])));
        bytes.chain(more.iter().map(|(token, id)| format!("{} {id}\n", STANDARD.encode(token)))).collect()
    }

    fn make(more: &[(&[u8], u32)], special: &[(&str, u32)]) -> Result<TiktokenTokenizer> {
        let special = special.iter().map(|&(name, id)| (name.to_owned(), id));
        TiktokenTokenizer::new(ranks(more).as_bytes(), R50K, special)
    }

    /// Merges by the package's rule: of all neighbours, those that spell the token of the lowest rank.
    fn naive(piece: &[u8], tokens: &HashMap<&[u8], u32>) -> Vec<u32> {
        if let Some(&id) = tokens.get(piece) {
            return vec![id];
        }
        let mut cuts: Vec<usize> = (0..=piece.len()).collect();
        let rank = |cuts: &[usize]| tokens.get(&piece[cuts[0]..cuts[2]]).copied().unwrap_or(u32::MAX);
        while let Some(index) = (0..cuts.len().saturating_sub(2)).min_by_key(|&index| rank(&cuts[index..])) {
            if rank(&cuts[index..]) == u32::MAX {
                break;
            }
            cuts.remove(index + 1);
        }
        cuts.windows(2).map(|cut| tokens[&piece[cut[0]..cut[1]]]).collect()
    }

    #[test]
    fn the_common_suite_passes() {
        let tokenizer = make(&[(b"ab", 256), (b" ab", 257)], &[("<s>", 258), ("<s>>", 259)]).unwrap();
        crate::check_tokenizer(&tokenizer, &["", "ab ab", "<s>", "猫 🐈\r\n"]);
    }

    #[test]
    fn merges_are_those_of_the_definition() {
        // Ranks that are not ordered by length, tokens that no merge reaches, one token by two merges.
        let more: [(&[u8], u32); 9] = [
            (b"aaa", 256),
            (b"aa", 300),
            (b"ab", 257),
            (b"aab", 258),
            (b"abab", 259),
            (b"bb", 290),
            (b"bba", 280),
            (b"abcabc", 299),
            (b"\xc3\xa9a", 298),
        ];
        let text_of_ranks = ranks(&more);
        let tokens = read_ranks(text_of_ranks.as_bytes()).unwrap();
        let table: HashMap<&[u8], u32> = tokens.iter().map(|(bytes, id)| (bytes.as_slice(), *id)).collect();
        let tokenizer = make(&more, &[]).unwrap();
        let mut word = 7u32;
        for length in 1..200 {
            let text: String = (0..length % 70 + 1)
                .map(|_| {
                    word = word.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    ['a', 'a', 'a', 'b', 'b', 'c', 'é'][(word >> 16) as usize % 7]
                })
                .collect();
            assert_eq!(tokenizer.encode(&text).unwrap().ids, naive(text.as_bytes(), &table), "{text}");
        }
    }

    #[test]
    fn special_tokens_are_ids_where_that_is_asked_for_and_the_longest_wins() {
        let tokenizer = make(&[], &[("<s>", 256), ("<s>>", 300)]).unwrap();
        let encoding = tokenizer.encode_added("é<s<s>><s>").unwrap();
        assert_eq!(encoding.ids, [0xC3, 0xA9, 60, 115, 300, 256]);
        assert_eq!(encoding.offsets, [[0, 2], [0, 2], [2, 3], [3, 4], [4, 8], [8, 11]]);
        assert_eq!(tokenizer.encode("<s>").unwrap().ids, [60, 115, 62]);
        assert_eq!(tokenizer.decode(&[300, 65], true).unwrap(), "A");
        assert_eq!(tokenizer.vocab_size(), 301);
        assert_eq!(tokenizer.token_of(270), None);
        assert_eq!(tokenizer.decode(&[65, 270], true).unwrap_err().kind(), ErrorKind::OutOfRange);
    }

    #[test]
    fn json_goes_out_and_in() {
        let tokenizer = make(&[(b"ab", 256)], &[("<s>", 300)]).unwrap();
        let text = tokenizer.to_json();
        let again = TiktokenTokenizer::from_json(&text).unwrap();
        assert_eq!(again.to_json(), text);
        assert_eq!(again.encode_added("ab<s>").unwrap(), tokenizer.encode_added("ab<s>").unwrap());
        let kind = |text: &str| TiktokenTokenizer::from_json(text).unwrap_err().kind();
        assert_eq!(kind("{}"), ErrorKind::Malformed);
        assert_eq!(kind(&text.replace("\"version\":1", "\"version\":2")), ErrorKind::Incompatible);
        assert_eq!(kind(&text.replace("\"tiktoken\"", "\"char\"")), ErrorKind::Incompatible);
    }

    #[test]
    fn rank_files_are_checked_line_by_line() {
        let error = |text: &str| TiktokenTokenizer::new(text.as_bytes(), R50K, []).unwrap_err().to_string();
        let form = "must be a token in base64, a space and its id: got";
        assert_eq!(error("QQ== 0\n\nQg=="), format!("ranks, line 3: {form} Qg=="));
        assert_eq!(error("Q 0"), format!("ranks, line 1: {form} Q 0"));
        assert_eq!(error(" 0"), format!("ranks, line 1: {form}  0"));
        assert_eq!(error("QQ== -1"), format!("ranks, line 1: {form} QQ== -1"));
        let new = "must hold a token and an id that are new: got";
        assert_eq!(error("QQ== 0\nQQ== 1"), format!("ranks, line 2: {new} QQ== 1"));
        assert_eq!(error("QQ== 0\nQg== 0"), format!("ranks, line 2: {new} Qg== 0"));
        assert_eq!(error("QQ== 0"), "ranks must hold each of the 256 bytes, but 0x00 is missing");
        let unknown = TiktokenTokenizer::new(ranks(&[]).as_bytes(), "[a-z]+", []).unwrap_err();
        assert_eq!(unknown.kind(), ErrorKind::UnknownName);
        assert!(TiktokenTokenizer::new(b"\xff", R50K, []).is_err());
    }

    #[test]
    fn special_tokens_have_names_and_ids_of_their_own() {
        let kind = |special: &[(&str, u32)]| make(&[(b"ab", 256)], special).unwrap_err().kind();
        assert_eq!(kind(&[("", 300)]), ErrorKind::Malformed);
        assert_eq!(kind(&[("ab", 300)]), ErrorKind::Malformed);
        assert_eq!(kind(&[("<s>", 256)]), ErrorKind::Malformed);
        assert_eq!(kind(&[("<s>", 300), ("<s>", 301)]), ErrorKind::Malformed);
        assert_eq!(kind(&[("<s>", 300), ("<t>", 300)]), ErrorKind::Malformed);
        assert_eq!(kind(&[("<s>", limits::VOCAB_SIZE_MAX as u32)]), ErrorKind::LimitExceeded);
        assert!(make(&[], &[("<s>", limits::VOCAB_SIZE_MAX as u32 - 1)]).is_ok());
    }

    #[test]
    fn tokens_and_ids_are_bounded() {
        let longest = vec![b'a'; limits::TOKEN_BYTES_MAX];
        assert!(make(&[(&longest, 256)], &[]).is_ok());
        let kind = |token: &[u8], id: u32| make(&[(token, id)], &[]).unwrap_err().kind();
        assert_eq!(kind(&[longest, vec![b'a']].concat(), 256), ErrorKind::LimitExceeded);
        assert_eq!(kind(b"ab", limits::VOCAB_SIZE_MAX as u32), ErrorKind::LimitExceeded);
    }
}
