/** Transforms of dictionaries as transforms of environments. */

import { checkKnownKeys, FulmarError } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import type { EnvSpecs } from './env.js'
import { changedSpecs, type EnvTransform, type EnvView } from './transformed-env.js'

/**
 * A transform of dictionaries: `Tokenizer`, `TemplateTransform`, and those of replay buffers such as
 * `RewardScaling`.
 */
export interface DictTransform {
  /** Transforms a dictionary on read. */
  forward(dict: TensorDict): TensorDict
  /** The other way. */
  inverse?(dict: TensorDict): TensorDict | undefined
}

/** Options of {@link turnTransform}. */
export interface TurnTransformOptions {
  /**
   * Input of `forward`: results of resets and steps, or of one of them. Rewards come from steps only.
   * @default 'turn'
   */
  readonly on?: 'turn' | 'reset' | 'step'
  /**
   * If true, actions pass through `inverse` before the environment.
   * @default false
   */
  readonly actions?: boolean
  /** Keys that `forward` adds to observations. @default none */
  readonly outKeys?: readonly TensorKey[]
}

/**
 * Puts a transform of dictionaries around an environment.
 *
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown option; `INCOMPATIBLE` for actions without an `inverse`.
 *
 * @example
 * ```ts
 * import { NonTensorData, NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { ChatEnv, chatsAt, TemplateTransform, TransformedEnv, turnTransform } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * // A chat of messages for a policy of text.
 * const template = new TemplateTransform({ templateName: 'chatml_format' })
 * const texts = turnTransform(template, { actions: true, outKeys: [['text', 'prompt']] })
 * const env = new TransformedEnv(new ChatEnv(), [texts])
 * const dict = await env.reset(TensorDict.from({ query: new NonTensorData('Hi') }, { batchSize: [1] }))
 * const [prompt] = [dict.value(['text', 'prompt'])].flat()
 * assert.equal(prompt, '<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n')
 * const next = await env.step(dict.set(['text', 'full'], new NonTensorStack([`${prompt}Yo<|im_end|>`])))
 * assert.equal(chatsAt(next, ['history', 'prompt'])[0].length, 2)
 * ```
 */
export function turnTransform(transform: DictTransform, options: TurnTransformOptions = {}): EnvTransform {
  checkKnownKeys('options', options, ['on', 'actions', 'outKeys'])
  const { on = 'turn', actions = false, outKeys = [] } = options
  if (!['turn', 'reset', 'step'].includes(on)) {
    throw new FulmarError('UNKNOWN_NAME', `options.on must be turn, reset or step: got ${on}`)
  }
  if (actions && transform.inverse === undefined) {
    throw new FulmarError('INCOMPATIBLE', 'transform must have an inverse for actions: there is none')
  }
  const forward = (dict: TensorDict) => transform.forward(dict)
  return {
    ...(on !== 'step' && { afterReset: forward }),
    ...(on !== 'reset' && { afterStep: forward }),
    ...(actions && { beforeStep: (root: TensorDict) => transform.inverse?.(root) ?? root }),
    transformSpecs: (env: EnvView): EnvSpecs =>
      changedSpecs(env, ({ observationSpec }) => {
        for (const key of outKeys) observationSpec.set(key, null)
      }),
  }
}
