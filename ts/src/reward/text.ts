/**
 * Texts of a policy: how long they may be, and spaces, words and letter case as Python sees them, by whose rules the
 * published rewards count.
 */

import { FulmarError } from '../core/index.js'

/** UTF-16 units of a text that is scored; a completion of 128 k tokens is about half as long. */
export const REWARD_TEXT_LENGTH_MAX = 1_048_576

/**
 * Refuses a text that is too long to score.
 * @throws {FulmarError} `LIMIT_EXCEEDED` above `lengthMax`, 1,048,576 unless given; `MALFORMED` if it is no text.
 */
export function checkRewardText(name: string, text: string, lengthMax = REWARD_TEXT_LENGTH_MAX): void {
  if (typeof text !== 'string')
    throw new FulmarError('MALFORMED', `${name} must be a text: got ${typeof text}`)
  if (text.length <= lengthMax) return
  throw new FulmarError(
    'LIMIT_EXCEEDED',
    `${name} must have at most ${lengthMax} UTF-16 units: got ${text.length}`,
  )
}

/** Characters that Python's `\s` and `str.strip` treat as space, for a character class. */
export const SPACES = '\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'

/** Characters that Python's `\w` matches, for a character class of a `u` expression. */
export const WORD_LETTERS = '\\p{L}\\p{N}_'

const SPACE = new RegExp(`[${SPACES}]`)

/** Returns true if the unit at `index` is a space in Python; `false` beyond the ends. */
export function isSpaceAt(text: string, index: number): boolean {
  const code = text.charCodeAt(index)
  if (code <= 0x20) return (code >= 9 && code <= 13) || code >= 0x1c
  return code >= 0x85 && SPACE.test(text.charAt(index))
}

/** Python's `str.strip`: the text without the spaces at its ends. */
export function strip(text: string): string {
  return stripStart(stripEnd(text))
}

/** Python's `str.lstrip`. */
export function stripStart(text: string): string {
  let start = 0
  while (isSpaceAt(text, start)) start++
  return text.slice(start)
}

/** Python's `str.rstrip`. */
export function stripEnd(text: string): string {
  let end = text.length
  while (end > 0 && isSpaceAt(text, end - 1)) end--
  return text.slice(0, end)
}

/** Python's `str.strip(letters)`: the text without any of the `letters` at its ends. */
export function stripLetters(text: string, letters: string): string {
  let [start, end] = [0, text.length]
  while (start < end && letters.includes(text.charAt(start))) start++
  while (end > start && letters.includes(text.charAt(end - 1))) end--
  return text.slice(start, end)
}

/** Python's `str.isupper`: a letter that has cases, and none that is not upper case. */
export function isUpper(text: string): boolean {
  return /\p{Uppercase}/u.test(text) && !/[\p{Lowercase}\p{Lt}]/u.test(text)
}

/** Python's `str.islower`. */
export function isLower(text: string): boolean {
  return /\p{Lowercase}/u.test(text) && !/[\p{Uppercase}\p{Lt}]/u.test(text)
}

/** A literal text inside a regular expression. */
export function escapeExpression(text: string): string {
  return text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')
}

/** Counts the occurrences of `piece` in `text` without overlaps. */
export function countOf(text: string, piece: string): number {
  return text.split(piece).length - 1
}
