/** Looking at runs: a page on this machine, TensorBoard's and Prometheus' forms, facts about files. */

export * from '../dashboard/index.js'
