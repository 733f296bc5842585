/** Compares slices and windows with golden rows: which can be drawn, how often, and what is said of their steps. */

import { isDeepStrictEqual } from 'node:util'
import { Tensor, TensorDict } from 'fulmar'
import {
  findStartStopTraj,
  LazyTensorStorage,
  PrioritizedSliceSampler,
  ReplayBuffer,
  Sequence,
  SliceSampler,
  SliceSamplerWithoutReplacement,
  StreamingSliceSampler,
} from 'fulmar/replay'
import { decided } from './loss-rows.mjs'
import { differsFrom } from './replay-items.mjs'
import {
  attempt,
  dictIn,
  elementsOf,
  far,
  given,
  keyIn,
  misdrawn,
  numbersIn,
  partsOf,
  range,
  tensorIn,
} from './replay-rows.mjs'
import { fractionIn, isSameFraction, slicesOf as slicesIn } from './slice-model.mjs'

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
  matches: ({ topic }) => Object.hasOwn(CHECKS, topic),
  prepare: () => undefined,
  check: ({ value: row }) => CHECKS[row.topic](row),
}

const bufferOf = (sampler, capacity, seed = 17) =>
  new ReplayBuffer({ storage: new LazyTensorStorage(capacity), sampler, seed })

const flags = (values) => Tensor.from(Uint8Array.from(values, Number), { dtype: 'bool' })
const whole = (values) => Tensor.from(BigInt64Array.from(values, BigInt))

/** Writes the rows of a golden storage to the same positions. */
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
  const forms = Object.entries(want).map(([name, one]) => [name, one.$t, one.s])
  const count = found.length
  const dims = args.end?.s.length ?? args.trajectory.s.length
  const known = [
    ['start', 'int64', [count, dims]],
    ['stop', 'int64', [count, dims]],
    ['length', 'int64', [count]],
  ]
  if (!isDeepStrictEqual(forms, known))
    return `forms are ${JSON.stringify(known)}, not ${JSON.stringify(forms)}`
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
    // Without a key of ends, items are distinguished by their ids, as in the original.
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
  const golden = fragmentsDiffer(row, options)
  if (golden) return golden
  const kinds = row.slices.map(({ slots }) => slots.join())
  const drawn = range(100).flatMap(() => slicesOf(draw(), options).map((slice) => kinds.indexOf(slice)))
  return drawn.includes(-1)
    ? 'a slice is none of the golden ones'
    : misdrawn(
        drawn,
        row.slices.map(({ p }) => fraction(p)),
      )
}

/** Runs of consecutive steps of a trajectory, in any rows, and the slices within them. */
function fragmentsDiffer({ capacity, writes, cursor, slices, runs }, { sliceLen, strictLength, padOutput }) {
  const steps = writes.flatMap(({ episode: ids, step_count: counts }) =>
    ids.map((id, at) => ({ id, count: counts[at] })),
  )
  if (cursor !== steps.length % capacity) return `the cursor is ${cursor}`
  const rows = steps.map((step, at) => ({ ...step, row: at % capacity })).slice(-capacity)
  const sorted = rows.toSorted((a, b) => a.id - b.id || a.count - b.count)
  const all = []
  for (const step of sorted) {
    const last = all.at(-1)?.at(-1)
    if (last?.id === step.id && last.count + 1 === step.count) all.at(-1).push(step)
    else all.push([step])
  }
  const [order, starts, lengths] = runs
  if (runs.length !== 3 || starts.length !== lengths.length) return `runs are ${JSON.stringify(runs)}`
  const shown = starts.map((start, at) => order.slice(start, start + lengths[at]).join())
  const known = all.map((run) => run.map(({ row }) => row).join())
  const isWhole = order.length === rows.length && isDeepStrictEqual(shown.toSorted(), known.toSorted())
  if (!isWhole) return `runs are ${known.join(' ')}, not ${shown.join(' ')}`
  const flat = all.flat().map(({ row }) => row)
  const firsts = all.map((run) => ({ start: flat.indexOf(run[0].row), length: run.length }))
  const drawn = slicesIn(firsts, { capacity: flat.length, sliceLen, strictLength, padOutput })
  const expected = new Map(
    [...drawn].map(([key, one]) => [
      key
        .split(',')
        .map((at) => flat[at])
        .join(),
      one,
    ]),
  )
  return goldenDiffers({ slices }, [], expected)
}

const SPAN = 'a span on the right cuts off as many steps as it says'
const NAMED_KEY = 'a key that is named is stored'

/** The first and last rows of trajectories in a golden storage, as Fulmar finds them. */
function trajectoriesIn({ len, capacity, cursor = 0, ...columns }, options) {
  const ends = options.endKeys?.map((key) => columns[[key].flat().join('.')])
  if (ends?.includes(undefined)) return undefined
  if (!ends && columns[options.trajKey] === undefined) return undefined
  const steps = ends
    ? { end: flags(range(len).map((row) => ends.some((column) => Number(column[row]) !== 0))) }
    : { trajectory: whole(columns[options.trajKey]) }
  const written = len === capacity ? (cursor + len - 1) % len : len - 1
  return findStartStopTraj({ ...steps, atCapacity: len === capacity, cursor: written })
}

/** The first difference of a row's slices from those that the original can draw, with their exact probabilities. */
function goldenDiffers({ slices, boundaries, error }, trajectories, expected) {
  if (boundaries) {
    const got = ['start', 'stop', 'length'].map((name) =>
      trajectories.map((one) => (name === 'length' ? one.length : one[name])),
    )
    const want = [boundaries.start, boundaries.stop].map((list) =>
      list.map((one) => (one.length === 1 ? one[0] : one)),
    )
    if (
      !isDeepStrictEqual(
        got.map((list) => list.flat()),
        [...want, boundaries.length],
      )
    )
      return `boundaries are ${JSON.stringify(got)}`
  }
  if (error || expected === undefined)
    return error && expected === undefined ? undefined : 'the original fails, or not'
  const count = new Set(slices.map(({ slots }) => slots.join())).size
  if (count !== expected.size || slices.length !== count) return `${count} slices, not ${expected.size}`
  for (const { slots, p, mask } of slices) {
    const one = expected.get(slots.join())
    if (one === undefined) return `${slots} is no slice of the original`
    if (!isSameFraction(fractionIn(p), one.p))
      return `${slots} has the probability ${one.p.join('/')}, not ${p}`
    const isPlain =
      one.mask === undefined && (mask === null || Array.isArray(mask)) && (mask ?? []).every(Boolean)
    const isMasked =
      isDeepStrictEqual(mask, one.mask) || (isPlain && (mask?.length ?? slots.length) === slots.length)
    if (mask !== undefined && !isMasked) return `${slots} has the mask ${mask}`
  }
  return undefined
}

const firstsOf = (trajectories) =>
  trajectories.map(({ start, length }) => ({ start: [start].flat()[0], length }))

function ofDistribution(row) {
  const { sampler: named, storage, slice_len: sliceLen } = row
  const options = optionsOf(row)
  // Boundaries that are given separately are stored here.
  const columns = { ...storage }
  if (named.ends) Object.assign(columns, { ends: numbersIn(named.ends) })
  if (named.trajectories) Object.assign(columns, { episode: numbersIn(named.trajectories) })
  if (named.ends) Object.assign(options, { trajKey: undefined, endKeys: ['ends'] })
  const spans = (options.span ?? [false, false]).map((span) => (span === 0 ? false : span))
  const found = trajectoriesIn(columns, options)
  const { strictLength, padOutput } = options
  const model = { capacity: storage.capacity, sliceLen, strictLength, padOutput, span: spans }
  const count = sliceLen * (options.numSlices ?? 1)
  const buffer = bufferOf(new SliceSampler(given(options)), storage.capacity)
  if (found === undefined) {
    const { error } = attempt(() => {
      fill(buffer, columns)
      buffer.sample(count)
    })
    if (!error) return 'must be refused'
    if (row.error) return undefined
    // The original falls back from ids that are not there to flags.
    const fallen = trajectoriesIn(columns, { endKeys: [DONE] })
    return decided(
      NAMED_KEY,
      options.endKeys ? 'must be refused' : goldenDiffers(row, fallen, slicesIn(firstsOf(fallen), model)),
    )
  }
  const lists = firstsOf(found)
  const theirs = slicesIn(lists, model)
  const golden = goldenDiffers(row, found, theirs)
  if (golden !== undefined) return golden
  fill(buffer, columns)
  const expected = enumerated({ boundaries: lists, storage, slice_len: sliceLen }, options, spans)
  if (expected.size === 0) return attempt(() => buffer.sample(count)).error ? undefined : 'must be refused'
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
  if (difference !== undefined) return difference
  const isSame =
    theirs?.size === expected.size &&
    [...theirs].every(([key, { p }]) => Math.abs(expected.get(key) - Number(p[0]) / Number(p[1])) < 1e-12)
  return isSame ? undefined : decided(SPAN, spans[1] || row.error ? undefined : 'the slices are others')
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

/** The slices that can be drawn here, by enumeration of all trajectories and first steps, with their probabilities. */
function enumerated(
  { boundaries, storage, slice_len: sliceLen },
  { strictLength = true, padOutput = false },
  [left, right],
) {
  const all = boundaries.filter(({ length }) => !strictLength || length >= sliceLen)
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
      const width = padOutput ? sliceLen : rows.length
      const key = range(width)
        .map((step) => rows[Math.min(step, rows.length - 1)])
        .join()
      slices.set(key, (slices.get(key) ?? 0) + 1 / all.length / firsts.length)
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
  const total = notOne(slices)
  if (total) return total
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

const ITEMS_SAY = 'where trajectories end is what items say, in their order'

function ofConstruction({ sampler, error }) {
  const {
    ends,
    trajectories,
    end_key: endKey,
    end_keys: endKeys,
    traj_key: trajKey,
    step_key: stepKey,
  } = sampler
  const statics = [ends, trajectories].filter((one) => one !== undefined)
  const keys = [endKey, endKeys, trajKey].filter((one) => one !== undefined)
  const isWrong =
    statics.length === 2 ||
    (statics.length === 1 && (keys.length > 0 || sampler.fragmented || !sampler.cache_values)) ||
    (endKey !== undefined && endKeys !== undefined)
  const isTwofold = endKey !== undefined && endKeys !== undefined
  // Neither option is there, so there is no call that could be asked.
  if (statics.length > 0 || isTwofold)
    return decided(ITEMS_SAY, isWrong === (error !== undefined) ? undefined : 'the original fails, or not')
  const made = attempt(() => bufferOf(new SliceSampler(optionsOf({ sampler })), 10))
  if (stepKey === null && sampler.fragmented === true) {
    return decided(
      'steps are counted at step_count by default',
      error ? made.error?.message : 'the original fails',
    )
  }
  if ((made.error === undefined) === (error === undefined)) return undefined
  return made.error?.message ?? 'must be refused'
}

function ofRefusal({ sampler, writes, batch_size: count, error: theirs }) {
  const { error } = attempt(() => {
    const buffer = bufferOf(new SliceSampler({ ...optionsOf({ sampler }), trajKey: 'episode' }), 20)
    for (const write of writes) buffer.extend(episode(write))
    buffer.sample(count)
  })
  if ((error === undefined) === (theirs === undefined)) return undefined
  return error?.message ?? 'must be refused'
}

/** All probabilities together are one. */
function notOne(slices) {
  const total = slices.map(({ p }) => fractionIn(p)).reduce(([a, b], [c, d]) => [a * d + c * b, b * d])
  return isSameFraction(total, [1n, 1n]) ? undefined : `probabilities add up to ${total.join('/')}`
}

const BY_AGE = 'trajectories that are not shuffled come in the order in which they were written'
const TOO_SHORT = 'a trajectory too short for a slice has no place in an epoch'

function ofEpochs({ sampler, writes, storage, calls, lengths, num_slices_per_call: perCall }) {
  const options = {
    ...optionsOf({ sampler }),
    ...given({ dropLast: sampler.drop_last, shuffle: sampler.shuffle }),
  }
  const buffer = bufferOf(new SliceSamplerWithoutReplacement(options), storage.capacity)
  const next = [0]
  const write = ({ episode: id, len }) => {
    // Episodes are distinguished by when they were written, as their ids recur.
    buffer.extend(episode({ episode: id, len }).set('nth', whole(Array(len).fill(next[0]++))))
  }
  for (const one of writes) write(one)
  const first = heldBy(buffer).map(({ length }) => length)
  if (!isDeepStrictEqual(first, lengths)) return `lengths are ${first}`
  let [ours, theirs, departs, aged] = [[], [], false, false]
  for (const [at, call] of calls.entries()) {
    if (call.extend) {
      write(call.extend)
      ours = []
      theirs = []
      departs ||= sampler.strict_length && heldBy(buffer).some(({ length }) => length < options.sliceLen)
      continue
    }
    const held = heldBy(buffer)
    if (!call.error) {
      theirs.push(...call.trajectories)
      const wrong = callDiffers(call, held, theirs, { ...options, perCall })
      if (wrong) return `call ${at}: ${wrong}`
      if (call.ran_out) theirs = []
    }
    if (departs) continue
    const { value: batch, error } = attempt(() => buffer.sampleWithInfo(options.sliceLen * perCall))
    if ((error === undefined) !== (call.error === undefined))
      return `call ${at}: ${error?.message ?? 'must be refused'}`
    if (error) continue
    const slices = slicesOf(batch, options)
    if (slices.length !== call.trajectories.length) return `call ${at}: ${slices.length} slices`
    if (buffer.sampler.ranOut !== call.ran_out) return `call ${at}: ranOut is ${buffer.sampler.ranOut}`
    const nth = elementsOf(batch.items.tensor('nth'))
    const last = elementsOf(batch.items.tensor(['next', 'truncated']))
    const drawn = nth.filter((_, row) => last[row])
    ours.push(...drawn)
    if (new Set(ours).size !== ours.length) return `call ${at}: a trajectory comes again`
    if (!sampler.shuffle) {
      const isInPlace = isDeepStrictEqual(
        drawn,
        call.trajectories.map((one) => held[one].nth),
      )
      const left = held.map((one) => one.nth).filter((one) => !ours.slice(0, -drawn.length).includes(one))
      const isByAge = isDeepStrictEqual(drawn, left.toSorted((a, b) => a - b).slice(0, drawn.length))
      if (!isInPlace && !isByAge) return `call ${at}: trajectories ${drawn}`
      aged ||= !isInPlace
    }
    if (buffer.sampler.ranOut) ours = []
  }
  if (departs) return decided(TOO_SHORT)
  return aged ? decided(BY_AGE) : undefined
}

/** The trajectories of a buffer, in the order of their rows: when each was written, its id and its length. */
function heldBy(buffer) {
  const { length, maxSize } = buffer.storage
  const rows = buffer.storage.get(range(length))
  const [nth, ids] = [rows.tensor('nth'), rows.tensor('episode')].map(elementsOf)
  const { cursor } = partsOf(buffer).writer
  const found = trajectoriesIn({ len: length, capacity: maxSize, cursor, nth }, { trajKey: 'nth' })
  return firstsOf(found).map(({ start, length: steps }) => ({
    nth: nth[start],
    id: ids[start],
    length: steps,
  }))
}

/** The recorded state of a call of the original: the remaining trajectories, and the number of rows of those that it took. */
function callDiffers(call, held, seen, { sliceLen, strictLength = true, dropLast, perCall }) {
  const { trajectories, episodes_sorted: ids, rows, remaining, ran_out: ranOut } = call
  if (new Set(seen).size !== seen.length || seen.some((one) => held[one] === undefined))
    return `trajectories are ${seen}`
  const taken = trajectories.map((one) => held[one])
  const isTaken = ({ length }) => !strictLength || length >= sliceLen
  const shown = taken.filter(isTaken)
  const left = ranOut ? held.length : held.length - seen.length
  const known = [
    shown.map(({ id }) => id).toSorted((a, b) => a - b),
    shown.reduce((sum, { length }) => sum + Math.min(length, sliceLen), 0),
    dropLast ? Math.floor(left / perCall) : Math.ceil(left / perCall),
  ]
  const got = [ids, rows, remaining]
  return isDeepStrictEqual(got, known)
    ? undefined
    : `got ${JSON.stringify(known)}, expected ${JSON.stringify(got)}`
}

function ofPriorities(row) {
  const { sampler, storage, slice_len: sliceLen, priorities, slices, error, leaves_after: after } = row
  const { alpha, beta } = sampler
  const options = { ...optionsOf({ sampler }), alpha, beta, endKeys: [DONE] }
  delete options.trajKey
  const made = attempt(() => bufferOf(new PrioritizedSliceSampler(options), storage.capacity, 6))
  if (sampler.span?.$tuple)
    return decided(
      'a slice begins at the row that was drawn',
      made.error ? spansDiffer(row) : 'must be refused',
    )
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
  const { leaves } = partsOf(buffer).sampler.priorities.tree
  const firsts = slices.map(({ slots }) => leaves[slots[0]])
  const total = firsts.reduce((sum, leaf) => sum + leaf, 0)
  const golden =
    runsDiffer(row) ??
    far('leaves', leaves.slice(0, storage.len), after) ??
    far(
      'all weights',
      slices.map(({ weight }) => weight),
      firsts.map((leaf) => (leaf / Math.min(...leaves.slice(0, storage.len))) ** -beta),
    ) ??
    far(
      'probabilities',
      slices.map(({ p }) => p),
      firsts.map((leaf) => leaf / total),
    )
  if (golden) return golden
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

/** Slices are steps one after another of one trajectory, as many as asked for, or up to its end. */
function runsDiffer({ sampler, storage, slices, slice_len: sliceLen }) {
  const rows = firstsOf(trajectoriesIn(storage, { endKeys: [DONE] })).map(({ start, length }) =>
    range(length).map((step) => (start + step) % storage.capacity),
  )
  const other = slices.find(({ slots }) => {
    const held = rows.find((run) => run.includes(slots[0]))
    const from = held.indexOf(slots[0])
    const run = held.slice(from, from + sliceLen)
    const isShort = run.length < sliceLen && sampler.pad_output !== true && sampler.strict_length !== false
    return isShort || !isDeepStrictEqual(slots, run)
  })
  const least = sampler.strict_length === false ? 1 : 0
  const count = rows.reduce((sum, run) => sum + Math.max(run.length - sliceLen + 1, least), 0)
  return other
    ? `${other.slots} is no slice`
    : slices.length === count
      ? undefined
      : `${slices.length} slices`
}

/** Every row but the last ones that the span leaves out begins a slice of the original, as likely as its priority has it. */
function spansDiffer({ sampler, storage, priorities, slices, slice_len: sliceLen, leaves_after: after }) {
  const leaves = range(storage.len).map(
    (row) => ((priorities === null ? 1 : numbersIn(priorities)[row]) + 1e-8) ** sampler.alpha,
  )
  const right = sampler.span.$tuple[1]
  const left = right === true ? 1 : sliceLen - 1 - Number(right)
  const begun = firstsOf(trajectoriesIn(storage, { endKeys: [DONE] })).flatMap(({ start, length }) => {
    const isHeld = (step) => step < length - left || (sampler.strict_length === false && step === 0)
    return range(length)
      .filter(isHeld)
      .map((step) => (start + step) % storage.capacity)
  })
  const total = begun.reduce((sum, row) => sum + leaves[row], 0)
  const least = Math.min(...leaves)
  const firsts = begun.toSorted((a, b) => a - b)
  return (
    far('leaves', leaves, after) ??
    far(
      'weights',
      slices.map(({ weight }) => weight),
      slices.map(({ slots }) => (leaves[slots[0]] / least) ** -sampler.beta),
    ) ??
    far(
      'probabilities',
      slices.map(({ p }) => p),
      firsts.map((row) => leaves[row] / total),
    )
  )
}

/** Draws until each anchor has come, as which row is drawn is chance, and compares its window. */
function ofWindows({ unit, capacity, written, dones, lanes, anchors, error, ok, info_in: info }) {
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
      const one = TensorDict.from({}, { batchSize: lanes ? [lanes, 1] : [1] })
      const done = Tensor.zeros('bool', lanes ? [lanes, 1] : [1])
      buffer.extend(one.set(DONE, done))
      buffer.sample(1)
    }
    return buffer
  })
  if (error) return made.error ? undefined : 'must be refused'
  if (made.error) return ok ? made.error.message : 'the row says nothing'
  if (ok === undefined) return 'the row says nothing'
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
  const forms = windowForms(want, { anchors, lanes, steps, info })
  if (forms) return forms
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

/** Dtypes and shapes of what is said of each step, and what is the same for all steps of a window. */
function windowForms(want, { anchors, lanes, steps, info }) {
  if (info !== null && !Array.isArray(info.$dict)) return `info_in is ${info}`
  const count = anchors.length * steps
  const repeated = (values) => values.flatMap((value) => Array(steps).fill(value).flat())
  const place = lanes ? [count, 2] : [count]
  const places = anchors.map((anchor) => anchor.$tuple ?? anchor)
  const forms = {
    index: ['int64', place],
    sequence_id: ['int64', [count], repeated(range(anchors.length))],
    step_in_sequence: ['int64', [count]],
    learning_mask: ['bool', [count]],
    anchor_index: ['int64', place, repeated(places)],
    validity_mask: ['bool', [count]],
  }
  // What was said of the anchors is said of each step of theirs.
  for (const [name, one] of info?.$dict ?? []) {
    forms[name] =
      one.s.length === 0
        ? [one.$t, [], numbersIn(one)]
        : [one.$t, [count, ...one.s.slice(1)], repeated(numbersIn(one))]
  }
  const strange = Object.keys(want).find((name) => forms[name] === undefined)
  if (strange) return `${strange} is not known`
  for (const [name, { $t: dtype, s: shape, d: values }] of Object.entries(want)) {
    const [wantedType, wantedShape, wantedValues = numbersIn(values)] = forms[name]
    if (!isDeepStrictEqual([dtype, shape, numbersIn(values)], [wantedType, wantedShape, wantedValues]))
      return `${name} is ${dtype} ${shape} ${values}, not ${JSON.stringify(forms[name])}`
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

/** The key of the flags of slices; null there is null here. */
function flagsIn({ truncated_key: truncatedKey, init_key: initKey }) {
  return {
    ...given({ truncatedKey: keyIn(truncatedKey), initKey: keyIn(initKey) }),
    ...(truncatedKey === null && { truncatedKey }),
    ...(initKey === null && { initKey }),
  }
}

/** Compares each slice with one of the same rows, as which are drawn is chance; the row says what the original drew. */
function ofFlags({ sampler, storage, slice_len: sliceLen, num, ok }) {
  const { index, sample, traj_draws: drawn, u_draws: chances } = Object.fromEntries(ok.$dict)
  const { strict_length: strictLength, pad_output: padOutput } = sampler
  const all = firstsOf(trajectoriesIn(storage, { endKeys: [DONE] })).filter(
    ({ length }) => !strictLength || length >= sliceLen,
  )
  if (drawn.length !== num || chances.length !== num) return `${drawn.length} and ${chances.length} draws`
  const slices = drawn.map((one, nth) => {
    const { start, length } = all[one]
    const size = Math.min(sliceLen, length)
    const first = Math.floor(Math.fround(Math.fround(chances[nth]) * (length - size + 1)))
    const rows = range(size).map((step) => (start + first + step) % storage.capacity)
    return padOutput ? range(sliceLen).map((step) => rows[Math.min(step, size - 1)]) : rows
  })
  const places = { $t: 'int64', s: [slices.flat().length], d: slices.flat() }
  if (!isDeepStrictEqual(index, { $tuple: [places] })) return `the index is ${JSON.stringify(index)}`
  const shown = { ...places, s: [...places.s, 1] }
  if (!isDeepStrictEqual(sample.k.index, shown))
    return `the sample's index is ${JSON.stringify(sample.k.index)}`
  const buffer = bufferOf(
    new SliceSampler({
      sliceLen,
      endKeys: [DONE],
      strictLength,
      ...given({ padOutput }),
      ...flagsIn(sampler),
    }),
    storage.capacity,
  )
  fill(buffer, storage)
  const want = dictIn({
    ...sample,
    k: Object.fromEntries(Object.entries(sample.k).filter(([name]) => name !== 'index')),
  })
  let from = 0
  for (const rows of slices) {
    const found = drawnUntil(buffer, sliceLen, (batch) => isDeepStrictEqual(batch.index, rows))
    if (!found) return `${rows} must be drawn`
    const expected = want.slice(from, from + rows.length)
    from += rows.length
    const difference = flagsDiffer(found, expected, rows)
    if (difference) return difference
  }
  return from === want.batchSize[0] ? undefined : `${want.batchSize} rows`
}

/** The sampler's entries for rows, next to the items; a mask of all rows is left out. */
function flagsDiffer({ items, info }, expected, rows) {
  const mask = info.get(['collector', 'mask'])
  const keys = [
    ...items.leafKeys(),
    ...(mask || expected.has(['collector', 'mask']) ? [['collector', 'mask']] : []),
  ]
  const names = (list) => list.map((key) => key.join('.')).toSorted()
  if (!isDeepStrictEqual(names(expected.leafKeys()), names(keys))) return `${rows}: keys are ${names(keys)}`
  for (const key of expected.leafKeys()) {
    const got = key[0] === 'collector' ? (mask ?? flags(Array(rows.length).fill(1))) : items.get(key)
    if (!got.equals(expected.get(key))) return `${rows}: ${key.join('.')} is ${elementsOf(got)}`
  }
  return nestedSizes(expected)
}

/** Nested dictionaries have the batch size of the whole. */
const nestedSizes = (dict) => {
  const other = dict
    .keys()
    .find(
      (name) =>
        dict.get([name]) instanceof TensorDict &&
        String(dict.dict(name).batchSize) !== String(dict.batchSize),
    )
  return other && `${other} has the batch size ${dict.dict(other).batchSize}`
}

function ofStream({ sampler, capacity, ops }) {
  const { slice_len: sliceLen, traj_key: trajKey, end_key: endKey } = sampler
  const options = given({ sliceLen, trajKey: keyIn(trajKey), endKeys: endKey && [keyIn(endKey)] })
  const buffer = bufferOf(new StreamingSliceSampler(options), capacity)
  for (const [at, op] of ops.entries()) {
    if (op.op === 'extend') buffer.extend(dictIn(op.data))
    else if (op.op === 'sample') {
      const { items, index } = buffer.sampleWithInfo(op.batch_size)
      const { $t: dtype, s: shape, d: rows } = op.sample.k.index
      if (!isDeepStrictEqual(index, numbersIn(rows))) return `op ${at}: rows are ${index}`
      if (dtype !== 'int64' || !isDeepStrictEqual(shape, [index.length, 1]))
        return `op ${at}: ${dtype} ${shape}`
      const difference = differsFrom(items, op.sample)
      if (difference) return `op ${at}: ${difference}`
    } else {
      const { queued, pending } = partsOf(buffer).sampler
      const rows = (slice) => slice.map(([row]) => row)
      const [size, cursor] = [buffer.stats.size, partsOf(buffer).writer.cursor]
      const queue = queued.map((slice) => [rows(slice), slice.map(([, writes]) => writes)])
      const got = [queue, rows(pending), size, cursor]
      // A slice has its rows, and the number of the write of each.
      const want = [op.queued, op.pending, op.len, op.cursor]
      if (!isDeepStrictEqual(got, want))
        return `op ${at}: got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
    }
  }
  return undefined
}
