/** Returns: value estimates of trajectories (GAE, TD, V-trace, reward to go). */

export * from '../objective/returns.js'
