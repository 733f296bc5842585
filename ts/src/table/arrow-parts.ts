/** Rows of an Arrow stream or file, a batch of records at a time: the whole file is never in memory. */

import type { FileHandle } from 'node:fs/promises'
import { Message } from 'apache-arrow'
import { FulmarError, messageOf, openRegular, unreadable } from '../core/index.js'
import { arrowTable } from './arrow.js'
import { checkMessage } from './arrow-limits.js'
import { elementsMax, TABLE_BYTES_MAX } from './column.js'
import type { TableRow } from './parquet-parts.js'

/** Most bytes of the description of a message. */
const MESSAGE_BYTES_MAX = 2 ** 26

/** Beginning of a file, with its padding; a stream begins with its first message. */
const MAGIC = 'ARROW1\0\0'

/** Length of what precedes the description of a message: a mark, and the length of the description. */
const PREFIX_BYTES = 8

/**
 * Yields the rows of each batch of records. Dictionaries stay in memory.
 * @throws {FulmarError} `IO` if the file cannot be opened; `CORRUPT` if it is not Arrow or ends too early; `LIMIT_EXCEEDED` for a
 *   message of more than 2^31 - 1 bytes, or a description of more than 64 MiB.
 */
export async function* arrowParts(path: string): AsyncGenerator<readonly TableRow[], void, undefined> {
  const handle = await openRegular(path)
  if (handle === undefined) throw unreadable(path)
  try {
    const { size } = await handle.stat()
    const file = { handle, path, size }
    const head = size < MAGIC.length ? '' : new TextDecoder().decode(await bytesAt(file, 0, MAGIC.length))
    // The schema, and the dictionaries that a batch may need.
    const before: Uint8Array[] = []
    let beforeBytes = 0
    for (let at = head === MAGIC ? MAGIC.length : 0; at < size; ) {
      const message = await messageAt(file, at)
      if (message === undefined) return
      at += message.bytes.length
      if (message.isBatch) yield rowsIn(path, [...before, message.bytes])
      else {
        beforeBytes += message.bytes.length
        checkBytes(path, 'the dictionaries', beforeBytes, TABLE_BYTES_MAX)
        before.push(message.bytes)
      }
    }
    if (before.length === 0) throw corrupt(path, 'no message')
  } finally {
    await handle.close()
  }
}

interface OpenFile {
  readonly handle: FileHandle
  readonly path: string
  readonly size: number
}

/** Reads the message at a position; nothing at the mark of the end. */
async function messageAt(
  file: OpenFile,
  at: number,
): Promise<{ readonly bytes: Uint8Array; readonly isBatch: boolean } | undefined> {
  const prefix = new DataView((await bytesAt(file, at, PREFIX_BYTES)).buffer)
  const [mark, length] = [prefix.getInt32(0, true), prefix.getInt32(4, true)]
  if (mark === -1 && length === 0) return undefined
  if (mark !== -1 || length < 0) throw corrupt(file.path, `no message at byte ${at}`)
  checkBytes(file.path, 'a description', length, MESSAGE_BYTES_MAX)
  const description = await bytesAt(file, at + PREFIX_BYTES, length)
  const { bodyLength, isBatch } = described(file, description)
  checkBytes(file.path, 'a message', bodyLength, TABLE_BYTES_MAX - MESSAGE_BYTES_MAX)
  return { bytes: await bytesAt(file, at, PREFIX_BYTES + length + bodyLength), isBatch }
}

function described(
  { path, size }: OpenFile,
  description: Uint8Array,
): { readonly bodyLength: number; readonly isBatch: boolean } {
  try {
    checkMessage(description, 8 * size)
    const message = Message.decode(description)
    const { bodyLength } = message
    if (bodyLength < 0) throw new Error(`a body of ${bodyLength} bytes`)
    return { bodyLength, isBatch: message.isRecordBatch() }
  } catch (cause) {
    throw corrupt(path, messageOf(cause), cause)
  }
}

/** The rows of a stream of one batch. */
function rowsIn(path: string, messages: readonly Uint8Array[]): readonly TableRow[] {
  const total = messages.reduce((sum, { length }) => sum + length, 0)
  checkBytes(path, 'a batch with its dictionaries', total, TABLE_BYTES_MAX)
  const bytes = new Uint8Array(total)
  let at = 0
  for (const message of messages) {
    bytes.set(message, at)
    at += message.length
  }
  try {
    const table = arrowTable(bytes, elementsMax(bytes))
    const names = table.schema.fields.map(({ name }) => name)
    const columns = names.map((name, index) => [name, table.getChildAt(index)] as const)
    return Array.from({ length: table.numRows }, (_, row) =>
      Object.fromEntries(columns.map(([name, column]) => [name, column?.get(row)])),
    )
  } catch (cause) {
    throw corrupt(path, messageOf(cause), cause)
  }
}

async function bytesAt({ handle, path, size }: OpenFile, at: number, length: number): Promise<Uint8Array> {
  if (at + length > size) throw corrupt(path, `${size} bytes that end too early`)
  const bytes = new Uint8Array(length)
  for (let done = 0; done < length; ) {
    const { bytesRead } = await handle.read(bytes, done, length - done, at + done)
    if (bytesRead === 0) throw corrupt(path, `bytes that end at ${at + done}`)
    done += bytesRead
  }
  return bytes
}

function checkBytes(path: string, what: string, length: number, most: number): void {
  if (length <= most) return
  throw new FulmarError('LIMIT_EXCEEDED', `${what} of ${path} must have at most ${most} bytes: got ${length}`)
}

function corrupt(path: string, got: string, cause?: unknown): FulmarError {
  return new FulmarError('CORRUPT', `${path} must be an Arrow file or stream: got ${got}`, { cause })
}
