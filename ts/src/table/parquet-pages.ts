/** Pages of Parquet files. Their headers are checked before `hyparquet` follows them: a header without a size is a loop without end there. */

import type { AsyncBuffer, FileMetaData } from 'hyparquet'
import { parquetHeader } from 'hyparquet/src/column.js'
import { TABLE_BYTES_MAX } from './column.js'

/** The pages of a column in a group of rows. */
interface Chunk {
  readonly start: number
  readonly end: number
  readonly numValues: number
}

/** @internal The same file, the pages of whose columns are checked as they are read. */
export function withCheckedPages(file: AsyncBuffer, metadata: FileMetaData): AsyncBuffer {
  const chunks = chunksOf(metadata)
  const slice = async (start: number, end = file.byteLength): Promise<ArrayBuffer> => {
    const bytes = await file.slice(start, end)
    for (let at = firstFrom(chunks, start); at < chunks.length; at++) {
      const chunk = chunks[at] as Chunk
      if (chunk.start >= end) break
      if (chunk.end <= end)
        checkPages(new DataView(bytes, chunk.start - start, chunk.end - chunk.start), chunk.numValues)
    }
    return bytes
  }
  return { byteLength: file.byteLength, slice }
}

/** The chunks of a file in the order of their places. */
function chunksOf({ row_groups: groups }: FileMetaData): readonly Chunk[] {
  const chunks: Chunk[] = []
  for (const { columns } of groups) {
    for (const { meta_data: column } of columns) {
      if (column === undefined) continue
      const [dictionary, data] = [Number(column.dictionary_page_offset ?? 0), Number(column.data_page_offset)]
      const start = dictionary > 0 && dictionary < data ? dictionary : data
      const end = start + Number(column.total_compressed_size)
      chunks.push({ start, end, numValues: Number(column.num_values) })
    }
  }
  return chunks.sort((a, b) => a.start - b.start)
}

/** The position of the first chunk from `start` on. */
function firstFrom(chunks: readonly Chunk[], start: number): number {
  let [low, high] = [0, chunks.length]
  while (low < high) {
    const middle = (low + high) >>> 1
    if ((chunks[middle] as Chunk).start < start) low = middle + 1
    else high = middle
  }
  return low
}

function checkPages(view: DataView<ArrayBuffer>, numValues: number): void {
  const reader = { view, offset: 0 }
  for (let left = numValues; left > 0 && reader.offset < view.byteLength - 1; ) {
    const header = parquetHeader(reader)
    const sizeBytes = header.compressed_page_size
    checkWhole('compressed_page_size', sizeBytes, view.byteLength - reader.offset)
    checkWhole('uncompressed_page_size', header.uncompressed_page_size, TABLE_BYTES_MAX)
    if (header.type === 'DICTIONARY_PAGE') {
      // A value takes a bit at least.
      checkWhole('num_values', header.dictionary_page_header?.num_values, 8 * header.uncompressed_page_size)
    } else {
      const { num_values: count } = header.data_page_header ?? header.data_page_header_v2 ?? {}
      checkWhole('num_values', count, left)
      left -= count ?? 0
    }
    reader.offset += sizeBytes
  }
}

function checkWhole(name: string, value: number | undefined, most: number): void {
  if (value !== undefined && Number.isSafeInteger(value) && value >= 0 && value <= most) return
  throw new Error(`a page whose ${name} must be from 0 to ${most}: it is ${value}`)
}
