/** Conversations as entries of dictionaries. */

import type { Message } from '../../chat/index.js'
import { checkGiven, FulmarError } from '../../core/index.js'
import type { TensorDict, TensorKey } from '../../tensor/index.js'
import { jsonTextAt } from '../../tensor/tensor-dict.js'
import { History } from '../data/history.js'

/**
 * The conversation of each element at `key`, the last batch dimension changing fastest.
 *
 * @example
 * ```ts
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import { chatsAt } from 'fulmar/torchrl'
 * import assert from 'node:assert/strict'
 *
 * const chat = [{ role: 'user', content: 'Hi' }]
 * const dict = TensorDict.from({ said: new NonTensorStack([chat]) }, { batchSize: [1] })
 * assert.deepEqual(chatsAt(dict, 'said'), [chat])
 * assert.throws(() => chatsAt(dict.set('said', new NonTensorStack(['Hi'])), 'said'), { code: 'MALFORMED' })
 * ```
 */
export function chatsAt(dict: TensorDict, key: TensorKey): (readonly Message[])[] {
  checkGiven('dict', dict)
  let nodes: readonly unknown[] = [historyAt(dict, key).toJSON()]
  for (const _ of dict.batchSize) nodes = nodes.flat()
  return nodes as (readonly Message[])[]
}

/** The conversations at `key`, checked. @throws {FulmarError} As {@link chatsAt}. */
export function historyAt(dict: TensorDict, key: TensorKey): History {
  const shape = dict.batchSize
  const history = History.fromChats(jsonTextAt(dict, key))
  if (history.rank !== shape.length + 1 || shape.some((length, dim) => history.shape[dim] !== length)) {
    const detail = `${JSON.stringify(key)} must hold a conversation for each of [${shape}]: got [${history.shape}]`
    throw new FulmarError('SHAPE_MISMATCH', detail)
  }
  return history
}
