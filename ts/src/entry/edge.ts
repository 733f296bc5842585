/**
 * The edge module: the part of Fulmar that a page or an edge worker needs, in a third of the size. Random numbers, tokenizers, templates,
 * renderers, ledgers, masks, losses over typed arrays, draws.
 */

export { type BuildDescription, describeBuild } from '../core/build.js'
export { ERROR_CODES, type ErrorCode, FulmarError } from '../core/error.js'
export { type InitOptions, init } from '../core/init.js'
export { Rng, type RngState } from '../core/rng.js'
export * from './chat.js'
export * from './objective.js'
export * from './tokenizer.js'
