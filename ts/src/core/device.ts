/** Where weights lie and sums run. */

import { raw } from '../native/index.js'
import { call } from './error.js'

/** A device by its name: `cuda` is the first GPU, `auto` a GPU where one can be used and the CPU elsewhere. */
export type DeviceName = 'auto' | 'cpu' | 'cuda' | `cuda:${number}`

/** A device that is there. */
export type PlacedDevice = Exclude<DeviceName, 'auto'>

/** An option of what runs on a device, or lies there. */
export interface OnDevice {
  /** Where: see {@link DeviceName}. A GPU that cannot be used is refused with `UNAVAILABLE` and the reason. @default 'cpu' */
  readonly device?: DeviceName
}

/** A GPU that NVIDIA's driver shows. */
export interface Gpu {
  /** The number that CUDA gives it. */
  readonly ordinal: number
  /** Such as `NVIDIA H100 80GB HBM3`. */
  readonly name: string
  /** Bytes of its memory. */
  readonly memoryBytes: number
  /** What it can compute, such as `9.0`. */
  readonly computeCapability: string
}

/**
 * The GPUs of this machine.
 * @throws {FulmarError} `UNAVAILABLE` with what is lacking: a build with CUDA, NVIDIA's driver, one new enough, a GPU.
 *
 * @example
 * ```ts
 * import { gpus } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * try {
 *   assert.ok(gpus().length > 0)
 * } catch (error) {
 *   assert.equal((error as { code: string }).code, 'UNAVAILABLE')
 * }
 * ```
 */
export function gpus(): readonly Gpu[] {
  return call(() => JSON.parse(raw.gpus()) as Gpu[])
}

/**
 * The device that a name stands for on this machine. There are no kernels for GPUs yet, so `auto` is the CPU everywhere.
 * @throws {FulmarError} `UNAVAILABLE` for a GPU, with what is lacking; `UNKNOWN_NAME` for what names no device.
 *
 * @example
 * ```ts
 * import { placeDevice } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.equal(placeDevice('auto'), 'cpu')
 * assert.throws(() => placeDevice('cuda:0'), { code: 'UNAVAILABLE' })
 * ```
 */
export function placeDevice(name: DeviceName = 'cpu'): PlacedDevice {
  return call(() => raw.placeDevice(name) as PlacedDevice)
}

/** Whether `name` has the form of a device's name, whether or not there is one. */
export function namesDevice(name: string): name is PlacedDevice {
  return name === 'cpu' || name === 'cuda' || name.startsWith('cuda:')
}
