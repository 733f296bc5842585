"""Writes the tables of `ts/src/reward/ifeval/`: n-grams of languages and what Punkt learnt of English sentences.

Run by hand, with the unpacked source distribution of langdetect 1.0.9 (Apache-2.0, Cybozu Labs) and the unpacked crate punkt
1.0.5 (Apache-2.0 or MIT), whose `english.json` is the model of NLTK:

    python scripts/reward-data.py LANGDETECT_FOLDER PUNKT_FOLDER
"""

import json
import math
import re
import sys
from collections import defaultdict
from pathlib import Path

ROOM = Path(__file__).parent.parent / "ts/src/reward/ifeval"
DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
# What langdetect adds to each probability: alpha / BASE_FREQ.
FLOOR = 0.5 / 10000
# The gain of the commonest n-gram, ln(1 + p / FLOOR), is below this.
GAIN_MAX = 9.95


def number(value):
    """Base 32, the lowest digit first; digits from 32 on say that more follow."""
    text = ""
    while value >= 32:
        text += DIGITS[32 + value % 32]
        value //= 32
    return text + DIGITS[value]


def zigzag(value):
    return 2 * value if value >= 0 else -2 * value - 1


def languages(folder):
    package = folder / "langdetect"
    groups = kanji(package / "utils/messages.properties")
    profiles = [json.loads(path.read_text("utf8")) for path in sorted((package / "profiles").iterdir())]
    gains = defaultdict(list)
    for index, profile in enumerate(profiles):
        for ngram, count in profile["freq"].items():
            if not 1 <= len(ngram) <= 3 or not is_reachable(ngram, groups):
                continue
            probability = count / profile["n_words"][len(ngram) - 1]
            level = round(math.log(1 + probability / FLOOR) / GAIN_MAX * 63)
            assert level < 64
            if level > 0:
                gains[ngram].append((index, level))
    return [profile["name"] for profile in profiles], groups, gains


def kanji(path):
    groups = []
    for name, text in re.findall(r"^NGram\.(KANJI_\w+)=(.*)$", path.read_text("ascii"), re.MULTILINE):
        groups.append(json.loads(f'"{text.strip()}"'))
    return groups


def is_reachable(ngram, groups):
    """Whether a text can hold the n-gram once its characters are normalised."""
    represented = {character for group in groups for character in group[1:]}
    def is_kept(character):
        code = ord(character)
        if code < 0x80:
            return character == " " or character.isalpha()
        if 0x2000 <= code <= 0x206F or code in (0xA0, 0xAB, 0xB0, 0xBB, 0x219, 0x21B, 0x6CC):
            return False
        for first, last, kept in BLOCKS:
            if first <= code <= last:
                return code == kept
        return character not in represented
    return all(map(is_kept, ngram)) and ngram != " "


# Blocks of which only one character is left.
BLOCKS = [
    (0x1EA0, 0x1EFF, 0x1EC3), (0x3040, 0x309F, 0x3042), (0x30A0, 0x30FF, 0x30A2), (0x3100, 0x312F, 0x3105),
    (0x31A0, 0x31BF, 0x3105), (0xAC00, 0xD7AF, 0xAC00),
]


def packed(gains):
    text, before = "", ""
    for ngram in sorted(gains):
        keep = 0
        while keep < min(len(ngram), len(before)) and ngram[keep] == before[keep]:
            keep += 1
        assert keep < len(ngram)
        pairs = gains[ngram]
        text += number(keep + 3 * (len(ngram) - keep - 1) + 9 * (len(pairs) - 1))
        for place in range(keep, len(ngram)):
            # The first new character is compared with the one it replaces, the others with the one before them.
            known = before[place] if place == keep and place < len(before) else ngram[place - 1] if place else "\0"
            text += number(zigzag(ord(ngram[place]) - ord(known)))
        text += "".join(DIGITS[language] + DIGITS[level] for language, level in pairs)
        before = ngram
    return text


def write_profiles(folder):
    names, groups, gains = languages(folder)
    escaped = [json.dumps(group)[1:-1] for group in groups]
    (ROOM / "language-profiles.ts").write_text(f"""\
/**
 * Weights of n-grams for each of 55 languages: the profiles of langdetect 1.0.9 (Apache-2.0, (c) 2010-2014 Cybozu Labs),
 * packed by scripts/reward-data.py. Written by that program, not by hand.
 */

/** The languages, in the order of their numbers. */
export const PROFILE_LANGUAGES = '{' '.join(names)}'.split(' ')

/** The digits of {{@link PACKED_PROFILES}}. */
export const PROFILE_DIGITS = '{DIGITS}'

/** `ln(1 + p / {FLOOR})` of a level `n` is `n * PROFILE_GAIN_STEP`. */
export const PROFILE_GAIN_STEP = {GAIN_MAX} / 63

/** Characters that are taken for the first of their group, a group in each text. */
export const KANJI_GROUPS = '{' '.join(escaped)}'.split(' ')

/**
 * The n-grams in order. Each is a number `keep + 3 * (new - 1) + 9 * (languages - 1)`, the new characters as differences, and two
 * digits a language: which, and its level. Numbers are of base 32, the lowest digit first; digits from 32 on say that more follow.
 */
export const PACKED_PROFILES =
  '{packed(gains)}'
""")
    print(len(names), "languages,", len(gains), "n-grams")


def write_punkt(folder):
    model = json.loads((folder / "src/data/english.json").read_text("utf8"))
    BEG_UC, MID_UC, UNK_UC, BEG_LC, MID_LC, UNK_LC = (1 << bit for bit in range(1, 7))
    groups = {"BOTH": [], "UPPER": [], "LOWER": []}
    for word, context in sorted(model["ortho_context"].items()):
        if not context & (BEG_LC | MID_LC | UNK_LC):
            continue  # Such a word is treated as an unknown one.
        starts = not context & MID_UC
        never = bool(context & (BEG_UC | MID_UC | UNK_UC)) or not context & BEG_LC
        assert starts or never
        groups["BOTH" if starts and never else "UPPER" if starts else "LOWER"].append(word)
    # No token is a word with a space, such as the abbreviation `. .`.
    quoted = lambda words: "'" + json.dumps(" ".join(sorted(word for word in words if " " not in word)))[1:-1].replace('\\"', '"').replace("'", "\\'") + "'"
    pairs = [f"{first} {second}" for first, second in model["collocations"]]
    (ROOM / "punkt-english.ts").write_text(f"""\
/**
 * Punkt model of English sentences: that of NLTK in the crate punkt 1.0.5 (Apache-2.0 or MIT), written by
 * scripts/reward-data.py, not by hand. Words are in lower case; all numbers are the word `##number##`.
 */

/** Words that a dot belongs to. */
export const ABBREVIATIONS = words(
  {quoted(model['abbrev_types'])},
)

/** Words that often begin a sentence. */
export const SENTENCE_STARTERS = words(
  {quoted(model['sentence_starters'])},
)

/** Two words with a dot between them that ends no sentence, a space between them here. */
export const COLLOCATIONS: ReadonlySet<string> = new Set(
  {quoted([pair.replace(' ', '|') for pair in pairs])}.split(' ').map((pair) => pair.replace('|', ' ')),
)

/** Words seen in lower case that begin a sentence where they have an upper case letter, and do not where they have none. */
export const STARTER_WORDS = words(
  {quoted(groups['BOTH'])},
)

/** Words seen in lower case that begin a sentence if they have an upper case letter; without one it is unknown. */
export const UPPER_STARTER_WORDS = words(
  {quoted(groups['UPPER'])},
)

/** Words seen in lower case that do not begin a sentence if they have no upper case letter; with one it is unknown. */
export const LOWER_INSIDE_WORDS = words(
  {quoted(groups['LOWER'])},
)

function words(list: string): ReadonlySet<string> {{
  return new Set(list.split(' '))
}}
""")
    print({name: len(words) for name, words in groups.items()}, len(pairs), "collocations")


write_profiles(Path(sys.argv[1]))
write_punkt(Path(sys.argv[2]))
