/** Transforms: changes a replay buffer makes to dictionaries as they are written and read. */

export * from '../transform/index.js'
