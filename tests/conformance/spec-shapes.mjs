/**
 * The spec that TorchRL 0.14.1 makes of another one when it is expanded, reshaped, squeezed, unbound, indexed or cast: as `spec-original.mjs`,
 * over what rows describe.
 */

import {
  cast,
  expanded,
  filled,
  indexed,
  indexedShape,
  inserted,
  isFloat,
  isSameShape,
  range,
  read,
  refuse,
  reshaped,
  safe,
  selected,
  sizeOf,
  tensor,
  unknown,
  without,
  written,
} from './torch-arrays.mjs'

/** The class without the domain that TorchRL appends to its name. */
export const kindOf = (cls) => cls.replace(/(Continuous|Discrete)$/, '')
const isStack = ({ cls }) => cls.startsWith('Stacked')
/** Classes whose last dimension is the choice. */
const LAST = new Set(['OneHot', 'MultiOneHot', 'MultiCategorical'])
const total = (nvec) => nvec.reduce((sum, n) => sum + n, 0)
const isSame = (left, right) => JSON.stringify(left) === JSON.stringify(right)

/** Returns the resulting spec in the form of rows, or `undefined` for other questions. */
export function reshapedBy(spec, op, build) {
  const move = MOVES[op.op]
  if (move === undefined) return undefined
  const got = move(spec, op, build)
  if (typeof got === 'boolean') return { ok: { truth: got } }
  if (got === OF_TUPLES) return { ok: got }
  return { ok: Array.isArray(got) ? got.map((part) => ({ spec: part })) : { spec: got } }
}

const sizesIn = (value) => value.$tuple ?? value
const widened = (spec, by) => expand(spec, [...by, ...spec.shape])

const MOVES = {
  expand: (spec, { shape }) => expand(spec, sizesIn(shape)),
  unsqueeze: (spec, { dim = 0 }) => unsqueeze(spec, dim),
  squeeze: (spec, { after_unsqueeze: after }) =>
    after === undefined ? squeeze(spec) : squeeze(unsqueeze(spec, 0), 0),
  unsqueeze_squeeze: (spec) => squeeze(unsqueeze(spec, 0), 0),
  getitem: (spec, { key, index }) => (key === undefined ? item(spec, index) : unknown('an entry')),
  index_expanded: (spec, { expanded_by: by, index }) =>
    item(spec.cls === 'Choice' ? spec : widened(spec, by), index),
  reshape_expanded: (spec, { expanded_by: by, shape }) => reshape(widened(spec, by), sizesIn(shape)),
  flatten_expanded: (spec, { expanded_by: by }) => {
    const wide = widened(spec, by)
    if (isStack(wide) || wide.shape.includes(-1)) refuse('a length that is not known')
    return reshape(wide, [wide.shape[0] * wide.shape[1], ...wide.shape.slice(2)])
  },
  unflatten_expanded: (spec, { sizes }) => {
    const wide = widened(spec, [6])
    if (isStack(wide) || (wide.shape.includes(-1) && wide.cls !== 'Binary'))
      refuse('a length that is not known')
    return reshape(wide, [...sizesIn(sizes), ...wide.shape.slice(1)])
  },
  unbind: (spec, { dim = 0 }) => unbind(spec, dim),
  unbind_expanded: (spec, { expanded_by: by, dim = 0 }) =>
    unbind(spec.cls === 'Choice' ? spec : widened(spec, by), dim),
  to_f64: (spec) => to(spec, 'float64'),
  to_i64: (spec) => to(spec, 'int64'),
  to: (spec) => to(spec, 'float64'),
  to_one_hot_spec: oneHotSpec,
  to_categorical_spec: categoricalSpec,
  eq_expand: (spec) => {
    const isOfValues = spec.cls === 'NonTensor' || (spec.cls === 'Choice' && !spec.choices[0].cls)
    if (!isOfValues) expand(spec, [2, ...spec.shape])
    return isOfValues
  },
  empty: (spec) =>
    isStack(spec) ? refuse('no such method') : { cls: 'Composite', shape: spec.shape, k: {} },
}

/** A spec of the same class over another shape; what the constructor refuses is refused. */
function made(spec, shape, own = {}) {
  const { mask: _, ...fields } = spec
  const next = { ...fields, shape, ...own }
  if (next.mask === undefined) delete next.mask
  const last = shape.at(-1)
  if (spec.cls === 'OneHot') next.n = last ?? refuse('no last dimension')
  if (spec.cls === 'MultiOneHot' && last !== total(spec.nvec)) refuse('another number of choices')
  if (kindOf(spec.cls) === 'Unbounded') return unbounded(spec.dtype, shape)
  if (kindOf(spec.cls) === 'Bounded' && ![next.low, next.high].every(({ s }) => isSameShape(s, safe(shape))))
    refuse('bounds of another shape')
  if (spec.cls === 'MultiCategorical') next.nvec = nestedNvec(expanded(own.nvec ?? nvecOf(spec), safe(shape)))
  if (next.mask) next.mask = written(maskOf(next, read(next.mask)))
  return next
}

/** A mask spread to what its class expects. */
function maskOf(spec, mask) {
  const shape = safe(spec.shape)
  if (spec.cls === 'MultiCategorical') return expanded(mask, [...shape.slice(0, -1), mask.s.at(-1)])
  return expanded(mask, spec.cls === 'Categorical' ? [...shape, spec.n] : shape)
}

const nvecOf = (spec) => tensor('int64', safe(spec.shape), spec.nvec.flat(9))

function nestedNvec({ s, d }) {
  let values = d
  for (const length of s.slice(1).toReversed())
    values = range(length === 0 ? 0 : values.length / length).map((at) =>
      values.slice(at * length, (at + 1) * length),
    )
  return values
}

const RANGES = {
  float64: Number.MAX_VALUE,
  float32: 3.4028234663852886e38,
  float16: 65504,
  bfloat16: 3.3895313892515355e38,
}

function unbounded(dtype, shape) {
  const bits = Number(/\d+/.exec(dtype)?.[0] ?? 1)
  const signed = [-(2 ** (bits - 1)), 2 ** (bits - 1) - 1]
  const whole = dtype === 'bool' ? [0, 1] : dtype === 'uint8' ? [0, 255] : signed
  const [low, high] = isFloat(dtype) ? [-RANGES[dtype], RANGES[dtype]] : whole
  const domain = isFloat(dtype) ? 'continuous' : 'discrete'
  const cls = isFloat(dtype) ? 'UnboundedContinuous' : 'UnboundedDiscrete'
  const bound = (value) => written(filled(dtype, safe(shape), value))
  return { cls, shape, dtype, domain, low: bound(low), high: bound(high) }
}

/** A spec whose bounds, choices and mask go through `change` with it. */
function bounded(spec, shape, change) {
  return made(spec, shape, { low: written(change(read(spec.low))), high: written(change(read(spec.high))) })
}

const changedMask = (spec, change) => (spec.mask ? { mask: written(change(read(spec.mask))) } : {})
const unbatched = (spec, shape) => ({ ...spec, shape, batched: false })
const ofChoices = (spec, change) => {
  const choices = spec.choices.map(change)
  return { ...spec, choices, shape: choices[0].shape ?? choices[0].b }
}

const ofChoice = (spec, change) =>
  ofChoices(spec, (choice) => (choice.cls ? change(choice) : ofValue(choice, change)))

/** A JSON value of a batch is listed for each element. */
function ofValue({ $nt, $nts, b }, change) {
  const values = $nts === undefined ? [$nt] : $nts.flat(9)
  if (values.some((value) => !isSame(value, values[0]))) unknown('values that differ')
  const { shape } = change({ cls: 'NonTensor', shape: b })
  const known = sizeOf(shape.filter((length) => length >= 0))
  const lengths = shape.map((length) => (length < 0 ? sizeOf(b) / known : length))
  if (lengths.length === 0) return { $nt: values[0], b: [] }
  const nested = lengths.toReversed().reduce((inner, length) => new Array(length).fill(inner), values[0])
  return { $nts: nested, b: lengths, dim: 0 }
}

function ofEntries(spec, shape, change, names) {
  const k = Object.fromEntries(Object.entries(spec.k).map(([name, entry]) => [name, change(entry)]))
  const { names: _, ...rest } = spec
  return { ...rest, shape, k, ...(names === undefined ? {} : { names }) }
}

function expand(spec, shape) {
  const { cls } = spec
  if (cls === 'Choice') return ofChoice(spec, (choice) => expand(choice, shape))
  if (isStack(spec)) return expandStack(spec, shape)
  const rank = spec.shape.length
  const end = rank === 0 ? [] : shape.slice(-rank)
  if (end.some((length, dim) => length !== spec.shape[dim] && spec.shape[dim] !== 1))
    refuse('a shape that ends otherwise')
  if (cls === 'NonTensor') return unbatched(spec, shape)
  if (cls === 'Composite') {
    const names = spec.names && [...new Array(shape.length - rank).fill(null), ...spec.names]
    const inner = (entry) => entry && expand(entry, [...shape, ...entry.shape.slice(rank)])
    return ofEntries(spec, shape, inner, names)
  }
  if (kindOf(cls) === 'Bounded') return bounded(spec, shape, (bound) => expanded(bound, safe(shape)))
  if (cls === 'OneHot' || cls === 'MultiOneHot')
    return made(
      spec,
      shape,
      changedMask(spec, (mask) => expanded(mask, safe(shape))),
    )
  if (cls === 'MultiCategorical') {
    if (shape.at(-1) !== spec.shape.at(-1)) refuse('another number of choices')
    return made(
      spec,
      shape,
      changedMask(spec, (mask) => expanded(mask, [...safe(shape), mask.s.at(-1)])),
    )
  }
  return made(spec, shape)
}

function expandStack(spec, shape) {
  const rank = spec.shape.length
  const lead = shape.slice(0, -rank)
  const end = shape.slice(-rank)
  if (end.length !== rank) refuse('fewer dimensions')
  if (end.some((length, dim) => length !== spec.shape[dim])) unknown('a stack that spreads')
  const inner = without(end, spec.stack_dim)
  const specs = spec.specs.map((member) =>
    expand(member, [...lead, ...inner.map((length, dim) => (length === -1 ? member.shape[dim] : length))]),
  )
  return restacked(spec, specs, spec.stack_dim + lead.length)
}

/** Specs that are alike become one spec. */
function restacked(spec, specs, dim) {
  const [first] = specs
  if (specs.every((member) => isSame(member, first))) {
    const wide = unsqueeze(first, dim)
    return expand(wide, inserted(first.shape, dim, specs.length))
  }
  const shape = first.shape.map((length, at) =>
    spec.cls === 'StackedComposite' || specs.every((member) => member.shape[at] === length) ? length : -1,
  )
  return { ...spec, shape: inserted(shape, dim, specs.length), stack_dim: dim, specs }
}

function reshape(spec, shape) {
  const { cls } = spec
  if (isStack(spec)) refuse('no reshape of stacks')
  if (cls === 'Choice') return ofChoice(spec, (choice) => reshape(choice, shape))
  if (cls === 'NonTensor') return unbatched(spec, shape)
  if (cls === 'Composite') {
    const rank = spec.shape.length
    const inner = (entry) =>
      entry ? reshape(entry, [...shape, ...entry.shape.slice(rank)]) : refuse('nothing')
    return ofEntries(spec, shape, inner)
  }
  if (kindOf(cls) === 'Bounded') return bounded(spec, shape, (bound) => reshaped(bound, shape))
  if (cls === 'MultiCategorical')
    return shape.at(-1) === spec.shape.at(-1)
      ? made(
          spec,
          shape,
          changedMask(spec, (mask) => reshaped(mask, [...shape, mask.s.at(-1)])),
        )
      : refuse('another number of choices')
  return cls === 'OneHot' || cls === 'MultiOneHot'
    ? made(
        spec,
        shape,
        changedMask(spec, (mask) => reshaped(mask, shape)),
      )
    : made(spec, shape)
}

/** The shape without a dimension of length 1, or without all; nothing where TorchRL leaves it. */
function squeezedShape(shape, dim) {
  if (dim === undefined)
    return shape.length === 1 || !shape.includes(1) ? undefined : shape.filter((length) => length !== 1)
  return shape[dim] === 1 ? without(shape, dim) : undefined
}

function squeeze(spec, dim) {
  const { cls } = spec
  if (isStack(spec)) return squeezeStack(spec, dim)
  if (cls === 'Choice') return ofChoice(spec, (choice) => squeeze(choice, dim))
  if (cls === 'Composite') {
    if (dim === undefined)
      return spec.shape.includes(1) ? squeeze(squeeze(spec, spec.shape.indexOf(1))) : spec
    if (spec.shape[dim] !== 1) return spec
    const names = spec.names && without(spec.names, dim)
    const inner = (entry) => (entry ? squeeze(entry, dim) : refuse('nothing'))
    return ofEntries(
      spec,
      without(spec.shape, dim),
      inner,
      names?.some((name) => name !== null) ? names : undefined,
    )
  }
  if (LAST.has(cls) && spec.shape.at(-1) === 1 && (dim === undefined || dim === spec.shape.length))
    refuse('the last dimension is the choice')
  const shape = squeezedShape(cls === 'Binary' ? safe(spec.shape) : spec.shape, dim)
  if (shape === undefined) return spec.mask && cls === 'Categorical' ? refuse('no shape for the mask') : spec
  if (cls === 'NonTensor') return { ...spec, shape }
  if (kindOf(cls) === 'Bounded') return bounded(spec, shape, (bound) => reshaped(bound, safe(shape)))
  if (cls === 'MultiCategorical')
    return made(spec, shape, {
      nvec: reshaped(nvecOf(spec), safe(shape)),
      ...changedMask(spec, (mask) => reshaped(mask, [...shape.slice(0, -1), mask.s.at(-1)])),
    })
  return made(
    spec,
    shape,
    changedMask(spec, (mask) => reshapedMask(spec, mask, shape)),
  )
}

const reshapedMask = (spec, mask, shape) =>
  reshaped(mask, spec.cls === 'Categorical' ? [...safe(shape), spec.n] : safe(shape))

function squeezeStack(spec, dim) {
  const { shape, stack_dim: along } = spec
  if (dim === undefined) {
    if (shape.length === 1 || !shape.includes(1)) return spec
    return squeeze(squeezeStack(spec, shape.indexOf(1)))
  }
  if (shape[dim] !== 1) return spec
  if (dim === along) return spec.specs[0]
  const specs = spec.specs.map((member) => squeeze(member, dim > along ? dim - 1 : dim))
  return restacked(spec, specs, dim > along ? along : along - 1)
}

function unsqueeze(spec, at) {
  const { cls } = spec
  if (cls === 'Choice') return ofChoice(spec, (choice) => unsqueeze(choice, at))
  const rank = spec.shape.length
  if (LAST.has(cls) && (at === rank || at === -1)) refuse('the last dimension is the choice')
  if (at > rank || at < -rank - 1) refuse('no such dimension')
  const dim = at < 0 ? at + rank + 1 : at
  const shape = inserted(spec.shape, dim, 1)
  if (isStack(spec)) {
    const along = spec.stack_dim
    const specs = spec.specs.map((member) => unsqueeze(member, dim > along ? dim - 1 : dim))
    return restacked(spec, specs, dim > along ? along : along + 1)
  }
  if (cls === 'Composite')
    return ofEntries(
      spec,
      shape,
      (entry) => entry && unsqueeze(entry, dim),
      spec.names && inserted(spec.names, dim, null),
    )
  if (cls === 'NonTensor') return { ...spec, shape }
  if (kindOf(cls) === 'Bounded') return bounded(spec, shape, (bound) => reshaped(bound, safe(shape)))
  if (cls === 'MultiCategorical')
    return made(spec, shape, {
      nvec: reshaped(nvecOf(spec), safe(shape)),
      ...changedMask(spec, (mask) => reshaped(mask, [...safe(shape).slice(0, -1), mask.s.at(-1)])),
    })
  return made(
    spec,
    shape,
    changedMask(spec, (mask) => reshapedMask(spec, mask, shape)),
  )
}

/** TorchRL's stack of tuples, which has no shape and cannot be described. */
const OF_TUPLES = {
  malformed_result: 'Stacked',
  why: { class: 'AttributeError', bases: [], msg: "'tuple' object has no attribute 'shape'" },
}

function unbind(spec, at) {
  const { cls } = spec
  const rank = spec.shape.length
  const dim = at < 0 ? at + rank : at
  if (cls === 'Choice') refuse('no unbind of choices')
  if (dim < 0) refuse('no such dimension')
  if (isStack(spec)) return dim === spec.stack_dim ? spec.specs : OF_TUPLES
  const isLast = cls === 'Binary' ? at === rank - 1 || at === -1 : at === rank || at === -1
  if ((LAST.has(cls) || cls === 'Binary' || kindOf(cls) === 'Bounded') && isLast)
    refuse('the last dimension stays')
  if (dim >= rank) refuse('no such dimension')
  const shape = without(spec.shape, dim)
  const parts = range(Math.max(spec.shape[dim], 0))
  if (cls === 'Composite') {
    const names = spec.names && without(spec.names, dim)
    const kept = names?.some((name) => name !== null) ? names : undefined
    const entry = (one, part) => (one ? unbind(one, dim)[part] : refuse('nothing'))
    return parts.map((part) => ofEntries(spec, shape, (one) => entry(one, part), kept))
  }
  if (cls === 'NonTensor') return parts.map(() => unbatched(spec, shape))
  return parts.map((part) => {
    const at0 = (x) => selected(x, dim, part)
    if (kindOf(cls) === 'Bounded') return bounded(spec, shape, at0)
    const own = cls === 'MultiCategorical' ? { nvec: at0(nvecOf(spec)) } : {}
    return made(spec, shape, { ...own, ...changedMask(spec, at0) })
  })
}

/** As `spec[index]`. */
export function item(spec, index) {
  const { cls } = spec
  if (typeof index === 'string') refuse('no such key')
  if (cls === 'Choice') refuse('no items of choices')
  if (isStack(spec)) return itemOfStack(spec, index)
  if (cls === 'Composite') return itemOfDict(spec, index)
  if (cls === 'MultiCategorical') {
    const nvec = indexed(nvecOf(spec), index)
    const own = nvec.s.length === 0 ? tensor('int64', [1], nvec.d) : nvec
    const { mask: _, ...rest } = spec
    return { ...rest, shape: own.s, nvec: nestedNvec(own) }
  }
  if (['OneHot', 'MultiOneHot', 'Binary'].includes(cls)) {
    if (spec.shape.length === 0) refuse('no dimension')
    const shape = [...indexedShape(spec.shape.slice(0, -1), index), spec.shape.at(-1)]
    return made(spec, shape, cls === 'OneHot' ? changedMask(spec, (mask) => indexed(mask, index)) : {})
  }
  const shape = indexedShape(spec.shape, index)
  if (cls === 'NonTensor') return unbatched(spec, shape)
  if (kindOf(cls) === 'Bounded')
    return bounded(spec, shape, (bound) => expanded(indexed(bound, index), safe(shape)))
  return made(spec, shape)
}

/** Entries are indexed with all that follows taken whole. */
function itemOfDict(spec, index) {
  const shape = indexedShape(spec.shape, index)
  const inner = (entry) => {
    if (entry === null) return index?.$tuple ? refuse('no shape of nothing') : null
    if (index?.$tuple === undefined) return item(entry, index)
    const isLast = LAST.has(entry.cls) || entry.cls === 'Binary'
    const rest = entry.shape.length - spec.shape.length - Number(isLast)
    return item(entry, {
      $tuple: [...index.$tuple, ...new Array(Math.max(0, rest)).fill({ $slice: [null, null, null] })],
    })
  }
  const names = spec.names && indexedNames(spec.names, index)
  return ofEntries(spec, shape, inner, names)
}

/** Names go one by one, each at its place in the index. */
function indexedNames(names, index) {
  const left = [...names]
  if (Number.isInteger(index)) left.splice(index, 1)
  for (const [at, part] of (index?.$tuple ?? []).entries()) {
    if (!Number.isInteger(part)) continue
    if (at >= left.length) refuse('no such name')
    left.splice(at, 1)
  }
  return left
}

const isWhole = (part) => part?.$slice?.every((bound) => bound === null) ?? false

/** TorchRL indexes a stack along the stacked dimension alone. */
function itemOfStack(spec, index) {
  const { stack_dim: along, shape, specs } = spec
  const chosen = (part) => {
    if (Number.isInteger(part)) return specs[part < 0 ? part + specs.length : part] ?? refuse('out of bounds')
    if (!part?.$slice) refuse('a list takes numbers and slices')
    const [start, stop, step] = part.$slice.map((bound) => bound ?? undefined)
    if (step !== undefined && step !== 1) unknown('steps')
    const kept = specs.slice(start, stop)
    return kept.length === 0 ? refuse('no spec') : restacked(spec, kept, 0)
  }
  if (index?.$tuple === undefined) return along === 0 ? chosen(index) : refuse('along another dimension')
  const parts = index.$tuple
  if (parts[0]?.$ellipsis) {
    if (parts.length === 1) return spec
    if (along === shape.length - 1 && parts.length === 2) return chosen(parts[1])
    return parts.length > 2
      ? unknown('an ellipsis before several')
      : refuse('an ellipsis before another dimension')
  }
  if (parts.length >= 2 && parts.at(-1)?.$ellipsis) return itemOfStack(spec, { $tuple: parts.slice(0, -1) })
  if (parts.some((part) => part === null || part?.$ellipsis)) refuse('an ellipsis or a new dimension')
  for (const [dim, part] of parts.entries()) {
    if (dim === along) return chosen(part)
    if (part?.$slice && !isWhole(part)) refuse('a slice of another dimension')
  }
  return spec
}

function to(spec, dtype) {
  const { cls } = spec
  if (cls === 'Choice') return ofChoice(spec, (choice) => to(choice, dtype))
  if (cls === 'NonTensor') return unbatched(spec, spec.shape)
  if (cls === 'Composite')
    return ofEntries(spec, spec.shape, (entry) => entry && to(entry, dtype), spec.names)
  if (isStack(spec))
    return restacked(
      spec,
      spec.specs.map((member) => to(member, dtype)),
      spec.stack_dim,
    )
  if (spec.dtype === dtype) return spec
  if (kindOf(cls) === 'Unbounded') return unbounded(dtype, spec.shape)
  if (kindOf(cls) === 'Bounded') {
    const domain = isFloat(dtype) ? 'continuous' : 'discrete'
    const [low, high] = [spec.low, spec.high].map((bound) => written(cast(read(bound), dtype)))
    return {
      ...spec,
      cls: isFloat(dtype) ? 'BoundedContinuous' : 'BoundedDiscrete',
      domain,
      dtype,
      low,
      high,
    }
  }
  if (spec.mask && (cls === 'MultiOneHot' || cls === 'MultiCategorical')) refuse('a mask that is no bool')
  const own = spec.mask && cls === 'OneHot' ? { mask: spec.mask } : {}
  return { ...made(spec, spec.shape, own), dtype }
}

function oneHotSpec(spec) {
  if (spec.cls === 'OneHot' || spec.cls === 'MultiOneHot') return spec
  if (spec.cls === 'MultiCategorical') return oneHotsSpec(spec)
  if (spec.cls !== 'Categorical' && spec.cls !== 'Binary') refuse('no such method')
  return { cls: 'OneHot', shape: [...spec.shape, spec.n], dtype: 'bool', domain: 'discrete', n: spec.n }
}

function oneHotsSpec(spec) {
  if (spec.shape.length > 1) {
    const specs = unbind(spec, 0).map(oneHotsSpec)
    return restacked({ cls: 'Stacked' }, specs, 0)
  }
  const nvec = spec.nvec.flat(9)
  const mask = spec.mask ? { mask: spec.mask } : {}
  return { cls: 'MultiOneHot', shape: [total(nvec)], dtype: 'bool', domain: 'discrete', nvec, ...mask }
}

function categoricalSpec(spec) {
  const { cls, mask, nvec, n, shape } = spec
  const own = mask ? { mask } : {}
  if (['Categorical', 'Binary', 'MultiCategorical'].includes(cls)) return spec
  if (cls === 'OneHot')
    return { cls: 'Categorical', shape: shape.slice(0, -1), dtype: 'int64', domain: 'discrete', n, ...own }
  if (cls !== 'MultiOneHot') refuse('no such method')
  const next = [...shape.slice(0, -1), nvec.length]
  return {
    cls: 'MultiCategorical',
    shape: next,
    dtype: 'int64',
    domain: 'discrete',
    nvec: nestedNvec(expanded(tensor('int64', [nvec.length], nvec), next)),
    ...own,
  }
}

const DEFAULTS = {
  Unbounded: { names: ['shape'], dtype: 'float32' },
  Bounded: { names: ['low', 'high', 'shape'], dtype: 'float32' },
  Categorical: { names: ['n', 'shape'], dtype: 'int64' },
  OneHot: { names: ['n', 'shape'], dtype: 'bool' },
  Binary: { names: ['n', 'shape'], dtype: 'int8' },
  MultiCategorical: { names: ['nvec', 'shape'], dtype: 'int64' },
  MultiOneHot: { names: ['nvec', 'shape'], dtype: 'bool' },
}

/** The description of what a constructor makes; stacks are described by the rows alone. */
export function specOf(build) {
  if (build === null) return null
  const { cls, kwargs = {} } = build
  if (cls === 'Composite') {
    const k = Object.fromEntries(Object.entries(build.k).map(([name, entry]) => [name, specOf(entry)]))
    return { cls, shape: build.shape, k, ...(build.names ? { names: build.names } : {}) }
  }
  if (cls === 'Choice') {
    const choices = build.choices.map((choice) => (choice.cls ? specOf(choice) : choice))
    return { cls, shape: (choices[0] ?? refuse('no choice')).shape ?? choices[0].b, choices }
  }
  if (cls === 'NonTensor') {
    const shape = (kwargs.shape ?? build.args[0])?.$tuple ?? [1]
    const batched = kwargs.batched ?? false
    const features = batched ? 0 : shape.length
    return { cls, shape, example_data: kwargs.example_data, batched, feature_dims: features }
  }
  return leafOf(build)
}

/** A spec of tensors. */
function leafOf({ cls, args = [], kwargs = {} }) {
  const { names, dtype: usual } = DEFAULTS[kindOf(cls)] ?? unknown('no spec of tensors')
  const given = Object.fromEntries(names.map((name, at) => [name, kwargs[name] ?? args[at]]))
  const dtype = kwargs.dtype?.$dtype ?? (cls === 'UnboundedDiscrete' ? 'int64' : usual)
  const { n, nvec } = given
  const least = {
    Unbounded: [1],
    Categorical: [],
    OneHot: [n],
    Binary: [n],
    MultiOneHot: [total([nvec ?? []].flat(9))],
  }
  const nested = tensor('int64', cls === 'MultiCategorical' ? shapeOf(nvec) : [], [nvec].flat(9))
  const shape =
    given.shape?.$tuple ?? least[kindOf(cls)] ?? (nvec ? nested.s : given.low?.s) ?? refuse('no shape')
  const spec = { cls, shape, dtype, domain: 'discrete', ...(n === undefined ? {} : { n }) }
  const mask = kwargs.mask ? { mask: kwargs.mask } : {}
  if (kindOf(cls) === 'Unbounded') return unbounded(dtype, shape)
  if (kindOf(cls) === 'Bounded') {
    const bound = (value) =>
      written(
        expanded(
          value?.$t ? cast(read(value), dtype) : cast(tensor(dtype, [], [Number(value)]), dtype),
          safe(shape),
        ),
      )
    const isContinuous = cls === 'BoundedContinuous' || (cls === 'Bounded' && isFloat(dtype))
    const own = isContinuous ? 'Continuous' : 'Discrete'
    const bounds = { low: bound(given.low), high: bound(given.high) }
    return { ...spec, cls: `Bounded${own}`, domain: own.toLowerCase(), ...bounds }
  }
  if (cls === 'Binary') return { ...spec, n: 2 }
  if (cls === 'MultiCategorical') return made({ ...spec, nvec: [] }, shape, { nvec: nested, ...mask })
  return made({ ...spec, ...(nvec ? { nvec } : {}) }, shape, mask)
}

function shapeOf(nested) {
  const shape = []
  for (let inner = nested; Array.isArray(inner); [inner] = inner) shape.push(inner.length)
  return shape.length === 0 ? [1] : shape
}
