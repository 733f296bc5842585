/**
 * Compares `TensorDict` with what tensordict printed: one operation a row, or a program of them.
 *
 * A JSON value that a batch shares equals one that stands at each of its elements: upstream makes the one of the other
 * as it goes. Of a refusal only the fact counts.
 */

import { isDeepStrictEqual } from 'node:util'
import {
  LazyStack,
  lazyStack,
  maybeDenseStack,
  NonTensorData,
  NonTensorStack,
  Ragged,
  Tensor,
  TensorDict,
  unravelKey,
} from 'fulmar'
import { RAGGED } from './tensordict-ragged.mjs'

const ARRAYS = { float64: Float64Array, float32: Float32Array, int32: Int32Array, int64: BigInt64Array }
const DTYPES = { float64: 'f64', float32: 'f32', int32: 'i32', int64: 'i64', bool: 'bool' }

/** What an operation makes of a dictionary and the row's arguments. */
const MAKES = {
  construct: (_, { source, batch_size: sizes }) => filled(source.$dict, sizes ?? []),
  getitem_key: (dict, { key }) => {
    if (typeof key === 'number') return dict.at(key)
    const entry = found(dict, key)
    return entry instanceof NonTensorData ? entry.value : entry
  },
  get: (dict, { key }) => dict.get(keyOf(key)) ?? null,
  get_default: (dict, { key }) => dict.get(keyOf(key)) ?? 'dflt',
  get_at: (dict, { key, index, default: otherwise }) =>
    dict.has(keyOf(key)) ? dict.tensor(keyOf(key)).at(...indexOf(index)) : otherwise,
  contains: (dict, { key }) => dict.has(keyOf(key)),
  keys: (dict, { kwargs }) => keysOf(dict, optionsOf(kwargs)),
  sort_keys: (dict) => dict.keys().sort(),
  unravel_key: (_, { key }) =>
    key === undefined
      ? ['a', ['a'], ['a', 'b'], ['a', ['b']], [['a', ['b', 'c']], 'd']].map(unravelKey)
      : unravelKey(keyOf(key)),
  len: (dict) => dict.batchSize[0] ?? 0,
  bytes: (dict) => dict.sizeBytes,
  numel: (dict) => [
    dict.batchSize.reduce((product, length) => product * length, 1),
    dict.batchSize.length,
    [...dict.batchSize],
  ],
  eq: (dict) => dict.equals(dict.clone()),
  empty: (dict) => TensorDict.from({}, { batchSize: dict.batchSize }),
  empty_recurse: (dict) => dict.structure(),
  is_empty: (dict) =>
    [dict, TensorDict.from(), TensorDict.from({ n: TensorDict.from() })].map(
      (one) => one.leafKeys().length === 0,
    ),
  clone_shallow: (dict) => dict.clone(),
  to_tensordict: (dict) => dict.clone(),
  to_dict: bare,
  from_dict: bare,
  from_dict_auto: (dict) => bare(dict).autoBatchSize(),
  state_dict: (dict) => Object.keys(dict.stateDict()),
  roll: (dict, { args: [shift, dim] }) => dict.roll(shift, dim),
  flip: (dict, { args: [dim] }) => dict.flip(dim),
  select: (dict, { keys, strict }) => dict.select(keys.map(keyOf), { strict: strict ?? true }),
  exclude: (dict, { keys }) => dict.exclude(keys.map(keyOf)),
  split_keys: (dict, { sets }) => dict.splitKeys(...sets.map((keys) => keys.map(keyOf))),
  index: (dict, { index }) => (typeof index === 'string' ? dict.get(index) : dict.at(...indexOf(index))),
  reshape: (dict, { args }) => dict.reshape(args),
  view: (dict, { args }) => dict.view(args),
  flatten: (dict, { args }) => dict.flatten(...args),
  unflatten: (dict, { args: [dim, { $tuple: sizes }] }) => dict.unflatten(dim, sizes),
  permute: (dict, { args }) => dict.permute(args),
  transpose: (dict, { args }) => dict.transpose(...args),
  unsqueeze: (dict, { args: [dim] }) => dict.unsqueeze(dim),
  squeeze: (dict, { args: [dim] }) => dict.squeeze(dim),
  unsqueeze_squeeze: (dict) => dict.unsqueeze(0).squeeze(0),
  expand: (dict, { args }) => dict.expand(args),
  repeat: (dict, { args }) => dict.repeat(args),
  repeat_interleave: (dict, { args: [count], dim }) => dict.repeatInterleave(count, dim),
  split: (dict, { args: [size, dim] }) => dict.split(size, dim),
  chunk: (dict, { args: [count, dim] }) => dict.chunk(count, dim),
  unbind: (dict, { args: [dim] }) => dict.unbind(dim),
  gather: (dict, { dim, index }) => dict.gather(dim, tensorOf(index)),
  masked_select: (dict, { mask }) => dict.maskedSelect(tensorOf(mask)),
  masked_fill: (dict, { mask, value }) => dict.maskedFill(tensorOf(mask), value),
  where: (dict, { mask }) => dict.where(tensorOf(mask), dict.zerosLike()),
  pad: (dict, { pad_size: sizes, value }) => dict.pad(pairsOf(sizes), value),
  flatten_keys: (dict, { sep }) => dict.flattenKeys(sep),
  unflatten_keys: (dict, { sep }) => (dict.has('b') ? dict.flattenKeys() : dict).unflattenKeys(sep),
  sum: (dict) => dict.sum(),
  sum0: (dict) => dict.sum(0),
  to_f64: (dict) => dict.to('f64'),
  to_i32: (dict) => dict.to('i32'),
  apply: (dict) => dict.apply((tensor) => withEach(tensor, (x) => x + 1)),
  apply_none: (dict) => dict.apply(() => undefined) ?? null,
  apply_none_keep: (dict) => dict.apply(() => undefined, { keepEmpty: true }),
  apply_some: (dict) => dict.apply(floats),
  apply_some_keep: (dict) => dict.apply(floats, { keepEmpty: true }),
  apply_two: (dict) =>
    dict.apply((tensor, key) => {
      const right = dict.tensor(key).toFloat32()
      const sums = tensor.toFloat32().map((left, at) => left + right[at])
      return Tensor.from(sums, { shape: tensor.shape })
    }),
  apply_bs: (dict) => dict.apply((tensor) => tensor.sum(), { batchSize: [] }),
  named_apply: (dict) => dict.apply((tensor) => withEach(tensor, () => 1)),
  named_apply_nested: (dict) =>
    dict.apply((tensor, key) => withEach(tensor, () => (key.length === 1 ? -1 : key.length))),
  pad_sequence: (_, { items, kwargs }) => {
    const { padding_value: value, return_mask: mask, pad_dim: dim } = optionsOf(kwargs)
    const given = { dim, value, mask: mask === true ? 'masks' : mask }
    return TensorDict.padSequence(items.map(dictOf), given)
  },
  stack: (_, { items, dim }) => TensorDict.stack(items.map(dictOf), dim),
  cat: (_, { items, dim }) => TensorDict.cat(items.map(dictOf), dim),
  stack_keys_differ: (_, { items }) => TensorDict.stack(two(items, 2)),
  stack_bs_differ: (_, { items }) => TensorDict.stack(two(items, 3)),
  cat_keys_differ: (_, { items }) => TensorDict.cat(two(items, 2)),
  cat_bs_differ: (_, { items }) => TensorDict.cat(two(items, 3)),
  stack_empty: () => TensorDict.stack([]),
  cat_empty: () => TensorDict.cat([]),
  lazy_stack: (_, { items, dim }) => lazyStack(items.map(dictOf), dim),
  lazy_keys_differ: (_, { items }) => lazyStack(two(items, 2)),
  lazy_keys: (_, { items }) => lazyStack(two(items, 2)).keys(),
  maybe_dense_keys: (_, { items }) => maybeDenseStack(two(items, 2)),
  maybe_dense_ok: (_, { items }) => maybeDenseStack(two(items, 1)),
  stack_nontensor: () => stackedValues('a', 'a'),
  stack_nontensor2: () => stackedValues('a', 2),
  nontensor_get: (dict) => dict.get('s'),
  nontensor_item: (dict) => dict.value('s'),
  nontensor_index: (dict) => dict.index(1).value('s'),
  nontensor_tolist: (dict) => spread(dict.value('s'), dict.batchSize),
  nontensor_stack: (dict) => TensorDict.stack([dict, dict]),
  nontensor_cat: (dict) => TensorDict.cat([dict, dict]),
  nontensor_reshape: (dict) => dict.reshape([3, 1]),
  nontensor_expand: (dict) => dict.expand([2, 3]),
  nontensor_gather_idx: (dict) => dict.at([2, 0]),
  nontensorstack_item: (dict) => dict.value('l'),
  nontensorstack_index: (dict) => dict.index(1).value('l'),
  nontensorstack_slice: (dict) => dict.slice(1, 3),
  nontensorstack_mask: (dict) => dict.at([true, false, true]),
  nontensorstack_tolist: (dict) => dict.value('l'),
  nontensorstack_cat: (dict) => TensorDict.cat([dict, dict]),
  nontensorstack_unsqueeze: (dict) => dict.unsqueeze(-1),
  locked_empty: (dict) => TensorDict.from({}, { batchSize: dict.lock().batchSize }),
  locked_select: (dict) => dict.lock().select(['a']).isLocked,
  locked_is_locked: (dict) => [dict.lock(), dict.dict('b'), dict.select(['a'])].map((one) => one.isLocked),
  locked_unlock: (dict) => [dict.lock().unlock(), dict.dict('b')].map((one) => one.isLocked),
  lock_context: (dict) => [dict.lock().isLocked, dict.unlock().isLocked],
}

/** Operations that upstream does in place and Fulmar gives anew. */
const REPLACES = {
  select_inplace: MAKES.select,
  exclude_inplace: MAKES.exclude,
  masked_fill_: MAKES.masked_fill,
  zero_: (dict) => dict.zerosLike(),
  apply_: (dict) => dict.zerosLike(),
  auto_batch_size_: (dict, { n }) => dict.autoBatchSize(n),
  bs_set: (dict, _, error) => {
    // What was set, upstream says in its refusals alone.
    const said = error?.msg.slice(error.msg.lastIndexOf('torch.Size([') + 12).split(']')[0]
    return dict.withBatchSize(said ? said.split(', ').map(Number) : [])
  },
  locked_batch_size: (dict) => dict.lock().withBatchSize([]),
}

/** Operations that change the dictionary itself. */
const CHANGES = {
  del: (dict, { key }) => removed(dict, key),
  pop: (dict, { key, default: otherwise }) => {
    if (otherwise === undefined) found(dict, key)
    return dict.pop(keyOf(key)) ?? otherwise
  },
  set: (dict, { key, value }) => dict.set(keyOf(key), given(value, dict.batchSize)),
  set_: (dict, { key, value }) => {
    const entry = given(value, dict.batchSize)
    if (entry instanceof Tensor) dict.write(keyOf(key), entry)
    else found(dict, key)
  },
  set_at_: (dict, { key, index, value }) => {
    const { dtype } = dict.tensor(keyOf(key))
    dict.writeAt(keyOf(key), indexOf(index), Tensor.from([value], { shape: [] }).to(dtype))
  },
  setitem_key: (dict, { key, value }) => dict.set(keyOf(key), given(value, dict.batchSize)),
  rename_key_: (dict, { old, new: key, kwargs }) => dict.rename(keyOf(old), keyOf(key), optionsOf(kwargs)),
  setitem_index: (dict, { index, value }) =>
    typeof value === 'number'
      ? dict.fillAt(indexOf(index), value)
      : dict.setAt(indexOf(index), dictOf(value)),
  update: (dict, { value }) => dict.update(filled(value.$dict, dict.batchSize)),
  update_: (dict, { value }) => dict.writeAll(filled(value.$dict, dict.batchSize)),
  update_keys: (dict) => dict.update(dict.zerosLike().select(['a'])),
  state_dict_roundtrip: (dict) => dict.zerosLike().loadStateDict(dict.stateDict()),
  names: (dict, _, __, note) => {
    if (note === 'too many') dict.names = ['x', 't', 'z']
    else dict.names = note ? dict.batchSize.map(() => 'x') : ['x', 't'].slice(0, dict.batchSize.length)
  },
  refine_names: (dict) => dict.refineNames('...', 'time'),
  names_index: (dict) => {
    dict.names = ['x', 't'].slice(0, dict.batchSize.length)
    return [dict.index(0), dict.unsqueeze(0), dict.unsqueeze(-1)].map(({ names }) => [...names])
  },
  locked_set_new: (dict) => dict.lock().set('fresh', TensorDict.from()),
  locked_set_existing: (dict) => dict.lock().set('a', TensorDict.from()),
  locked_set_: (dict) => dict.lock().write('a', Tensor.zeros(dict.tensor('a').dtype, [])),
  locked_set_inplace: (dict) => dict.lock().write('a', Tensor.zeros(dict.tensor('a').dtype, [])),
  locked_update_: (dict) => dict.lock().writeAll(dict.zerosLike().select(['a'])),
  locked_setitem: (dict) => dict.lock().setAt([], dict.clone()),
  locked_nested_set: (dict) => dict.lock().set(['b', 'fresh'], TensorDict.from()),
  locked_sub_unlock: (dict) => dict.lock().dict('b').unlock(),
  locked_del: (dict) => dict.lock().delete('a'),
  locked_pop: (dict) => dict.lock().delete('a'),
  locked_rename: (dict) => dict.lock().rename('a', 'z'),
  locked_update: (dict) => dict.lock().update(TensorDict.from()),
  nontensor_set_row: (dict) => {
    const row = TensorDict.from({
      s: new NonTensorData('y'),
      v: Tensor.from(BigInt64Array.of(9n), { shape: [] }),
    })
    dict.setAt([0], row)
  },
  nontensor_set_view: (dict) => dict.index(0).set('s', new NonTensorData('y')),
  nontensor_set_list: (dict) => dict.set('l', new NonTensorStack(['p', 'q', 'r'])),
  nontensor_set_list_bad: (dict) => dict.set('l', new NonTensorStack(['p', 'q'])),
  nontensor_update: (dict) =>
    dict.update(TensorDict.from({ s: new NonTensorData('new') }, { batchSize: [3] })),
}

/** Operations of programs, which give the next value. */
const STEPS = {
  clone: (dict) => dict.clone(),
  set: (dict, { key }) => dict.clone().set(key, numbered(dict.batchSize)),
  apply: (dict) => dict.apply((tensor) => withEach(tensor, (x) => x * 2)),
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
  rename: (dict, { old, new: key }) => dict.clone().rename(old, key),
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
    name: 'an entry that is missing cannot be written in place, however deep its key',
    applies: ({ topic, args, ok }) => topic === 'set_' && args.key.$tuple !== undefined && ok !== undefined,
  },
  {
    name: 'features of another shape are refused and not spread',
    applies: ({ topic, args }) => topic === 'setitem_index' && args.value?.k?.a?.s.length === 0,
  },
  {
    name: 'a batch without dimensions has no positions, and can be written whole',
    applies: ({ topic, input }) =>
      input?.$td?.length === 0 && ['repeat', 'repeat_interleave', 'index', 'setitem_index'].includes(topic),
  },
  {
    name: 'a number is written to tensors, in the dtype of each, and JSON values stay',
    applies: ({ topic, args }) => topic === 'setitem_index' && typeof args.value === 'number',
  },
  {
    name: 'an order names every dimension',
    applies: ({ topic, input, args }) => topic === 'permute' && args.args.length < input.$td.length,
  },
  {
    name: 'a JSON value stays when a batch is reshaped',
    applies: ({ topic, final }) => topic === 'program' && Object.keys(final.k?.s?.k ?? { s: 0 }).length === 0,
  },
  {
    name: 'a batch size that is counted anew is never longer than it was told',
    applies: ({ topic, input, args }) => topic === 'auto_batch_size_' && args.n < input.$td.length,
  },
  {
    name: 'a stack along a dimension that it cannot have is refused',
    applies: ({ topic, args }) => ['stack', 'lazy_stack'].includes(topic) && (args.dim > 1 || args.dim < -2),
  },
  {
    name: 'a batch size says how long it is, where upstream leaves -1 in it',
    applies: ({ topic, ok }) => topic === 'unflatten' && ok?.$td.includes(-1) === true,
  },
  {
    name: 'a state can be loaded into the dictionary that gave it',
    applies: ({ topic }) => topic === 'state_dict_roundtrip',
  },
  {
    name: 'dtypes are never promoted: what is chosen between must have one',
    applies: ({ topic }) => topic === 'where',
  },
  {
    name: 'what is taken out of a dictionary is one of its own, which unlocks nothing else',
    applies: ({ topic }) => topic === 'locked_sub_unlock',
  },
]

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

function keysOf(dict, { include_nested: nested = false, leaves_only: leaves = false, sort = false }) {
  if (!nested) return dict.keys().filter((name) => !leaves || !(dict.get([name]) instanceof TensorDict))
  const paths = leaves ? dict.leafKeys() : dict.nestedKeys()
  if (sort) paths.sort()
  return paths.map((path) => (path.length === 1 ? path[0] : path))
}

const optionsOf = (kwargs) => Object.fromEntries(kwargs.$dict)

const two = (items, other) => [dictOf(items[0]), dictOf(items[other])]

const floats = (tensor) => (tensor.dtype === 'f32' ? tensor : undefined)

/** Python's arithmetic with a number: integers stay integers, bools become them. */
function withEach(tensor, to) {
  const numbers = Float64Array.from(tensor.data, (x) => to(Number(x)))
  return Tensor.from(numbers, { shape: tensor.shape }).to(tensor.dtype === 'bool' ? 'i64' : tensor.dtype)
}

/** JSON values, stacked as entries are. */
function stackedValues(...values) {
  return TensorDict.stack(values.map((value) => TensorDict.from({ v: new NonTensorData(value) }))).get('v')
}

export const tensordict = {
  topic: 'tensordict',
  matches: ({ topic, input, args, steps }) =>
    typeof topic === 'string' && input !== undefined && (args !== undefined || Array.isArray(steps)),
  prepare: () => undefined,
  check: ({ value: row }) => {
    const difference = row.topic === 'program' ? ofProgram(row) : ofOperation(row)
    const rule = difference === undefined ? undefined : RULES.find(({ applies }) => applies(row))
    return rule === undefined ? difference : { byDecision: rule.name }
  },
}

function ofOperation(row) {
  const { topic, input, args, ok, error, input_after: after, note } = row
  const run = MAKES[topic] ?? REPLACES[topic] ?? CHANGES[topic] ?? RAGGED[topic]
  if (run === undefined) return `there is no answer to ${topic}`
  const dict = input === null ? undefined : collectionOf(input)
  const got = attempt(() => run(dict, args, error, note))
  if (dict && !(topic in REPLACES)) {
    const changed = differenceOf(plain(dict), plain(collectionOf(error ? input : (after ?? input))))
    if (changed) return `the input: ${changed}`
  }
  if (error !== undefined) return got.error === undefined ? `must be refused: ${error.msg}` : undefined
  if (got.error !== undefined) return `must succeed: ${got.error.message}`
  if (topic in REPLACES) return differenceOf(plain(got.value), plain(collectionOf(after ?? input)))
  const gives = topic in MAKES || topic in RAGGED || ['pop', 'names_index'].includes(topic)
  if (ok?.$same || got.value === dict || !gives) return undefined
  return differenceOf(plain(got.value, dict?.batchSize), wanted(ok))
}

function ofProgram({ input, steps, final }) {
  let dict = dictOf(input)
  for (const [at, step] of steps.entries()) {
    const run = STEPS[step.op]
    if (run === undefined) return `there is no answer to the step ${step.op}`
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
    if (error.code === undefined) throw error
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
  if (value.$tuple) return value.$tuple.map(wanted)
  if (value.$lazy !== undefined) return plain(collectionOf(value))
  if (value.$td?.includes(-1)) return 'a batch size that does not say how long it is'
  return plain(value.$td ? dictOf(value) : entryOf(value, value.b ?? []), value.b)
}

/** A dictionary, or several, an entry of a batch of `batchSize`, or what JSON says, as plain objects. */
function plain(dict, batchSize = []) {
  if (dict === null || typeof dict !== 'object') return dict
  if (Array.isArray(dict)) return dict.map((part) => plain(part))
  if (dict instanceof Tensor) return [dict.dtype, [...dict.shape], [...dict.data]]
  if (dict instanceof Ragged) return [plain(dict.values), [...dict.offsets]]
  if (dict instanceof LazyStack) return { dim: dict.dim, batchSize: dict.batchSize, parts: plain(dict.parts) }
  if (dict instanceof NonTensorData) return spread(dict.value, batchSize)
  if (dict instanceof NonTensorStack) return dict.values
  const entries = dict.keys().map((name) => [name, plain(dict.get([name]), dict.batchSize)])
  return { batchSize: [...dict.batchSize], names: dict.names, entries: Object.fromEntries(entries) }
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

/** A dictionary or a stack. */
function collectionOf(value) {
  return value.$lazy === undefined ? dictOf(value) : lazyStack(value.items.map(dictOf), value.$lazy)
}

function dictOf({ $td: batchSize, k: entries, names }) {
  const dict = filled(Object.entries(entries), batchSize)
  if (names) dict.names = names
  return dict
}

function filled(pairs, batchSize) {
  const dict = TensorDict.from({}, { batchSize })
  for (const [key, value] of pairs) dict.set(keyOf(key), entryOf(value, batchSize))
  return dict
}

/** The value of a call; a number is a float there, whose fraction JSON may have dropped. */
function given(value, batchSize) {
  return typeof value === 'number' ? Tensor.from([value], { shape: [] }) : entryOf(value, batchSize)
}

/** What Python makes of a value: of numbers, bools and lists of numbers a tensor. */
function entryOf(value, batchSize) {
  if (value?.$t ?? value?.$np) return tensorOf(value)
  if (value?.$td) return dictOf(value)
  if (value?.$dict) return filled(value.$dict, batchSize)
  if (value?.$njt) return Ragged.fromRows(value.$njt.map(tensorOf))
  if (value?.$nts) return new NonTensorStack(value.$nts)
  if (value !== null && typeof value === 'object' && '$nt' in value) return new NonTensorData(value.$nt)
  if (typeof value === 'boolean') return Tensor.from([Number(value)], { shape: [], dtype: 'bool' })
  if (typeof value === 'number') {
    return Tensor.from([value], { shape: [], dtype: Number.isInteger(value) ? 'i64' : 'f32' })
  }
  if (!Array.isArray(value)) return new NonTensorData(value)
  if (value.every((item) => typeof item === 'number')) return Tensor.from(BigInt64Array.from(value, BigInt))
  return new NonTensorStack(value)
}

function tensorOf({ $t, $np, s: shape, d: elements }) {
  const type = $t ?? $np
  if (type === 'bool') return Tensor.from(Uint8Array.from(elements), { shape, dtype: 'bool' })
  const numbers = type === 'int64' ? elements.map(BigInt) : elements.map(Number)
  return Tensor.from(ARRAYS[type].from(numbers), { shape, dtype: DTYPES[type] })
}

/** Nested lists of names, or whatever else a key is said to be. */
function keyOf(key) {
  const path = key?.$tuple ?? key
  return Array.isArray(path) ? path.map(keyOf) : path
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
  return tensorOf(item)
}

/** Half a pair stays one, and is refused. */
function pairsOf(sizes) {
  return Array.from({ length: Math.ceil(sizes.length / 2) }, (_, at) => [sizes[2 * at], sizes[2 * at + 1]])
}
