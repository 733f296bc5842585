/**
 * The task `alphabetSort`: sort names by first or last name, over several turns that each bring new ones.
 *
 * Samples come from the seeded generator of this package, not from CPython's: the task is the same, its
 * stream of samples differs.
 */

import type { Message } from '../chat/index.js'
import { checkGiven, checkKnownKeys, describeValue, FulmarError, type Rng } from '../core/index.js'
import { generatedDataset } from '../data/index.js'
import type { RolloutView, Task } from '../env/index.js'
import { similarity, tagBlocks } from '../reward/index.js'
import { ALPHABET_NAMES } from './alphabet-names.js'

/** Name that is compared first; the other one breaks ties. */
export type NameKey = 'first' | 'last'

/** One problem. */
export interface AlphabetSortSample {
  readonly sortBy: NameKey
  /** The new names of each turn, in the order in which they are shown. */
  readonly batches: readonly (readonly string[])[]
}

/** Options of {@link alphabetSort}. */
export interface AlphabetSortOptions {
  /**
   * Seed of both streams. A non-negative safe integer.
   * @default 0
   */
  readonly seed?: number
  /**
   * Names of two parts such as `AliceZephyr`, all different.
   * @default 576 made-up ones
   */
  readonly names?: readonly string[]
  /**
   * Maximum number of turns of a problem.
   * @default 3
   */
  readonly maxTurns?: number
  /**
   * Maximum number of names of a turn.
   * @default 5
   */
  readonly maxNamesPerTurn?: number
}

/** Upper limit of `maxTurns` and `maxNamesPerTurn`. */
export const ALPHABET_SORT_MAX = 8

/** UTF-16 units of a name. */
const NAME_LENGTH_MAX = 18

/**
 * Makes the task. A problem has 1 to `maxTurns` turns of 1 to `maxNamesPerTurn` new names. The one reward is the mean of {@link alphabetScore} over
 * the turns that should be there; a turn that is missing counts 0. A rollout solves it if every turn is exactly right.
 *
 * @throws {FulmarError} `OUT_OF_RANGE` if a maximum is not from 1 to 8 or there are fewer names than a problem may need;
 * `MALFORMED` for a name without two parts or one that is there twice; `UNKNOWN_NAME` for an unknown key.
 *
 * @example
 * ```ts
 * import { alphabetSort } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const task = alphabetSort({ seed: 7, maxTurns: 1 })
 * const { batches, sortBy } = task.makeDataset('train').next()
 * assert.equal(batches.length, 1)
 * assert.ok(sortBy === 'first' || sortBy === 'last')
 * ```
 */
export function alphabetSort(options: AlphabetSortOptions = {}): Task<AlphabetSortSample> {
  checkKnownKeys('alphabetSort', options, ['seed', 'names', 'maxTurns', 'maxNamesPerTurn'])
  const { seed = 0, names = ALPHABET_NAMES, maxTurns = 3, maxNamesPerTurn = 5 } = options
  checkMax('maxTurns', maxTurns)
  checkMax('maxNamesPerTurn', maxNamesPerTurn)
  checkNames(names, maxTurns * maxNamesPerTurn)
  const make = (rng: Rng) => drawSample(rng, { names, maxTurns, maxNamesPerTurn })
  return {
    name: 'alphabetSort',
    makeDataset: (split) => generatedDataset({ seed, name: `alphabetSort/${split}`, make }),
    makeEnv: (sample) => {
      let turn = 0
      return {
        init: () => ({ initPromptMessages: [question(sample, 0)] }),
        step: () => {
          turn++
          return turn < sample.batches.length ? { envMessages: [question(sample, turn)] } : { done: true }
        },
        close: () => undefined,
      }
    },
    rewardFns: [{ name: 'alphabetSort', score: (rollout, sample) => mean(turnScores(rollout, sample)) }],
    isSolved: (rollout, sample) => turnScores(rollout, sample).every((score) => score === 1),
  }
}

/**
 * Returns the expected lines of a turn: the names of this turn and of all before in order, with ` // new
 * name!` after each new one from the second turn on.
 *
 * @example
 * ```ts
 * import { sortedNames } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const sample = { sortBy: 'last' as const, batches: [['AliceZephyr', 'BobYang'], ['CarolXu']] }
 * assert.deepEqual(sortedNames(sample, 0), ['BobYang', 'AliceZephyr'])
 * assert.deepEqual(sortedNames(sample, 1), ['CarolXu // new name!', 'BobYang', 'AliceZephyr'])
 * ```
 */
export function sortedNames(sample: AlphabetSortSample, turn: number): string[] {
  checkGiven('sample', sample)
  const { sortBy, batches } = sample
  const fresh = new Set(turn > 0 ? batches[turn] : [])
  return batches
    .slice(0, turn + 1)
    .flat()
    .map((name) => ({ name, key: keyOf(name, sortBy) }))
    .sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0))
    .map(({ name }) => (fresh.has(name) ? `${name}${NEW_MARK}` : name))
}

/**
 * Scores the similarity of a response to the `wanted` lines: that of its last block with the turn's tag, to
 * the power of 4. Letter case, blank lines and spaces around lines are ignored. 0 without such a block.
 *
 * @example
 * ```ts
 * import { alphabetScore } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const response = '<alphabetical_sorted>\nbobyang\n AliceZephyr\n</alphabetical_sorted>'
 * assert.equal(alphabetScore(response, ['BobYang', 'AliceZephyr'], 0), 1)
 * assert.equal(alphabetScore(response, ['BobYang', 'AliceZephyr'], 1), 0)
 * ```
 */
export function alphabetScore(response: string, wanted: readonly string[], turn: number): number {
  checkGiven('response', response)
  const block = tagBlocks(response.toLowerCase(), tagOf(turn)).at(-1)
  return block === undefined ? 0 : similarity(linesOf(block), linesOf(wanted.join('\n'))) ** 4
}

function linesOf(block: string): string {
  const lines = block.split('\n').map((line) => line.trim())
  return lines
    .filter((line) => line !== '')
    .join('\n')
    .toLowerCase()
}

function turnScores({ turns }: RolloutView, sample: AlphabetSortSample): readonly number[] {
  return sample.batches.map((_, turn) => {
    const content = turns[turn]?.completionMessage?.content
    return typeof content === 'string' ? alphabetScore(content, sortedNames(sample, turn), turn) : 0
  })
}

function mean(numbers: readonly number[]): number {
  return numbers.reduce((sum, number) => sum + number, 0) / numbers.length
}

function tagOf(turn: number): string {
  return turn === 0 ? 'alphabetical_sorted' : 'combined_alphabetical_sorted'
}

const NEW_MARK = ' // new name!'

function question({ sortBy, batches }: AlphabetSortSample, turn: number): Message {
  const names = (batches[turn] ?? []).join('\n')
  const example = `<${tagOf(turn)}>\nName1\nName2${turn > 0 ? NEW_MARK : ''}\n...\n</${tagOf(turn)}>`
  const content = [
    `Sort these names in alphabetical order by ${sortBy} name:\n\n${names}\n\nUse exactly this format:\n${example}`,
    `Now sort these names together with all names before, by ${sortBy} name. Mark the new ones with "${NEW_MARK.trim()}":\n\n${names}\n\n\
Use exactly this format:\n${example}`,
  ][turn]
  const again = `Now sort these names together with all names before, in the same format; mark only the newest with "${NEW_MARK.trim()}":\n\n${names}`
  return { role: 'user', content: content ?? again }
}

interface DrawRule {
  readonly names: readonly string[]
  readonly maxTurns: number
  readonly maxNamesPerTurn: number
}

/** Draws the numbers of turns and names, then the names without repeats, then the sort key. */
function drawSample(rng: Rng, { names, maxTurns, maxNamesPerTurn }: DrawRule): AlphabetSortSample {
  const sizes = Array.from({ length: 1 + rng.below(maxTurns) }, () => 1 + rng.below(maxNamesPerTurn))
  const taken = new Set<number>()
  const batches = sizes.map((size) =>
    Array.from({ length: size }, () => {
      let place = rng.below(names.length)
      // Probes for the next free name: there are more names than a problem needs, so this ends.
      while (taken.has(place)) place = (place + 1) % names.length
      taken.add(place)
      return names[place] ?? ''
    }),
  )
  return { sortBy: rng.below(2) === 0 ? 'first' : 'last', batches }
}

/** Returns both parts in lower case, the chosen one first. */
function keyOf(name: string, sortBy: NameKey): string {
  const [first = '', last = ''] = partsOf(name) ?? []
  const parts = sortBy === 'first' ? [first, last] : [last, first]
  return parts.join('\0').toLowerCase()
}

function partsOf(name: string): readonly string[] | undefined {
  const parts = name.match(/[A-Z][a-z]+/g) ?? []
  return parts.length === 2 && parts.join('') === name ? parts : undefined
}

function checkNames(names: readonly string[], needed: number): void {
  const known = new Set<string>()
  const wrong = names.find((name) => {
    const isWrong = partsOf(name) === undefined || name.length > NAME_LENGTH_MAX || known.has(name)
    known.add(name)
    return isWrong
  })
  if (wrong !== undefined) {
    throw new FulmarError(
      'MALFORMED',
      `names must be different, of two parts like "AliceZephyr", at most ${NAME_LENGTH_MAX} letters: got ${describeValue(wrong)}`,
    )
  }
  if (names.length < needed) {
    throw new FulmarError(
      'OUT_OF_RANGE',
      `names must be at least ${needed} for such problems: got ${names.length}`,
    )
  }
}

function checkMax(name: string, value: number): void {
  if (!Number.isSafeInteger(value) || value < 1) {
    throw new FulmarError('OUT_OF_RANGE', `${name} must be >= 1: got ${describeValue(value)}`)
  }
  if (value > ALPHABET_SORT_MAX) {
    throw new FulmarError('OUT_OF_RANGE', `${name} must be <= ${ALPHABET_SORT_MAX}: got ${value}`)
  }
}
