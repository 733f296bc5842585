/** Checks of option objects: an unknown key is an error that suggests the nearest name. */

import { FulmarError } from './error.js'
import { PEER_WORDS } from './peer-words.js'

/**
 * Rejects keys of `options` that are not in `known`, and options without one of `required`. `place` names the
 * object in the message. Does not check values; `field` reads whole objects of plain JSON.
 * @throws
 * {FulmarError} `MALFORMED` if `options` is not a plain object, or a required key is absent or undefined;
 * `UNKNOWN_NAME` for the first unknown key.
 */
export function checkKnownKeys(
  place: string,
  options: unknown,
  known: readonly string[],
  required: readonly string[] = [],
): void {
  if (typeof options !== 'object' || options === null || Array.isArray(options)) {
    throw new FulmarError('MALFORMED', `${place} must be an object: got ${describeValue(options)}`)
  }
  for (const key of Object.keys(options)) {
    if (known.includes(key)) continue
    const nearest = nearestName(key, known)
    const name = `${place}.${key.slice(0, NAME_LENGTH_MAX)}`
    const hint = nearest === undefined ? `known are ${known.join(', ')}` : `did you mean '${nearest}'?`
    throw new FulmarError('UNKNOWN_NAME', `${name} must be a known key: ${hint}`)
  }
  for (const key of required) {
    if (Reflect.get(options, key) === undefined)
      throw new FulmarError('MALFORMED', `${place}.${key} must be given: it is undefined`)
  }
}

/**
 * Rejects an absent argument, which plain JavaScript allows. `name` is the parameter.
 * @throws {FulmarError}
 * `MALFORMED` for `undefined` and `null`.
 */
export function checkGiven(name: string, value: unknown): void {
  if (value === undefined || value === null)
    throw new FulmarError('MALFORMED', `${name} must be given: it is ${describeValue(value)}`)
}

/**
 * Rejects values without items to iterate. `name` is the parameter.
 * @throws {FulmarError} `MALFORMED`.
 */
export function checkList(name: string, value: unknown): void {
  if (typeof value !== 'object' || value === null || !(Symbol.iterator in value))
    throw new FulmarError('MALFORMED', `${name} must be a list: got ${describeValue(value)}`)
}

/**
 * Returns the member of `known` that `name` most likely means, or `undefined` if none is near. Tries our word
 * for a word of TRL, transformers or PyTorch (`lr`, `num_generations`, `float32`), then the same word in
 * another form (`group_size`), then the smallest edit distance, at most half of its letters. Letter case
 * counts half an edit. Costs `O(|name| * |known|)` letters.
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  checkGiven('name', name)
  checkGiven('known', known)
  const start = name.slice(0, NAME_LENGTH_MAX)
  const same = wordsFor(start).find((word) => known.includes(word)) ?? sameLetters(start, known)
  if (same !== undefined) return same
  let nearest: string | undefined
  let fewest = Number.POSITIVE_INFINITY
  for (const candidate of known) {
    const edits = editDistance(start, candidate)
    if (edits < fewest && edits <= Math.max(start.length, candidate.length) / 2) {
      nearest = candidate
      fewest = edits
    }
  }
  return nearest
}

/**
 * Describes a value briefly for a message: `NaN`, `null`, `"text"`, `an array of 3`, `an object`.
 */
export function describeValue(value: unknown): string {
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}...` : value)
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value === 'function') return 'a function'
  return String(value)
}

/** Returns our words for a word of another library, in any letter case. */
function wordsFor(name: string): readonly string[] {
  const snake = name.replaceAll(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`).replaceAll('-', '_')
  const words = [name, name.toLowerCase(), snake].find((word) => Object.hasOwn(PEER_WORDS, word))
  return words === undefined ? [] : (PEER_WORDS[words] ?? [])
}

/** Returns the known name with the same letters as `name`, in another case or with other separators. */
function sameLetters(name: string, known: readonly string[]): string | undefined {
  const letters = lettersOf(name)
  return letters === '' ? undefined : known.find((candidate) => lettersOf(candidate) === letters)
}

function lettersOf(name: string): string {
  return name.toLowerCase().replaceAll(/[^a-z0-9]/g, '')
}

/** Longer names are compared by their beginning, as keys may come from untrusted files. */
const NAME_LENGTH_MAX = 64

/**
 * Computes the edit distance with swaps of neighbours (optimal string alignment); a change of letter case
 * costs a half.
 */
function editDistance(from: string, to: string): number {
  const cost = Array.from({ length: from.length + 1 }, (_, i) =>
    Array.from({ length: to.length + 1 }, (_, j) => i || j),
  )
  const at = (i: number, j: number) => cost[i]?.[j] ?? Number.POSITIVE_INFINITY
  for (let i = 1; i <= from.length; i++) {
    for (let j = 1; j <= to.length; j++) {
      const [a, b] = [from.charAt(i - 1), to.charAt(j - 1)]
      const change = a === b ? 0 : a.toLowerCase() === b.toLowerCase() ? 0.5 : 1
      const swapped = i > 1 && j > 1 && a === to.charAt(j - 2) && b === from.charAt(i - 2)
      const best = Math.min(at(i - 1, j) + 1, at(i, j - 1) + 1, at(i - 1, j - 1) + change)
      const line = cost[i]
      if (line) line[j] = swapped ? Math.min(best, at(i - 2, j - 2) + 1) : best
    }
  }
  return at(from.length, to.length)
}
