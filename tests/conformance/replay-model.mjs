/**
 * Model of TorchRL's replay buffers: contents and results of each operation, from a row's setup and operations alone. What Fulmar does otherwise on
 * purpose is compared with this, and so is every value that a row shows.
 *
 * Memory that nothing was written to is `uninit`. Answers are `{ ok }` or `{ error }`; after an error a buffer may have changed.
 */

import {
  changedLeaves,
  filled,
  isAlike,
  leavesIn,
  partAt,
  stacked,
  stepAt,
  stepsIn,
  stepsOf,
  transposed,
  withoutEntry,
  withPart,
  zeroOf,
} from './golden-trees.mjs'
import { PriorityModel } from './priority-model.mjs'
import { keyIn, numbersIn, range } from './replay-rows.mjs'

/** An operation that the original refuses. */
class Refused extends Error {}
const refuse = (text) => {
  throw new Refused(text)
}

export const LISTS = new Set(['ListStorage', 'LazyStackStorage', 'CompressedListStorage'])
const int64 = (s, d) => ({ $t: 'int64', s, d })
const median = (list) => list.toSorted((a, b) => a - b)[Math.floor((list.length - 1) / 2)]
const sum = (list) => list.reduce((total, one) => Math.fround(total + one), 0)
/** Several numbers of an item as one. */
export const REDUCTIONS = {
  sum,
  median,
  max: (list) => Math.max(...list),
  min: (list) => Math.min(...list),
  mean: (list) => Math.fround(sum(list) / list.length),
}

export class ReplayModel {
  constructor(setup, lanes) {
    this.setup = setup
    this.lanes = lanes
    this.cls = setup.storage.cls
    this.isList = LISTS.has(this.cls)
    this.isMemmap = this.cls === 'LazyMemmapStorage'
    this.isTd = setup.buffer === 'TensorDictReplayBuffer'
    this.writer = setup.writer?.cls ?? (this.isTd ? 'TensorDictRoundRobinWriter' : 'RoundRobinWriter')
    this.batchSize = setup.batch_size
    this.maxSize = setup.storage.max_size
    this.revision = 0
    this.rows = []
    this.isInit = false
    this.len = 0
    this.cursor = 0
    this.writeCount = 0
    this.generations = setup.writer?.track_generations ? [] : undefined
    this.top = []
    const { cls, ...options } = setup.sampler ?? {}
    this.sampler = cls
    if (cls === 'PrioritizedSampler') this.priorities = new PriorityModel(this.maxSize, options)
    if (cls === 'ConsumingSampler') {
      this.counts = []
      this.sampleMax = options.max_sample_count ?? 1
      this.freed = []
    }
  }

  clone() {
    const copy = Object.assign(Object.create(ReplayModel.prototype), this)
    for (const name of ['rows', 'top', 'generations', 'counts', 'freed'])
      if (this[name]) copy[name] = [...this[name]]
    copy.priorities = this.priorities?.clone()
    return copy
  }

  /** Returns the reason that such a buffer cannot be made; `undefined` if it can. */
  static refusalOf({ storage, sampler, writer, batch_size: batchSize }) {
    if (sampler?.alpha < 0 || sampler?.beta < 0) return 'a negative exponent'
    if (sampler?.drop_last && (batchSize ?? undefined) === undefined) return 'no last batch'
    if (storage.ndim === 2 && writer?.cls === 'TensorDictMaxValueWriter') return 'ranked lanes'
    return undefined
  }

  /** Applies an operation. */
  apply(op) {
    if (!Object.hasOwn(OPS, op.op)) throw new Error(`the model must know the operation ${op.op}`)
    try {
      return { ok: OPS[op.op](this, op) ?? null }
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      return { error: error.message }
    }
  }

  get isFull() {
    return this.storageLen === this.maxSize
  }

  get storageLen() {
    return this.isList ? this.rows.length : this.len
  }

  /** Number of written rows along the first dimension. */
  get depth() {
    return this.lanes ? Math.ceil(this.storageLen / this.lanes) : this.storageLen
  }

  get depthMax() {
    return this.lanes ? Math.ceil(this.maxSize / this.lanes) : this.maxSize
  }

  /** Number of items that can be sampled. */
  get size() {
    return this.counts ? this.live().filter(Boolean).length : this.storageLen
  }

  live() {
    return range(this.storageLen).map((row) => (this.counts[row] ?? 0) < this.sampleMax)
  }

  /** The rows that hold something. */
  held() {
    return this.rows.slice(0, this.depth)
  }

  /** Snapshot of the buffer in the form of golden rows. */
  state() {
    const { storageLen: length, lanes, isList, depth } = this
    const tracked = this.generations && { generations: this.allGenerations() }
    const shape = !isList && this.isInit && { storage_shape: lanes ? [depth, lanes] : [length] }
    return {
      len: this.size,
      storage_len: length,
      is_full: this.isFull,
      max_size: this.maxSize,
      cursor: this.cursor,
      write_count: this.writeCount,
      revision: this.revision,
      top_values: this.top.toSorted((a, b) => a[0] - b[0] || a[1] - b[1]),
      ...shape,
      ...tracked,
      ...(this.counts && { live: this.live() }),
      ...this.priorities?.state(length),
      contents: length === 0 ? null : isList ? this.held() : stacked(this.held()),
    }
  }

  allGenerations() {
    return range(this.depthMax).map((row) => this.generations[row] ?? -1)
  }

  /** Writes items to rows, as far as it goes. */
  set(rows, items, { moves = true, casts = false, data } = {}) {
    if (this.isList) {
      for (const [at, row] of rows.entries()) {
        if (at >= items.length) refuse('too few items')
        if (row > this.rows.length || row >= this.maxSize) refuse(`row ${row}`)
        this.rows[row] = items[at]
        this.revision += 1
      }
      return
    }
    if (moves) this.len = Math.min(this.len + items.length * (this.lanes ?? 1), this.maxSize)
    const like = items[0] ?? data
    if (!this.isInit) {
      if (items.length === 0) refuse('no item to go by')
      this.init(items[0])
    }
    for (const { path, leaf } of leavesIn(like)) this.setLeaf(rows, items, path, leaf, casts)
    this.revision += 1
  }

  init(item) {
    const blank = changedLeaves(item, ({ $t, s }) => filled($t, s, this.isMemmap ? zeroOf($t) : 'uninit'))
    if (this.lanes) this.maxSize = this.depthMax * this.lanes
    this.rows = range(this.depthMax).map(() => blank)
    this.isInit = true
  }

  setLeaf(rows, items, path, { $t, s }, casts) {
    if (partAt(this.rows[0], path) === undefined) {
      // The files of a storage are as many as they were.
      if (this.isMemmap) return
      this.rows = this.rows.map((row) => withPart(row, path, filled($t, s, zeroOf($t))))
    }
    const kept = partAt(this.rows[0], path)
    if (String(kept.s) !== String(s)) refuse(`the shape of ${path}`)
    if (kept.$t !== $t && !casts) refuse(`the dtype of ${path}`)
    for (const [at, row] of rows.entries()) {
      const place = row < 0 ? row + this.rows.length : row
      if (this.rows[place] === undefined) refuse(`row ${row}`)
      this.rows[place] = withPart(this.rows[place], path, { ...partAt(items[at], path), $t: kept.$t })
    }
  }

  /** Items with the rows that they are written to. */
  indexed(items, rows) {
    return items.map((item, at) => withPart(item, ['index'], filled('int64', item.$td, rows[at])))
  }

  /** Updates generations, priorities and the set of samplable items after a write. */
  written(rows) {
    const places = rows.flatMap((row) =>
      this.lanes && row >= 0 ? range(this.lanes).map((lane) => row * this.lanes + lane) : [row],
    )
    this.priorities?.set(places, this.priorities.preset)
    this.priorities?.overwritten(places)
    if (this.counts) for (const row of rows) this.counts[row] = 0
  }

  stamp(rows) {
    if (this.generations) for (const row of rows) this.generations[row] = (this.generations[row] ?? -1) + 1
  }

  /** The row of an item that is ranked; nothing if it is too low. */
  ranked(item) {
    const rank = partAt(item, [keyIn(this.setup.writer.rank_key ?? ['next', 'reward'])].flat())
    if (rank === undefined) refuse('no rank')
    const values = numbersIn(rank)
    const value = values.length > 1 ? REDUCTIONS[this.setup.writer.reduction ?? 'sum'](values) : values[0]
    this.top.sort((a, b) => a[0] - b[0] || a[1] - b[1])
    let row
    if (this.top.length < this.maxSize) {
      row = this.cursor
      this.cursor = (this.cursor + 1) % this.maxSize
    } else if (value > this.top[0][0]) row = this.top.shift()[1]
    else return undefined
    this.top.push([value, row])
    return row
  }

  /** Rows as an answer shows them. */
  rowsShown(rows) {
    if (!this.lanes) return int64([rows.length], rows)
    const pairs = rows.flatMap((row) => range(this.lanes).flatMap((lane) => [row, lane]))
    return int64([rows.length * this.lanes, 2], pairs)
  }

  /** Items of lists as one value: one dictionary if they have equal leaves, else a list of dictionaries. */
  collated(items) {
    if (items.length === 0) refuse('no items')
    const isStacked = this.cls === 'ListStorage' && isAlike(items)
    if (!items[0]?.$td) return items.every((item) => item?.$t) ? stacked(items) : refuse('no tensors')
    return isStacked ? stacked(items) : { $lazy: 0, b: [items.length, ...items[0].$td], items }
  }

  /** Returns the contents as one value, lanes first. */
  whole() {
    if (this.isList) return this.collated(this.rows)
    if (!this.isInit) refuse('nothing was written')
    const all = stacked(this.held(), this.rows[0])
    return this.lanes ? transposed(all) : all
  }
}

/** The positions that an index names among `count`. */
export function positionsIn(index, count) {
  if (index?.$slice) {
    const [start, stop, step] = index.$slice
    const bound = (at, other) =>
      at === null ? other : Math.min(Math.max(at < 0 ? at + count : at, 0), count)
    const [first, last] = [bound(start, 0), bound(stop, count)]
    return range(Math.max(Math.ceil((last - first) / (step ?? 1)), 0)).map((at) => first + at * (step ?? 1))
  }
  if (index?.$t === 'bool') {
    if (index.s[0] !== count) refuse('a mask of another length')
    return range(count).filter((at) => index.d[at])
  }
  return numbersIn(index).map((at) => {
    const place = at < 0 ? at + count : at
    return place >= 0 && place < count ? place : refuse(`position ${at} of ${count}`)
  })
}

export const isMask = (index) => index?.$t === 'bool'
const isInt = (index) => typeof index === 'number' || index?.s?.length === 0
export const isName = (index) =>
  typeof index === 'string' || (index?.$tuple ?? index)?.every?.((name) => typeof name === 'string') === true

/** Part of a value, by one index a dimension. */
function indexed(value, [index, ...rest]) {
  if (index === undefined) return value
  if (isInt(index)) return indexed(stepAt(value, positionsIn(index, stepsOf(value))[0]), rest)
  const parts = positionsIn(index, stepsOf(value)).map((at) => indexed(stepAt(value, at), rest))
  return stacked(
    parts,
    parts[0] ??
      indexed(
        changedLeaves(value, blankStep, (size) => size.slice(1)),
        rest,
      ),
  )
}
const blankStep = ({ $t, s }) => ({ $t, s: s.slice(1), d: [] })

function got(model, index) {
  if (isName(index)) {
    const whole = model.whole()
    const leaves = (whole.$lazy === undefined ? [whole] : whole.items).map((one) =>
      partAt(one, [keyIn(index)].flat()),
    )
    if (leaves.includes(undefined) || !isAlike(leaves)) refuse(`no entry ${index}`)
    return whole.$lazy === undefined ? leaves[0] : stacked(leaves)
  }
  if (index?.$tuple) return indexed(model.whole(), index.$tuple)
  if (!model.isList) return indexed(model.whole(), [index])
  if (isMask(index)) refuse('a mask of a list')
  const items = positionsIn(index, model.rows.length).map((at) => model.rows[at])
  return isInt(index) ? items[0] : model.collated(items)
}

/** Returns the sampler's result for given rows. */
function sampled(model, index) {
  const value = model.isList || !model.lanes ? got(model, index) : lanesAt(model, index)
  if (!model.isTd) return value
  const rows = index.$tuple ? index.$tuple.map(numbersIn) : [numbersIn(index)]
  const count = rows[0].length
  const shown = int64(
    index.$tuple ? [count, 2] : [count],
    range(count).flatMap((at) => rows.map((one) => one[at])),
  )
  const said = { index: shown, ...(model.generations && { index_generation: generationsOf(model, rows[0]) }) }
  return Object.entries(said).reduce((all, [name, one]) => withInfo(all, name, one), value)
}

const withInfo = (value, name, leaf) =>
  value.$lazy === undefined
    ? withPart(value, [name], leaf)
    : { ...value, items: value.items.map((item, at) => withPart(item, [name], stepAt(leaf, at))) }

function lanesAt(model, { $tuple: [times, lanes] }) {
  const held = model.held()
  const [rows, columns] = [numbersIn(times), numbersIn(lanes)]
  return stacked(
    rows.map((row, at) =>
      stepAt(held[positionsIn(row, held.length)[0]], positionsIn(columns[at], model.lanes)[0]),
    ),
    stepAt(model.rows[0], 0),
  )
}

const generationsOf = (model, rows) =>
  int64(
    [rows.length],
    rows.map((row) => model.generations?.[row] ?? -1),
  )

function add(model, { data, ok, isReduced = false }) {
  if (model.writer === 'ImmutableDatasetWriter') refuse('no writing')
  if (model.counts && model.freed.length > 0) return writeAt(model, freedFor(model, 1, ok), [data])
  const isRanked = model.writer === 'TensorDictMaxValueWriter'
  const row = isRanked ? model.ranked(data) : model.cursor
  if (row === undefined) return null
  if (!isRanked) model.cursor = (row + 1) % model.depthMax
  model.writeCount += 1
  const [item] = model.writer === 'RoundRobinWriter' ? [data] : model.indexed([data], [row])
  model.set([row], [item], { casts: true })
  model.stamp([row])
  model.written([row])
  if (model.isTd) {
    if (model.lanes) refuse('an index of other dimensions')
    // What lists hold is the item itself, which gets its index now.
    if (model.isList && model.cls !== 'CompressedListStorage')
      [model.rows[row]] = model.indexed([item], [row])
    const isOne = isReduced || data.$td.length === 0
    prioritise(model, isOne ? { ...data, $td: [] } : data, filled('int64', isOne ? [] : data.$td, row))
  }
  return model.lanes ? model.rowsShown([row]) : row
}

/** Priorities of what is written, or of a batch that names its rows. */
function prioritise({ priorities, setup }, data, index) {
  if (!priorities) return
  const leaf = partAt(data, [keyIn(setup.priority_key ?? 'td_error')].flat())
  const reduce = REDUCTIONS[setup.sampler.reduction ?? 'max']
  const count = data.$td.length > 0 ? data.$td[0] : 1
  const width = leaf ? numbersIn(leaf).length / count : 1
  const values = leaf
    ? range(count).map((at) => {
        const own = numbersIn(leaf).slice(at * width, (at + 1) * width)
        return own.length > 1 ? reduce(own) : own[0]
      })
    : range(count).map(() => priorities.preset)
  const rows = numbersIn(index)
  priorities.set(
    range(count).map((at) => rows[(at * rows.length) / count]),
    values,
  )
}

function extend(model, { data, kwargs, ok }) {
  if (model.writer === 'ImmutableDatasetWriter') refuse('no writing')
  const items = stepsIn(model.lanes ? transposed(data) : data)
  const isTuple = model.isList && data?.$tuple !== undefined
  const count = items.length
  if (count === 0 && model.writer === 'RoundRobinWriter') refuse('no items')
  if (model.writer === 'TensorDictMaxValueWriter') return extendRanked(model, items)
  let rows
  if (model.counts && model.freed.length > 0) rows = freedFor(model, count, ok)
  if (rows) writeAt(model, rows, items)
  else {
    rows = range(count).map((at) => (model.cursor + at) % model.depthMax)
    model.cursor = (model.cursor + count) % model.depthMax
    model.writeCount += count
    const given = isTuple ? data.$tuple : items
    const isPlain = model.writer === 'RoundRobinWriter'
    model.set(rows, isPlain ? given : model.indexed(given, rows), { data })
    model.stamp(rows)
    model.written(rows)
  }
  if (model.isTd) {
    if (model.lanes && data.$td[1] === 1) refuse('an index of other dimensions')
    if (kwargs?.update_priority !== false) vector(model, data, rows)
  }
  return model.rowsShown(rows)
}

function extendRanked(model, items) {
  const replaced = new Map()
  for (const [at, item] of items.entries()) {
    const row = model.ranked(item)
    if (row === undefined) continue
    model.writeCount += 1
    replaced.set(row, at)
  }
  const rows = items.map(() => -1)
  for (const [row, at] of replaced) rows[at] = row
  if (replaced.size > 0)
    model.set(
      [...replaced.keys()],
      [...replaced.values()].map((at) => items[at]),
    )
  model.written(rows)
  return model.rowsShown(rows)
}

/** Priorities that a batch brings with it. */
function vector({ priorities, setup }, data, rows) {
  const leaf = partAt(data, [keyIn(setup.priority_key ?? 'td_error')].flat())
  if (!priorities || !leaf) return
  const values = numbersIn(leaf)
  if (values.length !== rows.length && values.length > 1) refuse('priorities of another length')
  priorities.set(rows, values.length === 1 ? values[0] : values)
}

/** The rows of a write that begins with those that are free: which come first is chance, so it is what the row shows. */
function freedFor(model, count, ok) {
  const shown = numbersIn(ok ?? [])
  const freed = shown.slice(0, Math.min(count, model.freed.length))
  if (new Set(freed).size !== freed.length || freed.some((row) => !model.freed.includes(row)))
    throw new Error(`rows ${freed} are not free: ${model.freed}`)
  model.freed = model.freed.filter((row) => !freed.includes(row))
  const rest = []
  for (let scanned = 0; rest.length < count - freed.length; scanned++) {
    if (!freed.includes(model.cursor) || scanned >= model.maxSize) rest.push(model.cursor)
    model.cursor = (model.cursor + 1) % model.maxSize
  }
  return [...freed, ...rest]
}

function writeAt(model, rows, items) {
  model.writeCount += rows.length
  model.set(rows, model.writer === 'RoundRobinWriter' ? items : model.indexed(items, rows), { moves: false })
  model.stamp(rows)
  if (!model.isList) model.len = Math.min(Math.max(model.len, Math.max(...rows) + 1), model.maxSize)
  model.written(rows)
  return model.rowsShown(rows)
}

/** An edit of rows in place. */
export function edit(model, index, data) {
  if (model.isList && index?.$slice) {
    const places = positionsIn(index, model.rows.length)
    const items = stepsIn(data)
    if (model.cls === 'CompressedListStorage') {
      places.slice(0, items.length).forEach((row, at) => {
        model.rows[row] = items[at]
      })
    } else {
      const first = positionsIn({ $slice: [index.$slice[0], null, null] }, model.rows.length)[0]
      model.rows.splice(first ?? model.rows.length, places.length, ...items)
    }
    model.revision += 1
    return
  }
  if (isMask(index)) refuse('a mask')
  const items = isInt(index) ? [data] : stepsIn(data)
  if (model.isList) {
    const rows = numbersIn(index)
    model.set(rows, items, { moves: false })
    return
  }
  if (model.lanes) throw new Error('the model must know how lanes are edited')
  if (!model.isInit) model.init(items[0])
  const rows = positionsIn(index, model.rows.length)
  // One item is written to each of the rows.
  const all = items.length === 1 ? rows.map(() => items[0]) : items
  if (rows.length !== all.length) refuse('another number of items')
  model.set(rows, all, { moves: false, casts: index?.$t === undefined })
}

/** A key of rows set in place. */
export function setKey(model, { key, value, index = { $slice: [null, null, null] } }) {
  if (model.isList && model.cls !== 'LazyStackStorage') refuse('a list has no keys')
  editKey(model, { key, value, index })
}

export function editKey(model, { key, value, index }) {
  if (!model.isList && !model.isInit) refuse('nothing was written')
  const path = [keyIn(key)].flat()
  const rows = positionsIn(index, model.depth)
  const kept = partAt(model.rows[0], path) ?? refuse(`no ${path}`)
  const values = value.$t && !isInt(index) ? stepsIn(value) : rows.map(() => value)
  if (values.length !== rows.length) refuse('another number of values')
  for (const [at, row] of rows.entries()) {
    const own = values[at].$t ? values[at] : filled(kept.$t, kept.s, values[at])
    if (String(own.s) !== String(kept.s)) refuse(`the shape of ${path}`)
    model.rows[row] = withPart(model.rows[row], path, { ...own, $t: kept.$t })
  }
  model.revision += 1
}

/** A patch of the rows that still hold what was drawn from them. */
export function updateIfPresent(model, { kwargs }) {
  if (!model.generations || model.isList) refuse('no generations')
  const { require_newer: isNewer = false } = kwargs
  const [index, generation] = [numbersIn(kwargs.index), numbersIn(kwargs.generation)]
  const versionKey = kwargs.version_key ?? undefined
  const hasVersion = (kwargs.version ?? undefined) !== undefined
  if ((versionKey !== undefined) !== hasVersion) refuse('a version without its key')
  for (const { path, leaf } of leavesIn(kwargs.patch)) {
    const kept = partAt(model.rows[0], path) ?? refuse(`no ${path}`)
    if (String([index.length, ...kept.s]) !== String(leaf.s)) refuse(`the shape of ${path}`)
  }
  const isLive = index.map((row, at) => generation[at] >= 0 && model.generations[row] === generation[at])
  const versions = hasVersion && versionsOf(kwargs.version, index.length)
  const path = [keyIn(versionKey ?? [])].flat()
  const kept = (row) => partAt(model.rows[row], path).d[0]
  // Of several of one row the last of the newest is taken.
  const best = (row) =>
    index.reduce(
      (best, other, at) =>
        other === row && isLive[at] && (best < 0 || versions[at] >= versions[best]) ? at : best,
      -1,
    )
  const isTaken = (row, at) =>
    (isNewer ? versions[at] > kept(row) : versions[at] >= kept(row)) && best(row) === at
  const updated = index.map((row, at) => isLive[at] && (!hasVersion || isTaken(row, at)))
  const rejected = hasVersion ? index.map((_, at) => isLive[at] && !updated[at]) : null
  for (const [at, row] of index.entries()) {
    if (!updated[at]) continue
    const patch = leavesIn(stepAt(kwargs.patch, at))
    for (const { path: name, leaf } of patch) model.rows[row] = withPart(model.rows[row], name, leaf)
    if (hasVersion) {
      const leaf = partAt(model.rows[row], path)
      model.rows[row] = withPart(model.rows[row], path, { ...leaf, d: [versions[at]] })
    }
  }
  if (updated.some(Boolean)) model.revision += 1
  const bools = (flags) => flags && { $t: 'bool', s: [index.length], d: flags }
  const counted = (flags) => (flags ?? []).filter(Boolean).length
  return {
    $dict: [
      ['updated', bools(updated)],
      ['version_rejected', bools(rejected)],
      ['updated_count', counted(updated)],
      ['version_rejected_count', counted(rejected)],
      ['stale_count', index.length - counted(isLive)],
    ],
  }
}

const versionsOf = (version, count) => {
  const values = numbersIn(version)
  return values.length === 1 ? Array(count).fill(values[0]) : values
}

function roundTrip(model) {
  if (model.writer === 'TensorDictMaxValueWriter') refuse('no state')
  model.maxSize = model.setup.storage.max_size
  model.revision = 1
  const writer = [
    ['_cursor', model.cursor],
    ['_write_count', model.writeCount],
  ]
  if (model.generations?.length > 0) {
    const all = model.allGenerations()
    writer.push(['_generation', int64([all.length], all)])
  }
  const isKept = model.writer !== 'ImmutableDatasetWriter'
  return { writer: { $dict: isKept ? writer : [] }, batch_size: model.batchSize ?? null }
}

function drawn(model, count, shown) {
  const size = count ?? model.batchSize ?? refuse('no size')
  if (model.size === 0) refuse('nothing to draw')
  if (size === 0 && model.isList) refuse('no items')
  if (model.sampler === 'SamplerWithoutReplacement')
    throw new Error('the model must know what an epoch has left')
  if (!model.counts) return [size]
  const live = model.live()
  const rows = range(live.length).filter((row) => live[row])
  const taken = size < rows.length ? rows.filter((row) => shown?.[row] === false) : rows
  // Which rows are drawn is chance, so of fewer than all it is those that are shown.
  if (taken.length !== Math.min(size, rows.length)) throw new Error(`${taken} must be ${size} of ${rows}`)
  for (const row of taken) {
    model.counts[row] = (model.counts[row] ?? 0) + 1
    if (model.counts[row] >= model.sampleMax) model.freed.push(row)
  }
  return [taken.length]
}

const OPS = {
  len: (model) => model.size,
  add,
  extend,
  get: (model, { index }) => got(model, index),
  sample_index: (model, { index }) => sampled(model, index),
  // The row does not say how many were asked for, only how many came.
  read_all(model, { ok }) {
    const count = ok?.$td?.[0] ?? ok?.b?.[0] ?? model.rows.length
    return got(model, { $slice: [0, count, null] })
  },
  sample_size: (model, { batch_size: count, state }) => drawn(model, count, state?.live),
  stats: (model) => ({
    $dict: Object.entries({
      size: model.size,
      write_count: model.writeCount,
      prefetch_queue_size: 0,
      initialized: true,
      capacity: model.maxSize,
      utilization: model.size / model.maxSize,
    }),
  }),
  empty(model, { kwargs }) {
    if (model.writer === 'ImmutableDatasetWriter') refuse('no writing')
    model.cursor = 0
    model.top = []
    model.len = 0
    if (model.isList) model.rows = []
    if (kwargs?.empty_write_count !== false) model.writeCount = 0
    if (model.generations) model.generations = model.generations.map((one) => (one >= 0 ? one + 1 : one))
    model.priorities?.clear()
    if (model.counts) [model.counts, model.freed] = [[], []]
    model.revision += 1
  },
  state_roundtrip: roundTrip,
  generations_of: (model, { index }) => generationsOf(model, numbersIn(index)),
  write_at: (model, { index, data }) => writeAt(model, numbersIn(index), stepsIn(data)),
  update_priority({ priorities }, { index, priority }) {
    const [rows, values] = [numbersIn(index), numbersIn(priority)]
    if (values.length > 1 && values.length !== rows.length) refuse('priorities of another length')
    priorities.set(rows, values.length === 1 ? values[0] : values)
  },
  update_tensordict_priority(model, { data }) {
    prioritise(model, data, data.k.index)
  },
  set_alpha({ priorities }, { value }) {
    priorities.alpha = value
  },
  setitem(model, { index, data }) {
    edit(model, index, data)
  },
  write_all(model, { data, kwargs }) {
    const end = kwargs?.end ?? (model.size === model.maxSize ? null : stepsOf(data))
    edit(model, { $slice: [null, end, null] }, data)
  },
  set_at_: setKey,
  set_: setKey,
  update_if_present: updateIfPresent,
}

/** Returns a dictionary without TorchRL's `index` leaf. */
export const bare = (item) =>
  item?.$lazy === undefined
    ? withoutEntry(item, 'index')
    : { ...item, items: item.items.map((one) => withoutEntry(one, 'index')) }
