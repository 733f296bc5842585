/** Files of the Hugging Face hub, in its cache: one of them, or a whole repository. */

import type { Slots } from '../async/index.js'
import { checkKnownKeys, checkList, describeValue, FulmarError } from '../core/index.js'
import { downloadFile } from './download.js'
import { FETCH_KEYS, type FetchOptions, type ParallelOptions, withTransfer } from './fetch-options.js'
import { nameParts } from './file-name.js'
import { matchesPattern } from './file-pattern.js'
import {
  checkRepo,
  commitOf,
  filesOf,
  type HubFile,
  type HubRepo,
  locate,
  type RepoKind,
  shownRepo,
} from './hub.js'
import { defaultHubCache, HubCache } from './hub-cache.js'
import { Tally } from './tally.js'
import { together } from './together.js'
import type { Transfer } from './transfer.js'

/** Options of fetches from the hub. An option beats its variable. */
export interface HubOptions extends FetchOptions {
  /**
   * A branch, a tag or a commit.
   * @default 'main'
   */
  readonly revision?: string
  /**
   * The hub, or a mirror of it.
   * @default the variable `HF_ENDPOINT`, else `https://huggingface.co`
   */
  readonly endpoint?: string
  /**
   * Sent to the endpoint alone: redirects to other hosts go without it.
   * @default the variable `HF_TOKEN`, else none
   */
  readonly token?: string
  /**
   * Folder of the cache, which the hub's own client can share.
   * @default the variable `HF_HUB_CACHE`, else `hub` in `HF_HOME`, else `~/.cache/huggingface/hub`
   */
  readonly cache?: string
  /**
   * Uses the cache alone and opens no connection.
   * @default true if the variable `HF_HUB_OFFLINE` is `1`, `true`, `yes` or `on`
   */
  readonly offline?: boolean
}

/** Options of {@link fetchHubFile}. */
export interface HubFileOptions extends HubOptions {
  /** @default 'model' */
  readonly kind?: RepoKind
}

/** Options of {@link fetchSnapshot}. */
export interface SnapshotOptions extends HubFileOptions, ParallelOptions {
  /**
   * Patterns of the files to fetch: `*` matches any characters, slashes included, and `?` for one.
   * @default all files
   */
  readonly include?: readonly string[]
}

/** @internal Names of {@link HubOptions}. */
export const HUB_KEYS = [...FETCH_KEYS, 'revision', 'endpoint', 'token', 'cache', 'offline'] as const

/** @internal A repository, its cache, and what a fetch of it does. */
export interface HubPlan {
  readonly repo: HubRepo
  readonly cache: HubCache
  readonly isOffline: boolean
  readonly options: HubOptions
}

/**
 * Fetches one file of a repository of the hub and returns its path in the cache. A file that is there already
 * costs one question; a commit as revision costs none.
 *
 * @throws {FulmarError} `MALFORMED` for a name that is not one of a repository or leads out of it; `IO` if there is no such
 * repository, revision or file, or the hub cannot be reached; `FORBIDDEN` without access; `CORRUPT` if the bytes are not those of
 * the checksum; `UNAVAILABLE` offline if the cache lacks it; `ABORTED` if the signal fires.
 *
 * @example
 * ```ts
 * import { fetchHubFile } from 'fulmar/fetch'
 * import assert from 'node:assert/strict'
 *
 * const fetching = fetchHubFile('Qwen/Qwen3-0.6B', 'config.json', { cache: '/nowhere', offline: true })
 * await assert.rejects(fetching, { code: 'UNAVAILABLE' }) // it is not there; leave `offline` out to fetch it
 * ```
 */
export async function fetchHubFile(
  name: string,
  file: string,
  options: HubFileOptions = {},
): Promise<string> {
  checkKnownKeys('options', options, [...HUB_KEYS, 'kind'])
  const plan = planOf(name, options, options.kind)
  nameParts('file', file, 'MALFORMED')
  const held = plan.isOffline || !options.force ? await heldFile(plan, file) : undefined
  if (held !== undefined) return held
  if (plan.isOffline) throw notCached(plan, file)
  return await withTransfer(options, async (transfer) => {
    const tally = new Tally(shownRepo(plan.repo, file), options.onProgress)
    tally.expect(file, undefined)
    const path = await fetchOne(transfer, plan, file, tally)
    tally.end()
    return path
  })
}

/**
 * Fetches the files of a repository of the hub and returns the folder of its commit in the cache.
 *
 * @throws {FulmarError} As {@link fetchHubFile}; `LIMIT_EXCEEDED` for more than 100,000 files or a listing of more than 64 MiB.
 *
 * @example
 * ```ts
 * import { fetchSnapshot } from 'fulmar/fetch'
 * import assert from 'node:assert/strict'
 *
 * const fetching = fetchSnapshot('lerobot/pusht', { kind: 'dataset', include: ['meta/*'], cache: '/nowhere', offline: true })
 * await assert.rejects(fetching, { code: 'UNAVAILABLE' }) // it is not there; leave `offline` out to fetch it
 * ```
 */
export async function fetchSnapshot(name: string, options: SnapshotOptions = {}): Promise<string> {
  checkKnownKeys('options', options, [...HUB_KEYS, 'kind', 'include', 'parallel'])
  const plan = planOf(name, options, options.kind)
  const { include = ['*'] } = options
  checkPatterns(include)
  if (plan.isOffline) return await heldSnapshot(plan)
  return await withTransfer(options, async (transfer, slots) => {
    const { commit, files } = await listed(transfer, plan)
    const wanted = files.filter((file) => include.some((pattern) => matchesPattern(file.name, pattern)))
    const tally = new Tally(shownRepo(plan.repo), options.onProgress)
    await fetchMany(transfer, slots, { ...plan, repo: { ...plan.repo, revision: commit } }, wanted, tally)
    await plan.cache.setCommit(plan.repo.revision, commit)
    tally.end()
    return plan.cache.snapshot(commit)
  })
}

/** @internal Checks name and options, and reads the variables. @throws {FulmarError} `MALFORMED`, `UNKNOWN_NAME`. */
export function planOf(name: string, options: HubOptions, kind: RepoKind = 'model'): HubPlan {
  const { HF_ENDPOINT, HF_TOKEN, HF_HUB_OFFLINE } = process.env
  const { revision = 'main', endpoint = HF_ENDPOINT || 'https://huggingface.co' } = options
  const { token = HF_TOKEN || undefined, cache = defaultHubCache() } = options
  const { offline = /^(?:1|true|yes|on)$/i.test(HF_HUB_OFFLINE ?? '') } = options
  if (typeof cache !== 'string' || cache === '')
    throw new FulmarError('MALFORMED', `options.cache must be a folder: got ${describeValue(cache)}`)
  const repo = checkRepo({ kind, name, revision, endpoint, token })
  return { repo, cache: new HubCache(cache, kind, name), isOffline: offline, options }
}

/** @internal Asks for commit and files. The caller notes the commit once it has the files, so that offline no part of them passes for all. */
export async function listed(
  transfer: Transfer,
  { repo }: HubPlan,
): Promise<{ readonly commit: string; readonly files: readonly HubFile[] }> {
  const commit = await commitOf(transfer, repo)
  const files = await filesOf(transfer, repo, commit)
  return { commit, files }
}

/** @internal Fetches files, a bounded number at once; the first failure stops the others. */
export async function fetchMany(
  transfer: Transfer,
  slots: Slots,
  plan: HubPlan,
  files: readonly HubFile[],
  tally: Tally,
): Promise<void> {
  for (const { name, sizeBytes } of files) tally.expect(name, sizeBytes)
  await together(transfer, slots, files, async ({ name, sizeBytes }, bounded) => {
    const isHeld = !plan.options.force && (await heldFile(plan, name)) !== undefined
    if (isHeld) tally.update(name, sizeBytes)
    else await fetchOne(bounded, plan, name, tally)
  })
}

/** Fetches one file into the cache and returns its path. */
async function fetchOne(transfer: Transfer, plan: HubPlan, file: string, tally: Tally): Promise<string> {
  const { repo, cache, options } = plan
  const { force = false } = options
  const found = await locate(transfer, repo, file, (commit) => cache.markAbsent(commit, file))
  const { commit, etag, remote } = found
  await cache.setCommit(repo.revision, commit)
  const path = cache.blob(etag)
  tally.update(file, 0, remote.sizeBytes)
  await downloadFile(remote, {
    ...{ transfer, path, force, lockPath: cache.lock(etag) },
    onBytes: (bytes) => tally.update(file, bytes),
  })
  tally.update(file, remote.sizeBytes ?? 0)
  return await cache.link(commit, file, etag)
}

/** The file in the cache, where no question is needed: offline, or at a commit. */
async function heldFile({ repo, cache, isOffline }: HubPlan, file: string): Promise<string | undefined> {
  const commit = await cache.commitOf(repo.revision)
  if (commit === undefined || (!isOffline && commit !== repo.revision)) return undefined
  return await cache.find(commit, file)
}

/** @internal The folder of the revision in the cache. @throws {FulmarError} `UNAVAILABLE` if the cache lacks it. */
export async function heldSnapshot(plan: HubPlan): Promise<string> {
  const { repo, cache } = plan
  const commit = await cache.commitOf(repo.revision)
  if (commit !== undefined && (await cache.hasSnapshot(commit))) return cache.snapshot(commit)
  throw notCached(plan)
}

/** @internal The error of an offline fetch, which names what is missing. */
export function notCached({ repo, cache }: HubPlan, file?: string): FulmarError {
  const detail = `${shownRepo(repo, file)} must be in the cache ${cache.folder}, as offline is set: it is not there`
  return new FulmarError('UNAVAILABLE', detail)
}

function checkPatterns(include: readonly string[]): void {
  checkList('options.include', include)
  for (const pattern of include) {
    if (typeof pattern !== 'string')
      throw new FulmarError(
        'MALFORMED',
        `options.include must be a list of texts: got ${describeValue(pattern)}`,
      )
  }
}
