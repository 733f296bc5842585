/** Rewards of turns for the right answer. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { AnswerReward, AnswerRewardParser } from '../../reward/index.js'
import { Binary, Unbounded } from '../../spec/index.js'
import { Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'
import type { TokenizerLike } from '../../tokenizer/index.js'
import { sizeOf } from '../data/batch.js'
import { textsAt } from '../data/dict-text.js'
import { type ChatTurnTransform, responseText } from './chat-turn.js'
import type { EnvSpecs } from './env.js'
import { raise } from './flag.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'
import { responsesOf } from './turn-response.js'
import { scoreEach, setScored, specScored } from './turn-score.js'

/** Options of {@link AnswerRewardTransform}. */
export interface AnswerRewardTransformOptions {
  /** Scores a response against an answer: `GSM8KRewardParser`, `MATHRewardParser`, `CountdownRewardParser`, or your own. */
  readonly parser: AnswerRewardParser
  /** Key of the right answers. @default 'answer' */
  readonly answerKey?: TensorKey
  /** Key of responses, as texts. @default the policy's last message, in the environment's form of a chat */
  readonly responseKey?: TensorKey
  /** Decodes responses of tokens. */
  readonly tokenizer?: TokenizerLike
}

const PARTS = ['reward', 'reward_answer', 'reward_think', 'reward_right'] as const

/**
 * Scores the response of the turn. Writes `reward`, `reward_answer`, `reward_think` and `reward_right`, `f32`, `success` and
 * `scored`, bools, each `[...batch, 1, 1]`, and ends episodes that have an answer. What is there already is added to. A response that
 * cannot be scored has the reward NaN, not 0, and is not `scored`; `unscored` has the reason, and is `null` for the others.
 *
 * @example
 * ```ts
 * import { GSM8KRewardParser } from 'fulmar/reward'
 * import { AnswerRewardTransform, DatasetChatEnv, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new DatasetChatEnv({
 *   dataset: [{ query: '1+1?', answer: '1+1=2\n#### 2' }],
 *   transforms: [new AnswerRewardTransform({ parser: new GSM8KRewardParser() })],
 * })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<think>hm</think><answer>2</answer>' })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 4 })
 * const next = step.dict('next')
 * assert.deepEqual([next.tensor('reward').data[0], next.tensor('done').data[0]], [1, 1])
 * ```
 */
export class AnswerRewardTransform implements EnvTransform {
  readonly #options: AnswerRewardTransformOptions
  readonly #answerKey: TensorKey

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. */
  constructor(options: AnswerRewardTransformOptions) {
    checkKnownKeys('options', options, ['parser', 'answerKey', 'responseKey', 'tokenizer'])
    this.#options = options
    this.#answerKey = options.answerKey ?? 'answer'
  }

  /** @throws {FulmarError} `UNKNOWN_NAME` without answers; `MALFORMED` for one that is no text; as the environment for its action. */
  afterStep(next: TensorDict, root: TensorDict, env: EnvView): TensorDict {
    const { parser, tokenizer, responseKey } = this.#options
    const answers = this.#answersAt(root)
    const responses =
      responseKey === undefined ? responsesOf(root, env, tokenizer) : textsAt(root, responseKey)
    const { scores, reasons } = scoreEach(responses, (response, at) =>
      parser.score(response, answers[at] ?? ''),
    )
    const shape = [...next.batchSize, 1, 1]
    for (const name of PARTS) {
      const before = next.has(name) ? next.tensor(name).toFloat32() : new Float32Array(sizeOf(shape))
      const values = scores.map((score, at) => (before[at] ?? 0) + (score ? partOf(score, name) : Number.NaN))
      next.set(name, Tensor.from(values, { shape }))
    }
    const success = Uint8Array.from(scores, (score) => Number(score?.success === true))
    next.set('success', Tensor.from(success, { shape, dtype: 'bool' }))
    setScored(next, reasons)
    const isOver = scores.map((score) => score?.done === true)
    for (const key of ['done', 'terminated']) raise(next, key, isOver)
    return next
  }

  chatTurns(first: TensorDict): ChatTurnTransform | undefined {
    const { parser, responseKey } = this.#options
    if (responseKey !== undefined) return undefined
    const [answer = ''] = this.#answersAt(first)
    return (turn) => {
      const {
        scores: [score],
      } = scoreEach([responseText(turn)], (response) => parser.score(response, answer))
      for (const name of PARTS) {
        const value = (turn.rewards.get(name) ?? 0) + (score ? partOf(score, name) : Number.NaN)
        turn.rewards.set(name, Math.fround(value))
      }
      turn.rewards.set('success', Number(score?.success === true))
      turn.rewards.set('scored', Number(score !== undefined))
      turn.done ||= score?.done === true
    }
  }

  /** @throws {FulmarError} `INCOMPATIBLE` without a tokenizer for tokens. */
  transformSpecs(env: EnvView): EnvSpecs {
    if (env.inputMode === 'tokens' && this.#options.tokenizer === undefined) {
      throw new FulmarError(
        'INCOMPATIBLE',
        'tokenizer must be given to read responses of tokens: it is undefined',
      )
    }
    const shape = [...env.batchSize, 1, 1]
    return changedSpecs(env, ({ rewardSpec }) => {
      for (const name of PARTS) rewardSpec.set(name, new Unbounded({ shape }))
      rewardSpec.set('success', new Binary(1, { shape, dtype: 'bool' }))
      specScored(rewardSpec, env.batchSize)
    })
  }

  #answersAt(dict: TensorDict): string[] {
    if (dict.has(this.#answerKey)) return textsAt(dict, this.#answerKey)
    const detail = `dict must have the key ${JSON.stringify(this.#answerKey)}: got ${dict.keys()}`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
}

function partOf(score: AnswerReward, name: (typeof PARTS)[number]): number {
  const { reward, rewardAnswer, rewardThink, rewardRight } = score
  return { reward, reward_answer: rewardAnswer, reward_think: rewardThink, reward_right: rewardRight }[name]
}
