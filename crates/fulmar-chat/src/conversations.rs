//! Steps of many conversations in one call: a call of JavaScript costs as much as the step of a short answer.

use std::sync::Arc;

use fulmar_core::{Error, ErrorKind};

use crate::history::packed::Records;
use crate::{
    Bridge, Conversation, History, Message, Renderer, Result, Sampled, Tools, VersionRange, Versions,
};

/// The parts of a step, which run in this order; a step stops at the first that fails.
const RECORD: u32 = 1;
const PARSE: u32 = 2;
const EXTEND: u32 = 4;

/// Open conversations of one renderer, by key.
///
/// A step is words: its parts as bits (1 records the completion in the ledger, 2 parses it, 4 extends the prompt), the key of
/// its conversation, the number of tokens of the completion, and these. If it records, there follow the numbers of
/// log-probabilities of both kinds, which are taken from `floats`, 1 plus the number of versions, and these; or 0, the oldest
/// and the newest version. If it extends, it has records of `packed`, as [`History::from_packed`] reads them or one `j` with a JSON
/// list after it, and an empty record.
///
/// # Examples
/// ```
/// use fulmar_chat::{Conversations, Message, RendererConfig, Tools, create_renderer};
/// use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions, Tokenizer};
/// let tokenizer = std::sync::Arc::new(CharTokenizer::new(CharTokenizerOptions::default())?);
/// let mut conversations = Conversations::new(create_renderer(tokenizer.clone(), &RendererConfig::Chatml {})?.into());
/// let key = conversations.open(Tools::NONE)?;
/// conversations.get(key)?.start(&[Message::new("user", "1+1?")?])?;
/// let token = tokenizer.encode("2")?.ids[0];
/// let answers = conversations.run(&[6, key, 1, token], &[], "u2+2?\0\0", 2)?;
/// assert_eq!((&answers.text[..], &answers.words[..3]), ("02", &[6, 2, 0][..]));
/// # Ok::<(), fulmar_core::Error>(())
/// ```
pub struct Conversations {
    renderer: Arc<dyn Renderer>,
    slots: Vec<Option<Conversation>>,
    free: Vec<u32>,
}

/// The answers of steps.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Answers {
    /// For each step the parts that were done. Then, if it was parsed, the number of UTF-16 units of its part of `text`. Then, if it was
    /// extended, 0 and the words of [`Extension::to_words`](crate::Extension::to_words), or 1 plus the index of the refusal in
    /// [`BridgeRefusal::ALL`](crate::BridgeRefusal::ALL).
    pub words: Vec<u32>,
    /// The texts of [`Parsed::to_text`](crate::Parsed::to_text), one after another.
    pub text: String,
}

impl Conversations {
    /// Returns no conversations of `renderer`.
    #[must_use]
    pub const fn new(renderer: Arc<dyn Renderer>) -> Self {
        Self { renderer, slots: Vec::new(), free: Vec::new() }
    }

    /// Opens a conversation without tokens, whose messages may call `tools`, and returns its key.
    ///
    /// # Errors
    /// `LimitExceeded` past 2^32 open conversations.
    pub fn open(&mut self, tools: Tools) -> Result<u32> {
        let conversation = Some(Conversation::new(Arc::clone(&self.renderer), tools));
        if let Some(key) = self.free.pop() {
            self.slots[key as usize] = conversation;
            return Ok(key);
        }
        let key = u32::try_from(self.slots.len()).map_err(|_| {
            Error::new(
                ErrorKind::LimitExceeded,
                "at most 4,294,967,296 conversations must be open at once: got one more",
            )
        })?;
        self.slots.push(conversation);
        Ok(key)
    }

    /// Returns an open conversation.
    ///
    /// # Errors
    /// `Closed` for another key.
    pub fn get(&mut self, key: u32) -> Result<&mut Conversation> {
        let conversation = self.slots.get_mut(key as usize).and_then(Option::as_mut);
        conversation.ok_or_else(|| {
            Error::new(ErrorKind::Closed, format!("conversation must be open: got the closed {key}"))
        })
    }

    /// Closes a conversation. Another key does nothing; this one may be that of a later conversation.
    pub fn close(&mut self, key: u32) {
        if self.slots.get_mut(key as usize).and_then(Option::take).is_some() {
            self.free.push(key);
        }
    }

    /// Runs steps, in order. A step that fails ends at that part, which changes nothing; other steps run. The error of a single
    /// step whose first part fails is returned: run a failed part again alone for its error.
    ///
    /// # Errors
    /// `Malformed` if the steps do not have the form above, of which none has run then. Of a single step whose first part
    /// fails: the errors of [`Conversation::record`], [`Conversation::parse`] and [`Conversation::extend`]; `Closed` for a
    /// conversation that is not open.
    pub fn run(
        &mut self,
        steps: &[u32],
        floats: &[f32],
        packed: &str,
        num_records: usize,
    ) -> Result<Answers> {
        let steps = read_steps(steps, floats, Records::of_steps(packed, num_records)?)?;
        let mut answers = Answers::default();
        for step in &steps {
            let at = answers.words.len();
            answers.words.push(0);
            let result = self.get(step.key).and_then(|conversation| step.run(conversation, &mut answers, at));
            if steps.len() == 1 && answers.words[at] == 0 {
                result?;
            }
        }
        Ok(answers)
    }
}

/// One step, read.
struct Step<'a> {
    parts: u32,
    key: u32,
    completion: &'a [u32],
    sampled: Option<Sampled<'a>>,
    messages: Option<Records<'a>>,
}

impl Step<'_> {
    /// Runs the parts; `answers.words[at]` gets those that were done.
    fn run(&self, conversation: &mut Conversation, answers: &mut Answers, at: usize) -> Result<()> {
        if let Some(sampled) = &self.sampled {
            conversation.record(sampled)?;
            answers.words[at] |= RECORD;
        }
        if self.parts & PARSE != 0 {
            let num_units = conversation.parse(self.completion)?.append_text(&mut answers.text);
            answers.words.push(num_units);
            answers.words[at] |= PARSE;
        }
        if let Some(records) = &self.messages {
            match conversation.extend(self.completion, &read_messages(records.clone())?)? {
                Bridge::Extended(extension) => {
                    answers.words.push(0);
                    extension.append_words(&mut answers.words);
                }
                Bridge::Declined(refusal) => answers.words.push(1 + u32::from(refusal.code())),
            }
            answers.words[at] |= EXTEND;
        }
        Ok(())
    }
}

fn read_messages(mut records: Records<'_>) -> Result<Vec<Message>> {
    match records.as_json() {
        Some(json) => Ok(History::from_json(json)?.chat()?.to_vec()),
        None => records.messages(),
    }
}

fn read_steps<'a>(words: &'a [u32], floats: &'a [f32], mut records: Records<'a>) -> Result<Vec<Step<'a>>> {
    let (mut words, mut floats) = (Run { what: "words", rest: words }, Run { what: "floats", rest: floats });
    let mut steps = Vec::new();
    while !words.rest.is_empty() {
        let (parts, key, num_ids) = (words.one()?, words.one()?, words.one()?);
        let completion = words.take(num_ids)?;
        let sampled = (parts & RECORD != 0).then(|| read_sampled(completion, &mut words, &mut floats));
        let messages = (parts & EXTEND != 0).then(|| records.group());
        steps.push(Step {
            parts,
            key,
            completion,
            sampled: sampled.transpose()?,
            messages: messages.transpose()?,
        });
    }
    if !floats.rest.is_empty() || !records.is_empty() {
        return Err(misfit("floats or records of no step"));
    }
    Ok(steps)
}

fn read_sampled<'a>(
    ids: &'a [u32],
    words: &mut Run<'a, u32>,
    floats: &mut Run<'a, f32>,
) -> Result<Sampled<'a>> {
    let (num_log_probs, num_sampled) = (words.one()?, words.one()?);
    let versions = match words.one()? {
        0 => Versions::Within(VersionRange { min: words.one()?, max: words.one()? }),
        num_versions => Versions::Each(words.take(num_versions - 1)?),
    };
    let (log_probs, sampled_log_probs) = (floats.take(num_log_probs)?, floats.take(num_sampled)?);
    Ok(Sampled { ids, log_probs, sampled_log_probs, versions })
}

/// Numbers that are not read yet.
struct Run<'a, T> {
    what: &'static str,
    rest: &'a [T],
}

impl<'a, T: Copy> Run<'a, T> {
    fn one(&mut self) -> Result<T> {
        Ok(self.take(1)?[0])
    }

    fn take(&mut self, count: u32) -> Result<&'a [T]> {
        let parts = self.rest.split_at_checked(count as usize);
        let (taken, rest) = parts.ok_or_else(|| misfit(&format!("fewer {}", self.what)))?;
        self.rest = rest;
        Ok(taken)
    }
}

fn misfit(got: &str) -> Error {
    Error::new(ErrorKind::Malformed, format!("steps must be whole: got {got}"))
}

#[cfg(test)]
mod tests {
    use fulmar_tokenizer::{CharTokenizer, CharTokenizerOptions};

    use super::*;
    use crate::{BridgeRefusal, ChatMlRenderer, Ledger};

    const QUESTION: &str = "uHi\0\0";

    fn conversations(count: usize) -> Conversations {
        let tokenizer = Arc::new(CharTokenizer::new(CharTokenizerOptions::default()).unwrap());
        let mut all = Conversations::new(Arc::new(ChatMlRenderer::new(tokenizer).unwrap()));
        for _ in 0..count {
            let key = all.open(Tools::NONE).unwrap();
            all.get(key).unwrap().start(&[Message::new("user", "Hi").unwrap()]).unwrap();
        }
        all
    }

    /// A whole step of conversation `key`, whose completion is `ids`.
    fn step(key: u32, ids: &[u32], versions: &[u32]) -> Vec<u32> {
        let count = ids.len() as u32;
        [&[7, key, count], ids, &[count, count], versions].concat()
    }

    #[test]
    fn steps_of_many_are_the_steps_one_by_one() {
        let mut all = conversations(2);
        let steps = [step(1, &[4, 5], &[3, 7, 8]), step(0, &[6], &[0, 2, 9])].concat();
        let floats = [-1.0, -2.0, -3.0, -4.0, -5.0, -6.0];
        let packed = "j[{\"role\":\"user\",\"content\":\"a\"}]\0\0uHo\0\0";
        let answers = all.run(&steps, &floats, packed, 4).unwrap();

        let mut alone = conversations(2);
        let mut expected = Answers::default();
        let sampled = [
            (1, &[4, 5][..], Versions::Each(&[7, 8]), [&floats[..2], &floats[2..4]], "a"),
            (
                0,
                &[6][..],
                Versions::Within(VersionRange { min: 2, max: 9 }),
                [&floats[4..5], &floats[5..]],
                "Ho",
            ),
        ];
        for (key, ids, versions, [log_probs, sampled_log_probs], content) in sampled {
            let conversation = alone.get(key).unwrap();
            conversation.record(&Sampled { ids, log_probs, sampled_log_probs, versions }).unwrap();
            let message = Message::new("user", content).unwrap();
            let (parsed, bridge) = conversation.turn(ids, &[message]).unwrap();
            let Bridge::Extended(extension) = bridge else { unreachable!("nothing to refuse here") };
            let num_units = parsed.append_text(&mut expected.text);
            expected.words.extend([7, num_units, 0]);
            extension.append_words(&mut expected.words);
        }
        assert_eq!(answers, expected);
        for key in [0, 1] {
            let (ours, theirs) = (all.get(key).unwrap(), alone.get(key).unwrap());
            assert_eq!(ours.ids(), theirs.ids());
            assert_eq!(ours.take_ledger(), theirs.take_ledger());
            assert_eq!(ours.ledger(), &Ledger::default());
        }
    }

    #[test]
    fn a_step_that_fails_ends_there_and_others_run() {
        let mut all = conversations(2);
        let unknown = 1 << 30;
        let words = [&step(0, &[unknown], &[0, 1, 1])[..], &[6, 1, 1, 4]].concat();
        let answers = all.run(&words, &[0.0, 0.0], "ua\0\0ub\0\0", 4).unwrap();
        assert_eq!(answers.words[..4], [RECORD, PARSE | EXTEND, 2, 0]);
        assert_eq!(
            (all.get(0).unwrap().ledger().num_turns(), all.get(1).unwrap().ledger().num_turns()),
            (1, 0)
        );
        let ids = all.get(1).unwrap().ids().to_vec();
        for (words, packed, kind) in [
            (&[2, 1, 1, unknown][..], "", ErrorKind::OutOfRange),
            (&[4, 1, 0], "{}\0\0", ErrorKind::Malformed),
            (&[4, 1, 0], "{\"role\":\"\"}\0\0", ErrorKind::Empty),
            (&[2, 9, 0], "", ErrorKind::Closed),
        ] {
            let num_records = packed.matches('\0').count();
            assert_eq!(all.run(words, &[], packed, num_records).unwrap_err().kind(), kind, "{packed:?}");
        }
        let refused = all.run(&[4, 1, 0], &[], "aYes\0\0", 2).unwrap();
        let code = BridgeRefusal::AssistantInExtension.code();
        assert_eq!(refused.words, [EXTEND, 1 + u32::from(code)]);
        assert_eq!(all.get(1).unwrap().ids(), ids);
    }

    #[test]
    fn steps_that_are_not_whole_are_refused_before_one_runs() {
        let words = [step(0, &[4, 5], &[3, 7, 8]), step(0, &[6], &[0, 2, 9])].concat();
        let (floats, packed) = ([-1.0; 6], "ua\0\0uHo\0\0");
        let mut all = conversations(1);
        let before = all.get(0).unwrap().ids().to_vec();
        let refuses = |all: &mut Conversations, words: &[u32], floats: &[f32], packed: &str, count: usize| {
            let error = all.run(words, floats, packed, count).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::Malformed, "{words:?} {packed:?} {count}");
            assert_eq!(all.get(0).unwrap().ids(), before);
            assert_eq!(all.get(0).unwrap().ledger().num_turns(), 0);
        };
        for end in 0..words.len() {
            refuses(&mut all, &words[..end], &floats, packed, 4);
        }
        refuses(&mut all, &words, &floats[1..], packed, 4);
        refuses(&mut all, &words, &[-1.0; 7], packed, 4);
        for (packed, count) in [
            ("ua\0\0uHo\0\0", 3),
            ("ua\0\0uHo\0", 3),
            ("ua\0\0uHo\0\0u", 4),
            ("ua\0b\0\0uHo\0\0", 4),
            ("", 0),
        ] {
            refuses(&mut all, &words, &floats, packed, count);
        }
        assert_eq!(all.run(&words, &floats, packed, 4).unwrap().words[0], 7);
        assert_eq!(all.run(&[], &[], "", 0).unwrap(), Answers::default());
    }

    #[test]
    fn a_closed_conversation_is_gone_and_its_key_is_given_again() {
        let mut all = conversations(3);
        all.close(1);
        all.close(1);
        all.close(7);
        assert_eq!(all.get(1).err().map(|error| error.kind()), Some(ErrorKind::Closed));
        assert_eq!((all.open(Tools::NONE).unwrap(), all.open(Tools::NONE).unwrap()), (1, 3));
        assert!(all.get(1).unwrap().ids().is_empty());
        assert_eq!(all.run(&[4, 1, 0], &[], QUESTION, 2).unwrap().words, [EXTEND, 1]);
    }
}
