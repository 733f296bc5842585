/**
 * Environments over dictionaries: a batch of conversations that take their turns together.
 *
 * ```text
 * dict = env.reset(dict)            what a policy sees, flags of the end, columns of the dataset
 * root = policy(dict)               the same with an action
 * next = env.step(root)             what comes of it: observation, reward, flags
 * dict = nextRoot(env, root, next)  where the next turn begins
 * ```
 *
 * When to use which. A `MessageEnv` is one conversation of its own pace: thousands run side by side in a `Rollouter`, with deadlines,
 * statuses and tokens that are never encoded again; that is what training wants. An {@link EnvBase} is TorchRL's: a `TensorDict` of a
 * whole batch, with specs, and transforms around it; that is what programs for TorchRL, replay buffers and `checkEnvSpecs` want.
 * `messageEnvOf` makes a `MessageEnv` of a chat environment, and `chatTask` a `Task` of one over a dataset, so neither is written twice.
 */

import { checkGiven, checkKnownKeys, describeValue, FulmarError } from '../../core/index.js'
import type { Composite, SpecEnv } from '../../spec/index.js'
import type { TensorDict } from '../../tensor/index.js'
import type { ChatTurnTransform } from './chat-turn.js'

/** Form of prompts and actions in dictionaries: messages, text or token ids. */
export type InputMode = 'history' | 'text' | 'tokens'

/** Specs of an environment's dictionaries; shapes begin with the batch size. */
export interface EnvSpecs {
  /** Spec of observations of `reset` and `step`. */
  readonly observationSpec: Composite
  /** Spec of actions. */
  readonly actionSpec: Composite
  /** Spec of rewards; empty without rewards. */
  readonly rewardSpec: Composite
  /** The flags of the end: `done`, `terminated`, and `truncated` where something truncates. */
  readonly doneSpec: Composite
  /** Spec of entries that carry over from turn to turn. */
  readonly stateSpec: Composite
}

/**
 * An environment over dictionaries. `reset` and `step` work element by element: a dictionary may hold fewer or more elements than
 * `batchSize` along its first dimension, as when only those that are done begin anew. What they are given they do not change.
 *
 * @example
 * ```ts
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, type EnvBase } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env: EnvBase = new ChatEnv({ batchSize: [2] })
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorStack(['Hi', 'Ho']) }, { batchSize: [2] }))
 * assert.deepEqual(dict.value(['history', 'prompt']), [[{ role: 'user', content: 'Hi' }], [{ role: 'user', content: 'Ho' }]])
 * assert.deepEqual(dict.tensor('done').shape, [2, 1])
 * ```
 */
export interface EnvBase extends EnvSpecs {
  /** Number of conversations, unless a dictionary has another. */
  readonly batchSize: readonly number[]
  /** The form of prompts and actions; none if the environment is no chat. */
  readonly inputMode?: InputMode | undefined
  /** The first turn; `dict` holds what it begins with, such as a query. */
  reset(dict?: TensorDict): TensorDict | Promise<TensorDict>
  /**
   * Returns the content of `next` for the action in `dict`, which is the result of `reset` or `nextRoot` with
   * the action.
   */
  step(dict: TensorDict): TensorDict | Promise<TensorDict>
  /** Goes to where the streams of this seed begin; nothing in an environment without chance. A non-negative safe integer. */
  setSeed?(seed: number): void
  /**
   * The transforms of one conversation of messages that began with `first`, of one element, if its turns can
   * do without dictionaries: `messageEnvOf` then makes none.
   * @default undefined: every turn is a dictionary
   */
  chatTurns?(first: TensorDict): readonly ChatTurnTransform[] | undefined
}

/** Puts an action into a dictionary: returns it, or a new one. */
export type DictPolicy = (dict: TensorDict) => TensorDict | Promise<TensorDict>

/** A policy of dictionaries: a function, or an object with such a `forward`, as `LLMWrapperBase`. */
export type DictPolicyLike = DictPolicy | { forward(dict: TensorDict): TensorDict | Promise<TensorDict> }

/** The policy as a function. @throws {FulmarError} `MALFORMED` if it is neither. */
export function dictPolicyOf(policy: DictPolicyLike): DictPolicy {
  if (typeof policy === 'function') return policy
  if (typeof policy === 'object' && policy !== null && typeof policy.forward === 'function')
    return (dict) => policy.forward(dict)
  const detail = `policy must be a function, or an object with forward: got ${describeValue(policy)}`
  throw new FulmarError('MALFORMED', detail)
}

/**
 * The dictionary at which the next turn begins: what `next` shows, without rewards, and the state of `root`.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, nextRoot } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const env = new ChatEnv()
 * const root = env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] }))
 * root.set(['history', 'full'], new NonTensorData([{ role: 'user', content: 'Hi' }]))
 * const dict = nextRoot(env, root, TensorDict.from({}, { batchSize: [1] }))
 * assert.deepEqual(dict.keys(), ['query'])
 * ```
 */
export function nextRoot(env: EnvBase, root: TensorDict, next: TensorDict): TensorDict {
  checkGiven('env', env)
  const rewards = env.rewardSpec.leafKeys()
  return root.select(env.stateSpec.leafKeys(), { strict: false }).update(next.exclude(rewards))
}

/** Options of {@link specEnvOf}. */
export interface SpecEnvOptions {
  /** Input of every reset. @default nothing */
  readonly dict?: TensorDict
}

/**
 * The environment as `checkEnvSpecs` takes it.
 *
 * @example
 * ```ts
 * import { checkEnvSpecs } from 'fulmar/spec'
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, specEnvOf } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const dict = TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [2] })
 * const env = specEnvOf(new ChatEnv({ batchSize: [2] }), { dict })
 * assert.deepEqual(env.observationSpec.keys(), ['history'])
 * await checkEnvSpecs(env)
 * ```
 */
export function specEnvOf(env: EnvBase, options: SpecEnvOptions = {}): SpecEnv {
  checkKnownKeys('options', options, ['dict'])
  checkGiven('env', env)
  const { observationSpec, actionSpec, rewardSpec, doneSpec, stateSpec } = env
  return {
    observationSpec,
    actionSpec,
    rewardSpec,
    doneSpec,
    stateSpec,
    reset(seed) {
      if (seed !== undefined) env.setSeed?.(seed)
      return env.reset(options.dict)
    },
    // A step sees what stays the same, and gives it back so that it can be checked.
    step: async (dict) => dict.select(stateSpec.leafKeys()).update(await env.step(dict)),
  }
}

/** Refuses a batch that no environment has. */
export function checkBatchSize(batchSize: readonly number[]): readonly number[] {
  if (batchSize.length === 0) {
    throw new FulmarError('SHAPE_MISMATCH', 'batchSize must have at least one dimension: there is none')
  }
  const wrong = batchSize.find((length) => !Number.isSafeInteger(length) || length < 1)
  if (wrong === undefined) return Object.freeze([...batchSize])
  throw new FulmarError('OUT_OF_RANGE', `batchSize must hold positive integers: got ${wrong}`)
}
