/**
 * Compares `TensorDict` with what tensordict printed: one operation a row, or a program of them.
 *
 * A JSON value that a batch shares equals one that stands at each of its elements: upstream makes the one of the other
 * as it goes. Of a refusal only the fact counts.
 */

import { isDeepStrictEqual } from 'node:util'
import { NonTensorData, NonTensorStack, Tensor, TensorDict } from 'fulmar'

const ARRAYS = { float64: Float64Array, float32: Float32Array, int32: Int32Array, int64: BigInt64Array }
const DTYPES = { float64: 'f64', float32: 'f32', int32: 'i32', int64: 'i64', bool: 'bool' }

/** What an operation makes of a dictionary and the row's arguments. */
const MAKES = {
  construct: (_, { source, batch_size: sizes }) => filled(source.$dict, sizes ?? []),
  getitem_key: (dict, { key }) => {
    const entry = found(dict, key)
    return entry instanceof NonTensorData ? entry.value : entry
  },
  nontensor_get: (dict) => dict.get('s'),
  get: (dict, { key }) => dict.get(keyOf(key)) ?? null,
  get_default: (dict, { key }) => dict.get(keyOf(key)) ?? 'dflt',
  contains: (dict, { key }) => dict.has(keyOf(key)),
  keys: (dict, { kwargs }) => keysOf(dict, Object.fromEntries(kwargs.$dict)),
  len: (dict) => dict.batchSize[0] ?? 0,
  numel: (dict) => [
    dict.batchSize.reduce((product, length) => product * length, 1),
    dict.batchSize.length,
    [...dict.batchSize],
  ],
  eq: (dict) => dict.equals(dict.select(dict.keys())),
  empty: (dict) => TensorDict.from({}, { batchSize: dict.batchSize }),
  clone_shallow: (dict) => dict.select(dict.keys()),
  to_tensordict: (dict) => dict.select(dict.keys()),
  from_dict: bare,
  from_dict_auto: (dict) => bare(dict).autoBatchSize(),
  roll: (dict, { args: [shift, dim] }) => dict.roll(shift, dim),
  flip: (dict, { args: [dim] }) => dict.flip(dim),
  select: (dict, { keys, strict }) => (strict === false ? SKIP : dict.select(keys.map(keyOf))),
  exclude: (dict, { keys }) => dict.exclude(keys.map(keyOf)),
  index: (dict, { index }) => (typeof index === 'string' ? dict.get(index) : dict.at(...indexOf(index))),
  reshape: (dict, { args }) => dict.reshape(args),
  view: (dict, { args }) => dict.view(args),
  flatten: (dict, { args }) => dict.flatten(...args),
  unflatten: (dict, { args: [dim, { $tuple: sizes }] }) => dict.unflatten(dim, sizes),
  permute: (dict, { args }) => dict.permute(args),
  transpose: (dict, { args }) => dict.transpose(...args),
  unsqueeze: (dict, { args: [dim] }) => dict.unsqueeze(dim),
  squeeze: (dict, { args: [dim] }) => dict.squeeze(dim),
  expand: (dict, { args }) => dict.expand(args),
  repeat: (dict, { args }) => dict.repeat(args),
  repeat_interleave: (dict, { args: [count], dim }) => dict.repeatInterleave(count, dim),
  split: (dict, { args: [size, dim] }) => dict.split(size, dim),
  chunk: (dict, { args: [count, dim] }) => dict.chunk(count, dim),
  unbind: (dict, { args: [dim] }) => dict.unbind(dim),
  gather: (dict, { dim, index }) => dict.gather(dim, tensorOf(index)),
  masked_select: (dict, { mask }) => dict.maskedSelect(tensorOf(mask)),
  masked_fill: (dict, { mask, value }) => dict.maskedFill(tensorOf(mask), value),
  pad: (dict, { pad_size: sizes, value }) => dict.pad(pairsOf(sizes), value),
  flatten_keys: (dict, { sep }) => dict.flattenKeys(sep),
  unflatten_keys: (dict, { sep }) => (dict.has('b') ? dict.flattenKeys() : dict).unflattenKeys(sep),
  pad_sequence: (_, { items, kwargs }) => {
    const { padding_value: value, return_mask: mask, pad_dim: dim } = Object.fromEntries(kwargs.$dict)
    const options = { value, mask: mask === true ? 'masks' : mask }
    return dim ? SKIP : TensorDict.padSequence(items.map(dictOf), options)
  },
  stack: (_, { items, dim }) => (dim < 0 ? SKIP : TensorDict.stack(items.map(dictOf), dim)),
  cat: (_, { items, dim }) => (dim < 0 ? SKIP : TensorDict.cat(items.map(dictOf), dim)),
}

/** Operations that change the dictionary itself. */
const CHANGES = {
  del: (dict, { key }) => removed(dict, key),
  locked_set_new: (dict) => dict.lock().set('fresh', TensorDict.from()),
  locked_set_existing: (dict) => dict.lock().set('a', TensorDict.from()),
  locked_nested_set: (dict) => dict.lock().set(['b', 'fresh'], TensorDict.from()),
  locked_del: (dict) => dict.lock().delete('a'),
  locked_pop: (dict) => dict.lock().delete('a'),
  locked_rename: (dict) => dict.lock().rename('a', 'z'),
  locked_update: (dict) => dict.lock().update(TensorDict.from()),
  set: (dict, { key, value }) => dict.set(keyOf(key), entryOf(value, dict.batchSize)),
  setitem_key: (dict, { key, value }) => dict.set(keyOf(key), entryOf(value, dict.batchSize)),
  rename_key_: (dict, { old, new: key, kwargs }) =>
    dict.rename(keyOf(old), keyOf(key), Object.fromEntries(kwargs.$dict)),
  setitem_index: (dict, { index, value }) =>
    value?.$td === undefined ? SKIP : dict.setAt(indexOf(index), dictOf(value)),
  update: (dict, { value }) => dict.update(filled(value.$dict, dict.batchSize)),
}

/** Operations of programs, which give the next value. */
const STEPS = {
  clone: (dict) => dict.select(dict.keys()),
  set: (dict, { key }) => dict.select(dict.keys()).set(key, numbered(dict.batchSize)),
  mask: (dict, { mask }) => dict.at(mask),
  index: (dict, { arg }) => dict.at(arg),
  slice: (dict, { arg, dim }) => dict.at(...Array.from({ length: dim ?? 0 }, () => ({})), ...indexOf(arg)),
  cat: (dict, { dim }) => TensorDict.cat([dict, dict], dim),
  stack: (dict, { dim }) => TensorDict.stack([dict, dict], dim),
  select: (dict, { keys }) => dict.select(keys.map(keyOf)),
  flatk: (dict) => dict.flattenKeys(),
  expand: (dict, { shape }) => dict.expand(shape),
  reshape: (dict, { shape }) => dict.reshape(shape),
  perm: (dict, { dims }) => dict.permute(dims),
  unsq: (dict, { dim }) => dict.unsqueeze(dim),
  split: (dict, { size, dim, take }) => dict.split(size, dim)[take],
  rename: (dict, { old, new: key }) => dict.select(dict.keys()).rename(old, key),
}

/** Where Fulmar differs on purpose. */
const RULES = [
  {
    name: 'below a tensor there is nothing, and no error',
    applies: ({ error }) => error?.msg.startsWith('Expected a TensorDictBase instance') === true,
  },
  {
    name: 'JSON values are leaves',
    applies: ({ topic, args }) =>
      topic === 'keys' && args.kwargs.$dict.some(([name, on]) => name === 'leaves_only' && on),
  },
  {
    name: 'a batch without dimensions has none to index or to repeat',
    applies: ({ topic, input, args }) =>
      input?.$td.length === 0 &&
      (['repeat', 'repeat_interleave'].includes(topic) ||
        (topic === 'index' && args.index?.$slice !== undefined) ||
        topic === 'setitem_index'),
  },
  {
    name: 'features of another shape are refused and not spread',
    applies: ({ topic, args }) => topic === 'setitem_index' && args.value?.k?.a?.s.length === 0,
  },
  {
    name: 'an order names every dimension',
    applies: ({ topic, input, args }) => topic === 'permute' && args.args.length < input.$td.length,
  },
  {
    name: 'a JSON value stays when a batch is reshaped',
    applies: ({ topic, final }) => topic === 'program' && Object.keys(final.k?.s?.k ?? { s: 0 }).length === 0,
  },
]

const SKIP = Symbol('no such operation')

/** The same entries without batch sizes, as a Python dictionary gives them. */
function bare(dict) {
  const entries = TensorDict.from()
  for (const key of dict.leafKeys()) entries.set(key, dict.get(key))
  return entries
}

/** The entry at `key`, or what Fulmar says of a missing one. */
function found(dict, key) {
  return dict.get(keyOf(key)) ?? dict.tensor(keyOf(key))
}

/** Without the entry at `key`, or what Fulmar says of a missing one. */
function removed(dict, key) {
  found(dict, key)
  dict.delete(keyOf(key))
}

function keysOf(dict, { include_nested: nested = false, leaves_only: leaves = false, ...others }) {
  if (Object.keys(others).length > 0) return SKIP
  if (!nested) return dict.keys().filter((name) => !leaves || !(dict.get([name]) instanceof TensorDict))
  return (leaves ? dict.leafKeys() : dict.nestedKeys()).map((path) => (path.length === 1 ? path[0] : path))
}

/** What Python has and JSON or Fulmar has not. */
class Foreign extends Error {}

export const tensordict = {
  topic: 'tensordict',
  matches: ({ topic, input, args, steps }) =>
    typeof topic === 'string' && input !== undefined && (args !== undefined || Array.isArray(steps)),
  prepare: () => undefined,
  check: ({ value: row }) => {
    try {
      const difference = row.topic === 'program' ? ofProgram(row) : ofOperation(row)
      const rule = difference === undefined ? undefined : RULES.find(({ applies }) => applies(row))
      return rule === undefined ? difference : { byDecision: rule.name }
    } catch (error) {
      if (error instanceof Foreign) return { skipped: error.message }
      throw error
    }
  },
}

function ofOperation({ topic, input, args, ok, error, input_after: after }) {
  const run = MAKES[topic] ?? CHANGES[topic]
  if (run === undefined) throw new Foreign(`the operation ${topic}`)
  const dict = input === null ? undefined : dictOf(input)
  const got = attempt(() => run(dict, args))
  if (got.value === SKIP) throw new Foreign(`a form of the operation ${topic}`)
  if (error !== undefined) return got.error === undefined ? `must be refused: ${error.msg}` : undefined
  if (got.error !== undefined) return `must succeed: ${got.error.message}`
  const same = ok?.$same === true || topic in CHANGES
  const want = topic in CHANGES ? (after ?? input) : same ? input : ok
  return differenceOf(plain(topic in CHANGES ? dict : got.value, dict?.batchSize), wanted(want))
}

function ofProgram({ input, steps, final }) {
  let dict = dictOf(input)
  for (const [at, step] of steps.entries()) {
    const run = STEPS[step.op]
    if (run === undefined) throw new Foreign(`the step ${step.op}`)
    const { value, error } = attempt(() => run(dict, step))
    if ((error === undefined) !== (step.error === undefined))
      return `step ${at}: ${error?.message ?? 'must be refused'}`
    dict = value ?? dict
  }
  return differenceOf(plain(dict), wanted(final))
}

function attempt(run) {
  try {
    return { value: run() }
  } catch (error) {
    if (error instanceof Foreign || error.code === undefined) throw error
    return { error }
  }
}

function differenceOf(got, want) {
  return isDeepStrictEqual(got, want) ? undefined : `got ${show(got)}, expected ${show(want)}`
}

function show(value) {
  return JSON.stringify(value, (_, part) => (typeof part === 'bigint' ? Number(part) : part)).slice(0, 300)
}

function wanted(value) {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map(wanted)
  if (value.$tuple?.every((part) => typeof part === 'string')) return value.$tuple
  if (value.$tuple) return value.$tuple.map((part) => plain(dictOf(part)))
  return plain(value.$td ? dictOf(value) : entryOf(value, value.b ?? []), value.b)
}

/** A dictionary, or several, an entry of a batch of `batchSize`, or what JSON says, as plain objects. */
function plain(dict, batchSize = []) {
  if (dict === null || typeof dict !== 'object') return dict
  if (Array.isArray(dict)) return dict.map((part) => plain(part))
  if (dict instanceof Tensor) return [dict.dtype, [...dict.shape], [...dict.data]]
  if (dict instanceof NonTensorData) return spread(dict.value, batchSize)
  if (dict instanceof NonTensorStack) return dict.values
  const entries = dict.keys().map((name) => {
    const entry = dict.get([name])
    if (entry instanceof TensorDict) return [name, plain(entry)]
    if (entry instanceof Tensor) return [name, [entry.dtype, [...entry.shape], [...entry.data]]]
    return [name, entry instanceof NonTensorData ? spread(entry.value, dict.batchSize) : entry.values]
  })
  return { batchSize: [...dict.batchSize], entries: Object.fromEntries(entries) }
}

function numbered(shape) {
  const count = shape.reduce((product, length) => product * length, 1)
  return Tensor.from(
    BigInt64Array.from({ length: count }, (_, at) => BigInt(at)),
    { shape },
  )
}

function spread(value, [length, ...rest]) {
  return length === undefined ? value : Array.from({ length }, () => spread(value, rest))
}

function dictOf(value) {
  if (value?.$td === undefined) throw new Foreign('an input of another kind')
  if (value.$td.includes(-1)) throw new Foreign('a batch size that says how long it is')
  return filled(Object.entries(value.k), value.$td)
}

function filled(pairs, batchSize) {
  const dict = TensorDict.from({}, { batchSize })
  for (const [key, value] of pairs) dict.set(keyOf(key), entryOf(value, batchSize))
  return dict
}

function entryOf(value, batchSize) {
  if (value?.$t) return tensorOf(value)
  if (value?.$td) return dictOf(value)
  if (value?.$dict) return filled(value.$dict, batchSize)
  if (typeof value === 'string') return new NonTensorData(value)
  if (value?.$nts) return new NonTensorStack(value.$nts)
  if (value !== null && typeof value === 'object' && '$nt' in value) return new NonTensorData(value.$nt)
  throw new Foreign('a value that Python converts')
}

function tensorOf({ $t: type, s: shape, d: elements }) {
  if (type === 'bool') return Tensor.from(Uint8Array.from(elements), { shape, dtype: 'bool' })
  if (ARRAYS[type] === undefined) throw new Foreign(`the dtype ${type}`)
  const numbers = type === 'int64' ? elements.map(BigInt) : elements.map(Number)
  return Tensor.from(ARRAYS[type].from(numbers), { shape, dtype: DTYPES[type] })
}

function keyOf(key) {
  const path = key.$tuple ?? key
  if ([path].flat().every((name) => typeof name === 'string')) return path
  throw new Foreign('a key that is no path of names')
}

const indexOf = (index) => (index?.$tuple ?? [index]).map(itemOf)

function itemOf(item) {
  if (item === null || typeof item !== 'object' || Array.isArray(item)) return item
  if (item.$ellipsis) return '...'
  if (item.$slice) {
    const named = Object.entries({ start: item.$slice[0], stop: item.$slice[1], step: item.$slice[2] })
    return Object.fromEntries(named.filter(([, bound]) => bound !== null))
  }
  if (item.$range)
    return Array.from({ length: item.$range[1] - item.$range[0] }, (_, at) => item.$range[0] + at)
  return tensorOf(item.$np ? { ...item, $t: item.$np } : item)
}

function pairsOf(sizes) {
  if (sizes.length % 2 === 1) throw new Foreign('half a pair, which cannot be written down')
  return Array.from({ length: sizes.length / 2 }, (_, at) => [sizes[2 * at], sizes[2 * at + 1]])
}
