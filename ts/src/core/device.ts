/** Devices: memory of tensors and weights, and the processor that computes on them. */

import { raw } from '../native/index.js'
import { call } from './error.js'

/**
 * Name of a device: `cuda` is the first GPU. `auto` is the first GPU that can be used; without one, and for what runs on the CPU alone, it
 * is the CPU.
 */
export type DeviceName = 'auto' | 'cpu' | 'cuda' | `cuda:${number}`

/** Name of a device that was resolved: never `auto`. */
export type PlacedDevice = Exclude<DeviceName, 'auto'>

/** Option of everything that computes or is stored on a device. */
export interface OnDevice {
  /**
   * The device: see {@link DeviceName}. Throws `UNAVAILABLE` with the reason for a GPU that cannot be used.
   * @default 'cpu'
   */
  readonly device?: DeviceName
}

/** A GPU that NVIDIA's driver reports. */
export interface Gpu {
  /** Its CUDA device index. */
  readonly ordinal: number
  /** Its name, such as `NVIDIA H100 80GB HBM3`. */
  readonly name: string
  /** Size of its memory in bytes. */
  readonly memoryBytes: number
  /** Bytes of its memory that are free now, for this process; null for a GPU that this process has not opened. */
  readonly freeMemoryBytes: number | null
  /** Bytes of its memory that this process has allocated; null for a GPU that it has not opened. */
  readonly usedMemoryBytes: number | null
  /** Its CUDA compute capability, such as `9.0`. */
  readonly computeCapability: string
  /** The CUDA version that its driver runs, such as `13.0`. */
  readonly driverVersion: string
  /**
   * The part of the compiled kernels that it runs: machine code, or `compute_90`, which its driver compiles at first use. Null for a
   * compute capability below 8.0.
   */
  readonly code: 'sm_80' | 'sm_90a' | 'compute_90' | null
}

/**
 * Returns the GPUs of this machine.
 * @throws {FulmarError} `UNAVAILABLE` with what is missing: a build with
 * CUDA, NVIDIA's driver, a recent driver, or a GPU.
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
 * Resolves a device name on this machine, and opens a GPU. `auto` gives the first GPU with a compute capability of 8.0 or later, or
 * the CPU.
 * @throws {FulmarError} `UNAVAILABLE` for a GPU, with what is missing; `UNKNOWN_NAME` if `name` is no device
 * name.
 *
 * @example
 * ```ts
 * import { placeDevice } from 'fulmar'
 * import assert from 'node:assert/strict'
 *
 * assert.match(placeDevice('auto'), /^cpu$|^cuda:/)
 * assert.throws(() => placeDevice('cuda:9999'), { code: 'UNAVAILABLE' })
 * ```
 */
export function placeDevice(name: DeviceName = 'cpu'): PlacedDevice {
  return call(() => raw.placeDevice(name) as PlacedDevice)
}

/** @internal Resolves the device name of what runs on the CPU alone, where `auto` is the CPU. @throws {FulmarError} As {@link placeDevice}. */
export function placeOnCpu(name: DeviceName = 'cpu'): PlacedDevice {
  return placeDevice(name === 'auto' ? 'cpu' : name)
}

/** Memory of the GPU of a decoder; without fields for one on the CPU. */
export interface DeviceMemory {
  /** Bytes that this process has allocated on the GPU. */
  readonly deviceMemoryBytes?: number
  /** Bytes that are free on the GPU. */
  readonly deviceFreeBytes?: number
}

/** @internal Returns the memory of a device. @throws {FulmarError} `UNAVAILABLE` for a GPU that fails. */
export function deviceMemory(device: PlacedDevice): DeviceMemory {
  if (device === 'cpu') return {}
  const gpu = gpus().find(({ ordinal }) => device === `cuda:${ordinal}`)
  return {
    ...(typeof gpu?.usedMemoryBytes === 'number' && { deviceMemoryBytes: gpu.usedMemoryBytes }),
    ...(typeof gpu?.freeMemoryBytes === 'number' && { deviceFreeBytes: gpu.freeMemoryBytes }),
  }
}

/** Returns true if `name` has the form of a device name. The device need not exist. */
export function namesDevice(name: string): name is PlacedDevice {
  return name === 'cpu' || name === 'cuda' || name.startsWith('cuda:')
}
