/** Objectives: losses with their gradients, group advantages, KL estimates, token drawing. */

export * from '../objective/index.js'
