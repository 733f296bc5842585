/** Rewards of turns for the instructions that they follow. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import { type IfEvalInstructions, IfEvalScorer, type IfEvalScorerOptions } from '../../reward/ifeval/index.js'
import { Binary, Unbounded } from '../../spec/index.js'
import { Ragged, Tensor, type TensorDict } from '../../tensor/index.js'
import type { TokenizerLike } from '../../tokenizer/index.js'
import { type ChatTurnTransform, responseText } from './chat-turn.js'
import type { EnvSpecs } from './env.js'
import { raise } from './flag.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'
import { responsesOf } from './turn-response.js'
import { scoreEach, setScored, specScored } from './turn-score.js'

/** Options of {@link IfEvalRewardTransform}. */
export interface IfEvalRewardTransformOptions extends IfEvalScorerOptions {
  /** Decodes responses of tokens. */
  readonly tokenizer?: TokenizerLike
}

const FLAGS = ['prompt_level_strict_acc', 'prompt_level_loose_acc'] as const
const ROWS = ['inst_level_strict_acc', 'inst_level_loose_acc'] as const

/**
 * Scores the response of the turn against `instruction_id_list` and `kwargs`. Writes `ifeval_score`: bools for the prompt,
 * `[...batch, 1]`, and for each instruction, ragged rows; `reward`, `f32`, and `scored`, `[...batch, 1, 1]`; and ends episodes that have
 * an answer. A response that cannot be scored has the reward NaN and is not `scored`; `unscored` has the reason. The batch has one dimension.
 *
 * @example
 * ```ts
 * import { DatasetChatEnv, IfEvalRewardTransform, replyPolicy, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const row = { query: 'Say hello, without commas.', instruction_id_list: ['punctuation:no_comma'], kwargs: [{}] }
 * const env = new DatasetChatEnv({ dataset: [row], transforms: [new IfEvalRewardTransform()] })
 * const policy = replyPolicy({ inputMode: 'history', reply: () => '<think>Hm.</think><answer>Hello!</answer>' })
 * const { parts: [step] } = await rollout(env, policy, { maxSteps: 1 })
 * assert.ok(Math.abs(step.tensor(['next', 'reward']).toFloat32()[0] - 1.15) < 1e-6)
 * assert.deepEqual([...step.ragged(['next', 'ifeval_score', 'inst_level_strict_acc']).row(0).data], [1])
 * ```
 */
export class IfEvalRewardTransform implements EnvTransform {
  readonly #scorer: IfEvalScorer
  readonly #rewards: boolean
  readonly #tokenizer: TokenizerLike | undefined

  /** @throws {FulmarError} As {@link IfEvalScorer}. */
  constructor(options: IfEvalRewardTransformOptions = {}) {
    checkKnownKeys('options', options, [
      'tokenizer',
      'aggregateReward',
      'formatWeights',
      'setDoneIfAnswer',
      'json',
    ])
    const { tokenizer, ...rest } = options
    this.#scorer = new IfEvalScorer(rest)
    this.#rewards = options.aggregateReward !== false
    this.#tokenizer = tokenizer
  }

  /** @throws {FulmarError} `UNKNOWN_NAME` without instructions; as the environment for its action. */
  afterStep(next: TensorDict, root: TensorDict, env: EnvView): TensorDict {
    const prompts = instructionsAt(root)
    const responses = responsesOf(root, env, this.#tokenizer)
    const { scores: results, reasons } = scoreEach(responses, (response, at) =>
      this.#scorer.score(response, prompts[at] ?? { instructionIdList: [], kwargs: [] }),
    )
    const shape = [...next.batchSize, 1]
    const score = ['ifeval_score']
    for (const [name, bits] of Object.entries({
      [FLAGS[0]]: results.map((result) => result?.score.promptLevelStrictAcc === true),
      [FLAGS[1]]: results.map((result) => result?.score.promptLevelLooseAcc === true),
    })) {
      next.set([...score, name], Tensor.from(Uint8Array.from(bits, Number), { shape, dtype: 'bool' }))
    }
    for (const [name, rows] of Object.entries({
      [ROWS[0]]: results.map((result) => result?.score.instLevelStrictAcc),
      [ROWS[1]]: results.map((result) => result?.score.instLevelLooseAcc),
    })) {
      const bits = rows.map(
        (row, at) => row ?? new Array<boolean>(prompts[at]?.instructionIdList.length ?? 0).fill(false),
      )
      const tensors = bits.map((row) => Tensor.from(Uint8Array.from(row, Number), { dtype: 'bool' }))
      next.set([...score, name], Ragged.fromRows(tensors))
    }
    if (this.#rewards) {
      const rewards = results.map((result) => result?.reward ?? Number.NaN)
      next.set('reward', Tensor.from(rewards, { shape: [...shape, 1] }))
    }
    setScored(next, reasons)
    const isOver = results.map((result) => result?.done === true)
    for (const key of ['done', 'terminated']) raise(next, key, isOver)
    return next
  }

  chatTurns(first: TensorDict): ChatTurnTransform {
    const [prompt = { instructionIdList: [], kwargs: [] }] = instructionsAt(first)
    return (turn) => {
      const {
        scores: [result],
      } = scoreEach([responseText(turn)], (response) => this.#scorer.score(response, prompt))
      const { promptLevelStrictAcc, promptLevelLooseAcc } = result?.score ?? {}
      turn.rewards.set(`ifeval_score.${FLAGS[0]}`, Number(promptLevelStrictAcc === true))
      turn.rewards.set(`ifeval_score.${FLAGS[1]}`, Number(promptLevelLooseAcc === true))
      if (this.#rewards) turn.rewards.set('reward', Math.fround(result?.reward ?? Number.NaN))
      turn.rewards.set('scored', Number(result !== undefined))
      turn.done ||= result?.done === true
    }
  }

  /** @throws {FulmarError} `INCOMPATIBLE` without a tokenizer for tokens; `SHAPE_MISMATCH` for a batch of several dimensions. */
  transformSpecs(env: EnvView): EnvSpecs {
    if (env.batchSize.length !== 1) {
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `batchSize must have one dimension: got ${env.batchSize.length}`,
      )
    }
    if (env.inputMode === 'tokens' && this.#tokenizer === undefined) {
      throw new FulmarError(
        'INCOMPATIBLE',
        'tokenizer must be given to read responses of tokens: it is undefined',
      )
    }
    const shape = [...env.batchSize, 1]
    return changedSpecs(env, ({ rewardSpec }) => {
      for (const name of FLAGS)
        rewardSpec.set(['ifeval_score', name], new Binary(1, { shape, dtype: 'bool' }))
      for (const name of ROWS) rewardSpec.set(['ifeval_score', name], null)
      if (this.#rewards) rewardSpec.set('reward', new Unbounded({ shape: [...shape, 1] }))
      specScored(rewardSpec, env.batchSize)
    })
  }
}

/** The instructions of each element. */
function instructionsAt(root: TensorDict): IfEvalInstructions[] {
  const [ids, kwargs] = ['instruction_id_list', 'kwargs'].map((key) => {
    if (!root.has(key))
      throw new FulmarError('UNKNOWN_NAME', `dict must have the key "${key}": got ${root.keys()}`)
    return root.value(key) as readonly unknown[]
  })
  return (ids ?? []).map(
    (instructionIdList, at) => ({ instructionIdList, kwargs: kwargs?.[at] }) as IfEvalInstructions,
  )
}
