/** Conversion of arguments for the core: arrays of the right type, options as JSON. */

import { checkKnownKeys, checkTypedArray, FulmarError, type OnDevice, placeOnCpu } from '../core/index.js'

/** Typed arrays that losses pass to the core. */
export type ArrayName = 'Float32Array' | 'Uint8Array' | 'Uint32Array'

/**
 * Checks that a field of `batch` is an array of `type`: WebAssembly would convert another and the addon would
 * not.
 * @throws {FulmarError} `MALFORMED`, naming the field.
 */
export function checkArray(batch: object, field: string, type: ArrayName, optional = false): void {
  const value: unknown = Reflect.get(batch, field)
  if (optional && value === undefined) return
  checkTypedArray(field, value, { name: type })
}

/** Names of the fields of an option object; a field that is an object lists its own fields. */
export type KnownKeys = { readonly [key: string]: true | KnownKeys }

/**
 * Returns `options` as JSON, after checks of its keys, its numbers (JSON would turn a NaN into an absent
 * value) and its device, which `resolve` names: by default of
 * what runs on the CPU alone.
 * @throws {FulmarError} `UNKNOWN_NAME` for an unknown key, with the nearest one; `OUT_OF_RANGE` for a NaN or
 * an infinity; `UNAVAILABLE` for a device that cannot be used.
 */
export function optionsJson(
  place: string,
  options: object & OnDevice,
  known: KnownKeys,
  resolve: typeof placeOnCpu = placeOnCpu,
): string {
  checkOptions(place, options, known)
  const { device } = options
  return JSON.stringify(device === undefined ? options : { ...options, device: resolve(device) })
}

function checkOptions(place: string, options: object, known: KnownKeys): void {
  checkKnownKeys(place, options, Object.keys(known))
  for (const [key, value] of Object.entries(options)) {
    const inner = known[key]
    if (typeof inner === 'object' && typeof value === 'object' && value !== null && !Array.isArray(value)) {
      checkOptions(`${place}.${key}`, value, inner)
    }
    const bad = [value].flat().find((item) => typeof item === 'number' && !Number.isFinite(item))
    if (bad !== undefined) {
      throw new FulmarError('OUT_OF_RANGE', `${place}.${key} must be a finite number: got ${bad}`)
    }
  }
}
