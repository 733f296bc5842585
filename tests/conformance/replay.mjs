/**
 * Plays the operations of a replay buffer and compares, after each, what the row shows with a model of the original (`replay-model.mjs`), and
 * what Fulmar answers and holds with the row: or, where Fulmar differs on purpose, with what the decision implies. Behind a decision Fulmar's
 * buffer is set to the original's state, and the row continues.
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
  TensorDictMaxValueWriter,
  TensorDictReplayBuffer,
} from 'fulmar/replay'
import { differsFrom, itemIn, itemsIn } from './replay-items.mjs'
import { ReplayModel } from './replay-model.mjs'
import {
  attempt,
  decided,
  dictIn,
  far,
  given,
  indexIn,
  isKey,
  keyIn,
  numbersIn,
  partsOf,
  range,
  tensorIn,
} from './replay-rows.mjs'
import { impliedBy } from './replay-rules.mjs'

/** WebAssembly has none. */
const HAS_FILES = !process.execArgv.includes('--conditions=fulmar-wasm')

const TOPICS = new Set(
  `storage_x_writer ring errors inplace tensor_payload pytree_payload list_payload string_payload ndim2 generations max_value
  update_if_present prioritized prioritized_reduction prioritized_errors consuming schema_drift shared_storage`.split(
    /\s+/,
  ),
)

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
      'ops.*.ok.keys': 'the state of a buffer has parts of its own',
      'ops.*.ok.storage_keys': 'the state of a buffer has parts of its own',
    },
  },
  matches: ({ topic, setup }) => setup !== undefined && TOPICS.has(topic),
  prepare: () => undefined,
  check: ({ value: row }) =>
    !HAS_FILES && row.setup.storage?.cls === 'LazyMemmapStorage'
      ? { skipped: 'files, of which WebAssembly has none' }
      : played(row).outcome,
}

const CLASSES = {
  buffer: ['ReplayBuffer', 'TensorDictReplayBuffer'],
  storage: [
    'ListStorage',
    'LazyStackStorage',
    'CompressedListStorage',
    'LazyTensorStorage',
    'LazyMemmapStorage',
  ],
  sampler: ['RandomSampler', 'PrioritizedSampler', 'ConsumingSampler', 'SamplerWithoutReplacement'],
  writer: [
    'RoundRobinWriter',
    'TensorDictRoundRobinWriter',
    'TensorDictMaxValueWriter',
    'ImmutableDatasetWriter',
  ],
}

/** A class of a row without an adapter. */
function strangeClass({ buffer, storage, sampler, writer }) {
  const named = { buffer, storage: storage.cls, sampler: sampler?.cls, writer: writer?.cls }
  return Object.entries(named).find(([part, name]) => name !== undefined && !CLASSES[part].includes(name))
}

/** The outcome of a row, and how many of its operations were compared. */
export function played(row) {
  const { setup, ops = [], topic } = row
  if (topic === 'shared_storage') return { outcome: ofShared(row), compared: ops.length }
  const strange = strangeClass(setup)
  if (strange) return { outcome: `the ${strange[0]} ${strange[1]} must be known`, compared: 0 }
  // There the first write says how many lanes there are, here the storage does.
  const lanes = setup.storage.ndim === 2 ? (ops.find(({ data }) => data?.$td)?.data.$td[0] ?? 1) : undefined
  const refusal = ReplayModel.refusalOf(setup)
  if ((refusal !== undefined) !== ((row.build_error ?? undefined) !== undefined))
    return { outcome: `the original refuses ${refusal}`, compared: 0 }
  const made = attempt(() => bufferOf(setup, lanes))
  if (refusal !== undefined) return { outcome: made.error ? undefined : takenHere(setup), compared: 0 }
  if (made.error) return { outcome: made.error.message, compared: 0 }
  const model = new ReplayModel(setup, lanes)
  const player = {
    setup,
    lanes,
    buffer: made.value,
    theirs: model,
    own: model,
    shown: null,
    rules: new Set(),
  }
  for (const [at, op] of ops.entries()) {
    const difference = step(player, op)
    if (difference !== undefined) return { outcome: `op ${at} ${op.op}: ${difference}`, compared: at }
  }
  const rules = [...player.rules].join('; ')
  return { outcome: rules ? decided(rules) : undefined, compared: ops.length }
}

/** Options that the original refuses when a buffer is made, and Fulmar accepts. */
function takenHere({ sampler, storage }) {
  if (sampler?.drop_last) return decided('epochs without a last batch are cut by the size of each draw')
  return storage.ndim === 2 ? decided('lanes are ranked together') : 'the buffer must be refused'
}

/** `theirs` is the state of the original's buffer, `own` that of Fulmar's; they differ only where Fulmar cannot reach that state. */
function step(player, op) {
  const { theirs, own } = player
  const before = own.clone()
  const answer = theirs.apply(op)
  const golden = answerDiffers(answer, op) ?? stateDiffers(player, op)
  if (golden !== undefined) return `the original: ${golden}`
  const after = own === theirs ? answer : own.apply(op)
  const ours = asked(player, op)
  const { rules, outcome, model } = impliedBy(before, op, after, own, ours)
  for (const rule of rules) player.rules.add(rule)
  const difference = outcomeDiffers(ours, outcome, op) ?? heldDiffers(player.buffer, model, player)
  if (difference !== undefined) return rules.length > 0 ? `${difference} (${rules})` : difference
  player.own = model
  if (model !== theirs && canBeBrought(theirs)) {
    player.buffer = broughtTo(theirs, player)
    player.own = theirs
  }
  return undefined
}

/** A ring that is not full continues after its last row, and leaves come with rows. */
function canBeBrought({ writer, isInit, isList, depth, depthMax, cursor, top }) {
  if (depth === 0 && isInit && !isList) return false
  if (writer === 'TensorDictMaxValueWriter') return top.length === depth
  return writer === 'ImmutableDatasetWriter' || depth === depthMax || cursor === depth
}

/** Tolerances of computed values; all others are compared exactly. */
const NEAR = { sum_leaves: 1e-5, max_priority: 1e-5, p_sum: 1e-5, p_min: 1e-5, top_values: 1e-7 }

function answerDiffers({ ok, error }, op) {
  if ((error === undefined) !== (op.error === undefined))
    return error ?? `must be refused, not ${JSON.stringify(ok)}`
  if (error !== undefined) return undefined
  const { keys: _, storage_keys: __, ...shown } = op.op === 'state_roundtrip' ? (op.ok ?? {}) : { ok: op.ok }
  return op.op === 'state_roundtrip' ? same(ok, shown) : same({ ok }, shown)
}

function stateDiffers(player, { state = {}, data_index_after: index, ok }) {
  const known = player.theirs.state()
  const { contents, ...rest } = state
  // Of the same contents as before only that is said.
  const held = contents === 'same' ? player.shown : contents
  if (contents !== undefined && !isDeepStrictEqual(known.contents, held))
    return `contents are ${JSON.stringify(known.contents)}`
  player.shown = known.contents
  if (index !== undefined) {
    const shown = typeof ok === 'number' ? { $t: 'int64', s: [], d: [ok] } : ok
    if (!isDeepStrictEqual(index, shown)) return `data has the index ${JSON.stringify(index)}`
  }
  for (const [name, value] of Object.entries(rest)) {
    if (!(name in known)) return `the state has no ${name}`
    const isNear = name in NEAR && value !== null && known[name] !== null
    const difference = isNear
      ? far(name, [known[name]].flat(2), [value].flat(2), NEAR[name])
      : same(known[name], value)
    if (difference) return `${name}: ${difference}`
  }
  return undefined
}

function bufferOf(setup, lanes, writer = setup.writer ?? {}) {
  const { cls, max_size: capacity } = setup.storage
  const kind = { lanes: lanes ? [lanes] : [] }
  const lazy = () => new LazyTensorStorage(capacity, kind)
  const storages = {
    ListStorage: () => new ListStorage(capacity),
    LazyStackStorage: () => new LazyStackStorage(capacity),
    CompressedListStorage: () => new CompressedListStorage(capacity),
    LazyMemmapStorage: () => new LazyMemmapStorage(capacity, kind),
  }
  const isPlain = setup.buffer === 'ReplayBuffer'
  return new (isPlain ? ReplayBuffer : TensorDictReplayBuffer)({
    storage: (storages[cls] ?? lazy)(),
    sampler: samplerOf(setup.sampler ?? {}),
    writer: writerOf(writer),
    ...given({ batchSize: setup.batch_size }),
    ...(!isPlain && given({ priorityKey: keyIn(setup.priority_key), reduction: setup.sampler?.reduction })),
  })
}

function samplerOf({ cls, alpha, beta, eps, ...rest }) {
  const { max_priority_within_buffer: maxPriorityWithinBuffer, max_sample_count: maxSampleCount } = rest
  if (cls === 'PrioritizedSampler')
    return new PrioritizedSampler(given({ alpha, beta, eps, maxPriorityWithinBuffer }))
  if (cls === 'ConsumingSampler') return new ConsumingSampler(given({ maxSampleCount }))
  return cls === 'SamplerWithoutReplacement' ? new SamplerWithoutReplacement() : new RandomSampler()
}

function writerOf({ cls, rank_key: rankKey, reduction, track_generations: trackGenerations = false }) {
  if (cls === 'TensorDictMaxValueWriter')
    return new TensorDictMaxValueWriter(given({ rankKey: keyIn(rankKey), reduction }))
  return cls === 'ImmutableDatasetWriter'
    ? new ImmutableDatasetWriter()
    : new RoundRobinWriter({ trackGenerations })
}

/** Returns Fulmar's result: `{ value }` or `{ error }`, or `undefined` for an operation that it lacks. */
function asked(player, op) {
  const { buffer } = player
  if (op.op === 'state_roundtrip') return reloaded(player)
  const answer = attempt(() => ASK[op.op](buffer, op, player))
  const { live } = partsOf(buffer).sampler ?? {}
  return live ? { ...answer, live: liveOf({ live }, buffer.storage.length) } : answer
}

const ASK = {
  len: (buffer) => buffer.length,
  add: (buffer, { data }) => [buffer.add(itemIn(data))],
  extend(buffer, { data, kwargs }) {
    const updatePriority = kwargs?.update_priority ?? undefined
    return updatePriority === undefined
      ? buffer.extend(itemsIn(data))
      : buffer.extendWith(itemsIn(data), { updatePriority })
  },
  get: (buffer, { index }) =>
    isKey(index) ? buffer.readAllInOrder().tensor(keyIn(index)) : buffer.at(...indexIn(index)),
  setitem: (buffer, { index, data }) => buffer.setAt(indexIn(index), dictIn(data)),
  set_at_: (buffer, { key, value, index }) =>
    value.$t && buffer.setKeyAt(keyIn(key), tensorIn(value), indexIn(index)),
  set_: (buffer, { key, value }) => value.$t && buffer.setKeyAt(keyIn(key), tensorIn(value), [{}]),
  write_all: (buffer, { data, kwargs }) => buffer.writeAll(dictIn(data), kwargs?.end ?? undefined),
  // The row does not say how many were asked for, only how many came.
  read_all: (buffer, { ok }) => buffer.readAllInOrder(ok?.$td?.[0] ?? ok?.b?.[0]),
  sample_size: (buffer, { batch_size: count }) => [...buffer.sample(count ?? undefined).batchSize],
  sample_index(buffer, { index }, { lanes }) {
    const dims = index.$tuple?.map(numbersIn)
    return buffer.storage.get(dims ? dims[0].map((time, at) => time * lanes + dims[1][at]) : numbersIn(index))
  },
  stats: (buffer) => buffer.stats,
  empty: (buffer, { kwargs }) => buffer.clear({ keepWriteCount: kwargs?.empty_write_count === false }),
  generations_of: (buffer, { index }) => buffer.generationsOf(numbersIn(index)),
  update_priority: (buffer, { index, priority }) =>
    buffer.updatePriority(numbersIn(index), numbersIn(priority)),
  update_tensordict_priority: (buffer, { data }) => buffer.updateTensorDictPriority(dictIn(data)),
  set_alpha(buffer, { value }) {
    buffer.sampler.alpha = value
  },
  update_if_present(buffer, { kwargs }) {
    const { version_key: versionKey, version, require_newer: requireNewer = false } = kwargs
    return buffer.updateIfPresent({
      index: numbersIn(kwargs.index),
      generation: numbersIn(kwargs.generation),
      patch: dictIn(kwargs.patch),
      ...given({ versionKey: keyIn(versionKey), version: version && numbersIn(version) }),
      requireNewer,
    })
  },
  write_at: (buffer, { index, data }) => buffer.writeAt(numbersIn(index), dictIn(data)),
}

function reloaded(player) {
  const state = player.buffer.stateDict()
  player.buffer = bufferOf(player.setup, player.lanes)
  player.buffer.loadStateDict(state)
  return { value: player.buffer.stateDict().parts === state.parts }
}

/** Returns the difference between Fulmar's result and the expected one. */
function outcomeDiffers(ours, wanted, op) {
  if (wanted === undefined) return undefined
  if (wanted.error !== undefined) return ours.error ? undefined : `must be refused: ${wanted.error}`
  if (ours.error) return ours.error.message
  const { value } = ours
  const { ok } = wanted
  if (['add', 'extend'].includes(op.op)) return rowsDiffer(value, ok)
  if (['get', 'sample_index', 'read_all'].includes(op.op)) return differsFrom(value, ok)
  if (op.op === 'generations_of') return same(value, numbersIn(ok))
  if (op.op === 'state_roundtrip') return value ? undefined : 'the state must come back'
  if (op.op === 'sample_size' || op.op === 'len') return same(value, ok)
  if (op.op === 'stats') {
    const { prefetch_queue_size: ahead, write_count: count, ...rest } = Object.fromEntries(ok.$dict)
    const { prefetchQueueSize, writeCount, ...own } = value
    return same(
      { ...own, initialized: true, ahead: prefetchQueueSize, count: writeCount },
      { ...rest, ahead, count },
    )
  }
  if (op.op === 'update_if_present') {
    const { updated, version_rejected: rejected } = Object.fromEntries(ok.$dict)
    return same([value.updated, value.versionRejected], [updated.d, rejected === null ? null : rejected.d])
  }
  return undefined
}

function rowsDiffer(rows, ok) {
  const lanes = ok?.s?.length === 2 ? ok.s[0] : undefined
  const wanted = ok === null ? [-1] : numbersIn(ok)
  const width = lanes && Math.max(...range(lanes).map((at) => wanted[2 * at + 1])) + 1
  return same(width ? rows.flatMap((row) => [Math.floor(row / width), row % width]) : rows, wanted)
}

/** Compares the contents of the buffer with the expected ones. */
function heldDiffers(buffer, model, { lanes }) {
  const { writer, sampler } = partsOf(buffer)
  const { storage, stats } = buffer
  const length = lanes ? model.depth * lanes : model.storageLen
  const capacity = lanes ? model.depthMax * lanes : model.maxSize
  const size = model.counts ? model.size : length
  const sizes = [buffer.length, stats.size, stats.capacity, storage.maxSize, storage.length, stats.writeCount]
  const difference =
    same(sizes, [size, length, capacity, capacity, length, model.writeCount]) ??
    (writer?.cursor === undefined ? undefined : same(writer.cursor, model.cursor)) ??
    (writer?.ranks ? ranksDiffer(writer.ranks, model) : undefined) ??
    (model.generations
      ? same(buffer.generationsOf(range(model.depthMax)), model.allGenerations())
      : undefined) ??
    (model.counts ? same(liveOf(sampler, length), model.live()) : undefined) ??
    (model.priorities ? prioritiesDiffer(sampler, model) : undefined)
  if (difference || length === 0) return difference
  if (!model.isList) {
    const rows = lanes
      ? storage.get(range(length)).unflatten(0, [length / lanes, lanes])
      : storage.get(range(length))
    return differsFrom(rows, model.state().contents)
  }
  // Row by row: not all rows have the same leaves.
  const at = model.rows.findIndex(
    (row, place) => differsFrom(storage.get([place]).index(0), row) !== undefined,
  )
  return at < 0 ? undefined : `row ${at} differs`
}

const ranksDiffer = (ranks, { top }) =>
  far(
    'ranks',
    ranks,
    top.toSorted(([, a], [, b]) => a - b).map(([rank]) => rank),
  )

const liveOf = ({ live }, length) => range(length).map((row) => live.includes(row))

function prioritiesDiffer({ tree: { leaves }, maxPriority }, { priorities, storageLen }) {
  const all = range(priorities.capacity).map((row) => leaves[row] ?? 0)
  const kept = priorities.state(storageLen)
  return far('leaves', all, kept.sum_leaves) ?? far('largest', maxPriority ?? [], kept.max_priority ?? [])
}

/** A buffer that holds what the model does: rows by writes, the rest by a state. */
function broughtTo(model, { setup, lanes }) {
  const { track_generations: tracked } = setup.writer ?? {}
  const donor = bufferOf(setup, lanes, tracked ? { track_generations: true } : {})
  const held = model.held()
  if (model.isList) for (const row of held) donor.add(itemIn(known(row)))
  else if (held.length > 0) donor.extend(itemsIn(known(model.whole())))
  const { priorities, counts, cursor, writeCount, generations, top } = model
  if (priorities && held.length > 0) {
    donor.sampler.alpha = priorities.alpha
    donor.updatePriority(
      range(model.storageLen),
      priorities.leaves.slice(0, model.storageLen).map((leaf) => priorities.raw(leaf)),
    )
  }
  const state = donor.stateDict()
  const { writer } = JSON.parse(state.parts)
  const len = model.depth
  const kept = {
    TensorDictMaxValueWriter: {
      capacity: writer.capacity,
      writeCount,
      ranks: top.toSorted(([, a], [, b]) => a - b).map(([rank]) => rank),
    },
    ImmutableDatasetWriter: null,
  }
  const plain = {
    ...writer,
    cursor,
    len,
    writeCount,
    generations: generations ? model.allGenerations() : null,
  }
  const parts = {
    writer: Object.hasOwn(kept, model.writer) ? kept[model.writer] : plain,
    ...(priorities && { maxPriority: priorities.largest }),
    ...(counts && {
      counts: range(model.storageLen).map((row) => counts[row] ?? 0),
      live: range(model.storageLen).filter((row) => model.live()[row]),
      freed: model.freed,
    }),
  }
  const buffer = bufferOf(setup, lanes)
  buffer.loadStateDict({ ...state, parts: replaced(state.parts, parts) })
  if (priorities) buffer.sampler.alpha = priorities.alpha
  return buffer
}

/** Memory that nothing was written to as zeros. */
const known = (value) => JSON.parse(JSON.stringify(value).replaceAll('"uninit"', '0'))

/** A state with other parts. Its text stays otherwise: seeds are integers that JavaScript's numbers would round. */
const replaced = (text, parts) =>
  Object.entries(parts).reduce(
    (all, [name, value]) =>
      all.replace(
        new RegExp(`"${name}":(null|\\[[^\\]]*\\]|\\{[^}]*\\})`),
        `"${name}":${JSON.stringify(value)}`,
      ),
    text,
  )

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
    const zeros = { $td: [count], k: { x: { $t: 'float32', s: [count], d: Array(count).fill(0) } } }
    writer.extend(dictIn(zeros))
    other.updatePriority([], [])
    if (op.leaves.length !== buffers.length) return `${op.leaves.length} buffers`
    for (const [at, buffer] of buffers.entries()) {
      const { writer, sampler } = partsOf(buffer)
      const leaves = range(capacity).map((row) => sampler.tree.leaves[row] ?? 0)
      const difference =
        same([buffer.length, writer.cursor], [op.len[at], op.cursors[at]]) ??
        far('leaves', leaves, op.leaves[at])
      if (difference) return difference
    }
  }
  return undefined
}

const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
