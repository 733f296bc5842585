/** A Parquet file on disk, which is read by row groups and columns. */

import {
  type AsyncBuffer,
  type FileMetaData,
  parquetMetadataAsync,
  parquetScan,
  parquetSchema,
  type SchemaTree,
} from 'hyparquet'
import { FulmarError, messageOf, openRegular, unreadable } from '../core/index.js'
import type { Dtype } from '../tensor/index.js'
import { checkCount, rowsMax, TABLE_BYTES_MAX } from './column.js'
import { leafDtype } from './parquet.js'
import { type ColumnNumbers, readNumbers } from './parquet-numbers.js'
import { PARQUET_COMPRESSORS, withCheckedPages } from './parquet-pages.js'

/** A column: what its cells hold, below how many lists. */
export interface FileColumn {
  readonly name: string
  /** `image`: encoded bytes in a group `{bytes, path}`; `json`: groups and lists of them. */
  readonly dtype: Dtype | 'text' | 'json' | 'image'
  /** Number of lists around the elements of a cell. */
  readonly depth: number
}

/** Rows that are stored together. */
export interface RowGroup {
  readonly rowStart: number
  readonly rowEnd: number
}

/** An open Parquet file. Close it. */
export class ParquetFile {
  readonly path: string
  readonly numRows: number
  readonly columns: readonly FileColumn[]
  readonly groups: readonly RowGroup[]
  readonly #metadata: FileMetaData
  readonly #buffer: AsyncBuffer
  readonly #unchecked: AsyncBuffer
  readonly #close: () => Promise<void>

  private constructor(path: string, metadata: FileMetaData, source: OpenSource) {
    const { children } = parquetSchema(metadata)
    checkCount(children.length)
    this.path = path
    this.#metadata = metadata
    this.#buffer = withCheckedPages(source.buffer, metadata)
    this.#unchecked = source.buffer
    this.#close = source.close
    this.columns = children.map(columnOf)
    this.groups = groupsOf(path, metadata, source.buffer.byteLength)
    this.numRows = this.groups.at(-1)?.rowEnd ?? 0
  }

  /**
   * Opens a file and reads its footer.
   * @throws {FulmarError} `IO` if it cannot be opened; with the path, `CORRUPT` for a footer that is damaged, `LIMIT_EXCEEDED`
   *   for more columns, rows or bytes than a table may have, `INCOMPATIBLE` for a type that neither tensors nor JSON have.
   */
  static async open(path: string): Promise<ParquetFile> {
    const source = await openSource(path)
    try {
      const metadata = await inFile(path, () => parquetMetadataAsync(source.buffer))
      return await inFile(path, async () => new ParquetFile(path, metadata, source))
    } catch (error) {
      await source.close()
      throw named(path, error)
    }
  }

  /** The cells of a column in one row group. @throws {FulmarError} `CORRUPT`, with the path. */
  async read(column: string, group: RowGroup): Promise<ArrayLike<unknown>> {
    return await inFile(this.path, async () => {
      const scan = await parquetScan({
        ...{ file: this.#buffer, metadata: this.#metadata, columns: [column], ...group },
        ...{ compressors: PARQUET_COMPRESSORS, utf8: false, useOffsetIndex: false },
      })
      const cells = await scan.readColumn({ column, ...group })
      const wanted = group.rowEnd - group.rowStart
      if (cells.length === wanted) return cells
      throw new Error(`column '${column}' must have ${wanted} rows in a row group: got ${cells.length}`)
    })
  }

  /**
   * The numbers of all cells of a column in one row group, one cell after the other. Returns nothing unless all cells have one length and no
   * null, and hold floats for `f32`, signed integers for `i64`; {@link ParquetFile.read} gives them then.
   * @throws {FulmarError} `CORRUPT`, with the path.
   */
  async readNumbers(
    { name, dtype, depth }: FileColumn,
    { rowStart, rowEnd }: RowGroup,
  ): Promise<ColumnNumbers | undefined> {
    const kind = NUMBER_KINDS[dtype]
    const group = this.groups.findIndex((one) => one.rowStart === rowStart && one.rowEnd === rowEnd)
    const columns = this.#metadata.row_groups[group]?.columns ?? []
    const [column, ...more] = columns.filter(({ meta_data: held }) => held?.path_in_schema[0] === name)
    if (kind === undefined || depth > 1 || column?.meta_data === undefined || more.length > 0)
      return undefined
    const wanted = { dtype: kind, depth, numRows: rowEnd - rowStart }
    const held = column.meta_data
    return await inFile(this.path, () => readNumbers(this.#unchecked, this.#metadata, held, wanted))
  }

  /** All rows as objects, for small tables. @throws {FulmarError} `CORRUPT`, with the path. */
  async readRows(): Promise<readonly Readonly<Record<string, unknown>>[]> {
    const rows: Record<string, unknown>[] = Array.from({ length: this.numRows }, () => ({}))
    for (const group of this.groups) {
      for (const { name } of this.columns) {
        const cells = await this.read(name, group)
        for (let at = 0; at < cells.length; at++)
          Reflect.set(rows[group.rowStart + at] ?? {}, name, cells[at])
      }
    }
    return rows
  }

  async close(): Promise<void> {
    await this.#close()
  }
}

/** The kind of array that numbers of a dtype become. */
const NUMBER_KINDS: Readonly<Partial<Record<FileColumn['dtype'], 'f32' | 'i64'>>> = {
  ...{ f32: 'f32', f64: 'f32', i32: 'i64', i64: 'i64' },
}

interface OpenSource {
  readonly buffer: AsyncBuffer
  readonly close: () => Promise<void>
}

async function openSource(path: string): Promise<OpenSource> {
  const handle = await openRegular(path)
  if (handle === undefined) throw unreadable(path)
  const { size } = await handle.stat()
  const slice = async (start: number, end: number = size): Promise<ArrayBuffer> => {
    const [from, to] = [start < 0 ? Math.max(size + start, 0) : start, Math.min(end, size)]
    const bytes = new Uint8Array(Math.max(to - from, 0))
    const { bytesRead } = await handle.read(bytes, 0, bytes.length, from)
    if (bytesRead < bytes.length) throw new Error(`the file ends at byte ${from + bytesRead}`)
    return bytes.buffer
  }
  return { buffer: { byteLength: size, slice }, close: () => handle.close() }
}

/** Gives errors of the reader the path. */
async function inFile<T>(path: string, body: () => Promise<T>): Promise<T> {
  try {
    return await body()
  } catch (cause) {
    if (cause instanceof FulmarError) throw cause
    throw new FulmarError('CORRUPT', `${path} must be a Parquet file: got ${messageOf(cause)}`, { cause })
  }
}

function named(path: string, error: unknown): unknown {
  if (!(error instanceof FulmarError) || error.message.includes(path)) return error
  return new FulmarError(error.code, `${path}: ${error.message}`, { cause: error })
}

/** Checks the numbers of the footer, which may claim anything. */
function groupsOf(path: string, metadata: FileMetaData, sizeBytes: number): readonly RowGroup[] {
  const most = rowsMax(sizeBytes)
  let rowStart = 0
  const groups = metadata.row_groups.map(({ num_rows: numRows, columns }) => {
    const rowEnd = rowStart + Number(numRows)
    if (!(Number(numRows) >= 0) || rowEnd > most) {
      const detail = `${path} must have at most ${most} rows at its length: got ${rowEnd}`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
    const unpacked = columns.reduce(
      (sum, { meta_data: held }) => sum + Number(held?.total_uncompressed_size ?? 0),
      0,
    )
    if (!(unpacked >= 0 && unpacked <= TABLE_BYTES_MAX)) {
      const detail = `${path} must have row groups of at most ${TABLE_BYTES_MAX} bytes: got ${unpacked}`
      throw new FulmarError('LIMIT_EXCEEDED', detail)
    }
    const group = { rowStart, rowEnd }
    rowStart = rowEnd
    return group
  })
  if (rowStart === Number(metadata.num_rows)) return groups
  const detail = `${path} must have the rows of its row groups, ${rowStart}: got ${metadata.num_rows}`
  throw new FulmarError('CORRUPT', detail)
}

function columnOf(field: SchemaTree): FileColumn {
  const { name } = field.element
  if (isImage(field)) return { name, dtype: 'image', depth: 0 }
  let [node, depth] = [field, 0]
  for (let list = itemOf(node); list !== undefined; list = itemOf(node)) {
    node = list
    depth += 1
  }
  const dtype = leafDtype(name, node)
  return { name, depth, dtype: node.children.length > 0 || (depth > 0 && dtype === 'text') ? 'json' : dtype }
}

/** The items of a list, or nothing for other fields. */
function itemOf({ element, children }: SchemaTree): SchemaTree | undefined {
  const [list, ...more] = children
  if (element.converted_type !== 'LIST' || list === undefined || more.length > 0) return undefined
  if (list.element.repetition_type !== 'REPEATED') return undefined
  return list.children.length === 1 ? list.children[0] : undefined
}

function isImage({ children }: SchemaTree): boolean {
  const names = children.map(({ element }) => element.name).sort()
  const bytes = children.find(({ element }) => element.name === 'bytes')
  return names.join() === 'bytes,path' && bytes?.element.type === 'BYTE_ARRAY'
}
