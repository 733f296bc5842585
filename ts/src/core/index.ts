/** Errors, closed options, the generator, the description of the build. */

export { type BuildDescription, describeBuild } from './build.js'
export {
  type DeviceName,
  type Gpu,
  gpus,
  namesDevice,
  type OnDevice,
  type PlacedDevice,
  placeDevice,
} from './device.js'
export { call, callAsync, ERROR_CODES, type ErrorCode, FulmarError, messageOf } from './error.js'
export { yieldToEventLoop } from './event-loop.js'
export {
  type Field,
  type FieldValue,
  field,
  type JsonSchema,
  type NumberRule,
  type RangeRule,
} from './field.js'
export { Handle } from './handle.js'
export { checkGiven, checkKnownKeys, checkList, describeValue, nearestName } from './options.js'
export { parseJson } from './parse-json.js'
export { openRegular, readRegular, unreadable } from './regular-file.js'
export { Rng, type RngState } from './rng.js'
export { checkTypedArray, numbersOf } from './typed-array.js'
