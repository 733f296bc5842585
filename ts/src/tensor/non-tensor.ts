/** Texts and other JSON values as entries of a tensor dictionary. */

/** A JSON value. */
export type Json = string | number | boolean | null | readonly Json[] | { readonly [key: string]: Json }

/**
 * One JSON value shared by the whole batch.
 *
 * @example
 * ```ts
 * import { NonTensorData, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using dict = TensorDict.from({ task: new NonTensorData('sum the digits') }, { batchSize: [2] })
 * assert.equal(dict.index(1).value('task'), 'sum the digits')
 * ```
 */
export class NonTensorData {
  readonly value: Json

  constructor(value: Json) {
    this.value = value
  }
}

/**
 * One JSON value for each element of the batch, as arrays nested like the batch.
 *
 * @example
 * ```ts
 * import { NonTensorStack, TensorDict } from 'fulmar/tensor'
 * import assert from 'node:assert/strict'
 *
 * using dict = TensorDict.from({ answer: new NonTensorStack(['7', '12']) }, { batchSize: [2] })
 * assert.equal(dict.index(1).value('answer'), '12')
 * ```
 */
export class NonTensorStack {
  readonly values: readonly Json[]

  constructor(values: readonly Json[]) {
    this.values = values
  }
}
