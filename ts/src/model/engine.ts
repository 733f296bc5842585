/** Generation for requests that come and go. */

import {
  checkGiven,
  checkKnownKeys,
  checkTypedArray,
  FulmarError,
  Handle,
  yieldToEventLoop,
} from '../core/index.js'
import { type RawEngine, type RawEngineOutputs, raw } from '../native/index.js'
import type { Decoder } from './decoder.js'
import { type Generated, generatedOf, type SampledToken, tokensOf } from './generated.js'
import { type GenerationOptions, type Prompt, paramsJson } from './generation-options.js'
import { type PieceStream, watchStops } from './stop-strings.js'

/** The size of an engine. */
export interface EngineOptions {
  /**
   * Tokens a page of the key/value cache.
   * @default 16
   */
  readonly pageSize?: number
  /**
   * Most pages. Memory is taken as they are used; on a GPU all of it at the first step.
   * @default as many as one GiB holds, and enough for one sequence of the model's positions; on a GPU as many as half of the free
   * memory holds, and no more than `maxNumSeqs` of the longest sequences need
   */
  readonly numPages?: number
  /**
   * Most sequences that run at once, on each thread where threads decode by themselves (models of at most 4 M weights).
   * @default 256
   */
  readonly maxNumSeqs?: number
  /**
   * Most tokens that one step computes, at least `maxNumSeqs`. A longer prompt takes several steps.
   * @default 2048
   */
  readonly maxNumBatchedTokens?: number
  /**
   * Most requests that wait.
   * @default 65536
   */
  readonly maxNumWaiting?: number
  /**
   * Treatment of the KV cache of requests in flight if the weights change between two steps: `recompute`
   * computes it again, so that each log-prob is that of the trainer's forward pass under the weights of its
   * version; `keep` is faster, but tokens attend to keys and values of older weights.
   * @default 'recompute'
   */
  readonly onWeightChange?: 'recompute' | 'keep'
  /**
   * Weights that the engine computes with. `same`: the decoder's, so that each log-prob is that of the trainer's forward pass, bit
   * for bit. `q8`: the decoder's rounded to 8 bits, in blocks of 32 with a scale, as are the inputs of each product: a
   * third of the memory to read, so tokens are drawn faster, but by a policy whose log-probs differ a little from the
   * decoder's. A loss must correct for that: see `correctSampler` of `grpo`. The draws of a request still do not depend
   * on what else runs. Rounding costs a pass over the weights after each change of them.
   * @default 'same'
   */
  readonly weights?: 'same' | 'q8'
  /**
   * Dtype of cached keys and values. `same`: that of the trainer's. `bf16`: rounded to 16 bits, half the memory, and less to read in
   * each step, so that long sequences are drawn faster, by a policy whose log-probs differ a little from the decoder's: see
   * `weights`. On a GPU only for activations in `bf16`, where it is the same.
   * @default 'same'
   */
  readonly kvCacheDtype?: 'same' | 'bf16'
  /**
   * Most tokens that the weights rounded to 8 bits draft for a sequence in a step, up to 8. One pass of the decoder's own weights
   * verifies them. Tokens and log-probs are those without drafts, bit for bit. Fewer are drafted as more sequences run, none
   * above 8, or as fewer are accepted: most are where `drawMethod` is `gumbelMax` or the temperature is low. Only with `weights:
   * 'same'`. Takes a third of the decoder's memory more.
   * @default 0
   */
  readonly speculativeTokens?: number
  /**
   * Most bytes of activations that the decoder keeps of the rows that the engine computes. {@link Decoder.forward} of these
   * sequences, under the same version of the weights, then computes the head alone: the same bits, without a second pass through
   * the layers. A row takes 4 bytes times the sum of the widths of all layers' activations, as in a forward pass (680 KB with 135 M
   * weights), which holds its own copy. Rows over the limit are not kept, and a forward pass with such a row computes all. A change of the
   * weights drops them, and later rows use their memory again. Only with `weights: 'same'` and `kvCacheDtype: 'same'`.
   * @default 0
   */
  readonly activationBytesMax?: number
  /**
   * Makes the stream that turns a sequence's ids into text, for `stopStrings`: `() => new DecodeStream(tokenizer)`.
   * @default none: stop strings are refused
   */
  readonly decodeStream?: () => PieceStream
}

/** Counts of speculative decoding since an engine was made. */
export interface SpeculationStats {
  /** Number of speculative tokens. */
  readonly numDraftTokens: number
  /** Number of them that were drawn. */
  readonly numAcceptedTokens: number
}

/** A request from the call to its end. */
interface Job {
  readonly prompt: Prompt
  readonly params: string
  readonly signal: Pick<AbortSignal, 'aborted'> | undefined
  /** The stop string that a token completes, or `null`. */
  readonly completes: (id: number) => string | null
  readonly take: (token: SampledToken) => void
  readonly end: (reason: Generated['finishReason'], stopString: string | null) => void
  readonly fail: (error: unknown) => void
}

const REASONS = ['abort', 'stop', 'length', 'nonFinite', 'noToken'] as const

/**
 * Draws sequences for requests that come and go: continuous batching over a paged key/value cache. Requests wait in a queue, run
 * together a token a step, and leave one by one; those with equal prompts share its pages. When pages run out, the youngest
 * sequence gives its own back and is computed again later.
 *
 * The drawn tokens depend on the prompt, the seed, the options and the weights alone: not on what else runs, to the bit. Steps run on worker
 * threads (in WebAssembly: on the calling thread, with the event loop free between them). The decoder stays the caller's to
 * dispose, and may be trained in between: see {@link EngineOptions.onWeightChange}. On the CPU a step
 * reads weights in `f32` where they are; those in `bf16`, with an adapter, or between a backward pass and the step of the optimizer,
 * have packed copies, which take their memory once more. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { Decoder, Engine } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using engine = new Engine(decoder, { pageSize: 8 })
 * const prompt = { ids: Uint32Array.of(1, 2), seed: 7 }
 * const whole = engine.generate(prompt, { maxTokens: 6, topLogProbs: 2 }) // runs concurrently with what follows
 * const ids = []
 * for await (const token of engine.stream(prompt, { maxTokens: 6 })) ids.push(token.id)
 * assert.deepEqual([...(await whole).ids], ids)
 * assert.equal((await whole).topLogProbs[0].length, 2)
 * ```
 */
export class Engine {
  readonly #native: Handle<RawEngine>
  readonly #decoder: Decoder
  readonly #decodeStream: (() => PieceStream) | undefined
  readonly #jobs = new Map<number, Job>()
  #arrived: Job[] = []
  #drives = false
  #speculation: SpeculationStats = { numDraftTokens: 0, numAcceptedTokens: 0 }

  /**
   * An engine without requests.
   * @throws {FulmarError} `OUT_OF_RANGE` or `LIMIT_EXCEEDED` for a size; `UNKNOWN_NAME` for an unknown key; `MALFORMED` for a value
   * of another type.
   */
  constructor(decoder: Decoder, options: EngineOptions = {}) {
    this.#decoder = decoder
    const { decodeStream, ...sizes } = options
    this.#decodeStream = decodeStream
    const json = JSON.stringify(sizes)
    this.#native = new Handle('Engine', () => decoder.withNative((inner) => new raw.Engine(inner, json)))
  }

  /**
   * Draws a sequence.
   * @throws {FulmarError} `EMPTY` for an empty prompt, or if no token may be drawn; `OUT_OF_RANGE` for an id or option; `LIMIT_EXCEEDED`
   * if the prompt with `maxTokens` is longer than the model's positions, needs more pages than there are, or too many requests
   * wait; `NON_FINITE` if the model's logits for this sequence are not finite (other sequences continue); `UNAVAILABLE` for stop strings
   * without a `decodeStream`, and those of {@link StopStrings}; `CLOSED` if the engine was disposed. Always as a rejection.
   */
  async generate(prompt: Prompt, options: GenerationOptions): Promise<Generated> {
    const tokens: SampledToken[] = []
    return await new Promise<Generated>((resolve, fail) => {
      const take = (token: SampledToken) => tokens.push(token)
      const end: Job['end'] = (reason, stopString) => resolve(generatedOf(tokens, reason, stopString))
      this.#submit(prompt, options, { take, end, fail })
    })
  }

  /**
   * Generates a sequence and streams its tokens. Leaving the loop early cancels the request.
   * @throws {FulmarError} As {@link Engine.generate}.
   *
   * @example
   * ```ts
   * import { Decoder, Engine } from 'fulmar'
   * import assert from 'node:assert/strict'
   *
   * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
   * using decoder = Decoder.fromSeed(shape, { seed: 1 })
   * using engine = new Engine(decoder)
   * for await (const token of engine.stream({ ids: Uint32Array.of(1), seed: 0 }, { maxTokens: 1000 })) {
   *   assert.ok(token.logProb <= 0 && token.policyVersion === 0)
   *   break // frees the request's pages
   * }
   * ```
   */
  async *stream(prompt: Prompt, options: GenerationOptions): AsyncGenerator<SampledToken, void, undefined> {
    let [tokens, ended, failed, wake]: [SampledToken[], boolean, unknown, () => void] = [
      [],
      false,
      null,
      noop,
    ]
    const left = { aborted: false }
    const { signal } = options
    const either = {
      get aborted() {
        return left.aborted || signal?.aborted === true
      },
    }
    const end = (error: unknown = null) => {
      ended = true
      failed = error
      wake()
    }
    const take = (token: SampledToken) => {
      tokens.push(token)
      wake()
    }
    this.#submit(prompt, { ...options, signal: either }, { take, end: () => end(), fail: end })
    try {
      while (!ended || tokens.length > 0) {
        const now = tokens
        tokens = []
        yield* now
        if (!ended && tokens.length === 0) await new Promise<void>((resolve) => (wake = resolve))
      }
      if (failed !== null) throw failed
    } finally {
      left.aborted = true
    }
  }

  /**
   * Pages of the key/value cache that no request holds. Waits while a step runs. On a GPU the first step determines how many there are,
   * unless `numPages` does.
   */
  get numFreePages(): number {
    return this.#native.call((engine) => engine.numFreePages())
  }

  /** Counts of speculative tokens, up to the last step that ended. */
  get speculation(): SpeculationStats {
    return this.#speculation
  }

  /** Gives the native memory back. Requests in flight fail with `CLOSED`. */
  [Symbol.dispose](): void {
    this.#native.free()
  }

  #submit(prompt: Prompt, options: GenerationOptions, ends: Pick<Job, 'take' | 'end' | 'fail'>): void {
    checkKnownKeys('prompt', prompt, ['ids', 'seed'])
    checkTypedArray('ids', prompt.ids, Uint32Array)
    checkGiven('options', options)
    const { signal, stopStrings = [] } = options
    const stops = watchStops(stopStrings, this.#decodeStream)
    const closing: typeof ends = {
      take: ends.take,
      end: (...how) => {
        stops.close()
        ends.end(...how)
      },
      fail: (error) => {
        stops.close()
        ends.fail(error)
      },
    }
    this.#arrived.push({
      prompt,
      params: paramsJson(options),
      signal,
      completes: stops.completes,
      ...closing,
    })
    if (this.#drives) return
    this.#drives = true
    void yieldToEventLoop().then(() => this.#drive())
  }

  /** Steps until nothing is left to do; the one loop of this engine. */
  async #drive(): Promise<void> {
    try {
      for (;;) {
        for (const job of this.#arrived.splice(0)) this.#admit(job)
        for (const [request, job] of this.#jobs) if (job.signal?.aborted) this.#abort(request)
        if (this.#jobs.size > 0) await this.#native.callAsync((engine) => engine.turn())
        this.#dispatch(this.#native.call((engine) => engine.outputs()))
        await yieldToEventLoop()
        if (this.#jobs.size === 0 && this.#arrived.length === 0) return
      }
    } catch (error) {
      this.#failAll(error)
    } finally {
      this.#drives = false
    }
  }

  #admit(job: Job): void {
    try {
      const { ids, seed } = job.prompt
      this.#jobs.set(
        this.#native.call((engine) => engine.add(ids, seed, job.params)),
        job,
      )
    } catch (error) {
      job.fail(error)
    }
  }

  #abort(request: number): void {
    this.#native.call((engine) => engine.abort(request))
  }

  #dispatch(outputs: RawEngineOutputs): void {
    const { requests, finished, finish, numDraftTokens, numAcceptedTokens } = outputs
    this.#speculation = { numDraftTokens, numAcceptedTokens }
    const tokens = tokensOf(outputs, this.#decoder.firstVersion)
    for (const [index, token] of tokens.entries()) this.#take(requests[index] ?? -1, token)
    for (const [index, request] of finished.entries()) {
      const job = this.#jobs.get(request)
      this.#jobs.delete(request)
      const reason = REASONS[finish[index] ?? 0] ?? 'abort'
      if (reason === 'nonFinite')
        job?.fail(new FulmarError('NON_FINITE', 'logits must be finite: got one that is not'))
      else if (reason === 'noToken')
        job?.fail(new FulmarError('EMPTY', 'the options must leave a token that may be drawn: none is left'))
      else job?.end(reason, null)
    }
  }

  /** Gives a token to its job, unless an earlier one of the same turn ended it, and ends the job that it completes a stop string of. */
  #take(request: number, token: SampledToken): void {
    const job = this.#jobs.get(request)
    if (!job) return
    let found: string | null
    try {
      found = job.completes(token.id)
    } catch (error) {
      this.#drop(request)
      job.fail(error)
      return
    }
    job.take(token)
    if (found === null) return
    this.#drop(request)
    job.end('stop', found)
  }

  #drop(request: number): void {
    this.#jobs.delete(request)
    this.#abort(request)
  }

  /** Fails all requests with the error of a step, and frees their pages. */
  #failAll(error: unknown): void {
    const failed = [...this.#jobs.values(), ...this.#arrived.splice(0)]
    try {
      for (const request of this.#jobs.keys()) this.#abort(request)
      this.#native.call((engine) => engine.outputs())
    } catch {
      // Disposed: there are no pages to give back.
    }
    this.#jobs.clear()
    for (const job of failed) job.fail(error)
  }
}

function noop(): void {}
