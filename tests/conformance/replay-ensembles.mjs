/** Compares ensembles of buffers and hindsight with golden rows: what goes where, and which goals and rewards a batch has. */

import { isDeepStrictEqual } from 'node:util'
import { Tensor, TensorDict } from 'fulmar'
import {
  HERReplayBuffer,
  LazyTensorStorage,
  ReplayBuffer,
  ReplayBufferEnsemble,
  RoundRobinWriter,
} from 'fulmar/replay'
import { decided } from './loss-rows.mjs'
import { differsFrom, goldenOf } from './replay-items.mjs'
import { positionsIn } from './replay-model.mjs'
import { attempt, dictIn, elementsOf, given, indexIn, partsOf, range } from './replay-rows.mjs'

const CHECKS = { ensemble: ofEnsemble, ensemble_routed: ofEnsemble, her: ofHindsight, her_cache: ofFullRing }

export const replayEnsembles = {
  topic: 'ensembles of replay buffers',
  members: {
    input: `id topic note strategy her_ratio capacity index u_draws randint_draws reward_fn writes
      setup.batch_size setup.children setup.p setup.sample_from_all setup.routing_key setup.routing_dim setup.track_generations setup.num_buffer_sampled
      ops.*.op ops.*.arg ops.*.data ops.*.extend`,
    expected: 'ok episode_ends ops.*.ok ops.*.members',
    refusal: 'build_error:built error:ok ops.*.error:ok',
    aside: {},
  },
  matches: ({ topic }) => Object.hasOwn(CHECKS, topic),
  prepare: () => undefined,
  check: ({ value: row }) => CHECKS[row.topic](row),
}

const CHILD = { max_size: 4, x: [0] }

function ensembleOf({
  children = [CHILD, CHILD, CHILD],
  track_generations: trackGenerations = false,
  ...setup
}) {
  const buffers = children.map(({ max_size: capacity, x }) => {
    const writer = new RoundRobinWriter({ trackGenerations })
    const buffer = new ReplayBuffer({ storage: new LazyTensorStorage(capacity), writer })
    if (x) {
      const leaf = Tensor.from(BigInt64Array.from(x, BigInt))
      buffer.extend(TensorDict.from({ x: leaf }, { batchSize: [x.length] }))
    }
    return buffer
  })
  const { p, sample_from_all: sampleFromAll, num_buffer_sampled: numBufferSampled } = setup
  const { routing_key: routingKey, routing_dim: routingDim } = setup
  return new ReplayBufferEnsemble(
    buffers,
    given({ p, sampleFromAll, numBufferSampled, routingKey, routingDim }),
  )
}

function ofEnsemble({ setup, ops, build_error: refusal }) {
  const made = attempt(() => ensembleOf(setup))
  if (refusal) return made.error ? undefined : 'the ensemble must be refused'
  if (made.error) return made.error.message
  for (const [at, op] of ops.entries()) {
    const difference = answered(made.value, op) ?? membersDiffer(made.value, op)
    if (difference) return `op ${at} ${op.op}: ${difference}`
  }
  return undefined
}

function answered(ensemble, { op, arg, data, ok, error }) {
  if (op === 'len') return same(ensemble.length, ok)
  const { value, error: refusal } = attempt(() => {
    if (op === 'get') return got(ensemble, arg)
    if (op.startsWith('sample')) return ensemble.sampleWithInfo(arg)
    return written(ensemble, op, data)
  })
  if (error) return refusal ? undefined : 'must be refused'
  if (refusal) return refusal.message
  if (op === 'get') return same(withIndex(goldenOf(value), rowsAt(ensemble, arg)), ok)
  if (op === 'sample_shape') return same([...value.items.batchSize], ok)
  if (op === 'sample_ids') {
    const each = value.items.batchSize[1]
    return same(
      value.bufferIds.flatMap((id) => Array(each).fill(id)),
      ok,
    )
  }
  return same(placesOf(ensemble, value, op === 'add' ? [] : [value.length]), ok)
}

/** Positions of written items, in TorchRL's form. */
function placesOf({ buffers }, places, shape) {
  const numbers = (list) => ({ $t: 'int64', s: shape, d: list })
  const k = {
    buffer_ids: numbers(places.map(({ buffer }) => buffer)),
    index: numbers(places.map(({ row }) => row)),
  }
  // Of a row that was written more than once, each write has its own.
  const later = (at) =>
    places.slice(at + 1).filter(({ buffer, row }) => buffer === places[at].buffer && row === places[at].row)
  const stamps = places.map(
    ({ buffer, row }, at) => buffers[buffer].generationsOf([row])[0] - later(at).length,
  )
  if (stamps.some((stamp) => stamp >= 0)) k.index_generation = numbers(stamps)
  return { $td: shape, k }
}

/** TorchRL's members write the row of each item into an `index` leaf. */
const withIndex = ({ $td, k }, rows) => ({ $td, k: { ...k, index: { $t: 'int64', s: $td, d: rows } } })

/** The buffer, or all of them, and the index of their rows that an index names. */
const partsOfIndex = (arg) => arg.$tuple ?? [arg, ALL]
const ALL = { $slice: [null, null, null] }

function rowsAt({ buffers }, arg) {
  const [first, rest] = partsOfIndex(arg)
  const chosen = typeof first === 'number' ? [buffers[first]] : buffers
  return chosen.flatMap((buffer) => positionsIn(rest, buffer.length))
}

function got(ensemble, arg) {
  const [first, rest] = partsOfIndex(arg)
  if (typeof first !== 'number') {
    if (!isDeepStrictEqual(first, ALL))
      throw new Error(`buffers must be one or all: got ${JSON.stringify(first)}`)
    return ensemble.at(...indexIn(rest))
  }
  const buffer = ensemble.buffers[first]
  if (buffer === undefined) throw Object.assign(new Error('no such buffer'), { code: 'OUT_OF_RANGE' })
  return buffer.at(...indexIn(rest))
}

/** One item is a write of one: there is no call of its own, so that a batch cannot be taken for an item. */
function written(ensemble, op, data) {
  const items = data ? dictIn(data) : TensorDict.from({ x: Tensor.from([0]) }, { batchSize: [1] })
  if (op === 'extend') return ensemble.extend(items)
  if (items.batchSize.length > 0)
    throw Object.assign(new Error('an item must have no batch'), { code: 'SHAPE_MISMATCH' })
  return ensemble.extend(items.unsqueeze(0))
}

function membersDiffer({ buffers }, { members }) {
  if (members === undefined) return undefined
  if (members.length !== buffers.length) return `${members.length} buffers`
  for (const [at, member] of members.entries()) {
    const buffer = buffers[at]
    const { length } = buffer
    const held = {
      len: length,
      cursor: partsOf(buffer).writer.cursor,
      write_count: buffer.stats.writeCount,
      contents: length === 0 ? null : withIndex(goldenOf(buffer.readAllInOrder()), range(length)),
    }
    const strange = Object.keys(member).find((name) => !isDeepStrictEqual(held[name], member[name]))
    if (strange) return `${strange} of buffer ${at} is ${JSON.stringify(held[strange])}`
  }
  return undefined
}

const REWARD = '0 when next.achieved_goal == desired_goal (all features), else -1'

/** 0 where the goal was achieved, else -1. */
function rewardFn(rows) {
  const [goals, achieved] = [
    tableOf(rows.tensor('desired_goal')),
    tableOf(rows.tensor(['next', 'achieved_goal'])),
  ]
  return Tensor.from(goals.map((goal, at) => (isDeepStrictEqual(goal, achieved[at]) ? 0 : -1)))
}

const tableOf = (tensor) => {
  const values = elementsOf(tensor)
  const width = values.length / tensor.shape[0]
  return range(tensor.shape[0]).map((row) => values.slice(row * width, (row + 1) * width))
}

function hindsight({ strategy, her_ratio: herRatio, capacity }) {
  const storage = new LazyTensorStorage(capacity)
  return new HERReplayBuffer({ storage, rewardFn, ...given({ strategy, herRatio }), seed: 3 })
}

const GOAL = 'a goal is what its source step led to'

/** Rows are drawn at random, so each relabelled row is compared with the rows that its strategy allows. */
function ofHindsight(row) {
  const { her_ratio: ratio, strategy, writes = [], index, error, reward_fn: reward } = row
  if (reward !== REWARD) return `the reward must be known: got ${reward}`
  const { value: buffer, error: refusal } = attempt(() => {
    const buffer = hindsight(row)
    for (const items of writes) buffer.extend(dictIn(items))
    buffer.sample(index.length)
    return buffer
  })
  if (error) {
    if ((row.episode_ends ?? null) !== null) return 'there are no episodes'
    if (refusal) return undefined
    const isRead = buffer.storage.get([0]).has('achieved_goal')
    return decided('only what next achieved is read', isRead ? 'must be refused' : undefined)
  }
  if (refusal) return row.ok ? refusal.message : 'the row says nothing'
  const theirs = hindsightDiffers(row, buffer)
  if (theirs) return theirs
  const stored = buffer.readAllInOrder()
  const [next, goals] = [stored.tensor(['next', 'achieved_goal']), stored.tensor('desired_goal')].map(tableOf)
  const episodes = episodesOf(row, writes.map(dictIn))
  const count = Math.floor(index.length * ratio)
  for (let draw = 0; draw < 50; draw++) {
    const batch = buffer.sampleWithInfo(index.length)
    const given = tableOf(batch.items.tensor('desired_goal'))
    const rewards = elementsOf(batch.items.tensor(['next', 'reward']))
    for (const [at, drawn] of batch.index.entries()) {
      if (at >= count) {
        if (!isDeepStrictEqual(given[at], goals[drawn])) return `row ${at} must keep its goal`
        continue
      }
      const may = sourcesOf(
        strategy,
        episodes.find((rows) => rows.includes(drawn)),
        drawn,
        next.length,
      )
      if (!may.some((source) => isDeepStrictEqual(next[source], given[at])))
        return `row ${drawn} has the goal ${given[at]}`
      const earned = isDeepStrictEqual(next[drawn], given[at]) ? 0 : -1
      if (rewards[at] !== earned) return `row ${drawn} has the reward ${rewards[at]}`
    }
  }
  return count > 0 ? decided(GOAL) : undefined
}

/** The original's result for the same draws: goals are the state before their source step, and a truncated episode has not ended. */
function hindsightDiffers(row, buffer) {
  const {
    her_ratio: ratio,
    strategy,
    index,
    u_draws: chances,
    randint_draws: places,
    ok,
    episode_ends: shown,
  } = row
  const { length, maxSize } = buffer.storage
  const stored = buffer.storage.get(range(length))
  const ended = ['done', 'terminated']
    .filter((name) => stored.has(['next', name]))
    .map((name) => elementsOf(stored.tensor(['next', name])))
  const ends = range(length).filter((at) => ended.some((flags) => flags[at] === 1))
  const newest = length === maxSize ? (partsOf(buffer).writer.cursor + length - 1) % length : length - 1
  if (!ends.includes(newest)) ends.push(newest)
  ends.sort((a, b) => a - b)
  if (shown !== null && !isDeepStrictEqual(shown, { $t: 'int64', s: [ends.length], d: ends }))
    return `episodes end at ${ends}`
  const count = Math.floor(index.length * ratio)
  const sources = index.slice(0, count).map((at, nth) => {
    const end = ends.find((one) => one >= at) ?? ends.at(-1)
    const start = (ends.filter((one) => one < end).at(-1) ?? -1) + 1
    const draw = (width) => Math.floor(Math.fround(Math.fround(chances[nth]) * width))
    if (strategy === 'final') return end
    if (strategy === 'future') return at + Math.min(draw(Math.max(end - at, 0) + 1), Math.max(end - at, 0))
    return strategy === 'episode' ? start + draw(end - start + 1) : places[nth]
  })
  const batch = stored.indexSelect(index)
  const before = tableOf(stored.tensor('achieved_goal'))
  const relabelled = (key) => {
    const own = tableOf(batch.tensor(key)).map((goal, at) => (at < count ? before[sources[at]] : goal))
    const { shape, dtype } = batch.tensor(key)
    batch.set(key, Tensor.from(own.flat(), { shape, dtype }))
  }
  if (count > 0) {
    relabelled(['desired_goal'])
    if (batch.has(['next', 'desired_goal'])) relabelled(['next', 'desired_goal'])
    const [goals, achieved] = [['desired_goal'], ['next', 'achieved_goal']].map((key) =>
      tableOf(batch.tensor(key)),
    )
    const old = batch.tensor(['next', 'reward'])
    const rewards = elementsOf(old).map((reward, at) =>
      at >= count ? reward : isDeepStrictEqual(goals[at], achieved[at]) ? 0 : -1,
    )
    batch.set(['next', 'reward'], Tensor.from(rewards, { shape: old.shape, dtype: old.dtype }))
  }
  const at = { $t: 'int64', s: [index.length], d: index }
  if (!isDeepStrictEqual(ok.k.index, at)) return `the index is ${JSON.stringify(ok.k.index)}`
  return differsFrom(batch, ok)
}

/** The rows of each episode, in their order: one ends at a flag or at the newest step, and loses what was written over. */
function episodesOf({ capacity }, writes) {
  const episodes = [[]]
  let nth = 0
  for (const items of writes) {
    const flags = ['done', 'terminated', 'truncated']
      .filter((name) => items.has(['next', name]))
      .map((name) => elementsOf(items.tensor(['next', name])))
    for (const step of range(items.batchSize[0])) {
      for (const rows of episodes) if (rows[0] === nth % capacity && nth >= capacity) rows.shift()
      episodes.at(-1).push(nth % capacity)
      if (flags.some((flag) => flag[step])) episodes.push([])
      nth += 1
    }
  }
  return episodes
}

function sourcesOf(strategy, episode, row, count) {
  if (strategy === 'final') return episode.slice(-1)
  if (strategy === 'future') return episode.slice(episode.indexOf(row))
  return strategy === 'episode' ? episode : range(count)
}

/** There a full ring cannot be drawn from after a second write of several rows. */
function ofFullRing({ capacity, ops }) {
  const buffer = hindsight({ capacity })
  for (const [at, { extend: count, ok, error: theirs }] of ops.entries()) {
    const isFull = buffer.length === capacity
    const zeros = () => Tensor.zeros('f32', [count, 1])
    const items = TensorDict.from({ achieved_goal: zeros(), desired_goal: zeros() }, { batchSize: [count] })
    items.set(['next', 'achieved_goal'], zeros()).set(['next', 'reward'], zeros())
    buffer.extend(items.set(['next', 'done'], Tensor.zeros('bool', [count, 1])))
    const { value, error } = attempt(() => buffer.sample(3))
    if (error) return error.message
    if (isFull !== (theirs !== undefined)) return `op ${at}: the original fails, or not`
    const difference = isFull ? undefined : same([...value.batchSize], ok)
    if (difference) return `op ${at}: ${difference}`
  }
  return decided('a full ring can be drawn from after any write')
}

const same = (got, want) =>
  isDeepStrictEqual(got, want) ? undefined : `got ${JSON.stringify(got)}, expected ${JSON.stringify(want)}`
