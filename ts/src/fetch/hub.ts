/** The protocol of the Hugging Face hub: revisions, listings, and where a file is. */

import { describeValue, FulmarError } from '../core/index.js'
import type { Checksum } from './checksum.js'
import type { RemoteFile } from './download.js'
import { nameParts } from './file-name.js'
import { isCommit } from './hub-cache.js'
import { readJson } from './json-answer.js'
import {
  type Answer,
  checkUrl,
  exchange,
  locationOf,
  retrying,
  type Transfer,
  unexpected,
} from './transfer.js'

/** Kind of a repository of the hub. */
export type RepoKind = 'model' | 'dataset'

/** A repository at a revision; all fields were checked by {@link checkRepo}. */
export interface HubRepo {
  readonly kind: RepoKind
  /** `owner/name`, or `name` for the oldest. */
  readonly name: string
  readonly revision: string
  /** The hub, without a slash at its end. */
  readonly endpoint: string
  readonly token: string | undefined
}

/** A file of a listing. */
export interface HubFile {
  readonly name: string
  readonly sizeBytes: number
}

/** Address of a file, and its checksum. */
export interface HubLocation {
  readonly commit: string
  /** Name of the blob: the SHA-256 of a large file, the git blob id of a small one. */
  readonly etag: string
  readonly remote: RemoteFile
}

/** Most files of a repository. */
const HUB_FILES_MAX = 100_000

/** Most pages of a listing. */
const HUB_PAGES_MAX = 1_000

/** Most bytes of a listing. */
const HUB_LISTING_BYTES_MAX = 64 * 1024 * 1024

const REPO_LENGTH_MAX = 193

/**
 * Checks the parts of a repository before any byte is asked for.
 * @throws {FulmarError} `MALFORMED` for a name, a revision, an endpoint or a token that cannot be one.
 */
export function checkRepo(repo: HubRepo): HubRepo {
  const { kind, name, revision, endpoint, token } = repo
  if (kind !== 'model' && kind !== 'dataset')
    throw new FulmarError(
      'UNKNOWN_NAME',
      `options.kind must be 'model' or 'dataset': got ${JSON.stringify(kind)}`,
    )
  if (!isRepoName(name)) {
    throw new FulmarError(
      'MALFORMED',
      `name must be a repository such as owner/name: got ${describeValue(name)}`,
    )
  }
  nameParts('options.revision', revision, 'MALFORMED')
  const { href } = checkUrl('options.endpoint', endpoint)
  if (token !== undefined && (typeof token !== 'string' || !/^[\x21-\x7e]+$/.test(token)))
    throw new FulmarError('MALFORMED', 'options.token must be printable ASCII: got other characters')
  return { ...repo, endpoint: href.replace(/\/+$/, '') }
}

/** Returns true for the name of a repository. */
export function isRepoName(name: unknown): name is string {
  if (typeof name !== 'string' || name.length > REPO_LENGTH_MAX || /--|\.\./.test(name)) return false
  return /^[\w][\w.-]*(?:\/[\w][\w.-]*)?$/.test(name)
}

/** For messages: `owner/name@main`, with the file if there is one. */
export function shownRepo({ name, revision }: HubRepo, file?: string): string {
  return file === undefined ? `${name}@${revision}` : `${name}@${revision}: ${file}`
}

/** Asks for the commit of the revision. @throws {FulmarError} As {@link refusal}; `CORRUPT` for an answer without one. */
export async function commitOf(transfer: Transfer, repo: HubRepo): Promise<string> {
  const url = `${apiOf(repo)}/revision/${encodeURIComponent(repo.revision)}`
  const { value } = await readJson(transfer, {
    ...{ url, token: repo.token, label: shownRepo(repo), bytesMax: HUB_LISTING_BYTES_MAX },
    refusal: (answer) => refusal(answer, repo),
  })
  const sha = typeof value === 'object' && value !== null && 'sha' in value ? value.sha : undefined
  if (typeof sha === 'string' && isCommit(sha)) return sha
  throw new FulmarError('CORRUPT', `${shownRepo(repo)} must have a commit: got ${JSON.stringify(sha)}`)
}

/**
 * Asks for the files of a commit, page by page.
 * @throws {FulmarError} `LIMIT_EXCEEDED` for more than 100,000 files, 1,000 pages or 64 MiB; `CORRUPT` for a name that is not
 * below the folder or an invalid entry; as {@link refusal}.
 */
export async function filesOf(
  transfer: Transfer,
  repo: HubRepo,
  commit: string,
): Promise<readonly HubFile[]> {
  const files = new Map<string, HubFile>()
  const url = `${apiOf(repo)}/tree/${commit}?recursive=true&expand=false`
  const label = `the listing of ${shownRepo(repo)}`
  const listing = { url, label, token: repo.token, refusal: (answer: Answer) => refusal(answer, repo) }
  for await (const entry of entriesOf(transfer, listing)) {
    const file = fileOf(entry, repo)
    if (file !== undefined) files.set(file.name, file)
    if (files.size > HUB_FILES_MAX) throw tooMuch(label, `${HUB_FILES_MAX} files`)
  }
  return [...files.values()]
}

/**
 * Asks for the names of the repositories of an owner, in order.
 * @throws {FulmarError} `LIMIT_EXCEEDED` for more than 100,000, 1,000 pages or 64 MiB; `CORRUPT` for an entry that is no repository of the
 * owner; that of a status without a listing.
 */
export async function reposOf(
  transfer: Transfer,
  { kind, endpoint, token }: Pick<HubRepo, 'kind' | 'endpoint' | 'token'>,
  owner: string,
): Promise<readonly string[]> {
  const names = new Set<string>()
  const label = `the ${kind}s of ${owner}`
  const url = `${endpoint}/api/${kind}s?author=${encodeURIComponent(owner)}`
  for await (const entry of entriesOf(transfer, { url, label, token })) {
    const { id } = Object(entry)
    if (!isRepoName(id) || !id.startsWith(`${owner}/`))
      throw new FulmarError('CORRUPT', `an entry of ${label} must be one of them: got ${describeValue(id)}`)
    names.add(id)
    if (names.size > HUB_FILES_MAX) throw tooMuch(label, `${HUB_FILES_MAX} names`)
  }
  return [...names].sort()
}

/** A listing in pages. */
interface Listing {
  readonly url: string
  readonly label: string
  readonly token: string | undefined
  /** The error of a status of 400 to 499. @default one that names the status */
  readonly refusal?: (answer: Answer) => FulmarError
}

/** Yields the entries of a listing, page by page. */
async function* entriesOf(
  transfer: Transfer,
  { url: first, label, token, refusal: refused }: Listing,
): AsyncGenerator<unknown, void, undefined> {
  let next: string | undefined = first
  let bytesLeft = HUB_LISTING_BYTES_MAX
  for (let numPages = 0; next !== undefined; numPages++) {
    if (numPages === HUB_PAGES_MAX) throw tooMuch(label, `${HUB_PAGES_MAX} pages`)
    const url: string = next
    const request = { url, token, label, bytesMax: bytesLeft, ...(refused && { refusal: refused }) }
    const { value, numBytes, header } = await readJson(transfer, request)
    bytesLeft -= numBytes
    if (!Array.isArray(value))
      throw new FulmarError('CORRUPT', `${label} must be a list: got ${describeValue(value)}`)
    yield* value
    next = nextPage(header('link'), url)
  }
}

function fileOf(entry: unknown, repo: HubRepo): HubFile | undefined {
  const { type, path, size, lfs } = Object(entry)
  if (type === 'directory') return undefined
  const sizeBytes = lfs?.size ?? size
  const label = `an entry of ${shownRepo(repo)}`
  if (type !== 'file')
    throw new FulmarError('CORRUPT', `${label} must be a file or a directory: got ${describeValue(type)}`)
  if (!Number.isSafeInteger(sizeBytes) || sizeBytes < 0)
    throw new FulmarError('CORRUPT', `${label} must have a size in bytes: got ${describeValue(sizeBytes)}`)
  nameParts(label, path, 'CORRUPT')
  return { name: path, sizeBytes }
}

function tooMuch(label: string, most: string): FulmarError {
  return new FulmarError('LIMIT_EXCEEDED', `${label} must have at most ${most}: it has more`)
}

/** The URL of the header `link` with the relation `next`. @throws {FulmarError} `FORBIDDEN` for another host, which the token is not for. */
function nextPage(link: string | null, url: string): string | undefined {
  const [, target] = /<([^>]*)>\s*;\s*rel="?next"?/.exec(link ?? '') ?? []
  if (target === undefined) return undefined
  const next = URL.canParse(target, url) ? new URL(target, url) : undefined
  if (next?.origin === new URL(url).origin) return next.href
  throw new FulmarError(
    'FORBIDDEN',
    `the next page must be on ${new URL(url).origin}: got ${next?.origin ?? 'no URL'}`,
  )
}

/**
 * Asks where a file is. `onAbsent` is called with the commit that lacks it.
 * @throws {FulmarError} As {@link refusal}; `CORRUPT` for an answer without a commit, a checksum or a size.
 */
export async function locate(
  transfer: Transfer,
  repo: HubRepo,
  file: string,
  onAbsent?: (commit: string) => Promise<void>,
): Promise<HubLocation> {
  const url = resolveUrl(repo, file)
  const label = shownRepo(repo, file)
  return await retrying(transfer, () => {
    const isResult = ({ header }: { readonly header: Answer['header'] }) => header('x-linked-etag') !== null
    return exchange(transfer, { method: 'HEAD', url, token: repo.token, isResult }, async (answer) => {
      const { status, header } = answer
      const commit = header('x-repo-commit') ?? ''
      if (status === 404 && header('x-error-code') === 'EntryNotFound' && isCommit(commit))
        await onAbsent?.(commit)
      if (status >= 400) throw refusal(answer, repo, file)
      if (isCommit(repo.revision) && commit !== repo.revision)
        throw new FulmarError(
          'CORRUPT',
          `${label} must be of that commit: got ${JSON.stringify(commit.slice(0, 80))}`,
        )
      const etag = (header('x-linked-etag') ?? header('etag') ?? '').replace(/^W\//, '').replaceAll('"', '')
      const size = header('x-linked-size') ?? header('content-length') ?? ''
      const checksum = checksumOf(etag)
      if (!isCommit(commit) || checksum === undefined || !/^\d{1,15}$/.test(size)) {
        const detail = `${label} must come with a commit, a checksum and a size: got ${JSON.stringify({ commit, etag, size }).slice(0, 300)}`
        throw new FulmarError('CORRUPT', detail)
      }
      const isElsewhere = status >= 300
      const target = isElsewhere ? locationOf(answer) : url
      const isOwn = new URL(target).origin === new URL(repo.endpoint).origin
      return {
        ...{ commit, etag },
        remote: {
          ...{ label, url: target, sizeBytes: Number(size), checksum },
          // The token belongs to the hub alone; signed URLs end.
          ...(isOwn && { token: repo.token }),
          ...(isElsewhere && { renew: async () => (await locate(transfer, repo, file)).remote.url }),
          refusal: (got: Answer) => refusal(got, repo, file),
        },
      }
    })
  })
}

function checksumOf(etag: string): Checksum | undefined {
  if (/^[0-9a-f]{64}$/.test(etag)) return { algorithm: 'sha256', hex: etag }
  return /^[0-9a-f]{40}$/.test(etag) ? { algorithm: 'git', hex: etag } : undefined
}

/** Returns the error of a status without a file: a missing token, or an unknown repository. */
function refusal(answer: Answer, repo: HubRepo, file?: string): FulmarError {
  const { status, header } = answer
  const { endpoint, name, token, kind } = repo
  const what = shownRepo(repo, file)
  const errorCode = header('x-error-code') ?? ''
  if (status === 401 || status === 403) {
    const page = `${endpoint}/${kind === 'dataset' ? 'datasets/' : ''}${name}`
    const isGated = errorCode === 'GatedRepo' || status === 403
    const accept = isGated ? `; accept its terms at ${page}` : ''
    const given = token === undefined ? 'there is none' : 'the token that was sent has no access'
    const how = `make one at ${endpoint}/settings/tokens and give it as HF_TOKEN or options.token${accept}`
    return new FulmarError(
      'FORBIDDEN',
      `${what} must be asked for with a token: ${given} (status ${status}); ${how}`,
    )
  }
  if (status === 404 || status === 410) {
    const missing =
      errorCode === 'RepoNotFound'
        ? `no ${kind} ${name}`
        : errorCode === 'RevisionNotFound'
          ? `no revision ${repo.revision}`
          : file === undefined
            ? 'no such repository or revision'
            : `no file ${file}`
    return new FulmarError('IO', `${what} must be on ${endpoint}: there is ${missing} (status ${status})`)
  }
  return unexpected(answer)
}

function apiOf({ endpoint, kind, name }: HubRepo): string {
  return `${endpoint}/api/${kind}s/${name}`
}

function resolveUrl({ endpoint, kind, name, revision }: HubRepo, file: string): string {
  const path = file.split('/').map(encodeURIComponent).join('/')
  return `${endpoint}/${kind === 'dataset' ? 'datasets/' : ''}${name}/resolve/${encodeURIComponent(revision)}/${path}`
}
