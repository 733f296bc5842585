/** Specs that differ along a dimension. */

import type { TensorDict, TensorDictEntry, TensorKey } from '../tensor/index.js'
import { pathOf } from '../tensor/tensor-dict.js'
import { emptied, entryOf, keysOf, leafKeysOf, nestedKeysOf } from './dict-spec.js'
import { isClassOf, joinedSpecs, type RESHAPED, specsOf, TensorSpec, withRawSpec } from './tensor-spec.js'

/**
 * One spec for each index of dimension `dim`, all of one class and dtype; where their shapes differ, the dimension is
 * dynamic. Values of specs that differ in their first dimension alone, stacked along dimension 0, are `Ragged`.
 *
 * @example
 * ```ts
 * import { Rng } from 'fulmar'
 * import { Categorical, Stacked, TensorSpec } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * using moves = new Stacked([new Categorical(2), new Categorical(9)], 0)
 * assert.deepEqual([moves.shape, moves.dim], [[2], 0])
 * assert.ok(moves.contains(moves.rand(Rng.fromSeed(1), [5])))
 * assert.ok(moves.at(1).equals(new Categorical(9)))
 * assert.ok(moves.equals(TensorSpec.stack(moves.specs)))
 * ```
 */
export class Stacked<V extends TensorDictEntry = TensorDictEntry, P = unknown> extends TensorSpec<V, P> {
  declare readonly [RESHAPED]: TensorSpec

  /**
   * @throws {FulmarError} `EMPTY` without specs; `INCOMPATIBLE` if class or dtype differ; `SHAPE_MISMATCH` if the number of
   *   dimensions does; `OUT_OF_RANGE` if `dim` is past it; `LIMIT_EXCEEDED` above 32 nested specs.
   */
  constructor(specs: readonly TensorSpec<V, P>[], dim = 0) {
    super(() => joinedSpecs(specs as readonly TensorSpec[], (list) => list.stacked(dim)))
  }

  static {
    isClassOf('Stacked', Stacked)
  }

  /** The specs, in the order of the dimension. */
  get specs(): TensorSpec<V, P>[] {
    return specsOf(() => withRawSpec(this, (spec) => spec.parts())) as TensorSpec<V, P>[]
  }

  /** Dimension along which the specs are stacked. */
  get dim(): number {
    return withRawSpec(this, (spec) => spec.stackDim()) ?? 0
  }
}

/**
 * {@link Stacked} dictionaries. Its keys are those that all of them have.
 *
 * @example
 * ```ts
 * import { Composite, consolidateSpec, StackedComposite, Unbounded } from 'fulmar/spec'
 * import assert from 'node:assert/strict'
 *
 * const camera = new Unbounded({ shape: [2] })
 * const one = new Composite({ camera })
 * const two = new Composite({ camera, lidar: new Unbounded({ shape: [3] }) })
 * using robots = new StackedComposite([one, two], 0)
 * assert.deepEqual(robots.keys(), ['camera'])
 * assert.deepEqual(robots.get('camera')?.shape, [2, 2])
 * assert.deepEqual(consolidateSpec(robots).at(0).toJson().shape, [])
 * ```
 */
export class StackedComposite extends Stacked<TensorDict> {
  static {
    isClassOf('StackedComposite', StackedComposite)
  }

  /** The names of the entries, nested ones not visited, in the order of the first. */
  keys(): string[] {
    return keysOf(this)
  }

  /** The paths of all entries, nested ones before the dictionary that holds them. */
  nestedKeys(): string[][] {
    return nestedKeysOf(this)
  }

  /** The paths of all entries that are not dictionaries. */
  leafKeys(): string[][] {
    return leafKeysOf(this)
  }

  /** Returns true if all have an entry at `key`. */
  has(key: TensorKey): boolean {
    return withRawSpec(this, (spec) => spec.has(pathOf(key)))
  }

  /** Returns the specs at `key`, stacked; `null` where any value is allowed, `undefined` if one lacks the key. */
  get(key: TensorKey): TensorSpec | null | undefined {
    return entryOf(this, key)
  }

  /** The same batch size without entries. */
  empty(): TensorSpec {
    return emptied(this)
  }
}
