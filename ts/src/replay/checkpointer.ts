/** File formats of the rows of a buffer in a folder. */

import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { type RawAddon, raw } from '../native/index.js'
import type { TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'

let describe: (checkpointer: StorageCheckpointerBase) => object

/**
 * A form of a buffer's folder: give one of its classes to `ReplayBuffer.dumps` and `ReplayBuffer.loads`. All but the
 * list's are TorchRL's own, read and written; pickles are never read. Natively only.
 *
 * @example
 * ```ts
 * import { type StorageCheckpointerBase, TensorStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const form: StorageCheckpointerBase = new TensorStorageCheckpointer()
 * assert.ok(form)
 * ```
 */
export abstract class StorageCheckpointerBase {
  readonly #options: object

  /** @internal */
  protected constructor(options: object) {
    this.#options = options
  }

  static {
    describe = (checkpointer) => {
      if (typeof checkpointer === 'object' && checkpointer !== null && #options in checkpointer) {
        return checkpointer.#options
      }
      const got = describeValue(checkpointer)
      throw new FulmarError(
        'MALFORMED',
        `checkpointer must be one, such as new TensorStorageCheckpointer(): got ${got}`,
      )
    }
  }
}

/** Returns the description from which the core builds the checkpointer. */
export const checkpointerJson = (checkpointer: StorageCheckpointerBase): string =>
  JSON.stringify(describe(checkpointer))

/** Returns the functions that only the addon has. @throws {FulmarError} `UNAVAILABLE` in WebAssembly. */
export function replayDisk(): RawAddon {
  // The addon has all of them, WebAssembly none.
  if (raw.dumpReplayBuffer) return raw as typeof raw & RawAddon
  throw new FulmarError('UNAVAILABLE', 'folders and servers of rows must be used natively: got WebAssembly')
}

/**
 * One memory-mapped file a leaf. Full capacity, zeros where nothing was written.
 *
 * @example
 * ```ts no-run
 * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import { TensorStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(100) })
 * buffer.loads('experience', new TensorStorageCheckpointer())
 * assert.ok(buffer.length > 0)
 * ```
 */
export class TensorStorageCheckpointer extends StorageCheckpointerBase {
  constructor() {
    super({ kind: 'tensor' })
  }
}

/**
 * The items of a `ListStorage` in one file, which TorchRL does not have.
 *
 * @example
 * ```ts no-run
 * import { ListStorage, ReplayBuffer } from 'fulmar/replay'
 * import { ListStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new ListStorage(100) })
 * buffer.loads('experience', new ListStorageCheckpointer())
 * assert.ok(buffer.length > 0)
 * ```
 */
export class ListStorageCheckpointer extends StorageCheckpointerBase {
  constructor() {
    super({ kind: 'list' })
  }
}

/**
 * Compressed items, a folder each.
 *
 * @example
 * ```ts no-run
 * import { CompressedListStorage, ReplayBuffer } from 'fulmar/replay'
 * import { CompressedListStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new CompressedListStorage(100) })
 * buffer.loads('experience', new CompressedListStorageCheckpointer({ compressionLevel: 6 }))
 * assert.ok(buffer.length > 0)
 * ```
 */
export class CompressedListStorageCheckpointer extends StorageCheckpointerBase {
  constructor(options: { readonly compressionLevel?: number } = {}) {
    checkKnownKeys('options', options, ['compressionLevel'])
    super({ kind: 'compressedList', ...options })
  }
}

/** Keys of the entries of steps that are not observations, without `next`. */
export interface StepKeysOptions {
  /** The end of a trajectory. @default 'done' */
  readonly doneKey?: TensorKey
  /** Marks of ends, that one among them. @default `done`, `truncated`, `terminated` */
  readonly doneKeys?: readonly TensorKey[]
  /** Rewards. @default `reward` */
  readonly rewardKeys?: readonly TensorKey[]
}

/**
 * Each trajectory's observations once, all trajectories one after another.
 *
 * @example
 * ```ts no-run
 * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import { FlatStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(100) })
 * buffer.loads('experience', new FlatStorageCheckpointer({ rewardKeys: ['reward'] }))
 * assert.ok(buffer.length > 0)
 * ```
 */
export class FlatStorageCheckpointer extends StorageCheckpointerBase {
  constructor(options: StepKeysOptions = {}) {
    checkKnownKeys('options', options, ['doneKey', 'doneKeys', 'rewardKeys'])
    super({ kind: 'flat', keys: stepKeys(options) })
  }
}

/**
 * Each trajectory's observations once, trajectory by trajectory.
 *
 * @example
 * ```ts no-run
 * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import { NestedStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(100) })
 * buffer.loads('experience', new NestedStorageCheckpointer())
 * assert.ok(buffer.length > 0)
 * ```
 */
export class NestedStorageCheckpointer extends StorageCheckpointerBase {
  constructor(options: StepKeysOptions = {}) {
    checkKnownKeys('options', options, ['doneKey', 'doneKeys', 'rewardKeys'])
    super({ kind: 'nested', keys: stepKeys(options) })
  }
}

/**
 * One HDF5 file, a group a trajectory.
 *
 * @example
 * ```ts no-run
 * import { LazyTensorStorage, ReplayBuffer } from 'fulmar/replay'
 * import { H5StorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(100) })
 * buffer.loads('experience', new H5StorageCheckpointer({ checkpointFile: 'steps.h5' }))
 * assert.ok(buffer.length > 0)
 * ```
 */
export class H5StorageCheckpointer extends StorageCheckpointerBase {
  constructor(options: StepKeysOptions & { readonly checkpointFile?: string } = {}) {
    checkKnownKeys('options', options, ['doneKey', 'doneKeys', 'rewardKeys', 'checkpointFile'])
    const { checkpointFile: file, ...keys } = options
    super({ kind: 'h5', file, keys: stepKeys(keys) })
  }
}

/**
 * Folders `0`, `1`, ... of the storages of an ensemble, each in the form of `member`: give it to `ReplayBufferEnsemble.dumps`
 * and `ReplayBufferEnsemble.loads`.
 *
 * @example
 * ```ts no-run
 * import { LazyTensorStorage, ReplayBufferEnsemble, StorageEnsemble } from 'fulmar/replay'
 * import { StorageEnsembleCheckpointer, TensorStorageCheckpointer } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const storages = new StorageEnsemble([new LazyTensorStorage(100), new LazyTensorStorage(100)])
 * const ensemble = new ReplayBufferEnsemble({ storages })
 * ensemble.loads('experience', new StorageEnsembleCheckpointer(new TensorStorageCheckpointer()))
 * assert.ok(storages.storages[0].length > 0)
 * ```
 */
export class StorageEnsembleCheckpointer {
  /** The form of each storage. */
  readonly member: StorageCheckpointerBase

  constructor(member: StorageCheckpointerBase) {
    this.member = member
  }
}

function stepKeys({ doneKey, doneKeys, rewardKeys, ...rest }: StepKeysOptions): object {
  return {
    ...rest,
    ...(doneKey !== undefined && { doneKey: pathOf(doneKey) }),
    ...(doneKeys && { doneKeys: doneKeys.map(pathOf) }),
    ...(rewardKeys && { rewardKeys: rewardKeys.map(pathOf) }),
  }
}
