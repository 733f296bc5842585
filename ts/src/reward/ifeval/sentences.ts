/**
 * Splits English text into sentences as NLTK's Punkt does
 * ([Kiss and Strunk 2006](https://doi.org/10.1162/coli.2006.32.4.485)), with the trained English model.
 *
 * A `.`, `?` or `!` may end a sentence where a space or a closing mark follows. Around each such place some words are looked at: a dot
 * behind an abbreviation ends a sentence only if the next word looks like the beginning of one, a dot behind an initial or a number
 * ends none if the next word does not. Each word is looked at twice at most, so the cost grows with the length of the text.
 */

import { checkRewardText, isLower, isSpaceAt, isUpper, stripEnd } from '../text.js'
import {
  ABBREVIATIONS,
  COLLOCATIONS,
  LOWER_INSIDE_WORDS,
  SENTENCE_STARTERS,
  STARTER_WORDS,
  UPPER_STARTER_WORDS,
} from './punkt-english.js'

/**
 * The sentences of a text in order, without the spaces between them.
 * @throws {FulmarError} `LIMIT_EXCEEDED` if the text is longer than 1,048,576 characters.
 *
 * @example
 * ```ts
 * import { splitSentences } from 'fulmar/reward/ifeval'
 * import assert from 'node:assert/strict'
 *
 * assert.deepEqual(splitSentences('Mr. Smith left (at last!) in Jan. 1986. He came back.'), [
 *   'Mr. Smith left (at last!)',
 *   'in Jan. 1986.',
 *   'He came back.',
 * ])
 * assert.deepEqual(splitSentences(''), [])
 * ```
 */
export function splitSentences(text: string): string[] {
  checkRewardText('text', text)
  return realigned(text, slicesOf(text))
    .map(({ start, end }) => text.slice(start, end))
    .filter((sentence) => sentence !== '')
}

interface Slice {
  readonly start: number
  readonly end: number
}

/** Possible end of a sentence: after `mark`; the next one begins at `next`. */
interface Candidate {
  /** Word before the mark, as far as it was read. */
  readonly wordStart: number
  readonly mark: number
  /** Start and end of the next word or closing mark. */
  readonly next: number
  readonly nextEnd: number
}

function slicesOf(text: string): readonly Slice[] {
  const slices: Slice[] = []
  let start = 0
  for (const { wordStart, mark, next, nextEnd } of candidatesOf(text)) {
    if (!holdsBreak(text.slice(wordStart, nextEnd))) continue
    slices.push({ start, end: mark + 1 })
    start = next
  }
  return [...slices, { start, end: stripEnd(text).length }]
}

/** Marks with their contexts; of several behind one word only the last. */
function candidatesOf(text: string): readonly Candidate[] {
  const candidates: Candidate[] = []
  let [lastStart, lastMark] = [0, 0]
  for (const { mark, next, nextEnd } of marksOf(text)) {
    const space = lastAsciiSpace(text, lastMark, mark)
    const wordStart = space > lastMark ? space + 1 : lastStart
    // The mark before belongs to the same word: this one takes its place.
    if (wordStart < lastMark) candidates.pop()
    candidates.push({ wordStart, mark, next, nextEnd })
    lastStart = wordStart
    lastMark = mark
  }
  return candidates
}

function* marksOf(text: string): Generator<Omit<Candidate, 'wordStart'>> {
  for (let mark = 0; mark < text.length; mark++) {
    if (!'.?!'.includes(text.charAt(mark))) continue
    let next = mark + 1
    if (NON_WORD.includes(text.charAt(next)) && next < text.length) {
      yield { mark, next, nextEnd: next + 1 }
      continue
    }
    while (isSpaceAt(text, next)) next++
    if (next > mark + 1 && next < text.length) yield { mark, next, nextEnd: wordEnd(text, next) }
  }
}

/** Returns the last ASCII space in `[from, to)`; `from` without one. */
function lastAsciiSpace(text: string, from: number, to: number): number {
  let at = to - 1
  while (at > from && !ASCII_SPACES.includes(text.charAt(at))) at--
  return Math.max(at, from)
}

const ASCII_SPACES = ' \t\n\r\x0b\x0c'

function wordEnd(text: string, from: number): number {
  let end = from
  while (end < text.length && !isSpaceAt(text, end)) end++
  return end
}

/** Closing marks at the beginning of a sentence are given to the one before, if nothing follows them at once. */
function realigned(text: string, slices: readonly Slice[]): readonly Slice[] {
  const sentences: Slice[] = []
  let moved = 0
  slices.forEach((slice, index) => {
    const start = slice.start + moved
    const following = slices[index + 1]
    const closing = following ? closingMarks(text, following) : { end: 0, next: 0 }
    moved = following && closing.end > 0 ? closing.next - following.start : 0
    sentences.push({ start, end: moved > 0 ? closing.end : slice.end })
  })
  return sentences.map(({ start, end }) => ({ start: Math.min(start, end), end }))
}

/**
 * Returns the ends of the closing marks at the beginning of a slice and of the spaces after them; zeros if
 * there are no marks to move.
 */
function closingMarks(
  text: string,
  { start, end: sliceEnd }: Slice,
): { readonly end: number; readonly next: number } {
  let end = start
  while (end < sliceEnd && CLOSING.includes(text.charAt(end))) end++
  let next = end
  while (next < sliceEnd && isSpaceAt(text, next)) next++
  const isFree = next > end || end === sliceEnd || (text.startsWith('--', end) && end + 2 <= sliceEnd)
  return end > start && isFree ? { end, next } : { end: 0, next: 0 }
}

const QUOTES = '\u2018\u2019\u201c\u201d\xab\xbb'
const CLOSING = `"')]}${QUOTES}`
/** Characters that are not part of words. */
const NON_WORD = `)";}]*:@'({[${QUOTES}?!`
/** Characters that do not begin words. */
const NON_START = '("`{[:;&#*@)}]-,'

interface Token {
  readonly text: string
  /** Returns the word in lower case; all numbers are the same. */
  readonly type: string
  isBreak: boolean
  isAbbreviation: boolean
}

/** Returns true if a sentence ends inside this text. */
function holdsBreak(context: string): boolean {
  const tokens = context.split('\n').flatMap(tokensOf).map(annotated)
  tokens.forEach((token, index) => {
    const next = tokens[index + 1]
    if (next !== undefined && token.text.endsWith('.')) reconsider(token, next)
  })
  return tokens.slice(0, -1).some((token) => token.isBreak)
}

/** Classifies a word by itself. */
function annotated(text: string): Token {
  const token: Token = { text, type: typeOf(text), isBreak: false, isAbbreviation: false }
  if (text === '.' || text === '?' || text === '!') token.isBreak = true
  else if (text.endsWith('.') && !text.endsWith('..')) {
    const word = text.slice(0, -1).toLowerCase()
    token.isAbbreviation = ABBREVIATIONS.has(word) || ABBREVIATIONS.has(word.split('-').at(-1) ?? '')
    token.isBreak = !token.isAbbreviation
  }
  return token
}

/** Classifies a word with a dot by the next word. */
function reconsider(token: Token, next: Token): void {
  const word = withoutDot(token.type)
  const nextWord = next.isBreak ? withoutDot(next.type) : next.type
  const isInitial = INITIAL.test(token.text)
  if (COLLOCATIONS.has(`${word} ${nextWord}`)) {
    token.isBreak = false
    return
  }
  const starts = startsSentence(next, nextWord)
  const isEllipsis = /^\.\.+$/.test(token.text)
  if ((token.isAbbreviation || isEllipsis) && !isInitial) {
    if (starts === true || (startsUpper(next) && SENTENCE_STARTERS.has(nextWord))) {
      token.isBreak = true
      return
    }
  }
  if (!isInitial && word !== NUMBER) return
  const isName = starts === undefined && isInitial && startsUpper(next) && !wasSeenLower(nextWord)
  if (starts === false || isName) token.isBreak = false
}

/** Returns true if a word looks like the first of a sentence; `undefined` if unknown. */
function startsSentence(token: Token, word: string): boolean | undefined {
  if (';:,.!?'.includes(token.text)) return false
  if (startsUpper(token) && (STARTER_WORDS.has(word) || UPPER_STARTER_WORDS.has(word))) return true
  if (startsLower(token) && !UPPER_STARTER_WORDS.has(word)) return false
  return undefined
}

function wasSeenLower(word: string): boolean {
  return STARTER_WORDS.has(word) || UPPER_STARTER_WORDS.has(word) || LOWER_INSIDE_WORDS.has(word)
}

function startsUpper({ text }: Token): boolean {
  return isUpper(String.fromCodePoint(text.codePointAt(0) ?? 32))
}

function startsLower({ text }: Token): boolean {
  return isLower(String.fromCodePoint(text.codePointAt(0) ?? 32))
}

function withoutDot(type: string): string {
  return type.length > 1 && type.endsWith('.') ? type.slice(0, -1) : type
}

function typeOf(text: string): string {
  const lower = text.toLowerCase()
  return NUMERIC.test(lower) ? NUMBER : lower
}

const NUMBER = '##number##'
const NUMERIC = /^-?[.,]?\p{Nd}[\p{Nd},.-]*$/u
const INITIAL = /^[\p{L}_\p{Nl}\p{No}]\.$/u

/** Words with their dots, and marks; two or more dashes or dots are one. */
function tokensOf(line: string): readonly string[] {
  const tokens: string[] = []
  let at = 0
  while (at < line.length) {
    if (isSpaceAt(line, at)) {
      at++
      continue
    }
    const end = markEnd(line, at) ?? (NON_START.includes(line.charAt(at)) ? at + 1 : tokenEnd(line, at + 1))
    tokens.push(line.slice(at, end))
    at = end
  }
  return tokens
}

/**
 * Returns the end of a run of dashes, dots or spaced dots that begins here; `undefined` for fewer than two.
 */
function markEnd(line: string, at: number): number | undefined {
  const mark = line.charAt(at)
  if (mark !== '-' && mark !== '.') return undefined
  let end = at + 1
  while (line[end] === mark) end++
  if (end > at + 1) return end
  if (mark === '-') return undefined
  while (isSpaceAt(line, end) && line[end + 1] === '.') end += 2
  return end >= at + 5 ? end : undefined
}

function tokenEnd(line: string, from: number): number {
  let end = from
  while (!endsToken(line, end) && !(line[end] === ',' && endsToken(line, end + 1))) end++
  return end
}

function endsToken(line: string, at: number): boolean {
  if (at >= line.length || isSpaceAt(line, at) || NON_WORD.includes(line.charAt(at))) return true
  if (line.startsWith('--', at) || line.startsWith('..', at)) return true
  const isSpaced = line[at] === '.' && line[at + 2] === '.' && line[at + 4] === '.'
  return isSpaced && isSpaceAt(line, at + 1) && isSpaceAt(line, at + 3)
}
