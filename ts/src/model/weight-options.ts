/** Storage of weights: their dtype, their device and their version. */

import { checkKnownKeys, type DeviceName, type PlacedDevice, placeDevice } from '../core/index.js'

/** Dtype of stored weights. */
export type WeightDtype = 'f32' | 'bf16'

/** Storage of weights. */
export interface WeightOptions {
  /**
   * Dtype of the stored weights. `bf16` halves the memory, and the time to read them for few rows, as in
   * decoding; each weight is rounded to nearest. Sums and activations stay in f32, and results have the bits
   * of the rounded weights in `f32`. Optimizers keep unrounded master copies, so that small steps add up.
   * @default 'f32'
   */
  readonly dtype?: WeightDtype
  /**
   * Device of the weights. Throws `UNAVAILABLE` with the reason for a GPU that cannot be used.
   * @default 'cpu'
   */
  readonly device?: DeviceName
}

/** Options of loaded weights. */
export interface LoadOptions extends WeightOptions {
  /**
   * Version of the weights, for a run that is resumed.
   * @default 0
   */
  readonly version?: number
}

/** Fills in the defaults of {@link LoadOptions}. @throws {FulmarError} `UNKNOWN_NAME` or `UNAVAILABLE`. */
export function checkLoadOptions(options: LoadOptions): {
  version: number
  dtype: WeightDtype
  device: PlacedDevice
} {
  checkKnownKeys('options', options, ['version', 'dtype', 'device'])
  const { version = 0, dtype = 'f32', device } = options
  return { version, dtype, device: placeDevice(device) }
}
