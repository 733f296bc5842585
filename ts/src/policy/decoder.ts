/** The in-process policy: a decoder that batches the requests of one tick. */

import { FulmarError, yieldToEventLoop } from '../core/index.js'
import { type Decoder, generate } from '../model/index.js'
import { type Completion, checkGenerateRequest, type GenerateRequest, type Policy } from './policy.js'

/** A request with the promise that waits for it. */
interface Waiting {
  readonly request: GenerateRequest
  readonly resolve: (completion: Completion) => void
  readonly reject: (error: unknown) => void
}

/** Most requests that may wait for one batch. */
const WAITING_MAX = 65_536

/**
 * A {@link Policy} over a {@link Decoder} in this process. Requests made in the same tick run as one batch; a
 * completion does not depend on what it was batched with. The decoder stays the caller's to dispose.
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
export class DecoderPolicy implements Policy {
  /** The decoder that answers. */
  readonly decoder: Decoder
  #waiting: Waiting[] = []

  constructor(decoder: Decoder) {
    this.decoder = decoder
  }

  /** The decoder's version. */
  get version(): number {
    return this.decoder.version
  }

  /**
   * Samples one completion, in a batch with the other requests of this tick.
   * @throws {FulmarError} As {@link Policy.generate}; `LIMIT_EXCEEDED` where prompt and `maxTokens` together are longer
   * than the model's positions or too many requests wait.
   */
  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    if (this.#waiting.length >= WAITING_MAX) {
      throw new FulmarError('LIMIT_EXCEEDED', `waiting requests must be at most ${WAITING_MAX}: got one more`)
    }
    return await new Promise<Completion>((resolve, reject) => {
      if (this.#waiting.push({ request, resolve, reject }) === 1)
        void yieldToEventLoop().then(() => this.#flush())
    })
  }

  #flush(): void {
    const byOptions = new Map<string, Waiting[]>()
    for (const waiting of this.#waiting.splice(0)) {
      const { maxTokens, temperature, topK, topP, stopIds } = waiting.request
      const key = JSON.stringify([maxTokens, temperature, topK, topP, stopIds])
      const batch = byOptions.get(key)
      if (batch) batch.push(waiting)
      else byOptions.set(key, [waiting])
    }
    for (const batch of byOptions.values()) void this.#run(batch)
  }

  async #run(batch: readonly Waiting[]): Promise<void> {
    const version = this.version
    try {
      const prompts = batch.map(({ request }) => ({ ids: request.promptIds, seed: request.seed }))
      const signal = {
        get aborted() {
          return batch.every(({ request }) => request.signal?.aborted === true)
        },
      }
      const {
        maxTokens,
        temperature = 1,
        topK = 0,
        topP = 1,
        stopIds,
      } = batch[0]?.request ?? { maxTokens: 0, stopIds: [] }
      const options = { maxTokens, temperature, topK, topP, stopIds, signal }
      const generated = await generate(this.decoder, prompts, options)
      for (const [index, { request, resolve }] of batch.entries()) {
        const drawn = generated[index]
        if (!drawn) throw new FulmarError('SHAPE_MISMATCH', `generation must answer ${batch.length} requests`)
        const finishReason = request.signal?.aborted ? 'abort' : drawn.finishReason
        const versions = { minPolicyVersion: version, maxPolicyVersion: this.version }
        resolve({ requestId: request.requestId, ...drawn, finishReason, ...versions })
      }
    } catch (error) {
      for (const { reject } of batch) reject(error)
    }
  }
}
