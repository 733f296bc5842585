/** Specs of values that are of one of several specs. */

import { FulmarError } from '../core/index.js'
import { raw } from '../native/index.js'
import { type Json, NonTensorData, NonTensorStack, type TensorDictEntry } from '../tensor/index.js'
import { specText, textOf } from './spec-json.js'
import { isClassOf, joinedSpecs, type RESHAPED, specsOf, TensorSpec, withRawSpec } from './tensor-spec.js'
import type { AnySpec, PlainOf, ValueOf } from './types.js'

/** The value of a choice between specs, or between JSON values. */
export type ChosenValue<C> = C extends TensorSpec ? ValueOf<C> : C extends TensorDictEntry ? C : never

/**
 * One of several specs of one class, shape and dtype, or one of several JSON values.
 *
 * @example
 * ```ts
 * import { Bounded, Choice } from 'fulmar/spec'
 * import { NonTensorData, Tensor } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using gear = new Choice([new Bounded(0, 2.5, { shape: [1] }), new Bounded(10, 12, { shape: [1] })])
 * assert.ok(gear.contains(Tensor.from([11])) && !gear.contains(Tensor.from([9])))
 * assert.deepEqual(gear.project(Tensor.from([9])).data, Float32Array.of(10))
 * using word = new Choice([new NonTensorData('left'), new NonTensorData('right')])
 * assert.equal(word.cardinality(), 2n)
 * ```
 */
export class Choice<
  C extends AnySpec | NonTensorData | NonTensorStack = AnySpec | NonTensorData | NonTensorStack,
> extends TensorSpec<ChosenValue<C>, C extends TensorSpec ? PlainOf<C> : Json> {
  declare readonly [RESHAPED]: Choice<C>

  /**
   * @throws {FulmarError} `EMPTY` without choices; `INCOMPATIBLE` if they are of several classes or dtypes; `SHAPE_MISMATCH` if
   *   of several shapes; `MALFORMED` if one is neither a spec nor a JSON value.
   */
  constructor(choices: readonly C[]) {
    if (!Array.isArray(choices)) {
      throw new FulmarError('MALFORMED', `choices must be a list: got ${typeof choices}`)
    }
    super(() => rawOf(choices))
  }

  static {
    isClassOf('Choice', Choice)
  }

  /** The specs, in their order; none of a choice between JSON values. */
  get choices(): TensorSpec[] {
    return specsOf(() => withRawSpec(this, (spec) => spec.parts()))
  }
}

function rawOf(choices: readonly (AnySpec | NonTensorData | NonTensorStack)[]) {
  const specs = choices.filter((choice) => choice instanceof TensorSpec)
  if (specs.length === choices.length) return joinedSpecs(specs, (list) => list.choice())
  const values = choices.map(jsonValueOf)
  const text = specText('Choice', { shape: '[]', values: textOf(values) })
  return raw.TensorSpec.fromJson(text)
}

function jsonValueOf(choice: unknown): Json {
  if (choice instanceof NonTensorData) return choice.value
  if (choice instanceof NonTensorStack) return choice.values
  const detail = 'each choice must be a TensorSpec, NonTensorData or NonTensorStack, all of one kind'
  throw new FulmarError(
    'MALFORMED',
    `${detail}: got ${choice instanceof TensorSpec ? choice.kind : typeof choice}`,
  )
}
