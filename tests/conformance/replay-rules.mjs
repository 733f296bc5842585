/**
 * Intended differences between Fulmar's and TorchRL's replay buffers: for an operation, the rules that apply, the answer that they imply and
 * the buffer that is left. Which apply follows from what the buffer held and the operation alone, never from what a row expects.
 */

import { isDeepStrictEqual } from 'node:util'
import {
  filled,
  isAlike,
  leavesIn,
  partAt,
  stacked,
  stepsIn,
  stepsOf,
  withPart,
  zeroOf,
} from './golden-trees.mjs'
import { isConverted } from './replay-items.mjs'
import { bare, editKey, isMask, isName, positionsIn, REDUCTIONS, updateIfPresent } from './replay-model.mjs'
import { keyIn, numbersIn } from './replay-rows.mjs'

const CONVERTED = 'an item that is no dictionary is made one by fromPytree'
const BATCHES = 'a list of items takes a tree as a batch, not its members as items'
const EMPTY = 'an empty write is an error'
const NOTHING = 'a batch of nothing is an error'
const LEAVES = 'leaves that are missing or too many are refused'
const WHOLE = 'a write that fails changes nothing'
const STORED = 'what can be stored is stored'
const APPEND = 'an edit does not append'
const KEEPS = 'an edit keeps the leaves that it does not name'
const SHARED = 'a stack shows the leaves that all of its rows have'
const REDUCED = 'an item has one priority, made of all of its numbers'
const OTHERS = 'an emptied storage takes the leaves of its next items'
const FORGOTTEN = 'a state of no rows has no leaves'
const LANES = 'an item is no step of lanes'
const STATS = 'the size in stats counts every row that holds an item'
const LISTS = 'lists can be edited too'
const VALUES = 'values are tensors'
const STATES = 'every writer has a state'
const CAPACITY = 'a storage that is loaded keeps its capacity'
const CHANCE = 'which rows are free is chance'
const READ = 'nothing, and a mask, can be read from any storage'
const ALIKE = 'rows of a list that are read together are alike'

/**
 * `rules` by name, the `outcome` that Fulmar must have (`undefined` where it cannot be asked) and the `model` of what its buffer must hold:
 * `after`, the original's, where they agree.
 */
export function impliedBy(before, op, theirs, after, ours) {
  const found = (IMPLIED[op.op] ?? agreed)(before, op, theirs, after, ours)
  const { rule, outcome = theirs, model = after } = found
  const rules = [rule].flat().filter(Boolean)
  if (op.data !== undefined && isConverted(op.data)) rules.push(CONVERTED)
  if (after.lanes && after.isInit && after.maxSize % after.lanes > 0) rules.push(CAPACITY)
  // What a write that fails has changed is more than the answer.
  if (
    outcome.error !== undefined &&
    theirs.error !== undefined &&
    model === after &&
    hasChanged(before, after)
  )
    return { rules: [WHOLE, ...rules], outcome, model: before }
  return { rules, outcome, model }
}

const agreed = () => ({})
const refused = (rule, before, error = rule) => ({ rule, outcome: { error }, model: before })

const shownOf = (model) => {
  const { revision: _, ...state } = model.state()
  return state
}
const hasChanged = (before, after) => !isDeepStrictEqual(shownOf(before), shownOf(after))

const namesOf = (item) =>
  leavesIn(bare(item))
    .map(({ path }) => path.join('.'))
    .sort()
    .join()

function written(before, op, theirs, after, ours) {
  const { data } = op
  const isMany = op.op !== 'add'
  if (before.writer === 'ImmutableDatasetWriter') return {}
  if (isMany && stepsOf(data) === 0)
    return theirs.error && !hasChanged(before, after) ? {} : refused(EMPTY, before)
  if (!isMany && before.lanes) return refused(LANES, before)
  const items = isMany ? stepsIn(data) : [data]
  if (before.isList && isMany && data.$tuple) return batched(before, op, items)
  const isOther =
    !before.isList && before.depth > 0 && data.$td && namesOf(items[0]) !== namesOf(before.rows[0])
  if (isOther) return refused(LEAVES, before)
  const isEmptied = !before.isList && before.isInit && before.depth === 0
  if (isEmptied && data.$td && namesOf(items[0]) !== namesOf(before.rows[0])) {
    const model = blank(before)
    return { rule: OTHERS, outcome: model.apply(op), model }
  }
  if (op.op === 'add' && after.isTd && after.priorities && data.$td.length > 0) return onePriority(before, op)
  if (before.freed?.length > 0) return chosen(before, op, theirs, ours)
  if (theirs.error === undefined) return {}
  if (before.lanes && !isFailed(before, after, items))
    return { rule: STORED, outcome: { ok: after.rowsShown(rowsOf(before, after)) } }
  return reducedTo(before, op, after, items) ?? {}
}

/** A storage that has not seen its leaves. */
const blank = (before) => Object.assign(before.clone(), { rows: [], isInit: false })

/** Each number of an item is set in turn there, so that the last stays. */
function onePriority(before, op) {
  const model = before.clone()
  const leaf = partAt(op.data, [keyIn(model.setup.priority_key ?? 'td_error')].flat())
  if (leaf === undefined) return {}
  const outcome = model.apply({ ...op, isReduced: true })
  return { rule: REDUCED, outcome, model }
}

/** Returns true if the original wrote fewer rows than it was given. */
const isFailed = (before, after, items) => after.revision === before.revision || items.length === 0

const rowsOf = (before, after) => {
  const count = after.writeCount - before.writeCount
  return Array.from({ length: count }, (_, at) => (before.cursor + at) % after.depthMax)
}

/** Priorities of several numbers an item, which are reduced here and refused there once the items are written. */
function reducedTo(before, { data, op }, after, items) {
  const { priorities, setup } = after
  const leaf = priorities && partAt(data, [keyIn(setup.priority_key ?? 'td_error')].flat())
  if (!leaf || op === 'add' || isFailed(before, after, items)) return undefined
  const values = numbersIn(leaf)
  const width = values.length / items.length
  if (!Number.isInteger(width)) return undefined
  const reduce = REDUCTIONS[setup.sampler.reduction ?? 'max']
  const model = after.clone()
  const rows = rowsOf(before, after)
  model.priorities.set(
    rows,
    rows.map((_, at) => reduce(values.slice(at * width, (at + 1) * width))),
  )
  return { rule: STORED, outcome: { ok: after.rowsShown(rows) }, model }
}

/** The members of a tree are items there, and its steps here. */
function batched(before, op, items) {
  const model = before.clone()
  const outcome = model.apply({ ...op, data: items })
  return { rule: BATCHES, outcome, model }
}

/** Rows that are free come in any order: those that Fulmar took must be free, too. */
function chosen(before, op, theirs, ours) {
  const model = before.clone()
  const taken = ours.value ? { $t: 'int64', s: [ours.value.length], d: ours.value } : null
  const outcome = model.apply({ ...op, ok: taken })
  return isDeepStrictEqual(outcome, theirs) ? {} : { rule: CHANCE, outcome, model }
}

function edited(before, { index, data }, theirs, after) {
  const isMany = index?.$slice || index?.s?.length === 1 || Array.isArray(index)
  const given = isMany ? stepsIn(data) : [data]
  let rows
  try {
    rows = positionsIn(index, before.depth)
  } catch (error) {
    return theirs.error === undefined ? refused(APPEND, before, error.message) : {}
  }
  // One item is written to each of the rows.
  const items = isMany && given.length === 1 ? rows.map(() => given[0]) : given
  if (rows.length !== items.length) return theirs.error === undefined ? refused(APPEND, before) : {}
  if (rows.length === 0) return { rule: APPEND, outcome: { ok: null }, model: before }
  if (before.isList && !isAlike(rows.map((row) => bare(before.rows[row])))) return refused(ALIKE, before)
  const model = before.clone()
  for (const [at, row] of rows.entries()) {
    for (const { path, leaf } of leavesIn(items[at])) {
      if (!before.isList && partAt(model.rows[0], path) === undefined) {
        if (before.isMemmap) return refused(LEAVES, before)
        model.rows = model.rows.map((one) => withPart(one, path, filled(leaf.$t, leaf.s, zeroOf(leaf.$t))))
      }
      model.rows[row] = withPart(model.rows[row], path, leaf)
    }
  }
  if (theirs.error !== undefined && items.length === given.length) return {}
  if (isDeepStrictEqual(model.held().map(bare), after.held().map(bare))) return {}
  return { rule: KEEPS, outcome: { ok: null }, model }
}

/** Keys of lists, which the original cannot set. */
function keySet(before, op, theirs) {
  if (!op.value?.$t) return { rule: VALUES, outcome: undefined, model: before }
  if (theirs.error === undefined || !before.isList) return {}
  return editedList(before, (model) => editKey(model, { index: { $slice: [null, null, null] }, ...op }))
}

function patched(before, op, theirs) {
  if (!before.isList || !before.generations) return {}
  return editedList(before, (model) => updateIfPresent(Object.assign(model, { isList: false }), op), theirs)
}

function editedList(before, change) {
  const model = before.clone()
  try {
    const ok = change(model) ?? null
    model.isList = true
    return { rule: LISTS, outcome: { ok }, model }
  } catch {
    return {}
  }
}

function read(before, { op, index, ok }, theirs) {
  const range = op === 'read_all' ? { $slice: [0, ok?.$td?.[0] ?? ok?.b?.[0] ?? before.depth, null] } : index
  if (isName(range) || range?.$tuple) return {}
  let places
  try {
    places = positionsIn(range, before.depth)
  } catch {
    return {}
  }
  const items = places.map((row) => before.rows[row])
  const isInt = typeof range === 'number' || range?.s?.length === 0
  if (isInt || before.lanes) return {}
  if (before.isList && !isAlike(items.map(bare)))
    return before.cls === 'LazyStackStorage'
      ? { rule: SHARED, outcome: { ok: stacked(items, sharedOf(items)) } }
      : { rule: ALIKE, outcome: { error: ALIKE } }
  if (theirs.error === undefined) return {}
  const isText = items.length > 0 && items.every((item) => typeof item !== 'object')
  if (isText) return { rule: CONVERTED, outcome: { ok: items } }
  if (!isMask(range) && items.length > 0) return {}
  const like = items[0] ?? before.rows[0] ?? { $td: [], k: {} }
  return { rule: READ, outcome: { ok: stacked(items, like) } }
}

/** One item with the leaves that all have. */
const sharedOf = ([first, ...rest]) =>
  leavesIn(bare(first))
    .filter(({ path, leaf }) => rest.every((item) => String(partAt(item, path)?.s) === String(leaf.s)))
    .reduce((all, { path, leaf }) => withPart(all, path, leaf), { $td: first.$td, k: {} })

const statOf = ({ storageLen, maxSize }, name, value) =>
  ({ size: storageLen, utilization: storageLen / maxSize })[name] ?? value

const IMPLIED = {
  add: written,
  extend: written,
  write_at: written,
  setitem: edited,
  write_all(before, { data, kwargs }, theirs, after) {
    const end = kwargs?.end ?? (before.size === before.maxSize ? null : stepsOf(data))
    return edited(before, { index: { $slice: [null, end, null] }, data }, theirs, after)
  },
  set_at_: keySet,
  set_: keySet,
  update_if_present: patched,
  get: read,
  sample_index: read,
  read_all: read,
  sample_size(before, op, theirs, after, ours) {
    if (op.batch_size === 0 && theirs.error === undefined) return refused(NOTHING, before)
    if (!before.counts || theirs.error !== undefined) return {}
    const model = before.clone()
    const outcome = model.apply({ ...op, state: { live: ours.live } })
    return isDeepStrictEqual(model.live(), after.live()) ? {} : { rule: CHANCE, outcome, model }
  },
  stats: (before, _, { ok }) =>
    before.size === before.storageLen
      ? {}
      : {
          rule: STATS,
          outcome: { ok: { $dict: ok.$dict.map(([name, one]) => [name, statOf(before, name, one)]) } },
        },
  state_roundtrip(before, _, theirs, after) {
    const isForgotten = !before.isList && before.isInit && before.depth === 0
    return {
      rule: [theirs.error === undefined ? [] : STATES, isForgotten ? FORGOTTEN : []].flat(),
      outcome: { ok: null },
      model: isForgotten ? blank(after) : after,
    }
  },
}
