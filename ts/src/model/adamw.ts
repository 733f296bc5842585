/** The optimiser: AdamW with decoupled weight decay (https://arxiv.org/abs/1711.05101). */

import { checkKnownKeys, Handle } from '../core/index.js'
import { type RawAdamW, raw } from '../native/index.js'
import type { Decoder } from './decoder.js'

/** Options of {@link AdamW}; the defaults are PyTorch's, but for the decay. */
export interface AdamWOptions {
  /**
   * Size of a step, >= 0.
   * @default 0.001
   */
  readonly learningRate?: number
  /**
   * Decay of the first moment, in [0, 1).
   * @default 0.9
   */
  readonly beta1?: number
  /**
   * Decay of the second moment, in [0, 1).
   * @default 0.999
   */
  readonly beta2?: number
  /**
   * Added to the root of the second moment, > 0.
   * @default 1e-8
   */
  readonly eps?: number
  /**
   * Decoupled decay of every weight, >= 0.
   * @default 0
   */
  readonly weightDecay?: number
}

/** What one step of an optimiser did. */
export interface StepReport {
  /** Number of this step, from 1. */
  readonly step: number
  /** L2 norm of the gradient before clipping. */
  readonly gradientNorm: number
  /** What clipping multiplied the gradient by, at most 1. */
  readonly clipCoefficient: number
}

/** What a single step may say otherwise. */
export interface StepOptions {
  /**
   * Stands for the rate of the options, as a schedule needs.
   * @default the optimiser's learningRate
   */
  readonly learningRate?: number
  /**
   * Gradients are scaled down to this L2 norm.
   * @default no clipping
   */
  readonly maxGradNorm?: number
}

const KEYS = ['learningRate', 'beta1', 'beta2', 'eps', 'weightDecay'] as const

/**
 * Updates the weights of one {@link Decoder} from its gradients, then sets those to 0. Holds two floats of native
 * memory a weight: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new AdamW(decoder, { learningRate: 0.01 })
 * await decoder.forward({ ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) })
 * await decoder.backward(Float32Array.of(0, -1))
 * const report = await optimizer.step({ maxGradNorm: 0.1 })
 * assert.equal(report.step, 1)
 * assert.ok(report.clipCoefficient < 1)
 * ```
 */
export class AdamW {
  readonly #native: Handle<RawAdamW>
  readonly #decoder: Decoder

  /**
   * Zero moments, or those that {@link AdamW.toSafetensors} wrote.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option, `OUT_OF_RANGE` for a bad one; for a `state`: `CORRUPT`, or
   * `INCOMPATIBLE` if it is that of another architecture.
   */
  constructor(decoder: Decoder, options: AdamWOptions = {}, state?: Uint8Array) {
    checkKnownKeys('options', options, KEYS)
    const json = JSON.stringify(options)
    this.#decoder = decoder
    this.#native = new Handle('AdamW', () =>
      decoder.withNative((native) =>
        state ? raw.AdamW.fromSafetensors(native, json, state) : new raw.AdamW(native, json),
      ),
    )
  }

  /**
   * Updates the weights and sets the gradients to 0.
   * @throws {FulmarError} `CLOSED` without gradients; `NON_FINITE` if they are no numbers (weights and moments are then
   * unchanged); `OUT_OF_RANGE` for a bad rate or norm.
   */
  async step({ learningRate, maxGradNorm }: StepOptions = {}): Promise<StepReport> {
    const report = await this.#native.callAsync((optimizer) => optimizer.step(learningRate, maxGradNorm))
    this.#decoder.countUpdate()
    const { step, gradientNorm, clipCoefficient } = report
    return { step, gradientNorm, clipCoefficient }
  }

  /** Moments and step count as a safetensors file. */
  toSafetensors(): Promise<Uint8Array> {
    return this.#native.callAsync((optimizer) => optimizer.toSafetensors())
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}
