/** Draws of whole groups of one prompt. */

import { checkKnownKeys } from '../core/index.js'
import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import { picked, Sampler } from './sampler.js'

/** Options of {@link PromptGroupSampler}: `numGroups` or `samplesPerGroup` must be given. */
export interface PromptGroupSamplerOptions {
  /** Groups of a batch, from 1. */
  readonly numGroups?: number
  /** Rows of each group, from 1. */
  readonly samplesPerGroup?: number
  /** Choice of rows in a group: any, the latest, those of the highest reward, or those of the largest variance. @default 'random' */
  readonly strategy?: 'random' | 'recency' | 'reward' | 'variance'
  /** Key of the prompt of an item. @default 'query' */
  readonly groupKey?: TensorKey
  /** Key of the reward of an item; read only by strategies that rank by it. @default ['next', 'reward'] */
  readonly rewardKey?: TensorKey
}

/**
 * Groups of rows that answer one prompt.
 *
 * @example
 * ```ts
 * import { ListStorage, PromptGroupSampler, ReplayBuffer } from 'fulmar/replay'
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new ListStorage(10), sampler: new PromptGroupSampler({ numGroups: 1 }) })
 * buffer.extend(TensorDict.from({ query: new NonTensorStack(['a', 'b', 'a', 'b']) }, { batchSize: [4] }))
 * const group = buffer.sample(2)
 * assert.equal(group.index(0).value('query'), group.index(1).value('query'))
 * ```
 */
export class PromptGroupSampler extends Sampler {
  constructor(options: PromptGroupSamplerOptions) {
    const groups = ['numGroups', 'samplesPerGroup', 'strategy'] as const
    checkKnownKeys('options', options, [...groups, 'groupKey', 'rewardKey'])
    const { groupKey, rewardKey } = options
    super({
      kind: 'promptGroup',
      groups: picked(options, groups),
      ...(groupKey !== undefined && { groupKey: pathOf(groupKey) }),
      ...(rewardKey !== undefined && { rewardKey: pathOf(rewardKey) }),
    })
  }
}
