/** Errors, closed options, the generator, the description of the build. */

export { describeBuild } from './build.js'
export {
  type DeviceMemory,
  type DeviceName,
  deviceMemory,
  gpus,
  namesDevice,
  type OnDevice,
  type PlacedDevice,
  placeDevice,
  placeOnCpu,
} from './device.js'
export {
  call,
  callAsync,
  calledBack,
  ERROR_CODES,
  type ErrorCode,
  FulmarError,
  messageOf,
} from './error.js'
export { yieldToEventLoop } from './event-loop.js'
export {
  type Field,
  field,
  type JsonSchema,
} from './field.js'
export { Handle } from './handle.js'
export { checkGiven, checkKnownKeys, checkList, describeValue, nearestName } from './options.js'
export { parseJson } from './parse-json.js'
export { openRegular, readRegular, unreadable } from './regular-file.js'
export { Rng } from './rng.js'
export { checkTypedArray, numbersOf } from './typed-array.js'
