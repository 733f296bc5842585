/** Data sets of Open X-Embodiment: episodes of robots. */

import { join } from 'node:path'
import { callAsync, FulmarError, Rng, readRegular } from '../core/index.js'
import {
  type Sampler,
  SamplerWithoutReplacement,
  SliceSampler,
  SliceSamplerWithoutReplacement,
} from '../replay/index.js'
import { Tensor, type TensorDict } from '../tensor/index.js'
import {
  BaseDatasetExperienceReplay,
  type DatasetPlace,
  placeOf,
  unknownId,
} from './dataset-experience-replay.js'
import { converter, ensureFolder } from './dataset-folder.js'
import { OpenXEpisodes } from './openx-episodes.js'
import { OPENX_IDS, openXFiles } from './openx-files.js'
import { type CheckedOpenXOptions, checkOpenXOptions, type OpenXOptions } from './openx-options.js'
import { OpenXStream } from './openx-stream.js'

/** Most bytes of the numbers of episodes: those of 2^28 steps. */
const EPISODES_BYTES_MAX = 2 ** 30

/**
 * A data set of Open X-Embodiment: `observation` with images, u8 `[3, H, W]`, `action`, `is_init`, `episode`, and what else the steps
 * have, such as `language_instruction`; below `next` the observation, `reward`, `done`, `terminated` and `truncated` after the step.
 * `next.observation` is zero in the last step of an episode.
 *
 * Without `batchSize`, an iteration yields whole episodes, with `next.truncated` at their ends as slices have it.
 *
 * @example
 * ```ts native
 * import { OpenXExperienceReplay } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = OpenXExperienceReplay.open('viola', { root: '/nowhere', download: false, sliceLen: 8, batchSize: 64 })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // `download: true` fetches it
 * ```
 */
export class OpenXExperienceReplay extends BaseDatasetExperienceReplay {
  readonly #options: OpenXOptions
  readonly #shuffle: boolean
  /** The rows where episodes begin, and the number of rows. */
  readonly #bounds: readonly number[]

  private constructor(
    place: DatasetPlace,
    options: OpenXOptions,
    checked: CheckedOpenXOptions,
    bounds: readonly number[],
  ) {
    const sampler = options.sampler ?? samplerOf(options, checked)
    super(place, { ...options, ...(sampler && { sampler }) })
    this.#options = options
    this.#shuffle = checked.shuffle
    this.#bounds = bounds
  }

  /** The ids. */
  static get availableDatasets(): readonly string[] {
    return OPENX_IDS
  }

  /**
   * Opens a data set: as a stream, which fetches a file when its first episode is read, or, with `streaming: false` or any
   * `download`, as a buffer, which fetches and converts all files unless that was done.
   * @throws {FulmarError} `UNKNOWN_NAME` for an id that is not one of Open X-Embodiment, with the nearest one, or an unknown option;
   *   `INCOMPATIBLE` for options that exclude each other, before anything is fetched; `UNAVAILABLE` if `download` is false and it is not
   *   there, and in WebAssembly; those of `fetchSnapshot`; with file, member, key and step, `CORRUPT`, `UNKNOWN_NAME`, `SHAPE_MISMATCH`,
   *   `INCOMPATIBLE`, `OUT_OF_RANGE`, `EMPTY` or `LIMIT_EXCEEDED` for files that break the format; `FORBIDDEN` for pickles that call
   *   functions, and names that lead out of an archive; `ABORTED` if the signal fires.
   */
  static async open(
    id: string,
    options: OpenXOptions & ({ readonly streaming: false } | { readonly download: boolean | 'force' }),
  ): Promise<OpenXExperienceReplay>
  static async open(
    id: string,
    options?: OpenXOptions & { readonly streaming?: true; readonly download?: never },
  ): Promise<OpenXStream>
  static async open(id: string, options?: OpenXOptions): Promise<OpenXExperienceReplay | OpenXStream>
  static async open(id: string, options: OpenXOptions = {}): Promise<OpenXExperienceReplay | OpenXStream> {
    const checked = checkOpenXOptions(options)
    if (!OPENX_IDS.includes(id)) throw unknownId('Open X-Embodiment', id, OPENX_IDS)
    if (checked.streaming) return await streamOf(id, options, checked)
    const place = placeOf('openx', id, options)
    const convertOpenx = converter('convertOpenx')
    const convert = async (folder: string): Promise<void> => {
      const files = await openXFiles(id, options)
      await callAsync(() => convertOpenx([...files], folder))
    }
    const source = { dataPath: place.dataPath, label: `openx:${id}`, conversion: {}, convert }
    await ensureFolder(source, options)
    return new OpenXExperienceReplay(place, options, checked, await boundsIn(place.dataPath))
  }

  /** Batches of the buffer's batch size; without one, whole episodes, each once. */
  override *[Symbol.iterator](): Generator<TensorDict, void, undefined> {
    if (this.#options.batchSize !== undefined) return yield* super[Symbol.iterator]()
    const bounds = this.#bounds
    const count = bounds.length - 1
    const order = this.#shuffle
      ? Rng.fromSeed(this.#options.seed ?? 0)
          .stream('openx')
          .permutation(count)
      : Array.from({ length: count }, (_, at) => at)
    const yes = Tensor.from(Uint8Array.of(1), { dtype: 'bool' })
    for (const at of order) {
      const [start = 0, stop = 0] = bounds.slice(at, at + 2)
      const { items } = this.batchOf(Array.from({ length: stop - start }, (_, row) => start + row))
      // As samplers of slices do.
      yield items.writeAt(['next', 'truncated'], [-1], yes)
    }
  }
}

async function streamOf(
  id: string,
  options: OpenXOptions,
  { pad }: CheckedOpenXOptions,
): Promise<OpenXStream> {
  const episodes = await OpenXEpisodes.open(id, options)
  const rng = Rng.fromSeed(options.seed ?? 0).stream('openx')
  const uniform = (episode: number) => {
    using draws = rng.fork(episode)
    return draws.uniform()
  }
  return new OpenXStream({ datasetId: id, episodes, uniform, pad, options })
}

/** Reads where episodes begin, from their numbers in the folder of the rows. */
async function boundsIn(dataPath: string): Promise<readonly number[]> {
  const path = join(dataPath, 'episode.memmap')
  const bytes = await readRegular(path, EPISODES_BYTES_MAX)
  if (bytes === undefined) throw new FulmarError('CORRUPT', `${path} must be there: it is missing`)
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const numRows = Math.floor(bytes.byteLength / 4)
  const bounds = [0]
  for (let row = 1; row < numRows; row++)
    if (view.getInt32(4 * row, true) !== view.getInt32(4 * row - 4, true)) bounds.push(row)
  return [...bounds, numRows]
}

/** The sampler of the options; none for uniform rows with replacement. */
function samplerOf(
  { numSlices, sliceLen }: OpenXOptions,
  { replacement, strictLength, shuffle }: CheckedOpenXOptions,
): Sampler | undefined {
  const slices = {
    ...(numSlices !== undefined && { numSlices }),
    ...(sliceLen !== undefined && { sliceLen }),
  }
  if (numSlices === undefined && sliceLen === undefined)
    return replacement ? undefined : new SamplerWithoutReplacement({ shuffle })
  return replacement
    ? new SliceSampler({ ...slices, strictLength })
    : new SliceSamplerWithoutReplacement({ ...slices, strictLength, shuffle })
}
