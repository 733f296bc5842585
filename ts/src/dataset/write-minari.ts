/** Rows as a data set in Minari's own folder. */

import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { call, checkGiven, checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { raw } from '../native/index.js'
import { ReplayBuffer } from '../replay/index.js'
import { writing } from '../telemetry/disk.js'
import type { Clock } from '../telemetry/index.js'
import { type Json, TensorDict } from '../tensor/index.js'
import { withRawDict } from '../tensor/tensor-dict.js'
import { makeFolder } from './dataset-folder.js'
import { checkMinariId, MinariExperienceReplay, minariRootOf } from './minari-experience-replay.js'
import { pythonJson, spaceOf } from './minari-space.js'

/** Options of {@link writeMinari}. */
export interface WriteMinariOptions {
  /**
   * Minari's own folder.
   * @default the variable `MINARI_DATASETS_PATH`, else `~/.minari/datasets`
   */
  readonly minariRoot?: string
  /**
   * Fields of `metadata.json`, such as `author`, `env_spec`, `observation_space` and `action_space`; specs and spaces are objects. The
   * counts, the id and the form of the data are always those of the rows.
   * @default those of a `MinariExperienceReplay`; of others, spaces with the dtypes, shapes and integers of the rows
   */
  readonly metadata?: Readonly<Record<string, Json>>
  /** Measures waits for another process that writes the same data set. @default systemClock */
  readonly clock?: Clock
  /** Stops the wait. */
  readonly signal?: AbortSignal
}

/** Version of Minari whose form is written. */
const MINARI_VERSION = '0.5.4'

/** Fields that are JSON in a text. */
const TEXTS = ['observation_space', 'action_space', 'env_spec', 'eval_env_spec']

/**
 * Writes steps `[steps]`, or all of a buffer, as a data set that Minari and `loadFromLocalMinari` read, and returns its folder.
 * Episodes are the runs of `episode`; without it each ends where `next.done` is true. The reward and the flags at the root, which are
 * those of the step before, are left out. The folder is there whole or not at all. Blocks while it makes the file.
 *
 * @throws {FulmarError} `MALFORMED` for an id that is not one of Minari, or other options; `INCOMPATIBLE` if the data set is
 *   there; with the key, `UNKNOWN_NAME` if `observation`, `action` or what must be below `next` is missing; `INCOMPATIBLE` if
 *   `next.observation` is not the observation one row later, `next.done` is not where a step is terminated or truncated, or the
 *   format has no place for an entry; `SHAPE_MISMATCH` for other than one batch dimension; `EMPTY`; `OUT_OF_RANGE` for other flags than 0
 *   and 1; `IO`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { writeMinari } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 * import { mkdtemp, readdir } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const column = (values: number[]) => Tensor.from(values, { shape: [3, 1] })
 * const steps = TensorDict.from(
 *   {
 *     observation: column([0, 1, 2]),
 *     action: column([1, 1, 1]),
 *     next: TensorDict.from(
 *       { observation: column([1, 2, 3]), reward: column([0, 0, 1]), done: column([0, 0, 1]) },
 *       { batchSize: [3] },
 *     ),
 *   },
 *   { batchSize: [3] },
 * )
 * const minariRoot = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const folder = await writeMinari(steps, 'mine/steps-v0', { minariRoot })
 * assert.deepEqual((await readdir(join(folder, 'data'))).sort(), ['main_data.hdf5', 'metadata.json'])
 * ```
 */
export async function writeMinari(
  rows: TensorDict | ReplayBuffer,
  id: string,
  options: WriteMinariOptions = {},
): Promise<string> {
  checkKnownKeys('options', options, ['minariRoot', 'metadata', 'clock', 'signal'])
  checkGiven('rows', rows)
  checkMinariId(id)
  const root = minariRootOf(options.minariRoot)
  const steps = stepsOf(rows)
  const known = rows instanceof MinariExperienceReplay ? rows.metadata : {}
  const { bytes, numEpisodes } = fileOf(steps)
  const text = metadataText(
    steps,
    { ...known, ...checkMetadata(options.metadata) },
    { id, bytes, numEpisodes },
  )
  const dataPath = join(root, ...id.split('/'))
  const convert = async (folder: string): Promise<void> => {
    await mkdir(join(folder, 'data'), { recursive: true })
    await writeFile(join(folder, 'data', 'main_data.hdf5'), bytes)
    await writeFile(join(folder, 'data', 'metadata.json'), text)
  }
  await makeFolder({ dataPath, label: `minari:${id}`, conversion: {}, convert }, options)
  await writeNamespaces(root, id.split('/').slice(0, -1))
  return dataPath
}

function stepsOf(rows: unknown): TensorDict {
  if (rows instanceof ReplayBuffer) return rows.readAllInOrder()
  if (rows instanceof TensorDict) return rows
  throw new FulmarError('MALFORMED', `rows must be a TensorDict or a buffer: got ${describeValue(rows)}`)
}

function checkMetadata(metadata: unknown = {}): Readonly<Record<string, Json>> {
  if (typeof metadata === 'object' && metadata !== null && !Array.isArray(metadata))
    return metadata as Readonly<Record<string, Json>>
  throw new FulmarError('MALFORMED', `options.metadata must be an object: got ${describeValue(metadata)}`)
}

function fileOf(steps: TensorDict): { readonly bytes: Uint8Array; readonly numEpisodes: number } {
  const writer = call(() => withRawDict(steps, (dict) => raw.EpisodesWriter.of(dict)))
  try {
    return { bytes: call(() => writer.bytes()), numEpisodes: call(() => writer.numEpisodes()) }
  } finally {
    writer.free()
  }
}

function metadataText(
  steps: TensorDict,
  given: Readonly<Record<string, Json>>,
  file: { readonly id: string; readonly bytes: Uint8Array; readonly numEpisodes: number },
): string {
  const fields: Record<string, Json> = {
    observation_space:
      given.observation_space ?? spaceOf([steps.get('observation'), steps.get(['next', 'observation'])]),
    action_space: given.action_space ?? spaceOf([steps.get('action')]),
    minari_version: MINARI_VERSION,
    ...given,
    total_episodes: file.numEpisodes,
    total_steps: steps.batchSize[0] ?? 0,
    data_format: 'hdf5',
    // Images are written as arrays.
    jpeg_encoding: false,
    dataset_id: file.id,
    // In megabytes, as Minari counts.
    dataset_size: Math.round(file.bytes.length / 1e5) / 10,
  }
  for (const name of TEXTS) {
    const value = fields[name]
    if (value !== undefined && value !== null && typeof value !== 'string') fields[name] = pythonJson(value)
  }
  return pythonJson(fields)
}

/** Writes what Minari lists namespaces by, where it is not there. */
async function writeNamespaces(root: string, namespaces: readonly string[]): Promise<void> {
  for (const [at] of namespaces.entries()) {
    const path = join(root, ...namespaces.slice(0, at + 1), 'namespace_metadata.json')
    await writing('the description of a namespace', path, () =>
      writeFile(path, '{}', { flag: 'wx' }).catch((cause: NodeJS.ErrnoException) => {
        if (cause.code !== 'EEXIST') throw cause
      }),
    )
  }
}
