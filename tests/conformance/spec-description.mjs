/** Builds Fulmar's spec from the description in a row. */

import { isDeepStrictEqual } from 'node:util'
import { TensorSpec } from 'fulmar/spec'
import { DTYPES } from './dtypes.mjs'
import { kindOf } from './spec-shapes.mjs'

const TABLES = {
  Bounded: ['low', 'high'],
  Categorical: ['n', 'mask'],
  OneHot: ['n', 'mask'],
  MultiCategorical: ['nvec', 'mask'],
  MultiOneHot: ['nvec', 'mask'],
}

/** The spec that the original describes. */
export function described(spec) {
  const strange = strangeIn(spec)
  if (strange !== undefined) throw new Error(`no description: ${strange}`)
  return TensorSpec.fromJson(description(spec))
}

const MEMBERS_OF = {
  Unbounded: ['dtype', 'domain', 'low', 'high'],
  Bounded: ['dtype', 'domain', 'low', 'high'],
  Categorical: ['dtype', 'domain', 'n', 'mask'],
  OneHot: ['dtype', 'domain', 'n', 'mask'],
  MultiOneHot: ['dtype', 'domain', 'nvec', 'mask'],
  MultiCategorical: ['dtype', 'domain', 'nvec', 'mask'],
  Binary: ['dtype', 'domain', 'n'],
  NonTensor: ['dtype', 'domain', 'example_data', 'batched', 'feature_dims'],
  Choice: ['choices'],
  Composite: ['k', 'names'],
  Stacked: ['stack_dim', 'specs'],
  StackedComposite: ['stack_dim', 'specs'],
}
/** The least and the greatest number of a dtype, as doubles. */
const RANGES = {
  float64: [-Number.MAX_VALUE, Number.MAX_VALUE],
  float32: [-3.4028234663852886e38, 3.4028234663852886e38],
  float16: [-65504, 65504],
  bfloat16: [-3.3895313892515355e38, 3.3895313892515355e38],
  int64: [-(2 ** 63), 2 ** 63],
  int32: [-(2 ** 31), 2 ** 31 - 1],
  int16: [-(2 ** 15), 2 ** 15 - 1],
  int8: [-128, 127],
  uint8: [0, 255],
  bool: [0, 1],
}

/** Returns the first contradiction in a description. */
function strangeIn(spec) {
  if (spec === null) return undefined
  const { cls, shape, dtype, domain, low, high, mask } = spec
  const kind = kindOf(cls)
  const known = MEMBERS_OF[kind]
  if (known === undefined) return `the class ${cls}`
  const other = Object.keys(spec).find((name) => !['cls', 'shape', ...known].includes(name))
  if (other !== undefined) return `the member ${other}`
  const inner = [
    ...Object.values(spec.k ?? {}),
    ...(spec.specs ?? []),
    ...(spec.choices ?? []).filter((one) => one.cls),
  ]
  const below = inner.map(strangeIn).find((one) => one !== undefined)
  if (below !== undefined) return below
  if (['Choice', 'Composite'].includes(kind)) return undefined
  if (kind.startsWith('Stacked')) {
    const made = TensorSpec.fromJson(description(spec)).shape
    return isDeepStrictEqual(made, shape) ? undefined : `the shape ${shape}`
  }
  if (kind === 'NonTensor') {
    const isPlain = dtype === null && domain === null && typeof spec.batched === 'boolean'
    return isPlain ? undefined : 'of a value that is no tensor'
  }
  if (DTYPES[dtype] === undefined) return `the dtype ${dtype}`
  if (domain !== (cls.endsWith('Continuous') ? 'continuous' : 'discrete')) return `the domain ${domain}`
  if (kind === 'Binary' && spec.n !== 2) return `n of ${spec.n}`
  if (mask && mask.$t !== 'bool') return `a mask of ${mask.$t}`
  const sizes = shape.map((length) => (length === -1 ? 1 : length))
  const count = sizes.reduce((product, length) => product * length, 1)
  for (const [at, bound] of [low, high].entries()) {
    if (bound === undefined) continue
    if (bound.$t !== dtype || !isDeepStrictEqual(bound.s, sizes) || bound.d.length !== count)
      return `a bound of ${bound.$t} ${bound.s}`
    if (kind === 'Unbounded' && bound.d.some((one) => Number(one) !== RANGES[dtype][at]))
      return `the bound ${bound.d}`
  }
  return undefined
}

function description(spec) {
  if (spec === null) return null
  const kind = kindOf(spec.cls)
  const base = { type: kind, shape: spec.shape }
  if (kind === 'Composite') {
    const entries = Object.entries(spec.k).map(([name, entry]) => [name, description(entry)])
    return { ...base, ...defined({ names: spec.names ?? undefined }), entries: Object.fromEntries(entries) }
  }
  if (kind.startsWith('Stacked'))
    return { type: 'Stacked', dim: spec.stack_dim, specs: spec.specs.map(description) }
  if (kind === 'NonTensor') return { ...base, example: spec.example_data, batched: spec.batched }
  if (kind === 'Choice') {
    const { choices } = spec
    if (choices[0].cls) return { type: kind, choices: choices.map(description) }
    return { ...base, values: choices.map((choice) => innermost(choice, choices[0].b ?? [])) }
  }
  const tables = (TABLES[kind] ?? []).map((name) => [
    name,
    spec[name]?.$t ? nestedRaw(spec[name]) : spec[name],
  ])
  return { ...base, dtype: DTYPES[spec.dtype], ...defined(Object.fromEntries(tables)) }
}

const nestedRaw = ({ s, d }) => nested(s, d)
export const defined = (fields) =>
  Object.fromEntries(Object.entries(fields).filter(([, value]) => value !== undefined && value !== null))

function innermost(choice, batch) {
  return batch.reduce((value) => (Array.isArray(value) ? value[0] : value), choice.$nt ?? choice.$nts)
}

/** Elements in lists of lists. */
export function nested(shape, elements) {
  let values = [...elements]
  for (const length of shape.slice(1).toReversed()) {
    const count = length === 0 ? 0 : values.length / length
    values = Array.from({ length: count }, (_, at) => values.slice(at * length, (at + 1) * length))
  }
  return shape.length === 0 ? values[0] : values
}

/** A truth, plain or as a tensor of one bool. */
export function truthOf(ok) {
  if (typeof ok === 'boolean') return ok
  const isTensor = isDeepStrictEqual({ ...ok, d: 0 }, { $t: 'bool', s: [], d: 0 }) && ok.d.length === 1
  return isTensor && typeof ok.d[0] === 'boolean' ? ok.d[0] : undefined
}

/** A value with zeros alike, and without members that hold nothing, as names of which none is given. */
export function plain(value) {
  if (Array.isArray(value)) return value.map(plain)
  if (value === null || typeof value !== 'object') return value === 0 ? 0 : value
  const isEmpty = (name, one) =>
    one === undefined || one === null || (name === 'names' && one.every((it) => it === null))
  const entries = Object.entries(value).filter(([name, one]) => !isEmpty(name, one))
  return Object.fromEntries(entries.map(([name, one]) => [name, plain(one)]))
}
