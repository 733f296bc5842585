/** Spaces of Gymnasium in Minari's JSON, and JSON as Python writes it. */

import { FulmarError } from '../core/index.js'
import { type Dtype, type Json, NonTensorData, NonTensorStack, Tensor, TensorDict } from '../tensor/index.js'

/** Names of dtypes in NumPy. */
const NUMPY: Readonly<Partial<Record<Dtype, string>>> = {
  f64: 'float64',
  f32: 'float32',
  f16: 'float16',
  i64: 'int64',
  i32: 'int32',
  i16: 'int16',
  i8: 'int8',
  u8: 'uint8',
  u32: 'uint32',
}

/**
 * Returns a space that has all rows of columns of one key: of floats a box without bounds, of single integers a range, of other
 * integers a box of their least and largest, of texts their characters and lengths.
 * @throws {FulmarError} `INCOMPATIBLE` for a column of another kind.
 */
export function spaceOf(columns: readonly unknown[]): Json {
  const [first] = columns
  if (first instanceof TensorDict) {
    const dicts = columns.filter((column) => column instanceof TensorDict)
    const subspaces = first.keys().map((key) => [key, spaceOf(dicts.map((dict) => dict.get(key)))] as const)
    return { type: 'Dict', subspaces: Object.fromEntries(subspaces) }
  }
  if (first instanceof Tensor)
    return numberSpace(
      first,
      columns.filter((column) => column instanceof Tensor),
    )
  const texts = columns.flatMap(textsIn)
  if (first instanceof NonTensorData || first instanceof NonTensorStack) return textSpace(texts)
  throw new FulmarError('INCOMPATIBLE', 'observation and action must be numbers or texts to have a space')
}

function numberSpace(first: Tensor, columns: readonly Tensor[]): Json {
  const shape = first.shape.slice(1)
  if (first.dtype === 'bool') return { type: 'MultiBinary', n: shape.length === 0 ? 1 : shape }
  const dtype = NUMPY[first.dtype] ?? first.dtype
  if (first.dtype.startsWith('f'))
    return { type: 'Box', dtype, shape, low: filled(shape, '-Infinity'), high: filled(shape, 'Infinity') }
  const [least, most] = rangeOf(columns)
  if (shape.length === 0) return { type: 'Discrete', dtype: 'int64', start: least, n: most - least + 1 }
  return { type: 'Box', dtype, shape, low: filled(shape, least), high: filled(shape, most) }
}

function rangeOf(columns: readonly Tensor[]): readonly [number, number] {
  let [least, most] = [Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY]
  for (const { data } of columns)
    for (const value of data) [least, most] = [Math.min(least, Number(value)), Math.max(most, Number(value))]
  return [least, most]
}

function filled(shape: readonly number[], value: Json): Json {
  const [length, ...rest] = shape
  return length === undefined ? value : Array.from({ length }, () => filled(rest, value))
}

function textsIn(column: unknown): string[] {
  if (column instanceof NonTensorData) return [column.value].flat().map(String)
  return column instanceof NonTensorStack ? column.values.flat().map(String) : []
}

function textSpace(texts: readonly string[]): Json {
  const lengths = texts.map((text) => text.length)
  const characters = new Set(texts.flatMap((text) => [...text]))
  const [least, most] = lengths.reduce(
    ([low, high], length) => [Math.min(low, length), Math.max(high, length)],
    [Number.MAX_SAFE_INTEGER, 1],
  )
  return {
    type: 'Text',
    max_length: most,
    min_length: Math.min(least, most),
    charset: [...characters].sort().join(''),
  }
}

/** Numbers that Python writes and JSON lacks; they are texts in metadata that was read. */
const NOT_IN_JSON = /^(?:-?Infinity|NaN)$/

/** Returns JSON with Python's spaces, and with `Infinity`, `-Infinity` and `NaN` as numbers where they are texts. */
export function pythonJson(value: Json): string {
  if (typeof value === 'string') return NOT_IN_JSON.test(value) ? value : JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map((item) => pythonJson(item)).join(', ')}]`
  if (typeof value !== 'object' || value === null) return JSON.stringify(value)
  const fields = Object.entries(value).map(([name, field]) => `${JSON.stringify(name)}: ${pythonJson(field)}`)
  return `{${fields.join(', ')}}`
}
