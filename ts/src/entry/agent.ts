/** Agents that are programs of their own, as rollouts: an endpoint that keeps the tokens. */

export * from '../agent/index.js'
