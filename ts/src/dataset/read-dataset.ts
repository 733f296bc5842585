/** Files of data sets from their bytes, natively and in WebAssembly. */

import { call, checkKnownKeys, checkTypedArray, describeValue, FulmarError } from '../core/index.js'
import { type RawOwner, raw } from '../native/index.js'
import type { Json, TensorDict } from '../tensor/index.js'
import { dictAround } from '../tensor/tensor-dict.js'

/** Options of {@link readD4RL}. */
export interface ReadD4RLOptions {
  /** Name of the file in messages. @default 'bytes' */
  readonly name?: string
  /** A step that was cut off by a time limit is done. @default true */
  readonly useTruncatedAsDone?: boolean
  /** Keeps trajectories side by side, `[n, T_max]`. @default false */
  readonly splitTrajs?: boolean
}

/**
 * Reads the bytes of a D4RL file: its transitions, `[N - 1]`, and its metadata. Blocks while it reads.
 * @throws {FulmarError} The errors of the conversion, see `D4RLExperienceReplay.open`.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { readD4RL } from 'fulmar/dataset'
 * import { writeHdf5 } from 'fulmar/replay/files'
 * import assert from 'node:assert/strict'
 *
 * const bytes = writeHdf5(
 *   TensorDict.from({
 *     observations: Tensor.from([1, 2, 3], { shape: [3, 1] }),
 *     actions: Tensor.from([0, 1, 0], { shape: [3, 1] }),
 *     rewards: Tensor.from([4, 5, 6]),
 *     terminals: Tensor.from([0, 1, 0]),
 *   }),
 * )
 * const { steps } = readD4RL(bytes)
 * assert.deepEqual(steps.tensor(['next', 'observation']).data, Float32Array.of(2, 0)) // the second is done
 * ```
 */
export function readD4RL(
  bytes: Uint8Array,
  options: ReadD4RLOptions = {},
): { readonly steps: TensorDict; readonly metadata: TensorDict } {
  checkTypedArray('bytes', bytes, Uint8Array)
  checkKnownKeys('options', options, ['name', 'useTruncatedAsDone', 'splitTrajs'])
  const { name = 'bytes', ...conversion } = options
  checkText('options.name', name)
  const file = call(() => raw.ColumnsFile.read(bytes, name, JSON.stringify(conversion)))
  return closing(file, () => ({
    steps: dictAround(() => call(() => file.steps())),
    metadata: dictAround(() => call(() => file.metadata())),
  }))
}

/**
 * Reads the bytes of a Minari `main_data.hdf5` and the text of its `metadata.json`. Blocks while it reads.
 * @throws {FulmarError} The errors of the conversion, see `MinariExperienceReplay.open`.
 *
 * @example
 * ```ts
 * import { readMinari } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * assert.throws(() => readMinari(new Uint8Array(8), '{}'), { code: 'CORRUPT' })
 * ```
 */
export function readMinari(
  bytes: Uint8Array,
  metadata: string,
  options: { readonly name?: string } = {},
): { readonly steps: TensorDict; readonly metadata: Readonly<Record<string, Json>> } {
  checkTypedArray('bytes', bytes, Uint8Array)
  checkKnownKeys('options', options, ['name'])
  checkText('metadata', metadata)
  const { name = 'bytes' } = options
  checkText('options.name', name)
  const file = call(() => raw.EpisodesFile.read(bytes, name, metadata))
  return closing(file, () => ({
    steps: dictAround(() => call(() => file.steps())),
    metadata: JSON.parse(call(() => file.metadata())) as Readonly<Record<string, Json>>,
  }))
}

/**
 * Reads the bytes of an `.npz` archive of NumPy: its arrays by their names, without `.npy`. Blocks while it reads.
 * @throws {FulmarError} With the name of the array, `CORRUPT` for damaged bytes, a name that comes twice, and members other than the
 *   archive lists them; `FORBIDDEN` for names that lead out of the archive; `INCOMPATIBLE` for arrays of objects, texts or complex numbers,
 *   and encrypted members; `MALFORMED` for a member that is no array; `LIMIT_EXCEEDED` for more than 4,096 arrays, or 64 GiB.
 *
 * @example
 * ```ts
 * import { readNpz } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const empty = Uint8Array.of(80, 75, 5, 6, ...new Uint8Array(18)) // an archive without members
 * assert.deepEqual(readNpz(empty).keys(), [])
 * assert.throws(() => readNpz(new Uint8Array(8)), { code: 'CORRUPT' })
 * ```
 */
export function readNpz(bytes: Uint8Array, options: { readonly name?: string } = {}): TensorDict {
  checkTypedArray('bytes', bytes, Uint8Array)
  checkKnownKeys('options', options, ['name'])
  const { name = 'bytes' } = options
  checkText('options.name', name)
  const file = call(() => raw.ArraysFile.read(bytes, name))
  return closing(file, () => dictAround(() => call(() => file.arrays())))
}

function checkText(what: string, value: unknown): void {
  if (typeof value === 'string') return
  throw new FulmarError('MALFORMED', `${what} must be a text: got ${describeValue(value)}`)
}

function closing<R>(file: RawOwner, body: () => R): R {
  try {
    return body()
  } finally {
    file.free()
  }
}
