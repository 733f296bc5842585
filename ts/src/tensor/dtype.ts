/** Element types and their typed arrays. */

import { describeValue, FulmarError, nearestName } from '../core/index.js'

/** Typed array for each dtype: half floats as their bits, bools as bytes 0 and 1. */
export interface TypedArrays {
  f64: Float64Array
  f32: Float32Array
  f16: Uint16Array
  bf16: Uint16Array
  i64: BigInt64Array
  i32: Int32Array
  i16: Int16Array
  i8: Int8Array
  u8: Uint8Array
  u32: Uint32Array
  bool: Uint8Array
}

/** Type of a tensor element, by its name in Rust and in the docs. */
export type Dtype = keyof TypedArrays

/** A typed array that can carry tensor elements. */
export type TensorData = TypedArrays[Dtype]

/** Type of an element in JavaScript: that of `Tensor.item`. */
export type ElementOf<D extends Dtype> = D extends 'i64' ? bigint : D extends 'bool' ? boolean : number

/** Dtype of a sum: integers and bools add up to `i64`. */
export type SumOf<D extends Dtype> = D extends 'f64' | 'f32' | 'f16' | 'bf16' ? D : 'i64'

/** Default dtype of a typed array; an array of 16 bits has none. */
export type DtypeOf<A> = A extends Float64Array
  ? 'f64'
  : A extends Float32Array
    ? 'f32'
    : A extends BigInt64Array
      ? 'i64'
      : A extends Int32Array
        ? 'i32'
        : A extends Int16Array
          ? 'i16'
          : A extends Int8Array
            ? 'i8'
            : A extends Uint8Array
              ? 'u8'
              : A extends Uint32Array
                ? 'u32'
                : Dtype

interface Carrier<A> {
  new (length: number): A
  new (buffer: ArrayBufferLike, byteOffset?: number, length?: number): A
  readonly BYTES_PER_ELEMENT: number
}

const CARRIERS: { readonly [D in Dtype]: Carrier<TypedArrays[D]> } = {
  f64: Float64Array,
  f32: Float32Array,
  f16: Uint16Array,
  bf16: Uint16Array,
  i64: BigInt64Array,
  i32: Int32Array,
  i16: Int16Array,
  i8: Int8Array,
  u8: Uint8Array,
  u32: Uint32Array,
  bool: Uint8Array,
}

/**
 * Returns `dtype` if it is known.
 * @throws {FulmarError} `UNKNOWN_NAME`, with a suggestion if there is one.
 */
export function checkedDtype(dtype: Dtype): Dtype {
  if (Object.hasOwn(CARRIERS, dtype)) return dtype
  const known = Object.keys(CARRIERS)
  const meant = nearestName(String(dtype).replace(/^torch\./, ''), known)
  const hint = meant ? `; did you mean '${meant}'?` : ''
  throw new FulmarError(
    'UNKNOWN_NAME',
    `dtype must be one of ${known.join(', ')}: got ${describeValue(dtype)}${hint}`,
  )
}

/** Returns the dtypes that `data` can carry, the default first; 16 bits may be either of two floats. */
export function dtypesOf(data: TensorData): readonly Dtype[] {
  if (data instanceof Uint16Array) return ['f16', 'bf16']
  if (data instanceof Uint8Array) return ['u8', 'bool']
  const own = Object.entries(CARRIERS).find(([, carrier]) => data instanceof carrier)
  return own ? [own[0] as Dtype] : []
}

/** Returns the default dtype of `data`. @throws {FulmarError} `INCOMPATIBLE` for an array of 16 bits, which has none. */
export function onlyDtypeOf(data: TensorData): Dtype {
  const [dtype] = dtypesOf(data)
  if (dtype && !(data instanceof Uint16Array)) return dtype
  const detail = `dtype must be one of ${dtypesOf(data).join(', ') || 'the known ones'} for a ${data.constructor.name}: it is undefined`
  throw new FulmarError('INCOMPATIBLE', detail)
}

/** Returns the bytes of `data`, in place. */
export function bytesOf(name: string, data: TensorData): Uint8Array {
  try {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength)
  } catch (cause) {
    throw new FulmarError('MALFORMED', `${name} must be attached: got a detached ArrayBuffer`, { cause })
  }
}

/** Returns `bytes` as elements of `dtype`, in place. */
export function elementsOf<D extends Dtype>(dtype: D, bytes: Uint8Array): TypedArrays[D] {
  const carrier: Carrier<TypedArrays[D]> = CARRIERS[dtype]
  return new carrier(bytes.buffer, bytes.byteOffset, bytes.byteLength / carrier.BYTES_PER_ELEMENT)
}

/** Converts numbers to a typed array of `dtype`; rejects values that an integer type cannot represent. */
export function carry(dtype: Dtype, values: readonly number[]): TensorData {
  if (dtype === 'f16' || dtype === 'bf16') {
    throw new FulmarError(
      'INCOMPATIBLE',
      `dtype must have a number type in JavaScript: got ${dtype}; pass its bits as a Uint16Array`,
    )
  }
  if (dtype === 'f64') return Float64Array.from(values)
  if (dtype === 'f32') return Float32Array.from(values)
  const [min, max] = INTEGER_RANGES[dtype]
  const misfit = values.find((value) => !Number.isInteger(value) || value < min || value > max)
  if (misfit !== undefined) {
    throw new FulmarError(
      'OUT_OF_RANGE',
      `data must be integers from ${min} to ${max} for ${dtype}: got ${misfit}`,
    )
  }
  if (dtype === 'i64') return BigInt64Array.from(values, BigInt)
  return fill(new CARRIERS[dtype](values.length), values)
}

const INTEGER_RANGES = {
  i64: [Number.MIN_SAFE_INTEGER, Number.MAX_SAFE_INTEGER],
  i32: [-(2 ** 31), 2 ** 31 - 1],
  i16: [-(2 ** 15), 2 ** 15 - 1],
  i8: [-128, 127],
  u8: [0, 255],
  u32: [0, 2 ** 32 - 1],
  bool: [0, 1],
} as const

function fill<A extends Int32Array | Int16Array | Int8Array | Uint8Array | Uint32Array>(
  array: A,
  values: readonly number[],
): A {
  array.set(values)
  return array
}
