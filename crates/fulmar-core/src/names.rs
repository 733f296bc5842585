//! The nearest known name to an unknown one.

/// Names longer than this are compared by their beginning: keys come from files of any origin.
const NAME_CHARS_MAX: usize = 64;

/// Words of PyTorch, transformers, PEFT, TRL and vLLM, without case and punctuation, with our names for them.
const HINTS: [(&str, &[&str]); 34] = [
    ("float64", &["f64"]),
    ("double", &["f64"]),
    ("float32", &["f32"]),
    ("float", &["f32"]),
    ("fp32", &["f32"]),
    ("float16", &["f16"]),
    ("half", &["f16"]),
    ("fp16", &["f16"]),
    ("bfloat16", &["bf16"]),
    ("int64", &["i64"]),
    ("long", &["i64"]),
    ("int32", &["i32"]),
    ("int", &["i32"]),
    ("int16", &["i16"]),
    ("int8", &["i8"]),
    ("uint8", &["u8"]),
    ("byte", &["u8"]),
    ("lr", &["learningRate"]),
    ("betas", &["beta1"]),
    ("epsilon", &["eps", "clipEpsilon"]),
    ("epsilonhigh", &["clipEpsilon"]),
    ("delta", &["dualClip"]),
    ("cliprange", &["clipEpsilon"]),
    ("maxcompletionlength", &["maxTokens"]),
    ("maxnewtokens", &["maxTokens"]),
    ("numgenerations", &["groupSize"]),
    ("beta", &["klToRef", "beta1"]),
    ("losstype", &["normalization", "lossWeights"]),
    ("importancesamplinglevel", &["ratio"]),
    ("stoptokenids", &["stopIds"]),
    ("eostokenid", &["stopIds"]),
    ("badwordsids", &["bannedIds"]),
    ("entropycoef", &["entropyCoefficient"]),
    ("numwarmupsteps", &["warmupSteps"]),
];

/// Returns the member of `known` that `name` most likely means: the same but for case and punctuation; our
/// name for a word of PyTorch, transformers or TRL; or the member with the fewest edits, unless these are
/// more than half of its letters. O(`name` x `known`) letters.
///
/// # Examples
/// ```
/// use fulmar_core::nearest_name;
/// assert_eq!(nearest_name("learning_rate", &["learningRate", "eps"]), Some("learningRate"));
/// assert_eq!(nearest_name("float32", &["bf16", "f32"]), Some("f32"));
/// assert_eq!(nearest_name("lerningRate", &["learningRate", "eps"]), Some("learningRate"));
/// assert_eq!(nearest_name("banana", &["learningRate", "eps"]), None);
/// ```
#[must_use]
pub fn nearest_name<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = letters(name.strip_prefix("torch.").unwrap_or(name));
    let same = |wanted: &[char]| known.iter().copied().find(|candidate| letters(candidate) == wanted);
    let hinted = || {
        let hints = HINTS.iter().find(|(word, _)| word.chars().eq(plain.iter().copied()))?.1;
        hints.iter().find_map(|hint| same(&letters(hint)))
    };
    same(&plain).or_else(hinted).or_else(|| {
        let edits = known.iter().map(|candidate| {
            let letters = letters(candidate);
            (edit_distance(&plain, &letters), plain.len().max(letters.len()), *candidate)
        });
        let near = edits.filter(|(edits, longer, _)| 2 * edits <= *longer);
        near.min_by_key(|(edits, ..)| *edits).map(|(.., candidate)| candidate)
    })
}

/// Returns the beginning of `name` in lower case, without punctuation.
fn letters(name: &str) -> Vec<char> {
    let letters = name.chars().filter(|letter| letter.is_alphanumeric());
    letters.flat_map(char::to_lowercase).take(NAME_CHARS_MAX).collect()
}

/// Returns the number of letters to add, remove or change.
fn edit_distance(from: &[char], to: &[char]) -> usize {
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.iter().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let best = (diagonal + usize::from(a != b)).min(row[j] + 1).min(row[j + 1] + 1);
            diagonal = std::mem::replace(&mut row[j + 1], best);
        }
    }
    row[to.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_other_libraries_lead_to_ours_where_they_are_known() {
        for (word, ours) in
            [("lr", "learningRate"), ("torch.bfloat16", "bf16"), ("max_new_tokens", "maxTokens")]
        {
            assert_eq!(nearest_name(word, &["other", ours]), Some(ours), "{word}");
        }
        assert_eq!(nearest_name("dr_grpo", &["grpo", "drGrpo"]), Some("drGrpo"));
        assert_eq!(nearest_name("qwen2.5", &["llama", "qwen2", "qwen3"]), Some("qwen2"));
        assert_eq!(nearest_name("lr", &["momentum"]), None, "a hint that is not known is none");
    }

    #[test]
    fn each_hint_is_in_the_form_in_which_names_are_compared() {
        for (word, hints) in HINTS {
            assert!(word.chars().eq(letters(word)), "{word}");
            assert!(!hints.is_empty(), "{word}");
        }
    }

    #[test]
    fn edits_are_counted_and_long_names_are_cut() {
        for (from, to, edits) in
            [("", "abc", 3), ("abc", "", 3), ("kitten", "sitting", 3), ("same", "same", 0)]
        {
            assert_eq!(edit_distance(&letters(from), &letters(to)), edits, "{from} {to}");
        }
        assert_eq!(nearest_name(&"x".repeat(1 << 20), &["eps"]), None);
        assert_eq!(letters(&"x".repeat(NAME_CHARS_MAX + 1)).len(), NAME_CHARS_MAX);
    }
}
