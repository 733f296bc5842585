/** The log-probabilities of responses under a model. */

import { checkKnownKeys } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { EnvSpecs } from './env.js'
import {
  maskedIdsOf,
  type ScoringPolicy,
  scoreRows,
  setFloatRows,
  type TokenScoringOptions,
} from './log-prob-rows.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** Options of {@link RetrieveLogProb}. */
export interface RetrieveLogProbOptions extends TokenScoringOptions {
  /** Scores; stays the caller's. */
  readonly model: ScoringPolicy
  /** Key of the log-probabilities. @default ['log_probs', 'full'] */
  readonly logProbsFullKey?: TensorKey
}

/** The names of {@link TokenScoringOptions}. */
export const SEQUENCE_KEYS = ['tokenizer', 'template', 'mask', 'assistantOnly'] as const

/**
 * Scores each finished turn: `log p(x_t | x_1 ... x_{t-1})` at temperature 1, `f32`, one number for each token of `full`, 0 for those that do
 * not count and for the first of a sequence.
 *
 * @example
 * ```ts
 * import { CharTokenizer, Decoder, DecoderPolicy } from 'fulmar'
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, replyPolicy, RetrieveLogProb, rollout, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const shape = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed({ model_type: 'llama', vocab_size: tokenizer.vocabSize, ...shape }, { seed: 1 })
 * const template = { templateName: 'chatml_format' }
 * const scores = new RetrieveLogProb({ model: new DecoderPolicy(decoder), tokenizer, template })
 * const env = new TransformedEnv(new ChatEnv(), [scores])
 * const dict = TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] })
 * const { parts: [step] } = await rollout(env, replyPolicy({ inputMode: 'history', reply: () => 'Yo' }), { dict, maxSteps: 1 })
 * const logProbs = step.ragged(['next', 'log_probs', 'full']).row(0).data
 * assert.equal(logProbs.filter((logProb) => logProb !== 0).length, 2) // the two letters
 * ```
 */
export class RetrieveLogProb implements EnvTransform {
  readonly #model: ScoringPolicy
  readonly #key: TensorKey
  readonly #options: TokenScoringOptions

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown option. */
  constructor(options: RetrieveLogProbOptions) {
    checkKnownKeys('options', options, ['model', 'logProbsFullKey', ...SEQUENCE_KEYS])
    const { model, logProbsFullKey = ['log_probs', 'full'], ...rest } = options
    this.#model = model
    this.#key = logProbsFullKey
    this.#options = rest
  }

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` or `INCOMPATIBLE` if the action holds no tokens that could be scored; `SHAPE_MISMATCH` if masks
   * or scores are of another length; the errors of the model.
   */
  async afterStep(next: TensorDict, root: TensorDict): Promise<TensorDict> {
    return setFloatRows(next, this.#key, await scoreRows(this.#model, maskedIdsOf(root, this.#options)))
  }

  transformSpecs(env: EnvView): EnvSpecs {
    return changedSpecs(env, ({ observationSpec }) => {
      observationSpec.set(this.#key, null)
    })
  }
}
