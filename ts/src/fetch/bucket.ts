/** Public buckets of Google Cloud Storage, by their JSON API. */

import { describeValue, FulmarError } from '../core/index.js'
import type { Checksum } from './checksum.js'
import type { RemoteFile } from './download.js'
import { nameParts } from './file-name.js'
import { readJson } from './json-answer.js'
import { type Answer, checkUrl, type Transfer, unexpected } from './transfer.js'

/** A bucket and the beginning of names in it. */
export interface BucketPlace {
  readonly bucket: string
  /** The whole name of an object, or the folder that names begin with. */
  readonly object: string
}

/** An object with all that a download of it needs. */
export interface BucketObject {
  readonly name: string
  readonly remote: RemoteFile
}

/** Most objects of a listing. */
export const BUCKET_OBJECTS_MAX = 100_000

/** Most pages of a listing. */
const BUCKET_PAGES_MAX = 1_000

/** Most bytes of a listing. */
const BUCKET_LISTING_BYTES_MAX = 64 * 1024 * 1024

/** Parses `gs://BUCKET/OBJECT`. @throws {FulmarError} `MALFORMED`. */
export function parseGs(url: string): BucketPlace {
  const [, bucket, object] = /^gs:\/\/([a-z0-9][a-z0-9._-]{1,220}[a-z0-9])\/(.*)$/s.exec(url) ?? []
  if (bucket !== undefined && object !== undefined && !bucket.includes('..')) return { bucket, object }
  throw new FulmarError(
    'MALFORMED',
    `url must be gs://BUCKET/OBJECT: got ${JSON.stringify(url.slice(0, 200))}`,
  )
}

/** Asks for one object. @throws {FulmarError} `IO` for an unknown object; `FORBIDDEN` for a bucket that is not public. */
export async function objectOf(
  transfer: Transfer,
  endpoint: string,
  place: BucketPlace,
): Promise<BucketObject> {
  const label = `gs://${place.bucket}/${place.object}`
  const url = `${objectUrl(endpoint, place.bucket, place.object)}?fields=${OBJECT_FIELDS}`
  const refusal = refusalFor(label)
  const { value } = await readJson(transfer, { url, label, bytesMax: 65_536, refusal })
  return readObject(value, endpoint, place.bucket, place.object)
}

/**
 * Asks for all objects whose names begin with `place.object`, page by page.
 * @throws {FulmarError} `LIMIT_EXCEEDED` for more than 100,000 objects, 1,000 pages or 64 MiB; `CORRUPT` for an entry that is no object.
 */
export async function objectsIn(
  transfer: Transfer,
  endpoint: string,
  { bucket, object: prefix }: BucketPlace,
): Promise<readonly BucketObject[]> {
  const label = `the listing of gs://${bucket}/${prefix}`
  const base = `${apiOf(endpoint, bucket)}?prefix=${encodeURIComponent(prefix)}&fields=nextPageToken,items(${OBJECT_FIELDS})`
  const objects: BucketObject[] = []
  let bytesLeft = BUCKET_LISTING_BYTES_MAX
  let page = ''
  for (let numPages = 0; ; numPages++) {
    if (numPages === BUCKET_PAGES_MAX) throw tooMuch(label, `${BUCKET_PAGES_MAX} pages`)
    const url = base + page
    const { value, numBytes } = await readJson(transfer, {
      ...{ url, label, bytesMax: bytesLeft, refusal: refusalFor(`gs://${bucket}/${prefix}`) },
    })
    bytesLeft -= numBytes
    const { items = [], nextPageToken } = Object(value)
    if (!Array.isArray(items))
      throw new FulmarError('CORRUPT', `${label} must have a list of items: got ${describeValue(items)}`)
    // A name that ends with a slash is the mark of an empty folder.
    for (const item of items)
      if (!String(Object(item).name).endsWith('/')) objects.push(readObject(item, endpoint, bucket))
    if (objects.length > BUCKET_OBJECTS_MAX) throw tooMuch(label, `${BUCKET_OBJECTS_MAX} objects`)
    if (typeof nextPageToken !== 'string' || nextPageToken === '') return objects
    page = `&pageToken=${encodeURIComponent(nextPageToken)}`
  }
}

/** Returns the address of the API without a slash at its end. @throws {FulmarError} `MALFORMED`. */
export function checkBucketEndpoint(endpoint = 'https://storage.googleapis.com'): string {
  return checkUrl('options.endpoint', endpoint).href.replace(/\/+$/, '')
}

const OBJECT_FIELDS = 'name,size,md5Hash'

function readObject(value: unknown, endpoint: string, bucket: string, asked?: string): BucketObject {
  const { name, size, md5Hash } = Object(value)
  const label = `gs://${bucket}/${String(name).slice(0, 1024)}`
  nameParts(`an object of gs://${bucket}`, name, 'CORRUPT')
  if (asked !== undefined && asked !== name)
    throw new FulmarError(
      'CORRUPT',
      `the answer for gs://${bucket}/${asked} must be that object: got ${label}`,
    )
  if (!/^\d{1,15}$/.test(String(size)))
    throw new FulmarError('CORRUPT', `${label} must have a size in bytes: got ${describeValue(size)}`)
  const checksum = md5In(md5Hash)
  const url = `${objectUrl(endpoint, bucket, name)}?alt=media`
  return { name, remote: { label, url, sizeBytes: Number(size), checksum, refusal: refusalFor(label) } }
}

/** Objects that were composed of others have no MD5; then the size alone is checked. */
function md5In(base64: unknown): Checksum | undefined {
  if (typeof base64 !== 'string') return undefined
  const bytes = Buffer.from(base64, 'base64')
  return bytes.length === 16 ? { algorithm: 'md5', hex: bytes.toString('hex') } : undefined
}

function refusalFor(label: string): (answer: Answer) => FulmarError {
  return (answer) => {
    const { status } = answer
    if (status === 401 || status === 403)
      return new FulmarError(
        'FORBIDDEN',
        `${label} must be public: the bucket answered with status ${status}`,
      )
    if (status === 404)
      return new FulmarError('IO', `${label} must be there: there is no such object (status 404)`)
    return unexpected(answer)
  }
}

function tooMuch(label: string, most: string): FulmarError {
  return new FulmarError('LIMIT_EXCEEDED', `${label} must have at most ${most}: it has more`)
}

function apiOf(endpoint: string, bucket: string): string {
  return `${endpoint}/storage/v1/b/${bucket}/o`
}

function objectUrl(endpoint: string, bucket: string, object: string): string {
  return `${apiOf(endpoint, bucket)}/${encodeURIComponent(object)}`
}
