/** Collectors: rollouts that run concurrently with training, with staleness policies and weight updates. */

export * from '../collect/index.js'
