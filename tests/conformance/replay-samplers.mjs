/** Compares samplers with golden rows: what they refuse, how many rows and which, and by chi-square how often. */

import { isDeepStrictEqual } from 'node:util'
import {
  ConsumingSampler,
  LambdaScheduler,
  LazyTensorStorage,
  LinearScheduler,
  ListStorage,
  NonTensorStack,
  PrioritizedReplayBuffer,
  PromptGroupSampler,
  RandomSampler,
  ReplayBuffer,
  SamplerWithoutReplacement,
  StalenessAwareSampler,
  StepScheduler,
  Tensor,
  TensorDict,
} from 'fulmar'
import {
  attempt,
  decided,
  elementsOf,
  far,
  given,
  misdrawn,
  numbersIn,
  partsOf,
  range,
} from './replay-rows.mjs'

const CHECKS = {
  prioritized: ofPriorities,
  max_priority: ofLargest,
  random: ({ args, probabilities }) => {
    const buffer = bufferOf(new RandomSampler(), args.capacity)
    buffer.extend(rowsOf(args.written))
    return misdrawn(buffer.sampleWithInfo(20_000).index, probabilities)
  },
  random_nd: ({ args, probabilities_flat_time_major: probabilities }) => {
    const storage = new LazyTensorStorage(args.time_capacity * args.lanes, { lanes: [args.lanes] })
    const buffer = new ReplayBuffer({ storage, seed: 5 })
    const batchSize = [args.lanes, args.written]
    buffer.extend(TensorDict.from({ id: Tensor.zeros('f32', batchSize) }, { batchSize }))
    return misdrawn(buffer.sampleWithInfo(20_000).index, probabilities)
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
  replacement_false: () => decided('draws without replacement have a class of their own'),
  scheduler: ofSchedule,
}

export const replaySamplers = {
  topic: 'samplers of replay buffers',
  members: {
    input: `id topic note args priorities query reward samples_per_group strategy scheduler initial ctor batch_size
      ops.*.op ops.*.n ops.*.batch_size ops.*.slots ops.*.priority calls.*.op calls.*.n calls.*.batch_size`,
    expected: `leaves p_sum p_min default_priority probabilities weights probabilities_flat_time_major staleness staleness_reported groups
      within rows each_block_one_group batches distinct ok ops.*.leaves ops.*.max_priority ops.*.default_priority ops.*.len ops.*.cursor
      ops.*.counts_histogram ops.*.ran_out ops.*.size ops.*.contents ops.*.index calls.*.size calls.*.ran_out calls.*.index calls.*.len
      calls.*.left_in_list calls.*.remaining_batches calls.*.epoch_size calls.*.epoch_multiset calls.*.distinct_so_far_in_epoch`,
    refusal: 'error:ok ops.*.error:ok calls.*.error:ok',
    aside: { empirical: 'draws of the original are evidence for its probabilities' },
  },
  matches: ({ topic, id, setup }) =>
    Object.hasOwn(CHECKS, topic) && typeof id === 'string' && setup === undefined,
  prepare: () => undefined,
  check: ({ value: row }) => CHECKS[row.topic](row),
}

const bufferOf = (sampler, capacity) =>
  new ReplayBuffer({ storage: new LazyTensorStorage(capacity), sampler, seed: 5 })
const rowsOf = (count) => TensorDict.from({ id: Tensor.zeros('f32', [count]) }, { batchSize: [count] })

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
  const { args, priorities, note } = row
  // There is no second width of leaves here, so no call that could fail as this one does.
  if (args.dtype === 'float64') return decided('leaves are f32')
  const buffer = prioritized(args)
  buffer.extend(rowsOf(args.written))
  const update = () => priorities && buffer.updatePriority(range(args.written), numbersIn(priorities))
  const { error } = attempt(update)
  if (note?.includes('undefined upstream'))
    return error ? decided('priorities are numbers >= 0') : 'must be refused'
  if (error) return error.message
  const leaves = leavesOf(buffer).slice(0, row.leaves.length)
  const difference =
    far('leaves', leaves, numbersIn(row.leaves)) ??
    far('sum', [leaves.reduce((sum, leaf) => sum + leaf, 0)], [Number(row.p_sum)]) ??
    far('min', [Math.min(...leaves.slice(0, args.written))], [Number(row.p_min)])
  if (difference) return difference
  const { value: batch, error: refusal } = attempt(() => buffer.sampleWithInfo(40_000))
  if (row.error) return refusal ? undefined : 'must be refused'
  if (refusal) return refusal.message
  const weights = elementsOf(batch.info.tensor('priority_weight'))
  const want = numbersIn(row.weights)
  return (
    misdrawn(batch.index, numbersIn(row.probabilities)) ??
    far(
      'weights',
      weights,
      batch.index.map((drawn) => want[drawn]),
    )
  )
}

function ofLargest({ args, ops }) {
  const buffer = prioritized(args)
  for (const op of ops) {
    if (op.op === 'extend') buffer.extend(rowsOf(op.n))
    else buffer.updatePriority(op.index, numbersIn(op.priority))
    const { maxPriority: largest } = partsOf(buffer).sampler
    const difference =
      far('leaves', leavesOf(buffer), numbersIn(op.leaves)) ??
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
  for (const [at, call] of calls.entries()) {
    if (call.op === 'extend') {
      buffer.extend(rowsOf(call.n))
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
    buffer.loadStateDict(buffer.stateDict())
  }
  return undefined
}

function ofWholeEpochs({ args, batches, distinct }) {
  const storage = new LazyTensorStorage(args.written)
  const sampler = new SamplerWithoutReplacement(given({ dropLast: args.drop_last, shuffle: args.shuffle }))
  const buffer = new ReplayBuffer({ storage, sampler, batchSize: args.batch_size })
  const id = Tensor.from(range(args.written))
  buffer.extend(TensorDict.from({ id }, { batchSize: [args.written] }))
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

function ofConsumed({ args, ops }) {
  const { capacity, written, max_sample_count: maxSampleCount } = args
  const made = attempt(() => bufferOf(new ConsumingSampler(given({ maxSampleCount })), capacity ?? 1))
  if (capacity === undefined) return made.error ? undefined : 'must be refused'
  const buffer = made.value
  buffer.extend(rowsOf(written))
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
      const index = buffer.extend(rowsOf(op.n))
      if (!drew && !isDeepStrictEqual(index, op.index)) return same(index, op.index)
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
    return error?.code === 'UNKNOWN_NAME' ? undefined : 'must be refused'
  }
  if (storage === 'ListStorage') return decided('versions are read from any storage')
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
  return (
    misdrawn(batch.index, row.probabilities) ??
    same(
      [...reported].sort(([a], [b]) => a - b),
      row.staleness_reported,
    )
  )
}

/** The schedules that the rows name. */
const SCHEDULES = {
  'Linear(1.0, 4)': (buffer) => new LinearScheduler(buffer, 'beta', { finalValue: 1, numSteps: 4 }),
  'Linear(0.1, 3)': (buffer) => new LinearScheduler(buffer, 'beta', { finalValue: 0.1, numSteps: 3 }),
  'Step(.5, 2, multiplicative)': (buffer) => new StepScheduler(buffer, 'beta', { gamma: 0.5, numSteps: 2 }),
  'Step(.2, 1, additive, max .9)': (buffer) =>
    new StepScheduler(buffer, 'beta', { gamma: 0.2, mode: 'additive', maxValue: 0.9 }),
  'Step(-.2, 1, additive, min 0)': (buffer) =>
    new StepScheduler(buffer, 'beta', { gamma: -0.2, mode: 'additive', minValue: 0 }),
  'Lambda(1/(1+step))': (buffer) => new LambdaScheduler(buffer, 'beta', (step) => 1 / (1 + step)),
  'Step bad mode': (buffer) => new StepScheduler(buffer, 'beta', { mode: 'x' }),
}

function ofSchedule({ scheduler, initial, ok, error }) {
  const buffer = prioritized({ max_capacity: 4, beta: initial })
  const { value: schedule, error: refusal } = attempt(() => SCHEDULES[scheduler](buffer))
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

function ofGroupErrors({ args, batch_size: count }) {
  const {
    num_groups: numGroups,
    samples_per_group: samplesPerGroup,
    strategy,
    ...rest
  } = Object.fromEntries(args.$dict)
  // There rewards have no key unless they are given one.
  if ('reward_key' in rest) return decided('rewards have a key')
  const options = given({ numGroups, samplesPerGroup, strategy })
  return attempt(() => groupsOf(options, ['a'], [0]).sample(count)).error ? undefined : 'must be refused'
}

const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
