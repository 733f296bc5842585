/** Language models behind TorchRL's interface: dictionaries in, dictionaries out. */

import { checkKnownKeys, FulmarError, Rng } from '../../core/index.js'
import type { Completion, GenerateRequest, Policy, ScoreRequest, TokenScores } from '../../policy/policy.js'
import { allSettled, type BatchingState, RequestBatcher } from '../../policy/request-batcher.js'
import type { DistributionPolicy, TokenDistribution } from '../../policy/token-distribution.js'
import {
  type CompletionPart,
  type StreamingPolicy,
  type TokenStream,
  tokenStream,
} from '../../policy/token-stream.js'
import { type LazyStack, lazyStack, TensorDict } from '../../tensor/index.js'
import { checkDict } from '../../tensor/tensor-dict.js'
import { type GenerateKwargs, type ResolvedGenerateKwargs, resolveGenerateKwargs } from './generate-kwargs.js'
import { type InputRow, maskRows, readRows } from './wrapper-input.js'
import { type LLMWrapperOptions, resolveWrapperOptions, type WrapperConfig } from './wrapper-options.js'
import { writeGenerated, writeScored } from './wrapper-output.js'

/** Options of one {@link LLMWrapperBase.forward}. */
export interface ForwardOptions {
  /** Aborts generation, as {@link GenerateRequest.signal}; rejects scoring with `ABORTED`. */
  readonly signal?: AbortSignal
  /** Go before those that the wrapper was made with, key by key. A `seed` fixes the draws of this call. */
  readonly generateKwargs?: GenerateKwargs
}

/** Options of {@link LLMWrapperBase.getDist}. */
export interface DistOptions {
  /**
   * Selected tokens: all; those after `['tokens', 'prompt']`, or the assistant's without a prompt; the
   * assistant's; or those where the mask under a key of the dictionary is not 0. Never a sequence's first
   * token.
   * @default 'all'
   */
  readonly mask?: 'all' | 'response' | 'assistant' | readonly string[]
}

/** Tokens of one completion as they come: of the row of the input, and the sample of that row. */
export interface RowPart extends CompletionPart {
  readonly row: number
  /** Counts from 0; below `numSamples`. */
  readonly sample: number
}

/** Writes the answers of the rows from `start` up to `end` into a dictionary of that batch. */
type Writer = (target: TensorDict, start: number, end: number) => void

/** Number of requests from wrappers to a policy: their ids are unique even if wrappers share it. */
const NUM_REQUESTS = new WeakMap<Policy, number>()

const FORWARD_KEYS = ['signal', 'generateKwargs']

/**
 * A {@link Policy} behind TorchRL's interface. It reads conversations, texts or token ids out of a dictionary, and writes completions,
 * or with `generate: false` the scores of what is there. What is written is the same for every policy:
 *
 * | key | generate | score |
 * |---|---|---|
 * | `['text', ...]`, not in mode tokens | `prompt`, `response`, `full` | `full` |
 * | `['masks', ...]` | `all_attention_mask`, `all_assistant_mask` over `full` | the same; the second where it is known |
 * | `['tokens', ...]` | `prompt`, `response`, `full` | `full` |
 * | `['log_probs', ...]` | `response`, `full` | `full` |
 * | `['history', ...]`, in mode history | `prompt`, `response`, `full` | `full` |
 *
 * Log-probs are the model's own (temperature 1, no filter), NaN where they are not known: those of a prompt that was only read, and of a
 * sequence's first token, which follows none. Rows are ragged, or padded with `padOutput`; lengths are in the masks, never read from ids.
 * Each subclass brings a policy; the policy stays the caller's.
 *
 * @example
 * ```ts
 * import { CharTokenizer } from 'fulmar'
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import { LLMWrapperBase } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * using tokenizer = new CharTokenizer()
 * const policy = new ScriptedPolicy({ reply: () => [...tokenizer.encode('4').ids, ...tokenizer.encode('<|im_end|>', { addedTokens: true }).ids] })
 * const wrapper = new LLMWrapperBase(policy, { tokenizer, rendering: { templateName: 'chatml_format' } })
 * const prompt = new NonTensorStack([[{ role: 'user', content: '2+2?' }]])
 * const output = await wrapper.forward(TensorDict.from({ history: TensorDict.from({ prompt }, { batchSize: [1] }) }, { batchSize: [1] }))
 * assert.deepEqual(output.value(['history', 'response']), [[{ role: 'assistant', content: '4' }]])
 * assert.deepEqual(output.value(['text', 'response']), ['4<|im_end|>'])
 * assert.equal(output.ragged(['tokens', 'response']).numRows, 1)
 * ```
 */
export class LLMWrapperBase<P extends Policy = Policy> {
  /** Policy that draws and scores. */
  readonly policy: P
  /** Options of the wrapper. */
  readonly options: LLMWrapperOptions
  readonly #config: WrapperConfig
  readonly #draws: RequestBatcher<GenerateRequest, Completion> | undefined
  readonly #scores: RequestBatcher<ScoreRequest, TokenScores> | undefined
  readonly #rng: Rng
  #numDraws = 0

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key or `inputMode`; `INCOMPATIBLE` for options that contradict one another, without
   * a tokenizer where one is needed, or for scoring with a policy that cannot; `OUT_OF_RANGE` or `MALFORMED` for a value.
   */
  constructor(policy: P, options: LLMWrapperOptions = {}) {
    this.policy = policy
    this.options = options
    this.#config = resolveWrapperOptions(options)
    if (!this.#config.generate && policy.score === undefined)
      throw new FulmarError(
        'INCOMPATIBLE',
        'policy must be able to score where generate is false: got one without',
      )
    const { minBatchSize, maxBatchSize, batchingTimeoutMs, clock } = options
    const batching = {
      ...(minBatchSize !== undefined && { minBatchSize }),
      ...(maxBatchSize !== undefined && { maxBatchSize }),
      ...(batchingTimeoutMs !== undefined && { batchingTimeoutMs }),
      ...(clock && { clock }),
    }
    if (this.#config.batching && this.#config.generate) {
      this.#draws = new RequestBatcher({ ...batching, run: (rows) => rows.map((row) => this.#draw(row)) })
    } else if (this.#config.batching) {
      this.#scores = new RequestBatcher({ ...batching, run: (rows) => rows.map((row) => this.#score(row)) })
    }
    this.#rng = Rng.fromSeed(this.#config.generateKwargs.seed).stream('wrapper')
  }

  /** Keys of the input. */
  get inKeys(): readonly (readonly string[])[] {
    return [this.#config.inputKey]
  }

  /** The roots of what is written, in TorchRL's order. */
  get outKeys(): readonly (readonly string[])[] {
    const { inputMode, roots, returnLogProbs } = this.#config
    return [
      ...(inputMode === 'tokens' ? [] : [roots.text]),
      roots.masks,
      roots.tokens,
      ...(returnLogProbs ? [roots.logProbs] : []),
      ...(inputMode === 'history' ? [roots.history] : []),
    ]
  }

  /** The version of the policy's weights. */
  get version(): number {
    return this.policy.version
  }

  /** State of the batching; `undefined` without batching. */
  get batchingState(): BatchingState | undefined {
    return (this.#draws ?? this.#scores)?.state
  }

  /** Takes back rows that wait for a batch, or with `flush` runs them. Their callers are rejected with `ABORTED`. */
  cleanupBatching(options: { readonly flush?: boolean } = {}): void {
    checkKnownKeys('options', options, ['flush'])
    const { flush = false } = options
    const batcher = this.#draws ?? this.#scores
    if (flush) batcher?.flush()
    else batcher?.clear()
  }

  /**
   * A wrapper of the same policy with other options: those that are not named stay, and what follows from them is found anew.
   * @throws {FulmarError} As the constructor.
   */
  newVersion(overrides: LLMWrapperOptions): LLMWrapperBase<P> {
    return new LLMWrapperBase(this.policy, { ...this.options, ...overrides })
  }

  /**
   * Draws completions for the rows of `dict`, or scores them. Returns `dict` itself with the outputs, or a
   * new dictionary.
   * @throws {FulmarError} `UNKNOWN_NAME` without the input, with the present keys; `MALFORMED` for input of
   * another type, or `OUT_OF_RANGE` for invalid ids; `SHAPE_MISMATCH` for more than one batch dimension;
   * `INCOMPATIBLE` for ragged rows of `numSamples` over a batch, which {@link LLMWrapperBase.forwardStack}
   * supports; errors of rendering, encoding and the policy. The error of a row is thrown after the others
   * have ended; nothing is then written.
   */
  async forward(dict: TensorDict, options: ForwardOptions = {}): Promise<TensorDict> {
    return await this.#forward(dict, options, undefined)
  }

  /**
   * Runs {@link LLMWrapperBase.forward} and streams the tokens of all rows; they are not batched. Leaving the
   * loop early ends all completions with `abort`.
   * @throws {FulmarError} From the loop and from `result`, as {@link LLMWrapperBase.forward}; `INCOMPATIBLE` if the policy is not a
   * {@link StreamingPolicy}, or `generate` is false.
   */
  stream(dict: TensorDict, options: ForwardOptions = {}): TokenStream<RowPart, TensorDict> {
    checkDict(dict)
    return tokenStream(options.signal, (push, signal) => this.#forward(dict, { ...options, signal }, push))
  }

  async #forward(
    dict: TensorDict,
    options: ForwardOptions,
    push: ((part: RowPart) => void) | undefined,
  ): Promise<TensorDict> {
    checkDict(dict)
    checkKnownKeys('options', options, FORWARD_KEYS)
    const { numSamples, padOutput, inPlace } = this.#config
    if (numSamples !== undefined && dict.batchSize.length > 0 && !padOutput) {
      const rule = 'padOutput must be true for numSamples over a batch (or call forwardStack)'
      throw new FulmarError('INCOMPATIBLE', `${rule}: got false`)
    }
    const rows = readRows(dict, this.#config)
    const write = await this.#run(rows, options, push)
    const batchSize = [...dict.batchSize, ...(numSamples === undefined ? [] : [numSamples])]
    const target = inPlace ? dict : TensorDict.from({}, { batchSize })
    write(target, 0, rows.length)
    return target
  }

  /**
   * As {@link LLMWrapperBase.forward}, with a new dictionary for each row of the batch: `[B]`, or `[B, n]` with `numSamples`.
   * @throws {FulmarError} As {@link LLMWrapperBase.forward}; `SHAPE_MISMATCH` without a batch.
   */
  async forwardStack(dict: TensorDict, options: ForwardOptions = {}): Promise<LazyStack> {
    checkDict(dict)
    checkKnownKeys('options', options, FORWARD_KEYS)
    if (dict.batchSize.length !== 1)
      throw new FulmarError(
        'SHAPE_MISMATCH',
        `the input must have one batch dimension: got ${dict.batchSize.length}`,
      )
    const { numSamples } = this.#config
    const rows = readRows(dict, this.#config)
    const write = await this.#run(rows, options)
    const parts = rows.map((_, row) => {
      const part = TensorDict.from({}, { batchSize: numSamples === undefined ? [] : [numSamples] })
      write(part, row, row + 1)
      return part
    })
    return lazyStack(parts)
  }

  /**
   * The distributions of the tokens of whole sequences, for losses and for distances between models. The input is read as by
   * {@link LLMWrapperBase.forward} where `generate` is false; nothing is written.
   * @throws {FulmarError} `INCOMPATIBLE` where `generate` is true (see {@link LLMWrapperBase.newVersion}), the policy is no
   * {@link DistributionPolicy}, or the assistant's mask is asked for and not known; `SHAPE_MISMATCH` for a mask of another shape, or
   * more than one batch dimension; `EMPTY` if a mask marks nothing; `LIMIT_EXCEEDED` for more than 2^26 numbers.
   */
  async getDist(dict: TensorDict, options: DistOptions = {}): Promise<TokenDistribution> {
    checkKnownKeys('options', options, ['mask'])
    const config = this.#config
    if (config.generate)
      throw new FulmarError('INCOMPATIBLE', 'generate must be false (see newVersion): got true')
    const policy: Partial<DistributionPolicy> = this.policy
    if (policy.distribution === undefined) {
      const rule = 'policy must tell whole distributions, as a model in this process does'
      throw new FulmarError('INCOMPATIBLE', `${rule}: got one without`)
    }
    const rows = readRows(dict, config)
    const marks = maskRows(dict, rows, options.mask ?? 'all', config)
    const offsets = new Uint32Array(rows.length + 1)
    for (const [at, { ids }] of rows.entries()) offsets[at + 1] = (offsets[at] ?? 0) + ids.length
    const [ids, mask] = [new Uint32Array(offsets.at(-1) ?? 0), new Uint8Array(offsets.at(-1) ?? 0)]
    for (const [at, row] of rows.entries()) {
      ids.set(row.ids, offsets[at])
      mask.set(marks[at] ?? [], offsets[at])
    }
    return await policy.distribution({ ids, offsets, mask })
  }

  #run(
    rows: readonly InputRow[],
    options: ForwardOptions,
    push?: ((part: RowPart) => void) | undefined,
  ): Promise<Writer> {
    if (this.#config.generate) return this.#generateRows(rows, options, push)
    if (push) throw new FulmarError('INCOMPATIBLE', 'generate must be true for a stream: got false')
    return this.#scoreRows(rows, options)
  }

  async #generateRows(
    rows: readonly InputRow[],
    { signal, generateKwargs }: ForwardOptions,
    push: ((part: RowPart) => void) | undefined,
  ): Promise<Writer> {
    const config = this.#config
    const count = config.numSamples ?? 1
    const { nextSeed, stopIds, sampling } = this.#drawing(generateKwargs)
    const requests = rows.flatMap(({ ids: promptIds }) =>
      Array.from({ length: count }, () => {
        const request = { requestId: this.#nextId(), promptIds, seed: nextSeed(), stopIds }
        return { ...sampling, ...request, ...(signal && { signal }) }
      }),
    )
    const draw = (request: GenerateRequest, at: number) => {
      if (push === undefined) return this.#draw(request)
      const place = { row: Math.floor(at / count), sample: at % count }
      return this.#follow(request, (part) => push({ ...place, ...part }))
    }
    const batched = push ? undefined : this.#draws?.submit(requests)
    const completions = await (batched ?? allSettled(requests.map(draw)))
    return (target, start, end) => {
      const drawn = rows
        .slice(start, end)
        .flatMap((prompt, at) =>
          completions
            .slice((start + at) * count, (start + at + 1) * count)
            .map((completion) => ({ prompt, completion })),
        )
      writeGenerated(target, drawn, config)
    }
  }

  async #scoreRows(rows: readonly InputRow[], { signal, generateKwargs }: ForwardOptions): Promise<Writer> {
    if (generateKwargs !== undefined)
      throw new FulmarError('INCOMPATIBLE', 'generateKwargs must go with generate: got generate false')
    const requests = rows.map(({ ids }) => ({ requestId: this.#nextId(), ids, ...(signal && { signal }) }))
    const score = (request: ScoreRequest) => this.#score(request)
    const all = await (this.#scores?.submit(requests) ?? allSettled(requests.map(score)))
    const scored = rows.flatMap((row, at) => {
      const scores = all[at]
      return scores === undefined ? [] : [{ row, scores }]
    })
    return (target, start, end) => writeScored(target, scored.slice(start, end), this.#config)
  }

  /** Returns the seed source of a call: its own seed, or the next draws. */
  #drawing(overrides: GenerateKwargs | undefined) {
    const configured = this.options.generateKwargs
    const kwargs = overrides ? merged(configured, overrides) : this.#config.generateKwargs
    const { stopIds, numSamples, seed, ...sampling } = kwargs
    if (overrides && (overrides.n ?? overrides.numReturnSequences) !== undefined) {
      if ((numSamples ?? 1) !== (this.#config.numSamples ?? 1))
        throw new FulmarError(
          'INCOMPATIBLE',
          'numSamples must be that of the wrapper (see newVersion): got another',
        )
    }
    const own = overrides?.seed === undefined ? undefined : Rng.fromSeed(seed).stream('wrapper')
    let numDraws = 0
    const nextSeed = () =>
      (own ? own.fork(numDraws++) : this.#rng.fork(this.#numDraws++)).below(Number.MAX_SAFE_INTEGER)
    return { nextSeed, stopIds: stopIds ?? this.#config.stopIds, sampling }
  }

  #nextId(): string {
    const count = NUM_REQUESTS.get(this.policy) ?? 0
    NUM_REQUESTS.set(this.policy, count + 1)
    return `wrapper-${count}`
  }

  #draw(request: GenerateRequest): Promise<Completion> {
    return this.policy.generate(request)
  }

  async #follow(request: GenerateRequest, push: (part: CompletionPart) => void): Promise<Completion> {
    const policy: Partial<StreamingPolicy> = this.policy
    const stream = policy.stream?.(request)
    if (stream === undefined)
      throw new FulmarError('INCOMPATIBLE', 'policy must have a method stream: got one without')
    for await (const part of stream) push(part)
    return await stream.result
  }

  #score(request: ScoreRequest): Promise<TokenScores> {
    const { policy } = this
    if (policy.score) return policy.score(request)
    return Promise.reject(new FulmarError('INCOMPATIBLE', 'policy must be able to score: got one without'))
  }
}

/** Merges options under one name each: those of a call replace those of the wrapper, whichever name either used. */
function merged(configured: GenerateKwargs = {}, overrides: GenerateKwargs): ResolvedGenerateKwargs {
  const { maxNewTokens, maxTokens, numReturnSequences, n, doSample, temperature, ...rest } = configured
  const [length, count] = [maxNewTokens ?? maxTokens, numReturnSequences ?? n]
  const saysLength = (overrides.maxNewTokens ?? overrides.maxTokens) !== undefined
  const saysCount = (overrides.numReturnSequences ?? overrides.n) !== undefined
  const saysHeat = (overrides.doSample ?? overrides.temperature) !== undefined
  return resolveGenerateKwargs({
    ...rest,
    ...(saysLength || length === undefined ? {} : { maxNewTokens: length }),
    ...(saysCount || count === undefined ? {} : { n: count }),
    ...(saysHeat || doSample === undefined ? {} : { doSample }),
    ...(saysHeat || temperature === undefined ? {} : { temperature }),
    ...overrides,
  })
}
