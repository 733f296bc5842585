/** Custom tasks: rows, prompts, tools and rewards. */

import type { Message } from '../chat/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import type { RewardFn, RolloutView, Task } from '../env/index.js'
import { type Tool, type ToolCallParser, ToolRunner, toolInstructions, withTools } from '../tools/index.js'
import { questionEnv, rowDatasets } from './question-task.js'

/**
 * A reward that {@link defineTask} takes for its rows: one of these rows, or one of any object. Rows typed by an interface have no
 * index signature, so the compiler does not see that such a reward can read them.
 */
export type RewardOf<Row> =
  | RewardFn<Row>
  | (Row extends object ? RewardFn<Readonly<Record<string, unknown>>> : never)

/** Options of {@link defineTask}. */
export interface DefineTaskOptions<Row> {
  /** Rows to train on, at least one; in a new order each pass. */
  readonly rows: readonly Row[]
  /**
   * Rows for evaluation only, in order.
   * @default rows
   */
  readonly validationRows?: readonly Row[]
  /** Returns the prompt of a row: the text of a user's message, or the first messages of the conversation. */
  readonly prompt: (row: NoInfer<Row>) => string | readonly Message[]
  /** Rewards of an answer, combined as their weighted mean. At least one; see `reward`. */
  readonly rewards: readonly RewardOf<NoInfer<Row>>[]
  /**
   * The name of the task, in metrics and logs.
   * @default 'task'
   */
  readonly name?: string
  /**
   * System message before the prompt.
   * @default none
   */
  readonly systemPrompt?: string
  /**
   * Tools that the policy may call, or a runner with its own limits. The conversation continues after each
   * call, until an answer without one; `maxTurns` of the rollouts limits the number of turns.
   * @default none
   */
  readonly tools?: readonly Tool[] | ToolRunner
  /**
   * Parser of tool calls in texts, for a model whose chat template does not support tools: the system message
   * then describes the tools and the form of a call.
   * @default the chat template describes the tools, and the renderer parses calls
   */
  readonly toolParser?: ToolCallParser
  /**
   * Returns true if a rollout passes in an evaluation.
   * @default its reward is at least 1
   */
  readonly isSolved?: (rollout: RolloutView, row: Row) => boolean
  /**
   * Returns the right answer to a row, for a supervised warm start: the text of an assistant's message, or
   * messages.
   * @default the task has none
   */
  readonly answer?: (row: NoInfer<Row>) => string | readonly Message[]
  /**
   * Seed of the order of each pass over `rows`.
   * @default 0
   */
  readonly seed?: number
}

/**
 * Constructs a task from rows, for `grpo`, `expertIteration`, `evaluate` and `Rollouter`.
 *
 * @throws {FulmarError} `EMPTY` without a row or a reward; `MALFORMED` for an option of another form; `UNKNOWN_NAME` for an unknown option;
 * when it runs, `MALFORMED` for a prompt that is neither a text nor messages.
 *
 * @example
 * ```ts
 * import { defineTask, reward } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const capitals = defineTask({
 *   rows: [{ country: 'Norway', capital: 'Oslo' }],
 *   prompt: ({ country }) => `What is the capital of ${country}?`,
 *   rewards: [reward('exact', ({ text, sample }) => text.trim() === sample.capital)],
 * })
 * const row = capitals.makeDataset('train').next()
 * const { initPromptMessages } = await capitals.makeEnv(row).init({ signal: new AbortController().signal })
 * assert.deepEqual(initPromptMessages, [{ role: 'user', content: 'What is the capital of Norway?' }])
 * ```
 */
export function defineTask<Row>(options: DefineTaskOptions<Row>): Task<Row> {
  checkKnownKeys('options', options, KEYS, ['rows', 'prompt', 'rewards'])
  const { name = 'task', prompt, rewards, systemPrompt, tools, toolParser: parser, answer } = options
  checkFunctions({ prompt, answer, isSolved: options.isSolved })
  if (!Array.isArray(rewards) || rewards.length === 0)
    throw new FulmarError('EMPTY', `rewards must hold a reward function: got ${describeValue(rewards)}`)
  const runner = runnerOf(tools)
  const instructions =
    runner && parser?.example !== undefined ? toolInstructions(runner.tools.specs, parser) : undefined
  const said = [systemPrompt, instructions].filter((text) => text !== undefined)
  const system = said.length === 0 ? [] : [{ role: 'system', content: said.join('\n\n') }]
  const promptOf = (row: Row) => [...system, ...messagesOf('prompt', prompt(row), 'user')]
  return {
    name,
    makeDataset: rowDatasets(options, (row) => row),
    makeEnv: (row) => {
      const env = questionEnv(() => promptOf(row))
      const inTemplate = instructions === undefined
      return runner ? withTools({ env, runner, inTemplate, ...(parser && { parser }) }) : env
    },
    rewardFns: rewards as readonly RewardFn<Row>[],
    isSolved: options.isSolved ?? (({ reward: scored }) => (scored ?? 0) >= 1),
    ...(answer && {
      workedExample: (row: Row) => [...promptOf(row), ...messagesOf('answer', answer(row), 'assistant')],
    }),
  }
}

const KEYS = [
  'rows',
  'validationRows',
  'prompt',
  'rewards',
  'name',
  'systemPrompt',
  'tools',
  'toolParser',
  'isSolved',
  'answer',
  'seed',
]

/** Returns one runner for all conversations, so that they share its limits; `undefined` without a tool. */
function runnerOf(tools: DefineTaskOptions<never>['tools']): ToolRunner | undefined {
  if (tools === undefined || tools instanceof ToolRunner) return tools
  if (!Array.isArray(tools))
    throw new FulmarError(
      'MALFORMED',
      `tools must be a list of tools or a ToolRunner: got ${describeValue(tools)}`,
    )
  return tools.length === 0 ? undefined : new ToolRunner({ tools })
}

function messagesOf(name: string, given: unknown, role: string): readonly Message[] {
  if (typeof given === 'string') return [{ role, content: given }]
  if (Array.isArray(given)) return given as readonly Message[]
  throw new FulmarError('MALFORMED', `${name} must return a text or messages: got ${describeValue(given)}`)
}

function checkFunctions(functions: Readonly<Record<string, unknown>>): void {
  for (const [name, value] of Object.entries(functions)) {
    if (value === undefined || typeof value === 'function') continue
    throw new FulmarError('MALFORMED', `${name} must be a function: got ${describeValue(value)}`)
  }
}
