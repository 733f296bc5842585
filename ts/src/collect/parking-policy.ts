/**
 * A policy whose weights are replaced during sampling: running completions are paused, and continue with the
 * new weights. No sampled token is lost, and each has its policy version.
 */

import { checkKnownKeys, FulmarError, Rng } from '../core/index.js'
import type { Completion, GenerateRequest, Policy, WeightReceiver } from '../policy/index.js'

/** Options of {@link ParkingPolicy}. */
export interface ParkingPolicyOptions {
  /**
   * Names the policy among the receivers of a `WeightSync`.
   * @default 'policy'
   */
  readonly name?: string
  /** Called with a policy that was replaced or discarded: free its memory here. */
  readonly onReplaced?: (policy: Policy) => void
}

/**
 * Serves one policy and, from the next commit on, another. Its completions may span both.
 *
 * @example
 * ```ts
 * import { ParkingPolicy, WeightSync } from 'fulmar/collect'
 * import { ScriptedPolicy } from 'fulmar/testing'
 * import assert from 'node:assert/strict'
 *
 * const policy = new ParkingPolicy(new ScriptedPolicy({ reply: () => [5, 9] }))
 * const capture = (version: number) => new ScriptedPolicy({ reply: () => [6, 9], version })
 * const sync = new WeightSync({ capture, receivers: [policy] })
 * sync.start(1)
 * await sync.waitServed()
 * const request = { requestId: 'a', promptIds: Uint32Array.of(1), seed: 0, maxTokens: 8, stopIds: [9] }
 * const { ids, minPolicyVersion } = await policy.generate(request)
 * assert.deepEqual([...ids, minPolicyVersion], [6, 9, 1])
 * ```
 */
export class ParkingPolicy implements Policy, WeightReceiver<Policy> {
  readonly name: string
  readonly #onReplaced: (policy: Policy) => void
  readonly #cuts = new Set<AbortController>()
  #served: Policy
  #staged: Policy | undefined
  #previous: Policy | undefined
  #gate: Gate | undefined
  #onIdle: () => void = () => {}

  constructor(policy: Policy, options: ParkingPolicyOptions = {}) {
    checkKnownKeys('options', options, ['name', 'onReplaced'])
    const { name = 'policy', onReplaced = () => {} } = options
    this.#served = policy
    this.name = name
    this.#onReplaced = onReplaced
  }

  /** Version of the current policy. */
  get version(): number {
    return this.#served.version
  }

  /** Number of completions that are sampling, without paused ones. */
  get numInFlight(): number {
    return this.#cuts.size
  }

  /**
   * Pauses running completions and holds new ones until {@link ParkingPolicy.resume}; resolves once sampling
   * has stopped. Repeated calls are harmless.
   */
  async pause(): Promise<void> {
    this.#gate ??= new Gate()
    for (const cut of this.#cuts) cut.abort()
    if (this.#cuts.size > 0) await new Promise<void>((resolve) => this.#whenIdle(resolve))
  }

  /** Continues paused completions. */
  resume(): void {
    this.#gate?.open()
    this.#gate = undefined
  }

  /**
   * Samples one completion, over as many weights as it takes. Its later parts draw from streams of their own, so a cut
   * completion has other tokens than one that was not; penalties take its earlier parts for prompt, and a stop string that a cut runs
   * through is not found.
   * @throws {FulmarError} The errors of the served policy; `INCOMPATIBLE` if its completion has another form than documented.
   */
  async generate(request: GenerateRequest): Promise<Completion> {
    const parts: Completion[] = []
    const { signal } = request
    for (;;) {
      while (this.#gate && !signal?.aborted) await this.#gate.passed(signal)
      if (this.#gate) return joined(request, [...parts, nothing(request, this.version)])
      const cut = new AbortController()
      const stop = () => cut.abort(signal?.reason)
      if (signal?.aborted) stop()
      signal?.addEventListener('abort', stop, { once: true })
      this.#cuts.add(cut)
      try {
        parts.push(await this.#served.generate({ ...continued(request, parts), signal: cut.signal }))
      } finally {
        this.#cuts.delete(cut)
        if (this.#cuts.size === 0) this.#onIdle()
        signal?.removeEventListener('abort', stop)
      }
      const { finishReason } = parts.at(-1) ?? { finishReason: 'abort' }
      const isOver = finishReason !== 'abort' || signal?.aborted === true || !cut.signal.aborted
      if (isOver || numTokens(parts) >= request.maxTokens) return joined(request, parts)
    }
  }

  stage(policy: Policy): void {
    if (this.#staged) this.#onReplaced(this.#staged)
    this.#staged = policy
  }

  /** @throws {FulmarError} `CLOSED` if nothing was staged. */
  async commit(version: number): Promise<void> {
    if (this.#previous && this.version === version) return
    if (this.#staged === undefined)
      throw new FulmarError('CLOSED', `policy of version ${version} must be staged: there is none`)
    await this.pause()
    this.#previous = this.#served
    this.#served = this.#staged
    this.#staged = undefined
    this.resume()
  }

  async rollback(): Promise<void> {
    const refused = this.#previous ? this.#served : this.#staged
    if (this.#previous) await this.pause()
    this.#served = this.#previous ?? this.#served
    this.#previous = undefined
    this.#staged = undefined
    this.resume()
    if (refused) this.#onReplaced(refused)
  }

  settle(): void {
    if (this.#previous) this.#onReplaced(this.#previous)
    this.#previous = undefined
  }

  #whenIdle(resolve: () => void): void {
    const before = this.#onIdle
    this.#onIdle = () => {
      this.#onIdle = () => {}
      before()
      resolve()
    }
  }
}

/** The request for what a completion still lacks. */
function continued(request: GenerateRequest, parts: readonly Completion[]): GenerateRequest {
  if (parts.length === 0) return request
  using rng = Rng.fromSeed(request.seed).stream('parked').fork(parts.length)
  return {
    ...request,
    promptIds: concat([request.promptIds, ...parts.map(({ ids }) => ids)]),
    seed: rng.below(Number.MAX_SAFE_INTEGER),
    maxTokens: request.maxTokens - numTokens(parts),
  }
}

function joined({ requestId, maxTokens }: GenerateRequest, parts: readonly Completion[]): Completion {
  const [only] = parts
  if (only && parts.length === 1) return only
  const last = parts.at(-1)
  const isFull = last?.finishReason === 'abort' && numTokens(parts) >= maxTokens
  const sampled = parts.filter(({ ids }) => ids.length > 0)
  const versions = sampled.length > 0 ? sampled : parts
  return {
    requestId,
    ids: concat(parts.map(({ ids }) => ids)),
    logProbs: concatFloats(parts.map(({ logProbs }) => logProbs)),
    sampledLogProbs: concatFloats(parts.map(({ sampledLogProbs }) => sampledLogProbs)),
    finishReason: isFull ? 'length' : (last?.finishReason ?? 'abort'),
    minPolicyVersion: Math.min(...versions.map(({ minPolicyVersion }) => minPolicyVersion)),
    maxPolicyVersion: Math.max(...versions.map(({ maxPolicyVersion }) => maxPolicyVersion)),
    policyVersions: concat(parts.map(versionsOf)),
  }
}

/** The part of a completion that ended while it was parked. */
function nothing({ requestId }: GenerateRequest, version: number): Completion {
  const logProbs = new Float32Array(0)
  const versions = { minPolicyVersion: version, maxPolicyVersion: version }
  return {
    requestId,
    ids: new Uint32Array(0),
    logProbs,
    sampledLogProbs: logProbs,
    finishReason: 'abort',
    ...versions,
  }
}

function versionsOf({ ids, policyVersions, minPolicyVersion }: Completion): Uint32Array {
  return policyVersions ?? new Uint32Array(ids.length).fill(minPolicyVersion)
}

function numTokens(parts: readonly Completion[]): number {
  return parts.reduce((sum, { ids }) => sum + ids.length, 0)
}

function concat(arrays: readonly Uint32Array[]): Uint32Array {
  return fill(new Uint32Array(arrays.reduce((sum, { length }) => sum + length, 0)), arrays)
}

function concatFloats(arrays: readonly Float32Array[]): Float32Array {
  return fill(new Float32Array(arrays.reduce((sum, { length }) => sum + length, 0)), arrays)
}

function fill<T extends Uint32Array | Float32Array>(whole: T, arrays: readonly T[]): T {
  let start = 0
  for (const array of arrays) {
    whole.set(array, start)
    start += array.length
  }
  return whole
}

/** Gate for requests while weights are replaced. */
class Gate {
  #open: () => void = () => {}
  readonly #opened = new Promise<void>((resolve) => {
    this.#open = resolve
  })

  open(): void {
    this.#open()
  }

  /** Resolves once the gate is open, or the signal fires. */
  async passed(signal: AbortSignal | undefined): Promise<void> {
    if (signal === undefined) return await this.#opened
    let stop = () => {}
    const stopped = new Promise<void>((resolve) => {
      stop = resolve
      if (signal.aborted) resolve()
      signal.addEventListener('abort', stop, { once: true })
    })
    await Promise.race([this.#opened, stopped])
    signal.removeEventListener('abort', stop)
  }
}
