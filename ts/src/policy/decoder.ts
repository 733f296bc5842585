/** Policy over a decoder in this process. */

import { checkKnownKeys, checkTypedArray } from '../core/index.js'
import { type Decoder, Engine, type EngineOptions } from '../model/index.js'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type GenerateRequest,
  type PolicyCapabilities,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
import { type DistributionPolicy, type DistributionRequest, TokenDistribution } from './token-distribution.js'

/** Options of {@link DecoderPolicy}. */
export type DecoderPolicyOptions = Pick<EngineOptions, 'decodeStream'>

/**
 * A {@link DistributionPolicy} over a {@link Decoder} in this process. Requests are batched continuously (see
 * {@link Engine}); a completion does not depend on the rest of its batch. Weights may change during
 * generation: a completion has the oldest and the newest policy version. The caller disposes the decoder.
 *
 * @example
 * ```ts
 * import { Decoder, DecoderPolicy } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const policy = new DecoderPolicy(decoder)
 * const request = { requestId: 'a', promptIds: Uint32Array.of(1), seed: 7, maxTokens: 4, stopIds: [] }
 * const [one, two] = await Promise.all([policy.generate(request), policy.generate({ ...request, requestId: 'b' })])
 * assert.deepEqual(one.ids, two.ids) // the same seed
 * assert.equal(one.minPolicyVersion, 0)
 * ```
 */
export class DecoderPolicy implements DistributionPolicy {
  /** Decoder that generates. */
  readonly decoder: Decoder
  readonly #options: DecoderPolicyOptions
  #engine: Engine | undefined
  #inFlight = 0

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key. */
  constructor(decoder: Decoder, options: DecoderPolicyOptions = {}) {
    checkKnownKeys('options', options, ['decodeStream'])
    this.decoder = decoder
    this.#options = options
  }

  /** Stop strings need a `decodeStream`. */
  get capabilities(): PolicyCapabilities {
    return { stopStrings: this.#options.decodeStream !== undefined }
  }

  /** Version of the decoder's weights. */
  get version(): number {
    return this.decoder.version
  }

  /**
   * Samples one completion, batched with the other requests in flight.
   * @throws {FulmarError} As {@link Policy.generate}; `LIMIT_EXCEEDED` if prompt and `maxTokens` together
   * exceed the model's positions or too many requests wait.
   */
  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    const { requestId, promptIds, seed, sessionId: _, ...options } = request
    this.#engine ??= new Engine(this.decoder, this.#options)
    this.#inFlight += 1
    try {
      const drawn = await this.#engine.generate({ ids: promptIds.slice(), seed }, options)
      const { ids, logProbs, sampledLogProbs, finishReason, stoppedBy } = drawn
      const policyVersions = Uint32Array.from(drawn.policyVersions)
      const [minPolicyVersion = this.version, maxPolicyVersion = this.version] = [
        policyVersions[0],
        policyVersions.at(-1),
      ]
      const versions = { minPolicyVersion, maxPolicyVersion, policyVersions }
      return { requestId, ids, logProbs, sampledLogProbs, finishReason, stoppedBy, ...versions }
    } finally {
      this.#inFlight -= 1
      if (this.#inFlight === 0) this.#close()
    }
  }

  /**
   * Scores one sequence with the same bits as `Decoder.forward`.
   * @throws {FulmarError} As {@link Policy.score}; `OUT_OF_RANGE` for an id outside the vocabulary; `LIMIT_EXCEEDED` past the model's
   * positions.
   */
  async score(request: ScoreRequest): Promise<TokenScores> {
    checkScoreRequest(request)
    const { requestId } = request
    const ids = request.ids.slice()
    const policyVersion = this.version
    const mask = new Uint8Array(ids.length).fill(1)
    mask[0] = 0
    // A batch without a masked token throws, and its result would be empty.
    if (ids.length === 1) return { requestId, logProbs: Float32Array.of(Number.NaN), policyVersion }
    const { logProb } = await this.decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
    logProb[0] = Number.NaN
    return { requestId, logProbs: logProb, policyVersion }
  }

  /**
   * Returns the distributions at the masked positions, which {@link DecoderPolicy.score} takes its log-probs
   * from, bit for bit.
   * @throws {FulmarError} `EMPTY`, `SHAPE_MISMATCH` or `OUT_OF_RANGE` for a bad request; `LIMIT_EXCEEDED` for more than 2^26 numbers in
   * all (positions, masked or not, times vocabulary size).
   */
  async distribution(request: DistributionRequest): Promise<TokenDistribution> {
    checkKnownKeys('request', request, ['ids', 'offsets', 'mask'], ['ids', 'offsets', 'mask'])
    checkTypedArray('ids', request.ids, Uint32Array)
    checkTypedArray('offsets', request.offsets, Uint32Array)
    checkTypedArray('mask', request.mask, Uint8Array)
    // Copied, as a caller may overwrite them during the computation.
    const [ids, offsets, mask] = [request.ids.slice(), request.offsets.slice(), request.mask.slice()]
    const { vocab_size: vocabSize } = this.decoder.config
    const { topIds, topLogProb } = await this.decoder.score({ ids, offsets, mask }, { topK: vocabSize })
    const places = Array.from(mask.keys()).filter((at) => mask[at] === 1)
    const logProbs = new Float32Array(places.length * vocabSize)
    for (const [row, at] of places.entries()) {
      for (let rank = at * vocabSize; rank < (at + 1) * vocabSize; rank++)
        logProbs[row * vocabSize + (topIds[rank] ?? 0)] = topLogProb[rank] ?? 0
    }
    return new TokenDistribution({ ids, offsets, mask, logProbs })
  }

  /** Frees the KV cache if there are no requests. */
  #close(): void {
    this.#engine?.[Symbol.dispose]()
    this.#engine = undefined
  }
}
