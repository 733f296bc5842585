/**
 * TorchRL 0.14.1's rules for specs: which values it holds, projects, encodes, decodes and lists. A
 * decision of `specs.mjs` holds only where a row has the answer of these rules, so that no other value passes for a difference on purpose.
 *
 * A spec is what a row describes (`spec`). A rule gives the value of the row, throws `Refusal` where TorchRL fails, and `Unknown` where
 * these rules do not go.
 */

import { isDeepStrictEqual } from 'node:util'
import { plain, truthOf } from './spec-description.mjs'
import { item, kindOf, reshapedBy, specOf } from './spec-shapes.mjs'
import {
  broadcast,
  cast,
  castNumber,
  expanded,
  filled,
  isFloat,
  isSameShape,
  joined,
  promoted,
  Refusal,
  range,
  read,
  refuse,
  reshaped,
  rowsOf,
  safe,
  sizeOf,
  split,
  tensor,
  Unknown,
  unbound,
  unknown,
  written,
} from './torch-arrays.mjs'

const isIndex = (spec) => ['Categorical', 'Binary'].includes(spec.cls)
const isStack = (spec) => spec.cls.startsWith('Stacked')
const isDict = (spec) => spec.cls === 'Composite' || spec.cls === 'StackedComposite'

/**
 * `{ ok }` or `{ error: true }`, as TorchRL answers; nothing where these rules do not go. `ok` may be a function that says whether a
 * value is one of those that TorchRL draws.
 */
export function originalAnswer(spec, op, build) {
  const rule = RULES[op.op]
  return answered(() => (rule ? { ok: rule(spec, op, build) } : reshapedBy(spec, op, build)))
}

function answered(ask) {
  try {
    return ask()
  } catch (error) {
    if (error instanceof Refusal) return { error: true }
    if (error instanceof Unknown) return undefined
    throw error
  }
}

/** Returns TorchRL's result for a value that it encodes and then checks; of one-hots it checks the index alone. */
export function originalCheckedEncoding({ build, value }) {
  return answered(() => {
    const spec = specOf(build)
    const got = encoded(spec, value, build)
    return { ok: spec.cls.endsWith('OneHot') || contains(spec, got) ? got : refuse('outside') }
  })
}

/** Returns TorchRL's description of the spec that a constructor makes. */
export const originalSpec = (build) => answered(() => ({ ok: specOf(build) }))

/** Returns true if a row expects this result. */
export function isAnswer({ ok, error }, row) {
  if (error || row.ok === undefined) return error === true && row.ok === undefined
  if (typeof ok === 'function') return ok(row.ok)
  if (ok?.truth !== undefined) return truthOf(row.ok) === ok.truth
  return isDeepStrictEqual(plain(row.ok), plain(ok))
}

const RULES = {
  zero: (spec, { shape = [] }) => zero(spec, shape),
  one: (spec, { shape = [] }) => one(spec, shape),
  cardinality: (spec, _, build) => {
    const count = cardinality(spec, build)
    return (ok) => Number(ok?.$t ? countOf(ok) : ok) === count && (ok?.$t !== undefined || isPlain(ok))
  },
  ndim: (spec) => spec.shape.length,
  rand_shape: (spec, { shape }, build) => drawn(spec, shape, build),
  rand_support: supported,
  rand_ok: (spec) => ({ truth: ownDraw(spec) }),
  rand_in: (spec) => ({ truth: ownDraw(spec) }),
  is_in_zero: (spec) => ({ truth: contains(spec, zero(spec, [])) }),
  enumerate: (spec, { args = [] }, build) => enumerated(spec, args[0] === true, build),
  is_in: (spec, { value }) => ({ truth: contains(spec, value) }),
  project: (spec, { value }) => projected(spec, value),
  encode: (spec, { value }, build) => encoded(spec, value, build),
  to_numpy: (spec, { value }, build) => decoded(spec, value, build),
  eq_clone: () => ({ truth: true }),
  clone_eq: () => ({ truth: true }),
  index: picked,
  keys: (spec) => (isDict(spec) ? Object.keys(entriesIn(spec)) : unknown('no dictionary')),
  keys_nested: (spec) => (isDict(spec) ? keysOf(spec, true) : unknown('no dictionary')),
  keys_leaves: (spec) => (isDict(spec) ? keysOf(spec, false) : unknown('no dictionary')),
  contains_lazy: (spec) => ({ truth: hasStack(spec) }),
  consolidate: (spec) => {
    if (hasStack(spec)) unknown('keys that some of a stack have')
    return { spec: isDict(spec) ? spec : { cls: 'Composite', shape: [], k: { a: spec } } }
  },
  no_exclusive: (spec) => ({ truth: hasNoExclusive(spec) }),
  is_empty: (spec) => ({ truth: Object.keys(entriesIn(spec)).length === 0 }),
  del: (spec, { key }) => ({ spec: withoutEntry(spec, [key?.$tuple ?? key].flat()) }),
  split: () => refuse('no such method'),
}

const countOf = ({ $t, s, d }) =>
  s.length === 0 && d.length === 1 && $t === (Number.isFinite(Number(d[0])) ? 'int64' : 'float32')
    ? d[0]
    : Number.NaN
const isPlain = (ok) => typeof ok === 'number' || ok === 'Infinity'

/** The constructor's argument: by name, or by its place. */
const argument = (build, at, name) => build.kwargs?.[name] ?? build.args?.[at]

function zero(spec, shape) {
  if (spec.cls === 'NonTensor') return shared(spec, [...shape, ...safe(spec.shape)])
  if (spec.cls === 'Choice') return chosen(spec, 0, (choice) => zero(choice, shape))
  if (spec.cls === 'Composite') return dictionary(spec, shape, (entry) => zero(entry, shape))
  if (spec.cls === 'Stacked') return ragged(spec, shape, (one) => zero(one, shape))
  if (spec.cls === 'StackedComposite') return stacked(spec, shape, (one) => zero(one, shape))
  return written(filled(spec.dtype, [...shape, ...safe(spec.shape)], 0))
}

/** A JSON value: one for all features, and a list where dimensions come before them. */
function shared({ example_data: value, batched, feature_dims: features }, shape) {
  const isOne = batched || features === 0 || features >= shape.length
  if (isOne) return { $nt: value, b: shape }
  return {
    $nts: shape.toReversed().reduce((inner, length) => new Array(length).fill(inner), value),
    b: shape,
    dim: 0,
  }
}

/** One is added to zeros; a bool alone is turned round. */
function one(spec, shape) {
  if (spec.cls === 'Choice') refuse('TorchRL subtracts one from a spec')
  if (spec.cls === 'Stacked') return ragged(spec, shape, (member) => one(member, shape))
  if (spec.cls === 'StackedComposite') return stacked(spec, shape, (member) => one(member, shape))
  const value = zero(spec, shape)
  return value.$t === 'bool' ? { ...value, d: value.d.map(() => true) } : plusOne(value)
}

function plusOne(value) {
  if (value.$td) return { ...value, k: Object.fromEntries(entriesOf(value.k, plusOne)) }
  if (!value.$t) return value
  const dtype = value.$t === 'bool' ? 'int64' : value.$t
  return { ...value, $t: dtype, d: value.d.map((element) => Number(element) + 1) }
}

const entriesOf = (entries, change) =>
  Object.entries(entries).map(([name, entry]) => [name, change(entry, name)])

function chosen(spec, at, make) {
  const choice = spec.choices[at]
  return choice.cls ? make(choice) : choice
}

function dictionary(spec, shape, make) {
  if (spec.names && spec.names.length !== shape.length + spec.shape.length) refuse('names of another number')
  const k = Object.fromEntries(
    entriesOf(spec.k, (entry) => entry && make(entry)).filter(([, entry]) => entry),
  )
  return { $td: [...shape, ...safe(spec.shape)], k, ...(spec.names ? { names: spec.names } : {}) }
}

/** Tensors of a stack that begins with the stacked dimension; TorchRL nests no others. */
function ragged(spec, shape, make) {
  if (spec.stack_dim + shape.length !== 0) refuse('a nested tensor along another dimension')
  return { $njt: spec.specs.map(make) }
}

function stacked(spec, shape, make) {
  const dim = spec.stack_dim + shape.length
  const items = spec.specs.map(make)
  const dense = items.slice(1).reduce((all, item) => all && isAlike(items[0], item), true)
  if (!dense) return { $lazy: dim, b: inserted(items[0].$td, dim, items.length), items }
  return stackedValues(items, dim)
}

const inserted = (list, at, item) => [...list.slice(0, at), item, ...list.slice(at)]
const isAlike = (left, right) =>
  left.$td
    ? isDeepStrictEqual(Object.keys(left.k), Object.keys(right.k)) &&
      Object.keys(left.k).every((name) => isAlike(left.k[name], right.k[name]))
    : isDeepStrictEqual([left.$t, left.s], [right.$t, right.s])

function stackedValues(items, dim) {
  const [first] = items
  if (first.$td) {
    const k = entriesOf(first.k, (_, name) =>
      stackedValues(
        items.map((item) => item.k[name]),
        dim,
      ),
    )
    return { $td: inserted(first.$td, dim, items.length), k: Object.fromEntries(k) }
  }
  if (!first.$t) unknown('a stack of JSON values')
  const outer = sizeOf(first.s.slice(0, dim))
  const inner = first.d.length / (outer || 1)
  const d = range(outer).flatMap((at) => items.flatMap((item) => item.d.slice(at * inner, (at + 1) * inner)))
  return { $t: first.$t, s: inserted(first.s, dim, items.length), d }
}

/** Products over choices; without end where a bound is continuous or wide. */
function cardinality(spec, given) {
  const { cls } = spec
  const build = given.cls === 'stack' && !isStack(spec) ? given.specs[0] : given
  if (isStack(spec) || cls === 'NonTensor' || kindOf(cls) === 'Unbounded') refuse('no cardinality')
  if (kindOf(cls) === 'Bounded') return Number.POSITIVE_INFINITY
  if (cls === 'Choice')
    return spec.choices.reduce(
      (sum, choice, at) => sum + (choice.cls ? cardinality(choice, build.choices[at]) : 1),
      0,
    )
  if (cls === 'MultiOneHot') return spec.nvec.reduce((product, n) => product * n, 1)
  if (cls === 'MultiCategorical')
    return argument(build, 0, 'nvec')
      .flat(9)
      .reduce((product, n) => product * n, 1)
  if (cls !== 'Composite') return countedN(spec)
  const counts = Object.entries(spec.k).filter(([, entry]) => entry !== null)
  return counts.length === 0
    ? 0
    : counts.reduce((product, [name, entry]) => product * cardinality(entry, build.k[name]), 1)
}

const countedN = ({ n }) => (n === -1 ? refuse('n is not known') : n)

/** Returns true if the original's own samples are in its domain: not above an end that is infinite, nor between ends in the wrong order. */
function ownDraw(spec) {
  if (spec.cls === 'Stacked' && spec.stack_dim !== 0) refuse('a nested tensor along another dimension')
  if (spec.names && spec.names.length !== spec.shape.length) refuse('names of another number')
  const inner = [...Object.values(spec.k ?? {}), ...(spec.specs ?? [])].filter((entry) => entry !== null)
  if (inner.length > 0) return inner.map(ownDraw).every(Boolean)
  if (kindOf(spec.cls) !== 'Bounded' || !isFloat(spec.dtype)) return true
  const [low, high] = [read(spec.low).d, read(spec.high).d]
  return low.every((least, at) => least !== Number.NEGATIVE_INFINITY && least <= high[at])
}

function drawn(spec, lead, build) {
  if (spec.cls === 'Choice') {
    const [choice] = spec.choices
    return choice.cls ? drawn(choice, lead, build.choices[0]) : drawnAs([], null, true)
  }
  if ((isIndex(spec) || spec.cls === 'OneHot') && spec.n < 1) refuse('nothing to draw from')
  const isSingle = spec.cls === 'MultiCategorical' && isSameShape(spec.shape, [1])
  const isDropped = isSingle && argument(build, Number.NaN, 'remove_singleton') !== false && !spec.mask
  const shape = [...lead, ...(isDropped ? [] : safe(spec.shape))]
  return drawnAs(shape, spec.dtype, ownDraw(spec))
}

const drawnAs = (shape, dtype, isIn) => (ok) => {
  const said = ok?.$dict
  const [first, second, third] = said ?? []
  return (
    Object.keys(ok ?? {}).length === 1 &&
    said?.length === 3 &&
    isDeepStrictEqual(
      [first, second],
      [
        ['shape', shape],
        ['dtype', dtype],
      ],
    ) &&
    third[0] === 'is_in' &&
    truthOf(third[1]) === isIn
  )
}

/** Most values that rows list, in order, and the largest domain that 3,000 samples cover. */
const LISTED_MAX = 64
const MET_MAX = 200

/** The values that were drawn, each once and in order: all of a small domain, and some of a large one, which is evidence and no target. */
function supported(spec) {
  if (ownDraw(spec) && isIndex(spec) && spec.n < 1) refuse('nothing to draw from')
  const blocks = blocksOf(spec)
  const count = blocks.reduce((product, { length }) => product * length, 1)
  if (count > MET_MAX)
    return (ok) =>
      ok === 'skipped' ||
      (ok.length <= LISTED_MAX && ok.every((value, at) => at === 0 || isBefore(ok[at - 1], value)))
  const all = range(Math.min(count, LISTED_MAX)).map((flat) => {
    let rest = flat
    const picked = blocks.toReversed().map((list) => {
      const at = rest % list.length
      rest = Math.floor(rest / list.length)
      return list[at]
    })
    return picked.toReversed().flat()
  })
  return all
}

function isBefore(left, right) {
  const at = left.findIndex((one, index) => one !== right[index])
  return at >= 0 && left[at] < right[at]
}

/** The values of each part of a draw, in order. */
function blocksOf(spec) {
  const { cls, dtype } = spec
  const single = (list) => list.map((one) => [one])
  const isIn = (row) => (_, at) => row === undefined || row[at] !== 0
  const masks = spec.mask ? rowsOf(read(spec.mask)) : []
  const hots = (n, row) =>
    range(n)
      .filter(isIn(row))
      .map((at) => range(n).map((index) => Number(index === at)))
      .toReversed()
  if (cls === 'Choice') {
    const lists = spec.choices.map((choice) => (choice.cls ? blocksOf(choice) : unknown('a value of JSON')))
    if (lists.some((blocks) => blocks.length !== 1)) unknown('choices of several values')
    const values = new Set(lists.flat(3))
    return [single([...values].sort((left, right) => left - right))]
  }
  if (cls === 'NonTensor' || isStack(spec) || cls === 'Composite') unknown('no tensor')
  const whole = safe(spec.shape)
  if (isIndex(spec)) return range(sizeOf(whole)).map((at) => single(range(spec.n).filter(isIn(masks[at]))))
  if (cls === 'OneHot') return range(sizeOf(whole.slice(0, -1))).map((at) => hots(spec.n, masks[at]))
  if (cls === 'MultiOneHot') {
    const parts = oneHots(spec).map(blocksOf)
    return parts[0].flatMap((_, row) => parts.map((blocks) => blocks[row]))
  }
  if (cls === 'MultiCategorical' && spec.mask) {
    const parts = categories(spec).map(blocksOf)
    return parts[0].flatMap((_, row) => parts.map((blocks) => blocks[row]))
  }
  if (cls === 'MultiCategorical') return nvecOf(spec).d.map((n) => single(range(n)))
  if (isFloat(dtype)) unknown('draws of a density')
  const [low, high] = [read(spec.low).d, read(spec.high).d]
  return low.map((least, at) =>
    high[at] - least > MET_MAX
      ? { length: MET_MAX + 1 }
      : single(range(high[at] - least + 1).map((one) => one + least)),
  )
}

/** Returns true if a golden value is in a spec. */
export function contains(spec, value) {
  const { cls } = spec
  if (cls === 'Composite') {
    return Object.entries(spec.k).every(([name, entry]) => {
      if (entry === null || (entry.cls === 'Composite' && Object.keys(entry.k).length === 0)) return true
      if (!value?.$td && !value?.k) unknown('no dictionary')
      return Object.hasOwn(value.k, name) ? contains(entry, value.k[name]) : refuse('a key that is missing')
    })
  }
  if (isStack(spec)) return membersOf(spec, value).every((part, at) => contains(spec.specs[at], part))
  if (cls === 'Choice') {
    if (!spec.choices[0].cls) unknown('choices of JSON values')
    return spec.choices.map((choice) => contains(choice, value)).includes(true)
  }
  if (cls === 'NonTensor') {
    if (!value || !('$nt' in value)) unknown('a value of JSON')
    return isSameShape(broadcast(safe(spec.shape), value.b ?? []), value.b ?? [])
  }
  if (!value?.$t) unknown('no tensor')
  return holds(spec, read(value))
}

/** The parts of a value along the stacked dimension. */
function membersOf(spec, value) {
  if (value.$njt)
    return spec.stack_dim === 0 ? value.$njt : unknown('a nested tensor along another dimension')
  if (value.$lazy !== undefined)
    return value.$lazy === spec.stack_dim ? value.items : unknown('another stack')
  if (value.$td) {
    const k = Object.entries(value.k).map(([name, entry]) => [name, membersOf(spec, entry)])
    return range(value.$td[spec.stack_dim]).map((at) => ({
      $td: value.$td.filter((_, dim) => dim !== spec.stack_dim),
      k: Object.fromEntries(k.map(([name, parts]) => [name, parts[at]])),
    }))
  }
  return value.$t ? unbound(read(value), spec.stack_dim).map((part) => written(part)) : unknown('no tensor')
}

/** Returns true if a tensor is in a spec of tensors. */
function holds(spec, x) {
  const { cls, mask } = spec
  if (kindOf(cls) === 'Bounded') return holdsBounded(spec, x)
  if (cls === 'MultiOneHot') {
    const parts = x.s.at(-1) === sizeOf1(spec.nvec) ? split(x, spec.nvec) : undefined
    return parts?.every((part, at) => holds(oneHots(spec)[at], part)) ?? false
  }
  if (mask && cls === 'MultiCategorical') {
    const parts = lastUnbound(x)
    return (
      parts.length === categories(spec).length && parts.every((part, at) => holds(categories(spec)[at], part))
    )
  }
  if (mask)
    return cls === 'OneHot'
      ? rowsOf(allowed(spec, x)).every((row) => row.includes(1))
      : looked(spec, x).every(Boolean)
  if (cls === 'MultiCategorical' && x.s.length === 0) return holds(spec, tensor(x.t, [1], x.d))
  if (!isSameShape(broadcast(safe(spec.shape), x.s), x.s) || x.t !== spec.dtype) return false
  if (kindOf(cls) === 'Unbounded') return true
  if (cls === 'OneHot') return rowsOf(x).every((row) => row.reduce((sum, one) => sum + one, 0) === 1)
  if (isIndex(spec)) return spec.n === -1 || x.d.every((one) => one >= 0 && one < spec.n)
  const nvec = expanded(nvecOf(spec), x.s)
  return x.d.every((one, at) => one >= 0 && one < nvec.d[at])
}

const sizeOf1 = (nvec) => nvec.reduce((sum, n) => sum + n, 0)

/** The shapes are compared from the left once the ends agree, and a spec without dimensions takes any. */
function holdsBounded(spec, x) {
  const shape = [...broadcast(safe(spec.shape), x.s)]
  const rank = spec.shape.length
  if (rank === 0) shape.length = 0
  else {
    const end = shape.slice(-rank)
    shape.splice(
      -rank,
      rank,
      ...spec.shape.map((length, dim) => (length >= 0 ? length : end[dim])).slice(0, end.length),
    )
  }
  if (shape.slice(0, x.s.length).some((length, dim) => length !== x.s[dim] && length !== -1)) return false
  if (x.t !== spec.dtype) return false
  const whole = broadcast(x.s, spec.low.s)
  const [value, low, high] = [x, read(spec.low), read(spec.high)].map((one) => expanded(one, whole).d)
  return value.every((one, at) => one >= low[at] && one <= high[at])
}

const nvecOf = (spec) => tensor('int64', safe(spec.shape), spec.nvec.flat(9))

/** The single one-hots of a spec of several. */
function oneHots(spec) {
  const masks = spec.mask ? split(read(spec.mask), spec.nvec) : []
  return spec.nvec.map((n, at) => ({
    cls: 'OneHot',
    shape: [...spec.shape.slice(0, -1), n],
    dtype: spec.dtype,
    n,
    ...(masks[at] ? { mask: written(masks[at]) } : {}),
  }))
}

/** The single categories of a masked spec of several. */
function categories(spec) {
  const rows = rowsOf(nvecOf(spec))
  if (rows.some((row) => !isDeepStrictEqual(row, rows[0]))) refuse('masks of choices that differ')
  return split(read(spec.mask), rows[0]).map((mask, at) => ({
    cls: 'Categorical',
    shape: spec.shape.slice(0, -1),
    dtype: spec.dtype,
    n: rows[0][at],
    mask: written(mask),
  }))
}

const lastUnbound = (x) => (x.s.length === 0 ? refuse('no dimension') : unbound(x, x.s.length - 1))

/** A one-hot where its mask allows it. */
function allowed(spec, x) {
  const shape = broadcast(spec.mask.s, x.s)
  if (isFloat(x.t)) refuse('no bits of a float')
  const [mask, value] = [expanded(read(spec.mask), shape), expanded(x, shape)]
  return tensor(
    'bool',
    shape,
    mask.d.map((bit, at) => bit & value.d[at] & 1),
  )
}

/** The mask at each index. */
function looked(spec, x) {
  const lead = broadcast(spec.mask.s.slice(0, -1), x.s)
  const n = spec.mask.s.at(-1)
  if (lead.length !== x.s.length) refuse('an index of fewer dimensions')
  const mask = expanded(read(spec.mask), [...lead, n])
  const strides = x.s.map((_, dim) => [sizeOf(x.s.slice(dim + 1)), sizeOf(lead.slice(dim + 1))])
  return x.d.map((one, at) => {
    const index = Math.trunc(one)
    // An index that is shorter than the mask looks at the first of it.
    const cell = strides.reduce((sum, [own, wide], dim) => sum + (Math.floor(at / own) % x.s[dim]) * wide, 0)
    return index >= 0 && index < n ? mask.d[cell * n + index] !== 0 : refuse('an index out of bounds')
  })
}

/** Projects a value into the domain; returns a function where TorchRL samples. */
function projected(spec, value) {
  if (spec.cls === 'Composite') {
    const inner = entriesOf(spec.k, (entry, name) => {
      if (entry === null) return value.k[name]
      return Object.hasOwn(value.k, name) ? projected(entry, value.k[name]) : refuse('a key that is missing')
    })
    return withTests({ ...value, k: { ...value.k, ...Object.fromEntries(inner) } })
  }
  if (spec.cls === 'StackedComposite') {
    const parts = membersOf(spec, value).map((part, at) => projected(spec.specs[at], part))
    return stackedValues(parts, spec.stack_dim)
  }
  if (contains(spec, value)) return value
  if (!value?.$t || isStack(spec) || ['Choice', 'NonTensor'].includes(spec.cls)) refuse('no projection')
  const got = brought(spec, read(value))
  return typeof got === 'function' ? got : written(got)
}

/** A dictionary in which some entries are tests. */
function withTests(dict) {
  const tests = Object.values(dict.k).some((entry) => typeof entry === 'function')
  return tests ? unknown('draws in a dictionary') : dict
}

function brought(spec, x) {
  const { cls, mask } = spec
  if (kindOf(cls) === 'Unbounded') {
    const rank = spec.shape.length
    return reshaped(cast(x, spec.dtype), [...(rank === 0 ? [] : x.s.slice(0, -rank)), ...spec.shape])
  }
  if (kindOf(cls) === 'Bounded') {
    const [low, high] = [spec.low, spec.high].map((bound) => expanded(read(bound), x.s))
    const dtype = promoted(x.t, spec.dtype)
    const clamped = x.d.map((one, at) => castNumber(clamp(one, low.d[at], high.d[at]), dtype))
    return tensor(dtype, x.s, clamped)
  }
  if (cls === 'MultiOneHot')
    return x.s.at(-1) === sizeOf1(spec.nvec)
      ? joinedTests(
          split(x, spec.nvec).map((part, at) => hot(oneHots(spec)[at], part)),
          spec,
        )
      : refuse('another length')
  if (cls === 'OneHot') return hot(spec, x)
  if (cls === 'MultiCategorical' && mask) {
    const parts = lastUnbound(x)
    return stackedTests(parts.map((part, at) => indexOf(categories(spec)[at], part)))
  }
  if (cls === 'MultiCategorical') return indices(spec, x)
  const got = indexOf(spec, x)
  return typeof got === 'function' ? drawnIndices(x, got) : got
}

/** NaN stays; a low above the high gives the high. */
const clamp = (value, low, high) => (Number.isNaN(value) ? value : Math.min(Math.max(value, low), high))

/** Rounded half to even, as PyTorch does. */
function roundedIndex(x) {
  if (x.t === 'bool') refuse('no rounding of bools')
  const even = (one) => (Math.abs(one % 1) === 0.5 ? 2 * Math.round(one / 2) : Math.round(one))
  return isFloat(x.t) ? tensor(x.t, x.s, x.d.map(even)) : x
}

function indexOf(spec, x) {
  const index = ['int32', 'int64'].includes(x.t) ? x : roundedIndex(x)
  if (!spec.mask)
    return tensor(
      index.t,
      index.s,
      index.d.map((one) => clamp(one, 0, spec.n - 1)),
    )
  if (index.t !== 'int64') refuse('an index of another dtype')
  const isIn = looked(spec, index)
  const masks = rowsOf(expanded(read(spec.mask), [...index.s, spec.mask.s.at(-1)]))
  if (masks.some((row, at) => !isIn[at] && !row.includes(1))) refuse('nothing to draw from')
  return (at, one) => (isIn[at] ? one === index.d[at] : masks[at][one] === 1)
}

/** Indices of the value's own shape and dtype, each of which passes a test. */
const drawnIndices =
  ({ t, s }, passes) =>
  (ok) =>
    ok?.$t === t &&
    isDeepStrictEqual(ok.s, s) &&
    ok.d.length === sizeOf(s) &&
    ok.d.every((one, at) => passes(at, one))

/** The tests of single categories side by side, over a value of all. */
const stackedTests = (tests) => (ok) => {
  if (ok?.$t !== 'int64' || ok.s.at(-1) !== tests.length || ok.d.length !== sizeOf(ok.s)) return false
  return ok.d.every((one, at) => tests[at % tests.length](Math.floor(at / tests.length), one))
}

/** Above or below the choices of each place. */
function indices(spec, x) {
  if (x.s.length === 0) {
    const inner = indices(spec, tensor(x.t, [1], x.d))
    return inner.s[0] === 1 ? tensor(inner.t, [], inner.d) : inner
  }
  const value = cast(
    tensor(
      x.t,
      x.s,
      roundedIndex(x).d.map((one) => Math.max(one, 0)),
    ),
    spec.dtype,
  )
  const nvec = nvecOf(spec)
  if (!isSameShape(broadcast(nvec.s, value.s), value.s)) refuse('a mask of another shape')
  const high = expanded(nvec, value.s)
  return tensor(
    value.t,
    value.s,
    value.d.map((one, at) => Math.min(one, high.d[at] - 1)),
  )
}

/** One choice for each row, drawn by its weights, or by the mask where the row has none. */
function hot(spec, x) {
  if (!spec.mask) {
    const isBad = (row) => row.some((one) => one < 0 || !Number.isFinite(one)) || !row.some((one) => one > 0)
    if (x.s.length < 1 || x.s.length > 2) refuse('draws by tensors of one or two dimensions')
    if (rowsOf(x).some(isBad)) refuse('weights of nothing')
    if (x.s.at(-1) > spec.n) refuse('a choice beyond the last')
    const weights = rowsOf(x)
    return drawnRows(spec.dtype, [...x.s.slice(0, -1), spec.n], (at, row) => weights[at][row.indexOf(1)] > 0)
  }
  const rows = rowsOf(allowed(spec, x))
  const shape = broadcast(spec.mask.s, x.s)
  if (!isSameShape(shape, x.s)) unknown('a value that is shorter than its mask')
  const [masks, own] = [rowsOf(expanded(read(spec.mask), shape)), rowsOf(x)]
  const isKept = (at, row) =>
    rows[at].includes(1) ? isDeepStrictEqual(row, own[at]) : masks[at][row.indexOf(1)] === 1
  return drawnRows(x.t, shape, isKept, (at) => rows[at].includes(1))
}

/** One-hots of a shape, each of which passes a test; `isFree` says which rows need be no one-hot. */
const drawnRows =
  (dtype, shape, passes, isFree = () => false) =>
  (ok) => {
    if (ok?.$t !== dtype || !isDeepStrictEqual(ok.s, shape) || ok.d.length !== sizeOf(shape)) return false
    const isTruth = (one) => (dtype === 'bool' ? typeof one === 'boolean' : typeof one === 'number')
    if (!ok.d.every(isTruth)) return false
    const isOneHot = (row) => row.every((one) => one === 0 || one === 1) && sizeOf1(row) === 1
    return rowsOf(read(ok)).every((row, at) => (isFree(at) || isOneHot(row)) && passes(at, row))
  }

/** The tests of single one-hots side by side, over a value of all. */
const joinedTests = (tests, spec) => (ok) => {
  if (!ok?.$t || ok.s.at(-1) !== sizeOf1(spec.nvec) || ok.d.length !== sizeOf(ok.s)) return false
  return split(tensor(ok.$t, ok.s, ok.d), spec.nvec).every(({ t, s, d }, at) => tests[at]({ $t: t, s, d }))
}

/** A value of Python as a tensor; `dtype` is that of the spec, or what PyTorch infers. */
function asTensor(value, dtype) {
  if (value?.$t) return read(value)
  if (value?.$np) return cast(read(value), dtype ?? value.$np)
  if (typeof value !== 'number' && typeof value !== 'boolean' && !Array.isArray(value)) refuse('no number')
  const shape = []
  for (let inner = value; Array.isArray(inner); [inner] = inner) shape.push(inner.length)
  const numbers = [value].flat(9)
  if (numbers.length !== sizeOf(shape) || numbers.some((one) => !['number', 'boolean'].includes(typeof one)))
    refuse('no numbers')
  const d = numbers.map((one) => castNumber(Number(one), dtype ?? 'float64'))
  if (dtype === 'uint8' && !Array.isArray(value) && value < 0) refuse('a number below 0')
  return tensor(dtype ?? 'float64', shape, d)
}

function encoded(spec, value, build) {
  if (isDict(spec)) return encodedFirst(spec)
  if (['NonTensor', 'Choice', 'Stacked'].includes(spec.cls)) unknown('no tensor')
  if (argument(build, Number.NaN, 'use_register')) refuse("TorchRL's register fails")
  if (spec.cls === 'OneHot') return written(oneHotOf(asTensor(value), spec.n, spec.dtype))
  if (spec.cls === 'MultiOneHot') {
    const parts = lastUnbound(asTensor(value)).slice(0, spec.nvec.length)
    const hots = parts.map((part, at) => oneHotOf(part, spec.nvec[at], spec.dtype))
    return written(reshaped(joined(hots), spec.shape))
  }
  if (value?.$t) return value
  const inner = Array.isArray(value) && value.length === 1 ? value[0] : value
  return written(reshaped(asTensor(inner, spec.dtype), spec.shape))
}

function oneHotOf(x, n, dtype) {
  const index = x.d.map(Math.trunc)
  if (index.some((one) => !(one >= 0 && one < n)) || x.d.some((one) => one >= n)) refuse('no such choice')
  return tensor(
    dtype,
    [...x.s, n],
    index.flatMap((one) => range(n).map((at) => Number(at === one))),
  )
}

/** TorchRL encodes what is there of a dictionary, as it is. */
function encodedFirst(spec) {
  if (spec.cls === 'StackedComposite' || spec.shape.includes(-1)) refuse('no encoding')
  const [name, entry] =
    Object.entries(spec.k).find(([, one]) => one?.dtype !== undefined && one.dtype !== null) ??
    unknown('no entry')
  return { $td: spec.shape, k: { [name]: zero(entry, []) } }
}

/** TorchRL looks at nothing: numbers are what they are, and of a one-hot the first largest is taken. */
function decoded(spec, value, build) {
  if (!value?.$t) unknown('no tensor')
  const x = read(value)
  if (['NonTensor', 'Choice', 'Stacked'].includes(spec.cls)) unknown('no tensor')
  if (argument(build, Number.NaN, 'use_register')) refuse("TorchRL's register fails")
  const largest = (part) =>
    rowsOf(part)
      .map((row) => row.map((one) => castNumber(one, 'int64')))
      .map((row) => row.indexOf(Math.max(...row)))
  if (spec.cls === 'OneHot' && x.s.length === 0) return written(tensor('int64', [], [0]), '$np')
  if (spec.cls === 'OneHot') return written(tensor('int64', x.s.slice(0, -1), largest(x)), '$np')
  if (spec.cls === 'MultiOneHot') {
    if (x.s.at(-1) !== sizeOf1(spec.nvec)) refuse('another length')
    const parts = split(x, spec.nvec).map((part) =>
      tensor('int64', [...part.s.slice(0, -1), 1], largest(part)),
    )
    return written(joined(parts), '$np')
  }
  if (x.t === 'bfloat16') refuse('NumPy has no bfloat16')
  return written(x, '$np')
}

/** Every value, in order. */
function enumerated(spec, useMask, build) {
  const { cls } = spec
  if (isStack(spec)) return stackedValuesOf(spec, useMask, build)
  if (isIndex(spec)) return listed(spec, useMask)
  if (useMask && ['OneHot', 'MultiCategorical'].includes(cls)) refuse('no masks')
  if (cls === 'OneHot') {
    if (spec.shape.includes(-1)) unknown('a length that is not known')
    const eye = range(spec.n).flatMap((at) =>
      range(sizeOf(spec.shape)).map((index) => Number(index % spec.n === at)),
    )
    return written(tensor(spec.dtype, [spec.n, ...spec.shape], eye))
  }
  if (cls === 'MultiCategorical' || cls === 'MultiOneHot') return products(spec, useMask, build)
  if (cls !== 'Composite') refuse('no list of all')
  if (Object.values(spec.k).includes(null)) refuse('an entry that may be anything')
  if (spec.shape.length > 0) return enumeratedBatch(spec, useMask, build)
  const lists = entriesOf(spec.k, (entry, name) => enumerated(entry, useMask, build.k?.[name] ?? {}))
  if (lists.length === 0) return { $td: [], k: {} }
  const lengths = lists.map(([, list]) => (list.$td ?? list.s)[0])
  const count = sizeOf(lengths)
  const k = lists.map(([name, list], at) => {
    const inner = sizeOf(lengths.slice(at + 1))
    return [
      name,
      rowsAt(
        list,
        range(count).map((row) => Math.floor(row / inner) % lengths[at]),
      ),
    ]
  })
  return { $td: [count], k: Object.fromEntries(k) }
}

/** The rows of a golden value at these positions. */
function rowsAt(value, rows) {
  if (value.$td) {
    const k = entriesOf(value.k, (entry) => rowsAt(entry, rows))
    return { $td: [rows.length, ...value.$td.slice(1)], k: Object.fromEntries(k) }
  }
  const { $t, s, d } = value.$t ? value : unknown('a JSON value')
  const width = d.length / s[0]
  return {
    $t,
    s: [rows.length, ...s.slice(1)],
    d: rows.flatMap((row) => d.slice(row * width, (row + 1) * width)),
  }
}

/** The values of one element, each for the whole batch. */
function enumeratedBatch(spec, useMask, build) {
  if (spec.names && spec.names.length < spec.shape.length) refuse('no such name')
  const first = spec.shape.reduce((inner) => item(inner, 0), spec)
  const { $td, k } = enumerated({ ...first, names: undefined }, useMask, build)
  if (Object.keys(k).length === 0) return { $td: spec.shape, k }
  const [count] = $td
  const wide = entriesOf(k, ({ $t, s, d }) => {
    if (!$t) unknown('dictionaries in a dictionary')
    const rest = s.slice(1)
    const thin = tensor($t, [count, ...spec.shape.map(() => 1), ...rest], d)
    const { s: shape, d: elements } = expanded(thin, [count, ...safe(spec.shape), ...rest])
    return { $t, s: shape, d: elements }
  })
  return { $td: [count, ...safe(spec.shape)], k: Object.fromEntries(wide) }
}

function stackedValuesOf(spec, useMask, build) {
  const parts = spec.specs.map((member, at) => enumerated(member, useMask, build.specs?.[at] ?? {}))
  const isEven = parts.every((part) => isAlike(parts[0], part))
  if (isEven) return stackedValues(parts, spec.stack_dim + 1)
  if (spec.cls === 'Stacked') refuse('lists of different lengths')
  const b = inserted(
    parts[0].$td.map((length, dim) => (parts.every((part) => part.$td[dim] === length) ? length : -1)),
    spec.stack_dim + 1,
    parts.length,
  )
  return { $lazy: spec.stack_dim + 1, b, items: parts }
}

function listed(spec, useMask) {
  const all = range(countedN(spec))
  if (useMask && spec.mask && !isSameShape(spec.mask.s, [spec.n])) refuse('a mask of more dimensions')
  const kept = useMask && spec.mask ? all.filter((at) => spec.mask.d[at]) : all
  const dtype = spec.dtype === 'bool' ? 'uint8' : spec.dtype
  const shape = safe(spec.shape)
  return written(
    tensor(
      dtype,
      [kept.length, ...shape],
      kept.flatMap((one) => filled(dtype, shape, one).d),
    ),
  )
}

function products(spec, useMask, build) {
  if (useMask || spec.mask) refuse('no masks')
  const nested = argument(build, 0, 'nvec')
  const lists = Array.isArray(nested[0]) ? nested : [nested]
  if (lists.some((list) => !isDeepStrictEqual(list, lists[0]))) refuse('choices that differ')
  const nvec = lists[0].flat(9)
  const count = sizeOf(nvec)
  const lead = safe(spec.shape.slice(0, -1))
  const rows = range(count).map((row) =>
    nvec.map((n, at) => Math.floor(row / sizeOf(nvec.slice(at + 1))) % n),
  )
  const wide = rows.flatMap((row) => range(sizeOf(lead)).flatMap(() => row))
  const all = tensor(spec.dtype, [count, ...lead, nvec.length], wide)
  if (spec.cls === 'MultiCategorical') return written(all)
  return written(
    joined(unbound(all, all.s.length - 1).map((part, at) => oneHotOf(part, nvec[at], spec.dtype))),
  )
}

/** TorchRL gathers along the last dimension. */
function picked(spec, { idx, tensor: from }) {
  const [index, values] = [read(idx), read(from)]
  if (spec.cls === 'OneHot' && values.s.length === 1 && index.s.length === 1 && !spec.mask) {
    const places = range(index.d.length).filter((at) => index.d[at] !== 0)
    return written(
      tensor(
        values.t,
        [places.length],
        places.map((at) => values.d[at]),
      ),
    )
  }
  if (isIndex(spec) && spec.shape.length === 0) {
    if (index.s.length > 0) refuse('an expansion to fewer dimensions')
    return unknown('one index')
  }
  if (
    ['Bounded', 'Unbounded', 'NonTensor', 'Choice', 'Composite'].includes(kindOf(spec.cls)) ||
    isStack(spec)
  )
    refuse('no indexing by values')
  return unknown('an index of values')
}

/** The first level alone, of each stack. */
function hasNoExclusive(spec) {
  if (spec?.cls === 'StackedComposite') {
    const keys = commonKeys(spec)
    return spec.specs.every(
      (member) => hasNoExclusive(member) && isDeepStrictEqual(keyed(member), keyed({ k: keys })),
    )
  }
  return spec?.cls === 'Composite' ? Object.values(spec.k).every(hasNoExclusive) : true
}

const keyed = (spec) => Object.keys(entriesIn(spec)).sort()
const entriesIn = (spec) => spec.k ?? commonKeys(spec)
const hasStack = (spec) => spec !== null && (isStack(spec) || Object.values(spec.k ?? {}).some(hasStack))

/** Keys of all levels, those of an entry before its own. */
function keysOf(spec, isNested) {
  return Object.entries(entriesIn(spec)).flatMap(([name, entry]) => {
    if (entry === null || !isDict(entry)) return [name]
    const inner = keysOf(entry, isNested).map((key) => [name, key].flat())
    return isNested ? [...inner, name] : inner
  })
}
const commonKeys = (spec) => {
  const [first, ...rest] = spec.specs.map((member) => member.k ?? commonKeys(member))
  return Object.fromEntries(Object.entries(first).filter(([name]) => rest.every((other) => name in other)))
}

function withoutEntry(spec, [name, ...rest]) {
  if (spec.cls !== 'Composite') unknown('no plain dictionary')
  if (!Object.hasOwn(spec.k, name)) refuse('no such key')
  const { [name]: entry, ...others } = spec.k
  return { ...spec, k: rest.length === 0 ? others : { ...others, [name]: withoutEntry(entry, rest) } }
}
