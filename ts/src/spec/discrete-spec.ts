/** Methods of discrete specs. */

import { checkKnownKeys } from '../core/index.js'
import { raw } from '../native/index.js'
import type { Dtype, Tensor } from '../tensor/index.js'
import { tensorAround, withRawTensor } from '../tensor/tensor.js'
import { specText, tableText, textOf } from './spec-json.js'
import { specAround, TensorSpec, tensorOr, withRawSpec } from './tensor-spec.js'
import type { SpecShape, SpecTable } from './types.js'

/** Options of specs of choices. */
export interface DiscreteOptions<D extends Dtype = Dtype, S extends SpecShape = SpecShape> {
  /** The length of each dimension, -1 for any. @default that of one choice */
  readonly shape?: S
  /** The element type. @default 'i64' for indices, 'bool' for blocks */
  readonly dtype?: D
  /**
   * True for allowed values: bools that broadcast to the shape, with a last dimension for the values of a cell.
   * @default all
   */
  readonly mask?: SpecTable<boolean>
}

/**
 * A spec whose values are choices: `Categorical`, `OneHot`, `MultiCategorical`, `MultiOneHot` or `Binary`.
 *
 * @example
 * ```ts
 * import { Categorical, type DiscreteSpec, OneHot } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const counts = (spec: DiscreteSpec) => Array.from(spec.nvec.data, Number)
 * assert.deepEqual([counts(new Categorical(4)), counts(new OneHot(3))], [[4], [3]])
 * ```
 */
export class DiscreteSpec<D extends Dtype = Dtype, P = unknown> extends TensorSpec<Tensor<D>, P> {
  /**
   * Number of values of each choice of a cell, 64-bit integers broadcast to the shape.
   */
  get nvec(): Tensor<'i64'> {
    return withRawSpec(this, (spec) => tensorOr(spec.nvec())) as Tensor<'i64'>
  }

  /** The mask of allowed values, broadcast to the shape; `undefined` if all are allowed. */
  get mask(): Tensor<'bool'> | undefined {
    return withRawSpec(this, (spec) => tensorOr(spec.mask())) as Tensor<'bool'> | undefined
  }

  /**
   * Sets which values are allowed, true those that are; without a mask all are. Returns this spec. A mask that allows nothing somewhere is
   * refused, as nothing could be drawn there.
   * @throws {FulmarError} `SHAPE_MISMATCH` if `mask` cannot be broadcast; `EMPTY` if it allows nothing somewhere;
   *   `INCOMPATIBLE` if this is `Binary`. After an error nothing has changed.
   */
  updateMask(mask: Tensor | undefined): this {
    withRawSpec(this, (spec) =>
      mask === undefined ? spec.clearMask() : withRawTensor(mask, (flags) => spec.setMask(flags)),
    )
    return this
  }

  /** The one-hot blocks of `value`, indices of this spec. @throws {FulmarError} As {@link TensorSpec.check}. */
  toOneHot(value: Tensor): Tensor<'bool'> {
    const blocks = () =>
      withRawSpec(this, (spec) => withRawTensor(value, (indices) => spec.toOneHot(indices)))
    return tensorAround(blocks) as Tensor<'bool'>
  }

  /** The indices of `value`, one-hot blocks of this spec. @throws {FulmarError} As {@link TensorSpec.check}. */
  toCategorical(value: Tensor): Tensor<'i64'> {
    const indices = () =>
      withRawSpec(this, (spec) => withRawTensor(value, (blocks) => spec.toCategorical(blocks)))
    return tensorAround(indices) as Tensor<'i64'>
  }

  /** The spec of the same choices as one-hot blocks, masks kept. */
  toOneHotSpec(): DiscreteSpec {
    const make = () => withRawSpec(this, (spec) => spec.operate('{"op":"toOneHot"}'))
    return specAround(make) as DiscreteSpec
  }

  /** The spec of the same choices as indices, masks kept. */
  toCategoricalSpec(): DiscreteSpec {
    const make = () => withRawSpec(this, (spec) => spec.operate('{"op":"toCategorical"}'))
    return specAround(make) as DiscreteSpec
  }

  /**
   * For each value of this spec, which has one choice, the element of `table`, of shape `[n]`, that it names.
   * @throws {FulmarError} `INCOMPATIBLE` for multiple choices; `SHAPE_MISMATCH` if `table` has another shape; those of
   *   {@link TensorSpec.check}.
   */
  index<E extends Dtype>(value: Tensor, table: Tensor<E>): Tensor<E> {
    const named = () =>
      withRawSpec(this, (spec) =>
        withRawTensor(value, (at) => withRawTensor(table, (from) => spec.index(at, from))),
      )
    return tensorAround(named) as Tensor<E>
  }
}

/** The raw spec of choices. */
export function discreteOf(
  type: string,
  counts: Readonly<Record<string, SpecTable<number> | undefined>>,
  options: DiscreteOptions,
) {
  checkKnownKeys('options', options, ['shape', 'dtype', 'mask'])
  const fields = Object.entries(counts).map(([name, table]) => [name, tableText(table)])
  const text = specText(type, {
    shape: textOf(options.shape),
    dtype: textOf(options.dtype),
    ...(Object.fromEntries(fields) as Record<string, string | undefined>),
    mask: tableText(options.mask),
  })
  return raw.TensorSpec.fromJson(text)
}
