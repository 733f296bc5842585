/** Parquet files of steps. */

import {
  type AsyncBuffer,
  type FileMetaData,
  parquetMetadataAsync,
  parquetReadObjects,
  parquetSchema,
  type SchemaTree,
} from 'hyparquet'
import { parquetWriteBuffer, type SchemaElement } from 'hyparquet-writer'
import { checkGiven, checkKnownKeys, checkTypedArray, FulmarError } from '../core/index.js'
import type { Dtype, TensorDict } from '../tensor/index.js'
import {
  type Column,
  type ColumnForm,
  checkCount,
  checkRows,
  columnFrom,
  columnsOf,
  dictOf,
  elementsMax,
  formsOf,
  formsText,
  METADATA_KEY,
  TABLE_BYTES_MAX,
} from './column.js'
import { PARQUET_COMPRESSORS, withCheckedPages } from './parquet-pages.js'

/** Options of {@link toParquet}. */
export interface ParquetOptions {
  /** Compression of pages. @default 'snappy' */
  readonly compression?: 'snappy' | 'none'
}

/**
 * The steps of `dict` as a Parquet file, a column for each leaf, named by its key joined with dots. Tensors become
 * (nested) lists, ragged rows lists, texts strings, other JSON values their JSON; half floats are written as singles.
 * {@link fromParquet} gives the same dictionary again, other tools a table. Costs time and memory by cell: meant for
 * looking and exchange, not for living buffers.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` if the batch has not one dimension; `INCOMPATIBLE` if two keys have one name when
 *   joined by dots; `LIMIT_EXCEEDED` above 4,096 columns; `UNKNOWN_NAME` for an unknown option.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { fromParquet, toParquet } from 'fulmar/table'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from(
 *   { reward: Tensor.from([0.5, 1]), observation: Tensor.from([1, 2, 3, 4], { shape: [2, 2] }) },
 *   { batchSize: [2] },
 * )
 * const bytes = toParquet(steps)
 * assert.ok((await fromParquet(bytes)).equals(steps))
 * ```
 */
export function toParquet(dict: TensorDict, options: ParquetOptions = {}): Uint8Array {
  checkKnownKeys('options', options, ['compression'])
  checkGiven('dict', dict)
  const codec = CODECS[options.compression ?? 'snappy']
  if (codec === undefined) {
    throw new FulmarError('UNKNOWN_NAME', `compression must be snappy or none: got ${options.compression}`)
  }
  const columns = columnsOf(dict)
  const [numRows = 0] = dict.batchSize
  const schema: SchemaElement[] = [{ name: 'root', num_children: columns.length }]
  for (const column of columns) schema.push(...schemaOf(column))
  const columnData = columns.map((column) => ({ name: column.name, data: cellsOf(column, numRows) }))
  const kvMetadata = [{ key: METADATA_KEY, value: formsText(columns) }]
  return new Uint8Array(parquetWriteBuffer({ columnData, schema, codec, kvMetadata }))
}

/**
 * The dictionary of a Parquet file, its batch the rows. A file of {@link toParquet} gives the same dictionary again; in
 * others numbers and booleans become tensors `[N]`, lists of them ragged entries, strings, deeper lists, lists of strings and
 * groups JSON values, and a dot in a column's name begins a nested dictionary. Reads pages compressed with snappy, gzip,
 * brotli, zstd and lz4.
 *
 * @throws {FulmarError} `MALFORMED` if the file cannot be read, or naming column and row for a null; `INCOMPATIBLE` if a
 *   column holds something else; `OUT_OF_RANGE` for an unsigned integer from 2^63; `LIMIT_EXCEEDED` above 4,096 columns or
 *   2^31 - 1 bytes, before or after decompression.
 *
 * @example
 * ```ts
 * import { fromParquet, toParquet } from 'fulmar/table'
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const bytes = toParquet(TensorDict.from({ task: new NonTensorStack(['add']) }, { batchSize: [1] }))
 * assert.equal((await fromParquet(bytes)).index(0).value('task'), 'add')
 * ```
 */
export async function fromParquet(bytes: Uint8Array): Promise<TensorDict> {
  checkTypedArray('bytes', bytes, Uint8Array)
  const limit = elementsMax(bytes)
  const file = new Uint8Array(bytes).buffer
  const { fields, forms, rows } = await parsed(file, limit)
  checkCount(fields.length)
  const columns = fields.map((field) => {
    const { name } = field.element
    return columnFrom(
      name,
      rows.map((row) => row[name]),
      forms.get(name) ?? foreignForm(field),
      limit,
    )
  })
  return dictOf(columns, rows.length)
}

const CODECS = { snappy: 'SNAPPY', none: 'UNCOMPRESSED' } as const

async function parsed(file: ArrayBuffer, limit: number) {
  try {
    const metadata = await parquetMetadataAsync(file)
    const text = metadata.key_value_metadata?.find(({ key }) => key === METADATA_KEY)?.value
    checkRows(Number(metadata.num_rows), limit)
    checkUnpacked(metadata)
    const pages = withCheckedPages(asyncBufferOf(file), metadata)
    const rows: Record<string, unknown>[] = await parquetReadObjects({
      file: pages,
      metadata,
      compressors: PARQUET_COMPRESSORS,
    })
    return { fields: parquetSchema(metadata).children, forms: formsOf(text), rows }
  } catch (cause) {
    if (cause instanceof FulmarError) throw cause
    const detail = `bytes must be a Parquet file: got ${(cause as Error).message}`
    throw new FulmarError('MALFORMED', detail, { cause })
  }
}

function asyncBufferOf(file: ArrayBuffer): AsyncBuffer {
  return { byteLength: file.byteLength, slice: async (start, end) => file.slice(start, end) }
}

/** @internal Refuses groups of rows whose columns would take more than 2,147,483,647 bytes when decompressed. */
export function checkUnpacked({ row_groups: groups }: Pick<FileMetaData, 'row_groups'>): void {
  let total = 0
  for (const { columns } of groups) {
    for (const { meta_data: column } of columns) total += Number(column?.total_uncompressed_size ?? 0)
  }
  if (total >= 0 && total <= TABLE_BYTES_MAX) return
  const detail = `columns must take at most ${TABLE_BYTES_MAX} bytes when decompressed: got ${total}`
  throw new FulmarError('LIMIT_EXCEEDED', detail)
}

/** The element types of Parquet for each dtype. */
const TYPES: Readonly<Record<Dtype | 'text' | 'json', Partial<SchemaElement>>> = {
  f64: { type: 'DOUBLE' },
  f32: { type: 'FLOAT' },
  f16: { type: 'FLOAT' },
  bf16: { type: 'FLOAT' },
  i64: { type: 'INT64' },
  i32: { type: 'INT32' },
  i16: { type: 'INT32', converted_type: 'INT_16' },
  i8: { type: 'INT32', converted_type: 'INT_8' },
  u8: { type: 'INT32', converted_type: 'UINT_8' },
  u32: { type: 'INT32', converted_type: 'UINT_32' },
  bool: { type: 'BOOLEAN' },
  text: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
  json: { type: 'BYTE_ARRAY', converted_type: 'UTF8' },
}

/** Returns the number of lists around the elements of a column. */
const depthOf = ({ kind, shape }: Pick<ColumnForm, 'kind' | 'shape'>) =>
  shape.length + (kind === 'ragged' ? 1 : 0)

function schemaOf(column: Column): SchemaElement[] {
  const element = { ...TYPES[column.dtype], repetition_type: 'REQUIRED' } as const
  const elements: SchemaElement[] = []
  for (let level = 0; level < depthOf(column); level++) {
    const name = level === 0 ? column.name : 'element'
    elements.push({ name, repetition_type: 'REQUIRED', converted_type: 'LIST', num_children: 1 })
    elements.push({ name: 'list', repetition_type: 'REPEATED', num_children: 1 })
  }
  return [...elements, { name: elements.length > 0 ? 'element' : column.name, ...element }]
}

/** One value a row, nested like its shape. */
function cellsOf(column: Column, numRows: number): unknown[] {
  const { elements, shape, offsets } = column
  let at = 0
  const cell = (dims: readonly number[]): unknown => {
    const [length, ...inner] = dims
    if (length === undefined) return elements[at++]
    return Array.from({ length }, () => cell(inner))
  }
  const lengthOf = (row: number) => (offsets ? [(offsets[row + 1] ?? 0) - (offsets[row] ?? 0)] : [])
  return Array.from({ length: numRows }, (_, row) => cell([...lengthOf(row), ...shape]))
}

/** Returns the form of a column of a file without our metadata. */
function foreignForm(field: SchemaTree): ColumnForm {
  let [leaf, depth] = [field, 0]
  while (leaf.children.length === 1 && leaf.children[0]) {
    if (leaf.element.repetition_type === 'REPEATED') depth += 1
    leaf = leaf.children[0]
  }
  const key = field.element.name.split('.')
  const dtype = leafDtype(field.element.name, leaf)
  const isList = leaf.children.length === 0 && depth < 2 && isListOf(field, depth)
  if (isList && dtype !== 'text') return { key, dtype, kind: depth > 0 ? 'ragged' : 'dense', shape: [] }
  return { key, dtype: isList && depth === 0 ? 'text' : 'json', kind: 'each', shape: [] }
}

/** Returns true if the column is a plain value or a list of them, false for a group of one field. */
function isListOf(field: SchemaTree, depth: number): boolean {
  return depth === 0 ? field.children.length === 0 : field.element.converted_type === 'LIST'
}

/**
 * The dtype of the values of a column; of the last field, if it is a group.
 * @throws {FulmarError} `INCOMPATIBLE` if it, or any field of the group, has a type that neither tensors nor JSON have.
 */
export function leafDtype(column: string, node: SchemaTree): Dtype | 'text' {
  if (node.children.length > 0) {
    const [last = 'text'] = node.children.map((child) => leafDtype(column, child)).reverse()
    return last
  }
  const { name, type, converted_type: converted, logical_type: logical } = node.element
  const known = DTYPES.find(([of, as]) => of === type && (as === undefined || as === converted))
  const isPlain = logical === undefined || ['INTEGER', 'STRING', 'JSON'].includes(logical.type)
  if (known && isPlain) return known[2]
  const got = `${type} ${converted ?? logical?.type ?? ''} ${name}`.trim()
  const detail = `column '${column}' must hold numbers, booleans, texts, or lists and groups of them: got ${got}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

/** Type and annotation of Parquet, and the dtype that holds them; the first that fits is meant. */
const DTYPES: readonly (readonly [string, string | undefined, Dtype | 'text'])[] = [
  ['DOUBLE', undefined, 'f64'],
  ['FLOAT', undefined, 'f32'],
  ['INT32', 'INT_8', 'i8'],
  ['INT32', 'INT_16', 'i16'],
  ['INT32', 'UINT_8', 'u8'],
  ['INT32', 'UINT_32', 'u32'],
  ['INT32', 'UINT_16', 'i32'],
  ['INT32', 'INT_32', 'i32'],
  ['INT32', undefined, 'i32'],
  ['INT64', 'INT_64', 'i64'],
  ['INT64', undefined, 'i64'],
  ['BOOLEAN', undefined, 'bool'],
  ['BYTE_ARRAY', 'UTF8', 'text'],
  ['BYTE_ARRAY', 'JSON', 'text'],
]
