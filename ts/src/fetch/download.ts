/** One file from a URL to its name: by parts that are resumed, checked before it has the name, under a lock. */

import { stat } from 'node:fs/promises'
import { FulmarError } from '../core/index.js'
import { type Checksum, checksumOf } from './checksum.js'
import { withFileLock } from './file-lock.js'
import { PartFile, type WriteAt } from './part-file.js'
import { type Answer, exchange, Passing, retrying, type Transfer, unexpected } from './transfer.js'

/** Most bytes of a file. */
const FILE_BYTES_MAX = 2 ** 40

/** A file on a server. */
export interface RemoteFile {
  /** For messages, such as `owner/name@main: config.json`. */
  readonly label: string
  readonly url: string
  readonly token?: string | undefined
  /** @default that of the answer */
  readonly sizeBytes?: number | undefined
  readonly checksum?: Checksum | undefined
  /** A new URL for one that the server refuses: signed ones end. */
  readonly renew?: (() => Promise<string>) | undefined
  /** The error of a status of 400 to 499. @default one that names the status */
  readonly refusal?: ((answer: Answer) => FulmarError) | undefined
}

/** Place and manner of {@link downloadFile}. */
export interface DownloadOptions {
  readonly transfer: Transfer
  /** The name of the file once it is whole. */
  readonly path: string
  readonly lockPath: string
  /** Fetches a file that is there once more. */
  readonly force: boolean
  /** Called with the bytes that are there, and the size once it is known. */
  readonly onBytes: (bytes: number, sizeBytes: number | undefined) => void
  /** The caller removes the file soon: it is not synced. @default false */
  readonly isTemporary?: boolean
  /** @default the system's */
  readonly writeAt?: WriteAt
}

/**
 * Fetches a file unless it is there. Several processes may ask for the same file: one fetches, the others wait.
 * @throws {FulmarError} `CORRUPT` if the bytes are not those of the checksum or the size; `IO`, `TIMEOUT` if they do not
 * come; `FORBIDDEN`, `LIMIT_EXCEEDED` as `exchange`; `ABORTED` if the signal fires. What was fetched is resumed by the next call.
 */
export async function downloadFile(file: RemoteFile, options: DownloadOptions): Promise<void> {
  const { transfer, path, lockPath, force, isTemporary = false } = options
  if (!force && (await isThere(path))) return
  await withFileLock(lockPath, transfer, async () => {
    if (!force && (await isThere(path))) return
    const part = await PartFile.open(path, options.writeAt)
    try {
      await fill(part, file, options)
      if (!(await isRight(part, file))) {
        const isRepeated = part.isResumed
        if (isRepeated) {
          await part.restart(undefined)
          await fill(part, file, options)
        }
        if (!isRepeated || !(await isRight(part, file))) throw await mismatch(part, file)
      }
      await part.finish(path, isTemporary)
    } finally {
      await part.close()
    }
  })
}

/** Returns true for a file. */
export async function isThere(path: string): Promise<boolean> {
  return await stat(path).then(
    (about) => about.isFile(),
    () => false,
  )
}

/** Fetches what the part lacks. */
async function fill(part: PartFile, file: RemoteFile, options: DownloadOptions): Promise<void> {
  let { url } = file
  checkSize(file, file.sizeBytes)
  if (file.sizeBytes !== undefined && part.length > file.sizeBytes) await part.restart(undefined)
  await retrying(options.transfer, async () => {
    if (isFull(part, file)) return options.onBytes(part.length, file.sizeBytes)
    const headers = await rangeOf(part, file)
    const request = { method: 'GET', url, headers, token: file.token } as const
    await exchange(options.transfer, request, async (answer) => {
      if (answer.status === 403 && file.renew !== undefined) {
        url = await file.renew()
        throw new Passing(refused(file, answer))
      }
      await take(answer, part, file, options.onBytes)
    })
  })
}

/** A part of the whole length needs no question if its checksum will show that it is the file. */
function isFull({ length }: PartFile, { sizeBytes, checksum }: RemoteFile): boolean {
  return checksum !== undefined && length > 0 && length === sizeBytes
}

/** The headers that ask for the rest; without a way to see that it is of the same version, the part begins anew. */
async function rangeOf(part: PartFile, file: RemoteFile): Promise<Record<string, string>> {
  if (part.length === 0) return {}
  const { validator, length } = part
  if (validator === undefined && file.checksum === undefined) {
    await part.restart(undefined)
    return {}
  }
  return { range: `bytes=${length}-`, ...(validator !== undefined && { 'if-range': validator }) }
}

async function take(
  answer: Answer,
  part: PartFile,
  file: RemoteFile,
  onBytes: DownloadOptions['onBytes'],
): Promise<void> {
  if (answer.status === 416 && part.length > 0) return await takeNothing(answer, part, file)
  if (answer.status !== 200 && answer.status !== 206) throw refused(file, answer)
  checkEncoding(answer, file)
  const validator = validatorOf(answer)
  const range = answer.status === 206 ? rangeIn(answer) : undefined
  const isNext = range?.start === part.length && (part.validator ?? validator) === validator
  if (range !== undefined && !isNext) {
    await part.restart(undefined)
    throw new Passing(
      new FulmarError('CORRUPT', `${file.label} must not change while it is fetched: it did`),
      0,
    )
  }
  if (range === undefined) await part.restart(validator)
  const sizeBytes = range === undefined ? lengthOf(answer) : range.sizeBytes
  checkSize(file, sizeBytes)
  const size = file.sizeBytes ?? sizeBytes
  onBytes(part.length, size)
  for await (const bytes of answer.body) {
    if (part.length + bytes.byteLength > (size ?? FILE_BYTES_MAX)) throw tooLong(file, size)
    await part.append(bytes)
    onBytes(part.length, size)
  }
  if (size !== undefined && part.length < size) {
    const detail = `${file.label} must have ${size} bytes: got ${part.length} before the connection closed`
    throw new Passing(new FulmarError('IO', detail))
  }
}

/** Range not satisfiable: the part is whole, or longer than the file. */
async function takeNothing({ header }: Answer, part: PartFile, file: RemoteFile): Promise<void> {
  const [, size] = /^bytes \*\/(\d{1,15})$/.exec(header('content-range') ?? '') ?? []
  if (Number(size) === part.length && (file.sizeBytes ?? part.length) === part.length) return
  const { length } = part
  await part.restart(undefined)
  const detail = `${file.label} must be longer than its part: the part has ${length} bytes`
  throw new Passing(new FulmarError('CORRUPT', detail), 0)
}

function refused(file: RemoteFile, answer: Answer): FulmarError {
  return file.refusal?.(answer) ?? unexpected(answer)
}

/** @throws {FulmarError} `LIMIT_EXCEEDED`, or `CORRUPT` if it is not the size that the file has. */
function checkSize(file: RemoteFile, sizeBytes: number | undefined): void {
  if (sizeBytes === undefined) return
  if (sizeBytes > FILE_BYTES_MAX) throw tooLong(file, undefined)
  if (file.sizeBytes !== undefined && sizeBytes !== file.sizeBytes) {
    const detail = `${file.label} must have ${file.sizeBytes} bytes: the server has ${sizeBytes}`
    throw new FulmarError('CORRUPT', detail)
  }
}

function tooLong({ label }: RemoteFile, sizeBytes: number | undefined): FulmarError {
  if (sizeBytes !== undefined)
    return new FulmarError('CORRUPT', `${label} must have ${sizeBytes} bytes: the server sent more`)
  return new FulmarError('LIMIT_EXCEEDED', `${label} must have at most ${FILE_BYTES_MAX} bytes: it has more`)
}

function checkEncoding({ header }: Answer, { label }: RemoteFile): void {
  const encoding = header('content-encoding') ?? 'identity'
  if (encoding !== 'identity' && encoding !== '')
    throw new FulmarError(
      'CORRUPT',
      `${label} must come as it is: got content-encoding ${encoding.slice(0, 40)}`,
    )
}

/** A validator that a range may depend on: a weak one says nothing of bytes. */
function validatorOf({ header }: Answer): string | undefined {
  const etag = header('etag')
  if (etag !== null && !etag.startsWith('W/')) return etag
  return header('last-modified') ?? undefined
}

function lengthOf({ header }: Answer): number | undefined {
  const length = header('content-length')
  return length !== null && /^\d{1,15}$/.test(length) ? Number(length) : undefined
}

function rangeIn({ header }: Answer): { readonly start: number; readonly sizeBytes: number | undefined } {
  const [, start, size] =
    /^bytes (\d{1,15})-\d{1,15}\/(\d{1,15}|\*)$/.exec(header('content-range') ?? '') ?? []
  return {
    start: Number(start ?? -1),
    sizeBytes: size === undefined || size === '*' ? undefined : Number(size),
  }
}

async function isRight(part: PartFile, { checksum }: RemoteFile): Promise<boolean> {
  return checksum === undefined || (await checksumOf(part.path, checksum.algorithm)) === checksum.hex
}

/** Removes the part, and returns the error with both sums. */
async function mismatch(part: PartFile, { label, checksum }: RemoteFile): Promise<FulmarError> {
  const { algorithm = 'sha256', hex } = checksum ?? {}
  const found = await checksumOf(part.path, algorithm)
  await part.remove()
  return new FulmarError('CORRUPT', `${label} must have the ${algorithm} ${hex}: got ${found}`)
}
