/** Policy over a decoder in this process. */

import {
  checkGiven,
  checkKnownKeys,
  checkTypedArray,
  deviceMemory,
  FulmarError,
  field,
} from '../core/index.js'
import { type Decoder, Engine, type EngineOptions } from '../model/index.js'
import type { DrawMethod } from '../objective/index.js'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type GenerateRequest,
  type PolicyCapabilities,
  type PolicyReport,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
import { Replaceable } from './replaceable.js'
import { type DistributionPolicy, type DistributionRequest, TokenDistribution } from './token-distribution.js'
import type { WeightReceiver } from './weight-receiver.js'

/** Options of {@link DecoderPolicy}. */
export interface DecoderPolicyOptions
  extends Pick<
    EngineOptions,
    'decodeStream' | 'weights' | 'kvCacheDtype' | 'speculativeTokens' | 'activationBytesMax'
  > {
  /** Way from a distribution to a token, for all requests. @default 'inverse' */
  readonly drawMethod?: DrawMethod
  /**
   * Name of the policy among the receivers of a `WeightSync`.
   * @default 'decoder'
   */
  readonly name?: string
  /**
   * Called with each decoder that was staged and then replaced or discarded, once no request uses it: dispose it here.
   * @default the garbage collector frees it
   */
  readonly onReplaced?: (decoder: Decoder) => void
}

/** @internal Options of a policy's sampling. */
export const SAMPLER = {
  weights: field.oneOf(['same', 'q8'], 'same'),
  kvCacheDtype: field.oneOf(['same', 'bf16'], 'same'),
  speculativeTokens: field.integer({ min: 0, max: 8, fallback: 0 }),
  drawMethod: field.oneOf(['inverse', 'gumbelMax'], 'inverse'),
}

/** @internal Most bytes of activations that a decoder keeps. */
export const ACTIVATION_BYTES_MAX = field.integer({ min: 0, fallback: 0 })

/** @internal The options of {@link SAMPLER}, read. */
export type SamplerOptions = Required<
  Pick<DecoderPolicyOptions, 'weights' | 'kvCacheDtype' | 'speculativeTokens' | 'drawMethod'>
>

/**
 * @internal Reads the options of sampling.
 * @throws {FulmarError} `UNKNOWN_NAME`, `MALFORMED` or `OUT_OF_RANGE`, naming the option.
 */
export function readSampler(options: Partial<SamplerOptions>): SamplerOptions {
  const weights = SAMPLER.weights.read('options.weights', options.weights)
  const kvCacheDtype = SAMPLER.kvCacheDtype.read('options.kvCacheDtype', options.kvCacheDtype)
  const speculativeTokens = SAMPLER.speculativeTokens.read(
    'options.speculativeTokens',
    options.speculativeTokens,
  )
  const drawMethod = SAMPLER.drawMethod.read('options.drawMethod', options.drawMethod)
  checkSpeculation('options.speculativeTokens', weights, speculativeTokens)
  return { weights, kvCacheDtype, speculativeTokens, drawMethod }
}

/** @internal Returns whether log-probs are those of the decoder, bit for bit. */
export function isExact({ weights, kvCacheDtype }: Partial<SamplerOptions>): boolean {
  return weights !== 'q8' && kvCacheDtype !== 'bf16'
}

/**
 * @internal Rejects drafts of weights of 8 bits for themselves.
 * @throws {FulmarError} `OUT_OF_RANGE`.
 */
export function checkSpeculation(place: string, weights: 'same' | 'q8', speculativeTokens: number): void {
  if (weights === 'same' || speculativeTokens === 0) return
  const rule = `${place} must be 0 with weights of 8 bits`
  throw new FulmarError('OUT_OF_RANGE', `${rule}: got ${speculativeTokens}`)
}

/** A decoder, and its engine while requests are in flight. */
interface Sampler {
  readonly decoder: Decoder
  engine: Engine | undefined
  numInFlight: number
}

/**
 * A {@link DistributionPolicy} over a {@link Decoder} in this process. Requests are batched continuously (see
 * {@link Engine}); a completion does not depend on the rest of its batch. The caller disposes the decoder.
 *
 * New weights come in one of two ways. Train the policy's own decoder: a request in flight continues with the changed
 * weights, and its completion has the oldest and the newest policy version. Or let a `WeightSync` hand over another
 * decoder, such as a {@link Decoder.snapshot} of the one in training: a request in flight finishes with the weights that it began with.
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
export class DecoderPolicy implements DistributionPolicy, WeightReceiver<Decoder> {
  /** Name among the receivers of a `WeightSync`. */
  readonly name: string
  readonly #options: DecoderPolicyOptions
  readonly #samplers: Replaceable<Sampler>

  /** @throws {FulmarError} `UNKNOWN_NAME` for an unknown key; `OUT_OF_RANGE` for speculative tokens with `weights: 'q8'`. */
  constructor(decoder: Decoder, options: DecoderPolicyOptions = {}) {
    const known = ['decodeStream', 'name', 'onReplaced', 'activationBytesMax', ...Object.keys(SAMPLER)]
    checkKnownKeys('options', options, known)
    readSampler(options)
    ACTIVATION_BYTES_MAX.read('options.activationBytesMax', options.activationBytesMax)
    const { name = 'decoder', onReplaced = () => {} } = options
    this.name = name
    this.#options = options
    const close = (sampler: Sampler) => {
      // The first decoder belongs to the caller, and may be in training.
      if (sampler.decoder !== decoder) onReplaced(sampler.decoder)
    }
    this.#samplers = new Replaceable(close, samplerOf(decoder))
  }

  /** Decoder that generates. */
  get decoder(): Decoder {
    return this.#sampler.decoder
  }

  get #sampler(): Sampler {
    const { served } = this.#samplers
    if (served === undefined) throw new FulmarError('CLOSED', 'policy must have a decoder: there is none')
    return served
  }

  /** Stop strings need a `decodeStream`; log-probs are exact with the decoder's own weights and a cache that is not rounded. */
  get capabilities(): PolicyCapabilities {
    const { decodeStream } = this.#options
    return { stopStrings: decodeStream !== undefined, exactLogProbs: isExact(this.#options) }
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
    const { drawMethod } = this.#options
    const drawing = { ...options, ...(drawMethod && { drawMethod }) }
    return await this.#samplers.use(async (sampler) => {
      sampler.engine ??= new Engine(sampler.decoder, only(this.#options))
      sampler.numInFlight += 1
      try {
        const drawn = await sampler.engine.generate({ ids: promptIds.slice(), seed }, drawing)
        const { ids, logProbs, sampledLogProbs, finishReason, stoppedBy } = drawn
        const policyVersions = Uint32Array.from(drawn.policyVersions)
        const { version } = sampler.decoder
        const [minPolicyVersion = version, maxPolicyVersion = version] = [
          policyVersions[0],
          policyVersions.at(-1),
        ]
        const versions = { minPolicyVersion, maxPolicyVersion, policyVersions }
        return { requestId, ids, logProbs, sampledLogProbs, finishReason, stoppedBy, ...versions }
      } finally {
        sampler.numInFlight -= 1
        if (sampler.numInFlight === 0) freeCache(sampler)
      }
    })
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
    const mask = new Uint8Array(ids.length).fill(1)
    mask[0] = 0
    return await this.#samplers.use(async ({ decoder }) => {
      const { version: policyVersion } = decoder
      // A batch without a masked token throws, and its result would be empty.
      if (ids.length === 1) return { requestId, logProbs: Float32Array.of(Number.NaN), policyVersion }
      const { logProb } = await decoder.score({ ids, offsets: Uint32Array.of(0, ids.length), mask })
      logProb[0] = Number.NaN
      return { requestId, logProbs: logProb, policyVersion }
    })
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
    const { topIds, topLogProb } = await this.#samplers.use(({ decoder }) =>
      decoder.score({ ids, offsets, mask }, { topK: vocabSize }),
    )
    const places = Array.from(mask.keys()).filter((at) => mask[at] === 1)
    const logProbs = new Float32Array(places.length * vocabSize)
    for (const [row, at] of places.entries()) {
      for (let rank = at * vocabSize; rank < (at + 1) * vocabSize; rank++)
        logProbs[row * vocabSize + (topIds[rank] ?? 0)] = topLogProb[rank] ?? 0
    }
    return new TokenDistribution({ ids, offsets, mask, logProbs })
  }

  /**
   * Returns the version of the weights, and the memory of the decoder's GPU if it is on one.
   * @throws {FulmarError} `UNAVAILABLE` for a GPU that fails.
   *
   * @example
   * ```ts
   * import { Decoder, DecoderPolicy } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using decoder = Decoder.fromSeed(shape, { seed: 1 })
   * const report = await new DecoderPolicy(decoder).report()
   * assert.deepEqual(report, { policyVersion: 0 }) // with deviceMemoryBytes and deviceFreeBytes on a GPU
   * ```
   */
  async report(): Promise<PolicyReport> {
    const { version: policyVersion, device } = this.decoder
    return { policyVersion, ...deviceMemory(device) }
  }

  /**
   * Takes a decoder for `commit` to serve. Its weights must not change any more, as those of a {@link Decoder.snapshot}.
   * @throws {FulmarError} `INCOMPATIBLE` if it has another vocabulary or another version.
   */
  async stage(decoder: Decoder, version: number): Promise<void> {
    checkGiven('decoder', decoder)
    const [given, known] = [decoder.config.vocab_size, this.decoder.config.vocab_size]
    if (given !== known)
      throw new FulmarError('INCOMPATIBLE', `decoder must have a vocabulary of ${known}: got ${given}`)
    if (decoder.version !== version)
      throw new FulmarError('INCOMPATIBLE', `decoder must be of version ${version}: got ${decoder.version}`)
    await this.#samplers.stage(version, () => samplerOf(decoder))
  }

  /**
   * Serves the staged decoder: requests in flight finish with the one before.
   * @throws {FulmarError} `CLOSED` if nothing of this version was staged.
   */
  commit(version: number): void {
    this.#samplers.commit(version)
  }

  /** Discards the staged decoder; after a commit that was not settled it serves the previous one. */
  rollback(): void {
    this.#samplers.rollback()
  }

  /** Lets go of the previous decoder once no request uses it. */
  settle(): void {
    this.#samplers.settle()
  }
}

function samplerOf(decoder: Decoder): Sampler {
  return { decoder, engine: undefined, numInFlight: 0 }
}

function only(options: DecoderPolicyOptions): EngineOptions {
  const { decodeStream, weights, kvCacheDtype, speculativeTokens, activationBytesMax } = options
  return {
    ...(decodeStream && { decodeStream }),
    ...(weights && { weights }),
    ...(kvCacheDtype && { kvCacheDtype }),
    ...(speculativeTokens && { speculativeTokens }),
    ...(activationBytesMax && { activationBytesMax }),
  }
}

/** Frees the KV cache. */
function freeCache(sampler: Sampler): void {
  sampler.engine?.[Symbol.dispose]()
  sampler.engine = undefined
}
