/** A task as an environment over dictionaries: one conversation of its own for each element. */

import type { Message } from '../../chat/index.js'
import { checkGiven, checkKnownKeys, describeValue, FulmarError, field } from '../../core/index.js'
import type { Dataset, DatasetState } from '../../data/index.js'
import {
  checkInitOutput,
  checkStepOutput,
  type EnvContext,
  type MessageEnv,
  type Split,
  type Task,
  type TurnView,
} from '../../env/index.js'
import { Rubric, type RubricOptions } from '../../rollout/index.js'
import { Binary, Composite, NonTensor, Unbounded } from '../../spec/index.js'
import { type Json, Tensor, TensorDict } from '../../tensor/index.js'
import { setEach } from '../data/dict-text.js'
import { chatsAt } from './chats-at.js'
import { checkBatchSize, type EnvBase, type InputMode } from './env.js'
import { flags } from './flag.js'
import { setScored, specScored } from './turn-score.js'

/** Options of {@link TaskChatEnv}. */
export interface TaskChatEnvOptions {
  /** Samples of the task. @default 'train' */
  readonly split?: Split
  /** Number of samples under way at once. A positive integer. @default 1 */
  readonly numEnvs?: number
  /** Number of consecutive episodes with the same sample: the group size. A positive integer. @default 1 */
  readonly repeats?: number
  /**
   * If true, all members of a group begin at the same reset, with `numEnvs * repeats` conversations.
   * @default false
   */
  readonly groupRepeats?: boolean
  /** An episode is truncated after so many turns. A positive integer. @default the task ends its episodes */
  readonly maxTurns?: number
  /** Options of the combination of the reward functions. @default as in a `Rollouter` */
  readonly rubric?: Omit<RubricOptions<never>, 'rewardFns'>
}

/** Position of a {@link TaskChatEnv}: plain JSON, for a checkpoint. */
export interface TaskChatEnvState {
  /** Position of the samples before the current one. */
  readonly dataset: DatasetState
  /** Episodes begun with the current sample. */
  readonly numTaken: number
  /** Groups begun so far. */
  readonly numGroups: number
}

/** A conversation under way. */
interface Episode<Sample> {
  readonly sample: Sample
  readonly env: MessageEnv
  readonly messages: Message[]
  readonly turns: TurnView[]
}

/** State of an episode after a step. */
interface StepResult {
  readonly prompt: readonly Message[]
  readonly isDone: boolean
  readonly isTruncated: boolean
  readonly reward: number
  readonly parts: Readonly<Record<string, number>>
  readonly unscored: string | null
}

const OPTION_KEYS = ['split', 'numEnvs', 'repeats', 'groupRepeats', 'maxTurns', 'rubric'] as const
const CARRIED = ['query', 'group_id', 'episode', 'tools'] as const
const COUNT = field.integer({ min: 0 })
const STATE = field.section({ dataset: field.json(), numTaken: COUNT, numGroups: COUNT })

/**
 * A batch of conversations of a task, as `ChatEnv.of` makes it. A reset takes the next samples and shows
 * `['history', 'prompt']`, `query` (the last message of the user), `group_id` and `episode` (`i64`, one a
 * conversation), and `tools` (what the task offers, for the `rendering` of a wrapper). A step takes the
 * assistant's message from `['history', 'response']` or the end of `['history', 'full']`. The step that ends an
 * episode scores it: `reward`, `f32 [...batch, 1, 1]`, and under `rewards` the raw score of each function;
 * before that they are 0. An episode that cannot be scored has the reward NaN, and `unscored` is the reason.
 *
 * Holds at most as many open conversations as the batch has elements: a reset beyond closes the oldest.
 *
 * @example
 * ```ts
 * import { sumDigits } from 'fulmar'
 * import { ChatEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = ChatEnv.of(sumDigits(), { repeats: 2, groupRepeats: true })
 * const policy = replyPolicy({ inputMode: 'history', reply: (_, at) => `[ANSWER] ${at}` })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 4 })
 * assert.deepEqual(step.tensor('group_id').data, BigInt64Array.of(0n, 0n))
 * assert.deepEqual(step.tensor(['next', 'reward']).shape, [2, 1, 1])
 * assert.deepEqual(step.tensor(['next', 'done']).data, Uint8Array.of(1, 1))
 * await env.close()
 * ```
 */
export class TaskChatEnv<Sample> implements EnvBase {
  readonly inputMode: InputMode = 'history'
  readonly batchSize: readonly number[]
  readonly observationSpec: Composite
  readonly actionSpec: Composite
  readonly rewardSpec: Composite
  readonly doneSpec: Composite
  readonly stateSpec: Composite
  readonly #task: Task<Sample>
  readonly #rubric: Rubric<Sample>
  readonly #repeats: number
  readonly #maxTurns: number
  readonly #dataset: Dataset<Sample>
  readonly #episodes = new Map<number, Episode<Sample>>()
  #stopping = new AbortController()
  readonly #start: DatasetState
  #before: DatasetState
  #sample: Sample | undefined
  #numTaken: number
  #numGroups = 0
  #numEpisodes = 0

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or split; `OUT_OF_RANGE` for a number that is not
   * a positive integer; those of `Rubric`, and of the task's dataset.
   */
  constructor(task: Task<Sample>, options: TaskChatEnvOptions = {}) {
    checkKnownKeys('options', options, OPTION_KEYS)
    checkGiven('task', task)
    const { split = 'train', numEnvs = 1, repeats = 1, groupRepeats = false, maxTurns } = options
    if (split !== 'train' && split !== 'validation')
      throw new FulmarError('UNKNOWN_NAME', `split must be train or validation: got ${describeValue(split)}`)
    for (const [name, value] of Object.entries({ numEnvs, repeats, maxTurns: maxTurns ?? 1 })) {
      if (!Number.isSafeInteger(value) || value < 1)
        throw new FulmarError(
          'OUT_OF_RANGE',
          `${name} must be a positive integer: got ${describeValue(value)}`,
        )
    }
    this.#task = task
    this.#rubric = new Rubric({ ...options.rubric, rewardFns: task.rewardFns })
    this.#repeats = repeats
    this.#maxTurns = maxTurns ?? Number.POSITIVE_INFINITY
    this.#dataset = task.makeDataset(split)
    this.#start = this.#dataset.stateDict()
    this.#before = this.#start
    this.#numTaken = repeats
    this.batchSize = checkBatchSize([groupRepeats ? numEnvs * repeats : numEnvs])
    const shape = this.batchSize
    const composite = () => new Composite({}, { shape })
    const words = (example: Json) => new NonTensor({ shape, batched: true, example })
    const count = () => new Unbounded({ shape, dtype: 'i64' })
    this.observationSpec = composite().set(['history', 'prompt'], words(chatOf('user')))
    this.actionSpec = composite().set(['history', 'full'], words(chatOf('assistant')))
    this.stateSpec = composite().set('query', words('')).set('tools', words([]))
    for (const name of ['group_id', 'episode']) this.stateSpec.set(name, count())
    this.rewardSpec = composite()
    for (const key of this.#rewardKeys()) this.rewardSpec.set(key, new Unbounded({ shape: [...shape, 1, 1] }))
    specScored(this.rewardSpec, shape)
    this.doneSpec = composite()
    for (const name of ['done', 'terminated', 'truncated'])
      this.doneSpec.set(name, new Binary(1, { shape: [...shape, 1], dtype: 'bool' }))
  }

  /**
   * Begins an episode for each element of `dict`, or of the batch. What else `dict` holds stays.
   * @throws {FulmarError} `SHAPE_MISMATCH` for a dictionary of other dimensions; `EMPTY`, `MALFORMED` or
   * `UNKNOWN_NAME` for what the environment of a sample gives; errors of the task.
   */
  async reset(dict?: TensorDict): Promise<TensorDict> {
    const given = dict ?? TensorDict.from({}, { batchSize: this.batchSize })
    const whole = given.batchSize.length === 0 ? given.expand(this.batchSize) : given
    const size = this.#sizeOf(whole)
    const samples = Array.from({ length: size }, () => this.#take())
    const begun = await Promise.all(samples.map(({ sample }) => this.#begin(sample)))
    const first = whole.exclude([...CARRIED, 'history'])
    setEach(
      first,
      ['history', 'prompt'],
      begun.map(({ messages }) => messages),
    )
    setEach(
      first,
      'query',
      begun.map(({ messages }) => queryOf(messages)),
    )
    setEach(
      first,
      'tools',
      begun.map(({ tools }) => tools),
    )
    first.set('group_id', counts(samples.map(({ groupId }) => groupId)))
    first.set('episode', counts(begun.map(({ episode }) => episode)))
    for (const name of ['done', 'terminated', 'truncated']) first.set(name, flags(first.batchSize))
    return first
  }

  /**
   * Passes each message to its conversation.
   * @throws {FulmarError} `UNKNOWN_NAME` without a message; `MALFORMED` if it is not the assistant's; `CLOSED`
   * for an episode that is over; errors of the task's environments.
   */
  async step(dict: TensorDict): Promise<TensorDict> {
    this.#sizeOf(dict)
    const said = saidIn(dict)
    const ids = Array.from(dict.tensor('episode').as('i64').data, Number)
    const results = await Promise.all(ids.map((id, at) => this.#say(id, said[at])))
    const next = TensorDict.from({}, { batchSize: dict.batchSize })
    setEach(
      next,
      ['history', 'prompt'],
      results.map(({ prompt }) => prompt),
    )
    const shape = [...dict.batchSize, 1, 1]
    for (const key of this.#rewardKeys()) {
      const values = results.map(({ reward, parts }) =>
        key.length === 1 ? reward : (parts[key[1] ?? ''] ?? Number.NaN),
      )
      next.set(key, Tensor.from(Float32Array.from(values), { shape }))
    }
    setScored(
      next,
      results.map(({ unscored }) => unscored),
    )
    next.set(
      'done',
      flags(
        dict.batchSize,
        results.map(({ isDone }) => isDone),
      ),
    )
    next.set(
      'terminated',
      flags(
        dict.batchSize,
        results.map(({ isDone, isTruncated }) => isDone && !isTruncated),
      ),
    )
    next.set(
      'truncated',
      flags(
        dict.batchSize,
        results.map(({ isTruncated }) => isTruncated),
      ),
    )
    return next
  }

  /** Number of conversations under way. */
  get numOpen(): number {
    return this.#episodes.size
  }

  /** Stops and closes every conversation. The environment can be reset again. */
  async close(): Promise<void> {
    this.#stopping.abort()
    this.#stopping = new AbortController()
    const open = [...this.#episodes.keys()]
    await Promise.all(open.map((id) => this.#end(id)))
  }

  /** Begins the samples again, whatever the seed: a task's dataset has its own. Closes every conversation. */
  setSeed(_seed: number): void {
    void this.close()
    this.loadStateDict({ dataset: this.#start, numTaken: this.#repeats, numGroups: 0 })
    this.#numEpisodes = 0
  }

  /** Returns the position of the samples. */
  stateDict(): TaskChatEnvState {
    return { dataset: this.#before, numTaken: this.#numTaken, numGroups: this.#numGroups }
  }

  /**
   * Goes to where `state` was taken; conversations under way stay.
   * @throws {FulmarError} `MALFORMED`, `UNKNOWN_NAME` or `OUT_OF_RANGE` if it is not such a state; then nothing has changed.
   */
  loadStateDict(state: unknown): void {
    const { dataset, numTaken, numGroups } = STATE.read('state', state)
    if (numTaken > this.#repeats)
      throw new FulmarError('OUT_OF_RANGE', `state.numTaken must be <= ${this.#repeats}: got ${numTaken}`)
    const here = this.#dataset.stateDict()
    try {
      this.#dataset.loadStateDict(dataset)
      this.#before = this.#dataset.stateDict()
      // The position is the one before the current sample, which the rest of its group takes.
      this.#sample = numGroups > 0 ? this.#dataset.next() : undefined
    } catch (error) {
      this.#dataset.loadStateDict(here)
      throw error
    }
    this.#numTaken = numTaken
    this.#numGroups = numGroups
  }

  #rewardKeys(): readonly (readonly string[])[] {
    return [['reward'], ...this.#task.rewardFns.map(({ name }) => ['rewards', name])]
  }

  #sizeOf({ batchSize }: TensorDict): number {
    const [size] = batchSize
    if (size !== undefined && batchSize.length === 1) return size
    throw new FulmarError('SHAPE_MISMATCH', `dict must have one batch dimension: got ${batchSize.length}`)
  }

  #take(): { readonly sample: Sample; readonly groupId: number } {
    if (this.#numTaken >= this.#repeats) {
      this.#before = this.#dataset.stateDict()
      this.#sample = this.#dataset.next()
      this.#numTaken = 0
      this.#numGroups += 1
    }
    this.#numTaken += 1
    return { sample: this.#sample as Sample, groupId: this.#numGroups - 1 }
  }

  async #begin(sample: Sample) {
    const episode = this.#numEpisodes++
    const env = this.#task.makeEnv(sample)
    const messages: Message[] = []
    this.#episodes.set(episode, { sample, env, messages, turns: [] })
    const [oldest = 0] = this.#episodes.keys()
    if (this.#episodes.size > (this.batchSize[0] ?? 1)) await this.#end(oldest)
    try {
      const { initPromptMessages, tools } = checkInitOutput(await env.init(this.#context()))
      messages.push(...initPromptMessages)
      return { episode, messages: initPromptMessages, tools }
    } catch (error) {
      await this.#end(episode)
      throw error
    }
  }

  async #say(id: number, message: Message | undefined): Promise<StepResult> {
    const episode = this.#episodes.get(id)
    if (episode === undefined || message === undefined)
      throw new FulmarError('CLOSED', `episode must be under way: got ${id}, which is over`)
    const { env, messages, turns, sample } = episode
    const promptMessages = [...messages]
    const { envMessages, done, envRewards } = checkStepOutput(await env.step(message, this.#context()))
    messages.push(message, ...envMessages)
    turns.push({ promptMessages, completionMessage: message, envMessages, envRewards })
    const isTruncated = !done && turns.length >= this.#maxTurns
    const prompt = [...messages]
    if (!done && !isTruncated)
      return { prompt, isDone: false, isTruncated, reward: 0, parts: this.#noParts(), unscored: null }
    const status = done ? 'completed' : 'truncated_max_turns'
    try {
      const { reward, rewardBreakdown, unscored } = await this.#rubric.score({ status, turns }, sample)
      const reasons = Object.values(unscored).map((cause) => cause.message)
      return {
        prompt,
        isDone: true,
        isTruncated,
        reward: reward ?? Number.NaN,
        parts: rewardBreakdown,
        unscored: reward === null ? reasons.join('; ') : null,
      }
    } finally {
      await this.#end(id)
    }
  }

  #noParts(): Record<string, number> {
    return Object.fromEntries(this.#task.rewardFns.map(({ name }) => [name, 0]))
  }

  async #end(id: number): Promise<void> {
    const episode = this.#episodes.get(id)
    this.#episodes.delete(id)
    try {
      await episode?.env.close()
    } catch {
      // As everywhere, an environment that cannot close harms no conversation.
    }
  }

  #context(): EnvContext {
    return { signal: this.#stopping.signal }
  }
}

const chatOf = (role: string): Json => [{ role, content: '' }]

function counts(values: readonly number[]): Tensor<'i64'> {
  return Tensor.from(BigInt64Array.from(values, BigInt))
}

/** Text of the last message of the user; empty if it has none. */
function queryOf(messages: readonly Message[]): string {
  const content = messages.findLast(({ role }) => role === 'user')?.content
  return typeof content === 'string' ? content : ''
}

/** The assistant's message of each element. */
function saidIn(dict: TensorDict): (Message | undefined)[] {
  const name = dict.has(['history', 'response']) ? 'response' : 'full'
  if (!dict.has(['history', name]))
    throw new FulmarError('UNKNOWN_NAME', `dict must have an action at history.full: got ${dict.keys()}`)
  return chatsAt(dict, ['history', name]).map((chat, at) => {
    const last = chat.at(-1)
    if (last?.role === 'assistant') return last
    const detail = `history.${name} of element ${at} must end with the assistant: got ${describeValue(last?.role)}`
    throw new FulmarError('MALFORMED', detail)
  })
}
