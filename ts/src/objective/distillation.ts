/** Distillation of a teacher's token probabilities. */

import type { OnDevice } from '../core/index.js'
import { type RawDistillationLoss, raw } from '../native/index.js'
import { optionsJson } from './argument.js'
import { CoreLoss, checkColumns, LAYOUT, type LossResult } from './loss.js'
import { REDUCTION_KEYS, type SFTReduction } from './sft.js'

/** Options of {@link DistillationLoss}; the defaults are those of the Rust core. */
export interface DistillationLossOptions extends OnDevice {
  /**
   * Source of the tokens: drawn by the student (`reverse`) or by the teacher (`forward`).
   * @default 'reverse'
   */
  readonly direction?: 'reverse' | 'forward'
  /**
   * Reduction of sequences to one number; a sequence without a trained token is not in the mean.
   * @default 'mean'
   */
  readonly reduction?: SFTReduction
  /**
   * If true, a sequence counts by its mean over trained tokens, else by their sum; for reductions over
   * sequences.
   * @default true
   */
  readonly normalizeBySeqLength?: boolean
}

const OPTION_KEYS = {
  device: true,
  direction: true,
  reduction: REDUCTION_KEYS,
  normalizeBySeqLength: true,
} as const

/** `S` sequences one after another, laid out as a `LossBatch`. The arrays are read, not kept. */
export interface DistillationBatch {
  /** `[T]` log-probabilities under the student. */
  readonly logProb: Float32Array
  /** `[T]` log-probabilities under the teacher. */
  readonly teacherLogProb: Float32Array
  /** `[T]` 1 where the token is trained, else 0. */
  readonly mask: Uint8Array
  /** `[S + 1]` from 0 to `T`. */
  readonly offsets: Uint32Array
}

const COLUMNS = {
  needed: { logProb: 'Float32Array', teacherLogProb: 'Float32Array', ...LAYOUT },
} as const

/**
 * The k3 estimate of the KL divergence between student and teacher, never negative and 0 where they agree: with the student's `l` and
 * the teacher's `t`, `e^(t - l) - 1 - (t - l)` a token (`reverse`), or with the two exchanged (`forward`).
 * [On-policy distillation](https://arxiv.org/abs/2306.13649).
 *
 * Metrics: `distillLoss`, `klToTeacher` (mean over trained tokens), `numTokens`, `numSequences`.
 *
 * @example
 * ```ts
 * import { DistillationLoss } from 'fulmar/objective'
 * import assert from 'node:assert/strict'
 *
 * const { loss, gradLogProb, sequenceLoss } = new DistillationLoss().forward({
 *   logProb: Float32Array.of(-1, -2),
 *   teacherLogProb: Float32Array.of(-1, -1.5), // the teacher likes the second token more
 *   mask: Uint8Array.of(1, 1),
 *   offsets: Uint32Array.of(0, 2),
 * })
 * assert.equal(loss, (Math.exp(0.5) - 1.5) / 2)
 * assert.deepEqual([...sequenceLoss], [loss])
 * assert.ok(gradLogProb[0] === 0 && gradLogProb[1] < 0)
 * ```
 */
export class DistillationLoss {
  readonly #loss: CoreLoss<RawDistillationLoss>

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a count below 1; `MALFORMED`
   * for a value of another type.
   */
  constructor(options: DistillationLossOptions = {}) {
    const json = optionsJson('DistillationLoss', options, OPTION_KEYS)
    this.#loss = new CoreLoss('DistillationLoss', () => raw.DistillationLoss.create(json))
  }

  /**
   * Computes value, metrics and gradient with respect to the student's log-probabilities over `batch`. Costs
   * O(T).
   *
   * @throws {FulmarError} As `GRPOLoss.forward`; `OUT_OF_RANGE` if the teacher's log-probabilities are
   * exactly 0 at every trained token, as in an array that was never filled.
   */
  forward(batch: DistillationBatch): LossResult & { readonly sequenceLoss: Float64Array } {
    checkColumns(batch, COLUMNS)
    const { logProb, teacherLogProb, mask, offsets } = batch
    return this.#loss.sequenceResult((loss) => loss.forward(logProb, teacherLogProb, mask, offsets))
  }
}
