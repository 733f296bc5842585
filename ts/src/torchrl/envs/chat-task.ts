/** Chat environments as conversations and tasks of a `Rollouter`, so that none is written twice. */

import type { Message } from '../../chat/index.js'
import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { Dataset } from '../../data/index.js'
import type { MessageEnv, MessageEnvStepOutput, Split, Task } from '../../env/index.js'
import { NonTensorStack, Tensor, TensorDict } from '../../tensor/index.js'
import { jsonTextAt } from '../../tensor/tensor-dict.js'
import { History } from '../data/history.js'
import type { ChatTurn, ChatTurnTransform } from './chat-turn.js'
import { chatsAt } from './chats-at.js'
import type { DatasetRow } from './data-loading-primer.js'
import type { DatasetChatEnv } from './dataset-chat-env.js'
import { type EnvBase, nextRoot } from './env.js'
import { flagsAt } from './flag.js'

/** Options of {@link messageEnvOf}. */
export interface MessageEnvOfOptions {
  /** A chat of messages in a batch of one dimension. Many conversations may share it: their state is in dictionaries. */
  readonly env: EnvBase
  /** Start of the conversation, of one element. @default the next row of the environment's dataset */
  readonly dict?: TensorDict
}

/**
 * One conversation with a chat environment. What it adds behind a message are the answers, its rewards the signals by name (those that
 * could not be scored are left out), and `done` ends it.
 *
 * @throws {FulmarError} `INCOMPATIBLE` for another environment; its `step`: `INCOMPATIBLE` if a transform edits what was said, as what
 * the policy drew would not be what it is trained on; `MALFORMED` if one speaks for the policy.
 *
 * @example
 * ```ts
 * import { GSM8KEnv, messageEnvOf } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const conversation = messageEnvOf({ env: new GSM8KEnv({ dataset: [{ question: '1+1?', answer: '#### 2' }] }) })
 * const context = { signal: new AbortController().signal }
 * const { initPromptMessages } = await conversation.init(context)
 * assert.equal(initPromptMessages.at(-1)?.content, '1+1?')
 * const { done, envRewards } = await conversation.step({ role: 'assistant', content: '<answer>2</answer>' }, context)
 * assert.deepEqual([done, envRewards?.reward], [true, 1])
 * ```
 */
export function messageEnvOf(options: MessageEnvOfOptions): MessageEnv {
  checkKnownKeys('options', options, ['env', 'dict'])
  const { env, dict: given = TensorDict.from({}, { batchSize: [1] }) } = options
  if (env.inputMode !== 'history' || env.batchSize.length !== 1) {
    const got = `${env.inputMode} of ${env.batchSize.length} dimensions`
    throw new FulmarError(
      'INCOMPATIBLE',
      `env must be a chat of messages in a batch of one dimension: got ${got}`,
    )
  }
  let step: MessageEnv['step'] | undefined
  let transforms: readonly ChatTurnTransform[] | undefined
  return {
    async init() {
      const first = await env.reset(given)
      const chat = chatOf(first)
      transforms = env.chatTurns?.(first)
      step = transforms ? stepOfTurns([...chat], transforms) : stepOfDicts(env, first, chat)
      return { initPromptMessages: chat }
    },
    step(message, context) {
      if (step) return step(message, context)
      const error = new FulmarError('CLOSED', 'init must come before step: there is no conversation')
      return Promise.reject(error)
    },
    close: () => {
      step = undefined
      for (const transform of transforms ?? []) transform.close?.()
    },
  }
}

/** The steps of a conversation that needs no dictionaries: `messages` grows with it. */
function stepOfTurns(messages: Message[], transforms: readonly ChatTurnTransform[]): MessageEnv['step'] {
  return (message, context) => {
    messages.push(message)
    const numSaid = messages.length
    const turn: ChatTurn = { messages, response: message, rewards: new Map(), done: false, context }
    const output = () => {
      checkSaid(messages, numSaid, message)
      const envRewards = Object.fromEntries([...turn.rewards].filter(([, value]) => Number.isFinite(value)))
      return { envMessages: messages.slice(numSaid), done: turn.done, envRewards }
    }
    const waiting = transformed(turn, transforms, 0)
    return waiting ? waiting.then(output) : output()
  }
}

/** @throws {FulmarError} `INCOMPATIBLE` if the policy's message is no longer in its place. */
function checkSaid(messages: readonly Message[], numSaid: number, message: Message): void {
  if (messages[numSaid - 1] === message) return
  throw changedMessage(numSaid - 1)
}

/** Applies the transforms from `start`; a promise only from the first that gives one. */
function transformed(
  turn: ChatTurn,
  transforms: readonly ChatTurnTransform[],
  start: number,
): Promise<void> | undefined {
  for (let at = start; at < transforms.length; at++) {
    const waiting = transforms[at]?.(turn)
    if (waiting) return waiting.then(() => transformed(turn, transforms, at + 1))
  }
  return undefined
}

/** The steps of a conversation whose turns are dictionaries of one element. */
function stepOfDicts(env: EnvBase, first: TensorDict, opening: readonly Message[]): MessageEnv['step'] {
  let [dict, chat] = [first, opening]
  return async (message) => {
    const said = [...chat, message]
    const root = dict.clone()
    root.set(['history', 'response'], new NonTensorStack([[message]] as never))
    root.set(['history', 'full'], new NonTensorStack([said] as never))
    const next = await env.step(root)
    const envMessages = answersTo(said, root, next)
    dict = nextRoot(env, root, next)
    chat = [...said, ...envMessages]
    return { envMessages, done: flagsAt(next, 'done')[0] === true, ...rewardsOf(env, next) }
  }
}

const chatOf = (dict: TensorDict): readonly Message[] => chatsAt(dict, ['history', 'prompt'])[0] ?? []

/** Returns the messages that `next` adds to `said`. @throws {FulmarError} `INCOMPATIBLE` if it changes one of `said`. */
function answersTo(said: readonly Message[], root: TensorDict, next: TensorDict): readonly Message[] {
  const [before, after] = [jsonTextAt(root, ['history', 'full']), jsonTextAt(next, ['history', 'prompt'])]
  // Only what is new is read: to read whole conversations would cost each turn its length many times over.
  const shared = before.slice(0, -CLOSE.length)
  if (before === after) return []
  if (after.startsWith(`${shared},`) && after.endsWith(CLOSE)) {
    const more = History.fromChats(`[${after.slice(shared.length + 1, -1)}`)
    if (more.rank === 1) return more.toJSON() as readonly Message[]
  }
  const chat = chatOf(next)
  const at = said.findIndex((message, index) => JSON.stringify(message) !== JSON.stringify(chat[index]))
  if (at < 0) return chat.slice(said.length)
  throw changedMessage(at)
}

function changedMessage(at: number): FulmarError {
  return new FulmarError('INCOMPATIBLE', `transforms must not change messages: got another message ${at}`)
}

/** The closing brackets in the JSON text of a batch of one conversation. */
const CLOSE = ']]'

/** The rewards that are one number each. */
function rewardsOf(env: EnvBase, next: TensorDict): Pick<MessageEnvStepOutput, 'envRewards'> {
  const rewards = env.rewardSpec.leafKeys().flatMap((key) => {
    const entry = next.get(key)
    if (!(entry instanceof Tensor) || entry.numElements !== 1) return []
    const [value = Number.NaN] = Array.from(entry.data, Number)
    return Number.isFinite(value) ? [[key.join('.'), value] as const] : []
  })
  return { envRewards: Object.fromEntries(rewards) }
}

/** Options of {@link chatTask}. */
export interface ChatTaskOptions<Row> {
  /** Such as `gsm8k`. */
  readonly name: string
  /** Gives prompts, ends and rewards; its own dataset is not used. */
  readonly env: DatasetChatEnv<Row>
  /** The rows of each split; the same each time it is asked for. */
  readonly makeDataset: (split: Split) => Dataset<Row>
  /** Key of the reward. @default 'reward' */
  readonly rewardKey?: string
  /** From which reward on a problem is solved. @default 1 */
  readonly solvedFrom?: number
}

/**
 * A dataset's chat environment as a task: the reward of an episode is that of its last turn, and an episode that the environment could
 * not score has none.
 *
 * @example
 * ```ts
 * import { listDataset } from 'fulmar'
 * import { chatTask, GSM8KEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const items = [{ question: '1+1?', answer: '#### 2' }]
 * const task = chatTask({ name: 'gsm8k', env: new GSM8KEnv({ dataset: items }), makeDataset: () => listDataset({ items }) })
 * const conversation = task.makeEnv(task.makeDataset('train').next())
 * const { initPromptMessages } = await conversation.init({ signal: new AbortController().signal })
 * assert.equal(initPromptMessages.at(-1)?.content, '1+1?')
 * ```
 */
export function chatTask<Row>(options: ChatTaskOptions<Row>): Task<Row> {
  checkKnownKeys('options', options, ['name', 'env', 'makeDataset', 'rewardKey', 'solvedFrom'])
  const { name, env, makeDataset, rewardKey = 'reward', solvedFrom = 1 } = options
  const rewardIn = ({ turns }: Parameters<Task<Row>['isSolved']>[0]) => turns.at(-1)?.envRewards[rewardKey]
  return {
    name,
    makeDataset,
    makeEnv: (row) => messageEnvOf({ env, dict: dictOf(env.primer.columnsOf(row)) }),
    rewardFns: [
      {
        name: rewardKey,
        score: (rollout) => rewardIn(rollout) ?? { unscored: `the environment gave no ${rewardKey}` },
      },
    ],
    isSolved: (rollout) => (rewardIn(rollout) ?? Number.NEGATIVE_INFINITY) >= solvedFrom,
  }
}

function dictOf(row: DatasetRow): TensorDict {
  const columns = Object.entries(row).map(([name, value]) => [name, new NonTensorStack([value])])
  return TensorDict.from(Object.fromEntries(columns), { batchSize: [1] })
}
