/** Files of plain web servers and of public buckets. */

import { join } from 'node:path'
import { checkKnownKeys, checkList, describeValue, FulmarError } from '../core/index.js'
import { checkBucketEndpoint, objectOf, objectsIn, parseGs } from './bucket.js'
import { cacheRoot, pathOfObject, pathOfUrl } from './cache-folder.js'
import { type Checksum, checkChecksum } from './checksum.js'
import { downloadFile, isThere, type RemoteFile } from './download.js'
import { FETCH_KEYS, type FetchOptions, type ParallelOptions, withTransfer } from './fetch-options.js'
import { matchesPattern } from './file-pattern.js'
import { Tally } from './tally.js'
import { together } from './together.js'
import { checkUrl, shownUrl, type Transfer } from './transfer.js'

/** Options of fetches from web servers and buckets. An option beats its variable. */
export interface WebOptions extends FetchOptions {
  /**
   * Folder that files are kept in.
   * @default the variable `FULMAR_HOME`, else `fulmar` in the platform's folder of caches
   */
  readonly root?: string
  /**
   * Address of the API of buckets, or of a mirror of it.
   * @default 'https://storage.googleapis.com'
   */
  readonly endpoint?: string
  /**
   * Uses files that are there alone and opens no connection.
   * @default false
   */
  readonly offline?: boolean
}

/** Options of {@link fetchFile}. */
export interface FetchFileOptions extends WebOptions {
  /**
   * Checked before the file gets its name.
   * @default that of the server for a bucket, else none: the length alone is checked
   */
  readonly checksum?: Checksum
}

/** Options of {@link fetchBucket}. */
export interface FetchBucketOptions extends WebOptions, ParallelOptions {
  /**
   * Patterns of the objects to fetch, by their whole names: `*` matches any characters, slashes included.
   * @default all objects
   */
  readonly include?: readonly string[]
}

const WEB_KEYS = [...FETCH_KEYS, 'root', 'endpoint', 'offline'] as const

/**
 * Fetches a file of a web server (`https:`, `http:`) or of a public bucket (`gs:`) unless it is there, and returns its path.
 *
 * @throws {FulmarError} `MALFORMED` for a URL that names no file; `CORRUPT` if the bytes are not those of the checksum or the
 * length; `IO`, `TIMEOUT` if they do not come; `FORBIDDEN` without access; `UNAVAILABLE` offline if the file is not there; `ABORTED` if
 * the signal fires.
 *
 * @example
 * ```ts
 * import { fetchClient } from 'fulmar'
 * import { fetchFile } from 'fulmar/fetch'
 * import assert from 'node:assert/strict'
 * import { mkdtemp, readFile } from 'node:fs/promises'
 * import { tmpdir } from 'node:os'
 * import { join } from 'node:path'
 *
 * const client = fetchClient(async () => new Response('rows'))
 * const root = await mkdtemp(join(tmpdir(), 'fulmar-'))
 * const path = await fetchFile('https://example.org/data/rows.csv', { client, root })
 * assert.equal(path, join(root, 'web', 'example.org', 'data', 'rows.csv'))
 * assert.equal(await readFile(path, 'utf8'), 'rows')
 * ```
 */
export async function fetchFile(url: string, options: FetchFileOptions = {}): Promise<string> {
  return await fetchOne(url, options, false)
}

/**
 * @internal Fetches a file that the caller removes: as {@link fetchFile}, but it is not synced, and one that is there is fetched anew.
 * @throws {FulmarError} As {@link fetchFile}.
 */
export async function fetchTemporaryFile(url: string, options: FetchFileOptions): Promise<string> {
  return await fetchOne(url, { ...options, force: true }, true)
}

async function fetchOne(url: string, options: FetchFileOptions, isTemporary: boolean): Promise<string> {
  checkKnownKeys('options', options, [...WEB_KEYS, 'checksum'])
  if (typeof url !== 'string')
    throw new FulmarError('MALFORMED', `url must be a text: got ${describeValue(url)}`)
  const given = options.checksum && checkChecksum('options.checksum', options.checksum)
  const { path, label, find } = placeOf(url, options)
  if (await isHeld(path, label, options)) return path
  return await withTransfer(options, async (transfer) => {
    const remote = await find(transfer)
    const tally = new Tally(label, options.onProgress)
    tally.expect(label, remote.sizeBytes)
    const file = given === undefined ? remote : { ...remote, checksum: given }
    await fetchTo(path, file, transfer, { ...options, isTemporary }, tally)
    tally.end()
    return path
  })
}

/**
 * Fetches the objects of a public bucket (`gs://BUCKET/PREFIX`) that are not there, and returns the folder of the bucket.
 *
 * @throws {FulmarError} As {@link fetchFile}; `LIMIT_EXCEEDED` for more than 100,000 objects or a listing of more than 64 MiB.
 *
 * @example
 * ```ts
 * import { fetchBucket } from 'fulmar/fetch'
 * import assert from 'node:assert/strict'
 *
 * const fetching = fetchBucket('gs://some-bucket/dqn/', { include: ['*.gz'], root: '/nowhere', offline: true })
 * await assert.rejects(fetching, { code: 'UNAVAILABLE' }) // it is not there; leave `offline` out to fetch it
 * ```
 */
export async function fetchBucket(url: string, options: FetchBucketOptions = {}): Promise<string> {
  checkKnownKeys('options', options, [...WEB_KEYS, 'include', 'parallel'])
  if (typeof url !== 'string')
    throw new FulmarError('MALFORMED', `url must be a text: got ${describeValue(url)}`)
  const { include = ['*'] } = options
  checkList('options.include', include)
  const place = parseGs(url)
  const endpoint = checkBucketEndpoint(options.endpoint)
  const root = cacheRoot(options.root)
  if (options.offline) throw notHeld(`the listing of ${url}`, root)
  return await withTransfer(options, async (transfer, slots) => {
    const objects = await objectsIn(transfer, endpoint, place)
    const wanted = objects.filter(({ name }) => include.some((pattern) => matchesPattern(name, pattern)))
    const tally = new Tally(url, options.onProgress)
    for (const { remote } of wanted) tally.expect(remote.label, remote.sizeBytes)
    await together(transfer, slots, wanted, async ({ name, remote }, bounded) => {
      const path = pathOfObject(root, place.bucket, name, 'CORRUPT')
      await fetchTo(path, remote, bounded, options, tally)
    })
    tally.end()
    return join(root, 'gs', place.bucket)
  })
}

/** The path of a URL's file, and how to learn where it is. */
interface WebPlace {
  readonly path: string
  readonly label: string
  readonly find: (transfer: Transfer) => Promise<RemoteFile>
}

function placeOf(url: string, options: WebOptions): WebPlace {
  const root = cacheRoot(options.root)
  if (!url.startsWith('gs:')) {
    const parsed = checkUrl('url', url)
    const label = shownUrl(url)
    return { path: pathOfUrl(root, parsed), label, find: async () => ({ label, url: parsed.href }) }
  }
  const place = parseGs(url)
  const endpoint = checkBucketEndpoint(options.endpoint)
  const path = pathOfObject(root, place.bucket, place.object, 'MALFORMED')
  const find = async (transfer: Transfer) => (await objectOf(transfer, endpoint, place)).remote
  return { path, label: url, find }
}

async function isHeld(path: string, label: string, { force, offline }: WebOptions): Promise<boolean> {
  if ((!force || offline) && (await isThere(path))) return true
  if (offline) throw notHeld(label, path)
  return false
}

async function fetchTo(
  path: string,
  remote: RemoteFile,
  transfer: Transfer,
  { force = false, isTemporary = false }: WebOptions & { readonly isTemporary?: boolean },
  tally: Tally,
): Promise<void> {
  const { label } = remote
  const onBytes = (bytes: number, sizeBytes: number | undefined) => tally.update(label, bytes, sizeBytes)
  await downloadFile(remote, { transfer, path, lockPath: `${path}.lock`, force, isTemporary, onBytes })
  if (remote.sizeBytes !== undefined) tally.update(label, remote.sizeBytes)
}

function notHeld(label: string, path: string): FulmarError {
  return new FulmarError('UNAVAILABLE', `${label} must be in ${path}, as offline is set: it is not there`)
}
