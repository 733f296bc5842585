/**
 * Counts of IFEval in a text: lists, highlights, paragraphs, titles. Each function gives the result of the
 * original's regular expression in one pass over the text: the expressions themselves take quadratic time.
 */

import { countOf, isSpaceAt, SPACES, strip, stripLetters, stripStart } from '../text.js'

/** Counts `[...]` on one line; `[]` counts, and a nested one does not. */
export function countPlaceholders(text: string): number {
  return text.split('\n').reduce((count, line) => count + bracketsIn(line), 0)
}

function bracketsIn(line: string): number {
  let [count, at] = [0, 0]
  for (;;) {
    const start = line.indexOf('[', at)
    const end = start < 0 ? -1 : line.indexOf(']', start)
    if (end < 0) return count
    count++
    at = end + 1
  }
}

/**
 * Counts lines that begin with `-`, and lines that begin with a single `*`. A line of a single `*` takes the
 * next line as its text.
 */
export function countBullets(text: string): number {
  const lines = text.split('\n').map(stripStart)
  let stars = 0
  for (let index = 0; index < lines.length; index++) {
    const line = lines[index] ?? ''
    if (!line.startsWith('*') || line[1] === '*') continue
    if (line.length > 1) stars++
    else if (index + 1 < lines.length) {
      stars++
      index++
    }
  }
  return stars + lines.filter((line) => line.startsWith('-')).length
}

/** Counts `*...*` and `**...**` on one line with more than spaces inside. */
export function countHighlights(text: string): number {
  const single = starSpans(text, '*').filter((span) => strip(stripLetters(span, '*')) !== '')
  const double = starSpans(text, '**').filter((span) => strip(span) !== '')
  return single.length + double.length
}

/** Returns the texts between two `mark`s without `*` or a newline between them, in order. */
function starSpans(text: string, mark: string): string[] {
  const spans: string[] = []
  let at = 0
  for (;;) {
    const start = text.indexOf(mark, at)
    if (start < 0) return spans
    const inside = start + mark.length
    const end = firstStarOrLineEnd(text, inside)
    if (text.startsWith(mark, end)) {
      spans.push(text.slice(inside, end))
      at = end + mark.length
    } else {
      // Nothing between here and `end` is a star, so the next mark begins right after the first one or at
      // `end`.
      at = end === inside ? start + 1 : end
    }
  }
}

function firstStarOrLineEnd(text: string, from: number): number {
  const ends = /[*\n]/g
  ends.lastIndex = from
  return ends.exec(text)?.index ?? text.length
}

/**
 * Returns the pieces between `***`, without an empty one at either end. `undefined` if another piece is
 * empty.
 */
export function countParagraphs(text: string): number | undefined {
  return filledPieces(text, '***')?.length
}

/** Returns true if there are two different answers with `******` between them. */
export function hasTwoResponses(text: string): boolean {
  const [first, second, ...rest] = filledPieces(text, '******') ?? []
  return second !== undefined && rest.length === 0 && first !== second
}

function filledPieces(text: string, separator: string): string[] | undefined {
  const pieces = text.split(separator).map(strip)
  const isGap = pieces.slice(1, -1).includes('')
  return isGap ? undefined : pieces.filter((piece) => piece !== '')
}

/** Counts `name` with a number after it, with an optional space between them. */
export function countSections(text: string, name: string): number {
  const digit = /\p{Nd}/u
  const isDigitAt = (at: number) => digit.test(String.fromCodePoint(text.codePointAt(at) ?? 32))
  let [count, at] = [0, 0]
  for (;;) {
    const start = text.indexOf(name, at)
    if (start < 0) return count
    const behind = start + name.length
    const isNumbered = isDigitAt(behind) || (isSpaceAt(text, behind) && isDigitAt(behind + 1))
    if (isNumbered) count++
    at = isNumbered ? behind : start + 1
  }
}

/** Returns true if a line holds `<<...>>` with more than spaces and brackets inside. */
export function hasTitle(text: string): boolean {
  return text.split('\n').some((line) => {
    const [start, end] = [line.indexOf('<<'), line.lastIndexOf('>>')]
    if (start < 0 || end < start + 3) return false
    const inside = line.slice(start, end + 2)
    return strip(trimEnd(trimStart(inside, '<'), '>')) !== ''
  })
}

/** Counts paragraphs, which an empty line separates; those of only spaces do not count. */
export function countBlankSeparated(text: string): number {
  return text.split('\n\n').filter((paragraph) => strip(paragraph) !== '').length
}

/**
 * Returns the first word of the paragraph number `nth` in lower case, without quotes before it, up to its
 * first punctuation. Paragraphs of only spaces are not counted, but have a number, as in the original.
 */
export function firstWordOfParagraph(text: string, nth: number): string | undefined {
  if (nth > countBlankSeparated(text)) return undefined
  const paragraph = strip(text.split('\n\n', nth).at(nth - 1) ?? '')
  if (paragraph === '') return undefined
  const [word = ''] = paragraph.split(FIRST_SPACE, 1)
  const bare = trimStart(trimStart(word, "'"), '"')
  return (bare.split(/[.,?!'"]/, 1)[0] ?? '').toLowerCase()
}

const FIRST_SPACE = new RegExp(`[${SPACES}]`)

/** Returns true if a text without its code fence is JSON. `python` accepts `NaN` and infinities, as Python does. */
export function isJson(text: string, dialect: 'python' | 'strict'): boolean {
  let json = strip(text)
  for (const fence of ['```json', '```Json', '```JSON', '```']) {
    if (json.startsWith(fence)) json = json.slice(fence.length)
  }
  if (json.endsWith('```')) json = json.slice(0, -3)
  try {
    JSON.parse(strip(dialect === 'python' ? withoutSpecialNumbers(json) : json))
    return true
  } catch {
    return false
  }
}

/** Replaces each `NaN`, `Infinity` and `-Infinity` outside a string by 0. */
function withoutSpecialNumbers(json: string): string {
  if (!json.includes('NaN') && !json.includes('Infinity')) return json
  const pieces: string[] = []
  let [from, isString] = [0, false]
  const flush = (to: number) => {
    const piece = json.slice(from, to)
    pieces.push(isString ? piece : piece.replace(/(?<![\w.+-])(?:NaN|-?Infinity)(?!\w)/g, '0'))
    from = to
  }
  for (let at = 0; at < json.length; at++) {
    if (isString && json[at] === '\\') at++
    else if (json[at] === '"') {
      flush(isString ? at + 1 : at)
      isString = !isString
    }
  }
  flush(json.length)
  return pieces.join('')
}

/**
 * Returns true if a postscript begins anywhere: `P.P.S` and `P.S.` with spaces between their letters, others
 * exactly.
 */
export function hasPostscript(text: string, marker: string): boolean {
  const lower = text.toLowerCase()
  const known = POSTSCRIPTS.get(marker)
  return known ? known.test(lower) : countOf(lower, marker.toLowerCase()) > 0
}

const POSTSCRIPTS: ReadonlyMap<string, RegExp> = new Map([
  ['P.P.S', new RegExp(`p\\.[${SPACES}]?p\\.[${SPACES}]?s`)],
  ['P.S.', new RegExp(`p\\.[${SPACES}]?s\\.`)],
])

function trimStart(text: string, letter: string): string {
  let start = 0
  while (text[start] === letter) start++
  return text.slice(start)
}

function trimEnd(text: string, letter: string): string {
  let end = text.length
  while (end > 0 && text[end - 1] === letter) end--
  return text.slice(0, end)
}
