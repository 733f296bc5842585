/** Post-training reinforcement learning for language models: everything public, by room. */

export * from './chat/index.js'
export { type BuildDescription, describeBuild } from './core/build.js'
export { ConfigReader, type NumberRule } from './core/config-reader.js'
export { ERROR_CODES, type ErrorCode, FulmarError } from './core/error.js'
export { checkKnownKeys, describeValue, nearestName } from './core/options.js'
export { Rng, type RngState } from './core/rng.js'
export * from './model/index.js'
export * from './objective/index.js'
export * from './policy/index.js'
export * from './tensor/index.js'
export * from './tokenizer/index.js'
