/** Arrow files of steps: the form that Polars, pandas and DuckDB read without a conversion. */

import {
  Bool,
  CompressionType,
  compressionRegistry,
  type Data,
  type DataType,
  Field,
  FixedSizeList,
  Float32,
  Float64,
  Int8,
  Int16,
  Int32,
  Int64,
  List,
  Message,
  makeData,
  RecordBatch,
  Schema,
  Struct,
  Table,
  DataType as Types,
  tableFromIPC,
  tableToIPC,
  Uint8,
  Uint32,
  Utf8,
  vectorFromArray,
} from 'apache-arrow'
import { checkGiven, checkTypedArray, FulmarError } from '../core/index.js'
import type { Dtype, TensorDict } from '../tensor/index.js'
import { checkFooter, checkMessage } from './arrow-limits.js'
import { boundedCodecs } from './codec.js'
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

/**
 * The steps of `dict` as an Arrow file (Feather version 2), a column for each leaf, named by its key joined with dots.
 * Tensors become fixed-size lists, ragged rows lists, texts strings, other JSON values their JSON; half floats are
 * written as singles. {@link fromArrow} gives the same dictionary again, other tools a table.
 *
 * @throws {FulmarError} `SHAPE_MISMATCH` if the batch has not one dimension; `INCOMPATIBLE` if two keys have one name when
 *   joined by dots; `LIMIT_EXCEEDED` above 4,096 columns.
 *
 * @example
 * ```ts
 * import { fromArrow, toArrow } from 'fulmar/table'
 * import { NonTensorStack, Tensor, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * const steps = TensorDict.from(
 *   { reward: Tensor.from([0.5, 1]), task: new NonTensorStack(['add', 'sort']) },
 *   { batchSize: [2] },
 * )
 * assert.ok(fromArrow(toArrow(steps)).equals(steps))
 * ```
 */
export function toArrow(dict: TensorDict): Uint8Array {
  checkGiven('dict', dict)
  const columns = columnsOf(dict)
  const [numRows = 0] = dict.batchSize
  const data = columns.map((column) => dataOf(column, numRows))
  const fields = columns.map((column, index) => new Field(column.name, (data[index] as Data).type, false))
  const schema = new Schema(fields, new Map([[METADATA_KEY, formsText(columns)]]))
  const batch = new RecordBatch(
    schema,
    makeData({ type: new Struct(fields), length: numRows, nullCount: 0, children: data }),
  )
  return tableToIPC(new Table(schema, [batch]), 'file')
}

/**
 * The dictionary of an Arrow file or stream, its batch the rows. One of {@link toArrow} gives the same dictionary again; in
 * others numbers and booleans become tensors `[N]`, fixed-size lists of them tensors `[N, ...]`, lists ragged entries,
 * strings, deeper lists, lists of strings and structs JSON values, and a dot in a column's name begins a nested dictionary.
 * Reads buffers compressed with LZ4 and Zstandard. The lengths that the file states are checked against its bytes before
 * anything is read.
 *
 * @throws {FulmarError} `MALFORMED` if the bytes cannot be read, or naming column and row for a null; `INCOMPATIBLE` if a
 *   column holds something else; `OUT_OF_RANGE` for an unsigned integer from 2^63; `LIMIT_EXCEEDED` above 4,096 columns.
 *
 * @example
 * ```ts
 * import { Tensor, TensorDict } from 'fulmar'
 * import { fromArrow, toArrow } from 'fulmar/table'
 * import assert from 'node:assert/strict'
 *
 * const bytes = toArrow(TensorDict.from({ done: Tensor.zeros('bool', [3]) }, { batchSize: [3] }))
 * assert.deepEqual(fromArrow(bytes).tensor('done').shape, [3])
 * ```
 */
export function fromArrow(bytes: Uint8Array): TensorDict {
  checkTypedArray('bytes', bytes, Uint8Array)
  const limit = elementsMax(bytes)
  const table = arrowTable(bytes, limit)
  checkCount(table.schema.fields.length)
  checkRows(table.numRows, limit)
  const forms = formsOf(table.schema.metadata.get(METADATA_KEY))
  const columns = table.schema.fields.map(({ name, type }, index) =>
    columnFrom(name, [...(table.getChildAt(index) ?? [])], forms.get(name) ?? foreignForm(name, type), limit),
  )
  return dictOf(columns, table.numRows)
}

/** @internal The table of a file or a stream. @throws {FulmarError} `MALFORMED`. */
export function arrowTable(bytes: Uint8Array, limit: number): Table {
  try {
    checkFrames(bytes, limit)
    // The registry is the reader's only way to a codec; each file has its own bound, and reading does not pause.
    const { lz4, zstd } = boundedCodecs(TABLE_BYTES_MAX)
    compressionRegistry.set(CompressionType.LZ4_FRAME, { decode: lz4 })
    compressionRegistry.set(CompressionType.ZSTD, { decode: zstd })
    return tableFromIPC(bytes)
  } catch (cause) {
    const detail = `bytes must be an Arrow file or stream: got ${(cause as Error).message}`
    throw new FulmarError('MALFORMED', detail, { cause })
  }
}

/**
 * Walks over the messages of a file or stream, each -1, the length of its metadata, the metadata, and its body. The reader
 * itself follows a negative length back and forth without end, and takes a file without its end for a table without rows.
 */
function checkFrames(bytes: Uint8Array, limit: number): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength)
  const isFile = String.fromCharCode(...bytes.subarray(0, MAGIC.length)) === MAGIC
  let at = isFile ? 8 : 0
  while (isFile || at < bytes.length) {
    const [mark, length] = [view.getInt32(at, true), view.getInt32(at + 4, true)]
    if (mark === -1 && length === 0) {
      if (isFile) checkFooter(footerOf(bytes, view))
      return
    }
    if (mark !== -1 || length < 0) throw new Error(`no message at byte ${at}`)
    const metadata = bytes.subarray(at + 8, at + 8 + length)
    checkMessage(metadata, limit)
    const message = Message.decode(metadata)
    const { bodyLength } = message
    const isData = message.isDictionaryBatch() || message.isRecordBatch()
    if (!(isData ? bodyLength >= 0 : message.isSchema() && bodyLength === 0)) {
      throw new Error(`a message of an unknown form at byte ${at}`)
    }
    at += 8 + length + bodyLength
  }
  if (bytes.length === 0 || at > bytes.length) throw new Error(`${bytes.length} bytes that end too early`)
}

const MAGIC = 'ARROW1'

/** The footer of a file: its length and the magic follow it. */
function footerOf(bytes: Uint8Array, view: DataView): Uint8Array {
  const end = bytes.length - MAGIC.length - 4
  const length = view.getInt32(end, true)
  if (length < 0 || length > end) throw new Error(`a footer of ${length} bytes`)
  return bytes.subarray(end - length, end)
}

const TYPES: Readonly<Record<Dtype | 'text' | 'json', () => DataType>> = {
  f64: () => new Float64(),
  f32: () => new Float32(),
  f16: () => new Float32(),
  bf16: () => new Float32(),
  i64: () => new Int64(),
  i32: () => new Int32(),
  i16: () => new Int16(),
  i8: () => new Int8(),
  u8: () => new Uint8(),
  u32: () => new Uint32(),
  bool: () => new Bool(),
  text: () => new Utf8(),
  json: () => new Utf8(),
}

/** The cells of a column: its elements, inside a fixed-size list for each dimension, inside lists if it is ragged. */
function dataOf(column: Column, numRows: number): Data {
  const { dtype, shape, elements, offsets } = column
  const isTyped = ArrayBuffer.isView(elements)
  let data = (
    isTyped
      ? makeData({ type: TYPES[dtype](), length: elements.length, nullCount: 0, data: elements } as never)
      : vectorFromArray(Array.from(elements), TYPES[dtype]()).data[0]
  ) as Data
  for (const [dim, size] of [...shape.entries()].reverse()) {
    const outer = shape.slice(0, dim).reduce((count, length) => count * length, offsets?.at(-1) ?? numRows)
    const type = new FixedSizeList(size, new Field('item', data.type, false))
    data = makeData({ type, length: outer, nullCount: 0, child: data })
  }
  if (!offsets) return data
  const type = new List(new Field('item', data.type, false))
  return makeData({
    type,
    length: numRows,
    nullCount: 0,
    valueOffsets: Int32Array.from(offsets),
    child: data,
  })
}

/** Returns the form of a column of a file without our metadata. */
function foreignForm(name: string, type: DataType): ColumnForm {
  const key = name.split('.')
  const shape: number[] = []
  let inner = type
  const isRagged = Types.isList(inner)
  if (Types.isList(inner)) inner = inner.valueType
  while (Types.isFixedSizeList(inner)) {
    shape.push(inner.listSize)
    inner = inner.valueType
  }
  const dtype = leafDtype(name, inner)
  const isNested = inner.children !== null && inner.children.length > 0
  const isList = isRagged || shape.length > 0
  if (isNested || (dtype === 'text' && isList)) return { key, dtype: 'json', kind: 'each', shape: [] }
  return { key, dtype, kind: isRagged ? 'ragged' : dtype === 'text' ? 'each' : 'dense', shape }
}

/**
 * The dtype of the values of a column; of the last field, if it is a group.
 * @throws {FulmarError} `INCOMPATIBLE` if it, or any field of the group, has a type that neither tensors nor JSON have.
 */
function leafDtype(column: string, type: DataType): Dtype | 'text' {
  if (Types.isDictionary(type)) return leafDtype(column, type.dictionary)
  const isNested = Types.isList(type) || Types.isFixedSizeList(type) || Types.isStruct(type)
  const known = isNested
    ? type.children.map((field) => leafDtype(column, field.type)).at(-1)
    : DTYPES.get(String(type))
  if (known !== undefined) return known
  const detail = `column '${column}' must hold numbers, booleans, texts, or lists and groups of them: got ${type}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

/** Arrow's names of types, and the dtype that holds them. */
const DTYPES: ReadonlyMap<string, Dtype | 'text'> = new Map([
  ['Float64', 'f64'],
  ['Float32', 'f32'],
  ['Float16', 'f32'],
  ['Int64', 'i64'],
  ['Uint64', 'i64'],
  ['Int32', 'i32'],
  ['Uint32', 'u32'],
  ['Int16', 'i16'],
  ['Uint16', 'i32'],
  ['Int8', 'i8'],
  ['Uint8', 'u8'],
  ['Bool', 'bool'],
  ['Utf8', 'text'],
  ['LargeUtf8', 'text'],
])
