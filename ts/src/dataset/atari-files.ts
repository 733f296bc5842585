/** Files of Atari DQN replay, six for each split: from the bucket, a web server, or a folder. */

import { readdir, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { FulmarError } from '../core/index.js'
import { fetchBucket, fetchFile } from '../fetch/index.js'
import type { AtariDQNOptions } from './atari-dqn-experience-replay.js'
import { fetchOptionsOf } from './dataset-options.js'

/** Splits of a run. */
export const ATARI_SPLITS = 50

const BUCKET = 'atari-replay-datasets'

/** Names of the files of a split, without `_ckpt.K.gz`. */
const ARRAYS = [
  '$store$_observation',
  '$store$_action',
  '$store$_reward',
  '$store$_terminal',
  'add_count',
  'invalid_range',
]

/** The files of a run. */
export interface AtariFiles {
  /** Numbers of the splits, in order. */
  readonly splits: readonly number[]
  /** Makes the files of a split be there, and returns their folder. */
  ensure(split: number): Promise<string>
  /** Gives the files of a split up. */
  release(split: number): Promise<void>
}

/**
 * Returns the files of a run, at most the first `numSplits` splits.
 * @throws {FulmarError} `EMPTY` without files; those of `fetchBucket` and `fetchFile`.
 */
export async function atariFiles(id: string, root: string, options: AtariDQNOptions): Promise<AtariFiles> {
  const { folder, mirror, numSplits = ATARI_SPLITS } = options
  if (folder !== undefined) return await filesInFolder(id, folder, numSplits)
  const raw = join(root, '.raw')
  return mirror === undefined
    ? await filesInBucket(id, raw, options, numSplits)
    : filesOfServer(id, raw, options, mirror)
}

async function filesInFolder(id: string, folder: string, numSplits: number): Promise<AtariFiles> {
  for (const path of [folder, join(folder, 'dqn', ...id.split('/'), 'replay_logs')]) {
    const splits = await splitsIn(path)
    if (splits.length === 0) continue
    return { splits: splits.slice(0, numSplits), ensure: async () => path, release: async () => {} }
  }
  throw noFiles(id, folder)
}

async function filesInBucket(
  id: string,
  raw: string,
  options: AtariDQNOptions,
  numSplits: number,
): Promise<AtariFiles> {
  const url = `gs://${BUCKET}/dqn/${id}/replay_logs/`
  const { endpoint } = options
  const fetching = { ...fetchOptionsOf(options), root: raw, ...(endpoint !== undefined && { endpoint }) }
  const fetch = async (ends: readonly string[]) => {
    const include = ends.map((end) => `dqn/${id}/replay_logs/${end}`)
    return join(await fetchBucket(url, { ...fetching, include }), 'dqn', ...id.split('/'), 'replay_logs')
  }
  // The small files show which splits there are.
  const splits = (await splitsIn(await fetch(['add_count_ckpt.*.gz']))).slice(0, numSplits)
  if (splits.length === 0) throw noFiles(id, url)
  const own = join(raw, 'gs', BUCKET, 'dqn', ...id.split('/'), 'replay_logs')
  return {
    splits,
    ensure: async (split) => await fetch(ARRAYS.map((name) => nameOf(name, split))),
    release: async (split) => await remove(ARRAYS.map((name) => join(own, nameOf(name, split)))),
  }
}

/** A web server has no listing: it must have all splits. */
function filesOfServer(id: string, raw: string, options: AtariDQNOptions, mirror: string): AtariFiles {
  const base = `${mirror.replace(/\/+$/, '')}/dqn/${id}/replay_logs`
  const fetching = { ...fetchOptionsOf(options), root: raw }
  const paths = new Map<number, string[]>()
  return {
    splits: Array.from({ length: options.numSplits ?? ATARI_SPLITS }, (_, split) => split),
    ensure: async (split) => {
      const fetched: string[] = []
      paths.set(split, fetched)
      for (const name of ARRAYS)
        fetched.push(await fetchFile(`${base}/${encodeURIComponent(nameOf(name, split))}`, fetching))
      return join(fetched[0] ?? raw, '..')
    },
    release: async (split) => await remove(paths.get(split) ?? []),
  }
}

const nameOf = (name: string, split: number): string => `${name}_ckpt.${split}.gz`

async function remove(paths: readonly string[]): Promise<void> {
  for (const path of paths) await rm(path, { force: true })
}

/** The numbers of the splits that a folder has a file of. */
async function splitsIn(folder: string): Promise<readonly number[]> {
  const names = await readdir(folder).catch((cause: NodeJS.ErrnoException) => {
    if (cause.code === 'ENOENT') return []
    throw new FulmarError('IO', `${folder} must be a folder that can be read: ${cause.message}`, { cause })
  })
  const numbers = names.map((name) => /^.+_ckpt\.(\d{1,4})\.gz$/.exec(name)?.[1])
  return [...new Set(numbers.filter((number) => number !== undefined).map(Number))].sort((a, b) => a - b)
}

function noFiles(id: string, place: string): FulmarError {
  return new FulmarError('EMPTY', `atari:${id} must have files in ${place}: there are none`)
}
