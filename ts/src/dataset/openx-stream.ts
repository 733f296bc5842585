/** Episodes of Open X-Embodiment, read from their files one after the other. */

import { aborted } from '../async/index.js'
import { checkKnownKeys, describeValue, FulmarError } from '../core/index.js'
import { TransformChain } from '../replay/buffer-transform.js'
import { NonTensorStack, Tensor, TensorDict } from '../tensor/index.js'
import type { OpenXEpisodes, OpenXPosition } from './openx-episodes.js'
import type { OpenXOptions } from './openx-options.js'

/** Position of an {@link OpenXStream}: plain JSON, for a checkpoint. */
export interface OpenXStreamState extends OpenXPosition {
  /** The commit of the repository that the files are of. */
  readonly commit: string
  /** Episodes that were read, which the numbers of their offsets follow. */
  readonly numEpisodes: number
}

/** @internal Parts of a stream. */
export interface OpenXStreamParts {
  readonly datasetId: string
  readonly episodes: OpenXEpisodes
  /** The number in [0, 1) that the offset of an episode's slice is drawn by. */
  uniform(episode: number): number
  /** The number that short episodes are padded with. */
  readonly pad: number | undefined
  readonly options: OpenXOptions
}

/**
 * The steps of a data set of Open X-Embodiment in the order of its files, without a folder of rows. One episode is in memory, and one that
 * is read ahead. A file is fetched when its first episode is read, and stays in the hub's cache.
 *
 * With `sliceLen` or `numSlices`, one slice of each episode is taken at an offset that `seed` draws; `next.truncated` and `next.done`
 * are true at its end. Get one by {@link OpenXExperienceReplay.open}.
 *
 * @example
 * ```ts native
 * import { OpenXExperienceReplay, OpenXStream } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const opening = OpenXExperienceReplay.open('viola', { sliceLen: 8, batchSize: 64, cache: '/nowhere', offline: true })
 * await assert.rejects(opening, { code: 'UNAVAILABLE' }) // leave `offline` out to fetch it
 * assert.ok(Symbol.asyncIterator in OpenXStream.prototype)
 * ```
 */
export class OpenXStream implements AsyncIterable<TensorDict> {
  /** The id of the data set. */
  readonly datasetId: string
  readonly #parts: OpenXStreamParts
  readonly #transforms: TransformChain
  readonly #sliceLen: number | undefined
  #numEpisodes = 0
  /** The end of the last call: calls run one after the other. */
  #last: Promise<unknown> = Promise.resolve()

  /** @internal */
  constructor(parts: OpenXStreamParts) {
    const { transform = [], collateFn, numSlices, sliceLen, batchSize } = parts.options
    this.datasetId = parts.datasetId
    this.#parts = parts
    this.#transforms = new TransformChain([transform, collateFn ? { forward: collateFn } : []].flat())
    this.#sliceLen = numSlices !== undefined && batchSize !== undefined ? batchSize / numSlices : sliceLen
  }

  /**
   * Returns the next `count` steps, the batch size by default: slices, or whole episodes, of which the last is cut off. `episode` counts in
   * the batch, `index` its rows. Behind the last episode it begins anew. After an error the position is that before the call.
   * @throws {FulmarError} `OUT_OF_RANGE` without a number of steps, for one that is not a multiple of the slices, or an episode that is
   *   shorter than a slice, without `pad`; with file, member and key, the errors of {@link OpenXExperienceReplay.open} for files that
   *   break the format; those of `fetchHubFile`; `EMPTY` if the files have no episode; `ABORTED` if the signal fires.
   */
  async sample(count = this.#parts.options.batchSize): Promise<TensorDict> {
    if (
      count === undefined ||
      !Number.isSafeInteger(count) ||
      count < 1 ||
      count % (this.#sliceLen ?? 1) !== 0
    ) {
      const rule =
        this.#sliceLen === undefined ? 'at least 1' : `a multiple of ${this.#sliceLen}, the steps of a slice`
      throw new FulmarError(
        'OUT_OF_RANGE',
        `count must be a whole number, ${rule}: got ${describeValue(count)}`,
      )
    }
    return await this.#inTurn(async () => {
      const parts: TensorDict[] = []
      for (let rows = 0; rows < count; ) {
        const steps = (await this.#part(parts.length)) ?? (await this.#part(parts.length))
        if (steps === undefined)
          throw new FulmarError('EMPTY', `openx:${this.datasetId} must have episodes: its files have none`)
        parts.push(steps)
        rows += steps.batchSize[0] ?? 0
      }
      const batch = TensorDict.cat(parts).slice(0, count)
      batch.set('index', Tensor.from(BigInt64Array.from({ length: count }, (_, at) => BigInt(at))))
      return this.#transforms.forward(batch)
    })
  }

  /**
   * Yields batches without end if there is a batch size, as {@link OpenXStream.sample}; else what is left of the episodes, or of their
   * slices, one at a time. The next iteration begins anew.
   */
  async *[Symbol.asyncIterator](): AsyncGenerator<TensorDict, void, undefined> {
    const { batchSize } = this.#parts.options
    if (batchSize !== undefined) while (true) yield await this.sample()
    while (true) {
      const steps = await this.#inTurn(() => this.#part(0))
      if (steps === undefined) return
      yield this.#transforms.forward(steps)
    }
  }

  /** Returns the position. */
  stateDict(): OpenXStreamState {
    const { commit, position } = this.#parts.episodes
    return { commit, ...position, numEpisodes: this.#numEpisodes }
  }

  /**
   * Restores the position of `state`: the next steps are those that came after it.
   * @throws {FulmarError} `MALFORMED`, `UNKNOWN_NAME` or `OUT_OF_RANGE` if it is not such a state; `INCOMPATIBLE` if the repository has
   *   another commit: give it as `revision`.
   */
  loadStateDict(state: OpenXStreamState): void {
    checkKnownKeys('state', state, ['commit', 'file', 'start', 'numEpisodes'])
    const { commit, file, start, numEpisodes } = state
    const { episodes } = this.#parts
    if (commit !== episodes.commit) {
      const detail = `state.commit must be that of the files, ${episodes.commit}: got ${describeValue(commit)} (give it as options.revision)`
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    for (const [name, value] of Object.entries({ file, start, numEpisodes })) {
      if (Number.isSafeInteger(value) && value >= 0) continue
      throw new FulmarError(
        'OUT_OF_RANGE',
        `state.${name} must be a whole number: got ${describeValue(value)}`,
      )
    }
    episodes.moveTo({ file, start })
    this.#numEpisodes = numEpisodes
  }

  /** Runs `body` behind earlier calls. After an error the position is that before it. */
  async #inTurn<T>(body: () => Promise<T>): Promise<T> {
    const earlier = this.#last
    const running = (async () => {
      await earlier
      const [{ position }, numEpisodes] = [this.#parts.episodes, this.#numEpisodes]
      try {
        return await body()
      } catch (error) {
        this.#parts.episodes.moveTo(position)
        this.#numEpisodes = numEpisodes
        throw error
      }
    })()
    this.#last = running.catch(() => {})
    return await running
  }

  /** The next episode, or a slice of it, with this number; nothing at the end, behind which the first comes. */
  async #part(number: number): Promise<TensorDict | undefined> {
    const { episodes, options } = this.#parts
    if (options.signal?.aborted) throw aborted(options.signal)
    const steps = await episodes.next()
    if (steps === undefined) return undefined
    steps.set('episode', Tensor.from(new Int32Array(steps.batchSize[0] ?? 0).fill(number)))
    const at = this.#numEpisodes++
    return this.#sliceLen === undefined ? steps : this.#slice(steps, this.#sliceLen, at)
  }

  #slice(steps: TensorDict, sliceLen: number, at: number): TensorDict {
    const { pad, uniform } = this.#parts
    const [length = 0] = steps.batchSize
    if (length < sliceLen && pad === undefined) {
      const detail = `sliceLen must be at most the ${length} steps of each episode, or options.pad given: got ${sliceLen}`
      throw new FulmarError('OUT_OF_RANGE', detail)
    }
    if (length < sliceLen) return padded(steps, sliceLen - length, pad)
    const offset = Math.floor((length - sliceLen) * uniform(at))
    const slice = steps.slice(offset, offset + sliceLen).clone()
    const yes = Tensor.from(Uint8Array.of(1), { dtype: 'bool' })
    return slice.writeAt(['next', 'truncated'], [-1], yes).writeAt(['next', 'done'], [-1], yes)
  }
}

/** The steps with `count` more, of one number, or of empty texts. */
function padded(steps: TensorDict, count: number, value: number | undefined): TensorDict {
  const texts = steps.leafKeys().filter((key) => steps.get(key) instanceof NonTensorStack)
  const long = steps.exclude(texts).pad([[0, count]], value)
  for (const key of texts) {
    const stack = steps.get(key)
    if (stack instanceof NonTensorStack)
      long.set(key, new NonTensorStack([...stack.values, ...Array.from({ length: count }, () => '')]))
  }
  return long
}
