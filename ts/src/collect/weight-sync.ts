/**
 * Atomic transfer of new weights to all policies that sample.
 *
 * ```text
 * start(version): capture (the trainer may change its weights again) -> stage everywhere -> commit everywhere -> settle
 *                 a stage or commit that fails, after its attempts:  -> roll every receiver back to what it served
 * ```
 *
 * The transaction runs concurrently with training. Await {@link WeightSync.waitCaptured} before the next step of the
 * optimizer, and {@link WeightSync.waitServed} before the next `start`.
 */

import { withDeadline } from '../async/index.js'
import { checkKnownKeys, FulmarError, messageOf } from '../core/index.js'
import type { WeightContext, WeightReceiver } from '../policy/index.js'
import { type Clock, systemClock } from '../telemetry/index.js'

/** Options of {@link WeightSync}. */
export interface WeightSyncOptions<Weights> {
  /** Copies the trainer's weights, so that it may change them during the transfer. */
  readonly capture: (version: number) => Weights | Promise<Weights>
  /** Receivers of the weights. With an empty list, weights are only captured. */
  readonly receivers: readonly WeightReceiver<Weights>[]
  /**
   * Maximum number of attempts of staging and of committing at each receiver, >= 1.
   * @default 3
   */
  readonly attempts?: number
  /**
   * Milliseconds before the second attempt; they double with each further one.
   * @default 100
   */
  readonly retryDelayMs?: number
  /**
   * Deadline of each call of a receiver in milliseconds; `null` for none.
   * @default 600_000
   */
  readonly timeoutMs?: number | null
  /** @default systemClock */
  readonly clock?: Clock
}

interface Cycle {
  readonly captured: Promise<number>
  readonly served: Promise<number>
}

/**
 * Synchronises weights in the background, one version after another.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder, DecoderPolicy, WeightSync, WorkerPolicy } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const here = new DecoderPolicy(await decoder.snapshot())
 * const there = await WorkerPolicy.launch(decoder)
 * const sync = new WeightSync({ capture: () => decoder.snapshot(), receivers: [here, there] })
 *
 * using optimizer = new AdamW(decoder, { learningRate: 0.01 })
 * await decoder.forward({ ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) })
 * await decoder.backward(Float32Array.of(0, -1))
 * await optimizer.step()
 * sync.start(decoder.version)
 * await sync.waitCaptured() // from here on the trainer may change its weights
 * await sync.waitServed()
 * assert.deepEqual(sync.served, { decoder: 1, worker: 1 })
 * await there.close()
 * ```
 */
export class WeightSync<Weights> {
  readonly #options: Required<WeightSyncOptions<Weights>>
  readonly #broken = new Set<string>()
  #last: Cycle | undefined

  /** @throws {FulmarError} `OUT_OF_RANGE` for a number outside its range; `INCOMPATIBLE` if two receivers share a name. */
  constructor(options: WeightSyncOptions<Weights>) {
    checkKnownKeys(
      'options',
      options,
      ['capture', 'receivers', 'attempts', 'retryDelayMs', 'timeoutMs', 'clock'],
      ['capture', 'receivers'],
    )
    const { receivers, attempts = 3, retryDelayMs = 100, timeoutMs = 600_000, clock = systemClock } = options
    if (!Number.isSafeInteger(attempts) || attempts < 1)
      throw new FulmarError('OUT_OF_RANGE', `attempts must be a positive integer: got ${attempts}`)
    for (const [name, value] of Object.entries({ retryDelayMs, timeoutMs: timeoutMs ?? 0 })) {
      if (!(value >= 0)) throw new FulmarError('OUT_OF_RANGE', `${name} must be >= 0: got ${value}`)
    }
    const names = receivers.map(({ name }) => name)
    const twice = names.find((name, index) => names.indexOf(name) !== index)
    if (twice !== undefined)
      throw new FulmarError('INCOMPATIBLE', `receivers must differ in name: got ${twice} twice`)
    this.#options = { ...options, attempts, retryDelayMs, timeoutMs, clock }
  }

  /** Version that each receiver serves; `null` if a rollback failed, so that it is unknown. */
  get served(): Readonly<Record<string, number | null>> {
    return Object.fromEntries(
      this.#options.receivers.map(({ name, version }) => [name, this.#broken.has(name) ? null : version]),
    )
  }

  /**
   * Starts a transfer and returns at once; the waits throw its errors. Weights are captured at once and
   * served after those of an earlier call.
   */
  start(
    version: number,
    options: { readonly signal?: AbortSignal; readonly onServed?: () => void } = {},
  ): void {
    checkKnownKeys('options', options, ['signal', 'onServed'])
    const { signal, onServed = () => {} } = options
    const before = this.#last?.served.catch(() => 0)
    const capturing = this.#timed(() => this.#options.capture(version))
    const serve = async () => {
      const [{ value }] = await Promise.all([capturing, before])
      const { seconds } = await this.#timed(() => this.#transact(value, version, signal))
      onServed()
      return seconds
    }
    const cycle = { captured: capturing.then(({ seconds }) => seconds), served: serve() }
    // The waits report a failure; until then it is not an unhandled rejection.
    for (const promise of Object.values(cycle)) promise.catch(() => undefined)
    this.#last = cycle
  }

  /** Once the last weights are copied: seconds that it took, 0 before the first. @throws What `capture` threw. */
  async waitCaptured(): Promise<number> {
    return (await this.#last?.captured) ?? 0
  }

  /**
   * Once all receivers serve the last weights: seconds that it took, 0 before the first.
   * @throws {FulmarError} `UNAVAILABLE` if a receiver failed, with all of them rolled back; `ABORTED` if the signal fired;
   * what `capture` threw.
   */
  async waitServed(): Promise<number> {
    return (await this.#last?.served) ?? 0
  }

  async #transact(weights: Weights, version: number, signal: AbortSignal | undefined): Promise<void> {
    const { receivers } = this.#options
    const before = receivers.map((receiver) => receiver.version)
    try {
      await this.#onAll('stage', signal, (receiver, context) => receiver.stage(weights, version, context))
      await this.#onAll('commit', signal, (receiver, context) => receiver.commit(version, context))
    } catch (error) {
      await this.#rollback(before)
      throw error
    }
    this.#broken.clear()
    for (const receiver of receivers) receiver.settle?.(version)
  }

  /** One phase on all receivers at once; the first failure, once all have settled. */
  async #onAll(
    phase: string,
    signal: AbortSignal | undefined,
    run: (receiver: WeightReceiver<Weights>, context: WeightContext) => void | Promise<void>,
  ): Promise<void> {
    const settled = await Promise.allSettled(
      this.#options.receivers.map((receiver) => this.#retried(phase, receiver, signal, run)),
    )
    const failed = settled.find((result) => result.status === 'rejected')
    if (failed) throw failed.reason
  }

  async #retried(
    phase: string,
    receiver: WeightReceiver<Weights>,
    signal: AbortSignal | undefined,
    run: (receiver: WeightReceiver<Weights>, context: WeightContext) => void | Promise<void>,
  ): Promise<void> {
    const { attempts, retryDelayMs, timeoutMs, clock } = this.#options
    for (let attempt = 1; ; attempt++) {
      const result = await withDeadline({
        clock,
        timeoutMs,
        signal,
        run: (context) => run(receiver, context),
      })
      if (result.kind === 'value') return
      if (attempt === attempts) throw unserved(phase, receiver.name, attempts, result)
      await new Promise<void>((resolve) => clock.startTimer(retryDelayMs * 2 ** (attempt - 1), resolve))
    }
  }

  /** A stopped transfer still rolls back, so the rollback ignores the signal. */
  async #rollback(versions: readonly number[]): Promise<void> {
    const { receivers, timeoutMs, clock } = this.#options
    const results = receivers.map(async (receiver, index) => {
      const run = (context: WeightContext) => receiver.rollback(versions[index] ?? 0, context)
      const { kind } = await withDeadline({ clock, timeoutMs, signal: undefined, run })
      if (kind === 'value') this.#broken.delete(receiver.name)
      else this.#broken.add(receiver.name)
    })
    await Promise.all(results)
  }

  async #timed<T>(body: () => T | Promise<T>): Promise<{ value: T; seconds: number }> {
    const startMs = this.#options.clock.nowMs()
    const value = await body()
    return { value, seconds: (this.#options.clock.nowMs() - startMs) / 1000 }
  }
}

function unserved(
  phase: string,
  name: string,
  attempts: number,
  result: { readonly kind: 'timeout' } | { readonly kind: 'thrown'; readonly error: unknown },
): FulmarError {
  const why = result.kind === 'timeout' ? 'no answer in time' : messageOf(result.error)
  const detail = `${phase} at ${name} must succeed within ${attempts} attempts: got ${why}`
  return new FulmarError('UNAVAILABLE', detail, result.kind === 'thrown' ? { cause: result.error } : {})
}
