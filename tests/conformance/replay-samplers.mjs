/** Compares samplers with golden rows: what they refuse, how many rows and which, and by chi-square how often. */

import { isDeepStrictEqual } from 'node:util'
import {
  ConsumingSampler,
  LambdaScheduler,
  LazyTensorStorage,
  LinearScheduler,
  ListStorage,
  PrioritizedReplayBuffer,
  PromptGroupSampler,
  RandomSampler,
  ReplayBuffer,
  SamplerWithoutReplacement,
  StalenessAwareSampler,
  StepScheduler,
} from 'fulmar/replay'
import { NonTensorStack, Tensor, TensorDict } from 'fulmar/tensor'
import { decided } from './loss-rows.mjs'
import { attempt, elementsOf, far, given, misdrawn, numbersIn, partsOf, range } from './replay-rows.mjs'

const CHECKS = {
  prioritized: ofPriorities,
  max_priority: ofLargest,
  random: ({ args, probabilities }) => {
    const buffer = bufferOf(new RandomSampler(), args.capacity)
    buffer.extend(rowsOf(args.written))
    const even = range(args.written).map(() => 1 / args.written)
    return (
      far('probabilities', even, probabilities) ??
      misdrawn(buffer.sampleWithInfo(20_000).index, probabilities)
    )
  },
  random_nd: ({ args, probabilities_flat_time_major: probabilities }) => {
    const storage = new LazyTensorStorage(args.time_capacity * args.lanes, { lanes: [args.lanes] })
    const buffer = new ReplayBuffer({ storage, seed: 5 })
    const batchSize = [args.lanes, args.written]
    buffer.extend(TensorDict.from({ id: Tensor.zeros('f32', batchSize) }, { batchSize }))
    const written = args.written * args.lanes
    const even = probabilities.map((_, at) => (at < written ? 1 / written : 0))
    if (probabilities.length !== args.time_capacity * args.lanes && probabilities.length !== written)
      return 'a length'
    return (
      far('probabilities', even, probabilities) ??
      misdrawn(buffer.sampleWithInfo(20_000).index, probabilities)
    )
  },
  without_replacement: ofEpochs,
  iterate_without_replacement: ofWholeEpochs,
  consuming: ofConsumed,
  staleness: ofStaleness,
  prompt_group: ofGroups,
  prompt_group_literal: ({ reward, samples_per_group: samplesPerGroup, strategy, ok }) => {
    const buffer = groupsOf(
      { samplesPerGroup, strategy },
      reward.map(() => 0),
      reward,
    )
    const drawn = buffer.sampleWithInfo(samplesPerGroup).index.map((row) => reward[row])
    return same(
      drawn.sort((a, b) => a - b),
      ok,
    )
  },
  prompt_group_errors: ofGroupErrors,
  replacement_false: ({ ctor, ok, error }) => {
    const other = {
      RandomSampler: 'SamplerWithoutReplacement',
      SliceSampler: 'SliceSamplerWithoutReplacement',
    }[ctor]
    const isTheirs = ok === other && (error === undefined) === (other !== undefined)
    const made = attempt(() => new RandomSampler({ replacement: false }))
    const isOurs = ctor !== 'RandomSampler' || made.error !== undefined || RandomSampler.length === 0
    return decided(
      'draws without replacement have a class of their own',
      isTheirs ? undefined : `${ctor} gives ${ok}`,
      isOurs ? undefined : 'must be refused',
    )
  },
  scheduler: ofSchedule,
}

export const replaySamplers = {
  topic: 'samplers of replay buffers',
  members: ({ topic }) => ({
    input: `${topic === 'max_priority' ? 'ops.*.index' : ''} id topic note args priorities query reward samples_per_group strategy scheduler initial ctor batch_size
      ops.*.op ops.*.n ops.*.batch_size ops.*.slots ops.*.priority calls.*.op calls.*.n calls.*.batch_size`,
    expected: `${topic === 'max_priority' ? '' : 'ops.*.index'} leaves p_sum p_min default_priority probabilities weights probabilities_flat_time_major staleness staleness_reported groups
      within rows each_block_one_group batches distinct ok ops.*.leaves ops.*.max_priority ops.*.default_priority ops.*.len ops.*.cursor
      ops.*.counts_histogram ops.*.ran_out ops.*.size ops.*.contents calls.*.size calls.*.ran_out calls.*.index calls.*.len
      calls.*.left_in_list calls.*.remaining_batches calls.*.epoch_size calls.*.epoch_multiset calls.*.distinct_so_far_in_epoch`,
    refusal: 'error:ok ops.*.error:ok calls.*.error:ok',
    aside: { empirical: 'draws of the original are evidence for its probabilities' },
  }),
  matches: ({ topic, setup }) => Object.hasOwn(CHECKS, topic) && setup === undefined,
  prepare: () => undefined,
  check: ({ value: row }) => CHECKS[row.topic](row),
}

const bufferOf = (sampler, capacity) =>
  new ReplayBuffer({ storage: new LazyTensorStorage(capacity), sampler, seed: 5 })
const rowsOf = (count) => TensorDict.from({ id: Tensor.zeros('f32', [count]) }, { batchSize: [count] })

/** Rows with numbers from one on. */
const numberedRows = (count, first) =>
  TensorDict.from({ id: Tensor.from(range(count).map((row) => first + row)) }, { batchSize: [count] })

function prioritized({ max_capacity: capacity, alpha, beta, eps, max_priority_within_buffer: within }) {
  const storage = new LazyTensorStorage(capacity)
  const options = given({ alpha, beta, eps, maxPriorityWithinBuffer: within })
  return new PrioritizedReplayBuffer({ storage, ...options, seed: 3 })
}

/** Leaves of all rows; those without one are 0. */
function leavesOf(buffer) {
  const { leaves } = partsOf(buffer).sampler.tree
  return range(buffer.storage.maxSize).map((row) => leaves[row] ?? 0)
}

function ofPriorities(row) {
  const { args, priorities } = row
  // There is no second width of leaves here, so no call that could fail as this one does.
  if (args.dtype === 'float64') return decided('leaves are f32', row.error ? undefined : 'the original fails')
  const given = priorities === null ? undefined : numbersIn(priorities)
  const isStrange = given?.some((one) => !(one >= 0 && one < Number.POSITIVE_INFINITY)) === true
  const buffer = prioritized(args)
  buffer.extend(rowsOf(args.written))
  const { error } = attempt(() => given && buffer.updatePriority(range(args.written), given))
  if (isStrange)
    return decided(
      'priorities are numbers >= 0',
      undefinedLeaves(row, given),
      error ? undefined : 'must be refused',
    )
  if (error) return error.message
  const all = leavesOf(buffer)
  const leaves = all.slice(0, args.written)
  const total = leaves.reduce((sum, leaf) => sum + leaf, 0)
  const { maxPriority, options } = partsOf(buffer).sampler
  const largest = maxPriority?.[0] ?? 1
  const difference =
    far('leaves', row.leaves.length === all.length ? all : leaves, numbersIn(row.leaves)) ??
    far('sum', [total], [Number(row.p_sum)]) ??
    far('min', [Math.min(...leaves)], [Number(row.p_min)]) ??
    far('largest', [largest], [Number(row.default_priority)])
  if (difference) return difference
  const { value: batch, error: refusal } = attempt(() => buffer.sampleWithInfo(40_000))
  if (row.error) return refusal ? undefined : 'must be refused'
  if (refusal) return refusal.message
  const weights = elementsOf(batch.info.tensor('priority_weight'))
  const want = numbersIn(row.weights)
  const [least, beta] = [Math.min(...leaves.filter((leaf) => leaf > 0)), options.beta]
  return (
    far(
      'probabilities',
      leaves.map((leaf) => leaf / total),
      numbersIn(row.probabilities),
    ) ??
    far(
      'all weights',
      leaves.map((leaf) => (leaf / least) ** -beta),
      want,
    ) ??
    misdrawn(batch.index, numbersIn(row.probabilities)) ??
    far(
      'weights',
      weights,
      batch.index.map((drawn) => want[drawn]),
    )
  )
}

/** The original keeps priorities that are not numbers, and fails at the next draw. */
function undefinedLeaves(
  { args, leaves, p_sum: sum, p_min: least, default_priority: largest, error },
  given,
) {
  const kept = given.map((one) => (one + args.eps) ** args.alpha)
  const numbers = kept.filter((one) => !Number.isNaN(one))
  const known = [
    kept.map((one) => Math.fround(one)),
    kept.reduce((total, one) => total + one, 0),
    Math.min(...numbers),
    Math.max(...numbers),
  ]
  const shown = [numbersIn(leaves), Number(sum), Number(least), Number(largest)]
  const near = (a, b) => Object.is(a, b) || Math.abs(a - b) <= 1e-5 * Math.abs(b) + 1e-6
  const isKnown =
    known.flat().every((one, at) => near(one, shown.flat()[at])) && leaves.length === kept.length
  return error && isKnown ? undefined : `it keeps ${JSON.stringify(known)}, not ${JSON.stringify(shown)}`
}

function ofLargest({ args, ops }) {
  const buffer = prioritized(args)
  for (const op of ops) {
    if (op.op === 'extend') buffer.extend(rowsOf(op.n))
    else buffer.updatePriority(op.index, numbersIn(op.priority))
    const { maxPriority: largest } = partsOf(buffer).sampler
    const isKnown = op.max_priority === null || Array.isArray(op.max_priority)
    const difference =
      (isKnown ? undefined : `max_priority is ${op.max_priority}`) ??
      far('leaves', leavesOf(buffer), numbersIn(op.leaves)) ??
      far('default', [largest?.[0] ?? 1], [op.default_priority]) ??
      far('largest', largest ?? [], op.max_priority ?? [])
    if (difference) return difference
  }
  return undefined
}

const epochsOf = ({ drop_last: dropLast, shuffle }, capacity) =>
  bufferOf(new SamplerWithoutReplacement(given({ dropLast, shuffle })), capacity)

function ofEpochs({ args, calls }) {
  const buffer = epochsOf(args, args.capacity)
  buffer.extend(rowsOf(args.written))
  let [seen, left] = [[], buffer.length]
  for (const [at, call] of calls.entries()) {
    if (call.op === 'extend') {
      const before = buffer.length
      buffer.extend(rowsOf(call.n))
      seen = []
      // A write to a full ring continues the epoch.
      if (buffer.length !== before) left = buffer.length
      if (buffer.length !== call.len) return `call ${at}: the length is ${buffer.length}`
      continue
    }
    const { value: batch, error } = attempt(() => buffer.sampleWithInfo(call.batch_size))
    if (call.error) {
      if (!error) return `call ${at}: must be refused`
      continue
    }
    if (error) return `call ${at}: ${error.message}`
    const difference =
      same([batch.index.length, buffer.sampler.ranOut], [call.size, call.ran_out]) ??
      (call.index ? same(batch.index, call.index) : undefined)
    if (difference) return `call ${at}: ${difference}`
    seen.push(...batch.index)
    left = call.ran_out ? buffer.length : left - batch.index.length
    const wrong = leftDiffers(call, seen, left, { length: buffer.length, dropLast: args.drop_last })
    if (wrong) return `call ${at}: ${wrong}`
    if (call.ran_out) seen = []
    buffer.loadStateDict(buffer.stateDict())
  }
  return undefined
}

/** The rest of an epoch after a call, and the rows of a whole epoch. */
function leftDiffers(call, seen, left, { length, dropLast }) {
  const { batch_size: count, ran_out: ranOut } = call
  // With rows in random order, those that an epoch leaves out are chance.
  const isChance = seen.length < length && call.index === undefined
  const known = {
    left_in_list: left,
    remaining_batches: dropLast ? Math.floor(left / count) : Math.ceil(left / count),
    distinct_so_far_in_epoch: new Set(seen).size,
    ...(ranOut && {
      epoch_multiset: isChance ? null : seen.toSorted((a, b) => a - b),
      epoch_size: seen.length,
    }),
  }
  const shown = Object.fromEntries(Object.keys(known).map((name) => [name, call[name]]))
  const rows = shown.epoch_multiset
  if (isChance && rows?.length === seen.length && rows.every((row) => row >= 0 && row < length))
    known.epoch_multiset = rows
  return isDeepStrictEqual(shown, known)
    ? undefined
    : `got ${JSON.stringify(known)}, expected ${JSON.stringify(shown)}`
}

function ofWholeEpochs({ args, batches, distinct }) {
  const storage = new LazyTensorStorage(args.written)
  const sampler = new SamplerWithoutReplacement(given({ dropLast: args.drop_last, shuffle: args.shuffle }))
  const buffer = new ReplayBuffer({ storage, sampler, batchSize: args.batch_size })
  const id = Tensor.from(range(args.written))
  buffer.extend(TensorDict.from({ id }, { batchSize: [args.written] }))
  if (batches.length !== distinct.length) return `${batches.length} epochs`
  for (const [at, sizes] of batches.entries()) {
    const drawn = [...buffer].map((batch) => elementsOf(batch.tensor('id')))
    const difference = same(
      [drawn.map((rows) => rows.length), new Set(drawn.flat()).size],
      [sizes, distinct[at]],
    )
    if (difference) return `epoch ${at}: ${difference}`
  }
  return undefined
}

function ofConsumed({ args, ops, error }) {
  const { capacity, written, max_sample_count: maxSampleCount } = args
  const made = attempt(() => bufferOf(new ConsumingSampler(given({ maxSampleCount })), capacity ?? 1))
  if (ops === undefined) return made.error && error ? undefined : 'must be refused'
  const golden = consumedDiffers(args, ops)
  if (golden) return `the original: ${golden}`
  const buffer = made.value
  buffer.extend(numberedRows(written, 0))
  // After a draw, which rows are free is a matter of chance; how many are is not.
  let drew = false
  for (const op of ops) {
    if (op.op === 'consume_slots') {
      // What is left of rows that were drawn by chance, and so all that follows, is chance too.
      if (drew) return undefined
      consume(buffer, op.slots)
    } else if (op.op === 'sample') {
      const { value: batch, error } = attempt(() => buffer.sampleWithInfo(op.batch_size))
      if ((error !== undefined) !== (op.error !== undefined)) return error?.message ?? 'must be refused'
      if (batch && new Set(batch.index).size !== op.size) return `${batch.index} must be ${op.size} rows`
      drew = true
    } else {
      const index = buffer.extend(numberedRows(op.n, 1000))
      const contents = elementsOf(buffer.storage.get(range(buffer.storage.length)).tensor('id'))
      if (!drew) {
        const written = same(index, op.index) ?? same(contents, op.contents)
        if (written) return written
      }
      if (op.index.length !== op.n || op.contents.length !== contents.length)
        return `${op.index} of ${op.contents}`
      const { cursor } = partsOf(buffer).writer
      if (cursor !== op.cursor) return `the cursor is ${cursor}, expected ${op.cursor}`
    }
    const counts = partsOf(buffer).sampler.counts.toSorted((a, b) => a - b)
    const difference =
      same(buffer.length, op.len) ??
      (op.counts_histogram
        ? same([counts, buffer.sampler.ranOut], [op.counts_histogram, op.ran_out])
        : undefined)
    if (difference) return difference
    buffer.loadStateDict(buffer.stateDict())
  }
  return undefined
}

/**
 * Rules that follow from the number of free rows alone: a write first fills free rows, in any order, and then continues at the cursor.
 */
function consumedDiffers({ capacity, written, max_sample_count: maxCount }, ops) {
  let [contents, size, cursor] = [range(written), written, written % capacity]
  for (const [
    at,
    { op, slots, n, index, len, contents: shown, cursor: end, batch_size: count },
  ] of ops.entries()) {
    if (op === 'sample') {
      if (maxCount === 1 && len !== Math.max(size - count, 0))
        return `op ${at}: ${len} rows are left of ${size}`
    } else if (op === 'consume_slots') {
      if (len > size || len < size - slots.length) return `op ${at}: ${len} rows are left of ${size}`
    } else {
      const free = index.slice(0, Math.min(n, contents.length - size))
      if (new Set(index).size !== n || index.length !== n || free.some((row) => contents[row] === undefined))
        return `op ${at}: rows are ${index}`
      const rest = []
      for (let scanned = 0; rest.length < n - free.length; scanned++) {
        if (!free.includes(cursor) || scanned >= capacity) rest.push(cursor)
        cursor = (cursor + 1) % capacity
      }
      contents = [...contents]
      for (const [nth, row] of [...free, ...rest].entries()) contents[row] = 1000 + nth
      const difference =
        same([...free, ...rest], index) ??
        same(cursor, end) ??
        same(contents, shown) ??
        same(rest.length === 0 ? size + n : contents.length, len)
      if (difference) return `op ${at}: ${difference}`
    }
    size = len
  }
  return undefined
}

/** Frees rows by name, which only a state can say: as draws would that happen to take them. */
function consume(buffer, slots) {
  const state = buffer.stateDict()
  const { sampler } = partsOf(buffer)
  const changed = {
    live: sampler.live.filter((row) => !slots.includes(row)),
    counts: sampler.counts.map((count, row) => (slots.includes(row) ? sampler.maxSampleCount : count)),
    freed: [...sampler.freed, ...slots.filter((row) => sampler.live.includes(row))],
  }
  // The text stays: its seeds are integers that JavaScript's numbers would round.
  const parts = Object.entries(changed).reduce(
    (text, [key, rows]) => text.replace(new RegExp(`"${key}":\\[[^\\]]*\\]`), `"${key}":[${rows}]`),
    state.parts,
  )
  buffer.loadStateDict({ ...state, parts })
}

function ofStaleness(row) {
  const { storage, versions, consumer_version: consumerVersion, max_staleness: max } = row.args
  if (versions === undefined) {
    const { error } = attempt(() => bufferOf(new StalenessAwareSampler(), 2).extend(rowsOf(1)))
    return error?.code === 'UNKNOWN_NAME' && row.error ? undefined : 'must be refused'
  }
  if (storage === 'ListStorage') {
    const list = new ReplayBuffer({
      storage: new ListStorage(versions.length),
      sampler: new StalenessAwareSampler(),
      seed: 5,
    })
    const leaf = Tensor.from(BigInt64Array.from(numbersIn(versions), BigInt))
    list.extend(TensorDict.from({ policy_version: leaf }, { batchSize: [versions.length] }))
    list.sampler.consumerVersion = consumerVersion
    const { error } = attempt(() => list.sample(2))
    return decided(
      'versions are read from any storage',
      row.error ? undefined : 'the original fails',
      error?.message,
    )
  }
  const sampler = new StalenessAwareSampler(max < 0 ? {} : { maxStaleness: max })
  const buffer = bufferOf(sampler, versions.length)
  const leaf = Tensor.from(BigInt64Array.from(numbersIn(versions), BigInt))
  buffer.extend(TensorDict.from({ policy_version: leaf }, { batchSize: [versions.length] }))
  sampler.consumerVersion = consumerVersion
  const { value: batch, error } = attempt(() => buffer.sampleWithInfo(20_000))
  if (row.error) return error ? undefined : 'must be refused'
  if (error) return error.message
  const staleness = elementsOf(batch.info.tensor('staleness'))
  const reported = new Map(batch.index.map((drawn, at) => [drawn, staleness[at]]))
  const stale = versions.map((version) => consumerVersion - version)
  const chances = stale.map((one) => (max >= 0 && one > max ? 0 : 1 / (1 + one)))
  const total = chances.reduce((sum, one) => sum + one, 0)
  return (
    same(stale, row.staleness) ??
    far(
      'probabilities',
      chances.map((one) => one / total),
      row.probabilities,
    ) ??
    misdrawn(batch.index, row.probabilities) ??
    same(
      [...reported].sort(([a], [b]) => a - b),
      row.staleness_reported,
    )
  )
}

/** A schedule as the rows name it: `Linear(final, steps)`, `Step(gamma, steps, mode, max or min a value)`, or a function of the step. */
function scheduleOf(name, buffer) {
  const [, kind, text] = /^(Linear|Step|Lambda)\((.*)\)$/.exec(name) ?? []
  const words = (text ?? '').split(',').map((word) => word.trim())
  const number = (word) => (Number.isFinite(Number(word)) ? Number(word) : undefined)
  const [first, numSteps] = words.map(number)
  if (kind === 'Linear' && words.length === 2)
    return new LinearScheduler(buffer, 'beta', { finalValue: first, numSteps })
  if (kind === 'Lambda' && text === '1/(1+step)')
    return new LambdaScheduler(buffer, 'beta', (step) => 1 / (1 + step))
  if (name === 'Step bad mode') return new StepScheduler(buffer, 'beta', { mode: 'x' })
  const [mode, ...bounds] = words.slice(2)
  const limits = Object.fromEntries(bounds.map((bound) => /^(max|min) (\S+)$/.exec(bound) ?? []).map(limitOf))
  if (kind !== 'Step' || numSteps === undefined || 'undefined' in limits)
    throw new Error(`a schedule must be known: got ${name}`)
  return new StepScheduler(buffer, 'beta', { gamma: first, numSteps, mode, ...limits })
}

const limitOf = ([, end, value]) => [end && `${end}Value`, Number(value)]

function ofSchedule({ scheduler, initial, ok, error }) {
  const buffer = prioritized({ max_capacity: 4, beta: initial })
  const { value: schedule, error: refusal } = attempt(() => scheduleOf(scheduler, buffer))
  if (error) return refusal ? undefined : 'must be refused'
  if (refusal) return refusal.message
  const values = ok.map(() => {
    schedule.step()
    return buffer.sampler.beta
  })
  return far('beta', values, ok, 1e-6, 1e-7)
}

function groupsOf(options, query, reward) {
  const sampler = new PromptGroupSampler(options)
  const buffer = new ReplayBuffer({ storage: new ListStorage(query.length), sampler, seed: 2 })
  const items = TensorDict.from({ query: new NonTensorStack(query) }, { batchSize: [query.length] })
  buffer.extend(items.set(['next', 'reward'], Tensor.from(numbersIn(reward), { dtype: 'f64' })))
  return buffer
}

function ofGroups(row) {
  const { args, query, reward, groups } = row
  const { samples_per_group: size, strategy, num_groups_requested: count } = args
  const known = Object.fromEntries(
    Object.keys(groups).map((key) => [key, range(query.length).filter((at) => String(query[at]) === key)]),
  )
  const told = same(groups, known) ?? same(row.each_block_one_group, true) ?? withinDiffers(row, size)
  if (told) return told
  const buffer = groupsOf({ samplesPerGroup: size, strategy }, query, reward)
  for (let draw = 0; draw < 200; draw++) {
    const { index } = buffer.sampleWithInfo(size * count)
    if (index.length !== row.rows) return `${index.length} rows, expected ${row.rows}`
    const blocks = range(count).map((block) => index.slice(block * size, (block + 1) * size))
    const keys = blocks.map(([first]) => query[first])
    if (new Set(keys).size !== Math.min(count, Object.keys(groups).length))
      return 'groups come once before again'
    for (const [at, block] of blocks.entries()) {
      const all = groups[keys[at]]
      if (!block.every((one) => all.includes(one))) return `${block} is not one group`
      const within = row.within?.[keys[at]]
      const want = within?.all ?? within
      // Of equal rewards it is chance there which rows come, so rewards are compared.
      const values = (rows) => rows.map((one) => Number(reward[one])).sort((a, b) => a - b)
      if (within?.all && !isDeepStrictEqual(new Set(block), new Set(want))) return same(block, want)
      if (Array.isArray(within) && !isDeepStrictEqual(values(block), values(within)))
        return same(block, within)
      if (!within && new Set(block).size !== Math.min(size, all.length)) return 'rows must be distinct'
    }
  }
  return undefined
}

/** Of a group with too few rows all come, and then some again; of another as many as asked for. */
function withinDiffers({ groups, within = {} }, size) {
  const wrong = Object.entries(within).find(([key, one]) => {
    const all = groups[key]
    if (all.length >= size)
      return !Array.isArray(one) || one.length !== size || one.some((at) => !all.includes(at))
    return !isDeepStrictEqual(one, { all, then_with_replacement: size - all.length })
  })
  return wrong && `within ${wrong[0]} is ${JSON.stringify(wrong[1])}`
}

function ofGroupErrors({ args, batch_size: count, error }) {
  if (error === undefined) return 'the original fails'
  const {
    num_groups: numGroups,
    samples_per_group: samplesPerGroup,
    strategy,
    ...rest
  } = Object.fromEntries(args.$dict)
  // There rewards have no key unless they are given one.
  if ('reward_key' in rest)
    return decided('rewards have a key', rest.reward_key === null ? undefined : 'a key is none')
  const options = given({ numGroups, samplesPerGroup, strategy })
  return attempt(() => groupsOf(options, ['a'], [0]).sample(count)).error ? undefined : 'must be refused'
}

const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
