/**
 * Pages of Parquet files. Their headers and runs are checked before `hyparquet` follows them: there a header without a size is a loop without
 * end, and a run may fill all memory.
 */

import type { AsyncBuffer, ColumnMetaData, Compressors, FileMetaData, PageHeader } from 'hyparquet'
import { parquetHeader } from 'hyparquet/src/column.js'
import { decompressPage } from 'hyparquet/src/datapage.js'
import { getMaxDefinitionLevel, getMaxRepetitionLevel, getSchemaPath } from 'hyparquet/src/schema.js'
import { compressors, decompressZstd } from 'hyparquet-compressors'
import { FulmarError } from '../core/index.js'
import { rowsMax, TABLE_BYTES_MAX } from './column.js'
import { checkLevels, checkRuns, checkValues, type PageRuns } from './parquet-runs.js'

/** @internal The pages of a column in a group of rows. */
export interface Chunk {
  readonly start: number
  readonly end: number
  readonly numValues: number
  readonly column: ColumnMetaData
  /** Bits of a repetition level and of a definition level. */
  readonly levelBits: readonly number[]
}

/** @internal Codecs, none of which gives more bytes than the header of a page. */
export const PARQUET_COMPRESSORS: Compressors = {
  ...compressors,
  ZSTD: (input, sizeBytes) => decompressZstd(input, new Uint8Array(sizeBytes)),
}

/**
 * @internal The same file, the pages of whose columns are checked as they are read.
 * @throws {FulmarError} `LIMIT_EXCEEDED` for a column with more values in a group of rows than a file of this size may hold.
 */
export function withCheckedPages(file: AsyncBuffer, metadata: FileMetaData): AsyncBuffer {
  const chunks = chunksOf(metadata)
  for (const chunk of chunks) checkLength(chunk, rowsMax(file.byteLength))
  const slice = async (start: number, end = file.byteLength): Promise<ArrayBuffer> => {
    const bytes = await file.slice(start, end)
    for (let at = firstFrom(chunks, start); at < chunks.length; at++) {
      const chunk = chunks[at] as Chunk
      if (chunk.start >= end) break
      if (chunk.end <= end)
        checkPages(new DataView(bytes, chunk.start - start, chunk.end - chunk.start), chunk)
    }
    return bytes
  }
  return { byteLength: file.byteLength, slice }
}

/** The chunks of a file in the order of their places. */
function chunksOf({ row_groups: groups, schema }: FileMetaData): readonly Chunk[] {
  const columns = groups.flatMap((group) => group.columns.flatMap(({ meta_data: column }) => column ?? []))
  return columns.map((column) => chunkOf(column, schema)).sort((a, b) => a.start - b.start)
}

/** @internal Returns the place of a column's pages, and how their levels are packed. */
export function chunkOf(column: ColumnMetaData, schema: FileMetaData['schema']): Chunk {
  const [dictionary, data] = [Number(column.dictionary_page_offset ?? 0), Number(column.data_page_offset)]
  const start = dictionary > 0 && dictionary < data ? dictionary : data
  const end = start + Number(column.total_compressed_size)
  const path = getSchemaPath(schema, column.path_in_schema)
  const levelBits = [getMaxRepetitionLevel(path), getMaxDefinitionLevel(path)].map(bitsOf)
  return { start, end, numValues: Number(column.num_values), column, levelBits }
}

function checkLength({ numValues, column }: Chunk, most: number): void {
  if (numValues >= 0 && numValues <= most) return
  const name = column.path_in_schema.join('.')
  const detail = `column '${name}' must have at most ${most} values in a group of rows: got ${numValues}`
  throw new FulmarError('LIMIT_EXCEEDED', detail)
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

const bitsOf = (most: number): number => 32 - Math.clz32(most)

function checkPages(view: DataView<ArrayBuffer>, chunk: Chunk): void {
  for (const { header, bytes } of pagesOf(view, chunk)) {
    if (header.data_page_header_v2) checkSecond(bytes, header, chunk)
    else if (header.data_page_header) checkFirst(() => unpacked(bytes, header, chunk), header, chunk)
  }
}

/**
 * @internal Yields the pages of a chunk, whose headers are checked.
 * @throws {Error} for a header whose numbers do not fit the chunk.
 */
export function* pagesOf(
  view: DataView<ArrayBuffer>,
  chunk: Chunk,
): Generator<{ readonly header: PageHeader; readonly bytes: Uint8Array }> {
  const reader = { view, offset: 0 }
  for (let left = chunk.numValues; left > 0 && reader.offset < view.byteLength - 1; ) {
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
    yield { header, bytes: new Uint8Array(view.buffer, view.byteOffset + reader.offset, sizeBytes) }
    reader.offset += sizeBytes
  }
}

/**
 * @internal Follows the runs of a data page of the first version, if there are some: then `unpack` gives its bytes.
 * @throws {Error} for runs of more values than the page has.
 */
export function checkFirst(
  unpack: () => Uint8Array,
  { data_page_header: page }: PageHeader,
  { column, levelBits }: Chunk,
): void {
  const values = runsOf(page?.encoding, column)
  if (values === 'plain' && levelBits.every((bits) => bits === 0)) return
  checkRuns(unpack(), { numValues: page?.num_values ?? 0, levelBits, values })
}

/** @internal Does the same for a page of the second version, whose levels are never compressed. */
export function checkSecond(bytes: Uint8Array, header: PageHeader, chunk: Chunk): void {
  const { data_page_header_v2: page, uncompressed_page_size: sizeBytes } = header
  if (page === undefined) return
  const { num_values: numValues, repetition_levels_byte_length: repetition } = page
  const { definition_levels_byte_length: definition } = page
  checkWhole('repetition_levels_byte_length', repetition, bytes.length)
  checkWhole('definition_levels_byte_length', definition, bytes.length - repetition)
  checkWhole('num_nulls', page.num_nulls, numValues)
  const [begin, end] = [repetition, repetition + definition]
  for (const [at, levels] of [bytes.subarray(0, begin), bytes.subarray(begin, end)].entries())
    if (chunk.levelBits[at]) checkLevels(levels, numValues, chunk.levelBits[at])
  const values = runsOf(page.encoding, chunk.column)
  if (values === 'plain') return
  const rest = bytes.subarray(end)
  const held = { ...header, uncompressed_page_size: sizeBytes - end }
  checkValues(page.is_compressed === false ? rest : unpacked(rest, held, chunk), numValues, values)
}

function runsOf(encoding: string | undefined, { type }: ColumnMetaData): PageRuns['values'] {
  if (encoding === 'PLAIN_DICTIONARY' || encoding === 'RLE_DICTIONARY') return 'dictionary'
  if (encoding !== 'RLE') return 'plain'
  return type === 'BOOLEAN' ? 'truths' : 'dictionary'
}

/** @internal The bytes of a page; those of a codec that is not there are refused. */
export function unpacked(
  bytes: Uint8Array,
  { uncompressed_page_size: sizeBytes }: PageHeader,
  { column: { codec } }: Chunk,
): Uint8Array {
  return decompressPage(bytes, sizeBytes, codec, PARQUET_COMPRESSORS)
}

function checkWhole(name: string, value: number | undefined, most: number): void {
  if (value !== undefined && Number.isSafeInteger(value) && value >= 0 && value <= most) return
  throw new Error(`a page whose ${name} must be from 0 to ${most}: it is ${value}`)
}
