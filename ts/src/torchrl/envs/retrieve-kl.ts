/** Log-probabilities of policy and reference, and the penalty between them. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { EnvSpecs } from './env.js'
import { KL_PENALTY_KEYS, KLComputation, type KLComputationOptions } from './kl-computation.js'
import {
  floatRowsAt,
  type MaskedIds,
  maskedIdsOf,
  type ScoringPolicy,
  scoreRows,
  setFloatRows,
  type TokenScoringOptions,
} from './log-prob-rows.js'
import { SEQUENCE_KEYS } from './retrieve-log-prob.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** Options of {@link RetrieveKL}. */
export interface RetrieveKLOptions extends TokenScoringOptions, KLComputationOptions {
  /** The reference; stays the caller's. */
  readonly refModel: ScoringPolicy
  /**
   * Policy that drew the tokens, to score them again, or `'fromCollector'` to read their log-probabilities in
   * the action: at `genLogProbsFullKey`, or for the response at `log_probs.response`.
   * @default 'fromCollector'
   */
  readonly genModel?: ScoringPolicy | 'fromCollector'
}

/**
 * TorchRL's `RetrieveKL`: log-probabilities of responses, under the policy and under a reference, and {@link KLComputation} between
 * them, `r_t - coeff k_t` with the estimates `k_t` found there. All three are in `next`, 0 at tokens that do not count.
 *
 * @example
 * ```ts
 * import { CharTokenizer, Decoder, DecoderPolicy } from 'fulmar'
 * import { DatasetChatEnv, LLMWrapperBase, RetrieveKL, rollout } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const shape = { hidden_size: 8, intermediate_size: 16, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * const model = (seed: number) => Decoder.fromSeed({ model_type: 'llama', vocab_size: tokenizer.vocabSize, ...shape }, { seed })
 * using decoder = model(1)
 * using reference = model(2)
 * const template = { templateName: 'chatml_format' }
 * const kl = new RetrieveKL({ refModel: new DecoderPolicy(reference), addToReward: false })
 * const env = new DatasetChatEnv({ dataset: [{ query: 'Hi' }], inputMode: 'tokens', tokenizer, template, transforms: [kl] })
 * const options = { inputMode: 'tokens', generateKwargs: { maxNewTokens: 4 } } as const
 * const wrapper = new LLMWrapperBase(new DecoderPolicy(decoder), options)
 * const { parts: [step] } = await rollout(env, (dict) => wrapper.forward(dict), { maxSteps: 1 })
 * const penalty = step.ragged(['next', 'kl_penalty']).row(0).data
 * assert.equal(penalty.filter((value) => value !== 0).length, 4) // what was drawn
 * ```
 */
export class RetrieveKL implements EnvTransform {
  readonly #options: RetrieveKLOptions
  readonly #computation: KLComputation
  readonly #genKey: TensorKey
  readonly #refKey: TensorKey

  /** @throws {FulmarError} As {@link KLComputation}. */
  constructor(options: RetrieveKLOptions) {
    const own = ['refModel', 'genModel', 'genLogProbsFullKey', 'refLogProbsFullKey']
    checkKnownKeys('options', options, [...own, ...SEQUENCE_KEYS, ...KL_PENALTY_KEYS])
    const { refModel, genModel, tokenizer, template, mask, assistantOnly, ...penalty } = options
    const { genLogProbsFullKey = ['log_probs', 'full'], refLogProbsFullKey = ['ref_log_probs', 'full'] } =
      penalty
    this.#options = options
    this.#computation = new KLComputation(penalty)
    this.#genKey = genLogProbsFullKey
    this.#refKey = refLogProbsFullKey
  }

  /** @throws {FulmarError} As {@link RetrieveLogProb} and {@link KLComputation}. */
  async afterStep(next: TensorDict, root: TensorDict): Promise<TensorDict> {
    const { refModel, genModel = 'fromCollector' } = this.#options
    const sequences = maskedIdsOf(root, this.#options)
    const [gen, ref] = await Promise.all([
      genModel === 'fromCollector'
        ? collected(root, this.#genKey, sequences)
        : scoreRows(genModel, sequences),
      scoreRows(refModel, sequences),
    ])
    setFloatRows(next, this.#genKey, gen)
    setFloatRows(next, this.#refKey, ref)
    return this.#computation.afterStep(next)
  }

  transformSpecs(env: EnvView): EnvSpecs {
    const specs = changedSpecs(env, ({ observationSpec }) => {
      for (const key of [this.#genKey, this.#refKey]) observationSpec.set(key, null)
    })
    return this.#computation.transformSpecs({ ...specs, batchSize: env.batchSize, inputMode: env.inputMode })
  }
}

/** The log-probabilities that a collector left in the action, 0 at tokens that do not count. */
function collected(root: TensorDict, key: TensorKey, sequences: readonly MaskedIds[]): Float32Array[] {
  const full = floatRowsAt(root, key)
  const response = full === undefined ? floatRowsAt(root, ['log_probs', 'response']) : undefined
  if (full === undefined && response === undefined) {
    const detail = `dict must have ${JSON.stringify(key)} or log_probs.response where genModel is 'fromCollector': got neither`
    throw new FulmarError('UNKNOWN_NAME', detail)
  }
  return sequences.map(({ ids, mask }, at) => {
    const row = (full ?? response)?.[at] ?? new Float32Array()
    const start = full ? 0 : ids.length - row.length
    if (start < 0 || (full && row.length !== ids.length)) {
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `log-probs of element ${at} must fit its ${ids.length} tokens: got ${row.length}`,
      )
    }
    return Float32Array.from(ids, (_, t) => (mask[t] && t > 0 ? (row[t - start] ?? Number.NaN) : 0))
  })
}
