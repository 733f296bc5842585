/** Testing: suites for storages, samplers and policies of your own, a clock and a policy under control. */

export { ManualClock } from '../telemetry/index.js'
export * from '../testing/index.js'
