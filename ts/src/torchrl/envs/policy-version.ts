/** The version of the weights of every turn. */

import { checkKnownKeys, FulmarError, type Rng } from '../../core/index.js'
import { NonTensor, Unbounded } from '../../spec/index.js'
import { NonTensorData, Tensor, type TensorDict, type TensorKey } from '../../tensor/index.js'
import type { ChatTurnTransform } from './chat-turn.js'
import type { EnvSpecs } from './env.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/** Options of {@link PolicyVersion}. */
export interface PolicyVersionOptions {
  /** A count from 0, or names that no two policies share. @default 'int' */
  readonly versionType?: 'int' | 'uuid'
  /** Draws the names; needed for them. */
  readonly rng?: Rng
  /** @default 'policy_version' */
  readonly versionKey?: TensorKey
}

/** Maximum number of versions in {@link PolicyVersion.versionHistory}. */
const VERSION_HISTORY_MAX = 1024

/**
 * TorchRL's transform: the version in use when a prompt was shown, `i64` of the shape of the batch, or a text. The versions of single
 * tokens are in completions.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, PolicyVersion, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const version = new PolicyVersion()
 * const env = new TransformedEnv(new ChatEnv({ batchSize: 2 }), [version])
 * version.incrementVersion()
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [2] }))
 * assert.deepEqual(dict.tensor('policy_version').data, BigInt64Array.of(1n, 1n))
 * ```
 */
export class PolicyVersion implements EnvTransform {
  readonly #key: TensorKey
  readonly #rng: Rng | undefined
  #version: number | string
  #history: (number | string)[]

  /**
   * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option or type; `INCOMPATIBLE` if names are asked for without `rng`.
   */
  constructor(options: PolicyVersionOptions = {}) {
    checkKnownKeys('options', options, ['versionType', 'rng', 'versionKey'])
    const { versionType = 'int', rng, versionKey = 'policy_version' } = options
    if (versionType !== 'int' && versionType !== 'uuid') {
      throw new FulmarError('UNKNOWN_NAME', `versionType must be int or uuid: got ${versionType}`)
    }
    if (versionType === 'uuid' && rng === undefined) {
      throw new FulmarError('INCOMPATIBLE', 'rng must be given for versions that are names: it is undefined')
    }
    this.#key = versionKey
    this.#rng = versionType === 'uuid' ? rng : undefined
    this.#version = this.#rng ? uuidOf(this.#rng) : 0
    this.#history = [this.#version]
  }

  /** The version in use; assign it to follow one that is counted elsewhere. */
  get version(): number | string {
    return this.#version
  }

  set version(version: number | string) {
    const fits = this.#rng
      ? typeof version === 'string'
      : Number.isSafeInteger(version) && Number(version) >= 0
    if (!fits) {
      const rule = this.#rng ? 'a text' : 'a non-negative safe integer'
      throw new FulmarError('OUT_OF_RANGE', `version must be ${rule}: got ${version}`)
    }
    this.#version = version
    this.#history = [...this.#history, version].slice(-VERSION_HISTORY_MAX)
  }

  /** The versions so far, oldest first; at most 1,024. */
  get versionHistory(): readonly (number | string)[] {
    return this.#history
  }

  /** Records that the weights have changed: adds 1, or makes a new name. Returns the version. */
  incrementVersion(): number | string {
    this.version = this.#rng ? uuidOf(this.#rng) : Number(this.#version) + 1
    return this.#version
  }

  afterReset(dict: TensorDict): TensorDict {
    return this.#stamped(dict)
  }

  afterStep(next: TensorDict): TensorDict {
    return this.#stamped(next)
  }

  /** Completions name their versions themselves. */
  chatTurns(): ChatTurnTransform {
    return () => undefined
  }

  transformSpecs(env: EnvView): EnvSpecs {
    return changedSpecs(env, ({ observationSpec }) => {
      const { shape } = observationSpec
      const spec = this.#rng ? new NonTensor({ shape, example: '' }) : new Unbounded({ shape, dtype: 'i64' })
      observationSpec.set(this.#key, spec)
    })
  }

  #stamped(dict: TensorDict): TensorDict {
    if (typeof this.#version === 'string') return dict.set(this.#key, new NonTensorData(this.#version))
    const size = dict.batchSize.reduce((product, length) => product * length, 1)
    const values = new BigInt64Array(size).fill(BigInt(this.#version))
    return dict.set(this.#key, Tensor.from(values, { shape: dict.batchSize }))
  }
}

/** A random UUID (version 4) of a generator's words. */
function uuidOf(rng: Rng): string {
  const words = Array.from({ length: 4 }, () => rng.nextU32().toString(16).padStart(8, '0')).join('')
  const variant = '89ab'.charAt(rng.below(4))
  const parts = [
    words.slice(0, 8),
    words.slice(8, 12),
    `4${words.slice(13, 16)}`,
    `${variant}${words.slice(17, 20)}`,
  ]
  return [...parts, words.slice(20, 32)].join('-')
}
