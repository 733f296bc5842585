/** Episodes of the files of Open X-Embodiment, one ahead. */

import { join } from 'node:path'
import { call, callAsync, FulmarError } from '../core/index.js'
import { withTransfer } from '../fetch/fetch-options.js'
import { type HubPlan, heldSnapshot, listed, planOf } from '../fetch/hub-files.js'
import { fetchHubFile } from '../fetch/index.js'
import type { RawStreamedEpisode } from '../native/index.js'
import type { TensorDict } from '../tensor/index.js'
import { dictAround } from '../tensor/tensor-dict.js'
import { converter } from './dataset-folder.js'
import { type DatasetOptions, type HubDatasetOptions, hubOptionsOf } from './dataset-options.js'
import { filesIn, OPENX_REPO } from './openx-files.js'

/** Position that an episode is read from. */
export interface OpenXPosition {
  /** The file in their order, from 0. */
  readonly file: number
  /** The position in it, in bytes. */
  readonly start: number
}

/** An episode, and where the next one is. */
interface ReadEpisode {
  readonly steps: TensorDict
  readonly next: OpenXPosition
}

/** The beginning. */
const FIRST: OpenXPosition = { file: 0, start: 0 }

/** Reads episodes one after the other, and one ahead. */
export class OpenXEpisodes {
  /** The commit of the repository. */
  readonly commit: string
  readonly #names: readonly string[]
  readonly #options: DatasetOptions & HubDatasetOptions
  readonly #read = converter('readOpenxEpisode')
  readonly #plan: HubPlan | undefined
  readonly #fetched = new Set<string>()
  #position = FIRST
  #ahead: Promise<ReadEpisode | undefined> | undefined

  private constructor(
    commit: string,
    names: readonly string[],
    options: DatasetOptions & HubDatasetOptions,
    plan?: HubPlan,
  ) {
    this.commit = commit
    this.#plan = plan
    this.#names = names
    this.#options = options
  }

  /**
   * Asks the hub for the files of a data set; offline, the cache.
   * @throws {FulmarError} `EMPTY` if it has no file; those of `fetchSnapshot`.
   */
  static async open(id: string, options: DatasetOptions & HubDatasetOptions): Promise<OpenXEpisodes> {
    const fetching = hubOptionsOf(options)
    const plan = planOf(OPENX_REPO, fetching, 'dataset')
    if (plan.isOffline) {
      const folder = await heldSnapshot(plan)
      const names = (await filesIn(join(folder, id), id)).map((name) => `${id}/${name}`)
      return new OpenXEpisodes((await plan.cache.commitOf(plan.repo.revision)) ?? '', names, options)
    }
    const { commit, files } = await withTransfer(fetching, (transfer) => listed(transfer, plan))
    const names = files
      .map(({ name }) => name)
      .filter((name) => name.startsWith(`${id}/`) && name.endsWith('.tar'))
    if (names.length === 0)
      throw new FulmarError('EMPTY', `openx:${id} must have files: ${OPENX_REPO} has none`)
    return new OpenXEpisodes(commit, names.sort(), options, plan)
  }

  /** Position of the next episode. */
  get position(): OpenXPosition {
    return this.#position
  }

  /** Goes to a position. @throws {FulmarError} `OUT_OF_RANGE` for one behind the last file. */
  moveTo(position: OpenXPosition): void {
    if (position.file >= this.#names.length) {
      const detail = `state.file must be below ${this.#names.length}: got ${position.file}`
      throw new FulmarError('OUT_OF_RANGE', detail)
    }
    this.#position = position
    this.#ahead = undefined
  }

  /** The next episode; nothing at the end, behind which the first comes. */
  async next(): Promise<TensorDict | undefined> {
    const read = await (this.#ahead ?? this.#from(this.#position))
    this.#position = read?.next ?? FIRST
    this.#ahead = this.#from(this.#position)
    // The caller of the next episode gets the error.
    this.#ahead.catch(() => {})
    return read?.steps
  }

  async #from({ file, start }: OpenXPosition): Promise<ReadEpisode | undefined> {
    const name = this.#names[file]
    if (name === undefined) return undefined
    const path = await fetchHubFile(OPENX_REPO, name, {
      ...hubOptionsOf(this.#options),
      kind: 'dataset',
      revision: this.commit,
    })
    await this.#note(name)
    const episode = await callAsync(() => this.#read(path, start, 0))
    return episode ? readOf(episode, file) : await this.#from({ file: file + 1, start: 0 })
  }

  /** Notes the commit once all files are in the cache: offline, a part of them must not pass for all. */
  async #note(name: string): Promise<void> {
    if (this.#fetched.has(name)) return
    const { size } = this.#fetched.add(name)
    if (size === this.#names.length) await this.#plan?.cache.setCommit(this.#plan.repo.revision, this.commit)
  }
}

function readOf(episode: RawStreamedEpisode, file: number): ReadEpisode {
  try {
    const steps = dictAround(() => call(() => episode.steps()))
    return { steps, next: { file, start: call(() => episode.end()) } }
  } finally {
    episode.free()
  }
}
