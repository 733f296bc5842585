//! The suite that every implementation of [`Tokenizer`] runs in its tests.

use fulmar_core::ErrorKind;

use crate::Tokenizer;

/// Checks the contract of [`Tokenizer`]. The tests of each implementation call this with texts that it can
/// encode.
///
/// # Panics
/// If the tokenizer breaks a rule of the trait; the message names it.
pub fn check_tokenizer(tokenizer: &dyn Tokenizer, texts: &[&str]) {
    check_names(tokenizer);
    check_decode(tokenizer);
    for text in texts {
        check_text(tokenizer, text);
    }
}

fn check_names(tokenizer: &dyn Tokenizer) {
    let size = tokenizer.vocab_size() as u32;
    for id in 0..size {
        let Some(token) = tokenizer.token_of(id) else {
            assert_eq!(tokenizer.decode(&[id], false).as_deref(), Ok(""), "the gap {id} is no text");
            assert!(!tokenizer.is_special(id), "the gap {id} is not special");
            continue;
        };
        assert_eq!(tokenizer.id_of(&token), Some(id), "the name {token:?} leads back to its id");
    }
    let last = size.checked_sub(1).map(|id| tokenizer.token_of(id));
    assert!(last != Some(None), "the vocabulary size is the largest id + 1");
    assert_eq!(tokenizer.token_of(size), None, "the vocabulary ends at its size");
    assert!(!tokenizer.is_special(size), "an id that does not exist is not special");
}

fn check_decode(tokenizer: &dyn Tokenizer) {
    assert_eq!(tokenizer.decode(&[], false).as_deref(), Ok(""), "no ids are no text");
    let past_end = tokenizer.decode(&[tokenizer.vocab_size() as u32], true);
    assert_eq!(
        past_end.map_err(|error| error.kind()),
        Err(ErrorKind::OutOfRange),
        "an id past the end is refused"
    );
    for id in (0..tokenizer.vocab_size() as u32).filter(|&id| tokenizer.is_special(id)) {
        let name = tokenizer.token_of(id).unwrap_or_default();
        assert_eq!(tokenizer.decode(&[id], true).as_deref(), Ok(""), "special {name} is skipped");
        assert_eq!(tokenizer.decode(&[id], false).as_deref(), Ok(name.as_str()), "special {name} is written");
        // Text without a token may become the special token for unknown text.
        let unknown = tokenizer.encode("\u{10FFFF}").unwrap_or_default();
        if let Ok(encoding) = tokenizer.encode(&name) {
            let is_said = encoding.ids.contains(&id) && !unknown.ids.contains(&id);
            assert!(!is_said, "the text {name} does not become the special token");
        }
    }
}

fn check_text(tokenizer: &dyn Tokenizer, text: &str) {
    let encoding = tokenizer.encode(text);
    assert!(encoding.is_ok(), "{text:?} is text that this tokenizer can express");
    let encoding = encoding.unwrap_or_default();
    assert_eq!(encoding.ids.len(), encoding.offsets.len(), "one range for each id");
    assert!(
        encoding.ids.iter().all(|&id| (id as usize) < tokenizer.vocab_size()),
        "ids are in the vocabulary"
    );
    assert!(!encoding.ids.iter().any(|&id| tokenizer.is_special(id)), "{text:?} gave a special id");
    let mut last_start = 0;
    for [start, end] in encoding.offsets {
        assert!(start >= last_start && start <= end, "starts never decrease");
        assert!(text.get(start as usize..end as usize).is_some(), "{start}..{end} is a range of characters");
        last_start = start;
    }
    assert_eq!(tokenizer.decode(&encoding.ids, true).as_deref(), Ok(text), "{text:?} comes back");
}
