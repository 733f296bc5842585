/** Environments around environments. */

import { checkGiven, FulmarError } from '../../core/index.js'
import type { Composite } from '../../spec/index.js'
import { TensorDict } from '../../tensor/index.js'
import { type ChatTurnTransform, speaksFor } from './chat-turn.js'
import type { EnvBase, EnvSpecs, InputMode } from './env.js'

/** View of the environment inside a transform, with its inner transforms. */
export type EnvView = EnvSpecs & Pick<EnvBase, 'batchSize' | 'inputMode'>

/**
 * A transform of an environment's dictionaries; every method is optional. A method may change the dictionary
 * that it gets, which it owns, or return another.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, type EnvTransform, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const shout: EnvTransform = {
 *   beforeReset: (dict) => dict.set('query', new NonTensorData(String(dict.value('query')).toUpperCase())),
 * }
 * const env = new TransformedEnv(new ChatEnv(), [shout])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('hi') }, { batchSize: [1] }))
 * assert.deepEqual(dict.value(['history', 'prompt']), [[{ role: 'user', content: 'HI' }]])
 * ```
 */
export interface EnvTransform {
  /** Changes what the environment is reset with. */
  beforeReset?(dict: TensorDict, env: EnvView): TensorDict | Promise<TensorDict>
  /** Changes what a reset shows. */
  afterReset?(dict: TensorDict, env: EnvView): TensorDict | Promise<TensorDict>
  /** Changes the dictionary with the action. */
  beforeStep?(root: TensorDict, env: EnvView): TensorDict | Promise<TensorDict>
  /** Changes `next`; `root` is the dictionary with the action, to be read only. */
  afterStep?(next: TensorDict, root: TensorDict, env: EnvView): TensorDict | Promise<TensorDict>
  /** The specs of the environment with this transform. Also the place to refuse an environment that does not fit. */
  transformSpecs?(env: EnvView): EnvSpecs
  /** Applies a seed. */
  setSeed?(seed: number): void
  /**
   * The same change to the turns of one conversation of messages that began with `first`, of one element.
   * `undefined` if it cannot be made there. Not called for a transform without `beforeStep` and `afterStep`.
   * @default undefined: each turn of such a conversation is a dictionary, which takes about ten times as long
   */
  chatTurns?(first: TensorDict, env: EnvView): ChatTurnTransform | undefined
}

/**
 * An environment with transforms around it, the first the nearest: so a list of transforms makes of an environment another one. What
 * comes out of a reset or a step passes the first transform first; what goes in passes the last one first.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, PolicyVersion, replyPolicy, StepCounter, TransformedEnv } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new TransformedEnv(new ChatEnv(), [new StepCounter({ maxSteps: 1 }), new PolicyVersion()])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] }))
 * assert.equal(dict.tensor('step_count').data[0], 0n)
 * const next = await env.step(await replyPolicy({ inputMode: 'history', reply: () => 'Yo' })(dict))
 * assert.deepEqual(next.tensor('truncated').data, Uint8Array.of(1))
 * assert.deepEqual(env.doneSpec.keys(), ['done', 'terminated', 'truncated'])
 * ```
 */
export class TransformedEnv implements EnvBase {
  /** The environment within. */
  readonly env: EnvBase
  /** The nearest first. */
  readonly transforms: readonly EnvTransform[]
  /** The transforms, each with the environment inside it. */
  readonly #layers: readonly { readonly transform: EnvTransform; readonly within: EnvView }[]
  readonly #specs: EnvSpecs

  /** @throws {FulmarError} The error of a transform that does not fit the environment. */
  constructor(env: EnvBase, transforms: readonly EnvTransform[]) {
    checkGiven('env', env)
    this.env = env
    this.transforms = Object.freeze([...transforms])
    const { batchSize, inputMode } = env
    let view: EnvView = { ...specsOf(env), batchSize, inputMode }
    this.#layers = transforms.map((transform) => {
      const within = view
      view = { ...specsOf(transform.transformSpecs?.(within) ?? within), batchSize, inputMode }
      return { transform, within }
    })
    this.#specs = view
  }

  get batchSize(): readonly number[] {
    return this.env.batchSize
  }

  get inputMode(): InputMode | undefined {
    return this.env.inputMode
  }

  get observationSpec(): Composite {
    return this.#specs.observationSpec
  }

  get actionSpec(): Composite {
    return this.#specs.actionSpec
  }

  get rewardSpec(): Composite {
    return this.#specs.rewardSpec
  }

  get doneSpec(): Composite {
    return this.#specs.doneSpec
  }

  get stateSpec(): Composite {
    return this.#specs.stateSpec
  }

  /** Returns the first turn. @throws {FulmarError} The errors of the environment and the transforms. */
  async reset(dict?: TensorDict): Promise<TensorDict> {
    let given = (dict ?? TensorDict.from({}, { batchSize: this.batchSize })).clone()
    if (given.batchSize.length === 0) given = given.expand(this.batchSize)
    for (const { transform, within } of this.#layers.toReversed()) {
      given = (await transform.beforeReset?.(given, within)) ?? given
    }
    let first = await this.env.reset(given)
    for (const { transform, within } of this.#layers) {
      first = (await transform.afterReset?.(first, within)) ?? first
    }
    return first
  }

  /** Returns the result of the action. @throws {FulmarError} Errors of the environment and the transforms. */
  async step(dict: TensorDict): Promise<TensorDict> {
    let root = dict.clone()
    for (const { transform, within } of this.#layers.toReversed()) {
      root = (await transform.beforeStep?.(root, within)) ?? root
    }
    let next = await this.env.step(root)
    for (const { transform, within } of this.#layers) {
      next = (await transform.afterStep?.(next, root, within)) ?? next
    }
    return next
  }

  /** The transforms of a conversation; `undefined` if one of them, or the environment, needs dictionaries. */
  chatTurns(first: TensorDict): readonly ChatTurnTransform[] | undefined {
    const inner = speaksFor(this, ['step']) ? this.env.chatTurns?.(first) : undefined
    if (inner === undefined) return undefined
    const turns = [...inner]
    for (const { transform, within } of this.#layers) {
      if (transform.beforeStep === undefined && transform.afterStep === undefined) continue
      const isCurrent = speaksFor(transform, ['beforeStep', 'afterStep'])
      const turn = isCurrent ? transform.chatTurns?.(first, within) : undefined
      if (turn === undefined) return undefined
      turns.push(turn)
    }
    return turns
  }

  setSeed(seed: number): void {
    if (!Number.isSafeInteger(seed) || seed < 0) {
      throw new FulmarError('OUT_OF_RANGE', `seed must be a non-negative safe integer: got ${seed}`)
    }
    this.env.setSeed?.(seed)
    for (const transform of this.transforms) transform.setSeed?.(seed)
  }
}

/** The specs with what `change` does to copies of them. */
export function changedSpecs(specs: EnvSpecs, change: (specs: EnvSpecs) => void): EnvSpecs {
  const { observationSpec, actionSpec, rewardSpec, doneSpec, stateSpec } = specs
  const copies: EnvSpecs = {
    observationSpec: observationSpec.clone(),
    actionSpec: actionSpec.clone(),
    rewardSpec: rewardSpec.clone(),
    doneSpec: doneSpec.clone(),
    stateSpec: stateSpec.clone(),
  }
  change(copies)
  return copies
}

function specsOf({ observationSpec, actionSpec, rewardSpec, doneSpec, stateSpec }: EnvSpecs): EnvSpecs {
  return { observationSpec, actionSpec, rewardSpec, doneSpec, stateSpec }
}
