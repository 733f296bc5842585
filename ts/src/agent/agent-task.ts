/** Tasks whose rollouts are run by an agent: a program of its own in any language, or a function. */

import { Slots } from '../async/index.js'
import { Programs } from '../async/programs.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { listDataset } from '../data/index.js'
import type { RewardFn, RolloutView, Split, Task } from '../env/index.js'
import { AgentEnv } from './agent-env.js'
import type { InterceptionServerOptions } from './interception-server.js'
import { SharedServer } from './shared-server.js'

/** One rollout, as an agent that is a function gets it. */
export interface AgentCall<Sample> {
  /** Address of the endpoint, as `OPENAI_BASE_URL`. */
  readonly baseURL: string
  /** Key of this rollout, as `OPENAI_API_KEY`. */
  readonly apiKey: string
  readonly sample: Sample
  /** Empty folder for files. */
  readonly folder: string
  /** Fires when the rollout must end. */
  readonly signal: AbortSignal
}

/** Options of {@link agentTask}. */
export interface AgentTaskOptions<Sample> {
  /**
   * Program and arguments, such as `['node', 'agent.mjs']`: one process a rollout, started without a shell in the
   * current folder. Either this or `run`.
   */
  readonly command?: readonly string[]
  /** The agent as a function. Either this or `command`. */
  readonly run?: (call: AgentCall<Sample>) => Promise<void>
  /** Samples to train on, at least one; in a new order each pass. A command gets its sample as JSON. */
  readonly samples: readonly Sample[]
  /**
   * Samples for evaluation only, in order.
   * @default samples
   */
  readonly validationSamples?: readonly Sample[]
  /**
   * Returns the reward of a rollout; `rollout.program` has the exit code, the folder and the log.
   * @default the reward that the agent posted to `/v1/fulmar/reward`; without one the rollout is unscored
   */
  readonly score?: RewardFn<Sample>['score']
  /**
   * Returns true if a rollout passes in an evaluation.
   * @default its reward is at least 1
   */
  readonly isSolved?: (rollout: RolloutView, sample: Sample) => boolean
  /**
   * Name of the task, in metrics and logs.
   * @default 'agent'
   */
  readonly name?: string
  /**
   * More environment variables of a command.
   * @default those of this process alone
   */
  readonly env?: Readonly<Record<string, string>>
  /**
   * Processes that are killed at the end of a command. `group`: its process group, which a process leaves by `setsid`, as daemons do: such a
   * process outlives the rollout. `namespace`: all that it started, as it runs in a process namespace of its own by bubblewrap
   * (`bwrap`, Linux only); files, network and rights are those of this process.
   * @default 'group'
   */
  readonly processes?: 'group' | 'namespace'
  /**
   * Deadline of an agent in milliseconds. It is then killed, and the rollout is an error.
   * @default 600_000
   */
  readonly timeoutMs?: number
  /**
   * Maximum number of agents at a time; others wait.
   * @default 16
   */
  readonly concurrency?: number
  /**
   * Folder in which the folder of each rollout is kept, with its log as `agent.log`.
   * @default folders are temporary
   */
  readonly keepIn?: string
  /** Address and limits of the endpoint. @default any free port of the loopback address */
  readonly server?: InterceptionServerOptions
  /**
   * Seed of the order of each pass over `samples`.
   * @default 0
   */
  readonly seed?: number
}

const KEYS: readonly (keyof AgentTaskOptions<never>)[] = [
  ...(['command', 'run', 'samples', 'validationSamples', 'score', 'isSolved', 'name', 'env'] as const),
  ...(['processes', 'timeoutMs', 'concurrency', 'keepIn', 'server', 'seed'] as const),
]

/** Ways to end a command. */
const PROCESSES = ['group', 'namespace'] as const

const TIMEOUT_MS_DEFAULT = 600_000
const CONCURRENCY_DEFAULT = 16

/**
 * Makes a task of an agent, for `grpo`, `evaluate` and `Rollouter`. The agent asks an OpenAI endpoint for its answers, and
 * each rollout has a ledger of the tokens that were really sampled.
 *
 * A command has these environment variables: `OPENAI_BASE_URL` and `OPENAI_API_KEY`, which clients read by themselves;
 * `FULMAR_SAMPLE`, its sample as JSON; `FULMAR_FOLDER`, an empty folder for its files. Exit code 0 is a completed
 * rollout, another one is an error. At its end its whole process group is killed; see `processes` for what leaves the group.
 *
 * Temperature, filters and limits are those of the rollouter, whatever a request asks for. A rollouter's
 * `stepTimeoutMs`, `onTruncation` and `minCompletionTokens` are for conversations that it holds itself. Node only.
 *
 * @throws {FulmarError} `EMPTY` without a sample or a command; `MALFORMED` for both or none of `command` and `run`, or an
 * option of another form; `OUT_OF_RANGE` for a number; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { CharTokenizer, createRenderer, Rollouter } from 'fulmar'
 * import { agentTask } from 'fulmar/agent'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * const task = agentTask({
 *   samples: [{ country: 'Norway', capital: 'Oslo' }],
 *   run: async ({ baseURL, apiKey, sample: { country } }) => {
 *     const messages = [{ role: 'user', content: `Capital of ${country}?` }]
 *     const headers = { authorization: `Bearer ${apiKey}` }
 *     const body = JSON.stringify({ model: 'any', messages })
 *     await fetch(`${baseURL}/chat/completions`, { method: 'POST', headers, body })
 *   },
 *   score: ({ turns }, { capital }) => Number(turns.at(-1)?.completionMessage?.content === capital),
 * })
 * using tokenizer = new CharTokenizer()
 * using renderer = createRenderer(tokenizer, { name: 'chatml' })
 * const says = (text: string) => [...tokenizer.encode(text).ids, renderer.stopIds[0] ?? 0]
 * const policy = new ScriptedPolicy({ reply: (_, call) => says(call === 0 ? 'Oslo' : 'Bergen') })
 * const rollouter = new Rollouter({ policy, task, renderer, groupSize: 2, maxTokens: 32 })
 * using group = await rollouter.runGroup({ sample: task.makeDataset('train').next(), groupId: 0 })
 * assert.deepEqual(group.rollouts.map(({ reward }) => reward).sort(), [0, 1])
 * ```
 */
export function agentTask<Sample>(options: AgentTaskOptions<Sample>): Task<Sample> {
  checkOptions(options)
  const { name = 'agent', samples, validationSamples = samples, score = postedReward, seed = 0 } = options
  const { timeoutMs = TIMEOUT_MS_DEFAULT, concurrency = CONCURRENCY_DEFAULT, server = {} } = options
  const shared = {
    server: new SharedServer(server),
    slots: new Slots(concurrency),
    programs: new Programs(),
  }
  return {
    name,
    makeDataset: (split: Split) =>
      split === 'train'
        ? listDataset({ items: samples, shuffleSeed: seed })
        : listDataset({ items: validationSamples }),
    makeEnv: (sample) => new AgentEnv({ ...options, ...shared, timeoutMs }, sample),
    rewardFns: [{ name: 'score', score }],
    isSolved: options.isSolved ?? (({ reward }) => (reward ?? 0) >= 1),
  }
}

function postedReward({ program }: RolloutView) {
  const rule = 'the agent must post a reward to /v1/fulmar/reward, as the task has no score: it posted none'
  return program?.posted ?? { unscored: rule }
}

function checkOptions<Sample>(options: AgentTaskOptions<Sample>): void {
  checkKnownKeys('options', options, KEYS, ['samples'])
  const { command, run, samples, validationSamples = samples, score, isSolved, env = {} } = options
  const { timeoutMs = TIMEOUT_MS_DEFAULT, concurrency = CONCURRENCY_DEFAULT } = options
  if ((command === undefined) === (run === undefined)) {
    const got = command === undefined ? 'neither' : 'both'
    throw new FulmarError('MALFORMED', `options must have either a command or a function run: got ${got}`)
  }
  for (const [name, value] of Object.entries({ command: command ?? ['none'], samples, validationSamples })) {
    if (!Array.isArray(value) || value.length === 0)
      throw new FulmarError(
        'EMPTY',
        `${name} must be a list that holds something: got ${describeValue(value)}`,
      )
  }
  for (const [name, value] of Object.entries({ command: command ?? [], env: Object.values(env) })) {
    const other = value.find((part: unknown) => typeof part !== 'string')
    if (other !== undefined)
      throw new FulmarError('MALFORMED', `${name} must hold texts: got ${describeValue(other)}`)
  }
  for (const [name, value] of Object.entries({ run, score, isSolved })) {
    if (value !== undefined && typeof value !== 'function')
      throw new FulmarError('MALFORMED', `${name} must be a function: got ${describeValue(value)}`)
  }
  const { processes = 'group' } = options
  if (!PROCESSES.includes(processes)) {
    const rule = `processes must be ${PROCESSES.join(' or ')}`
    throw new FulmarError('UNKNOWN_NAME', `${rule}: got ${describeValue(processes)}`)
  }
  if (processes !== 'group' && command === undefined)
    throw new FulmarError('MALFORMED', `processes must be group for a function: got ${processes}`)
  for (const [name, value] of Object.entries({ timeoutMs, concurrency })) {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new FulmarError('OUT_OF_RANGE', `${name} must be a positive integer: got ${value}`)
  }
}
