/** Continuous and discrete dtypes. */

import { FulmarError } from '../core/index.js'
import type { Dtype } from '../tensor/index.js'

/** Dtypes of continuous numbers. */
export type FloatDtype = 'f64' | 'f32' | 'f16' | 'bf16'

/** Dtypes of whole numbers; bools are 0 and 1. */
export type WholeDtype = Exclude<Dtype, FloatDtype>

const FLOATS: readonly (Dtype | undefined)[] = ['f64', 'f32', 'f16', 'bf16']

/** Refuses a dtype of the other domain. @throws {FulmarError} `INCOMPATIBLE`. */
export function checkDomain(domain: 'continuous' | 'discrete', dtype: Dtype | undefined): void {
  if (dtype === undefined || FLOATS.includes(dtype) === (domain === 'continuous')) return
  throw new FulmarError('INCOMPATIBLE', `dtype must be ${domain}: got ${dtype}`)
}
