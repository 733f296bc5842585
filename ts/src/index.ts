/** Post-training reinforcement learning for language models: everything public, by room. */

export * from './chat/index.js'
export * from './chat-env/index.js'
export * from './collector/index.js'
export { type BuildDescription, describeBuild } from './core/build.js'
export {
  type DeviceName,
  type Gpu,
  gpus,
  type OnDevice,
  type PlacedDevice,
  placeDevice,
} from './core/device.js'
export { ERROR_CODES, type ErrorCode, FulmarError } from './core/error.js'
export {
  type Field,
  type FieldValue,
  field,
  type JsonSchema,
  type NumberRule,
  type RangeRule,
} from './core/field.js'
export { type InitOptions, init } from './core/init.js'
export { checkKnownKeys, describeValue, nearestName } from './core/options.js'
export { Rng, type RngState } from './core/rng.js'
export * from './data/index.js'
export * from './env/index.js'
export * from './model/index.js'
export * from './objective/index.js'
export * from './policy/index.js'
export * from './replay/index.js'
export * from './reward/index.js'
export * from './rollout/index.js'
export * from './spec/index.js'
export * from './task/index.js'
export * from './ted/index.js'
export * from './telemetry/index.js'
export * from './template/index.js'
export * from './tensor/index.js'
export * from './tokenizer/index.js'
export * from './tools/index.js'
export * from './train/index.js'
export * from './transform/index.js'
