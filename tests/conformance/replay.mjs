/**
 * Compares whole replay buffers with what torchrl did, operation by operation: what a call answers, and what the buffer
 * holds afterwards. Rows beside items are left aside; of a refusal only the fact counts.
 */

import { isDeepStrictEqual } from 'node:util'
import {
  CompressedListStorage,
  ConsumingSampler,
  ImmutableDatasetWriter,
  LazyMemmapStorage,
  LazyStackStorage,
  LazyTensorStorage,
  ListStorage,
  PrioritizedSampler,
  RandomSampler,
  ReplayBuffer,
  RoundRobinWriter,
  SamplerWithoutReplacement,
  Tensor,
  TensorDict,
  TensorDictMaxValueWriter,
  TensorDictReplayBuffer,
} from 'fulmar'
import {
  attempt,
  decided,
  dictIn,
  elementsOf,
  far,
  given,
  indexIn,
  isKey,
  isSame,
  keyIn,
  numbersIn,
  partsOf,
  range,
  tensorIn,
} from './replay-rows.mjs'

/** WebAssembly has none. */
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')

const TOPICS = new Set([
  ...['storage_x_writer', 'ring', 'errors', 'inplace', 'tensor_payload', 'ndim2', 'generations', 'max_value'],
  ...[
    'update_if_present',
    'prioritized',
    'prioritized_reduction',
    'prioritized_errors',
    'consuming',
    'schema_drift',
  ],
  'shared_storage',
])

export const replay = {
  topic: 'replay',
  members: {
    input: `id topic note
      setup.buffer setup.batch_size setup.priority_key setup.storage.cls setup.storage.max_size setup.storage.ndim
      setup.sampler.cls setup.sampler.alpha setup.sampler.beta setup.sampler.eps setup.sampler.max_capacity setup.sampler.reduction
      setup.sampler.max_priority_within_buffer setup.sampler.drop_last setup.sampler.max_sample_count
      setup.writer.cls setup.writer.rank_key setup.writer.reduction setup.writer.track_generations
      setup.max_size setup.alpha setup.beta
      ops.*.op ops.*.data ops.*.index ops.*.key ops.*.value ops.*.kwargs ops.*.batch_size ops.*.priority
      ops.*.extend_through_first ops.*.extend_through_second`,
    expected: `ops.*.ok ops.*.state ops.*.data_index_after ops.*.len ops.*.cursors ops.*.leaves`,
    refusal: 'build_error:built ops.*.error:ok',
    aside: {
      'ops.*.state.revision': 'a buffer counts writes, not changes',
      'ops.*.state.top_values':
        'the highest values of a writer are its own; which rows they are is compared as contents',
      'ops.*.ok.keys': 'the state of a buffer has parts of its own',
      'ops.*.ok.storage_keys': 'the state of a buffer has parts of its own',
      'ops.*.ok.writer': 'the state of a buffer has parts of its own',
      'ops.*.ok.batch_size': 'the state of a buffer has parts of its own',
    },
  },
  matches: ({ topic, setup }) => setup !== undefined && TOPICS.has(topic),
  prepare: () => undefined,
  check: ({ value: row }) => played(row).outcome,
}

/** The outcome of a row, and how many of its operations were compared. */
export function played(row) {
  if (row.topic === 'shared_storage') return { outcome: ofShared(row), compared: row.ops.length }
  const player = playerOf(row)
  const made = attempt(() => bufferOf(player))
  if (made.error) {
    return { outcome: row.build_error ? undefined : made.error.message, compared: 0 }
  }
  if (row.build_error) return { outcome: takenHere(row), compared: 0 }
  player.buffer = made.value
  let compared = 0
  let outcome
  for (const [at, op] of row.ops.entries()) {
    const step = OPS[op.op](player, op)
    const difference = typeof step === 'string' ? step : isLast(step) ? undefined : differenceOf(player, op)
    if (difference !== undefined) return { outcome: `op ${at} ${op.op}: ${difference}`, compared }
    if (step !== undefined) outcome ??= decided(step.rule)
    if (isLast(step)) break
    compared += 1
    if (op.op === 'state_roundtrip' && op.state.max_size !== player.buffer.storage.maxSize) {
      outcome ??= decided('a storage that is loaded keeps its capacity')
      break
    }
  }
  return { outcome, compared }
}

/** What is refused there when a buffer is made, and works here. */
function takenHere({ setup }) {
  if (setup.sampler?.drop_last) return decided('epochs without a last batch are cut by the size of each draw')
  const isLanes = setup.storage.ndim === 2 && setup.writer?.cls === 'TensorDictMaxValueWriter'
  return isLanes ? decided('lanes are ranked together') : 'the buffer must be refused'
}

/** Here it differs on purpose, and the state does not. */
const differs = (rule) => ({ rule })
/** Here it differs on purpose, and what follows is about another buffer. */
const departs = (rule) => ({ rule, last: true })
const isLast = (step) => step?.last === true

function playerOf({ setup, ops }) {
  // There the first write says how many lanes there are, here the storage does.
  const lanes = setup.storage.ndim === 2 ? (ops[0]?.data?.$td?.[0] ?? 1) : undefined
  return { setup, lanes, cls: setup.storage.cls, buffer: undefined, aside: [] }
}

function bufferOf({ setup, lanes, cls }) {
  const { max_size: capacity } = setup.storage
  const storages = {
    ListStorage: () => new ListStorage(capacity),
    LazyStackStorage: () => new LazyStackStorage(capacity),
    CompressedListStorage: () => new CompressedListStorage(capacity),
  }
  const kind = { lanes: lanes ? [lanes] : [] }
  const lazy = () => new LazyTensorStorage(capacity, kind)
  if (HAS_FILES) storages.LazyMemmapStorage = () => new LazyMemmapStorage(capacity, kind)
  const { priority_key: priorityKey } = setup
  const isPlain = setup.buffer === 'ReplayBuffer'
  return new (isPlain ? ReplayBuffer : TensorDictReplayBuffer)({
    storage: (storages[cls] ?? lazy)(),
    sampler: samplerOf(setup.sampler ?? {}),
    writer: writerOf(setup.writer ?? {}),
    ...given({ batchSize: setup.batch_size }),
    ...(!isPlain && given({ priorityKey: keyIn(priorityKey), reduction: setup.sampler?.reduction })),
  })
}

function samplerOf({ cls, alpha, beta, eps, max_priority_within_buffer: maxPriorityWithinBuffer }) {
  if (cls === 'PrioritizedSampler')
    return new PrioritizedSampler(given({ alpha, beta, eps, maxPriorityWithinBuffer }))
  if (cls === 'ConsumingSampler') return new ConsumingSampler()
  return cls === 'SamplerWithoutReplacement' ? new SamplerWithoutReplacement() : new RandomSampler()
}

function writerOf({ cls, rank_key: rankKey, reduction, track_generations: trackGenerations = false }) {
  if (cls === 'TensorDictMaxValueWriter')
    return new TensorDictMaxValueWriter(given({ rankKey: keyIn(rankKey), reduction }))
  return cls === 'ImmutableDatasetWriter'
    ? new ImmutableDatasetWriter()
    : new RoundRobinWriter({ trackGenerations })
}

/** What each operation of a row answers: nothing as expected, a difference, or a rule. */
const OPS = {
  len: ({ buffer }, { ok }) => same(buffer.length, ok),
  add: written,
  extend: written,
  get: got,
  setitem: edited,
  set_at_: edited,
  set_: edited,
  write_all: edited,
  // The row does not say how many were asked for, only how many came.
  read_all: ({ buffer }, { ok }) => items(buffer.readAllInOrder(ok.$td?.[0]), ok),
  sample_size: ({ buffer }, { batch_size: count, ok, error }) => {
    const { value, error: refusal } = attempt(() => buffer.sample(count ?? undefined))
    if (count === 0) return refusal ? differs('a batch of nothing is an error') : 'must be refused'
    if (refusal) return error ? undefined : refusal.message
    return error ? 'must be refused' : same(value.batchSize[0], ok[0])
  },
  sample_index: ({ buffer, lanes, cls }, { index, ok, error }) => {
    const dims = index.$tuple?.map(numbersIn)
    const rows = dims ? dims[0].map((time, at) => time * lanes + dims[1][at]) : numbersIn(index)
    const { value, error: refusal } = attempt(() => buffer.storage.get(rows))
    if (refusal) return error ? undefined : refusal.message
    if (error) return 'must be refused'
    return cls === 'CompressedListStorage'
      ? differs('compressed items come back as they were')
      : items(value, ok)
  },
  stats: ({ buffer }, { ok }) => {
    const want = Object.fromEntries(ok.$dict)
    const { capacity, writeCount } = buffer.stats
    return same([buffer.length, capacity, writeCount], [want.size, want.capacity, want.write_count])
  },
  empty: ({ buffer }, { kwargs, error }) => {
    buffer.clear({ keepWriteCount: kwargs?.empty_write_count === false })
    return error ? departs('an immutable buffer can be emptied') : undefined
  },
  state_roundtrip: (player, { error }) => {
    const state = player.buffer.stateDict()
    player.buffer = bufferOf(player)
    player.buffer.loadStateDict(state)
    if (player.buffer.stateDict().parts !== state.parts) return 'the state must come back'
    return error ? differs('every writer has a state') : undefined
  },
  generations_of: ({ buffer }, { index, ok }) => same(buffer.generationsOf(numbersIn(index)), numbersIn(ok)),
  update_priority: ({ buffer }, { index, priority, error }) =>
    failed(() => buffer.updatePriority(numbersIn(index), numbersIn(priority)), error),
  update_tensordict_priority: ({ buffer }, { data, error }) =>
    failed(() => buffer.updateTensorDictPriority(dictIn(data)), error),
  set_alpha: ({ buffer }, { value }) => {
    buffer.sampler.alpha = value
  },
  update_if_present: updatedIfPresent,
  write_at: ({ buffer }, { index, data, error }) =>
    failed(() => buffer.writeAt(numbersIn(index), dictIn(data)), error),
}

function written(player, { op, data, ok, error, kwargs }) {
  const { buffer, setup, lanes } = player
  const before = [buffer.stats.size, partsOf(buffer).writer]
  const given = itemsOf(data, op)
  const write = (items) => () => {
    if (op === 'add') return [buffer.add(items)]
    if (kwargs?.update_priority === undefined || kwargs.update_priority === null) return buffer.extend(items)
    return buffer.extendWith(items, { updatePriority: kwargs.update_priority })
  }
  let { value: rows, error: refusal } = attempt(write(given))
  let completed = false
  if (refusal) {
    const after = [buffer.stats.size, partsOf(buffer).writer]
    if (!isDeepStrictEqual(after, before)) return `a write that fails must change nothing: ${refusal.message}`
    if (given.batchSize.includes(0)) return differs('an empty write is an error')
    if (error) return departs('a write that fails changes nothing')
    if (!['UNKNOWN_NAME', 'INCOMPATIBLE'].includes(refusal.code)) return refusal.message
    // The row goes on with the leaves that the buffer has; those that differ are left aside from here on.
    const known = attempt(() => alike(player, given))
    const again = known.error ? known : attempt(write(known.value))
    if (again.error) return departs(LEAVES)
    rows = again.value
    refusal = undefined
    completed = true
    // The priorities that such a leaf holds are set by a call of their own.
    const priority = [keyIn(setup.priority_key ?? 'td_error')].flat()
    if (given.has(priority) && partsOf(buffer).sampler?.tree && kwargs?.update_priority !== false) {
      const values = elementsOf(given.tensor(priority))
      // Of one item that is written, each of its numbers is set in turn.
      if (op === 'add')
        buffer.updatePriority(
          values.map(() => rows[0]),
          values,
        )
      else buffer.updatePriority(rows, reduced(values, rows.length, setup.sampler.reduction))
    }
  }
  if (error) return departs('what can be stored is stored')
  const form = formOf(ok, op, { lanes, given })
  if (form) return form
  const at = rows.flatMap((row) => (lanes && row >= 0 ? [Math.floor(row / lanes), row % lanes] : [row]))
  const want = ok === null ? [-1] : numbersIn(ok)
  if (setup.sampler?.cls === 'ConsumingSampler' && !isDeepStrictEqual(at, want))
    return at.length === want.length ? departs('which rows are free is chance') : same(at, want)
  return same(at, want) ?? (completed ? differs(LEAVES) : undefined)
}

/** One priority an item, of several numbers as the sampler reduces them. */
function reduced(values, count, reduction = 'max') {
  const width = values.length / count
  const sum = (list) => list.reduce((total, one) => total + one, 0)
  const joins = {
    sum,
    max: (list) => Math.max(...list),
    min: (list) => Math.min(...list),
    mean: (list) => sum(list) / list.length,
    median: (list) => list.toSorted((a, b) => a - b)[Math.floor((list.length - 1) / 2)],
  }
  return range(count).map((at) => joins[reduction](values.slice(at * width, (at + 1) * width)))
}

const LEAVES = 'leaves that are missing or too many are refused'

/** The items with the leaves that the buffer has: those too many are left out, those missing are zeros. */
function alike(player, given) {
  const { buffer } = player
  const held = buffer.storage.get([0])
  const names = (dict) => dict.leafKeys().map((key) => key.join('.'))
  const [mine, theirs] = [names(held), names(given)]
  const extra = given.leafKeys().filter((key) => !mine.includes(key.join('.')))
  const items = given.exclude(extra)
  for (const key of held.leafKeys()) {
    if (theirs.includes(key.join('.'))) continue
    const leaf = held.tensor(key)
    items.set(key, Tensor.zeros(leaf.dtype, [...given.batchSize, ...leaf.shape.slice(1)]))
    player.aside.push(key)
  }
  player.aside.push(...extra)
  return items
}

/** A golden dictionary without the leaves that are left aside. */
function withoutLeaves(want, keys) {
  if (keys.length === 0 || want === null || typeof want !== 'object') return want
  if (Array.isArray(want)) return want.map((one) => withoutLeaves(one, keys))
  if (want.items) return { ...want, items: withoutLeaves(want.items, keys) }
  if (!want.k) return want
  const entries = Object.entries(want.k)
    .filter(([name]) => !keys.some((key) => key.length === 1 && key[0] === name))
    .map(([name, one]) => [
      name,
      withoutLeaves(
        one,
        keys.filter(([first]) => first === name).map((key) => key.slice(1)),
      ),
    ])
  return { ...want, k: Object.fromEntries(entries) }
}

/** What a write gives: a number for one item, whole numbers of 64 bits for several, of lanes both coordinates. */
function formOf(ok, op, { lanes, given }) {
  if (op === 'add' && !lanes)
    return ok === null || Number.isInteger(ok) || ok?.$t === 'int64' ? undefined : `a row is ${ok}`
  const count = lanes ? given.batchSize[0] * (op === 'add' ? 1 : given.batchSize[1]) : given.batchSize[0]
  const isForm = ok?.$t === 'int64' && (lanes ? ok.s.at(-1) === 2 : ok.s.length === 1) && ok.s[0] === count
  return isForm ? undefined : `rows are ${JSON.stringify([ok?.$t, ok?.s])}`
}

function itemsOf(data, op) {
  if (data.$td) return dictIn(data)
  const value = tensorIn(data)
  return TensorDict.from({ value }, { batchSize: op === 'add' ? [] : [value.shape[0]] })
}

function got({ buffer, cls, aside }, { index, ok: shown, error }) {
  const ok = withoutLeaves(shown, aside)
  if (isKey(index)) return tensors(buffer.readAllInOrder().tensor(keyIn(index)), ok)
  const { value, error: refusal } = attempt(() => buffer.at(...indexIn(index)))
  if (error) {
    if (refusal) return undefined
    return error.msg.includes('bool') || value.batchSize.includes(0)
      ? differs('nothing, and a mask, can be read from any storage')
      : 'must be refused'
  }
  if (JSON.stringify(ok).includes('uninit')) return differs('memory that was not written is not shown')
  const isList = cls === 'ListStorage' || cls === 'CompressedListStorage'
  if (refusal?.code === 'UNKNOWN_NAME' && isList && '$lazy' in ok)
    return differs('rows of a list that are read together are alike')
  if (refusal) return refusal.message
  if (ok.$t) return tensors(value.tensor('value'), ok)
  // There, what was nested comes back as something else.
  return cls === 'CompressedListStorage'
    ? differs('compressed items come back as they were')
    : items(value.exclude(aside.filter((key) => value.has(key))), ok)
}

function edited({ buffer, cls }, { op, data, index, key, value, kwargs, error, state }) {
  if (op.startsWith('set_') && !value?.$t) return departs('values are tensors')
  const before = buffer.stats.size
  const edit = () => {
    if (op === 'write_all') return buffer.writeAll(dictIn(data), kwargs?.end ?? undefined)
    if (op === 'setitem') return buffer.setAt(indexIn(index), dictIn(data))
    return buffer.setKeyAt(keyIn(key), tensorIn(value), op === 'set_' ? [{}] : indexIn(index))
  }
  const { error: refusal } = attempt(edit)
  if (error) {
    if (refusal) return undefined
    return cls.includes('List') ? departs('lists can be edited too') : 'must be refused'
  }
  if (before === 0 || state.len !== before)
    return refusal || buffer.stats.size === before ? departs('an edit does not append') : 'must not append'
  if (refusal) return refusal.message
  if (cls.includes('List') || cls === 'LazyStackStorage')
    return departs('an edit keeps the leaves that it does not name')
  return cls === 'LazyMemmapStorage' && op === 'write_all'
    ? departs('a leaf can be added to any storage')
    : undefined
}

function updatedIfPresent({ buffer, cls }, { kwargs, ok, error }) {
  const { version_key: versionKey, version, require_newer: requireNewer = false } = kwargs
  // Both or none is what the core can be asked.
  if ((versionKey ?? undefined) === undefined || (version ?? undefined) === undefined) {
    if ((versionKey ?? undefined) !== (version ?? undefined)) return undefined
  }
  const { value, error: refusal } = attempt(() =>
    buffer.updateIfPresent({
      index: numbersIn(kwargs.index),
      generation: numbersIn(kwargs.generation),
      patch: dictIn(kwargs.patch),
      ...given({ versionKey: keyIn(versionKey), version: version && numbersIn(version) }),
      requireNewer,
    }),
  )
  if (error) {
    if (refusal) return undefined
    return cls === 'ListStorage' ? departs('lists can be edited too') : 'must be refused'
  }
  if (refusal) return refusal.message
  const want = Object.fromEntries(ok.$dict)
  return (
    same(value.updated, want.updated.d) ??
    same(value.versionRejected, want.version_rejected === null ? null : want.version_rejected.d)
  )
}

/** What the buffer holds beside what the row shows. */
function differenceOf({ buffer, setup, lanes, cls, aside }, { op, state }) {
  if (state === undefined) return undefined
  const { writer, sampler } = partsOf(buffer)
  const { storage } = buffer
  // A storage that is loaded keeps its capacity here.
  const capacity = op === 'state_roundtrip' ? state.max_size : storage.maxSize
  const sizes = [buffer.length, buffer.stats.size, capacity, storage.length === capacity]
  if (!isDeepStrictEqual(sizes, [state.len, state.storage_len, state.max_size, state.is_full]))
    return `sizes are ${sizes}`
  if (state.storage_shape !== undefined) {
    const shape = lanes ? [storage.length / lanes, lanes] : [storage.length]
    if (storage.length > 0 && !isDeepStrictEqual(state.storage_shape, shape)) return `the shape is ${shape}`
  }
  if (state.contents === null && storage.length > 0) return 'there are contents'
  if (setup.writer?.cls !== 'TensorDictMaxValueWriter' && typeof state.cursor === 'number') {
    const { writeCount } = buffer.stats
    const cursor = writer?.cursor ?? 0
    if (cursor !== state.cursor || writeCount !== state.write_count)
      return `cursor and count are ${cursor}, ${writeCount}: expected ${state.cursor}, ${state.write_count}`
  }
  const { generations } = state
  if (Array.isArray(generations)) {
    if (generations.length !== storage.maxSize && generations.length !== storage.length)
      return `${generations.length} generations`
    const difference = same(buffer.generationsOf(range(generations.length)), generations)
    if (difference) return difference
  }
  if (Array.isArray(state.sum_leaves) && sampler?.tree) {
    const { leaves } = sampler.tree
    const all = state.sum_leaves
    const total = all.reduce((sum, leaf) => sum + leaf, 0)
    const least = Math.min(...all.slice(0, storage.length))
    const largest = sampler.maxPriority
    const difference =
      (all.length === storage.maxSize ? undefined : `${all.length} leaves`) ??
      far('leaves', leaves, all.slice(0, leaves.length)) ??
      (typeof state.p_sum === 'number' ? far('sum', [total], [state.p_sum]) : undefined) ??
      (typeof state.p_min === 'number' && storage.length > 0
        ? far('least', [least], [state.p_min])
        : undefined) ??
      (state.max_priority ? far('largest', largest ?? [], state.max_priority) : undefined)
    if (difference) return difference
  }
  return contentsOf(buffer, withoutLeaves(state.contents, aside), { lanes, cls, aside })
}

function contentsOf({ storage }, contents, { lanes, cls, aside }) {
  const text = JSON.stringify(contents ?? null)
  if (contents === null || contents === 'same' || cls === 'CompressedListStorage' || text.includes('uninit'))
    return undefined
  if (storage.length === 0) return undefined
  const bare = (dict) => dict.exclude(aside.filter((key) => dict.has(key)))
  if (contents.$t) return tensors(storage.get(range(storage.length)).tensor('value'), contents)
  if (Array.isArray(contents)) {
    // Row by row: not all rows have the same leaves.
    const at = contents.findIndex((item, row) => {
      const one = bare(storage.get([row])).index(0)
      return item.$t ? tensors(one.tensor('value'), item) : !isSame(one, item)
    })
    return at < 0 ? undefined : `row ${at} differs`
  }
  const all = bare(storage.get(range(storage.length)))
  return items(lanes ? all.unflatten(0, [storage.length / lanes, lanes]) : all, contents)
}

/** Two buffers of one storage: each learns of what the other writes. */
function ofShared({ setup, ops }) {
  const { max_size: capacity, alpha, beta } = setup
  const storage = new LazyTensorStorage(capacity)
  const buffers = [0, 1].map(
    () => new ReplayBuffer({ storage, sampler: new PrioritizedSampler({ alpha, beta }) }),
  )
  for (const op of ops) {
    const isFirst = op.extend_through_first !== undefined
    const [writer, other] = isFirst ? buffers : buffers.toReversed()
    const count = isFirst ? op.extend_through_first : op.extend_through_second
    writer.extend(TensorDict.from({ x: Tensor.zeros('f32', [count]) }, { batchSize: [count] }))
    other.updatePriority([], [])
    for (const [at, buffer] of buffers.entries()) {
      const { writer, sampler } = partsOf(buffer)
      const { leaves } = sampler.tree
      const difference =
        same([buffer.length, writer.cursor], [op.len[at], op.cursors[at]]) ??
        far('leaves', leaves, op.leaves[at].slice(0, leaves.length))
      if (difference) return difference
    }
  }
  return undefined
}

function failed(run, error) {
  const { error: refusal } = attempt(run)
  if ((refusal !== undefined) === (error !== undefined)) return undefined
  return refusal?.message ?? 'must be refused'
}

const items = (dict, want) => (isSame(dict, want) ? undefined : 'items differ')
const tensors = (tensor, { s: shape, d: elements }) =>
  same([[...tensor.shape], elementsOf(tensor)], [shape, numbersIn(elements)])
const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
