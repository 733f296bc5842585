/** TorchRL's older name and keys for a penalty from a reference. */

import { checkKnownKeys } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { EnvSpecs } from './env.js'
import type { KlPenaltyOptions } from './kl-computation.js'
import type { ScoringPolicy, TokenScoringOptions } from './log-prob-rows.js'
import { RetrieveKL } from './retrieve-kl.js'
import { SEQUENCE_KEYS } from './retrieve-log-prob.js'
import type { EnvTransform, EnvView } from './transformed-env.js'

/** Options of {@link KLRewardTransform}. */
export interface KLRewardTransformOptions
  extends TokenScoringOptions,
    Pick<KlPenaltyOptions, 'addToReward' | 'place' | 'estimator'> {
  /** The reference; stays the caller's. */
  readonly refModel: ScoringPolicy
  /** The factor of the estimates, at least 0. @default 1 */
  readonly coef?: number
  /** Key of the policy's log-probabilities in the action. @default ['log_probs', 'full'] */
  readonly logProbKey?: TensorKey
}

/**
 * {@link RetrieveKL} from what a collector left, with the keys of TorchRL's `KLRewardTransform`: `kl_penalty`, and the reference's
 * log-probabilities at `ref_log_probs`.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { Composite, Unbounded } from 'fulmar/spec'
 * import { Ragged, Tensor } from 'fulmar/tensor'
 * import { DatasetChatEnv, type EnvTransform, KLRewardTransform, rollout, type ScoringPolicy } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const one: EnvTransform = {
 *   afterStep: (next) => next.set('reward', Tensor.from([1], { shape: [1, 1, 1] })),
 *   transformSpecs: (env) => ({ ...env, rewardSpec: new Composite({ reward: new Unbounded({ shape: [1, 1, 1] }) }, { shape: [1] }) }),
 * }
 * const refModel: ScoringPolicy = {
 *   score: async ({ requestId, ids }) => ({ requestId, logProbs: new Float32Array(ids.length).fill(-2), policyVersion: 0 }),
 * }
 * const kl = new KLRewardTransform({ refModel, coef: 0.5 })
 * const chat = { inputMode: 'tokens', tokenizer, template: { templateName: 'chatml_format' } } as const
 * const env = new DatasetChatEnv({ dataset: [{ query: 'Hi' }], ...chat, transforms: [one, kl] })
 * const { parts: [step] } = await rollout(env, (dict) => {
 *   const prompt = dict.ragged(['tokens', 'prompt']).row(0)
 *   const full = Tensor.cat([prompt, Tensor.from(BigInt64Array.of(1n, 2n))])
 *   const logProbs = Tensor.from(new Float32Array(full.shape[0] ?? 0).fill(-1))
 *   return dict.set(['tokens', 'full'], Ragged.fromRows([full])).set(['log_probs', 'full'], Ragged.fromRows([logProbs]))
 * }, { maxSteps: 1 })
 * assert.deepEqual(step.ragged(['next', 'kl_penalty']).row(0).data.slice(-3), Float32Array.of(0, 1, 1))
 * assert.deepEqual(step.ragged(['next', 'reward']).row(0).data.slice(-2), Float32Array.of(-0.5, 0.5))
 * ```
 */
export class KLRewardTransform implements EnvTransform {
  readonly #kl: RetrieveKL

  /** @throws {FulmarError} As {@link RetrieveKL}. */
  constructor(options: KLRewardTransformOptions) {
    const own = ['refModel', 'coef', 'logProbKey', 'addToReward', 'place', 'estimator']
    checkKnownKeys('options', options, [...own, ...SEQUENCE_KEYS])
    const { coef = 1, logProbKey = ['log_probs', 'full'], ...rest } = options
    this.#kl = new RetrieveKL({
      ...rest,
      coeff: coef,
      genLogProbsFullKey: logProbKey,
      refLogProbsFullKey: 'ref_log_probs',
    })
  }

  /** @throws {FulmarError} As {@link RetrieveKL.afterStep}. */
  afterStep(next: TensorDict, root: TensorDict): Promise<TensorDict> {
    return this.#kl.afterStep(next, root)
  }

  transformSpecs(env: EnvView): EnvSpecs {
    return this.#kl.transformSpecs(env)
  }
}
