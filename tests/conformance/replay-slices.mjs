/** Compares slices and windows with golden rows: which can be drawn, how often, and what is said of their steps. */

import { isDeepStrictEqual } from 'node:util'
import {
  findStartStopTraj,
  LazyTensorStorage,
  PrioritizedSliceSampler,
  ReplayBuffer,
  Sequence,
  SliceSampler,
  SliceSamplerWithoutReplacement,
  StreamingSliceSampler,
  Tensor,
  TensorDict,
} from 'fulmar'
import {
  attempt,
  decided,
  dictIn,
  elementsOf,
  far,
  given,
  isSame,
  keyIn,
  misdrawn,
  numbersIn,
  partsOf,
  range,
  skipped,
  tensorIn,
} from './replay-rows.mjs'

const CHECKS = {
  find_start_stop_traj: ofScan,
  slice_fragmented: ofFragments,
  slice_distribution: ofDistribution,
  slice_distribution_nd: ofLanes,
  slice_ctor: ofConstruction,
  slice_sample_error: ofRefusal,
  slice_without_replacement: ofEpochs,
  prioritized_slice: ofPriorities,
  sequence_unit: ofWindows,
  slice_flags: ofFlags,
  streaming_slice: ofStream,
}

const DONE = ['next', 'done']

export const replaySlices = {
  topic: 'slices of replay buffers',
  members: {
    input: `id topic note args slice_len batch_size num num_slices_per_call writes storage lanes capacity cursor priorities lengths written
      dones anchors ops.*.op ops.*.data ops.*.batch_size calls.*.extend
      sampler.alpha sampler.beta sampler.cache_values sampler.drop_last sampler.end_key sampler.end_keys sampler.ends sampler.fragmented
      sampler.init_key sampler.num_slices sampler.pad_output sampler.shuffle sampler.slice_len sampler.span sampler.step_key
      sampler.strict_length sampler.traj_key sampler.trajectories sampler.truncated_key
      unit.bootstrap unit.burn_in unit.dilation unit.done_key unit.episode_boundary unit.length`,
    expected: `ok slices boundaries runs leaves_after info_in ops.*.len ops.*.cursor ops.*.queued ops.*.pending ops.*.sample
      calls.*.ran_out calls.*.remaining calls.*.rows calls.*.trajectories calls.*.episodes_sorted`,
    refusal: 'error:ok calls.*.error:ok',
    aside: { empirical: 'draws of the original are evidence for its probabilities' },
  },
  matches: ({ topic, id }) => Object.hasOwn(CHECKS, topic) && typeof id === 'string',
  prepare: () => undefined,
  check: ({ value: row }) => CHECKS[row.topic](row),
}

const bufferOf = (sampler, capacity, seed = 17) =>
  new ReplayBuffer({ storage: new LazyTensorStorage(capacity), sampler, seed })

const flags = (values) => Tensor.from(Uint8Array.from(values, Number), { dtype: 'bool' })
const whole = (values) => Tensor.from(BigInt64Array.from(values, BigInt))

/** Writes the rows that a golden storage holds, so that they lie where they lie there. */
function fill(buffer, { len, capacity, cursor = 0, ...columns }) {
  const isFull = len === capacity
  const before = isFull ? cursor : 0
  const aged = range(len).map((row) => (isFull ? (cursor + row) % len : row))
  // Rows before the oldest are ends of their own; they are written over.
  const write = (count, at) => {
    if (count === 0) return
    const dict = TensorDict.from({}, { batchSize: [count] })
    for (const [name, values] of Object.entries(columns)) {
      if (!Array.isArray(values)) continue
      const make = name === 'episode' || name === 'step' ? whole : flags
      const early = name === 'episode' ? -1 : 1
      const leaf = make(range(count).map((row) => (at ? values[at[row]] : early)))
      dict.set(name.split('.'), make === flags ? leaf.reshape([count, 1]) : leaf)
    }
    buffer.extend(dict)
  }
  write(before)
  write(len, aged)
}

/** Steps of episodes, as the rows tell of writes. */
function episode({ episode: id, len, ends = true }) {
  const dict = TensorDict.from({ episode: whole(Array(len).fill(id)) }, { batchSize: [len] })
  return dict.set(DONE, flags(range(len).map((step) => ends && step === len - 1)))
}

function ofScan({ args, ok, error }) {
  const { at_capacity: atCapacity } = args
  // The last of a tensor or a range was written last.
  const { $range, $t } = args.cursor ?? {}
  const written = $t
    ? numbersIn(args.cursor)
    : $range
      ? range($range[1] - $range[0]).map((at) => $range[0] + at)
      : undefined
  const cursor = written ? written.at(-1) : (args.cursor ?? undefined)
  if (written?.length === 0)
    return error ? decided('the step that was written last is a number') : 'it must be refused'
  const steps = Object.fromEntries(
    ['end', 'trajectory'].flatMap((name) => (args[name] ? [[name, tensorIn(args[name])]] : [])),
  )
  const { value: found, error: refusal } = attempt(() =>
    findStartStopTraj({ ...steps, atCapacity, ...given({ cursor }) }),
  )
  if (error) return refusal ? undefined : 'must be refused'
  if (refusal) return refusal.message
  const want = Object.fromEntries(ok.$dict)
  const got = [
    found.flatMap(({ start }) => start),
    found.flatMap(({ stop }) => stop),
    found.map(({ length }) => length),
  ]
  const expected = ['start', 'stop', 'length'].map((name) => numbersIn(want[name]))
  return isDeepStrictEqual(got, expected)
    ? undefined
    : `got ${JSON.stringify(got)}, expected ${JSON.stringify(expected)}`
}

function optionsOf({ sampler }) {
  const { slice_len: sliceLen, num_slices: numSlices, strict_length: strictLength } = sampler
  const { pad_output: padOutput, span, traj_key: trajKey, end_key: endKey, end_keys: endKeys } = sampler
  const spans = span?.$tuple ?? (span === undefined ? undefined : [span, span])
  const ends = endKeys?.map(keyIn) ?? (endKey ? [keyIn(endKey)] : undefined)
  return given({
    sliceLen,
    numSlices,
    strictLength,
    padOutput,
    span: spans?.map((one) => (typeof one === 'number' && one <= 0 ? false : one)),
    // Without a key of ends, items are told apart by their ids, as they are there.
    trajKey: trajKey ?? (ends ? undefined : 'episode'),
    endKeys: ends,
    fragmented: sampler.fragmented,
  })
}

function ofFragments(row) {
  const options = optionsOf(row)
  const buffer = bufferOf(new SliceSampler(options), row.capacity)
  for (const { episode: ids, step_count: steps } of row.writes) {
    const columns = { episode: whole(ids), step_count: whole(steps) }
    buffer.extend(TensorDict.from(columns, { batchSize: [ids.length] }))
  }
  const draw = () => buffer.sampleWithInfo(20 * options.sliceLen)
  if (row.error) return attempt(draw).error ? undefined : 'must be refused'
  const kinds = row.slices.map(({ slots }) => slots.join())
  const drawn = range(100).flatMap(() => slicesOf(draw(), options).map((slice) => kinds.indexOf(slice)))
  return drawn.includes(-1)
    ? 'a slice is none of the golden ones'
    : misdrawn(
        drawn,
        row.slices.map(({ p }) => fraction(p)),
      )
}

function ofDistribution(row) {
  const { sampler: named, storage, slice_len: sliceLen, note } = row
  if (note?.startsWith('missing')) return decided('a key that is named is stored')
  const options = optionsOf(row)
  // Boundaries that are given beside the storage are stored here.
  const columns = { ...storage }
  if (named.ends) Object.assign(columns, { ends: numbersIn(named.ends) })
  if (named.trajectories) Object.assign(columns, { episode: numbersIn(named.trajectories) })
  if (named.ends) Object.assign(options, { trajKey: undefined, endKeys: ['ends'] })
  const buffer = bufferOf(new SliceSampler(given(options)), storage.capacity)
  fill(buffer, columns)
  const count = sliceLen * (options.numSlices ?? 1)
  const spans = options.span ?? [false, false]
  if (row.error && !spans[0] && !spans[1])
    return attempt(() => buffer.sample(count)).error ? undefined : 'must be refused'
  // There a span on the right cuts off one step more than asked for, or all, and fails beside a shorter trajectory.
  const differsOnPurpose = Boolean(spans[1]) || Boolean(row.error)
  const golden = new Map()
  for (const { slots, p } of row.slices ?? []) {
    const key = numbersIn(slots).join()
    golden.set(key, (golden.get(key) ?? 0) + fraction(p))
  }
  const expected = differsOnPurpose ? enumerated(row, options, spans) : golden
  if (expected === undefined) return decided('a span on the right cuts off as many steps as it says')
  const kinds = [...expected.keys()]
  const drawn = []
  // Large batches are faster; a number of slices fixes the size of one.
  const [draws, size] = options.numSlices ? [400, count] : [20, 20 * count]
  for (let draw = 0; draw < draws; draw++) {
    for (const slice of slicesOf(buffer.sampleWithInfo(size), options)) {
      const kind = kinds.indexOf(slice)
      if (kind < 0) return `${slice} is no slice`
      drawn.push(kind)
    }
  }
  const difference = misdrawn(drawn, [...expected.values()])
  return (
    difference ??
    (differsOnPurpose ? decided('a span on the right cuts off as many steps as it says') : undefined)
  )
}

const fraction = (text) => {
  const [over, under = 1] = String(text).split('/').map(Number)
  return over / under
}

/** The slices of a batch, each as its rows: they end where a step is flagged as the last. */
function slicesOf({ items, index, info }, { padOutput, sliceLen, numSlices }) {
  if (padOutput) {
    const size = sliceLen ?? index.length / numSlices
    return range(index.length / size).map((at) => index.slice(at * size, (at + 1) * size).join())
  }
  const last = elementsOf(items.tensor(['next', 'truncated']))
  const slices = []
  let start = 0
  for (const [at, flag] of last.entries()) {
    if (!flag) continue
    slices.push(index.slice(start, at + 1).join())
    start = at + 1
  }
  return info && slices
}

/** The slices that can be drawn, by enumeration of all trajectories and first steps, with their probabilities. */
function enumerated({ boundaries, storage, slice_len: sliceLen }, { strictLength = true }, [left, right]) {
  if (!boundaries) return undefined
  const all = boundaries.length
    .map((length, at) => ({ start: boundaries.start[at][0], length }))
    .filter(({ length }) => !strictLength || length >= sliceLen)
  const slices = new Map()
  for (const { start, length } of all) {
    const steps = Math.min(sliceLen, length)
    const cut = (span) => (span === false ? 0 : span === true ? steps - 1 : Math.min(span, steps - 1))
    const firsts = range(length - steps + cut(right) + cut(left) + 1).map((at) => at - cut(left))
    for (const first of firsts) {
      const from = Math.max(first, 0)
      const rows = range(Math.min(first + steps, length) - from).map(
        (step) => (start + from + step) % storage.capacity,
      )
      slices.set(rows.join(), (slices.get(rows.join()) ?? 0) + 1 / all.length / firsts.length)
    }
  }
  return slices
}

function ofLanes({ sampler, slice_len: sliceLen, lanes, writes, storage, slices }) {
  const options = { ...optionsOf({ sampler }), sliceLen, endKeys: [DONE] }
  delete options.trajKey
  const lazy = new LazyTensorStorage(storage.shape[0] * lanes, { lanes: [lanes] })
  const buffer = new ReplayBuffer({ storage: lazy, sampler: new SliceSampler(options), seed: 17 })
  for (const { len, done } of writes) {
    const batchSize = [lanes, len]
    const ends = Tensor.from(Uint8Array.from(done.flat()), { shape: [...batchSize, 1], dtype: 'bool' })
    buffer.extend(TensorDict.from({}, { batchSize }).set(DONE, ends))
  }
  const kinds = slices.map(({ slots }) => slots.map(([time, lane]) => time * lanes + lane).join())
  const drawn = range(50).flatMap(() =>
    slicesOf(buffer.sampleWithInfo(100 * sliceLen), {}).map((slice) => kinds.indexOf(slice)),
  )
  return drawn.includes(-1)
    ? 'a slice is none of the golden ones'
    : misdrawn(
        drawn,
        slices.map(({ p }) => fraction(p)),
      )
}

function ofConstruction({ sampler, error }) {
  if (sampler.step_key === null) return decided('steps are counted at step_count where nothing else is said')
  const isForeign = ['ends', 'trajectories', 'end_keys'].some((name) => sampler[name] !== undefined)
  if (isForeign && error) return decided('where trajectories end is what items say, in their order')
  if (!error) return skipped('slices of static ends')
  return attempt(() => bufferOf(new SliceSampler(optionsOf({ sampler })), 10)).error
    ? undefined
    : 'must be refused'
}

function ofRefusal({ sampler, writes, batch_size: count }) {
  const { error } = attempt(() => {
    const buffer = bufferOf(new SliceSampler({ ...optionsOf({ sampler }), trajKey: 'episode' }), 20)
    for (const write of writes) buffer.extend(episode(write))
    buffer.sample(count)
  })
  return error ? undefined : 'must be refused'
}

function ofEpochs({ sampler, writes, storage, calls, num_slices_per_call: perCall }) {
  const options = {
    ...optionsOf({ sampler }),
    ...given({ dropLast: sampler.drop_last, shuffle: sampler.shuffle }),
  }
  const buffer = bufferOf(new SliceSamplerWithoutReplacement(options), storage.capacity)
  const next = [0]
  const write = ({ episode: id, len }) => {
    // Episodes are told apart by when they were written, as their ids come again.
    buffer.extend(episode({ episode: id, len }).set('nth', whole(Array(len).fill(next[0]++))))
  }
  for (const one of writes) write(one)
  let seen = []
  for (const [at, call] of calls.entries()) {
    if (call.extend) {
      write(call.extend)
      seen = []
      if (sampler.strict_length) return decided('a trajectory too short for a slice has no place in an epoch')
      continue
    }
    const { value: batch, error } = attempt(() => buffer.sampleWithInfo(options.sliceLen * perCall))
    if (call.error) {
      if (!error) return `call ${at}: must be refused`
      continue
    }
    if (error) return `call ${at}: ${error.message}`
    const slices = slicesOf(batch, options)
    if (slices.length !== call.trajectories.length) return `call ${at}: ${slices.length} slices`
    if (buffer.sampler.ranOut !== call.ran_out) return `call ${at}: ranOut is ${buffer.sampler.ranOut}`
    const nth = elementsOf(batch.items.tensor('nth'))
    const last = elementsOf(batch.items.tensor(['next', 'truncated']))
    seen.push(...nth.filter((_, row) => last[row]))
    if (new Set(seen).size !== seen.length) return `call ${at}: a trajectory comes again`
    if (!buffer.sampler.ranOut) continue
    const isWhole = seen.length === slices.length && !sampler.drop_last
    if (isWhole && batch.index.length !== call.rows) return `call ${at}: ${batch.index.length} rows`
    seen = []
  }
  return undefined
}

function ofPriorities({ sampler, storage, slice_len: sliceLen, priorities, slices, error }) {
  const { alpha, beta } = sampler
  const options = { ...optionsOf({ sampler }), alpha, beta, endKeys: [DONE] }
  delete options.trajKey
  const made = attempt(() => bufferOf(new PrioritizedSliceSampler(options), storage.capacity, 6))
  if (sampler.span?.$tuple)
    return made.error ? decided('a slice begins at the row that was drawn') : 'must be refused'
  if (made.error) return made.error.message
  const buffer = made.value
  fill(buffer, storage)
  if (priorities) buffer.updatePriority(range(storage.len), numbersIn(priorities))
  const count = sliceLen * (options.numSlices ?? 60)
  if (error) {
    const refused = attempt(() => buffer.sample(count)).error !== undefined
    if (sliceLen === 1)
      return refused ? 'a slice of one step must be drawn' : decided('every row is a slice of one step')
    return refused ? undefined : 'must be refused'
  }
  const kinds = slices.map(({ slots }) => slots.join())
  const drawn = []
  for (let draw = 0; draw < (options.numSlices ? 1500 : 60); draw++) {
    const batch = buffer.sampleWithInfo(count)
    const weights = elementsOf(batch.info.tensor('priority_weight'))
    let at = 0
    for (const slice of slicesOf(batch, options)) {
      const kind = kinds.indexOf(slice)
      if (kind < 0) return `${slice} is no slice`
      const steps = slice.split(',').length
      const difference = far('weights', weights.slice(at, at + steps), Array(steps).fill(slices[kind].weight))
      if (difference) return difference
      at += steps
      drawn.push(kind)
    }
  }
  return misdrawn(
    drawn,
    slices.map(({ p }) => p),
  )
}

/** Draws until each anchor has come, as which row is drawn is chance, and compares its window. */
function ofWindows({ unit, capacity, written, dones, lanes, anchors, error, ok }) {
  const { length, episode_boundary: boundary, burn_in: burnIn, bootstrap, dilation, done_key: doneKey } = unit
  const episodeBoundary = boundary === 'include_reset' ? 'includeReset' : boundary
  const options = {
    ...given({ length, episodeBoundary, burnIn, bootstrap, dilation }),
    ...(doneKey === null && { doneKey }),
  }
  const storage = new LazyTensorStorage(capacity ?? 1, lanes ? { lanes: [lanes] } : {})
  const made = attempt(() => {
    const buffer = new ReplayBuffer({ storage, sampleUnit: new Sequence(options), seed: 1 })
    if (error) {
      buffer.extend(TensorDict.from({}, { batchSize: [1] }).set(DONE, flags([0])))
      buffer.sample(1)
    }
    return buffer
  })
  if (error) return made.error ? undefined : 'must be refused'
  if (made.error) return made.error.message
  const buffer = made.value
  const width = lanes ?? 1
  const ends = dones.map((at) => (Array.isArray(at) ? at[0] * width + at[1] : at))
  const batchSize = lanes ? [lanes, written] : [written]
  const isEnd = (lane, step) => Number(ends.includes(step * width + lane))
  const bits = lanes
    ? range(lanes).flatMap((lane) => range(written).map((step) => isEnd(lane, step)))
    : range(written).map((step) => isEnd(0, step))
  const done = Tensor.from(Uint8Array.from(bits), { shape: batchSize, dtype: 'bool' })
  buffer.extend(TensorDict.from({}, { batchSize }).set(DONE, done))
  const want = Object.fromEntries(ok.$dict)
  const flat = (tensor) => {
    const values = numbersIn(tensor)
    return tensor.s.length < 2
      ? values
      : range(tensor.s[0]).map((at) => values[at * 2] * width + values[at * 2 + 1])
  }
  const steps = want.index.s[0] / anchors.length
  const columns = ['step_in_sequence', 'learning_mask', 'validity_mask']
  for (const [nth, anchor] of anchors.entries()) {
    const row = anchor.$tuple ? anchor.$tuple[0] * width + anchor.$tuple[1] : anchor
    const part = (name) => flat(want[name]).slice(nth * steps, (nth + 1) * steps)
    const found = drawnUntil(buffer, 1, ({ info }) => flatAnchor(info, width)[0] === row)
    if (!found) return `row ${row} must be drawn`
    const got = [found.index, ...columns.map((name) => elementsOf(found.info.tensor(name)))]
    const expected = [
      part('index'),
      ...columns.map((name) => (want[name] ? part(name) : got[1 + columns.indexOf(name)])),
    ]
    if (!isDeepStrictEqual(got, expected))
      return `row ${row}: got ${JSON.stringify(got)}, expected ${JSON.stringify(expected)}`
  }
  return undefined
}

/** The first batch of that kind; nothing if it does not come. */
function drawnUntil(buffer, count, isIt) {
  for (let draw = 0; draw < 5000; draw++) {
    const batch = buffer.sampleWithInfo(count)
    if (isIt(batch)) return batch
  }
  return undefined
}

function flatAnchor(info, width) {
  const tensor = info.tensor('anchor_index')
  const values = elementsOf(tensor)
  return tensor.shape.length < 2
    ? values
    : range(tensor.shape[0]).map((at) => values[at * 2] * width + values[at * 2 + 1])
}

/** Where slices are flagged; null there is null here. */
function flagsIn({ truncated_key: truncatedKey, init_key: initKey }) {
  return {
    ...given({ truncatedKey: keyIn(truncatedKey), initKey: keyIn(initKey) }),
    ...(truncatedKey === null && { truncatedKey }),
    ...(initKey === null && { initKey }),
  }
}

/** Compares each slice with one of the same rows, as which are drawn is chance. */
function ofFlags({ sampler, storage, slice_len: sliceLen, num, ok }) {
  const { index, sample } = Object.fromEntries(ok.$dict)
  const rows = numbersIn(index.$tuple[0])
  if (rows.length !== sliceLen * num) return skipped('how long each slice is')
  const buffer = bufferOf(
    new SliceSampler({
      sliceLen,
      endKeys: [DONE],
      strictLength: sampler.strict_length,
      ...given({ padOutput: sampler.pad_output }),
      ...flagsIn(sampler),
    }),
    storage.capacity,
  )
  const shown = given({ 'next.terminated': sample.k.next.k.terminated && storage['next.terminated'] })
  fill(buffer, { ...storage, ...shown })
  const want = dictIn({
    ...sample,
    k: Object.fromEntries(Object.entries(sample.k).filter(([name]) => name !== 'index')),
  })
  for (const nth of range(num)) {
    const at = rows.slice(nth * sliceLen, (nth + 1) * sliceLen)
    const found = drawnUntil(buffer, sliceLen, (batch) => isDeepStrictEqual(batch.index, at))
    if (!found) return `${at} must be drawn`
    const expected = want.slice(nth * sliceLen, (nth + 1) * sliceLen)
    for (const key of expected.leafKeys()) {
      // What the sampler says of rows stands beside the items; a mask of all is not said.
      const isMask = key[0] === 'collector'
      const got = isMask ? (found.info.get(key) ?? flags(Array(sliceLen).fill(1))) : found.items.get(key)
      if (!got?.equals(expected.get(key))) return `${at}: ${key.join('.')} is ${got && elementsOf(got)}`
    }
  }
  return undefined
}

function ofStream({ sampler, capacity, ops }) {
  const { slice_len: sliceLen, traj_key: trajKey, end_key: endKey } = sampler
  const options = given({ sliceLen, trajKey: keyIn(trajKey), endKeys: endKey && [keyIn(endKey)] })
  const buffer = bufferOf(new StreamingSliceSampler(options), capacity)
  for (const [at, op] of ops.entries()) {
    if (op.op === 'extend') buffer.extend(dictIn(op.data))
    else if (op.op === 'sample') {
      const { items, index } = buffer.sampleWithInfo(op.batch_size)
      if (!isDeepStrictEqual(index, numbersIn(op.sample.k.index))) return `op ${at}: rows are ${index}`
      if (!isSame(items, op.sample)) return `op ${at}: items differ`
    } else {
      const { queued, pending } = partsOf(buffer).sampler
      const rows = (slice) => slice.map(([row]) => row)
      const got = [queued.map(rows), rows(pending)]
      const want = [op.queued.map(([slice]) => slice), op.pending]
      if (!isDeepStrictEqual(got, want))
        return `op ${at}: got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
    }
  }
  return undefined
}
