/** Tokens of robot actions: a bin for each number of an action. */

import { describeValue, FulmarError } from '../core/index.js'
import { Tensor } from '../tensor/index.js'

/**
 * Makes tokens of actions and actions of tokens. Extend it for a tokenizer of your own.
 *
 * @example
 * ```ts
 * import { ActionTokenizerBase, UniformActionTokenizer } from 'fulmar/dataset'
 * import assert from 'node:assert/strict'
 *
 * const tokenizer = new UniformActionTokenizer(256, { low: -1, high: 1 })
 * assert.ok(tokenizer instanceof ActionTokenizerBase)
 * assert.equal(tokenizer.vocabSize, 256)
 * ```
 */
export abstract class ActionTokenizerBase {
  /** Number of tokens; a token is at least 0 and less. */
  abstract get vocabSize(): number

  /** The tokens of actions, `i64` of the same shape. @throws {FulmarError} As the tokenizer documents. */
  abstract encode(actions: Tensor): Tensor<'i64'>

  /** The actions of tokens, `f32` of the same shape. @throws {FulmarError} As the tokenizer documents. */
  abstract decode(tokens: Tensor): Tensor<'f32'>
}

/** @internal Rounds a result as the dtype of the actions keeps it. */
export type Rounding = (value: number) => number

/** @internal Maps each action to a token; `at` is its place in the last dimension. */
export function mapActions(
  actions: Tensor,
  width: number | undefined,
  toToken: (action: number, at: number, round: Rounding) => number,
): Tensor<'i64'> {
  if (!(actions instanceof Tensor) || (actions.dtype !== 'f32' && actions.dtype !== 'f64')) {
    const got = actions instanceof Tensor ? actions.dtype : describeValue(actions)
    throw new FulmarError('INCOMPATIBLE', `actions must be a tensor of f32 or f64: got ${got}`)
  }
  const lengths = checkWidth('actions', actions, width)
  const round: Rounding = actions.dtype === 'f32' ? Math.fround : (value) => value
  const tokens = new BigInt64Array(actions.numElements)
  const numbers = actions.data as Float32Array | Float64Array
  numbers.forEach((action, index) => {
    if (Number.isNaN(action))
      throw new FulmarError('NON_FINITE', `actions must be numbers: got NaN at element ${index}`)
    tokens[index] = BigInt(toToken(action, index % lengths, round))
  })
  return Tensor.from(tokens, { shape: actions.shape })
}

/** @internal Maps each token to an action. @throws {FulmarError} `OUT_OF_RANGE` for a token outside the vocabulary. */
export function mapTokens(
  tokens: Tensor,
  { vocabSize, width }: { readonly vocabSize: number; readonly width: number | undefined },
  toAction: (token: number, at: number) => number,
): Tensor<'f32'> {
  const isWhole = tokens instanceof Tensor && /^[iu]\d+$/.test(tokens.dtype)
  if (!isWhole) {
    const got = tokens instanceof Tensor ? tokens.dtype : describeValue(tokens)
    throw new FulmarError('INCOMPATIBLE', `tokens must be a tensor of integers: got ${got}`)
  }
  const lengths = checkWidth('tokens', tokens, width)
  const actions = Float32Array.from(Array.from(tokens.data, Number), (token, index) => {
    if (token >= 0 && token < vocabSize) return toAction(token, index % lengths)
    const rule = `tokens must be from 0 to ${vocabSize - 1}`
    throw new FulmarError('OUT_OF_RANGE', `${rule}: got ${token} at element ${index}`)
  })
  return Tensor.from(actions, { shape: tokens.shape })
}

/** Returns the length of the last dimension, which must be `width` if there is one. */
function checkWidth(name: string, { shape }: Tensor, width: number | undefined): number {
  if (width === undefined || shape.at(-1) === width) return width ?? 1
  const got = `[${shape.join(', ')}]`
  throw new FulmarError('SHAPE_MISMATCH', `${name} must end in a dimension of ${width}: got ${got}`)
}

/** @internal The numbers of an option: one number, or one for each dimension of an action. */
export function numbersOfOption(name: string, value: unknown): readonly number[] {
  const numbers: readonly unknown[] =
    Array.isArray(value) || ArrayBuffer.isView(value) ? Array.from(value as number[]) : [value]
  if (numbers.length > 0 && numbers.every((one) => typeof one === 'number' && Number.isFinite(one)))
    return numbers as number[]
  const got = numbers.length === 1 ? describeValue(numbers[0]) : describeValue(value)
  throw new FulmarError('MALFORMED', `${name} must be a finite number or a list of them: got ${got}`)
}

/** @internal @throws {FulmarError} `OUT_OF_RANGE`. */
export function checkCountOf(name: string, value: unknown, least: number): void {
  if (typeof value === 'number' && Number.isInteger(value) && value >= least && value <= 2 ** 31 - 1) return
  const got = describeValue(value)
  throw new FulmarError(
    'OUT_OF_RANGE',
    `${name} must be a whole number from ${least} to 2^31 - 1: got ${got}`,
  )
}
