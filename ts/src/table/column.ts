/** A dictionary of steps as columns, and back: what the file formats share. */

import { FulmarError, parseJson } from '../core/index.js'
import {
  type Dtype,
  type Json,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
  type TensorDictEntry,
} from '../tensor/index.js'
import { checkDict } from '../tensor/tensor-dict.js'

/** The most columns of a table that is read or written. */
const TABLE_COLUMNS_MAX = 4096
/** The most bytes of a file that is read, and the most that its compressed parts may give. */
export const TABLE_BYTES_MAX = 2 ** 31 - 1
/** The most rows that a file of any size may hold; a longer file may hold one a bit. */
export const TABLE_ROWS_MIN = 2 ** 24

/** The deepest nesting of lists and groups in a cell. */
export const TABLE_DEPTH_MAX = 64

/** Key of a file's metadata for the original form of its columns. */
export const METADATA_KEY = 'fulmar'

/**
 * Entry of a cell: one element or a fixed shape of them, rows of different lengths, one JSON value, or one
 * for all.
 */
type ColumnKind = 'dense' | 'ragged' | 'each' | 'shared'

/** Original form of a column, stored in the file to restore the same dictionary. */
export interface ColumnForm {
  readonly key: readonly string[]
  readonly kind: ColumnKind
  /** The dtype of elements; `text` or `json` for JSON values. */
  readonly dtype: Dtype | 'text' | 'json'
  /** The shape of a cell; for a ragged column that of one element of its rows. */
  readonly shape: readonly number[]
}

/** Elements as the file formats take them: half floats as singles, bools as booleans. */
export type Elements = ArrayLike<number | bigint | boolean | string>

/** One column: the elements of all cells one after another, and for a ragged column where each row begins. */
export interface Column extends ColumnForm {
  readonly name: string
  readonly elements: Elements
  readonly offsets?: readonly number[]
}

/**
 * The columns of `dict`, whose batch is its steps.
 * @throws {FulmarError} `SHAPE_MISMATCH` if the batch has not one dimension; `INCOMPATIBLE` if two keys have one name when
 *   joined by dots; `LIMIT_EXCEEDED` above {@link TABLE_COLUMNS_MAX} columns.
 */
export function columnsOf(dict: TensorDict): Column[] {
  checkDict(dict)
  const [numRows, ...more] = dict.batchSize
  if (numRows === undefined || more.length > 0) {
    const detail = `dict must have one batch dimension, its steps: got [${dict.batchSize.join(', ')}]; flatten it first`
    throw new FulmarError('SHAPE_MISMATCH', detail)
  }
  const keys = dict.leafKeys()
  checkCount(keys.length)
  const names = new Map<string, readonly string[]>()
  return keys.map((key) => {
    const name = key.join('.')
    const other = names.get(name)
    if (other) {
      const detail = `keys must differ when joined by dots: got ${JSON.stringify(other)} and ${JSON.stringify(key)}`
      throw new FulmarError('INCOMPATIBLE', detail)
    }
    names.set(name, key)
    return { name, key, ...columnOf(dict.get(key), numRows) }
  })
}

/** The dictionary of `columns`, each of `numRows` cells. */
export function dictOf(columns: readonly Column[], numRows: number): TensorDict {
  const dict = TensorDict.from({}, { batchSize: [numRows] })
  for (const column of columns) dict.set(column.key, entryOf(column, numRows))
  return dict
}

/** Returns the column forms as text for a file's metadata. */
export const formsText = (columns: readonly Column[]): string =>
  JSON.stringify({
    version: 1,
    columns: columns.map(({ name, key, kind, dtype, shape }) => ({ name, key, kind, dtype, shape })),
  })

/**
 * The forms that a file's metadata holds, by the name of their column.
 * @throws {FulmarError} `MALFORMED` if it is not what {@link formsText} gives.
 */
export function formsOf(text: string | undefined): Map<string, ColumnForm> {
  if (text === undefined) return new Map()
  let form: unknown
  try {
    form = JSON.parse(text)
  } catch (cause) {
    throw new FulmarError('MALFORMED', `metadata '${METADATA_KEY}' must be JSON: got ${text.slice(0, 40)}`, {
      cause,
    })
  }
  const { version, columns } = form as { version?: unknown; columns?: unknown }
  if (version !== 1 || !Array.isArray(columns) || !columns.every(isNamedForm)) {
    const detail = `metadata '${METADATA_KEY}' must be of version 1 with a form for each column: got ${text.slice(0, 80)}`
    throw new FulmarError('MALFORMED', detail)
  }
  return new Map(columns.map((column) => [column.name, column]))
}

/**
 * Returns a column from one value a row: numbers, booleans, texts, or lists of them with the same nesting in all rows. A
 * list has at most `limit` elements, because a file declares the length of a list before its elements.
 * @throws {FulmarError} `MALFORMED` naming column and row for a null, or a cell of another depth or shape.
 */
export function columnFrom(
  name: string,
  rows: readonly unknown[],
  { key, kind, dtype, shape }: ColumnForm,
  limit: number,
): Column {
  const elements: (number | bigint | boolean | string)[] = []
  const offsets = [0]
  rows.forEach((row, index) => {
    const place = `column '${name}' at row ${index}`
    if (dtype === 'json' && typeof row !== 'string') {
      elements.push(JSON.stringify(jsonFrom(row, place, limit, 0)))
      return
    }
    if (kind !== 'ragged') {
      flattenInto(elements, row, shape, place)
      return
    }
    const items = listOf(row, place, limit)
    for (const item of items) flattenInto(elements, item, shape, place)
    offsets.push((offsets.at(-1) ?? 0) + items.length)
  })
  return { name, key, kind, dtype, shape, elements, ...(kind === 'ragged' && { offsets }) }
}

/**
 * A nested cell as a JSON value: lists become arrays, groups objects, and integers numbers.
 * @throws {FulmarError} `OUT_OF_RANGE` for an integer beyond 2^53 - 1, `MALFORMED` for what JSON does not have.
 */
export function jsonFrom(cell: unknown, place: string, limit: number, depth: number): Json {
  if (depth > TABLE_DEPTH_MAX) {
    throw new FulmarError('LIMIT_EXCEEDED', `${place} must be nested at most ${TABLE_DEPTH_MAX} deep`)
  }
  if (cell === null || cell === undefined) return null
  if (typeof cell === 'string' || typeof cell === 'boolean') return cell
  if (typeof cell === 'number' && Number.isFinite(cell)) return cell
  if (typeof cell === 'bigint') {
    if (Number.isSafeInteger(Number(cell))) return Number(cell)
    throw new FulmarError(
      'OUT_OF_RANGE',
      `${place} must hold integers up to 2^53 - 1 in lists and groups: got ${cell}`,
    )
  }
  if (typeof cell !== 'object' || cell instanceof Date || cell instanceof DataView) {
    throw new FulmarError('MALFORMED', `${place} must hold what JSON has: got ${String(cell)}`)
  }
  const inner = (item: unknown) => jsonFrom(item, place, limit, depth + 1)
  if (Symbol.iterator in cell && 'length' in cell) return [...listOf(cell, place, limit)].map(inner)
  const fields = 'toJSON' in cell && typeof cell.toJSON === 'function' ? (cell.toJSON() as object) : cell
  return Object.fromEntries(Object.entries(fields).map(([key, value]) => [key, inner(value)]))
}

/** Refuses more columns than {@link TABLE_COLUMNS_MAX}. */
export function checkCount(count: number): void {
  if (count <= TABLE_COLUMNS_MAX) return
  throw new FulmarError(
    'LIMIT_EXCEEDED',
    `a table must have at most ${TABLE_COLUMNS_MAX} columns: got ${count}`,
  )
}

/**
 * The most rows, values of a column in a group of rows, and elements of one cell that a file of this size may hold: one a bit, but always
 * {@link TABLE_ROWS_MIN}, as runs of equal values take no room.
 */
export const rowsMax = (sizeBytes: number): number => Math.max(8 * sizeBytes, TABLE_ROWS_MIN)

/** Refuses files longer than 2,147,483,647. Returns {@link rowsMax} of the file. */
export function elementsMax(bytes: Uint8Array): number {
  if (bytes.byteLength <= TABLE_BYTES_MAX) return rowsMax(bytes.byteLength)
  const detail = `bytes must be at most ${TABLE_BYTES_MAX} long: got ${bytes.byteLength}`
  throw new FulmarError('LIMIT_EXCEEDED', detail)
}

/** Refuses a file that names more rows than it can hold. */
export function checkRows(numRows: number, limit: number): void {
  if (numRows <= limit) return
  throw new FulmarError('MALFORMED', `a file of this length must hold at most ${limit} rows: got ${numRows}`)
}

function columnOf(entry: TensorDictEntry | undefined, numRows: number): Omit<Column, 'name' | 'key'> {
  if (entry instanceof Tensor) {
    return { kind: 'dense', dtype: entry.dtype, shape: entry.shape.slice(1), elements: elementsOf(entry) }
  }
  if (entry instanceof Ragged) {
    const { values } = entry
    const offsets = [0]
    for (let row = 0; row < numRows; row++) offsets.push((offsets[row] ?? 0) + (entry.row(row).shape[0] ?? 0))
    return {
      kind: 'ragged',
      dtype: values.dtype,
      shape: values.shape.slice(1),
      elements: elementsOf(values),
      offsets,
    }
  }
  const values =
    entry instanceof NonTensorStack
      ? entry.values
      : Array.from({ length: numRows }, () => (entry instanceof NonTensorData ? entry.value : null))
  const kind = entry instanceof NonTensorStack ? 'each' : 'shared'
  const isText = values.every((value) => typeof value === 'string')
  const elements = isText ? (values as string[]) : values.map((value) => JSON.stringify(value))
  return { kind, dtype: isText ? 'text' : 'json', shape: [], elements }
}

function elementsOf(tensor: Tensor): Elements {
  if (tensor.dtype === 'f16' || tensor.dtype === 'bf16') return tensor.toFloat32()
  if (tensor.dtype === 'bool') return Array.from(tensor.data as Uint8Array, (flag) => flag === 1)
  return tensor.data
}

function entryOf(column: Column, numRows: number): TensorDictEntry {
  const { kind, dtype, shape, elements, offsets } = column
  if (dtype === 'text' || dtype === 'json') {
    const texts = Array.from(elements, String)
    const values = dtype === 'text' ? texts : texts.map((text) => jsonOf(text, column.name))
    if (kind !== 'shared' || numRows === 0) return new NonTensorStack(values)
    return new NonTensorData(values[0] ?? null)
  }
  if (kind !== 'ragged') return tensorOf(dtype, [numRows, ...shape], column)
  const values = tensorOf(dtype, [offsets?.at(-1) ?? 0, ...shape], column)
  return Ragged.from(values, Uint32Array.from(offsets ?? [0]))
}

function tensorOf(dtype: Dtype, shape: readonly number[], { name, elements }: Column): Tensor {
  const numbers = Array.from(elements, Number)
  try {
    if (dtype === 'i64')
      return Tensor.from(BigInt64Array.from(elements as ArrayLike<bigint>, signed), { shape })
    if (dtype === 'f16' || dtype === 'bf16') return halfFloats(dtype, shape, numbers)
    return Tensor.from(numbers, { shape, dtype })
  } catch (cause) {
    if (cause instanceof RangeError) {
      throw new FulmarError('OUT_OF_RANGE', `column '${name}' must hold ${cause.message}`, { cause })
    }
    const detail = `column '${name}' must hold ${dtype} in shape [${shape.join(', ')}]: got ${(cause as Error).message}`
    throw new FulmarError('MALFORMED', detail, { cause })
  }
}

/** A 64-bit integer. @throws {RangeError} If `value` does not fit, as unsigned ones from 2^63. */
function signed(value: bigint): bigint {
  const word = BigInt(value)
  if (BigInt.asIntN(64, word) === word) return word
  throw new RangeError(`integers below 2^63: got ${word}`)
}

/** Half floats from numbers that they hold exactly, as those that were written from half floats. */
function halfFloats(dtype: 'f16' | 'bf16', shape: readonly number[], numbers: readonly number[]): Tensor {
  const singles = Float32Array.from(numbers)
  const toBits = dtype === 'bf16' ? (bits: number) => bits >>> 16 : f16Bits
  const tensor = Tensor.from(Uint16Array.from(new Uint32Array(singles.buffer), toBits), { shape, dtype })
  const held = tensor.toFloat32()
  const misfit = numbers.find((number, at) => !Object.is(held[at], number))
  if (misfit === undefined) return tensor
  throw new FulmarError('OUT_OF_RANGE', `values must be exact in ${dtype}: got ${misfit}`)
}

/** The half float at or below a single, from its bits. */
function f16Bits(bits: number): number {
  const sign = (bits >>> 16) & 0x8000
  const exponent = (bits >>> 23) & 0xff
  const fraction = bits & 0x7fffff
  if (exponent === 255) return sign | 0x7c00 | (fraction === 0 ? 0 : 0x200 | (fraction >>> 13))
  if (exponent > 112) return sign | ((exponent - 112) << 10) | (fraction >>> 13)
  return exponent > 101 ? sign | ((0x800000 | fraction) >>> (126 - exponent)) : sign
}

function jsonOf(text: string, name: string): Json {
  try {
    return parseJson(text) as Json
  } catch (cause) {
    throw new FulmarError('MALFORMED', `column '${name}' must hold JSON: got ${text.slice(0, 40)}`, { cause })
  }
}

function flattenInto(
  elements: (number | bigint | boolean | string)[],
  cell: unknown,
  shape: readonly number[],
  place: string,
): void {
  const [length, ...inner] = shape
  if (length === undefined) {
    if (!['number', 'bigint', 'boolean', 'string'].includes(typeof cell)) {
      throw new FulmarError(
        'MALFORMED',
        `${place} must hold one value: got ${cell === null ? 'null' : typeof cell}`,
      )
    }
    elements.push(cell as number)
    return
  }
  const items = listOf(cell, place, length)
  if (items.length !== length) {
    throw new FulmarError('MALFORMED', `${place} must hold ${length} values: got ${items.length}`)
  }
  for (const item of items) flattenInto(elements, item, inner, place)
}

function listOf(cell: unknown, place: string, limit: number): ArrayLike<unknown> & Iterable<unknown> {
  if (Array.isArray(cell) || (ArrayBuffer.isView(cell) && !(cell instanceof DataView))) {
    return cell as ArrayLike<unknown> & Iterable<unknown>
  }
  if (typeof cell === 'object' && cell !== null && Symbol.iterator in cell && 'length' in cell) {
    if (Number(cell.length) <= limit) return [...(cell as Iterable<unknown>)]
    throw new FulmarError('MALFORMED', `${place} must hold at most ${limit} values: got ${cell.length}`)
  }
  throw new FulmarError('MALFORMED', `${place} must hold a list: got ${cell === null ? 'null' : typeof cell}`)
}

const DTYPES = ['f64', 'f32', 'f16', 'bf16', 'i64', 'i32', 'i16', 'i8', 'u8', 'u32', 'bool', 'text', 'json']

function isNamedForm(form: unknown): form is ColumnForm & { name: string } {
  const { name, key, kind, dtype, shape } = (form ?? {}) as Record<string, unknown>
  return (
    typeof name === 'string' &&
    Array.isArray(key) &&
    key.length > 0 &&
    key.every((part) => typeof part === 'string') &&
    ['dense', 'ragged', 'each', 'shared'].includes(kind as string) &&
    DTYPES.includes(dtype as string) &&
    Array.isArray(shape) &&
    shape.every((length) => Number.isSafeInteger(length) && length >= 0)
  )
}
