/**
 * Detects the language of a text from its n-grams, as langdetect does
 * ([language detection library](https://github.com/shuyo/language-detection)).
 *
 * For each language the gains `ln(1 + p / floor)` of all n-grams of 1 to 3 letters are added up, `p` their share in the language; the
 * most wins. The original draws n-grams at random until one language is all but certain, so it may return two results for one text; its
 * draws tend to what is added up here. Quirks that decide are kept: words all in upper case count by their first letter only.
 */

import { checkRewardText } from '../text.js'
import {
  KANJI_GROUPS,
  PACKED_PROFILES,
  PROFILE_DIGITS,
  PROFILE_GAIN_STEP,
  PROFILE_LANGUAGES,
} from './language-profiles.js'

/** Number of characters of a text that are used. */
export const LANGUAGE_TEXT_LENGTH_MAX = 10_000

/**
 * Returns the language of a text as two letters (`zh-cn` and `zh-tw` have five); `undefined` without letters
 * to detect it, as in digits.
 * Always the same for the same text. Addresses are passed over.
 * @throws {FulmarError} `LIMIT_EXCEEDED` if the text is longer than 1,048,576 characters.
 *
 * @example
 * ```ts
 * import { detectLanguage } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(detectLanguage('Das ist ein einfacher Satz.'), 'de')
 * assert.equal(detectLanguage('This is a simple sentence.'), 'en')
 * assert.equal(detectLanguage('2 + 2 = 4'), undefined)
 * ```
 */
export function detectLanguage(text: string): string | undefined {
  checkRewardText('text', text)
  const profiles = loadProfiles()
  const gains = new Float64Array(PROFILE_LANGUAGES.length)
  let found = 0
  for (const ngram of ngramsOf(withoutLatin(prepared(text)), profiles.kanji)) {
    const levels = profiles.levels.get(ngram)
    if (levels === undefined) continue
    found++
    for (let at = 0; at < levels.length; at += 2) {
      const language = levels[at] ?? 0
      gains[language] = (gains[language] ?? 0) + (levels[at + 1] ?? 0) * PROFILE_GAIN_STEP
    }
  }
  return found === 0 ? undefined : PROFILE_LANGUAGES[gains.indexOf(Math.max(...gains))]
}

interface Profiles {
  /** For each n-gram: a language, its level, the next language, its level, ... */
  readonly levels: ReadonlyMap<string, Uint8Array>
  /** The first of the group of a character. */
  readonly kanji: ReadonlyMap<string, string>
}

let loaded: Profiles | undefined

/** Unpacks the table on first use, which takes some 50 ms. */
function loadProfiles(): Profiles {
  loaded ??= { levels: unpack(), kanji: kanjiMap() }
  return loaded
}

function unpack(): ReadonlyMap<string, Uint8Array> {
  const digitOf = new Map([...PROFILE_DIGITS].map((digit, value) => [digit, value]))
  let at = 0
  const digit = () => digitOf.get(PACKED_PROFILES.charAt(at++)) ?? 0
  const number = () => {
    let [value, scale] = [0, 1]
    for (;;) {
      const next = digit()
      value += (next % 32) * scale
      if (next < 32) return value
      scale *= 32
    }
  }
  const levels = new Map<string, Uint8Array>()
  let before: number[] = []
  while (at < PACKED_PROFILES.length) {
    const header = number()
    const [keep, fresh, languages] = [
      header % 3,
      (Math.floor(header / 3) % 3) + 1,
      Math.floor(header / 9) + 1,
    ]
    const codes = before.slice(0, keep)
    for (let place = keep; place < keep + fresh; place++) {
      const known = place === keep && place < before.length ? before[place] : codes[place - 1]
      codes.push((known ?? 0) + unzigzag(number()))
    }
    levels.set(String.fromCharCode(...codes), Uint8Array.from({ length: 2 * languages }, digit))
    before = codes
  }
  return levels
}

function unzigzag(value: number): number {
  return value % 2 === 0 ? value / 2 : -(value + 1) / 2
}

function kanjiMap(): ReadonlyMap<string, string> {
  return new Map(
    KANJI_GROUPS.flatMap((group) =>
      [...group].map((character): [string, string] => [character, group.charAt(0)]),
    ),
  )
}

/** The beginning of a text without addresses, each run of spaces one space, Vietnamese marks in one character with their letters. */
function prepared(text: string): readonly string[] {
  const plain = text
    .replace(URL, ' ')
    .replace(MAIL, ' ')
    .replace(VIETNAMESE, (pair) => pair.normalize('NFC'))
  const characters: string[] = []
  let [taken, last] = [0, '']
  for (const character of plain) {
    if (taken++ === LANGUAGE_TEXT_LENGTH_MAX) break
    if (character !== ' ' || last !== ' ') characters.push(character)
    last = character
  }
  return characters
}

const URL = /https?:\/\/[-_.?&~;+=/#0-9A-Za-z]{1,2076}/g
const MAIL = /[-_.0-9A-Za-z]{1,64}@[-_0-9A-Za-z]{1,255}[-_.0-9A-Za-z]{1,255}/g
const VIETNAMESE =
  /[AEIOUYaeiouy\u00c2\u00ca\u00d4\u00e2\u00ea\u00f4\u0102\u0103\u01a0\u01a1\u01af\u01b0][\u0300\u0301\u0303\u0309\u0323]/g

/** Latin letters are left out where there are twice as many others: names inside another script. */
function withoutLatin(characters: readonly string[]): readonly string[] {
  const isLatin = (character: string) => 'A' <= character && character <= 'z'
  const isOther = (character: string) => character >= '\u0300' && !/[\u1e00-\u1eff]/.test(character)
  const numLatin = characters.filter(isLatin).length
  const numOther = characters.filter(isOther).length
  return numLatin * 2 < numOther ? characters.filter((character) => !isLatin(character)) : characters
}

/** The n-grams of 1 to 3 letters that end at each letter of a word, a space before the word its first letter. */
function* ngramsOf(characters: readonly string[], kanji: ReadonlyMap<string, string>): Generator<string> {
  let [word, isCapital] = [' ', false]
  for (const raw of characters) {
    const character = normalized(raw, kanji)
    const last = word.slice(-1)
    if (last === ' ') {
      word = ' '
      isCapital = false
      if (character === ' ') continue
    } else if (word.length === 3) word = word.slice(1)
    word += character
    isCapital = UPPER.test(character) && (UPPER.test(last) || isCapital)
    if (isCapital) continue
    for (let length = 1; length <= word.length; length++) {
      const ngram = word.slice(-length)
      if (ngram !== ' ') yield ngram
    }
  }
}

const UPPER = /^\p{Uppercase}$/u

/** Returns one character for all characters with equal profiles. */
function normalized(character: string, kanji: ReadonlyMap<string, string>): string {
  if (character <= '\x7f') return /[A-Za-z]/.test(character) ? character : ' '
  if (/[\xa0\xab\xb0\xbb\u2000-\u206f]/.test(character)) return ' '
  // No profile has characters of two units, and an n-gram must stay at most three units long.
  if (character.length > 1) return '\uffff'
  for (const [block, one] of BLOCKS) if (block.test(character)) return one
  return kanji.get(character) ?? character
}

const BLOCKS: readonly (readonly [RegExp, string])[] = [
  [/\u0219/, '\u015f'],
  [/\u021b/, '\u0163'],
  [/\u06cc/, '\u064a'],
  [/[\u1ea0-\u1eff]/, '\u1ec3'],
  [/[\u3040-\u309f]/, '\u3042'],
  [/[\u30a0-\u30ff]/, '\u30a2'],
  [/[\u3100-\u312f\u31a0-\u31bf]/, '\u3105'],
  [/[\uac00-\ud7af]/, '\uac00'],
]
