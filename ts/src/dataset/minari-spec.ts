/** Specs of the spaces that Minari's metadata describes. */

import { describeValue, FulmarError } from '../core/index.js'
import {
  type AnySpec,
  Binary,
  BoundedContinuous,
  BoundedDiscrete,
  type BoundedOptions,
  Categorical,
  Composite,
  type FloatDtype,
  MultiCategorical,
  NonTensor,
  UnboundedContinuous,
  UnboundedDiscrete,
  type WholeDtype,
} from '../spec/index.js'
import type { Dtype, Json } from '../tensor/index.js'

/** Most spaces in one another, as Gymnasium nests them. */
const DEPTH_MAX = 16

/** Dtypes by their names in NumPy. */
const DTYPES: Readonly<Record<string, Dtype>> = {
  float64: 'f64',
  float32: 'f32',
  float16: 'f16',
  int64: 'i64',
  int32: 'i32',
  int16: 'i16',
  int8: 'i8',
  uint8: 'u8',
  uint32: 'u32',
  bool: 'bool',
}

/** Specs by the type of a space of Gymnasium. */
const SPECS: Readonly<Record<string, (space: SpaceFields, place: string, depth: number) => AnySpec>> = {
  Box: boxSpec,
  Discrete: discreteSpec,
  MultiDiscrete: ({ nvec }) => new MultiCategorical(nvec as number[]),
  MultiBinary: ({ n = 1 }) => new Binary(undefined, { shape: [n].flat() as number[] }),
  Text: () => new NonTensor({ shape: [], example: '' }),
  Dict: ({ subspaces }, place, depth) =>
    new Composite(
      Object.fromEntries(
        Object.entries(Object(subspaces)).map(([name, one]) => [
          name,
          specOf(one as Json, `${place}.${name}`, depth),
        ]),
      ),
    ),
  Tuple: ({ subspaces }, place, depth) =>
    new Composite(
      Object.fromEntries(
        listOf(subspaces).map((one, at) => [String(at), specOf(one, `${place}.${at}`, depth)]),
      ),
    ),
}

interface SpaceFields {
  readonly type?: Json
  readonly dtype?: Json
  readonly shape?: Json
  readonly low?: Json
  readonly high?: Json
  readonly n?: Json
  readonly start?: Json
  readonly nvec?: Json
  readonly subspaces?: Json
}

/**
 * Returns the spec of a space in Minari's JSON: `Box` is bounded, or unbounded where all bounds are infinite; `Discrete` categorical, or
 * bounded where it does not start at 0; `Dict` and `Tuple` composite; `null`, which any value has, stays.
 * @throws {FulmarError} `INCOMPATIBLE` for another space; `LIMIT_EXCEEDED` for more than 16 spaces in one another; those of the specs.
 */
export function specOf(space: Json, place: string, depth = 0): AnySpec | null {
  if (space === null) return null
  if (depth === DEPTH_MAX)
    throw new FulmarError('LIMIT_EXCEEDED', `${place} must be at most ${DEPTH_MAX} spaces deep: it is deeper`)
  const fields = Object(space) as SpaceFields
  const make = typeof fields.type === 'string' && Object.hasOwn(SPECS, fields.type) && SPECS[fields.type]
  if (make) return make(fields, place, depth + 1)
  const detail = `${place}.type must be one of ${Object.keys(SPECS).join(', ')}: got ${describeValue(fields.type)}`
  throw new FulmarError('INCOMPATIBLE', detail)
}

function boxSpec({ low = null, high = null, shape, dtype }: SpaceFields): AnySpec {
  const options = { shape: listOf(shape) as number[], dtype: dtypeOf(dtype, 'f32') }
  const isFloat = options.dtype.startsWith('f')
  const isFree =
    leaves(low).every((one) => one === '-Infinity') && leaves(high).every((one) => one === 'Infinity')
  if (isFree)
    return isFloat ? new UnboundedContinuous(options as Floats) : new UnboundedDiscrete(options as Wholes)
  const bounds = [numbers(low), numbers(high)] as const
  return isFloat
    ? new BoundedContinuous(...bounds, options as Floats)
    : new BoundedDiscrete(...bounds, options as Wholes)
}

type Floats = BoundedOptions<FloatDtype>
type Wholes = BoundedOptions<WholeDtype>

function discreteSpec({ n, start = 0, shape = [], dtype }: SpaceFields): AnySpec {
  const options = { shape: listOf(shape) as number[], dtype: dtypeOf(dtype, 'i64') }
  if (start === 0) return new Categorical(n as number, options)
  const most = (start as number) + (n as number) - 1
  return new BoundedDiscrete(start as number, most, options as Wholes)
}

function dtypeOf(name: Json | undefined, missing: Dtype): Dtype {
  return (typeof name === 'string' && DTYPES[name]) || missing
}

const listOf = (value: Json | undefined): readonly Json[] => (Array.isArray(value) ? value : [])

const leaves = (value: Json): readonly Json[] => [value].flat(Number.POSITIVE_INFINITY as 1) as Json[]

/** Numbers, nested as they are; infinities are texts in JSON. */
function numbers(value: Json): number | number[] {
  return (Array.isArray(value) ? value.map(numbers) : Number(value)) as number | number[]
}
