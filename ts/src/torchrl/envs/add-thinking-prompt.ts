/** A second thought: the answer is taken back, and the policy is asked to think again. */

import type { Message } from '../../chat/index.js'
import { checkGiven, checkKnownKeys, FulmarError, Rng } from '../../core/index.js'
import { Ragged, Tensor, type TensorDict } from '../../tensor/index.js'
import { sizeOf } from '../data/batch.js'
import { setEach } from '../data/dict-text.js'
import { chatsAt } from './chats-at.js'
import type { EnvSpecs } from './env.js'
import { flags, flagsAt } from './flag.js'
import type { EnvTransform, EnvView } from './transformed-env.js'

/** Prompts in the first person, as text of the policy itself. */
export const THINKING_PROMPTS: readonly string[] = Object.freeze([
  'But wait, let me think about this more carefully...',
  'Actually, let me reconsider this...',
  'But we can do better. Let me think about it step by step...',
  'Wait, I need to double-check my reasoning...',
  'Actually, let me think about it more carefully...',
  'It looks like I made a mistake. Let me think about it step by step...',
])

/** Prompts in the second person, as text of another role. */
export const COGNITIVE_PROMPTS: readonly string[] = Object.freeze([
  'But wait, think about this more carefully...',
  'Actually, reconsider this...',
  "But we can do better. Let's think about it step by step...",
  'Wait, you need to double-check your reasoning...',
  'Actually, think about it more carefully...',
  "It looks like you made a mistake. Can you see what went wrong? Let's think about it step by step...",
])

/** Options of {@link AddThinkingPrompt}. */
export interface AddThinkingPromptOptions {
  /**
   * Returns true if an element, given its `next`, gets another thinking turn. It must end eventually: the
   * turns have no other limit.
   */
  readonly cond: (next: TensorDict) => boolean
  /**
   * Added text.
   * @default the first of {@link THINKING_PROMPTS} or {@link COGNITIVE_PROMPTS}, depending on `egocentric`
   */
  readonly prompt?: string
  /** If true, draws from one of these lists each time. @default false */
  readonly randomPrompt?: boolean
  /** Fixes what is drawn. @default 0 */
  readonly seed?: number
  /** Role of the text. @default 'assistant' */
  readonly role?: 'user' | 'assistant'
  /** If true, changes the last message instead of adding one; for an assistant only. @default true */
  readonly editLastTurn?: boolean
  /** If true, the reward of the turn becomes 0. @default as `editLastTurn` */
  readonly zeroReward?: boolean
  /** If true, the episode continues, unless it is truncated. @default true */
  readonly undoDone?: boolean
  /** If true, the prompt is one of {@link THINKING_PROMPTS}. @default true for the role 'assistant' */
  readonly egocentric?: boolean
  /** Text of the template at the end of a turn, in case contents hold it. @default '<|im_end|>' */
  readonly endOfTurn?: string
}

const KEYS = [
  'cond',
  'prompt',
  'randomPrompt',
  'seed',
  'role',
  'editLastTurn',
  'zeroReward',
  'undoDone',
  'egocentric',
  'endOfTurn',
]

/**
 * Makes elements think again: the last `<answer>` of their last message, with all that follows it, gives way to a prompt, or a message
 * is added. The policy did not sample this text, so the old log-probabilities of an edited turn are not those of its
 * tokens.
 *
 * @example
 * ```ts
 * import { AddThinkingPrompt, chatsAt, DatasetChatEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const again = new AddThinkingPrompt({ cond: () => true })
 * const env = new DatasetChatEnv({ dataset: [{ query: '2+2?' }], transforms: [again] })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<answer>5</answer>' })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 1 })
 * const [chat] = chatsAt(step, ['next', 'history', 'prompt'])
 * assert.equal(chat.at(-1)?.content, 'But wait, let me think about this more carefully...')
 * ```
 */
export class AddThinkingPrompt implements EnvTransform {
  readonly #options: AddThinkingPromptOptions
  readonly #prompts: readonly string[]
  readonly #edits: boolean
  readonly #draws: Rng

  /**
   * @throws {FulmarError} `INCOMPATIBLE` for edits of the last turn by a user, or a prompt together with
   * `randomPrompt`; `UNKNOWN_NAME` for an unknown option or role; `OUT_OF_RANGE` for an invalid seed;
   * `MALFORMED` without a condition.
   */
  constructor(options: AddThinkingPromptOptions) {
    checkKnownKeys('options', options, KEYS)
    const { cond, prompt, role = 'assistant', editLastTurn = true, randomPrompt = false, seed = 0 } = options
    const { egocentric = role === 'assistant' } = options
    if (typeof cond !== 'function')
      throw new FulmarError('MALFORMED', `cond must be a function: got ${typeof cond}`)
    if (role !== 'assistant' && role !== 'user') {
      throw new FulmarError('UNKNOWN_NAME', `role must be user or assistant: got ${role}`)
    }
    if (editLastTurn && role !== 'assistant') {
      throw new FulmarError(
        'INCOMPATIBLE',
        `editLastTurn must be false for another role than assistant: got ${role}`,
      )
    }
    if (randomPrompt && prompt !== undefined) {
      throw new FulmarError('INCOMPATIBLE', 'prompt must be left out where randomPrompt draws it: got one')
    }
    const known = egocentric ? THINKING_PROMPTS : COGNITIVE_PROMPTS
    this.#prompts = prompt === undefined ? (randomPrompt ? known : known.slice(0, 1)) : [prompt]
    this.#options = options
    this.#edits = editLastTurn
    this.#draws = Rng.fromSeed(seed).stream('AddThinkingPrompt')
  }

  afterStep(next: TensorDict, _root: TensorDict, env: EnvView): TensorDict {
    const { cond, zeroReward = this.#edits, undoDone = true } = this.#options
    const flat = next.batchSize.length === 1 ? next : next.reshape([sizeOf(next.batchSize)])
    const thinks = Array.from({ length: sizeOf(next.batchSize) }, (_, at) => cond(flat.index(at)))
    if (!thinks.includes(true)) return next
    const chats = chatsAt(next, ['history', 'prompt'])
    setEach(
      next,
      ['history', 'prompt'],
      chats.map((chat, at) => (thinks[at] ? this.#asked(chat) : chat)),
    )
    if (zeroReward) for (const key of env.rewardSpec.leafKeys()) zeroAt(next, key, thinks)
    if (undoDone) {
      const goesOn = flagsAt(next, 'truncated').map((isTruncated, at) => thinks[at] && !isTruncated)
      for (const key of ['done', 'terminated']) {
        const before = flagsAt(next, key)
        next.set(
          key,
          flags(
            next.batchSize,
            before.map((bit, at) => bit && !goesOn[at]),
          ),
        )
      }
    }
    return next
  }

  transformSpecs(env: EnvView): EnvSpecs {
    if (env.inputMode === 'history') return env
    throw new FulmarError(
      'INCOMPATIBLE',
      `inputMode must be history for thinking prompts: got ${env.inputMode}`,
    )
  }

  #asked(chat: readonly Message[]): readonly Message[] {
    const { role = 'assistant', endOfTurn = '<|im_end|>' } = this.#options
    const prompt = this.#prompts[this.#draws.below(this.#prompts.length)] ?? ''
    const last = chat.at(-1)
    if (!this.#edits || last === undefined) return [...chat, { role, content: prompt }]
    if (typeof last.content !== 'string') {
      throw new FulmarError(
        'MALFORMED',
        'history.prompt must end with a text to be thought over: got another content',
      )
    }
    return [...chat.slice(0, -1), { ...last, content: withSecondThought(last.content, prompt, endOfTurn) }]
  }
}

/**
 * Returns the text with `prompt` in place of its last `<answer>` and all that follows; without an `<answer>`, the text without `endOfTurn`
 * and white space at its end, an empty line, and `prompt`.
 *
 * @example
 * ```ts
 * import { withSecondThought } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(withSecondThought('<think>a</think><answer>5</answer> So 5.<|im_end|>', 'Wait.'), '<think>a</think>Wait.')
 * assert.equal(withSecondThought('Five. \n<|im_end|>', 'Wait.'), 'Five.\n\nWait.')
 * ```
 */
export function withSecondThought(content: string, prompt: string, endOfTurn = '<|im_end|>'): string {
  checkGiven('content', content)
  const close = content.lastIndexOf('</answer>')
  const open = close < 0 ? -1 : content.lastIndexOf('<answer>', close)
  if (open >= 0) return `${content.slice(0, open)}${prompt}`
  const trimmed = content.trimEnd()
  const isClosed = endOfTurn !== '' && trimmed.endsWith(endOfTurn)
  const spoken = isClosed ? trimmed.slice(0, -endOfTurn.length).trimEnd() : trimmed
  return `${spoken}\n\n${prompt}`
}

/** Sets the numbers of some elements to 0. */
function zeroAt(dict: TensorDict, key: readonly string[], where: readonly boolean[]): void {
  const entry = dict.get(key)
  if (entry instanceof Ragged) {
    const rows = where.map((isZero, at) => (isZero ? zeros(entry.row(at)) : entry.row(at)))
    dict.set(key, Ragged.fromRows(rows))
  } else if (entry instanceof Tensor) {
    const flat = entry.reshape([where.length, entry.numElements / where.length])
    const rows = where.map((isZero, at) => (isZero ? zeros(flat.select(0, at)) : flat.select(0, at)))
    dict.set(key, Tensor.stack(rows).reshape(entry.shape))
  }
}

const zeros = (row: Tensor) => Tensor.zeros(row.dtype, row.shape)
