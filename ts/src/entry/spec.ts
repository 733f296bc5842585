/** Specs: the shape, dtype and values that an observation, an action or a reward may have. */

export * from '../spec/index.js'
