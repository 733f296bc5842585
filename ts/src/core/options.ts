/** Option objects are closed: a key that nobody knows is a spelling mistake, and is answered with the nearest name. */

import { FulmarError } from './error.js'

/**
 * Refuses keys of `options` that are not in `known`. `place` is how the caller names the object in its message.
 * @throws {FulmarError} `MALFORMED` if `options` is not a plain object; `UNKNOWN_NAME` for the first unknown key.
 *
 * @example
 * ```ts
 * import { checkKnownKeys } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(() => checkKnownKeys('grpo', { groupsize: 8 }, ['groupSize', 'steps']), {
 *   code: 'UNKNOWN_NAME',
 *   message: "grpo.groupsize must be a known key: did you mean 'groupSize'?",
 * })
 * ```
 */
export function checkKnownKeys(place: string, options: unknown, known: readonly string[]): void {
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
}

/**
 * The member of `known` that needs the fewest edits to become `name`, or `undefined` if none is near: more than
 * half of its letters would change. Letter case counts half an edit. Costs `O(|name| * |known|)` letters.
 *
 * @example
 * ```ts
 * import { nearestName } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(nearestName('groupSzie', ['groupSize', 'steps']), 'groupSize')
 * assert.equal(nearestName('banana', ['groupSize', 'steps']), undefined)
 * ```
 */
export function nearestName(name: string, known: readonly string[]): string | undefined {
  const start = name.slice(0, NAME_LENGTH_MAX)
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
 * What a value is, short enough for a message: `NaN`, `null`, `"text"`, `an array of 3`, `an object`.
 *
 * @example
 * ```ts
 * import { describeValue } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(describeValue([1, 2, 3]), 'an array of 3')
 * assert.equal(describeValue('x'), '"x"')
 * ```
 */
export function describeValue(value: unknown): string {
  if (Array.isArray(value)) return `an array of ${value.length}`
  if (typeof value === 'string') return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}...` : value)
  if (typeof value === 'object' && value !== null) return 'an object'
  if (typeof value === 'function') return 'a function'
  return String(value)
}

/** Names longer than this are compared by their beginning: keys come from files that anybody wrote. */
const NAME_LENGTH_MAX = 64

/** Edit distance with swaps of neighbours (optimal string alignment); a change of letter case costs a half. */
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
