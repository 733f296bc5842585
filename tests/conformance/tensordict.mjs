/**
 * Compares `TensorDict` with what tensordict printed: one operation a row, or a program of them.
 *
 * A JSON value that a batch shares equals the same value at each of its elements: upstream makes the one of the other
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
} from 'fulmar/tensor'
import { DTYPES } from './dtypes.mjs'
import { RAGGED } from './tensordict-ragged.mjs'

const ARRAYS = { float64: Float64Array, float32: Float32Array, int32: Int32Array, int64: BigInt64Array }

/** Applies an operation to a dictionary and the row's arguments. */
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

const isNumber = (value) => typeof value === 'number'
const hasNoBatch = ({ input }) => input?.$td?.length === 0
const failed = ({ error }) => (error === undefined ? 'the original fails' : undefined)
const refused = ({ error }) => (error === undefined ? 'must be refused' : undefined)
const isItself = ({ ok }) => (ok?.$same ? undefined : 'the original gives the dictionary itself')
const unchanged = (row, { dict }) => differenceOf(plain(dict), wanted(row.input))

/**
 * Intended differences: `theirs` is the first difference of a row from the result of the original's rule, `ours` that of our answer
 * from what the rule implies.
 */
const RULES = [
  {
    name: 'below a tensor there is nothing, and no error',
    applies: ({ topic, args, input }) =>
      ['get', 'get_default'].includes(topic) && isBelowTensor(input, args.key?.$tuple ?? []),
    theirs: failed,
    ours: ({ topic }, { value }) => differenceOf(value, { get: null, get_default: 'dflt' }[topic]),
  },
  {
    name: 'JSON values are leaves',
    applies: ({ topic, args }) => topic === 'keys' && optionsOf(args.kwargs).leaves_only === true,
    theirs: ({ ok }, { value, dict }) =>
      differenceOf(
        value.filter((key) => !(dict.get(key) instanceof NonTensorData)),
        wanted(ok),
      ),
    ours: ({ args }, { value, dict }) => {
      const { include_nested: nested = false, leaves_only: _, ...rest } = optionsOf(args.kwargs)
      const all = keysOf(dict, { include_nested: nested, ...rest })
      return differenceOf(
        value,
        all.filter((key) => !(dict.get(key) instanceof TensorDict)),
      )
    },
  },
  {
    name: 'an entry that is missing cannot be written in place, however deep its key',
    applies: ({ topic, args }) => topic === 'set_' && args.key.$tuple !== undefined,
    theirs: (row) =>
      isItself(row) ??
      differenceOf(
        wanted(row.input_after),
        plain(dictOf(row.input).set(keyOf(row.args.key), given(row.args.value, row.input.$td))),
      ),
    ours: (row, got) => refused(got) ?? unchanged(row, got),
  },
  {
    name: 'features of another shape are refused and not spread',
    applies: ({ topic, args }) =>
      topic === 'setitem_index' && Object.values(args.value?.k ?? {}).some((one) => one.s?.length === 0),
    theirs: ({ ok, input, args, input_after: after }) => {
      if (ok !== null) return 'a statement has no value'
      const expected = dictOf(input)
      for (const [name, { d }] of Object.entries(args.value.k)) {
        if (expected.has([name])) expected.set([name], filledAt(expected.tensor(name), args.index, d[0]))
      }
      return differenceOf(wanted(after), plain(expected))
    },
    ours: (row, got) => refused(got) ?? unchanged(row, got),
  },
  {
    name: 'a number is written to tensors, in the dtype of each, and JSON values stay',
    applies: (row) =>
      row.topic === 'setitem_index' &&
      isNumber(row.args.value) &&
      (!hasNoBatch(row) || row.args.index?.$ellipsis === true),
    theirs: numberWritten,
    ours: ({ input, args }, { dict, error }) => {
      if (error) return error.message
      const wantedDict = dictOf(input)
      for (const key of wantedDict.leafKeys().filter((key) => wantedDict.get(key) instanceof Tensor)) {
        const part = wantedDict.at(...indexOf(args.index)).tensor(key)
        wantedDict.writeAt(key, indexOf(args.index), withEach(part, () => args.value).to(part.dtype))
      }
      return differenceOf(plain(dict), plain(wantedDict))
    },
  },
  {
    name: 'a batch without dimensions has no positions, and can be written whole',
    applies: (row) =>
      hasNoBatch(row) &&
      row.topic === 'setitem_index' &&
      row.args.index?.$ellipsis === true &&
      !isNumber(row.args.value),
    theirs: (row) => failed(row) ?? differenceOf(wanted(row.input_after), wanted(row.args.value)),
    ours: ({ args }, { dict, error }) => error?.message ?? differenceOf(plain(dict), wanted(args.value)),
  },
  {
    name: 'a batch without dimensions has no positions, and can be written whole',
    applies: (row) => hasNoBatch(row) && row.topic === 'setitem_index' && isNumber(row.args.value),
    theirs: (row) => {
      // Leaves are written at positions of their own until one has none.
      const before = dictOf(row.input)
      const after = row.input_after && collectionOf(row.input_after)
      const strange = before.leafKeys().find((key) => {
        const [leaf, shown] = [before.get(key), after?.get(key)]
        if (!(leaf instanceof Tensor)) return differenceOf(plain(shown), plain(leaf)) !== undefined
        const written = attempt(() => filledAt(leaf, row.args.index, row.args.value)).value
        return ![leaf, written].some((one) => one && differenceOf(plain(shown), plain(one)) === undefined)
      })
      const whole =
        strange === undefined
          ? differenceOf(after?.nestedKeys(), before.nestedKeys())
          : `${strange} is another one`
      return failed(row) ?? whole ?? (row.input_after.$td.length === 0 ? undefined : 'a batch size')
    },
    ours: (row, got) => refused(got) ?? unchanged(row, got),
  },
  {
    name: 'a batch without dimensions has no positions, and can be written whole',
    applies: (row) => hasNoBatch(row) && row.topic === 'repeat' && row.args.args.length === 0,
    theirs: failed,
    ours: ({ input }, { value, error }) => error?.message ?? differenceOf(plain(value), wanted(input)),
  },
  {
    name: 'a batch without dimensions has no positions, and can be written whole',
    applies: (row) => hasNoBatch(row) && ['index', 'repeat_interleave'].includes(row.topic),
    theirs: (row) => {
      const { topic, args, input, ok } = row
      if (topic === 'repeat_interleave')
        return differenceOf(wanted(ok), plain(TensorDict.stack(Array(args.args[0]).fill(dictOf(input)))))
      if (args.index === null) return differenceOf(wanted(ok), plain(dictOf(input).unsqueeze(0)))
      return args.index?.$slice?.every((bound) => bound === null) ? isItself(row) : 'the original fails'
    },
    ours: refusedOrNew,
  },
  {
    name: 'an order names every dimension',
    applies: ({ topic, input, args }) => topic === 'permute' && args.args.length < input.$td.length,
    theirs: isItself,
    ours: (_, got) => refused(got),
  },
  {
    name: 'a JSON value stays when a batch is reshaped',
    applies: ({ topic, steps }) => topic === 'program' && steps.some(({ op }) => op === 'reshape'),
    theirs: ({ final }, { value }) => {
      const values = Object.entries(final.k ?? {}).filter(
        ([name]) => value.get([name]) instanceof NonTensorData,
      )
      const isLost =
        values.length > 0 && values.every(([, entry]) => entry.$td && Object.keys(entry.k).length === 0)
      if (!isLost) return 'the original leaves an empty dictionary in place of a JSON value'
      const emptied = value.clone()
      for (const [name] of values) emptied.set([name], TensorDict.from({}, { batchSize: value.batchSize }))
      return differenceOf(wanted(final), plain(emptied))
    },
    ours: ({ input }, { value }) => {
      const names = Object.keys(input.k).filter((name) => '$nt' in input.k[name])
      return names.every((name) => value.get([name])?.value === input.k[name].$nt)
        ? undefined
        : 'a JSON value is lost'
    },
  },
  {
    name: 'a batch size that is counted anew has at most the asked length',
    applies: ({ topic, input, args }) => topic === 'auto_batch_size_' && args.n < input.$td.length,
    theirs: (row) =>
      isItself(row) ?? differenceOf(wanted(row.input_after), wanted(resized(row.input, row.args.n))),
    ours: ({ input, args }, { value, error }) =>
      error?.message ?? differenceOf(plain(value), plain(recounted(input, args.n))),
  },
  {
    name: 'a stack along a dimension that it cannot have is refused',
    applies: ({ topic, args }) =>
      ['stack', 'lazy_stack'].includes(topic) &&
      (args.dim > args.items[0].$td.length || args.dim < -args.items[0].$td.length - 1),
    theirs: ({ topic, args, ok }) => {
      if (topic === 'stack') return differenceOf(wanted(ok), wanted(stackedLast(args.items)))
      const { $lazy: dim, items = [], ...rest } = ok
      const isStrange = !isDeepStrictEqual(Object.keys(rest), ['b'])
      const sizes = args.items[0].$td.length + 1
      const theirs = args.dim < 0 ? ((args.dim % sizes) + sizes) % sizes : args.dim
      if (dim !== theirs || isStrange || items.length !== args.items.length)
        return 'the original stacks along it'
      return differenceOf(items.map(wanted), args.items.map(wanted))
    },
    ours: (_, got) => refused(got),
  },
  {
    name: 'a batch size says how long it is, where upstream leaves -1 in it',
    applies: ({ topic, args }) => topic === 'unflatten' && args.args[1].$tuple.includes(-1),
    theirs: ({ ok, args }, { value }) => {
      if (!ok?.$td?.includes(-1)) return 'the original leaves -1'
      const sizes = value.batchSize
      const counted = (one) => ({
        ...one,
        $td: one.$td.map((length, dim) => (length === -1 ? sizes[dim] : length)),
        k: Object.fromEntries(
          Object.entries(one.k).map(([name, entry]) => [name, entryCounted(entry, sizes, counted)]),
        ),
      })
      return isDeepStrictEqual(ok.$td.slice(args.args[0], args.args[0] + 2), args.args[1].$tuple)
        ? differenceOf(wanted(counted(ok)), plain(value))
        : `its batch size is ${ok.$td}`
    },
    ours: (_, { value }) => (value.batchSize.includes(-1) ? 'a length is -1' : undefined),
  },
  {
    name: 'a state can be loaded into the dictionary that gave it',
    applies: ({ topic }) => topic === 'state_dict_roundtrip',
    theirs: failed,
    ours: ({ input }, { value, error }) => error?.message ?? differenceOf(plain(value), wanted(input)),
  },
  {
    name: 'dtypes are never promoted: what is chosen between must have one',
    applies: ({ topic }) => topic === 'where',
    theirs: ({ ok }, { value }) =>
      differenceOf(
        wanted(ok),
        plain(value.apply((tensor) => (tensor.dtype === 'bool' ? tensor.to('i64') : tensor))),
      ),
    ours: ({ input }, { value }) => {
      const dict = dictOf(input)
      const other = dict.leafKeys().find((key) => dict.tensor(key).dtype !== value.tensor(key).dtype)
      return other && `${other} has another dtype`
    },
  },
  {
    name: 'what is taken out of a dictionary is one of its own, which unlocks nothing else',
    applies: ({ topic }) => topic === 'locked_sub_unlock',
    theirs: failed,
    ours: (_, { dict, error }) =>
      error?.message ?? (dict.isLocked ? undefined : 'the dictionary must stay locked'),
  },
]

function refusedOrNew({ topic, args, input }, { value, error }) {
  if (topic !== 'index' || args.index !== null) return refused({ error })
  return error === undefined ? differenceOf(plain(value), plain(dictOf(input).unsqueeze(0))) : undefined
}

/** Returns whether a key goes through a tensor. */
function isBelowTensor(input, path) {
  let entry = input
  for (const name of path) {
    if (entry?.$t) return true
    entry = entry?.k?.[name]
  }
  return false
}

/** A tensor with a number at an index of its own dimensions. */
function filledAt(tensor, index, number) {
  const batchSize = [...tensor.shape]
  return TensorDict.from({ x: tensor }, { batchSize }).clone().fillAt(indexOf(index), number).tensor('x')
}

/** The original's treatment of a number: written to all leaves, JSON values too, or to some of them before it fails. */
function numberWritten({ input, args, ok, error, input_after: after }, { dict }) {
  if (error === undefined && ok !== null) return 'a statement has no value'
  const leaves = dict.leafKeys()
  const shown = after ? collectionOf({ ...after, k: tensorsOf(after.k) }) : undefined
  if (shown === undefined) return error === undefined ? 'a statement changes its input' : undefined
  const before = dictOf(input)
  if (!isDeepStrictEqual(Object.keys(after.k), Object.keys(input.k)))
    return `its entries are ${Object.keys(after.k)}`
  const keys = (one) => one.nestedKeys().filter((key) => !(before.get(key) instanceof NonTensorData))
  if (!isDeepStrictEqual(keys(shown), keys(before))) return `its keys are ${shown.nestedKeys()}`
  let hasStopped = false
  for (const key of leaves) {
    if (!(dict.get(key) instanceof Tensor)) continue
    const got = plain(shown.tensor(key))
    const isWritten = !hasStopped && isDeepStrictEqual(got, plain(dict.tensor(key)))
    if (isWritten) continue
    hasStopped = true
    if (error === undefined || !isDeepStrictEqual(got, plain(before.tensor(key))))
      return `${key} is another one`
  }
  const sizes = [...after.$td]
  for (const [name, entry] of Object.entries(input.k).filter(([, one]) => '$nt' in one)) {
    const number = { $t: 'float32', s: [], d: [args.value] }
    const places = TensorDict.from({ n: numbered(sizes) }, { batchSize: sizes })
      .at(...indexOf(args.index))
      .tensor('n')
    const all = spread(entry.$nt, sizes)
    const written = replaced(all, new Set(Array.from(places.data, Number)), number)
    const got = after.k[name].$nts ?? spread(after.k[name].$nt, sizes)
    if (!isDeepStrictEqual(got, error ? all : written)) return `${name} is ${show(got)}`
  }
  return differenceOf([shown.batchSize, shown.names], [before.batchSize, before.names])
}

/** Nested lists with another value at some positions, counted in order. */
function replaced(list, places, value, counter = { at: 0 }) {
  if (Array.isArray(list)) return list.map((one) => replaced(one, places, value, counter))
  counter.at += 1
  return places.has(counter.at - 1) ? value : list
}

const tensorsOf = (entries) =>
  Object.fromEntries(
    Object.entries(entries).flatMap(([name, entry]) =>
      entry.$t ? [[name, entry]] : entry.$td ? [[name, { ...entry, k: tensorsOf(entry.k) }]] : [],
    ),
  )

/** A golden dictionary whose batch sizes are the first `count` lengths. */
const resized = (value, count) =>
  value.$td
    ? {
        ...value,
        $td: value.$td.slice(0, count),
        k: Object.fromEntries(Object.entries(value.k).map(([name, one]) => [name, resized(one, count)])),
      }
    : value

/** The dictionary with a batch size of at most `count` lengths, which those within it keep beyond. */
function recounted(input, count) {
  return dictOf(input).withBatchSize(input.$td.slice(0, count))
}

const entryCounted = (entry, sizes, counted) =>
  entry.$td
    ? counted(entry)
    : entry.b
      ? { ...entry, b: entry.b.map((length, dim) => (length === -1 ? sizes[dim] : length)) }
      : entry

/** The original's stack along a missing dimension: leaves are stacked after their last one, and nested sizes with them. */
function stackedLast(items, depth = 0) {
  const [first] = items
  if (first.$t) {
    const d = first.d.flatMap((_, at) => items.map((item) => item.d[at]))
    return { ...first, s: [...first.s, items.length], d }
  }
  const entries = Object.keys(first.k).map((name) => [
    name,
    stackedLast(
      items.map((item) => item.k[name]),
      depth + 1,
    ),
  ])
  const sizes = depth === 0 ? [items.length, ...first.$td] : [...first.$td, items.length]
  return { $td: sizes, k: Object.fromEntries(entries) }
}

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
  members: {
    input: 'id topic input args note steps',
    expected: 'ok input_after final steps.*.batch_size',
    refusal: 'error:ok steps.*.error:ok',
  },
  matches: ({ topic, input, args, steps }) =>
    typeof topic === 'string' && input !== undefined && (args !== undefined || Array.isArray(steps)),
  prepare: () => undefined,
  check: ({ value: row }) => {
    const got = {}
    const difference = row.topic === 'program' ? ofProgram(row, got) : ofOperation(row, got)
    if (difference === undefined || got.ran !== true) return difference
    const rule = RULES.find(({ applies }) => applies(row))
    if (rule === undefined) return difference
    const wrong = rule.theirs(row, got) ?? rule.ours(row, got)
    return wrong === undefined ? { byDecision: rule.name } : `${wrong} (${rule.name})`
  },
}

/** Statements of Python, which have no value. */
const STATEMENTS = ['setitem_key', 'setitem_index', 'locked_setitem', 'locked_batch_size']

function ofOperation(row, got) {
  const { topic, input, args, ok, error, input_after: after, note } = row
  const run = MAKES[topic] ?? REPLACES[topic] ?? CHANGES[topic] ?? RAGGED[topic]
  if (run === undefined) return `there is no answer to ${topic}`
  const dict = input === null ? undefined : collectionOf(input)
  Object.assign(got, { ran: true, dict, ...attempt(() => run(dict, args, error, note)) })
  if (dict && !(topic in REPLACES)) {
    const changed = differenceOf(plain(dict), wanted(error && !after ? input : (after ?? input)))
    if (changed) return `the input: ${changed}`
  }
  if (error !== undefined) return got.error === undefined ? `must be refused: ${error.msg}` : undefined
  if (got.error !== undefined) return `must succeed: ${got.error.message}`
  if (STATEMENTS.includes(topic) && ok !== null) return 'a statement has no value'
  if (topic in REPLACES) return differenceOf(plain(got.value), wanted(after ?? input))
  if (topic === 'names') return differenceOf([...dict.names], wanted(ok))
  const gives = topic in MAKES || topic in RAGGED || ['pop', 'names_index'].includes(topic)
  if (ok?.$same || got.value === dict) return ok?.$same || gives ? undefined : sameOrNull(ok)
  if (!gives) return sameOrNull(ok)
  return differenceOf(plain(got.value, dict?.batchSize), wanted(ok))
}

/** Of an operation that changes a dictionary only that it gives nothing, or the dictionary itself, can be said. */
const sameOrNull = (ok) =>
  ok === null || ok === undefined || ok.$same ? undefined : `expected ${show(wanted(ok))}`

function ofProgram({ input, steps, final }, got) {
  let dict = dictOf(input)
  for (const [at, step] of steps.entries()) {
    const run = STEPS[step.op]
    if (run === undefined) return `there is no answer to the step ${step.op}`
    const { value, error } = attempt(() => run(dict, step))
    if ((error === undefined) !== (step.error === undefined))
      return `step ${at}: ${error?.message ?? 'must be refused'}`
    dict = value ?? dict
    const sizes = step.batch_size && differenceOf([...dict.batchSize], step.batch_size)
    if (sizes) return `step ${at}: ${sizes}`
  }
  Object.assign(got, { ran: true, value: dict })
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

/** A golden value in the form of {@link plain}, read without the library that is tested. */
function wanted(value, batchSize = value?.b) {
  if (value === null || typeof value !== 'object') return value
  if (Array.isArray(value)) return value.map((one) => wanted(one))
  if (value.$tuple) return value.$tuple.map((one) => wanted(one))
  if (value.$t ?? value.$np) return [DTYPES[value.$t ?? value.$np], value.s, elementsIn(value)]
  if (value.$lazy !== undefined) return lazyIn(value)
  if (value.$td) {
    const names = value.names ?? value.$td.map(() => null)
    const entries = Object.entries(value.k).map(([name, one]) => [name, wanted(one, value.$td)])
    return { batchSize: value.$td, names, entries: Object.fromEntries(entries) }
  }
  if (value.$njt) return plain(entryOf(value, []))
  if (value.$dict) return wanted({ $td: [], k: Object.fromEntries(value.$dict) })
  if ('$nt' in value) return spread(value.$nt, batchSize ?? [])
  return value.$nts ?? value
}

const elementsIn = ({ $t, $np, d }) => {
  const type = $t ?? $np
  if (type === 'int64') return d.map(BigInt)
  return type === 'bool' ? d.map(Number) : d.map(Number)
}

function lazyIn(value) {
  const parts = value.items.map((one) => wanted(one))
  const lengths = parts.map(({ batchSize }) => batchSize)
  const common = lengths[0].map((length, dim) =>
    lengths.every((sizes) => sizes[dim] === length) ? length : -1,
  )
  return { dim: value.$lazy, batchSize: common.toSpliced(value.$lazy, 0, parts.length), parts }
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

/** Python's conversion of a value: numbers, bools and lists of numbers become a tensor. */
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
