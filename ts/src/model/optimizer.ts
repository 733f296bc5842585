/** Optimisers: AdamW, stochastic gradient descent, Muon. */

import { checkKnownKeys, checkTypedArray, Handle } from '../core/index.js'
import { type RawOptimizer, raw } from '../native/index.js'
import type { Decoder } from './decoder.js'

/**
 * The parameters that a weight decay pulls at: `matrices` are all of two dimensions (so no norms and no biases), a list holds patterns of
 * names in which `*` matches any characters, such as `*.mlp.*`.
 */
export type Decay = 'matrices' | 'all' | readonly string[]

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
   * Decoupled weight decay, >= 0.
   * @default 0
   */
  readonly weightDecay?: number
  /**
   * The parameters that the weight decay pulls at.
   * @default 'matrices'
   */
  readonly decay?: Decay
}

/** Options of {@link SGD}; the defaults are PyTorch's. */
export interface SGDOptions {
  /**
   * Size of a step, >= 0.
   * @default 0.001
   */
  readonly learningRate?: number
  /**
   * Share of the last direction that a step keeps, in [0, 1).
   * @default 0
   */
  readonly momentum?: number
  /**
   * Share of the gradient that the momentum does not take, in [0, 1).
   * @default 0
   */
  readonly dampening?: number
  /**
   * If true, uses Nesterov momentum; needs a momentum, and no dampening.
   * @default false
   */
  readonly nesterov?: boolean
  /**
   * Added to the gradient times the weight, >= 0; unlike AdamW's it passes through the momentum.
   * @default 0
   */
  readonly weightDecay?: number
  /**
   * The parameters that the weight decay pulls at.
   * @default 'matrices'
   */
  readonly decay?: Decay
}

/** Options of {@link Muon}; the defaults are PyTorch's, which are Keller Jordan's. */
export interface MuonOptions {
  /**
   * Size of a step, > 0.
   * @default 0.001
   */
  readonly learningRate?: number
  /**
   * Share of the last direction that a step keeps, in [0, 1).
   * @default 0.95
   */
  readonly momentum?: number
  /**
   * If true, uses Nesterov momentum.
   * @default true
   */
  readonly nesterov?: boolean
  /**
   * Iterations of Newton-Schulz, from 1 to 99.
   * @default 5
   */
  readonly numIterations?: number
  /**
   * Coefficients of an iteration.
   * @default [3.4445, -4.775, 2.0315]
   */
  readonly coefficients?: readonly [number, number, number]
  /**
   * The least norm that a direction is divided by, > 0.
   * @default 1e-7
   */
  readonly eps?: number
  /**
   * By what the rate is multiplied for a matrix `[out, in]`: `original` by `sqrt(max(1, out / in))`, `matchRmsAdamw` by
   * `0.2 sqrt(max(out, in))`, with which rates and decays that suit AdamW suit Muon.
   * @default 'original'
   */
  readonly scale?: 'original' | 'matchRmsAdamw'
  /**
   * Decoupled weight decay of the matrices, >= 0.
   * @default 0.1
   */
  readonly weightDecay?: number
  /**
   * The matrices that the weight decay pulls at.
   * @default 'matrices'
   */
  readonly decay?: Decay
  /**
   * Options for embeddings, output heads, norms and biases. If a step sets a learning rate, AdamW's changes
   * in the same proportion.
   * @default AdamW's defaults
   */
  readonly adamw?: AdamWOptions
}

/** Result of one step of an optimizer. */
export interface StepReport {
  /** Number of this step, from 1. */
  readonly step: number
  /** L2 norm of the gradient before clipping. */
  readonly gradientNorm: number
  /** Factor of the gradient from clipping, at most 1. */
  readonly clipCoefficient: number
}

/** Overrides of a single step. */
export interface StepOptions {
  /**
   * Replaces the rate of the options, for a schedule.
   * @default the optimiser's learningRate
   */
  readonly learningRate?: number
  /**
   * Gradients are scaled down to this L2 norm.
   * @default no clipping
   */
  readonly maxGradNorm?: number
}

/** Parts of an {@link Optimizer}: the name of its rule, the rule's options, the file to resume from. */
interface Rule {
  readonly name: 'adamw' | 'sgd' | 'muon'
  readonly options: object
  readonly keys: readonly string[]
  readonly state: Uint8Array | undefined
}

/**
 * Updates the weights of one {@link Decoder} from its gradients, then sets those to 0: {@link AdamW}, {@link SGD} or {@link Muon}. Gradients
 * of several backward passes add up to one step. Holds native memory: dispose it, or declare it with `using`.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder, type Optimizer, SGD } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * const small = true
 * using optimizer: Optimizer = small ? new SGD(decoder, { learningRate: 0.1, momentum: 0.9, nesterov: true }) : new AdamW(decoder)
 * for (const id of [2, 3]) {
 *   await decoder.forward({ ids: Uint32Array.of(1, id), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) })
 *   await decoder.backward(Float32Array.of(0, -0.5))
 * }
 * assert.equal((await optimizer.step({ maxGradNorm: 1 })).step, 1)
 * ```
 */
export abstract class Optimizer {
  readonly #native: Handle<RawOptimizer>
  readonly #decoder: Decoder

  /** @internal */
  protected constructor(decoder: Decoder, { name, options, keys, state }: Rule) {
    checkKnownKeys('options', options, keys)
    if (state !== undefined) checkTypedArray('state', state, Uint8Array)
    const json = JSON.stringify(options)
    this.#decoder = decoder
    this.#native = new Handle('Optimizer', () =>
      decoder.withNative((native) =>
        state
          ? raw.Optimizer.fromSafetensors(native, name, json, state)
          : new raw.Optimizer(native, name, json),
      ),
    )
  }

  /**
   * Updates the weights and sets the gradients to 0.
   * @throws {FulmarError} `CLOSED` without gradients; `NON_FINITE` if they are not finite (weights and moments are then
   * unchanged); `OUT_OF_RANGE` for a bad rate or norm.
   */
  async step(options: StepOptions = {}): Promise<StepReport> {
    checkKnownKeys('options', options, ['learningRate', 'maxGradNorm'])
    const { learningRate, maxGradNorm } = options
    const report = await this.#native.callAsync((optimizer) => optimizer.step(learningRate, maxGradNorm))
    this.#decoder.countUpdate()
    const { step, gradientNorm, clipCoefficient } = report
    return { step, gradientNorm, clipCoefficient }
  }

  /** Returns the optimizer state and the step count as a safetensors file. */
  toSafetensors(): Promise<Uint8Array> {
    return this.#native.callAsync((optimizer) => optimizer.toSafetensors())
  }

  /** Gives the native memory back. */
  [Symbol.dispose](): void {
    this.#native.free()
  }
}

/** The keys of {@link AdamWOptions}. */
export const ADAMW_KEYS = ['learningRate', 'beta1', 'beta2', 'eps', 'weightDecay', 'decay'] as const

/**
 * Adam with decoupled weight decay (https://arxiv.org/abs/1711.05101). Holds two floats a weight.
 *
 * @example
 * ```ts
 * import { AdamW, Decoder } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new AdamW(decoder, { learningRate: 0.01, weightDecay: 0.1, decay: ['*_proj.weight'] })
 * await decoder.forward({ ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) })
 * await decoder.backward(Float32Array.of(0, -1))
 * const report = await optimizer.step({ maxGradNorm: 0.1 })
 * assert.equal(report.step, 1)
 * assert.ok(report.clipCoefficient < 1)
 * ```
 */
export class AdamW extends Optimizer {
  /**
   * Zero moments, or those that `toSafetensors` wrote.
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or a pattern that names no parameter, `OUT_OF_RANGE` for a bad one; for
   * a `state`: `CORRUPT`, or `INCOMPATIBLE` if it is that of another optimiser or architecture.
   */
  constructor(decoder: Decoder, options: AdamWOptions = {}, state?: Uint8Array) {
    super(decoder, { name: 'adamw', options, keys: ADAMW_KEYS, state })
  }
}

const SGD_KEYS = ['learningRate', 'momentum', 'dampening', 'nesterov', 'weightDecay', 'decay'] as const

/**
 * Stochastic gradient descent, with momentum or Nesterov's if asked. Holds a float a weight with momentum, else none.
 *
 * @example
 * ```ts
 * import { Decoder, SGD } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new SGD(decoder, { learningRate: 0.1 })
 * const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
 * const before = await decoder.forward(batch)
 * await decoder.backward(Float32Array.of(0, -1))
 * await optimizer.step()
 * assert.ok((await decoder.score(batch)).logProb[1] > before.logProb[1])
 * ```
 */
export class SGD extends Optimizer {
  /**
   * No momentum yet, or what `toSafetensors` wrote.
   * @throws {FulmarError} As {@link AdamW}; `INCOMPATIBLE` for `nesterov` without momentum or with dampening.
   */
  constructor(decoder: Decoder, options: SGDOptions = {}, state?: Uint8Array) {
    super(decoder, { name: 'sgd', options, keys: SGD_KEYS, state })
  }
}

const MUON_KEYS = [
  'learningRate',
  'momentum',
  'nesterov',
  'numIterations',
  'coefficients',
  'eps',
  'scale',
  'weightDecay',
  'decay',
  'adamw',
] as const

/**
 * Muon (https://kellerjordan.github.io/posts/muon/): the momentum of each matrix between hidden layers is made orthogonal by
 * Newton-Schulz iterations before it is applied; embeddings, output heads, norms and biases are stepped by AdamW. Iterates in single
 * precision, where PyTorch rounds to bfloat16. Holds a float a weight of Muon, two of AdamW.
 *
 * @example
 * ```ts
 * import { Decoder, Muon } from 'fulmar/model'
 * import assert from 'node:assert/strict'
 *
 * const shape = { model_type: 'llama', vocab_size: 5, hidden_size: 4, intermediate_size: 8, num_hidden_layers: 1, num_attention_heads: 2 } as const
 * using decoder = Decoder.fromSeed(shape, { seed: 1 })
 * using optimizer = new Muon(decoder, { learningRate: 0.02, adamw: { learningRate: 3e-4, weightDecay: 0.01 } })
 * const batch = { ids: Uint32Array.of(1, 2), offsets: Uint32Array.of(0, 2), mask: Uint8Array.of(0, 1) }
 * const before = await decoder.forward(batch)
 * await decoder.backward(Float32Array.of(0, -1))
 * await optimizer.step()
 * assert.ok((await decoder.score(batch)).logProb[1] > before.logProb[1])
 * ```
 */
export class Muon extends Optimizer {
  /**
   * No momentum yet, or what `toSafetensors` wrote.
   * @throws {FulmarError} As {@link AdamW}.
   */
  constructor(decoder: Decoder, options: MuonOptions = {}, state?: Uint8Array) {
    checkKnownKeys('options.adamw', options.adamw ?? {}, ADAMW_KEYS)
    super(decoder, { name: 'muon', options, keys: MUON_KEYS, state })
  }
}
