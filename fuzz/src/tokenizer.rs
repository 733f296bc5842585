//! The files of tokenizers and, after a separator, a text to encode.

use std::sync::Arc;

use fulmar::core::ErrorKind;
use fulmar::tokenizer::{CharTokenizer, DecodeStream, HfFiles, HfTokenizer, TiktokenTokenizer, Tokenizer};

const TEXTS: [&str; 4] =
    ["", "Hello  w\u{f6}rld, 1234\r\n\t", "<|im_start|>a<s></s><|im_end|>", "\u{1f600}\u{200d}\u{0}\u{301}"];

/// Reads a tokenizer of every kind; accepted ones encode and decode.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let (file, given) = super::halves(&text, "{}");
    let files = HfFiles { tokenizer: file.to_owned(), config: Some(given.to_owned()), ..HfFiles::default() };
    let read: [Option<Arc<dyn Tokenizer>>; 4] = [
        HfTokenizer::from_json(file).ok().map(|tokenizer| Arc::new(tokenizer) as _),
        HfTokenizer::from_files(files).ok().map(|tokenizer| Arc::new(tokenizer) as _),
        TiktokenTokenizer::from_json(file).ok().map(|tokenizer| Arc::new(tokenizer) as _),
        CharTokenizer::from_json(file).ok().map(|tokenizer| Arc::new(tokenizer) as _),
    ];
    for tokenizer in read.iter().flatten() {
        for text in TEXTS.into_iter().chain([given]) {
            check(tokenizer, text);
        }
    }
}

fn check(tokenizer: &Arc<dyn Tokenizer>, text: &str) {
    for encoding in [tokenizer.encode(text), tokenizer.encode_added(text)].into_iter().flatten() {
        assert_eq!(encoding.ids.len(), encoding.offsets.len(), "one range for each id");
        let mut last = 0;
        for [start, end] in &encoding.offsets {
            assert!(last <= *start && start <= end, "starts never decrease: [{start}, {end}] after {last}");
            assert!(text.get(*start as usize..*end as usize).is_some(), "a range is a piece of the text");
            last = *start;
        }
        let decoded = tokenizer.decode(&encoding.ids, false);
        // The library panics where a decoder strips more than there is, which is refused as a corrupt file.
        let is_refused = decoded.as_ref().is_err_and(|error| error.kind() == ErrorKind::Corrupt);
        assert!(decoded.is_ok() || is_refused, "ids that were given decode: {decoded:?}");
        let mut stream = DecodeStream::new(Arc::clone(tokenizer), false);
        // A decoder that takes back what it gave is refused, which is an answer too.
        let pieces: Result<String, _> = encoding.ids.iter().map(|&id| stream.push(id)).collect();
        if let (Ok(mut pieces), Ok(rest), Ok(decoded)) = (pieces, stream.finish(), decoded) {
            pieces += &rest;
            assert_eq!(pieces, decoded, "a stream gives what decoding gives");
        }
    }
    assert!(tokenizer.decode(&[tokenizer.vocab_size() as u32], true).is_err(), "no id past the vocabulary");
}
