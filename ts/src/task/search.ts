/** The task `search`: questions with a tool `search` over a given index. */

import type { Message } from '../chat/index.js'
import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { lastCompletionText, type RolloutView, type Task } from '../env/index.js'
import { tagBlocks } from '../reward/index.js'
import { checkRowTaskOptions, type RowTaskOptions, rowDatasets, textOf } from './question-task.js'
import type { SearchIndex } from './search-index.js'

/** A question and every accepted answer. */
export interface SearchRow {
  readonly question: string
  /** Accepted answers, at least one. */
  readonly answers: readonly string[]
}

/** Options of {@link search}. */
export interface SearchTaskOptions extends RowTaskOptions<SearchRow> {
  /** Index that the tool searches. */
  readonly index: SearchIndex
  /**
   * Number of documents that one call returns.
   * @default 3
   */
  readonly topK?: number
  /**
   * Amount subtracted from a right answer without a search.
   * @default 0
   */
  readonly noSearchPenalty?: number
  /**
   * Reward of a wrong answer if a search had returned a right one.
   * @default 0
   */
  readonly retrievalScore?: number
}

/** Maximum number of calls of one message that get documents; the others get an error. */
export const SEARCH_CALLS_MAX = 16

/** Specification of the tool for the policy. */
const SEARCH_TOOL = {
  type: 'function',
  function: {
    name: 'search',
    description: 'Finds passages about a query.',
    parameters: {
      type: 'object',
      properties: { query: { type: 'string', description: 'What to look for.' } },
      required: ['query'],
    },
  },
} as const

/**
 * Constructs the task. Each call of `search` is answered by a message of role `tool` with passages `Doc
 * 1(Title: ...) ...`; a message without calls ends the rollout. The one reward is 1 if the answer is right,
 * less `noSearchPenalty` without a search. The answer is the last `<answer>`, else the whole message; it must
 * equal one of `answers` after lower case, punctuation, articles and spaces are normalized. A wrong answer
 * gets `retrievalScore` if a passage contains an answer. A rollout that ends on a call gets 0.
 *
 * @throws {FulmarError} `EMPTY` if there is no row; `MALFORMED` for a row without question or answers, with
 * its index; `OUT_OF_RANGE` for a `topK` that is not a positive integer or a reward that is not finite;
 * `UNKNOWN_NAME` for an unknown key.
 *
 * @example
 * ```ts
 * import { search, searchIndex } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * const index = searchIndex([{ title: 'Oslo', text: 'Oslo is the capital of Norway.' }])
 * const task = search({ rows: [{ question: 'What is the capital of Norway?', answers: ['Oslo'] }], index })
 * const env = task.makeEnv(task.makeDataset('train').next())
 * const context = { signal: new AbortController().signal }
 * const call = { id: 'a', type: 'function', function: { name: 'search', arguments: { query: 'capital of Norway' } } }
 * const { envMessages = [] } = await env.step({ role: 'assistant', content: null, tool_calls: [call] }, context)
 * assert.equal(envMessages[0]?.content, 'Doc 1(Title: Oslo) Oslo is the capital of Norway.')
 * assert.equal((await env.step({ role: 'assistant', content: 'Oslo' }, context)).done, true)
 * ```
 */
export function search(options: SearchTaskOptions): Task<SearchRow> {
  checkKnownKeys(
    'options',
    options,
    ['index', 'topK', 'noSearchPenalty', 'retrievalScore', 'rows', 'validationRows', 'seed', 'systemPrompt'],
    ['index', 'rows'],
  )
  checkRowTaskOptions('search', options, ['index', 'topK', 'noSearchPenalty', 'retrievalScore'])
  const { index, topK = 3, noSearchPenalty = 0, retrievalScore = 0, systemPrompt = SYSTEM_PROMPT } = options
  if (!Number.isSafeInteger(topK) || topK < 1) refuse('topK', 'a positive integer', topK)
  for (const [name, value] of Object.entries({ noSearchPenalty, retrievalScore })) {
    if (!Number.isFinite(value)) refuse(name, 'finite', value)
  }
  const system = systemPrompt === null ? [] : [{ role: 'system', content: systemPrompt }]
  return {
    name: 'search',
    makeDataset: rowDatasets(options, checkedRow),
    makeEnv: ({ question }) => ({
      init: () => ({
        initPromptMessages: [...system, { role: 'user', content: question }],
        tools: [SEARCH_TOOL],
      }),
      step: (message) => {
        const calls = callsOf(message)
        const envMessages = calls.map((call, place) => toolMessage(call, answerTo(call, place, index, topK)))
        return calls.length === 0 ? { done: true } : { envMessages }
      },
      close: () => undefined,
    }),
    rewardFns: [
      {
        name: 'search',
        score: (rollout, sample) => {
          if (isRight(rollout, sample)) return hasSearched(rollout) ? 1 : 1 - noSearchPenalty
          return !endsOnCall(rollout) && hasRetrieved(rollout, sample) ? retrievalScore : 0
        },
      },
    ],
    isSolved: isRight,
  }
}

/**
 * Normalizes an answer for comparison: lower case, without punctuation and the articles `a`, `an` and `the`,
 * one space between words.
 *
 * @example
 * ```ts
 * import { normalizeSearchAnswer } from 'fulmar/task'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(normalizeSearchAnswer('The  U.S. Army, an army.'), 'us army army')
 * ```
 */
export function normalizeSearchAnswer(answer: string): string {
  checkGiven('answer', answer)
  const words = answer
    .toLowerCase()
    .replace(/[!-/:-@[-`{-~]/g, '')
    .split(/\s/)
  return words.filter((word) => word !== '' && !['a', 'an', 'the'].includes(word)).join(' ')
}

const SYSTEM_PROMPT = `Answer the question. You may look facts up with the tool search, as often as you need. When you know the answer, give it alone \
between <answer> and </answer>.`

function checkedRow(row: SearchRow): SearchRow {
  const { answers } = row
  const areTexts =
    Array.isArray(answers) && answers.length > 0 && answers.every((answer) => typeof answer === 'string')
  if (!areTexts || answers.some((answer) => normalizeSearchAnswer(answer) === '')) {
    throw new FulmarError(
      'MALFORMED',
      `answers must be a list of texts with words: got ${describeValue(answers)}`,
    )
  }
  return { question: textOf(row, 'question'), answers: [...answers] }
}

/** A possible call of a tool, unchecked. */
interface Call {
  readonly id: unknown
  readonly name: unknown
  readonly query: unknown
}

function callsOf(message: Message | null | undefined): readonly Call[] {
  const calls = message?.tool_calls
  return Array.isArray(calls) ? calls.map(callOf) : []
}

/** Reads a call, whose fields are nested in `function` or at the top; arguments are an object or its JSON. */
function callOf(call: unknown): Call {
  const outer = fieldsOf(call)
  const inner = outer.function === undefined ? outer : fieldsOf(outer.function)
  return { id: outer.id, name: inner.name, query: fieldsOf(parsed(inner.arguments)).query }
}

function fieldsOf(value: unknown): Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null ? { ...value } : {}
}

function parsed(value: unknown): unknown {
  if (typeof value !== 'string') return value
  try {
    return JSON.parse(value)
  } catch {
    return undefined
  }
}

function answerTo({ name, query }: Call, place: number, index: SearchIndex, topK: number): string {
  if (place >= SEARCH_CALLS_MAX) return `Error: at most ${SEARCH_CALLS_MAX} calls in one message.`
  if (name !== 'search') return 'Error: the only tool is search.'
  if (typeof query !== 'string') return 'Error: search needs a query, a text.'
  const found = index.search(query, topK)
  return found.map(({ title, text }, at) => `Doc ${at + 1}(Title: ${title}) ${text}`).join('\n')
}

function toolMessage({ id }: Call, content: string): Message {
  return { role: 'tool', name: 'search', content, ...(typeof id === 'string' && { tool_call_id: id }) }
}

function isRight(rollout: RolloutView, { answers }: SearchRow): boolean {
  if (endsOnCall(rollout)) return false
  const text = lastCompletionText(rollout)
  const said = normalizeSearchAnswer(tagBlocks(text, 'answer').at(-1) ?? text)
  return answers.some((answer) => normalizeSearchAnswer(answer) === said)
}

function endsOnCall({ turns }: RolloutView): boolean {
  return callsOf(turns.at(-1)?.completionMessage).length > 0
}

function hasSearched({ turns }: RolloutView): boolean {
  return turns.some(({ completionMessage }) => callsOf(completionMessage).length > 0)
}

/** Returns true if a passage of the tool contains an answer as whole words. */
function hasRetrieved({ turns }: RolloutView, { answers }: SearchRow): boolean {
  const said = turns.flatMap(({ envMessages }) => envMessages).filter(({ role }) => role === 'tool')
  const texts = said.map(
    ({ content }) => ` ${normalizeSearchAnswer(typeof content === 'string' ? content : '')} `,
  )
  return answers.some((answer) => texts.some((text) => text.includes(` ${normalizeSearchAnswer(answer)} `)))
}

function refuse(name: string, rule: string, value: number): never {
  throw new FulmarError('OUT_OF_RANGE', `search.${name} must be ${rule}: got ${describeValue(value)}`)
}
