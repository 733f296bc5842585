/** Rows of a Parquet file, a group of rows at a time: the whole file is never in memory. */

import type { FileHandle } from 'node:fs/promises'
import { type AsyncBuffer, parquetMetadataAsync, parquetReadObjects } from 'hyparquet'
import { FulmarError, messageOf, openRegular, unreadable } from '../core/index.js'
import { checkRows, rowsMax, TABLE_BYTES_MAX } from './column.js'
import { checkUnpacked } from './parquet.js'
import { PARQUET_COMPRESSORS, withCheckedPages } from './parquet-pages.js'

/** Values of a row by the names of their columns. */
export type TableRow = Readonly<Record<string, unknown>>

/**
 * Yields the rows of each group of a Parquet file.
 * @throws {FulmarError} `IO` if the file cannot be opened; `CORRUPT` if it is not Parquet; `LIMIT_EXCEEDED` for a group of more than
 *   2^31 - 1 bytes when decompressed; `MALFORMED` for a group of more rows than the file can hold.
 */
export async function* parquetParts(path: string): AsyncGenerator<readonly TableRow[], void, undefined> {
  const handle = await openRegular(path)
  if (handle === undefined) throw unreadable(path)
  try {
    const { size } = await handle.stat()
    const file = bufferOf(handle, size)
    const metadata = await reading(path, () => parquetMetadataAsync(file))
    const pages = await reading(path, async () => withCheckedPages(file, metadata))
    let rowStart = 0
    for (const group of metadata.row_groups) {
      const numRows = Number(group.num_rows)
      checkRows(numRows, rowsMax(size))
      checkUnpacked({ row_groups: [group] })
      const rowEnd = rowStart + numRows
      const range = { file: pages, metadata, compressors: PARQUET_COMPRESSORS, rowStart, rowEnd }
      yield await reading(path, () => parquetReadObjects(range))
      rowStart = rowEnd
    }
  } finally {
    await handle.close()
  }
}

/** The bytes of an open file, range by range. */
function bufferOf(handle: FileHandle, byteLength: number): AsyncBuffer {
  const slice = async (start: number, end = byteLength): Promise<ArrayBuffer> => {
    const length = end - start
    if (start < 0 || length < 0 || end > byteLength || length > TABLE_BYTES_MAX)
      throw new Error(`bytes ${start} to ${end} of ${byteLength}`)
    const bytes = new Uint8Array(length)
    for (let at = 0; at < length; ) {
      const { bytesRead } = await handle.read(bytes, at, length - at, start + at)
      if (bytesRead === 0) throw new Error(`bytes that end at ${start + at}`)
      at += bytesRead
    }
    return bytes.buffer
  }
  return { byteLength, slice }
}

async function reading<T>(path: string, body: () => Promise<T>): Promise<T> {
  try {
    return await body()
  } catch (cause) {
    if (cause instanceof FulmarError) throw cause
    throw new FulmarError('CORRUPT', `${path} must be a Parquet file: got ${messageOf(cause)}`, { cause })
  }
}
