/** Exported models under ONNX Runtime, in the current process. */

import type { InferenceSession, Tensor as OrtTensor } from 'onnxruntime-node'
import { FulmarError, messageOf, openRegular } from '../core/index.js'
import type { PieceStream } from '../model/index.js'
import { type StopWatch, watchStops } from '../model/stop-strings.js'
import { drawToken, tokenLogProbs } from '../objective/index.js'
import {
  type Completion,
  checkGenerateRequest,
  checkScoreRequest,
  type FinishReason,
  type GenerateRequest,
  type Policy,
  type ScoreRequest,
  type TokenScores,
} from './policy.js'
import { rulesOf } from './request-rule.js'

/** Source of a model: a file, or its bytes. */
export interface OnnxSource {
  readonly model: string | Uint8Array
  readonly version: number
  readonly contextLength: number
  readonly numThreads: number
  /** Decodes ids for stop strings. */
  readonly decodeStream?: (() => PieceStream) | undefined
}

/** The module, which the user installs. */
type Runtime = typeof import('onnxruntime-node')

/**
 * A policy over a session. Each step recomputes one sequence alone, so that a completion does not depend on
 * concurrent requests.
 */
export class OnnxModel implements Policy {
  readonly version: number
  readonly #runtime: Runtime
  readonly #session: InferenceSession
  readonly #contextLength: number
  readonly #vocabSize: number
  readonly #decodeStream: (() => PieceStream) | undefined

  private constructor(runtime: Runtime, session: InferenceSession, source: OnnxSource, vocabSize: number) {
    this.#runtime = runtime
    this.#session = session
    this.version = source.version
    this.#contextLength = source.contextLength
    this.#vocabSize = vocabSize
    this.#decodeStream = source.decodeStream
  }

  /**
   * Opens a model and computes one token to find its inputs and outputs.
   * @throws {FulmarError} `UNAVAILABLE` without ONNX Runtime; `CORRUPT` for a file that is not a model; `INCOMPATIBLE` for inputs or outputs
   * that are not those of a language model.
   */
  static async open(source: OnnxSource): Promise<OnnxModel> {
    const runtime = await loadRuntime()
    const session = await openSession(runtime, source)
    try {
      checkNames(session)
      const [, , vocabSize = 0] = (await runSession(runtime, session, Uint32Array.of(0))).dims
      return new OnnxModel(runtime, session, source, vocabSize)
    } catch (error) {
      await session.release()
      throw error
    }
  }

  async generate(request: GenerateRequest): Promise<Completion> {
    checkGenerateRequest(request)
    const stops = watchStops(request.stopStrings ?? [], this.#decodeStream)
    try {
      return await this.#draw(request, stops)
    } finally {
      stops.close()
    }
  }

  async #draw(request: GenerateRequest, stops: StopWatch): Promise<Completion> {
    const { requestId, promptIds, maxTokens, stopIds, seed, signal, topK = 0 } = request
    const { temperature, topP, minP, repetitionPenalty, frequencyPenalty, presencePenalty } = request
    const penalties = { repetitionPenalty, frequencyPenalty, presencePenalty }
    const common = { temperature, topP, minP, ...penalties, topK: topK === 0 ? undefined : topK }
    const rule = { ...defined(common), ...rulesOf(request) }
    this.#check(promptIds, maxTokens)
    const sequence = new Uint32Array(promptIds.length + maxTokens)
    sequence.set(promptIds)
    const [logProbs, sampledLogProbs]: [number[], number[]] = [[], []]
    let finishReason: FinishReason = 'length'
    let stoppedBy: number | string | null = null
    while (logProbs.length < maxTokens) {
      if (signal?.aborted) {
        finishReason = 'abort'
        break
      }
      const length = promptIds.length + logProbs.length
      const { data } = await this.#logits(sequence.subarray(0, length))
      const logits = data.slice(data.length - this.#vocabSize)
      const outputIds = sequence.slice(promptIds.length, length)
      const drawn = drawToken({ ...rule, logits, promptIds, outputIds, seed, drawIndex: logProbs.length })
      sequence[length] = drawn.id
      logProbs.push(drawn.logProb)
      sampledLogProbs.push(drawn.sampledLogProb)
      stoppedBy = stops.completes(drawn.id) ?? (stopIds.includes(drawn.id) ? drawn.id : null)
      if (stoppedBy !== null) {
        finishReason = 'stop'
        break
      }
    }
    return {
      requestId,
      ids: sequence.slice(promptIds.length, promptIds.length + logProbs.length),
      logProbs: Float32Array.from(logProbs),
      sampledLogProbs: Float32Array.from(sampledLogProbs),
      finishReason,
      stoppedBy,
      minPolicyVersion: this.version,
      maxPolicyVersion: this.version,
    }
  }

  async score(request: ScoreRequest): Promise<TokenScores> {
    checkScoreRequest(request)
    const { requestId, ids, signal } = request
    this.#check(ids, 0)
    const { data } = await this.#logits(ids)
    if (signal?.aborted) throw new FulmarError('ABORTED', 'signal must not fire during the call: it did')
    const logProbs = new Float32Array(ids.length).fill(Number.NaN)
    if (ids.length > 1) {
      const logits = data.subarray(0, (ids.length - 1) * this.#vocabSize)
      logProbs.set(tokenLogProbs({ logits, ids: ids.slice(1) }).logProb, 1)
    }
    return { requestId, logProbs, policyVersion: this.version }
  }

  /** Frees the session. */
  close(): void {
    void this.#session.release()
  }

  async #logits(
    ids: Uint32Array,
  ): Promise<{ readonly data: Float32Array; readonly dims: readonly number[] }> {
    return await runSession(this.#runtime, this.#session, ids)
  }

  #check(ids: Uint32Array, maxTokens: number): void {
    const wrong = ids.find((id) => id >= this.#vocabSize)
    if (wrong !== undefined)
      throw new FulmarError('OUT_OF_RANGE', `ids must be below ${this.#vocabSize}: got ${wrong}`)
    const length = ids.length + maxTokens
    if (length <= this.#contextLength) return
    const rule = `prompt and maxTokens together must be at most ${this.#contextLength} (contextLength)`
    throw new FulmarError('LIMIT_EXCEEDED', `${rule}: got ${length}`)
  }
}

async function loadRuntime(): Promise<Runtime> {
  try {
    return await import('onnxruntime-node')
  } catch (cause) {
    const remedy =
      'npm install onnxruntime-node; with ONNXRUNTIME_NODE_INSTALL=skip it downloads nothing else'
    throw new FulmarError(
      'UNAVAILABLE',
      `onnxruntime-node must be installed: it could not be imported (${remedy})`,
      {
        cause,
      },
    )
  }
}

async function openSession(runtime: Runtime, { model, numThreads }: OnnxSource): Promise<InferenceSession> {
  // The runtime would wait for the writer of a pipe.
  if (typeof model === 'string') await (await openRegular(model))?.close()
  const options = { executionProviders: ['cpu'], intraOpNumThreads: numThreads, logSeverityLevel: 4 as const }
  try {
    const { InferenceSession: sessions } = runtime
    return typeof model === 'string'
      ? await sessions.create(model, options)
      : await sessions.create(model, options)
  } catch (cause) {
    throw new FulmarError('CORRUPT', `model must be an ONNX model: got ${messageOf(cause)}`, { cause })
  }
}

const PAST = /^past_key_values[._]/

function checkNames({ inputNames, outputNames }: InferenceSession): void {
  const known = ['input_ids', 'attention_mask', 'position_ids']
  const other = inputNames.find((name) => !known.includes(name) && !PAST.test(name))
  if (other !== undefined)
    throw new FulmarError(
      'INCOMPATIBLE',
      `inputs must be ${known.join(', ')} or past_key_values: got ${other}`,
    )
  if (!inputNames.includes('input_ids'))
    throw new FulmarError('INCOMPATIBLE', 'inputs must hold input_ids: the model has no such input')
  if (!outputNames.includes('logits'))
    throw new FulmarError('INCOMPATIBLE', 'outputs must hold logits: the model has no such output')
}

/** Computes the logits of one sequence, `[1, L, V]`. */
async function runSession(
  runtime: Runtime,
  session: InferenceSession,
  ids: Uint32Array,
): Promise<{ readonly data: Float32Array; readonly dims: readonly number[] }> {
  const row = (of: (id: number, at: number) => number) =>
    new runtime.Tensor(
      'int64',
      BigInt64Array.from(ids, (id, at) => BigInt(of(id, at))),
      [1, ids.length],
    )
  const rows: Readonly<Record<string, () => OrtTensor>> = {
    input_ids: () => row((id) => id),
    attention_mask: () => row(() => 1),
    position_ids: () => row((_, at) => at),
  }
  const feeds = session.inputNames.map((name, at) => [
    name,
    rows[name]?.() ?? emptyPast(runtime, session, at),
  ])
  const logits = await run(session, Object.fromEntries(feeds))
  const { data, dims } = logits
  if (!(data instanceof Float32Array) || dims.length !== 3 || dims[0] !== 1 || dims[1] !== ids.length) {
    const got = `${logits.type} [${dims.join(', ')}]`
    throw new FulmarError('INCOMPATIBLE', `logits must be float32 [1, ${ids.length}, vocabulary]: got ${got}`)
  }
  return { data, dims }
}

async function run(session: InferenceSession, feeds: Record<string, OrtTensor>): Promise<OrtTensor> {
  try {
    const { logits } = await session.run(feeds, ['logits'])
    if (logits) return logits
  } catch (cause) {
    throw new FulmarError('INCOMPATIBLE', `the model must compute the sequence: got ${messageOf(cause)}`, {
      cause,
    })
  }
  throw new FulmarError('INCOMPATIBLE', 'outputs must hold logits: the model has no such output')
}

/** Creates an empty KV cache, for models that need one: `[1, heads, 0, width]`. */
function emptyPast(runtime: Runtime, session: InferenceSession, input: number): OrtTensor {
  const { name, shape = [] } = Object(session.inputMetadata[input]) as {
    name?: string
    shape?: readonly (number | string)[]
  }
  const [, heads, , width] = shape
  if (shape.length !== 4 || typeof heads !== 'number' || typeof width !== 'number') {
    const rule = `${name} must be of the shape [batch, heads, past, width] with numbers for heads and width`
    throw new FulmarError('INCOMPATIBLE', `${rule}: got [${shape.join(', ')}]`)
  }
  return new runtime.Tensor('float32', new Float32Array(0), [1, heads, 0, width])
}

function defined<T extends object>(options: T): { readonly [K in keyof T]?: Exclude<T[K], undefined> } {
  const given = Object.entries(options).filter(([, value]) => value !== undefined)
  return Object.fromEntries(given) as { readonly [K in keyof T]?: Exclude<T[K], undefined> }
}
