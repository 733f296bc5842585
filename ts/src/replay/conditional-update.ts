/** Updates of rows that still hold what they held when they were read. */

import { checkKnownKeys, FulmarError, type Handle } from '../core/index.js'
import type { RawReplayBuffer } from '../native/index.js'
import { indices } from '../tensor/tensor.js'
import { pathOf, type TensorDict, type TensorKey, withRawDict } from '../tensor/tensor-dict.js'
import type { ReplayBuffer } from './replay-buffer.js'

/** Arguments of {@link ReplayBuffer.updateIfPresent}. */
export interface ConditionalUpdate {
  /** The rows. */
  readonly index: Iterable<number>
  /** Generation of each row when it was read. */
  readonly generation: Iterable<number>
  /** Values to write over the leaves of that name, one element per row. */
  readonly patch: TensorDict
  /** Key of the version of an item. @default versions are not compared */
  readonly versionKey?: TensorKey
  /** The version of each row of the patch; rows that hold a later one are left. */
  readonly version?: Iterable<number>
  /** If true, rows with the same version are skipped too. @default false */
  readonly requireNewer?: boolean
}

/** Outcome for each row of a {@link ConditionalUpdate}: written, refused for its version, or stale. */
export interface ConditionalUpdateResult {
  readonly updated: readonly boolean[]
  readonly versionRejected: readonly boolean[] | null
}

/** Does {@link ReplayBuffer.updateIfPresent}. */
export function updateIfPresent(
  buffer: Handle<RawReplayBuffer>,
  update: ConditionalUpdate,
): ConditionalUpdateResult {
  const known = ['index', 'generation', 'patch', 'versionKey', 'version', 'requireNewer']
  checkKnownKeys('update', update, known)
  const { index, generation, patch, versionKey = [], version = [], requireNewer = false } = update
  if ((update.versionKey === undefined) !== (update.version === undefined)) {
    const missing = update.version === undefined ? 'version' : 'versionKey'
    throw new FulmarError(
      'INCOMPATIBLE',
      `versionKey and version must be given together: ${missing} is missing`,
    )
  }
  const path = pathOf(versionKey)
  const [rows, generations, versions] = [indices(index), indices(generation), indices(version)]
  const answer = buffer.call((native) =>
    withRawDict(patch, (dict) =>
      native.updateIfPresent(rows, generations, dict, path, versions, requireNewer),
    ),
  )
  return JSON.parse(answer) as ConditionalUpdateResult
}
