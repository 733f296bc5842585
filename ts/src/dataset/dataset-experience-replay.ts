/** Buffers over the rows of a public data set. */

import { join } from 'node:path'
import { FulmarError, nearestName } from '../core/index.js'
import { cacheRoot } from '../fetch/cache-folder.js'
import { nameParts } from '../fetch/file-name.js'
import { ImmutableDatasetWriter, type Storage, TensorDictReplayBuffer } from '../replay/index.js'
import { removeFolder } from './dataset-folder.js'
import type { DatasetOptions } from './dataset-options.js'
import { type PreprocessOptions, preprocess, type RowsFn } from './preprocess.js'
import { rowsStorage } from './rows-storage.js'

/** @internal Where the rows of a data set are. */
export interface DatasetPlace {
  /** The id of the data set, without the name of its source. */
  readonly id: string
  /** Folder with one folder for each id. */
  readonly root: string
  /** Folder of the rows. */
  readonly dataPath: string
}

/**
 * A read-only buffer over the rows of a public data set, which are kept as a folder of memory-mapped leaves. Use a class of a
 * source, or {@link loadDataset}.
 *
 * @example
 * ```ts
 * import { BaseDatasetExperienceReplay, D4RLExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * assert.ok(D4RLExperienceReplay.prototype instanceof BaseDatasetExperienceReplay)
 * ```
 */
export abstract class BaseDatasetExperienceReplay extends TensorDictReplayBuffer {
  /** The id of the data set, without the name of its source. */
  readonly datasetId: string
  /** Folder with one folder for each id. */
  readonly root: string
  /** Folder of the rows. */
  readonly dataPath: string

  /** @internal */
  protected constructor(
    place: DatasetPlace,
    options: DatasetOptions,
    storage: Storage = rowsStorage(place.dataPath, options.columnBytesMax),
  ) {
    const { batchSize, sampler, prefetch, seed, transform = [], collateFn } = options
    const { writer = new ImmutableDatasetWriter() } = options
    const transforms = [transform, collateFn ? { forward: collateFn } : []].flat()
    super({
      ...{ storage, writer, transforms },
      ...(batchSize !== undefined && { batchSize }),
      ...(sampler && { sampler }),
      ...(prefetch !== undefined && { prefetch }),
      ...(seed !== undefined && { seed }),
    })
    this.datasetId = place.id
    this.root = place.root
    this.dataPath = place.dataPath
  }

  /** Folder of the rows without those of split trajectories. */
  get dataPathRoot(): string {
    return join(this.root, ...this.datasetId.split('/'))
  }

  /**
   * Maps all rows, or the first ones, to a new folder of rows, and opens it as a buffer that cannot be written. `fn` gets rows
   * as they are stored, `[n, ...]`, without the transforms of this buffer, and returns as many; a module, by its path or URL, has it
   * as its default export, and can run in several threads. The folder is there whole or not at all, also if the process is
   * killed. The mapped rows are in memory until they are written.
   *
   * @throws {FulmarError} `USER_CODE`, with the rows, if `fn` fails, returns another number of rows, or cannot be imported;
   *   `INCOMPATIBLE` if something is at `dest`; `MALFORMED` or `OUT_OF_RANGE` for other options; `IO`; `ABORTED` if the signal fires.
   *
   * @example
   * ```ts native
   * import { fetchClient, Tensor, TensorDict } from 'fulmar'
   * import { loadDataset } from 'fulmar/dataset'
   * import { writeHdf5 } from 'fulmar/replay/files'
   * import assert from 'node:assert/strict'
   * import { mkdtemp } from 'node:fs/promises'
   * import { tmpdir } from 'node:os'
   * import { join } from 'node:path'
   *
   * const column = Tensor.from([0, 0, 1], { shape: [3, 1] })
   * const file = TensorDict.from({ observations: column, actions: column, rewards: column, terminals: column })
   * const client = fetchClient(async () => new Response(Uint8Array.from(writeHdf5(file)))) // in place of D4RL's server
   * const root = await mkdtemp(join(tmpdir(), 'fulmar-'))
   * const buffer = await loadDataset('d4rl:hopper-medium-v2', { client, root })
   *
   * const small = await buffer.preprocess((rows) => rows.select(['action']), { dest: join(root, 'actions') })
   * assert.deepEqual([small.length, small.readAllInOrder().keys()], [2, ['action']])
   * ```
   */
  async preprocess(fn: RowsFn | string | URL, options: PreprocessOptions): Promise<TensorDictReplayBuffer> {
    return await preprocess(this.storage, fn, options)
  }

  /** Removes the folders of the rows. The buffer keeps what it has read. @throws {FulmarError} `IO` if the system refuses. */
  async delete(): Promise<void> {
    for (const path of new Set([this.dataPath, this.dataPathRoot])) await removeFolder(path)
  }
}

/**
 * @internal Returns where the rows of a data set are.
 * @throws {FulmarError} `MALFORMED` for an id that leads out of the root.
 */
export function placeOf(source: string, id: string, options: DatasetOptions, suffix = ''): DatasetPlace {
  const parts = nameParts('id', id, 'MALFORMED')
  const root = options.root === undefined ? join(cacheRoot(undefined), source) : cacheRoot(options.root)
  return { id, root, dataPath: `${join(root, ...parts)}${suffix}` }
}

/** @internal The error of an id that is not one of the source, with the nearest one. */
export function unknownId(source: string, id: string, known: readonly string[]): FulmarError {
  const nearest = nearestName(id, known)
  const hint = nearest === undefined ? '' : `; did you mean ${nearest}?`
  return new FulmarError(
    'UNKNOWN_NAME',
    `id must be one of the data sets of ${source}: got ${JSON.stringify(id)}${hint}`,
  )
}
