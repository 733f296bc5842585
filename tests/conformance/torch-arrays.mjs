/**
 * Small tensors of golden rows, `{ t: dtype, s: shape, d: numbers }`, with PyTorch's rules for shapes, indices and casts.
 *
 * Throws `Refusal` for operations that PyTorch refuses, and `Unknown` for those that these rules do not cover.
 */

export class Refusal extends Error {}
export class Unknown extends Error {}

/** Says that the original fails here. */
export function refuse(why) {
  throw new Refusal(why)
}

/** Says that nothing is known of what the original does here. */
export function unknown(why) {
  throw new Unknown(why)
}

export const tensor = (t, s, d) => ({ t, s, d })
export const read = ({ $t, $np, s, d }) => tensor($t ?? $np, s, d.map(Number))
export const filled = (t, s, value) => tensor(t, s, new Array(sizeOf(s)).fill(value))

/** A tensor in the form of rows: booleans of bools, and texts for numbers that JSON cannot write. */
export function written({ t, s, d }, name = '$t') {
  const element = (one) => (t === 'bool' ? one !== 0 : Number.isFinite(one) ? one + 0 : String(one))
  return { [name]: t, s, d: d.map(element) }
}

export const sizeOf = (shape) => shape.reduce((product, length) => product * length, 1)
export const isFloat = (dtype) => dtype.includes('float')
/** Dimensions whose length is not known count as one. */
export const safe = (shape) => shape.map((length) => (length < 0 ? 1 : length))
export const isSameShape = (left, right) =>
  left.length === right.length && left.every((length, dim) => length === right[dim])
export const inserted = (list, at, ...items) => [...list.slice(0, at), ...items, ...list.slice(at)]
export const without = (list, at) => list.filter((_, index) => index !== at)
export const range = (count) => Array.from({ length: count }, (_, index) => index)

export function broadcast(left, right) {
  const rank = Math.max(left.length, right.length)
  const length = (shape, dim) => shape[dim - rank + shape.length] ?? 1
  return range(rank).map((dim) => {
    const [one, other] = [length(left, dim), length(right, dim)]
    if (one !== other && one !== 1 && other !== 1) refuse('shapes that do not spread')
    return one === 1 ? other : one
  })
}

/** A tensor of `shape` whose element at each index is that of `x` at `from(index)`. */
function gathered(x, shape, from) {
  const strides = x.s.map((_, dim) => sizeOf(x.s.slice(dim + 1)))
  const d = range(sizeOf(shape)).map((flat) => {
    const index = shape.map((length, dim) => Math.floor(flat / sizeOf(shape.slice(dim + 1))) % length)
    return x.d[from(index).reduce((sum, at, dim) => sum + at * strides[dim], 0)]
  })
  return tensor(x.t, shape, d)
}

/** As `Tensor.expand`: -1 keeps a dimension. */
export function expanded(x, shape) {
  const lead = shape.length - x.s.length
  if (lead < 0) refuse('an expansion to fewer dimensions')
  const target = shape.map((length, dim) => {
    const own = x.s[dim - lead]
    if (length === -1) return own ?? refuse('-1 for a new dimension')
    return own === undefined || own === 1 || own === length
      ? length
      : refuse('a dimension that does not spread')
  })
  return gathered(x, target, (index) => x.s.map((length, dim) => (length === 1 ? 0 : index[dim + lead])))
}

/** As `Tensor.reshape`: one -1 is counted. */
export function reshaped(x, shape) {
  const known = sizeOf(shape.filter((length) => length !== -1))
  if (shape.filter((length) => length === -1).length > 1) refuse('two dimensions to count')
  const target = shape.map((length) => (length === -1 ? x.d.length / known : length))
  return sizeOf(target) === x.d.length && target.every(Number.isInteger)
    ? tensor(x.t, target, x.d)
    : refuse('another number of elements')
}

export const selected = (x, dim, at) => gathered(x, without(x.s, dim), (index) => inserted(index, dim, at))
export const unbound = (x, dim) => range(x.s[dim]).map((at) => selected(x, dim, at))
export const rowsOf = (x) => {
  const length = x.s.at(-1)
  return range(length === 0 ? 0 : x.d.length / length).map((at) => x.d.slice(at * length, (at + 1) * length))
}
/** The parts of the last dimension. */
export function split(x, lengths) {
  let start = 0
  return lengths.map((length) => {
    const from = start
    start += length
    return gathered(x, [...x.s.slice(0, -1), length], (index) => [...index.slice(0, -1), index.at(-1) + from])
  })
}

/** Joins along the last dimension. */
export function joined(parts) {
  const rows = parts.map(rowsOf)
  const d = rows[0].flatMap((_, at) => rows.flatMap((list) => list[at]))
  const shape = [...parts[0].s.slice(0, -1), parts.reduce((sum, { s }) => sum + s.at(-1), 0)]
  return tensor(parts[0].t, shape, d)
}

/** The items of an index as Python reads it. */
export const itemsOf = (index) => index?.$tuple ?? [index]
const isList = (item) => Array.isArray(item) || item?.$t !== undefined || item?.$range !== undefined

/** The positions that an item of an index names in a dimension, and their shape; `length` is -1 if it is unknown. */
function positions(item, length) {
  const checked = (at) =>
    length >= 0 && (at >= length || at < -length)
      ? refuse('out of bounds')
      : at < 0 && length >= 0
        ? at + length
        : at
  if (item?.$slice) {
    const [start = null, stop = null, step = null] = item.$slice
    if (length < 0)
      return start === null && stop === null && (step ?? 1) === 1
        ? { shape: [-1], list: [0] }
        : refuse('a slice of a length that is not known')
    const end = (at, none) => Math.min(Math.max(at === null ? none : at < 0 ? at + length : at, 0), length)
    if ((step ?? 1) < 1) unknown('a step backwards')
    const [from, to] = [end(start, 0), end(stop, length)]
    const list = range(Math.max(0, Math.ceil((to - from) / (step ?? 1)))).map((at) => from + at * (step ?? 1))
    return { shape: [list.length], list }
  }
  if (item.$range)
    return positions(
      range(item.$range[1] - item.$range[0]).map((at) => at + item.$range[0]),
      length,
    )
  if (item.$t === 'bool') {
    if (item.s.length !== 1 || item.s[0] > length) unknown('a mask of more dimensions, or of another length')
    const list = range(item.s[0]).filter((at) => item.d[at])
    return { shape: [list.length], list }
  }
  if (item.$t) return { shape: item.s, list: item.d.map(checked) }
  if (Array.isArray(item)) {
    if (!item.every(Number.isInteger)) unknown('lists in a list')
    return { shape: [item.length], list: item.map(checked) }
  }
  return unknown('an index of another kind')
}

/** For each dimension of a shape what an index takes of it: lists of positions, new dimensions and those that go. */
function plan(shape, index, isWholeChecked) {
  const items = itemsOf(index)
  if (items.filter((item) => item?.$ellipsis).length > 1) refuse('two ellipses')
  if (items.some((item) => typeof item === 'string')) unknown('a key')
  if (items.filter(isList).length > 1) unknown('two lists')
  const count = items.filter((item) => item !== null && !item.$ellipsis).length
  if (
    count > shape.length &&
    !(isWholeChecked && shape.length === 0 && items.length === 1 && items[0]?.$slice)
  )
    refuse('too many indices')
  const at = items.findIndex((item) => item?.$ellipsis)
  const rest = new Array(Math.max(0, shape.length - count)).fill({ $slice: [] })
  const all = at < 0 ? [...items, ...rest] : [...items.slice(0, at), ...rest, ...items.slice(at + 1)]
  let dim = 0
  return all.flatMap((item) => {
    if (item === null) return [{ isNew: true, shape: [1] }]
    if (shape.length === 0) return []
    const length = shape[dim]
    dim += 1
    if (Number.isInteger(item)) return [{ shape: [], list: positions([item], length).list }]
    return [positions(item, length)]
  })
}

/** A shape after an index; a dimension of unknown length can be taken whole, or by positions. */
export const indexedShape = (shape, index) => plan(shape, index, true).flatMap((part) => part.shape)

/** As `tensor[index]`. */
export function indexed(x, index) {
  const parts = plan(x.s, index, false)
  const shape = parts.flatMap((part) => part.shape)
  return gathered(x, shape, (where) => {
    let next = 0
    return parts.flatMap((part) => {
      const own = where.slice(next, next + part.shape.length)
      next += part.shape.length
      if (part.isNew) return []
      return [part.list[own.reduce((flat, at, dim) => flat * part.shape[dim] + at, 0)]]
    })
  })
}

const BITS = { uint8: 8, int8: 8, int16: 16, int32: 32, int64: 64 }
const HALVES = {
  float16: { bits: 11, least: -24, most: 65504 },
  bfloat16: { bits: 8, least: -133, most: 3.3895313892515355e38 },
}

/** A number as a dtype has it: rounded, cut and wrapped; Unknown where processors differ. */
export function castNumber(value, dtype) {
  if (dtype === 'float64') return value
  if (dtype === 'float32') return Math.fround(value)
  if (dtype === 'bool') return value === 0 ? 0 : 1
  if (HALVES[dtype]) return rounded(value, HALVES[dtype])
  const isOutside = !(Math.abs(value) < 2 ** 63)
  if (isOutside && dtype !== 'int64') unknown('a number outside of 64 bits')
  if (isOutside) return -(2 ** 63)
  const whole = Math.trunc(value)
  if (dtype === 'int64') return whole + 0
  if (Math.abs(whole) >= 2 ** 31 && !Number.isInteger(value)) unknown('a number outside of 32 bits')
  const wrapped = BigInt.asIntN(BITS[dtype], BigInt(whole))
  return Number(dtype === 'uint8' ? BigInt.asUintN(8, wrapped) : wrapped)
}

function rounded(value, { bits, least, most }) {
  if (!Number.isFinite(value) || value === 0) return value
  const step = 2 ** Math.max(Math.floor(Math.log2(Math.abs(value))) - bits + 1, least)
  const low = Math.floor(value / step)
  const rest = value / step - low
  const near = (rest > 0.5 || (rest === 0.5 && low % 2 !== 0) ? low + 1 : low) * step
  return Math.abs(near) > most ? Math.sign(near) * Number.POSITIVE_INFINITY : near
}

export const cast = (x, dtype) =>
  tensor(
    dtype,
    x.s,
    x.d.map((one) => castNumber(one, dtype)),
  )

const RANKS = [
  'bool',
  'uint8',
  'int8',
  'int16',
  'int32',
  'int64',
  'float16',
  'bfloat16',
  'float32',
  'float64',
]

/** The dtype of an operation over tensors of both. */
export function promoted(left, right) {
  const pair = [left, right].sort((one, other) => RANKS.indexOf(one) - RANKS.indexOf(other))
  if (pair[0] === 'uint8' && pair[1] === 'int8') return 'int16'
  if (pair[0] === 'float16' && pair[1] === 'bfloat16') return 'float32'
  return pair[1]
}
