/** Splits English text into words and marks as NLTK's `word_tokenize` does, after the rules of the Penn Treebank. */

import { isSpaceAt, SPACES, stripEnd, WORD_LETTERS } from '../text.js'
import { splitSentences } from './sentences.js'

/**
 * The words and marks of a text in order: the last dot of each sentence and other marks are tokens of their own, `don't` is `do` and `n't`, quotes
 * are written as two backquotes or two apostrophes.
 * @throws {FulmarError} `LIMIT_EXCEEDED` if the text is longer than 1,048,576 characters.
 *
 * @example
 * ```ts
 * import { wordTokens } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(wordTokens("I CAN'T pay $3.88."), ['I', 'CA', "N'T", 'pay', '$', '3.88', '.'])
 * ```
 */
export function wordTokens(text: string): string[] {
  return splitSentences(text).flatMap(tokensOfSentence)
}

function tokensOfSentence(sentence: string): readonly string[] {
  const opened = replaceAll(sentence, OPENING_QUOTES)
  const marked = replaceAll(withFinalDotAlone(opened), MARKS)
  const closed = replaceAll(` ${marked} `, CLOSING_QUOTES)
  return replaceAll(closed, CONTRACTIONS)
    .split(SPACE)
    .filter((token) => token !== '')
}

type Rule = readonly [RegExp, string]

function replaceAll(text: string, rules: readonly Rule[]): string {
  return rules.reduce((changed, [expression, by]) => changed.replace(expression, by), text)
}

/** The dot that ends the sentence, closing marks behind it or not; not one of several dots. */
function withFinalDotAlone(sentence: string): string {
  const dot = sentence.lastIndexOf('.')
  if (dot < 1 || sentence[dot - 1] === '.') return sentence
  let end = dot + 1
  while (end < sentence.length && CLOSING.includes(sentence.charAt(end))) end++
  const closing = sentence.slice(dot + 1, end)
  while (isSpaceAt(sentence, end)) end++
  return end === sentence.length ? `${sentence.slice(0, dot)} . ${stripEnd(closing)} ` : sentence
}

const CLOSING = '])}>"\'\xbb\u201d\u2019 '
const SPACE = new RegExp(`[${SPACES}]`)
const NO_WORD = `(?![${WORD_LETTERS}])`
const NO_WORD_BEFORE = `(?<![${WORD_LETTERS}])`

const OPENING_QUOTES: readonly Rule[] = [
  [/[\xab\u201c\u2018\u201e]|`+/g, ' $& '],
  [/^"/g, '``'],
  [/``/g, ' `` '],
  [/([ ([{<])(?:"|'')/g, '$1 `` '],
  [new RegExp(`${NO_WORD_BEFORE}'(?!(?:re|ve|ll|m|t|s|d|n)${NO_WORD})(?=[${WORD_LETTERS}])`, 'giu'), "' "],
]

const MARKS: readonly Rule[] = [
  [/([:,])(\P{Nd})/gu, ' $1 $2'],
  [/[:,]$/g, ' $& '],
  [/\.\.+/g, ' $& '],
  [/[;@#$%&]/g, ' $& '],
  [/[\u2012-\u2015]/g, ' $& '],
  [/[?!]/g, ' $& '],
  [/([^'])' /g, "$1 ' "],
  [/[*]/g, ' $& '],
  [/[\][(){}<>]/g, ' $& '],
  [/--/g, ' -- '],
]

const CLOSING_QUOTES: readonly Rule[] = [
  [/[\xbb\u201d\u2019]/g, ' $& '],
  [/''/g, " '' "],
  [/"/g, " '' "],
  [new RegExp(`[${SPACES}]+`, 'g'), ' '],
  [/([^' ])('[sS]|'[mM]|'[dD]|') /g, '$1 $2 '],
  [/([^' ])('ll|'LL|'re|'RE|'ve|'VE|n't|N'T) /g, '$1 $2 '],
]

const CONTRACTIONS: readonly Rule[] = [
  ...['(can)(not)', "(d)('ye)", '(gim)(me)', '(gon)(na)', '(got)(ta)', '(lem)(me)', "(more)('n)"].map(
    (word): Rule => [new RegExp(`${NO_WORD_BEFORE}${word}${NO_WORD}`, 'giu'), ' $1 $2 '],
  ),
  [new RegExp(`${NO_WORD_BEFORE}(wan)(na)(?=[${SPACES}])`, 'giu'), ' $1 $2 '],
  [new RegExp(` ('t)(is|was)${NO_WORD}`, 'giu'), ' $1 $2 '],
]
