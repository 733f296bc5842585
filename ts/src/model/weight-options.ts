/** Options of weights: their dtype, their device, the precision of their products and their version. */

import { checkKnownKeys, type DeviceName, type PlacedDevice, placeDevice } from '../core/index.js'

/** Dtype of stored weights. */
export type WeightDtype = 'f32' | 'bf16'

/** Precision of the operands of products. */
export type MatmulPrecision = 'f32' | 'bf16'

/** Storage of weights, and computation with them. */
export interface WeightOptions {
  /**
   * Dtype of the stored weights. `bf16` halves the memory, and the time to read them for few rows, as in
   * decoding; each weight is rounded to nearest. Sums and activations stay in f32, and results have the bits
   * of the rounded weights in `f32`. Optimizers keep unrounded master copies, so that small steps add up.
   * @default 'f32'
   */
  readonly dtype?: WeightDtype
  /**
   * Device of the weights. On a GPU (`cuda:0`) decoders are scored, trained and drawn from: weights in f32 with the bits of a CPU
   * that fuses multiply-adds; for weights in bf16 products round both operands, as with `matmulPrecision: 'bf16'`, and attention
   * reads keys and values in bf16 if heads have a width of 64, 80, 96, 128 or 256. Throws `UNAVAILABLE` with the reason for a GPU
   * that cannot be used.
   * @default 'cpu'
   */
  readonly device?: DeviceName
  /**
   * Precision of the operands of products, in the layers and in the vocabulary head, forward and backward. `bf16` rounds both
   * operands to nearest, as `torch.set_float32_matmul_precision('medium')` may: up to twice as fast on AMD's processors with
   * AVX512-BF16, with the same bits but slower than `f32` on others, Intel's among them. Weights, sums, norms, attention, log-probs, gradients and
   * optimizers stay in f32. Engines of the decoder compute likewise, so the log-probs of sampled tokens are still those of
   * `Decoder.forward`.
   * @default 'f32'
   */
  readonly matmulPrecision?: MatmulPrecision
}

/** Options of loaded weights. */
export interface LoadOptions extends WeightOptions {
  /**
   * Version of the weights, for a run that is resumed.
   * @default 0
   */
  readonly version?: number
}

/** @internal Options of weights with their defaults; without a precision, that of the decoder itself. */
export interface PlacedWeights {
  readonly version: number
  readonly device: PlacedDevice
  readonly matmulPrecision?: MatmulPrecision
}

/** Fills in the defaults of {@link LoadOptions}. @throws {FulmarError} `UNKNOWN_NAME` or `UNAVAILABLE`. */
export function checkLoadOptions(options: LoadOptions): { dtype: WeightDtype; placed: PlacedWeights } {
  checkKnownKeys('options', options, ['version', 'dtype', 'device', 'matmulPrecision'])
  const { version = 0, dtype = 'f32', device, matmulPrecision = 'f32' } = options
  return { dtype, placed: { version, device: placeDevice(device), matmulPrecision } }
}
