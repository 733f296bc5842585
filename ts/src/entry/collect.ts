/** Collectors: rollouts that run beside training, with staleness policies and weight updates. */

export * from '../collect/index.js'
